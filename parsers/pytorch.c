/* SPDX-License-Identifier: MIT */
/*
 * PyTorch: zip archives of torch.save, torch 1.6 and later.
 *
 *	PREFIX/data.pkl     a pickle (container/pickle.h) of dicts, modules, tensors that name storages by key
 *	PREFIX/data/KEY     the bytes of a storage, served from where they lie
 *	PREFIX/byteorder    "little" or "big"; absent = little
 *	PREFIX/version      "3"
 *
 * Keys of nested containers are joined by '/'. A module of whatever class is named as its state_dict() would be.
 * What is no tensor goes to metadata "values". Nothing in the pickle is ever called.
 */
#include "parsers/format.h"

#include "parsers/codec/convert.h"
#include "parsers/container/pickle.h"
#include "parsers/container/zip.h"
#include "parsers/core/check.h"
#include "parsers/core/limits.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

/* nodes seen while walking, shared ones each time: a pickle may multiply itself by references */
#define VISITS_MAX (1u << 22)
#define WRAPPERS_MAX 16

struct storage {
	struct zip_member *member;
	struct extent content;
	enum dtype first; /* of the first tensor that names it: decides for all */
	uint32_t tensor; /* first tensor on it, MODEL_NONE */
	bool opened;
	struct str problem;
};

struct torch {
	struct model *m;
	struct zip zip;
	struct str prefix;
	bool big;
	struct storage *storages; /* one for each member, in order of names */
	uint64_t visits;
	struct value *values;
	struct error *e;
};

static int no_memory(struct error *e)
{
	return error_set(e, ENOMEM, "out of memory for a PyTorch file");
}

static bool zip_magic(const struct input *in)
{
	char head[4];

	return in->src && source_size(in->src) >= 22 && source_read(in->src, 0, head, 4, NULL) == 0 &&
	       memcmp(head, "PK\3\4", 4) == 0 && zip_is(in->src);
}

/* The name of a member behind the prefix, which ends with the first '/'. */
static struct str inside(struct str name, struct str prefix)
{
	if (!str_starts(name, prefix))
		return (struct str){0};
	return (struct str){name.ptr + prefix.len, name.len - prefix.len};
}

/* Looks for PREFIX/data.pkl and PREFIX/version, and that it is no TorchScript. */
static bool find_prefix(const struct zip *z, struct str *prefix)
{
	bool version = false, found = false;

	for (size_t i = 0; i < z->count && !found; i++) {
		struct str name = z->members[i].name;

		found = str_ends(name, STR("/data.pkl")) && memchr(name.ptr, '/', name.len) == name.ptr + name.len - 9;
		*prefix = (struct str){name.ptr, name.len - (found ? 8 : 0)};
	}
	for (size_t i = 0; found && i < z->count; i++) {
		struct str rest = inside(z->members[i].name, *prefix);

		version = version || str_is(rest, "version") || str_is(rest, ".data/version");
		if (str_is(rest, "constants.pkl"))
			return false;
	}
	return found && version;
}

static int torch_probe(const struct input *in, struct error *e)
{
	struct str prefix;
	struct arena *a;
	struct zip z;
	int bits = 0;

	(void)e;
	if (!zip_magic(in))
		return 0;
	a = arena_new(LIMIT_MODEL_MEMORY);
	if (a && zip_read(in->src, a, &z, NULL) == 0 && find_prefix(&z, &prefix))
		bits = 96;
	arena_free(a);
	return bits;
}

/* ---- storages ---- */

static int by_name(const void *x, const void *y)
{
	return str_cmp(((const struct storage *)x)->member->name, ((const struct storage *)y)->member->name);
}

static struct storage *find_member(struct torch *t, struct str rest)
{
	struct str name = arena_printf(t->m->arena, "%.*s%.*s", (int)t->prefix.len, t->prefix.ptr, (int)rest.len,
		rest.ptr ? rest.ptr : "");
	struct zip_member key = {.name = name};
	struct storage want = {.member = &key};

	if (!name.ptr || rest.len > UINT16_MAX)
		return NULL;
	return bsearch(&want, t->storages, t->zip.count, sizeof(want), by_name);
}

static int open_member(struct torch *t, struct storage *s)
{
	struct error why = {0};
	int r;

	if (s->opened)
		return 0;
	s->opened = true;
	r = zip_content(&t->zip, s->member, &s->content, &why);
	if (r == -ENOMEM)
		return no_memory(t->e);
	if (r < 0) {
		s->content = extent_zero(0);
		s->problem = arena_printf(t->m->arena, "%s", why.text);
	}
	return 0;
}

