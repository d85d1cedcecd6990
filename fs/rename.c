/* SPDX-License-Identifier: MIT */
/*
 * rename and unlink. What a rename means depends on what is at both ends:
 *
 *	from            to                           means
 *	scratch file    file of the model            a write of that file
 *	scratch file    new file of a tensor         a new tensor
 *	scratch         scratch or nothing           a rename
 *	tensor          new file of a tensor         the tensor's new name
 *	tensor          another tensor               that one's new content, and the first is gone
 *	file of model   scratch or nothing           a backup: its place is empty until something is put there
 *	its backup      its own place                as it was
 */
#include "fs/workspace_private.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

struct end {
	uint64_t dir;
	struct str name;
	bool there;      /* something has that name */
	bool hidden;     /* a file of the tree whose place is empty */
	bool is_dir, writable;
	uint64_t inode;  /* when there or hidden */
	struct node *node; /* of scratch; held by `edit` */
	bool is_tensor;  /* the file that a tensor comes and goes with */
	uint32_t tensor; /* its id */
};

static void look_at_tree(struct workspace *w, struct end *x)
{
	struct tree *t = workspace_tree(w);
	const struct view *view;
	struct subject s;

	if (tree_file(t, x->inode, &view, &s) && s.kind == SUBJECT_TENSOR && view->can_create) {
		x->is_tensor = true;
		x->tensor = tree_model(t)->tensors[s.index].id;
	}
	tree_unref(t);
}

static int look(struct workspace *w, uint64_t dir, struct str name, struct end *x)
{
	struct attr a;
	struct entry entry;
	struct tree *t;
	int r;

	*x = (struct end){.dir = alias_in(w, dir), .name = name};
	r = inner_lookup(w, x->dir, name, &a);
	if (r == 0) {
		x->there = true;
		x->inode = a.entry.inode;
		x->is_dir = a.entry.kind == ENTRY_DIR;
		x->writable = a.entry.kind != ENTRY_LINK && a.entry.writable;
	} else if (r == -ENOENT && !(x->dir & WORKSPACE_SCRATCH)) {
		t = workspace_tree(w);
		x->hidden = tree_lookup(t, x->dir, name, &entry) == 0;
		x->inode = x->hidden ? entry.inode : 0;
		x->writable = x->hidden && entry.writable;
		tree_unref(t);
	}
	if (x->inode & WORKSPACE_SCRATCH) {
		pthread_mutex_lock(&w->lock);
		x->node = node_find(w, x->inode);
		pthread_mutex_unlock(&w->lock);
		if (!x->node)
			return -EPERM; /* .wiamodel/commit and discard */
	} else if (x->inode) {
		look_at_tree(w, x);
	}
	return r == -ENOENT ? 0 : r;
}

static bool is_tree_file(const struct end *x)
{
	return x->inode && !x->node && !x->is_dir;
}

/* ---- edits of names ---- */

static int apply_named(struct workspace *w, enum record_kind kind, uint64_t inode, const struct edit *x,
	struct error *e)
{
	struct tree *t = workspace_tree(w);
	char *path = tree_path(t, inode);
	struct record record = {0};
	int r;

	record_begin(&record, kind);
	if (path)
		record_add_str(&record, RECORD_PATH, str_from(path));
	if (kind == RECORD_RENAME)
		record_add_str(&record, RECORD_NAME, x->name);
	record.failed |= !path;
	r = edits_apply(w, x, &record, NULL, e);
	record_release(&record);
	free(path);
	tree_unref(t);
	return r;
}

static int remove_tensor(struct workspace *w, uint64_t inode, uint32_t id, struct error *e)
{
	const struct edit x = {.kind = EDIT_REMOVE, .id = id};

	return apply_named(w, RECORD_REMOVE, inode, &x, e);
}

/* Whether the tensor could go; nothing changes. */
static int can_remove(struct workspace *w, uint32_t id, struct error *e)
{
	const struct edit x = {.kind = EDIT_REMOVE, .id = id};
	struct tree *t = workspace_tree(w);
	struct model *without = NULL;
	int r = model_edit(tree_model(t), &x, &without, e);

	model_unref(without);
	tree_unref(t);
	return r;
}

/* ---- unlink ---- */

static int refuse_removal(struct workspace *w, const struct end *x, struct error *e)
{
	struct tree *t = workspace_tree(w);
	char *path = tree_path(t, x->inode);
	int r = error_set(e, EPERM, "'%s' cannot be removed%s", path ? path : "",
		x->is_tensor ? "" : ": only the files under tensors/ come and go");

	free(path);
	tree_unref(t);
	return r;
}

