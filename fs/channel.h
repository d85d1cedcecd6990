/* SPDX-License-Identifier: MIT */
/*
 * channel: short messages between the keeper (which mounts) and the sandboxed server, over a
 * SOCK_SEQPACKET pair; one of them carries the /dev/fuse descriptor.
 */
#ifndef FS_CHANNEL_H
#define FS_CHANNEL_H

#include <stdbool.h>
#include <stdint.h>

enum message_kind {
	MESSAGE_NOTE,      /* server -> keeper: a line for the user */
	MESSAGE_FAILED,    /* server -> keeper: code = exit code, text = why */
	MESSAGE_OPENED,    /* server -> keeper: the model is good. code: 1 = read-only; text = note or "" */
	MESSAGE_MOUNTED,   /* keeper -> server: with the descriptor */
	MESSAGE_UNMOUNT,   /* server -> keeper: please unmount */
	MESSAGE_UNMOUNTED, /* keeper -> server: done. code: 1 = only detached, it was busy */
};

struct message {
	uint32_t kind;
	uint32_t code;
	char text[1024];
};

int channel_new(int fds[2]);
/* fd -1 = none. 0 or -errno. */
int channel_send(int sock, enum message_kind kind, uint32_t code, const char *text, int fd);
/* 0, -EPIPE when the other side is gone, -ETIMEDOUT. timeout in ms, -1 = forever. *fd may be NULL. */
int channel_receive(int sock, struct message *m, int *fd, int timeout);

#endif
