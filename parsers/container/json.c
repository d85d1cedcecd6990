/* SPDX-License-Identifier: MIT */
/*
 * jansson reads the text; two things it does not do are done before: numbers it has no place for (integers beyond
 * 64 bits) are rewritten to {"$int": "..."}, and nesting is bounded by our own limit (its own is 2048, which is
 * too deep for recursion over values).
 */
#include "parsers/container/json.h"

#include "parsers/core/limits.h"

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

const char *json_library_version(void)
{
	return jansson_version_str();
}

/* ---- integers beyond 64 bits ---- */

/* The key of the rewritten in plain text, where $int is a key like any other. */
#define PLAIN_INT "\x7f" "int"

struct rewriter {
	char *text;
	size_t len, cap;
	bool failed;
};

static void put(struct rewriter *w, const char *p, size_t n)
{
	if (w->failed)
		return;
	if (n > w->cap - w->len) {
		size_t cap = w->cap ? w->cap : 256;
		char *grown;

		while (cap - w->len < n)
			cap *= 2;
		grown = realloc(w->text, cap);
		if (!grown) {
			w->failed = true;
			return;
		}
		w->text = grown;
		w->cap = cap;
	}
	memcpy(w->text + w->len, p, n);
	w->len += n;
}

static size_t string_len(const char *p, size_t left)
{
	size_t i = 1;

	while (i < left && p[i] != '"')
		i += p[i] == '\\' && i + 1 < left ? 2 : 1;
	return i < left ? i + 1 : left;
}

static size_t number_len(const char *p, size_t left, bool *is_integer)
{
	size_t i = p[0] == '-';

	*is_integer = true;
	for (; i < left && p[i] && strchr("0123456789+-.eE", p[i]); i++)
		if (p[i] == '.' || p[i] == 'e' || p[i] == 'E')
			*is_integer = false;
	return i;
}

static bool exceeds_int64(const char *p, size_t len)
{
	static const char most[] = "9223372036854775807", least[] = "9223372036854775808";
	bool negative = p[0] == '-';
	size_t digits = len - negative;

	if (digits != 19)
		return digits > 19;
	return memcmp(p + negative, negative ? least : most, 19) > 0;
}

/* Leaves w empty when the text can stay as it is. Depth is checked on the way. */
static int scan(const char *text, size_t len, const char *key, struct rewriter *w, struct error *e)
{
	unsigned depth = 0;
	size_t copied = 0;

	for (size_t i = 0; i < len;) {
		char c = text[i];
		bool is_integer;
		size_t n = 1;

		if (c == '"') {
			n = string_len(text + i, len - i);
		} else if (c == '[' || c == '{') {
			if (++depth > LIMIT_NESTING)
				return error_set(e, EINVAL, "json is nested deeper than %d", LIMIT_NESTING);
		} else if (c == ']' || c == '}') {
			depth -= depth > 0;
		} else if (c == '-' || (c >= '0' && c <= '9')) {
			n = number_len(text + i, len - i, &is_integer);
			if (is_integer && exceeds_int64(text + i, n)) {
				put(w, text + copied, i - copied);
				put(w, "{\"", 2);
				put(w, key, strlen(key));
				put(w, "\": \"", 4);
				put(w, text + i, n);
				put(w, "\"}", 2);
				copied = i + n;
			}
		}
		i += n;
	}
	if (copied)
		put(w, text + copied, len - copied);
	return w->failed ? error_set(e, ENOMEM, "out of memory") : 0;
}

/* ---- jansson's values to ours ---- */

static struct value *convert(struct arena *a, const json_t *j, bool *bad);

