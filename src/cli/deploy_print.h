/* SPDX-License-Identifier: Apache-2.0 */
/* What a deployment is, for people and for programs. */
#ifndef COBORD_CLI_DEPLOY_PRINT_H
#define COBORD_CLI_DEPLOY_PRINT_H

#include "cli/deploy_cost.h"

void deploy_print_table(const Deploy *d, const DeployCost *c);
void deploy_print_cost(const DeployCost *c);
/* `url` "": not deployed. */
void deploy_print_json(const Deploy *d, const DeployCost *c, const char *folder, const char *url);

#endif
