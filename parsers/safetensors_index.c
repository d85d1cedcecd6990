/* SPDX-License-Identifier: MIT */
/*
 * A safetensors model in several files: the index says which tensor lies in which file. What index and files do not
 * agree about is shown and reported as a warning: tensors that are not listed, that are listed and missing,
 * or that lie in two files.
 */
#include "parsers/safetensors.h"

#include "parsers/container/json.h"
#include "parsers/core/limits.h"

#include <errno.h>
#include <stdlib.h>

bool safetensors_is_index(struct str name)
{
	/* model.safetensors.index.json, model.safetensors.index.fp16.json */
	return str_ends(name, STR(".json")) &&
	       memmem(name.ptr, name.len, ".safetensors.index.", 19) != NULL;
}

bool safetensors_in_directory(const struct input *in, char *name, size_t cap)
{
	struct arena *a = arena_new(64u << 20);
	struct str *names, index = {NULL, 0}, model = {NULL, 0};
	size_t count, models = 0;

	if (!a || input_list(in, STR(""), a, &names, &count, NULL) < 0)
		count = 0;
	for (size_t i = 0; i < count; i++) {
		if (str_is(names[i], "model" SAFETENSORS_INDEX) ||
			(!index.ptr && safetensors_is_index(names[i])))
			index = names[i];
		if (str_ends(names[i], STR(".safetensors"))) {
			model = names[i];
			models++;
		}
	}
	if (!index.ptr && models == 1)
		index = model;
	if (index.len >= cap)
		index.ptr = NULL;
	if (index.ptr) {
		memcpy(name, index.ptr, index.len);
		name[index.len] = '\0';
	}
	arena_free(a);
	return index.ptr != NULL;
}

/* ---- the map ---- */

struct weight {
	struct str name;
	uint32_t shard;
};

struct weight_map {
	struct weight *weights; /* sorted by name */
	size_t count;
	uint32_t shards;
};

static int by_name(const void *x, const void *y)
{
	return str_cmp(((const struct weight *)x)->name, ((const struct weight *)y)->name);
}

uint32_t weight_map_find(const struct weight_map *w, struct str name)
{
	const struct weight key = {name, 0}, *found;

	found = w->count ? bsearch(&key, w->weights, w->count, sizeof(key), by_name) : NULL;
	return found ? found->shard : w->shards;
}

static int by_str(const void *x, const void *y)
{
	return str_cmp(*(const struct str *)x, *(const struct str *)y);
}

static int check_entry(const struct member *entry, struct error *e)
{
	struct str file = entry->value->kind == VALUE_STRING ? entry->value->str : STR("");

	if (!file.len || memchr(file.ptr, '/', file.len) || memchr(file.ptr, '\0', file.len) ||
		str_is(file, ".") || str_is(file, ".."))
		return error_set(e, EIO, "index: file of '%.*s' is not the name of a file beside it",
			STR_ARG(entry->key));
	return 0;
}

/* The file names, each once, in byte order. */
static int collect_shards(struct model *m, struct safetensors *s, const struct value *map,
	struct error *e)
{
	struct str *names = arena_array(m->arena, map->map.count, sizeof(*names));
	size_t n = 0;

	if (!names)
		return error_set(e, ENOMEM, "out of memory for the index");
	for (size_t i = 0; i < map->map.count; i++) {
		int r = check_entry(&map->map.members[i], e);

		if (r < 0)
			return r;
		names[i] = map->map.members[i].value->str;
	}
	if (map->map.count)
		qsort(names, map->map.count, sizeof(*names), by_str);
	for (size_t i = 0; i < map->map.count; i++)
		if (!i || !str_eq(names[i], names[i - 1]))
			names[n++] = names[i];
	if (!n)
		return error_set(e, EIO, "index lists no tensor");
	s->shards = arena_array(m->arena, n, sizeof(*s->shards));
	if (!s->shards)
		return error_set(e, ENOMEM, "out of memory for the index");
	for (size_t i = 0; i < n; i++)
		s->shards[i].name = names[i];
	s->count = (uint32_t)n; /* below the bytes of the index */
	return 0;
}

