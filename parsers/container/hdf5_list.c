/* SPDX-License-Identifier: MIT */
/*
 * The child's part of reading: everything in the file as one flat list of records (hdf5_private.h). Objects are opened by
 * address, so names like "." or ".." are only text. Groups are visited once, from a queue, so neither cycles nor depth
 * matter; time and memory are the child's limits.
 */
#include "parsers/container/hdf5_private.h"

#include "parsers/core/check.h"
#include "parsers/core/limits.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define ATTR_BYTES_MAX (64u << 20)
#define ATTR_ITEMS_MAX 1000000u
#define STRINGS_MAX (16u << 20) /* a dataset of strings is listed whole */
#define CHUNKS_MAX (1u << 22)   /* chunks of one dataset */
#define CHUNK_BYTES_MAX (256ull << 20)

struct seen {
	uint64_t addr;
	struct str path;
};

struct group {
	uint64_t addr;
	struct str path;
	uint32_t depth;
};

struct walk {
	hid_t file;
	struct hdf5_store *store;
	struct reply *r;
	struct arena *a;
	struct group *queue;
	size_t head, count, cap;
	struct seen *seen; /* open addressing; path.ptr NULL = free */
	size_t seen_count, seen_slots;
};

/* ---- types ---- */

struct type {
	enum dtype dtype;
	bool big, vlen, string;
	uint32_t size;
	char text[96];
};

static bool fields_are(hid_t t, size_t spos, size_t epos, size_t esize, size_t mpos, size_t msize, size_t bias)
{
	size_t s, ep, es, mp, ms;

	return H5Tget_fields(t, &s, &ep, &es, &mp, &ms) >= 0 && s == spos && ep == epos && es == esize && mp == mpos &&
	       ms == msize && H5Tget_ebias(t) == bias;
}

static void float_type(hid_t t, struct type *out)
{
	const char *order = out->big ? "BE" : "LE";

	if (out->size == 2 && fields_are(t, 15, 10, 5, 0, 10, 15))
		out->dtype = DTYPE_FLOAT16;
	else if (out->size == 2 && fields_are(t, 15, 7, 8, 0, 7, 127))
		out->dtype = DTYPE_BFLOAT16;
	else if (out->size == 4 && fields_are(t, 31, 23, 8, 0, 23, 127))
		out->dtype = DTYPE_FLOAT32;
	else if (out->size == 8 && fields_are(t, 63, 52, 11, 0, 52, 1023))
		out->dtype = DTYPE_FLOAT64;
	else if (out->size == 16 && !out->big && fields_are(t, 79, 64, 15, 0, 64, 16383))
		out->dtype = DTYPE_FLOAT128;
	if (out->dtype == DTYPE_BFLOAT16)
		snprintf(out->text, sizeof(out->text), "H5T_FLOAT_BFLOAT16%s", order);
	else
		snprintf(out->text, sizeof(out->text), "H5T_IEEE_F%u%s", 8 * out->size, order);
}

static void int_type(hid_t t, struct type *out)
{
	static const enum dtype types[2][4] = {{DTYPE_INT8, DTYPE_INT16, DTYPE_INT32, DTYPE_INT64},
		{DTYPE_UINT8, DTYPE_UINT16, DTYPE_UINT32, DTYPE_UINT64}};
	bool is_unsigned = H5Tget_sign(t) == H5T_SGN_NONE;

	if (H5Tget_precision(t) == 8 * (size_t)out->size && H5Tget_offset(t) == 0)
		for (unsigned i = 0; i < 4; i++)
			if (out->size == 1u << i)
				out->dtype = types[is_unsigned][i];
	snprintf(out->text, sizeof(out->text), "H5T_STD_%c%u%s", is_unsigned ? 'U' : 'I', 8 * out->size,
		out->big ? "BE" : "LE");
}

static void look_at(hid_t t, struct type *out);

