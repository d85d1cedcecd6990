/* SPDX-License-Identifier: MIT */
#include "parsers/container/protobuf.h"

#include "parsers/core/cursor.h"
#include "parsers/core/limits.h"

#include <errno.h>
#include <protobuf-c/protobuf-c.h>
#include <stdlib.h>

struct memory {
	ProtobufCAllocator hooks;
	struct arena *arena;
	bool failed;
};

static void *hook_alloc(void *memory, size_t size)
{
	struct memory *m = memory;
	void *p = arena_alloc(m->arena, size);

	m->failed |= !p;
	return p;
}

static void *hook_refuse(void *memory, size_t size)
{
	(void)memory;
	(void)size;
	return NULL;
}

static void hook_free(void *memory, void *p)
{
	(void)memory;
	(void)p;
}

/* Never NULL, for which protobuf-c would take malloc. */
struct ProtobufCAllocator *pb_arena_allocator(struct arena *a)
{
	static struct memory none = {.hooks = {hook_refuse, hook_free, NULL}, .failed = true};
	struct memory *m = arena_alloc(a, sizeof(*m));

	if (!m)
		return &none.hooks;
	*m = (struct memory){.hooks = {hook_alloc, hook_free, m}, .arena = a};
	return &m->hooks;
}

int pb_unpack_failed(const struct ProtobufCAllocator *allocator, const char *message, struct error *e)
{
	if (((const struct memory *)allocator)->failed)
		return error_set(e, ENOMEM, "out of memory for the structure of %s", message);
	return error_set(e, EIO, "the structure is no %s (a field has the wrong type)", message);
}

/* ---- varints ---- */

enum { PADDED_LENGTH = 5 }; /* a length prefix that is patched later: always 5 bytes */

static size_t varint_put(unsigned char *p, uint64_t v)
{
	size_t n = 0;

	while (v >= 0x80) {
		p[n++] = (unsigned char)(v | 0x80);
		v >>= 7;
	}
	p[n++] = (unsigned char)v;
	return n;
}

size_t pb_varint_size(uint64_t v)
{
	unsigned char p[10];

	return varint_put(p, v);
}

/* ---- reading one field's head ---- */

struct field_head {
	uint32_t number;
	enum pb_wire wire;
	uint64_t value;   /* varint, or the length of PB_BYTES */
	uint64_t at;      /* where the tag is */
	uint64_t content; /* where the content begins */
	uint64_t size;    /* of the content */
};

/* Leaves the cursor behind the tag and, for PB_BYTES, the length; other values are consumed. */
static int read_head(struct cursor *c, uint64_t end, const char *message, struct field_head *h)
{
	uint64_t tag;

	h->at = c->pos;
	tag = cursor_varint(c);
	h->number = (uint32_t)(tag >> 3);
	h->wire = (enum pb_wire)(tag & 7);
	if (!cursor_failed(c) && (tag >> 3 == 0 || tag >> 3 > 0x1fffffff))
		return cursor_fail(c, EIO, "field number %llu in %s, expected 1 to 536870911",
			(unsigned long long)(tag >> 3), message);
	switch (h->wire) {
	case PB_VARINT:
		h->content = c->pos;
		h->value = cursor_varint(c);
		h->size = c->pos - h->content;
		break;
	case PB_FIXED64:
		h->content = c->pos;
		h->value = cursor_u64le(c);
		h->size = 8;
		break;
	case PB_FIXED32:
		h->content = c->pos;
		h->value = cursor_u32le(c);
		h->size = 4;
		break;
	case PB_BYTES:
		h->value = cursor_varint(c);
		h->content = c->pos;
		h->size = h->value;
		break;
	default:
		return cursor_fail(c, EIO, "wire type %d of field %u in %s is none of 0, 1, 2 and 5", (int)h->wire,
			h->number, message);
	}
	if (cursor_failed(c))
		return cursor_failed(c);
	if (c->pos > end || (h->wire == PB_BYTES && h->size > end - c->pos))
		return cursor_fail(c, EIO, "field %u of %s ends outside the message (%llu bytes, %llu are left)",
			h->number, message, (unsigned long long)h->size,
			(unsigned long long)(c->pos > end ? 0 : end - c->pos));
	return 0;
}

static const struct pb_field *find_field(const struct pb_type *t, uint32_t number)
{
	for (size_t i = 0; i < t->field_count; i++)
		if (t->fields[i].number == number)
			return &t->fields[i];
	return NULL;
}

/* ---- scanning ---- */

