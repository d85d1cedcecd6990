/* SPDX-License-Identifier: MIT */
#include "parsers/codec/convert.h"

#include "parsers/core/check.h"
#include "parsers/core/limits.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <zlib.h>

/* Bytes of input or output that a codec holds at a time. */
enum { CHUNK = 64 << 10 };

/*
 * Element codecs: output unit k (out_unit bytes) depends on input unit k (in_unit bytes) alone; a unit is the smallest
 * run of elements that fills whole bytes on both sides.
 */
struct element_codec {
	struct codec codec;
	struct extent in;
	enum dtype from, to;
	bool big_endian;
	uint64_t count;      /* elements */
	uint32_t unit;       /* elements per unit */
	uint32_t in_unit, out_unit;
	/* converts `elements` elements of whole units (the last one may be partial) */
	int (*convert)(const struct element_codec *c, const void *in, uint64_t first, uint64_t elements,
		void *out, struct error *e);
};

static uint64_t bytes_of(uint64_t elements, uint32_t unit, uint32_t unit_bytes)
{
	uint64_t rest = elements % unit;

	return elements / unit * unit_bytes + (rest * unit_bytes + unit - 1) / unit;
}

/* Units [first, first + n) into out. */
static int convert_units(struct element_codec *c, uint64_t first, uint64_t n, void *in, void *out,
	struct error *e)
{
	uint64_t element = first * c->unit, left = c->count - element;
	uint64_t elements = n * c->unit < left ? n * c->unit : left;
	int r = extent_read(&c->in, first * c->in_unit, in, bytes_of(elements, c->unit, c->in_unit), e);

	return r < 0 ? r : c->convert(c, in, element, elements, out, e);
}

static int element_read(struct codec *codec, uint64_t offset, void *buf, size_t len, struct error *e)
{
	struct element_codec *c = (struct element_codec *)codec;
	uint32_t larger = c->in_unit > c->out_unit ? c->in_unit : c->out_unit;
	uint64_t per_chunk = CHUNK / larger ? CHUNK / larger : 1;
	size_t half = (per_chunk * larger + 15) & ~(size_t)15;
	char *work = malloc(2 * half), *in = work, *out;
	int r = 0;

	if (!work)
		return error_set(e, ENOMEM, "out of memory");
	out = work + half;
	while (len > 0 && r == 0) {
		uint64_t first = offset / c->out_unit, skip = offset % c->out_unit;
		uint64_t wanted = (skip + len + c->out_unit - 1) / c->out_unit;
		uint64_t n = wanted < per_chunk ? wanted : per_chunk;
		size_t give = n * c->out_unit - skip < len ? (size_t)(n * c->out_unit - skip) : len;
		/* elements are stored as such: the reader's buffer may lie anywhere */
		bool direct = skip == 0 && give == n * c->out_unit && (uintptr_t)buf % 16 == 0;

		r = convert_units(c, first, n, in, direct ? buf : out, e);
		if (r == 0 && !direct)
			memcpy(buf, out + skip, give);
		buf = (char *)buf + give;
		offset += give;
		len -= give;
	}
	free(work);
	return r;
}

static void element_free(struct codec *codec)
{
	struct element_codec *c = (struct element_codec *)codec;

	extent_unref(&c->in);
	free(c);
}

static const struct codec_ops decode_ops = {"widening", element_read, element_free};
static const struct codec_ops swap_ops = {"byte swap", element_read, element_free};
static const struct codec_ops encode_ops = {"narrowing", element_read, element_free};
static const struct codec_ops unpack_ops = {"unpacking", element_read, element_free};
static const struct codec_ops pack_ops = {"packing", element_read, element_free};

static struct element_codec *element_new(const struct codec_ops *ops, const struct extent *in,
	uint64_t count, uint32_t unit, uint32_t in_unit, uint32_t out_unit)
{
	struct element_codec *c;

	if (!unit || in->size < bytes_of(count, unit, in_unit))
		return NULL;
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	codec_init(&c->codec, ops, bytes_of(count, unit, out_unit));
	extent_ref(in);
	c->in = *in;
	c->count = count;
	c->unit = unit;
	c->in_unit = in_unit;
	c->out_unit = out_unit;
	return c;
}

