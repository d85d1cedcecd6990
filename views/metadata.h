/* SPDX-License-Identifier: MIT */
/* What metadata.json and the files beside it share. */
#ifndef VIEWS_METADATA_H
#define VIEWS_METADATA_H

#include "parsers/core/value.h"

/*
 * `now` was parsed from text; JSON tells neither a driver's exact types (tags) nor float32. Takes them
 * over from the value that was shown at the same place; longer lists go on with the last one's. Depth is bounded
 * by the JSON parser's limit. False when memory is out.
 */
bool metadata_keep_types(struct arena *a, const struct value *old, struct value *now);

#endif
