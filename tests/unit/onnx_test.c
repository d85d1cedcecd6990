/* SPDX-License-Identifier: MIT */
/* ONNX from file to file: a model made field by field, edited, planned, parsed again. */
#include "tests/unit/model.h"
#include "tests/unit/unit.h"

#include "parsers/container/protobuf.h"
#include "parsers/format.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static char dir_name[] = "/tmp/wiamodel-onnx-XXXXXX";
static char path[64];

static void put_message(struct extmap *out, uint32_t field, struct extmap *content)
{
	pb_put_map_field(out, field, content);
	extmap_release(content);
}

static void put_text(struct extmap *out, uint32_t field, const char *text)
{
	pb_put_bytes_field(out, field, str_from(text));
}

/* float32 [2] with an unknown field behind its payload */
static void put_tensor(struct extmap *graph, const char *name, const float *values)
{
	struct extmap t = {0};

	pb_put_varint_field(&t, 1, 2);
	pb_put_varint_field(&t, 2, 1);
	put_text(&t, 8, name);
	pb_put_bytes_field(&t, 9, (struct str){(const char *)values, 8});
	put_text(&t, 99, "of the future");
	put_message(graph, 5, &t);
}

/* A ValueInfo of float32 [2]. */
static void put_value(struct extmap *graph, uint32_t field, const char *name)
{
	struct extmap dim = {0}, shape = {0}, tensor = {0}, type = {0}, value = {0};

	pb_put_varint_field(&dim, 1, 2);
	put_message(&shape, 1, &dim);
	pb_put_varint_field(&tensor, 1, 1);
	put_message(&tensor, 2, &shape);
	put_message(&type, 1, &tensor);
	put_text(&value, 1, name);
	put_message(&value, 2, &type);
	put_message(graph, field, &value);
}

static void put_node(struct extmap *graph, const char *a, const char *b, const char *out, struct extmap *attribute)
{
	struct extmap node = {0};

	put_text(&node, 1, a);
	put_text(&node, 1, b);
	put_text(&node, 2, out);
	put_text(&node, 4, "Add");
	if (attribute)
		put_message(&node, 5, attribute);
	put_message(graph, 1, &node);
}

/* IR version 3: w and u are inputs too; y = w + w, with a subgraph in which w is read and u is another. */
static void write_model(void)
{
	static const float w[] = {1, 2}, u[] = {3, 4}, inner[] = {5, 6};
	struct extmap model = {0}, graph = {0}, sub = {0}, attribute = {0}, opset = {0};
	FILE *f = fopen(path, "w");
	char *bytes;

	put_node(&sub, "w", "u", "s", NULL);
	put_text(&sub, 2, "sub");
	put_tensor(&sub, "u", inner);
	put_text(&attribute, 1, "body");
	put_message(&attribute, 6, &sub);
	pb_put_varint_field(&attribute, 20, 5);
	put_node(&graph, "w", "w", "y", &attribute);
	put_text(&graph, 2, "main");
	put_tensor(&graph, "w", w);
	put_tensor(&graph, "u", u);
	put_value(&graph, 11, "w");
	put_value(&graph, 11, "u");
	put_value(&graph, 12, "y");
	put_value(&graph, 13, "w");
	pb_put_varint_field(&model, 1, 3);
	put_text(&model, 3, "7");
	put_text(&model, 77, "unknown");
	put_message(&model, 7, &graph);
	pb_put_varint_field(&opset, 2, 9);
	put_message(&model, 8, &opset);
	bytes = malloc(model.size);
	CHECK(extmap_read(&model, 0, bytes, model.size, NULL) == 0);
	CHECK(fwrite(bytes, model.size, 1, f) == 1 && fclose(f) == 0);
	extmap_release(&model);
	free(bytes);
}

static struct model *open_model(struct error *e)
{
	struct model *m = NULL;
	struct input in;

	if (input_open(&in, path, e) == 0)
		model_open(&in, NULL, &m, e);
	input_close(&in);
	return m;
}

/* Saves m over the file and reads that; *bytes gets what was written, to be freed. */
static struct model *saved(struct model *m, char **bytes, size_t *len)
{
	struct plan p = {.root_name = "m.onnx", .in_place = true};
	struct error e = {0};
	FILE *f;

	*bytes = NULL;
	CHECK(model_plan(m, m->format, &p, &e) == 0);
	CHECK(p.count == 1 && p.files[0].name[0] == '\0');
	*len = p.files[0].map.size;
	*bytes = malloc(*len);
	CHECK(extmap_read(&p.files[0].map, 0, *bytes, *len, &e) == 0);
	f = fopen(path, "w");
	CHECK(fwrite(*bytes, *len, 1, f) == 1 && fclose(f) == 0);
	plan_release(&p);
	m = open_model(&e);
	if (!m)
		printf("%s\n", e.text);
	return m;
}

static struct model *edited(struct model *m, struct edit *x, const char *tensor, struct error *e)
{
	struct model *out = NULL;

	error_clear(e);
	if (tensor)
		x->id = find(m, tensor)->id;
	model_edit(m, x, &out, e);
	return out;
}

static bool contains(const char *bytes, size_t len, const char *text)
{
	return memmem(bytes, len, text, strlen(text)) != NULL;
}

