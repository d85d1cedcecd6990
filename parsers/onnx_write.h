/* SPDX-License-Identifier: MIT */
/*
 * Writing ONNX, in three files: onnx_write.c saves an edited model, onnx_create.c makes one from another format,
 * onnx_edit.c says which edits are possible.
 */
#ifndef PARSERS_ONNX_WRITE_H
#define PARSERS_ONNX_WRITE_H

#include "parsers/format.h"
#include "parsers/onnx_types.h"

/* what protobuf can hold in one message, with room for the lengths around payloads */
#define ONNX_PROTO_MAX ((1ull << 31) - (64u << 20))
/* tensors below this many bytes stay inside, as the onnx package keeps them */
#define ONNX_EXTERNAL_MIN 1024u

/* Where the elements of a tensor go outside; location NULL = inside. */
struct onnx_outside {
	const char *location;
	uint64_t offset;
};

/* Fields of a TensorProto: dims, data_type, elements. data: its bits. Failures are sticky in out. */
void onnx_put_tensor(struct extmap *out, const struct tensor *t, int32_t data_type, const struct extent *data,
	const struct onnx_outside *outside);
/* external_data and data_location alone */
void onnx_put_outside(struct extmap *out, const struct onnx_outside *outside, uint64_t size);
/* A ValueInfoProto's content: name and tensor type. */
void onnx_put_value_info(struct extmap *out, struct str name, int32_t data_type, const uint64_t *shape, uint32_t rank);
/* A TypeProto's content: a tensor of that element type and shape. */
void onnx_put_type(struct extmap *out, int32_t data_type, const uint64_t *shape, uint32_t rank);
/* The metadata_props that a model's metadata becomes, as fields of ModelProto. Strings live in a. */
int onnx_put_properties(struct extmap *out, const struct metadata *meta, struct arena *a);
/* model_version of a version "N.M.P", 0 without one */
uint64_t onnx_model_version(const struct metadata *meta);
/* a string of the section "model", empty without one */
struct str onnx_model_text(const struct metadata *meta, const char *key);

/* Appends x to a data file so that it begins at a multiple of align (a power of two). Its offset. */
uint64_t onnx_append_aligned(struct extmap *file, const struct extent *x, uint64_t align);

extern const struct format format_onnx;

int onnx_plan(const struct model *m, struct plan *p, struct error *e);
int onnx_create(const struct model *m, struct plan *p, struct error *e);
int onnx_check_edit(const struct model *m, const struct edit *edit, struct error *e);

#endif
