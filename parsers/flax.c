/* SPDX-License-Identifier: MIT */
/*
 * Flax MessagePack (flax.serialization.to_bytes, flax 0.12): one map of maps whose leaves are
 *
 *	ext 1  ndarray       [shape, dtype name, data]: C order, little-endian, every element whole bytes
 *	ext 2  complex       [real, imag]
 *	ext 3  numpy scalar  as ext 1
 *	ext 4  tuple         the elements (Orbax writes it)
 *
 * and plain values. An array above 2^30 bytes is a map {"__msgpack_chunked_array__": true, "shape": {"0": N, ...},
 * "chunks": {"0": ndarray, ...}}. The walk reads headers and keys only: msgpack-c would want the whole file in memory.
 */
#include "parsers/flax.h"

#include "parsers/codec/convert.h"
#include "parsers/core/check.h"
#include "parsers/core/cursor.h"
#include "parsers/core/limits.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* bytes and strings from here on are shown as tensors of bytes */
#define BLOB_MIN 65536u

enum token_kind { TOKEN_NIL, TOKEN_BOOL, TOKEN_INT, TOKEN_UINT, TOKEN_FLOAT32, TOKEN_FLOAT, TOKEN_STR, TOKEN_BIN, TOKEN_LIST,
	TOKEN_MAP, TOKEN_EXT };

struct token {
	enum token_kind kind;
	uint64_t at;    /* where it begins; the cursor stands behind its header */
	uint64_t n;     /* bytes of STR, BIN, EXT; items of LIST, entries of MAP */
	uint8_t ext;
	union {
		bool boolean;
		int64_t integer;
		uint64_t natural;
		double real;
		float real32;
	};
};

static uint64_t big_endian(struct cursor *c, unsigned bytes)
{
	return bytes == 1 ? cursor_u8(c) : bytes == 2 ? cursor_u16be(c) : bytes == 4 ? cursor_u32be(c) : cursor_u64be(c);
}

static void read_float(struct cursor *c, struct token *t, bool wide)
{
	if (wide) {
		uint64_t bits = cursor_u64be(c);

		t->kind = TOKEN_FLOAT;
		memcpy(&t->real, &bits, sizeof(bits));
	} else {
		uint32_t bits = cursor_u32be(c);

		t->kind = TOKEN_FLOAT32;
		memcpy(&t->real32, &bits, sizeof(bits));
	}
}

static int64_t sign_extend(uint64_t v, unsigned bytes)
{
	unsigned shift = 64 - 8 * bytes;

	return (int64_t)(v << shift) >> shift;
}

static int read_ext(struct cursor *c, struct token *t, uint8_t b)
{
	t->kind = TOKEN_EXT;
	t->n = b >= 0xd4 ? 1ull << (b - 0xd4) : big_endian(c, 1u << (b - 0xc7));
	t->ext = cursor_u8(c);
	return 0;
}

