/* SPDX-License-Identifier: MIT */
/* What the tests of drivers share: finding a tensor and comparing its bytes. */
#ifndef TESTS_UNIT_MODEL_H
#define TESTS_UNIT_MODEL_H

#include "parsers/core/model.h"

static inline const struct tensor *find(const struct model *m, const char *name)
{
	uint32_t i = model_find_tensor(m, str_from(name));

	return i == MODEL_NONE ? NULL : &m->tensors[i];
}

/* at most 64 bytes */
static inline bool holds(const struct model *m, const char *name, const void *want, size_t size)
{
	const struct tensor *t = find(m, name);
	unsigned char got[64];

	return t && !t->problem.len && t->data.size == size &&
	       extent_read(&t->data, 0, got, size, NULL) == 0 && memcmp(got, want, size) == 0;
}

#endif
