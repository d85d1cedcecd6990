/* SPDX-License-Identifier: MIT */
/*
 * info/NAME.json: what a tensor is. Nothing here tells an offset or an index, which a change elsewhere in
 * the file would shift, so two models can be compared by it.
 */
#include "views/text.h"

static void info_json(const struct model *m, const struct tensor *t, struct json *j)
{
	const struct dtype_info *info = dtype_info(t->dtype);

	json_open(j, '{');
	json_key(j, STR("name"));
	json_text(j, t->name);
	if (t->stored.len && !str_eq(t->stored, t->name)) {
		json_key(j, STR("stored"));
		json_text(j, t->stored);
	}
	json_key(j, STR("dtype"));
	json_text(j, str_from(dtype_name(t->dtype)));
	json_key(j, STR("shape"));
	json_shape(j, t->shape, t->rank);
	if (t->stored_type) {
		json_key(j, STR("stored_type"));
		json_text(j, str_from(t->stored_type));
	}
	if (info && info->swap > 1) {
		json_key(j, STR("byte_order"));
		json_text(j, t->flags & TENSOR_BIG_ENDIAN ? STR("big") : STR("little"));
	}
	if (t->shard.len) {
		json_key(j, STR("shard"));
		json_text(j, t->shard);
	}
	if (t->alias_of < m->tensor_count) {
		json_key(j, STR("alias_of"));
		json_text(j, m->tensors[t->alias_of].name);
	}
	json_members(j, t->info);
	if (t->problem.len) {
		json_key(j, STR("problem"));
		json_text(j, t->problem);
	}
	json_close(j, '}');
	json_end(j);
}

static int info_render(const struct view_context *cx, const struct subject *s, struct extmap *out,
	struct error *e)
{
	struct json j = {0};

	info_json(cx->model, &cx->model->tensors[s->index], &j);
	return view_text(out, &j, e);
}

static int info_size(const struct view_context *cx, const struct subject *s, uint64_t *size)
{
	struct json j = {0};

	info_json(cx->model, &cx->model->tensors[s->index], &j);
	return view_text_size(&j, size);
}

const struct view view_info = {
	.name = "info",
	.subject = SUBJECT_TENSOR,
	.path = "info",
	.suffix = ".json",
	.render = info_render,
	.size = info_size,
};
