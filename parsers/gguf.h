/* SPDX-License-Identifier: MIT */
/* What the reader and the writer of GGUF share. */
#ifndef PARSERS_GGUF_H
#define PARSERS_GGUF_H

#include "parsers/codec/ggml.h"
#include "parsers/format.h"

enum gguf_type { GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL, GGUF_STRING, GGUF_ARRAY,
	GGUF_U64, GGUF_I64, GGUF_F64, GGUF_TYPES };

/* One key of the header, in file order. */
struct gguf_key {
	struct str name;
	enum gguf_type type, element; /* element: of an array */
	uint64_t offset, size;        /* the whole entry */
	uint64_t value;               /* where its value begins (for an array: its element type) */
};

/* model->priv */
struct gguf_file {
	struct source *src; /* held by the model */
	uint32_t version, alignment;
	bool big, split;
	struct gguf_key *keys;
	uint64_t key_count;
	uint64_t infos, infos_end; /* tensor infos */
	uint64_t data;             /* where the data section begins */
};

/* tensor->priv: its index in the file and its entry among the infos */
struct gguf_place {
	uint32_t index, type;
	uint64_t offset; /* in the data section */
};

/* Keys of "model" that GGUF has: {"name", "general.name"}, ... ends with NULL */
extern const char *const gguf_model_keys[][2];

/* The bytes of a value of that type (for arrays with the element type and count in front), appended. EINVAL when it does
 * not fit. */
int gguf_put_value(struct extmap *out, const struct value *v, enum gguf_type type, enum gguf_type element, bool big,
	struct error *e);
/* The ggml type that holds a dtype, UINT32_MAX = none. */
uint32_t gguf_type_of(enum dtype d);

int gguf_plan(const struct model *m, struct plan *p, struct error *e);
int gguf_check_edit(const struct model *m, const struct edit *x, struct error *e);
extern const struct format format_gguf;

#endif
