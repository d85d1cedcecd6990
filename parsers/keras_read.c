/* SPDX-License-Identifier: MIT */
/*
 * Datasets -> tensors.
 *
 *	KERAS_LEGACY   /model_weights @layer_names; /model_weights/LAYER @weight_names; datasets at LAYER/WEIGHT_NAME
 *	               (a file of weights only has the same at its root). NAME too large for an attribute: NAME0, NAME1, ...
 *	KERAS_VARS     /layers/CLASS_N/vars/0, 1, ...; names in keras_names.c
 *	other          any dataset
 */
#include "parsers/keras.h"

#include "parsers/container/json.h"
#include "parsers/core/limits.h"

#include <errno.h>
#include <stdlib.h>

static int no_memory(struct error *e)
{
	return error_set(e, ENOMEM, "out of memory for the model");
}

/* ---- objects by path ---- */

static int index_paths(struct keras *k, struct error *e)
{
	uint32_t slots = 16;

	while (slots < k->file.count * 2)
		slots *= 2;
	k->by_path = arena_array(k->m->arena, slots, sizeof(*k->by_path));
	if (!k->by_path)
		return no_memory(e);
	k->by_path_mask = slots - 1;
	for (size_t i = 0; i < k->file.count; i++) {
		uint32_t s = (uint32_t)str_hash(k->file.objects[i].path) & k->by_path_mask;

		while (k->by_path[s])
			s = (s + 1) & k->by_path_mask;
		k->by_path[s] = (uint32_t)i + 1;
	}
	return 0;
}

uint32_t keras_find(const struct keras *k, struct str path)
{
	uint32_t s = (uint32_t)str_hash(path) & k->by_path_mask;

	while (k->by_path[s]) {
		if (str_eq(k->file.objects[k->by_path[s] - 1].path, path))
			return k->by_path[s] - 1;
		s = (s + 1) & k->by_path_mask;
	}
	return MODEL_NONE;
}

/* ---- lists of names ---- */

static size_t list_length(const struct hdf5_attr *a)
{
	return a && a->value && a->value->kind == VALUE_LIST ? a->value->list.count : 0;
}

bool keras_names(const struct keras *k, const struct hdf5_object *o, const char *name, struct str **out, size_t *count)
{
	const struct hdf5_attr *parts[1000];
	size_t n = 0, total = 0, at = 0;

	parts[0] = hdf5_attr(o, name);
	if (parts[0])
		n = 1;
	for (bool whole = n == 1; !whole && n < 1000; n++) {
		struct str part = arena_printf(k->m->arena, "%s%zu", name, n);

		parts[n] = part.ptr ? hdf5_attr(o, part.ptr) : NULL;
		if (!parts[n])
			break;
	}
	for (size_t i = 0; i < n; i++)
		total += list_length(parts[i]);
	*out = arena_array(k->m->arena, total, sizeof(**out));
	*count = 0;
	if (!n || !*out)
		return false;
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < list_length(parts[i]); j++) {
			const struct value *v = parts[i]->value->list.items[j];

			if (v->kind == VALUE_STRING || v->kind == VALUE_BYTES)
				(*out)[at++] = v->str;
		}
	*count = at;
	return true;
}

/* ---- tensors ---- */

static struct value *describe_filters(struct arena *a, const struct hdf5_object *o)
{
	static const struct {
		uint32_t id;
		const char *name;
	} names[] = {{HDF5_DEFLATE, "deflate"}, {HDF5_SHUFFLE, "shuffle"}, {HDF5_FLETCHER32, "fletcher32"}, {4, "szip"},
		{5, "nbit"}, {6, "scaleoffset"}, {HDF5_LZF, "lzf"}};
	struct value *list = value_list(a);

	for (uint32_t i = 0; i < o->filter_count; i++) {
		struct value *v = NULL;

		for (size_t k = 0; k < sizeof(names) / sizeof(*names); k++)
			if (names[k].id == o->filters[i].id)
				v = value_cstr(a, names[k].name);
		value_append(a, list, v ? v : value_int(a, o->filters[i].id));
	}
	return list;
}

