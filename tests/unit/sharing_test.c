/* SPDX-License-Identifier: MIT */
#include "views/sharing.h"
#include "tests/unit/unit.h"

#include <stdlib.h>

static struct tensor tensors[6];
static struct model model = {.tensors = tensors, .tensor_count = 6};

static void set(uint32_t i, const char *name, uint32_t of)
{
	tensors[i].name = str_from(name);
	tensors[i].id = i;
	tensors[i].alias_of = of;
}

static bool shares(const struct sharing *x, uint32_t tensor, const char *names)
{
	struct sharing all = sharing_of(x, &model, tensor);
	char got[100] = "";

	for (uint32_t i = 0; i < all.count; i++)
		strncat(strncat(got, model.tensors[all.items[i].tensor].name.ptr, 10), " ", 2);
	if (strcmp(got, names) != 0)
		printf("%u: %s\n", tensor, got);
	return strcmp(got, names) == 0;
}

int main(void)
{
	struct sharing x, y;

	for (uint32_t i = 0; i < 6; i++)
		set(i, "none", MODEL_NONE);
	CHECK(sharing_init(&x, &model) == 0 && x.count == 0 && shares(&x, 0, ""));
	sharing_release(&x);

	/* two storages; the names in another order than the tensors */
	set(0, "z", MODEL_NONE);
	set(1, "m", MODEL_NONE);
	set(2, "a", 0);
	set(3, "alone", MODEL_NONE);
	set(4, "k", 1);
	set(5, "b", 0);
	CHECK(sharing_init(&x, &model) == 0 && x.count == 5);
	CHECK(shares(&x, 0, "a b z ") && shares(&x, 2, "a b z ") && shares(&x, 5, "a b z "));
	CHECK(shares(&x, 1, "k m ") && shares(&x, 4, "k m ") && shares(&x, 3, ""));

	CHECK(sharing_init(&y, &model) == 0 && sharing_equal(&x, &model, &y, &model));
	sharing_release(&y);
	struct tensor other[6];
	struct model changed = {.tensors = other, .tensor_count = 6};

	memcpy(other, tensors, sizeof(other));
	other[5].name = STR("c");
	CHECK(sharing_init(&y, &changed) == 0 && !sharing_equal(&x, &model, &y, &changed)); /* renamed */
	sharing_release(&y);
	other[5] = tensors[5];
	other[5].alias_of = 1;
	CHECK(sharing_init(&y, &changed) == 0 && !sharing_equal(&x, &model, &y, &changed)); /* moved */
	sharing_release(&y);
	other[5].alias_of = MODEL_NONE;
	CHECK(sharing_init(&y, &changed) == 0 && !sharing_equal(&x, &model, &y, &changed)); /* parted */
	sharing_release(&y);
	sharing_release(&x);
	return unit_done("sharing");
}
