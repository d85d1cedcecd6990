/* SPDX-License-Identifier: MIT */
/*
 * From one layout of Keras to the other. What each needs to know is the order of a layer's weights:
 *
 *	KERAS_LEGACY   per top layer, those of nested models included: trainable ones first, as Keras lists them
 *	KERAS_VARS     per object, in order of creation; which object a weight belongs to follows from the layer's class
 *
 * Layers whose order is not certain are refused: Keras loads by order, and a wrong one of equal shapes would go unnoticed.
 * The configuration is taken over; Keras 3's .h5 leaves out the module of models, which its .keras insists on.
 */
#include "parsers/keras.h"

#include "parsers/container/json_write.h"
#include "parsers/core/limits.h"
#include "parsers/format.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* weights of one layer, classes of layers in one model: both are looked through one by one */
#define PARTS_MAX 4096
#define NAMES_MAX 4000

extern const struct format format_keras, format_keras_h5;

const struct keras *keras_of(const struct model *m)
{
	const struct model *own = m->base ? m->base : m;
	const struct keras *k = own->format == &format_keras || own->format == &format_keras_h5 ? own->priv : NULL;

	return k && keras_layers(k->config) && own->graph_count ? k : NULL;
}

struct converter {
	const struct model *m;
	const struct keras *k;
	struct keras_plan *out;
	struct arena *a;
	uint32_t *graph_of; /* by op: the graph inside it or MODEL_NONE */
	bool *done;         /* by tensor */
	struct error *e;
};

static int no_memory(struct error *e)
{
	return error_set(e, ENOMEM, "out of memory for a plan");
}

void keras_plan_release(struct keras_plan *p)
{
	free(p->places);
	free(p->groups);
}

static int add_place(struct converter *x, const struct tensor *t, struct str path)
{
	struct keras_plan *p = x->out;

	if (p->place_count == p->place_cap) {
		size_t cap = p->place_cap ? p->place_cap * 2 : 64;
		void *grown = reallocarray(p->places, cap, sizeof(*p->places));

		if (!grown)
			return no_memory(x->e);
		p->places = grown;
		p->place_cap = cap;
	}
	p->places[p->place_count++] = (struct keras_place){t, path};
	x->done[t - x->m->tensors] = true;
	return path.ptr ? 0 : no_memory(x->e);
}

static int add_group(struct converter *x, struct str path, struct str attr, struct value *value)
{
	struct keras_plan *p = x->out;

	if (p->group_count == p->group_cap) {
		size_t cap = p->group_cap ? p->group_cap * 2 : 64;
		void *grown = reallocarray(p->groups, cap, sizeof(*p->groups));

		if (!grown)
			return no_memory(x->e);
		p->groups = grown;
		p->group_cap = cap;
	}
	p->groups[p->group_count++] = (struct keras_group){path, attr, value};
	return (path.ptr || !path.len) && (value || !attr.len) ? 0 : no_memory(x->e);
}

/* A list of names; one too long for an attribute is split, as Keras does: 16 bytes for each in at most 64 KiB. */
static int add_names(struct converter *x, struct str path, const char *attr, struct value *list)
{
	size_t parts = list ? (list->list.count + NAMES_MAX - 1) / NAMES_MAX : 0;
	int r = 0;

	if (parts < 2)
		return add_group(x, path, str_from(attr), list);
	for (size_t i = 0; !r && i < parts; i++) {
		size_t from = i * NAMES_MAX, left = list->list.count - from;
		struct value *part = value_list(x->a);
		struct str name = arena_printf(x->a, "%s%zu", attr, i);

		for (size_t k = 0; k < left && k < NAMES_MAX; k++)
			value_append(x->a, part, list->list.items[from + k]);
		r = name.ptr ? add_group(x, path, name, part) : no_memory(x->e);
	}
	return r;
}

static struct str string_of(const struct value *v, const char *key)
{
	const struct value *s = value_get(v, key);

