/* SPDX-License-Identifier: MIT */
/*
 * model: what a model file holds, the same for every format: tensors, graphs of ops, metadata, and the
 * container's other members. A driver's parse() fills one; model_finish() checks and links it; from then
 * on it is immutable and shared by reference count, so readers take no lock.
 *
 * An edited model is another model (model_edit) that shares strings and payloads with the parsed one,
 * its base. Only tensors that were edited point to other data. Subjects keep their ids: a tensor's `id` is
 * its identity over a mount's life, its index in the array is not.
 */
#ifndef PARSERS_CORE_MODEL_H
#define PARSERS_CORE_MODEL_H

#include "parsers/core/arena.h"
#include "parsers/core/dtype.h"
#include "parsers/core/extmap.h"
#include "parsers/core/value.h"

#define MODEL_NONE UINT32_MAX /* no index */

struct format;

enum {
	TENSOR_BIG_ENDIAN = 1, /* elements lie in big-endian order */
	TENSOR_EDITED = 2,     /* data, shape or dtype differ from the base (set by model_edit) */
	TENSOR_RENAMED = 4,
	TENSOR_ADDED = 8,
};

struct tensor {
	struct str name;   /* what its framework prints (design, Names) */
	struct str stored; /* how the container spells it; empty = same as name */
	struct str shard;  /* file that holds it when that is not the model file itself */
	enum dtype dtype;
	uint32_t rank;
	uint64_t *shape; /* outermost first */
	uint64_t count;  /* elements; set by model_finish from shape */
	uint32_t flags;
	uint32_t id;       /* set by model_finish */
	uint32_t alias_of; /* index of the first tensor that shares its bytes exactly, MODEL_NONE = not shared */
	uint32_t base;     /* index in model->base->tensors, MODEL_NONE when added; set by model_edit */
	uint32_t graph;    /* graph whose edges may name it, MODEL_NONE = none */
	struct str local;  /* how that graph's edges spell it; empty = as name */
	struct extent data; /* the elements in C order as the file encodes them */
	struct str *strings; /* DTYPE_STRING: count elements instead of data */
	const char *stored_type; /* the container's own word for the type, e.g. "FLOAT", "Q4_K"; NULL = none */
	struct value *info;  /* further facts for info/NAME.json (quantisation, ...), a map or NULL */
	struct str problem;  /* why reading gives EIO; empty = sound */
	void *priv;          /* the driver's own, in the model's arena */
	/* -o npy=real: dequantised float32 view, NULL = none. Gives a codec reference in *out. */
	int (*real)(const struct tensor *t, struct extent *out, struct error *e);
};

enum edge_kind {
	EDGE_NONE,    /* an omitted optional input */
	EDGE_TENSOR,  /* index in tensors */
	EDGE_OP,      /* index in ops, output `output` of it */
	EDGE_INPUT,   /* an input of the graph (or of one around it) */
	EDGE_UNKNOWN, /* not resolved: model_finish resolves by name, and leaves what it cannot find */
};

struct edge {
	struct str name; /* the value's name in the graph */
	enum edge_kind kind;
	uint32_t index;
	uint32_t output;
};

struct op {
	struct str name; /* as the file has it, may be empty: the tree then uses the first output's */
	struct str type; /* "Conv" */
	struct str domain;
	struct value *attributes; /* a map or NULL; tensors in attributes appear as {"tensor": "NAME"} */
	struct value *extra;      /* further members of op.json, a map or NULL */
	struct edge *inputs;
	uint32_t input_count;
	uint32_t output_count;
	struct str *outputs;
	uint32_t graph; /* index of the graph it belongs to */
};

/* A named, typed value at a graph's border or inside it. */
struct port {
	struct str name;
	enum dtype dtype;
	const char *stored_type; /* when dtype says too little; NULL = none */
	int32_t rank;            /* -1 = unknown */
	struct value **dims;     /* INT, STRING (symbolic) or NULL (unknown) each */
	struct value *extra;     /* further facts (description, sequence types, ...), a map or NULL */
};

/*
 * The main graph is graphs[0] when there is one; it shows as graph/. A subgraph of an op shows inside the
 * op's directory under `label` (the attribute's name), a function under graph/functions/LABEL/.
 */
