/* SPDX-License-Identifier: Apache-2.0 */
/* From settings and a cluster file to a server: the knot's header, its hash tables, the tokenizer, then all memory. */
#include <stdlib.h>
#include <string.h>

#include "cluster/plan.h"
#include "cluster/plan_cluster.h"
#include "exchange.h"
#include "hub.h"
#include "machine.h"
#include "reserve.h"
#include "serve/machine.h"
#include "streams.h"

enum { QUEUE_MAX = 256, API_BYTES = 4 << 20, SUBREQUESTS_MAX = 45, SUBREQUESTS_LEAST = 8 };
#define BUDGET_BYTES ((uint64_t)96 << 20)

/* Requests get the reason from here on. */
static Error fail(Hub *hub, Error error)
{
    hub->error = error;
    if (error != OK) hub->stage = HUB_FAILED;
    return error;
}

/* ---- Settings ---- */

static Error set_text(const char *name, char *out, size_t room, const char *value, size_t bytes,
                      Why *why)
{
    if (bytes >= room)
        return error_why(why, ERR_USAGE, "%s has %zu bytes, at most %zu", name, bytes, room - 1);
    memcpy(out, value, bytes);
    out[bytes] = '\0';
    return OK;
}

static Error number(const char *name, const char *value, size_t bytes, uint64_t *out, Why *why)
{
    *out = 0;
    for (size_t i = 0; i < bytes; i++) {
        bool digit = value[i] >= '0' && value[i] <= '9';
        if (!digit || __builtin_mul_overflow(*out, 10, out) ||
            __builtin_add_overflow(*out, value[i] - '0', out))
            return error_why(why, ERR_USAGE, "%s is no number: %.*s", name, (int)bytes, value);
    }
    return bytes ? OK : error_why(why, ERR_USAGE, "%s is empty", name);
}

static Error set_drafts(Hub *hub, const char *value, size_t bytes, Why *why)
{
    uint64_t drafts;
    TRY(number("DRAFTS", value, bytes, &drafts, why));
    if (drafts > PLAN_DRAFTS_DEFAULT)
        return error_why(why, ERR_USAGE, "DRAFTS is %llu, at most %d", (unsigned long long)drafts,
                         PLAN_DRAFTS_DEFAULT);
    hub->drafts = (uint32_t)drafts;
    return OK;
}

static Error set_subrequests(Hub *hub, const char *value, size_t bytes, Why *why)
{
    TRY(number("SUBREQUESTS_MAX", value, bytes, &hub->subrequests_max, why));
    if (hub->subrequests_max >= SUBREQUESTS_LEAST) return OK;
    return error_why(why, ERR_USAGE, "SUBREQUESTS_MAX is %llu, at least %d",
                     (unsigned long long)hub->subrequests_max, SUBREQUESTS_LEAST);
}

static Error set_cors(Hub *hub, const char *value, size_t bytes, Why *why)
{
    TRY(set_text("CORS_ORIGINS", hub->cors, sizeof hub->cors, value, bytes, why));
    Why about = {{0}};
    Error error = bytes ? cors_check(hub->cors, &about) : OK;
    return error == OK ? OK : error_why(why, error, "CORS_ORIGINS: %s", about.text);
}

static bool is(const char *text, const char *value, size_t bytes)
{
    return strlen(text) == bytes && memcmp(text, value, bytes) == 0;
}

static Error set_format(Hub *hub, const char *value, size_t bytes, Why *why)
{
    hub->log_format = is("json", value, bytes) ? LOG_JSON : LOG_TEXT;
    if (hub->log_format == LOG_JSON || is("text", value, bytes)) return OK;
    return error_why(why, ERR_USAGE, "LOG_FORMAT is text or json");
}

static Error set_level(Hub *hub, const char *value, size_t bytes, Why *why)
{
    static const char *const levels[] = {"error", "info", "debug"};
    for (size_t i = 0; i < 3; i++)
        if (is(levels[i], value, bytes)) {
            hub->log_level = (LogLevel)i;
            return OK;
        }
    return error_why(why, ERR_USAGE, "LOG_LEVEL is error, info or debug");
}

