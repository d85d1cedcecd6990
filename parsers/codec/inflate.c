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
/* An archive may have any number of members. So many of them have a decoder, those that were read last: more than
 * are read at the same time, or each part of a member would be unpacked from its beginning. */
#define DECODERS 32
/* of all decoders together: 20 MiB */
#define STATES_ALL 512

struct state {
	z_stream z;
	uint64_t in, out; /* consumed, produced */
	bool open, ended;
};

struct decoder {
	struct inflate_codec *owner;
	struct decoder *newer, *older;
	struct state now;
	struct state kept[STATES]; /* in order of out */
	unsigned count;
	unsigned char buf[2 * INPUT]; /* input, then output to be skipped */
};

struct inflate_codec {
	struct codec codec;
	struct extent in;
	uint32_t want; /* CRC */
	pthread_mutex_t lock;
	struct decoder *d; /* or NULL; changes under both locks */
	uint64_t spacing;
	uLong crc;	   /* of what was produced so far ... */
	uint64_t crc_upto; /* ... without a gap, up to here */
};

/* Taken after a codec's lock; another codec's lock is only tried while it is held. */
static struct {
	pthread_mutex_t lock;
	struct decoder *newest, *oldest;
	unsigned count;
	unsigned states;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void state_close(struct state *s)
{
	if (s->open)
		inflateEnd(&s->z);
	s->open = false;
}

static void unlink_decoder(struct decoder *d)
{
	*(d->newer ? &d->newer->older : &pool.newest) = d->older;
	*(d->older ? &d->older->newer : &pool.oldest) = d->newer;
	d->newer = d->older = NULL;
	pool.count--;
}

static void link_newest(struct decoder *d)
{
	d->older = pool.newest;
	*(d->older ? &d->older->newer : &pool.oldest) = d;
	pool.newest = d;
	pool.count++;
}

static void close_states(struct decoder *d)
{
	state_close(&d->now);
	for (unsigned i = 0; i < d->count; i++)
		state_close(&d->kept[i]);
	pool.states -= d->count;
	d->count = 0;
}

/* The decoder that was not used for longest, of a codec that nobody reads now; or NULL. */
static struct decoder *take_over(void)
{
	for (struct decoder *d = pool.oldest; d; d = d->newer) {
		struct inflate_codec *owner = d->owner;

		if (pthread_mutex_trylock(&owner->lock) != 0)
			continue;
		owner->d = NULL;
		pthread_mutex_unlock(&owner->lock);
		unlink_decoder(d);
		close_states(d);
		return d;
	}
	return NULL;
}

static int decoder_get(struct inflate_codec *c, struct error *e)
{
	pthread_mutex_lock(&pool.lock);
	if (c->d)
		unlink_decoder(c->d);
	else if (pool.count >= DECODERS)
		c->d = take_over();
	if (!c->d)
		c->d = calloc(1, sizeof(*c->d));
	if (c->d) {
		c->d->owner = c;
		link_newest(c->d);
	}
	pthread_mutex_unlock(&pool.lock);
	return c->d ? 0 : error_set(e, ENOMEM, "out of memory for unpacking");
}

static void decoder_release(struct inflate_codec *c)
{
	pthread_mutex_lock(&pool.lock);
	if (c->d) {
		unlink_decoder(c->d);
		close_states(c->d);
	}
	pthread_mutex_unlock(&pool.lock);
	free(c->d);
	c->d = NULL;
}

static int restart(struct inflate_codec *c, uint64_t offset, struct error *e)
{
	const struct state *best = NULL;
	struct decoder *d = c->d;

	for (unsigned i = 0; i < d->count && d->kept[i].out <= offset; i++)
		best = &d->kept[i];
	if (d->now.open && d->now.out <= offset && (!best || best->out <= d->now.out))
		return 0;
	state_close(&d->now);
	memset(&d->now.z, 0, sizeof(d->now.z));
	d->now.in = best ? best->in : 0;
	d->now.out = best ? best->out : 0;
	d->now.ended = best && best->ended;
	if ((best ? inflateCopy(&d->now.z, (z_stream *)(uintptr_t)&best->z)
		  : inflateInit2(&d->now.z, -MAX_WBITS)) != Z_OK)
		return error_set(e, ENOMEM, "out of memory for unpacking");
	d->now.z.avail_in = 0;
	d->now.open = true;
	return 0;
}

static bool may_keep(void)
{
	bool may;

	pthread_mutex_lock(&pool.lock);
	may = pool.states < STATES_ALL;
	pool.states += may;
	pthread_mutex_unlock(&pool.lock);
	return may;
}

static void keep(struct inflate_codec *c)
{
	struct decoder *d = c->d;
	struct state *s;

	if (d->count == STATES || d->now.out < (d->count + 1) * c->spacing)
		return;
	if (d->count && d->kept[d->count - 1].out >= d->now.out)
		return;
	if (!may_keep())
		return; /* only slower */
	s = &d->kept[d->count];
	if (inflateCopy(&s->z, &d->now.z) != Z_OK) {
		pthread_mutex_lock(&pool.lock);
		pool.states--;
		pthread_mutex_unlock(&pool.lock);
		return;
	}
	s->in = d->now.in - d->now.z.avail_in;
	s->out = d->now.out;
	s->ended = d->now.ended;
	s->open = true;
	d->count++;
}

static int fill(struct inflate_codec *c, struct error *e)
{
	uint64_t left = c->in.size - c->d->now.in;
	size_t n = left < INPUT ? (size_t)left : INPUT;
	int r;

	if (!n)
		return error_set(e, EIO, "packed data end after %" PRIu64 " of %" PRIu64 " bytes",
			c->d->now.out, c->codec.size);
	r = extent_read(&c->in, c->d->now.in, c->d->buf, n, e);
	if (r < 0)
		return r;
	c->d->now.in += n;
	c->d->now.z.next_in = c->d->buf;
	c->d->now.z.avail_in = (uInt)n;
	return 0;
}

/* why: what inflate() said; it takes its window only when it needs one */
static int damaged(const struct inflate_codec *c, int why, struct error *e)
{
	if (why == Z_MEM_ERROR)
		return error_set(e, ENOMEM, "out of memory for unpacking");
	return error_set(e, EIO, "packed data are damaged near byte %" PRIu64 " of %" PRIu64, c->d->now.out,
		c->codec.size);
}

/* All that is promised has been produced: the stream must end here. */
static int check_end(struct inflate_codec *c, struct error *e)
{
	struct state *s = &c->d->now;
	unsigned char more;
	int r;

	while (!s->ended) {
		if (!s->z.avail_in && s->in == c->in.size)
			return error_set(e, EIO, "packed data of %" PRIu64 " bytes do not end", c->codec.size);
		if (!s->z.avail_in && (r = fill(c, e)) < 0)
			return r;
		s->z.next_out = &more;
		s->z.avail_out = 1;
		r = inflate(&s->z, Z_NO_FLUSH);
		if (!s->z.avail_out)
			return error_set(e, EIO, "packed data hold more than the %" PRIu64
				" bytes that are promised", c->codec.size);
		if (r != Z_OK && r != Z_STREAM_END && r != Z_BUF_ERROR)
			return damaged(c, r, e);
		s->ended = r == Z_STREAM_END;
	}
	return c->crc_upto == c->codec.size && c->crc != c->want
		       ? error_set(e, EIO, "CRC-32 is %08lx, expected %08" PRIx32, (unsigned long)c->crc, c->want)
		       : 0;
}

/* The next len bytes. */
static int produce(struct inflate_codec *c, unsigned char *out, size_t len, struct error *e)
{
	while (len) {
		uInt room = len < INPUT ? (uInt)len : INPUT;
		size_t n;
		int r;

		if (!c->d->now.z.avail_in && (r = fill(c, e)) < 0)
			return r;
		c->d->now.z.next_out = out;
		c->d->now.z.avail_out = room;
		r = inflate(&c->d->now.z, Z_NO_FLUSH);
		n = room - c->d->now.z.avail_out;
		if (c->crc_upto >= c->d->now.out && c->crc_upto - c->d->now.out < n) {
			size_t known = (size_t)(c->crc_upto - c->d->now.out);

			c->crc = crc32(c->crc, out + known, (uInt)(n - known));
			c->crc_upto = c->d->now.out + n;
		}
		c->d->now.out += n;
		out += n;
		len -= n;
		if (r == Z_STREAM_END && len)
			return error_set(e, EIO, "packed data hold %" PRIu64 " bytes, %" PRIu64
				" are promised", c->d->now.out, c->codec.size);
		if (r != Z_OK && r != Z_STREAM_END && r != Z_BUF_ERROR)
			return damaged(c, r, e);
		c->d->now.ended = r == Z_STREAM_END;
		keep(c);
	}
	return c->d->now.out == c->codec.size ? check_end(c, e) : 0;
}

static int inflate_read(struct codec *codec, uint64_t offset, void *buf, size_t len,
	struct error *e)
{
	struct inflate_codec *c = (struct inflate_codec *)codec;
	int r;

	pthread_mutex_lock(&c->lock);
	r = decoder_get(c, e);
	if (!r)
		r = restart(c, offset, e);
	while (!r && c->d->now.out < offset) {
		uint64_t skip = offset - c->d->now.out;

		r = produce(c, c->d->buf + INPUT, skip < INPUT ? (size_t)skip : INPUT, e);
	}
	if (!r)
		r = produce(c, buf, len, e);
	if (r < 0 && c->d)
		state_close(&c->d->now); /* nothing of it can be trusted */
	pthread_mutex_unlock(&c->lock);
	return r;
}

static void inflate_free(struct codec *codec)
{
	struct inflate_codec *c = (struct inflate_codec *)codec;

	decoder_release(c);
	extent_unref(&c->in);
	pthread_mutex_destroy(&c->lock);
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
