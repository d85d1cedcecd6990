/* SPDX-License-Identifier: MIT */
/* Construction of a tree: fixed places from the table of views, name spaces, options. */
#include "views/tree_private.h"

#include "parsers/core/limits.h"

#include <errno.h>
#include <stdlib.h>

/* ---- numbers of directories ---- */

bool dir_numbers_init(struct dir_numbers *d, uint32_t count)
{
	d->mask = 15;
	while (d->mask < count * 2)
		d->mask = d->mask * 2 + 1;
	d->count = count;
	d->number = calloc(count ? count : 1, sizeof(*d->number));
	d->slots = calloc((size_t)d->mask + 1, sizeof(*d->slots));
	return d->number && d->slots;
}

void dir_numbers_release(struct dir_numbers *d)
{
	free(d->number);
	free(d->slots);
}

void dir_numbers_set(struct dir_numbers *d, uint32_t dir, uint32_t wanted)
{
	uint32_t i;

	/* the slot is found from the number itself, so equal numbers meet and the later moves on */
	for (;; wanted++) {
		bool taken = false;

		for (i = wanted & d->mask; d->slots[i]; i = (i + 1) & d->mask)
			taken |= d->number[d->slots[i] - 1] == wanted;
		if (!taken)
			break;
	}
	d->number[dir] = wanted;
	d->slots[i] = dir + 1;
}

uint32_t dir_numbers_find(const struct dir_numbers *d, uint32_t number)
{
	for (uint32_t i = number & d->mask; d->slots[i]; i = (i + 1) & d->mask)
		if (d->number[d->slots[i] - 1] == number)
			return d->slots[i] - 1;
	return UINT32_MAX;
}

/* ---- name spaces ---- */

struct name_space *name_space_new(const struct str *names, uint32_t count, const char *const *suffixes)
{
	struct name_space *s = calloc(1, sizeof(*s));
	uint32_t dirs;

	if (!s)
		return NULL;
	s->refs = 1;
	s->names = nametree_new(names, count, suffixes);
	dirs = s->names ? nametree_dir_count(s->names) : 0;
	if (!s->names || !dir_numbers_init(&s->dirs, dirs)) {
		name_space_unref(s);
		return NULL;
	}
	for (uint32_t d = 0; d < dirs; d++) {
		uint32_t up = d ? s->dirs.number[nametree_parent(s->names, d)] : 0;

		dir_numbers_set(&s->dirs, d,
			(uint32_t)(str_hash(nametree_dir_name(s->names, d)) ^ (up * 0x9e3779b97f4a7c15ull >> 20)));
	}
	return s;
}

struct name_space *name_space_ref(struct name_space *s)
{
	__atomic_add_fetch(&s->refs, 1, __ATOMIC_RELAXED);
	return s;
}

