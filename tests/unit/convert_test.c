/* SPDX-License-Identifier: MIT */
/* The codecs of convert.h against a plain computation of the whole, read at random places. */
#include "tests/unit/unit.h"

#include "parsers/codec/convert.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

static bool reads_as(struct codec *c, const void *whole, size_t size)
{
	unsigned char *got = malloc(size + 1);
	bool same = c && got && c->size == size && codec_read(c, 0, got, size, NULL) == 0 &&
		    memcmp(got, whole, size) == 0;

	for (int i = 0; same && i < 50 && size; i++) {
		size_t at = (size_t)rand() % size, n = 1 + (size_t)rand() % (size - at);

		same = codec_read(c, at, got, n, NULL) == 0 &&
		       memcmp(got, (const char *)whole + at, n) == 0;
	}
	free(got);
	codec_unref(c);
	return same;
}

static void fill_random(void *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		((unsigned char *)p)[i] = (unsigned char)rand();
}

/* One view: every element looked up on its own. */
static bool gathers(uint32_t elem, uint32_t rank, const uint64_t *shape, const int64_t *strides,
	uint64_t first, size_t elements)
{
	char *in = calloc(elements, elem), *want;
	struct extent x = extent_memory(in, elements * elem);
	uint64_t count;
	bool ok;

	if (!in || shape_count(shape, rank, &count) < 0 || !(want = malloc(count * elem + 1)))
		exit(1);
	fill_random(in, elements * elem);
	for (uint64_t i = 0; i < count; i++) {
		int64_t at = (int64_t)first;
		uint64_t rest = i;

		for (uint32_t d = rank; d > 0; d--) {
			at += (int64_t)(rest % shape[d - 1]) * strides[d - 1];
			rest /= shape[d - 1];
		}
		memcpy(want + i * elem, in + at * (int64_t)elem, elem);
	}
	ok = reads_as(codec_gather(&x, elem, rank, shape, strides, first), want, count * elem);
	free(want);
	free(in);
	return ok;
}

#define SHAPE(...) ((const uint64_t[]){__VA_ARGS__})
#define STRIDES(...) ((const int64_t[]){__VA_ARGS__})

static void gather(void)
{
	CHECK(gathers(4, 2, SHAPE(300, 200), STRIDES(1, 300), 0, 60000));
	CHECK(gathers(4, 2, SHAPE(2100, 1500), STRIDES(1, 2100), 0, 3150000)); /* several boxes */
	CHECK(gathers(2, 4, SHAPE(2, 30, 20, 10), STRIDES(6000, 1, 300, 30), 0, 12000)); /* NHWC as NCHW */
	CHECK(gathers(8, 3, SHAPE(5, 6, 7), STRIDES(-42, -7, -1), 209, 210)); /* flipped */
	CHECK(gathers(1, 2, SHAPE(40, 50), STRIDES(0, 3), 5, 160)); /* expanded, with a step */
	CHECK(gathers(4, 2, SHAPE(3, 100000), STRIDES(150000, 1), 7, 450000)); /* long runs */
	CHECK(gathers(4, 1, SHAPE(9), STRIDES(100000), 1, 900001)); /* far apart */
	CHECK(gathers(3, 3, SHAPE(4, 1, 5), STRIDES(1, 77, 4), 0, 20));
	CHECK(gathers(4, 0, NULL, NULL, 3, 4));
	CHECK(gathers(4, 2, SHAPE(0, 5), STRIDES(5, 1), 0, 5));
	CHECK(gathers(16, 2, SHAPE(4, 70000), STRIDES(1, 4), 0, 280000));
}

static void random_views(void)
{
	for (int i = 0; i < 300; i++) {
		uint64_t shape[5], order[5] = {0, 1, 2, 3, 4}, first = 0, total = 1;
		uint32_t rank = 1 + (uint32_t)rand() % 5;
		int64_t strides[5];

		for (uint32_t d = 0; d < rank; d++) {
			uint32_t other = (uint32_t)rand() % rank;
			uint64_t keep = order[d];

			shape[d] = 1 + (uint64_t)rand() % 9;
			order[d] = order[other];
			order[other] = keep;
		}
		for (uint32_t k = 0; k < rank; k++) { /* dense in a random order of dimensions, some flipped */
			uint64_t d = order[k];

			strides[d] = (int64_t)total;
			total *= shape[d];
			if (rand() % 3 == 0) {
				first += (uint64_t)strides[d] * (shape[d] - 1);
				strides[d] = -strides[d];
			}
		}
		CHECK(gathers(1u << (rand() % 4), rank, shape, strides, first, total));
	}
}

