/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/deploy_print.h"

#include <inttypes.h>
#include <stdio.h>

#include "cli/json_text.h"

static double mib(uint64_t bytes) { return (double)bytes / (1 << 20); }

/* ---- The table */

static void print_line(const char *id, const char *range, const double *mib_of)
{
    char head[CLUSTER_FILE_ID_BYTES + PHASE_RANGE_TEXT_MAX + 16];
    (void)snprintf(head, sizeof head, "%-15s %s", id, range);
    printf("%-38s", head);
    for (int i = 0; i < 6; i++) printf(" %6.1f", mib_of[i]);
    printf("\n");
}

static void range_of(const Deploy *d, const ClusterNode *n, char *out, size_t room)
{
    char text[PHASE_RANGE_TEXT_MAX];
    out[0] = '\0';
    if (n->role == CLUSTER_STATION || n->role == CLUSTER_LAYER_WARDEN)
        (void)snprintf(out, room, "%s%s%s",
                       phase_range_text(n->range, d->model->hyper.layers, text),
                       n->embed ? " embed" : "", n->head ? " head" : "");
    else if (n->role != CLUSTER_COORDINATOR)
        (void)snprintf(out, room, "ids %" PRIu32 "-%" PRIu32, n->id_first, n->id_last);
}

/* Weights, kept of them, window, cache, rest, total. */
static void print_node(const Deploy *d, uint32_t i)
{
    const ClusterNode *n = &d->plan.file.nodes[i];
    const DeployRole *r = deploy_plan_role(d, n);
    const PlanRole *c = &d->plan.plan.coordinator;
    char range[PHASE_RANGE_TEXT_MAX + 16];
    range_of(d, n, range, sizeof range);
    if (cluster_file_is_warden(n->role)) {
        PlanWarden w = plan_cluster_warden(&d->plan.request, &d->plan.places[i]);
        print_line(n->id, range,
                   (double[]){mib(w.weight_bytes), mib(w.held_bytes), 0, 0, mib(w.process_bytes),
                              mib(w.total_bytes)});
    } else if (r) {
        const Isolate *o = &r->isolate;
        uint64_t kept = o->pinned_bytes + o->rows_last - o->rows_first;
        uint64_t rest = o->total_bytes - kept - o->window_bytes - r->cache_bytes;
        print_line(n->id, range,
                   (double[]){mib(r->weight_bytes + r->rows_bytes), mib(kept), mib(o->window_bytes),
                              mib(r->cache_bytes), mib(rest), mib(o->total_bytes)});
    } else {
        print_line(n->id, range, (double[]){0, 0, 0, 0, mib(c->total_bytes), mib(c->total_bytes)});
    }
}

static void print_nodes(const Deploy *d)
{
    const PlanRequest *r = &d->plan.plan.request;
    printf("%-38s %6s %6s %6s %6s %6s %6s\n", "MiB", "weight", "kept", "window", "cache", "rest",
           "total");
    for (uint32_t i = 0; i < d->plan.file.node_count; i++) print_node(d, i);
    printf("%" PRIu32 " scripts %s-*, at most %.0f MiB of WebAssembly each", d->plan.place_count,
           d->name, mib(r->memory_bytes));
    if (d->plan.request.wardens)
        printf(", %.0f a warden", mib(d->plan.request.warden_memory_bytes));
    printf(";\n%" PRIu32 " conversations of %" PRIu32 " tokens, chunks of %" PRIu32
           " rows, cache %s, activations %s.\n",
           r->sessions, d->plan.plan.context, d->plan.plan.chunk,
           r->cache == CACHE_Q8_0 ? "q8_0" : "f16", rows_element_name(d->plan.request.element));
}

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
    print_nodes(d);
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
            printf(",\"memory_bytes\":%" PRIu64 ",\"pinned_bytes\":%" PRIu64
                   ",\"streamed_bytes\":%" PRIu64 ",\"reads\":%" PRIu32 ",\"keeps_rows\":%s",
                   r->isolate.total_bytes, r->isolate.pinned_bytes, r->isolate.pass_bytes, r->reads,
                   r->keeps_rows ? "true" : "false");
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
