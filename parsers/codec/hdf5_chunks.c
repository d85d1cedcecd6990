/* SPDX-License-Identifier: MIT */
#include "parsers/codec/hdf5_chunks.h"

#include "parsers/codec/hdf5_filters.h"
#include "parsers/core/limits.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#define ROW_MAX (128ull << 20)
#define BUCKETS 4096

struct chunks {
	struct codec codec;
	const struct hdf5_object *o;
	struct extent content;
	struct source *src;
	/* dimensions whose chunk is as long as the array are folded into the one before; the last counts bytes */
	uint32_t rank;
	uint64_t dims[HDF5_RANK], chunk[HDF5_RANK], grid[HDF5_RANK];
	size_t chunk_bytes;
	uint64_t budget;
	pthread_mutex_t lock; /* one decodes at a time */
};

/* ---- the cache ---- */

struct block {
	const struct chunks *owner;
	uint64_t index;
	unsigned char *bytes;
	size_t size;
	struct block *newer, *older, *chain;
	int users;
};

static struct {
	pthread_mutex_t lock;
	struct block *newest, *oldest, *buckets[BUCKETS];
	uint64_t bytes;
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct block **bucket_of(const struct chunks *c, uint64_t index)
{
	uint64_t h = ((uint64_t)(uintptr_t)c / 64 + index) * 0x9e3779b97f4a7c15ull;

	return &cache.buckets[h >> 52];
}

static void unlink_block(struct block *b)
{
	*(b->newer ? &b->newer->older : &cache.newest) = b->older;
	*(b->older ? &b->older->newer : &cache.oldest) = b->newer;
	b->newer = b->older = NULL;
}

static void push_block(struct block *b)
{
	b->older = cache.newest;
	b->newer = NULL;
	*(cache.newest ? &cache.newest->newer : &cache.oldest) = b;
	cache.newest = b;
}

static void drop_block(struct block *b)
{
	struct block **p = bucket_of(b->owner, b->index);

	while (*p != b)
		p = &(*p)->chain;
	*p = b->chain;
	unlink_block(b);
	cache.bytes -= b->size;
	free(b->bytes);
	free(b);
}

/* The block, kept from being dropped until cache_done; NULL when it is not there. */
static struct block *cache_find(const struct chunks *c, uint64_t index)
{
	struct block *b;

	pthread_mutex_lock(&cache.lock);
	for (b = *bucket_of(c, index); b && (b->owner != c || b->index != index); b = b->chain)
		;
	if (b) {
		b->users++;
		unlink_block(b);
		push_block(b);
	}
	pthread_mutex_unlock(&cache.lock);
	return b;
}

static void cache_done(struct block *b)
{
	pthread_mutex_lock(&cache.lock);
	b->users--;
	pthread_mutex_unlock(&cache.lock);
}

/* Takes bytes over; the block is in use. */
static struct block *cache_put(const struct chunks *c, uint64_t index, unsigned char *bytes, size_t size)
{
	struct block *b = calloc(1, sizeof(*b)), *old;
	struct block **p;

