/* SPDX-License-Identifier: MIT */
/* The parent's side: the child's records, checked. Nothing here calls libhdf5. */
#include "parsers/container/hdf5_private.h"

#include "parsers/codec/hdf5_chunks.h"
#include "parsers/core/check.h"
#include "parsers/core/codec.h"
#include "parsers/core/cursor.h"
#include "parsers/core/limits.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define WHAT "libhdf5"

bool hdf5_is(const struct extent *content)
{
	uint64_t at = 0;
	char head[8];

	while (content->size >= 8 && at <= content->size - 8) {
		if (extent_read(content, at, head, sizeof(head), NULL) < 0)
			return false;
		if (memcmp(head, "\x89HDF\r\n\x1a\n", 8) == 0)
			return true;
		at = at ? at * 2 : 512;
	}
	return false;
}

struct reader {
	struct cursor c;
	struct arena *a;
	struct hdf5_file *out;
	size_t cap;
	size_t *attr_caps;
	const struct extent *content;
};

static struct str take_str(struct reader *x)
{
	return cursor_str(&x->c, x->a, cursor_u32le(&x->c));
}

static int malformed(struct reader *x, const char *what)
{
	return cursor_fail(&x->c, EIO, "answer about the file is malformed: %s", what);
}

static void *grow(struct reader *x, void *old, size_t count, size_t *cap, size_t size)
{
	size_t wanted = *cap ? *cap * 2 : 8;
	void *p;

	if (count < *cap)
		return old;
	p = arena_array(x->a, wanted, size);
	if (p && count)
		memcpy(p, old, count * size);
	if (p)
		*cap = wanted;
	return p;
}

/* ---- attributes ---- */

static struct value *take_item(struct reader *x, uint8_t kind)
{
	uint64_t bits;
	int64_t i;
	double d;

	if (kind == ATTR_STRINGS)
		return value_str(x->a, take_str(x));
	bits = cursor_u64le(&x->c);
	memcpy(&i, &bits, sizeof(i));
	memcpy(&d, &bits, sizeof(d));
	switch (kind) {
	case ATTR_INTS:
		return value_int(x->a, i);
	case ATTR_UINTS:
		return value_uint(x->a, bits);
	case ATTR_FLOATS:
		return value_float(x->a, d);
	case ATTR_BOOLS:
		return value_bool(x->a, bits != 0);
	default:
		malformed(x, "attribute");
		return NULL;
	}
}

static struct value *take_value(struct reader *x, uint8_t kind, bool scalar, uint64_t count)
{
	struct value *list;

	if (kind == ATTR_NONE)
		return NULL;
	if (scalar && count == 1)
		return take_item(x, kind);
	if (count > cursor_left(&x->c) / 4) {
		malformed(x, "attribute's length");
		return NULL;
	}
	list = value_list(x->a);
	for (uint64_t i = 0; i < count && !cursor_failed(&x->c); i++)
		if (value_append(x->a, list, take_item(x, kind)) < 0)
			return NULL;
	return list;
}

static int take_attr(struct reader *x, size_t *cap)
{
	struct hdf5_object *o = &x->out->objects[x->out->count - 1];
	struct hdf5_attr *attrs = grow(x, o->attrs, o->attr_count, cap, sizeof(*attrs));
	struct hdf5_attr *attr;
	uint8_t kind;
	bool scalar;

	if (!attrs)
		return -ENOMEM;
	o->attrs = attrs;
	attr = &attrs[o->attr_count++];
	attr->name = take_str(x);
	attr->type = take_str(x);
	kind = cursor_u8(&x->c);
	scalar = cursor_u8(&x->c);
	attr->value = take_value(x, kind, scalar, cursor_u64le(&x->c));
	return cursor_failed(&x->c);
}

/* ---- datasets ---- */

static bool lies_inside(const struct reader *x, uint64_t offset, uint64_t size)
{
	return offset <= x->content->size && size <= x->content->size - offset;
}

__attribute__((format(printf, 3, 4)))
static void unreadable(struct reader *x, struct hdf5_object *o, const char *format, ...)
{
	char text[160];
	va_list ap;

	o->layout = HDF5_UNREADABLE;
	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	o->problem = arena_str(x->a, text, strlen(text));
}

