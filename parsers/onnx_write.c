/* SPDX-License-Identifier: MIT */
/*
 * An edited ONNX model -> its files. The old file is walked once more and copied as ranges, but for the messages that
 * change and the lengths above them; so whatever nobody edited, fields of newer versions too, stays byte-identical.
 *
 * External data: a data file of which a tensor was edited or removed is written anew under another name, and the old
 * one removed after the model has changed to it, unless another model lies in the same directory.
 * A new shape makes value_info stale (the checker refuses it then): it is optional, and dropped.
 */
#include "parsers/onnx_write.h"

#include "parsers/core/codec.h"
#include "parsers/core/cursor.h"
#include "parsers/core/metadata.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* What happens to a tensor of the base. */
struct change {
	const struct tensor *was, *now; /* now NULL = removed */
	bool content;                   /* new elements, shape or dtype */
	bool reshaped, renamed;
	struct onnx_outside outside;    /* where its elements go; location NULL = inside */
	bool moved;                     /* outside it differs from what the file says */
};

/* A message of the base that is looked for by where its body begins. */
struct place {
	uint64_t offset;
	uint32_t index;
	bool graph;
};

/* A value name that changes or goes, in one graph. */
struct named {
	uint32_t graph;
	struct str name;
	const struct change *change;
};

/* One external tensor, to be laid out. */
struct laid {
	struct str location;
	uint64_t offset;
	uint32_t base;
};

struct writer {
	const struct model *m, *base;
	const struct onnx_file *file;
	struct plan *p;
	struct error *e;
	struct change *changes; /* for each tensor of base */
	struct place *places;
	size_t place_count;
	struct named *named;
	size_t named_count;
	uint32_t *graph_ids; /* graph_ids[g] = g: what contexts point to */
	bool deep;           /* graphs have to be opened */
	bool names;          /* a name changes: nodes have to be opened */
	bool reshaped;
	struct metadata was; /* the base's, as it would be written */
	bool new_name, new_properties, new_producer, new_producer_version, new_version, new_description;
	struct onnx_outside *added; /* for each tensor of m */
};

static int no_memory(struct error *e)
{
	return error_set(e, ENOMEM, "out of memory for a plan");
}

static struct str local_name(const struct tensor *t)
{
	return t->local.len ? t->local : t->name;
}

/* ---- what changes ---- */

static bool same_shape(const struct tensor *a, const struct tensor *b)
{
	return a->rank == b->rank && (a->rank == 0 || memcmp(a->shape, b->shape, a->rank * sizeof(*a->shape)) == 0);
}

static int find_changes(struct writer *w)
{
	w->changes = calloc(w->base->tensor_count ? w->base->tensor_count : 1, sizeof(*w->changes));
	w->added = calloc(w->m->tensor_count ? w->m->tensor_count : 1, sizeof(*w->added));
	if (!w->changes || !w->added)
		return no_memory(w->e);
	for (uint32_t i = 0; i < w->base->tensor_count; i++)
		w->changes[i].was = &w->base->tensors[i];
	for (uint32_t i = 0; i < w->m->tensor_count; i++) {
		const struct tensor *t = &w->m->tensors[i];
		uint32_t b = w->m == w->base ? i : t->base;

		if (b != MODEL_NONE)
			w->changes[b].now = t;
		w->deep |= b == MODEL_NONE;
	}
	for (uint32_t i = 0; i < w->base->tensor_count; i++) {
		struct change *c = &w->changes[i];

		c->content = c->now && c->now->flags & TENSOR_EDITED;
		c->reshaped = c->content && (!same_shape(c->was, c->now) || c->was->dtype != c->now->dtype);
		c->renamed = c->now && !str_eq(c->was->name, c->now->name);
		w->deep |= !c->now || c->content || c->renamed;
		w->names |= c->renamed || !c->now;
		w->reshaped |= c->reshaped;
	}
	return 0;
}

