/* SPDX-License-Identifier: MIT */
/*
 * tree: subjects x views = directories and files, without FUSE. The mount and the command line both serve
 * this. Immutable, safe for many threads; an edited model gets a tree of its own.
 *
 * Inode numbers are computed from view and subject id, so nothing is stored per file; a subject
 * keeps its number over edits. Root is 1. Directories keep theirs while their path exists.
 */
#ifndef VIEWS_TREE_H
#define VIEWS_TREE_H

#include "views/large.h"
#include "views/sharing.h"
#include "views/view.h"

#define TREE_ROOT 1

enum entry_kind { ENTRY_DIR, ENTRY_FILE, ENTRY_LINK };

struct entry {
	uint64_t inode;
	enum entry_kind kind;
	uint64_t size;   /* files: exact; links: target length; directories: 0 */
	uint32_t links;  /* st_nlink: 2 + listed subdirectories for a directory */
	bool writable;   /* its view has accept() and the format can */
	bool listed;     /* false for .wiamodel and an op's inputs/ and outputs/ */
};

struct tree_options {
	struct view_options view;
	const char *views; /* comma list of listed top-level views, NULL = all */
	const struct verdict *verdicts;
	void (*status)(void *arg, struct json *j);
	void *status_arg;
	const struct tree *previous; /* a tree of the same base model whose names may be reused, or NULL */
};

/* Takes a reference on the model. NULL + error on unknown names in options.views or memory. */
struct tree *tree_new(struct model *m, const struct tree_options *options, struct error *e);
struct tree *tree_ref(struct tree *t);
void tree_unref(struct tree *t);
struct model *tree_model(const struct tree *t);
const struct view_context *tree_context(const struct tree *t);

/* 0, or -ENOENT / -ENOTDIR. */
int tree_lookup(const struct tree *t, uint64_t dir, struct str name, struct entry *out);
int tree_stat(const struct tree *t, uint64_t inode, struct entry *out);
/* Resolves a path ("tensors/a/b.npy", "" = root), not following links. */
int tree_resolve(const struct tree *t, const char *path, struct entry *out);
uint64_t tree_parent(const struct tree *t, uint64_t dir);
/* Calls emit for each listed child from position `from` (0 = first) until it returns nonzero. `next` is
 * the position behind that child. with_size false: entry.size of files may be left 0 (plain readdir). */
int tree_list(const struct tree *t, uint64_t dir, uint64_t from, bool with_size,
	int (*emit)(void *arg, struct str name, const struct entry *entry, uint64_t next), void *arg);
/* Target of a link, relative; heap, caller frees. */
int tree_readlink(const struct tree *t, uint64_t inode, char **target);
/* The content of a file. The map borrows from the tree: hold a reference as long as the map is used. */
int tree_open(const struct tree *t, uint64_t inode, struct extmap *out, struct error *e);
/* Which view and subject a file is; false for directories and links. */
bool tree_file(const struct tree *t, uint64_t inode, const struct view **view, struct subject *s);
/* For a name that does not exist yet: the view that would create it there and the tensor's name it would
 * get (in arena a); false = scratch. */
bool tree_creates(const struct tree *t, uint64_t dir, struct str name, struct arena *a,
	const struct view **view, struct str *tensor_name);
/* Path of a tensor's file in a view ("tensors"), from the root; heap; NULL when memory is out. For links and
 * sums. */
char *tree_tensor_path(const struct tree *t, const struct view *view, uint32_t tensor_index);
/* Arrays of metadata that have files of their own. */
const struct large_list *tree_large(const struct tree *t);
/* The names that share this tensor's storage, itself among them; count 0 when none does. */
struct sharing tree_sharing(const struct tree *t, uint32_t tensor_index);
/* Path of any directory or file from the root, heap. */
char *tree_path(const struct tree *t, uint64_t inode);
/* Text for `user.wiamodel.KEY` of a tensor file (name dtype shape format sha256); -ENODATA if none. Heap. */
int tree_xattr(const struct tree *t, uint64_t inode, const char *key, char **value, size_t *len,
	struct error *e);

#endif
