/* SPDX-License-Identifier: MIT */
/* Exit codes of mounting and unmounting, as mount.wiamodel(8) lists them. */
#ifndef FS_EXIT_H
#define FS_EXIT_H

enum {
	EXIT_OK = 0,
	EXIT_SYSTEM = 1, /* out of memory, cannot fork, cannot open the log file */
	EXIT_USAGE = 2,
	EXIT_MODEL = 3,  /* the model cannot be read, or was refused */
	EXIT_MOUNT = 4,  /* the model is good, but could not be mounted */
	EXIT_UMOUNT = 32, /* saving or unmounting failed; still mounted (the code umount(8) uses) */
};

#endif