/* The headers of the MessagePack specification. */
static int read_token(struct cursor *c, struct token *t)
{
	uint8_t b;

	*t = (struct token){.at = c->pos};
	b = cursor_u8(c);
	if (b < 0x80 || b >= 0xe0) {
		t->kind = TOKEN_INT;
		t->integer = (int8_t)b;
	} else if (b < 0x90) {
		t->kind = TOKEN_MAP;
		t->n = b & 15;
	} else if (b < 0xa0) {
		t->kind = TOKEN_LIST;
		t->n = b & 15;
	} else if (b < 0xc0) {
		t->kind = TOKEN_STR;
		t->n = b & 31;
	} else if (b == 0xc0) {
		t->kind = TOKEN_NIL;
	} else if (b == 0xc2 || b == 0xc3) {
		t->kind = TOKEN_BOOL;
		t->boolean = b == 0xc3;
	} else if (b >= 0xc4 && b <= 0xc6) {
		t->kind = TOKEN_BIN;
		t->n = big_endian(c, 1u << (b - 0xc4));
	} else if ((b >= 0xc7 && b <= 0xc9) || (b >= 0xd4 && b <= 0xd8)) {
		read_ext(c, t, b);
	} else if (b == 0xca || b == 0xcb) {
		read_float(c, t, b == 0xcb);
	} else if (b >= 0xcc && b <= 0xcf) {
		t->kind = TOKEN_UINT;
		t->natural = big_endian(c, 1u << (b - 0xcc));
	} else if (b >= 0xd0 && b <= 0xd3) {
		t->kind = TOKEN_INT;
		t->integer = sign_extend(big_endian(c, 1u << (b - 0xd0)), 1u << (b - 0xd0));
	} else if (b >= 0xd9 && b <= 0xdb) {
		t->kind = TOKEN_STR;
		t->n = big_endian(c, 1u << (b - 0xd9));
	} else if (b == 0xdc || b == 0xdd) {
		t->kind = TOKEN_LIST;
		t->n = big_endian(c, b == 0xdc ? 2 : 4);
	} else if (b == 0xde || b == 0xdf) {
		t->kind = TOKEN_MAP;
		t->n = big_endian(c, b == 0xde ? 2 : 4);
	} else if (!cursor_failed(c)) {
		return cursor_fail(c, EIO, "byte 0x%02x begins no MessagePack object", b);
	}
	if (cursor_failed(c))
		return cursor_failed(c);
	if (t->n > cursor_left(c) || (t->kind == TOKEN_MAP && t->n > cursor_left(c) / 2))
		return cursor_fail(c, EIO, "an object of %llu %s, %llu bytes are left", (unsigned long long)t->n,
			t->kind == TOKEN_MAP || t->kind == TOKEN_LIST ? "items" : "bytes",
			(unsigned long long)cursor_left(c));
	return 0;
}

/* ---- the walk ---- */

struct frame {
	uint64_t left;   /* entries or items to come */
	uint64_t index;  /* of the next item of a list */
	struct str path;
	bool is_map;
	uint32_t map;    /* index in maps */
	uint64_t end;    /* for an ext 4: where it must end; else 0 */
};

struct reader {
	struct cursor c;
	struct model *m;
	struct error *e;
	struct flax_file *f;
	uint32_t map_cap;
	struct frame stack[LIMIT_NESTING];
	unsigned depth;
};

static int no_memory(struct reader *x)
{
	return error_set(x->e, ENOMEM, "out of memory for the model's structure");
}

static struct str join(struct reader *x, struct str path, struct str key)
{
	struct str s;
	char *p;

	if (!path.len)
		return key;
	p = arena_alloc(x->m->arena, path.len + key.len + 2);
	if (!p)
		return (struct str){NULL, 0};
	memcpy(p, path.ptr, path.len);
	p[path.len] = '/';
	if (key.len)
		memcpy(p + path.len + 1, key.ptr, key.len);
	s = (struct str){p, path.len + key.len + 1};
	return s;
}

/* A key: a string, or an integer in files of plain msgpack_serialize. */
static int read_key(struct reader *x, struct str *out)
{
	struct token t;
	int r = read_token(&x->c, &t);

	if (r < 0)
		return r;
	if (t.kind == TOKEN_STR || t.kind == TOKEN_BIN)
		*out = cursor_str(&x->c, x->m->arena, t.n);
	else if (t.kind == TOKEN_INT)
		*out = arena_printf(x->m->arena, "%lld", (long long)t.integer);
	else if (t.kind == TOKEN_UINT)
		*out = arena_printf(x->m->arena, "%llu", (unsigned long long)t.natural);
	else
		return cursor_fail(&x->c, EIO, "a key is neither a string nor an integer");
	return cursor_failed(&x->c) ? cursor_failed(&x->c) : out->ptr ? 0 : no_memory(x);
}

/* ---- arrays ---- */

struct array {
	uint32_t rank;
	uint64_t shape[LIMIT_RANK];
	enum dtype dtype;
	bool big;
	uint64_t data, size; /* place of the elements */
	struct str name;     /* of the dtype */
};

/* names of NumPy and ml_dtypes, and type strings like "<f4", which NumPy takes too */
static enum dtype dtype_of(struct str name, bool *big)
{
	enum dtype d = dtype_by_name(name);

	*big = false;
	if (d == DTYPE_STRING)
		return DTYPE_NONE;
	if (d != DTYPE_NONE)
		return d;
	for (int k = 1; name.len >= 3 && k < DTYPE_COUNT; k++) {
		const char *descr = dtype_info((enum dtype)k)->descr;

		if (!descr || dtype_info((enum dtype)k)->npy != (enum dtype)k ||
			!str_eq(str_from(descr + 1), (struct str){name.ptr + 1, name.len - 1}))
			continue;
		if (name.ptr[0] == '<' || name.ptr[0] == '>' || name.ptr[0] == '|' || name.ptr[0] == '=') {
			*big = name.ptr[0] == '>';
			return (enum dtype)k;
		}
	}
	return DTYPE_NONE;
}

