/* SPDX-License-Identifier: MIT */
/* tree_changes: what somebody who knows one tree must forget to know another, by inode and by name. */
#ifndef VIEWS_TREE_CHANGES_H
#define VIEWS_TREE_CHANGES_H

#include "views/tree.h"

/*
 * Two trees of one mount. emit gets an inode whose content, size or children differ (name empty), or a
 * directory and a name in it that came, went, or stands for something else. same_content: payloads are known to be the
 * same although they lie elsewhere, as after a save.
 */
void tree_changes(const struct tree *a, const struct tree *b, bool same_content,
	void (*emit)(void *arg, uint64_t inode, struct str name), void *arg);

#endif
