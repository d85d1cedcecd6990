/* SPDX-License-Identifier: MIT */
#include "fs/server.h"
#include "fs/channel.h"
#include "fs/exit.h"
#include "fs/log.h"
#include "fs/ops.h"
#include "fs/sandbox.h"
#include "parsers/core/child.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 16
#define STACK_SIZE (1u << 20)
/* how long a request that is under way may hold up the end */
#define STOP_SECONDS 30

struct server {
	const struct options *o;
	int sock;
	struct workspace *w;
	_Atomic(struct mount *) mount; /* the workspace's notices may come earlier */
	pthread_t threads[THREADS_MAX];
	unsigned thread_count;
	pthread_t main;
};

static void on_changed(void *arg, uint64_t inode, struct str name)
{
	struct server *s = arg;

	mount_changed(atomic_load(&s->mount), inode, name);
}

static int tell_failure(struct server *s, int code, const char *text)
{
	channel_send(s->sock, MESSAGE_FAILED, (uint32_t)code, text, -1);
	return code;
}

/* Libraries must not write to the user's terminal, nor anybody read from it. */
static void redirect_standard(const struct options *o)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null < 0)
		return;
	dup2(null, STDIN_FILENO);
	if (!o->foreground) {
		dup2(null, STDOUT_FILENO);
		dup2(null, STDERR_FILENO);
	}
	if (null > 2)
		close(null);
}

static void prepare(const struct options *o)
{
	struct rlimit lim;

	if (!o->foreground)
		setsid();
	signal(SIGPIPE, SIG_IGN);
	redirect_standard(o);
	/* each staged file is a descriptor */
	if (getrlimit(RLIMIT_NOFILE, &lim) == 0) {
		lim.rlim_cur = lim.rlim_max;
		setrlimit(RLIMIT_NOFILE, &lim);
	}
}

static int enter_sandbox(const struct options *o, char note[256], struct error *e)
{
	struct sandbox box = {0};
	char dir[PATH_MAX];
	int r = sandbox_allow_model(&box, o->model, !o->workspace.read_only);

	if (r == 0 && o->out) {
		snprintf(dir, sizeof(dir), "%s", o->out);
		if (strrchr(dir, '/'))
			*(strrchr(dir, '/') + 1) = 0;
		r = sandbox_allow(&box, dir, true);
	}
	if (r < 0)
		error_set(e, -r, "sandbox: %s", strerror(-r));
	else
		r = sandbox_enter(&box, e);
	memcpy(note, box.note, sizeof(box.note));
	sandbox_release(&box);
	return r;
}

static int open_model(struct server *s, char *text, size_t cap)
{
	struct workspace_options w = s->o->workspace;
	struct error e = {0};
	char *note = NULL, box_note[256];
	int r;

	if (enter_sandbox(s->o, box_note, &e) < 0) {
		snprintf(text, cap, "%s", e.text);
		return EXIT_SYSTEM;
	}
	if (box_note[0] && s->o->verbose)
		channel_send(s->sock, MESSAGE_NOTE, 0, box_note, -1);
	w.changed = on_changed;
	w.changed_arg = s;
	r = workspace_open(s->o->model, &w, &s->w, &note, &e);
	if (r < 0) {
		error_set(&e, -r, "%s", strerror(-r));
		if (!strstr(e.text, s->o->model))
			error_prefix(&e, s->o->model);
		snprintf(text, cap, "%s", e.text);
	} else {
		snprintf(text, cap, "%s", note ? note : "");
	}
	free(note);
	return r < 0 ? EXIT_MODEL : 0;
}

static void *serve(void *arg)
{
	struct server *s = arg;

	mount_serve(atomic_load(&s->mount));
	pthread_kill(s->main, SIGUSR1); /* one ends when all will: the connection is gone */
	return NULL;
}

static unsigned thread_wish(const struct options *o)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	if (o->single)
		return 1;
	return n < 2 ? 4 : n > THREADS_MAX / 2 ? THREADS_MAX : (unsigned)n * 2;
}

static int start_threads(struct server *s)
{
	unsigned wish = thread_wish(s->o);
	pthread_attr_t attr;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_SIZE);
	while (s->thread_count < wish &&
		pthread_create(&s->threads[s->thread_count], &attr, serve, s) == 0)
		s->thread_count++;
	pthread_attr_destroy(&attr);
	return s->thread_count ? 0 : -EAGAIN;
}

