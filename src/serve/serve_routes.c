/* SPDX-License-Identifier: Apache-2.0 */
/* Which path is whose, and what can be answered at once. On the HTTP thread: nothing here waits or computes. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/host_name.h"
#include "serve/machine.h"
#include "serve/serve_cors.h"
#include "serve/serve_state.h"

typedef enum Route {
    HEALTH,
    READY,
    METRICS,
    CLUSTER,
    MODELS,
    MODEL,
    TAGS,
    PROCESSES,
    VERSION,
    ROOT,
    PAGE,
    INTAKE, /* what needs the body */
    NOWHERE
} Route;

typedef struct Path {
    const char *path;
    bool post;
    Route route;
    RequestKind kind;
} Path;

static const Path paths[] = {
    {"/health", false, HEALTH, 0},
    {"/ready", false, READY, 0},
    {"/metrics", false, METRICS, 0},
    {"/cluster", false, CLUSTER, 0},
    {"/v1/models", false, MODELS, 0},
    {"/v1/chat/completions", true, INTAKE, REQUEST_CHAT},
    {"/v1/completions", true, INTAKE, REQUEST_COMPLETION},
    {"/v1/responses", true, INTAKE, REQUEST_RESPONSES},
    {"/v1/embeddings", true, INTAKE, REQUEST_EMBEDDINGS},
    {"/api/chat", true, INTAKE, REQUEST_OLLAMA_CHAT},
    {"/api/generate", true, INTAKE, REQUEST_OLLAMA_GENERATE},
    {"/api/show", true, INTAKE, REQUEST_OLLAMA_SHOW},
    {"/api/tags", false, TAGS, 0},
    {"/api/ps", false, PROCESSES, 0},
    {"/api/version", false, VERSION, 0},
    {"/", false, ROOT, 0},
    {"/tokenize", true, INTAKE, REQUEST_TOKENIZE},
    {"/detokenize", true, INTAKE, REQUEST_DETOKENIZE},
    {"/apply-template", true, INTAKE, REQUEST_TEMPLATE},
};
static const Path one_model = {"/v1/models/", false, MODEL, 0}, page = {"/web/", false, PAGE, 0},
                  nowhere = {"", false, NOWHERE, 0};

#define RUNS "Cobord is running"
enum { DESCRIPTION_BYTES_MAX = 2 << 20 };

static const Path *find(const Serve *s, const HttpExchange *x)
{
    const char *path = http_exchange_path(x);
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        if (strcmp(path, paths[i].path) == 0) return &paths[i];
    if (strncmp(path, one_model.path, strlen(one_model.path)) == 0) return &one_model;
    return serve_page_find(s->options.page, path) ? &page : &nowhere;
}

RequestKind serve_routes_kind(const Serve *s, const HttpExchange *x) { return find(s, x)->kind; }

/* The table's place; behind it what is no place of it. */
enum { PATHS = sizeof paths / sizeof paths[0], ONE_MODEL = PATHS, A_PAGE, NOT_FOUND };
_Static_assert((int)NOT_FOUND < (int)SERVE_ROUTES_MAX, "figures of each route");

const char *serve_routes_label(uint32_t route)
{
    if (route < PATHS) return paths[route].path;
    return route == ONE_MODEL ? "/v1/models/{id}" : route == A_PAGE ? "/web/{name}" : "other";
}

const char *serve_routes_name(const Serve *s, const HttpExchange *x, uint32_t *route)
{
    const Path *path = find(s, x);
    if (path == &one_model) *route = ONE_MODEL;
    else if (path == &page) *route = A_PAGE;
    else *route = path == &nowhere ? NOT_FOUND : (uint32_t)(path - paths);
    return serve_routes_label(*route);
}

/* ---- Refusals that need no body ---- */

static bool is_type(const char *type, const char *wanted)
{
    size_t n = strlen(wanted);
    return strncasecmp(type, wanted, n) == 0 && (!type[n] || strchr("; \t", type[n]));
}

/* JSON; also nothing, and what `curl -d` says without being asked, unless a browser says it: a page of
 * somebody else's may send forms, and bytes of no type, anywhere, but not JSON. */
static bool is_json(const HttpExchange *x)
{
    const char *type = http_exchange_header(x, "Content-Type");
    if (type && is_type(type, "application/json")) return true;
    bool unsaid = !type || is_type(type, "application/x-www-form-urlencoded");
    return unsaid && !http_exchange_header(x, "Origin");
}

static void refuse_method(Serve *s, HttpExchange *x, bool post)
{
    Refusal refusal;
    char body[REFUSAL_JSON_MAX];
    JsonWriter w = json_writer_make(body, sizeof body);
    (void)refusal_make(&refusal, REFUSAL_METHOD, NULL, "this path takes %s", post ? "POST" : "GET");
    refusal_write(&refusal, &w);
    s->figures.refused++;
    serve_log_refused(s, x, &refusal);
    http_reply(x, &(HttpReply){405, "application/json", post ? "POST" : "GET, HEAD", 0}, body,
               w.used);
}