/* A backup that is the last of a file of the tree: that file goes with it, if it can. */
static int unlink_node(struct workspace *w, struct node *n, struct error *e)
{
	struct end lost = {.inode = n->origin};
	int r = 0;

	if (n->origin) {
		look_at_tree(w, &lost);
		r = lost.is_tensor ? remove_tensor(w, lost.inode, lost.tensor, e)
				   : refuse_removal(w, &lost, e);
	}
	if (r == 0) {
		pthread_mutex_lock(&w->lock);
		node_unlink(w, n);
		pthread_mutex_unlock(&w->lock);
	}
	return r;
}

int workspace_unlink(struct workspace *w, uint64_t dir, struct str name, struct error *e)
{
	struct end x;
	int r;

	if (w->read_only)
		return -EROFS;
	pthread_mutex_lock(&w->edit);
	r = look(w, dir, name, &x);
	if (r == 0 && !x.there)
		r = -ENOENT;
	else if (r == 0 && x.is_dir)
		r = -EISDIR;
	else if (r == 0 && x.node)
		r = unlink_node(w, x.node, e);
	else if (r == 0 && x.is_tensor)
		r = remove_tensor(w, x.inode, x.tensor, e);
	else if (r == 0)
		r = refuse_removal(w, &x, e);
	pthread_mutex_unlock(&w->edit);
	return r;
}

/* ---- rename ---- */

static int set_name(struct node *n, uint64_t dir, struct str name, struct error *e)
{
	char *copy = strndup(name.ptr, name.len);

	if (!copy)
		return error_set(e, ENOMEM, "out of memory for a name");
	free((char *)(uintptr_t)n->name.ptr);
	n->name = (struct str){copy, name.len};
	n->parent = dir;
	return 0;
}

/* What is at the target makes room: it is scratch or nothing. */
static int clear(struct workspace *w, const struct end *to, struct error *e)
{
	if (!to->node)
		return 0;
	if (to->is_dir)
		return scratch_remove_dir(w, to->inode);
	return unlink_node(w, to->node, e);
}

static int move_node(struct workspace *w, struct node *n, const struct end *to, struct error *e)
{
	int r = clear(w, to, e);

	if (r == 0) {
		pthread_mutex_lock(&w->lock);
		r = set_name(n, to->dir, to->name, e);
		pthread_mutex_unlock(&w->lock);
	}
	return r;
}

/* A scratch file takes the place of a file of the model. */
static int write_over(struct workspace *w, struct node *n, const struct end *to, struct error *e)
{
	/* an editor whose file was refused moves its backup back */
	bool back = n->copy_of == to->inode && draft_is_fresh(n->draft);
	uint64_t changes, became;
	int r = back ? 0 : to->writable ? 0 : error_set(e, EACCES, "'%.*s' cannot be written", STR_ARG(to->name));

	if (r == 0 && !back)
		r = edits_write(w, to->inode, NULL, n->draft, &changes, &became, e);
	if (r < 0)
		return r;
	scratch_unhide(w, to->inode);
	node_become(w, n, to->inode);
	workspace_forget_error(w, to->inode);
	return 0;
}

/* A scratch file becomes a tensor. */
static int add_tensor(struct workspace *w, struct node *n, const struct end *to, struct wish *wish,
	struct error *e)
{
	struct node making = {.view = wish->view, .tensor = wish->tensor};
	uint64_t changes, became = 0;
	int r = clear(w, to, e);

	if (r == 0)
		r = edits_write(w, 0, &making, n->draft, &changes, &became, e);
	if (r == 0)
		node_become(w, n, became);
	return r;
}

static int rename_scratch(struct workspace *w, const struct end *from, const struct end *to,
	struct error *e)
{
	struct node *n = from->node;
	bool making = n->view;
	struct wish wish;
	int r;

	if (!n->is_dir && is_tree_file(to))
		return write_over(w, n, to, e);
	if (n->is_dir)
		return to->inode && !to->node ? -ENOTEMPTY : move_node(w, n, to, e);
	r = scratch_wish(w, to->dir, to->name, &wish, e);
	if (r < 0)
		return r;
	if (wish.view && !making)
		r = add_tensor(w, n, to, &wish, e);
	else
		r = move_node(w, n, to, e);
	/* one that is still being written becomes another tensor, or none */
	if (r == 0 && making) {
		struct wish old = {n->view, n->tensor};

		pthread_mutex_lock(&w->lock);
		n->view = wish.view;
		n->tensor = wish.tensor;
		pthread_mutex_unlock(&w->lock);
		wish = old;
	}
	wish_release(&wish);
	return r;
}

