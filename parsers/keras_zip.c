/* SPDX-License-Identifier: MIT */
/*
 * Keras 3's .keras (tf_keras since 2.12 too): a zip archive
 *
 *	metadata.json      {"keras_version", "date_saved"}; nobody reads it, further keys are our properties
 *	config.json        {"module", "class_name", "config", "registered_name", "build_config", "compile_config"}
 *	model.weights.h5   keras_read.c; stored members are served from the archive as they lie
 *	assets/...
 *
 * or a directory with the same files, which Keras loads too.
 *
 * Checked against Keras 3.15.1 and tf_keras 2.21.0.
 */
#include "parsers/container/hdf5_change.h"
#include "parsers/container/json_write.h"
#include "parsers/container/zip.h"
#include "parsers/core/limits.h"
#include "parsers/core/metadata.h"
#include "parsers/format.h"
#include "parsers/keras.h"

#include <errno.h>
#include <stdlib.h>

#define WEIGHTS "model.weights.h5"
#define CONFIG "config.json"
#define METADATA "metadata.json"

extern const struct format format_keras;

/* keras.container */
struct archive {
	struct zip zip;
	const struct zip_member *weights, *config, *metadata;
	bool unpacked; /* a directory with those files: these are they, and there is no zip */
	struct source *weights_file, *config_file, *metadata_file;
};

static int no_memory(struct error *e)
{
	return error_set(e, ENOMEM, "out of memory for the model");
}

/* Of members with one name the last counts. */
static const struct zip_member *member(const struct zip *z, const char *name)
{
	for (size_t i = z->count; i-- > 0;)
		if (str_is(z->members[i].name, name))
			return &z->members[i];
	return NULL;
}

static int keras_zip_probe(const struct input *in, struct error *e)
{
	struct arena *a;
	struct zip z;
	char head[4];
	int bits = 0;

	(void)e;
	if (!in->src && in->is_dir)
		return input_has(in, CONFIG) && input_has(in, WEIGHTS) ? 64 : 0;
	if (!in->src || source_size(in->src) < 22 || source_read(in->src, 0, head, 4, NULL) < 0 ||
		memcmp(head, "PK\3\4", 4) != 0 || !zip_is(in->src))
		return 0;
	a = arena_new(LIMIT_MODEL_MEMORY);
	if (a && zip_read(in->src, a, &z, NULL) == 0 && member(&z, CONFIG) && member(&z, WEIGHTS))
		bits = 64;
	else if (str_ends(in->base, STR(".keras")))
		bits = 17; /* damaged, but meant to be one */
	arena_free(a);
	return bits;
}

/* ---- reading ---- */

static int read_text(struct keras *k, const struct archive *z, const struct zip_member *m, struct str *out, struct error *e)
{
	struct extent content;
	char *text;
	int r;

	*out = STR("");
	if (!m)
		return 0;
	if (m->size > LIMIT_METADATA)
		return error_set(e, EIO, "member '%.*s' has %llu bytes, at most %u are expected", STR_ARG(m->name),
			(unsigned long long)m->size, LIMIT_METADATA);
	r = zip_content(&z->zip, m, &content, e);
	if (r < 0)
		return r;
	text = arena_alloc(k->m->arena, (size_t)content.size + 1);
	r = text ? extent_read(&content, 0, text, (size_t)content.size, e) : no_memory(e);
	*out = (struct str){text, (size_t)content.size};
	extent_unref(&content);
	return r;
}

static int read_file(struct keras *k, struct source *src, struct str *out, struct error *e)
{
	uint64_t size = src ? source_size(src) : 0;
	char *text = size <= LIMIT_METADATA ? arena_alloc(k->m->arena, (size_t)size + 1) : NULL;

	*out = (struct str){text, (size_t)size};
	if (!text)
		return error_set(e, EIO, "'%s' has %llu bytes, at most %u are expected", source_name(src),
			(unsigned long long)size, LIMIT_METADATA);
	return src ? source_read(src, 0, text, (size_t)size, e) : 0;
}

static int read_config(struct keras *k, const struct archive *z, struct error *e)
{
	static const char *const shown[] = {"build_config", "compile_config"};
	struct arena *a = k->m->arena;
	struct str text;
	int r = z->unpacked ? read_file(k, z->config_file, &text, e) : read_text(k, z, z->config, &text, e);

	if (r < 0 || !(z->config || z->config_file))
		return r;
	k->config_text = text;
	k->config = keras_json(k->m, text, CONFIG);
	for (size_t i = 0; i < 2; i++) {
		struct value *v = value_get(k->config, shown[i]);

		if (!v || v->kind == VALUE_NULL)
			continue;
		if (!k->m->format_info)
			k->m->format_info = value_map(a);
		if (value_set(a, k->m->format_info, str_from(shown[i]), v) < 0)
			return no_memory(e);
	}
	return 0;
}

