/* SPDX-License-Identifier: MIT */
/*
 * Open files. Whoever reads a file of the tree sees what it is now: while somebody writes it, what was written so
 * far, since the kernel keeps one cache for all; else what the present tree shows. A handle keeps what it
 * found and looks again only when the workspace's generation has grown.
 */
#include "fs/workspace_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

struct handle {
	struct workspace *w;
	uint64_t inode;
	struct node *node;       /* of a scratch file */
	struct writing *writing; /* opened for writing a file of the tree, or a tensor in the making */
	bool writer;
	bool act; /* .wiamodel/commit, discard */

	pthread_rwlock_t lock; /* the rest; a peek holds it for reading */
	uint64_t generation;
	struct draft *draft; /* read this, or else the map */
	struct tree *tree;
	struct extmap map;
};

struct writing *writing_find(struct workspace *w, uint64_t inode)
{
	struct writing *x = w->writings;

	while (x && x->inode != inode)
		x = x->next;
	return x;
}

/* ---- what there is to read ---- */

static int show_tree(struct handle *h, struct tree *t, struct error *e)
{
	struct extmap map = {0};
	int r = tree_open(t, h->inode, &map, e);

	if (r < 0) {
		extmap_release(&map);
		return r;
	}
	extmap_release(&h->map);
	tree_unref(h->tree);
	draft_unref(h->draft);
	h->map = map;
	h->tree = tree_ref(t);
	h->draft = NULL;
	return 0;
}

static void show_draft(struct handle *h, struct draft *d)
{
	extmap_release(&h->map);
	tree_unref(h->tree);
	draft_unref(h->draft);
	h->tree = NULL;
	h->draft = draft_ref(d);
}

/* Looks again. A file that is gone stays as it was for those who have it open. */
static int renew(struct handle *h, struct error *e)
{
	struct workspace *w = h->w;
	struct draft *d = NULL;
	struct writing *x;
	struct tree *t;
	uint64_t generation;
	int r = 0;

	pthread_mutex_lock(&w->lock);
	generation = atomic_load(&w->generation);
	x = h->writing ? h->writing : writing_find(w, h->inode);
	if (h->node && !h->writing)
		d = draft_ref(h->node->draft);
	else if (x)
		d = draft_ref(x->draft);
	t = tree_ref(w->tree);
	pthread_mutex_unlock(&w->lock);
	if (d)
		show_draft(h, d);
	else if (h->tree != t)
		r = show_tree(h, t, h->tree ? NULL : e);
	if (r < 0 && h->tree)
		r = 0;
	if (!r)
		h->generation = generation;
	draft_unref(d);
	tree_unref(t);
	return r;
}

/* Leaves the lock held for reading, unless it fails. */
static int begin_reading(struct handle *h, struct error *e)
{
	int r = 0;

	pthread_rwlock_rdlock(&h->lock);
	if (h->generation == atomic_load(&h->w->generation))
		return 0;
	pthread_rwlock_unlock(&h->lock);
	pthread_rwlock_wrlock(&h->lock);
	if (h->generation != atomic_load(&h->w->generation))
		r = renew(h, e);
	pthread_rwlock_unlock(&h->lock);
	if (r == 0)
		pthread_rwlock_rdlock(&h->lock);
	return r;
}

uint64_t handle_size(struct handle *h)
{
	uint64_t size;

	if (h->act || begin_reading(h, NULL) < 0)
		return 0;
	size = h->draft ? draft_size(h->draft) : h->map.size;
	pthread_rwlock_unlock(&h->lock);
	return size;
}

const void *handle_peek(struct handle *h, uint64_t offset, size_t len)
{
	const void *bytes;

	if (h->act || begin_reading(h, NULL) < 0)
		return NULL;
	bytes = h->draft ? NULL : extmap_peek(&h->map, offset, len);
	if (!bytes)
		pthread_rwlock_unlock(&h->lock);
	return bytes;
}

void handle_unpeek(struct handle *h)
{
	pthread_rwlock_unlock(&h->lock);
}

