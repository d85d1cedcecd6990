/* SPDX-License-Identifier: MIT */
/*
 * Edited and new HDF5 files. Values of the same shape and type go over the old ones where those lie in one piece, so the rest of the
 * file stays byte for byte; everything else is steps for libhdf5 (container/hdf5_change.h).
 *
 * KERAS_LEGACY: a weight's name stands in its group's weight_names too, and moves with it. KERAS_VARS: variables have numbers
 * and Keras expects exactly those that a layer has, so none is renamed or added.
 */
#include "parsers/keras.h"

#include "parsers/codec/convert.h"
#include "parsers/container/hdf5_change.h"
#include "parsers/container/json.h"
#include "parsers/core/edit.h"
#include "parsers/core/limits.h"
#include "parsers/core/plan.h"

#include <errno.h>
#include <stdlib.h>

#define PREFIX "wiamodel."
/* data that the library packs into chunks pass through memory; larger ones become contiguous */
#define WRITE_MAX (128u << 20)

struct editor {
	const struct model *m;
	const struct keras *k; /* the base's; NULL for a new file */
	struct plan *p;
	struct arena *a;
	struct hdf5_step *steps;
	size_t step_count, step_cap;
	struct hdf5_patch *patches;
	size_t patch_count, patch_cap;
	const struct tensor **now; /* by object: the tensor that it has become */
	bool *gone;                /* by object: it was a tensor and was removed */
	struct error *e;
};

static int no_memory(struct error *e)
{
	return error_set(e, ENOMEM, "out of memory for a plan");
}

/* Zeroed; NULL when memory is out. */
static struct hdf5_step *step(struct editor *x, enum hdf5_step_kind kind, struct str path)
{
	struct str copy = arena_str(x->a, path.ptr, path.len); /* with a NUL behind it */

	if (x->step_count == x->step_cap) {
		size_t cap = x->step_cap ? x->step_cap * 2 : 32;
		void *grown = reallocarray(x->steps, cap, sizeof(*x->steps));

		if (!grown)
			return NULL;
		x->steps = grown;
		x->step_cap = cap;
	}
	if (!copy.ptr && path.len)
		return NULL;
	x->steps[x->step_count] = (struct hdf5_step){.kind = kind, .path = copy, .data = extent_zero(0)};
	return &x->steps[x->step_count++];
}

static int patch(struct editor *x, uint64_t offset, const struct extent *data)
{
	if (x->patch_count == x->patch_cap) {
		size_t cap = x->patch_cap ? x->patch_cap * 2 : 32;
		void *grown = reallocarray(x->patches, cap, sizeof(*x->patches));

		if (!grown)
			return no_memory(x->e);
		x->patches = grown;
		x->patch_cap = cap;
	}
	x->patches[x->patch_count++] = (struct hdf5_patch){offset, *data};
	return 0;
}

/* ---- names ---- */

/* Components that HDF5 paths cannot have. */
static bool is_path(struct str s)
{
	size_t begin = 0;

	if (!s.len || memchr(s.ptr, '\0', s.len))
		return false;
	for (size_t i = 0; i <= s.len; i++) {
		if (i < s.len && s.ptr[i] != '/')
			continue;
		if (i == begin || (i == begin + 1 && s.ptr[begin] == '.'))
			return false;
		begin = i + 1;
	}
	return true;
}

static const struct hdf5_object *object_of(const struct tensor *t)
{
	return t->priv;
}

/* Where a tensor of the base is found: a link has a path of its own. */
static struct str path_of(const struct tensor *base)
{
	return base->alias_of != MODEL_NONE ? base->name : object_of(base)->path;
}

static bool is_weight(const struct keras *k, const struct tensor *base)
{
	return k->layout == KERAS_LEGACY && base->alias_of == MODEL_NONE && !str_eq(base->name, object_of(base)->path);
}

/* GROUP/NAME:0 with another NAME. */
static struct str new_path(struct editor *x, const struct tensor *base, const struct tensor *t)
{
	struct str path = path_of(base);
	size_t suffix = path.len;

