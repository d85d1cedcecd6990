/* SPDX-License-Identifier: MIT */
#include "fs/options.h"

#include <stdio.h>

/* Declared by hand: each library's header belongs to the one file that uses the library, and these
 * few have been the same in all their versions. */
extern const char *fuse_pkgversion(void);
extern const char *protobuf_c_version(void);
extern const char *zip_libzip_version(void);
extern const char *msgpack_version(void);
extern const char *jansson_version_str(void);
extern const char *zlibVersion(void);
extern const char *ZSTD_versionString(void);
extern const char *blosc_get_version_string(void);
extern const char *OpenSSL_version(int what);
extern int H5get_libversion(unsigned *major, unsigned *minor, unsigned *release);

void options_version(void)
{
	unsigned h5[3] = {0};

	H5get_libversion(&h5[0], &h5[1], &h5[2]);
	printf("wiamodel %s\n", WIAMODEL_VERSION);
	printf("libfuse %s, protobuf-c %s, hdf5 %u.%u.%u, libzip %s, msgpack %s, jansson %s,\n",
		fuse_pkgversion(), protobuf_c_version(), h5[0], h5[1], h5[2], zip_libzip_version(),
		msgpack_version(), jansson_version_str());
	printf("zlib %s, zstd %s, blosc %s, %s\n", zlibVersion(), ZSTD_versionString(),
		blosc_get_version_string(), OpenSSL_version(0));
}
