/* SPDX-License-Identifier: MIT */
#include "parsers/core/str.h"

size_t str_utf8_len(const char *text, size_t left)
{
	const unsigned char *p = (const unsigned char *)text;
	unsigned char b = p[0];
	size_t n = b < 0x80 ? 1 : b >= 0xc2 && b < 0xe0 ? 2 : (b & 0xf0) == 0xe0 ? 3 : b >= 0xf0 && b < 0xf5 ? 4 : 0;

	if (n == 0 || n > left)
		return 0;
	for (size_t i = 1; i < n; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	if ((b == 0xe0 && p[1] < 0xa0) || (b == 0xed && p[1] >= 0xa0) || (b == 0xf0 && p[1] < 0x90) ||
		(b == 0xf4 && p[1] >= 0x90))
		return 0;
	return n;
}

bool str_is_utf8(struct str s)
{
	for (size_t i = 0; i < s.len;) {
		size_t n = str_utf8_len(s.ptr + i, s.len - i);

		if (n == 0)
			return false;
		i += n;
	}
	return true;
}
