/* SPDX-License-Identifier: MIT */
/*
 * graph/inputs.json, outputs.json, graph.json: what goes in and out of a graph, and the graph's own facts
 * (name, doc string, ...) where its format has any.
 */
#include "views/graph_ports.h"

static void port_json(struct json *j, const struct port *p)
{
	json_open(j, '{');
	json_key(j, STR("name"));
	json_text(j, p->name);
	if (p->dtype != DTYPE_NONE || !p->stored_type) {
		json_key(j, STR("dtype"));
		if (p->dtype != DTYPE_NONE)
			json_text(j, str_from(dtype_name(p->dtype)));
		else
			json_nothing(j);
	}
	if (p->stored_type) {
		json_key(j, STR("stored_type"));
		json_text(j, str_from(p->stored_type));
	}
	json_key(j, STR("shape"));
	if (p->rank < 0)
		json_nothing(j);
	else
		json_open_flat(j, '[');
	for (int32_t i = 0; i < p->rank; i++)
		json_value(j, p->dims[i]);
	if (p->rank >= 0)
		json_close(j, ']');
	json_members(j, p->extra);
	json_close(j, '}');
}

void json_ports(struct json *j, const struct port *ports, uint32_t count)
{
	json_open(j, '[');
	for (uint32_t i = 0; i < count; i++)
		port_json(j, &ports[i]);
	json_close(j, ']');
}

static int inputs_render(const struct view_context *cx, const struct subject *s, struct extmap *out,
	struct error *e)
{
	const struct graph *g = &cx->model->graphs[s->index];
	struct json j = {0};

	json_ports(&j, g->inputs, g->input_count);
	json_end(&j);
	return view_text(out, &j, e);
}

static int outputs_render(const struct view_context *cx, const struct subject *s, struct extmap *out,
	struct error *e)
{
	const struct graph *g = &cx->model->graphs[s->index];
	struct json j = {0};

	json_ports(&j, g->outputs, g->output_count);
	json_end(&j);
	return view_text(out, &j, e);
}

static bool info_exists(const struct view_context *cx, const struct subject *s)
{
	return cx->model->graphs[s->index].extra != NULL;
}

static int info_render(const struct view_context *cx, const struct subject *s, struct extmap *out,
	struct error *e)
{
	struct json j = {0};

	json_value(&j, cx->model->graphs[s->index].extra);
	json_end(&j);
	return view_text(out, &j, e);
}

const struct view view_graph_inputs = {
	.name = "graph",
	.subject = SUBJECT_GRAPH,
	.path = "inputs.json",
	.render = inputs_render,
};

const struct view view_graph_outputs = {
	.name = "graph",
	.subject = SUBJECT_GRAPH,
	.path = "outputs.json",
	.render = outputs_render,
};

const struct view view_graph_info = {
	.name = "graph",
	.subject = SUBJECT_GRAPH,
	.path = "graph.json",
	.exists = info_exists,
	.render = info_render,
};