/* A short gap is bridged: who came meanwhile waits in the queue. */
static bool is_unready(const Serve *s, Why *why)
{
    uint64_t since = s->unready_ns;
    return since && machine_now_ns() - since > SERVE_PATIENCE_S * 1000000000ull &&
           !serve_ready(s, why);
}

static bool check_post(Serve *s, HttpExchange *x)
{
    Refusal refusal = {.kind = REFUSAL_NONE};
    Why why = {{0}};
    RequestKind kind = serve_routes_kind(s, x);
    const char *encoding = http_exchange_header(x, "Content-Encoding");
    if (!is_json(x))
        (void)refusal_make(&refusal, REFUSAL_MEDIA, NULL,
                           "the Content-Type must be application/json");
    else if (encoding && strcasecmp(encoding, "identity") != 0)
        (void)refusal_make(&refusal, REFUSAL_MEDIA, NULL, "the Content-Encoding must be identity");
    else if (http_exchange_announced(x) > REQUEST_BODY_BYTES_MAX)
        (void)refusal_make(&refusal, REFUSAL_TOO_LARGE, NULL, "the body is larger than %d bytes",
                           REQUEST_BODY_BYTES_MAX);
    else if (s->draining)
        (void)refusal_make(&refusal, REFUSAL_DRAINING, NULL, "the server is shutting down");
    else if (request_generates(kind) && is_unready(s, &why))
        (void)refusal_make(&refusal, REFUSAL_UNREADY, NULL, "the cluster is not complete: %s",
                           why.text);
    if (refusal.kind == REFUSAL_NONE) return true;
    serve_refuse(s, x, &refusal);
    return false;
}

static void refuse_path(Serve *s, HttpExchange *x)
{
    Refusal refusal;
    (void)refusal_make(&refusal, REFUSAL_PATH, NULL, "there is nothing at this path; %s",
                       strncmp(http_exchange_path(x), "/api/", 5) == 0
                           ? "of Ollama's API there are chat, generate, show, tags, ps, version"
                           : "see /v1/models and docs/api.md");
    serve_refuse(s, x, &refusal);
}

/* Whether the request goes on; else it was refused. */
static bool check_path(Serve *s, HttpExchange *x, const Path *path)
{
    const char *method = http_exchange_method(x);
    bool get = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0,
         post = strcmp(method, "POST") == 0;
    if (path->route == NOWHERE) refuse_path(s, x);
    else if (path->post && get && http_exchange_header(x, "Last-Event-ID"))
        return true; /* a stream that goes on needs no body */
    else if (path->post ? !post : !get) refuse_method(s, x, path->post);
    else return !post || check_post(s, x);
    return false;
}

/* ---- Keys ---- */

/* For everybody, keys or not: whether it is there, and the question whether another page may ask. */
static bool is_public(const HttpExchange *x, const Path *path)
{
    return path->route == HEALTH || path->route == READY || path->route == ROOT ||
           path->route == PAGE || strcmp(http_exchange_method(x), "OPTIONS") == 0;
}

/* Whether it is a page whose name points here only now. With keys it would need one. */
static bool is_rebound(Serve *s, HttpExchange *x, Refusal *refusal)
{
    const char *name = s->options.name, *header = http_exchange_header(x, "Host");
    if (!name || serve_count_keys(s) || host_name_is_known(header, name, s->options.cors))
        return false;
    return !refusal_make(
        refusal, REFUSAL_HOST, NULL,
        "this server is for its own machine and has not been given that name: ask its address or "
        "localhost. A proxy's name is given with --cors https://NAME, any with --api-keys FILE");
}

static bool is_allowed(Serve *s, HttpExchange *x, const Path *path)
{
    Refusal refusal;
    bool admin = path->route == METRICS || path->route == CLUSTER;
    if (is_public(x, path)) return true;
    if (!is_rebound(s, x, &refusal) && serve_keys_check(s, x, admin, &refusal)) return true;
    serve_refuse(s, x, &refusal);
    return false;
}

void serve_routes_head(Serve *s, HttpExchange *x)
{
    const Path *path = find(s, x);
    Refusal refusal;
    s->figures.requests++;
    serve_log_begin(x);
    if (serve_cors_takes(s, x) || !is_allowed(s, x, path) || !check_path(s, x, path)) return;
    if (path->route == INTAKE && !serve_keys_take_request(s, x, &refusal))
        serve_refuse(s, x, &refusal);
}

static void push(Serve *s, HttpExchange *x)
{
    Refusal refusal;
    ServeKey *key;
    if (serve_keys_enter(s, x, &key, &refusal)) serve_intake_push(s, x, key);
    else serve_refuse(s, x, &refusal);
}

/* ---- Answers at once ---- */

