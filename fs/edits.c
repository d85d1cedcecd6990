/* SPDX-License-Identifier: MIT */
/* From written content to an edited model: the view judges, the model is edited, the journal gets a record, and the
 * new tree takes the place of the old. */
#include "fs/workspace_private.h"
#include "parsers/core/limits.h"

#include <errno.h>
#include <stdlib.h>

static void release_tree(void *t)
{
	tree_unref(t);
}

/* What the file shows now, as the ground of a draft. rendering NULL: reported. */
struct origin edits_origin(struct workspace *w, uint64_t inode, struct error *e)
{
	struct origin o = {0};
	struct tree *t;

	pthread_mutex_lock(&w->lock);
	t = tree_ref(w->tree);
	o.revision = w->revision;
	o.epoch = atomic_load(&w->epoch);
	pthread_mutex_unlock(&w->lock);
	o.path = tree_path(t, inode);
	o.rendering = extmap_new();
	if (!o.path || !o.rendering || extmap_keep(o.rendering, release_tree, tree_ref(t)) < 0)
		error_set(e, ENOMEM, "out of memory for a staged file");
	else if (tree_open(t, inode, o.rendering, e) == 0)
		goto out;
	extmap_unref(o.rendering);
	free(o.path);
	o = (struct origin){0};
out:
	tree_unref(t);
	return o;
}

/* ---- applying ---- */

static int keep_files(struct workspace *w, struct draft_content *c, struct error *e)
{
	size_t need = w->recorded_count + c->file_count;
	struct staging **grown;

	if (need <= w->recorded_cap)
		return 0;
	grown = reallocarray(w->recorded, need * 2, sizeof(*grown));
	if (!grown)
		return error_set(e, ENOMEM, "out of memory for the journal");
	w->recorded = grown;
	w->recorded_cap = need * 2;
	return 0;
}

void edits_forget_recorded(struct workspace *w)
{
	for (size_t i = 0; i < w->recorded_count; i++)
		staging_unref(w->recorded[i]);
	w->recorded_count = 0;
}

/* From here on the edit outlives a crash. Without a record (it is being replayed) it does so already. */
static int append(struct workspace *w, struct record *record, struct error *e)
{
	int r;

	if (!record)
		return 0;
	if (record->failed)
		return error_set(e, ENOMEM, "out of memory for a journal record");
	pthread_mutex_lock(&w->journal_lock);
	r = journal_append(w->journal, record->bytes, record->len, e);
	pthread_mutex_unlock(&w->journal_lock);
	return r;
}

static void count_revision(struct workspace *w)
{
	pthread_mutex_lock(&w->lock);
	w->revision++;
	pthread_mutex_unlock(&w->lock);
}

int edits_apply(struct workspace *w, const struct edit *x, struct record *record,
	struct draft_content *c, struct error *e)
{
	struct tree *old = workspace_tree(w), *t = NULL;
	struct model *edited = NULL;
	int r = model_edit(tree_model(old), x, &edited, e);

	if (r == 0 && !(t = workspace_new_tree(w, edited, old, e)))
		r = e && e->code ? -e->code : -ENOMEM;
	if (r == 0 && c)
		r = keep_files(w, c, e);
	if (r == 0)
		r = append(w, record, e);
	if (r == 0) {
		for (size_t i = 0; c && i < c->file_count; i++)
			w->recorded[w->recorded_count++] = staging_ref(c->files[i]);
		count_revision(w);
		workspace_swap(w, t, false);
		t = NULL;
		if (atomic_load(&w->node_count))
			scratch_merge(w);
	}
	tree_unref(t);
	model_unref(edited);
	tree_unref(old);
	return r;
}

/* ---- written files ---- */

struct target {
	const struct view *view;
	struct subject subject;
	struct str name; /* of a new tensor */
};

static int find_target(const struct tree *t, uint64_t inode, const struct node *n, struct target *out,
	struct error *e)
{
	if (n) {
		*out = (struct target){n->view, {SUBJECT_TENSOR, MODEL_NONE}, n->tensor};
		return 0;
	}
	*out = (struct target){0};
	if (!tree_file(t, inode, &out->view, &out->subject))
		return error_set(e, ENOENT, "the file is gone");
	return out->view->accept ? 0 : error_set(e, EACCES, "'%s' cannot be written", out->view->name);
}