static struct str text_of(const struct value *v, const char *key)
{
	const struct value *s = value_get(v, key);

	return s && s->kind == VALUE_STRING ? s->str : STR("");
}

/* "2026-11-30@12:00:01" */
static int imply_date(struct keras *k, struct str saved, struct error *e)
{
	struct str date = arena_str(k->m->arena, saved.ptr, saved.len);
	char *at = date.ptr ? memchr(date.ptr, '@', date.len) : NULL;
	struct value *v;

	if (!at)
		return 0;
	*at = 'T';
	v = value_str(k->m->arena, date);
	return v && metadata_key(STR("created_at"))->check(v, NULL) == 0 ? keras_imply(k, "created_at", v, e) : 0;
}

static int read_metadata(struct keras *k, const struct archive *z, struct error *e)
{
	struct value *v;
	struct str text;
	int r = z->unpacked ? read_file(k, z->metadata_file, &text, e) : read_text(k, z, z->metadata, &text, e);

	if (r < 0)
		return r;
	v = z->metadata || z->metadata_file ? keras_json(k->m, text, METADATA) : NULL;
	if (v && v->kind == VALUE_MAP)
		k->m->meta.properties = v;
	r = keras_imply_all(k, text_of(v, "keras_version"), e);
	return r < 0 ? r : imply_date(k, text_of(v, "date_saved"), e);
}

static void hand_over(struct extent *x)
{
	if (x->kind == EXTENT_SOURCE)
		source_unref(x->src); /* model_finish counts them */
}

static int add_files(struct keras *k, const struct archive *z, struct error *e)
{
	for (size_t i = 0; i < z->zip.count; i++) {
		const struct zip_member *m = &z->zip.members[i];
		struct error why = {0};
		struct extent content;
		struct member_file *f;
		int r;

		if (m == z->weights || (str_ends(m->name, STR("/")) && !m->size))
			continue;
		r = zip_content(&z->zip, m, &content, &why);
		if (r == -ENOMEM)
			return no_memory(e);
		if (r < 0) {
			model_warn(k->m, "member '%.*s' is not shown: %s", STR_ARG(m->name), why.text);
			continue;
		}
		f = model_add_file(k->m, e);
		if (!f) {
			extent_unref(&content);
			return -ENOMEM;
		}
		f->path = m->name;
		f->flags = m == z->metadata ? 0 : MEMBER_WRITABLE; /* metadata.json of the tree writes that one */
		f->data = content;
		hand_over(&f->data);
	}
	return 0;
}

static int read_weights(struct keras *k, struct source *src, const struct archive *z, struct error *e)
{
	struct extent content;
	int r;

	if (!z->weights)
		return error_set(e, EIO, "the archive has no " WEIGHTS);
	r = zip_content(&z->zip, z->weights, &content, e);
	if (r < 0)
		return r;
	r = keras_read(k, k->m, &content, src, e);
	extent_unref(&content);
	if (r < 0)
		error_prefix(e, WEIGHTS);
	return r;
}

/* A file of the directory; the model holds the reference. */
static int open_file(struct input *in, struct model *m, const char *name, struct source **out, struct error *e)
{
	int r = input_companion(in, str_from(name), 0, out, e);

	if (r < 0)
		return r;
	r = model_add_source(m, *out, e);
	source_unref(*out);
	return r;
}

static int show_file(struct model *m, struct source *src, const char *name, unsigned flags, struct error *e)
{
	struct member_file *f = src ? model_add_file(m, e) : NULL;

	if (!f)
		return src ? -ENOMEM : 0;
	f->path = str_from(name);
	f->flags = flags;
	f->data = extent_source(src, 0, source_size(src));
	return 0;
}

