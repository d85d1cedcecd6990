/* SPDX-License-Identifier: MIT */
/*
 * format: one model file format, reader and writer. A driver is one file with one `const struct format` at
 * its foot and one line in formats.def. A NULL member means "cannot".
 *
 * Probing: content decides. magics are compared first (each gives its length in bits); probe() may look
 * closer and answers in bits verified, 0 = not this format. The extension only breaks ties. Equal best
 * scores are an error that names both. probe allocates nothing that it does not release.
 */
#ifndef PARSERS_FORMAT_H
#define PARSERS_FORMAT_H

#include "parsers/core/edit.h"
#include "parsers/core/input.h"
#include "parsers/core/plan.h"

struct magic {
	uint32_t offset;
	uint32_t len;
	const char *bytes;
};

enum {
	CAN_VALUES = 1 << 0,  /* new values of the same shape and dtype */
	CAN_RESHAPE = 1 << 1,
	CAN_RETYPE = 1 << 2,
	CAN_RENAME = 1 << 3,
	CAN_ADD = 1 << 4,
	CAN_REMOVE = 1 << 5,
	CAN_METADATA = 1 << 6,
	CAN_FILES = 1 << 7,
	CAN_CREATE = 1 << 8,  /* plan() can write a model that came from another format */
	CAN_ALIASES = 1 << 9, /* shared storages survive */
	CAN_GRAPH = 1 << 10,  /* graphs survive (only from its own format) */
};

struct format {
	const char *name;  /* -o format=NAME, -o to=NAME: "onnx" */
	const char *title; /* in messages and metadata.json: "ONNX" */
	const char *const *extensions; /* ".onnx"; NULL-terminated. The first one names exports */
	const struct magic *magics;
	size_t magic_count;
	unsigned can;
	bool directories; /* input may be a directory or a bare prefix; then probe() must decide */

	/* Bits verified by looking at the content; 0 = not this. Negative errno only when reading failed. */
	int (*probe)(const struct input *in, struct error *e);
	/* Fills the model. Reads metadata only, never payloads. The caller calls model_finish. */
	int (*parse)(struct input *in, struct model *m, struct error *e);
	/* Whether this edit is possible; `m` is the present model. NULL = `can` says all. */
	int (*check_edit)(const struct model *m, const struct edit *edit, struct error *e);
	/* Called by model_plan. The files of m. With p->in_place, m->base was parsed by this format from the file that is being
	 * replaced: whatever was not edited must be copied as ranges, byte-identical. */
	int (*plan)(const struct model *m, struct plan *p, struct error *e);
	/* Keys of metadata "model" that it keeps natively (NULL-terminated); the rest go to properties as
	 * wiamodel.KEY when keeps_properties, else to the sidecar file. */
	const char *const *model_keys;
	bool keeps_properties; /* free string properties */
	/* Looks for damage that reading tensors does not show (checksums of members, ...): found() for each, one
	 * line. Reads payloads; for `wiamodel check` only. NULL = nothing more to look at. */
	int (*check)(const struct model *m, void (*found)(void *arg, const char *text), void *arg,
		struct error *e);
	/* Whether a tensor of this dtype has a place. NULL = all. */
	bool (*holds)(enum dtype d);
};

/* the table, in order of formats.def */
extern const struct format *const formats[];
extern const size_t format_count;
const struct format *format_by_name(const char *name);
/* by what a file name ends with; NULL when none or several */
const struct format *format_by_extension(const char *file_name);

/* What each driver said about an input; for status.json. */
struct verdict {
	const struct format *format;
	int bits;
};

/* The format of an input. forced = -o format= or NULL. EINVAL with a text that says what the file is when it
 * is no model (empty, HTML, Git LFS pointer and how to fetch it, text form of a known format, ...).
 * verdicts: format_count entries or NULL. */
int format_detect(const struct input *in, const char *forced, const struct format **out,
	struct verdict *verdicts, struct error *e);

/* input -> model: detect, parse, finish. One reference in *out. */
int model_open(struct input *in, const char *forced, struct model **out, struct error *e);
/* path -> model, for mount and command line alike. step: as struct input's; verdicts: as for format_detect; *st gets the
 * state of the file, for a prefix that of its directory. */
int model_open_path(const char *path, const char *forced, int64_t step, struct verdict *verdicts,
	struct stat *st, struct model **out, struct error *e);

/* model -> the files of it in format f: metadata that f has no field for goes where it is kept (core/metadata.h),
 * f->plan, the sidecar. The maps borrow from m and p->arena. */
int model_plan(const struct model *m, const struct format *f, struct plan *p, struct error *e);

#endif
