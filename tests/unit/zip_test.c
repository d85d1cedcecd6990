/* SPDX-License-Identifier: MIT */
#include "tests/unit/unit.h"

#include "parsers/codec/inflate.h"
#include "parsers/container/zip.h"

#include <errno.h>
#include <stdlib.h>

#include <zlib.h>

static struct arena *a;

/* ---- inflate ---- */

#define PLAIN (5u << 20)

static unsigned char *plain, *packed;
static size_t packed_size;

static void pack(void)
{
	z_stream z = {0};
	uint32_t seed = 1;

	plain = malloc(PLAIN);
	packed = malloc(PLAIN + 1000);
	for (size_t i = 0; i < PLAIN; i++) {
		seed = seed * 1103515245u + 12345u;
		plain[i] = (unsigned char)(i % 7 ? seed >> 28 : i >> 12);
	}
	deflateInit2(&z, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
	z.next_in = plain;
	z.avail_in = PLAIN;
	z.next_out = packed;
	z.avail_out = PLAIN + 1000;
	CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END);
	packed_size = z.total_out;
	deflateEnd(&z);
}

static bool read_is(struct codec *c, uint64_t at, size_t n)
{
	unsigned char *got = malloc(n);
	bool same = codec_read(c, at, got, n, NULL) == 0 && memcmp(got, plain + at, n) == 0;

	free(got);
	return same;
}

static void random_access(void)
{
	struct extent in = extent_memory(packed, packed_size);
	struct codec *c = codec_inflate(&in, PLAIN, (uint32_t)crc32(0, plain, PLAIN));
	uint32_t seed = 7;

	CHECK(read_is(c, 0, 100));
	CHECK(read_is(c, PLAIN - 10, 10));
	CHECK(read_is(c, 0, PLAIN));
	for (int i = 0; i < 60; i++) {
		seed = seed * 1103515245u + 12345u;
		CHECK(read_is(c, seed % (PLAIN - 70000), 1 + seed % 70000));
	}
	codec_unref(c);
}

static void damage(void)
{
	struct extent in = extent_memory(packed, packed_size);
	struct extent cut = extent_memory(packed, packed_size / 2);
	struct codec *c = codec_inflate(&in, PLAIN, 1);
	unsigned char *buf = malloc(PLAIN + 10);
	struct error e = {0};

	CHECK(codec_read(c, 0, buf, PLAIN, &e) == -EIO && strstr(e.text, "CRC-32"));
	codec_unref(c);
	c = codec_inflate(&cut, PLAIN, 1);
	error_clear(&e);
	CHECK(codec_read(c, 0, buf, PLAIN, &e) == -EIO && strstr(e.text, "end after"));
	CHECK(codec_read(c, 10, buf, 20, NULL) == 0 && memcmp(buf, plain + 10, 20) == 0);
	codec_unref(c);
	c = codec_inflate(&in, PLAIN + 10, 1);
	error_clear(&e);
	CHECK(codec_read(c, 0, buf, PLAIN + 10, &e) == -EIO && strstr(e.text, "are promised"));
	codec_unref(c);
	free(buf);
}

/* ---- archives ---- */

static struct source *as_source(const struct extmap *m)
{
	unsigned char *bytes = malloc((size_t)m->size + 1);

	CHECK(extmap_read(m, 0, bytes, (size_t)m->size, NULL) == 0);
	return source_from_memory(bytes, (size_t)m->size, "archive");
}

static struct extmap *content(const char *text)
{
	struct extmap *m = extmap_new();

	extmap_append_copy(m, text, strlen(text));
	return m;
}

static bool member_is(const struct zip *z, size_t i, const char *name, const char *text)
{
	struct extent x;
	char got[64];
	bool same;

	if (i >= z->count || !str_is(z->members[i].name, name) ||
		zip_content(z, &z->members[i], &x, NULL) < 0)
		return false;
	same = x.size == strlen(text) && extent_read(&x, 0, got, (size_t)x.size, NULL) == 0 &&
	       memcmp(got, text, (size_t)x.size) == 0 && zip_check(z, &z->members[i], NULL) == 0;
	extent_unref(&x);
	return same;
}

static struct source *archive(void)
{
	struct extmap out = {0}, *one = content("hello"), *two = content("other bytes");
	struct zip_writer w;
	struct source *src;

	CHECK(zip_begin(&w, &out) == 0);
	CHECK(zip_add(&w, STR("one"), one, 64) == 0);
	CHECK(zip_add(&w, STR("gr\xc3\xbc\xc3\x9f"), two, 0) == 0);
	CHECK(zip_end(&w, NULL) == 0);
	extmap_unref(one);
	extmap_unref(two);
	src = as_source(&out);
	extmap_release(&out);
	return src;
}