	return s && s->kind == VALUE_STRING ? s->str : STR("");
}

static struct str layer_name(const struct value *layer)
{
	struct str name = string_of(layer, "name");

	return name.len ? name : string_of(value_get(layer, "config"), "name");
}

static struct str join(struct converter *x, struct str a, struct str b)
{
	return arena_printf(x->a, "%.*s%s%.*s", (int)a.len, a.ptr, a.len ? "/" : "", (int)b.len, b.ptr);
}

/* ---- a layer's weights in order ---- */

struct weights {
	const struct tensor **list;
	size_t count, cap;
};

static int add_weight(struct converter *x, struct weights *w, const struct tensor *t)
{
	if (w->count == w->cap) {
		size_t cap = w->cap ? w->cap * 2 : 16;
		void *grown = reallocarray(w->list, cap, sizeof(*w->list));

		if (!grown)
			return no_memory(x->e);
		w->list = grown;
		w->cap = cap;
	}
	w->list[w->count++] = t;
	return 0;
}

/* Parts of layers in the order in which Keras lists their weights; others are numbered or alone. */
static int part_rank(struct str part)
{
	static const char *const order[] = {"forward_layer", "backward_layer", "query_dense", "key_dense", "value_dense",
		"output_dense"};

	for (int i = 0; i < 6; i++)
		if (str_is(part, order[i]))
			return i;
	return -1;
}

static struct str first_part(struct str s)
{
	const char *slash = s.len ? memchr(s.ptr, '/', s.len) : NULL;

	return (struct str){s.ptr, slash ? (size_t)(slash - s.ptr) : s.len};
}

/* The part of path a that differs from b's; the common beginning ends at a slash. */
static struct str differing(struct str a, struct str b)
{
	size_t begin = 0;

	for (size_t i = 0; i < a.len && i < b.len && a.ptr[i] == b.ptr[i]; i++)
		if (a.ptr[i] == '/')
			begin = i + 1;
	return first_part((struct str){a.ptr + begin, a.len - begin});
}

static bool is_number(struct str s)
{
	for (size_t i = 0; i < s.len; i++)
		if (s.ptr[i] < '0' || s.ptr[i] > '9')
			return false;
	return s.len > 0;
}

static struct str path_of(const struct tensor *t)
{
	return ((const struct hdf5_object *)t->priv)->path;
}

/* Insertion by known rank; tensors come in natural order of path, so numbers are right already. */
static int order_parts(struct converter *x, struct str layer, struct weights *w, size_t from)
{
	if (w->count - from > PARTS_MAX)
		return error_set(x->e, EOPNOTSUPP, "layer '%.*s' has too many weights", STR_ARG(layer));
	for (size_t i = from + 1; i < w->count; i++)
		for (size_t j = i; j > from; j--) {
			const struct tensor *a = w->list[j - 1], *b = w->list[j];
			struct str pa = differing(path_of(a), path_of(b)), pb = differing(path_of(b), path_of(a));

			if (is_number(pa) && is_number(pb))
				break;
			if (part_rank(pa) < 0 || part_rank(pb) < 0)
				return error_set(x->e, EOPNOTSUPP, "the order of the weights of layer '%.*s' is not known ('%.*s', '%.*s')",
					STR_ARG(layer), STR_ARG(pa), STR_ARG(pb));
			if (part_rank(pa) < part_rank(pb))
				break;
			w->list[j - 1] = b;
			w->list[j] = a;
		}
	return 0;
}

static int op_weights(struct converter *x, const struct op *op, struct weights *w)
{
	size_t from = w->count;
	int r = 0;

	for (uint32_t i = 0; !r && i < op->input_count; i++)
		if (op->inputs[i].kind == EDGE_TENSOR)
			r = add_weight(x, w, &x->m->tensors[op->inputs[i].index]);
	return r || x->k->layout != KERAS_VARS ? r : order_parts(x, op->name, w, from);
}

