/* SPDX-License-Identifier: MIT */
/*
 * tensors/NAME.npy: a header, then the elements in C order. Types that NumPy has are the file's own bytes
 * (big-endian ones are declared as such); others are widened exactly, or shown as bits in ml_dtypes' spelling
 * (-o npy=bits). Block-quantised tensors are dequantised (others that could be, with -o npy=real). What a
 * user writes is judged in npy_accept.c.
 */
#include "views/npy.h"

#include "parsers/codec/convert.h"
#include "parsers/container/npy.h"
#include "parsers/core/check.h"
#include "parsers/core/codec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum shape_of_data { PLAIN, DECODED, BITS, UNPACKED, REAL, TEXT, BYTES };

struct plan_of_npy {
	enum shape_of_data how;
	char descr[24];
	uint32_t itemsize;
	uint64_t size; /* of the data */
};

static bool is_real(const struct view_context *cx, const struct tensor *t)
{
	return t->real && (t->dtype == DTYPE_NONE || cx->options.npy_real);
}

/* strings: the longest in code points and bytes, at least 1, as NumPy has no empty type */
static void measure_strings(const struct tensor *t, struct plan_of_npy *p)
{
	size_t points = 1, bytes = 1;
	bool utf8 = true;

	for (uint64_t i = 0; t->strings && i < t->count; i++) {
		struct str s = t->strings[i];
		size_t n = 0;

		for (size_t k = 0; k < s.len; k++)
			n += ((unsigned char)s.ptr[k] & 0xc0) != 0x80;
		points = n > points ? n : points;
		bytes = s.len > bytes ? s.len : bytes;
		utf8 = utf8 && str_is_utf8(s);
	}
	p->how = utf8 ? TEXT : BYTES;
	p->itemsize = (uint32_t)(utf8 ? 4 * points : bytes);
	snprintf(p->descr, sizeof(p->descr), utf8 ? "<U%zu" : "|S%zu", utf8 ? points : bytes);
}

static int npy_plan(const struct view_context *cx, const struct tensor *t, struct plan_of_npy *p)
{
	const struct dtype_info *info = dtype_info(t->dtype);
	const char *descr = info->descr;

	if (is_real(cx, t)) {
		p->how = REAL;
		descr = dtype_info(DTYPE_FLOAT32)->descr;
		p->itemsize = 4;
	} else if (t->dtype == DTYPE_STRING) {
		measure_strings(t, p);
		descr = p->descr;
	} else if (cx->options.npy_bits && info->descr_bits) {
		p->how = info->block > 1 ? UNPACKED : BITS;
		descr = info->descr_bits;
		p->itemsize = info->block > 1 ? 1 : info->block_bytes;
	} else {
		p->how = info->npy == t->dtype ? PLAIN : DECODED;
		p->itemsize = dtype_info(info->npy)->block_bytes;
	}
	if (descr != p->descr)
		snprintf(p->descr, sizeof(p->descr), "%s", descr);
	if (p->how == PLAIN && t->flags & TENSOR_BIG_ENDIAN && p->descr[0] == '<')
		p->descr[0] = '>';
	return ckd_mul(&p->size, t->count, (uint64_t)p->itemsize) ? -EOVERFLOW : 0;
}

static bool npy_exists(const struct view_context *cx, const struct subject *s)
{
	const struct tensor *t = &cx->model->tensors[s->index];

	return t->dtype != DTYPE_NONE || t->real;
}

static int npy_size(const struct view_context *cx, const struct subject *s, uint64_t *size)
{
	const struct tensor *t = &cx->model->tensors[s->index];
	struct plan_of_npy p;
	int r = npy_plan(cx, t, &p);

	if (r < 0)
		return r;
	return ckd_add(size, p.size, npy_header_size(p.descr, false, t->rank, t->shape)) ? -EOVERFLOW
											: 0;
}

/* ---- strings ---- */

struct texts {
	struct codec base;
	const struct tensor *tensor;
	uint32_t itemsize;
	bool wide; /* UTF-32, else bytes */
};

