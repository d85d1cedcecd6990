/* SPDX-License-Identifier: MIT */
/*
 * The model in another format: plan, refuse losses unless allowed, write beside the target, read back what was
 * written and compare, and only then give it its name. Exit code 3: refused because something would be lost.
 */
#include "fs/cli/cli.h"
#include "fs/cli/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define EXIT_LOSSES 3

struct convert {
	struct cli_model m;
	const struct format *to;
	const char *out;
	int dir;
	char *dir_name, *base; /* of out */
	bool lossy, real, force, verify;
	struct plan plan;
	struct output_file *files; /* one for each of plan.files */
	struct progress progress;
};

static int choose_format(struct convert *c, const char *name, struct error *e)
{
	c->to = name ? format_by_name(name) : format_by_extension(c->out);
	if (!c->to && name)
		return error_set(e, EINVAL, "there is no format '%s'", name);
	if (!c->to)
		return error_set(e, EINVAL, "'%s': the name does not tell the format, say it with --to",
			c->out);
	if (!c->to->plan || (c->to != c->m.model->format && !(c->to->can & CAN_CREATE)))
		return error_set(e, EOPNOTSUPP, "%s cannot be written from %s", c->to->title,
			c->m.model->format->title);
	return 0;
}

static int open_dir(struct convert *c, struct error *e)
{
	const char *slash = strrchr(c->out, '/');

	c->base = strdup(slash ? slash + 1 : c->out);
	c->dir_name = slash ? strndup(c->out, (size_t)(slash - c->out) + 1) : strdup(".");
	if (!c->base || !c->dir_name)
		return error_set(e, ENOMEM, "out of memory");
	if (!*c->base)
		return error_set(e, EINVAL, "'%s' does not end in a file name", c->out);
	c->dir = open(c->dir_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (c->dir < 0)
		return error_set(e, errno, "%s: %s", c->dir_name, strerror(errno));
	if (!c->force && faccessat(c->dir, c->base, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return error_set(e, EEXIST, "'%s' exists already (--force replaces)", c->out);
	return 0;
}

static const char *file_name(const struct convert *c, size_t i)
{
	return c->plan.files[i].name[0] ? c->plan.files[i].name : c->base;
}

static int check_names(const struct convert *c, struct error *e)
{
	for (size_t i = 0; i < c->plan.count; i++) {
		const char *name = c->plan.files[i].name;

		if (strchr(name, '/'))
			return error_set(e, EOPNOTSUPP, "%s is a directory of files: not written yet",
				c->to->title);
		if (*name && !c->force && faccessat(c->dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
			return error_set(e, EEXIST, "'%s' exists already (--force replaces)", name);
	}
	return 0;
}

static int write_files(struct convert *c, struct error *e)
{
	uint64_t total = 0;
	int r = 0;

	c->files = calloc(c->plan.count ? c->plan.count : 1, sizeof(*c->files));
	if (!c->files)
		return error_set(e, ENOMEM, "out of memory");
	for (size_t i = 0; i < c->plan.count; i++)
		total += c->plan.files[i].map.size;
	progress_begin(&c->progress, total);
	for (size_t i = 0; !r && i < c->plan.count; i++) {
		r = output_open(&c->files[i], c->dir, file_name(c, i), 0666, e);
		if (!r)
			r = output_map(c->files[i].fd, &c->plan.files[i].map, OUTPUT_SYNC, &c->progress.output, e);
	}
	progress_end(&c->progress);
	return r;
}

/* ---- what was written, read back ---- */

static int same_bytes(const struct tree *a, const struct tree *b, const struct view *view,
	uint32_t ia, uint32_t ib, struct error *e)
{
	const struct subject sa = {SUBJECT_TENSOR, ia}, sb = {SUBJECT_TENSOR, ib};
	struct extmap ma = {0}, mb = {0};
	const size_t step = 256u << 10;
	char *bufs = malloc(2 * step);
	int r = bufs ? 0 : error_set(e, ENOMEM, "out of memory");

	if (!r)
		r = view->render(tree_context(a), &sa, &ma, e);
	if (!r)
		r = view->render(tree_context(b), &sb, &mb, e);
	if (!r && ma.size != mb.size)
		r = error_set(e, EIO, "sizes differ");
	for (uint64_t at = 0; !r && at < ma.size; at += step) {
		size_t n = ma.size - at < step ? (size_t)(ma.size - at) : step;

		r = extmap_read(&ma, at, bufs, n, e);
		if (!r)
			r = extmap_read(&mb, at, bufs + step, n, e);
		if (!r && memcmp(bufs, bufs + step, n) != 0)
			r = error_set(e, EIO, "values differ");
	}
	extmap_release(&ma);
	extmap_release(&mb);
	free(bufs);
	return r;
}

static int same_tensor(const struct convert *c, const struct cli_model *got, uint32_t i,
	struct error *e)
{
	extern const struct view view_npy;
	const struct tensor *a = &c->m.model->tensors[i], *b;
	uint32_t k = model_find_tensor(got->model, a->name);

	if (k == MODEL_NONE)
		return c->lossy ? 0 : error_set(e, EIO, "tensor is missing");
	b = &got->model->tensors[k];
	if (b->problem.len)
		return error_set(e, EIO, "%.*s", STR_ARG(b->problem));
	if (a->rank != b->rank || (a->rank && memcmp(a->shape, b->shape, a->rank * sizeof(*a->shape))))
		return error_set(e, EIO, "shapes differ");
	if (a->dtype != b->dtype && !c->lossy && !c->real)
		return error_set(e, EIO, "dtype %s became %s", dtype_info(a->dtype)->name,
			dtype_info(b->dtype)->name);
	if (!c->verify || a->dtype != b->dtype || a->dtype == DTYPE_NONE)
		return 0;
	return same_bytes(c->m.tree, got->tree, &view_npy, i, k, e);
}

static int compare(const struct convert *c, const struct cli_model *got, struct error *e)
{
	for (uint32_t i = 0; i < c->m.model->tensor_count; i++) {
		char name[160];

		if (same_tensor(c, got, i, e) == 0)
			continue;
		snprintf(name, sizeof(name), "what was written does not read back: tensor '%.*s'",
			STR_ARG(c->m.model->tensors[i].name));
		return error_prefix(e, name);
	}
	return 0;
}

static int read_back(const struct convert *c, const char *temp, struct error *e)
{
	struct cli_options options = CLI_OPTIONS_INIT;
	struct cli_model got;
	char *path = NULL;
	int r;

	options.format = c->to->name;
	options.tree.view.npy_real = c->real;
	if (asprintf(&path, "%s/%s", c->dir_name, temp) < 0)
		return error_set(e, ENOMEM, "out of memory");
	r = cli_open(&got, path, &options, e);
	free(path);
	if (r < 0)
		return error_prefix(e, "what was written does not read back");
	r = compare(c, &got, e);
	cli_close(&got);
	return r;
}

/* Companions first, since the root refers to them by name; the root last. */
static int give_names(struct convert *c, struct error *e)
{
	unsigned flags = OUTPUT_SYNC | (c->force ? OUTPUT_REPLACE : 0);
	size_t root = c->plan.count, named = 0;
	int r = 0;

	for (size_t i = 0; !r && i < c->plan.count; i++) {
		if (!c->plan.files[i].name[0]) {
			root = i;
			continue;
		}
		r = output_finish(&c->files[i], flags, e);
		named = i + 1;
	}
	if (!r && root == c->plan.count)
		r = error_set(e, EIO, "the plan has no root file");
	if (!r)
		r = read_back(c, c->files[root].temp, e);
	if (!r)
		return output_finish(&c->files[root], flags, e);
	for (size_t i = 0; i < named; i++)
		if (c->plan.files[i].name[0] && !c->force)
			unlinkat(c->dir, c->plan.files[i].name, 0);
	return r;
}

/* Exit code; 0 = go on. */
static int judge_losses(const struct convert *c)
{
	if (!c->plan.loss_count)
		return 0;
	for (size_t i = 0; i < c->plan.loss_count; i++)
		fprintf(stderr, "wiamodel convert: %s: %s\n", c->lossy ? "lost" : "would be lost",
			c->plan.losses[i]);
	if (c->lossy)
		return 0;
	fprintf(stderr, "wiamodel convert: refused, %zu losses (--lossy allows them)\n",
		c->plan.loss_count);
	return EXIT_LOSSES;
}

static int run(struct convert *c, const char *in, const char *to, const struct cli_options *options,
	struct error *e)
{
	int r = cli_open(&c->m, in, options, e), code;

	if (!r)
		r = choose_format(c, to, e);
	if (!r)
		r = open_dir(c, e);
	if (r < 0)
		return EXIT_FAILURE;
	c->plan.root_name = c->base;
	c->plan.real = c->real;
	r = model_plan(c->m.model, c->to, &c->plan, e);
	if (r < 0)
		return EXIT_FAILURE;
	code = judge_losses(c);
	if (code)
		return code;
	r = check_names(c, e);
	if (!r)
		r = write_files(c, e);
	if (!r)
		r = give_names(c, e);
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

static void release(struct convert *c)
{
	for (size_t i = 0; c->files && i < c->plan.count; i++)
		output_abandon(&c->files[i]);
	free(c->files);
	plan_release(&c->plan);
	free(c->base);
	free(c->dir_name);
	if (c->dir >= 0)
		close(c->dir);
	cli_close(&c->m);
}

enum { OPT_TO = CLI_OWN, OPT_LOSSY, OPT_REAL, OPT_VERIFY };

static int convert_run(int argc, char **argv)
{
	static const struct option longs[] = {CLI_LONG_OPTIONS, {"to", required_argument, NULL, OPT_TO},
		{"lossy", no_argument, NULL, OPT_LOSSY}, {"real", no_argument, NULL, OPT_REAL},
		{"verify", no_argument, NULL, OPT_VERIFY}, {"force", no_argument, NULL, 'f'}, {0}};
	struct cli_options options = CLI_OPTIONS_INIT;
	struct convert c = {.dir = -1};
	struct error e = {0};
	const char *to = NULL;
	int o, r;

	while ((o = getopt_long(argc, argv, "f", longs, NULL)) != -1) {
		if (o == OPT_TO)
			to = optarg;
		else if (o == OPT_LOSSY)
			c.lossy = true;
		else if (o == OPT_REAL)
			c.real = options.tree.view.npy_real = true;
		else if (o == OPT_VERIFY)
			c.verify = true;
		else if (o == 'f')
			c.force = true;
		else if ((r = cli_option("convert", o, &options)) != 0)
			return r;
	}
	if (argc - optind != 2)
		return cli_usage("convert", "expected a model and a file to write");
	c.out = argv[optind + 1];
	r = run(&c, argv[optind], to, &options, &e);
	release(&c);
	return r == EXIT_FAILURE ? cli_error("convert", &e) : r;
}

const struct command command_convert = {
	.name = "convert",
	.synopsis = "[--to=FORMAT] [--lossy] [--real] [--verify] [-f] MODEL OUT",
	.summary = "write the model in another format",
	.run = convert_run,
};