/* Which of them Keras trains, and so their order, depends on the kind of quantisation and on the version. */
static int refuse_quantised(struct converter *x, struct str layer, const struct weights *w)
{
	static const char *const ends[] = {"_scale", "_zero", "/g_idx", "_amax_history"};

	for (size_t i = 0; i < w->count; i++) {
		bool is = w->list[i]->dtype == DTYPE_INT8;

		for (size_t k = 0; k < sizeof(ends) / sizeof(*ends); k++)
			is |= str_ends(w->list[i]->name, str_from(ends[k]));
		if (is)
			return error_set(x->e, EOPNOTSUPP, "layer '%.*s' is quantised: the order of its weights is not known",
				STR_ARG(layer));
	}
	return 0;
}

static bool is_first_call(const struct op *op)
{
	return !memchr(op->name.ptr ? op->name.ptr : "", ':', op->name.len);
}

static bool is_off(const struct value *config, const char *key)
{
	const struct value *v = value_get(config, key);

	return v && v->kind == VALUE_BOOL && !v->boolean;
}

static bool is_trainable(const struct tensor *t)
{
	static const char *const not_trained[] = {"/moving_mean", "/moving_variance", "/mean", "/variance", "/count",
		"/seed_generator_state"};

	for (size_t i = 0; i < sizeof(not_trained) / sizeof(*not_trained); i++)
		if (str_ends(t->name, str_from(not_trained[i])))
			return false;
	return true;
}

/* Classes inside of nested models whose trained weights are known by name. */
static int check_class(struct converter *x, const struct op *op)
{
	static const char *const known[] = {"Dense", "EinsumDense", "Embedding", "Conv1D", "Conv2D", "Conv3D", "Conv1DTranspose",
		"Conv2DTranspose", "Conv3DTranspose", "DepthwiseConv1D", "DepthwiseConv2D", "SeparableConv1D", "SeparableConv2D",
		"BatchNormalization", "LayerNormalization", "GroupNormalization", "RMSNormalization", "Normalization", "PReLU",
		"LSTM", "GRU", "SimpleRNN", "Bidirectional", "MultiHeadAttention"};

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (str_is(op->type, known[i]))
			return 0;
	return error_set(x->e, EOPNOTSUPP, "which weights of layer '%.*s' (%.*s), inside of another model, are trained is not known",
		STR_ARG(op->name), STR_ARG(op->type));
}

/*
 * Of an op and the models inside it, in order of layers: those that are trained (layers that are frozen have none), and the others.
 * A single layer's are in this order already.
 */
static int all_weights(struct converter *x, uint32_t op, unsigned depth, bool frozen, struct weights *trained, struct weights *rest)
{
	const struct op *o = &x->m->ops[op];
	const struct graph *g;
	struct weights own = {0};
	int r = op_weights(x, o, &own);

	frozen |= is_off(o->attributes, "trainable");
	if (!r)
		r = refuse_quantised(x, o->name, &own);
	if (!r && depth && own.count)
		r = check_class(x, o);
	for (size_t i = 0; !r && i < own.count; i++)
		r = add_weight(x, !depth || (!frozen && is_trainable(own.list[i])) ? trained : rest, own.list[i]);
	free(own.list);
	if (r < 0 || x->graph_of[op] == MODEL_NONE)
		return r;
	if (depth > LIMIT_NESTING)
		return error_set(x->e, EOPNOTSUPP, "models are nested too deeply");
	g = &x->m->graphs[x->graph_of[op]];
	for (uint32_t i = 0; !r && i < g->op_count; i++)
		if (is_first_call(&x->m->ops[g->first_op + i]))
			r = all_weights(x, g->first_op + i, depth + 1, frozen, trained, rest);
	return r;
}

