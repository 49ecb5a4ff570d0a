/* SPDX-License-Identifier: Apache-2.0 */
/* Ids, addresses, the rules between members, and writing. Reading is in cluster_file_read.c. */
#include "wire/cluster_file.h"

#include <string.h>

#include "knot/emit.h"

static const char *const cluster_file_roles[CLUSTER_ROLES] = {"coordinator", "station", "shard",
                                                              "layer-warden", "shard-warden"};

const char *cluster_file_role_name(ClusterRole role) { return cluster_file_roles[role]; }

bool cluster_file_is_warden(ClusterRole role)
{
    return role == CLUSTER_LAYER_WARDEN || role == CLUSTER_SHARD_WARDEN;
}

/* ---- ids and addresses ----------------------------------------------------------------------- */

/* Decimal without leading zeros; `digits_max` of them. */
static bool cluster_file_number(const char *text, size_t bytes, size_t digits_max, uint32_t *out)
{
    uint32_t value = 0;
    if (bytes == 0 || bytes > digits_max || (bytes > 1 && text[0] == '0')) return false;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        value = value * 10 + (uint32_t)(text[i] - '0');
    }
    *out = value;
    return true;
}

static int cluster_file_shown(size_t bytes) { return bytes < 80 ? (int)bytes : 80; }

Error cluster_file_parse_id(const char *text, size_t bytes, ClusterRole *role, uint32_t *number,
                            Why *why)
{
    for (int r = 0; r < CLUSTER_ROLES; r++) {
        size_t n = strlen(cluster_file_roles[r]);
        if (bytes <= n + 1 || memcmp(text, cluster_file_roles[r], n) != 0 || text[n] != '-')
            continue;
        if (!cluster_file_number(text + n + 1, bytes - n - 1, 4, number)) continue;
        if (r == CLUSTER_COORDINATOR && *number != 0) continue;
        *role = (ClusterRole)r;
        return OK;
    }
    return error_why(why, ERR_FORMAT,
                     "\"%.*s\" is no id; coordinator-0, station-K, shard-K, layer-warden-K and "
                     "shard-warden-K are",
                     cluster_file_shown(bytes), text);
}

void cluster_file_make_id(ClusterRole role, uint32_t number, char out[CLUSTER_FILE_ID_BYTES])
{
    Emit e = emit_make(out, CLUSTER_FILE_ID_BYTES - 1);
    ASSERT(number <= 9999);
    emit_text(&e, cluster_file_roles[role]);
    emit_text(&e, "-");
    emit_u64(&e, number);
    out[e.used] = '\0';
}

static bool cluster_file_is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool cluster_file_is_ipv6(const char *host, size_t bytes)
{
    size_t colons = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (!cluster_file_is_hex(host[i]) && host[i] != ':' && host[i] != '.') return false;
        colons += host[i] == ':';
    }
    return bytes >= 2 && bytes <= 45 && colons >= 2 && colons <= 8;
}

static bool cluster_file_is_name(const char *host, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        char c = host[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter && c != '.' && c != '-' && c != '_') return false;
    }
    return bytes >= 1 && bytes <= CLUSTER_FILE_HOST_BYTES_MAX && host[0] != '-';
}

Error cluster_file_parse_address(const char *text, size_t bytes, size_t *host_at,
                                 size_t *host_bytes, uint16_t *port, Why *why)
{
    bool bracket = bytes && text[0] == '[';
    size_t colon = bytes;
    uint32_t number = 0;
    while (colon > 0 && text[colon - 1] != ':') colon--;
    if (colon > 0 && cluster_file_number(text + colon, bytes - colon, 5, &number) && number >= 1 &&
        number <= 65535) {
        size_t first = bracket ? 1 : 0, last = colon - 1; /* of the host */
        bool closed = !bracket || (last > first && text[last - 1] == ']');
        if (bracket && closed) last--;
        bool valid = bracket ? closed && cluster_file_is_ipv6(text + first, last - first)
                             : cluster_file_is_name(text + first, last - first);
        *host_at = first;
        *host_bytes = last - first;
        *port = (uint16_t)number;
        if (valid) return OK;
    }
    return error_why(why, ERR_FORMAT,
                     "\"%.*s\" is no address; HOST:PORT is, with an IPv6 host in brackets",
                     cluster_file_shown(bytes), text);
}

