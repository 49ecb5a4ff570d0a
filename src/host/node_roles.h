/* SPDX-License-Identifier: Apache-2.0 */
/* The functions behind node_run, one a role. Each serves until a signal asks for the end. */
#ifndef COBORD_HOST_NODE_ROLES_H
#define COBORD_HOST_NODE_ROLES_H

#include "host/node.h"

MUST_CHECK Error node_station_run(Node *node, Why *why);
MUST_CHECK Error node_shard_run(Node *node, Why *why);

#endif
