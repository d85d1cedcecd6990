/* SPDX-License-Identifier: MIT */
#include "parsers/core/model.h"

#include "parsers/core/check.h"
#include "parsers/core/codec.h"
#include "parsers/core/limits.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct model *model_new(const struct format *format)
{
	struct model *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->arena = arena_new(LIMIT_MODEL_MEMORY);
	if (!m->arena) {
		free(m);
		return NULL;
	}
	m->format = format;
	m->refs = 1;
	return m;
}

struct model *model_ref(struct model *m)
{
	if (m)
		__atomic_add_fetch(&m->refs, 1, __ATOMIC_RELAXED);
	return m;
}

/* Before model_finish sources in extents are not counted; codecs and maps were handed over by the driver. */
static void release_extent(const struct model *m, const struct extent *x)
{
	if (m->finished || x->kind == EXTENT_CODEC || x->kind == EXTENT_MAP)
		extent_unref(x);
}

void model_unref(struct model *m)
{
	if (!m || __atomic_sub_fetch(&m->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	for (uint32_t i = 0; i < m->tensor_count; i++)
		release_extent(m, &m->tensors[i].data);
	for (uint32_t i = 0; i < m->file_count; i++)
		release_extent(m, &m->files[i].data);
	for (uint32_t i = 0; i < m->source_count; i++)
		source_unref(m->sources[i]);
	free(m->tensors);
	free(m->files);
	free(m->by_name);
	free(m->by_id);
	if (!m->base) { /* an edited model borrows these, or keeps its own in the arena */
		free(m->ops);
		free(m->graphs);
		free(m->warnings);
	}
	free(m->sources);
	arena_free(m->arena);
	arena_free(m->edit_strings);
	model_unref(m->base);
	free(m);
}

/* Room for one more element in a heap array; zeroed. */
static void *grow(void **array, uint32_t *count, uint32_t *cap, size_t size, uint32_t limit,
	const char *what, struct error *e)
{
	if (*count >= limit) {
		error_set(e, EIO, "too many %s, at most %u are expected", what, limit);
		return NULL;
	}
	if (*count == *cap) {
		uint32_t wanted = *cap ? *cap * 2 : 16;
		void *p = reallocarray(*array, wanted, size);

		if (!p) {
			error_set(e, ENOMEM, "out of memory for %s", what);
			return NULL;
		}
		*array = p;
		*cap = wanted;
	}
	void *element = (char *)*array + (size_t)(*count)++ * size;

	memset(element, 0, size);
	return element;
}

struct tensor *model_add_tensor(struct model *m, struct error *e)
{
	struct tensor *t = grow((void **)&m->tensors, &m->tensor_count, &m->tensor_cap, sizeof(*t),
		LIMIT_TENSORS, "tensors", e);

	if (t) {
		t->alias_of = MODEL_NONE;
		t->base = MODEL_NONE;
		t->graph = MODEL_NONE;
	}
	return t;
}

struct op *model_add_op(struct model *m, struct error *e)
{
	return grow((void **)&m->ops, &m->op_count, &m->op_cap, sizeof(struct op), LIMIT_OPS, "ops", e);
}

struct graph *model_add_graph(struct model *m, struct error *e)
{
	struct graph *g = grow((void **)&m->graphs, &m->graph_count, &m->graph_cap, sizeof(*g),
		LIMIT_GRAPHS, "graphs", e);

	if (g) {
		g->parent_op = MODEL_NONE;
		g->scope = MODEL_NONE;
	}
	return g;
}

struct member_file *model_add_file(struct model *m, struct error *e)
{
	return grow((void **)&m->files, &m->file_count, &m->file_cap, sizeof(struct member_file),
		LIMIT_TENSORS, "files", e);
}

int model_add_source(struct model *m, struct source *s, struct error *e)
{
	struct source **slot = grow((void **)&m->sources, &m->source_count, &m->source_cap,
		sizeof(*slot), LIMIT_TENSORS, "source files", e);

	if (!slot)
		return -ENOMEM;
	*slot = source_ref(s);
	return 0;
}

void model_warn(struct model *m, const char *format, ...)
{
	char text[512];
	va_list ap;
	struct str *slot;

	/* a hostile file must not make a list of its own length: the first hundred tell enough */
	if (m->warning_count >= 100)
		return;
	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	slot = grow((void **)&m->warnings, &m->warning_count, &m->warning_cap, sizeof(*slot), 100,
		"warnings", NULL);
	if (slot)
		*slot = arena_str(m->arena, text, strlen(text));
}

void tensor_damage(struct model *m, struct tensor *t, const char *format, ...)
{
	char text[512];
	va_list ap;

	if (t->problem.len)
		return;
	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	t->problem = arena_str(m->arena, text, strlen(text));
	if (!t->problem.ptr)
		t->problem = STR("damaged");
}

int tensor_set_shape(struct model *m, struct tensor *t, const uint64_t *shape, uint32_t rank,
	struct error *e)
{
	if (rank > LIMIT_RANK)
		return error_set(e, EIO, "tensor '%.*s' has rank %u, at most %d is expected",
			STR_ARG(t->name), rank, LIMIT_RANK);
	if (shape_count(shape, rank, &t->count) < 0)
		return error_set(e, EIO, "shape of tensor '%.*s' overflows", STR_ARG(t->name));
	t->shape = arena_array(m->arena, rank, sizeof(*shape));
	if (!t->shape)
		return error_set(e, ENOMEM, "out of memory");
	if (rank)
		memcpy(t->shape, shape, rank * sizeof(*shape));
	t->rank = rank;
	return 0;
}

/* The extent lies where it says; a range outside its source makes the tensor read as EIO. */
static void check_extent(struct model *m, struct tensor *t)
{
	const struct extent *x = &t->data;
	uint64_t end, have;

	if (x->kind == EXTENT_SOURCE)
		have = source_size(x->src);
	else if (x->kind == EXTENT_CODEC)
		have = x->codec->size;
	else if (x->kind == EXTENT_MAP)
		have = x->map->size;
	else
		return;
	if (ckd_add(&end, x->offset, x->size) || end > have)
		tensor_damage(m, t, "data at %llu, size %llu, ends outside the %llu bytes of %s",
			(unsigned long long)x->offset, (unsigned long long)x->size,
			(unsigned long long)have,
			x->kind == EXTENT_SOURCE ? source_name(x->src) : "its decoded form");
}

static int finish_tensor(struct model *m, struct tensor *t, struct error *e)
{
	const struct dtype_info *info = dtype_info(t->dtype);
	uint64_t bytes;

	if (t->data.kind == EXTENT_SOURCE)
		source_ref(t->data.src); /* from here on every extent holds a reference */
	if (!info || t->rank > LIMIT_RANK || shape_count(t->shape, t->rank, &t->count) < 0)
		return error_set(e, EIO, "shape of tensor '%.*s' overflows", STR_ARG(t->name));
	check_extent(m, t);
	if (t->dtype == DTYPE_STRING) {
		if (!t->strings && t->count)
			tensor_damage(m, t, "has no strings, expected %llu",
				(unsigned long long)t->count);
		return 0;
	}
	if (t->dtype == DTYPE_NONE)
		return 0;
	if (dtype_bytes(t->dtype, t->count, &bytes) < 0)
		return error_set(e, EIO, "size of tensor '%.*s' overflows", STR_ARG(t->name));
	if (t->data.size != bytes) {
		tensor_damage(m, t, "holds %llu bytes, shape and dtype need %llu",
			(unsigned long long)t->data.size, (unsigned long long)bytes);
		extent_unref(&t->data);
		t->data = extent_zero(bytes); /* sizes stay those the shape promises; reads give EIO */
	}
	if (t->alias_of != MODEL_NONE && t->alias_of >= m->tensor_count)
		return error_set(e, EIO, "tensor '%.*s' is an alias of no tensor", STR_ARG(t->name));
	return 0;
}

/* ---- edges: names of a graph's scope -> where the value comes from ---- */

struct scope_slot {
	struct str name;
	uint32_t graph;
	enum edge_kind kind; /* EDGE_NONE = free */
	uint32_t index, output;
};

struct scope_table {
	struct scope_slot *slots;
	uint64_t mask;
};

static uint64_t scope_hash(uint32_t graph, struct str name)
{
	return str_hash(name) * 31 + graph * 0x9e3779b97f4a7c15ull;
}

static struct scope_slot *scope_find(const struct scope_table *t, uint32_t graph, struct str name)
{
	uint64_t i = scope_hash(graph, name) & t->mask;

	while (t->slots[i].kind != EDGE_NONE &&
		!(t->slots[i].graph == graph && str_eq(t->slots[i].name, name)))
		i = (i + 1) & t->mask;
	return &t->slots[i];
}

/* The first definition stands: initializers, then op outputs, then graph inputs. */
static void scope_define(struct scope_table *t, uint32_t graph, struct str name, enum edge_kind kind,
	uint32_t index, uint32_t output)
{
	struct scope_slot *s;

	if (!name.len)
		return;
	s = scope_find(t, graph, name);
	if (s->kind == EDGE_NONE)
		*s = (struct scope_slot){name, graph, kind, index, output};
}

static void scope_fill(struct scope_table *table, const struct model *m)
{
	for (uint32_t i = 0; i < m->tensor_count; i++) {
		const struct tensor *t = &m->tensors[i];

		if (t->graph != MODEL_NONE)
			scope_define(table, t->graph, t->local.len ? t->local : t->name, EDGE_TENSOR, i, 0);
	}
	for (uint32_t i = 0; i < m->op_count; i++)
		for (uint32_t k = 0; k < m->ops[i].output_count; k++)
			scope_define(table, m->ops[i].graph, m->ops[i].outputs[k], EDGE_OP, i, k);
	for (uint32_t g = 0; g < m->graph_count; g++)
		for (uint32_t k = 0; k < m->graphs[g].input_count; k++)
			scope_define(table, g, m->graphs[g].inputs[k].name, EDGE_INPUT, g, k);
}

static void resolve_edge(const struct scope_table *table, const struct model *m, uint32_t graph,
	struct edge *edge)
{
	if (!edge->name.len) {
		edge->kind = EDGE_NONE;
		return;
	}
	for (uint32_t depth = 0; graph != MODEL_NONE && depth < LIMIT_NESTING; depth++) {
		const struct scope_slot *s = scope_find(table, graph, edge->name);

		if (s->kind != EDGE_NONE) {
			edge->kind = s->kind;
			edge->index = s->index;
			edge->output = s->output;
			return;
		}
		graph = m->graphs[graph].scope;
	}
}

static int check_edge(const struct model *m, const struct op *op, const struct edge *edge,
	struct error *e)
{
	bool bad = (edge->kind == EDGE_TENSOR && edge->index >= m->tensor_count) ||
		   (edge->kind == EDGE_OP && (edge->index >= m->op_count ||
			   edge->output >= m->ops[edge->index].output_count)) ||
		   (edge->kind == EDGE_INPUT && edge->index >= m->graph_count);

	if (bad)
		return error_set(e, EIO, "input '%.*s' of op '%.*s' refers to nothing",
			STR_ARG(edge->name), STR_ARG(op->name));
	return 0;
}

static int check_graphs(const struct model *m, struct error *e)
{
	for (uint32_t g = 0; g < m->graph_count; g++) {
		const struct graph *graph = &m->graphs[g];
		uint32_t end;

		if (ckd_add(&end, graph->first_op, graph->op_count) || end > m->op_count ||
			(graph->parent_op != MODEL_NONE && graph->parent_op >= m->op_count) ||
			(graph->scope != MODEL_NONE && graph->scope >= g))
			return error_set(e, EIO, "graph '%.*s' refers outside the model",
				STR_ARG(graph->label));
	}
	for (uint32_t i = 0; i < m->op_count; i++)
		if (m->ops[i].graph >= m->graph_count)
			return error_set(e, EIO, "op '%.*s' belongs to no graph",
				STR_ARG(m->ops[i].name));
	return 0;
}

static int finish_edges(struct model *m, struct error *e)
{
	struct scope_table table = {0};
	uint64_t names = 16, slots = 64;
	int r = check_graphs(m, e);

	if (r < 0)
		return r;
	if (!m->op_count)
		return 0;
	names += m->tensor_count;
	for (uint32_t i = 0; i < m->op_count; i++)
		names += m->ops[i].output_count;
	for (uint32_t g = 0; g < m->graph_count; g++)
		names += m->graphs[g].input_count;
	while (slots < names * 2)
		slots *= 2;
	table.slots = calloc(slots, sizeof(*table.slots));
	if (!table.slots)
		return error_set(e, ENOMEM, "out of memory for %llu names", (unsigned long long)names);
	table.mask = slots - 1;
	scope_fill(&table, m);
	for (uint32_t i = 0; i < m->op_count && r == 0; i++) {
		struct op *op = &m->ops[i];

		for (uint32_t k = 0; k < op->input_count && r == 0; k++) {
			if (op->inputs[k].kind == EDGE_UNKNOWN)
				resolve_edge(&table, m, op->graph, &op->inputs[k]);
			r = check_edge(m, op, &op->inputs[k], e);
		}
	}
	free(table.slots);
	return r;
}

/* ---- indexes ---- */

int model_index(struct model *m)
{
	uint32_t slots = 16;

	while (slots < m->tensor_count * 2u)
		slots *= 2;
	free(m->by_name);
	free(m->by_id);
	m->by_name = malloc(slots * sizeof(*m->by_name));
	m->by_id = malloc((m->next_id ? m->next_id : 1) * sizeof(*m->by_id));
	if (!m->by_name || !m->by_id)
		return -ENOMEM;
	memset(m->by_name, 0xff, slots * sizeof(*m->by_name));
	memset(m->by_id, 0xff, m->next_id * sizeof(*m->by_id));
	m->by_name_mask = slots - 1;
	for (uint32_t i = 0; i < m->tensor_count; i++) {
		uint32_t s = (uint32_t)str_hash(m->tensors[i].name) & m->by_name_mask;

		while (m->by_name[s] != MODEL_NONE &&
			!str_eq(m->tensors[m->by_name[s]].name, m->tensors[i].name))
			s = (s + 1) & m->by_name_mask;
		if (m->by_name[s] == MODEL_NONE)
			m->by_name[s] = i;
		m->by_id[m->tensors[i].id] = i;
	}
	return 0;
}

uint32_t model_find_tensor(const struct model *m, struct str name)
{
	uint32_t s = (uint32_t)str_hash(name) & m->by_name_mask;

	if (!m->by_name)
		return MODEL_NONE;
	while (m->by_name[s] != MODEL_NONE) {
		if (str_eq(m->tensors[m->by_name[s]].name, name))
			return m->by_name[s];
		s = (s + 1) & m->by_name_mask;
	}
	return MODEL_NONE;
}

uint32_t model_tensor_by_id(const struct model *m, uint32_t id)
{
	return m->by_id && id < m->next_id ? m->by_id[id] : MODEL_NONE;
}

int model_adopt_ids(struct model *m, const struct model *old)
{
	uint32_t next = old->next_id;

	for (uint32_t i = 0; i < m->tensor_count; i++) {
		uint32_t was = model_find_tensor(old, m->tensors[i].name);
		bool first = model_find_tensor(m, m->tensors[i].name) == i;

		m->tensors[i].id = was != MODEL_NONE && first ? old->tensors[was].id : next++;
	}
	m->next_id = next;
	return model_index(m);
}

static void warn_of_equal_names(struct model *m)
{
	for (uint32_t i = 0; i < m->tensor_count; i++)
		if (model_find_tensor(m, m->tensors[i].name) != i)
			model_warn(m, "tensor name '%.*s' is used more than once",
				STR_ARG(m->tensors[i].name));
}

int model_finish(struct model *m, struct error *e)
{
	int r = 0;

	m->finished = true;
	for (uint32_t i = 0; i < m->tensor_count; i++) {
		m->tensors[i].id = i;
		/* all must be visited even after a failure: references are counted here */
		int bad = finish_tensor(m, &m->tensors[i], r ? NULL : e);

		r = r ? r : bad;
	}
	m->next_id = m->tensor_count;
	for (uint32_t i = 0; i < m->file_count; i++)
		if (m->files[i].data.kind == EXTENT_SOURCE)
			source_ref(m->files[i].data.src);
	if (r < 0)
		return r;
	m->edit_strings = arena_new(LIMIT_MODEL_MEMORY);
	if (!m->edit_strings || model_index(m) < 0)
		return error_set(e, ENOMEM, "out of memory");
	warn_of_equal_names(m);
	return finish_edges(m, e);
}

uint64_t model_parameter_count(const struct model *m)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < m->tensor_count; i++)
		if (m->tensors[i].alias_of == MODEL_NONE && ckd_add(&sum, sum, m->tensors[i].count))
			return UINT64_MAX;
	return sum;
}