/* The body of an ext 1 or 3; the cursor ends behind it. */
static int read_array(struct reader *x, uint64_t end, struct array *a)
{
	struct token t;
	int r = read_token(&x->c, &t);

	*a = (struct array){0};
	if (r == 0 && (t.kind != TOKEN_LIST || t.n != 3))
		r = cursor_fail(&x->c, EIO, "an array is no list of shape, dtype and data");
	if (r == 0)
		r = read_token(&x->c, &t);
	if (r == 0 && (t.kind != TOKEN_LIST || t.n > LIMIT_RANK))
		r = cursor_fail(&x->c, EIO, "a shape is no list of at most %d numbers", LIMIT_RANK);
	a->rank = r == 0 ? (uint32_t)t.n : 0;
	for (uint32_t i = 0; r == 0 && i < a->rank; i++) {
		r = read_token(&x->c, &t);
		if (r == 0 && t.kind != TOKEN_UINT && (t.kind != TOKEN_INT || t.integer < 0))
			r = cursor_fail(&x->c, EIO, "a dimension is no number of 0 or more");
		a->shape[i] = t.kind == TOKEN_UINT ? t.natural : (uint64_t)t.integer;
	}
	if (r == 0)
		r = read_token(&x->c, &t);
	if (r == 0 && t.kind != TOKEN_STR && t.kind != TOKEN_BIN)
		r = cursor_fail(&x->c, EIO, "the name of a dtype is no string");
	if (r == 0)
		a->name = cursor_str(&x->c, x->m->arena, t.n < 64 ? t.n : 64);
	if (r == 0 && t.n > 64)
		r = cursor_fail(&x->c, EIO, "the name of a dtype has %llu bytes", (unsigned long long)t.n);
	if (r == 0)
		r = read_token(&x->c, &t);
	if (r == 0 && t.kind != TOKEN_BIN && t.kind != TOKEN_STR)
		r = cursor_fail(&x->c, EIO, "the data of an array is no binary");
	if (r < 0)
		return r;
	a->data = x->c.pos;
	a->size = t.n;
	a->dtype = dtype_of(a->name, &a->big);
	cursor_skip(&x->c, t.n);
	if (!cursor_failed(&x->c) && x->c.pos != end)
		return cursor_fail(&x->c, EIO, "an array ends before its object does");
	return cursor_failed(&x->c);
}

static struct tensor *add_tensor(struct reader *x, struct str name, const uint64_t *shape, uint32_t rank,
	const struct flax_place *place)
{
	struct tensor *t = model_add_tensor(x->m, x->e);
	struct flax_place *kept = arena_alloc(x->m->arena, sizeof(*kept));

	if (!t || !kept || !name.ptr) {
		no_memory(x);
		return NULL;
	}
	*kept = *place;
	t->name = name;
	t->priv = kept;
	return tensor_set_shape(x->m, t, shape, rank, x->e) < 0 ? NULL : t;
}

/* Elements as the file has them: sub-byte types take a byte each there, and are packed here. */
static int set_elements(struct reader *x, struct tensor *t, const struct array *a, struct extent data)
{
	const struct dtype_info *info = dtype_info(a->dtype);

	t->dtype = a->dtype;
	t->stored_type = a->name.ptr;
	t->flags |= a->big ? TENSOR_BIG_ENDIAN : 0;
	if (info->block < 2 || t->problem.len || data.size != t->count) {
		t->data = data;
		return 0;
	}
	struct codec *c = codec_pack_bits(&data, a->dtype, t->count);

	if (!c)
		return no_memory(x);
	t->data = extent_codec(c);
	return 0;
}

static int array_leaf(struct reader *x, struct str name, const struct token *t, struct flax_place *place)
{
	struct array a;
	struct tensor *tensor;
	int r = read_array(x, x->c.pos + t->n, &a);

	if (r < 0)
		return r;
	place->ext = t->ext;
	place->value_size = x->c.pos - place->value;
	tensor = add_tensor(x, name, a.shape, a.rank, place);
	return tensor ? set_elements(x, tensor, &a, extent_source(x->f->src, a.data, a.size)) : -EIO;
}

