/* SPDX-License-Identifier: MIT */
#include "parsers/format.h"

#include "parsers/core/metadata.h"
#include "parsers/not_a_model.h"
#include "parsers/sidecar.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT(symbol) extern const struct format format_##symbol;
#include "parsers/formats.def"
#undef FORMAT

#define FORMAT(symbol) &format_##symbol,
const struct format *const formats[] = {
#include "parsers/formats.def"
};
#undef FORMAT
const size_t format_count = sizeof(formats) / sizeof(formats[0]);

const struct format *format_by_name(const char *name)
{
	for (size_t i = 0; i < format_count; i++)
		if (strcmp(formats[i]->name, name) == 0)
			return formats[i];
	return NULL;
}

/* Length of the longest extension of f that the name ends with. */
static size_t extension_match(const struct format *f, struct str name)
{
	size_t best = 0;

	for (const char *const *x = f->extensions; x && *x; x++) {
		size_t n = strlen(*x);

		if (n > best && n < name.len && strncasecmp(name.ptr + name.len - n, *x, n) == 0)
			best = n;
	}
	return best;
}

const struct format *format_by_extension(const char *file_name)
{
	const struct format *found = NULL;
	size_t best = 0;

	for (size_t i = 0; i < format_count; i++) {
		size_t n = extension_match(formats[i], str_from(file_name));

		if (n > best) {
			best = n;
			found = formats[i];
		} else if (n && n == best) {
			found = NULL;
		}
	}
	return found;
}

static int magic_bits(const struct format *f, const struct input *in)
{
	char head[64];
	int best = 0;

	for (size_t i = 0; i < f->magic_count && in->src; i++) {
		const struct magic *m = &f->magics[i];

		if (m->len > sizeof(head) || source_size(in->src) < (uint64_t)m->offset + m->len ||
			source_read(in->src, m->offset, head, m->len, NULL) < 0)
			continue;
		if (memcmp(head, m->bytes, m->len) == 0 && best < (int)m->len * 8)
			best = (int)m->len * 8;
	}
	return best;
}

static int score(const struct format *f, const struct input *in, struct error *e)
{
	int bits;

	if (!in->src && !f->directories)
		return 0;
	bits = magic_bits(f, in);
	if (f->magic_count && in->src && !bits && !f->directories)
		return 0;
	if (f->probe)
		bits = f->probe(in, e);
	return bits;
}

static int find_forced(const char *forced, const struct format **out, struct error *e)
{
	*out = format_by_name(forced);
	if (!*out)
		return error_set(e, EINVAL, "there is no format '%s'", forced);
	return 0;
}

int format_detect(const struct input *in, const char *forced, const struct format **out,
	struct verdict *verdicts, struct error *e)
{
	const struct format *best = NULL, *rival = NULL;
	int best_bits = 0;

	*out = NULL;
	for (size_t i = 0; i < format_count; i++) {
		int bits = score(formats[i], in, e);

		if (bits < 0)
			return bits;
		if (verdicts)
			verdicts[i] = (struct verdict){formats[i], bits};
		if (bits > best_bits) {
			best = formats[i];
			best_bits = bits;
			rival = NULL;
		} else if (bits && bits == best_bits) {
			size_t a = extension_match(best, in->base), b = extension_match(formats[i], in->base);

			rival = a == b ? formats[i] : NULL;
			best = b > a ? formats[i] : best;
		}
	}
	if (forced)
		return find_forced(forced, out, e);
	if (rival)
		return error_set(e, EINVAL, "could be %s or %s, say which with -o format=%s or format=%s",
			best->title, rival->title, best->name, rival->name);
	if (!best)
		return not_a_model(in, e);
	*out = best;
	return 0;
}

static int parse_model(struct input *in, const struct format *f, struct model **out, struct error *e)
{
	struct model *m = model_new(f);
	int r;

	if (!m)
		return error_set(e, ENOMEM, "out of memory");
	r = f->parse ? f->parse(in, m, e) : error_set(e, EOPNOTSUPP, "%s cannot be read", f->title);
	if (r == 0)
		r = metadata_collect(m->arena, &m->meta, e);
	if (r == 0)
		r = sidecar_read(in, m, e);
	if (r == 0)
		r = model_finish(m, e);
	if (r < 0) {
		error_set(e, -r, "%s could not be read", f->title); /* when nobody said why */
		model_unref(m);
		return r;
	}
	*out = m;
	return 0;
}

int model_open(struct input *in, const char *forced, struct model **out, struct error *e)
{
	const struct format *f;
	int r = format_detect(in, forced, &f, NULL, e);

	*out = NULL;
	return r < 0 ? r : parse_model(in, f, out, e);
}

int model_open_path(const char *path, const char *forced, int64_t step, struct verdict *verdicts,
	struct stat *st, struct model **out, struct error *e)
{
	const struct format *f;
	struct input in;
	int r = input_open(&in, path, e);

	*out = NULL;
	if (r < 0)
		return r;
	in.step = step;
	/* a prefix has no file of that name: its directory's times */
	if (stat(path, st) < 0 && fstat(in.dir_fd, st) < 0)
		r = error_set(e, errno, "cannot look at '%s': %s", path, strerror(errno));
	if (r == 0)
		r = format_detect(&in, forced, &f, verdicts, e);
	if (r == 0)
		r = parse_model(&in, f, out, e);
	input_close(&in);
	return r;
}