static void *room(void *array, uint32_t count, uint32_t *cap, size_t size)
{
	uint32_t wanted = *cap ? *cap * 2 : 64;

	if (count < *cap)
		return array;
	if (wanted > LIMIT_TENSORS * 2u)
		return NULL;
	array = reallocarray(array, wanted, size);
	if (array)
		*cap = wanted;
	return array;
}

static unsigned char *skeleton_room(struct pb_skeleton *s, uint64_t n)
{
	size_t cap = s->cap ? s->cap : 4096;
	unsigned char *grown;

	if (n <= s->cap - s->len)
		return s->bytes + s->len;
	if (n > LIMIT_MODEL_MEMORY - s->len)
		return NULL;
	while (cap - s->len < n)
		cap *= 2;
	grown = realloc(s->bytes, cap);
	if (!grown)
		return NULL;
	s->bytes = grown;
	s->cap = cap;
	return s->bytes + s->len;
}

struct frame {
	const struct pb_type *type;
	uint64_t end;
	size_t length_at; /* where in the skeleton its padded length is */
	uint32_t record;  /* UINT32_MAX = none */
	uint32_t last_number; /* of the payload that a run may go on with */
};

struct scanner {
	struct cursor c;
	struct pb_skeleton *s;
	struct frame stack[LIMIT_PROTOBUF_DEPTH + 1];
	unsigned depth;
};

static int no_memory(struct scanner *x)
{
	return cursor_fail(&x->c, ENOMEM, "out of memory for the model's structure");
}

static int put_tag(struct scanner *x, uint32_t number, enum pb_wire wire)
{
	unsigned char *p = skeleton_room(x->s, 10);

	if (!p)
		return no_memory(x);
	x->s->len += varint_put(p, (uint64_t)number << 3 | wire);
	return 0;
}

static int push(struct scanner *x, const struct pb_type *type, uint64_t end)
{
	struct pb_skeleton *s = x->s;
	struct frame *f;

	if (x->depth > LIMIT_PROTOBUF_DEPTH)
		return cursor_fail(&x->c, EIO, "messages are nested deeper than %d", LIMIT_PROTOBUF_DEPTH);
	f = &x->stack[x->depth++];
	*f = (struct frame){type, end, s->len, UINT32_MAX, 0};
	if (x->depth > 1) { /* the root has no length */
		if (!skeleton_room(s, PADDED_LENGTH))
			return no_memory(x);
		s->len += PADDED_LENGTH;
	}
	if (!type->record_field)
		return 0;
	struct pb_record *grown = room(s->records, s->record_count, &s->record_cap, sizeof(*grown));

	if (!grown)
		return no_memory(x);
	s->records = grown;
	f->record = s->record_count++;
	s->records[f->record] = (struct pb_record){x->c.pos, end - x->c.pos, s->payload_count, 0};
	return 0;
}

static int pop(struct scanner *x)
{
	struct frame *f = &x->stack[x->depth - 1];
	struct pb_skeleton *s = x->s;

	if (f->record != UINT32_MAX) {
		unsigned char *p;

		if (put_tag(x, f->type->record_field, PB_VARINT) < 0 || !(p = skeleton_room(s, 10)))
			return no_memory(x);
		s->len += varint_put(p, f->record);
	}
	x->depth--;
	if (x->depth > 0) {
		uint64_t len = s->len - f->length_at - PADDED_LENGTH;

		for (unsigned i = 0; i < PADDED_LENGTH; i++)
			s->bytes[f->length_at + i] = (unsigned char)((len >> (7 * i) & 0x7f) |
								     (i + 1 < PADDED_LENGTH ? 0x80 : 0));
	}
	return 0;
}

/* A payload of the innermost message that has a record; runs of single numbers grow together. */
static int add_payload(struct scanner *x, const struct field_head *h)
{
	struct frame *f = &x->stack[x->depth - 1];
	struct pb_skeleton *s = x->s;
	struct pb_payload *last = s->payload_count ? &s->payloads[s->payload_count - 1] : NULL, *grown;
	struct pb_record *r;

	if (f->record == UINT32_MAX)
		return 0;
	r = &s->records[f->record];
	if (h->wire != PB_BYTES && last && r->payload_count && last->field == h->number &&
		last->wire == h->wire && last->offset + last->size == h->at) {
		last->size = h->content + h->size - last->offset;
		return 0;
	}
	grown = room(s->payloads, s->payload_count, &s->payload_cap, sizeof(*grown));
	if (!grown)
		return no_memory(x);
	s->payloads = grown;
	s->payloads[s->payload_count++] = (struct pb_payload){h->number, h->wire,
		h->wire == PB_BYTES ? h->content : h->at,
		h->wire == PB_BYTES ? h->size : h->content + h->size - h->at};
	r->payload_count++;
	return 0;
}