static void wake(int signal_number)
{
	(void)signal_number; /* only so that a blocking read returns */
}

static void block_signals(sigset_t *set)
{
	struct sigaction sa = {.sa_handler = wake};

	sigemptyset(set);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGHUP);
	sigaddset(set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, set, NULL);
	sigaction(SIGUSR2, &sa, NULL);
}

/* false: a request is stuck, so nothing may be freed. */
static bool stop_threads(struct server *s)
{
	struct timespec now, until;

	mount_stop(s->mount);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += STOP_SECONDS;
	while (s->thread_count > 0) {
		/* again and again: the signal may come just before the read it is meant for */
		pthread_kill(s->threads[s->thread_count - 1], SIGUSR2);
		clock_gettime(CLOCK_REALTIME, &now);
		if (now.tv_sec > until.tv_sec)
			return false;
		now.tv_nsec += 10000000;
		if (now.tv_nsec >= 1000000000) {
			now.tv_sec++;
			now.tv_nsec -= 1000000000;
		}
		if (pthread_timedjoin_np(s->threads[s->thread_count - 1], NULL, &now) == 0)
			s->thread_count--;
	}
	return true;
}

static int save(struct server *s)
{
	struct error e = {0};
	int r = workspace_commit(s->w, &e);

	if (r < 0)
		log_error("cannot save '%s': %s", s->o->model,
			e.code ? e.text : strerror(-r));
	return r;
}

/* Told to stop by a signal, while mounted. */
static void leave_mount(struct server *s)
{
	struct message m;

	save(s);
	/* the last mapped pages may be written back as part of unmounting, so the threads still serve */
	if (channel_send(s->sock, MESSAGE_UNMOUNT, 0, NULL, -1) < 0 ||
		channel_receive(s->sock, &m, NULL, STOP_SECONDS * 1000) < 0)
		log_error("cannot unmount: the process that mounted is gone");
}

static int serve_until_end(struct server *s, const sigset_t *set)
{
	int signal_number, code;

	while (sigwait(set, &signal_number) != 0)
		;
	if (signal_number != SIGUSR1)
		leave_mount(s);
	if (!stop_threads(s)) {
		log_error("a request did not end in %d seconds", STOP_SECONDS);
		_exit(save(s) < 0 ? EXIT_UMOUNT : EXIT_OK);
	}
	code = save(s) < 0 ? EXIT_UMOUNT : EXIT_OK;
	workspace_close(s->w);
	mount_free(s->mount);
	return code;
}

static struct mount *attach(struct server *s, pid_t keeper)
{
	struct mount_options o = {.uid = s->o->uid,
		.gid = s->o->gid,
		.umask = s->o->umask,
		.debug = s->o->debug,
		.lookout = sysconf(_SC_NPROCESSORS_ONLN) > 1,
		.keeper = keeper,
		.server = getpid()};
	struct error e = {0};
	struct message m;
	struct mount *mount;
	int fd;

	if (channel_receive(s->sock, &m, &fd, -1) < 0 || m.kind != MESSAGE_MOUNTED || fd < 0)
		return NULL; /* mounting failed; the keeper says why */
	mount = mount_new(fd, s->w, &o, &e);
	if (!mount)
		log_error("%s", e.text);
	return mount;
}

int server_run(const struct options *o, int sock, pid_t keeper)
{
	struct server s = {.o = o, .sock = sock, .main = pthread_self()};
	char text[1024] = "";
	sigset_t set;
	int code;

	prepare(o);
	child_limits_set(o->child_time, o->child_memory);
	block_signals(&set);
	code = open_model(&s, text, sizeof(text));
	if (code)
		return tell_failure(&s, code, text);
	channel_send(sock, MESSAGE_OPENED, workspace_is_read_only(s.w), text, -1);
	atomic_store(&s.mount, attach(&s, keeper));
	if (!s.mount || start_threads(&s) < 0) {
		workspace_close(s.w);
		return EXIT_MOUNT;
	}
	log_note("serving '%s'%s", o->model, workspace_is_read_only(s.w) ? ", read-only" : "");
	code = serve_until_end(&s, &set);
	log_note("ended serving '%s'", o->model);
	return code;
}
