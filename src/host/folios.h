/* SPDX-License-Identifier: Apache-2.0 */
/* How the page cache holds a file: in pages of 2 MiB, which a mapping uses whole, or in small ones,
 * which make streaming about twice as slow. Decided by whoever filled the cache: large writes and
 * read-ahead give large pages. */
#ifndef COBORD_HOST_FOLIOS_H
#define COBORD_HOST_FOLIOS_H

#include "host/knot_file.h"

/* Maps a few MiB of the payload in, asks the kernel how, and drops them again.
 * Result  the share in pages of 2 MiB, 0 to 1; negative when the kernel does not say. */
double folios_large_share(const KnotFile *file);

#endif
