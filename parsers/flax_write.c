/* SPDX-License-Identifier: MIT */
/*
 * Writing Flax MessagePack. An edited file is the old one with a few ranges replaced: a key, a value, an entry, a map's
 * header when its count changes; nothing else in the format depends on lengths. From another format, names are
 * split at '/' into maps, as flax.traverse_util.flatten_dict(sep="/") joins them.
 */
#include "parsers/flax.h"

#include "parsers/codec/convert.h"
#include "parsers/core/codec.h"
#include "parsers/core/limits.h"

#include <errno.h>
#include <stdlib.h>

static int no_memory(struct error *e)
{
	return error_set(e, ENOMEM, "out of memory for a plan");
}

/* ---- objects ---- */

/* A header with a big-endian length in the smallest of the widths that the format has: fix (when 0xff is not given, up to
 * fix_max), 8, 16, 32 bits; code 0 = there is none of that width. */
static void put_header(struct extmap *out, uint8_t fix, uint64_t fix_max, const uint8_t codes[3], uint64_t n)
{
	unsigned char b[5];
	unsigned width = codes[0] && n <= UINT8_MAX ? 1 : codes[1] && n <= UINT16_MAX ? 2 : 4;

	if (fix && n <= fix_max) {
		b[0] = (unsigned char)(fix | n);
		extmap_append_copy(out, b, 1);
		return;
	}
	b[0] = codes[width == 1 ? 0 : width == 2 ? 1 : 2];
	for (unsigned i = 0; i < width; i++)
		b[1 + i] = (unsigned char)(n >> 8 * (width - 1 - i));
	extmap_append_copy(out, b, 1 + width);
}

static void put_map(struct extmap *out, uint64_t n)
{
	put_header(out, 0x80, 15, (const uint8_t[]){0, 0xde, 0xdf}, n);
}

static void put_list(struct extmap *out, uint64_t n)
{
	put_header(out, 0x90, 15, (const uint8_t[]){0, 0xdc, 0xdd}, n);
}

static void put_str(struct extmap *out, struct str s)
{
	put_header(out, 0xa0, 31, (const uint8_t[]){0xd9, 0xda, 0xdb}, s.len);
	extmap_append_copy(out, s.ptr, s.len);
}

static void put_uint(struct extmap *out, uint64_t v)
{
	unsigned char b[9];
	unsigned width = v <= UINT8_MAX ? 1 : v <= UINT16_MAX ? 2 : v <= UINT32_MAX ? 4 : 8;

	b[0] = (unsigned char)(v < 128 ? v : width == 1 ? 0xcc : width == 2 ? 0xcd : width == 4 ? 0xce : 0xcf);
	for (unsigned i = 0; i < width; i++)
		b[1 + i] = (unsigned char)(v >> 8 * (width - 1 - i));
	extmap_append_copy(out, b, v < 128 ? 1 : 1 + width);
}

static void put_ext(struct extmap *out, uint8_t type, const struct extmap *body, const struct extent *data)
{
	uint64_t n = body->size + data->size;
	int fix = n == 1 ? 0 : n == 2 ? 1 : n == 4 ? 2 : n == 8 ? 3 : n == 16 ? 4 : -1;

	if (fix >= 0)
		extmap_append_copy(out, &(unsigned char){(unsigned char)(0xd4 + fix)}, 1);
	else
		put_header(out, 0, 0, (const uint8_t[]){0xc7, 0xc8, 0xc9}, n);
	extmap_append_copy(out, &type, 1);
	extmap_append_kept(out, body);
	extmap_append(out, data);
}

static void put_array(struct extmap *out, uint8_t ext, struct str dtype, const uint64_t *shape, uint32_t rank,
	const struct extent *data)
{
	struct extmap body = {0};

	put_list(&body, 3);
	put_list(&body, rank);
	for (uint32_t i = 0; i < rank; i++)
		put_uint(&body, shape[i]);
	put_str(&body, dtype);
	put_header(&body, 0, 0, (const uint8_t[]){0xc4, 0xc5, 0xc6}, data->size);
	put_ext(out, ext, &body, data);
	extmap_release(&body);
}