const ClusterNode *cluster_file_find(const ClusterFile *c, const char *id)
{
    for (uint32_t i = 0; i < c->node_count; i++)
        if (strcmp(c->nodes[i].id, id) == 0) return &c->nodes[i];
    return NULL;
}

uint32_t cluster_file_part(const ClusterFile *c, ClusterRole role, uint32_t part)
{
    for (uint32_t i = 0; i < c->node_count; i++)
        if (c->nodes[i].role == role && c->nodes[i].part == part && !c->nodes[i].is_replica)
            return i;
    return CLUSTER_FILE_NONE;
}

/* ---- rules between members ------------------------------------------------------------------- */

static Error cluster_file_check_once(const ClusterFile *c, Why *why)
{
    for (uint32_t i = 0; i < c->node_count; i++)
        for (uint32_t j = 0; j < i; j++) {
            const ClusterNode *a = &c->nodes[j], *b = &c->nodes[i];
            if (strcmp(a->id, b->id) == 0)
                return error_why(why, ERR_DUPLICATE, "%s appears twice", a->id);
            if (a->port == b->port && strcmp(a->host, b->host) == 0)
                return error_why(why, ERR_DUPLICATE, "%s and %s have one address, %s port %u",
                                 a->id, b->id, a->host, (unsigned)a->port);
        }
    return OK;
}

/* Says which rows or layers nobody has, or two have. */
static Error cluster_file_no_meeting(const ClusterNode *node, const ClusterNode *before,
                                     uint32_t first, uint32_t expected, Why *why)
{
    bool gap = first > expected;
    const char *before_id = before ? before->id : "the beginning";
    if (node->role == CLUSTER_SHARD)
        return error_why(why, ERR_RANGE, "ids %u to %u %s between %s and %s",
                         gap ? expected : first, gap ? first : expected,
                         gap ? "are owned by nobody," : "are owned twice,", before_id, node->id);
    return error_why(
        why, ERR_RANGE, "layer %u %s to layer %u %s %s between %s and %s",
        phase_layer(gap ? expected : first), phase_name(phase_of(gap ? expected : first)),
        phase_layer(gap ? first : expected), phase_name(phase_of(gap ? first : expected)),
        gap ? "is owned by nobody," : "is owned twice,", before_id, node->id);
}

static Error cluster_file_check_meeting(const ClusterFile *c, ClusterRole role, Why *why)
{
    bool shards = role == CLUSTER_SHARD;
    uint32_t expected = 0, end = shards ? c->vocabulary : phase_bound(c->layers, PHASE_ATTN);
    const ClusterNode *before = NULL;
    for (uint32_t i = 0; i < c->node_count; i++) {
        const ClusterNode *n = &c->nodes[i];
        uint32_t first = shards ? n->id_first : n->range.first;
        uint32_t last = shards ? n->id_last : n->range.last;
        if (n->role != role || n->is_replica) continue;
        if (first >= last || last > end)
            return error_why(why, ERR_RANGE, "the range of %s is empty or beyond the model", n->id);
        if (first != expected) return cluster_file_no_meeting(n, before, first, expected, why);
        expected = last;
        before = n;
    }
    if (expected == end || (shards && !before)) return OK;
    if (shards) return error_why(why, ERR_RANGE, "ids %u to %u are owned by nobody", expected, end);
    return error_why(why, ERR_RANGE, "layer %u %s to the end, layer %u, is owned by nobody",
                     phase_layer(expected), phase_name(phase_of(expected)), c->layers);
}

static bool cluster_file_covers(const ClusterNode *w, const ClusterNode *n)
{
    if (n->role == CLUSTER_STATION)
        return w->role == CLUSTER_LAYER_WARDEN && w->range.first <= n->range.first &&
               w->range.last >= n->range.last;
    return w->role == CLUSTER_SHARD_WARDEN && w->id_first <= n->id_first &&
           w->id_last >= n->id_last;
}