	if (!b) {
		free(bytes);
		return NULL;
	}
	*b = (struct block){.owner = c, .index = index, .bytes = bytes, .size = size, .users = 1};
	pthread_mutex_lock(&cache.lock);
	for (old = cache.oldest; old && cache.bytes + size > c->budget;) {
		struct block *next = old->newer;

		if (!old->users)
			drop_block(old);
		old = next;
	}
	p = bucket_of(c, index);
	b->chain = *p;
	*p = b;
	push_block(b);
	cache.bytes += size;
	pthread_mutex_unlock(&cache.lock);
	return b;
}

static void cache_forget(const struct chunks *c)
{
	pthread_mutex_lock(&cache.lock);
	for (struct block *b = cache.oldest; b;) {
		struct block *next = b->newer;

		if (b->owner == c)
			drop_block(b);
		b = next;
	}
	pthread_mutex_unlock(&cache.lock);
}

/* ---- one chunk ---- */

static const struct hdf5_chunk *find_chunk(const struct hdf5_object *o, uint64_t index)
{
	uint64_t low = 0, high = o->chunk_count;

	while (low < high) {
		uint64_t mid = low + (high - low) / 2;

		if (o->chunks[mid].index == index)
			return &o->chunks[mid];
		if (o->chunks[mid].index < index)
			low = mid + 1;
		else
			high = mid;
	}
	return NULL;
}

/* A box of `count` elements each way, packed at the front of buf, spread to the strides of a whole chunk. */
static void spread(const struct hdf5_object *o, const uint64_t *count, unsigned char *buf)
{
	uint32_t last = o->rank - 1;
	uint64_t rows = 1, run = count[last] * o->element;

	for (uint32_t i = 0; i < last; i++)
		rows *= count[i];
	for (uint64_t row = rows; row-- > 0;) { /* from the end, so that nothing is overwritten before it moved */
		uint64_t at = 0, rest = row, step = o->chunk_dims[last];

		for (uint32_t i = last; i-- > 0;) {
			at += rest % count[i] * step;
			rest /= count[i];
			step *= o->chunk_dims[i];
		}
		memmove(buf + at * o->element, buf + row * run, (size_t)run);
	}
}

/* By the library, in a child: filters that nobody here knows. */
static int ask(struct chunks *c, uint64_t index, unsigned char **out, struct error *e)
{
	const struct hdf5_object *o = c->o;
	uint64_t start[HDF5_RANK], count[HDF5_RANK], size = o->element;
	int r;

	for (uint32_t i = o->rank; i-- > 0;) {
		uint64_t n = (o->dims[i] + o->chunk_dims[i] - 1) / o->chunk_dims[i];

		start[i] = index % n * o->chunk_dims[i];
		index /= n;
		count[i] = o->dims[i] - start[i] < o->chunk_dims[i] ? o->dims[i] - start[i] : o->chunk_dims[i];
		size *= count[i];
	}
	*out = calloc(1, c->chunk_bytes);
	if (!*out)
		return error_set(e, ENOMEM, "out of memory for a chunk");
	r = hdf5_decode_chunk(o, &c->content, c->src, start, count, *out, (size_t)size, e);
	if (r < 0) {
		free(*out);
		return r;
	}
	spread(o, count, *out);
	return 0;
}

static int decode(struct chunks *c, const struct hdf5_chunk *k, unsigned char **out, struct error *e)
{
	unsigned char *packed;
	int r;

	if (!hdf5_filters_known(c->o, k->skipped))
		return ask(c, k->index, out, e);
	packed = malloc((size_t)k->size ? (size_t)k->size : 1);
	if (!packed)
		return error_set(e, ENOMEM, "out of memory for a chunk");
	r = extent_read(&c->content, k->offset, packed, (size_t)k->size, e);
	if (r < 0) {
		free(packed);
		return r;
	}
	return hdf5_unfilter(c->o, k->skipped, packed, (size_t)k->size, c->chunk_bytes, out, e);
}

static int get_block(struct chunks *c, const struct hdf5_chunk *k, struct block **out, struct error *e)
{
	unsigned char *bytes;
	int r = 0;

	*out = cache_find(c, k->index);
	if (*out)
		return 0;
	pthread_mutex_lock(&c->lock);
	*out = cache_find(c, k->index); /* somebody else may have been faster */
	if (!*out) {
		r = decode(c, k, &bytes, e);
		if (!r)
			*out = cache_put(c, k->index, bytes, c->chunk_bytes);
		if (!r && !*out)
			r = error_set(e, ENOMEM, "out of memory for a chunk");
	}
	pthread_mutex_unlock(&c->lock);
	return r;
}

/* ---- reading ---- */

static void fill_with(struct str fill, uint64_t phase, unsigned char *buf, size_t n)
{
	if (!fill.len) {
		memset(buf, 0, n);
		return;
	}
	for (size_t i = 0; i < n; i++)
		buf[i] = (unsigned char)fill.ptr[(phase + i) % fill.len];
}

struct place {
	uint64_t chunk, in; /* chunk's index in the grid, byte in the chunk */
	size_t run;         /* bytes that follow without a gap on both sides */
};

static struct place find_place(const struct chunks *c, uint64_t offset)
{
	uint64_t in_step = 1, grid_step = 1;
	struct place p = {0, 0, 0};

