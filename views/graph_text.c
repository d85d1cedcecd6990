/* SPDX-License-Identifier: MIT */
/*
 * graph/graph.txt: a graph for people and for diff(1): one line per input, op and output, in stored order,
 * without any number that an unrelated change would shift.
 *
 *	input x: float32[N, 3]
 *	y = Gemm(x, fc.weight, fc.bias) {"transB": 1} # fc
 *	output y: float32[N, 10]
 */
#include "views/text.h"

static void op_line(struct text *t, const struct op *op)
{
	for (uint32_t i = 0; i < op->output_count; i++) {
		if (i)
			text_bytes(t, ", ", 2);
		text_name(t, op->outputs[i]);
	}
	text_str(t, op->output_count ? STR(" = ") : STR(""));
	if (op->domain.len) {
		text_name(t, op->domain);
		text_bytes(t, ".", 1);
	}
	text_name(t, op->type);
	text_bytes(t, "(", 1);
	for (uint32_t i = 0; i < op->input_count; i++) {
		if (i)
			text_bytes(t, ", ", 2);
		if (op->inputs[i].kind != EDGE_NONE)
			text_name(t, op->inputs[i].name);
	}
	text_bytes(t, ")", 1);
	if (op->attributes && op->attributes->map.count) {
		text_bytes(t, " ", 1);
		text_value(t, op->attributes);
	}
	if (op->name.len) {
		text_bytes(t, " # ", 3);
		text_name(t, op->name);
	}
	text_bytes(t, "\n", 1);
}

static void port_lines(struct text *t, const char *word, const struct port *ports, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		text_printf(t, "%s ", word);
		text_name(t, ports[i].name);
		text_bytes(t, ": ", 2);
		text_port(t, &ports[i]);
		text_bytes(t, "\n", 1);
	}
}

static int text_render(const struct view_context *cx, const struct subject *s, struct extmap *out,
	struct error *e)
{
	const struct graph *g = &cx->model->graphs[s->index];
	struct text t = {0};

	port_lines(&t, "input", g->inputs, g->input_count);
	for (uint32_t i = 0; i < g->op_count; i++)
		op_line(&t, &cx->model->ops[g->first_op + i]);
	port_lines(&t, "output", g->outputs, g->output_count);
	return text_give(&t, out, e);
}

const struct view view_graph_text = {
	.name = "graph",
	.subject = SUBJECT_GRAPH,
	.path = "graph.txt",
	.render = text_render,
};
