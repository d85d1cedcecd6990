/* SPDX-License-Identifier: MIT */
#include "parsers/core/cursor.h"

#include "parsers/core/arena.h"
#include "parsers/core/check.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { WINDOW_MIN = 4096, WINDOW_MAX = 256 << 10 };

void cursor_init(struct cursor *c, struct source *src, uint64_t offset, uint64_t length, struct error *e)
{
	*c = (struct cursor){.src = src, .pos = offset, .e = e};
	if (ckd_add(&c->end, offset, length) || c->end > source_size(src)) {
		c->end = offset;
		cursor_fail(c, EIO, "%llu bytes are expected, '%s' ends at %llu", (unsigned long long)length,
			source_name(src), (unsigned long long)source_size(src));
	}
}

void cursor_release(struct cursor *c)
{
	free(c->window);
	c->window = NULL;
	c->window_len = c->window_cap = 0;
}

int cursor_fail(struct cursor *c, int code, const char *format, ...)
{
	char text[400];
	va_list ap;

	if (c->failed)
		return c->failed;
	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	c->failed = error_at(c->e, code, c->pos, "%s", text);
	return c->failed;
}

/* Bytes of the window from pos on. */
static size_t window_left(const struct cursor *c)
{
	uint64_t behind = c->pos - c->window_pos;

	if (c->pos < c->window_pos || behind >= c->window_len)
		return 0;
	return c->window_len - (size_t)behind;
}

/* At least `want` bytes at pos, unless the end is nearer. The window doubles while reading goes straight on. */
static bool fill(struct cursor *c, size_t want)
{
	uint64_t left = c->end - c->pos;
	bool sequential = c->window_len && c->pos >= c->window_pos &&
			  c->pos - c->window_pos <= c->window_len;
	size_t size = WINDOW_MIN;

	if (sequential)
		size = c->window_len * 2 < WINDOW_MAX ? c->window_len * 2 : WINDOW_MAX;
	if (size < WINDOW_MIN)
		size = WINDOW_MIN;
	if (size < want)
		size = want;
	if (size > left)
		size = (size_t)left;
	if (size > c->window_cap) {
		unsigned char *grown = realloc(c->window, size);

		if (!grown) {
			cursor_fail(c, ENOMEM, "out of memory");
			return false;
		}
		c->window = grown;
		c->window_cap = size;
	}
	c->window_len = 0;
	int r = source_read(c->src, c->pos, c->window, size, c->e);

	if (r < 0) {
		c->failed = r;
		return false;
	}
	c->window_pos = c->pos;
	c->window_len = size;
	return true;
}

/* n <= 16 bytes at pos; NULL after failing */
static const unsigned char *take(struct cursor *c, size_t n)
{
	const unsigned char *p;

	if (c->failed)
		return NULL;
	if (n > c->end - c->pos) {
		cursor_fail(c, EIO, "%zu bytes are expected, %llu are left", n,
			(unsigned long long)(c->end - c->pos));
		return NULL;
	}
	if (window_left(c) < n && !fill(c, n))
		return NULL;
	p = c->window + (c->pos - c->window_pos);
	c->pos += n;
	return p;
}

static uint64_t little(struct cursor *c, size_t n)
{
	const unsigned char *p = take(c, n);
	uint64_t v = 0;

	for (size_t i = n; p && i > 0; i--)
		v = v << 8 | p[i - 1];
	return v;
}

static uint64_t big(struct cursor *c, size_t n)
{
	const unsigned char *p = take(c, n);
	uint64_t v = 0;

	for (size_t i = 0; p && i < n; i++)
		v = v << 8 | p[i];
	return v;
}

uint8_t cursor_u8(struct cursor *c)
{
	return (uint8_t)little(c, 1);
}

uint16_t cursor_u16le(struct cursor *c)
{
	return (uint16_t)little(c, 2);
}

uint32_t cursor_u32le(struct cursor *c)
{
	return (uint32_t)little(c, 4);
}

uint64_t cursor_u64le(struct cursor *c)
{
	return little(c, 8);
}

uint16_t cursor_u16be(struct cursor *c)
{
	return (uint16_t)big(c, 2);
}

uint32_t cursor_u32be(struct cursor *c)
{
	return (uint32_t)big(c, 4);
}

uint64_t cursor_u64be(struct cursor *c)
{
	return big(c, 8);
}

uint64_t cursor_varint(struct cursor *c)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < 10; i++) {
		uint8_t b = cursor_u8(c);

		if (c->failed)
			return 0;
		/* the tenth byte has room for one bit */
		if (i == 9 && b > 1)
			break;
		v |= (uint64_t)(b & 0x7f) << (7 * i);
		if (!(b & 0x80))
			return v;
	}
	cursor_fail(c, EIO, "varint is longer than 10 bytes");
	return 0;
}

void cursor_bytes(struct cursor *c, void *buf, size_t n)
{
	size_t have;

	if (!c->failed && n > c->end - c->pos)
		cursor_fail(c, EIO, "%zu bytes are expected, %llu are left", n,
			(unsigned long long)(c->end - c->pos));
	if (c->failed) {
		if (n)
			memset(buf, 0, n);
		return;
	}
	have = window_left(c);
	if (have > n)
		have = n;
	if (have)
		memcpy(buf, c->window + (c->pos - c->window_pos), have);
	if (have < n) {
		int r = source_read(c->src, c->pos + have, (char *)buf + have, n - have, c->e);

		if (r < 0) {
			c->failed = r;
			memset(buf, 0, n);
			return;
		}
	}
	c->pos += n;
}

void cursor_skip(struct cursor *c, uint64_t n)
{
	if (c->failed)
		return;
	if (n > c->end - c->pos)
		cursor_fail(c, EIO, "%llu bytes are expected, %llu are left", (unsigned long long)n,
			(unsigned long long)(c->end - c->pos));
	else
		c->pos += n;
}

void cursor_seek(struct cursor *c, uint64_t pos)
{
	if (c->failed)
		return;
	if (pos > c->end)
		cursor_fail(c, EIO, "position %llu is expected, the end is at %llu", (unsigned long long)pos,
			(unsigned long long)c->end);
	else
		c->pos = pos;
}

struct str cursor_str(struct cursor *c, struct arena *a, uint64_t n)
{
	char *text;

	if (!c->failed && n > c->end - c->pos)
		cursor_fail(c, EIO, "a string of %llu bytes is expected, %llu are left",
			(unsigned long long)n, (unsigned long long)(c->end - c->pos));
	if (c->failed)
		return (struct str){NULL, 0};
	text = arena_alloc(a, (size_t)n + 1);
	if (!text) {
		cursor_fail(c, ENOMEM, "out of memory for a string of %llu bytes", (unsigned long long)n);
		return (struct str){NULL, 0};
	}
	cursor_bytes(c, text, (size_t)n);
	return c->failed ? (struct str){NULL, 0} : (struct str){text, (size_t)n};
}

const unsigned char *cursor_peek(struct cursor *c, size_t want, size_t *n)
{
	*n = 0;
	if (c->failed || c->pos == c->end)
		return NULL;
	if (want > c->end - c->pos)
		want = (size_t)(c->end - c->pos);
	if (window_left(c) < (want ? want : 1) && !fill(c, want))
		return NULL;
	*n = window_left(c);
	if (*n > c->end - c->pos)
		*n = (size_t)(c->end - c->pos);
	return c->window + (c->pos - c->window_pos);
}
