/* SPDX-License-Identifier: MIT */
/* The subcommands that have to do with a mount: four names for what fs/launch.h and fs/umount.h do. */
#include "fs/cli/cli.h"
#include "fs/launch.h"
#include "fs/umount.h"

static int mount_run(int argc, char **argv)
{
	return mount_main("wiamodel mount", argc, argv);
}

static int umount_run(int argc, char **argv)
{
	return umount_main("wiamodel umount", argc, argv);
}

const struct command command_mount = {
	.name = "mount",
	.synopsis = "[-o OPTIONS] MODEL DIR",
	.summary = "show a model as a directory; `wiamodel mount --help` lists the options",
	.run = mount_run,
};

const struct command command_umount = {
	.name = "umount",
	.synopsis = "[-l] [-f] [-v] DIR",
	.summary = "save, then unmount",
	.run = umount_run,
};

const struct command command_commit = {
	.name = "commit",
	.synopsis = "DIR|MODEL",
	.summary = "save what was edited in a mount, or what a dead mount left behind",
	.run = commit_main,
};

const struct command command_discard = {
	.name = "discard",
	.synopsis = "DIR|MODEL",
	.summary = "drop it",
	.run = discard_main,
};
