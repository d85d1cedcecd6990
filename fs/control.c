/* SPDX-License-Identifier: MIT */
#include "fs/control.h"
#include "fs/log.h"

#include <errno.h>
#include <stdio.h>

bool control_is(unsigned command, size_t out_size)
{
	return out_size == sizeof(struct control) &&
	       (command == CONTROL_STATUS || command == CONTROL_COMMIT || command == CONTROL_DISCARD);
}

void control_answer(struct workspace *w, unsigned command, struct control *c)
{
	struct error e = {0};
	int r = 0;

	if (command == CONTROL_COMMIT)
		r = workspace_commit(w, &e);
	else if (command == CONTROL_DISCARD)
		r = workspace_discard(w, &e);
	if (r < 0)
		error_set(&e, -r, "%s", strerror(-r));
	c->code = r < 0 ? (uint32_t)-r : 0;
	c->dirty = workspace_is_dirty(w);
	snprintf(c->text, sizeof(c->text), "%s", r < 0 ? e.text : "");
	if (r < 0) {
		log_error("%s", c->text);
		workspace_report(w, 0, &e);
	}
}
