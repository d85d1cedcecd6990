/* SPDX-License-Identifier: MIT */
/*
 * str: a string as pointer and length. Names in model files may hold any byte, NUL included, so
 * nothing here relies on a terminator. A str owns nothing; it lives as long as what it points into
 * (an arena, a literal).
 */
#ifndef PARSERS_CORE_STR_H
#define PARSERS_CORE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct str {
	const char *ptr;
	size_t len;
};

/* for a string literal, e.g. STR("value") */
#define STR(literal) ((struct str){(literal), sizeof(literal) - 1})
/* for printf: printf("%.*s", STR_ARG(s)); cut at 200 bytes so that messages stay one line */
#define STR_ARG(s) (int)((s).len < 200 ? (s).len : 200), (s).ptr ? (s).ptr : ""

static inline struct str str_from(const char *c)
{
	return (struct str){c, c ? strlen(c) : 0};
}

static inline bool str_eq(struct str a, struct str b)
{
	return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

static inline bool str_is(struct str a, const char *c)
{
	return str_eq(a, str_from(c));
}

/* byte order, shorter first on a tie */
static inline int str_cmp(struct str a, struct str b)
{
	size_t n = a.len < b.len ? a.len : b.len;
	int c = n ? memcmp(a.ptr, b.ptr, n) : 0;

	return c ? c : (a.len > b.len) - (a.len < b.len);
}

static inline bool str_starts(struct str a, struct str prefix)
{
	return a.len >= prefix.len && (prefix.len == 0 || memcmp(a.ptr, prefix.ptr, prefix.len) == 0);
}

static inline bool str_ends(struct str a, struct str suffix)
{
	return a.len >= suffix.len &&
	       (suffix.len == 0 || memcmp(a.ptr + a.len - suffix.len, suffix.ptr, suffix.len) == 0);
}

static inline uint64_t str_hash(struct str s)
{
	uint64_t h = 1469598103934665603u;

	for (size_t i = 0; i < s.len; i++)
		h = (h ^ (unsigned char)s.ptr[i]) * 1099511628211u;
	return h ^ (h >> 29);
}

/* Length of the well-formed UTF-8 sequence at text, of which `left` > 0 bytes are there; 0 if there is none (RFC 3629). */
size_t str_utf8_len(const char *text, size_t left);
/* true when the bytes are well-formed UTF-8 (no surrogates, no overlong forms, <= U+10FFFF) */
bool str_is_utf8(struct str s);

#endif
