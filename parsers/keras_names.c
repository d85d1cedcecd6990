/* SPDX-License-Identifier: MIT */
/*
 * Names of variables in Keras 3's weights layout: layers/dense_1/vars/0 is called conv/kernel. The layer's own name is an
 * attribute of its vars group (Keras 3.8 and later), else the configuration has it: dense_1 is the second layer of class
 * Dense. What the number means depends on the class. Checked against variable.path of Keras 3.15.1.
 */
#include "parsers/keras.h"

#include <stdlib.h>

#define DEPTH 64
/* looking for layers by class or name is linear; a file with absurdly many of both keeps its paths from here on */
#define STEPS_MAX 50000000u

static const struct {
	const char *class_name; /* a trailing * matches any rest */
	const char *variables[4];
} known[] = {
	{"batch_normalization", {"gamma", "beta", "moving_mean", "moving_variance"}},
	{"layer_normalization", {"gamma", "beta"}},
	{"group_normalization", {"gamma", "beta"}},
	{"rms_normalization", {"scale"}},
	{"spectral_normalization", {"vector_u"}},
	{"normalization", {"mean", "variance", "count"}},
	{"embedding", {"embeddings"}},
	{"separable_conv*", {"depthwise_kernel", "pointwise_kernel", "bias"}},
	{"depthwise_conv*", {"kernel", "bias"}},
	{"conv*", {"kernel", "bias"}},
	{"dense", {"kernel", "bias"}},
	{"einsum_dense", {"kernel", "bias"}},
	{"p_re_lu", {"alpha"}},
	{"seed_generator", {"seed_generator_state"}},
	{"cell", {"kernel", "recurrent_kernel", "bias"}},
	{"lstm_cell", {"kernel", "recurrent_kernel", "bias"}},
	{"gru_cell", {"kernel", "recurrent_kernel", "bias"}},
	{"simple_rnn_cell", {"kernel", "recurrent_kernel", "bias"}},
	{"query_dense", {"kernel", "bias"}},
	{"key_dense", {"kernel", "bias"}},
	{"value_dense", {"kernel", "bias"}},
	{"output_dense", {"kernel", "bias"}},
};

static bool is_upper(char c)
{
	return c >= 'A' && c <= 'Z';
}

static bool is_lower(char c)
{
	return c >= 'a' && c <= 'z';
}

size_t keras_snake_case(struct str s, char *out, size_t room)
{
	size_t n = 0;

	for (size_t i = 0; i < s.len && n + 2 < room; i++) {
		char c = s.ptr[i];
		bool run = is_upper(c) && i + 1 < s.len && is_lower(s.ptr[i + 1]);
		bool step = is_upper(c) && i > 0 && is_lower(s.ptr[i - 1]);

		if (!(is_upper(c) || is_lower(c) || (c >= '0' && c <= '9') || c == '_'))
			continue;
		if (n && (run || step) && out[n - 1] != '_')
			out[n++] = '_';
		out[n++] = is_upper(c) ? (char)(c - 'A' + 'a') : c;
	}
	return n;
}

const struct value *keras_layers(const struct value *model)
{
	const struct value *layers = value_get(value_get(model, "config"), "layers");

	if (!layers) /* Keras 1 and the first of Keras 2: a Sequential's config is the list */
		layers = value_get(model, "config");
	return layers && layers->kind == VALUE_LIST ? layers : NULL;
}

/* NAME_3 -> NAME and 3 */
static struct str without_number(struct str s, size_t *number)
{
	size_t i = s.len, n = 0, digit = 1;

	while (i > 0 && s.ptr[i - 1] >= '0' && s.ptr[i - 1] <= '9' && s.len - i < 9) {
		n += (size_t)(s.ptr[--i] - '0') * digit;
		digit *= 10;
	}
	*number = 0;
	if (i == s.len || i < 2 || s.ptr[i - 1] != '_')
		return s;
	*number = n;
	return (struct str){s.ptr, i - 1};
}

static struct str string_of(const struct value *v, const char *key)
{
	const struct value *s = value_get(v, key);

	return s && s->kind == VALUE_STRING ? s->str : STR("");
}

static const struct value *find_layer(struct keras *k, const struct value *layers, struct str component)
{
	size_t number, seen = 0;
	struct str want = without_number(component, &number);
	char snake[128];

	for (size_t i = 0; layers && i < layers->list.count && k->steps < STEPS_MAX; i++, k->steps++) {
		const struct value *layer = layers->list.items[i];
		size_t n = keras_snake_case(string_of(layer, "class_name"), snake, sizeof(snake));

		if (str_eq(want, (struct str){snake, n}) && seen++ == number)
			return layer;
	}
	return NULL;
}

static const struct value *layer_named(struct keras *k, const struct value *layers, struct str name)
{
	for (size_t i = 0; layers && i < layers->list.count && k->steps < STEPS_MAX; i++, k->steps++)
		if (str_eq(string_of(value_get(layers->list.items[i], "config"), "name"), name))
			return layers->list.items[i];
	return NULL;
}

