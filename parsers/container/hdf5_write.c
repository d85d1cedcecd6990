/* SPDX-License-Identifier: MIT */
/* The child's part of writing: libhdf5 changes a file that is kept as ranges; see hdf5_change.h. */
#include "parsers/container/hdf5_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define TEMPORARY "/wiamodel.new"

struct writer {
	hid_t file, lcpl;
	struct error *e;
};

static int refuse(struct writer *w, const char *what, struct str path)
{
	char text[300];

	snprintf(text, sizeof(text), "%s '%.*s'", what, STR_ARG(path));
	return hdf5_complain(w->e, text);
}

/* ---- types ---- */

static hid_t half(void)
{
	hid_t t = H5Tcopy(H5T_IEEE_F32LE);

	H5Tset_fields(t, 15, 10, 5, 0, 10);
	H5Tset_size(t, 2);
	H5Tset_ebias(t, 15);
	return t;
}

static hid_t boolean(void)
{
	hid_t t = H5Tenum_create(H5T_STD_I8LE);
	signed char no = 0, yes = 1;

	H5Tenum_insert(t, "FALSE", &no);
	H5Tenum_insert(t, "TRUE", &yes);
	return t;
}

static hid_t text(void)
{
	hid_t t = H5Tcopy(H5T_C_S1);

	H5Tset_size(t, H5T_VARIABLE);
	H5Tset_cset(t, H5T_CSET_UTF8);
	return t;
}

static hid_t ordered(hid_t t, bool big)
{
	if (big && t >= 0)
		H5Tset_order(t, H5T_ORDER_BE);
	return t;
}

static hid_t complex_type(enum dtype d, bool big)
{
	hid_t part = ordered(d == DTYPE_COMPLEX32 ? half() : H5Tcopy(d == DTYPE_COMPLEX64 ? H5T_IEEE_F32LE : H5T_IEEE_F64LE),
		big);
	size_t size = H5Tget_size(part);
	hid_t t = H5Tcreate(H5T_COMPOUND, 2 * size);

	H5Tinsert(t, "r", 0, part);
	H5Tinsert(t, "i", size, part);
	H5Tclose(part);
	return t;
}

static hid_t opaque(enum dtype d)
{
	hid_t t = H5Tcreate(H5T_OPAQUE, dtype_info(d)->block_bytes);

	H5Tset_tag(t, "");
	return t;
}

static hid_t type_of(enum dtype d, bool big)
{
	switch (d) {
	case DTYPE_BOOL: return boolean();
	case DTYPE_INT8: return H5Tcopy(H5T_STD_I8LE);
	case DTYPE_INT16: return ordered(H5Tcopy(H5T_STD_I16LE), big);
	case DTYPE_INT32: return ordered(H5Tcopy(H5T_STD_I32LE), big);
	case DTYPE_INT64: return ordered(H5Tcopy(H5T_STD_I64LE), big);
	case DTYPE_UINT8: return H5Tcopy(H5T_STD_U8LE);
	case DTYPE_UINT16: return ordered(H5Tcopy(H5T_STD_U16LE), big);
	case DTYPE_UINT32: return ordered(H5Tcopy(H5T_STD_U32LE), big);
	case DTYPE_UINT64: return ordered(H5Tcopy(H5T_STD_U64LE), big);
	case DTYPE_FLOAT16: return ordered(half(), big);
	case DTYPE_FLOAT32: return ordered(H5Tcopy(H5T_IEEE_F32LE), big);
	case DTYPE_FLOAT64: return ordered(H5Tcopy(H5T_IEEE_F64LE), big);
	case DTYPE_COMPLEX32: case DTYPE_COMPLEX64: case DTYPE_COMPLEX128: return complex_type(d, big);
	case DTYPE_STRING: return text();
	default: return opaque(d);
	}
}

/* ---- attributes ---- */

static int put_attr(hid_t object, const char *name, hid_t type, hid_t space, const void *data)
{
	hid_t a;
	int r = -1;

	if (H5Aexists(object, name) > 0)
		H5Adelete(object, name);
	a = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
	if (a >= 0 && H5Awrite(a, type, data) >= 0)
		r = 0;
	H5Aclose(a);
	return r;
}

static int put_text_attr(hid_t object, const char *name, const char *s)
{
	hid_t t = text(), space = H5Screate(H5S_SCALAR);
	int r = put_attr(object, name, t, space, &s);

	H5Sclose(space);
	H5Tclose(t);
	return r;
}

static const struct value *item(const struct value *v, size_t i)
{
	return v->kind == VALUE_LIST ? v->list.items[i] : v;
}

static double real_of(const struct value *v)
{
	return v->kind == VALUE_INT ? (double)v->integer : v->real;
}

