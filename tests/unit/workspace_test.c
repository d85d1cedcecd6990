/* SPDX-License-Identifier: MIT */
/* The workspace without FUSE: what open, write, close, rename and so on mean, and a random walk over all of it, with
 * saving, dying and recovering, against the same tensors in memory. */
#include "tests/unit/unit.h"

#include "fs/workspace.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { ELEMENTS = 64, BYTES = ELEMENTS * 4, HEADER = 128 };

static char dir_name[] = "/tmp/wiamodel-workspace-XXXXXX";
static char model_path[64];
static struct workspace *w;
static uint64_t tensors, raw; /* directories */

/* ---- what was announced ---- */

static struct {
	uint64_t inode;
	char name[64];
} heard[4096];
static size_t heard_count;

static pthread_mutex_t hearing = PTHREAD_MUTEX_INITIALIZER;

static void hear(void *arg, uint64_t inode, struct str name)
{
	(void)arg;
	pthread_mutex_lock(&hearing);
	if (heard_count < 4096) {
		heard[heard_count].inode = inode;
		snprintf(heard[heard_count++].name, 64, "%.*s", STR_ARG(name));
	}
	pthread_mutex_unlock(&hearing);
}

static bool was_heard(uint64_t inode, const char *name)
{
	for (size_t i = 0; i < heard_count; i++)
		if (heard[i].inode == inode && strcmp(heard[i].name, name) == 0)
			return true;
	return false;
}

/* ---- the model ---- */

static void write_model(unsigned count)
{
	char header[4096];
	size_t n = 0;
	uint64_t len;
	FILE *f = fopen(model_path, "w");

	for (unsigned i = 0; i < count; i++)
		n += (size_t)snprintf(header + n, sizeof(header) - n,
			"%s\"t%u\":{\"dtype\":\"F32\",\"shape\":[%d],\"data_offsets\":[%u,%u]}", i ? "," : "{", i,
			ELEMENTS, i * BYTES, (i + 1) * BYTES);
	n += (size_t)snprintf(header + n, sizeof(header) - n, "}");
	while (n % 8)
		header[n++] = ' ';
	len = n;
	fwrite(&len, 8, 1, f);
	fwrite(header, n, 1, f);
	for (unsigned i = 0; i < count * BYTES; i++)
		fputc((int)(i / BYTES), f);
	fclose(f);
}

static uint64_t at(uint64_t dir, const char *name)
{
	struct attr a;

	return workspace_lookup(w, dir, str_from(name), &a) == 0 ? a.entry.inode : 0;
}

static int start(bool recover)
{
	struct workspace_options o = {.step = -1, .recover = recover, .changed = hear};
	struct error e = {0};
	int r = workspace_open(model_path, &o, &w, NULL, &e);

	if (r < 0)
		return r;
	tensors = at(TREE_ROOT, "tensors");
	raw = at(TREE_ROOT, "raw");
	return 0;
}

static void stop(void)
{
	workspace_close(w);
	w = NULL;
}

static void npy(unsigned char out[HEADER + BYTES], const char *descr, unsigned char fill)
{
	memset(out, ' ', HEADER);
	memcpy(out, "\223NUMPY\1\0\166\0", 10);
	out[10 + snprintf((char *)out + 10, 100, "{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }", descr,
			 ELEMENTS)] = ' ';
	out[HEADER - 1] = '\n';
	memset(out + HEADER, fill, BYTES);
}

static struct handle *open_at(uint64_t dir, const char *name, int flags)
{
	struct handle *h = NULL;

	workspace_open_file(w, at(dir, name), flags, &h, NULL);
	return h;
}

/* Writes all of a file, as cp does; what close says. */
static int put(uint64_t dir, const char *name, const void *bytes, size_t len)
{
	struct handle *h = NULL;
	struct attr a;
	int r = workspace_create(w, dir, str_from(name), 0644, O_WRONLY | O_TRUNC, &a, &h, NULL);

	if (r == 0)
		r = handle_write(h, 0, bytes, len, NULL);
	if (r == 0)
		r = handle_flush(h, NULL);
	handle_release(h);
	return r;
}

