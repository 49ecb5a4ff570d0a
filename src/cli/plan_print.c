/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/plan_print.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/json_text.h"

static double mib(uint64_t bytes) { return (double)bytes / (1 << 20); }
static double kib(uint64_t bytes) { return (double)bytes / (1 << 10); }

static const PlanRole *role_of(const ClusterPlan *p, const PlanPlace *place)
{
    if (place->role == CLUSTER_COORDINATOR) return &p->plan.coordinator;
    uint32_t first = place->role == CLUSTER_SHARD ? p->plan.request.stations : 0;
    return &p->plan.role[first + place->part];
}

enum { RANGE_BYTES = PHASE_RANGE_TEXT_MAX + 16 };

static void ids_text(uint32_t first, uint32_t last, char *out)
{
    (void)snprintf(out, RANGE_BYTES, "ids %" PRIu32 "-%" PRIu32, first, last);
}

static void layers_text(const ClusterPlan *p, PhaseRange range, char *out)
{
    char text[PHASE_RANGE_TEXT_MAX];
    (void)snprintf(out, RANGE_BYTES, "%s",
                   phase_range_text(range, p->plan.request.hyper->layers, text));
}

static void range_text(const ClusterPlan *p, const PlanPlace *place, char *out)
{
    PlanWarden w;
    const PlanRole *role;
    out[0] = '\0';
    switch (place->role) {
    case CLUSTER_STATION:
        role = role_of(p, place);
        layers_text(p, role->range, out);
        if (role->embed) strncat(out, " embed", RANGE_BYTES - strlen(out) - 1);
        if (role->head) strncat(out, " head", RANGE_BYTES - strlen(out) - 1);
        break;
    case CLUSTER_SHARD:
        role = role_of(p, place);
        ids_text(role->id_first, role->id_last, out);
        break;
    case CLUSTER_LAYER_WARDEN:
        w = plan_cluster_warden(&p->request, place);
        layers_text(p, w.range, out);
        break;
    case CLUSTER_SHARD_WARDEN:
        w = plan_cluster_warden(&p->request, place);
        ids_text(w.id_first, w.id_last, out);
        break;
    default: break;
    }
}

/* ---- The table */

static void table_line(const char *id, const char *range, const double *column)
{
    char head[PLAN_ROLE_NAME_BYTES + RANGE_BYTES];
    /* a long range begins where the id ends */
    (void)snprintf(head, sizeof head, "%-*s %s", strlen(range) > 23 ? 0 : 14, id, range);
    printf("%-38s", head);
    for (int i = 0; i < 6; i++) printf(" %6.1f", column[i]);
    printf("\n");
}

static void table_role(const ClusterPlan *p, const PlanPlace *place)
{
    char range[RANGE_BYTES];
    range_text(p, place, range);
    if (cluster_file_is_warden(place->role)) {
        PlanWarden w = plan_cluster_warden(&p->request, place);
        table_line(place->id, range,
                   (double[]){mib(w.weight_bytes), mib(w.held_bytes), 0, 0, mib(w.process_bytes),
                              mib(w.total_bytes)});
        return;
    }
    const PlanRole *r = role_of(p, place);
    uint64_t rest = r->process_bytes + r->floor_bytes + r->scratch_bytes + r->frame_bytes +
                    r->logits_bytes + r->form_bytes;
    table_line(place->id, range,
               (double[]){mib(r->weight_bytes), mib(r->pinned_bytes), mib(r->window_bytes),
                          mib(r->cache_bytes), mib(rest), mib(r->total_bytes)});
}

static void table_hosts(const ClusterPlan *p)
{
    for (uint32_t m = 0; m < p->hosts.count; m++) {
        uint32_t stations = 0, shards = 0;
        for (uint32_t i = 0; i < p->plan.role_count; i++) {
            if (p->role_machine[i] != m) continue;
            if (i < p->plan.request.stations) stations++;
            else shards++;
        }
        printf("%-14s %s%" PRIu32 " station%s, %" PRIu32 " shard%s\n", p->hosts.entry[m].host,
               m == 0 ? "coordinator, " : "", stations, stations == 1 ? "" : "s", shards,
               shards == 1 ? "" : "s");
    }
}

