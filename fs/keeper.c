/* SPDX-License-Identifier: MIT */
#include "fs/channel.h"
#include "fs/exit.h"
#include "fs/launch.h"
#include "fs/log.h"
#include "fs/mountpoint.h"
#include "fs/server.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* a tensor is read in requests of this size */
#define READ_AHEAD_KIB 1024

struct keeper {
	const struct options *o;
	const char *dir;
	pid_t server;
	int sock;
	int signals; /* signalfd */
	int pipe;    /* to the launcher, or -1 */
	bool mounted, recorded;
	struct mount_line mount; /* ours, to know it again */
	struct outcome outcome;
};

static int fail(struct keeper *k, int code, const char *text)
{
	k->outcome.code = (uint32_t)code;
	snprintf(k->outcome.text, sizeof(k->outcome.text), "%s", text);
	return -1;
}

static void keeper_unmount(struct keeper *k, bool *detached)
{
	struct mount_line now;
	struct error e = {0};

	*detached = false;
	if (!k->mounted || !mountpoint_find(k->dir, &now) || strcmp(now.device, k->mount.device) != 0)
		return;
	if (mountpoint_unmount(k->dir, false, false, &e) == 0)
		return;
	*detached = true;
	error_clear(&e);
	if (mountpoint_unmount(k->dir, true, false, &e) < 0)
		log_error("%s", e.text);
}