static int read_member(struct torch *t, struct storage *s, struct str *out)
{
	char *text;
	int r = open_member(t, s);

	if (r < 0)
		return r;
	if (s->problem.len || s->content.size > LIMIT_METADATA)
		return error_set(t->e, EIO, "member '%.*s' cannot be read: %s", STR_ARG(s->member->name),
			s->problem.len ? s->problem.ptr : "too large");
	text = arena_alloc(t->m->arena, (size_t)s->content.size + 1);
	*out = (struct str){text, (size_t)s->content.size};
	return text ? extent_read(&s->content, 0, text, out->len, t->e) : no_memory(t->e);
}

/* ---- tensors ---- */

static const struct {
	const char *storage, *name;
	enum dtype d;
} types[] = {
	{"FloatStorage", "float32", DTYPE_FLOAT32}, {"DoubleStorage", "float64", DTYPE_FLOAT64},
	{"HalfStorage", "float16", DTYPE_FLOAT16}, {"BFloat16Storage", "bfloat16", DTYPE_BFLOAT16},
	{"ByteStorage", "uint8", DTYPE_UINT8}, {"CharStorage", "int8", DTYPE_INT8},
	{"ShortStorage", "int16", DTYPE_INT16}, {"IntStorage", "int32", DTYPE_INT32},
	{"LongStorage", "int64", DTYPE_INT64}, {"BoolStorage", "bool", DTYPE_BOOL},
	{"ComplexFloatStorage", "complex64", DTYPE_COMPLEX64}, {"ComplexDoubleStorage", "complex128", DTYPE_COMPLEX128},
	{"QInt8Storage", "qint8", DTYPE_INT8}, {"QUInt8Storage", "quint8", DTYPE_UINT8},
	{"QInt32Storage", "qint32", DTYPE_INT32}, {"UntypedStorage", "", DTYPE_UINT8},
	{NULL, "uint16", DTYPE_UINT16}, {NULL, "uint32", DTYPE_UINT32}, {NULL, "uint64", DTYPE_UINT64},
	{NULL, "complex32", DTYPE_COMPLEX32}, {NULL, "float8_e4m3fn", DTYPE_FLOAT8_E4M3FN},
	{NULL, "float8_e4m3fnuz", DTYPE_FLOAT8_E4M3FNUZ}, {NULL, "float8_e5m2", DTYPE_FLOAT8_E5M2},
	{NULL, "float8_e5m2fnuz", DTYPE_FLOAT8_E5M2FNUZ}, {NULL, "float8_e8m0fnu", DTYPE_FLOAT8_E8M0FNU},
	{NULL, "float4_e2m1fn_x2", DTYPE_FLOAT4_E2M1}, {NULL, "bits8", DTYPE_UINT8}, {NULL, "bits16", DTYPE_UINT16},
};

/* The dtype of a global "torch.float32" or "torch.FloatStorage". */
static enum dtype type_of(const struct pickle *global, bool storage)
{
	struct str name = global && global->kind == PICKLE_GLOBAL ? global->text : (struct str){0};

	for (size_t i = name.len; i-- > 0;)
		if (name.ptr[i] == '.') {
			name = (struct str){name.ptr + i + 1, name.len - i - 1};
			break;
		}
	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
		if (name.len && str_is(name, storage ? types[i].storage : types[i].name))
			return types[i].d;
	return DTYPE_NONE;
}

struct call {
	struct str func;
	const struct pickle *args;
};

/* Takes off parameters and subclasses; false: no tensor. */
static bool tensor_call(const struct pickle *p, struct call *c)
{
	for (int i = 0; p && i < WRAPPERS_MAX; i++) {
		if (p->kind != PICKLE_OBJECT || !p->callable || p->callable->kind != PICKLE_GLOBAL)
			return false;
		*c = (struct call){p->callable->text, p->args};
		if (str_is(c->func, "torch._tensor._rebuild_from_type_v2") ||
			str_is(c->func, "torch.tensor._rebuild_from_type_v2")) {
			const struct pickle *func = pickle_item(p->args, 0);

			if (!func || func->kind != PICKLE_GLOBAL)
				return false;
			*c = (struct call){func->text, pickle_item(p->args, 2)};
		}
		if (str_is(c->func, "torch._utils._rebuild_tensor") || str_is(c->func, "torch._utils._rebuild_tensor_v2") ||
			str_is(c->func, "torch._utils._rebuild_tensor_v3") ||
			str_is(c->func, "torch._utils._rebuild_qtensor"))
			return true;
		if (!str_is(c->func, "torch._utils._rebuild_parameter") &&
			!str_is(c->func, "torch._utils._rebuild_parameter_with_state") &&
			!str_is(c->func, "torch.nn.parameter.Parameter"))
			return false;
		p = pickle_item(c->args, 0);
	}
	return false;
}