static Error set(Hub *hub, const char *name, size_t name_bytes, const char *value, size_t bytes)
{
    Why *why = &hub->why;
#define IS(text) (name_bytes == sizeof text - 1 && memcmp(name, text, name_bytes) == 0)
#define TEXT(name, out) set_text(name, out, sizeof out, value, bytes, why)
    if (IS("NODE_ID")) return TEXT("NODE_ID", hub->id);
    if (IS("VERSION")) return TEXT("VERSION", hub->version);
    if (IS("CLUSTER_KEY")) return TEXT("CLUSTER_KEY", hub->key);
    if (IS("KNOT_KEY")) return TEXT("KNOT_KEY", hub->knot_key);
    if (IS("KNOT_BYTES")) return number("KNOT_BYTES", value, bytes, &hub->knot_bytes, why);
    if (IS("MEMORY_BUDGET_BYTES"))
        return number("MEMORY_BUDGET_BYTES", value, bytes, &hub->budget_bytes, why);
    if (IS("SUBREQUESTS_MAX")) return set_subrequests(hub, value, bytes, why);
    if (IS("CORS_ORIGINS")) return set_cors(hub, value, bytes, why);
    if (IS("LOG_FORMAT")) return set_format(hub, value, bytes, why);
    if (IS("LOG_LEVEL")) return set_level(hub, value, bytes, why);
    if (IS("DRAFTS")) return set_drafts(hub, value, bytes, why);
#undef TEXT
#undef IS
    return OK;
}

static Error read_settings(Hub *hub, const char *text, size_t bytes)
{
    hub->budget_bytes = BUDGET_BYTES;
    hub->log_level = LOG_INFO;
    hub->drafts = PLAN_DRAFTS_DEFAULT;
    hub->subrequests_max = SUBREQUESTS_MAX;
    for (size_t at = 0; at < bytes;) {
        const char *line = text + at, *end = memchr(line, '\n', bytes - at);
        size_t length = end ? (size_t)(end - line) : bytes - at;
        const char *equals = memchr(line, '=', length);
        at += length + 1;
        if (equals)
            TRY(set(hub, line, (size_t)(equals - line), equals + 1,
                    length - (size_t)(equals + 1 - line)));
    }
    return OK;
}

Error hub_settings(Hub *hub, const char *text, size_t bytes)
{
    Error error = read_settings(hub, text, bytes);
    machine_open_log(hub->log_format, hub->log_level, hub->id);
    return fail(hub, error);
}

Error hub_keys(Hub *hub, const char *text, size_t bytes)
{
    if (hub->stage == HUB_FAILED) return hub->error;
    hub->has_keys = true;
    hub->keys_bytes = bytes;
    hub->keys = malloc(bytes + 1);
    if (!hub->keys || !text) return fail(hub, error_why(&hub->why, ERR_MEMORY, "API_KEYS"));
    memcpy(hub->keys, text, bytes);
    return OK;
}

static Error find_self(Hub *hub)
{
    const ClusterFile *c = &hub->cluster;
    const char *id = hub->id[0] ? hub->id : "coordinator-0";
    hub->self = cluster_file_find(c, id);
    if (!hub->self || hub->self->role != CLUSTER_COORDINATOR)
        return error_why(&hub->why, ERR_NOT_FOUND, "the cluster file has no coordinator %s", id);
    if (hub->knot_bytes) return OK;
    if (!hub->knot_key[0]) return error_why(&hub->why, ERR_USAGE, "KNOT_KEY is missing");
    return error_why(&hub->why, ERR_NOT_FOUND,
                     "KNOT_KEY is %s, which is not in the bucket, or empty there", hub->knot_key);
}

static Error begin(Hub *hub, const char *cluster, size_t bytes)
{
    machine_limit_memory(hub->budget_bytes);
    size_t room = cluster_file_arena_bytes(bytes);
    void *memory = malloc(room);
    if (!memory) return error_why(&hub->why, ERR_MEMORY, "no memory for the cluster file");
    Arena arena = arena_make(memory, room);
    TRY(cluster_file_parse(cluster, bytes, &arena, &hub->cluster, &hub->why));
    TRY(find_self(hub));
    hub->opening = knot_index_start(hub->cluster.knot_id, hub->knot_bytes, &hub->index);
    hub->stage = HUB_INDEX;
    return OK;
}

Error hub_open(Hub *hub, const char *cluster, size_t bytes)
{
    return hub->stage == HUB_FAILED ? hub->error : fail(hub, begin(hub, cluster, bytes));
}

/* ---- Header and hash tables ---- */

static Error take_memory(Hub *hub)
{
    const KnotIndexNeed *need = &hub->need;
    hub->memory = need->memory_bytes
                      ? realloc(need->grows ? hub->index.header : NULL, need->memory_bytes)
                      : NULL;
    hub->scratch = need->scratch_bytes ? malloc(need->scratch_bytes) : NULL;
    if (need->grows && hub->memory) hub->index.header = hub->memory;
    if ((hub->memory || !need->memory_bytes) && (hub->scratch || !need->scratch_bytes)) return OK;
    return error_why(&hub->why, ERR_MEMORY, "%zu bytes of a knot's tables",
                     need->memory_bytes + need->scratch_bytes);
}

