/* SPDX-License-Identifier: MIT */
#include "parsers/codec/ggml.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* a float16 */
static float f16(const unsigned char *p)
{
	uint32_t h = p[0] | (uint32_t)p[1] << 8, sign = (h & 0x8000) << 16, e = h >> 10 & 31, m = h & 1023, bits;
	float f;

	if (e == 31)
		bits = sign | 0x7f800000u | m << 13;
	else if (e)
		bits = sign | (e + 112) << 23 | m << 13;
	else
		return ldexpf((float)m, -24) * (sign ? -1.0f : 1.0f);
	memcpy(&f, &bits, sizeof(f));
	return f;
}

static unsigned u16(const unsigned char *p)
{
	return p[0] | (unsigned)p[1] << 8;
}

static uint32_t u32(const unsigned char *p)
{
	return u16(p) | (uint32_t)u16(p + 2) << 16;
}

static const float k_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
/* twice the e2m1 values */
static const float e_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* ---- blocks of 32 ---- */

static void q4_0(const unsigned char *p, float *y)
{
	float d = f16(p);

	for (int i = 0; i < 16; i++) {
		y[i] = (float)((p[2 + i] & 15) - 8) * d;
		y[16 + i] = (float)((p[2 + i] >> 4) - 8) * d;
	}
}

static void q4_1(const unsigned char *p, float *y)
{
	float d = f16(p), m = f16(p + 2);

	for (int i = 0; i < 16; i++) {
		y[i] = (float)(p[4 + i] & 15) * d + m;
		y[16 + i] = (float)(p[4 + i] >> 4) * d + m;
	}
}

static void q5_0(const unsigned char *p, float *y)
{
	float d = f16(p);
	uint32_t high = u32(p + 2);

	for (int i = 0; i < 16; i++) {
		y[i] = (float)((int)((p[6 + i] & 15) | (high >> i & 1) << 4) - 16) * d;
		y[16 + i] = (float)((int)((p[6 + i] >> 4) | (high >> (16 + i) & 1) << 4) - 16) * d;
	}
}

static void q5_1(const unsigned char *p, float *y)
{
	float d = f16(p), m = f16(p + 2);
	uint32_t high = u32(p + 4);

	for (int i = 0; i < 16; i++) {
		y[i] = (float)((p[8 + i] & 15) | (high >> i & 1) << 4) * d + m;
		y[16 + i] = (float)((p[8 + i] >> 4) | (high >> (16 + i) & 1) << 4) * d + m;
	}
}

static void q8_0(const unsigned char *p, float *y)
{
	float d = f16(p);

	for (int i = 0; i < 32; i++)
		y[i] = (float)(int8_t)p[2 + i] * d;
}

static void iq4_nl(const unsigned char *p, float *y)
{
	float d = f16(p);

	for (int i = 0; i < 16; i++) {
		y[i] = d * k_values[p[2 + i] & 15];
		y[16 + i] = d * k_values[p[2 + i] >> 4];
	}
}

static void mxfp4(const unsigned char *p, float *y)
{
	float d = ldexpf(1.0f, (int)p[0] - 128);

	for (int i = 0; i < 16; i++) {
		y[i] = d * e_values[p[1 + i] & 15];
		y[16 + i] = d * e_values[p[1 + i] >> 4];
	}
}

/* ---- blocks of 64 and 128 ---- */

static float ue4m3(unsigned char x)
{
	int e = x >> 3 & 15, m = x & 7;

	if (x == 0 || x == 0x7f)
		return 0;
	return 0.5f * (e ? ldexpf(1.0f + (float)m / 8.0f, e - 7) : ldexpf((float)m, -9));
}

static void nvfp4(const unsigned char *p, float *y)
{
	for (int e = 0; e < 64; e++) {
		int j = e / 16, r = e % 16;

		y[e] = ue4m3(p[j]) * e_values[p[4 + 8 * j + r % 8] >> 4 * (r / 8) & 15];
	}
}

static void q1_0(const unsigned char *p, float *y)
{
	float d = f16(p);

	for (int e = 0; e < 128; e++)
		y[e] = p[2 + e / 8] >> e % 8 & 1 ? d : -d;
}

static void q2_0(const unsigned char *p, float *y)
{
	float d = f16(p);

	for (int e = 0; e < 64; e++)
		y[e] = (float)((p[2 + e / 4] >> 2 * (e % 4) & 3) - 1) * d;
}

/* ---- blocks of 256: e = 128 h + 32 j + l ---- */

static void q2_k(const unsigned char *p, float *y)
{
	float d = f16(p + 80), dmin = f16(p + 82);

	for (int h = 0; h < 2; h++)
		for (int j = 0; j < 4; j++)
			for (int l = 0; l < 32; l++) {
				int s = p[8 * h + 2 * j + l / 16];

				y[128 * h + 32 * j + l] = d * (float)(s & 15) *
					(float)(p[16 + 32 * h + l] >> 2 * j & 3) - dmin * (float)(s >> 4);
			}
}

