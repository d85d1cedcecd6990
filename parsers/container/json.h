/* SPDX-License-Identifier: MIT */
/*
 * json: text -> value, by jansson, bounded. What JSON cannot say is read in the spellings of parsers/core/value.h, so
 * this is the inverse of parsers/container/json_write.h. Integers beyond 64 bits become BIGINT. Equal keys in one object are refused.
 */
#ifndef PARSERS_CONTAINER_JSON_H
#define PARSERS_CONTAINER_JSON_H

#include "parsers/core/error.h"
#include "parsers/core/value.h"

/* One document and nothing behind it but white space. EINVAL with line and column. Values and strings are in the arena,
 * independent of text. */
int json_parse(struct arena *a, const char *text, size_t len, struct value **out, struct error *e);
/* The same for JSON that others wrote: keys that begin with $ have no meaning. */
int json_parse_plain(struct arena *a, const char *text, size_t len, struct value **out, struct error *e);
/* The library's version, for --version. */
const char *json_library_version(void);

#endif