static bool member_is(hid_t t, unsigned i, const char *a, const char *b)
{
	char *name = H5Tget_member_name(t, i);
	bool is = name && (strcmp(name, a) == 0 || strcmp(name, b) == 0);

	H5free_memory(name);
	return is;
}

static void enum_type(hid_t t, struct type *out)
{
	hid_t base = H5Tget_super(t);
	signed char f = -1, tr = -1;

	if (base >= 0 && H5Tget_class(base) == H5T_INTEGER)
		int_type(base, out);
	if (out->size == 1 && H5Tget_nmembers(t) == 2 && member_is(t, 0, "FALSE", "False") &&
		member_is(t, 1, "TRUE", "True") && H5Tget_member_value(t, 0, &f) >= 0 &&
		H5Tget_member_value(t, 1, &tr) >= 0 && f == 0 && tr == 1) {
		out->dtype = DTYPE_BOOL;
		snprintf(out->text, sizeof(out->text), "H5T_ENUM{FALSE,TRUE}");
	} else {
		char of[40];

		snprintf(of, sizeof(of), "%.39s", out->text);
		snprintf(out->text, sizeof(out->text), "H5T_ENUM(%s)", of);
	}
	H5Tclose(base);
}

static void compound_type(hid_t t, struct type *out)
{
	struct type part = {0};
	hid_t r = -1, i = -1;

	snprintf(out->text, sizeof(out->text), "H5T_COMPOUND(%u)", out->size);
	if (H5Tget_nmembers(t) != 2 || !member_is(t, 0, "r", "real") || !member_is(t, 1, "i", "imag"))
		return;
	r = H5Tget_member_type(t, 0);
	i = H5Tget_member_type(t, 1);
	if (r >= 0 && i >= 0 && H5Tequal(r, i) > 0 && H5Tget_class(r) == H5T_FLOAT &&
		H5Tget_size(r) * 2 == out->size && H5Tget_member_offset(t, 0) == 0 &&
		H5Tget_member_offset(t, 1) == out->size / 2) {
		look_at(r, &part); /* a float: no further */
		out->dtype = part.dtype == DTYPE_FLOAT16 ? DTYPE_COMPLEX32
			   : part.dtype == DTYPE_FLOAT32 ? DTYPE_COMPLEX64
			   : part.dtype == DTYPE_FLOAT64 ? DTYPE_COMPLEX128
							 : DTYPE_NONE;
		out->big = part.big;
		snprintf(out->text, sizeof(out->text), "H5T_COMPOUND{r,i: %.40s}", part.text);
	}
	H5Tclose(r);
	H5Tclose(i);
}

static void look_at(hid_t t, struct type *out)
{
	H5T_class_t class = H5Tget_class(t);

	memset(out, 0, sizeof(*out));
	out->size = (uint32_t)H5Tget_size(t);
	out->big = H5Tget_order(t) == H5T_ORDER_BE;
	out->vlen = class == H5T_VLEN || H5Tis_variable_str(t) > 0;
	switch (class) {
	case H5T_FLOAT:
		float_type(t, out);
		break;
	case H5T_INTEGER:
		int_type(t, out);
		break;
	case H5T_ENUM:
		enum_type(t, out);
		break;
	case H5T_COMPOUND:
		compound_type(t, out);
		break;
	case H5T_STRING:
		out->string = true;
		snprintf(out->text, sizeof(out->text), out->vlen ? "H5T_STRING(variable)" : "H5T_STRING(%u)", out->size);
		break;
	case H5T_OPAQUE:
		snprintf(out->text, sizeof(out->text), "H5T_OPAQUE(%u)", out->size);
		break;
	default:
		snprintf(out->text, sizeof(out->text), "%s", class == H5T_VLEN ? "H5T_VLEN" : class == H5T_ARRAY
			? "H5T_ARRAY" : class == H5T_REFERENCE ? "H5T_REFERENCE" : class == H5T_BITFIELD
			? "H5T_BITFIELD" : "H5T_TIME");
	}
	if (out->dtype != DTYPE_NONE && dtype_info(out->dtype)->swap == 1)
		out->big = false;
}

