/* SPDX-License-Identifier: MIT */
/* The workspace as far as reading needs it: one snapshot, no edits; whatever would change it is EROFS. */
#include "fs/workspace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

struct workspace {
	struct model *model;
	struct tree *tree;
	struct verdict *verdicts;
	struct stat st; /* of the model file */
};

struct handle {
	struct tree *tree; /* what the map borrows from */
	struct extmap map;
};

int workspace_open(const char *path, const struct workspace_options *o, struct workspace **out,
	char **note, struct error *e)
{
	struct tree_options options = o->tree;
	struct workspace *w = calloc(1, sizeof(*w));
	int r = -ENOMEM;

	*out = NULL;
	if (note)
		*note = NULL;
	if (w)
		w->verdicts = calloc(format_count, sizeof(*w->verdicts));
	if (w && w->verdicts)
		r = model_open_path(path, o->format, o->step, w->verdicts, &w->st,
		&w->model, e);
	if (r == 0) {
		options.verdicts = w->verdicts;
		w->tree = tree_new(w->model, &options, e);
		r = w->tree ? 0 : e && e->code ? -e->code : -ENOMEM;
	}
	if (r < 0)
		workspace_close(w);
	else
		*out = w;
	return r;
}

void workspace_close(struct workspace *w)
{
	if (!w)
		return;
	tree_unref(w->tree);
	model_unref(w->model);
	free(w->verdicts);
	free(w);
}

bool workspace_is_read_only(const struct workspace *w)
{
	(void)w;
	return true;
}

struct tree *workspace_tree(struct workspace *w)
{
	return tree_ref(w->tree);
}

const struct stat *workspace_model_stat(const struct workspace *w)
{
	return &w->st;
}

static void attr_fill(const struct workspace *w, const struct entry *x, struct attr *a)
{
	mode_t mode = w->st.st_mode & 0777;

	a->entry = *x;
	a->mtime = w->st.st_mtim;
	a->ctime = w->st.st_ctim;
	a->staged = false;
	if (x->kind == ENTRY_DIR)
		a->mode = S_IFDIR | mode | (mode & 0444) >> 2;
	else if (x->kind == ENTRY_LINK)
		a->mode = S_IFLNK | 0777;
	else
		a->mode = S_IFREG | (mode & 0666);
}

int workspace_lookup(struct workspace *w, uint64_t dir, struct str name, struct attr *out)
{
	struct entry x;
	int r = tree_lookup(w->tree, dir, name, &x);

	if (r == 0)
		attr_fill(w, &x, out);
	return r;
}

int workspace_stat(struct workspace *w, uint64_t inode, struct attr *out)
{
	struct entry x;
	int r = tree_stat(w->tree, inode, &x);

	if (r == 0)
		attr_fill(w, &x, out);
	return r;
}

struct listing {
	const struct workspace *w;
	int (*emit)(void *arg, struct str name, const struct attr *attr, uint64_t next);
	void *arg;
};

static int listing_emit(void *arg, struct str name, const struct entry *x, uint64_t next)
{
	struct listing *l = arg;
	struct attr a;

	attr_fill(l->w, x, &a);
	return l->emit(l->arg, name, &a, next);
}

int workspace_list(struct workspace *w, uint64_t dir, uint64_t from, bool with_attr,
	int (*emit)(void *arg, struct str name, const struct attr *attr, uint64_t next), void *arg)
{
	struct listing l = {.w = w, .emit = emit, .arg = arg};

	return tree_list(w->tree, dir, from, with_attr, listing_emit, &l);
}

int workspace_readlink(struct workspace *w, uint64_t inode, char **target)
{
	return tree_readlink(w->tree, inode, target);
}

int workspace_xattr(struct workspace *w, uint64_t inode, const char *name, char **value, size_t *len,
	struct error *e)
{
	static const char prefix[] = "user.wiamodel.";

	if (strncmp(name, prefix, sizeof(prefix) - 1) != 0)
		return -ENODATA;
	return tree_xattr(w->tree, inode, name + sizeof(prefix) - 1, value, len, e);
}

int workspace_xattr_list(struct workspace *w, uint64_t inode, char **names, size_t *len)
{
	/* all that tensor files have; the checksum is the dear one, and asked for by name only */
	static const char all[] = "user.wiamodel.name\0user.wiamodel.dtype\0user.wiamodel.shape\0"
				  "user.wiamodel.format\0user.wiamodel.sha256";
	const struct view *view;
	struct subject s;

	*names = NULL;
	*len = 0;
	if (!tree_file(w->tree, inode, &view, &s) || s.kind != SUBJECT_TENSOR)
		return 0;
	*names = malloc(sizeof(all));
	if (!*names)
		return -ENOMEM;
	memcpy(*names, all, sizeof(all));
	*len = sizeof(all);
	return 0;
}

