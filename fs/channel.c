/* SPDX-License-Identifier: MIT */
#include "fs/channel.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

int channel_new(int fds[2])
{
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0 ? -errno : 0;
}

int channel_send(int sock, enum message_kind kind, uint32_t code, const char *text, int fd)
{
	struct message m = {.kind = kind, .code = code};
	struct iovec iov = {.iov_base = &m, .iov_len = sizeof(m)};
	_Alignas(struct cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {0};
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};

	snprintf(m.text, sizeof(m.text), "%s", text ? text : "");
	if (fd >= 0) {
		struct cmsghdr *c;

		h.msg_control = space;
		h.msg_controllen = sizeof(space);
		c = CMSG_FIRSTHDR(&h);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(int));
	}
	return sendmsg(sock, &h, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static int channel_wait(int sock, int timeout)
{
	struct pollfd p = {.fd = sock, .events = POLLIN};
	int n;

	do
		n = poll(&p, 1, timeout);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n == 0 ? -ETIMEDOUT : 0;
}

int channel_receive(int sock, struct message *m, int *fd, int timeout)
{
	struct iovec iov = {.iov_base = m, .iov_len = sizeof(*m)};
	_Alignas(struct cmsghdr) char space[CMSG_SPACE(sizeof(int))];
	struct msghdr h = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = space,
		.msg_controllen = sizeof(space)};
	struct cmsghdr *c;
	ssize_t n;
	int r;

	if (fd)
		*fd = -1;
	r = channel_wait(sock, timeout);
	if (r < 0)
		return r;
	do
		n = recvmsg(sock, &h, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n == 0 || (n < 0 && errno == ECONNRESET))
		return -EPIPE;
	if (n < 0)
		return -errno;
	if ((size_t)n != sizeof(*m))
		return -EPROTO;
	m->text[sizeof(m->text) - 1] = 0;
	c = CMSG_FIRSTHDR(&h);
	if (fd && c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
		c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(fd, CMSG_DATA(c), sizeof(int));
	return 0;
}
