/* SPDX-License-Identifier: MIT */
#include "fs/mountpoint.h"
#include "fs/channel.h"
#include "fs/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static bool is_empty(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *entry;
	bool empty = true;

	if (!d)
		return true; /* no business of ours what is in there */
	while (empty && (entry = readdir(d)))
		empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
	closedir(d);
	return empty;
}

int mountpoint_check(const char *dir, bool nonempty, char **real, struct error *e)
{
	struct mount_line line;
	struct statvfs fs;
	struct stat st;

	*real = NULL;
	/* attributes may be cached, the file system's never are: so a dead mount shows */
	if (stat(dir, &st) < 0 || statvfs(dir, &fs) < 0) {
		if (errno == ENOTCONN || errno == ECONNABORTED)
			return error_set(e, errno, "mount point '%s': a dead mount is still there; umount it first",
				dir);
		return error_set(e, errno, "mount point '%s': %s", dir, strerror(errno));
	}
	if (!S_ISDIR(st.st_mode))
		return error_set(e, ENOTDIR, "mount point '%s' is not a directory", dir);
	*real = realpath(dir, NULL);
	if (!*real)
		return error_set(e, errno, "mount point '%s': %s", dir, strerror(errno));
	if (mountpoint_find(*real, &line) && strcmp(line.type, "fuse.wiamodel") == 0)
		return error_set(e, EBUSY, "mount point '%s': a model is mounted there already", dir);
	if (!nonempty && !is_empty(*real))
		return error_set(e, ENOTEMPTY,
			"mount point '%s' is not empty (-o nonempty mounts over what is in it)", dir);
	return 0;
}

/* mountinfo writes blank, tab, newline and backslash as \ooo */
static void unescape(char *s)
{
	char *out = s;

	for (; *s; s++) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
			s[3] >= '0' && s[3] <= '7') {
			*out++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
			s += 3;
		} else {
			*out++ = *s;
		}
	}
	*out = 0;
}

/* ID PARENT MAJ:MIN ROOT DIR OPTIONS [TAG]... - TYPE SOURCE SUPEROPTIONS */
static bool line_matches(char *text, const char *dir, struct mount_line *out)
{
	char *save, *field[6], *tail = strstr(text, " - ");

	if (!tail)
		return false;
	*tail = 0;
	for (int i = 0; i < 6; i++)
		if (!(field[i] = strtok_r(i ? NULL : text, " ", &save)))
			return false;
	unescape(field[4]);
	if (strcmp(field[4], dir) != 0)
		return false;
	snprintf(out->device, sizeof(out->device), "%s", field[2]);
	tail += 3;
	snprintf(out->type, sizeof(out->type), "%.*s", (int)strcspn(tail, " "), tail);
	tail = strrchr(tail, ' ');
	snprintf(out->options, sizeof(out->options), "%s", tail ? tail + 1 : "");
	return true;
}

bool mountpoint_find(const char *dir, struct mount_line *out)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char *line = NULL;
	size_t cap = 0;
	ssize_t n;
	bool found = false;

	if (!f)
		return false;
	while ((n = getline(&line, &cap, f)) > 0) {
		line[n - 1] = 0;
		found |= line_matches(line, dir, out); /* the last one is on top */
	}
	free(line);
	fclose(f);
	return found;
}

void mountpoint_read_ahead(const char *device, unsigned kib)
{
	char path[96];
	int fd;

	snprintf(path, sizeof(path), "/sys/class/bdi/%s/read_ahead_kb", device);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	if (dprintf(fd, "%u", kib) < 0) {
		/* only speed is lost */
	}
	close(fd);
}

static const char *source_name_of(const struct options *o)
{
	return o->fsname ? o->fsname : o->model;
}