static int convert_decode(const struct element_codec *c, const void *in, uint64_t first, uint64_t elements,
	void *out, struct error *e)
{
	(void)first;
	(void)e;
	if (c->big_endian) /* `in` is scratch memory of element_read */
		dtype_swap(c->from, (void *)(uintptr_t)in, elements);
	dtype_decode(c->from, in, elements, out);
	return 0;
}

struct codec *codec_decode(const struct extent *in, enum dtype d, bool big_endian, uint64_t count)
{
	const struct dtype_info *t = dtype_info(d);
	struct element_codec *c = element_new(&decode_ops, in, count, t->block, t->block_bytes,
		(uint32_t)t->block * dtype_info(t->npy)->block_bytes);

	if (!c)
		return NULL;
	c->from = d;
	c->to = t->npy;
	c->big_endian = big_endian && t->swap > 1;
	c->convert = convert_decode;
	return &c->codec;
}

static int convert_swap(const struct element_codec *c, const void *in, uint64_t first, uint64_t elements,
	void *out, struct error *e)
{
	(void)first;
	(void)e;
	memcpy(out, in, elements * c->in_unit);
	dtype_swap(c->from, out, elements);
	return 0;
}

struct codec *codec_swap(const struct extent *in, enum dtype d)
{
	const struct dtype_info *t = dtype_info(d);
	struct element_codec *c;

	if (t->block != 1)
		return NULL; /* sub-byte types have no byte order */
	c = element_new(&swap_ops, in, in->size / t->block_bytes, 1, t->block_bytes, t->block_bytes);
	if (!c)
		return NULL;
	c->from = c->to = d;
	c->convert = convert_swap;
	return &c->codec;
}

static int convert_encode(const struct element_codec *c, const void *in, uint64_t first, uint64_t elements,
	void *out, struct error *e)
{
	uint64_t bad;
	int r = dtype_encode(c->to, c->from, in, elements, out, &bad);

	if (r == -ERANGE)
		return error_set(e, EINVAL, "element %llu does not fit %s", (unsigned long long)(first + bad),
			dtype_info(c->to)->name);
	return r < 0 ? error_set(e, -r, "%s cannot become %s", dtype_info(c->from)->name,
			       dtype_info(c->to)->name)
		     : 0;
}

struct codec *codec_encode(const struct extent *in, enum dtype from, enum dtype to, uint64_t count)
{
	const struct dtype_info *f = dtype_info(from), *t = dtype_info(to);
	struct element_codec *c;

	if (f->block != 1)
		return NULL;
	c = element_new(&encode_ops, in, count, t->block, (uint32_t)t->block * f->block_bytes,
		t->block_bytes);
	if (!c)
		return NULL;
	c->from = from;
	c->to = to;
	c->convert = convert_encode;
	return &c->codec;
}

/* One element a byte, whatever the block: 8 elements fill `bits` bytes. */
static int convert_unpack(const struct element_codec *c, const void *in, uint64_t first, uint64_t elements,
	void *out, struct error *e)
{
	const struct dtype_info *t = dtype_info(c->from);
	unsigned bits = t->block_bytes * 8u / t->block;
	const unsigned char *p = in;
	uint32_t window = 0;
	unsigned have = 0;

	(void)first;
	(void)e;
	for (uint64_t i = 0; i < elements; i++) {
		if (have < bits) {
			window |= (uint32_t)*p++ << have;
			have += 8;
		}
		((unsigned char *)out)[i] = (unsigned char)(window & ((1u << bits) - 1));
		window >>= bits;
		have -= bits;
	}
	return 0;
}

static int convert_pack(const struct element_codec *c, const void *in, uint64_t first, uint64_t elements,
	void *out, struct error *e)
{
	const struct dtype_info *t = dtype_info(c->to);
	unsigned bits = t->block_bytes * 8u / t->block, have = 0;
	unsigned char *p = out;
	uint32_t window = 0;

	for (uint64_t i = 0; i < elements; i++) {
		uint32_t v = ((const unsigned char *)in)[i];

		/* ml_dtypes keeps negative numbers with or without their sign in the upper bits */
		if (v >> bits && !(t->kind == KIND_INT && v >> (bits - 1) == 0xffu >> (bits - 1)))
			return error_set(e, EINVAL, "element %llu has more than the %u bits of %s",
				(unsigned long long)(first + i), bits, t->name);
		window |= (v & ((1u << bits) - 1)) << have;
		have += bits;
		while (have >= 8) {
			*p++ = (unsigned char)window;
			window >>= 8;
			have -= 8;
		}
	}
	if (have)
		*p = (unsigned char)window;
	return 0;
}

