/* SPDX-License-Identifier: MIT */
/*
 * record    := header { entry }
 * header    := "wiamodel journal 1\n" identity
 * entry     := u32 length, u32 ~length, 32 bytes SHA-256 of (length, payload), payload
 * The length is there twice so that a damaged one is not taken for a record that the end of the file cut.
 * Numbers in the machine's order: a journal does not travel.
 */
#include "fs/journal.h"

#include "parsers/codec/sha256.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "wiamodel journal 1\n"
enum {
	MAGIC_SIZE = sizeof(MAGIC) - 1,
	HEADER_SIZE = MAGIC_SIZE + sizeof(struct journal_identity),
	ENTRY_SIZE = 8 + SHA256_BYTES,
	ENDS_SIZE = 65536,
	RECORD_MAX = 1 << 20, /* names and numbers, never content: that is in staging files */
};

struct journal {
	int parent_fd, dir_fd, lock_fd, record_fd;
	char *name;
	bool matches, failed;
	uint64_t count, end, next_staging;
};

static int read_all(int fd, void *buf, size_t len, uint64_t offset, struct error *e)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = pread(fd, (char *)buf + done, len - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return error_at(e, EIO, offset, "cannot read: %s",
				n ? strerror(errno) : "the file is too short");
		done += (size_t)n;
	}
	return 0;
}

static int write_all(int fd, const void *buf, size_t len, uint64_t offset, struct error *e)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = pwrite(fd, (const char *)buf + done, len - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return error_set(e, n ? errno : EIO, "cannot write the journal: %s",
				strerror(n ? errno : EIO));
		done += (size_t)n;
	}
	return 0;
}

int journal_identify(int fd, struct journal_identity *out, struct error *e)
{
	struct sha256 *h = NULL;
	char *buf = NULL;
	struct stat st;
	size_t n;
	int r;

	memset(out, 0, sizeof(*out));
	if (fstat(fd, &st))
		return error_set(e, errno, "%s", strerror(errno));
	*out = (struct journal_identity){.size = (uint64_t)st.st_size, .inode = st.st_ino,
		.mtime = st.st_mtim.tv_sec, .mtime_nsec = st.st_mtim.tv_nsec};
	n = st.st_size < ENDS_SIZE ? (size_t)st.st_size : ENDS_SIZE;
	h = sha256_new();
	buf = malloc(ENDS_SIZE);
	r = h && buf ? 0 : error_set(e, ENOMEM, "no memory to identify the model");
	if (!r)
		r = read_all(fd, buf, n, 0, e);
	if (!r) {
		sha256_update(h, buf, n);
		r = read_all(fd, buf, n, out->size - n, e);
	}
	if (!r) {
		sha256_update(h, buf, n);
		r = sha256_final(h, out->ends);
	}
	free(buf);
	sha256_free(h);
	return r;
}

static int checksum(uint32_t len, const void *payload, uint8_t out[SHA256_BYTES])
{
	struct sha256 *h = sha256_new();
	int r;

	sha256_update(h, &len, sizeof(len));
	sha256_update(h, payload, len);
	r = h ? sha256_final(h, out) : -ENOMEM;
	sha256_free(h);
	return r;
}

