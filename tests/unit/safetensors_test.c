/* SPDX-License-Identifier: MIT */
/* The driver from file to file: parse, edit, plan, write, parse again. */
#include "tests/unit/model.h"
#include "tests/unit/unit.h"

#include "fs/output.h"
#include "parsers/format.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static char dir_name[] = "/tmp/wiamodel-safetensors-XXXXXX";
static int dir = -1;

static const char *path_of(const char *name)
{
	static char path[4][128];
	static unsigned next;
	char *p = path[next++ % 4];

	snprintf(p, 128, "%s/%s", dir_name, name);
	return p;
}

static void write_file(const char *name, const char *header, const void *data, size_t size)
{
	FILE *f = fopen(path_of(name), "w");
	uint64_t n = strlen(header);

	fwrite(&n, 8, 1, f);
	fwrite(header, n, 1, f);
	fwrite(data, size, 1, f);
	fclose(f);
}

static struct model *open_model(const char *name, struct error *e)
{
	struct input in;
	struct model *m = NULL;

	if (input_open(&in, path_of(name), e) == 0)
		model_open(&in, NULL, &m, e);
	input_close(&in);
	return m;
}

static const char header[] = "{\"__metadata__\":{\"k\":\"v\",\"wiamodel.author\":\"me\"},"
			     "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]},"
			     "\"a\":{\"dtype\":\"BF16\",\"shape\":[1,2],\"data_offsets\":[0,4]},"
			     "\"$x\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[12,13],\"more\":1}}  ";
static const unsigned char data[13] = {1, 2, 3, 4, 0, 0, 0x80, 0x3f, 0, 0, 0, 0x40, 77};

static struct model *base(void)
{
	struct error e = {0};
	struct model *m;

	write_file("in.safetensors", header, data, sizeof(data));
	m = open_model("in.safetensors", &e);
	if (!m)
		printf("%s\n", e.text);
	return m;
}

static void reading(void)
{
	struct model *m = base();

	CHECK(m && m->tensor_count == 3);
	CHECK(holds(m, "a", data, 4) && find(m, "a")->dtype == DTYPE_BFLOAT16);
	CHECK(holds(m, "b", data + 4, 8) && find(m, "b")->rank == 1);
	CHECK(holds(m, "$x", data + 12, 1) && find(m, "$x")->rank == 0);
	CHECK(str_is(value_get(m->meta.properties, "k")->str, "v"));
	CHECK(str_is(value_get(m->meta.model, "author")->str, "me"));
	CHECK(!value_get(m->meta.properties, "wiamodel.author"));
	CHECK(m->warning_count == 0);
	model_unref(m);
}

/* The edited model saved over its own file, read back. */
static struct model *save(struct model *m, const char *name)
{
	struct plan p = {.root_name = name, .in_place = m->base != NULL};
	struct output_file o;
	struct error e = {0};
	int r = model_plan(m, m->format, &p, &e);

	if (!r)
		r = output_open(&o, dir, name, 0600, &e);
	if (!r)
		r = output_map(o.fd, &p.files[0].map, 0, NULL, &e);
	if (!r)
		r = output_finish(&o, OUTPUT_REPLACE, &e);
	if (r)
		printf("save: %s\n", e.text);
	plan_release(&p);
	return r ? NULL : open_model(name, &e);
}

static struct model *edited(struct model *m, const struct edit *x)
{
	struct error e = {0};
	struct model *n = NULL;

	if (model_edit(m, x, &n, &e) < 0)
		printf("edit: %s\n", e.text);
	model_unref(m);
	return n;
}

static bool same_file(const char *a, const char *b, size_t except_from, size_t except_to)
{
	unsigned char ba[512], bb[512];
	FILE *fa = fopen(path_of(a), "r"), *fb = fopen(path_of(b), "r");
	size_t na = fread(ba, 1, sizeof(ba), fa), nb = fread(bb, 1, sizeof(bb), fb);
	bool same = na == nb;

	for (size_t i = 0; same && i < na; i++)
		same = (i >= except_from && i < except_to) || ba[i] == bb[i];
	fclose(fa);
	fclose(fb);
	return same;
}

/* Only the bytes of the tensor change; the unknown member and the blanks of the header stay. */
static void values(void)
{
	struct model *m = base(), *back;
	float now[2] = {5, 6};
	struct edit x = {.kind = EDIT_TENSOR, .id = find(m, "b")->id, .dtype = DTYPE_FLOAT32, .rank = 1,
		.shape = {2}, .data = extent_memory(now, 8)};
	size_t at = 8 + strlen(header) + 4;

	m = edited(m, &x);
	back = save(m, "out.safetensors");
	CHECK(back && holds(back, "b", now, 8) && holds(back, "a", data, 4));
	CHECK(same_file("in.safetensors", "out.safetensors", at, at + 8));
	model_unref(m);
	model_unref(back);
}

