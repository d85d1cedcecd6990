/* SPDX-License-Identifier: MIT */
/* The parent's side of writing: steps to the child, its ranges and the data to an extent map. */
#include "parsers/container/hdf5_private.h"

#include "parsers/core/cursor.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

bool hdf5_holds(enum dtype d)
{
	/* the library has no portable 16-byte float; parts of bytes have no element size */
	return d == DTYPE_STRING || (d != DTYPE_NONE && d != DTYPE_FLOAT128 && dtype_info(d)->block == 1);
}

static bool is_number(const struct value *v)
{
	return v->kind == VALUE_INT || v->kind == VALUE_FLOAT || v->kind == VALUE_FLOAT32;
}

static bool scalar_holds(const struct value *v)
{
	if (v->kind == VALUE_STRING)
		return !memchr(v->str.ptr ? v->str.ptr : "", '\0', v->str.len);
	if (v->kind == VALUE_BIGINT) /* up to 2^64 - 1; value_uint makes only those */
		return v->str.len && v->str.ptr[0] != '-' &&
		       (v->str.len < 20 || (v->str.len == 20 && memcmp(v->str.ptr, "18446744073709551615", 20) <= 0));
	return v->kind == VALUE_BOOL || is_number(v);
}

bool hdf5_attr_holds(const struct value *v)
{
	if (!v || v->kind != VALUE_LIST)
		return v && scalar_holds(v);
	for (size_t i = 0; i < v->list.count; i++) {
		const struct value *first = v->list.items[0], *x = v->list.items[i];

		if (!scalar_holds(x) || (x->kind != first->kind && !(is_number(x) && is_number(first))))
			return false;
	}
	return true;
}

struct piece {
	uint64_t offset;
	struct extent data;
};

struct result {
	struct source *reply;
	uint64_t size;
	struct piece *pieces;
	size_t count;
};

static int malformed(struct cursor *c)
{
	return cursor_fail(c, EIO, "answer about the changed file is malformed");
}

static bool lies_inside(const struct result *x, uint64_t offset, uint64_t size)
{
	return offset <= x->size && size <= x->size - offset;
}

static int take_offsets(struct result *x, struct cursor *c, const struct hdf5_step *steps, size_t count)
{
	if (cursor_u32le(c) != count)
		return malformed(c);
	for (size_t i = 0; i < count; i++) {
		uint64_t at = cursor_u64le(c);

		if (at == UINT64_MAX || cursor_failed(c))
			continue;
		if (steps[i].kind != HDF5_MAKE || !lies_inside(x, at, steps[i].data.size))
			return malformed(c);
		x->pieces[x->count++] = (struct piece){at, steps[i].data};
	}
	return cursor_failed(c);
}

static int take_ranges(struct result *x, struct cursor *c, size_t room)
{
	uint64_t n = cursor_u64le(c);
	struct piece *grown;

	if (n > cursor_left(c) / 16)
		return malformed(c);
	grown = reallocarray(x->pieces, x->count + room + (size_t)n + 1, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	x->pieces = grown;
	for (uint64_t i = 0; i < n; i++) {
		uint64_t at = cursor_u64le(c), size = cursor_u64le(c);

		if (cursor_failed(c) || !lies_inside(x, at, size) || size > cursor_left(c))
			return malformed(c);
		x->pieces[x->count++] = (struct piece){at, extent_source(x->reply, c->pos, size)};
		cursor_skip(c, size);
	}
	return cursor_left(c) ? malformed(c) : cursor_failed(c);
}

static int by_offset(const void *px, const void *py)
{
	const struct piece *x = px, *y = py;

	return (x->offset > y->offset) - (x->offset < y->offset);
}

static void append_old(struct extmap *out, const struct extent *content, uint64_t from, uint64_t to)
{
	uint64_t have = content && content->size > from ? content->size - from : 0;

	if (have > to - from)
		have = to - from;
	if (have) {
		struct extent x = extent_slice(*content, from, have);

		extmap_append(out, &x);
	}
	if (have < to - from)
		extmap_append_zero(out, to - from - have);
}

/* Pieces over the old content. */
static int compose(struct result *x, const struct extent *content, struct extmap *out, struct error *e)
{
	uint64_t at = 0;

	if (x->count)
		qsort(x->pieces, x->count, sizeof(*x->pieces), by_offset);
	for (size_t i = 0; i < x->count; i++) {
		const struct piece *p = &x->pieces[i];

		if (!p->data.size)
			continue;
		if (p->offset < at)
			return error_set(e, EIO, "changes overlap at byte %" PRIu64, p->offset);
		append_old(out, content, at, p->offset);
		extmap_append(out, &p->data);
		at = p->offset + p->data.size;
	}
	append_old(out, content, at, x->size);
	return extmap_failed(out, e);
}

static int take_reply(struct result *x, const struct hdf5_step *steps, size_t count, size_t room, struct error *e)
{
	struct cursor c;
	int r;

	x->pieces = calloc(count + room + 1, sizeof(*x->pieces));
	if (!x->pieces)
		return error_set(e, ENOMEM, "out of memory for changes");
	cursor_init(&c, x->reply, 0, source_size(x->reply), e);
	x->size = cursor_u64le(&c);
	r = take_offsets(x, &c, steps, count);
	if (!r)
		r = take_ranges(x, &c, room);
	cursor_release(&c);
	return r == -ENOMEM ? error_set(e, ENOMEM, "out of memory for changes") : r;
}

int hdf5_change(const struct extent *content, struct source *src, const struct hdf5_step *steps, size_t step_count,
	const struct hdf5_patch *patches, size_t patch_count, struct extmap *out, struct error *e)
{
	struct hdf5_change_work work = {.create = !content, .steps = steps, .count = step_count};
	struct result x = {.size = content ? content->size : 0};
	int r = 0;

	work.store.content = content ? *content : extent_zero(0);
	if (step_count || !content) {
		r = child_run("libhdf5", src, hdf5_change_work, &work, &x.reply, e);
		if (!r)
			r = take_reply(&x, steps, step_count, patch_count, e);
	} else {
		x.pieces = calloc(patch_count + 1, sizeof(*x.pieces));
		r = x.pieces ? 0 : error_set(e, ENOMEM, "out of memory for changes");
	}
	for (size_t i = 0; !r && i < patch_count; i++) {
		if (!lies_inside(&x, patches[i].offset, patches[i].data.size))
			r = error_set(e, EIO, "data at byte %" PRIu64 " lie outside the file", patches[i].offset);
		x.pieces[x.count++] = (struct piece){patches[i].offset, patches[i].data};
	}
	if (!r)
		r = compose(&x, content, out, e);
	free(x.pieces);
	source_unref(x.reply);
	return r;
}
