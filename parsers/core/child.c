/* SPDX-License-Identifier: MIT */
/*
 * The reply on the pipe: u32 magic · u32 code · u32 length, text of the error · u64 length, bytes. What is cut
 * short or says something else is the answer of a child that died.
 */
#include "parsers/core/child.h"

#include "parsers/core/cursor.h"
#include "parsers/core/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Sanitizers map terabytes and use calls of their own. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
	__has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#define MAGIC 0x70657277u
#define CRASHED 64 /* exit status of a crash: this and the signal's number */
/* what the caller's stacks and libraries may already take of RLIMIT_DATA */
#define SLACK (192ull << 20)

struct child_limits child_limits = {.seconds = 10, .memory = 512ull << 20};

void child_limits_set(uint64_t seconds, uint64_t mebibytes)
{
	if (seconds)
		child_limits.seconds = seconds < 86400 ? (unsigned)seconds : 86400;
	if (mebibytes)
		child_limits.memory = mebibytes < (1u << 24) ? mebibytes << 20 : 1ull << 44;
}

void reply_bytes(struct reply *r, const void *bytes, size_t len)
{
	if (r->failed || !len)
		return;
	if (len > LIMIT_METADATA - r->len) {
		r->failed = true;
		return;
	}
	if (len > r->cap - r->len) {
		size_t cap = r->cap ? r->cap : 4096;
		void *grown;

		while (cap - r->len < len)
			cap *= 2;
		grown = realloc(r->bytes, cap);
		if (!grown) {
			r->failed = true;
			return;
		}
		r->bytes = grown;
		r->cap = cap;
	}
	memcpy(r->bytes + r->len, bytes, len);
	r->len += len;
}

static void reply_number(struct reply *r, uint64_t v, size_t n)
{
	unsigned char b[8];

	for (size_t i = 0; i < n; i++)
		b[i] = (unsigned char)(v >> 8 * i);
	reply_bytes(r, b, n);
}

void reply_u8(struct reply *r, uint8_t v)
{
	reply_number(r, v, 1);
}

void reply_u32(struct reply *r, uint32_t v)
{
	reply_number(r, v, 4);
}

void reply_u64(struct reply *r, uint64_t v)
{
	reply_number(r, v, 8);
}

void reply_str(struct reply *r, struct str s)
{
	reply_u32(r, (uint32_t)s.len);
	reply_bytes(r, s.ptr, s.len);
}

/* ---- inside the child ---- */

static void write_all(int fd, const void *buf, size_t len)
{
	const char *p = buf;

	while (len) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			_exit(1);
		p += n;
		len -= (size_t)n;
	}
}

static void close_others(int a, int b)
{
	unsigned low = (unsigned)(a < b ? a : b), high = (unsigned)(a < b ? b : a);

	if (a < 0)
		low = high;
	if (low)
		syscall(SYS_close_range, 0u, low - 1, 0u);
	if (high > low + 1)
		syscall(SYS_close_range, low + 1, high - 1, 0u);
	syscall(SYS_close_range, high + 1, ~0u, 0u);
}

static const int allowed[] = {
	SYS_read, SYS_pread64, SYS_write, SYS_lseek, SYS_fstat, SYS_close, SYS_mmap, SYS_munmap, SYS_mremap,
	SYS_mprotect, SYS_madvise, SYS_brk, SYS_futex, SYS_getpid, SYS_gettid, SYS_rt_sigreturn, SYS_rt_sigaction,
	SYS_rt_sigprocmask, SYS_clock_gettime, SYS_getrandom, SYS_exit, SYS_exit_group,
#ifdef SYS_time
	SYS_time,
#endif
	SYS_gettimeofday, SYS_getuid, SYS_sched_yield,
};
#define ALLOWED (sizeof(allowed) / sizeof(*allowed))

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#elif defined(__riscv) && __riscv_xlen == 64
#define ARCH AUDIT_ARCH_RISCV64
#endif

