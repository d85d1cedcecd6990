/* SPDX-License-Identifier: MIT */
/*
 * plan: the files that a model becomes, each as an extent map, and what gets lost on the way. Made by a
 * format's plan(); read by commit, by convert and by .wiamodel/export/.
 */
#ifndef PARSERS_CORE_PLAN_H
#define PARSERS_CORE_PLAN_H

#include "parsers/core/model.h"

struct plan_file {
	char *name; /* relative to the root file's directory (or to the root directory); "" = the root file */
	struct extmap map;
	bool unchanged; /* the file on disk already holds exactly this: commit leaves it alone */
};

struct plan {
	struct plan_file *files; /* the root file is renamed last, whatever its place here */
	size_t count, cap;
	char **obsolete; /* old companion files, removed after the root was renamed */
	size_t obsolete_count, obsolete_cap;
	char **losses; /* one line each: "dtype of 'x': complex128 has no place in safetensors" */
	size_t loss_count, loss_cap;
	struct arena *arena; /* made by model_plan, freed with the plan: for what the maps borrow; drivers may use it */
	/* what the caller wants; set before plan() */
	const char *root_name; /* base name of the root file to be written, "model.onnx"; never NULL */
	bool in_place;         /* the plan saves over the model's own file (m->base is set) */
	bool real;             /* --real: quantised tensors as their dequantised values */
};

void plan_release(struct plan *p);
/* A new, empty map for a file; NULL when memory is out. Holds until the next plan_file. */
struct extmap *plan_file(struct plan *p, const char *name);
int plan_obsolete(struct plan *p, const char *name);
/* The losses of a container of tensors that knows neither aliases nor graphs, values and files. */
int plan_plain_losses(struct plan *p, const struct model *m, const char *container);
int plan_loss(struct plan *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