static int open_directory(struct journal *j, bool create, struct error *e)
{
	struct stat st, lock;

	if (create && mkdirat(j->parent_fd, j->name, 0700) && errno != EEXIST)
		return error_set(e, errno, "cannot make '%s': %s", j->name, strerror(errno));
	j->dir_fd = openat(j->parent_fd, j->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (j->dir_fd < 0 || fstat(j->dir_fd, &st))
		return error_set(e, errno, "cannot open '%s': %s", j->name, strerror(errno));
	if (st.st_uid != geteuid() || st.st_mode & 077)
		return error_set(e, EPERM, "'%s' is not private to this user", j->name);
	j->lock_fd = openat(j->dir_fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (j->lock_fd < 0)
		return error_set(e, errno, "cannot lock '%s': %s", j->name, strerror(errno));
	/* no link left: its owner removed the journal between our open and our lock */
	if (flock(j->lock_fd, LOCK_EX | LOCK_NB) || fstat(j->lock_fd, &lock) || !lock.st_nlink)
		return error_set(e, EBUSY, "'%s' is in use by another mount", j->name);
	return 0;
}

static int write_header(struct journal *j, const struct journal_identity *identity, struct error *e)
{
	char header[HEADER_SIZE];

	memcpy(header, MAGIC, MAGIC_SIZE);
	memcpy(header + MAGIC_SIZE, identity, sizeof(*identity));
	j->matches = true;
	j->end = HEADER_SIZE;
	if (ftruncate(j->record_fd, 0))
		return error_set(e, errno, "cannot write the journal: %s", strerror(errno));
	return write_all(j->record_fd, header, sizeof(header), 0, e);
}

/* The entry at offset into *payload (heap). 1: torn by the end of the file. */
static int read_entry(const struct journal *j, uint64_t offset, uint64_t size, uint32_t *len,
	char **payload, struct error *e)
{
	unsigned char head[ENTRY_SIZE];
	uint8_t sum[SHA256_BYTES];
	uint32_t inverse;
	int r;

	*payload = NULL;
	if (size - offset < ENTRY_SIZE)
		return 1;
	r = read_all(j->record_fd, head, sizeof(head), offset, e);
	if (r)
		return r;
	memcpy(len, head, sizeof(*len));
	memcpy(&inverse, head + 4, sizeof(inverse));
	/* a power cut may leave the file's new size with no data in it */
	if (!*len && !inverse)
		return 1;
	if (*len != ~inverse)
		return error_at(e, EIO, offset, "damaged length of a journal record");
	if (*len > size - offset - ENTRY_SIZE)
		return 1;
	if (*len > RECORD_MAX)
		return error_at(e, EIO, offset, "journal record of %u bytes, at most %d", *len, RECORD_MAX);
	*payload = malloc((size_t)*len + 1);
	if (!*payload)
		return error_set(e, ENOMEM, "no memory for a journal record");
	r = read_all(j->record_fd, *payload, *len, offset + ENTRY_SIZE, e);
	if (!r)
		r = checksum(*len, *payload, sum);
	if (!r && memcmp(sum, head + 8, sizeof(sum)) != 0)
		/* the last one may have its length on disk and not yet its bytes */
		r = offset + ENTRY_SIZE + *len == size ? 1
						       : error_at(e, EIO, offset, "damaged journal record");
	if (r) {
		free(*payload);
		*payload = NULL;
	}
	return r;
}

static int scan(struct journal *j, const struct journal_identity *identity, struct error *e)
{
	char header[HEADER_SIZE], *payload;
	uint32_t len;
	struct stat st;
	int r = 0;

	if (fstat(j->record_fd, &st))
		return error_set(e, errno, "cannot read the journal: %s", strerror(errno));
	if (st.st_size < (off_t)HEADER_SIZE)
		return write_header(j, identity, e);
	r = read_all(j->record_fd, header, sizeof(header), 0, e);
	if (!r && memcmp(header, MAGIC, MAGIC_SIZE) != 0)
		r = error_set(e, EIO, "'%s' is not a journal of this version", j->name);
	j->matches = memcmp(header + MAGIC_SIZE, identity, sizeof(*identity)) == 0;
	j->end = HEADER_SIZE;
	while (!r && j->end < (uint64_t)st.st_size) {
		r = read_entry(j, j->end, (uint64_t)st.st_size, &len, &payload, e);
		free(payload);
		if (!r) {
			j->end += ENTRY_SIZE + len;
			j->count++;
		}
	}
	if (r != 1)
		return r;
	return ftruncate(j->record_fd, (off_t)j->end)
		? error_set(e, errno, "cannot cut a torn record off: %s", strerror(errno)) : 0;
}

int journal_open(int dir_fd, const char *model, const struct journal_identity *identity, bool create,
	struct journal **out, struct error *e)
{
	struct journal *j = calloc(1, sizeof(*j));
	int r;

	*out = NULL;
	if (!j)
		return error_set(e, ENOMEM, "no memory for the journal");
	j->dir_fd = j->lock_fd = j->record_fd = -1;
	j->parent_fd = fcntl(dir_fd, F_DUPFD_CLOEXEC, 0);
	if (asprintf(&j->name, ".%s.wiamodel-journal", model) < 0)
		j->name = NULL;
	r = j->parent_fd < 0 || !j->name ? error_set(e, ENOMEM, "no memory for the journal")
					 : open_directory(j, create, e);
	if (!r) {
		j->record_fd = openat(j->dir_fd, "record", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
		r = j->record_fd < 0 ? error_set(e, errno, "cannot open the journal: %s", strerror(errno))
				     : scan(j, identity, e);
	}
	if (r)
		journal_close(j, false);
	else
		*out = j;
	return r;
}

/* The lock goes last: while it has its name nobody else can take what is half removed. */
static void remove_files(struct journal *j)
{
	int fd = fcntl(j->dir_fd, F_DUPFD_CLOEXEC, 0);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *x;

	if (!d) {
		if (fd >= 0)
			close(fd);
		return;
	}
	/* without the record first, staging files that a crash leaves here mean nothing */
	unlinkat(j->dir_fd, "record", 0);
	rewinddir(d);
	while ((x = readdir(d)))
		if (x->d_name[0] != '.' && strcmp(x->d_name, "lock") != 0)
			unlinkat(j->dir_fd, x->d_name, 0);
	closedir(d);
	unlinkat(j->dir_fd, "lock", 0);
	unlinkat(j->parent_fd, j->name, AT_REMOVEDIR);
}

void journal_close(struct journal *j, bool remove)
{
	if (!j)
		return;
	if (remove)
		remove_files(j);
	if (j->record_fd >= 0)
		close(j->record_fd);
	if (j->dir_fd >= 0)
		close(j->dir_fd);
	if (j->lock_fd >= 0)
		close(j->lock_fd);
	if (j->parent_fd >= 0)
		close(j->parent_fd);
	free(j->name);
	free(j);
}

bool journal_matches(const struct journal *j)
{
	return j->matches;
}

uint64_t journal_count(const struct journal *j)
{
	return j->count;
}

int journal_replay(struct journal *j, int (*fn)(void *arg, struct str record, struct error *e),
	void *arg, struct error *e)
{
	uint64_t at = HEADER_SIZE;
	int r = 0;

	while (!r && at < j->end) {
		char *payload;
		uint32_t len = 0;

		r = read_entry(j, at, j->end, &len, &payload, e);
		if (r == 1)
			r = error_at(e, EIO, at, "damaged journal record");
		if (!r)
			r = fn(arg, (struct str){payload, len}, e);
		free(payload);
		at += ENTRY_SIZE + len;
	}
	return r;
}

int journal_append(struct journal *j, const void *bytes, size_t len, struct error *e)
{
	unsigned char head[ENTRY_SIZE];
	uint32_t n = (uint32_t)len, inverse = ~n;
	int r;

	if (len > RECORD_MAX)
		return error_set(e, EINVAL, "journal record of %zu bytes, at most %d", len, RECORD_MAX);
	r = checksum(n, bytes, head + 8);
	if (r)
		return error_set(e, -r, "no memory for a journal record");
	memcpy(head, &n, sizeof(n));
	memcpy(head + 4, &inverse, sizeof(inverse));
	r = write_all(j->record_fd, head, sizeof(head), j->end, e);
	if (!r)
		r = write_all(j->record_fd, bytes, len, j->end + ENTRY_SIZE, e);
	/* after a failure j->end stands, so the next append writes over what is half there */
	if (!r) {
		j->end += ENTRY_SIZE + len;
		j->count++;
	}
	return r;
}

int journal_sync(struct journal *j, struct error *e)
{
	/* a failed fsync may have dropped the pages: a second one would succeed and prove nothing */
	if (j->failed)
		return error_set(e, EIO, "the journal could not be made durable before");
	if (fsync(j->record_fd) || fsync(j->dir_fd) || fsync(j->parent_fd)) {
		j->failed = true;
		return error_set(e, errno, "cannot make the journal durable: %s", strerror(errno));
	}
	return 0;
}

int journal_staging(struct journal *j, char name[JOURNAL_NAME_MAX], int *fd, struct error *e)
{
	do {
		snprintf(name, JOURNAL_NAME_MAX, "s%016llx", (unsigned long long)j->next_staging++);
		*fd = openat(j->dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	} while (*fd < 0 && errno == EEXIST);
	return *fd < 0 ? error_set(e, errno, "cannot make a staging file: %s", strerror(errno)) : 0;
}

/* Only names that journal_staging gives: a record may say anything. */
static bool is_staging_name(const char *name)
{
	return name[0] == 's' && strspn(name + 1, "0123456789abcdef") == strlen(name) - 1 &&
	       strlen(name) < JOURNAL_NAME_MAX;
}

int journal_staged(struct journal *j, const char *name, int *fd, struct error *e)
{
	*fd = is_staging_name(name) ? openat(j->dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC) : -1;
	if (*fd < 0)
		return error_set(e, EIO, "the journal's staged file '%.30s' is missing", name);
	return 0;
}

void journal_unstage(struct journal *j, const char *name)
{
	if (is_staging_name(name))
		unlinkat(j->dir_fd, name, 0);
}

int journal_reset(struct journal *j, const struct journal_identity *identity, struct error *e)
{
	int r = write_header(j, identity, e);

	j->count = 0;
	return r < 0 ? r : journal_sync(j, e);
}

void journal_sweep(struct journal *j, bool (*keep)(void *arg, const char *name), void *arg)
{
	int fd = openat(j->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *x;

	if (!d) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((x = readdir(d)))
		if (is_staging_name(x->d_name) && !keep(arg, x->d_name))
			unlinkat(j->dir_fd, x->d_name, 0);
	closedir(d);
}
