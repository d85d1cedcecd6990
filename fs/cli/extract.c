/* SPDX-License-Identifier: MIT */
/*
 * Copies a file or a directory of the model out, as `cp -a` from a mount would: links stay links, times are the
 * model file's. A file appears under its name only when it is whole. A damaged tensor is reported and the
 * rest goes on.
 */
#include "fs/cli/cli.h"
#include "fs/cli/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct dir {
	int fd;
	char *path; /* in the model, for messages */
	struct cli_list list;
	size_t next;
	bool ours; /* made by us */
};

struct extract {
	struct cli_model m;
	struct dir *dirs; /* from the outermost to where we are */
	size_t depth, cap;
	struct progress progress;
	bool force, failed;
};

static void report(struct extract *x, const char *path, struct error *e)
{
	progress_end(&x->progress);
	if (e->code && *path && !strstr(e->text, path))
		error_prefix(e, path);
	cli_error("extract", e);
	error_clear(e);
	x->failed = true;
}

static int set_times(const struct extract *x, int dir, const char *name, struct error *e)
{
	const struct timespec times[2] = {x->m.st.st_mtim, x->m.st.st_mtim};

	if (utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW) < 0)
		return error_set(e, errno, "setting the time failed: %s", strerror(errno));
	return 0;
}

static int write_file(struct extract *x, int dir, const char *name, const struct entry *entry,
	struct error *e)
{
	struct output_file o;
	struct extmap map = {0};
	int r;

	if (!x->force && faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return error_set(e, EEXIST, "exists already (--force replaces)");
	r = tree_open(x->m.tree, entry->inode, &map, e);
	if (r < 0)
		goto out;
	r = output_open(&o, dir, name, 0666, e);
	if (r < 0)
		goto out;
	r = output_map(o.fd, &map, 0, &x->progress.output, e);
	if (!r)
		r = set_times(x, dir, o.temp, e);
	if (!r)
		r = output_finish(&o, x->force ? OUTPUT_REPLACE : 0, e);
	else
		output_abandon(&o);
out:
	extmap_release(&map);
	return r;
}

static int write_link(struct extract *x, int dir, const char *name, const struct entry *entry,
	struct error *e)
{
	char *target;
	int r = tree_readlink(x->m.tree, entry->inode, &target);

