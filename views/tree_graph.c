/* SPDX-License-Identifier: MIT */
/*
 * The part of the tree that walks: graph/ops/NAME/{op.json,inputs/K-NAME,outputs/K-NAME}, subgraphs inside their
 * op's directory, functions under graph/functions/. Links are computed, never stored.
 *
 * inputs/K-NAME leads to the tensor, to the op that computes it, or to the graph's inputs.json.
 * outputs/K-NAME leads to the first op that consumes it, K-NAME~2 to the second, ...; an output that no op
 * consumes leads to the graph's outputs.json when it is one of them, else to the op's own op.json.
 */
#include "views/tree_private.h"

#include "parsers/core/limits.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- construction ---- */

static struct str op_shown_name(const struct op *op)
{
	if (op->name.len)
		return op->name;
	for (uint32_t k = 0; k < op->output_count; k++)
		if (op->outputs[k].len)
			return op->outputs[k];
	return op->type;
}

static bool place_ops(struct graph_tree *g, const struct model *m)
{
	static const char *const suffixes[] = {"", NULL};
	struct str *names = calloc(m->op_count ? m->op_count : 1, sizeof(*names));
	uint32_t dirs = 0;
	bool ok = names != NULL;

	for (uint32_t i = 0; ok && i < m->graph_count; i++) {
		const struct graph *graph = &m->graphs[i];

		for (uint32_t k = 0; k < graph->op_count; k++)
			names[k] = op_shown_name(&m->ops[graph->first_op + k]);
		g->places[i].ops = nametree_new(names, graph->op_count, suffixes);
		g->places[i].first_dir = dirs;
		ok = g->places[i].ops != NULL;
		dirs += ok ? nametree_dir_count(g->places[i].ops) : 0;
	}
	free(names);
	g->dir_graph = calloc(dirs ? dirs : 1, sizeof(*g->dir_graph));
	if (!ok || !g->dir_graph || !dir_numbers_init(&g->dirs, dirs))
		return false;
	for (uint32_t i = 0; i < m->graph_count; i++) {
		const struct graph_place *p = &g->places[i];

		for (uint32_t d = 0; d < nametree_dir_count(p->ops); d++) {
			uint32_t up = d ? g->dirs.number[p->first_dir + nametree_parent(p->ops, d)] : i + 1;
			uint64_t h = str_hash(nametree_dir_name(p->ops, d)) ^
				     (up * 0x9e3779b97f4a7c15ull >> 20);

			g->dir_graph[p->first_dir + d] = i;
			dir_numbers_set(&g->dirs, p->first_dir + d, (uint32_t)h);
		}
	}
	return true;
}

struct label {
	uint32_t parent, graph;
	struct str name;
};

static int label_cmp(const void *pa, const void *pb)
{
	const struct label *a = pa, *b = pb;
	int c = a->parent < b->parent ? -1 : a->parent > b->parent;

	c = c ? c : str_cmp(a->name, b->name);
	return c ? c : a->graph < b->graph ? -1 : a->graph > b->graph;
}

static bool is_reserved(struct str name)
{
	if (str_is(name, "inputs") || str_is(name, "outputs"))
		return true;
	for (size_t v = 0; v < view_count; v++)
		if (views[v]->subject == SUBJECT_OP && str_is(name, views[v]->path))
			return true;
	return false;
}