static int parse_directory(struct input *in, struct model *m, struct keras *k, struct archive *z, struct error *e)
{
	struct extent content;
	int r = open_file(in, m, WEIGHTS, &z->weights_file, e);

	z->unpacked = true;
	if (!r)
		r = open_file(in, m, CONFIG, &z->config_file, e);
	if (!r && input_has(in, METADATA))
		r = open_file(in, m, METADATA, &z->metadata_file, e);
	if (!r)
		r = read_config(k, z, e);
	if (!r)
		r = read_metadata(k, z, e);
	if (r < 0)
		return r;
	content = extent_source(z->weights_file, 0, source_size(z->weights_file));
	r = keras_read(k, m, &content, z->weights_file, e);
	if (r < 0) {
		error_prefix(e, WEIGHTS);
		return r;
	}
	for (uint32_t i = 0; i < m->tensor_count; i++)
		m->tensors[i].shard = STR(WEIGHTS);
	r = show_file(m, z->config_file, CONFIG, MEMBER_WRITABLE, e);
	if (!r)
		r = show_file(m, z->metadata_file, METADATA, 0, e);
	return r < 0 ? r : keras_add_graph(k, e);
}

static int keras_zip_parse(struct input *in, struct model *m, struct error *e)
{
	struct keras *k = arena_alloc(m->arena, sizeof(*k));
	struct archive *z = arena_alloc(m->arena, sizeof(*z));
	int r;

	if (!k || !z)
		return no_memory(e);
	m->priv = k;
	k->m = m;
	k->container = z;
	if (!in->src)
		return parse_directory(in, m, k, z, e);
	r = model_add_source(m, in->src, e);
	if (r < 0)
		return r;
	r = zip_read(in->src, m->arena, &z->zip, e);
	if (r < 0)
		return r;
	z->weights = member(&z->zip, WEIGHTS);
	z->config = member(&z->zip, CONFIG);
	z->metadata = member(&z->zip, METADATA);
	r = read_config(k, z, e);
	if (!r) /* names depend on the version */
		r = read_metadata(k, z, e);
	if (!r)
		r = read_weights(k, in->src, z, e);
	if (!r)
		r = add_files(k, z, e);
	return r < 0 ? r : keras_add_graph(k, e);
}

static int keras_zip_check(const struct model *m, void (*found)(void *arg, const char *text), void *arg, struct error *e)
{
	const struct keras *k = (m->base ? m->base : m)->priv;
	const struct archive *z = k->container;

	(void)e;
	for (size_t i = 0; i < z->zip.count; i++) {
		struct error why = {0};

		if (zip_check(&z->zip, &z->zip.members[i], &why) < 0) {
			struct str line = arena_printf(m->arena, "member '%.*s': %s", STR_ARG(z->zip.members[i].name),
				why.text);

			found(arg, line.ptr ? line.ptr : why.text);
		}
	}
	return 0;
}

/* ---- writing ---- */

struct writer {
	const struct model *m;
	const struct keras *k;
	const struct archive *z;
	struct plan *p;
	struct zip_writer zip;
	struct extmap *weights; /* NULL: as they were */
	bool changed;
	struct error *e;
};

/* What metadata.json holds now: the properties but those that repeat what the file implies. */
static struct extmap *metadata_text(struct writer *w)
{
	const struct value *p = w->m->meta.properties;
	struct value *kept = value_map(w->p->arena);
	struct extmap *map = extmap_new();
	struct json j = {0};
	size_t len;
	char *text;

	for (size_t i = 0; p && i < p->map.count; i++)
		if (!keras_is_implied(w->k, w->p->arena, &p->map.members[i]))
			value_set(w->p->arena, kept, p->map.members[i].key, p->map.members[i].value);
	json_value(&j, kept);
	json_end(&j);
	text = json_take(&j, &len);
	if (map && text && extmap_append_take(map, text, len) == 0)
		return map;
	extmap_unref(map);
	return NULL;
}

/* Takes content. */
static int put_member(struct writer *w, struct str name, struct extmap *content)
{
	int r = content ? zip_add(&w->zip, name, content, 0) : -ENOMEM;

	extmap_unref(content);
	w->changed = true;
	return r < 0 ? no_memory(w->e) : 0;
}

static const struct member_file *edited_file(const struct writer *w, struct str path)
{
	for (uint32_t i = 0; i < w->m->file_count; i++)
		if (w->m->files[i].flags & MEMBER_EDITED && str_eq(w->m->files[i].path, path))
			return &w->m->files[i];
	return NULL;
}

static int put_file(struct writer *w, const struct member_file *f)
{
	struct extmap *content = extmap_new();

	if (content)
		extmap_append(content, &f->data);
	return put_member(w, f->path, content);
}

