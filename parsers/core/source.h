/* SPDX-License-Identifier: MIT */
/*
 * source: where bytes come from; a file or memory today. Reference counted, thread-safe for reading.
 * Drivers read through it (mostly by a cursor) and never hold a pointer into it; source_peek exists for
 * the one place that hands bytes to the kernel.
 */
#ifndef PARSERS_CORE_SOURCE_H
#define PARSERS_CORE_SOURCE_H

#include "parsers/core/error.h"
#include "parsers/core/str.h"

#include <sys/stat.h>

struct source;

/* Takes over fd (closed on failure too). `name` is for messages and shards, copied. The size is fixed
 * at this moment; a file that shrinks later reads as EIO. Only regular files. */
int source_from_fd(int fd, const char *name, struct source **out, struct error *e);
/* Opens a path the user named (symlinks followed). */
int source_open(const char *path, struct source **out, struct error *e);
/* Takes over heap memory (free()d at the end), NULL when memory is out (then bytes is freed). */
struct source *source_from_memory(void *bytes, size_t size, const char *name);
struct source *source_ref(struct source *s);
void source_unref(struct source *s);

uint64_t source_size(const struct source *s);
const char *source_name(const struct source *s);
/* -1 for memory */
int source_fd(const struct source *s);
/* the file's state when it was opened; zeroed for memory */
const struct stat *source_stat(const struct source *s);

/* Exactly len bytes or a negative errno (EIO: range outside, or the file shrank). */
int source_read(struct source *s, uint64_t offset, void *buf, size_t len, struct error *e);
/* A pointer to len bytes that the kernel may copy from, or NULL. Touching it in user space may raise
 * SIGBUS if the file shrank: only for writev(2) and the like, which give EFAULT then. */
const void *source_peek(struct source *s, uint64_t offset, size_t len);

#endif