static struct value *describe_attributes(struct arena *a, const struct hdf5_object *o)
{
	struct value *map = value_map(a);

	for (uint32_t i = 0; i < o->attr_count; i++)
		value_set(a, map, o->attrs[i].name,
			o->attrs[i].value ? o->attrs[i].value : value_str(a, o->attrs[i].type));
	return map;
}

static void describe(struct model *m, struct tensor *t, const struct hdf5_object *o)
{
	struct arena *a = m->arena;

	if (o->layout != HDF5_CHUNKED && !o->attr_count)
		return;
	t->info = value_map(a);
	if (o->layout == HDF5_CHUNKED) {
		struct value *chunks = value_list(a);

		for (uint32_t i = 0; i < o->rank; i++)
			value_append(a, chunks, value_uint(a, o->chunk_dims[i]));
		value_set(a, t->info, STR("chunks"), chunks);
		if (o->filter_count)
			value_set(a, t->info, STR("filters"), describe_filters(a, o));
	}
	if (o->attr_count)
		value_set(a, t->info, STR("attributes"), describe_attributes(a, o));
}

/* Keras keeps types that HDF5 lacks as opaque bytes and names them in an attribute. */
static enum dtype dtype_of(const struct hdf5_object *o)
{
	const struct hdf5_attr *a = hdf5_attr(o, "dtype");
	enum dtype d = a && a->value && a->value->kind == VALUE_STRING ? dtype_by_name(a->value->str) : DTYPE_NONE;
	uint64_t bytes;

	if (o->dtype == DTYPE_NONE && d != DTYPE_NONE && d != DTYPE_STRING && dtype_bytes(d, 1, &bytes) == 0 &&
		bytes == o->element && dtype_info(d)->block == 1)
		return d;
	return o->dtype;
}

/* Ownership: sources in extents are counted by model_finish, codecs are handed over. */
static void hand_over(struct extent *x)
{
	if (x->kind == EXTENT_SOURCE)
		source_unref(x->src);
}

static int add_tensor(struct keras *k, const struct hdf5_object *o, struct str name, uint32_t alias_of, struct error *e)
{
	struct tensor *t = model_add_tensor(k->m, e);
	struct error why = {0};
	int r;

	if (!t)
		return -ENOMEM;
	t->name = name;
	t->priv = (void *)(uintptr_t)o;
	t->shard = k->parts[o->file].shard;
	if (!str_eq(name, o->path))
		t->stored = o->path;
	t->dtype = dtype_of(o);
	t->stored_type = o->type.ptr;
	t->alias_of = alias_of;
	if (o->big_endian)
		t->flags |= TENSOR_BIG_ENDIAN;
	describe(k->m, t, o);
	if (o->layout == HDF5_STRINGS)
		t->strings = o->strings;
	if (o->layout == HDF5_UNREADABLE) {
		tensor_damage(k->m, t, "%.*s", STR_ARG(o->problem));
		if (o->dtype == DTYPE_STRING)
			t->dtype = DTYPE_NONE;
	} else if (o->layout != HDF5_STRINGS) {
		r = hdf5_data(o, &k->parts[o->file].content, k->parts[o->file].src, &t->data, &why);
		if (r < 0)
			return error_set(e, -r, "%s", why.text);
		hand_over(&t->data);
	}
	return tensor_set_shape(k->m, t, o->dims, o->rank, e);
}

/* ---- order and names ---- */

/* by text, but runs of digits by their value: vars/10 behind vars/9 */
static int natural(struct str a, struct str b)
{
	size_t i = 0, j = 0;

	while (i < a.len && j < b.len) {
		size_t n = i, m = j;

		while (n < a.len && a.ptr[n] >= '0' && a.ptr[n] <= '9')
			n++;
		while (m < b.len && b.ptr[m] >= '0' && b.ptr[m] <= '9')
			m++;
		if (n > i && m > j) {
			while (i + 1 < n && a.ptr[i] == '0')
				i++;
			while (j + 1 < m && b.ptr[j] == '0')
				j++;
			if (n - i != m - j)
				return n - i < m - j ? -1 : 1;
		}
		if (a.ptr[i] != b.ptr[j])
			return (unsigned char)a.ptr[i] < (unsigned char)b.ptr[j] ? -1 : 1;
		i++;
		j++;
	}
	return str_cmp((struct str){a.ptr + i, a.len - i}, (struct str){b.ptr + j, b.len - j});
}

