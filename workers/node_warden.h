/* SPDX-License-Identifier: Apache-2.0 */
/* A layer warden or a shard warden in an instance. What the files of it share: node_warden.c opens it and answers,
 * node_warden_slabs.c has slabs of the payload, node_warden_rows.c embedding rows.
 *
 *   tensors, plain bytes --> slabs in memory ------------------------------> bucket        cluster/warden.h decides
 *   embedding rows --------> rows in memory --> values (float32, 24 hours) --> bucket      cluster/warden_rows.h
 *
 * Every read of every level is checked by the knot's hashes. Values are written, and rows that only they had are read,
 * after the response.
 *
 * Memory, taken once: tables | request's body, pieces | answer | one slab that passes | rows | slabs */
#ifndef COBORD_WORKERS_NODE_WARDEN_H
#define COBORD_WORKERS_NODE_WARDEN_H

#include "api/warden_answer.h"
#include "api/warden_gate.h"
#include "cluster/warden_counters.h"
#include "node.h"
#include "wire/row_value.h"

enum {
    NODE_WARDEN_READS_MAX = 3,   /* of the same bytes: a cache on the way may be stale */
    NODE_WARDEN_VALUES_MAX = 256 /* asked for, and written, in one request */
};

/* A range of the payload on its way to `out`, slab by slab. */
typedef struct NodeWardenRange {
    uint64_t offset, end;
    uint8_t *out;
    NodeThen *then;
    uint32_t slab;
    uint64_t part_end;    /* of the range in this slab */
    uint64_t first, last; /* what is read for it: whole blocks */
    uint8_t *to;          /* where */
    uint32_t reads;
    bool keeps; /* the slab stays in memory */
} NodeWardenRange;

typedef struct NodeWardenSlabs {
    Warden *policy;
    uint8_t *memory; /* [room][WARDEN_SLAB_BYTES] */
    uint32_t *place; /* [slab count]: of memory; WARDEN_NONE */
    uint32_t *spare; /* [room]: places that are free */
    uint32_t room, spare_count;
    uint8_t *passing;           /* a slab's bytes */
    uint64_t bad;               /* blocks of the bucket that were wrong */
    uint64_t retries, failures; /* reads that did not come; reads and bytes are the node's */
    NodeWardenRange range;
} NodeWardenSlabs;

/* One embedding row of the request. */
typedef struct NodeWardenRow {
    uint32_t id;
    uint8_t *bytes; /* in the answer, where a float32 row would lie */
    bool found, is_f32;
    bool asked;     /* for its value */
    bool is_bad;    /* its value was: it is to go */
    bool is_stored; /* from the bucket: its value is to be written */
    uint32_t reads;
} NodeWardenRow;

typedef struct NodeWardenRows {
    WardenRows *memory;
    uint32_t row_bytes, value_bytes;
    uint8_t *values;                   /* [NODE_BATCH_MAX][value_bytes], 64-aligned each */
    char (*keys)[ROW_VALUE_KEY_BYTES]; /* [NODE_BATCH_MAX] */
    NodeWardenRow *row;                /* [AWFR_PIECES_MAX] */
    uint32_t count;
    uint32_t batch[NODE_BATCH_MAX], batch_count; /* rows of the batch under way */
    uint32_t asked, written; /* values, in this request: an invocation has its limits */
    WardenVocabCounters counters;
    NodeThen *then;
} NodeWardenRows;

typedef struct NodeWarden {
    WardenSelf self;
    WardenServing serving;
    char identity_text[WARDEN_IDENTITY_TEXT_MAX];
    uint64_t slab_budget_bytes, row_budget_bytes;
    NodeWardenSlabs slabs;
    NodeWardenRows rows; /* of shard wardens */

    /* The request. */
    AwfrPiece *pieces;          /* [AWFR_PIECES_MAX] */
    uint32_t count, at, row_at; /* row_at: the next of rows.row */
    uint64_t request_id;
    WardenSizes sizes;
    uint8_t *answer;
    uint64_t answer_room;
    size_t answer_bytes;
    Error error; /* of slabs and rows */
    Why why;
} NodeWarden;

static inline NodeWarden *node_warden_of(const Node *n) { return (NodeWarden *)n->state; }

/* --- slabs --- */

uint64_t node_warden_slabs_table_bytes(const WardenConfig *config);
/* `memory` has room for `config->budget_bytes`. Errors  ERR_MEMORY. */
MUST_CHECK Error node_warden_slabs_open(Node *n, const WardenConfig *config, Why *why);
/* Bytes of the payload; then `then`, with w->error. */
void node_warden_slabs_read(Node *n, uint64_t offset, uint64_t bytes, uint8_t *out, NodeThen *then);
void node_warden_slabs_forget(NodeWarden *w, uint64_t offset, uint64_t bytes);
WardenLevelsCounters node_warden_slabs_counters(const Node *n);

/* --- rows --- */

MUST_CHECK Error node_warden_rows_open(Node *n, Why *why);
/* Fills w->rows.row[0 .. count): ids in, bytes out; then `then`, with w->error. */
void node_warden_rows_read(Node *n, NodeThen *then);
/* After the response: values of the rows that came from the bucket are written, bad ones deleted, rows that only had a
 * value are read. Then `then`. */
void node_warden_rows_settle(Node *n, NodeThen *then);
WardenVocabCounters node_warden_rows_counters(const NodeWarden *w);

#endif
