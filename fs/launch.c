/* SPDX-License-Identifier: MIT */
#include "fs/launch.h"
#include "fs/exit.h"
#include "fs/log.h"
#include "fs/mountpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *program_name = "mount.wiamodel";

static int complain(int code, const char *text)
{
	fprintf(stderr, "%s: %s\n", program_name, text);
	return code;
}

static void show(const struct outcome *outcome)
{
	if (outcome->note[0])
		fprintf(stderr, "%s: %s\n", program_name, outcome->note);
	if (outcome->code)
		complain((int)outcome->code, outcome->text);
}

static void report_here(int pipe, const struct outcome *outcome)
{
	(void)pipe;
	show(outcome);
}

/* The daemon's side: no terminal, no folder held, no pipe of the caller kept open. */
static void leave_terminal(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int fd = 0; null >= 0 && fd < 3; fd++)
		dup2(null, fd);
	if (null > 2)
		close(null);
}

static void report_by_pipe(int fd, const struct outcome *outcome)
{
	/* only now: until the mount works, Ctrl-C reaches keeper and server */
	setsid();
	leave_terminal();
	/* a launcher that was killed needs no answer */
	if (write(fd, outcome, sizeof(*outcome)) < 0)
		log_note("nobody waits for the mount any more");
	close(fd);
}

static int wait_outcome(int fd, pid_t keeper)
{
	struct outcome outcome;
	ssize_t n;
	int status;

	do
		n = read(fd, &outcome, sizeof(outcome));
	while (n < 0 && errno == EINTR);
	if (n == (ssize_t)sizeof(outcome)) {
		show(&outcome);
		if (outcome.code) /* nothing may be left of a failed mount */
			waitpid(keeper, &status, 0);
		return (int)outcome.code;
	}
	waitpid(keeper, &status, 0);
	return complain(EXIT_SYSTEM, "the mounting process ended unexpectedly");
}

/* What the caller had open is no business of a daemon's; a pipe held open would make him wait. */
static void close_others(int keep)
{
	int a = log_fd() < keep ? log_fd() : keep, b = log_fd() < keep ? keep : log_fd();

	if (a < 3)
		a = 2;
	if (a > 3)
		close_range(3, (unsigned)a - 1, 0);
	if (b > a + 1)
		close_range((unsigned)a + 1, (unsigned)b - 1, 0);
	close_range((unsigned)b + 1, ~0u, 0);
}

static int launch_daemon(const struct options *o, const char *dir)
{
	int pipefd[2];
	pid_t pid;

	if (pipe2(pipefd, O_CLOEXEC) < 0 || (pid = fork()) < 0)
		return complain(EXIT_SYSTEM, strerror(errno));
	if (pid > 0) {
		close(pipefd[1]);
		return wait_outcome(pipefd[0], pid);
	}
	close_others(pipefd[1]);
	log_connect();
	signal(SIGPIPE, SIG_IGN);
	if (chdir("/") < 0)
		log_note("cannot leave the working directory: %s", strerror(errno));
	_exit(keeper_run(o, dir, pipefd[1], report_by_pipe));
}

/* Relative paths end when the daemon leaves for "/". A prefix such as ckpt-10 need not exist. */
static int make_absolute(char **path)
{
	char *cwd, *full;

	if (!*path || **path == '/')
		return 0;
	cwd = getcwd(NULL, 0);
	if (!cwd)
		return -errno;
	full = malloc(strlen(cwd) + strlen(*path) + 2);
	if (full)
		sprintf(full, "%s/%s", strcmp(cwd, "/") ? cwd : "", *path);
	free(cwd);
	if (!full)
		return -ENOMEM;
	free(*path);
	*path = full;
	return 0;
}

static int open_log(const struct options *o, struct error *e)
{
	if (o->log_file)
		return log_open(LOG_TO_FILE, o->log_file, o->verbose, e);
	return log_open(o->foreground ? LOG_TO_STDERR : LOG_TO_SYSLOG, NULL, o->verbose, e);
}

static int mount_options(struct options *o)
{
	struct error e = {0};
	char *dir = NULL;
	int code = EXIT_OK, r;

	r = make_absolute(&o->model);
	if (r == 0)
		r = make_absolute(&o->out);
	if (r < 0)
		return complain(EXIT_SYSTEM, strerror(-r));
	o->workspace.out = o->out;
	if (mountpoint_check(o->dir, o->nonempty, &dir, &e) < 0)
		code = complain(EXIT_MOUNT, e.text);
	else if (open_log(o, &e) < 0)
		code = complain(EXIT_SYSTEM, e.text);
	else if (o->foreground)
		code = keeper_run(o, dir, -1, report_here);
	else
		code = launch_daemon(o, dir);
	free(dir);
	return code;
}

int mount_main(const char *program, int argc, char **argv)
{
	struct options o;
	struct error e = {0};
	int code = EXIT_OK;

	program_name = program;
	if (options_parse(&o, argc, argv, &e) < 0)
		code = complain(EXIT_USAGE, e.text);
	else if (o.help)
		options_help();
	else if (o.version)
		options_version();
	else
		code = mount_options(&o);
	options_release(&o);
	return code;
}
