/* SPDX-License-Identifier: MIT */
/*
 * Graphs of ONNX. A graph's ops are neighbours in the model, so graphs are walked one after the other: a subgraph
 * met in an attribute waits in a queue until the graph around it is done.
 */
#include "parsers/onnx_read.h"

#include "parsers/core/limits.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- queue ---- */

static int queue(struct onnx_reader *x, struct onnx_pending next, struct str label, uint32_t parent_op,
	uint32_t scope)
{
	struct graph *g;

	if (!label.ptr || !next.prefix.ptr)
		return onnx_no_memory(x);
	g = model_add_graph(x->m, x->e);
	if (!g)
		return -ENOMEM;
	g->label = label;
	g->parent_op = parent_op;
	g->scope = scope;
	next.graph = x->m->graph_count - 1;
	if (x->pending_count == x->pending_cap) {
		uint32_t cap = x->pending_cap ? x->pending_cap * 2 : 16;
		struct onnx_pending *grown = reallocarray(x->pending, cap, sizeof(*grown));

		if (!grown)
			return onnx_no_memory(x);
		x->pending = grown;
		x->pending_cap = cap;
	}
	x->pending[x->pending_count++] = next;
	return 0;
}

int onnx_queue_graph(struct onnx_reader *x, const Wia__Onnx__Graph *g, struct str label, uint32_t parent_op,
	uint32_t scope, struct str prefix)
{
	return queue(x, (struct onnx_pending){.proto = g, .prefix = prefix}, label, parent_op, scope);
}

/* DOMAIN.NAME, with :OVERLOAD where there is one */
int onnx_queue_function(struct onnx_reader *x, const Wia__Onnx__Function *f)
{
	struct str label = onnx_keep(x, f->name);

	if (f->domain.len)
		label = onnx_join(x, onnx_str(f->domain), STR("."), label);
	if (f->overload.len)
		label = onnx_join(x, label, STR(":"), onnx_str(f->overload));
	return queue(x, (struct onnx_pending){.function = f, .prefix = onnx_join(x, STR("functions/"), label, STR("/"))},
		label, MODEL_NONE, MODEL_NONE);
}

/* ---- types of values ---- */

static const char *element_name(struct onnx_reader *x, int32_t type)
{
	struct str number;

	if (type > 0 && type < onnx_type_count)
		return dtype_info(onnx_types[type].dtype)->name;
	number = arena_printf(x->m->arena, "type %d", type);
	return number.ptr ? number.ptr : "?";
}

/* "float32[1,N,?]"; without a shape the rank is unknown: "float32" */
static struct str tensor_text(struct onnx_reader *x, const Wia__Onnx__TensorType *t)
{
	struct str text = str_from(element_name(x, t->elem_type));

	for (size_t i = 0; t->shape && i < t->shape->n_dim && text.ptr; i++) {
		const Wia__Onnx__Dimension *d = t->shape->dim[i];
		struct str dim = d->has_dim_value ? arena_printf(x->m->arena, "%lld", (long long)d->dim_value)
				 : d->has_dim_param && d->dim_param.len ? onnx_str(d->dim_param)
									: STR("?");

		text = onnx_join(x, text, i ? STR(",") : STR("["), dim);
	}
	if (t->shape && text.ptr)
		text = onnx_join(x, text, t->shape->n_dim ? STR("") : STR("["), STR("]"));
	return text;
}

/* "sequence(map(int64,float32))": as deep as the file, which the scanner bounds. */
static struct str type_text(struct onnx_reader *x, const Wia__Onnx__Type *t)
{
	struct str open = {NULL, 0}, close = STR("");

