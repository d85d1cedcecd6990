/* SPDX-License-Identifier: MIT */
/*
 * keras: what the .h5 and the .keras driver share: tensors from the datasets of an HDF5 file under the names that Keras prints, and
 * the graph of layers from the model's configuration.
 */
#ifndef PARSERS_KERAS_H
#define PARSERS_KERAS_H

#include "parsers/container/hdf5.h"
#include "parsers/core/model.h"

enum keras_layout {
	KERAS_NONE,   /* any other HDF5 file */
	KERAS_LEGACY, /* layer_names, weight_names */
	KERAS_VARS,   /* LAYER/vars/0 */
};

/* One HDF5 file of a model. */
struct keras_part {
	struct extent content; /* holds a reference that the arena releases */
	struct source *src;
	struct str shard; /* empty: the model itself */
};

/* model.priv */
struct keras {
	struct model *m;
	struct hdf5_file file;
	struct keras_part *parts;
	uint32_t part_count;
	enum keras_layout layout;
	struct str weights;    /* the group with the layers of KERAS_LEGACY, "" or "model_weights" */
	struct value *config;  /* {"class_name", "config"} of the model or NULL */
	struct str config_text;
	struct str version;    /* of Keras, "3.15.1" */
	uint32_t *by_path;     /* open addressing: index in file.objects + 1 */
	uint32_t by_path_mask;
	uint64_t steps; /* spent on finding layers in the configuration */
	struct value *implied; /* keys of metadata "model" that the file implies */
	struct value *implied_preprocessing;
	void *container; /* the driver's own */
};

/* tensor.priv is its const struct hdf5_object * */

/* Reads the HDF5 content into k and m's tensors. k->config may be set before; legacy files bring their own. */
int keras_read(struct keras *k, struct model *m, const struct extent *content, struct source *src, struct error *e);
/* NAME.weights.json of Keras 3: {"metadata": {...}, "weight_map": {"/layers/dense/vars": FILE or [FILE, ...]}} */
bool keras_is_index(struct str name);
struct input;
int keras_read_index(struct keras *k, struct input *in, struct model *m, struct error *e);
/* The same for several files that make one model; parts are copied, with references of their own. */
int keras_read_parts(struct keras *k, struct model *m, const struct keras_part *parts, uint32_t count, struct error *e);
/* MODEL_NONE or the index of the object with that path */
uint32_t keras_find(const struct keras *k, struct str path);
/* A list of strings that may be split over NAME0, NAME1, ...; *count strings in the arena. false: there is none. */
bool keras_names(const struct keras *k, const struct hdf5_object *o, const char *name, struct str **out, size_t *count);

/* The name of the variable in a dataset of KERAS_VARS; the path when no layer explains it. */
struct str keras_variable_name(struct keras *k, struct str path);
/* "Conv2DTranspose" -> "conv2d_transpose" in out; the length. */
size_t keras_snake_case(struct str class_name, char *out, size_t room);
/* The layers of a model's configuration or NULL. */
const struct value *keras_layers(const struct value *model);

/* A key of metadata "model" that the file implies; a property wiamodel.KEY says it better. */
int keras_imply(struct keras *k, const char *key, struct value *v, struct error *e);
/* framework, its version, the model's name from k->config */
int keras_imply_all(struct keras *k, struct str version, struct error *e);
/* JSON as Python writes it; NaN and Infinity become strings. NULL with a warning when it is none. */
struct value *keras_json(struct model *m, struct str text, const char *what);
/* Whether it is JSON without those, so that it may be written anew. */
bool keras_json_is_plain(struct str text);
/* ops, graphs, ports; preprocessing. From k->config. */
int keras_add_graph(struct keras *k, struct error *e);

/* ---- between the layouts; keras_convert.c ---- */

struct keras_place {
	const struct tensor *t;
	struct str path; /* of its dataset */
};

struct keras_group {
	struct str path;
	struct str attr;     /* "" = none */
	struct value *value;
};

/* Where the tensors of a model with a configuration lie in another layout, and the groups with their attributes. */
struct keras_plan {
	struct arena *a;
	struct keras_place *places;
	size_t place_count, place_cap;
	struct keras_group *groups;
	size_t group_count, group_cap;
};

/* The driver's facts of a model that Keras can build, or NULL. */
const struct keras *keras_of(const struct model *m);
/* Whole models of .h5: model_weights/LAYER/NAME. EOPNOTSUPP when a layer's order of weights is unknown. */
int keras_to_legacy(const struct model *m, struct keras_plan *out, struct error *e);
/* Keras 3: layers/CLASS_N/vars/K. */
int keras_to_vars(const struct model *m, struct keras_plan *out, struct error *e);
/* config.json from a model_config of Keras 3; heap. */
char *keras_modern_config(const struct keras *k, struct arena *a, size_t *len, struct error *e);
void keras_plan_release(struct keras_plan *p);

/* ---- writing; keras_write.c ---- */

struct plan;
struct edit;

/* Whether keras_plan_weights can do it. */
int keras_check_edit(const struct model *m, const struct edit *x, struct error *e);
/*
 * The HDF5 content of an edited model over that of its base; appended to out. content: the base's; nobody else may be reading
 * through it, since a child inherits locks as they are. properties: whether the root's attributes follow
 * m->meta. *same: nothing differs.
 */
int keras_plan_weights(const struct model *m, const struct extent *content, struct plan *p, bool properties, struct extmap *out, bool *same,
	struct error *e);
/*
 * A new HDF5 file with the tensors of any model, under their names or, with places, there. properties: whether they become
 * attributes of the root.
 */
int keras_create_weights(const struct model *m, const struct keras_plan *places, bool properties, struct plan *p,
	struct extmap *out, struct error *e);
/* A property that only repeats what the file implies anyway. */
bool keras_is_implied(const struct keras *k, struct arena *a, const struct member *property);

#endif