static struct str index_text(char text[24], uint64_t i)
{
	char *p = text + 23;
	size_t n = 0;

	do {
		*--p = (char)('0' + i % 10);
		i /= 10;
		n++;
	} while (i);
	return (struct str){p, n};
}

/* More than one ext holds comes as flax itself splits it. */
static void put_chunked(struct extmap *out, struct str dtype, const struct tensor *t, const struct extent *data,
	uint64_t item)
{
	uint64_t step = FLAX_CHUNK / item * item, chunks = (data->size + step - 1) / step;
	char text[24];

	put_map(out, 3);
	put_str(out, STR(FLAX_CHUNK_KEY));
	extmap_append_copy(out, "\xc3", 1);
	put_str(out, STR("shape"));
	put_map(out, t->rank);
	for (uint32_t i = 0; i < t->rank; i++) {
		put_str(out, index_text(text, i));
		put_uint(out, t->shape[i]);
	}
	put_str(out, STR("chunks"));
	put_map(out, chunks);
	for (uint64_t i = 0; i < chunks; i++) {
		struct extent part = extent_slice(*data, i * step, step);
		uint64_t count = part.size / item;

		put_str(out, index_text(text, i));
		put_array(out, FLAX_NDARRAY, dtype, &count, 1, &part);
	}
}

/* ---- tensors ---- */

static bool held(enum dtype d)
{
	return format_flax.holds(d);
}

static int take(struct extent *out, struct codec *c, struct error *e)
{
	if (!c)
		return no_memory(e);
	*out = extent_codec(c);
	return 0;
}

/* The elements as the format keeps them: little-endian, a byte for each of the sub-byte types, their bits
 * in the low end as ml_dtypes has them. A reference in *out. */
static int make_data(struct plan *p, const struct tensor *t, enum dtype *dtype, struct extent *out, struct error *e)
{
	const struct dtype_info *info = dtype_info(t->dtype);
	bool big = t->flags & TENSOR_BIG_ENDIAN && info->swap > 1;

	*dtype = t->dtype;
	*out = extent_zero(0);
	if (t->problem.len)
		return error_set(e, EIO, "tensor '%.*s' is damaged: %.*s", STR_ARG(t->name), STR_ARG(t->problem));
	if (t->real && p->real) {
		*dtype = DTYPE_FLOAT32;
		return plan_loss(p, "tensor '%.*s' becomes its real values in float32", STR_ARG(t->name)) < 0
			       ? no_memory(e)
			       : t->real(t, out, e);
	}
	if (!held(t->dtype)) {
		*dtype = DTYPE_NONE;
		return plan_loss(p, "tensor '%.*s': dtype %s has no place in Flax MessagePack", STR_ARG(t->name),
			       t->dtype == DTYPE_NONE && t->stored_type ? t->stored_type : info->name) < 0
			       ? no_memory(e)
			       : 0;
	}
	if (info->block > 1)
		return take(out, codec_unpack_bits(&t->data, t->dtype, t->count), e);
	if (big)
		return take(out, codec_swap(&t->data, t->dtype), e);
	*out = t->data;
	extent_ref(out);
	return 0;
}

/* The value of a tensor; nothing when no dtype holds it (*there = false). */
static int put_tensor(struct plan *p, struct extmap *out, const struct tensor *t, uint8_t ext, bool *there,
	struct error *e)
{
	const struct dtype_info *info;
	struct extent data;
	enum dtype d;
	int r = make_data(p, t, &d, &data, e);

	*there = r == 0 && d != DTYPE_NONE;
	if (!*there)
		return r;
	info = dtype_info(d);
	if (data.size > FLAX_CHUNK)
		put_chunked(out, str_from(info->name), t, &data, info->block > 1 ? 1 : info->block_bytes);
	else
		put_array(out, ext, str_from(info->name), t->shape, t->rank, &data);
	extent_unref(&data);
	return extmap_failed(out, e);
}