static void packed_types(void)
{
	static const enum dtype types[] = {DTYPE_INT4, DTYPE_UINT4, DTYPE_INT2, DTYPE_UINT2, DTYPE_FLOAT4_E2M1,
		DTYPE_FLOAT6_E2M3, DTYPE_FLOAT6_E3M2};

	for (size_t k = 0; k < sizeof(types) / sizeof(types[0]); k++) {
		const struct dtype_info *t = dtype_info(types[k]);
		unsigned bits = t->block_bytes * 8u / t->block;
		uint64_t count = 100003, size;
		unsigned char *in, *loose = malloc(count);

		CHECK(dtype_bytes(types[k], count, &size) == 0);
		in = calloc(1, size);
		if (!in || !loose)
			exit(1);
		for (uint64_t i = 0; i < count; i++) { /* bit by bit, lowest first */
			loose[i] = (unsigned char)(rand() & ((1 << bits) - 1));
			for (unsigned b = 0; b < bits; b++)
				if (loose[i] >> b & 1)
					in[(i * bits + b) / 8] |= (unsigned char)(1u << ((i * bits + b) % 8));
		}
		struct extent x = extent_memory(in, size), y = extent_memory(loose, count);

		CHECK(reads_as(codec_unpack_bits(&x, types[k], count), loose, count));
		CHECK(reads_as(codec_pack_bits(&y, types[k], count), in, size));
		free(in);
		free(loose);
	}
}

static void swapping(void)
{
	unsigned char in[64000] = {0}, want[64000];
	struct extent x = extent_memory(in, sizeof(in));

	fill_random(in, sizeof(in));
	for (size_t i = 0; i < sizeof(in); i++)
		want[i] = in[i / 4 * 4 + 3 - i % 4];
	CHECK(reads_as(codec_swap(&x, DTYPE_FLOAT32), want, sizeof(want)));
	CHECK(reads_as(codec_swap(&x, DTYPE_COMPLEX64), want, sizeof(want)));
	for (size_t i = 0; i < sizeof(in); i++)
		want[i] = in[i ^ 1];
	CHECK(reads_as(codec_swap(&x, DTYPE_FLOAT16), want, sizeof(want)));
}

/* Known values: OCP OFP8 and MX specifications, ONNX for the FNUZ types. */
static const struct {
	enum dtype dtype;
	uint32_t bits;
	float value;
} known[] = {
	{DTYPE_FLOAT8_E4M3FN, 0x7e, 448.0f}, {DTYPE_FLOAT8_E4M3FN, 0x01, 0x1p-9f},
	{DTYPE_FLOAT8_E4M3FN, 0xb8, -1.0f}, {DTYPE_FLOAT8_E5M2, 0x7b, 57344.0f},
	{DTYPE_FLOAT8_E5M2, 0x01, 0x1p-16f}, {DTYPE_FLOAT8_E5M2, 0xfc, -INFINITY},
	{DTYPE_FLOAT8_E4M3FNUZ, 0x7f, 240.0f}, {DTYPE_FLOAT8_E4M3FNUZ, 0x01, 0x1p-10f},
	{DTYPE_FLOAT8_E5M2FNUZ, 0x7f, 57344.0f}, {DTYPE_FLOAT8_E5M2FNUZ, 0x01, 0x1p-17f},
	{DTYPE_FLOAT8_E8M0FNU, 0x7f, 1.0f}, {DTYPE_FLOAT8_E8M0FNU, 0x80, 2.0f},
	{DTYPE_FLOAT6_E2M3, 0x1f, 7.5f}, {DTYPE_FLOAT6_E3M2, 0x1f, 28.0f}, {DTYPE_FLOAT4_E2M1, 0x7, 6.0f},
	{DTYPE_FLOAT4_E2M1, 0x9, -0.5f}, {DTYPE_BFLOAT16, 0x3f80, 1.0f}, {DTYPE_BFLOAT16, 0xff80, -INFINITY},
};

