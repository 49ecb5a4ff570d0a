/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of a warden share: warden_role.c makes it, warden_routes.c answers with it,
 * warden_state.c says how it is. */
#ifndef COBORD_HOST_WARDEN_STATE_H
#define COBORD_HOST_WARDEN_STATE_H

#include "api/warden_answer.h"
#include "api/warden_gate.h"
#include "host/knot_store.h"
#include "host/node_server.h"
#include "host/warden_role.h"
#include "host/warden_vocab.h"

typedef struct WardenRole {
    Node *node;
    KnotStore store;
    WardenSelf self;
    WardenServing serving;
    char identity_text[WARDEN_IDENTITY_TEXT_MAX];
    WardenLevels *levels;
    WardenVocab *vocab; /* of shard wardens */
    NodeServer *server;
    uint32_t threads;
    uint64_t slab_budget_bytes, row_budget_bytes;
} WardenRole;

extern const NodeRoute warden_routes[];
extern const uint32_t warden_routes_count;

/* The object of /stats, and the lines of /metrics. */
void warden_state_write(WardenRole *w, char *json, size_t room);
void warden_state_metrics(WardenRole *w, char *text, size_t room);

#endif
