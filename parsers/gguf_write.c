/* SPDX-License-Identifier: MIT */
/*
 * Writing GGUF. Keys keep their order and types: loaders are strict about them; an entry whose bytes would be the same is
 * a range of the old file, and so is the data of tensors. Tensor offsets are relative to the data section, so a longer
 * key moves it and changes nothing else.
 */
#include "parsers/gguf.h"

#include "parsers/codec/convert.h"
#include "parsers/core/limits.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { NAME_MAX_BYTES = 63, RANK_MAX = 4, ALIGN = 32 };

static int no_memory(struct error *e)
{
	return error_set(e, ENOMEM, "out of memory for a plan");
}

uint32_t gguf_type_of(enum dtype d)
{
	for (uint32_t i = 0; d != DTYPE_NONE && i < ggml_type_count; i++)
		if (ggml_types[i].name && ggml_types[i].dtype == d)
			return i;
	return UINT32_MAX;
}

/* ---- numbers and strings ---- */

static void put(struct extmap *out, uint64_t v, unsigned bytes, bool big)
{
	unsigned char b[8];

	for (unsigned i = 0; i < bytes; i++)
		b[i] = (unsigned char)(v >> 8 * (big ? bytes - 1 - i : i));
	extmap_append_copy(out, b, bytes);
}

static void put_string(struct extmap *out, struct str s, bool big)
{
	put(out, s.len, 8, big);
	extmap_append_copy(out, s.ptr, s.len);
}

static int misfit(const char *what, struct error *e)
{
	return error_set(e, EINVAL, "the value does not fit its type %s", what);
}

static const char *const type_names[GGUF_TYPES] = {"u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array",
	"u64", "i64", "f64"};

static bool as_natural(const struct value *v, uint64_t *out)
{
	*out = 0;
	if (v->kind == VALUE_INT && v->integer >= 0) {
		*out = (uint64_t)v->integer;
		return true;
	}
	if (v->kind != VALUE_BIGINT || !v->str.len || v->str.len > 20)
		return false;
	for (size_t i = 0; i < v->str.len; i++)
		if (v->str.ptr[i] < '0' || v->str.ptr[i] > '9' || __builtin_mul_overflow(*out, 10u, out) ||
			__builtin_add_overflow(*out, (uint64_t)(v->str.ptr[i] - '0'), out))
			return false;
	return true;
}

static int put_integer(struct extmap *out, const struct value *v, enum gguf_type type, bool big, struct error *e)
{
	static const uint64_t most[GGUF_TYPES] = {[GGUF_U8] = UINT8_MAX, [GGUF_I8] = INT8_MAX, [GGUF_U16] = UINT16_MAX,
		[GGUF_I16] = INT16_MAX, [GGUF_U32] = UINT32_MAX, [GGUF_I32] = INT32_MAX, [GGUF_U64] = UINT64_MAX,
		[GGUF_I64] = INT64_MAX};
	static const uint8_t bytes[GGUF_TYPES] = {1, 1, 2, 2, 4, 4, 0, 0, 0, 0, 8, 8, 0};
	bool is_signed = type == GGUF_I8 || type == GGUF_I16 || type == GGUF_I32 || type == GGUF_I64;
	uint64_t n;

	if (as_natural(v, &n)) {
		if (n > most[type])
			return misfit(type_names[type], e);
	} else {
		if (!is_signed || v->kind != VALUE_INT || v->integer < -(int64_t)most[type] - 1)
			return misfit(type_names[type], e);
		n = (uint64_t)v->integer;
	}
	put(out, n, bytes[type], big);
	return 0;
}

static int put_float(struct extmap *out, const struct value *v, enum gguf_type type, bool big, struct error *e)
{
	double d = v->kind == VALUE_INT ? (double)v->integer : v->real;
	float f = (float)d;
	uint64_t bits;
	uint32_t low;

	if (v->kind != VALUE_INT && v->kind != VALUE_FLOAT && v->kind != VALUE_FLOAT32)
		return misfit(type_names[type], e);
	if (type == GGUF_F32) {
		if (isinf(f) && !isinf(d))
			return misfit("f32", e);
		memcpy(&low, &f, sizeof(low));
		put(out, low, 4, big);
	} else {
		memcpy(&bits, &d, sizeof(bits));
		put(out, bits, 8, big);
	}
	return 0;
}

