/* SPDX-License-Identifier: MIT */
#include "fs/umount.h"
#include "fs/control.h"
#include "fs/exit.h"
#include "fs/mountpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct request {
	const char *program;
	const char *dir;
	bool lazy, force, verbose;
};

static int complain(const struct request *q, int code, const char *text)
{
	fprintf(stderr, "%s: %s\n", q->program, text);
	return code;
}

/* One control call on the mount's root. 0 or -errno: -ENOTTY = no mount of ours, -ENOTCONN = dead. */
static int control_here(const char *dir, unsigned what, struct control *c)
{
	struct stat st;
	int r = 0, fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		r = -errno;
	else if (st.st_ino != TREE_ROOT) /* a directory inside a mount, or of another file system */
		r = -ENOTTY;
	/* pages written through mappings reach the server first */
	else if (what == CONTROL_COMMIT && syncfs(fd) < 0)
		r = -errno;
	else if (ioctl(fd, what, c) < 0)
		r = -errno;
	close(fd);
	return r;
}

static void become(unsigned uid, unsigned gid)
{
	if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
		_exit(1);
}

/* user_id= and group_id= of the mount's options */
static bool mount_owner(const char *dir, unsigned *uid, unsigned *gid)
{
	struct mount_line line;
	const char *u, *g;

	if (!mountpoint_find(dir, &line) || strcmp(line.type, "fuse.wiamodel") != 0)
		return false;
	u = strstr(line.options, "user_id=");
	g = strstr(line.options, "group_id=");
	return u && g && sscanf(u, "user_id=%u", uid) == 1 && sscanf(g, "group_id=%u", gid) == 1;
}

/* A user's mount is closed to root, who may well unmount it: ask in the user's name. */
static int control_as_owner(const char *dir, unsigned what, struct control *c)
{
	unsigned uid, gid;
	int pipefd[2], r = -EACCES;
	ssize_t n;
	pid_t pid;

	if (geteuid() != 0 || !mount_owner(dir, &uid, &gid))
		return r;
	if (pipe2(pipefd, O_CLOEXEC) < 0)
		return -errno;
	pid = fork();
	if (pid == 0) {
		become(uid, gid);
		r = control_here(dir, what, c);
		if (write(pipefd[1], &r, sizeof(r)) < 0 || write(pipefd[1], c, sizeof(*c)) < 0)
			_exit(1);
		_exit(0);
	}
	close(pipefd[1]);
	n = pid > 0 ? read(pipefd[0], &r, sizeof(r)) : -1;
	if (n == (ssize_t)sizeof(r))
		n = read(pipefd[0], c, sizeof(*c));
	else
		r = -EACCES;
	if (r == 0 && n != (ssize_t)sizeof(*c))
		r = -EIO;
	close(pipefd[0]);
	if (pid > 0)
		waitpid(pid, NULL, 0);
	return r;
}

static int control(const char *dir, unsigned what, struct control *c)
{
	int r = control_here(dir, what, c);

	return r == -EACCES ? control_as_owner(dir, what, c) : r;
}

/* For a look at the mount table only: a dead mount cannot be walked, so its parent is resolved. */
static char *absolute(const char *dir)
{
	char *real = realpath(dir, NULL), *copy, *slash, *parent, *full = NULL;

	if (real || errno != ENOTCONN)
		return real ? real : strdup(dir);
	copy = strdup(dir);
	if (!copy)
		return NULL;
	while (strlen(copy) > 1 && copy[strlen(copy) - 1] == '/')
		copy[strlen(copy) - 1] = 0;
	slash = strrchr(copy, '/');
	if (slash)
		*slash = 0;
	parent = realpath(slash ? (*copy ? copy : "/") : ".", NULL);
	if (parent && asprintf(&full, "%s/%s", strcmp(parent, "/") ? parent : "",
			      slash ? slash + 1 : copy) < 0)
		full = NULL;
	free(parent);
	free(copy);
	return full;
}

static int save_first(const struct request *q, const char *dir, struct control *c)
{
	char text[900];
	int r = control(dir, CONTROL_STATUS, c);

	if (r == -ENOTCONN || r == -ECONNABORTED) /* nobody is left to save; what was closed is in the journal */
		return 0;
	if (r == 0)
		r = control(dir, CONTROL_COMMIT, c);
	if (r == -ENOTTY) {
		snprintf(text, sizeof(text), "'%.300s': no model is mounted there", q->dir);
		return complain(q, EXIT_UMOUNT, text);
	}
	if (r == 0 && c->code == 0)
		return 0;
	snprintf(text, sizeof(text), "'%.300s': cannot save: %s", q->dir, r ? strerror(-r) : c->text);
	if (q->force) {
		complain(q, 0, text);
		return 0;
	}
	strncat(text, " (still mounted, the edits are kept)", sizeof(text) - strlen(text) - 1);
	return complain(q, EXIT_UMOUNT, text);
}

