/* SPDX-License-Identifier: MIT */
#include "fs/lead.h"

#include <poll.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

/* How long to look out: about what a virtual machine needs to wake a sleeper. */
#define LOOKOUT_NS 100000

static _Thread_local bool leading;

void lead_init(struct lead *l, bool lookout)
{
	*l = (struct lead){.lookout = lookout};
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->free, NULL);
}

void lead_release(struct lead *l)
{
	pthread_cond_destroy(&l->free);
	pthread_mutex_destroy(&l->lock);
}

bool lead_take(struct lead *l)
{
	if (leading)
		return true;
	pthread_mutex_lock(&l->lock);
	while (l->taken && !l->ended)
		pthread_cond_wait(&l->free, &l->lock);
	leading = !l->ended;
	if (leading)
		l->taken = true;
	pthread_mutex_unlock(&l->lock);
	return leading;
}

void lead_pass(struct lead *l)
{
	if (!leading)
		return;
	leading = false;
	pthread_mutex_lock(&l->lock);
	l->taken = false;
	pthread_cond_signal(&l->free);
	pthread_mutex_unlock(&l->lock);
}

void lead_end(struct lead *l)
{
	pthread_mutex_lock(&l->lock);
	l->ended = true;
	pthread_cond_broadcast(&l->free);
	pthread_mutex_unlock(&l->lock);
}

static int64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

ssize_t lead_read(struct lead *l, int fd, void *buf, size_t len)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	int64_t start;
	ssize_t n;

	if (!l->lookout)
		return read(fd, buf, len);
	start = clock_ns();
	while (l->brisk && poll(&p, 1, 0) == 0 && clock_ns() - start < LOOKOUT_NS)
		;
	n = read(fd, buf, len);
	/* twice: when slept, the time to wake is in it */
	l->brisk = clock_ns() - start < 2 * LOOKOUT_NS;
	return n;
}
