/* SPDX-License-Identifier: MIT */
/*
 * graph/graph.dot: the graph for Graphviz. A box is an op with its type, name and tensors; an oval is a value
 * that comes from outside or leaves. Vertices are called by values ("x"), which a graph keeps unique, never by
 * numbers, so that two files can be compared.
 */
#include "views/text.h"

#include <stdlib.h>

static void dot_vertex(struct text *t, const char *prefix, struct str name)
{
	struct text id = {0};

	text_printf(&id, "%s", prefix);
	text_str(&id, name);
	if (id.failed)
		t->failed = true;
	else
		text_dot(t, (struct str){id.ptr, id.len});
	text_release(&id);
}

static struct str op_vertex(const struct op *op)
{
	for (uint32_t i = 0; i < op->output_count; i++)
		if (op->outputs[i].len)
			return op->outputs[i];
	return op->name;
}

static void dot_op(struct text *t, const struct model *m, const struct op *op)
{
	struct text label = {0};

	text_str(&label, op->type);
	if (op->name.len) {
		text_bytes(&label, "\n", 1);
		text_str(&label, op->name);
	}
	for (uint32_t i = 0; i < op->input_count; i++) {
		const struct edge *in = &op->inputs[i];
		const struct tensor *w;

		if (in->kind != EDGE_TENSOR || in->index >= m->tensor_count)
			continue;
		w = &m->tensors[in->index];
		text_bytes(&label, "\n", 1);
		text_str(&label, w->name);
		text_bytes(&label, " ", 1);
		text_type(&label, w->dtype, w->shape, w->rank);
	}
	text_bytes(t, "\t", 1);
	dot_vertex(t, "op ", op_vertex(op));
	text_str(t, STR(" [shape=box, label="));
	if (label.failed)
		t->failed = true;
	else
		text_dot(t, (struct str){label.ptr, label.len});
	text_str(t, STR("];\n"));
	text_release(&label);
}

static void dot_edge(struct text *t, const struct model *m, const struct graph *g,
	const struct op *op, const struct edge *in)
{
	const struct op *from = NULL;

	if (in->kind == EDGE_NONE || in->kind == EDGE_TENSOR)
		return;
	if (in->kind == EDGE_OP && in->index < m->op_count && in->index >= g->first_op &&
		in->index - g->first_op < g->op_count)
		from = &m->ops[in->index];
	text_bytes(t, "\t", 1);
	dot_vertex(t, from ? "op " : "value ", from ? op_vertex(from) : in->name);
	text_str(t, STR(" -> "));
	dot_vertex(t, "op ", op_vertex(op));
	if (from) {
		text_str(t, STR(" [label="));
		text_dot(t, in->name);
		text_str(t, STR("]"));
	} else {
		text_str(t, STR(" [label=\"\"]"));
	}
	text_str(t, STR(";\n"));
}

static void dot_ports(struct text *t, const struct port *ports, uint32_t count, const char *prefix)
{
	for (uint32_t i = 0; i < count; i++) {
		struct text label = {0};

		text_str(&label, ports[i].name);
		text_bytes(&label, "\n", 1);
		text_port(&label, &ports[i]);
		text_bytes(t, "\t", 1);
		dot_vertex(t, prefix, ports[i].name);
		text_str(t, STR(" [shape=oval, label="));
		if (label.failed)
			t->failed = true;
		else
			text_dot(t, (struct str){label.ptr, label.len});
		text_str(t, STR("];\n"));
		text_release(&label);
	}
}

static int by_name(const void *a, const void *b)
{
	return str_cmp(*(const struct str *)a, *(const struct str *)b);
}

/* from the ops to the graph's outputs; an output that no op makes stands alone */
static void dot_results(struct text *t, const struct model *m, const struct graph *g)
{
	struct str *names = calloc(g->output_count ? g->output_count : 1, sizeof(*names));

	if (!names) {
		t->failed = true;
		return;
	}
	for (uint32_t i = 0; i < g->output_count; i++)
		names[i] = g->outputs[i].name;
	qsort(names, g->output_count, sizeof(*names), by_name);
	for (uint32_t i = 0; i < g->op_count; i++) {
		const struct op *op = &m->ops[g->first_op + i];

		for (uint32_t k = 0; k < op->output_count; k++) {
			if (!bsearch(&op->outputs[k], names, g->output_count, sizeof(*names),
				    by_name))
				continue;
			text_bytes(t, "\t", 1);
			dot_vertex(t, "op ", op_vertex(op));
			text_str(t, STR(" -> "));
			dot_vertex(t, "result ", op->outputs[k]);
			text_str(t, STR(";\n"));
		}
	}
	free(names);
}

static int dot_render(const struct view_context *cx, const struct subject *s, struct extmap *out,
	struct error *e)
{
	const struct model *m = cx->model;
	const struct graph *g = &m->graphs[s->index];
	struct text t = {0};

	text_str(&t, STR("digraph model {\n"));
	dot_ports(&t, g->inputs, g->input_count, "value ");
	for (uint32_t i = 0; i < g->op_count; i++)
		dot_op(&t, m, &m->ops[g->first_op + i]);
	dot_ports(&t, g->outputs, g->output_count, "result ");
	for (uint32_t i = 0; i < g->op_count; i++) {
		const struct op *op = &m->ops[g->first_op + i];

		for (uint32_t k = 0; k < op->input_count; k++)
			dot_edge(&t, m, g, op, &op->inputs[k]);
	}
	dot_results(&t, m, g);
	text_str(&t, STR("}\n"));
	return text_give(&t, out, e);
}

const struct view view_graph_dot = {
	.name = "graph",
	.subject = SUBJECT_GRAPH,
	.path = "graph.dot",
	.render = dot_render,
};