	if (!is_weight(x->k, base))
		return t->name;
	while (suffix > 0 && path.ptr[suffix - 1] != ':' && path.ptr[suffix - 1] != '/')
		suffix--;
	if (suffix > 0 && path.ptr[suffix - 1] == ':' && path.len - (suffix - 1) + base->name.len <= path.len)
		suffix--;
	else
		suffix = path.len;
	return arena_printf(x->a, "%.*s%.*s%.*s", (int)(suffix - base->name.len), path.ptr, (int)t->name.len, t->name.ptr,
		(int)(path.len - suffix), path.ptr + suffix);
}

/* ---- tensors ---- */

static bool can_write(const struct hdf5_object *o)
{
	return o->layout == HDF5_CHUNKED || o->layout == HDF5_INLINE || o->layout == HDF5_CONTIGUOUS;
}

/* Filters that libhdf5 applies without loss. */
static bool can_pack(const struct hdf5_object *o)
{
	for (uint32_t i = 0; i < o->filter_count; i++)
		if (o->filters[i].id != HDF5_DEFLATE && o->filters[i].id != HDF5_SHUFFLE &&
			o->filters[i].id != HDF5_FLETCHER32)
			return false;
	return true;
}

static bool same_form(const struct tensor *a, const struct tensor *b)
{
	return a->dtype == b->dtype && a->rank == b->rank &&
	       (a->flags & TENSOR_BIG_ENDIAN) == (b->flags & TENSOR_BIG_ENDIAN) &&
	       (!a->rank || memcmp(a->shape, b->shape, a->rank * sizeof(*a->shape)) == 0);
}

static int write_through(struct editor *x, struct str path, const struct tensor *t, bool unpacked)
{
	struct hdf5_step *s = step(x, HDF5_WRITE, path);
	void *bytes = arena_alloc(x->a, (size_t)t->data.size);

	if (!s || !bytes)
		return no_memory(x->e);
	s->bytes = bytes;
	s->size = t->data.size;
	s->unpacked = unpacked;
	return extent_read(&t->data, 0, bytes, (size_t)t->data.size, x->e);
}

static int make(struct editor *x, struct str path, const struct tensor *t, enum dtype d, const struct extent *data, bool old)
{
	struct hdf5_step *s;

	if (t->rank > HDF5_RANK)
		return error_set(x->e, EINVAL, "tensor '%.*s' has rank %u, HDF5 has at most %d", STR_ARG(t->name), t->rank,
			HDF5_RANK);
	s = step(x, HDF5_MAKE, path);
	if (!s)
		return no_memory(x->e);
	s->old = old;
	s->dtype = d;
	s->big_endian = t->flags & TENSOR_BIG_ENDIAN;
	s->rank = t->rank;
	s->dims = t->shape;
	s->strings = t->strings;
	s->data = *data;
	return 0;
}

static int edit_values(struct editor *x, const struct tensor *base, const struct tensor *t)
{
	const struct hdf5_object *o = object_of(base);
	bool same = same_form(base, t) && t->dtype != DTYPE_STRING;
	uint64_t at = hdf5_place(o);

	if (same && (at != UINT64_MAX || !t->data.size))
		return t->data.size ? patch(x, at, &t->data) : 0;
	if (same && can_write(o) && t->data.size <= WRITE_MAX)
		return write_through(x, path_of(base), t, !can_pack(o));
	return make(x, path_of(base), t, t->dtype, &t->data, true);
}

/* What is removed goes first, so that its names are free. */
static int drop_tensors(struct editor *x, const bool *kept)
{
	const struct model *base = x->m->base;

	for (uint32_t i = 0; i < base->tensor_count; i++) {
		if (kept[i])
			continue;
		if (base->tensors[i].alias_of == MODEL_NONE)
			x->gone[object_of(&base->tensors[i]) - x->k->file.objects] = true;
		if (!step(x, HDF5_DROP, path_of(&base->tensors[i])))
			return no_memory(x->e);
	}
	return 0;
}

static int change_tensors(struct editor *x)
{
	const struct model *base = x->m->base;
	int r = 0;

	for (uint32_t i = 0; !r && i < x->m->tensor_count; i++) {
		const struct tensor *t = &x->m->tensors[i];
		const struct tensor *b = t->base == MODEL_NONE ? NULL : &base->tensors[t->base];
		/* a link shares what is written to the first */
		bool shared = t->alias_of != MODEL_NONE && x->m->tensors[t->alias_of].flags & TENSOR_EDITED;

		if (b && t->flags & TENSOR_EDITED && !shared)
			r = edit_values(x, b, t);
	}
	return r;
}

