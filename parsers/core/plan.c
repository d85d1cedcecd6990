/* SPDX-License-Identifier: MIT */
#include "parsers/core/plan.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void plan_release(struct plan *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->count; i++) {
		free(p->files[i].name);
		extmap_release(&p->files[i].map);
	}
	for (size_t i = 0; i < p->obsolete_count; i++)
		free(p->obsolete[i]);
	for (size_t i = 0; i < p->loss_count; i++)
		free(p->losses[i]);
	free(p->files);
	free(p->obsolete);
	free(p->losses);
	arena_free(p->arena);
	p->arena = NULL;
	p->files = NULL;
	p->obsolete = p->losses = NULL;
	p->count = p->obsolete_count = p->loss_count = 0;
	p->cap = p->obsolete_cap = p->loss_cap = 0;
}

struct extmap *plan_file(struct plan *p, const char *name)
{
	struct plan_file *f;
	char *copy = strdup(name);

	if (!copy)
		return NULL;
	if (p->count == p->cap) {
		size_t cap = p->cap ? p->cap * 2 : 4;
		void *grown = reallocarray(p->files, cap, sizeof(*p->files));

		if (!grown) {
			free(copy);
			return NULL;
		}
		p->files = grown;
		p->cap = cap;
	}
	f = &p->files[p->count++];
	memset(f, 0, sizeof(*f));
	f->name = copy;
	return &f->map;
}

/* Takes `line`, frees it when there is no room. */
static int append_line(char ***lines, size_t *count, size_t *cap, char *line)
{
	if (!line)
		return -ENOMEM;
	if (*count == *cap) {
		size_t wanted = *cap ? *cap * 2 : 8;
		char **grown = reallocarray(*lines, wanted, sizeof(*grown));

		if (!grown) {
			free(line);
			return -ENOMEM;
		}
		*lines = grown;
		*cap = wanted;
	}
	(*lines)[(*count)++] = line;
	return 0;
}

int plan_obsolete(struct plan *p, const char *name)
{
	return append_line(&p->obsolete, &p->obsolete_count, &p->obsolete_cap, strdup(name));
}

int plan_loss(struct plan *p, const char *format, ...)
{
	char *line = NULL;
	va_list ap;
	int n;

	va_start(ap, format);
	n = vasprintf(&line, format, ap);
	va_end(ap);
	return append_line(&p->losses, &p->loss_count, &p->loss_cap, n < 0 ? NULL : line);
}

int plan_plain_losses(struct plan *p, const struct model *m, const char *container)
{
	const struct value *values = m->meta.values;
	int r = 0;

	for (uint32_t i = 0; !r && i < m->tensor_count; i++)
		if (m->tensors[i].alias_of != MODEL_NONE)
			r = plan_loss(p, "alias: '%.*s' no longer shares the data of '%.*s'",
				STR_ARG(m->tensors[i].name),
				STR_ARG(m->tensors[m->tensors[i].alias_of].name));
	if (!r && m->op_count)
		r = plan_loss(p, "graph: %u ops have no place in %s", m->op_count, container);
	for (size_t i = 0; !r && values && i < values->map.count; i++)
		r = plan_loss(p, "value '%.*s' has no place in %s", STR_ARG(values->map.members[i].key),
			container);
	for (uint32_t i = 0; !r && i < m->file_count; i++)
		r = plan_loss(p, "file '%.*s' has no place in %s", STR_ARG(m->files[i].path), container);
	return r;
}
