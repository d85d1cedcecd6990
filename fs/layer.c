/* SPDX-License-Identifier: MIT */
#include "fs/layer.h"

#include "parsers/core/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct range {
	uint64_t begin, end;
};

struct layer {
	int fd;
	bool frozen;
	struct extmap *base; /* may be NULL */
	uint64_t base_size;  /* so much of base still shows; a truncation lowers it for good */
	uint64_t size;
	struct range *ranges; /* sorted, never touching each other */
	size_t count, cap;
};

int layer_new(int fd, struct extmap *base, struct layer **out, struct error *e)
{
	struct layer *l = calloc(1, sizeof(*l));

	*out = NULL;
	if (!l) {
		close(fd);
		return error_set(e, ENOMEM, "no memory for a staged file");
	}
	l->fd = fd;
	if (base) {
		l->base = extmap_ref(base);
		l->base_size = l->size = base->size;
	}
	*out = l;
	return 0;
}

void layer_free(struct layer *l)
{
	if (!l)
		return;
	if (l->base)
		extmap_unref(l->base);
	close(l->fd);
	free(l->ranges);
	free(l);
}

uint64_t layer_size(const struct layer *l)
{
	return l->size;
}

/* index of the first range that ends behind offset, or at it when touching counts */
static size_t range_search(const struct layer *l, uint64_t offset, bool touching)
{
	size_t low = 0, high = l->count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		uint64_t end = l->ranges[mid].end;

		if (end > offset || (touching && end == offset))
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

/* Room for one more range, taken before the bytes are written so that no write is lost for want of it. */
static int range_reserve(struct layer *l, struct error *e)
{
	size_t cap = l->cap ? l->cap * 2 : 8;
	struct range *grown;

	if (l->count < l->cap)
		return 0;
	grown = reallocarray(l->ranges, cap, sizeof(*grown));
	if (!grown)
		return error_set(e, ENOMEM, "no memory for the list of %zu staged ranges", cap);
	l->ranges = grown;
	l->cap = cap;
	return 0;
}

static void range_add(struct layer *l, struct range r)
{
	size_t first = range_search(l, r.begin, true), last = first;

	while (last < l->count && l->ranges[last].begin <= r.end) {
		if (l->ranges[last].begin < r.begin)
			r.begin = l->ranges[last].begin;
		if (l->ranges[last].end > r.end)
			r.end = l->ranges[last].end;
		last++;
	}
	memmove(l->ranges + first + 1, l->ranges + last, (l->count - last) * sizeof(r));
	l->count = l->count - (last - first) + 1;
	l->ranges[first] = r;
}

static int staging_read(const struct layer *l, uint64_t offset, unsigned char *buf, size_t len,
	struct error *e)
{
	while (len) {
		ssize_t n = pread(l->fd, buf, len, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return error_at(e, EIO, offset, "cannot read the staged file: %s",
				n ? strerror(errno) : "it is shorter than what was written");
		buf += n;
		offset += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

/* The piece at offset: how far it reaches (at most to end), and where it comes from. */
static enum extent_kind piece_at(const struct layer *l, uint64_t offset, uint64_t end, uint64_t *len)
{
	size_t i = range_search(l, offset, false);

	if (i < l->count && l->ranges[i].begin <= offset) {
		*len = (l->ranges[i].end < end ? l->ranges[i].end : end) - offset;
		return EXTENT_SOURCE;
	}
	if (i < l->count && l->ranges[i].begin < end)
		end = l->ranges[i].begin;
	if (offset < l->base_size) {
		*len = (l->base_size < end ? l->base_size : end) - offset;
		return EXTENT_MAP;
	}
	*len = end - offset;
	return EXTENT_ZERO;
}

ssize_t layer_read(const struct layer *l, uint64_t offset, void *buf, size_t len, struct error *e)
{
	unsigned char *to = buf;
	uint64_t at = offset, n;

	if (offset >= l->size)
		return 0;
	if (len > l->size - offset)
		len = (size_t)(l->size - offset);
	for (; at < offset + len; at += n, to += n) {
		enum extent_kind kind = piece_at(l, at, offset + len, &n);
		int r = 0;

		if (kind == EXTENT_SOURCE)
			r = staging_read(l, at, to, (size_t)n, e);
		else if (kind == EXTENT_MAP)
			r = extmap_read(l->base, at, to, (size_t)n, e);
		else
			memset(to, 0, (size_t)n);
		if (r)
			return r;
	}
	return (ssize_t)len;
}

static int check_change(const struct layer *l, uint64_t offset, uint64_t len, struct error *e)
{
	uint64_t end;

	if (l->frozen)
		return error_set(e, EBUSY, "this staged content is already in use");
	if (ckd_add(&end, offset, len) || end > INT64_MAX)
		return error_set(e, EFBIG, "a staged file cannot reach beyond byte %lld",
			(long long)INT64_MAX);
	return 0;
}

int layer_write(struct layer *l, uint64_t offset, const void *buf, size_t len, struct error *e)
{
	const unsigned char *from = buf;
	size_t done = 0;
	int r = check_change(l, offset, len, e);

	if (!r && len)
		r = range_reserve(l, e);
	if (r || !len)
		return r;
	while (done < len) {
		ssize_t n = pwrite(l->fd, from + done, len - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return error_set(e, n ? errno : EIO, "cannot stage %zu bytes: %s", len,
				strerror(n ? errno : EIO));
		done += (size_t)n;
	}
	range_add(l, (struct range){offset, offset + len});
	if (offset + len > l->size)
		l->size = offset + len;
	return 0;
}

int layer_truncate(struct layer *l, uint64_t size, struct error *e)
{
	int r = check_change(l, size, 0, e);
	size_t i;

	if (r)
		return r;
	i = range_search(l, size, false);
	if (i < l->count) {
		/* gives the disk blocks back */
		while (ftruncate(l->fd, (off_t)size))
			if (errno != EINTR)
				return error_set(e, errno, "cannot cut the staged file: %s",
					strerror(errno));
		if (l->ranges[i].begin < size)
			l->ranges[i++].end = size;
		l->count = i;
	}
	if (size < l->base_size)
		l->base_size = size;
	l->size = size;
	return 0;
}

int layer_sync(const struct layer *l, struct error *e)
{
	if (fdatasync(l->fd))
		return error_set(e, errno, "cannot make staged bytes durable: %s", strerror(errno));
	return 0;
}

static int staging_source(const struct layer *l, struct source **out, struct error *e)
{
	int fd = fcntl(l->fd, F_DUPFD_CLOEXEC, 0);

	if (fd < 0)
		return error_set(e, errno, "cannot keep the staged file open: %s", strerror(errno));
	return source_from_fd(fd, "staged", out, e);
}

int layer_map(struct layer *l, struct extmap **out, struct error *e)
{
	struct source *staged = NULL;
	struct extmap *m = NULL;
	uint64_t at = 0, n;
	int r = 0;

	*out = NULL;
	if (l->count)
		r = staging_source(l, &staged, e);
	if (r)
		return r;
	m = extmap_new();
	if (!m) {
		r = error_set(e, ENOMEM, "no memory for a staged file");
		goto out;
	}
	for (; at < l->size; at += n) {
		enum extent_kind kind = piece_at(l, at, l->size, &n);

		if (kind == EXTENT_SOURCE)
			extmap_append_source(m, staged, at, n);
		else if (kind == EXTENT_MAP)
			extmap_append_map(m, l->base, at, n);
		else
			extmap_append_zero(m, n);
	}
	r = extmap_failed(m, e);
	if (r)
		goto out;
	l->frozen = true;
	*out = m;
	m = NULL;
out:
	if (m)
		extmap_unref(m);
	source_unref(staged);
	return r;
}