static int take_chunks(struct reader *x, struct hdf5_object *o)
{
	uint64_t grid = 1, bytes = o->element, next = 0;

	for (uint32_t i = 0; i < o->rank; i++) {
		o->chunk_dims[i] = cursor_u64le(&x->c);
		if (!o->chunk_dims[i] || ckd_mul(&bytes, bytes, o->chunk_dims[i]) ||
			ckd_mul(&grid, grid, (o->dims[i] + o->chunk_dims[i] - 1) / o->chunk_dims[i]))
			return malformed(x, "chunks");
	}
	o->fill = take_str(x);
	o->filter_count = cursor_u32le(&x->c);
	if (o->filter_count > HDF5_FILTERS || (o->fill.len && o->fill.len != o->element) || !o->rank)
		return malformed(x, "filters");
	for (uint32_t i = 0; i < o->filter_count; i++) {
		o->filters[i].id = cursor_u32le(&x->c);
		o->filters[i].flags = cursor_u32le(&x->c);
		o->filters[i].element = cursor_u32le(&x->c);
	}
	o->chunk_count = cursor_u64le(&x->c);
	if (o->chunk_count > cursor_left(&x->c) / 28)
		return malformed(x, "number of chunks");
	o->chunks = arena_array(x->a, o->chunk_count, sizeof(*o->chunks));
	if (!o->chunks)
		return -ENOMEM;
	for (uint64_t i = 0; i < o->chunk_count; i++) {
		struct hdf5_chunk *k = &o->chunks[i];

		k->index = cursor_u64le(&x->c);
		k->offset = cursor_u64le(&x->c);
		k->size = cursor_u64le(&x->c);
		k->skipped = cursor_u32le(&x->c);
		if (cursor_failed(&x->c) || k->index < next || k->index >= grid)
			return malformed(x, "order of chunks");
		next = k->index + 1;
		if (!lies_inside(x, k->offset, k->size) && o->layout != HDF5_UNREADABLE)
			unreadable(x, o, "chunk at %" PRIu64 ", size %" PRIu64 ", lies outside the file", k->offset,
				k->size);
		else if (!o->filter_count && k->size != bytes && o->layout != HDF5_UNREADABLE)
			unreadable(x, o, "chunk has %" PRIu64 " bytes, expected %" PRIu64, k->size, bytes);
	}
	return 0;
}

static int take_strings(struct reader *x, struct hdf5_object *o)
{
	uint64_t count = cursor_u64le(&x->c), want;

	if (count > cursor_left(&x->c) / 4 || shape_count(o->dims, o->rank, &want) < 0 || want != count)
		return malformed(x, "number of strings");
	o->strings = arena_array(x->a, count, sizeof(*o->strings));
	if (!o->strings)
		return -ENOMEM;
	for (uint64_t i = 0; i < count; i++)
		o->strings[i] = take_str(x);
	return cursor_failed(&x->c);
}

static int take_layout(struct reader *x, struct hdf5_object *o)
{
	o->layout = cursor_u8(&x->c);
	switch (o->layout) {
	case HDF5_CONTIGUOUS:
		o->offset = cursor_u64le(&x->c);
		o->size = cursor_u64le(&x->c);
		o->fill = take_str(x);
		if (o->fill.len && o->fill.len != o->element)
			return malformed(x, "fill value");
		if (o->offset != UINT64_MAX && !lies_inside(x, o->offset, o->size))
			unreadable(x, o, "data at %" PRIu64 ", size %" PRIu64 ", lie outside the file", o->offset,
				o->size);
		return cursor_failed(&x->c);
	case HDF5_INLINE:
		o->bytes = take_str(x);
		return cursor_failed(&x->c);
	case HDF5_CHUNKED:
		return take_chunks(x, o);
	case HDF5_STRINGS:
		return take_strings(x, o);
	case HDF5_UNREADABLE:
		o->problem = take_str(x);
		return cursor_failed(&x->c);
	}
	return malformed(x, "layout");
}

static int take_dataset(struct reader *x, struct hdf5_object *o)
{
	uint8_t dtype = cursor_u8(&x->c);
	uint64_t bytes;

	o->big_endian = cursor_u8(&x->c);
	o->element = cursor_u32le(&x->c);
	o->type = take_str(x);
	o->rank = cursor_u32le(&x->c);
	if (dtype >= DTYPE_COUNT || o->rank > HDF5_RANK)
		return malformed(x, "dataset");
	o->dtype = (enum dtype)dtype;
	for (uint32_t i = 0; i < o->rank; i++)
		o->dims[i] = cursor_u64le(&x->c);
	if (o->dtype != DTYPE_STRING && o->dtype != DTYPE_NONE &&
		(dtype_bytes(o->dtype, 1, &bytes) < 0 || bytes != o->element))
		return malformed(x, "element size");
	return cursor_failed(&x->c) ? cursor_failed(&x->c) : take_layout(x, o);
}

static int take_object(struct reader *x)
{
	struct hdf5_object *list = grow(x, x->out->objects, x->out->count, &x->cap, sizeof(*list));
	struct hdf5_object *o;

	if (!list)
		return -ENOMEM;
	x->out->objects = list;
	o = &list[x->out->count++];
	memset(o, 0, sizeof(*o));
	o->kind = cursor_u8(&x->c);
	o->path = take_str(x);
	if (o->kind == HDF5_LINK) {
		o->soft = cursor_u8(&x->c);
		o->target = take_str(x);
	} else if (o->kind == HDF5_DATASET) {
		return take_dataset(x, o);
	} else if (o->kind != HDF5_GROUP) {
		return malformed(x, "object");
	}
	return cursor_failed(&x->c);
}

