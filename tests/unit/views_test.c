/* SPDX-License-Identifier: MIT */
/* The views of a model made in memory, through the tree, with a format of the test's own. */
#include "tests/unit/unit.h"

#include "parsers/core/codec.h"
#include "parsers/core/limits.h"
#include "views/tree.h"

#include <errno.h>
#include <stdlib.h>

/* ---- the format: holds everything, exports as the tensors' bytes in a row ---- */

static int row_plan(const struct model *m, struct plan *p, struct error *e)
{
	struct extmap *map = plan_file(p, "");

	if (!map)
		return error_set(e, ENOMEM, "out of memory");
	extmap_append_copy(map, "ROW", 3);
	for (uint32_t i = 0; i < m->tensor_count; i++)
		extmap_append(map, &m->tensors[i].data);
	if (m->graph_count)
		plan_loss(p, "graph: rows have none");
	return 0;
}

static const char *const extensions[] = {".row", NULL};
static const struct format format_row = {
	.name = "row",
	.title = "Row",
	.extensions = extensions,
	.can = CAN_VALUES | CAN_RESHAPE | CAN_ADD | CAN_METADATA | CAN_CREATE,
	.plan = row_plan,
};
/* in place of the real table, which the library then does not bring in */
const struct format *const formats[] = {&format_row};
const size_t format_count = 1;

/* ---- the model ---- */

static struct model *m;
static struct tree *t;

static void add(const char *name, enum dtype d, const uint64_t *shape, uint32_t rank, const void *data,
	uint64_t size)
{
	struct tensor *w = model_add_tensor(m, NULL);

	w->name = str_from(name);
	w->dtype = d;
	w->data = extent_memory(data, size);
	w->graph = m->graph_count ? 0 : MODEL_NONE;
	tensor_set_shape(m, w, shape, rank, NULL);
}

static void add_graph(void)
{
	static struct edge inputs[3];
	static struct str outputs[1] = {{"y", 1}};
	static struct value *dims[2];
	static struct port in, out;
	struct graph *g;
	struct op *op;

	dims[0] = value_cstr(m->arena, "N");
	dims[1] = value_int(m->arena, 2);
	in = (struct port){.name = STR("x"), .dtype = DTYPE_FLOAT32, .rank = 2, .dims = dims};
	out = (struct port){.name = STR("y"), .dtype = DTYPE_FLOAT32, .rank = -1};
	g = model_add_graph(m, NULL);
	g->inputs = &in;
	g->outputs = &out;
	g->input_count = g->output_count = 1;
	g->op_count = 1;
	op = model_add_op(m, NULL);
	op->name = STR("fc \"1\"");
	op->type = STR("Gemm");
	inputs[0] = (struct edge){.name = STR("x"), .kind = EDGE_UNKNOWN};
	inputs[1] = (struct edge){.name = STR("f32"), .kind = EDGE_UNKNOWN};
	op->inputs = inputs;
	op->input_count = 3;
	op->outputs = outputs;
	op->output_count = 1;
	op->attributes = value_map(m->arena);
	value_set(m->arena, op->attributes, STR("alpha"), value_float32(m->arena, 0.1f));
}

static const float f32[6] = {1, -2.5f, 0, 4, 0.1f, 1e30f};
static const uint16_t bf16[3] = {0x3f80, 0xc000, 0x7f80}; /* 1, -2, inf */
static const uint8_t int4[2] = {0xf1, 0x07};              /* 1, -1, 7 */
static const uint8_t big[8] = {0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff};

static void build(bool graph)
{
	static const uint64_t two_three[] = {2, 3}, three[] = {3}, two[] = {2};
	static struct str strings[2] = {{"a", 1}, {"gr\xc3\xbc\xc3\x9f", 6}};
	struct error e = {0};
	struct tensor *w;

	m = model_new(&format_row);
	if (graph)
		add_graph();
	add("f32", DTYPE_FLOAT32, two_three, 2, f32, sizeof(f32));
	add("bf16", DTYPE_BFLOAT16, three, 1, bf16, sizeof(bf16));
	add("dir/int4", DTYPE_INT4, three, 1, int4, sizeof(int4));
	add("big", DTYPE_INT32, two, 1, big, sizeof(big));
	m->tensors[m->tensor_count - 1].flags = TENSOR_BIG_ENDIAN;
	add("scalar", DTYPE_FLOAT32, NULL, 0, f32, 4);
	add("words", DTYPE_STRING, two, 1, NULL, 0);
	m->tensors[m->tensor_count - 1].strings = strings;
	add("short", DTYPE_FLOAT32, three, 1, f32, 4);
	m->meta.model = value_map(m->arena);
	m->meta.properties = value_map(m->arena);
	value_set(m->arena, m->meta.model, STR("version"), value_cstr(m->arena, "one"));
	value_set(m->arena, m->meta.properties, STR("k"), value_float32(m->arena, 0.1f));
	if (model_finish(m, &e) < 0)
		printf("model_finish: %s\n", e.text);
	w = &m->tensors[model_find_tensor(m, STR("short"))];
	CHECK(w->problem.len > 0); /* 4 bytes where 12 are needed */
	t = tree_new(m, NULL, &e);
	if (!t)
		printf("tree_new: %s\n", e.text);
}