static Error cluster_file_check_wardens(const ClusterFile *c, Why *why)
{
    uint32_t layers_end = phase_bound(c->layers, PHASE_ATTN);
    for (uint32_t i = 0; i < c->node_count; i++) {
        const ClusterNode *n = &c->nodes[i];
        bool layer = n->role == CLUSTER_LAYER_WARDEN, shard = n->role == CLUSTER_SHARD_WARDEN;
        if ((layer && (n->range.first >= n->range.last || n->range.last > layers_end)) ||
            (shard && (n->id_first >= n->id_last || n->id_last > c->vocabulary)))
            return error_why(why, ERR_RANGE, "the range of %s is empty or beyond the model", n->id);
        if (n->warden == CLUSTER_FILE_NONE) continue;
        if (n->warden >= c->node_count)
            return error_why(why, ERR_NOT_FOUND, "the warden of %s does not exist", n->id);
        if (!cluster_file_covers(&c->nodes[n->warden], n))
            return error_why(why, ERR_RANGE, "%s does not have all that %s needs",
                             c->nodes[n->warden].id, n->id);
    }
    return OK;
}

/* Who has the embedding and the head when there are no shards. */
static Error cluster_file_check_ends(const ClusterFile *c, Why *why)
{
    bool embed = false, head = false;
    for (uint32_t i = 0; i < c->node_count; i++) {
        const ClusterNode *n = &c->nodes[i];
        if (n->embed && (n->role != CLUSTER_STATION || n->part != 0))
            return error_why(why, ERR_RANGE,
                             "%s cannot have the embedding: only the first station can", n->id);
        if (n->head && (n->role != CLUSTER_STATION || n->part + 1 != c->parts[CLUSTER_STATION]))
            return error_why(why, ERR_RANGE, "%s cannot have the head: only the last station can",
                             n->id);
        embed |= n->embed;
        head |= n->head;
    }
    if (c->parts[CLUSTER_SHARD] && embed && head)
        return error_why(why, ERR_RANGE,
                         "shards that nobody asks: stations have embedding and head");
    if (c->parts[CLUSTER_SHARD] || (embed && head)) return OK;
    return error_why(why, ERR_RANGE, "no shards, and no station has the %s",
                     embed ? "head" : "embedding");
}

Error cluster_file_check(const ClusterFile *c, Why *why)
{
    TRY(cluster_file_check_once(c, why));
    TRY(cluster_file_check_meeting(c, CLUSTER_STATION, why));
    TRY(cluster_file_check_meeting(c, CLUSTER_SHARD, why));
    TRY(cluster_file_check_wardens(c, why));
    return cluster_file_check_ends(c, why);
}

/* ---- writing --------------------------------------------------------------------------------- */

static void put_name(Emit *e, const char *name)
{
    emit_string(e, name);
    emit_text(e, ": ");
}

static void put_text(Emit *e, const char *name, const char *value)
{
    put_name(e, name);
    emit_string(e, value);
    emit_text(e, ", ");
}

static void put_number(Emit *e, const char *name, uint64_t value)
{
    put_name(e, name);
    emit_u64(e, value);
    emit_text(e, ", ");
}

static void put_node(Emit *e, const ClusterNode *n)
{
    bool ipv6 = strchr(n->host, ':') != NULL;
    put_text(e, "id", n->id);
    put_name(e, "address");
    emit_text(e, ipv6 ? "\"[" : "\"");
    emit_text(e, n->host);
    emit_text(e, ipv6 ? "]:" : ":");
    emit_u64(e, n->port);
    emit_text(e, "\"");
}

static void put_range(Emit *e, const ClusterFile *c, const ClusterNode *n)
{
    char text[PHASE_RANGE_TEXT_MAX];
    if (n->role == CLUSTER_STATION || n->role == CLUSTER_LAYER_WARDEN) {
        emit_text(e, ", \"range\": ");
        emit_string(e, phase_range_text(n->range, c->layers, text));
        return;
    }
    emit_text(e, ", \"ids\": [");
    emit_u64(e, n->id_first);
    emit_text(e, ", ");
    emit_u64(e, n->id_last);
    emit_text(e, "]");
}

static void put_replicas(Emit *e, const ClusterFile *c, uint32_t first)
{
    for (uint32_t i = first; i < c->node_count && c->nodes[i].is_replica; i++) {
        emit_text(e, i == first ? ", \"replicas\": [{" : "}, {");
        put_node(e, &c->nodes[i]);
        if (i + 1 == c->node_count || !c->nodes[i + 1].is_replica) emit_text(e, "}]");
    }
}

