/* SPDX-License-Identifier: MIT */
#include "parsers/codec/fail.h"
#include "parsers/core/codec.h"
#include "parsers/core/extmap.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct source *of(const char *text)
{
	return source_from_memory(strdup(text), strlen(text), "test");
}

static bool reads(const struct extmap *m, uint64_t offset, const char *want, size_t len)
{
	char buf[64];

	return extmap_read(m, offset, buf, len, NULL) == 0 && memcmp(buf, want, len) == 0;
}

/* Every piece of a map of all kinds, at every offset and length. */
static void kinds(void)
{
	static const char whole[] = "head\0\0\0" "234copied89inner!a\0";
	const size_t size = sizeof(whole) - 1;
	struct source *s = of("0123456789");
	struct extmap m = {0}, *inner = extmap_new();
	struct extent x;
	uint64_t begin;
	struct error e = {0};
	unsigned wrong = 0;
	char buf[64];

	extmap_append_memory(inner, "the inner!", 10);
	extmap_append_source(inner, s, 0, 4);
	CHECK(extmap_append_memory(&m, "head", 4) == 0 && extmap_append_zero(&m, 3) == 0);
	extmap_append_source(&m, s, 2, 3);
	extmap_append_copy(&m, strcpy(buf, "copied"), 6);
	memset(buf, 'X', sizeof(buf));
	extmap_append_source(&m, s, 8, 2);
	x = extent_slice(extent_map(inner), 4, 6);
	extmap_append(&m, &x);
	extmap_append_take(&m, strdup("a"), 2);
	source_unref(s);
	extmap_unref(inner); /* the map holds both */

	CHECK(m.size == size && extmap_failed(&m, &e) == 0);
	for (size_t from = 0; from <= size; from++)
		for (size_t len = 0; len <= size - from; len++)
			wrong += !reads(&m, from, whole + from, len);
	CHECK(wrong == 0);
	CHECK(extmap_read(&m, size, buf, 1, &e) == -EINVAL && strstr(e.text, "outside"));
	CHECK(extmap_read(&m, 1, buf, SIZE_MAX, NULL) == -EINVAL && extmap_read(&m, UINT64_MAX, buf, 2, NULL) == -EINVAL);

	CHECK(extmap_find(&m, 0, &begin)->kind == EXTENT_MEMORY && begin == 0);
	CHECK(extmap_find(&m, 6, &begin)->kind == EXTENT_ZERO && begin == 4);
	CHECK(extmap_find(&m, 7, &begin)->kind == EXTENT_SOURCE && begin == 7);
	CHECK(!extmap_find(&m, size, &begin));
	CHECK(memcmp(extmap_peek(&m, 1, 3), "ead", 3) == 0 && !extmap_peek(&m, 1, 4)); /* only within a piece */
	CHECK(!extmap_peek(&m, 4, 1)); /* zeroes lie nowhere */
	CHECK(memcmp(extmap_peek(&m, 18, 5), "inner", 5) == 0);
	extmap_release(&m);
	CHECK(m.size == 0 && m.count == 0);
}

static void joining(void)
{
	struct source *s = of("0123456789"), *t = of("0123456789");
	struct extmap m = {0};

	extmap_append_source(&m, s, 0, 4);
	extmap_append_source(&m, s, 4, 0); /* nothing */
	extmap_append_source(&m, s, 4, 6);
	CHECK(m.count == 1 && m.size == 10); /* copied in one piece */
	extmap_append_source(&m, s, 9, 1);
	extmap_append_source(&m, t, 0, 1);
	CHECK(m.count == 3 && reads(&m, 8, "8990", 4));
	extmap_release(&m);
	source_unref(s);
	source_unref(t);
}

static void parts(void)
{
	struct source *s = of("0123456789");
	struct extmap m = {0}, part = {0};

	extmap_append_memory(&m, "abc", 3);
	extmap_append_source(&m, s, 5, 5);
	extmap_append_memory(&m, "xyz", 3);
	CHECK(extmap_append_map(&part, &m, 2, 7) == 0 && part.size == 7 && reads(&part, 0, "c56789x", 7));
	CHECK(extmap_append_map(&part, &m, 0, 0) == 0 && part.size == 7);
	CHECK(extmap_append_map(&part, &m, 8, 4) == -EINVAL);
	CHECK(!reads(&part, 0, "c", 1)); /* sticky */
	CHECK(extmap_append_memory(&part, "more", 4) == -EINVAL && extmap_failed(&part, NULL) == -EINVAL);
	extmap_release(&part);
	CHECK(extmap_append_map(&part, &m, UINT64_MAX, 2) == -EINVAL);
	extmap_release(&part);
	extmap_release(&m);
	source_unref(s);
}

