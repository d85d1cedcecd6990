/* SPDX-License-Identifier: MIT */
/*
 * Where a TensorProto keeps its elements (ONNX 1.23): external data when data_location says so, else raw_data, else
 * the typed field of its data_type. raw_data and external files hold little-endian C order.
 */
#include "parsers/onnx_read.h"

#include "parsers/codec/convert.h"
#include "parsers/codec/numbers.h"
#include "parsers/core/check.h"
#include "parsers/core/limits.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static int set_shape(struct onnx_reader *x, struct tensor *t, const Wia__Onnx__Tensor *p)
{
	uint64_t shape[LIMIT_RANK];

	for (size_t i = 0; i < p->n_dims && i < LIMIT_RANK; i++) {
		if (p->dims[i] < 0)
			return error_set(x->e, EIO, "tensor '%.*s' has the dimension %lld, expected 0 or more",
				STR_ARG(t->name), (long long)p->dims[i]);
		shape[i] = (uint64_t)p->dims[i];
	}
	return tensor_set_shape(x->m, t, shape, p->n_dims > UINT32_MAX ? UINT32_MAX : (uint32_t)p->n_dims, x->e);
}

/* ---- external data ---- */

static struct str entry_value(const Wia__Onnx__Tensor *p, const char *key)
{
	struct str found = {NULL, 0};

	for (size_t i = 0; i < p->n_external_data; i++) /* the last one wins */
		if (str_is(onnx_str(p->external_data[i]->key), key))
			found = onnx_str(p->external_data[i]->value);
	return found;
}

static bool parse_decimal(struct str s, uint64_t *out)
{
	*out = 0;
	for (size_t i = 0; i < s.len; i++)
		if (s.ptr[i] < '0' || s.ptr[i] > '9' || ckd_mul(out, *out, 10u) ||
			ckd_add(out, *out, (uint64_t)(s.ptr[i] - '0')))
			return false;
	return s.len > 0;
}

/* The checker's rule: no ".." anywhere once the path is normalised; ORT's tag names a memory address. */
static int check_location(struct onnx_reader *x, const struct tensor *t, struct str location)
{
	if (!location.len)
		return error_set(x->e, EIO, "tensor '%.*s' is external and names no location", STR_ARG(t->name));
	if (location.ptr[0] == '#' || memmem(location.ptr, location.len, "_ORT_MEM_ADDR_", 14))
		return error_set(x->e, EIO, "external data '%.*s' of tensor '%.*s' is an address in memory, not a file",
			STR_ARG(location), STR_ARG(t->name));
	return 0;
}

static int open_companion(struct onnx_reader *x, const struct tensor *t, struct str location,
	struct source **out)
{
	struct onnx_companion *c;
	struct source *src;
	int r;

	for (uint32_t i = 0; i < x->companion_count; i++)
		if (str_eq(x->companions[i].name, location)) {
			*out = x->companions[i].src;
			return 0;
		}
	r = input_companion(x->in, location, INPUT_NO_HARDLINKS, &src, x->e);
	if (r < 0) {
		char what[300];

		snprintf(what, sizeof(what), "external data of tensor '%.*s'", STR_ARG(t->name));
		error_prefix(x->e, what);
		return r;
	}
	r = model_add_source(x->m, src, x->e);
	source_unref(src);
	if (r < 0)
		return r;
	if (x->companion_count == x->companion_cap) {
		uint32_t cap = x->companion_cap ? x->companion_cap * 2 : 8;

		c = reallocarray(x->companions, cap, sizeof(*c));
		if (!c)
			return onnx_no_memory(x);
		x->companions = c;
		x->companion_cap = cap;
	}
	x->companions[x->companion_count++] = (struct onnx_companion){arena_str(x->m->arena, location.ptr,
								      location.len), src};
	*out = src;
	return 0;
}

static int set_external(struct onnx_reader *x, struct tensor *t, const Wia__Onnx__Tensor *p, uint64_t bytes)
{
	struct str location = entry_value(p, "location"), text;
	struct onnx_place *place = t->priv;
	uint64_t offset = 0, length = bytes;
	struct source *src;
	int r = check_location(x, t, location);

	if (r == 0)
		r = open_companion(x, t, location, &src);
	if (r < 0)
		return r;
	place->external = true;
	place->location = arena_str(x->m->arena, location.ptr, location.len);
	t->shard = place->location;
	text = entry_value(p, "offset");
	if (text.ptr && !parse_decimal(text, &offset))
		tensor_damage(x->m, t, "external offset '%.*s' is no number", STR_ARG(text));
	text = entry_value(p, "length");
	if (text.ptr && !parse_decimal(text, &length))
		tensor_damage(x->m, t, "external length '%.*s' is no number", STR_ARG(text));
	if (length == 0)
		length = bytes; /* as ONNX Runtime reads it */
	place->external_offset = offset;
	t->data = extent_source(src, offset, length);
	return 0;
}

