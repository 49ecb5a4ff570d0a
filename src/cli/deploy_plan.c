/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/deploy_plan.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/max.h"
#include "base/min.h"
#include "cluster/station_keeper.h"

enum {
    STATIONS_MOST = 320, /* with the shards below what an account may have */
    SHARDS_MOST = 128,
    SLOTS_DEFAULT = 2,
    PACK_STEP_BYTES = 2 << 20,
    WARDEN_PART_BYTES = 4 << 20, /* of an answer to GET /knot */
    TLS_PORT = 443
};

/* ---- Names */

static bool is_plain(const char *text, const char *also)
{
    for (const char *c = text; *c; c++) {
        bool fine = (*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9') || strchr(also, *c);
        if (!fine) return false;
    }
    return text[0] != '\0' && isalnum((unsigned char)text[0]) &&
           isalnum((unsigned char)text[strlen(text) - 1]);
}

static Error take_name(const Options *o, OptionId id, const char *text, const char *also,
                       size_t bytes_min, char *out, size_t room, Why *why)
{
    out[0] = '\0';
    if (!text) return OK;
    if (strlen(text) < bytes_min || strlen(text) >= room || !is_plain(text, also))
        return error_why(why, ERR_USAGE, "%s: '%.*s' is not %zu to %zu of a to z, 0 to 9%s.",
                         options_where(o, id), 80, text, bytes_min, room - 1,
                         also[0] ? " and dashes" : "");
    (void)snprintf(out, room, "%s", text);
    return OK;
}

/* The model's name in the letters that scripts may have. */
static void name_of_model(const char *model, char out[DEPLOY_NAME_BYTES])
{
    char name[MODEL_NAME_BYTES];
    size_t used = 0;
    model_name_of(model, name);
    for (const char *c = name; *c && used < DEPLOY_NAME_BYTES - 1; c++) {
        bool fine = isalnum((unsigned char)*c);
        if (fine) out[used++] = (char)tolower((unsigned char)*c);
        else if (used && out[used - 1] != '-') out[used++] = '-';
    }
    while (used && out[used - 1] == '-') used--;
    out[used] = '\0';
    if (!used) (void)snprintf(out, DEPLOY_NAME_BYTES, "cobord");
}

static Error take_account(Deploy *d, Why *why)
{
    const Options *o = d->options;
    const char *account = options_text(o, OPTION_ACCOUNT);
    if (!account) account = getenv("CLOUDFLARE_ACCOUNT_ID");
    if (account && !account[0]) account = NULL;
    bool hex = account && strlen(account) == DEPLOY_ACCOUNT_BYTES - 1 &&
               strspn(account, "0123456789abcdef") == DEPLOY_ACCOUNT_BYTES - 1;
    if (account && !hex)
        return error_why(why, ERR_USAGE,
                         "%s: an account is 32 hexadecimal digits (see: wrangler whoami).",
                         options_text(o, OPTION_ACCOUNT) ? options_where(o, OPTION_ACCOUNT)
                                                         : "CLOUDFLARE_ACCOUNT_ID");
    (void)snprintf(d->account, sizeof d->account, "%s", account ? account : "");
    return OK;
}

Error deploy_plan_names(Deploy *d, Why *why)
{
    const Options *o = d->options;
    TRY(take_name(o, OPTION_NAME, options_text(o, OPTION_NAME), "-", 1, d->name, sizeof d->name,
                  why));
    if (!d->name[0]) name_of_model(o->operands[1], d->name);
    TRY(take_name(o, OPTION_BUCKET, options_text(o, OPTION_BUCKET), "-", 3, d->bucket,
                  sizeof d->bucket, why));
    TRY(take_name(o, OPTION_SUBDOMAIN, options_text(o, OPTION_SUBDOMAIN), "-", 1, d->subdomain,
                  sizeof d->subdomain, why));
    TRY(take_account(d, why));
    d->free_plan = options_switch(o, OPTION_FREE);
    (void)snprintf(d->store, sizeof d->store, "s3://%s", d->bucket);
    return OK;
}

void deploy_plan_script(const Deploy *d, const char *id, char out[DEPLOY_SCRIPT_BYTES])
{
    (void)snprintf(out, DEPLOY_SCRIPT_BYTES, "%s-%s", d->name, id);
}

/* ---- What a role takes, and reads while it answers */

static Error station_request(const Deploy *d, uint32_t i, IsolateRequest *r, Why *why)
{
    const Plan *plan = &d->plan.plan;
    const PlanRequest *p = &plan->request;
    StationConfig config = plan_station_config(plan, i);
    ForwardTerms terms = {.hyper = p->hyper,
                          .range = plan->role[i].range,
                          .rows_max = plan->chunk,
                          .sequences_max = p->sessions,
                          .context = plan->context};
    StationKeeperTerms keeper = {p->knot->id, p->cache, plan->role[i].range, plan->context,
                                 ISOLATE_ROW_BYTES_MAX};
    config.tile_bytes_max = 0;
    TRY(node_sizes_station(&config, &terms, &r->sizes, why));
    r->keeper_bytes = station_keeper_bytes(&keeper, p->sessions);
    return OK;
}

static Error ids_request(const Deploy *d, const PlanRole *role, IsolateRequest *r, Why *why)
{
    const Plan *plan = &d->plan.plan;
    const PlanRequest *p = &plan->request;
    bool head = role->is_shard || role->head;
    uint32_t logit_rows = head ? plan->logit_rows : 1;
    ShardConfig config = {.knot = p->knot,
                          .hyper = p->hyper,
                          .id_first = role->id_first,
                          .id_last = role->id_last,
                          .rows_max = logit_rows,
                          .workers = 1,
                          .kernels = p->kernels};
    ShardServiceConfig service = {.terms = {.hyper = p->hyper,
                                            .id_first = role->id_first,
                                            .id_last = role->id_last,
                                            .rows_max = plan->chunk},
                                  .logit_rows_max = logit_rows};
    service.terms.payload_bytes_max = shard_service_payload_bytes_max(&service);
    return node_sizes_ids(&config, &service, r->embeds, head, &r->sizes, why);
}

static Error choose_isolate(const Deploy *d, uint32_t i, Isolate *out, NodeSizes *sizes, Why *why)
{
    const Plan *plan = &d->plan.plan;
    const PlanRole *role = &plan->role[i];
    const Knot *knot = plan->request.knot;
    char name[PLAN_ROLE_NAME_BYTES];
    plan_role_name(plan, role, name);
    IsolateRequest r = {.id = name,
                        .knot = knot,
                        .budget_bytes = plan->request.memory_bytes,
                        .fixed_bytes = ISOLATE_FIXED_BYTES,
                        .index_bytes = isolate_index_bytes(knot, knot->payload_offset),
                        .embeds = role->is_shard || role->embed,
                        .id_first = role->id_first,
                        .id_last = role->id_last,
                        .pinned_bytes = ISOLATE_PIN_ALL};
    if (!role->is_shard) TRY(station_request(d, i, &r, why));
    TRY(ids_request(d, role, &r, why));
    *sizes = r.sizes;
    return isolate_choose(&r, out, why);
}

static uint64_t embedding_bytes(const Deploy *d, const PlanRole *role)
{
    const KnotTensor *rows = knot_find(&d->model->file.knot, "token_embd_weight");
    if (!rows || !(role->is_shard || role->embed)) return 0;
    return knot_rows_end(rows, role->id_last) - knot_row_offset(rows, role->id_first);
}

static bool keeps_rows(const PlanRole *role, const Isolate *isolate)
{
    return !(role->is_shard || role->embed) || isolate->rows_last > isolate->rows_first;
}

static uint32_t pieces(uint64_t bytes, uint64_t piece)
{
    return piece ? (uint32_t)((bytes + piece - 1) / piece) : 0;
}

static Error describe_role(Deploy *d, uint32_t i, Why *why)
{
    DeployRole *r = &d->role[i];
    NodeSizes sizes;
    TRY(choose_isolate(d, i, &r->isolate, &sizes, why));
    r->weight_bytes = r->isolate.last - r->isolate.first;
    r->cache_bytes = sizes.cache_bytes;
    r->rows_bytes = embedding_bytes(d, &d->plan.plan.role[i]);
    r->reads = pieces(r->isolate.pass_bytes, r->isolate.tile_bytes_max);
    r->warden_calls = pieces(r->isolate.pass_bytes, WARDEN_PART_BYTES);
    r->warden_bytes = r->isolate.pass_bytes;
    r->keeps_rows = keeps_rows(&d->plan.plan.role[i], &r->isolate);
    return OK;
}

/* A warden keeps the beginning of what it is for; who asks has kept its own beginning already. */
static void describe_warden(Deploy *d, const PlanPlace *place)
{
    const ClusterFile *c = &d->plan.file;
    PlanWarden w = plan_cluster_warden(&d->plan.request, place);
    uint64_t held = w.held_bytes, stations = d->plan.plan.request.stations;
    for (uint32_t i = 0; i < c->node_count; i++) {
        const ClusterNode *n = &c->nodes[i];
        if (n->is_replica || n->warden == CLUSTER_FILE_NONE ||
            strcmp(c->nodes[n->warden].id, place->id) != 0)
            continue;
        DeployRole *r = &d->role[n->role == CLUSTER_SHARD ? stations + n->part : n->part];
        uint64_t pinned = r->isolate.pinned_bytes;
        r->warden_bytes -= min_u64(held > pinned ? held - pinned : 0, r->warden_bytes);
        held -= min_u64(held, r->weight_bytes);
    }
}

const DeployRole *deploy_plan_role(const Deploy *d, const ClusterNode *n)
{
    if (n->role == CLUSTER_STATION) return &d->role[n->part];
    if (n->role == CLUSTER_SHARD) return &d->role[d->plan.plan.request.stations + n->part];
    return NULL;
}

uint32_t deploy_plan_calls(const Deploy *d)
{
    const PlanRequest *p = &d->plan.plan.request;
    return p->stations + (p->head ? 1 : p->shards) + 1;
}

uint32_t deploy_plan_calls_max(const Deploy *d)
{
    return d->free_plan ? DEPLOY_CALLS_FREE : DEPLOY_CALLS_PAID;
}

/* ---- How many of each */

static void give(Options *o, OptionId id, uint64_t count)
{
    o->values[id].given = true;
    o->values[id].count = count;
}

static Error try_counts(Deploy *d, Options *o, uint32_t stations, uint32_t shards, Why *why)
{
    give(o, OPTION_STATIONS, stations);
    give(o, OPTION_SHARDS, shards);
    cluster_plan_free(&d->plan);
    return cluster_plan_make(o, o->operands[1], d->model, NULL, &d->plan, why);
}

/* Whether all stations, all shards keep their weights, and the latter their embedding rows: without wardens those
 * are a read of the store for each token. A role that does not fit keeps nothing. */
static void look(const Deploy *d, bool *stations, bool *shards)
{
    const Plan *plan = &d->plan.plan;
    *stations = *shards = true;
    for (uint32_t i = 0; i < plan->role_count; i++) {
        const PlanRole *r = &plan->role[i];
        Isolate isolate;
        NodeSizes sizes;
        bool keeps = choose_isolate(d, i, &isolate, &sizes, NULL) == OK && isolate.resident;
        if (!d->plan.request.wardens) keeps = keeps && keeps_rows(r, &isolate);
        *(r->is_shard ? shards : stations) &= keeps;
    }
}

static uint32_t at_least(uint64_t bytes, uint64_t memory)
{
    return (uint32_t)max_u64(1, (bytes + memory - 1) / memory);
}

/* From what the bytes need at least: one more of those that do not suffice, until all do. */
static Error choose_counts(Deploy *d, Options *o, bool *resident, Why *why)
{
    const KnotTensor *head = knot_head(&d->model->file.knot);
    uint64_t memory = options_count(o, OPTION_MEMORY), layers = 0;
    for (uint32_t i = 0; i < d->model->file.knot.tensor_count; i++)
        if (d->model->file.knot.tensors[i].name[0] == 'b') /* blk_.. */
            layers += d->model->file.knot.tensors[i].bytes;
    uint32_t stations = at_least(layers, memory), shards = at_least(head ? head->bytes : 0, memory);
    uint32_t most = min_u32(STATIONS_MOST, d->model->hyper.layers * PHASES);
    for (*resident = false; stations <= most && shards <= SHARDS_MOST;) {
        bool of_stations = false, of_shards = false;
        Error error = try_counts(d, o, stations, shards, why);
        if (error != OK && error != ERR_PLAN) return error;
        if (error == OK) look(d, &of_stations, &of_shards);
        *resident = of_stations && of_shards;
        if (*resident) return OK;
        stations += !of_stations;
        shards += !of_shards;
    }
    return OK;
}

/* ---- Cuts inside layers */

/* Bytes of a phase, and of the attention cache that goes with it for a useful context. */
static Error phase_weight(const Deploy *d, PhaseBound b, uint64_t cache_bytes, uint64_t *bytes,
                          Why *why)
{
    PhaseMatrix matrices[PHASE_MATRICES_MAX];
    uint32_t count;
    TRY(phase_matrices(&d->model->file.knot, &d->model->hyper, phase_layer(b), phase_of(b),
                       matrices, &count, why));
    *bytes = phase_of(b) == PHASE_ATTN ? cache_bytes : 0;
    for (uint32_t i = 0; i < count; i++) *bytes += matrices[i].weight->bytes;
    return OK;
}

static uint64_t layer_cache_bytes(const Deploy *d, const Options *o)
{
    const Hyper *h = &d->model->hyper;
    uint64_t context =
        options_given(o, OPTION_CONTEXT) ? options_count(o, OPTION_CONTEXT) : PLAN_CONTEXT_USEFUL;
    return 2 * sizeof(uint16_t) * context * options_count(o, OPTION_SLOTS) * h->kv_heads *
           h->head_dim;
}

/* Ranges from the first phase on, each as long as `room` has place for it: of contiguous cuts none has fewer.
 * False: a phase alone is larger, or there are too many. */
static bool pack(const Deploy *d, uint64_t cache_bytes, uint64_t room, char *text, size_t text_room)
{
    uint32_t layers = d->model->hyper.layers, count = 0;
    uint64_t used = 0, bytes = 0;
    size_t at = 0;
    PhaseBound first = 0, end = layers * PHASES;
    for (PhaseBound b = 0; b <= end; b++) {
        if (b < end && phase_weight(d, b, cache_bytes, &bytes, NULL) != OK) return false;
        if (b < end && bytes > room) return false;
        if (b < end && used + bytes <= room) {
            used += bytes;
            continue;
        }
        char range[PHASE_RANGE_TEXT_MAX];
        phase_range_text((PhaseRange){first, b}, layers, range);
        at += (size_t)snprintf(text + at, text_room - at, "%s%s", count ? "," : "", range);
        if (++count > STATIONS_MOST || at >= text_room) return false;
        first = b;
        used = bytes;
    }
    return true;
}

/* The largest room in which every node still keeps its range. */
static Error choose_ranges(Deploy *d, Options *o, bool *resident, Why *why)
{
    static char text[STATIONS_MOST * PHASE_RANGE_TEXT_MAX];
    uint64_t memory = options_count(o, OPTION_MEMORY), cache = layer_cache_bytes(d, o);
    *resident = false;
    for (uint64_t room = memory; room > memory / 4; room -= PACK_STEP_BYTES) {
        bool of_stations = false, of_shards;
        if (!pack(d, cache, room, text, sizeof text)) continue;
        o->values[OPTION_RANGES].text = text;
        o->values[OPTION_RANGES].given = true;
        cluster_plan_free(&d->plan);
        Error error = cluster_plan_make(o, o->operands[1], d->model, NULL, &d->plan, why);
        if (error != OK && error != ERR_PLAN) return error;
        if (error == OK) look(d, &of_stations, &of_shards);
        *resident = of_stations && of_shards;
        if (*resident) return OK;
    }
    o->values[OPTION_RANGES] = (OptionValue){0};
    return OK;
}

/* Whole layers where they fit; where they do not, or only one phase a script does, cuts by bytes. */
static Error plan_counts(Deploy *d, Options *o, Why *why)
{
    bool given = options_given(o, OPTION_STATIONS) || options_given(o, OPTION_SHARDS) ||
                 options_given(o, OPTION_RANGES) || options_given(o, OPTION_WORKERS);
    bool resident, packed;
    if (given) return cluster_plan_make(o, o->operands[1], d->model, NULL, &d->plan, why);
    TRY(choose_counts(d, o, &resident, why));
    uint32_t stations = d->plan.plan.request.stations, shards = d->plan.plan.request.shards;
    if (!resident) return try_counts(d, o, PLAN_STATIONS_DEFAULT, PLAN_SHARDS_DEFAULT, why);
    if (stations <= d->model->hyper.layers) return OK;
    TRY(choose_ranges(d, o, &packed, why));
    bool fewer = packed && d->plan.plan.request.stations < stations;
    return fewer ? OK : try_counts(d, o, stations, shards, why);
}

/* ---- The plan */

static Error check_limits(const Deploy *d, Why *why)
{
    uint32_t most = d->free_plan ? DEPLOY_SCRIPTS_FREE : DEPLOY_SCRIPTS_PAID;
    if (d->plan.place_count > most)
        return error_why(why, ERR_PLAN, "%u scripts, and an account may have %u. Give fewer %s.",
                         d->plan.place_count, most, "--stations, --shards, --replicas");
    const PlanRequest *p = &d->plan.plan.request;
    /* a round may ask every node twice, and an invocation has a few things of its own to do */
    uint32_t calls = 2 * (p->stations + p->shards) + 8, calls_max = deploy_plan_calls_max(d);
    if (calls > calls_max)
        return error_why(
            why, ERR_PLAN,
            "an invocation may need %u calls, and %u are allowed. Use fewer stations and shards, or the "
            "paid plan.",
            calls, calls_max);
    return OK;
}

static Error name_knot(Deploy *d, Why *why)
{
    char name[MODEL_NAME_BYTES];
    model_name_of(d->plan.knot_key, name);
    int n = snprintf(d->knot_key, sizeof d->knot_key, "%s-%016llx.knot", name,
                     (unsigned long long)d->model->file.knot.id);
    if (n < 0 || n > CLUSTER_FILE_TEXT_BYTES_MAX)
        return error_why(why, ERR_TOO_LARGE, "the name of the model");
    d->plan.request.knot_key = d->knot_key;
    d->plan.request.store = d->store;
    d->plan.request.key_file = "key"; /* beside the cluster file */
    return OK;
}

static Error address_nodes(Deploy *d, Why *why)
{
    ClusterPlan *p = &d->plan;
    d->hosts = calloc(p->place_count, sizeof *d->hosts);
    if (!d->hosts) return error_why(why, ERR_MEMORY, "the list of nodes");
    for (uint32_t i = 0; i < p->place_count; i++) {
        char script[DEPLOY_SCRIPT_BYTES];
        deploy_plan_script(d, p->places[i].id, script);
        (void)snprintf(d->hosts[i], sizeof d->hosts[i], "%s%s%s%s", script,
                       d->subdomain[0] ? "." : "", d->subdomain,
                       d->subdomain[0] ? ".workers.dev" : "");
        p->addresses[i] = (PlanAddress){.host = d->hosts[i], .port = TLS_PORT};
    }
    TRY(cluster_plan_file(p, why));
    if (!d->subdomain[0]) return OK;
    p->file.tls_certificate =
        "node.pem"; /* of native nodes, beside the file: who calls Workers serves TLS too */
    p->file.tls_key = "node.key";
    return OK;
}

Error deploy_plan_make(Deploy *d, Why *why)
{
    Options o = *d->options;
    const Knot *knot = &d->model->file.knot;
    if (knot->version < 2)
        return error_why(
            why, ERR_UNSUPPORTED,
            "a knot of version 1 has no hashes and no tokenizer. Encode it again with: "
            "cobord encode IN.gguf -o OUT.knot.");
    if (!options_given(&o, OPTION_MEMORY)) give(&o, OPTION_MEMORY, DEPLOY_MEMORY_DEFAULT);
    if (!options_given(&o, OPTION_WARDEN_MEMORY))
        give(&o, OPTION_WARDEN_MEMORY, DEPLOY_WARDEN_MEMORY_DEFAULT);
    if (!options_given(&o, OPTION_SLOTS)) give(&o, OPTION_SLOTS, SLOTS_DEFAULT);
    d->plan.process_bytes = ISOLATE_FIXED_BYTES + isolate_index_bytes(knot, knot->payload_offset);
    d->plan.threads = 1;
    TRY(plan_counts(d, &o, why));
    TRY(check_limits(d, why));
    TRY(name_knot(d, why));
    TRY(address_nodes(d, why));
    for (uint32_t i = 0; i < d->plan.plan.role_count; i++) TRY(describe_role(d, i, why));
    for (uint32_t i = 0; i < d->plan.place_count; i++)
        if (cluster_file_is_warden(d->plan.places[i].role)) describe_warden(d, &d->plan.places[i]);
    return OK;
}

void deploy_plan_free(Deploy *d)
{
    cluster_plan_free(&d->plan);
    free(d->hosts);
    d->hosts = NULL;
}