/* Whether a file is exactly that, by size, by reading and by attributes. */
static bool shows(uint64_t dir, const char *name, const void *bytes, size_t len)
{
	struct handle *h = open_at(dir, name, O_RDONLY);
	static unsigned char buf[65536];
	struct attr a;
	bool same = h && workspace_stat(w, at(dir, name), &a) == 0 && a.entry.size == len &&
		    handle_size(h) == len && handle_read(h, 0, buf, sizeof(buf), NULL) == (ssize_t)len &&
		    memcmp(buf, bytes, len) == 0;

	handle_release(h);
	return same;
}

/* ---- one thing after the other ---- */

static void writing(void)
{
	unsigned char a[HEADER + BYTES], b[HEADER + BYTES], got[8];
	struct handle *h, *reader;
	struct attr attr;
	struct error e = {0};

	npy(a, "<f4", 7);
	npy(b, "<f4", 8);
	CHECK(start(false) == 0 && !workspace_is_read_only(w) && !workspace_is_dirty(w));
	reader = open_at(raw, "t1", O_RDONLY);
	heard_count = 0;
	CHECK(put(tensors, "t1.npy", a, sizeof(a)) == 0);
	CHECK(shows(tensors, "t1.npy", a, sizeof(a)) && shows(raw, "t1", a + HEADER, BYTES));
	CHECK(was_heard(at(raw, "t1"), "") && was_heard(at(TREE_ROOT, "metadata.json"), ""));
	CHECK(!was_heard(at(raw, "t2"), ""));
	/* who had it open reads what it is now */
	CHECK(handle_read(reader, 0, got, 8, NULL) == 8 && got[0] == 7);
	handle_release(reader);
	CHECK(workspace_is_dirty(w));
	CHECK(workspace_stat(w, at(raw, "t1"), &attr) == 0 && attr.staged);
	CHECK(workspace_stat(w, at(raw, "t2"), &attr) == 0 && !attr.staged);

	/* a shell's redirection: cut, closed, written in two parts, each judged */
	h = open_at(tensors, "t2.npy", O_WRONLY | O_TRUNC);
	CHECK(handle_flush(h, &e) == -EINVAL && !e.code);
	CHECK(handle_write(h, 0, b, 100, NULL) == 0 && handle_flush(h, &e) == -EINVAL && e.code);
	CHECK(handle_flush(h, NULL) == -EINVAL); /* the verdict stands */
	CHECK(handle_write(h, 100, b + 100, sizeof(b) - 100, NULL) == 0 && handle_flush(h, NULL) == 0);
	handle_release(h);
	CHECK(shows(raw, "t2", b + HEADER, BYTES));

	/* refused for good: as before */
	CHECK(put(tensors, "t2.npy", b, sizeof(b) - 1) == -EINVAL);
	CHECK(shows(tensors, "t2.npy", b, sizeof(b)));
	CHECK(workspace_truncate(w, at(tensors, "t2.npy"), 10, NULL) == -EINVAL);
	CHECK(shows(tensors, "t2.npy", b, sizeof(b)));
	CHECK(!open_at(TREE_ROOT, "nothing", O_RDONLY) && !open_at(at(TREE_ROOT, "info"), "t2.json", O_RDWR));

	/* a part, by two writers at once */
	h = open_at(raw, "t2", O_RDWR);
	reader = open_at(raw, "t2", O_WRONLY);
	CHECK(handle_write(h, 0, "xy", 2, NULL) == 0 && handle_write(reader, 1, "z", 1, NULL) == 0);
	CHECK(handle_read(h, 0, got, 3, NULL) == 3 && memcmp(got, "xz\10", 3) == 0);
	CHECK(handle_flush(h, NULL) == 0);
	handle_release(h);
	CHECK(handle_flush(reader, NULL) == 0);
	handle_release(reader);
	memcpy(b + HEADER, "xz", 2);
	CHECK(shows(tensors, "t2.npy", b, sizeof(b)));
	CHECK(workspace_discard(w, NULL) == 0 && !workspace_is_dirty(w));
	memset(a, 2, BYTES);
	CHECK(shows(raw, "t2", a, BYTES));
	stop();
}

