/* SPDX-License-Identifier: MIT */
/*
 * sidecar: MODEL.wiamodel.json, for the model keys and the preprocessing section of formats that have no place
 * for them at all. It is made only when such a key is set, read with the model, saved with it, and dropped
 * when nothing is left in it.
 */
#ifndef PARSERS_SIDECAR_H
#define PARSERS_SIDECAR_H

#include "parsers/format.h"

#define SIDECAR_SUFFIX ".wiamodel.json"

/* Adds what the sidecar says, if there is one. A malformed one is a warning of the model, not an error. */
int sidecar_read(const struct input *in, struct model *m, struct error *e);
/* Adds the file to a plan; keys NULL = none is needed, an old one becomes obsolete. */
int sidecar_plan(const struct model *m, const struct value *keys, struct plan *p, struct error *e);

#endif