static bool text_differs(const struct writer *w, const char *key)
{
	return !str_eq(onnx_model_text(&w->was, key), onnx_model_text(&w->m->meta, key));
}

static bool properties_differ(const struct writer *w)
{
	const struct value *a = w->was.properties, *b = w->m->meta.properties;
	bool none = (!a || !a->map.count) && (!b || !b->map.count);

	return (!none && !(a && b && value_equal(a, b))) || text_differs(w, "author") || text_differs(w, "license") ||
	       text_differs(w, "version");
}

static int find_metadata(struct writer *w)
{
	struct value *sidecar;
	int r;

	if (!w->m->meta_edited)
		return 0;
	r = metadata_spill(w->p->arena, w->base->format, &w->base->meta, &w->was, &sidecar, w->e);
	if (r < 0)
		return r;
	w->new_properties = properties_differ(w);
	w->new_name = text_differs(w, "name");
	w->new_producer = text_differs(w, "producer");
	w->new_producer_version = text_differs(w, "producer_version");
	w->new_description = text_differs(w, "description");
	w->new_version = onnx_model_version(&w->was) != onnx_model_version(&w->m->meta);
	w->deep |= w->new_name;
	return 0;
}

/* ---- external data ---- */

static int laid_cmp(const void *pa, const void *pb)
{
	const struct laid *a = pa, *b = pb;
	int c = str_cmp(a->location, b->location);

	if (c == 0)
		c = a->offset < b->offset ? -1 : a->offset > b->offset;
	return c ? c : a->base < b->base ? -1 : a->base > b->base;
}

/* Files that change as a whole: of which a tensor is edited or gone; all of them when the model goes elsewhere. */
static bool changes_file(const struct writer *w, const struct laid *l, size_t n)
{
	bool any = !w->p->in_place;

	for (size_t i = 0; i < n; i++)
		any |= !w->changes[l[i].base].now || w->changes[l[i].base].content;
	return any;
}

static bool is_beside(const struct onnx_file *f, struct str name)
{
	for (size_t i = 0; i < f->beside_count; i++)
		if (str_eq(f->beside[i], name))
			return true;
	return false;
}

static bool has_other_models(const struct onnx_file *f, const char *own)
{
	for (size_t i = 0; i < f->beside_count; i++)
		if (str_ends(f->beside[i], STR(".onnx")) && !str_is(f->beside[i], own))
			return true;
	return false;
}

/* "model.onnx.data" -> "model.onnx.data.2" -> "model.onnx.data.3": the next that nobody has. */
static const char *next_name(struct writer *w, struct str was)
{
	struct str stem = was, name;
	unsigned long k = 2;
	size_t digits = 0;

	for (size_t i = 0; i < was.len; i++)
		if (was.ptr[i] == '/')
			stem = (struct str){was.ptr + i + 1, was.len - i - 1};
	while (digits < stem.len && stem.ptr[stem.len - 1 - digits] >= '0' && stem.ptr[stem.len - 1 - digits] <= '9')
		digits++;
	if (digits > 0 && digits < 9 && digits < stem.len && stem.ptr[stem.len - 1 - digits] == '.') {
		k = strtoul(stem.ptr + stem.len - digits, NULL, 10) + 1;
		stem.len -= digits + 1;
	}
	do {
		name = arena_printf(w->p->arena, "%.*s.%lu", (int)stem.len, stem.ptr, k++);
	} while (name.ptr && is_beside(w->file, name));
	return name.ptr;
}

/* As it was aligned, at most to a page. */
static uint64_t alignment(uint64_t offset)
{
	uint64_t align = 1;

	while (align < 4096 && offset % (align * 2) == 0)
		align *= 2;
	return align;
}

