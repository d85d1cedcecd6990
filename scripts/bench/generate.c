/* SPDX-License-Identifier: MIT */
/*
 * Makes big models for measuring.
 *
 *   generate safetensors FILE TENSORS BYTES [sparse]
 *   generate onnx        FILE OPS TENSORS BYTES [external]
 *
 * BYTES is the whole payload and is shared out evenly. "sparse" leaves the payload a hole; "external" puts it into
 * FILE.data, which is a hole. The graph of an ONNX model is a chain: op i adds tensor i (of TENSORS, in turn)
 * to the output of op i-1. The same arguments make the same bytes.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *file_name = "";

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "generate: %s: %s: %s\n", file_name, what, strerror(errno));
	exit(1);
}

static uint64_t number(const char *text)
{
	char *end;
	uint64_t n;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (errno || end == text || *end) {
		fprintf(stderr, "generate: '%s' is no number\n", text);
		exit(2);
	}
	return n;
}

static void put(FILE *f, const void *bytes, size_t size)
{
	if (size && fwrite(bytes, 1, size, f) != size)
		die("cannot write");
}

/* Numbers that look like weights: no two blocks alike, all finite as float32. */
static void put_payload(FILE *f, uint64_t bytes)
{
	static uint64_t x = 88172645463325252u;
	uint64_t block[512];

	while (bytes) {
		size_t n = bytes < sizeof(block) ? (size_t)bytes : sizeof(block);
		for (size_t i = 0; i < sizeof(block) / sizeof(*block); i++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			block[i] = (x & 0x807fffff807fffff) | 0x3c0000003c000000;
		}
		put(f, block, n);
		bytes -= n;
	}
}

static void close_at(FILE *f, bool hole, uint64_t size)
{
	if (fflush(f) != 0)
		die("cannot write");
	if (hole && ftruncate(fileno(f), (off_t)size) != 0)
		die("cannot set size");
	if (fclose(f) != 0)
		die("cannot write");
}

static FILE *create(const char *path)
{
	FILE *f;

	file_name = path;
	f = fopen(path, "wb");
	if (!f)
		die("cannot create");
	return f;
}

static int make_safetensors(const char *path, uint64_t tensors, uint64_t bytes, bool sparse)
{
	uint64_t each = bytes / tensors / 4 * 4, at = 0;
	unsigned char length[8];
	char *header = NULL;
	size_t size = 0;
	FILE *f = create(path), *h = open_memstream(&header, &size);

	if (!h)
		die("out of memory");
	for (uint64_t i = 0; i < tensors; i++, at += each)
		fprintf(h, "%s\"layer.%" PRIu64 ".weight\":{\"dtype\":\"F32\",\"shape\":[%" PRIu64
			"],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
			i ? "," : "{", i, each / 4, at, at + each);
	fputc('}', h);
	fflush(h);
	while (size % 8) {
		fputc(' ', h);
		fflush(h);
	}
	fclose(h);
	for (int i = 0; i < 8; i++)
		length[i] = (unsigned char)((uint64_t)size >> (8 * i));
	put(f, length, sizeof(length));
	put(f, header, size);
	free(header);
	if (!sparse)
		put_payload(f, at);
	close_at(f, sparse, 8 + size + at);
	return 0;
}

/* A protobuf message that is put together in memory; a payload may follow it in the file. */
struct message {
	unsigned char bytes[512];
	size_t size;
};

static void add_varint(struct message *m, uint64_t n)
{
	do {
		m->bytes[m->size++] = (unsigned char)(n & 0x7f) | (n > 0x7f ? 0x80 : 0);
		n >>= 7;
	} while (n);
}

static void add_number(struct message *m, unsigned field, uint64_t n)
{
	add_varint(m, field << 3);
	add_varint(m, n);
}

static void add_bytes(struct message *m, unsigned field, const void *bytes, size_t size)
{
	add_varint(m, field << 3 | 2);
	add_varint(m, size);
	memcpy(m->bytes + m->size, bytes, size);
	m->size += size;
}

static void add_text(struct message *m, unsigned field, const char *text)
{
	add_bytes(m, field, text, strlen(text));
}

static void add_message(struct message *m, unsigned field, const struct message *inner)
{
	add_bytes(m, field, inner->bytes, inner->size);
}

static void add_entry(struct message *m, unsigned field, const char *key, const char *value)
{
	struct message entry = {.size = 0};

	add_text(&entry, 1, key);
	add_text(&entry, 2, value);
	add_message(m, field, &entry);
}

struct chain {
	uint64_t ops, tensors, each; /* bytes of a tensor */
	const char *external;	     /* name of the file of the payload, or NULL */
};