	while (t && !t->tensor_type) {
		const Wia__Onnx__Type *inner = NULL;
		struct str word;

		if (t->sequence_type) {
			word = STR("sequence(");
			inner = t->sequence_type->elem_type;
		} else if (t->optional_type) {
			word = STR("optional(");
			inner = t->optional_type->elem_type;
		} else if (t->map_type) {
			word = onnx_join(x, STR("map("), str_from(element_name(x, t->map_type->key_type)), STR(","));
			inner = t->map_type->value_type;
		} else {
			break;
		}
		open = onnx_join(x, open, word, STR(""));
		close = onnx_join(x, close, STR(")"), STR(""));
		t = inner;
	}
	if (t && t->tensor_type)
		return onnx_join(x, open, tensor_text(x, t->tensor_type), close);
	if (t && t->sparse_tensor_type) {
		open = onnx_join(x, open, STR("sparse_tensor("), tensor_text(x, t->sparse_tensor_type));
		return onnx_join(x, open, STR(")"), close);
	}
	if (t && t->opaque_type) {
		open = onnx_join(x, open, STR("opaque("), onnx_str(t->opaque_type->domain));
		open = onnx_join(x, open, STR("."), onnx_str(t->opaque_type->name));
		return onnx_join(x, open, STR(")"), close);
	}
	return onnx_join(x, open, STR("?"), close);
}

static int set_dims(struct onnx_reader *x, struct port *p, const Wia__Onnx__Shape *s)
{
	struct arena *a = x->m->arena;
	struct value *denotations = NULL;
	bool denoted = false;

	if (s->n_dim > LIMIT_OP_EDGES)
		return error_set(x->e, EIO, "value '%.*s' has %zu dimensions", STR_ARG(p->name), s->n_dim);
	p->rank = (int32_t)s->n_dim;
	p->dims = arena_array(a, s->n_dim, sizeof(*p->dims));
	denotations = value_list(a);
	if (!p->dims)
		return onnx_no_memory(x);
	for (size_t i = 0; i < s->n_dim; i++) {
		const Wia__Onnx__Dimension *d = s->dim[i];

		p->dims[i] = d->has_dim_value ? value_int(a, d->dim_value)
			     : d->has_dim_param && d->dim_param.len ? value_str(a, onnx_keep(x, d->dim_param))
								    : value_null(a);
		denoted |= d->denotation.len > 0;
		if (!p->dims[i] || value_append(a, denotations, value_str(a, onnx_keep(x, d->denotation))) < 0)
			return onnx_no_memory(x);
	}
	return denoted ? onnx_set(x, &p->extra, "denotations", denotations) : 0;
}

static int set_port(struct onnx_reader *x, struct port *p, const Wia__Onnx__ValueInfo *v)
{
	const Wia__Onnx__Type *t = v->type;
	int r = 0;

	*p = (struct port){.name = onnx_keep(x, v->name), .rank = -1};
	if (!p->name.ptr)
		return onnx_no_memory(x);
	if (t && t->tensor_type) {
		int32_t type = t->tensor_type->elem_type;

		if (type > 0 && type < onnx_type_count)
			p->dtype = onnx_types[type].dtype;
		else
			p->stored_type = element_name(x, type);
		if (t->tensor_type->shape)
			r = set_dims(x, p, t->tensor_type->shape);
	} else if (t) {
		p->stored_type = type_text(x, t).ptr;
	}
	if (r == 0 && t)
		r = onnx_set_text(x, &p->extra, "denotation", t->denotation);
	if (r == 0)
		r = onnx_set_text(x, &p->extra, "doc_string", v->doc_string);
	if (r == 0 && v->n_metadata_props)
		r = onnx_set(x, &p->extra, "metadata_props",
			onnx_entries(x, v->metadata_props, v->n_metadata_props, "a value"));
	return r;
}

static int set_ports(struct onnx_reader *x, struct port **out, uint32_t *count, Wia__Onnx__ValueInfo *const *list,
	size_t n)
{
	int r = 0;

	if (n > LIMIT_OP_EDGES)
		return error_set(x->e, EIO, "a graph has %zu inputs or outputs, at most %u are expected", n,
			LIMIT_OP_EDGES);
	*out = arena_array(x->m->arena, n, sizeof(**out));
	if (!*out)
		return onnx_no_memory(x);
	*count = (uint32_t)n;
	for (size_t i = 0; i < n && r == 0; i++)
		r = set_port(x, &(*out)[i], list[i]);
	return r;
}

