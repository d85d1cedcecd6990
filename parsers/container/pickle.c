/* SPDX-License-Identifier: MIT */
#include "parsers/container/pickle.h"

#include "parsers/core/check.h"

#include <errno.h>
#include <stdlib.h>

/* CPython numbers memo entries from 0 on; a pickle with more has more than 16 million objects */
#define MEMO_MAX (1u << 24)
#define STACK_MAX (1u << 22)
#define MARKS_MAX 10000u
#define LONG_MAX_BYTES 4096u
#define TEXT_NUMBER_MAX 400u

struct machine {
	const unsigned char *p;
	size_t len, pos, op; /* op: where the present opcode is */
	struct arena *a;
	struct error *e;
	int failed;
	struct pickle **stack, **memo;
	size_t depth, stack_cap, memo_cap, memo_count;
	size_t *marks, mark_count, mark_cap;
};

static int fail(struct machine *m, int code, const char *what)
{
	if (!m->failed)
		m->failed = error_set(m->e, code, "pickle: %s at byte %zu", what, m->op);
	return m->failed;
}

static const unsigned char *take(struct machine *m, uint64_t n)
{
	const unsigned char *p = m->p + m->pos;

	if (m->failed || n > m->len - m->pos) {
		fail(m, EIO, "length beyond its end");
		return NULL;
	}
	m->pos += (size_t)n;
	return p;
}

static uint64_t take_uint(struct machine *m, unsigned bytes)
{
	const unsigned char *p = take(m, bytes);
	uint64_t u = 0;

	for (unsigned i = 0; p && i < bytes; i++)
		u |= (uint64_t)p[i] << 8 * i;
	return u;
}

static struct str take_str(struct machine *m, uint64_t n)
{
	const unsigned char *p = take(m, n);

	return (struct str){(const char *)p, p ? (size_t)n : 0};
}

static struct str take_line(struct machine *m)
{
	const unsigned char *p = m->p + m->pos, *nl = m->failed ? NULL : memchr(p, '\n', m->len - m->pos);
	struct str s = {(const char *)p, 0};

	if (!nl) {
		fail(m, EIO, "line without end");
		return s;
	}
	s.len = (size_t)(nl - p);
	m->pos += s.len + 1;
	if (s.len && s.ptr[s.len - 1] == '\r')
		s.len--;
	return s;
}

/* Room for one more in a heap array of `size` byte elements. */
static int grow(struct machine *m, void **array, size_t *cap, size_t count, size_t size, size_t max)
{
	size_t want = *cap ? 2 * *cap : 64;
	void *p;

	if (count < *cap)
		return 0;
	if (count >= max)
		return fail(m, EIO, "more objects at once than are accepted");
	p = realloc(*array, want * size);
	if (!p)
		return fail(m, ENOMEM, "out of memory");
	*array = p;
	*cap = want;
	return 0;
}

static void push(struct machine *m, struct pickle *x)
{
	if (m->failed)
		return;
	if (!x)
		fail(m, ENOMEM, "out of memory");
	else if (grow(m, (void **)&m->stack, &m->stack_cap, m->depth, sizeof(*m->stack), STACK_MAX) == 0)
		m->stack[m->depth++] = x;
}

/* Never below the last mark. */
static struct pickle *pop(struct machine *m)
{
	size_t floor = m->mark_count ? m->marks[m->mark_count - 1] : 0;

	if (m->failed || m->depth <= floor) {
		fail(m, EIO, "stack underflow");
		return NULL;
	}
	return m->stack[--m->depth];
}

static struct pickle *top(struct machine *m)
{
	struct pickle *x = pop(m);

	m->depth += x != NULL;
	return x;
}

static struct pickle *node(struct machine *m, enum pickle_kind kind)
{
	struct pickle *x = m->failed ? NULL : arena_alloc(m->a, sizeof(*x));

	if (!x)
		fail(m, ENOMEM, "out of memory");
	else
		x->kind = kind;
	return x;
}

static void push_new(struct machine *m, enum pickle_kind kind)
{
	push(m, node(m, kind));
}

static void push_text(struct machine *m, enum pickle_kind kind, struct str s)
{
	struct pickle *x = node(m, kind);

	if (x)
		x->text = s;
	push(m, x);
}

static void push_int(struct machine *m, enum pickle_kind kind, int64_t i)
{
	struct pickle *x = node(m, kind);

	if (x)
		x->integer = i;
	push(m, x);
}

