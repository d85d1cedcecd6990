/* SPDX-License-Identifier: MIT */
/*
 * output: extent maps into real files. Ranges of model files are copied by the kernel (copy_file_range shares
 * blocks where the file system can), zeroes and holes stay holes, everything else passes through
 * one buffer, so memory is bounded whatever the size.
 *
 *	struct output_file o;
 *	output_open(&o, dir_fd, "model.bin", 0666, e);
 *	output_map(o.fd, &map, OUTPUT_SYNC, &progress, e);
 *	output_finish(&o, OUTPUT_SYNC, e);      // or output_abandon(&o)
 *
 * The file has a temporary name until output_finish, so nobody sees half of it.
 */
#ifndef FS_OUTPUT_H
#define FS_OUTPUT_H

#include "parsers/core/extmap.h"

struct output_progress {
	void (*add)(void *arg, uint64_t bytes); /* so many more bytes are written */
	void *arg;
};

struct output_file {
	int fd, dir_fd; /* dir_fd is borrowed */
	char *name, *temp;
};

enum {
	OUTPUT_REPLACE = 1, /* else EEXIST when the name is taken */
	OUTPUT_SYNC = 2,    /* durable before the name appears, and the name too */
};

/* Makes fd, a file that was empty, hold exactly the map. flags: OUTPUT_SYNC when it will be synced; the disk then
 * begins to write before everything is copied. progress may be NULL. */
int output_map(int fd, const struct extmap *m, unsigned flags, const struct output_progress *progress,
	struct error *e);

int output_open(struct output_file *o, int dir_fd, const char *name, mode_t mode, struct error *e);
/* Closes, and gives the file its name; on failure it is removed. */
int output_finish(struct output_file *o, unsigned flags, struct error *e);
void output_abandon(struct output_file *o); /* a zeroed or finished one is fine */

/* Removes temporary files in a directory whose writers died. */
void output_sweep(int dir_fd);

#endif
