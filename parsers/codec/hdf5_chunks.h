/* SPDX-License-Identifier: MIT */
/*
 * hdf5_chunks: an array stored as chunks, each packed by a row of filters, as plain elements in C order. Random access:
 * decoded chunks stay in one cache of the process, as many as LIMIT_CACHE holds, or one row of chunks of the array
 * that is being read when that is more (at most 128 MiB).
 */
#ifndef PARSERS_CODEC_HDF5_CHUNKS_H
#define PARSERS_CODEC_HDF5_CHUNKS_H

#include "parsers/container/hdf5.h"
#include "parsers/core/codec.h"

/* o is borrowed, a reference on content and src is taken; src is what a child may read. NULL when memory is out. */
struct codec *codec_hdf5_chunks(const struct hdf5_object *o, const struct extent *content, struct source *src);
/* One element over and over; fill is borrowed. */
struct codec *codec_hdf5_fill(struct str fill, uint64_t size);

#endif