/* Names of subgraphs and functions in their parent's directory. The main graph is "graph" itself. */
static bool place_graphs(struct graph_tree *g, const struct model *m)
{
	struct label *labels = calloc(m->graph_count, sizeof(*labels));
	uint32_t same = 1;
	bool ok = labels != NULL;

	for (uint32_t i = 0; ok && i < m->graph_count; i++) {
		labels[i] = (struct label){m->graphs[i].parent_op, i,
			name_to_component(g->arena, m->graphs[i].label)};
		ok = labels[i].name.ptr != NULL;
	}
	if (ok)
		qsort(labels, m->graph_count, sizeof(*labels), label_cmp);
	for (uint32_t i = 0; ok && i < m->graph_count; i++) {
		const struct label *l = &labels[i];
		bool subgraph = l->parent != MODEL_NONE;

		if (l->graph == 0)
			continue;
		if (i && labels[i - 1].parent == l->parent && str_eq(labels[i - 1].name, l->name) &&
			labels[i - 1].graph != 0)
			same++;
		else
			same = subgraph && is_reserved(l->name) ? 2 : 1;
		g->places[l->graph].name = same == 1 ? l->name
						     : arena_printf(g->arena, "%.*s~%u",
							       (int)l->name.len, l->name.ptr, same);
		ok = g->places[l->graph].name.ptr != NULL;
		if (subgraph)
			g->subgraphs[g->subgraph_count++] = l->graph;
		else
			g->functions[g->function_count++] = l->graph;
	}
	free(labels);
	return ok;
}

/* Calls visit for each (op output, consumer), each consumer once for an output. */
static void each_consumer(const struct graph_tree *g, const struct model *m,
	void (*visit)(const struct graph_tree *g, uint64_t output, uint32_t consumer))
{
	for (uint32_t i = 0; i < m->op_count; i++) {
		const struct op *op = &m->ops[i];

		for (uint32_t k = 0; k < op->input_count; k++) {
			const struct edge *x = &op->inputs[k];
			bool again = false;

			if (x->kind != EDGE_OP)
				continue;
			/* an op that takes a value twice is its consumer once; ops of thousands of inputs
			 * may show twice rather than cost the square */
			for (uint32_t b = k > 16 ? k - 16 : 0; b < k; b++)
				again |= op->inputs[b].kind == EDGE_OP && op->inputs[b].index == x->index &&
					 op->inputs[b].output == x->output;
			if (!again)
				visit(g, g->output_base[x->index] + x->output, i);
		}
	}
}

static void count_consumer(const struct graph_tree *g, uint64_t output, uint32_t consumer)
{
	(void)consumer;
	g->link_first[output + 1]++;
}

/* Filling moves link_first[output] to its end; place_links sums up again afterwards. */
static void put_consumer(const struct graph_tree *g, uint64_t output, uint32_t consumer)
{
	g->link_target[g->link_first[output]++] = consumer;
}

/* Turns counts in link_first[output + 1] into first links; gives the total. An output that no op consumes has
 * one link too. */
static uint64_t sum_links(const struct graph_tree *g, uint64_t outputs)
{
	uint64_t links = 0;

	for (uint64_t o = 0; o <= outputs; o++) {
		uint64_t n = g->link_first[o + 1];

		g->link_first[o] = links;
		links += o == outputs ? 0 : n ? n : 1;
	}
	return links;
}

static bool place_links(struct graph_tree *g, const struct model *m)
{
	uint64_t outputs = 0, links;

	g->output_base = calloc((size_t)m->op_count + 1, sizeof(*g->output_base));
	if (!g->output_base)
		return false;
	for (uint32_t i = 0; i < m->op_count; i++) {
		g->output_base[i] = (uint32_t)outputs;
		outputs += m->ops[i].output_count;
		if (outputs >= UINT32_MAX)
			return false;
	}
	g->output_base[m->op_count] = (uint32_t)outputs;
	g->link_first = calloc(outputs + 2, sizeof(*g->link_first));
	if (!g->link_first)
		return false;
	each_consumer(g, m, count_consumer);
	links = sum_links(g, outputs);
	g->link_target = malloc((links ? links : 1) * sizeof(*g->link_target));
	if (!g->link_target)
		return false;
	memset(g->link_target, 0xff, links * sizeof(*g->link_target)); /* MODEL_NONE */
	each_consumer(g, m, put_consumer);
	memset(g->link_first, 0, (outputs + 2) * sizeof(*g->link_first));
	each_consumer(g, m, count_consumer);
	sum_links(g, outputs);
	return true;
}

