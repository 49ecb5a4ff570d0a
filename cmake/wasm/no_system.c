/* SPDX-License-Identifier: Apache-2.0 */
/* yyjson can read files by name. Nobody calls that; here it fails, so that libc's own, and with it imports from the
 * host, stay out of the module. */
#include <stdio.h>

/* Nothing registers destructors. Without this the linker takes libc's, with exit and every system call behind it. */
void __wasm_call_dtors(void);
void __wasm_call_dtors(void) {}

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
