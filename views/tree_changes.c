/* SPDX-License-Identifier: MIT */
#include "views/tree_changes.h"
#include "views/tree_private.h"

#include <stdlib.h>

struct comparison {
	const struct tree *a, *b;
	bool same_content;
	void (*emit)(void *arg, uint64_t inode, struct str name);
	void *arg;
};

static const struct str whole = {NULL, 0};

static void emit(const struct comparison *c, uint64_t inode, struct str name)
{
	if (inode)
		c->emit(c->arg, inode, name);
}

/* ---- fixed places ---- */

static void emit_statics(const struct comparison *c, const struct tree *t, uint32_t from)
{
	for (uint32_t i = from; i < t->static_count; i++) {
		emit(c, i + 1, whole);
		emit(c, t->statics[i].parent + 1u, t->statics[i].name);
		emit(c, t->statics[i].parent + 1u, whole);
	}
}

/* What is made of the whole model: any edit may show in it. */
static void compare_statics(const struct comparison *c)
{
	uint32_t both = c->a->static_count < c->b->static_count ? c->a->static_count : c->b->static_count;

	for (uint32_t i = 1; i < both; i++) {
		const struct static_entry *was = &c->a->statics[i], *is = &c->b->statics[i];
		bool same = str_eq(was->name, is->name) && was->parent == is->parent && was->kind == is->kind;

		if (is->kind == STATIC_VIEW || !same)
			emit(c, i + 1, whole);
		if (!same)
			emit(c, was->parent + 1u, was->name);
		if (!same || was->present != is->present)
			emit(c, is->parent + 1u, is->name);
	}
	/* large arrays come and go */
	emit_statics(c, c->a, both);
	emit_statics(c, c->b, both);
}

/* ---- tensors ---- */

static bool same_extent(const struct extent *a, const struct extent *b)
{
	return a->kind == b->kind && a->size == b->size && a->offset == b->offset &&
	       (a->kind == EXTENT_ZERO || a->bytes == b->bytes);
}

static bool same_tensor(const struct comparison *c, const struct tensor *a, const struct tensor *b)
{
	if (a->dtype != b->dtype || a->rank != b->rank || !str_eq(a->name, b->name) ||
		!str_eq(a->problem, b->problem) ||
		(a->alias_of == MODEL_NONE) != (b->alias_of == MODEL_NONE) ||
		(a->rank && memcmp(a->shape, b->shape, a->rank * sizeof(*a->shape)) != 0))
		return false;
	return c->same_content || (a->flags == b->flags && same_extent(&a->data, &b->data) &&
					  a->strings == b->strings);
}

static void emit_views(const struct comparison *c, enum tree_class class, uint32_t subject,
	enum subject_kind kind)
{
	for (uint32_t v = 0; v < view_count; v++)
		if (views[v]->subject == kind)
			emit(c, inode_pack(class, subject, v), whole);
}

static void compare_tensors(const struct comparison *c)
{
	const struct model *a = c->a->model, *b = c->b->model;

	for (uint32_t i = 0; i < b->tensor_count; i++) {
		uint32_t was = model_tensor_by_id(a, b->tensors[i].id);

		if (was != MODEL_NONE && !same_tensor(c, &a->tensors[was], &b->tensors[i]))
			emit_views(c, CLASS_TENSOR, b->tensors[i].id, SUBJECT_TENSOR);
	}
	for (uint32_t i = 0; i < a->tensor_count; i++)
		if (model_tensor_by_id(b, a->tensors[i].id) == MODEL_NONE)
			emit_views(c, CLASS_TENSOR, a->tensors[i].id, SUBJECT_TENSOR);
}

/* Each name of a shared storage tells the others. */
static void emit_sharing(const struct comparison *c, const struct tree *t)
{
	for (uint32_t i = 0; i < t->sharing.count; i++)
		emit_views(c, CLASS_TENSOR, t->model->tensors[t->sharing.items[i].tensor].id, SUBJECT_TENSOR);
}

static void compare_sharing(const struct comparison *c)
{
	if (sharing_equal(&c->a->sharing, c->a->model, &c->b->sharing, c->b->model))
		return;
	emit_sharing(c, c->a);
	emit_sharing(c, c->b);
}

static void compare_files(const struct comparison *c)
{
	const struct model *a = c->a->model, *b = c->b->model;

	for (uint32_t i = 0; i < a->file_count && i < b->file_count; i++)
		if (!c->same_content && !same_extent(&a->files[i].data, &b->files[i].data))
			emit_views(c, CLASS_FILE, i, SUBJECT_FILE);
}

/* ---- names of tensors ---- */

static uint64_t dir_inode(const struct tree *t, uint32_t dir, uint32_t view)
{
	if (dir)
		return inode_pack(CLASS_TENSOR_DIR, t->tensors->dirs.number[dir], view);
	for (uint32_t i = 1; i < t->static_count; i++)
		if (t->statics[i].kind == STATIC_TENSORS && t->statics[i].view == view)
			return i + 1;
	return 0;
}

static bool has_dir(const struct tree *t, uint32_t number)
{
	return dir_numbers_find(&t->tensors->dirs, number) != UINT32_MAX;
}

