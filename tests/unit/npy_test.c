/* SPDX-License-Identifier: MIT */
/* Headers of .npy files: those that NumPy writes, those it reads, and what is refused. */
#include "parsers/container/npy.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* version, header text, data of `bytes` zeroes */
static int read_as(unsigned major, unsigned minor, const char *text, uint64_t bytes, struct npy *out, struct error *e)
{
	unsigned char head[12] = "\x93NUMPY";
	size_t n = strlen(text), prefix = major == 1 ? 10 : 12;
	struct extmap m = {0};
	int r;

	head[6] = (unsigned char)major;
	head[7] = (unsigned char)minor;
	for (size_t i = 8; i < prefix; i++)
		head[i] = (unsigned char)(n >> 8 * (i - 8));
	extmap_append_memory(&m, "junk", 4); /* it need not be at the beginning of the map */
	extmap_append_copy(&m, head, prefix);
	extmap_append_copy(&m, text, n);
	extmap_append_zero(&m, bytes);
	r = npy_read(&m, 4, m.size - 4, out, e);
	extmap_release(&m);
	return r;
}

static int read_text(const char *text, uint64_t bytes, struct npy *out)
{
	return read_as(1, 0, text, bytes, out, NULL);
}

#define HEAD(descr, shape) "{'descr': " descr ", 'fortran_order': False, 'shape': " shape ", }\n"

static void reading(void)
{
	struct npy n;

	CHECK(read_text(HEAD("'<f4'", "(2, 3)"), 24, &n) == 0 && n.dtype == DTYPE_FLOAT32 && n.rank == 2 && n.shape[0] == 2 &&
		n.shape[1] == 3 && n.count == 6 && n.itemsize == 4 && !n.fortran && !n.big_endian);
	CHECK(n.data_offset == 10 + strlen(HEAD("'<f4'", "(2, 3)")));
	CHECK(read_text("{'shape': (5,), 'fortran_order': True, 'descr': '>i2'}", 10, &n) == 0 && n.dtype == DTYPE_INT16 &&
		n.big_endian && n.fortran && n.rank == 1 && n.shape[0] == 5);
	CHECK(read_text(HEAD("'<f8'", "()"), 8, &n) == 0 && n.rank == 0 && n.count == 1);
	CHECK(read_text(HEAD("'<f8'", "(0, 7)"), 0, &n) == 0 && n.count == 0);
	CHECK(read_text(HEAD("'|b1'", "(3,)"), 3, &n) == 0 && n.dtype == DTYPE_BOOL);
	CHECK(read_text(HEAD("'>u1'", "(3,)"), 3, &n) == 0 && n.dtype == DTYPE_UINT8 && !n.big_endian); /* bytes have no order */
	CHECK(read_text(HEAD("'<c16'", "(3,)"), 48, &n) == 0 && n.dtype == DTYPE_COMPLEX128);
	CHECK(read_text(HEAD("'<U5'", "(2,)"), 40, &n) == 0 && n.dtype == DTYPE_STRING && n.unicode && n.itemsize == 20);
	CHECK(read_text(HEAD("'|S3'", "(2,)"), 6, &n) == 0 && n.dtype == DTYPE_STRING && n.bytes && n.itemsize == 3);
	CHECK(read_text(HEAD("'<M8[ns]'", "(2,)"), 16, &n) == 0 && n.dtype == DTYPE_NONE && strcmp(n.descr, "<M8[ns]") == 0);
	CHECK(read_text(HEAD("[('a', '<f4'), ('b', '|S3', (2,))]", "(2,)"), 20, &n) == 0 && n.dtype == DTYPE_NONE && !n.itemsize);
	CHECK(read_text(HEAD("'|O'", "(2,)"), 20, &n) == 0 && n.dtype == DTYPE_NONE);
	/* more data than the shape needs; Python 2's longs in the old versions only */
	CHECK(read_text(HEAD("'<f4'", "(2,)"), 100, &n) == 0 && n.count == 2);
	CHECK(read_as(1, 0, HEAD("'<f4'", "(2L, 3L)"), 24, &n, NULL) == 0 && n.count == 6);
	CHECK(read_as(2, 0, HEAD("'<f4'", "(2L, 3L)"), 24, &n, NULL) == 0);
	CHECK(read_as(3, 0, HEAD("'<f4'", "(2L, 3L)"), 24, &n, NULL) == -EINVAL);
	CHECK(read_as(3, 0, HEAD("'<f4'", "(2, 3)"), 24, &n, NULL) == 0);
}

