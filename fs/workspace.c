/* SPDX-License-Identifier: MIT */
/* Opening and closing, the present tree, attributes, listings, extended attributes, what status.json tells. */
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

static void status_json(void *arg, struct json *j);

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
	o.status = status_json;
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

/* ---- listing ---- */

/* positions from here on are scratch inodes without their top bit */
#define POSITION_SCRATCH (1ull << 62)

struct listing {
	struct workspace *w;
	const struct tree *t;
	int (*emit)(void *arg, struct str name, const struct attr *attr, uint64_t next);
	void *arg;
	bool full;
};

static int listing_emit(void *arg, struct str name, const struct entry *x, uint64_t next)
{
	struct listing *l = arg;
	struct attr a;

	if (node_hides(l->w, x->inode))
		return 0;
	workspace_attr(l->w, l->t, x, &a);
	a.entry.inode = alias_out(l->w, x->inode);
	l->full = l->emit(l->arg, name, &a, next) != 0;
	return l->full;
}

/* The scratch file of dir with the smallest number from `from` on; its name in buf. */
static bool next_scratch(struct workspace *w, uint64_t dir, uint64_t from, char buf[NAME_MAX + 1],
	struct attr *out)
{
	struct node *best = NULL;

	pthread_mutex_lock(&w->lock);
	for (struct node *n = w->nodes; n; n = n->next)
		if (n->linked && n->parent == dir && n->inode >= from && (!best || n->inode < best->inode))
			best = n;
	if (best) {
		node_attr(w, best, out);
		memcpy(buf, best->name.ptr, best->name.len);
		buf[best->name.len] = 0;
	}
	pthread_mutex_unlock(&w->lock);
	return best;
}

static void list_scratch(struct listing *l, uint64_t dir, uint64_t from)
{
	char name[NAME_MAX + 1];
	struct attr a;

	while (next_scratch(l->w, dir, from, name, &a)) {
		from = a.entry.inode + 1;
		a.entry.inode = alias_out(l->w, a.entry.inode);
		if (l->emit(l->arg, str_from(name), &a,
			    POSITION_SCRATCH + (from & ~WORKSPACE_SCRATCH)))
			return;
	}
}

int workspace_list(struct workspace *w, uint64_t dir, uint64_t from, bool with_attr,
	int (*emit)(void *arg, struct str name, const struct attr *attr, uint64_t next), void *arg)
{
	struct listing l = {.w = w, .emit = emit, .arg = arg};
	struct tree *t = workspace_tree(w);
	int r = 0;

	l.t = t;
	dir = alias_in(w, dir);
	if (!(dir & WORKSPACE_SCRATCH) && from < POSITION_SCRATCH)
		r = tree_list(t, dir, from, with_attr, listing_emit, &l);
	if (r == 0 && !l.full && atomic_load(&w->node_count))
		list_scratch(&l, dir,
			from < POSITION_SCRATCH ? 0 : (from - POSITION_SCRATCH) | WORKSPACE_SCRATCH);
	tree_unref(t);
	return r;
}

int workspace_readlink(struct workspace *w, uint64_t inode, char **target)
{
	struct tree *t = workspace_tree(w);
	int r = tree_readlink(t, alias_in(w, inode), target);

	tree_unref(t);
	return r;
}

/* ---- extended attributes ---- */

static const char prefix[] = "user.wiamodel.";

static char *error_of(struct workspace *w, uint64_t inode)
{
	char *text = NULL;

	pthread_mutex_lock(&w->lock);
	for (unsigned i = 0; i < w->error_count; i++)
		if (w->errors[i].inode == inode)
			text = strdup(w->errors[i].text);
	pthread_mutex_unlock(&w->lock);
	return text;
}

int workspace_xattr(struct workspace *w, uint64_t inode, const char *name, char **value, size_t *len,
	struct error *e)
{
	struct tree *t;
	int r;

	if (strncmp(name, prefix, sizeof(prefix) - 1) != 0)
		return -ENODATA;
	inode = alias_in(w, inode);
	name += sizeof(prefix) - 1;
	if (strcmp(name, "error") == 0) {
		*value = error_of(w, inode);
		*len = *value ? strlen(*value) : 0;
		return *value ? 0 : -ENODATA;
	}
	if (inode & WORKSPACE_SCRATCH)
		return -ENODATA;
	t = workspace_tree(w);
	r = tree_xattr(t, inode, name, value, len, e);
	tree_unref(t);
	return r;
}

static bool is_tensor_file(struct workspace *w, uint64_t inode)
{
	struct tree *t = workspace_tree(w);
	const struct view *view;
	struct subject s;
	bool is = tree_file(t, inode, &view, &s) && s.kind == SUBJECT_TENSOR;

	tree_unref(t);
	return is;
}