static int make_backup(struct workspace *w, const struct end *from, const struct end *to,
	struct error *e)
{
	struct origin o;
	struct draft *d;
	struct node *n;
	int r;

	if (!from->writable)
		return error_set(e, EPERM, "'%.*s' cannot be moved", STR_ARG(from->name));
	r = clear(w, to, e);
	if (r < 0)
		return r;
	o = edits_origin(w, from->inode, e);
	d = o.rendering ? draft_new(w, &o, e) : NULL;
	if (!d)
		return e && e->code ? -e->code : -ENOMEM;
	pthread_mutex_lock(&w->lock);
	n = node_new(w, to->dir, to->name, e);
	if (n) {
		n->draft = d;
		n->mode = w->st.st_mode & 0666;
		n->origin = n->copy_of = from->inode;
		atomic_fetch_add(&w->hidden_count, 1);
		/* the kernel moved the number along */
		alias_set(w, alias_of(w, from->inode), n->inode);
		alias_set(w, w->next_node++, from->inode);
	}
	pthread_mutex_unlock(&w->lock);
	if (!n)
		draft_unref(d);
	return n ? 0 : -ENOMEM;
}

/* One tensor takes the place of another. */
static int replace_tensor(struct workspace *w, const struct end *from, const struct end *to,
	struct error *e)
{
	uint64_t changes, became;
	struct origin o;
	struct draft *d;
	int r = !from->is_tensor ? error_set(e, EPERM, "'%.*s' cannot be moved", STR_ARG(from->name))
		: !to->writable  ? error_set(e, EACCES, "'%.*s' cannot be written", STR_ARG(to->name))
				 : can_remove(w, from->tensor, e);

	if (r < 0)
		return r;
	o = edits_origin(w, from->inode, e);
	d = o.rendering ? draft_new(w, &o, e) : NULL;
	if (!d)
		return e && e->code ? -e->code : -ENOMEM;
	r = edits_write(w, to->inode, NULL, d, &changes, &became, e);
	if (r == 0) {
		scratch_unhide(w, to->inode);
		r = remove_tensor(w, from->inode, from->tensor, e);
	}
	if (r == 0) {
		pthread_mutex_lock(&w->lock);
		alias_set(w, alias_of(w, from->inode), to->inode);
		pthread_mutex_unlock(&w->lock);
		workspace_notify(w, to->inode, (struct str){0});
	}
	draft_unref(d);
	return r;
}

static int rename_tree(struct workspace *w, const struct end *from, const struct end *to,
	struct error *e)
{
	struct edit x = {.kind = EDIT_RENAME, .id = from->tensor};
	struct tree *t;
	struct arena *a;
	const struct view *view;
	bool is_name;
	int r;

	if (from->is_dir)
		return error_set(e, EOPNOTSUPP, "directories of the model cannot be renamed: rename the tensors");
	if (is_tree_file(to))
		return replace_tensor(w, from, to, e);
	if (!from->is_tensor)
		return make_backup(w, from, to, e);
	t = workspace_tree(w);
	a = arena_new(1 << 20);
	is_name = a && tree_creates(t, to->dir, to->name, a, &view, &x.name);
	r = is_name ? clear(w, to, e) : make_backup(w, from, to, e);
	if (r == 0 && is_name)
		r = apply_named(w, RECORD_RENAME, from->inode, &x, e);
	arena_free(a);
	tree_unref(t);
	return r;
}

static int check_ends(const struct end *from, const struct end *to, unsigned flags)
{
	if (!from->there)
		return -ENOENT;
	if (to->there && flags & RENAME_NOREPLACE)
		return -EEXIST;
	if (to->there && from->is_dir && !to->is_dir)
		return -ENOTDIR;
	if (to->there && !from->is_dir && to->is_dir)
		return -EISDIR;
	return 0;
}

int workspace_rename(struct workspace *w, uint64_t dir, struct str name, uint64_t new_dir,
	struct str new_name, unsigned flags, struct error *e)
{
	struct end from, to;
	int r;

	if (w->read_only)
		return -EROFS;
	if (flags & ~(unsigned)RENAME_NOREPLACE)
		return -EINVAL;
	if (new_name.len > NAME_MAX)
		return -ENAMETOOLONG;
	pthread_mutex_lock(&w->edit);
	r = look(w, dir, name, &from);
	if (r == 0)
		r = look(w, new_dir, new_name, &to);
	if (r == 0)
		r = check_ends(&from, &to, flags);
	if (r == 0 && (!to.there || from.inode != to.inode))
		r = from.node ? rename_scratch(w, &from, &to, e) : rename_tree(w, &from, &to, e);
	pthread_mutex_unlock(&w->edit);
	return r;
}
