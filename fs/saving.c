/* SPDX-License-Identifier: MIT */
/* Saving the edited model, dropping the edits, and making the journal durable. */
#include "fs/output.h"
#include "fs/workspace_private.h"

#include <errno.h>

/* ---- until fs/commit.h ---- */

static int save_files(struct workspace *w, const struct model *m, struct error *e)
{
	struct plan p = {.root_name = w->base, .in_place = true};
	int r = model_plan(m, m->format, &p, e);

	for (size_t i = 0; r == 0 && i < p.count; i++) {
		struct output_file f = {0};
		const char *name = p.files[i].name[0] ? p.files[i].name : w->base;

		if (p.files[i].unchanged)
			continue;
		r = output_open(&f, w->dir_fd, name, w->st.st_mode & 07777, e);
		if (r == 0)
			r = output_map(f.fd, &p.files[i].map, NULL, e);
		if (r == 0)
			r = output_finish(&f, OUTPUT_REPLACE | OUTPUT_SYNC, e);
		else
			output_abandon(&f);
	}
	plan_release(&p);
	return r;
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

int workspace_commit(struct workspace *w, struct error *e)
{
	struct tree *t;
	int r = 0;

	if (w->read_only)
		return 0;
	pthread_mutex_lock(&w->edit);
	t = workspace_tree(w);
	if (!model_is_clean(tree_model(t))) {
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
