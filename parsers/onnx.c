/* SPDX-License-Identifier: MIT */
/*
 * ONNX (schema of onnx 1.23, IR versions 1 to 14): a ModelProto, which is one protobuf message without magic number.
 * Payloads stay in the file: pb_scan leaves them out of what protobuf-c unpacks.
 *
 * Metadata: name is the graph's, description the model's doc_string, author and license the properties model_author
 * and model_license that ONNX defines, version model_version as "N.0.0"; a fuller version stands in the
 * property wiamodel.version and counts when its first number is model_version.
 */
#include "parsers/onnx_read.h"

#include "parsers/core/cursor.h"
#include "parsers/core/limits.h"
#include "parsers/format.h"
#include "parsers/onnx_write.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

int onnx_no_memory(struct onnx_reader *x)
{
	return error_set(x->e, ENOMEM, "out of memory for the model's structure");
}

struct str onnx_join(struct onnx_reader *x, struct str a, struct str b, struct str c)
{
	size_t len = a.len + b.len + c.len;
	char *p = arena_alloc(x->m->arena, len + 1);

	if (!p || (a.len && !a.ptr) || (b.len && !b.ptr) || (c.len && !c.ptr))
		return (struct str){NULL, 0};
	if (a.len)
		memcpy(p, a.ptr, a.len);
	if (b.len)
		memcpy(p + a.len, b.ptr, b.len);
	if (c.len)
		memcpy(p + a.len + b.len, c.ptr, c.len);
	return (struct str){p, len};
}

int onnx_set(struct onnx_reader *x, struct value **map, const char *key, struct value *v)
{
	if (!*map)
		*map = value_map(x->m->arena);
	return value_set(x->m->arena, *map, str_from(key), v) < 0 ? onnx_no_memory(x) : 0;
}

int onnx_set_text(struct onnx_reader *x, struct value **map, const char *key, ProtobufCBinaryData text)
{
	return text.len ? onnx_set(x, map, key, value_str(x->m->arena, onnx_keep(x, text))) : 0;
}

struct entry_order {
	struct str key;
	size_t index;
};

static int entry_cmp(const void *pa, const void *pb)
{
	const struct entry_order *a = pa, *b = pb;
	int c = str_cmp(a->key, b->key);

	return c ? c : a->index < b->index ? -1 : a->index > b->index;
}

struct value *onnx_entries(struct onnx_reader *x, Wia__Onnx__Entry *const *list, size_t count, const char *where)
{
	struct value *map = value_map(x->m->arena);
	struct entry_order *order = calloc(count ? count : 1, sizeof(*order));
	bool *old = calloc(count ? count : 1, sizeof(*old));
	int r = map && order && old ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < count; i++)
		order[i] = (struct entry_order){onnx_str(list[i]->key), i};
	if (r == 0)
		qsort(order, count, sizeof(*order), entry_cmp);
	for (size_t i = 1; r == 0 && i < count; i++) {
		if (!str_eq(order[i - 1].key, order[i].key))
			continue;
		old[order[i - 1].index] = true;
		model_warn(x->m, "property '%.*s' of %s is there twice, the last one counts", STR_ARG(order[i].key),
			where);
	}
	for (size_t i = 0; r == 0 && i < count; i++)
		if (!old[i])
			r = value_set(x->m->arena, map, onnx_keep(x, list[i]->key),
				value_str(x->m->arena, onnx_keep(x, list[i]->value)));
	free(order);
	free(old);
	return r < 0 ? NULL : map;
}

/* ---- recognising ---- */

/* Whether the tag may stand in a ModelProto. Numbers that are not given yet, up to 100, may come one day. */
static bool is_model_tag(uint64_t tag)
{
	int wire = (int)(tag & 7);

	switch (tag >> 3) {
	case 1: case 5:
		return wire == PB_VARINT;
	case 2: case 3: case 4: case 6: case 7: case 8: case 14: case 20: case 25: case 26:
		return wire == PB_BYTES;
	default:
		return tag >> 3 > 26 && tag >> 3 <= 100 && (wire == PB_VARINT || wire == PB_BYTES);
	}
}

