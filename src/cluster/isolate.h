/* SPDX-License-Identifier: Apache-2.0 */
/* What a station or shard takes of a WebAssembly instance's memory, all of it known before it
 * starts, and what it reads of the store (docs/format/workers.md, section 5). A plan and the node
 * it is for choose alike.
 *
 *   fixed + index + floor + activations + frames + logits + attention cache + window
 *         + pinned (+ embedding rows) <= budget
 *
 *   resident   all weights are pinned; the embedding rows too when they fit
 *   fluid      the beginning of the stretch is pinned, the rest goes through the window once a pass
 *
 * The window also lends its room to sessions that are saved, and to embedding rows that come one
 * by one. */
#ifndef COBORD_CLUSTER_ISOLATE_H
#define COBORD_CLUSTER_ISOLATE_H

#include "cluster/node_sizes.h"

/* Stack, data and texts of the module, and an edge of a page. */
#define ISOLATE_FIXED_BYTES ((uint64_t)1 << 20)
#define ISOLATE_BUDGET_DEFAULT ((uint64_t)96 << 20)
/* Pins as many bytes as fit. */
#define ISOLATE_PIN_ALL UINT64_MAX

enum {
    ISOLATE_ROW_BYTES_MAX = 1 << 20, /* of a saved row of a session */
    ISOLATE_ROWS_AT_ONCE = 64        /* embedding rows */
};

typedef struct IsolateRequest {
    const char *id; /* for the refusal */
    const Knot *knot;
    uint64_t budget_bytes;
    uint64_t fixed_bytes, index_bytes; /* isolate_index_bytes, or what they are */
    NodeSizes sizes;
    uint64_t keeper_bytes; /* a station's station_keeper_bytes; 0: sessions are not kept */
    bool embeds; /* it answers for embedding rows: */
    uint32_t id_first, id_last;
    uint64_t pinned_bytes; /* of the weights, or ISOLATE_PIN_ALL */
} IsolateRequest;

typedef struct Isolate {
    uint64_t first, last;           /* the stretch of weights, whole blocks */
    uint64_t rows_first, rows_last; /* embedding rows that stay, whole blocks; none: 0, 0 */
    uint64_t pinned_bytes, window_bytes;
    uint64_t tile_bytes_max; /* of a station's or shard's wish; 0: whole matrices */
    bool resident;
    uint64_t pass_bytes; /* of the store, for each frame that passes the whole range */
    uint64_t total_bytes;
} Isolate;

/* Header, its tables, hash tables. `header_bytes` of the file; knot->payload_offset is enough. */
uint64_t isolate_index_bytes(const Knot *knot, uint64_t header_bytes);

/* Errors  ERR_PLAN: the sum. */
MUST_CHECK Error isolate_choose(const IsolateRequest *r, Isolate *out, Why *why);

#endif
