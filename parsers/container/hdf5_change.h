/* SPDX-License-Identifier: MIT */
/*
 * hdf5_change: an HDF5 file with other contents, as an extent map over the old one. libhdf5 makes the changes in a child on a
 * copy that exists only as the ranges it wrote (hdf5_private.h); new datasets get their place in the file, not their data, so a
 * change costs memory for structure alone. Everything that libhdf5 did not touch is a range of the old file.
 */
#ifndef PARSERS_CONTAINER_HDF5_CHANGE_H
#define PARSERS_CONTAINER_HDF5_CHANGE_H

#include "parsers/container/hdf5.h"

enum hdf5_step_kind {
	HDF5_MAKE,      /* dataset `path` of dtype, dims; with `old` it takes that one's place and attributes */
	HDF5_MAKE_GROUP, /* `path`, unless it is there */
	HDF5_WRITE,     /* bytes into dataset `path`, through its filters */
	HDF5_MOVE,      /* `path` to `to` */
	HDF5_DROP,      /* `path`; groups that are empty then stay */
	HDF5_SET_ATTR,  /* attribute `to` of `path` becomes `value` */
	HDF5_DROP_ATTR,
};

struct hdf5_step {
	enum hdf5_step_kind kind;
	struct str path, to;
	bool old; /* HDF5_MAKE: a dataset is there already */
	enum dtype dtype;
	bool big_endian;
	uint32_t rank;
	const uint64_t *dims;
	const struct str *strings;  /* HDF5_MAKE of DTYPE_STRING */
	const void *bytes;          /* HDF5_WRITE */
	bool unpacked; /* HDF5_WRITE: chunks as they are, marked as not packed; for filters that the library cannot apply */
	uint64_t size;
	const struct value *value;  /* a scalar or a list of one kind */
	struct extent data;         /* HDF5_MAKE: what will lie there; borrowed */
};

/* Whether a dataset can have this type. */
bool hdf5_holds(enum dtype d);
/* Whether a value can be an attribute. */
bool hdf5_attr_holds(const struct value *v);

/*
 * content NULL: a new file. src: what content lies in. patches: same-size data that go over content as they are; they must
 * not overlap. Appends the new file to out.
 */
struct hdf5_patch {
	uint64_t offset;
	struct extent data; /* borrowed */
};
int hdf5_change(const struct extent *content, struct source *src, const struct hdf5_step *steps, size_t step_count,
	const struct hdf5_patch *patches, size_t patch_count, struct extmap *out, struct error *e);

#endif
