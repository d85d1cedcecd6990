/* SPDX-License-Identifier: MIT */
/*
 * ops: FUSE requests onto the workspace. Each op looks up, calls one workspace function, translates the
 * error. The only file that knows libfuse; threads, signals and processes are the server's (fs/server.c).
 */
#ifndef FS_OPS_H
#define FS_OPS_H

#include "fs/workspace.h"

struct mount;

struct mount_options {
	uint32_t uid, gid, umask; /* OPTION_UNSET = the model file's */
	bool debug;
	bool lookout; /* more than one processor: looking out for the next request for a moment pays */
	pid_t keeper, server;
};

/* Takes over fd. Borrows w. NULL + error. */
struct mount *mount_new(int fd, struct workspace *w, const struct mount_options *o, struct error *e);
/* Answers requests until the connection ends or mount_stop; called from each serving thread. */
void mount_serve(struct mount *m);
/* Makes all mount_serve return once their present request is done; any thread. */
void mount_stop(struct mount *m);
/* Drops what the kernel cached; for workspace_options.changed. m may be NULL. */
void mount_changed(struct mount *m, uint64_t inode, struct str name);
void mount_free(struct mount *m);

#endif