/* The items as the library wants them; their type in *type. NULL: not one kind. */
static void *items_of(const struct value *v, size_t n, hid_t *type)
{
	enum value_kind kind = n ? item(v, 0)->kind : VALUE_FLOAT;
	void *all = calloc(n ? n : 1, 8);
	bool reals = false, singles = true;

	for (size_t i = 0; i < n; i++) {
		enum value_kind k = item(v, i)->kind;

		reals |= k == VALUE_FLOAT || k == VALUE_FLOAT32;
		singles &= k == VALUE_FLOAT32;
	}
	*type = kind == VALUE_STRING ? text() : kind == VALUE_BOOL ? boolean()
		: kind == VALUE_BIGINT ? H5Tcopy(H5T_STD_U64LE) : !reals && n ? H5Tcopy(H5T_STD_I64LE)
		: singles && n ? H5Tcopy(H5T_IEEE_F32LE) : H5Tcopy(H5T_IEEE_F64LE);
	for (size_t i = 0; all && i < n; i++) {
		const struct value *x = item(v, i);

		if (kind == VALUE_STRING) {
			((const char **)all)[i] = x->str.ptr; /* hdf5_attr_holds: no NUL inside; copied with one behind */
		} else if (kind == VALUE_BOOL) {
			((signed char *)all)[i] = x->boolean;
		} else if (kind == VALUE_BIGINT) {
			((uint64_t *)all)[i] = strtoull(x->str.ptr, NULL, 10);
		} else if (!reals) {
			((int64_t *)all)[i] = x->integer;
		} else if (singles) {
			((float *)all)[i] = (float)x->real;
		} else {
			((double *)all)[i] = real_of(x);
		}
	}
	return all;
}

static int set_attr(struct writer *w, const struct hdf5_step *s)
{
	hsize_t n = s->value->kind == VALUE_LIST ? s->value->list.count : 1;
	hid_t object = H5Oopen(w->file, s->path.len ? s->path.ptr : "/", H5P_DEFAULT), type = -1;
	hid_t space = s->value->kind == VALUE_LIST ? H5Screate_simple(1, &n, NULL) : H5Screate(H5S_SCALAR);
	void *all = items_of(s->value, (size_t)n, &type);
	int r = object >= 0 && all ? put_attr(object, s->to.ptr, type, space, all) : -1;

	free(all);
	H5Tclose(type);
	H5Sclose(space);
	H5Oclose(object);
	return r < 0 ? refuse(w, "cannot set attribute", s->to) : 0;
}

static int drop_attr(struct writer *w, const struct hdf5_step *s)
{
	hid_t object = H5Oopen(w->file, s->path.len ? s->path.ptr : "/", H5P_DEFAULT);
	int r = object < 0 ? -1 : H5Adelete(object, s->to.ptr);

	H5Oclose(object);
	return r < 0 ? refuse(w, "cannot remove attribute", s->to) : 0;
}

struct copying {
	hid_t to;
	bool failed;
};

/* One attribute from the dataset that gets replaced, in its own type. */
static herr_t copy_attr(hid_t from, const char *name, const H5A_info_t *info, void *arg)
{
	struct copying *c = arg;
	hid_t a = H5Aopen(from, name, H5P_DEFAULT), type = H5Aget_type(a), space = H5Aget_space(a);
	hssize_t n = H5Sget_simple_extent_npoints(space);
	size_t size = H5Tget_size(type);
	void *data = n >= 0 && n < (1 << 26) && size && size < (1 << 26) ? calloc((size_t)n + 1, size) : NULL;

	(void)info;
	c->failed |= !data || (n && H5Aread(a, type, data) < 0) || put_attr(c->to, name, type, space, data) < 0;
	free(data);
	H5Sclose(space);
	H5Tclose(type);
	H5Aclose(a);
	return c->failed ? -1 : 0;
}

/* ---- datasets ---- */

static hid_t new_dataset(struct writer *w, const char *path, const struct hdf5_step *s)
{
	hid_t type = type_of(s->dtype, s->big_endian), dcpl = H5Pcreate(H5P_DATASET_CREATE), space, id;
	hsize_t dims[HDF5_RANK];

	for (uint32_t i = 0; i < s->rank; i++)
		dims[i] = s->dims[i];
	space = s->rank ? H5Screate_simple((int)s->rank, dims, NULL) : H5Screate(H5S_SCALAR);
	H5Pset_obj_track_times(dcpl, 0);
	if (s->dtype != DTYPE_STRING) {
		H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY);
		H5Pset_fill_time(dcpl, H5D_FILL_TIME_NEVER);
	}
	id = H5Dcreate2(w->file, path, type, space, w->lcpl, dcpl, H5P_DEFAULT);
	H5Pclose(dcpl);
	H5Sclose(space);
	H5Tclose(type);
	return id;
}