static int by_path(const void *x, const void *y)
{
	const struct hdf5_object *const *a = x, *const *b = y;
	int c = natural((*a)->path, (*b)->path);

	return c ? c : str_cmp((*a)->path, (*b)->path);
}

static struct str join(const struct keras *k, struct str a, struct str b)
{
	return arena_printf(k->m->arena, "%.*s%s%.*s", (int)a.len, a.ptr, a.len ? "/" : "", (int)b.len, b.ptr);
}

/* "dense/kernel:0" -> "dense/kernel" */
static struct str without_output(struct str s)
{
	size_t i = s.len;

	while (i > 0 && s.ptr[i - 1] >= '0' && s.ptr[i - 1] <= '9')
		i--;
	return i < s.len && i > 1 && s.ptr[i - 1] == ':' ? (struct str){s.ptr, i - 1} : s;
}

/* The weights of one layer, in its order. done: by object. */
static int read_layer(struct keras *k, struct str layer, uint32_t *done, struct error *e)
{
	struct str group = join(k, k->weights, layer), *names;
	uint32_t at = group.ptr ? keras_find(k, group) : MODEL_NONE;
	size_t count = 0;

	if (at == MODEL_NONE) {
		model_warn(k->m, "layer '%.*s' has no group", STR_ARG(layer));
		return group.ptr ? 0 : no_memory(e);
	}
	keras_names(k, &k->file.objects[at], "weight_names", &names, &count);
	for (size_t i = 0; i < count; i++) {
		struct str path = join(k, group, names[i]);
		uint32_t o = path.ptr ? keras_find(k, path) : MODEL_NONE;
		int r;

		if (o == MODEL_NONE || k->file.objects[o].kind != HDF5_DATASET) {
			model_warn(k->m, "weight '%.*s' of layer '%.*s' has no dataset", STR_ARG(names[i]),
				STR_ARG(layer));
			continue;
		}
		if (done[o])
			continue;
		done[o] = k->m->tensor_count + 1;
		r = add_tensor(k, &k->file.objects[o], without_output(names[i]), MODEL_NONE, e);
		if (r < 0)
			return r;
	}
	return 0;
}

static int read_layers(struct keras *k, uint32_t *done, struct error *e)
{
	uint32_t at = keras_find(k, k->weights);
	struct str *layers;
	size_t count;
	int r = 0;

	if (at == MODEL_NONE || !keras_names(k, &k->file.objects[at], "layer_names", &layers, &count))
		return 0;
	for (size_t i = 0; !r && i < count; i++)
		r = read_layer(k, layers[i], done, e);
	return r;
}

/* What no layer explains, in order of path. */
static int read_rest(struct keras *k, uint32_t *done, struct error *e)
{
	const struct hdf5_object **list = calloc(k->file.count + 1, sizeof(*list));
	size_t n = 0;
	int r = 0;

	if (!list)
		return no_memory(e);
	for (size_t i = 0; i < k->file.count; i++)
		if (k->file.objects[i].kind == HDF5_DATASET && !done[i])
			list[n++] = &k->file.objects[i];
	qsort(list, n, sizeof(*list), by_path);
	for (size_t i = 0; !r && i < n; i++) {
		struct str name = k->layout == KERAS_VARS ? keras_variable_name(k, list[i]->path) : list[i]->path;

		done[list[i] - k->file.objects] = k->m->tensor_count + 1;
		r = add_tensor(k, list[i], name, MODEL_NONE, e);
	}
	free(list);
	return r;
}

