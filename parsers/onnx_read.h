/* SPDX-License-Identifier: MIT */
/*
 * Reading ONNX, in three files: onnx.c is the driver and reads what stands around the graphs, onnx_graph.c walks
 * graphs, onnx_tensor.c makes tensors of TensorProtos. All of them report to x->e and return 0 or a negative errno.
 */
#ifndef PARSERS_ONNX_READ_H
#define PARSERS_ONNX_READ_H

#include "parsers/core/input.h"
#include "parsers/onnx_types.h"
#include "parsers/schema/onnx.pb-c.h"

/* An external data file, opened once. */
struct onnx_companion {
	struct str name;
	struct source *src; /* held by the model */
};

/* A graph or function that was found and is to be walked. */
struct onnx_pending {
	const Wia__Onnx__Graph *proto;       /* or */
	const Wia__Onnx__Function *function; /* one of the two */
	uint32_t graph;    /* index in m->graphs */
	struct str prefix; /* before the names of its tensors: "OP/ATTRIBUTE/" */
};

struct onnx_reader {
	struct input *in;
	struct model *m;
	struct pb_skeleton skeleton;
	struct onnx_companion *companions;
	uint32_t companion_count, companion_cap;
	struct onnx_pending *pending;
	uint32_t pending_count, pending_cap;
	struct error *e;
};

static inline struct str onnx_str(ProtobufCBinaryData b)
{
	return (struct str){(const char *)b.data, b.len};
}
/* a copy that lives as long as the model */
static inline struct str onnx_keep(struct onnx_reader *x, ProtobufCBinaryData b)
{
	return arena_str(x->m->arena, (const char *)b.data, b.len);
}
int onnx_no_memory(struct onnx_reader *x);
/* a + b + c in the arena */
struct str onnx_join(struct onnx_reader *x, struct str a, struct str b, struct str c);
/* Entries as a map; of equal keys the last counts, with a warning that names `where`. NULL when memory is out. */
struct value *onnx_entries(struct onnx_reader *x, Wia__Onnx__Entry *const *list, size_t count, const char *where);
/* value_set with the key copied from a literal; NULL values are out of memory. */
int onnx_set(struct onnx_reader *x, struct value **map, const char *key, struct value *v);
/* The same for a string that may be absent or empty: then nothing is set. */
int onnx_set_text(struct onnx_reader *x, struct value **map, const char *key, ProtobufCBinaryData text);

/* Adds the tensor of a TensorProto: `name` as the tree shows it, `local` as edges of graph spell it (empty = the
 * same), both in the arena. *index gets its number. */
int onnx_add_tensor(struct onnx_reader *x, const Wia__Onnx__Tensor *t, struct str name, struct str local,
	uint32_t graph, bool in_attribute, uint32_t *index);
/* NAME.values and NAME.indices of a sparse tensor, which edges spell `local`. *index: the values'. */
int onnx_add_sparse(struct onnx_reader *x, const Wia__Onnx__SparseTensor *t, struct str name, struct str local,
	uint32_t graph, bool in_attribute, uint32_t *index);
/* A string attribute that is too large to stay in memory, as a tensor of bytes. */
int onnx_add_blob(struct onnx_reader *x, const Wia__Onnx__Attribute *a, struct str name);

/* Adds a graph to be walked. Label and prefix lie in the arena. */
int onnx_queue_graph(struct onnx_reader *x, const Wia__Onnx__Graph *g, struct str label, uint32_t parent_op,
	uint32_t scope, struct str prefix);
int onnx_queue_function(struct onnx_reader *x, const Wia__Onnx__Function *f);
/* Walks all that was queued, and what that brings. */
int onnx_walk_graphs(struct onnx_reader *x);

#endif
