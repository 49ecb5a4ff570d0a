/* SPDX-License-Identifier: Apache-2.0 */
/* Stations and shards: what the settings say, and the sum that follows from it. */
#include <string.h>

#include "cluster/cache.h"
#include "node_compute.h"
#include "quant/numerics.h"

enum { CONTEXT_DEFAULT = 2048, CHUNK_DEFAULT = 64, LOGIT_ROWS_DEFAULT = 16 };

/* ---- Settings ---- */

static Error read_bound(const Node *n, const char *name, PhaseBound *out, Why *why)
{
    const char *text = node_setting(n, name);
    if (!text) return error_why(why, ERR_USAGE, "%s is needed", name);
    return phase_parse_bound(text, strlen(text), n->hyper.layers, out, why);
}

/* A role is a word for what the bounds say. */
static Error check_role(const Node *n, PhaseRange range, Why *why)
{
    const char *text = node_setting(n, "SPECIALIZATION_ROLE");
    bool first = range.first == 0, last = range.last == phase_bound(n->hyper.layers, PHASE_ATTN);
    const char *role = first && last ? "solo" : first ? "entry" : last ? "exit" : "middle";
    if (!text || strcmp(text, role) == 0) return OK;
    return error_why(why, ERR_USAGE, "SPECIALIZATION_ROLE is \"%s\", the range is that of \"%s\"",
                     text, role);
}

static Error read_range(const Node *n, PhaseRange *out, Why *why)
{
    TRY(read_bound(n, "SPECIALIZATION_START", &out->first, why));
    TRY(read_bound(n, "SPECIALIZATION_END", &out->last, why));
    if (out->first >= out->last)
        return error_why(why, ERR_RANGE, "SPECIALIZATION_START to _END is empty");
    return check_role(n, *out, why);
}

static Error read_number(const Node *n, const char *name, uint32_t fallback, uint32_t most,
                         uint32_t *out, Why *why)
{
    uint64_t value;
    TRY(node_setting_number(n, name, fallback, 1, most, &value, why));
    *out = (uint32_t)value;
    return OK;
}

static Error read_cache(const Node *n, CacheType *out, Why *why)
{
    const char *text = node_setting(n, "CACHE_TYPE");
    *out = text && strcmp(text, "q8_0") == 0 ? CACHE_Q8_0 : CACHE_F16;
    if (!text || *out == CACHE_Q8_0 || strcmp(text, "f16") == 0) return OK;
    return error_why(why, ERR_USAGE, "CACHE_TYPE is \"%s\", not f16 or q8_0", text);
}

static bool is_on(const Node *n, const char *name)
{
    const char *text = node_setting(n, name);
    return text && strcmp(text, "1") == 0;
}

static Error read_station(const Node *n, NodeCompute *c, Why *why)
{
    TRY(read_range(n, &c->range, why));
    TRY(read_number(n, "CONTEXT", CONTEXT_DEFAULT, STATION_CONTEXT_MAX, &c->context, why));
    TRY(read_number(n, "SESSIONS", 1, STATION_SESSIONS_MAX, &c->sessions, why));
    TRY(read_cache(n, &c->cache, why));
    c->embed = is_on(n, "EMBED");
    c->head = is_on(n, "HEAD");
    c->id_first = 0;
    c->id_last = n->hyper.vocabulary;
    return OK;
}

static Error read_shard(const Node *n, NodeCompute *c, Why *why)
{
    uint64_t first, last, most = n->hyper.vocabulary;
    if (!node_setting(n, "VOCAB_START") || !node_setting(n, "VOCAB_END"))
        return error_why(why, ERR_USAGE, "VOCAB_START and VOCAB_END are needed");
    TRY(node_setting_number(n, "VOCAB_START", 0, 0, most, &first, why));
    TRY(node_setting_number(n, "VOCAB_END", 0, first + 1, most, &last, why));
    c->id_first = (uint32_t)first;
    c->id_last = (uint32_t)last;
    c->embed = c->head = true;
    return OK;
}

static void choose_kernels(NodeCompute *c)
{
    static const Isa best[] = {ISA_RELAXED, ISA_SIMD128, ISA_SCALAR};
    for (size_t i = 0; i < sizeof best / sizeof best[0] && !(c->kernels && c->ops); i++) {
        c->kernels = kernels_for(best[i]);
        c->ops = ops_for(best[i]);
    }
}

