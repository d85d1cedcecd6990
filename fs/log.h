/* SPDX-License-Identifier: MIT */
/*
 * log: where messages go once nobody waits at the terminal: a file, syslog, or stderr in the foreground.
 * One target per process, chosen before the server shuts itself in. Each message is one line;
 * control characters are escaped, since names from model files end up here.
 */
#ifndef FS_LOG_H
#define FS_LOG_H

#include "parsers/core/error.h"

enum log_target { LOG_TO_STDERR, LOG_TO_SYSLOG, LOG_TO_FILE };

/* file: for LOG_TO_FILE, appended to. verbose: notes are written too. Opens the file, so that its name may be
 * wrong now and not later. */
int log_open(enum log_target target, const char *file, bool verbose, struct error *e);
void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool log_is_verbose(void);
/* The file's descriptor, which must survive when others are closed, or -1. */
int log_fd(void);
/* Connects to syslog, if that is the target: the sandbox forbids it later. */
void log_connect(void);

#endif
