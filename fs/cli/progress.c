/* SPDX-License-Identifier: MIT */
#include "fs/cli/progress.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

/* work shorter than this shows nothing */
#define DELAY_MS 500
#define REDRAW_MS 100
#define WIDTH 40

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void add(void *arg, uint64_t bytes)
{
	progress_add(arg, bytes);
}

void progress_begin(struct progress *p, uint64_t total)
{
	*p = (struct progress){.total = total, .started = now_ms()};
	p->output = (struct output_progress){add, p};
	p->terminal = isatty(STDERR_FILENO) == 1;
}

static void draw(const struct progress *p)
{
	double part = p->total ? (double)p->done / (double)p->total : 1;
	int filled;

	if (part > 1)
		part = 1;
	filled = (int)(part * WIDTH);
	fprintf(stderr, "\r[%.*s%*s] %3d %%  %.1f of %.1f MiB", filled,
		"########################################", WIDTH - filled, "", (int)(part * 100),
		(double)p->done / 1048576, (double)p->total / 1048576);
	fflush(stderr);
}

void progress_add(struct progress *p, uint64_t bytes)
{
	int64_t now;

	p->done += bytes;
	if (!p->terminal)
		return;
	now = now_ms();
	if (now - p->started < DELAY_MS || now - p->shown < REDRAW_MS)
		return;
	p->shown = now;
	p->visible = true;
	draw(p);
}

void progress_end(struct progress *p)
{
	if (p->visible)
		fprintf(stderr, "\r\033[K");
	p->visible = false;
}