struct codec *codec_unpack_bits(const struct extent *in, enum dtype d, uint64_t count)
{
	const struct dtype_info *t = dtype_info(d);
	struct element_codec *c = element_new(&unpack_ops, in, count, t->block, t->block_bytes, t->block);

	if (!c)
		return NULL;
	c->from = d;
	c->convert = convert_unpack;
	return &c->codec;
}

struct codec *codec_pack_bits(const struct extent *in, enum dtype d, uint64_t count)
{
	const struct dtype_info *t = dtype_info(d);
	struct element_codec *c = element_new(&pack_ops, in, count, t->block, t->block, t->block_bytes);

	if (!c)
		return NULL;
	c->to = d;
	c->convert = convert_pack;
	return &c->codec;
}

/* ---- gather ---- */

/* Output that is gathered at once, and input that is read at once for it. */
enum { BOX = 4 << 20, SLAB = 256 << 10 };

/*
 * A view in C order. The trailing dimensions that lie in C order in the input are one run; the outer ones are cut into
 * boxes: a range of dimension `cut` and all below it, at most BOX bytes, contiguous in the output. A box is filled in
 * the order of the input, slab by slab, so a transposed view reads its input about once, and the box read last is kept.
 */
struct gather_codec {
	struct codec codec;
	struct extent in;
	uint32_t outer; /* dimensions above the run */
	uint64_t shape[LIMIT_RANK];
	int64_t strides[LIMIT_RANK];  /* bytes, in the input */
	uint64_t steps[LIMIT_RANK];   /* bytes, in the output */
	uint32_t order[LIMIT_RANK];   /* outer dimensions, the largest stride first */
	uint64_t run;                 /* bytes that lie together */
	uint64_t first;               /* bytes */
	uint32_t cut;
	uint64_t cut_len, cuts;       /* of dimension `cut`: length in a box, and boxes */
	pthread_mutex_t lock;
	char *box;                    /* NULL: nothing kept */
	uint64_t box_index;
};

static uint64_t magnitude(int64_t stride)
{
	return stride < 0 ? (uint64_t)-stride : (uint64_t)stride;
}

static uint64_t run_position(const struct gather_codec *c, uint64_t index)
{
	int64_t at = (int64_t)c->first;

	for (uint32_t d = c->outer; d > 0; d--) {
		at += (int64_t)(index % c->shape[d - 1]) * c->strides[d - 1];
		index /= c->shape[d - 1];
	}
	return (uint64_t)at;
}

/* How many of the dimensions with the smallest strides make a dense slab; *low and *size: its input, relative to the
 * position of its first element. */
static uint32_t slab_dims(const struct gather_codec *c, const uint64_t *lens, int64_t *low, uint64_t *size)
{
	uint32_t n = 0;

	*low = 0;
	*size = c->run;
	while (n < c->outer) {
		uint32_t d = c->order[c->outer - 1 - n];
		uint64_t stride = magnitude(c->strides[d]), reach;

		/* gaps as wide as what is wanted are worth reading over */
		if (stride > *size * 2 || ckd_mul(&reach, stride, lens[d] - 1) || reach > SLAB - c->run ||
			*size + reach > SLAB)
			break;
		*size += reach;
		if (c->strides[d] < 0)
			*low -= (int64_t)reach;
		n++;
	}
	return n;
}

/* Elements of one slab to their places; the innermost dimension in a tight loop. */
static void scatter(const struct gather_codec *c, const uint64_t *lens, uint32_t dims, const char *from,
	char *to)
{
	uint64_t index[LIMIT_RANK] = {0};
	uint32_t inner = c->order[c->outer - 1];
	int64_t stride = c->strides[inner];
	uint64_t step = c->steps[inner];

	for (;;) {
		const char *p = from;
		char *q = to;
		uint32_t k = 1;

		if (c->run == 4)
			for (uint64_t i = 0; i < lens[inner]; i++, p += stride, q += step)
				memcpy(q, p, 4);
		else
			for (uint64_t i = 0; i < lens[inner]; i++, p += stride, q += step)
				memcpy(q, p, c->run);
		for (; k < dims; k++) {
			uint32_t d = c->order[c->outer - 1 - k];

			from += c->strides[d];
			to += c->steps[d];
			if (++index[k] < lens[d])
				break;
			from -= c->strides[d] * (int64_t)lens[d];
			to -= c->steps[d] * lens[d];
			index[k] = 0;
		}
		if (k >= dims)
			return;
	}
}

