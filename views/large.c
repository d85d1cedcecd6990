/* SPDX-License-Identifier: MIT */
#include "views/large.h"
#include "views/metadata.h"
#include "views/names.h"
#include "views/tree.h"

#include "parsers/container/json.h"
#include "parsers/core/limits.h"

#include <errno.h>
#include <inttypes.h>

static bool is_large(const struct value *v)
{
	return v && (v->kind == VALUE_LIST || v->kind == VALUE_TUPLE) && v->list.count > LARGE_ELEMENTS;
}

static const struct large *item_of(const struct large_list *l, const struct value *v)
{
	if (is_large(v))
		for (uint32_t i = 0; i < l->count; i++)
			if (l->items[i].value == v)
				return &l->items[i];
	return NULL;
}

/* ---- finding ---- */

static bool is_taken(const struct large_list *l, struct str path)
{
	for (uint32_t i = 0; i < l->count; i++)
		if (str_eq(l->items[i].path, path))
			return true;
	return false;
}

static int find_in(struct arena *a, struct str dir, const struct value *map, unsigned depth, struct large_list *out)
{
	int r = 0;

	if (!map || map->kind != VALUE_MAP || depth > LARGE_DEPTH)
		return 0;
	for (size_t i = 0; !r && i < map->map.count && out->count < LARGE_COUNT; i++) {
		const struct member *m = &map->map.members[i];
		bool large = is_large(m->value);
		struct str name, path;

		if (!large && (!m->value || m->value->kind != VALUE_MAP))
			continue;
		name = name_to_component(a, m->key);
		path = name.ptr ? arena_printf(a, "%.*s/%.*s%s", (int)dir.len, dir.ptr, (int)name.len, name.ptr,
				       large ? ".json" : "")
				: name;
		if (!path.ptr)
			return -ENOMEM;
		if (!large)
			r = find_in(a, path, m->value, depth + 1, out);
		else if (!is_taken(out, path)) /* keys that are equal, or as far as a name goes */
			out->items[out->count++] = (struct large){path, m->value};
	}
	return r;
}

int large_find(struct arena *a, const struct metadata *meta, struct large_list *out)
{
	int r;

	out->count = 0;
	r = find_in(a, STR("metadata/preprocessing"), meta->preprocessing, 0, out);
	if (!r)
		r = find_in(a, STR("metadata/properties"), meta->properties, 0, out);
	return r ? r : find_in(a, STR("metadata/values"), meta->values, 0, out);
}

/* ---- in metadata.json ---- */

void large_members(const struct large_list *l, const struct value *map, struct json *j)
{
	for (size_t i = 0; map && map->kind == VALUE_MAP && i < map->map.count; i++) {
		const struct value *v = map->map.members[i].value;
		const struct large *item = item_of(l, v);

		json_key(j, map->map.members[i].key);
		if (item) {
			const struct value file = {.kind = VALUE_STRING, .tag = VALUE_FILE, .str = item->path};

			json_value(j, &file);
		} else if (l->count && v && v->kind == VALUE_MAP && j->depth <= LARGE_DEPTH + 2) {
			json_open(j, '{');
			large_members(l, v, j);
			json_close(j, '}');
		} else {
			json_value(j, v);
		}
	}
}

static int resolve_one(struct arena *a, const struct large_list *l, struct value *v, struct error *e)
{
	for (uint32_t i = 0; i < l->count; i++) {
		struct value *copy;

		if (!str_eq(v->str, l->items[i].path))
			continue;
		copy = value_copy(a, l->items[i].value);
		if (!copy)
			return error_set(e, ENOMEM, "out of memory for metadata.json");
		*v = *copy;
		return 0;
	}
	return error_set(e, EINVAL, "there is no file '%.*s' to take a value from", STR_ARG(v->str));
}