/* No magic: the first fields must be ModelProto's, with a small ir_version among them or a graph. */
static int onnx_probe(const struct input *in, struct error *e)
{
	struct error ignored = {0};
	struct cursor c;
	bool version = false, graph = false, foreign = false;
	int fields = 0;

	if (!in->src)
		return 0;
	cursor_init(&c, in->src, 0, source_size(in->src), &ignored);
	while (cursor_left(&c) && !foreign && fields < 64) {
		uint64_t tag = cursor_varint(&c), value = 0;

		if (cursor_failed(&c))
			break;
		foreign = !is_model_tag(tag);
		if (!foreign)
			value = cursor_varint(&c);
		if (tag == 8 && !foreign) {
			version = value >= 1 && value <= 1000;
			foreign = !version;
		}
		if (foreign || cursor_failed(&c))
			break;
		fields++;
		graph |= tag == (7 << 3 | PB_BYTES);
		if ((tag & 7) == PB_BYTES) {
			if (value > cursor_left(&c)) /* cut off: what stands before it still tells */
				break;
			cursor_skip(&c, value);
		}
	}
	cursor_release(&c);
	if (cursor_failed(&c) == -ENOMEM)
		return error_set(e, ENOMEM, "%s", ignored.text);
	if (foreign || !version)
		return 0;
	return graph ? 32 : fields > 1 ? 12 : 0;
}

/* ---- metadata ---- */

/* model_version and the property that may tell more of it */
static int set_version(struct onnx_reader *x, struct metadata *meta, const Wia__Onnx__Model *p)
{
	struct value *full = value_get(meta->properties, ONNX_VERSION_PROPERTY);
	struct str text = arena_printf(x->m->arena, "%lld.", (long long)p->model_version);

	if (full && full->kind == VALUE_STRING && text.ptr && str_starts(full->str, text))
		return 0; /* metadata_collect takes it */
	if (p->model_version <= 0)
		return 0;
	text = arena_printf(x->m->arena, "%lld.0.0", (long long)p->model_version);
	return onnx_set(x, &meta->model, "version", text.ptr ? value_str(x->m->arena, text) : NULL);
}

/* A property that ONNX itself defines becomes the key it means. */
static int take_property(struct onnx_reader *x, struct metadata *meta, const char *property, const char *key)
{
	struct value *props = meta->properties;

	for (size_t i = 0; props && i < props->map.count; i++) {
		struct member *m = &props->map.members[i];

		if (!str_is(m->key, property) || m->value->kind != VALUE_STRING)
			continue;
		if (onnx_set(x, &meta->model, key, m->value) < 0)
			return -ENOMEM;
		memmove(m, m + 1, (props->map.count - i - 1) * sizeof(*m));
		props->map.count--;
		break;
	}
	return 0;
}

static int set_opsets(struct onnx_reader *x, const Wia__Onnx__Model *p, struct onnx_file *f)
{
	struct value *opsets = value_map(x->m->arena);

	for (size_t i = 0; i < p->n_opset_import; i++) {
		const Wia__Onnx__OperatorSetId *o = p->opset_import[i];

		if (!o->domain.len || str_is(onnx_str(o->domain), "ai.onnx"))
			f->opset = o->version;
		if (value_set(x->m->arena, opsets, onnx_keep(x, o->domain), value_int(x->m->arena, o->version)) < 0)
			return onnx_no_memory(x);
	}
	return onnx_set(x, &x->m->format_info, "opset_import", opsets);
}

static int read_metadata(struct onnx_reader *x, const Wia__Onnx__Model *p, struct onnx_file *f)
{
	struct metadata *meta = &x->m->meta;
	int r;

	f->ir_version = p->ir_version;
	x->m->format_version = arena_printf(x->m->arena, "IR %lld", (long long)p->ir_version);
	if (p->n_metadata_props)
		meta->properties = onnx_entries(x, p->metadata_props, p->n_metadata_props, "the model");
	if (!x->m->format_version.ptr || (p->n_metadata_props && !meta->properties))
		return onnx_no_memory(x);
	r = onnx_set_text(x, &x->m->format_info, "domain", p->domain);
	if (r == 0)
		r = set_opsets(x, p, f);
	if (r == 0)
		r = onnx_set_text(x, &meta->model, "name", p->graph->name);
	if (r == 0)
		r = set_version(x, meta, p);
	if (r == 0)
		r = onnx_set_text(x, &meta->model, "producer", p->producer_name);
	if (r == 0)
		r = onnx_set_text(x, &meta->model, "producer_version", p->producer_version);
	if (r == 0)
		r = onnx_set_text(x, &meta->model, "description", p->doc_string);
	if (r == 0)
		r = take_property(x, meta, ONNX_AUTHOR_PROPERTY, "author");
	if (r == 0)
		r = take_property(x, meta, ONNX_LICENSE_PROPERTY, "license");
	if (r == 0 && f->opset)
		r = onnx_set(x, &meta->model, "onnx_opset", value_int(x->m->arena, f->opset));
	return r;
}

/* ---- reading ---- */

