/* SPDX-License-Identifier: MIT */
#include "parsers/container/npy.h"

#include "parsers/core/check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static const char magic[6] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};

/* ---- writing ---- */

enum { HEADER_TEXT_MAX = 64 + 128 + LIMIT_RANK * 22 };

static int digits_of(uint64_t n)
{
	char text[24];

	return snprintf(text, sizeof(text), "%llu", (unsigned long long)n);
}

/*
 * As numpy.lib.format writes it: keys sorted; growth room of 21 minus the digits of the dimension that may grow (the first,
 * the last in Fortran order); blanks and a newline so that everything is a multiple of 64. Version 1.0 always:
 * rank 64 keeps the text far below 65536.
 */
static size_t header_text(char *out, const char *descr, bool fortran, uint32_t rank, const uint64_t *shape)
{
	size_t n = (size_t)sprintf(out, "{'descr': '%.127s', 'fortran_order': %s, 'shape': (", descr,
		fortran ? "True" : "False"), pad;

	for (uint32_t i = 0; i < rank; i++)
		n += (size_t)sprintf(out + n, "%s%llu", i ? ", " : "", (unsigned long long)shape[i]);
	n += (size_t)sprintf(out + n, "%s), }", rank == 1 ? "," : "");
	if (rank) {
		int room = 21 - digits_of(shape[fortran ? rank - 1 : 0]);

		for (; room > 0; room--)
			out[n++] = ' ';
	}
	pad = 64 - (10 + n + 1) % 64;
	memset(out + n, ' ', pad);
	n += pad;
	out[n++] = '\n';
	return n;
}

uint64_t npy_header_size(const char *descr, bool fortran, uint32_t rank, const uint64_t *shape)
{
	char text[HEADER_TEXT_MAX + 64];

	return 10 + header_text(text, descr, fortran, rank, shape);
}

int npy_append_header(struct extmap *m, const char *descr, bool fortran, uint32_t rank,
	const uint64_t *shape)
{
	char text[10 + HEADER_TEXT_MAX + 64];
	size_t n;

	if (rank > LIMIT_RANK)
		return -EINVAL;
	n = header_text(text + 10, descr, fortran, rank, shape);
	memcpy(text, magic, sizeof(magic));
	text[6] = 1;
	text[7] = 0;
	text[8] = (char)(n & 0xff);
	text[9] = (char)(n >> 8);
	return extmap_append_copy(m, text, 10 + n);
}

/* ---- reading: a literal, as ast.literal_eval would take it, of the few forms that can occur ---- */

struct literal {
	const char *p, *end;
	bool old; /* versions 1.0, 2.0: Python 2 longs are there (2L) */
	struct error *e;
	int failed;
};

static void literal_fail(struct literal *l, const char *expected)
{
	if (!l->failed)
		l->failed = error_set(l->e, EINVAL, "npy header: %s is expected", expected);
}

static void skip_space(struct literal *l)
{
	while (l->p < l->end) {
		if (*l->p == '#') {
			while (l->p < l->end && *l->p != '\n')
				l->p++;
		} else if (strchr(" \t\r\n\f", *l->p) && *l->p) {
			l->p++;
		} else {
			break;
		}
	}
}

static bool at_char(struct literal *l, char c)
{
	skip_space(l);
	return !l->failed && l->p < l->end && *l->p == c;
}

static bool take_char(struct literal *l, char c)
{
	if (!at_char(l, c))
		return false;
	l->p++;
	return true;
}

static bool take_word(struct literal *l, const char *word)
{
	size_t n = strlen(word);

	skip_space(l);
	if ((size_t)(l->end - l->p) < n || memcmp(l->p, word, n) != 0)
		return false;
	l->p += n;
	return true;
}

/* One or more adjacent string literals. Escapes do not occur in what NumPy writes; refused. */
static size_t take_string(struct literal *l, char *out, size_t cap)
{
	size_t n = 0;
	bool any = false;

	while (at_char(l, '\'') || at_char(l, '"')) {
		char quote = *l->p++;

		any = true;
		while (l->p < l->end && *l->p != quote && *l->p != '\n' && *l->p != '\\') {
			if (n + 1 < cap)
				out[n++] = *l->p;
			l->p++;
		}
		if (l->p >= l->end || *l->p != quote) {
			literal_fail(l, "the end of a string");
			break;
		}
		l->p++;
	}
	if (!any)
		literal_fail(l, "a string");
	out[n] = '\0';
	return n;
}

