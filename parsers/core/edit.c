/* SPDX-License-Identifier: MIT */
/*
 * An edited model shares with its base: the strings and shapes of what was not touched, ops and graphs
 * (until a rename or a removal changes edges), sources. Strings that edits bring live in the base's
 * edit_strings, so that any number of edits in a row keeps just one model before the last alive.
 */
#include "parsers/core/edit.h"

#include "parsers/core/codec.h"
#include "parsers/core/limits.h"
#include "parsers/format.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static struct model *base_of(struct model *m)
{
	return m->base ? m->base : m;
}

static struct str keep_str(struct model *base, struct str s)
{
	return arena_str(base->edit_strings, s.ptr, s.len);
}

/* ---- checks ---- */

static int cannot(const struct model *m, const char *what, struct error *e)
{
	return error_set(e, EOPNOTSUPP, "%s cannot %s", m->format->title, what);
}

static bool same_shape(const struct tensor *t, const struct edit *x)
{
	return t->rank == x->rank &&
	       (x->rank == 0 || memcmp(t->shape, x->shape, x->rank * sizeof(*x->shape)) == 0);
}

static int check_name(const struct model *m, struct str name, struct error *e)
{
	if (model_find_tensor(m, name) != MODEL_NONE)
		return error_set(e, EEXIST, "there is a tensor '%.*s' already", STR_ARG(name));
	return 0;
}

/* The shape and the bytes agree, whoever made the edit. */
static int check_content(const struct edit *x, struct error *e)
{
	uint64_t count, bytes;

	if (x->rank > LIMIT_RANK || shape_count(x->shape, x->rank, &count) < 0)
		return error_set(e, EINVAL, "shape overflows");
	if (x->dtype == DTYPE_STRING || x->dtype == DTYPE_NONE)
		return 0;
	if (dtype_bytes(x->dtype, count, &bytes) < 0 || bytes != x->data.size)
		return error_set(e, EINVAL, "%llu bytes written, shape and dtype need %llu",
			(unsigned long long)x->data.size, (unsigned long long)bytes);
	return 0;
}

static int check_values(const struct model *m, const struct tensor *t, const struct edit *x,
	struct error *e)
{
	const struct format *f = m->format;

	if (!(f->can & CAN_VALUES))
		return cannot(m, "change values", e);
	if (t->problem.len)
		return error_set(e, EIO, "tensor '%.*s' is damaged: %.*s", STR_ARG(t->name),
			STR_ARG(t->problem));
	if (!same_shape(t, x) && !(f->can & CAN_RESHAPE))
		return cannot(m, "change a tensor's shape", e);
	if (t->dtype != x->dtype && !(f->can & CAN_RETYPE))
		return cannot(m, "change a tensor's dtype", e);
	/* what is there has a place, also a type that only this format knows */
	if (x->dtype != t->dtype && f->holds && !f->holds(x->dtype))
		return error_set(e, EINVAL, "%s has no dtype %s", f->title, dtype_info(x->dtype)->name);
	return check_content(x, e);
}

/* A tensor that ops use stays; the text names the first of them. */
static int check_unused(const struct model *m, uint32_t index, struct error *e)
{
	char users[256] = "";
	size_t used = 0, total = 0;

	for (uint32_t i = 0; i < m->op_count; i++) {
		const struct op *op = &m->ops[i];
		bool uses = false;

		for (uint32_t k = 0; k < op->input_count; k++)
			uses |= op->inputs[k].kind == EDGE_TENSOR && op->inputs[k].index == index;
		if (!uses || total++ >= 3)
			continue;
		struct str name = op->name.len ? op->name : op->output_count ? op->outputs[0] : op->type;
		int n = snprintf(users + used, sizeof(users) - used, "%s'%.*s'", used ? ", " : "",
			name.len < 70 ? (int)name.len : 70, name.ptr);

		if (n > 0)
			used += (size_t)n < sizeof(users) - used ? (size_t)n : sizeof(users) - used - 1;
	}
	if (!total)
		return 0;
	if (total > 3)
		return error_set(e, EBUSY, "tensor '%.*s' is used by %s and %zu more ops",
			STR_ARG(m->tensors[index].name), users, total - 3);
	return error_set(e, EBUSY, "tensor '%.*s' is used by %s", STR_ARG(m->tensors[index].name), users);
}

