/* SPDX-License-Identifier: MIT */
/*
 * GGUF versions 1 to 3 (ggml's gguf.md and gguf.cpp):
 *
 *	"GGUF" · u32 version · u64 tensors · u64 keys · keys · tensor infos · padding · data
 *	key    string · u32 type · value           string = u64 length + bytes, array = u32 type · u64 count · elements
 *	info   string · u32 rank · u64 dims[rank], the fastest first · u32 ggml type · u64 offset in the data
 *
 * Version 1 has u32 for counts, lengths and dims. In files of the other byte order all but the magic is swapped. Keys
 * are the properties; those that mean the same as a key of "model" stand there.
 */
#include "parsers/gguf.h"

#include "parsers/core/check.h"
#include "parsers/core/cursor.h"
#include "parsers/core/limits.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_ARRAY (1ull << 30) /* elements, as gguf.cpp limits them */

const char *const gguf_model_keys[][2] = {
	{"name", "general.name"},
	{"description", "general.description"},
	{"author", "general.author"},
	{"license", "general.license"},
	{NULL, NULL},
};

struct reader {
	struct cursor c;
	struct model *m;
	struct error *e;
	struct gguf_file *f;
	uint64_t tensors;
};

static int no_memory(struct reader *x)
{
	return error_set(x->e, ENOMEM, "out of memory for the header");
}

/* ---- numbers in the file's byte order ---- */

static uint64_t number(struct reader *x, unsigned bytes)
{
	struct cursor *c = &x->c;

	if (bytes == 1)
		return cursor_u8(c);
	if (bytes == 2)
		return x->f->big ? cursor_u16be(c) : cursor_u16le(c);
	if (bytes == 4)
		return x->f->big ? cursor_u32be(c) : cursor_u32le(c);
	return x->f->big ? cursor_u64be(c) : cursor_u64le(c);
}

/* a count or length: 32 bits in version 1 */
static uint64_t count_of(struct reader *x)
{
	return number(x, x->f->version == 1 ? 4 : 8);
}

static struct str string(struct reader *x)
{
	uint64_t n = count_of(x);

	if (!cursor_failed(&x->c) && n > cursor_left(&x->c))
		cursor_fail(&x->c, EIO, "a string of %llu bytes, %llu are left", (unsigned long long)n,
			(unsigned long long)cursor_left(&x->c));
	return cursor_str(&x->c, x->m->arena, n);
}

/* ---- values ---- */

