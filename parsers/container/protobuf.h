/* SPDX-License-Identifier: MIT */
/*
 * protobuf: the wire format without copying payloads.
 *
 * pb_scan walks a message in a source once, iteratively, checks what protobuf-c does not (depth, bounds, varints)
 * and writes a skeleton: the same message without its payload fields, which protobuf-c then unpacks. Messages whose
 * type has a record_field get that field appended with the number of a record, which tells where the message
 * and its payloads lie in the file. Repeated numbers are payloads too, packed or not: neighbours that are not
 * packed make one payload, tags included.
 *
 * pb_rewrite goes the other way: it copies a message as ranges of the source, but for the fields that a visitor
 * replaces, drops or opens; length prefixes above a change are new. So what nobody edited stays byte-identical,
 * unknown fields included.
 *
 * Source: protobuf encoding documentation (wire types 0, 1, 2, 5; groups are refused).
 */
#ifndef PARSERS_CONTAINER_PROTOBUF_H
#define PARSERS_CONTAINER_PROTOBUF_H

#include "parsers/core/arena.h"
#include "parsers/core/extmap.h"

enum pb_wire { PB_VARINT = 0, PB_FIXED64 = 1, PB_BYTES = 2, PB_FIXED32 = 5 };

enum pb_kind {
	PB_PLAIN,   /* stays in the skeleton (also every field that no table names) */
	PB_MESSAGE, /* a message of type `type` */
	PB_BLOB,    /* bytes: elided from `pb_type.blob_min` on */
	PB_NUMBERS, /* repeated numbers: always elided */
};

struct pb_type;
struct pb_field {
	uint32_t number;
	enum pb_kind kind;
	const struct pb_type *type;
};

struct pb_type {
	const char *name; /* for messages: "TensorProto" */
	const struct pb_field *fields;
	size_t field_count;
	uint32_t record_field; /* 0 = none */
	uint32_t blob_min;     /* bytes; 0 = elide always */
};

struct pb_payload {
	uint32_t field;
	enum pb_wire wire; /* PB_BYTES: a blob or packed numbers; others: a run of tagged numbers */
	uint64_t offset, size;
};

struct pb_record {
	uint64_t offset, size; /* the message's body in the source */
	uint32_t first_payload, payload_count;
};

struct pb_skeleton {
	unsigned char *bytes;
	size_t len, cap;
	struct pb_record *records;
	uint32_t record_count, record_cap;
	struct pb_payload *payloads; /* those of one record are neighbours, in file order */
	uint32_t payload_count, payload_cap;
};

int pb_scan(struct source *src, uint64_t offset, uint64_t size, const struct pb_type *root,
	struct pb_skeleton *out, struct error *e);
void pb_skeleton_release(struct pb_skeleton *s);

/* An allocator for generated ..._unpack functions (their ProtobufCAllocator) that takes from an arena: nothing is
 * freed one by one. Valid as long as the arena. */
struct ProtobufCAllocator *pb_arena_allocator(struct arena *a);
/* Reports why unpacking gave NULL: memory, or content that is no such message. */
int pb_unpack_failed(const struct ProtobufCAllocator *allocator, const char *message, struct error *e);

/* ---- rewriting ---- */

struct pb_visit {
	const struct pb_type *type; /* of the message that holds the field */
	uint32_t number;
	enum pb_wire wire;
	uint64_t varint;        /* value of PB_VARINT and fixed fields */
	uint64_t offset, size;  /* PB_BYTES: its content in the source */
	uint32_t index;         /* how many of this number came before in this message */
	unsigned depth;         /* 0: a field of the root message */
	void *parent;           /* what `opened` gave for the message that holds the field */
};

enum pb_action { PB_COPY, PB_DROP, PB_OPEN, PB_REPLACE };

/* Decides about one field. PB_OPEN: look inside (a PB_MESSAGE field). PB_REPLACE: put `with` (whole fields, tags
 * included) in its place. Negative errno stops. */
struct pb_visitor {
	int (*field)(void *arg, const struct pb_visit *v, struct extmap *with, struct error *e);
	/* an opened message begins; its result is v->parent for the fields inside. May be NULL */
	void *(*opened)(void *arg, const struct pb_visit *v);
	/* all fields of an opened message (or the root) were seen: more may be appended. May be NULL */
	int (*closing)(void *arg, const struct pb_visit *message, struct extmap *append, struct error *e);
	void *arg;
};

/* Appends the rewritten message body to out. Messages in which nothing changed are copied as one range. */
int pb_rewrite(struct source *src, uint64_t offset, uint64_t size, const struct pb_type *root,
	const struct pb_visitor *visitor, struct extmap *out, struct error *e);

/* Fields of new messages, appended to a map. */
int pb_put_varint_field(struct extmap *m, uint32_t number, uint64_t v);
int pb_put_bytes_field(struct extmap *m, uint32_t number, struct str s);
/* tag and length prefix, then the map's pieces */
int pb_put_map_field(struct extmap *m, uint32_t number, const struct extmap *content);
int pb_put_extent_field(struct extmap *m, uint32_t number, const struct extent *content);
size_t pb_varint_size(uint64_t v);

#endif