struct layout {
	uint32_t rank;
	uint64_t shape[LIMIT_RANK], first;
	int64_t strides[LIMIT_RANK];
	uint64_t count;
	bool contiguous;
};

/* NULL, or what is wrong. */
static const char *take_layout(const struct pickle *args, struct layout *l)
{
	const struct pickle *first = pickle_item(args, 1), *size = pickle_item(args, 2), *stride = pickle_item(args, 3);
	uint64_t next = 1;

	if (pickle_is_call(size, "torch.Size"))
		size = pickle_item(size->args, 0);
	if (!first || first->kind != PICKLE_INT || first->integer < 0 || !size || !stride || size->count != stride->count ||
		size->count > LIMIT_RANK)
		return "offset, size or stride are none";
	l->rank = (uint32_t)size->count;
	l->first = (uint64_t)first->integer;
	for (uint32_t i = 0; i < l->rank; i++) {
		const struct pickle *n = pickle_item(size, i), *s = pickle_item(stride, i);

		if (!n || !s || n->kind != PICKLE_INT || s->kind != PICKLE_INT || n->integer < 0 || s->integer < 0)
			return "a size or stride is no number from 0 on";
		l->shape[i] = (uint64_t)n->integer;
		l->strides[i] = s->integer;
	}
	if (shape_count(l->shape, l->rank, &l->count) < 0)
		return "more elements than 63 bits count";
	l->contiguous = true;
	for (uint32_t i = l->rank; i-- > 0 && l->count;) {
		if (l->shape[i] != 1 && (uint64_t)l->strides[i] != next)
			l->contiguous = false;
		next *= l->shape[i]; /* at most count */
	}
	return NULL;
}

static bool fits(const struct layout *l, uint64_t elements)
{
	uint64_t last = l->first, far;

	for (uint32_t i = 0; l->count && i < l->rank; i++)
		if (ckd_mul(&far, l->shape[i] - 1, (uint64_t)l->strides[i]) || ckd_add(&last, last, far))
			return false;
	return !l->count || last < elements;
}

static int place(struct torch *t, struct tensor *x, const struct layout *l, struct storage *s, uint32_t elem)
{
	struct extent data;

	if (!l->count) {
		x->data = extent_zero(0);
		return 0;
	}
	if (l->contiguous) {
		data = extent_slice(s->content, l->first * elem, l->count * elem);
		extent_ref(&data);
	} else {
		struct codec *c = codec_gather(&s->content, elem, l->rank, l->shape, l->strides, l->first);

		if (!c)
			return no_memory(t->e);
		data = extent_codec(c);
	}
	x->data = data;
	if (data.kind == EXTENT_SOURCE)
		source_unref(data.src); /* model_finish takes its own */
	return 0;
}

/* dtype_info(d)->block_bytes holds for types of one element per block; float4 counts bytes. */
static uint32_t elem_bytes(enum dtype d)
{
	return d == DTYPE_FLOAT4_E2M1 ? 1 : dtype_info(d)->block_bytes;
}