int workspace_open_file(struct workspace *w, uint64_t inode, int flags, struct handle **out,
	struct error *e)
{
	struct handle *h;
	int r;

	if ((flags & O_ACCMODE) != O_RDONLY || flags & O_TRUNC)
		return -EROFS;
	h = calloc(1, sizeof(*h));
	if (!h)
		return -ENOMEM;
	h->tree = tree_ref(w->tree);
	r = tree_open(h->tree, inode, &h->map, e);
	if (r < 0)
		handle_release(h);
	else
		*out = h;
	return r;
}

bool handle_keep_cache(const struct handle *h)
{
	(void)h;
	return true;
}

uint64_t handle_size(struct handle *h)
{
	return h->map.size;
}

const void *handle_peek(struct handle *h, uint64_t offset, size_t len)
{
	return extmap_peek(&h->map, offset, len);
}

ssize_t handle_read(struct handle *h, uint64_t offset, void *buf, size_t len, struct error *e)
{
	int r;

	if (offset >= h->map.size)
		return 0;
	if (len > h->map.size - offset)
		len = (size_t)(h->map.size - offset);
	r = extmap_read(&h->map, offset, buf, len, e);
	return r < 0 ? r : (ssize_t)len;
}

void handle_release(struct handle *h)
{
	if (!h)
		return;
	extmap_release(&h->map);
	tree_unref(h->tree);
	free(h);
}

/* ---- what would change something ---- */

int handle_write(struct handle *h, uint64_t offset, const void *buf, size_t len, struct error *e)
{
	(void)h, (void)offset, (void)buf, (void)len, (void)e;
	return -EROFS;
}

int handle_truncate(struct handle *h, uint64_t size, struct error *e)
{
	(void)h, (void)size, (void)e;
	return -EROFS;
}

int handle_flush(struct handle *h, struct error *e)
{
	(void)h, (void)e;
	return 0;
}

int workspace_create(struct workspace *w, uint64_t dir, struct str name, mode_t mode, int flags,
	struct attr *out, struct handle **h, struct error *e)
{
	(void)w, (void)dir, (void)name, (void)mode, (void)flags, (void)out, (void)h, (void)e;
	return -EROFS;
}

int workspace_truncate(struct workspace *w, uint64_t inode, uint64_t size, struct error *e)
{
	(void)w, (void)inode, (void)size, (void)e;
	return -EROFS;
}

int workspace_mkdir(struct workspace *w, uint64_t dir, struct str name, mode_t mode, struct attr *out,
	struct error *e)
{
	(void)w, (void)dir, (void)name, (void)mode, (void)out, (void)e;
	return -EROFS;
}

int workspace_unlink(struct workspace *w, uint64_t dir, struct str name, struct error *e)
{
	(void)w, (void)dir, (void)name, (void)e;
	return -EROFS;
}

int workspace_rmdir(struct workspace *w, uint64_t dir, struct str name, struct error *e)
{
	(void)w, (void)dir, (void)name, (void)e;
	return -EROFS;
}

int workspace_rename(struct workspace *w, uint64_t dir, struct str name, uint64_t new_dir,
	struct str new_name, unsigned flags, struct error *e)
{
	(void)w, (void)dir, (void)name, (void)new_dir, (void)new_name, (void)flags, (void)e;
	return -EROFS;
}

int workspace_set_times(struct workspace *w, uint64_t inode, const struct timespec *mtime, mode_t mode,
	struct error *e)
{
	(void)w, (void)inode, (void)mtime, (void)mode, (void)e;
	return -EROFS;
}

int workspace_commit(struct workspace *w, struct error *e)
{
	(void)w, (void)e;
	return 0; /* nothing can have been staged */
}

int workspace_discard(struct workspace *w, struct error *e)
{
	(void)w, (void)e;
	return 0;
}

int workspace_sync_journal(struct workspace *w, struct error *e)
{
	(void)w, (void)e;
	return 0;
}

bool workspace_is_dirty(struct workspace *w)
{
	(void)w;
	return false;
}

void workspace_report(struct workspace *w, uint64_t inode, const struct error *e)
{
	(void)w, (void)inode, (void)e;
}
