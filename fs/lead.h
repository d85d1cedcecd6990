/* SPDX-License-Identifier: MIT */
/*
 * lead: which of the serving threads reads the next request. One at a time does, the lead, and answers quick
 * requests itself, one after the other: waking a second thread for each would cost more than the answer. Before
 * anything that may take long it passes the lead on, so that long requests run beside each other and hold up
 * nobody.
 */
#ifndef FS_LEAD_H
#define FS_LEAD_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

struct lead {
	pthread_mutex_t lock;
	pthread_cond_t free;
	bool taken, ended;
	bool lookout; /* look out for the next request for a moment before sleeping */
	bool brisk;   /* the lead's own: requests follow each other closely */
};

void lead_init(struct lead *l, bool lookout);
void lead_release(struct lead *l);
/* Waits for its turn. false: it is over. No-op for the lead. */
bool lead_take(struct lead *l);
/* No-op for others. */
void lead_pass(struct lead *l);
/* All lead_take return false from now on. */
void lead_end(struct lead *l);
/* read(2), by the lead. */
ssize_t lead_read(struct lead *l, int fd, void *buf, size_t len);

#endif
