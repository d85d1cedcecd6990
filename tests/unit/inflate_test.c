/* SPDX-License-Identifier: MIT */
/* Unpacking with random access: more members than decoders, read in parts, from several threads. */
#include "parsers/codec/inflate.h"
#include "parsers/core/codec.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define MEMBERS 100
#define SMALL 70000u
#define BIG (6u << 20)

struct member {
	unsigned char *plain, *packed;
	size_t size, packed_size;
	struct codec *codec;
};

static uint32_t next(uint32_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 17;
	*x ^= *x << 5;
	return *x;
}

static void make(struct member *m, size_t size, uint32_t seed)
{
	z_stream z = {0};
	uint32_t x = seed;
	struct extent in;

	*m = (struct member){.plain = malloc(size), .size = size};
	for (size_t i = 0; i < size; i++)
		m->plain[i] = (unsigned char)(next(&x) & 0x1f);
	CHECK(deflateInit2(&z, 1, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
	m->packed_size = deflateBound(&z, size);
	m->packed = malloc(m->packed_size);
	z.next_in = m->plain;
	z.avail_in = (uInt)size;
	z.next_out = m->packed;
	z.avail_out = (uInt)m->packed_size;
	CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END);
	m->packed_size = z.total_out;
	deflateEnd(&z);
	in = extent_memory(m->packed, m->packed_size);
	m->codec = codec_inflate(&in, size, (uint32_t)crc32(0, m->plain, (uInt)size));
	CHECK(m->codec);
}

static void release(struct member *m)
{
	codec_unref(m->codec);
	free(m->plain);
	free(m->packed);
}

static int part_differs(struct member *m, size_t offset, size_t len)
{
	unsigned char buf[5000];
	struct error e = {0};

	if (len > m->size - offset)
		len = m->size - offset;
	return codec_read(m->codec, offset, buf, len, &e) != 0 || memcmp(buf, m->plain + offset, len) != 0;
}

static struct member members[MEMBERS];

/* All of them in turn, a part each: every decoder changes hands many times. */
static unsigned read_in_turn(uint32_t seed)
{
	unsigned wrong = 0;
	uint32_t x = seed;

	for (size_t offset = 0; offset < SMALL; offset += 5000)
		for (size_t i = 0; i < MEMBERS; i++)
			wrong += (unsigned)part_differs(&members[i], offset, 5000);
	for (unsigned i = 0; i < 2000; i++)
		wrong += (unsigned)part_differs(&members[next(&x) % MEMBERS], next(&x) % SMALL, 3000);
	return wrong;
}

static void *reader(void *wrong)
{
	*(unsigned *)wrong = read_in_turn(*(unsigned *)wrong);
	return NULL;
}

static void many(void)
{
	unsigned wrong[4];
	pthread_t threads[4];

	for (uint32_t i = 0; i < MEMBERS; i++)
		make(&members[i], SMALL, i + 1);
	CHECK(read_in_turn(7) == 0);
	for (unsigned i = 0; i < 4; i++) {
		wrong[i] = i + 1; /* the seed at first */
		CHECK(pthread_create(&threads[i], NULL, reader, &wrong[i]) == 0);
	}
	for (unsigned i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		CHECK(wrong[i] == 0);
	}
	for (size_t i = 0; i < MEMBERS; i++)
		release(&members[i]);
}

/* Kept states: a read far in, then back, then at the end. */
static void seeking(void)
{
	struct member m;
	uint32_t x = 5;

	make(&m, BIG, 99);
	CHECK(!part_differs(&m, BIG - 5000, 5000));
	for (unsigned i = 0; i < 100; i++)
		CHECK(!part_differs(&m, next(&x) % (BIG - 5000), 5000));
	release(&m);
}

static void damaged(void)
{
	struct member m;

	make(&m, SMALL, 3);
	m.packed[m.packed_size / 2] ^= 0xff;
	m.packed[m.packed_size / 2 + 1] ^= 0x5a;
	CHECK(part_differs(&m, SMALL - 100, 100));
	CHECK(part_differs(&m, SMALL - 100, 100)); /* and not right the second time */
	CHECK(!part_differs(&m, 0, 100));
	release(&m);
}

/* The stream of m, of which only packed_size bytes are given and size are promised: what reading it to the end says. */
static void told(const struct member *m, size_t packed_size, size_t size, const char *text)
{
	struct extent in = extent_memory(m->packed, packed_size);
	struct codec *codec = codec_inflate(&in, size, (uint32_t)crc32(0, m->plain, (uInt)size));
	unsigned char buf[100];
	struct error e = {0};

	CHECK(codec && codec_read(codec, 0, buf, sizeof(buf), &e) == 0);
	/* twice: the second time from the start */
	for (unsigned i = 0; i < 2; i++) {
		error_clear(&e);
		CHECK(codec_read(codec, size - sizeof(buf), buf, sizeof(buf), &e) == (text ? -EIO : 0));
		CHECK(text ? strstr(e.text, text) != NULL : memcmp(buf, m->plain + size - sizeof(buf), 100) == 0);
	}
	codec_unref(codec);
}

static void wrong_length(void)
{
	struct member m;

	make(&m, SMALL, 4);
	told(&m, m.packed_size, SMALL, NULL);
	told(&m, m.packed_size, SMALL - 1, "more than the 69999 bytes");
	told(&m, m.packed_size, SMALL - 30000, "more than the 40000 bytes");
	told(&m, m.packed_size / 2, SMALL, "packed data end after");
	release(&m);
	/* all bytes are there, what ends the stream is not: a stored block, marked as not the last */
	m = (struct member){.plain = calloc(1, 200), .packed = calloc(1, 205)};
	memcpy(m.packed, "\0\xc8\0\x37\xff", 5);
	told(&m, 205, 200, "do not end");
	m.packed[0] = 1;
	told(&m, 205, 200, NULL);
	free(m.plain);
	free(m.packed);
}

int main(void)
{
	many();
	seeking();
	damaged();
	wrong_length();
	return unit_done("inflate");
}
