/* SPDX-License-Identifier: MIT */
/*
 * The table of dtypes and the exact conversions. Small floats are described by their fields (float_layout), so one
 * decoder and one encoder serve all of them. Sources: OCP OFP8 and MX specifications 1.0 (float8, float6, float4,
 * e8m0), ONNX 1.23 float8 page (the FNUZ types), checked against ml_dtypes 0.6.
 */
#include "parsers/core/dtype.h"

#include "parsers/core/check.h"

#include <errno.h>
#include <math.h>

#define D(d) [DTYPE_##d]

static const struct dtype_info table[DTYPE_COUNT] = {
	D(NONE) = {"unknown", KIND_OPAQUE, 1, 1, 1, DTYPE_NONE, "|V1", NULL},
	D(BOOL) = {"bool", KIND_BOOL, 1, 1, 1, DTYPE_BOOL, "|b1", NULL},
	D(INT8) = {"int8", KIND_INT, 1, 1, 1, DTYPE_INT8, "|i1", NULL},
	D(INT16) = {"int16", KIND_INT, 1, 2, 2, DTYPE_INT16, "<i2", NULL},
	D(INT32) = {"int32", KIND_INT, 1, 4, 4, DTYPE_INT32, "<i4", NULL},
	D(INT64) = {"int64", KIND_INT, 1, 8, 8, DTYPE_INT64, "<i8", NULL},
	D(UINT8) = {"uint8", KIND_UINT, 1, 1, 1, DTYPE_UINT8, "|u1", NULL},
	D(UINT16) = {"uint16", KIND_UINT, 1, 2, 2, DTYPE_UINT16, "<u2", NULL},
	D(UINT32) = {"uint32", KIND_UINT, 1, 4, 4, DTYPE_UINT32, "<u4", NULL},
	D(UINT64) = {"uint64", KIND_UINT, 1, 8, 8, DTYPE_UINT64, "<u8", NULL},
	D(FLOAT16) = {"float16", KIND_FLOAT, 1, 2, 2, DTYPE_FLOAT16, "<f2", NULL},
	D(FLOAT32) = {"float32", KIND_FLOAT, 1, 4, 4, DTYPE_FLOAT32, "<f4", NULL},
	D(FLOAT64) = {"float64", KIND_FLOAT, 1, 8, 8, DTYPE_FLOAT64, "<f8", NULL},
	D(FLOAT128) = {"float128", KIND_OPAQUE, 1, 16, 16, DTYPE_FLOAT128, "<f16", NULL},
	D(BFLOAT16) = {"bfloat16", KIND_FLOAT, 1, 2, 2, DTYPE_FLOAT32, "<f4", "<V2"},
	D(COMPLEX32) = {"complex32", KIND_COMPLEX, 1, 4, 2, DTYPE_COMPLEX64, "<c8", "<V4"},
	D(COMPLEX64) = {"complex64", KIND_COMPLEX, 1, 8, 4, DTYPE_COMPLEX64, "<c8", NULL},
	D(COMPLEX128) = {"complex128", KIND_COMPLEX, 1, 16, 8, DTYPE_COMPLEX128, "<c16", NULL},
	D(FLOAT8_E4M3FN) = {"float8_e4m3fn", KIND_FLOAT, 1, 1, 1, DTYPE_FLOAT32, "<f4", "|V1"},
	D(FLOAT8_E4M3FNUZ) = {"float8_e4m3fnuz", KIND_FLOAT, 1, 1, 1, DTYPE_FLOAT32, "<f4", "|V1"},
	D(FLOAT8_E5M2) = {"float8_e5m2", KIND_FLOAT, 1, 1, 1, DTYPE_FLOAT32, "<f4", "|V1"},
	D(FLOAT8_E5M2FNUZ) = {"float8_e5m2fnuz", KIND_FLOAT, 1, 1, 1, DTYPE_FLOAT32, "<f4", "|V1"},
	D(FLOAT8_E8M0FNU) = {"float8_e8m0fnu", KIND_FLOAT, 1, 1, 1, DTYPE_FLOAT32, "<f4", "|V1"},
	D(FLOAT6_E2M3) = {"float6_e2m3fn", KIND_FLOAT, 4, 3, 1, DTYPE_FLOAT32, "<f4", "|V1"},
	D(FLOAT6_E3M2) = {"float6_e3m2fn", KIND_FLOAT, 4, 3, 1, DTYPE_FLOAT32, "<f4", "|V1"},
	D(FLOAT4_E2M1) = {"float4_e2m1fn", KIND_FLOAT, 2, 1, 1, DTYPE_FLOAT32, "<f4", "|V1"},
	D(INT4) = {"int4", KIND_INT, 2, 1, 1, DTYPE_INT8, "|i1", "|V1"},
	D(UINT4) = {"uint4", KIND_UINT, 2, 1, 1, DTYPE_UINT8, "|u1", "|V1"},
	D(INT2) = {"int2", KIND_INT, 4, 1, 1, DTYPE_INT8, "|i1", "|V1"},
	D(UINT2) = {"uint2", KIND_UINT, 4, 1, 1, DTYPE_UINT8, "|u1", "|V1"},
	D(STRING) = {"string", KIND_STRING, 0, 0, 1, DTYPE_STRING, NULL, NULL},
};

