/* SPDX-License-Identifier: MIT */
/* Reading and writing JSON: inverse for all that a value can be; what is refused, and where. */
#include "parsers/container/json.h"
#include "parsers/container/json_write.h"
#include "parsers/core/limits.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

static struct arena *a;

static struct value *parse(const char *text)
{
	struct value *v = NULL;
	struct error e = {0};

	if (json_parse(a, text, strlen(text), &v, &e) < 0) {
		printf("%s: %s\n", text, e.text);
		return NULL;
	}
	return v;
}

static char *written(const struct value *v)
{
	struct json j = {0};
	size_t len;

	json_value(&j, v);
	json_raw(&j, (struct str){"", 1}); /* so that it is a C string */
	return json_take(&j, &len);
}

static bool writes(const struct value *v, const char *want)
{
	char *text = written(v);
	bool same = text && strcmp(text, want) == 0;

	if (!same)
		printf("got: %s\n", text ? text : "nothing");
	free(text);
	return same;
}

static bool survives(struct value *v)
{
	char *text = written(v);
	struct value *again = text ? parse(text) : NULL;
	bool same = again && value_equal(v, again);

	free(text);
	return same;
}

static void reading(void)
{
	struct value *v = parse(" {\"b\": [1, -2.5e3, true, null, \"\\u00fc\\n\"], \"a\": {}} ");

	CHECK(v && v->kind == VALUE_MAP && v->map.count == 2 && str_is(v->map.members[0].key, "b")); /* in order */
	CHECK(value_get(v, "b")->list.count == 5 && value_get(v, "b")->list.items[0]->integer == 1);
	CHECK(value_get(v, "b")->list.items[1]->kind == VALUE_FLOAT && value_get(v, "b")->list.items[1]->real < -2499);
	CHECK(str_is(value_get(v, "b")->list.items[4]->str, "\xc3\xbc\n"));
	CHECK(parse("7")->integer == 7 && parse("-0.0")->kind == VALUE_FLOAT && signbit(parse("-0.0")->real));
	v = parse("[9223372036854775807, 9223372036854775808, -9223372036854775808, -9223372036854775809]");
	CHECK(v->list.items[0]->kind == VALUE_INT && v->list.items[0]->integer == INT64_MAX);
	CHECK(v->list.items[1]->kind == VALUE_BIGINT && str_is(v->list.items[1]->str, "9223372036854775808"));
	CHECK(v->list.items[2]->kind == VALUE_INT && v->list.items[2]->integer == INT64_MIN);
	CHECK(v->list.items[3]->kind == VALUE_BIGINT && str_is(v->list.items[3]->str, "-9223372036854775809"));
	/* digits inside a string are none */
	CHECK(str_is(parse("\"99999999999999999999 \\\" 99999999999999999999\"")->str,
		"99999999999999999999 \" 99999999999999999999"));
}

static void special(void)
{
	static const char big[] = "[{\"$int\": \"5\"}, 99999999999999999999]";
	struct value *plain = NULL;

	CHECK(isnan(parse("{\"$float\": \"NaN\"}")->real) && parse("{\"$float\": \"-Infinity\"}")->real < 0);
	CHECK(parse("{\"$bytes\": \"AP8=\"}")->kind == VALUE_BYTES && str_eq(parse("{\"$bytes\": \"AP8=\"}")->str, STR("\0\xff")));
	CHECK(parse("{\"$tuple\": [1]}")->kind == VALUE_TUPLE);
	CHECK(str_is(parse("{\"$$x\": 1}")->map.members[0].key, "$x"));
	/* what others wrote has no spellings of ours */
	CHECK(json_parse_plain(a, "{\"$float\": \"NaN\"}", 17, &plain, NULL) == 0 && plain->kind == VALUE_MAP &&
		str_is(plain->map.members[0].key, "$float"));
	CHECK(json_parse_plain(a, big, strlen(big), &plain, NULL) == 0 &&
		plain->list.items[0]->kind == VALUE_MAP && plain->list.items[1]->kind == VALUE_BIGINT &&
		str_is(plain->list.items[1]->str, "99999999999999999999"));
}

static void refused(void)
{
	static const char *const bad[] = {"", " ", "{", "[1,]", "{\"a\":1,}", "1 2", "{} x", "nul", "'a'", "{1: 2}", "[01]", "\"\t\"",
		"\"\\x\"", "\"\xff\"", "\"\\ud800\"", "NaN", "[1 2]", "{\"a\" 1}", "{\"a\": 1, \"a\": 2}", "\"abc", "-", "1e", "1e999",
		"{\"$float\": \"1\"}", "{\"$float\": 1}", "{\"$int\": \"x\"}", "{\"$int\": \"\"}", "{\"$bytes\": \"A\"}", "{\"$bytes\": \"A===\"}",
		"{\"$tuple\": 1}", "{\"$other\": 1}", "{\"$float\": \"NaN\", \"x\": 1}"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct value *v = (struct value *)a;
		struct error e = {0};
		int r = json_parse(a, bad[i], strlen(bad[i]), &v, &e);

		if (r != -EINVAL || e.code != EINVAL || !*e.text)
			printf("taken: %s (%d)\n", bad[i], r);
		CHECK(r == -EINVAL && e.code == EINVAL && *e.text);
	}
	struct error e = {0};
	struct value *v;

	CHECK(json_parse(a, "{\n \"a\": x}", 10, &v, &e) == -EINVAL && strstr(e.text, "line 2"));
	error_clear(&e);
	CHECK(json_parse(a, "1\0" "2", 3, &v, &e) == -EINVAL); /* a NUL is no end */
}

