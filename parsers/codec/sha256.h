/* SPDX-License-Identifier: MIT */
/*
 * sha256: SHA-256 of bytes that are read in pieces, so memory stays bounded whatever the size.
 *
 *	struct sha256 *h = sha256_new();
 *	sha256_update(h, buf, len);
 *	sha256_final(h, out);       // sticky: reports what failed before
 *	sha256_free(h);
 */
#ifndef PARSERS_CODEC_SHA256_H
#define PARSERS_CODEC_SHA256_H

#include "parsers/core/extmap.h"

#define SHA256_BYTES 32

struct sha256;

struct sha256 *sha256_new(void); /* NULL when memory is out */
void sha256_update(struct sha256 *h, const void *buf, size_t len); /* NULL h is fine */
int sha256_final(struct sha256 *h, uint8_t out[SHA256_BYTES]);     /* -ENOMEM when anything failed */
void sha256_free(struct sha256 *h);

/* Of all bytes of an extent or a map. */
int sha256_extent(const struct extent *x, uint8_t out[SHA256_BYTES], struct error *e);
int sha256_map(const struct extmap *m, uint8_t out[SHA256_BYTES], struct error *e);
/* 64 lower-case digits and a NUL */
void sha256_hex(const uint8_t sum[SHA256_BYTES], char out[2 * SHA256_BYTES + 1]);

#endif