static int set_names(struct onnx_reader *x, struct port **out, uint32_t *count, const ProtobufCBinaryData *names,
	size_t n)
{
	if (n > LIMIT_OP_EDGES)
		return error_set(x->e, EIO, "a function has %zu inputs or outputs, at most %u are expected", n,
			LIMIT_OP_EDGES);
	*out = arena_array(x->m->arena, n, sizeof(**out));
	if (!*out)
		return onnx_no_memory(x);
	*count = (uint32_t)n;
	for (size_t i = 0; i < n; i++) {
		(*out)[i] = (struct port){.name = onnx_keep(x, names[i]), .rank = -1};
		if (!(*out)[i].name.ptr)
			return onnx_no_memory(x);
	}
	return 0;
}

/* ---- attributes ---- */

/* The op that an attribute belongs to, and how names below it begin. */
struct owner {
	uint32_t op, graph;
	struct str prefix;  /* of the graph */
	struct str name;    /* the op's, or its first output's */
	struct str output;  /* of a Constant: its tensor is called so; else empty */
};

static struct value *reference(struct onnx_reader *x, const char *key, struct str name)
{
	struct value *map = value_map(x->m->arena);

	return onnx_set(x, &map, key, value_str(x->m->arena, name)) < 0 ? NULL : map;
}

/* OP.ATTRIBUTE, in a list OP.ATTRIBUTE.K; below the graph's prefix */
static struct str attribute_name(struct onnx_reader *x, const struct owner *o, const Wia__Onnx__Attribute *a,
	size_t k, size_t of)
{
	struct str name = onnx_join(x, onnx_join(x, o->prefix, o->name, STR(".")), onnx_str(a->name), STR(""));
	char number[24];

	if (!of)
		return name;
	snprintf(number, sizeof(number), ".%zu", k);
	return onnx_join(x, name, str_from(number), STR(""));
}

static int tensor_value(struct onnx_reader *x, const struct owner *o, const Wia__Onnx__Tensor *t, struct str name,
	struct value **out)
{
	struct str local = {NULL, 0};
	uint32_t index, graph = MODEL_NONE;
	int r;

	if (o->output.len) { /* a Constant: the ops that read it link to the tensor */
		local = o->output;
		name = onnx_join(x, o->prefix, local, STR(""));
		graph = o->graph;
	}
	r = onnx_add_tensor(x, t, name, local, graph, true, &index);
	if (r == 0)
		*out = reference(x, "tensor", name);
	return r;
}

static int sparse_value(struct onnx_reader *x, const struct owner *o, const Wia__Onnx__SparseTensor *t,
	struct str name, struct value **out)
{
	uint32_t index;
	int r;

	if (o->output.len)
		name = onnx_join(x, o->prefix, o->output, STR(""));
	r = onnx_add_sparse(x, t, name, STR(""), MODEL_NONE, true, &index);
	if (r == 0)
		*out = reference(x, "sparse_tensor", name);
	return r;
}

static int graph_value(struct onnx_reader *x, const struct owner *o, const Wia__Onnx__Graph *g, struct str label,
	struct value **out)
{
	struct str prefix = onnx_join(x, onnx_join(x, o->prefix, o->name, STR("/")), label, STR("/"));

	*out = reference(x, "graph", label);
	return onnx_queue_graph(x, g, label, o->op, o->graph, prefix);
}

static struct value *list_value(struct onnx_reader *x, const Wia__Onnx__Attribute *a)
{
	struct arena *arena = x->m->arena;
	struct value *list = value_list(arena);
	bool ok = list != NULL;

	for (size_t i = 0; ok && i < a->n_floats; i++)
		ok = value_append(arena, list, value_float32(arena, a->floats[i])) == 0;
	for (size_t i = 0; ok && i < a->n_ints; i++)
		ok = value_append(arena, list, value_int(arena, a->ints[i])) == 0;
	for (size_t i = 0; ok && i < a->n_strings; i++)
		ok = value_append(arena, list, value_str(arena, onnx_keep(x, a->strings[i]))) == 0;
	for (size_t i = 0; ok && i < a->n_type_protos; i++)
		ok = value_append(arena, list, value_str(arena, type_text(x, a->type_protos[i]))) == 0;
	return ok ? list : NULL;
}