/* A filter by hand: it must not depend on a library that opens files. Everything else fails with EPERM. */
static void filter_calls(void)
{
#ifdef ARCH
	struct sock_filter code[ALLOWED + 6];
	struct sock_fprog prog = {.filter = code};
	unsigned n = 0;

	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
	code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < ALLOWED; i++)
		code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)allowed[i],
			(uint8_t)(ALLOWED - i), 0);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	prog.len = (unsigned short)n;
	prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
#endif
}

static void set_limit(__rlimit_resource_t what, uint64_t value)
{
	struct rlimit old, lim = {(rlim_t)value, (rlim_t)value};

	if (getrlimit(what, &old) == 0 && old.rlim_max != RLIM_INFINITY && old.rlim_max < lim.rlim_max)
		lim.rlim_cur = lim.rlim_max = old.rlim_max;
	setrlimit(what, &lim);
}

static void on_crash(int sig)
{
	_exit(CRASHED + sig);
}

/* A crash that nobody catches leaves a line in the kernel's log. On a stack of its own: it may be the stack that ran out. */
static void catch_crashes(void)
{
	static const int crashes[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
	static char stack[64 << 10];
	stack_t alternate = {.ss_sp = stack, .ss_size = sizeof(stack)};
	struct sigaction act = {.sa_handler = on_crash, .sa_flags = SA_ONSTACK | SA_NODEFER};

	sigaltstack(&alternate, NULL);
	for (size_t i = 0; i < sizeof(crashes) / sizeof(*crashes); i++)
		sigaction(crashes[i], &act, NULL);
}

static void enter(int src, int pipe)
{
	static const int reset[] = {SIGTERM, SIGINT, SIGHUP, SIGCHLD, SIGPIPE};
	struct mallinfo2 heap = mallinfo2();
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (size_t i = 0; i < sizeof(reset) / sizeof(*reset); i++)
		signal(reset[i], SIG_DFL);
	if (!SANITIZED)
		catch_crashes();
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (SANITIZED) /* its reports about the library are not about us */
		close(STDERR_FILENO);
	else
		close_others(src, pipe);
	set_limit(RLIMIT_CORE, 0);
	set_limit(RLIMIT_CPU, child_limits.seconds + 1);
	prctl(PR_SET_DUMPABLE, 0);
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (SANITIZED)
		return;
	set_limit(RLIMIT_DATA, child_limits.memory + SLACK + heap.arena + heap.hblkhd);
	filter_calls();
}

static _Noreturn void run(int src, int pipe, int (*work)(void *, struct reply *, struct error *), void *arg)
{
	struct reply head = {0}, body = {0};
	struct error e = {0};
	int r;

	enter(src, pipe);
	r = work(arg, &body, &e);
	if (!r && body.failed)
		r = error_set(&e, ENOMEM, "out of memory for the file's structure");
	if (r < 0)
		body.len = 0;
	reply_u32(&head, MAGIC);
	reply_u32(&head, (uint32_t)-r);
	reply_str(&head, r < 0 ? str_from(e.text) : STR(""));
	reply_u64(&head, body.len);
	write_all(pipe, head.bytes, head.len);
	write_all(pipe, body.bytes, body.len);
	_exit(0);
}

/* ---- the other end ---- */

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

enum end { END_WELL, END_LATE, END_BIG, END_MEMORY };

/* All that comes, until the end of the pipe or of the time. */
static enum end collect(int fd, struct reply *r)
{
	int64_t end = now_ms() + (int64_t)child_limits.seconds * 1000;
	static const size_t step = 64u << 10;
	unsigned char *buf = malloc(step);
	enum end how = buf ? END_WELL : END_MEMORY;

	while (how == END_WELL) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		int64_t left = end - now_ms();
		int ready = left > 0 ? poll(&p, 1, (int)left) : 0;
		ssize_t n = ready > 0 ? read(fd, buf, step) : -1;

		if (!ready) {
			how = END_LATE;
		} else if (n > 0) {
			reply_bytes(r, buf, (size_t)n);
			if (r->failed)
				how = (size_t)n > LIMIT_METADATA - r->len ? END_BIG : END_MEMORY;
		} else if (!(n < 0 && errno == EINTR)) {
			break;
		}
	}
	free(buf);
	return how;
}