static void refused(void)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} bad[] = {
		{"", 0}, {"{}", 0}, {"{", 0}, {"x", 0}, {"[1]", 8},
		{"{'descr': '<f4', 'fortran_order': False}", 8},
		{"{'descr': '<f4', 'shape': (2,)}", 8},
		{"{'fortran_order': False, 'shape': (2,)}", 8},
		{"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}", 8},
		{"{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}", 8},
		{HEAD("'<f4'", "(2,)") "x", 8},
		{HEAD("'<f4'", "2"), 8}, {HEAD("'<f4'", "(2)"), 8}, {HEAD("'<f4'", "[2]"), 8}, {HEAD("'<f4'", "(-1,)"), 8},
		{HEAD("'<f4'", "(2.0,)"), 8}, {HEAD("'<f4'", "(9223372036854775808,)"), 8}, {HEAD("'<f4'", "(2,"), 8},
		{HEAD("'<f4'", "(4294967296, 4294967296)"), 8}, {HEAD("'<f8'", "(2305843009213693952,)"), 8},
		{HEAD("'<f4", "(2,)"), 8}, {HEAD("<f4", "(2,)"), 8}, {HEAD("'<f4'", "(exit(),)"), 8},
		{HEAD("__import__('os').system('x')", "(2,)"), 8}, {HEAD("[('a'", "(2,)"), 8},
		{HEAD("'<f4'", "(2,)"), 7}, /* data too short */
		{HEAD("'<U5'", "(2,)"), 39},
	};
	struct npy n;
	char text[400] = "{'descr': '<f4', 'fortran_order': False, 'shape': (";
	struct error e = {0};
	struct extmap m = {0};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		error_clear(&e);
		int r = read_as(1, 0, bad[i].text, bad[i].bytes, &n, &e);

		if (r != -EINVAL)
			printf("taken: %s\n", bad[i].text);
		CHECK(r == -EINVAL && e.code == EINVAL && *e.text);
	}
	for (unsigned i = 0; i < 64; i++)
		strcat(text, "1, ");
	strcat(text, ")}");
	CHECK(read_text(text, 4, &n) == 0 && n.rank == 64);
	strcpy(text + strlen(text) - 2, "1)}");
	CHECK(read_text(text, 4, &n) == -EINVAL);
	CHECK(read_as(4, 0, HEAD("'<f4'", "(2,)"), 8, &n, &e) == -EINVAL && read_as(1, 1, HEAD("'<f4'", "(2,)"), 8, &n, NULL) == -EINVAL);
	CHECK(read_as(0, 0, HEAD("'<f4'", "(2,)"), 8, &n, NULL) == -EINVAL);
	/* every length that is too short, and a header that claims more than is there */
	npy_append_header(&m, "<f4", false, 0, NULL);
	for (uint64_t size = 0; size < m.size; size++)
		CHECK(npy_read(&m, 0, size, &n, NULL) == -EINVAL);
	CHECK(npy_read(&m, 1, m.size - 1, &n, NULL) == -EINVAL);
	extmap_release(&m);
}

/* What is written: as NumPy 2 does, byte for byte (numpy.save of arrays of these shapes). */
static void writing(void)
{
	static const struct {
		const char *descr, *begin;
		bool fortran;
		uint32_t rank;
		uint64_t shape[3];
		size_t size;
	} all[] = {
		{"<f4", "{'descr': '<f4', 'fortran_order': False, 'shape': (), }", false, 0, {0}, 128},
		{"<f4", "{'descr': '<f4', 'fortran_order': False, 'shape': (7,), }", false, 1, {7}, 128},
		{"|b1", "{'descr': '|b1', 'fortran_order': True, 'shape': (2, 3, 4), }", true, 3, {2, 3, 4}, 128},
		{">c16", "{'descr': '>c16', 'fortran_order': False, 'shape': (9223372036854775807,), }", false, 1, {INT64_MAX}, 128},
	};
	uint64_t ones[LIMIT_RANK];
	struct extmap m = {0};
	struct npy n;

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		char buf[256];

		CHECK(npy_append_header(&m, all[i].descr, all[i].fortran, all[i].rank, all[i].shape) == 0);
		CHECK(m.size == all[i].size && m.size == npy_header_size(all[i].descr, all[i].fortran, all[i].rank, all[i].shape));
		CHECK(m.size <= sizeof(buf) && extmap_read(&m, 0, buf, m.size, NULL) == 0);
		CHECK(memcmp(buf, "\x93NUMPY\1\0\x76\0", 10) == 0 && memcmp(buf + 10, all[i].begin, strlen(all[i].begin)) == 0);
		for (size_t k = 10 + strlen(all[i].begin); k < m.size - 1; k++)
			CHECK(buf[k] == ' ');
		CHECK(buf[m.size - 1] == '\n');
		extmap_release(&m);
	}
	for (size_t i = 0; i < LIMIT_RANK; i++)
		ones[i] = i == 1 ? 12345678901 : 1;
	CHECK(npy_append_header(&m, "<i8", false, LIMIT_RANK, ones) == 0 && m.size % 64 == 0);
	extmap_append_zero(&m, 12345678901 * 8);
	CHECK(npy_read(&m, 0, m.size, &n, NULL) == 0 && n.rank == LIMIT_RANK && n.count == 12345678901 && n.shape[1] == 12345678901);
	extmap_release(&m);
	CHECK(npy_append_header(&m, "<i8", false, LIMIT_RANK + 1, ones) == -EINVAL);
	extmap_release(&m);
}

int main(void)
{
	reading();
	refused();
	writing();
	return unit_done("npy");
}
