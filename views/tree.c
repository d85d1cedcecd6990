/* SPDX-License-Identifier: MIT */
/* Lookup, listing and content: from inode numbers to what they stand for. Construction is in tree_build.c, ops and
 * links are in tree_graph.c. */
#include "views/tree_private.h"

#include "parsers/codec/sha256.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct model *tree_model(const struct tree *t)
{
	return t->model;
}

const struct view_context *tree_context(const struct tree *t)
{
	return &t->context;
}

bool tree_view_exists(const struct tree *t, uint32_t view, enum subject_kind kind, uint32_t index)
{
	const struct subject s = {kind, index};

	return views[view]->subject == kind &&
	       (!views[view]->exists || views[view]->exists(&t->context, &s));
}

const struct large_list *tree_large(const struct tree *t)
{
	return &t->large;
}

struct sharing tree_sharing(const struct tree *t, uint32_t index)
{
	return sharing_of(&t->sharing, t->model, index);
}

/* ---- which subject ---- */

static struct name_space *space_of(const struct tree *t, enum static_kind kind)
{
	return kind == STATIC_TENSORS ? t->tensors : t->files;
}

/* Static entry that is the root of a view's directories. */
static uint32_t static_of_view(const struct tree *t, uint32_t view)
{
	for (uint32_t i = 1; i < t->static_count; i++)
		if (t->statics[i].kind != STATIC_DIR && t->statics[i].kind != STATIC_GRAPH &&
			t->statics[i].view == view)
			return i;
	return 0;
}

bool tree_file(const struct tree *t, uint64_t inode, const struct view **view, struct subject *s)
{
	struct inode n = inode_unpack(inode);
	uint32_t v;

	switch (n.class) {
	case CLASS_STATIC:
		if (n.sub == 0 || n.sub > t->static_count || t->statics[n.sub - 1].kind != STATIC_VIEW)
			return false;
		v = t->statics[n.sub - 1].view;
		*s = (struct subject){views[v]->subject, t->statics[n.sub - 1].index};
		break;
	case CLASS_TENSOR:
		v = n.sub;
		*s = (struct subject){SUBJECT_TENSOR, model_tensor_by_id(t->model, n.subject)};
		if (s->index == MODEL_NONE)
			return false;
		break;
	case CLASS_FILE:
		v = n.sub;
		*s = (struct subject){SUBJECT_FILE, n.subject};
		if (n.subject >= t->model->file_count)
			return false;
		break;
	case CLASS_GRAPH:
		v = n.sub - GRAPH_FILES;
		*s = (struct subject){SUBJECT_GRAPH, n.subject};
		if (n.sub < GRAPH_FILES || n.subject >= t->model->graph_count)
			return false;
		break;
	case CLASS_OP:
		v = n.sub - OP_FILES;
		*s = (struct subject){SUBJECT_OP, n.subject};
		if (n.sub < OP_FILES || n.subject >= t->model->op_count)
			return false;
		break;
	default:
		return false;
	}
	if (v >= view_count || views[v]->subject != s->kind)
		return false;
	*view = views[v];
	return true;
}

/* ---- entries ---- */

static bool format_accepts(const struct model *m, const struct view *view)
{
	unsigned can = m->format ? m->format->can : 0;

	if (!view->accept)
		return false;
	switch (view->subject) {
	case SUBJECT_TENSOR:
		return can & CAN_VALUES;
	case SUBJECT_FILE:
		return can & CAN_FILES;
	default:
		return can & CAN_METADATA;
	}
}

static int view_size(const struct tree *t, const struct view *view, const struct subject *s, uint64_t *size)
{
	struct extmap map = {0};
	int r;

	if (view->size)
		return view->size(&t->context, s, size);
	r = view->render(&t->context, s, &map, NULL);
	if (r == 0)
		r = extmap_failed(&map, NULL);
	*size = map.size;
	extmap_release(&map);
	return r;
}

static uint32_t subdirs_of(const struct tree *t, const struct inode *n, uint64_t inode);

