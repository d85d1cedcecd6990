/* SPDX-License-Identifier: MIT */
/*
 * pickle: Python pickles (protocols 0 to 5) as inert values. Nothing is imported, called or resolved: a global is its
 * name, a call is an object with callable and arguments, a persistent id is the value that stood for it. Equal memo
 * entries give the same node, so sharing is visible (and cycles are possible: who walks counts depth and visits).
 */
#ifndef PARSERS_CONTAINER_PICKLE_H
#define PARSERS_CONTAINER_PICKLE_H

#include "parsers/core/arena.h"
#include "parsers/core/error.h"

enum pickle_kind {
	PICKLE_NONE,
	PICKLE_BOOL,
	PICKLE_INT,
	PICKLE_LONG, /* beyond 64 bits: text has its bytes, two's complement, little-endian; or decimal digits */
	PICKLE_FLOAT,
	PICKLE_STR,
	PICKLE_BYTES, /* bytes, bytearray and strings of Python 2 */
	PICKLE_LIST,
	PICKLE_TUPLE,
	PICKLE_DICT, /* items: key, value, key, value ... */
	PICKLE_SET,
	PICKLE_GLOBAL, /* text: "module.name" */
	PICKLE_OBJECT, /* callable(args), then state; items and pairs that were put in */
	PICKLE_PERSISTENT, /* args: the id */
};

struct pickle {
	enum pickle_kind kind;
	bool decimal; /* PICKLE_LONG as digits */
	struct str text; /* points into the pickle, but for globals */
	int64_t integer; /* INT, BOOL */
	double real;
	struct pickle **items;
	size_t count, cap;
	struct pickle **pairs; /* of an OBJECT: what SETITEM(S) put in, key, value ... */
	size_t pair_count, pair_cap;
	struct pickle *callable, *args, *state;
};

/* One pickle at the beginning of bytes, which must live as long as the result. *used: its length, STOP included. */
int pickle_read(struct str bytes, struct arena *a, struct pickle **out, size_t *used, struct error *e);
bool pickle_is_global(const struct pickle *p, const char *name);
/* a call of that global */
bool pickle_is_call(const struct pickle *p, const char *name);
/* item i of a list or tuple, NULL when there is none */
const struct pickle *pickle_item(const struct pickle *p, size_t i);
/* the value of a string key in a dict or an object's pairs, the last of equal keys; NULL */
const struct pickle *pickle_get(const struct pickle *p, const char *key);
/* text of a str or bytes; ptr NULL when it is neither */
struct str pickle_text(const struct pickle *p);
/* the pairs of a dict or dict-like object */
struct pickle *const *pickle_pairs(const struct pickle *p, size_t *count);

#endif
