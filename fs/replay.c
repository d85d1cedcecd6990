/* SPDX-License-Identifier: MIT */
/* The edits that an earlier mount left in the journal: done again on request, dropped on request, else a reason not to
 * mount. Those of another version of the model are never done. */
#include "fs/workspace_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* A tree that later records refer to: what a file showed after so many edits. */
struct past {
	uint64_t revision, uses;
	struct tree *tree;
};

struct replay {
	struct workspace *w;
	struct past *pasts;
	size_t past_count;
	uint64_t done;
	struct journal_identity saved; /* of the last RECORD_SAVED, when it is the last record */
	bool ends_saved;
};

/* ---- the past ---- */

static struct past *find_past(struct replay *p, uint64_t revision)
{
	for (size_t i = 0; i < p->past_count; i++)
		if (p->pasts[i].revision == revision)
			return &p->pasts[i];
	return NULL;
}

/* First pass: which trees must be kept for a while, and how it ends. */
static int survey(void *arg, struct str bytes, struct error *e)
{
	struct replay *p = arg;
	struct record_view v;
	struct past *past, *grown;
	int r = record_read(&v, bytes, e);

	p->ends_saved = !r && v.kind == RECORD_SAVED && v.identity.len == sizeof(p->saved);
	if (p->ends_saved)
		memcpy(&p->saved, v.identity.ptr, sizeof(p->saved));
	if (!r && v.has_revision) {
		past = find_past(p, v.revision);
		grown = past ? NULL : reallocarray(p->pasts, p->past_count + 1, sizeof(*grown));
		if (grown) {
			p->pasts = grown;
			past = &grown[p->past_count++];
			*past = (struct past){.revision = v.revision};
		}
		if (past)
			past->uses++;
		else
			r = error_set(e, ENOMEM, "out of memory for the journal");
	}
	record_view_release(&v);
	return r;
}

static void keep_past(struct replay *p)
{
	struct past *past = find_past(p, p->w->revision);

	if (past && !past->tree)
		past->tree = workspace_tree(p->w);
}

static void release_tree(void *t)
{
	tree_unref(t);
}

/* What the file at path showed then. */
static struct extmap *render_past(struct replay *p, const struct record_view *v, struct error *e)
{
	struct past *past = find_past(p, v->revision);
	struct extmap *m = extmap_new();
	char *path = strndup(v->origin.ptr, v->origin.len);
	struct entry x;
	int r = 0;

	if (!m || !path)
		r = error_set(e, ENOMEM, "out of memory for the journal");
	else if (!past || !past->tree || tree_resolve(past->tree, path, &x) < 0)
		r = error_set(e, EIO, "the journal builds on '%s', which is not there", path);
	if (!r)
		r = extmap_keep(m, release_tree, tree_ref(past->tree));
	if (!r)
		r = tree_open(past->tree, x.inode, m, e);
	if (past && past->uses && --past->uses == 0) {
		tree_unref(past->tree);
		past->tree = NULL;
	}
	free(path);
	if (r < 0) {
		extmap_unref(m);
		return NULL;
	}
	return m;
}

/* ---- content ---- */

struct parts {
	struct source **sources;
	struct draft_content c; /* references on their files */
};

static void parts_release(struct parts *x)
{
	for (size_t i = 0; x->sources && i < x->c.file_count; i++)
		source_unref(x->sources[i]);
	free(x->sources);
	draft_content_release(&x->c);
}

static int open_part(struct workspace *w, struct str name, struct parts *x, struct error *e)
{
	struct staging *s = staging_named(w, name);
	struct source *src = NULL;
	int fd, r;

	if (!s)
		return error_set(e, ENOMEM, "out of memory for the journal");
	r = journal_staged(w->journal, staging_name(s), &fd, e);
	if (!r)
		r = source_from_fd(fd, "staged", &src, e);
	if (r < 0) {
		staging_unref(s);
		return r;
	}
	x->sources[x->c.file_count] = src;
	x->c.files[x->c.file_count++] = s;
	return 0;
}

static int open_parts(struct workspace *w, const struct record_view *v, struct parts *x, struct error *e)
{
	int r = 0;

	x->sources = calloc(v->part_count + 1, sizeof(struct source *));
	x->c.files = calloc(v->part_count + 1, sizeof(struct staging *));
	if (!x->sources || !x->c.files)
		return error_set(e, ENOMEM, "out of memory for the journal");
	for (size_t i = 0; r == 0 && i < v->part_count; i++)
		r = open_part(w, v->parts[i], x, e);
	return r;
}

static int append_range(struct extmap *m, const struct parts *x, struct extmap *origin, uint64_t begin,
	const struct record_range *range, struct error *e)
{
	uint64_t size = range->end - begin;
	struct extent piece = extent_zero(size);

	if (range->end <= begin)
		return error_set(e, EIO, "the journal's ranges are out of order");
	if (range->part == RECORD_FROM_ORIGIN) {
		if (!origin || range->end > origin->size)
			return error_set(e, EIO, "the journal shows more of a file than there is");
		piece = extent_slice(extent_map(origin), begin, size);
	} else if (range->part != RECORD_ZERO) {
		if (range->part >= x->c.file_count || range->end > source_size(x->sources[range->part]))
			return error_set(e, EIO, "a staged file of the journal is too short");
		piece = extent_source(x->sources[range->part], begin, size);
	}
	return extmap_append(m, &piece);
}

static int build_content(const struct record_view *v, const struct parts *x, struct extmap *origin,
	struct extmap *m, struct error *e)
{
	uint64_t begin = 0;
	int r = 0;