static int fill_file(const struct tree *t, uint64_t inode, bool with_size, struct entry *out)
{
	const struct view *view;
	struct subject s;

	if (!tree_file(t, inode, &view, &s))
		return -ENOENT;
	*out = (struct entry){.inode = inode, .kind = ENTRY_FILE, .links = 1, .listed = true};
	out->writable = format_accepts(t->model, view);
	if (s.kind == SUBJECT_FILE)
		out->writable = out->writable && (t->model->files[s.index].flags & MEMBER_WRITABLE);
	return with_size ? view_size(t, view, &s, &out->size) : 0;
}

static int fill_link(const struct tree *t, const struct inode *n, uint64_t inode, bool with_size,
	struct entry *out)
{
	*out = (struct entry){.inode = inode, .kind = ENTRY_LINK, .links = 1, .listed = true};
	if (with_size) {
		char *target = graph_link_target(t, n);

		if (!target)
			return -ENOMEM;
		out->size = strlen(target);
		free(target);
	}
	return 0;
}

/*
 * Beside what -o views= leaves out: .wiamodel, and an op's links. diff -r and their like follow links, and those of
 * a graph lead round in circles, by as many ways as there are paths in it.
 */
static bool is_listed(const struct tree *t, const struct inode *n)
{
	if (n->class == CLASS_STATIC)
		return t->statics[n->sub - 1].listed;
	return n->class != CLASS_OP || (n->sub != OP_INPUTS && n->sub != OP_OUTPUTS);
}

static int fill_dir(const struct tree *t, const struct inode *n, uint64_t inode, bool with_size,
	struct entry *out)
{
	*out = (struct entry){.inode = inode, .kind = ENTRY_DIR, .links = 2, .listed = is_listed(t, n)};
	if (with_size)
		out->links = 2 + subdirs_of(t, n, inode);
	return 0;
}

static bool is_dir_inode(const struct tree *t, const struct inode *n)
{
	switch (n->class) {
	case CLASS_STATIC:
		return n->sub >= 1 && n->sub <= t->static_count &&
		       t->statics[n->sub - 1].kind != STATIC_VIEW && t->statics[n->sub - 1].present;
	case CLASS_TENSOR_DIR:
		return n->sub < view_count && dir_numbers_find(&t->tensors->dirs, n->subject) != UINT32_MAX;
	case CLASS_FILE_DIR:
		return n->sub < view_count && dir_numbers_find(&t->files->dirs, n->subject) != UINT32_MAX;
	case CLASS_GRAPH:
		return n->sub < GRAPH_FILES && graph_inode_valid(t, n);
	case CLASS_OP:
		return n->sub < OP_FILES && graph_inode_valid(t, n);
	case CLASS_OP_DIR:
		return graph_inode_valid(t, n);
	default:
		return false;
	}
}

int tree_fill_entry(const struct tree *t, uint64_t inode, bool with_size, struct entry *out)
{
	struct inode n = inode_unpack(inode);

	if (is_dir_inode(t, &n))
		return fill_dir(t, &n, inode, with_size, out);
	if (n.class == CLASS_INPUT_LINK || n.class == CLASS_OUTPUT_LINK)
		return graph_inode_valid(t, &n) ? fill_link(t, &n, inode, with_size, out) : -ENOENT;
	return fill_file(t, inode, with_size, out);
}

int tree_stat(const struct tree *t, uint64_t inode, struct entry *out)
{
	return tree_fill_entry(t, inode, true, out);
}

/* ---- directories of names ---- */