/* lens: the box's length in each dimension; position: its first element in the input. */
static int fill_box(const struct gather_codec *c, const uint64_t *lens, uint64_t position, char *box,
	char *slab, struct error *e)
{
	uint64_t index[LIMIT_RANK] = {0}, size, at = position;
	int64_t low;
	uint32_t dims = slab_dims(c, lens, &low, &size), left = c->outer - dims;
	char *to = box;

	for (;;) {
		uint32_t k = left;
		int r = extent_read(&c->in, (uint64_t)((int64_t)at + low), slab, size, e);

		if (r < 0)
			return r;
		if (dims)
			scatter(c, lens, dims, slab - low, to);
		else
			memcpy(to, slab, size);
		for (; k > 0; k--) {
			uint32_t d = c->order[k - 1];

			at += (uint64_t)c->strides[d];
			to += c->steps[d];
			if (++index[d] < lens[d])
				break;
			at -= (uint64_t)c->strides[d] * lens[d];
			to -= c->steps[d] * lens[d];
			index[d] = 0;
		}
		if (k == 0)
			return 0;
	}
}

/* Box number i: first output byte and size; fills it unless it is the one kept. Under the lock. */
static int get_box(struct gather_codec *c, uint64_t i, uint64_t *begin, uint64_t *size, struct error *e)
{
	uint64_t lens[LIMIT_RANK], above = i / c->cuts, k = i % c->cuts * c->cut_len;
	char *slab;
	int r;

	for (uint32_t d = 0; d < c->outer; d++)
		lens[d] = d < c->cut ? 1 : c->shape[d];
	if (lens[c->cut] - k > c->cut_len)
		lens[c->cut] = c->cut_len;
	else
		lens[c->cut] -= k;
	*begin = (above * c->shape[c->cut] + k) * c->steps[c->cut];
	*size = lens[c->cut] * c->steps[c->cut];
	if (c->box && c->box_index == i)
		return 0;
	if (!c->box)
		c->box = malloc(c->cut_len * c->steps[c->cut]);
	slab = malloc(SLAB);
	r = c->box && slab ? fill_box(c, lens, run_position(c, *begin / c->run), c->box, slab, e)
			   : error_set(e, ENOMEM, "out of memory");
	free(slab);
	c->box_index = i;
	if (r < 0) {
		free(c->box);
		c->box = NULL;
	}
	return r;
}

static int read_boxes(struct gather_codec *c, uint64_t offset, char *out, size_t len, struct error *e)
{
	uint64_t row = c->shape[c->cut] * c->steps[c->cut];
	int r = 0;

	while (len > 0 && r == 0) {
		uint64_t i = offset / row * c->cuts + offset % row / (c->cut_len * c->steps[c->cut]);
		uint64_t begin, size;

		r = get_box(c, i, &begin, &size, e);
		if (r < 0)
			break;
		uint64_t within = offset - begin;
		size_t give = size - within < len ? (size_t)(size - within) : len;

		memcpy(out, c->box + within, give);
		out += give;
		offset += give;
		len -= give;
	}
	return r;
}

static int gather_read(struct codec *codec, uint64_t offset, void *buf, size_t len, struct error *e)
{
	struct gather_codec *c = (struct gather_codec *)codec;
	char *out = buf;
	int r = 0;

	if (c->outer == 0)
		return extent_read(&c->in, c->first + offset, buf, len, e);
	if (c->run < CHUNK) {
		pthread_mutex_lock(&c->lock);
		r = read_boxes(c, offset, out, len, e);
		pthread_mutex_unlock(&c->lock);
		return r;
	}
	while (len > 0 && r == 0) { /* long runs need no box */
		uint64_t within = offset % c->run;
		size_t give = c->run - within < len ? (size_t)(c->run - within) : len;

		r = extent_read(&c->in, run_position(c, offset / c->run) + within, out, give, e);
		out += give;
		offset += give;
		len -= give;
	}
	return r;
}

