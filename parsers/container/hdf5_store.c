/* SPDX-License-Identifier: MIT */
#include "parsers/container/hdf5_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif

struct file {
	H5FD_t pub; /* the library's; must be first */
	struct hdf5_store *store;
	haddr_t eoa;
};

/* what the next open() of the driver opens: the library passes only names */
static struct hdf5_store *opening;

/* ---- what was written ---- */

/* Index of the first range that ends behind offset. */
static size_t first_behind(const struct hdf5_store *s, uint64_t offset)
{
	size_t low = 0, high = s->count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (s->written[mid].offset + s->written[mid].size > offset)
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

static int insert_range(struct hdf5_store *s, size_t at, uint64_t offset, const unsigned char *bytes, uint64_t size)
{
	unsigned char *copy = malloc((size_t)size);

	if (!copy)
		return -ENOMEM;
	if (s->count == s->cap) {
		size_t cap = s->cap ? s->cap * 2 : 64;
		void *grown = reallocarray(s->written, cap, sizeof(*s->written));

		if (!grown) {
			free(copy);
			return -ENOMEM;
		}
		s->written = grown;
		s->cap = cap;
	}
	memcpy(copy, bytes, (size_t)size);
	memmove(&s->written[at + 1], &s->written[at], (s->count - at) * sizeof(*s->written));
	s->written[at] = (struct hdf5_range){offset, size, copy};
	s->count++;
	return 0;
}

static int store_write(struct hdf5_store *s, uint64_t offset, const unsigned char *bytes, uint64_t size)
{
	size_t i = first_behind(s, offset);

	while (size) {
		struct hdf5_range *w = i < s->count ? &s->written[i] : NULL;
		uint64_t n = size;

		if (w && w->offset <= offset) {
			uint64_t in = offset - w->offset;

			n = w->size - in < size ? w->size - in : size;
			memcpy(w->bytes + in, bytes, (size_t)n);
		} else {
			if (w && w->offset - offset < size)
				n = w->offset - offset;
			if (insert_range(s, i, offset, bytes, n) < 0)
				return -ENOMEM;
		}
		i++;
		offset += n;
		bytes += n;
		size -= n;
	}
	return 0;
}

static int store_read(struct hdf5_store *s, uint64_t offset, unsigned char *buf, uint64_t size)
{
	uint64_t in_base = offset < s->base ? s->base - offset : 0;
	size_t i = first_behind(s, offset);

	if (in_base > size)
		in_base = size;
	if (in_base && extent_read(&s->content, offset, buf, (size_t)in_base, NULL) < 0)
		return -EIO;
	if (in_base < size)
		memset(buf + in_base, 0, (size_t)(size - in_base));
	for (; i < s->count && s->written[i].offset < offset + size; i++) {
		const struct hdf5_range *w = &s->written[i];
		uint64_t from = w->offset > offset ? w->offset : offset;
		uint64_t end = w->offset + w->size < offset + size ? w->offset + w->size : offset + size;

		memcpy(buf + (from - offset), w->bytes + (from - w->offset), (size_t)(end - from));
	}
	return 0;
}

/* ---- the driver ---- */

static H5FD_t *drv_open(const char *name, unsigned flags, hid_t fapl, haddr_t maxaddr)
{
	struct file *f = calloc(1, sizeof(*f));

	(void)name;
	(void)flags;
	(void)fapl;
	(void)maxaddr;
	if (!f)
		return NULL;
	f->store = opening;
	return &f->pub;
}

static herr_t drv_close(H5FD_t *h)
{
	free(h);
	return 0;
}

static herr_t drv_query(const H5FD_t *h, unsigned long *flags)
{
	(void)h;
	*flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_AGGREGATE_SMALLDATA;
	return 0;
}

static haddr_t drv_get_eoa(const H5FD_t *h, H5FD_mem_t type)
{
	(void)type;
	return ((const struct file *)h)->eoa;
}

static herr_t drv_set_eoa(H5FD_t *h, H5FD_mem_t type, haddr_t addr)
{
	(void)type;
	((struct file *)h)->eoa = addr;
	return 0;
}

static haddr_t drv_get_eof(const H5FD_t *h, H5FD_mem_t type)
{
	(void)type;
	return ((const struct file *)h)->store->size;
}

static herr_t drv_read(H5FD_t *h, H5FD_mem_t type, hid_t dxpl, haddr_t addr, size_t size, void *buf)
{
	struct file *f = (struct file *)h;

	(void)dxpl;
	if (addr == HADDR_UNDEF || addr > INT64_MAX || size > INT64_MAX - addr)
		return -1;
	if (type == H5FD_MEM_DRAW && f->store->quiet) {
		f->store->seen = true;
		f->store->seen_at = addr;
		f->store->seen_size = size;
		return 0;
	}
	return store_read(f->store, addr, buf, size) < 0 ? -1 : 0;
}

static herr_t drv_write(H5FD_t *h, H5FD_mem_t type, hid_t dxpl, haddr_t addr, size_t size, const void *buf)
{
	struct file *f = (struct file *)h;

	(void)type;
	(void)dxpl;
	if (addr == HADDR_UNDEF || addr > INT64_MAX || size > INT64_MAX - addr ||
		store_write(f->store, addr, buf, size) < 0)
		return -1;
	if (addr + size > f->store->size)
		f->store->size = addr + size;
	return 0;
}

static herr_t drv_truncate(H5FD_t *h, hid_t dxpl, hbool_t closing)
{
	struct file *f = (struct file *)h;

	(void)dxpl;
	(void)closing;
	if (f->eoa > f->store->size)
		f->store->size = f->eoa;
	return 0;
}

static const H5FD_class_t driver = {
#ifdef H5FD_CLASS_VERSION
	.version = H5FD_CLASS_VERSION,
	.value = (H5FD_class_value_t)511,
#endif
	.name = "wiamodel",
	.maxaddr = INT64_MAX,
	.fc_degree = H5F_CLOSE_STRONG,
	.open = drv_open,
	.close = drv_close,
	.query = drv_query,
	.get_eoa = drv_get_eoa,
	.set_eoa = drv_set_eoa,
	.get_eof = drv_get_eof,
	.read = drv_read,
	.write = drv_write,
	.truncate = drv_truncate,
	.fl_map = H5FD_FLMAP_DICHOTOMY,
};

/* ---- the library ---- */

void hdf5_library_init(void)
{
	H5open();
	H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
	H5PLset_loading_state(0);
}

static herr_t innermost(unsigned n, const H5E_error2_t *err, void *arg)
{
	if (n == 0 && err->desc)
		snprintf(arg, 200, "%s", err->desc);
	return 0;
}

int hdf5_complain(struct error *e, const char *what)
{
	char why[200] = "";

	H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, innermost, why);
	return error_set(e, EIO, "%s%s%s", what, why[0] ? ": " : "", why);
}

int hdf5_store_open(struct hdf5_store *s, bool create, unsigned flags, hid_t *file, struct error *e)
{
	hid_t id = H5FDregister(&driver), fapl = H5Pcreate(H5P_FILE_ACCESS), fcpl = H5Pcreate(H5P_FILE_CREATE);

	opening = s;
	s->base = s->size = s->content.size;
	*file = -1;
	if (id < 0 || fapl < 0 || fcpl < 0 || H5Pset_driver(fapl, id, NULL) < 0 ||
		H5Pset_fclose_degree(fapl, H5F_CLOSE_STRONG) < 0 || H5Pset_alignment(fapl, 4096, 64) < 0 ||
		H5Pset_obj_track_times(fcpl, 0) < 0)
		return hdf5_complain(e, "libhdf5 does not start");
	*file = create ? H5Fcreate("model", H5F_ACC_TRUNC, fcpl, fapl) : H5Fopen("model", flags, fapl);
	return *file < 0 ? hdf5_complain(e, "not readable as HDF5") : 0;
}
