/* SPDX-License-Identifier: Apache-2.0 */
/* A planned cluster for people, in 80 columns, and for programs. */
#ifndef COBORD_CLI_PLAN_PRINT_H
#define COBORD_CLI_PLAN_PRINT_H

#include "cli/cluster_plan.h"

void plan_print_table(const ClusterPlan *p);
/* What a token costs, what was measured and what assumed. */
void plan_print_cost(const ClusterPlan *p);
/* One value; `path`: of the cluster file that was written, or NULL. */
void plan_print_json(const ClusterPlan *p, const char *path);

#endif