/* Directory `dir` of t, in every view: its listing changes, and its own name when the other tree has none such. */
static void emit_dirs(const struct comparison *c, const struct tree *t, const struct tree *other,
	uint32_t dir, uint32_t view)
{
	const struct nametree *n = t->tensors->names;

	emit(c, dir_inode(t, dir, view), whole);
	while (dir && !has_dir(other, t->tensors->dirs.number[dir])) {
		uint32_t up = nametree_parent(n, dir);

		emit(c, dir_inode(t, up, view), nametree_dir_name(n, dir));
		dir = up;
	}
}

static void emit_leaf(const struct comparison *c, const struct tree *t, const struct tree *other,
	uint32_t leaf)
{
	char buf[TREE_NAME_MAX + 1];
	uint32_t dir;
	struct str name;

	nametree_leaf(t->tensors->names, leaf, &dir, &name);
	for (uint32_t v = 0; v < view_count; v++) {
		size_t suffix = views[v]->suffix ? strlen(views[v]->suffix) : 0;

		if (views[v]->subject != SUBJECT_TENSOR || name.len + suffix > TREE_NAME_MAX)
			continue;
		memcpy(buf, name.ptr, name.len);
		if (suffix)
			memcpy(buf + name.len, views[v]->suffix, suffix);
		emit(c, dir_inode(t, dir, v), (struct str){buf, name.len + suffix});
		emit_dirs(c, t, other, dir, v);
	}
}

static bool same_place(const struct tree *a, uint32_t leaf_a, const struct tree *b, uint32_t leaf_b)
{
	uint32_t dir_a, dir_b;
	struct str name_a, name_b;

	nametree_leaf(a->tensors->names, leaf_a, &dir_a, &name_a);
	nametree_leaf(b->tensors->names, leaf_b, &dir_b, &name_b);
	return a->tensors->dirs.number[dir_a] == b->tensors->dirs.number[dir_b] &&
	       str_eq(name_a, name_b);
}

static void compare_names(const struct comparison *c)
{
	const struct model *a = c->a->model, *b = c->b->model;

	if (c->a->tensors == c->b->tensors)
		return;
	for (uint32_t i = 0; i < a->tensor_count; i++) {
		uint32_t now = model_tensor_by_id(b, a->tensors[i].id);

		if (now == MODEL_NONE || !same_place(c->a, i, c->b, now))
			emit_leaf(c, c->a, c->b, i);
	}
	for (uint32_t i = 0; i < b->tensor_count; i++) {
		uint32_t was = model_tensor_by_id(a, b->tensors[i].id);

		if (was == MODEL_NONE || !same_place(c->a, was, c->b, i))
			emit_leaf(c, c->b, c->a, i);
	}
}

/* ---- graphs ---- */

static bool same_op(const struct op *a, const struct op *b)
{
	if (a->input_count != b->input_count || a->output_count != b->output_count ||
		!str_eq(a->name, b->name))
		return false;
	for (uint32_t k = 0; k < a->input_count; k++)
		if (!str_eq(a->inputs[k].name, b->inputs[k].name))
			return false;
	for (uint32_t k = 0; k < a->output_count; k++)
		if (!str_eq(a->outputs[k], b->outputs[k]))
			return false;
	return true;
}

/* The links in one directory of an op, by number and by name. */
static void emit_links(const struct comparison *c, const struct tree *t, uint32_t op, enum op_sub sub)
{
	const struct inode dir = {CLASS_OP, op, sub};
	char buf[TREE_NAME_MAX + 1];
	struct str name;
	uint64_t inode;

	for (uint64_t k = 0; k < graph_child_count(t, &dir); k++) {
		if (!graph_child(t, &dir, k, buf, &name, &inode))
			continue;
		emit(c, inode, whole);
		emit(c, inode_pack(CLASS_OP, op, sub), name);
	}
	emit(c, inode_pack(CLASS_OP, op, sub), whole);
}

static void compare_ops(const struct comparison *c)
{
	const struct model *a = c->a->model, *b = c->b->model;

	if (a->ops == b->ops)
		return;
	for (uint32_t i = 0; i < a->op_count && i < b->op_count; i++) {
		if (same_op(&a->ops[i], &b->ops[i]))
			continue;
		for (uint32_t v = 0; v < view_count; v++)
			if (views[v]->subject == SUBJECT_OP)
				emit(c, inode_pack(CLASS_OP, i, OP_FILES + v), whole);
		for (enum op_sub sub = OP_INPUTS; sub <= OP_OUTPUTS; sub++) {
			emit_links(c, c->a, i, sub);
			emit_links(c, c->b, i, sub);
		}
	}
}

/* Ports show types, so any edit may show there. */
static void compare_graphs(const struct comparison *c)
{
	for (uint32_t g = 0; g < c->b->model->graph_count; g++)
		for (uint32_t v = 0; v < view_count; v++)
			if (views[v]->subject == SUBJECT_GRAPH)
				emit(c, inode_pack(CLASS_GRAPH, g, GRAPH_FILES + v), whole);
}

void tree_changes(const struct tree *a, const struct tree *b, bool same_content,
	void (*emit_one)(void *arg, uint64_t inode, struct str name), void *arg)
{
	const struct comparison c = {a, b, same_content, emit_one, arg};

	compare_statics(&c);
	compare_tensors(&c);
	compare_sharing(&c);
	compare_files(&c);
	compare_names(&c);
	compare_ops(&c);
	compare_graphs(&c);
}
