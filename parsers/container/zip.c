/* SPDX-License-Identifier: MIT */
#include "parsers/container/zip.h"

#include "parsers/codec/convert.h"
#include "parsers/codec/inflate.h"
#include "parsers/core/check.h"
#include "parsers/core/cursor.h"
#include "parsers/core/limits.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include <zlib.h>

#define LOCAL_SIG 0x04034b50u
#define CENTRAL_SIG 0x02014b50u
#define END_SIG 0x06054b50u
#define END64_SIG 0x06064b50u
#define LOCATOR_SIG 0x07064b50u
#define DESCRIPTOR_SIG 0x08074b50u
#define LOCAL_SIZE 30
#define CENTRAL_SIZE 46
#define END_SIZE 22
#define END64_SIZE 56
#define LOCATOR_SIZE 20
#define ZIP64_ID 1
#define PADDING_ID 0x4246 /* what PyTorch pads with */
#define FLAG_ENCRYPTED 1
#define FLAG_DESCRIPTOR 8
#define FLAG_UTF8 0x800
/* 1980-01-01, as NumPy and every reproducible archive has it */
#define DATE 0x21

/* ---- numbers in memory ---- */

static uint32_t get32(const unsigned char *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint16_t get16(const unsigned char *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}

static uint64_t get64(const unsigned char *p)
{
	return get32(p) | (uint64_t)get32(p + 4) << 32;
}

static unsigned char *put(unsigned char *p, uint64_t v, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		*p++ = (unsigned char)(v >> 8 * i);
	return p;
}

/* ---- the end ---- */

struct end {
	uint64_t offset; /* of the end record; zip64: of that one */
	uint64_t comment; /* offset; up to 65535 bytes */
	uint16_t comment_size;
	uint64_t count, size, directory;
};

/* The end record is the last one whose comment reaches exactly to the end of the file. */
static bool take_end(const unsigned char *p, uint64_t at, uint64_t size, struct end *out)
{
	if (get32(p) != END_SIG || get16(p + 20) > size - at - END_SIZE)
		return false;
	*out = (struct end){.offset = at,
		.comment = at + END_SIZE,
		.comment_size = get16(p + 20),
		.count = get16(p + 10),
		.size = get32(p + 12),
		.directory = get32(p + 16)};
	return true;
}

/* From the end to the front; without memory of its own, since a probe cannot say that there is none. */
static bool find_end(struct source *src, struct end *out)
{
	enum { STEP = 4096 };
	unsigned char part[STEP + END_SIZE - 1];
	uint64_t size = source_size(src), least = size > END_SIZE + 65535 ? size - END_SIZE - 65535 : 0;
	uint64_t end = size < END_SIZE ? 0 : size - END_SIZE + 1; /* behind the last place where it could begin */

	while (end > least) {
		uint64_t begin = end - least > STEP ? end - STEP : least;

		if (source_read(src, begin, part, (size_t)(end - begin) + END_SIZE - 1, NULL) < 0)
			return false;
		for (uint64_t at = end; at > begin; at--)
			if (take_end(part + (at - 1 - begin), at - 1, size, out))
				return true;
		end = begin;
	}
	return false;
}

bool zip_is(struct source *src)
{
	struct end end;

	return find_end(src, &end);
}

static int read_end64(struct source *src, struct end *end, struct error *e)
{
	unsigned char p[END64_SIZE];
	uint64_t at;

	if (end->offset < LOCATOR_SIZE ||
		source_read(src, end->offset - LOCATOR_SIZE, p, LOCATOR_SIZE, NULL) < 0 ||
		get32(p) != LOCATOR_SIG)
		return 0;
	at = get64(p + 8);
	if (end->offset - LOCATOR_SIZE < END64_SIZE || at > end->offset - LOCATOR_SIZE - END64_SIZE)
		return error_at(e, EIO, end->offset - LOCATOR_SIZE, "zip64 end at %" PRIu64 " lies outside", at);
	if (source_read(src, at, p, END64_SIZE, e) < 0)
		return -EIO;
	if (get32(p) != END64_SIG)
		return error_at(e, EIO, at, "zip64 end is expected");
	end->count = get64(p + 32);
	end->size = get64(p + 40);
	end->directory = get64(p + 48);
	end->offset = at;
	return 0;
}

/* ---- the directory ---- */

/* The zip64 field holds those of size, packed, local that do not fit 32 bits, in this order. */
static void take_zip64(struct cursor *c, uint16_t len, struct zip_member *m)
{
	uint64_t *const fields[] = {&m->size, &m->packed, &m->local};
	uint64_t end = c->pos + len;

	for (size_t i = 0; i < 3 && end - c->pos >= 8; i++)
		if (*fields[i] == UINT32_MAX)
			*fields[i] = cursor_u64le(c);
	if (!cursor_failed(c))
		cursor_seek(c, end);
}

static void take_extra(struct cursor *c, uint16_t len, struct zip_member *m)
{
	uint64_t end = c->pos + len;

	while (!cursor_failed(c) && end - c->pos >= 4) {
		uint16_t id = cursor_u16le(c), n = cursor_u16le(c);

		if (n > end - c->pos)
			break; /* some writers pad with bytes that are no field */
		if (id == ZIP64_ID)
			take_zip64(c, n, m);
		else
			cursor_skip(c, n);
	}
	if (!cursor_failed(c))
		cursor_seek(c, end);
}

static int read_entry(struct cursor *c, struct arena *a, struct zip_member *m)
{
	uint16_t name, extra, comment;

	m->entry = c->pos;
	if (cursor_u32le(c) != CENTRAL_SIG)
		return cursor_fail(c, EIO, "zip: a directory entry is expected");
	cursor_skip(c, 4);
	m->flags = cursor_u16le(c);
	m->method = cursor_u16le(c);
	cursor_skip(c, 4);
	m->crc = cursor_u32le(c);
	m->packed = cursor_u32le(c);
	m->size = cursor_u32le(c);
	name = cursor_u16le(c);
	extra = cursor_u16le(c);
	comment = cursor_u16le(c);
	cursor_skip(c, 8);
	m->local = cursor_u32le(c);
	m->name = cursor_str(c, a, name);
	take_extra(c, extra, m);
	cursor_skip(c, comment);
	m->entry_size = (uint32_t)(c->pos - m->entry);
	return cursor_failed(c);
}

/* Where the payload begins is only known from the local header. */
static int read_local(const struct zip *z, struct zip_member *m, struct error *e)
{
	unsigned char p[LOCAL_SIZE];
	uint64_t end;

	if (m->local > z->directory || z->directory - m->local < LOCAL_SIZE)
		return error_set(e, EIO, "zip: member '%.*s' at %" PRIu64 " lies outside", STR_ARG(m->name),
			m->local);
	if (source_read(z->src, m->local, p, sizeof(p), e) < 0)
		return -EIO;
	if (get32(p) != LOCAL_SIG)
		return error_at(e, EIO, m->local, "zip: header of member '%.*s' is expected",
			STR_ARG(m->name));
	m->payload = m->local + LOCAL_SIZE + get16(p + 26) + get16(p + 28);
	if (ckd_add(&end, m->payload, m->packed) || end > z->directory)
		return error_at(e, EIO, m->local, "zip: member '%.*s' of %" PRIu64
			" bytes passes the directory at %" PRIu64, STR_ARG(m->name), m->packed, z->directory);
	m->end = end;
	return 0;
}

static int by_local(const void *x, const void *y)
{
	const struct zip_member *const *a = x, *const *b = y;

	return ((*a)->local > (*b)->local) - ((*a)->local < (*b)->local);
}

/* Members share no bytes, else a small file could promise any amount. A descriptor belongs to its member. */
static int check_order(struct zip *z, struct error *e)
{
	struct zip_member **sorted = calloc(z->count ? z->count : 1, sizeof(*sorted));
	int r = 0;

	if (!sorted)
		return error_set(e, ENOMEM, "out of memory for the archive");
	for (size_t i = 0; i < z->count; i++)
		sorted[i] = &z->members[i];
	qsort(sorted, z->count, sizeof(*sorted), by_local);
	for (size_t i = 0; !r && i < z->count; i++) {
		uint64_t next = i + 1 < z->count ? sorted[i + 1]->local : z->directory;

		if (sorted[i]->end > next)
			r = error_at(e, EIO, sorted[i]->local, "zip: members '%.*s' and '%.*s' overlap",
				STR_ARG(sorted[i]->name), STR_ARG(sorted[i + 1 < z->count ? i + 1 : i]->name));
		else if (sorted[i]->flags & FLAG_DESCRIPTOR && next - sorted[i]->end <= 24)
			sorted[i]->end = next;
	}
	free(sorted);
	return r;
}

static bool begins_as_archive(struct source *src)
{
	char head[2];

	return source_size(src) >= 2 && source_read(src, 0, head, 2, NULL) == 0 && memcmp(head, "PK", 2) == 0;
}

static int read_comment(struct zip *z, const struct end *end, struct arena *a, struct error *e)
{
	struct cursor c;
	int r;

	cursor_init(&c, z->src, end->comment, end->comment_size, e);
	z->comment = cursor_str(&c, a, end->comment_size);
	r = cursor_failed(&c);
	cursor_release(&c);
	return r;
}

int zip_read(struct source *src, struct arena *a, struct zip *z, struct error *e)
{
	struct end end;
	struct cursor c;
	int r = 0;

	*z = (struct zip){.src = src};
	if (!find_end(src, &end))
		return error_set(e, EIO, begins_as_archive(src)
				? "zip: the end of the archive is missing, the file is cut off"
				: "zip: this is no archive");
	r = read_end64(src, &end, e);
	if (r < 0)
		return r;
	if (end.directory > end.offset || end.size > end.offset - end.directory)
		return error_at(e, EIO, end.offset, "zip: directory of %" PRIu64 " bytes at %" PRIu64
			" lies outside", end.size, end.directory);
	if (end.count > end.size / CENTRAL_SIZE || end.count > LIMIT_TENSORS)
		return error_at(e, EIO, end.offset, "zip: %" PRIu64 " members do not fit %" PRIu64
			" bytes of directory", end.count, end.size);
	z->directory = end.directory;
	z->members = arena_array(a, (size_t)end.count, sizeof(*z->members));
	if (!z->members)
		return error_set(e, ENOMEM, "out of memory for the archive");
	cursor_init(&c, src, end.directory, end.size, e);
	for (uint64_t i = 0; !r && i < end.count; i++)
		r = read_entry(&c, a, &z->members[z->count++]);
	cursor_release(&c);
	for (size_t i = 0; !r && i < z->count; i++)
		r = read_local(z, &z->members[i], e);
	if (!r)
		r = check_order(z, e);
	return r < 0 ? r : read_comment(z, &end, a, e);
}

int zip_content(const struct zip *z, const struct zip_member *m, struct extent *out, struct error *e)
{
	struct extent packed = extent_source(z->src, m->payload, m->packed);
	struct codec *codec;

	if (m->flags & FLAG_ENCRYPTED)
		return error_set(e, EOPNOTSUPP, "member '%.*s' is encrypted", STR_ARG(m->name));
	if (m->method == ZIP_STORED) {
		if (m->packed != m->size)
			return error_set(e, EIO, "member '%.*s' is stored in %" PRIu64
				" bytes, %" PRIu64 " are promised", STR_ARG(m->name), m->packed, m->size);
		*out = packed;
		extent_ref(out);
		return 0;
	}
	if (m->method != ZIP_DEFLATED)
		return error_set(e, EOPNOTSUPP, "member '%.*s' is packed by method %u",
			STR_ARG(m->name), m->method);
	/* deflate cannot do better than 1032:1 */
	if (m->size / 1032 > m->packed)
		return error_set(e, EIO, "member '%.*s' cannot hold %" PRIu64 " bytes in %" PRIu64,
			STR_ARG(m->name), m->size, m->packed);
	codec = codec_inflate(&packed, m->size, m->crc);
	if (!codec)
		return error_set(e, ENOMEM, "out of memory for unpacking");
	*out = extent_codec(codec);
	return 0;
}

int zip_check(const struct zip *z, const struct zip_member *m, struct error *e)
{
	const size_t step = 128u << 10;
	unsigned char *buf = malloc(step);
	uLong crc = crc32(0, NULL, 0);
	struct extent x = extent_zero(0);
	int r = buf ? zip_content(z, m, &x, e) : error_set(e, ENOMEM, "out of memory");

	for (uint64_t at = 0; !r && at < m->size;) {
		size_t n = m->size - at < step ? (size_t)(m->size - at) : step;

		r = extent_read(&x, at, buf, n, e);
		if (!r)
			crc = crc32(crc, buf, (uInt)n);
		at += n;
	}
	if (!r && crc != m->crc)
		r = error_set(e, EIO, "CRC-32 is %08lx, expected %08" PRIx32, (unsigned long)crc, m->crc);
	extent_unref(&x);
	free(buf);
	return r;
}

/* ---- writing ---- */

int zip_begin(struct zip_writer *w, struct extmap *out)
{
	*w = (struct zip_writer){.out = out, .begin = out->size, .directory = extmap_new()};
	return w->directory ? 0 : -ENOMEM;
}

static int append_directory(struct zip_writer *w, const void *bytes, size_t n)
{
	w->count++;
	return extmap_append_copy(w->directory, bytes, n);
}

/* A central header's extra field without its zip64 part, and that anew where a number needs it. */
static unsigned char *put_extra(unsigned char *p, const unsigned char *extra, uint32_t len,
	const uint64_t big[3])
{
	unsigned char *start = p;
	unsigned n = 0;

	for (int i = 0; i < 3; i++)
		n += big[i] >= UINT32_MAX;
	if (n) {
		p = put(p, ZIP64_ID, 2);
		p = put(p, 8 * n, 2);
		for (int i = 0; i < 3; i++)
			if (big[i] >= UINT32_MAX)
				p = put(p, big[i], 8);
	}
	while (len >= 4) {
		uint32_t field = 4u + get16(extra + 2);

		if (field > len)
			field = len;
		if (get16(extra) != ZIP64_ID && (size_t)(p - start) + field <= UINT16_MAX) {
			memcpy(p, extra, field);
			p += field;
		}
		extra += field;
		len -= field;
	}
	return p;
}

static uint64_t clip(uint64_t v)
{
	return v < UINT32_MAX ? v : UINT32_MAX;
}

/* The entry of a copied member: everything as it was but the name, the offset and what zip64 needs. */
static int copy_entry(struct zip_writer *w, const struct zip *z, const struct zip_member *m,
	struct str name, uint64_t local)
{
	const uint64_t big[3] = {m->size, m->packed, local};
	unsigned char *was = malloc(m->entry_size), *now, *p;
	uint16_t name_len, extra_len, comment_len;
	int r = -ENOMEM;

	now = malloc(CENTRAL_SIZE + name.len + m->entry_size + 32);
	if (!was || !now || name.len > UINT16_MAX ||
		source_read(z->src, m->entry, was, m->entry_size, NULL) < 0)
		goto out;
	name_len = get16(was + 28);
	extra_len = get16(was + 30);
	comment_len = get16(was + 32);
	if (CENTRAL_SIZE + (uint32_t)name_len + extra_len + comment_len != m->entry_size)
		goto out; /* the file changed below us */
	memcpy(now, was, CENTRAL_SIZE);
	put(now + 20, clip(m->packed), 4);
	put(now + 24, clip(m->size), 4);
	put(now + 28, name.len, 2);
	put(now + 42, clip(local), 4);
	p = now + CENTRAL_SIZE;
	if (name.len)
		memcpy(p, name.ptr, name.len);
	p += name.len;
	p = put_extra(p, was + CENTRAL_SIZE + name_len, extra_len, big);
	put(now + 30, (uint64_t)(p - now) - CENTRAL_SIZE - name.len, 2);
	memcpy(p, was + CENTRAL_SIZE + name_len + extra_len, comment_len);
	p += comment_len;
	r = append_directory(w, now, (size_t)(p - now));
out:
	free(was);
	free(now);
	return r;
}

int zip_copy(struct zip_writer *w, const struct zip *z, const struct zip_member *m, struct str name)
{
	uint64_t local = w->out->size - w->begin;
	unsigned char head[LOCAL_SIZE];
	uint64_t skip;
	int r;

	if (str_eq(name, m->name)) {
		r = extmap_append_source(w->out, z->src, m->local, m->end - m->local);
		return r < 0 ? r : copy_entry(w, z, m, name, local);
	}
	r = source_read(z->src, m->local, head, sizeof(head), NULL);
	if (r < 0 || name.len > UINT16_MAX)
		return r < 0 ? r : -EINVAL;
	skip = LOCAL_SIZE + (uint64_t)get16(head + 26);
	put(head + 26, name.len, 2);
	extmap_append_copy(w->out, head, sizeof(head));
	extmap_append_copy(w->out, name.ptr, name.len);
	r = extmap_append_source(w->out, z->src, m->local + skip, m->end - m->local - skip);
	return r < 0 ? r : copy_entry(w, z, m, name, local);
}

/* Bytes of padding field so that the payload, which would begin at `at`, is aligned; a field takes at least 4. */
static uint32_t padding(uint64_t at, uint32_t align)
{
	uint32_t n = align > 1 ? (uint32_t)((align - at % align) % align) : 0;

	return n && n < 4 ? n + align : n;
}

static int append_crc(struct extmap *out, struct codec *crc)
{
	struct extent x = extent_codec(crc);

	return extmap_append(out, &x);
}

static bool is_ascii(struct str s)
{
	for (size_t i = 0; i < s.len; i++)
		if ((unsigned char)s.ptr[i] >= 0x80)
			return false;
	return true;
}

static unsigned char *put_common(unsigned char *p, bool big, struct str name)
{
	p = put(p, big ? 45 : 20, 2);
	p = put(p, is_ascii(name) ? 0 : FLAG_UTF8, 2);
	p = put(p, ZIP_STORED, 2);
	p = put(p, 0, 2);
	return put(p, DATE, 2);
}

static int add_entry(struct zip_writer *w, struct str name, uint64_t size, uint64_t local,
	struct codec *crc)
{
	unsigned char head[CENTRAL_SIZE], extra[32], *p = put(head, CENTRAL_SIG, 4), *x;
	const uint64_t big[3] = {size, size, local};
	bool zip64 = size >= UINT32_MAX || local >= UINT32_MAX;

	x = put_extra(extra, NULL, 0, big);
	p = put(p, 3 << 8 | (zip64 ? 45 : 20), 2); /* made on Unix */
	p = put_common(p, zip64, name);
	put(p, 0, 4); /* the CRC's place */
	p = put(p + 4, clip(size), 4);
	p = put(p, clip(size), 4);
	p = put(p, name.len, 2);
	p = put(p, (uint64_t)(x - extra), 2);
	p = put(p, 0, 2 + 2 + 2);
	p = put(p, 0600u << 16, 4);
	put(p, clip(local), 4);
	w->count++;
	extmap_append_copy(w->directory, head, 16);
	append_crc(w->directory, crc);
	extmap_append_copy(w->directory, head + 20, CENTRAL_SIZE - 20);
	extmap_append_copy(w->directory, name.ptr, name.len);
	return extmap_append_copy(w->directory, extra, (size_t)(x - extra));
}

int zip_add(struct zip_writer *w, struct str name, struct extmap *content, uint32_t align)
{
	unsigned char head[LOCAL_SIZE], extra[20 + 4], *p = put(head, LOCAL_SIG, 4), *x = extra;
	uint64_t local = w->out->size - w->begin, size = content->size;
	bool big = size >= UINT32_MAX;
	struct codec *crc;
	struct extent data;
	uint32_t pad;
	int r;

	if (name.len > UINT16_MAX)
		return -EINVAL;
	crc = codec_crc32(content);
	if (!crc)
		return -ENOMEM;
	if (big) {
		x = put(x, ZIP64_ID, 2);
		x = put(x, 16, 2);
		x = put(x, size, 8);
		x = put(x, size, 8);
	}
	pad = padding(local + LOCAL_SIZE + name.len + (uint64_t)(x - extra), align);
	if (pad) {
		x = put(x, PADDING_ID, 2);
		x = put(x, pad - 4, 2);
	}
	p = put_common(p, big, name);
	put(p, 0, 4);
	p = put(p + 4, clip(size), 4);
	p = put(p, clip(size), 4);
	p = put(p, name.len, 2);
	put(p, (uint64_t)(x - extra) + (pad ? pad - 4 : 0), 2);
	extmap_append_copy(w->out, head, 14);
	append_crc(w->out, crc);
	extmap_append_copy(w->out, head + 18, LOCAL_SIZE - 18);
	extmap_append_copy(w->out, name.ptr, name.len);
	extmap_append_copy(w->out, extra, (size_t)(x - extra));
	if (pad > 4)
		extmap_append_zero(w->out, pad - 4);
	data = extent_map(content);
	r = extmap_append(w->out, &data);
	if (r >= 0)
		r = add_entry(w, name, size, local, crc);
	codec_unref(crc);
	return r;
}

int zip_end(struct zip_writer *w, struct error *e)
{
	unsigned char tail[END64_SIZE + LOCATOR_SIZE + END_SIZE], *p = tail;
	uint64_t at = w->out->size - w->begin, size = w->directory->size;
	struct extent directory = extent_map(w->directory);
	int r = extmap_failed(w->directory, e);

	extmap_append(w->out, &directory);
	if (at >= UINT32_MAX || size >= UINT32_MAX || w->count >= UINT16_MAX) {
		p = put(p, END64_SIG, 4);
		p = put(p, END64_SIZE - 12, 8);
		p = put(p, 3 << 8 | 45, 2);
		p = put(p, 45, 2);
		p = put(p, 0, 8);
		p = put(p, w->count, 8);
		p = put(p, w->count, 8);
		p = put(p, size, 8);
		p = put(p, at, 8);
		p = put(p, LOCATOR_SIG, 4);
		p = put(p, 0, 4);
		p = put(p, at + size, 8);
		p = put(p, 1, 4);
	}
	p = put(p, END_SIG, 4);
	p = put(p, 0, 4);
	p = put(p, w->count < UINT16_MAX ? w->count : UINT16_MAX, 2);
	p = put(p, w->count < UINT16_MAX ? w->count : UINT16_MAX, 2);
	p = put(p, clip(size), 4);
	p = put(p, clip(at), 4);
	p = put(p, w->comment.len, 2);
	extmap_append_copy(w->out, tail, (size_t)(p - tail));
	extmap_append_copy(w->out, w->comment.ptr, w->comment.len);
	if (!r)
		r = extmap_failed(w->out, e);
	zip_release(w);
	return r;
}

void zip_release(struct zip_writer *w)
{
	extmap_unref(w->directory);
	w->directory = NULL;
}
