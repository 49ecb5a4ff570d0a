/* SPDX-License-Identifier: Apache-2.0 */
/* What the exports call of the loop (node.c), of the settings and of the opening (node_open.c). */
#ifndef COBORD_WORKERS_NODE_LOOP_H
#define COBORD_WORKERS_NODE_LOOP_H

#include "node.h"

/* Result  false: longer than their room. */
bool node_settings_take(const char *text, uint32_t bytes);

/* Reads the settings and begins to open. Errors  ERR_USAGE: it has been opened, or no such kind. */
MUST_CHECK Error node_open_start(Node *n, uint32_t kind, const char *settings, uint32_t bytes);

/* Owner  `head` stays, and is cut into its lines. Errors  ERR_USAGE (a request is not over,
 * nothing is open), ERR_FORMAT. */
MUST_CHECK Error node_take_request(Node *n, char *head);
uint32_t node_body_limit(const Node *n);
uint8_t *node_body_room(Node *n, uint32_t bytes);

NodeWishKind node_step(Node *n, uint64_t now_ms);
bool node_has_more(const Node *n);
/* The last one that was handed out. */
const NodeWish *node_wish(const Node *n);
void node_came(Node *n, uint32_t status, uint64_t bytes);
void node_came_not(Node *n, const char *text);
const NodeWish *node_full_wish(Node *n);

#endif
