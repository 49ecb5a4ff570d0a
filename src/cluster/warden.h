/* SPDX-License-Identifier: Apache-2.0 */
/* What a warden keeps in memory of the knot it guards: the policy, without the bytes.
 *
 * A warden has an identity, `knot|start-end` (layers) or `knot|vocab_start-vocab_end` (rows of the
 * vocabulary), and serves nothing else. The payload is kept in slabs of 4 MiB, 16 entries of the
 * knot's block hash table, so that whatever is read of a slab can be checked by itself:
 *
 *   ABSENT --warden_ask: FILL--> FILLING --warden_filled--> HELD --warden_ask: HIT, warden_release
 *      ^  '--- PASS, WAIT             '-- warden_fill_failed    |
 *      '------------------------------------- warden_forget, or a resident needs its place
 *
 * Stations read their phases in a cycle. A least-recently-used cache that is smaller than the cycle
 * has always just thrown away what comes next and hits nothing; so the first slabs that fit stay
 * and all others pass through: the hits are the share that fits.
 * Residents (norms, whatever is below 1 MiB, the embedding and the head) may take a matrix's place;
 * nothing takes theirs.
 *
 * Invariants
 *   1. FILLING + HELD slabs are at most the budget's.
 *   2. A slab with readers is never given up.
 *   3. One FILL per slab at a time; others WAIT. */
#ifndef COBORD_CLUSTER_WARDEN_H
#define COBORD_CLUSTER_WARDEN_H

#include "base/arena.h"
#include "knot/knot.h"
#include "model/phase.h"

enum {
    WARDEN_SLAB_BYTES = 16 * KNOT_HASH_BLOCK_BYTES,
    WARDEN_RESIDENT_BYTES = 1 << 20, /* tensors below this stay */
    WARDEN_IDENTITY_TEXT_MAX = 80
};
#define WARDEN_NONE UINT32_MAX

typedef struct WardenIdentity {
    uint64_t knot_id;
    bool is_shard;
    uint32_t first, last; /* bounds of phases, or ids; half open */
} WardenIdentity;

/* "0123456789abcdef|0-14" or "0123456789abcdef|0-18992" into out; returns out. */
char *warden_identity_text(const WardenIdentity *id, uint32_t layers,
                           char out[WARDEN_IDENTITY_TEXT_MAX]);
/* Errors  ERR_UNSUPPORTED: both identities in `why`. */
MUST_CHECK Error warden_identity_check(const WardenIdentity *mine, const WardenIdentity *asked,
                                       uint32_t layers, Why *why);

/* The rows of a tensor that an identity covers: all of a tensor of its layers and of what belongs
 * to no layer; a shard's ids of the embedding and of the head, in whole panels.
 * Errors  ERR_RANGE: the tensor or row_first + row_count is outside; names the identity's range. */
MUST_CHECK Error warden_covers(const WardenIdentity *id, const Knot *knot, const KnotTensor *t,
                               uint32_t row_first, uint32_t row_count, Why *why);

typedef struct WardenConfig {
    const Knot *knot;
    WardenIdentity identity;
    uint64_t budget_bytes;
    uint32_t slab_bytes; /* 0: WARDEN_SLAB_BYTES */
} WardenConfig;

typedef enum WardenAnswer { WARDEN_HIT, WARDEN_FILL, WARDEN_PASS, WARDEN_WAIT } WardenAnswer;

typedef struct WardenCounters {
    uint64_t hits, misses; /* of slabs; waits are neither */
    uint64_t passes;       /* the misses that were not kept */
    uint64_t evictions, bad, invalidations;
    uint64_t held_bytes;
} WardenCounters;

typedef struct Warden Warden;

uint64_t warden_bytes(const WardenConfig *config);
/* Owner  knot and arena outlive it. Thread  one at a time: the host has a lock. Errors  ERR_MEMORY. */
MUST_CHECK Error warden_build(const WardenConfig *config, Arena *arena, Warden **out, Why *why);

uint32_t warden_slab_count(const Warden *w);
/* Of the payload; the last slab ends with it. */
uint64_t warden_slab_offset(const Warden *w, uint32_t slab);
uint32_t warden_slab_bytes(const Warden *w, uint32_t slab);

/* HIT: the slab is there and stays until warden_release. FILL: the caller reads it from below and
 * says so. PASS: the caller reads it and keeps nothing. WAIT: another one is filling it, ask again.
 * *evicted is a slab whose memory the caller gives back first, or WARDEN_NONE. */
WardenAnswer warden_ask(Warden *w, uint32_t slab, uint32_t *evicted);
/* As warden_ask, but only a HIT counts and changes anything. */
bool warden_peek(Warden *w, uint32_t slab);
/* These three: true when the slab is ABSENT now and its memory is to be given back. */
MUST_CHECK bool warden_release(Warden *w, uint32_t slab);
MUST_CHECK bool warden_filled(Warden *w, uint32_t slab);
/* The slab is not to be served again. `bad`: its hash was wrong. With readers it stays until the
 * last warden_release. */
MUST_CHECK bool warden_forget(Warden *w, uint32_t slab, bool bad);
void warden_fill_failed(Warden *w, uint32_t slab);

WardenCounters warden_counters(const Warden *w);

#endif
