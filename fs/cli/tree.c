/* SPDX-License-Identifier: MIT */
#include "fs/cli/cli.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

/* One directory on the way down. */
struct frame {
	struct cli_list list;
	size_t next;
};

struct walk {
	struct frame *frames;
	size_t depth, cap;
	size_t dirs, files;
};

static int descend(struct walk *w, const struct tree *t, uint64_t dir, struct error *e)
{
	if (w->depth == w->cap) {
		size_t cap = w->cap ? w->cap * 2 : 16;
		void *p = reallocarray(w->frames, cap, sizeof(*w->frames));

		if (!p)
			return error_set(e, ENOMEM, "out of memory");
		w->frames = p;
		w->cap = cap;
	}
	w->frames[w->depth].next = 0;
	if (cli_list(t, dir, false, &w->frames[w->depth].list, e) < 0)
		return e->code ? -e->code : -EIO;
	w->depth++;
	return 0;
}

static void print_line(const struct walk *w, const struct tree *t, const struct cli_item *item)
{
	char *target;

	for (size_t i = 0; i + 1 < w->depth; i++)
		fputs(w->frames[i].next < w->frames[i].list.count ? "│   " : "    ", stdout);
	fputs(w->frames[w->depth - 1].next < w->frames[w->depth - 1].list.count ? "├── " : "└── ",
		stdout);
	fputs(item->name, stdout);
	if (item->entry.kind == ENTRY_LINK && tree_readlink(t, item->entry.inode, &target) == 0) {
		printf(" -> %s", target);
		free(target);
	}
	putchar('\n');
}

static int print_tree(struct walk *w, const struct tree *t, uint64_t dir, struct error *e)
{
	int r = descend(w, t, dir, e);

	while (!r && w->depth) {
		struct frame *f = &w->frames[w->depth - 1];
		struct cli_item *item;

		if (f->next == f->list.count) {
			cli_list_release(&f->list);
			w->depth--;
			continue;
		}
		item = &f->list.items[f->next++];
		print_line(w, t, item);
		if (item->entry.kind == ENTRY_DIR) {
			w->dirs++;
			r = descend(w, t, item->entry.inode, e);
		} else {
			w->files++;
		}
	}
	return r;
}

static int tree_run(int argc, char **argv)
{
	static const struct option longs[] = {CLI_LONG_OPTIONS, {0}};
	struct cli_options options = CLI_OPTIONS_INIT;
	struct walk w = {0};
	struct cli_model m;
	struct entry entry;
	struct error e = {0};
	const char *path;
	int c, r;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1)
		if ((r = cli_option("tree", c, &options)) != 0)
			return r;
	if (argc - optind < 1 || argc - optind > 2)
		return cli_usage("tree", "expected a model and at most one path");
	path = argc - optind > 1 ? argv[optind + 1] : "";
	r = cli_open(&m, argv[optind], &options, &e);
	if (!r)
		r = cli_resolve(m.tree, path, true, &entry, &e);
	if (!r && entry.kind != ENTRY_DIR)
		r = error_set(&e, ENOTDIR, "'%s' is not a directory", path);
	if (!r) {
		printf("%s\n", *path ? path : ".");
		r = print_tree(&w, m.tree, entry.inode, &e);
	}
	if (!r)
		printf("\n%zu directories, %zu files\n", w.dirs, w.files);
	while (w.depth)
		cli_list_release(&w.frames[--w.depth].list);
	free(w.frames);
	cli_close(&m);
	return cli_finish("tree", r < 0 ? cli_error("tree", &e) : EXIT_SUCCESS);
}

const struct command command_tree = {
	.name = "tree",
	.synopsis = "MODEL [PATH]",
	.summary = "show a directory of the model and all below it",
	.run = tree_run,
};
