/* SPDX-License-Identifier: Apache-2.0 */
/* What a request wants of a warden, before any byte of the knot is touched: whom it is for, and what its query, tail or
 * body names. The same on every host.
 *
 *   X-Knot-Id, X-Knot-Key, X-Layer-Start .. --.
 *   POST /configure's body -------------------+--> WardenAsked --> this warden's, or ERR_UNSUPPORTED (409)
 *   GET /tensor/NAME?rows=A-B ----> AwfrPiece
 *   GET /knot?bytes=A-B ----------> a range of the file
 *   POST /invalidate/WHAT --------> a tensor or an embedding row */
#ifndef COBORD_API_WARDEN_GATE_H
#define COBORD_API_WARDEN_GATE_H

#include "cluster/warden.h"
#include "wire/awfr.h"

enum {
    WARDEN_CONFIGURE_BYTES_MAX = 4096,
    WARDEN_CONFIGURE_POOL_BYTES = 13 * WARDEN_CONFIGURE_BYTES_MAX + 1024 /* of the JSON reader */
};

/* Who the warden is. */
typedef struct WardenSelf {
    WardenIdentity identity;
    uint32_t layers;
    const char *knot_key;
} WardenSelf;

/* What a request says it is for; NULL: it does not say. */
typedef struct WardenAsked {
    const char *knot_id, *knot_key, *layer_first, *layer_last, *id_first, *id_last;
} WardenAsked;

/* 16 hexadecimal digits. Errors  ERR_USAGE. */
MUST_CHECK Error warden_gate_knot_id(const char *text, uint64_t *out, Why *why);
/* Errors  ERR_USAGE, ERR_UNSUPPORTED (both identities). */
MUST_CHECK Error warden_gate_matches(const WardenSelf *self, const WardenAsked *asked, Why *why);
/* The body of /configure: knot_id, knot_key and a range are required. Shapes  pool[WARDEN_CONFIGURE_POOL_BYTES].
 * Errors  as above, ERR_FORMAT, ERR_TOO_LARGE. */
MUST_CHECK Error warden_gate_configure(const WardenSelf *self, const uint8_t *body, size_t bytes,
                                       void *pool, Why *why);

/* A tensor by its name, with the rows that the query wants. Errors  ERR_MISSING_TENSOR, ERR_USAGE. */
MUST_CHECK Error warden_gate_tensor(const Knot *knot, const char *name, const char *query,
                                    AwfrPiece *out, Why *why);
/* "bytes=A-B", the last one included. Errors  ERR_USAGE, ERR_RANGE, ERR_TOO_LARGE. */
MUST_CHECK Error warden_gate_bytes(const Knot *knot, const char *query, uint64_t *first,
                                   uint64_t *bytes, Why *why);
/* *tensor is NULL when an embedding row is meant. Errors  ERR_MISSING_TENSOR, ERR_RANGE. */
MUST_CHECK Error warden_gate_invalidate(const WardenSelf *self, const Knot *knot, const char *what,
                                        const KnotTensor **tensor, uint32_t *row, Why *why);

#endif
