/* SPDX-License-Identifier: MIT */
#include "parsers/core/value.h"

#include "parsers/core/limits.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

static struct value *value_new(struct arena *a, enum value_kind kind)
{
	struct value *v = arena_alloc(a, sizeof(*v));

	if (v)
		v->kind = kind;
	return v;
}

struct value *value_null(struct arena *a)
{
	return value_new(a, VALUE_NULL);
}

struct value *value_bool(struct arena *a, bool b)
{
	struct value *v = value_new(a, VALUE_BOOL);

	if (v)
		v->boolean = b;
	return v;
}

struct value *value_int(struct arena *a, int64_t i)
{
	struct value *v = value_new(a, VALUE_INT);

	if (v)
		v->integer = i;
	return v;
}

struct value *value_uint(struct arena *a, uint64_t u)
{
	struct str text;

	if (u <= INT64_MAX)
		return value_int(a, (int64_t)u);
	text = arena_printf(a, "%llu", (unsigned long long)u);
	return text.ptr ? value_bigint(a, text) : NULL;
}

struct value *value_float(struct arena *a, double d)
{
	struct value *v = value_new(a, VALUE_FLOAT);

	if (v)
		v->real = d;
	return v;
}

struct value *value_float32(struct arena *a, float f)
{
	struct value *v = value_new(a, VALUE_FLOAT32);

	if (v)
		v->real = (double)f;
	return v;
}

static struct value *value_text(struct arena *a, enum value_kind kind, struct str s)
{
	struct value *v = value_new(a, kind);

	if (v)
		v->str = s;
	return v;
}

struct value *value_bigint(struct arena *a, struct str decimal)
{
	return value_text(a, VALUE_BIGINT, decimal);
}

struct value *value_str(struct arena *a, struct str s)
{
	return value_text(a, str_is_utf8(s) ? VALUE_STRING : VALUE_BYTES, s);
}

struct value *value_bytes(struct arena *a, struct str s)
{
	return value_text(a, VALUE_BYTES, s);
}

struct value *value_cstr(struct arena *a, const char *c)
{
	struct str s = arena_str(a, c, strlen(c));

	return s.ptr ? value_str(a, s) : NULL;
}

struct value *value_list(struct arena *a)
{
	return value_new(a, VALUE_LIST);
}

struct value *value_tuple(struct arena *a)
{
	return value_new(a, VALUE_TUPLE);
}

struct value *value_map(struct arena *a)
{
	return value_new(a, VALUE_MAP);
}

/* Doubling leaves the old array in the arena: at most as much again as the list itself. */
static void *grown(struct arena *a, const void *old, size_t count, size_t *cap, size_t size)
{
	size_t wanted = *cap ? *cap * 2 : 4;
	void *p = arena_array(a, wanted, size);

	if (!p)
		return NULL;
	if (count)
		memcpy(p, old, count * size);
	*cap = wanted;
	return p;
}

int value_append(struct arena *a, struct value *list, struct value *item)
{
	if (!list || !item)
		return -ENOMEM;
	if (list->list.count == list->list.cap) {
		void *p = grown(a, list->list.items, list->list.count, &list->list.cap,
			sizeof(*list->list.items));

		if (!p)
			return -ENOMEM;
		list->list.items = p;
	}
	list->list.items[list->list.count++] = item;
	return 0;
}

int value_set(struct arena *a, struct value *map, struct str key, struct value *v)
{
	if (!map || !v)
		return -ENOMEM;
	if (map->map.count == map->map.cap) {
		void *p = grown(a, map->map.members, map->map.count, &map->map.cap,
			sizeof(*map->map.members));

		if (!p)
			return -ENOMEM;
		map->map.members = p;
	}
	map->map.members[map->map.count++] = (struct member){key, v};
	return 0;
}

static struct member *find_member(const struct value *map, struct str key)
{
	if (!map || map->kind != VALUE_MAP)
		return NULL;
	for (size_t i = map->map.count; i > 0; i--)
		if (str_eq(map->map.members[i - 1].key, key))
			return &map->map.members[i - 1];
	return NULL;
}

int value_put(struct arena *a, struct value *map, struct str key, struct value *v)
{
	struct member *m = find_member(map, key);

	if (!m || !v)
		return value_set(a, map, key, v);
	m->value = v;
	return 0;
}

struct value *value_get(const struct value *v, const char *key)
{
	struct member *m = find_member(v, str_from(key));

	return m ? m->value : NULL;
}

static bool list_equal(const struct value *a, const struct value *b, bool alike, unsigned depth);

static bool is_float(const struct value *v)
{
	return v->kind == VALUE_FLOAT || v->kind == VALUE_FLOAT32;
}

