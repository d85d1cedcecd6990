/* SPDX-License-Identifier: MIT */
/*
 * npz: an ordinary zip archive of .npy files (container/zip.h, container/npy.h), as numpy.savez (stored) and
 * savez_compressed (deflated) write it. A tensor is called as its member without ".npy". Members that are no .npy
 * show under files/. Saving copies untouched members as they are, header and all; edited ones are stored.
 */
#include "parsers/format.h"

#include "parsers/codec/convert.h"
#include "parsers/container/npy.h"
#include "parsers/container/zip.h"
#include "parsers/core/check.h"
#include "parsers/core/limits.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* arrays of strings are decoded when the model is read; larger ones are shown as bytes */
#define STRINGS_MAX (16u << 20)

/* model.priv */
struct npz {
	struct zip zip;
	uint32_t *owner; /* of each member: its tensor, file | OWNER_FILE, or one of these */
};
#define OWNER_FILE 0x80000000u
#define OWNER_NONE UINT32_MAX /* a directory */
#define OWNER_REPEATED (UINT32_MAX - 1) /* a later member of that name counts */

static int npz_probe(const struct input *in, struct error *e)
{
	unsigned char head[4];

	if (source_size(in->src) < 22)
		return 0;
	if (source_read(in->src, 0, head, sizeof(head), e) < 0)
		return -EIO;
	if (memcmp(head, "PK\3\4", 4) != 0 && memcmp(head, "PK\5\6", 4) != 0)
		return 0;
	/* other formats are archives too, and look closer */
	return str_ends(in->base, STR(".npz")) ? 40 : zip_is(in->src) ? 16 : 0;
}

/* ---- reading ---- */

static int take_utf32(const unsigned char *p, uint32_t n, bool big, char *out, size_t *len)
{
	while (n && !p[n - 1] && !p[n - 2] && !p[n - 3] && !p[n - 4])
		n -= 4;
	*len = 0;
	for (uint32_t i = 0; i < n; i += 4) {
		uint32_t u = 0;

		for (uint32_t b = 0; b < 4; b++)
			u |= (uint32_t)p[i + b] << 8 * (big ? 3 - b : b);
		if (u > 0x10ffff || (u >= 0xd800 && u < 0xe000))
			return -EIO;
		if (u >= 0x10000)
			out[(*len)++] = (char)(0xf0 | u >> 18);
		else if (u >= 0x800)
			out[(*len)++] = (char)(0xe0 | u >> 12);
		else if (u >= 0x80)
			out[(*len)++] = (char)(0xc0 | u >> 6);
		if (u >= 0x10000)
			out[(*len)++] = (char)(0x80 | (u >> 12 & 0x3f));
		if (u >= 0x800)
			out[(*len)++] = (char)(0x80 | (u >> 6 & 0x3f));
		out[(*len)++] = (char)(u >= 0x80 ? 0x80 | (u & 0x3f) : u);
	}
	return 0;
}

static int read_strings(struct model *m, struct tensor *t, const struct npy *h, const struct extent *data,
	struct error *e)
{
	unsigned char *item = malloc((size_t)h->itemsize + 1);
	char *text = malloc((size_t)h->itemsize + 1);
	struct error why = {0};
	int r = item && text ? 0 : -ENOMEM;

	t->strings = arena_array(m->arena, (size_t)h->count, sizeof(*t->strings));
	for (uint64_t i = 0; !r && t->strings && i < h->count; i++) {
		size_t len = h->itemsize;

		r = extent_read(data, i * h->itemsize, item, h->itemsize, &why);
		if (!r && h->unicode)
			r = take_utf32(item, h->itemsize, h->big_endian, text, &len);
		while (!r && h->bytes && len && !item[len - 1])
			len--;
		t->strings[i] = arena_str(m->arena, h->unicode ? text : (char *)item, r ? 0 : len);
		r = t->strings[i].ptr ? r : -ENOMEM;
	}
	free(item);
	free(text);
	if (r == -ENOMEM || !t->strings)
		return error_set(e, ENOMEM, "out of memory for strings");
	if (r < 0)
		tensor_damage(m, t, "strings cannot be read%s%s", why.code ? ": " : "", why.text);
	return 0;
}

