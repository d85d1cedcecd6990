/* SPDX-License-Identifier: MIT */
/*
 * What the files that call libhdf5 share. All of it runs in a child, except hdf5_work_*'s argument structs and
 * hdf5_library_version.
 *
 * The file is opened through a driver of ours: it reads the content wherever it lies (a file, a member of an archive), keeps what
 * is written in memory as ranges, and never opens anything.
 */
#ifndef PARSERS_CONTAINER_HDF5_PRIVATE_H
#define PARSERS_CONTAINER_HDF5_PRIVATE_H

#include "parsers/container/hdf5_change.h"
#include "parsers/core/child.h"

/* one set of names in 1.10, 1.12 and 1.14 */
#define H5_USE_18_API 1
#include <hdf5.h>

struct hdf5_range {
	uint64_t offset, size;
	unsigned char *bytes;
};

struct hdf5_store {
	struct extent content;
	uint64_t size;  /* of the content and what was written behind it */
	uint64_t base;  /* size of the content */
	struct hdf5_range *written; /* in order of offset, not overlapping */
	size_t count, cap;
	bool quiet;       /* raw data is not read: only where it lies is noted */
	uint64_t seen_at, seen_size;
	bool seen;
};

/* Opens (flags H5F_ACC_RDONLY, H5F_ACC_RDWR) or makes the file; the id or a reported error. */
int hdf5_store_open(struct hdf5_store *s, bool create, unsigned flags, hid_t *file, struct error *e);
/* The library's innermost complaint. Returns -EIO. */
int hdf5_complain(struct error *e, const char *what);
/* Quiet errors, no plugins. Call first. */
void hdf5_library_init(void);

/* reply records; hdf5.c reads them */
enum { REC_FILE = 1, REC_OBJECT, REC_ATTR, REC_END };
enum { ATTR_NONE, ATTR_STRINGS, ATTR_INTS, ATTR_UINTS, ATTR_FLOATS, ATTR_BOOLS };

struct hdf5_list_work {
	struct hdf5_store store;
};
int hdf5_list_work(void *arg, struct reply *r, struct error *e);

/* one chunk of a dataset, decoded by the library */
struct hdf5_chunk_work {
	struct hdf5_store store;
	struct str path;
	uint32_t rank;
	uint64_t start[HDF5_RANK], count[HDF5_RANK];
};
int hdf5_chunk_work(void *arg, struct reply *r, struct error *e);

/*
 * Reply: u64 size of the file · u32 number of steps, u64 offset of each (UINT64_MAX: the step has no data to be filled in) ·
 * u64 number of ranges, u64 offset, u64 size, bytes of each.
 */
struct hdf5_change_work {
	struct hdf5_store store;
	bool create;
	const struct hdf5_step *steps;
	size_t count;
};
int hdf5_change_work(void *arg, struct reply *r, struct error *e);

#endif