/* ---- data inside the file ---- */

static const struct pb_record *record_of(const struct onnx_reader *x, const Wia__Onnx__Tensor *p)
{
	if (!p->has_record || p->record >= x->skeleton.record_count)
		return NULL;
	return &x->skeleton.records[p->record];
}

static enum pb_wire wire_of(uint32_t field)
{
	return field == TENSOR_FLOAT_DATA ? PB_FIXED32 : field == TENSOR_DOUBLE_DATA ? PB_FIXED64 : PB_VARINT;
}

static int give_codec(struct onnx_reader *x, struct tensor *t, struct codec *c)
{
	if (!c)
		return onnx_no_memory(x);
	t->data = extent_codec(c);
	return 0;
}

/* Numbers of the typed field. Packed floats in one piece are the elements themselves. */
static int set_typed(struct onnx_reader *x, struct tensor *t, const struct onnx_type *type,
	const struct pb_payload *runs, uint32_t run_count, uint64_t bytes)
{
	enum pb_wire wire = wire_of(type->field);
	uint64_t numbers = type->typed == TYPED_BYTE ? bytes : t->count;
	struct source *src = x->in->src;
	struct codec *c;

	if (type->typed == TYPED_PAIR && ckd_mul(&numbers, numbers, 2u))
		return error_set(x->e, EIO, "shape of tensor '%.*s' overflows", STR_ARG(t->name));
	for (uint32_t i = 0; i < run_count; i++)
		if (runs[i].wire != PB_BYTES && runs[i].wire != wire) {
			tensor_damage(x->m, t, "its numbers have the wrong wire type");
			return 0;
		}
	if (wire != PB_VARINT && run_count == 1 && runs[0].wire == PB_BYTES) {
		t->data = extent_source(src, runs[0].offset, runs[0].size);
		return 0;
	}
	if (type->typed != TYPED_SIX)
		return give_codec(x, t, codec_numbers(src, runs, run_count, wire, type->width, numbers));
	c = codec_numbers(src, runs, run_count, wire, 1, numbers);
	if (!c)
		return onnx_no_memory(x);
	struct extent loose = extent_codec(c);
	int r = give_codec(x, t, codec_pack_bits(&loose, type->dtype, numbers));

	codec_unref(c);
	return r;
}

static int set_strings(struct onnx_reader *x, struct tensor *t, const Wia__Onnx__Tensor *p)
{
	if (p->n_string_data != t->count) {
		tensor_damage(x->m, t, "holds %zu strings, its shape needs %llu", p->n_string_data,
			(unsigned long long)t->count);
		return 0;
	}
	t->strings = arena_array(x->m->arena, p->n_string_data, sizeof(*t->strings));
	for (size_t i = 0; t->strings && i < p->n_string_data; i++) {
		t->strings[i] = onnx_keep(x, p->string_data[i]);
		if (!t->strings[i].ptr)
			return onnx_no_memory(x);
	}
	return t->strings ? 0 : onnx_no_memory(x);
}

/* Which of the payloads is meant; more than one place is damage. */
static int set_embedded(struct onnx_reader *x, struct tensor *t, const struct onnx_type *type,
	const struct pb_record *rec, uint64_t bytes)
{
	const struct pb_payload *list = x->skeleton.payloads + rec->first_payload, *raw = NULL;
	uint32_t first = 0, count = 0;

	for (uint32_t i = 0; i < rec->payload_count; i++) {
		if (list[i].field == TENSOR_RAW_DATA) {
			raw = &list[i]; /* the last one wins */
		} else if (list[i].field == type->field && list[i].size) {
			first = count ? first : i;
			count = i + 1 - first;
		} else if (list[i].size) {
			tensor_damage(x->m, t, "its values stand in a field that is not the one of %s", type->name);
		}
	}
	if (raw && (raw->size || !count)) {
		if (count)
			tensor_damage(x->m, t, "it has both raw_data and typed values");
		t->data = extent_source(x->in->src, raw->offset, raw->size);
		return 0;
	}
	if (!count) {
		if (t->count)
			tensor_damage(x->m, t, "it has no values, its shape needs %llu", (unsigned long long)t->count);
		t->data = extent_zero(bytes);
		return 0;
	}
	if (t->problem.len) {
		t->data = extent_zero(bytes);
		return 0;
	}
	return set_typed(x, t, type, list + first, count, bytes);
}