/* ---- a new file ---- */

struct named {
	struct str name; /* what is left of it below the map */
	const struct tensor *tensor;
};

/* Component by component, so that what lies in one map is together. */
static int named_cmp(const void *pa, const void *pb)
{
	const struct named *a = pa, *b = pb;
	size_t n = a->name.len < b->name.len ? a->name.len : b->name.len;

	for (size_t i = 0; i < n; i++) {
		unsigned char x = (unsigned char)a->name.ptr[i], y = (unsigned char)b->name.ptr[i];

		if (x != y)
			return x == '/' ? -1 : y == '/' ? 1 : x < y ? -1 : 1;
	}
	return (a->name.len > b->name.len) - (a->name.len < b->name.len);
}

static struct str component(struct str name, struct str *rest)
{
	const char *slash = name.len ? memchr(name.ptr, '/', name.len) : NULL;

	*rest = slash ? (struct str){slash + 1, (size_t)(name.ptr + name.len - slash) - 1} : (struct str){NULL, 0};
	return slash ? (struct str){name.ptr, (size_t)(slash - name.ptr)} : name;
}

/* The entries that begin with the component of the first; their number. */
static size_t same_component(const struct named *list, size_t n, struct str first)
{
	struct str rest;
	size_t k = 1;

	while (k < n && str_eq(component(list[k].name, &rest), first))
		k++;
	return k;
}

static int put_tree(struct plan *p, struct extmap *out, struct named *list, size_t n, unsigned depth, struct error *e);

/* One entry: a tensor, or a map of the tensors whose names begin with `first`. */
static int put_entry(struct plan *p, struct extmap *out, struct named *list, size_t n, struct str first, bool leaf,
	uint64_t *count, unsigned depth, struct error *e)
{
	struct extmap value = {0};
	bool there = true;
	int r;

	if (leaf && n > 1)
		return error_set(e, EINVAL, "'%.*s' is a tensor and a folder of tensors: Flax MessagePack has one place",
			STR_ARG(list->tensor->name));
	for (size_t i = 0; !leaf && i < n; i++)
		component(list[i].name, &list[i].name);
	r = leaf ? put_tensor(p, &value, list->tensor, FLAX_NDARRAY, &there, e) : put_tree(p, &value, list, n, depth + 1, e);
	if (r == 0 && there) {
		put_str(out, first);
		extmap_append_kept(out, &value);
		(*count)++;
	}
	extmap_release(&value);
	return r < 0 ? r : extmap_failed(out, e);
}

/* The entries of one map, without its header; list is sorted. */
static int put_entries(struct plan *p, struct extmap *out, struct named *list, size_t n, uint64_t *count, unsigned depth,
	struct error *e)
{
	int r = 0;

	for (size_t i = 0, k; r == 0 && i < n; i += k) {
		struct str rest, first = component(list[i].name, &rest);

		k = same_component(list + i, n - i, first);
		r = put_entry(p, out, list + i, k, first, !rest.ptr, count, depth, e);
	}
	return r;
}

/* One map of the tree. Depth is bounded: names with more components are refused. */
static int put_tree(struct plan *p, struct extmap *out, struct named *list, size_t n, unsigned depth, struct error *e)
{
	struct extmap entries = {0};
	uint64_t count = 0;
	int r;

	if (depth >= LIMIT_NESTING)
		return error_set(e, EINVAL, "a name has more than %d parts", LIMIT_NESTING);
	r = put_entries(p, &entries, list, n, &count, depth, e);
	put_map(out, count);
	if (r == 0) {
		extmap_append_kept(out, &entries);
		r = extmap_failed(out, e);
	}
	extmap_release(&entries);
	return r;
}

static int tell_losses(struct plan *p, const struct model *m, struct error *e)
{
	const struct value *props = m->meta.properties;
	int r = plan_plain_losses(p, m, "Flax MessagePack");

	for (size_t i = 0; !r && props && i < props->map.count; i++)
		r = plan_loss(p, "property '%.*s' has no place in Flax MessagePack", STR_ARG(props->map.members[i].key));
	return r < 0 ? no_memory(e) : 0;
}