static void gather_free(struct codec *codec)
{
	struct gather_codec *c = (struct gather_codec *)codec;

	extent_unref(&c->in);
	pthread_mutex_destroy(&c->lock);
	free(c->box);
	free(c);
}

static const struct codec_ops gather_ops = {"strided view", gather_read, gather_free};

/* Output steps, the order of strides, and where boxes are cut. */
static void gather_lay_out(struct gather_codec *c)
{
	uint64_t step = c->run;

	for (uint32_t d = c->outer; d > 0; d--) {
		c->steps[d - 1] = step;
		step *= c->shape[d - 1];
	}
	for (uint32_t d = 0; d < c->outer; d++) { /* insertion: at most LIMIT_RANK */
		uint32_t k = d;

		for (; k > 0 && magnitude(c->strides[c->order[k - 1]]) < magnitude(c->strides[d]); k--)
			c->order[k] = c->order[k - 1];
		c->order[k] = d;
	}
	while (c->cut + 1 < c->outer && c->steps[c->cut] > BOX)
		c->cut++;
	c->cut_len = BOX / c->steps[c->cut] ? BOX / c->steps[c->cut] : 1;
	if (c->cut_len > c->shape[c->cut])
		c->cut_len = c->shape[c->cut];
	c->cuts = (c->shape[c->cut] + c->cut_len - 1) / c->cut_len;
}

struct codec *codec_gather(const struct extent *in, uint32_t elem, uint32_t rank, const uint64_t *shape,
	const int64_t *strides, uint64_t first)
{
	struct gather_codec *c;
	uint64_t count, size;
	uint32_t d = rank;

	if (rank > LIMIT_RANK || shape_count(shape, rank, &count) < 0 || ckd_mul(&size, count, (uint64_t)elem))
		return NULL;
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	codec_init(&c->codec, &gather_ops, size);
	pthread_mutex_init(&c->lock, NULL);
	extent_ref(in);
	c->in = *in;
	c->run = elem;
	c->first = first * elem;
	while (d > 0 && size && (shape[d - 1] == 1 || strides[d - 1] * (int64_t)elem == (int64_t)c->run)) {
		c->run *= shape[d - 1];
		d--;
	}
	for (uint32_t i = 0; size && i < d; i++) {
		if (shape[i] == 1)
			continue;
		c->shape[c->outer] = shape[i];
		c->strides[c->outer++] = strides[i] * (int64_t)elem;
	}
	if (c->outer)
		gather_lay_out(c);
	return &c->codec;
}

/* ---- checksum ---- */

struct crc_codec {
	struct codec codec;
	struct extmap *map;
	pthread_mutex_t lock;
	bool done;
	unsigned char sum[4];
};

static int crc_compute(struct crc_codec *c, struct error *e)
{
	unsigned char *work = malloc(CHUNK);
	uLong crc = crc32(0, NULL, 0);
	int r = work ? 0 : error_set(e, ENOMEM, "out of memory");

	for (uint64_t at = 0; r == 0 && at < c->map->size;) {
		size_t n = c->map->size - at < CHUNK ? (size_t)(c->map->size - at) : CHUNK;

		r = extmap_read(c->map, at, work, n, e);
		if (r == 0)
			crc = crc32(crc, work, (uInt)n);
		at += n;
	}
	free(work);
	for (unsigned i = 0; i < 4; i++)
		c->sum[i] = (unsigned char)(crc >> (8 * i));
	c->done = r == 0;
	return r;
}

static int crc_read(struct codec *codec, uint64_t offset, void *buf, size_t len, struct error *e)
{
	struct crc_codec *c = (struct crc_codec *)codec;
	int r = 0;

	pthread_mutex_lock(&c->lock);
	if (!c->done)
		r = crc_compute(c, e);
	if (r == 0)
		memcpy(buf, c->sum + offset, len);
	pthread_mutex_unlock(&c->lock);
	return r;
}

static void crc_free(struct codec *codec)
{
	struct crc_codec *c = (struct crc_codec *)codec;

	extmap_unref(c->map);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

static const struct codec_ops crc_ops = {"crc-32", crc_read, crc_free};

struct codec *codec_crc32(struct extmap *map)
{
	struct crc_codec *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	codec_init(&c->codec, &crc_ops, 4);
	c->map = extmap_ref(map);
	pthread_mutex_init(&c->lock, NULL);
	return &c->codec;
}