/* ---- strings ---- */

/* count strings of a type from what was read; fixed ones end at NUL, or without their padding. */
static void put_strings(struct reply *r, hid_t t, const struct type *type, const unsigned char *data, uint64_t count)
{
	bool blanks = !type->vlen && H5Tget_strpad(t) == H5T_STR_SPACEPAD;

	for (uint64_t i = 0; i < count; i++) {
		const char *s = NULL;
		size_t len = 0;

		if (type->vlen) {
			memcpy(&s, data + i * sizeof(s), sizeof(s));
			len = s ? strlen(s) : 0;
		} else {
			s = (const char *)data + i * type->size;
			len = strnlen(s, type->size);
			while (blanks && len && s[len - 1] == ' ')
				len--;
		}
		reply_str(r, (struct str){s, len});
	}
}

/* ---- attributes ---- */

struct attr_read {
	hid_t attr, type, memory;
	struct type look;
	uint8_t kind;
	uint64_t count;
	size_t item;
};

static void choose_memory(struct attr_read *x)
{
	switch (H5Tget_class(x->type)) {
	case H5T_STRING:
		x->kind = ATTR_STRINGS;
		x->memory = H5Tcopy(x->type); /* its own: nothing is converted */
		break;
	case H5T_ENUM:
		if (x->look.dtype != DTYPE_BOOL)
			break;
		x->kind = ATTR_BOOLS;
		x->memory = H5Tcopy(x->type);
		break;
	case H5T_INTEGER:
		x->kind = H5Tget_sign(x->type) == H5T_SGN_NONE ? ATTR_UINTS : ATTR_INTS;
		x->memory = H5Tcopy(x->kind == ATTR_UINTS ? H5T_NATIVE_UINT64 : H5T_NATIVE_INT64);
		break;
	case H5T_FLOAT:
		x->kind = ATTR_FLOATS;
		x->memory = H5Tcopy(H5T_NATIVE_DOUBLE);
		break;
	default:
		break;
	}
	x->item = x->memory >= 0 ? H5Tget_size(x->memory) : 0;
}

static void put_items(struct reply *r, const struct attr_read *x, const unsigned char *data)
{
	for (uint64_t i = 0; i < x->count && x->kind != ATTR_STRINGS; i++) {
		uint64_t v = 0;

		memcpy(&v, data + i * x->item, x->item < 8 ? x->item : 8); /* as little-endian numbers */
		reply_u64(r, v);
	}
	if (x->kind == ATTR_STRINGS)
		put_strings(r, x->memory, &x->look, data, x->count);
}

static void put_attr_head(struct reply *r, const char *name, const struct attr_read *x, bool scalar)
{
	reply_u8(r, REC_ATTR);
	reply_str(r, str_from(name));
	reply_str(r, str_from(x->look.text));
	reply_u8(r, x->kind);
	reply_u8(r, scalar);
	reply_u64(r, x->count);
}

static herr_t on_attr(hid_t object, const char *name, const H5A_info_t *info, void *arg)
{
	struct walk *w = arg;
	struct attr_read x = {.attr = H5Aopen(object, name, H5P_DEFAULT), .type = -1, .memory = -1};
	hid_t space = x.attr >= 0 ? H5Aget_space(x.attr) : -1;
	hssize_t points = space >= 0 ? H5Sget_simple_extent_npoints(space) : -1;
	bool scalar = space >= 0 && H5Sget_simple_extent_type(space) == H5S_SCALAR;
	unsigned char *data = NULL;
	bool read = false;

	(void)info;
	x.type = x.attr >= 0 ? H5Aget_type(x.attr) : -1;
	if (x.type >= 0)
		look_at(x.type, &x.look);
	x.count = points > 0 ? (uint64_t)points : 0;
	if (x.type >= 0 && points >= 0 && x.count <= ATTR_ITEMS_MAX)
		choose_memory(&x);
	if (x.kind && x.count && x.item && x.count <= ATTR_BYTES_MAX / x.item) {
		data = calloc((size_t)x.count, x.item);
		read = data && H5Aread(x.attr, x.memory, data) >= 0;
	}
	if (!read && x.count)
		x.kind = ATTR_NONE;
	put_attr_head(w->r, name, &x, scalar);
	if (x.kind)
		put_items(w->r, &x, data);
	if (read && x.look.vlen)
		H5Dvlen_reclaim(x.memory, space, H5P_DEFAULT, data);
	free(data);
	H5Tclose(x.memory);
	H5Tclose(x.type);
	H5Sclose(space);
	H5Aclose(x.attr);
	return w->r->failed ? -1 : 0;
}

