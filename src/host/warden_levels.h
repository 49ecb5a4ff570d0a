/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of a knot through a warden's levels: memory, the disk, the store. Below is cluster/warden.h, which decides what
 * memory keeps; here are the bytes.
 *
 *   read --> memory file (memfd at the knot's offsets, never mapped: what it holds is not this process's resident set)
 *              | miss, bad          ^ kept
 *              v                    |
 *            slab files ---hit-----+
 *              | miss, bad          |
 *              v                    |
 *            store ---checked-------+--> slab files, after the response
 *
 * Every read of every level is checked with the knot's block hashes. The memory file also has the header and the hash
 * sections, so that whoever is given its descriptor can open it as a knot. */
#ifndef COBORD_HOST_WARDEN_LEVELS_H
#define COBORD_HOST_WARDEN_LEVELS_H

#include "cluster/warden.h"
#include "host/slab_cache.h"
#include "host/knot_source.h"
#include "host/store.h"

typedef struct WardenLevelsOptions {
    WardenIdentity identity;
    Store *store;              /* outlives the levels */
    const char *object;        /* the knot's name there */
    uint64_t budget_bytes;     /* of memory for slabs */
    uint64_t tables_bytes_max; /* of memory for header and hashes */
    const char *directory;     /* of slab files; "": none; copied */
    uint64_t directory_bytes;
    const Tell *tell;
} WardenLevelsOptions;

/* Slabs that came from the store and are to be written after the response. */
enum { WARDEN_LATER_MAX = 2 };
typedef struct WardenLater {
    uint32_t count, slabs[WARDEN_LATER_MAX];
    uint8_t *data[WARDEN_LATER_MAX];
} WardenLater;

typedef struct WardenLevels WardenLevels;

/* Reads header and tables. Errors  those of knot_source_open, ERR_MEMORY, ERR_IO. */
MUST_CHECK Error warden_levels_open(const WardenLevelsOptions *options, WardenLevels **out,
                                    Why *why);
void warden_levels_close(WardenLevels *l);
const KnotIndex *warden_levels_index(const WardenLevels *l);

/* Bytes of the payload. Thread  any number at once. Errors  those of knot_source_read.
 * Owner  `later` starts as zeros; warden_levels_settle, whatever the result. */
MUST_CHECK Error warden_levels_read(WardenLevels *l, uint64_t offset, uint64_t bytes, uint8_t *out,
                                    WardenLater *later, Why *why);
/* Bytes of the file. */
MUST_CHECK Error warden_levels_read_file(WardenLevels *l, uint64_t offset, uint64_t bytes,
                                         uint8_t *out, WardenLater *later, Why *why);
void warden_levels_settle(WardenLevels *l, WardenLater *later);

/* Straight from the store, unchecked: single rows, which have hashes of their own. */
MUST_CHECK Error warden_levels_read_row(WardenLevels *l, uint64_t offset, uint64_t bytes,
                                        uint8_t *out, Why *why);

/* Not to be served again, in memory and on disk: what `rows` of a tensor lie in. */
void warden_levels_forget(WardenLevels *l, uint64_t offset, uint64_t bytes);

/* Fills memory with all that the identity covers and seals it; `beat` is called between slabs.
 * Result  the memory file's descriptor, which stays the warden's.
 * Errors  ERR_CAPACITY (it does not fit), ERR_CANCELLED, those of warden_levels_read. */
MUST_CHECK Error warden_levels_share(WardenLevels *l, void (*beat)(void *context), void *context,
                                     int *descriptor, Why *why);

WardenLevelsCounters warden_levels_counters(WardenLevels *l);

#endif