static int create(const struct model *m, struct plan *p, struct error *e)
{
	struct named *list = calloc(m->tensor_count ? m->tensor_count : 1, sizeof(*list));
	struct extmap *out = plan_file(p, "");
	int r = list && out ? tell_losses(p, m, e) : no_memory(e);

	for (uint32_t i = 0; list && i < m->tensor_count; i++) {
		list[i] = (struct named){m->tensors[i].name, &m->tensors[i]};
		if (r == 0 && !str_is_utf8(list[i].name))
			r = error_set(e, EINVAL, "Flax MessagePack cannot name a tensor '%.*s'", STR_ARG(list[i].name));
	}
	if (r == 0) {
		qsort(list, m->tensor_count, sizeof(*list), named_cmp);
		r = put_tree(p, out, list, m->tensor_count, 0, e);
	}
	free(list);
	return r;
}

/* ---- an edited file ---- */

/* Bytes of the old file that are replaced. */
struct splice {
	uint64_t offset, size;
	uint32_t order; /* among those at one offset */
	struct extmap with;
};

struct writer {
	const struct model *m, *base;
	const struct flax_file *f;
	struct plan *p;
	struct splice *splices;
	size_t count, cap;
	int64_t *more; /* for each map, how many entries come or go */
};

static struct extmap *splice(struct writer *w, uint64_t offset, uint64_t size)
{
	if (w->count == w->cap) {
		size_t cap = w->cap ? w->cap * 2 : 32;
		struct splice *grown = reallocarray(w->splices, cap, sizeof(*grown));

		if (!grown)
			return NULL;
		w->splices = grown;
		w->cap = cap;
	}
	w->splices[w->count] = (struct splice){.offset = offset, .size = size, .order = (uint32_t)w->count};
	return &w->splices[w->count++].with;
}

static int splice_cmp(const void *pa, const void *pb)
{
	const struct splice *a = pa, *b = pb;

	if (a->offset != b->offset)
		return a->offset < b->offset ? -1 : 1;
	return a->order < b->order ? -1 : a->order > b->order;
}

static struct str parent_of(struct str name)
{
	size_t n = name.len;

	while (n > 0 && name.ptr[n - 1] != '/')
		n--;
	return (struct str){name.ptr, n ? n - 1 : 0};
}

static struct str last_of(struct str name)
{
	struct str parent = parent_of(name);
	size_t skip = parent.len || (name.len && name.ptr[0] == '/') ? parent.len + 1 : 0;

	return (struct str){name.ptr + skip, name.len - skip};
}

/* The map of that path; MODEL_NONE = there is none. */
static uint32_t find_map(const struct flax_file *f, struct str path)
{
	for (uint32_t i = 0; i < f->map_count; i++)
		if (str_eq(f->maps[i].path, path))
			return i;
	return MODEL_NONE;
}

static int change_entry(struct writer *w, const struct tensor *was, const struct tensor *now, struct error *e)
{
	const struct flax_place *place = was->priv;
	struct extmap *with;
	bool there;

	if (!now) {
		w->more[place->map]--;
		return splice(w, place->key, place->value + place->value_size - place->key) ? 0 : no_memory(e);
	}
	if (!str_eq(was->name, now->name)) {
		with = splice(w, place->key, place->key_size);
		if (!with)
			return no_memory(e);
		put_str(with, last_of(now->name));
	}
	if (!(now->flags & TENSOR_EDITED))
		return 0;
	with = splice(w, place->value, place->value_size);
	return with ? put_tensor(w->p, with, now, place->ext ? place->ext : FLAX_NDARRAY, &there, e) : no_memory(e);
}

struct added {
	uint32_t map;
	struct named named;
};

static int added_cmp(const void *pa, const void *pb)
{
	const struct added *a = pa, *b = pb;

	return a->map != b->map ? (a->map < b->map ? -1 : 1) : named_cmp(&a->named, &b->named);
}