/* ---- datasets ---- */

struct dataset {
	hid_t id, type, space, dcpl;
	struct type look;
	int rank;
	hsize_t dims[HDF5_RANK], chunk[HDF5_RANK];
	uint64_t count, bytes;
	const char *problem;
};

static void measure(struct dataset *d)
{
	if (H5Sget_simple_extent_type(d->space) == H5S_NULL) {
		d->rank = 1; /* no element at all */
		d->dims[0] = 0;
	} else {
		d->rank = H5Sget_simple_extent_ndims(d->space);
		if (d->rank < 0 || d->rank > HDF5_RANK || H5Sget_simple_extent_dims(d->space, d->dims, NULL) < 0) {
			d->problem = "its shape cannot be read";
			d->rank = 0;
		}
	}
	d->count = 1;
	for (int i = 0; i < d->rank; i++)
		if (ckd_mul(&d->count, d->count, (uint64_t)d->dims[i]))
			d->problem = "its shape overflows";
	if (!d->look.size || ckd_mul(&d->bytes, d->count, (uint64_t)d->look.size))
		d->problem = "its size overflows";
}

static void put_unreadable(struct reply *r, const char *why)
{
	reply_u8(r, HDF5_UNREADABLE);
	reply_str(r, str_from(why));
}

static void put_fill(struct reply *r, const struct dataset *d)
{
	H5D_fill_value_t status = H5D_FILL_VALUE_UNDEFINED;
	unsigned char *fill = d->look.size <= 65536 ? calloc(1, d->look.size) : NULL;

	if (fill && !d->look.vlen && H5Pfill_value_defined(d->dcpl, &status) >= 0 &&
		status == H5D_FILL_VALUE_USER_DEFINED && H5Pget_fill_value(d->dcpl, d->type, fill) >= 0)
		reply_str(r, (struct str){(char *)fill, d->look.size});
	else
		reply_str(r, STR(""));
	free(fill);
}