/* The number of a directory of names, and which view shows it. */
static bool space_dir(const struct tree *t, const struct inode *n, struct name_space **space, uint32_t *dir,
	uint32_t *view)
{
	if (n->class == CLASS_STATIC) {
		const struct static_entry *s = &t->statics[n->sub - 1];

		if (s->kind != STATIC_TENSORS && s->kind != STATIC_FILES)
			return false;
		*space = space_of(t, s->kind);
		*dir = 0;
		*view = s->view;
		return true;
	}
	if (n->class != CLASS_TENSOR_DIR && n->class != CLASS_FILE_DIR)
		return false;
	*space = n->class == CLASS_TENSOR_DIR ? t->tensors : t->files;
	*dir = dir_numbers_find(&(*space)->dirs, n->subject);
	*view = n->sub;
	return *dir != UINT32_MAX;
}

static uint64_t space_dir_inode(const struct tree *t, const struct name_space *space, uint32_t dir,
	uint32_t view)
{
	if (dir == 0)
		return 1 + static_of_view(t, view);
	return inode_pack(space == t->tensors ? CLASS_TENSOR_DIR : CLASS_FILE_DIR, space->dirs.number[dir],
		view);
}

static uint64_t space_leaf_inode(const struct tree *t, const struct name_space *space, uint32_t leaf,
	uint32_t view)
{
	if (space == t->tensors)
		return inode_pack(CLASS_TENSOR, t->model->tensors[leaf].id, view);
	return inode_pack(CLASS_FILE, leaf, view);
}

static const char *suffix_of(uint32_t view)
{
	return views[view]->suffix ? views[view]->suffix : "";
}

static bool space_child(const struct tree *t, const struct inode *n, uint64_t k, char *buf,
	struct str *name, uint64_t *inode)
{
	struct name_space *space;
	uint32_t dir, view;
	struct name_entry c;
	size_t suffix;

	if (!space_dir(t, n, &space, &dir, &view) || k >= nametree_child_count(space->names, dir))
		return false;
	c = nametree_child(space->names, dir, (uint32_t)k);
	if (c.is_dir) {
		*name = c.name;
		*inode = space_dir_inode(t, space, c.index, view);
		return true;
	}
	if (!tree_view_exists(t, view, views[view]->subject, c.index))
		return false;
	suffix = strlen(suffix_of(view));
	if (c.name.len + suffix > TREE_NAME_MAX)
		return false; /* names.h keeps components far below */
	memcpy(buf, c.name.ptr, c.name.len);
	memcpy(buf + c.name.len, suffix_of(view), suffix);
	*name = (struct str){buf, c.name.len + suffix};
	*inode = space_leaf_inode(t, space, c.index, view);
	return true;
}

static int space_lookup(const struct tree *t, const struct inode *n, struct str name, uint64_t *inode)
{
	struct name_space *space;
	uint32_t dir, view;
	struct name_entry c;
	struct str suffix;

	if (!space_dir(t, n, &space, &dir, &view))
		return -ENOTDIR;
	if (nametree_find(space->names, dir, name, true, &c)) {
		*inode = space_dir_inode(t, space, c.index, view);
		return 0;
	}
	suffix = str_from(suffix_of(view));
	if (!str_ends(name, suffix))
		return -ENOENT;
	name.len -= suffix.len;
	if (!nametree_find(space->names, dir, name, false, &c) ||
		!tree_view_exists(t, view, views[view]->subject, c.index))
		return -ENOENT;
	*inode = space_leaf_inode(t, space, c.index, view);
	return 0;
}

/* ---- directories in general ---- */

static bool static_child(const struct tree *t, uint32_t parent, uint64_t k, struct str *name, uint64_t *inode)
{
	const struct static_entry *s;

	if (k + 1 >= t->static_count)
		return false;
	s = &t->statics[k + 1];
	if (s->parent != parent || !s->present)
		return false;
	*name = s->name;
	*inode = k + 2;
	return true;
}

static bool is_graph_class(const struct inode *n)
{
	return n->class == CLASS_GRAPH || n->class == CLASS_OP || n->class == CLASS_OP_DIR;
}

