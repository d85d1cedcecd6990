/* SPDX-License-Identifier: MIT */
/*
 * alias: the numbers by which the kernel knows files, where they are not the workspace's own. A rename moves the
 * kernel's inode to the new name and nothing can be taken back before it answers the user, so it is the server that
 * adapts: after an editor's scratch file was renamed over metadata.json, metadata.json goes by the scratch
 * file's number; after metadata.json was moved to a backup name, the backup has its number and it gets a
 * new one. A number that meant a file goes on meaning it for those who have it open.
 *
 * Every function of fs/workspace.h translates at its door; within the workspace only own numbers are used.
 */
#ifndef FS_ALIAS_H
#define FS_ALIAS_H

#include "fs/workspace.h"

struct alias;

#define ALIAS_BUCKETS 64

struct aliases {
	struct alias *by_shown[ALIAS_BUCKETS], *by_inode[ALIAS_BUCKETS];
};

/* The file that the kernel means by a number. */
uint64_t alias_in(struct workspace *w, uint64_t shown);
/* The number that is told to the kernel. */
uint64_t alias_out(struct workspace *w, uint64_t inode);
/* From now on the number `shown` is this file. Numbers it had before go on meaning it. `lock` is held. */
int alias_set(struct workspace *w, uint64_t shown, uint64_t inode);
/* alias_out with `lock` held */
uint64_t alias_of(struct workspace *w, uint64_t inode);
/* All numbers that mean a file; at most `cap`, newest first. */
unsigned alias_all(struct workspace *w, uint64_t inode, uint64_t *shown, unsigned cap);
void alias_release(struct workspace *w);

#endif
