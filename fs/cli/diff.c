/* SPDX-License-Identifier: MIT */
/*
 * What differs between two models, whatever their formats: tensors (names, dtypes, shapes, values), metadata and
 * ops. Exit code as diff(1): 0 nothing, 1 something, 2 trouble.
 */
#include "fs/cli/cli.h"
#include "views/elements.h"
#include "views/text.h"

#include "parsers/core/metadata.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define EXIT_TROUBLE 2

struct diff {
	struct cli_model a, b;
	bool as_json;
	struct json json;
	size_t count;
	bool failed; /* memory is out */
};

/* ---- output: one difference ---- */

static void line(struct diff *d, char mark, const char *kind, struct str name, const char *what,
	struct text *text)
{
	struct text t = {0};

	text_printf(&t, "%c %s ", mark, kind);
	text_name(&t, name);
	text_printf(&t, "%s", what ? " " : "");
	text_str(&t, str_from(what ? what : ""));
	if (text->len) {
		text_bytes(&t, mark == '~' ? ": " : " ", mark == '~' ? 2 : 1);
		text_bytes(&t, text->ptr, text->len);
	}
	text_bytes(&t, "\n", 1);
	if (!t.failed && !text->failed)
		fwrite(t.ptr, 1, t.len, stdout);
	else
		d->failed = true;
	text_release(&t);
}

/* mark: '-' only in A, '+' only in B, '~' changed. Takes text. */
static void difference(struct diff *d, char mark, const char *kind, struct str name,
	const char *what, struct text *text)
{
	d->count++;
	if (!d->as_json) {
		line(d, mark, kind, name, what, text);
		text_release(text);
		return;
	}
	json_open(&d->json, '{');
	json_key(&d->json, STR("kind"));
	json_text(&d->json, str_from(kind));
	json_key(&d->json, STR("change"));
	json_text(&d->json, mark == '-' ? STR("removed") : mark == '+' ? STR("added")
								     : STR("changed"));
	json_key(&d->json, STR("name"));
	json_text(&d->json, name);
	if (what) {
		json_key(&d->json, STR("what"));
		json_text(&d->json, str_from(what));
	}
	if (text->len) {
		json_key(&d->json, STR("detail"));
		json_text(&d->json, (struct str){text->ptr, text->len});
	}
	json_close(&d->json, '}');
	d->failed |= text->failed;
	text_release(text);
}

/* ---- names of both sides, merged ---- */

struct name {
	struct str name;
	uint32_t index;
};

static int by_name(const void *x, const void *y)
{
	const struct name *a = x, *b = y;
	int c = str_cmp(a->name, b->name);

	return c ? c : (a->index > b->index) - (a->index < b->index);
}

static struct name *tensor_names(const struct model *m)
{
	struct name *n = calloc(m->tensor_count ? m->tensor_count : 1, sizeof(*n));

	for (uint32_t i = 0; n && i < m->tensor_count; i++)
		n[i] = (struct name){m->tensors[i].name, i};
	if (n)
		qsort(n, m->tensor_count, sizeof(*n), by_name);
	return n;
}

static struct name *op_names(const struct model *m)
{
	struct name *n = calloc(m->op_count ? m->op_count : 1, sizeof(*n));

	for (uint32_t i = 0; n && i < m->op_count; i++)
		n[i] = (struct name){op_shown_name(&m->ops[i]), i};
	if (n)
		qsort(n, m->op_count, sizeof(*n), by_name);
	return n;
}

typedef int pair_fn(struct diff *d, uint32_t a, uint32_t b, struct error *e); /* MODEL_NONE: absent */

static int merge(struct diff *d, const struct name *a, uint32_t na, const struct name *b, uint32_t nb,
	pair_fn *pair, struct error *e)
{
	uint32_t i = 0, k = 0;
	int r = 0;

	if (!a || !b)
		return error_set(e, ENOMEM, "out of memory");
	while (!r && (i < na || k < nb)) {
		int c = i == na ? 1 : k == nb ? -1 : str_cmp(a[i].name, b[k].name);
		uint32_t left = c <= 0 ? a[i].index : MODEL_NONE;
		uint32_t right = c >= 0 ? b[k].index : MODEL_NONE;

		r = pair(d, left, right, e);
		i += c <= 0;
		k += c >= 0;
	}
	return r;
}

/* ---- tensors ---- */

struct values {
	uint64_t differ, first;
	double largest;
	bool known; /* largest means something */
};

