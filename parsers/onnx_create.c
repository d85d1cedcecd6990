/* SPDX-License-Identifier: MIT */
/*
 * Any model -> ONNX: initializers, and one Identity so that ONNX Runtime loads it (it refuses a graph without nodes).
 * IR version and opset are the lowest that hold the dtypes. Beyond 2 GiB, which protobuf cannot hold, the larger
 * tensors go to a data file NAME.data, each at a multiple of 4096 bytes.
 */
#include "parsers/onnx_write.h"

#include "parsers/codec/convert.h"
#include "parsers/container/json_write.h"
#include "parsers/core/codec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { ALIGN = 4096, OPSET = 21, IR_BASE = 10 };

/* ---- fields ---- */

static void put_entry(struct extmap *out, uint32_t field, struct str key, struct str value)
{
	struct extmap entry = {0};

	pb_put_bytes_field(&entry, ENTRY_KEY, key);
	pb_put_bytes_field(&entry, ENTRY_VALUE, value);
	pb_put_map_field(out, field, &entry);
	extmap_release(&entry);
}

void onnx_put_outside(struct extmap *out, const struct onnx_outside *outside, uint64_t size)
{
	char number[24];

	put_entry(out, TENSOR_EXTERNAL_DATA, STR("location"), str_from(outside->location));
	snprintf(number, sizeof(number), "%llu", (unsigned long long)outside->offset);
	put_entry(out, TENSOR_EXTERNAL_DATA, STR("offset"), str_from(number));
	snprintf(number, sizeof(number), "%llu", (unsigned long long)size);
	put_entry(out, TENSOR_EXTERNAL_DATA, STR("length"), str_from(number));
	pb_put_varint_field(out, TENSOR_DATA_LOCATION, 1);
}

void onnx_put_tensor(struct extmap *out, const struct tensor *t, int32_t data_type, const struct extent *data,
	const struct onnx_outside *outside)
{
	for (uint32_t i = 0; i < t->rank; i++)
		pb_put_varint_field(out, TENSOR_DIMS, t->shape[i]);
	pb_put_varint_field(out, TENSOR_DATA_TYPE, (uint64_t)data_type);
	if (onnx_types[data_type].dtype == DTYPE_STRING)
		for (uint64_t i = 0; i < t->count; i++)
			pb_put_bytes_field(out, TENSOR_STRING_DATA, t->strings[i]);
	else if (outside && outside->location)
		onnx_put_outside(out, outside, data->size);
	else if (data->size)
		pb_put_extent_field(out, TENSOR_RAW_DATA, data);
}

void onnx_put_type(struct extmap *out, int32_t data_type, const uint64_t *shape, uint32_t rank)
{
	struct extmap tensor = {0}, dims = {0};

	for (uint32_t i = 0; i < rank; i++) {
		struct extmap dim = {0};

		pb_put_varint_field(&dim, 1, shape[i]);
		pb_put_map_field(&dims, 1, &dim);
		extmap_release(&dim);
	}
	pb_put_varint_field(&tensor, TENSOR_TYPE_ELEMENT, (uint64_t)data_type);
	pb_put_map_field(&tensor, TENSOR_TYPE_SHAPE, &dims);
	pb_put_map_field(out, TYPE_TENSOR, &tensor);
	extmap_release(&tensor);
	extmap_release(&dims);
}

void onnx_put_value_info(struct extmap *out, struct str name, int32_t data_type, const uint64_t *shape, uint32_t rank)
{
	struct extmap type = {0};

	onnx_put_type(&type, data_type, shape, rank);
	pb_put_bytes_field(out, VALUE_INFO_NAME, name);
	pb_put_map_field(out, VALUE_INFO_TYPE, &type);
	extmap_release(&type);
}

uint64_t onnx_append_aligned(struct extmap *file, const struct extent *x, uint64_t align)
{
	uint64_t at = (file->size + align - 1) & ~(align - 1);

	extmap_append_zero(file, at - file->size);
	extmap_append(file, x);
	return at;
}

/* ---- metadata ---- */

