/* SPDX-License-Identifier: MIT */
/* What the reader and the writer of Flax MessagePack share. */
#ifndef PARSERS_FLAX_H
#define PARSERS_FLAX_H

#include "parsers/format.h"

/* ext types of flax.serialization (0.12) */
enum { FLAX_NDARRAY = 1, FLAX_COMPLEX = 2, FLAX_SCALAR = 3, FLAX_TUPLE = 4 };

/* arrays above this many bytes come in chunks of this many */
#define FLAX_CHUNK (1ull << 30)
#define FLAX_CHUNK_KEY "__msgpack_chunked_array__"

/* A map of the file: where its header and its end are. */
struct flax_map {
	struct str path; /* "params/Dense_0", "" = the outermost */
	uint64_t header, header_size, end;
	uint32_t count;
};

/* model->priv */
struct flax_file {
	struct source *src; /* held by the model */
	struct flax_map *maps;
	uint32_t map_count;
};

/* tensor->priv: the entry of a map, or an item of a list (then key_size is 0) */
struct flax_place {
	uint64_t key, key_size;
	uint64_t value, value_size;
	uint32_t map; /* index in maps, MODEL_NONE in lists */
	uint8_t ext;
	bool chunked;
};

int flax_plan(const struct model *m, struct plan *p, struct error *e);
int flax_check_edit(const struct model *m, const struct edit *x, struct error *e);
extern const struct format format_flax;

#endif
