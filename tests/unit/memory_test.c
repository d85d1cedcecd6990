/* SPDX-License-Identifier: MIT */
/*
 * Memory that runs out at every point of opening, listing and reading a model: the answer is ENOMEM, nothing crashes,
 * nothing leaks, and the next try works. The n-th allocation fails, for every n (or steps of them, for a big model).
 */
#include "views/tree.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

int main(void)
{
	printf("memory: skipped, the sanitizer has an allocator of its own\n");
	return 0;
}

#else

/* ---- an allocator that fails on demand; glibc's own is behind it ---- */

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern void __libc_free(void *p);

static long until_failure = -1; /* < 0: none */
static long allocations, living;

static bool fails(void)
{
	allocations++;
	if (until_failure < 0)
		return false;
	if (until_failure-- > 0)
		return false;
	until_failure = -1; /* one failure each time, as when a neighbour lets go of memory */
	errno = ENOMEM;
	return true;
}

void *malloc(size_t size)
{
	void *p = fails() ? NULL : __libc_malloc(size);

	living += p != NULL;
	return p;
}

void *calloc(size_t count, size_t size)
{
	void *p = fails() ? NULL : __libc_calloc(count, size);

	living += p != NULL;
	return p;
}

void *realloc(void *old, size_t size)
{
	void *p = fails() ? NULL : __libc_realloc(old, size);

	living += p && !old;
	return p;
}

void *reallocarray(void *old, size_t count, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(count, size, &bytes)) {
		errno = ENOMEM;
		return NULL;
	}
	return realloc(old, bytes);
}

void free(void *p)
{
	living -= p != NULL;
	__libc_free(p);
}

/* ---- what a model goes through ---- */

enum { DIRS_MAX = 4096 };

struct walk {
	const struct tree *tree;
	uint64_t dirs[DIRS_MAX];
	size_t dir_count, files;
	int failed; /* the first error that is none of the model's own */
};

static void note(struct walk *w, int r)
{
	if (r == -ENOMEM && !w->failed)
		w->failed = r;
}

static int visit(void *arg, struct str name, const struct entry *entry, uint64_t next)
{
	static char buf[1 << 16];
	struct walk *w = arg;
	struct extmap map = {0};
	struct error e = {0};
	char *target;
	int r;

	(void)name;
	(void)next;
	if (entry->kind == ENTRY_DIR && w->dir_count < DIRS_MAX)
		w->dirs[w->dir_count++] = entry->inode;
	if (entry->kind == ENTRY_LINK) {
		r = tree_readlink(w->tree, entry->inode, &target);
		note(w, r);
		if (!r)
			free(target);
	}
	if (entry->kind != ENTRY_FILE)
		return 0;
	w->files++;
	r = tree_open(w->tree, entry->inode, &map, &e);
	if (!r)
		r = extmap_read(&map, 0, buf, map.size < sizeof(buf) ? (size_t)map.size : sizeof(buf), &e);
	note(w, r);
	extmap_release(&map);
	return 0;
}

/* a plan may ask a child process, which takes its time: fewer failures then */
static bool exports;

/* 0, or the error; *files: how many were read */
static int go_through(const char *path, size_t *files, struct error *e)
{
	static struct walk w;
	struct verdict *verdicts = calloc(format_count, sizeof(*verdicts));
	struct tree_options options = {.verdicts = verdicts, .view = {.lossy = true}};
	struct entry hidden;
	struct model *m = NULL;
	struct stat st;
	int r = verdicts ? model_open_path(path, NULL, -1, verdicts, &st, &m, e) : -ENOMEM;

	w = (struct walk){0};
	if (!r && !(w.tree = tree_new(m, &options, e)))
		r = e->code ? -e->code : -EIO;
	if (!r)
		w.dirs[w.dir_count++] = TREE_ROOT;
	/* not listed: sums, layout, and every plan there is, as exports */
	if (!r && exports && tree_resolve(w.tree, ".wiamodel", &hidden) == 0)
		w.dirs[w.dir_count++] = hidden.inode;
	for (size_t i = 0; !r && i < w.dir_count; i++)
		note(&w, tree_list(w.tree, w.dirs[i], 0, true, visit, &w));
	tree_unref((struct tree *)(uintptr_t)w.tree);
	model_unref(m);
	free(verdicts);
	*files = w.files;
	return r ? r : w.failed;
}

static void exhaust(const char *path, long most)
{
	struct error e = {0};
	size_t files = 0, again;
	long total, step, base;

	CHECK(go_through(path, &files, &e) == 0 && files > 5); /* libraries take what they keep */
	if (e.code)
		printf("%s: %s\n", path, e.text);
	allocations = 0;
	base = living;
	go_through(path, &again, &e);
	total = allocations;
	CHECK(again == files && living == base && total > 50);
	step = total / most + 1;
	for (long n = 0; n < total; n += step) {
		int r;

		error_clear(&e);
		until_failure = n;
		r = go_through(path, &again, &e);
		until_failure = -1;
		if (r != -ENOMEM && !(r == 0 && again == files))
			printf("%s: allocation %ld of %ld: %d %s, %zu of %zu files\n", path, n, total, r, e.text, again, files);
		CHECK(r == -ENOMEM || (r == 0 && again == files));
		if (living != base) { /* what the C library keeps from the first time on (strsignal) is no leak */
			base = living;
			until_failure = n;
			go_through(path, &again, NULL);
			until_failure = -1;
		}
		if (living != base)
			printf("%s: allocation %ld of %ld: %ld pieces leak\n", path, n, total, living - base);
		CHECK(living == base);
		base = living;
	}
	CHECK(go_through(path, &again, NULL) == 0 && again == files);
}

int main(void)
{
	static const char *const models[] = {"tests/golden/safetensors/good-state.safetensors", "tests/golden/npz/good-compressed.npz",
		"tests/golden/npz/good-kinds.npz", "tests/golden/onnx/good-graphs.onnx", "tests/golden/onnx/good-external/model.onnx"};

	for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
		exports = false;
		exhaust(models[i], 2000);
		exports = true;
		exhaust(models[i], 47);
	}
	return unit_done("memory");
}

#endif