static int list_of_messages(struct onnx_reader *x, const struct owner *o, const Wia__Onnx__Attribute *a,
	struct value **out)
{
	struct arena *arena = x->m->arena;
	struct value *item;
	int r = 0;

	*out = value_list(arena);
	for (size_t i = 0; r == 0 && i < a->n_tensors; i++) {
		r = tensor_value(x, o, a->tensors[i], attribute_name(x, o, a, i, a->n_tensors), &item);
		if (r == 0 && value_append(arena, *out, item) < 0)
			r = onnx_no_memory(x);
	}
	for (size_t i = 0; r == 0 && i < a->n_sparse_tensors; i++) {
		r = sparse_value(x, o, a->sparse_tensors[i], attribute_name(x, o, a, i, a->n_sparse_tensors), &item);
		if (r == 0 && value_append(arena, *out, item) < 0)
			r = onnx_no_memory(x);
	}
	for (size_t i = 0; r == 0 && i < a->n_graphs; i++) {
		char number[24];

		snprintf(number, sizeof(number), ".%zu", i);
		r = graph_value(x, o, a->graphs[i], onnx_join(x, onnx_str(a->name), str_from(number), STR("")), &item);
		if (r == 0 && value_append(arena, *out, item) < 0)
			r = onnx_no_memory(x);
	}
	return r;
}

static bool has_blob(const struct onnx_reader *x, const Wia__Onnx__Attribute *a)
{
	return !a->has_s && a->has_record && a->record < x->skeleton.record_count &&
	       x->skeleton.records[a->record].payload_count > 0;
}

/* By what is there, since `type` came with IR version 2; an empty list has nothing but its type. */
static int attribute_value(struct onnx_reader *x, const struct owner *o, const Wia__Onnx__Attribute *a,
	struct value **out)
{
	struct arena *arena = x->m->arena;
	int r;

	*out = NULL;
	if (a->ref_attr_name.len)
		*out = reference(x, "ref_attr_name", onnx_keep(x, a->ref_attr_name));
	else if (a->t)
		return tensor_value(x, o, a->t, attribute_name(x, o, a, 0, 0), out);
	else if (a->g)
		return graph_value(x, o, a->g, onnx_keep(x, a->name), out);
	else if (a->sparse_tensor)
		return sparse_value(x, o, a->sparse_tensor, attribute_name(x, o, a, 0, 0), out);
	else if (a->n_tensors || a->n_graphs || a->n_sparse_tensors)
		return list_of_messages(x, o, a, out);
	else if (has_blob(x, a)) {
		struct str name = attribute_name(x, o, a, 0, 0);

		r = onnx_add_blob(x, a, name);
		*out = reference(x, "tensor", name);
		return r;
	} else if (a->n_floats || a->n_ints || a->n_strings || a->n_type_protos)
		*out = list_value(x, a);
	else if (a->tp)
		*out = value_str(arena, type_text(x, a->tp));
	else if (a->has_s || a->type == 3)
		*out = value_str(arena, onnx_keep(x, a->s));
	else if (a->has_i || a->type == 2)
		*out = value_int(arena, a->i);
	else if (a->has_f || a->type == 1)
		*out = value_float32(arena, a->f);
	else
		*out = a->type >= 6 ? value_list(arena) : value_null(arena);
	return *out ? 0 : onnx_no_memory(x);
}