static void q3_k(const unsigned char *p, float *y)
{
	const unsigned char *hm = p, *qs = p + 32, *s = p + 96;
	float d = f16(p + 108);

	for (int h = 0; h < 2; h++)
		for (int j = 0; j < 4; j++)
			for (int l = 0; l < 32; l++) {
				int i = 8 * h + 2 * j + l / 16;
				int low = i < 8 ? s[i] & 15 : s[i - 8] >> 4, high = s[8 + i % 4] >> 2 * (i / 4) & 3;
				int v = (qs[32 * h + l] >> 2 * j & 3) - (hm[l] >> (4 * h + j) & 1 ? 0 : 4);

				y[128 * h + 32 * j + l] = d * (float)(low + 16 * high - 32) * (float)v;
			}
}

static void k_scale(const unsigned char *s, int b, float *scale, float *min)
{
	if (b < 4) {
		*scale = (float)(s[b] & 63);
		*min = (float)(s[b + 4] & 63);
	} else {
		*scale = (float)((s[b + 4] & 15) | s[b - 4] >> 6 << 4);
		*min = (float)(s[b + 4] >> 4 | s[b] >> 6 << 4);
	}
}

static void q4_k(const unsigned char *p, float *y)
{
	float d = f16(p), dmin = f16(p + 2);

	for (int b = 0; b < 8; b++) {
		const unsigned char *q = p + 16 + 32 * (b / 2);
		float scale, min;

		k_scale(p + 4, b, &scale, &min);
		scale *= d;
		min *= dmin;
		for (int l = 0; l < 32; l++)
			y[32 * b + l] = scale * (float)(q[l] >> 4 * (b % 2) & 15) - min;
	}
}

static void q5_k(const unsigned char *p, float *y)
{
	float d = f16(p), dmin = f16(p + 2);

	for (int b = 0; b < 8; b++) {
		const unsigned char *q = p + 48 + 32 * (b / 2), *high = p + 16;
		float scale, min;

		k_scale(p + 4, b, &scale, &min);
		scale *= d;
		min *= dmin;
		for (int l = 0; l < 32; l++)
			y[32 * b + l] = scale * (float)((q[l] >> 4 * (b % 2) & 15) + 16 * (high[l] >> b & 1)) - min;
	}
}

static void q6_k(const unsigned char *p, float *y)
{
	float d = f16(p + 208);

	for (int h = 0; h < 2; h++)
		for (int j = 0; j < 4; j++)
			for (int l = 0; l < 32; l++) {
				int low = p[64 * h + 32 * (j % 2) + l] >> 4 * (j / 2) & 15;
				int high = p[128 + 32 * h + l] >> 2 * j & 3;
				float scale = (float)(int8_t)p[192 + 8 * h + 2 * j + l / 16];

				y[128 * h + 32 * j + l] = d * scale * (float)(low + 16 * high - 32);
			}
}

static void iq4_xs(const unsigned char *p, float *y)
{
	float d = f16(p);
	unsigned sh = u16(p + 2);

	for (int b = 0; b < 8; b++) {
		int scale = (p[4 + b / 2] >> 4 * (b % 2) & 15) | (int)(sh >> 2 * b & 3) << 4;
		float f = d * (float)(scale - 32);

		for (int l = 0; l < 32; l++)
			y[32 * b + l] = f * k_values[p[8 + 16 * b + l % 16] >> 4 * (l / 16) & 15];
	}
}

static void tq1_0(const unsigned char *p, float *y)
{
	static const unsigned power[5] = {1, 3, 9, 27, 81};
	float d = f16(p + 52);

	for (int e = 0; e < 256; e++) {
		unsigned v = e < 160 ? p[e % 32] : e < 240 ? p[32 + (e - 160) % 16] : p[48 + (e - 240) % 4];
		int n = e < 160 ? e / 32 : e < 240 ? (e - 160) / 16 : (e - 240) / 4;

		y[e] = (float)((int)((v * power[n] & 255) * 3 >> 8) - 1) * d;
	}
}

static void tq2_0(const unsigned char *p, float *y)
{
	float d = f16(p + 64);

	for (int h = 0; h < 2; h++)
		for (int j = 0; j < 4; j++)
			for (int l = 0; l < 32; l++)
				y[128 * h + 32 * j + l] = (float)((p[32 * h + l] >> 2 * j & 3) - 1) * d;
}