/* The innermost map that is there for a new name, and what of the name is left below it. */
static struct added place_of(const struct flax_file *f, const struct tensor *t)
{
	struct str path = parent_of(t->name);
	uint32_t map;

	while ((map = find_map(f, path)) == MODEL_NONE)
		path = parent_of(path);
	return (struct added){map, {path.len ? (struct str){t->name.ptr + path.len + 1, t->name.len - path.len - 1}
					    : t->name, t}};
}

/* New entries go to the end of their maps, in new maps where their paths are new. */
static int add_entries(struct writer *w, struct error *e)
{
	struct added *list = calloc(w->m->tensor_count ? w->m->tensor_count : 1, sizeof(*list));
	struct named *group = calloc(w->m->tensor_count ? w->m->tensor_count : 1, sizeof(*group));
	size_t n = 0;
	int r = list && group ? 0 : no_memory(e);

	for (uint32_t i = 0; r == 0 && i < w->m->tensor_count; i++)
		if (w->m->tensors[i].flags & TENSOR_ADDED)
			list[n++] = place_of(w->f, &w->m->tensors[i]);
	if (r == 0)
		qsort(list, n, sizeof(*list), added_cmp);
	for (size_t i = 0, k; r == 0 && i < n; i += k) {
		struct extmap *with = splice(w, w->f->maps[list[i].map].end, 0);
		uint64_t count = 0;

		for (k = 0; i + k < n && list[i + k].map == list[i].map; k++)
			group[k] = list[i + k].named;
		r = with ? put_entries(w->p, with, group, k, &count, 0, e) : no_memory(e);
		w->more[list[i].map] += (int64_t)count;
	}
	free(list);
	free(group);
	return r;
}

static int put_spliced(struct writer *w, struct extmap *out, struct error *e)
{
	uint64_t at = 0;

	qsort(w->splices, w->count, sizeof(*w->splices), splice_cmp);
	for (size_t i = 0; i < w->count; i++) {
		const struct splice *s = &w->splices[i];

		extmap_append_source(out, w->f->src, at, s->offset - at);
		extmap_append_kept(out, &s->with);
		at = s->offset + s->size;
	}
	extmap_append_source(out, w->f->src, at, source_size(w->f->src) - at);
	return extmap_failed(out, e);
}

static int rewrite(struct writer *w, struct error *e)
{
	const struct tensor **now = calloc(w->base->tensor_count ? w->base->tensor_count : 1, sizeof(const struct tensor *));
	struct extmap *out;
	int r = 0;

	w->more = calloc(w->f->map_count, sizeof(*w->more));
	if (!now || !w->more)
		r = no_memory(e);
	for (uint32_t i = 0; r == 0 && i < w->m->tensor_count; i++) {
		const struct tensor *t = &w->m->tensors[i];

		if (w->m == w->base)
			now[i] = t;
		else if (t->base != MODEL_NONE)
			now[t->base] = t;
	}
	if (r == 0)
		r = add_entries(w, e);
	for (uint32_t i = 0; r == 0 && i < w->base->tensor_count; i++)
		r = change_entry(w, &w->base->tensors[i], now[i], e);
	for (uint32_t i = 0; r == 0 && i < w->f->map_count; i++) {
		const struct flax_map *map = &w->f->maps[i];
		struct extmap *with = w->more[i] ? splice(w, map->header, map->header_size) : NULL;

		if (w->more[i] && !with)
			r = no_memory(e);
		if (with)
			put_map(with, (uint64_t)((int64_t)map->count + w->more[i]));
	}
	out = r == 0 ? plan_file(w->p, "") : NULL;
	if (r == 0)
		r = out ? put_spliced(w, out, e) : no_memory(e);
	if (r == 0 && w->p->in_place && w->count == 0)
		w->p->files[w->p->count - 1].unchanged = true;
	free(now);
	return r;
}