static int set_attributes(struct onnx_reader *x, struct owner *o, const Wia__Onnx__Node *n)
{
	struct value *map = n->n_attribute ? value_map(x->m->arena) : NULL;

	for (size_t i = 0; i < n->n_attribute; i++) {
		const Wia__Onnx__Attribute *a = n->attribute[i];
		struct value *v;
		int r;

		o->output = str_is(onnx_str(n->op_type), "Constant") && n->n_output && a->n_tensors == 0 &&
					    (a->t || a->sparse_tensor)
				    ? x->m->ops[o->op].outputs[0]
				    : STR("");
		r = attribute_value(x, o, a, &v);
		if (r < 0)
			return r;
		if (value_set(x->m->arena, map, onnx_keep(x, a->name), v) < 0)
			return onnx_no_memory(x);
	}
	x->m->ops[o->op].attributes = map;
	return 0;
}

/* ---- ops ---- */

static int set_edges(struct onnx_reader *x, struct op *op, const Wia__Onnx__Node *n)
{
	if (n->n_input > LIMIT_OP_EDGES || n->n_output > LIMIT_OP_EDGES)
		return error_set(x->e, EIO, "op '%.*s' has %zu inputs and %zu outputs, at most %u are expected",
			STR_ARG(op->name), n->n_input, n->n_output, LIMIT_OP_EDGES);
	op->input_count = (uint32_t)n->n_input;
	op->output_count = (uint32_t)n->n_output;
	op->inputs = arena_array(x->m->arena, n->n_input, sizeof(*op->inputs));
	op->outputs = arena_array(x->m->arena, n->n_output, sizeof(*op->outputs));
	if (!op->inputs || !op->outputs)
		return onnx_no_memory(x);
	for (size_t i = 0; i < n->n_input; i++) {
		op->inputs[i] = (struct edge){.name = onnx_keep(x, n->input[i]), .kind = EDGE_UNKNOWN};
		if (!op->inputs[i].name.ptr)
			return onnx_no_memory(x);
	}
	for (size_t i = 0; i < n->n_output; i++) {
		op->outputs[i] = onnx_keep(x, n->output[i]);
		if (!op->outputs[i].ptr)
			return onnx_no_memory(x);
	}
	return 0;
}

static int add_op(struct onnx_reader *x, const struct onnx_pending *p, const Wia__Onnx__Node *n)
{
	struct op *op = model_add_op(x->m, x->e);
	struct owner o = {.op = x->m->op_count - 1, .graph = p->graph, .prefix = p->prefix};
	int r;

	if (!op)
		return -ENOMEM;
	op->graph = p->graph;
	op->name = onnx_keep(x, n->name);
	op->type = onnx_keep(x, n->op_type);
	op->domain = onnx_keep(x, n->domain);
	if (!op->name.ptr || !op->type.ptr || !op->domain.ptr)
		return onnx_no_memory(x);
	r = set_edges(x, op, n);
	if (r == 0)
		r = onnx_set_text(x, &op->extra, "overload", n->overload);
	if (r == 0)
		r = onnx_set_text(x, &op->extra, "doc_string", n->doc_string);
	if (r == 0 && n->n_metadata_props)
		r = onnx_set(x, &op->extra, "metadata_props",
			onnx_entries(x, n->metadata_props, n->n_metadata_props, "a node"));
	o.name = op->name.len ? op->name : op->output_count ? op->outputs[0] : op->type;
	return r < 0 ? r : set_attributes(x, &o, n);
}

static int add_ops(struct onnx_reader *x, const struct onnx_pending *p, Wia__Onnx__Node *const *nodes, size_t count)
{
	int r = 0;

	x->m->graphs[p->graph].first_op = x->m->op_count;
	for (size_t i = 0; i < count && r == 0; i++)
		r = add_op(x, p, nodes[i]);
	x->m->graphs[p->graph].op_count = x->m->op_count - x->m->graphs[p->graph].first_op;
	return r;
}

/* ---- what else a graph holds ---- */

static int annotation_cmp(const void *pa, const void *pb)
{
	const Wia__Onnx__Annotation *const *a = pa, *const *b = pb;

	return str_cmp(onnx_str((*a)->tensor_name), onnx_str((*b)->tensor_name));
}