static int move(struct editor *x, struct str from, struct str to)
{
	struct hdf5_step *s = step(x, HDF5_MOVE, from);

	if (s)
		s->to = arena_str(x->a, to.ptr, to.len);
	return s && s->to.ptr ? 0 : no_memory(x->e);
}

/* By way of names that nobody has: a and b may change places, and a become a/b. */
static int rename_tensors(struct editor *x)
{
	const struct model *base = x->m->base;
	int r = 0;

	for (int phase = 0; phase < 2; phase++)
		for (uint32_t i = 0; !r && i < x->m->tensor_count; i++) {
			const struct tensor *t = &x->m->tensors[i];
			struct str middle = arena_printf(x->a, PREFIX "moved.%u", i);

			if (t->base == MODEL_NONE || !(t->flags & TENSOR_RENAMED) ||
				str_eq(t->name, base->tensors[t->base].name))
				continue;
			if (!middle.ptr)
				return no_memory(x->e);
			r = phase ? move(x, middle, new_path(x, &base->tensors[t->base], t))
				  : move(x, path_of(&base->tensors[t->base]), middle);
		}
	return r;
}

static int add_tensors(struct editor *x)
{
	int r = 0;

	for (uint32_t i = 0; !r && i < x->m->tensor_count; i++) {
		const struct tensor *t = &x->m->tensors[i];

		if (t->base == MODEL_NONE)
			r = make(x, t->name, t, t->dtype, &t->data, false);
	}
	return r;
}

/* ---- attributes ---- */

static int set_attr(struct editor *x, struct str path, struct str name, const struct value *v)
{
	struct hdf5_step *s = step(x, HDF5_SET_ATTR, path);

	if (!s)
		return no_memory(x->e);
	s->to = arena_str(x->a, name.ptr, name.len);
	s->value = value_copy(x->a, v); /* strings get a NUL behind them */
	return s->to.ptr && s->value ? 0 : no_memory(x->e);
}

static struct str in_group(struct editor *x, struct str group, struct str name)
{
	return arena_printf(x->a, "%.*s%s%.*s", (int)group.len, group.ptr, group.len ? "/" : "", (int)name.len, name.ptr);
}

/* The list of a group whose weights were renamed or removed. */
static int update_names(struct editor *x, const struct hdf5_object *group, const struct hdf5_attr *names)
{
	struct value *list = value_list(x->a);
	bool changed = false;

	for (size_t i = 0; i < names->value->list.count; i++) {
		struct value *v = names->value->list.items[i];
		struct str path = v->kind == VALUE_STRING ? in_group(x, group->path, v->str) : STR("");
		uint32_t at = path.len ? keras_find(x->k, path) : MODEL_NONE;
		const struct tensor *t = at == MODEL_NONE ? NULL : x->now[at];

		if (at != MODEL_NONE && x->gone[at]) {
			changed = true;
			continue;
		}
		if (t && t->flags & TENSOR_RENAMED) {
			path = new_path(x, &x->m->base->tensors[t->base], t);
			changed = true;
			if (path.len <= group->path.len + 1 || !str_starts(path, group->path))
				continue; /* it has left the group */
			v = value_str(x->a, (struct str){path.ptr + group->path.len + (group->path.len ? 1 : 0),
				path.len - group->path.len - (group->path.len ? 1 : 0)});
		}
		if (value_append(x->a, list, v) < 0)
			return no_memory(x->e);
	}
	return changed ? set_attr(x, group->path, names->name, list) : 0;
}

static int update_lists(struct editor *x)
{
	int r = 0;

	for (size_t i = 0; !r && i < x->k->file.count; i++) {
		const struct hdf5_object *o = &x->k->file.objects[i];

		for (uint32_t k = 0; !r && o->kind == HDF5_GROUP && k < o->attr_count; k++) {
			const struct hdf5_attr *names = &o->attrs[k];

			/* or parts of it, weight_names0, weight_names1, ... */
			if (str_starts(names->name, STR("weight_names")) && names->value && names->value->kind == VALUE_LIST)
				r = update_names(x, o, names);
		}
	}
	return r;
}

