/* SPDX-License-Identifier: MIT */
#include "parsers/sidecar.h"

#include "parsers/container/json.h"
#include "parsers/container/json_write.h"
#include "parsers/core/limits.h"
#include "parsers/core/metadata.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static int put_key(struct model *m, const struct member *w)
{
	const struct metadata_key *k = metadata_key(w->key);

	if (str_is(w->key, "preprocessing") && w->value->kind == VALUE_MAP) {
		if (!m->meta.preprocessing)
			m->meta.preprocessing = w->value;
		return 0;
	}
	if (!k || !k->writable || k->check(w->value, NULL) < 0) {
		model_warn(m, "sidecar: key '%.*s' is ignored", STR_ARG(w->key));
		return 0;
	}
	if (!m->meta.model)
		m->meta.model = value_map(m->arena);
	if (value_get(m->meta.model, k->name))
		return 0; /* the file's own says it better */
	return value_set(m->arena, m->meta.model, w->key, w->value);
}

static int read_keys(struct source *src, struct model *m, struct error *e)
{
	uint64_t size = source_size(src);
	struct error why = {0};
	struct value *v;
	char *text;
	int r;

	text = size <= LIMIT_METADATA ? arena_alloc(m->arena, (size_t)size) : NULL;
	if (!text) {
		model_warn(m, "sidecar '%s' is ignored: it has %llu bytes", source_name(src),
			(unsigned long long)size);
		return 0;
	}
	r = source_read(src, 0, text, (size_t)size, &why);
	if (!r)
		r = json_parse(m->arena, text, (size_t)size, &v, &why);
	if (!r && v->kind != VALUE_MAP)
		r = error_set(&why, EINVAL, "not an object");
	if (r < 0) {
		model_warn(m, "sidecar '%s' is ignored: %s", source_name(src), why.text);
		return 0;
	}
	for (size_t i = 0; !r && i < v->map.count; i++)
		r = put_key(m, &v->map.members[i]);
	return r < 0 ? error_set(e, ENOMEM, "out of memory for the sidecar") : 0;
}

int sidecar_read(const struct input *in, struct model *m, struct error *e)
{
	struct source *src;
	char *name;
	int r = 0;

	if (m->format->keeps_properties || in->is_dir || !in->base.len)
		return 0;
	if (asprintf(&name, "%.*s" SIDECAR_SUFFIX, (int)in->base.len, in->base.ptr) < 0)
		return error_set(e, ENOMEM, "out of memory");
	if (input_has(in, name)) {
		r = input_companion(in, str_from(name), 0, &src, e);
		if (!r) {
			r = model_add_source(m, src, e);
			if (!r)
				r = read_keys(src, m, e);
			source_unref(src);
		}
	}
	free(name);
	return r;
}

/* The sidecar that the model was read with, NULL = none. */
static struct source *present(const struct model *m)
{
	const struct model *base = m->base ? m->base : m;

	for (uint32_t i = 0; i < base->source_count; i++)
		if (str_ends(str_from(source_name(base->sources[i])), STR(SIDECAR_SUFFIX)))
			return base->sources[i];
	return NULL;
}

static int append_text(struct extmap *map, const struct value *keys, struct error *e)
{
	struct json j = {0};
	size_t len;
	char *text;

	json_value(&j, keys);
	json_end(&j);
	text = json_take(&j, &len);
	if (!text)
		return error_set(e, ENOMEM, "out of memory for the sidecar");
	extmap_append_take(map, text, len);
	return extmap_failed(map, e);
}

int sidecar_plan(const struct model *m, const struct value *keys, struct plan *p, struct error *e)
{
	struct source *old = p->in_place ? present(m) : NULL;
	struct extmap *map;
	char *name;
	int r = 0;

	if (!keys && !old)
		return 0;
	if (asprintf(&name, "%s" SIDECAR_SUFFIX, p->root_name) < 0)
		return error_set(e, ENOMEM, "out of memory for the sidecar");
	if (keys) {
		map = plan_file(p, name);
		if (!map)
			r = error_set(e, ENOMEM, "out of memory for the sidecar");
		else if (old && !m->meta_edited) {
			extmap_append_source(map, old, 0, source_size(old));
			p->files[p->count - 1].unchanged = true;
			r = extmap_failed(map, e);
		} else
			r = append_text(map, keys, e);
	} else if (plan_obsolete(p, name) < 0) {
		r = error_set(e, ENOMEM, "out of memory for the sidecar");
	}
	free(name);
	return r;
}

int model_plan(const struct model *m, const struct format *f, struct plan *p, struct error *e)
{
	struct model shown = *m;
	struct value *sidecar;
	int r;

	if (!f->plan)
		return error_set(e, EOPNOTSUPP, "%s cannot be written", f->title);
	if (!p->arena)
		p->arena = arena_new(LIMIT_MODEL_MEMORY);
	if (!p->arena)
		return error_set(e, ENOMEM, "out of memory for a plan");
	r = metadata_spill(p->arena, f, &m->meta, &shown.meta, &sidecar, e);
	if (!r)
		r = f->plan(&shown, p, e);
	return r < 0 ? r : sidecar_plan(m, sidecar, p, e);
}