static void teardown(void)
{
	tree_unref(t);
	model_unref(m);
}

/* ---- reading ---- */

static char text[1 << 16];

/* Bytes of a file, NUL-terminated; negative errno. Also: the size told before is the size read. */
static long slurp(const char *path)
{
	struct extmap map = {0};
	struct entry entry;
	struct error e = {0};
	long n;
	int r = tree_resolve(t, path, &entry);

	if (!r)
		r = tree_open(t, entry.inode, &map, &e);
	if (!r && (map.size != entry.size || map.size >= sizeof(text))) {
		printf("%s: size %llu told, %llu open\n", path, (unsigned long long)entry.size,
			(unsigned long long)map.size);
		r = -EIO;
	}
	n = (long)map.size;
	if (!r)
		r = extmap_read(&map, 0, text, (size_t)map.size, &e);
	text[r ? 0 : n] = '\0';
	if (r && e.code)
		snprintf(text, sizeof(text), "%s", e.text);
	extmap_release(&map);
	return r ? r : n;
}

static bool is(const char *path, const char *want)
{
	long n = slurp(path);

	if (n == (long)strlen(want) && memcmp(text, want, (size_t)n) == 0)
		return true;
	printf("%s (%ld):\n%s", path, n, text);
	return false;
}

static bool has(const char *path, const char *part)
{
	if (slurp(path) >= 0 && strstr(text, part))
		return true;
	printf("%s:\n%s", path, text);
	return false;
}

/* header is a multiple of 64 and names descr; data follow */
static bool npy_is(const char *path, const char *descr, const void *data, size_t size)
{
	long n = slurp(path);

	if (n > 64 && ((size_t)n - size) % 64 == 0 && strstr(text + 10, descr) &&
		memcmp(text + (size_t)n - size, data, size) == 0)
		return true;
	printf("%s: %ld bytes, %s\n", path, n, text + 10);
	return false;
}

static void tensors(void)
{
	static const float widened[3] = {1, -2, (float)__builtin_inff()};
	static const int8_t nibbles[3] = {1, -1, 7};
	static const uint32_t utf32[10] = {'a', 0, 0, 0, 'g', 'r', 0xfc, 0xdf};

	CHECK(npy_is("tensors/f32.npy", "'<f4'", f32, sizeof(f32)));
	CHECK(npy_is("tensors/bf16.npy", "'<f4'", widened, sizeof(widened)));
	CHECK(npy_is("tensors/dir/int4.npy", "'|i1'", nibbles, sizeof(nibbles)));
	CHECK(npy_is("tensors/big.npy", "'>i4'", big, sizeof(big)));
	CHECK(npy_is("tensors/scalar.npy", "'shape': ()", f32, 4));
	CHECK(npy_is("tensors/words.npy", "'<U4'", utf32, 32));
	CHECK(slurp("tensors/short.npy") == -EIO);
	CHECK(slurp("tensors/none.npy") == -ENOENT);
	CHECK(slurp("raw/f32") == sizeof(f32) && memcmp(text, f32, sizeof(f32)) == 0);
	CHECK(slurp("raw/big") == sizeof(big) && memcmp(text, big, sizeof(big)) == 0);
	CHECK(slurp("raw/words") == 15 && memcmp(text, "\1\0\0\0a\6\0\0\0gr\xc3\xbc\xc3\x9f", 15) == 0);
	CHECK(slurp("raw/short") == -EIO);
	CHECK(has("info/short.json", "\"problem\": "));
	CHECK(is("info/big.json", "{\n  \"name\": \"big\",\n  \"dtype\": \"int32\",\n  \"shape\": [2],\n"
				  "  \"byte_order\": \"big\"\n}\n"));
}