bool keras_is_implied(const struct keras *k, struct arena *a, const struct member *property)
{
	struct str prefix = STR(PREFIX), key = property->key;
	struct value *v;

	if (!k || !str_starts(key, prefix))
		return false;
	key = (struct str){key.ptr + prefix.len, key.len - prefix.len};
	if (str_is(key, "preprocessing"))
		return k->implied_preprocessing && property->value->kind == VALUE_STRING &&
		       json_parse(a, property->value->str.ptr, property->value->str.len, &v, NULL) == 0 &&
		       value_equal(v, k->implied_preprocessing);
	for (size_t i = 0; k->implied && i < k->implied->map.count; i++)
		if (str_eq(k->implied->map.members[i].key, key))
			return value_equal(k->implied->map.members[i].value, property->value);
	return false;
}

static int set_properties(struct editor *x)
{
	const struct value *now = x->m->meta.properties;
	const struct hdf5_object *root = x->k ? &x->k->file.objects[0] : NULL;
	int r = 0;

	for (size_t i = 0; !r && now && i < now->map.count; i++) {
		const struct member *p = &now->map.members[i];
		struct str name = arena_str(x->a, p->key.ptr, p->key.len);
		const struct hdf5_attr *old = root && name.ptr ? hdf5_attr(root, name.ptr) : NULL;

		if (!name.ptr)
			return no_memory(x->e);
		if (!(old && old->value && value_equal(old->value, p->value)) && !keras_is_implied(x->k, x->a, p))
			r = set_attr(x, STR(""), p->key, p->value);
	}
	for (uint32_t i = 0; !r && root && i < root->attr_count; i++) {
		const struct hdf5_attr *old = &root->attrs[i];
		struct str name = arena_str(x->a, old->name.ptr, old->name.len);
		struct hdf5_step *s;

		if (!old->value || str_starts(old->name, STR("layer_names")) || !name.ptr || value_get(now, name.ptr))
			continue;
		s = step(x, HDF5_DROP_ATTR, STR(""));
		if (!s)
			return no_memory(x->e);
		s->to = name;
	}
	return r;
}

/* ---- an edited file ---- */

static bool *find_kept(struct editor *x)
{
	const struct model *base = x->m->base;
	bool *kept = arena_array(x->a, (size_t)base->tensor_count + 1, sizeof(*kept));

	x->now = arena_array(x->a, x->k->file.count + 1, sizeof(*x->now));
	x->gone = arena_array(x->a, x->k->file.count + 1, sizeof(*x->gone));
	if (!kept || !x->now || !x->gone)
		return NULL;
	for (uint32_t i = 0; i < x->m->tensor_count; i++) {
		const struct tensor *t = &x->m->tensors[i];

		if (t->base == MODEL_NONE)
			continue;
		kept[t->base] = true;
		if (base->tensors[t->base].alias_of == MODEL_NONE)
			x->now[object_of(&base->tensors[t->base]) - x->k->file.objects] = t;
	}
	return kept;
}

static void release(struct editor *x)
{
	free(x->steps);
	free(x->patches);
}

int keras_plan_weights(const struct model *m, const struct extent *content, struct plan *p, bool properties, struct extmap *out, bool *same,
	struct error *e)
{
	struct editor x = {.m = m, .k = m->base->priv, .p = p, .a = p->arena, .e = e};
	bool *kept = find_kept(&x);
	int r = kept ? drop_tensors(&x, kept) : no_memory(e);

	if (!r)
		r = change_tensors(&x);
	if (!r)
		r = rename_tensors(&x);
	if (!r)
		r = add_tensors(&x);
	if (!r)
		r = update_lists(&x);
	if (!r && properties && m->meta_edited)
		r = set_properties(&x);
	*same = !x.step_count && !x.patch_count;
	if (!r)
		r = hdf5_change(content, x.k->parts[0].src, x.steps, x.step_count, x.patches, x.patch_count, out, e);
	release(&x);
	return r;
}

