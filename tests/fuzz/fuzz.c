/* SPDX-License-Identifier: MIT */
/*
 * One harness for every format of the table: bytes -> probe, parse, tree, every view read, every plan made and
 * read. WIAMODEL_FORMAT=NAME in the environment forces a format, so that a corpus can aim at one driver;
 * WIAMODEL_NAME gives the bytes a file name.
 *
 *	make fuzz CC=clang O=obj-fuzz SANITIZE=fuzzer-no-link,address,undefined && obj-fuzz/fuzz -max_len=65536 CORPUS
 *	make replay O=obj-asan SANITIZE=address,undefined && obj-asan/replay FILE...      (any compiler, no libFuzzer)
 */
#include "views/tree.h"

#include "parsers/core/limits.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* what one input may make us list and read; a hostile one can promise terabytes of zeroes */
#define ENTRIES_MAX 3000
#define READ_MAX (64u << 10)
#define DIRS_MAX 4096
#define EDITED_MAX 3

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_map(const struct extmap *map)
{
	static unsigned char buf[READ_MAX];
	size_t n = map->size < READ_MAX ? (size_t)map->size : READ_MAX;
	size_t tail = map->size < 4096 ? (size_t)map->size : 4096;

	extmap_read(map, 0, buf, n, NULL);
	extmap_read(map, map->size - tail, buf, tail, NULL);
}

struct walk {
	const struct tree *tree;
	uint64_t dirs[DIRS_MAX];
	size_t count, entries;
};

static int visit(void *arg, struct str name, const struct entry *entry, uint64_t next)
{
	struct walk *w = arg;
	struct extmap map = {0};
	char *target = NULL;
	struct entry again;

	(void)next;
	if (w->entries++ >= ENTRIES_MAX)
		return 1;
	if (tree_stat(w->tree, entry->inode, &again) < 0 || again.size != entry->size || !name.len)
		abort(); /* what is listed is there */
	if (entry->kind == ENTRY_DIR && w->count < DIRS_MAX)
		w->dirs[w->count++] = entry->inode;
	if (entry->kind == ENTRY_LINK && tree_readlink(w->tree, entry->inode, &target) == 0)
		free(target);
	if (entry->kind == ENTRY_FILE && tree_open(w->tree, entry->inode, &map, NULL) == 0) {
		if (map.size != entry->size)
			abort(); /* sizes are exact before a file is opened */
		read_map(&map);
	}
	extmap_release(&map);
	return 0;
}

static void read_tree(struct model *m, const struct view_options *view)
{
	static const char *const hidden[] = {".wiamodel/status.json", ".wiamodel/layout.txt",
		".wiamodel/SHA256SUMS"};
	struct tree_options options = {.view = *view};
	struct tree *t = tree_new(m, &options, NULL);
	struct walk w = {.tree = t, .count = 1, .dirs = {TREE_ROOT}};

	while (t && w.count && w.entries < ENTRIES_MAX)
		tree_list(t, w.dirs[--w.count], 0, true, visit, &w);
	for (size_t i = 0; t && i < sizeof(hidden) / sizeof(*hidden); i++) {
		struct entry entry;

		if (tree_resolve(t, hidden[i], &entry) == 0)
			visit(&w, STR("hidden"), &entry, 0);
	}
	tree_unref(t);
}

static void make_plans(struct model *m)
{
	for (size_t i = 0; i < format_count; i++) {
		struct plan p = {.root_name = "model"};

		if (formats[i]->can & CAN_CREATE && model_plan(m, formats[i], &p, NULL) == 0)
			for (size_t k = 0; k < p.count; k++)
				read_map(&p.files[k].map);
		plan_release(&p);
	}
}

/* The model after one edit, saved over itself. */
static void save_edited(struct model *m, const struct edit *x)
{
	struct plan p = {.root_name = "model", .in_place = true};
	struct model *n;

	if (model_edit(m, x, &n, NULL) < 0)
		return;
	if (model_plan(n, n->format, &p, NULL) == 0)
		for (size_t k = 0; k < p.count; k++)
			read_map(&p.files[k].map);
	plan_release(&p);
	model_unref(n);
}

/* Zeroes for the values, another shape, another name, removal: for the first tensors. */
static void edit_tensors(struct model *m)
{
	for (uint32_t i = 0; i < m->tensor_count && i < EDITED_MAX; i++) {
		const struct tensor *t = &m->tensors[i];
		struct edit x = {.kind = EDIT_TENSOR, .id = t->id, .dtype = t->dtype, .rank = t->rank,
			.data = extent_zero(t->data.size)};

		if (t->dtype != DTYPE_STRING && t->rank <= LIMIT_RANK) {
			if (t->rank)
				memcpy(x.shape, t->shape, t->rank * sizeof(*t->shape));
			save_edited(m, &x);
			x = (struct edit){.kind = EDIT_TENSOR, .id = t->id, .dtype = DTYPE_FLOAT32, .rank = 1, .shape = {3},
				.data = extent_zero(12)};
			save_edited(m, &x);
		}
		x = (struct edit){.kind = EDIT_RENAME, .id = t->id, .name = STR("other/name")};
		save_edited(m, &x);
		x = (struct edit){.kind = EDIT_REMOVE, .id = t->id};
		save_edited(m, &x);
	}
}

/* An empty directory, so that companions are looked for and not found. */
static int empty_dir(void)
{
	static int fd = -1;
	char name[] = "/tmp/wiamodel-fuzz-XXXXXX";

	if (fd < 0 && mkdtemp(name)) {
		fd = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
		rmdir(name);
	}
	return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *name = getenv("WIAMODEL_NAME") ? getenv("WIAMODEL_NAME") : "fuzz";
	struct input in = {.path = name, .base = str_from(name), .dir_fd = empty_dir(), .step = -1};
	void *copy = malloc(size ? size : 1);
	struct error e = {0};
	struct model *m;

	if (!copy)
		return 0;
	if (size)
		memcpy(copy, data, size);
	in.src = source_from_memory(copy, size, name);
	if (in.src && model_open(&in, getenv("WIAMODEL_FORMAT"), &m, &e) == 0) {
		read_tree(m, &(struct view_options){0});
		read_tree(m, &(struct view_options){.npy_bits = true});
		make_plans(m);
		edit_tensors(m);
		model_unref(m);
	} else if (!e.code || !e.text[0]) {
		abort(); /* a failure says why */
	}
	source_unref(in.src);
	return 0;
}

#ifdef REPLAY
static void replay(const char *path)
{
	static uint8_t buf[64u << 20];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof(buf));

	if (n < 0) {
		perror(path);
		exit(1);
	}
	close(fd);
	LLVMFuzzerTestOneInput(buf, (size_t)n);
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		replay(argv[i]);
	printf("replay: %d inputs\n", argc - 1);
	return 0;
}
#endif
