/* SPDX-License-Identifier: Apache-2.0 */
/* The knot of a node: found, opened, and shown to be the one that the cluster file means. */
#ifndef COBORD_HOST_NODE_MODEL_H
#define COBORD_HOST_NODE_MODEL_H

#include "host/knot_file.h"
#include "host/node.h"
#include "model/hyper.h"

typedef struct NodeModel {
    char path[NODE_PATH_BYTES];
    KnotFile file;
    Hyper hyper;
} NodeModel;

/* Opens the file and reads its header; weights are checked by node_model_verify.
 * Errors  ERR_NOT_FOUND, ERR_UNSUPPORTED (another knot: both ids; a store that is no directory), those of
 * knot_file_open and hyper_from_knot. Owner  node_model_close. */
MUST_CHECK Error node_model_open(const Node *node, NodeModel *out, Why *why);
/* Every hash, once per file. Errors  those of knot_file_verify_once. */
MUST_CHECK Error node_model_verify(const Node *node, const NodeModel *model, Why *why);
void node_model_close(NodeModel *model);

#endif