static void push_float(struct machine *m, double d)
{
	struct pickle *x = node(m, PICKLE_FLOAT);

	if (x)
		x->real = d;
	push(m, x);
}

static int append(struct machine *m, struct pickle ***items, size_t *count, size_t *cap, struct pickle *const *from,
	size_t n)
{
	size_t want = *count + n;

	if (m->failed)
		return m->failed;
	if (want > *cap) {
		struct pickle **p;

		want = want < 2 * *cap ? 2 * *cap : want;
		p = arena_array(m->a, want, sizeof(*p));
		if (!p)
			return fail(m, ENOMEM, "out of memory");
		if (*count)
			memcpy(p, *items, *count * sizeof(*p));
		*items = p;
		*cap = want;
	}
	if (n)
		memcpy(*items + *count, from, n * sizeof(*from));
	*count += n;
	return 0;
}

/* What lies above the last mark; the mark is gone. Valid until the next push. */
static struct pickle **pop_mark(struct machine *m, size_t *n)
{
	size_t at;

	*n = 0;
	if (m->failed || !m->mark_count) {
		fail(m, EIO, "no mark");
		return NULL;
	}
	at = m->marks[--m->mark_count];
	*n = m->depth - at;
	m->depth = at;
	return m->stack + at;
}

static void collect(struct machine *m, enum pickle_kind kind, struct pickle *const *from, size_t n)
{
	struct pickle *x = node(m, kind);

	if (x && kind == PICKLE_DICT && n % 2)
		fail(m, EIO, "key without value");
	if (x)
		append(m, &x->items, &x->count, &x->cap, from, n);
	push(m, x);
}

static void collect_mark(struct machine *m, enum pickle_kind kind)
{
	size_t n;
	struct pickle **from = pop_mark(m, &n);

	collect(m, kind, from, n);
}

static void collect_top(struct machine *m, size_t n)
{
	struct pickle *from[3] = {0};

	for (size_t i = n; i-- > 0;)
		from[i] = pop(m);
	collect(m, PICKLE_TUPLE, from, n);
}

static void add_items(struct machine *m, struct pickle *const *from, size_t n)
{
	struct pickle *x = top(m);

	if (x && x->kind != PICKLE_LIST && x->kind != PICKLE_SET && x->kind != PICKLE_OBJECT)
		fail(m, EIO, "items for what holds none");
	else if (x)
		append(m, &x->items, &x->count, &x->cap, from, n);
}

static void set_items(struct machine *m, struct pickle *const *from, size_t n)
{
	struct pickle *x = top(m);

	if (x && n % 2)
		fail(m, EIO, "key without value");
	else if (x && x->kind == PICKLE_DICT)
		append(m, &x->items, &x->count, &x->cap, from, n);
	else if (x && x->kind == PICKLE_OBJECT)
		append(m, &x->pairs, &x->pair_count, &x->pair_cap, from, n);
	else if (x)
		fail(m, EIO, "keys for what has none");
}

static void push_global(struct machine *m, struct str module, struct str name)
{
	size_t len = module.len + 1 + name.len;
	char *text = m->failed ? NULL : arena_alloc(m->a, len + 1);

	if (!text) {
		fail(m, ENOMEM, "out of memory");
		return;
	}
	if (module.len)
		memcpy(text, module.ptr, module.len);
	text[module.len] = '.';
	if (name.len)
		memcpy(text + module.len + 1, name.ptr, name.len);
	push_text(m, PICKLE_GLOBAL, (struct str){text, len});
}

static void push_object(struct machine *m, struct pickle *callable, struct pickle *args)
{
	struct pickle *x = node(m, PICKLE_OBJECT);

	if (x) {
		x->callable = callable;
		x->args = args;
	}
	push(m, x);
}

static void make_object(struct machine *m)
{
	struct pickle *args = pop(m), *callable = pop(m);

	if (args && args->kind != PICKLE_TUPLE)
		fail(m, EIO, "arguments that are no tuple");
	push_object(m, callable, args);
}