/* Bytes that are too many for metadata.json. */
static int blob_leaf(struct reader *x, struct str name, const struct token *t, struct flax_place *place)
{
	struct tensor *tensor;
	uint64_t data = x->c.pos;

	cursor_skip(&x->c, t->n);
	place->value_size = x->c.pos - place->value;
	tensor = add_tensor(x, name, &t->n, 1, place);
	if (!tensor)
		return -EIO;
	tensor->dtype = DTYPE_UINT8;
	tensor->stored_type = t->kind == TOKEN_EXT ? "ext" : t->kind == TOKEN_BIN ? "bin" : "str";
	tensor->data = extent_source(x->f->src, data, t->n);
	return cursor_failed(&x->c);
}

/* ---- chunked arrays ---- */

struct chunk {
	uint64_t index, data, size;
};

static int chunk_cmp(const void *pa, const void *pb)
{
	const struct chunk *a = pa, *b = pb;

	return a->index < b->index ? -1 : a->index > b->index;
}

static int read_index(struct reader *x, uint64_t limit, uint64_t *out)
{
	struct str key;
	int r = read_key(x, &key);

	*out = 0;
	for (size_t i = 0; r == 0 && i < key.len; i++)
		if (key.ptr[i] < '0' || key.ptr[i] > '9' || i > 9)
			r = cursor_fail(&x->c, EIO, "'%.*s' is no index in a chunked array", STR_ARG(key));
		else
			*out = *out * 10 + (uint64_t)(key.ptr[i] - '0');
	if (r == 0 && (*out >= limit || !key.len))
		r = cursor_fail(&x->c, EIO, "index '%.*s' in a chunked array, expected below %llu", STR_ARG(key),
			(unsigned long long)limit);
	return r;
}

static int read_chunked_shape(struct reader *x, struct array *whole)
{
	bool seen[LIMIT_RANK] = {false};
	struct token t;
	int r = read_token(&x->c, &t);

	if (r == 0 && (t.kind != TOKEN_MAP || t.n > LIMIT_RANK))
		r = cursor_fail(&x->c, EIO, "the shape of a chunked array is no map of at most %d numbers", LIMIT_RANK);
	whole->rank = r == 0 ? (uint32_t)t.n : 0;
	for (uint32_t i = 0; r == 0 && i < whole->rank; i++) {
		uint64_t k = 0;

		r = read_index(x, whole->rank, &k);
		if (r == 0)
			r = read_token(&x->c, &t);
		if (r == 0 && (seen[k] || (t.kind != TOKEN_UINT && (t.kind != TOKEN_INT || t.integer < 0))))
			r = cursor_fail(&x->c, EIO, "a dimension is there twice or no number");
		if (r == 0) {
			seen[k] = true;
			whole->shape[k] = t.kind == TOKEN_UINT ? t.natural : (uint64_t)t.integer;
		}
	}
	return r;
}

static int read_chunks(struct reader *x, struct array *whole, struct chunk **out, uint64_t *count)
{
	struct token t;
	int r = read_token(&x->c, &t);

	if (r == 0 && t.kind != TOKEN_MAP)
		r = cursor_fail(&x->c, EIO, "the chunks of an array are no map");
	*count = r == 0 ? t.n : 0;
	*out = r == 0 ? calloc(*count ? *count : 1, sizeof(**out)) : NULL;
	if (r == 0 && !*out)
		return no_memory(x);
	for (uint64_t i = 0; r == 0 && i < *count; i++) {
		struct chunk *chunk = &(*out)[i];
		struct array a = {0};

		r = read_index(x, *count, &chunk->index);
		if (r == 0)
			r = read_token(&x->c, &t);
		if (r == 0 && (t.kind != TOKEN_EXT || t.ext != FLAX_NDARRAY))
			r = cursor_fail(&x->c, EIO, "a chunk is no array");
		if (r == 0)
			r = read_array(x, x->c.pos + t.n, &a);
		if (r == 0 && i > 0 && (a.dtype != whole->dtype || a.big != whole->big))
			r = cursor_fail(&x->c, EIO, "chunks of one array have different dtypes");
		if (r < 0)
			break;
		chunk->data = a.data;
		chunk->size = a.size;
		whole->dtype = a.dtype;
		whole->big = a.big;
		whole->name = a.name;
	}
	if (r == 0)
		qsort(*out, *count, sizeof(**out), chunk_cmp);
	for (uint64_t i = 0; r == 0 && i < *count; i++)
		if ((*out)[i].index != i)
			r = cursor_fail(&x->c, EIO, "chunk %llu of an array is missing", (unsigned long long)i);
	return r;
}

