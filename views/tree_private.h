/* SPDX-License-Identifier: MIT */
/*
 * What tree.c (placing, lookup, listing), tree_build.c (construction) and tree_graph.c (ops and links) share.
 *
 * Inode number: class (bits 56..62), subject (24..55), sub (0..23). Class 0 holds the fixed places: 1 is the root,
 * 1 + n the n-th static entry. Directories of names are numbered by a hash of their path, so that they keep
 * their number when others come and go; a collision takes the next free number, in order of names.
 */
#ifndef VIEWS_TREE_PRIVATE_H
#define VIEWS_TREE_PRIVATE_H

#include "views/sharing.h"
#include "views/names.h"
#include "views/tree.h"

#define TREE_NAME_MAX 255

enum tree_class {
	CLASS_STATIC,      /* sub: 1 + index in statics */
	CLASS_TENSOR,      /* tensor id, view */
	CLASS_TENSOR_DIR,  /* hash of path, view */
	CLASS_FILE,        /* file index, view */
	CLASS_FILE_DIR,    /* hash of path, view */
	CLASS_GRAPH,       /* graph, enum graph_sub or GRAPH_FILES + view */
	CLASS_OP_DIR,      /* hash of graph and path: a directory between ops/ and ops */
	CLASS_OP,          /* op, enum op_sub or OP_FILES + view */
	CLASS_INPUT_LINK,  /* op, input */
	CLASS_OUTPUT_LINK, /* op, link */
};

enum graph_sub { GRAPH_SELF, GRAPH_OPS, GRAPH_FUNCTIONS, GRAPH_FILES = 16 };
enum op_sub { OP_SELF, OP_INPUTS, OP_OUTPUTS, OP_FILES = 16 };

struct inode {
	enum tree_class class;
	uint32_t subject, sub;
};

static inline uint64_t inode_pack(enum tree_class class, uint32_t subject, uint32_t sub)
{
	return (uint64_t)class << 56 | (uint64_t)subject << 24 | sub;
}

static inline struct inode inode_unpack(uint64_t n)
{
	return (struct inode){(enum tree_class)(n >> 56), (uint32_t)(n >> 24), (uint32_t)n & 0xffffff};
}

enum static_kind { STATIC_DIR, STATIC_VIEW, STATIC_TENSORS, STATIC_FILES, STATIC_GRAPH };

struct static_entry {
	struct str name;
	uint32_t parent;
	enum static_kind kind;
	uint32_t view; /* index in views[], for all but STATIC_DIR and _GRAPH */
	uint32_t index; /* STATIC_VIEW of SUBJECT_FORMAT: in formats[]; of SUBJECT_VALUE: in the large arrays */
	bool listed, present;
};

/* Unique 32-bit numbers of directories, and the way back. */
struct dir_numbers {
	uint32_t *number; /* by directory */
	uint32_t *slots;  /* open addressing: number -> directory + 1 */
	uint32_t mask, count;
};
bool dir_numbers_init(struct dir_numbers *d, uint32_t count);
void dir_numbers_release(struct dir_numbers *d);
/* Takes `wanted` or the next free one. */
void dir_numbers_set(struct dir_numbers *d, uint32_t dir, uint32_t wanted);
uint32_t dir_numbers_find(const struct dir_numbers *d, uint32_t number); /* UINT32_MAX = none */

/* Names and their directories, shared by trees of one base model while names stay. */
struct name_space {
	struct nametree *names;
	struct dir_numbers dirs;
	int refs;
};
struct name_space *name_space_new(const struct str *names, uint32_t count, const char *const *suffixes);
struct name_space *name_space_ref(struct name_space *s);
void name_space_unref(struct name_space *s);

/* Where a graph's directory lies and what is in it. */
struct graph_place {
	struct nametree *ops; /* leaf k = op first_op + k */
	uint32_t first_dir;   /* its directory d has number index first_dir + d in graph_tree.dirs */
	struct str name;      /* component in the parent directory */
};

/* Everything about ops; belongs to the base model (and to edits that renamed), shared by reference. */
struct graph_tree {
	struct arena *arena;
	struct graph_place *places;
	uint32_t *dir_graph; /* graph of each op directory */
	struct dir_numbers dirs;
	uint32_t graph_count, op_count;
	uint32_t *functions, function_count; /* graphs without a parent op, but the main one */
	uint32_t *subgraphs, subgraph_count; /* graphs with a parent op, sorted by it */
	uint32_t *output_base; /* [op]: index of its first output in link_first; op_count + 1 entries */
	uint64_t *link_first;  /* [output]: its first link; one more entry at the end */
	uint32_t *link_target; /* [link]: consuming op, or MODEL_NONE */
	const struct op *ops;  /* which ops it was built from */
	int refs;
};
struct graph_tree *graph_tree_new(const struct model *m);
struct graph_tree *graph_tree_ref(struct graph_tree *g);
void graph_tree_unref(struct graph_tree *g);

struct tree {
	int refs;
	struct model *model;
	struct view_context context;
	struct static_entry *statics;
	uint32_t static_count, static_cap;
	struct name_space *tensors, *files; /* leaf k = tensor k, file k */
	struct graph_tree *graphs;          /* NULL without a graph */
	struct sharing sharing;
	struct large_list large;
	struct arena *arena;
};

/* tree_graph.c: children of graph and op directories; same contracts as in tree.c */
typedef bool child_fn(const struct tree *t, const struct inode *dir, uint64_t k, char *buf, struct str *name,
	uint64_t *inode);
uint64_t graph_child_count(const struct tree *t, const struct inode *dir);
child_fn graph_child;
int graph_lookup(const struct tree *t, const struct inode *dir, struct str name, uint64_t *inode);
bool graph_inode_valid(const struct tree *t, const struct inode *n);
uint64_t graph_parent(const struct tree *t, const struct inode *n);
struct str graph_dir_name(const struct tree *t, const struct inode *n, char *buf);
char *graph_link_target(const struct tree *t, const struct inode *link);

/* tree.c */
int tree_fill_entry(const struct tree *t, uint64_t inode, bool with_size, struct entry *out);
bool tree_view_exists(const struct tree *t, uint32_t view, enum subject_kind kind, uint32_t index);

#endif