static int check_edit(const struct model *m, const struct edit *x, uint32_t index, struct error *e)
{
	const struct format *f = m->format;
	int r = 0;

	switch (x->kind) {
	case EDIT_TENSOR:
		r = check_values(m, &m->tensors[index], x, e);
		break;
	case EDIT_ADD:
		r = f->can & CAN_ADD ? check_name(m, x->name, e) : cannot(m, "add a tensor", e);
		if (r == 0 && f->holds && !f->holds(x->dtype))
			r = error_set(e, EINVAL, "%s has no dtype %s", f->title,
				dtype_info(x->dtype)->name);
		if (r == 0)
			r = check_content(x, e);
		break;
	case EDIT_RENAME:
		r = f->can & CAN_RENAME ? check_name(m, x->name, e) : cannot(m, "rename a tensor", e);
		break;
	case EDIT_REMOVE:
		r = f->can & CAN_REMOVE ? check_unused(m, index, e) : cannot(m, "remove a tensor", e);
		break;
	case EDIT_METADATA:
		r = f->can & CAN_METADATA ? 0 : cannot(m, "change metadata", e);
		break;
	case EDIT_FILE:
		r = f->can & CAN_FILES ? 0 : cannot(m, "change files", e);
		break;
	}
	if (r == 0 && f->check_edit)
		r = f->check_edit(m, x, e);
	return r;
}

/* ---- the copy ---- */

static void copy_metadata(struct model *n, const struct metadata *from, bool *failed)
{
	const struct value *const in[] = {from->model, from->preprocessing, from->properties, from->values};
	struct value **out[] = {&n->meta.model, &n->meta.preprocessing, &n->meta.properties,
		&n->meta.values};

	for (size_t i = 0; i < 4; i++) {
		*out[i] = in[i] ? value_copy(n->arena, in[i]) : NULL;
		*failed |= in[i] && !*out[i];
	}
}

/* Everything of m in a new model whose base is m's base. */
static struct model *clone(struct model *m)
{
	struct model *base = base_of(m), *n = model_new(m->format);
	bool failed = false;

	if (!n)
		return NULL;
	n->base = model_ref(base);
	n->finished = true;
	n->format_version = m->format_version;
	n->format_info = base->format_info;
	n->priv = base->priv;
	n->next_id = m->next_id;
	n->ops = base->ops;
	n->op_count = base->op_count;
	n->graphs = base->graphs;
	n->graph_count = base->graph_count;
	n->warnings = base->warnings;
	n->warning_count = base->warning_count;
	n->tensor_cap = m->tensor_count + 1;
	n->tensors = calloc(n->tensor_cap, sizeof(*n->tensors));
	n->files = calloc(m->file_count + 1, sizeof(*n->files));
	if (!n->tensors || !n->files)
		goto fail;
	for (uint32_t i = 0; i < m->tensor_count; i++) {
		n->tensors[i] = m->tensors[i];
		extent_ref(&n->tensors[i].data);
		if (!m->base)
			n->tensors[i].base = i;
	}
	n->tensor_count = m->tensor_count;
	for (uint32_t i = 0; i < m->file_count; i++) {
		n->files[i] = m->files[i];
		extent_ref(&n->files[i].data);
	}
	n->file_count = m->file_count;
	n->meta = base->meta;
	n->meta_edited = m->meta_edited;
	if (m->meta_edited)
		copy_metadata(n, &m->meta, &failed);
	if (!failed)
		return n;
fail:
	model_unref(n);
	return NULL;
}

