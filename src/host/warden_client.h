/* SPDX-License-Identifier: Apache-2.0 */
/* Calls to a warden: pieces of tensors, plain bytes, word of bad ones. A call that fails for want of a
 * warden is tried again twice, with backoff; a warden that is gone, or silent, is then left alone for some seconds, so
 * that not every call waits for it. What comes back is checked for what it claims to be; the knot's
 * hashes are the caller's to compare. */
#ifndef COBORD_HOST_WARDEN_CLIENT_H
#define COBORD_HOST_WARDEN_CLIENT_H

#include "host/knot_source.h"
#include "host/node.h"
#include "wire/awfr.h"

typedef struct WardenClient WardenClient;

/* `warden`: its node in node->cluster. Thread  one at a time. Owner  warden_client_close. Errors  ERR_MEMORY, those of
 * http_client_open. */
MUST_CHECK Error warden_client_open(const Node *node, const ClusterNode *warden, WardenClient **out,
                                    Why *why);
void warden_client_close(WardenClient *c);

/* Not given up on a moment ago. */
bool warden_client_alive(const WardenClient *c);

/* Plain bytes of the file as a source: read in parts of at most 4 MiB. Errors  ERR_UNREACHABLE, the warden's own. */
KnotSource warden_client_source(WardenClient *c);

/* `urgent`: a request waits for it, so a warden that is silent for two seconds counts as gone at once.
 * Shapes  asked[count] (hashes none) to got[count]. Owner  the payload is the client's, until its next call.
 * Errors  as above, those of awfr_read, awfr_check_answer, awfr_check_gaps, awfr_check_piece. */
MUST_CHECK Error warden_client_tensors(WardenClient *c, const Knot *knot, AwfrPiece *asked,
                                       uint32_t count, bool urgent, AwfrPiece *got,
                                       const uint8_t **payload, Why *why);

/* Tells it, without waiting, that it gave bad bytes of a tensor or of an embedding row. */
void warden_client_invalidate(WardenClient *c, const char *what);

#endif
