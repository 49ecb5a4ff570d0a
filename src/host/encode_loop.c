/* SPDX-License-Identifier: Apache-2.0 */
#include "host/encode_loop.h"

#include "host/cpu.h"
#include "host/file_writer.h"
#include "host/stop.h"

enum { WORKERS_MAX = 4 };

static Error encode_loop_grant(const EncodeWish *wish, const EncodeReader *reader, FileWriter *w,
                               Why *why)
{
    switch (wish->kind) {
    case ENCODE_READ:
        return reader->read(reader->context, wish->source, wish->offset, wish->buffer, wish->bytes,
                            why);
    case ENCODE_WRITE: return file_writer_append(w, wish->buffer, wish->bytes, why);
    case ENCODE_PATCH: return file_writer_patch(w, wish->offset, wish->buffer, wish->bytes, why);
    default: return OK;
    }
}

static Error encode_loop_steps(Encoder *e, const EncodeReader *reader, FileWriter *w,
                               const Tell *tell, Why *why)
{
    EncodeWish wish = {ENCODE_DONE, 0, 0, 0, NULL};
    do {
        if (stop_asked()) return error_why(why, ERR_CANCELLED, "%s was not written", w->path);
        TRY(encode_step(e, &wish, why));
        TRY(encode_loop_grant(&wish, reader, w, why));
        tell_step(tell, "encode", encode_bytes_so_far(e), encode_file_bytes(e));
    } while (wish.kind != ENCODE_DONE);
    return OK;
}

Error encode_loop_run(const EncodeInput *input, const EncodeReader *reader, const char *path,
                      const Parallel *parallel, Arena *arena, const Tell *tell, Why *why)
{
    Encoder *encoder = NULL;
    FileWriter w;
    TRY(encode_start(input, parallel, arena, &encoder, why));
    TRY(file_writer_open(&w, path, encode_file_bytes(encoder), why));
    Error e = encode_loop_steps(encoder, reader, &w, tell, why);
    if (e == OK) return file_writer_commit(&w, why);
    file_writer_abandon(&w);
    return e;
}

uint32_t encode_loop_workers(void)
{
    uint32_t cores = cpu_cores();
    return cores < WORKERS_MAX ? cores : WORKERS_MAX;
}