/* The tensors of one old file into `file`. Equal ranges that nobody edited stay one. */
static void lay_out(struct writer *w, const struct laid *l, size_t n, const char *name, struct extmap *file)
{
	const struct change *before = NULL;

	for (size_t i = 0; i < n; i++) {
		struct change *c = &w->changes[l[i].base];

		if (!c->now)
			continue;
		if (before && !before->content && !c->content && l[i].offset == l[i - 1].offset &&
			before->now->data.size == c->now->data.size)
			c->outside = before->outside;
		else
			c->outside = (struct onnx_outside){name,
				onnx_append_aligned(file, &c->now->data, alignment(l[i].offset))};
		c->moved = true;
		before = c;
	}
}

static int plan_data_file(struct writer *w, const struct laid *l, size_t n, struct extmap **file, const char **name)
{
	bool used = false;

	for (size_t i = 0; i < n; i++) {
		const struct tensor *t = w->changes[l[i].base].now;

		used |= t != NULL;
		if (t && t->problem.len)
			return error_set(w->e, EIO, "tensor '%.*s' is damaged: %.*s", STR_ARG(t->name),
				STR_ARG(t->problem));
	}
	if (w->p->in_place && !has_other_models(w->file, w->p->root_name)) {
		struct str was = arena_str(w->p->arena, l->location.ptr, l->location.len);

		if (!was.ptr || plan_obsolete(w->p, was.ptr) < 0)
			return no_memory(w->e);
	}
	if (!used)
		return 0;
	if (w->p->in_place || !*file) {
		*name = w->p->in_place ? next_name(w, l->location)
				       : arena_printf(w->p->arena, "%s.data", w->p->root_name).ptr;
		*file = *name ? plan_file(w->p, *name) : NULL;
	}
	if (!*file)
		return no_memory(w->e);
	lay_out(w, l, n, *name, *file);
	return extmap_failed(*file, w->e);
}

static int plan_external(struct writer *w)
{
	struct laid *list = calloc(w->base->tensor_count ? w->base->tensor_count : 1, sizeof(*list));
	struct extmap *file = NULL;
	const char *name = NULL;
	size_t n = 0;
	int r = 0;

	if (!list)
		return no_memory(w->e);
	for (uint32_t i = 0; i < w->base->tensor_count; i++) {
		const struct onnx_place *place = w->base->tensors[i].priv;

		if (place->external)
			list[n++] = (struct laid){place->location, place->external_offset, i};
	}
	qsort(list, n, sizeof(*list), laid_cmp);
	for (size_t i = 0, end; r == 0 && i < n; i = end) {
		for (end = i + 1; end < n && str_eq(list[end].location, list[i].location);)
			end++;
		if (changes_file(w, list + i, end - i))
			r = plan_data_file(w, list + i, end - i, &file, &name);
	}
	free(list);
	return r;
}

/* Edited and added tensors that would make the file larger than protobuf allows. */
static int plan_overflow(struct writer *w)
{
	uint64_t total = source_size(w->file->src);
	struct extmap *file = NULL;
	struct str location;

	for (uint32_t i = 0; i < w->base->tensor_count; i++)
		if (w->changes[i].content && !w->changes[i].moved)
			total += w->changes[i].now->data.size;
	for (uint32_t i = 0; i < w->m->tensor_count; i++)
		if (w->m->tensors[i].flags & TENSOR_ADDED)
			total += w->m->tensors[i].data.size;
	if (total <= ONNX_PROTO_MAX)
		return 0;
	location = arena_printf(w->p->arena, "%s.data", w->p->root_name);
	if (location.ptr && (is_beside(w->file, location) || w->p->count))
		location.ptr = next_name(w, location);
	file = location.ptr ? plan_file(w->p, location.ptr) : NULL;
	if (!file)
		return no_memory(w->e);
	for (uint32_t i = 0; i < w->base->tensor_count; i++) {
		struct change *c = &w->changes[i];

		if (c->content && !c->moved && c->now->data.size >= ONNX_EXTERNAL_MIN &&
			c->now->dtype != DTYPE_STRING && !((const struct onnx_place *)c->was->priv)->string)
			c->outside = (struct onnx_outside){location.ptr, onnx_append_aligned(file, &c->now->data, 4096)};
	}
	for (uint32_t i = 0; i < w->m->tensor_count; i++) {
		const struct tensor *t = &w->m->tensors[i];

		if (t->flags & TENSOR_ADDED && t->data.size >= ONNX_EXTERNAL_MIN && t->dtype != DTYPE_STRING)
			w->added[i] = (struct onnx_outside){location.ptr, onnx_append_aligned(file, &t->data, 4096)};
	}
	return extmap_failed(file, w->e);
}

