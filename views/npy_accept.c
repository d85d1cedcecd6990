/* SPDX-License-Identifier: MIT */
/*
 * A .npy that a user wrote -> an edit. Byte order and Fortran order are undone, and the dtype decides:
 *
 *	written dtype                              the tensor gets
 *	as stored                                  these bytes
 *	as shown (float32 for a bfloat16 tensor)   the values cast to the stored type, rounded to nearest even
 *	another, and the format can change it      the written dtype
 *	another, and every value has its equal     the values cast to the stored type
 *
 * Overflow, NaN without a place, and fractions in integers are refused, never clamped. Casts are checked here,
 * in one pass with bounded memory, so that close(2) tells; the edit itself is a codec over the written file.
 */
#include "views/npy.h"

#include "parsers/codec/convert.h"
#include "parsers/container/npy.h"
#include "parsers/core/check.h"
#include "parsers/core/codec.h"
#include "parsers/core/limits.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* a multiple of every block length */
#define CHUNK 4096

/* The content on its way from the written file to the stored form; codecs are released with the arena. */
struct pipe {
	struct extent x;
	struct arena *a;
};

static void release_codec(void *c)
{
	codec_unref(c);
}

static int pipe_codec(struct pipe *p, struct codec *c, struct error *e)
{
	if (!c || arena_defer(p->a, release_codec, c) < 0)
		return error_set(e, ENOMEM, "out of memory for a tensor");
	p->x = extent_codec(c);
	return 0;
}

static void shape_text(char *out, size_t cap, const uint64_t *shape, uint32_t rank)
{
	size_t n = 0;

	out[0] = '\0';
	for (uint32_t i = 0; i < rank && n + 24 < cap; i++)
		n += (size_t)snprintf(out + n, cap - n, "%s%" PRIu64, i ? ", " : "", shape[i]);
}

static bool same_shape(const struct tensor *t, const struct npy *h)
{
	return t->rank == h->rank &&
	       (h->rank == 0 || memcmp(t->shape, h->shape, h->rank * sizeof(*h->shape)) == 0);
}

static int check_shape(const struct model *m, const struct tensor *t, const struct npy *h,
	struct error *e)
{
	char expected[160], actual[160];

	if (!t || same_shape(t, h) || m->format->can & CAN_RESHAPE)
		return 0;
	shape_text(expected, sizeof(expected), t->shape, t->rank);
	shape_text(actual, sizeof(actual), h->shape, h->rank);
	return error_set(e, EINVAL, "shape of '%.*s': expected (%s), got (%s)", STR_ARG(t->name),
		expected, actual);
}

/* Where the elements lie, in C order. */
static int pipe_open(struct pipe *p, struct extmap *content, const struct npy *h, struct error *e)
{
	int64_t strides[LIMIT_RANK], stride = 1;
	uint64_t size;

	if (ckd_mul(&size, h->count, (uint64_t)h->itemsize) ||
		size != content->size - h->data_offset)
		return error_set(e, EINVAL,
			"%" PRIu64 " bytes of elements written, shape and dtype %s need %" PRIu64,
			content->size - h->data_offset, h->descr, size);
	p->x = extent_slice(extent_map(content), h->data_offset, size);
	if (!h->fortran || h->rank < 2 || h->count < 2)
		return 0;
	for (uint32_t i = 0; i < h->rank; i++) {
		strides[i] = stride;
		stride *= (int64_t)h->shape[i]; /* count fits 63 bits and has no zero */
	}
	return pipe_codec(p, codec_gather(&p->x, h->itemsize, h->rank, h->shape, strides, 0), e);
}

/* ---- casts ---- */

static bool both_nan(enum dtype d, const void *a, const void *b)
{
	float f[2];
	double g[2];

	if (d == DTYPE_FLOAT64) {
		memcpy(&g[0], a, sizeof(*g));
		memcpy(&g[1], b, sizeof(*g));
		return isnan(g[0]) && isnan(g[1]);
	}
	if (d != DTYPE_FLOAT32)
		return false;
	memcpy(&f[0], a, sizeof(*f));
	memcpy(&f[1], b, sizeof(*f));
	return isnan(f[0]) && isnan(f[1]);
}

/* The first element that does not come back equal from the stored type; count = all do. */
static uint64_t first_inexact(enum dtype from, enum dtype to, const unsigned char *in,
	const void *stored, uint64_t count, unsigned char *shown, unsigned char *back)
{
	size_t size = dtype_info(from)->block_bytes;
	uint64_t bad = 0;

	dtype_decode(to, stored, count, shown);
	if (dtype_encode(from, dtype_info(to)->npy, shown, count, back, &bad) < 0)
		return bad;
	for (uint64_t i = 0; i < count; i++)
		if (memcmp(in + i * size, back + i * size, size) != 0 &&
			!both_nan(from, in + i * size, back + i * size))
			return i;
	return count;
}

struct cast {
	enum dtype from, to;
	bool exact;
	struct str name;
};

static int check_chunk(const struct cast *c, unsigned char *const buf[4], uint64_t at, uint64_t n,
	struct error *e)
{
	uint64_t bad = 0;