static void compare_chunk(struct values *v, const struct elements *el, uint64_t at, uint32_t n,
	const unsigned char *raw[2], const double *num[2])
{
	for (uint32_t i = 0; i < n; i++) {
		double delta = 0;

		if (memcmp(raw[0] + (size_t)i * el->size, raw[1] + (size_t)i * el->size, el->size) == 0)
			continue;
		if (!v->differ++)
			v->first = at + i;
		for (uint32_t p = 0; p < el->parts; p++)
			delta = fmax(delta, fabs(num[0][i * el->parts + p] - num[1][i * el->parts + p]));
		if (isfinite(delta)) {
			v->known = true;
			v->largest = fmax(v->largest, delta);
		}
	}
}

static int compare_values(const struct tensor *a, const struct tensor *b, struct values *v,
	struct error *e)
{
	struct elements el[2] = {{.size = 0}, {.size = 0}};
	const size_t raw_size = ELEMENTS_CHUNK * ELEMENTS_SIZE_MAX;
	unsigned char *raw = malloc(2 * raw_size);
	double *num = malloc(4 * ELEMENTS_CHUNK * sizeof(*num));
	int r = raw && num ? 0 : error_set(e, ENOMEM, "out of memory");

	if (!r)
		r = elements_open(&el[0], a, e);
	if (!r)
		r = elements_open(&el[1], b, e);
	for (uint64_t at = 0; !r && at < a->count; at += ELEMENTS_CHUNK) {
		uint32_t n = a->count - at < ELEMENTS_CHUNK ? (uint32_t)(a->count - at)
							    : ELEMENTS_CHUNK;
		const unsigned char *raws[2] = {raw, raw + raw_size};
		const double *nums[2] = {num, num + 2 * ELEMENTS_CHUNK};

		r = elements_read(&el[0], at, n, raw, num, e);
		if (!r)
			r = elements_read(&el[1], at, n, raw + raw_size, num + 2 * ELEMENTS_CHUNK, e);
		if (!r)
			compare_chunk(v, &el[0], at, n, raws, nums);
	}
	elements_close(&el[0]);
	elements_close(&el[1]);
	free(raw);
	free(num);
	return r;
}

static int compare_strings(const struct tensor *a, const struct tensor *b, struct values *v)
{
	for (uint64_t i = 0; a->strings && b->strings && i < a->count; i++) {
		if (str_eq(a->strings[i], b->strings[i]))
			continue;
		if (!v->differ++)
			v->first = i;
	}
	return 0;
}

/* Bits of an unknown kind: equal or not. */
static int compare_bytes(const struct tensor *a, const struct tensor *b, bool *same, struct error *e)
{
	const size_t step = 64u << 10;
	unsigned char *buf = malloc(2 * step);
	int r = buf ? 0 : error_set(e, ENOMEM, "out of memory");

	*same = a->data.size == b->data.size;
	for (uint64_t at = 0; !r && *same && at < a->data.size; at += step) {
		size_t n = a->data.size - at < step ? (size_t)(a->data.size - at) : step;

		r = extent_read(&a->data, at, buf, n, e);
		if (!r)
			r = extent_read(&b->data, at, buf + step, n, e);
		*same = !r && memcmp(buf, buf + step, n) == 0;
	}
	free(buf);
	return r;
}

static void tensor_type(struct text *t, const struct tensor *w)
{
	text_type(t, w->dtype, w->shape, w->rank);
	if (w->dtype == DTYPE_NONE && w->stored_type)
		text_printf(t, " (%s)", w->stored_type);
}

static bool same_type(const struct tensor *a, const struct tensor *b)
{
	if (a->dtype == DTYPE_NONE && b->dtype == DTYPE_NONE &&
		strcmp(a->stored_type ? a->stored_type : "", b->stored_type ? b->stored_type : ""))
		return false;
	return a->dtype == b->dtype && a->rank == b->rank &&
	       (!a->rank || memcmp(a->shape, b->shape, a->rank * sizeof(*a->shape)) == 0);
}

static int diff_values(struct diff *d, const struct tensor *a, const struct tensor *b,
	struct error *e)
{
	struct values v = {0};
	struct text t = {0};
	bool same = true;
	int r;