/* Sizes are file sizes: 63 bits. */
static void overflow(void)
{
	struct extmap m = {0};
	struct error e = {0};
	char byte = 1;

	CHECK(extmap_append_zero(&m, INT64_MAX) == 0 && m.size == INT64_MAX);
	CHECK(extmap_read(&m, INT64_MAX - 1, &byte, 1, NULL) == 0 && byte == 0);
	CHECK(extmap_append_zero(&m, 1) == -EOVERFLOW);
	CHECK(extmap_failed(&m, &e) == -EOVERFLOW && e.code == EOVERFLOW);
	extmap_release(&m);
	CHECK(extmap_append_zero(&m, UINT64_MAX) == -EOVERFLOW);
	extmap_release(&m);
	CHECK(extent_slice(extent_zero(10), 4, 100).size == 6 && extent_slice(extent_zero(10), 11, 1).size == 0);
	CHECK(extent_slice(extent_zero(10), UINT64_MAX, UINT64_MAX).size == 0);
}

/* What cannot be read says so, and the rest of the map still reads. */
static void failing(void)
{
	struct codec *c = codec_fail(5, EIO, STR("it is damaged"));
	struct extmap m = {0};
	struct extent x = extent_codec(c);
	struct error e = {0};
	char buf[8];

	extmap_append_memory(&m, "ab", 2);
	extmap_append(&m, &x);
	extmap_append_memory(&m, "cd", 2);
	codec_unref(c);
	CHECK(m.size == 9 && reads(&m, 0, "ab", 2) && reads(&m, 7, "cd", 2));
	CHECK(extmap_read(&m, 1, buf, 2, &e) == -EIO && strstr(e.text, "it is damaged"));
	CHECK(extent_read(&x, 4, buf, 2, NULL) == -EINVAL); /* outside the piece */
	extmap_release(&m);
}

static unsigned released;

static void count_release(void *object)
{
	released += *(unsigned *)object;
}

static void owning(void)
{
	unsigned one = 1, ten = 10;
	struct extmap m = {0}, *heap = extmap_new();

	CHECK(extmap_keep(&m, count_release, &one) == 0 && extmap_keep(&m, count_release, &ten) == 0);
	CHECK(released == 0);
	extmap_release(&m);
	CHECK(released == 11);
	/* a map that has failed keeps nothing: released at once */
	extmap_append_zero(&m, UINT64_MAX);
	CHECK(extmap_keep(&m, count_release, &one) == -EOVERFLOW && released == 12);
	CHECK(extmap_append_take(&m, malloc(3), 3) == -EOVERFLOW);
	extmap_release(&m);
	CHECK(extmap_ref(heap) == heap);
	extmap_unref(heap);
	CHECK(extmap_append_zero(heap, 1) == 0);
	extmap_unref(heap);
	extmap_unref(NULL);
	extmap_release(NULL);
}

/* Maps in maps, deeper than any code of ours makes them: an error, not a stack that is full. */
static void depth(void)
{
	struct extmap *m = extmap_new();
	char byte;

	extmap_append_memory(m, "x", 1);
	for (unsigned i = 0; i < 1000; i++) {
		struct extmap *outer = extmap_new();
		struct extent x = extent_map(m);

		extmap_append(outer, &x);
		extmap_unref(m);
		m = outer;
		if (i == 50)
			CHECK(reads(m, 0, "x", 1) && extmap_peek(m, 0, 1));
	}
	CHECK(extmap_read(m, 0, &byte, 1, NULL) == -ELOOP && !extmap_peek(m, 0, 1));
	extmap_unref(m);
}

int main(void)
{
	kinds();
	joining();
	parts();
	overflow();
	failing();
	owning();
	depth();
	return unit_done("extmap");
}