static int write_strings(hid_t id, const struct hdf5_step *s, uint64_t count)
{
	const char **all = calloc((size_t)count + 1, sizeof(*all));
	hid_t t = text();
	int r = -1;

	for (uint64_t i = 0; all && i < count; i++)
		all[i] = s->strings[i].ptr ? s->strings[i].ptr : "";
	if (all && (!count || H5Dwrite(id, t, H5S_ALL, H5S_ALL, H5P_DEFAULT, all) >= 0))
		r = 0;
	free(all);
	H5Tclose(t);
	return r;
}

/* Types that HDF5 lacks are opaque bytes and an attribute that names them, as Keras does for bfloat16. */
static int name_type(hid_t id, enum dtype d)
{
	hid_t t = H5Dget_type(id);
	bool hidden = H5Tget_class(t) == H5T_OPAQUE;
	int r = 0;

	H5Tclose(t);
	if (hidden)
		r = put_text_attr(id, "dtype", dtype_info(d)->name);
	else if (H5Aexists(id, "dtype") > 0)
		r = H5Adelete(id, "dtype") < 0 ? -1 : 0;
	return r;
}

static int make(struct writer *w, const struct hdf5_step *s, uint64_t *offset)
{
	hid_t id = new_dataset(w, s->old ? TEMPORARY : s->path.ptr, s);
	struct copying c = {.to = id};
	uint64_t count = 1;
	haddr_t at;
	int r = id < 0 ? -1 : 0;

	for (uint32_t i = 0; i < s->rank; i++)
		count *= s->dims[i]; /* the caller saw that it fits */
	if (!r && s->old) {
		hid_t old = H5Dopen2(w->file, s->path.ptr, H5P_DEFAULT);
		hsize_t pos = 0;

		if (old < 0 || H5Aiterate2(old, H5_INDEX_NAME, H5_ITER_INC, &pos, copy_attr, &c) < 0 || c.failed)
			r = -1;
		H5Dclose(old);
		if (!r && (H5Ldelete(w->file, s->path.ptr, H5P_DEFAULT) < 0 ||
				  H5Lmove(w->file, TEMPORARY, w->file, s->path.ptr, w->lcpl, H5P_DEFAULT) < 0))
			r = -1;
	}
	if (!r)
		r = name_type(id, s->dtype);
	if (!r && s->dtype == DTYPE_STRING)
		r = write_strings(id, s, count);
	at = r ? HADDR_UNDEF : H5Dget_offset(id);
	*offset = s->dtype == DTYPE_STRING || !count ? UINT64_MAX : at;
	if (!r && *offset == UINT64_MAX && s->dtype != DTYPE_STRING && count)
		r = -1;
	H5Dclose(id);
	return r ? refuse(w, "cannot make dataset", s->path) : 0;
}

/* The part of the array that lies in the chunk at `start`, with the strides of a whole chunk. */
static void cut_chunk(const unsigned char *all, int rank, const hsize_t *dims, const hsize_t *chunk, const hsize_t *start,
	size_t element, unsigned char *out)
{
	hsize_t at[HDF5_RANK] = {0}, run = chunk[rank - 1];
	int k = 0;

	if (run > dims[rank - 1] - start[rank - 1])
		run = dims[rank - 1] - start[rank - 1];
	while (k >= 0) {
		hsize_t from = 0, to = 0;

		for (int i = 0; i < rank; i++) {
			from = from * dims[i] + start[i] + at[i];
			to = to * chunk[i] + at[i];
		}
		memcpy(out + to * element, all + from * element, (size_t)run * element);
		for (k = rank - 2; k >= 0; k--) {
			if (++at[k] < chunk[k] && start[k] + at[k] < dims[k])
				break;
			at[k] = 0;
		}
	}
}

static int write_chunks(hid_t id, hid_t dcpl, hid_t space, size_t element, const void *bytes)
{
	hsize_t dims[HDF5_RANK], chunk[HDF5_RANK], start[HDF5_RANK] = {0};
	int rank = H5Pget_chunk(dcpl, HDF5_RANK, chunk), k = 0, r = 0;
	uint32_t mask = (uint32_t)((1ull << H5Pget_nfilters(dcpl)) - 1);
	size_t size = element;
	unsigned char *buf;

	if (rank < 1 || H5Sget_simple_extent_ndims(space) != rank || H5Sget_simple_extent_dims(space, dims, NULL) < 0)
		return -1;
	for (int i = 0; i < rank; i++)
		size *= (size_t)chunk[i]; /* measured when it was listed */
	buf = malloc(size);
	while (buf && r == 0 && k >= 0) {
		memset(buf, 0, size);
		cut_chunk(bytes, rank, dims, chunk, start, element, buf);
		r = H5Dwrite_chunk(id, H5P_DEFAULT, mask, start, size, buf) < 0 ? -1 : 0;
		for (k = rank - 1; k >= 0; k--) {
			if ((start[k] += chunk[k]) < dims[k])
				break;
			start[k] = 0;
		}
	}
	r = buf ? r : -1;
	free(buf);
	return r;
}