struct graph {
	struct str label;
	uint32_t parent_op;   /* MODEL_NONE for the main graph and functions */
	uint32_t scope;       /* graph whose names are visible here too, MODEL_NONE = none (a function) */
	uint32_t first_op, op_count; /* its ops are a contiguous range of model->ops, in stored order */
	struct port *inputs, *outputs;
	uint32_t input_count, output_count;
	struct value *extra; /* name, doc string, ... for graph.json; a map or NULL */
};

/* A member of the container that is neither a tensor nor metadata; shows under files/ */
struct member_file {
	struct str path; /* '/' separated; escaped by the tree */
	struct extent data;
	uint32_t flags; /* MEMBER_WRITABLE */
};
enum { MEMBER_WRITABLE = 1, MEMBER_EDITED = 2 };

/* The sections of metadata.json; each a map or NULL. */
struct metadata {
	struct value *model;         /* keys of design section 4 only; see metadata_keys[] in core/metadata.h */
	struct value *preprocessing;
	struct value *properties;    /* the format's own key-value store */
	struct value *values;        /* non-tensor leaves of checkpoints */
};

struct model {
	struct arena *arena;
	const struct format *format;
	struct str format_version; /* "IR 10", "v3"; empty = none */
	struct value *format_info; /* further read-only facts for metadata.json's "format", a map or NULL */
	struct tensor *tensors;
	uint32_t tensor_count, tensor_cap;
	struct op *ops;
	uint32_t op_count, op_cap;
	struct graph *graphs;
	uint32_t graph_count, graph_cap;
	struct member_file *files;
	uint32_t file_count, file_cap;
	struct metadata meta;
	bool meta_edited;
	struct str *warnings; /* shown in .wiamodel/status.json */
	uint32_t warning_count, warning_cap;
	struct source **sources; /* every file that was opened; sources[0] is the root file. References held */
	uint32_t source_count, source_cap;
	void *priv; /* the driver's, in the arena */
	struct model *base; /* parsed model this one is an edit of; NULL for a parsed one. Reference held */
	uint32_t next_id;
	bool finished;
	/* indexes made by model_finish: open addressing by name, and tensor index by id */
	uint32_t *by_name, *by_id;
	uint32_t by_name_mask;
	struct arena *edit_strings; /* of a parsed model: names and shapes that edits of it brought */
	int refs; /* atomic */
};

/* An empty model with one reference, or NULL. */
struct model *model_new(const struct format *format);
struct model *model_ref(struct model *m);
void model_unref(struct model *m);

/* Building blocks for parse(); each gives a zeroed element (indices in tensors etc. set to MODEL_NONE) or
 * NULL when a limit, the budget or memory is exhausted (reported in e). A pointer holds until the next call
 * of the same kind. */
struct tensor *model_add_tensor(struct model *m, struct error *e);
struct op *model_add_op(struct model *m, struct error *e);
struct graph *model_add_graph(struct model *m, struct error *e);
struct member_file *model_add_file(struct model *m, struct error *e);
int model_add_source(struct model *m, struct source *s, struct error *e); /* takes a reference */
void model_warn(struct model *m, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Marks a tensor damaged (first reason wins): it is listed, and reads as EIO. */
void tensor_damage(struct model *m, struct tensor *t, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Sets rank and shape (copied into the arena), checking rank and product; -EIO reported. */
int tensor_set_shape(struct model *m, struct tensor *t, const uint64_t *shape, uint32_t rank,
	struct error *e);

/*
 * The one check behind every driver: extents inside their sources and of size shape x dtype (else the
 * tensor is damaged), equal names made unique is the tree's business but reported as a warning, edges
 * resolved, indexes in range, ids given. Hands ownership of extents' references to the model.
 */
int model_finish(struct model *m, struct error *e);
/* For model_edit: builds by_name and by_id of a model whose ids are set. -ENOMEM. */
int model_index(struct model *m);

/* Index of the (first) tensor with that name or id, MODEL_NONE if none. */
uint32_t model_find_tensor(const struct model *m, struct str name);
uint32_t model_tensor_by_id(const struct model *m, uint32_t id);
/* Gives tensors of a freshly parsed model the ids they had in `old` (by name), so that inodes stay. */
int model_adopt_ids(struct model *m, const struct model *old);
/* Elements of all tensors, aliases counted once. */
uint64_t model_parameter_count(const struct model *m);

#endif