/* Numbers of different kinds that JSON spells alike: 1 and 1.0, a float32 and the double with its shortest digits. */
static bool same_number(const struct value *a, const struct value *b)
{
	if (is_float(a) && is_float(b))
		return (float)a->real == (float)b->real || (isnan(a->real) && isnan(b->real));
	if (is_float(a) && b->kind == VALUE_INT)
		return a->real == (double)b->integer;
	return a->kind == VALUE_INT && is_float(b) && (double)a->integer == b->real;
}

static bool equal(const struct value *a, const struct value *b, bool alike, unsigned depth)
{
	if (a == b)
		return true;
	if (alike && a && b && a->kind != b->kind)
		return same_number(a, b);
	if (!a || !b || a->kind != b->kind || a->tag != b->tag || depth > LIMIT_NESTING)
		return false;
	switch (a->kind) {
	case VALUE_NULL:
		return true;
	case VALUE_BOOL:
		return a->boolean == b->boolean;
	case VALUE_INT:
		return a->integer == b->integer;
	case VALUE_FLOAT:
	case VALUE_FLOAT32: /* bits, so that NaN equals itself and -0 is not 0 */
		return memcmp(&a->real, &b->real, sizeof(a->real)) == 0 ||
		       (isnan(a->real) && isnan(b->real));
	case VALUE_BIGINT:
	case VALUE_STRING:
	case VALUE_BYTES:
		return str_eq(a->str, b->str);
	case VALUE_LIST:
	case VALUE_TUPLE:
	case VALUE_MAP:
		return list_equal(a, b, alike, depth + 1);
	}
	return false;
}

/* Equal keys in order of appearance; qsort is not stable, the addresses are. */
static int member_cmp(const void *px, const void *py)
{
	const struct member *x = *(const struct member *const *)px, *y = *(const struct member *const *)py;
	int c = str_cmp(x->key, y->key);

	return c ? c : (x > y) - (x < y);
}

static void sort_members(const struct value *v, const struct member **out)
{
	for (size_t i = 0; i < v->map.count; i++)
		out[i] = &v->map.members[i];
	qsort(out, v->map.count, sizeof(*out), member_cmp);
}

/* Maps of one count. Some formats keep no order, so none is compared. */
static bool map_equal(const struct value *a, const struct value *b, bool alike, unsigned depth)
{
	size_t n = a->map.count;
	const struct member **sorted = n ? reallocarray(NULL, n, 2 * sizeof(*sorted)) : NULL;
	bool same = !n || sorted;

	if (sorted) {
		sort_members(a, sorted);
		sort_members(b, sorted + n);
	}
	for (size_t i = 0; same && i < n; i++)
		same = str_eq(sorted[i]->key, sorted[n + i]->key) && equal(sorted[i]->value, sorted[n + i]->value, alike, depth);
	free(sorted);
	return same;
}

static bool list_equal(const struct value *a, const struct value *b, bool alike, unsigned depth)
{
	if (a->kind != VALUE_MAP) {
		if (a->list.count != b->list.count)
			return false;
		for (size_t i = 0; i < a->list.count; i++)
			if (!equal(a->list.items[i], b->list.items[i], alike, depth))
				return false;
		return true;
	}
	return a->map.count == b->map.count && map_equal(a, b, alike, depth);
}

bool value_equal(const struct value *a, const struct value *b)
{
	return equal(a, b, false, 0);
}

bool value_alike(const struct value *a, const struct value *b)
{
	return equal(a, b, true, 0);
}

static struct value *copy(struct arena *a, const struct value *v, unsigned depth)
{
	struct value *n = depth > LIMIT_NESTING ? NULL : arena_alloc(a, sizeof(*n));

	if (!n)
		return NULL;
	*n = *v;
	switch (v->kind) {
	case VALUE_BIGINT:
	case VALUE_STRING:
	case VALUE_BYTES:
		n->str = arena_str(a, v->str.ptr, v->str.len);
		return n->str.ptr ? n : NULL;
	case VALUE_LIST:
	case VALUE_TUPLE:
		n->list.cap = n->list.count;
		n->list.items = arena_array(a, n->list.count, sizeof(*n->list.items));
		for (size_t i = 0; n->list.items && i < n->list.count; i++)
			if (!(n->list.items[i] = copy(a, v->list.items[i], depth + 1)))
				return NULL;
		return n->list.items ? n : NULL;
	case VALUE_MAP:
		n->map.cap = n->map.count;
		n->map.members = arena_array(a, n->map.count, sizeof(*n->map.members));
		for (size_t i = 0; n->map.members && i < n->map.count; i++) {
			struct member *m = &n->map.members[i];

			m->key = arena_str(a, v->map.members[i].key.ptr, v->map.members[i].key.len);
			m->value = copy(a, v->map.members[i].value, depth + 1);
			if (!m->key.ptr || !m->value)
				return NULL;
		}
		return n->map.members ? n : NULL;
	default:
		return n;
	}
}

struct value *value_copy(struct arena *a, const struct value *v)
{
	return v ? copy(a, v, 0) : NULL;
}
