/* SPDX-License-Identifier: MIT */
#include "fs/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/landlock.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Sanitizers map terabytes, read /proc and trace themselves at the end. */
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

/* The interface's constants by value: headers of older systems know only the first versions. */
#define ACCESS_WRITE_FILE (1ull << 1)
#define ACCESS_READ_FILE (1ull << 2)
#define ACCESS_READ_DIR (1ull << 3)
#define ACCESS_V1 ((1ull << 13) - 1)
#define ACCESS_REFER (1ull << 13)    /* version 2: rename between directories */
#define ACCESS_TRUNCATE (1ull << 14) /* version 3 */
#define NET_BIND_CONNECT 3ull        /* version 4: TCP */
#define SCOPE_UNIX_AND_SIGNAL 3ull   /* version 6: abstract sockets, signals to others */
#define ACCESS_MAKE_DEVICES ((1ull << 6) | (1ull << 9) | (1ull << 10) | (1ull << 11))

struct ruleset { /* struct landlock_ruleset_attr of version 6 */
	uint64_t fs, net, scoped;
};

int sandbox_allow(struct sandbox *s, const char *dir, bool write)
{
	char *real = realpath(dir, NULL);

	if (!real)
		return errno == ENOMEM ? -ENOMEM : 0;
	for (unsigned i = 0; i < s->count; i++)
		if (strcmp(s->dirs[i].path, real) == 0) {
			s->dirs[i].write |= write;
			free(real);
			return 0;
		}
	if (s->count == SANDBOX_DIRS_MAX) {
		free(real);
		return -E2BIG;
	}
	s->dirs[s->count].path = real;
	s->dirs[s->count++].write = write;
	return 0;
}

/* the directory of a path, as text; "." when it has none */
static void directory_of(const char *path, char out[PATH_MAX])
{
	size_t len = strlen(path);

	while (len > 1 && path[len - 1] == '/')
		len--;
	while (len > 0 && path[len - 1] != '/')
		len--;
	while (len > 1 && path[len - 1] == '/')
		len--;
	snprintf(out, PATH_MAX, "%.*s", len ? (int)len : 1, len ? path : ".");
}

static int allow_blobs(struct sandbox *s, const char *dir)
{
	/* snapshots/REV/[SUB/]NAME -> ../../[../]blobs/HEX */
	static const char *const ways[] = {"../../blobs", "../../../blobs"};
	char path[PATH_MAX + 16];
	int r = 0;

	for (unsigned i = 0; i < 2 && r == 0; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, ways[i]);
		r = sandbox_allow(s, path, false);
	}
	return r;
}

int sandbox_allow_model(struct sandbox *s, const char *model, bool write)
{
	char dir[PATH_MAX];
	char *real = realpath(model, NULL);
	struct stat st;
	bool is_dir = real && stat(real, &st) == 0 && S_ISDIR(st.st_mode);
	int r;

	/* edits are staged, and directories switched, beside what the user named */
	directory_of(model, dir);
	r = !is_dir || write ? sandbox_allow(s, dir, write) : 0;
	if (r == 0)
		r = allow_blobs(s, is_dir ? model : dir);
	if (r == 0 && is_dir)
		r = sandbox_allow(s, real, write);
	if (r == 0 && real && (!is_dir || write)) { /* a symlink's target is what gets written */
		directory_of(real, dir);
		r = sandbox_allow(s, dir, write);
	}
	free(real);
	return r;
}

static int landlock_allow(int ruleset, const char *path, uint64_t access, struct error *e)
{
	struct landlock_path_beneath_attr rule = {.allowed_access = access};
	int r = 0;

	rule.parent_fd = open(path, O_PATH | O_CLOEXEC);
	if (rule.parent_fd < 0)
		return error_set(e, errno, "sandbox: cannot open '%s': %s", path, strerror(errno));
	if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
		r = error_set(e, errno, "sandbox: landlock rule for '%s': %s", path, strerror(errno));
	close(rule.parent_fd);
	return r;
}

static int landlock_rules(const struct sandbox *s, int ruleset, uint64_t handled, struct error *e)
{
	/* devices, sockets and fifos are nothing a model is saved as */
	uint64_t change = handled & ~ACCESS_MAKE_DEVICES & ~1ull; /* bit 0: execute */
	uint64_t look = ACCESS_READ_FILE | ACCESS_READ_DIR;
	int r = 0;

	for (unsigned i = 0; i < s->count && r == 0; i++)
		r = landlock_allow(ruleset, s->dirs[i].path, s->dirs[i].write ? change : look, e);
	if (SANITIZED && r == 0)
		r = landlock_allow(ruleset, "/proc", look, e);
	return r;
}

