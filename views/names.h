/* SPDX-License-Identifier: MIT */
/*
 * names: how names of tensors and ops become paths, reversibly and without collision.
 *
 * '/' separates directories. Within a component these are written %XX (upper-case hex): '%' itself, NUL and
 * control characters, DEL, bytes that are not UTF-8, and '~' where "~N" would end the component. A component "."
 * or ".." has its dots escaped. A '/' that would make an empty component is written %2F ("/a" -> "%2Fa",
 * "a//b" -> "a%2F/b", "a/" -> "a%2F"); the empty name is "%". A component above 200 bytes is cut into directories, each
 * part but the last ending in "%+". Beyond 32 components '/' is written %2F. A path that would pass 3000 bytes cannot be
 * used on Linux with a mount point before it: it is cut and ends in "%=" and a hash (the one spelling that does
 * not lead back; info/ has the name).
 *
 * Where two names still share a path the later gets ~2, ~3, ...: equal names, and a name that is also a
 * directory of another ("a" beside "a/b", "a.npy/b" beside "a"), whatever the view's suffix.
 */
#ifndef VIEWS_NAMES_H
#define VIEWS_NAMES_H

#include "parsers/core/arena.h"

#define NAME_COMPONENT_MAX 200
#define NAME_DEPTH_MAX 32

/* The escaped path; ptr NULL when memory is out. */
struct str name_to_path(struct arena *a, struct str name);
/* One component only: '/' is escaped too (for K-NAME links), cut at NAME_COMPONENT_MAX. Returns the length. */
size_t name_component(char out[NAME_COMPONENT_MAX], struct str name);
struct str name_to_component(struct arena *a, struct str name);
/* The name that a path stands for; false when no name escapes to it. */
bool name_from_path(struct arena *a, struct str path, struct str *name);

/*
 * nametree: the directories and leaves of many names, immutable once built. Leaf k belongs to names[k].
 * Directory 0 is the root. Children are sorted by byte order. Suffixes are all suffixes that views will
 * append to leaves: a leaf whose path plus one of them equals a directory yields to it.
 */
struct nametree;

struct name_entry {
	struct str name; /* component without suffix; valid as long as the tree */
	bool is_dir;
	uint32_t index; /* directory number or leaf number */
};

struct nametree *nametree_new(const struct str *names, uint32_t count, const char *const *suffixes);
void nametree_free(struct nametree *t);
uint32_t nametree_dir_count(const struct nametree *t);
uint32_t nametree_parent(const struct nametree *t, uint32_t dir); /* of directory 0: itself */
struct str nametree_dir_name(const struct nametree *t, uint32_t dir);
uint32_t nametree_child_count(const struct nametree *t, uint32_t dir);
struct name_entry nametree_child(const struct nametree *t, uint32_t dir, uint32_t k);
/* Looks up a directory or a leaf of exactly that component name. */
bool nametree_find(const struct nametree *t, uint32_t dir, struct str name, bool want_dir,
	struct name_entry *out);
/* The leaf's directory and final component. */
void nametree_leaf(const struct nametree *t, uint32_t leaf, uint32_t *dir, struct str *name);
/* Path of a leaf or directory without leading '/'; heap, caller frees; NULL when memory is out. */
char *nametree_leaf_path(const struct nametree *t, uint32_t leaf);
char *nametree_dir_path(const struct nametree *t, uint32_t dir);
uint32_t nametree_subdir_count(const struct nametree *t, uint32_t dir);

#endif