static int take_records(struct reader *x)
{
	size_t attr_cap = 0;
	int r = 0;

	for (;;) {
		uint8_t kind = cursor_u8(&x->c);

		if (cursor_failed(&x->c))
			return cursor_failed(&x->c);
		if (kind == REC_END)
			return x->out->count && !cursor_left(&x->c) ? 0 : malformed(x, "its end");
		if (kind == REC_FILE) {
			x->out->superblock = cursor_u32le(&x->c);
		} else if (kind == REC_OBJECT) {
			attr_cap = 0;
			r = take_object(x);
		} else if (kind == REC_ATTR && x->out->count) {
			r = take_attr(x, &attr_cap);
		} else {
			r = malformed(x, "record");
		}
		if (r < 0)
			return r;
	}
}

int hdf5_read(const struct extent *content, struct source *src, struct arena *a, struct hdf5_file *out, struct error *e)
{
	struct hdf5_list_work work = {.store = {.content = *content}};
	struct reader x = {.a = a, .out = out, .content = content};
	struct source *reply;
	int r = child_run(WHAT, src, hdf5_list_work, &work, &reply, e);

	memset(out, 0, sizeof(*out));
	if (r < 0)
		return r;
	cursor_init(&x.c, reply, 0, source_size(reply), e);
	r = take_records(&x);
	cursor_release(&x.c);
	source_unref(reply);
	return r == -ENOMEM ? error_set(e, ENOMEM, "out of memory for the file's structure") : r;
}

const struct hdf5_attr *hdf5_attr(const struct hdf5_object *o, const char *name)
{
	for (uint32_t i = 0; i < o->attr_count; i++)
		if (str_is(o->attrs[i].name, name))
			return &o->attrs[i];
	return NULL;
}

/* ---- data ---- */

/* One chunk that is the whole array, as it is. */
static bool is_plain(const struct hdf5_object *o)
{
	if (o->filter_count || o->chunk_count != 1)
		return false;
	for (uint32_t i = 0; i < o->rank; i++)
		if (o->dims[i] != o->chunk_dims[i])
			return false;
	return true;
}

uint64_t hdf5_place(const struct hdf5_object *o)
{
	if (o->layout == HDF5_CHUNKED && is_plain(o))
		return o->chunks[0].offset;
	return o->layout == HDF5_CONTIGUOUS ? o->offset : UINT64_MAX;
}

int hdf5_data(const struct hdf5_object *o, const struct extent *content, struct source *src, struct extent *out,
	struct error *e)
{
	struct codec *c;

	switch (o->layout) {
	case HDF5_CONTIGUOUS:
		if (o->offset != UINT64_MAX) {
			*out = extent_slice(*content, o->offset, o->size);
			extent_ref(out);
			return 0;
		}
		if (!o->fill.len) {
			*out = extent_zero(o->size);
			return 0;
		}
		c = codec_hdf5_fill(o->fill, o->size);
		break;
	case HDF5_INLINE:
		*out = extent_memory(o->bytes.ptr, o->bytes.len);
		return 0;
	case HDF5_CHUNKED:
		if (is_plain(o)) {
			*out = extent_slice(*content, o->chunks[0].offset, o->chunks[0].size);
			extent_ref(out);
			return 0;
		}
		c = codec_hdf5_chunks(o, content, src);
		break;
	default:
		return error_set(e, EIO, "%.*s", STR_ARG(o->problem));
	}
	if (!c)
		return error_set(e, ENOMEM, "out of memory for chunks");
	*out = extent_codec(c);
	return 0;
}

int hdf5_decode_chunk(const struct hdf5_object *o, const struct extent *content, struct source *src,
	const uint64_t *start, const uint64_t *count, void *buf, size_t size, struct error *e)
{
	struct hdf5_chunk_work work = {.store = {.content = *content}, .path = o->path, .rank = o->rank};
	struct source *reply;
	int r;

	memcpy(work.start, start, o->rank * sizeof(*start));
	memcpy(work.count, count, o->rank * sizeof(*count));
	r = child_run(WHAT, src, hdf5_chunk_work, &work, &reply, e);
	if (r < 0)
		return r;
	if (source_size(reply) != size)
		r = error_set(e, EIO, "libhdf5 decodes a chunk to %" PRIu64 " bytes, expected %zu", source_size(reply),
			size);
	else
		r = source_read(reply, 0, buf, size, e);
	source_unref(reply);
	return r;
}