/* ---- looking up ---- */

static int place_cmp(const void *pa, const void *pb)
{
	const struct place *a = pa, *b = pb;

	return a->offset < b->offset ? -1 : a->offset > b->offset;
}

static int named_cmp(const void *pa, const void *pb)
{
	const struct named *a = pa, *b = pb;
	int c = a->graph < b->graph ? -1 : a->graph > b->graph;

	return c ? c : str_cmp(a->name, b->name);
}

static bool touches(const struct change *c)
{
	return !c->now || c->content || c->renamed || c->moved;
}

static int index_changes(struct writer *w)
{
	size_t n = w->base->tensor_count + w->base->graph_count;

	w->places = calloc(n ? n : 1, sizeof(*w->places));
	w->named = calloc(w->base->tensor_count ? w->base->tensor_count : 1, sizeof(*w->named));
	w->graph_ids = calloc(w->base->graph_count ? w->base->graph_count : 1, sizeof(*w->graph_ids));
	if (!w->places || !w->named || !w->graph_ids)
		return no_memory(w->e);
	for (uint32_t g = 0; g < w->base->graph_count; g++) {
		w->graph_ids[g] = g;
		w->places[w->place_count++] = (struct place){w->file->graphs[g], g, true};
	}
	for (uint32_t i = 0; i < w->base->tensor_count; i++) {
		const struct change *c = &w->changes[i];
		const struct onnx_place *place = c->was->priv;

		if (!touches(c))
			continue;
		w->deep = true;
		w->places[w->place_count++] = (struct place){place->offset, i, false};
		if (c->was->graph != MODEL_NONE && (!c->now || c->renamed || c->reshaped))
			w->named[w->named_count++] = (struct named){c->was->graph, local_name(c->was), c};
	}
	qsort(w->places, w->place_count, sizeof(*w->places), place_cmp);
	qsort(w->named, w->named_count, sizeof(*w->named), named_cmp);
	return 0;
}

