/* SPDX-License-Identifier: MIT */
/*
 * metadata.json: the same keys for every format. format, inputs and outputs are facts and cannot be changed;
 * model, preprocessing, properties and values can, where the format has a place.
 */
#include "views/graph_ports.h"
#include "views/metadata.h"
#include "views/tree.h"

#include "parsers/container/json.h"
#include "parsers/core/limits.h"
#include "parsers/core/metadata.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void format_json(const struct model *m, struct json *j)
{
	json_open(j, '{');
	json_key(j, STR("name"));
	json_text(j, str_from(m->format->name));
	json_key(j, STR("version"));
	json_text(j, m->format_version);
	json_key(j, STR("tensors"));
	json_uint(j, m->tensor_count);
	json_key(j, STR("parameters"));
	json_uint(j, model_parameter_count(m));
	json_members(j, m->format_info);
	json_close(j, '}');
}

static void model_json(const struct value *model, struct json *j)
{
	json_open(j, '{');
	for (size_t i = 0; i < metadata_key_count; i++) {
		const struct value *v = value_get(model, metadata_keys[i].name);

		if (!v)
			continue;
		json_key(j, str_from(metadata_keys[i].name));
		json_value(j, v);
	}
	json_close(j, '}');
}

static void section_json(const struct large_list *l, const char *key, const struct value *map, struct json *j)
{
	json_key(j, str_from(key));
	json_open(j, '{');
	large_members(l, map, j);
	json_close(j, '}');
}

static void metadata_json(const struct view_context *cx, struct json *j)
{
	const struct large_list *l = tree_large(cx->tree);
	const struct model *m = cx->model;
	const struct graph *g = m->graph_count ? &m->graphs[0] : NULL;

	json_open(j, '{');
	json_key(j, STR("format"));
	format_json(m, j);
	json_key(j, STR("model"));
	model_json(m->meta.model, j);
	json_key(j, STR("inputs"));
	json_ports(j, g ? g->inputs : NULL, g ? g->input_count : 0);
	json_key(j, STR("outputs"));
	json_ports(j, g ? g->outputs : NULL, g ? g->output_count : 0);
	section_json(l, "preprocessing", m->meta.preprocessing, j);
	section_json(l, "properties", m->meta.properties, j);
	section_json(l, "values", m->meta.values, j);
	json_close(j, '}');
	json_end(j);
}

static int metadata_render(const struct view_context *cx, const struct subject *s,
	struct extmap *out, struct error *e)
{
	struct json j = {0};

	(void)s;
	metadata_json(cx, &j);
	return view_text(out, &j, e);
}

/* ---- what a user wrote ---- */

static int parse_text(struct arena *a, const char *text, size_t len, struct value **out,
	struct error *e)
{
	int r = json_parse(a, text, len, out, e);

	if (!r && (*out)->kind != VALUE_MAP)
		r = error_set(e, EINVAL, "metadata.json is not an object");
	return r;
}

static int parse_content(struct arena *a, const struct extmap *content, struct value **out,
	struct error *e)
{
	char *text;
	int r;

	if (content->size > LIMIT_METADATA)
		return error_set(e, EINVAL, "metadata.json has %" PRIu64 " bytes, at most %u",
			content->size, LIMIT_METADATA);
	text = arena_alloc(a, (size_t)content->size);
	if (!text)
		return error_set(e, ENOMEM, "out of memory for metadata.json");
	r = extmap_read(content, 0, text, (size_t)content->size, e);
	return r ? r : parse_text(a, text, (size_t)content->size, out, e);
}

/* What the file said before, read back, so that numbers compare as they were printed. */
static int parse_present(struct arena *a, const struct view_context *cx, struct value **out, struct error *e)
{
	struct json j = {0};
	struct str copy;
	size_t len;
	char *text;

	metadata_json(cx, &j);
	text = json_take(&j, &len);
	copy = text ? arena_str(a, text, len) : (struct str){0};
	free(text);
	if (!copy.ptr)
		return error_set(e, ENOMEM, "out of memory for metadata.json");
	return parse_text(a, copy.ptr, len, out, e);
}

/* Numbers keep the type they had where JSON cannot tell it. */
static void keep_number(const struct value *old, struct value *now)
{
	if (old->kind == VALUE_FLOAT32 && now->kind == VALUE_FLOAT) {
		now->kind = VALUE_FLOAT32;
		now->real = (double)(float)now->real;
	} else if (old->tag && now->kind == VALUE_INT &&
		   (old->kind == VALUE_FLOAT || old->kind == VALUE_FLOAT32)) {
		now->kind = old->kind;
		now->real = (double)now->integer;
	}
	if (now->kind == old->kind ||
		(now->kind == VALUE_INT && old->kind == VALUE_BIGINT) ||
		(now->kind == VALUE_BIGINT && old->kind == VALUE_INT))
		now->tag = old->tag;
}

static int by_key(const void *a, const void *b)
{
	const struct member *const *x = a, *const *y = b;

	return str_cmp((*x)->key, (*y)->key);
}

/* The members of a map in order of keys, so that two maps of any size are compared in one pass. */
static const struct member **sorted(struct arena *a, const struct value *map)
{
	const struct member **out = arena_array(a, map->map.count, sizeof(*out));

	for (size_t i = 0; out && i < map->map.count; i++)
		out[i] = &map->map.members[i];
	if (out && map->map.count)
		qsort(out, map->map.count, sizeof(*out), by_key);
	return out;
}