/* Elements in C order. A reference in *out. */
static int elements(const struct npy *h, const struct extent *content, struct extent *out,
	struct error *e)
{
	struct extent data = extent_slice(*content, h->data_offset, h->count * h->itemsize);
	int64_t strides[LIMIT_RANK], stride = 1;
	struct codec *codec;

	if (!h->fortran || h->rank < 2 || h->count < 2) {
		*out = data;
		extent_ref(out);
		return 0;
	}
	for (uint32_t i = 0; i < h->rank; i++) {
		strides[i] = stride;
		stride *= (int64_t)h->shape[i]; /* below 2^63, and no zero */
	}
	codec = codec_gather(&data, h->itemsize, h->rank, h->shape, strides, 0);
	if (!codec)
		return error_set(e, ENOMEM, "out of memory for an array");
	*out = extent_codec(codec);
	return 0;
}

/* Ownership: sources in extents are counted by model_finish, codecs are handed over. */
static void hand_over(struct extent *x)
{
	if (x->kind == EXTENT_SOURCE)
		source_unref(x->src);
}

static int fill_tensor(struct model *m, struct tensor *t, const struct npy *h,
	const struct extent *content, struct error *e)
{
	struct extent data;
	int r = tensor_set_shape(m, t, h->shape, h->rank, e);

	if (r < 0)
		return r;
	t->stored_type = arena_str(m->arena, h->descr, strlen(h->descr)).ptr;
	t->dtype = h->dtype;
	if (h->big_endian)
		t->flags |= TENSOR_BIG_ENDIAN;
	if (h->fortran && h->rank > 1) {
		t->info = value_map(m->arena);
		value_set(m->arena, t->info, STR("fortran_order"), value_bool(m->arena, true));
	}
	if (!h->itemsize && !(h->unicode || h->bytes)) { /* objects, dates, structures: bytes as they are */
		t->data = extent_slice(*content, h->data_offset, UINT64_MAX);
		extent_ref(&t->data);
		hand_over(&t->data);
		return 0;
	}
	r = elements(h, content, &data, e);
	if (r < 0)
		return r;
	if (t->dtype == DTYPE_STRING && data.size <= STRINGS_MAX) {
		r = read_strings(m, t, h, &data, e);
		extent_unref(&data);
		return r;
	}
	if (t->dtype == DTYPE_STRING)
		t->dtype = DTYPE_NONE;
	t->data = data;
	hand_over(&t->data);
	return 0;
}

static int add_file(struct model *m, const struct zip_member *z, const struct extent *content,
	struct error *e)
{
	struct member_file *f = model_add_file(m, e);

	if (!f)
		return -ENOMEM;
	f->path = z->name;
	f->data = *content;
	extent_ref(&f->data);
	hand_over(&f->data);
	return 0;
}

static struct tensor *add_member(struct model *m, struct str name, struct zip_member *z, struct error *e)
{
	struct tensor *t = model_add_tensor(m, e);

	if (!t)
		return NULL;
	t->name = name;
	t->priv = z;
	if (!str_eq(name, z->name))
		t->stored = z->name;
	return t;
}

static int add_array(struct model *m, struct str name, struct zip_member *z,
	const struct extent *content, const struct npy *h, struct error *e)
{
	struct tensor *t = add_member(m, name, z, e);

	return t ? fill_tensor(m, t, h, content, e) : -ENOMEM;
}

/* A member that should be an array and is not readable as one: listed, with the reason. */
static int add_damaged(struct model *m, struct str name, struct zip_member *z, const char *why,
	struct error *e)
{
	struct tensor *t = add_member(m, name, z, e);

	if (!t)
		return -ENOMEM;
	tensor_damage(m, t, "%s", why);
	return tensor_set_shape(m, t, NULL, 0, e);
}

