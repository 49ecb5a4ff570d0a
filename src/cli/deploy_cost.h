/* SPDX-License-Identifier: Apache-2.0 */
/* What a million tokens cost on Cloudflare, from the plan: for one conversation at a time, beyond what the plan
 * of the account includes.
 *
 *   token written   embedding at a shard | every station in turn | all shards at once
 *   token read      the same for a chunk of rows at once; stations work on chunks behind each other
 *
 *   an object's time = its weights / rate + what it streams / rate of the store + a little for the call
 *   the coordinator's object is busy as long as the answer takes
 *
 * Prices and assumptions are two tables in deploy_cost.c, each figure with its source. Prices change: the
 * date says when they were right. What several conversations share (a pass over the weights) is not taken
 * off: a bound from above. */
#ifndef COBORD_CLI_DEPLOY_COST_H
#define COBORD_CLI_DEPLOY_COST_H

#include "cli/deploy_plan.h"

typedef enum DeployPriceId {
    PRICE_OBJECT_REQUESTS, /* of Durable Objects, a million */
    PRICE_OBJECT_TIME,     /* GB-s, a million */
    PRICE_STORE_READS,     /* R2 class B, a million */
    PRICE_ROW_READS,       /* KV, a million */
    PRICE_ROW_WRITES,      /* KV, a million */
    PRICE_CPU,             /* of Workers, ms, a million */
    PRICES_PER_TOKEN,
    PRICE_STORAGE = PRICES_PER_TOKEN, /* R2, a GB and month */
    PRICE_MONTH,                      /* the paid plan */
    PRICES_COUNT
} DeployPriceId;

typedef struct DeployPrice {
    const char *name, *unit;
    double usd; /* for `per` of the unit */
    double per;
} DeployPrice;

const DeployPrice *deploy_cost_price(DeployPriceId id);
const char *deploy_cost_prices_date(void);

typedef struct DeployAssumption {
    const char *name, *unit;
    double value;
} DeployAssumption;
/* Ended by a name NULL. */
const DeployAssumption *deploy_cost_assumptions(void);

/* Units for one token. */
typedef struct DeployUse {
    double units[PRICES_PER_TOKEN];
} DeployUse;

typedef struct DeployCost {
    uint32_t calls;                 /* of the coordinator for a token that is written */
    uint32_t tokens_per_invocation; /* then the next one takes over */
    uint64_t streamed_bytes;        /* for a token that is written; of them from R2: */
    uint64_t store_bytes;
    uint32_t store_reads, warden_calls;
    double seconds;               /* a token, written */
    DeployUse written, read;      /* `read`: a token of a prompt */
    double written_usd, read_usd; /* a million tokens */
    double storage_usd;           /* a month */
} DeployCost;

DeployCost deploy_cost_of(const Deploy *d);

#endif
