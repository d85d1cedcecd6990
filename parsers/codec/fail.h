/* SPDX-License-Identifier: MIT */
/*
 * A codec of a known size whose every read fails with one reason: what stands in for damaged content, so
 * that sizes stay true.
 */
#ifndef PARSERS_CODEC_FAIL_H
#define PARSERS_CODEC_FAIL_H

#include "parsers/core/codec.h"

/* text is copied; NULL when memory is out */
struct codec *codec_fail(uint64_t size, int code, struct str text);

#endif
