/* SPDX-License-Identifier: MIT */
#include "fs/output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* stays in the cache of one core between reading and writing */
#define BUFFER (256u << 10)
/* Kernels share or copy whole pages. Ranges that lie differently in their pages go faster through the buffer. */
#define PAGE 4096u
/* so that a progress bar moves, and the disk too */
#define STEP (16u << 20)
/* maps in maps: an edit of an edit; deeper ones are read through, which is right but slower */
#define MAP_DEPTH 8

struct writer {
	int fd;
	uint64_t at; /* in the output */
	uint64_t started; /* the disk was told to write up to here; UINT64_MAX: it never is */
	const struct output_progress *progress;
	unsigned char *buf;
	struct error *e;
};

static void advance(struct writer *w, uint64_t n)
{
	w->at += n;
	if (w->progress && n)
		w->progress->add(w->progress->arg, n);
	if (w->started < w->at && w->at - w->started >= STEP) {
		/* only a hint; what fails is reported by fsync */
		sync_file_range(w->fd, (off_t)w->started, (off_t)(w->at - w->started), SYNC_FILE_RANGE_WRITE);
		w->started = w->at;
	}
}

static int write_failed(struct error *e, int code)
{
	return error_set(e, code, "writing failed: %s", strerror(code));
}

static int put(struct writer *w, const unsigned char *p, size_t len)
{
	uint64_t at = w->at;

	for (size_t done = 0; done < len;) {
		ssize_t n = pwrite(w->fd, p + done, len - done, (off_t)(at + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return write_failed(w->e, n < 0 ? errno : ENOSPC);
		done += (size_t)n;
	}
	advance(w, len);
	return 0;
}

static bool is_zero(const unsigned char *p, size_t len)
{
	return len == 0 || (p[0] == 0 && memcmp(p, p + 1, len - 1) == 0);
}

/* Through the buffer; a buffer of zeroes stays a hole. */
static int put_read(struct writer *w, const struct extent *x, uint64_t offset, uint64_t size)
{
	while (size) {
		size_t n = size < BUFFER ? (size_t)size : BUFFER;
		int r = extent_read(x, offset, w->buf, n, w->e);

		if (r < 0)
			return r;
		if (is_zero(w->buf, n))
			advance(w, n);
		else if ((r = put(w, w->buf, n)) < 0)
			return r;
		offset += n;
		size -= n;
	}
	return 0;
}

/* Bytes from `pos` that lie in a hole of the source file. */
static uint64_t hole_at(int fd, uint64_t pos, uint64_t size)
{
	off_t data = lseek(fd, (off_t)pos, SEEK_DATA);

	if (data < 0)
		return errno == ENXIO ? size : 0;
	return (uint64_t)data - pos < size ? (uint64_t)data - pos : size;
}

static uint64_t data_at(int fd, uint64_t pos, uint64_t size)
{
	off_t hole = lseek(fd, (off_t)pos, SEEK_HOLE);

	if (hole < 0 || (uint64_t)hole <= pos)
		return size;
	return (uint64_t)hole - pos < size ? (uint64_t)hole - pos : size;
}

/* How many of `size` bytes the kernel copied; fewer when it cannot copy between these files. */
static uint64_t put_range(struct writer *w, int from, uint64_t pos, uint64_t size)
{
	uint64_t done = 0;

	while (done < size) {
		off_t in = (off_t)(pos + done), out = (off_t)w->at;
		uint64_t step = size - done < STEP ? size - done : STEP;
		ssize_t n = copy_file_range(from, &in, w->fd, &out, (size_t)step, 0);

		if (n <= 0)
			break; /* the buffered way tries again and reports */
		done += (uint64_t)n;
		advance(w, (uint64_t)n);
	}
	return done;
}

/* Bytes of a file that are there, no hole: whole pages by the kernel, which shares them only when they are whole. */
static int put_data(struct writer *w, const struct extent *x, uint64_t offset, uint64_t size)
{
	uint64_t at = x->offset + offset, head = (PAGE - at % PAGE) % PAGE, done;
	int r;

	if (at % PAGE != w->at % PAGE || size < head + PAGE)
		return put_read(w, x, offset, size);
	r = put_read(w, x, offset, head);
	if (r < 0)
		return r;
	done = head + put_range(w, source_fd(x->src), at + head, (size - head) / PAGE * PAGE);
	return put_read(w, x, offset + done, size - done);
}

static int put_source(struct writer *w, const struct extent *x, uint64_t offset, uint64_t size)
{
	int fd = source_fd(x->src);
	bool kernel = fd >= 0;

	/* a file that shrank must be an error, not a hole */
	if (fd >= 0 && (x->offset + offset > source_size(x->src) ||
			       size > source_size(x->src) - x->offset - offset))
		kernel = false;
	while (size && kernel) {
		uint64_t hole = hole_at(fd, x->offset + offset, size), data;
		struct stat st;
		int r;

		if (hole && (fstat(fd, &st) < 0 ||
				    (uint64_t)st.st_size < x->offset + offset + hole))
			break;
		advance(w, hole);
		offset += hole;
		size -= hole;
		data = size ? data_at(fd, x->offset + offset, size) : 0;
		r = put_data(w, x, offset, data);
		if (r < 0)
			return r;
		offset += data;
		size -= data;
	}
	return size ? put_read(w, x, offset, size) : 0;
}

static int put_map(struct writer *w, const struct extmap *m, uint64_t offset, uint64_t size,
	unsigned depth);

static int put_piece(struct writer *w, const struct extent *x, uint64_t offset, uint64_t size,
	unsigned depth)
{
	switch (x->kind) {
	case EXTENT_ZERO:
		advance(w, size);
		return 0;
	case EXTENT_SOURCE:
		return put_source(w, x, offset, size);
	case EXTENT_MAP:
		if (depth < MAP_DEPTH)
			return put_map(w, x->map, x->offset + offset, size, depth + 1);
		break;
	default:
		break;
	}
	return put_read(w, x, offset, size);
}

static int put_map(struct writer *w, const struct extmap *m, uint64_t offset, uint64_t size,
	unsigned depth)
{
	while (size) {
		uint64_t begin, n;
		const struct extent *x = extmap_find(m, offset, &begin);
		int r;

		if (!x)
			return error_set(w->e, EIO, "byte %" PRIu64 " of a map of %" PRIu64
				" bytes is missing", offset, m->size);
		n = x->size - (offset - begin);
		if (n > size)
			n = size;
		r = put_piece(w, x, offset - begin, n, depth);
		if (r < 0)
			return r;
		offset += n;
		size -= n;
	}
	return 0;
}

int output_map(int fd, const struct extmap *m, unsigned flags, const struct output_progress *progress,
	struct error *e)
{
	struct writer w = {.fd = fd,
		.started = flags & OUTPUT_SYNC ? 0 : UINT64_MAX,
		.progress = progress,
		.e = e};
	int r = extmap_failed(m, e);

	if (r < 0)
		return r;
	if (ftruncate(fd, (off_t)m->size) < 0)
		return write_failed(e, errno);
	w.buf = malloc(BUFFER);
	if (!w.buf)
		return error_set(e, ENOMEM, "out of memory for writing");
	r = put_map(&w, m, 0, m->size, 0);
	free(w.buf);
	return r;
}

#define TEMP_PREFIX ".wiamodel-"
#define TEMP_DIGITS 16
/* so much of the name is kept in that of the temporary file: it may tell the format */
#define TEMP_NAME_MAX 200

/* A new file that nobody else sees as abandoned: its lock is held as long as it is open. 1: try again. */
static int create_temp(struct output_file *o, mode_t mode)
{
	size_t len = strlen(o->name);
	const char *tail = len > TEMP_NAME_MAX ? o->name + len - TEMP_NAME_MAX : o->name;
	uint64_t salt = 0;
	struct stat st;

	if (getrandom(&salt, sizeof(salt), 0) < 0 ||
		asprintf(&o->temp, TEMP_PREFIX "%016" PRIx64 ".%s", salt, tail) < 0) {
		o->temp = NULL;
		return -ENOMEM;
	}
	o->fd = openat(o->dir_fd, o->temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
	if (o->fd < 0) {
		int r = errno == EEXIST ? 1 : -errno;

		free(o->temp);
		o->temp = NULL;
		return r;
	}
	/* where there are no locks, nothing is swept either */
	if ((flock(o->fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) && fstat(o->fd, &st) == 0 && st.st_nlink)
		return 0;
	close(o->fd);
	unlinkat(o->dir_fd, o->temp, 0);
	free(o->temp);
	o->temp = NULL;
	o->fd = -1;
	return 1;
}

int output_open(struct output_file *o, int dir_fd, const char *name, mode_t mode, struct error *e)
{
	int r = 1;

	*o = (struct output_file){.fd = -1, .dir_fd = dir_fd};
	o->name = strdup(name);
	for (int attempt = 0; o->name && r == 1 && attempt < 100; attempt++)
		r = create_temp(o, mode);
	if (o->name && r == 0)
		return 0;
	output_abandon(o);
	if (r == 1 || r == -ENOMEM)
		return error_set(e, ENOMEM, "out of memory for '%s'", name);
	return error_set(e, -r, "cannot create a file beside '%s': %s", name, strerror(-r));
}

static bool is_temp_name(const char *name)
{
	const size_t prefix = sizeof(TEMP_PREFIX) - 1;

	return strncmp(name, TEMP_PREFIX, prefix) == 0 &&
	       strspn(name + prefix, "0123456789abcdef") == TEMP_DIGITS && name[prefix + TEMP_DIGITS] == '.';
}

void output_sweep(int dir_fd)
{
	int list = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = list < 0 ? NULL : fdopendir(list);
	struct dirent *x;

	if (!d && list >= 0)
		close(list);
	while (d && (x = readdir(d))) {
		struct stat st;
		int fd;

		if (!is_temp_name(x->d_name))
			continue;
		fd = openat(dir_fd, x->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
		if (fd < 0)
			continue;
		if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
			flock(fd, LOCK_EX | LOCK_NB) == 0)
			unlinkat(dir_fd, x->d_name, 0);
		close(fd);
	}
	if (d)
		closedir(d);
}

static int give_name(struct output_file *o, unsigned flags, struct error *e)
{
	int r;

	if (flags & OUTPUT_REPLACE) {
		r = renameat(o->dir_fd, o->temp, o->dir_fd, o->name);
	} else {
		/* link(2) refuses a taken name on file systems without RENAME_NOREPLACE too */
		r = renameat2(o->dir_fd, o->temp, o->dir_fd, o->name, RENAME_NOREPLACE);
		if (r < 0 && errno == EINVAL &&
			(r = linkat(o->dir_fd, o->temp, o->dir_fd, o->name, 0)) == 0)
			unlinkat(o->dir_fd, o->temp, 0);
	}
	if (r < 0)
		return error_set(e, errno, "cannot create '%s': %s", o->name, strerror(errno));
	free(o->temp);
	o->temp = NULL;
	return 0;
}

/* O_PATH descriptors cannot be synced: opens the directory again. */
static int sync_dir(int dir_fd, struct error *e)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;

	if (fd < 0 || fsync(fd) < 0)
		r = error_set(e, errno, "syncing the directory failed: %s", strerror(errno));
	if (fd >= 0)
		close(fd);
	return r;
}

int output_finish(struct output_file *o, unsigned flags, struct error *e)
{
	int r = 0, last;

	if (flags & OUTPUT_SYNC && fsync(o->fd) < 0)
		r = error_set(e, errno, "syncing '%s' failed: %s", o->name, strerror(errno));
	/* what close(2) would say must be known before the file has its name, and the lock is needed until then */
	last = r ? -1 : fcntl(o->fd, F_DUPFD_CLOEXEC, 0);
	if (!r && (last < 0 || close(last) < 0))
		r = error_set(e, errno, "closing '%s' failed: %s", o->name, strerror(errno));
	if (!r)
		r = give_name(o, flags, e);
	if (!r && flags & OUTPUT_SYNC)
		r = sync_dir(o->dir_fd, e);
	output_abandon(o);
	return r;
}

void output_abandon(struct output_file *o)
{
	if (!o->name && !o->temp)
		return;
	if (o->fd >= 0)
		close(o->fd);
	if (o->temp)
		unlinkat(o->dir_fd, o->temp, 0);
	free(o->temp);
	free(o->name);
	*o = (struct output_file){.fd = -1};
}