struct str onnx_model_text(const struct metadata *meta, const char *key)
{
	const struct value *v = value_get(meta->model, key);

	return v && v->kind == VALUE_STRING ? v->str : STR("");
}

uint64_t onnx_model_version(const struct metadata *meta)
{
	struct str s = onnx_model_text(meta, "version");
	uint64_t n = 0;

	for (size_t i = 0; i < s.len && s.ptr[i] >= '0' && s.ptr[i] <= '9'; i++)
		n = n * 10 + (uint64_t)(s.ptr[i] - '0'); /* at most 18 digits: the key's own check */
	return n;
}

/* ONNX knows strings only */
static struct str as_text(const struct value *v, struct arena *a)
{
	struct json j = {.flat = 1};
	struct str copy;

	if (v->kind == VALUE_STRING)
		return v->str;
	json_value(&j, v);
	copy = j.failed ? (struct str){NULL, 0} : arena_str(a, j.text, j.len);
	json_release(&j);
	return copy;
}

int onnx_put_properties(struct extmap *out, const struct metadata *meta, struct arena *a)
{
	static const char *const keys[][2] = {
		{"author", ONNX_AUTHOR_PROPERTY}, {"license", ONNX_LICENSE_PROPERTY}};
	const struct value *props = meta->properties;
	struct str version = onnx_model_text(meta, "version");

	for (size_t i = 0; props && i < props->map.count; i++) {
		struct str text = as_text(props->map.members[i].value, a);

		if (!text.ptr)
			return -ENOMEM;
		put_entry(out, MODEL_METADATA, props->map.members[i].key, text);
	}
	for (size_t i = 0; i < 2; i++)
		if (value_get(meta->model, keys[i][0]) && !value_get(props, keys[i][1]))
			put_entry(out, MODEL_METADATA, str_from(keys[i][1]), onnx_model_text(meta, keys[i][0]));
	/* model_version says "N.0.0" by itself, but 0 says nothing */
	if (version.len && (!str_ends(version, STR(".0.0")) || onnx_model_version(meta) == 0))
		put_entry(out, MODEL_METADATA, STR(ONNX_VERSION_PROPERTY), version);
	return 0;
}

/* ---- tensors of other formats ---- */

struct creator {
	const struct model *m;
	struct plan *p;
	int32_t *types;       /* data_type of each tensor; 0 = left out */
	struct extent *data;  /* with references */
	struct onnx_outside *outside;
	int64_t ir_version;
};

static int no_memory(struct error *e)
{
	return error_set(e, ENOMEM, "out of memory for a plan");
}

static int take(struct extent *out, struct codec *c, struct error *e)
{
	if (!c)
		return no_memory(e);
	*out = extent_codec(c);
	return 0;
}

static int make_data(struct creator *c, uint32_t i, struct error *e)
{
	const struct tensor *t = &c->m->tensors[i];
	enum dtype wide = dtype_info(t->dtype)->npy;
	bool big = t->flags & TENSOR_BIG_ENDIAN && dtype_info(t->dtype)->swap > 1;

	if (t->problem.len)
		return error_set(e, EIO, "tensor '%.*s' is damaged: %.*s", STR_ARG(t->name), STR_ARG(t->problem));
	if (!t->name.len || !str_is_utf8(t->name))
		return error_set(e, EINVAL, "ONNX cannot name a tensor '%.*s'", STR_ARG(t->name));
	if (t->real && c->p->real) {
		c->types[i] = onnx_type_of(DTYPE_FLOAT32);
		if (plan_loss(c->p, "tensor '%.*s' becomes its real values in float32", STR_ARG(t->name)) < 0)
			return no_memory(e);
		return t->real(t, &c->data[i], e);
	}
	c->types[i] = onnx_type_of(t->dtype);
	if (c->types[i]) {
		if (big)
			return take(&c->data[i], codec_swap(&t->data, t->dtype), e);
		c->data[i] = t->data;
		extent_ref(&t->data);
		return 0;
	}
	c->types[i] = t->dtype == DTYPE_NONE ? 0 : onnx_type_of(wide);
	if (!c->types[i])
		return plan_loss(c->p, "tensor '%.*s': dtype %s has no place in ONNX", STR_ARG(t->name),
			       t->dtype == DTYPE_NONE && t->stored_type ? t->stored_type : dtype_info(t->dtype)->name) < 0
			       ? no_memory(e)
			       : 0;
	if (plan_loss(c->p, "dtype of '%.*s': %s becomes %s", STR_ARG(t->name), dtype_info(t->dtype)->name,
		    dtype_info(wide)->name) < 0)
		return no_memory(e);
	return take(&c->data[i], codec_decode(&t->data, t->dtype, big, t->count), e);
}

