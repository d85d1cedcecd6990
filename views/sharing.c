/* SPDX-License-Identifier: MIT */
#include "views/sharing.h"

#include <errno.h>
#include <stdlib.h>

struct keyed {
	struct sharer sharer;
	struct str name;
};

static int compare(const void *px, const void *py)
{
	const struct keyed *x = px, *y = py;
	int c = (x->sharer.root > y->sharer.root) - (x->sharer.root < y->sharer.root);

	if (!c)
		c = str_cmp(x->name, y->name);
	return c ? c : (x->sharer.tensor > y->sharer.tensor) - (x->sharer.tensor < y->sharer.tensor);
}

static struct keyed keyed(const struct model *m, uint32_t root, uint32_t tensor)
{
	return (struct keyed){{root, tensor}, m->tensors[tensor].name};
}

int sharing_init(struct sharing *x, const struct model *m)
{
	struct keyed *all;
	bool *is_root;
	uint32_t n = 0;

	*x = (struct sharing){0};
	for (uint32_t i = 0; i < m->tensor_count; i++)
		n += m->tensors[i].alias_of != MODEL_NONE;
	if (!n)
		return 0;
	all = calloc((size_t)n * 2, sizeof(*all));
	is_root = calloc(m->tensor_count, sizeof(*is_root));
	x->items = calloc((size_t)n * 2, sizeof(*x->items));
	n = 0;
	for (uint32_t i = 0; all && is_root && i < m->tensor_count; i++) {
		uint32_t root = m->tensors[i].alias_of;

		if (root >= m->tensor_count)
			continue;
		all[n++] = keyed(m, root, i);
		if (!is_root[root])
			all[n++] = keyed(m, root, root);
		is_root[root] = true;
	}
	if (all && is_root && x->items) {
		qsort(all, n, sizeof(*all), compare);
		for (uint32_t i = 0; i < n; i++)
			x->items[i] = all[i].sharer;
		x->count = n;
	} else {
		sharing_release(x);
	}
	free(all);
	free(is_root);
	return x->items ? 0 : -ENOMEM;
}

void sharing_release(struct sharing *x)
{
	free(x->items);
	*x = (struct sharing){0};
}

/* The first item whose root is not less. */
static uint32_t find(const struct sharing *x, uint64_t root)
{
	uint32_t low = 0, high = x->count;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (x->items[mid].root < root)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

struct sharing sharing_of(const struct sharing *x, const struct model *m, uint32_t tensor)
{
	uint32_t of = m->tensors[tensor].alias_of, root = of == MODEL_NONE ? tensor : of;
	uint32_t begin = find(x, root), end = find(x, (uint64_t)root + 1);

	return (struct sharing){begin < end ? x->items + begin : NULL, end - begin};
}

bool sharing_equal(const struct sharing *x, const struct model *mx, const struct sharing *y, const struct model *my)
{
	if (x->count != y->count)
		return false;
	for (uint32_t i = 0; i < x->count; i++) {
		const struct tensor *a = &mx->tensors[x->items[i].tensor], *b = &my->tensors[y->items[i].tensor];

		if (a->id != b->id || !str_eq(a->name, b->name) ||
			mx->tensors[x->items[i].root].id != my->tensors[y->items[i].root].id)
			return false;
	}
	return true;
}