static bool matches(const char *pattern, struct str s)
{
	size_t n = strlen(pattern);

	if (n && pattern[n - 1] == '*')
		return s.len >= n - 1 && memcmp(s.ptr, pattern, n - 1) == 0;
	return str_is(s, pattern);
}

static bool is_off(const struct value *config, const char *key)
{
	const struct value *v = value_get(config, key);

	return v && v->kind == VALUE_BOOL && !v->boolean;
}

/* Batch normalization leaves out what it does not scale or center; how many there are tells, and for three the
 * configuration. NULL = unknown. */
static const char *normalization_variable(const char *const *all, size_t number, size_t count, const struct value *config)
{
	if (count == 4 && number < 4)
		return all[number];
	if (count == 2 && number < 2)
		return all[2 + number];
	if (count != 3 || number > 2)
		return NULL;
	if (number > 0)
		return all[1 + number];
	return is_off(config, "scale") ? all[1] : is_off(config, "center") ? all[0] : NULL;
}

static bool parse_number(struct str s, size_t *out)
{
	*out = 0;
	for (size_t i = 0; i < s.len; i++) {
		if (s.ptr[i] < '0' || s.ptr[i] > '9' || i > 8)
			return false;
		*out = *out * 10 + (size_t)(s.ptr[i] - '0');
	}
	return s.len > 0;
}

/* Datasets in the vars group. */
static size_t count_variables(const struct keras *k, struct str vars)
{
	size_t n = 0;

	for (; n < 9; n++) {
		struct str path = arena_printf(k->m->arena, "%.*s/%zu", (int)vars.len, vars.ptr, n);

		if (!path.ptr || keras_find(k, path) == MODEL_NONE)
			break;
	}
	return n;
}

/*
 * Dense, EinsumDense and Embedding, quantised or not. How many there are tells which: a kernel of 8-bit integers has a scale,
 * 4-bit ones (packed) a zero point and group indexes too, float8 six statistics; the bias stands behind the kernel.
 */
static const char *dense_variable(const struct keras *k, struct str vars, size_t n, bool embedding)
{
	static const char *const integer[2][4] = {{"kernel", "kernel_scale", "kernel_zero", "g_idx"},
		{"embeddings", "embeddings_scale", "embeddings_zero", "g_idx"}};
	static const char *const float8[] = {"inputs_scale", "inputs_amax_history", "kernel_scale", "kernel_amax_history",
		"outputs_grad_scale", "outputs_grad_amax_history"};
	size_t count = count_variables(k, vars);
	struct str path = arena_printf(k->m->arena, "%.*s/0", (int)vars.len, vars.ptr);
	uint32_t first = path.ptr ? keras_find(k, path) : MODEL_NONE;
	bool packed = first != MODEL_NONE && k->file.objects[first].dtype == DTYPE_INT8;
	bool bias = !embedding && (packed ? count == 3 || count == 5 : count == 2 || count == 8);

	if (n == 0)
		return integer[embedding][0];
	if (bias && n == 1)
		return "bias";
	n -= bias;
	count -= bias;
	if (packed && count <= 4 && n < 4)
		return integer[embedding][n];
	return !packed && count == 7 && n < 7 ? float8[n - 1] : NULL;
}

static struct str last_part(const struct keras *k, struct str component, struct str vars, struct str number,
	const struct value *layer)
{
	const struct value *config = value_get(layer, "config");
	size_t ignored, n;
	struct str class_name = without_number(component, &ignored);

	if (!parse_number(number, &n))
		return number;
	if (!n && str_starts(k->version, STR("2")) && str_starts(class_name, STR("depthwise_conv")))
		return STR("depthwise_kernel");
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		const char *found = n < 4 ? known[i].variables[n] : NULL;

		if (!matches(known[i].class_name, class_name))
			continue;
		if (str_is(class_name, "dense") || str_is(class_name, "einsum_dense") || str_is(class_name, "embedding"))
			found = dense_variable(k, vars, n, str_is(class_name, "embedding"));
		else if (i == 0)
			found = normalization_variable(known[i].variables, n, count_variables(k, vars), config);
		else if (known[i].variables[1] && strcmp(known[i].variables[1], "beta") == 0 &&
			 (is_off(config, "scale") || (layer && is_off(config, "center"))))
			found = is_off(config, "scale") && n == 0 ? "beta" : found;
		return found ? str_from(found) : number;
	}
	return number;
}

/* ---- the whole path ---- */

struct parts {
	struct str part[DEPTH];
	size_t count;
};

static bool split(struct str path, struct parts *p)
{
	p->count = 0;
	while (path.len) {
		const char *slash = memchr(path.ptr, '/', path.len);
		size_t n = slash ? (size_t)(slash - path.ptr) : path.len;

		if (p->count == DEPTH)
			return false;
		p->part[p->count++] = (struct str){path.ptr, n};
		path.ptr += n + (slash ? 1 : 0);
		path.len -= n + (slash ? 1 : 0);
	}
	return true;
}