/* Fields of a float below 32 bits: sign (none in e8m0), exponent, mantissa. */
enum specials { HAS_INF, NAN_ALL_ONES, NAN_NEGATIVE_ZERO, NO_SPECIALS, NAN_TOP };
struct float_layout {
	uint8_t exponent, mantissa;
	int8_t bias;
	enum specials specials;
};

static const struct float_layout layouts[DTYPE_COUNT] = {
	D(FLOAT16) = {5, 10, 15, HAS_INF},
	D(BFLOAT16) = {8, 7, 127, HAS_INF},
	D(FLOAT8_E4M3FN) = {4, 3, 7, NAN_ALL_ONES},
	D(FLOAT8_E4M3FNUZ) = {4, 3, 8, NAN_NEGATIVE_ZERO},
	D(FLOAT8_E5M2) = {5, 2, 15, HAS_INF},
	D(FLOAT8_E5M2FNUZ) = {5, 2, 16, NAN_NEGATIVE_ZERO},
	D(FLOAT8_E8M0FNU) = {8, 0, 127, NAN_TOP}, /* no sign, no zero: 2^(bits - 127), 255 is NaN */
	D(FLOAT6_E2M3) = {2, 3, 1, NO_SPECIALS},
	D(FLOAT6_E3M2) = {3, 2, 3, NO_SPECIALS},
	D(FLOAT4_E2M1) = {2, 1, 1, NO_SPECIALS},
};

#undef D

const struct dtype_info *dtype_info(enum dtype d)
{
	return (unsigned)d < DTYPE_COUNT ? &table[d] : NULL;
}

enum dtype dtype_by_name(struct str name)
{
	for (unsigned d = 1; d < DTYPE_COUNT; d++)
		if (str_is(name, table[d].name))
			return (enum dtype)d;
	return DTYPE_NONE;
}

int dtype_bytes(enum dtype d, uint64_t count, uint64_t *bytes)
{
	const struct dtype_info *t = &table[d];
	uint64_t rest;

	if (!t->block)
		return -EINVAL;
	rest = count % t->block;
	if (ckd_mul(bytes, count / t->block, (uint64_t)t->block_bytes) ||
		ckd_add(bytes, *bytes, (rest * t->block_bytes + t->block - 1u) / t->block) ||
		*bytes > INT64_MAX)
		return -EOVERFLOW;
	return 0;
}

int shape_count(const uint64_t *shape, uint32_t rank, uint64_t *count)
{
	bool zero = false;

	*count = 1;
	for (uint32_t i = 0; i < rank; i++) {
		zero |= shape[i] == 0;
		if (shape[i] && (ckd_mul(count, *count, shape[i]) || *count > INT64_MAX))
			return -EOVERFLOW;
	}
	if (zero)
		*count = 0;
	return 0;
}

/* ---- single numbers ---- */

static float bits_float(uint32_t u)
{
	float f;

	memcpy(&f, &u, 4);
	return f;
}