	if (r < 0)
		return error_set(e, -r, "reading the link failed: %s", strerror(-r));
	if (x->force)
		unlinkat(dir, name, 0);
	if (symlinkat(target, dir, name) < 0)
		r = error_set(e, errno, "creating the link failed: %s", strerror(errno));
	free(target);
	return r ? r : set_times(x, dir, name, e);
}

/* Takes fd and path. */
static int enter(struct extract *x, int fd, bool ours, char *path, uint64_t inode, struct error *e)
{
	struct dir *d;

	if (x->depth == x->cap && path) {
		size_t cap = x->cap ? x->cap * 2 : 16;
		void *p = reallocarray(x->dirs, cap, sizeof(*x->dirs));

		if (p) {
			x->dirs = p;
			x->cap = cap;
		}
	}
	if (!path || x->depth == x->cap) {
		close(fd);
		free(path);
		return error_set(e, ENOMEM, "out of memory");
	}
	d = &x->dirs[x->depth];
	*d = (struct dir){.fd = fd, .path = path, .ours = ours};
	if (cli_list(x->m.tree, inode, true, &d->list, e) < 0) {
		close(fd);
		free(path);
		return e->code ? -e->code : -EIO;
	}
	x->depth++;
	return 0;
}

static int make_dir(int dir, const char *name, bool *ours, struct error *e)
{
	int fd;

	*ours = mkdirat(dir, name, 0777) == 0;
	if (!*ours && errno != EEXIST)
		return error_set(e, errno, "creating the directory failed: %s", strerror(errno));
	/* a symlink that lies there must not lead us elsewhere */
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return error_set(e, errno, "opening the directory failed: %s", strerror(errno));
	return fd;
}

static void leave(struct extract *x)
{
	struct dir *d = &x->dirs[--x->depth];
	const struct timespec times[2] = {x->m.st.st_mtim, x->m.st.st_mtim};

	if (d->ours)
		futimens(d->fd, times); /* last, as each entry changes it */
	close(d->fd);
	free(d->path);
	cli_list_release(&d->list);
}

static void one(struct extract *x, int dir, const char *name, const char *path,
	const struct entry *entry)
{
	struct error e = {0};
	bool ours;
	int r;

	if (entry->kind == ENTRY_DIR) {
		r = make_dir(dir, name, &ours, &e);
		if (r >= 0)
			r = enter(x, r, ours, strdup(path), entry->inode, &e);
	} else if (entry->kind == ENTRY_LINK) {
		r = write_link(x, dir, name, entry, &e);
	} else {
		r = write_file(x, dir, name, entry, &e);
	}
	if (r < 0)
		report(x, path, &e);
}

static void run_all(struct extract *x)
{
	struct error e = {0};

	while (x->depth) {
		struct dir *d = &x->dirs[x->depth - 1];
		const struct cli_item *item;
		char *path = NULL;

		if (d->next == d->list.count) {
			leave(x);
			continue;
		}
		item = &d->list.items[d->next++];
		if (asprintf(&path, "%s%s%s", d->path, *d->path ? "/" : "", item->name) < 0) {
			error_set(&e, ENOMEM, "out of memory");
			report(x, d->path, &e);
			return;
		}
		one(x, d->fd, item->name, path, &item->entry);
		free(path);
	}
}

/* Bytes below a directory, for the progress bar only. */
static uint64_t measure(const struct tree *t, uint64_t root)
{
	uint64_t *pending = malloc(sizeof(*pending)), total = 0;
	size_t count = 1, cap = 1;

	if (pending)
		pending[0] = root;
	while (pending && count) {
		struct cli_list list;

		if (cli_list(t, pending[--count], true, &list, NULL) < 0)
			break;
		for (size_t i = 0; i < list.count; i++) {
			const struct entry *entry = &list.items[i].entry;

			total += entry->kind == ENTRY_FILE ? entry->size : 0;
			if (entry->kind != ENTRY_DIR)
				continue;
			if (count == cap) {
				void *p = reallocarray(pending, cap * 2, sizeof(*pending));

				if (!p)
					continue;
				pending = p;
				cap *= 2;
			}
			pending[count++] = entry->inode;
		}
		cli_list_release(&list);
	}
	free(pending);
	return total;
}

static int extract_to(struct extract *x, const char *path, const char *dir, struct error *e)
{
	struct entry entry;
	const char *name;
	int fd, r = cli_resolve(x->m.tree, path, true, &entry, e);
	uint64_t total;

	if (r < 0)
		return r;
	fd = openat(AT_FDCWD, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT && mkdir(dir, 0777) == 0)
		fd = openat(AT_FDCWD, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return error_set(e, errno, "%s: %s", dir, strerror(errno));
	total = entry.kind == ENTRY_DIR && isatty(STDERR_FILENO) == 1
			? measure(x->m.tree, entry.inode)
			: entry.size;
	progress_begin(&x->progress, total);
	name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
	if (entry.inode == TREE_ROOT) {
		/* the directory itself becomes the model's root */
		r = enter(x, fd, false, strdup(""), entry.inode, e);
		fd = -1;
	} else if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
		r = error_set(e, EINVAL, "'%s' does not end in a name", path);
	} else {
		one(x, fd, name, path, &entry);
	}
	if (!r)
		run_all(x);
	if (fd >= 0)
		close(fd);
	progress_end(&x->progress);
	return r;
}

static int extract_run(int argc, char **argv)
{
	static const struct option longs[] = {
		CLI_LONG_OPTIONS, {"force", no_argument, NULL, 'f'}, {0}};
	struct cli_options options = CLI_OPTIONS_INIT;
	struct extract x = {0};
	struct error e = {0};
	int c, r;

	while ((c = getopt_long(argc, argv, "f", longs, NULL)) != -1) {
		if (c == 'f')
			x.force = true;
		else if ((r = cli_option("extract", c, &options)) != 0)
			return r;
	}
	if (argc - optind < 1 || argc - optind > 3)
		return cli_usage("extract", "expected a model, a path and a directory");
	r = cli_open(&x.m, argv[optind], &options, &e);
	if (!r)
		r = extract_to(&x, argc - optind > 1 ? argv[optind + 1] : "",
			argc - optind > 2 ? argv[optind + 2] : ".", &e);
	while (x.depth)
		leave(&x);
	free(x.dirs);
	cli_close(&x.m);
	if (r < 0)
		return cli_error("extract", &e);
	return x.failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

const struct command command_extract = {
	.name = "extract",
	.synopsis = "[-f] MODEL [PATH [DIR]]",
	.summary = "copy a file or directory of the model into DIR",
	.run = extract_run,
};
