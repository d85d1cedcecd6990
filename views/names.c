/* SPDX-License-Identifier: MIT */
#include "views/names.h"

#include "parsers/core/limits.h"

#include <stdio.h>
#include <stdlib.h>

#define MODEL_NO_DIR UINT32_MAX
/* Longest path of a name, well below Linux's PATH_MAX of 4096 that has to hold a mount point too. */
#define NAME_PATH_MAX 3000
/* Directories above one leaf: NAME_DEPTH_MAX separators, and the parts of components that were cut. */
#define NAME_PARTS_MAX (NAME_DEPTH_MAX + NAME_PATH_MAX / (NAME_COMPONENT_MAX - 8) + 8)

/* ---- escaping ---- */

/* Whether "~digits" runs from p to the end of the component (so it would look like a suffix of ours). */
static bool is_tilde_suffix(struct str component, size_t i)
{
	size_t k = i + 1;

	if (component.ptr[i] != '~' || k == component.len)
		return false;
	while (k < component.len && component.ptr[k] >= '0' && component.ptr[k] <= '9')
		k++;
	return k == component.len;
}

struct escaper {
	char *out;
	size_t len, run; /* run: bytes in the present component part */
	unsigned depth;
};

static void put_raw(struct escaper *x, const char *p, size_t n)
{
	memcpy(x->out + x->len, p, n);
	x->len += n;
	x->run += n;
}

/* One unit (a character or an escape) never spans two parts of a cut component. */
static void put_unit(struct escaper *x, const char *p, size_t n, bool cut)
{
	if (cut && x->run + n > NAME_COMPONENT_MAX) {
		put_raw(x, "%+/", 3);
		x->run = 0;
	}
	put_raw(x, p, n);
}

static void put_escape(struct escaper *x, unsigned char c, bool cut)
{
	char hex[4];

	snprintf(hex, sizeof(hex), "%%%02X", c);
	put_unit(x, hex, 3, cut);
}

static void escape_component(struct escaper *x, struct str c, bool cut)
{
	bool dots = str_is(c, ".") || str_is(c, "..");

	for (size_t i = 0; i < c.len;) {
		unsigned char b = (unsigned char)c.ptr[i];
		size_t n = b < 0x80 ? 1 : str_utf8_len(c.ptr + i, c.len - i);

		if (n == 0 || b < 0x20 || b == 0x7f || b == '%' || b == '/' || dots ||
			is_tilde_suffix(c, i)) {
			put_escape(x, b, cut);
			i++;
		} else {
			put_unit(x, c.ptr + i, n, cut);
			i += n;
		}
	}
}

static struct str shortened_path(struct arena *a, struct str name)
{
	struct str head = name_to_path(a, (struct str){name.ptr, NAME_PATH_MAX / 5});

	if (!head.ptr)
		return head;
	return arena_printf(a, "%.*s%%=%016llx", (int)head.len, head.ptr,
		(unsigned long long)str_hash(name));
}

struct str name_to_path(struct arena *a, struct str name)
{
	struct escaper x = {.out = NULL};
	size_t start = 0;

	if (!name.len)
		return STR("%");
	if (name.len > NAME_PATH_MAX)
		return shortened_path(a, name);
	/* every byte becomes at most 3, and a cut adds 3 for every NAME_COMPONENT_MAX - 4 */
	x.out = arena_alloc(a, name.len * 3 + name.len / 16 + 8);
	if (!x.out)
		return (struct str){NULL, 0};

	for (size_t i = 0; i <= name.len; i++) {
		bool end = i == name.len;

		if (!end && name.ptr[i] != '/')
			continue;
		/* a separator only between two parts that hold something, and not without end */
		bool separates = !end && i > start && i + 1 < name.len && name.ptr[i + 1] != '/' &&
				 x.depth + 1 < NAME_DEPTH_MAX;

		if (!end && !separates)
			continue; /* this '/' stays inside the component and is escaped there */
		escape_component(&x, (struct str){name.ptr + start, i - start}, true);
		if (separates) {
			put_raw(&x, "/", 1);
			x.run = 0;
			x.depth++;
			start = i + 1;
		}
	}
	return x.len > NAME_PATH_MAX ? shortened_path(a, name) : (struct str){x.out, x.len};
}