/* Every float below 32 bits fits float32 exactly. */
static float small_to_float(enum dtype d, uint32_t bits)
{
	const struct float_layout *l = &layouts[d];
	uint32_t mask = (1u << l->mantissa) - 1, top = (1u << l->exponent) - 1;
	uint32_t m = bits & mask, e = bits >> l->mantissa & top;
	bool negative = l->specials != NAN_TOP && bits >> (l->mantissa + l->exponent) & 1;
	float value;

	if (d == DTYPE_BFLOAT16)
		return bits_float(bits << 16);
	if (l->specials == NAN_TOP)
		return e == top ? NAN : ldexpf(1.0f, (int)e - l->bias);
	if (l->specials == NAN_NEGATIVE_ZERO && negative && e == 0 && m == 0)
		return NAN;
	if (l->specials == NAN_ALL_ONES && e == top && m == mask)
		return negative ? -NAN : NAN;
	if (l->specials == HAS_INF && e == top) {
		if (m == 0)
			return negative ? -INFINITY : INFINITY;
		/* the payload stays, as NumPy widens */
		return bits_float((uint32_t)negative << 31 | 0x7f800000u | m << (23 - l->mantissa));
	}
	value = e ? ldexpf((float)(m | (1u << l->mantissa)), (int)e - l->bias - l->mantissa)
		  : ldexpf((float)m, 1 - l->bias - l->mantissa);
	return negative ? -value : value;
}

/* Largest finite value. */
static double small_max(const struct float_layout *l)
{
	uint32_t mask = (1u << l->mantissa) - 1, top = (1u << l->exponent) - 1;
	uint32_t m = mask, e = top;

	if (l->specials == HAS_INF || l->specials == NAN_TOP)
		e--;
	else if (l->specials == NAN_ALL_ONES)
		m--;
	return ldexp((double)(m | (1u << l->mantissa)), (int)e - l->bias - l->mantissa);
}

static int encode_nan(const struct float_layout *l, bool negative, uint32_t *bits)
{
	uint32_t sign = (uint32_t)negative << (l->exponent + l->mantissa);
	uint32_t mask = (1u << l->mantissa) - 1, top = (1u << l->exponent) - 1;

	switch (l->specials) {
	case HAS_INF: /* the quiet NaN */
		*bits = sign | top << l->mantissa | 1u << (l->mantissa - 1);
		return 0;
	case NAN_ALL_ONES:
		*bits = sign | top << l->mantissa | mask;
		return 0;
	case NAN_NEGATIVE_ZERO:
		*bits = 1u << (l->exponent + l->mantissa);
		return 0;
	case NAN_TOP:
		*bits = top;
		return 0;
	default:
		return -ERANGE;
	}
}

/*
 * The nearest power of two; halfway up, as ml_dtypes 0.6 does (its ties are no more even than others: there is no
 * mantissa). It makes NaN of what has no place, zero and negative numbers too; here that is refused.
 */
static int power_from_double(const struct float_layout *l, double v, uint32_t *bits)
{
	int e;
	bool up = frexp(v, &e) >= 0.75;

	e += l->bias - 1 + up;
	if (v <= 0 || e > 254)
		return -ERANGE;
	*bits = e < 0 ? 0 : (uint32_t)e;
	return 0;
}

/* Round to nearest, ties to even; a finite value beyond the largest is refused. */
static int small_from_double(enum dtype d, double v, uint32_t *bits)
{
	const struct float_layout *l = &layouts[d];
	bool negative = signbit(v) != 0;
	uint32_t sign = (uint32_t)negative << (l->exponent + l->mantissa);
	double a = fabs(v), scaled;
	int e;

	if (isnan(v))
		return encode_nan(l, negative, bits);
	if (isinf(v)) {
		*bits = sign | ((1u << l->exponent) - 1) << l->mantissa;
		return l->specials == HAS_INF ? 0 : -ERANGE;
	}
	if (l->specials == NAN_TOP)
		return power_from_double(l, v, bits);
	if (a == 0) {
		*bits = l->specials == NAN_NEGATIVE_ZERO ? 0 : sign;
		return 0;
	}
	frexp(a, &e);
	e--; /* a = 1.x * 2^e */
	if (e < 1 - l->bias)
		e = 1 - l->bias; /* subnormal */
	scaled = nearbyint(ldexp(a, l->mantissa - e)); /* the default mode rounds ties to even */
	if (ldexp(scaled, e - l->mantissa) > small_max(l))
		return -ERANGE;
	/* a carry into the next exponent, and from subnormal to normal, comes out of the sum */
	*bits = sign | (((uint32_t)(e + l->bias - 1) << l->mantissa) + (uint32_t)scaled);
	if (scaled == 0 && l->specials == NAN_NEGATIVE_ZERO)
		*bits = 0;
	return 0;
}