static uint64_t take_integer(struct literal *l)
{
	unsigned base = 10;
	uint64_t v = 0;
	bool any = false;

	skip_space(l);
	while (take_char(l, '+'))
		;
	if (at_char(l, '-')) {
		literal_fail(l, "a dimension that is not negative");
		return 0;
	}
	skip_space(l);
	if (l->end - l->p > 2 && l->p[0] == '0' && strchr("xXoObB", l->p[1])) {
		base = (l->p[1] | 32) == 'x' ? 16 : (l->p[1] | 32) == 'o' ? 8 : 2;
		l->p += 2;
	}
	for (; l->p < l->end; l->p++) {
		char c = *l->p;
		unsigned d = c >= '0' && c <= '9' ? (unsigned)(c - '0') : (c | 32) >= 'a' && (c | 32) <= 'f' ? (unsigned)((c | 32) - 'a') + 10 : 99;

		if (c == '_' && any)
			continue;
		if (d >= base)
			break;
		any = true;
		if (ckd_mul(&v, v, (uint64_t)base) || ckd_add(&v, v, (uint64_t)d) || v > INT64_MAX) {
			literal_fail(l, "a dimension below 2^63");
			return 0;
		}
	}
	if (!any)
		literal_fail(l, "an integer");
	if (any && l->old && l->p < l->end && (*l->p | 32) == 'l')
		l->p++;
	return v;
}

static void take_shape(struct literal *l, struct npy *out)
{
	out->rank = 0;
	if (!take_char(l, '(')) {
		literal_fail(l, "a tuple as shape");
		return;
	}
	while (!l->failed && !at_char(l, ')')) {
		uint64_t dim = take_integer(l);

		if (out->rank == LIMIT_RANK) {
			literal_fail(l, "at most 64 dimensions");
			return;
		}
		out->shape[out->rank++] = dim;
		if (!take_char(l, ',')) {
			if (out->rank == 1)
				literal_fail(l, "a tuple as shape");
			break;
		}
	}
	if (!take_char(l, ')'))
		literal_fail(l, "the end of the shape");
}

static bool take_bool(struct literal *l)
{
	if (take_word(l, "True"))
		return true;
	if (!take_word(l, "False"))
		literal_fail(l, "True or False as fortran_order");
	return false;
}

/* A structured descr: skipped as balanced brackets, kept as text. */
static void take_structure(struct literal *l, struct npy *out)
{
	const char *start;
	unsigned depth = 0;
	size_t n;

	skip_space(l);
	start = l->p;
	while (l->p < l->end && !l->failed) {
		char c = *l->p;

		if (c == '\'' || c == '"') {
			char ignored[8];

			take_string(l, ignored, sizeof(ignored));
			continue;
		}
		l->p++;
		if (c == '[' || c == '(') {
			if (++depth > 20)
				literal_fail(l, "a descr nested at most 20 deep");
		} else if (c == ']' || c == ')') {
			if (--depth == 0)
				break;
		} else if (!strchr(" ,0123456789\n", c)) {
			literal_fail(l, "a type description");
		}
	}
	if (depth)
		literal_fail(l, "the end of a type description");
	n = (size_t)(l->p - start);
	if (n >= sizeof(out->descr))
		n = sizeof(out->descr) - 1;
	memcpy(out->descr, start, n);
	out->descr[n] = '\0';
	out->dtype = DTYPE_NONE;
}

/* ---- descr ---- */

struct kind {
	char kind;
	unsigned size;
	enum dtype dtype;
};

static const struct kind kinds[] = {
	{'b', 1, DTYPE_BOOL}, {'i', 1, DTYPE_INT8}, {'i', 2, DTYPE_INT16}, {'i', 4, DTYPE_INT32},
	{'i', 8, DTYPE_INT64}, {'u', 1, DTYPE_UINT8}, {'u', 2, DTYPE_UINT16}, {'u', 4, DTYPE_UINT32},
	{'u', 8, DTYPE_UINT64}, {'f', 2, DTYPE_FLOAT16}, {'f', 4, DTYPE_FLOAT32}, {'f', 8, DTYPE_FLOAT64},
	{'f', 16, DTYPE_FLOAT128}, {'c', 8, DTYPE_COMPLEX64}, {'c', 16, DTYPE_COMPLEX128},
	/* ml_dtypes 0.6 writes these two, and no NumPy reads them */
	{'f', 1, DTYPE_FLOAT8_E5M2}, {'W', 4, DTYPE_COMPLEX32}, {'c', 4, DTYPE_COMPLEX32},
};

/* Names that NumPy or ml_dtypes take in place of the code, where they are not our own names. */
static const struct {
	const char *name;
	enum dtype dtype;
} names[] = {
	{"?", DTYPE_BOOL}, {"d", DTYPE_FLOAT64}, {"f", DTYPE_FLOAT32}, {"e", DTYPE_FLOAT16},
	{"half", DTYPE_FLOAT16}, {"single", DTYPE_FLOAT32}, {"double", DTYPE_FLOAT64},
	{"float8_e8m0fnu", DTYPE_FLOAT8_E8M0FNU},
};

static void set_item(struct npy *out, enum dtype d, bool big)
{
	out->dtype = d;
	out->itemsize = dtype_info(d)->block_bytes;
	out->big_endian = big && dtype_info(d)->swap > 1;
}