	for (uint32_t i = c->rank; i-- > 0;) {
		uint64_t x = offset % c->dims[i], in = x % c->chunk[i];

		offset /= c->dims[i];
		if (i == c->rank - 1) {
			uint64_t row = c->dims[i] - x, chunk = c->chunk[i] - in;

			p.run = (size_t)(row < chunk ? row : chunk);
		}
		p.in += in * in_step;
		p.chunk += x / c->chunk[i] * grid_step;
		in_step *= c->chunk[i];
		grid_step *= c->grid[i];
	}
	return p;
}

static int chunks_read(struct codec *codec, uint64_t offset, void *buf, size_t len, struct error *e)
{
	struct chunks *c = (struct chunks *)codec;
	unsigned char *out = buf;
	struct block *block = NULL;
	int r = 0;

	while (!r && len) {
		struct place p = find_place(c, offset);
		const struct hdf5_chunk *k = find_chunk(c->o, p.chunk);

		if (p.run > len)
			p.run = len;
		if (!k) {
			fill_with(c->o->fill, p.in, out, p.run);
		} else if (!c->o->filter_count) {
			r = extent_read(&c->content, k->offset + p.in, out, p.run, e);
		} else {
			if (block && block->index != p.chunk) {
				cache_done(block);
				block = NULL;
			}
			if (!block)
				r = get_block(c, k, &block, e);
			if (!r)
				memcpy(out, block->bytes + p.in, p.run);
		}
		out += p.run;
		offset += p.run;
		len -= p.run;
	}
	if (block)
		cache_done(block);
	return r;
}

static void chunks_free(struct codec *codec)
{
	struct chunks *c = (struct chunks *)codec;

	cache_forget(c);
	extent_unref(&c->content);
	source_unref(c->src);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

static const struct codec_ops chunks_ops = {.name = "hdf5 chunks", .read = chunks_read, .free = chunks_free};

static void fold(struct chunks *c)
{
	const struct hdf5_object *o = c->o;

	for (uint32_t i = 0; i < o->rank; i++) {
		c->dims[c->rank] = o->dims[i];
		c->chunk[c->rank] = o->chunk_dims[i];
		if (c->rank && o->dims[i] == o->chunk_dims[i]) {
			c->dims[c->rank - 1] *= o->dims[i];
			c->chunk[c->rank - 1] *= o->dims[i];
		} else {
			c->rank++;
		}
	}
	c->dims[c->rank - 1] *= o->element;
	c->chunk[c->rank - 1] *= o->element;
	for (uint32_t i = 0; i < c->rank; i++)
		c->grid[i] = (c->dims[i] + c->chunk[i] - 1) / c->chunk[i];
}

struct codec *codec_hdf5_chunks(const struct hdf5_object *o, const struct extent *content, struct source *src)
{
	struct chunks *c = calloc(1, sizeof(*c));
	uint64_t count = 0, size = 0, row;

	if (!c)
		return NULL;
	/* the caller saw that the size does not overflow */
	if (shape_count(o->dims, o->rank, &count) == 0)
		size = count * o->element;
	codec_init(&c->codec, &chunks_ops, size);
	c->o = o;
	c->content = *content;
	extent_ref(content);
	c->src = source_ref(src);
	fold(c);
	c->chunk_bytes = 1;
	for (uint32_t i = 0; i < c->rank; i++)
		c->chunk_bytes *= (size_t)c->chunk[i];
	row = c->chunk_bytes;
	for (uint32_t i = 1; i < c->rank && row < ROW_MAX; i++)
		row *= c->grid[i] ? c->grid[i] : 1;
	c->budget = row < LIMIT_CACHE ? LIMIT_CACHE : row < ROW_MAX ? row : ROW_MAX;
	pthread_mutex_init(&c->lock, NULL);
	return &c->codec;
}

/* ---- nothing written ---- */

struct fill {
	struct codec codec;
	struct str bytes;
};

static int fill_read(struct codec *codec, uint64_t offset, void *buf, size_t len, struct error *e)
{
	(void)e;
	fill_with(((struct fill *)codec)->bytes, offset, buf, len);
	return 0;
}

static void fill_free(struct codec *codec)
{
	free(codec);
}

static const struct codec_ops fill_ops = {.name = "fill value", .read = fill_read, .free = fill_free};

struct codec *codec_hdf5_fill(struct str fill, uint64_t size)
{
	struct fill *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	codec_init(&c->codec, &fill_ops, size);
	c->bytes = fill;
	return &c->codec;
}