/* Where a link leads: from the root, or from the group that holds it. */
static uint32_t follow(const struct keras *k, const struct hdf5_object *o)
{
	struct str group = o->path, target = o->target;

	if (!o->soft)
		return keras_find(k, target);
	while (group.len && group.ptr[group.len - 1] != '/')
		group.len--;
	if (target.len && target.ptr[0] == '/')
		return keras_find(k, (struct str){target.ptr + 1, target.len - 1});
	target = arena_printf(k->m->arena, "%.*s%.*s", (int)group.len, group.ptr, (int)target.len, target.ptr);
	return target.ptr ? keras_find(k, target) : MODEL_NONE;
}

static int read_links(struct keras *k, const uint32_t *done, struct error *e)
{
	int r = 0;

	for (size_t i = 0; !r && i < k->file.count; i++) {
		const struct hdf5_object *o = &k->file.objects[i];
		uint32_t at = o->kind == HDF5_LINK ? follow(k, o) : MODEL_NONE;

		if (o->kind != HDF5_LINK)
			continue;
		if (at == MODEL_NONE || !done[at]) {
			model_warn(k->m, "link '%.*s' to '%.*s' is not shown: %s", STR_ARG(o->path), STR_ARG(o->target),
				at == MODEL_NONE ? "nothing is there" : "it is no dataset");
			continue;
		}
		r = add_tensor(k, &k->file.objects[at], o->path, done[at] - 1, e);
		if (!r)
			k->m->tensors[k->m->tensor_count - 1].stored = STR("");
	}
	return r;
}

static bool has_names(const struct keras *k, struct str path)
{
	uint32_t at = keras_find(k, path);

	return at != MODEL_NONE && (hdf5_attr(&k->file.objects[at], "layer_names") ||
				      hdf5_attr(&k->file.objects[at], "layer_names0"));
}

static void find_layout(struct keras *k)
{
	k->layout = KERAS_NONE;
	k->weights = has_names(k, STR("model_weights")) ? STR("model_weights") : STR("");
	if (has_names(k, k->weights)) {
		k->layout = KERAS_LEGACY;
		return;
	}
	for (size_t i = 0; i < k->file.count; i++) {
		const struct hdf5_object *o = &k->file.objects[i];

		if (o->kind == HDF5_GROUP && (str_is(o->path, "vars") || str_ends(o->path, STR("/vars")))) {
			k->layout = KERAS_VARS;
			return;
		}
	}
}

static void release_parts(void *object)
{
	struct keras *k = object;

	for (uint32_t i = 0; i < k->part_count; i++)
		extent_unref(&k->parts[i].content);
}

static int keep_parts(struct keras *k, const struct keras_part *parts, uint32_t count, struct error *e)
{
	k->parts = arena_array(k->m->arena, count, sizeof(*k->parts));
	if (!k->parts)
		return no_memory(e);
	for (uint32_t i = 0; i < count; i++) {
		k->parts[i] = parts[i];
		extent_ref(&parts[i].content);
	}
	k->part_count = count;
	return arena_defer(k->m->arena, release_parts, k) < 0 ? no_memory(e) : 0;
}

/* Objects of all parts in one list; a group that several have is found in the first. */
static int read_files(struct keras *k, struct error *e)
{
	struct hdf5_file *files = arena_array(k->m->arena, k->part_count, sizeof(*files));
	size_t total = 0, at = 0;
	int r = files ? 0 : no_memory(e);

	for (uint32_t i = 0; !r && i < k->part_count; i++) {
		r = hdf5_read(&k->parts[i].content, k->parts[i].src, k->m->arena, &files[i], e);
		if (r < 0 && k->parts[i].shard.len)
			error_prefix(e, source_name(k->parts[i].src));
		total += r ? 0 : files[i].count;
	}
	if (r < 0)
		return r;
	k->file = files[0];
	if (k->part_count == 1)
		return 0;
	k->file.objects = arena_array(k->m->arena, total, sizeof(*k->file.objects));
	if (!k->file.objects)
		return no_memory(e);
	for (uint32_t i = 0; i < k->part_count; i++)
		for (size_t o = 0; o < files[i].count; o++) {
			k->file.objects[at] = files[i].objects[o];
			k->file.objects[at++].file = i;
		}
	k->file.count = total;
	return 0;
}