static Error give(Hub *hub)
{
    Error error = knot_index_give(&hub->opening, hub->memory, hub->scratch, &hub->why);
    free(hub->scratch);
    hub->scratch = NULL;
    return error;
}

static HubWishKind wish_for(Hub *hub, uint64_t offset, uint64_t bytes, uint8_t *to)
{
    hub->reads = true;
    hub->wish = (HubWish){.offset = (double)offset, .room = (size_t)bytes, .address = to};
    return HUB_READ;
}

/* ---- The tokenizer ---- */

/* Hashes of rows and tensors were needed to know the others. */
static Error take_tokenizer_room(Hub *hub)
{
    KnotIndex *x = &hub->index;
    KnotSection s = x->knot.tokenizer;
    free(x->row_hashes);
    free(x->tensor_hashes);
    x->row_hashes = x->tensor_hashes = NULL;
    TRY(hyper_from_knot(&x->knot, &hub->hyper, &hub->why));
    if (!s.bytes) return error_why(&hub->why, ERR_NOT_FOUND, "the knot has no tokenizer");
    knot_index_blocks(x, s.offset, s.bytes, &hub->block_first, &hub->block_last);
    hub->memory = malloc((size_t)(hub->block_last - hub->block_first));
    hub->stage = HUB_TOKENIZER;
    return hub->memory ? OK : error_why(&hub->why, ERR_MEMORY, "no memory for the vocabulary");
}

static Error build_tokenizer(Hub *hub)
{
    KnotIndex *x = &hub->index;
    KnotSection s = x->knot.tokenizer;
    uint64_t bytes = hub->block_last - hub->block_first;
    TRY(knot_index_check(x, hub->block_first, bytes, hub->memory, &hub->why));
    TRY(vocab_parse(hub->memory + (s.offset - hub->block_first), (size_t)s.bytes, &hub->vocab,
                    &hub->why));
    size_t room = tokenizer_bytes(&hub->vocab);
    void *memory = malloc(room);
    if (!memory) return error_why(&hub->why, ERR_MEMORY, "no memory for the tokenizer");
    Arena arena = arena_make(memory, room);
    TRY(tokenizer_build(&hub->vocab, &arena, &hub->tokenizer, &hub->why));
    if (hub->vocab.tokens == hub->hyper.vocabulary && hub->vocab.tokens == hub->cluster.vocabulary)
        return OK;
    return error_why(&hub->why, ERR_FORMAT,
                     "the tokenizer has %u tokens, the model a vocabulary of %u, the cluster of %u",
                     hub->vocab.tokens, hub->hyper.vocabulary, hub->cluster.vocabulary);
}

/* ---- The engine and the server ---- */

static PipelineConfig pipeline_config(const Hub *hub)
{
    const ClusterFile *c = &hub->cluster;
    uint32_t ids = plan_cluster_ids_most(c, hub->hyper.vocabulary);
    return (PipelineConfig){
        .cluster = c,
        .hyper = &hub->hyper,
        .slots = c->sessions,
        .logit_rows = plan_logit_rows(c->sessions, PLAN_DRAFTS_DEFAULT, c->sessions, ids, false,
                                      c->memory_bytes),
        .drafts = hub->drafts,
        .frames = c->pipeline ? c->pipeline : c->parts[CLUSTER_STATION],
        .nonce = (uint32_t)machine_random(),
    };
}

static Error build_engine(Hub *hub)
{
    hub->config = pipeline_config(hub);
    CoordinatorConfig coordinator = pipeline_coordinator_config(&hub->config);
    uint64_t bytes =
        pipeline_bytes(&hub->config) + coordinator_bytes(&coordinator) + 4 * ARENA_ALIGN;
    void *memory = bytes <= hub->budget_bytes ? malloc((size_t)bytes) : NULL;
    if (!memory)
        return error_why(&hub->why, ERR_PLAN, "%llu bytes for frames of %u rows",
                         (unsigned long long)bytes, hub->cluster.chunk);
    Arena arena = arena_make(memory, (size_t)bytes);
    TRY(coordinator_build(&coordinator, &arena, &hub->coordinator, &hub->why));
    TRY(pipeline_build(&hub->config, hub->coordinator, &arena, &hub->pipeline, &hub->why));
    pace_start(&hub->pace, hub->coordinator);
    hub->calls = calloc(pipeline_calls_max(hub->pipeline), sizeof *hub->calls);
    hub->cancels = calloc(pipeline_calls_max(hub->pipeline), sizeof *hub->cancels);
    hub->traces = calloc(hub->cluster.sessions, sizeof *hub->traces);
    return hub->calls && hub->cancels && hub->traces
               ? OK
               : error_why(&hub->why, ERR_MEMORY, "no memory for calls");
}

