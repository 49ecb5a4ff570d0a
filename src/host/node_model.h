/* SPDX-License-Identifier: Apache-2.0 */
/* The knot of a node: found, opened, and shown to be the one that the cluster file means. Where the file is not on this
 * machine, the node's slice of it (host/slice.h). */
#ifndef COBORD_HOST_NODE_MODEL_H
#define COBORD_HOST_NODE_MODEL_H

#include "host/knot_file.h"
#include "host/node.h"
#include "host/slice.h"
#include "model/hyper.h"

typedef struct NodeModel {
    char path[NODE_PATH_BYTES]; /* "": a slice */
    KnotFile file;              /* of a slice: only its header's meaning until node_model_verify */
    Slice *slice;               /* or NULL */
    Hyper hyper;
} NodeModel;

/* Opens the file and reads its header; weights are checked by node_model_verify. The coordinator's slice is complete at
 * once. Errors  ERR_NOT_FOUND, ERR_UNSUPPORTED (another knot: both ids), those of knot_file_open, slice_open and
 * hyper_from_knot. Owner  node_model_close. */
MUST_CHECK Error node_model_open(const Node *node, NodeModel *out, Why *why);
/* Every hash, once per file; a slice is fetched. Errors  those of knot_file_verify_once and slice_fill. */
MUST_CHECK Error node_model_verify(const Node *node, NodeModel *model, Why *why);
/* Another range: a slice fetches what it has not got. Errors  those of slice_fill. */
MUST_CHECK Error node_model_extend(NodeModel *model, const ClusterNode *part, Why *why);
void node_model_close(NodeModel *model);

#endif
