/* SPDX-License-Identifier: MIT */
/*
 * zip: where the members of an archive lie, and archives as extent maps. libzip tells no payload offset and
 * cannot copy members as they are; formats whose members are mapped or kept byte for byte need both. Reads stored and
 * deflated members, zip64, archives without junk in front (APPNOTE 6.3.10).
 *
 *	local header · name · extra · payload [· descriptor]   for each member
 *	central header · name · extra · comment                for each member
 *	[zip64 end, its locator] · end
 */
#ifndef PARSERS_CONTAINER_ZIP_H
#define PARSERS_CONTAINER_ZIP_H

#include "parsers/core/arena.h"
#include "parsers/core/extmap.h"

enum { ZIP_STORED = 0, ZIP_DEFLATED = 8 };

struct zip_member {
	struct str name;
	uint16_t method, flags;
	uint32_t crc;
	uint64_t packed, size; /* bytes of the payload, and unpacked */
	uint64_t local;        /* offset of its local header */
	uint64_t payload;      /* offset of the payload */
	uint64_t end;          /* behind the payload and its descriptor */
	uint64_t entry;        /* offset of its central header */
	uint32_t entry_size;
};

struct zip {
	struct source *src; /* borrowed */
	struct zip_member *members; /* in order of the central directory */
	size_t count;
	uint64_t directory; /* where the central directory begins */
	struct str comment; /* of the archive */
};

/* Whether the end of an archive is there. */
bool zip_is(struct source *src);
int zip_read(struct source *src, struct arena *a, struct zip *out, struct error *e);
/* The unpacked content as one piece; a reference in *out. EOPNOTSUPP: encrypted or packed by another method. */
int zip_content(const struct zip *z, const struct zip_member *m, struct extent *out, struct error *e);
/* Reads the whole member and compares its CRC. EIO when it differs. */
int zip_check(const struct zip *z, const struct zip_member *m, struct error *e);

/* ---- an archive to be written ---- */

struct zip_writer {
	struct extmap *out;
	struct extmap *directory;
	uint64_t begin, count;
	struct str comment; /* set by whoever keeps the old one; at most 65535 bytes, borrowed until zip_end */
};

int zip_begin(struct zip_writer *w, struct extmap *out); /* -ENOMEM; then zip_release is not needed */
/* A stored member; align: the payload begins at a multiple of it (0 or 1 = anywhere). Takes a reference on content. */
int zip_add(struct zip_writer *w, struct str name, struct extmap *content, uint32_t align);
/* A member of another archive as it is, local header and all; under another name when `name` is not its own. */
int zip_copy(struct zip_writer *w, const struct zip *z, const struct zip_member *m, struct str name);
/* The directory and the end; releases w, as zip_release does when this is not reached. */
int zip_end(struct zip_writer *w, struct error *e);
void zip_release(struct zip_writer *w);

#endif