/* the IR version that brought a data_type (onnx 1.23, IR.md) */
static int64_t ir_of(int32_t type)
{
	switch (onnx_types[type].dtype) {
	case DTYPE_FLOAT4_E2M1: return 11;
	case DTYPE_FLOAT8_E8M0FNU: return 12;
	case DTYPE_INT2: case DTYPE_UINT2: return 13;
	case DTYPE_FLOAT6_E2M3: case DTYPE_FLOAT6_E3M2: return 14;
	default: return IR_BASE;
	}
}

/* Beyond what protobuf holds the larger ones go to a file of their own. */
static int move_outside(struct creator *c, struct error *e)
{
	uint64_t total = 0;
	struct str name;
	struct extmap *file;

	for (uint32_t i = 0; i < c->m->tensor_count; i++)
		total += c->types[i] ? c->data[i].size + c->m->tensors[i].name.len + 64 : 0;
	if (total <= ONNX_PROTO_MAX)
		return 0;
	name = arena_printf(c->p->arena, "%s.data", c->p->root_name);
	file = name.ptr ? plan_file(c->p, name.ptr) : NULL;
	if (!file)
		return no_memory(e);
	for (uint32_t i = 0; i < c->m->tensor_count; i++)
		if (c->types[i] && c->data[i].size >= ONNX_EXTERNAL_MIN)
			c->outside[i] = (struct onnx_outside){name.ptr, onnx_append_aligned(file, &c->data[i], ALIGN)};
	return extmap_failed(file, e);
}

/* A dtype whose Identity every CPU build of ONNX Runtime has. */
static bool runs(int32_t type)
{
	switch (onnx_types[type].dtype) {
	case DTYPE_FLOAT32: case DTYPE_FLOAT64: case DTYPE_FLOAT16: case DTYPE_BFLOAT16: case DTYPE_INT8: case DTYPE_INT16:
	case DTYPE_INT32: case DTYPE_INT64: case DTYPE_UINT8: case DTYPE_UINT16: case DTYPE_UINT32: case DTYPE_UINT64:
	case DTYPE_BOOL: case DTYPE_STRING:
		return true;
	default:
		return false;
	}
}

static int put_identity(struct creator *c, struct extmap *graph, struct error *e)
{
	struct extmap node = {0}, out = {0};
	struct str name = STR("output");
	const struct tensor *t = NULL;
	uint32_t i = 0;

	while (i < c->m->tensor_count && !(c->types[i] && runs(c->types[i])))
		i++;
	if (i == c->m->tensor_count)
		return 0;
	t = &c->m->tensors[i];
	while (name.ptr && model_find_tensor(c->m, name) != MODEL_NONE)
		name = arena_printf(c->p->arena, "%.*s_", (int)name.len, name.ptr);
	if (!name.ptr)
		return no_memory(e);
	pb_put_bytes_field(&node, NODE_INPUT, t->name);
	pb_put_bytes_field(&node, NODE_OUTPUT, name);
	pb_put_bytes_field(&node, NODE_OP_TYPE, STR("Identity"));
	pb_put_map_field(graph, GRAPH_NODE, &node);
	onnx_put_value_info(&out, name, c->types[i], t->shape, t->rank);
	pb_put_map_field(graph, GRAPH_OUTPUT, &out);
	extmap_release(&node);
	extmap_release(&out);
	return 0;
}

