/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/deploy_print.h"

#include <inttypes.h>
#include <stdio.h>

#include "cli/json_text.h"
#include "cli/plan_print.h"

static double mib(uint64_t bytes) { return (double)bytes / (1 << 20); }

/* ---- The table */

static void print_residence(const Deploy *d, const DeployCost *c)
{
    uint32_t without = 0;
    for (uint32_t i = 0; i < d->plan.plan.role_count; i++) without += !d->role[i].keeps_rows;
    if (!c->streamed_bytes) printf("Every weight stays in memory: no R2 read once all are loaded");
    else {
        printf("A pass streams %.1f MiB: %.1f MiB in %" PRIu32 " reads of R2",
               mib(c->streamed_bytes), mib(c->store_bytes), c->store_reads);
        if (c->warden_calls) printf(", %" PRIu32 " calls of wardens", c->warden_calls);
    }
    if (without)
        printf(",\nbut for the embedding row of a token: %" PRIu32
               " shards have no room for theirs",
               without);
    printf(".\n");
}

void deploy_print_table(const Deploy *d, const DeployCost *c)
{
    plan_print_table(&d->plan);
    printf("%" PRIu32
           " scripts %s-*, an isolate of 128 MB each: that much WebAssembly, and JavaScript.\n",
           d->plan.place_count, d->name);
    print_residence(d, c);
    printf("A token takes %" PRIu32 " calls of the coordinator, whose invocations may make %" PRIu32
           ":\nafter %" PRIu32 " tokens the next invocation goes on.\n",
           c->calls, deploy_plan_calls_max(d), c->tokens_per_invocation);
}

/* ---- The price */

static void print_row(DeployPriceId id, const DeployCost *c)
{
    const DeployPrice *p = deploy_cost_price(id);
    double written = c->written.units[id], read = c->read.units[id];
    if (written == 0 && read == 0) return;
    printf("  %-24s %13.0f %9.2f %13.0f %9.2f  %s\n", p->name, written * 1e6,
           written * 1e6 * p->usd / p->per, read * 1e6, read * 1e6 * p->usd / p->per, p->unit);
}

void deploy_print_cost(const DeployCost *c)
{
    printf("A million tokens                 written       USD    of prompts       USD\n");
    for (int i = 0; i < PRICES_PER_TOKEN; i++) print_row((DeployPriceId)i, c);
    printf("  %-24s %13s %9.2f %13s %9.2f\n", "together", "", c->written_usd, "", c->read_usd);
    printf(
        "for one conversation at a time, about %.1f tokens/s. Beside that, a month: %.2f USD for the\n"
        "paid plan, %.3f for the model in R2. Prices of %s, without what the plan includes;\n"
        "they change. Assumed:\n",
        1 / c->seconds, deploy_cost_price(PRICE_MONTH)->usd, c->storage_usd,
        deploy_cost_prices_date());
    for (const DeployAssumption *a = deploy_cost_assumptions(); a->name; a++)
        printf("  %-46s %6.1f %s\n", a->name, a->value, a->unit);
}

/* ---- JSON */

static void json_scripts(const Deploy *d)
{
    printf("\"scripts\":[");
    for (uint32_t i = 0; i < d->plan.file.node_count; i++) {
        char script[DEPLOY_SCRIPT_BYTES];
        const ClusterNode *n = &d->plan.file.nodes[i];
        const DeployRole *r = deploy_plan_role(d, n);
        deploy_plan_script(d, n->id, script);
        printf("%s{\"id\":\"%s\",\"script\":\"%s\"", i ? "," : "", n->id, script);
        if (r)
            printf(",\"pinned_bytes\":%" PRIu64 ",\"streamed_bytes\":%" PRIu64 ",\"reads\":%" PRIu32
                   ",\"keeps_rows\":%s",
                   r->pinned_bytes, r->streamed_bytes, r->reads, r->keeps_rows ? "true" : "false");
        putchar('}');
    }
    putchar(']');
}

static void json_use(const char *name, const DeployUse *use, double usd)
{
    static const char *const names[PRICES_PER_TOKEN] = {[PRICE_OBJECT_REQUESTS] = "object_requests",
                                                        [PRICE_OBJECT_TIME] = "object_gb_s",
                                                        [PRICE_STORE_READS] = "r2_reads",
                                                        [PRICE_ROW_READS] = "kv_reads",
                                                        [PRICE_ROW_WRITES] = "kv_writes",
                                                        [PRICE_CPU] = "cpu_ms"};
    printf("\"%s\":{", name);
    for (int i = 0; i < PRICES_PER_TOKEN; i++) printf("\"%s\":%.6g,", names[i], use->units[i]);
    printf("\"usd_per_million\":%.4f}", usd);
}

void deploy_print_json(const Deploy *d, const DeployCost *c, const char *folder, const char *url)
{
    const PlanRequest *r = &d->plan.plan.request;
    printf("{\"folder\":");
    json_text_print(folder);
    printf(",\"url\":");
    if (url[0]) json_text_print(url);
    else printf("null");
    printf(",\"bucket\":\"%s\",\"knot_key\":", d->bucket);
    json_text_print(d->knot_key);
    printf(",\"stations\":%" PRIu32 ",\"shards\":%" PRIu32 ",\"memory_bytes\":%" PRIu64
           ",\"context\":%" PRIu32 ",\"chunk\":%" PRIu32 ",\"slots\":%" PRIu32 ",",
           r->stations, r->shards, r->memory_bytes, d->plan.plan.context, d->plan.plan.chunk,
           r->sessions);
    json_scripts(d);
    printf(",\"calls_per_token\":%" PRIu32 ",\"calls_per_invocation\":%" PRIu32
           ",\"tokens_per_invocation\":%" PRIu32 ",\"r2_bytes_per_token\":%" PRIu64
           ",\"r2_reads_per_token\":%" PRIu32 ",\"warden_calls_per_token\":%" PRIu32
           ",\"streamed_bytes_per_token\":%" PRIu64 ",\"prices_of\":\"%s\",",
           c->calls, deploy_plan_calls_max(d), c->tokens_per_invocation, c->store_bytes,
           c->store_reads, c->warden_calls, c->streamed_bytes, deploy_cost_prices_date());
    json_use("written", &c->written, c->written_usd);
    putchar(',');
    json_use("prompt", &c->read, c->read_usd);
    printf(",\"storage_usd_per_month\":%.4f}\n", c->storage_usd);
}