static int keeper_handle(const struct control *c)
{
	return c->keeper ? (int)syscall(SYS_pidfd_open, c->keeper, 0) : -1;
}

/* The keeper ends after the server, which saves once more what was written while unmounting. */
static void wait_for_end(int pidfd)
{
	struct pollfd p = {.fd = pidfd, .events = POLLIN};

	while (poll(&p, 1, -1) < 0 && errno == EINTR)
		;
}

static int unmount(const struct request *q)
{
	struct control c = {0};
	struct error e = {0};
	char *dir = absolute(q->dir);
	int code, pidfd;

	if (!dir)
		return complain(q, EXIT_SYSTEM, strerror(errno));
	code = save_first(q, dir, &c);
	pidfd = code ? -1 : keeper_handle(&c);
	if (code == 0 && mountpoint_unmount(dir, q->lazy, q->force, &e) < 0)
		code = complain(q, EXIT_UMOUNT, e.text);
	if (code == 0 && pidfd >= 0 && !q->lazy)
		wait_for_end(pidfd);
	if (code == 0 && q->verbose)
		printf("%s: %s unmounted\n", q->program, dir);
	if (pidfd >= 0)
		close(pidfd);
	free(dir);
	return code;
}

static int usage(const char *program)
{
	fprintf(stderr, "usage: %s [-l] [-f] [-v] DIR\n", program);
	return EXIT_USAGE;
}

int umount_main(const char *program, int argc, char **argv)
{
	struct request q = {.program = program};
	int i = 1;

	/* umount(8) puts its options behind the directory */
	for (; i < argc; i++) {
		if (argv[i][0] != '-') {
			if (q.dir)
				return usage(program);
			q.dir = argv[i];
			continue;
		}
		if (strcmp(argv[i], "--help") == 0) {
			printf("usage: %s [-l] [-f] [-v] DIR\n", program);
			return EXIT_OK;
		}
		for (const char *p = argv[i] + 1; *p; p++) {
			if (*p == 'N' || *p == 't') { /* takes a value, of no use here */
				if (!p[1])
					i++;
				break;
			}
			if (!strchr("lfvnr", *p))
				return usage(program);
			q.lazy |= *p == 'l';
			q.force |= *p == 'f';
			q.verbose |= *p == 'v';
		}
	}
	return q.dir ? unmount(&q) : usage(program);
}

/* What a dead mount left in the journal beside the model. */
static int act_on_journal(const struct request *q, bool commit)
{
	struct workspace_options o = {.step = -1, .recover = commit, .discard = !commit};
	struct workspace *w = NULL;
	struct error e = {0};
	char *note = NULL;
	int r = workspace_open(q->dir, &o, &w, &note, &e);

	if (r == 0 && workspace_is_read_only(w))
		r = error_set(&e, EROFS, "%s", note ? note : "the model cannot be written");
	else if (r == 0 && commit)
		r = workspace_commit(w, &e);
	workspace_close(w);
	free(note);
	return r < 0 ? complain(q, EXIT_UMOUNT, e.code ? e.text : strerror(-r)) : EXIT_OK;
}

static int act(int argc, char **argv, unsigned what, bool commit)
{
	struct request q = {.program = commit ? "wiamodel commit" : "wiamodel discard"};
	struct control c = {0};
	int r;

	if (argc != 2 || argv[1][0] == '-') {
		fprintf(stderr, "usage: %s DIR|MODEL\n", q.program);
		return EXIT_USAGE;
	}
	q.dir = argv[1];
	r = control(q.dir, what, &c);
	if (r == -ENOTTY || r == -ENOTDIR || r == -ENOENT)
		return act_on_journal(&q, commit);
	if (r < 0 || c.code)
		return complain(&q, EXIT_UMOUNT, r < 0 ? strerror(-r) : c.text);
	return EXIT_OK;
}

int commit_main(int argc, char **argv)
{
	return act(argc, argv, CONTROL_COMMIT, true);
}

int discard_main(int argc, char **argv)
{
	return act(argc, argv, CONTROL_DISCARD, false);
}
