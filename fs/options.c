/* SPDX-License-Identifier: MIT */
#include "fs/options.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>

enum option_kind {
	OPT_TRUE,    /* bool at offset */
	OPT_FALSE,
	OPT_STRING,
	OPT_NUMBER,  /* uint32_t */
	OPT_OCTAL,
	OPT_STEP,    /* int64_t */
	OPT_SET,     /* MS_ flag */
	OPT_CLEAR,
	OPT_IGNORE,  /* of mount(8); not ours to act on */
};

struct option_row {
	const char *name;
	char letter;   /* also -X; 0 = none */
	enum option_kind kind;
	size_t offset; /* in struct options; for OPT_SET and OPT_CLEAR the flag */
	const char *arg;
	const char *help; /* NULL: not shown */
};

#define AT(member) offsetof(struct options, member)

static const struct option_row rows[] = {
	{"ro", 'r', OPT_TRUE, AT(workspace.read_only), NULL, "read-only"},
	/* mount(8) says rw whenever nobody says ro, so it cannot be a demand */
	{"rw", 'w', OPT_FALSE, AT(workspace.read_only), NULL, "writable where the model is (default)"},
	{"views", 0, OPT_STRING, AT(views), "LIST", "top-level views to list, e.g. tensors:graph"},
	{"npy", 0, OPT_STRING, AT(npy), "bits|real",
		"how .npy shows types that NumPy lacks: their bits, or widened (default)"},
	{"format", 0, OPT_STRING, AT(format), "NAME", "take the model for this format"},
	{"step", 0, OPT_STEP, AT(workspace.step), "N", "which step of a checkpoint folder (default: newest)"},
	{"to", 0, OPT_STRING, AT(to), "FORMAT", "save in this format; needs out="},
	{"out", 0, OPT_STRING, AT(out), "FILE", "save there; the model itself is never touched"},
	{"lossy", 0, OPT_TRUE, AT(workspace.lossy), NULL, "saving may drop what the target format cannot hold"},
	{"inplace", 0, OPT_TRUE, AT(workspace.inplace), NULL,
		"patch the file itself where only bytes of equal size changed"},
	{"verify", 0, OPT_TRUE, AT(workspace.verify), NULL, "after saving compare all content, not only what was edited"},
	{"force", 0, OPT_TRUE, AT(workspace.force), NULL, "save even if the file was changed by others since"},
	{"recover", 0, OPT_TRUE, AT(workspace.recover), NULL, "take up the edits an earlier mount left behind"},
	{"discard", 0, OPT_TRUE, AT(workspace.discard), NULL, "drop the edits an earlier mount left behind"},
	{"allow_other", 0, OPT_TRUE, AT(allow_other), NULL, "other users may look in, as far as the modes allow"},
	{"uid", 0, OPT_NUMBER, AT(uid), "N", "owner to show (default: the model file's)"},
	{"gid", 0, OPT_NUMBER, AT(gid), "N", "group to show"},
	{"umask", 0, OPT_OCTAL, AT(umask), "MASK", "permission bits nobody has, octal (default: the model file's)"},
	{"fsname", 0, OPT_STRING, AT(fsname), "NAME", "source to show in mount tables (default: the model's path)"},
	{"nonempty", 0, OPT_TRUE, AT(nonempty), NULL, "mount over a directory that is not empty"},
	{"timeout", 0, OPT_NUMBER, AT(timeout), "SECONDS", "give up when reading the model takes longer"},
	{"child_time", 0, OPT_NUMBER, AT(child_time), "SECONDS",
		"for a library that reads the model in a child of its own (default: 10)"},
	{"child_memory", 0, OPT_NUMBER, AT(child_memory), "MIB", "memory for it (default: 512)"},
	{"foreground", 'f', OPT_TRUE, AT(foreground), NULL, "stay in the foreground"},
	{"debug", 'd', OPT_TRUE, AT(debug), NULL, "show every request; implies -f"},
	{"single", 's', OPT_TRUE, AT(single), NULL, "serve with one thread"},
	{"verbose", 'v', OPT_TRUE, AT(verbose), NULL, "say more"},
	{"log_file", 0, OPT_STRING, AT(log_file), "FILE", "messages go there instead of to syslog"},
	{"help", 'h', OPT_TRUE, AT(help), NULL, "this text"},
	{"version", 'V', OPT_TRUE, AT(version), NULL, "versions of wiamodel and its libraries"},
	{"nosuid", 0, OPT_SET, MS_NOSUID, NULL, NULL},
	{"nodev", 0, OPT_SET, MS_NODEV, NULL, NULL},
	{"noexec", 0, OPT_SET, MS_NOEXEC, NULL, NULL},
	{"exec", 0, OPT_CLEAR, MS_NOEXEC, NULL, NULL},
	{"noatime", 0, OPT_SET, MS_NOATIME, NULL, NULL},
	{"atime", 0, OPT_CLEAR, MS_NOATIME, NULL, NULL},
	{"nodiratime", 0, OPT_SET, MS_NODIRATIME, NULL, NULL},
	{"relatime", 0, OPT_SET, MS_RELATIME, NULL, NULL},
	{"sync", 0, OPT_SET, MS_SYNCHRONOUS, NULL, NULL},
	{"dirsync", 0, OPT_SET, MS_DIRSYNC, NULL, NULL},
	/* a mount of a user's file never honours them, whatever is asked */
	{"suid", 0, OPT_IGNORE, 0, NULL, NULL},
	{"dev", 0, OPT_IGNORE, 0, NULL, NULL},
	{"defaults", 0, OPT_IGNORE, 0, NULL, NULL},
	{"auto", 0, OPT_IGNORE, 0, NULL, NULL},
	{"noauto", 0, OPT_IGNORE, 0, NULL, NULL},
	{"user", 0, OPT_IGNORE, 0, NULL, NULL},
	{"nouser", 0, OPT_IGNORE, 0, NULL, NULL},
	{"users", 0, OPT_IGNORE, 0, NULL, NULL},
	{"owner", 0, OPT_IGNORE, 0, NULL, NULL},
	{"group", 0, OPT_IGNORE, 0, NULL, NULL},
	{"nofail", 0, OPT_IGNORE, 0, NULL, NULL},
	{"_netdev", 0, OPT_IGNORE, 0, NULL, NULL},
	{"async", 0, OPT_IGNORE, 0, NULL, NULL},
	{"norelatime", 0, OPT_IGNORE, 0, NULL, NULL},
	{"strictatime", 0, OPT_IGNORE, 0, NULL, NULL},
	{"lazytime", 0, OPT_IGNORE, 0, NULL, NULL},
	{"diratime", 0, OPT_IGNORE, 0, NULL, NULL},
	{"default_permissions", 0, OPT_IGNORE, 0, NULL, NULL}, /* set with allow_other */
};

