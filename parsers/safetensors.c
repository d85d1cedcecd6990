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
#include "parsers/safetensors.h"

#include "parsers/container/json.h"
#include "parsers/core/cursor.h"
#include "parsers/core/limits.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>


const struct safetensors_type safetensors_types[] = {
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
#define TYPE_COUNT (sizeof(safetensors_types) / sizeof(*safetensors_types))
const size_t safetensors_type_count = TYPE_COUNT;

size_t safetensors_type(enum dtype d)
{
	size_t i = 0;

	while (i < TYPE_COUNT && safetensors_types[i].dtype != d)
		i++;
	return i;
}

static bool safetensors_holds(enum dtype d)
{
	return safetensors_type(d) < TYPE_COUNT;
}

bool safetensors_whole_bytes(enum dtype d, uint64_t count)
{
	const struct dtype_info *info = dtype_info(d);

	return info->block < 2 || count % info->block == 0;
}

/* ---- reading ---- */

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
	if (n > cursor_left(&c))
		cursor_fail(&c, EIO, "header of %" PRIu64 " bytes, %" PRIu64 " are left: the file is cut off", n,
			cursor_left(&c));
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
		return error_set(e, EIO, SAFETENSORS_METADATA " is not an object");
	if (!m->meta.properties)
		m->meta.properties = value_map(m->arena);
	for (size_t i = 0; i < v->map.count; i++) {
		const struct member *p = &v->map.members[i];

		if (p->value->kind != VALUE_STRING)
			return error_set(e, EIO, SAFETENSORS_METADATA ": value of '%.*s' is not a string",
				STR_ARG(p->key));
		if (value_put(m->arena, m->meta.properties, p->key, p->value) < 0)
			return error_set(e, ENOMEM, "out of memory for metadata");
	}
	return 0;
}

