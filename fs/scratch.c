/* SPDX-License-Identifier: MIT */
/*
 * Names in the mount that are no part of the model: swap files, backups, what an editor writes before it renames. They
 * live until unmount. A file of the tree that is moved to such a name leaves its place empty until something
 * is created there or the backup is moved back; the model keeps it meanwhile.
 */
#include "fs/workspace_private.h"
#include "parsers/core/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- nodes ---- */

struct node *node_find(struct workspace *w, uint64_t inode)
{
	struct node *n = w->nodes;

	while (n && n->inode != inode)
		n = n->next;
	return n;
}

struct node *node_child(struct workspace *w, uint64_t dir, struct str name)
{
	struct node *n = w->nodes;

	while (n && !(n->linked && n->parent == dir && str_eq(n->name, name)))
		n = n->next;
	return n;
}

bool node_hides(struct workspace *w, uint64_t inode)
{
	bool hides = false;

	if (!atomic_load(&w->hidden_count))
		return false;
	pthread_mutex_lock(&w->lock);
	for (struct node *n = w->nodes; n && !hides; n = n->next)
		hides = n->origin == inode;
	pthread_mutex_unlock(&w->lock);
	return hides;
}

static void node_free(struct workspace *w, struct node *n)
{
	struct node **at = &w->nodes;

	while (*at != n)
		at = &(*at)->next;
	*at = n->next;
	atomic_fetch_sub(&w->node_count, 1);
	draft_unref(n->draft);
	free((char *)(uintptr_t)n->name.ptr);
	free((char *)(uintptr_t)n->tensor.ptr);
	free(n);
}

static void node_drop(struct workspace *w, struct node *n)
{
	if (!n->linked && !n->opens)
		node_free(w, n);
}

static bool copy_str(struct str *to, struct str from)
{
	char *copy = malloc(from.len + 1);

	if (!copy)
		return false;
	memcpy(copy, from.ptr, from.len);
	copy[from.len] = 0;
	*to = (struct str){copy, from.len};
	return true;
}

struct node *node_new(struct workspace *w, uint64_t dir, struct str name, struct error *e)
{
	struct node *n = calloc(1, sizeof(*n));

	if (!n || !copy_str(&n->name, name)) {
		free(n);
		error_set(e, ENOMEM, "out of memory for a scratch file");
		return NULL;
	}
	n->inode = w->next_node++;
	n->parent = dir;
	n->linked = true;
	clock_gettime(CLOCK_REALTIME, &n->mtime);
	n->next = w->nodes;
	w->nodes = n;
	atomic_fetch_add(&w->node_count, 1);
	return n;
}

static void node_show_origin(struct workspace *w, struct node *n)
{
	if (n->origin)
		atomic_fetch_sub(&w->hidden_count, 1);
	n->origin = 0;
}

void node_unlink(struct workspace *w, struct node *n)
{
	n->linked = false;
	node_show_origin(w, n);
	node_drop(w, n);
}

void node_close(struct workspace *w, struct node *n)
{
	n->opens--;
	node_drop(w, n);
}

void node_attr(struct workspace *w, struct node *n, struct attr *a)
{
	(void)w;
	*a = (struct attr){.entry = {.inode = n->inode, .kind = n->is_dir ? ENTRY_DIR : ENTRY_FILE,
				   .links = n->is_dir ? 2 : n->linked, .writable = true, .listed = true}};
	a->mode = (n->is_dir ? S_IFDIR : S_IFREG) | n->mode;
	a->mtime = a->ctime = n->mtime;
	a->staged = true;
	a->fleeting = n->view;
	if (n->draft) {
		a->entry.size = draft_size(n->draft);
		a->mtime = a->ctime = draft_mtime(n->draft);
	}
}

void node_become(struct workspace *w, struct node *n, uint64_t inode)
{
	pthread_mutex_lock(&w->lock);
	alias_set(w, alias_of(w, n->inode), inode);
	if (n->linked)
		node_unlink(w, n);
	atomic_fetch_add(&w->generation, 1);
	pthread_mutex_unlock(&w->lock);
	workspace_notify(w, inode, (struct str){0}); /* it may look otherwise than it was written */
}

void scratch_release(struct workspace *w)
{
	while (w->nodes)
		node_free(w, w->nodes);
}

