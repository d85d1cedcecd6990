/* SPDX-License-Identifier: MIT */
#include "fs/draft.h"
#include "fs/layer.h"
#include "fs/output.h"
#include "fs/workspace_private.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* A journal record holds 1 MiB; with more pieces than this the content is copied into one file. */
#define PIECES_MAX 32768

/* ---- staging files ---- */

struct staging {
	struct workspace *w;
	char name[JOURNAL_NAME_MAX];
	_Atomic int refs;
};

const char *staging_name(const struct staging *s)
{
	return s->name;
}

struct staging *staging_named(struct workspace *w, struct str name)
{
	struct staging *s = name.len < JOURNAL_NAME_MAX ? calloc(1, sizeof(*s)) : NULL;

	if (!s)
		return NULL;
	s->w = w;
	s->refs = 1;
	if (name.len)
		memcpy(s->name, name.ptr, name.len);
	return s;
}

int staging_new(struct workspace *w, struct staging **out, int *fd, struct error *e)
{
	struct staging *s = staging_named(w, (struct str){0});
	int r;

	*out = NULL;
	if (!s)
		return error_set(e, ENOMEM, "out of memory for a staged file");
	pthread_mutex_lock(&w->journal_lock);
	r = journal_staging(w->journal, s->name, fd, e);
	pthread_mutex_unlock(&w->journal_lock);
	if (r < 0)
		free(s);
	else
		*out = s;
	return r;
}

struct staging *staging_ref(struct staging *s)
{
	atomic_fetch_add(&s->refs, 1);
	return s;
}

void staging_unref(struct staging *s)
{
	if (!s || atomic_fetch_sub(&s->refs, 1) > 1)
		return;
	pthread_mutex_lock(&s->w->journal_lock);
	if (s->w->journal && !s->w->keep_staging)
		journal_unstage(s->w->journal, s->name);
	pthread_mutex_unlock(&s->w->journal_lock);
	free(s);
}

/* ---- drafts ---- */

/* A frozen layer's file. */
struct part {
	struct staging *file;
	struct source *src;
	bool durable;
};

struct draft {
	struct workspace *w;
	_Atomic int refs;
	pthread_mutex_t lock;
	struct origin origin;
	struct layer *layer; /* takes writes; NULL: the next write makes one */
	struct staging *top; /* the layer's file */
	struct extmap *map;  /* content below the layer, NULL = empty */
	struct part *parts;  /* what the map's sources are */
	size_t part_count;
	_Atomic uint64_t changes;
	struct timespec mtime;
};

static void origin_release(struct origin *o)
{
	extmap_unref(o->rendering);
	free(o->path);
	*o = (struct origin){0};
}

static void parts_release(struct draft *d)
{
	for (size_t i = 0; i < d->part_count; i++) {
		source_unref(d->parts[i].src);
		staging_unref(d->parts[i].file);
	}
	free(d->parts);
	d->parts = NULL;
	d->part_count = 0;
}

static void drop_layer(struct draft *d)
{
	layer_free(d->layer);
	staging_unref(d->top);
	d->layer = NULL;
	d->top = NULL;
}

/* The rendering as one piece of its own kind, so that it is known again when layers lie over it. */
static struct extmap *whole(struct extmap *rendering)
{
	struct extent x = extent_map(rendering);
	struct extmap *m = extmap_new();

	if (m && extmap_append(m, &x) < 0) {
		extmap_unref(m);
		m = NULL;
	}
	return m;
}

struct draft *draft_new(struct workspace *w, struct origin *origin, struct error *e)
{
	struct draft *d = calloc(1, sizeof(*d));
	bool shown = origin && origin->rendering;

	if (d && shown)
		d->map = whole(origin->rendering);
	if (!d || (shown && !d->map)) {
		free(d);
		if (origin)
			origin_release(origin);
		error_set(e, ENOMEM, "out of memory for a staged file");
		return NULL;
	}
	d->w = w;
	d->refs = 1;
	pthread_mutex_init(&d->lock, NULL);
	if (origin)
		d->origin = *origin;
	clock_gettime(CLOCK_REALTIME, &d->mtime);
	return d;
}

struct draft *draft_ref(struct draft *d)
{
	atomic_fetch_add(&d->refs, 1);
	return d;
}

