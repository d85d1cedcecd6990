/* SPDX-License-Identifier: MIT */
/*
 * The graph of layers from a model's configuration: one op for each call of a layer. A shared layer's further calls are LAYER:1,
 * LAYER:2; its values LAYER, or LAYER:CALL:OUTPUT. A nested model is an op whose graph lies inside it.
 *
 *	Sequential   config.layers in a row
 *	Functional   config.layers[].inbound_nodes: Keras 2 [[["conv", 0, 0, {}]]], Keras 3 [{"args": [{"class_name":
 *	             "__keras_tensor__", "config": {"keras_history": ["conv", 0, 0]}}], "kwargs": {}}]
 */
#include "parsers/keras.h"

#include "parsers/core/limits.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define OUTPUTS_MAX 1024
#define STATISTICS_MAX 4096 /* elements of an adapted normalization that metadata.json shows */

struct ref {
	struct str layer;
	int64_t call, output;
};

struct refs {
	struct ref *list;
	size_t count, cap;
	bool failed;
};

struct job {
	const struct value *model;
	uint32_t parent;
	struct str prefix; /* what the names of its layers' variables begin with */
};

struct builder {
	struct keras *k;
	struct model *m;
	struct arena *a;
	struct named *sorted; /* tensors in order of name */
	struct job *jobs;
	size_t job_count, job_cap;
	struct refs used; /* of the present graph, sorted */
	struct error *e;
};

static int no_memory(struct builder *b)
{
	return error_set(b->e, ENOMEM, "out of memory for the graph");
}

static struct str string_of(const struct value *v, const char *key)
{
	const struct value *s = value_get(v, key);

	return s && s->kind == VALUE_STRING ? s->str : STR("");
}

/* ---- references between layers ---- */

static void refs_add(struct refs *r, struct ref x)
{
	if (r->count == r->cap) {
		size_t cap = r->cap ? r->cap * 2 : 32;
		void *grown = reallocarray(r->list, cap, sizeof(*r->list));

		if (!grown) {
			r->failed = true;
			return;
		}
		r->list = grown;
		r->cap = cap;
	}
	r->list[r->count++] = x;
}

/* ["conv", 0, 0] */
static bool take_ref(const struct value *v, struct ref *out)
{
	if (!v || v->kind != VALUE_LIST || v->list.count < 3 || v->list.items[0]->kind != VALUE_STRING ||
		v->list.items[1]->kind != VALUE_INT || v->list.items[2]->kind != VALUE_INT)
		return false;
	*out = (struct ref){v->list.items[0]->str, v->list.items[1]->integer, v->list.items[2]->integer};
	return out->call >= 0 && out->output >= 0 && out->output < OUTPUTS_MAX;
}

/* Every tensor in a call's arguments, in order. */
static void collect(const struct value *v, unsigned depth, struct refs *out)
{
	struct ref x;

	if (!v || depth > LIMIT_NESTING)
		return;
	if (take_ref(v, &x)) {
		refs_add(out, x);
		for (size_t i = 3; i < v->list.count; i++) /* keyword arguments of Keras 2 */
			collect(v->list.items[i], depth + 1, out);
	} else if (v->kind == VALUE_LIST) {
		for (size_t i = 0; i < v->list.count; i++)
			collect(v->list.items[i], depth + 1, out);
	} else if (v->kind == VALUE_MAP && str_is(string_of(v, "class_name"), "__keras_tensor__")) {
		if (take_ref(value_get(value_get(v, "config"), "keras_history"), &x))
			refs_add(out, x);
	} else if (v->kind == VALUE_MAP) {
		for (size_t i = 0; i < v->map.count; i++)
			collect(v->map.members[i].value, depth + 1, out);
	}
}

static int ref_cmp(const void *px, const void *py)
{
	const struct ref *x = px, *y = py;
	int c = str_cmp(x->layer, y->layer);

	if (!c)
		c = (x->call > y->call) - (x->call < y->call);
	return c ? c : (x->output > y->output) - (x->output < y->output);
}