	if (a->problem.len || b->problem.len) {
		if (str_eq(a->problem, b->problem))
			return 0;
		text_str(&t, STR("damaged, cannot be compared"));
		difference(d, '~', "tensor", a->name, NULL, &t);
		return 0;
	}
	if (a->dtype == DTYPE_STRING)
		r = compare_strings(a, b, &v);
	else if (a->dtype == DTYPE_NONE)
		r = compare_bytes(a, b, &same, e);
	else
		r = compare_values(a, b, &v, e);
	if (r < 0)
		return error_prefix(e, "comparing values");
	if (!same)
		text_str(&t, STR("bytes differ"));
	else if (v.differ)
		text_printf(&t, "%" PRIu64 " of %" PRIu64 " values differ, the first at %" PRIu64, v.differ,
			a->count, v.first);
	if (v.known && v.largest > 0)
		text_printf(&t, ", by up to %.6g", v.largest);
	if (t.len)
		difference(d, '~', "tensor", a->name, NULL, &t);
	return 0;
}

static int diff_tensor(struct diff *d, uint32_t ia, uint32_t ib, struct error *e)
{
	const struct tensor *a = ia == MODEL_NONE ? NULL : &d->a.model->tensors[ia];
	const struct tensor *b = ib == MODEL_NONE ? NULL : &d->b.model->tensors[ib];
	struct text t = {0};

	if (a && b && same_type(a, b))
		return diff_values(d, a, b, e);
	if (a)
		tensor_type(&t, a);
	if (a && b)
		text_str(&t, STR(" -> "));
	if (b)
		tensor_type(&t, b);
	difference(d, a && b ? '~' : a ? '-' : '+', "tensor", a ? a->name : b->name, NULL, &t);
	return 0;
}

/* ---- maps: metadata, attributes ---- */


static void diff_member(struct diff *d, const char *kind, struct str name, const char *section,
	struct str key, const struct value *a, const struct value *b)
{
	struct text what = {0}, t = {0};

	if (a && b && value_equal(a, b))
		return;
	text_printf(&what, "%s.", section);
	text_name(&what, key);
	text_bytes(&what, "", 1);
	if (a)
		text_value(&t, a);
	if (a && b)
		text_str(&t, STR(" -> "));
	if (b)
		text_value(&t, b);
	if (what.failed)
		d->failed = true;
	else if (name.len)
		difference(d, '~', kind, name, what.ptr, &t);
	else
		difference(d, a && b ? '~' : a ? '-' : '+', kind, str_from(what.ptr), NULL, &t);
	text_release(&t);
	text_release(&what);
}

struct key {
	struct str key;
	const struct value *value;
};

static int by_key(const void *x, const void *y)
{
	return str_cmp(((const struct key *)x)->key, ((const struct key *)y)->key);
}

static size_t sorted_keys(const struct value *map, struct key **out)
{
	size_t n = map && map->kind == VALUE_MAP ? map->map.count : 0;

	*out = calloc(n ? n : 1, sizeof(**out));
	for (size_t i = 0; *out && i < n; i++)
		(*out)[i] = (struct key){map->map.members[i].key, map->map.members[i].value};
	if (*out)
		qsort(*out, n, sizeof(**out), by_key);
	return n;
}

static void diff_map(struct diff *d, const char *kind, struct str name, const char *section,
	const struct value *a, const struct value *b)
{
	struct key *ka, *kb;
	size_t na = sorted_keys(a, &ka), nb = sorted_keys(b, &kb), i = 0, k = 0;

	d->failed |= !ka || !kb;
	while (ka && kb && (i < na || k < nb)) {
		int c = i == na ? 1 : k == nb ? -1 : str_cmp(ka[i].key, kb[k].key);

		diff_member(d, kind, name, section, c <= 0 ? ka[i].key : kb[k].key,
			c <= 0 ? ka[i].value : NULL, c >= 0 ? kb[k].value : NULL);
		i += c <= 0;
		k += c >= 0;
	}
	free(ka);
	free(kb);
}

static void diff_metadata(struct diff *d)
{
	const struct metadata *a = &d->a.model->meta, *b = &d->b.model->meta;

	diff_map(d, "metadata", STR(""), "model", a->model, b->model);
	diff_map(d, "metadata", STR(""), "preprocessing", a->preprocessing, b->preprocessing);
	diff_map(d, "metadata", STR(""), "properties", a->properties, b->properties);
	diff_map(d, "metadata", STR(""), "values", a->values, b->values);
}

/* ---- ops ---- */

static void list_edges(struct text *t, const struct op *op)
{
	for (uint32_t i = 0; i < op->input_count; i++) {
		text_str(t, i ? STR(", ") : STR(""));
		text_name(t, op->inputs[i].name);
	}
}

