/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of a slice share: slice.c opens and keeps, slice_fill.c brings bytes, slice_rows.c embedding rows. */
#ifndef COBORD_HOST_SLICE_STATE_H
#define COBORD_HOST_SLICE_STATE_H

#include "host/knot_store.h"
#include "host/slice.h"
#include "host/warden_client.h"

enum { SLICE_STEP_BYTES = 4 << 20 };

typedef enum SliceFrom { SLICE_DESCRIPTOR, SLICE_KEPT, SLICE_MEMORY, SLICE_DISK } SliceFrom;

/* A tensor whole, or a range of the payload that lies in `tensor` (NULL: in a section). */
typedef struct SliceTarget {
    const KnotTensor *tensor;
    bool whole;
    uint64_t offset, bytes;
} SliceTarget;

/* Embedding rows of one request. */
typedef struct SliceRow {
    uint32_t id;
    bool missing, wrong; /* wrong: the warden gave another */
    uint8_t *bytes;      /* as stored */
} SliceRow;

struct Slice {
    const Node *node;
    KnotStore store;
    Error store_error; /* why there is no store */
    Why store_why;
    Error warden_error,
        path_error; /* why the warden gave nothing the last time, and of a place on disk */
    Why warden_why, path_why;
    uint64_t blamed_s;    /* when that was last said */
    WardenClient *warden; /* or NULL */
    bool warden_refused;  /* it is another's, or will not serve us */
    bool rows_from_warden;
    KnotIndex index;
    KnotFile file; /* map NULL before slice_fill */
    int writable;  /* the file's descriptor, or -1 */
    SliceFrom from;
    char path[NODE_PATH_BYTES], temporary[NODE_PATH_BYTES];
    SliceTarget *targets; /* of the part; room for every tensor and a few ranges */
    uint32_t target_count;
    uint8_t *done;  /* tensors that are whole in the file */
    SliceRow *rows; /* sorted by id */
    uint32_t row_count, row_room;
    uint8_t *row_bytes; /* [row_room][a row's bytes] */
};

/* All of `data` at a place of the file. Errors  ERR_IO, ERR_NO_SPACE. */
MUST_CHECK Error slice_write_at(int descriptor, uint64_t at, const void *data, uint64_t bytes,
                                Why *why);
/* Before the next try: half a second after the first, then a second, .. */
void slice_wait(int tries);
/* What the warden gave was not taken: kept for slice_both_failed, and said by its name, a line a second at most, since
 * who is wrong is so at every piece. `e` OK: it was right. */
void slice_blame_warden(Slice *s, Error e, const Why *why);
/* The store does not have it either: adds what was wrong with the warden. Result  `error`. */
MUST_CHECK Error slice_both_failed(const Slice *s, Error error, Why *why);

/* Puts what `part` needs into s->targets. Errors  ERR_MISSING_TENSOR. */
MUST_CHECK Error slice_fill_list(Slice *s, const ClusterNode *part, Why *why);
uint64_t slice_fill_bytes(const Slice *s);
/* Brings all targets into s->writable. */
MUST_CHECK Error slice_fill_fetch(Slice *s, Why *why);
/* Whether the mapped file has all targets right; drops what it reads. Errors  ERR_CHECKSUM. */
MUST_CHECK Error slice_fill_check(const Slice *s, const KnotFile *file, Why *why);

#endif
