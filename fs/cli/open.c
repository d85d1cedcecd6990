/* SPDX-License-Identifier: MIT */
/* What the subcommands share: a model and its tree, paths with links, sorted listings. */
#include "fs/cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* as many as Linux follows */
#define LINKS_MAX 40

int cli_open(struct cli_model *m, const char *path, const struct cli_options *o, struct error *e)
{
	struct tree_options options = o->tree;
	int r;

	*m = (struct cli_model){0};
	m->verdicts = calloc(format_count ? format_count : 1, sizeof(*m->verdicts));
	if (!m->verdicts)
		return error_set(e, ENOMEM, "out of memory");
	r = model_open_path(path, o->format, o->step, m->verdicts, &m->st,
		&m->model, e);
	if (r < 0) {
		error_set(e, -r, "%s", strerror(-r));
		if (e && !strstr(e->text, path))
			error_prefix(e, path);
		cli_close(m);
		return r;
	}
	options.verdicts = m->verdicts;
	m->tree = tree_new(m->model, &options, e);
	if (!m->tree) {
		cli_close(m);
		return e && e->code ? -e->code : -ENOMEM;
	}
	return 0;
}

void cli_close(struct cli_model *m)
{
	tree_unref(m->tree);
	model_unref(m->model);
	free(m->verdicts);
	*m = (struct cli_model){0};
}

/* The rest of the way through a link: its target, then what follows. Frees `path`, which holds `behind`. */
static char *splice(const struct tree *t, uint64_t link, char *path, const char *behind)
{
	char *target = NULL, *spliced = NULL;

	if (tree_readlink(t, link, &target) == 0 &&
		asprintf(&spliced, "%s%s%s", target, *behind ? "/" : "", behind) < 0)
		spliced = NULL;
	free(target);
	free(path);
	return spliced;
}

static int step_into(const struct tree *t, struct str part, struct entry *at)
{
	if (at->kind != ENTRY_DIR)
		return -ENOTDIR;
	if (str_is(part, ".."))
		return tree_stat(t, tree_parent(t, at->inode), at);
	if (!part.len || str_is(part, "."))
		return 0;
	return tree_lookup(t, at->inode, part, at);
}

static int walk(const struct tree *t, char **path, bool follow, struct entry *at)
{
	char *p = *path;
	int links = 0, r = tree_stat(t, TREE_ROOT, at);

	while (!r && *p) {
		struct entry dir = *at;
		size_t n = strcspn(p, "/");

		r = step_into(t, (struct str){p, n}, at);
		p += n;
		while (*p == '/')
			p++;
		if (r || at->kind != ENTRY_LINK || (!*p && !follow))
			continue;
		if (++links > LINKS_MAX)
			return -ELOOP;
		p = *path = splice(t, at->inode, *path, p);
		if (!p)
			return -ENOMEM;
		*at = dir;
	}
	return r;
}

int cli_resolve(const struct tree *t, const char *path, bool follow, struct entry *out,
	struct error *e)
{
	char *copy = strdup(path + strspn(path, "/"));
	int r = copy ? walk(t, &copy, follow, out) : -ENOMEM;

	free(copy);
	if (r < 0)
		return error_set(e, -r, "'%s': %s", path,
			r == -ENOENT ? "no such file in the model" : strerror(-r));
	return 0;
}

/* ---- directories ---- */

static int collect(void *arg, struct str name, const struct entry *entry, uint64_t next)
{
	struct cli_list *l = arg;
	char *copy = strndup(name.ptr, name.len);

	(void)next;
	if (l->count == l->cap && copy) {
		size_t cap = l->cap ? l->cap * 2 : 32;
		void *p = reallocarray(l->items, cap, sizeof(*l->items));

		if (p) {
			l->items = p;
			l->cap = cap;
		}
	}
	if (!copy || l->count == l->cap) {
		free(copy);
		l->failed = true;
		return 1;
	}
	l->items[l->count++] = (struct cli_item){copy, *entry};
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct cli_item *)a)->name, ((const struct cli_item *)b)->name);
}

int cli_list(const struct tree *t, uint64_t dir, bool with_size, struct cli_list *out,
	struct error *e)
{
	int r;

	*out = (struct cli_list){0};
	r = tree_list(t, dir, 0, with_size, collect, out);
	if (!r && out->failed)
		r = -ENOMEM;
	if (r < 0) {
		cli_list_release(out);
		return error_set(e, -r, "listing failed: %s", strerror(-r));
	}
	if (out->count)
		qsort(out->items, out->count, sizeof(*out->items), by_name);
	return 0;
}

void cli_list_release(struct cli_list *l)
{
	for (size_t i = 0; i < l->count; i++)
		free(l->items[i].name);
	free(l->items);
	*l = (struct cli_list){0};
}