static void names(void)
{
	unsigned char a[HEADER + BYTES];
	const struct str metadata = STR("metadata.json"), tmp = STR("tmp"), backup = STR("backup");
	char text[4096];
	struct handle *h;
	struct attr x;
	struct error e = {0};
	uint64_t was, scratch;
	ssize_t n;

	npy(a, "<f4", 9);
	CHECK(start(false) == 0);
	h = open_at(TREE_ROOT, "metadata.json", O_RDONLY);
	n = handle_read(h, 0, text, sizeof(text), NULL);
	handle_release(h);
	was = at(TREE_ROOT, "metadata.json");

	/* write and rename: the name has the scratch file's number then, and both mean the file */
	CHECK(put(TREE_ROOT, "tmp", text, (size_t)n) == 0 && shows(TREE_ROOT, "tmp", text, (size_t)n));
	scratch = at(TREE_ROOT, "tmp");
	CHECK(workspace_is_scratch(w, scratch) && !workspace_is_scratch(w, was));
	CHECK(workspace_rename(w, TREE_ROOT, tmp, TREE_ROOT, metadata, 1 /* RENAME_NOREPLACE */, NULL) == -EEXIST);
	CHECK(workspace_rename(w, TREE_ROOT, tmp, TREE_ROOT, metadata, 0, NULL) == 0);
	CHECK(at(TREE_ROOT, "metadata.json") == scratch && !at(TREE_ROOT, "tmp"));
	CHECK(!workspace_is_scratch(w, scratch) && workspace_stat(w, was, &x) == 0);
	CHECK(shows(TREE_ROOT, "metadata.json", text, (size_t)n));

	/* a backup has the number that its file had */
	CHECK(workspace_rename(w, TREE_ROOT, metadata, TREE_ROOT, backup, 0, NULL) == 0);
	CHECK(at(TREE_ROOT, "backup") == scratch && !at(TREE_ROOT, "metadata.json"));
	CHECK(workspace_unlink(w, TREE_ROOT, backup, &e) == -EPERM); /* it would be gone for good */
	CHECK(put(TREE_ROOT, "metadata.json", text, (size_t)n) == 0);
	CHECK(at(TREE_ROOT, "metadata.json") != scratch);
	CHECK(workspace_unlink(w, TREE_ROOT, backup, NULL) == 0 && !at(TREE_ROOT, "backup"));
	CHECK(workspace_unlink(w, TREE_ROOT, metadata, NULL) == -EPERM);

	/* tensors */
	CHECK(put(tensors, "new.npy", a, sizeof(a)) == 0 && shows(raw, "new", a + HEADER, BYTES));
	CHECK(put(tensors, "bad.npy", a, 10) == -EINVAL && !at(tensors, "bad.npy"));
	CHECK(put(raw, "new2", a, 10) == 0 && workspace_is_scratch(w, at(raw, "new2")));
	was = at(tensors, "t0.npy");
	heard_count = 0;
	CHECK(workspace_rename(w, tensors, STR("t0.npy"), tensors, STR("a.npy"), 0, NULL) == 0);
	CHECK(at(tensors, "a.npy") == was && at(raw, "a") && !at(raw, "t0"));
	CHECK(was_heard(raw, "t0") && was_heard(raw, "a"));
	CHECK(workspace_rename(w, tensors, STR("new.npy"), tensors, STR("a.npy"), 0, NULL) == 0);
	CHECK(shows(raw, "a", a + HEADER, BYTES) && !at(raw, "new"));
	CHECK(workspace_unlink(w, tensors, STR("a.npy"), NULL) == 0 && !at(raw, "a"));
	CHECK(workspace_unlink(w, raw, STR("t1"), NULL) == -EPERM);
	/* moved away and deleted there is deleted */
	CHECK(workspace_rename(w, tensors, STR("t1.npy"), TREE_ROOT, backup, 0, NULL) == 0 && at(raw, "t1"));
	CHECK(workspace_unlink(w, TREE_ROOT, backup, NULL) == 0 && !at(raw, "t1"));

	/* directories */
	CHECK(workspace_mkdir(w, tensors, STR("d"), 0755, &x, NULL) == 0);
	CHECK(workspace_mkdir(w, tensors, STR("d"), 0755, &x, NULL) == -EEXIST);
	CHECK(put(x.entry.inode, "w.npy", a, sizeof(a)) == 0);
	CHECK(at(tensors, "d") == x.entry.inode && at(at(raw, "d"), "w"));
	CHECK(put(x.entry.inode, "note", a, 3) == 0 && shows(at(tensors, "d"), "note", a, 3));
	CHECK(workspace_rmdir(w, TREE_ROOT, STR("tensors"), NULL) == -ENOTEMPTY);
	stop();
}