#define ROW_COUNT (sizeof(rows) / sizeof(*rows))

/* '-' and '_' are the same, as in --log-file and -o log_file */
static bool name_matches(const char *name, const char *given, size_t len)
{
	if (strlen(name) != len)
		return false;
	for (size_t i = 0; i < len; i++)
		if (name[i] != given[i] && !(i > 0 && name[i] == '_' && given[i] == '-'))
			return false;
	return true;
}

static const struct option_row *row_by_name(const char *given, size_t len)
{
	for (size_t i = 0; i < ROW_COUNT; i++)
		if (name_matches(rows[i].name, given, len))
			return &rows[i];
	return NULL;
}

static const struct option_row *row_by_letter(char letter)
{
	for (size_t i = 0; letter && i < ROW_COUNT; i++)
		if (rows[i].letter == letter)
			return &rows[i];
	return NULL;
}

static int set_number(const struct option_row *row, const char *value, void *at, struct error *e)
{
	int base = row->kind == OPT_OCTAL ? 8 : 10;
	unsigned long long max = row->kind == OPT_STEP ? INT64_MAX
		: row->kind == OPT_OCTAL               ? 07777
							: UINT32_MAX - 1;
	char *end;
	unsigned long long n;

	errno = 0;
	n = strtoull(value, &end, base);
	if (!*value || strchr("+- \t", *value) || *end || errno || n > max)
		return error_set(e, EINVAL, "option '%s': expected %s, found '%s'", row->name,
			base == 8 ? "an octal mask" : "a number", value);
	if (row->kind == OPT_STEP)
		*(int64_t *)at = (int64_t)n;
	else
		*(uint32_t *)at = (uint32_t)n;
	return 0;
}