void plan_print_table(const ClusterPlan *p)
{
    const PlanRequest *r = &p->plan.request;
    printf("%-14s %-23s %6s %6s %6s %6s %6s %6s\n", "MiB", "range", "weight", "kept", "window",
           "cache", "rest", "total");
    for (uint32_t i = 0; i < p->place_count; i++) table_role(p, &p->places[i]);
    table_hosts(p);
    printf("At most %.0f MiB a process", mib(r->memory_bytes));
    if (p->request.wardens) printf(", %.0f MiB a warden", mib(p->request.warden_memory_bytes));
    printf("; %" PRIu32 " conversation%s of %" PRIu32 " tokens;\nchunks of %" PRIu32
           " rows, cache %s, activations %s.\n",
           r->sessions, r->sessions == 1 ? "" : "s", p->plan.context, p->plan.chunk,
           r->cache == CACHE_Q8_0 ? "q8_0" : "f16", rows_element_name(p->request.element));
}

/* ---- The price */

static void print_alone(const ClusterPlan *p)
{
    const Cost *c = &p->cost;
    const char *who = p->hosts.count ? p->hosts.entry[c->alone_machine].host : "this machine";
    printf("One process on %s: about %.1f tokens/s", who, c->alone_tokens_per_s);
    if (c->alone_streamed_bytes)
        printf(",\nsince %.0f MiB do not fit its memory", mib(c->alone_streamed_bytes));
    if (c->alone_is_faster)
        printf(". That is faster (cobord\nserve) for one conversation, if it may take %.0f MiB.\n",
               mib(c->weight_bytes - c->alone_streamed_bytes));
    else printf(": slower.\n");
}

static void print_basis(const char *what, double value, const char *unit, bool measured,
                        const char *more)
{
    printf("  %-8s %-24s %7.1f %s%s\n", measured ? "measured" : "assumed", what, value, unit, more);
}

static void print_machine(const ClusterPlan *p, uint32_t i)
{
    const CostMachine *m = &p->machine[i];
    bool here = !p->hosts.count;
    if (!here) printf("  %s\n", p->hosts.entry[i].host);
    print_basis("weights from memory", m->bandwidth_gbs, "GB/s", p->bandwidth_measured[i], "");
    if (p->cost.streamed_bytes)
        print_basis(here && p->stream_is_cached[i] ? "streamed, page cache warm" : "streamed, disk",
                    m->stream_gbs, "GB/s", false, "");
    print_basis("a call and its answer", m->hop_us, "us", p->hop_measured[i],
                here && p->hop_measured[i] ? ", 100 of them for HTTP assumed" : "");
}

void plan_print_cost(const ClusterPlan *p)
{
    const Cost *c = &p->cost;
    printf("A token reads %.1f MiB of weights", mib(c->weight_bytes));
    if (c->streamed_bytes) printf(", %.1f MiB of them streamed,", mib(c->streamed_bytes));
    printf(" and moves\n%.1f KiB in %" PRIu32 " calls, %" PRIu32
           " of them in turn: about %.1f tokens/s, %.1f in all\nwith many conversations.\n",
           kib(c->moved_bytes), c->calls, c->hops, c->tokens_per_s, c->busy_tokens_per_s);
    print_alone(p);
    for (uint32_t i = 0; i < (p->hosts.count ? p->hosts.count : 1); i++) print_machine(p, i);
}

/* ---- JSON */

static void json_role(const ClusterPlan *p, const char *id, const PlanRole *r)
{
    printf("{\"id\":\"%s\",", id);
    if (r->is_shard)
        printf("\"id_first\":%" PRIu32 ",\"id_last\":%" PRIu32 ",", r->id_first, r->id_last);
    else if (r != &p->plan.coordinator) {
        char range[RANGE_BYTES];
        layers_text(p, r->range, range);
        printf("\"range\":\"%s\",%s%s", range, r->embed ? "\"embed\":true," : "",
               r->head ? "\"head\":true," : "");
    }
    printf("\"weight_bytes\":%" PRIu64 ",\"process_bytes\":%" PRIu64 ",\"floor_bytes\":%" PRIu64
           ",\"window_bytes\":%" PRIu64 ",\"activation_bytes\":%" PRIu64 ",\"cache_bytes\":%" PRIu64
           ",\"pinned_bytes\":%" PRIu64 ",\"form_bytes\":%" PRIu64 ",\"total_bytes\":%" PRIu64 "}",
           r->weight_bytes, r->process_bytes, r->floor_bytes, r->window_bytes,
           r->scratch_bytes + r->frame_bytes + r->logits_bytes, r->cache_bytes, r->pinned_bytes,
           r->form_bytes, r->total_bytes);
}