static int write_data(struct writer *w, const struct hdf5_step *s)
{
	hid_t id = H5Dopen2(w->file, s->path.ptr, H5P_DEFAULT), type = id >= 0 ? H5Dget_type(id) : -1;
	hid_t space = id >= 0 ? H5Dget_space(id) : -1;
	hssize_t n = space >= 0 ? H5Sget_simple_extent_npoints(space) : -1;
	int r = -1;

	if (n > 0 && (uint64_t)n * H5Tget_size(type) == s->size) {
		if (s->unpacked) {
			hid_t dcpl = H5Dget_create_plist(id);

			r = write_chunks(id, dcpl, space, H5Tget_size(type), s->bytes);
			H5Pclose(dcpl);
		} else if (H5Dwrite(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, s->bytes) >= 0) {
			r = 0;
		}
	}
	H5Sclose(space);
	H5Tclose(type);
	H5Dclose(id);
	return r ? refuse(w, "cannot write dataset", s->path) : 0;
}

static int make_group(struct writer *w, const struct hdf5_step *s)
{
	hid_t id = H5Gopen2(w->file, s->path.ptr, H5P_DEFAULT), gcpl = -1;

	if (id < 0) {
		gcpl = H5Pcreate(H5P_GROUP_CREATE);
		H5Pset_obj_track_times(gcpl, 0);
		id = H5Gcreate2(w->file, s->path.ptr, w->lcpl, gcpl, H5P_DEFAULT);
		H5Pclose(gcpl);
	}
	H5Gclose(id);
	return id < 0 ? refuse(w, "cannot make group", s->path) : 0;
}

static int do_step(struct writer *w, const struct hdf5_step *s, uint64_t *offset)
{
	*offset = UINT64_MAX;
	switch (s->kind) {
	case HDF5_MAKE:
		return make(w, s, offset);
	case HDF5_MAKE_GROUP:
		return make_group(w, s);
	case HDF5_WRITE:
		return write_data(w, s);
	case HDF5_MOVE:
		return H5Lmove(w->file, s->path.ptr, w->file, s->to.ptr, w->lcpl, H5P_DEFAULT) < 0
			? refuse(w, "cannot rename to", s->to)
			: 0;
	case HDF5_DROP:
		return H5Ldelete(w->file, s->path.ptr, H5P_DEFAULT) < 0 ? refuse(w, "cannot remove", s->path) : 0;
	case HDF5_SET_ATTR:
		return set_attr(w, s);
	case HDF5_DROP_ATTR:
		return drop_attr(w, s);
	}
	return error_set(w->e, EINVAL, "unknown step");
}

int hdf5_change_work(void *arg, struct reply *r, struct error *e)
{
	struct hdf5_change_work *x = arg;
	struct writer w = {.e = e};
	uint64_t *offsets = calloc(x->count + 1, sizeof(*offsets));
	int result;

	hdf5_library_init();
	if (!offsets)
		return error_set(e, ENOMEM, "out of memory");
	result = hdf5_store_open(&x->store, x->create, H5F_ACC_RDWR, &w.file, e);
	if (result < 0)
		return result;
	w.lcpl = H5Pcreate(H5P_LINK_CREATE);
	H5Pset_create_intermediate_group(w.lcpl, 1);
	for (size_t i = 0; !result && i < x->count; i++)
		result = do_step(&w, &x->steps[i], &offsets[i]);
	if (result < 0)
		return result;
	if (H5Fclose(w.file) < 0)
		return hdf5_complain(e, "the changed file cannot be completed");
	reply_u64(r, x->store.size);
	reply_u32(r, (uint32_t)x->count);
	for (size_t i = 0; i < x->count; i++)
		reply_u64(r, offsets[i]);
	reply_u64(r, x->store.count);
	for (size_t i = 0; i < x->store.count; i++) {
		reply_u64(r, x->store.written[i].offset);
		reply_u64(r, x->store.written[i].size);
		reply_bytes(r, x->store.written[i].bytes, (size_t)x->store.written[i].size);
	}
	return 0;
}
