/* SPDX-License-Identifier: MIT */
#include "parsers/core/arena.h"
#include "parsers/core/cursor.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct source *of(const void *bytes, size_t size)
{
	void *copy = malloc(size ? size : 1);

	memcpy(copy, bytes, size);
	return source_from_memory(copy, size, "test");
}

static void numbers(void)
{
	struct source *s = of("\x01\x02\x03\x04\x05\x06\x07\xf8", 8);
	struct error e = {0};
	struct cursor c;

	cursor_init(&c, s, 0, 8, &e);
	CHECK(cursor_u8(&c) == 1 && cursor_u16le(&c) == 0x0302 && cursor_u32le(&c) == 0x07060504 && cursor_left(&c) == 1);
	cursor_seek(&c, 0);
	CHECK(cursor_u64le(&c) == 0xf807060504030201 && cursor_left(&c) == 0 && !cursor_failed(&c));
	cursor_seek(&c, 0);
	CHECK(cursor_u16be(&c) == 0x0102 && cursor_u32be(&c) == 0x03040506);
	cursor_seek(&c, 0);
	CHECK(cursor_u64be(&c) == 0x01020304050607f8);
	cursor_release(&c);
	source_unref(s);
}

/* After the first failure: zeroes, the position stays, the first text stays. */
static void sticky(void)
{
	struct source *s = of("abcdefgh", 8);
	struct arena *a = arena_new(1000);
	char buf[4] = "....";
	struct error e = {0};
	struct cursor c;
	size_t n = 7;

	cursor_init(&c, s, 2, 4, &e);
	CHECK(cursor_u8(&c) == 'c' && cursor_left(&c) == 3);
	CHECK(cursor_u32le(&c) == 0 && cursor_failed(&c) == -EIO && cursor_left(&c) == 0);
	CHECK(strcmp(e.text, "byte 3: 4 bytes are expected, 3 are left") == 0);
	CHECK(cursor_u8(&c) == 0 && cursor_varint(&c) == 0 && c.pos == 3);
	cursor_bytes(&c, buf, 4);
	CHECK(memcmp(buf, "\0\0\0\0", 4) == 0);
	cursor_skip(&c, 1);
	cursor_seek(&c, 2);
	CHECK(c.pos == 3 && !cursor_str(&c, a, 1).ptr && !cursor_peek(&c, 1, &n) && n == 0);
	CHECK(cursor_fail(&c, EINVAL, "later") == -EIO && strstr(e.text, "4 bytes are expected"));
	cursor_release(&c);
	arena_free(a);
	source_unref(s);
}

/* It never leaves its range, however the question is put. */
static void outside(void)
{
	static const struct {
		uint64_t offset, length;
	} bad[] = {{0, 9}, {9, 0}, {8, 1}, {4, UINT64_MAX}, {UINT64_MAX, 1}, {UINT64_MAX, UINT64_MAX}};
	struct source *s = of("abcdefgh", 8);
	struct arena *a = arena_new(1u << 20);
	struct error e = {0};
	struct cursor c;
	char buf[16];
	size_t n;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		error_clear(&e);
		cursor_init(&c, s, bad[i].offset, bad[i].length, &e);
		CHECK(cursor_failed(&c) == -EIO && e.code == EIO && cursor_u8(&c) == 0);
		cursor_release(&c);
	}
	cursor_init(&c, s, 8, 0, NULL);
	CHECK(!cursor_failed(&c) && cursor_left(&c) == 0 && !cursor_peek(&c, 1, &n));
	cursor_release(&c);