/* Positions a directory has; some may be empty (child_at gives false). */
static uint64_t child_count(const struct tree *t, const struct inode *n)
{
	const struct inode graph = {CLASS_GRAPH, 0, GRAPH_SELF};
	struct name_space *space;
	uint32_t dir, view;

	if (is_graph_class(n))
		return graph_child_count(t, n);
	if (space_dir(t, n, &space, &dir, &view))
		return nametree_child_count(space->names, dir);
	if (n->class != CLASS_STATIC)
		return 0;
	return t->static_count - 1 +
	       (t->statics[n->sub - 1].kind == STATIC_GRAPH ? graph_child_count(t, &graph) : 0);
}

static bool child_at(const struct tree *t, const struct inode *n, uint64_t k, char *buf, struct str *name,
	uint64_t *inode)
{
	const struct inode graph = {CLASS_GRAPH, 0, GRAPH_SELF};
	struct name_space *space;
	uint32_t dir, view;

	if (is_graph_class(n))
		return graph_child(t, n, k, buf, name, inode);
	if (space_dir(t, n, &space, &dir, &view))
		return space_child(t, n, k, buf, name, inode);
	if (k < t->static_count - 1)
		return static_child(t, n->sub - 1, k, name, inode);
	return graph_child(t, &graph, k - (t->static_count - 1), buf, name, inode);
}

static uint32_t subdirs_of(const struct tree *t, const struct inode *n, uint64_t inode)
{
	struct name_space *space;
	uint32_t dir, view, count = 0;
	uint64_t total = child_count(t, n);

	(void)inode;
	if (space_dir(t, n, &space, &dir, &view))
		return nametree_subdir_count(space->names, dir);
	if (n->class == CLASS_OP && n->sub != OP_SELF)
		return 0; /* links only, and there may be many */
	for (uint64_t k = 0; k < total; k++) {
		char buf[TREE_NAME_MAX + 1];
		struct str name;
		uint64_t child;
		struct inode c;

		if (!child_at(t, n, k, buf, &name, &child))
			continue;
		c = inode_unpack(child);
		count += is_dir_inode(t, &c) && is_listed(t, &c);
	}
	return count;
}

int tree_list(const struct tree *t, uint64_t dir, uint64_t from, bool with_size,
	int (*emit)(void *arg, struct str name, const struct entry *entry, uint64_t next), void *arg)
{
	struct inode n = inode_unpack(dir);
	uint64_t total;

	if (!is_dir_inode(t, &n))
		return -ENOTDIR;
	total = child_count(t, &n);
	for (uint64_t k = from; k < total; k++) {
		char buf[TREE_NAME_MAX + 1];
		struct entry entry;
		struct str name;
		uint64_t inode;
		int r;

		if (!child_at(t, &n, k, buf, &name, &inode))
			continue;
		struct inode c = inode_unpack(inode);

		if (!is_listed(t, &c))
			continue;
		r = tree_fill_entry(t, inode, with_size, &entry);
		if (r == -ENOMEM) /* not silently a shorter listing */
			return r;
		if (r < 0)
			continue;
		if (emit(arg, name, &entry, k + 1))
			break;
	}
	return 0;
}

static int lookup_inode(const struct tree *t, uint64_t dir, struct str name, uint64_t *inode)
{
	const struct inode graph = {CLASS_GRAPH, 0, GRAPH_SELF};
	struct inode n = inode_unpack(dir);
	struct name_space *space;
	uint32_t d, view;

	if (!is_dir_inode(t, &n))
		return -ENOTDIR;
	if (is_graph_class(&n))
		return graph_lookup(t, &n, name, inode);
	if (space_dir(t, &n, &space, &d, &view))
		return space_lookup(t, &n, name, inode);
	for (uint32_t k = 0; k + 1 < t->static_count; k++) {
		struct str child;

		if (static_child(t, n.sub - 1, k, &child, inode) && str_eq(child, name))
			return 0;
	}
	if (t->statics[n.sub - 1].kind == STATIC_GRAPH)
		return graph_lookup(t, &graph, name, inode);
	return -ENOENT;
}

