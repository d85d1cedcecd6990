/* SPDX-License-Identifier: MIT */
#include "fs/alias.h"
#include "fs/workspace_private.h"

#include <errno.h>
#include <stdlib.h>

struct alias {
	struct alias *next_shown, *next_inode;
	uint64_t shown, inode;
	bool current; /* what alias_out gives */
};

static unsigned bucket(uint64_t n)
{
	return (unsigned)((n * 0x9e3779b97f4a7c15ull) >> 58) % ALIAS_BUCKETS;
}

static struct alias *find_shown(struct workspace *w, uint64_t shown)
{
	struct alias *a = w->aliases.by_shown[bucket(shown)];

	while (a && a->shown != shown)
		a = a->next_shown;
	return a;
}

uint64_t alias_in(struct workspace *w, uint64_t shown)
{
	struct alias *a;

	if (!atomic_load(&w->alias_count))
		return shown;
	pthread_mutex_lock(&w->lock);
	a = find_shown(w, shown);
	if (a)
		shown = a->inode;
	pthread_mutex_unlock(&w->lock);
	return shown;
}

uint64_t alias_of(struct workspace *w, uint64_t inode)
{
	struct alias *a = w->aliases.by_inode[bucket(inode)];

	uint64_t fresh;

	while (a && !(a->inode == inode && a->current))
		a = a->next_inode;
	if (a)
		return a->shown;
	/* one that was gone and is back, while its number went to another */
	if (!find_shown(w, inode))
		return inode;
	fresh = w->next_node++;
	return alias_set(w, fresh, inode) < 0 ? inode : fresh;
}

uint64_t alias_out(struct workspace *w, uint64_t inode)
{
	if (!atomic_load(&w->alias_count))
		return inode;
	pthread_mutex_lock(&w->lock);
	inode = alias_of(w, inode);
	pthread_mutex_unlock(&w->lock);
	return inode;
}

static void unchain(struct workspace *w, struct alias *a)
{
	struct alias **at = &w->aliases.by_inode[bucket(a->inode)];

	while (*at != a)
		at = &(*at)->next_inode;
	*at = a->next_inode;
}

int alias_set(struct workspace *w, uint64_t shown, uint64_t inode)
{
	struct alias *a = find_shown(w, shown);
	unsigned b = bucket(inode);

	if (a) {
		unchain(w, a);
	} else {
		a = calloc(1, sizeof(*a));
		if (!a)
			return -ENOMEM;
		a->shown = shown;
		a->next_shown = w->aliases.by_shown[bucket(shown)];
		w->aliases.by_shown[bucket(shown)] = a;
		atomic_fetch_add(&w->alias_count, 1);
	}
	for (struct alias *other = w->aliases.by_inode[b]; other; other = other->next_inode)
		if (other->inode == inode)
			other->current = false;
	a->inode = inode;
	a->current = true;
	a->next_inode = w->aliases.by_inode[b];
	w->aliases.by_inode[b] = a;
	return 0;
}

unsigned alias_all(struct workspace *w, uint64_t inode, uint64_t *shown, unsigned cap)
{
	unsigned n = 0;

	if (atomic_load(&w->alias_count)) {
		pthread_mutex_lock(&w->lock);
		for (struct alias *a = w->aliases.by_inode[bucket(inode)]; a && n < cap; a = a->next_inode)
			if (a->inode == inode)
				shown[n++] = a->shown;
		/* its own number, unless that means another now */
		if (n < cap && !find_shown(w, inode))
			shown[n++] = inode;
		pthread_mutex_unlock(&w->lock);
		return n;
	}
	shown[0] = inode;
	return 1;
}

void alias_release(struct workspace *w)
{
	for (unsigned b = 0; b < ALIAS_BUCKETS; b++)
		while (w->aliases.by_shown[b]) {
			struct alias *a = w->aliases.by_shown[b];

			w->aliases.by_shown[b] = a->next_shown;
			free(a);
		}
}
