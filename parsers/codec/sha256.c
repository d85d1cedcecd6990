/* SPDX-License-Identifier: MIT */
#include "parsers/codec/sha256.h"

#include <errno.h>
#include <stdlib.h>

#include <openssl/err.h>
#include <openssl/evp.h>

#define CHUNK (128u << 10)

struct sha256 {
	EVP_MD_CTX *ctx;
	bool failed;
};

struct sha256 *sha256_new(void)
{
	struct sha256 *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->ctx = EVP_MD_CTX_new();
	if (!h->ctx || EVP_DigestInit_ex(h->ctx, EVP_sha256(), NULL) != 1) {
		ERR_clear_error(); /* what it keeps for each thread about a failure */
		sha256_free(h);
		return NULL;
	}
	return h;
}

void sha256_update(struct sha256 *h, const void *buf, size_t len)
{
	if (h && EVP_DigestUpdate(h->ctx, buf, len) != 1)
		h->failed = true;
}

int sha256_final(struct sha256 *h, uint8_t out[SHA256_BYTES])
{
	if (!h || h->failed || EVP_DigestFinal_ex(h->ctx, out, NULL) != 1)
		return -ENOMEM;
	return 0;
}

void sha256_free(struct sha256 *h)
{
	if (!h)
		return;
	EVP_MD_CTX_free(h->ctx);
	free(h);
}

typedef int (*reader)(const void *from, uint64_t offset, void *buf, size_t len, struct error *e);

static int sum(reader read, const void *from, uint64_t size, uint8_t out[SHA256_BYTES],
	struct error *e)
{
	struct sha256 *h = sha256_new();
	unsigned char *buf = malloc(CHUNK);
	int r = h && buf ? 0 : error_set(e, ENOMEM, "out of memory for a checksum");

	for (uint64_t at = 0; !r && at < size;) {
		size_t n = size - at < CHUNK ? (size_t)(size - at) : CHUNK;

		r = read(from, at, buf, n, e);
		if (!r)
			sha256_update(h, buf, n);
		at += n;
	}
	if (!r && sha256_final(h, out) < 0)
		r = error_set(e, ENOMEM, "the checksum library failed");
	free(buf);
	sha256_free(h);
	return r;
}

static int read_extent(const void *from, uint64_t offset, void *buf, size_t len, struct error *e)
{
	return extent_read(from, offset, buf, len, e);
}

static int read_map(const void *from, uint64_t offset, void *buf, size_t len, struct error *e)
{
	return extmap_read(from, offset, buf, len, e);
}

int sha256_extent(const struct extent *x, uint8_t out[SHA256_BYTES], struct error *e)
{
	return sum(read_extent, x, x->size, out, e);
}

int sha256_map(const struct extmap *m, uint8_t out[SHA256_BYTES], struct error *e)
{
	return sum(read_map, m, m->size, out, e);
}

void sha256_hex(const uint8_t s[SHA256_BYTES], char out[2 * SHA256_BYTES + 1])
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < SHA256_BYTES; i++) {
		out[2 * i] = digits[s[i] >> 4];
		out[2 * i + 1] = digits[s[i] & 15];
	}
	out[2 * SHA256_BYTES] = '\0';
}
