/* SPDX-License-Identifier: MIT */
/*
 * safetensors 0.8:
 *
 *	u64le N · N bytes of JSON, padded with blanks · data to the end
 *	{"__metadata__": {KEY: STRING, ...},
 *	 NAME: {"dtype": "F32", "shape": [2, 3], "data_offsets": [BEGIN, END]}, ...}
 *
 * Offsets count from the end of the header. Data is little-endian, C order, without holes or overlap. A model
 * in several files has an index, NAME.safetensors.index.json: {"metadata": {...}, "weight_map": {TENSOR: FILE}}.
 */
#include "parsers/format.h"

#include "parsers/codec/convert.h"
#include "parsers/container/json.h"
#include "parsers/container/json_write.h"
#include "parsers/core/check.h"
#include "parsers/core/cursor.h"
#include "parsers/core/limits.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define METADATA "__metadata__"

extern const struct format format_safetensors;

/* in the order in which the reference writes tensors, so that each is aligned */
static const struct {
	const char *name;
	enum dtype dtype;
} types[] = {
	{"U64", DTYPE_UINT64},
	{"I64", DTYPE_INT64},
	{"F64", DTYPE_FLOAT64},
	{"C64", DTYPE_COMPLEX64},
	{"F32", DTYPE_FLOAT32},
	{"U32", DTYPE_UINT32},
	{"I32", DTYPE_INT32},
	{"BF16", DTYPE_BFLOAT16},
	{"F16", DTYPE_FLOAT16},
	{"U16", DTYPE_UINT16},
	{"I16", DTYPE_INT16},
	{"F8_E5M2FNUZ", DTYPE_FLOAT8_E5M2FNUZ},
	{"F8_E4M3FNUZ", DTYPE_FLOAT8_E4M3FNUZ},
	{"F8_E8M0", DTYPE_FLOAT8_E8M0FNU},
	{"F8_E4M3", DTYPE_FLOAT8_E4M3FN},
	{"F8_E5M2", DTYPE_FLOAT8_E5M2},
	{"I8", DTYPE_INT8},
	{"U8", DTYPE_UINT8},
	{"F6_E3M2", DTYPE_FLOAT6_E3M2},
	{"F6_E2M3", DTYPE_FLOAT6_E2M3},
	{"F4", DTYPE_FLOAT4_E2M1},
	{"BOOL", DTYPE_BOOL},
};
#define TYPE_COUNT (sizeof(types) / sizeof(*types))

/* index in types; TYPE_COUNT = none */
static size_t type_of(enum dtype d)
{
	size_t i = 0;

	while (i < TYPE_COUNT && types[i].dtype != d)
		i++;
	return i;
}

static bool safetensors_holds(enum dtype d)
{
	return type_of(d) < TYPE_COUNT;
}

/* ---- reading ---- */

struct shard {
	struct source *src;
	struct str name; /* "" = the only file */
	uint64_t data;   /* where the data begin */
};

static int read_header(struct model *m, struct source *src, struct value **out, uint64_t *data,
	struct error *e)
{
	struct error why = {0};
	struct cursor c;
	struct str text = {NULL, 0};
	uint64_t n;
	int r;

	cursor_init(&c, src, 0, source_size(src), e);
	n = cursor_u64le(&c);
	if (!cursor_failed(&c) && n > LIMIT_SAFETENSORS_HEADER)
		cursor_fail(&c, EIO, "header of %" PRIu64 " bytes, at most %u are allowed", n,
			LIMIT_SAFETENSORS_HEADER);
	text = cursor_str(&c, m->arena, n);
	r = cursor_failed(&c);
	cursor_release(&c);
	if (r < 0)
		return r;
	*data = 8 + n;
	r = json_parse_plain(m->arena, text.ptr, text.len, out, &why);
	if (r == -ENOMEM)
		return error_set(e, ENOMEM, "out of memory for the header");
	if (r < 0)
		return error_at(e, EIO, 8, "header: %s", why.text);
	return (*out)->kind == VALUE_MAP ? 0 : error_at(e, EIO, 8, "header is not an object");
}

