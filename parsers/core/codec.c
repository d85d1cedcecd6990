/* SPDX-License-Identifier: MIT */
#include "parsers/core/codec.h"

#include <errno.h>

void codec_init(struct codec *c, const struct codec_ops *ops, uint64_t size)
{
	c->ops = ops;
	c->size = size;
	c->refs = 1;
}

struct codec *codec_ref(struct codec *c)
{
	if (c)
		__atomic_add_fetch(&c->refs, 1, __ATOMIC_RELAXED);
	return c;
}

void codec_unref(struct codec *c)
{
	if (c && __atomic_sub_fetch(&c->refs, 1, __ATOMIC_ACQ_REL) == 0)
		c->ops->free(c);
}

int codec_read(struct codec *c, uint64_t offset, void *buf, size_t len, struct error *e)
{
	if (offset > c->size || len > c->size - offset)
		return error_set(e, EINVAL, "read of %zu bytes at %llu outside the %llu of %s", len,
			(unsigned long long)offset, (unsigned long long)c->size, c->ops->name);
	return len ? c->ops->read(c, offset, buf, len, e) : 0;
}
