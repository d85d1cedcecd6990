/* SPDX-License-Identifier: MIT */
/*
 * stats/NAME.json: what the values of a tensor look like, computed when it is first read. Every number is
 * padded to one width, so the size of the file is known before and the same for all tensors.
 *
 * min, max, mean and std (of the population) are those of the finite values, null when there are none; for
 * complex types of the magnitudes. NaN and infinities are counted beside them.
 */
#include "views/elements.h"
#include "views/text.h"

#include "parsers/core/codec.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* the widest double, "-2.2250738585072014e-308" */
#define WIDTH 24

struct summary {
	uint64_t count, finite, zeros, nan, inf;
	double min, max, mean, m2; /* m2: sum of squared distances from the mean */
	int64_t imin, imax;        /* exact for integer types */
	uint64_t umin, umax;
};

struct stats {
	struct codec base;
	const struct tensor *tensor;
	struct elements elements;
	pthread_mutex_t lock; /* guards text */
	char *text;
};

/* Chan, Golub, LeVeque: merges the sums of a chunk, so that long tensors keep their precision */
static void merge(struct summary *s, const double *v, uint32_t n)
{
	double mean = 0, m2 = 0, delta, total;

	if (!n)
		return;
	for (uint32_t i = 0; i < n; i++)
		mean += v[i] / n;
	for (uint32_t i = 0; i < n; i++) {
		m2 += (v[i] - mean) * (v[i] - mean);
		if (s->finite + i == 0 || v[i] < s->min)
			s->min = v[i];
		if (s->finite + i == 0 || v[i] > s->max)
			s->max = v[i];
	}
	delta = mean - s->mean;
	total = (double)s->finite + n;
	s->m2 += m2 + delta * delta * ((double)s->finite / total) * n;
	s->mean += delta * (n / total);
	s->finite += n;
}

static void add_doubles(struct summary *s, double *v, uint32_t n)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < n; i++) {
		double x = v[i];

		s->zeros += x == 0;
		if (isnan(x))
			s->nan++;
		else if (isinf(x))
			s->inf++;
		else
			v[kept++] = x;
	}
	s->count += n;
	merge(s, v, kept);
}

/* integers beyond 2^53 are exact in min and max */
static void int_range(struct summary *s, const void *raw, enum dtype d, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		int64_t x = d == DTYPE_INT8    ? ((const int8_t *)raw)[i]
			    : d == DTYPE_INT16 ? ((const int16_t *)raw)[i]
			    : d == DTYPE_INT32 ? ((const int32_t *)raw)[i]
					       : ((const int64_t *)raw)[i];

		if (s->count + i == 0 || x < s->imin)
			s->imin = x;
		if (s->count + i == 0 || x > s->imax)
			s->imax = x;
	}
}

static void uint_range(struct summary *s, const void *raw, enum dtype d, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		uint64_t x = d == DTYPE_BOOL || d == DTYPE_UINT8 ? ((const uint8_t *)raw)[i]
			     : d == DTYPE_UINT16                 ? ((const uint16_t *)raw)[i]
			     : d == DTYPE_UINT32                 ? ((const uint32_t *)raw)[i]
								 : ((const uint64_t *)raw)[i];

		if (s->count + i == 0 || x < s->umin)
			s->umin = x;
		if (s->count + i == 0 || x > s->umax)
			s->umax = x;
	}
}

/* a NaN in either part makes the whole one */
static void magnitudes(double *v, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		double re = v[2 * i], im = v[2 * i + 1];

		v[i] = isnan(re) || isnan(im) ? (double)NAN : hypot(re, im);
	}
}

static int summarize(const struct stats *c, struct summary *s, struct error *e)
{
	const struct elements *el = &c->elements;
	enum dtype_kind kind = dtype_info(el->type)->kind;
	double *v = malloc(ELEMENTS_CHUNK * 2 * sizeof(*v));
	void *raw = malloc(ELEMENTS_CHUNK * ELEMENTS_SIZE_MAX);
	int r = v && raw ? 0 : error_set(e, ENOMEM, "out of memory for statistics");

	for (uint64_t at = 0; !r && at < c->tensor->count; at += ELEMENTS_CHUNK) {
		uint64_t left = c->tensor->count - at;
		uint32_t n = left < ELEMENTS_CHUNK ? (uint32_t)left : ELEMENTS_CHUNK;

		r = elements_read(el, at, n, raw, v, e);
		if (r < 0)
			break;
		if (kind == KIND_INT)
			int_range(s, raw, el->type, n);
		else if (kind == KIND_UINT || kind == KIND_BOOL)
			uint_range(s, raw, el->type, n);
		else if (kind == KIND_COMPLEX)
			magnitudes(v, n);
		add_doubles(s, v, n);
	}
	free(v);
	free(raw);
	return r;
}

