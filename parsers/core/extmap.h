/* SPDX-License-Identifier: MIT */
/*
 * extmap: a file, shown or saved, as an ordered list of pieces (extents): a range of a source, bytes in
 * memory, zeroes, the output of a codec, or a range of another extmap. Reading a tensor, exporting a
 * model and saving one are the same function, extmap_read, and no payload byte is copied before that.
 *
 *	struct extmap m = {0};
 *	extmap_append_copy(&m, header, n);
 *	extmap_append(&m, &tensor->data);
 *	extmap_read(&m, 0, buf, len, e);
 *	extmap_release(&m);
 *
 * Append functions return 0 or -ENOMEM/-EOVERFLOW and are sticky: after a failure the map is marked and
 * every later append and read fails, so test once at the end (extmap_failed). An extmap holds references
 * on the sources, codecs and maps in it; EXTENT_MEMORY is borrowed (it must outlive the map) unless it
 * came by extmap_append_copy or _take. A finished map is immutable and may be read by many threads.
 */
#ifndef PARSERS_CORE_EXTMAP_H
#define PARSERS_CORE_EXTMAP_H

#include "parsers/core/error.h"
#include "parsers/core/source.h"

struct codec;
struct extmap;

enum extent_kind { EXTENT_ZERO, EXTENT_SOURCE, EXTENT_MEMORY, EXTENT_CODEC, EXTENT_MAP };

struct extent {
	uint64_t size;
	uint64_t offset; /* where it begins in the source, memory, codec output or map */
	enum extent_kind kind;
	union {
		struct source *src;
		const void *bytes;
		struct codec *codec;
		struct extmap *map; /* heap map made by extmap_new, reference counted */
	};
};

struct extent extent_source(struct source *src, uint64_t offset, uint64_t size);
struct extent extent_memory(const void *bytes, uint64_t size);
struct extent extent_codec(struct codec *c);
struct extent extent_zero(uint64_t size);
struct extent extent_map(struct extmap *m);
/* A part of it; size is cut at the end. */
struct extent extent_slice(struct extent x, uint64_t offset, uint64_t size);
void extent_ref(const struct extent *x);   /* one more reference on what it points to */
void extent_unref(const struct extent *x);
int extent_read(const struct extent *x, uint64_t offset, void *buf, size_t len, struct error *e);

struct extmap_owned {
	void (*release)(void *object);
	void *object;
};

struct extmap {
	struct extent *pieces;
	uint64_t *ends; /* ends[i]: offset in the map just behind piece i */
	size_t count, cap;
	uint64_t size;
	int failed;
	struct extmap_owned *owned; /* what is released with the map */
	size_t owned_count, owned_cap;
	int refs; /* only for extmap_new */
};

struct extmap *extmap_new(void);
struct extmap *extmap_ref(struct extmap *m);
void extmap_unref(struct extmap *m);
void extmap_release(struct extmap *m); /* for caller's storage; leaves it empty */

int extmap_append(struct extmap *m, const struct extent *x); /* takes a reference of its own */
int extmap_append_map(struct extmap *m, const struct extmap *other, uint64_t offset, uint64_t size);
/* All of `other`, which may be released afterwards: memory that it owns is copied. */
int extmap_append_kept(struct extmap *m, const struct extmap *other);
int extmap_append_source(struct extmap *m, struct source *src, uint64_t offset, uint64_t size);
int extmap_append_memory(struct extmap *m, const void *bytes, uint64_t size); /* borrowed */
int extmap_append_copy(struct extmap *m, const void *bytes, size_t size);
int extmap_append_take(struct extmap *m, void *heap, size_t size); /* free()d with the map, also on failure */
/* Calls release(object) when the map is released (at once when memory is out): for what pieces borrow. */
int extmap_keep(struct extmap *m, void (*release)(void *object), void *object);
int extmap_append_zero(struct extmap *m, uint64_t size);
int extmap_failed(const struct extmap *m, struct error *e); /* 0 or the negative errno, reported */

/* Exactly len bytes at offset; -EINVAL outside. */
int extmap_read(const struct extmap *m, uint64_t offset, void *buf, size_t len, struct error *e);
/* A pointer to len plain bytes when they lie in one source or memory piece, else NULL; see source_peek
 * for what may be done with it. */
const void *extmap_peek(const struct extmap *m, uint64_t offset, size_t len);
/* The piece that holds offset, its range within the map in *begin; NULL at or past the end. */
const struct extent *extmap_find(const struct extmap *m, uint64_t offset, uint64_t *begin);

#endif
