/* SPDX-License-Identifier: Apache-2.0 */
/* The knot of a cluster file in the store that the file names: `store`, or the folder of models;
 * in it, `knot_key`. */
#ifndef COBORD_HOST_KNOT_STORE_H
#define COBORD_HOST_KNOT_STORE_H

#include "host/knot_source.h"
#include "host/node.h"
#include "host/store.h"

typedef struct KnotStore {
    Store *store;
    char object[CLUSTER_FILE_TEXT_BYTES_MAX + 8];
    KnotSource source;
} KnotStore;

/* Nothing is read yet. Owner  stays where it is; knot_store_close. Errors  those of store_open, ERR_TOO_LARGE. */
MUST_CHECK Error knot_store_open(const Node *node, KnotStore *out, Why *why);
void knot_store_close(KnotStore *k);

#endif
