/* SPDX-License-Identifier: MIT */
#include "fs/changes.h"
#include "fs/notices.h"

#include <errno.h>
#include <stdlib.h>

#define SETTLE_MILLISECONDS 1000

struct changes {
	struct notices *contents, *names;
};

struct late {
	struct late *next;
	uint64_t dir;
	size_t len;
	char name[];
};

/* The request that this thread answers. */
static _Thread_local struct {
	uint64_t dirs[2];
	struct str names[2];
	struct late *late;
} held;

struct changes *changes_new(void (*deliver)(void *arg, uint64_t inode, struct str name), void *arg)
{
	struct changes *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->contents = notices_new(deliver, arg);
	c->names = notices_new(deliver, arg);
	if (c->contents && c->names)
		return c;
	changes_free(c);
	return NULL;
}

bool changes_free(struct changes *c)
{
	bool contents, names;

	if (!c)
		return true;
	contents = notices_free(c->contents);
	names = notices_free(c->names);
	if (contents && names)
		free(c);
	return contents && names;
}

void changes_begin(uint64_t dir, const char *name, uint64_t new_dir, const char *new_name)
{
	held.dirs[0] = dir;
	held.dirs[1] = new_dir;
	held.names[0] = str_from(name);
	held.names[1] = str_from(new_name);
}

static int add_late(uint64_t dir, struct str name)
{
	struct late *l = malloc(sizeof(*l) + name.len);

	if (!l)
		return -ENOMEM;
	l->dir = dir;
	l->len = name.len;
	memcpy(l->name, name.ptr, name.len);
	l->next = held.late;
	held.late = l;
	return 0;
}

int changes_add(struct changes *c, uint64_t inode, struct str name)
{
	bool locked = false;

	if (!name.len)
		return notices_add(c->contents, inode, name);
	for (int i = 0; i < 2; i++) {
		if (inode != held.dirs[i])
			continue;
		if (str_eq(name, held.names[i]))
			return 0;
		locked = true;
	}
	return locked ? add_late(inode, name) : notices_add(c->names, inode, name);
}

void changes_settle(struct changes *c)
{
	notices_settle(c->contents, SETTLE_MILLISECONDS);
	notices_settle(c->names, SETTLE_MILLISECONDS);
}

void changes_end(struct changes *c)
{
	struct late *l;

	held.dirs[0] = held.dirs[1] = 0;
	while ((l = held.late)) {
		held.late = l->next;
		notices_add(c->names, l->dir, (struct str){l->name, l->len});
		free(l);
	}
}