/* ---- a new file ---- */

struct owned {
	struct extent *list;
	size_t count;
};

/* By value, as a type that HDF5 has. 1 = left out. The reference in owned. */
static int widen(struct editor *x, const struct tensor *t, struct owned *own, enum dtype *d)
{
	struct codec *c;
	int r;

	if (t->real && x->p->real) {
		r = t->real(t, &own->list[own->count], x->e);
		own->count += r == 0;
		*d = DTYPE_FLOAT32;
		return r;
	}
	if (t->dtype == DTYPE_NONE)
		return plan_loss(x->p, "tensor '%.*s': dtype %s has no place in HDF5", STR_ARG(t->name),
			       t->stored_type ? t->stored_type : "unknown") < 0
			       ? no_memory(x->e)
			       : 1;
	*d = t->dtype == DTYPE_FLOAT128 ? DTYPE_NONE : dtype_info(t->dtype)->npy;
	if (*d == DTYPE_NONE)
		return plan_loss(x->p, "tensor '%.*s': dtype float128 has no place in HDF5", STR_ARG(t->name)) < 0
			       ? no_memory(x->e)
			       : 1;
	c = codec_decode(&t->data, t->dtype, t->flags & TENSOR_BIG_ENDIAN, t->count);
	if (!c || plan_loss(x->p, "dtype of '%.*s': %s becomes %s", STR_ARG(t->name), dtype_info(t->dtype)->name,
			  dtype_info(*d)->name) < 0)
		return no_memory(x->e);
	own->list[own->count++] = extent_codec(c);
	return 0;
}

static int create_tensor(struct editor *x, const struct tensor *t, struct str path, struct owned *own)
{
	struct extent data = t->data;
	enum dtype d = t->dtype;
	int r = 0;

	if (t->problem.len)
		return error_set(x->e, EIO, "tensor '%.*s' is damaged: %.*s", STR_ARG(t->name), STR_ARG(t->problem));
	if (!is_path(path))
		return error_set(x->e, EINVAL, "HDF5 cannot name a tensor '%.*s'", STR_ARG(path));
	if (!hdf5_holds(d) || (t->real && x->p->real)) {
		r = widen(x, t, own, &d);
		if (r)
			return r < 0 ? r : 0;
		data = own->list[own->count - 1];
	}
	return make(x, path, t, d, &data, false);
}

static int create_groups(struct editor *x, const struct keras_plan *places)
{
	int r = 0;

	for (size_t i = 0; !r && i < places->group_count; i++) {
		const struct keras_group *g = &places->groups[i];

		if (g->path.len && !step(x, HDF5_MAKE_GROUP, g->path))
			return no_memory(x->e);
		if (g->attr.len)
			r = set_attr(x, g->path, g->attr, g->value);
	}
	return r;
}

static int create_properties(struct editor *x, const struct value *properties)
{
	int r = 0;

	for (size_t i = 0; !r && properties && i < properties->map.count; i++) {
		const struct member *prop = &properties->map.members[i];

		if (hdf5_attr_holds(prop->value) && !memchr(prop->key.ptr, '\0', prop->key.len) && prop->key.len)
			r = set_attr(x, STR(""), prop->key, prop->value);
		else if (plan_loss(x->p, "property '%.*s' has no place in HDF5", STR_ARG(prop->key)) < 0)
			r = no_memory(x->e);
	}
	return r;
}

int keras_create_weights(const struct model *m, const struct keras_plan *places, bool properties, struct plan *p,
	struct extmap *out, struct error *e)
{
	struct editor x = {.m = m, .p = p, .a = p->arena, .e = e};
	struct owned own = {arena_array(p->arena, (size_t)m->tensor_count + 1, sizeof(*own.list)), 0};
	int r = own.list ? 0 : no_memory(e);

	for (size_t i = 0; !r && places && i < places->place_count; i++)
		r = create_tensor(&x, places->places[i].t, places->places[i].path, &own);
	for (uint32_t i = 0; !r && !places && i < m->tensor_count; i++)
		r = create_tensor(&x, &m->tensors[i], m->tensors[i].name, &own);
	/* properties first: what the groups say of the root counts */
	if (!r && properties)
		r = create_properties(&x, m->meta.properties);
	if (!r && places)
		r = create_groups(&x, places);
	if (!r)
		r = hdf5_change(NULL, NULL, x.steps, x.step_count, NULL, 0, out, e);
	for (size_t i = 0; i < own.count; i++)
		extent_unref(&own.list[i]);
	release(&x);
	return r;
}

