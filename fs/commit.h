/* SPDX-License-Identifier: MIT */
/*
 * commit: an edited model becomes files, whole or not at all.
 *
 *	validate, plan -> temporary files beside the target, durable -> read back and compared -> about_to ->
 *	companions get their names, the root file last -> directory durable -> obsolete files removed
 *
 * Whatever fails before the root file gets its name leaves the target as it was and no temporary file behind.
 * Mode, owner, extended attributes and ACLs of the file that is replaced are kept. Files that the plan leaves
 * unchanged are not touched.
 */
#ifndef FS_COMMIT_H
#define FS_COMMIT_H

#include "parsers/format.h"

struct commit {
	const char *dir, *base;      /* where the target lies, absolute; a model directory: its own name and parent */
	const struct format *format; /* to be written */
	bool in_place; /* over the very files that m->base was read from */
	bool force;    /* although they were changed by somebody else */
	bool verify;   /* compare all content, not only what was edited */
	bool lossy;    /* what the format cannot hold may go */
	bool real;     /* quantised tensors as their dequantised values */
	/* All is written and compared; `saved` is what it reads as, from sources with the identity they will have under
	 * their names. A failure here ends the commit. May be NULL. */
	int (*about_to)(void *arg, struct model *saved, struct error *e);
	void *arg;
};

/* 0 also when nothing had to be written. */
int commit_model(struct model *m, const struct commit *c, struct error *e);

#endif
