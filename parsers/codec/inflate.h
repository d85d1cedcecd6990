/* SPDX-License-Identifier: MIT */
/* A raw deflate stream, unpacked when read. Reading on is cheap; going back starts from the nearest of a few
 * kept states, so access is random at bounded memory. The end is compared with the CRC when all was read in order. */
#ifndef PARSERS_CODEC_INFLATE_H
#define PARSERS_CODEC_INFLATE_H

#include "parsers/core/codec.h"

/* Takes its own reference on `in`; size of the output; NULL when memory is out. */
struct codec *codec_inflate(const struct extent *in, uint64_t size, uint32_t crc);

#endif
