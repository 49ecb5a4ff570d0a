/* SPDX-License-Identifier: Apache-2.0 */
/* cobord serve: OpenAI's API over one model, every role in this process. The socket is bound
 * before the model is read, so that a port in use is said at once. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/access_options.h"
#include "cli/complain.h"
#include "cli/engine_options.h"
#include "cli/log_options.h"
#include "cli/model_name.h"
#include "cli/tls_options.h"
#include "cli/verbs.h"
#include "host/api_server.h"
#include "host/clock.h"
#include "host/journal.h"
#include "host/listen.h"
#include "host/log.h"
#include "host/memory.h"
#include "host/places.h"
#include "serve/fleet.h"

static const OptionId serve_options[] = {
    OPTION_LISTEN,  OPTION_SLOTS, OPTION_QUEUE,  OPTION_JOURNAL, OPTIONS_TLS,
    OPTIONS_ACCESS, OPTIONS_LOG,  OPTIONS_DRAFT, OPTIONS_ENGINE, OPTION_END};
const OptionVerb serve_verb = {
    .name = "serve",
    .usage = "MODEL",
    .summary =
        "Serves a model over HTTP to programs that know OpenAI (/v1/chat/completions, "
        "/v1/completions, /v1/responses, /v1/embeddings, /v1/models) or Ollama (/api), and a "
        "chat page to browsers, at http://127.0.0.1:8080. Give OpenAI clients the base "
        "address http://127.0.0.1:8080/v1. Beside it: /tokenize, /detokenize, /health, "
        "/ready, /metrics. Ctrl-C finishes what was begun.\n\n"
        "Beyond this machine (--listen 0.0.0.0:8080) give it keys (--api-keys) and a "
        "certificate.",
    .examples = "  cobord serve qwen2.5-coder-1.5b\n"
                "  cobord serve smollm2-135m --listen 127.0.0.1:9000 --slots 8 --context 2048\n"
                "  cobord serve qwen2.5-coder-1.5b --draft qwen2.5-coder-0.5b\n"
                "  cobord serve smollm2-135m --listen 0.0.0.0:8443 \\\n"
                "      --tls-certificate chain.pem --tls-key key.pem\n",
    .options = serve_options,
    .operands_min = 1,
    .operands_max = 1,
    .operand_names = "MODEL",
};

/* A journal that cannot be had costs resuming, not serving. */
static Journal *journal_from(const Options *o, uint64_t knot_id)
{
    char standard[PLACES_PATH_BYTES];
    const char *path = options_text(o, OPTION_JOURNAL);
    Journal *journal = NULL;
    Why why = {{0}};
    if (!path) places_state(standard, sizeof standard, "journal.db");
    if (!path) path = standard;
    if (!*path || strcmp(path, "none") == 0) return NULL;
    if (journal_open(path, knot_id, &journal, &why) != OK)
        log_say(LOG_ERROR, "streams cannot be resumed after a restart: %s", why.text);
    return journal;
}

/* What serve's engine is here. */
typedef struct Process {
    Engine *engine;
    const char *model;
    uint64_t opened_ns;
} Process;

static bool step(void *engine, const CoordinatorEvent **events, uint32_t *count, Why *why)
{
    return engine_step(((Process *)engine)->engine, events, count, why);
}

static uint32_t hops(void *engine, uint32_t slot, AnswerHop *out, uint32_t room)
{
    const EngineCost *cost = engine_cost(((Process *)engine)->engine, slot);
    if (!room || !cost->frames) return 0;
    *out = (AnswerHop){.node = "self", .calls = cost->frames, .us = cost->ns / 1000};
    return 1;
}

static void begin_hops(void *engine, uint32_t slot)
{
    *engine_cost(((Process *)engine)->engine, slot) = (EngineCost){0};
}

static size_t describe(void *engine, char *out, size_t room)
{
    const Process *p = engine;
    const Plan *plan = engine_plan(p->engine);
    EngineTimes t;
    engine_times(p->engine, &t);
    const FleetWhole whole = {
        .plan = plan,
        .model = p->model,
        .version = COBORD_VERSION,
        .knot_id = plan->request.knot->id,
        .uptime_ms = (clock_now_ns() - p->opened_ns) / 1000000u,
        .memory = {.budget_bytes = plan->request.memory_bytes,
                   .need_bytes = plan->sum.total_bytes,
                   .resident_bytes = memory_resident(),
                   .peak_bytes = memory_peak()},
        .times = {t.steps, t.rows, t.embed_us, t.own_us, t.role_us},
    };
    return fleet_whole_describe(&whole, out, room);
}