static void put_wide(struct str s, uint32_t itemsize, unsigned char *out)
{
	size_t at = 0;

	memset(out, 0, itemsize);
	for (size_t i = 0; i < s.len && at + 4 <= itemsize; at += 4) {
		unsigned char c = (unsigned char)s.ptr[i];
		unsigned more = c < 0x80 ? 0 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
		uint32_t u = more == 0 ? c : c & (0x3fu >> more);

		for (i++; more && i < s.len; more--)
			u = u << 6 | ((unsigned char)s.ptr[i++] & 0x3f);
		for (int b = 0; b < 4; b++)
			out[at + (size_t)b] = (unsigned char)(u >> 8 * b);
	}
}

static int texts_read(struct codec *base, uint64_t offset, void *buf, size_t len, struct error *e)
{
	struct texts *c = (struct texts *)base;
	unsigned char *item = malloc(c->itemsize), *to = buf;

	if (!item)
		return error_set(e, ENOMEM, "out of memory for strings");
	while (len) {
		struct str s = c->tensor->strings[offset / c->itemsize];
		size_t skip = (size_t)(offset % c->itemsize), n = c->itemsize - skip;

		if (n > len)
			n = len;
		if (c->wide) {
			put_wide(s, c->itemsize, item);
		} else {
			memset(item, 0, c->itemsize);
			if (s.len)
				memcpy(item, s.ptr, s.len < c->itemsize ? s.len : c->itemsize);
		}
		memcpy(to, item + skip, n);
		to += n;
		offset += n;
		len -= n;
	}
	free(item);
	return 0;
}

static void texts_free(struct codec *base)
{
	free(base);
}

static const struct codec_ops texts_ops = {
	.name = "strings", .read = texts_read, .free = texts_free};

static struct codec *codec_texts(const struct tensor *t, const struct plan_of_npy *p)
{
	struct texts *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	codec_init(&c->base, &texts_ops, t->strings ? p->size : 0);
	c->tensor = t;
	c->itemsize = p->itemsize;
	c->wide = p->how == TEXT;
	return &c->base;
}

/* ---- the file ---- */

static int append_data(const struct tensor *t, const struct plan_of_npy *p, struct extmap *out,
	struct error *e)
{
	bool big = t->flags & TENSOR_BIG_ENDIAN;
	struct codec *codec = NULL;
	struct extent x;
	int r;

	if (t->problem.len)
		return tensor_unreadable(t, p->size, out, e);
	if (p->how == REAL) {
		r = t->real(t, &x, e);
		if (r < 0)
			return r;
		extmap_append(out, &x);
		extent_unref(&x);
		return extmap_failed(out, e);
	}
	if (p->how == PLAIN ||
		(p->how == BITS && !(big && dtype_info(t->dtype)->swap > 1))) {
		extmap_append(out, &t->data);
		return extmap_failed(out, e);
	}
	if (p->how == BITS)
		codec = codec_swap(&t->data, t->dtype);
	else if (p->how == UNPACKED)
		codec = codec_unpack_bits(&t->data, t->dtype, t->count);
	else if (p->how == DECODED)
		codec = codec_decode(&t->data, t->dtype, big, t->count);
	else
		codec = codec_texts(t, p);
	if (!codec)
		return error_set(e, ENOMEM, "out of memory for a tensor's view");
	x = extent_codec(codec);
	extmap_append(out, &x);
	codec_unref(codec);
	return extmap_failed(out, e);
}

static int npy_render(const struct view_context *cx, const struct subject *s, struct extmap *out,
	struct error *e)
{
	const struct tensor *t = &cx->model->tensors[s->index];
	struct plan_of_npy p;

	if (npy_plan(cx, t, &p) < 0)
		return error_set(e, EOVERFLOW, "size of '%.*s' does not fit 63 bits", STR_ARG(t->name));
	npy_append_header(out, p.descr, false, t->rank, t->shape);
	return append_data(t, &p, out, e);
}

const struct view view_npy = {
	.name = "tensors",
	.subject = SUBJECT_TENSOR,
	.path = "tensors",
	.suffix = ".npy",
	.exists = npy_exists,
	.render = npy_render,
	.size = npy_size,
	.accept = npy_accept,
	.can_create = true,
};