static int mount_by_call(const char *dir, const struct options *o, bool read_only, int *out,
	struct error *e)
{
	char data[160];
	int r = 0, fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return error_set(e, errno, "cannot open /dev/fuse: %s", strerror(errno));
	snprintf(data, sizeof(data), "fd=%d,rootmode=40000,user_id=%u,group_id=%u%s", fd,
		(unsigned)getuid(), (unsigned)getgid(),
		o->allow_other ? ",allow_other,default_permissions" : "");
	if (mount(source_name_of(o), dir, "fuse.wiamodel", o->mount_flags | (read_only ? MS_RDONLY : 0),
		    data) < 0) {
		r = -errno;
		close(fd);
		return error_set(e, -r, "cannot mount on '%s': %s", dir, strerror(-r));
	}
	*out = fd;
	return r;
}

/* fusermount3 takes "\," for a comma inside a value */
static void append_escaped(char *out, size_t cap, const char *value)
{
	size_t len = strlen(out);

	for (; *value && len + 3 < cap; value++) {
		if (*value == ',' || *value == '\\')
			out[len++] = '\\';
		out[len++] = *value;
	}
	out[len] = 0;
}

static void fusermount_options(char *out, size_t cap, const struct options *o, bool read_only)
{
	snprintf(out, cap, "%s,nosuid,nodev%s%s%s%s,subtype=wiamodel,fsname=", read_only ? "ro" : "rw",
		o->mount_flags & MS_NOEXEC ? ",noexec" : "",
		o->mount_flags & MS_NOATIME ? ",noatime" : "",
		o->mount_flags & MS_SYNCHRONOUS ? ",sync" : "",
		o->allow_other ? ",allow_other,default_permissions" : "");
	append_escaped(out, cap, source_name_of(o));
}

/* Runs a program with its stderr in `text`; its exit status or -errno. comm: see fuse's _FUSE_COMMFD. */
static int run_program(char *const argv[], int comm, char *text, size_t cap)
{
	posix_spawn_file_actions_t actions;
	int pipefd[2], status, r;
	ssize_t n;
	size_t used = 0;
	pid_t pid;

	text[0] = 0;
	if (pipe2(pipefd, O_CLOEXEC) < 0)
		return -errno;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, pipefd[1], STDERR_FILENO);
	if (comm >= 0) {
		char number[16];

		snprintf(number, sizeof(number), "%d", comm);
		setenv("_FUSE_COMMFD", number, 1);
		fcntl(comm, F_SETFD, 0);
	}
	r = -posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
	unsetenv("_FUSE_COMMFD");
	posix_spawn_file_actions_destroy(&actions);
	close(pipefd[1]);
	while (r == 0 && used + 1 < cap && (n = read(pipefd[0], text + used, cap - 1 - used)) > 0)
		used += (size_t)n;
	text[used] = 0;
	close(pipefd[0]);
	if (r < 0)
		return r;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	/* one line: the last says it */
	while (used > 0 && text[used - 1] == '\n')
		text[--used] = 0;
	if (strrchr(text, '\n'))
		memmove(text, strrchr(text, '\n') + 1, strlen(strrchr(text, '\n') + 1) + 1);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

static int receive_descriptor(int sock)
{
	char byte;
	struct iovec iov = {.iov_base = &byte, .iov_len = 1};
	_Alignas(struct cmsghdr) char space[CMSG_SPACE(sizeof(int))];
	struct msghdr h = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = space,
		.msg_controllen = sizeof(space)};
	struct cmsghdr *c;
	int fd = -1;

	if (recvmsg(sock, &h, MSG_CMSG_CLOEXEC) <= 0)
		return -1;
	c = CMSG_FIRSTHDR(&h);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
		c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(&fd, CMSG_DATA(c), sizeof(int));
	return fd;
}

static int mount_by_helper(const char *dir, const struct options *o, bool read_only, int *out,
	struct error *e)
{
	char list[9000], text[600];
	char *argv[] = {"fusermount3", "-o", list, "--", (char *)dir, NULL};
	int pair[2], r;

