/* SPDX-License-Identifier: MIT */
#include "parsers/container/protobuf.h"

#include "parsers/core/limits.h"

#include <errno.h>

struct level {
	const struct pb_type *type;
	uint64_t end;
};

static const struct pb_type *child_type(const struct pb_type *t, uint32_t number)
{
	for (const struct pb_child *c = t->children; c && c->field; c++)
		if (c->field == number)
			return c->type;
	return NULL;
}

/* the tag and the number or length behind it; `end` is where the message around it ends */
static int read_field(struct cursor *c, uint64_t end, struct pb_field *f)
{
	uint64_t key;

	f->tag = c->pos;
	key = cursor_varint(c);
	if (cursor_failed(c))
		return c->failed;
	if (key > UINT32_MAX || !(key >> 3))
		return cursor_fail(c, EIO, "no field number in tag %llu", (unsigned long long)key);
	f->number = (uint32_t)(key >> 3);
	f->wire = (enum pb_wire)(key & 7);
	f->value = 0;
	f->pos = c->pos;
	switch (f->wire) {
	case PB_VARINT:
		f->value = cursor_varint(c);
		break;
	case PB_FIXED64:
		f->value = cursor_u64le(c);
		break;
	case PB_FIXED32:
		f->value = cursor_u32le(c);
		break;
	case PB_BYTES:
		f->size = cursor_varint(c);
		f->pos = c->pos;
		break;
	default:
		return cursor_fail(c, EIO, "field %u has wire type %u", f->number, (unsigned)f->wire);
	}
	if (cursor_failed(c))
		return c->failed;
	if (f->wire != PB_BYTES)
		f->size = c->pos - f->pos;
	if (c->pos > end || (f->wire == PB_BYTES && f->size > end - c->pos))
		return cursor_fail(c, EIO, "field %u passes the end of its message at %llu", f->number,
			(unsigned long long)end);
	return 0;
}

static int walk(struct cursor *c, const struct pb_type *type, pb_visit *visit, void *arg, struct error *e)
{
	struct level stack[LIMIT_PROTOBUF_DEPTH + 1];
	unsigned depth = 0;

	stack[0] = (struct level){type, c->end};
	for (;;) {
		struct pb_field f = {.parent = stack[depth].type, .depth = depth};
		int r;

		if (c->pos == stack[depth].end) {
			if (!depth)
				return 0;
			depth--;
			continue;
		}
		r = read_field(c, stack[depth].end, &f);
		if (r)
			return r;
		f.type = child_type(f.parent, f.number);
		if (f.type && f.wire != PB_BYTES)
			return cursor_fail(c, EIO, "field %u is a message but has wire type %u", f.number,
				(unsigned)f.wire);
		r = visit(arg, &f, e);
		if (r)
			return r;
		if (f.type) {
			if (depth == LIMIT_PROTOBUF_DEPTH)
				return cursor_fail(c, EIO, "messages nest deeper than %d", LIMIT_PROTOBUF_DEPTH);
			stack[++depth] = (struct level){f.type, f.pos + f.size};
		} else if (f.wire == PB_BYTES) {
			cursor_skip(c, f.size);
			if (cursor_failed(c))
				return c->failed;
		}
	}
}

int pb_walk(struct source *src, uint64_t offset, uint64_t size, const struct pb_type *type, pb_visit *visit,
	void *arg, struct error *e)
{
	struct cursor c;
	int r;

	cursor_init(&c, src, offset, size, e);
	r = cursor_failed(&c) ? c.failed : walk(&c, type, visit, arg, e);
	cursor_release(&c);
	return r;
}
