/* SPDX-License-Identifier: Apache-2.0 */
/* A node measures the same by itself before it starts (host/node_station.c, host/node_vocab.c), and must not find
 * more. */
#include "cluster/plan_role.h"

#include "base/max.h"
#include "cluster/shard_service.h"
#include "cluster/station_service.h"
#include "cluster/window.h"

static bool has_ids(const PlanRole *role)
{
    return plan_role_has_head(role) || plan_role_has_embedding(role);
}

/* Without the head no logits are made. */
static uint32_t logit_rows_of(const Plan *plan, const PlanRole *role)
{
    return plan_role_has_head(role) ? plan->logit_rows : 1;
}

static ShardConfig ids_config(const Plan *plan, const PlanRole *role, uint32_t logit_rows)
{
    const PlanRequest *r = &plan->request;
    return (ShardConfig){
        .knot = r->knot,
        .hyper = r->hyper,
        .id_first = role->id_first,
        .id_last = role->id_last,
        .rows_max = logit_rows,
        .workers = r->workers,
        .tile_bytes_max = plan->tile_bytes_max,
        .kernels = r->kernels,
    };
}

ShardConfig plan_shard_config(const Plan *plan, uint32_t shard)
{
    return ids_config(plan, &plan->role[plan->request.stations + shard], plan->logit_rows);
}

/* ---- Sizes */

static Error add_station(const Plan *plan, uint32_t i, PlanRole *role, uint64_t *widest, Why *why)
{
    StationConfig config = plan_station_config(plan, i);
    StationSizes sizes;
    TRY(station_sizes(&config, &sizes, why));
    role->floor_bytes = sizes.floor_bytes;
    role->cache_bytes = sizes.cache_bytes;
    role->scratch_bytes = sizes.scratch_bytes;
    role->weight_bytes = sizes.weight_bytes;
    *widest = sizes.widest_panel_bytes;
    return OK;
}

/* One thread does both: the scratch is shared. */
static Error add_ids(const Plan *plan, PlanRole *role, uint64_t *widest, Why *why)
{
    ShardConfig config = ids_config(plan, role, logit_rows_of(plan, role));
    ShardSizes sizes;
    TRY(shard_sizes(&config, &sizes, why));
    role->floor_bytes += sizes.floor_bytes;
    role->scratch_bytes = max_u64(role->scratch_bytes, sizes.scratch_bytes);
    role->logits_bytes += sizes.logits_bytes;
    if (!plan_role_has_head(role)) return OK;
    role->weight_bytes += sizes.weight_bytes;
    *widest = max_u64(*widest, sizes.widest_panel_bytes);
    return OK;
}

Error plan_role_size(const Plan *plan, uint32_t i, PlanRole *role, Why *why)
{
    uint64_t widest = 0;
    role->floor_bytes = role->cache_bytes = role->scratch_bytes = 0;
    role->weight_bytes = role->logits_bytes = 0;
    if (!role->is_shard) TRY(add_station(plan, i, role, &widest, why));
    if (has_ids(role)) TRY(add_ids(plan, role, &widest, why));
    role->window_bytes = window_role_bytes(plan->window_bytes, role->weight_bytes, widest);
    return OK;
}

/* ---- Frames */

typedef struct Frames {
    uint64_t service, body, answer;
} Frames;

static void add_station_frames(const Plan *plan, const PlanRole *role, Frames *f)
{
    const PlanRequest *r = &plan->request;
    ForwardTerms terms = {.hyper = r->hyper,
                          .range = role->range,
                          .rows_max = plan->chunk,
                          .sequences_max = r->sessions,
                          .context = plan->context};
    f->service += station_service_bytes(&terms);
    f->body = max_u64(f->body, station_service_body_bytes_max(&terms));
    f->answer = max_u64(f->answer, station_service_answer_bytes_max(&terms));
}

static ShardServiceConfig service_config(const Plan *plan, const PlanRole *role,
                                         uint32_t logit_rows)
{
    const PlanRequest *r = &plan->request;
    ShardServiceConfig config = {.terms = {.hyper = r->hyper,
                                           .id_first = role->id_first,
                                           .id_last = role->id_last,
                                           .rows_max = plan->chunk},
                                 .logit_rows_max = logit_rows};
    config.terms.payload_bytes_max = shard_service_payload_bytes_max(&config);
    return config;
}

static void add_ids_frames(const Plan *plan, const PlanRole *role, Frames *f)
{
    ShardServiceConfig config = service_config(plan, role, logit_rows_of(plan, role));
    uint64_t answer = shard_service_answer_bytes_max(&config, plan_role_has_embedding(role),
                                                     plan_role_has_head(role));
    f->service += shard_service_bytes(&config);
    f->body = max_u64(f->body, shard_service_body_bytes_max(&config));
    f->answer = max_u64(f->answer, answer);
}

uint64_t plan_role_frame_bytes(const Plan *plan, const PlanRole *role)
{
    Frames f = {0};
    if (!role->is_shard) add_station_frames(plan, role, &f);
    if (has_ids(role)) add_ids_frames(plan, role, &f);
    return f.service + 2 * f.body + 2 * f.answer;
}

/* ---- The coordinator's own */

uint64_t plan_role_own_bytes(const Plan *plan)
{
    uint64_t kept = 0, scratch = 0;
    for (uint32_t i = 0; i < plan->role_count; i++) {
        const PlanRole *role = &plan->role[i];
        ShardConfig config = ids_config(plan, role, plan->logit_rows);
        ShardSizes sizes;
        if (!has_ids(role) || shard_sizes(&config, &sizes, NULL) != OK) continue;
        ShardServiceConfig service = service_config(plan, role, plan->logit_rows);
        kept =
            max_u64(kept, sizes.floor_bytes + sizes.logits_bytes + shard_service_bytes(&service));
        scratch = max_u64(scratch, sizes.scratch_bytes);
    }
    return kept + scratch + (64 << 10);
}
