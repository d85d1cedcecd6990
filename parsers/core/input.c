/* SPDX-License-Identifier: MIT */
#include "parsers/core/input.h"

#include "parsers/core/arena.h"
#include "parsers/core/limits.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct str last_component(const char *path)
{
	size_t len = strlen(path);
	const char *slash;

	while (len > 1 && path[len - 1] == '/')
		len--;
	slash = memrchr(path, '/', len);
	if (slash && len > 1)
		return (struct str){slash + 1, len - (size_t)(slash + 1 - path)};
	return (struct str){path, len};
}

static int open_parent(struct input *in, struct error *e)
{
	size_t len = (size_t)(in->base.ptr - in->path);
	char *dir = len ? strndup(in->path, len) : strdup(".");
	int r;

	if (!dir)
		return error_set(e, ENOMEM, "out of memory");
	in->dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	r = in->dir_fd < 0 ? error_set(e, errno, "cannot open directory '%s': %s", dir, strerror(errno)) : 0;
	free(dir);
	return r;
}

int input_open(struct input *in, const char *path, struct error *e)
{
	struct stat st;
	int r;

	*in = (struct input){.path = path, .base = last_component(path), .dir_fd = -1, .step = -1};
	if (!*path)
		return error_set(e, ENOENT, "no file is named");
	if (stat(path, &st) < 0) {
		/* a checkpoint prefix names no file itself; its directory must be there */
		if (errno != ENOENT)
			return error_set(e, errno, "cannot open '%s': %s", path, strerror(errno));
		r = open_parent(in, NULL);
		return r < 0 ? error_set(e, ENOENT, "cannot open '%s': %s", path, strerror(ENOENT)) : 0;
	}
	if (S_ISDIR(st.st_mode)) {
		in->is_dir = true;
		in->dir_fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (in->dir_fd < 0)
			return error_set(e, errno, "cannot open '%s': %s", path, strerror(errno));
		return 0;
	}
	r = open_parent(in, e);
	if (r == 0)
		r = source_open(path, &in->src, e);
	if (r < 0)
		input_close(in);
	return r;
}

void input_close(struct input *in)
{
	source_unref(in->src);
	in->src = NULL;
	if (in->dir_fd >= 0)
		close(in->dir_fd);
	in->dir_fd = -1;
}

/* ---- companions ---- */

static int open_beneath(int dir, const char *name, uint64_t flags)
{
	struct open_how how = {
		.flags = flags | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};

	return (int)syscall(SYS_openat2, dir, name, &how, sizeof(how));
}

/* Without openat2 (before Linux 5.6, or filtered): one component after the other, none of them a link. */
static int walk_beneath(int dir, const char *name, int flags)
{
	int at = dup(dir);

	while (at >= 0) {
		size_t n = strcspn(name, "/");
		bool last = name[n] == '\0';
		char part[NAME_MAX + 1];
		int next;

		if (n > NAME_MAX) {
			close(at);
			errno = ENAMETOOLONG;
			return -1;
		}
		memcpy(part, name, n);
		part[n] = '\0';
		next = n ? openat(at, part, (last ? flags : O_PATH | O_DIRECTORY) | O_NOFOLLOW | O_CLOEXEC)
			 : dup(at);
		close(at);
		if (last || next < 0)
			return next;
		at = next;
		name += n + 1;
	}
	return -1;
}

static int open_inside(int dir, const char *name, int flags)
{
	int fd = open_beneath(dir, name, (uint64_t)flags);

	if (fd < 0 && (errno == ENOSYS || errno == EPERM))
		fd = walk_beneath(dir, name, flags);
	return fd;
}

static bool has_dots(struct str name)
{
	for (size_t i = 0; i <= name.len;) {
		const char *slash = i < name.len ? memchr(name.ptr + i, '/', name.len - i) : NULL;
		size_t n = slash ? (size_t)(slash - name.ptr) - i : name.len - i;

		if (n == 2 && name.ptr[i] == '.' && name.ptr[i + 1] == '.')
			return true;
		i += n + 1;
	}
	return false;
}

/*
 * The blob cache of model hubs: NAME is a link with the text ../../blobs/HEX (one more ../ for each directory that
 * NAME has). The link is followed by ourselves: the blobs directory must be a real directory beside the
 * snapshots, the blob a regular file. Returns a descriptor, or -1 when this is no such link.
 */