/* A member that cannot be read is none, but for want of memory. */
static int is_npy(const struct extent *content, bool *is, struct error *e)
{
	struct error why = {0};
	char magic[6];
	int r = content->size >= 6 ? extent_read(content, 0, magic, 6, &why) : -EIO;

	*is = r == 0 && memcmp(magic, "\x93NUMPY", 6) == 0;
	return r == -ENOMEM ? error_set(e, ENOMEM, "%s", why.text) : 0;
}

static int read_array(struct model *m, struct str name, struct zip_member *z, const struct extent *content,
	struct error *e)
{
	struct extmap map = {0};
	struct error why = {0};
	struct npy h;
	int r;

	extmap_append(&map, content);
	r = npy_read(&map, 0, content->size, &h, &why);
	extmap_release(&map);
	if (r == -ENOMEM)
		return error_set(e, ENOMEM, "%s", why.text);
	return r < 0 ? add_damaged(m, name, z, why.text, e) : add_array(m, name, z, content, &h, e);
}

static int read_member(struct model *m, struct npz *n, size_t i, struct error *e)
{
	struct zip_member *z = &n->zip.members[i];
	struct str name = z->name;
	struct extent content;
	struct error why = {0};
	bool array;
	int r;

	if (str_ends(name, STR("/")) && !z->size)
		return 0; /* a directory */
	if (str_ends(name, STR(".npy")))
		name.len -= 4;
	r = zip_content(&n->zip, z, &content, &why);
	if (r < 0) {
		n->owner[i] = m->tensor_count;
		return r == -ENOMEM ? error_set(e, ENOMEM, "%s", why.text)
				    : add_damaged(m, name, z, why.text, e);
	}
	r = is_npy(&content, &array, e);
	n->owner[i] = array ? m->tensor_count : m->file_count | OWNER_FILE;
	if (r == 0)
		r = array ? read_array(m, name, z, &content, e) : add_file(m, z, &content, e);
	extent_unref(&content);
	return r;
}

struct named {
	struct str name;
	size_t index;
};

static int by_name(const void *x, const void *y)
{
	const struct named *a = x, *b = y;
	int c = str_cmp(a->name, b->name);

	return c ? c : (a->index > b->index) - (a->index < b->index);
}

/* Of members with one name the last counts, as for NumPy. */
static int hide_repeated(struct model *m, struct npz *n, struct error *e)
{
	struct named *names = calloc(n->zip.count ? n->zip.count : 1, sizeof(*names));

	if (!names)
		return error_set(e, ENOMEM, "out of memory for the archive");
	for (size_t i = 0; i < n->zip.count; i++)
		names[i] = (struct named){n->zip.members[i].name, i};
	qsort(names, n->zip.count, sizeof(*names), by_name);
	for (size_t i = 0; i + 1 < n->zip.count; i++) {
		if (!str_eq(names[i].name, names[i + 1].name))
			continue;
		n->owner[names[i].index] = OWNER_REPEATED;
		model_warn(m, "member '%.*s' is there more than once, the last counts",
			STR_ARG(names[i].name));
	}
	free(names);
	return 0;
}

static int npz_parse(struct input *in, struct model *m, struct error *e)
{
	struct npz *n = arena_alloc(m->arena, sizeof(*n));
	int r = n ? model_add_source(m, in->src, e) : error_set(e, ENOMEM, "out of memory");

	if (r < 0)
		return r;
	m->priv = n;
	r = zip_read(in->src, m->arena, &n->zip, e);
	if (r < 0)
		return r;
	n->owner = arena_array(m->arena, n->zip.count, sizeof(*n->owner));
	if (!n->owner)
		return error_set(e, ENOMEM, "out of memory for the archive");
	for (size_t i = 0; i < n->zip.count; i++)
		n->owner[i] = OWNER_NONE;
	r = hide_repeated(m, n, e);
	for (size_t i = 0; !r && i < n->zip.count; i++)
		if (n->owner[i] == OWNER_NONE)
			r = read_member(m, n, i, e);
	return r;
}