static int read_tensor(struct model *m, struct shard *shard, const struct member *entry,
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
	t->priv = shard;
	shard->count++;
	if (entry->value->kind != VALUE_MAP || !dtype || dtype->kind != VALUE_STRING ||
		!numbers(value_get(entry->value, "shape"), shape, LIMIT_RANK, &rank) ||
		!numbers(value_get(entry->value, "data_offsets"), range, 2, &two) || two != 2)
		return error_at(e, EIO, 8, "header: entry of '%.*s' is malformed", STR_ARG(t->name));
	if (range[0] > range[1] || range[1] > source_size(shard->src) - shard->data) {
		tensor_damage(m, t, "data at %" PRIu64 " to %" PRIu64 " lie outside the %" PRIu64
			" bytes of data", range[0], range[1], source_size(shard->src) - shard->data);
		range[0] = range[1] = 0;
	}
	for (i = 0; i < TYPE_COUNT && !str_is(dtype->str, safetensors_types[i].name); i++)
		;
	t->dtype = i < TYPE_COUNT ? safetensors_types[i].dtype : DTYPE_NONE;
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

		if (t->problem.len) { /* what it should have held is unknown */
			free(r);
			return 0;
		}
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

/* Whether the index puts the tensor elsewhere; one that it does not list is shown. */
static bool is_elsewhere(struct model *m, const struct safetensors *s, uint32_t shard,
	const struct weight_map *w, struct str name)
{
	uint32_t listed = w ? weight_map_find(w, name) : shard;

	if (listed == s->count)
		model_warn(m, "tensor '%.*s' of %.*s is not in the index", STR_ARG(name),
			STR_ARG(s->shards[shard].name));
	else if (listed != shard)
		model_warn(m, "tensor '%.*s' is in %.*s too, the index names %.*s", STR_ARG(name),
			STR_ARG(s->shards[shard].name), STR_ARG(s->shards[listed].name));
	return listed != shard && listed != s->count;
}

int safetensors_read_shard(struct model *m, struct safetensors *s, uint32_t number,
	struct weight_map *w, struct error *e)
{
	struct shard *shard = &s->shards[number];
	uint32_t first = m->tensor_count;
	struct value *header;
	bool hidden = false;
	int r = read_header(m, shard->src, &header, &shard->data, e);

	for (size_t i = 0; !r && i < header->map.count; i++) {
		const struct member *entry = &header->map.members[i];

		if (str_is(entry->key, SAFETENSORS_METADATA))
			r = read_metadata(m, entry->value, e);
		else if (is_elsewhere(m, s, number, w, entry->key))
			hidden = true;
		else
			r = read_tensor(m, shard, entry, e);
	}
	return r < 0 || hidden ? r : check_coverage(m, shard, first, e);
}

static int safetensors_probe(const struct input *in, struct error *e)
{
	unsigned char head[9];
	char name[LIMIT_NAME + 1];
	uint64_t n = 0;

	if (!in->src)
		return in->is_dir && safetensors_in_directory(in, name, sizeof(name)) ? 48 : 0;
	if (source_size(in->src) < sizeof(head))
		return 0;
	if (source_read(in->src, 0, head, sizeof(head), e) < 0)
		return -EIO;
	if (safetensors_is_index(in->base))
		return head[0] == '{' ? 48 : 0;
	for (int i = 7; i >= 0; i--)
		n = n << 8 | head[i];
	if (n < 2 || n > LIMIT_SAFETENSORS_HEADER || n > source_size(in->src) - 8)
		return str_ends(in->base, STR(".safetensors")) && head[8] == '{' ? 8 : 0;
	/* the upper half of the length is zero, and JSON white space or a brace follows */
	return head[8] == '{' ? 48 : strchr(" \t\r\n", head[8]) && head[8] ? 34 : 0;
}

static int read_single(struct source *src, struct model *m, struct safetensors *s, struct str name,
	struct error *e)
{
	int r = model_add_source(m, src, e);

	s->shards = arena_array(m->arena, 1, sizeof(*s->shards));
	if (!s->shards)
		return error_set(e, ENOMEM, "out of memory");
	s->count = 1;
	s->shards[0] = (struct shard){.src = src, .name = name};
	return r < 0 ? r : safetensors_read_shard(m, s, 0, NULL, e);
}

static int read_directory(struct input *in, struct model *m, struct safetensors *s, struct error *e)
{
	char name[LIMIT_NAME + 1];
	struct source *src;
	struct str kept;
	int r;

	if (!safetensors_in_directory(in, name, sizeof(name)))
		return error_set(e, ENOENT, "the directory has no index and not just one .safetensors file");
	kept = arena_str(m->arena, name, strlen(name));
	if (!kept.ptr)
		return error_set(e, ENOMEM, "out of memory");
	r = input_companion(in, kept, 0, &src, e);
	if (r < 0)
		return r;
	s->index = kept;
	r = safetensors_is_index(kept) ? safetensors_read_index(in, src, m, s, e)
				       : read_single(src, m, s, kept, e);
	source_unref(src);
	return r;
}

static int safetensors_parse(struct input *in, struct model *m, struct error *e)
{
	struct safetensors *s = arena_alloc(m->arena, sizeof(*s));

	if (!s)
		return error_set(e, ENOMEM, "out of memory");
	m->priv = s;
	if (!in->src)
		return read_directory(in, m, s, e);
	if (safetensors_is_index(in->base))
		return safetensors_read_index(in, in->src, m, s, e);
	return read_single(in->src, m, s, STR(""), e);
}

static int check_tensor(const struct edit *x, struct error *e)
{
	uint64_t count;

	if (shape_count(x->shape, x->rank, &count) < 0 || !safetensors_whole_bytes(x->dtype, count))
		return error_set(e, EINVAL, "safetensors holds no part of a byte: dtype %s needs a multiple of %u elements",
			dtype_info(x->dtype)->name, dtype_info(x->dtype)->block);
	return 0;
}

static int check_name(const struct edit *x, struct error *e)
{
	if (!str_is_utf8(x->name) || str_is(x->name, SAFETENSORS_METADATA))
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

static const char *const extensions[] = {".safetensors", SAFETENSORS_INDEX, NULL};

const struct format format_safetensors = {
	.name = "safetensors",
	.title = "safetensors",
	.extensions = extensions,
	.directories = true,
	.can = CAN_VALUES | CAN_RESHAPE | CAN_RETYPE | CAN_RENAME | CAN_ADD | CAN_REMOVE | CAN_METADATA |
	       CAN_CREATE,
	.probe = safetensors_probe,
	.parse = safetensors_parse,
	.check_edit = safetensors_check_edit,
	.plan = safetensors_plan,
	.keeps_properties = true,
	.holds = safetensors_holds,
};