static int complain(const char *what, enum end how, int status, struct error *e)
{
	if (how == END_LATE)
		return error_set(e, EIO, "%s took longer than %u second%s and was stopped", what,
			child_limits.seconds, child_limits.seconds == 1 ? "" : "s");
	if (how == END_BIG)
		return error_set(e, EIO, "%s found more than %u bytes of structure", what, LIMIT_METADATA);
	if (how == END_MEMORY)
		return error_set(e, ENOMEM, "out of memory");
	if (WIFSIGNALED(status) || WEXITSTATUS(status) > CRASHED)
		return error_set(e, EIO, "%s crashed on this file (%s): it is damaged, or made to harm", what,
			strsignal(WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status) - CRASHED));
	return error_set(e, EIO, "%s ended without an answer: the file is damaged, or made to harm", what);
}

/* Takes r's bytes. */
static int accept_reply(const char *what, struct reply *r, int status, struct source **out, struct error *e)
{
	struct source *src = source_from_memory(r->bytes, r->len, "reply");
	struct cursor c;
	struct error bad = {0};
	char text[sizeof(bad.text)] = "";
	uint32_t magic, code, len;
	uint64_t size;
	int result = 0;

	if (!src)
		return error_set(e, ENOMEM, "out of memory");
	cursor_init(&c, src, 0, r->len, &bad);
	magic = cursor_u32le(&c);
	code = cursor_u32le(&c);
	len = cursor_u32le(&c);
	cursor_bytes(&c, text, len < sizeof(text) ? len : sizeof(text) - 1);
	size = cursor_u64le(&c);
	if (cursor_failed(&c) == -ENOMEM)
		result = error_set(e, ENOMEM, "out of memory");
	else if (cursor_failed(&c) || magic != MAGIC || len >= sizeof(text) || size != cursor_left(&c) || code > 4095)
		result = complain(what, END_WELL, status, e);
	else if (code)
		result = error_set(e, (int)code, "%s", text);
	if (!result) {
		void *copy = malloc(size ? (size_t)size : 1);

		if (copy && source_read(src, c.pos, copy, (size_t)size, e) < 0) {
			free(copy);
			result = -EIO;
		}
		*out = copy && !result ? source_from_memory(copy, (size_t)size, what) : NULL;
		if (!*out && !result)
			result = error_set(e, ENOMEM, "out of memory");
	}
	cursor_release(&c);
	source_unref(src);
	return result;
}

int child_run(const char *what, struct source *src, int (*work)(void *, struct reply *, struct error *), void *arg,
	struct source **out, struct error *e)
{
	struct reply reply = {0};
	int pipefd[2], status = 0;
	enum end how;
	pid_t pid;

	*out = NULL;
	if (pipe2(pipefd, O_CLOEXEC) < 0)
		return error_set(e, errno, "no pipe for a child: %s", strerror(errno));
	pid = fork();
	if (pid == 0)
		run(src ? source_fd(src) : -1, pipefd[1], work, arg);
	close(pipefd[1]);
	if (pid < 0) {
		close(pipefd[0]);
		return error_set(e, errno, "no child for %s: %s", what, strerror(errno));
	}
	how = collect(pipefd[0], &reply);
	close(pipefd[0]);
	if (how != END_WELL)
		kill(pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (how != END_WELL) {
		free(reply.bytes);
		return complain(what, how, status, e);
	}
	return accept_reply(what, &reply, status, out, e);
}