static void bits(void)
{
	static const uint8_t unpacked[3] = {1, 15, 7};
	struct tree_options o = {.view = {.npy_bits = true}};
	struct tree *values = t;

	t = tree_new(m, &o, NULL);
	CHECK(npy_is("tensors/bf16.npy", "'<V2'", bf16, sizeof(bf16)));
	CHECK(npy_is("tensors/dir/int4.npy", "'|V1'", unpacked, sizeof(unpacked)));
	tree_unref(t);
	t = values;
}

static void stats(void)
{
	long n = slurp("stats/f32.json");

	CHECK(n > 0 && strstr(text, "\"count\":                        6,"));
	CHECK(strstr(text, "\"zeros\":                        1,"));
	CHECK(strstr(text, "-2.5,") && strstr(text, " 1e+30,"));
	CHECK(slurp("stats/bf16.json") == n); /* one size for all */
	CHECK(strstr(text, "\"inf\":                          1\n"));
	CHECK(strstr(text, "\"mean\":                      -0.5,"));
	CHECK(strstr(text, "\"std\":                        1.5,"));
	CHECK(slurp("stats/big.json") == n && strstr(text, "\"min\":                         -1,"));
	CHECK(slurp("stats/words.json") == -ENOENT);
	CHECK(slurp("stats/short.json") == -EIO);
}

static void graph(void)
{
	CHECK(is("graph/graph.txt", "input x: float32[N, 2]\n"
				    "y = Gemm(x, f32, ) {\"alpha\": 0.1} # \"fc \\\"1\\\"\"\n"
				    "output y: float32\n"));
	CHECK(has("graph/graph.dot", "\"op y\" [shape=box, label=\"Gemm\\nfc \\\"1\\\"\\nf32 float32[2, 3]\"];"));
	CHECK(has("graph/graph.dot", "\"value x\" -> \"op y\""));
	CHECK(has("graph/graph.dot", "\"op y\" -> \"result y\""));
	CHECK(is("graph/inputs.json", "[\n  {\n    \"name\": \"x\",\n    \"dtype\": \"float32\",\n"
				      "    \"shape\": [\"N\", 2]\n  }\n]\n"));
	CHECK(has("graph/outputs.json", "\"shape\": null"));
	CHECK(has("graph/ops/fc \"1\"/op.json", "\"alpha\": 0.1"));
	CHECK(slurp("graph/graph.json") == -ENOENT);
}

static void whole(void)
{
	CHECK(has(".wiamodel/status.json", "\"damaged\": [\n    {\n      \"name\": \"short\""));
	CHECK(has(".wiamodel/layout.txt", "f32\t-\t-\t24\tmemory\n"));
	/* printf '\0\0\0\1\377\377\377\377' | sha256sum */
	CHECK(has(".wiamodel/SHA256SUMS",
		"102245a7156595b5282b6e88d1bb9545378aca8e0e067c14b48ca96992977b6e  raw/big\n"));
	CHECK(strstr(text, "\n# cannot be read                                                  raw/short\n"));
	CHECK(has("metadata.json", "\"properties\": {\n    \"k\": 0.1\n  }"));
	CHECK(has("metadata.json", "\"tensors\": 7,"));
}

static void exports(void)
{
	struct tree_options lossy = {.view = {.lossy = true}};
	struct tree *strict = t;

	CHECK(slurp(".wiamodel/export/model.row") == -EOPNOTSUPP);
	CHECK(strstr(text, "rows have none"));
	t = tree_new(m, &lossy, NULL);
	CHECK(slurp(".wiamodel/export/model.row") > 3 && memcmp(text, "ROW", 3) == 0);
	tree_unref(t);
	t = strict;
}

/* ---- writing ---- */

static struct edit edit;
static struct arena *edit_arena;
static struct error reason;

/* What the view says of these bytes: 0 and the edit, or the refusal. */
static int write_file(const char *path, const void *bytes, size_t size)
{
	struct extmap *content = extmap_new();
	const struct view *view;
	struct subject s;
	struct entry entry;
	int r = tree_resolve(t, path, &entry);

	arena_free(edit_arena);
	edit_arena = arena_new(1 << 20);
	edit = (struct edit){0};
	error_clear(&reason);
	extmap_append_copy(content, bytes, size);
	if (!r && !tree_file(t, entry.inode, &view, &s))
		r = -EISDIR;
	if (!r)
		r = view->accept(tree_context(t), &s, content, edit_arena, &edit, &reason);
	arena_defer(edit_arena, (void (*)(void *))extmap_unref, content);
	return r;
}

