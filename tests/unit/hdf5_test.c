/* SPDX-License-Identifier: MIT */
/* HDF5 files made, changed and read; chunks at random places. */
#include "tests/unit/unit.h"

#include "parsers/codec/hdf5_filters.h"
#include "parsers/container/hdf5_change.h"
#include "parsers/core/codec.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const float numbers[6] = {1, 2, 3, 4, 5, 6};
static const uint64_t dims[2] = {2, 3};

/* All of a map as a source. */
static struct source *flat(struct extmap *map)
{
	unsigned char *bytes = malloc((size_t)map->size + 1);

	CHECK(bytes && extmap_read(map, 0, bytes, (size_t)map->size, NULL) == 0);
	return source_from_memory(bytes, (size_t)map->size, "flat");
}

static const struct hdf5_object *find(const struct hdf5_file *f, const char *path)
{
	for (size_t i = 0; i < f->count; i++)
		if (str_is(f->objects[i].path, path))
			return &f->objects[i];
	return NULL;
}

static bool holds(const struct hdf5_file *f, struct source *src, const char *path, const void *want, size_t size)
{
	const struct hdf5_object *o = find(f, path);
	struct extent content = extent_source(src, 0, source_size(src)), data;
	unsigned char *got = malloc(size ? size : 1);
	bool same = false;

	if (o && got && hdf5_data(o, &content, src, &data, NULL) == 0) {
		same = data.size == size && extent_read(&data, 0, got, size, NULL) == 0 && memcmp(got, want, size) == 0;
		extent_unref(&data);
	}
	free(got);
	return same;
}

static struct hdf5_step make(const char *path)
{
	return (struct hdf5_step){.kind = HDF5_MAKE, .path = str_from(path), .dtype = DTYPE_FLOAT32, .rank = 2, .dims = dims,
		.data = extent_memory(numbers, sizeof(numbers))};
}

static struct source *create(void)
{
	struct hdf5_step steps[3] = {make("a/b/c"), make("d"), {.kind = HDF5_SET_ATTR, .path = STR(""), .to = STR("who")}};
	struct arena *a = arena_new(1 << 20);
	struct extmap map = {0};
	struct error e = {0};
	struct source *s;

	steps[2].value = value_cstr(a, "me");
	CHECK(hdf5_change(NULL, NULL, steps, 3, NULL, 0, &map, &e) == 0);
	s = flat(&map);
	extmap_release(&map);
	arena_free(a);
	return s;
}

static struct source *change(struct source *old, const struct hdf5_step *steps, size_t n, const struct hdf5_patch *p,
	size_t patches)
{
	struct extent content = extent_source(old, 0, source_size(old));
	struct extmap map = {0};
	struct error e = {0};
	struct source *s = NULL;

	CHECK(hdf5_change(&content, old, steps, n, p, patches, &map, &e) == 0);
	if (!e.code)
		s = flat(&map);
	extmap_release(&map);
	return s;
}

static void test_change(void)
{
	struct arena *a = arena_new(8 << 20);
	struct source *first = create(), *second;
	struct extent content = extent_source(first, 0, source_size(first));
	static const float other[6] = {9, 8, 7, 6, 5, 4};
	struct hdf5_file f;
	struct error e = {0};
	unsigned char *x = malloc(source_size(first)), *y = malloc(source_size(first));
	size_t differ = 0;

	CHECK(hdf5_read(&content, first, a, &f, &e) == 0);
	CHECK(holds(&f, first, "a/b/c", numbers, sizeof(numbers)) && holds(&f, first, "d", numbers, sizeof(numbers)));
	CHECK(find(&f, "") && hdf5_attr(find(&f, ""), "who") && str_is(hdf5_attr(find(&f, ""), "who")->value->str, "me"));

	/* a patch changes its range and nothing else */
	struct hdf5_patch patch = {hdf5_place(find(&f, "d")), extent_memory(other, sizeof(other))};

	second = change(first, NULL, 0, &patch, 1);
	CHECK(second && source_size(second) == source_size(first));
	source_read(first, 0, x, (size_t)source_size(first), NULL);
	source_read(second, 0, y, (size_t)source_size(first), NULL);
	for (uint64_t i = 0; i < source_size(first); i++)
		differ += x[i] != y[i] && (i < patch.offset || i >= patch.offset + sizeof(other));
	CHECK(differ == 0 && memcmp(y + patch.offset, other, sizeof(other)) == 0);
	source_unref(second);

	/* steps and a patch together */
	struct hdf5_step steps[] = {{.kind = HDF5_DROP, .path = STR("a/b/c")}, {.kind = HDF5_MOVE, .path = STR("d"), .to = STR("x/y")},
		make("z")};

	second = change(first, steps, 3, &patch, 1);
	content = extent_source(second, 0, source_size(second));
	CHECK(hdf5_read(&content, second, a, &f, &e) == 0);
	CHECK(!find(&f, "a/b/c") && !find(&f, "d") && holds(&f, second, "x/y", other, sizeof(other)));
	CHECK(holds(&f, second, "z", numbers, sizeof(numbers)));
	source_unref(second);

	/* what cannot be done says so */
	struct extmap map = {0};
	struct hdf5_step bad = {.kind = HDF5_DROP, .path = STR("nothing")};

	content = extent_source(first, 0, source_size(first));
	CHECK(hdf5_change(&content, first, &bad, 1, NULL, 0, &map, &e) < 0 && strstr(e.text, "cannot remove 'nothing'"));
	extmap_release(&map);
	free(x);
	free(y);
	source_unref(first);
	arena_free(a);
}

