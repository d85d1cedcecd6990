/* SPDX-License-Identifier: MIT */
#include "parsers/core/metadata.h"

#include "parsers/container/json.h"
#include "parsers/container/json_write.h"

#include <errno.h>
#include <stdlib.h>

#define PREFIX "wiamodel."
#define PREPROCESSING "preprocessing"

static int check_string(const struct value *v, struct error *e)
{
	if (v->kind != VALUE_STRING)
		return error_set(e, EINVAL, "not a string");
	return 0;
}

static bool digits(struct str s, size_t *at, size_t min, size_t max)
{
	size_t n = 0;

	while (*at < s.len && n < max && s.ptr[*at] >= '0' && s.ptr[*at] <= '9') {
		(*at)++;
		n++;
	}
	return n >= min;
}

static bool is_char(struct str s, size_t *at, const char *set)
{
	if (*at >= s.len || !s.ptr[*at] || !strchr(set, s.ptr[*at]))
		return false;
	(*at)++;
	return true;
}

/* MAJOR.MINOR.PATCH, each a number without leading zeros (semver.org 2.0.0, 2) that fits 63 bits, since ONNX
 * keeps its version as an int64 */
static int check_version(const struct value *v, struct error *e)
{
	struct str s = v->kind == VALUE_STRING ? v->str : STR("");
	size_t at = 0;

	if (v->kind != VALUE_STRING)
		return check_string(v, e);
	for (int part = 0; part < 3; part++) {
		size_t begin = at + (part > 0);

		if (part > 0 && !is_char(s, &at, "."))
			break;
		if (!digits(s, &at, 1, 18) || (s.ptr[begin] == '0' && at > begin + 1))
			break;
		if (part == 2 && at == s.len)
			return 0;
	}
	return error_set(e, EINVAL, "'%.*s' is not MAJOR.MINOR.PATCH", STR_ARG(s));
}

static unsigned number(struct str s, size_t at, size_t n)
{
	unsigned v = 0;

	while (n--)
		v = v * 10 + (unsigned)(s.ptr[at++] - '0');
	return v;
}