static int write_npy(const char *path, const char *header, const void *data, size_t size)
{
	unsigned char npy[512] = "\x93NUMPY\1";
	size_t n = strlen(header);

	npy[8] = (unsigned char)(n + 1);
	memcpy(npy + 10, header, n);
	npy[10 + n] = '\n';
	memcpy(npy + 11 + n, data, size);
	return write_file(path, npy, 11 + n + size);
}

static bool edit_is(enum dtype d, const void *data, size_t size)
{
	unsigned char got[256];

	return edit.dtype == d && edit.data.size == size &&
	       extent_read(&edit.data, 0, got, size, NULL) == 0 && memcmp(got, data, size) == 0;
}

#define HEADER(descr, fortran, shape) \
	"{'descr': '" descr "', 'fortran_order': " fortran ", 'shape': " shape ", }"

static void accepts(void)
{
	static const float fortran[6] = {1, 4, -2.5f, 0.1f, 0, 1e30f};
	static const uint8_t big_floats[24] = {0x3f, 0x80, 0, 0};
	static const float rounds[3] = {1.00390625f, -3, 0.5f};
	static const uint16_t rounded[3] = {0x3f80, 0xc040, 0x3f00};
	static const float over[3] = {1, 3.4e38f, 0};
	static const int8_t small[3] = {-8, 7, 0}, large[3] = {0, 8, 0};
	static const uint8_t packed[2] = {0x78, 0};
	static const int64_t wide[2] = {1, -1}, wider[2] = {1, 1ll << 40};
	static const double exact[6] = {1, 0.5, 0, -2, 8, 9}, inexact[6] = {0.1};
	static const float as_float[6] = {1, 0.5f, 0, -2, 8, 9};
	static const float one[24] = {1};
	const uint32_t *f = (const uint32_t *)(const void *)one;

	CHECK(write_npy("tensors/f32.npy", HEADER("<f4", "False", "(2, 3)"), f32, 24) == 0);
	CHECK(edit_is(DTYPE_FLOAT32, f32, 24) && edit.data.kind == EXTENT_MAP); /* no copy */
	CHECK(write_npy("tensors/f32.npy", HEADER("<f4", "True", "(2, 3)"), fortran, 24) == 0);
	CHECK(edit_is(DTYPE_FLOAT32, f32, 24));
	CHECK(write_npy("tensors/f32.npy", HEADER(">f4", "False", "(2, 3)"), big_floats, 24) == 0);
	CHECK(edit_is(DTYPE_FLOAT32, f, 24));
	CHECK(write_npy("tensors/f32.npy", HEADER("<f4", "False", "(3, 2)"), f32, 24) == 0);
	CHECK(edit.rank == 2 && edit.shape[0] == 3);
	CHECK(write_npy("tensors/big.npy", HEADER("<i4", "False", "(2,)"), "\1\0\0\0\xff\xff\xff\xff", 8) == 0);
	CHECK(edit_is(DTYPE_INT32, big, 8));
	CHECK(write_npy("tensors/big.npy", HEADER("<i8", "False", "(2,)"), wide, 16) == 0);
	CHECK(edit_is(DTYPE_INT32, big, 8));
	CHECK(write_npy("tensors/big.npy", HEADER("<i8", "False", "(2,)"), wider, 16) == -EINVAL);
	CHECK(strstr(reason.text, "element 1 of 'big'"));
	CHECK(write_npy("tensors/bf16.npy", HEADER("<f4", "False", "(3,)"), rounds, 12) == 0);
	CHECK(edit_is(DTYPE_BFLOAT16, rounded, 6));
	CHECK(write_npy("tensors/bf16.npy", HEADER("<f4", "False", "(3,)"), over, 12) == -EINVAL);
	CHECK(write_npy("tensors/bf16.npy", HEADER("<V2", "False", "(3,)"), bf16, 6) == 0);
	CHECK(edit_is(DTYPE_BFLOAT16, bf16, 6));
	CHECK(write_npy("tensors/dir/int4.npy", HEADER("|i1", "False", "(3,)"), small, 3) == 0);
	CHECK(edit_is(DTYPE_INT4, packed, 2));
	CHECK(write_npy("tensors/dir/int4.npy", HEADER("|i1", "False", "(3,)"), large, 3) == -EINVAL);
	CHECK(write_npy("tensors/f32.npy", HEADER("<f8", "False", "(2, 3)"), exact, 48) == 0);
	CHECK(edit_is(DTYPE_FLOAT32, as_float, 24));
	CHECK(write_npy("tensors/f32.npy", HEADER("<f8", "False", "(2, 3)"), inexact, 48) == -EINVAL);
	CHECK(write_npy("tensors/f32.npy", HEADER("<f4", "False", "(2, 3)"), f32, 20) == -EINVAL);
	CHECK(write_npy("tensors/f32.npy", HEADER("|O", "False", "(2, 3)"), f32, 24) == -EINVAL);
	CHECK(write_file("tensors/f32.npy", "junk", 4) == -EINVAL);
	CHECK(write_file("raw/f32", f32, 24) == 0 && edit_is(DTYPE_FLOAT32, f32, 24));
	CHECK(write_file("raw/f32", f32, 20) == -EINVAL);
}

