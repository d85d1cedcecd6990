/* SPDX-License-Identifier: MIT */
/* Opening and closing, the present tree, attributes. */
#include "fs/workspace.h"
#include "fs/output.h"
#include "fs/workspace_private.h"
#include "parsers/codec/sha256.h"
#include "views/tree_changes.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- opening ---- */

/* Where the file itself lies: links followed; of a prefix that is no file, its directory's. */
static int find_place(struct workspace *w, const char *path, struct error *e)
{
	char *copy = strdup(path), *real = realpath(path, NULL), *slash;

	while (copy && strlen(copy) > 1 && copy[strlen(copy) - 1] == '/')
		copy[strlen(copy) - 1] = 0;
	if (!real && copy && errno == ENOENT) {
		slash = strrchr(copy, '/');
		char *base = slash ? slash + 1 : copy, *dir;

		if (slash)
			*slash = 0;
		dir = realpath(slash ? (*copy ? copy : "/") : ".", NULL);
		if (dir && asprintf(&real, "%s/%s", strcmp(dir, "/") ? dir : "", base) < 0)
			real = NULL;
		free(dir);
	}
	free(copy);
	if (!real)
		return error_set(e, errno ? errno : ENOMEM, "'%s': %s", path, strerror(errno));
	slash = strrchr(real, '/');
	w->base = strdup(slash + 1);
	slash[slash == real] = 0;
	w->dir = real;
	w->dir_fd = w->base ? open(real, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	if (w->dir_fd < 0)
		return error_set(e, errno, "cannot open '%s': %s", real, strerror(errno));
	return 0;
}

int workspace_load(struct workspace *w, struct model **out, struct error *e)
{
	struct stat st;
	int r = model_open_path(w->path, w->o.format, w->o.step, w->verdicts, &st, out, e);

	if (r == 0) {
		pthread_mutex_lock(&w->lock);
		w->st = st;
		pthread_mutex_unlock(&w->lock);
	}
	return r;
}

struct tree *workspace_new_tree(struct workspace *w, struct model *m, const struct tree *previous,
	struct error *e)
{
	struct tree_options o = w->o.tree;

	o.verdicts = w->verdicts;
	o.status = workspace_status_json;
	o.status_arg = w;
	o.previous = previous;
	return tree_new(m, &o, e);
}

/* Whether edits could be saved at all. */
static bool is_writable(const struct workspace *w, const struct model *m)
{
	const unsigned edits = CAN_VALUES | CAN_RESHAPE | CAN_RETYPE | CAN_RENAME | CAN_ADD | CAN_REMOVE |
			       CAN_METADATA | CAN_FILES;

	if (w->o.read_only || w->dir_fd < 0 || !(m->format->can & edits))
		return false;
	if (faccessat(w->dir_fd, ".", W_OK, AT_EACCESS) < 0)
		return false;
	return w->o.out || (m->format->plan && faccessat(w->dir_fd, w->base, W_OK, AT_EACCESS) == 0);
}

/* to= and out= as far as they can be judged now. */
static int check_target(const struct workspace *w, const struct model *m, struct error *e)
{
	const struct format *f = w->o.to ? format_by_name(w->o.to) : m->format;

	if (!w->o.out || w->o.read_only)
		return 0;
	if (!f)
		return error_set(e, EINVAL, "there is no format '%s'", w->o.to);
	if (!f->plan || (f != m->format && !(f->can & CAN_CREATE)))
		return error_set(e, EOPNOTSUPP, "%s cannot be written from %s", f->title, m->format->title);
	if (!w->o.force && !w->o.recover && faccessat(w->dir_fd, w->base, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return error_set(e, EEXIST, "out: '%s' exists already (-o force replaces it)", w->o.out);
	return 0;
}

/* The version of a model of several files: that of the first, and what stat says of the others. */
int workspace_identify(const struct model *m, struct journal_identity *out, struct error *e)
{
	struct sha256 *h;
	int r = 0;

	*out = (struct journal_identity){0};
	if (m->source_count && source_fd(m->sources[0]) >= 0)
		r = journal_identify(source_fd(m->sources[0]), out, e);
	h = r < 0 || m->source_count < 2 ? NULL : sha256_new();
	if (!h)
		return r;
	sha256_update(h, out->ends, sizeof(out->ends));
	for (uint32_t i = 1; i < m->source_count; i++) {
		const struct stat *st = source_stat(m->sources[i]);
		const int64_t facts[] = {(int64_t)st->st_size, (int64_t)st->st_ino, st->st_mtim.tv_sec,
			st->st_mtim.tv_nsec};

		sha256_update(h, facts, sizeof(facts));
	}
	r = sha256_final(h, out->ends);
	sha256_free(h);
	return r;
}

static int take_note(char **note, const char *text, struct error *e)
{
	if (note && !*note && !(*note = strdup(text)))
		return error_set(e, ENOMEM, "out of memory");
	return 0;
}

/* What a save that was cut off left. */
static void sweep(const struct workspace *w)
{
	int inside = openat(w->dir_fd, w->base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	output_sweep(w->dir_fd);
	if (inside < 0)
		return;
	output_sweep(inside);
	close(inside);
}

static int open_journal(struct workspace *w, const struct model *m, char **note, struct error *e)
{
	struct error why = {0};
	char text[700];
	int r = workspace_identify(m, &w->identity, e);

	if (r == 0)
		r = journal_open(w->dir_fd, w->base, &w->identity, true, &w->journal, &why);
	if (r < 0 && r != -EBUSY && r != -EPERM && r != -EACCES && r != -EROFS)
		return why.code ? error_set(e, why.code, "%s", why.text) : r;
	if (r == 0) {
		sweep(w);
		return 0;
	}
	w->read_only = true;
	snprintf(text, sizeof(text), "mounted read-only: %s",
		r == -EBUSY ? "another mount of this model may write it" : why.text);
	return take_note(note, text, e);
}

static struct workspace *workspace_alloc(const char *path, const struct workspace_options *o)
{
	struct workspace *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->o = *o;
	w->dir_fd = -1;
	w->next_node = WORKSPACE_FIRST_NODE;
	pthread_mutex_init(&w->edit, NULL);
	pthread_mutex_init(&w->lock, NULL);
	pthread_mutex_init(&w->journal_lock, NULL);
	w->path = strdup(path);
	w->verdicts = calloc(format_count, sizeof(*w->verdicts));
	if (w->path && w->verdicts)
		return w;
	workspace_close(w);
	return NULL;
}

int workspace_open(const char *path, const struct workspace_options *o, struct workspace **out,
	char **note, struct error *e)
{
	struct workspace *w = workspace_alloc(path, o);
	struct model *m = NULL;
	int r = w ? workspace_load(w, &m, e) : error_set(e, ENOMEM, "out of memory");

	*out = NULL;
	if (note)
		*note = NULL;
	/* the place beside the model is for writing; without that it need not even be reachable */
	if (r == 0 && !o->read_only) {
		r = find_place(w, o->out ? o->out : path, o->out ? e : NULL);
		r = o->out ? r : 0;
	}
	if (r == 0)
		r = check_target(w, m, e);
	if (r == 0) {
		w->read_only = !is_writable(w, m);
		w->tree = workspace_new_tree(w, m, NULL, e);
		r = w->tree ? 0 : e && e->code ? -e->code : -ENOMEM;
	}
	if (r == 0 && !w->read_only)
		r = open_journal(w, m, note, e);
	if (r == 0 && w->journal)
		r = replay_journal(w, e);
	model_unref(m);
	if (r < 0)
		workspace_close(w);
	else
		*out = w;
	return r;
}

void workspace_close(struct workspace *w)
{
	bool keep;

	if (!w)
		return;
	keep = w->journal && journal_count(w->journal) > 0 && (!w->o.out || workspace_is_dirty(w));
	scratch_release(w);
	w->keep_staging |= keep;
	edits_forget_recorded(w);
	alias_release(w);
	tree_unref(w->tree);
	journal_close(w->journal, !keep);
	for (unsigned i = 0; i < w->error_count; i++)
		free(w->errors[i].text);
	if (w->dir_fd >= 0)
		close(w->dir_fd);
	pthread_mutex_destroy(&w->edit);
	pthread_mutex_destroy(&w->lock);
	pthread_mutex_destroy(&w->journal_lock);
	free(w->recorded);
	free(w->verdicts);
	free(w->path);
	free(w->dir);
	free(w->base);
	free(w);
}

bool workspace_is_read_only(const struct workspace *w)
{
	return w->read_only;
}

/* ---- the present tree ---- */

struct tree *workspace_tree(struct workspace *w)
{
	struct tree *t;

	pthread_mutex_lock(&w->lock);
	t = tree_ref(w->tree);
	pthread_mutex_unlock(&w->lock);
	return t;
}

void workspace_notify(struct workspace *w, uint64_t inode, struct str name)
{
	uint64_t shown[16];
	unsigned n;

	if (!w->o.changed)
		return;
	n = alias_all(w, inode, shown, 16);
	for (unsigned i = 0; i < n; i++)
		w->o.changed(w->o.changed_arg, shown[i], name);
}

static void notify_one(void *arg, uint64_t inode, struct str name)
{
	workspace_notify(arg, inode, name);
}

void workspace_notify_status(struct workspace *w)
{
	struct tree *t = workspace_tree(w);

	tree_changes(t, t, true, notify_one, w); /* what is made of the whole model */
	tree_unref(t);
}

void workspace_swap(struct workspace *w, struct tree *t, bool saved)
{
	struct tree *old;

	pthread_mutex_lock(&w->lock);
	old = w->tree;
	w->tree = t;
	tree_ref(t);
	clock_gettime(CLOCK_REALTIME, &w->edited);
	atomic_fetch_add(&w->generation, 1);
	pthread_mutex_unlock(&w->lock);
	if (w->o.changed)
		tree_changes(old, t, saved, notify_one, w);
	tree_unref(old);
	tree_unref(t);
}

void workspace_model_stat(struct workspace *w, struct stat *st)
{
	pthread_mutex_lock(&w->lock);
	*st = w->st;
	pthread_mutex_unlock(&w->lock);
}

/* ---- attributes ---- */

static bool is_staged(const struct tree *t, const struct entry *x)
{
	const struct model *m = tree_model(t);
	const struct view *view;
	struct subject s;

	if (!m->base || x->kind != ENTRY_FILE || !tree_file(t, x->inode, &view, &s))
		return false;
	switch (s.kind) {
	case SUBJECT_TENSOR:
		return m->tensors[s.index].flags & (TENSOR_EDITED | TENSOR_RENAMED | TENSOR_ADDED);
	case SUBJECT_FILE:
		return m->files[s.index].flags & MEMBER_EDITED;
	case SUBJECT_MODEL:
		return view->accept ? m->meta_edited : !model_is_clean(m);
	default:
		return false;
	}
}

void workspace_attr(struct workspace *w, const struct tree *t, const struct entry *x, struct attr *a)
{
	struct writing *writing = NULL;
	struct draft *d = NULL;
	mode_t mode;

	a->entry = *x;
	a->staged = is_staged(t, x);
	a->fleeting = false;
	pthread_mutex_lock(&w->lock);
	mode = w->st.st_mode & 0777;
	a->mtime = a->staged ? w->edited : w->st.st_mtim;
	a->ctime = a->staged ? w->edited : w->st.st_ctim;
	if (atomic_load(&w->writing_count))
		writing = writing_find(w, x->inode);
	if (writing)
		d = draft_ref(writing->draft);
	pthread_mutex_unlock(&w->lock);
	if (d) {
		a->entry.size = draft_size(d);
		a->mtime = a->ctime = draft_mtime(d);
		a->staged = true;
		draft_unref(d);
	}
	if (x->kind == ENTRY_DIR)
		a->mode = S_IFDIR | mode | (mode & 0444) >> 2;
	else if (x->kind == ENTRY_LINK)
		a->mode = S_IFLNK | 0777;
	else
		a->mode = S_IFREG | (mode & (x->writable ? 0666 : 0444));
}

static void act_attr(struct workspace *w, uint64_t inode, struct attr *a)
{
	*a = (struct attr){.entry = {.inode = inode, .kind = ENTRY_FILE, .links = 1, .writable = true}};
	pthread_mutex_lock(&w->lock);
	a->mtime = w->st.st_mtim;
	a->ctime = w->st.st_ctim;
	a->mode = S_IFREG | 0200;
	pthread_mutex_unlock(&w->lock);
}

/* .wiamodel/commit and discard */
static uint64_t act_lookup(struct workspace *w, const struct tree *t, uint64_t dir, struct str name)
{
	struct entry x;

	if (w->read_only || (!str_is(name, "commit") && !str_is(name, "discard")))
		return 0;
	if (tree_resolve(t, ".wiamodel", &x) < 0 || x.inode != dir)
		return 0;
	return str_is(name, "commit") ? WORKSPACE_COMMIT : WORKSPACE_DISCARD;
}

static int scratch_lookup(struct workspace *w, uint64_t dir, struct str name, struct attr *out)
{
	struct node *n;

	pthread_mutex_lock(&w->lock);
	n = node_child(w, dir, name);
	if (n)
		node_attr(w, n, out);
	pthread_mutex_unlock(&w->lock);
	return n ? 0 : -ENOENT;
}

int inner_lookup(struct workspace *w, uint64_t dir, struct str name, struct attr *out)
{
	struct tree *t = workspace_tree(w);
	struct entry x;
	uint64_t act;
	int r = -ENOENT;

	if (!(dir & WORKSPACE_SCRATCH))
		r = tree_lookup(t, dir, name, &x);
	if (r == 0 && node_hides(w, x.inode))
		r = -ENOENT;
	if (r == 0)
		workspace_attr(w, t, &x, out);
	else if (r == -ENOENT && (act = act_lookup(w, t, dir, name)) != 0) {
		act_attr(w, act, out);
		r = 0;
	} else if (r == -ENOENT && atomic_load(&w->node_count))
		r = scratch_lookup(w, dir, name, out);
	tree_unref(t);
	return r;
}

int workspace_lookup(struct workspace *w, uint64_t dir, struct str name, struct attr *out)
{
	int r = inner_lookup(w, alias_in(w, dir), name, out);

	if (r == 0)
		out->entry.inode = alias_out(w, out->entry.inode);
	return r;
}

int workspace_stat(struct workspace *w, uint64_t inode, struct attr *out)
{
	int r = inner_stat(w, alias_in(w, inode), out);

	if (r == 0)
		out->entry.inode = inode;
	return r;
}

int inner_stat(struct workspace *w, uint64_t inode, struct attr *out)
{
	struct tree *t;
	struct entry x;
	struct node *n;
	int r;

	if (inode == WORKSPACE_COMMIT || inode == WORKSPACE_DISCARD) {
		act_attr(w, inode, out);
		return 0;
	}
	if (inode & WORKSPACE_SCRATCH) {
		pthread_mutex_lock(&w->lock);
		n = node_find(w, inode);
		if (n)
			node_attr(w, n, out);
		pthread_mutex_unlock(&w->lock);
		return n ? 0 : -ENOENT;
	}
	t = workspace_tree(w);
	r = tree_stat(t, inode, &x);
	if (r == 0)
		workspace_attr(w, t, &x, out);
	tree_unref(t);
	return r;
}
