/* SPDX-License-Identifier: MIT */
/* tensors/NAME.npy: what npy.c shows and npy_accept.c takes. */
#ifndef VIEWS_NPY_H
#define VIEWS_NPY_H

#include "views/text.h"

/* struct view.accept */
int npy_accept(const struct view_context *cx, const struct subject *s, struct extmap *content,
	struct arena *a, struct edit *out, struct error *e);

#endif