/* The first place at or behind an offset; place_count = none. */
static size_t place_from(const struct writer *w, uint64_t offset)
{
	size_t low = 0, high = w->place_count;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (w->places[mid].offset < offset)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static bool contains(const struct writer *w, const struct pb_visit *v)
{
	size_t i = place_from(w, v->offset);

	return i < w->place_count && w->places[i].offset < v->offset + v->size;
}

static const struct place *place_at(const struct writer *w, uint64_t offset)
{
	size_t i = place_from(w, offset);

	return i < w->place_count && w->places[i].offset == offset ? &w->places[i] : NULL;
}

static struct change *change_at(const struct writer *w, uint64_t offset)
{
	const struct place *p = place_at(w, offset);

	return p && !p->graph ? &w->changes[p->index] : NULL;
}

static const struct named *find_named(const struct writer *w, uint32_t graph, struct str name)
{
	const struct named key = {graph, name, NULL};

	return w->named_count ? bsearch(&key, w->named, w->named_count, sizeof(key), named_cmp) : NULL;
}

/* The first string field `number` of a message; empty when there is none. */
static int read_name(struct writer *w, const struct pb_visit *v, uint32_t number, struct str *out)
{
	struct cursor c;
	int r;

	*out = STR("");
	cursor_init(&c, w->file->src, v->offset, v->size, w->e);
	while (cursor_left(&c)) {
		uint64_t tag = cursor_varint(&c), n = 0;

		if ((tag & 7) == PB_VARINT || (tag & 7) == PB_BYTES)
			n = cursor_varint(&c);
		if ((tag & 7) == PB_BYTES && tag >> 3 == number) {
			*out = cursor_str(&c, w->p->arena, n);
			break;
		}
		cursor_skip(&c, (tag & 7) == PB_BYTES ? n : (tag & 7) == PB_FIXED64 ? 8 : (tag & 7) == PB_FIXED32 ? 4 : 0);
	}
	r = cursor_failed(&c);
	cursor_release(&c);
	return r;
}

/* ---- the visitor: what becomes of each field ---- */

static int replace_text(struct extmap *with, uint32_t number, struct str text)
{
	pb_put_bytes_field(with, number, text);
	return PB_REPLACE;
}

static int model_field(struct writer *w, const struct pb_visit *v)
{
	switch (v->number) {
	case MODEL_GRAPH:
		if (w->deep && v->index > 0)
			return error_set(w->e, EOPNOTSUPP, "the graph stands in two pieces, which is not edited");
		return w->deep ? PB_OPEN : PB_COPY;
	case MODEL_TRAINING:
	case MODEL_FUNCTIONS:
		return w->deep ? PB_OPEN : PB_COPY;
	case MODEL_PRODUCER_NAME:
		return w->new_producer ? PB_DROP : PB_COPY;
	case MODEL_PRODUCER_VERSION:
		return w->new_producer_version ? PB_DROP : PB_COPY;
	case MODEL_VERSION:
		return w->new_version ? PB_DROP : PB_COPY;
	case MODEL_DOC_STRING:
		return w->new_description ? PB_DROP : PB_COPY;
	case MODEL_METADATA:
		return w->new_properties ? PB_DROP : PB_COPY;
	default:
		return PB_COPY;
	}
}

/* A ValueInfoProto or TensorAnnotation, by the name of its value. */
static int value_field(struct writer *w, uint32_t graph, const struct pb_visit *v)
{
	const struct named *named;
	struct str name;
	int r;

	if (!w->named_count)
		return PB_COPY;
	r = read_name(w, v, VALUE_INFO_NAME, &name);
	if (r < 0)
		return r;
	named = find_named(w, graph, name);
	if (v->type == &onnx_graph_type && v->number == GRAPH_ANNOTATION)
		return named && !named->change->now ? PB_DROP : PB_OPEN;
	return !named ? PB_COPY : named->change->now ? PB_OPEN : PB_DROP;
}

static int initializer_field(struct writer *w, const struct pb_visit *v)
{
	const struct change *c = change_at(w, v->offset);

	return !c ? PB_COPY : c->now ? PB_OPEN : PB_DROP;
}

static int graph_field(struct writer *w, const struct pb_visit *v)
{
	uint32_t graph = v->parent ? *(const uint32_t *)v->parent : MODEL_NONE;
	bool function = v->type == &onnx_function_type;

	if (graph == MODEL_NONE)
		return PB_COPY;
	if (v->number == (function ? FUNCTION_NODE : GRAPH_NODE))
		return w->names || contains(w, v) ? PB_OPEN : PB_COPY;
	if (function && v->number == FUNCTION_OUTPUT)
		return PB_COPY; /* onnx_fields replaces it */
	if (v->number == (function ? 12u : (uint32_t)GRAPH_VALUE_INFO))
		return w->reshaped ? PB_DROP : value_field(w, graph, v);
	if (function)
		return contains(w, v) ? PB_OPEN : PB_COPY;
	switch (v->number) {
	case GRAPH_INITIALIZER:
		return initializer_field(w, v);
	case GRAPH_SPARSE:
		return contains(w, v) ? PB_OPEN : PB_COPY;
	case GRAPH_INPUT:
	case GRAPH_OUTPUT:
	case GRAPH_ANNOTATION:
		return value_field(w, graph, v);
	case GRAPH_NAME:
		return graph == 0 && w->new_name ? PB_DROP : PB_COPY;
	default:
		return PB_COPY;
	}
}

/* Names of edges, as the edited model has them at the same place. */
static int node_field(struct writer *w, const struct pb_visit *v, struct extmap *with)
{
	const struct op *was = v->parent;
	const struct op *now = was ? &w->m->ops[was - w->base->ops] : NULL;

	if (v->number == NODE_ATTRIBUTE)
		return contains(w, v) ? PB_OPEN : PB_COPY;
	if (!w->names || !now || v->wire != PB_BYTES)
		return PB_COPY;
	if (v->number == NODE_INPUT && v->index < now->input_count &&
		!str_eq(was->inputs[v->index].name, now->inputs[v->index].name))
		return replace_text(with, NODE_INPUT, now->inputs[v->index].name);
	if (v->number == NODE_OUTPUT && v->index < now->output_count &&
		!str_eq(was->outputs[v->index], now->outputs[v->index]))
		return replace_text(with, NODE_OUTPUT, now->outputs[v->index]);
	return PB_COPY;
}

static int attribute_field(struct writer *w, const struct pb_visit *v, struct extmap *with)
{
	const struct change *c = v->parent;

	if (c && v->number == ATTRIBUTE_S) { /* the bytes of a string, shown as a tensor */
		pb_put_extent_field(with, ATTRIBUTE_S, &c->now->data);
		return PB_REPLACE;
	}
	if (!contains(w, v) || v->wire != PB_BYTES)
		return PB_COPY;
	if ((v->number == ATTRIBUTE_T || v->number == ATTRIBUTE_G) && v->index > 0)
		return error_set(w->e, EOPNOTSUPP, "an attribute stands in two pieces, which is not edited");
	return PB_OPEN;
}

/* What onnx_put_tensor writes anew goes; names, doc strings and what is unknown stay. */
static int tensor_field(const struct pb_visit *v, struct extmap *with)
{
	const struct change *c = v->parent;

	if (!c || !c->now)
		return PB_COPY;
	switch (v->number) {
	case TENSOR_NAME:
		return c->renamed && !((const struct onnx_place *)c->was->priv)->in_attribute
			       ? replace_text(with, TENSOR_NAME, local_name(c->now))
			       : PB_COPY;
	case TENSOR_DIMS: case TENSOR_DATA_TYPE: case TENSOR_SEGMENT: case TENSOR_FLOAT_DATA: case TENSOR_INT32_DATA:
	case TENSOR_STRING_DATA: case TENSOR_INT64_DATA: case TENSOR_RAW_DATA: case TENSOR_DOUBLE_DATA:
	case TENSOR_UINT64_DATA:
		return c->content ? PB_DROP : PB_COPY;
	case TENSOR_EXTERNAL_DATA: case TENSOR_DATA_LOCATION:
		return c->content || c->moved ? PB_DROP : PB_COPY;
	default:
		return PB_COPY;
	}
}

static int value_info_field(const struct pb_visit *v, struct extmap *with)
{
	const struct named *n = v->parent;
	struct extmap type = {0};

	if (!n || !n->change->now)
		return PB_COPY;
	if (v->number == VALUE_INFO_NAME && n->change->renamed)
		return replace_text(with, VALUE_INFO_NAME, local_name(n->change->now));
	if (v->number != VALUE_INFO_TYPE || !n->change->reshaped)
		return PB_COPY;
	onnx_put_type(&type, onnx_type_of(n->change->now->dtype), n->change->now->shape, n->change->now->rank);
	pb_put_map_field(with, VALUE_INFO_TYPE, &type);
	extmap_release(&type);
	return PB_REPLACE;
}

/* tensor_name, and the names among the parameters */
static int annotation_field(struct writer *w, const struct pb_visit *v, struct extmap *with)
{
	const uint32_t *graph = v->parent;
	const struct named *n;
	struct str name;
	int r;

	if (!graph || v->wire != PB_BYTES)
		return PB_COPY;
	if (v->type == &onnx_annotation_type && v->number == ANNOTATION_PARAMETER)
		return PB_OPEN;
	if (v->number != (v->type == &onnx_entry_type ? ENTRY_VALUE : ANNOTATION_TENSOR))
		return PB_COPY;
	struct cursor c;

	cursor_init(&c, w->file->src, v->offset, v->size, w->e);
	name = cursor_str(&c, w->p->arena, v->size);
	r = cursor_failed(&c);
	cursor_release(&c);
	if (r < 0)
		return r;
	n = find_named(w, *graph, name);
	return n && n->change->renamed ? replace_text(with, v->number, local_name(n->change->now)) : PB_COPY;
}

static int visit_field(void *arg, const struct pb_visit *v, struct extmap *with, struct error *e)
{
	struct writer *w = arg;

	(void)e;
	if (v->type == &onnx_model_type)
		return model_field(w, v);
	if (v->type == &onnx_function_type && v->number == FUNCTION_OUTPUT && v->parent && w->names) {
		uint32_t g = *(const uint32_t *)v->parent;

		if (v->index < w->m->graphs[g].output_count &&
			!str_eq(w->m->graphs[g].outputs[v->index].name, w->base->graphs[g].outputs[v->index].name))
			return replace_text(with, FUNCTION_OUTPUT, w->m->graphs[g].outputs[v->index].name);
	}
	if (v->type == &onnx_graph_type || v->type == &onnx_function_type)
		return graph_field(w, v);
	if (v->type == &onnx_node_type)
		return node_field(w, v, with);
	if (v->type == &onnx_attribute_type)
		return attribute_field(w, v, with);
	if (v->type == &onnx_tensor_type)
		return tensor_field(v, with);
	if (v->type == &onnx_value_info_type)
		return value_info_field(v, with);
	if (v->type == &onnx_annotation_type || v->type == &onnx_entry_type)
		return annotation_field(w, v, with);
	return contains(w, v) ? PB_OPEN : PB_COPY; /* sparse tensors, training information */
}

/* What v->parent is for the fields inside the message that v opens. */
static void *visit_opened(void *arg, const struct pb_visit *v)
{
	struct writer *w = arg;
	const struct place *p = place_at(w, v->offset);
	struct str name;

	if (p && p->graph)
		return &w->graph_ids[p->index];
	if (p)
		return &w->changes[p->index];
	if ((v->type == &onnx_graph_type && v->number == GRAPH_NODE) ||
		(v->type == &onnx_function_type && v->number == FUNCTION_NODE)) {
		const struct graph *g = &w->base->graphs[*(const uint32_t *)v->parent];

		return v->index < g->op_count ? &w->base->ops[g->first_op + v->index] : NULL;
	}
	if (v->type == &onnx_annotation_type || (v->type == &onnx_graph_type && v->number == GRAPH_ANNOTATION))
		return v->parent;
	if ((v->type == &onnx_graph_type || v->type == &onnx_function_type) && v->parent &&
		read_name(w, v, VALUE_INFO_NAME, &name) == 0)
		return (void *)(uintptr_t)find_named(w, *(const uint32_t *)v->parent, name);
	return NULL;
}

/* ---- what is appended ---- */

static void put_text(struct extmap *out, uint32_t field, struct str text)
{
	if (text.len)
		pb_put_bytes_field(out, field, text);
}

static void close_model(struct writer *w, struct extmap *out)
{
	const struct metadata *meta = &w->m->meta;

	if (w->new_producer)
		put_text(out, MODEL_PRODUCER_NAME, onnx_model_text(meta, "producer"));
	if (w->new_producer_version)
		put_text(out, MODEL_PRODUCER_VERSION, onnx_model_text(meta, "producer_version"));
	if (w->new_version && onnx_model_version(meta))
		pb_put_varint_field(out, MODEL_VERSION, onnx_model_version(meta));
	if (w->new_description)
		put_text(out, MODEL_DOC_STRING, onnx_model_text(meta, "description"));
	if (w->new_properties && onnx_put_properties(out, meta, w->p->arena) < 0)
		out->failed = -ENOMEM;
}

/* New tensors are initializers of the main graph; up to IR version 3 these are its inputs too. */
static void close_graph(struct writer *w, struct extmap *out)
{
	if (w->new_name)
		pb_put_bytes_field(out, GRAPH_NAME, onnx_model_text(&w->m->meta, "name"));
	for (uint32_t i = 0; i < w->m->tensor_count; i++) {
		const struct tensor *t = &w->m->tensors[i];
		struct extmap tensor = {0}, info = {0};

		if (!(t->flags & TENSOR_ADDED))
			continue;
		onnx_put_tensor(&tensor, t, onnx_type_of(t->dtype), &t->data, &w->added[i]);
		pb_put_bytes_field(&tensor, TENSOR_NAME, t->name);
		pb_put_map_field(out, GRAPH_INITIALIZER, &tensor);
		if (w->file->ir_version < 4) {
			onnx_put_value_info(&info, t->name, onnx_type_of(t->dtype), t->shape, t->rank);
			pb_put_map_field(out, GRAPH_INPUT, &info);
		}
		extmap_release(&tensor);
		extmap_release(&info);
	}
}

static void close_tensor(const struct change *c, struct extmap *out)
{
	if (c->content)
		onnx_put_tensor(out, c->now, onnx_type_of(c->now->dtype), &c->now->data, &c->outside);
	else if (c->moved)
		onnx_put_outside(out, &c->outside, c->now->data.size);
}

static int visit_closing(void *arg, const struct pb_visit *v, struct extmap *append, struct error *e)
{
	struct writer *w = arg;

	if (v->type == &onnx_model_type)
		close_model(w, append);
	else if (v->type == &onnx_graph_type && v->parent == &w->graph_ids[0])
		close_graph(w, append);
	else if (v->type == &onnx_tensor_type && v->parent)
		close_tensor(v->parent, append);
	return extmap_failed(append, e);
}

static int rewrite(struct writer *w)
{
	const struct pb_visitor visitor = {visit_field, visit_opened, visit_closing, w};
	struct extmap *out = plan_file(w->p, "");
	int r;

	if (!out)
		return no_memory(w->e);
	r = pb_rewrite(w->file->src, 0, source_size(w->file->src), &onnx_model_type, &visitor, out, w->e);
	if (r == 0)
		r = extmap_failed(out, w->e);
	if (r == 0 && out->size > INT32_MAX && out->size > source_size(w->file->src))
		r = error_set(w->e, EFBIG, "the model would have %llu bytes, protobuf holds at most 2147483647",
			(unsigned long long)out->size);
	if (r == 0 && w->p->in_place && model_is_clean(w->m))
		w->p->files[w->p->count - 1].unchanged = true;
	return r;
}

int onnx_plan(const struct model *m, struct plan *p, struct error *e)
{
	struct writer w = {.m = m, .base = m->base ? m->base : m, .p = p, .e = e};
	int r;

	if (m->format != &format_onnx)
		return onnx_create(m, p, e);
	w.file = w.base->priv;
	r = find_changes(&w);
	if (r == 0)
		r = find_metadata(&w);
	if (r == 0)
		r = plan_external(&w);
	if (r == 0)
		r = plan_overflow(&w);
	if (r == 0)
		r = index_changes(&w);
	if (r == 0)
		r = rewrite(&w);
	free(w.changes);
	free(w.places);
	free(w.named);
	free(w.graph_ids);
	free(w.added);
	return r;
}
