/* SPDX-License-Identifier: MIT */
#include "views/elements.h"

#include "parsers/codec/convert.h"

#include <errno.h>
#include <math.h>

bool elements_can(const struct tensor *t)
{
	return t->dtype != DTYPE_STRING && (t->dtype != DTYPE_NONE || t->real);
}

int elements_open(struct elements *el, const struct tensor *t, struct error *e)
{
	struct codec *codec;
	int r = 0;

	*el = (struct elements){.x = extent_zero(0), .type = DTYPE_FLOAT32};
	if (t->dtype != DTYPE_NONE)
		el->type = dtype_info(t->dtype)->npy;
	el->size = dtype_info(el->type)->block_bytes;
	el->parts = dtype_info(el->type)->kind == KIND_COMPLEX ? 2 : 1;
	if (t->problem.len)
		return error_set(e, EIO, "%.*s", STR_ARG(t->problem));
	if (t->dtype == DTYPE_NONE) {
		r = t->real(t, &el->x, e);
	} else if (el->type == t->dtype && !(t->flags & TENSOR_BIG_ENDIAN)) {
		el->x = t->data;
		extent_ref(&el->x);
	} else {
		codec = codec_decode(&t->data, t->dtype, t->flags & TENSOR_BIG_ENDIAN, t->count);
		if (!codec)
			return error_set(e, ENOMEM, "out of memory for elements");
		el->x = extent_codec(codec);
	}
	return r;
}

void elements_close(struct elements *el)
{
	extent_unref(&el->x);
	el->x = extent_zero(0);
}

/* x87 extended precision: 64 bits of significand, 15 of exponent, sign */
static double from_extended(const unsigned char *p)
{
	uint64_t fraction;
	unsigned exponent = (unsigned)p[8] | (unsigned)(p[9] & 0x7f) << 8;
	double sign = p[9] & 0x80 ? -1 : 1;

	memcpy(&fraction, p, 8);
	if (exponent == 0x7fff)
		return fraction << 1 ? (double)NAN : sign * (double)INFINITY;
	return sign * ldexp((double)fraction, (int)exponent - 16383 - 63);
}

/* one loop for each type, so that the compiler can use vectors */
#define LOOP(type)                                                                                 \
	do {                                                                                       \
		const type *p = raw;                                                               \
		for (uint32_t i = 0; i < n; i++)                                                   \
			v[i] = (double)p[i];                                                       \
	} while (0)

static int to_doubles(enum dtype type, const void *raw, uint32_t n, double *v)
{
	uint64_t bad;

	switch (type) {
	case DTYPE_BOOL:
	case DTYPE_UINT8:
		LOOP(uint8_t);
		return 0;
	case DTYPE_INT8:
		LOOP(int8_t);
		return 0;
	case DTYPE_INT16:
		LOOP(int16_t);
		return 0;
	case DTYPE_INT32:
		LOOP(int32_t);
		return 0;
	case DTYPE_INT64:
		LOOP(int64_t);
		return 0;
	case DTYPE_UINT16:
		LOOP(uint16_t);
		return 0;
	case DTYPE_UINT32:
		LOOP(uint32_t);
		return 0;
	case DTYPE_UINT64:
		LOOP(uint64_t);
		return 0;
	case DTYPE_FLOAT32:
	case DTYPE_COMPLEX64:
		LOOP(float);
		return 0;
	case DTYPE_FLOAT64:
	case DTYPE_COMPLEX128:
		LOOP(double);
		return 0;
	case DTYPE_FLOAT128:
		for (uint32_t i = 0; i < n; i++)
			v[i] = from_extended((const unsigned char *)raw + 16 * (size_t)i);
		return 0;
	default:
		return dtype_encode(DTYPE_FLOAT64, type, raw, n, v, &bad);
	}
}

int elements_read(const struct elements *el, uint64_t first, uint32_t n, void *raw, double *v,
	struct error *e)
{
	int r = extent_read(&el->x, first * el->size, raw, (size_t)n * el->size, e);

	if (!r && v && to_doubles(el->type, raw, n * el->parts, v) < 0)
		r = error_set(e, EIO, "values of dtype %s cannot be read as numbers",
			dtype_info(el->type)->name);
	return r;
}
