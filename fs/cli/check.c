/* SPDX-License-Identifier: MIT */
/*
 * Reads every byte of every file in the tree and says what is wrong. Exit code 0: sound; 1: something is damaged;
 * 2: it cannot be opened at all.
 */
#include "fs/cli/cli.h"
#include "fs/cli/progress.h"
#include "views/text.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#define EXIT_TROUBLE 2
#define STEP (1u << 20)

struct check {
	struct cli_model m;
	struct progress progress;
	char *buf;
	size_t problems;
};

static void problem(struct check *c, const char *what, struct str name, const struct error *e)
{
	struct text t = {0};

	progress_end(&c->progress);
	text_name(&t, name); /* a hostile name must not command the terminal */
	printf("%s %.*s: %s\n", what, (int)t.len, t.ptr ? t.ptr : "", e->text);
	text_release(&t);
	c->problems++;
}

static int read_all(struct check *c, const struct extmap *map, struct error *e)
{
	int r = extmap_failed(map, e);

	for (uint64_t at = 0; !r && at < map->size;) {
		size_t n = map->size - at < STEP ? (size_t)(map->size - at) : STEP;

		r = extmap_read(map, at, c->buf, n, e);
		at += n;
		progress_add(&c->progress, n);
	}
	return r;
}

static void check_file(struct check *c, const struct view *view, struct subject s, const char *what,
	struct str name)
{
	const struct view_context *cx = tree_context(c->m.tree);
	struct extmap map = {0};
	struct error e = {0};

	if (view->exists && !view->exists(cx, &s))
		return;
	if (view->render(cx, &s, &map, &e) < 0 || read_all(c, &map, &e) < 0)
		problem(c, what, name, &e);
	extmap_release(&map);
}

/* raw/ reads what is stored; the .npy also decodes it where that is another thing. */
static void check_tensor(struct check *c, uint32_t i)
{
	extern const struct view view_raw, view_npy;
	const struct tensor *t = &c->m.model->tensors[i];
	const struct subject s = {SUBJECT_TENSOR, i};
	size_t before = c->problems;

	if (t->alias_of != MODEL_NONE)
		return;
	check_file(c, &view_raw, s, "tensor", t->name);
	if (c->problems == before && t->dtype != DTYPE_STRING && dtype_info(t->dtype)->npy != t->dtype)
		check_file(c, &view_npy, s, "tensor", t->name);
}

static void found(void *arg, const char *text)
{
	struct check *c = arg;
	struct error shown = {0}; /* escapes control characters */

	error_set(&shown, EIO, "%s", text);
	progress_end(&c->progress);
	printf("%s\n", shown.text);
	c->problems++;
}

static int check_all(struct check *c, struct error *e)
{
	extern const struct view view_files;
	const struct model *m = c->m.model;
	uint64_t total = 0;
	int r = 0;

	for (uint32_t i = 0; i < m->tensor_count; i++)
		total += m->tensors[i].data.size;
	for (uint32_t i = 0; i < m->file_count; i++)
		total += m->files[i].data.size;
	progress_begin(&c->progress, total);
	for (uint32_t i = 0; i < m->warning_count; i++) {
		struct error shown = {0}; /* escapes control characters */

		error_set(&shown, EIO, "%.*s", (int)m->warnings[i].len, m->warnings[i].ptr);
		printf("warning: %s\n", shown.text);
	}
	for (uint32_t i = 0; i < m->tensor_count; i++)
		check_tensor(c, i);
	for (uint32_t i = 0; i < m->file_count; i++)
		check_file(c, &view_files, (struct subject){SUBJECT_FILE, i}, "file",
			m->files[i].path);
	if (m->format->check)
		r = m->format->check(m, found, c, e);
	progress_end(&c->progress);
	if (!r)
		printf("%s: %u tensors, %u files, %zu problems\n", m->format->title,
			m->tensor_count, m->file_count, c->problems);
	return r;
}

static int check_run(int argc, char **argv)
{
	static const struct option longs[] = {CLI_LONG_OPTIONS, {0}};
	struct cli_options options = CLI_OPTIONS_INIT;
	struct check c = {0};
	struct error e = {0};
	int o, r;

	while ((o = getopt_long(argc, argv, "", longs, NULL)) != -1)
		if ((r = cli_option("check", o, &options)) != 0)
			return r;
	if (argc - optind != 1)
		return cli_usage("check", "expected one model");
	c.buf = malloc(STEP);
	r = c.buf ? cli_open(&c.m, argv[optind], &options, &e) : error_set(&e, ENOMEM, "out of memory");
	if (!r)
		r = check_all(&c, &e);
	free(c.buf);
	cli_close(&c.m);
	if (r < 0) {
		cli_error("check", &e);
		return EXIT_TROUBLE;
	}
	return cli_finish("check", c.problems ? EXIT_FAILURE : EXIT_SUCCESS);
}

const struct command command_check = {
	.name = "check",
	.synopsis = "MODEL",
	.summary = "read the whole model and report damage",
	.run = check_run,
};
