/* SPDX-License-Identifier: MIT */
#include "parsers/not_a_model.h"

#include <errno.h>
#include <string.h>

enum { HEAD = 512 };

/* What the first bytes give away; the text completes "this is ...". skip: leading white space does not count. */
struct look {
	const char *begin;
	const char *text;
	bool skip_space;
};

static const struct look looks[] = {
	{"version https://git-lfs.github.com/spec/",
		"a git lfs pointer, not the model itself: fetch it with 'git lfs pull'", false},
	{"<!doctype html", "a web page (a download that went wrong?), not a model", true},
	{"<html", "a web page (a download that went wrong?), not a model", true},
	{"<?xml", "an xml document, not a model", true},
	{"{\\rtf", "a text document, not a model", false},
	{"\x89PNG", "a png image, not a model", false},
	{"\xff\xd8\xff", "a jpeg image, not a model", false},
	{"%PDF", "a pdf document, not a model", false},
	{"\x7f" "ELF", "a program, not a model", false},
	{"#!", "a script, not a model", false},
	{"\x1f\x8b", "gzip-compressed: unpack it first", false},
	{"\x28\xb5\x2f\xfd", "zstd-compressed: unpack it first", false},
	{"BZh", "bzip2-compressed: unpack it first", false},
	{"\xfd" "7zXZ", "xz-compressed: unpack it first", false},
	{"7z\xbc\xaf", "a 7z archive: unpack it first", false},
	{"PK\x03\x04", "a zip archive with no model that is known here", false},
	{"PK\x05\x06", "an empty zip archive", false},
	{"<\n   ir_version:", "onnx in its text syntax; save it as binary .onnx to open it", false},
	{"< ir_version:", "onnx in its text syntax; save it as binary .onnx to open it", true},
	{"<ir_version:", "onnx in its text syntax; save it as binary .onnx to open it", true},
	{"ir_version:", "onnx as protobuf text; save it as binary .onnx to open it", true},
};

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static bool looks_like(const struct look *l, const char *head, size_t n)
{
	size_t len = strlen(l->begin), i = 0;

	while (l->skip_space && i < n && is_space(head[i]))
		i++;
	if (n - i < len)
		return false;
	return l->skip_space ? strncasecmp(head + i, l->begin, len) == 0
			     : memcmp(head + i, l->begin, len) == 0;
}

static bool holds(const char *head, size_t n, const char *word)
{
	return memmem(head, n, word, strlen(word)) != NULL;
}

static bool is_text(const char *head, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)head[i] < 0x20 && !is_space(head[i]))
			return false;
	return true;
}

static const char *json_text(const char *head, size_t n)
{
	if (holds(head, n, "\"ir_version\"") || holds(head, n, "\"irVersion\""))
		return "onnx as json; save it as binary .onnx to open it";
	return "json, not a model that is known here";
}

int not_a_model(const struct input *in, struct error *e)
{
	char head[HEAD];
	size_t n, i = 0;
	int r;

	if (in->is_dir)
		return error_set(e, EINVAL, "this is a directory with no model that is known here");
	if (!in->src)
		return error_set(e, ENOENT, "no such file");
	if (source_size(in->src) == 0)
		return error_set(e, EINVAL, "this file is empty");
	n = source_size(in->src) < HEAD ? (size_t)source_size(in->src) : HEAD;
	r = source_read(in->src, 0, head, n, e);
	if (r < 0)
		return r;
	for (size_t k = 0; k < sizeof(looks) / sizeof(looks[0]); k++)
		if (looks_like(&looks[k], head, n))
			return error_set(e, EINVAL, "this is %s", looks[k].text);
	while (i < n && is_space(head[i]))
		i++;
	if (i < n && head[i] == '{' && is_text(head, n))
		return error_set(e, EINVAL, "this is %s", json_text(head, n));
	if (is_text(head, n))
		return error_set(e, EINVAL, "this is text, not a model");
	return error_set(e, EINVAL, "this is no model format that is known here");
}
