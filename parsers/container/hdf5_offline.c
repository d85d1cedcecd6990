/* SPDX-License-Identifier: MIT */
/*
 * HDF5 can read files from the network through libcurl. Files here are local and nobody vouches for them, and loading
 * libcurl with all that it needs takes longer than mounting a model: where HDF5 is linked from its archive, what
 * it calls of libcurl ends here, and says no.
 */
#include <stddef.h>

int curl_global_init(long flags);
void curl_global_cleanup(void);
void *curl_easy_init(void);
void curl_easy_cleanup(void *handle);
int curl_easy_setopt(void *handle, int option, ...);
int curl_easy_perform(void *handle);
int curl_easy_getinfo(void *handle, int info, ...);
const char *curl_easy_strerror(int code);
void *curl_slist_append(void *list, const char *text);
void curl_slist_free_all(void *list);

#define FAILED_INIT 2

int curl_global_init(long flags)
{
	(void)flags;
	return FAILED_INIT;
}

void curl_global_cleanup(void)
{
}

void *curl_easy_init(void)
{
	return NULL;
}

void curl_easy_cleanup(void *handle)
{
	(void)handle;
}

int curl_easy_setopt(void *handle, int option, ...)
{
	(void)handle;
	(void)option;
	return FAILED_INIT;
}

int curl_easy_perform(void *handle)
{
	(void)handle;
	return FAILED_INIT;
}

int curl_easy_getinfo(void *handle, int info, ...)
{
	(void)handle;
	(void)info;
	return FAILED_INIT;
}

const char *curl_easy_strerror(int code)
{
	(void)code;
	return "there is no network";
}

void *curl_slist_append(void *list, const char *text)
{
	(void)list;
	(void)text;
	return NULL;
}

void curl_slist_free_all(void *list)
{
	(void)list;
}