/* value NULL = none given */
static int set_option(struct options *o, const struct option_row *row, const char *value,
	struct error *e)
{
	void *at = (char *)o + row->offset;

	if (row->arg && !value)
		return error_set(e, EINVAL, "option '%s' needs a value: %s=%s", row->name, row->name,
			row->arg);
	if (!row->arg && value && row->kind != OPT_IGNORE)
		return error_set(e, EINVAL, "option '%s' takes no value, found '%s'", row->name, value);
	switch (row->kind) {
	case OPT_TRUE:
	case OPT_FALSE:
		*(bool *)at = row->kind == OPT_TRUE;
		return 0;
	case OPT_STRING:
		free(*(char **)at);
		*(char **)at = strdup(value);
		return *(char **)at ? 0 : error_set(e, ENOMEM, "out of memory");
	case OPT_NUMBER:
	case OPT_OCTAL:
	case OPT_STEP:
		return set_number(row, value, at, e);
	case OPT_SET:
		o->mount_flags |= (unsigned long)row->offset;
		return 0;
	case OPT_CLEAR:
		o->mount_flags &= ~(unsigned long)row->offset;
		return 0;
	case OPT_IGNORE:
		return 0;
	}
	return 0;
}

static bool is_foreign(const char *name, size_t len)
{
	return (len > 2 && name[0] == 'x' && (name[1] == '-' || name[1] == '.')) ||
	       (len > 2 && name[0] == 'X' && name[1] == '-') ||
	       (len >= 8 && strncmp(name, "comment=", 8) == 0);
}

/* One "name" or "name=value", already without quotes. */
static int set_pair(struct options *o, char *pair, struct error *e)
{
	char *value = strchr(pair, '=');
	size_t len = value ? (size_t)(value - pair) : strlen(pair);
	const struct option_row *row;

	if (!*pair || is_foreign(pair, strlen(pair)))
		return 0;
	row = row_by_name(pair, len);
	if (!row)
		return error_set(e, EINVAL, "unknown option '%.*s'", (int)(len < 100 ? len : 100), pair);
	return set_option(o, row, value ? value + 1 : NULL, e);
}

/* Splits at commas, honouring "\," and double quotes; works in a copy. */
static int set_list(struct options *o, const char *list, struct error *e)
{
	char *copy = malloc(strlen(list) + 1);
	char *out = copy, *start = copy;
	bool quoted = false;
	int r = 0;

	if (!copy)
		return error_set(e, ENOMEM, "out of memory");
	for (const char *p = list; r == 0; p++) {
		if (*p == '\\' && p[1]) {
			*out++ = *++p;
		} else if (*p == '"') {
			quoted = !quoted;
		} else if (!*p || (*p == ',' && !quoted)) {
			*out = 0;
			r = set_pair(o, start, e);
			out = start = copy; /* what is done may be overwritten */
			if (!*p)
				break;
		} else {
			*out++ = *p;
		}
	}
	free(copy);
	return r;
}

static int set_operand(struct options *o, const char *arg, struct error *e)
{
	char **at = !o->model ? &o->model : &o->dir;

	if (o->dir)
		return error_set(e, EINVAL, "too many arguments: '%s'; expected MODEL DIR", arg);
	*at = strdup(arg);
	return *at ? 0 : error_set(e, ENOMEM, "out of memory");
}

/* "-o LIST", "-oLIST", "-sfv", "-t TYPE". *i moves over a separate argument. */
static int set_letters(struct options *o, int argc, char **argv, int *i, struct error *e)
{
	int r = 0;

	for (const char *p = argv[*i] + 1; *p && r == 0; p++) {
		const struct option_row *row = row_by_letter(*p);
		const char *value = NULL;

		if (strchr("otN", *p)) {
			value = p[1] ? p + 1 : *i + 1 < argc ? argv[++*i] : NULL;
			if (!value)
				return error_set(e, EINVAL, "option '-%c' needs a value", *p);
			return *p == 'o' ? set_list(o, value, e) : 0;
		}
		if (*p == 'n') /* no mtab: nobody has one */
			continue;
		if (!row)
			return error_set(e, EINVAL, "unknown option '-%c'", *p);
		r = set_option(o, row, NULL, e);
	}
	return r;
}

