/* SPDX-License-Identifier: MIT */
/* The list of a graph's inputs or outputs as JSON: in graph/inputs.json and in metadata.json. */
#ifndef VIEWS_GRAPH_PORTS_H
#define VIEWS_GRAPH_PORTS_H

#include "views/text.h"

void json_ports(struct json *j, const struct port *ports, uint32_t count);

#endif