/* A list of integers >= 0; false when it is none. */
static bool numbers(const struct value *v, uint64_t *out, size_t max, size_t *count)
{
	if (!v || v->kind != VALUE_LIST || v->list.count > max)
		return false;
	for (size_t i = 0; i < v->list.count; i++) {
		if (v->list.items[i]->kind != VALUE_INT || v->list.items[i]->integer < 0)
			return false;
		out[i] = (uint64_t)v->list.items[i]->integer;
	}
	*count = v->list.count;
	return true;
}

static int read_metadata(struct model *m, const struct value *v, struct error *e)
{
	if (v->kind == VALUE_NULL)
		return 0;
	if (v->kind != VALUE_MAP)
		return error_set(e, EIO, METADATA " is not an object");
	if (!m->meta.properties)
		m->meta.properties = value_map(m->arena);
	for (size_t i = 0; i < v->map.count; i++) {
		const struct member *p = &v->map.members[i];

		if (p->value->kind != VALUE_STRING)
			return error_set(e, EIO, METADATA ": value of '%.*s' is not a string",
				STR_ARG(p->key));
		if (value_put(m->arena, m->meta.properties, p->key, p->value) < 0)
			return error_set(e, ENOMEM, "out of memory for metadata");
	}
	return 0;
}

static int read_tensor(struct model *m, const struct shard *shard, const struct member *entry,
	struct error *e)
{
	const struct value *dtype = value_get(entry->value, "dtype");
	struct tensor *t = model_add_tensor(m, e);
	uint64_t shape[LIMIT_RANK], range[2];
	size_t rank, two = 0, i;

	if (!t)
		return -ENOMEM;
	t->name = entry->key;
	t->shard = shard->name;
	if (entry->value->kind != VALUE_MAP || !dtype || dtype->kind != VALUE_STRING ||
		!numbers(value_get(entry->value, "shape"), shape, LIMIT_RANK, &rank) ||
		!numbers(value_get(entry->value, "data_offsets"), range, 2, &two) || two != 2)
		return error_at(e, EIO, 8, "header: entry of '%.*s' is malformed", STR_ARG(t->name));
	if (range[0] > range[1] || range[1] > source_size(shard->src) - shard->data) {
		tensor_damage(m, t, "data at %" PRIu64 " to %" PRIu64 " lie outside the %" PRIu64
			" bytes of data", range[0], range[1], source_size(shard->src) - shard->data);
		range[0] = range[1] = 0;
	}
	for (i = 0; i < TYPE_COUNT && !str_is(dtype->str, types[i].name); i++)
		;
	t->dtype = i < TYPE_COUNT ? types[i].dtype : DTYPE_NONE;
	t->stored_type = dtype->str.ptr;
	if (i == TYPE_COUNT)
		model_warn(m, "tensor '%.*s' has the unknown dtype '%.*s'", STR_ARG(t->name),
			STR_ARG(dtype->str));
	t->data = extent_source(shard->src, shard->data + range[0], range[1] - range[0]);
	return tensor_set_shape(m, t, shape, (uint32_t)rank, e);
}

struct range {
	uint64_t begin, end;
	uint32_t tensor;
};

static int by_begin(const void *x, const void *y)
{
	const struct range *a = x, *b = y;

	if (a->begin != b->begin)
		return a->begin < b->begin ? -1 : 1;
	return a->end < b->end ? -1 : a->end > b->end;
}

/* The tensors of a shard in order of their data. NULL when memory is out. */
static struct range *ranges_of(const struct model *m, uint32_t first, uint32_t end,
	const struct source *src, uint32_t *count)
{
	struct range *r = calloc(end - first ? end - first : 1, sizeof(*r));

	*count = 0;
	for (uint32_t i = first; r && i < end; i++) {
		const struct extent *x = &m->tensors[i].data;

		if (x->kind == EXTENT_SOURCE && x->src == src)
			r[(*count)++] = (struct range){x->offset, x->offset + x->size, i};
	}
	if (r)
		qsort(r, *count, sizeof(*r), by_begin);
	return r;
}

