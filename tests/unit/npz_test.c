/* SPDX-License-Identifier: MIT */
/* The driver from file to file: made from a model in memory, edited, saved, read back. */
#include "tests/unit/model.h"
#include "tests/unit/unit.h"

#include "fs/output.h"
#include "parsers/container/zip.h"
#include "parsers/format.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static char dir_name[] = "/tmp/wiamodel-npz-XXXXXX";
static int dir = -1;

static const char *path_of(const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/%s", dir_name, name);
	return path;
}

static struct model *open_model(const char *name)
{
	struct input in;
	struct error e = {0};
	struct model *m = NULL;

	if (input_open(&in, path_of(name), &e) < 0 || model_open(&in, NULL, &m, &e) < 0)
		printf("open: %s\n", e.text);
	input_close(&in);
	return m;
}

static struct plan plan;

/* Plans m as `name`, writes what changes, opens the result. */
static struct model *save(struct model *m, const char *name)
{
	struct output_file o;
	struct error e = {0};
	int r;

	plan_release(&plan);
	plan = (struct plan){.root_name = name, .in_place = m->base != NULL};
	r = model_plan(m, format_by_name("npz"), &plan, &e);
	for (size_t i = 0; !r && i < plan.count; i++) {
		if (plan.files[i].unchanged)
			continue;
		r = output_open(&o, dir, plan.files[i].name[0] ? plan.files[i].name : name, 0600, &e);
		if (!r)
			r = output_map(o.fd, &plan.files[i].map, 0, NULL, &e);
		if (!r)
			r = output_finish(&o, OUTPUT_REPLACE, &e);
	}
	if (r)
		printf("save: %s\n", e.text);
	return r ? NULL : open_model(name);
}

static const float floats[4] = {1, 2, 3, 4};
static const uint8_t int4[2] = {0x21, 0x03};

static void add(struct model *m, const char *name, enum dtype d, uint64_t n, const void *p, uint64_t size)
{
	struct tensor *t = model_add_tensor(m, NULL);

	t->name = str_from(name);
	t->dtype = d;
	t->data = extent_memory(p, size);
	tensor_set_shape(m, t, &n, 1, NULL);
}

static struct model *made(void)
{
	struct model *m = model_new(format_by_name("npz")), *back;

	add(m, "a", DTYPE_FLOAT32, 4, floats, 16);
	add(m, "dir/b", DTYPE_FLOAT32, 2, floats, 8);
	add(m, "i", DTYPE_INT4, 3, int4, 2);
	m->meta.model = value_map(m->arena);
	value_set(m->arena, m->meta.model, STR("author"), value_cstr(m->arena, "me"));
	CHECK(model_finish(m, NULL) == 0);
	back = save(m, "x.npz");
	model_unref(m);
	return back;
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

static void making(void)
{
	struct model *m = made();

	CHECK(m && m->tensor_count == 3 && m->warning_count == 0);
	CHECK(plan.loss_count == 1 && strstr(plan.losses[0], "'i': int4 becomes int8"));
	CHECK(holds(m, "a", floats, 16) && holds(m, "dir/b", floats, 8));
	CHECK(holds(m, "i", "\1\2\3", 3) && find(m, "i")->dtype == DTYPE_INT8);
	CHECK(str_is(find(m, "a")->stored, "a.npy"));
	CHECK(str_is(value_get(m->meta.model, "author")->str, "me")); /* by way of the sidecar */
	CHECK(m->format->check(m, NULL, NULL, NULL) == 0); /* would call found */
	model_unref(m);
}

static bool member_bytes(const struct model *m, const char *name, unsigned char *out, size_t *n)
{
	const struct tensor *t = find(m, name);
	const struct zip_member *z = t ? t->priv : NULL;

	*n = z ? (size_t)(z->end - z->local) : 0;
	return z && *n <= 512 && source_read(m->sources[0], z->local, out, *n, NULL) == 0;
}

static void editing(void)
{
	struct model *m = made(), *back;
	static const double two[2] = {5, 6};
	unsigned char was[512], now[512];
	size_t n, k;
	struct edit values = {.kind = EDIT_TENSOR, .id = find(m, "a")->id, .dtype = DTYPE_FLOAT64, .rank = 2,
		.shape = {1, 2}, .data = extent_memory(two, 16)};
	struct edit rename = {.kind = EDIT_RENAME, .id = find(m, "i")->id, .name = STR("renamed/i")};
	struct edit extra = {.kind = EDIT_ADD, .name = STR("new"), .dtype = DTYPE_FLOAT32, .rank = 1,
		.shape = {1}, .data = extent_memory(floats, 4)};

	CHECK(member_bytes(m, "dir/b", was, &n));
	m = edited(m, &values);
	m = edited(m, &rename);
	m = edited(m, &extra);
	back = save(m, "x.npz");
	CHECK(back && back->tensor_count == 4 && back->warning_count == 0);
	CHECK(holds(back, "a", two, 16) && find(back, "a")->rank == 2 && find(back, "a")->dtype == DTYPE_FLOAT64);
	CHECK(holds(back, "renamed/i", "\1\2\3", 3) && holds(back, "new", floats, 4));
	CHECK(member_bytes(back, "dir/b", now, &k) && k == n && memcmp(was, now, n) == 0);
	CHECK(back->format->check(back, NULL, NULL, NULL) == 0);
	model_unref(m);
	m = edited(back, &(struct edit){.kind = EDIT_REMOVE, .id = find(back, "dir/b")->id});
	back = save(m, "x.npz");
	CHECK(back && back->tensor_count == 3 && !find(back, "dir/b") && holds(back, "new", floats, 4));
	model_unref(m);
	model_unref(back);
}

/* Metadata live in the sidecar: the archive itself is left alone. */
static void metadata(void)
{
	struct model *m = made(), *back;
	struct arena *a = arena_new(1 << 16);
	struct edit x = {.kind = EDIT_METADATA};

	x.meta.model = value_map(a);
	value_set(a, x.meta.model, STR("license"), value_cstr(a, "MIT"));
	m = edited(m, &x);
	back = save(m, "x.npz");
	CHECK(plan.count == 2 && plan.files[0].unchanged && !plan.files[1].unchanged);
	CHECK(back && value_get(back->meta.model, "license") && !value_get(back->meta.model, "author"));
	model_unref(m);
	x.meta.model = NULL;
	m = edited(back, &x);
	back = save(m, "x.npz");
	CHECK(plan.count == 1 && plan.obsolete_count == 1 && strcmp(plan.obsolete[0], "x.npz.wiamodel.json") == 0);
	x.meta.properties = value_map(a);
	value_set(a, x.meta.properties, STR("k"), value_cstr(a, "v"));
	CHECK(model_edit(back, &x, &(struct model *){NULL}, NULL) == -EINVAL);
	model_unref(m);
	model_unref(back);
	arena_free(a);
}

int main(void)
{
	if (!mkdtemp(dir_name) || (dir = open(dir_name, O_RDONLY | O_DIRECTORY)) < 0) {
		perror(dir_name);
		return 1;
	}
	making();
	editing();
	metadata();
	plan_release(&plan);
	unlinkat(dir, "x.npz", 0);
	unlinkat(dir, "x.npz.wiamodel.json", 0);
	close(dir);
	rmdir(dir_name);
	return unit_done("npz");
}
