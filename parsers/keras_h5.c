/* SPDX-License-Identifier: MIT */
/*
 * Keras in HDF5: whole models and weights of Keras 1 to 3, and any other HDF5 file with numbers in it.
 *
 *	/ @model_config @training_config @keras_version @backend, any other attribute is a property
 *	/model_weights, /optimizer_weights     whole models; keras_read.c says what is in them
 *
 * Written by and checked against Keras 3.15.1 and tf_keras 2.21.0.
 */
#include "parsers/container/hdf5_change.h"
#include "parsers/format.h"
#include "parsers/keras.h"

#include <errno.h>
#include <stdlib.h>

extern const struct format format_keras_h5;

static int keras_h5_probe(const struct input *in, struct error *e)
{
	struct extent content;
	char first;

	(void)e;
	if (!in->src)
		return 0;
	if (keras_is_index(in->base))
		return source_size(in->src) && source_read(in->src, 0, &first, 1, NULL) == 0 && first == '{' ? 48 : 0;
	content = extent_source(in->src, 0, source_size(in->src));
	return hdf5_is(&content) ? 64 : 0;
}

static int no_memory(struct error *e)
{
	return error_set(e, ENOMEM, "out of memory for the model");
}

static int read_properties(struct keras *k, struct error *e)
{
	const struct hdf5_object *root = &k->file.objects[0];
	struct arena *a = k->m->arena;

	for (uint32_t i = 0; i < root->attr_count; i++) {
		const struct hdf5_attr *attr = &root->attrs[i];

		if (str_starts(attr->name, STR("layer_names")))
			continue; /* the order of the layers: tensors show it */
		if (!attr->value) {
			model_warn(k->m, "attribute '%.*s' of type %.*s is not shown", STR_ARG(attr->name),
				STR_ARG(attr->type));
			continue;
		}
		if (!k->m->meta.properties)
			k->m->meta.properties = value_map(a);
		if (value_set(a, k->m->meta.properties, attr->name, attr->value) < 0)
			return no_memory(e);
	}
	return 0;
}

static struct str root_text(const struct keras *k, const char *name)
{
	const struct hdf5_attr *a = hdf5_attr(&k->file.objects[0], name);

	return a && a->value && a->value->kind == VALUE_STRING ? a->value->str : STR("");
}

static int read_model_keys(struct keras *k, struct error *e)
{
	struct str version = root_text(k, "keras_version"), config = root_text(k, "model_config");

	k->config_text = config;
	if (config.len)
		k->config = keras_json(k->m, config, "model_config");
	if (k->layout == KERAS_NONE && !config.len)
		return 0;
	return keras_imply_all(k, version, e);
}

/* What compile() was told, as the configuration has it. */
static int read_training(struct keras *k, struct error *e)
{
	struct str text = root_text(k, "training_config");
	struct value *v = text.len ? keras_json(k->m, text, "training_config") : NULL;
	struct arena *a = k->m->arena;

	if (!v)
		return 0;
	k->m->format_info = value_map(a);
	return value_set(a, k->m->format_info, STR("compile_config"), v) < 0 ? no_memory(e) : 0;
}

static int keras_h5_parse(struct input *in, struct model *m, struct error *e)
{
	static const char *const layouts[] = {"HDF5", "Keras HDF5", "Keras 3 weights"};
	struct keras *k = arena_alloc(m->arena, sizeof(*k));
	struct extent content = extent_source(in->src, 0, source_size(in->src));
	int r = k ? model_add_source(m, in->src, e) : no_memory(e);

	if (r < 0)
		return r;
	m->priv = k;
	r = keras_is_index(in->base) ? keras_read_index(k, in, m, e) : keras_read(k, m, &content, in->src, e);
	if (!r)
		r = read_properties(k, e);
	if (!r)
		r = read_model_keys(k, e);
	if (!r)
		r = read_training(k, e);
	if (!r)
		r = keras_add_graph(k, e);
	m->format_version = str_from(layouts[k->layout]);
	return r;
}

static int plan_losses(const struct model *m, struct plan *p, struct error *e)
{
	struct model shown = *m;

	if (keras_of(m)) { /* the graph and the configuration go along */
		shown.op_count = shown.file_count = 0;
		if (value_get(m->base ? m->base->format_info : m->format_info, "compile_config") &&
			plan_loss(p, "compile_config has no place in HDF5 as it is") < 0)
			return no_memory(e);
	}
	return plan_plain_losses(p, &shown, "HDF5") < 0 ? no_memory(e) : 0;
}

/* A model that Keras can build, as its own .h5. */
static int plan_whole_model(const struct model *m, struct plan *p, struct extmap *map, struct error *e)
{
	struct keras_plan places = {.a = p->arena};
	int r = keras_to_legacy(m, &places, e);

	if (!r)
		r = keras_create_weights(m, &places, true, p, map, e);
	keras_plan_release(&places);
	return r;
}

static int keras_h5_plan(const struct model *m, struct plan *p, struct error *e)
{
	struct extmap *map = plan_file(p, "");
	const struct model *own = m->base ? m->base : m;
	bool same = false;
	int r;

	if (!map)
		return no_memory(e);
	if (own->format == &format_keras_h5 && !m->base && ((const struct keras *)own->priv)->part_count == 1) {
		extmap_append_source(map, own->sources[0], 0, source_size(own->sources[0]));
		return extmap_failed(map, e);
	}
	if (own->format == &format_keras_h5 && m->base) {
		r = keras_plan_weights(m, &((const struct keras *)own->priv)->parts[0].content, p, true, map, &same, e);
		p->files[p->count - 1].unchanged = !r && same && p->in_place;
		return r;
	}
	r = plan_losses(m, p, e);
	if (!r && keras_of(m))
		r = plan_whole_model(m, p, map, e);
	else if (!r)
		r = keras_create_weights(m, NULL, true, p, map, e);
	return r;
}

static const char *const extensions[] = {".h5", ".hdf5", ".weights.h5", ".weights.json", NULL};

const struct format format_keras_h5 = {
	.name = "keras-h5",
	.title = "Keras HDF5",
	.extensions = extensions,
	.probe = keras_h5_probe,
	.can = CAN_VALUES | CAN_RESHAPE | CAN_RETYPE | CAN_RENAME | CAN_ADD | CAN_REMOVE | CAN_METADATA | CAN_CREATE,
	.parse = keras_h5_parse,
	.check_edit = keras_check_edit,
	.plan = keras_h5_plan,
	.holds = hdf5_holds,
	.keeps_properties = true,
};