/* INST, OBJ: class and arguments from the slice */
static void make_instance(struct machine *m, bool class_in_slice)
{
	struct str module = {0}, name = {0};
	struct pickle *class, *args;
	size_t n;
	struct pickle **from;

	if (!class_in_slice) {
		module = take_line(m);
		name = take_line(m);
	}
	from = pop_mark(m, &n);
	if (class_in_slice && !n)
		fail(m, EIO, "object without class");
	if (m->failed)
		return;
	class = class_in_slice ? from[0] : NULL;
	collect(m, PICKLE_TUPLE, from + class_in_slice, n - class_in_slice);
	args = pop(m);
	if (!class_in_slice) {
		push_global(m, module, name);
		class = pop(m);
	}
	push_object(m, class, args);
}

static void build(struct machine *m)
{
	struct pickle *state = pop(m), *x = top(m);

	if (x && x->kind != PICKLE_OBJECT && x->kind != PICKLE_PERSISTENT)
		fail(m, EIO, "state for what is no object");
	else if (x)
		x->state = state;
}

static void put(struct machine *m, uint64_t i)
{
	struct pickle *x = top(m);

	if (!x)
		return;
	if (i >= MEMO_MAX) {
		fail(m, EIO, "memo index beyond what is accepted");
		return;
	}
	if (i >= m->memo_cap) {
		size_t want = m->memo_cap ? m->memo_cap : 256;
		struct pickle **p;

		while (want <= i)
			want *= 2;
		p = realloc(m->memo, want * sizeof(*p));
		if (!p) {
			fail(m, ENOMEM, "out of memory");
			return;
		}
		memset(p + m->memo_cap, 0, (want - m->memo_cap) * sizeof(*p));
		m->memo = p;
		m->memo_cap = want;
	}
	m->memo_count += !m->memo[i];
	m->memo[i] = x;
}

static void get(struct machine *m, uint64_t i)
{
	if (i >= m->memo_cap || !m->memo[i])
		fail(m, EIO, "memo entry that was never set");
	else
		push(m, m->memo[i]);
}

static void push_long(struct machine *m, uint64_t n)
{
	struct str s;
	uint64_t u = 0;

	if (n > LONG_MAX_BYTES)
		fail(m, EIO, "integer longer than is accepted");
	s = take_str(m, n);
	if (n > 8) {
		push_text(m, PICKLE_LONG, s);
		return;
	}
	for (size_t i = 0; i < s.len; i++)
		u |= (uint64_t)(unsigned char)s.ptr[i] << 8 * i;
	if (s.len && s.len < 8 && s.ptr[s.len - 1] & -128)
		u |= UINT64_MAX << 8 * s.len;
	push_int(m, PICKLE_INT, (int64_t)u);
}

/* Decimal text, terminated in buf for strtoll and strtod. */
static bool number_text(struct machine *m, char *buf)
{
	struct str s = take_line(m);

	if (s.len && s.ptr[s.len - 1] == 'L')
		s.len--;
	if (!s.len || s.len >= TEXT_NUMBER_MAX) {
		fail(m, EIO, "number that is none");
		return false;
	}
	memcpy(buf, s.ptr, s.len);
	buf[s.len] = 0;
	return !m->failed;
}

static void push_decimal(struct machine *m, bool bools)
{
	char buf[TEXT_NUMBER_MAX], *end;
	long long i;
	struct pickle *x;

	if (!number_text(m, buf))
		return;
	if (bools && (strcmp(buf, "00") == 0 || strcmp(buf, "01") == 0)) {
		push_int(m, PICKLE_BOOL, buf[1] == '1');
		return;
	}
	errno = 0;
	i = strtoll(buf, &end, 10);
	if (*end) {
		fail(m, EIO, "number that is none");
	} else if (errno != ERANGE) {
		push_int(m, PICKLE_INT, i);
	} else {
		x = node(m, PICKLE_LONG);
		if (x) {
			x->decimal = true;
			x->text = arena_str(m->a, buf, strlen(buf));
		}
		push(m, x);
	}
}

static uint64_t memo_text(struct machine *m)
{
	char buf[TEXT_NUMBER_MAX], *end;
	unsigned long long u;

	if (!number_text(m, buf))
		return UINT64_MAX;
	u = strtoull(buf, &end, 10);
	if (*end || buf[0] == '-')
		fail(m, EIO, "memo index that is none");
	return u;
}

static void push_real_text(struct machine *m)
{
	char buf[TEXT_NUMBER_MAX], *end;
	double d;

	if (!number_text(m, buf))
		return;
	d = strtod(buf, &end);
	if (*end)
		fail(m, EIO, "number that is none");
	push_float(m, d);
}