/* Other readers refuse holes, overlaps and a tail; we show what is there, and say so. */
static int check_coverage(struct model *m, const struct shard *shard, uint32_t first, struct error *e)
{
	uint32_t count;
	struct range *r = ranges_of(m, first, m->tensor_count, shard->src, &count);
	uint64_t at = shard->data;

	if (!r)
		return error_set(e, ENOMEM, "out of memory for the header");
	for (uint32_t i = 0; i < count; i++) {
		const struct tensor *t = &m->tensors[r[i].tensor];

		if (t->problem.len)
			continue;
		if (r[i].begin != at)
			model_warn(m, "data of '%.*s' %s", STR_ARG(t->name),
				r[i].begin > at ? "follow a hole" : "overlap those of another tensor");
		at = r[i].end > at ? r[i].end : at;
	}
	if (at != source_size(shard->src))
		model_warn(m, "%" PRIu64 " bytes follow the last tensor", source_size(shard->src) - at);
	free(r);
	return 0;
}

static int read_shard(struct model *m, struct shard *shard, struct error *e)
{
	uint32_t first = m->tensor_count;
	struct value *header;
	int r = read_header(m, shard->src, &header, &shard->data, e);

	for (size_t i = 0; !r && i < header->map.count; i++) {
		const struct member *entry = &header->map.members[i];

		r = str_is(entry->key, METADATA) ? read_metadata(m, entry->value, e)
						 : read_tensor(m, shard, entry, e);
	}
	return r < 0 ? r : check_coverage(m, shard, first, e);
}

/* what a parsed model keeps for plan() */
struct safetensors {
	struct shard *shards;
	uint32_t count;
};

static int safetensors_probe(const struct input *in, struct error *e)
{
	unsigned char head[9];
	uint64_t n = 0;

	if (source_size(in->src) < sizeof(head))
		return 0;
	if (source_read(in->src, 0, head, sizeof(head), e) < 0)
		return -EIO;
	for (int i = 7; i >= 0; i--)
		n = n << 8 | head[i];
	if (n < 2 || n > LIMIT_SAFETENSORS_HEADER || n > source_size(in->src) - 8)
		return str_ends(in->base, STR(".safetensors")) && head[8] == '{' ? 8 : 0;
	/* the upper half of the length is zero, and JSON white space or a brace follows */
	return head[8] == '{' ? 48 : strchr(" \t\r\n", head[8]) && head[8] ? 34 : 0;
}

static int safetensors_parse(struct input *in, struct model *m, struct error *e)
{
	struct safetensors *s = arena_alloc(m->arena, sizeof(*s));
	int r;

	if (!s)
		return error_set(e, ENOMEM, "out of memory");
	s->shards = arena_array(m->arena, 1, sizeof(*s->shards));
	if (!s->shards)
		return error_set(e, ENOMEM, "out of memory");
	m->priv = s;
	s->count = 1;
	s->shards[0] = (struct shard){.src = in->src, .name = STR("")};
	r = model_add_source(m, in->src, e);
	return r < 0 ? r : read_shard(m, &s->shards[0], e);
}

/* ---- writing ---- */

/* One tensor as it will be written. */
struct part {
	const struct tensor *tensor;
	enum dtype dtype;
	struct extent data; /* a reference */
	uint64_t order;     /* where its data lay, for those that were there */
	uint32_t index;
};

struct writer {
	const struct model *m;
	struct plan *p;
	struct part *parts;
	uint32_t count;
};

static int by_order(const void *x, const void *y)
{
	const struct part *a = x, *b = y;

	if (a->order != b->order)
		return a->order < b->order ? -1 : 1;
	return (a->index > b->index) - (a->index < b->index);
}

/* As the reference does: larger types first, then by name. */
static int by_type(const void *x, const void *y)
{
	const struct part *a = x, *b = y;
	size_t ta = type_of(a->dtype), tb = type_of(b->dtype);

	if (ta != tb)
		return ta < tb ? -1 : 1;
	return str_cmp(a->tensor->name, b->tensor->name);
}

static int use_codec(struct part *out, struct codec *c, struct error *e)
{
	if (!c)
		return error_set(e, ENOMEM, "out of memory for a plan");
	out->data = extent_codec(c);
	return 0;
}

