/* SPDX-License-Identifier: Apache-2.0 */
/* The opening of every node: settings, the knot's index, then what its role does. */
#include <string.h>

#include "api/json_writer.h"
#include "base/min.h"
#include "cluster/isolate.h"
#include "node_loop.h"
#include "reserve.h"

static KnotIndexOpening opening;
static KnotIndexNeed need;
static uint8_t *memory, *scratch;
static uint8_t *index_mark;
static uint64_t file_bytes;

static void open_role(Node *n);
static void bring(Node *n);

/* ---- The index ---- */

static void start_index(Node *n)
{
    node_give_back(n, index_mark);
    memset(&n->index, 0, sizeof n->index);
    opening = knot_index_start(n->knot_id, file_bytes, &n->index);
    bring(n);
}

/* What a warden gave wrong is read from the store. */
static void give_up(Node *n, Error error, const Why *why)
{
    if (!node_warden_is_there(n)) {
        node_open_failed(n, error, why);
        return;
    }
    node_warden_rests(n);
    start_index(n);
}

static void part_came(Node *n)
{
    Why why = n->fetch.why;
    Error error = need.bytes ? n->fetch.error : OK;
    if (error == OK) error = knot_index_give(&opening, memory, scratch, &why);
    if (error != OK) give_up(n, error, &why);
    else bring(n);
}

/* Memory for it: a header that grows is the last that was taken, so it grows in place. */
static bool take_memory(Node *n)
{
    if (need.grows) node_give_back(n, n->index.header);
    uint8_t *end = node_mark(n);
    if (need.grows) {
        if (!node_lend(n, need.memory_bytes)) return false;
        node_give_back(n,
                       end + ((need.memory_bytes + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1)));
        memory = end;
    } else if (need.memory_bytes) {
        memory = node_take(n, need.memory_bytes);
        if (!memory) return false;
    }
    scratch = need.scratch_bytes ? node_lend(n, need.scratch_bytes) : NULL;
    return scratch || !need.scratch_bytes;
}

static void bring(Node *n)
{
    Why why;
    if (!knot_index_need(&opening, &need)) {
        open_role(n);
        return;
    }
    if (!take_memory(n)) {
        node_open_failed(n, error_why(&why, ERR_MEMORY, "no memory for the knot's tables"), &why);
        return;
    }
    if (!need.bytes) part_came(n);
    else
        node_want_range(n, need.offset, need.bytes,
                        (need.into_scratch ? scratch : memory) + need.at, part_came);
}

static void open_role(Node *n)
{
    Why why = {{0}};
    Error error = hyper_from_knot(&n->index.knot, &n->hyper, &why);
    if (error != OK) node_open_failed(n, error, &why);
    else n->role->open(n);
}

static void size_came(Node *n)
{
    Why why;
    file_bytes = n->came[0].bytes;
    if (n->came[0].failed || !file_bytes)
        node_open_failed(
            n, error_why(&why, ERR_UNREACHABLE, "%s: %s", n->knot_key, n->failure.text), &why);
    else start_index(n);
}

/* ---- Settings ---- */

static Error read_knot_id(Node *n, Why *why)
{
    const char *text = node_setting(n, "KNOT_ID");
    n->knot_id = 0;
    for (size_t i = 0; text && text[i]; i++) {
        const char *digits = "0123456789abcdef", *digit = strchr(digits, text[i]);
        if (!digit || i >= 16)
            return error_why(why, ERR_USAGE, "KNOT_ID \"%s\": 16 hexadecimal digits", text);
        n->knot_id = n->knot_id << 4 | (uint64_t)(digit - digits);
    }
    if (text && strlen(text) == 16) return OK;
    return error_why(why, ERR_USAGE, "KNOT_ID is needed: 16 hexadecimal digits");
}

static bool is_bound(const Node *n, const char *name) { return node_setting(n, name) != NULL; }

static const char *setting_or(const Node *n, const char *name, const char *fallback)
{
    const char *text = node_setting(n, name);
    return text ? text : fallback;
}

/* Header lines of calls to the warden. */
static Error write_identity(Node *n, Why *why)
{
    bool is_shard = n->kind == CLUSTER_SHARD;
    const char *first = node_setting(n, is_shard ? "VOCAB_START" : "SPECIALIZATION_START"),
               *last = node_setting(n, is_shard ? "VOCAB_END" : "SPECIALIZATION_END");
    JsonWriter w = json_writer_make(n->fetch.identity, sizeof n->fetch.identity - 1);
    const char *const parts[] = {"\nx-knot-id: ",
                                 setting_or(n, "KNOT_ID", ""),
                                 "\nx-knot-key: ",
                                 n->knot_key,
                                 is_shard ? "\nx-vocab-start: " : "\nx-layer-start: ",
                                 setting_or(n, "WARDEN_START", first ? first : ""),
                                 is_shard ? "\nx-vocab-end: " : "\nx-layer-end: ",
                                 setting_or(n, "WARDEN_END", last ? last : ""),
                                 n->key ? "\nauthorization: Bearer " : "",
                                 n->key ? n->key : ""};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) json_writer_raw(&w, parts[i]);
    w.bytes[w.used] = '\0';
    return w.full ? error_why(why, ERR_TOO_LARGE, "KNOT_KEY or CLUSTER_KEY is too long") : OK;
}

static Error read_settings(Node *n, Why *why)
{
    n->id = setting_or(n, "NODE_ID", "node");
    n->version = setting_or(n, "VERSION", "");
    n->key = node_setting(n, "CLUSTER_KEY");
    if (n->key && !*n->key) n->key = NULL;
    n->knot_key = node_setting(n, "KNOT_KEY");
    n->has_store = is_bound(n, "KNOT_BUCKET");
    n->has_values = is_bound(n, "EMBED_CACHE");
    n->has_warden = is_bound(n, n->kind == CLUSTER_SHARD ? "VOCAB_WARDEN" : "LAYER_WARDEN") &&
                    !cluster_file_is_warden(n->kind);
    if (!n->knot_key) return error_why(why, ERR_USAGE, "KNOT_KEY is needed");
    TRY(read_knot_id(n, why));
    TRY(write_identity(n, why));
    TRY(node_setting_number(n, "KNOT_BYTES", 0, 1, 1ull << 50, &file_bytes, why));
    return node_setting_number(n, "MEMORY_BUDGET_BYTES", ISOLATE_BUDGET_DEFAULT, 1 << 20,
                               UINT32_MAX, &n->budget_bytes, why);
}

static const NodeRole *role_of(uint32_t kind)
{
    switch (kind) {
    case CLUSTER_STATION: return &node_station_role;
    case CLUSTER_SHARD: return &node_shard_role;
    case CLUSTER_LAYER_WARDEN: return &node_layer_warden_role;
    case CLUSTER_SHARD_WARDEN: return &node_shard_warden_role;
    default: return NULL;
    }
}

static void open_settings(Node *n)
{
    Why why = {{0}};
    Error error = read_settings(n, &why);
    NodeWish size = {.kind = NODE_SIZE};
    index_mark = node_take(n, 0);
    if (error != OK) node_open_failed(n, error, &why);
    else if (file_bytes) start_index(n);
    else node_want(n, &size, size_came);
}

Error node_open_start(Node *n, uint32_t kind, const char *settings, uint32_t bytes)
{
    const NodeRole *role = role_of(kind);
    if (n->role || !role || !node_settings_take(settings, bytes)) return ERR_USAGE;
    n->kind = (ClusterRole)kind;
    n->role = role;
    n->id = "node";
    n->loop.stage = NODE_OPENING;
    n->loop.then = open_settings;
    return OK;
}