static int fill_storage(struct torch *t, struct tensor *x, const struct call *c, const struct layout *l,
	const struct pickle *id)
{
	const struct pickle *class = pickle_item(id, 1), *numel = pickle_item(id, 4);
	struct str key = pickle_text(pickle_item(id, 2));
	bool v3 = str_is(c->func, "torch._utils._rebuild_tensor_v3");
	enum dtype d = type_of(class, true);
	struct storage *s = key.ptr ? find_member(t, arena_printf(t->m->arena, "data/%.*s", (int)key.len, key.ptr)) : NULL;
	uint64_t bytes, want;
	uint32_t index = t->m->tensor_count - 1;

	x->dtype = v3 ? type_of(pickle_item(c->args, 6), false) : d;
	if (class && class->kind == PICKLE_GLOBAL)
		x->stored_type = (v3 ? pickle_item(c->args, 6) ? pickle_item(c->args, 6)->text : class->text : class->text).ptr;
	if (!s) {
		tensor_damage(t->m, x, "its storage 'data/%.*s' is not in the archive", STR_ARG(key));
		return 0;
	}
	if (open_member(t, s) < 0)
		return -ENOMEM;
	if (s->first == DTYPE_NONE)
		s->first = d;
	if (!v3)
		x->dtype = s->first;
	if (x->dtype == DTYPE_NONE || d == DTYPE_NONE) {
		tensor_damage(t->m, x, "elements of an unknown type");
		return 0;
	}
	bytes = s->content.size;
	if (s->problem.len)
		tensor_damage(t->m, x, "%s", s->problem.ptr);
	else if (!numel || numel->kind != PICKLE_INT || numel->integer < 0 ||
		ckd_mul(&want, (uint64_t)numel->integer, (uint64_t)elem_bytes(d)) || want != bytes)
		tensor_damage(t->m, x, "its storage has %" PRIu64 " bytes, the pickle says otherwise", bytes);
	else if (!fits(l, bytes / elem_bytes(x->dtype)))
		tensor_damage(t->m, x, "it reaches outside its storage of %" PRIu64 " bytes", bytes);
	if (x->problem.len)
		return 0;
	if (t->big && !v3 && dtype_info(x->dtype)->swap > 1)
		x->flags |= TENSOR_BIG_ENDIAN;
	if (l->count && s->tensor == MODEL_NONE)
		s->tensor = index;
	else if (l->count)
		x->alias_of = s->tensor; /* add_tensor looks closer */
	return place(t, x, l, s, elem_bytes(x->dtype));
}

/* Tied weights: all of the same view. Compared with the first tensor of the storage only. */
static void keep_alias(struct torch *t, struct tensor *x)
{
	const struct tensor *f = x->alias_of == MODEL_NONE ? NULL : &t->m->tensors[x->alias_of];

	if (f && !x->problem.len && f->dtype == x->dtype && f->rank == x->rank && f->data.kind == EXTENT_SOURCE &&
		x->data.kind == EXTENT_SOURCE && f->data.offset == x->data.offset && f->data.size == x->data.size &&
		memcmp(f->shape, x->shape, x->rank * sizeof(*x->shape)) == 0)
		return;
	x->alias_of = MODEL_NONE;
}

/* Conjugated and negated views keep the bytes of what they are views of: shown as they are, the numbers would be wrong. */
static bool is_lazy_view(const struct call *c)
{
	static const char *const bits[] = {"conj", "neg"};
	const struct pickle *facts = pickle_item(c->args, str_ends(c->func, STR("_v3")) ? 7 : 6);

	for (size_t i = 0; i < 2; i++) {
		const struct pickle *bit = facts ? pickle_get(facts, bits[i]) : NULL;

		if (bit && bit->kind == PICKLE_BOOL && bit->integer)
			return true;
	}
	return false;
}

static int add_tensor(struct torch *t, struct str name, const struct call *c)
{
	struct tensor *x = model_add_tensor(t->m, t->e);
	const struct pickle *storage = pickle_item(c->args, 0);
	struct layout l = {0};
	const char *wrong = take_layout(c->args, &l);
	int r;

	if (!x)
		return -ENOMEM;
	x->name = name;
	if (!wrong && (!storage || storage->kind != PICKLE_PERSISTENT || !str_is(pickle_text(pickle_item(storage->args, 0)), "storage")))
		wrong = "it names no storage";
	if (wrong) {
		tensor_damage(t->m, x, "%s", wrong);
		return tensor_set_shape(t->m, x, NULL, 0, t->e);
	}
	r = fill_storage(t, x, c, &l, storage->args);
	if (is_lazy_view(c))
		tensor_damage(t->m, x, "a conjugated or negated view, which is not read");
	if (x->dtype == DTYPE_FLOAT4_E2M1 && l.rank && ckd_mul(&l.shape[l.rank - 1], l.shape[l.rank - 1], (uint64_t)2))
		return error_set(t->e, EIO, "tensor '%.*s' is too large", STR_ARG(name));
	if (!r)
		r = tensor_set_shape(t->m, x, l.shape, l.rank, t->e);
	if (!r)
		keep_alias(t, x);
	return r;
}

/* ---- names and values ---- */

static int visit(struct torch *t, unsigned depth)
{
	if (depth > LIMIT_NESTING)
		return error_set(t->e, EIO, "pickle nests deeper than %d levels", LIMIT_NESTING);
	if (++t->visits > VISITS_MAX)
		return error_set(t->e, EIO, "pickle expands to more than %u values", VISITS_MAX);
	return 0;
}