static int keep(struct scanner *x, const struct field_head *h)
{
	struct pb_skeleton *s = x->s;
	unsigned char *p;

	if (put_tag(x, h->number, h->wire) < 0)
		return x->c.failed;
	p = skeleton_room(s, 10 + h->size);
	if (!p)
		return no_memory(x);
	switch (h->wire) {
	case PB_VARINT:
		s->len += varint_put(p, h->value);
		return 0;
	case PB_FIXED64:
	case PB_FIXED32:
		memcpy(p, &h->value, h->size);
		s->len += h->size;
		return 0;
	default:
		s->len += varint_put(p, h->size);
		cursor_bytes(&x->c, s->bytes + s->len, (size_t)h->size);
		s->len += (size_t)h->size;
		return cursor_failed(&x->c);
	}
}

static int scan_field(struct scanner *x)
{
	struct frame *f = &x->stack[x->depth - 1];
	const struct pb_field *field;
	struct field_head h;
	int r = read_head(&x->c, f->end, f->type->name, &h);

	if (r < 0)
		return r;
	field = find_field(f->type, h.number);
	if (field && field->kind == PB_MESSAGE && h.wire != PB_BYTES)
		return cursor_fail(&x->c, EIO, "field %u of %s has wire type %d, expected a message", h.number,
			f->type->name, (int)h.wire);
	if (field && field->kind == PB_MESSAGE) {
		r = put_tag(x, h.number, PB_BYTES);
		return r < 0 ? r : push(x, field->type, h.content + h.size);
	}
	if (field && (field->kind == PB_NUMBERS ||
			     (field->kind == PB_BLOB && h.wire == PB_BYTES && h.size >= f->type->blob_min))) {
		r = add_payload(x, &h);
		if (h.wire == PB_BYTES)
			cursor_skip(&x->c, h.size);
		return r < 0 ? r : cursor_failed(&x->c);
	}
	return keep(x, &h);
}

int pb_scan(struct source *src, uint64_t offset, uint64_t size, const struct pb_type *root,
	struct pb_skeleton *out, struct error *e)
{
	struct scanner *x = calloc(1, sizeof(*x));
	int r;

	*out = (struct pb_skeleton){0};
	if (!x)
		return error_set(e, ENOMEM, "out of memory");
	x->s = out;
	cursor_init(&x->c, src, offset, size, e);
	r = cursor_failed(&x->c);
	if (r == 0)
		r = push(x, root, offset + size);
	while (r == 0 && x->depth > 0) {
		if (x->c.pos == x->stack[x->depth - 1].end)
			r = pop(x);
		else
			r = scan_field(x);
	}
	cursor_release(&x->c);
	free(x);
	if (r < 0)
		pb_skeleton_release(out);
	return r;
}

void pb_skeleton_release(struct pb_skeleton *s)
{
	free(s->bytes);
	free(s->records);
	free(s->payloads);
	*s = (struct pb_skeleton){0};
}

/* ---- writing fields ---- */

int pb_put_varint_field(struct extmap *m, uint32_t number, uint64_t v)
{
	unsigned char p[20];
	size_t n = varint_put(p, (uint64_t)number << 3 | PB_VARINT);

	n += varint_put(p + n, v);
	return extmap_append_copy(m, p, n);
}

static int put_prefix(struct extmap *m, uint32_t number, uint64_t size)
{
	unsigned char p[20];
	size_t n = varint_put(p, (uint64_t)number << 3 | PB_BYTES);

	n += varint_put(p + n, size);
	return extmap_append_copy(m, p, n);
}

int pb_put_bytes_field(struct extmap *m, uint32_t number, struct str s)
{
	int r = put_prefix(m, number, s.len);

	return r < 0 ? r : extmap_append_copy(m, s.ptr, s.len);
}

int pb_put_map_field(struct extmap *m, uint32_t number, const struct extmap *content)
{
	int r = put_prefix(m, number, content->size);

	return r < 0 ? r : extmap_append_kept(m, content);
}

int pb_put_extent_field(struct extmap *m, uint32_t number, const struct extent *content)
{
	int r = put_prefix(m, number, content->size);

	return r < 0 ? r : extmap_append(m, content);
}

/* ---- rewriting ---- */

/* A message that is open: what it becomes, and how far the source was copied. */
struct open_message {
	struct pb_visit visit; /* the field that holds it */
	const struct pb_type *type;
	uint64_t begin, end;
	uint64_t copied;     /* source bytes before this are in `out` */
	struct extmap out;
	bool changed;
	uint32_t counts[32]; /* per field number below 32: occurrences so far */
	uint64_t field_at;   /* in the parent: where this field's tag is */
	void *context;
};

