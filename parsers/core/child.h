/* SPDX-License-Identifier: MIT */
/*
 * child: work that must not take this process along. A library that is known to crash or hang on hostile files
 * runs in a forked child that holds one file and one pipe and nothing else: no other descriptor, no opening of
 * files, no network, no exec, no new process, a limit of time and of memory. It answers with bytes; whoever reads them
 * trusts them no more than a file. Whatever happens to the child is one line in e.
 */
#ifndef PARSERS_CORE_CHILD_H
#define PARSERS_CORE_CHILD_H

#include "parsers/core/source.h"

struct child_limits {
	unsigned seconds; /* by the clock */
	uint64_t memory;  /* bytes that it may take in addition */
};

/* for the whole process; set before models are opened */
extern struct child_limits child_limits;
/* 0 = as it is */
void child_limits_set(uint64_t seconds, uint64_t mebibytes);

/* What the child says: a growing buffer, sticky when memory is out. */
struct reply {
	unsigned char *bytes;
	size_t len, cap;
	bool failed;
};

void reply_bytes(struct reply *r, const void *bytes, size_t len);
void reply_u8(struct reply *r, uint8_t v);
void reply_u32(struct reply *r, uint32_t v); /* little-endian, as the cursor reads it */
void reply_u64(struct reply *r, uint64_t v);
void reply_str(struct reply *r, struct str s); /* u32 length, bytes */

/*
 * Runs work(arg, reply, e) in a child that keeps the descriptor of src (NULL = none) and a copy of this process'
 * memory; it must not wait for locks that other threads may hold. `what` names the work in messages. *out gets the reply,
 * at most LIMIT_METADATA bytes. work's own failure (negative errno) arrives in e as it was reported there.
 */
int child_run(const char *what, struct source *src, int (*work)(void *arg, struct reply *r, struct error *e),
	void *arg, struct source **out, struct error *e);

#endif
