/* SPDX-License-Identifier: MIT */
/*
 * input: what the user asked to open: a file, a directory or a prefix, with everything a driver may
 * open beside it. The only door through which drivers reach the file system.
 *
 * Companion files (external data, shards, members of a directory) are opened relative to the model's
 * directory with openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS): a name that is
 * absolute, holds "..", or passes a symlink is refused. One exception: the blob-cache layout of model
 * hubs, where `snapshots/REV/[sub/]NAME` is a symlink to `../../[../]blobs/HEX` (ONNX fact: a hard link
 * count above 1 is refused too for external data, INPUT_NO_HARDLINKS).
 */
#ifndef PARSERS_CORE_INPUT_H
#define PARSERS_CORE_INPUT_H

#include "parsers/core/source.h"

struct arena;

struct input {
	const char *path;  /* as the user wrote it */
	struct str base;   /* its last component, "model.onnx" */
	int dir_fd;        /* O_PATH directory: the model's own when is_dir, else the one that holds it */
	bool is_dir;       /* the user named a directory */
	struct source *src; /* the file; NULL when a directory or a bare prefix (ckpt-10) */
	int64_t step;      /* -o step=N, -1 = newest */
	bool listing_done;
};

enum {
	INPUT_NO_HARDLINKS = 1, /* refuse st_nlink > 1 */
};

/* path must outlive the input. ENOENT, EACCES, ... with a text that names the path. */
int input_open(struct input *in, const char *path, struct error *e);
void input_close(struct input *in);

/* Opens a companion by a relative path. The caller unrefs *out. */
int input_companion(const struct input *in, struct str name, unsigned flags, struct source **out,
	struct error *e);
/* Whether such a regular file exists and may be opened. */
bool input_has(const struct input *in, const char *name);
/* The sorted entries of a directory beneath (name "" = dir_fd itself), at most LIMIT_TENSORS, in the
 * arena; directories carry a trailing '/'. */
int input_list(const struct input *in, struct str name, struct arena *a, struct str **out, size_t *count,
	struct error *e);

#endif