/* Widened to a type that has a place; the loss is told. 1 = no type has one: left out. */
static int widen(struct writer *w, const struct tensor *t, struct part *out, struct error *e)
{
	enum dtype wide = dtype_info(t->dtype)->npy;

	if (t->dtype == DTYPE_NONE && t->real && w->p->real) {
		out->dtype = DTYPE_FLOAT32;
		return t->real(t, &out->data, e);
	}
	if (t->dtype == DTYPE_NONE || t->dtype == DTYPE_STRING || !safetensors_holds(wide)) {
		if (plan_loss(w->p, "tensor '%.*s': dtype %s has no place in safetensors",
			    STR_ARG(t->name),
			    t->dtype == DTYPE_NONE && t->stored_type ? t->stored_type
								     : dtype_info(t->dtype)->name) < 0)
			return error_set(e, ENOMEM, "out of memory for a plan");
		return 1;
	}
	if (plan_loss(w->p, "dtype of '%.*s': %s becomes %s", STR_ARG(t->name),
		    dtype_info(t->dtype)->name, dtype_info(wide)->name) < 0)
		return error_set(e, ENOMEM, "out of memory for a plan");
	out->dtype = wide;
	return use_codec(out,
		codec_decode(&t->data, t->dtype, t->flags & TENSOR_BIG_ENDIAN, t->count), e);
}

static bool whole_bytes(enum dtype d, uint64_t count)
{
	const struct dtype_info *info = dtype_info(d);

	return info->block < 2 || count % info->block == 0;
}

/* 0 = *out is to be written, 1 = left out */
static int make_part(struct writer *w, uint32_t i, struct part *out, struct error *e)
{
	const struct tensor *t = &w->m->tensors[i];
	bool big = t->flags & TENSOR_BIG_ENDIAN && dtype_info(t->dtype)->swap > 1;

	*out = (struct part){.tensor = t, .dtype = t->dtype, .index = i, .order = UINT64_MAX};
	if (t->problem.len)
		return error_set(e, EIO, "tensor '%.*s' is damaged: %.*s", STR_ARG(t->name),
			STR_ARG(t->problem));
	if (!str_is_utf8(t->name) || str_is(t->name, METADATA))
		return error_set(e, EINVAL, "safetensors cannot name a tensor '%.*s'", STR_ARG(t->name));
	if (w->p->in_place && t->base != MODEL_NONE)
		out->order = w->m->base->tensors[t->base].data.offset;
	if (t->real && w->p->real && t->dtype != DTYPE_NONE) {
		out->dtype = DTYPE_FLOAT32;
		return t->real(t, &out->data, e);
	}
	if (!safetensors_holds(t->dtype) || !whole_bytes(t->dtype, t->count))
		return widen(w, t, out, e);
	if (big)
		return use_codec(out, codec_swap(&t->data, t->dtype), e);
	out->data = t->data;
	extent_ref(&out->data);
	return 0;
}

static int make_parts(struct writer *w, struct error *e)
{
	int r = 0;

	w->parts = calloc(w->m->tensor_count ? w->m->tensor_count : 1, sizeof(*w->parts));
	if (!w->parts)
		return error_set(e, ENOMEM, "out of memory for a plan");
	for (uint32_t i = 0; r >= 0 && i < w->m->tensor_count; i++) {
		r = make_part(w, i, &w->parts[w->count], e);
		w->count += r == 0;
	}
	if (r >= 0)
		qsort(w->parts, w->count, sizeof(*w->parts), w->p->in_place ? by_order : by_type);
	return r < 0 ? r : 0;
}

static void quote(struct json *j, struct str s)
{
	struct json one = {0};

	json_text(&one, s);
	json_raw(j, (struct str){one.text, one.len});
	j->failed = j->failed ? j->failed : one.failed;
	json_release(&one);
}

