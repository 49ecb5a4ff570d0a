/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a cluster file. Every object is first spread over the list of its members' names: what is
 * not in the list, or twice in the object, is refused. */
#include <string.h>
#include <yyjson.h>

#include "wire/cluster_file.h"

typedef struct Reader {
    ClusterFile *file;
    Arena *arena;
    Why *why;
    /* wardens are named before they are known */
    yyjson_val *warden_names[CLUSTER_FILE_NODES_MAX];
} Reader;

enum { MEMBERS_MAX = 16 };

/* The value of names[i], or NULL, into out[i]. `where` names the object in errors. */
static Error reader_spread(const Reader *r, yyjson_val *object, const char *where,
                           const char *const *names, size_t count, yyjson_val **out)
{
    size_t at, members;
    yyjson_val *key, *value;
    if (!yyjson_is_obj(object)) return error_why(r->why, ERR_FORMAT, "%s must be an object", where);
    for (size_t i = 0; i < count; i++) out[i] = NULL;
    yyjson_obj_foreach(object, at, members, key, value)
    {
        size_t i = 0;
        while (i < count && !yyjson_equals_str(key, names[i])) i++;
        if (i == count)
            return error_why(r->why, ERR_FORMAT, "%s has an unknown member \"%.*s\"", where, 60,
                             yyjson_get_str(key));
        if (out[i]) return error_why(r->why, ERR_DUPLICATE, "%s has \"%s\" twice", where, names[i]);
        out[i] = value;
    }
    return OK;
}

static Error reader_missing(const Reader *r, const char *where, const char *name)
{
    return error_why(r->why, ERR_FORMAT, "%s has no \"%s\"", where, name);
}

static Error reader_number(const Reader *r, yyjson_val *value, const char *where, const char *name,
                           uint64_t low, uint64_t high, uint64_t *out)
{
    if (!value) return reader_missing(r, where, name);
    if (!yyjson_is_uint(value))
        return error_why(r->why, ERR_FORMAT, "%s: \"%s\" must be a whole number", where, name);
    *out = yyjson_get_uint(value);
    if (*out >= low && *out <= high) return OK;
    return error_why(r->why, ERR_RANGE, "%s: \"%s\" is %llu, it must be %llu to %llu", where, name,
                     (unsigned long long)*out, (unsigned long long)low, (unsigned long long)high);
}

static Error reader_number32(const Reader *r, yyjson_val *value, const char *where,
                             const char *name, uint32_t low, uint32_t high, uint32_t *out)
{
    uint64_t wide = 0;
    TRY(reader_number(r, value, where, name, low, high, &wide));
    *out = (uint32_t)wide;
    return OK;
}

static Error reader_copy(const Reader *r, const char *text, size_t bytes, const char **out)
{
    char *copy = arena_take(r->arena, bytes + 1);
    if (!copy) return error_why(r->why, ERR_MEMORY, "no memory to read the cluster file");
    memcpy(copy, text, bytes);
    *out = copy;
    return OK;
}

static Error reader_text(const Reader *r, yyjson_val *value, const char *where, const char *name,
                         size_t low, size_t high, const char **out)
{
    const char *text = yyjson_get_str(value);
    size_t bytes = yyjson_get_len(value);
    if (!value) return reader_missing(r, where, name);
    if (!text) return error_why(r->why, ERR_FORMAT, "%s: \"%s\" must be a string", where, name);
    if (bytes < low || bytes > high)
        return error_why(r->why, ERR_RANGE, "%s: \"%s\" has %zu bytes, it must have %zu to %zu",
                         where, name, bytes, low, high);
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return error_why(r->why, ERR_FORMAT, "%s: \"%s\" has a control character", where, name);
    return reader_copy(r, text, bytes, out);
}

