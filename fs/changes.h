/* SPDX-License-Identifier: MIT */
/*
 * changes: tells the kernel what to forget, so that whoever was answered sees nothing stale. Two queues (fs/notices.h):
 * contents never wait for a directory's lock, names do. A request that changes names holds the locks of its directories
 * until it is answered, so what concerns other names in those is told after the answer; its own names the
 * kernel puts right by itself.
 *
 *	changes_begin(dir, name, new_dir, new_name);  // NULL: none
 *	...                                           // changes_add, by this thread
 *	changes_settle(c);                            // before the answer
 *	changes_end(c);                               // after it
 */
#ifndef FS_CHANGES_H
#define FS_CHANGES_H

#include "parsers/core/str.h"

struct changes;

/* Called by threads that hold nothing; name.len 0: the inode itself. NULL when memory is out. */
struct changes *changes_new(void (*deliver)(void *arg, uint64_t inode, struct str name), void *arg);
/* false: stuck in the kernel, nothing it uses may go. */
bool changes_free(struct changes *c);

void changes_begin(uint64_t dir, const char *name, uint64_t new_dir, const char *new_name);
/* Any thread. -ENOMEM. */
int changes_add(struct changes *c, uint64_t inode, struct str name);
/* Waits until the kernel has forgotten what was added; a second at most, should it wait for us. */
void changes_settle(struct changes *c);
void changes_end(struct changes *c);

#endif