static void print(struct json *j, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void print(struct json *j, const char *format, ...)
{
	char text[128];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	json_raw(j, str_from(text));
}

/* The format takes strings only. */
static struct str as_text(const struct value *v, struct json *scratch)
{
	if (v->kind == VALUE_STRING)
		return v->str;
	scratch->flat = 1;
	json_value(scratch, v);
	return (struct str){scratch->text, scratch->len};
}

static void print_metadata(struct json *j, const struct writer *w)
{
	const struct value *p = w->m->meta.properties;
	size_t n = p ? p->map.count : 0;
	/* without it some loaders refuse the file */
	bool add = w->m->format != &format_safetensors && !value_get(p, "format");

	if (!n && !add)
		return;
	print(j, "\"" METADATA "\":{%s", add ? "\"format\":\"pt\"" : "");
	for (size_t i = 0; i < n; i++) {
		struct json scratch = {0};

		print(j, "%s", i || add ? "," : "");
		quote(j, p->map.members[i].key);
		print(j, ":");
		quote(j, as_text(p->map.members[i].value, &scratch));
		json_release(&scratch);
	}
	print(j, "}%s", w->count ? "," : "");
}

static int append_header(struct writer *w, struct extmap *map, struct error *e)
{
	struct json j = {0};
	uint64_t at = 0;
	unsigned char head[8];
	size_t len;
	char *text;

	print(&j, "{");
	print_metadata(&j, w);
	for (uint32_t i = 0; i < w->count; i++) {
		const struct part *part = &w->parts[i];

		quote(&j, part->tensor->name);
		print(&j, ":{\"dtype\":\"%s\",\"shape\":[", types[type_of(part->dtype)].name);
		for (uint32_t k = 0; k < part->tensor->rank; k++)
			print(&j, "%s%" PRIu64, k ? "," : "", part->tensor->shape[k]);
		print(&j, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}%s", at, at + part->data.size,
			i + 1 < w->count ? "," : "");
		at += part->data.size;
	}
	print(&j, "}");
	while (j.len % 8 && !j.failed)
		print(&j, " ");
	text = json_take(&j, &len);
	if (!text)
		return error_set(e, ENOMEM, "out of memory for the header");
	if (len > LIMIT_SAFETENSORS_HEADER) {
		free(text);
		return error_set(e, EINVAL, "header of %zu bytes, at most %u are allowed", len,
			LIMIT_SAFETENSORS_HEADER);
	}
	for (int i = 0; i < 8; i++)
		head[i] = (unsigned char)((uint64_t)len >> 8 * i);
	extmap_append_copy(map, head, 8);
	extmap_append_take(map, text, len);
	return extmap_failed(map, e);
}

/* Values only: the header and whatever lies between stay the file's own bytes. */
static bool same_header(const struct writer *w)
{
	const struct model *m = w->m, *base = m->base;

	if (!w->p->in_place || m->meta_edited || m->tensor_count != base->tensor_count)
		return false;
	for (uint32_t i = 0; i < m->tensor_count; i++) {
		const struct tensor *t = &m->tensors[i], *was;

		if (t->base == MODEL_NONE || t->flags & (TENSOR_RENAMED | TENSOR_ADDED))
			return false;
		was = &base->tensors[t->base];
		if (t->dtype != was->dtype || t->rank != was->rank || t->data.size != was->data.size ||
			(t->rank && memcmp(t->shape, was->shape, t->rank * sizeof(*t->shape))))
			return false;
	}
	return true;
}

static int append_patched(struct writer *w, struct extmap *map, struct error *e)
{
	const struct safetensors *s = w->m->base->priv;
	struct source *src = s->shards[0].src;
	uint64_t at = 0;

	for (uint32_t i = 0; i < w->count; i++) {
		const struct part *part = &w->parts[i];

		if (!(part->tensor->flags & TENSOR_EDITED) || !part->data.size)
			continue;
		if (part->order < at)
			return error_set(e, EOPNOTSUPP, "tensor '%.*s' overlaps another",
				STR_ARG(part->tensor->name));
		extmap_append_source(map, src, at, part->order - at);
		extmap_append(map, &part->data);
		at = part->order + part->data.size;
	}
	extmap_append_source(map, src, at, source_size(src) - at);
	return extmap_failed(map, e);
}