static Error reader_flag(const Reader *r, yyjson_val *value, const char *where, const char *name,
                         bool *out)
{
    *out = yyjson_is_true(value);
    if (!value || yyjson_is_bool(value)) return OK;
    return error_why(r->why, ERR_FORMAT, "%s: \"%s\" must be true or false", where, name);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static Error reader_id(const Reader *r, yyjson_val *value, const char *where, ClusterRole role,
                       char out[CLUSTER_FILE_ID_BYTES])
{
    ClusterRole is = CLUSTER_ROLES;
    uint32_t number = 0;
    if (!value) return reader_missing(r, where, "id");
    if (!yyjson_is_str(value))
        return error_why(r->why, ERR_FORMAT, "%s: \"id\" must be a string", where);
    TRY(cluster_file_parse_id(yyjson_get_str(value), yyjson_get_len(value), &is, &number, r->why));
    if (is != role)
        return error_why(r->why, ERR_FORMAT, "%s: \"%s\" is not the id of a %s", where,
                         yyjson_get_str(value), cluster_file_role_name(role));
    cluster_file_make_id(role, number, out);
    return OK;
}

static Error reader_address(const Reader *r, yyjson_val *value, const char *id, ClusterNode *node)
{
    size_t at = 0, bytes = 0;
    if (!value) return reader_missing(r, id, "address");
    if (!yyjson_is_str(value))
        return error_why(r->why, ERR_FORMAT, "%s: \"address\" must be a string", id);
    TRY(cluster_file_parse_address(yyjson_get_str(value), yyjson_get_len(value), &at, &bytes,
                                   &node->port, r->why));
    return reader_copy(r, yyjson_get_str(value) + at, bytes, &node->host);
}

static Error reader_new_node(Reader *r, ClusterRole role, yyjson_val *id, yyjson_val *address,
                             const char *where, ClusterNode **out)
{
    ClusterFile *c = r->file;
    if (c->node_count == CLUSTER_FILE_NODES_MAX)
        return error_why(r->why, ERR_TOO_LARGE, "more than %u nodes",
                         (unsigned)CLUSTER_FILE_NODES_MAX);
    ClusterNode *node = &c->nodes[c->node_count];
    *node = (ClusterNode){.role = role, .warden = CLUSTER_FILE_NONE, .cache = "", .socket = ""};
    TRY(reader_id(r, id, where, role, node->id));
    TRY(reader_address(r, address, node->id, node));
    c->node_count++;
    *out = node;
    return OK;
}

static Error reader_phases(const Reader *r, yyjson_val *value, ClusterNode *node)
{
    const char *text = yyjson_get_str(value);
    if (!value) return reader_missing(r, node->id, "range");
    if (!text) return error_why(r->why, ERR_FORMAT, "%s: \"range\" must be a string", node->id);
    size_t bytes = yyjson_get_len(value);
    const char *dash = memchr(text, '-', bytes);
    if (!dash)
        return error_why(r->why, ERR_FORMAT, "%s: the range \"%.*s\" has no dash", node->id, 60,
                         text);
    size_t before = (size_t)(dash - text);
    TRY(phase_parse_bound(text, before, r->file->layers, &node->range.first, r->why));
    return phase_parse_bound(dash + 1, bytes - before - 1, r->file->layers, &node->range.last,
                             r->why);
}

static Error reader_ids(const Reader *r, yyjson_val *value, ClusterNode *node)
{
    if (!value) return reader_missing(r, node->id, "ids");
    if (!yyjson_is_arr(value) || yyjson_arr_size(value) != 2)
        return error_why(r->why, ERR_FORMAT, "%s: \"ids\" must be [first, behind_last]", node->id);
    uint32_t most = r->file->vocabulary;
    TRY(reader_number32(r, yyjson_arr_get_first(value), node->id, "ids", 0, most, &node->id_first));
    return reader_number32(r, yyjson_arr_get_last(value), node->id, "ids", 0, most, &node->id_last);
}

static Error reader_replicas(Reader *r, yyjson_val *list, const ClusterNode *of)
{
    static const char *const names[] = {"id", "address"};
    size_t at, count;
    yyjson_val *item, *member[2];
    if (!list) return OK;
    if (!yyjson_is_arr(list))
        return error_why(r->why, ERR_FORMAT, "%s: \"replicas\" must be an array", of->id);
    yyjson_arr_foreach(list, at, count, item)
    {
        ClusterNode *node;
        TRY(reader_spread(r, item, "a replica", names, 2, member));
        TRY(reader_new_node(r, of->role, member[0], member[1], "a replica", &node));
        node->range = of->range;
        node->id_first = of->id_first, node->id_last = of->id_last;
        node->part = of->part;
        node->is_replica = true;
        node->embed = of->embed, node->head = of->head;
        r->warden_names[node - r->file->nodes] = r->warden_names[of - r->file->nodes];
    }
    return OK;
}

typedef struct RoleList {
    ClusterRole role;
    const char *name, *where;
    const char *const *members; /* id, address, the range, then what is optional */
    size_t member_count;
} RoleList;

static const char *const station_members[] = {"id",     "address", "range", "replicas",
                                              "warden", "embed",   "head"};
static const char *const shard_members[] = {"id", "address", "ids", "replicas", "warden"};
static const char *const layer_warden_members[] = {"id",    "address",     "range",
                                                   "cache", "cache_bytes", "socket"};
static const char *const shard_warden_members[] = {"id",    "address",     "ids",
                                                   "cache", "cache_bytes", "socket"};
static const RoleList reader_roles[] = {
    {CLUSTER_STATION, "stations", "a station", station_members, 7},
    {CLUSTER_SHARD, "shards", "a shard", shard_members, 5},
    {CLUSTER_LAYER_WARDEN, "layer_wardens", "a layer warden", layer_warden_members, 6},
    {CLUSTER_SHARD_WARDEN, "shard_wardens", "a shard warden", shard_warden_members, 6}};

static Error reader_warden_members(Reader *r, yyjson_val *const *member, ClusterNode *node)
{
    const uint64_t high = (uint64_t)1 << 50;
    if (member[3])
        TRY(reader_text(r, member[3], node->id, "cache", 0, CLUSTER_FILE_TEXT_BYTES_MAX,
                        &node->cache));
    if (member[4])
        TRY(reader_number(r, member[4], node->id, "cache_bytes", 0, high, &node->cache_bytes));
    if (!member[5]) return OK;
    return reader_text(r, member[5], node->id, "socket", 0, CLUSTER_FILE_SOCKET_BYTES_MAX,
                       &node->socket);
}

static Error reader_worker_members(Reader *r, yyjson_val *const *member, ClusterNode *node)
{
    TRY(reader_flag(r, member[5], node->id, "embed", &node->embed));
    TRY(reader_flag(r, member[6], node->id, "head", &node->head));
    const char *warden = yyjson_get_str(member[4]);
    if (member[4] && (!warden || strlen(warden) != yyjson_get_len(member[4])))
        return error_why(r->why, ERR_FORMAT, "%s: \"warden\" must be an id", node->id);
    r->warden_names[node - r->file->nodes] = member[4];
    return reader_replicas(r, member[3], node);
}

static Error reader_entry(Reader *r, const RoleList *role, yyjson_val *item)
{
    yyjson_val *member[MEMBERS_MAX] = {NULL};
    ClusterNode *node;
    bool phases = role->role == CLUSTER_STATION || role->role == CLUSTER_LAYER_WARDEN;
    TRY(reader_spread(r, item, role->where, role->members, role->member_count, member));
    TRY(reader_new_node(r, role->role, member[0], member[1], role->where, &node));
    node->part = r->file->parts[role->role]++;
    TRY(phases ? reader_phases(r, member[2], node) : reader_ids(r, member[2], node));
    return cluster_file_is_warden(role->role) ? reader_warden_members(r, member, node)
                                              : reader_worker_members(r, member, node);
}

static Error reader_list(Reader *r, const RoleList *role, yyjson_val *list)
{
    size_t at, count;
    yyjson_val *item;
    if (!list && cluster_file_is_warden(role->role)) return OK;
    if (!list) return reader_missing(r, "the file", role->name);
    if (!yyjson_is_arr(list))
        return error_why(r->why, ERR_FORMAT, "\"%s\" must be an array", role->name);
    yyjson_arr_foreach(list, at, count, item) TRY(reader_entry(r, role, item));
    return OK;
}

static Error reader_resolve_wardens(const Reader *r)
{
    ClusterFile *c = r->file;
    for (uint32_t i = 0; i < c->node_count; i++) {
        const char *name = yyjson_get_str(r->warden_names[i]);
        if (!name) continue;
        const ClusterNode *warden = cluster_file_find(c, name);
        if (!warden)
            return error_why(r->why, ERR_NOT_FOUND,
                             "%s has the warden \"%.*s\", which is not in the file", c->nodes[i].id,
                             40, name);
        c->nodes[i].warden = (uint32_t)(warden - c->nodes);
    }
    return OK;
}

/* ---- the file -------------------------------------------------------------------------------- */

static Error reader_knot_id(const Reader *r, yyjson_val *value, uint64_t *out)
{
    const char *text = yyjson_get_str(value);
    bool valid = text && yyjson_get_len(value) == 16;
    *out = 0;
    for (int i = 0; valid && i < 16; i++) {
        bool digit = text[i] >= '0' && text[i] <= '9';
        valid = digit || (text[i] >= 'a' && text[i] <= 'f');
        *out = *out << 4 | (uint64_t)(digit ? text[i] - '0' : text[i] - 'a' + 10);
    }
    if (valid) return OK;
    return error_why(r->why, ERR_FORMAT,
                     "model: \"knot_id\" must be 16 lower-case hexadecimal digits");
}

static Error reader_model(const Reader *r, yyjson_val *object)
{
    static const char *const names[] = {"name",  "knot_id", "knot_key",
                                        "store", "layers",  "vocabulary"};
    yyjson_val *m[6];
    ClusterFile *c = r->file;
    if (!object) return reader_missing(r, "the file", "model");
    TRY(reader_spread(r, object, "model", names, 6, m));
    TRY(reader_text(r, m[0], "model", "name", 1, 95, &c->model_name));
    TRY(reader_knot_id(r, m[1], &c->knot_id));
    TRY(reader_text(r, m[2], "model", "knot_key", 1, CLUSTER_FILE_TEXT_BYTES_MAX, &c->knot_key));
    if (m[3])
        TRY(reader_text(r, m[3], "model", "store", 0, CLUSTER_FILE_TEXT_BYTES_MAX, &c->store));
    TRY(reader_number32(r, m[4], "model", "layers", 1, HYPER_LAYERS_MAX, &c->layers));
    return reader_number32(r, m[5], "model", "vocabulary", 1, HYPER_VOCABULARY_MAX, &c->vocabulary);
}

enum {
    M_VERSION,
    M_MODEL,
    M_COORDINATOR,
    M_STATIONS,
    M_SHARDS,
    M_LAYER_WARDENS,
    M_SHARD_WARDENS,
    M_MEMORY,
    M_WARDEN_MEMORY,
    M_CONTEXT,
    M_CHUNK,
    M_SESSIONS,
    M_CACHE,
    M_ELEMENT,
    M_KEY,
    M_PIPELINE,
    M_TLS,
    M_COUNT
};
static const char *const file_members[M_COUNT] = {
    "cobord_cluster", "model",   "coordinator",   "stations", "shards", "layer_wardens",
    "shard_wardens",  "memory",  "warden_memory", "context",  "chunk",  "sessions",
    "cache_type",     "element", "key_file",      "pipeline", "tls"};

static Error reader_cache(const Reader *r, yyjson_val *value)
{
    r->file->cache = yyjson_equals_str(value, "q8_0") ? CACHE_Q8_0 : CACHE_F16;
    if (!value || yyjson_equals_str(value, "q8_0") || yyjson_equals_str(value, "f16")) return OK;
    return error_why(r->why, ERR_FORMAT, "\"cache_type\" must be \"f16\" or \"q8_0\"");
}

static Error reader_element(const Reader *r, yyjson_val *value)
{
    if (!value) return OK;
    if (!yyjson_is_str(value)) return error_why(r->why, ERR_FORMAT, "\"element\" must be a string");
    return rows_element_from_name(yyjson_get_str(value), yyjson_get_len(value), &r->file->element,
                                  r->why);
}

static Error reader_tls(const Reader *r, yyjson_val *object)
{
    static const char *const names[] = {"certificate", "key", "ca"};
    ClusterFile *c = r->file;
    const char **out[] = {&c->tls_certificate, &c->tls_key, &c->tls_ca};
    yyjson_val *m[3];
    if (!object) return OK;
    TRY(reader_spread(r, object, "tls", names, 3, m));
    for (size_t i = 0; i < 3; i++)
        if (m[i])
            TRY(reader_text(r, m[i], "tls", names[i], 0, CLUSTER_FILE_TEXT_BYTES_MAX, out[i]));
    if (!*c->tls_certificate == !*c->tls_key) return OK;
    return error_why(r->why, ERR_FORMAT, "tls: \"certificate\" and \"key\" go together");
}

static Error reader_settings(const Reader *r, yyjson_val *const *m)
{
    ClusterFile *c = r->file;
    const uint64_t low = 1 << 20, high = (uint64_t)1 << 50;
    const char *where = "the file";
    c->memory_bytes = c->warden_memory_bytes = 128 << 20;
    c->sessions = 1;
    c->element = ROWS_F32;
    c->store = c->key_file = "";
    c->tls_certificate = c->tls_key = c->tls_ca = "";
    if (m[M_MEMORY])
        TRY(reader_number(r, m[M_MEMORY], where, "memory", low, high, &c->memory_bytes));
    if (m[M_WARDEN_MEMORY])
        TRY(reader_number(r, m[M_WARDEN_MEMORY], where, "warden_memory", low, high,
                          &c->warden_memory_bytes));
    TRY(reader_number32(r, m[M_CONTEXT], where, "context", 1, 1 << 20, &c->context));
    if (m[M_CHUNK]) TRY(reader_number32(r, m[M_CHUNK], where, "chunk", 0, 4096, &c->chunk));
    if (m[M_SESSIONS])
        TRY(reader_number32(r, m[M_SESSIONS], where, "sessions", 1, 1024, &c->sessions));
    if (m[M_PIPELINE])
        TRY(reader_number32(r, m[M_PIPELINE], where, "pipeline", 0, CLUSTER_FILE_PIPELINE_MAX,
                            &c->pipeline));
    TRY(reader_cache(r, m[M_CACHE]));
    TRY(reader_element(r, m[M_ELEMENT]));
    TRY(reader_tls(r, m[M_TLS]));
    if (!m[M_KEY]) return OK;
    return reader_text(r, m[M_KEY], where, "key_file", 0, CLUSTER_FILE_TEXT_BYTES_MAX,
                       &c->key_file);
}

static Error reader_coordinator(Reader *r, yyjson_val *object)
{
    static const char *const names[] = {"id", "address"};
    yyjson_val *m[2];
    ClusterNode *node;
    if (!object) return reader_missing(r, "the file", "coordinator");
    TRY(reader_spread(r, object, "coordinator", names, 2, m));
    r->file->parts[CLUSTER_COORDINATOR] = 1;
    return reader_new_node(r, CLUSTER_COORDINATOR, m[0], m[1], "coordinator", &node);
}

/* First of all: members of another version are not ours to judge. */
static Error reader_version(const Reader *r, yyjson_val *version)
{
    if (!yyjson_is_uint(version) || yyjson_get_uint(version) == CLUSTER_FILE_VERSION) return OK;
    return error_why(r->why, ERR_UNSUPPORTED,
                     "the cluster file has version %llu, this program %u. Use the "
                     "cobord that wrote it on every machine, or write it again with `cobord plan`",
                     (unsigned long long)yyjson_get_uint(version), (unsigned)CLUSTER_FILE_VERSION);
}

static Error reader_file(Reader *r, yyjson_val *root)
{
    yyjson_val *m[M_COUNT];
    uint64_t version = 0;
    TRY(reader_version(r, yyjson_obj_get(root, "cobord_cluster")));
    TRY(reader_spread(r, root, "the file", file_members, M_COUNT, m));
    TRY(reader_number(r, m[M_VERSION], "the file", "cobord_cluster", 0, UINT64_MAX, &version));
    TRY(reader_settings(r, m));
    TRY(reader_model(r, m[M_MODEL]));
    TRY(reader_coordinator(r, m[M_COORDINATOR]));
    for (int i = 0; i < 4; i++) TRY(reader_list(r, &reader_roles[i], m[M_STATIONS + i]));
    TRY(reader_resolve_wardens(r));
    uint32_t stations = r->file->parts[CLUSTER_STATION];
    if (!r->file->pipeline)
        r->file->pipeline =
            stations < CLUSTER_FILE_PIPELINE_MAX ? stations : CLUSTER_FILE_PIPELINE_MAX;
    return cluster_file_check(r->file, r->why);
}

/* Texts cost up to 64 bytes more each in the arena: a node has at most three, the file eight. */
size_t cluster_file_arena_bytes(size_t text_bytes)
{
    return arena_bytes(CLUSTER_FILE_NODES_MAX * sizeof(ClusterNode)) + arena_bytes(sizeof(Reader)) +
           text_bytes + (3 * CLUSTER_FILE_NODES_MAX + 8) * (size_t)(2 * ARENA_ALIGN) +
           arena_bytes(yyjson_read_max_memory_usage(text_bytes, YYJSON_READ_NOFLAG)) + 4096;
}

Error cluster_file_parse(const char *text, size_t bytes, Arena *arena, ClusterFile *out, Why *why)
{
    if (bytes > CLUSTER_FILE_BYTES_MAX)
        return error_why(why, ERR_TOO_LARGE,
                         "the cluster file has %zu bytes, at most %u are allowed", bytes,
                         (unsigned)CLUSTER_FILE_BYTES_MAX);
    if (bytes == 0) return error_why(why, ERR_FORMAT, "the cluster file is empty");
    memset(out, 0, sizeof *out);
    out->nodes = ARENA_NEW(arena, ClusterNode, CLUSTER_FILE_NODES_MAX);
    Reader *reader = ARENA_NEW(arena, Reader, 1);
    size_t pool_bytes = yyjson_read_max_memory_usage(bytes, YYJSON_READ_NOFLAG) + 1024;
    void *pool = arena_take_raw(arena, pool_bytes);
    yyjson_alc allocator;
    if (!out->nodes || !reader || !pool || !yyjson_alc_pool_init(&allocator, pool, pool_bytes))
        return error_why(why, ERR_MEMORY, "no memory to read the cluster file");
    yyjson_read_err fault = {0};
    yyjson_doc *doc =
        yyjson_read_opts((char *)(uintptr_t)text, bytes, YYJSON_READ_NOFLAG, &allocator, &fault);
    if (!doc)
        return error_why(why, ERR_FORMAT, "the cluster file is no JSON: %s at byte %zu", fault.msg,
                         fault.pos);
    reader->file = out, reader->arena = arena, reader->why = why;
    return reader_file(reader, yyjson_doc_get_root(doc));
}
