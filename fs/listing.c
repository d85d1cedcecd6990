/* SPDX-License-Identifier: MIT */
/* Listings: what the tree has, without what was moved away, and then the scratch files. */
#include "fs/workspace_private.h"

#include <limits.h>

/* positions from here on are scratch inodes without their top bit */
#define POSITION_SCRATCH (1ull << 62)

struct listing {
	struct workspace *w;
	const struct tree *t;
	int (*emit)(void *arg, struct str name, const struct attr *attr, uint64_t next);
	void *arg;
	bool full;
};

static int listing_emit(void *arg, struct str name, const struct entry *x, uint64_t next)
{
	struct listing *l = arg;
	struct attr a;

	if (node_hides(l->w, x->inode))
		return 0;
	workspace_attr(l->w, l->t, x, &a);
	a.entry.inode = alias_out(l->w, x->inode);
	l->full = l->emit(l->arg, name, &a, next) != 0;
	return l->full;
}

/* The scratch file of dir with the smallest number from `from` on; its name in buf. */
static bool next_scratch(struct workspace *w, uint64_t dir, uint64_t from, char buf[NAME_MAX + 1],
	struct attr *out)
{
	struct node *best = NULL;

	pthread_mutex_lock(&w->lock);
	for (struct node *n = w->nodes; n; n = n->next)
		if (n->linked && n->parent == dir && n->inode >= from && (!best || n->inode < best->inode))
			best = n;
	if (best) {
		node_attr(w, best, out);
		memcpy(buf, best->name.ptr, best->name.len);
		buf[best->name.len] = 0;
	}
	pthread_mutex_unlock(&w->lock);
	return best;
}

static void list_scratch(struct listing *l, uint64_t dir, uint64_t from)
{
	char name[NAME_MAX + 1];
	struct attr a;

	while (next_scratch(l->w, dir, from, name, &a)) {
		from = a.entry.inode + 1;
		a.entry.inode = alias_out(l->w, a.entry.inode);
		if (l->emit(l->arg, str_from(name), &a,
			    POSITION_SCRATCH + (from & ~WORKSPACE_SCRATCH)))
			return;
	}
}

int workspace_list(struct workspace *w, uint64_t dir, uint64_t from, bool with_attr,
	int (*emit)(void *arg, struct str name, const struct attr *attr, uint64_t next), void *arg)
{
	struct listing l = {.w = w, .emit = emit, .arg = arg};
	struct tree *t = workspace_tree(w);
	int r = 0;

	l.t = t;
	dir = alias_in(w, dir);
	if (!(dir & WORKSPACE_SCRATCH) && from < POSITION_SCRATCH)
		r = tree_list(t, dir, from, with_attr, listing_emit, &l);
	if (r == 0 && !l.full && atomic_load(&w->node_count))
		list_scratch(&l, dir,
			from < POSITION_SCRATCH ? 0 : (from - POSITION_SCRATCH) | WORKSPACE_SCRATCH);
	tree_unref(t);
	return r;
}

int workspace_readlink(struct workspace *w, uint64_t inode, char **target)
{
	struct tree *t = workspace_tree(w);
	int r = tree_readlink(t, alias_in(w, inode), target);

	tree_unref(t);
	return r;
}
