/* SPDX-License-Identifier: Apache-2.0 */
/* All bytes of a range of a file, in however many calls the system makes of it.
 * Result  false: errno says why; of a read it is 0 where the file ends too early. Thread  any. */
#ifndef COBORD_HOST_WHOLE_H
#define COBORD_HOST_WHOLE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

/* A descriptor, however often a signal comes between. Result  -1: errno says why. */
MUST_CHECK int whole_open(const char *path, int flags, mode_t mode);
MUST_CHECK int whole_open_at(int directory, const char *path, int flags, mode_t mode);
MUST_CHECK bool whole_read(int descriptor, uint64_t offset, void *out, uint64_t bytes);
MUST_CHECK bool whole_write(int descriptor, uint64_t offset, const void *data, uint64_t bytes);
/* What is left of a file, at most `bytes`. Result  how many; -1: errno says why. */
MUST_CHECK ssize_t whole_rest(int descriptor, void *out, size_t bytes);

#endif