/* The cursor stands behind the map's header. */
static int chunked_leaf(struct reader *x, struct str name, struct flax_place *place)
{
	struct array whole = {.dtype = DTYPE_NONE, .name = STR("")};
	struct extmap *map = NULL;
	struct chunk *chunks = NULL;
	struct tensor *tensor = NULL;
	uint64_t count = 0;
	struct token t;
	int r = 0;

	for (int i = 0; r == 0 && i < 3; i++) {
		struct str key;

		r = read_key(x, &key);
		if (r < 0)
			break;
		if (str_is(key, "shape"))
			r = read_chunked_shape(x, &whole);
		else if (str_is(key, "chunks") && !chunks)
			r = read_chunks(x, &whole, &chunks, &count);
		else if (str_is(key, FLAX_CHUNK_KEY))
			r = read_token(&x->c, &t);
		else
			r = cursor_fail(&x->c, EIO, "key '%.*s' in a chunked array", STR_ARG(key));
	}
	if (r == 0) {
		place->chunked = true;
		place->ext = FLAX_NDARRAY;
		place->value_size = x->c.pos - place->value;
		tensor = add_tensor(x, name, whole.shape, whole.rank, place);
		map = tensor ? extmap_new() : NULL;
		r = !tensor ? -EIO : !map ? no_memory(x) : 0;
	}
	for (uint64_t i = 0; r == 0 && i < count; i++)
		r = extmap_append_source(map, x->f->src, chunks[i].data, chunks[i].size);
	if (r == 0)
		r = set_elements(x, tensor, &whole, extent_map(map));
	else
		extmap_unref(map);
	free(chunks);
	return r;
}

/* Jumps over one object, whatever it holds. */
static int skip_object(struct reader *x)
{
	uint64_t left = 1;
	struct token t;

	while (left > 0) {
		int r = read_token(&x->c, &t);

		if (r < 0)
			return r;
		left--;
		if (t.kind == TOKEN_MAP)
			left += 2 * t.n;
		else if (t.kind == TOKEN_LIST)
			left += t.n;
		else if (t.kind == TOKEN_STR || t.kind == TOKEN_BIN || t.kind == TOKEN_EXT)
			cursor_skip(&x->c, t.n);
	}
	return cursor_failed(&x->c);
}

/* Whether the map with three entries that begins here is a chunked array; the cursor stays. */
static int is_chunked(struct reader *x, bool *yes)
{
	uint64_t pos = x->c.pos;
	int r = 0;

	*yes = false;
	for (int i = 0; r == 0 && i < 3; i++) {
		struct str key = {NULL, 0};

		r = read_key(x, &key);
		if (r < 0 || str_is(key, FLAX_CHUNK_KEY)) {
			*yes = r == 0;
			break;
		}
		if (!str_is(key, "shape") && !str_is(key, "chunks"))
			break;
		r = skip_object(x);
	}
	if (r == 0)
		cursor_seek(&x->c, pos);
	return r;
}

/* ---- plain leaves ---- */

static struct value *complex_value(struct reader *x)
{
	struct arena *a = x->m->arena;
	struct value *map = value_map(a);
	struct token t;

	if (read_token(&x->c, &t) < 0 || t.kind != TOKEN_LIST || t.n != 2) {
		cursor_fail(&x->c, EIO, "a complex number is no list of two");
		return NULL;
	}
	for (int i = 0; i < 2; i++) {
		if (read_token(&x->c, &t) < 0 || t.kind != TOKEN_FLOAT) {
			cursor_fail(&x->c, EIO, "a part of a complex number is no float");
			return NULL;
		}
		if (value_set(a, map, i ? STR("imag") : STR("real"), value_float(a, t.real)) < 0)
			return NULL;
	}
	return map;
}