void name_space_unref(struct name_space *s)
{
	if (!s || __atomic_sub_fetch(&s->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	nametree_free(s->names);
	dir_numbers_release(&s->dirs);
	free(s);
}

/* ---- fixed places ---- */

static struct static_entry *add_static(struct tree *t)
{
	if (t->static_count == t->static_cap) {
		uint32_t cap = t->static_cap ? t->static_cap * 2 : 64;
		void *p = reallocarray(t->statics, cap, sizeof(*t->statics));

		if (!p)
			return NULL;
		t->statics = p;
		t->static_cap = cap;
	}
	memset(&t->statics[t->static_count], 0, sizeof(*t->statics));
	return &t->statics[t->static_count++];
}

static uint32_t find_static(const struct tree *t, uint32_t parent, struct str name)
{
	for (uint32_t i = 1; i < t->static_count; i++)
		if (t->statics[i].parent == parent && str_eq(t->statics[i].name, name))
			return i;
	return 0;
}

/* The directory for all but the last component of a view's path. 0 with *failed set when memory is out. */
static uint32_t make_parents(struct tree *t, struct str *path, bool *failed)
{
	uint32_t parent = 0;
	const char *slash;

	while ((slash = memchr(path->ptr, '/', path->len)) != NULL) {
		struct str part = {path->ptr, (size_t)(slash - path->ptr)};
		uint32_t dir = find_static(t, parent, part);

		if (!dir) {
			struct static_entry *s = add_static(t);

			if (!s) {
				*failed = true;
				return 0;
			}
			*s = (struct static_entry){.name = part, .parent = parent,
				.kind = str_is(part, "graph") && !parent ? STATIC_GRAPH : STATIC_DIR};
			dir = t->static_count - 1;
		}
		parent = dir;
		*path = (struct str){slash + 1, path->len - part.len - 1};
	}
	return parent;
}

/* One file for each format that exists says yes to: "model" and the format's first extension. */
static bool place_formats(struct tree *t, uint32_t v)
{
	for (uint32_t i = 0; i < format_count; i++) {
		struct str path;
		bool failed = false;
		uint32_t parent;
		struct static_entry *s;

		if (!tree_view_exists(t, v, SUBJECT_FORMAT, i))
			continue;
		path = arena_printf(t->arena, "%s/model%s", views[v]->path,
			formats[i]->extensions && formats[i]->extensions[0] ? formats[i]->extensions[0] : "");
		parent = path.ptr ? make_parents(t, &path, &failed) : 0;
		s = path.ptr && !failed ? add_static(t) : NULL;
		if (!s)
			return false;
		*s = (struct static_entry){.name = path, .parent = parent, .kind = STATIC_VIEW, .view = v,
			.index = i, .present = true};
	}
	return true;
}

/* A file for each large array of metadata. */
static bool place_values(struct tree *t, uint32_t v)
{
	for (uint32_t i = 0; i < t->large.count; i++) {
		struct str path = t->large.items[i].path;
		bool failed = false;
		uint32_t parent = make_parents(t, &path, &failed);
		struct static_entry *s = failed ? NULL : add_static(t);

		if (!s)
			return false;
		*s = (struct static_entry){.name = path, .parent = parent, .kind = STATIC_VIEW, .view = v, .index = i,
			.present = true};
	}
	return true;
}

static bool place_view(struct tree *t, uint32_t v)
{
	const struct view *view = views[v];
	struct str name = str_from(view->path);
	bool failed = false;
	struct static_entry *s;
	uint32_t parent;

	if (view->subject == SUBJECT_OP || view->subject == SUBJECT_GRAPH) {
		struct str inside = STR("graph/");

		make_parents(t, &inside, &failed);
		return !failed;
	}
	if (view->subject == SUBJECT_VALUE)
		return place_values(t, v);
	if (view->subject == SUBJECT_FORMAT)
		return place_formats(t, v);
	parent = make_parents(t, &name, &failed);
	s = failed ? NULL : add_static(t);
	if (!s)
		return false;
	s->name = name;
	s->parent = parent;
	s->view = v;
	s->kind = view->subject == SUBJECT_MODEL    ? STATIC_VIEW
		  : view->subject == SUBJECT_TENSOR ? STATIC_TENSORS
						    : STATIC_FILES;
	s->present = view->subject != SUBJECT_FILE || t->model->file_count > 0;
	if (view->subject == SUBJECT_MODEL)
		s->present = tree_view_exists(t, v, SUBJECT_MODEL, 0);
	return true;
}

/* Directories are there when something in them is, or a graph is. */
static void mark_present(struct tree *t)
{
	t->statics[0].present = t->statics[0].listed = true;
	for (uint32_t i = t->static_count - 1; i > 0; i--) {
		if (t->statics[i].kind == STATIC_GRAPH)
			t->statics[i].present = t->model->graph_count > 0;
		if (t->statics[i].kind == STATIC_GRAPH || !t->statics[i].present)
			continue;
		for (uint32_t p = t->statics[i].parent; p; p = t->statics[p].parent)
			if (t->statics[p].kind == STATIC_DIR)
				t->statics[p].present = true;
	}
}

/* "tensors" or "metadata" for metadata.json */
static bool is_called(struct str place, struct str word)
{
	return str_eq(place, word) ||
	       (str_starts(place, word) && place.len > word.len && place.ptr[word.len] == '.');
}

static int choose_listed(struct tree *t, const char *list, struct error *e)
{
	for (uint32_t i = 1; i < t->static_count; i++)
		t->statics[i].listed = !list || t->statics[i].parent;
	for (uint32_t i = 1; i < t->static_count; i++)
		if (!t->statics[i].parent && t->statics[i].name.ptr[0] == '.')
			t->statics[i].listed = false;
	while (list && *list) {
		struct str word = {list, strcspn(list, ",:+")};
		bool known = word.len == 0;

		for (uint32_t i = 1; i < t->static_count; i++) {
			struct static_entry *s = &t->statics[i];

			if (s->parent || !is_called(s->name, word) || !word.len)
				continue;
			s->listed = true;
			known = true;
		}
		if (!known && !str_is(word, "graph") && !str_is(word, "files"))
			return error_set(e, EINVAL, "views=: there is no view '%.*s'", STR_ARG(word));
		list += word.len + (list[word.len] != '\0');
	}
	return 0;
}

/* ---- the tree ---- */

static struct name_space *tensor_names(const struct model *m)
{
	const char *suffixes[16];
	size_t n = 0;
	struct str *names = calloc(m->tensor_count ? m->tensor_count : 1, sizeof(*names));
	struct name_space *s;

	if (!names)
		return NULL;
	suffixes[n++] = "";
	for (size_t v = 0; v < view_count && n < 15; v++)
		if (views[v]->subject == SUBJECT_TENSOR && views[v]->suffix && views[v]->suffix[0])
			suffixes[n++] = views[v]->suffix;
	suffixes[n] = NULL;
	for (uint32_t i = 0; i < m->tensor_count; i++)
		names[i] = m->tensors[i].name;
	s = name_space_new(names, m->tensor_count, suffixes);
	free(names);
	return s;
}

static struct name_space *file_names(const struct model *m)
{
	static const char *const suffixes[] = {"", NULL};
	struct str *names = calloc(m->file_count ? m->file_count : 1, sizeof(*names));
	struct name_space *s;

	if (!names)
		return NULL;
	for (uint32_t i = 0; i < m->file_count; i++)
		names[i] = m->files[i].path;
	s = name_space_new(names, m->file_count, suffixes);
	free(names);
	return s;
}

static bool same_names(const struct model *a, const struct model *b)
{
	if (a->tensor_count != b->tensor_count)
		return false;
	for (uint32_t i = 0; i < a->tensor_count; i++)
		if (!str_eq(a->tensors[i].name, b->tensors[i].name))
			return false;
	return true;
}

static bool fill_names(struct tree *t, const struct tree *previous)
{
	struct model *m = t->model;
	bool related = previous && (previous->model == m->base || previous->model->base == m->base);

	t->tensors = related && same_names(m, previous->model) ? name_space_ref(previous->tensors)
							       : tensor_names(m);
	t->files = related ? name_space_ref(previous->files) : file_names(m);
	if (m->graph_count)
		t->graphs = related && previous->graphs && previous->graphs->ops == m->ops
				    ? graph_tree_ref(previous->graphs)
				    : graph_tree_new(m);
	return t->tensors && t->files && (!m->graph_count || t->graphs);
}

struct tree *tree_new(struct model *m, const struct tree_options *options, struct error *e)
{
	static const struct tree_options none;
	struct tree *t = calloc(1, sizeof(*t));
	bool ok;

	if (!options)
		options = &none;
	if (!t) {
		error_set(e, ENOMEM, "out of memory");
		return NULL;
	}
	t->refs = 1;
	t->model = model_ref(m);
	t->context = (struct view_context){m, t, options->view, options->verdicts, options->status,
		options->status_arg};
	t->arena = arena_new(LIMIT_MODEL_MEMORY);
	ok = t->arena && add_static(t) && fill_names(t, options->previous) && sharing_init(&t->sharing, m) == 0 &&
	     large_find(t->arena, &m->meta, &t->large) == 0;
	for (uint32_t v = 0; ok && v < view_count; v++)
		ok = place_view(t, v);
	if (!ok) {
		error_set(e, ENOMEM, "out of memory for the tree");
		tree_unref(t);
		return NULL;
	}
	mark_present(t);
	if (choose_listed(t, options->views, e) < 0) {
		tree_unref(t);
		return NULL;
	}
	return t;
}

struct tree *tree_ref(struct tree *t)
{
	__atomic_add_fetch(&t->refs, 1, __ATOMIC_RELAXED);
	return t;
}

void tree_unref(struct tree *t)
{
	if (!t || __atomic_sub_fetch(&t->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	name_space_unref(t->tensors);
	name_space_unref(t->files);
	graph_tree_unref(t->graphs);
	free(t->statics);
	sharing_release(&t->sharing);
	arena_free(t->arena);
	model_unref(t->model);
	free(t);
}
