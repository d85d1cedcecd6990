/* SPDX-License-Identifier: MIT */
#include "views/view.h"

#include <errno.h>
#include <stdlib.h>

#define VIEW(symbol) extern const struct view view_##symbol;
#include "views/views.def"
#undef VIEW

#define VIEW(symbol) &view_##symbol,
const struct view *const views[] = {
#include "views/views.def"
};
#undef VIEW
const size_t view_count = sizeof(views) / sizeof(*views);

int view_text(struct extmap *out, struct json *j, struct error *e)
{
	size_t len;
	char *text = json_take(j, &len);

	if (!text)
		return error_set(e, ENOMEM, "out of memory for a text of the view");
	extmap_append_take(out, text, len);
	return extmap_failed(out, e);
}

int view_text_size(struct json *j, uint64_t *size)
{
	size_t len;
	char *text = json_take(j, &len);

	if (!text)
		return -ENOMEM;
	free(text);
	*size = len;
	return 0;
}