static int tell_losses(struct writer *w, struct error *e)
{
	const struct model *m = w->m;
	int r = 0;

	for (uint32_t i = 0; !r && i < m->tensor_count; i++)
		if (m->tensors[i].alias_of != MODEL_NONE)
			r = plan_loss(w->p, "alias: '%.*s' no longer shares the data of '%.*s'",
				STR_ARG(m->tensors[i].name),
				STR_ARG(m->tensors[m->tensors[i].alias_of].name));
	if (!r && m->op_count)
		r = plan_loss(w->p, "graph: %u ops have no place in safetensors", m->op_count);
	for (size_t i = 0; !r && m->meta.values && i < m->meta.values->map.count; i++)
		r = plan_loss(w->p, "value '%.*s' has no place in safetensors",
			STR_ARG(m->meta.values->map.members[i].key));
	for (size_t i = 0; !r && m->meta.properties && i < m->meta.properties->map.count; i++)
		if (m->meta.properties->map.members[i].value->kind != VALUE_STRING)
			r = plan_loss(w->p, "property '%.*s' becomes text",
				STR_ARG(m->meta.properties->map.members[i].key));
	for (uint32_t i = 0; !r && i < m->file_count; i++)
		r = plan_loss(w->p, "file '%.*s' has no place in safetensors",
			STR_ARG(m->files[i].path));
	return r < 0 ? error_set(e, ENOMEM, "out of memory for a plan") : 0;
}

static int safetensors_plan(const struct model *m, struct plan *p, struct error *e)
{
	struct writer w = {.m = m, .p = p};
	struct extmap *map;
	int r = make_parts(&w, e);

	if (!r && !p->in_place)
		r = tell_losses(&w, e);
	map = r ? NULL : plan_file(p, "");
	if (!r && !map)
		r = error_set(e, ENOMEM, "out of memory for a plan");
	if (!r && same_header(&w)) {
		r = append_patched(&w, map, e);
		p->files[p->count - 1].unchanged = model_is_clean(m);
	} else if (!r) {
		r = append_header(&w, map, e);
		for (uint32_t i = 0; !r && i < w.count; i++)
			extmap_append(map, &w.parts[i].data);
		if (!r)
			r = extmap_failed(map, e);
	}
	for (uint32_t i = 0; i < w.count; i++)
		extent_unref(&w.parts[i].data);
	free(w.parts);
	return r;
}

static int check_tensor(const struct edit *x, struct error *e)
{
	uint64_t count;

	if (shape_count(x->shape, x->rank, &count) < 0 || !whole_bytes(x->dtype, count))
		return error_set(e, EINVAL, "safetensors holds no part of a byte: dtype %s needs a multiple of %u elements",
			dtype_info(x->dtype)->name, dtype_info(x->dtype)->block);
	return 0;
}

static int check_name(const struct edit *x, struct error *e)
{
	if (!str_is_utf8(x->name) || str_is(x->name, METADATA))
		return error_set(e, EINVAL, "safetensors cannot name a tensor '%.*s'", STR_ARG(x->name));
	return 0;
}

static int check_metadata(const struct edit *x, struct error *e)
{
	const struct value *p = x->meta.properties;

	if (x->meta.values && x->meta.values->map.count)
		return error_set(e, EINVAL, "safetensors has no place for 'values'");
	for (size_t i = 0; p && i < p->map.count; i++)
		if (p->map.members[i].value->kind != VALUE_STRING)
			return error_set(e, EINVAL, "metadata key 'properties.%.*s' is not a string",
				STR_ARG(p->map.members[i].key));
	return 0;
}

static int safetensors_check_edit(const struct model *m, const struct edit *x, struct error *e)
{
	int r = 0;

	(void)m;
	if (x->kind == EDIT_ADD || x->kind == EDIT_RENAME)
		r = check_name(x, e);
	if (!r && (x->kind == EDIT_ADD || x->kind == EDIT_TENSOR))
		r = check_tensor(x, e);
	return !r && x->kind == EDIT_METADATA ? check_metadata(x, e) : r;
}

static const char *const extensions[] = {".safetensors", NULL};

const struct format format_safetensors = {
	.name = "safetensors",
	.title = "safetensors",
	.extensions = extensions,
	.can = CAN_VALUES | CAN_RESHAPE | CAN_RETYPE | CAN_RENAME | CAN_ADD | CAN_REMOVE | CAN_METADATA |
	       CAN_CREATE,
	.probe = safetensors_probe,
	.parse = safetensors_parse,
	.check_edit = safetensors_check_edit,
	.plan = safetensors_plan,
	.keeps_properties = true,
	.holds = safetensors_holds,
};