/* A directory of the tree that stands where n does, or 0. */
static uint64_t dir_in_place(const struct workspace *w, const struct node *n)
{
	struct entry x;

	if (!n->is_dir || !n->linked || n->parent & WORKSPACE_SCRATCH ||
		tree_lookup(w->tree, n->parent, n->name, &x) < 0 || x.kind != ENTRY_DIR)
		return 0;
	return x.inode;
}

void scratch_merge(struct workspace *w)
{
	struct node *n;
	uint64_t inode = 0;

	do {
		pthread_mutex_lock(&w->lock);
		for (n = w->nodes; n && !(inode = dir_in_place(w, n)); n = n->next)
			;
		for (struct node *c = n ? w->nodes : NULL; c; c = c->next)
			if (c->parent == n->inode)
				c->parent = inode;
		pthread_mutex_unlock(&w->lock);
		if (n)
			node_become(w, n, inode);
	} while (n);
}

/* ---- creating ---- */

/* The path of a name in a scratch directory from the directory of the tree that holds it all. Heap; *dir gets that. */
static char *path_within(struct workspace *w, uint64_t *dir, struct str name)
{
	char *path = strndup(name.ptr, name.len);

	pthread_mutex_lock(&w->lock);
	while (path && *dir & WORKSPACE_SCRATCH) {
		struct node *n = node_find(w, *dir);
		char *longer = NULL;

		if (!n || asprintf(&longer, "%s/%s", n->name.ptr, path) < 0)
			longer = NULL;
		free(path);
		path = longer;
		*dir = n ? n->parent : 0;
	}
	pthread_mutex_unlock(&w->lock);
	return path;
}

int scratch_wish(struct workspace *w, uint64_t dir, struct str name, struct wish *out, struct error *e)
{
	struct tree *t = workspace_tree(w);
	char *path = path_within(w, &dir, name);
	struct arena *a = arena_new(LIMIT_METADATA);
	const struct format *f = tree_model(t)->format;
	struct str tensor;
	int r = path && a ? 0 : error_set(e, ENOMEM, "out of memory for a new file");

	*out = (struct wish){0};
	if (r == 0 && tree_creates(t, dir, str_from(path), a, &out->view, &tensor)) {
		if (!(f->can & CAN_ADD))
			r = error_set(e, EOPNOTSUPP, "%s: a tensor cannot be added", f->title);
		else if (!copy_str(&out->tensor, tensor))
			r = error_set(e, ENOMEM, "out of memory for a new file");
	} else {
		out->view = NULL;
	}
	arena_free(a);
	free(path);
	tree_unref(t);
	return r;
}

void wish_release(struct wish *x)
{
	free((char *)(uintptr_t)x->tensor.ptr);
	*x = (struct wish){0};
}

/* A file of the tree that was moved away: what is created under its name now is written into it. */
static uint64_t take_place(struct workspace *w, uint64_t dir, struct str name)
{
	struct tree *t = workspace_tree(w);
	struct entry x = {0};

	if (dir & WORKSPACE_SCRATCH || tree_lookup(t, dir, name, &x) < 0 || !node_hides(w, x.inode))
		x.inode = 0;
	tree_unref(t);
	return x.inode;
}

void scratch_unhide(struct workspace *w, uint64_t inode)
{
	pthread_mutex_lock(&w->lock);
	for (struct node *n = w->nodes; n; n = n->next)
		if (n->origin == inode)
			node_show_origin(w, n);
	pthread_mutex_unlock(&w->lock);
}

static int create_node(struct workspace *w, uint64_t dir, struct str name, mode_t mode, bool is_dir,
	uint64_t *inode, struct error *e)
{
	struct wish wish = {0};
	struct draft *d = is_dir ? NULL : draft_new(w, NULL, e);
	struct node *n;
	int r = is_dir || d ? 0 : -ENOMEM;

	if (r == 0 && !is_dir)
		r = scratch_wish(w, dir, name, &wish, e);
	/* a new tensor is judged even if nothing is ever written */
	if (r == 0 && wish.view)
		r = draft_truncate(d, 0, e);
	if (r < 0) {
		draft_unref(d);
		wish_release(&wish);
		return r;
	}
	pthread_mutex_lock(&w->lock);
	n = node_new(w, dir, name, e);
	if (n) {
		n->is_dir = is_dir;
		n->mode = mode & 0777;
		n->draft = d;
		n->view = wish.view;
		n->tensor = wish.tensor;
		*inode = n->inode;
	}
	pthread_mutex_unlock(&w->lock);
	if (n)
		return 0;
	draft_unref(d);
	wish_release(&wish);
	return -ENOMEM;
}