int flax_plan(const struct model *m, struct plan *p, struct error *e)
{
	struct writer w = {.m = m, .base = m->base ? m->base : m, .p = p};
	int r;

	if (m->format != &format_flax)
		return create(m, p, e);
	w.f = w.base->priv;
	r = rewrite(&w, e);
	for (size_t i = 0; i < w.count; i++)
		extmap_release(&w.splices[i].with);
	free(w.splices);
	free(w.more);
	return r;
}

/* ---- which edits are possible ---- */

/* No tensor and no other leaf stands where one of the name's folders would be, and none below the name. */
static int check_free(const struct model *m, struct str name, struct error *e)
{
	const struct value *values = m->meta.values;

	if (!name.len || !str_is_utf8(name))
		return error_set(e, EINVAL, "Flax MessagePack cannot name a tensor '%.*s'", STR_ARG(name));
	for (uint32_t i = 0; i < m->tensor_count; i++) {
		struct str other = m->tensors[i].name;
		struct str a = other.len < name.len ? other : name, b = other.len < name.len ? name : other;

		if (a.len < b.len && str_starts(b, a) && b.ptr[a.len] == '/')
			return error_set(e, EEXIST, "'%.*s' and '%.*s' cannot both be there", STR_ARG(a), STR_ARG(b));
	}
	for (size_t i = 0; values && i < values->map.count; i++) {
		struct str other = values->map.members[i].key;

		if (str_eq(other, name) || (str_starts(name, other) && name.ptr[other.len] == '/'))
			return error_set(e, EEXIST, "there is a value '%.*s' already", STR_ARG(other));
	}
	return 0;
}

static int check_place(const struct tensor *t, const char *what, struct error *e)
{
	const struct flax_place *place = t->priv;

	if (!(t->flags & TENSOR_ADDED) && place->map == MODEL_NONE)
		return error_set(e, EOPNOTSUPP, "'%.*s' is an item of a list, which cannot be %s", STR_ARG(t->name), what);
	return 0;
}

static bool same_values(const struct value *a, const struct value *b)
{
	bool no_a = !a || !a->map.count, no_b = !b || !b->map.count;

	return no_a || no_b ? no_a == no_b : value_equal(a, b);
}

int flax_check_edit(const struct model *m, const struct edit *x, struct error *e)
{
	const struct tensor *t = NULL;
	int r = 0;

	if (x->kind == EDIT_TENSOR || x->kind == EDIT_RENAME || x->kind == EDIT_REMOVE)
		t = &m->tensors[model_tensor_by_id(m, x->id)];
	switch (x->kind) {
	case EDIT_TENSOR:
		if (!(t->flags & TENSOR_ADDED) && !((const struct flax_place *)t->priv)->ext)
			return error_set(e, EOPNOTSUPP, "'%.*s' is a %s, no array", STR_ARG(t->name), t->stored_type);
		if (x->rank > 0 && !(t->flags & TENSOR_ADDED) && ((const struct flax_place *)t->priv)->ext == FLAX_SCALAR)
			return error_set(e, EINVAL, "'%.*s' is a scalar, expected rank 0", STR_ARG(t->name));
		return 0;
	case EDIT_ADD:
		return check_free(m, x->name, e);
	case EDIT_RENAME:
		r = check_place(t, "renamed", e);
		if (r == 0 && !str_eq(parent_of(t->name), parent_of(x->name)))
			r = error_set(e, EOPNOTSUPP, "'%.*s' stays in its map: only the part behind the last '/' can change",
				STR_ARG(t->name));
		return r < 0 ? r : check_free(m, x->name, e);
	case EDIT_REMOVE:
		return check_place(t, "removed", e);
	case EDIT_METADATA:
		if (!same_values(m->meta.values, x->meta.values))
			return error_set(e, EOPNOTSUPP, "'values' of Flax MessagePack cannot be changed yet");
		if (x->meta.properties && x->meta.properties->map.count)
			return error_set(e, EINVAL, "Flax MessagePack has no place for 'properties'");
		return 0;
	case EDIT_FILE:
		break;
	}
	return 0;
}