/* Any range of a chunked array is the same range of all of it. */
static void test_chunks(void)
{
	static const char *const paths[] = {"chunked", "deflate", "fletcher32", "lzf", "scaleoffset", "partly_written", "chunked_cube"};
	struct arena *a = arena_new(8 << 20);
	struct error e = {0};
	struct source *src = NULL;
	struct hdf5_file f = {0};
	uint32_t seed = 1;

	CHECK(source_open("tests/golden/keras/good-storage.h5", &src, &e) == 0);
	struct extent content = extent_source(src, 0, source_size(src));

	CHECK(hdf5_read(&content, src, a, &f, &e) == 0);
	for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
		const struct hdf5_object *o = find(&f, paths[i]);
		unsigned char all[8192], part[8192];
		struct extent data;

		CHECK(o && hdf5_data(o, &content, src, &data, &e) == 0 && data.size <= sizeof(all));
		CHECK(extent_read(&data, 0, all, (size_t)data.size, &e) == 0);
		for (int k = 0; k < 300; k++) {
			size_t at = (seed = seed * 1664525 + 1013904223) % data.size;
			size_t n = (seed = seed * 1664525 + 1013904223) % (data.size - at) + 1;

			CHECK(extent_read(&data, at, part, n, &e) == 0 && memcmp(part, all + at, n) == 0);
		}
		extent_unref(&data);
	}
	source_unref(src);
	arena_free(a);
}

struct reader {
	struct extent *data;
	const unsigned char *all;
	uint32_t seed;
	unsigned wrong;
};

static void *read_ranges(void *arg)
{
	struct reader *x = arg;
	unsigned char part[4096];

	for (int k = 0; k < 300; k++) {
		size_t at = (x->seed = x->seed * 1664525 + 1013904223) % (x->data->size - 1);
		size_t n = (x->seed = x->seed * 1664525 + 1013904223) % sizeof(part) + 1;

		if (n > x->data->size - at)
			n = (size_t)(x->data->size - at);
		x->wrong += extent_read(x->data, at, part, n, NULL) < 0 || memcmp(part, x->all + at, n) != 0;
	}
	return NULL;
}

/* Several threads and the cache they share. */
static void test_threads(void)
{
	struct arena *a = arena_new(8 << 20);
	struct hdf5_file f = {0};
	struct source *src = NULL;
	struct reader readers[6];
	pthread_t threads[6];
	unsigned char all[2][4096];
	struct extent data[2];

	CHECK(source_open("tests/golden/keras/good-storage.h5", &src, NULL) == 0);
	struct extent content = extent_source(src, 0, source_size(src));

	CHECK(hdf5_read(&content, src, a, &f, NULL) == 0);
	for (unsigned i = 0; i < 2; i++) {
		CHECK(hdf5_data(find(&f, i ? "lzf" : "fletcher32"), &content, src, &data[i], NULL) == 0);
		CHECK(data[i].size <= sizeof(all[i]) && extent_read(&data[i], 0, all[i], (size_t)data[i].size, NULL) == 0);
	}
	for (unsigned i = 0; i < 6; i++) {
		readers[i] = (struct reader){&data[i % 2], all[i % 2], i, 0};
		CHECK(pthread_create(&threads[i], NULL, read_ranges, &readers[i]) == 0);
	}
	for (unsigned i = 0; i < 6; i++) {
		pthread_join(threads[i], NULL);
		CHECK(readers[i].wrong == 0);
	}
	extent_unref(&data[0]);
	extent_unref(&data[1]);
	source_unref(src);
	arena_free(a);
}

static bool unfilter(uint32_t id, const void *in, size_t size, const void *want, size_t want_size)
{
	struct hdf5_object o = {.filter_count = 1, .filters = {{id, 0, 4}}};
	unsigned char *packed = malloc(size), *out = NULL;
	bool same;

	memcpy(packed, in, size);
	if (hdf5_unfilter(&o, 0, packed, size, want_size, &out, NULL) < 0)
		return false;
	same = memcmp(out, want, want_size) == 0;
	free(out);
	return same;
}

static void test_filters(void)
{
	/* "abc", then 5 bytes from 3 before; a copy of 9 + 3 bytes */
	CHECK(unfilter(HDF5_LZF, "\x02" "abc" "\x60\x02", 6, "abcabcab", 8));
	CHECK(unfilter(HDF5_LZF, "\x00" "x" "\xe0\x03\x00", 5, "xxxxxxxxxxxxx", 13));
	CHECK(!unfilter(HDF5_LZF, "\x02" "abc" "\x60\x03", 6, "abcabcab", 8)); /* from before the beginning */
	CHECK(!unfilter(HDF5_LZF, "\x05" "abc", 4, "abc", 3));
	CHECK(unfilter(HDF5_SHUFFLE, "aAbBcCdD", 8, "abcdABCD", 8));
	CHECK(!unfilter(HDF5_FLETCHER32, "abcd\0\0\0\0", 8, "abcd", 4));
	CHECK(!unfilter(HDF5_DEFLATE, "nothing", 7, "", 0));
}

int main(void)
{
	test_change();
	test_chunks();
	test_threads();
	test_filters();
	return unit_done("hdf5");
}
