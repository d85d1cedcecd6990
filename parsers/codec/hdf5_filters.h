/* SPDX-License-Identifier: MIT */
/* hdf5_filters: one chunk through its filters, backwards. */
#ifndef PARSERS_CODEC_HDF5_FILTERS_H
#define PARSERS_CODEC_HDF5_FILTERS_H

#include "parsers/container/hdf5.h"

/* Whether all filters that were applied to the chunk are known here. */
bool hdf5_filters_known(const struct hdf5_object *o, uint32_t skipped);
/* packed (size bytes, heap, taken over) -> exactly `want` bytes in *out (heap). */
int hdf5_unfilter(const struct hdf5_object *o, uint32_t skipped, unsigned char *packed, size_t size, size_t want,
	unsigned char **out, struct error *e);

#endif