/* What another mount of the same model is told. */
static void second(void)
{
	struct workspace_options o = {.step = -1};
	struct workspace *other = NULL;
	char *note = NULL;

	CHECK(start(false) == 0);
	CHECK(workspace_open(model_path, &o, &other, &note, NULL) == 0);
	CHECK(other && workspace_is_read_only(other) && note && strstr(note, "read-only"));
	workspace_close(other);
	free(note);
	stop();
}

/* ---- a random walk ---- */

enum { NAMES = 12 };

static struct tensor_oracle {
	bool there;
	unsigned char bytes[BYTES];
} now[NAMES], saved[NAMES];
static uint64_t state;

static size_t below(size_t n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (size_t)(state % n);
}

static const char *file_of(size_t i, const char *suffix)
{
	static char text[4][16];
	static unsigned next;
	char *p = text[next++ % 4];

	snprintf(p, 16, "t%zu%s", i, suffix);
	return p;
}

static void step_write(size_t i)
{
	unsigned char a[HEADER + BYTES];
	int r;

	npy(a, "<f4", 0);
	for (size_t k = 0; k < BYTES; k++)
		a[HEADER + k] = (unsigned char)below(200); /* no NaN */
	if (below(5) == 0) {
		CHECK(put(tensors, file_of(i, ".npy"), a, below(sizeof(a))) == -EINVAL);
		return;
	}
	r = put(tensors, file_of(i, ".npy"), a, sizeof(a));
	CHECK(r == 0);
	now[i].there = true;
	memcpy(now[i].bytes, a + HEADER, BYTES);
}

static void step_part(size_t i)
{
	bool npy_file = below(2);
	struct handle *h = open_at(npy_file ? tensors : raw, file_of(i, npy_file ? ".npy" : ""), O_RDWR);
	unsigned char bytes[16];

	CHECK(!h == !now[i].there);
	for (size_t k = below(4); h && k > 0; k--) {
		size_t len = 1 + below(sizeof(bytes)), offset = below(BYTES - len);

		for (size_t b = 0; b < len; b++)
			bytes[b] = (unsigned char)below(200);
		CHECK(handle_write(h, offset + (npy_file ? HEADER : 0), bytes, len, NULL) == 0);
		memcpy(now[i].bytes + offset, bytes, len);
		if (below(2))
			CHECK(handle_flush(h, NULL) == 0);
	}
	if (h)
		CHECK(handle_flush(h, NULL) == 0);
	handle_release(h);
}

static void step_rename(size_t i, size_t k)
{
	int r = workspace_rename(w, tensors, str_from(file_of(i, ".npy")), tensors, str_from(file_of(k, ".npy")),
		0, NULL);

	CHECK(r == (now[i].there ? 0 : -ENOENT));
	if (r < 0 || i == k)
		return;
	now[k] = now[i];
	now[i].there = false;
}

static void step_remove(size_t i)
{
	CHECK(workspace_unlink(w, tensors, str_from(file_of(i, ".npy")), NULL) == (now[i].there ? 0 : -ENOENT));
	now[i].there = false;
}

static void step_end(size_t how)
{
	struct error e = {0};

	if (how == 0) {
		CHECK(workspace_commit(w, &e) == 0);
		if (e.code)
			printf("commit: %s\n", e.text);
		memcpy(saved, now, sizeof(now));
	} else if (how == 1) {
		CHECK(workspace_discard(w, NULL) == 0);
		memcpy(now, saved, sizeof(now));
	} else { /* dies; the edits are in the journal */
		stop();
		CHECK(start(true) == 0);
	}
}

static void compare(void)
{
	for (size_t i = 0; i < NAMES; i++) {
		CHECK(!at(raw, file_of(i, "")) == !now[i].there);
		CHECK(!now[i].there || shows(raw, file_of(i, ""), now[i].bytes, BYTES));
	}
}

