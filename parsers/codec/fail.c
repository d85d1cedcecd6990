/* SPDX-License-Identifier: MIT */
#include "parsers/codec/fail.h"

#include <stdlib.h>

struct fail {
	struct codec base;
	int code;
	size_t len;
	char text[];
};

static int fail_read(struct codec *c, uint64_t offset, void *buf, size_t len, struct error *e)
{
	const struct fail *f = (const struct fail *)c;

	(void)offset;
	(void)buf;
	if (!len)
		return 0;
	return error_set(e, f->code, "%.*s", STR_ARG(((struct str){f->text, f->len})));
}

static void fail_free(struct codec *c)
{
	free(c);
}

static const struct codec_ops fail_ops = {.name = "damaged", .read = fail_read, .free = fail_free};

struct codec *codec_fail(uint64_t size, int code, struct str text)
{
	struct fail *f = malloc(sizeof(*f) + text.len);

	if (!f)
		return NULL;
	codec_init(&f->base, &fail_ops, size);
	f->code = code;
	f->len = text.len;
	if (text.len)
		memcpy(f->text, text.ptr, text.len);
	return &f->base;
}
