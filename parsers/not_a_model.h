/* SPDX-License-Identifier: MIT */
/* What a file is that no driver recognised, for the message: an empty file, a web page, a pointer, a text form. */
#ifndef PARSERS_NOT_A_MODEL_H
#define PARSERS_NOT_A_MODEL_H

#include "parsers/core/input.h"

/* Always an error: EINVAL with the text that fits best, or what reading gave. */
int not_a_model(const struct input *in, struct error *e);

#endif
