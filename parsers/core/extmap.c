/* SPDX-License-Identifier: MIT */
#include "parsers/core/extmap.h"

#include "parsers/core/check.h"
#include "parsers/core/codec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Maps in maps: a layer over a layer over a file is 3; more than this is a mistake of ours. */
enum { DEPTH_MAX = 64 };

struct extent extent_source(struct source *src, uint64_t offset, uint64_t size)
{
	return (struct extent){.size = size, .offset = offset, .kind = EXTENT_SOURCE, .src = src};
}

struct extent extent_memory(const void *bytes, uint64_t size)
{
	return (struct extent){.size = size, .kind = EXTENT_MEMORY, .bytes = bytes};
}

struct extent extent_codec(struct codec *c)
{
	return (struct extent){.size = c->size, .kind = EXTENT_CODEC, .codec = c};
}

struct extent extent_zero(uint64_t size)
{
	return (struct extent){.size = size, .kind = EXTENT_ZERO};
}

struct extent extent_map(struct extmap *m)
{
	return (struct extent){.size = m->size, .kind = EXTENT_MAP, .map = m};
}

struct extent extent_slice(struct extent x, uint64_t offset, uint64_t size)
{
	if (offset > x.size)
		offset = x.size;
	x.size -= offset;
	x.offset += offset;
	if (size < x.size)
		x.size = size;
	return x;
}

void extent_ref(const struct extent *x)
{
	if (x->kind == EXTENT_SOURCE)
		source_ref(x->src);
	else if (x->kind == EXTENT_CODEC)
		codec_ref(x->codec);
	else if (x->kind == EXTENT_MAP)
		extmap_ref(x->map);
}

void extent_unref(const struct extent *x)
{
	if (x->kind == EXTENT_SOURCE)
		source_unref(x->src);
	else if (x->kind == EXTENT_CODEC)
		codec_unref(x->codec);
	else if (x->kind == EXTENT_MAP)
		extmap_unref(x->map);
}

static int map_read(const struct extmap *m, uint64_t offset, void *buf, size_t len, unsigned depth,
	struct error *e);

static int piece_read(const struct extent *x, uint64_t offset, void *buf, size_t len, unsigned depth,
	struct error *e)
{
	if (offset > x->size || len > x->size - offset)
		return error_set(e, EINVAL, "read of %zu bytes at %llu outside a piece of %llu", len,
			(unsigned long long)offset, (unsigned long long)x->size);
	switch (x->kind) {
	case EXTENT_ZERO:
		memset(buf, 0, len);
		return 0;
	case EXTENT_SOURCE:
		return source_read(x->src, x->offset + offset, buf, len, e);
	case EXTENT_MEMORY:
		if (len)
			memcpy(buf, (const char *)x->bytes + x->offset + offset, len);
		return 0;
	case EXTENT_CODEC:
		return codec_read(x->codec, x->offset + offset, buf, len, e);
	case EXTENT_MAP:
		return map_read(x->map, x->offset + offset, buf, len, depth + 1, e);
	}
	return error_set(e, EINVAL, "a piece of unknown kind");
}

int extent_read(const struct extent *x, uint64_t offset, void *buf, size_t len, struct error *e)
{
	return piece_read(x, offset, buf, len, 0, e);
}