/* Buries the server; its exit code, or 128 + signal as shells do. */
static int server_wait(struct keeper *k)
{
	int status = 0;

	while (waitpid(k->server, &status, 0) < 0 && errno == EINTR)
		;
	k->server = -1;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void server_kill(struct keeper *k)
{
	if (k->server > 0) {
		kill(k->server, SIGKILL);
		server_wait(k);
	}
}

static int start_server(struct keeper *k)
{
	pid_t keeper = getpid();
	int pair[2], r = channel_new(pair);

	if (r < 0)
		return fail(k, EXIT_SYSTEM, strerror(-r));
	k->sock = pair[0];
	fflush(NULL);
	k->server = fork();
	if (k->server == 0) {
		close(pair[0]);
		close(k->signals);
		if (k->pipe >= 0)
			close(k->pipe);
		_exit(server_run(k->o, pair[1], keeper));
	}
	r = errno;
	close(pair[1]);
	return k->server < 0 ? fail(k, EXIT_SYSTEM, strerror(r)) : 0;
}

static int server_lost(struct keeper *k, int why)
{
	char text[900];
	int code;

	if (why == -ETIMEDOUT) {
		server_kill(k);
		snprintf(text, sizeof(text), "'%.700s': not read within %u seconds (-o timeout)", k->o->model,
			k->o->timeout);
		return fail(k, EXIT_MODEL, text);
	}
	if (why == -EINTR) {
		server_kill(k);
		return fail(k, EXIT_SYSTEM, "interrupted");
	}
	code = server_wait(k);
	if (code > 128)
		snprintf(text, sizeof(text), "'%.700s': reading it crashed (%s)", k->o->model,
			strsignal(code - 128));
	else
		snprintf(text, sizeof(text), "'%.700s': the reader ended with code %d", k->o->model, code);
	return fail(k, EXIT_MODEL, text);
}

/* The server's next message; -EINTR when told to stop. */
static int next_message(struct keeper *k, struct message *m, int timeout)
{
	struct pollfd p[] = {{.fd = k->sock, .events = POLLIN}, {.fd = k->signals, .events = POLLIN}};
	int n;

	do
		n = poll(p, 2, timeout);
	while (n < 0 && errno == EINTR);
	if (n == 0)
		return -ETIMEDOUT;
	return p[1].revents ? -EINTR : channel_receive(k->sock, m, NULL, 0);
}

/* Waits until the model is read. */
static int await_model(struct keeper *k, bool *read_only)
{
	int timeout = k->o->timeout && k->o->timeout < 2000000 ? (int)k->o->timeout * 1000 : -1;
	struct message m;

	for (;;) {
		int r = next_message(k, &m, timeout);

		if (r < 0)
			return server_lost(k, r);
		if (m.kind == MESSAGE_FAILED) {
			server_wait(k);
			return fail(k, (int)m.code, m.text);
		}
		if (m.text[0])
			snprintf(k->outcome.note, sizeof(k->outcome.note), "%s", m.text);
		if (m.kind == MESSAGE_OPENED) {
			*read_only = m.code != 0;
			return 0;
		}
	}
}

/* The first request; the kernel holds it back until the server has answered INIT. */
static int check_root(struct keeper *k)
{
	struct stat st;
	char text[600];

	if (stat(k->dir, &st) == 0 && mountpoint_find(k->dir, &k->mount))
		return 0;
	snprintf(text, sizeof(text), "mounted on '%.300s', but it does not answer: %s", k->dir,
		strerror(errno));
	return fail(k, EXIT_MOUNT, text);
}

static int mount_and_check(struct keeper *k, bool read_only)
{
	struct error e = {0};
	int fd, r;

	if (mountpoint_mount(k->dir, k->o, read_only, &fd, &e) < 0)
		return fail(k, EXIT_MOUNT, e.text);
	k->mounted = true;
	r = channel_send(k->sock, MESSAGE_MOUNTED, 0, NULL, fd);
	close(fd); /* the server's must be the only one, so that its death is seen */
	if (r < 0)
		return fail(k, EXIT_MOUNT, "the server ended before it was mounted");
	return check_root(k);
}

static int start(struct keeper *k)
{
	bool read_only = false;

	if (start_server(k) < 0 || await_model(k, &read_only) < 0)
		return -1;
	if (mount_and_check(k, read_only) < 0) {
		server_kill(k);
		if (k->mounted) {
			struct error e = {0};

			mountpoint_unmount(k->dir, true, false, &e);
		}
		return -1;
	}
	mountpoint_read_ahead(k->mount.device, READ_AHEAD_KIB);
	k->recorded = mountpoint_record(k->dir, k->o);
	return 0;
}

static void forward_signal(struct keeper *k)
{
	struct signalfd_siginfo info;

	if (read(k->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
		kill(k->server, (int)info.ssi_signo);
}

/* Until the server is gone; its exit code. */
static int keep(struct keeper *k)
{
	struct pollfd p[] = {{.fd = k->sock, .events = POLLIN}, {.fd = k->signals, .events = POLLIN}};
	struct message m;
	bool detached;
	int code;

	for (;;) {
		if (poll(p, 2, -1) < 0 && errno != EINTR)
			break;
		if (p[1].revents)
			forward_signal(k);
		if (!p[0].revents)
			continue;
		if (channel_receive(k->sock, &m, NULL, 0) < 0)
			break;
		if (m.kind == MESSAGE_UNMOUNT) {
			keeper_unmount(k, &detached);
			channel_send(k->sock, MESSAGE_UNMOUNTED, detached, NULL, -1);
		}
	}
	code = server_wait(k);
	if (code > 128)
		log_error("'%s': the server was killed (%s)", k->dir, strsignal(code - 128));
	keeper_unmount(k, &detached); /* what a dead server left */
	if (k->recorded)
		mountpoint_forget(k->dir); /* others may have unmounted it, not by way of us */
	return code;
}

int keeper_run(const struct options *o, const char *dir, int pipe,
	void (*report)(int pipe, const struct outcome *outcome))
{
	struct keeper k = {.o = o, .dir = dir, .server = -1, .sock = -1, .pipe = pipe};
	sigset_t set;
	int code;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	k.signals = signalfd(-1, &set, SFD_CLOEXEC);
	code = start(&k) < 0 ? (int)k.outcome.code : 0;
	report(pipe, &k.outcome);
	if (code == 0)
		code = keep(&k);
	if (k.sock >= 0)
		close(k.sock);
	close(k.signals);
	return code;
}
