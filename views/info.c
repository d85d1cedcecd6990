/* SPDX-License-Identifier: MIT */
/*
 * info/NAME.json: what a tensor is. Nothing here tells an offset or an index, which a change elsewhere in
 * the file would shift, so two models can be compared by it.
 */
#include "views/text.h"
#include "views/tree.h"

/* A storage may have any number of names, each of which has such a file. */
#define ALIASES_SHOWN 16

static void info_aliases(const struct view_context *cx, uint32_t index, struct json *j)
{
	struct sharing all = tree_sharing(cx->tree, index);
	uint32_t shown = 0;

	if (all.count < 2)
		return;
	json_key(j, STR("aliases"));
	json_open(j, '[');
	for (uint32_t i = 0; i < all.count && shown < ALIASES_SHOWN; i++) {
		if (all.items[i].tensor == index)
			continue;
		json_text(j, cx->model->tensors[all.items[i].tensor].name);
		shown++;
	}
	json_close(j, ']');
	if (all.count - 1 > shown) {
		json_key(j, STR("more_aliases"));
		json_uint(j, all.count - 1 - shown);
	}
}

static void info_json(const struct view_context *cx, uint32_t index, struct json *j)
{
	const struct tensor *t = &cx->model->tensors[index];
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
	info_aliases(cx, index, j);
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

	info_json(cx, s->index, &j);
	return view_text(out, &j, e);
}

static int info_size(const struct view_context *cx, const struct subject *s, uint64_t *size)
{
	struct json j = {0};

	info_json(cx, s->index, &j);
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
