/* SPDX-License-Identifier: MIT */
/*
 * journal: the directory `.NAME.wiamodel-journal` beside a model: a lock, the staging files, and an
 * append-only record of what was done with them. It does not know what records mean.
 *
 *	journal_open(dir_fd, "model.bin", &identity, true, &j, e);
 *	journal_staging(j, name, &fd, e);        // a fresh file for a layer
 *	journal_append(j, bytes, len, e);
 *	journal_sync(j, e);                      // what was appended survives a power cut
 *	journal_close(j, false);                 // true: removes all of it
 *
 * The record begins with the identity of the model version that it belongs to. Each record carries a
 * checksum; a torn last one, which a crash leaves, is cut off when the journal is opened. A damaged record
 * with others behind it is EIO, never half a journal.
 * The directory must be the user's own with no access for others, or it is refused: whoever could put one
 * beside a model could otherwise edit the model with it. One mutex is the caller's.
 */
#ifndef FS_JOURNAL_H
#define FS_JOURNAL_H

#include "parsers/core/error.h"
#include "parsers/core/str.h"

#define JOURNAL_NAME_MAX 24

struct journal;

/* A version of a model file; no padding, for it is compared and stored as bytes. */
struct journal_identity {
	uint64_t size, inode;
	int64_t mtime, mtime_nsec;
	uint8_t ends[32]; /* SHA-256 of the first and last 64 KiB */
};

int journal_identify(int fd, struct journal_identity *out, struct error *e);

/* -ENOENT when there is none and it shall not be created; -EBUSY when another has it open. */
int journal_open(int dir_fd, const char *model, const struct journal_identity *identity, bool create,
	struct journal **out, struct error *e);
void journal_close(struct journal *j, bool remove);
/* True when it was written over the version that journal_open was given. */
bool journal_matches(const struct journal *j);
uint64_t journal_count(const struct journal *j);
/* Calls fn with each record in order until it returns nonzero, which is returned. */
int journal_replay(struct journal *j, int (*fn)(void *arg, struct str record, struct error *e),
	void *arg, struct error *e);
int journal_append(struct journal *j, const void *bytes, size_t len, struct error *e);
int journal_sync(struct journal *j, struct error *e);
int journal_staging(struct journal *j, char name[JOURNAL_NAME_MAX], int *fd, struct error *e);
/* A staging file that is there, for reading. */
int journal_staged(struct journal *j, const char *name, int *fd, struct error *e);
void journal_unstage(struct journal *j, const char *name);
/* Drops all records, durably, and belongs to another version from now on; staging files stay. */
int journal_reset(struct journal *j, const struct journal_identity *identity, struct error *e);
/* Removes the staging files for which keep says no (leftovers of a crash). */
void journal_sweep(struct journal *j, bool (*keep)(void *arg, const char *name), void *arg);

#endif