static void wake(void *host) { ((Hub *)host)->again = true; }
static void intake(void *host) { ((Hub *)host)->intakes++; }
static uint32_t connections(void *host)
{
    (void)host;
    return exchange_count();
}

/* What is no file of keys lets nobody in: the coordinator does not start. */
static Error load_keys(Hub *hub)
{
    Why about = {{0}};
    if (!hub->has_keys) return OK;
    Error error = serve_load_keys(hub->serve, hub->keys, hub->keys_bytes, &about);
    explicit_bzero(hub->keys, hub->keys_bytes);
    free(hub->keys);
    hub->keys = NULL;
    return error == OK ? OK : error_why(&hub->why, error, "API_KEYS: %s", about.text);
}

static void tell_over(void *hub, HttpExchange *x, const HttpOver *over)
{
    serve_over(((Hub *)hub)->serve, x, over);
}

static Error build_server(Hub *hub)
{
    const ClusterFile *c = &hub->cluster;
    uint64_t taken = reserve_bytes() + API_BYTES;
    if (taken > hub->budget_bytes)
        return error_why(&hub->why, ERR_PLAN,
                         "%s takes %llu KiB with its tokenizer, more than the %llu allowed",
                         hub->self->id, (unsigned long long)taken >> 10,
                         (unsigned long long)hub->budget_bytes >> 10);
    ServeOptions options = {
        .host = {.host = hub, .wake = wake, .intake = intake, .connections = connections},
        .form_bytes_max = (size_t)plan_form_bytes(hub->hyper.vocabulary, c->sessions,
                                                  (hub->budget_bytes - taken) / 2),
        .model = c->model_name,
        .slots = c->sessions,
        .queue_max = QUEUE_MAX,
        .vocabulary = hub->hyper.vocabulary,
        .context = c->context,
        .hidden = hub->hyper.hidden,
        .tokenizer = hub->tokenizer,
        .knot = &hub->index.knot,
        .version = hub->version,
        .role = "coordinator",
        .memory_bytes = hub->budget_bytes,
        .engine = hub_engine(hub),
        .journal = streams_journal(),
        .cors = hub->cors[0] ? hub->cors : NULL,
    };
    TRY(hub_watch_open(hub));
    TRY(serve_open(&options, &hub->serve, &hub->why));
    exchange_tell(tell_over, hub);
    return load_keys(hub);
}

/* ---- The loop ---- */

static Error tokenizer_came(Hub *hub)
{
    TRY(build_tokenizer(hub));
    TRY(build_engine(hub));
    TRY(build_server(hub));
    hub->stage = HUB_OPEN;
    return OK;
}

void hub_read_came(Hub *hub, bool fine)
{
    if (!hub->reads) return;
    hub->reads = false;
    Error error = fine ? OK
                       : error_why(&hub->why, ERR_UNREACHABLE, "%s cannot be read from the bucket",
                                   hub->knot_key);
    if (error == OK) error = hub->stage == HUB_TOKENIZER ? tokenizer_came(hub) : give(hub);
    (void)fail(hub, error);
}

/* Result  whether there is something to read; with an error there is not. */
static Error advance(Hub *hub, HubWishKind *kind)
{
    while (knot_index_need(&hub->opening, &hub->need)) {
        TRY(take_memory(hub));
        const KnotIndexNeed *need = &hub->need;
        if (need->bytes) {
            *kind = wish_for(hub, need->offset, need->bytes,
                             need->into_scratch ? hub->scratch : hub->memory + need->at);
            return OK;
        }
        TRY(give(hub));
    }
    TRY(take_tokenizer_room(hub));
    *kind = wish_for(hub, hub->index.knot.payload_offset + hub->block_first,
                     hub->block_last - hub->block_first, hub->memory);
    return OK;
}

HubWishKind hub_open_next(Hub *hub)
{
    HubWishKind kind = HUB_REST;
    if (hub->stage == HUB_INDEX && !hub->reads) (void)fail(hub, advance(hub, &kind));
    return kind;
}
