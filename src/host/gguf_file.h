/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a GGUF model, open as ports for knot/gguf.h: one, or all parts of a split one. */
#ifndef COBORD_HOST_GGUF_FILE_H
#define COBORD_HOST_GGUF_FILE_H

#include "knot/gguf.h"

typedef struct GgufFile {
    int descriptor;
    char *path;
} GgufFile;

typedef struct GgufFiles {
    GgufFile *files;
    CursorPort *ports;
    uint32_t count;
} GgufFiles;

/* For "..-00001-of-0000N.gguf" all N. Errors  ERR_NOT_FOUND, ERR_IO, ERR_FORMAT (a directory, a
 * pipe), ERR_USAGE for another part than the first, ERR_TOO_LARGE, ERR_MEMORY. Owner
 * gguf_file_close, also after an error. */
MUST_CHECK Error gguf_file_open(const char *path, GgufFiles *out, Why *why);
void gguf_file_close(GgufFiles *files);

/* The beginning of a string key, NUL-terminated, at most out_bytes - 1 bytes; NULs in it become
 * '?'. Result  its length; 0 also when it cannot be read. */
size_t gguf_file_text(const Gguf *gguf, const GgufKey *key, char *out, size_t out_bytes);

#endif