/* ---- packed bits ---- */

static unsigned element_bits(enum dtype d)
{
	const struct dtype_info *t = &table[d];

	return t->block_bytes * 8u / t->block;
}

/* Element i of a run packed from the lowest bit; bytes behind the end are not touched. */
static uint32_t get_bits(const unsigned char *p, uint64_t i, unsigned bits)
{
	uint64_t at = i * bits;
	unsigned shift = at % 8;
	uint32_t v = p[at / 8];

	if (shift + bits > 8)
		v |= (uint32_t)p[at / 8 + 1] << 8;
	return v >> shift & ((1u << bits) - 1);
}

/* The run was zeroed before. */
static void put_bits(unsigned char *p, uint64_t i, unsigned bits, uint32_t v)
{
	uint64_t at = i * bits;
	unsigned shift = at % 8;

	v <<= shift;
	p[at / 8] = (unsigned char)(p[at / 8] | v);
	if (shift + bits > 8)
		p[at / 8 + 1] = (unsigned char)(p[at / 8 + 1] | v >> 8);
}

/* ---- decoding ---- */

static void decode_packed(enum dtype d, const unsigned char *in, uint64_t count, void *out)
{
	unsigned bits = element_bits(d);
	bool is_float = table[d].kind == KIND_FLOAT;
	uint32_t sign = 1u << (bits - 1);
	float values[64];

	for (uint32_t v = 0; is_float && v < 1u << bits; v++)
		values[v] = small_to_float(d, v);
	for (uint64_t i = 0; i < count; i++) {
		uint32_t v = get_bits(in, i, bits);

		if (is_float)
			((float *)out)[i] = values[v];
		else if (table[d].kind == KIND_INT)
			((int8_t *)out)[i] = (int8_t)((int32_t)(v ^ sign) - (int32_t)sign);
		else
			((uint8_t *)out)[i] = (uint8_t)v;
	}
}

static void decode_bytes(enum dtype d, const unsigned char *in, uint64_t count, float *out)
{
	float values[256];

	for (uint32_t v = 0; v < 256; v++)
		values[v] = small_to_float(d, v);
	for (uint64_t i = 0; i < count; i++)
		out[i] = values[in[i]];
}

static void decode_bfloat16(const void *in, uint64_t count, uint32_t *out)
{
	const unsigned char *p = in;

	for (uint64_t i = 0; i < count; i++)
		out[i] = (uint32_t)p[2 * i] << 16 | (uint32_t)p[2 * i + 1] << 24;
}

void dtype_decode(enum dtype d, const void *in, uint64_t count, void *out)
{
	uint64_t bytes;

	switch (d) {
	case DTYPE_BFLOAT16:
		decode_bfloat16(in, count, out);
		return;
	case DTYPE_COMPLEX32:
		for (uint64_t i = 0; i < count * 2; i++) {
			uint16_t half;

			memcpy(&half, (const char *)in + 2 * i, 2);
			((float *)out)[i] = small_to_float(DTYPE_FLOAT16, half);
		}
		return;
	case DTYPE_FLOAT8_E4M3FN:
	case DTYPE_FLOAT8_E4M3FNUZ:
	case DTYPE_FLOAT8_E5M2:
	case DTYPE_FLOAT8_E5M2FNUZ:
	case DTYPE_FLOAT8_E8M0FNU:
		decode_bytes(d, in, count, out);
		return;
	case DTYPE_STRING:
		return;
	default:
		if (table[d].block > 1)
			decode_packed(d, in, count, out);
		else if (dtype_bytes(d, count, &bytes) == 0)
			memcpy(out, in, bytes);
	}
}

/* ---- encoding ---- */

