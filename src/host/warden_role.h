/* SPDX-License-Identifier: Apache-2.0 */
/* A node as a warden: it caches bytes of the knot, in front of the store, for the stations or shards of one range.
 *
 *   layer warden   tensors of its layers             memory, slab files, store     host/warden_levels.h
 *   shard warden   embedding rows of its ids         memory, row store, store       host/warden_vocab.h
 *                  head rows of its ids              memory, store                  host/warden_levels.h
 *
 * Endpoints in docs/format/frame.md, sections 7 and 8; the Unix socket in host/share.h. */
#ifndef COBORD_HOST_WARDEN_ROLE_H
#define COBORD_HOST_WARDEN_ROLE_H

#include "host/node.h"

/* Serves until a signal asks for the end. Errors  ERR_PLAN (warden_memory is too small: the sum), those of
 * knot_store_open, warden_levels_open, warden_vocab_open and node_server_open. */
MUST_CHECK Error warden_role_run(Node *node, Why *why);

#endif