	if (v->ranges.len % sizeof(struct record_range))
		return error_set(e, EIO, "damaged ranges in the journal");
	for (size_t at = 0; r == 0 && at < v->ranges.len; at += sizeof(struct record_range)) {
		struct record_range range;

		memcpy(&range, v->ranges.ptr + at, sizeof(range));
		r = append_range(m, x, origin, begin, &range, e);
		begin = range.end;
	}
	return r < 0 ? r : extmap_failed(m, e);
}

/* ---- records ---- */

static const struct view *view_by_name(struct str name)
{
	for (size_t i = 0; i < view_count; i++)
		if (str_is(name, views[i]->name))
			return views[i];
	return NULL;
}

static int find_file(struct workspace *w, struct str path, const struct view **view, struct subject *s,
	struct error *e)
{
	char *text = strndup(path.ptr ? path.ptr : "", path.len);
	struct tree *t = workspace_tree(w);
	struct entry x;
	int r = !text ? error_set(e, ENOMEM, "out of memory for the journal")
		: tree_resolve(t, text, &x) < 0 || !tree_file(t, x.inode, view, s)
			? error_set(e, EIO, "the journal names '%s', which is not there", text)
			: 0;

	free(text);
	tree_unref(t);
	return r;
}

static int redo_write(struct replay *p, const struct record_view *v, struct error *e)
{
	struct workspace *w = p->w;
	struct subject s = {SUBJECT_TENSOR, MODEL_NONE};
	const struct view *view = view_by_name(v->view);
	struct extmap *m = extmap_new(), *origin = NULL;
	struct parts x = {0};
	int r = m ? 0 : error_set(e, ENOMEM, "out of memory for the journal");

	if (r == 0 && !v->name.ptr)
		r = find_file(w, v->path, &view, &s, e);
	if (r == 0 && (!view || !view->accept))
		r = error_set(e, EIO, "the journal writes what cannot be written");
	if (r == 0)
		r = open_parts(w, v, &x, e);
	if (r == 0 && v->origin.ptr)
		r = (origin = render_past(p, v, e)) ? 0 : -EIO;
	if (r == 0)
		r = build_content(v, &x, origin, m, e);
	if (r == 0)
		r = edits_accept(w, view, s, v->name, m, NULL, &x.c, e);
	extmap_unref(origin);
	extmap_unref(m);
	parts_release(&x);
	return r;
}

static int redo_name(struct replay *p, const struct record_view *v, struct error *e)
{
	struct edit x = {.kind = v->kind == RECORD_RENAME ? EDIT_RENAME : EDIT_REMOVE, .name = v->name};
	const struct view *view;
	struct subject s;
	struct tree *t;
	int r = find_file(p->w, v->path, &view, &s, e);

	if (r == 0 && s.kind != SUBJECT_TENSOR)
		r = error_set(e, EIO, "the journal renames what is no tensor");
	if (r < 0)
		return r;
	t = workspace_tree(p->w);
	x.id = tree_model(t)->tensors[s.index].id;
	tree_unref(t);
	return edits_apply(p->w, &x, NULL, NULL, e);
}

static int redo(void *arg, struct str bytes, struct error *e)
{
	struct replay *p = arg;
	struct record_view v;
	char prefix[48];
	int r = record_read(&v, bytes, e);

	if (r == 0)
		keep_past(p);
	if (r == 0 && v.kind == RECORD_WRITE)
		r = redo_write(p, &v, e);
	else if (r == 0 && v.kind != RECORD_SAVED)
		r = redo_name(p, &v, e);
	p->done++;
	if (r < 0) {
		error_set(e, -r, "%s", strerror(-r));
		snprintf(prefix, sizeof(prefix), "edit %llu in the journal", (unsigned long long)p->done);
		error_prefix(e, prefix);
	}
	record_view_release(&v);
	return r;
}

/* ---- what is to be done ---- */

static bool is_recorded(void *arg, const char *name)
{
	const struct workspace *w = arg;

	for (size_t i = 0; i < w->recorded_count; i++)
		if (strcmp(staging_name(w->recorded[i]), name) == 0)
			return true;
	return false;
}

static int drop(struct workspace *w, struct error *e)
{
	int r = journal_reset(w->journal, &w->identity, e);

	if (r == 0)
		journal_sweep(w->journal, is_recorded, w);
	return r;
}

static int recover(struct workspace *w, struct replay *p, struct error *e)
{
	int r;

	w->keep_staging = true; /* whatever fails now leaves the journal as it is */
	r = journal_replay(w->journal, redo, p, e);
	w->keep_staging = r < 0;
	if (r == 0)
		journal_sweep(w->journal, is_recorded, w);
	return r;
}

int replay_journal(struct workspace *w, struct error *e)
{
	unsigned long long count = journal_count(w->journal);
	struct replay p = {.w = w};
	int r = 0;

	if (count == 0 || w->o.discard)
		return drop(w, e);
	r = journal_replay(w->journal, survey, &p, e);
	if (r < 0)
		goto out;
	if (!journal_matches(w->journal)) {
		/* saving was all but done when it was cut off: the model is the new one already */
		if (p.ends_saved && memcmp(&p.saved, &w->identity, sizeof(p.saved)) == 0)
			r = drop(w, e);
		else
			r = error_set(e, EBUSY, "an earlier mount left %llu unsaved edits of another version "
				"of this model: they cannot be taken up, -o discard drops them", count);
	} else if (w->o.recover) {
		r = recover(w, &p, e);
	} else {
		r = error_set(e, EBUSY, "an earlier mount left %llu unsaved edits: -o recover takes them up, "
			"-o discard drops them", count);
	}
out:
	for (size_t i = 0; i < p.past_count; i++)
		tree_unref(p.pasts[i].tree);
	free(p.pasts);
	return r;
}
