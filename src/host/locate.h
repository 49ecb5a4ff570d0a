/* SPDX-License-Identifier: Apache-2.0 */
/* From what a person calls a model to the path of a knot.
 *
 *   zoo name                  models/NAME.knot, once pulled
 *   name of a cached model    models/NAME.knot (see `cobord list`)
 *   path of a .knot           itself; recognised by its first bytes, not by its name
 *   path of a .gguf           encoded once into the cache, keyed by path, size and time of change of
 *                             all its parts
 *   hf: https: http: s3: URL  models/NAME.knot under a name made of the URL, once pulled
 *   file: URL                 the path in it */
#ifndef COBORD_HOST_LOCATE_H
#define COBORD_HOST_LOCATE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "host/tell.h"

/* Nothing is downloaded (pull.h does that): what is not here yet is ERR_NOT_FOUND, and `why` has the
 * command to run. `tell` gets the stages of encoding. `path` is written on success; 4,096 bytes
 * always suffice. Errors  ERR_NOT_FOUND, ERR_FORMAT (what it looks like instead), ERR_IO, and those
 * of encode_file. */
MUST_CHECK Error locate_model(const char *model, const Tell *tell, char *path, size_t path_bytes,
                              Why *why);

/* Whether it is written as a file's path is: with a folder in front, or .gguf or .knot at its end. */
bool locate_names_file(const char *model);

/* That there is no such model, and which was probably meant. Result  ERR_NOT_FOUND. */
MUST_CHECK Error locate_unknown(const char *model, Why *why);

typedef enum LocateKind { LOCATE_ZOO, LOCATE_URL, LOCATE_CACHED, LOCATE_PATH } LocateKind;

/* Which of them it is, without looking whether it is there; `name` (PLACES_NAME_BYTES) is that of
 * the cache for the first three. Errors  ERR_USAGE (an address that is none). */
MUST_CHECK Error locate_kind(const char *model, LocateKind *kind, char *name, size_t name_bytes,
                             Why *why);

/* Whether a model of the cache can be called so. */
bool locate_is_name(const char *text);

/* How many parts the file is split into that NAME-00001-of-0000N.gguf is one of, and which it is; 0
 * for a whole file, and for more than GGUF_FILES_MAX. */
unsigned locate_parts(const char *path, unsigned *part);

/* The name of another part of the same file. Errors  ERR_TOO_LARGE. */
MUST_CHECK Error locate_part_name(const char *path, unsigned part, char *out, size_t out_bytes,
                                  Why *why);

/* Of a file that is looked at and not run: its path, or that of the model of this name in the cache.
 * Errors  those of locate_model. */
MUST_CHECK Error locate_file(const char *name, char *path, size_t path_bytes, Why *why);

/* The path that a file: URL stands for, or the text itself. */
const char *locate_file_path(const char *model);

#endif
