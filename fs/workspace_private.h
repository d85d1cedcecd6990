/* SPDX-License-Identifier: MIT */
/*
 * What the parts of the workspace share: workspace.c (opening, the present tree, attributes), listing.c,
 * telling.c (extended attributes, reasons, status.json), handle.c (open files), draft.c (content under way), edits.c
 * (from content to an edited model), scratch.c (names that are no part of the model), rename.c (unlink and
 * rename), alias.c (the kernel's numbers), saving.c (commit, discard), replay.c (what an earlier mount left).
 *
 * Locks, in the order in which they are taken: `edit` (one edit or save at a time, held for long), a draft's own,
 * `lock` (everything here that can change, held for short; nothing is rendered or read under it), `journal_lock`.
 */
#ifndef FS_WORKSPACE_PRIVATE_H
#define FS_WORKSPACE_PRIVATE_H

#include "fs/alias.h"
#include "fs/draft.h"
#include "fs/journal.h"
#include "fs/workspace.h"

#include <pthread.h>
#include <stdatomic.h>

#define ERRORS_MAX 64

/* .wiamodel/commit and discard: no files of the tree, since they act */
#define WORKSPACE_COMMIT (WORKSPACE_SCRATCH | 1)
#define WORKSPACE_DISCARD (WORKSPACE_SCRATCH | 2)
#define WORKSPACE_FIRST_NODE (WORKSPACE_SCRATCH | 16)

/* A scratch file or directory, or a tensor in the making. */
struct node {
	struct node *next;
	uint64_t inode, parent;
	struct str name; /* heap */
	bool is_dir;
	bool linked;     /* has its name; else it lives until the last handle goes */
	mode_t mode;     /* permissions */
	struct timespec mtime;
	struct draft *draft; /* of files */
	const struct view *view; /* which view makes a tensor of it ... */
	struct str tensor;       /* ... of this name; heap */
	uint64_t origin; /* the file of the tree that was moved here and is missing at its own place */
	uint64_t copy_of; /* the same, also after something else was put there */
	unsigned opens;
};

/* A file of the tree, or a tensor in the making, that somebody has open for writing. */
struct writing {
	struct writing *next;
	uint64_t inode;
	struct node *node; /* of a tensor in the making */
	struct draft *draft;
	unsigned writers;
	uint64_t judged; /* draft_changes at the last verdict, which is: */
	struct error verdict;
};

struct file_error {
	uint64_t inode;
	char *text;
};

struct workspace {
	struct workspace_options o;
	char *path, *dir, *base; /* as the user wrote it; where the file itself lies */
	int dir_fd;
	bool read_only;
	struct verdict *verdicts;

	pthread_mutex_t edit;
	uint64_t revision; /* edits since the model was opened or saved, as the journal has them */
	struct journal_identity identity; /* of the model then */
	bool written; /* out=: the file is there, with all edits up to this: */
	uint64_t written_revision;
	struct staging **recorded; /* what they name */
	size_t recorded_count, recorded_cap;

	pthread_mutex_t lock;
	struct tree *tree;
	struct stat st;           /* of the model file */
	struct timespec edited;   /* the last edit */
	_Atomic uint64_t generation; /* grows when a file may show something else */
	_Atomic uint64_t epoch;      /* saves */
	struct writing *writings;
	_Atomic unsigned writing_count, node_count, hidden_count, alias_count;
	struct aliases aliases;
	struct node *nodes; /* newest first */
	uint64_t next_node;
	struct error last_error;
	struct file_error errors[ERRORS_MAX];
	unsigned error_count;

	pthread_mutex_t journal_lock;
	struct journal *journal; /* NULL when read-only */
	bool keep_staging;       /* edits stay for the next mount */
};

/* workspace.c */
int workspace_load(struct workspace *w, struct model **out, struct error *e); /* parses; sets w->st */
struct tree *workspace_new_tree(struct workspace *w, struct model *m, const struct tree *previous,
	struct error *e);
int workspace_identify(const struct model *m, struct journal_identity *out, struct error *e);
/* Puts t in place of the present tree (takes the reference) and tells what changed. */
void workspace_swap(struct workspace *w, struct tree *t, bool saved);
void workspace_notify(struct workspace *w, uint64_t inode, struct str name);
/* The functions of fs/workspace.h behind the translation of numbers. */
int inner_lookup(struct workspace *w, uint64_t dir, struct str name, struct attr *out);
int inner_stat(struct workspace *w, uint64_t inode, struct attr *out);
int inner_open(struct workspace *w, uint64_t inode, int flags, struct handle **out, struct error *e);
void inner_report(struct workspace *w, uint64_t inode, const struct error *e);
/* status.json and the like show something else */
void workspace_notify_status(struct workspace *w);
void workspace_attr(struct workspace *w, const struct tree *t, const struct entry *x, struct attr *out);
/* telling.c: for tree_options.status */
void workspace_status_json(void *arg, struct json *j);
/* A file's reason why it was refused is history. */
void workspace_forget_error(struct workspace *w, uint64_t inode);

/* edits.c; `edit` is held in all of them but judge */
/* The content so far becomes an edit, or stays refused; costs nothing when nothing changed since. */
int edits_judge(struct workspace *w, struct writing *x, struct error *e);
/* An edit that came as `record` says; with the references on staging files in c (may be NULL). */
int edits_apply(struct workspace *w, const struct edit *x, struct record *record,
	struct draft_content *c, struct error *e);
/* The content of a draft becomes that of the file `inode` of the tree, or of a new tensor (node). */
int edits_write(struct workspace *w, uint64_t inode, struct node *node, struct draft *d,
	uint64_t *changes, uint64_t *became, struct error *e);
int edits_accept(struct workspace *w, const struct view *view, struct subject s, struct str name,
	struct extmap *content, struct record *record, struct draft_content *c, struct error *e);
void edits_forget_recorded(struct workspace *w);
struct origin edits_origin(struct workspace *w, uint64_t inode, struct error *e);

/* scratch.c; `lock` is held in the node_ functions */
struct node *node_find(struct workspace *w, uint64_t inode);
struct node *node_child(struct workspace *w, uint64_t dir, struct str name);
struct node *node_new(struct workspace *w, uint64_t dir, struct str name, struct error *e);
void node_unlink(struct workspace *w, struct node *n);
/* It is this file or directory of the tree now, which goes by its number. Takes `lock` itself. */
void node_become(struct workspace *w, struct node *n, uint64_t inode);
void node_close(struct workspace *w, struct node *n); /* one handle less */
void node_attr(struct workspace *w, struct node *n, struct attr *out);
bool node_hides(struct workspace *w, uint64_t inode); /* a file of the tree was moved away from its place */
void scratch_release(struct workspace *w);
/* A file of the tree that was moved away is at its place again. */
void scratch_unhide(struct workspace *w, uint64_t inode);
/* Scratch directories that the tree has now too are one with those. */
void scratch_merge(struct workspace *w);
int scratch_remove_dir(struct workspace *w, uint64_t inode);
/* Which tensor a name would make; view NULL: none, it is a scratch file. -EOPNOTSUPP when the format cannot. */
struct wish {
	const struct view *view;
	struct str tensor; /* heap */
};
int scratch_wish(struct workspace *w, uint64_t dir, struct str name, struct wish *out, struct error *e);
void wish_release(struct wish *x);

/* handle.c; `lock` is held */
struct writing *writing_find(struct workspace *w, uint64_t inode);

/* replay.c */
int replay_journal(struct workspace *w, struct error *e);

#endif