/* A number on its way: integers keep all 64 bits. */
struct number {
	enum { NUMBER_INT, NUMBER_UINT, NUMBER_REAL } kind;
	int64_t i;
	uint64_t u;
	double re, im;
};

static uint64_t load_le(const unsigned char *p, unsigned n)
{
	uint64_t v = 0;

	memcpy(&v, p, n);
	return v;
}

static double load_real(enum dtype d, const unsigned char *p)
{
	double v;
	float f;

	switch (d) {
	case DTYPE_FLOAT32:
		memcpy(&f, p, 4);
		return (double)f;
	case DTYPE_FLOAT64:
		memcpy(&v, p, 8);
		return v;
	default:
		return (double)small_to_float(d, (uint32_t)load_le(p, table[d].block_bytes));
	}
}

static enum dtype complex_part(enum dtype d)
{
	return d == DTYPE_COMPLEX32 ? DTYPE_FLOAT16 : d == DTYPE_COMPLEX64 ? DTYPE_FLOAT32 : DTYPE_FLOAT64;
}

static struct number load_number(enum dtype d, const unsigned char *p)
{
	const struct dtype_info *t = &table[d];
	unsigned n = t->block_bytes;
	struct number x = {NUMBER_REAL, 0, 0, 0, 0};

	if (t->kind == KIND_UINT || t->kind == KIND_BOOL) {
		x.kind = NUMBER_UINT;
		x.u = load_le(p, n);
		if (t->kind == KIND_BOOL)
			x.u = x.u != 0;
	} else if (t->kind == KIND_INT) {
		x.kind = NUMBER_INT;
		x.i = (int64_t)(load_le(p, n) << (64 - 8 * n)) >> (64 - 8 * n);
	} else if (t->kind == KIND_COMPLEX) {
		enum dtype part = complex_part(d);

		x.re = load_real(part, p);
		x.im = load_real(part, p + table[part].block_bytes);
	} else {
		x.re = load_real(d, p);
	}
	return x;
}

static double number_real(const struct number *x)
{
	return x->kind == NUMBER_INT ? (double)x->i : x->kind == NUMBER_UINT ? (double)x->u : x->re;
}

/* As an integer of `bits` bits; -ERANGE when it does not fit or has a fraction. */
static int number_integer(const struct number *x, unsigned bits, bool is_signed, uint64_t *out)
{
	struct number y = *x;

	if (y.kind == NUMBER_REAL) {
		if (!isfinite(y.re) || y.re != trunc(y.re) || fabs(y.re) >= 0x1p64)
			return -ERANGE;
		if (y.re < 0) {
			if (y.re < -0x1p63)
				return -ERANGE;
			y.kind = NUMBER_INT;
			y.i = (int64_t)y.re;
		} else {
			y.kind = NUMBER_UINT;
			y.u = (uint64_t)y.re;
		}
	}
	if (y.kind == NUMBER_INT && y.i >= 0) {
		y.kind = NUMBER_UINT;
		y.u = (uint64_t)y.i;
	}
	if (y.kind == NUMBER_UINT) {
		unsigned room = is_signed ? bits - 1 : bits;

		if (room < 64 && y.u >> room)
			return -ERANGE;
		*out = y.u;
		return 0;
	}
	if (!is_signed || (bits < 64 && y.i < -((int64_t)1 << (bits - 1))))
		return -ERANGE;
	*out = (uint64_t)y.i;
	return 0;
}

static int store_real(enum dtype d, double v, unsigned char *p)
{
	uint32_t bits;
	float f;
	int r;

	if (d == DTYPE_FLOAT64) {
		memcpy(p, &v, 8);
		return 0;
	}
	if (d == DTYPE_FLOAT32) {
		f = (float)v;
		if (isinf(f) && !isinf(v))
			return -ERANGE;
		memcpy(p, &f, 4);
		return 0;
	}
	r = small_from_double(d, v, &bits);
	if (r == 0)
		memcpy(p, &bits, table[d].block_bytes);
	return r;
}

