/* SPDX-License-Identifier: MIT */
/*
 * value: an inert value: what JSON can say, and what it cannot (NaN, integers beyond 64 bits, bytes,
 * tuples). Op attributes, properties, hyper-parameters and pickled leaves are values. They live in an
 * arena and are immutable once built.
 *
 * As JSON text (value_json in parsers/container/json_write.h and json_parse in parsers/container/json.h are inverse):
 *	NaN, Infinity           {"$float": "NaN"} "Infinity" "-Infinity"
 *	integer beyond int64    {"$int": "1180591620717411303424"}
 *	bytes, bad UTF-8        {"$bytes": "base64"}
 *	tuple                   {"$tuple": [...]}
 *	kept in a file          {"$file": "metadata/properties/tokens.json"}
 *	a key that begins with $ gets one more $ in front
 */
#ifndef PARSERS_CORE_VALUE_H
#define PARSERS_CORE_VALUE_H

#include "parsers/core/arena.h"

/* Tag of a STRING that names the file which holds the value, in metadata.json only: {"$file": "metadata/..."} */
#define VALUE_FILE UINT32_MAX

enum value_kind {
	VALUE_NULL,
	VALUE_BOOL,
	VALUE_INT,
	VALUE_FLOAT,   /* double, printed shortest so that it reads back equal */
	VALUE_FLOAT32, /* the same for a float */
	VALUE_BIGINT,  /* decimal text, sign allowed */
	VALUE_STRING,
	VALUE_BYTES,
	VALUE_LIST,
	VALUE_TUPLE,
	VALUE_MAP, /* keys in order of insertion */
};

struct value;
struct member {
	struct str key;
	struct value *value;
};

struct value {
	enum value_kind kind;
	uint32_t tag; /* the driver's own exact type, e.g. GGUF's; 0 when it needs none */
	union {
		bool boolean;
		int64_t integer;
		double real;
		struct str str; /* STRING, BYTES, BIGINT */
		struct {
			struct value **items;
			size_t count, cap;
		} list; /* LIST, TUPLE */
		struct {
			struct member *members;
			size_t count, cap;
		} map;
	};
};

/* Constructors give NULL when memory is out; adding to or of NULL does nothing and returns -ENOMEM. */
struct value *value_null(struct arena *a);
struct value *value_bool(struct arena *a, bool b);
struct value *value_int(struct arena *a, int64_t i);
struct value *value_uint(struct arena *a, uint64_t u); /* BIGINT beyond int64 */
struct value *value_float(struct arena *a, double d);
struct value *value_float32(struct arena *a, float f);
struct value *value_bigint(struct arena *a, struct str decimal);
struct value *value_str(struct arena *a, struct str s);   /* borrowed; BYTES if not UTF-8 */
struct value *value_bytes(struct arena *a, struct str s); /* borrowed */
struct value *value_cstr(struct arena *a, const char *c); /* copied */
struct value *value_list(struct arena *a);
struct value *value_tuple(struct arena *a);
struct value *value_map(struct arena *a);
int value_append(struct arena *a, struct value *list, struct value *item);
/* Appends; does not look for an equal key (value_put does, and replaces). Keys are borrowed. */
int value_set(struct arena *a, struct value *map, struct str key, struct value *v);
int value_put(struct arena *a, struct value *map, struct str key, struct value *v);
/* NULL when v is NULL, no map, or has no such key; the last of equal keys */
struct value *value_get(const struct value *v, const char *key);
/* Maps are equal whatever the order of their keys. */
bool value_equal(const struct value *a, const struct value *b);
/* The same, but numbers of different kinds by what JSON shows: 1 is 1.0, a float32 the double of the same digits. */
bool value_alike(const struct value *a, const struct value *b);
/* A deep copy into another arena; no recursion deeper than LIMIT_NESTING (then NULL). */
struct value *value_copy(struct arena *a, const struct value *v);

#endif