/* Whether names can be made in a directory. */
static int check_dir(struct workspace *w, uint64_t dir, struct str name)
{
	struct attr a;
	int r;

	if (w->read_only)
		return -EROFS;
	if (name.len > NAME_MAX)
		return -ENAMETOOLONG;
	r = inner_stat(w, dir, &a);
	if (r == 0 && a.entry.kind != ENTRY_DIR)
		r = -ENOTDIR;
	return r;
}

static int create(struct workspace *w, uint64_t dir, struct str name, mode_t mode, int flags,
	struct attr *out, struct handle **h, struct error *e)
{
	uint64_t inode;
	int r = check_dir(w, dir, name);

	if (r < 0)
		return r;
	r = inner_lookup(w, dir, name, out);
	if (r == 0 && flags & O_EXCL)
		return -EEXIST;
	if (r == 0)
		return inner_open(w, out->entry.inode, flags, h, e);
	inode = take_place(w, dir, name);
	if (inode) {
		r = inner_open(w, inode, flags | O_TRUNC, h, e);
		if (r == 0)
			scratch_unhide(w, inode);
	} else {
		r = create_node(w, dir, name, mode, false, &inode, e);
		if (r == 0)
			r = inner_open(w, inode, flags & ~O_TRUNC, h, e);
	}
	return r < 0 ? r : inner_stat(w, inode, out);
}

int workspace_create(struct workspace *w, uint64_t dir, struct str name, mode_t mode, int flags,
	struct attr *out, struct handle **h, struct error *e)
{
	int r;

	*h = NULL;
	pthread_mutex_lock(&w->edit);
	r = create(w, alias_in(w, dir), name, mode, flags, out, h, e);
	if (r == 0)
		out->entry.inode = alias_out(w, out->entry.inode);
	pthread_mutex_unlock(&w->edit);
	return r;
}

int workspace_mkdir(struct workspace *w, uint64_t dir, struct str name, mode_t mode, struct attr *out,
	struct error *e)
{
	uint64_t inode;
	int r;

	pthread_mutex_lock(&w->edit);
	dir = alias_in(w, dir);
	r = check_dir(w, dir, name);
	if (r == 0)
		r = inner_lookup(w, dir, name, out) == 0 ? -EEXIST : 0;
	if (r == 0)
		r = create_node(w, dir, name, mode, true, &inode, e);
	if (r == 0)
		r = inner_stat(w, inode, out);
	pthread_mutex_unlock(&w->edit);
	return r;
}

static bool is_empty(struct workspace *w, uint64_t dir)
{
	struct node *n;

	pthread_mutex_lock(&w->lock);
	n = w->nodes;
	while (n && !(n->linked && n->parent == dir))
		n = n->next;
	pthread_mutex_unlock(&w->lock);
	return !n;
}

int scratch_remove_dir(struct workspace *w, uint64_t inode)
{
	struct node *n;

	if (!(inode & WORKSPACE_SCRATCH) || !is_empty(w, inode))
		return -ENOTEMPTY; /* directories of the model go with the last file in them */
	pthread_mutex_lock(&w->lock);
	n = node_find(w, inode);
	if (n)
		node_unlink(w, n);
	pthread_mutex_unlock(&w->lock);
	return n ? 0 : -ENOENT;
}

int workspace_rmdir(struct workspace *w, uint64_t dir, struct str name, struct error *e)
{
	struct attr a;
	int r;

	(void)e;
	if (w->read_only)
		return -EROFS;
	pthread_mutex_lock(&w->edit);
	r = inner_lookup(w, alias_in(w, dir), name, &a);
	if (r == 0)
		r = a.entry.kind == ENTRY_DIR ? scratch_remove_dir(w, a.entry.inode) : -ENOTDIR;
	pthread_mutex_unlock(&w->edit);
	return r;
}

int workspace_set_times(struct workspace *w, uint64_t inode, const struct timespec *mtime, mode_t mode,
	struct error *e)
{
	struct node *n;

	(void)e;
	if (w->read_only)
		return -EROFS;
	inode = alias_in(w, inode);
	pthread_mutex_lock(&w->lock);
	n = node_find(w, inode);
	if (n && mtime)
		n->mtime = *mtime;
	if (n && mtime && n->draft)
		draft_set_mtime(n->draft, *mtime);
	if (n && mode)
		n->mode = mode & 0777;
	pthread_mutex_unlock(&w->lock);
	return 0;
}
