/* SPDX-License-Identifier: MIT */
/*
 * text: plain text under construction, for the views that are not JSON, and the few words that several
 * views share. Sticky on memory exhaustion; test text_give's result.
 */
#ifndef VIEWS_TEXT_H
#define VIEWS_TEXT_H

#include "views/view.h"

struct text {
	char *ptr;
	size_t len, cap;
	bool failed;
};

void text_bytes(struct text *t, const char *ptr, size_t len);
void text_str(struct text *t, struct str s);
void text_printf(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A name as it is, or as a JSON string when it holds anything that a reader of the line could take for
 * something else. */
void text_name(struct text *t, struct str name);
/* A value as JSON on one line. */
void text_value(struct text *t, const struct value *v);
/* Quoted for Graphviz. */
void text_dot(struct text *t, struct str s);
/* "float32[2, 3]" */
void text_type(struct text *t, enum dtype d, const uint64_t *shape, uint32_t rank);
void text_port(struct text *t, const struct port *p); /* "float32[N, 3]" */
void text_release(struct text *t);
/* Hands the text to the map. Empties t. */
int text_give(struct text *t, struct extmap *out, struct error *e);

void json_shape(struct json *j, const uint64_t *shape, uint32_t rank);
/* The members of a map, without brackets; nothing for NULL. */
void json_members(struct json *j, const struct value *map);

/* What an op is called: its name, else its first output's. */
struct str op_shown_name(const struct op *op);
const char *dtype_name(enum dtype d);
/* The bytes of raw/NAME. */
int tensor_raw_size(const struct tensor *t, uint64_t *size);
/* A piece of `size` bytes that reads as EIO with the tensor's problem. */
int tensor_unreadable(const struct tensor *t, uint64_t size, struct extmap *out, struct error *e);

#endif