static struct str name_attribute(const struct keras *k, struct str group)
{
	struct str path = arena_printf(k->m->arena, "%.*s%svars", (int)group.len, group.ptr, group.len ? "/" : "");
	uint32_t i = path.ptr ? keras_find(k, path) : MODEL_NONE;
	const struct hdf5_attr *a = i == MODEL_NONE ? NULL : hdf5_attr(&k->file.objects[i], "name");

	return a && a->value && a->value->kind == VALUE_STRING ? a->value->str : STR("");
}

static bool is_container(struct str part)
{
	return str_is(part, "layers") || str_is(part, "_layer_checkpoint_dependencies");
}

/* The model's own name, when its variables bear it: all but those of a functional model, which lists its inputs as layers. */
static struct str root_scope(const struct keras *k)
{
	struct str class_name = string_of(k->config, "class_name");
	struct str name = name_attribute(k, STR(""));

	if (str_starts(k->version, STR("2")))
		return STR("");
	if (class_name.len)
		return str_is(class_name, "Functional") || str_is(class_name, "Model") ? STR("") : name;
	return keras_find(k, STR("layers/input_layer")) != MODEL_NONE ? STR("") : name;
}

static bool append(const struct keras *k, struct str *name, struct str part)
{
	*name = arena_printf(k->m->arena, "%.*s%s%.*s", (int)name->len, name->ptr ? name->ptr : "", name->len ? "/" : "",
		(int)part.len, part.ptr);
	return name->ptr != NULL;
}

/* Files before Keras 3.8 do not tell the names of a layer's parts: those that Keras gives by default. */
static struct str part_name(const struct keras *k, struct str part, const struct value *layer)
{
	static const char *const attention[][2] = {{"query_dense", "query"}, {"key_dense", "key"}, {"value_dense", "value"},
		{"output_dense", "attention_output"}};
	const struct value *config = value_get(layer, "config"), *inner = value_get(config, "layer");
	struct str name = string_of(value_get(inner, "config"), "name");
	char snake[128];

	for (size_t i = 0; i < 4; i++)
		if (str_is(part, attention[i][0]))
			return str_from(attention[i][1]);
	if (str_is(part, "forward_layer") && name.len)
		return arena_printf(k->m->arena, "forward_%.*s", (int)name.len, name.ptr);
	if (str_is(part, "backward_layer") && name.len) {
		struct str own = string_of(value_get(value_get(config, "backward_layer"), "config"), "name");

		return own.len ? own : arena_printf(k->m->arena, "backward_%.*s", (int)name.len, name.ptr);
	}
	if (str_is(part, "cell")) {
		size_t n = keras_snake_case(string_of(inner ? inner : layer, "class_name"), snake, sizeof(snake));

		return arena_printf(k->m->arena, "%.*s_cell", (int)n, snake);
	}
	return part;
}

/* Whether variables of a nested model's layers bear its name: not those of a functional one, whose layers were made before it, and
 * none in Keras 2. */
static bool is_scope(const struct keras *k, struct str part)
{
	size_t ignored;
	struct str class_name = without_number(part, &ignored);

	return !str_is(class_name, "functional") &&
	       !(str_starts(k->version, STR("2")) && str_is(class_name, "sequential"));
}

struct str keras_variable_name(struct keras *k, struct str path)
{
	const struct value *layers = keras_layers(k->config), *layer = NULL, *holder = NULL;
	struct str name = root_scope(k);
	struct parts p;
	size_t found = 0;

	if (!split(path, &p) || p.count < 3 || !str_is(p.part[p.count - 2], "vars") || str_is(p.part[0], "optimizer") ||
		str_is(p.part[0], "metrics"))
		return path;
	for (size_t i = 0; i < p.count - 2; i++) {
		struct str group = {path.ptr, (size_t)(p.part[i].ptr + p.part[i].len - path.ptr)}, own;

		if (is_container(p.part[i]))
			continue;
		own = name_attribute(k, group);
		if (i && is_container(p.part[i - 1])) {
			layer = own.len ? layer_named(k, layers, own) : find_layer(k, layers, p.part[i]);
			layers = keras_layers(layer);
			if (!own.len)
				own = string_of(value_get(layer, "config"), "name");
			holder = layer;
		} else {
			layer = NULL;
			if (!own.len && holder)
				own = part_name(k, p.part[i], holder);
		}
		if (!is_scope(k, p.part[i]))
			continue;
		if (own.len && ++found && !append(k, &name, own))
			return path;
	}
	if (!found || !append(k, &name, last_part(k, p.part[p.count - 3],
				    (struct str){path.ptr, path.len - p.part[p.count - 1].len - 1}, p.part[p.count - 1],
				    layer)))
		return path;
	return name;
}