static void push_real(struct machine *m)
{
	const unsigned char *p = take(m, 8);
	uint64_t u = 0;
	double d;

	for (int i = 0; p && i < 8; i++)
		u = u << 8 | p[i];
	memcpy(&d, &u, sizeof(d));
	push_float(m, d);
}

/* Protocol 0 text: without the quotes of STRING, escapes as they are written. */
static void push_line(struct machine *m, bool quoted)
{
	struct str s = take_line(m);

	if (quoted && (s.len < 2 || s.ptr[0] != s.ptr[s.len - 1] || (s.ptr[0] != '\'' && s.ptr[0] != '"'))) {
		fail(m, EIO, "string without quotes");
		return;
	}
	push_text(m, PICKLE_STR, quoted ? (struct str){s.ptr + 1, s.len - 2} : s);
}

static void push_utf8(struct machine *m, uint64_t n)
{
	push_text(m, PICKLE_STR, take_str(m, n));
}

static void push_bytes(struct machine *m, uint64_t n)
{
	push_text(m, PICKLE_BYTES, take_str(m, n));
}

static void mark(struct machine *m)
{
	if (grow(m, (void **)&m->marks, &m->mark_cap, m->mark_count, sizeof(*m->marks), MARKS_MAX) == 0)
		m->marks[m->mark_count++] = m->depth;
}

static void drop(struct machine *m)
{
	if (m->mark_count && m->marks[m->mark_count - 1] == m->depth)
		m->mark_count--;
	else
		pop(m);
}

static void stack_global(struct machine *m)
{
	struct pickle *name = pop(m), *module = pop(m);

	if (!name || !module)
		return;
	if (name->kind != PICKLE_STR || module->kind != PICKLE_STR)
		fail(m, EIO, "global whose name is no string");
	else
		push_global(m, module->text, name->text);
}

static void persistent(struct machine *m, struct pickle *id)
{
	struct pickle *x = node(m, PICKLE_PERSISTENT);

	if (x)
		x->args = id;
	push(m, x);
}

static void signed_len(struct machine *m, void (*then)(struct machine *m, uint64_t n))
{
	uint64_t n = take_uint(m, 4);

	if (n > INT32_MAX)
		fail(m, EIO, "negative length");
	else
		then(m, n);
}

static void containers(struct machine *m, unsigned op)
{
	struct pickle *pair[2], **from;
	size_t n;

	switch (op) {
	case ')': push_new(m, PICKLE_TUPLE); break;
	case ']': push_new(m, PICKLE_LIST); break;
	case '}': push_new(m, PICKLE_DICT); break;
	case 0x8f: push_new(m, PICKLE_SET); break;
	case 't': collect_mark(m, PICKLE_TUPLE); break;
	case 'l': collect_mark(m, PICKLE_LIST); break;
	case 'd': collect_mark(m, PICKLE_DICT); break;
	case 0x91: collect_mark(m, PICKLE_SET); break;
	case 0x85: case 0x86: case 0x87: collect_top(m, op - 0x84); break;
	case 'a':
		pair[0] = pop(m);
		add_items(m, pair, 1);
		break;
	case 's':
		pair[1] = pop(m);
		pair[0] = pop(m);
		set_items(m, pair, 2);
		break;
	case 'e': case 0x90: from = pop_mark(m, &n); add_items(m, from, n); break;
	case 'u': from = pop_mark(m, &n); set_items(m, from, n); break;
	default: fail(m, EIO, "unknown opcode");
	}
}

static void objects(struct machine *m, unsigned op)
{
	struct str module;
	struct pickle *x;

	switch (op) {
	case 'c': module = take_line(m); push_global(m, module, take_line(m)); break;
	case 0x93: stack_global(m); break;
	case 'R': case 0x81: make_object(m); break;
	case 0x92: /* keyword arguments are of no use here */
		x = pop(m);
		make_object(m);
		if (x && x->kind != PICKLE_DICT)
			fail(m, EIO, "keyword arguments that are no dict");
		break;
	case 'i': make_instance(m, false); break;
	case 'o': make_instance(m, true); break;
	case 'b': build(m); break;
	case 'P': push_line(m, false); persistent(m, pop(m)); break;
	case 'Q': persistent(m, pop(m)); break;
	default: containers(m, op);
	}
}

