/* SPDX-License-Identifier: MIT */
/*
 * launch: from the command line to a mount that answers. Three processes, so that a failure is one line and
 * nothing was ever mounted:
 *
 *	launcher	waits for the outcome, prints it, exits. In the foreground it is the keeper itself.
 *	keeper		forks the server, waits until it has read the model, mounts, hands it /dev/fuse, checks that
 *			the root answers; then sleeps. Should the server die it unmounts, so no dead mount stays.
 *	server		sandboxed before it looks at the model; fs/server.h.
 *
 * launcher --fork--> keeper --fork--> server
 *     ^--outcome(pipe)--'  ^--channel--'
 */
#ifndef FS_LAUNCH_H
#define FS_LAUNCH_H

#include "fs/options.h"

/* mount.wiamodel: parses, mounts; the exit code. program is for messages. */
int mount_main(const char *program, int argc, char **argv);

struct outcome {
	uint32_t code; /* fs/exit.h */
	char text[1024];  /* why, when code != 0 */
	char note[1024];  /* for the user although all is well; "" */
};

/*
 * The keeper: calls report once, when it is known whether the mount works, then stays until the end. Returns
 * the exit code for a foreground process. dir is absolute. pipe: a descriptor that the server must not inherit, or
 * -1; report gets it.
 */
int keeper_run(const struct options *o, const char *dir, int pipe,
	void (*report)(int pipe, const struct outcome *outcome));

#endif