ssize_t handle_read(struct handle *h, uint64_t offset, void *buf, size_t len, struct error *e)
{
	ssize_t n = 0;
	int r;

	if (h->act)
		return 0;
	r = begin_reading(h, e);
	if (r < 0)
		return r;
	if (h->draft) {
		n = draft_read(h->draft, offset, buf, len, e);
	} else if (offset < h->map.size) {
		len = h->map.size - offset < len ? (size_t)(h->map.size - offset) : len;
		r = extmap_read(&h->map, offset, buf, len, e);
		n = r < 0 ? r : (ssize_t)len;
	}
	pthread_rwlock_unlock(&h->lock);
	return n;
}

/* ---- opening ---- */

static int check_writable(struct workspace *w, uint64_t inode, struct error *e)
{
	struct tree *t = workspace_tree(w);
	struct entry x;
	int r = w->read_only ? -EROFS : tree_stat(t, inode, &x);
	char *path;

	if (r == 0 && x.kind != ENTRY_FILE)
		r = -EISDIR;
	if (r == 0 && !x.writable) {
		path = tree_path(t, inode);
		r = error_set(e, EACCES, "'%s' cannot be written", path ? path : "");
		free(path);
	}
	tree_unref(t);
	return r;
}

/* One more writer of a file that is being written. */
static struct writing *writing_join(struct workspace *w, uint64_t inode)
{
	struct writing *x;

	pthread_mutex_lock(&w->lock);
	x = writing_find(w, inode);
	if (x)
		x->writers++;
	pthread_mutex_unlock(&w->lock);
	return x;
}

/* Adds a new one, unless somebody was faster. Takes the reference on d. */
static struct writing *writing_add(struct workspace *w, uint64_t inode, struct node *n, struct draft *d)
{
	struct writing *x, *mine = calloc(1, sizeof(*mine));

	pthread_mutex_lock(&w->lock);
	x = writing_find(w, inode);
	if (!x && mine) {
		*mine = (struct writing){.next = w->writings, .inode = inode, .node = n, .draft = d};
		w->writings = x = mine;
		mine = NULL;
		d = NULL;
		atomic_fetch_add(&w->writing_count, 1);
		atomic_fetch_add(&w->generation, 1);
	}
	if (x)
		x->writers++;
	pthread_mutex_unlock(&w->lock);
	draft_unref(d);
	free(mine);
	return x;
}

/* What the file shows now is not read when it is cut to nothing anyway. */
static struct writing *writing_begin(struct workspace *w, uint64_t inode, bool empty, struct error *e)
{
	struct writing *x = writing_join(w, inode);
	struct origin o = {0};
	struct draft *d;

	if (x)
		return x;
	if (!empty) {
		o = edits_origin(w, inode, e);
		if (!o.rendering)
			return NULL;
	}
	d = draft_new(w, &o, e);
	x = d ? writing_add(w, inode, NULL, d) : NULL;
	if (!x)
		error_set(e, ENOMEM, "out of memory for a staged file");
	return x;
}

/* The last writer's end: what was refused is dropped. */
static void writing_end(struct workspace *w, struct writing *x)
{
	struct writing **at = &w->writings;
	struct node *refused = NULL;
	uint64_t inode;
	bool last;

	pthread_mutex_lock(&w->lock);
	last = --x->writers == 0;
	if (last) {
		while (*at != x)
			at = &(*at)->next;
		*at = x->next;
		atomic_fetch_sub(&w->writing_count, 1);
		atomic_fetch_add(&w->generation, 1);
		refused = x->node;
	}
	inode = x->inode;
	if (refused && refused->linked) {
		node_unlink(w, refused);
		inode = refused->parent;
	}
	pthread_mutex_unlock(&w->lock);
	if (!last)
		return;
	if (refused)
		workspace_notify(w, inode, refused->name);
	else if (draft_changes(x->draft))
		workspace_notify(w, inode, (struct str){0});
	draft_unref(x->draft);
	free(x);
}

static struct handle *handle_new(struct workspace *w, uint64_t inode, int flags)
{
	struct handle *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->w = w;
	h->inode = inode;
	h->writer = (flags & O_ACCMODE) != O_RDONLY;
	h->generation = UINT64_MAX;
	pthread_rwlock_init(&h->lock, NULL);
	return h;
}

