/* SPDX-License-Identifier: MIT */
/*
 * server: the process that reads the model and answers the kernel. It shuts itself into the sandbox before it
 * looks at the model, tells the keeper over `sock` how that went, waits for /dev/fuse, and serves until
 * the mount is gone or it is told to stop by SIGTERM, SIGINT or SIGHUP. Then it saves.
 */
#ifndef FS_SERVER_H
#define FS_SERVER_H

#include "fs/options.h"

/* The exit code of the process. keeper: pid to tell those who wait for the end. */
int server_run(const struct options *o, int sock, pid_t keeper);

#endif
