/* SPDX-License-Identifier: MIT */
/*
 * umount: ends a mount so that returning means saved. Asks the server to save, unmounts only if that worked,
 * and waits until its processes are gone. Called by umount(8) as
 *	umount.fuse.wiamodel DIR [-flnrv] [-N namespace] [-t type]
 * and as `wiamodel umount DIR`.
 */
#ifndef FS_UMOUNT_H
#define FS_UMOUNT_H

/* Exit codes: fs/exit.h. */
int umount_main(const char *program, int argc, char **argv);
/* `wiamodel commit DIR|MODEL`, `wiamodel discard DIR|MODEL`: through the mount, or, for a model whose mount died,
 * what its journal holds. argv[0] is the verb. */
int commit_main(int argc, char **argv);
int discard_main(int argc, char **argv);

#endif
