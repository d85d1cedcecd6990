/* SPDX-License-Identifier: MIT */
/* The few lines that unit tests need: CHECK counts, and tells where it failed; unit_done gives main's result. */
#ifndef TESTS_UNIT_UNIT_H
#define TESTS_UNIT_UNIT_H

#include <stdio.h>

static unsigned unit_checks, unit_failures;

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		unit_checks++;                                                                     \
		if (!(condition)) {                                                                \
			unit_failures++;                                                           \
			printf("%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);             \
		}                                                                                  \
	} while (0)

static inline int unit_done(const char *name)
{
	printf("%s: %u checks, %u failed\n", name, unit_checks, unit_failures);
	return unit_failures ? 1 : 0;
}

#endif
