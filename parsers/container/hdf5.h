/* SPDX-License-Identifier: MIT */
/*
 * hdf5: what an HDF5 file holds, at arm's length. libhdf5 runs in a child (core/child.h) that lists groups, datasets and
 * attributes; here its answer is checked like a file. Contiguous data are served from the file, chunks are
 * decoded by codec/hdf5_chunks.h; the child is asked again only for chunks with filters that nobody here knows.
 *
 * Paths have no slash in front; the root group's is "". Offsets count from the beginning of the content, a user
 * block included.
 */
#ifndef PARSERS_CONTAINER_HDF5_H
#define PARSERS_CONTAINER_HDF5_H

#include "parsers/core/arena.h"
#include "parsers/core/dtype.h"
#include "parsers/core/extmap.h"
#include "parsers/core/value.h"

#define HDF5_RANK 32 /* the library's own limit */
#define HDF5_FILTERS 32

enum hdf5_kind {
	HDF5_GROUP = 1,
	HDF5_DATASET,
	HDF5_LINK, /* soft: target is what it says; hard: another path of an object that was listed before */
};

enum hdf5_layout { HDF5_CONTIGUOUS = 1, HDF5_INLINE, HDF5_CHUNKED, HDF5_STRINGS, HDF5_UNREADABLE };

enum { HDF5_DEFLATE = 1, HDF5_SHUFFLE = 2, HDF5_FLETCHER32 = 3, HDF5_LZF = 32000 };

struct hdf5_attr {
	struct str name;
	struct str type;
	struct value *value; /* a scalar or a list; NULL = cannot be shown */
};

struct hdf5_filter {
	uint32_t id, flags, element; /* element: the first parameter, for shuffle the element's size */
};

struct hdf5_chunk {
	uint64_t index; /* in the grid, C order */
	uint64_t offset, size;
	uint32_t skipped; /* bit i: filter i was not applied */
};

struct hdf5_object {
	enum hdf5_kind kind;
	struct str path;
	uint32_t file; /* for those who read several; hdf5_read leaves 0 */
	struct str target; /* HDF5_LINK */
	bool soft;
	struct hdf5_attr *attrs;
	uint32_t attr_count;
	/* datasets */
	enum dtype dtype;
	bool big_endian;
	uint32_t element; /* bytes */
	struct str type;  /* "H5T_IEEE_F32LE" */
	uint32_t rank;
	uint64_t dims[HDF5_RANK];
	enum hdf5_layout layout;
	uint64_t offset, size; /* HDF5_CONTIGUOUS; offset UINT64_MAX = never written */
	struct str fill;       /* one element, empty = zeroes */
	struct str bytes;      /* HDF5_INLINE */
	struct str *strings;   /* HDF5_STRINGS */
	uint64_t chunk_dims[HDF5_RANK];
	struct hdf5_filter filters[HDF5_FILTERS];
	uint32_t filter_count;
	struct hdf5_chunk *chunks; /* in order of index */
	uint64_t chunk_count;
	struct str problem; /* HDF5_UNREADABLE */
};

struct hdf5_file {
	struct hdf5_object *objects; /* the root first, members of a group in order of name */
	size_t count;
	uint32_t superblock;
};

/* Whether the signature is there, at 0 or behind a user block. */
bool hdf5_is(const struct extent *content);
/* content lies in src, packed or not (src is what the child may read). */
int hdf5_read(const struct extent *content, struct source *src, struct arena *a, struct hdf5_file *out,
	struct error *e);
/* The elements of a dataset in C order; a reference in *out. EIO with o->problem. */
int hdf5_data(const struct hdf5_object *o, const struct extent *content, struct source *src, struct extent *out,
	struct error *e);
/* Where all elements lie in one piece as they are, UINT64_MAX = nowhere. */
uint64_t hdf5_place(const struct hdf5_object *o);
/* The box of `count` elements from `start` of a chunked dataset, by the library in a child. size: of the box in bytes. */
int hdf5_decode_chunk(const struct hdf5_object *o, const struct extent *content, struct source *src,
	const uint64_t *start, const uint64_t *count, void *buf, size_t size, struct error *e);
const struct hdf5_attr *hdf5_attr(const struct hdf5_object *o, const char *name);

#endif
