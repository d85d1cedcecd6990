/* SPDX-License-Identifier: MIT */
/*
 * arena: memory that lives and dies with one model. Allocation is a pointer bump, release is one
 * call, and a budget bounds what a hostile file can make us take. Not thread-safe: a model is built by
 * one thread and immutable afterwards.
 */
#ifndef PARSERS_CORE_ARENA_H
#define PARSERS_CORE_ARENA_H

#include "parsers/core/str.h"

struct arena;

/* budget in bytes; NULL when memory is out */
struct arena *arena_new(uint64_t budget);
void arena_free(struct arena *a);

/* Zeroed, aligned to 16. NULL when the budget or memory is exhausted. size 0 gives a valid pointer. */
void *arena_alloc(struct arena *a, size_t size);
/* count * size with the multiplication checked */
void *arena_array(struct arena *a, size_t count, size_t size);
/* A copy with a NUL behind it (not counted). ptr is NULL when memory is out. */
struct str arena_str(struct arena *a, const char *ptr, size_t len);
/* printf into the arena */
struct str arena_printf(struct arena *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Runs release(object) when the arena is freed, in reverse order of registration. 0 or -ENOMEM (then
 * release has been called at once). */
int arena_defer(struct arena *a, void (*release)(void *), void *object);
uint64_t arena_used(const struct arena *a);

#endif
