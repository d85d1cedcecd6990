/* SPDX-License-Identifier: MIT */
/*
 * cli: the subcommands of `wiamodel`. A subcommand is one file with one `const struct command` at its foot and
 * one line in commands.def. All look at a model through the same tree as the mount, so what they print is
 * byte for byte what the mount shows.
 *
 * Results go to stdout; errors are one line on stderr. Exit codes: EXIT_SUCCESS; EXIT_FAILURE; CLI_USAGE; others
 * where the command says so.
 */
#ifndef FS_CLI_CLI_H
#define FS_CLI_CLI_H

#include "views/tree.h"

#define CLI_USAGE 2

struct command {
	const char *name;
	const char *synopsis; /* what follows the name: "[-l] MODEL [PATH]" */
	const char *summary;  /* half a line */
	int (*run)(int argc, char **argv); /* argv[0] is the command's name; gives the exit code */
};

/* argv[1] is the subcommand. */
int cli_main(int argc, char **argv);

/* "wiamodel NAME: text" on stderr; gives EXIT_FAILURE. */
int cli_error(const char *command, const struct error *e);
/* The same with the usage of the command; gives CLI_USAGE. */
int cli_usage(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- options that every command which opens a model has ---- */

struct cli_options {
	const char *format; /* --format=NAME */
	int64_t step;       /* --step=N; -1 = newest */
	struct tree_options tree;
};

/* What getopt_long answers for the common ones; a command's own begin at CLI_OWN. */
enum { CLI_FORMAT = 256, CLI_NPY, CLI_STEP, CLI_VIEWS, CLI_CHILD_TIME, CLI_CHILD_MEMORY, CLI_OWN };
/* clang-format off */
#define CLI_LONG_OPTIONS \
	{"format", required_argument, NULL, CLI_FORMAT}, \
	{"npy", required_argument, NULL, CLI_NPY}, \
	{"step", required_argument, NULL, CLI_STEP}, \
	{"child-time", required_argument, NULL, CLI_CHILD_TIME}, \
	{"child-memory", required_argument, NULL, CLI_CHILD_MEMORY}, \
	{"views", required_argument, NULL, CLI_VIEWS}
/* clang-format on */

#define CLI_OPTIONS_INIT {.step = -1}

/* 0 when `c` was a common option, CLI_USAGE (reported) when it is not or is malformed. */
int cli_option(const char *command, int c, struct cli_options *o);

/* ---- a model, opened ---- */

struct cli_model {
	struct model *model;
	struct tree *tree;
	struct verdict *verdicts;
	struct stat st; /* of the model file, for times */
};

int cli_open(struct cli_model *m, const char *path, const struct cli_options *o, struct error *e);
void cli_close(struct cli_model *m);

/* By path as in the mount; "", "." and a leading '/' are the root. follow: a link at the end too. */
int cli_resolve(const struct tree *t, const char *path, bool follow, struct entry *out,
	struct error *e);

/* ---- directories ---- */

struct cli_item {
	char *name;
	struct entry entry;
};

struct cli_list {
	struct cli_item *items; /* sorted by name, as `LC_ALL=C ls` does */
	size_t count, cap;
	bool failed;
};

int cli_list(const struct tree *t, uint64_t dir, bool with_size, struct cli_list *out,
	struct error *e);
void cli_list_release(struct cli_list *l);

/* stdout is flushed; EXIT_FAILURE and a message when anything was lost. */
int cli_finish(const char *command, int code);

#endif
