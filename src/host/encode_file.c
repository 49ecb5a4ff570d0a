/* SPDX-License-Identifier: Apache-2.0 */
#include "host/encode_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/encode_loop.h"
#include "host/pool.h"
#include "host/stop.h"
#include "knot/gguf_model.h"
#include "knot/gguf_vocab.h"

enum { ARENA_BYTES = 56 << 20 };

/* --- input files --- */

typedef struct EncodeFile {
    int descriptor;
    char *path;
} EncodeFile;

typedef struct EncodeFiles {
    EncodeFile *files;
    CursorPort *ports;
    uint32_t count;
} EncodeFiles;

static Error encode_file_read(void *file, uint64_t offset, void *out, size_t bytes, Why *why)
{
    EncodeFile *f = file;
    for (uint8_t *to = out; bytes;) {
        ssize_t n = pread(f->descriptor, to, bytes, (off_t)offset);
        if (n < 0 && errno == EINTR) {
            if (stop_asked()) return error_why(why, ERR_CANCELLED, "reading %s", f->path);
            continue;
        }
        if (n < 0) return error_why(why, ERR_IO, "cannot read %s: %s", f->path, strerror(errno));
        if (n == 0) return error_why(why, ERR_TRUNCATED, "%s became shorter while it was read", f->path);
        to += n;
        bytes -= (size_t)n;
        offset += (uint64_t)n;
    }
    return OK;
}

static Error encode_file_open_one(EncodeFiles *files, char *path, Why *why)
{
    EncodeFile *f = &files->files[files->count];
    struct stat st;
    *f = (EncodeFile){-1, path};
    if (!path) return error_why(why, ERR_MEMORY, "a file name");
    /* A FIFO must not make the open wait for a writer. */
    f->descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int number = errno;
    files->ports[files->count] = (CursorPort){encode_file_read, f, 0};
    files->count++;
    if (f->descriptor < 0)
        return error_why(why, number == ENOENT ? ERR_NOT_FOUND : ERR_IO, "cannot open %s: %s", path, strerror(number));
    if (fstat(f->descriptor, &st) != 0) return error_why(why, ERR_IO, "cannot read %s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return error_why(why, ERR_FORMAT, "%s is %s, not a GGUF file", path,
                         S_ISDIR(st.st_mode) ? "a directory" : "a pipe or device");
    files->ports[files->count - 1].file_bytes = (uint64_t)st.st_size;
    (void)posix_fadvise(f->descriptor, 0, 0, POSIX_FADV_SEQUENTIAL);
    return OK;
}

static char *encode_file_part(const char *path, uint32_t part, uint32_t parts)
{
    enum { TAIL = 20 };
    size_t bytes = strlen(path);
    char *out = malloc(bytes + 32);
    if (out) (void)snprintf(out, bytes + 32, "%.*s-%05u-of-%05u.gguf", (int)(bytes - TAIL), path, part, parts);
    return out;
}

static Error encode_file_open(const char *path, EncodeFiles *files, Why *why)
{
    uint32_t part = 1, parts = 1;
    bool split = gguf_split_name(path, strlen(path), &part, &parts);
    if (parts > GGUF_FILES_MAX) return error_why(why, ERR_TOO_LARGE, "a model in %u files", parts);
    if (part != 1)
        return error_why(why, ERR_USAGE, "this is part %u of %u: give the first part, the others are found beside it.", part,
                         parts);
    *files = (EncodeFiles){calloc(parts, sizeof(EncodeFile)), calloc(parts, sizeof(CursorPort)), 0};
    if (!files->files || !files->ports) return error_why(why, ERR_MEMORY, "%u files", parts);
    for (uint32_t i = 1; i <= parts; i++)
        TRY(encode_file_open_one(files, split ? encode_file_part(path, i, parts) : strdup(path), why));
    return OK;
}

static void encode_file_close(EncodeFiles *files)
{
    for (uint32_t i = 0; i < files->count; i++) {
        if (files->files[i].descriptor >= 0) (void)close(files->files[i].descriptor);
        free(files->files[i].path);
    }
    free(files->files);
    free(files->ports);
}

/* --- the whole --- */

static Error encode_file_source(void *context, uint32_t source, uint64_t offset, uint8_t *out, size_t bytes, Why *why)
{
    const Gguf *gguf = context;
    const GgufTensor *t = &gguf->tensors[source];
    const CursorPort *port = &gguf->files[t->file];
    return port->read(port->file, t->offset + offset, out, bytes, why);
}

static Error encode_file_files(const EncodeFiles *files, const char *path, unsigned version, const Parallel *parallel,
                               Arena *arena, const Tell *tell, Why *why)
{
    Gguf gguf;
    KnotModel model;
    EncodeInput input = {0};
    uint8_t *vocab = NULL;
    TRY(gguf_read(files->ports, files->count, arena, &gguf, why));
    TRY(gguf_model_read(&gguf, &model, why));
    TRY(gguf_model_check_tensors(&gguf, &model, why));
    if (version == 2) TRY(gguf_vocab_build(&gguf, arena, &vocab, &input.vocab_bytes, why));
    input.tensors = gguf.tensors;
    input.tensor_count = gguf.tensor_count;
    input.model = &model;
    input.vocab = vocab;
    input.version = version;
    EncodeReader reader = {encode_file_source, &gguf};
    return encode_loop_run(&input, &reader, path, parallel, arena, tell, why);
}

Error encode_file(const char *gguf_path, const char *knot_path, unsigned version, const Tell *tell, Why *why)
{
    if (version != 1 && version != 2) return error_why(why, ERR_USAGE, "knot version %u; 1 and 2 can be written", version);
    EncodeFiles files = {NULL, NULL, 0};
    Pool *pool = NULL;
    void *memory = malloc(ARENA_BYTES); /* touched as far as it is used */
    Error e = memory ? encode_file_open(gguf_path, &files, why) : error_why(why, ERR_MEMORY, "the encoder's tables");
    if (e == OK) e = pool_start(encode_loop_workers(), &pool, why);
    if (e == OK) {
        Arena arena = arena_make(memory, ARENA_BYTES);
        Parallel parallel = pool_parallel(pool);
        e = encode_file_files(&files, knot_path, version, &parallel, &arena, tell, why);
    }
    pool_stop(pool);
    free(memory);
    encode_file_close(&files);
    return e;
}