int workspace_xattr_list(struct workspace *w, uint64_t inode, char **names, size_t *len)
{
	/* all that tensor files have; the checksum is the dear one, and asked for by name only */
	static const char tensor[] = "user.wiamodel.name\0user.wiamodel.dtype\0user.wiamodel.shape\0"
				     "user.wiamodel.format\0user.wiamodel.sha256";
	static const char error[] = "user.wiamodel.error";
	char *refused;
	size_t n;

	inode = alias_in(w, inode);
	n = !(inode & WORKSPACE_SCRATCH) && is_tensor_file(w, inode) ? sizeof(tensor) : 0;
	refused = error_of(w, inode);
	*len = n + (refused ? sizeof(error) : 0);
	free(refused);
	*names = *len ? malloc(*len) : NULL;
	if (*len && !*names)
		return -ENOMEM;
	if (n)
		memcpy(*names, tensor, n);
	if (*len > n)
		memcpy(*names + n, error, sizeof(error));
	return 0;
}

/* ---- what went wrong ---- */

static void remove_error(struct workspace *w, unsigned i)
{
	free(w->errors[i].text);
	w->error_count--;
	memmove(&w->errors[i], &w->errors[i + 1], (w->error_count - i) * sizeof(w->errors[i]));
}

static void forget_error(struct workspace *w, uint64_t inode)
{
	for (unsigned i = w->error_count; i-- > 0;)
		if (w->errors[i].inode == inode)
			remove_error(w, i);
}

void workspace_forget_error(struct workspace *w, uint64_t inode)
{
	pthread_mutex_lock(&w->lock);
	forget_error(w, inode);
	pthread_mutex_unlock(&w->lock);
}

void workspace_report(struct workspace *w, uint64_t inode, const struct error *e)
{
	inner_report(w, alias_in(w, inode), e);
}

bool workspace_acts(uint64_t inode)
{
	return inode == WORKSPACE_COMMIT || inode == WORKSPACE_DISCARD;
}

bool workspace_is_scratch(struct workspace *w, uint64_t inode)
{
	return alias_in(w, inode) & WORKSPACE_SCRATCH;
}

void inner_report(struct workspace *w, uint64_t inode, const struct error *e)
{
	char *text = inode ? strdup(e->text) : NULL;

	pthread_mutex_lock(&w->lock);
	w->last_error = *e;
	if (text) {
		forget_error(w, inode);
		if (w->error_count == ERRORS_MAX)
			remove_error(w, 0);
		w->errors[w->error_count++] = (struct file_error){inode, text};
	}
	pthread_mutex_unlock(&w->lock);
	workspace_notify_status(w);
}

bool workspace_is_dirty(struct workspace *w)
{
	bool dirty;

	pthread_mutex_lock(&w->lock);
	dirty = !model_is_clean(tree_model(w->tree)) &&
		!(w->o.out && w->written && w->written_revision == w->revision);
	pthread_mutex_unlock(&w->lock);
	return dirty;
}

/* ---- status.json ---- */

static void staged_json(const struct model *m, struct json *j)
{
	const unsigned edited = TENSOR_EDITED | TENSOR_RENAMED | TENSOR_ADDED;

	json_key(j, STR("staged"));
	json_open(j, '[');
	for (uint32_t i = 0; i < m->tensor_count; i++)
		if (m->tensors[i].flags & edited)
			json_text(j, m->tensors[i].name);
	for (uint32_t i = 0; i < m->file_count; i++)
		if (m->files[i].flags & MEMBER_EDITED)
			json_text(j, m->files[i].path);
	if (m->meta_edited)
		json_text(j, STR("metadata.json"));
	json_close(j, ']');
}

/* Names of tensors that were removed. */
static void removed_json(const struct model *m, struct json *j)
{
	json_key(j, STR("removed"));
	json_open(j, '[');
	for (uint32_t i = 0; m->base && i < m->base->tensor_count; i++)
		if (model_tensor_by_id(m, m->base->tensors[i].id) == MODEL_NONE)
			json_text(j, m->base->tensors[i].name);
	json_close(j, ']');
}

static void error_json(struct workspace *w, struct json *j)
{
	struct error e;

	pthread_mutex_lock(&w->lock);
	e = w->last_error;
	pthread_mutex_unlock(&w->lock);
	json_key(j, STR("last_error"));
	if (!e.code) {
		json_nothing(j);
		return;
	}
	json_open(j, '{');
	json_key(j, STR("code"));
	json_int(j, e.code);
	json_key(j, STR("reason"));
	json_text(j, str_from(e.text));
	json_close(j, '}');
}

static void status_json(void *arg, struct json *j)
{
	struct workspace *w = arg;
	struct tree *t = workspace_tree(w);
	const struct model *m = tree_model(t);

	json_key(j, STR("read_only"));
	json_bool(j, w->read_only);
	json_key(j, STR("dirty"));
	json_bool(j, workspace_is_dirty(w));
	staged_json(m, j);
	removed_json(m, j);
	error_json(w, j);
	tree_unref(t);
}
