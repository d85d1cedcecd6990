/* SPDX-License-Identifier: MIT */
/*
 * Names in the mount that are no part of the model: swap files, backups, what an editor writes before it renames. They
 * live until unmount. A file of the tree that is moved to such a name leaves its place empty until something
 * is created there or the backup is moved back; the model keeps it meanwhile.
 */
#include "fs/workspace_private.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
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

uint64_t scratch_resolve(struct workspace *w, uint64_t inode)
{
	struct node *n;

	if (!(inode & WORKSPACE_SCRATCH) || inode < WORKSPACE_FIRST_NODE)
		return inode;
	pthread_mutex_lock(&w->lock);
	n = node_find(w, inode);
	if (n && n->became)
		inode = n->became;
	pthread_mutex_unlock(&w->lock);
	return inode;
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

/* One that became a file of the tree stays: the kernel may ask by its old number. */
static void node_drop(struct workspace *w, struct node *n)
{
	if (!n->linked && !n->opens && !n->became)
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
	if (n->draft) {
		a->entry.size = draft_size(n->draft);
		a->mtime = a->ctime = draft_mtime(n->draft);
	}
}

void scratch_release(struct workspace *w)
{
	while (w->nodes)
		node_free(w, w->nodes);
}

/* ---- creating ---- */

int workspace_create(struct workspace *w, uint64_t dir, struct str name, mode_t mode, int flags,
	struct attr *out, struct handle **h, struct error *e)
{
	(void)w, (void)dir, (void)name, (void)mode, (void)flags, (void)out, (void)h, (void)e;
	return -EROFS;
}

int workspace_mkdir(struct workspace *w, uint64_t dir, struct str name, mode_t mode, struct attr *out,
	struct error *e)
{
	(void)w, (void)dir, (void)name, (void)mode, (void)out, (void)e;
	return -EROFS;
}

int workspace_unlink(struct workspace *w, uint64_t dir, struct str name, struct error *e)
{
	(void)w, (void)dir, (void)name, (void)e;
	return -EROFS;
}

int workspace_rmdir(struct workspace *w, uint64_t dir, struct str name, struct error *e)
{
	(void)w, (void)dir, (void)name, (void)e;
	return -EROFS;
}

int workspace_rename(struct workspace *w, uint64_t dir, struct str name, uint64_t new_dir,
	struct str new_name, unsigned flags, struct error *e)
{
	(void)w, (void)dir, (void)name, (void)new_dir, (void)new_name, (void)flags, (void)e;
	return -EROFS;
}

int workspace_set_times(struct workspace *w, uint64_t inode, const struct timespec *mtime, mode_t mode,
	struct error *e)
{
	(void)e;
	if (w->read_only)
		return -EROFS;
	(void)inode, (void)mtime, (void)mode;
	return 0;
}
