/* SPDX-License-Identifier: MIT */
/*
 * The least a FUSE server can do, to measure ours against: files of given sizes in one directory, their bytes one
 * after the other in one mapped file, replies straight from the mapping, everything cached for ever.
 *
 *   null FILE DIR SIZE...      files 0, 1, ... of DIR; ends when unmounted
 *
 * Mounted and served with what libfuse offers, nothing of wiamodel's in it.
 */
#define FUSE_USE_VERSION 314
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOREVER 1e8

static const char *bytes; /* the mapping */
static struct file {
	uint64_t offset, size;
} *files;
static uint64_t file_count;

/* Inode 1 is the directory, i + 2 file i. */
static int fill(fuse_ino_t ino, struct stat *st)
{
	memset(st, 0, sizeof(*st));
	if (ino > file_count + 1)
		return -ENOENT;
	st->st_ino = ino;
	st->st_nlink = ino == FUSE_ROOT_ID ? 2 : 1;
	st->st_mode = ino == FUSE_ROOT_ID ? S_IFDIR | 0555 : S_IFREG | 0444;
	st->st_size = ino == FUSE_ROOT_ID ? 0 : (off_t)files[ino - 2].size;
	return 0;
}

static void null_init(void *data, struct fuse_conn_info *conn)
{
	(void)data;
	conn->want &= ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE |
		FUSE_CAP_AUTO_INVAL_DATA);
	conn->max_readahead = 1u << 20;
	conn->max_write = 1u << 20;
	conn->max_background = 64;
	conn->congestion_threshold = 48;
}

static void null_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param p = {.attr_timeout = FOREVER, .entry_timeout = FOREVER};
	char *end;

	p.ino = strtoull(name, &end, 10) + 2;
	if (parent != FUSE_ROOT_ID || end == name || *end || fill(p.ino, &p.attr) < 0)
		fuse_reply_err(req, ENOENT);
	else
		fuse_reply_entry(req, &p);
}

static void null_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st;
	int r = fill(ino, &st);

	(void)fi;
	if (r < 0)
		fuse_reply_err(req, -r);
	else
		fuse_reply_attr(req, &st, FOREVER);
}

static void null_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t from, struct fuse_file_info *fi)
{
	char buf[65536], name[32];
	size_t used = 0, n;
	struct stat st;

	(void)fi;
	if (size > sizeof(buf))
		size = sizeof(buf);
	for (uint64_t i = (uint64_t)from; ino == FUSE_ROOT_ID && i < file_count; i++) {
		snprintf(name, sizeof(name), "%ju", (uintmax_t)i);
		fill(i + 2, &st);
		n = fuse_add_direntry(req, buf + used, size - used, name, &st, (off_t)i + 1);
		if (n > size - used)
			break;
		used += n;
	}
	fuse_reply_buf(req, buf, used);
}

static void null_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	fi->keep_cache = 1;
	fi->noflush = 1;
	fuse_reply_open(req, fi);
}

static void null_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi)
{
	const struct file *f = &files[ino - 2];
	uint64_t at = (uint64_t)offset;

	(void)fi;
	if (at >= f->size)
		size = 0;
	else if (size > f->size - at)
		size = (size_t)(f->size - at);
	fuse_reply_buf(req, size ? bytes + f->offset + at : NULL, size);
}

static const struct fuse_lowlevel_ops ops = {
	.init = null_init,
	.lookup = null_lookup,
	.getattr = null_getattr,
	.readdir = null_readdir,
	.open = null_open,
	.read = null_read,
};

static int load(const char *path, char **sizes, int count)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint64_t offset = 0;
	struct stat st;
	void *map;

	if (fd < 0 || fstat(fd, &st) < 0) {
		perror(path);
		return -1;
	}
	file_count = (uint64_t)count;
	files = calloc((size_t)count, sizeof(*files));
	for (int i = 0; files && i < count; i++) {
		files[i] = (struct file){offset, strtoull(sizes[i], NULL, 10)};
		if (files[i].size > (uint64_t)st.st_size - offset) {
			fprintf(stderr, "null: '%s' is shorter than its files\n", path);
			return -1;
		}
		offset += files[i].size;
	}
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (!files || map == MAP_FAILED) {
		perror("null");
		return -1;
	}
	bytes = map;
	return 0;
}

int main(int argc, char **argv)
{
	char *args[] = {"null", "-oro,fsname=null", NULL};
	struct fuse_args fuse_args = FUSE_ARGS_INIT(2, args);
	struct fuse_session *se;
	int r;

	if (argc < 4) {
		fprintf(stderr, "usage: null FILE DIR SIZE...\n");
		return 2;
	}
	if (load(argv[1], argv + 3, argc - 3) < 0)
		return 1;
	se = fuse_session_new(&fuse_args, &ops, sizeof(ops), NULL);
	if (!se || fuse_set_signal_handlers(se) < 0 || fuse_session_mount(se, argv[2]) < 0)
		return 1;
	r = fuse_session_loop_mt(se, NULL);
	fuse_session_unmount(se);
	fuse_remove_signal_handlers(se);
	fuse_session_destroy(se);
	free(files);
	return r ? 1 : 0;
}