static int put_scalar(struct extmap *out, const struct value *v, enum gguf_type type, bool big, struct error *e)
{
	switch (type) {
	case GGUF_BOOL:
		if (v->kind != VALUE_BOOL)
			return misfit("bool", e);
		put(out, v->boolean, 1, big);
		return 0;
	case GGUF_STRING:
		if (v->kind != VALUE_STRING && v->kind != VALUE_BYTES)
			return misfit("string", e);
		put_string(out, v->str, big);
		return 0;
	case GGUF_F32:
	case GGUF_F64:
		return put_float(out, v, type, big, e);
	default:
		return put_integer(out, v, type, big, e);
	}
}

int gguf_put_value(struct extmap *out, const struct value *v, enum gguf_type type, enum gguf_type element, bool big,
	struct error *e)
{
	int r = 0;

	if (type != GGUF_ARRAY)
		return put_scalar(out, v, type, big, e);
	if (v->kind != VALUE_LIST)
		return misfit("array", e);
	put(out, element, 4, big);
	put(out, v->list.count, 8, big);
	for (size_t i = 0; r == 0 && i < v->list.count; i++)
		r = put_scalar(out, v->list.items[i], element, big, e);
	return r;
}

/* The type of a key that was not there: u32 for numbers, as most loaders expect. GGUF_TYPES = none. */
static enum gguf_type type_for(const struct value *v)
{
	switch (v->kind) {
	case VALUE_BOOL:
		return GGUF_BOOL;
	case VALUE_INT:
		return v->integer < 0 ? (v->integer >= INT32_MIN ? GGUF_I32 : GGUF_I64)
				      : v->integer <= UINT32_MAX ? GGUF_U32 : GGUF_I64;
	case VALUE_BIGINT:
		return GGUF_U64;
	case VALUE_FLOAT:
	case VALUE_FLOAT32:
		return isinf((float)v->real) && !isinf(v->real) ? GGUF_F64 : GGUF_F32;
	case VALUE_STRING:
	case VALUE_BYTES:
		return GGUF_STRING;
	case VALUE_LIST:
		return GGUF_ARRAY;
	default:
		return GGUF_TYPES;
	}
}

static enum gguf_type element_for(const struct value *list)
{
	enum gguf_type t = list->kind == VALUE_LIST && list->list.count ? type_for(list->list.items[0]) : GGUF_STRING;

	/* 1, -1 and 2.5 in one list */
	for (size_t i = 1; list->kind == VALUE_LIST && i < list->list.count; i++) {
		enum gguf_type other = type_for(list->list.items[i]);

		if (other == t)
			continue;
		if (t == GGUF_F32 || t == GGUF_F64 || other == GGUF_F32 || other == GGUF_F64)
			t = GGUF_F64;
		else if (t != GGUF_STRING && t != GGUF_BOOL && other != GGUF_STRING && other != GGUF_BOOL)
			t = GGUF_I64;
	}
	return t == GGUF_ARRAY ? GGUF_TYPES : t;
}

static int put_new_key(struct extmap *out, struct str name, const struct value *v, bool big, struct error *e)
{
	enum gguf_type type = type_for(v), element = type == GGUF_ARRAY ? element_for(v) : GGUF_U8;
	int r;

	if (type == GGUF_TYPES || element == GGUF_TYPES || !name.len)
		return error_set(e, EINVAL, "key '%.*s' has a value that GGUF has no type for", STR_ARG(name));
	put_string(out, name, big);
	put(out, type, 4, big);
	r = gguf_put_value(out, v, type, element, big, e);
	return r < 0 ? r : extmap_failed(out, e);
}

/* ---- keys ---- */

struct wanted {
	struct str name;
	const struct value *value;
	bool taken;
};

