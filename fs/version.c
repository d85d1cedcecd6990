/* SPDX-License-Identifier: MIT */
#include "fs/options.h"

#include <stdio.h>

/* Declared by hand: each library's header belongs to the one file that uses the library, and these
 * few have been the same in all their versions. */
extern const char *fuse_pkgversion(void);
extern const char *protobuf_c_version(void);
extern const char *jansson_version_str(void);
extern const char *zlibVersion(void);
extern const char *OpenSSL_version(int what);
extern int H5get_libversion(unsigned *major, unsigned *minor, unsigned *release);
struct scmp_version {
	unsigned major, minor, micro;
};
extern const struct scmp_version *seccomp_version(void);

void options_version(void)
{
	const struct scmp_version *seccomp = seccomp_version();
	unsigned major = 0, minor = 0, release = 0;

	H5get_libversion(&major, &minor, &release);
	printf("wiamodel %s\n", WIAMODEL_VERSION);
	printf("libfuse %s, protobuf-c %s, jansson %s, zlib %s, libseccomp %u.%u.%u, HDF5 %u.%u.%u, %s\n", fuse_pkgversion(),
		protobuf_c_version(), jansson_version_str(), zlibVersion(), seccomp->major, seccomp->minor, seccomp->micro,
		major, minor, release, OpenSSL_version(0));
}
