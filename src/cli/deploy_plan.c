/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/deploy_plan.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/max.h"
#include "base/min.h"

enum {
    STATIONS_MOST = 320, /* with the shards below what an account may have */
    SHARDS_MOST = 128,
    SLOTS_DEFAULT = 2,
    WARDEN_PART_BYTES = 4 << 20, /* of an answer to GET /knot */
    TLS_PORT = 443
};

/* What an instance takes before any role: stack, data, and the header's tables, which depend on it. */
static const uint64_t INSTANCE_BYTES = (uint64_t)3 << 20;

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

/* ---- What is read while answering */

static uint64_t block_down(uint64_t bytes)
{
    return bytes / KNOT_HASH_BLOCK_BYTES * KNOT_HASH_BLOCK_BYTES;
}
static uint64_t block_up(uint64_t bytes) { return block_down(bytes + KNOT_HASH_BLOCK_BYTES - 1); }

static void widen(uint64_t *first, uint64_t *last, uint64_t from, uint64_t to)
{
    *first = min_u64(*first, from);
    *last = max_u64(*last, to);
}

static Error find_stretch(const Deploy *d, const PlanRole *role, uint64_t *bytes, Why *why)
{
    const Knot *knot = &d->model->file.knot;
    uint64_t first = UINT64_MAX, last = 0;
    for (PhaseBound b = role->range.first; !role->is_shard && b < role->range.last; b++) {
        PhaseMatrix matrices[PHASE_MATRICES_MAX];
        uint32_t count;
        TRY(phase_matrices(knot, &d->model->hyper, phase_layer(b), phase_of(b), matrices, &count,
                           why));
        for (uint32_t i = 0; i < count; i++) {
            const KnotTensor *t = matrices[i].weight;
            widen(&first, &last, t->offset, t->offset + t->bytes);
        }
    }
    const KnotTensor *head = knot_head(knot);
    if ((role->is_shard || role->head) && head)
        widen(&first, &last, knot_row_offset(head, role->id_first),
              knot_rows_end(head, role->id_last));
    last = min_u64(block_up(last), knot->payload_bytes);
    *bytes = first < last ? last - block_down(first) : 0;
    return OK;
}

static uint64_t embedding_bytes(const Deploy *d, const PlanRole *role)
{
    const KnotTensor *rows = knot_find(&d->model->file.knot, "token_embd_weight");
    if (!rows || !(role->is_shard || role->embed)) return 0;
    return knot_rows_end(rows, role->id_last) - knot_row_offset(rows, role->id_first);
}

static bool keeps_rows(const Deploy *d, const PlanRole *role)
{
    return role->total_bytes + embedding_bytes(d, role) <= d->plan.plan.request.memory_bytes;
}

static Error describe_role(Deploy *d, uint32_t i, Why *why)
{
    const Plan *plan = &d->plan.plan;
    const PlanRole *role = &plan->role[i];
    DeployRole *r = &d->role[i];
    TRY(find_stretch(d, role, &r->stretch_bytes, why));
    r->pinned_bytes = role->pinned_bytes >= role->weight_bytes ? r->stretch_bytes
                                                               : block_down(role->pinned_bytes);
    r->pinned_bytes = min_u64(r->pinned_bytes, r->stretch_bytes);
    r->streamed_bytes = r->stretch_bytes - r->pinned_bytes;
    uint64_t tile = max_u64(block_down(plan->tile_bytes_max), KNOT_HASH_BLOCK_BYTES);
    r->reads = (uint32_t)((r->streamed_bytes + tile - 1) / tile);
    r->warden_calls = (uint32_t)((r->streamed_bytes + WARDEN_PART_BYTES - 1) / WARDEN_PART_BYTES);
    r->warden_bytes = r->streamed_bytes;
    r->keeps_rows = keeps_rows(d, role);
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
        uint64_t from_memory = held > r->pinned_bytes ? held - r->pinned_bytes : 0;
        r->warden_bytes -= min_u64(from_memory, r->warden_bytes);
        held -= min_u64(held, r->stretch_bytes);
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
 * are a read of the store for each token. */
static void look(Deploy *d, bool *stations, bool *shards)
{
    const Plan *plan = &d->plan.plan;
    *stations = *shards = true;
    for (uint32_t i = 0; i < plan->role_count; i++) {
        const PlanRole *r = &plan->role[i];
        bool keeps = r->pinned_bytes >= r->weight_bytes;
        if (!d->plan.request.wardens) keeps = keeps && keeps_rows(d, r);
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

static Error plan_counts(Deploy *d, Options *o, Why *why)
{
    bool given = options_given(o, OPTION_STATIONS) || options_given(o, OPTION_SHARDS) ||
                 options_given(o, OPTION_RANGES) || options_given(o, OPTION_WORKERS);
    bool resident;
    if (given) return cluster_plan_make(o, o->operands[1], d->model, NULL, &d->plan, why);
    TRY(choose_counts(d, o, &resident, why));
    return resident ? OK : try_counts(d, o, PLAN_STATIONS_DEFAULT, PLAN_SHARDS_DEFAULT, why);
}

/* ---- The plan */

static Error check_limits(const Deploy *d, Why *why)
{
    uint32_t most = d->free_plan ? DEPLOY_SCRIPTS_FREE : DEPLOY_SCRIPTS_PAID;
    if (d->plan.place_count > most)
        return error_why(why, ERR_PLAN, "%u scripts, and an account may have %u. Give fewer %s.",
                         d->plan.place_count, most, "--stations, --shards, --replicas");
    uint32_t calls = deploy_plan_calls(d), calls_max = deploy_plan_calls_max(d);
    if (calls > calls_max)
        return error_why(
            why, ERR_PLAN,
            "a token takes %u calls, and an invocation may make %u. Use fewer stations "
            "and shards, or the paid plan.",
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
    d->plan.process_bytes = INSTANCE_BYTES + knot_arena_bytes(knot->payload_offset);
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
