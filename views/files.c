/* SPDX-License-Identifier: MIT */
/* files/PATH: the container's other members as they are. */
#include "views/view.h"

#include <errno.h>

static int files_size(const struct view_context *cx, const struct subject *s, uint64_t *size)
{
	*size = cx->model->files[s->index].data.size;
	return 0;
}

static int files_render(const struct view_context *cx, const struct subject *s, struct extmap *out,
	struct error *e)
{
	extmap_append(out, &cx->model->files[s->index].data);
	return extmap_failed(out, e);
}

static int files_accept(const struct view_context *cx, const struct subject *s,
	struct extmap *content, struct arena *a, struct edit *out, struct error *e)
{
	const struct member_file *f = &cx->model->files[s->index];

	(void)a;
	if (!(f->flags & MEMBER_WRITABLE))
		return error_set(e, EOPNOTSUPP, "file '%.*s' cannot be changed", STR_ARG(f->path));
	out->kind = EDIT_FILE;
	out->name = f->path;
	out->data = extent_map(content);
	return 0;
}

const struct view view_files = {
	.name = "files",
	.subject = SUBJECT_FILE,
	.path = "files",
	.render = files_render,
	.size = files_size,
	.accept = files_accept,
};
