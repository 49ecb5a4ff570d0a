/* SPDX-License-Identifier: Apache-2.0 */
/* A node without the file: its part of the knot, fetched from its warden or from the store, checked,
 * and mapped like a whole file. Byte 0 of the slice is byte 0 of the knot; what is not the node's is
 * a hole.
 *
 *   header | row hashes | the node's phases or head rows | tokenizer | hashes      at the knot's offsets
 *
 *   1. warden's socket: the descriptor of the knot itself, or of a sealed memory file
 *   2. CACHE/slices/KNOTID/ID.knot of an earlier start, checked by its hashes once per file
 *   3. fetched: warden GET /knot, POST /tensors; what it gives wrong or not at all: the store
 *              into memory when half the budget has room for it, else into a file of that name
 *
 * A tensor is checked with the knot's hash of it, ranges with the hashes of their blocks, embedding
 * rows with their own. A warden that gave other bytes hears POST /invalidate and is not waited for.
 * Embedding rows of a shard are not in the slice: they are asked for when tokens need them, all of a
 * request in one call, so that the warden's memory answers. */
#ifndef COBORD_HOST_SLICE_H
#define COBORD_HOST_SLICE_H

#include "host/knot_file.h"
#include "host/node.h"
#include "host/worker.h"

typedef struct Slice Slice;

/* Reads header and hash tables. Owner  the node outlives it; slice_close.
 * Errors  ERR_UNREACHABLE (warden and store: both reasons), ERR_CHECKSUM, ERR_UNSUPPORTED (another
 * knot_id; version 1, which has no hashes), those of knot_parse. */
MUST_CHECK Error slice_open(const Node *node, Slice **out, Why *why);
void slice_close(Slice *s);
/* The header's meaning, before there is a file. */
const Knot *slice_knot(const Slice *s);

/* Makes the slice whole for `part`: the node itself or, after another range was given to it, the same node with that
 * range. Takes as long as its bytes take. Errors  as above, ERR_NO_SPACE, ERR_CANCELLED, ERR_NOT_AVAILABLE (a shared
 * memory file cannot be extended). */
MUST_CHECK Error slice_fill(Slice *s, const ClusterNode *part, Why *why);
/* After slice_fill: checked; knot_file_verify would fail at the holes. Lives as long as the slice. */
const KnotFile *slice_file(const Slice *s);

/* Instead of worker_run_shard: fetches the embedding rows that the shard has begun to ask for.
 * Thread  that of the worker. Errors  as there, and ERR_UNREACHABLE, ERR_CHECKSUM. */
MUST_CHECK Error slice_run_shard(Slice *s, Worker *w, Shard *shard, Why *why);

#endif
