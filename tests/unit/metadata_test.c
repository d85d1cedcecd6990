/* SPDX-License-Identifier: MIT */
#include "tests/unit/unit.h"

#include "parsers/core/metadata.h"

#include <errno.h>

static struct arena *a;

static int checked(const char *key, const char *text)
{
	return metadata_key(str_from(key))->check(value_cstr(a, text), NULL);
}

static void versions(void)
{
	CHECK(checked("version", "1.2.3") == 0);
	CHECK(checked("version", "0.0.0") == 0);
	CHECK(checked("version", "10.200.3000") == 0);
	CHECK(checked("version", "") == -EINVAL);
	CHECK(checked("version", "1") == -EINVAL);
	CHECK(checked("version", "1.2") == -EINVAL);
	CHECK(checked("version", "1.2.3.4") == -EINVAL);
	CHECK(checked("version", "1.2.x") == -EINVAL);
	CHECK(checked("version", "01.2.3") == -EINVAL);
	CHECK(checked("version", "1.2.03") == -EINVAL);
	CHECK(checked("version", "v1.2.3") == -EINVAL);
	CHECK(checked("version", "1.2.3 ") == -EINVAL);
	CHECK(checked("version", "-1.2.3") == -EINVAL);
	CHECK(checked("version", "1.2.9999999999999999999") == -EINVAL);
	CHECK(metadata_key(STR("version"))->check(value_int(a, 1), NULL) == -EINVAL);
}

static void dates(void)
{
	CHECK(checked("created_at", "2024-05-17") == 0);
	CHECK(checked("created_at", "2024-02-29T23:59:60Z") == 0);
	CHECK(checked("created_at", "2024-05-17T09:30") == 0);
	CHECK(checked("created_at", "2024-05-17 09:30:00.123456+02:00") == 0);
	CHECK(checked("created_at", "2024-05-17T09:30:00-0730") == 0);
	CHECK(checked("created_at", "2023-02-29") == -EINVAL);
	CHECK(checked("created_at", "1900-02-29") == -EINVAL);
	CHECK(checked("created_at", "2000-02-29") == 0);
	CHECK(checked("created_at", "2024-13-01") == -EINVAL);
	CHECK(checked("created_at", "2024-04-31") == -EINVAL);
	CHECK(checked("created_at", "17.5.2024") == -EINVAL);
	CHECK(checked("created_at", "2024-05-17T24:00:00Z") == -EINVAL);
	CHECK(checked("created_at", "2024-05-17T09:30:00Zjunk") == -EINVAL);
	CHECK(checked("created_at", "2024-05-17T") == -EINVAL);
	CHECK(checked("created_at", "yesterday") == -EINVAL);
}

static const char *const native[] = {"producer", NULL};
static const struct format with_properties = {
	.name = "p", .title = "P", .model_keys = native, .keeps_properties = true};
static const struct format without = {.name = "q", .title = "Q", .model_keys = native};

static bool text_is(const struct value *map, const char *key, const char *text)
{
	const struct value *v = value_get(map, key);

	return v && v->kind == VALUE_STRING && str_is(v->str, text);
}

static void fill(struct metadata *m)
{
	*m = (struct metadata){.model = value_map(a), .properties = value_map(a)};
	value_set(a, m->model, STR("producer"), value_cstr(a, "torch"));
	value_set(a, m->model, STR("author"), value_cstr(a, "me"));
	value_set(a, m->model, STR("onnx_opset"), value_int(a, 18));
	value_set(a, m->properties, STR("k"), value_cstr(a, "v"));
}

static void there_and_back(void)
{
	struct metadata in, out;
	struct value *sidecar;
	struct error e = {0};

	fill(&in);
	CHECK(metadata_spill(a, &with_properties, &in, &out, &sidecar, &e) == 0);
	CHECK(!sidecar);
	CHECK(text_is(out.model, "producer", "torch"));
	CHECK(out.model->map.count == 1);
	CHECK(text_is(out.properties, "wiamodel.author", "me"));
	CHECK(text_is(out.properties, "k", "v"));
	CHECK(out.properties->map.count == 2);
	CHECK(in.properties->map.count == 1); /* what came in stays */

	CHECK(metadata_collect(a, &out, &e) == 0);
	CHECK(text_is(out.model, "author", "me"));
	CHECK(text_is(out.model, "producer", "torch"));
	CHECK(out.properties->map.count == 1);
}

static void sidecars(void)
{
	struct metadata in, out;
	struct value *sidecar;

	fill(&in);
	CHECK(metadata_spill(a, &without, &in, &out, &sidecar, NULL) == 0);
	CHECK(sidecar && sidecar->map.count == 1 && text_is(sidecar, "author", "me"));
	CHECK(text_is(out.model, "producer", "torch"));
}

static void preprocessing(void)
{
	struct metadata in = {.preprocessing = value_map(a)}, out;
	struct value *sidecar, *mean = value_list(a);

	value_append(a, mean, value_float(a, 0.5));
	value_set(a, in.preprocessing, STR("mean"), mean);
	CHECK(metadata_spill(a, &with_properties, &in, &out, &sidecar, NULL) == 0);
	CHECK(!out.preprocessing && text_is(out.properties, "wiamodel.preprocessing", "{\"mean\": [0.5]}"));
	CHECK(metadata_collect(a, &out, NULL) == 0);
	CHECK(value_equal(out.preprocessing, in.preprocessing) && out.properties->map.count == 0);
	CHECK(metadata_spill(a, &without, &in, &out, &sidecar, NULL) == 0);
	CHECK(sidecar && value_equal(value_get(sidecar, "preprocessing"), in.preprocessing));
	/* what is no such section is left alone */
	out = (struct metadata){.properties = value_map(a)};
	value_set(a, out.properties, STR("wiamodel.preprocessing"), value_cstr(a, "resize"));
	CHECK(metadata_collect(a, &out, NULL) == 0);
	CHECK(!out.preprocessing && out.properties->map.count == 1);
}

/* A native key wins; what is no key, or fails its check, stays a property. */
static void foreign(void)
{
	struct metadata m = {.model = value_map(a), .properties = value_map(a)};

	value_set(a, m.model, STR("author"), value_cstr(a, "native"));
	value_set(a, m.properties, STR("wiamodel.author"), value_cstr(a, "kept"));
	value_set(a, m.properties, STR("wiamodel.version"), value_cstr(a, "latest"));
	value_set(a, m.properties, STR("wiamodel.onnx_opset"), value_cstr(a, "1"));
	value_set(a, m.properties, STR("wiamodel.whatever"), value_cstr(a, "x"));
	CHECK(metadata_collect(a, &m, NULL) == 0);
	CHECK(text_is(m.model, "author", "native"));
	CHECK(!value_get(m.model, "version"));
	CHECK(text_is(m.properties, "wiamodel.version", "latest"));
	CHECK(text_is(m.properties, "wiamodel.whatever", "x"));
	CHECK(text_is(m.properties, "wiamodel.onnx_opset", "1"));
}

int main(void)
{
	a = arena_new(1 << 20);
	versions();
	dates();
	there_and_back();
	sidecars();
	preprocessing();
	foreign();
	arena_free(a);
	return unit_done("metadata");
}