/*
 * Edges again, from base's or m's ops: `map` gives the new index of every tensor (MODEL_NONE: removed), and
 * names of renamed tensors replace the old ones wherever an edge, an op's output or a graph's port in the
 * tensor's scope spells them.
 */
static struct str local_name(const struct tensor *t)
{
	return t->local.len ? t->local : t->name;
}

static struct port *copy_ports(struct arena *a, const struct port *from, uint32_t count)
{
	struct port *to = arena_array(a, count, sizeof(*to));

	if (to && count)
		memcpy(to, from, count * sizeof(*to));
	return to;
}

static int copy_graph(struct model *n, const struct model *m)
{

	n->ops = arena_array(n->arena, m->op_count, sizeof(*n->ops));
	n->graphs = arena_array(n->arena, m->graph_count, sizeof(*n->graphs));
	if (!n->ops || !n->graphs)
		return -ENOMEM;
	for (uint32_t i = 0; i < m->op_count; i++) {
		struct op *op = &n->ops[i];

		*op = m->ops[i];
		op->inputs = arena_array(n->arena, op->input_count, sizeof(*op->inputs));
		op->outputs = arena_array(n->arena, op->output_count, sizeof(*op->outputs));
		if (!op->inputs || !op->outputs)
			return -ENOMEM;
		if (op->input_count)
			memcpy(op->inputs, m->ops[i].inputs, op->input_count * sizeof(*op->inputs));
		if (op->output_count)
			memcpy(op->outputs, m->ops[i].outputs, op->output_count * sizeof(*op->outputs));
	}
	for (uint32_t g = 0; g < m->graph_count; g++) {
		struct graph *graph = &n->graphs[g];

		*graph = m->graphs[g];
		graph->inputs = copy_ports(n->arena, graph->inputs, graph->input_count);
		graph->outputs = copy_ports(n->arena, graph->outputs, graph->output_count);
		if (!graph->inputs || !graph->outputs)
			return -ENOMEM;
	}
	return 0;
}

static int rename_in_graph(struct model *n, uint32_t index, struct str was, struct str now)
{
	uint32_t scope = n->tensors[index].graph;

	for (uint32_t i = 0; i < n->op_count; i++) {
		struct op *op = &n->ops[i];

		for (uint32_t k = 0; k < op->input_count; k++)
			if (op->inputs[k].kind == EDGE_TENSOR && op->inputs[k].index == index)
				op->inputs[k].name = now;
		for (uint32_t k = 0; op->graph == scope && k < op->output_count; k++)
			if (str_eq(op->outputs[k], was))
				op->outputs[k] = now;
	}
	for (uint32_t k = 0; scope < n->graph_count && k < n->graphs[scope].input_count; k++)
		if (str_eq(n->graphs[scope].inputs[k].name, was))
			n->graphs[scope].inputs[k].name = now;
	for (uint32_t k = 0; scope < n->graph_count && k < n->graphs[scope].output_count; k++)
		if (str_eq(n->graphs[scope].outputs[k].name, was))
			n->graphs[scope].outputs[k].name = now;
	return 0;
}

/* ---- the edits ---- */

static int set_content(struct model *n, struct tensor *t, const struct edit *x, struct error *e)
{
	struct model *base = n->base;
	uint64_t *shape = arena_array(base->edit_strings, x->rank, sizeof(*shape));

	if (!shape)
		return error_set(e, ENOMEM, "out of memory");
	if (x->rank)
		memcpy(shape, x->shape, x->rank * sizeof(*shape));
	t->shape = shape;
	t->rank = x->rank;
	t->dtype = x->dtype;
	shape_count(shape, x->rank, &t->count); /* check_content saw that it fits */
	extent_unref(&t->data);
	t->data = extent_zero(0);
	t->strings = NULL;
	if (x->dtype == DTYPE_STRING) {
		struct str *s = arena_array(base->edit_strings, t->count, sizeof(*s));

		if (!s)
			return error_set(e, ENOMEM, "out of memory");
		for (uint64_t i = 0; i < t->count; i++) {
			s[i] = keep_str(base, x->strings[i]);
			if (!s[i].ptr)
				return error_set(e, ENOMEM, "out of memory");
		}
		t->strings = s;
		return 0;
	}
	t->data = x->data;
	extent_ref(&t->data);
	return 0;
}