	fusermount_options(list, sizeof(list), o, read_only);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return error_set(e, errno, "socketpair: %s", strerror(errno));
	r = run_program(argv, pair[0], text, sizeof(text));
	close(pair[0]);
	*out = r == 0 ? receive_descriptor(pair[1]) : -1;
	close(pair[1]);
	if (r < 0)
		return error_set(e, -r, "cannot mount on '%s': cannot run fusermount3: %s", dir, strerror(-r));
	if (*out < 0)
		return error_set(e, EPERM, "cannot mount on '%s': %s", dir,
			*text ? text : "fusermount3 failed");
	return 0;
}

static int helper_record(char *const argv[])
{
	char text[600];
	int r = run_program(argv, -1, text, sizeof(text));

	if (r)
		log_note("%s: %s", argv[0], r < 0 ? strerror(-r) : text);
	return r;
}

/* Whether the table has a record of this directory; there a blank and its like are spelled \040. */
static bool is_recorded(const char *dir)
{
	FILE *f = fopen("/run/mount/utab", "re");
	char *line = NULL, *wanted = malloc(strlen(dir) * 4 + 16), *p = wanted;
	size_t cap = 0;
	bool found = false;

	if (f && wanted) {
		p = stpcpy(p, " TARGET=");
		for (const char *d = dir; *d; d++)
			if (strchr(" \t\n\\", *d))
				p += sprintf(p, "\\%03o", (unsigned)*d);
			else
				*p++ = *d;
		strcpy(p, " ");
		while (!found && getline(&line, &cap, f) > 0)
			found = strstr(line, wanted) && strstr(line, "uhelper=fuse.wiamodel");
	}
	if (f)
		fclose(f);
	free(line);
	free(wanted);
	return found;
}

bool mountpoint_record(const char *dir, const struct options *o)
{
	char *argv[] = {"mount", "--fake", "--internal-only", "--no-canonicalize", "-t", "fuse.wiamodel", "-o",
		"uhelper=fuse.wiamodel", "--", (char *)source_name_of(o), (char *)dir, NULL};

	/* one that was left by a mount whose processes were killed does as well, and they would pile up */
	return geteuid() == 0 && (is_recorded(dir) || helper_record(argv) == 0);
}

void mountpoint_forget(const char *dir)
{
	char *argv[] = {"umount", "--fake", "--internal-only", "--no-canonicalize", "--", (char *)dir, NULL};

	if (geteuid() == 0 && is_recorded(dir))
		helper_record(argv);
}

int mountpoint_mount(const char *dir, const struct options *o, bool read_only, int *fd,
	struct error *e)
{
	int r = geteuid() == 0 ? mount_by_call(dir, o, read_only, fd, e) : -EPERM;

	if (r != -EPERM)
		return r;
	/* root of a container may lack the right to mount and still have fusermount3 */
	if (e)
		error_clear(e);
	return mount_by_helper(dir, o, read_only, fd, e);
}

int mountpoint_unmount(const char *dir, bool lazy, bool force, struct error *e)
{
	char text[600];
	char *argv[] = {"fusermount3", lazy ? "-uz" : "-u", "--", (char *)dir, NULL};
	int flags = UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0) | (force ? MNT_FORCE : 0), r;

	if (umount2(dir, flags) == 0) {
		mountpoint_forget(dir);
		return 0;
	}
	r = -errno;
	if (r == -EPERM) {
		r = run_program(argv, -1, text, sizeof(text));
		if (r == 0)
			return 0;
		if (r > 0 && strstr(text, "busy"))
			r = -EBUSY;
		else if (r > 0)
			return error_set(e, EPERM, "cannot unmount '%s': %s", dir, *text ? text : "fusermount3 failed");
	}
	if (r == -EBUSY)
		return error_set(e, EBUSY, "'%s' is busy: a process has a file open or works in it", dir);
	if (r == -EINVAL)
		return error_set(e, EINVAL, "'%s' is not mounted", dir);
	return error_set(e, -r, "cannot unmount '%s': %s", dir, strerror(-r));
}