static void list_outputs(struct text *t, const struct op *op)
{
	for (uint32_t i = 0; i < op->output_count; i++) {
		text_str(t, i ? STR(", ") : STR(""));
		text_name(t, op->outputs[i]);
	}
}

static void list_type(struct text *t, const struct op *op)
{
	text_str(t, op->domain);
	text_str(t, op->domain.len ? STR(".") : STR(""));
	text_str(t, op->type);
}

static void diff_part(struct diff *d, const struct op *a, const struct op *b, const char *what,
	void (*print)(struct text *t, const struct op *op))
{
	struct text ta = {0}, tb = {0};

	print(&ta, a);
	print(&tb, b);
	if (ta.failed || tb.failed) {
		d->failed = true;
	} else if (ta.len != tb.len || (ta.len && memcmp(ta.ptr, tb.ptr, ta.len) != 0)) {
		text_str(&ta, STR(" -> "));
		text_bytes(&ta, tb.ptr, tb.len);
		difference(d, '~', "op", op_shown_name(a), what, &ta);
	}
	text_release(&ta);
	text_release(&tb);
}

static int diff_op(struct diff *d, uint32_t ia, uint32_t ib, struct error *e)
{
	const struct op *a = ia == MODEL_NONE ? NULL : &d->a.model->ops[ia];
	const struct op *b = ib == MODEL_NONE ? NULL : &d->b.model->ops[ib];
	struct text t = {0};

	(void)e;
	if (!a || !b) {
		list_type(&t, a ? a : b);
		difference(d, a ? '-' : '+', "op", op_shown_name(a ? a : b), NULL, &t);
		return 0;
	}
	diff_part(d, a, b, "type", list_type);
	diff_part(d, a, b, "inputs", list_edges);
	diff_part(d, a, b, "outputs", list_outputs);
	diff_map(d, "op", op_shown_name(a), "attributes", a->attributes, b->attributes);
	return 0;
}

/* ---- the whole ---- */

static int diff_all(struct diff *d, struct error *e)
{
	const struct model *a = d->a.model, *b = d->b.model;
	struct name *ta = tensor_names(a), *tb = tensor_names(b), *oa = op_names(a), *ob = op_names(b);
	int r = merge(d, ta, a->tensor_count, tb, b->tensor_count, diff_tensor, e);

	if (!r)
		diff_metadata(d);
	if (!r)
		r = merge(d, oa, a->op_count, ob, b->op_count, diff_op, e);
	if (!r && d->failed)
		r = error_set(e, ENOMEM, "out of memory");
	free(ta);
	free(tb);
	free(oa);
	free(ob);
	return r;
}

static int print_json(struct diff *d, struct error *e)
{
	size_t len;
	char *text;

	json_close(&d->json, ']');
	json_end(&d->json);
	text = json_take(&d->json, &len);
	if (!text)
		return error_set(e, ENOMEM, "out of memory");
	fwrite(text, 1, len, stdout);
	free(text);
	return 0;
}

enum { OPT_JSON = CLI_OWN };

static int diff_run(int argc, char **argv)
{
	static const struct option longs[] = {
		CLI_LONG_OPTIONS, {"json", no_argument, NULL, OPT_JSON}, {0}};
	struct cli_options options = CLI_OPTIONS_INIT;
	struct diff d = {0};
	struct error e = {0};
	int o, r;

	while ((o = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (o == OPT_JSON)
			d.as_json = true;
		else if ((r = cli_option("diff", o, &options)) != 0)
			return r;
	}
	if (argc - optind != 2)
		return cli_usage("diff", "expected two models");
	r = cli_open(&d.a, argv[optind], &options, &e);
	if (!r)
		r = cli_open(&d.b, argv[optind + 1], &options, &e);
	if (!r && d.as_json)
		json_open(&d.json, '[');
	if (!r)
		r = diff_all(&d, &e);
	if (!r && d.as_json)
		r = print_json(&d, &e);
	json_release(&d.json);
	cli_close(&d.a);
	cli_close(&d.b);
	if (r < 0)
		cli_error("diff", &e);
	else if (cli_finish("diff", EXIT_SUCCESS) != EXIT_SUCCESS)
		r = -EIO;
	return r < 0 ? EXIT_TROUBLE : d.count ? 1 : 0;
}

const struct command command_diff = {
	.name = "diff",
	.synopsis = "[--json] MODEL MODEL",
	.summary = "say what differs between two models",
	.run = diff_run,
};