static int wanted_cmp(const void *pa, const void *pb)
{
	const struct wanted *a = pa, *b = pb;

	return str_cmp(a->name, b->name);
}

/* All keys that the metadata asks for, sorted by name. */
static struct wanted *wanted_keys(const struct metadata *meta, size_t *count)
{
	size_t n = meta->properties ? meta->properties->map.count : 0;
	struct wanted *list = calloc(n + 8, sizeof(*list));

	*count = 0;
	for (size_t k = 0; list && gguf_model_keys[k][0]; k++) {
		const struct value *v = value_get(meta->model, gguf_model_keys[k][0]);

		if (v)
			list[(*count)++] = (struct wanted){str_from(gguf_model_keys[k][1]), v, false};
	}
	for (size_t i = 0; list && i < n; i++)
		list[(*count)++] = (struct wanted){meta->properties->map.members[i].key,
			meta->properties->map.members[i].value, false};
	if (list)
		qsort(list, *count, sizeof(*list), wanted_cmp);
	return list;
}

static struct wanted *find_wanted(struct wanted *list, size_t n, struct str name)
{
	struct wanted key = {.name = name};

	return n ? bsearch(&key, list, n, sizeof(*list), wanted_cmp) : NULL;
}

static int name_error(struct error *e, struct str key)
{
	char what[160];

	snprintf(what, sizeof(what), "key '%.*s'", key.len < 100 ? (int)key.len : 100, key.ptr);
	return error_prefix(e, what);
}

/* The entry as the file has it where its bytes would be the same. */
static int put_old_key(const struct gguf_file *f, const struct gguf_key *k, const struct value *v, struct extmap *out,
	struct error *e)
{
	struct extmap now = {0};
	char *a = NULL, *b = NULL;
	int r;

	put_string(&now, k->name, f->big);
	put(&now, k->type, 4, f->big);
	r = gguf_put_value(&now, v, k->type, k->element, f->big, e);
	if (r == 0)
		r = extmap_failed(&now, e);
	if (r < 0) {
		extmap_release(&now);
		return name_error(e, k->name);
	}
	if (now.size == k->size) {
		a = malloc(k->size);
		b = malloc(k->size);
		r = a && b ? extmap_read(&now, 0, a, k->size, e) : no_memory(e);
		if (r == 0)
			r = source_read(f->src, k->offset, b, k->size, e);
	}
	if (r == 0 && now.size == k->size && memcmp(a, b, k->size) == 0)
		extmap_append_source(out, f->src, k->offset, k->size);
	else if (r == 0)
		extmap_append_kept(out, &now);
	free(a);
	free(b);
	extmap_release(&now);
	return r < 0 ? r : extmap_failed(out, e);
}

static int put_keys(const struct gguf_file *f, const struct metadata *meta, struct extmap *out, uint64_t *count,
	struct error *e)
{
	size_t n;
	struct wanted *list = wanted_keys(meta, &n);
	int r = list ? 0 : no_memory(e);

	*count = 0;
	for (uint64_t i = 0; r == 0 && f && i < f->key_count; i++) {
		struct wanted *w = find_wanted(list, n, f->keys[i].name);

		if (!w)
			continue;
		w->taken = true;
		(*count)++;
		r = put_old_key(f, &f->keys[i], w->value, out, e);
	}
	for (size_t i = 0; r == 0 && i < n; i++) {
		if (i > 0 && str_eq(list[i].name, list[i - 1].name))
			r = error_set(e, EINVAL, "key '%.*s' is asked for twice", STR_ARG(list[i].name));
		else if (!list[i].taken) {
			(*count)++;
			r = put_new_key(out, list[i].name, list[i].value, f && f->big, e);
		}
	}
	free(list);
	return r;
}

/* ---- tensors ---- */

/* One as it will be written; data with a reference. */
struct part {
	const struct tensor *tensor;
	uint32_t type;
	struct extent data;
	uint64_t offset; /* in the data section */
	uint64_t order;
};

