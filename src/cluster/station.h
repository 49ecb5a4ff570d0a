/* SPDX-License-Identifier: Apache-2.0 */
/* A station owns a range of phases and the attention cache of its layers. It holds no matrix: it
 * asks for the rows of one tensor at a time, computes with them in place, and asks for the next.
 *
 *   station_begin(frame)
 *        |
 *        v        LOAD phase      -- the host makes the phase's first bytes ready
 *   station_next  TILE rows a..b  -- the host calls station_give with their bytes; repeated over
 *        |                           the phase's rows
 *        |        EVICT phase     -- the host may forget every byte of the phase
 *        v
 *      DONE       x (and g, when the range ends inside the FFN) hold the result
 *
 * Invariants
 *   1. Between LOAD and EVICT of one phase there is no other LOAD.
 *   2. After an error every session of the frame ends at its sequence's position (a fork that there was no room for:
 *      at 0); the frame's floats are undefined. A frame that is refused for what it says changes nothing.
 *   3. The bits of a row depend on the knot, its session's earlier rows and its position: never on
 *      the frame, the tile size, the threads or the instruction set. */
#ifndef COBORD_CLUSTER_STATION_H
#define COBORD_CLUSTER_STATION_H

#include "base/arena.h"
#include "base/parallel.h"
#include "knot/knot.h"
#include "model/ops.h"
#include "model/phase.h"
#include "quant/kernels.h"

enum { STATION_ROWS_MAX = 4096, STATION_SESSIONS_MAX = 1024, STATION_CONTEXT_MAX = 1 << 20 };

typedef struct StationConfig {
    const Knot *knot;
    const Hyper *hyper;
    PhaseRange range;
    CacheType cache;
    uint32_t rows_max; /* rows of a frame */
    uint32_t sessions_max;
    uint32_t context; /* positions of one session */
    uint32_t blocks;  /* cache blocks of 64 positions over all sessions */
    uint32_t workers; /* of the parallel port */
    /* Bytes of one TILE; a single panel may exceed it. 0: whole matrices. */
    uint64_t tile_bytes_max;
    const Kernels *kernels;
    const Ops *ops;
} StationConfig;

typedef struct StationSequence {
    uint32_t session;  /* 0..sessions_max - 1 */
    uint32_t position; /* of its first row; at or below the session's length, which is cut to it */
    uint32_t rows;
    /* The session becomes the first `position` positions of session `parent` first, as the parent
     * was before the frame; what it held is gone. A parent that does so itself in the same frame
     * is refused. */
    bool forks;
    uint32_t parent;
} StationSequence;

typedef struct StationFrame {
    float *x; /* [rows][hidden], in and out */
    float *g; /* [rows][ffn], in when the range starts inside the FFN, out when it ends there */
    uint32_t rows;
    const StationSequence *sequences; /* their rows add up to `rows` */
    uint32_t sequence_count;
    /* Rows whose result somebody asked for, ascending; NULL: all. Only a station that holds the
     * whole last layer looks at it: the others' attention and FFN of that layer are left out, and
     * x[i] is then the result of row wanted[i]. */
    const uint32_t *wanted;
    uint32_t wanted_count;
} StationFrame;

typedef enum StationWishKind {
    STATION_LOAD,
    STATION_TILE,
    STATION_EVICT,
    STATION_DONE
} StationWishKind;

typedef struct StationWish {
    StationWishKind kind;
    PhaseBound phase;         /* LOAD, TILE, EVICT */
    const KnotTensor *tensor; /* TILE */
    uint32_t row_first, row_count;
    /* TILE: the tile; LOAD: the phase's first tensor and the sum of its tensors' bytes. */
    uint64_t offset, bytes;
} StationWish;

typedef struct Station Station;

/* Sizes of the two memories: what a station keeps, and the scratch that stations of one thread may
 * share. Errors  ERR_MISSING_TENSOR, ERR_SHAPE, ERR_RANGE, ERR_TYPE. */
typedef struct StationSizes {
    uint64_t floor_bytes; /* norms, biases, tables, bookkeeping */
    uint64_t cache_bytes; /* attention cache */
    uint64_t scratch_bytes;
    uint64_t widest_panel_bytes;
    uint64_t weight_bytes; /* of all phases of the range */
} StationSizes;
MUST_CHECK Error station_sizes(const StationConfig *config, StationSizes *out, Why *why);

/* Builds a station in `arena` (floor_bytes + cache_bytes). Owner  the arena, knot, hyper and
 * scratch outlive it. */
MUST_CHECK Error station_build(const StationConfig *config, Arena *arena, void *scratch,
                               Station **out, Why *why);

/* The vectors that stay resident: the host reads tensor i into `to` (as float32) before the first
 * frame. */
uint32_t station_floor_count(const Station *s);
const KnotTensor *station_floor_tensor(const Station *s, uint32_t i, float **to);

/* Errors  ERR_SESSION, ERR_POSITION (above the session's length: the Why has the expected one),
 *         ERR_DUPLICATE (a session twice), ERR_CAPACITY (rows, context or cache blocks), ERR_RANGE (also: a fork
 *         of a fork), ERR_NOT_FINITE. Owner  borrows the frame until DONE or an error. */
MUST_CHECK Error station_begin(Station *s, const StationFrame *frame, const Parallel *parallel,
                               Why *why);
void station_next(Station *s, StationWish *wish);
/* Errors  ERR_NOT_FINITE (names layer, phase and tensor). */
MUST_CHECK Error station_give(Station *s, const uint8_t *tile, const Parallel *parallel, Why *why);

/* The exit station's last act on a row: the output norm. Shapes  x[hidden] to out[hidden].
 * Only where the range ends the model. */
void station_norm_output(const Station *s, const float *x, float *out);

/* Whether the station honours `wanted`. */
bool station_drops_unwanted(const Station *s);

uint32_t station_length(const Station *s, uint32_t session);
/* What one position takes in the attention cache, all layers of the range; 0: the range has
 * none. */
uint64_t station_position_bytes(const Station *s);
/* Positions first .. first + count - 1 of a session, one after the other: per layer K, V of all kv
 * heads, then (q8_0) their scales. Shapes  [count][station_position_bytes]. The session has
 * them. */
void station_save(const Station *s, uint32_t session, uint32_t first, uint32_t count, uint8_t *out);
/* The same read back, behind what the session has: first is its length. Errors  ERR_POSITION,
 * ERR_CAPACITY. */
MUST_CHECK Error station_restore(Station *s, uint32_t session, uint32_t first, uint32_t count,
                                 const uint8_t *in, Why *why);
/* Forgets what the session has beyond `length` positions; 0: everything. */
void station_truncate(Station *s, uint32_t session, uint32_t length);
/* Makes session `to` a copy of the first `length` positions of session `from`, bit for bit; what
 * `to` held is gone. Their cache blocks are shared until one of them writes (cache.h), so it costs
 * next to nothing. Errors  ERR_SESSION, ERR_POSITION (`from` is shorter), ERR_CAPACITY; then
 * nothing changed. */
MUST_CHECK Error station_fork(Station *s, uint32_t from, uint32_t to, uint32_t length, Why *why);
/* Cache blocks that sessions may still take; one that two sessions share counts twice, so that
 * both may write. */
uint32_t station_blocks_free(const Station *s);

#endif