static struct str key_text(struct torch *t, const struct pickle *k)
{
	struct str s = pickle_text(k);

	if (s.ptr)
		return s;
	if (k->kind == PICKLE_INT)
		return arena_printf(t->m->arena, "%" PRId64, k->integer);
	if (k->kind == PICKLE_BOOL)
		return k->integer ? STR("True") : STR("False");
	return k->kind == PICKLE_NONE ? STR("None") : k->kind == PICKLE_GLOBAL ? k->text : STR("?");
}

static struct str join(struct torch *t, struct str prefix, const char *by, struct str key)
{
	char *p;
	size_t n = strlen(by);

	if (!prefix.len)
		return key;
	p = arena_alloc(t->m->arena, prefix.len + n + key.len + 1);
	if (!p)
		return (struct str){0};
	memcpy(p, prefix.ptr, prefix.len);
	memcpy(p + prefix.len, by, n);
	if (key.len)
		memcpy(p + prefix.len + n, key.ptr, key.len);
	return (struct str){p, prefix.len + n + key.len};
}

/* Unsigned numbers of 64 bits have a ninth byte, of zeroes; longer ones are shown as bytes. */
static struct value *long_value(struct torch *t, struct str bytes)
{
	uint64_t u = 0;

	if (bytes.len != 9 || bytes.ptr[8])
		return value_bytes(t->m->arena, bytes);
	for (unsigned i = 0; i < 8; i++)
		u |= (uint64_t)(unsigned char)bytes.ptr[i] << 8 * i;
	return value_uint(t->m->arena, u);
}

/* Inert objects by the name of their class. */
static struct value *plain(struct torch *t, const struct pickle *p)
{
	struct arena *a = t->m->arena;
	struct value *v;

	switch (p->kind) {
	case PICKLE_NONE: return value_null(a);
	case PICKLE_BOOL: return value_bool(a, p->integer);
	case PICKLE_INT: return value_int(a, p->integer);
	case PICKLE_LONG: return p->decimal ? value_bigint(a, p->text) : long_value(t, p->text);
	case PICKLE_FLOAT: return value_float(a, p->real);
	case PICKLE_STR: case PICKLE_BYTES: return value_str(a, p->text);
	default: break;
	}
	v = value_map(a);
	if (p->kind == PICKLE_GLOBAL)
		value_set(a, v, STR("global"), value_str(a, p->text));
	else
		value_set(a, v, STR("object"), value_str(a,
			p->callable && p->callable->kind == PICKLE_GLOBAL ? p->callable->text : STR("?")));
	return v;
}

static int leaf(struct torch *t, struct str name, const struct pickle *p)
{
	struct value *v = plain(t, p);

	if (!v || value_set(t->m->arena, t->values, name.len ? name : STR("value"), v) < 0)
		return no_memory(t->e);
	return 0;
}

static int walk(struct torch *t, const struct pickle *p, struct str name, unsigned depth);

static const struct pickle *module_part(const struct pickle *p, const char *part)
{
	return p && p->kind == PICKLE_OBJECT ? pickle_get(p->state, part) : NULL;
}

static bool is_module(const struct pickle *p)
{
	return module_part(p, "_parameters") && module_part(p, "_modules");
}

static bool persistent(const struct pickle *module, struct str key)
{
	const struct pickle *set = module_part(module, "_non_persistent_buffers_set"), *keys = set;

	if (set && set->kind == PICKLE_OBJECT && !set->count)
		keys = pickle_item(set->args, 0);
	for (size_t i = 0; keys && i < keys->count; i++)
		if (str_eq(pickle_text(keys->items[i]), key))
			return false;
	return true;
}

/* Names as state_dict() gives them, behind `prefix`, which is empty or ends with '.' or '/'. */
static int walk_module(struct torch *t, const struct pickle *p, struct str prefix, unsigned depth)
{
	static const char *const parts[] = {"_parameters", "_buffers", "_modules"};
	int r = visit(t, depth);

	for (int part = 0; !r && part < 3; part++) {
		size_t n;
		struct pickle *const *pairs = pickle_pairs(module_part(p, parts[part]), &n);

		for (size_t i = 0; !r && i < n; i += 2) {
			struct str key = key_text(t, pairs[i]), name = join(t, prefix, "", key);
			struct call c;

			r = visit(t, depth);
			if (r || pairs[i + 1]->kind == PICKLE_NONE || (part == 1 && !persistent(p, key)))
				continue;
			if (part == 2 && is_module(pairs[i + 1]))
				r = walk_module(t, pairs[i + 1], join(t, name, ".", STR("")), depth + 1);
			else if (part < 2 && tensor_call(pairs[i + 1], &c))
				r = add_tensor(t, name, &c);
			else
				r = leaf(t, name, pairs[i + 1]);
		}
	}
	return r;
}

