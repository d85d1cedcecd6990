/* SPDX-License-Identifier: MIT */
/* Weights of Keras 3 in several files, which NAME.weights.json lists by group. */
#include "parsers/keras.h"

#include "parsers/core/input.h"
#include "parsers/core/limits.h"

#include <errno.h>
#include <stdlib.h>

#define FILES_MAX 10000

bool keras_is_index(struct str name)
{
	return str_ends(name, STR(".weights.json"));
}

static int by_str(const void *x, const void *y)
{
	return str_cmp(*(const struct str *)x, *(const struct str *)y);
}

/* Every file once, in order of name. */
static int list_files(const struct value *map, struct str **out, size_t *count, struct error *e)
{
	size_t total = 0, n = 0, unique = 0;
	struct str *names;

	for (size_t i = 0; i < map->map.count; i++) {
		const struct value *v = map->map.members[i].value;

		total += v->kind == VALUE_LIST ? v->list.count : 1;
	}
	names = calloc(total ? total : 1, sizeof(*names));
	*out = names;
	if (!names)
		return error_set(e, ENOMEM, "out of memory for the index");
	for (size_t i = 0; i < map->map.count; i++) {
		const struct value *v = map->map.members[i].value;

		for (size_t k = 0; k < (v->kind == VALUE_LIST ? v->list.count : 1); k++) {
			const struct value *name = v->kind == VALUE_LIST ? v->list.items[k] : v;

			if (name->kind != VALUE_STRING)
				return error_set(e, EIO, "index: file of '%.*s' is no string",
					STR_ARG(map->map.members[i].key));
			names[n++] = name->str;
		}
	}
	qsort(names, n, sizeof(*names), by_str);
	for (size_t i = 0; i < n; i++)
		if (!unique || !str_eq(names[unique - 1], names[i]))
			names[unique++] = names[i];
	*count = unique;
	return unique && unique <= FILES_MAX ? 0 : error_set(e, EIO, "index names %zu files, 1 to %d are expected", unique, FILES_MAX);
}

static int open_parts(struct input *in, struct model *m, const struct str *names, size_t count, struct keras_part *parts,
	struct error *e)
{
	int r = 0;

	for (size_t i = 0; !r && i < count; i++) {
		struct source *src;

		r = input_companion(in, names[i], 0, &src, e);
		if (r < 0)
			return r;
		r = model_add_source(m, src, e);
		parts[i] = (struct keras_part){extent_source(src, 0, source_size(src)), src, names[i]};
		source_unref(src); /* the model holds it */
	}
	return r;
}

int keras_read_index(struct keras *k, struct input *in, struct model *m, struct error *e)
{
	uint64_t size = source_size(in->src);
	char *text = size <= LIMIT_METADATA ? arena_alloc(m->arena, (size_t)size + 1) : NULL;
	const struct value *map = NULL;
	struct keras_part *parts = NULL;
	struct str *names = NULL;
	size_t count = 0;
	int r = text ? source_read(in->src, 0, text, (size_t)size, e) : error_set(e, EIO, "index of %llu bytes is too large",
									     (unsigned long long)size);

	if (!r)
		map = value_get(keras_json(m, (struct str){text, (size_t)size}, "index"), "weight_map");
	if (!r && (!map || map->kind != VALUE_MAP))
		r = error_set(e, EIO, "index has no weight_map");
	if (!r)
		r = list_files(map, &names, &count, e);
	if (!r)
		parts = calloc(count, sizeof(*parts));
	if (!r && !parts)
		r = error_set(e, ENOMEM, "out of memory for the index");
	if (!r)
		r = open_parts(in, m, names, count, parts, e);
	if (!r)
		r = keras_read_parts(k, m, parts, (uint32_t)count, e);
	free(parts);
	free(names);
	return r;
}
