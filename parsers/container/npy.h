/* SPDX-License-Identifier: MIT */
/*
 * npy: the header of NumPy's .npy files (format versions 1.0, 2.0 and 3.0, NEP 1), read and written.
 *
 *	93 "NUMPY" · major u8 · minor u8 · header length u16 (1.0) or u32 · header text · data
 *
 * The text is a Python literal: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }. Reading takes what
 * NumPy takes and refuses what it refuses; nothing is ever evaluated.
 */
#ifndef PARSERS_CONTAINER_NPY_H
#define PARSERS_CONTAINER_NPY_H

#include "parsers/core/dtype.h"
#include "parsers/core/extmap.h"
#include "parsers/core/limits.h"

struct npy {
	enum dtype dtype;     /* NONE: structured, object, date, void: see descr */
	bool big_endian;
	bool fortran;
	bool unicode, bytes;  /* dtype STRING from 'U' (UTF-32 characters) or 'S' */
	uint32_t rank;
	uint64_t shape[LIMIT_RANK];
	uint64_t count;       /* elements */
	uint32_t itemsize;    /* bytes; 0 when it is not known (structured) or is zero (<U0) */
	uint64_t data_offset; /* from the beginning of the .npy */
	char descr[128];      /* the text of descr, for messages; cut when longer */
};

/* Reads the header at `offset` in m, of a file that takes `size` bytes from there. EINVAL reported. The data may be
 * longer than the shape needs, never shorter. */
int npy_read(const struct extmap *m, uint64_t offset, uint64_t size, struct npy *out, struct error *e);

/* Appends the header that numpy.save writes for this descr and shape. */
int npy_append_header(struct extmap *m, const char *descr, bool fortran, uint32_t rank,
	const uint64_t *shape);
/* Its length in bytes. */
uint64_t npy_header_size(const char *descr, bool fortran, uint32_t rank, const uint64_t *shape);

#endif