/* Nesting: as deep as is allowed, one more, and a million. */
static void deep(void)
{
	char *text = malloc(2000000);
	struct value *v;

	for (size_t n = 1; n <= 1000000; n = n == 1 ? LIMIT_NESTING - 1 : n < LIMIT_NESTING ? LIMIT_NESTING + 1 : n * 70) {
		memset(text, '[', n);
		memset(text + n, ']', n);
		CHECK((json_parse(a, text, 2 * n, &v, NULL) == 0) == (n <= LIMIT_NESTING));
		CHECK(json_parse(a, text, n, &v, NULL) == -EINVAL);
	}
	free(text);
}

static void round_trip(void)
{
	static const double reals[] = {0, -0.0, 0.1, 1.0 / 3, 1e300, 5e-324, 1.7976931348623157e308, 123456789012345680.0, 1, -1e21};
	struct value *list = value_list(a), *map = value_map(a), *tuple = value_tuple(a);

	for (size_t i = 0; i < sizeof(reals) / sizeof(reals[0]); i++)
		value_append(a, list, value_float(a, reals[i]));
	value_append(a, list, value_float(a, (double)NAN));
	value_append(a, list, value_float(a, (double)INFINITY));
	value_append(a, list, value_uint(a, UINT64_MAX));
	value_append(a, list, value_bigint(a, STR("-1180591620717411303424")));
	value_append(a, list, value_int(a, INT64_MIN));
	value_append(a, list, value_str(a, STR("\"\\/\b\f\n\r\t\x01\x7f \xf0\x9f\x90\x8d")));
	value_append(a, list, value_str(a, STR("nul\0inside")));
	value_append(a, list, value_bytes(a, STR("\0\x80\xff")));
	value_append(a, tuple, value_list(a));
	value_append(a, tuple, value_map(a));
	value_append(a, list, tuple);
	value_append(a, list, value_tuple(a));
	value_set(a, map, STR("$float"), value_int(a, 1));
	value_set(a, map, STR("$"), value_int(a, 2));
	value_set(a, map, STR("$$"), value_int(a, 3));
	value_set(a, map, STR(""), list);
	CHECK(survives(map));
	/* the shortest text that reads back equal */
	CHECK(writes(value_float(a, 0.1), "0.1") && writes(value_float32(a, 0.1f), "0.1") && writes(value_float(a, 1.0), "1.0"));
	CHECK(writes(value_float(a, (double)0.1f), "0.10000000149011612") && writes(value_float(a, 1e300), "1e+300"));
	CHECK(writes(value_float(a, -0.0), "-0.0") && writes(value_uint(a, UINT64_MAX), "{\"$int\": \"18446744073709551615\"}"));
	CHECK(writes(NULL, "null") && writes(value_bool(a, false), "false"));
}

static void writing(void)
{
	struct json j = {0};
	size_t len = 0;
	char *text;

	json_open(&j, '{');
	json_key(&j, STR("shape"));
	json_open_flat(&j, '[');
	json_int(&j, -1);
	json_uint(&j, UINT64_MAX);
	json_close(&j, ']');
	json_key(&j, STR("none"));
	json_nothing(&j);
	json_key(&j, STR("empty"));
	json_open(&j, '{');
	json_close(&j, '}');
	json_key(&j, STR("in"));
	json_open(&j, '[');
	json_open(&j, '{');
	json_key(&j, STR("t"));
	json_text(&j, STR("a\"b"));
	json_close(&j, '}');
	json_bool(&j, true);
	json_close(&j, ']');
	json_close(&j, '}');
	json_end(&j);
	text = json_take(&j, &len);
	CHECK(text && str_is((struct str){text, len}, "{\n  \"shape\": [-1, 18446744073709551615],\n  \"none\": null,\n  \"empty\": {},\n  \"in\": [\n    {\n"
			   "      \"t\": \"a\\\"b\"\n    },\n    true\n  ]\n}\n"));
	free(text);
	CHECK(!j.text && !j.len); /* taken */
	json_open(&j, '[');
	json_release(&j);
	CHECK(!j.text);
}

int main(void)
{
	a = arena_new(256u << 20);
	reading();
	special();
	refused();
	deep();
	round_trip();
	writing();
	arena_free(a);
	return unit_done("json");
}