static void shapes_names_and_metadata(void)
{
	struct model *m = base(), *back;
	float three[3] = {1, 2, 3};
	uint32_t a = find(m, "a")->id, b = find(m, "b")->id, x8 = find(m, "$x")->id;
	struct edit reshape = {.kind = EDIT_TENSOR, .id = b, .dtype = DTYPE_FLOAT32, .rank = 1,
		.shape = {3}, .data = extent_memory(three, 12)};
	struct edit rename = {.kind = EDIT_RENAME, .id = a, .name = STR("n/\"a\"")};
	struct edit remove = {.kind = EDIT_REMOVE, .id = x8};
	struct edit add = {.kind = EDIT_ADD, .name = STR("new"), .dtype = DTYPE_FLOAT32, .rank = 1,
		.shape = {1}, .data = extent_memory(three, 4)};

	m = edited(m, &reshape);
	m = edited(m, &rename);
	m = edited(m, &remove);
	m = edited(m, &add);
	back = save(m, "out.safetensors");
	CHECK(back && back->tensor_count == 3 && back->warning_count == 0);
	CHECK(holds(back, "b", three, 12) && holds(back, "n/\"a\"", data, 4) && holds(back, "new", three, 4));
	CHECK(str_is(value_get(back->meta.model, "author")->str, "me"));
	CHECK(str_is(value_get(back->meta.properties, "k")->str, "v"));
	CHECK(value_get(back->meta.properties, "format") == NULL);
	model_unref(m);
	model_unref(back);
}

static void metadata(void)
{
	struct model *m = base(), *back;
	struct arena *a = arena_new(1 << 16);
	struct edit x = {.kind = EDIT_METADATA};

	x.meta.properties = value_map(a);
	value_set(a, x.meta.properties, STR("q"), value_cstr(a, "\"\n"));
	m = edited(m, &x);
	back = save(m, "out.safetensors");
	CHECK(back && back->meta.properties->map.count == 1);
	CHECK(back && str_is(value_get(back->meta.properties, "q")->str, "\"\n"));
	CHECK(back && !back->meta.model);
	CHECK(holds(back, "$x", data + 12, 1));
	model_unref(back);
	value_set(a, x.meta.properties, STR("n"), value_int(a, 3));
	CHECK(model_edit(m, &x, &back, NULL) == -EINVAL);
	model_unref(m);
	arena_free(a);
}

static bool refused(const char *text, const void *bytes, size_t size)
{
	struct error e = {0};
	struct model *m;

	write_file("bad.safetensors", text, bytes, size);
	m = open_model("bad.safetensors", &e);
	model_unref(m);
	return !m && e.code && e.text[0];
}

