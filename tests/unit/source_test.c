/* SPDX-License-Identifier: MIT */
#include "parsers/core/source.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[] = "/tmp/wiamodel-source-XXXXXX";

static const char *path_of(const char *name)
{
	static char path[64];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static void write_file(const char *name, const char *text, size_t size)
{
	FILE *f = fopen(path_of(name), "wb");

	CHECK(f && fwrite(text, 1, size, f) == size && fclose(f) == 0);
}

/* What holds for any source with these ten bytes. */
static void ten(struct source *s)
{
	char buf[16];
	struct error e = {0};
	const char *p;

	CHECK(source_size(s) == 10);
	CHECK(source_read(s, 0, buf, 10, &e) == 0 && memcmp(buf, "0123456789", 10) == 0);
	CHECK(source_read(s, 3, buf, 4, &e) == 0 && memcmp(buf, "3456", 4) == 0);
	CHECK(source_read(s, 10, buf, 0, &e) == 0 && e.code == 0);
	CHECK(source_read(s, 8, buf, 3, &e) == -EIO && strstr(e.text, "byte 8: 3 bytes are expected") && strstr(e.text, "ends at 10"));
	error_clear(&e);
	CHECK(source_read(s, 11, buf, 0, &e) == -EIO);
	CHECK(source_read(s, UINT64_MAX, buf, 2, NULL) == -EIO && source_read(s, 1, buf, SIZE_MAX, NULL) == -EIO);
	p = source_peek(s, 2, 3);
	CHECK(p && memcmp(p, "234", 3) == 0);
	CHECK(!source_peek(s, 8, 3) && !source_peek(s, UINT64_MAX, 2));
	CHECK(source_ref(s) == s);
	source_unref(s); /* still there */
	CHECK(source_read(s, 9, buf, 1, NULL) == 0 && *buf == '9');
}

static void memory(void)
{
	char *bytes = malloc(10);
	struct source *s;

	memcpy(bytes, "0123456789", 10);
	s = source_from_memory(bytes, 10, "in memory");
	ten(s);
	CHECK(source_fd(s) == -1 && strcmp(source_name(s), "in memory") == 0 && source_stat(s)->st_ino == 0);
	source_unref(s);
	source_unref(NULL);
	CHECK(!source_ref(NULL));
}

static void file(void)
{
	struct source *s = NULL;
	struct error e = {0};
	char buf[10];

	write_file("ten", "0123456789", 10);
	CHECK(source_open(path_of("ten"), &s, &e) == 0 && s);
	if (!s)
		return;
	ten(s);
	CHECK(source_fd(s) >= 0 && source_stat(s)->st_size == 10 && strcmp(source_name(s), path_of("ten")) == 0);
	/* grown: the size is that of the beginning; shrunk: an error, not a signal */
	write_file("ten", "0123456789more", 14);
	CHECK(source_size(s) == 10 && source_read(s, 0, buf, 10, NULL) == 0);
	CHECK(truncate(path_of("ten"), 4) == 0);
	CHECK(source_read(s, 0, buf, 4, &e) == 0);
	CHECK(source_read(s, 2, buf, 4, &e) == -EIO && strstr(e.text, "byte 4: ") && strstr(e.text, "truncated"));
	source_unref(s);
}

static void refused(void)
{
	struct source *s = (struct source *)dir;
	struct error e = {0};
	int fd, before = dup(0), after;

	close(before);
	CHECK(source_open(path_of("absent"), &s, &e) == -ENOENT && !s && strstr(e.text, "absent"));
	error_clear(&e);
	CHECK(source_open(dir, &s, &e) == -EISDIR && !s);
	error_clear(&e);
	CHECK(mkfifo(path_of("fifo"), 0600) == 0);
	CHECK(source_open(path_of("fifo"), &s, &e) == -EINVAL && strstr(e.text, "no regular file"));
	error_clear(&e);
	fd = open("/dev/zero", O_RDONLY);
	CHECK(source_from_fd(fd, "zero", &s, &e) == -EINVAL && !s && fcntl(fd, F_GETFD) < 0); /* closed for us */
	write_file("empty", "", 0);
	CHECK(source_open(path_of("empty"), &s, NULL) == 0 && source_size(s) == 0 && !source_peek(s, 0, 0));
	source_unref(s);
	after = dup(0);
	close(after);
	CHECK(before == after); /* no descriptor stays open */
}

int main(void)
{
	CHECK(mkdtemp(dir));
	memory();
	file();
	refused();
	unlink(path_of("ten"));
	unlink(path_of("fifo"));
	unlink(path_of("empty"));
	CHECK(rmdir(dir) == 0);
	return unit_done("source");
}
