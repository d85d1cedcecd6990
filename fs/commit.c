/* SPDX-License-Identifier: MIT */
#include "fs/commit.h"
#include "fs/output.h"
#include "parsers/sidecar.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define STEP (256u << 10)

struct job {
	struct model *m;
	const struct commit *c;
	struct plan plan;
	struct output_file *files; /* of plan.files; zeroed ones are unchanged or named already */
	bool *made;                /* has its name, which nobody had before */
	char *dir;                 /* what names in the plan are relative to */
	int dir_fd;
	bool is_dir;
	size_t root; /* which of plan.files is renamed last */
};

static bool is_file(const struct job *j, size_t i)
{
	return !j->plan.files[i].unchanged;
}

static const char *name_of(const struct job *j, size_t i)
{
	return j->plan.files[i].name[0] ? j->plan.files[i].name : j->c->base;
}

/* ---- before ---- */

static int open_place(struct job *j, struct error *e)
{
	struct stat st;
	char *path;

	if (asprintf(&path, "%s/%s", j->c->dir, j->c->base) < 0)
		return error_set(e, ENOMEM, "out of memory for saving");
	j->is_dir = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
	j->dir = j->is_dir ? path : strdup(j->c->dir);
	if (!j->is_dir)
		free(path);
	j->dir_fd = j->dir ? open(j->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	return j->dir_fd < 0 ? error_set(e, errno, "cannot open '%s': %s", j->dir ? j->dir : "", strerror(errno)) : 0;
}

/* The file of that name is still the one that was read. */
static bool is_same_file(int dir_fd, const char *name, const struct stat *was)
{
	struct stat st;

	return fstatat(dir_fd, name, &st, 0) == 0 && st.st_dev == was->st_dev && st.st_ino == was->st_ino &&
	       st.st_size == was->st_size && st.st_mtim.tv_sec == was->st_mtim.tv_sec &&
	       st.st_mtim.tv_nsec == was->st_mtim.tv_nsec;
}

static int check_sources(const struct job *j, struct error *e)
{
	const struct model *base = j->m->base ? j->m->base : j->m;

	for (uint32_t i = 0; j->c->in_place && !j->c->force && i < base->source_count; i++) {
		const struct source *s = base->sources[i];
		const char *name = i == 0 && !j->is_dir ? j->c->base : source_name(s);

		if (source_fd(s) >= 0 && !is_same_file(j->dir_fd, name, source_stat(s)))
			return error_set(e, ESTALE, "'%s' was changed by others since it was opened (-o force "
				"saves all the same)", name);
	}
	return 0;
}

static int make_plan(struct job *j, struct error *e)
{
	int r;

	j->plan = (struct plan){.root_name = j->c->base, .in_place = j->c->in_place, .real = j->c->real};
	r = model_plan(j->m, j->c->format, &j->plan, e);
	if (r < 0)
		return r;
	if (j->plan.loss_count && !j->c->lossy)
		return error_set(e, EOPNOTSUPP, "%zu losses, refused without -o lossy; the first: %s",
			j->plan.loss_count, j->plan.losses[0]);
	j->root = j->plan.count - 1;
	for (size_t i = 0; i < j->plan.count; i++) {
		if (!j->plan.files[i].name[0])
			j->root = i;
		if (strchr(j->plan.files[i].name, '/'))
			return error_set(e, EOPNOTSUPP, "files in directories of the model cannot be written yet");
	}
	return j->plan.count ? 0 : error_set(e, EIO, "%s planned no file", j->c->format->title);
}

/* ---- writing ---- */

static int copy_xattr(int from, int to, const char *name)
{
	char *value = NULL;
	ssize_t n = fgetxattr(from, name, NULL, 0);
	int r = n < 0 ? -errno : 0;

	if (r == 0)
		value = malloc((size_t)n + 1);
	if (r == 0)
		n = value ? fgetxattr(from, name, value, (size_t)n) : -1;
	if (r == 0 && n < 0)
		r = value ? -errno : -ENOMEM;
	if (r == 0 && fsetxattr(to, name, value, (size_t)n, 0) < 0)
		r = -errno;
	free(value);
	return r;
}

/* ACLs are among them. What may not be set, as security.* by a user, the system sets by itself. */
static int copy_xattrs(int from, int to, struct error *e)
{
	ssize_t n = flistxattr(from, NULL, 0);
	char *names = n > 0 ? malloc((size_t)n) : NULL;
	int r = 0;

	if (n > 0)
		n = names ? flistxattr(from, names, (size_t)n) : -1;
	for (ssize_t at = 0; r == 0 && at < n; at += (ssize_t)strlen(names + at) + 1) {
		r = copy_xattr(from, to, names + at);
		if (r < 0 && strncmp(names + at, "user.", 5) != 0 && strncmp(names + at, "system.posix_acl", 16) != 0)
			r = 0;
	}
	free(names);
	return r < 0 ? error_set(e, -r, "cannot keep the file's extended attributes: %s", strerror(-r)) : 0;
}

/* The new file looks as the old one did. */
static int keep_attributes(struct job *j, size_t i, struct error *e)
{
	int old = openat(j->dir_fd, name_of(j, i), O_RDONLY | O_NONBLOCK | O_CLOEXEC), r = 0;
	int fd = j->files[i].fd;
	struct stat st, now;

	if (old < 0)
		return errno == ENOENT ? 0 : error_set(e, errno, "cannot look at '%s': %s", name_of(j, i),
							strerror(errno));
	if (fstat(old, &st) < 0 || fstat(fd, &now) < 0)
		r = error_set(e, errno, "cannot look at '%s': %s", name_of(j, i), strerror(errno));
	/* who may not give files away keeps at least the group, if he may */
	if (r == 0 && (st.st_uid != now.st_uid || st.st_gid != now.st_gid) &&
		fchown(fd, st.st_uid, st.st_gid) < 0 && fchown(fd, (uid_t)-1, st.st_gid) < 0)
		st.st_mode &= ~(mode_t)(S_ISUID | S_ISGID);
	if (r == 0)
		r = copy_xattrs(old, fd, e);
	if (r == 0 && fchmod(fd, st.st_mode & 07777) < 0)
		r = error_set(e, errno, "cannot keep the mode of '%s': %s", name_of(j, i), strerror(errno));
	close(old);
	return r;
}

static int write_files(struct job *j, struct error *e)
{
	int r = 0;

	j->files = calloc(j->plan.count, sizeof(*j->files));
	j->made = calloc(j->plan.count, sizeof(*j->made));
	if (!j->files || !j->made)
		return error_set(e, ENOMEM, "out of memory for saving");
	for (size_t i = 0; r == 0 && i < j->plan.count; i++) {
		if (!is_file(j, i))
			continue;
		r = output_open(&j->files[i], j->dir_fd, name_of(j, i), 0666, e);
		if (r == 0)
			r = output_map(j->files[i].fd, &j->plan.files[i].map, OUTPUT_SYNC, NULL, e);
		if (r == 0)
			r = keep_attributes(j, i, e);
		if (r == 0 && fsync(j->files[i].fd) < 0)
			r = error_set(e, errno, "cannot make '%s' durable: %s", name_of(j, i), strerror(errno));
	}
	return r;
}

/* ---- reading back ---- */

static int same_content(const struct extent *a, const struct extent *b, struct error *e)
{
	char *bufs = malloc(2 * STEP);
	int r = bufs ? 0 : error_set(e, ENOMEM, "out of memory for comparing");

	if (r == 0 && a->size != b->size)
		r = error_set(e, EIO, "sizes differ");
	for (uint64_t at = 0; r == 0 && at < a->size; at += STEP) {
		size_t n = a->size - at < STEP ? (size_t)(a->size - at) : STEP;

		r = extent_read(a, at, bufs, n, e);
		if (r == 0)
			r = extent_read(b, at, bufs + STEP, n, e);
		if (r == 0 && memcmp(bufs, bufs + STEP, n) != 0)
			r = error_set(e, EIO, "values differ");
	}
	free(bufs);
	return r;
}

static int same_strings(const struct tensor *a, const struct tensor *b, struct error *e)
{
	for (uint64_t i = 0; i < a->count && a->strings && b->strings; i++)
		if (!str_eq(a->strings[i], b->strings[i]))
			return error_set(e, EIO, "strings differ");
	return !a->strings == !b->strings ? 0 : error_set(e, EIO, "strings are missing");
}

static int same_tensor(const struct job *j, const struct tensor *a, const struct tensor *b, struct error *e)
{
	const unsigned edited = TENSOR_EDITED | TENSOR_ADDED;

	if (b->problem.len && !a->problem.len)
		return error_set(e, EIO, "%.*s", STR_ARG(b->problem));
	if (a->rank != b->rank || (a->rank && memcmp(a->shape, b->shape, a->rank * sizeof(*a->shape)) != 0))
		return error_set(e, EIO, "shapes differ");
	if (a->dtype != b->dtype)
		return j->c->lossy || j->c->real ? 0 : error_set(e, EIO, "dtypes differ");
	if (a->problem.len || (!j->c->verify && !(a->flags & edited)))
		return 0;
	if (a->dtype == DTYPE_STRING)
		return same_strings(a, b, e);
	/* another byte order is another spelling of the same values */
	if ((a->flags ^ b->flags) & TENSOR_BIG_ENDIAN)
		return 0;
	return same_content(&a->data, &b->data, e);
}

static int compare_tensors(const struct job *j, const struct model *got, bool part, struct error *e)
{
	for (uint32_t i = 0; i < j->m->tensor_count; i++) {
		const struct tensor *a = &j->m->tensors[i];
		uint32_t k = model_find_tensor(got, a->name);
		char what[160];
		int r = 0;

		if (k == MODEL_NONE)
			r = part || j->c->lossy ? 0 : error_set(e, EIO, "is missing");
		else if (model_find_tensor(j->m, a->name) == i)
			r = same_tensor(j, a, &got->tensors[k], e);
		if (r < 0) {
			snprintf(what, sizeof(what), "tensor '%.*s'", STR_ARG(a->name));
			return error_prefix(e, what);
		}
	}
	if (got->tensor_count > j->m->tensor_count)
		return error_set(e, EIO, "there are %u tensors instead of %u", got->tensor_count,
			j->m->tensor_count);
	return 0;
}

static bool is_empty(const struct value *map)
{
	return !map || (map->kind == VALUE_MAP && map->map.count == 0);
}

/* Every key is there with its value; another format may need keys that were not there, as a name. */
static bool holds_all(const struct value *got, const struct value *want)
{
	size_t n = got && got->kind == VALUE_MAP ? got->map.count : 0, at = 0;

	for (size_t i = 0; want && want->kind == VALUE_MAP && i < want->map.count; i++) {
		const struct member *m = &want->map.members[i];
		size_t looked = 0;

		/* they mostly come in the same order */
		while (looked < n && !str_eq(got->map.members[at % n].key, m->key)) {
			at++;
			looked++;
		}
		if (looked == n || !value_alike(got->map.members[at % n].value, m->value))
			return false;
	}
	return true;
}

/* Of what was edited; the rest was copied. */
static int compare_metadata(const struct job *j, const struct model *got, struct error *e)
{
	const struct value *a[] = {j->m->meta.model, j->m->meta.preprocessing, j->m->meta.properties,
		j->m->meta.values};
	const struct value *b[] = {got->meta.model, got->meta.preprocessing, got->meta.properties,
		got->meta.values};
	static const char *const names[] = {"model", "preprocessing", "properties", "values"};

	for (int i = 0; i < 4; i++)
		if (j->c->in_place ? !(is_empty(a[i]) && is_empty(b[i])) && !(a[i] && b[i] && value_alike(a[i], b[i]))
				   : !holds_all(b[i], a[i]))
			return error_set(e, EIO, "metadata: '%s' differs", names[i]);
	return 0;
}

/* Keys in a sidecar are found by the root's name, which the temporary file does not have. */
static bool has_sidecar(const struct job *j)
{
	for (size_t i = 0; i < j->plan.count; i++)
		if (str_ends(str_from(j->plan.files[i].name), STR(SIDECAR_SUFFIX)))
			return true;
	return false;
}

/* The file that changes last, read under its temporary name. */
static int read_back(struct job *j, size_t i, struct model **out, struct error *e)
{
	bool part = j->is_dir && i != j->root;
	struct stat st;
	char *path;
	int r;

	if (asprintf(&path, "%s/%s", j->dir, j->files[i].temp) < 0)
		return error_set(e, ENOMEM, "out of memory for reading back");
	r = model_open_path(path, j->c->format->name, -1, NULL, &st, out, e);
	free(path);
	if (r == 0)
		r = compare_tensors(j, *out, part, e);
	if (r == 0 && !part && j->m->meta_edited && !j->c->lossy && !has_sidecar(j))
		r = compare_metadata(j, *out, e);
	return r < 0 ? error_prefix(e, "what was written does not read back") : 0;
}

/* ---- names ---- */

static int give_name(struct job *j, size_t i, struct error *e)
{
	struct stat st;
	int r;

	j->made[i] = fstatat(j->dir_fd, name_of(j, i), &st, AT_SYMLINK_NOFOLLOW) < 0;
	r = output_finish(&j->files[i], OUTPUT_REPLACE | OUTPUT_SYNC, e);
	if (r < 0)
		j->made[i] = false;
	return r;
}

/* The one whose rename makes the new model the model: the root, or the only one that changes. */
static size_t last_file(const struct job *j)
{
	size_t last = j->root;

	for (size_t i = 0; i < j->plan.count && !is_file(j, j->root); i++)
		if (is_file(j, i))
			last = i;
	return last;
}

/* *there: it has its name, even if the directory could not be made durable. */
static int give_last_name(struct job *j, size_t i, bool *there, struct error *e)
{
	struct stat ours, st;
	int r = fstat(j->files[i].fd, &ours) < 0 ? error_set(e, errno, "%s", strerror(errno)) : 0;

	if (r == 0)
		r = give_name(j, i, e);
	*there = r < 0 && fstatat(j->dir_fd, name_of(j, i), &st, 0) == 0 && st.st_ino == ours.st_ino;
	return r;
}

static int give_names(struct job *j, struct error *e)
{
	size_t last = last_file(j);
	struct model *saved = NULL;
	bool there = false;
	int r = 0;

	if (!is_file(j, last))
		return 0;
	for (size_t i = 0; r == 0 && i < j->plan.count; i++)
		if (is_file(j, i) && i != last)
			r = give_name(j, i, e);
	if (r == 0)
		r = read_back(j, last, &saved, e);
	if (r == 0 && j->c->about_to)
		r = j->c->about_to(j->c->arg, saved, e);
	model_unref(saved);
	if (r == 0)
		r = give_last_name(j, last, &there, e);
	for (size_t i = 0; r < 0 && !there && i < j->plan.count; i++)
		if (j->made[i])
			unlinkat(j->dir_fd, name_of(j, i), 0);
	return r;
}

/* Failing to is no failure to save. */
static void remove_obsolete(const struct job *j)
{
	for (size_t i = 0; i < j->plan.obsolete_count; i++)
		if (!strchr(j->plan.obsolete[i], '/'))
			unlinkat(j->dir_fd, j->plan.obsolete[i], 0);
}

int commit_model(struct model *m, const struct commit *c, struct error *e)
{
	struct job j = {.m = m, .c = c, .dir_fd = -1};
	int r = open_place(&j, e);

	if (r == 0)
		r = check_sources(&j, e);
	if (r == 0)
		r = make_plan(&j, e);
	if (r == 0)
		r = write_files(&j, e);
	if (r == 0)
		r = give_names(&j, e);
	if (r == 0)
		remove_obsolete(&j);
	for (size_t i = 0; j.files && i < j.plan.count; i++)
		output_abandon(&j.files[i]);
	plan_release(&j.plan);
	if (j.dir_fd >= 0)
		close(j.dir_fd);
	free(j.files);
	free(j.made);
	free(j.dir);
	return r;
}