static struct value *leaf_value(struct reader *x, const struct token *t)
{
	struct arena *a = x->m->arena;
	struct str s;

	switch (t->kind) {
	case TOKEN_NIL:
		return value_null(a);
	case TOKEN_BOOL:
		return value_bool(a, t->boolean);
	case TOKEN_INT:
		return value_int(a, t->integer);
	case TOKEN_UINT:
		return value_uint(a, t->natural);
	case TOKEN_FLOAT:
		return value_float(a, t->real);
	case TOKEN_FLOAT32:
		return value_float32(a, t->real32);
	case TOKEN_EXT:
		if (t->ext == FLAX_COMPLEX)
			return complex_value(x);
		/* fall through */
	default:
		s = cursor_str(&x->c, a, t->n);
		return !s.ptr ? NULL : t->kind == TOKEN_STR ? value_str(a, s) : value_bytes(a, s);
	}
}

static int plain_leaf(struct reader *x, struct str name, const struct token *t)
{
	struct value *v = t->kind == TOKEN_MAP ? value_map(x->m->arena) : t->kind == TOKEN_LIST ? value_list(x->m->arena)
												 : leaf_value(x, t);

	if (cursor_failed(&x->c))
		return cursor_failed(&x->c);
	if (!x->m->meta.values)
		x->m->meta.values = value_map(x->m->arena);
	return v && value_set(x->m->arena, x->m->meta.values, name, v) == 0 ? 0 : no_memory(x);
}

/* ---- containers ---- */

static int add_map(struct reader *x, struct str path, const struct token *t, uint32_t *index)
{
	if (x->f->map_count == x->map_cap) {
		uint32_t cap = x->map_cap ? x->map_cap * 2 : 64;
		struct flax_map *grown = arena_array(x->m->arena, cap, sizeof(*grown));

		if (!grown)
			return no_memory(x);
		if (x->f->map_count)
			memcpy(grown, x->f->maps, x->f->map_count * sizeof(*grown));
		x->f->maps = grown;
		x->map_cap = cap;
	}
	*index = x->f->map_count++;
	x->f->maps[*index] = (struct flax_map){path, t->at, x->c.pos - t->at, 0, (uint32_t)t->n};
	return 0;
}

static int push(struct reader *x, struct str path, const struct token *t, uint64_t end)
{
	struct frame *f;

	if (x->depth == LIMIT_NESTING)
		return cursor_fail(&x->c, EIO, "objects are nested deeper than %d", LIMIT_NESTING);
	f = &x->stack[x->depth++];
	*f = (struct frame){.left = t->n, .path = path, .is_map = t->kind == TOKEN_MAP, .map = MODEL_NONE, .end = end};
	return f->is_map ? add_map(x, path, t, &f->map) : 0;
}

static int read_value(struct reader *x, struct str name, struct flax_place place)
{
	struct token t;
	bool chunked = false;
	int r = read_token(&x->c, &t);

	if (r < 0)
		return r;
	place.value = t.at;
	if (t.kind == TOKEN_MAP && t.n == 3)
		r = is_chunked(x, &chunked);
	if (r < 0)
		return r;
	if (chunked)
		return chunked_leaf(x, name, &place);
	if ((t.kind == TOKEN_MAP || t.kind == TOKEN_LIST) && t.n > 0)
		return push(x, name, &t, 0);
	if (t.kind == TOKEN_EXT && (t.ext == FLAX_NDARRAY || t.ext == FLAX_SCALAR))
		return array_leaf(x, name, &t, &place);
	if (t.kind == TOKEN_EXT && t.ext == FLAX_TUPLE) {
		uint64_t end = x->c.pos + t.n;

		r = read_token(&x->c, &t);
		if (r == 0 && t.kind != TOKEN_LIST)
			r = cursor_fail(&x->c, EIO, "a tuple is no list");
		return r < 0 ? r : push(x, name, &t, end);
	}
	if ((t.kind == TOKEN_BIN || t.kind == TOKEN_STR || t.kind == TOKEN_EXT) && t.n >= BLOB_MIN)
		return blob_leaf(x, name, &t, &place);
	return plain_leaf(x, name, &t);
}

