/* SPDX-License-Identifier: Apache-2.0 */
/* Mapped files that become shorter, or cannot be read, while they are in use. The kernel tells by SIGBUS in whichever
 * thread touches the page; left alone, that ends the process. With a guard the rest of the mapping becomes zeros, the
 * thread goes on, and whoever used the bytes asks file_guard_lost before it believes what came of them:
 *
 *   touch --SIGBUS--> zeros put in place, noted --> the work ends --file_guard_lost--> an error, not a wrong answer
 *
 * Installed by programs; a library leaves the signals of its process alone.
 * Thread  any for all of them. */
#ifndef COBORD_HOST_FILE_GUARD_H
#define COBORD_HOST_FILE_GUARD_H

#include <stdbool.h>
#include <stddef.h>

enum { FILE_GUARD_RANGES_MAX = 64, FILE_GUARD_NONE = -1 };

/* Takes SIGBUS over. What is not in a guarded range ends the process as before. */
void file_guard_install(void);

/* What the handler does: zeros in place of what is at `where`, if it is in a guarded range. Only system calls
 * that a handler may make: fstat, and mmap, which is one as well on Linux. */
bool file_guard_take(const void *where);

/* Guards a read-only mapping of the file from its first byte on. Result  its number; FILE_GUARD_NONE when there
 * are too many: it is then as without a guard. Owner  file_guard_remove before the mapping goes. */
int file_guard_add(const void *map, size_t bytes, int descriptor);
void file_guard_remove(int guard);
/* Whether zeros have taken the place of something. */
bool file_guard_lost(int guard);

#endif