static int plan_members(struct writer *w)
{
	bool any = false;
	int r = 0;

	for (uint32_t i = 0; i < w->m->file_count; i++)
		any |= w->m->files[i].flags & MEMBER_EDITED;
	for (size_t i = 0; !r && i < w->z->zip.count; i++) {
		const struct zip_member *m = &w->z->zip.members[i];
		const struct member_file *f = any ? edited_file(w, m->name) : NULL;

		if (m == w->z->weights && w->weights)
			r = put_member(w, m->name, extmap_ref(w->weights));
		else if (m == w->z->metadata && w->m->meta_edited)
			r = put_member(w, m->name, metadata_text(w));
		else if (f)
			r = put_file(w, f);
		else
			r = zip_copy(&w->zip, &w->z->zip, m, m->name) < 0 ? no_memory(w->e) : 0;
	}
	if (!r && !w->z->metadata && w->m->meta_edited)
		r = put_member(w, STR(METADATA), metadata_text(w));
	return r;
}

static int plan_edited(const struct model *m, struct plan *p, struct extmap *map, struct error *e)
{
	struct writer w = {.m = m, .k = m->base->priv, .p = p, .e = e};
	struct extent content;
	bool same = false;
	int r;

	w.z = w.k->container;
	r = zip_content(&w.z->zip, w.z->weights, &content, e);
	if (r < 0)
		return r;
	w.weights = extmap_new();
	r = w.weights ? keras_plan_weights(m, &content, p, false, w.weights, &same, e) : no_memory(e);
	extent_unref(&content);
	if (!r && same) {
		extmap_unref(w.weights);
		w.weights = NULL;
	}
	w.changed = w.weights != NULL;
	if (!r && zip_begin(&w.zip, map) < 0) {
		extmap_unref(w.weights);
		return no_memory(e);
	}
	if (!r) {
		r = plan_members(&w);
		if (r < 0)
			zip_release(&w.zip);
		else
			r = zip_end(&w.zip, e);
	}
	extmap_unref(w.weights);
	p->files[p->count - 1].unchanged = !r && !w.changed && p->in_place;
	return r;
}

/* The properties of a .h5 that Keras itself writes there are elsewhere in an archive. */
static struct extmap *new_metadata(const struct model *m, const struct keras *k, struct arena *a)
{
	static const char *const taken[] = {"model_config", "training_config", "keras_version", "backend", "date_saved"};
	const struct value *p = m->meta.properties;
	struct value *kept = value_map(a);
	struct extmap *map = extmap_new();
	struct json j = {0};
	size_t len;
	char *text;

	value_set(a, kept, STR("keras_version"), value_str(a, k->version));
	for (size_t i = 0; p && i < p->map.count; i++) {
		bool skip = keras_is_implied(k, a, &p->map.members[i]);

		for (size_t t = 0; t < sizeof(taken) / sizeof(*taken); t++)
			skip |= str_is(p->map.members[i].key, taken[t]);
		if (!skip)
			value_set(a, kept, p->map.members[i].key, p->map.members[i].value);
	}
	json_value(&j, kept);
	json_end(&j);
	text = json_take(&j, &len);
	if (map && text && extmap_append_take(map, text, len) == 0)
		return map;
	extmap_unref(map);
	return NULL;
}

static int new_config(const struct keras *k, struct arena *a, struct extmap **out, struct error *e)
{
	struct extmap *map = extmap_new();
	size_t len = 0;
	char *text = map ? keras_modern_config(k, a, &len, e) : NULL;

	if (text && extmap_append_take(map, text, len) == 0) {
		*out = map;
		return 0;
	}
	extmap_unref(map);
	return e && e->code ? -e->code : no_memory(e);
}

/* From a whole model in .h5. */
static int plan_new(const struct model *m, struct plan *p, struct extmap *map, struct error *e)
{
	struct writer w = {.m = m, .k = keras_of(m), .p = p, .e = e};
	struct keras_plan places = {.a = p->arena};
	struct model shown = *m;
	struct extmap *config = NULL;
	int r = keras_to_vars(m, &places, e);

	shown.op_count = 0;
	if (!r && (plan_plain_losses(p, &shown, "a .keras archive") < 0 ||
			  (value_get(m->meta.properties, "training_config") &&
				  plan_loss(p, "training_config has no place in a .keras archive as it is") < 0)))
		r = no_memory(e);
	w.weights = extmap_new();
	if (!r)
		r = w.weights ? keras_create_weights(m, &places, false, p, w.weights, e) : no_memory(e);
	if (!r)
		r = new_config(w.k, p->arena, &config, e);
	if (!r && zip_begin(&w.zip, map) == 0) {
		r = put_member(&w, STR(METADATA), new_metadata(m, w.k, p->arena));
		if (!r)
			r = put_member(&w, STR(CONFIG), extmap_ref(config));
		if (!r)
			r = put_member(&w, STR(WEIGHTS), extmap_ref(w.weights));
		if (r < 0)
			zip_release(&w.zip);
		else
			r = zip_end(&w.zip, e);
	} else if (!r) {
		r = no_memory(e);
	}
	extmap_unref(config);
	extmap_unref(w.weights);
	keras_plan_release(&places);
	return r;
}

