/* SPDX-License-Identifier: Apache-2.0 */
/* A regular file that is read by ranges: opened so that nothing waits, read so that nothing is short. */
#ifndef COBORD_HOST_FILE_READER_H
#define COBORD_HOST_FILE_READER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/error.h"

/* Sets *descriptor (-1 on an error) and what fstat says of it. `kind` is what the file should be,
 * "a knot". Owner  the caller closes it. Errors  ERR_NOT_FOUND, ERR_IO, ERR_FORMAT for a directory,
 * pipe or device. */
MUST_CHECK Error file_reader_open(const char *path, const char *kind, int *descriptor,
                                  struct stat *state, Why *why);

/* All of out[bytes]. Errors  ERR_IO, ERR_TRUNCATED, ERR_CANCELLED (stop_asked). */
MUST_CHECK Error file_reader_read(int descriptor, const char *path, uint64_t offset, void *out,
                                  size_t bytes, Why *why);

#endif
