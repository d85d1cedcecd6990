/* SPDX-License-Identifier: MIT */
/*
 * .wiamodel/export/model.EXT: the whole model in another format (or its own), planned when it is opened and made
 * while it is read: nothing is written anywhere. What the format cannot hold makes opening fail with the list of
 * losses, unless the mount allows them (-o lossy). A format of several files has no export.
 */
#include "views/view.h"

#include "parsers/sidecar.h"

#include <errno.h>
#include <stdio.h>

static bool export_exists(const struct view_context *cx, const struct subject *s)
{
	const struct format *f = formats[s->index];

	(void)cx;
	return f->can & CAN_CREATE && f->plan && f->extensions && f->extensions[0];
}

/* Keys that the format has no place for would stand in a second file, which an export does not have. */
static bool has_sidecar(const struct plan *p)
{
	return p->count > 1 && str_ends(str_from(p->files[p->count - 1].name), STR(SIDECAR_SUFFIX));
}

/* The one file of the plan. */
static int only_file(const struct format *f, struct plan *p, struct extmap **map, struct error *e)
{
	size_t count = p->count - has_sidecar(p);

	if (count != 1 || p->files[0].name[0])
		return error_set(e, EOPNOTSUPP, "%s takes %zu files: use wiamodel convert", f->title,
			count);
	*map = &p->files[0].map;
	return extmap_failed(*map, e);
}

static int make_plan(const struct view_context *cx, const struct format *f, struct plan *p,
	struct error *e)
{
	int r = model_plan(cx->model, f, p, e);

	if (!r && has_sidecar(p) &&
		plan_loss(p, "metadata: some keys have no place in %s (wiamodel convert keeps them beside it)",
			f->title) < 0)
		r = error_set(e, ENOMEM, "out of memory for an export");
	if (!r && p->loss_count && !cx->options.lossy)
		r = error_set(e, EOPNOTSUPP, "%zu losses, refused without lossy; the first: %s",
			p->loss_count, p->losses[0]);
	return r;
}

static void free_arena(void *arena)
{
	arena_free(arena);
}

/* Memory pieces belong to the planned map or the plan's arena: the map moves to the heap with both, and becomes
 * one piece. */
static int move_map(struct plan *p, struct extmap *from, struct extmap *out, struct error *e)
{
	struct extmap *whole = extmap_new();
	struct extent x;
	int refs;

	if (!whole)
		return error_set(e, ENOMEM, "out of memory for an export");
	refs = whole->refs;
	*whole = *from;
	whole->refs = refs;
	*from = (struct extmap){0};
	extmap_keep(whole, free_arena, p->arena);
	p->arena = NULL;
	x = extent_map(whole);
	extmap_append(out, &x);
	extmap_unref(whole);
	return extmap_failed(out, e);
}

/* out: the file; NULL: only its size */
static int export_file(const struct view_context *cx, const struct subject *s, struct extmap *out,
	uint64_t *size, struct error *e)
{
	const struct format *f = formats[s->index];
	char name[64];
	struct plan p = {.root_name = name, .real = cx->options.npy_real};
	struct extmap *map = NULL;
	int r;

	snprintf(name, sizeof(name), "model%s", f->extensions[0]);
	r = make_plan(cx, f, &p, e);
	if (!r)
		r = only_file(f, &p, &map, e);
	if (!r)
		*size = map->size;
	if (!r && out)
		r = move_map(&p, map, out, e);
	plan_release(&p);
	return r;
}

static int export_render(const struct view_context *cx, const struct subject *s, struct extmap *out,
	struct error *e)
{
	uint64_t size;

	return export_file(cx, s, out, &size, e);
}

/* A refused export is there, with no bytes: opening it tells why. */
static int export_size(const struct view_context *cx, const struct subject *s, uint64_t *size)
{
	if (export_file(cx, s, NULL, size, NULL) < 0)
		*size = 0;
	return 0;
}

const struct view view_export = {
	.name = "export",
	.subject = SUBJECT_FORMAT,
	.path = ".wiamodel/export",
	.exists = export_exists,
	.render = export_render,
	.size = export_size,
};