/* ---- a directory ---- */

/* The weights as they are now; *same: as they were. */
static int append_weights(const struct model *m, struct plan *p, struct extmap *map, bool *same, struct error *e)
{
	const struct keras *k = (m->base ? m->base : m)->priv;

	*same = true;
	if (m->base)
		return keras_plan_weights(m, &k->parts[0].content, p, false, map, same, e);
	extmap_append(map, &k->parts[0].content);
	return extmap_failed(map, e);
}

static struct extmap *file_content(const struct model *m, const char *name)
{
	struct extmap *map = extmap_new();

	for (uint32_t i = 0; map && i < m->file_count; i++)
		if (str_is(m->files[i].path, name))
			extmap_append(map, &m->files[i].data);
	return map;
}

/* The directory as an archive. */
static int pack_directory(const struct model *m, struct plan *p, struct extmap *map, struct error *e)
{
	struct writer w = {.m = m, .k = (m->base ? m->base : m)->priv, .p = p, .e = e};
	bool same;
	int r;

	w.weights = extmap_new();
	r = w.weights ? append_weights(m, p, w.weights, &same, e) : no_memory(e);
	if (!r && zip_begin(&w.zip, map) < 0)
		r = no_memory(e);
	else if (!r) {
		r = put_member(&w, STR(METADATA), m->meta_edited ? metadata_text(&w) : file_content(m, METADATA));
		if (!r)
			r = put_member(&w, STR(CONFIG), file_content(m, CONFIG));
		if (!r)
			r = put_member(&w, STR(WEIGHTS), extmap_ref(w.weights));
		if (r < 0)
			zip_release(&w.zip);
		else
			r = zip_end(&w.zip, e);
	}
	extmap_unref(w.weights);
	return r;
}

static bool is_directory(const struct model *own)
{
	return own->format == &format_keras &&
	       ((const struct archive *)((const struct keras *)own->priv)->container)->unpacked;
}

static int keras_zip_plan(const struct model *m, struct plan *p, struct error *e)
{
	const struct model *own = m->base ? m->base : m;
	bool directory = is_directory(own);
	struct extmap *map;

	map = plan_file(p, "");
	if (!map)
		return no_memory(e);
	if (directory)
		return pack_directory(m, p, map, e);
	if (own->format != &format_keras && !keras_of(m))
		return error_set(e, EOPNOTSUPP, "a .keras archive needs the configuration of its layers, which this %s file does not bring",
			own->format->title);
	if (own->format != &format_keras)
		return plan_new(m, p, map, e);
	if (m->base)
		return plan_edited(m, p, map, e);
	extmap_append_source(map, own->sources[0], 0, source_size(own->sources[0]));
	return extmap_failed(map, e);
}

static int keras_zip_check_edit(const struct model *m, const struct edit *x, struct error *e)
{
	if (is_directory(m->base ? m->base : m))
		return error_set(e, EOPNOTSUPP, "an unpacked .keras directory cannot be edited, only read and packed (convert)");
	return keras_check_edit(m, x, e);
}

static const char *const extensions[] = {".keras", NULL};

const struct format format_keras = {
	.name = "keras",
	.title = "Keras",
	.directories = true,
	.extensions = extensions,
	.probe = keras_zip_probe,
	.can = CAN_VALUES | CAN_RESHAPE | CAN_RETYPE | CAN_RENAME | CAN_ADD | CAN_REMOVE | CAN_METADATA | CAN_FILES |
	       CAN_CREATE,
	.parse = keras_zip_parse,
	.check_edit = keras_zip_check_edit,
	.plan = keras_zip_plan,
	.holds = hdf5_holds,
	.check = keras_zip_check,
	.keeps_properties = true,
};
