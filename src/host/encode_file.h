/* SPDX-License-Identifier: Apache-2.0 */
/* From a GGUF file (or the first of its parts) to a knot, streaming: the loop that feeds
 * src/knot/encode.h with ranges and writes what comes out. Memory stays below
 * ENCODE_MEMORY_BYTES_MAX whatever the file's size.
 *
 * The knot appears under its name only when it is complete; a failure, SIGINT or SIGTERM leaves
 * nothing behind. */
#ifndef COBORD_HOST_ENCODE_FILE_H
#define COBORD_HOST_ENCODE_FILE_H

#include "base/error.h"
#include "host/tell.h"

enum { ENCODE_MEMORY_BYTES_MAX = 64 << 20 };

/* `version` 1 or 2. `tell` (may be NULL) gets stage "encode" with payload bytes done and in all.
 * Errors  ERR_IO, ERR_NO_SPACE, ERR_FORMAT (what the input looks like), ERR_TRUNCATED,
 * ERR_UNSUPPORTED (architecture, pre-tokenizer, named), ERR_TYPE, ERR_SHAPE, ERR_DUPLICATE,
 * ERR_MISSING_TENSOR, ERR_NOT_FINITE (tensor and count), ERR_TOO_LARGE, ERR_MEMORY, ERR_CANCELLED
 * (stop_asked). */
MUST_CHECK Error encode_file(const char *gguf_path, const char *knot_path, unsigned version,
                             const Tell *tell, Why *why);

#endif
