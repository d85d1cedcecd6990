/* SPDX-License-Identifier: MIT */
/*
 * sandbox: what the server may still do once it looks at a model. For the whole process and its
 * children, for good:
 *	- files: only beneath the directories given (Landlock), what is open already stays usable;
 *	- no exec, no sockets, no ptrace, no mounting, no kernel interfaces that file parsing never needs (seccomp);
 *	- no new privileges; a ceiling on anonymous memory, so that a hostile file gets ENOMEM before the machine does.
 * Where the kernel lacks a part, the rest holds and a note says so.
 */
#ifndef FS_SANDBOX_H
#define FS_SANDBOX_H

#include "parsers/core/error.h"

#define SANDBOX_DIRS_MAX 8

struct sandbox {
	struct {
		char *path; /* heap */
		bool write;
	} dirs[SANDBOX_DIRS_MAX];
	unsigned count;
	char note[256]; /* what could not be had; "" = all is in place */
};

/* The directory may be absent: then there is nothing to allow. Duplicates are harmless. */
int sandbox_allow(struct sandbox *s, const char *dir, bool write);
/* What a model needs: its directory, the one its symlink leads to, a hub's blob store. */
int sandbox_allow_model(struct sandbox *s, const char *model, bool write);
/* Call while the process has one thread. */
int sandbox_enter(struct sandbox *s, struct error *e);
void sandbox_release(struct sandbox *s);

#endif