static int find_annotation(const void *key, const void *element)
{
	const Wia__Onnx__Annotation *const *a = element;

	return str_cmp(*(const struct str *)key, onnx_str((*a)->tensor_name));
}

/* Annotations of initializers go to the tensors' info, the rest to the graph's. */
static int set_annotations(struct onnx_reader *x, const struct onnx_pending *p, uint32_t first_tensor)
{
	Wia__Onnx__Annotation **list = p->proto->quantization_annotation, **hit;
	size_t n = p->proto->n_quantization_annotation;
	struct value *rest = NULL;
	bool *used;
	int r = 0;

	if (!n)
		return 0;
	used = calloc(n, sizeof(*used));
	if (!used)
		return onnx_no_memory(x);
	qsort(list, n, sizeof(*list), annotation_cmp);
	for (uint32_t i = first_tensor; r == 0 && i < x->m->tensor_count; i++) {
		struct tensor *t = &x->m->tensors[i];
		struct str name = t->local.len ? t->local : t->name;

		hit = t->graph == p->graph ? bsearch(&name, list, n, sizeof(*list), find_annotation) : NULL;
		if (!hit)
			continue;
		used[hit - list] = true;
		r = onnx_set(x, &t->info, "quantization",
			onnx_entries(x, (*hit)->quant_parameter_tensor_names, (*hit)->n_quant_parameter_tensor_names,
				"an annotation"));
	}
	for (size_t i = 0; r == 0 && i < n; i++) {
		if (used[i])
			continue;
		rest = rest ? rest : value_map(x->m->arena);
		if (value_set(x->m->arena, rest, onnx_keep(x, list[i]->tensor_name),
			    onnx_entries(x, list[i]->quant_parameter_tensor_names,
				    list[i]->n_quant_parameter_tensor_names, "an annotation")) < 0)
			r = onnx_no_memory(x);
	}
	free(used);
	if (r == 0 && rest)
		r = onnx_set(x, &x->m->graphs[p->graph].extra, "quantization_annotation", rest);
	return r;
}

static int set_value_infos(struct onnx_reader *x, struct value **extra, Wia__Onnx__ValueInfo *const *list, size_t n)
{
	struct value *map = n ? value_map(x->m->arena) : NULL;

	for (size_t i = 0; i < n; i++)
		if (value_set(x->m->arena, map, onnx_keep(x, list[i]->name),
			    value_str(x->m->arena, type_text(x, list[i]->type))) < 0)
			return onnx_no_memory(x);
	return map ? onnx_set(x, extra, "value_info", map) : 0;
}

static int add_initializers(struct onnx_reader *x, const struct onnx_pending *p)
{
	const Wia__Onnx__Graph *g = p->proto;
	uint32_t index;
	int r = 0;

	for (size_t i = 0; r == 0 && i < g->n_initializer; i++) {
		struct str local = onnx_keep(x, g->initializer[i]->name);

		r = onnx_add_tensor(x, g->initializer[i], onnx_join(x, p->prefix, local, STR("")),
			p->prefix.len ? local : STR(""), p->graph, false, &index);
	}
	for (size_t i = 0; r == 0 && i < g->n_sparse_initializer; i++) {
		const Wia__Onnx__SparseTensor *s = g->sparse_initializer[i];
		struct str local = s->values ? onnx_keep(x, s->values->name) : STR("");

		r = onnx_add_sparse(x, s, onnx_join(x, p->prefix, local, STR("")), local, p->graph, false, &index);
	}
	return r;
}

