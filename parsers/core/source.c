/* SPDX-License-Identifier: MIT */
#include "parsers/core/source.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct source {
	int fd; /* -1: memory */
	unsigned char *bytes;
	uint64_t size;
	struct stat st;
	char *name;
	void *map; /* made at the first peek; MAP_FAILED: cannot be mapped */
	pthread_mutex_t map_lock;
	int refs;
};

static struct source *source_new(const char *name)
{
	struct source *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->name = strdup(name);
	if (!s->name) {
		free(s);
		return NULL;
	}
	pthread_mutex_init(&s->map_lock, NULL);
	s->fd = -1;
	s->refs = 1;
	return s;
}

int source_from_fd(int fd, const char *name, struct source **out, struct error *e)
{
	struct source *s = NULL;
	struct stat st;
	int r;

	*out = NULL;
	if (fstat(fd, &st) < 0) {
		r = error_set(e, errno, "cannot look at '%s': %s", name, strerror(errno));
		goto fail;
	}
	if (!S_ISREG(st.st_mode)) {
		r = error_set(e, S_ISDIR(st.st_mode) ? EISDIR : EINVAL, "'%s' is no regular file", name);
		goto fail;
	}
	s = source_new(name);
	if (!s) {
		r = error_set(e, ENOMEM, "out of memory");
		goto fail;
	}
	s->fd = fd;
	s->st = st;
	s->size = (uint64_t)st.st_size;
	*out = s;
	return 0;
fail:
	close(fd);
	return r;
}

int source_open(const char *path, struct source **out, struct error *e)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

	*out = NULL;
	if (fd < 0)
		return error_set(e, errno, "cannot open '%s': %s", path, strerror(errno));
	return source_from_fd(fd, path, out, e);
}

struct source *source_from_memory(void *bytes, size_t size, const char *name)
{
	struct source *s = source_new(name);

	if (!s) {
		free(bytes);
		return NULL;
	}
	s->bytes = bytes;
	s->size = size;
	return s;
}

struct source *source_ref(struct source *s)
{
	if (s)
		__atomic_add_fetch(&s->refs, 1, __ATOMIC_RELAXED);
	return s;
}

void source_unref(struct source *s)
{
	if (!s || __atomic_sub_fetch(&s->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	if (s->map && s->map != MAP_FAILED)
		munmap(s->map, s->size);
	if (s->fd >= 0)
		close(s->fd);
	pthread_mutex_destroy(&s->map_lock);
	free(s->bytes);
	free(s->name);
	free(s);
}

uint64_t source_size(const struct source *s)
{
	return s->size;
}

const char *source_name(const struct source *s)
{
	return s->name;
}

int source_fd(const struct source *s)
{
	return s->fd;
}

const struct stat *source_stat(const struct source *s)
{
	return &s->st;
}

static bool is_inside(const struct source *s, uint64_t offset, uint64_t len)
{
	return offset <= s->size && len <= s->size - offset;
}

int source_read(struct source *s, uint64_t offset, void *buf, size_t len, struct error *e)
{
	size_t done = 0;

	if (!is_inside(s, offset, len))
		return error_at(e, EIO, offset, "%zu bytes are expected, '%s' ends at %llu", len, s->name,
			(unsigned long long)s->size);
	if (s->fd < 0) {
		if (len)
			memcpy(buf, s->bytes + offset, len);
		return 0;
	}
	while (done < len) {
		ssize_t n = pread(s->fd, (char *)buf + done, len - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_at(e, EIO, offset + done, "cannot read '%s': %s", s->name,
				strerror(errno));
		if (n == 0)
			return error_at(e, EIO, offset + done, "'%s' was truncated while in use", s->name);
		done += (size_t)n;
	}
	return 0;
}

const void *source_peek(struct source *s, uint64_t offset, size_t len)
{
	void *map;

	if (!is_inside(s, offset, len) || len == 0)
		return NULL;
	if (s->fd < 0)
		return s->bytes + offset;
	map = __atomic_load_n(&s->map, __ATOMIC_ACQUIRE);
	if (!map) {
		pthread_mutex_lock(&s->map_lock);
		if (!s->map) {
			map = mmap(NULL, s->size, PROT_READ, MAP_SHARED, s->fd, 0);
			__atomic_store_n(&s->map, map, __ATOMIC_RELEASE);
		}
		map = s->map;
		pthread_mutex_unlock(&s->map_lock);
	}
	return map == MAP_FAILED ? NULL : (const char *)map + offset;
}
