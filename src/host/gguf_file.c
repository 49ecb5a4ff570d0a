/* SPDX-License-Identifier: Apache-2.0 */
#include "host/gguf_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/file_reader.h"

static Error gguf_file_read(void *file, uint64_t offset, void *out, size_t bytes, Why *why)
{
    const GgufFile *f = file;
    return file_reader_read(f->descriptor, f->path, offset, out, bytes, why);
}

static Error gguf_file_open_one(GgufFiles *files, char *path, Why *why)
{
    GgufFile *f = &files->files[files->count];
    struct stat st;
    *f = (GgufFile){-1, path};
    if (!path) return error_why(why, ERR_MEMORY, "a file name");
    CursorPort *port = &files->ports[files->count++];
    *port = (CursorPort){gguf_file_read, f, 0};
    TRY(file_reader_open(path, "a GGUF file", &f->descriptor, &st, why));
    port->file_bytes = (uint64_t)st.st_size;
    (void)posix_fadvise(f->descriptor, 0, 0, POSIX_FADV_SEQUENTIAL);
    return OK;
}

static char *gguf_file_part(const char *path, uint32_t part, uint32_t parts)
{
    size_t bytes = strlen(path);
    char *out = malloc(bytes + 32);
    if (out)
        (void)snprintf(out, bytes + 32, "%.*s-%05u-of-%05u.gguf", (int)(bytes - GGUF_SPLIT_BYTES),
                       path, part, parts);
    return out;
}

Error gguf_file_open(const char *path, GgufFiles *files, Why *why)
{
    uint32_t part = 1, parts = 1;
    *files = (GgufFiles){NULL, NULL, 0};
    bool split = gguf_split_name(path, strlen(path), &part, &parts);
    if (parts > GGUF_FILES_MAX) return error_why(why, ERR_TOO_LARGE, "a model in %u files", parts);
    if (part != 1)
        return error_why(
            why, ERR_USAGE,
            "this is part %u of %u: give the first part, the others are found beside it.", part,
            parts);
    *files = (GgufFiles){calloc(parts, sizeof(GgufFile)), calloc(parts, sizeof(CursorPort)), 0};
    if (!files->files || !files->ports) return error_why(why, ERR_MEMORY, "%u files", parts);
    for (uint32_t i = 1; i <= parts; i++)
        TRY(gguf_file_open_one(files, split ? gguf_file_part(path, i, parts) : strdup(path), why));
    return OK;
}

void gguf_file_close(GgufFiles *files)
{
    for (uint32_t i = 0; i < files->count; i++) {
        if (files->files[i].descriptor >= 0) (void)close(files->files[i].descriptor);
        free(files->files[i].path);
    }
    free(files->files);
    free(files->ports);
}

size_t gguf_file_text(const Gguf *g, const GgufKey *key, char *out, size_t out_bytes)
{
    size_t bytes = key->bytes < out_bytes ? (size_t)key->bytes : out_bytes - 1;
    if (g->files[0].read(g->files[0].file, key->offset, out, bytes, NULL) != OK) bytes = 0;
    for (size_t i = 0; i < bytes; i++)
        if (out[i] == '\0') out[i] = '?';
    out[bytes] = '\0';
    return bytes;
}