struct graph_tree *graph_tree_new(const struct model *m)
{
	struct graph_tree *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->refs = 1;
	g->arena = arena_new(LIMIT_MODEL_MEMORY);
	g->graph_count = m->graph_count;
	g->op_count = m->op_count;
	g->ops = m->ops;
	g->places = calloc(m->graph_count, sizeof(*g->places));
	g->functions = calloc(m->graph_count, sizeof(*g->functions));
	g->subgraphs = calloc(m->graph_count, sizeof(*g->subgraphs));
	if (!g->arena || !g->places || !g->functions || !g->subgraphs || !place_ops(g, m) ||
		!place_graphs(g, m) || !place_links(g, m)) {
		graph_tree_unref(g);
		return NULL;
	}
	return g;
}

struct graph_tree *graph_tree_ref(struct graph_tree *g)
{
	__atomic_add_fetch(&g->refs, 1, __ATOMIC_RELAXED);
	return g;
}

void graph_tree_unref(struct graph_tree *g)
{
	if (!g || __atomic_sub_fetch(&g->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	for (uint32_t i = 0; g->places && i < g->graph_count; i++)
		nametree_free(g->places[i].ops);
	free(g->places);
	free(g->dir_graph);
	dir_numbers_release(&g->dirs);
	free(g->functions);
	free(g->subgraphs);
	free(g->output_base);
	free(g->link_first);
	free(g->link_target);
	arena_free(g->arena);
	free(g);
}

/* ---- inodes ---- */

static uint64_t link_count(const struct graph_tree *g, uint32_t op)
{
	return g->link_first[g->output_base[op + 1]] - g->link_first[g->output_base[op]];
}

bool graph_inode_valid(const struct tree *t, const struct inode *n)
{
	const struct model *m = t->model;

	if (!t->graphs)
		return false;
	switch (n->class) {
	case CLASS_GRAPH:
		if (n->subject >= m->graph_count)
			return false;
		/* the main graph's own directory is the static one */
		return n->sub == GRAPH_OPS || (n->sub == GRAPH_SELF && n->subject > 0) ||
		       (n->sub == GRAPH_FUNCTIONS && n->subject == 0 && t->graphs->function_count);
	case CLASS_OP_DIR:
		return dir_numbers_find(&t->graphs->dirs, n->subject) != UINT32_MAX;
	case CLASS_OP:
		return n->subject < m->op_count && n->sub <= OP_OUTPUTS;
	case CLASS_INPUT_LINK:
		return n->subject < m->op_count && n->sub < m->ops[n->subject].input_count;
	case CLASS_OUTPUT_LINK:
		return n->subject < m->op_count && n->sub < link_count(t->graphs, n->subject);
	default:
		return false;
	}
}

/* The directory of a graph: graph/ is a fixed place. */
static uint64_t graph_self(const struct tree *t, uint32_t graph)
{
	if (graph)
		return inode_pack(CLASS_GRAPH, graph, GRAPH_SELF);
	for (uint32_t i = 1; i < t->static_count; i++)
		if (t->statics[i].kind == STATIC_GRAPH)
			return 1 + i;
	return TREE_ROOT;
}

static uint64_t op_dir_inode(const struct graph_tree *g, uint32_t graph, uint32_t dir)
{
	if (dir == 0)
		return inode_pack(CLASS_GRAPH, graph, GRAPH_OPS);
	return inode_pack(CLASS_OP_DIR, g->dirs.number[g->places[graph].first_dir + dir], 0);
}

/* ops/ of a graph or a directory below it */
static bool op_names(const struct tree *t, const struct inode *n, uint32_t *graph, uint32_t *dir)
{
	const struct graph_tree *g = t->graphs;

	if (n->class == CLASS_GRAPH && n->sub == GRAPH_OPS) {
		*graph = n->subject;
		*dir = 0;
		return true;
	}
	if (n->class != CLASS_OP_DIR)
		return false;
	*dir = dir_numbers_find(&g->dirs, n->subject);
	if (*dir == UINT32_MAX)
		return false;
	*graph = g->dir_graph[*dir];
	*dir -= g->places[*graph].first_dir;
	return true;
}

/* ---- names of links ---- */

/* The escaped value is cut so that number and ~N fit a file name. */
static struct str link_name(char *buf, uint32_t k, struct str value, uint64_t again)
{
	char shown[NAME_COMPONENT_MAX];
	size_t len = name_component(shown, value);
	int n;

	if (again)
		n = snprintf(buf, TREE_NAME_MAX + 1, "%u-%.*s~%llu", k, (int)len, shown,
			(unsigned long long)again + 1);
	else
		n = snprintf(buf, TREE_NAME_MAX + 1, "%u-%.*s", k, (int)len, shown);
	return (struct str){buf, (size_t)n};
}

/* Output and number among its links of an op's link j. */
static void output_of_link(const struct graph_tree *g, uint32_t op, uint64_t j, uint32_t *output,
	uint64_t *again)
{
	uint32_t base = g->output_base[op], low = 0, high = g->output_base[op + 1] - base;
	uint64_t at = g->link_first[base] + j;

	while (high - low > 1) {
		uint32_t mid = low + (high - low) / 2;

		if (g->link_first[base + mid] <= at)
			low = mid;
		else
			high = mid;
	}
	*output = low;
	*again = at - g->link_first[base + low];
}

static struct str input_link_name(const struct tree *t, uint32_t op, uint32_t k, char *buf)
{
	return link_name(buf, k, t->model->ops[op].inputs[k].name, 0);
}

static struct str output_link_name(const struct tree *t, uint32_t op, uint64_t j, char *buf)
{
	uint32_t output;
	uint64_t again;

	output_of_link(t->graphs, op, j, &output, &again);
	return link_name(buf, output, t->model->ops[op].outputs[output], again);
}

/* ---- children ---- */

static uint32_t first_subgraph(const struct tree *t, uint32_t op)
{
	const struct graph_tree *g = t->graphs;
	uint32_t low = 0, high = g->subgraph_count;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (t->model->graphs[g->subgraphs[mid]].parent_op < op)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static uint32_t subgraph_count(const struct tree *t, uint32_t op)
{
	return first_subgraph(t, op + 1) - first_subgraph(t, op);
}

uint64_t graph_child_count(const struct tree *t, const struct inode *n)
{
	uint32_t graph, dir;

	if (op_names(t, n, &graph, &dir))
		return nametree_child_count(t->graphs->places[graph].ops, dir);
	if (n->class == CLASS_GRAPH)
		return n->sub == GRAPH_SELF ? view_count + 2 : t->graphs->function_count;
	if (n->class != CLASS_OP)
		return 0;
	if (n->sub == OP_SELF)
		return view_count + 2 + subgraph_count(t, n->subject);
	return n->sub == OP_INPUTS ? t->model->ops[n->subject].input_count
				   : link_count(t->graphs, n->subject);
}

static bool graph_self_child(const struct tree *t, uint32_t graph, uint64_t k, struct str *name,
	uint64_t *inode)
{
	if (k < view_count) {
		*name = str_from(views[k]->path);
		*inode = inode_pack(CLASS_GRAPH, graph, GRAPH_FILES + (uint32_t)k);
		return tree_view_exists(t, (uint32_t)k, SUBJECT_GRAPH, graph);
	}
	*name = k == view_count ? STR("ops") : STR("functions");
	*inode = inode_pack(CLASS_GRAPH, graph, k == view_count ? GRAPH_OPS : GRAPH_FUNCTIONS);
	return k == view_count || (graph == 0 && t->graphs->function_count);
}

static bool op_self_child(const struct tree *t, uint32_t op, uint64_t k, struct str *name, uint64_t *inode)
{
	if (k < view_count) {
		*name = str_from(views[k]->path);
		*inode = inode_pack(CLASS_OP, op, OP_FILES + (uint32_t)k);
		return tree_view_exists(t, (uint32_t)k, SUBJECT_OP, op);
	}
	if (k < view_count + 2) {
		*name = k == view_count ? STR("inputs") : STR("outputs");
		*inode = inode_pack(CLASS_OP, op, k == view_count ? OP_INPUTS : OP_OUTPUTS);
		return true;
	}
	uint32_t graph = t->graphs->subgraphs[first_subgraph(t, op) + (uint32_t)(k - view_count - 2)];

	*name = t->graphs->places[graph].name;
	*inode = inode_pack(CLASS_GRAPH, graph, GRAPH_SELF);
	return true;
}

bool graph_child(const struct tree *t, const struct inode *n, uint64_t k, char *buf, struct str *name,
	uint64_t *inode)
{
	uint32_t graph, dir;

	if (k >= graph_child_count(t, n))
		return false;
	if (op_names(t, n, &graph, &dir)) {
		struct name_entry c = nametree_child(t->graphs->places[graph].ops, dir, (uint32_t)k);

		*name = c.name;
		*inode = c.is_dir ? op_dir_inode(t->graphs, graph, c.index)
				  : inode_pack(CLASS_OP, t->model->graphs[graph].first_op + c.index, OP_SELF);
		return true;
	}
	if (n->class == CLASS_GRAPH && n->sub == GRAPH_SELF)
		return graph_self_child(t, n->subject, k, name, inode);
	if (n->class == CLASS_GRAPH) {
		graph = t->graphs->functions[k];
		*name = t->graphs->places[graph].name;
		*inode = inode_pack(CLASS_GRAPH, graph, GRAPH_SELF);
		return true;
	}
	if (n->sub == OP_SELF)
		return op_self_child(t, n->subject, k, name, inode);
	if (n->sub == OP_INPUTS) {
		if (k > 0xffffff || t->model->ops[n->subject].inputs[k].kind == EDGE_NONE)
			return false; /* an omitted input */
		*name = input_link_name(t, n->subject, (uint32_t)k, buf);
		*inode = inode_pack(CLASS_INPUT_LINK, n->subject, (uint32_t)k);
		return true;
	}
	*name = output_link_name(t, n->subject, k, buf);
	*inode = inode_pack(CLASS_OUTPUT_LINK, n->subject, (uint32_t)k & 0xffffff);
	return k <= 0xffffff;
}

/* ---- lookup ---- */

/* K-..., the number only; the caller compares the whole name */
static bool link_number(struct str name, uint32_t *k)
{
	size_t i = 0;

	for (*k = 0; i < name.len && i < 8 && name.ptr[i] >= '0' && name.ptr[i] <= '9'; i++)
		*k = *k * 10 + (uint32_t)(name.ptr[i] - '0');
	return i > 0 && i < name.len && name.ptr[i] == '-';
}

static int lookup_link(const struct tree *t, const struct inode *n, struct str name, uint64_t *inode)
{
	const struct op *op = &t->model->ops[n->subject];
	const struct graph_tree *g = t->graphs;
	char buf[TREE_NAME_MAX + 1];
	uint64_t first, count;
	uint32_t k;

	if (!link_number(name, &k))
		return -ENOENT;
	if (n->sub == OP_INPUTS) {
		if (k >= op->input_count || op->inputs[k].kind == EDGE_NONE ||
			!str_eq(name, input_link_name(t, n->subject, k, buf)))
			return -ENOENT;
		*inode = inode_pack(CLASS_INPUT_LINK, n->subject, k);
		return 0;
	}
	if (k >= op->output_count)
		return -ENOENT;
	k += g->output_base[n->subject];
	first = g->link_first[k] - g->link_first[g->output_base[n->subject]];
	count = g->link_first[k + 1] - g->link_first[k];
	/* ~N at the end tells which of the consumers */
	uint64_t again = 0;
	const char *tilde = memrchr(name.ptr, '~', name.len);

	if (tilde && !str_eq(name, output_link_name(t, n->subject, first, buf))) {
		for (const char *p = tilde + 1; p < name.ptr + name.len && *p >= '0' && *p <= '9'; p++)
			again = again < count ? again * 10 + (uint64_t)(*p - '0') : again;
		again = again ? again - 1 : 0;
	}
	if (again >= count || first + again > 0xffffff ||
		!str_eq(name, output_link_name(t, n->subject, first + again, buf)))
		return -ENOENT;
	*inode = inode_pack(CLASS_OUTPUT_LINK, n->subject, (uint32_t)(first + again));
	return 0;
}

/* Few children: those of a graph's or op's own directory, and functions (sorted, but seldom many). */
static int lookup_by_walk(const struct tree *t, const struct inode *n, struct str name, uint64_t *inode)
{
	uint64_t count = graph_child_count(t, n);
	char buf[TREE_NAME_MAX + 1];
	struct str child;

	for (uint64_t k = 0; k < count; k++)
		if (graph_child(t, n, k, buf, &child, inode) && str_eq(child, name))
			return 0;
	return -ENOENT;
}

int graph_lookup(const struct tree *t, const struct inode *n, struct str name, uint64_t *inode)
{
	uint32_t graph, dir;
	struct name_entry c;

	if (op_names(t, n, &graph, &dir)) {
		if (nametree_find(t->graphs->places[graph].ops, dir, name, true, &c))
			*inode = op_dir_inode(t->graphs, graph, c.index);
		else if (nametree_find(t->graphs->places[graph].ops, dir, name, false, &c))
			*inode = inode_pack(CLASS_OP, t->model->graphs[graph].first_op + c.index, OP_SELF);
		else
			return -ENOENT;
		return 0;
	}
	if (n->class == CLASS_OP && n->sub != OP_SELF)
		return lookup_link(t, n, name, inode);
	return lookup_by_walk(t, n, name, inode);
}

/* ---- upwards ---- */

static uint64_t op_parent(const struct tree *t, uint32_t op)
{
	uint32_t graph = t->model->ops[op].graph, dir;
	struct str name;

	nametree_leaf(t->graphs->places[graph].ops, op - t->model->graphs[graph].first_op, &dir, &name);
	return op_dir_inode(t->graphs, graph, dir);
}

uint64_t graph_parent(const struct tree *t, const struct inode *n)
{
	uint32_t graph, dir;

	if (!t->graphs)
		return TREE_ROOT;
	switch (n->class) {
	case CLASS_GRAPH:
		if (n->sub != GRAPH_SELF)
			return graph_self(t, n->subject);
		graph = t->model->graphs[n->subject].parent_op;
		return graph == MODEL_NONE ? inode_pack(CLASS_GRAPH, 0, GRAPH_FUNCTIONS)
					   : inode_pack(CLASS_OP, graph, OP_SELF);
	case CLASS_OP_DIR:
		if (!op_names(t, n, &graph, &dir))
			return TREE_ROOT;
		return op_dir_inode(t->graphs, graph, nametree_parent(t->graphs->places[graph].ops, dir));
	case CLASS_OP:
		return n->sub == OP_SELF ? op_parent(t, n->subject)
					 : inode_pack(CLASS_OP, n->subject, OP_SELF);
	case CLASS_INPUT_LINK:
		return inode_pack(CLASS_OP, n->subject, OP_INPUTS);
	case CLASS_OUTPUT_LINK:
		return inode_pack(CLASS_OP, n->subject, OP_OUTPUTS);
	default:
		return TREE_ROOT;
	}
}

struct str graph_dir_name(const struct tree *t, const struct inode *n, char *buf)
{
	uint32_t graph, dir;
	struct str name = {NULL, 0};

	switch (n->class) {
	case CLASS_GRAPH:
		if (n->sub >= GRAPH_FILES)
			return str_from(views[n->sub - GRAPH_FILES]->path);
		return n->sub == GRAPH_OPS	   ? STR("ops")
		       : n->sub == GRAPH_FUNCTIONS ? STR("functions")
						   : t->graphs->places[n->subject].name;
	case CLASS_OP_DIR:
		return op_names(t, n, &graph, &dir) ? nametree_dir_name(t->graphs->places[graph].ops, dir)
						    : name;
	case CLASS_OP:
		if (n->sub >= OP_FILES)
			return str_from(views[n->sub - OP_FILES]->path);
		if (n->sub != OP_SELF)
			return n->sub == OP_INPUTS ? STR("inputs") : STR("outputs");
		graph = t->model->ops[n->subject].graph;
		nametree_leaf(t->graphs->places[graph].ops, n->subject - t->model->graphs[graph].first_op,
			&dir, &name);
		return name;
	case CLASS_INPUT_LINK:
		return input_link_name(t, n->subject, n->sub, buf);
	case CLASS_OUTPUT_LINK:
		return output_link_name(t, n->subject, n->sub, buf);
	default:
		return name;
	}
}

/* ---- link targets ---- */

static const struct view *npy_like_view(void)
{
	for (size_t v = 0; v < view_count; v++)
		if (views[v]->subject == SUBJECT_TENSOR)
			return views[v]; /* the first one listed: tensors/ */
	return NULL;
}

static char *graph_file_path(const struct tree *t, uint32_t graph, const char *file)
{
	char *dir = tree_path(t, graph_self(t, graph)), *path = NULL;

	if (dir && asprintf(&path, "%s/%s", dir, file) < 0)
		path = NULL;
	free(dir);
	return path;
}

/* Path from the root of what an input comes from. */
static char *input_target(const struct tree *t, const struct op *op, const struct edge *x)
{
	switch (x->kind) {
	case EDGE_TENSOR:
		return tree_tensor_path(t, npy_like_view(), x->index);
	case EDGE_OP:
		return tree_path(t, inode_pack(CLASS_OP, x->index, OP_SELF));
	case EDGE_INPUT:
		return graph_file_path(t, x->index, "inputs.json");
	default:
		return graph_file_path(t, op->graph, "inputs.json");
	}
}

static bool is_graph_output(const struct graph *g, struct str name)
{
	for (uint32_t k = 0; k < g->output_count; k++)
		if (str_eq(g->outputs[k].name, name))
			return true;
	return false;
}

static char *output_target(const struct tree *t, uint32_t op, uint64_t link)
{
	const struct graph_tree *g = t->graphs;
	uint32_t output, consumer = g->link_target[g->link_first[g->output_base[op]] + link];
	const struct graph *graph = &t->model->graphs[t->model->ops[op].graph];
	uint64_t again;

	if (consumer != MODEL_NONE)
		return tree_path(t, inode_pack(CLASS_OP, consumer, OP_SELF));
	output_of_link(g, op, link, &output, &again);
	if (is_graph_output(graph, t->model->ops[op].outputs[output]))
		return graph_file_path(t, t->model->ops[op].graph, "outputs.json");
	char *self = tree_path(t, inode_pack(CLASS_OP, op, OP_SELF)), *path = NULL;

	if (self && asprintf(&path, "%s/op.json", self) < 0)
		path = NULL;
	free(self);
	return path;
}

char *graph_link_target(const struct tree *t, const struct inode *link)
{
	const struct op *op = &t->model->ops[link->subject];
	char *from = tree_path(t, graph_parent(t, link));
	char *to = link->class == CLASS_INPUT_LINK ? input_target(t, op, &op->inputs[link->sub])
						   : output_target(t, link->subject, link->sub);
	char *target = NULL;
	size_t ups = 1;

	if (from && to) {
		for (const char *p = from; *p; p++)
			ups += *p == '/';
		target = malloc(ups * 3 + strlen(to) + 1);
	}
	if (target) {
		char *p = target;

		for (size_t i = 0; i < ups; i++)
			p = stpcpy(p, "../");
		strcpy(p, to);
	}
	free(from);
	free(to);
	return target;
}
