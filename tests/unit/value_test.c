/* SPDX-License-Identifier: MIT */
#include "parsers/core/limits.h"
#include "parsers/core/value.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

static struct arena *a;

static struct value *nested(unsigned depth)
{
	struct value *v = value_int(a, 1);

	while (depth--) {
		struct value *outer = value_list(a);

		value_append(a, outer, v);
		v = outer;
	}
	return v;
}

static void making(void)
{
	struct value *v;

	CHECK(value_uint(a, INT64_MAX)->kind == VALUE_INT);
	v = value_uint(a, (uint64_t)INT64_MAX + 1);
	CHECK(v->kind == VALUE_BIGINT && str_is(v->str, "9223372036854775808"));
	CHECK(value_str(a, STR("gr\xc3\xbc\xc3\x9f"))->kind == VALUE_STRING);
	CHECK(value_str(a, STR("\xff"))->kind == VALUE_BYTES && value_str(a, STR("\xed\xa0\x80"))->kind == VALUE_BYTES);
	CHECK(value_cstr(a, "x")->str.len == 1);
}

static void maps(void)
{
	struct value *m = value_map(a);

	CHECK(value_set(a, m, STR("a"), value_int(a, 1)) == 0 && value_set(a, m, STR("b"), value_int(a, 2)) == 0);
	CHECK(value_get(m, "a")->integer == 1 && !value_get(m, "c") && !value_get(m, "") && !value_get(NULL, "a"));
	CHECK(value_put(a, m, STR("a"), value_int(a, 3)) == 0 && m->map.count == 2 && value_get(m, "a")->integer == 3);
	CHECK(str_is(m->map.members[0].key, "a")); /* replaced where it was */
	CHECK(value_set(a, m, STR("a"), value_int(a, 4)) == 0 && m->map.count == 3 && value_get(m, "a")->integer == 4);
	CHECK(value_put(a, m, STR("new"), value_null(a)) == 0 && m->map.count == 4);
	CHECK(!value_get(value_int(a, 1), "a"));
	CHECK(value_set(a, NULL, STR("a"), value_null(a)) == -ENOMEM && value_set(a, m, STR("a"), NULL) == -ENOMEM);
	CHECK(value_append(a, NULL, value_null(a)) == -ENOMEM && value_append(a, value_list(a), NULL) == -ENOMEM);
}

static struct value *pair(const char *x, int64_t xv, const char *y, int64_t yv)
{
	struct value *m = value_map(a);

	value_set(a, m, str_from(x), value_int(a, xv));
	value_set(a, m, str_from(y), value_int(a, yv));
	return m;
}

static void comparing(void)
{
	struct value *one = value_int(a, 1), *list = value_list(a), *tuple = value_tuple(a), *tagged = value_int(a, 1);

	CHECK(value_equal(one, value_int(a, 1)) && !value_equal(one, value_int(a, 2)) && !value_equal(one, NULL));
	CHECK(value_equal(NULL, NULL) && !value_equal(one, value_float(a, 1)) && !value_equal(one, value_bool(a, true)));
	CHECK(value_equal(value_float(a, (double)NAN), value_float(a, -(double)NAN)));
	CHECK(!value_equal(value_float(a, 0.0), value_float(a, -0.0)));
	CHECK(!value_equal(value_float(a, 0.5), value_float32(a, 0.5f))); /* saved as another type */
	CHECK(value_alike(value_float(a, 0.1), value_float32(a, 0.1f)) && value_alike(one, value_float(a, 1)));
	CHECK(!value_alike(one, value_float(a, 1.5)) && !value_alike(one, value_bool(a, true)));
	tagged->tag = 7;
	CHECK(!value_equal(one, tagged));
	CHECK(!value_equal(value_str(a, STR("x")), value_bytes(a, STR("x"))));
	value_append(a, list, one);
	value_append(a, tuple, one);
	CHECK(!value_equal(list, tuple) && !value_equal(list, value_list(a)) && value_equal(list, value_copy(a, list)));
	/* order of keys does not count, how often each is there does */
	CHECK(value_equal(pair("a", 1, "b", 2), pair("b", 2, "a", 1)));
	CHECK(!value_equal(pair("a", 1, "b", 2), pair("a", 1, "b", 3)) && !value_equal(pair("a", 1, "b", 2), pair("a", 1, "c", 2)));
	CHECK(!value_equal(pair("a", 1, "a", 1), pair("a", 1, "b", 1)) && !value_equal(pair("a", 1, "a", 2), pair("a", 2, "a", 1)));
}

static void copying(void)
{
	struct arena *other = arena_new(1u << 20), *small = arena_new(100);
	char text[] = "text";
	struct value *list = value_list(a), *map = value_map(a), *again;

	value_append(a, list, value_str(a, str_from(text)));
	value_append(a, list, value_float32(a, 0.1f));
	value_append(a, list, value_tuple(a));
	value_append(a, list, value_null(a));
	value_set(a, map, str_from(text), list);
	again = value_copy(other, map);
	CHECK(again != map && value_equal(map, again));
	text[0] = 'n'; /* nothing of it is shared */
	CHECK(str_is(again->map.members[0].key, "text") && str_is(again->map.members[0].value->list.items[0]->str, "text"));
	CHECK(value_append(other, again->map.members[0].value, value_int(other, 5)) == 0 && list->list.count == 4);
	CHECK(!value_copy(small, map) && !value_copy(other, NULL));
	arena_free(other);
	arena_free(small);
}

/* As deep as a file may make it, and deeper: no answer, and no full stack. */
static void deep(void)
{
	CHECK(value_copy(a, nested(LIMIT_NESTING)) && value_equal(nested(LIMIT_NESTING), nested(LIMIT_NESTING)));
	CHECK(!value_copy(a, nested(LIMIT_NESTING + 1)) && !value_copy(a, nested(100000)));
	CHECK(!value_equal(nested(100000), nested(100000)));
}

/* A hundred thousand members: neither quadratic nor more than the arena may take. */
static void many(void)
{
	struct value *x = value_map(a), *y = value_map(a);

	for (unsigned i = 0; i < 100000; i++) {
		value_set(a, x, arena_printf(a, "%u", i), value_int(a, i));
		value_set(a, y, arena_printf(a, "%u", 99999 - i), value_int(a, 99999 - i));
	}
	CHECK(x->map.count == 100000 && value_equal(x, y));
	y->map.members[500].value = value_null(a);
	CHECK(!value_equal(x, y));
	struct arena *small = arena_new(1u << 16);
	struct value *list = value_list(small);
	int r = 0;

	for (unsigned i = 0; i < 100000 && !r; i++)
		r = value_append(small, list, value_null(small));
	CHECK(r == -ENOMEM && list->list.count > 100 && list->list.items[list->list.count - 1]->kind == VALUE_NULL);
	arena_free(small);
}

int main(void)
{
	a = arena_new(256u << 20);
	making();
	maps();
	comparing();
	copying();
	deep();
	many();
	arena_free(a);
	return unit_done("value");
}
