/* SPDX-License-Identifier: MIT */
#include "tests/unit/unit.h"

#include "parsers/container/protobuf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct pb_type node;
static const struct pb_child node_children[] = {{1, &node}, {0, NULL}};
static const struct pb_type node = {node_children};

struct seen {
	unsigned count;
	struct pb_field last;
};

static int see(void *arg, const struct pb_field *f, struct error *e)
{
	struct seen *s = arg;

	(void)e;
	s->count++;
	s->last = *f;
	return 0;
}

static int walk(const void *bytes, size_t n, struct seen *s, struct error *e)
{
	void *copy = malloc(n + 1);
	struct source *src;
	int r;

	memcpy(copy, bytes, n);
	src = source_from_memory(copy, n, "test");
	*s = (struct seen){0};
	error_clear(e);
	r = pb_walk(src, 0, n, &node, see, s, e);
	source_unref(src);
	return r;
}

#define WALK(text) walk(text, sizeof(text) - 1, &s, &e)

/* `levels` messages, one in the other, the innermost empty */
static int nest(unsigned levels, struct seen *s, struct error *e)
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
	return walk(b + at, sizeof(b) - at, s, e);
}

int main(void)
{
	struct seen s;
	struct error e = {0};

	CHECK(WALK("") == 0 && s.count == 0);
	CHECK(WALK("\x0a\x04\x12\x02hi\x18\x96\x01") == 0 && s.count == 3);
	CHECK(s.last.number == 3 && s.last.value == 150 && s.last.depth == 0 && s.last.tag == 6);
	CHECK(WALK("\x0a\x04\x12\x02hi") == 0 && s.last.depth == 1 && s.last.pos == 4 && s.last.size == 2);
	CHECK(WALK("\x15\x01\x02\x03\x04") == 0 && s.last.value == 0x04030201 && s.last.size == 4);
	/* past the file, past the message around it, cut numbers */
	CHECK(WALK("\x12\x03hi") == -EIO && strstr(e.text, "passes the end"));
	CHECK(WALK("\x0a\x03\x12\x02hi") == -EIO && strstr(e.text, "passes the end"));
	CHECK(WALK("\x0a\x02\x18\x96\x01") == -EIO);
	CHECK(WALK("\x18\x96") == -EIO);
	/* tags: field 0, groups, a message as a number */
	CHECK(WALK("\x02\x00") == -EIO && s.count == 0);
	CHECK(WALK("\x13\x14") == -EIO && strstr(e.text, "wire type 3"));
	CHECK(WALK("\x08\x01") == -EIO && strstr(e.text, "is a message"));
	CHECK(nest(100, &s, &e) == 0 && s.count == 100);
	CHECK(nest(101, &s, &e) == -EIO && strstr(e.text, "nest deeper"));
	return unit_done("protobuf");
}