int keras_read(struct keras *k, struct model *m, const struct extent *content, struct source *src, struct error *e)
{
	struct keras_part part = {*content, src, STR("")};

	return keras_read_parts(k, m, &part, 1, e);
}

int keras_read_parts(struct keras *k, struct model *m, const struct keras_part *parts, uint32_t count, struct error *e)
{
	uint32_t *done;
	int r;

	k->m = m;
	r = keep_parts(k, parts, count, e);
	if (!r)
		r = read_files(k, e);
	if (!r)
		r = index_paths(k, e);
	if (r < 0)
		return r;
	find_layout(k);
	done = calloc(k->file.count + 1, sizeof(*done));
	if (!done)
		return no_memory(e);
	if (k->layout == KERAS_LEGACY)
		r = read_layers(k, done, e);
	if (!r)
		r = read_rest(k, done, e);
	if (!r)
		r = read_links(k, done, e);
	free(done);
	return r;
}

/* ---- configuration ---- */

int keras_imply(struct keras *k, const char *key, struct value *v, struct error *e)
{
	struct arena *a = k->m->arena;
	struct str property = arena_printf(a, "wiamodel.%s", key);

	if (!property.ptr)
		return no_memory(e);
	if (!k->implied)
		k->implied = value_map(a);
	if (value_set(a, k->implied, str_from(key), v) < 0)
		return no_memory(e);
	if (value_get(k->m->meta.properties, property.ptr))
		return 0;
	if (!k->m->meta.model)
		k->m->meta.model = value_map(a);
	return value_set(a, k->m->meta.model, str_from(key), v) < 0 ? no_memory(e) : 0;
}

int keras_imply_all(struct keras *k, struct str version, struct error *e)
{
	struct value *name = value_get(value_get(k->config, "config"), "name");
	int r = keras_imply(k, "framework", value_cstr(k->m->arena, "Keras"), e);

	k->version = version;
	if (!r && name && name->kind == VALUE_STRING)
		r = keras_imply(k, "name", name, e);
	if (!r && version.len)
		r = keras_imply(k, "framework_version", value_str(k->m->arena, version), e);
	return r;
}

/* NaN, Infinity and -Infinity outside of strings get quotes. */
static size_t quote_words(struct str in, char *out)
{
	static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
	bool string = false;
	size_t n = 0;

	for (size_t i = 0; i < in.len; i++) {
		struct str rest = {in.ptr + i, in.len - i};
		bool found = false;

		if (string && in.ptr[i] == '\\' && i + 1 < in.len)
			out[n++] = in.ptr[i++];
		else if (in.ptr[i] == '"')
			string = !string;
		for (size_t w = 0; !string && !found && w < 3; w++) {
			size_t len = strlen(words[w]);

			found = str_starts(rest, str_from(words[w]));
			if (found) {
				out[n++] = '"';
				memcpy(out + n, words[w], len);
				n += len;
				out[n++] = '"';
				i += len - 1;
			}
		}
		if (!found)
			out[n++] = in.ptr[i];
	}
	return n;
}

bool keras_json_is_plain(struct str text)
{
	char *quoted = text.len <= LIMIT_METADATA ? malloc(text.len * 2 + 1) : NULL;
	bool plain = quoted && quote_words(text, quoted) == text.len;

	free(quoted);
	return plain;
}

struct value *keras_json(struct model *m, struct str text, const char *what)
{
	struct error why = {0};
	struct value *v = NULL;
	/* a word of three letters becomes five */
	char *quoted = text.len <= LIMIT_METADATA ? malloc(text.len * 2 + 1) : NULL;

	if (!quoted || json_parse_plain(m->arena, quoted, quote_words(text, quoted), &v, &why) < 0) {
		model_warn(m, "%s is not readable as JSON: %s", what, quoted ? why.text : "it is too large");
		v = NULL;
	}
	free(quoted);
	return v;
}
