/* SPDX-License-Identifier: MIT */
/*
 * raw/NAME: the elements in C order as the file encodes them; where they are stored plainly, the file's own
 * bytes. A string tensor is u32 little-endian length and bytes for each element.
 */
#include "views/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

static int raw_size(const struct view_context *cx, const struct subject *s, uint64_t *size)
{
	return tensor_raw_size(&cx->model->tensors[s->index], size);
}

static int render_strings(const struct tensor *t, uint64_t size, struct extmap *out, struct error *e)
{
	unsigned char *buf = malloc(size ? size : 1);
	size_t at = 0;

	if (!buf)
		return error_set(e, ENOMEM, "out of memory for %" PRIu64 " bytes of strings", size);
	for (uint64_t i = 0; i < t->count && t->strings; i++) {
		uint32_t n = (uint32_t)t->strings[i].len;

		for (int b = 0; b < 4; b++)
			buf[at++] = (unsigned char)(n >> 8 * b);
		if (n)
			memcpy(buf + at, t->strings[i].ptr, n);
		at += n;
	}
	extmap_append_take(out, buf, at);
	return extmap_failed(out, e);
}

static int raw_render(const struct view_context *cx, const struct subject *s, struct extmap *out,
	struct error *e)
{
	const struct tensor *t = &cx->model->tensors[s->index];
	uint64_t size;

	if (tensor_raw_size(t, &size) < 0)
		return error_set(e, EOVERFLOW, "size of '%.*s' does not fit 63 bits", STR_ARG(t->name));
	if (t->problem.len)
		return tensor_unreadable(t, size, out, e);
	if (t->dtype == DTYPE_STRING)
		return render_strings(t, size, out, e);
	extmap_append(out, &t->data);
	return extmap_failed(out, e);
}

static int raw_strings(const struct tensor *t, struct extmap *content, struct arena *a,
	struct edit *out, struct error *e)
{
	uint64_t at = 0;

	out->strings = arena_array(a, t->count ? t->count : 1, sizeof(*out->strings));
	if (!out->strings)
		return error_set(e, ENOMEM, "out of memory for %" PRIu64 " strings", t->count);
	for (uint64_t i = 0; i < t->count; i++) {
		unsigned char head[4];
		uint32_t n;
		char *bytes;
		int r;

		if (content->size - at < 4)
			return error_at(e, EINVAL, at, "string %" PRIu64 " of %" PRIu64 " is missing",
				i, t->count);
		r = extmap_read(content, at, head, 4, e);
		if (r < 0)
			return r;
		n = (uint32_t)head[0] | (uint32_t)head[1] << 8 | (uint32_t)head[2] << 16 |
		    (uint32_t)head[3] << 24;
		if (n > content->size - at - 4)
			return error_at(e, EINVAL, at, "string of %u bytes, %" PRIu64 " remain", n,
				content->size - at - 4);
		bytes = arena_alloc(a, n);
		if (!bytes)
			return error_set(e, ENOMEM, "out of memory for strings");
		r = extmap_read(content, at + 4, bytes, n, e);
		if (r < 0)
			return r;
		out->strings[i] = (struct str){bytes, n};
		at += 4 + (uint64_t)n;
	}
	if (at != content->size)
		return error_at(e, EINVAL, at, "%" PRIu64 " bytes follow the last string",
			content->size - at);
	return 0;
}

static int raw_accept(const struct view_context *cx, const struct subject *s, struct extmap *content,
	struct arena *a, struct edit *out, struct error *e)
{
	const struct tensor *t = &cx->model->tensors[s->index];
	uint64_t size;

	out->kind = EDIT_TENSOR;
	out->id = t->id;
	out->dtype = t->dtype;
	out->rank = t->rank;
	if (t->rank)
		memcpy(out->shape, t->shape, t->rank * sizeof(*t->shape));
	if (t->dtype == DTYPE_STRING)
		return raw_strings(t, content, a, out, e);
	if (tensor_raw_size(t, &size) < 0 || content->size != size)
		return error_set(e, EINVAL, "raw '%.*s': expected %" PRIu64 " bytes, got %" PRIu64,
			STR_ARG(t->name), size, content->size);
	out->data = extent_map(content);
	return 0;
}

const struct view view_raw = {
	.name = "raw",
	.subject = SUBJECT_TENSOR,
	.path = "raw",
	.suffix = "",
	.render = raw_render,
	.size = raw_size,
	.accept = raw_accept,
};