static int put_graph(struct creator *c, struct extmap *graph, struct error *e)
{
	struct str name = onnx_model_text(&c->m->meta, "name");
	int r = put_identity(c, graph, e);

	pb_put_bytes_field(graph, GRAPH_NAME, name.len ? name : STR("model"));
	for (uint32_t i = 0; r == 0 && i < c->m->tensor_count; i++) {
		struct extmap tensor = {0};

		if (!c->types[i])
			continue;
		onnx_put_tensor(&tensor, &c->m->tensors[i], c->types[i], &c->data[i], &c->outside[i]);
		pb_put_bytes_field(&tensor, TENSOR_NAME, c->m->tensors[i].name);
		pb_put_map_field(graph, GRAPH_INITIALIZER, &tensor);
		extmap_release(&tensor);
	}
	return r < 0 ? r : extmap_failed(graph, e);
}

static void put_text(struct extmap *out, uint32_t field, struct str text)
{
	if (text.len)
		pb_put_bytes_field(out, field, text);
}

static int put_model(struct creator *c, struct error *e)
{
	const struct metadata *meta = &c->m->meta;
	struct extmap graph = {0}, opset = {0}, *out;
	int r = put_graph(c, &graph, e);

	out = r == 0 ? plan_file(c->p, "") : NULL;
	if (r == 0 && !out)
		r = no_memory(e);
	if (r == 0) {
		pb_put_varint_field(out, MODEL_IR_VERSION, (uint64_t)c->ir_version);
		put_text(out, MODEL_PRODUCER_NAME, onnx_model_text(meta, "producer"));
		put_text(out, MODEL_PRODUCER_VERSION, onnx_model_text(meta, "producer_version"));
		if (onnx_model_version(meta))
			pb_put_varint_field(out, MODEL_VERSION, onnx_model_version(meta));
		put_text(out, MODEL_DOC_STRING, onnx_model_text(meta, "description"));
		pb_put_map_field(out, MODEL_GRAPH, &graph);
		pb_put_varint_field(&opset, 2, OPSET);
		pb_put_map_field(out, MODEL_OPSET_IMPORT, &opset);
		if (onnx_put_properties(out, meta, c->p->arena) < 0)
			r = no_memory(e);
		r = r < 0 ? r : extmap_failed(out, e);
	}
	if (r == 0 && out->size > INT32_MAX)
		r = error_set(e, EFBIG, "the model would have %llu bytes, protobuf holds at most 2147483647",
			(unsigned long long)out->size);
	extmap_release(&graph);
	extmap_release(&opset);
	return r;
}

static int tell_losses(struct creator *c, struct error *e)
{
	const struct value *props = c->m->meta.properties;
	int r = plan_plain_losses(c->p, c->m, "ONNX");

	for (size_t i = 0; !r && props && i < props->map.count; i++)
		if (props->map.members[i].value->kind != VALUE_STRING)
			r = plan_loss(c->p, "property '%.*s' becomes text", STR_ARG(props->map.members[i].key));
	return r < 0 ? no_memory(e) : 0;
}

int onnx_create(const struct model *m, struct plan *p, struct error *e)
{
	struct creator c = {.m = m, .p = p, .ir_version = IR_BASE};
	size_t n = m->tensor_count ? m->tensor_count : 1;
	int r;

	c.types = calloc(n, sizeof(*c.types));
	c.data = calloc(n, sizeof(*c.data));
	c.outside = calloc(n, sizeof(*c.outside));
	r = c.types && c.data && c.outside ? tell_losses(&c, e) : no_memory(e);
	for (uint32_t i = 0; r == 0 && i < m->tensor_count; i++) {
		r = make_data(&c, i, e);
		if (r == 0 && c.types[i] && ir_of(c.types[i]) > c.ir_version)
			c.ir_version = ir_of(c.types[i]);
	}
	if (r == 0)
		r = move_outside(&c, e);
	if (r == 0)
		r = put_model(&c, e);
	for (uint32_t i = 0; c.data && i < m->tensor_count; i++)
		extent_unref(&c.data[i]);
	free(c.types);
	free(c.data);
	free(c.outside);
	return r;
}
