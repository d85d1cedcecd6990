/* SPDX-License-Identifier: MIT */
#include "fs/cli/cli.h"
#include "parsers/core/child.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define COMMAND(symbol) extern const struct command command_##symbol;
#include "fs/cli/commands.def"
#undef COMMAND

#define COMMAND(symbol) &command_##symbol,
static const struct command *const commands[] = {
#include "fs/cli/commands.def"
};
#undef COMMAND
#define COMMAND_COUNT (sizeof(commands) / sizeof(*commands))

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < COMMAND_COUNT; i++)
		if (strcmp(commands[i]->name, name) == 0)
			return commands[i];
	return NULL;
}

static int help(void)
{
	printf("usage: wiamodel COMMAND [OPTION]... MODEL ...\n\n");
	for (size_t i = 0; i < COMMAND_COUNT; i++)
		printf("  %-8s %s\n           %s\n", commands[i]->name, commands[i]->synopsis,
			commands[i]->summary);
	printf("\nA PATH inside the model is spelled as in the mount. See wiamodel(1).\n");
	return cli_finish("help", EXIT_SUCCESS);
}

int cli_main(int argc, char **argv)
{
	const struct command *c;

	if (argc < 2)
		return cli_usage(NULL, "a command is missing");
	if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0 ||
		strcmp(argv[1], "-h") == 0)
		return help();
	c = find_command(argv[1]);
	if (!c)
		return cli_usage(NULL, "there is no command '%s'", argv[1]);
	opterr = 0; /* one line, in our words */
	return c->run(argc - 1, argv + 1);
}

int cli_error(const char *command, const struct error *e)
{
	fflush(stdout);
	fprintf(stderr, "wiamodel %s: %s\n", command, e->code ? e->text : "failed");
	return EXIT_FAILURE;
}

int cli_usage(const char *command, const char *format, ...)
{
	const struct command *c = command ? find_command(command) : NULL;
	va_list ap;

	fprintf(stderr, "wiamodel%s%s: ", c ? " " : "", c ? command : "");
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	if (c)
		fprintf(stderr, " (usage: wiamodel %s %s)\n", c->name, c->synopsis);
	else
		fprintf(stderr, " (see wiamodel --help)\n");
	return CLI_USAGE;
}

/* What a library in a child may take (core/child.h). */
static int child_option(const char *command, int c)
{
	char *end;
	unsigned long n = strtoul(optarg, &end, 10);

	if (!n || *end || optarg[0] == '-')
		return cli_usage(command, "--child-%s: '%s' is not a number above 0", c == CLI_CHILD_TIME ? "time" : "memory",
			optarg);
	child_limits_set(c == CLI_CHILD_TIME ? n : 0, c == CLI_CHILD_MEMORY ? n : 0);
	return 0;
}

int cli_option(const char *command, int c, struct cli_options *o)
{
	char *end;

	switch (c) {
	case CLI_FORMAT:
		o->format = optarg;
		return 0;
	case CLI_VIEWS:
		o->tree.views = optarg;
		return 0;
	case CLI_STEP:
		errno = 0;
		o->step = strtoll(optarg, &end, 10);
		if (errno || *end || end == optarg || o->step < 0)
			return cli_usage(command, "--step: '%s' is not a number", optarg);
		return 0;
	case CLI_CHILD_TIME:
	case CLI_CHILD_MEMORY:
		return child_option(command, c);
	case CLI_NPY:
		o->tree.view.npy_bits = strcmp(optarg, "bits") == 0;
		o->tree.view.npy_real = strcmp(optarg, "real") == 0;
		if (o->tree.view.npy_bits || o->tree.view.npy_real || strcmp(optarg, "value") == 0)
			return 0;
		return cli_usage(command, "--npy: '%s' is none of value, bits, real", optarg);
	default:
		if (optopt > 0 && optopt < CLI_FORMAT)
			return cli_usage(command, "unknown option -%c or its value is missing",
				optopt);
		return cli_usage(command, "unknown option or its value is missing");
	}
}

int cli_finish(const char *command, int code)
{
	struct error e = {0};

	if (fflush(stdout) == 0 && !ferror(stdout))
		return code;
	error_set(&e, errno ? errno : EIO, "writing to standard output failed: %s",
		strerror(errno ? errno : EIO));
	return cli_error(command, &e);
}