/* Index of the piece that holds offset, count at or past the end. */
static size_t find(const struct extmap *m, uint64_t offset)
{
	size_t low = 0, high = m->count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (m->ends[mid] <= offset)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static uint64_t begin_of(const struct extmap *m, size_t i)
{
	return i ? m->ends[i - 1] : 0;
}

static int map_read(const struct extmap *m, uint64_t offset, void *buf, size_t len, unsigned depth,
	struct error *e)
{
	if (depth > DEPTH_MAX)
		return error_set(e, ELOOP, "extent maps are nested too deep");
	if (m->failed)
		return extmap_failed(m, e);
	if (offset > m->size || len > m->size - offset)
		return error_set(e, EINVAL, "read of %zu bytes at %llu outside a file of %llu", len,
			(unsigned long long)offset, (unsigned long long)m->size);
	for (size_t i = find(m, offset); len > 0; i++) {
		uint64_t within = offset - begin_of(m, i), left = m->ends[i] - offset;
		size_t n = left < len ? (size_t)left : len;
		int r = piece_read(&m->pieces[i], within, buf, n, depth, e);

		if (r < 0)
			return r;
		buf = (char *)buf + n;
		offset += n;
		len -= n;
	}
	return 0;
}

int extmap_read(const struct extmap *m, uint64_t offset, void *buf, size_t len, struct error *e)
{
	return map_read(m, offset, buf, len, 0, e);
}

const void *extmap_peek(const struct extmap *m, uint64_t offset, size_t len)
{
	for (unsigned depth = 0; depth < DEPTH_MAX; depth++) {
		const struct extent *x;
		uint64_t begin, within;

		x = extmap_find(m, offset, &begin);
		if (!x || len > x->size - (offset - begin))
			return NULL;
		within = x->offset + (offset - begin);
		if (x->kind == EXTENT_SOURCE)
			return source_peek(x->src, within, len);
		if (x->kind == EXTENT_MEMORY)
			return (const char *)x->bytes + within;
		if (x->kind != EXTENT_MAP)
			return NULL;
		m = x->map;
		offset = within;
	}
	return NULL;
}

const struct extent *extmap_find(const struct extmap *m, uint64_t offset, uint64_t *begin)
{
	size_t i = find(m, offset);

	if (m->failed || i == m->count)
		return NULL;
	*begin = begin_of(m, i);
	return &m->pieces[i];
}

/* ---- building ---- */

struct extmap *extmap_new(void)
{
	struct extmap *m = calloc(1, sizeof(*m));

	if (m)
		m->refs = 1;
	return m;
}

struct extmap *extmap_ref(struct extmap *m)
{
	if (m)
		__atomic_add_fetch(&m->refs, 1, __ATOMIC_RELAXED);
	return m;
}

void extmap_unref(struct extmap *m)
{
	if (!m || __atomic_sub_fetch(&m->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	extmap_release(m);
	free(m);
}

void extmap_release(struct extmap *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < m->count; i++)
		extent_unref(&m->pieces[i]);
	for (size_t i = 0; i < m->owned_count; i++)
		m->owned[i].release(m->owned[i].object);
	free(m->pieces);
	free(m->ends);
	free(m->owned);
	*m = (struct extmap){0};
}

static int mark(struct extmap *m, int code)
{
	if (!m->failed)
		m->failed = -code;
	return m->failed;
}

int extmap_failed(const struct extmap *m, struct error *e)
{
	return m->failed ? error_set(e, -m->failed, "a file could not be laid out: %s", strerror(-m->failed)) : 0;
}

static bool reserve(struct extmap *m)
{
	size_t cap = m->cap ? m->cap * 2 : 4;
	struct extent *pieces;
	uint64_t *ends;

	if (m->count < m->cap)
		return true;
	pieces = reallocarray(m->pieces, cap, sizeof(*pieces));
	if (!pieces)
		return false;
	m->pieces = pieces;
	ends = reallocarray(m->ends, cap, sizeof(*ends));
	if (!ends)
		return false;
	m->ends = ends;
	m->cap = cap;
	return true;
}

/* Two ranges of one source that touch are one. */
static bool joins(const struct extmap *m, const struct extent *x)
{
	const struct extent *last = m->count ? &m->pieces[m->count - 1] : NULL;

	return last && x->kind == EXTENT_SOURCE && last->kind == EXTENT_SOURCE && last->src == x->src &&
	       last->offset + last->size == x->offset;
}

int extmap_append(struct extmap *m, const struct extent *x)
{
	uint64_t end;

	if (m->failed || x->size == 0)
		return m->failed;
	if (ckd_add(&end, m->size, x->size) || end > INT64_MAX)
		return mark(m, EOVERFLOW);
	if (joins(m, x)) {
		m->pieces[m->count - 1].size += x->size;
		m->ends[m->count - 1] = m->size = end;
		return 0;
	}
	if (!reserve(m))
		return mark(m, ENOMEM);
	extent_ref(x);
	m->pieces[m->count] = *x;
	m->ends[m->count++] = m->size = end;
	return 0;
}

int extmap_append_map(struct extmap *m, const struct extmap *other, uint64_t offset, uint64_t size)
{
	uint64_t end;

	if (other->failed)
		return mark(m, -other->failed);
	if (ckd_add(&end, offset, size) || end > other->size)
		return mark(m, EINVAL);
	for (size_t i = find(other, offset); size > 0; i++) {
		uint64_t within = offset - begin_of(other, i);
		struct extent part = extent_slice(other->pieces[i], within, size);
		int r = extmap_append(m, &part);

		if (r < 0)
			return r;
		offset += part.size;
		size -= part.size;
	}
	return 0;
}

int extmap_append_kept(struct extmap *m, const struct extmap *other)
{
	int r = other->failed ? mark(m, -other->failed) : 0;

	for (size_t i = 0; r == 0 && i < other->count; i++) {
		const struct extent *x = &other->pieces[i];

		if (x->kind == EXTENT_MEMORY)
			r = extmap_append_copy(m, (const char *)x->bytes + x->offset, (size_t)x->size);
		else
			r = extmap_append(m, x);
	}
	return r;
}

int extmap_append_source(struct extmap *m, struct source *src, uint64_t offset, uint64_t size)
{
	struct extent x = extent_source(src, offset, size);

	return extmap_append(m, &x);
}

int extmap_append_memory(struct extmap *m, const void *bytes, uint64_t size)
{
	struct extent x = extent_memory(bytes, size);

	return extmap_append(m, &x);
}

int extmap_keep(struct extmap *m, void (*release)(void *object), void *object)
{
	if (m->owned_count == m->owned_cap && !m->failed) {
		size_t cap = m->owned_cap ? m->owned_cap * 2 : 4;
		void *grown = reallocarray(m->owned, cap, sizeof(*m->owned));

		if (!grown)
			mark(m, ENOMEM);
		else {
			m->owned = grown;
			m->owned_cap = cap;
		}
	}
	if (m->failed) {
		release(object);
		return m->failed;
	}
	m->owned[m->owned_count++] = (struct extmap_owned){release, object};
	return 0;
}

int extmap_append_take(struct extmap *m, void *heap, size_t size)
{
	int r = extmap_keep(m, free, heap);

	return r < 0 ? r : extmap_append_memory(m, heap, size);
}

int extmap_append_copy(struct extmap *m, const void *bytes, size_t size)
{
	void *heap = malloc(size ? size : 1);

	if (!heap)
		return mark(m, ENOMEM);
	if (size)
		memcpy(heap, bytes, size);
	return extmap_append_take(m, heap, size);
}

int extmap_append_zero(struct extmap *m, uint64_t size)
{
	struct extent x = extent_zero(size);

	return extmap_append(m, &x);
}