size_t name_component(char out[NAME_COMPONENT_MAX], struct str name)
{
	char space[NAME_COMPONENT_MAX * 3];
	struct escaper x = {.out = space};

	if (!name.len) {
		out[0] = '%';
		return 1;
	}
	if (name.len > NAME_COMPONENT_MAX)
		name.len = NAME_COMPONENT_MAX;
	escape_component(&x, name, false);
	if (x.len > NAME_COMPONENT_MAX) {
		x.len = NAME_COMPONENT_MAX;
		while (x.len && ((unsigned char)space[x.len] & 0xc0) == 0x80)
			x.len--; /* not inside a character */
	}
	memcpy(out, space, x.len);
	return x.len;
}

struct str name_to_component(struct arena *a, struct str name)
{
	char out[NAME_COMPONENT_MAX];

	return arena_str(a, out, name_component(out, name));
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Undoes the escapes; whether the result is the canonical spelling is for the caller to compare. */
static bool unescape(struct str path, char *out, size_t *len)
{
	size_t n = 0;

	for (size_t i = 0; i < path.len; i++) {
		if (path.ptr[i] != '%') {
			out[n++] = path.ptr[i];
			continue;
		}
		if (i + 2 < path.len && path.ptr[i + 1] == '+' && path.ptr[i + 2] == '/') {
			i += 2;
			continue;
		}
		if (i + 2 >= path.len || hex_digit(path.ptr[i + 1]) < 0 || hex_digit(path.ptr[i + 2]) < 0)
			return false;
		out[n++] = (char)(hex_digit(path.ptr[i + 1]) * 16 + hex_digit(path.ptr[i + 2]));
		i += 2;
	}
	*len = n;
	return true;
}

bool name_from_path(struct arena *a, struct str path, struct str *name)
{
	char *out = arena_alloc(a, path.len + 1);
	struct str again;

	if (!out)
		return false;
	*name = (struct str){out, 0};
	if (str_is(path, "%"))
		return true;
	if (!unescape(path, out, &name->len) || !name->len)
		return false;
	again = name_to_path(a, *name);
	return again.ptr && str_eq(again, path);
}

/* ---- the tree of names ---- */

struct dir {
	uint32_t parent, first, count, subdirs; /* children: entries[first ..] */
	struct str name;
};

struct nametree {
	struct arena *arena;
	struct dir *dirs;
	uint32_t dir_count, dir_cap;
	struct name_entry *entries; /* sorted within each directory */
	uint32_t *leaf_dir;
	struct str *leaf_name;
	uint32_t leaf_count;
};

struct sort_item {
	struct str path;
	uint32_t leaf;
};

/* '/' sorts before every other byte, so that a directory's names are neighbours. */
static int path_cmp(const void *pa, const void *pb)
{
	const struct sort_item *a = pa, *b = pb;
	size_t n = a->path.len < b->path.len ? a->path.len : b->path.len, i = 0;

	while (i < n && a->path.ptr[i] == b->path.ptr[i])
		i++;
	if (i < n) {
		unsigned ca = a->path.ptr[i] == '/' ? 0 : (unsigned char)a->path.ptr[i];
		unsigned cb = b->path.ptr[i] == '/' ? 0 : (unsigned char)b->path.ptr[i];

		return ca < cb ? -1 : 1;
	}
	if (a->path.len != b->path.len)
		return a->path.len < b->path.len ? -1 : 1;
	return a->leaf < b->leaf ? -1 : a->leaf > b->leaf;
}

static uint32_t add_dir(struct nametree *t, uint32_t parent, struct str name)
{
	if (t->dir_count == t->dir_cap) {
		uint32_t cap = t->dir_cap ? t->dir_cap * 2 : 64;
		void *p = reallocarray(t->dirs, cap, sizeof(*t->dirs));

		if (!p)
			return MODEL_NO_DIR;
		t->dirs = p;
		t->dir_cap = cap;
	}
	t->dirs[t->dir_count] = (struct dir){.parent = parent, .name = name};
	return t->dir_count++;
}

/* Splits sorted paths into directories (numbered parents first) and final components. */
static bool split_paths(struct nametree *t, const struct sort_item *items, uint32_t count)
{
	uint32_t stack[NAME_PARTS_MAX] = {0}, depth = 0;

	for (uint32_t i = 0; i < count; i++) {
		struct str rest = items[i].path;
		uint32_t level = 0, dir = 0;
		const char *slash;

		while (rest.len && (slash = memchr(rest.ptr, '/', rest.len)) != NULL) {
			struct str part = {rest.ptr, (size_t)(slash - rest.ptr)};

			if (level + 1 >= NAME_PARTS_MAX)
				return false;
			if (level < depth && str_eq(t->dirs[stack[level + 1]].name, part)) {
				dir = stack[level + 1];
			} else {
				dir = add_dir(t, dir, part);
				if (dir == MODEL_NO_DIR)
					return false;
				stack[level + 1] = dir;
				depth = level + 1;
			}
			level++;
			rest = (struct str){slash + 1, rest.len - part.len - 1};
		}
		depth = level;
		t->leaf_dir[items[i].leaf] = dir;
		t->leaf_name[items[i].leaf] = rest;
	}
	return true;
}

/* A set of directories by (parent, name), to see which leaves must yield. */
struct dir_set {
	uint32_t *slots, mask;
};

static uint32_t dir_slot(const struct dir_set *s, const struct nametree *t, uint32_t parent,
	struct str name)
{
	uint32_t i = (uint32_t)(str_hash(name) + parent * 0x9e3779b9u) & s->mask;

