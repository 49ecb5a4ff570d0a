/* SPDX-License-Identifier: Apache-2.0 */
#include "host/knot_store.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "host/locate.h"
#include "host/places.h"

static Error source_size(void *context, uint64_t *bytes, Why *why)
{
    const KnotStore *k = context;
    return store_size(k->store, k->object, bytes, why);
}

static Error source_read(void *context, uint64_t offset, uint64_t bytes, uint8_t *out, Why *why)
{
    const KnotStore *k = context;
    return store_read(k->store, k->object, offset, bytes, out, why);
}

/* "DIR/NAME.knot" as a key: the store is then DIR. */
static Error open_absolute(const ClusterFile *c, KnotStore *out, Why *why)
{
    char directory[PLACES_PATH_BYTES];
    const char *name = strrchr(c->knot_key, '/') + 1;
    (void)snprintf(directory, sizeof directory, "%.*s", (int)(name - c->knot_key), c->knot_key);
    (void)snprintf(out->object, sizeof out->object, "%s", name);
    return store_open(directory, &out->store, why);
}

static Error open_named(const Node *node, KnotStore *out, Why *why)
{
    const ClusterFile *c = node->cluster;
    char directory[PLACES_PATH_BYTES];
    if (!c->store[0]) TRY(places_models(directory, sizeof directory, why));
    else if (strstr(locate_file_path(c->store), "://"))
        (void)snprintf(directory, sizeof directory, "%s", c->store);
    else TRY(node_path(node->cluster_path, locate_file_path(c->store), directory, why));
    return store_open(directory, &out->store, why);
}

/* Keys without an ending are names of models. */
static void choose_object(const ClusterFile *c, KnotStore *k)
{
    char path[PLACES_PATH_BYTES];
    const char *dot = strrchr(c->knot_key, '.');
    bool ends = dot && strcmp(dot, ".knot") == 0;
    (void)snprintf(k->object, sizeof k->object, "%s%s", c->knot_key, ends ? "" : ".knot");
    const char *local = store_local_path(k->store, k->object, path, sizeof path);
    if (!ends && local && access(local, F_OK) != 0)
        (void)snprintf(k->object, sizeof k->object, "%s", c->knot_key);
}

Error knot_store_open(const Node *node, KnotStore *out, Why *why)
{
    memset(out, 0, sizeof *out);
    if (node->cluster->knot_key[0] == '/') TRY(open_absolute(node->cluster, out, why));
    else {
        TRY(open_named(node, out, why));
        choose_object(node->cluster, out);
    }
    out->source = (KnotSource){source_size, source_read, out};
    return OK;
}

void knot_store_close(KnotStore *k)
{
    if (k->store) store_close(k->store);
    memset(k, 0, sizeof *k);
}
