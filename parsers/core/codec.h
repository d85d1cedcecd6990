/* SPDX-License-Identifier: MIT */
/*
 * codec: bytes computed when they are read, with random access and bounded memory. A codec is a struct
 * that begins with `struct codec` and an ops table; parsers/codec/ has one file for each kind. Reads come
 * from many threads at once; a codec that keeps decoder state guards it with a mutex of its own.
 */
#ifndef PARSERS_CORE_CODEC_H
#define PARSERS_CORE_CODEC_H

#include "parsers/core/extmap.h"

struct codec_ops {
	const char *name; /* for layout.txt: "byte swap", "inflate" */
	/* exactly len bytes at offset; the range is inside codec->size (the caller checked) */
	int (*read)(struct codec *c, uint64_t offset, void *buf, size_t len, struct error *e);
	void (*free)(struct codec *c); /* releases inputs and the struct itself */
};

struct codec {
	const struct codec_ops *ops;
	uint64_t size; /* of the output */
	int refs;      /* atomic */
};

void codec_init(struct codec *c, const struct codec_ops *ops, uint64_t size); /* refs = 1 */
struct codec *codec_ref(struct codec *c);
void codec_unref(struct codec *c); /* NULL is fine */
int codec_read(struct codec *c, uint64_t offset, void *buf, size_t len, struct error *e);

#endif