static int set_data(struct onnx_reader *x, struct tensor *t, const Wia__Onnx__Tensor *p)
{
	const struct pb_record *rec = record_of(x, p);
	const struct onnx_type *type;
	uint64_t bytes = 0;

	if (p->data_type <= 0 || p->data_type >= onnx_type_count) {
		tensor_damage(x->m, t, "data_type %d is unknown", p->data_type);
		return 0;
	}
	type = &onnx_types[p->data_type];
	t->dtype = type->dtype;
	t->stored_type = type->name;
	if (!rec)
		return error_set(x->e, EIO, "tensor '%.*s' has no place in the file", STR_ARG(t->name));
	if (p->segment)
		tensor_damage(x->m, t, "it is a segment of a larger tensor");
	if (t->dtype == DTYPE_STRING)
		return set_strings(x, t, p);
	if (dtype_bytes(t->dtype, t->count, &bytes) < 0)
		return error_set(x->e, EIO, "size of tensor '%.*s' overflows", STR_ARG(t->name));
	if (p->data_location == 1)
		return set_external(x, t, p, bytes);
	return set_embedded(x, t, type, rec, bytes);
}

static int add_info(struct onnx_reader *x, struct tensor *t, const Wia__Onnx__Tensor *p)
{
	int r = onnx_set_text(x, &t->info, "doc_string", p->doc_string);

	if (r == 0 && p->n_metadata_props)
		r = onnx_set(x, &t->info, "metadata_props",
			onnx_entries(x, p->metadata_props, p->n_metadata_props, "a tensor"));
	return r;
}

int onnx_add_tensor(struct onnx_reader *x, const Wia__Onnx__Tensor *p, struct str name, struct str local,
	uint32_t graph, bool in_attribute, uint32_t *index)
{
	struct tensor *t = model_add_tensor(x->m, x->e);
	const struct pb_record *rec = record_of(x, p);
	struct onnx_place *place;
	int r;

	if (!t)
		return x->e && x->e->code ? -x->e->code : -ENOMEM;
	if (!name.ptr || (local.len && !local.ptr))
		return onnx_no_memory(x);
	*index = x->m->tensor_count - 1;
	t->name = name;
	t->local = local;
	t->graph = graph;
	place = arena_alloc(x->m->arena, sizeof(*place));
	if (!place)
		return onnx_no_memory(x);
	if (rec)
		*place = (struct onnx_place){.offset = rec->offset, .size = rec->size};
	place->data_type = p->data_type;
	place->in_attribute = in_attribute;
	t->priv = place;
	r = set_shape(x, t, p);
	if (r == 0)
		r = add_info(x, t, p);
	return r < 0 ? r : set_data(x, t, p);
}

static int add_dense_shape(struct onnx_reader *x, uint32_t index, const Wia__Onnx__SparseTensor *s)
{
	struct value *dims = value_list(x->m->arena);

	for (size_t i = 0; i < s->n_dims; i++)
		if (value_append(x->m->arena, dims, value_int(x->m->arena, s->dims[i])) < 0)
			return onnx_no_memory(x);
	return onnx_set(x, &x->m->tensors[index].info, "sparse_shape", dims);
}

int onnx_add_sparse(struct onnx_reader *x, const Wia__Onnx__SparseTensor *s, struct str name, struct str local,
	uint32_t graph, bool in_attribute, uint32_t *index)
{
	uint32_t indices;
	int r;

	if (!s->values)
		return error_set(x->e, EIO, "sparse tensor '%.*s' has no values", STR_ARG(name));
	r = onnx_add_tensor(x, s->values, onnx_join(x, name, STR(".values"), STR("")), local, graph, in_attribute,
		index);
	if (r == 0)
		r = add_dense_shape(x, *index, s);
	if (r < 0)
		return r;
	((struct onnx_place *)x->m->tensors[*index].priv)->sparse = true;
	if (!s->indices) /* allowed when there are no values */
		return 0;
	r = onnx_add_tensor(x, s->indices, onnx_join(x, name, STR(".indices"), STR("")), STR(""), MODEL_NONE,
		in_attribute, &indices);
	if (r == 0)
		r = add_dense_shape(x, indices, s);
	if (r == 0)
		((struct onnx_place *)x->m->tensors[indices].priv)->sparse = true;
	return r;
}

int onnx_add_blob(struct onnx_reader *x, const Wia__Onnx__Attribute *a, struct str name)
{
	const struct pb_record *rec = &x->skeleton.records[a->record];
	const struct pb_payload *blob = &x->skeleton.payloads[rec->first_payload + rec->payload_count - 1];
	struct tensor *t = model_add_tensor(x->m, x->e);
	struct onnx_place *place = arena_alloc(x->m->arena, sizeof(*place));

	if (!t || !place || !name.ptr)
		return onnx_no_memory(x);
	*place = (struct onnx_place){.offset = rec->offset, .size = rec->size, .in_attribute = true, .string = true};
	t->name = name;
	t->dtype = DTYPE_UINT8;
	t->stored_type = "STRING attribute";
	t->priv = place;
	t->data = extent_source(x->in->src, blob->offset, blob->size);
	return tensor_set_shape(x->m, t, &blob->size, 1, x->e);
}