static uint32_t shard_of(const struct safetensors *s, struct str file)
{
	uint32_t low = 0, high = s->count;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (str_cmp(s->shards[mid].name, file) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static int make_map(struct model *m, const struct safetensors *s, const struct value *map,
	struct weight_map *w, struct error *e)
{
	w->weights = arena_array(m->arena, map->map.count, sizeof(*w->weights));
	if (!w->weights)
		return error_set(e, ENOMEM, "out of memory for the index");
	w->count = map->map.count;
	w->shards = s->count;
	for (size_t i = 0; i < w->count; i++)
		w->weights[i] = (struct weight){map->map.members[i].key,
			shard_of(s, map->map.members[i].value->str)};
	if (w->count)
		qsort(w->weights, w->count, sizeof(*w->weights), by_name);
	return 0;
}

static int read_shards(struct input *in, struct model *m, struct safetensors *s,
	struct weight_map *w, struct error *e)
{
	int r = 0;

	for (uint32_t i = 0; !r && i < s->count; i++) {
		struct shard *shard = &s->shards[i];

		r = input_companion(in, shard->name, 0, &shard->src, e);
		if (r < 0)
			return r;
		r = model_add_source(m, shard->src, e); /* which holds it from here on */
		source_unref(shard->src);
		if (!r)
			r = safetensors_read_shard(m, s, i, w, e);
		if (r < 0)
			error_prefix(e, shard->name.ptr);
	}
	return r;
}

/* Listed, but not there. Both sides are sorted, so one pass tells. */
static int report_missing(struct model *m, const struct safetensors *s, const struct weight_map *w,
	struct error *e)
{
	struct str *names = arena_array(m->arena, m->tensor_count, sizeof(*names));
	size_t k = 0;

	if (!names)
		return error_set(e, ENOMEM, "out of memory for the index");
	for (uint32_t i = 0; i < m->tensor_count; i++)
		names[i] = m->tensors[i].name;
	if (m->tensor_count)
		qsort(names, m->tensor_count, sizeof(*names), by_str);
	for (size_t i = 0; i < w->count; i++) {
		while (k < m->tensor_count && str_cmp(names[k], w->weights[i].name) < 0)
			k++;
		if (k == m->tensor_count || !str_eq(names[k], w->weights[i].name))
			model_warn(m, "tensor '%.*s' is in the index, but not in %.*s",
				STR_ARG(w->weights[i].name),
				STR_ARG(s->shards[w->weights[i].shard].name));
	}
	return 0;
}

static int parse_index(struct source *index, struct model *m, struct value **out, struct error *e)
{
	uint64_t size = source_size(index);
	struct error why = {0};
	char *text;
	int r;

	if (size > LIMIT_METADATA)
		return error_set(e, EIO, "index of %llu bytes, at most %u are expected",
			(unsigned long long)size, LIMIT_METADATA);
	text = arena_alloc(m->arena, (size_t)size);
	if (!text)
		return error_set(e, ENOMEM, "out of memory for the index");
	r = source_read(index, 0, text, (size_t)size, e);
	if (r < 0)
		return r;
	r = json_parse_plain(m->arena, text, (size_t)size, out, &why);
	if (r == -ENOMEM)
		return error_set(e, ENOMEM, "out of memory for the index");
	if (r < 0 || (*out)->kind != VALUE_MAP)
		return error_set(e, EIO, "index: %s", r < 0 ? why.text : "not an object");
	return 0;
}

int safetensors_read_index(struct input *in, struct source *index, struct model *m,
	struct safetensors *s, struct error *e)
{
	struct weight_map w = {0};
	struct value *root;
	const struct value *map;
	int r = parse_index(index, m, &root, e);

	if (!r)
		r = model_add_source(m, index, e);
	if (r < 0)
		return r;
	map = value_get(root, "weight_map");
	if (!map || map->kind != VALUE_MAP)
		return error_set(e, EIO, "index: weight_map is missing");
	s->indexed = true;
	s->facts = value_get(root, "metadata");
	if (s->facts && s->facts->kind != VALUE_MAP)
		s->facts = NULL;
	r = collect_shards(m, s, map, e);
	if (!r)
		r = make_map(m, s, map, &w, e);
	if (!r)
		r = read_shards(in, m, s, &w, e);
	return r < 0 ? r : report_missing(m, s, &w, e);
}
