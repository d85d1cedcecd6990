/* SPDX-License-Identifier: MIT */
#include "tests/unit/unit.h"

#include "fs/output.h"
#include "parsers/codec/fail.h"
#include "parsers/codec/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static int dir = -1;
static char dir_name[] = "/tmp/wiamodel-output-XXXXXX";

static size_t slurp(const char *name, unsigned char *buf, size_t cap)
{
	int fd = openat(dir, name, O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, cap);

	if (fd >= 0)
		close(fd);
	return n < 0 ? SIZE_MAX : (size_t)n;
}

static struct source *a_source(size_t size)
{
	int fd = openat(dir, "source", O_RDWR | O_CREAT | O_TRUNC, 0600);
	struct source *s = NULL;

	for (size_t i = 0; i < size; i++) {
		unsigned char c = (unsigned char)(i * 7 + 1);

		if (write(fd, &c, 1) != 1)
			return NULL;
	}
	source_from_fd(fd, "source", &s, NULL);
	return s;
}

static void counted(void *arg, uint64_t n)
{
	*(uint64_t *)arg += n;
}

static void pieces(void)
{
	static unsigned char want[20000], got[30000];
	struct source *s = a_source(9000);
	struct extmap m = {0}, *inner = extmap_new();
	struct output_file o;
	struct error e = {0};
	uint64_t written = 0;
	struct output_progress progress = {counted, &written};
	struct extent x;

	extmap_append_copy(&m, "head", 4);
	extmap_append_source(&m, s, 100, 8000);
	extmap_append_zero(&m, 5000);
	extmap_append_source(inner, s, 10, 50);
	extmap_append_copy(inner, "inner", 5);
	x = extent_slice(extent_map(inner), 20, 33);
	extmap_append(&m, &x);
	CHECK(extmap_failed(&m, &e) == 0);
	CHECK(output_open(&o, dir, "out", 0600, &e) == 0);
	CHECK(slurp("out", got, sizeof(got)) == SIZE_MAX); /* not under its name yet */
	CHECK(output_map(o.fd, &m, 0, &progress, &e) == 0);
	CHECK(written == m.size);
	CHECK(output_finish(&o, OUTPUT_SYNC, &e) == 0);
	CHECK(m.size == 4 + 8000 + 5000 + 33);
	CHECK(slurp("out", got, sizeof(got)) == m.size);
	CHECK(extmap_read(&m, 0, want, (size_t)m.size, &e) == 0);
	CHECK(memcmp(got, want, (size_t)m.size) == 0);
	extmap_unref(inner);
	extmap_release(&m);
	source_unref(s);
}

/* What lies alike in its pages is copied in whole pages: before them, they, what follows. */
static void pages(void)
{
	static unsigned char want[200000], got[200000];
	struct source *s = a_source(190000);
	static const struct {
		uint64_t at, from, size;
	} cases[] = {{37, 37, 180000}, {37, 4096 + 37, 8192}, {0, 8192, 4096}, {4095, 4095, 4097}, {4095, 4095, 4096},
		{1, 4097, 100}, {0, 0, 190000}, {5, 6, 180000}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct extmap m = {0};
		struct output_file o;
		struct error e = {0};

		memset(want, 'x', sizeof(want));
		extmap_append_copy(&m, want, cases[i].at);
		extmap_append_source(&m, s, cases[i].from, cases[i].size);
		extmap_append_copy(&m, "end", 3);
		CHECK(output_open(&o, dir, "out", 0600, &e) == 0);
		CHECK(output_map(o.fd, &m, i & 1 ? OUTPUT_SYNC : 0, NULL, &e) == 0);
		CHECK(output_finish(&o, OUTPUT_REPLACE, &e) == 0);
		CHECK(slurp("out", got, sizeof(got)) == cases[i].at + cases[i].size + 3);
		CHECK(extmap_read(&m, 0, want, (size_t)m.size, &e) == 0);
		CHECK(memcmp(got, want, (size_t)m.size) == 0);
		extmap_release(&m);
	}
	source_unref(s);
	unlinkat(dir, "out", 0);
}

static void replacing(void)
{
	struct output_file o;
	struct extmap m = {0};
	unsigned char got[8];

	extmap_append_copy(&m, "new", 3);
	CHECK(output_open(&o, dir, "out", 0600, NULL) == 0);
	CHECK(output_map(o.fd, &m, 0, NULL, NULL) == 0);
	CHECK(output_finish(&o, 0, NULL) == -EEXIST);
	CHECK(slurp("out", got, sizeof(got)) == 8); /* the old one */
	CHECK(output_open(&o, dir, "out", 0600, NULL) == 0);
	CHECK(output_map(o.fd, &m, 0, NULL, NULL) == 0);
	CHECK(output_finish(&o, OUTPUT_REPLACE, NULL) == 0);
	CHECK(slurp("out", got, sizeof(got)) == 3 && memcmp(got, "new", 3) == 0);
	extmap_release(&m);
}

static void failing(void)
{
	struct codec *c = codec_fail(100, EIO, STR("damaged here"));
	struct extent x = extent_codec(c);
	struct extmap m = {0};
	struct output_file o;
	struct error e = {0};
	char path[64], cmd[128];

	extmap_append(&m, &x);
	codec_unref(c);
	CHECK(output_open(&o, dir, "bad", 0600, &e) == 0);
	CHECK(output_map(o.fd, &m, 0, NULL, &e) == -EIO);
	CHECK(strstr(e.text, "damaged here"));
	output_abandon(&o);
	output_abandon(&o); /* twice is fine */
	extmap_release(&m);
	/* nothing but what the tests made */
	snprintf(path, sizeof(path), "%s", dir_name);
	snprintf(cmd, sizeof(cmd), "test \"$(ls -A %s)\" = \"$(printf 'out\\nsource')\"", path);
	CHECK(system(cmd) == 0);
}

static void sums(void)
{
	/* FIPS 180-4's example */
	struct extent x = extent_memory("abc", 3);
	uint8_t sum[SHA256_BYTES];
	char hex[65];

	CHECK(sha256_extent(&x, sum, NULL) == 0);
	sha256_hex(sum, hex);
	CHECK(strcmp(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad") == 0);
}

int main(void)
{
	if (!mkdtemp(dir_name) || (dir = open(dir_name, O_RDONLY | O_DIRECTORY)) < 0) {
		perror(dir_name);
		return 1;
	}
	pages();
	pieces();
	replacing();
	failing();
	sums();
	unlinkat(dir, "out", 0);
	unlinkat(dir, "source", 0);
	close(dir);
	rmdir(dir_name);
	return unit_done("output");
}
