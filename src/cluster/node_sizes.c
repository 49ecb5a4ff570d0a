/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/node_sizes.h"

#include "base/max.h"
#include "base/min.h"

/* From the first byte of the range's matrices to the last: one stretch in a knot of version 2. */
static Error find_weights(const StationConfig *c, NodeSizes *out, Why *why)
{
    out->weights_first = UINT64_MAX;
    out->weights_last = 0;
    for (PhaseBound b = c->range.first; b < c->range.last; b++) {
        PhaseMatrix matrices[PHASE_MATRICES_MAX];
        uint32_t count;
        TRY(phase_matrices(c->knot, c->hyper, phase_layer(b), phase_of(b), matrices, &count, why));
        for (uint32_t i = 0; i < count; i++) {
            const KnotTensor *t = matrices[i].weight;
            out->weights_first = min_u64(out->weights_first, t->offset);
            out->weights_last = max_u64(out->weights_last, t->offset + t->bytes);
        }
    }
    return OK;
}

Error node_sizes_station(const StationConfig *c, const ForwardTerms *terms, NodeSizes *out,
                         Why *why)
{
    StationSizes sizes;
    TRY(station_sizes(c, &sizes, why));
    *out = (NodeSizes){
        .floor_bytes = sizes.floor_bytes,
        .scratch_bytes = sizes.scratch_bytes,
        .cache_bytes = sizes.cache_bytes,
        .widest_panel_bytes = sizes.widest_panel_bytes,
        .service_bytes = station_service_bytes(terms),
        .body_bytes_max = station_service_body_bytes_max(terms),
        .answer_bytes_max = station_service_answer_bytes_max(terms),
    };
    return find_weights(c, out, why);
}

/* The head's rows of these ids, whole panels; they follow the layers in a knot of version 2. */
static Error add_head(const ShardConfig *c, NodeSizes *out, Why *why)
{
    const KnotTensor *head = knot_head(c->knot);
    if (!head) return error_why(why, ERR_MISSING_TENSOR, "token_embd_weight is missing");
    bool none = out->weights_first >= out->weights_last;
    uint64_t first = knot_row_offset(head, c->id_first), last = knot_rows_end(head, c->id_last);
    out->weights_first = none ? first : min_u64(out->weights_first, first);
    out->weights_last = none ? last : max_u64(out->weights_last, last);
    return OK;
}

Error node_sizes_ids(const ShardConfig *c, const ShardServiceConfig *service, bool embed, bool head,
                     NodeSizes *out, Why *why)
{
    ShardSizes sizes;
    if (!embed && !head) return OK;
    TRY(shard_sizes(c, &sizes, why));
    out->floor_bytes += sizes.floor_bytes;
    out->logits_bytes += sizes.logits_bytes;
    out->service_bytes += shard_service_bytes(service);
    out->scratch_bytes = max_u64(out->scratch_bytes, sizes.scratch_bytes);
    out->body_bytes_max = max_u64(out->body_bytes_max, shard_service_body_bytes_max(service));
    out->answer_bytes_max =
        max_u64(out->answer_bytes_max, shard_service_answer_bytes_max(service, embed, head));
    if (!head) return OK;
    out->widest_panel_bytes = max_u64(out->widest_panel_bytes, sizes.widest_panel_bytes);
    return add_head(c, out, why);
}