static int base64_digit(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static bool base64_decode(struct arena *a, struct str in, struct str *out)
{
	char *p = arena_alloc(a, in.len / 4 * 3 + 3);
	size_t n = 0;

	if (!p || in.len % 4)
		return false;
	for (size_t i = 0; i < in.len; i += 4) {
		uint32_t v = 0;
		size_t have = 0;

		while (have < 4 && in.ptr[i + have] != '=') {
			int d = base64_digit(in.ptr[i + have]);

			if (d < 0)
				return false;
			v = v << 6 | (uint32_t)d;
			have++;
		}
		if (have < 2 || (have < 4 && i + 4 != in.len))
			return false;
		v <<= 6 * (4 - have);
		for (size_t k = 0; k + 1 < have; k++)
			p[n++] = (char)(v >> (16 - 8 * k));
	}
	*out = (struct str){p, n};
	return true;
}

static bool is_decimal(struct str s)
{
	size_t i = s.len && s.ptr[0] == '-';

	if (i == s.len)
		return false;
	for (; i < s.len; i++)
		if (s.ptr[i] < '0' || s.ptr[i] > '9')
			return false;
	return true;
}

static struct str text_of(const json_t *j)
{
	return (struct str){json_string_value(j), json_string_length(j)};
}

static struct value *convert_float(struct arena *a, struct str s)
{
	if (str_is(s, "NaN"))
		return value_float(a, __builtin_nan(""));
	if (str_is(s, "Infinity"))
		return value_float(a, __builtin_inf());
	return str_is(s, "-Infinity") ? value_float(a, -__builtin_inf()) : NULL;
}

static struct value *convert_list(struct arena *a, struct value *list, const json_t *j, bool *bad)
{
	for (size_t i = 0; i < json_array_size(j); i++)
		if (value_append(a, list, convert(a, json_array_get(j, i), bad)) < 0)
			return NULL;
	return list;
}

/* {"$int": ...} and the like; NULL when it is none of them or says nothing sensible (then *bad). */
static struct value *convert_special(struct arena *a, const char *key, const json_t *j, bool *bad)
{
	struct str s = json_is_string(j) ? text_of(j) : (struct str){NULL, 0};
	struct value *v = NULL;

	if (strcmp(key, "$tuple") == 0 && json_is_array(j))
		return convert_list(a, value_tuple(a), j, bad);
	if (strcmp(key, "$int") == 0 && s.ptr && is_decimal(s)) {
		s = arena_str(a, s.ptr, s.len);
		v = s.ptr ? value_bigint(a, s) : NULL;
	} else if (strcmp(key, "$file") == 0 && s.ptr) {
		s = arena_str(a, s.ptr, s.len);
		v = s.ptr ? value_str(a, s) : NULL;
		if (v)
			v->tag = VALUE_FILE;
	} else if (strcmp(key, "$float") == 0 && s.ptr) {
		v = convert_float(a, s);
	} else if (strcmp(key, "$bytes") == 0 && s.ptr && base64_decode(a, s, &s)) {
		v = value_bytes(a, s);
	}
	if (!v)
		*bad = true;
	return v;
}

static struct str convert_key(struct arena *a, const char *key, bool *bad)
{
	struct str s = str_from(key);

	if (!bad) /* plain */
		return arena_str(a, s.ptr, s.len);
	if (str_starts(s, STR("$bytes:"))) {
		if (!base64_decode(a, (struct str){key + 7, s.len - 7}, &s))
			*bad = true;
		return s;
	}
	if (str_starts(s, STR("$$")))
		s = (struct str){key + 1, s.len - 1};
	else if (s.len && key[0] == '$')
		*bad = true;
	return arena_str(a, s.ptr, s.len);
}

static struct value *convert_map(struct arena *a, const json_t *j, bool *bad)
{
	json_t *object = (json_t *)(uintptr_t)j; /* iterating wants it writable */
	struct value *map;
	const char *key;
	json_t *member;

	if (bad && json_object_size(j) == 1) {
		key = json_object_iter_key(json_object_iter(object));
		if (key[0] == '$' && key[1] != '$' && strncmp(key, "$bytes:", 7) != 0)
			return convert_special(a, key, json_object_get(j, key), bad);
	}
	if (!bad && json_object_size(j) == 1 && (member = json_object_get(j, PLAIN_INT)) != NULL &&
		json_is_string(member) && is_decimal(text_of(member))) {
		struct str s = arena_str(a, json_string_value(member), json_string_length(member));

		return s.ptr ? value_bigint(a, s) : NULL;
	}
	map = value_map(a);
	json_object_foreach(object, key, member) {
		struct str name = convert_key(a, key, bad);

		if (!name.ptr || value_set(a, map, name, convert(a, member, bad)) < 0)
			return NULL;
	}
	return map;
}

static struct value *convert(struct arena *a, const json_t *j, bool *bad)
{
	struct str s;

	switch (json_typeof(j)) {
	case JSON_OBJECT:
		return convert_map(a, j, bad);
	case JSON_ARRAY:
		return convert_list(a, value_list(a), j, bad);
	case JSON_STRING:
		s = arena_str(a, json_string_value(j), json_string_length(j));
		return s.ptr ? value_str(a, s) : NULL;
	case JSON_INTEGER:
		return value_int(a, json_integer_value(j));
	case JSON_REAL:
		return value_float(a, json_real_value(j));
	case JSON_TRUE:
	case JSON_FALSE:
		return value_bool(a, json_is_true(j));
	case JSON_NULL:
		return value_null(a);
	}
	return NULL;
}

/* ---- jansson's memory ---- */

/*
 * While a text is parsed what jansson asks for comes from blocks that go all at once: a quarter of the time for the header
 * of a large model went into malloc(3) and free(3) of its many small values.
 */
#define BLOCK (256u << 10)
#define ALIGN _Alignof(max_align_t)

struct block {
	struct block *next;
	_Alignas(max_align_t) unsigned char bytes[];
};

static _Thread_local struct {
	struct block *blocks; /* the first has room */
	size_t room;
	bool on;
	bool failed; /* jansson reports it as wrong JSON, and a good file must not be called damaged */
} pool;

static void *pool_alloc(size_t size)
{
	struct block *b;
	size_t cap;

	if (!pool.on)
		return malloc(size);
	if (size > SIZE_MAX / 2)
		return NULL;
	size = (size + ALIGN - 1) / ALIGN * ALIGN;
	if (size > pool.room) {
		cap = size > BLOCK / 8 ? size : BLOCK;
		b = malloc(sizeof(*b) + cap);
		pool.failed |= !b;
		if (!b)
			return NULL;
		if (cap == size && pool.blocks) { /* all of it; the first keeps its room */
			b->next = pool.blocks->next;
			pool.blocks->next = b;
			return b->bytes;
		}
		b->next = pool.blocks;
		pool.blocks = b;
		pool.room = cap;
	}
	pool.room -= size;
	return pool.blocks->bytes + pool.room;
}

static void pool_free(void *p)
{
	if (!pool.on)
		free(p);
}

static void pool_install(void)
{
	json_set_alloc_funcs(pool_alloc, pool_free);
}

static void pool_begin(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, pool_install);
	pool.on = true;
	pool.failed = false;
}