	while (s->slots[i] && !(t->dirs[s->slots[i]].parent == parent &&
				      str_eq(t->dirs[s->slots[i]].name, name)))
		i = (i + 1) & s->mask;
	return i;
}

static bool is_taken(const struct dir_set *s, const struct nametree *t, uint32_t dir, struct str name,
	const char *const *suffixes)
{
	char full[NAME_COMPONENT_MAX + 64];

	if (t->dir_count == 1)
		return false;
	for (size_t k = 0; suffixes[k]; k++) {
		size_t n = strlen(suffixes[k]);

		if (name.len + n > sizeof(full))
			continue;
		memcpy(full, name.ptr, name.len);
		memcpy(full + name.len, suffixes[k], n);
		if (s->slots[dir_slot(s, t, dir, (struct str){full, name.len + n})])
			return true;
	}
	return false;
}

/* Leaves come sorted by path, so equal names are neighbours, the earlier tensor first. */
static bool make_unique(struct nametree *t, const struct sort_item *items, uint32_t count,
	const char *const *suffixes)
{
	struct dir_set set = {.mask = 15};
	uint32_t number = 1;
	bool ok = true;

	while (set.mask < t->dir_count * 2)
		set.mask = set.mask * 2 + 1;
	set.slots = calloc((size_t)set.mask + 1, sizeof(*set.slots));
	if (!set.slots)
		return false;
	for (uint32_t d = 1; d < t->dir_count; d++)
		set.slots[dir_slot(&set, t, t->dirs[d].parent, t->dirs[d].name)] = d;
	for (uint32_t i = 0; i < count && ok; i++) {
		uint32_t leaf = items[i].leaf, dir = t->leaf_dir[leaf];
		struct str name = t->leaf_name[leaf], unique = name;

		if (i && str_eq(items[i].path, items[i - 1].path))
			number++; /* goes on where the one before stopped */
		else
			number = 1;
		while (ok && (number > 1 || is_taken(&set, t, dir, unique, suffixes))) {
			number = number < 2 ? 2 : number;
			unique = arena_printf(t->arena, "%.*s~%u", (int)name.len, name.ptr, number);
			ok = unique.ptr != NULL;
			if (ok && !is_taken(&set, t, dir, unique, suffixes))
				break;
			number++;
		}
		t->leaf_name[leaf] = unique;
	}
	free(set.slots);
	return ok;
}

static int entry_cmp(const void *pa, const void *pb)
{
	const struct name_entry *a = pa, *b = pb;
	int c = str_cmp(a->name, b->name);

	return c ? c : (int)b->is_dir - (int)a->is_dir;
}

static bool fill_entries(struct nametree *t)
{
	uint32_t total = t->leaf_count + t->dir_count - 1, at = 0;
	uint32_t *fill = calloc(t->dir_count, sizeof(*fill));

	t->entries = calloc(total ? total : 1, sizeof(*t->entries));
	if (!fill || !t->entries) {
		free(fill);
		return false;
	}
	for (uint32_t d = 1; d < t->dir_count; d++) {
		t->dirs[t->dirs[d].parent].count++;
		t->dirs[t->dirs[d].parent].subdirs++;
	}
	for (uint32_t i = 0; i < t->leaf_count; i++)
		t->dirs[t->leaf_dir[i]].count++;
	for (uint32_t d = 0; d < t->dir_count; d++) {
		t->dirs[d].first = fill[d] = at;
		at += t->dirs[d].count;
	}
	for (uint32_t d = 1; d < t->dir_count; d++)
		t->entries[fill[t->dirs[d].parent]++] = (struct name_entry){t->dirs[d].name, true, d};
	for (uint32_t i = 0; i < t->leaf_count; i++)
		t->entries[fill[t->leaf_dir[i]]++] = (struct name_entry){t->leaf_name[i], false, i};
	for (uint32_t d = 0; d < t->dir_count; d++)
		if (t->dirs[d].count > 1)
			qsort(t->entries + t->dirs[d].first, t->dirs[d].count, sizeof(*t->entries),
				entry_cmp);
	free(fill);
	return true;
}

struct nametree *nametree_new(const struct str *names, uint32_t count, const char *const *suffixes)
{
	struct nametree *t = calloc(1, sizeof(*t));
	struct sort_item *items = calloc(count ? count : 1, sizeof(*items));
	bool ok = t && items;