static int set_long(struct options *o, int argc, char **argv, int *i, struct error *e)
{
	const char *given = argv[*i] + 2;
	size_t len = strcspn(given, "=");
	const struct option_row *row = row_by_name(given, len);
	const char *value = given[len] ? given + len + 1 : NULL;

	if (!row)
		return error_set(e, EINVAL, "unknown option '--%.100s'", given);
	if (row->arg && !value && *i + 1 < argc)
		value = argv[++*i];
	return set_option(o, row, value, e);
}

static int finish(struct options *o, struct error *e)
{
	struct workspace_options *w = &o->workspace;

	if (o->help || o->version)
		return 0;
	if (!o->model || !o->dir)
		return error_set(e, EINVAL, "expected MODEL DIR; try --help");
	if (w->recover && w->discard)
		return error_set(e, EINVAL, "options 'recover' and 'discard' contradict each other");
	if (o->npy && strcmp(o->npy, "bits") != 0 && strcmp(o->npy, "real") != 0)
		return error_set(e, EINVAL, "option 'npy': expected bits or real, found '%s'", o->npy);
	if (o->to && !o->out)
		return error_set(e, EINVAL, "option 'to' needs 'out=FILE'");
	for (char *p = o->views; p && *p; p++)
		if (*p == ':' || *p == '+')
			*p = ',';
	w->tree.view.npy_bits = o->npy && strcmp(o->npy, "bits") == 0;
	w->tree.view.npy_real = o->npy && strcmp(o->npy, "real") == 0;
	w->tree.view.lossy = w->lossy;
	w->tree.views = o->views;
	w->format = o->format;
	w->to = o->to;
	w->out = o->out;
	if (o->debug)
		o->foreground = true;
	return 0;
}

int options_parse(struct options *o, int argc, char **argv, struct error *e)
{
	bool operands_only = false;
	int r = 0;

	*o = (struct options){.uid = OPTION_UNSET, .gid = OPTION_UNSET, .umask = OPTION_UNSET};
	o->workspace.step = -1;
	o->mount_flags = MS_NOSUID | MS_NODEV;
	for (int i = 1; i < argc && r == 0; i++) {
		if (operands_only || argv[i][0] != '-' || !argv[i][1])
			r = set_operand(o, argv[i], e);
		else if (strcmp(argv[i], "--") == 0)
			operands_only = true;
		else if (argv[i][1] == '-')
			r = set_long(o, argc, argv, &i, e);
		else
			r = set_letters(o, argc, argv, &i, e);
	}
	return r < 0 ? r : finish(o, e);
}

void options_release(struct options *o)
{
	char **strings[] = {&o->model, &o->dir, &o->format, &o->to, &o->out, &o->views, &o->npy,
		&o->fsname, &o->log_file};

	for (size_t i = 0; i < sizeof(strings) / sizeof(*strings); i++) {
		free(*strings[i]);
		*strings[i] = NULL;
	}
}

void options_help(void)
{
	puts("usage: mount.wiamodel [OPTION]... MODEL DIR\n"
	     "       mount -t wiamodel [-o OPTIONS] MODEL DIR\n"
	     "Shows a machine-learning model as a directory. Each option may be given as --NAME or\n"
	     "in a comma list after -o, as in: -o ro,views=tensors:raw\n");
	for (size_t i = 0; i < ROW_COUNT; i++) {
		const struct option_row *row = &rows[i];
		char left[48], letter[5] = "    ";

		if (!row->help)
			continue;
		if (row->letter)
			snprintf(letter, sizeof(letter), "-%c, ", row->letter);
		snprintf(left, sizeof(left), "%s--%s%s%s", letter, row->name, row->arg ? "=" : "",
			row->arg ? row->arg : "");
		printf("  %-24s %s\n", left, row->help);
	}
	puts("\nOptions of mount(8) such as nosuid, noexec, noatime, defaults, user, noauto and x-* are\n"
	     "taken too. Exit codes: 0 mounted, 1 system error, 2 usage, 3 model unreadable or refused,\n"
	     "4 cannot mount. Unmount with umount(8), `wiamodel umount` or fusermount3 -u.");
}