void draft_unref(struct draft *d)
{
	if (!d || atomic_fetch_sub(&d->refs, 1) > 1)
		return;
	drop_layer(d);
	extmap_unref(d->map);
	parts_release(d);
	origin_release(&d->origin);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

static uint64_t size_of(const struct draft *d)
{
	return d->layer ? layer_size(d->layer) : d->map ? d->map->size : 0;
}

uint64_t draft_size(struct draft *d)
{
	uint64_t size;

	pthread_mutex_lock(&d->lock);
	size = size_of(d);
	pthread_mutex_unlock(&d->lock);
	return size;
}

bool draft_is_fresh(struct draft *d)
{
	bool fresh;

	pthread_mutex_lock(&d->w->lock);
	fresh = d->origin.rendering && d->origin.revision == d->w->revision &&
		d->origin.epoch == atomic_load(&d->w->epoch);
	pthread_mutex_unlock(&d->w->lock);
	return fresh && draft_changes(d) == 0;
}

bool draft_is_empty(struct draft *d)
{
	return draft_size(d) == 0;
}

struct timespec draft_mtime(struct draft *d)
{
	struct timespec t;

	pthread_mutex_lock(&d->lock);
	t = d->mtime;
	pthread_mutex_unlock(&d->lock);
	return t;
}

void draft_set_mtime(struct draft *d, struct timespec t)
{
	pthread_mutex_lock(&d->lock);
	d->mtime = t;
	pthread_mutex_unlock(&d->lock);
}

uint64_t draft_changes(const struct draft *d)
{
	return atomic_load(&((struct draft *)(uintptr_t)d)->changes);
}

ssize_t draft_read(struct draft *d, uint64_t offset, void *buf, size_t len, struct error *e)
{
	uint64_t size;
	ssize_t n = 0;
	int r;

	pthread_mutex_lock(&d->lock);
	size = size_of(d);
	if (d->layer) {
		n = layer_read(d->layer, offset, buf, len, e);
	} else if (offset < size) {
		len = size - offset < len ? (size_t)(size - offset) : len;
		r = extmap_read(d->map, offset, buf, len, e);
		n = r < 0 ? r : (ssize_t)len;
	}
	pthread_mutex_unlock(&d->lock);
	return n;
}

static int open_layer(struct draft *d, struct error *e)
{
	int fd, r;

	if (d->layer)
		return 0;
	r = staging_new(d->w, &d->top, &fd, e);
	if (!r)
		r = layer_new(fd, d->map, &d->layer, e);
	if (r < 0) {
		staging_unref(d->top);
		d->top = NULL;
	}
	return r;
}

static void changed(struct draft *d)
{
	atomic_fetch_add(&d->changes, 1);
	clock_gettime(CLOCK_REALTIME, &d->mtime);
}

int draft_write(struct draft *d, uint64_t offset, const void *buf, size_t len, struct error *e)
{
	int r;

	if (!len)
		return 0;
	pthread_mutex_lock(&d->lock);
	r = open_layer(d, e);
	if (!r)
		r = layer_write(d->layer, offset, buf, len, e);
	changed(d); /* also after a failure, which may leave a part */
	pthread_mutex_unlock(&d->lock);
	return r;
}

int draft_truncate(struct draft *d, uint64_t size, struct error *e)
{
	int r = 0;

	pthread_mutex_lock(&d->lock);
	if (size == 0) {
		drop_layer(d);
		extmap_unref(d->map);
		d->map = NULL;
		parts_release(d);
	} else if (size != size_of(d)) {
		r = open_layer(d, e);
		if (!r)
			r = layer_truncate(d->layer, size, e);
	}
	if (!r)
		changed(d);
	pthread_mutex_unlock(&d->lock);
	return r;
}

/* ---- content ---- */

static size_t part_of(const struct draft *d, const struct extent *x)
{
	size_t i = 0;

	while (i < d->part_count && d->parts[i].src != x->src)
		i++;
	return i;
}

/* The layer's source, which the map has and no part yet. */
static struct source *new_source(const struct draft *d, const struct extmap *m)
{
	for (size_t i = 0; i < m->count; i++)
		if (m->pieces[i].kind == EXTENT_SOURCE && part_of(d, &m->pieces[i]) == d->part_count)
			return m->pieces[i].src;
	return NULL;
}

/* Parts that later ones cover give their disk space back. */
static void prune(struct draft *d)
{
	size_t kept = 0;
	char *used = calloc(d->part_count + 1, 1);

	if (!used)
		return;
	for (size_t i = 0; i < d->map->count; i++)
		if (d->map->pieces[i].kind == EXTENT_SOURCE)
			used[part_of(d, &d->map->pieces[i])] = 1;
	for (size_t i = 0; i < d->part_count; i++) {
		if (used[i]) {
			d->parts[kept++] = d->parts[i];
			continue;
		}
		source_unref(d->parts[i].src);
		staging_unref(d->parts[i].file);
	}
	d->part_count = kept;
	free(used);
}

/* The layer's content becomes the map below the next one. */
static int freeze(struct draft *d, struct error *e)
{
	struct part *grown;
	struct extmap *m;
	struct source *src;
	int r;

	if (!d->layer)
		return 0;
	grown = reallocarray(d->parts, d->part_count + 1, sizeof(*grown));
	if (!grown)
		return error_set(e, ENOMEM, "out of memory for a staged file");
	d->parts = grown;
	r = layer_map(d->layer, &m, e);
	if (r < 0)
		return r;
	src = new_source(d, m);
	if (src)
		d->parts[d->part_count++] =
			(struct part){staging_ref(d->top), source_ref(src), false};
	extmap_unref(d->map);
	d->map = m;
	drop_layer(d);
	prune(d);
	return 0;
}

/* The content copied into one staging file: for what the journal could not describe. */
static int settle(struct draft *d, struct error *e)
{
	struct staging *file;
	struct source *src = NULL;
	struct extmap *m = extmap_new();
	struct part *parts = calloc(1, sizeof(*parts));
	int fd, r = m && parts ? staging_new(d->w, &file, &fd, e)
			       : error_set(e, ENOMEM, "out of memory for a staged file");

	if (r < 0)
		goto out;
	r = output_map(fd, d->map, 0, NULL, e);
	if (r < 0)
		close(fd);
	else
		r = source_from_fd(fd, "staged", &src, e);
	if (!r)
		r = extmap_append_source(m, src, 0, d->map->size);
	if (r < 0) {
		source_unref(src);
		staging_unref(file);
		goto out;
	}
	extmap_unref(d->map);
	d->map = extmap_ref(m);
	parts_release(d);
	d->parts = parts;
	d->part_count = 1;
	*parts = (struct part){file, src, false};
	parts = NULL;
out:
	free(parts);
	extmap_unref(m);
	return r;
}

static bool shows_origin(const struct draft *d)
{
	for (size_t i = 0; i < d->map->count; i++)
		if (d->map->pieces[i].kind == EXTENT_MAP)
			return true;
	return false;
}

/* Whether a journal of now can say what the map consists of. */
static bool is_describable(const struct draft *d)
{
	return d->map->count <= PIECES_MAX &&
	       (!shows_origin(d) || d->origin.epoch == d->w->epoch);
}

static int make_durable(struct draft *d, struct error *e)
{
	for (size_t i = 0; i < d->part_count; i++) {
		if (d->parts[i].durable)
			continue;
		if (fdatasync(source_fd(d->parts[i].src)) < 0)
			return error_set(e, errno, "cannot make staged bytes durable: %s",
				strerror(errno));
		d->parts[i].durable = true;
	}
	return 0;
}

static int describe(struct draft *d, struct record *record, struct error *e)
{
	struct record_range *ranges = calloc(d->map->count + 1, sizeof(*ranges));

	if (!ranges)
		return error_set(e, ENOMEM, "out of memory for a journal record");
	if (shows_origin(d)) {
		record_add_str(record, RECORD_ORIGIN, str_from(d->origin.path));
		record_add_u64(record, RECORD_REVISION, d->origin.revision);
	}
	for (size_t i = 0; i < d->part_count; i++)
		record_add_str(record, RECORD_PART, str_from(d->parts[i].file->name));
	for (size_t i = 0; i < d->map->count; i++) {
		const struct extent *x = &d->map->pieces[i];

		ranges[i].end = d->map->ends[i];
		ranges[i].part = x->kind == EXTENT_SOURCE ? part_of(d, x)
				 : x->kind == EXTENT_MAP  ? RECORD_FROM_ORIGIN
							  : RECORD_ZERO;
	}
	record_add(record, RECORD_RANGES, ranges, d->map->count * sizeof(*ranges));
	free(ranges);
	return record->failed ? error_set(e, ENOMEM, "out of memory for a journal record") : 0;
}

static int list_files(const struct draft *d, struct draft_content *out, struct error *e)
{
	out->files = calloc(d->part_count + 1, sizeof(struct staging *));
	if (!out->files)
		return error_set(e, ENOMEM, "out of memory for a staged file");
	for (size_t i = 0; i < d->part_count; i++)
		out->files[out->file_count++] = staging_ref(d->parts[i].file);
	return 0;
}

static int content(struct draft *d, struct draft_content *out, struct record *record, struct error *e)
{
	int r = freeze(d, e);

	if (!r && !d->map)
		r = (d->map = extmap_new()) ? 0 : error_set(e, ENOMEM, "out of memory for a staged file");
	if (!r && record && !is_describable(d))
		r = settle(d, e);
	if (!r && record)
		r = make_durable(d, e);
	if (!r && record)
		r = describe(d, record, e);
	if (!r)
		r = list_files(d, out, e);
	if (r < 0)
		return r;
	out->map = extmap_ref(d->map);
	out->changes = atomic_load(&d->changes);
	return 0;
}

int draft_content(struct draft *d, struct draft_content *out, struct record *record, struct error *e)
{
	int r;

	*out = (struct draft_content){0};
	pthread_mutex_lock(&d->lock);
	r = content(d, out, record, e);
	pthread_mutex_unlock(&d->lock);
	return r;
}

void draft_content_release(struct draft_content *c)
{
	extmap_unref(c->map);
	for (size_t i = 0; i < c->file_count; i++)
		staging_unref(c->files[i]);
	free(c->files);
	*c = (struct draft_content){0};
}