/* single: the value is a float32 or float16 */
static void put_double(char *out, bool known, double d, bool single)
{
	int n = 0;

	/* the fewest digits that read back equal */
	known = known && isfinite(d);
	known = known && isfinite(d);
	for (int precision = 1; known && precision <= 17; precision++) {
		n = snprintf(out, WIDTH + 1, "%.*g", precision, d);
		if (n > WIDTH ||
			(single ? strtof(out, NULL) == (float)d : strtod(out, NULL) == d))
			break;
	}
	if (!known)
		snprintf(out, WIDTH + 1, "null");
}

/* The six members that depend on values. NULL: only to measure, every number is a blank. */
static int print(struct text *t, const struct tensor *w, const struct summary *s)
{
	static const struct summary none;
	enum dtype shown = w->dtype == DTYPE_NONE ? DTYPE_FLOAT32 : dtype_info(w->dtype)->npy;
	enum dtype_kind kind = dtype_info(shown)->kind;
	bool single = shown == DTYPE_FLOAT32 || shown == DTYPE_FLOAT16;
	char low[WIDTH + 1], high[WIDTH + 1], mean[WIDTH + 1], std[WIDTH + 1];
	bool known;

	if (!s)
		s = &none;
	known = s->finite > 0;
	put_double(low, known, s->min, single);
	put_double(high, known, s->max, single);
	if (known && kind == KIND_INT) {
		snprintf(low, sizeof(low), "%" PRId64, s->imin);
		snprintf(high, sizeof(high), "%" PRId64, s->imax);
	} else if (known && (kind == KIND_UINT || kind == KIND_BOOL)) {
		snprintf(low, sizeof(low), "%" PRIu64, s->umin);
		snprintf(high, sizeof(high), "%" PRIu64, s->umax);
	}
	put_double(mean, known, s->mean, false);
	put_double(std, known, known ? sqrt(s->m2 / (double)s->finite) : 0, false);
	text_printf(t,
		"{\n  \"count\": %*" PRIu64 ",\n  \"min\":   %*s,\n  \"max\":   %*s,\n"
		"  \"mean\":  %*s,\n  \"std\":   %*s,\n  \"zeros\": %*" PRIu64
		",\n  \"nan\":   %*" PRIu64 ",\n  \"inf\":   %*" PRIu64 "\n}\n",
		WIDTH, s->count, WIDTH, low, WIDTH, high, WIDTH, mean, WIDTH, std, WIDTH, s->zeros,
		WIDTH, s->nan, WIDTH, s->inf);
	return t->failed ? -ENOMEM : 0;
}

static int stats_compute(struct stats *c, struct error *e)
{
	struct summary s = {0};
	struct text t = {0};
	int r = summarize(c, &s, e);

	if (r < 0)
		return r;
	if (print(&t, c->tensor, &s) < 0 || t.len != c->base.size) {
		r = error_set(e, t.failed ? ENOMEM : EIO, "cannot print statistics of '%.*s'",
			STR_ARG(c->tensor->name));
		text_release(&t);
		return r;
	}
	c->text = t.ptr;
	return 0;
}

static int stats_read(struct codec *base, uint64_t offset, void *buf, size_t len, struct error *e)
{
	struct stats *c = (struct stats *)base;
	int r = 0;

	pthread_mutex_lock(&c->lock);
	if (!c->text)
		r = stats_compute(c, e);
	if (!r)
		memcpy(buf, c->text + offset, len);
	pthread_mutex_unlock(&c->lock);
	return r;
}

static void stats_free(struct codec *base)
{
	struct stats *c = (struct stats *)base;

	elements_close(&c->elements);
	pthread_mutex_destroy(&c->lock);
	free(c->text);
	free(c);
}

static const struct codec_ops stats_ops = {.name = "statistics", .read = stats_read, .free = stats_free};

static bool stats_exists(const struct view_context *cx, const struct subject *s)
{
	return elements_can(&cx->model->tensors[s->index]);
}

static int stats_size(const struct view_context *cx, const struct subject *s, uint64_t *size)
{
	struct text t = {0};
	int r = print(&t, &cx->model->tensors[s->index], NULL);

	*size = t.len;
	text_release(&t);
	return r;
}

static int stats_render(const struct view_context *cx, const struct subject *s, struct extmap *out,
	struct error *e)
{
	const struct tensor *t = &cx->model->tensors[s->index];
	struct stats *c;
	struct extent x;
	uint64_t size;
	int r;

	if (stats_size(cx, s, &size) < 0)
		return error_set(e, ENOMEM, "out of memory for statistics");
	if (t->problem.len)
		return tensor_unreadable(t, size, out, e);
	c = calloc(1, sizeof(*c));
	if (!c)
		return error_set(e, ENOMEM, "out of memory for statistics");
	codec_init(&c->base, &stats_ops, size);
	pthread_mutex_init(&c->lock, NULL);
	c->tensor = t;
	r = elements_open(&c->elements, t, e);
	if (!r) {
		x = extent_codec(&c->base);
		extmap_append(out, &x);
		r = extmap_failed(out, e);
	}
	codec_unref(&c->base);
	return r;
}

const struct view view_stats = {
	.name = "stats",
	.subject = SUBJECT_TENSOR,
	.path = "stats",
	.suffix = ".json",
	.exists = stats_exists,
	.render = stats_render,
	.size = stats_size,
};