static void walk(uint64_t seed, unsigned steps)
{
	state = seed | 1;
	printf("workspace: seed %llu\n", (unsigned long long)seed);
	write_model(4);
	memset(now, 0, sizeof(now));
	for (size_t i = 0; i < 4; i++) {
		now[i].there = true;
		memset(now[i].bytes, (int)i, BYTES);
	}
	memcpy(saved, now, sizeof(now));
	CHECK(start(false) == 0);
	for (unsigned n = 0; w && n < steps; n++) {
		size_t what = below(100), i = below(NAMES);

		if (what < 30)
			step_write(i);
		else if (what < 60)
			step_part(i);
		else if (what < 75)
			step_rename(i, below(NAMES));
		else if (what < 85)
			step_remove(i);
		else if (what < 90)
			step_end(below(3));
		else
			compare();
	}
	if (!w)
		return;
	compare();
	CHECK(workspace_commit(w, NULL) == 0);
	stop();
	CHECK(start(false) == 0);
	if (w)
		compare();
	stop();
}

/* ---- many at once: for the thread sanitizer, and for what must hold whoever comes first ---- */

enum { ROUNDS = 60 };

static int count_entry(void *arg, struct str name, const struct attr *a, uint64_t next)
{
	(void)name, (void)a, (void)next;
	++*(unsigned *)arg;
	return 0;
}

/* Each file is of one fill at any time it was judged; while it is written it may be of two. */
static void *reads(void *arg)
{
	unsigned char got[HEADER + BYTES];
	unsigned *bad = arg;

	for (unsigned n = 0; n < ROUNDS * 4; n++) {
		struct handle *h = open_at(raw, n % 2 ? "t1" : "t2", O_RDONLY);
		unsigned count = 0;
		char *value;
		size_t len;

		if (!h || handle_size(h) != BYTES || handle_read(h, 0, got, sizeof(got), NULL) != BYTES ||
			got[0] != got[1])
			++*bad;
		if (h && handle_peek(h, 0, BYTES))
			handle_unpeek(h);
		handle_release(h);
		workspace_list(w, tensors, 0, true, count_entry, &count);
		*bad += count < 4;
		if (workspace_xattr(w, at(tensors, "t3.npy"), "user.wiamodel.name", &value, &len, NULL) == 0)
			free(value);
	}
	return NULL;
}

static void *writes(void *arg)
{
	unsigned char a[HEADER + BYTES];
	unsigned *bad = arg;

	for (unsigned n = 0; n < ROUNDS; n++) {
		npy(a, "<f4", (unsigned char)(n % 100));
		*bad += put(tensors, "t1.npy", a, sizeof(a)) != 0;
		put(tensors, "t2.npy", a, 17);
		*bad += put(TREE_ROOT, "scratch", a, sizeof(a)) != 0;
		*bad += workspace_rename(w, TREE_ROOT, STR("scratch"), tensors, STR("t3.npy"), 0, NULL) != 0;
	}
	return NULL;
}

static void *saves(void *arg)
{
	unsigned *bad = arg;

	for (unsigned n = 0; n < ROUNDS / 4; n++)
		*bad += (n % 5 ? workspace_commit(w, NULL) : workspace_discard(w, NULL)) != 0;
	return NULL;
}

static void together(void)
{
	void *(*const jobs[])(void *) = {reads, reads, writes, saves};
	pthread_t threads[4];
	unsigned bad[4] = {0};

	write_model(4);
	CHECK(start(false) == 0);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_create(&threads[i], NULL, jobs[i], &bad[i]) == 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		CHECK(bad[i] == 0);
	}
	CHECK(workspace_discard(w, NULL) == 0);
	stop();
}

int main(void)
{
	const char *seed = getenv("SEED"), *steps = getenv("STEPS");

	if (!mkdtemp(dir_name))
		return 1;
	snprintf(model_path, sizeof(model_path), "%s/m.safetensors", dir_name);
	write_model(4);
	writing();
	names();
	CHECK(start(true) == 0); /* what names() left */
	CHECK(w && workspace_discard(w, NULL) == 0);
	stop();
	second();
	walk(seed ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL), steps ? (unsigned)atoi(steps) : 600);
	together();
	unlink(model_path);
	CHECK(rmdir(dir_name) == 0); /* nothing is left beside the model */
	return unit_done("workspace");
}
