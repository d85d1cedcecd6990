/* SPDX-License-Identifier: MIT */
#include "fs/cli/cli.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct ls {
	struct cli_model m;
	bool details, recursive, failed;
	char **pending; /* directories still to list, the next one last */
	size_t count, cap;
};

static void print_details(const struct ls *l, const struct entry *entry)
{
	static const char *const modes[] = {"dr-xr-xr-x", "-r--r--r--", "lrwxrwxrwx"};
	char date[32] = "";
	struct tm tm;

	if (localtime_r(&l->m.st.st_mtime, &tm))
		strftime(date, sizeof(date), "%Y-%m-%d %H:%M", &tm);
	printf("%s %4u %14" PRIu64 " %s ", modes[entry->kind], entry->links ? entry->links : 1,
		entry->size, date);
}

static void print_item(const struct ls *l, const char *name, const struct entry *entry)
{
	char *target;

	if (l->details)
		print_details(l, entry);
	fputs(name, stdout);
	if (l->details && entry->kind == ENTRY_LINK &&
		tree_readlink(l->m.tree, entry->inode, &target) == 0) {
		printf(" -> %s", target);
		free(target);
	}
	putchar('\n');
}

/* Takes the string. */
static int push(struct ls *l, char *path, struct error *e)
{
	if (l->count == l->cap && path) {
		size_t cap = l->cap ? l->cap * 2 : 32;
		void *p = reallocarray(l->pending, cap, sizeof(*l->pending));

		if (p) {
			l->pending = p;
			l->cap = cap;
		}
	}
	if (!path || l->count == l->cap) {
		free(path);
		return error_set(e, ENOMEM, "out of memory");
	}
	l->pending[l->count++] = path;
	return 0;
}

static int list_dir(struct ls *l, const char *path, uint64_t inode, struct error *e)
{
	struct cli_list list;
	int r = cli_list(l->m.tree, inode, l->details, &list, e);

	if (r < 0)
		return r;
	if (l->recursive)
		printf("%s:\n", *path ? path : ".");
	for (size_t i = 0; i < list.count; i++)
		print_item(l, list.items[i].name, &list.items[i].entry);
	for (size_t i = list.count; !r && l->recursive && i > 0; i--) {
		char *child = NULL;

		if (list.items[i - 1].entry.kind != ENTRY_DIR)
			continue;
		if (asprintf(&child, "%s%s%s", path, *path ? "/" : "", list.items[i - 1].name) < 0)
			child = NULL;
		r = push(l, child, e);
	}
	cli_list_release(&list);
	return r;
}

static int list_all(struct ls *l, const char *path, struct error *e)
{
	struct entry entry;
	int r = cli_resolve(l->m.tree, path, !l->details, &entry, e);

	if (r < 0)
		return r;
	if (entry.kind != ENTRY_DIR) {
		print_item(l, path, &entry);
		return 0;
	}
	r = list_dir(l, path, entry.inode, e);
	while (!r && l->count) {
		char *next = l->pending[--l->count];

		putchar('\n');
		r = cli_resolve(l->m.tree, next, false, &entry, e);
		if (!r)
			r = list_dir(l, next, entry.inode, e);
		free(next);
	}
	return r;
}

static int ls_run(int argc, char **argv)
{
	static const struct option longs[] = {CLI_LONG_OPTIONS, {0}};
	struct cli_options options = CLI_OPTIONS_INIT;
	struct ls l = {0};
	struct error e = {0};
	int c, r;

	while ((c = getopt_long(argc, argv, "lR", longs, NULL)) != -1) {
		if (c == 'l')
			l.details = true;
		else if (c == 'R')
			l.recursive = true;
		else if ((r = cli_option("ls", c, &options)) != 0)
			return r;
	}
	if (argc - optind < 1 || argc - optind > 2)
		return cli_usage("ls", "expected a model and at most one path");
	r = cli_open(&l.m, argv[optind], &options, &e);
	if (!r)
		r = list_all(&l, argc - optind > 1 ? argv[optind + 1] : "", &e);
	while (l.count)
		free(l.pending[--l.count]);
	free(l.pending);
	cli_close(&l.m);
	return cli_finish("ls", r < 0 ? cli_error("ls", &e) : EXIT_SUCCESS);
}

const struct command command_ls = {
	.name = "ls",
	.synopsis = "[-l] [-R] MODEL [PATH]",
	.summary = "list a directory of the model",
	.run = ls_run,
};
