/* SPDX-License-Identifier: Apache-2.0 */
/* yyjson can read and write files by name. The pure rooms hand it bytes and never call that; here these calls fail, so that
 * libc's own, and with them imports from the host, stay out of the module. */
#include <stdio.h>

FILE *fopen(const char *restrict path, const char *restrict mode)
{
    (void)path, (void)mode;
    return NULL;
}
int fclose(FILE *file)
{
    (void)file;
    return EOF;
}
size_t fread(void *restrict bytes, size_t size, size_t count, FILE *restrict file)
{
    (void)bytes, (void)size, (void)count, (void)file;
    return 0;
}
size_t fwrite(const void *restrict bytes, size_t size, size_t count, FILE *restrict file)
{
    (void)bytes, (void)size, (void)count, (void)file;
    return 0;
}
int fseek(FILE *file, long offset, int whence)
{
    (void)file, (void)offset, (void)whence;
    return -1;
}
long ftell(FILE *file)
{
    (void)file;
    return -1;
}
