/* SPDX-License-Identifier: MIT */
#include "tests/unit/unit.h"

#include "parsers/core/limits.h"
#include "views/names.h"

#include <stdlib.h>

static struct arena *a;

static bool path_is(struct str name, const char *path)
{
	struct str got = name_to_path(a, name), back;

	if (!str_is(got, path)) {
		printf("'%.*s' gives '%.*s', expected '%s'\n", STR_ARG(name), STR_ARG(got), path);
		return false;
	}
	return name_from_path(a, got, &back) && str_eq(back, name);
}

static void escapes(void)
{
	CHECK(path_is(STR("fc1.weight"), "fc1.weight"));
	CHECK(path_is(STR("conv/kernel"), "conv/kernel"));
	CHECK(path_is(STR("/a"), "%2Fa"));
	CHECK(path_is(STR("a//b"), "a%2F/b"));
	CHECK(path_is(STR("a/"), "a%2F"));
	CHECK(path_is(STR("///"), "%2F%2F%2F"));
	CHECK(path_is(STR(""), "%"));
	CHECK(path_is(STR("%"), "%25"));
	CHECK(path_is(STR("."), "%2E"));
	CHECK(path_is(STR("../../etc"), "%2E%2E/%2E%2E/etc"));
	CHECK(path_is(STR("a\nb"), "a%0Ab"));
	CHECK(path_is(STR("a\0b"), "a%00b"));
	CHECK(path_is(STR("\xff\xfe"), "%FF%FE"));
	CHECK(path_is(STR("gr\xc3\xb6\xc3\x9f"), "gr\xc3\xb6\xc3\x9f"));
	CHECK(path_is(STR("x~2"), "x%7E2"));
	CHECK(path_is(STR("x~y"), "x~y"));
	CHECK(path_is(STR("..."), "..."));
}

static void refusals(void)
{
	struct str name;

	CHECK(!name_from_path(a, STR("x~2"), &name));
	CHECK(!name_from_path(a, STR("a//b"), &name));
	CHECK(!name_from_path(a, STR("%41"), &name)); /* not how 'A' is spelled */
	CHECK(!name_from_path(a, STR("%4"), &name));
	CHECK(!name_from_path(a, STR(".."), &name));
}

static void long_names(void)
{
	char big[5000];
	struct str path, back;

	memset(big, 'n', sizeof(big));
	path = name_to_path(a, (struct str){big, 255});
	CHECK(path.len == 258 && memchr(path.ptr, '/', path.len) != NULL);
	CHECK(name_from_path(a, path, &back) && back.len == 255);
	path = name_to_path(a, (struct str){big, sizeof(big)});
	CHECK(path.len < 3500);
	memset(big, '/', sizeof(big));
	for (size_t i = 0; i < 2000; i += 2)
		big[i] = 'd';
	path = name_to_path(a, (struct str){big, 1399});
	CHECK(name_from_path(a, path, &back) && back.len == 1399);
	for (size_t i = 0, run = 0; i < path.len; i++) {
		run = path.ptr[i] == '/' ? 0 : run + 1;
		if (run > 255)
			CHECK(0 /* a component is too long */);
	}
}

/* Random names over a nasty alphabet go there and back, and no two share a path. */
static void random_names(void)
{
	static const char alphabet[] = "ab/.%~29\n\xc3\xa4\xff";
	enum { COUNT = 3000 };
	static struct str names[COUNT];
	static char text[COUNT][8];
	const char *const suffixes[] = {"", ".npy", NULL};
	struct nametree *t;

	srand(7);
	for (size_t i = 0; i < COUNT; i++) {
		size_t n = (size_t)rand() % 8;
		struct str back = {NULL, 0}, path;

		for (size_t k = 0; k < n; k++)
			text[i][k] = alphabet[(size_t)rand() % (sizeof(alphabet) - 1)];
		names[i] = (struct str){text[i], n};
		path = name_to_path(a, names[i]);
		if (!name_from_path(a, path, &back) || !str_eq(back, names[i]))
			CHECK(0 /* a name did not come back */);
	}
	t = nametree_new(names, COUNT, suffixes);
	CHECK(t != NULL);
	for (uint32_t i = 0; t && i < COUNT; i++) {
		struct name_entry e;
		uint32_t dir;
		struct str name;

		nametree_leaf(t, i, &dir, &name);
		if (!nametree_find(t, dir, name, false, &e) || e.index != i)
			CHECK(0 /* a leaf is not found under its own name */);
		for (size_t k = 0; suffixes[k]; k++) {
			char full[300];
			int n = snprintf(full, sizeof(full), "%.*s%s", (int)name.len, name.ptr, suffixes[k]);

			if (nametree_find(t, dir, (struct str){full, (size_t)n}, true, &e))
				CHECK(0 /* a leaf hides a directory */);
		}
	}
	nametree_free(t);
}

static void collisions(void)
{
	const struct str names[] = {STR("a"), STR("a/b"), STR("a"), STR("x"), STR("x.npy/y"), STR("a")};
	const char *const suffixes[] = {"", ".npy", NULL};
	const char *const expected[] = {"a~2", "a/b", "a~3", "x~2", "x.npy/y", "a~4"};
	struct nametree *t = nametree_new(names, 6, suffixes);

	CHECK(t != NULL);
	for (uint32_t i = 0; t && i < 6; i++) {
		char *path = nametree_leaf_path(t, i);

		CHECK(path && strcmp(path, expected[i]) == 0);
		free(path);
	}
	CHECK(t && nametree_subdir_count(t, 0) == 2);
	nametree_free(t);
}

int main(void)
{
	a = arena_new(LIMIT_MODEL_MEMORY);
	escapes();
	refusals();
	long_names();
	random_names();
	collisions();
	arena_free(a);
	return unit_done("names");
}
