/* SPDX-License-Identifier: MIT */
/*
 * view: one kind of file that a mount shows for one kind of subject. A view is one file with one
 * `const struct view` at its foot and one line in views.def; the tree places it, fs/ and the command line
 * serve it without knowing it.
 *
 * render(): subject -> extent map, whose size is the file's exact size. It must not read payloads (a
 *	codec in the map may, when it is read) and must give the same bytes for the same model.
 * size(): the same size without building the map, for listings; NULL = render and ask.
 * accept(): the written bytes -> an edit, or EINVAL with the reason. NULL = read-only.
 */
#ifndef VIEWS_VIEW_H
#define VIEWS_VIEW_H

#include "parsers/format.h"
#include "parsers/container/json_write.h"

enum subject_kind {
	SUBJECT_MODEL,
	SUBJECT_TENSOR,
	SUBJECT_GRAPH, /* one for each graph, placed in the graph's directory */
	SUBJECT_OP,    /* one for each op, placed in the op's directory */
	SUBJECT_FILE,  /* one for each member_file, under its path */
	SUBJECT_FORMAT, /* one for each format with CAN_CREATE, index in formats[]; the file is called "model" and the
	                 * format's first extension, inside the directory `path` (".wiamodel/export") */
	SUBJECT_VALUE,  /* one for each large array of metadata, see views/large.h */
};

struct view_options {
	bool npy_bits; /* -o npy=bits */
	bool npy_real; /* -o npy=real */
	bool lossy;    /* exports may drop what the target cannot hold */
};

struct tree;

/* What a view may look at besides its subject. */
struct view_context {
	const struct model *model; /* the model as edited so far; its base gives the saved state */
	const struct tree *tree;   /* for names; views/tree.h */
	struct view_options options;
	const struct verdict *verdicts; /* format_count, or NULL */
	/* state kept by the mount, printed by status.json; NULL outside a mount. Writes JSON members. */
	void (*status)(void *arg, struct json *j);
	void *status_arg;
};

struct subject {
	enum subject_kind kind;
	uint32_t index; /* in model->tensors, graphs, ops, files; formats; the tree's large arrays */
};

struct view {
	const char *name;          /* -o views=NAME for top-level ones: "tensors" */
	enum subject_kind subject;
	/* SUBJECT_MODEL: the file's path, "metadata.json", ".wiamodel/layout.txt", "graph/graph.txt"; _TENSOR and _FILE: the
	 * top directory, "tensors"; _OP, _GRAPH: the file's name, "op.json" */
	const char *path;
	const char *suffix; /* SUBJECT_TENSOR: behind the name, ".npy" */
	/* false: this subject has no such file (no graph -> no graph.txt). NULL = always */
	bool (*exists)(const struct view_context *cx, const struct subject *s);
	int (*render)(const struct view_context *cx, const struct subject *s, struct extmap *out,
		struct error *e);
	int (*size)(const struct view_context *cx, const struct subject *s, uint64_t *size);
	/* `content` stays valid and unchanged as long as a reference is held. The edit may point into it. Strings
	 * of the edit live in `a`. */
	int (*accept)(const struct view_context *cx, const struct subject *s, struct extmap *content,
		struct arena *a, struct edit *out, struct error *e);
	/* the file may be created by name (cp new.npy tensors/x.npy): accept gets index MODEL_NONE and
	 * the tensor's name in out->name */
	bool can_create;
};

extern const struct view *const views[];
extern const size_t view_count;

/* For render: the whole text at once. Empties j. */
int view_text(struct extmap *out, struct json *j, struct error *e);
/* For size(): the length of that text. Empties j. */
int view_text_size(struct json *j, uint64_t *size);

#endif