static int open_scratch(struct handle *h, int flags, struct error *e)
{
	struct workspace *w = h->w;
	struct node *n;
	struct writing *x = NULL;

	pthread_mutex_lock(&w->lock);
	n = node_find(w, h->inode);
	if (n && !n->is_dir)
		n->opens++;
	pthread_mutex_unlock(&w->lock);
	if (!n)
		return -ENOENT;
	if (n->is_dir)
		return -EISDIR;
	h->node = n;
	if (h->writer && n->view) { /* a tensor in the making */
		x = writing_join(w, n->inode);
		if (!x)
			x = writing_add(w, n->inode, n, draft_ref(n->draft));
		if (!x)
			return -ENOMEM;
		h->writing = x;
	}
	return flags & O_TRUNC ? draft_truncate(n->draft, 0, e) : 0;
}

static int open_tree(struct handle *h, int flags, struct error *e)
{
	int r = 0;

	if (!h->writer)
		return flags & O_TRUNC ? -EACCES : 0;
	r = check_writable(h->w, h->inode, e);
	if (r < 0)
		return r;
	h->writing = writing_begin(h->w, h->inode, flags & O_TRUNC, e);
	if (!h->writing)
		return e && e->code ? -e->code : -ENOMEM;
	return flags & O_TRUNC ? draft_truncate(h->writing->draft, 0, e) : 0;
}

int inner_open(struct workspace *w, uint64_t inode, int flags, struct handle **out, struct error *e)
{
	struct handle *h;
	int r = 0;

	*out = NULL;
	if (w->read_only && ((flags & O_ACCMODE) != O_RDONLY || flags & O_TRUNC))
		return -EROFS;
	h = handle_new(w, inode, flags);
	if (!h)
		return -ENOMEM;
	h->act = inode == WORKSPACE_COMMIT || inode == WORKSPACE_DISCARD;
	if (h->act)
		r = h->writer ? 0 : -EACCES;
	else if (inode & WORKSPACE_SCRATCH)
		r = open_scratch(h, flags, e);
	else
		r = open_tree(h, flags, e);
	if (r == 0 && !h->act) {
		r = begin_reading(h, e);
		if (r == 0)
			pthread_rwlock_unlock(&h->lock);
	}
	if (r < 0)
		handle_release(h);
	else
		*out = h;
	return r;
}

int workspace_open_file(struct workspace *w, uint64_t inode, int flags, struct handle **out,
	struct error *e)
{
	return inner_open(w, alias_in(w, inode), flags, out, e);
}

bool handle_keep_cache(const struct handle *h)
{
	return !h->act;
}

/* ---- writing ---- */

static struct draft *draft_of(const struct handle *h)
{
	if (!h->writer)
		return NULL;
	return h->writing ? h->writing->draft : h->node ? h->node->draft : NULL;
}

int handle_write(struct handle *h, uint64_t offset, const void *buf, size_t len, struct error *e)
{
	struct draft *d = draft_of(h);

	if (h->act && h->writer)
		return h->inode == WORKSPACE_COMMIT ? workspace_commit(h->w, e) : workspace_discard(h->w, e);
	return d ? draft_write(d, offset, buf, len, e) : -EBADF;
}

int handle_truncate(struct handle *h, uint64_t size, struct error *e)
{
	struct draft *d = draft_of(h);

	if (h->act)
		return 0;
	return d ? draft_truncate(d, size, e) : -EBADF;
}

int handle_flush(struct handle *h, struct error *e)
{
	return h->writing ? edits_judge(h->w, h->writing, e) : 0;
}

void handle_release(struct handle *h)
{
	if (!h)
		return;
	if (h->writing)
		writing_end(h->w, h->writing);
	if (h->node) {
		pthread_mutex_lock(&h->w->lock);
		node_close(h->w, h->node);
		pthread_mutex_unlock(&h->w->lock);
	}
	extmap_release(&h->map);
	tree_unref(h->tree);
	draft_unref(h->draft);
	pthread_rwlock_destroy(&h->lock);
	free(h);
}

int workspace_truncate(struct workspace *w, uint64_t inode, uint64_t size, struct error *e)
{
	struct handle *h = NULL;
	int r = workspace_open_file(w, inode, O_WRONLY, &h, e);

	if (r == 0 && handle_size(h) != size)
		r = handle_truncate(h, size, e);
	/* others who write it will be judged when they close */
	if (r == 0 && (!h->writing || h->writing->writers == 1))
		r = handle_flush(h, e);
	handle_release(h);
	return r;
}
