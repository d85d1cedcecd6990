/* SPDX-License-Identifier: MIT */
#include "fs/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

static struct {
	enum log_target target;
	int fd;
	bool verbose;
} log_state = {.target = LOG_TO_STDERR, .fd = -1};

int log_open(enum log_target target, const char *file, bool verbose, struct error *e)
{
	log_state.verbose = verbose;
	log_state.target = target;
	if (target != LOG_TO_FILE)
		return 0;
	log_state.fd = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (log_state.fd < 0)
		return error_set(e, errno, "cannot open log file '%s': %s", file, strerror(errno));
	return 0;
}

static void log_line(int level, const char *text)
{
	char line[1400], stamp[32];
	struct tm tm;
	time_t now = time(NULL);
	int n;

	if (log_state.target == LOG_TO_SYSLOG) {
		syslog(level, "%s", text);
		return;
	}
	gmtime_r(&now, &tm);
	strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%SZ", &tm);
	if (log_state.target == LOG_TO_FILE)
		n = snprintf(line, sizeof(line), "%s wiamodel[%d]: %s\n", stamp, (int)getpid(), text);
	else
		n = snprintf(line, sizeof(line), "wiamodel: %s\n", text);
	if (n < 0)
		return;
	if ((size_t)n >= sizeof(line))
		n = (int)sizeof(line) - 1;
	/* a log that cannot be written has no place to complain */
	if (write(log_state.target == LOG_TO_FILE ? log_state.fd : STDERR_FILENO, line, (size_t)n) < 0)
		return;
}

__attribute__((format(printf, 2, 0))) static void log_v(int level, const char *format, va_list ap)
{
	char text[1024];

	vsnprintf(text, sizeof(text), format, ap);
	for (char *p = text; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			*p = '?';
	log_line(level, text);
}

void log_error(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	log_v(LOG_ERR, format, ap);
	va_end(ap);
}

void log_note(const char *format, ...)
{
	va_list ap;

	if (!log_state.verbose)
		return;
	va_start(ap, format);
	log_v(LOG_INFO, format, ap);
	va_end(ap);
}

bool log_is_verbose(void)
{
	return log_state.verbose;
}

void log_connect(void)
{
	if (log_state.target == LOG_TO_SYSLOG)
		openlog("wiamodel", LOG_PID | LOG_NDELAY, LOG_DAEMON);
}

int log_fd(void)
{
	return log_state.fd;
}