static int record_target(struct record *record, const struct tree *t, uint64_t inode,
	const struct node *n, struct error *e)
{
	char *path;

	record_begin(record, RECORD_WRITE);
	if (n) {
		record_add_str(record, RECORD_VIEW, str_from(n->view->name));
		record_add_str(record, RECORD_NAME, n->tensor);
		return 0;
	}
	path = tree_path(t, inode);
	if (!path)
		return error_set(e, ENOMEM, "out of memory for a journal record");
	record_add_str(record, RECORD_PATH, str_from(path));
	free(path);
	return 0;
}

/* The view's judgement, then the model's. */
int edits_accept(struct workspace *w, const struct view *view, struct subject s, struct str name,
	struct extmap *content, struct record *record, struct draft_content *c, struct error *e)
{
	struct tree *t = workspace_tree(w);
	struct arena *a = arena_new(LIMIT_MODEL_MEMORY);
	struct edit x = {.name = name};
	int r = a ? view->accept(tree_context(t), &s, content, a, &x, e)
		  : error_set(e, ENOMEM, "out of memory");

	if (r == 0)
		r = edits_apply(w, &x, record, c, e);
	arena_free(a);
	tree_unref(t);
	return r;
}

/* The file that the model's last tensor is now, in that view. */
static uint64_t new_inode(struct workspace *w, const struct view *view)
{
	struct tree *t = workspace_tree(w);
	const struct model *m = tree_model(t);
	char *path = m->tensor_count ? tree_tensor_path(t, view, m->tensor_count - 1) : NULL;
	struct entry x;
	uint64_t inode = path && tree_resolve(t, path, &x) == 0 ? x.inode : 0;

	free(path);
	tree_unref(t);
	return inode;
}

int edits_write(struct workspace *w, uint64_t inode, struct node *n, struct draft *d,
	uint64_t *changes, uint64_t *became, struct error *e)
{
	struct tree *t = workspace_tree(w);
	struct draft_content c = {0};
	struct record record = {0};
	struct target to;
	int r = find_target(t, inode, n, &to, e);

	*became = 0;
	if (r == 0)
		r = record_target(&record, t, inode, n, e);
	if (r == 0)
		r = draft_content(d, &c, &record, e);
	if (r == 0)
		*changes = c.changes;
	if (r == 0)
		r = edits_accept(w, to.view, to.subject, to.name, c.map, &record, &c, e);
	if (r == 0 && n)
		*became = new_inode(w, to.view);
	record_release(&record);
	draft_content_release(&c);
	tree_unref(t);
	return r;
}

/* The tensor in the making is one of the model: whoever has it open goes on with that. */
static void promote(struct workspace *w, struct writing *x, uint64_t inode)
{
	struct node *n = x->node;

	x->inode = inode;
	x->node = NULL;
	node_become(w, n, inode);
}

static int judge(struct workspace *w, struct writing *x, struct error *e)
{
	uint64_t became, changes = draft_changes(x->draft);
	struct error why = {0};
	int r = edits_write(w, x->inode, x->node, x->draft, &changes, &became, &why);

	if (r < 0)
		error_set(&why, -r, "%s", strerror(-r));
	x->judged = changes;
	x->verdict = why;
	if (r < 0)
		inner_report(w, x->inode, &why);
	else
		workspace_forget_error(w, x->inode);
	if (r == 0 && became)
		promote(w, x, became);
	/* so that nothing of what was refused, or is shown otherwise now, is left in the kernel's cache; what comes next
	 * finds the draft gone if this was its last close, since the kernel asks in that order */
	workspace_notify(w, x->inode, (struct str){0});
	if (r == 0)
		r = workspace_sync_journal(w, e);
	/* a shell closes what it has just cut, before the command writes: the verdict stands, nobody need hear */
	if (r < 0 && !draft_is_empty(x->draft))
		error_set(e, why.code, "%s", why.text);
	return r;
}

int edits_judge(struct workspace *w, struct writing *x, struct error *e)
{
	int r;

	pthread_mutex_lock(&w->edit);
	if (draft_changes(x->draft) != x->judged)
		r = judge(w, x, e);
	else
		r = x->verdict.code ? error_set(draft_is_empty(x->draft) ? NULL : e, x->verdict.code, "%s",
					      x->verdict.text)
				    : 0;
	pthread_mutex_unlock(&w->edit);
	return r;
}