static void malformed(void)
{
	struct error e = {0};
	struct model *m;

	CHECK(refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", data, 4));
	CHECK(refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", data, 4));
	CHECK(refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", data, 4));
	CHECK(refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,4294967296],"
		      "\"data_offsets\":[0,4]}}", data, 4));
	CHECK(refused("{\"a\":{\"dtype\":4,\"shape\":[1],\"data_offsets\":[0,4]}}", data, 4));
	CHECK(refused("{\"a\":7}", data, 4));
	CHECK(refused("{\"__metadata__\":{\"k\":1}}", data, 0));
	CHECK(refused("{\"a\":{}", data, 4));
	CHECK(refused("{,}", data, 4));
	/* one damaged tensor: the rest can be read */
	write_file("bad.safetensors", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
				      "\"z\":{\"dtype\":\"F32\",\"shape\":[9],\"data_offsets\":[4,40]}}",
		data, 8);
	m = open_model("bad.safetensors", &e);
	CHECK(m && holds(m, "a", data, 4));
	CHECK(m && find(m, "z")->problem.len && find(m, "z")->data.size == 36);
	model_unref(m);
}

/* ---- several files ---- */

static void write_text(const char *name, const char *text)
{
	FILE *f = fopen(path_of(name), "w");

	fputs(text, f);
	fclose(f);
}

#define INDEX "m.safetensors.index.json"

static struct model *sharded(void)
{
	struct error e = {0};
	struct model *m;

	write_file("m-1.safetensors", "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
				      "\"both\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}",
		data, 3);
	write_file("m-2.safetensors", "{\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
				      "\"both\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]},"
				      "\"stray\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}",
		data + 3, 3);
	write_text(INDEX, "{\"metadata\": {\"total_size\": 4, \"x\": [1]}, \"weight_map\": {\"a\": "
			  "\"m-1.safetensors\", \"b\": \"m-2.safetensors\", \"both\": \"m-2.safetensors\", "
			  "\"gone\": \"m-1.safetensors\"}}");
	m = open_model(INDEX, &e);
	if (!m)
		printf("%s\n", e.text);
	return m;
}

static struct plan plan;

static bool planned(const struct model *m)
{
	struct error e = {0};

	plan_release(&plan);
	plan = (struct plan){.root_name = INDEX, .in_place = true};
	if (model_plan(m, m->format, &plan, &e) == 0)
		return true;
	printf("plan: %s\n", e.text);
	return false;
}

/* What the planned files hold; opens the model that they make. */
static struct model *write_plan(void)
{
	struct output_file o;
	struct error e = {0};

	for (size_t i = 0; i < plan.count; i++) {
		const char *name = plan.files[i].name[0] ? plan.files[i].name : INDEX;

		if (plan.files[i].unchanged)
			continue;
		CHECK(output_open(&o, dir, name, 0600, &e) == 0);
		CHECK(output_map(o.fd, &plan.files[i].map, 0, NULL, &e) == 0);
		CHECK(output_finish(&o, OUTPUT_REPLACE, &e) == 0);
	}
	for (size_t i = 0; i < plan.obsolete_count; i++)
		unlinkat(dir, plan.obsolete[i], 0);
	return open_model(INDEX, &e);
}

static void several_files(void)
{
	struct model *m = sharded(), *back;
	unsigned char nine = 9;
	struct edit x = {.kind = EDIT_TENSOR, .id = find(m, "b")->id, .dtype = DTYPE_UINT8, .rank = 1,
		.shape = {1}, .data = extent_memory(&nine, 1)};
	struct edit add = {.kind = EDIT_ADD, .name = STR("new"), .dtype = DTYPE_UINT8, .rank = 1,
		.shape = {1}, .data = extent_memory(&nine, 1)};

	CHECK(m->tensor_count == 4 && m->warning_count == 3); /* both, stray, gone */
	CHECK(holds(m, "both", data + 4, 1) && str_is(find(m, "both")->shard, "m-2.safetensors"));
	/* one file changes: it keeps its name, the index stays */
	m = edited(m, &x);
	CHECK(planned(m) && plan.count == 3 && plan.obsolete_count == 0);
	CHECK(plan.files[0].unchanged && !plan.files[1].unchanged && plan.files[2].unchanged);
	back = write_plan();
	CHECK(back && holds(back, "b", &nine, 1) && holds(back, "stray", data + 5, 1));
	model_unref(back);
	model_unref(m);

	m = edited(sharded(), &add);
	CHECK(planned(m) && plan.obsolete_count == 1);
	CHECK(strcmp(plan.files[1].name, "m-2.w1.safetensors") == 0);
	back = write_plan();
	CHECK(back && back->warning_count == 1); /* "both" stays in m-1 as it was; the rest is mended */
	CHECK(back && holds(back, "new", &nine, 1) && holds(back, "a", data, 2) && holds(back, "both", data + 4, 1));
	CHECK(back && str_is(find(back, "new")->shard, "m-2.w1.safetensors"));
	model_unref(m);
	m = edited(back, &(struct edit){.kind = EDIT_REMOVE, .id = find(back, "new")->id});
	CHECK(planned(m) && strcmp(plan.files[1].name, "m-2.w2.safetensors") == 0);
	model_unref(m);
	plan_release(&plan);
	unlinkat(dir, "m-1.safetensors", 0);
	unlinkat(dir, "m-2.safetensors", 0);
	unlinkat(dir, "m-2.w1.safetensors", 0);
	unlinkat(dir, INDEX, 0);
}

int main(void)
{
	if (!mkdtemp(dir_name) || (dir = open(dir_name, O_RDONLY | O_DIRECTORY)) < 0) {
		perror(dir_name);
		return 1;
	}
	reading();
	values();
	shapes_names_and_metadata();
	metadata();
	malformed();
	several_files();
	unlinkat(dir, "in.safetensors", 0);
	unlinkat(dir, "out.safetensors", 0);
	unlinkat(dir, "bad.safetensors", 0);
	close(dir);
	rmdir(dir_name);
	return unit_done("safetensors");
}
