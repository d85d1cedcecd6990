/* SPDX-License-Identifier: MIT */
#include "fs/cli/cli.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FIRST_STEP (4u << 10)
#define LAST_STEP (1u << 20)

static int put(const char *p, size_t len, struct error *e)
{
	while (len) {
		ssize_t n = write(STDOUT_FILENO, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_set(e, errno, "writing failed: %s", strerror(errno));
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

/* Steps grow, so that `| head -1` of something costly to compute costs little. */
static int copy_out(const struct extmap *map, struct error *e)
{
	size_t step = FIRST_STEP;
	char *buf = malloc(LAST_STEP);
	int r = buf ? 0 : error_set(e, ENOMEM, "out of memory");

	for (uint64_t at = 0; !r && at < map->size;) {
		size_t n = map->size - at < step ? (size_t)(map->size - at) : step;

		r = extmap_read(map, at, buf, n, e);
		if (!r)
			r = put(buf, n, e);
		at += n;
		step = step < LAST_STEP ? step * 2 : step;
	}
	free(buf);
	return r;
}

static int cat_file(const struct tree *t, const char *path, struct error *e)
{
	struct extmap map = {0};
	struct entry entry;
	int r = cli_resolve(t, path, true, &entry, e);

	if (!r && entry.kind == ENTRY_DIR)
		r = error_set(e, EISDIR, "'%s' is a directory", path);
	if (!r)
		r = tree_open(t, entry.inode, &map, e);
	if (!r)
		r = copy_out(&map, e);
	extmap_release(&map);
	if (r < 0 && e->code && !strstr(e->text, path))
		error_prefix(e, path);
	return r;
}

static int cat_run(int argc, char **argv)
{
	static const struct option longs[] = {CLI_LONG_OPTIONS, {0}};
	struct cli_options options = CLI_OPTIONS_INIT;
	struct cli_model m;
	struct error e = {0};
	int c, r;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1)
		if ((r = cli_option("cat", c, &options)) != 0)
			return r;
	if (argc - optind < 2)
		return cli_usage("cat", "expected a model and a path");
	r = cli_open(&m, argv[optind], &options, &e);
	for (int i = optind + 1; !r && i < argc; i++)
		r = cat_file(m.tree, argv[i], &e);
	cli_close(&m);
	return r < 0 ? cli_error("cat", &e) : EXIT_SUCCESS;
}

const struct command command_cat = {
	.name = "cat",
	.synopsis = "MODEL PATH...",
	.summary = "print files of the model",
	.run = cat_run,
};
