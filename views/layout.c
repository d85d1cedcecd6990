/* SPDX-License-Identifier: MIT */
/*
 * .wiamodel/layout.txt: where the bytes of each tensor lie. One line for each piece, tab-separated:
 *
 *	NAME  FILE  OFFSET  SIZE  KIND
 *
 * KIND is how the piece is kept: source, memory, zero, or the codec that computes it (then FILE and OFFSET
 * are "-"). Kept out of the listed tree, since an edit shifts every line behind it.
 */
#include "views/text.h"

#include "parsers/core/codec.h"

#include <inttypes.h>

static void piece_line(struct text *t, const struct tensor *w, const struct extent *x,
	uint64_t offset, uint64_t size)
{
	const char *kind = "memory";

	if (x->kind == EXTENT_ZERO)
		kind = "zero";
	else if (x->kind == EXTENT_CODEC)
		kind = x->codec->ops->name;
	text_name(t, w->name);
	if (x->kind == EXTENT_SOURCE) {
		text_bytes(t, "\t", 1);
		text_name(t, str_from(source_name(x->src)));
		text_printf(t, "\t%" PRIu64 "\t%" PRIu64 "\tsource\n", x->offset + offset, size);
	} else {
		text_printf(t, "\t-\t-\t%" PRIu64 "\t%s\n", size, kind);
	}
}

static void tensor_lines(struct text *t, const struct tensor *w)
{
	const struct extent *x = &w->data;
	uint64_t at = 0;

	if (w->dtype == DTYPE_STRING) {
		text_name(t, w->name);
		text_printf(t, "\t-\t-\t-\tstrings\n");
		return;
	}
	if (x->kind != EXTENT_MAP) {
		piece_line(t, w, x, 0, x->size);
		return;
	}
	/* an edited tensor: the pieces of what was written. Maps do not nest deeper in practice; an inner
	 * one is named as such */
	while (at < x->size) {
		uint64_t begin, skip, size;
		const struct extent *p = extmap_find(x->map, x->offset + at, &begin);

		if (!p)
			break;
		skip = x->offset + at - begin;
		size = p->size - skip < x->size - at ? p->size - skip : x->size - at;
		if (p->kind == EXTENT_MAP) {
			text_name(t, w->name);
			text_printf(t, "\t-\t-\t%" PRIu64 "\tmap\n", size);
		} else {
			piece_line(t, w, p, skip, size);
		}
		at += size;
	}
}

static int layout_render(const struct view_context *cx, const struct subject *s, struct extmap *out,
	struct error *e)
{
	struct text t = {0};

	(void)s;
	for (uint32_t i = 0; i < cx->model->tensor_count; i++)
		tensor_lines(&t, &cx->model->tensors[i]);
	return text_give(&t, out, e);
}

const struct view view_layout = {
	.name = "layout",
	.subject = SUBJECT_MODEL,
	.path = ".wiamodel/layout.txt",
	.render = layout_render,
};