static void there_and_back(void)
{
	struct source *src = archive(), *copy;
	struct extmap out = {0}, *new = content("new");
	struct zip z, y;
	struct zip_writer w;

	CHECK(zip_is(src) && zip_read(src, a, &z, NULL) == 0 && z.count == 2);
	CHECK(member_is(&z, 0, "one", "hello") && z.members[0].payload % 64 == 0);
	CHECK(member_is(&z, 1, "gr\xc3\xbc\xc3\x9f", "other bytes"));
	/* copied under another name, one added, order changed */
	CHECK(zip_begin(&w, &out) == 0);
	CHECK(zip_copy(&w, &z, &z.members[1], z.members[1].name) == 0);
	CHECK(zip_add(&w, STR("new"), new, 0) == 0);
	CHECK(zip_copy(&w, &z, &z.members[0], STR("a longer name")) == 0);
	CHECK(zip_end(&w, NULL) == 0);
	copy = as_source(&out);
	CHECK(zip_read(copy, a, &y, NULL) == 0 && y.count == 3);
	CHECK(member_is(&y, 0, "gr\xc3\xbc\xc3\x9f", "other bytes"));
	CHECK(member_is(&y, 1, "new", "new"));
	CHECK(member_is(&y, 2, "a longer name", "hello"));
	extmap_unref(new);
	extmap_release(&out);
	source_unref(copy);
	source_unref(src);
}

/* The whole archive copied member by member is the same archive. */
static void identical(void)
{
	struct source *src = archive();
	struct extmap out = {0};
	unsigned char was[1024], now[1024];
	size_t n = (size_t)source_size(src);
	struct zip z;
	struct zip_writer w;

	CHECK(zip_read(src, a, &z, NULL) == 0);
	CHECK(zip_begin(&w, &out) == 0);
	for (size_t i = 0; i < z.count; i++)
		CHECK(zip_copy(&w, &z, &z.members[i], z.members[i].name) == 0);
	CHECK(zip_end(&w, NULL) == 0);
	CHECK(out.size == n && n < sizeof(was));
	CHECK(source_read(src, 0, was, n, NULL) == 0 && extmap_read(&out, 0, now, n, NULL) == 0);
	CHECK(memcmp(was, now, n) == 0);
	extmap_release(&out);
	source_unref(src);
}

/* The archive's own comment is read and written; one that looks like an end is none. */
static void archive_comment(void)
{
	const struct str comments[] = {STR("a note"), STR("PK\5\6 almost"), STR("\0\xff\0")};

	for (size_t i = 0; i < sizeof(comments) / sizeof(comments[0]); i++) {
		struct extmap out = {0}, *one = content("hello");
		struct source *src;
		struct zip_writer w;
		struct zip z;

		CHECK(zip_begin(&w, &out) == 0 && zip_add(&w, STR("one"), one, 0) == 0);
		w.comment = comments[i];
		CHECK(zip_end(&w, NULL) == 0);
		src = as_source(&out);
		CHECK(zip_read(src, a, &z, NULL) == 0 && str_eq(z.comment, comments[i]));
		CHECK(member_is(&z, 0, "one", "hello"));
		extmap_unref(one);
		extmap_release(&out);
		source_unref(src);
	}
}

/* Every truncation and every changed byte: an answer, not a crash, and never more than is there. */
static void hostile(void)
{
	struct source *src = archive();
	size_t n = (size_t)source_size(src);
	unsigned char bytes[1024];

	CHECK(source_read(src, 0, bytes, n, NULL) == 0);
	for (size_t cut = 0; cut < n; cut++) {
		unsigned char *part = malloc(n + 1);
		struct source *s;
		struct error e = {0};
		struct zip z;

		memcpy(part, bytes, n);
		s = source_from_memory(part, cut, "cut");
		CHECK(zip_read(s, a, &z, &e) < 0 && e.code);
		source_unref(s);
	}
	for (size_t at = 0; at < n; at++) {
		unsigned char *part = malloc(n);
		struct source *s;
		struct zip z;

		memcpy(part, bytes, n);
		part[at] ^= 0xff;
		s = source_from_memory(part, n, "changed");
		if (zip_read(s, a, &z, NULL) == 0)
			for (size_t i = 0; i < z.count; i++) {
				CHECK(z.members[i].payload <= n &&
					z.members[i].packed <= n - z.members[i].payload);
				zip_check(&z, &z.members[i], NULL);
			}
		source_unref(s);
	}
	source_unref(src);
}

int main(void)
{
	a = arena_new(64u << 20);
	pack();
	random_access();
	damage();
	there_and_back();
	identical();
	archive_comment();
	hostile();
	free(plain);
	free(packed);
	arena_free(a);
	return unit_done("zip");
}
