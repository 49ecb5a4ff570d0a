/* SPDX-License-Identifier: Apache-2.0 */
#include "host/node.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/log.h"
#include "host/node_roles.h"
#include "host/places.h"
#include "host/ports.h"
#include "host/remote.h"
#include "host/stop.h"
#include "host/warden_role.h"
#include "host/whole.h"

/* The coordinator and the wardens plug in here. */
static Error (*const node_roles[CLUSTER_ROLES])(Node *node, Why *why) = {
    [CLUSTER_COORDINATOR] = remote_run,       [CLUSTER_STATION] = node_station_run,
    [CLUSTER_SHARD] = node_shard_run,         [CLUSTER_LAYER_WARDEN] = warden_role_run,
    [CLUSTER_SHARD_WARDEN] = warden_role_run,
};

Error node_path(const char *cluster_path, const char *path, char out[NODE_PATH_BYTES], Why *why)
{
    const char *slash = path[0] == '/' ? NULL : strrchr(cluster_path, '/');
    int directory = slash ? (int)(slash + 1 - cluster_path) : 0;
    int n = snprintf(out, NODE_PATH_BYTES, "%.*s%s", directory, cluster_path, path);
    if (n < 0 || n >= NODE_PATH_BYTES)
        return error_why(why, ERR_TOO_LARGE, "the path %s is too long", path);
    return OK;
}

/* ---- The cluster file ---- */

static Error read_all(int fd, const char *path, char *text, size_t bytes, size_t *used, Why *why)
{
    for (*used = 0; *used < bytes;) {
        ssize_t n = read(fd, text + *used, bytes - *used);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return places_system_error(errno, path, why);
        if (n == 0) return OK;
        *used += (size_t)n;
    }
    return OK;
}

static Error read_text(const char *path, char **text, size_t *bytes, Why *why)
{
    struct stat about;
    int fd = whole_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd < 0) return places_system_error(errno, path, why);
    Error error = OK;
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode))
        error = error_why(why, ERR_FORMAT, "%s is no regular file", path);
    else if (about.st_size > CLUSTER_FILE_BYTES_MAX)
        error = error_why(why, ERR_TOO_LARGE, "%s: a cluster file has at most 1 MiB", path);
    if (error == OK) {
        *text = malloc((size_t)about.st_size + 1);
        error = *text ? read_all(fd, path, *text, (size_t)about.st_size, bytes, why)
                      : error_why(why, ERR_MEMORY, "no memory for %s", path);
    }
    close(fd);
    return error;
}

Error node_read_cluster(const char *path, ClusterFile *out, void **memory, Why *why)
{
    char *text = NULL;
    size_t bytes = 0;
    *memory = NULL;
    Error error = read_text(path, &text, &bytes, why);
    if (error == OK) {
        size_t room = cluster_file_arena_bytes(bytes);
        *memory = malloc(room);
        Arena arena = arena_make(*memory, *memory ? room : 0);
        error = *memory ? cluster_file_parse(text, bytes, &arena, out, why)
                        : error_why(why, ERR_MEMORY, "no memory for %s", path);
    }
    free(text);
    if (error == OK) return OK;
    free(*memory);
    *memory = NULL;
    return error;
}

/* ---- What a person sees ---- */

void node_announce(const Node *node, const char *what)
{
    if (!node->listen.loopback && !node->key)
        log_say(LOG_INFO,
                "%s: anyone who reaches %s can use this node: the cluster file names no key_file",
                node->self->id, node->listen.address);
    printf("%s: %s on %s://%s\n", node->self->id, what, node->certificate_file ? "https" : "http",
           node->listen.address);
    (void)fflush(stdout);
}

void node_log(const Node *node, const char *range, const char *what, Error error, const Why *why)
{
    log_say(LOG_ERROR, "%s (%s): %s: %s%s%s", node->self->id, range, what, error_text(error),
            why->text[0] ? ": " : "", why->text);
}

/* ---- Starting ---- */

static Error find_self(Node *node, const char *id, Why *why)
{
    node->self = cluster_file_find(node->cluster, id);
    if (node->self) return OK;
    char ids[200] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < node->cluster->node_count && used < sizeof ids - 32; i++)
        used += (size_t)snprintf(ids + used, sizeof ids - used, "%s%s", i ? " " : "",
                                 node->cluster->nodes[i].id);
    bool more = used >= sizeof ids - 32;
    return error_why(why, ERR_NOT_FOUND, "node %s; the file has %s%s", id, ids, more ? " .." : "");
}

static Error bind_self(Node *node, Why *why)
{
    char where[PORTS_TEXT_BYTES];
    return listen_open(ports_text(node->self->host, node->self->port, where), &node->listen, why);
}

static Error read_key(Node *node, char key[KEY_BYTES_MAX + 1], Why *why)
{
    char path[NODE_PATH_BYTES];
    Why warning;
    if (!node->cluster->key_file[0]) return OK;
    TRY(node_path(node->cluster_path, node->cluster->key_file, path, why));
    TRY(key_read(path, key, &warning, why));
    if (warning.text[0]) log_say(LOG_INFO, "%s: %s", node->self->id, warning.text);
    node->key = key;
    return OK;
}

typedef struct NodeTexts {
    char key[KEY_BYTES_MAX + 1];
    char certificate[NODE_PATH_BYTES], certificate_key[NODE_PATH_BYTES];
} NodeTexts;

static Error find_certificate(Node *node, NodeTexts *texts, Why *why)
{
    const ClusterFile *c = node->cluster;
    if (node->self->role == CLUSTER_COORDINATOR && node->options->certificate_file) {
        node->certificate_file = node->options->certificate_file;
        node->certificate_key_file = node->options->certificate_key_file;
        return OK;
    }
    if (!c->tls_certificate[0]) return OK;
    TRY(node_path(node->cluster_path, c->tls_certificate, texts->certificate, why));
    TRY(node_path(node->cluster_path, c->tls_key, texts->certificate_key, why));
    node->certificate_file = texts->certificate;
    node->certificate_key_file = texts->certificate_key;
    return OK;
}

static Error start(Node *node, NodeTexts *texts, const char *id, Why *why)
{
    TRY(find_self(node, id, why));
    ClusterRole role = node->self->role;
    if (!node_roles[role])
        return error_why(why, ERR_NOT_AVAILABLE, "a node as %s: not yet",
                         cluster_file_role_name(role));
    TRY(bind_self(node, why));
    TRY(read_key(node, texts->key, why));
    TRY(find_certificate(node, texts, why));
    return node_roles[role](node, why);
}

Error node_run(const ClusterFile *cluster, const char *cluster_path, const char *id,
               const NodeOptions *options, Why *why)
{
    NodeTexts texts;
    Node node = {.cluster = cluster, .cluster_path = cluster_path, .options = options};
    node.listen.fd = -1;
    stop_install();
    Error error = start(&node, &texts, id, why);
    if (node.listen.fd >= 0) close(node.listen.fd);
    explicit_bzero(texts.key, sizeof texts.key);
    return error;
}