static void step(struct machine *m, unsigned op)
{
	switch (op) {
	case 0x80:
		if (take_uint(m, 1) > 5)
			fail(m, EIO, "protocol above 5");
		break;
	case 0x95: take_uint(m, 8); break; /* FRAME */
	case '(': mark(m); break;
	case '0': drop(m); break;
	case '1': (void)pop_mark(m, &(size_t){0}); break;
	case '2': push(m, top(m)); break;
	case 'N': push_new(m, PICKLE_NONE); break;
	case 0x88: case 0x89: push_int(m, PICKLE_BOOL, op == 0x88); break;
	case 'I': push_decimal(m, true); break;
	case 'L': push_decimal(m, false); break;
	case 'F': push_real_text(m); break;
	case 'G': push_real(m); break;
	case 'J': push_int(m, PICKLE_INT, (int32_t)take_uint(m, 4)); break;
	case 'K': push_int(m, PICKLE_INT, (int64_t)take_uint(m, 1)); break;
	case 'M': push_int(m, PICKLE_INT, (int64_t)take_uint(m, 2)); break;
	case 0x8a: push_long(m, take_uint(m, 1)); break;
	case 0x8b: signed_len(m, push_long); break;
	case 'S': push_line(m, true); break;
	case 'V': push_line(m, false); break;
	case 'T': signed_len(m, push_bytes); break;
	case 'U': case 'C': push_bytes(m, take_uint(m, 1)); break;
	case 'B': push_bytes(m, take_uint(m, 4)); break;
	case 0x8e: case 0x96: push_bytes(m, take_uint(m, 8)); break;
	case 'X': push_utf8(m, take_uint(m, 4)); break;
	case 0x8c: push_utf8(m, take_uint(m, 1)); break;
	case 0x8d: push_utf8(m, take_uint(m, 8)); break;
	case 'g': get(m, memo_text(m)); break;
	case 'h': get(m, take_uint(m, 1)); break;
	case 'j': get(m, take_uint(m, 4)); break;
	case 'p': put(m, memo_text(m)); break;
	case 'q': put(m, take_uint(m, 1)); break;
	case 'r': put(m, take_uint(m, 4)); break;
	case 0x94: put(m, m->memo_count); break;
	default: objects(m, op);
	}
}

int pickle_read(struct str bytes, struct arena *a, struct pickle **out, size_t *used, struct error *e)
{
	struct machine m = {.p = (const unsigned char *)bytes.ptr, .len = bytes.len, .a = a, .e = e};

	*out = NULL;
	while (!m.failed && !*out) {
		m.op = m.pos;
		if (m.pos == m.len)
			fail(&m, EIO, "no STOP");
		else if (m.p[m.pos++] == '.')
			*out = pop(&m);
		else
			step(&m, m.p[m.op]);
	}
	*used = m.pos;
	free(m.stack);
	free(m.memo);
	free(m.marks);
	return m.failed;
}

bool pickle_is_global(const struct pickle *p, const char *name)
{
	return p && p->kind == PICKLE_GLOBAL && str_is(p->text, name);
}

bool pickle_is_call(const struct pickle *p, const char *name)
{
	return p && p->kind == PICKLE_OBJECT && pickle_is_global(p->callable, name);
}

const struct pickle *pickle_item(const struct pickle *p, size_t i)
{
	return p && (p->kind == PICKLE_LIST || p->kind == PICKLE_TUPLE) && i < p->count ? p->items[i] : NULL;
}

struct pickle *const *pickle_pairs(const struct pickle *p, size_t *count)
{
	*count = !p ? 0 : p->kind == PICKLE_DICT ? p->count : p->kind == PICKLE_OBJECT ? p->pair_count : 0;
	return !*count ? NULL : p->kind == PICKLE_DICT ? p->items : p->pairs;
}

const struct pickle *pickle_get(const struct pickle *p, const char *key)
{
	size_t n;
	struct pickle *const *pairs = pickle_pairs(p, &n);

	for (size_t i = n; i >= 2; i -= 2)
		if (str_is(pickle_text(pairs[i - 2]), key))
			return pairs[i - 1];
	return NULL;
}

struct str pickle_text(const struct pickle *p)
{
	return p && (p->kind == PICKLE_STR || p->kind == PICKLE_BYTES) ? p->text : (struct str){0};
}