static void make_node(struct message *m, const struct chain *c, uint64_t i)
{
	char text[48];

	snprintf(text, sizeof(text), i ? "h%" PRIu64 : "x", i);
	add_text(m, 1, text);
	snprintf(text, sizeof(text), "layer.%" PRIu64 ".weight", i % c->tensors);
	add_text(m, 1, text);
	snprintf(text, sizeof(text), i + 1 < c->ops ? "h%" PRIu64 : "y", i + 1);
	add_text(m, 2, text);
	snprintf(text, sizeof(text), "add_%" PRIu64, i);
	add_text(m, 3, text);
	add_text(m, 4, "Add");
}

/* TensorProto up to the bytes of raw_data */
static void make_tensor(struct message *m, const struct chain *c, uint64_t i)
{
	char text[48];

	add_number(m, 1, c->each / 4); /* dims */
	add_number(m, 2, 1);	       /* data_type: float */
	snprintf(text, sizeof(text), "layer.%" PRIu64 ".weight", i);
	add_text(m, 8, text);
	if (!c->external) {
		add_varint(m, 9 << 3 | 2);
		add_varint(m, c->each);
		return;
	}
	add_entry(m, 13, "location", c->external);
	snprintf(text, sizeof(text), "%" PRIu64, i * c->each);
	add_entry(m, 13, "offset", text);
	snprintf(text, sizeof(text), "%" PRIu64, c->each);
	add_entry(m, 13, "length", text);
	add_number(m, 14, 1); /* data_location: external */
}

/* ValueInfoProto of a float32 vector */
static void make_value(struct message *m, const char *name, uint64_t length)
{
	struct message dim = {.size = 0}, shape = {.size = 0}, tensor = {.size = 0}, type = {.size = 0};

	add_number(&dim, 1, length);
	add_message(&shape, 1, &dim);
	add_number(&tensor, 1, 1);
	add_message(&tensor, 2, &shape);
	add_message(&type, 1, &tensor);
	add_text(m, 1, name);
	add_message(m, 2, &type);
}

static uint64_t emit(FILE *f, unsigned field, const struct message *m, uint64_t payload)
{
	struct message head = {.size = 0};

	add_varint(&head, field << 3 | 2);
	add_varint(&head, m->size + payload);
	if (f) {
		put(f, head.bytes, head.size);
		put(f, m->bytes, m->size);
		put_payload(f, payload);
	}
	return head.size + m->size + payload;
}

/* Writes the fields of GraphProto, or with f NULL only counts their bytes. */
static uint64_t put_graph(FILE *f, const struct chain *c)
{
	uint64_t size = 0;
	struct message m;

	for (uint64_t i = 0; i < c->ops; i++) {
		m.size = 0;
		make_node(&m, c, i);
		size += emit(f, 1, &m, 0);
	}
	m.size = 0;
	size += emit(f, 2, &(struct message){.bytes = "chain", .size = 5}, 0);
	for (uint64_t i = 0; i < c->tensors; i++) {
		m.size = 0;
		make_tensor(&m, c, i);
		size += emit(f, 5, &m, c->external ? 0 : c->each);
	}
	for (int i = 0; i < 2; i++) {
		m.size = 0;
		make_value(&m, i ? "y" : "x", c->each / 4);
		size += emit(f, 11 + (unsigned)i, &m, 0);
	}
	return size;
}

static int make_onnx(const char *path, uint64_t ops, uint64_t tensors, uint64_t bytes, bool external)
{
	struct chain c = {.ops = ops, .tensors = tensors, .each = bytes / tensors / 4 * 4};
	struct message m = {.size = 0}, opset = {.size = 0};
	const char *base = strrchr(path, '/');
	char data[4096], location[256];
	FILE *f;

	if (external) {
		snprintf(location, sizeof(location), "%s.data", base ? base + 1 : path);
		snprintf(data, sizeof(data), "%s.data", path);
		c.external = location;
		close_at(create(data), true, c.each * tensors);
	}
	f = create(path);
	add_number(&opset, 2, 21);
	add_number(&m, 1, 10); /* ir_version */
	add_message(&m, 8, &opset);
	add_varint(&m, 7 << 3 | 2);
	add_varint(&m, put_graph(NULL, &c));
	put(f, m.bytes, m.size);
	put_graph(f, &c);
	close_at(f, false, 0);
	return 0;
}

int main(int argc, char **argv)
{
	if ((argc == 5 || (argc == 6 && strcmp(argv[5], "sparse") == 0)) && strcmp(argv[1], "safetensors") == 0)
		return make_safetensors(argv[2], number(argv[3]), number(argv[4]), argc == 6);
	if ((argc == 6 || (argc == 7 && strcmp(argv[6], "external") == 0)) && strcmp(argv[1], "onnx") == 0)
		return make_onnx(argv[2], number(argv[3]), number(argv[4]), number(argv[5]), argc == 7);
	fprintf(stderr, "usage: generate safetensors FILE TENSORS BYTES [sparse]\n"
			"       generate onnx FILE OPS TENSORS BYTES [external]\n");
	return 2;
}
