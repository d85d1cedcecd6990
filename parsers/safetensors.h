/* SPDX-License-Identifier: MIT */
/* What safetensors.c (reading, the format itself) and safetensors_write.c share. */
#ifndef PARSERS_SAFETENSORS_H
#define PARSERS_SAFETENSORS_H

#include "parsers/format.h"

#define SAFETENSORS_METADATA "__metadata__"
#define SAFETENSORS_INDEX ".safetensors.index.json"

struct safetensors_type {
	const char *name;
	enum dtype dtype;
};
/* in the order in which the reference writes tensors, so that each is aligned */
extern const struct safetensors_type safetensors_types[];
/* Index in it; safetensors_type_count = the dtype has no place. */
size_t safetensors_type(enum dtype d);
extern const size_t safetensors_type_count;
/* Elements fill whole bytes. */
bool safetensors_whole_bytes(enum dtype d, uint64_t count);

struct shard {
	struct source *src;
	struct str name;    /* "" = the only file */
	uint64_t data;      /* where the data begin */
	uint32_t count;     /* tensors read from it, after the index had its say */
};

/* model.priv of a parsed model; tensor.priv of a parsed tensor is its shard */
struct safetensors {
	struct shard *shards;
	uint32_t count;
	bool indexed;         /* there is an index, the root file */
	struct str index;     /* its name in the model's directory; "" when the user named it */
	struct value *facts;  /* the index's "metadata" */
};

/* What an index says of a tensor: the shard's number; count of shards = it is not listed. */
struct weight_map;
uint32_t weight_map_find(const struct weight_map *w, struct str name);
/* safetensors.c: the tensors of one file; w NULL = no index */
int safetensors_read_shard(struct model *m, struct safetensors *s, uint32_t shard,
	struct weight_map *w, struct error *e);
/* safetensors_index.c: the file in a directory to begin with: an index, or the only model. Longer than cap-1 = none. */
bool safetensors_in_directory(const struct input *in, char *name, size_t cap);
bool safetensors_is_index(struct str name);
int safetensors_read_index(struct input *in, struct source *index, struct model *m,
	struct safetensors *s, struct error *e);

extern const struct format format_safetensors;
int safetensors_plan(const struct model *m, struct plan *p, struct error *e);

#endif
