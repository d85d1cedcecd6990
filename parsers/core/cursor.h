/* SPDX-License-Identifier: MIT */
/*
 * cursor: the one checked reader of numbers from a source.
 *
 *	struct cursor c;
 *	cursor_init(&c, src, offset, length, e);
 *	uint32_t n = cursor_u32le(&c);
 *	...
 *	if (cursor_failed(&c)) -> e tells where; the reads gave zero
 *	cursor_release(&c);
 *
 * It never leaves [offset, offset + length). A failure is sticky: all later reads yield zero and
 * position stays. So test once per record. It reads ahead through a window that grows from 4 to 256 KiB
 * while access is sequential, and copies (a file changing below cannot change a value after its check).
 */
#ifndef PARSERS_CORE_CURSOR_H
#define PARSERS_CORE_CURSOR_H

#include "parsers/core/source.h"

struct arena;

struct cursor {
	struct source *src;
	uint64_t pos, end; /* absolute offsets in src */
	struct error *e;
	int failed; /* 0 or negative errno */
	unsigned char *window;
	uint64_t window_pos;
	size_t window_len, window_cap;
};

void cursor_init(struct cursor *c, struct source *src, uint64_t offset, uint64_t length, struct error *e);
void cursor_release(struct cursor *c);

static inline int cursor_failed(const struct cursor *c)
{
	return c->failed;
}
static inline uint64_t cursor_left(const struct cursor *c)
{
	return c->failed ? 0 : c->end - c->pos;
}
/* Marks failed and reports at the present position unless it already failed. Returns negative errno. */
int cursor_fail(struct cursor *c, int code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

uint8_t cursor_u8(struct cursor *c);
uint16_t cursor_u16le(struct cursor *c);
uint32_t cursor_u32le(struct cursor *c);
uint64_t cursor_u64le(struct cursor *c);
uint16_t cursor_u16be(struct cursor *c);
uint32_t cursor_u32be(struct cursor *c);
uint64_t cursor_u64be(struct cursor *c);
/* protobuf base-128 varint, at most 10 bytes */
uint64_t cursor_varint(struct cursor *c);
/* copies n bytes; buf is zeroed on failure */
void cursor_bytes(struct cursor *c, void *buf, size_t n);
void cursor_skip(struct cursor *c, uint64_t n);
/* absolute position within the cursor's range */
void cursor_seek(struct cursor *c, uint64_t pos);
/* n bytes as a string in the arena (checked against the bytes left first); {NULL,0} on failure */
struct str cursor_str(struct cursor *c, struct arena *a, uint64_t n);
/* a window onto the next bytes, at least `want` unless the end is nearer; *n tells how many. Valid until
 * the next call on this cursor. Consume with cursor_skip. For scanners that look at every byte. */
const unsigned char *cursor_peek(struct cursor *c, size_t want, size_t *n);

#endif
