/* SPDX-License-Identifier: MIT */
/*
 * error: why something failed, in one line.
 *
 * Functions that can fail return 0 or a negative errno and take a `struct error *` last. The caller
 * owns it, clears it once (error_clear or = {0}), and may pass NULL. The first report wins, so the place
 * nearest to the cause speaks. Text is lower case without a full stop: what failed, the 'object',
 * expected and actual. File and format names are put in front by whoever knows them (error_prefix).
 *
 * Codes: ENOENT absent, EIO corrupt or unreadable, EINVAL refused edit or request, EOPNOTSUPP cannot,
 * EROFS read-only, ENOMEM a budget or memory exhausted, others as the system gave them.
 */
#ifndef PARSERS_CORE_ERROR_H
#define PARSERS_CORE_ERROR_H

#include <stdbool.h>
#include <stdint.h>

struct error {
	int code; /* positive errno, 0 = no error */
	char text[512];
};

void error_clear(struct error *e);

/* Reports; returns -code. Control characters in the text are shown escaped (\n as \\n). */
int error_set(struct error *e, int code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* The same with "byte OFFSET: " in front. */
int error_at(struct error *e, int code, uint64_t offset, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* Puts "PREFIX: " before a text already reported; nothing when there is none. Returns -code. */
int error_prefix(struct error *e, const char *prefix);

#endif