static void known_values(void)
{
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		unsigned char stored[4], again[4] = {0};
		uint64_t bad;
		float got;

		memcpy(stored, &known[i].bits, 4);
		dtype_decode(known[i].dtype, stored, 1, &got);
		CHECK(got == known[i].value);
		CHECK(dtype_encode(known[i].dtype, DTYPE_FLOAT32, &known[i].value, 1, again, &bad) == 0 &&
		      memcmp(stored, again, 2) == 0);
	}
}

static bool refuses(enum dtype d, float v)
{
	unsigned char out[8];
	uint64_t bad;

	return dtype_encode(d, DTYPE_FLOAT32, &v, 1, out, &bad) == -ERANGE;
}

static bool rounds_to(enum dtype d, float v, uint32_t bits)
{
	unsigned char out[4] = {0};
	uint64_t bad;

	return dtype_encode(d, DTYPE_FLOAT32, &v, 1, out, &bad) == 0 && memcmp(out, &bits, 4) == 0;
}

static void narrowing(void)
{
	CHECK(rounds_to(DTYPE_FLOAT8_E4M3FN, 1.0625f, 0x38)); /* a tie goes to the even neighbour */
	CHECK(rounds_to(DTYPE_FLOAT8_E4M3FN, 1.1875f, 0x3a));
	CHECK(rounds_to(DTYPE_FLOAT8_E4M3FN, 464.0f, 0x7e)); /* the tie with what would be 480 */
	CHECK(refuses(DTYPE_FLOAT8_E4M3FN, 465.0f));
	CHECK(refuses(DTYPE_FLOAT8_E4M3FN, INFINITY));
	CHECK(rounds_to(DTYPE_FLOAT16, 65504.0f, 0x7bff));
	CHECK(refuses(DTYPE_FLOAT16, 65520.0f));
	CHECK(rounds_to(DTYPE_BFLOAT16, 1.00390625f, 0x3f80));
	CHECK(refuses(DTYPE_BFLOAT16, 3.4028235e38f));
	CHECK(refuses(DTYPE_FLOAT4_E2M1, NAN));
	CHECK(rounds_to(DTYPE_INT8, -128.0f, 0x80));
	CHECK(refuses(DTYPE_INT8, 128.0f));
	CHECK(refuses(DTYPE_INT8, 0.5f));
	CHECK(refuses(DTYPE_UINT16, -1.0f));
	CHECK(refuses(DTYPE_BOOL, 2.0f));
	CHECK(refuses(DTYPE_INT4, 8.0f));
}

/* What ml_dtypes 0.6.0 makes of these; where it makes NaN of a number, this refuses. */
static void powers(void)
{
	static const struct {
		float v;
		uint32_t bits;
	} all[] = {
		{1.49f, 127}, {1.5f, 128}, {3, 129}, {6, 130}, {0.75f, 127}, {1.25f, 127}, {1.4142f, 127}, {2.999f, 128},
		{5, 129}, {7, 130}, {0x1.8p-126f, 2}, {0x1.8p-127f, 1}, {0x1p-127f, 0}, {0x1p-128f, 0}, {0x1p-149f, 0},
		{0x1.6p127f, 254}, {0x1p127f, 254}, {NAN, 255},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		CHECK(rounds_to(DTYPE_FLOAT8_E8M0FNU, all[i].v, all[i].bits));
	CHECK(refuses(DTYPE_FLOAT8_E8M0FNU, 0) && refuses(DTYPE_FLOAT8_E8M0FNU, -0.0f) && refuses(DTYPE_FLOAT8_E8M0FNU, -1));
	CHECK(refuses(DTYPE_FLOAT8_E8M0FNU, 0x1.8p127f) && refuses(DTYPE_FLOAT8_E8M0FNU, INFINITY));
}

int main(void)
{
	srand(11);
	gather();
	random_views();
	packed_types();
	swapping();
	known_values();
	narrowing();
	powers();
	return unit_done("convert");
}