/* Everything at once: compact data, and strings. */
static void put_whole(struct reply *r, const struct dataset *d, bool strings)
{
	uint64_t item = d->look.vlen ? sizeof(char *) : d->look.size;
	unsigned char *data = d->count <= STRINGS_MAX / (item ? item : 1) ? calloc((size_t)d->count + 1, (size_t)item) : NULL;

	if (!data || (d->count && H5Dread(d->id, d->type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)) {
		put_unreadable(r, data ? "its data cannot be read" : "it holds too much text");
	} else if (strings) {
		reply_u8(r, HDF5_STRINGS);
		reply_u64(r, d->count);
		put_strings(r, d->type, &d->look, data, d->count);
		if (d->look.vlen)
			H5Dvlen_reclaim(d->type, d->space, H5P_DEFAULT, data);
	} else {
		reply_u8(r, HDF5_INLINE);
		reply_str(r, (struct str){(char *)data, (size_t)d->bytes});
	}
	free(data);
}

static bool put_filters(struct reply *r, const struct dataset *d)
{
	int n = H5Pget_nfilters(d->dcpl);

	if (n < 0 || n > HDF5_FILTERS)
		n = 0;
	reply_u32(r, (uint32_t)n);
	for (int i = 0; i < n; i++) {
		unsigned flags = 0, values[1] = {0};
		size_t count = 1;
		H5Z_filter_t id = H5Pget_filter2(d->dcpl, (unsigned)i, &flags, &count, values, 0, NULL, NULL);

		reply_u32(r, (uint32_t)id);
		reply_u32(r, flags);
		reply_u32(r, count ? values[0] : 0);
	}
	return true;
}

struct chunk_list {
	uint64_t count;
	struct reply list;
};

static void put_chunk(struct chunk_list *c, uint64_t index, uint64_t at, uint64_t size, uint32_t mask)
{
	c->count++;
	reply_u64(&c->list, index);
	reply_u64(&c->list, at);
	reply_u64(&c->list, size);
	reply_u32(&c->list, mask);
}

/* Reads the chunk without reading it: the driver notes where the library would have. */
static bool find_chunk(struct walk *w, const struct dataset *d, const hsize_t *start, uint64_t index, void *room,
	uint64_t room_size, struct chunk_list *out)
{
	hsize_t size = 0;
	uint32_t mask = 0;

	if (H5Dget_chunk_storage_size(d->id, start, &size) < 0 || !size) {
		H5Eclear2(H5E_DEFAULT);
		return true; /* not allocated */
	}
	if (size > room_size)
		return false;
	w->store->seen = false;
	if (H5Dread_chunk(d->id, H5P_DEFAULT, start, &mask, room) < 0 || !w->store->seen ||
		w->store->seen_size != size)
		return false;
	put_chunk(out, index, w->store->seen_at, size, mask);
	return true;
}

static bool list_all(struct walk *w, const struct dataset *d, uint64_t grid, struct chunk_list *out)
{
	uint64_t room_size = CHUNK_BYTES_MAX;
	void *room = malloc(room_size);
	hsize_t start[HDF5_RANK] = {0};
	bool ok = room != NULL;

	w->store->quiet = true;
	for (uint64_t i = 0; ok && i < grid; i++) {
		ok = find_chunk(w, d, start, i, room, room_size, out) && !out->list.failed;
		for (int k = d->rank - 1; k >= 0; k--) {
			start[k] += d->chunk[k];
			if (start[k] < d->dims[k])
				break;
			start[k] = 0;
		}
	}
	w->store->quiet = false;
	free(room);
	return ok;
}

static void put_chunks(struct walk *w, struct dataset *d)
{
	struct chunk_list chunks = {0};
	uint64_t grid = 1, bytes = d->look.size;
	bool ok = H5Pget_chunk(d->dcpl, HDF5_RANK, d->chunk) == d->rank;

	for (int i = 0; ok && i < d->rank; i++)
		ok = d->chunk[i] && !ckd_mul(&bytes, bytes, (uint64_t)d->chunk[i]) &&
		     !ckd_mul(&grid, grid, (d->dims[i] + d->chunk[i] - 1) / d->chunk[i]);
	if (!ok || bytes > CHUNK_BYTES_MAX || grid > CHUNKS_MAX) {
		put_unreadable(w->r, !ok ? "its chunks make no sense" : bytes > CHUNK_BYTES_MAX
			? "its chunks are larger than 256 MiB" : "it has more than 4194304 chunks");
		return;
	}
	if (!list_all(w, d, grid, &chunks)) {
		put_unreadable(w->r, "its chunks cannot be found");
	} else {
		reply_u8(w->r, HDF5_CHUNKED);
		for (int i = 0; i < d->rank; i++)
			reply_u64(w->r, d->chunk[i]);
		put_fill(w->r, d);
		put_filters(w->r, d);
		reply_u64(w->r, chunks.count);
		reply_bytes(w->r, chunks.list.bytes, chunks.list.len);
		w->r->failed |= chunks.list.failed;
	}
	free(chunks.list.bytes);
}

static void put_contiguous(struct reply *r, const struct dataset *d)
{
	haddr_t at = H5Dget_offset(d->id);
	hsize_t stored = H5Dget_storage_size(d->id);

	if (H5Pget_external_count(d->dcpl) != 0) {
		put_unreadable(r, "its data lie in another file, which is not opened");
		return;
	}
	reply_u8(r, HDF5_CONTIGUOUS);
	/* the library adds the user block even to "undefined" */
	if (at == HADDR_UNDEF || !stored)
		at = UINT64_MAX;
	reply_u64(r, at);
	reply_u64(r, at == UINT64_MAX ? d->bytes : stored);
	put_fill(r, d);
}

static void put_layout(struct walk *w, struct dataset *d)
{
	H5D_layout_t layout = H5Pget_layout(d->dcpl);

	if (d->problem)
		put_unreadable(w->r, d->problem);
	else if (layout == H5D_VIRTUAL)
		put_unreadable(w->r, "it is put together from other files, which are not opened");
	else if (layout == H5D_CONTIGUOUS && H5Pget_external_count(d->dcpl) != 0)
		put_contiguous(w->r, d);
	else if (d->look.string)
		put_whole(w->r, d, true);
	else if (d->look.vlen)
		put_unreadable(w->r, "its elements have no fixed size");
	else if (layout == H5D_COMPACT)
		put_whole(w->r, d, false);
	else if (layout == H5D_CHUNKED)
		put_chunks(w, d);
	else if (layout == H5D_CONTIGUOUS)
		put_contiguous(w->r, d);
	else
		put_unreadable(w->r, "its layout is unknown");
}

static void put_head(struct reply *r, enum hdf5_kind kind, struct str path)
{
	reply_u8(r, REC_OBJECT);
	reply_u8(r, (uint8_t)kind);
	reply_str(r, path);
}

static void put_dataset(struct walk *w, hid_t id, struct str path)
{
	struct dataset d = {.id = id, .type = H5Dget_type(id), .space = H5Dget_space(id),
		.dcpl = H5Dget_create_plist(id)};

	put_head(w->r, HDF5_DATASET, path);
	if (d.type >= 0)
		look_at(d.type, &d.look);
	if (d.type < 0 || d.space < 0 || d.dcpl < 0)
		d.problem = "its description cannot be read";
	else
		measure(&d);
	reply_u8(w->r, (uint8_t)(d.look.string ? DTYPE_STRING : d.look.dtype));
	reply_u8(w->r, d.look.big);
	reply_u32(w->r, d.look.size);
	reply_str(w->r, str_from(d.look.text));
	reply_u32(w->r, (uint32_t)d.rank);
	for (int i = 0; i < d.rank; i++)
		reply_u64(w->r, d.dims[i]);
	put_layout(w, &d);
	H5Pclose(d.dcpl);
	H5Sclose(d.space);
	H5Tclose(d.type);
}

static void put_broken(struct walk *w, struct str path, const char *why)
{
	put_head(w->r, HDF5_DATASET, path);
	reply_u8(w->r, DTYPE_NONE);
	reply_u8(w->r, 0);
	reply_u32(w->r, 0);
	reply_str(w->r, STR(""));
	reply_u32(w->r, 0);
	put_unreadable(w->r, why);
}

static void put_link(struct walk *w, struct str path, struct str target, bool soft)
{
	put_head(w->r, HDF5_LINK, path);
	reply_u8(w->r, soft);
	reply_str(w->r, target);
}

/* ---- the walk ---- */

static struct seen *seen_slot(const struct walk *w, uint64_t addr)
{
	size_t i = (size_t)(addr * 0x9e3779b97f4a7c15ull >> 20) & (w->seen_slots - 1);

	while (w->seen[i].path.ptr && w->seen[i].addr != addr)
		i = (i + 1) & (w->seen_slots - 1);
	return &w->seen[i];
}

static int seen_grow(struct walk *w)
{
	struct seen *old = w->seen;
	size_t n = w->seen_slots;

	w->seen_slots = n ? n * 2 : 1024;
	w->seen = calloc(w->seen_slots, sizeof(*w->seen));
	if (!w->seen)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		if (old[i].path.ptr)
			*seen_slot(w, old[i].addr) = old[i];
	free(old);
	return 0;
}

/* 1 = it was there before, under *first; a negative errno */
static int see(struct walk *w, uint64_t addr, struct str path, struct str *first)
{
	struct seen *s;

	if (w->seen_count * 2 >= w->seen_slots && seen_grow(w) < 0)
		return -ENOMEM;
	s = seen_slot(w, addr);
	if (s->path.ptr) {
		*first = s->path;
		return 1;
	}
	*s = (struct seen){addr, path};
	w->seen_count++;
	return 0;
}

static int enqueue(struct walk *w, uint64_t addr, struct str path, uint32_t depth)
{
	if (w->count == w->cap) {
		size_t cap = w->cap ? w->cap * 2 : 256;
		void *grown = reallocarray(w->queue, cap, sizeof(*w->queue));

		if (!grown)
			return -ENOMEM;
		w->queue = grown;
		w->cap = cap;
	}
	w->queue[w->count++] = (struct group){addr, path, depth};
	return 0;
}

struct links {
	struct walk *w;
	struct group group;
	int r;
};

static int put_object(struct walk *w, uint64_t addr, struct str path, uint32_t depth)
{
	hid_t id = H5Oopen_by_addr(w->file, addr);
	H5I_type_t type = id >= 0 ? H5Iget_type(id) : H5I_BADID;
	int r = 0;

	if (type == H5I_GROUP) {
		put_head(w->r, HDF5_GROUP, path);
		r = enqueue(w, addr, path, depth);
	} else if (type == H5I_DATASET) {
		put_dataset(w, id, path);
	} else if (type != H5I_DATATYPE) {
		struct error why = {0};

		hdf5_complain(&why, "the object cannot be read");
		put_broken(w, path, why.text);
	}
	if (type == H5I_GROUP || type == H5I_DATASET) {
		hsize_t at = 0;

		if (H5Aiterate2(id, H5_INDEX_NAME, H5_ITER_INC, &at, on_attr, w) < 0 && !w->r->failed) {
			reply_u8(w->r, REC_ATTR); /* damaged attributes: one without value says so */
			reply_str(w->r, STR("?"));
			reply_str(w->r, STR("unreadable"));
			reply_u8(w->r, ATTR_NONE);
			reply_u8(w->r, 0);
			reply_u64(w->r, 0);
		}
	}
	H5Oclose(id);
	H5Eclear2(H5E_DEFAULT);
	return w->r->failed ? -ENOMEM : r;
}

static void put_soft(struct walk *w, hid_t group, const char *name, const H5L_info_t *info, struct str path)
{
	char *target = info->u.val_size < 65536 ? calloc(1, info->u.val_size + 1) : NULL;

	if (target && H5Lget_val(group, name, target, info->u.val_size, H5P_DEFAULT) >= 0)
		put_link(w, path, str_from(target), true);
	else
		put_broken(w, path, "the link cannot be read");
	free(target);
}

static herr_t on_link(hid_t group, const char *name, const H5L_info_t *info, void *arg)
{
	struct links *x = arg;
	struct walk *w = x->w;
	size_t before = x->group.path.len, len = strlen(name);
	char *text = arena_alloc(w->a, before + len + 2);
	struct str path = {text, before + len + (before ? 1 : 0)}, first;
	int r;

	if (!text) {
		x->r = -ENOMEM;
		return -1;
	}
	memcpy(text, x->group.path.ptr, before);
	if (before)
		text[before++] = '/';
	memcpy(text + before, name, len);
	if (info->type == H5L_TYPE_SOFT) {
		put_soft(w, group, name, info, path);
	} else if (info->type != H5L_TYPE_HARD) {
		put_broken(w, path, "it lies in another file, which is not opened");
	} else if (x->group.depth >= LIMIT_NESTING) {
		put_broken(w, path, "groups are nested too deeply");
	} else {
		r = see(w, info->u.address, path, &first);
		if (r == 1)
			put_link(w, path, first, false);
		else if (r == 0)
			r = put_object(w, info->u.address, path, x->group.depth + 1);
		x->r = r < 0 ? r : 0;
	}
	if (w->r->failed)
		x->r = -ENOMEM;
	return x->r < 0 ? -1 : 0;
}

static int list_group(struct walk *w, struct group g, struct error *e)
{
	struct links x = {w, g, 0};
	hid_t id = H5Oopen_by_addr(w->file, g.addr);
	hsize_t at = 0;
	int r = 0;

	if (id < 0 || H5Literate(id, H5_INDEX_NAME, H5_ITER_INC, &at, on_link, &x) < 0)
		r = x.r < 0 ? error_set(e, ENOMEM, "out of memory for the file's structure")
			    : hdf5_complain(e, "group cannot be listed");
	H5Oclose(id);
	return r;
}

static uint32_t superblock_version(hid_t file)
{
	hid_t fcpl = H5Fget_create_plist(file);
	unsigned super = 0, x = 0, y = 0, z = 0;

	H5Pget_version(fcpl, &super, &x, &y, &z);
	H5Pclose(fcpl);
	return super;
}

int hdf5_list_work(void *arg, struct reply *r, struct error *e)
{
	struct hdf5_list_work *x = arg;
	struct walk w = {.store = &x->store, .r = r};
	H5O_info_t root;
	struct str first;
	int result;

	hdf5_library_init();
	w.a = arena_new(LIMIT_MODEL_MEMORY);
	if (!w.a)
		return error_set(e, ENOMEM, "out of memory");
	result = hdf5_store_open(&x->store, false, H5F_ACC_RDONLY, &w.file, e);
	if (result < 0)
		return result;
	reply_u8(r, REC_FILE);
	reply_u32(r, superblock_version(w.file));
	if (H5Oget_info2(w.file, &root, H5O_INFO_BASIC) < 0)
		return hdf5_complain(e, "the root group cannot be read");
	if (see(&w, root.addr, STR(""), &first) < 0 || put_object(&w, root.addr, STR(""), 0) < 0)
		return error_set(e, ENOMEM, "out of memory for the file's structure");
	while (!result && w.head < w.count) {
		struct group g = w.queue[w.head++];
		struct error why = {0};

		result = list_group(&w, g, &why);
		if (result == -EIO && g.path.len) { /* the others may be sound */
			put_broken(&w, g.path, why.text);
			H5Eclear2(H5E_DEFAULT);
			result = 0;
		} else if (result < 0) {
			result = error_set(e, -result, "%s", why.text);
		}
	}
	reply_u8(r, REC_END);
	return result;
}

int hdf5_chunk_work(void *arg, struct reply *r, struct error *e)
{
	struct hdf5_chunk_work *x = arg;
	hsize_t start[HDF5_RANK], count[HDF5_RANK];
	hid_t file, id, type, from, to;
	uint64_t bytes;
	void *data;
	int result;

	hdf5_library_init();
	result = hdf5_store_open(&x->store, false, H5F_ACC_RDONLY, &file, e);
	if (result < 0)
		return result;
	id = H5Dopen2(file, x->path.ptr, H5P_DEFAULT);
	type = H5Dget_type(id);
	from = H5Dget_space(id);
	bytes = H5Tget_size(type);
	for (uint32_t i = 0; i < x->rank; i++) {
		start[i] = x->start[i];
		count[i] = x->count[i];
		bytes *= x->count[i]; /* at most a chunk, which was measured */
	}
	to = H5Screate_simple((int)x->rank, count, NULL);
	data = malloc((size_t)bytes ? (size_t)bytes : 1);
	if (!data)
		return error_set(e, ENOMEM, "out of memory for a chunk");
	if (H5Sselect_hyperslab(from, H5S_SELECT_SET, start, NULL, count, NULL) < 0 ||
		H5Dread(id, type, to, from, H5P_DEFAULT, data) < 0)
		return hdf5_complain(e, "chunk cannot be decoded");
	reply_bytes(r, data, (size_t)bytes);
	return 0;
}
