/* SPDX-License-Identifier: Apache-2.0 */
#include "host/node_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "host/locate.h"
#include "host/places.h"

static bool has_suffix(const char *text, const char *suffix)
{
    size_t a = strlen(text), b = strlen(suffix);
    return a >= b && strcmp(text + a - b, suffix) == 0;
}

/* Where the file is on this machine, or would be; "" for a store that is elsewhere. */
static Error find_path(const Node *node, char path[NODE_PATH_BYTES], Why *why)
{
    const ClusterFile *c = node->cluster;
    char directory[NODE_PATH_BYTES];
    if (c->knot_key[0] == '/') {
        (void)snprintf(path, NODE_PATH_BYTES, "%s", c->knot_key);
        return OK;
    }
    if (c->store[0]) {
        const char *local = locate_file_path(c->store);
        path[0] = '\0';
        if (strstr(local, "://")) return OK;
        TRY(node_path(node->cluster_path, local, directory, why));
    } else {
        TRY(places_models(directory, sizeof directory, why));
    }
    const char *suffix = has_suffix(c->knot_key, ".knot") ? "" : ".knot";
    TRY(places_join(path, NODE_PATH_BYTES, directory, "", c->knot_key, suffix, why));
    if (*suffix && access(path, F_OK) != 0)
        return places_join(path, NODE_PATH_BYTES, directory, "", c->knot_key, "", why);
    return OK;
}

static Error check_model(const Node *node, const NodeModel *m, Why *why)
{
    const ClusterFile *c = node->cluster;
    char wanted[17], found[17];
    (void)snprintf(wanted, sizeof wanted, "%016" PRIx64, c->knot_id);
    (void)snprintf(found, sizeof found, "%016" PRIx64, m->file.knot.id);
    if (m->file.knot.id != c->knot_id)
        return error_why(why, ERR_UNSUPPORTED, "%s: the cluster is of knot %s, %s is knot %s",
                         node->self->id, wanted, m->path[0] ? m->path : c->knot_key, found);
    if (m->hyper.layers == c->layers && m->hyper.vocabulary == c->vocabulary) return OK;
    return error_why(why, ERR_UNSUPPORTED,
                     "%s: the cluster file has %u layers and a vocabulary of %u, %s has %u and %u",
                     node->self->id, c->layers, c->vocabulary, m->path[0] ? m->path : c->knot_key,
                     m->hyper.layers, m->hyper.vocabulary);
}

static bool has_warden(const Node *node)
{
    const ClusterFile *c = node->cluster;
    if (node->self->role != CLUSTER_COORDINATOR) return node->self->warden != CLUSTER_FILE_NONE;
    return c->parts[CLUSTER_LAYER_WARDEN] || c->parts[CLUSTER_SHARD_WARDEN];
}

/* A file that is here, or whose absence nobody can make up for. */
static bool is_local(const Node *node, const char *path)
{
    return path[0] && (access(path, F_OK) == 0 || !has_warden(node));
}

static Error open_slice(const Node *node, NodeModel *m, Why *why)
{
    m->path[0] = '\0';
    TRY(slice_open(node, &m->slice, why));
    m->file.descriptor = -1;
    m->file.knot = *slice_knot(m->slice);
    return node->self->role == CLUSTER_COORDINATOR ? node_model_verify(node, m, why) : OK;
}

Error node_model_open(const Node *node, NodeModel *out, Why *why)
{
    memset(out, 0, sizeof *out);
    TRY(find_path(node, out->path, why));
    TRY(is_local(node, out->path) ? knot_file_open(out->path, &out->file, why)
                                  : open_slice(node, out, why));
    Error error = hyper_from_knot(&out->file.knot, &out->hyper, why);
    if (error == OK) error = check_model(node, out, why);
    if (error != OK) node_model_close(out);
    return error;
}

Error node_model_verify(const Node *node, NodeModel *m, Why *why)
{
    if (!m->slice) return knot_file_verify_once(&m->file, m->path, node->options->tell, why);
    TRY(slice_fill(m->slice, node->self, why));
    m->file = *slice_file(m->slice);
    return OK;
}

Error node_model_extend(NodeModel *m, const ClusterNode *part, Why *why)
{
    return m->slice ? slice_fill(m->slice, part, why) : OK;
}

void node_model_close(NodeModel *m)
{
    if (m->slice) slice_close(m->slice);
    else knot_file_close(&m->file);
    memset(m, 0, sizeof *m);
}