static int read_entry(struct reader *x, struct frame *f)
{
	struct flax_place place = {.map = f->map};
	struct str key;
	int r = 0;

	f->left--;
	if (f->is_map) {
		place.key = x->c.pos;
		r = read_key(x, &key);
		place.key_size = x->c.pos - place.key;
	} else {
		key = arena_printf(x->m->arena, "%llu", (unsigned long long)f->index++);
		r = key.ptr ? 0 : no_memory(x);
	}
	if (r < 0)
		return r;
	key = join(x, f->path, key);
	return key.ptr ? read_value(x, key, place) : no_memory(x);
}

static int pop(struct reader *x)
{
	const struct frame *f = &x->stack[--x->depth];

	if (f->map != MODEL_NONE)
		x->f->maps[f->map].end = x->c.pos;
	if (f->end && f->end != x->c.pos)
		return cursor_fail(&x->c, EIO, "a tuple ends before its object does");
	return 0;
}

static int walk(struct reader *x)
{
	struct token t;
	int r = read_token(&x->c, &t);

	if (r == 0 && t.kind != TOKEN_MAP)
		r = cursor_fail(&x->c, EIO, "the outermost object is no map");
	if (r == 0)
		r = push(x, STR(""), &t, 0);
	while (r == 0 && x->depth > 0) {
		struct frame *f = &x->stack[x->depth - 1];

		r = f->left ? read_entry(x, f) : pop(x);
	}
	if (r == 0 && cursor_left(&x->c))
		r = cursor_fail(&x->c, EIO, "%llu bytes follow the object", (unsigned long long)cursor_left(&x->c));
	return r;
}

static int flax_parse(struct input *in, struct model *m, struct error *e)
{
	struct reader *x = calloc(1, sizeof(*x));
	int r = x ? model_add_source(m, in->src, e) : error_set(e, ENOMEM, "out of memory");

	if (r < 0) {
		free(x);
		return r;
	}
	x->m = m;
	x->e = e;
	x->f = arena_alloc(m->arena, sizeof(*x->f));
	m->priv = x->f;
	if (!x->f) {
		r = no_memory(x);
	} else {
		x->f->src = in->src;
		cursor_init(&x->c, in->src, 0, source_size(in->src), e);
		r = walk(x);
		cursor_release(&x->c);
	}
	free(x);
	return r;
}

/* No magic: a map with a string as its first key, and an array of numbers soon. */
static int flax_probe(const struct input *in, struct error *e)
{
	struct error ignored = {0};
	struct cursor c;
	struct token t;
	bool array = false, sound;

	(void)e;
	if (!in->src)
		return 0;
	cursor_init(&c, in->src, 0, source_size(in->src), &ignored);
	sound = read_token(&c, &t) == 0 && t.kind == TOKEN_MAP && t.n > 0 && read_token(&c, &t) == 0 && t.kind == TOKEN_STR;
	for (int i = 0; sound && !array && i < 256; i++) {
		if (t.kind == TOKEN_STR || t.kind == TOKEN_BIN)
			cursor_skip(&c, t.n);
		else if (t.kind == TOKEN_EXT) {
			size_t n;
			const unsigned char *body = cursor_peek(&c, 1, &n);

			array = body && n && t.ext >= 1 && t.ext <= 3 && *body == (t.ext == FLAX_COMPLEX ? 0x92 : 0x93);
			cursor_skip(&c, t.n);
		}
		if (!cursor_left(&c))
			break;
		if (read_token(&c, &t) < 0) { /* cut off in an array, it is still one */
			array = t.kind == TOKEN_EXT && t.ext >= 1 && t.ext <= 3;
			break;
		}
	}
	cursor_release(&c);
	return array ? 24 : 0;
}

static bool flax_holds(enum dtype d)
{
	return d != DTYPE_NONE && d != DTYPE_STRING && d != DTYPE_FLOAT128;
}

static const char *const extensions[] = {".msgpack", ".flax", NULL};

const struct format format_flax = {
	.name = "flax",
	.title = "Flax MessagePack",
	.extensions = extensions,
	.can = CAN_VALUES | CAN_RESHAPE | CAN_RETYPE | CAN_RENAME | CAN_ADD | CAN_REMOVE | CAN_METADATA | CAN_CREATE,
	.probe = flax_probe,
	.parse = flax_parse,
	.check_edit = flax_check_edit,
	.plan = flax_plan,
	.holds = flax_holds,
};
