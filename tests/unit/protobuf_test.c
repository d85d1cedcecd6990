/* SPDX-License-Identifier: MIT */
#include "tests/unit/unit.h"

#include "parsers/container/protobuf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A node: 1 = child node, 2 = blob, 3 = numbers, others plain; 15 takes the record. */
static const struct pb_type node;
static const struct pb_field node_fields[] = {
	{1, PB_MESSAGE, &node}, {2, PB_BLOB, NULL}, {3, PB_NUMBERS, NULL}};
static const struct pb_type node = {"Node", node_fields, 3, 15, 0};

static struct source *memory(const void *bytes, size_t n)
{
	void *copy = malloc(n + 1);

	memcpy(copy, bytes, n);
	return source_from_memory(copy, n, "test");
}

static int scan(const void *bytes, size_t n, struct pb_skeleton *s, struct error *e)
{
	struct source *src = memory(bytes, n);
	int r;

	pb_skeleton_release(s);
	error_clear(e);
	r = pb_scan(src, 0, n, &node, s, e);
	source_unref(src);
	return r;
}

#define SCAN(text) scan(text, sizeof(text) - 1, &s, &e)

/* `levels` messages, one in the other, the innermost empty */
static int nest(unsigned levels, struct pb_skeleton *s, struct error *e)
{
	unsigned char b[512];
	size_t at = sizeof(b);

	for (unsigned i = 0; i < levels; i++) {
		size_t n = sizeof(b) - at;

		if (n >= 128) {
			b[--at] = (unsigned char)(n >> 7);
			b[--at] = (unsigned char)(n | 128);
		} else {
			b[--at] = (unsigned char)n;
		}
		b[--at] = 0x0a;
	}
	return scan(b + at, sizeof(b) - at, s, e);
}

static void test_scan(void)
{
	struct pb_skeleton s = {0};
	struct error e = {0};

	CHECK(SCAN("") == 0 && s.record_count == 1 && s.records[0].size == 0);
	/* a child with a blob, then a plain number: the blob leaves the skeleton, its place is known */
	CHECK(SCAN("\x0a\x04\x12\x02hi\x20\x96\x01") == 0 && s.record_count == 2 && s.payload_count == 1);
	CHECK(s.records[1].offset == 2 && s.records[1].size == 4 && s.records[1].payload_count == 1);
	CHECK(s.payloads[0].field == 2 && s.payloads[0].offset == 4 && s.payloads[0].size == 2);
	CHECK(s.records[0].payload_count == 0 && s.records[0].first_payload == 0);
	CHECK(s.len == 1 + 5 + 2 + 3 + 2 && memcmp(s.bytes, "\x0a\x82\x80\x80\x80\x00\x78\x01\x20\x96\x01\x78\x00", 13) == 0);
	/* numbers: packed, and neighbours that are not packed as one run */
	CHECK(SCAN("\x1a\x02\x01\x02") == 0 && s.payload_count == 1 && s.payloads[0].wire == PB_BYTES);
	CHECK(SCAN("\x18\x01\x18\x02\x20\x05\x18\x03") == 0 && s.payload_count == 2);
	CHECK(s.payloads[0].wire == PB_VARINT && s.payloads[0].offset == 0 && s.payloads[0].size == 4);
	/* past the file, past the message around it, cut numbers */
	CHECK(SCAN("\x12\x03hi") == -EIO && strstr(e.text, "outside the message"));
	CHECK(SCAN("\x0a\x03\x12\x02hi") == -EIO);
	CHECK(SCAN("\x0a\x02\x18\x96\x01") == -EIO);
	CHECK(SCAN("\x18\x96") == -EIO);
	CHECK(SCAN("\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01") == -EIO);
	/* tags: field 0, groups */
	CHECK(SCAN("\x02\x00") == -EIO && strstr(e.text, "field number 0"));
	CHECK(SCAN("\x13\x14") == -EIO && strstr(e.text, "wire type 3"));
	CHECK(nest(100, &s, &e) == 0 && s.record_count == 101);
	CHECK(nest(101, &s, &e) == -EIO && strstr(e.text, "nested deeper"));
	pb_skeleton_release(&s);
}

/* What the visitor does: field `number` at any depth becomes `action`; plain fields 4 are looked for. */
struct plan {
	uint32_t number;
	int action;
	const char *with, *append;
};

static int visit(void *arg, const struct pb_visit *v, struct extmap *with, struct error *e)
{
	const struct plan *p = arg;

	(void)e;
	if (v->number == p->number) {
		if (p->with)
			extmap_append_copy(with, p->with, strlen(p->with));
		return p->action;
	}
	return v->number == 1 ? PB_OPEN : PB_COPY;
}

static int closing(void *arg, const struct pb_visit *v, struct extmap *append, struct error *e)
{
	const struct plan *p = arg;

	(void)e;
	if (p->append && v->number)
		extmap_append_copy(append, p->append, strlen(p->append));
	return 0;
}

static bool rewritten(const void *bytes, size_t n, struct plan p, const void *expected, size_t len)
{
	const struct pb_visitor visitor = {visit, NULL, closing, &p};
	struct source *src = memory(bytes, n);
	struct extmap out = {0};
	struct error e = {0};
	unsigned char got[64];
	bool same = pb_rewrite(src, 0, n, &node, &visitor, &out, &e) == 0 && out.size == len &&
		    len <= sizeof(got) && extmap_read(&out, 0, got, len, &e) == 0 &&
		    memcmp(got, expected, len) == 0;

	extmap_release(&out);
	source_unref(src);
	return same;
}

#define REWRITTEN(in, plan, out) rewritten(in, sizeof(in) - 1, plan, out, sizeof(out) - 1)

static void test_rewrite(void)
{
#define MODEL "\x20\x05\x0a\x06\x0a\x04\x12\x02hi\x72\x01z"
	/* nothing changes: every byte stays, the padded length of a foreign writer too */
	CHECK(REWRITTEN(MODEL, ((struct plan){9, PB_COPY, NULL, NULL}), MODEL));
	CHECK(REWRITTEN("\x0a\x83\x00\x12\x01x", ((struct plan){9, PB_COPY, NULL, NULL}), "\x0a\x83\x00\x12\x01x"));
	CHECK(REWRITTEN(MODEL, ((struct plan){4, PB_DROP, NULL, NULL}), "\x0a\x06\x0a\x04\x12\x02hi\x72\x01z"));
	/* deep inside: every length above it is new, the rest is as it was */
	CHECK(REWRITTEN(MODEL, ((struct plan){2, PB_REPLACE, "\x12\x05hello", NULL}),
		"\x20\x05\x0a\x09\x0a\x07\x12\x05hello\x72\x01z"));
	CHECK(REWRITTEN(MODEL, ((struct plan){2, PB_DROP, NULL, NULL}), "\x20\x05\x0a\x02\x0a\x00\x72\x01z"));
	CHECK(REWRITTEN(MODEL, ((struct plan){9, PB_COPY, NULL, "\x21"}),
		"\x20\x05\x0a\x08\x0a\x05\x12\x02hi\x21\x21\x72\x01z"));
}

int main(void)
{
	test_scan();
	test_rewrite();
	return unit_done("protobuf");
}
