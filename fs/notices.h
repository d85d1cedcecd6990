/* SPDX-License-Identifier: MIT */
/*
 * notices: a queue of what the kernel must forget, delivered by a thread of its own. Telling the kernel waits for
 * locks which it may hold for a request that waits for us; so no serving thread may do it.
 */
#ifndef FS_NOTICES_H
#define FS_NOTICES_H

#include "parsers/core/str.h"

struct notices;

/* deliver is called in order, name NUL-terminated; len 0 = the inode itself. NULL when memory is out. */
struct notices *notices_new(void (*deliver)(void *arg, uint64_t inode, struct str name), void *arg);
/* Any thread; never blocks for long. -ENOMEM. */
int notices_add(struct notices *n, uint64_t inode, struct str name);
/* Waits until what was added so far is delivered, or that time has passed. */
void notices_settle(struct notices *n, unsigned milliseconds);
/* Drops what is queued, waits for the thread. false: it is stuck in the kernel; then nothing it uses may go. */
bool notices_free(struct notices *n);

#endif
