/* SPDX-License-Identifier: MIT */
/*
 * sharing: the names of each shared storage, sorted, so that every one of them can tell the others whichever the
 * file names first. Immutable; belongs to a tree.
 */
#ifndef VIEWS_SHARING_H
#define VIEWS_SHARING_H

#include "parsers/core/model.h"

struct sharer {
	uint32_t root;   /* the tensor that the others' alias_of tells */
	uint32_t tensor; /* index; the root is one of them */
};

struct sharing {
	struct sharer *items; /* by root, then name */
	uint32_t count;
};

/* -ENOMEM */
int sharing_init(struct sharing *x, const struct model *m);
void sharing_release(struct sharing *x);
/* The storage of this tensor: its items, count 0 when it is not shared. */
struct sharing sharing_of(const struct sharing *x, const struct model *m, uint32_t tensor);
/* Whether the same tensors (by id and name) share the same storages. */
bool sharing_equal(const struct sharing *x, const struct model *mx, const struct sharing *y, const struct model *my);

#endif
