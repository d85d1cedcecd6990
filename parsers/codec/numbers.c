/* SPDX-License-Identifier: MIT */
#include "parsers/codec/numbers.h"

#include "parsers/core/cursor.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

enum { STEP = 4096 };

struct restart {
	uint32_t run;
	uint64_t pos;
};

struct numbers_codec {
	struct codec codec;
	struct source *src;
	struct pb_payload *runs;
	uint32_t run_count, width;
	enum pb_wire wire;
	uint64_t expected;
	pthread_mutex_t lock;
	struct restart *restarts; /* one for every STEP numbers; NULL until the first read */
};

static void skip_tag(struct cursor *c, const struct pb_payload *run)
{
	if (run->wire != PB_BYTES)
		cursor_varint(c);
}

static uint64_t next_number(struct cursor *c, enum pb_wire wire)
{
	return wire == PB_VARINT ? cursor_varint(c) : wire == PB_FIXED32 ? cursor_u32le(c) : cursor_u64le(c);
}

static int wrong_count(const struct numbers_codec *c, uint64_t have, struct error *e)
{
	return error_set(e, EIO, "%s%llu numbers are there, shape and dtype need %llu",
		have > c->expected ? "more than " : "", (unsigned long long)have,
		(unsigned long long)c->expected);
}

/* One pass over everything: restart points, and the count. */
static int find_restarts(struct numbers_codec *c, struct error *e)
{
	uint64_t n = 0, points = c->expected / STEP + 1;
	struct restart *list = calloc(points, sizeof(*list));
	int r = 0;

	if (!list)
		return error_set(e, ENOMEM, "out of memory");
	for (uint32_t i = 0; r == 0 && i < c->run_count; i++) {
		struct cursor at;

		cursor_init(&at, c->src, c->runs[i].offset, c->runs[i].size, e);
		while (cursor_left(&at) && r == 0) {
			if (n % STEP == 0 && n / STEP < points)
				list[n / STEP] = (struct restart){i, at.pos};
			skip_tag(&at, &c->runs[i]);
			next_number(&at, c->wire);
			r = cursor_failed(&at);
			if (r == 0 && ++n > c->expected)
				r = wrong_count(c, c->expected, e);
		}
		cursor_release(&at);
	}
	if (r == 0 && n != c->expected)
		r = wrong_count(c, n, e);
	if (r < 0)
		free(list);
	else
		c->restarts = list;
	return r;
}

/* Numbers [first, first + n) as bytes into out. */
static int read_numbers(const struct numbers_codec *c, uint64_t first, uint64_t n, unsigned char *out,
	struct error *e)
{
	struct restart at = c->restarts[first / STEP];
	uint64_t skip = first % STEP;
	int r = 0;

	for (uint32_t i = at.run; n > 0 && i < c->run_count && r == 0; i++) {
		const struct pb_payload *run = &c->runs[i];
		uint64_t pos = i == at.run ? at.pos : run->offset;
		struct cursor in;

		cursor_init(&in, c->src, pos, run->offset + run->size - pos, e);
		while (n > 0 && cursor_left(&in)) {
			skip_tag(&in, run);
			uint64_t v = next_number(&in, c->wire);

			if (skip > 0) {
				skip--;
				continue;
			}
			memcpy(out, &v, c->width);
			out += c->width;
			n--;
		}
		r = cursor_failed(&in);
		cursor_release(&in);
	}
	return r == 0 && n > 0 ? error_set(e, EIO, "numbers end too early") : r;
}

static int numbers_read(struct codec *codec, uint64_t offset, void *buf, size_t len, struct error *e)
{
	struct numbers_codec *c = (struct numbers_codec *)codec;
	uint64_t first = offset / c->width, skip = offset % c->width;
	uint64_t n = (skip + len + c->width - 1) / c->width;
	unsigned char *work;
	int r = 0;

	pthread_mutex_lock(&c->lock);
	if (!c->restarts)
		r = find_restarts(c, e);
	pthread_mutex_unlock(&c->lock);
	if (r < 0)
		return r;
	if (skip == 0 && len % c->width == 0)
		return read_numbers(c, first, n, buf, e);
	work = malloc(n * c->width);
	if (!work)
		return error_set(e, ENOMEM, "out of memory");
	r = read_numbers(c, first, n, work, e);
	if (r == 0)
		memcpy(buf, work + skip, len);
	free(work);
	return r;
}

static void numbers_free(struct codec *codec)
{
	struct numbers_codec *c = (struct numbers_codec *)codec;

	source_unref(c->src);
	pthread_mutex_destroy(&c->lock);
	free(c->runs);
	free(c->restarts);
	free(c);
}

static const struct codec_ops numbers_ops = {"protobuf numbers", numbers_read, numbers_free};

struct codec *codec_numbers(struct source *src, const struct pb_payload *runs, uint32_t run_count,
	enum pb_wire wire, uint32_t width, uint64_t expected)
{
	struct numbers_codec *c;

	if (width == 0 || width > 8 || expected > INT64_MAX / 8)
		return NULL;
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->runs = calloc(run_count ? run_count : 1, sizeof(*runs));
	if (!c->runs) {
		free(c);
		return NULL;
	}
	if (run_count)
		memcpy(c->runs, runs, run_count * sizeof(*runs));
	codec_init(&c->codec, &numbers_ops, expected * width);
	pthread_mutex_init(&c->lock, NULL);
	c->src = source_ref(src);
	c->run_count = run_count;
	c->wire = wire;
	c->width = width;
	c->expected = expected;
	return &c->codec;
}