static void json_roles(const ClusterPlan *p)
{
    printf("\"coordinator\":");
    json_role(p, "coordinator-0", &p->plan.coordinator);
    printf(",\"roles\":[");
    for (uint32_t i = 0; i < p->plan.role_count; i++) {
        char name[PLAN_ROLE_NAME_BYTES];
        plan_role_name(&p->plan, &p->plan.role[i], name);
        if (i) putchar(',');
        json_role(p, name, &p->plan.role[i]);
    }
    printf("],\"wardens\":[");
    bool any = false;
    for (uint32_t i = 0; i < p->place_count; i++) {
        char range[RANGE_BYTES];
        if (!cluster_file_is_warden(p->places[i].role)) continue;
        PlanWarden w = plan_cluster_warden(&p->request, &p->places[i]);
        range_text(p, &p->places[i], range);
        printf("%s{\"id\":\"%s\",\"range\":\"%s\",\"weight_bytes\":%" PRIu64
               ",\"held_bytes\":%" PRIu64 ",\"process_bytes\":%" PRIu64 ",\"total_bytes\":%" PRIu64
               "}",
               any ? "," : "", p->places[i].id, range, w.weight_bytes, w.held_bytes,
               w.process_bytes, w.total_bytes);
        any = true;
    }
    printf("]");
}

static void json_machines(const ClusterPlan *p)
{
    printf("\"machines\":[");
    for (uint32_t i = 0; i < (p->hosts.count ? p->hosts.count : 1); i++) {
        const CostMachine *m = &p->machine[i];
        printf("%s{\"address\":", i ? "," : "");
        json_text_print(p->hosts.count ? p->hosts.entry[i].host : "");
        printf(
            ",\"bandwidth_gbs\":%.3f,\"bandwidth_measured\":%s,\"stream_gbs\":%.3f,\"hop_us\":%.1f,"
            "\"hop_measured\":%s,\"network_gbs\":%.3f,\"memory_bytes\":%" PRIu64 ",\"roles\":[",
            m->bandwidth_gbs, p->bandwidth_measured[i] ? "true" : "false", m->stream_gbs, m->hop_us,
            p->hop_measured[i] ? "true" : "false", m->network_gbs, m->memory_bytes);
        bool any = false;
        for (uint32_t k = 0; k < p->plan.role_count; k++) {
            char name[PLAN_ROLE_NAME_BYTES];
            if (p->role_machine[k] != i) continue;
            plan_role_name(&p->plan, &p->plan.role[k], name);
            printf("%s\"%s\"", any ? "," : "", name);
            any = true;
        }
        printf("]}");
    }
    printf("]");
}

static void json_cost(const Cost *c)
{
    printf("\"cost\":{\"weight_bytes\":%" PRIu64 ",\"streamed_bytes\":%" PRIu64
           ",\"moved_bytes\":%" PRIu64 ",\"calls\":%" PRIu32 ",\"hops\":%" PRIu32
           ",\"tokens_per_s\":%.3f,\"busy_tokens_per_s\":%.3f,\"alone_machine\":%" PRIu32
           ",\"alone_tokens_per_s\":%.3f,\"alone_streamed_bytes\":%" PRIu64
           ",\"alone_is_faster\":%s}",
           c->weight_bytes, c->streamed_bytes, c->moved_bytes, c->calls, c->hops, c->tokens_per_s,
           c->busy_tokens_per_s, c->alone_machine, c->alone_tokens_per_s, c->alone_streamed_bytes,
           c->alone_is_faster ? "true" : "false");
}

void plan_print_json(const ClusterPlan *p, const char *path)
{
    const PlanRequest *r = &p->plan.request;
    printf(
        "{\"context\":%" PRIu32 ",\"chunk\":%" PRIu32 ",\"memory_bytes\":%" PRIu64
        ",\"warden_memory_bytes\":%" PRIu64 ",\"cache_type\":\"%s\",\"slots\":%" PRIu32
        ",\"element\":\"%s\",\"pipeline\":%" PRIu32 ",\"replicas\":%" PRIu32 ",\"cluster_file\":",
        p->plan.context, p->plan.chunk, r->memory_bytes, p->request.warden_memory_bytes,
        r->cache == CACHE_Q8_0 ? "q8_0" : "f16", r->sessions, rows_element_name(p->request.element),
        r->frames ? r->frames : r->stations, p->request.replicas);
    if (path) json_text_print(path);
    else printf("null");
    putchar(',');
    json_roles(p);
    putchar(',');
    json_machines(p);
    putchar(',');
    json_cost(&p->cost);
    printf("}\n");
}
