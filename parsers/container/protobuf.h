/* SPDX-License-Identifier: MIT */
/*
 * protobuf: walks a message in the wire format and hands each field to a callback, with the range of the
 * file that it takes. Payloads are skipped, never read: a walk costs what the metadata costs.
 *
 * Which length-delimited fields are messages is told by a table per message type; all others are handed
 * over as one range. Depth, lengths, tags and wire types are checked on the way.
 */
#ifndef PARSERS_CONTAINER_PROTOBUF_H
#define PARSERS_CONTAINER_PROTOBUF_H

#include "parsers/core/cursor.h"

enum pb_wire { PB_VARINT = 0, PB_FIXED64 = 1, PB_BYTES = 2, PB_FIXED32 = 5 };

struct pb_type {
	const struct pb_child {
		uint32_t field;
		const struct pb_type *type;
	} *children; /* the fields that hold messages; ends with field 0 */
};

struct pb_field {
	const struct pb_type *parent; /* the message that holds it */
	const struct pb_type *type;   /* its own, NULL = no message */
	uint32_t number;
	enum pb_wire wire;
	unsigned depth;     /* 0 = a field of the outermost message */
	uint64_t value;     /* of numbers, as their bits */
	uint64_t tag;       /* where the field begins, its tag included */
	uint64_t pos, size; /* of its content */
};

/* Called for each field in order of the file, a message before its fields. Negative errno ends the walk. */
typedef int pb_visit(void *arg, const struct pb_field *f, struct error *e);

int pb_walk(struct source *src, uint64_t offset, uint64_t size, const struct pb_type *type, pb_visit *visit,
	void *arg, struct error *e);

#endif