/* Outputs of a call that anybody uses, at least one. */
static uint32_t output_count(const struct builder *b, struct str layer, int64_t call)
{
	struct ref key = {layer, call, OUTPUTS_MAX};
	size_t low = 0, high = b->used.count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (ref_cmp(&b->used.list[mid], &key) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	if (low && str_eq(b->used.list[low - 1].layer, layer) && b->used.list[low - 1].call == call)
		return (uint32_t)b->used.list[low - 1].output + 1;
	return 1;
}

static struct str value_name(struct builder *b, struct ref x)
{
	if (!x.call && !x.output)
		return x.layer;
	return arena_printf(b->a, "%.*s:%lld:%lld", (int)x.layer.len, x.layer.ptr, (long long)x.call,
		(long long)x.output);
}

/* ---- weights ---- */

struct named {
	struct str name;
	uint32_t tensor;
};

static int by_name(const void *px, const void *py)
{
	const struct named *x = px, *y = py;
	int c = str_cmp(x->name, y->name);

	return c ? c : (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

static int sort_tensors(struct builder *b)
{
	b->sorted = arena_array(b->a, b->m->tensor_count, sizeof(*b->sorted));
	if (!b->sorted)
		return no_memory(b);
	for (uint32_t i = 0; i < b->m->tensor_count; i++)
		b->sorted[i] = (struct named){b->m->tensors[i].name, i};
	if (b->m->tensor_count)
		qsort(b->sorted, b->m->tensor_count, sizeof(*b->sorted), by_name);
	return 0;
}

/* First of the sorted tensors whose name begins with "prefix/", and how many do. */
static size_t find_weights(const struct builder *b, struct str prefix, size_t *first)
{
	struct str key = arena_printf(b->a, "%.*s/", (int)prefix.len, prefix.ptr);
	size_t low = 0, high = b->m->tensor_count, n = 0;

	while (key.ptr && low < high) {
		size_t mid = low + (high - low) / 2;

		if (str_cmp(b->sorted[mid].name, key) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	*first = low;
	while (key.ptr && low + n < b->m->tensor_count && str_starts(b->sorted[low + n].name, key))
		n++;
	return n;
}

static int index_cmp(const void *x, const void *y)
{
	uint32_t i = *(const uint32_t *)x, j = *(const uint32_t *)y;

	return (i > j) - (i < j);
}

/* The layer's tensors in stored order; *list in the arena. */
static uint32_t weights_of(struct builder *b, struct str prefix, struct str layer, uint32_t **list)
{
	struct str full = arena_printf(b->a, "%.*s%.*s", (int)prefix.len, prefix.ptr, (int)layer.len, layer.ptr);
	size_t first = 0, n = full.ptr ? find_weights(b, full, &first) : 0;

	if (!n && prefix.len)
		n = find_weights(b, layer, &first);
	*list = arena_array(b->a, n, sizeof(**list));
	if (!*list || !n || n > LIMIT_OP_EDGES)
		return 0;
	for (size_t i = 0; i < n; i++)
		(*list)[i] = b->sorted[first + i].tensor;
	qsort(*list, n, sizeof(**list), index_cmp);
	return (uint32_t)n;
}

/* ---- ports ---- */

static enum dtype dtype_in(const struct value *config)
{
	const struct value *v = value_get(config, "dtype");

	if (v && v->kind == VALUE_MAP)
		v = value_get(value_get(v, "config"), "name");
	return v && v->kind == VALUE_STRING ? dtype_by_name(v->str) : DTYPE_NONE;
}

static const struct value *batch_shape(const struct value *config)
{
	const struct value *v = value_get(config, "batch_shape");

	v = v ? v : value_get(config, "batch_input_shape");
	return v && v->kind == VALUE_LIST && v->list.count <= LIMIT_RANK ? v : NULL;
}

static int set_port(struct builder *b, struct port *p, struct str name, const struct value *config,
	const struct value *shape)
{
	p->name = name;
	p->dtype = dtype_in(config);
	p->rank = -1;
	if (!shape)
		return 0;
	p->dims = arena_array(b->a, shape->list.count, sizeof(*p->dims));
	if (!p->dims)
		return no_memory(b);
	p->rank = (int32_t)shape->list.count;
	for (size_t i = 0; i < shape->list.count; i++)
		if (shape->list.items[i]->kind == VALUE_INT)
			p->dims[i] = shape->list.items[i];
	return 0;
}

/* ---- ops ---- */

static int enqueue(struct builder *b, struct job j)
{
	if (b->job_count == b->job_cap) {
		size_t cap = b->job_cap ? b->job_cap * 2 : 16;
		void *grown = reallocarray(b->jobs, cap, sizeof(*b->jobs));

		if (!grown)
			return no_memory(b);
		b->jobs = grown;
		b->job_cap = cap;
	}
	b->jobs[b->job_count++] = j;
	return 0;
}

static int nested_model(struct builder *b, const struct value *layer, struct str name, struct str prefix, uint32_t op)
{
	struct str class_name = string_of(layer, "class_name");
	bool scoped = !str_is(class_name, "Functional") && !str_is(class_name, "Model");
	struct str inner = scoped ? arena_printf(b->a, "%.*s%.*s/", (int)prefix.len, prefix.ptr, (int)name.len, name.ptr)
				  : prefix;

	return inner.ptr || !inner.len ? enqueue(b, (struct job){layer, op, inner}) : no_memory(b);
}

static int set_extra(struct builder *b, struct op *op, const struct value *layer)
{
	static const char *const keys[] = {"module", "registered_name", "build_config"};

	for (size_t i = 0; i < 3; i++) {
		struct value *v = value_get(layer, keys[i]);

		if (!v || v->kind == VALUE_NULL)
			continue;
		if (!op->extra)
			op->extra = value_map(b->a);
		if (value_set(b->a, op->extra, str_from(keys[i]), v) < 0)
			return no_memory(b);
	}
	return 0;
}

/* A nested model's attributes without its layers: they are ops of their own. */
static struct value *attributes_of(struct builder *b, const struct value *layer, bool nested)
{
	struct value *config = value_get(layer, "config"), *out;

	if (!nested || !config || config->kind != VALUE_MAP)
		return config && config->kind == VALUE_MAP ? config : NULL;
	out = value_map(b->a);
	for (size_t i = 0; i < config->map.count; i++)
		if (!str_is(config->map.members[i].key, "layers"))
			value_set(b->a, out, config->map.members[i].key, config->map.members[i].value);
	return out;
}

static int add_op(struct builder *b, uint32_t graph, const struct job *j, const struct value *layer, struct str name,
	int64_t call, const struct refs *inputs)
{
	bool nested = keras_layers(layer) != NULL;
	uint32_t *weights, count = nested ? 0 : weights_of(b, j->prefix, name, &weights), n = 0;
	struct op *op = model_add_op(b->m, b->e);

	if (!op)
		return -ENOMEM;
	op->graph = graph;
	op->name = call ? arena_printf(b->a, "%.*s:%lld", (int)name.len, name.ptr, (long long)call) : name;
	op->type = string_of(layer, "class_name");
	op->attributes = attributes_of(b, layer, nested);
	op->output_count = output_count(b, name, call);
	op->outputs = arena_array(b->a, op->output_count, sizeof(*op->outputs));
	op->inputs = arena_array(b->a, inputs->count + count, sizeof(*op->inputs));
	if (!op->outputs || !op->inputs || inputs->count + count > LIMIT_OP_EDGES)
		return no_memory(b);
	for (uint32_t i = 0; i < op->output_count; i++)
		op->outputs[i] = value_name(b, (struct ref){name, call, i});
	for (size_t i = 0; i < inputs->count; i++)
		op->inputs[n++] = (struct edge){.name = value_name(b, inputs->list[i]), .kind = EDGE_UNKNOWN};
	for (uint32_t i = 0; i < count; i++)
		op->inputs[n++] = (struct edge){.name = b->m->tensors[weights[i]].name, .kind = EDGE_TENSOR,
			.index = weights[i]};
	op->input_count = n;
	if (set_extra(b, op, layer) < 0)
		return -ENOMEM;
	return nested && !call ? nested_model(b, layer, name, j->prefix, b->m->op_count - 1) : 0;
}

static struct str layer_name(const struct value *layer)
{
	struct str name = string_of(layer, "name");

	return name.len ? name : string_of(value_get(layer, "config"), "name");
}

static bool is_input(const struct value *layer)
{
	return str_is(string_of(layer, "class_name"), "InputLayer");
}

/* ---- the two kinds of models ---- */

static const struct value *calls_of(const struct value *layer)
{
	const struct value *v = value_get(layer, "inbound_nodes");

	return v && v->kind == VALUE_LIST ? v : NULL;
}

static int functional_layer(struct builder *b, uint32_t graph, const struct job *j, const struct value *layer)
{
	const struct value *calls = calls_of(layer);
	size_t count = calls && calls->list.count ? calls->list.count : 1;
	int r = 0;

	for (size_t i = 0; !r && i < count; i++) {
		struct refs inputs = {0};

		if (calls && i < calls->list.count)
			collect(calls->list.items[i], 0, &inputs);
		r = inputs.failed ? no_memory(b)
				  : add_op(b, graph, j, layer, layer_name(layer), (int64_t)i, &inputs);
		free(inputs.list);
	}
	return r;
}

static int functional_outputs(struct builder *b, uint32_t graph, const struct refs *outputs)
{
	struct port *ports = arena_array(b->a, outputs->count, sizeof(*ports));

	if (!ports)
		return no_memory(b);
	for (size_t i = 0; i < outputs->count; i++)
		ports[i] = (struct port){.name = value_name(b, outputs->list[i]), .rank = -1};
	b->m->graphs[graph].outputs = ports;
	b->m->graphs[graph].output_count = (uint32_t)outputs->count;
	return 0;
}

static int functional(struct builder *b, uint32_t graph, const struct job *j, const struct value *layers)
{
	const struct value *config = value_get(j->model, "config");
	struct refs outputs = {0};
	struct port *ports = arena_array(b->a, layers->list.count, sizeof(*ports));
	uint32_t inputs = 0;
	int r = ports ? 0 : no_memory(b);

	collect(value_get(config, "output_layers"), 0, &outputs);
	for (size_t i = 0; i < layers->list.count; i++)
		collect(calls_of(layers->list.items[i]), 0, &b->used);
	for (size_t i = 0; i < outputs.count; i++)
		refs_add(&b->used, outputs.list[i]);
	if (b->used.failed || outputs.failed)
		r = no_memory(b);
	if (b->used.count)
		qsort(b->used.list, b->used.count, sizeof(*b->used.list), ref_cmp);
	for (size_t i = 0; !r && i < layers->list.count; i++) {
		const struct value *layer = layers->list.items[i], *own = value_get(layer, "config");

		r = is_input(layer) ? set_port(b, &ports[inputs++], layer_name(layer), own, batch_shape(own))
				    : functional_layer(b, graph, j, layer);
	}
	if (!r)
		r = functional_outputs(b, graph, &outputs);
	b->m->graphs[graph].inputs = ports;
	b->m->graphs[graph].input_count = inputs;
	free(outputs.list);
	return r;
}

/* The shape that a Sequential was built with. */
static const struct value *built_shape(const struct value *model, const struct value *layers)
{
	const struct value *v = layers->list.count ? batch_shape(value_get(layers->list.items[0], "config")) : NULL;

	v = v ? v : value_get(value_get(model, "config"), "build_input_shape");
	v = v ? v : value_get(value_get(model, "build_config"), "input_shape");
	return v && v->kind == VALUE_LIST && v->list.count <= LIMIT_RANK ? v : NULL;
}

static int sequential(struct builder *b, uint32_t graph, const struct job *j, const struct value *layers)
{
	struct port *ports = arena_array(b->a, 2, sizeof(*ports));
	struct ref last = {STR("input"), 0, 0};
	size_t i = 0;
	int r = ports ? 0 : no_memory(b);

	if (!r && layers->list.count) {
		const struct value *first = layers->list.items[0];

		if (is_input(first)) {
			last.layer = layer_name(first);
			i = 1;
		}
		r = set_port(b, &ports[0], last.layer, value_get(first, "config"), built_shape(j->model, layers));
	}
	for (; !r && i < layers->list.count; i++) {
		struct refs inputs = {&last, 1, 1, false};

		r = add_op(b, graph, j, layers->list.items[i], layer_name(layers->list.items[i]), 0, &inputs);
		last = (struct ref){layer_name(layers->list.items[i]), 0, 0};
	}
	if (r < 0)
		return r;
	ports[1] = (struct port){.name = last.layer, .rank = -1};
	b->m->graphs[graph].inputs = &ports[0];
	b->m->graphs[graph].outputs = &ports[1];
	b->m->graphs[graph].input_count = b->m->graphs[graph].output_count = layers->list.count ? 1 : 0;
	return 0;
}

static bool is_sequential(const struct value *model, const struct value *layers)
{
	if (str_is(string_of(model, "class_name"), "Sequential"))
		return true;
	for (size_t i = 0; i < layers->list.count; i++)
		if (calls_of(layers->list.items[i]))
			return false;
	return true;
}

static int build(struct builder *b, struct job j)
{
	const struct value *layers = keras_layers(j.model);
	struct graph *g = model_add_graph(b->m, b->e);
	uint32_t index = b->m->graph_count - 1;
	struct str name = string_of(value_get(j.model, "config"), "name");
	int r;

	if (!g)
		return -ENOMEM;
	g->label = j.parent == MODEL_NONE ? STR("") : STR("layers");
	g->parent_op = j.parent;
	g->first_op = b->m->op_count;
	if (name.len) {
		g->extra = value_map(b->a);
		value_set(b->a, g->extra, STR("name"), value_str(b->a, name));
	}
	b->used.count = 0;
	r = is_sequential(j.model, layers) ? sequential(b, index, &j, layers) : functional(b, index, &j, layers);
	b->m->graphs[index].op_count = b->m->op_count - b->m->graphs[index].first_op;
	return r;
}

/* ---- preprocessing ---- */

static struct value *root_of(struct arena *a, struct value *v)
{
	struct value *list;

	if (v && (v->kind == VALUE_FLOAT || v->kind == VALUE_INT))
		return value_float(a, sqrt(v->kind == VALUE_INT ? (double)v->integer : v->real));
	if (!v || v->kind != VALUE_LIST)
		return NULL;
	list = value_list(a);
	for (size_t i = 0; i < v->list.count; i++)
		value_append(a, list, root_of(a, v->list.items[i])); /* as deep as the JSON, which is bounded */
	return list;
}

/* Statistics that adapt() found are weights, not configuration. */
static struct value *statistic(struct builder *b, const struct op *op, const char *name, bool root)
{
	for (uint32_t i = 0; i < op->input_count; i++) {
		const struct tensor *t = op->inputs[i].kind == EDGE_TENSOR ? &b->m->tensors[op->inputs[i].index] : NULL;
		float numbers[STATISTICS_MAX];
		struct value *list;

		if (!t || !str_ends(t->name, str_from(name)) || t->dtype != DTYPE_FLOAT32 || t->problem.len ||
			t->flags & TENSOR_BIG_ENDIAN || !t->count || t->count > STATISTICS_MAX ||
			t->data.size != t->count * sizeof(float) ||
			extent_read(&t->data, 0, numbers, (size_t)t->data.size, NULL) < 0)
			continue;
		list = value_list(b->a);
		for (uint64_t k = 0; k < t->count; k++)
			value_append(b->a, list, value_float(b->a, root ? sqrt(numbers[k]) : numbers[k]));
		return list;
	}
	return NULL;
}

static int put(struct builder *b, const char *key, struct value *v)
{
	if (!v || v->kind == VALUE_NULL || value_get(b->k->implied_preprocessing, key))
		return 0; /* the first layer of its kind tells */
	if (!b->k->implied_preprocessing)
		b->k->implied_preprocessing = value_map(b->a);
	return value_set(b->a, b->k->implied_preprocessing, str_from(key), v) < 0 ? no_memory(b) : 0;
}

static struct value *size_of(struct builder *b, const struct value *config)
{
	struct value *h = value_get(config, "height"), *w = value_get(config, "width"), *list = value_list(b->a);

	return h && w && value_append(b->a, list, h) == 0 && value_append(b->a, list, w) == 0 ? list : NULL;
}

static int normalization(struct builder *b, const struct op *op)
{
	struct value *mean = value_get(op->attributes, "mean"), *variance = value_get(op->attributes, "variance");
	struct value *std = root_of(b->a, variance);

	if (!mean || mean->kind == VALUE_NULL)
		mean = statistic(b, op, "/mean", false);
	std = std ? std : statistic(b, op, "/variance", true);
	return put(b, "mean", mean) < 0 || put(b, "std", std) < 0 ? -ENOMEM : 0;
}

static int preprocessing(struct builder *b)
{
	int r = 0;

	for (uint32_t i = 0; !r && i < b->m->op_count; i++) {
		const struct op *op = &b->m->ops[i];

		if (str_is(op->type, "Normalization"))
			r = normalization(b, op);
		else if (str_is(op->type, "Rescaling"))
			r = put(b, "scale", value_get(op->attributes, "scale")) |
			    put(b, "offset", value_get(op->attributes, "offset"));
		else if (str_is(op->type, "Resizing"))
			r = put(b, "resize", size_of(b, op->attributes));
		else if (str_is(op->type, "CenterCrop"))
			r = put(b, "crop", size_of(b, op->attributes));
	}
	if (!value_get(b->m->meta.properties, "wiamodel.preprocessing"))
		b->m->meta.preprocessing = b->k->implied_preprocessing;
	return r < 0 ? -ENOMEM : 0;
}

/* Variables of a Sequential bear its name in Keras 3, but not in Keras 2; weights_of tries both. */
static struct str root_prefix(struct builder *b)
{
	struct str name = string_of(value_get(b->k->config, "config"), "name");

	if (!str_is(string_of(b->k->config, "class_name"), "Sequential") || !name.len)
		return STR("");
	return arena_printf(b->a, "%.*s/", (int)name.len, name.ptr);
}

int keras_add_graph(struct keras *k, struct error *e)
{
	struct builder b = {.k = k, .m = k->m, .a = k->m->arena, .e = e};
	int r = 0;

	if (!keras_layers(k->config))
		return 0;
	r = sort_tensors(&b);
	if (!r)
		r = enqueue(&b, (struct job){k->config, MODEL_NONE, root_prefix(&b)});
	for (size_t i = 0; !r && i < b.job_count; i++)
		r = build(&b, b.jobs[i]);
	if (!r)
		r = preprocessing(&b);
	free(b.jobs);
	free(b.used.list);
	return r;
}
