/* SPDX-License-Identifier: Apache-2.0 */
/* A plan over several machines: how many processes each runs, and which ranges they get (the rules are at the head
 * of cluster_plan.h). */
#ifndef COBORD_CLI_CLUSTER_SPREAD_H
#define COBORD_CLI_CLUSTER_SPREAD_H

#include "cli/cluster_plan.h"

/* Fills plan and role_machine from p->hosts. memory_bytes 0: from the hosts.
 * Errors  ERR_PLAN (names the host whose memory is too small), those of plan_make and plan_cut. */
MUST_CHECK Error cluster_spread_make(ClusterPlan *p, PlanRequest *request, Why *why);

/* The machine of a place; replicas are on the machines after the first's. */
uint32_t cluster_spread_machine(const ClusterPlan *p, const PlanPlace *place);

#endif
