/* SPDX-License-Identifier: MIT */
/* Children that answer, fail, crash, hang, eat memory, reach out. */
#include "tests/unit/unit.h"

#include "parsers/core/child.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int answer(void *arg, struct reply *r, struct error *e)
{
	(void)e;
	for (uint32_t i = 0; i < *(uint32_t *)arg; i++)
		reply_u32(r, i);
	return 0;
}

static int fail(void *arg, struct reply *r, struct error *e)
{
	(void)arg;
	reply_u32(r, 7);
	return error_set(e, ENODATA, "nothing in it");
}

static __attribute__((unused)) int crash(void *arg, struct reply *r, struct error *e)
{
	(void)r;
	(void)e;
	*(volatile int *)arg = 1;
	return 0;
}

static int hang(void *arg, struct reply *r, struct error *e)
{
	(void)r;
	(void)e;
	while (!*(volatile int *)arg)
		;
	return 0;
}

static int vanish(void *arg, struct reply *r, struct error *e)
{
	(void)arg;
	(void)r;
	(void)e;
	_exit(0);
}

static int flood(void *arg, struct reply *r, struct error *e)
{
	static char block[1 << 20];

	(void)arg;
	(void)e;
	for (int i = 0; i < 400; i++)
		reply_bytes(r, block, sizeof(block));
	return 0;
}

/* bit i: attempt i succeeded */
static __attribute__((unused)) int reach_out(void *arg, struct reply *r, struct error *e)
{
	char *volatile big = malloc((size_t)3 << 30); /* volatile: or clang takes it for granted */

	(void)arg;
	(void)e;
	reply_u32(r, (uint32_t)((open("/", O_RDONLY) >= 0) | (socket(AF_UNIX, SOCK_STREAM, 0) >= 0) << 1 | (fork() >= 0) << 2 |
		(execl("/bin/true", "true", (char *)NULL) >= 0) << 3 | (big != NULL) << 4 | (write(1, "", 0) >= 0) << 5));
	free(big);
	return 0;
}

static const char *run(int (*work)(void *, struct reply *, struct error *), void *arg, struct source **out)
{
	static struct error e;

	e = (struct error){0};
	return child_run("the test", NULL, work, arg, out, &e) == 0 ? "" : e.text;
}

int main(void)
{
	uint32_t count = 100000, got = 0;
	int zero = 0;
	struct source *s = NULL;
	const char *text = run(answer, &count, &s);

	CHECK(!text[0] && s && source_size(s) == 400000);
	CHECK(s && source_read(s, 4 * 99999, &got, 4, NULL) == 0 && got == 99999);
	source_unref(s);
	CHECK(strcmp(run(fail, NULL, &s), "nothing in it") == 0 && !s);
	CHECK(strstr(run(vanish, NULL, &s), "ended without an answer") && !s);
	CHECK(run(flood, NULL, &s)[0] && !s);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	CHECK(strstr(run(crash, NULL, &s), "crashed on this file (Segmentation fault)") && !s);
	text = run(reach_out, NULL, &s);
	CHECK(!text[0] && s && source_read(s, 0, &got, 4, NULL) == 0 && got == 0);
	source_unref(s);
#endif
	child_limits_set(1, 0);
	CHECK(strstr(run(hang, &zero, &s), "longer than 1 second") && !s);
	CHECK(waitpid(-1, NULL, 0) < 0 && errno == ECHILD); /* none is left */
	return unit_done("child");
}
