/* SPDX-License-Identifier: MIT */
/*
 * draft: the content of one file while and after it is written: layers (fs/layer.h) over what the file showed
 * before, or over nothing. Scratch files are drafts for good; a file of the tree has one as long as somebody
 * has it open for writing.
 *
 * Thread-safe. A draft may be read while it is written, as a file can.
 */
#ifndef FS_DRAFT_H
#define FS_DRAFT_H

#include "fs/record.h"
#include "parsers/core/extmap.h"

#include <stdatomic.h>
#include <sys/types.h>
#include <time.h>

struct workspace;

/* A file in the journal's directory, removed with its last reference. */
struct staging;
int staging_new(struct workspace *w, struct staging **out, int *fd, struct error *e);
/* One that a journal of before names. The file is there or not; nothing is opened. */
struct staging *staging_named(struct workspace *w, struct str name);
struct staging *staging_ref(struct staging *s);
void staging_unref(struct staging *s);
const char *staging_name(const struct staging *s);

/* What a file of the tree showed when its draft began. */
struct origin {
	struct extmap *rendering; /* a reference; keeps its tree alive. NULL = nothing */
	char *path;               /* heap */
	uint64_t revision, epoch; /* of the workspace then */
};

struct draft;

/* Takes over what `origin` (may be NULL) holds, also when it fails. */
struct draft *draft_new(struct workspace *w, struct origin *origin, struct error *e);
struct draft *draft_ref(struct draft *d);
void draft_unref(struct draft *d);

uint64_t draft_size(struct draft *d);
struct timespec draft_mtime(struct draft *d);
void draft_set_mtime(struct draft *d, struct timespec t);
ssize_t draft_read(struct draft *d, uint64_t offset, void *buf, size_t len, struct error *e);
int draft_write(struct draft *d, uint64_t offset, const void *buf, size_t len, struct error *e);
int draft_truncate(struct draft *d, uint64_t size, struct error *e);
/* Grows with each change. */
uint64_t draft_changes(const struct draft *d);
/* True when nothing was written and the model is as it was when the draft began. */
bool draft_is_fresh(struct draft *d);
/* True when it was cut to nothing and nothing was written since. */
bool draft_is_empty(struct draft *d);

/* The content as it stands, a reference; later writes do not change it. *changes: draft_changes then.
 * With `record` what it consists of is added to it, after the staged bytes were made durable, and *files
 * gets references on the staging files it names (heap, *count). */
struct draft_content {
	struct extmap *map;
	uint64_t changes;
	struct staging **files;
	size_t file_count;
};
int draft_content(struct draft *d, struct draft_content *out, struct record *record, struct error *e);
void draft_content_release(struct draft_content *c);

#endif
