/* SPDX-License-Identifier: MIT */
/*
 * model -> safetensors files. A file of which nothing but values changed keeps its header, and whatever else it
 * holds, byte for byte; otherwise the header is made anew and the data of untouched tensors are ranges of the
 * old file. Order: as in the old file, new tensors last; from another format as the reference writes.
 */
#include "parsers/safetensors.h"

#include "parsers/codec/convert.h"
#include "parsers/container/json_write.h"
#include "parsers/core/limits.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static bool held(enum dtype d)
{
	return safetensors_type(d) < safetensors_type_count;
}

/* One tensor as it will be written. */
struct part {
	const struct tensor *tensor;
	enum dtype dtype;
	const char *type; /* as the header spells it */
	struct extent data; /* a reference */
	uint64_t order;     /* where its data lay, for those that were there */
	uint32_t index;
};

/* One file. */
struct writer {
	const struct model *m;
	struct plan *p;
	const struct shard *shard; /* only its tensors; NULL = all */
	const struct tensor *damaged; /* one that cannot be copied, NULL = none */
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
	size_t ta = safetensors_type(a->dtype), tb = safetensors_type(b->dtype);

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
	if (t->dtype == DTYPE_NONE || t->dtype == DTYPE_STRING || !held(wide)) {
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

/* 0 = *out is to be written, 1 = left out */
static int make_part(struct writer *w, uint32_t i, struct part *out, struct error *e)
{
	const struct tensor *t = &w->m->tensors[i];
	bool big = t->flags & TENSOR_BIG_ENDIAN && dtype_info(t->dtype)->swap > 1;

	*out = (struct part){.tensor = t, .dtype = t->dtype, .index = i, .order = UINT64_MAX,
		.data = extent_zero(0)};
	if (t->problem.len) {
		w->damaged = t;
		return 0;
	}
	if (!str_is_utf8(t->name) || str_is(t->name, SAFETENSORS_METADATA))
		return error_set(e, EINVAL, "safetensors cannot name a tensor '%.*s'", STR_ARG(t->name));
	if (w->p->in_place && t->base != MODEL_NONE)
		out->order = w->m->base->tensors[t->base].data.offset;
	if (w->p->in_place && t->dtype == DTYPE_NONE) {
		out->type = t->stored_type; /* a type of the future: its bytes are as good as any */
		out->data = t->data;
		extent_ref(&out->data);
		return 0;
	}
	if (t->real && w->p->real && t->dtype != DTYPE_NONE) {
		out->dtype = DTYPE_FLOAT32;
		return t->real(t, &out->data, e);
	}
	if (!held(t->dtype) || !safetensors_whole_bytes(t->dtype, t->count))
		return widen(w, t, out, e);
	if (big)
		return use_codec(out, codec_swap(&t->data, t->dtype), e);
	out->data = t->data;
	extent_ref(&out->data);
	return 0;
}

/* Where a tensor is kept; a new one goes to the last file. */
static const struct shard *shard_of(const struct model *m, const struct tensor *t)
{
	const struct safetensors *s = m->base->priv;

	return t->priv ? t->priv : &s->shards[s->count - 1];
}

static int make_parts(struct writer *w, struct error *e)
{
	int r = 0;

	w->parts = calloc(w->m->tensor_count ? w->m->tensor_count : 1, sizeof(*w->parts));
	if (!w->parts)
		return error_set(e, ENOMEM, "out of memory for a plan");
	for (uint32_t i = 0; r >= 0 && i < w->m->tensor_count; i++) {
		struct part *part = &w->parts[w->count];

		if (w->shard && shard_of(w->m, &w->m->tensors[i]) != w->shard)
			continue;
		r = make_part(w, i, part, e);
		if (r)
			continue;
		if (!part->type && held(part->dtype)) /* a damaged one may be anything */
			part->type = safetensors_types[safetensors_type(part->dtype)].name;
		w->count++;
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
	print(j, "\"" SAFETENSORS_METADATA "\":{%s", add ? "\"format\":\"pt\"" : "");
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

	if (w->damaged)
		return error_set(e, EIO, "tensor '%.*s' is damaged: %.*s", STR_ARG(w->damaged->name),
			STR_ARG(w->damaged->problem));
	print(&j, "{");
	print_metadata(&j, w);
	for (uint32_t i = 0; i < w->count; i++) {
		const struct part *part = &w->parts[i];

		quote(&j, part->tensor->name);
		print(&j, ":{\"dtype\":\"%s\",\"shape\":[", part->type);
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

static const struct shard *only_shard(const struct writer *w)
{
	return w->shard ? w->shard : &((const struct safetensors *)w->m->base->priv)->shards[0];
}

/* Values only: the header and whatever lies between stay the file's own bytes. */
static bool same_header(const struct writer *w)
{
	const struct model *m = w->m, *base = m->base;

	if (!w->p->in_place || m->meta_edited || w->count != only_shard(w)->count)
		return false;
	for (uint32_t i = 0; i < w->count; i++) {
		const struct tensor *t = w->parts[i].tensor, *was;

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
	struct source *src = only_shard(w)->src;
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
	const struct value *properties = w->m->meta.properties;
	int r = plan_plain_losses(w->p, w->m, "safetensors");

	for (size_t i = 0; !r && properties && i < properties->map.count; i++)
		if (properties->map.members[i].value->kind != VALUE_STRING)
			r = plan_loss(w->p, "property '%.*s' becomes text",
				STR_ARG(properties->map.members[i].key));
	return r < 0 ? error_set(e, ENOMEM, "out of memory for a plan") : 0;
}

static void release_parts(struct writer *w)
{
	for (uint32_t i = 0; i < w->count; i++)
		extent_unref(&w->parts[i].data);
	free(w->parts);
}

static int append_file(struct writer *w, struct extmap *map, struct error *e)
{
	int r;

	if (same_header(w))
		return append_patched(w, map, e);
	r = append_header(w, map, e);
	for (uint32_t i = 0; !r && i < w->count; i++)
		extmap_append(map, &w->parts[i].data);
	return r < 0 ? r : extmap_failed(map, e);
}

static int no_memory(struct error *e)
{
	return error_set(e, ENOMEM, "out of memory for a plan");
}

/* ---- several files ---- */

struct shards {
	const struct model *m;
	struct plan *p;
	const struct safetensors *s;
	bool *changed;
	struct str *names; /* of each file from now on */
	uint32_t changes;
	bool relisted; /* the index says something new */
};

static void look(struct shards *x)
{
	uint32_t *counts = arena_array(x->p->arena, x->s->count, sizeof(*counts));

	for (uint32_t i = 0; counts && i < x->m->tensor_count; i++) {
		const struct tensor *t = &x->m->tensors[i];
		size_t k = (size_t)(shard_of(x->m, t) - x->s->shards);

		counts[k]++;
		x->changed[k] |= (t->flags & (TENSOR_EDITED | TENSOR_ADDED | TENSOR_RENAMED)) != 0;
		x->relisted |= t->flags & (TENSOR_ADDED | TENSOR_RENAMED) ||
			       (t->base != MODEL_NONE &&
				       x->m->base->tensors[t->base].data.size != t->data.size);
	}
	for (uint32_t k = 0; k < x->s->count; k++) {
		bool fewer = !counts || counts[k] < x->s->shards[k].count;

		x->relisted |= fewer;
		x->changed[k] |= fewer || x->m->meta_edited;
		x->changes += x->changed[k];
	}
}

/* "model-00001-of-00002.safetensors" -> "model-00001-of-00002.w1.safetensors" -> w2 ... */
static struct str next_name(struct arena *a, struct str was)
{
	struct str stem = was, suffix = STR(".safetensors");
	unsigned long n = 0;
	size_t digits = 0;

	if (str_ends(stem, suffix))
		stem.len -= suffix.len;
	else
		suffix.len = 0;
	while (digits < stem.len && digits < 9 && stem.ptr[stem.len - 1 - digits] >= '0' &&
		stem.ptr[stem.len - 1 - digits] <= '9')
		digits++;
	if (digits && stem.len > digits + 2 &&
		memcmp(stem.ptr + stem.len - digits - 2, ".w", 2) == 0) {
		n = strtoul(stem.ptr + stem.len - digits, NULL, 10);
		stem.len -= digits + 2;
	}
	return arena_printf(a, "%.*s.w%lu%.*s", (int)stem.len, stem.ptr, n + 1, (int)suffix.len,
		suffix.ptr);
}

/* Files cannot be replaced together: when it is not just one that changes, and nothing else, they get new names,
 * which only the new index tells. */
static int choose_names(struct shards *x)
{
	bool rename = x->changes + x->relisted > 1;

	for (uint32_t k = 0; k < x->s->count; k++) {
		x->names[k] = rename && x->changed[k]
				      ? next_name(x->p->arena, x->s->shards[k].name)
				      : x->s->shards[k].name;
		if (!x->names[k].ptr)
			return -ENOMEM;
	}
	x->relisted |= rename;
	return 0;
}

static int plan_shard(struct shards *x, uint32_t k, struct error *e)
{
	const struct shard *shard = &x->s->shards[k];
	struct writer w = {.m = x->m, .p = x->p, .shard = shard};
	struct extmap *map = plan_file(x->p, x->names[k].ptr);
	int r;

	if (!map)
		return no_memory(e);
	if (!x->changed[k]) {
		x->p->files[x->p->count - 1].unchanged = true;
		extmap_append_source(map, shard->src, 0, source_size(shard->src));
		return extmap_failed(map, e);
	}
	r = make_parts(&w, e);
	if (!r)
		r = append_file(&w, map, e);
	if (!r && !str_eq(x->names[k], shard->name) && plan_obsolete(x->p, shard->name.ptr) < 0)
		r = no_memory(e);
	release_parts(&w);
	return r;
}

static struct source *index_of(const struct model *m)
{
	return m->base->sources[0];
}

static int by_tensor_name(const void *x, const void *y)
{
	return str_cmp((*(const struct tensor *const *)x)->name, (*(const struct tensor *const *)y)->name);
}

static void print_fact(struct json *j, const struct model *m, const struct member *fact)
{
	struct json value = {.flat = 1};

	if (str_is(fact->key, "total_size"))
		return;
	print(j, "    ");
	quote(j, fact->key);
	print(j, ": ");
	if (str_is(fact->key, "total_parameters"))
		json_uint(&value, model_parameter_count(m));
	else
		json_value(&value, fact->value);
	json_raw(j, (struct str){value.text, value.len});
	j->failed = j->failed ? j->failed : value.failed;
	json_release(&value);
	print(j, ",\n");
}

static int print_index(struct shards *x, struct json *j)
{
	const struct model *m = x->m;
	const struct tensor **sorted = arena_array(x->p->arena, m->tensor_count, sizeof(*sorted));
	const struct value *facts = x->s->facts;
	uint64_t total = 0;

	if (!sorted)
		return -ENOMEM;
	for (uint32_t i = 0; i < m->tensor_count; i++) {
		sorted[i] = &m->tensors[i];
		total += m->tensors[i].data.size;
	}
	if (m->tensor_count)
		qsort(sorted, m->tensor_count, sizeof(*sorted), by_tensor_name);
	print(j, "{\n  \"metadata\": {\n");
	for (size_t i = 0; facts && i < facts->map.count; i++)
		print_fact(j, m, &facts->map.members[i]);
	print(j, "    \"total_size\": %" PRIu64 "\n  },\n  \"weight_map\": {", total);
	for (uint32_t i = 0; i < m->tensor_count; i++) {
		print(j, "%s\n    ", i ? "," : "");
		quote(j, sorted[i]->name);
		print(j, ": ");
		quote(j, x->names[shard_of(m, sorted[i]) - x->s->shards]);
	}
	print(j, "\n  }\n}\n");
	return 0;
}

static int plan_index(struct shards *x, struct error *e)
{
	struct extmap *map = plan_file(x->p, x->s->index.ptr ? x->s->index.ptr : "");
	struct json j = {0};
	size_t len;
	char *text;

	if (!map)
		return no_memory(e);
	if (!x->relisted) {
		x->p->files[x->p->count - 1].unchanged = true;
		extmap_append_source(map, index_of(x->m), 0, source_size(index_of(x->m)));
		return extmap_failed(map, e);
	}
	if (print_index(x, &j) < 0)
		return no_memory(e);
	text = json_take(&j, &len);
	if (!text)
		return no_memory(e);
	extmap_append_take(map, text, len);
	return extmap_failed(map, e);
}

static int plan_shards(const struct model *m, struct plan *p, struct error *e)
{
	struct shards x = {.m = m, .p = p, .s = m->base->priv};
	int r = 0;

	x.changed = arena_array(p->arena, x.s->count, sizeof(*x.changed));
	x.names = arena_array(p->arena, x.s->count, sizeof(*x.names));
	if (!x.changed || !x.names)
		return no_memory(e);
	look(&x);
	if (choose_names(&x) < 0)
		return no_memory(e);
	for (uint32_t k = 0; !r && k < x.s->count; k++)
		r = plan_shard(&x, k, e);
	return r < 0 ? r : plan_index(&x, e);
}

/* ---- one file ---- */

int safetensors_plan(const struct model *m, struct plan *p, struct error *e)
{
	const struct safetensors *s = p->in_place ? m->base->priv : NULL;
	struct writer w = {.m = m, .p = p};
	struct extmap *map;
	int r;

	if (s && s->indexed)
		return plan_shards(m, p, e);
	r = make_parts(&w, e);
	if (!r && !p->in_place)
		r = tell_losses(&w, e);
	map = r ? NULL : plan_file(p, s && s->index.ptr ? s->index.ptr : "");
	if (!r)
		r = map ? append_file(&w, map, e) : no_memory(e);
	if (!r && p->in_place)
		p->files[p->count - 1].unchanged = model_is_clean(m);
	release_parts(&w);
	return r;
}