static int prepare(struct converter *x)
{
	x->graph_of = arena_array(x->a, (size_t)x->m->op_count + 1, sizeof(*x->graph_of));
	x->done = arena_array(x->a, (size_t)x->m->tensor_count + 1, sizeof(*x->done));
	if (!x->graph_of || !x->done)
		return no_memory(x->e);
	for (uint32_t i = 0; i < x->m->op_count; i++)
		x->graph_of[i] = MODEL_NONE;
	for (uint32_t g = 0; g < x->m->graph_count; g++)
		if (x->m->graphs[g].parent_op != MODEL_NONE)
			x->graph_of[x->m->graphs[g].parent_op] = g;
	return 0;
}

/* The op of a layer: they come in the layers' order, *at moves on. MODEL_NONE: an input. */
static uint32_t op_of(const struct converter *x, const struct graph *g, struct str name, uint32_t *at)
{
	uint32_t i = *at;

	while (i < g->op_count && !is_first_call(&x->m->ops[g->first_op + i]))
		i++;
	if (i == g->op_count || !str_eq(x->m->ops[g->first_op + i].name, name))
		return MODEL_NONE;
	*at = i + 1;
	return g->first_op + i;
}

/* Optimizers and whatever no layer has stay where their names say. */
static int place_rest(struct converter *x)
{
	int r = 0;

	for (uint32_t i = 0; !r && i < x->m->tensor_count; i++)
		if (!x->done[i])
			r = add_place(x, &x->m->tensors[i], x->m->tensors[i].name);
	return r;
}

/* ---- whole models in .h5 ---- */

static int legacy_layer(struct converter *x, struct str name, uint32_t op)
{
	struct str group = join(x, STR("model_weights"), name);
	struct value *names = value_list(x->a);
	struct weights w[2] = {{0}, {0}};
	int r = op == MODEL_NONE ? 0 : all_weights(x, op, 0, false, &w[0], &w[1]);

	for (int k = 0; k < 2; k++) {
		for (size_t i = 0; !r && i < w[k].count; i++) {
			const struct tensor *t = w[k].list[i];

			r = add_place(x, t, join(x, group, t->name));
			if (value_append(x->a, names, value_str(x->a, t->name)) < 0)
				r = no_memory(x->e);
		}
		free(w[k].list);
	}
	return r < 0 ? r : add_names(x, group, "weight_names", names);
}

static int legacy_head(struct converter *x, struct value *layer_names)
{
	struct value *version = value_str(x->a, x->k->version), *backend = value_cstr(x->a, "tensorflow");
	struct str root = STR("model_weights");
	int r = add_names(x, root, "layer_names", layer_names);

	for (int i = 0; !r && i < 2; i++) {
		struct str at = i ? STR("") : root;

		r = add_group(x, at, STR("backend"), backend);
		if (!r && x->k->version.len)
			r = add_group(x, at, STR("keras_version"), version);
	}
	return r < 0 ? r : add_group(x, STR(""), STR("model_config"), value_str(x->a, x->k->config_text));
}

int keras_to_legacy(const struct model *m, struct keras_plan *out, struct error *e)
{
	struct converter x = {.m = m, .k = keras_of(m), .out = out, .a = out->a, .e = e};
	const struct value *layers = keras_layers(x.k->config);
	struct value *names = value_list(x.a);
	uint32_t at = 0;
	int r = prepare(&x);

	for (size_t i = 0; !r && i < layers->list.count; i++) {
		struct str name = layer_name(layers->list.items[i]);

		if (!name.len)
			continue;
		r = value_append(x.a, names, value_str(x.a, name)) < 0 ? no_memory(e) : 0;
		if (!r)
			r = legacy_layer(&x, name, op_of(&x, &m->graphs[0], name, &at));
	}
	if (!r)
		r = legacy_head(&x, names);
	return r < 0 ? r : place_rest(&x);
}

/* ---- Keras 3 ---- */

struct counted {
	char snake[96];
	unsigned count;
};