struct writer {
	const struct model *m;
	const struct gguf_file *f; /* of the base; NULL = from another format */
	struct plan *p;
	struct part *parts;
	uint32_t count;
	bool big, new_layout, new_infos;
};

static int part_cmp(const void *pa, const void *pb)
{
	const struct part *a = pa, *b = pb;

	return a->order != b->order ? (a->order < b->order ? -1 : 1) : 0;
}

static int take(struct part *out, struct codec *c, struct error *e)
{
	if (!c)
		return no_memory(e);
	out->data = extent_codec(c);
	return 0;
}

static int check_tensor(const struct tensor *t, struct error *e)
{
	if (t->problem.len)
		return error_set(e, EIO, "tensor '%.*s' is damaged: %.*s", STR_ARG(t->name), STR_ARG(t->problem));
	return 0;
}

/* From another format; *left_out when nothing holds its dtype. */
static int make_new(struct writer *w, const struct tensor *t, struct part *out, bool *left_out, struct error *e)
{
	bool big = t->flags & TENSOR_BIG_ENDIAN && dtype_info(t->dtype)->swap > 1;
	enum dtype wide = dtype_info(t->dtype)->npy;

	if (t->rank > RANK_MAX || t->name.len > NAME_MAX_BYTES || !t->name.len)
		return error_set(e, EINVAL, "tensor '%.*s': GGUF has names of 1 to %d bytes and at most %d dimensions",
			STR_ARG(t->name), NAME_MAX_BYTES, RANK_MAX);
	if (t->real && w->p->real) {
		out->type = gguf_type_of(DTYPE_FLOAT32);
		return plan_loss(w->p, "tensor '%.*s' becomes its real values in float32", STR_ARG(t->name)) < 0
			       ? no_memory(e)
			       : t->real(t, &out->data, e);
	}
	out->type = gguf_type_of(t->dtype);
	if (out->type != UINT32_MAX) {
		if (big)
			return take(out, codec_swap(&t->data, t->dtype), e);
		out->data = t->data;
		extent_ref(&out->data);
		return 0;
	}
	out->type = t->dtype == DTYPE_NONE ? UINT32_MAX : gguf_type_of(wide);
	*left_out = out->type == UINT32_MAX;
	if (plan_loss(w->p, *left_out ? "tensor '%.*s': dtype %s has no place in GGUF%s%s" : "dtype of '%.*s': %s becomes %s%s",
		    STR_ARG(t->name), dtype_info(t->dtype)->name, *left_out ? "" : dtype_info(wide)->name, "") < 0)
		return no_memory(e);
	return *left_out ? 0 : take(out, codec_decode(&t->data, t->dtype, big, t->count), e);
}

static int make_parts(struct writer *w, struct error *e)
{
	int r = 0;

	w->parts = calloc(w->m->tensor_count ? w->m->tensor_count : 1, sizeof(*w->parts));
	if (!w->parts)
		return no_memory(e);
	for (uint32_t i = 0; r == 0 && i < w->m->tensor_count; i++) {
		const struct tensor *t = &w->m->tensors[i];
		struct part *part = &w->parts[w->count];
		const struct gguf_place *place = w->f && !(t->flags & TENSOR_ADDED) ? t->priv : NULL;
		bool left_out = false;

		*part = (struct part){.tensor = t, .data = extent_zero(0), .order = ((uint64_t)1 << 63) + i};
		r = check_tensor(t, e);
		if (r < 0)
			break;
		if (w->f) {
			part->type = t->dtype == DTYPE_NONE && place ? place->type : gguf_type_of(t->dtype);
			part->data = t->data;
			extent_ref(&part->data);
			part->order = place ? place->index : part->order;
		} else {
			r = make_new(w, t, part, &left_out, e);
		}
		if (r == 0 && !left_out)
			w->count++;
	}
	if (r == 0)
		qsort(w->parts, w->count, sizeof(*w->parts), part_cmp);
	return r;
}