static void accepts_strings(void)
{
	static const uint32_t utf32[4] = {'x', 0x1f600, 'y', 0};

	CHECK(write_npy("tensors/words.npy", HEADER("<U2", "False", "(2,)"), utf32, 16) == 0);
	CHECK(edit.dtype == DTYPE_STRING && str_is(edit.strings[0], "x\xf0\x9f\x98\x80") &&
		str_is(edit.strings[1], "y"));
	CHECK(write_npy("tensors/words.npy", HEADER("|S2", "False", "(2,)"), "ab\xff", 4) == 0);
	CHECK(str_is(edit.strings[0], "ab") && str_is(edit.strings[1], "\xff"));
	CHECK(write_npy("tensors/f32.npy", HEADER("|S2", "False", "(2, 3)"), f32, 12) == -EINVAL);
	CHECK(write_file("raw/words", "\1\0\0\0b\0\0\0\0", 9) == 0);
	CHECK(str_is(edit.strings[0], "b") && edit.strings[1].len == 0);
	CHECK(write_file("raw/words", "\1\0\0\0b\1\0\0\0", 9) == -EINVAL);
	CHECK(write_file("raw/words", "\1\0\0\0b", 5) == -EINVAL);
	CHECK(write_file("raw/words", "\1\0\0\0b\0\0\0\0x", 10) == -EINVAL);
}

static int write_metadata(const char *json)
{
	return write_file("metadata.json", json, strlen(json));
}

static void accepts_metadata(void)
{
	static char same[1 << 16];
	long n = slurp("metadata.json");

	memcpy(same, text, (size_t)n + 1);
	CHECK(write_file("metadata.json", same, (size_t)n) == 0); /* as it is, odd version included */
	CHECK(value_get(edit.meta.properties, "k")->kind == VALUE_FLOAT32);
	CHECK(value_equal(edit.meta.properties, m->meta.properties));
	CHECK(write_metadata("{\"model\": {\"version\": \"1.2.3\", \"author\": \"me\"}}") == 0);
	CHECK(edit.kind == EDIT_METADATA && str_is(value_get(edit.meta.model, "author")->str, "me"));
	CHECK(write_metadata("{\"model\": {\"version\": \"1.2\"}}") == -EINVAL);
	CHECK(strstr(reason.text, "model.version"));
	CHECK(write_metadata("{\"model\": {\"created_at\": \"monday\"}}") == -EINVAL);
	CHECK(write_metadata("{\"model\": {\"colour\": \"red\"}}") == -EINVAL);
	CHECK(strstr(reason.text, "model.colour"));
	CHECK(write_metadata("{\"model\": {\"onnx_opset\": 3}}") == -EINVAL);
	CHECK(strstr(reason.text, "read-only"));
	CHECK(write_metadata("{\"format\": {\"name\": \"other\"}}") == -EINVAL);
	CHECK(strstr(reason.text, "'format' is read-only"));
	CHECK(write_metadata("{\"fromat\": {}}") == -EINVAL);
	CHECK(strstr(reason.text, "unknown metadata key 'fromat'"));
	CHECK(write_metadata("{\"properties\": []}") == -EINVAL);
	CHECK(write_metadata("{\"properties\": {\"a\": 1,}}") == -EINVAL);
	CHECK(write_metadata("[]") == -EINVAL);
	CHECK(write_metadata("") == -EINVAL);
}

int main(void)
{
	build(true);
	tensors();
	bits();
	stats();
	graph();
	whole();
	exports();
	accepts();
	accepts_strings();
	accepts_metadata();
	arena_free(edit_arena);
	teardown();
	return unit_done("views");
}