static bool is_date(struct str s, size_t *at)
{
	static const unsigned char days[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	unsigned year, month, day;

	if (!digits(s, at, 4, 4) || !is_char(s, at, "-") || !digits(s, at, 2, 2) ||
		!is_char(s, at, "-") || !digits(s, at, 2, 2))
		return false;
	year = number(s, *at - 10, 4);
	month = number(s, *at - 5, 2);
	day = number(s, *at - 2, 2);
	if (month < 1 || month > 12 || day < 1 || day > days[month - 1])
		return false;
	return month != 2 || day < 29 || (year % 4 == 0 && (year % 100 != 0 || year % 400 == 0));
}

/* hh:mm[:ss[.fraction]]; 60 is a leap second */
static bool is_time(struct str s, size_t *at)
{
	if (!digits(s, at, 2, 2) || number(s, *at - 2, 2) > 23 || !is_char(s, at, ":") ||
		!digits(s, at, 2, 2) || number(s, *at - 2, 2) > 59)
		return false;
	if (!is_char(s, at, ":"))
		return true;
	if (!digits(s, at, 2, 2) || number(s, *at - 2, 2) > 60)
		return false;
	return !is_char(s, at, ".") || digits(s, at, 1, 9);
}

static bool is_zone(struct str s, size_t *at)
{
	if (*at == s.len || is_char(s, at, "Z"))
		return true;
	if (!is_char(s, at, "+-") || !digits(s, at, 2, 2) || number(s, *at - 2, 2) > 23)
		return false;
	is_char(s, at, ":");
	return *at == s.len || (digits(s, at, 2, 2) && number(s, *at - 2, 2) < 60);
}

/* ISO 8601 as RFC 3339 narrows it, a plain date and a time without zone or seconds allowed too */
static int check_created_at(const struct value *v, struct error *e)
{
	struct str s = v->kind == VALUE_STRING ? v->str : STR("");
	size_t at = 0;

	if (v->kind != VALUE_STRING)
		return check_string(v, e);
	if (is_date(s, &at) &&
		(at == s.len || (is_char(s, &at, "T ") && is_time(s, &at) && is_zone(s, &at))) &&
		at == s.len)
		return 0;
	return error_set(e, EINVAL, "'%.*s' is not an ISO 8601 date or time like 2024-05-17T09:30:00Z",
		STR_ARG(s));
}

/* the order of metadata.json */
const struct metadata_key metadata_keys[] = {
	{"name", true, check_string},
	{"version", true, check_version},
	{"framework", true, check_string},
	{"framework_version", true, check_string},
	{"producer", true, check_string},
	{"producer_version", true, check_string},
	{"description", true, check_string},
	{"author", true, check_string},
	{"license", true, check_string},
	{"created_at", true, check_created_at},
	{"onnx_opset", false, NULL},
};
const size_t metadata_key_count = sizeof(metadata_keys) / sizeof(*metadata_keys);

const struct metadata_key *metadata_key(struct str name)
{
	for (size_t i = 0; i < metadata_key_count; i++)
		if (str_is(name, metadata_keys[i].name))
			return &metadata_keys[i];
	return NULL;
}

bool metadata_is_native(const struct format *f, struct str key)
{
	for (const char *const *k = f->model_keys; k && *k; k++)
		if (str_is(key, *k))
			return true;
	return false;
}

/* The model key that a property stands for, NULL = an ordinary property. */
static const struct metadata_key *property_key(const struct member *p)
{
	struct str name = p->key;
	const struct metadata_key *k;

	if (!str_starts(name, STR(PREFIX)) || !p->value)
		return NULL;
	name.ptr += strlen(PREFIX);
	name.len -= strlen(PREFIX);
	k = metadata_key(name);
	/* what somebody else wrote under our prefix and does not fit stays an ordinary property */
	return k && k->writable && k->check(p->value, NULL) == 0 ? k : NULL;
}

static int out_of_memory(struct error *e)
{
	return error_set(e, ENOMEM, "out of memory for metadata");
}

static struct value *map_copy(struct arena *a, const struct value *v)
{
	struct value *map = value_map(a);

	for (size_t i = 0; map && v && i < v->map.count; i++)
		if (value_set(a, map, v->map.members[i].key, v->map.members[i].value) < 0)
			return NULL;
	return map;
}

/* The section from the text that metadata_spill made; NULL when it is none (then it stays a property). */
static struct value *preprocessing_of(struct arena *a, const struct member *p)
{
	struct value *v;

	if (!str_is(p->key, PREFIX PREPROCESSING) || !p->value || p->value->kind != VALUE_STRING ||
		json_parse(a, p->value->str.ptr, p->value->str.len, &v, NULL) < 0)
		return NULL;
	return v->kind == VALUE_MAP ? v : NULL;
}

/* To the place it has in the model; false: an ordinary property. */
static bool collect_one(struct arena *a, struct metadata *meta, struct value *model,
	const struct member *p, int *r)
{
	const struct metadata_key *k = property_key(p);
	struct value *preprocessing = k ? NULL : preprocessing_of(a, p);

	if (preprocessing && !meta->preprocessing)
		meta->preprocessing = preprocessing;
	else if (k && !value_get(model, k->name))
		*r = value_set(a, model, str_from(k->name), p->value);
	return k || preprocessing;
}

int metadata_collect(struct arena *a, struct metadata *meta, struct error *e)
{
	const struct value *from = meta->properties;
	struct value *model, *rest;
	bool found = false;

	if (!from || from->kind != VALUE_MAP)
		return 0;
	for (size_t i = 0; i < from->map.count; i++)
		found |= str_starts(from->map.members[i].key, STR(PREFIX));
	if (!found)
		return 0;
	model = map_copy(a, meta->model);
	rest = value_map(a);
	if (!model || !rest)
		return out_of_memory(e);
	for (size_t i = 0; i < from->map.count; i++) {
		const struct member *p = &from->map.members[i];
		int r = 0;

		if (!collect_one(a, meta, model, p, &r))
			r = value_set(a, rest, p->key, p->value);
		if (r < 0)
			return out_of_memory(e);
	}
	meta->model = model;
	meta->properties = rest;
	return 0;
}

static struct value *as_text(struct arena *a, const struct value *v)
{
	struct json j = {.flat = 1};
	struct str copy = {NULL, 0};
	size_t len;
	char *text;

	json_value(&j, v);
	text = json_take(&j, &len);
	if (text)
		copy = arena_str(a, text, len);
	free(text);
	return copy.ptr ? value_str(a, copy) : NULL;
}

/* A key that the format has no field for, into properties or the sidecar. */
static int spill_one(struct arena *a, const struct format *f, struct value *spilled, struct str key,
	struct value *v)
{
	if (f->keeps_properties)
		key = arena_printf(a, PREFIX "%.*s", STR_ARG(key));
	return key.ptr ? value_put(a, spilled, key, v) : -ENOMEM;
}

static int spill_model(struct arena *a, const struct format *f, const struct value *model,
	struct value *native, struct value *spilled)
{
	int r = 0;

	for (size_t i = 0; !r && model && i < model->map.count; i++) {
		const struct member *m = &model->map.members[i];
		const struct metadata_key *k = metadata_key(m->key);

		if (metadata_is_native(f, m->key))
			r = value_set(a, native, m->key, m->value);
		else if (!k || k->writable) /* the rest are facts of another format, not of this file */
			r = spill_one(a, f, spilled, m->key, m->value);
	}
	return r;
}

int metadata_spill(struct arena *a, const struct format *f, const struct metadata *in,
	struct metadata *out, struct value **sidecar, struct error *e)
{
	struct value *native = value_map(a), *spilled = value_map(a);
	int r;

	*out = *in;
	*sidecar = NULL;
	if (f->keeps_properties)
		spilled = map_copy(a, in->properties);
	if (!native || !spilled)
		return out_of_memory(e);
	r = spill_model(a, f, in->model, native, spilled);
	if (!r && in->preprocessing && in->preprocessing->map.count &&
		!metadata_is_native(f, STR(PREPROCESSING))) {
		struct value *v = f->keeps_properties ? as_text(a, in->preprocessing) : in->preprocessing;

		r = v ? spill_one(a, f, spilled, STR(PREPROCESSING), v) : -ENOMEM;
		out->preprocessing = NULL;
	}
	if (r < 0)
		return out_of_memory(e);
	out->model = native;
	if (f->keeps_properties)
		out->properties = spilled->map.count ? spilled : in->properties;
	else if (spilled->map.count)
		*sidecar = spilled;
	return 0;
}
