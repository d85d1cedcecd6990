/* SPDX-License-Identifier: MIT */
#include "parsers/core/error.h"
#include "parsers/core/str.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <string.h>

static void reporting(void)
{
	struct error e = {0};

	CHECK(error_set(&e, EIO, "tensor '%s' has %d", "w", 3) == -EIO);
	CHECK(e.code == EIO && strcmp(e.text, "tensor 'w' has 3") == 0);
	/* the first report wins, and the code returned is still the caller's */
	CHECK(error_set(&e, EINVAL, "something else") == -EINVAL);
	CHECK(e.code == EIO && strcmp(e.text, "tensor 'w' has 3") == 0);
	error_clear(&e);
	CHECK(e.code == 0 && !*e.text);
	CHECK(error_at(&e, EINVAL, 1ull << 40, "odd") == -EINVAL);
	CHECK(strcmp(e.text, "byte 1099511627776: odd") == 0);
	CHECK(error_set(NULL, ENOENT, "nobody listens") == -ENOENT && error_at(NULL, EIO, 0, "x") == -EIO);
	error_clear(NULL);
}

static void prefixing(void)
{
	struct error e = {0};

	CHECK(error_prefix(&e, "file") == 0 && !*e.text);
	CHECK(error_prefix(NULL, "file") == 0);
	error_set(&e, EIO, "bad");
	CHECK(error_prefix(&e, "a\nb") == -EIO && strcmp(e.text, "a\\nb: bad") == 0);
	/* not escaped twice */
	error_clear(&e);
	error_set(&e, EIO, "one\\two\n");
	error_prefix(&e, "p");
	CHECK(strcmp(e.text, "p: one\\two\\n") == 0);
}

/* Names of hostile files stay one line of text that no terminal obeys. */
static void escaping(void)
{
	static const struct {
		const char *raw, *shown;
	} all[] = {
		{"new\nline", "new\\nline"},
		{"\x1b[31mred", "\\x1b[31mred"},
		{"\t\r\x7f", "\\x09\\x0d\\x7f"},
		{"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x90\x8d", "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x90\x8d"},
		{"\xff\xc3(", "\\xff\\xc3("},
		{"cut \xe2\x82", "cut \\xe2\\x82"},
		{"\xc2\x9b" "31m", "\\xc2\\x9b31m"}, /* a control sequence, too */
	};
	char raw[600];
	struct error e = {0};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		error_clear(&e);
		error_set(&e, EIO, "%s", all[i].raw);
		CHECK(strcmp(e.text, all[i].shown) == 0);
	}
	/* longer than there is room: cut between characters and escapes, ended */
	for (size_t shift = 0; shift < 5; shift++) {
		static const char *const fill[] = {"\xe2\x82\xac", "\n", "\x01", "x"};

		for (size_t k = 0; k < 4; k++) {
			memset(raw, 'a', shift);
			raw[shift] = '\0';
			while (strlen(raw) + 4 < sizeof(raw))
				strcat(raw, fill[k]);
			error_clear(&e);
			error_set(&e, EIO, "%s", raw);
			CHECK(strlen(e.text) < sizeof(e.text) && strlen(e.text) > sizeof(e.text) - 8);
			CHECK(str_is_utf8(str_from(e.text)) && !strchr(e.text, '\n'));
			CHECK(error_prefix(&e, raw) == -EIO && str_is_utf8(str_from(e.text)));
		}
	}
}

int main(void)
{
	reporting();
	prefixing();
	escaping();
	return unit_done("error");
}
