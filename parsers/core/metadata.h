/* SPDX-License-Identifier: MIT */
/*
 * metadata: the keys of metadata.json's "model" section, the same for every format, and where a format keeps
 * those it has no field for.
 *
 * A driver maps the keys that its format has natively (struct format.model_keys) and nothing else. Every
 * other key is stored as a property "wiamodel.KEY" where the format has free string properties
 * (keeps_properties), else in the sidecar file: metadata_spill moves them there before plan(),
 * metadata_collect back after parse(). The section "preprocessing" travels the same way, as JSON text, when the
 * format does not list "preprocessing" among its model_keys.
 */
#ifndef PARSERS_CORE_METADATA_H
#define PARSERS_CORE_METADATA_H

#include "parsers/format.h"

struct metadata_key {
	const char *name;
	bool writable;
	int (*check)(const struct value *v, struct error *e); /* -EINVAL reported, without the key's name */
};

extern const struct metadata_key metadata_keys[];
extern const size_t metadata_key_count;
/* NULL when there is no such key */
const struct metadata_key *metadata_key(struct str name);

/*
 * Properties "wiamodel.KEY" become model keys (a native one wins) and leave the properties. Maps that change
 * are new ones in the arena.
 */
int metadata_collect(struct arena *a, struct metadata *meta, struct error *e);
/*
 * What of `in` goes into a file of format f: out->model holds native keys only, the others are properties or,
 * without a place, members of *sidecar (NULL when empty). Values are shared with `in`; maps that differ are
 * new ones in the arena.
 */
int metadata_spill(struct arena *a, const struct format *f, const struct metadata *in,
	struct metadata *out, struct value **sidecar, struct error *e);
/* Whether the format keeps the key in a field of its own. */
bool metadata_is_native(const struct format *f, struct str key);

#endif