/* dense, dense_1, ... within one container */
static struct str component(struct converter *x, struct counted **seen, size_t *n, struct str class_name)
{
	char snake[96];
	size_t len = keras_snake_case(class_name, snake, sizeof(snake)), i = 0;
	struct counted *grown;

	snake[len] = 0;
	while (i < *n && strcmp((*seen)[i].snake, snake) != 0)
		i++;
	if (i < *n)
		return arena_printf(x->a, "%s_%u", snake, (*seen)[i].count++);
	grown = *n == PARTS_MAX ? NULL : reallocarray(*seen, *n + 1, sizeof(**seen));
	if (!grown)
		return (struct str){NULL, 0};
	*seen = grown;
	memcpy((*seen)[*n].snake, snake, len + 1);
	(*seen)[(*n)++].count = 1;
	return arena_printf(x->a, "%s", snake);
}

static int name_vars(struct converter *x, struct str path, struct str name)
{
	return add_group(x, join(x, path, STR("vars")), STR("name"), value_str(x->a, name));
}

static int put_vars(struct converter *x, struct str path, const struct weights *w, size_t from, size_t count)
{
	int r = 0;

	for (size_t i = 0; !r && i < count; i++)
		r = add_place(x, w->list[from + i], arena_printf(x->a, "%.*s/vars/%zu", (int)path.len, path.ptr, i));
	return r;
}

/* The part of a variable's name at `level` from its end: kernel is 0, lstm_cell 1. */
static struct str name_part(const struct tensor *t, unsigned level)
{
	struct str s = t->name;

	for (;; level--) {
		size_t i = s.len;

		while (i > 0 && s.ptr[i - 1] != '/')
			i--;
		if (!level || !i)
			return (struct str){s.ptr + i, s.len - i};
		s.len = i - 1;
	}
}

/* Runs of weights that share the part of the name at `level`, each into a part of the layer. */
static int put_parts(struct converter *x, struct str path, const struct weights *w, unsigned level,
	const char *const *parts, const char *inner, size_t part_count)
{
	size_t from = 0, part = 0;
	int r = 0;

	while (!r && from < w->count) {
		struct str own = name_part(w->list[from], level), at;
		size_t n = 1;

		while (from + n < w->count && str_eq(name_part(w->list[from + n], level), own))
			n++;
		if (part == part_count)
			return error_set(x->e, EOPNOTSUPP, "layer at '%.*s' has weights that Keras does not expect", STR_ARG(path));
		at = join(x, path, str_from(parts[part++]));
		r = name_vars(x, at, own);
		if (!r && inner) {
			at = join(x, at, str_from(inner));
			r = name_vars(x, at, name_part(w->list[from], level - 1));
		}
		r = r ? r : put_vars(x, at, w, from, n);
		from += n;
	}
	return r;
}

static int vars_layer(struct converter *x, struct str path, const struct value *layer, const struct op *op)
{
	static const char *const cell[] = {"cell"}, *const both[] = {"forward_layer", "backward_layer"},
		*const attention[] = {"query_dense", "key_dense", "value_dense", "output_dense"};
	struct str class_name = string_of(layer, "class_name"), name = layer_name(layer);
	struct weights w = {0};
	int r = op_weights(x, op, &w);

	r = refuse_quantised(x, name, &w);
	if (r < 0)
		goto out;
	if (str_is(class_name, "LSTM") || str_is(class_name, "GRU") || str_is(class_name, "SimpleRNN"))
		r = put_parts(x, path, &w, 1, cell, NULL, 1);
	else if (str_is(class_name, "Bidirectional"))
		r = put_parts(x, path, &w, 2, both, "cell", 2);
	else if (str_is(class_name, "MultiHeadAttention"))
		r = put_parts(x, path, &w, 1, attention, NULL, 4);
	else {
		for (size_t i = 0; !r && i < w.count; i++)
			if (!str_eq(name_part(w.list[i], 1), name))
				r = error_set(x->e, EOPNOTSUPP, "where Keras keeps '%.*s' of layer '%.*s' (%.*s) is not known",
					STR_ARG(w.list[i]->name), STR_ARG(name), STR_ARG(class_name));
		r = r ? r : put_vars(x, path, &w, 0, w.count);
	}
out:
	free(w.list);
	return r;
}