static int npz_check(const struct model *m, void (*found)(void *arg, const char *text), void *arg,
	struct error *e)
{
	const struct npz *n = (m->base ? m->base : m)->priv;

	(void)e;
	for (size_t i = 0; i < n->zip.count; i++) {
		struct error why = {0};
		char line[700];

		if (zip_check(&n->zip, &n->zip.members[i], &why) == 0)
			continue;
		snprintf(line, sizeof(line), "member '%.*s': %s", STR_ARG(n->zip.members[i].name),
			why.text);
		found(arg, line);
	}
	return 0;
}

/* ---- writing ---- */

static bool npz_holds(enum dtype d)
{
	return d == DTYPE_STRING || (d != DTYPE_NONE && dtype_info(d)->npy == d);
}

struct writer {
	const struct model *m;
	struct plan *p;
	struct zip_writer zip;
};

static int no_memory(struct error *e)
{
	return error_set(e, ENOMEM, "out of memory for a plan");
}

/* The longest string in bytes and code points, at least 1, as NumPy has no empty type. */
static void measure(const struct tensor *t, size_t *bytes, size_t *points, bool *utf8)
{
	*bytes = *points = 1;
	*utf8 = true;
	for (uint64_t i = 0; i < t->count && t->strings; i++) {
		struct str s = t->strings[i];
		size_t n = 0;

		for (size_t k = 0; k < s.len; k++)
			n += ((unsigned char)s.ptr[k] & 0xc0) != 0x80;
		*points = n > *points ? n : *points;
		*bytes = s.len > *bytes ? s.len : *bytes;
		*utf8 = *utf8 && str_is_utf8(s);
	}
}

static void put_utf32(struct str s, unsigned char *out)
{
	for (size_t i = 0; i < s.len;) {
		unsigned char c = (unsigned char)s.ptr[i++];
		unsigned more = c < 0x80 ? 0 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
		uint32_t u = more ? c & (0x3fu >> more) : c;

		for (; more && i < s.len; more--)
			u = u << 6 | ((unsigned char)s.ptr[i++] & 0x3f);
		for (unsigned b = 0; b < 4; b++)
			*out++ = (unsigned char)(u >> 8 * b);
	}
}

static int append_strings(const struct tensor *t, struct extmap *out, struct error *e)
{
	size_t bytes, points, item;
	uint64_t size;
	unsigned char *buf;
	bool utf8;
	char descr[32];

	measure(t, &bytes, &points, &utf8);
	/* what was an array of bytes stays one */
	utf8 = utf8 && !(t->stored_type && strncmp(t->stored_type, "|S", 2) == 0);
	item = utf8 ? 4 * points : bytes;
	if (ckd_mul(&size, t->count, (uint64_t)item) || size > LIMIT_METADATA)
		return error_set(e, EINVAL, "strings of '%.*s' would take more than %u bytes",
			STR_ARG(t->name), LIMIT_METADATA);
	buf = calloc(1, size ? (size_t)size : 1);
	if (!buf)
		return no_memory(e);
	for (uint64_t i = 0; i < t->count && t->strings; i++) {
		if (utf8)
			put_utf32(t->strings[i], buf + i * item);
		else if (t->strings[i].len)
			memcpy(buf + i * item, t->strings[i].ptr, t->strings[i].len);
	}
	snprintf(descr, sizeof(descr), utf8 ? "<U%zu" : "|S%zu", utf8 ? points : bytes);
	npy_append_header(out, descr, false, t->rank, t->shape);
	extmap_append_take(out, buf, (size_t)size);
	return extmap_failed(out, e);
}

static int append_numbers(const struct tensor *t, struct extmap *out, struct error *e)
{
	char descr[16];

	snprintf(descr, sizeof(descr), "%s", dtype_info(t->dtype)->descr);
	if (t->flags & TENSOR_BIG_ENDIAN && descr[0] == '<')
		descr[0] = '>';
	npy_append_header(out, descr, false, t->rank, t->shape);
	extmap_append(out, &t->data);
	return extmap_failed(out, e);
}