	if (dtype_encode(c->to, c->from, buf[0], n, buf[1], &bad) < 0)
		return error_set(e, EINVAL, "element %" PRIu64 " of '%.*s' does not fit dtype %s",
			at + bad, STR_ARG(c->name), dtype_name(c->to));
	if (!c->exact)
		return 0;
	bad = first_inexact(c->from, c->to, buf[0], buf[1], n, buf[2], buf[3]);
	if (bad == n)
		return 0;
	return error_set(e, EINVAL,
		"dtype of '%.*s': expected %s, got %s, and element %" PRIu64 " is not exact in it",
		STR_ARG(c->name), dtype_name(c->to), dtype_name(c->from), at + bad);
}

static int check_cast(const struct cast *c, const struct extent *x, uint64_t count, struct error *e)
{
	size_t size = dtype_info(c->from)->block_bytes;
	unsigned char *buf[4] = {malloc(CHUNK * 16), malloc(CHUNK * 16), malloc(CHUNK * 16),
		malloc(CHUNK * 16)};
	int r = 0;

	if (!buf[0] || !buf[1] || !buf[2] || !buf[3])
		r = error_set(e, ENOMEM, "out of memory for a cast");
	for (uint64_t at = 0; !r && at < count; at += CHUNK) {
		uint64_t n = count - at < CHUNK ? count - at : CHUNK;

		r = extent_read(x, at * size, buf[0], (size_t)n * size, e);
		if (!r)
			r = check_chunk(c, buf, at, n, e);
	}
	for (int i = 0; i < 4; i++)
		free(buf[i]);
	return r;
}

static bool is_ordinary(enum dtype d)
{
	return dtype_info(d)->npy == d && dtype_info(d)->kind != KIND_OPAQUE &&
	       d != DTYPE_STRING;
}

/* Whether the tensor may take the written dtype. */
static bool can_retype(const struct model *m, const struct tensor *t, const struct edit *x)
{
	const struct format *f = m->format;

	if (t->problem.len || !(f->can & CAN_RETYPE) || (f->holds && !f->holds(x->dtype)))
		return false;
	return !f->check_edit || f->check_edit(m, x, NULL) == 0;
}

static int choose_dtype(const struct model *m, const struct tensor *t, const struct npy *h,
	struct edit *out, bool *exact, struct error *e)
{
	*exact = false;
	if (!t) {
		if (m->format->holds && !m->format->holds(h->dtype))
			return error_set(e, EINVAL, "%s has no dtype %s", m->format->title,
				dtype_name(h->dtype));
		out->dtype = h->dtype;
		return 0;
	}
	out->dtype = h->dtype;
	if (h->dtype == t->dtype)
		return 0;
	if (t->dtype != DTYPE_NONE && h->dtype == dtype_info(t->dtype)->npy) {
		out->dtype = t->dtype;
		return 0;
	}
	if (can_retype(m, t, out))
		return 0;
	out->dtype = t->dtype;
	*exact = true;
	if (t->dtype == DTYPE_NONE || t->dtype == DTYPE_STRING || !is_ordinary(h->dtype))
		return error_set(e, EINVAL, "dtype of '%.*s': expected %s, got %s", STR_ARG(t->name),
			t->stored_type && t->dtype == DTYPE_NONE ? t->stored_type
								 : dtype_name(t->dtype),
			dtype_name(h->dtype));
	return 0;
}

static int accept_numbers(const struct model *m, const struct tensor *t, const struct npy *h,
	struct pipe *p, struct edit *out, struct error *e)
{
	bool exact, big = t && t->flags & TENSOR_BIG_ENDIAN && dtype_info(t->dtype)->swap > 1;
	bool written_big = h->big_endian && dtype_info(h->dtype)->swap > 1;
	int r;

	out->data = p->x; /* for the format's own check */
	r = choose_dtype(m, t, h, out, &exact, e);
	if (r < 0)
		return r;
	/* a tensor keeps its byte order, whatever the new type */
	if (out->dtype == h->dtype)
		return written_big == (t && t->flags & TENSOR_BIG_ENDIAN &&
					      dtype_info(h->dtype)->swap > 1)
			       ? 0
			       : pipe_codec(p, codec_swap(&p->x, h->dtype), e);
	if (written_big && (r = pipe_codec(p, codec_swap(&p->x, h->dtype), e)) < 0)
		return r;
	r = check_cast(&(struct cast){h->dtype, out->dtype, exact, t->name}, &p->x, h->count, e);
	if (!r)
		r = pipe_codec(p, codec_encode(&p->x, h->dtype, out->dtype, h->count), e);
	if (!r && big)
		r = pipe_codec(p, codec_swap(&p->x, out->dtype), e);
	return r;
}

/* Bits as -o npy=bits shows them: the stored type, not a cast. */
static bool is_bits(const struct tensor *t, const struct npy *h)
{
	const char *bits = t ? dtype_info(t->dtype)->descr_bits : NULL;

	/* void types have no byte order: "<V2" and "|V2" are one */
	return bits && h->dtype == DTYPE_NONE && strcmp(bits + 1, h->descr + 1) == 0;
}