int tree_lookup(const struct tree *t, uint64_t dir, struct str name, struct entry *out)
{
	uint64_t inode;
	int r = lookup_inode(t, dir, name, &inode);

	return r < 0 ? r : tree_fill_entry(t, inode, true, out);
}

int tree_resolve(const struct tree *t, const char *path, struct entry *out)
{
	uint64_t at = TREE_ROOT;

	while (*path) {
		size_t n = strcspn(path, "/");
		struct str part = {path, n};
		int r = 0;

		if (str_is(part, ".."))
			at = tree_parent(t, at);
		else if (n && !str_is(part, "."))
			r = lookup_inode(t, at, part, &at);
		if (r < 0)
			return r;
		path += n + (path[n] == '/');
	}
	return tree_fill_entry(t, at, true, out);
}

uint64_t tree_parent(const struct tree *t, uint64_t inode)
{
	struct inode n = inode_unpack(inode);
	struct name_space *space;
	uint32_t dir, view;
	struct str name;

	if (n.class == CLASS_STATIC)
		return n.sub <= 1 || n.sub > t->static_count ? TREE_ROOT : t->statics[n.sub - 1].parent + 1u;
	if (space_dir(t, &n, &space, &dir, &view))
		return space_dir_inode(t, space, nametree_parent(space->names, dir), view);
	if (n.class == CLASS_TENSOR || n.class == CLASS_FILE) {
		uint32_t leaf = n.class == CLASS_TENSOR ? model_tensor_by_id(t->model, n.subject) : n.subject;

		space = n.class == CLASS_TENSOR ? t->tensors : t->files;
		if (leaf == MODEL_NONE)
			return TREE_ROOT;
		nametree_leaf(space->names, leaf, &dir, &name);
		return space_dir_inode(t, space, dir, n.sub);
	}
	return graph_parent(t, &n);
}

/* ---- paths ---- */

char *tree_tensor_path(const struct tree *t, const struct view *view, uint32_t index)
{
	char *leaf = nametree_leaf_path(t->tensors->names, index), *path = NULL;

	if (leaf && asprintf(&path, "%s/%s%s", view->path, leaf, view->suffix ? view->suffix : "") < 0)
		path = NULL;
	free(leaf);
	return path;
}

/* The name of an inode in its parent directory. */
static struct str own_name(const struct tree *t, const struct inode *n, uint64_t inode, char *buf)
{
	struct name_space *space;
	uint32_t dir, view;
	struct str name = {NULL, 0};

	if (n->class == CLASS_STATIC)
		return t->statics[n->sub - 1].name;
	if (space_dir(t, n, &space, &dir, &view))
		return nametree_dir_name(space->names, dir);
	if (n->class == CLASS_TENSOR || n->class == CLASS_FILE) {
		const struct view *v;
		struct subject s;
		size_t suffix = strlen(suffix_of(n->sub));

		if (!tree_file(t, inode, &v, &s))
			return name;
		nametree_leaf((n->class == CLASS_TENSOR ? t->tensors : t->files)->names, s.index, &dir,
			&name);
		memcpy(buf, name.ptr, name.len);
		memcpy(buf + name.len, suffix_of(n->sub), suffix);
		return (struct str){buf, name.len + suffix};
	}
	return graph_dir_name(t, n, buf);
}

char *tree_path(const struct tree *t, uint64_t inode)
{
	char *path = strdup("");

	while (path && inode != TREE_ROOT) {
		struct inode n = inode_unpack(inode);
		char buf[TREE_NAME_MAX + 1], *longer = NULL;
		struct str name = own_name(t, &n, inode, buf);

		if (asprintf(&longer, "%.*s%s%s", (int)name.len, name.ptr, *path ? "/" : "", path) < 0)
			longer = NULL;
		free(path);
		path = longer;
		inode = tree_parent(t, inode);
	}
	return path;
}

/* ---- content ---- */