/* Depth is bounded by the JSON parser. */
int large_resolve(struct arena *a, const struct large_list *l, struct value *v, struct error *e)
{
	int r = 0;

	if (v->kind == VALUE_STRING && v->tag == VALUE_FILE)
		return resolve_one(a, l, v, e);
	if (v->kind == VALUE_MAP)
		for (size_t i = 0; !r && i < v->map.count; i++)
			r = large_resolve(a, l, v->map.members[i].value, e);
	if (v->kind == VALUE_LIST || v->kind == VALUE_TUPLE)
		for (size_t i = 0; !r && i < v->list.count; i++)
			r = large_resolve(a, l, v->list.items[i], e);
	return r;
}

/* ---- one of them written ---- */

/* A map with `now` where `was` is, at whatever depth; the map itself when it is not there. */
static struct value *replaced(struct arena *a, struct value *v, const struct value *was, struct value *now, unsigned depth)
{
	struct value *map;

	if (v == was)
		return now;
	if (!v || v->kind != VALUE_MAP || depth > LARGE_DEPTH + 1)
		return v;
	for (size_t i = 0; i < v->map.count; i++) {
		struct value *member = replaced(a, v->map.members[i].value, was, now, depth + 1);

		if (!member)
			return NULL;
		if (member == v->map.members[i].value)
			continue;
		map = value_map(a);
		for (size_t k = 0; map && k < v->map.count; k++)
			if (value_set(a, map, v->map.members[k].key, k == i ? member : v->map.members[k].value) < 0)
				return NULL;
		return map;
	}
	return v;
}

int large_replace(struct arena *a, const struct metadata *meta, const struct large *item, struct value *now,
	struct metadata *out)
{
	*out = *meta;
	out->preprocessing = meta->preprocessing ? replaced(a, meta->preprocessing, item->value, now, 0) : NULL;
	out->properties = meta->properties ? replaced(a, meta->properties, item->value, now, 0) : NULL;
	out->values = meta->values ? replaced(a, meta->values, item->value, now, 0) : NULL;
	return (meta->preprocessing && !out->preprocessing) || (meta->properties && !out->properties) ||
			       (meta->values && !out->values)
		       ? -ENOMEM
		       : 0;
}

/* ---- the view ---- */

static int value_render(const struct view_context *cx, const struct subject *s, struct extmap *out, struct error *e)
{
	struct json j = {0};

	json_value(&j, tree_large(cx->tree)->items[s->index].value);
	json_end(&j);
	return view_text(out, &j, e);
}

static int value_accept(const struct view_context *cx, const struct subject *s, struct extmap *content,
	struct arena *a, struct edit *out, struct error *e)
{
	const struct large *item = &tree_large(cx->tree)->items[s->index];
	struct value *now;
	char *text;
	int r;

	if (content->size > LIMIT_METADATA)
		return error_set(e, EINVAL, "%.*s has %" PRIu64 " bytes, at most %u", STR_ARG(item->path), content->size,
			LIMIT_METADATA);
	text = arena_alloc(a, (size_t)content->size);
	if (!text)
		return error_set(e, ENOMEM, "out of memory for %.*s", STR_ARG(item->path));
	r = extmap_read(content, 0, text, (size_t)content->size, e);
	if (!r)
		r = json_parse(a, text, (size_t)content->size, &now, e);
	if (r < 0)
		return r;
	if (now->kind != item->value->kind)
		return error_set(e, EINVAL, "%.*s is no array as it was", STR_ARG(item->path));
	if (!metadata_keep_types(a, item->value, now) || large_replace(a, &cx->model->meta, item, now, &out->meta) < 0)
		return error_set(e, ENOMEM, "out of memory for %.*s", STR_ARG(item->path));
	out->kind = EDIT_METADATA;
	return 0;
}

const struct view view_large = {
	.name = "metadata",
	.subject = SUBJECT_VALUE,
	.path = "metadata",
	.render = value_render,
	.accept = value_accept,
};
