/* SPDX-License-Identifier: MIT */
/*
 * json_write: JSON text under construction, for views and for formats that hold JSON. Two-space indent, stable
 * order, numbers printed shortest so that they read back equal; what JSON cannot say is spelled as
 * parsers/core/value.h tells. Short lists of scalars stay on one line. Sticky on memory exhaustion; test
 * json_take's result.
 *
 *	struct json j = {0};
 *	json_open(&j, '{');
 *	json_key(&j, STR("dtype"));
 *	json_text(&j, STR("float32"));
 *	json_close(&j, '}');
 *	json_end(&j);             // newline
 *	text = json_take(&j, &len);
 */
#ifndef PARSERS_CONTAINER_JSON_WRITE_H
#define PARSERS_CONTAINER_JSON_WRITE_H

#include "parsers/core/value.h"

struct json {
	char *text;
	size_t len, cap;
	int failed;
	unsigned depth;
	uint64_t filled; /* bit per depth: a member was written (depth <= 63 here, deeper is counted) */
	bool after_key;
	unsigned flat; /* > 0: inside a one-line list */
};

void json_open(struct json *j, char bracket); /* '{' or '[' */
void json_close(struct json *j, char bracket);
void json_open_flat(struct json *j, char bracket); /* on one line: [1, 2, 3] */
void json_key(struct json *j, struct str key);
void json_text(struct json *j, struct str s); /* bad UTF-8 becomes {"$bytes": ...} */
void json_int(struct json *j, int64_t i);
void json_uint(struct json *j, uint64_t u);
void json_float(struct json *j, double d, bool single);
void json_bool(struct json *j, bool b);
void json_nothing(struct json *j);
void json_value(struct json *j, const struct value *v); /* NULL prints null */
void json_raw(struct json *j, struct str text);         /* no comma handling */
void json_end(struct json *j);
/* The heap text (caller frees), NULL when memory ran out. */
char *json_take(struct json *j, size_t *len);
void json_release(struct json *j);

#endif