#define FAILS(call)                                     \
	do {                                            \
		cursor_init(&c, s, 1, 4, NULL);         \
		CHECK(cursor_u8(&c) == 'b');            \
		call;                                   \
		CHECK(cursor_failed(&c) == -EIO);       \
		CHECK(c.pos == 2);                      \
		cursor_release(&c);                     \
	} while (0)
	FAILS(cursor_u32le(&c));
	FAILS(cursor_u64be(&c));
	FAILS(cursor_skip(&c, 4));
	FAILS(cursor_skip(&c, UINT64_MAX));
	FAILS(cursor_seek(&c, 6));
	FAILS(cursor_seek(&c, UINT64_MAX));
	FAILS(cursor_bytes(&c, buf, 4));
	FAILS(CHECK(!cursor_str(&c, a, UINT64_MAX).ptr));
	FAILS(CHECK(!cursor_str(&c, a, 4).ptr));
	/* the neighbours of its range are not shown */
	cursor_init(&c, s, 1, 4, NULL);
	CHECK(memcmp(cursor_peek(&c, 100, &n), "bcde", 4) == 0 && n == 4);
	cursor_release(&c);
	arena_free(a);
	source_unref(s);
}

static void varints(void)
{
	static const struct {
		const char *bytes;
		size_t size;
		uint64_t value;
		bool good;
	} all[] = {
		{"\0", 1, 0, true},
		{"\x7f", 1, 127, true},
		{"\x80\x01", 2, 128, true},
		{"\xac\x02", 2, 300, true},
		{"\x80\0", 2, 0, true}, /* longer than needed is allowed */
		{"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10, UINT64_MAX, true},
		{"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", 10, 1ull << 63, true},
		{"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 10, 0, false}, /* 65 bits */
		{"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\0", 11, 0, false},
		{"\x80", 1, 0, false},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		struct source *s = of(all[i].bytes, all[i].size);
		struct cursor c;

		cursor_init(&c, s, 0, all[i].size, NULL);
		CHECK(cursor_varint(&c) == all[i].value && !cursor_failed(&c) == all[i].good);
		CHECK(!all[i].good || cursor_left(&c) == 0);
		cursor_release(&c);
		source_unref(s);
	}
}

/* A megabyte in steps of all sizes, through the window that grows, with jumps. */
static void windows(void)
{
	enum { SIZE = 1 << 20 };
	unsigned char *bytes = malloc(SIZE), buf[300];
	struct arena *a = arena_new(1u << 20);
	struct source *s;
	struct cursor c;
	uint32_t x = 1;
	unsigned wrong = 0;
	size_t at = 0, n;

	for (size_t i = 0; i < SIZE; i++)
		bytes[i] = (unsigned char)(i * 2654435761u >> 13);
	s = of(bytes, SIZE);
	cursor_init(&c, s, 0, SIZE, NULL);
	while (at + 700 < SIZE) {
		const unsigned char *p;
		struct str text;

		x = x * 1103515245 + 12345;
		switch (x >> 28) {
		case 0:
			cursor_skip(&c, x >> 18 & 0x1ff);
			at += x >> 18 & 0x1ff;
			break;
		case 1:
			at = at > 500 ? at - 500 : at;
			cursor_seek(&c, at);
			break;
		case 2:
			text = cursor_str(&c, a, 3);
			CHECK(text.len == 3 && memcmp(text.ptr, bytes + at, 3) == 0 && text.ptr[3] == '\0');
			at += 3;
			break;
		case 3:
			p = cursor_peek(&c, 600, &n);
			wrong += n < 600 || memcmp(p, bytes + at, n) != 0;
			break;
		default:
			n = x >> 20 & 0xff;
			cursor_bytes(&c, buf, n);
			wrong += memcmp(buf, bytes + at, n) != 0 || cursor_u8(&c) != bytes[at + n];
			at += n + 1;
		}
		if (arena_used(a) > 1000000) {
			arena_free(a);
			a = arena_new(1u << 20);
		}
	}
	CHECK(!cursor_failed(&c) && c.pos == at && wrong == 0);
	cursor_release(&c);
	/* memory is bounded by its budget, not by what the file says */
	cursor_init(&c, s, 0, SIZE, NULL);
	arena_free(a);
	a = arena_new(1000);
	CHECK(!cursor_str(&c, a, 2000).ptr && cursor_failed(&c) == -ENOMEM);
	cursor_release(&c);
	arena_free(a);
	source_unref(s);
	free(bytes);
}

int main(void)
{
	numbers();
	sticky();
	outside();
	varints();
	windows();
	return unit_done("cursor");
}