/* ---- what is refused ---- */

static int check_strings(const struct edit *x, struct error *e)
{
	uint64_t count;

	if (x->rank > HDF5_RANK)
		return error_set(e, EINVAL, "HDF5 has at most %d dimensions", HDF5_RANK);
	if (x->dtype != DTYPE_STRING || shape_count(x->shape, x->rank, &count) < 0)
		return 0;
	for (uint64_t i = 0; i < count; i++)
		if (x->strings[i].len && memchr(x->strings[i].ptr, '\0', x->strings[i].len))
			return error_set(e, EINVAL, "HDF5 holds no strings with a zero byte inside");
	return 0;
}

static int check_name(struct keras *k, struct str name, struct error *e)
{
	if (!is_path(name) || str_starts(name, STR(PREFIX)))
		return error_set(e, EINVAL, "HDF5 cannot name a tensor '%.*s'", STR_ARG(name));
	if (k->layout == KERAS_VARS && !str_eq(keras_variable_name(k, name), name))
		return error_set(e, EOPNOTSUPP, "'%.*s' would be a variable of a layer, which Keras does not expect",
			STR_ARG(name));
	return 0;
}

static int check_rename(struct keras *k, const struct model *m, const struct edit *x, struct error *e)
{
	uint32_t at = model_tensor_by_id(m, x->id);
	const struct tensor *t = at == MODEL_NONE ? NULL : &m->tensors[at];
	const struct hdf5_object *o = t && t->base != MODEL_NONE ? object_of(t) : t && !m->base ? object_of(t) : NULL;

	if (k->layout == KERAS_VARS && o && t->alias_of == MODEL_NONE && t->stored.len)
		return error_set(e, EOPNOTSUPP, "variables of layers have numbers in this file, not names: '%.*s' is '%.*s'",
			STR_ARG(t->name), STR_ARG(o->path));
	return check_name(k, x->name, e);
}

/* A key that the file implies can be overruled, not taken away. */
static int check_metadata(const struct keras *k, const struct edit *x, struct error *e)
{
	const struct value *p = x->meta.properties;

	if (x->meta.values && x->meta.values->map.count)
		return error_set(e, EINVAL, "this format has no place for 'values'");
	for (size_t i = 0; k->implied && i < k->implied->map.count; i++) {
		struct str key = k->implied->map.members[i].key;

		if (!value_get(x->meta.model, key.ptr))
			return error_set(e, EINVAL, "metadata key 'model.%.*s' follows from the file's content", STR_ARG(key));
	}
	if (k->implied_preprocessing && !(x->meta.preprocessing && x->meta.preprocessing->map.count))
		return error_set(e, EINVAL, "metadata key 'preprocessing' follows from the model's layers");
	for (size_t i = 0; !k->container && p && i < p->map.count; i++) {
		struct str key = p->map.members[i].key;

		if (!hdf5_attr_holds(p->map.members[i].value) || !key.len || memchr(key.ptr, '\0', key.len) ||
			str_starts(key, STR("layer_names")))
			return error_set(e, EINVAL, "metadata key 'properties.%.*s' cannot be an HDF5 attribute",
				STR_ARG(key));
	}
	return 0;
}

int keras_check_edit(const struct model *m, const struct edit *x, struct error *e)
{
	struct keras *k = (m->base ? m->base : m)->priv;

	if (k->part_count > 1)
		return error_set(e, EOPNOTSUPP, "weights in several files cannot be edited, only read and converted");
	switch (x->kind) {
	case EDIT_TENSOR:
		return check_strings(x, e);
	case EDIT_ADD: {
		int r = check_name(k, x->name, e);

		return r ? r : check_strings(x, e);
	}
	case EDIT_RENAME:
		return check_rename(k, m, x, e);
	case EDIT_METADATA:
		return check_metadata(k, x, e);
	default:
		return 0;
	}
}