static int vars_model(struct converter *x, struct str path, const struct value *model, uint32_t graph, unsigned depth)
{
	const struct value *layers = keras_layers(model);
	struct counted *seen = NULL;
	size_t seen_count = 0;
	uint32_t at = 0;
	int r = name_vars(x, path, string_of(value_get(model, "config"), "name"));

	for (size_t i = 0; !r && i < layers->list.count; i++) {
		const struct value *layer = layers->list.items[i];
		struct str name = layer_name(layer);
		struct str part = component(x, &seen, &seen_count, string_of(layer, "class_name"));
		struct str own = join(x, join(x, path, STR("layers")), part);
		uint32_t op = op_of(x, &x->m->graphs[graph], name, &at);

		if (!part.ptr || !own.ptr)
			r = no_memory(x->e);
		else if (op != MODEL_NONE && x->graph_of[op] != MODEL_NONE)
			r = depth > LIMIT_NESTING ? error_set(x->e, EOPNOTSUPP, "models are nested too deeply")
						  : vars_model(x, own, layer, x->graph_of[op], depth + 1);
		else if (!(r = name_vars(x, own, name)) && op != MODEL_NONE)
			r = vars_layer(x, own, layer, &x->m->ops[op]);
	}
	free(seen);
	return r;
}

int keras_to_vars(const struct model *m, struct keras_plan *out, struct error *e)
{
	struct converter x = {.m = m, .k = keras_of(m), .out = out, .a = out->a, .e = e};
	int r = prepare(&x);

	if (!r)
		r = vars_model(&x, STR(""), x.k->config, 0, 0);
	return r < 0 ? r : place_rest(&x);
}

/* ---- config.json ---- */

/* Models get the module that .keras insists on; a copy only where something changes. */
static struct value *with_modules(struct arena *a, struct value *v, unsigned depth)
{
	struct str class_name = string_of(v, "class_name");
	bool functional = str_is(class_name, "Functional");
	struct value *out;

	if (!v || depth > LIMIT_NESTING || (v->kind != VALUE_MAP && v->kind != VALUE_LIST))
		return v;
	if (v->kind == VALUE_LIST) {
		out = value_list(a);
		for (size_t i = 0; i < v->list.count; i++)
			value_append(a, out, with_modules(a, v->list.items[i], depth + 1));
		return out;
	}
	out = value_map(a);
	for (size_t i = 0; i < v->map.count; i++)
		value_set(a, out, v->map.members[i].key, with_modules(a, v->map.members[i].value, depth + 1));
	if ((functional || str_is(class_name, "Sequential")) && value_get(v, "config") && !value_get(v, "module")) {
		value_set(a, out, STR("module"), value_cstr(a, functional ? "keras.src.models.functional" : "keras"));
		value_set(a, out, STR("registered_name"), functional ? value_cstr(a, "Functional") : value_null(a));
	}
	return out;
}

char *keras_modern_config(const struct keras *k, struct arena *a, size_t *len, struct error *e)
{
	struct json j = {0};
	char *text;

	if (!str_starts(k->version, STR("3"))) {
		error_set(e, EOPNOTSUPP, "a .keras archive needs a configuration of Keras 3, this one is of version '%.*s'",
			STR_ARG(k->version));
		return NULL;
	}
	if (!keras_json_is_plain(k->config_text)) {
		error_set(e, EOPNOTSUPP, "the configuration holds NaN or Infinity and cannot be written anew");
		return NULL;
	}
	json_value(&j, with_modules(a, k->config, 0));
	json_end(&j);
	text = json_take(&j, len);
	if (!text)
		no_memory(e);
	return text;
}
