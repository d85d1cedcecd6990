/* SPDX-License-Identifier: MIT */
#include <stdio.h>

int main(void)
{
	puts("wiamodel " WIAMODEL_VERSION);
	return 0;
}