static int walk_graph(struct onnx_reader *x, const struct onnx_pending *p)
{
	const Wia__Onnx__Graph *g = p->proto;
	struct graph *graph = &x->m->graphs[p->graph];
	uint32_t first_tensor = x->m->tensor_count;
	int r = onnx_set_text(x, &graph->extra, "name", g->name);

	if (r == 0)
		r = onnx_set_text(x, &graph->extra, "doc_string", g->doc_string);
	if (r == 0 && g->n_metadata_props)
		r = onnx_set(x, &graph->extra, "metadata_props",
			onnx_entries(x, g->metadata_props, g->n_metadata_props, "a graph"));
	if (r == 0)
		r = set_ports(x, &graph->inputs, &graph->input_count, g->input, g->n_input);
	if (r == 0)
		r = set_ports(x, &graph->outputs, &graph->output_count, g->output, g->n_output);
	if (r == 0)
		r = set_value_infos(x, &graph->extra, g->value_info, g->n_value_info);
	if (r == 0)
		r = add_initializers(x, p);
	if (r == 0)
		r = add_ops(x, p, g->node, g->n_node);
	return r < 0 ? r : set_annotations(x, p, first_tensor);
}

static int function_attributes(struct onnx_reader *x, struct value **extra, const Wia__Onnx__Function *f)
{
	struct value *names = f->n_attribute ? value_list(x->m->arena) : NULL, *defaults = NULL, *v;
	struct owner o = {.op = MODEL_NONE, .graph = MODEL_NONE, .prefix = STR("functions/"),
		.name = onnx_keep(x, f->name)};
	int r = 0;

	for (size_t i = 0; i < f->n_attribute; i++)
		if (value_append(x->m->arena, names, value_str(x->m->arena, onnx_keep(x, f->attribute[i]))) < 0)
			return onnx_no_memory(x);
	if (names)
		r = onnx_set(x, extra, "attributes", names);
	for (size_t i = 0; r == 0 && i < f->n_attribute_proto; i++) {
		if (f->attribute_proto[i]->g || f->attribute_proto[i]->n_graphs)
			continue; /* ONNX allows no graphs as defaults */
		r = attribute_value(x, &o, f->attribute_proto[i], &v);
		defaults = defaults ? defaults : value_map(x->m->arena);
		if (r == 0 && value_set(x->m->arena, defaults, onnx_keep(x, f->attribute_proto[i]->name), v) < 0)
			r = onnx_no_memory(x);
	}
	return r == 0 && defaults ? onnx_set(x, extra, "attribute_defaults", defaults) : r;
}

static int walk_function(struct onnx_reader *x, const struct onnx_pending *p)
{
	const Wia__Onnx__Function *f = p->function;
	struct value *opsets = value_map(x->m->arena), *extra = NULL;
	struct graph *graph = &x->m->graphs[p->graph];
	int r = onnx_set_text(x, &extra, "name", f->name);

	if (r == 0)
		r = onnx_set_text(x, &extra, "domain", f->domain);
	if (r == 0)
		r = onnx_set_text(x, &extra, "overload", f->overload);
	if (r == 0)
		r = onnx_set_text(x, &extra, "doc_string", f->doc_string);
	for (size_t i = 0; r == 0 && i < f->n_opset_import; i++)
		if (value_set(x->m->arena, opsets, onnx_keep(x, f->opset_import[i]->domain),
			    value_int(x->m->arena, f->opset_import[i]->version)) < 0)
			r = onnx_no_memory(x);
	if (r == 0)
		r = onnx_set(x, &extra, "opset_import", opsets);
	if (r == 0 && f->n_metadata_props)
		r = onnx_set(x, &extra, "metadata_props",
			onnx_entries(x, f->metadata_props, f->n_metadata_props, "a function"));
	if (r == 0)
		r = set_value_infos(x, &extra, f->value_info, f->n_value_info);
	if (r == 0)
		r = set_names(x, &graph->inputs, &graph->input_count, f->input, f->n_input);
	if (r == 0)
		r = set_names(x, &graph->outputs, &graph->output_count, f->output, f->n_output);
	if (r == 0)
		r = function_attributes(x, &extra, f);
	graph->extra = extra;
	return r < 0 ? r : add_ops(x, p, f->node, f->n_node);
}

int onnx_walk_graphs(struct onnx_reader *x)
{
	int r = 0;

	for (uint32_t i = 0; i < x->pending_count && r == 0; i++) {
		const struct onnx_pending p = x->pending[i];

		r = p.proto ? walk_graph(x, &p) : walk_function(x, &p);
	}
	return r;
}
