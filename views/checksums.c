/* SPDX-License-Identifier: MIT */
/*
 * .wiamodel/SHA256SUMS: of every file under raw/, as `sha256sum -c` reads it from the mount's root. The size is
 * known without reading a tensor, since every line's length is; a sum is computed when its line is
 * first read. A tensor that turns out to be unreadable then has a comment, which sha256sum skips, of the same length.
 */
#include "views/text.h"
#include "views/tree.h"

#include "parsers/codec/sha256.h"
#include "parsers/core/check.h"
#include "parsers/core/codec.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

extern const struct view view_raw;

#define HEX_LEN (2 * SHA256_BYTES)
#define UNREADABLE "# cannot be read"

struct sums {
	struct codec base;
	const struct view_context *cx;
	pthread_mutex_t lock; /* guards line, line_index */
	uint32_t count;
	uint64_t *ends;    /* offset behind each line */
	char *line;        /* the line computed last, so that a reader in small steps computes it once */
	uint32_t line_index;
};

/* GNU's escape: a name with a backslash has the line marked by one in front. Newlines never occur in paths. */
static int sums_path(const struct view_context *cx, uint32_t tensor, struct text *out)
{
	char *path = tree_tensor_path(cx->tree, &view_raw, tensor);

	if (!path)
		return -ENOMEM;
	for (const char *p = path; *p; p++)
		text_bytes(out, *p == '\\' ? "\\\\" : p, *p == '\\' ? 2 : 1);
	free(path);
	return out->failed ? -ENOMEM : 0;
}

static bool has_backslash(const struct text *t)
{
	return memchr(t->ptr, '\\', t->len) != NULL;
}

/* The sum in hexadecimal, or what stands in its place. */
static int sums_tensor(struct sums *c, uint32_t tensor, char hex[HEX_LEN + 1], bool *readable, struct error *e)
{
	const struct subject s = {SUBJECT_TENSOR, tensor};
	struct extmap map = {0};
	struct error why = {0};
	uint8_t sum[SHA256_BYTES];
	int r = view_raw.render(c->cx, &s, &map, &why);

	if (!r)
		r = sha256_map(&map, sum, &why);
	extmap_release(&map);
	*readable = !r;
	if (!r)
		sha256_hex(sum, hex);
	else if (r == -EIO) /* reading raw/ says why, and so does status.json where it was known before */
		snprintf(hex, HEX_LEN + 1, "%-*s", HEX_LEN, UNREADABLE);
	else
		return error_set(e, -r, "%s", why.text);
	return 0;
}

static int sums_compute(struct sums *c, uint32_t line, char **out, struct error *e)
{
	struct text path = {0}, t = {0};
	char hex[HEX_LEN + 1];
	bool readable;
	int r = sums_tensor(c, line, hex, &readable, e);

	if (!r && sums_path(c->cx, line, &path) < 0)
		r = error_set(e, ENOMEM, "out of memory for checksums");
	if (!r) {
		const char *mark = !has_backslash(&path) ? "" : readable ? "\\" : "#";

		text_printf(&t, "%s%s  ", mark, hex);
		text_bytes(&t, path.ptr, path.len);
		text_bytes(&t, "\n", 1);
		if (t.failed)
			r = error_set(e, ENOMEM, "out of memory for checksums");
	}
	if (!r) {
		*out = t.ptr;
		t = (struct text){0};
	}
	text_release(&t);
	text_release(&path);
	return r;
}

/* the line that holds offset */
static uint32_t sums_find(const struct sums *c, uint64_t offset)
{
	uint32_t low = 0, high = c->count;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (c->ends[mid] <= offset)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static int sums_line(struct sums *c, uint32_t line, struct error *e)
{
	char *text = NULL;
	int r;

	if (c->line && c->line_index == line)
		return 0;
	r = sums_compute(c, line, &text, e);
	if (r < 0)
		return r;
	free(c->line);
	c->line = text;
	c->line_index = line;
	return 0;
}

static int sums_read(struct codec *base, uint64_t offset, void *buf, size_t len, struct error *e)
{
	struct sums *c = (struct sums *)base;
	char *to = buf;
	int r = 0;

	pthread_mutex_lock(&c->lock);
	for (uint32_t line = sums_find(c, offset); len && line < c->count; line++) {
		uint64_t begin = line ? c->ends[line - 1] : 0;
		size_t skip = (size_t)(offset - begin);
		size_t n = (size_t)(c->ends[line] - offset);

		if (n > len)
			n = len;
		r = sums_line(c, line, e);
		if (r < 0)
			break;
		memcpy(to, c->line + skip, n);
		to += n;
		offset += n;
		len -= n;
	}
	pthread_mutex_unlock(&c->lock);
	return r;
}

static void sums_free(struct codec *base)
{
	struct sums *c = (struct sums *)base;

	pthread_mutex_destroy(&c->lock);
	free(c->ends);
	free(c->line);
	free(c);
}

static const struct codec_ops sums_ops = {.name = "sha256", .read = sums_read, .free = sums_free};

static int sums_layout(const struct view_context *cx, struct sums *c)
{
	const struct model *m = cx->model;
	uint64_t size = 0;

	c->ends = calloc(m->tensor_count ? m->tensor_count : 1, sizeof(*c->ends));
	if (!c->ends)
		return -ENOMEM;
	for (uint32_t i = 0; i < m->tensor_count; i++) {
		struct text path = {0};

		if (sums_path(cx, i, &path) < 0) {
			text_release(&path);
			return -ENOMEM;
		}
		size += HEX_LEN + 2 + path.len + 1 + has_backslash(&path);
		text_release(&path);
		c->ends[c->count++] = size;
	}
	c->base.size = size;
	return 0;
}

static int sums_render(const struct view_context *cx, const struct subject *s, struct extmap *out,
	struct error *e)
{
	struct sums *c = calloc(1, sizeof(*c));
	struct extent x;

	(void)s;
	if (!c)
		return error_set(e, ENOMEM, "out of memory for checksums");
	codec_init(&c->base, &sums_ops, 0);
	pthread_mutex_init(&c->lock, NULL);
	c->cx = cx;
	if (sums_layout(cx, c) < 0) {
		codec_unref(&c->base);
		return error_set(e, ENOMEM, "out of memory for checksums");
	}
	x = extent_codec(&c->base);
	extmap_append(out, &x);
	codec_unref(&c->base);
	return extmap_failed(out, e);
}

const struct view view_checksums = {
	.name = "checksums",
	.subject = SUBJECT_MODEL,
	.path = ".wiamodel/SHA256SUMS",
	.render = sums_render,
};
