/* SPDX-License-Identifier: MIT */
/* Saving the edited model, dropping the edits, and making the journal durable. */
#include "fs/commit.h"
#include "fs/workspace_private.h"

#include <errno.h>

/* ---- the files ---- */

/* If all ends right after this, the next mount knows that the journal's edits are in the model. */
static int note_saved(void *arg, struct model *saved, struct error *e)
{
	struct workspace *w = arg;
	struct journal_identity identity;
	struct record record = {0};
	int r = workspace_identify(saved, &identity, e);

	if (r < 0)
		return r;
	record_begin(&record, RECORD_SAVED);
	record_add(&record, RECORD_IDENTITY, &identity, sizeof(identity));
	pthread_mutex_lock(&w->journal_lock);
	r = record.failed ? error_set(e, ENOMEM, "out of memory for the journal")
			  : journal_append(w->journal, record.bytes, record.len, e);
	if (r == 0)
		r = journal_sync(w->journal, e);
	pthread_mutex_unlock(&w->journal_lock);
	record_release(&record);
	return r;
}

static int save_files(struct workspace *w, struct model *m, struct error *e)
{
	const struct format *f = w->o.to ? format_by_name(w->o.to) : m->format;
	struct commit c = {.dir = w->dir, .base = w->base, .format = f, .in_place = !w->o.out,
		.force = w->o.force, .verify = w->o.verify, .lossy = w->o.lossy,
		.real = w->o.tree.view.npy_real, .about_to = w->o.out ? NULL : note_saved, .arg = w};

	if (!f)
		return error_set(e, EINVAL, "there is no format '%s'", w->o.to);
	return commit_model(m, &c, e);
}

/* ---- what follows ---- */

/* The journal begins anew, over the model as it is; t takes the place of the present tree. */
static int begin_anew(struct workspace *w, struct tree *t, bool saved, struct error *e)
{
	int r;

	pthread_mutex_lock(&w->journal_lock);
	r = journal_reset(w->journal, &w->identity, e);
	pthread_mutex_unlock(&w->journal_lock);
	if (r < 0) {
		tree_unref(t);
		return r;
	}
	pthread_mutex_lock(&w->lock);
	w->revision = 0;
	w->last_error = (struct error){0};
	atomic_fetch_add(&w->epoch, 1);
	pthread_mutex_unlock(&w->lock);
	workspace_swap(w, t, saved);
	edits_forget_recorded(w);
	return 0;
}

/* The saved file takes over: parsed anew, with the numbers that its tensors had. */
static int take_over(struct workspace *w, const struct model *saved, struct error *e)
{
	struct model *m = NULL;
	struct tree *t = NULL;
	int r = workspace_load(w, &m, e);

	if (r == 0)
		r = model_adopt_ids(m, saved);
	if (r == 0)
		r = workspace_identify(m, &w->identity, e);
	if (r == 0 && !(t = workspace_new_tree(w, m, NULL, e)))
		r = e && e->code ? -e->code : -ENOMEM;
	if (r == 0)
		r = begin_anew(w, t, true, e);
	model_unref(m);
	return r;
}

/* The tree of the model as it was opened or last saved. */
static int drop_edits(struct workspace *w, const struct tree *present, struct error *e)
{
	struct model *m = tree_model(present);
	struct tree *t = workspace_new_tree(w, m->base ? m->base : m, present, e);

	return t ? begin_anew(w, t, false, e) : e && e->code ? -e->code : -ENOMEM;
}

/* With out= the edits stay edits of a model that is never touched. */
static void mark_written(struct workspace *w)
{
	pthread_mutex_lock(&w->lock);
	w->written = true;
	w->written_revision = w->revision;
	pthread_mutex_unlock(&w->lock);
	workspace_notify_status(w);
}

int workspace_commit(struct workspace *w, struct error *e)
{
	struct tree *t;
	int r = 0;

	if (w->read_only)
		return 0;
	pthread_mutex_lock(&w->edit);
	t = workspace_tree(w);
	if (w->o.out) {
		if (!w->written || w->written_revision != w->revision)
			r = save_files(w, tree_model(t), e);
		if (r == 0)
			mark_written(w);
	} else if (!model_is_clean(tree_model(t))) {
		r = save_files(w, tree_model(t), e);
		if (r == 0)
			r = take_over(w, tree_model(t), e);
	} else if (w->revision) { /* edits that undid each other */
		r = drop_edits(w, t, e);
	}
	tree_unref(t);
	pthread_mutex_unlock(&w->edit);
	return r;
}

int workspace_discard(struct workspace *w, struct error *e)
{
	struct tree *t;
	int r = 0;

	if (w->read_only)
		return 0;
	pthread_mutex_lock(&w->edit);
	t = workspace_tree(w);
	if (w->revision)
		r = drop_edits(w, t, e);
	tree_unref(t);
	pthread_mutex_unlock(&w->edit);
	return r;
}

int workspace_sync_journal(struct workspace *w, struct error *e)
{
	int r = 0;

	pthread_mutex_lock(&w->journal_lock);
	if (w->journal)
		r = journal_sync(w->journal, e);
	pthread_mutex_unlock(&w->journal_lock);
	return r;
}