static uint32_t alias_root(const struct model *m, uint32_t index)
{
	uint32_t of = m->tensors[index].alias_of;

	return of == MODEL_NONE ? index : of;
}

/* New values of the same shape go to every name of a shared storage; another shape parts from it. */
static int edit_tensor(struct model *n, uint32_t index, const struct edit *x, struct error *e)
{
	uint32_t root = alias_root(n, index);
	bool shared = same_shape(&n->tensors[index], x) && n->tensors[index].dtype == x->dtype;
	int r = 0;

	for (uint32_t i = 0; i < n->tensor_count && r == 0; i++) {
		struct tensor *t = &n->tensors[i];

		if (i != index && !(shared && alias_root(n, i) == root))
			continue;
		r = set_content(n, t, x, e);
		t->flags |= TENSOR_EDITED;
	}
	if (shared || r < 0)
		return r;
	/* the others keep sharing among themselves: the first of them becomes their root */
	uint32_t heir = MODEL_NONE;

	n->tensors[index].alias_of = MODEL_NONE;
	for (uint32_t i = 0; root == index && i < n->tensor_count; i++) {
		if (n->tensors[i].alias_of != index)
			continue;
		n->tensors[i].alias_of = heir;
		heir = heir == MODEL_NONE ? i : heir;
	}
	return r;
}

static int add_tensor(struct model *n, const struct edit *x, struct error *e)
{
	struct tensor *t = &n->tensors[n->tensor_count]; /* clone left room for one */

	memset(t, 0, sizeof(*t));
	t->name = keep_str(n->base, x->name);
	if (!t->name.ptr)
		return error_set(e, ENOMEM, "out of memory");
	t->alias_of = t->base = MODEL_NONE;
	t->graph = n->graph_count ? 0 : MODEL_NONE;
	t->flags = TENSOR_ADDED | TENSOR_EDITED;
	t->id = n->next_id++;
	n->tensor_count++;
	return set_content(n, t, x, e);
}

static int rename_tensor(struct model *n, const struct model *m, uint32_t index, struct str name,
	struct error *e)
{
	struct tensor *t = &n->tensors[index];
	struct str was = local_name(t), prefix = {t->name.ptr, t->name.len - was.len}, now;

	if (t->local.len && t->name.len > was.len && !str_starts(name, prefix))
		return error_set(e, EOPNOTSUPP, "tensor '%.*s' must stay in its graph: its name begins with '%.*s'",
			STR_ARG(t->name), STR_ARG(prefix));
	name = keep_str(n->base, name);
	if (!name.ptr)
		return error_set(e, ENOMEM, "out of memory");
	now = (struct str){name.ptr + prefix.len, name.len - prefix.len};
	t->name = name;
	if (t->local.len)
		t->local = now;
	t->flags |= TENSOR_RENAMED;
	if (t->graph == MODEL_NONE)
		return 0;
	if (copy_graph(n, m) < 0)
		return error_set(e, ENOMEM, "out of memory");
	return rename_in_graph(n, index, was, now);
}