static int store_number(enum dtype d, const struct number *x, unsigned char *out, uint64_t i)
{
	const struct dtype_info *t = &table[d];
	unsigned bits = element_bits(d);
	unsigned char *p = out + i * t->block_bytes;
	uint64_t u = 0;
	uint32_t small;
	int r;

	switch (t->kind) {
	case KIND_BOOL:
		if (x->im != 0 || number_integer(x, 1, false, &u) < 0)
			return -ERANGE;
		*p = u != 0;
		return 0;
	case KIND_INT:
	case KIND_UINT:
		r = x->im != 0 ? -ERANGE : number_integer(x, bits, t->kind == KIND_INT, &u);
		if (r < 0)
			return r;
		if (t->block > 1)
			put_bits(out, i, bits, (uint32_t)u & ((1u << bits) - 1));
		else
			memcpy(p, &u, t->block_bytes);
		return 0;
	case KIND_FLOAT:
		if (x->im != 0)
			return -ERANGE;
		if (t->block == 1)
			return store_real(d, number_real(x), p);
		r = small_from_double(d, number_real(x), &small);
		if (r == 0)
			put_bits(out, i, bits, small);
		return r;
	case KIND_COMPLEX: {
		enum dtype part = complex_part(d);

		r = store_real(part, number_real(x), p);
		return r < 0 ? r : store_real(part, x->im, p + table[part].block_bytes);
	}
	default:
		return -ERANGE;
	}
}

/* The common narrowing, without going through doubles: a NaN keeps its sign and the top of its payload. */
static int encode_bfloat16(const unsigned char *in, uint64_t count, unsigned char *out, uint64_t *bad)
{
	for (uint64_t i = 0; i < count; i++) {
		uint32_t u = (uint32_t)load_le(in + 4 * i, 4), rounded;
		uint16_t half;

		if ((u & 0x7fffffffu) > 0x7f800000u) {
			half = (uint16_t)(u >> 16 | 0x40);
		} else {
			rounded = u + 0x7fffu + (u >> 16 & 1);
			half = (uint16_t)(rounded >> 16);
			if ((half & 0x7fff) == 0x7f80 && (u & 0x7fffffffu) != 0x7f800000u) {
				*bad = i;
				return -ERANGE;
			}
		}
		memcpy(out + 2 * i, &half, 2);
	}
	return 0;
}

int dtype_encode(enum dtype d, enum dtype from, const void *in, uint64_t count, void *out, uint64_t *bad)
{
	uint64_t bytes;

	*bad = 0;
	if (dtype_bytes(d, count, &bytes) < 0 || table[from].block != 1)
		return -EINVAL;
	if (d == from) {
		memcpy(out, in, bytes);
		return 0;
	}
	if (d == DTYPE_BFLOAT16 && from == DTYPE_FLOAT32)
		return encode_bfloat16(in, count, out, bad);
	if (table[d].kind == KIND_OPAQUE || table[from].kind == KIND_OPAQUE)
		return -EINVAL;
	memset(out, 0, bytes);
	for (uint64_t i = 0; i < count; i++) {
		struct number x = load_number(from, (const unsigned char *)in + i * table[from].block_bytes);
		int r = store_number(d, &x, out, i);

		if (r < 0) {
			*bad = i;
			return r;
		}
	}
	return 0;
}

void dtype_swap(enum dtype d, void *data, uint64_t count)
{
	const struct dtype_info *t = &table[d];
	unsigned char *p = data;
	uint64_t units;

	if (t->swap < 2)
		return;
	units = count * (t->block_bytes / t->swap);
	switch (t->swap) {
	case 2:
		for (uint64_t i = 0; i < units; i++, p += 2) {
			uint16_t v;

			memcpy(&v, p, 2);
			v = __builtin_bswap16(v);
			memcpy(p, &v, 2);
		}
		break;
	case 4:
		for (uint64_t i = 0; i < units; i++, p += 4) {
			uint32_t v;

			memcpy(&v, p, 4);
			v = __builtin_bswap32(v);
			memcpy(p, &v, 4);
		}
		break;
	default:
		for (uint64_t i = 0; i < units; i++, p += t->swap)
			for (unsigned k = 0; k < t->swap / 2u; k++) {
				unsigned char c = p[k];

				p[k] = p[t->swap - 1u - k];
				p[t->swap - 1u - k] = c;
			}
	}
}
