/* SPDX-License-Identifier: MIT */
#include "parsers/keras.h"

int keras_add_graph(struct keras *k, struct error *e)
{
	(void)k;
	(void)e;
	return 0;
}