static const uint8_t sizes[GGUF_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

static struct value *scalar(struct reader *x, enum gguf_type type)
{
	struct arena *a = x->m->arena;
	uint64_t bits;
	uint32_t low;
	double real;
	float real32;

	if (type == GGUF_STRING) {
		struct str s = string(x);

		return s.ptr ? value_str(a, s) : NULL;
	}
	bits = number(x, sizes[type]);
	switch (type) {
	case GGUF_I8:
		return value_int(a, (int8_t)bits);
	case GGUF_I16:
		return value_int(a, (int16_t)bits);
	case GGUF_I32:
		return value_int(a, (int32_t)bits);
	case GGUF_I64:
		return value_int(a, (int64_t)bits);
	case GGUF_BOOL:
		return value_bool(a, bits != 0);
	case GGUF_F32:
		low = (uint32_t)bits;
		memcpy(&real32, &low, sizeof(real32));
		return value_float32(a, real32);
	case GGUF_F64:
		memcpy(&real, &bits, sizeof(real));
		return value_float(a, real);
	default:
		return value_uint(a, bits);
	}
}

/* Arrays of arrays are in the specification, and no loader takes them; here one level is enough to say so. */
static struct value *array(struct reader *x, struct gguf_key *k)
{
	struct value *list = value_list(x->m->arena);
	uint64_t type = number(x, 4), n = count_of(x);
	uint64_t least = type < GGUF_TYPES && type != GGUF_STRING ? sizes[type] : x->f->version == 1 ? 4 : 8;

	if (cursor_failed(&x->c))
		return NULL;
	if (type >= GGUF_TYPES || type == GGUF_ARRAY) {
		cursor_fail(&x->c, EIO, "key '%.*s' is an array of %s (type %llu)", STR_ARG(k->name),
			type == GGUF_ARRAY ? "arrays, which are not read" : "a type that is unknown",
			(unsigned long long)type);
		return NULL;
	}
	if (n > MAX_ARRAY || n > cursor_left(&x->c) / least) {
		cursor_fail(&x->c, EIO, "key '%.*s' is an array of %llu elements, %llu bytes are left", STR_ARG(k->name),
			(unsigned long long)n, (unsigned long long)cursor_left(&x->c));
		return NULL;
	}
	k->element = (enum gguf_type)type;
	for (uint64_t i = 0; i < n && !cursor_failed(&x->c); i++)
		if (value_append(x->m->arena, list, scalar(x, k->element)) < 0)
			return NULL;
	return list;
}

static int read_key(struct reader *x, struct value *properties)
{
	struct gguf_key *k = &x->f->keys[x->f->key_count];
	struct value *v;
	uint64_t type;

	k->offset = x->c.pos;
	k->name = string(x);
	type = number(x, 4);
	if (cursor_failed(&x->c))
		return cursor_failed(&x->c);
	if (type >= GGUF_TYPES)
		return cursor_fail(&x->c, EIO, "key '%.*s' has type %llu, expected 0 to %d", STR_ARG(k->name),
			(unsigned long long)type, GGUF_TYPES - 1);
	k->type = (enum gguf_type)type;
	k->value = x->c.pos;
	v = k->type == GGUF_ARRAY ? array(x, k) : scalar(x, k->type);
	if (cursor_failed(&x->c))
		return cursor_failed(&x->c);
	k->size = x->c.pos - k->offset;
	if (!v || value_set(x->m->arena, properties, k->name, v) < 0)
		return no_memory(x);
	if (str_is(k->name, "general.alignment")) {
		if (k->type != GGUF_U32 || v->integer <= 0 || v->integer & (v->integer - 1))
			return cursor_fail(&x->c, EIO, "general.alignment is no u32 that is a power of two");
		x->f->alignment = (uint32_t)v->integer;
	}
	x->f->key_count++;
	return 0;
}

static int str_order(const void *pa, const void *pb)
{
	const struct str *const *a = pa, *const *b = pb;

	return str_cmp(**a, **b);
}

/* The first name that is there twice; NULL = none. -ENOMEM by *r. */
static const struct str *find_twice(const char *first, uint64_t n, size_t stride, int *r)
{
	const struct str **list = calloc(n ? n : 1, sizeof(struct str *)), *twice = NULL;

	*r = list ? 0 : -ENOMEM;
	for (uint64_t i = 0; list && i < n; i++)
		list[i] = (const struct str *)(const void *)(first + i * stride);
	if (list)
		qsort(list, n, sizeof(*list), str_order);
	for (uint64_t i = 1; list && i < n && !twice; i++)
		twice = str_eq(*list[i - 1], *list[i]) ? list[i] : NULL;
	free(list);
	return twice;
}

static int read_keys(struct reader *x, uint64_t n)
{
	struct value *properties = value_map(x->m->arena);
	const struct str *twice;
	int r = 0;

	/* the least that a key takes: its name's length, type and a byte */
	if (n > cursor_left(&x->c) / (x->f->version == 1 ? 9 : 13))
		return cursor_fail(&x->c, EIO, "%llu keys, %llu bytes are left", (unsigned long long)n,
			(unsigned long long)cursor_left(&x->c));
	x->f->keys = arena_array(x->m->arena, n, sizeof(*x->f->keys));
	if (!x->f->keys || !properties)
		return no_memory(x);
	for (uint64_t i = 0; r == 0 && i < n; i++)
		r = read_key(x, properties);
	if (r < 0)
		return r;
	twice = find_twice((const char *)x->f->keys, n, sizeof(*x->f->keys), &r);
	if (r < 0)
		return no_memory(x);
	if (twice)
		return error_set(x->e, EIO, "key '%.*s' is there twice", STR_ARG(*twice));
	if (!x->m->meta.properties)
		x->m->meta.properties = properties;
	return 0;
}

/* ---- tensors ---- */

static int give_real(const struct tensor *t, struct extent *out, struct error *e)
{
	const struct gguf_place *place = t->priv;
	struct codec *c = codec_ggml(&t->data, &ggml_types[place->type], t->count);

	if (!c)
		return error_set(e, ENOMEM, "out of memory for decoding");
	*out = extent_codec(c);
	return 0;
}

static int set_type(struct reader *x, struct tensor *t, const struct gguf_place *place, uint64_t offset)
{
	const struct ggml_type *type = place->type < ggml_type_count ? &ggml_types[place->type] : NULL;
	uint64_t row = t->rank ? t->shape[t->rank - 1] : 1, bytes;
	struct str number;

	if (!type || !type->name) {
		number = arena_printf(x->m->arena, "type %u", place->type);
		if (!number.ptr)
			return no_memory(x);
		t->stored_type = number.ptr;
		tensor_damage(x->m, t, "ggml type %u is unknown", place->type);
		return 0;
	}
	t->stored_type = type->name;
	t->dtype = type->dtype;
	t->flags = x->f->big ? TENSOR_BIG_ENDIAN : 0;
	if (row % type->block)
		return error_set(x->e, EIO, "tensor '%.*s' has rows of %llu elements, blocks of %s have %u",
			STR_ARG(t->name), (unsigned long long)row, type->name, type->block);
	if (ckd_mul(&bytes, t->count / type->block, (uint64_t)type->block_bytes) || bytes > INT64_MAX)
		return error_set(x->e, EIO, "size of tensor '%.*s' overflows", STR_ARG(t->name));
	t->data = extent_source(x->f->src, offset, bytes);
	/* writers disagree on what is swapped inside blocks of big-endian files */
	if (type->decode && !x->f->big)
		t->real = give_real;
	if (offset > source_size(x->f->src) || bytes > source_size(x->f->src) - offset)
		tensor_damage(x->m, t, "data at %llu, size %llu, ends outside the %llu bytes of the file",
			(unsigned long long)offset, (unsigned long long)bytes,
			(unsigned long long)source_size(x->f->src));
	return 0;
}

static int read_info(struct reader *x, uint32_t index, struct str shard)
{
	struct tensor *t = model_add_tensor(x->m, x->e);
	struct gguf_place *place = arena_alloc(x->m->arena, sizeof(*place));
	uint64_t dims[LIMIT_RANK] = {0}, shape[LIMIT_RANK];
	uint64_t rank;

	if (!t || !place)
		return no_memory(x);
	t->name = string(x);
	t->shard = shard;
	t->priv = place;
	rank = number(x, 4);
	if (!cursor_failed(&x->c) && rank > LIMIT_RANK)
		return cursor_fail(&x->c, EIO, "tensor '%.*s' has rank %llu, at most %d is expected", STR_ARG(t->name),
			(unsigned long long)rank, LIMIT_RANK);
	for (uint64_t i = 0; i < rank && !cursor_failed(&x->c); i++)
		dims[i] = count_of(x);
	place->index = index;
	place->type = (uint32_t)number(x, 4);
	place->offset = number(x, 8);
	if (cursor_failed(&x->c))
		return cursor_failed(&x->c);
	for (uint64_t i = 0; i < rank; i++)
		shape[i] = dims[rank - 1 - i];
	return tensor_set_shape(x->m, t, shape, (uint32_t)rank, x->e);
}

static int offset_order(const void *pa, const void *pb)
{
	const struct tensor *const *a = pa, *const *b = pb;
	uint64_t oa = (*a)->data.offset, ob = (*b)->data.offset;

	return oa != ob ? (oa < ob ? -1 : 1) : ((*a)->data.size > (*b)->data.size) - ((*a)->data.size < (*b)->data.size);
}

static int check_overlap(struct reader *x, uint32_t first)
{
	uint32_t n = x->m->tensor_count - first;
	const struct tensor **list = calloc(n ? n : 1, sizeof(struct tensor *));
	int r = list ? 0 : no_memory(x);

	for (uint32_t i = 0; r == 0 && i < n; i++)
		list[i] = &x->m->tensors[first + i];
	if (r == 0)
		qsort(list, n, sizeof(*list), offset_order);
	for (uint32_t i = 1; r == 0 && i < n; i++)
		if (list[i - 1]->data.kind == EXTENT_SOURCE && list[i]->data.kind == EXTENT_SOURCE &&
			list[i]->data.size && list[i - 1]->data.offset + list[i - 1]->data.size > list[i]->data.offset)
			r = error_set(x->e, EIO, "tensors '%.*s' and '%.*s' overlap", STR_ARG(list[i - 1]->name),
				STR_ARG(list[i]->name));
	free(list);
	return r;
}

static int read_tensors(struct reader *x, struct str shard)
{
	uint32_t first = x->m->tensor_count;
	uint64_t align = x->f->alignment;
	const struct str *twice;
	int r = 0;

	x->f->infos = x->c.pos;
	if (x->tensors > cursor_left(&x->c) / (x->f->version == 1 ? 20 : 24) || x->tensors > LIMIT_TENSORS)
		return cursor_fail(&x->c, EIO, "%llu tensors, %llu bytes are left", (unsigned long long)x->tensors,
			(unsigned long long)cursor_left(&x->c));
	for (uint64_t i = 0; r == 0 && i < x->tensors; i++)
		r = read_info(x, (uint32_t)i, shard);
	x->f->infos_end = x->c.pos;
	x->f->data = (x->c.pos + align - 1) / align * align;
	for (uint32_t i = first; r == 0 && i < x->m->tensor_count; i++) {
		struct tensor *t = &x->m->tensors[i];
		const struct gguf_place *place = t->priv;
		uint64_t at;

		if (place->offset % align)
			return error_set(x->e, EIO, "tensor '%.*s' lies at %llu, no multiple of %llu", STR_ARG(t->name),
				(unsigned long long)place->offset, (unsigned long long)align);
		if (ckd_add(&at, x->f->data, place->offset))
			at = UINT64_MAX;
		r = set_type(x, t, place, at);
	}
	if (r < 0)
		return r;
	if (!x->m->tensor_count)
		return 0;
	twice = find_twice((const char *)&x->m->tensors[0].name, x->m->tensor_count,
		sizeof(*x->m->tensors), &r);

	if (r < 0)
		return no_memory(x);
	if (twice)
		return error_set(x->e, EIO, "tensor '%.*s' is there twice", STR_ARG(*twice));
	return check_overlap(x, first);
}

/* One file from its first byte on. */
static int read_file(struct reader *x, struct source *src, struct str shard)
{
	unsigned char magic[4];
	uint64_t keys;
	uint32_t version;
	int r;

	x->f = arena_alloc(x->m->arena, sizeof(*x->f));
	if (!x->f)
		return no_memory(x);
	x->f->src = src;
	x->f->alignment = 32;
	x->f->version = 3;
	cursor_init(&x->c, src, 0, source_size(src), x->e);
	cursor_bytes(&x->c, magic, 4);
	version = (uint32_t)number(x, 4);
	if (version && !(version & 0xffff)) {
		x->f->big = true;
		version = __builtin_bswap32(version);
	}
	x->f->version = version;
	if (!cursor_failed(&x->c) && memcmp(magic, "GGUF", 4) != 0)
		cursor_fail(&x->c, EIO, "the file does not begin with GGUF");
	if (!cursor_failed(&x->c) && (version < 1 || version > 3))
		cursor_fail(&x->c, EIO, "version %u, expected 1 to 3", version);
	x->tensors = count_of(x);
	keys = count_of(x);
	r = cursor_failed(&x->c);
	if (r == 0)
		r = read_keys(x, keys);
	if (r == 0)
		r = read_tensors(x, shard);
	cursor_release(&x->c);
	return r;
}

/* ---- files in parts: PREFIX-00001-of-00003.gguf ---- */

enum { PART_SUFFIX = sizeof("-00001-of-00003.gguf") - 1 };

static bool part_numbers(struct str base, uint32_t *no, uint32_t *of)
{
	char text[PART_SUFFIX + 1];
	int used = 0;

	if (base.len <= PART_SUFFIX)
		return false;
	memcpy(text, base.ptr + base.len - PART_SUFFIX, PART_SUFFIX);
	text[PART_SUFFIX] = '\0';
	return sscanf(text, "-%5u-of-%5u.gguf%n", no, of, &used) == 2 && used == PART_SUFFIX && *no >= 1 && *no <= *of;
}

static int read_parts(struct reader *x, struct input *in, struct gguf_file *first, uint32_t of)
{
	int r = 0;

	for (uint32_t i = 2; r == 0 && i <= of; i++) {
		struct str name = arena_printf(x->m->arena, "%.*s-%05u-of-%05u.gguf", (int)(in->base.len - PART_SUFFIX),
			in->base.ptr, i, of);
		struct source *src;

		if (!name.ptr)
			return no_memory(x);
		r = input_companion(in, name, 0, &src, x->e);
		if (r < 0)
			return r;
		r = model_add_source(x->m, src, x->e);
		source_unref(src);
		if (r == 0)
			r = read_file(x, src, name);
	}
	first->split = true;
	return r;
}

/* ---- metadata ---- */

static int take_model_keys(struct reader *x)
{
	struct metadata *meta = &x->m->meta;
	struct value *props = meta->properties;

	for (size_t k = 0; gguf_model_keys[k][0]; k++)
		for (size_t i = 0; props && i < props->map.count; i++) {
			struct member *p = &props->map.members[i];

			if (!str_is(p->key, gguf_model_keys[k][1]) || p->value->kind != VALUE_STRING)
				continue;
			if (!meta->model)
				meta->model = value_map(x->m->arena);
			if (value_set(x->m->arena, meta->model, str_from(gguf_model_keys[k][0]), p->value) < 0)
				return no_memory(x);
			memmove(p, p + 1, (props->map.count - i - 1) * sizeof(*p));
			props->map.count--;
			break;
		}
	return 0;
}

static int gguf_parse(struct input *in, struct model *m, struct error *e)
{
	struct reader x = {.m = m, .e = e};
	struct gguf_file *first;
	uint32_t no, of;
	int r = model_add_source(m, in->src, e);

	if (r == 0)
		r = read_file(&x, in->src, STR(""));
	first = x.f;
	m->priv = first;
	if (r == 0 && part_numbers(in->base, &no, &of) && of > 1) {
		if (no != 1)
			return error_set(e, EINVAL, "this is part %u of %u: open the first one", no, of);
		r = read_parts(&x, in, first, of);
	}
	if (r < 0)
		return r;
	m->format_version = arena_printf(m->arena, "v%u", first->version);
	m->format_info = value_map(m->arena);
	if (!m->format_version.ptr ||
		value_set(m->arena, m->format_info, STR("byte_order"),
			value_cstr(m->arena, first->big ? "big" : "little")) < 0 ||
		value_set(m->arena, m->format_info, STR("alignment"), value_int(m->arena, first->alignment)) < 0)
		return no_memory(&x);
	return take_model_keys(&x);
}

static bool gguf_holds(enum dtype d)
{
	return gguf_type_of(d) != UINT32_MAX;
}

static const struct magic magics[] = {{0, 4, "GGUF"}};
static const char *const extensions[] = {".gguf", NULL};
static const char *const model_keys[] = {"name", "description", "author", "license", NULL};

const struct format format_gguf = {
	.name = "gguf",
	.title = "GGUF",
	.extensions = extensions,
	.magics = magics,
	.magic_count = 1,
	.can = CAN_VALUES | CAN_RESHAPE | CAN_RETYPE | CAN_RENAME | CAN_ADD | CAN_REMOVE | CAN_METADATA | CAN_CREATE,
	.parse = gguf_parse,
	.check_edit = gguf_check_edit,
	.plan = gguf_plan,
	.keeps_properties = true,
	.model_keys = model_keys,
	.holds = gguf_holds,
};
