/* SPDX-License-Identifier: MIT */
#include "parsers/codec/hdf5_filters.h"

#include <errno.h>
#include <stdlib.h>

#include <zlib.h>

/* checksums of filters in between make a chunk a little longer than its elements */
#define EXTRA 64

struct data {
	unsigned char *bytes;
	size_t size;
};

static int replace(struct data *d, unsigned char *bytes, size_t size)
{
	free(d->bytes);
	d->bytes = bytes;
	d->size = size;
	return 0;
}

static int undo_deflate(struct data *d, size_t room, struct error *e)
{
	unsigned char *out = malloc(room);
	z_stream z = {.next_in = d->bytes, .avail_in = (uInt)d->size, .next_out = out, .avail_out = (uInt)room};
	int r;

	if (!out)
		return error_set(e, ENOMEM, "out of memory for a chunk");
	r = inflateInit(&z);
	if (r == Z_OK) {
		r = inflate(&z, Z_FINISH);
		inflateEnd(&z);
	}
	if (r == Z_MEM_ERROR) {
		free(out);
		return error_set(e, ENOMEM, "out of memory for a chunk");
	}
	if (r != Z_STREAM_END) {
		free(out);
		return error_set(e, EIO, z.avail_out ? "packed chunk is damaged" : "packed chunk holds too many bytes");
	}
	return replace(d, out, room - z.avail_out);
}

static int undo_shuffle(struct data *d, size_t element, struct error *e)
{
	size_t count = element ? d->size / element : 0;
	unsigned char *out;

	if (element < 2 || count < 2)
		return 0;
	out = malloc(d->size);
	if (!out)
		return error_set(e, ENOMEM, "out of memory for a chunk");
	for (size_t b = 0; b < element; b++) {
		const unsigned char *from = d->bytes + b * count;
		unsigned char *to = out + b;

		for (size_t i = 0; i < count; i++, to += element)
			*to = from[i];
	}
	memcpy(out + count * element, d->bytes + count * element, d->size - count * element);
	return replace(d, out, d->size);
}

/* as the library counts: 16-bit words in big-endian order */
static uint32_t fletcher32(const unsigned char *p, size_t size)
{
	uint32_t a = 0, b = 0;
	size_t words = size / 2;

	while (words) {
		size_t n = words < 360 ? words : 360;

		words -= n;
		for (; n; n--, p += 2) {
			a += (uint32_t)p[0] << 8 | p[1];
			b += a;
		}
		a = (a & 0xffff) + (a >> 16);
		b = (b & 0xffff) + (b >> 16);
	}
	if (size % 2) {
		a += (uint32_t)*p << 8;
		b += a;
		a = (a & 0xffff) + (a >> 16);
		b = (b & 0xffff) + (b >> 16);
	}
	a = (a & 0xffff) + (a >> 16);
	b = (b & 0xffff) + (b >> 16);
	return b << 16 | a;
}

static int undo_fletcher32(struct data *d, struct error *e)
{
	uint32_t want, sum, swapped;

	if (d->size < 4)
		return error_set(e, EIO, "chunk of %zu bytes has no checksum", d->size);
	d->size -= 4;
	want = (uint32_t)d->bytes[d->size] | (uint32_t)d->bytes[d->size + 1] << 8 |
	       (uint32_t)d->bytes[d->size + 2] << 16 | (uint32_t)d->bytes[d->size + 3] << 24;
	sum = fletcher32(d->bytes, d->size);
	/* versions before 1.6.3 swapped the bytes of each half */
	swapped = (sum & 0x00ff00ff) << 8 | (sum >> 8 & 0x00ff00ff);
	return sum == want || swapped == want
		? 0
		: error_set(e, EIO, "checksum of a chunk is %08x, expected %08x", sum, want);
}

/* LibLZF's format: 000LLLLL literals (L + 1), LLLooooo oooooooo copies (L + 2, from o + 1 bytes before; L = 7: one more
 * byte of length first). False when it is damaged. */
static bool lzf(const unsigned char *in, size_t size, unsigned char *out, size_t room, size_t *len)
{
	size_t i = 0, o = 0;

	while (i < size) {
		unsigned ctrl = in[i++];

		if (ctrl < 32) {
			size_t n = ctrl + 1;

			if (n > size - i || n > room - o)
				return false;
			memcpy(out + o, in + i, n);
			i += n;
			o += n;
		} else {
			size_t n = ctrl >> 5, back = (size_t)(ctrl & 31) << 8;

			if (n == 7) {
				if (i == size)
					return false;
				n += in[i++];
			}
			if (i == size)
				return false;
			back += (size_t)in[i++] + 1;
			n += 2;
			if (back > o || n > room - o)
				return false;
			for (; n; n--, o++)
				out[o] = out[o - back];
		}
	}
	*len = o;
	return true;
}

static int undo_lzf(struct data *d, size_t room, struct error *e)
{
	unsigned char *out = malloc(room);
	size_t len;

	if (!out)
		return error_set(e, ENOMEM, "out of memory for a chunk");
	if (!lzf(d->bytes, d->size, out, room, &len)) {
		free(out);
		return error_set(e, EIO, "packed chunk is damaged (lzf)");
	}
	return replace(d, out, len);
}

bool hdf5_filters_known(const struct hdf5_object *o, uint32_t skipped)
{
	for (uint32_t i = 0; i < o->filter_count; i++) {
		uint32_t id = o->filters[i].id;

		if (!(skipped >> i & 1) && id != HDF5_DEFLATE && id != HDF5_SHUFFLE && id != HDF5_FLETCHER32 &&
			id != HDF5_LZF)
			return false;
	}
	return true;
}

int hdf5_unfilter(const struct hdf5_object *o, uint32_t skipped, unsigned char *packed, size_t size, size_t want,
	unsigned char **out, struct error *e)
{
	struct data d = {packed, size};
	int r = 0;

	*out = NULL;
	for (uint32_t i = o->filter_count; !r && i-- > 0;) {
		if (skipped >> i & 1)
			continue;
		switch (o->filters[i].id) {
		case HDF5_DEFLATE:
			r = undo_deflate(&d, want + EXTRA, e);
			break;
		case HDF5_SHUFFLE:
			r = undo_shuffle(&d, o->filters[i].element, e);
			break;
		case HDF5_FLETCHER32:
			r = undo_fletcher32(&d, e);
			break;
		case HDF5_LZF:
			r = undo_lzf(&d, want + EXTRA, e);
			break;
		}
	}
	if (!r && d.size != want)
		r = error_set(e, EIO, "chunk holds %zu bytes, expected %zu", d.size, want);
	if (r < 0)
		free(d.bytes);
	else
		*out = d.bytes;
	return r;
}