static int walk_pairs(struct torch *t, struct pickle *const *pairs, size_t n, struct str name, unsigned depth)
{
	int r = 0;

	for (size_t i = 0; !r && i < n; i += 2)
		r = walk(t, pairs[i + 1], join(t, name, "/", key_text(t, pairs[i])), depth + 1);
	return r;
}

static int walk_items(struct torch *t, const struct pickle *p, struct str name, unsigned depth)
{
	int r = 0;

	for (size_t i = 0; !r && i < p->count; i++)
		r = walk(t, p->items[i], join(t, name, "/", arena_printf(t->m->arena, "%zu", i)), depth + 1);
	return r;
}

static int walk(struct torch *t, const struct pickle *p, struct str name, unsigned depth)
{
	int r = visit(t, depth);
	struct call c;
	size_t n;
	struct pickle *const *pairs = pickle_pairs(p, &n);

	if (r < 0)
		return r;
	if (tensor_call(p, &c))
		return add_tensor(t, name.len ? name : STR("tensor"), &c);
	if (is_module(p))
		return walk_module(t, p, name.len ? join(t, name, "/", STR("")) : name, depth);
	if (n)
		return walk_pairs(t, pairs, n, name, depth);
	if ((p->kind == PICKLE_LIST || p->kind == PICKLE_TUPLE || p->kind == PICKLE_SET) && p->count)
		return walk_items(t, p, name, depth);
	if (p->kind == PICKLE_OBJECT && p->callable && p->callable->kind == PICKLE_GLOBAL &&
		str_starts(p->callable->text, STR("torch._utils._rebuild_")))
		model_warn(t->m, "'%.*s' is made by %.*s, which is not shown as a tensor", STR_ARG(name),
			STR_ARG(p->callable->text));
	return leaf(t, name, p);
}

/* ---- */

static int read_pickle(struct torch *t)
{
	struct storage *s = find_member(t, STR("byteorder")), *pkl = find_member(t, STR("data.pkl"));
	struct pickle *top;
	struct str text;
	size_t used;
	int r;

	if (!pkl)
		return error_set(t->e, EIO, "no data.pkl in the archive");
	if (s) {
		r = read_member(t, s, &text);
		if (r < 0)
			return r;
		t->big = str_is(text, "big");
	}
	r = read_member(t, pkl, &text);
	if (r == 0)
		r = pickle_read(text, t->m->arena, &top, &used, t->e);
	return r < 0 ? r : walk(t, top, (struct str){0}, 0);
}

static int torch_parse(struct input *in, struct model *m, struct error *e)
{
	struct torch t = {.m = m, .e = e};
	int r = model_add_source(m, in->src, e);

	if (r < 0)
		return r;
	r = zip_read(in->src, m->arena, &t.zip, e);
	if (r < 0)
		return r;
	if (!find_prefix(&t.zip, &t.prefix))
		return error_set(e, EIO, "no PREFIX/data.pkl with PREFIX/version in the archive");
	t.storages = arena_array(m->arena, t.zip.count, sizeof(*t.storages));
	t.values = value_map(m->arena);
	if (!t.storages || !t.values)
		return no_memory(e);
	for (size_t i = 0; i < t.zip.count; i++)
		t.storages[i] = (struct storage){.member = &t.zip.members[i], .tensor = MODEL_NONE};
	qsort(t.storages, t.zip.count, sizeof(*t.storages), by_name);
	r = read_pickle(&t);
	for (size_t i = 0; i < t.zip.count; i++)
		if (t.storages[i].opened)
			extent_unref(&t.storages[i].content);
	if (!r && t.values->map.count)
		m->meta.values = t.values;
	return r;
}

static const char *const extensions[] = {".pt", ".pth", ".bin", ".ckpt", NULL};

const struct format format_pytorch = {
	.name = "pytorch",
	.title = "PyTorch",
	.extensions = extensions,
	.probe = torch_probe,
	.parse = torch_parse,
};
