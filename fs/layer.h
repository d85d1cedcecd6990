/* SPDX-License-Identifier: MIT */
/*
 * layer: what was written to one file, over the content it had. Written bytes lie at their own offsets in a
 * sparse staging file; memory holds only the list of ranges written, so a large tensor costs disk, not
 * memory, and a few changed pages cost a few pages.
 *
 *	layer_new(fd, base, &l, e);          // takes over fd; a reference on base
 *	layer_write(l, offset, buf, len, e);
 *	layer_map(l, &map, e);               // the content as an extent map; freezes the layer
 *	layer_free(l);                       // map stays valid
 *
 * Maps are immutable, so a layer that gave one refuses further writes with EBUSY: start the next layer
 * over that map. No locks inside: the caller sees to it that a writer is alone.
 */
#ifndef FS_LAYER_H
#define FS_LAYER_H

#include "parsers/core/extmap.h"

#include <sys/types.h>

struct layer;

/* fd: an empty regular file, open for reading and writing; closed on failure too. base NULL: empty. */
int layer_new(int fd, struct extmap *base, struct layer **out, struct error *e);
void layer_free(struct layer *l);

uint64_t layer_size(const struct layer *l);
/* Up to len bytes, fewer only at the end; their number or a negative errno. */
ssize_t layer_read(const struct layer *l, uint64_t offset, void *buf, size_t len, struct error *e);
/* After a failure (ENOSPC, ...) bytes that no write covered before are as they were; those that an earlier
 * write covered may hold a part of the new content, as write(2) leaves them. */
int layer_write(struct layer *l, uint64_t offset, const void *buf, size_t len, struct error *e);
/* What lies behind a shorter size is forgotten: made longer again, it reads as zeroes. */
int layer_truncate(struct layer *l, uint64_t size, struct error *e);
/* Makes the staged bytes durable. */
int layer_sync(const struct layer *l, struct error *e);
/* The content with a reference for the caller. */
int layer_map(struct layer *l, struct extmap **out, struct error *e);

#endif
