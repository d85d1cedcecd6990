/* SPDX-License-Identifier: MIT */
/*
 * progress: a bar on stderr when that is a terminal and the work is long; silent otherwise, so logs and
 * pipes hold results only.
 */
#ifndef FS_CLI_PROGRESS_H
#define FS_CLI_PROGRESS_H

#include "fs/output.h"

struct progress {
	struct output_progress output; /* pass &p.output to output_map */
	uint64_t total, done;
	int64_t started, shown; /* milliseconds */
	bool terminal, visible;
};

void progress_begin(struct progress *p, uint64_t total);
void progress_add(struct progress *p, uint64_t bytes);
void progress_end(struct progress *p); /* wipes the bar */

#endif