Error node_compute_read_settings(Node *n, Why *why)
{
    NodeCompute *c = &node_compute;
    c->is_station = n->kind == CLUSTER_STATION;
    choose_kernels(c);
    TRY(read_number(n, "CHUNK", CHUNK_DEFAULT, STATION_ROWS_MAX, &c->chunk, why));
    TRY(read_number(n, "LOGIT_ROWS", LOGIT_ROWS_DEFAULT, SHARD_ROWS_MAX, &c->logit_rows, why));
    TRY(node_setting_number(n, "PINNED_BYTES", ISOLATE_PIN_ALL, 0, UINT32_MAX, &c->pinned_bytes,
                            why));
    return c->is_station ? read_station(n, c, why) : read_shard(n, c, why);
}

/* ---- Sums ---- */

StationConfig node_compute_station_config(const Node *n)
{
    const NodeCompute *c = &node_compute;
    return (StationConfig){
        .knot = &n->index.knot,
        .hyper = &n->hyper,
        .range = c->range,
        .cache = c->cache,
        .rows_max = c->chunk,
        .sessions_max = c->sessions,
        .context = c->context,
        .blocks = c->sessions * cache_blocks_for(c->context),
        .workers = 1,
        .tile_bytes_max = c->isolate.tile_bytes_max,
        .kernels = c->kernels,
        .ops = c->ops,
    };
}

ForwardTerms node_compute_terms(const Node *n)
{
    const NodeCompute *c = &node_compute;
    return (ForwardTerms){
        .identity = {n->knot_id, NUMERICS_VERSION, frame_cache(c->cache)},
        .hyper = &n->hyper,
        .range = c->range,
        .rows_max = c->chunk,
        .sequences_max = c->sessions,
        .context = c->context,
    };
}

/* Without the head no logits are made: what the shard wants is kept small. */
ShardConfig node_compute_shard_config(const Node *n)
{
    const NodeCompute *c = &node_compute;
    return (ShardConfig){
        .knot = &n->index.knot,
        .hyper = &n->hyper,
        .id_first = c->id_first,
        .id_last = c->id_last,
        .rows_max = c->head ? c->logit_rows : 1,
        .workers = 1,
        .tile_bytes_max = c->isolate.tile_bytes_max,
        .kernels = c->kernels,
    };
}

ShardServiceConfig node_compute_shard_service(const Node *n)
{
    const NodeCompute *c = &node_compute;
    ShardServiceConfig config = {
        .terms = {.identity = {n->knot_id, NUMERICS_VERSION, FRAME_CACHE_NONE},
                  .hyper = &n->hyper,
                  .id_first = c->id_first,
                  .id_last = c->id_last,
                  .rows_max = c->chunk},
        .logit_rows_max = c->head ? c->logit_rows : 1,
    };
    config.terms.payload_bytes_max = shard_service_payload_bytes_max(&config);
    return config;
}

StationKeeperTerms node_compute_keeper_terms(const Node *n)
{
    const NodeCompute *c = &node_compute;
    return (StationKeeperTerms){n->knot_id, c->cache, c->range, c->context, ISOLATE_ROW_BYTES_MAX};
}

Error node_compute_size(const Node *n, Isolate *out, NodeSizes *sizes, Why *why)
{
    const NodeCompute *c = &node_compute;
    IsolateRequest r = {.id = n->id,
                        .knot = &n->index.knot,
                        .budget_bytes = n->budget_bytes,
                        .fixed_bytes = (uint64_t)(uintptr_t)n->memory.start,
                        .index_bytes = (uint64_t)(c->mark - n->memory.start),
                        .embeds = c->embed,
                        .id_first = c->id_first,
                        .id_last = c->id_last,
                        .pinned_bytes = c->pinned_bytes};
    *sizes = (NodeSizes){0};
    if (c->is_station) {
        StationConfig config = node_compute_station_config(n);
        ForwardTerms terms = node_compute_terms(n);
        StationKeeperTerms keeper = node_compute_keeper_terms(n);
        TRY(node_sizes_station(&config, &terms, sizes, why));
        r.keeper_bytes = station_keeper_bytes(&keeper, c->sessions);
    }
    ShardConfig shard = node_compute_shard_config(n);
    ShardServiceConfig service = node_compute_shard_service(n);
    TRY(node_sizes_ids(&shard, &service, c->embed, c->head, sizes, why));
    r.sizes = *sizes;
    return isolate_choose(&r, out, why);
}