static int open_blob(const struct input *in, const char *name)
{
	char text[PATH_MAX];
	const char *slash = strrchr(name, '/'), *p = text, *hex;
	size_t ups = 0, want = 2;
	ssize_t n;
	int parent, fd;

	for (const char *s = name; *s; s++)
		want += *s == '/';
	if (slash) {
		char *dir = strndup(name, (size_t)(slash - name));

		parent = dir ? open_inside(in->dir_fd, dir, O_PATH | O_DIRECTORY) : -1;
		free(dir);
	} else {
		parent = dup(in->dir_fd);
	}
	if (parent < 0)
		return -1;
	n = readlinkat(parent, slash ? slash + 1 : name, text, sizeof(text) - 1);
	close(parent);
	if (n <= 0)
		return -1;
	text[n] = '\0';
	while (strncmp(p, "../", 3) == 0) {
		p += 3;
		ups++;
	}
	if (ups != want || strncmp(p, "blobs/", 6) != 0)
		return -1;
	hex = p + 6;
	if (!*hex || hex[strspn(hex, "0123456789abcdef")] != '\0')
		return -1;
	/* dir_fd is snapshots/REV; its grandparent holds blobs/ */
	parent = openat(in->dir_fd, "../../blobs", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (parent < 0)
		return -1;
	fd = openat(parent, hex, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	close(parent);
	return fd;
}

static int why_not_opened(struct str name, int code, struct error *e)
{
	if (code == ELOOP)
		return error_set(e, EINVAL, "companion file '%.*s' is a symbolic link or passes one, which is refused",
			STR_ARG(name));
	if (code == EXDEV)
		return error_set(e, EINVAL, "companion file '%.*s' lies outside the model's directory",
			STR_ARG(name));
	return error_set(e, code, "cannot open companion file '%.*s': %s", STR_ARG(name), strerror(code));
}

int input_companion(const struct input *in, struct str name, unsigned flags, struct source **out,
	struct error *e)
{
	char *path;
	int fd, r;

	*out = NULL;
	if (!name.len || memchr(name.ptr, '\0', name.len))
		return error_set(e, EINVAL, "companion file name '%.*s' is no file name", STR_ARG(name));
	if (name.ptr[0] == '/')
		return error_set(e, EINVAL, "companion file '%.*s' has an absolute path, expected one inside the model's directory",
			STR_ARG(name));
	if (has_dots(name))
		return error_set(e, EINVAL, "companion file '%.*s' has '..' in its path, expected one inside the model's directory",
			STR_ARG(name));
	path = strndup(name.ptr, name.len);
	if (!path)
		return error_set(e, ENOMEM, "out of memory");
	fd = open_inside(in->dir_fd, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
	if (fd < 0 && errno == ELOOP) {
		fd = open_blob(in, path);
		if (fd < 0)
			errno = ELOOP;
	}
	r = fd < 0 ? why_not_opened(name, errno, e) : source_from_fd(fd, path, out, e);
	free(path);
	if (r == 0 && (flags & INPUT_NO_HARDLINKS) && source_stat(*out)->st_nlink > 1) {
		r = error_set(e, EINVAL, "companion file '%.*s' has %u hard links, expected one", STR_ARG(name),
			(unsigned)source_stat(*out)->st_nlink);
		source_unref(*out);
		*out = NULL;
	}
	return r;
}

bool input_has(const struct input *in, const char *name)
{
	struct source *s;
	bool has = input_companion(in, str_from(name), 0, &s, NULL) == 0;

	source_unref(s);
	return has;
}

/* ---- listing ---- */

static int str_order(const void *a, const void *b)
{
	return str_cmp(*(const struct str *)a, *(const struct str *)b);
}

static bool is_directory(int dir, const struct dirent *d)
{
	struct stat st;

	if (d->d_type != DT_UNKNOWN)
		return d->d_type == DT_DIR;
	return fstatat(dir, d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

int input_list(const struct input *in, struct str name, struct arena *a, struct str **out, size_t *count,
	struct error *e)
{
	char *path = name.len ? strndup(name.ptr, name.len) : strdup(".");
	size_t n = 0, cap = 0;
	struct dirent *d;
	DIR *dir;
	int fd, r = 0;

	*out = NULL;
	*count = 0;
	if (!path)
		return error_set(e, ENOMEM, "out of memory");
	fd = has_dots(name) ? -1 : open_inside(in->dir_fd, path, O_RDONLY | O_DIRECTORY);
	dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		r = error_set(e, errno ? errno : EINVAL, "cannot list directory '%s': %s", path,
			strerror(errno));
		if (fd >= 0)
			close(fd);
		free(path);
		return r;
	}
	while (r == 0 && (d = readdir(dir)) != NULL) {
		if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
			continue;
		if (n == LIMIT_TENSORS)
			r = error_set(e, EIO, "directory '%s' has too many entries", path);
		if (n == cap) {
			struct str *more = arena_array(a, cap ? cap * 2 : 16, sizeof(*more));

			if (more && n)
				memcpy(more, *out, n * sizeof(*more));
			*out = more ? more : *out;
			r = more ? r : error_set(e, ENOMEM, "out of memory");
			cap = cap ? cap * 2 : 16;
		}
		if (r == 0) {
			(*out)[n] = arena_printf(a, "%s%s", d->d_name, is_directory(fd, d) ? "/" : "");
			r = (*out)[n].ptr ? 0 : error_set(e, ENOMEM, "out of memory");
			n++;
		}
	}
	closedir(dir);
	free(path);
	if (r == 0 && n)
		qsort(*out, n, sizeof(**out), str_order);
	*count = r == 0 ? n : 0;
	return r;
}
