/* SPDX-License-Identifier: MIT */
/*
 * mountpoint: the directory a model is mounted on; mount and umount as root by system call, as an ordinary
 * user through fusermount3. Runs outside the sandbox and never looks at the model.
 */
#ifndef FS_MOUNTPOINT_H
#define FS_MOUNTPOINT_H

#include "fs/options.h"

/* Whether something can be mounted there; *real is the absolute path, heap. */
int mountpoint_check(const char *dir, bool nonempty, char **real, struct error *e);
/* Mounts; *fd is the /dev/fuse descriptor that serves it. */
int mountpoint_mount(const char *dir, const struct options *o, bool read_only, int *fd,
	struct error *e);
/* -EBUSY when in use and not lazy. */
int mountpoint_unmount(const char *dir, bool lazy, bool force, struct error *e);

/*
 * For root umount(8) takes a short way, on which it never learns the type of a mount and so runs no helper; nothing would
 * save before unmounting, nor wait. Unless its table (/run/mount/utab) has a record of the mount. Both are
 * nothing for other users.
 */
bool mountpoint_record(const char *dir, const struct options *o);
void mountpoint_forget(const char *dir);

struct mount_line {
	char device[32]; /* "0:57" */
	char type[64];
	char options[512]; /* of the super block */
};

/* The topmost mount on exactly this directory, from /proc/self/mountinfo. */
bool mountpoint_find(const char *dir, struct mount_line *out);
/* Bigger read-ahead than the kernel's 128 KiB; only root may. */
void mountpoint_read_ahead(const char *device, unsigned kib);

#endif
