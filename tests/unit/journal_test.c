/* SPDX-License-Identifier: MIT */
/* The journal is cut at every byte and damaged at every byte: afterwards it holds whole records or is refused. */
#include "tests/unit/unit.h"

#include "fs/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORD ".m.wiamodel-journal/record"

static char dir_name[] = "/tmp/wiamodel-journal-XXXXXX";
static int dir;
static struct journal_identity identity = {.size = 5, .inode = 7};
static const char *const texts[] = {"first", "", "third"};
static unsigned char whole[4096];

static int next_text(void *arg, struct str record, struct error *e)
{
	size_t *i = arg;

	(void)e;
	CHECK(*i < 3 && str_is(record, texts[*i]));
	++*i;
	return 0;
}

static void put(size_t len)
{
	int fd = openat(dir, RECORD, O_WRONLY | O_TRUNC);

	CHECK(fd >= 0 && write(fd, whole, len) == (ssize_t)len);
	close(fd);
}

static int count_records(size_t *n)
{
	struct journal *j = NULL;
	int r = journal_open(dir, "m", &identity, false, &j, NULL);

	*n = 0;
	if (!r) {
		CHECK(journal_replay(j, next_text, n, NULL) == 0);
		CHECK(journal_count(j) == *n);
	}
	journal_close(j, false);
	return r;
}

int main(void)
{
	struct journal *j = NULL, *second = NULL;
	struct journal_identity other = identity;
	char a[JOURNAL_NAME_MAX], b[JOURNAL_NAME_MAX];
	size_t size, last, n, before = 0;
	int fd;

	CHECK(mkdtemp(dir_name) != NULL);
	dir = open(dir_name, O_RDONLY | O_DIRECTORY);
	CHECK(journal_open(dir, "m", &identity, false, &j, NULL) == -ENOENT && !j);
	CHECK(journal_open(dir, "m", &identity, true, &j, NULL) == 0);
	if (!j)
		return unit_done("journal");
	CHECK(journal_open(dir, "m", &identity, true, &second, NULL) == -EBUSY && !second);
	for (int i = 0; i < 3; i++)
		CHECK(journal_append(j, texts[i], strlen(texts[i]), NULL) == 0);
	CHECK(journal_sync(j, NULL) == 0);
	CHECK(journal_staging(j, a, &fd, NULL) == 0 && close(fd) == 0);
	journal_close(j, false);
	CHECK(count_records(&n) == 0 && n == 3);

	fd = openat(dir, RECORD, O_RDONLY);
	size = (size_t)read(fd, whole, sizeof(whole));
	close(fd);
	for (size_t len = 0; len <= size; len++) {
		put(len);
		CHECK(count_records(&n) == 0 && n >= before && n <= 3);
		before = n;
	}
	CHECK(before == 3);
	last = size - 40 - strlen(texts[2]);
	for (size_t i = size - 3 * 40 - 10; i < size; i++) {
		whole[i] ^= 0x40;
		put(size);
		if (i < last + 8) /* lengths, and all of the records before */
			CHECK(count_records(&n) == -EIO);
		else
			CHECK(count_records(&n) == 0 && n == 2);
		whole[i] ^= 0x40;
	}
	put(size);
	other.size = 6;
	CHECK(journal_open(dir, "m", &other, false, &j, NULL) == 0 && !journal_matches(j));
	CHECK(journal_staging(j, b, &fd, NULL) == 0 && strcmp(a, b) != 0 && close(fd) == 0);
	journal_close(j, true);
	CHECK(faccessat(dir, ".m.wiamodel-journal", F_OK, 0) < 0 && errno == ENOENT);

	CHECK(mkdirat(dir, ".m.wiamodel-journal", 0700) == 0);
	CHECK(fchmodat(dir, ".m.wiamodel-journal", 0755, 0) == 0);
	CHECK(journal_open(dir, "m", &identity, false, &j, NULL) == -EPERM);
	CHECK(unlinkat(dir, ".m.wiamodel-journal", AT_REMOVEDIR) == 0);
	CHECK(rmdir(dir_name) == 0);
	close(dir);
	return unit_done("journal");
}