static int queue_training(struct onnx_reader *x, const Wia__Onnx__TrainingInfo *t, size_t k)
{
	const Wia__Onnx__Graph *const graphs[] = {t->initialization, t->algorithm};
	static const char *const names[] = {"initialization", "algorithm"};
	int r = 0;

	for (size_t i = 0; i < 2 && r == 0; i++) {
		struct str label = arena_printf(x->m->arena, "training_info.%zu.%s", k, names[i]);
		struct str prefix = arena_printf(x->m->arena, "training_info/%zu/%s/", k, names[i]);

		if (graphs[i])
			r = onnx_queue_graph(x, graphs[i], label, MODEL_NONE, 0, prefix);
	}
	return r;
}

/* What saving needs to know of the graphs: where they lie. */
static int note_places(struct onnx_reader *x, struct onnx_file *f)
{
	f->graphs = arena_array(x->m->arena, x->pending_count, sizeof(*f->graphs));
	if (!f->graphs)
		return onnx_no_memory(x);
	for (uint32_t i = 0; i < x->pending_count; i++) {
		const struct onnx_pending *p = &x->pending[i];
		uint64_t record = p->proto ? p->proto->record : p->function->record;
		bool has = p->proto ? p->proto->has_record : p->function->has_record;

		if (!has || record >= x->skeleton.record_count)
			return error_set(x->e, EIO, "graph %u has no place in the file", i);
		f->graphs[p->graph] = x->skeleton.records[record].offset;
	}
	return 0;
}

static int read_model(struct onnx_reader *x, const Wia__Onnx__Model *p)
{
	struct onnx_file *f = arena_alloc(x->m->arena, sizeof(*f));
	int r;

	if (!f)
		return onnx_no_memory(x);
	f->src = x->in->src;
	x->m->priv = f;
	if (!p->graph)
		return error_set(x->e, EIO, "the model has no graph (field 7 of ModelProto)");
	r = read_metadata(x, p, f);
	if (r == 0)
		r = onnx_queue_graph(x, p->graph, STR(""), MODEL_NONE, MODEL_NONE, STR(""));
	for (size_t i = 0; r == 0 && i < p->n_training_info; i++)
		r = queue_training(x, p->training_info[i], i);
	for (size_t i = 0; r == 0 && i < p->n_functions; i++)
		r = onnx_queue_function(x, p->functions[i]);
	if (r == 0)
		r = onnx_walk_graphs(x);
	if (r == 0)
		r = note_places(x, f);
	f->training = p->n_training_info > 0;
	if (r == 0 && x->companion_count)
		r = input_list(x->in, STR(""), x->m->arena, &f->beside, &f->beside_count, x->e);
	return r;
}

static int onnx_parse(struct input *in, struct model *m, struct error *e)
{
	struct onnx_reader x = {.in = in, .m = m, .e = e};
	struct arena *unpacked = arena_new(LIMIT_MODEL_MEMORY);
	Wia__Onnx__Model *p = NULL;
	int r = unpacked ? 0 : onnx_no_memory(&x);

	if (r == 0)
		r = model_add_source(m, in->src, e);
	if (r == 0)
		r = pb_scan(in->src, 0, source_size(in->src), &onnx_model_type, &x.skeleton, e);
	if (r == 0) {
		struct ProtobufCAllocator *memory = pb_arena_allocator(unpacked);

		p = wia__onnx__model__unpack(memory, x.skeleton.len, x.skeleton.bytes);
		r = p ? read_model(&x, p) : pb_unpack_failed(memory, "ModelProto", e);
	}
	pb_skeleton_release(&x.skeleton);
	free(x.companions);
	free(x.pending);
	arena_free(unpacked);
	return r;
}

static bool onnx_holds(enum dtype d)
{
	return onnx_type_of(d) != 0;
}

static const char *const extensions[] = {".onnx", NULL};
static const char *const model_keys[] = {"name", "version", "producer", "producer_version", "description", "author",
	"license", "onnx_opset", NULL};

const struct format format_onnx = {
	.name = "onnx",
	.title = "ONNX",
	.extensions = extensions,
	.can = CAN_VALUES | CAN_RESHAPE | CAN_RETYPE | CAN_RENAME | CAN_ADD | CAN_REMOVE | CAN_METADATA | CAN_CREATE |
	       CAN_GRAPH,
	.probe = onnx_probe,
	.parse = onnx_parse,
	.check_edit = onnx_check_edit,
	.plan = onnx_plan,
	.holds = onnx_holds,
	.keeps_properties = true,
	.model_keys = model_keys,
};
