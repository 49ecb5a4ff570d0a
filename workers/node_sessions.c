/* SPDX-License-Identifier: Apache-2.0 */
/* A station's sessions in the rows of its object: cluster/station_keeper.h has the rules. A row is
 * made in the window, which is free between frames. */
#include "node_compute.h"

static char key[STATION_KEEPER_KEY_BYTES];
static NodeThen *after;

/* ---- Before the answer ---- */

static void cut_next(Node *n)
{
    StationKeeperRow row;
    if (!node_compute.keeper || !station_keeper_cut(node_compute.keeper, &row)) {
        after(n);
        return;
    }
    station_keeper_key(row.session, key);
    NodeWish wish = {.kind = NODE_ROW_DELETE, .text = key, .offset = row.number};
    node_want(n, &wish, cut_next);
}

void node_sessions_cut(Node *n, NodeThen *then)
{
    after = then;
    cut_next(n);
}

/* ---- After it ---- */

void node_sessions_put(Node *n)
{
    StationKeeperRow row;
    uint8_t *window = blocks_lend(&node_compute.weights);
    if (!node_compute.keeper || !station_keeper_put(node_compute.keeper, window, &row)) {
        node_end(n);
        return;
    }
    station_keeper_key(row.session, key);
    NodeWish wish = {.kind = NODE_ROW_PUT,
                     .text = key,
                     .offset = row.number,
                     .address = window,
                     .bytes = row.bytes};
    node_want(n, &wish, node_sessions_put);
}

/* ---- At the start ---- */

static void delete_lost(Node *n)
{
    uint64_t session;
    if (!station_keeper_lost(node_compute.keeper, &session)) {
        after(n);
        return;
    }
    station_keeper_key(session, key);
    NodeWish wish = {.kind = NODE_ROW_DELETE, .text = key};
    node_want(n, &wish, delete_lost);
}

static void row_came(Node *n)
{
    Why why = {{0}};
    uint8_t *window = blocks_lend(&node_compute.weights);
    const NodeCame *came = &n->came[0];
    if (!came->failed && !came->status) {
        delete_lost(n);
        return;
    }
    Error error = came->failed
                      ? error_why(&why, ERR_IO, "%s", n->failure.text)
                      : station_keeper_restore(node_compute.keeper, window, came->bytes, &why);
    if (error != OK) node_log(n, "a session is not restored", error, &why);
    if (came->failed) delete_lost(n);
    else node_want_rows(n, "session/", window, ISOLATE_ROW_BYTES_MAX, row_came);
}

void node_sessions_restore(Node *n, NodeThen *then)
{
    after = then;
    node_want_rows(n, "session/", blocks_lend(&node_compute.weights), ISOLATE_ROW_BYTES_MAX,
                   row_came);
}
