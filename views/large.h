/* SPDX-License-Identifier: MIT */
/*
 * large: the arrays of metadata.json that have a file of their own beside it (vocabularies), under metadata/ by section
 * and keys: metadata/properties/tokenizer.ggml.tokens.json. In metadata.json {"$file": PATH} stands for them. Belongs to
 * a tree; values and paths are the model's and the arena's.
 */
#ifndef VIEWS_LARGE_H
#define VIEWS_LARGE_H

#include "parsers/container/json_write.h"
#include "parsers/core/model.h"

/* An array longer than this is large ... */
#define LARGE_ELEMENTS 1000
/* ... if it is among so many first ones; the others stay in metadata.json */
#define LARGE_COUNT 64
/* maps around it, below the section; deeper ones stay as well */
#define LARGE_DEPTH 8

struct large {
	struct str path; /* from the root */
	const struct value *value;
};

struct large_list {
	struct large items[LARGE_COUNT];
	uint32_t count;
};

/* -ENOMEM */
int large_find(struct arena *a, const struct metadata *meta, struct large_list *out);
/* The members of a section, without its brackets. */
void large_members(const struct large_list *l, const struct value *map, struct json *j);
/* Puts the arrays in where a user left {"$file": PATH}; -EINVAL when there is no such file. */
int large_resolve(struct arena *a, const struct large_list *l, struct value *v, struct error *e);
/* The sections with `now` in place of item k; maps on the way are new ones. */
int large_replace(struct arena *a, const struct metadata *meta, const struct large *item, struct value *now,
	struct metadata *out);

#endif