struct rewriter {
	struct cursor c;
	const struct pb_visitor *visitor;
	struct open_message *stack;
	unsigned depth;
};

static int rewrite_open(struct rewriter *w, const struct pb_visit *visit, const struct pb_type *type,
	uint64_t begin, uint64_t size, uint64_t field_at)
{
	struct open_message *m;

	if (w->depth > LIMIT_PROTOBUF_DEPTH)
		return cursor_fail(&w->c, EIO, "messages are nested deeper than %d", LIMIT_PROTOBUF_DEPTH);
	m = &w->stack[w->depth++];
	memset(m, 0, sizeof(*m));
	m->visit = *visit;
	m->type = type;
	m->begin = m->copied = begin;
	m->end = begin + size;
	m->field_at = field_at;
	m->context = w->depth > 1 && w->visitor->opened ? w->visitor->opened(w->visitor->arg, visit) : NULL;
	return 0;
}

static void copy_until(struct rewriter *w, struct open_message *m, uint64_t at)
{
	extmap_append_source(&m->out, w->c.src, m->copied, at - m->copied);
	m->copied = at;
}

/* The closed message becomes a field of its parent, unless nothing in it changed. */
static int rewrite_close(struct rewriter *w, struct extmap *out, struct error *e)
{
	struct open_message *m = &w->stack[w->depth - 1];
	struct extmap more = {0};
	int r = 0;

	if (w->visitor->closing) {
		struct pb_visit v = m->visit;

		v.type = m->type;
		v.parent = m->context;
		r = w->visitor->closing(w->visitor->arg, &v, &more, e);
	}
	if (r == 0 && (m->changed || more.size)) {
		m->changed = true;
		copy_until(w, m, m->end);
		r = extmap_append_kept(&m->out, &more);
	}
	w->depth--;
	if (r == 0 && w->depth == 0) {
		if (!m->changed)
			copy_until(w, m, m->end);
		r = extmap_append_kept(out, &m->out);
	} else if (r == 0 && m->changed) {
		struct open_message *parent = &w->stack[w->depth - 1];

		copy_until(w, parent, m->field_at);
		parent->copied = m->end;
		parent->changed = true;
		r = pb_put_map_field(&parent->out, m->visit.number, &m->out);
	}
	extmap_release(&m->out);
	extmap_release(&more);
	return r;
}

static int rewrite_field(struct rewriter *w, struct error *e)
{
	struct open_message *m = &w->stack[w->depth - 1];
	struct extmap with = {0};
	const struct pb_field *field;
	struct field_head h;
	struct pb_visit v;
	int action = read_head(&w->c, m->end, m->type->name, &h), r = 0;

	if (action < 0)
		return action;
	v = (struct pb_visit){m->type, h.number, h.wire, h.value, h.content, h.size, 0, w->depth - 1,
		m->context};
	if (h.number < 32)
		v.index = m->counts[h.number]++;
	action = w->visitor->field(w->visitor->arg, &v, &with, e);
	field = find_field(m->type, h.number);
	if (action == PB_OPEN && field && field->kind == PB_MESSAGE && h.wire == PB_BYTES) {
		extmap_release(&with);
		return rewrite_open(w, &v, field->type, h.content, h.size, h.at);
	}
	if (h.wire == PB_BYTES)
		cursor_skip(&w->c, h.size);
	if (action == PB_DROP || action == PB_REPLACE) {
		copy_until(w, m, h.at);
		m->copied = h.content + h.size;
		m->changed = true;
		r = extmap_append_kept(&m->out, &with);
	}
	if (r < 0)
		error_set(e, -r, "out of memory");
	extmap_release(&with);
	return action < 0 ? action : r;
}

int pb_rewrite(struct source *src, uint64_t offset, uint64_t size, const struct pb_type *root,
	const struct pb_visitor *visitor, struct extmap *out, struct error *e)
{
	const struct pb_visit top = {.type = root};
	struct rewriter w = {.visitor = visitor};
	int r;

	w.stack = calloc(LIMIT_PROTOBUF_DEPTH + 1, sizeof(*w.stack));
	if (!w.stack)
		return error_set(e, ENOMEM, "out of memory");
	cursor_init(&w.c, src, offset, size, e);
	r = cursor_failed(&w.c);
	if (r == 0)
		r = rewrite_open(&w, &top, root, offset, size, offset);
	while (r == 0 && w.depth > 0) {
		if (w.c.pos == w.stack[w.depth - 1].end)
			r = rewrite_close(&w, out, e);
		else
			r = rewrite_field(&w, e);
	}
	while (w.depth > 0)
		extmap_release(&w.stack[--w.depth].out);
	cursor_release(&w.c);
	free(w.stack);
	return r;
}
