/* SPDX-License-Identifier: Apache-2.0 */
/* What one role takes, for one choice of context, chunk and tile: plan.c tries several. */
#ifndef COBORD_CLUSTER_PLAN_ROLE_H
#define COBORD_CLUSTER_PLAN_ROLE_H

#include "cluster/plan.h"

static inline bool plan_role_has_head(const PlanRole *role) { return role->is_shard || role->head; }
static inline bool plan_role_has_embedding(const PlanRole *role)
{
    return role->is_shard || role->embed;
}

/* Fills floor, cache, scratch, logits, weights and window of role `i`; its ranges stand. */
MUST_CHECK Error plan_role_size(const Plan *plan, uint32_t i, PlanRole *role, Why *why);
/* What a node holds of its requests (host/node_memory.h): what its services keep, a body that is answered and
 * one that arrives, an answer that leaves and one that is made. */
uint64_t plan_role_frame_bytes(const Plan *plan, const PlanRole *role);
/* What the coordinator takes to do a role's work on ids that nobody else does: the largest. */
uint64_t plan_role_own_bytes(const Plan *plan);

#endif
