/* SPDX-License-Identifier: MIT */
/*
 * record: what one record of a journal says, one for each edit that was accepted.
 *
 *	record := u8 kind { field }
 *	field  := u8 tag, u32 length, bytes
 *
 * Paths are those of the tree as it was before the edit, so that they mean the same when the records before
 * were done again; inode numbers would not. Numbers are 8 bytes (in ranges: see RECORD_RANGES) in the
 * machine's order. An unknown tag or kind is refused: half an edit is none.
 */
#ifndef FS_RECORD_H
#define FS_RECORD_H

#include "parsers/core/error.h"
#include "parsers/core/str.h"

enum record_kind {
	RECORD_WRITE = 1, /* the file PATH, or a new one that VIEW makes for NAME, got the content RANGES */
	RECORD_RENAME,    /* the tensor of PATH is called NAME */
	RECORD_REMOVE,    /* the tensor of PATH is gone */
	RECORD_SAVED,     /* about to be saved: a model of IDENTITY holds all that came before */
	RECORD_KINDS,
};

enum record_tag {
	RECORD_PATH = 1,
	RECORD_VIEW,     /* name of a view */
	RECORD_NAME,     /* of a tensor */
	RECORD_ORIGIN,   /* path of the file whose content shows through ... */
	RECORD_REVISION, /* ... as it was after so many records */
	RECORD_PART,     /* name of a staging file; one field for each */
	RECORD_RANGES,   /* struct record_range each, in order, without gaps */
	RECORD_IDENTITY, /* struct journal_identity */
	RECORD_TAGS,
};

/* Bytes lie at the same offset in the staging file, or in the origin, as in the content. */
struct record_range {
	uint64_t end;  /* it begins where the one before ended */
	uint64_t part; /* which RECORD_PART, or one of these */
};
#define RECORD_ZERO UINT64_MAX
#define RECORD_FROM_ORIGIN (UINT64_MAX - 1)

/* Writing; memory running out is sticky: test failed at the end. */
struct record {
	char *bytes;
	size_t len, cap;
	bool failed;
};

void record_begin(struct record *r, enum record_kind kind);
void record_add(struct record *r, enum record_tag tag, const void *bytes, size_t len);
void record_add_str(struct record *r, enum record_tag tag, struct str s);
void record_add_u64(struct record *r, enum record_tag tag, uint64_t n);
void record_release(struct record *r);

/* Reading. */
struct record_view {
	enum record_kind kind;
	struct str path, view, name, origin, ranges, identity; /* ptr NULL = not there */
	bool has_revision;
	uint64_t revision;
	struct str *parts; /* heap */
	size_t part_count;
};

/* -EIO when it is none. Strings point into `bytes`. Release in either case. */
int record_read(struct record_view *v, struct str bytes, struct error *e);
void record_view_release(struct record_view *v);

#endif