static void put_warden_members(Emit *e, const ClusterNode *n)
{
    if (n->cache && *n->cache) {
        emit_text(e, ", \"cache\": ");
        emit_string(e, n->cache);
    }
    if (n->cache_bytes) {
        emit_text(e, ", \"cache_bytes\": ");
        emit_u64(e, n->cache_bytes);
    }
    if (n->socket && *n->socket) {
        emit_text(e, ", \"socket\": ");
        emit_string(e, n->socket);
    }
}

static void put_tls(Emit *e, const ClusterFile *c)
{
    const char *names[] = {"certificate", "key", "ca"};
    const char *values[] = {c->tls_certificate, c->tls_key, c->tls_ca};
    bool any = false;
    for (size_t i = 0; i < 3; i++) {
        if (!values[i] || !*values[i]) continue;
        emit_text(e, any ? ", " : "\n  \"tls\": {");
        any = true;
        put_name(e, names[i]);
        emit_string(e, values[i]);
    }
    if (any) emit_text(e, "},");
}

static void put_role(Emit *e, const ClusterFile *c, ClusterRole role, const char *name)
{
    bool any = false;
    put_name(e, name);
    emit_text(e, "[");
    for (uint32_t i = 0; i < c->node_count; i++) {
        const ClusterNode *n = &c->nodes[i];
        if (n->role != role || n->is_replica) continue;
        emit_text(e, any ? ",\n    {" : "\n    {");
        any = true;
        put_node(e, n);
        put_range(e, c, n);
        put_replicas(e, c, i + 1);
        if (n->warden != CLUSTER_FILE_NONE) {
            emit_text(e, ", \"warden\": ");
            emit_string(e, c->nodes[n->warden].id);
        }
        put_warden_members(e, n);
        if (n->embed) emit_text(e, ", \"embed\": true");
        if (n->head) emit_text(e, ", \"head\": true");
        emit_text(e, "}");
    }
    emit_text(e, "]");
}

static void put_model(Emit *e, const ClusterFile *c)
{
    put_name(e, "model");
    emit_text(e, "{");
    put_text(e, "name", c->model_name);
    put_name(e, "knot_id");
    emit_text(e, "\"");
    emit_hex64(e, c->knot_id);
    emit_text(e, "\", ");
    put_text(e, "knot_key", c->knot_key);
    put_text(e, "store", c->store);
    put_number(e, "layers", c->layers);
    put_name(e, "vocabulary");
    emit_u64(e, c->vocabulary);
    emit_text(e, "},\n  ");
}

Error cluster_file_write(const ClusterFile *c, char *out, size_t room, size_t *bytes, Why *why)
{
    static const struct {
        ClusterRole role;
        const char *name;
    } lists[] = {{CLUSTER_STATION, "stations"},
                 {CLUSTER_SHARD, "shards"},
                 {CLUSTER_LAYER_WARDEN, "layer_wardens"},
                 {CLUSTER_SHARD_WARDEN, "shard_wardens"}};
    Emit e = emit_make(out, room);
    ASSERT(c->node_count && c->nodes[0].role == CLUSTER_COORDINATOR);
    emit_text(&e, "{\n  ");
    put_number(&e, "cobord_cluster", CLUSTER_FILE_VERSION);
    put_model(&e, c);
    put_number(&e, "memory", c->memory_bytes);
    put_number(&e, "warden_memory", c->warden_memory_bytes);
    put_number(&e, "context", c->context);
    put_number(&e, "chunk", c->chunk);
    put_number(&e, "sessions", c->sessions);
    put_number(&e, "pipeline", c->pipeline);
    put_text(&e, "cache_type", c->cache == CACHE_F16 ? "f16" : "q8_0");
    put_text(&e, "element", rows_element_name(c->element));
    put_text(&e, "key_file", c->key_file);
    put_tls(&e, c);
    emit_text(&e, "\n  \"coordinator\": {");
    put_node(&e, &c->nodes[0]);
    emit_text(&e, "}");
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        emit_text(&e, ",\n  ");
        put_role(&e, c, lists[i].role, lists[i].name);
    }
    emit_text(&e, "\n}\n");
    *bytes = e.used;
    if (!emit_fits(&e))
        return error_why(why, ERR_CAPACITY, "the cluster file needs more than %zu bytes", room);
    return OK;
}