static int remove_tensor(struct model *n, const struct model *m, uint32_t index, struct error *e)
{
	extent_unref(&n->tensors[index].data);
	memmove(&n->tensors[index], &n->tensors[index + 1],
		(n->tensor_count - index - 1) * sizeof(*n->tensors));
	n->tensor_count--;
	/* aliases: the first remaining name of the storage becomes the root; indexes move down by one */
	uint32_t heir = MODEL_NONE;

	for (uint32_t i = 0; i < n->tensor_count; i++) {
		uint32_t *of = &n->tensors[i].alias_of;

		if (*of == MODEL_NONE)
			continue;
		if (*of == index) {
			*of = heir;
			heir = heir == MODEL_NONE ? i : heir;
		} else if (*of > index) {
			(*of)--;
		}
	}
	if (!n->op_count)
		return 0;
	if (copy_graph(n, m) < 0)
		return error_set(e, ENOMEM, "out of memory");
	for (uint32_t i = 0; i < n->op_count; i++)
		for (uint32_t k = 0; k < n->ops[i].input_count; k++) {
			struct edge *edge = &n->ops[i].inputs[k];

			if (edge->kind == EDGE_TENSOR && edge->index > index)
				edge->index--;
		}
	return 0;
}

static int edit_file(struct model *n, const struct edit *x, struct error *e)
{
	for (uint32_t i = 0; i < n->file_count; i++) {
		struct member_file *f = &n->files[i];

		if (!str_eq(f->path, x->name))
			continue;
		if (!(f->flags & MEMBER_WRITABLE))
			return error_set(e, EOPNOTSUPP, "file '%.*s' cannot be changed", STR_ARG(f->path));
		extent_unref(&f->data);
		f->data = x->data;
		extent_ref(&f->data);
		f->flags |= MEMBER_EDITED;
		return 0;
	}
	return error_set(e, ENOENT, "no file '%.*s'", STR_ARG(x->name));
}

int model_edit(struct model *m, const struct edit *x, struct model **out, struct error *e)
{
	uint32_t index = MODEL_NONE;
	struct model *n;
	bool failed = false;
	int r;

	*out = NULL;
	if (x->kind == EDIT_TENSOR || x->kind == EDIT_RENAME || x->kind == EDIT_REMOVE) {
		index = model_tensor_by_id(m, x->id);
		if (index == MODEL_NONE)
			return error_set(e, ENOENT, "the tensor is gone");
	}
	r = check_edit(m, x, index, e);
	if (r < 0)
		return r;
	n = clone(m);
	if (!n)
		return error_set(e, ENOMEM, "out of memory");
	if (m->ops != base_of(m)->ops && x->kind != EDIT_RENAME && x->kind != EDIT_REMOVE &&
		copy_graph(n, m) < 0) {
		r = error_set(e, ENOMEM, "out of memory");
		goto out;
	}
	switch (x->kind) {
	case EDIT_TENSOR:
		r = edit_tensor(n, index, x, e);
		break;
	case EDIT_ADD:
		r = add_tensor(n, x, e);
		break;
	case EDIT_RENAME:
		/* a tensor without graph leaves the edges alone, but m may have own ones */
		if (m->ops != base_of(m)->ops && n->tensors[index].graph == MODEL_NONE)
			failed = copy_graph(n, m) < 0;
		r = failed ? error_set(e, ENOMEM, "out of memory")
			   : rename_tensor(n, m, index, x->name, e);
		break;
	case EDIT_REMOVE:
		r = remove_tensor(n, m, index, e);
		break;
	case EDIT_METADATA:
		copy_metadata(n, &x->meta, &failed);
		n->meta_edited = true;
		r = failed ? error_set(e, ENOMEM, "out of memory") : 0;
		break;
	case EDIT_FILE:
		r = edit_file(n, x, e);
		break;
	}
	if (r == 0 && model_index(n) < 0)
		r = error_set(e, ENOMEM, "out of memory");
out:
	if (r < 0)
		model_unref(n);
	else
		*out = n;
	return r;
}

bool model_is_clean(const struct model *m)
{
	if (!m->base)
		return true;
	if (m->meta_edited || m->tensor_count != m->base->tensor_count)
		return false;
	for (uint32_t i = 0; i < m->tensor_count; i++)
		if (m->tensors[i].flags & (TENSOR_EDITED | TENSOR_RENAMED | TENSOR_ADDED))
			return false;
	for (uint32_t i = 0; i < m->file_count; i++)
		if (m->files[i].flags & MEMBER_EDITED)
			return false;
	return true;
}
