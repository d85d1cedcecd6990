/* SPDX-License-Identifier: MIT */
#include "parsers/core/arena.h"

#include "parsers/core/check.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { ALIGN = 16, BLOCK_MIN = 4096, BLOCK_MAX = 1 << 20 };

struct block {
	struct block *next;
	size_t used, size; /* of the bytes behind the header */
};

struct deferred {
	struct deferred *next;
	void (*release)(void *);
	void *object;
};

struct arena {
	struct block *blocks; /* the first one is being filled */
	struct deferred *deferred;
	uint64_t used, budget;
	size_t next_size;
};

static size_t header_size(void)
{
	return (sizeof(struct block) + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

struct arena *arena_new(uint64_t budget)
{
	struct arena *a = calloc(1, sizeof(*a));

	if (a) {
		a->budget = budget;
		a->next_size = BLOCK_MIN;
	}
	return a;
}

void arena_free(struct arena *a)
{
	if (!a)
		return;
	for (struct deferred *d = a->deferred; d; d = d->next)
		d->release(d->object);
	while (a->blocks) {
		struct block *b = a->blocks;

		a->blocks = b->next;
		free(b);
	}
	free(a);
}

/* A block of its own for large pieces keeps the rest of the present block in use. */
static void *new_block(struct arena *a, size_t size)
{
	bool large = size > a->next_size / 2;
	size_t room = large ? size : a->next_size, total;
	struct block *b;

	if (ckd_add(&total, room, header_size()))
		return NULL;
	b = calloc(1, total);
	if (!b)
		return NULL;
	b->size = room;
	b->used = size;
	if (large && a->blocks) {
		b->next = a->blocks->next;
		a->blocks->next = b;
	} else {
		b->next = a->blocks;
		a->blocks = b;
		if (a->next_size < BLOCK_MAX)
			a->next_size *= 2;
	}
	return (char *)b + header_size();
}

void *arena_alloc(struct arena *a, size_t size)
{
	struct block *b = a->blocks;
	size_t whole;
	void *p;

	if (ckd_add(&whole, size ? size : 1, (size_t)ALIGN - 1))
		return NULL;
	whole &= ~(size_t)(ALIGN - 1);
	if (whole > a->budget - a->used)
		return NULL;
	if (b && whole <= b->size - b->used) {
		p = (char *)b + header_size() + b->used;
		b->used += whole;
	} else {
		p = new_block(a, whole);
	}
	if (p)
		a->used += whole;
	return p;
}

void *arena_array(struct arena *a, size_t count, size_t size)
{
	size_t total;

	return ckd_mul(&total, count, size) ? NULL : arena_alloc(a, total);
}

struct str arena_str(struct arena *a, const char *ptr, size_t len)
{
	char *copy = len == SIZE_MAX ? NULL : arena_alloc(a, len + 1);

	if (!copy)
		return (struct str){NULL, 0};
	if (len)
		memcpy(copy, ptr, len);
	return (struct str){copy, len};
}

struct str arena_printf(struct arena *a, const char *format, ...)
{
	struct str s = {NULL, 0};
	va_list ap, again;
	int n;

	va_start(ap, format);
	va_copy(again, ap);
	n = vsnprintf(NULL, 0, format, ap);
	if (n >= 0) {
		char *text = arena_alloc(a, (size_t)n + 1);

		if (text) {
			vsnprintf(text, (size_t)n + 1, format, again);
			s = (struct str){text, (size_t)n};
		}
	}
	va_end(again);
	va_end(ap);
	return s;
}

int arena_defer(struct arena *a, void (*release)(void *), void *object)
{
	struct deferred *d = arena_alloc(a, sizeof(*d));

	if (!d) {
		release(object);
		return -ENOMEM;
	}
	*d = (struct deferred){a->deferred, release, object};
	a->deferred = d;
	return 0;
}

uint64_t arena_used(const struct arena *a)
{
	return a->used;
}
