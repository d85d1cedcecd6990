/* SPDX-License-Identifier: MIT */
/*
 * edit: one change a user made to a model. A view's accept() turns written bytes into an edit;
 * model_edit() checks it against the format's abilities and gives the edited model.
 */
#ifndef PARSERS_CORE_EDIT_H
#define PARSERS_CORE_EDIT_H

#include "parsers/core/model.h"

enum edit_kind {
	EDIT_TENSOR,   /* new values, shape or dtype for tensor `id` */
	EDIT_ADD,      /* a tensor `name` */
	EDIT_RENAME,   /* tensor `id` becomes `name` */
	EDIT_REMOVE,   /* tensor `id` */
	EDIT_METADATA, /* all sections replaced by `meta` */
	EDIT_FILE,     /* files/ member `name` gets `data` */
};

struct edit {
	enum edit_kind kind;
	uint32_t id;
	struct str name;
	enum dtype dtype; /* EDIT_TENSOR, EDIT_ADD: stored type of data */
	uint32_t rank;
	uint64_t shape[64];
	struct extent data;  /* stored bits, C order, little-endian unless the tensor is big-endian; borrowed */
	struct str *strings; /* DTYPE_STRING, borrowed */
	struct metadata meta; /* borrowed; copied by model_edit */
};

/*
 * The edited model in *out, with one reference, or the reason why not: EINVAL (bad edit), EOPNOTSUPP (this
 * format cannot), EEXIST (name taken), EBUSY (tensor used by ops; the text names them). `m` is unchanged.
 * The format's check_edit() has the last word.
 */
int model_edit(struct model *m, const struct edit *edit, struct model **out, struct error *e);
/* True when nothing differs from the base. */
bool model_is_clean(const struct model *m);

#endif