static void read_descr(struct npy *out)
{
	const char *p = out->descr;
	enum dtype named = dtype_by_name(str_from(p));
	bool big = false;
	char *end;
	unsigned long size;
	char kind;

	out->dtype = DTYPE_NONE;
	out->itemsize = 0;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && named == DTYPE_NONE; i++)
		if (strcmp(p, names[i].name) == 0)
			named = names[i].dtype;
	if (named != DTYPE_NONE && named != DTYPE_STRING && dtype_info(named)->block == 1) {
		set_item(out, named, false);
		return;
	}
	if (*p && strchr("<>|=", *p))
		big = *p++ == '>';
	kind = *p;
	if (!kind)
		return;
	size = strtoul(p + 1, &end, 10);
	if (*end || end == p + 1 || size > UINT32_MAX / 4)
		return; /* dates carry a unit: opaque */
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (kinds[i].kind == kind && kinds[i].size == size) {
			set_item(out, kinds[i].dtype, big);
			return;
		}
	if (kind == 'U' || kind == 'S' || kind == 'a') {
		out->dtype = DTYPE_STRING;
		out->unicode = kind == 'U';
		out->bytes = kind != 'U';
		out->itemsize = (uint32_t)size * (kind == 'U' ? 4 : 1);
		out->big_endian = big;
	} else if (kind == 'V') {
		out->itemsize = (uint32_t)size;
	}
}

static void take_dict(struct literal *l, struct npy *out, unsigned *seen)
{
	if (!take_char(l, '{'))
		literal_fail(l, "a dict");
	while (!l->failed && !at_char(l, '}')) {
		char key[32];

		take_string(l, key, sizeof(key));
		if (!take_char(l, ':'))
			literal_fail(l, "':' behind a key");
		skip_space(l);
		if (strcmp(key, "descr") == 0) {
			if (at_char(l, '\'') || at_char(l, '"')) {
				take_string(l, out->descr, sizeof(out->descr));
				read_descr(out);
			} else {
				take_structure(l, out);
			}
			*seen |= 1;
		} else if (strcmp(key, "fortran_order") == 0) {
			out->fortran = take_bool(l);
			*seen |= 2;
		} else if (strcmp(key, "shape") == 0) {
			take_shape(l, out);
			*seen |= 4;
		} else {
			literal_fail(l, "no other key than descr, fortran_order and shape");
		}
		if (!take_char(l, ','))
			break;
	}
	if (!take_char(l, '}'))
		literal_fail(l, "the end of the dict");
	skip_space(l);
	if (l->p != l->end)
		literal_fail(l, "nothing behind the dict");
}

static int read_text(const char *text, size_t len, bool old, struct npy *out, struct error *e)
{
	struct literal l = {text, text + len, old, e, 0};
	unsigned seen = 0;

	take_dict(&l, out, &seen);
	if (!l.failed && seen != 7)
		literal_fail(&l, seen & 1 ? seen & 2 ? "a key shape" : "a key fortran_order" : "a key descr");
	return l.failed;
}

static int check_size(const struct npy *n, uint64_t size, struct error *e)
{
	uint64_t bytes;

	if (!n->itemsize)
		return 0;
	if (ckd_mul(&bytes, n->count, (uint64_t)n->itemsize) || bytes > size - n->data_offset)
		return error_set(e, EINVAL, "npy data of %llu bytes is shorter than its shape and dtype need",
			(unsigned long long)(size - n->data_offset));
	return 0;
}

int npy_read(const struct extmap *m, uint64_t offset, uint64_t size, struct npy *out, struct error *e)
{
	unsigned char head[12];
	size_t prefix;
	uint64_t len;
	char *text;
	int r;

	memset(out, 0, sizeof(*out));
	if (size < 10 || (r = extmap_read(m, offset, head, size < 12 ? 10 : 12, e)) < 0)
		return size < 10 ? error_set(e, EINVAL, "npy file of %llu bytes is too short for a header",
					   (unsigned long long)size)
				 : r;
	if (memcmp(head, magic, sizeof(magic)) != 0)
		return error_set(e, EINVAL, "no npy file: it does not begin with \\x93NUMPY");
	if (head[6] < 1 || head[6] > 3 || head[7] != 0)
		return error_set(e, EINVAL, "npy version %u.%u is unknown, expected 1.0, 2.0 or 3.0", head[6],
			head[7]);
	prefix = head[6] == 1 ? 10 : 12;
	len = head[8] | (uint64_t)head[9] << 8;
	if (head[6] > 1)
		len |= (uint64_t)head[10] << 16 | (uint64_t)head[11] << 24;
	if (len > LIMIT_NPY_HEADER)
		return error_set(e, EINVAL, "npy header of %llu bytes is longer than %u",
			(unsigned long long)len, LIMIT_NPY_HEADER);
	if (size < prefix || len > size - prefix)
		return error_set(e, EINVAL, "npy header of %llu bytes ends outside the file",
			(unsigned long long)len);
	text = malloc(len + 1);
	if (!text)
		return error_set(e, ENOMEM, "out of memory");
	r = extmap_read(m, offset + prefix, text, len, e);
	if (r == 0)
		r = read_text(text, len, head[6] < 3, out, e);
	free(text);
	if (r < 0)
		return r;
	out->data_offset = prefix + len;
	if (shape_count(out->shape, out->rank, &out->count) < 0)
		return error_set(e, EINVAL, "npy shape overflows");
	return check_size(out, size, e);
}
