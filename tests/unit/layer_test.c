/* SPDX-License-Identifier: MIT */
/* Random writes, truncations and reads of layers over layers, against the same content in memory. */
#include "tests/unit/unit.h"

#include "fs/layer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LARGEST = 30000, OPERATIONS = 50000, LONGEST = 700 };

static uint64_t state;
static unsigned char oracle[LARGEST], got[LARGEST];
static size_t oracle_size;

static size_t below(size_t n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (size_t)(state % n);
}

static int staging(void)
{
	char name[] = "/tmp/wiamodel-layer-XXXXXX";
	int fd = mkstemp(name);

	if (fd >= 0)
		unlink(name);
	return fd;
}

static void write_some(struct layer *l)
{
	unsigned char buf[LONGEST];
	size_t len = 1 + below(LONGEST), at = below(LARGEST - LONGEST);

	for (size_t i = 0; i < len; i++)
		buf[i] = (unsigned char)below(256);
	CHECK(layer_write(l, at, buf, len, NULL) == 0);
	memcpy(oracle + at, buf, len);
	if (at + len > oracle_size)
		oracle_size = at + len;
}

static void cut(struct layer *l)
{
	size_t size = below(LARGEST);

	CHECK(layer_truncate(l, size, NULL) == 0);
	if (size < oracle_size)
		memset(oracle + size, 0, oracle_size - size);
	oracle_size = size;
}

static void read_some(const struct layer *l)
{
	size_t at = below(LARGEST), len = below(LARGEST);
	size_t want = at >= oracle_size ? 0 : oracle_size - at < len ? oracle_size - at : len;

	CHECK(layer_read(l, at, got, len, NULL) == (ssize_t)want);
	CHECK(memcmp(got, oracle + at, want) == 0);
}

/* The content becomes the base of the next layer, and what was frozen takes no more. */
static struct layer *next(struct layer *l)
{
	struct extmap *m = NULL;
	struct layer *n = NULL;

	CHECK(layer_map(l, &m, NULL) == 0);
	CHECK(layer_write(l, 0, "x", 1, NULL) == -EBUSY);
	CHECK(layer_truncate(l, 0, NULL) == -EBUSY);
	layer_free(l);
	if (!m)
		return NULL;
	CHECK(m->size == oracle_size);
	CHECK(extmap_read(m, 0, got, oracle_size, NULL) == 0);
	CHECK(memcmp(got, oracle, oracle_size) == 0);
	CHECK(layer_new(staging(), m, &n, NULL) == 0);
	extmap_unref(m);
	return n;
}

static void random_operations(uint64_t seed)
{
	struct layer *l = NULL;

	state = seed | 1;
	printf("layer: seed %llu\n", (unsigned long long)seed);
	CHECK(layer_new(staging(), NULL, &l, NULL) == 0);
	for (int i = 0; l && i < OPERATIONS && !unit_failures; i++) {
		size_t what = below(1000);

		if (what < 500)
			write_some(l);
		else if (what < 530)
			cut(l);
		else if (what < 533)
			l = next(l);
		else
			read_some(l);
		CHECK(!l || layer_size(l) == oracle_size);
	}
	layer_free(l);
}

static void few_bytes_of_many(void)
{
	struct extmap *base = extmap_new();
	struct layer *l = NULL;
	struct stat st = {0};
	int fd = staging(), other = dup(fd);
	unsigned char b[3] = {9, 9, 9};

	extmap_append_zero(base, 10ull << 30);
	CHECK(layer_new(fd, base, &l, NULL) == 0);
	CHECK(layer_write(l, 9ull << 30, "a", 1, NULL) == 0);
	CHECK(layer_read(l, (9ull << 30) - 1, b, 3, NULL) == 3);
	CHECK(b[0] == 0 && b[1] == 'a' && b[2] == 0);
	CHECK(fstat(other, &st) == 0 && st.st_blocks < 2048);
	CHECK(layer_size(l) == 10ull << 30);
	CHECK(layer_write(l, INT64_MAX, "a", 1, NULL) == -EFBIG);
	CHECK(layer_write(l, UINT64_MAX, "a", 1, NULL) == -EFBIG);
	CHECK(layer_sync(l, NULL) == 0);
	layer_free(l);
	extmap_unref(base);
	close(other);
}

int main(int argc, char **argv)
{
	random_operations(argc > 1 ? strtoull(argv[1], NULL, 10) : (uint64_t)time(NULL));
	few_bytes_of_many();
	return unit_done("layer");
}
