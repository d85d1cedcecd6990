/* SPDX-License-Identifier: MIT */
#include "fs/record.h"

#include <errno.h>
#include <stdlib.h>

static void put(struct record *r, const void *bytes, size_t len)
{
	if (r->cap - r->len < len && !r->failed) {
		size_t cap = r->cap * 2 > r->len + len ? r->cap * 2 : r->len + len + 64;
		char *grown = realloc(r->bytes, cap);

		r->failed = !grown;
		if (grown) {
			r->bytes = grown;
			r->cap = cap;
		}
	}
	if (r->failed || !len)
		return;
	memcpy(r->bytes + r->len, bytes, len);
	r->len += len;
}

void record_begin(struct record *r, enum record_kind kind)
{
	uint8_t k = (uint8_t)kind;

	r->len = 0;
	put(r, &k, 1);
}

void record_add(struct record *r, enum record_tag tag, const void *bytes, size_t len)
{
	uint8_t t = (uint8_t)tag;
	uint32_t n = (uint32_t)len;

	r->failed |= len > UINT32_MAX;
	put(r, &t, 1);
	put(r, &n, sizeof(n));
	put(r, bytes, len);
}

void record_add_str(struct record *r, enum record_tag tag, struct str s)
{
	record_add(r, tag, s.ptr, s.len);
}

void record_add_u64(struct record *r, enum record_tag tag, uint64_t n)
{
	record_add(r, tag, &n, sizeof(n));
}

void record_release(struct record *r)
{
	free(r->bytes);
	*r = (struct record){0};
}

static int bad(struct error *e)
{
	return error_set(e, EIO, "the journal holds a record that this version cannot read");
}

static int add_part(struct record_view *v, struct str name, struct error *e)
{
	struct str *grown = reallocarray(v->parts, v->part_count + 1, sizeof(*grown));

	if (!grown)
		return error_set(e, ENOMEM, "out of memory for a journal record");
	v->parts = grown;
	v->parts[v->part_count++] = name;
	return 0;
}

static int read_field(struct record_view *v, unsigned tag, struct str value, struct error *e)
{
	struct str *const places[RECORD_TAGS] = {
		[RECORD_PATH] = &v->path, [RECORD_VIEW] = &v->view, [RECORD_NAME] = &v->name,
		[RECORD_ORIGIN] = &v->origin, [RECORD_RANGES] = &v->ranges,
		[RECORD_IDENTITY] = &v->identity,
	};

	if (tag == RECORD_PART)
		return add_part(v, value, e);
	if (tag == RECORD_REVISION && value.len == sizeof(v->revision)) {
		memcpy(&v->revision, value.ptr, value.len);
		v->has_revision = true;
		return 0;
	}
	if (tag >= RECORD_TAGS || !places[tag])
		return bad(e);
	*places[tag] = value;
	return 0;
}

int record_read(struct record_view *v, struct str bytes, struct error *e)
{
	size_t at = 1;
	int r = 0;

	*v = (struct record_view){0};
	if (!bytes.len || !bytes.ptr[0] || (uint8_t)bytes.ptr[0] >= RECORD_KINDS)
		return bad(e);
	v->kind = (enum record_kind)bytes.ptr[0];
	while (!r && at < bytes.len) {
		uint32_t n;

		if (bytes.len - at < 5)
			return bad(e);
		memcpy(&n, bytes.ptr + at + 1, sizeof(n));
		if (n > bytes.len - at - 5)
			return bad(e);
		r = read_field(v, (uint8_t)bytes.ptr[at], (struct str){bytes.ptr + at + 5, n}, e);
		at += 5 + (size_t)n;
	}
	return r;
}

void record_view_release(struct record_view *v)
{
	free(v->parts);
	*v = (struct record_view){0};
}
