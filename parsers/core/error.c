/* SPDX-License-Identifier: MIT */
#include "parsers/core/error.h"

#include "parsers/core/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void error_clear(struct error *e)
{
	if (e) {
		e->code = 0;
		e->text[0] = '\0';
	}
}

/* The next character, or one byte escaped, as text; returns how many bytes of raw it stands for. */
static size_t escaped(const char *raw, size_t left, char piece[12])
{
	unsigned char c = (unsigned char)*raw;
	size_t n = str_utf8_len(raw, left);

	if (c == '\n') {
		strcpy(piece, "\\n");
	} else if (n == 0 || c < 0x20 || c == 0x7f) {
		snprintf(piece, 12, "\\x%02x", c);
	} else if (c == 0xc2 && (unsigned char)raw[1] < 0xa0) { /* U+0080 to U+009F: terminals obey some of them */
		snprintf(piece, 12, "\\xc2\\x%02x", (unsigned char)raw[1]);
	} else {
		memcpy(piece, raw, n);
		piece[n] = '\0';
	}
	return n ? n : 1;
}

/* One line of UTF-8, whatever a file's names hold. */
static void put_escaped(struct error *e, const char *raw)
{
	size_t n = 0, left = strlen(raw);

	while (left) {
		char piece[12];
		size_t taken = escaped(raw, left, piece), len = strlen(piece);

		if (n + len >= sizeof(e->text))
			break;
		memcpy(e->text + n, piece, len);
		n += len;
		raw += taken;
		left -= taken;
	}
	e->text[n] = '\0';
}

static int report(struct error *e, int code, const char *prefix, const char *format, va_list ap)
	__attribute__((format(printf, 4, 0)));
static int report(struct error *e, int code, const char *prefix, const char *format, va_list ap)
{
	char raw[sizeof(e->text)];
	int n;

	if (!e || e->code)
		return -code;
	n = snprintf(raw, sizeof(raw), "%s", prefix);
	vsnprintf(raw + n, sizeof(raw) - (size_t)n, format, ap);
	e->code = code;
	put_escaped(e, raw);
	return -code;
}

int error_set(struct error *e, int code, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	report(e, code, "", format, ap);
	va_end(ap);
	return -code;
}

int error_at(struct error *e, int code, uint64_t offset, const char *format, ...)
{
	char prefix[40];
	va_list ap;

	snprintf(prefix, sizeof(prefix), "byte %llu: ", (unsigned long long)offset);
	va_start(ap, format);
	report(e, code, prefix, format, ap);
	va_end(ap);
	return -code;
}

int error_prefix(struct error *e, const char *prefix)
{
	char whole[sizeof(e->text) * 2 + 4];

	if (!e || !e->code)
		return 0;
	snprintf(whole, sizeof(whole), "%.*s: %s", (int)sizeof(e->text), prefix, e->text);
	put_escaped(e, whole);
	return -e->code;
}