static void test_values(void)
{
	static const float now[] = {7, 8};
	struct edit x = {.kind = EDIT_TENSOR, .dtype = DTYPE_FLOAT32, .rank = 1, .shape = {2}, .data = extent_memory(now, 8)};
	struct error e = {0};
	struct model *m, *n, *again;
	char *before, *after;
	size_t len, same;

	write_model();
	m = open_model(&e);
	again = saved(m, &before, &same); /* nothing edited */
	CHECK(again && holds(again, "w", (const float[]){1, 2}, 8));
	model_unref(m);
	m = again;
	n = edited(m, &x, "w", &e);
	CHECK(n != NULL);
	again = saved(n, &after, &len);
	CHECK(again && holds(again, "w", now, 8) && holds(again, "u", (const float[]){3, 4}, 8));
	/* the tensor's fields change places, so only the payload's eight bytes differ in number */
	CHECK(len == same && contains(after, len, "unknown") && contains(after, len, "of the future"));
	CHECK(again && again->graphs[0].input_count == 2 && again->graphs[0].inputs[0].rank == 1);
	model_unref(m);
	model_unref(n);
	model_unref(again);
	free(before);
	free(after);
}

static void test_names(void)
{
	struct edit x = {.kind = EDIT_RENAME, .name = STR("weight")};
	struct error e = {0};
	struct model *m, *n, *again;
	char *bytes;
	size_t len;

	write_model();
	m = open_model(&e);
	n = edited(m, &x, "w", &e);
	CHECK(n != NULL);
	again = saved(n, &bytes, &len);
	CHECK(again && find(again, "weight") && !find(again, "w"));
	CHECK(again && again->op_count == 2 && str_is(again->ops[0].inputs[1].name, "weight"));
	/* the subgraph reads the outer w and its own u */
	CHECK(again && str_is(again->ops[1].inputs[0].name, "weight") && again->ops[1].inputs[0].kind == EDGE_TENSOR);
	CHECK(again && str_is(again->graphs[0].inputs[0].name, "weight") && str_is(again->graphs[0].inputs[1].name, "u"));
	CHECK(!contains(bytes, len, "\x0a\x01w"));
	model_unref(n);
	free(bytes);
	model_unref(again);
	/* a name that is taken, and one that says nothing */
	x.name = STR("y");
	CHECK(!edited(m, &x, "w", &e) && e.code == EEXIST);
	x.name = STR("");
	CHECK(!edited(m, &x, "w", &e));
	model_unref(m);
}

static void test_shapes(void)
{
	static const float now[] = {1, 2, 3};
	static const int64_t integers[] = {1, 2};
	struct edit x = {.kind = EDIT_TENSOR, .dtype = DTYPE_FLOAT32, .rank = 2, .shape = {1, 3}, .data = extent_memory(now, 12)};
	struct error e = {0};
	struct model *m, *n, *again;
	char *bytes;
	size_t len;

	write_model();
	m = open_model(&e);
	n = edited(m, &x, "w", &e);
	CHECK(n != NULL);
	again = saved(n, &bytes, &len);
	CHECK(again && find(again, "w")->rank == 2 && holds(again, "w", now, 12));
	/* the input of that name follows, value_info goes */
	CHECK(again && again->graphs[0].inputs[0].rank == 2 && again->graphs[0].inputs[0].dims[1]->integer == 3);
	CHECK(again && !value_get(again->graphs[0].extra, "value_info") &&
	      value_get(m->graphs[0].extra, "value_info"));
	model_unref(n);
	model_unref(again);
	free(bytes);
	x = (struct edit){.kind = EDIT_TENSOR, .dtype = DTYPE_INT64, .rank = 1, .shape = {2},
		.data = extent_memory(integers, 16)};
	CHECK(!edited(m, &x, "w", &e) && e.code == EINVAL && strstr(e.text, "reads it"));
	model_unref(m);
}

static void test_adding_and_removing(void)
{
	static const float now[] = {9};
	struct edit add = {.kind = EDIT_ADD, .name = STR("v"), .dtype = DTYPE_FLOAT32, .rank = 1, .shape = {1},
		.data = extent_memory(now, 4)};
	struct edit remove = {.kind = EDIT_REMOVE};
	struct error e = {0};
	struct model *m, *n, *k, *again;
	char *bytes;
	size_t len;

	write_model();
	m = open_model(&e);
	CHECK(!edited(m, &remove, "w", &e) && e.code == EBUSY);
	n = edited(m, &add, NULL, &e);
	CHECK(n != NULL);
	k = edited(n, &remove, "u", &e); /* the subgraph's own u is what its op reads */
	CHECK(k != NULL);
	again = saved(k, &bytes, &len);
	CHECK(again && holds(again, "v", now, 4) && !find(again, "u"));
	CHECK(again && again->tensor_count == 3 && again->graphs[0].input_count == 2);
	CHECK(again && str_is(again->graphs[0].inputs[0].name, "w") && str_is(again->graphs[0].inputs[1].name, "v"));
	add.name = STR("w");
	CHECK(!edited(m, &add, NULL, &e) && e.code == EEXIST);
	model_unref(m);
	model_unref(n);
	model_unref(k);
	model_unref(again);
	free(bytes);
}

int main(void)
{
	if (!mkdtemp(dir_name))
		return 1;
	snprintf(path, sizeof(path), "%s/m.onnx", dir_name);
	test_values();
	test_names();
	test_shapes();
	test_adding_and_removing();
	unlink(path);
	rmdir(dir_name);
	return unit_done("onnx");
}
