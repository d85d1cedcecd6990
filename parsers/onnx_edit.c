/* SPDX-License-Identifier: MIT */
/* Which edits an ONNX model bears: what the checker and ONNX Runtime would refuse afterwards is refused here. */
#include "parsers/onnx_write.h"

#include <errno.h>

static const struct onnx_place *place_of(const struct model *m, const struct tensor *t)
{
	(void)m;
	return t->flags & TENSOR_ADDED ? NULL : t->priv;
}

static struct str local_name(const struct tensor *t)
{
	return t->local.len ? t->local : t->name;
}

/* An op that reads the tensor, NULL = none. */
static const struct op *reader_of(const struct model *m, uint32_t index)
{
	for (uint32_t i = 0; i < m->op_count; i++)
		for (uint32_t k = 0; k < m->ops[i].input_count; k++)
			if (m->ops[i].inputs[k].kind == EDGE_TENSOR && m->ops[i].inputs[k].index == index)
				return &m->ops[i];
	return NULL;
}

static bool is_output(const struct model *m, const struct tensor *t)
{
	if (t->graph >= m->graph_count)
		return false;
	for (uint32_t k = 0; k < m->graphs[t->graph].output_count; k++)
		if (str_eq(m->graphs[t->graph].outputs[k].name, local_name(t)))
			return true;
	return false;
}

static int check_values(const struct model *m, uint32_t index, const struct edit *x, struct error *e)
{
	const struct tensor *t = &m->tensors[index];
	const struct onnx_place *place = place_of(m, t);
	const struct op *op;

	if (place && place->string && (x->dtype != t->dtype || x->rank != 1))
		return error_set(e, EINVAL, "'%.*s' are the bytes of an attribute, expected uint8 of rank 1",
			STR_ARG(t->name));
	if (place && place->sparse && (x->rank != t->rank || (x->rank && memcmp(x->shape, t->shape, x->rank * 8) != 0)))
		return error_set(e, EOPNOTSUPP, "the shape of '%.*s' is part of a sparse tensor and stays",
			STR_ARG(t->name));
	if (x->dtype == t->dtype)
		return 0;
	op = reader_of(m, index);
	if (op)
		return error_set(e, EINVAL, "dtype of '%.*s' stays %s: op '%.*s' reads it", STR_ARG(t->name),
			dtype_info(t->dtype)->name, STR_ARG(op->name.len ? op->name : op->type));
	if ((place && (place->in_attribute || place->sparse)) || is_output(m, t))
		return error_set(e, EINVAL, "dtype of '%.*s' stays %s: the graph needs it", STR_ARG(t->name),
			dtype_info(t->dtype)->name);
	return 0;
}

/* No value of any graph has this name: a name inside a subgraph would hide one outside. */
static int check_free_name(const struct model *m, struct str name, struct error *e)
{
	bool taken = false;

	if (!name.len || !str_is_utf8(name))
		return error_set(e, EINVAL, "ONNX cannot name a tensor '%.*s'", STR_ARG(name));
	for (uint32_t i = 0; i < m->tensor_count && !taken; i++)
		taken = m->tensors[i].graph != MODEL_NONE && str_eq(local_name(&m->tensors[i]), name);
	for (uint32_t i = 0; i < m->op_count && !taken; i++)
		for (uint32_t k = 0; k < m->ops[i].output_count; k++)
			taken |= str_eq(m->ops[i].outputs[k], name);
	for (uint32_t g = 0; g < m->graph_count && !taken; g++)
		for (uint32_t k = 0; k < m->graphs[g].input_count; k++)
			taken |= str_eq(m->graphs[g].inputs[k].name, name);
	return taken ? error_set(e, EEXIST, "there is a value '%.*s' in the graph already", STR_ARG(name)) : 0;
}

static int check_rename(const struct model *m, const struct tensor *t, const struct edit *x, struct error *e)
{
	const struct onnx_file *f = m->priv;
	const struct onnx_place *place = place_of(m, t);
	size_t prefix = t->local.len ? t->name.len - t->local.len : 0;

	if (place && (place->sparse || place->string || (place->in_attribute && t->graph == MODEL_NONE)))
		return error_set(e, EOPNOTSUPP, "'%.*s' is named after what holds it", STR_ARG(t->name));
	if (f->training)
		return error_set(e, EOPNOTSUPP, "training information names tensors, they keep their names");
	if (prefix && (x->name.len <= prefix || memcmp(x->name.ptr, t->name.ptr, prefix) != 0))
		return 0; /* model_edit refuses it */
	return check_free_name(m, (struct str){x->name.ptr + prefix, x->name.len - prefix}, e);
}

static int check_remove(const struct model *m, const struct tensor *t, struct error *e)
{
	const struct onnx_place *place = place_of(m, t);

	if (place && (place->in_attribute || place->sparse))
		return error_set(e, EBUSY, "'%.*s' is part of %s", STR_ARG(t->name),
			place->sparse ? "a sparse tensor" : "an op");
	if (is_output(m, t))
		return error_set(e, EBUSY, "tensor '%.*s' is an output of the graph", STR_ARG(t->name));
	return 0;
}

static int check_metadata(const struct edit *x, struct error *e)
{
	static const char *const keys[][2] = {
		{"author", ONNX_AUTHOR_PROPERTY}, {"license", ONNX_LICENSE_PROPERTY}};
	const struct value *p = x->meta.properties;

	if (x->meta.values && x->meta.values->map.count)
		return error_set(e, EINVAL, "ONNX has no place for 'values'");
	if (!onnx_model_text(&x->meta, "name").len)
		return error_set(e, EINVAL, "metadata key 'model.name' is empty: ONNX needs a name of the graph");
	for (size_t i = 0; p && i < p->map.count; i++)
		if (p->map.members[i].value->kind != VALUE_STRING)
			return error_set(e, EINVAL, "metadata key 'properties.%.*s' is not a string",
				STR_ARG(p->map.members[i].key));
	for (size_t i = 0; i < 2; i++)
		if (value_get(p, keys[i][1]))
			return error_set(e, EINVAL, "metadata key 'properties.%s' is spelled 'model.%s'", keys[i][1],
				keys[i][0]);
	return 0;
}

int onnx_check_edit(const struct model *m, const struct edit *x, struct error *e)
{
	uint32_t index = MODEL_NONE;

	if (x->kind == EDIT_TENSOR || x->kind == EDIT_RENAME || x->kind == EDIT_REMOVE)
		index = model_tensor_by_id(m, x->id);
	switch (x->kind) {
	case EDIT_TENSOR:
		return check_values(m, index, x, e);
	case EDIT_ADD:
		return check_free_name(m, x->name, e);
	case EDIT_RENAME:
		return check_rename(m, &m->tensors[index], x, e);
	case EDIT_REMOVE:
		return check_remove(m, &m->tensors[index], e);
	case EDIT_METADATA:
		return check_metadata(x, e);
	case EDIT_FILE:
		break;
	}
	return 0;
}
