/* SPDX-License-Identifier: Apache-2.0 */
/* L2 of a warden: slabs of a knot as files in a directory, with a cap on their bytes. Weights only: nothing else is
 * ever written there.
 *
 *   DIR/KNOTID-RANGE/00000012.slab      one directory per warden, locked by it; the file is the slab's bytes
 *
 * Files are written to a temporary name, synced and renamed, and what is read is checked: its length, and every block
 * with the knot's hash. A bad file is deleted and counted. Like in memory, the slabs that came first stay: a directory
 * smaller than the cycle would else only be written. Directories of wardens that are gone make room.
 * A full disk, or one that fails, is a cache that keeps nothing new, with one warning. */
#ifndef COBORD_HOST_SLAB_CACHE_H
#define COBORD_HOST_SLAB_CACHE_H

#include "cluster/warden_counters.h"
#include "host/tell.h"
#include "knot/knot_index.h"

typedef struct SlabCacheOptions {
    const char *directory, *name; /* "KNOTID-0-14" */
    uint64_t bytes_max;           /* 0: no limit */
    const KnotIndex *index;       /* outlives the cache */
    const Tell *tell;
} SlabCacheOptions;

typedef struct SlabCache SlabCache;

/* Owner  the options' texts are copied; slab_cache_close.
 * Errors  ERR_IO (the directory cannot be made), ERR_NO_SPACE, ERR_DUPLICATE (it is another warden's),
 *         ERR_MEMORY. Thread  any, for all functions. */
MUST_CHECK Error slab_cache_open(const SlabCacheOptions *options, SlabCache **out, Why *why);
void slab_cache_close(SlabCache *c);

/* `slab` is a number of WARDEN_SLAB_BYTES units; `bytes` what it has up to the block hash section.
 * Result  false: not there, or it was bad and is gone. */
bool slab_cache_get(SlabCache *c, uint32_t slab, uint64_t bytes, uint8_t *out);
/* Whether a slab that is not there would be kept. */
bool slab_cache_wants(SlabCache *c, uint32_t slab, uint64_t bytes);
void slab_cache_put(SlabCache *c, uint32_t slab, uint64_t bytes, const uint8_t *data);
void slab_cache_forget(SlabCache *c, uint32_t slab);
SlabCacheCounters slab_cache_counters(SlabCache *c);

#endif
