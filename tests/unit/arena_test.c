/* SPDX-License-Identifier: MIT */
#include "parsers/core/arena.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

static bool all_zero(const unsigned char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i])
			return false;
	return true;
}

/* Pieces of all sizes: zeroed, aligned, apart from each other. */
static void pieces(void)
{
	static const size_t sizes[] = {0, 1, 15, 16, 17, 100, 4000, 4096, 5000, 100000, 3, 2 << 20, 8};
	enum { COUNT = sizeof(sizes) / sizeof(sizes[0]), ROUNDS = 20 };
	unsigned char *got[COUNT * ROUNDS];
	struct arena *a = arena_new(UINT64_MAX);
	size_t n = 0;

	for (unsigned round = 0; round < ROUNDS; round++)
		for (size_t i = 0; i < COUNT; i++, n++) {
			got[n] = arena_alloc(a, sizes[i]);
			CHECK(got[n] && (uintptr_t)got[n] % 16 == 0 && all_zero(got[n], sizes[i]));
			memset(got[n], (int)(n % 255 + 1), sizes[i]);
		}
	for (size_t k = 0; k < n; k++) {
		size_t size = sizes[k % COUNT];

		CHECK(!size || (got[k][0] == k % 255 + 1 && got[k][size - 1] == k % 255 + 1));
	}
	arena_free(a);
}

static void budget(void)
{
	struct arena *a = arena_new(1000);

	CHECK(!arena_alloc(a, 1001) && arena_used(a) == 0);
	CHECK(arena_alloc(a, 900) && arena_used(a) >= 900);
	CHECK(!arena_alloc(a, 200));
	CHECK(arena_alloc(a, 16)); /* what still fits is given after a refusal */
	CHECK(!arena_alloc(a, SIZE_MAX) && !arena_alloc(a, SIZE_MAX - 7));
	arena_free(a);
	a = arena_new(UINT64_MAX);
	CHECK(!arena_array(a, SIZE_MAX / 2, 3) && !arena_array(a, 1ull << 33, 1ull << 33));
	CHECK(arena_array(a, 0, 8));
	arena_free(a);
}

static void strings(void)
{
	struct arena *a = arena_new(4096);
	char text[] = "one\0two";
	struct str s = arena_str(a, text, 7), empty = arena_str(a, NULL, 0), p;

	text[0] = 'X'; /* a copy, not a view */
	CHECK(s.len == 7 && memcmp(s.ptr, "one\0two", 8) == 0);
	CHECK(empty.ptr && empty.len == 0 && *empty.ptr == '\0');
	p = arena_printf(a, "%s-%d", "n", 7);
	CHECK(str_is(p, "n-7") && p.ptr[p.len] == '\0');
	CHECK(!arena_str(a, text, SIZE_MAX).ptr);
	CHECK(!arena_printf(a, "%5000d", 1).ptr);
	arena_free(a);
}

static char order[8];

static void note(void *object)
{
	strncat(order, object, 1);
}

static void deferring(void)
{
	struct arena *a = arena_new(64);

	CHECK(arena_defer(a, note, "1") == 0 && arena_defer(a, note, "2") == 0);
	CHECK(!*order);
	/* no room: released at once */
	CHECK(arena_defer(a, note, "3") == -ENOMEM && strcmp(order, "3") == 0);
	arena_free(a);
	CHECK(strcmp(order, "321") == 0);
	arena_free(NULL);
}

int main(void)
{
	pieces();
	budget();
	strings();
	deferring();
	return unit_done("arena");
}