/* Whether the tensors lie where they lay, and the infos say what they said. */
static void compare_with_base(struct writer *w)
{
	const struct model *base = w->m->base ? w->m->base : w->m;

	w->new_layout = !w->f || w->count != base->tensor_count;
	w->new_infos = w->new_layout;
	for (uint32_t i = 0; w->f && i < w->count; i++) {
		const struct tensor *t = w->parts[i].tensor;
		const struct tensor *was = t->flags & TENSOR_ADDED ? NULL : &base->tensors[w->m == base ? (uint32_t)(t - w->m->tensors) : t->base];

		if (!was || was->data.size != t->data.size)
			w->new_layout = w->new_infos = true;
		else if (was->dtype != t->dtype || was->rank != t->rank || !str_eq(was->name, t->name) ||
			 (t->rank && memcmp(was->shape, t->shape, t->rank * sizeof(*t->shape)) != 0))
			w->new_infos = true;
	}
}

static void set_offsets(struct writer *w, uint64_t align)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < w->count; i++) {
		if (w->new_layout) {
			w->parts[i].offset = at;
			at = (at + w->parts[i].data.size + align - 1) / align * align;
		} else {
			w->parts[i].offset = ((const struct gguf_place *)w->parts[i].tensor->priv)->offset;
		}
	}
}

static void put_infos(struct writer *w, struct extmap *out)
{
	for (uint32_t i = 0; i < w->count; i++) {
		const struct part *part = &w->parts[i];

		put_string(out, part->tensor->name, w->big);
		put(out, part->tensor->rank, 4, w->big);
		for (uint32_t k = part->tensor->rank; k > 0; k--)
			put(out, part->tensor->shape[k - 1], 8, w->big);
		put(out, part->type, 4, w->big);
		put(out, part->offset, 8, w->big);
	}
}

static int offset_cmp(const void *pa, const void *pb)
{
	const struct part *a = pa, *b = pb;

	return a->offset != b->offset ? (a->offset < b->offset ? -1 : 1) : 0;
}

/* The old data section with what was edited in it; or all of it anew. */
static void put_data(struct writer *w, struct extmap *out, uint64_t align)
{
	uint64_t at = 0, end = w->f ? source_size(w->f->src) : 0;

	if (!w->new_layout)
		qsort(w->parts, w->count, sizeof(*w->parts), offset_cmp);
	for (uint32_t i = 0; i < w->count; i++) {
		const struct part *part = &w->parts[i];

		if (w->new_layout) {
			extmap_append(out, &part->data);
			extmap_append_zero(out, (align - part->data.size % align) % align);
		} else if (part->tensor->flags & TENSOR_EDITED && part->data.size) {
			extmap_append_source(out, w->f->src, w->f->data + at, part->offset - at);
			extmap_append(out, &part->data);
			at = part->offset + part->data.size;
		}
	}
	if (!w->new_layout && end > w->f->data + at)
		extmap_append_source(out, w->f->src, w->f->data + at, end - w->f->data - at);
}

static int put_file(struct writer *w, struct error *e)
{
	struct extmap keys = {0}, *out = plan_file(w->p, "");
	uint64_t count = 0, align = w->f ? w->f->alignment : ALIGN;
	int r = out ? 0 : no_memory(e);

	if (r == 0 && w->f && !w->m->meta_edited) {
		count = w->f->key_count;
		if (count)
			extmap_append_source(&keys, w->f->src, w->f->keys[0].offset, w->f->infos - w->f->keys[0].offset);
	} else if (r == 0) {
		r = put_keys(w->f, &w->m->meta, &keys, &count, e);
	}
	if (r == 0 && !w->f && !value_get(w->m->meta.properties, "general.architecture")) {
		static const struct value unknown = {.kind = VALUE_STRING, .str = {"unknown", 7}};

		count++;
		r = put_new_key(&keys, STR("general.architecture"), &unknown, false, e);
	}
	if (r == 0) {
		extmap_append_copy(out, "GGUF", 4);
		put(out, w->f ? w->f->version : 3, 4, w->big);
		put(out, w->count, 8, w->big);
		put(out, count, 8, w->big);
		extmap_append_kept(out, &keys);
		set_offsets(w, align);
		if (w->new_infos)
			put_infos(w, out);
		else
			extmap_append_source(out, w->f->src, w->f->infos, w->f->infos_end - w->f->infos);
		if (w->count || (w->f && source_size(w->f->src) > w->f->data))
			extmap_append_zero(out, (align - out->size % align) % align);
		put_data(w, out, align);
		r = extmap_failed(out, e);
	}
	extmap_release(&keys);
	return r;
}

