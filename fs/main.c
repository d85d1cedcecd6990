/* SPDX-License-Identifier: MIT */
/* One program under several names: what it is called, or the first word, says what to do. */
#include "fs/cli/cli.h"
#include "fs/launch.h"
#include "fs/umount.h"

#include <string.h>

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

int main(int argc, char **argv)
{
	const char *name = base_name(argc > 0 ? argv[0] : "wiamodel");

	if (strncmp(name, "mount.", 6) == 0)
		return mount_main(name, argc, argv);
	if (strncmp(name, "umount.", 7) == 0)
		return umount_main("umount", argc, argv);
	if (argc > 1 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)) {
		options_version();
		return 0;
	}
	return cli_main(argc, argv);
}
