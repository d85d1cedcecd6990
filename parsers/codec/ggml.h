/* SPDX-License-Identifier: MIT */
/*
 * ggml: the element types of ggml (its type ids are those of GGUF), and their blocks decoded to float32 exactly as the
 * reference does: float32 throughout, scales multiplied first (ggml-quants.c and gguf-py 0.19).
 */
#ifndef PARSERS_CODEC_GGML_H
#define PARSERS_CODEC_GGML_H

#include "parsers/core/codec.h"
#include "parsers/core/dtype.h"

struct ggml_type {
	const char *name;   /* NULL = no such type, or one that was removed */
	enum dtype dtype;   /* of plain types; NONE for blocks */
	uint32_t block, block_bytes; /* elements and bytes of a block */
	void (*decode)(const unsigned char *block, float *out); /* NULL = bytes only */
};

extern const struct ggml_type ggml_types[];
extern const uint32_t ggml_type_count;

/* Stored blocks -> `count` float32, a multiple of the type's block. NULL when memory is out or nothing decodes it. */
struct codec *codec_ggml(const struct extent *in, const struct ggml_type *type, uint64_t count);

#endif