/* By value, as a type that NumPy has. 1 = left out; the loss is told. */
static int append_widened(struct writer *w, const struct tensor *t, struct extmap *out,
	struct error *e)
{
	enum dtype wide = t->dtype == DTYPE_NONE || w->p->real ? DTYPE_FLOAT32 : dtype_info(t->dtype)->npy;
	bool real = t->real && w->p->real;
	struct extent x;
	int r = 0;

	if (!real && t->dtype == DTYPE_NONE)
		return plan_loss(w->p, "tensor '%.*s': dtype %s has no place in npz", STR_ARG(t->name),
			       t->stored_type ? t->stored_type : "unknown") < 0
			       ? no_memory(e)
			       : 1;
	if (!real && plan_loss(w->p, "dtype of '%.*s': %s becomes %s", STR_ARG(t->name),
			     dtype_info(t->dtype)->name, dtype_info(dtype_info(t->dtype)->npy)->name) < 0)
		return no_memory(e);
	if (real) {
		r = t->real(t, &x, e);
	} else {
		struct codec *c = codec_decode(&t->data, t->dtype, t->flags & TENSOR_BIG_ENDIAN, t->count);

		wide = dtype_info(t->dtype)->npy;
		r = c ? 0 : no_memory(e);
		if (c)
			x = extent_codec(c);
	}
	if (r < 0)
		return r;
	npy_append_header(out, dtype_info(wide)->descr, false, t->rank, t->shape);
	extmap_append(out, &x);
	extent_unref(&x);
	return extmap_failed(out, e);
}

static struct str member_name(const struct writer *w, const struct tensor *t)
{
	return arena_printf(w->p->arena, "%.*s.npy", (int)t->name.len, t->name.ptr);
}

static int add_tensor(struct writer *w, const struct tensor *t, struct error *e)
{
	struct str name = member_name(w, t);
	struct extmap *content;
	int r;

	if (t->problem.len)
		return error_set(e, EIO, "tensor '%.*s' is damaged: %.*s", STR_ARG(t->name),
			STR_ARG(t->problem));
	if (memchr(t->name.ptr ? t->name.ptr : "", '\0', t->name.len) || t->name.len > UINT16_MAX - 4)
		return error_set(e, EINVAL, "npz cannot name a tensor '%.*s'", STR_ARG(t->name));
	content = extmap_new();
	if (!content || !name.ptr) {
		extmap_unref(content);
		return no_memory(e);
	}
	if (t->dtype == DTYPE_STRING)
		r = append_strings(t, content, e);
	else if (npz_holds(t->dtype) && !(t->real && w->p->real))
		r = append_numbers(t, content, e);
	else
		r = append_widened(w, t, content, e);
	if (!r && zip_add(&w->zip, name, content, 0) < 0)
		r = no_memory(e);
	extmap_unref(content);
	return r < 0 ? r : 0;
}

/* The member that a tensor came from, copied under its present name. */
static int copy_tensor(struct writer *w, const struct npz *n, const struct tensor *t,
	struct error *e)
{
	const struct zip_member *z = t->priv;
	struct str name = t->flags & TENSOR_RENAMED ? member_name(w, t) : z->name;

	if (!name.ptr || zip_copy(&w->zip, &n->zip, z, name) < 0)
		return no_memory(e);
	return 0;
}


