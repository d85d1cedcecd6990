/* SPDX-License-Identifier: MIT */
/* graph/ops/NAME/op.json: one op with its attributes and the names of the values it reads and writes. */
#include "views/text.h"

static void op_json(const struct op *op, struct json *j)
{
	json_open(j, '{');
	json_key(j, STR("name"));
	json_text(j, op->name);
	json_key(j, STR("type"));
	json_text(j, op->type);
	json_key(j, STR("domain"));
	json_text(j, op->domain);
	json_key(j, STR("inputs"));
	json_open(j, '[');
	for (uint32_t i = 0; i < op->input_count; i++)
		json_text(j, op->inputs[i].name);
	json_close(j, ']');
	json_key(j, STR("outputs"));
	json_open(j, '[');
	for (uint32_t i = 0; i < op->output_count; i++)
		json_text(j, op->outputs[i]);
	json_close(j, ']');
	json_key(j, STR("attributes"));
	json_open(j, '{');
	json_members(j, op->attributes);
	json_close(j, '}');
	json_members(j, op->extra);
	json_close(j, '}');
	json_end(j);
}

static int op_render(const struct view_context *cx, const struct subject *s, struct extmap *out,
	struct error *e)
{
	struct json j = {0};

	op_json(&cx->model->ops[s->index], &j);
	return view_text(out, &j, e);
}

static int op_size(const struct view_context *cx, const struct subject *s, uint64_t *size)
{
	struct json j = {0};

	op_json(&cx->model->ops[s->index], &j);
	return view_text_size(&j, size);
}

const struct view view_op = {
	.name = "graph",
	.subject = SUBJECT_OP,
	.path = "op.json",
	.render = op_render,
	.size = op_size,
};
