/* SPDX-License-Identifier: MIT */
/*
 * control: what the command line asks of a running mount, as ioctl(2) on the mount's root directory. Unlike a
 * write to .wiamodel/commit it brings the reason back in the same call.
 */
#ifndef FS_CONTROL_H
#define FS_CONTROL_H

#include "fs/workspace.h"

#include <sys/ioctl.h>

struct control {
	uint32_t code;   /* errno, 0 = done */
	uint32_t keeper; /* process that ends last; gone = the mount is finished and all is durable */
	uint32_t server;
	uint32_t dirty;  /* 1: edits are staged */
	char text[512];  /* why, when code != 0 */
};

#define CONTROL_STATUS _IOR('w', 0x70, struct control)
#define CONTROL_COMMIT _IOR('w', 0x71, struct control)
#define CONTROL_DISCARD _IOR('w', 0x72, struct control)

/* The server's side: whether a call is one of these, and the answer (all but the process ids). */
bool control_is(unsigned command, size_t out_size);
void control_answer(struct workspace *w, unsigned command, struct control *c);

#endif
