/* SPDX-License-Identifier: MIT */
/* What to do with the edits that an earlier mount left in the journal. */
#include "fs/workspace_private.h"

#include <errno.h>

static bool keep_none(void *arg, const char *name)
{
	(void)arg, (void)name;
	return false;
}

static int drop(struct workspace *w, struct error *e)
{
	struct journal_identity identity;
	int r = workspace_identify(tree_model(w->tree), &identity, e);

	if (r == 0)
		r = journal_reset(w->journal, &identity, e);
	if (r == 0)
		journal_sweep(w->journal, keep_none, NULL);
	return r;
}

int replay_journal(struct workspace *w, struct error *e)
{
	uint64_t count = journal_count(w->journal);

	if (count == 0 || w->o.discard)
		return drop(w, e);
	return error_set(e, EBUSY, "%llu edits of an earlier mount are not saved: -o discard drops them",
		(unsigned long long)count);
}
