/* SPDX-License-Identifier: MIT */
/*
 * .wiamodel/status.json: how the model was recognised, what is wrong with it, and (in a mount) staged edits
 * and the last error.
 */
#include "views/view.h"

static void probes_json(const struct view_context *cx, struct json *j)
{
	json_key(j, STR("probes"));
	json_open(j, '{');
	for (size_t i = 0; i < format_count; i++) {
		if (!cx->verdicts[i].format || cx->verdicts[i].bits <= 0)
			continue;
		json_key(j, str_from(cx->verdicts[i].format->name));
		json_int(j, cx->verdicts[i].bits);
	}
	json_close(j, '}');
}

static void problems_json(const struct model *m, struct json *j)
{
	json_key(j, STR("warnings"));
	json_open(j, '[');
	for (uint32_t i = 0; i < m->warning_count; i++)
		json_text(j, m->warnings[i]);
	json_close(j, ']');
	json_key(j, STR("damaged"));
	json_open(j, '[');
	for (uint32_t i = 0; i < m->tensor_count; i++) {
		const struct tensor *t = &m->tensors[i];

		if (!t->problem.len)
			continue;
		json_open(j, '{');
		json_key(j, STR("name"));
		json_text(j, t->name);
		json_key(j, STR("problem"));
		json_text(j, t->problem);
		json_close(j, '}');
	}
	json_close(j, ']');
}

static int status_render(const struct view_context *cx, const struct subject *s, struct extmap *out,
	struct error *e)
{
	const struct model *m = cx->model;
	struct json j = {0};

	(void)s;
	json_open(&j, '{');
	json_key(&j, STR("format"));
	json_text(&j, str_from(m->format->name));
	json_key(&j, STR("format_version"));
	json_text(&j, m->format_version);
	if (cx->verdicts)
		probes_json(cx, &j);
	problems_json(m, &j);
	if (cx->status)
		cx->status(cx->status_arg, &j);
	json_close(&j, '}');
	json_end(&j);
	return view_text(out, &j, e);
}

const struct view view_status = {
	.name = "status",
	.subject = SUBJECT_MODEL,
	.path = ".wiamodel/status.json",
	.render = status_render,
};
