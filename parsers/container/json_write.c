/* SPDX-License-Identifier: MIT */
#include "parsers/container/json_write.h"

#include "parsers/core/limits.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void put(struct json *j, const char *p, size_t n)
{
	if (j->failed || n == 0)
		return;
	if (n > j->cap - j->len) {
		size_t cap = j->cap ? j->cap : 256;
		char *grown;

		while (cap - j->len < n)
			cap *= 2;
		grown = realloc(j->text, cap);
		if (!grown) {
			j->failed = -ENOMEM;
			return;
		}
		j->text = grown;
		j->cap = cap;
	}
	memcpy(j->text + j->len, p, n);
	j->len += n;
}

static void put_text(struct json *j, const char *text)
{
	put(j, text, strlen(text));
}

static bool is_filled(const struct json *j)
{
	return j->filled >> (j->depth & 63) & 1;
}

static void newline(struct json *j)
{
	static const char spaces[] = "                                ";

	put(j, "\n", 1);
	for (unsigned n = j->depth * 2; n > 0;) {
		unsigned part = n < sizeof(spaces) - 1 ? n : (unsigned)sizeof(spaces) - 1;

		put(j, spaces, part);
		n -= part;
	}
}

/* What stands between the member before and this one. */
static void separate(struct json *j)
{
	if (j->after_key) {
		j->after_key = false;
		return;
	}
	if (j->depth == 0)
		return;
	if (is_filled(j))
		put(j, ",", 1);
	if (j->flat) {
		if (is_filled(j))
			put(j, " ", 1);
	} else {
		newline(j);
	}
	j->filled |= 1ull << (j->depth & 63);
}

static void open_bracket(struct json *j, char bracket, bool flat)
{
	separate(j);
	put(j, &bracket, 1);
	j->depth++;
	j->filled &= ~(1ull << (j->depth & 63));
	if (flat || j->flat)
		j->flat++;
}

void json_open(struct json *j, char bracket)
{
	open_bracket(j, bracket, false);
}

void json_open_flat(struct json *j, char bracket)
{
	open_bracket(j, bracket, true);
}

void json_close(struct json *j, char bracket)
{
	bool filled = is_filled(j);

	j->depth--;
	if (j->flat)
		j->flat--;
	else if (filled)
		newline(j);
	put(j, &bracket, 1);
	/* the level below has a member now: this one (its bit was overwritten only 64 levels deeper) */
	j->filled |= 1ull << (j->depth & 63);
}

static void put_quoted(struct json *j, struct str s)
{
	size_t start = 0;

	put(j, "\"", 1);
	for (size_t i = 0; i < s.len; i++) {
		unsigned char c = (unsigned char)s.ptr[i];
		char escape[8];

		if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7f)
			continue;
		put(j, s.ptr + start, i - start);
		start = i + 1;
		switch (c) {
		case '"':
			put_text(j, "\\\"");
			break;
		case '\\':
			put_text(j, "\\\\");
			break;
		case '\n':
			put_text(j, "\\n");
			break;
		case '\t':
			put_text(j, "\\t");
			break;
		case '\r':
			put_text(j, "\\r");
			break;
		default:
			snprintf(escape, sizeof(escape), "\\u%04x", c);
			put_text(j, escape);
		}
	}
	if (start < s.len)
		put(j, s.ptr + start, s.len - start);
	put(j, "\"", 1);
}

static void put_base64(struct json *j, struct str s)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	put(j, "\"", 1);
	for (size_t i = 0; i < s.len; i += 3) {
		size_t n = s.len - i < 3 ? s.len - i : 3;
		uint32_t v = (uint32_t)(unsigned char)s.ptr[i] << 16;
		char four[4] = {'=', '=', '=', '='};

		if (n > 1)
			v |= (uint32_t)(unsigned char)s.ptr[i + 1] << 8;
		if (n > 2)
			v |= (unsigned char)s.ptr[i + 2];
		for (size_t k = 0; k <= n; k++)
			four[k] = digits[v >> (18 - 6 * k) & 63];
		put(j, four, 4);
	}
	put(j, "\"", 1);
}

/* {"$kind": ...} on one line */
static void open_special(struct json *j, const char *kind)
{
	separate(j);
	put_text(j, "{\"$");
	put_text(j, kind);
	put_text(j, "\": ");
}

void json_key(struct json *j, struct str key)
{
	separate(j);
	if (key.len && key.ptr[0] == '$') { /* so that no key looks like a spelling of ours */
		char *longer = malloc(key.len + 1);

		if (!longer) {
			j->failed = -ENOMEM;
			return;
		}
		longer[0] = '$';
		memcpy(longer + 1, key.ptr, key.len);
		put_quoted(j, (struct str){longer, key.len + 1});
		free(longer);
	} else if (str_is_utf8(key)) {
		put_quoted(j, key);
	} else { /* a key must be a string: bytes that are none are spelled in it */
		put_text(j, "\"$bytes:");
		size_t mark = j->len;

		put_base64(j, key);
		if (!j->failed) { /* drop the opening quote of the inner string */
			memmove(j->text + mark, j->text + mark + 1, j->len - mark - 1);
			j->len--;
		}
	}
	put(j, ": ", 2);
	j->after_key = true;
}