static void pool_end(void)
{
	while (pool.blocks) {
		struct block *next = pool.blocks->next;

		free(pool.blocks);
		pool.blocks = next;
	}
	pool.room = 0;
	pool.on = false;
}

/* bad NULL in convert() means: plain, no spellings of ours */
static int parse(struct arena *a, const char *text, size_t len, bool plain, struct value **out,
	struct error *e)
{
	struct rewriter w = {0};
	json_error_t why;
	json_t *j;
	bool bad = false;
	int r;

	*out = NULL;
	if (len > LIMIT_METADATA)
		return error_set(e, EINVAL, "json of %zu bytes is larger than %u", len, LIMIT_METADATA);
	r = scan(text, len, plain ? PLAIN_INT : "$int", &w, e);
	if (r < 0)
		goto out;
	pool_begin();
	j = json_loadb(w.text ? w.text : text, w.text ? w.len : len,
		JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);
	if (!j && pool.failed) {
		r = error_set(e, ENOMEM, "out of memory");
		goto out;
	}
	if (!j) {
		r = error_set(e, EINVAL, "line %d, column %d: %s", why.line, why.column, why.text);
		goto out;
	}
	*out = convert(a, j, plain ? NULL : &bad);
	if (bad)
		r = error_set(e, EINVAL, "an object with a key that begins with $ has none of the known meanings");
	else if (!*out)
		r = error_set(e, ENOMEM, "out of memory");
out:
	if (r < 0)
		*out = NULL;
	pool_end(); /* with it j */
	free(w.text);
	return r;
}

int json_parse(struct arena *a, const char *text, size_t len, struct value **out, struct error *e)
{
	return parse(a, text, len, false, out, e);
}

int json_parse_plain(struct arena *a, const char *text, size_t len, struct value **out, struct error *e)
{
	return parse(a, text, len, true, out, e);
}