static int accept_bits(const struct tensor *t, const struct npy *h, struct pipe *p, struct edit *out,
	struct error *e)
{
	out->dtype = t->dtype;
	if (dtype_info(t->dtype)->block > 1)
		return pipe_codec(p, codec_pack_bits(&p->x, t->dtype, h->count), e);
	if (t->flags & TENSOR_BIG_ENDIAN && dtype_info(t->dtype)->swap > 1)
		return pipe_codec(p, codec_swap(&p->x, t->dtype), e);
	return 0;
}

/* ---- strings ---- */

static int put_utf8(char *out, size_t *len, uint32_t u)
{
	if (u > 0x10ffff || (u >= 0xd800 && u < 0xe000))
		return -EINVAL;
	if (u < 0x80) {
		out[(*len)++] = (char)u;
		return 0;
	}
	if (u >= 0x10000)
		out[(*len)++] = (char)(0xf0 | u >> 18);
	else if (u >= 0x800)
		out[(*len)++] = (char)(0xe0 | u >> 12);
	else
		out[(*len)++] = (char)(0xc0 | u >> 6);
	if (u >= 0x10000)
		out[(*len)++] = (char)(0x80 | (u >> 12 & 0x3f));
	if (u >= 0x800)
		out[(*len)++] = (char)(0x80 | (u >> 6 & 0x3f));
	out[(*len)++] = (char)(0x80 | (u & 0x3f));
	return 0;
}

/* One element without NumPy's NUL padding; text has room for itemsize bytes. */
static int string_of(const unsigned char *item, const struct npy *h, char *text, size_t *len)
{
	uint32_t n = h->itemsize;

	*len = 0;
	if (h->bytes) {
		while (n && !item[n - 1])
			n--;
		if (n)
			memcpy(text, item, n);
		*len = n;
		return 0;
	}
	while (n && !item[n - 1] && !item[n - 2] && !item[n - 3] && !item[n - 4])
		n -= 4;
	for (uint32_t i = 0; i < n; i += 4) {
		uint32_t u = 0;

		for (uint32_t b = 0; b < 4; b++)
			u |= (uint32_t)item[i + b] << 8 * (h->big_endian ? 3 - b : b);
		if (put_utf8(text, len, u) < 0)
			return -EINVAL;
	}
	return 0;
}

static int accept_strings(const struct model *m, const struct tensor *t, const struct npy *h,
	const struct pipe *p, struct edit *out, struct error *e)
{
	unsigned char *item;
	char *text;
	int r = 0;

	if (t && t->dtype != DTYPE_STRING)
		return error_set(e, EINVAL, "dtype of '%.*s': expected %s, got strings",
			STR_ARG(t->name), dtype_name(t->dtype));
	if (!t && m->format->holds && !m->format->holds(DTYPE_STRING))
		return error_set(e, EINVAL, "%s has no strings", m->format->title);
	out->dtype = DTYPE_STRING;
	out->strings = arena_array(p->a, (size_t)h->count, sizeof(*out->strings));
	item = malloc((size_t)h->itemsize + 1);
	text = malloc((size_t)h->itemsize + 1);
	if (!out->strings || !item || !text)
		r = error_set(e, ENOMEM, "out of memory for %" PRIu64 " strings", h->count);
	for (uint64_t i = 0; !r && i < h->count; i++) {
		size_t len = 0;

		r = extent_read(&p->x, i * h->itemsize, item, h->itemsize, e);
		if (!r && string_of(item, h, text, &len) < 0)
			r = error_set(e, EINVAL, "string %" PRIu64 " holds no Unicode", i);
		if (r < 0)
			break;
		out->strings[i] = arena_str(p->a, text, len);
		if (!out->strings[i].ptr)
			r = error_set(e, ENOMEM, "out of memory for strings");
	}
	free(item);
	free(text);
	return r;
}

int npy_accept(const struct view_context *cx, const struct subject *s, struct extmap *content,
	struct arena *a, struct edit *out, struct error *e)
{
	const struct model *m = cx->model;
	const struct tensor *t = s->index == MODEL_NONE ? NULL : &m->tensors[s->index];
	struct pipe p = {.a = a};
	struct npy h;
	int r = npy_read(content, 0, content->size, &h, e);

	if (r < 0)
		return r;
	r = check_shape(m, t, &h, e);
	if (r < 0)
		return r;
	r = pipe_open(&p, content, &h, e);
	if (r < 0)
		return r;
	out->kind = t ? EDIT_TENSOR : EDIT_ADD;
	out->id = t ? t->id : 0;
	out->rank = h.rank;
	memcpy(out->shape, h.shape, h.rank * sizeof(*h.shape));
	if (is_bits(t, &h))
		r = accept_bits(t, &h, &p, out, e);
	else if (h.dtype == DTYPE_STRING)
		r = accept_strings(m, t, &h, &p, out, e);
	else if (h.dtype == DTYPE_NONE)
		r = error_set(e, EINVAL, "dtype %s has no place in a model", h.descr);
	else
		r = accept_numbers(m, t, &h, &p, out, e);
	out->data = h.dtype == DTYPE_STRING ? extent_zero(0) : p.x;
	return r;
}