/* 0 also where the kernel has no Landlock: then s->note says so. */
static int landlock_enter(struct sandbox *s, struct error *e)
{
	struct ruleset attr = {.fs = ACCESS_V1};
	long version = syscall(SYS_landlock_create_ruleset, NULL, 0, 1);
	size_t size = version >= 6 ? 24 : version >= 4 ? 16 : 8;
	int fd, r;

	if (version < 1) {
		snprintf(s->note, sizeof(s->note), "sandbox: no landlock here (%s): any file can be opened",
			strerror(errno));
		return 0;
	}
	attr.fs |= (version >= 2 ? ACCESS_REFER : 0) | (version >= 3 ? ACCESS_TRUNCATE : 0);
	attr.net = version >= 4 ? NET_BIND_CONNECT : 0;
	attr.scoped = version >= 6 ? SCOPE_UNIX_AND_SIGNAL : 0;
	fd = (int)syscall(SYS_landlock_create_ruleset, &attr, size, 0);
	if (fd < 0)
		return error_set(e, errno, "sandbox: landlock: %s", strerror(errno));
	r = landlock_rules(s, fd, attr.fs, e);
	if (r == 0 && syscall(SYS_landlock_restrict_self, fd, 0) < 0)
		r = error_set(e, errno, "sandbox: landlock: %s", strerror(errno));
	close(fd);
	return r;
}

/* By name: what one architecture lacks is skipped. */
static const char *const denied[] = {
	"execve", "execveat", "ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd",
	"process_madvise",
	"socket", "socketpair", "connect", "bind", "listen", "accept", "accept4", "socketcall",
	"mount", "umount", "umount2", "move_mount", "open_tree", "fsopen", "fsmount", "fsconfig", "fspick",
	"mount_setattr", "pivot_root", "chroot", "setns", "unshare",
	"bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register",
	"add_key", "request_key", "keyctl",
	"init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot",
	"swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "syslog", "vhangup", "lookup_dcookie",
	"settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "sethostname", "setdomainname",
	"iopl", "ioperm", "modify_ldt", "personality", "uselib", "nfsservctl",
	"open_by_handle_at", "name_to_handle_at", "fanotify_init", "mknod", "mknodat",
};

static int seccomp_enter(struct sandbox *s, struct error *e)
{
	scmp_filter_ctx cx = seccomp_init(SCMP_ACT_ALLOW);
	int r = cx ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < sizeof(denied) / sizeof(*denied); i++) {
		int nr = seccomp_syscall_resolve_name(denied[i]);

		if (nr == __NR_SCMP_ERROR || (SANITIZED && strcmp(denied[i], "ptrace") == 0))
			continue;
		r = seccomp_rule_add(cx, SCMP_ACT_ERRNO(EPERM), nr, 0);
		if (r == -EDOM || r == -EFAULT) /* no such call on this architecture */
			r = 0;
	}
	if (r == 0)
		r = seccomp_load(cx);
	seccomp_release(cx);
	if (r == -EINVAL || r == -ENOSYS || r == -ECANCELED) {
		size_t used = strlen(s->note);

		snprintf(s->note + used, sizeof(s->note) - used, "%sno system call filter here (%s)",
			used ? "; " : "sandbox: ", strerror(-r));
		return 0;
	}
	return r < 0 ? error_set(e, -r, "sandbox: system call filter: %s", strerror(-r)) : 0;
}

/* Half of the machine's memory, at least 1 GiB: mapped files and shared pages do not count. */
static void limit_memory(void)
{
	long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
	struct rlimit lim;
	rlim_t bytes = (rlim_t)1 << 30;

	if (SANITIZED || getrlimit(RLIMIT_DATA, &lim) < 0)
		return;
	if (pages > 0 && page > 0 && (rlim_t)pages / 2 > bytes / (rlim_t)page)
		bytes = (rlim_t)pages / 2 * (rlim_t)page;
	if (lim.rlim_cur == RLIM_INFINITY || lim.rlim_cur > bytes) {
		lim.rlim_cur = bytes;
		setrlimit(RLIMIT_DATA, &lim);
	}
}

int sandbox_enter(struct sandbox *s, struct error *e)
{
	int r;

	limit_memory();
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return error_set(e, errno, "sandbox: no_new_privs: %s", strerror(errno));
	r = landlock_enter(s, e);
	return r < 0 ? r : seccomp_enter(s, e);
}

void sandbox_release(struct sandbox *s)
{
	for (unsigned i = 0; i < s->count; i++)
		free(s->dirs[i].path);
	s->count = 0;
}
