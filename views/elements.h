/* SPDX-License-Identifier: MIT */
/*
 * elements: the values of a tensor as numbers, in chunks, whatever its type and byte order. For statistics and
 * comparison.
 */
#ifndef VIEWS_ELEMENTS_H
#define VIEWS_ELEMENTS_H

#include "parsers/core/model.h"

/* elements read at a time; a multiple of every block length */
#define ELEMENTS_CHUNK 4096
#define ELEMENTS_SIZE_MAX 16

struct elements {
	struct extent x; /* little-endian elements of `type`, an ordinary type; a reference */
	enum dtype type;
	uint32_t size;  /* of one, bytes */
	uint32_t parts; /* 2 for complex types, else 1 */
};

/* Whether the type can be read as numbers: not strings, nor bits of an unknown kind. */
bool elements_can(const struct tensor *t);
int elements_open(struct elements *el, const struct tensor *t, struct error *e);
void elements_close(struct elements *el); /* a zeroed one is fine */
/* n <= ELEMENTS_CHUNK elements from `first` into raw (n * size bytes, little-endian) and, unless v is NULL, as
 * n * parts doubles (64-bit integers are rounded). */
int elements_read(const struct elements *el, uint64_t first, uint32_t n, void *raw, double *v,
	struct error *e);

#endif