static void reply_ready(Serve *s, HttpExchange *x)
{
    char body[512 + JSON_WRITER_GROWTH * WHY_MAX];
    JsonWriter w = json_writer_make(body, sizeof body);
    Why why = {{0}};
    bool complete = serve_ready(s, &why), ready = complete && !s->draining;
    json_writer_raw(&w, s->draining ? "{\"status\":\"shutting down\""
                        : ready     ? "{\"status\":\"ready\""
                                    : "{\"status\":\"not ready\"");
    if (!complete) json_writer_member_text(&w, "missing", why.text);
    json_writer_member_u64(&w, "slots", s->options.slots);
    json_writer_member_u64(&w, "active", s->figures.active);
    json_writer_member_u64(&w, "queued", s->figures.waiting);
    json_writer_raw(&w, "}");
    http_reply(x, &(HttpReply){ready ? 200 : 503, "application/json", NULL, ready ? 0 : 1}, body,
               w.used);
}

/* The beginning of the object, with a comma behind. */
static void write_queue(Serve *s, JsonWriter *w)
{
    const ServeFigures *f = &s->figures;
    json_writer_raw(w, s->draining ? "{\"draining\":true" : "{\"draining\":false");
    json_writer_raw(w, ",\"queue\":{");
    json_writer_member_u64(w, "slots", s->options.slots);
    json_writer_member_u64(w, "active", f->active);
    json_writer_member_u64(w, "waiting", f->waiting);
    json_writer_member_u64(w, "limit", s->options.queue_max);
    json_writer_member_u64(w, "answers", f->answers);
    json_writer_member_u64(w, "generated_tokens", f->generated_tokens);
    json_writer_member_u64(w, "failed", f->failed);
    json_writer_member_u64(w, "refused", f->refused);
    json_writer_member_u64(w, "disconnects", f->gone);
    json_writer_raw(w, "},");
}

static void reply_cluster(Serve *s, HttpExchange *x)
{
    const ServeEngine *engine = &s->options.engine;
    Refusal refusal;
    char *body = malloc(DESCRIPTION_BYTES_MAX);
    JsonWriter w = json_writer_make(body, body ? DESCRIPTION_BYTES_MAX - 1 : 0);
    write_queue(s, &w);
    size_t bytes = body ? engine->describe(engine->engine, body + w.used, w.max - w.used) : 0;
    if (bytes) {
        bytes += w.used;
        body[bytes++] = '}';
        http_reply_take(x, &(HttpReply){200, "application/json", NULL, 0}, body, bytes);
        return;
    }
    free(body);
    (void)refusal_make(&refusal, REFUSAL_MEMORY, NULL, "not enough memory for the description");
    serve_refuse(s, x, &refusal);
}

static void reply_models(Serve *s, HttpExchange *x, bool one)
{
    char body[2048];
    JsonWriter w = json_writer_make(body, sizeof body);
    if (one && strcmp(http_exchange_path(x) + strlen(one_model.path), s->options.model) != 0) {
        Refusal refusal;
        (void)refusal_make(&refusal, REFUSAL_MODEL, NULL, "the model served here is %s",
                           s->options.model);
        serve_refuse(s, x, &refusal);
        return;
    }
    (one ? answer_model : answer_models)(&w, s->options.model, s->created_s, s->options.context,
                                         s->options.hidden);
    serve_reply_json(x, &w);
}

static void reply_ollama(Serve *s, HttpExchange *x,
                         void (*write)(const AnswerOllamaModel *m, JsonWriter *w))
{
    char body[8 * ANSWER_EVENT_BYTES];
    JsonWriter w = json_writer_make(body, sizeof body);
    AnswerOllamaModel model = serve_ollama_model(s);
    write(&model, &w);
    serve_reply_json(x, &w);
}

static void reply_version(Serve *s, HttpExchange *x)
{
    char body[256];
    JsonWriter w = json_writer_make(body, sizeof body);
    json_writer_raw(&w, "{");
    json_writer_member_text(&w, "version", s->options.version);
    json_writer_raw(&w, "}");
    serve_reply_json(x, &w);
}

void serve_routes_request(Serve *s, HttpExchange *x)
{
    switch (find(s, x)->route) {
    case HEALTH:
        http_reply(x, &(HttpReply){200, "application/json", NULL, 0}, "{\"status\":\"ok\"}", 15);
        break;
    case READY: reply_ready(s, x); break;
    case METRICS: serve_metrics_reply(s, x); break;
    case CLUSTER: reply_cluster(s, x); break;
    case MODELS: reply_models(s, x, false); break;
    case MODEL: reply_models(s, x, true); break;
    case TAGS: reply_ollama(s, x, answer_ollama_tags); break;
    case PROCESSES: reply_ollama(s, x, answer_ollama_processes); break;
    case VERSION: reply_version(s, x); break;
    case ROOT: serve_page_reply_root(s->options.page, x, RUNS); break;
    case PAGE: serve_page_reply(serve_page_find(s->options.page, http_exchange_path(x)), x); break;
    default: push(s, x); break;
    }
}