	if (ok) {
		t->arena = arena_new(LIMIT_MODEL_MEMORY);
		t->leaf_dir = calloc(count ? count : 1, sizeof(*t->leaf_dir));
		t->leaf_name = calloc(count ? count : 1, sizeof(*t->leaf_name));
		t->leaf_count = count;
		ok = t->arena && t->leaf_dir && t->leaf_name && add_dir(t, 0, STR("")) == 0;
	}
	for (uint32_t i = 0; ok && i < count; i++) {
		items[i] = (struct sort_item){name_to_path(t->arena, names[i]), i};
		ok = items[i].path.ptr != NULL;
	}
	if (ok) {
		qsort(items, count, sizeof(*items), path_cmp);
		ok = split_paths(t, items, count) && make_unique(t, items, count, suffixes) &&
		     fill_entries(t);
	}
	free(items);
	if (!ok) {
		nametree_free(t);
		return NULL;
	}
	return t;
}

void nametree_free(struct nametree *t)
{
	if (!t)
		return;
	free(t->dirs);
	free(t->entries);
	free(t->leaf_dir);
	free(t->leaf_name);
	arena_free(t->arena);
	free(t);
}

uint32_t nametree_dir_count(const struct nametree *t)
{
	return t->dir_count;
}

uint32_t nametree_parent(const struct nametree *t, uint32_t dir)
{
	return t->dirs[dir].parent;
}

struct str nametree_dir_name(const struct nametree *t, uint32_t dir)
{
	return t->dirs[dir].name;
}

uint32_t nametree_child_count(const struct nametree *t, uint32_t dir)
{
	return t->dirs[dir].count;
}

uint32_t nametree_subdir_count(const struct nametree *t, uint32_t dir)
{
	return t->dirs[dir].subdirs;
}

struct name_entry nametree_child(const struct nametree *t, uint32_t dir, uint32_t k)
{
	return t->entries[t->dirs[dir].first + k];
}

bool nametree_find(const struct nametree *t, uint32_t dir, struct str name, bool want_dir,
	struct name_entry *out)
{
	const struct name_entry key = {name, want_dir, 0};
	const struct name_entry *found = bsearch(&key, t->entries + t->dirs[dir].first,
		t->dirs[dir].count, sizeof(*t->entries), entry_cmp);

	if (!found)
		return false;
	*out = *found;
	return true;
}

void nametree_leaf(const struct nametree *t, uint32_t leaf, uint32_t *dir, struct str *name)
{
	*dir = t->leaf_dir[leaf];
	*name = t->leaf_name[leaf];
}

static char *join_path(const struct nametree *t, uint32_t dir, struct str last)
{
	size_t len = last.len;
	char *path, *p;

	for (uint32_t d = dir; d; d = t->dirs[d].parent)
		len += t->dirs[d].name.len + 1;
	path = malloc(len + 1);
	if (!path)
		return NULL;
	p = path + len;
	*p = '\0';
	p -= last.len;
	memcpy(p, last.ptr, last.len);
	for (uint32_t d = dir; d; d = t->dirs[d].parent) {
		*--p = '/';
		p -= t->dirs[d].name.len;
		memcpy(p, t->dirs[d].name.ptr, t->dirs[d].name.len);
	}
	return path;
}

char *nametree_leaf_path(const struct nametree *t, uint32_t leaf)
{
	return join_path(t, t->leaf_dir[leaf], t->leaf_name[leaf]);
}

char *nametree_dir_path(const struct nametree *t, uint32_t dir)
{
	return dir ? join_path(t, t->dirs[dir].parent, t->dirs[dir].name) : strdup("");
}
