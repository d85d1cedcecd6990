/* SPDX-License-Identifier: MIT */
/*
 * The codecs between element encodings. Each constructor takes its own reference on the input extent and
 * returns a codec with one reference, or NULL when memory is out.
 */
#ifndef PARSERS_CODEC_CONVERT_H
#define PARSERS_CODEC_CONVERT_H

#include "parsers/core/codec.h"
#include "parsers/core/dtype.h"

/* stored bits of `count` elements (byte order as flagged) -> dtype_info(d)->npy, little-endian */
struct codec *codec_decode(const struct extent *in, enum dtype d, bool big_endian, uint64_t count);
/* swaps the byte order, element type unchanged */
struct codec *codec_swap(const struct extent *in, enum dtype d);
/* elements of `from` (ordinary type) -> stored bits of `to`; refuses what dtype_encode refuses, at read */
struct codec *codec_encode(const struct extent *in, enum dtype from, enum dtype to, uint64_t count);
/* Packed sub-byte elements -> one byte each, the bits in the low end (-o npy=bits), and back. */
struct codec *codec_unpack_bits(const struct extent *in, enum dtype d, uint64_t count);
struct codec *codec_pack_bits(const struct extent *in, enum dtype d, uint64_t count);
/*
 * Gathers a strided view to C order. strides and first are in elements of `elem` bytes and relative to
 * `in`; strides may be 0 or negative. The caller has checked that every index lies inside.
 */
struct codec *codec_gather(const struct extent *in, uint32_t elem, uint32_t rank, const uint64_t *shape,
	const int64_t *strides, uint64_t first);
/* CRC-32 (zlib's) of a map as 4 bytes little-endian, computed on first read. Takes a reference on map. */
struct codec *codec_crc32(struct extmap *map);

#endif