static bool ready(void *engine, Why *why)
{
    return engine_ready(((Process *)engine)->engine, why) == OK;
}

typedef struct Doors {
    TlsOptions tls;
    Access access;
} Doors;

static void announce(const Listen *listen, const Doors *doors, const char *name, const Plan *plan,
                     uint32_t slots)
{
    bool tls = doors->tls.certificate != NULL;
    if (!listen->loopback && !doors->access.keys_file) tls_options_warn(listen->address, tls);
    printf("%s: %u slots of %u tokens, on %s://%s\n", name, slots, plan->context,
           tls ? "https" : "http", listen->address);
    (void)fflush(stdout);
}

static int serve_model(const Options *o, const Doors *doors, EngineSession *session,
                       const Listen *listen, uint32_t slots)
{
    Why why = {{0}};
    const char *model = o->operands[0];
    char name[MODEL_NAME_BYTES];
    const Plan *plan = engine_plan(session->engine);
    model_name_of(model, name);
    Process process = {session->engine, name, clock_now_ns()};
    ApiServerOptions options = {
        .listen = *listen,
        .certificate_file = doors->tls.certificate,
        .certificate_key_file = doors->tls.key,
        .access = doors->access,
        .drain_s = (uint32_t)options_count(o, OPTION_DRAIN_SECONDS),
        .serve = {.model = name,
                  .slots = slots,
                  .memory_bytes = plan->request.memory_bytes,
                  .queue_max = (uint32_t)options_count(o, OPTION_QUEUE),
                  .form_bytes_max = (size_t)plan->sum.form_bytes,
                  .vocabulary = session->model.hyper.vocabulary,
                  .context = plan->context,
                  .hidden = session->model.hyper.hidden,
                  .tokenizer = session->model.tokenizer,
                  .knot = &session->model.file.knot,
                  .version = COBORD_VERSION,
                  .engine = {.engine = &process,
                             .coordinator = engine_coordinator(session->engine),
                             .step = step,
                             .hops = hops,
                             .begin_hops = begin_hops,
                             .describe = describe,
                             .ready = ready},
                  .journal = journal_from(o, session->model.file.knot.id)},
    };
    engine_keep_pace(session->engine);
    ApiServer *server;
    Error error = api_server_open(&options, &server, &why);
    if (error != OK) {
        journal_close(options.serve.journal);
        return complain(error, &why, listen->address, NULL);
    }
    announce(listen, doors, name, plan, slots);
    api_server_run(server);
    api_server_close(server);
    journal_close(options.serve.journal);
    return 0;
}

int cli_serve(int argc, char **argv)
{
    static EngineSession session;
    Options o;
    Listen listen;
    Doors doors;
    Why why = {{0}};
    int code;
    if (!options_read(&o, &serve_verb, argc, argv, &code)) return code;
    log_options_open(&o, "serve");
    if ((code = tls_options_read(&o, &doors.tls)) != 0) return code;
    if ((code = access_options_read(&o, &doors.access)) != 0) return code;
    const char *where = options_text(&o, OPTION_LISTEN);
    memory_keep_heap_small();
    Error error = listen_open(where, &listen, &why);
    if (error != OK)
        return complain(error, &why, where, "Choose another place with --listen HOST:PORT");
    uint32_t slots = (uint32_t)options_count(&o, OPTION_SLOTS);
    code = engine_options_open(&o, o.operands[0], MODEL_TOKENIZER | MODEL_WEIGHTS,
                               &(EngineNeeds){.sessions = slots,
                                              .logit_rows = slots,
                                              .drafts = (uint32_t)options_count(&o, OPTION_DRAFTS),
                                              .forms = true},
                               &session);
    if (code) {
        close(listen.fd);
        return code;
    }
    code = serve_model(&o, &doors, &session, &listen, slots);
    engine_options_close(&session);
    return code;
}
