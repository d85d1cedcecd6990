/* SPDX-License-Identifier: MIT */
/* What is told beside content: extended attributes, why a file was refused, what status.json says of the mount. */
#include "fs/workspace_private.h"

#include <errno.h>
#include <stdlib.h>

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

void workspace_status_json(void *arg, struct json *j)
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
