/* SPDX-License-Identifier: MIT */
/*
 * workspace: one mounted (or otherwise edited) model: the tree as edited so far, staged writes, scratch
 * files, the journal, and commit. It knows nothing of FUSE; fs/ops.c translates requests to it one to one,
 * and tests drive it directly.
 *
 * Threads: every function may be called from any thread. Reading takes a reference on the present snapshot
 * (tree + model) and no lock while it works; writing and namespace changes take the workspace's one mutex
 * for short times; a commit runs under a separate commit lock and blocks writers, not readers.
 *
 * Inodes are the tree's (views/tree.h); scratch files and directories have inodes of their own with the
 * top bit set (WORKSPACE_SCRATCH), never reused within a mount's life.
 *
 * Writing a file of the tree: the first write of an open creates a layer, a sparse staging file in
 * the journal directory beside the model plus the list of ranges written, over the content seen so far
 * (an extmap). When the last writer closes, the view's accept() turns the content into an edit; refused:
 * the layer is dropped, the reason kept, the earlier content stands. Memory holds range lists only.
 * Writing or creating any other name makes a scratch file (kept in the same directory, deleted at the end);
 * renaming a scratch file over a file of the tree is a write of that file.
 */
#ifndef FS_WORKSPACE_H
#define FS_WORKSPACE_H

#include "views/tree.h"

#include <sys/stat.h>
#include <sys/types.h>

#define WORKSPACE_SCRATCH (1ull << 63)

struct workspace;
struct handle; /* an open file */

struct workspace_options {
	struct tree_options tree;
	const char *format; /* -o format=, or NULL */
	bool read_only;     /* -o ro; also set by workspace_open when the file or directory cannot be written */
	bool force;         /* save over a source that changed behind us */
	bool verify;        /* compare content throughout after saving */
	bool recover, discard; /* what to do with a journal that is there */
	bool lossy;
	bool inplace;       /* -o inplace */
	const char *to;     /* commit writes this format ... */
	const char *out;    /* ... to this path; the original is never touched */
	int64_t step;       /* -o step=, -1 = newest */
	/* content or attributes of an inode, or a name in a directory, changed: the kernel's caches must drop
	 * it. Called with no lock held, from a thread of the workspace's own; may be NULL. name.len 0: the
	 * inode itself. */
	void (*changed)(void *arg, uint64_t inode, struct str name);
	void *changed_arg;
};

/* Opens and parses. With a journal from an earlier mount: refuses unless recover or discard was given
 * (EBUSY, the text says so and how), or applies it. Another writer on the same model (flock on a lock
 * file in the journal directory): read-only with a note in *note (heap, may be NULL). */
int workspace_open(const char *path, const struct workspace_options *o, struct workspace **out, char **note,
	struct error *e);
/* Frees everything; staged edits that were not committed stay in the journal (unless there are none). */
void workspace_close(struct workspace *w);
bool workspace_is_read_only(const struct workspace *w);
/* The present tree, with a reference: tree_unref it. */
struct tree *workspace_tree(struct workspace *w);
/* Owner and so on to show: those of the model file, as it was when it was opened or last saved. */
void workspace_model_stat(struct workspace *w, struct stat *st);

/* As the tree's, with staged sizes, new and renamed files and scratch names. -ENOENT, -ENOTDIR, ... */
struct attr {
	struct entry entry;
	struct timespec mtime, ctime;
	mode_t mode; /* type and permission bits */
	bool staged; /* differs from the saved model */
	bool fleeting; /* a tensor in the making: gone again when it is refused */
};
int workspace_lookup(struct workspace *w, uint64_t dir, struct str name, struct attr *out);
int workspace_stat(struct workspace *w, uint64_t inode, struct attr *out);
int workspace_list(struct workspace *w, uint64_t dir, uint64_t from, bool with_attr,
	int (*emit)(void *arg, struct str name, const struct attr *attr, uint64_t next), void *arg);
/* .wiamodel/commit and discard: a write acts. */
bool workspace_acts(uint64_t inode);
/* No file of the model. */
bool workspace_is_scratch(struct workspace *w, uint64_t inode);
int workspace_readlink(struct workspace *w, uint64_t inode, char **target);
/* user.wiamodel.* including error; -ENODATA. Heap. */
int workspace_xattr(struct workspace *w, uint64_t inode, const char *name, char **value, size_t *len,
	struct error *e);
/* names of the xattrs an inode has, NUL-separated as listxattr(2) wants; heap */
int workspace_xattr_list(struct workspace *w, uint64_t inode, char **names, size_t *len);

/* flags of open(2): O_ACCMODE, O_TRUNC, O_APPEND matter. -EROFS, -EACCES (a view without accept). */
int workspace_open_file(struct workspace *w, uint64_t inode, int flags, struct handle **out,
	struct error *e);
/* True when what the kernel cached of this file before is still right. */
bool handle_keep_cache(const struct handle *h);
uint64_t handle_size(struct handle *h);
/* The bytes without copying, or NULL: then handle_read. Valid until handle_unpeek, which must follow soon; may be
 * touched only by writev(2) and the like (source_peek). */
const void *handle_peek(struct handle *h, uint64_t offset, size_t len);
void handle_unpeek(struct handle *h);
/* Up to len bytes; fewer only at the end. Number of bytes or negative errno. */
ssize_t handle_read(struct handle *h, uint64_t offset, void *buf, size_t len, struct error *e);
int handle_write(struct handle *h, uint64_t offset, const void *buf, size_t len, struct error *e);
int handle_truncate(struct handle *h, uint64_t size, struct error *e);
/* close(2): accept() when this was a writer and it changed something. EINVAL with the reason. May be called
 * several times (dup'ed descriptors); each time the content so far is judged. */
int handle_flush(struct handle *h, struct error *e);
/* the last reference: drops what flush refused */
void handle_release(struct handle *h);

int workspace_create(struct workspace *w, uint64_t dir, struct str name, mode_t mode, int flags,
	struct attr *out, struct handle **h, struct error *e);
int workspace_truncate(struct workspace *w, uint64_t inode, uint64_t size, struct error *e);
int workspace_mkdir(struct workspace *w, uint64_t dir, struct str name, mode_t mode, struct attr *out,
	struct error *e);
int workspace_unlink(struct workspace *w, uint64_t dir, struct str name, struct error *e);
int workspace_rmdir(struct workspace *w, uint64_t dir, struct str name, struct error *e);
int workspace_rename(struct workspace *w, uint64_t dir, struct str name, uint64_t new_dir,
	struct str new_name, unsigned flags, struct error *e);
/* chmod, utimens: remembered for scratch files, accepted and ignored on others. NULL, 0 = unchanged */
int workspace_set_times(struct workspace *w, uint64_t inode, const struct timespec *mtime, mode_t mode,
	struct error *e);

/* Saves durably. 0 also when there is nothing to save. */
int workspace_commit(struct workspace *w, struct error *e);
/* Drops all staged edits. */
int workspace_discard(struct workspace *w, struct error *e);
/* Makes what was written and closed durable in the journal, without saving (kill -9 keeps it). */
int workspace_sync_journal(struct workspace *w, struct error *e);
bool workspace_is_dirty(struct workspace *w);
/* Remembers an error for status.json and, when inode != 0, for that file's xattr user.wiamodel.error. */
void workspace_report(struct workspace *w, uint64_t inode, const struct error *e);

#endif
