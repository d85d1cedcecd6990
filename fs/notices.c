/* SPDX-License-Identifier: MIT */
#include "fs/notices.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

/* how long the kernel may take to let the last one go */
#define STUCK_SECONDS 3

struct notice {
	struct notice *next;
	uint64_t inode;
	size_t len;
	char name[];
};

struct notices {
	void (*deliver)(void *arg, uint64_t inode, struct str name);
	void *arg;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t filled;
	pthread_cond_t delivered;
	struct notice *first, **last;
	uint64_t added, done;
	bool stop;
};

static struct notice *notices_take(struct notices *n)
{
	struct notice *one;

	pthread_mutex_lock(&n->lock);
	while (!n->first && !n->stop)
		pthread_cond_wait(&n->filled, &n->lock);
	one = n->stop ? NULL : n->first;
	if (one) {
		n->first = one->next;
		if (!n->first)
			n->last = &n->first;
	}
	pthread_mutex_unlock(&n->lock);
	return one;
}

static void *notices_run(void *arg)
{
	struct notices *n = arg;
	struct notice *one;

	while ((one = notices_take(n)) != NULL) {
		n->deliver(n->arg, one->inode, (struct str){one->name, one->len});
		free(one);
		pthread_mutex_lock(&n->lock);
		n->done++;
		pthread_cond_broadcast(&n->delivered);
		pthread_mutex_unlock(&n->lock);
	}
	return NULL;
}

struct notices *notices_new(void (*deliver)(void *arg, uint64_t inode, struct str name), void *arg)
{
	struct notices *n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	n->deliver = deliver;
	n->arg = arg;
	n->last = &n->first;
	pthread_mutex_init(&n->lock, NULL);
	pthread_cond_init(&n->filled, NULL);
	pthread_cond_init(&n->delivered, NULL);
	if (pthread_create(&n->thread, NULL, notices_run, n) != 0) {
		free(n);
		return NULL;
	}
	return n;
}

int notices_add(struct notices *n, uint64_t inode, struct str name)
{
	struct notice *one = malloc(sizeof(*one) + name.len + 1);

	if (!one)
		return -ENOMEM;
	one->next = NULL;
	one->inode = inode;
	one->len = name.len;
	if (name.len)
		memcpy(one->name, name.ptr, name.len);
	one->name[name.len] = 0;
	pthread_mutex_lock(&n->lock);
	*n->last = one;
	n->last = &one->next;
	n->added++;
	pthread_cond_signal(&n->filled);
	pthread_mutex_unlock(&n->lock);
	return 0;
}

void notices_settle(struct notices *n, unsigned milliseconds)
{
	struct timespec until;
	uint64_t wanted;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += milliseconds / 1000;
	until.tv_nsec += milliseconds % 1000 * 1000000l;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	pthread_mutex_lock(&n->lock);
	wanted = n->added;
	while (n->done < wanted && !n->stop &&
		pthread_cond_timedwait(&n->delivered, &n->lock, &until) == 0)
		;
	pthread_mutex_unlock(&n->lock);
}

bool notices_free(struct notices *n)
{
	struct timespec until;
	struct notice *one;

	if (!n)
		return true;
	pthread_mutex_lock(&n->lock);
	n->stop = true;
	pthread_cond_signal(&n->filled);
	pthread_cond_broadcast(&n->delivered);
	pthread_mutex_unlock(&n->lock);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += STUCK_SECONDS;
	if (pthread_timedjoin_np(n->thread, NULL, &until) != 0)
		return false;
	while ((one = n->first) != NULL) {
		n->first = one->next;
		free(one);
	}
	pthread_cond_destroy(&n->filled);
	pthread_cond_destroy(&n->delivered);
	pthread_mutex_destroy(&n->lock);
	free(n);
	return true;
}
