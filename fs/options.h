/* SPDX-License-Identifier: MIT */
/*
 * options: the command line of mount.wiamodel, also in the order in which mount(8) calls its helpers:
 *	mount.wiamodel SOURCE DIR [-sfnv] [-o options] [-t type]
 * One table drives parsing and --help.
 *
 * In -o, options are separated by commas; a comma inside a value is written "\,", or the value is put
 * in double quotes. Lists (views=) may be separated by ':' or '+' instead.
 */
#ifndef FS_OPTIONS_H
#define FS_OPTIONS_H

#include "fs/workspace.h"

#define OPTION_UNSET UINT32_MAX

struct options {
	struct workspace_options workspace; /* strings point into this struct's own memory */
	char *model, *dir;
	char *format, *to, *out, *views, *npy, *fsname, *log_file;
	bool foreground, debug, single, verbose, help, version;
	bool allow_other, nonempty;
	uint32_t uid, gid, umask;   /* OPTION_UNSET */
	uint32_t timeout;           /* seconds for reading the model, 0 = none */
	uint32_t child_time;        /* seconds for a library in a child of its own, 0 = default */
	uint32_t child_memory;      /* MiB for it, 0 = default */
	unsigned long mount_flags;  /* MS_* */
};

/* Parses. 0, or -EINVAL with one line for the user. Release in either case. */
int options_parse(struct options *o, int argc, char **argv, struct error *e);
void options_release(struct options *o);
/* Text of --help and --version on stdout. */
void options_help(void);
void options_version(void);

#endif
