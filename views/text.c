/* SPDX-License-Identifier: MIT */
#include "views/text.h"

#include "parsers/codec/fail.h"
#include "parsers/core/check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static bool text_grow(struct text *t, size_t more)
{
	size_t cap = t->cap ? t->cap : 256;
	char *ptr;

	if (t->failed)
		return false;
	if (t->cap - t->len > more)
		return true;
	while (cap - t->len <= more && !ckd_mul(&cap, cap, (size_t)2))
		;
	ptr = cap - t->len > more ? realloc(t->ptr, cap) : NULL;
	if (!ptr) {
		t->failed = true;
		return false;
	}
	t->ptr = ptr;
	t->cap = cap;
	return true;
}

void text_bytes(struct text *t, const char *ptr, size_t len)
{
	if (!text_grow(t, len))
		return;
	if (len)
		memcpy(t->ptr + t->len, ptr, len);
	t->len += len;
}

void text_str(struct text *t, struct str s)
{
	text_bytes(t, s.ptr, s.len);
}

void text_printf(struct text *t, const char *format, ...)
{
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(NULL, 0, format, ap);
	va_end(ap);
	if (n < 0 || !text_grow(t, (size_t)n + 1)) {
		t->failed = true;
		return;
	}
	va_start(ap, format);
	vsnprintf(t->ptr + t->len, (size_t)n + 1, format, ap);
	va_end(ap);
	t->len += (size_t)n;
}

static void text_json(struct text *t, struct json *j)
{
	size_t len;
	char *s = json_take(j, &len);

	if (s)
		text_bytes(t, s, len);
	else
		t->failed = true;
	free(s);
}

static bool is_plain(struct str s)
{
	for (size_t i = 0; i < s.len; i++) {
		unsigned char c = (unsigned char)s.ptr[i];

		if (c <= ' ' || c == 0x7f || strchr("\"\\,()[]{}=", c))
			return false;
	}
	return s.len > 0 && str_is_utf8(s);
}

void text_name(struct text *t, struct str name)
{
	struct json j = {0};

	if (is_plain(name)) {
		text_str(t, name);
		return;
	}
	json_text(&j, name);
	text_json(t, &j);
}

void text_value(struct text *t, const struct value *v)
{
	struct json j = {.flat = 1};

	json_value(&j, v);
	text_json(t, &j);
}

void text_dot(struct text *t, struct str s)
{
	text_bytes(t, "\"", 1);
	for (size_t i = 0; i < s.len; i++) {
		unsigned char c = (unsigned char)s.ptr[i];

		if (c == '"' || c == '\\')
			text_printf(t, "\\%c", c);
		else if (c == '\n')
			text_bytes(t, "\\n", 2);
		else if (c < ' ' || c == 0x7f || (c >= 0x80 && !str_is_utf8(s)))
			text_printf(t, "%%%02X", c);
		else
			text_bytes(t, (const char *)&s.ptr[i], 1);
	}
	text_bytes(t, "\"", 1);
}

void text_type(struct text *t, enum dtype d, const uint64_t *shape, uint32_t rank)
{
	text_printf(t, "%s[", dtype_name(d));
	for (uint32_t i = 0; i < rank; i++)
		text_printf(t, "%s%" PRIu64, i ? ", " : "", shape[i]);
	text_bytes(t, "]", 1);
}

void text_port(struct text *t, const struct port *p)
{
	text_str(t, str_from(p->dtype == DTYPE_NONE && p->stored_type ? p->stored_type
								      : dtype_name(p->dtype)));
	if (p->rank < 0)
		return;
	text_bytes(t, "[", 1);
	for (int32_t i = 0; i < p->rank; i++) {
		const struct value *dim = p->dims[i];

		if (i)
			text_bytes(t, ", ", 2);
		if (dim && dim->kind == VALUE_STRING)
			text_name(t, dim->str);
		else if (dim && dim->kind == VALUE_INT)
			text_printf(t, "%" PRId64, dim->integer);
		else
			text_bytes(t, "?", 1);
	}
	text_bytes(t, "]", 1);
}

void text_release(struct text *t)
{
	free(t->ptr);
	*t = (struct text){0};
}

int text_give(struct text *t, struct extmap *out, struct error *e)
{
	if (t->failed) {
		text_release(t);
		return error_set(e, ENOMEM, "out of memory for a text of the view");
	}
	if (t->len)
		extmap_append_take(out, t->ptr, t->len);
	else
		free(t->ptr);
	*t = (struct text){0};
	return extmap_failed(out, e);
}

void json_shape(struct json *j, const uint64_t *shape, uint32_t rank)
{
	json_open_flat(j, '[');
	for (uint32_t i = 0; i < rank; i++)
		json_uint(j, shape[i]);
	json_close(j, ']');
}

void json_members(struct json *j, const struct value *map)
{
	for (size_t i = 0; map && map->kind == VALUE_MAP && i < map->map.count; i++) {
		json_key(j, map->map.members[i].key);
		json_value(j, map->map.members[i].value);
	}
}

struct str op_shown_name(const struct op *op)
{
	if (op->name.len || !op->output_count)
		return op->name;
	return op->outputs[0];
}

const char *dtype_name(enum dtype d)
{
	const struct dtype_info *info = dtype_info(d);

	return info && info->name ? info->name : "unknown";
}

static int string_bytes(const struct tensor *t, uint64_t *size)
{
	*size = 0;
	for (uint64_t i = 0; i < t->count && t->strings; i++)
		if (ckd_add(size, *size, t->strings[i].len) || ckd_add(size, *size, 4u))
			return -EOVERFLOW;
	return 0;
}

int tensor_raw_size(const struct tensor *t, uint64_t *size)
{
	if (t->dtype == DTYPE_STRING)
		return string_bytes(t, size);
	/* damaged: what it would be; the extent may lie outside the file */
	if (t->problem.len && t->dtype != DTYPE_NONE)
		return dtype_bytes(t->dtype, t->count, size);
	*size = t->data.size;
	return 0;
}

int tensor_unreadable(const struct tensor *t, uint64_t size, struct extmap *out, struct error *e)
{
	struct codec *c;

	/* without bytes no read could fail, so opening does */
	if (!size)
		return error_set(e, EIO, "tensor '%.*s' is damaged: %.*s", STR_ARG(t->name), STR_ARG(t->problem));
	c = codec_fail(size, EIO, t->problem);
	struct extent x;

	if (!c)
		return error_set(e, ENOMEM, "out of memory for a view");
	x = extent_codec(c);
	extmap_append(out, &x);
	codec_unref(c);
	return extmap_failed(out, e);
}