int tree_readlink(const struct tree *t, uint64_t inode, char **target)
{
	struct inode n = inode_unpack(inode);

	*target = NULL;
	if (n.class != CLASS_INPUT_LINK && n.class != CLASS_OUTPUT_LINK)
		return -EINVAL;
	if (!graph_inode_valid(t, &n))
		return -ENOENT;
	*target = graph_link_target(t, &n);
	return *target ? 0 : -ENOMEM;
}

int tree_open(const struct tree *t, uint64_t inode, struct extmap *out, struct error *e)
{
	const struct view *view;
	struct subject s;
	int r;

	if (!tree_file(t, inode, &view, &s))
		return error_set(e, ENOENT, "no such file");
	r = view->render(&t->context, &s, out, e);
	return r < 0 ? r : extmap_failed(out, e);
}

bool tree_creates(const struct tree *t, uint64_t dir, struct str name, struct arena *a,
	const struct view **view, struct str *tensor_name)
{
	struct inode n = inode_unpack(dir);
	struct name_space *space;
	struct str suffix, path;
	uint32_t d, v;
	char *parent;

	if (!space_dir(t, &n, &space, &d, &v) || space != t->tensors || !views[v]->can_create)
		return false;
	suffix = str_from(suffix_of(v));
	if (!str_ends(name, suffix) || name.len == suffix.len || name.ptr[0] == '.')
		return false;
	parent = nametree_dir_path(space->names, d);
	if (!parent)
		return false;
	path = arena_printf(a, "%s%s%.*s", parent, *parent ? "/" : "", (int)(name.len - suffix.len),
		name.ptr);
	free(parent);
	*view = views[v];
	return path.ptr && name_from_path(a, path, tensor_name);
}

/* ---- extended attributes ---- */

static char *shape_text(const struct tensor *t)
{
	char *text = malloc((size_t)t->rank * 21 + 3), *p = text;

	if (!text)
		return NULL;
	*p++ = '[';
	for (uint32_t i = 0; i < t->rank; i++)
		p += sprintf(p, "%s%llu", i ? "," : "", (unsigned long long)t->shape[i]);
	*p++ = ']';
	*p = '\0';
	return text;
}

/* Of what raw/ shows, as .wiamodel/SHA256SUMS has it. */
static char *sha256_text(const struct tree *t, const struct subject *s, struct error *e)
{
	struct extmap map = {0};
	uint8_t sum[SHA256_BYTES];
	char *text = NULL;
	int r = -ENODATA;

	for (size_t v = 0; v < view_count; v++)
		if (strcmp(views[v]->name, "raw") == 0)
			r = views[v]->render(&t->context, s, &map, e);
	if (r == 0)
		r = sha256_map(&map, sum, e);
	extmap_release(&map);
	if (r == 0 && (text = malloc(2 * SHA256_BYTES + 1)) != NULL)
		sha256_hex(sum, text);
	return text;
}

int tree_xattr(const struct tree *t, uint64_t inode, const char *key, char **value, size_t *len,
	struct error *e)
{
	const struct view *view;
	struct subject s;
	const struct tensor *x;

	*value = NULL;
	*len = 0;
	if (!tree_file(t, inode, &view, &s) || s.kind != SUBJECT_TENSOR)
		return -ENODATA;
	x = &t->model->tensors[s.index];
	if (strcmp(key, "name") == 0) {
		*value = malloc(x->name.len + 1);
		if (!*value)
			return -ENOMEM;
		memcpy(*value, x->name.ptr, x->name.len);
		*len = x->name.len;
		return 0;
	}
	if (strcmp(key, "dtype") == 0)
		*value = strdup(dtype_info(x->dtype)->name);
	else if (strcmp(key, "shape") == 0)
		*value = shape_text(x);
	else if (strcmp(key, "format") == 0)
		*value = strdup(t->model->format->name);
	else if (strcmp(key, "sha256") == 0)
		*value = sha256_text(t, &s, e);
	else
		return -ENODATA;
	if (!*value)
		return e && e->code ? -e->code : -ENOMEM;
	*len = strlen(*value);
	return 0;
}