void json_text(struct json *j, struct str s)
{
	if (!str_is_utf8(s)) {
		open_special(j, "bytes");
		put_base64(j, s);
		put(j, "}", 1);
		return;
	}
	separate(j);
	put_quoted(j, s);
}

void json_int(struct json *j, int64_t i)
{
	char text[24];

	snprintf(text, sizeof(text), "%lld", (long long)i);
	separate(j);
	put_text(j, text);
}

void json_uint(struct json *j, uint64_t u)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)u);
	separate(j);
	put_text(j, text);
}

void json_float(struct json *j, double d, bool single)
{
	char text[40];
	int last = single ? 9 : 17;

	if (!isfinite(d)) {
		open_special(j, "float");
		put_text(j, isnan(d) ? "\"NaN\"" : d > 0 ? "\"Infinity\"" : "\"-Infinity\"");
		put(j, "}", 1);
		return;
	}
	for (int digits = single ? 6 : 15; digits <= last; digits++) {
		snprintf(text, sizeof(text), "%.*g", digits, d);
		if (single ? strtof(text, NULL) == (float)d : strtod(text, NULL) == d)
			break;
	}
	if (!strpbrk(text, ".e")) /* an integer would come back as one */
		strcat(text, ".0");
	separate(j);
	put_text(j, text);
}

void json_bool(struct json *j, bool b)
{
	separate(j);
	put_text(j, b ? "true" : "false");
}

void json_nothing(struct json *j)
{
	separate(j);
	put_text(j, "null");
}

void json_raw(struct json *j, struct str text)
{
	put(j, text.ptr, text.len);
}

static bool is_scalar(const struct value *v)
{
	return v->kind < VALUE_LIST;
}

/* Short lists of scalars read best on one line. */
static bool is_flat(const struct value *v)
{
	size_t width = 0;

	if (v->list.count > 16)
		return false;
	for (size_t i = 0; i < v->list.count; i++) {
		const struct value *x = v->list.items[i];

		if (!is_scalar(x))
			return false;
		width += x->kind == VALUE_STRING || x->kind == VALUE_BYTES ? x->str.len + 4 : 12;
	}
	return width <= 200;
}

static void value_at(struct json *j, const struct value *v, unsigned depth);

static void list_at(struct json *j, const struct value *v, unsigned depth)
{
	if (is_flat(v))
		json_open_flat(j, '[');
	else
		json_open(j, '[');
	for (size_t i = 0; i < v->list.count; i++)
		value_at(j, v->list.items[i], depth + 1);
	json_close(j, ']');
}

static void value_at(struct json *j, const struct value *v, unsigned depth)
{
	if (!v || depth > LIMIT_NESTING) {
		json_nothing(j);
		return;
	}
	switch (v->kind) {
	case VALUE_NULL:
		json_nothing(j);
		break;
	case VALUE_BOOL:
		json_bool(j, v->boolean);
		break;
	case VALUE_INT:
		json_int(j, v->integer);
		break;
	case VALUE_FLOAT:
	case VALUE_FLOAT32:
		json_float(j, v->real, v->kind == VALUE_FLOAT32);
		break;
	case VALUE_BIGINT:
		open_special(j, "int");
		put_quoted(j, v->str);
		put(j, "}", 1);
		break;
	case VALUE_STRING:
		if (v->tag != VALUE_FILE) {
			json_text(j, v->str);
			break;
		}
		open_special(j, "file");
		put_quoted(j, v->str);
		put(j, "}", 1);
		break;
	case VALUE_BYTES:
		open_special(j, "bytes");
		put_base64(j, v->str);
		put(j, "}", 1);
		break;
	case VALUE_LIST:
		list_at(j, v, depth);
		break;
	case VALUE_TUPLE:
		json_open(j, '{');
		separate(j);
		put_text(j, "\"$tuple\": ");
		j->after_key = true;
		list_at(j, v, depth);
		json_close(j, '}');
		break;
	case VALUE_MAP:
		json_open(j, '{');
		for (size_t i = 0; i < v->map.count; i++) {
			json_key(j, v->map.members[i].key);
			value_at(j, v->map.members[i].value, depth + 1);
		}
		json_close(j, '}');
		break;
	}
}

void json_value(struct json *j, const struct value *v)
{
	value_at(j, v, 0);
}

void json_end(struct json *j)
{
	put(j, "\n", 1);
}

char *json_take(struct json *j, size_t *len)
{
	char *text = j->text;

	*len = j->len;
	if (j->failed) {
		free(text);
		text = NULL;
	}
	*j = (struct json){0};
	return text;
}

void json_release(struct json *j)
{
	free(j->text);
	*j = (struct json){0};
}
