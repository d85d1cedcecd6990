/* SPDX-License-Identifier: MIT */
/*
 * numbers: repeated protobuf numbers, packed or not, as a plain little-endian array. Varints have no fixed width, so
 * the codec keeps a restart point for every 4096 numbers, made at the first read.
 */
#ifndef PARSERS_CODEC_NUMBERS_H
#define PARSERS_CODEC_NUMBERS_H

#include "parsers/container/protobuf.h"
#include "parsers/core/codec.h"

/* The first `count` payloads of `runs` (copied) with numbers of `wire` type, each giving its low `width` bytes;
 * `expected` numbers in all, else reading fails. NULL when memory is out. */
struct codec *codec_numbers(struct source *src, const struct pb_payload *runs, uint32_t run_count,
	enum pb_wire wire, uint32_t width, uint64_t expected);

#endif
