/* SPDX-License-Identifier: Apache-2.0 */
/* The loop around knot/encode.h: grants its wishes, writes atomically, tells how far it is. Where
 * the rows come from is the caller's business: a GGUF file, or a generator. */
#ifndef COBORD_HOST_ENCODE_LOOP_H
#define COBORD_HOST_ENCODE_LOOP_H

#include "base/parallel.h"
#include "host/tell.h"
#include "knot/encode.h"

/* Fills out[bytes] with the source tensor's bytes from `offset` on: whole rows. */
typedef struct EncodeReader {
    Error (*read)(void *context, uint32_t source, uint64_t offset, uint8_t *out, size_t bytes,
                  Why *why);
    void *context;
} EncodeReader;

/* Errors  those of encode_step, file_writer, the reader; ERR_CANCELLED. The file at `path` is whole
 * or untouched. */
MUST_CHECK Error encode_loop_run(const EncodeInput *input, const EncodeReader *reader,
                                 const char *path, const Parallel *parallel, Arena *arena,
                                 const Tell *tell, Why *why);

/* How many workers conversion is worth: the processors that are ours, at most 4. */
uint32_t encode_loop_workers(void);

#endif