int gguf_plan(const struct model *m, struct plan *p, struct error *e)
{
	const struct model *base = m->base ? m->base : m;
	struct writer w = {.m = m, .p = p, .f = m->format == &format_gguf ? base->priv : NULL};
	struct extmap *out;
	int r = 0;

	w.big = w.f && w.f->big;
	if (w.f && (w.f->split || w.f->version == 1 || model_is_clean(m))) {
		if (w.f->split || !model_is_clean(m))
			return error_set(e, EOPNOTSUPP, "GGUF in several files or of version 1 is read, not written");
		out = plan_file(p, "");
		if (!out)
			return no_memory(e);
		extmap_append_source(out, w.f->src, 0, source_size(w.f->src));
		p->files[p->count - 1].unchanged = p->in_place;
		return extmap_failed(out, e);
	}
	if (!w.f)
		r = plan_plain_losses(p, m, "GGUF") < 0 ? no_memory(e) : 0;
	if (r == 0)
		r = make_parts(&w, e);
	if (r == 0) {
		compare_with_base(&w);
		r = put_file(&w, e);
	}
	for (uint32_t i = 0; i < w.count; i++)
		extent_unref(&w.parts[i].data);
	free(w.parts);
	return r;
}

/* ---- which edits are possible ---- */

static int check_metadata(const struct gguf_file *f, const struct model *m, const struct edit *x, struct error *e)
{
	const struct value *was = value_get((m->base ? m->base : m)->meta.properties, "general.alignment");
	const struct value *now = value_get(x->meta.properties, "general.alignment");
	struct extmap keys = {0};
	uint64_t count;
	int r;

	if (x->meta.values && x->meta.values->map.count)
		return error_set(e, EINVAL, "GGUF has no place for 'values'");
	if (!was != !now || (was && !value_equal(was, now)))
		return error_set(e, EINVAL, "metadata key 'properties.general.alignment' cannot be changed");
	r = put_keys(f, &x->meta, &keys, &count, e);
	extmap_release(&keys);
	return r;
}

int gguf_check_edit(const struct model *m, const struct edit *x, struct error *e)
{
	const struct gguf_file *f = m->priv;
	const struct tensor *t = NULL;

	if (f->split)
		return error_set(e, EOPNOTSUPP, "GGUF in several files is read, not written yet");
	if (f->version == 1)
		return error_set(e, EOPNOTSUPP, "GGUF of version 1 is read, not written");
	if (x->kind == EDIT_METADATA)
		return check_metadata(f, m, x, e);
	if (x->kind == EDIT_TENSOR)
		t = &m->tensors[model_tensor_by_id(m, x->id)];
	if (t && t->dtype == DTYPE_NONE && (x->dtype != DTYPE_NONE || x->data.size != t->data.size))
		return error_set(e, EOPNOTSUPP, "'%.*s' keeps its type %s: write its blocks to raw/", STR_ARG(t->name),
			t->stored_type);
	if ((x->kind == EDIT_TENSOR || x->kind == EDIT_ADD) && x->rank > RANK_MAX)
		return error_set(e, EINVAL, "rank %u, GGUF has at most %d", x->rank, RANK_MAX);
	if ((x->kind == EDIT_ADD || x->kind == EDIT_RENAME) && (!x->name.len || x->name.len > NAME_MAX_BYTES))
		return error_set(e, EINVAL, "'%.*s' has %zu bytes, names in GGUF have 1 to %d", STR_ARG(x->name), x->name.len,
			NAME_MAX_BYTES);
	return 0;
}