static bool keep_in_map(struct arena *a, const struct value *old, const struct value *now)
{
	const struct member **was = sorted(a, old), **is = sorted(a, now);
	bool ok = was && is;

	for (size_t i = 0, k = 0; ok && i < old->map.count && k < now->map.count;) {
		int c = str_cmp(was[i]->key, is[k]->key);

		if (c == 0)
			ok = metadata_keep_types(a, was[i]->value, is[k]->value);
		i += c <= 0;
		k += c >= 0;
	}
	return ok;
}

bool metadata_keep_types(struct arena *a, const struct value *old, struct value *now)
{
	bool ok = true;

	if (!old || !now)
		return true;
	keep_number(old, now);
	if (old->kind != now->kind)
		return true;
	if (now->kind == VALUE_MAP)
		return keep_in_map(a, old, now);
	if (now->kind != VALUE_LIST && now->kind != VALUE_TUPLE)
		return true;
	for (size_t i = 0; ok && i < now->list.count && old->list.count; i++)
		ok = metadata_keep_types(a, old->list.items[i < old->list.count ? i : old->list.count - 1],
			now->list.items[i]);
	return ok;
}

static int accept_model(struct arena *a, const struct model *m, const struct value *shown,
	const struct value *written, struct metadata *out, struct error *e)
{
	struct value *map = value_map(a);

	if (written->kind != VALUE_MAP)
		return error_set(e, EINVAL, "metadata key 'model' is not an object");
	for (size_t i = 0; i < written->map.count; i++) {
		const struct member *w = &written->map.members[i];
		const struct metadata_key *k = metadata_key(w->key);
		char prefix[80];

		if (!k)
			return error_set(e, EINVAL, "unknown metadata key 'model.%.*s'",
				STR_ARG(w->key));
		snprintf(prefix, sizeof(prefix), "metadata key 'model.%s'", k->name);
		if (!k->writable && !value_equal(w->value, value_get(shown, k->name)))
			return error_set(e, EINVAL, "%s is read-only", prefix);
		/* what the file held before need not pass: only a change is judged */
		if (k->writable && !value_equal(w->value, value_get(shown, k->name)) &&
			k->check(w->value, e) < 0)
			return error_prefix(e, prefix);
	}
	for (size_t i = 0; i < metadata_key_count; i++) {
		const struct metadata_key *k = &metadata_keys[i];
		struct value *v = value_get(k->writable ? written : m->meta.model, k->name);

		if (v && value_set(a, map, str_from(k->name), v) < 0)
			return error_set(e, ENOMEM, "out of memory for metadata.json");
	}
	out->model = map;
	return 0;
}

static int accept_key(const struct member *w, const struct view_context *cx, const struct value *shown,
	struct arena *a, struct metadata *out, struct error *e)
{
	const struct model *m = cx->model;
	static const char *const facts[] = {"format", "inputs", "outputs"};
	const struct {
		const char *key;
		const struct value *old;
		struct value **now;
	} sections[] = {
		{"preprocessing", m->meta.preprocessing, &out->preprocessing},
		{"properties", m->meta.properties, &out->properties},
		{"values", m->meta.values, &out->values},
	};

	for (size_t i = 0; i < sizeof(facts) / sizeof(*facts); i++) {
		if (!str_is(w->key, facts[i]))
			continue;
		if (value_equal(w->value, value_get(shown, facts[i])))
			return 0;
		return error_set(e, EINVAL, "metadata key '%s' is read-only", facts[i]);
	}
	if (str_is(w->key, "model"))
		return accept_model(a, m, value_get(shown, "model"), w->value, out, e);
	for (size_t i = 0; i < sizeof(sections) / sizeof(*sections); i++) {
		if (!str_is(w->key, sections[i].key))
			continue;
		if (w->value->kind != VALUE_MAP)
			return error_set(e, EINVAL, "metadata key '%s' is not an object",
				sections[i].key);
		if (large_resolve(a, tree_large(cx->tree), w->value, e) < 0)
			return error_prefix(e, sections[i].key);
		if (!metadata_keep_types(a, sections[i].old, w->value))
			return error_set(e, ENOMEM, "out of memory for metadata.json");
		*sections[i].now = w->value;
		return 0;
	}
	return error_set(e, EINVAL, "unknown metadata key '%.*s'", STR_ARG(w->key));
}

static int metadata_accept(const struct view_context *cx, const struct subject *s,
	struct extmap *content, struct arena *a, struct edit *out, struct error *e)
{
	struct value *shown, *written;
	int r = parse_content(a, content, &written, e);

	(void)s;
	if (r < 0)
		return r;
	r = parse_present(a, cx, &shown, e);
	out->kind = EDIT_METADATA;
	/* a section that was left out is emptied; facts that were left out stay facts */
	out->meta = (struct metadata){0};
	if (!r && !value_get(written, "model"))
		r = accept_model(a, cx->model, value_get(shown, "model"), value_map(a), &out->meta, e);
	for (size_t i = 0; !r && i < written->map.count; i++)
		r = accept_key(&written->map.members[i], cx, shown, a, &out->meta, e);
	return r;
}

const struct view view_metadata = {
	.name = "metadata.json",
	.subject = SUBJECT_MODEL,
	.path = "metadata.json",
	.render = metadata_render,
	.accept = metadata_accept,
};