/* Members in their order, without what was removed, new tensors last. */
static int plan_in_place(struct writer *w, struct error *e)
{
	const struct model *m = w->m, *base = m->base;
	const struct npz *n = base->priv;
	const struct tensor **now = arena_array(w->p->arena, (size_t)base->tensor_count + 1, sizeof(*now));
	int r = 0;

	if (!now)
		return no_memory(e);
	for (uint32_t i = 0; i < m->tensor_count; i++)
		if (m->tensors[i].base != MODEL_NONE)
			now[m->tensors[i].base] = &m->tensors[i];
	for (size_t i = 0; !r && i < n->zip.count; i++) {
		uint32_t owner = n->owner[i];
		const struct zip_member *z = &n->zip.members[i];
		const struct tensor *t = owner < base->tensor_count ? now[owner] : NULL;

		if ((owner < base->tensor_count && !t) || owner == OWNER_REPEATED)
			continue; /* removed, or never seen */
		if (!t)
			r = zip_copy(&w->zip, &n->zip, z, z->name) < 0 ? no_memory(e) : 0;
		else
			r = t->flags & TENSOR_EDITED ? add_tensor(w, t, e) : copy_tensor(w, n, t, e);
	}
	for (uint32_t i = 0; !r && i < m->tensor_count; i++)
		if (m->tensors[i].base == MODEL_NONE)
			r = add_tensor(w, &m->tensors[i], e);
	return r;
}

static int tell_losses(struct writer *w, struct error *e)
{
	const struct value *properties = w->m->meta.properties;
	int r = plan_plain_losses(w->p, w->m, "npz");

	for (size_t i = 0; !r && properties && i < properties->map.count; i++)
		r = plan_loss(w->p, "property '%.*s' has no place in npz",
			STR_ARG(properties->map.members[i].key));
	return r < 0 ? no_memory(e) : 0;
}

/* Metadata stand in the sidecar: an edit of them alone leaves the archive as it is. */
static bool is_untouched(const struct model *m)
{
	if (m->tensor_count != m->base->tensor_count)
		return false;
	for (uint32_t i = 0; i < m->tensor_count; i++)
		if (m->tensors[i].flags & (TENSOR_EDITED | TENSOR_RENAMED | TENSOR_ADDED))
			return false;
	return true;
}

static int npz_plan(const struct model *m, struct plan *p, struct error *e)
{
	struct writer w = {.m = m, .p = p};
	struct extmap *map = plan_file(p, "");
	int r = 0;

	if (!map)
		return no_memory(e);
	if (p->in_place && is_untouched(m)) {
		struct source *src = ((const struct npz *)m->base->priv)->zip.src;

		p->files[p->count - 1].unchanged = true;
		extmap_append_source(map, src, 0, source_size(src));
		return extmap_failed(map, e);
	}
	if (zip_begin(&w.zip, map) < 0)
		return no_memory(e);
	if (p->in_place) {
		w.zip.comment = ((const struct npz *)m->base->priv)->zip.comment;
		r = plan_in_place(&w, e);
	} else {
		r = tell_losses(&w, e);
		for (uint32_t i = 0; !r && i < m->tensor_count; i++)
			r = add_tensor(&w, &m->tensors[i], e);
	}
	if (r < 0) {
		zip_release(&w.zip);
		return r;
	}
	return zip_end(&w.zip, e);
}

static int npz_check_edit(const struct model *m, const struct edit *x, struct error *e)
{
	(void)m;
	if ((x->kind == EDIT_ADD || x->kind == EDIT_RENAME) &&
		(memchr(x->name.ptr, '\0', x->name.len) || x->name.len > UINT16_MAX - 4))
		return error_set(e, EINVAL, "npz cannot name a tensor '%.*s'", STR_ARG(x->name));
	if (x->kind == EDIT_METADATA && x->meta.properties && x->meta.properties->map.count)
		return error_set(e, EINVAL, "npz has no place for 'properties'");
	if (x->kind == EDIT_METADATA && x->meta.values && x->meta.values->map.count)
		return error_set(e, EINVAL, "npz has no place for 'values'");
	return 0;
}

static const char *const extensions[] = {".npz", NULL};

const struct format format_npz = {
	.name = "npz",
	.title = "npz",
	.extensions = extensions,
	.can = CAN_VALUES | CAN_RESHAPE | CAN_RETYPE | CAN_RENAME | CAN_ADD | CAN_REMOVE | CAN_METADATA |
	       CAN_CREATE,
	.probe = npz_probe,
	.parse = npz_parse,
	.check_edit = npz_check_edit,
	.plan = npz_plan,
	.check = npz_check,
	.holds = npz_holds,
};