/* by id; 4, 5, 31 to 33 and 36 to 38 were removed. The grid-coded ones (iq1, iq2, iq3) are shown as bytes. */
const struct ggml_type ggml_types[] = {
	[0] = {"f32", DTYPE_FLOAT32, 1, 4, NULL}, [1] = {"f16", DTYPE_FLOAT16, 1, 2, NULL},
	[2] = {"q4_0", DTYPE_NONE, 32, 18, q4_0}, [3] = {"q4_1", DTYPE_NONE, 32, 20, q4_1},
	[6] = {"q5_0", DTYPE_NONE, 32, 22, q5_0}, [7] = {"q5_1", DTYPE_NONE, 32, 24, q5_1},
	[8] = {"q8_0", DTYPE_NONE, 32, 34, q8_0}, [9] = {"q8_1", DTYPE_NONE, 32, 36, NULL},
	[10] = {"q2_K", DTYPE_NONE, 256, 84, q2_k}, [11] = {"q3_K", DTYPE_NONE, 256, 110, q3_k},
	[12] = {"q4_K", DTYPE_NONE, 256, 144, q4_k}, [13] = {"q5_K", DTYPE_NONE, 256, 176, q5_k},
	[14] = {"q6_K", DTYPE_NONE, 256, 210, q6_k}, [15] = {"q8_K", DTYPE_NONE, 256, 292, NULL},
	[16] = {"iq2_xxs", DTYPE_NONE, 256, 66, NULL}, [17] = {"iq2_xs", DTYPE_NONE, 256, 74, NULL},
	[18] = {"iq3_xxs", DTYPE_NONE, 256, 98, NULL}, [19] = {"iq1_s", DTYPE_NONE, 256, 50, NULL},
	[20] = {"iq4_nl", DTYPE_NONE, 32, 18, iq4_nl}, [21] = {"iq3_s", DTYPE_NONE, 256, 110, NULL},
	[22] = {"iq2_s", DTYPE_NONE, 256, 82, NULL}, [23] = {"iq4_xs", DTYPE_NONE, 256, 136, iq4_xs},
	[24] = {"i8", DTYPE_INT8, 1, 1, NULL}, [25] = {"i16", DTYPE_INT16, 1, 2, NULL},
	[26] = {"i32", DTYPE_INT32, 1, 4, NULL}, [27] = {"i64", DTYPE_INT64, 1, 8, NULL},
	[28] = {"f64", DTYPE_FLOAT64, 1, 8, NULL}, [29] = {"iq1_m", DTYPE_NONE, 256, 56, NULL},
	[30] = {"bf16", DTYPE_BFLOAT16, 1, 2, NULL}, [34] = {"tq1_0", DTYPE_NONE, 256, 54, tq1_0},
	[35] = {"tq2_0", DTYPE_NONE, 256, 66, tq2_0}, [39] = {"mxfp4", DTYPE_NONE, 32, 17, mxfp4},
	[40] = {"nvfp4", DTYPE_NONE, 64, 36, nvfp4}, [41] = {"q1_0", DTYPE_NONE, 128, 18, q1_0},
	[42] = {"q2_0", DTYPE_NONE, 64, 18, q2_0},
};
const uint32_t ggml_type_count = sizeof(ggml_types) / sizeof(ggml_types[0]);

/* ---- the codec ---- */

enum { BATCH = 64 }; /* blocks that are read at once */

struct ggml_codec {
	struct codec codec;
	struct extent in;
	const struct ggml_type *type;
};

static int ggml_read(struct codec *codec, uint64_t offset, void *buf, size_t len, struct error *e)
{
	const struct ggml_codec *c = (struct ggml_codec *)codec;
	size_t in_size = c->type->block_bytes, out_size = c->type->block * sizeof(float);
	unsigned char *in = malloc(BATCH * in_size);
	float *out = malloc(out_size);
	uint64_t block = offset / out_size, last = (offset + len + out_size - 1) / out_size;
	size_t skip = (size_t)(offset % out_size);
	int r = in && out ? 0 : error_set(e, ENOMEM, "out of memory");

	while (r == 0 && block < last) {
		size_t n = last - block < BATCH ? (size_t)(last - block) : BATCH;

		r = extent_read(&c->in, block * in_size, in, n * in_size, e);
		for (size_t i = 0; r == 0 && i < n; i++) {
			size_t part = out_size - skip < len ? out_size - skip : len;

			c->type->decode(in + i * in_size, out);
			memcpy(buf, (char *)out + skip, part);
			buf = (char *)buf + part;
			len -= part;
			skip = 0;
		}
		block += n;
	}
	free(in);
	free(out);
	return r;
}

static void ggml_free(struct codec *codec)
{
	struct ggml_codec *c = (struct ggml_codec *)codec;

	extent_unref(&c->in);
	free(c);
}

static const struct codec_ops ggml_ops = {"ggml blocks", ggml_read, ggml_free};

struct codec *codec_ggml(const struct extent *in, const struct ggml_type *type, uint64_t count)
{
	struct ggml_codec *c;

	if (!type->decode || count % type->block || count > INT64_MAX / 4 || in->size != count / type->block * type->block_bytes)
		return NULL;
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	codec_init(&c->codec, &ggml_ops, count * sizeof(float));
	c->in = *in;
	extent_ref(&c->in);
	c->type = type;
	return &c->codec;
}
