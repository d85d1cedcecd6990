/* SPDX-License-Identifier: MIT */
#include "parsers/codec/inflate.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

#include <zlib.h>

#define INPUT (64u << 10)
/* kept states take about 40 KiB each */
#define STATES 32
#define SPACING_MIN (1u << 20)

struct state {
	z_stream z;
	uint64_t in, out; /* consumed, produced */
	bool open;
};

struct inflate_codec {
	struct codec codec;
	struct extent in;
	uint32_t want; /* CRC */
	pthread_mutex_t lock;
	struct state now;
	struct state kept[STATES]; /* in order of out */
	unsigned count;
	uint64_t spacing;
	uLong crc;          /* of what was produced so far ... */
	uint64_t crc_upto;  /* ... without a gap, up to here */
	unsigned char *buf; /* INPUT bytes of input, then as many of output to be skipped */
};

static void state_close(struct state *s)
{
	if (s->open)
		inflateEnd(&s->z);
	s->open = false;
}

static int restart(struct inflate_codec *c, uint64_t offset, struct error *e)
{
	const struct state *best = NULL;

	for (unsigned i = 0; i < c->count && c->kept[i].out <= offset; i++)
		best = &c->kept[i];
	if (c->now.open && c->now.out <= offset && (!best || best->out <= c->now.out))
		return 0;
	state_close(&c->now);
	memset(&c->now.z, 0, sizeof(c->now.z));
	c->now.in = best ? best->in : 0;
	c->now.out = best ? best->out : 0;
	if ((best ? inflateCopy(&c->now.z, (z_stream *)(uintptr_t)&best->z)
		  : inflateInit2(&c->now.z, -MAX_WBITS)) != Z_OK)
		return error_set(e, ENOMEM, "out of memory for unpacking");
	c->now.z.avail_in = 0;
	c->now.open = true;
	return 0;
}

static void keep(struct inflate_codec *c)
{
	struct state *s;

	if (c->count == STATES || c->now.out < (c->count + 1) * c->spacing)
		return;
	if (c->count && c->kept[c->count - 1].out >= c->now.out)
		return;
	s = &c->kept[c->count];
	if (inflateCopy(&s->z, &c->now.z) != Z_OK)
		return; /* only slower */
	s->in = c->now.in - c->now.z.avail_in;
	s->out = c->now.out;
	s->open = true;
	c->count++;
}

static int fill(struct inflate_codec *c, struct error *e)
{
	uint64_t left = c->in.size - c->now.in;
	size_t n = left < INPUT ? (size_t)left : INPUT;
	int r;

	if (!n)
		return error_set(e, EIO, "packed data end after %" PRIu64 " of %" PRIu64 " bytes",
			c->now.out, c->codec.size);
	r = extent_read(&c->in, c->now.in, c->buf, n, e);
	if (r < 0)
		return r;
	c->now.in += n;
	c->now.z.next_in = c->buf;
	c->now.z.avail_in = (uInt)n;
	return 0;
}

/* The next len bytes. */
static int produce(struct inflate_codec *c, unsigned char *out, size_t len, struct error *e)
{
	while (len) {
		uInt room = len < INPUT ? (uInt)len : INPUT;
		size_t n;
		int r;

		if (!c->now.z.avail_in && (r = fill(c, e)) < 0)
			return r;
		c->now.z.next_out = out;
		c->now.z.avail_out = room;
		r = inflate(&c->now.z, Z_NO_FLUSH);
		n = room - c->now.z.avail_out;
		if (c->crc_upto >= c->now.out && c->crc_upto - c->now.out < n) {
			size_t known = (size_t)(c->crc_upto - c->now.out);

			c->crc = crc32(c->crc, out + known, (uInt)(n - known));
			c->crc_upto = c->now.out + n;
		}
		c->now.out += n;
		out += n;
		len -= n;
		if (r == Z_STREAM_END && len)
			return error_set(e, EIO, "packed data hold %" PRIu64 " bytes, %" PRIu64
				" are promised", c->now.out, c->codec.size);
		if (r != Z_OK && r != Z_STREAM_END && r != Z_BUF_ERROR)
			return error_set(e, EIO, "packed data are damaged near byte %" PRIu64
				" of %" PRIu64, c->now.out, c->codec.size);
		keep(c);
	}
	if (c->crc_upto == c->codec.size && c->now.out == c->codec.size && c->crc != c->want)
		return error_set(e, EIO, "CRC-32 is %08lx, expected %08" PRIx32, (unsigned long)c->crc,
			c->want);
	return 0;
}

static int inflate_read(struct codec *codec, uint64_t offset, void *buf, size_t len,
	struct error *e)
{
	struct inflate_codec *c = (struct inflate_codec *)codec;
	int r = 0;

	pthread_mutex_lock(&c->lock);
	if (!c->buf)
		c->buf = malloc(2 * INPUT);
	if (!c->buf)
		r = error_set(e, ENOMEM, "out of memory for unpacking");
	if (!r)
		r = restart(c, offset, e);
	while (!r && c->now.out < offset) {
		uint64_t skip = offset - c->now.out;

		r = produce(c, c->buf + INPUT, skip < INPUT ? (size_t)skip : INPUT, e);
	}
	if (!r)
		r = produce(c, buf, len, e);
	if (r < 0)
		state_close(&c->now); /* nothing of it can be trusted */
	pthread_mutex_unlock(&c->lock);
	return r;
}

static void inflate_free(struct codec *codec)
{
	struct inflate_codec *c = (struct inflate_codec *)codec;

	state_close(&c->now);
	for (unsigned i = 0; i < c->count; i++)
		state_close(&c->kept[i]);
	extent_unref(&c->in);
	pthread_mutex_destroy(&c->lock);
	free(c->buf);
	free(c);
}

static const struct codec_ops inflate_ops = {
	.name = "inflate", .read = inflate_read, .free = inflate_free};

struct codec *codec_inflate(const struct extent *in, uint64_t size, uint32_t crc)
{
	struct inflate_codec *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	codec_init(&c->codec, &inflate_ops, size);
	c->in = *in;
	extent_ref(in);
	c->want = crc;
	c->crc = crc32(0, NULL, 0);
	c->spacing = size / (STATES + 1) > SPACING_MIN ? size / (STATES + 1) : SPACING_MIN;
	pthread_mutex_init(&c->lock, NULL);
	return &c->codec;
}
