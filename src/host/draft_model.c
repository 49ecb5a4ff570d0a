/* SPDX-License-Identifier: Apache-2.0 */
#include "host/draft_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/draft_length.h"
#include "host/clock.h"
#include "host/log.h"
#include "host/memory.h"

enum {
    CATCH_UP_ROWS = 256 /* of a prompt, between two passes of the large model */
};

/* What was guessed last for an answer, and how it went so far. */
typedef struct DraftSlot {
    uint32_t starts; /* of the answer, coordinator_starts */
    uint32_t said;   /* tokens when it was guessed */
    uint32_t guesses[COORDINATOR_DRAFTS_MAX];
    uint32_t guess_count;
    uint64_t left_ns;       /* when the last call ended; 0: there was none */
    uint64_t left_spent_ns; /* DraftModel.spent_ns then */
    DraftLength length;
} DraftSlot;

struct DraftModel {
    OpenModel model;
    Engine *engine;
    Coordinator *own, *guessed_for;
    const char *name;
    uint32_t slots;
    DraftSlot *slot;
    uint64_t spent_ns; /* in calls, all slots */
    bool broken;
};

/* --- The vocabulary --- */

static Error check_token(const Vocab *a, const Vocab *b, uint32_t id, const char *name, Why *why)
{
    uint32_t a_bytes, b_bytes;
    const uint8_t *a_text = vocab_token(a, id, &a_bytes), *b_text = vocab_token(b, id, &b_bytes);
    if (a_bytes == b_bytes && memcmp(a_text, b_text, a_bytes) == 0) return OK;
    return error_why(
        why, ERR_USAGE,
        "--draft %s: it has another vocabulary (token %u differs), so it cannot guess for "
        "this model. Choose a smaller model of the same family.",
        name, id);
}

static Error check_tokens(const Vocab *a, const Vocab *b, const char *name, Why *why)
{
    if (a->tokens != b->tokens)
        return error_why(why, ERR_USAGE,
                         "--draft %s: it has another vocabulary (%u tokens, %u are needed), so it "
                         "cannot guess for this model. Choose a smaller model of the same family.",
                         name, b->tokens, a->tokens);
    for (uint32_t id = 0; id < a->tokens; id++) TRY(check_token(a, b, id, name, why));
    return OK;
}

static Error read_vocab(const KnotFile *file, const char *name, Vocab *out, Why *why)
{
    KnotSection section = file->knot.tokenizer;
    if (!section.bytes)
        return error_why(
            why, ERR_USAGE,
            "--draft %s: there is no tokenizer to compare (version 1 knots have none); "
            "encode the model again as version 2.",
            name);
    TRY(knot_file_verify_section(file, section, why));
    const uint8_t *bytes = knot_file_payload(file, section.offset);
    return vocab_parse(bytes, (size_t)section.bytes, out, why);
}

/* In the mappings: their pages are dropped again, since nobody looks at them later. */
static Error check_vocabulary(const KnotFile *file, const KnotFile *guesses_for, const char *name,
                              Why *why)
{
    Vocab own, wanted;
    TRY(read_vocab(guesses_for, name, &wanted, why));
    TRY(read_vocab(file, name, &own, why));
    Error error = check_tokens(&wanted, &own, name, why);
    knot_file_drop(file, file->knot.tokenizer.offset, file->knot.tokenizer.bytes);
    knot_file_drop(guesses_for, guesses_for->knot.tokenizer.offset,
                   guesses_for->knot.tokenizer.bytes);
    return error;
}

Error draft_model_check(const char *path, const KnotFile *guesses_for, Why *why)
{
    KnotFile file;
    TRY(knot_file_open(path, &file, why));
    Error error = check_vocabulary(&file, guesses_for, path, why);
    knot_file_close(&file);
    return error;
}

/* --- Opening --- */

/* A context that does not fit is no promise here: then the largest that does. */
static Error open_engine(DraftModel *d, const DraftModelOptions *o, Why *why)
{
    EngineOptions engine = {
        .stations = 1,
        .shards = 1,
        .threads = o->threads,
        .context = o->context,
        .memory_bytes = memory_resident() + o->memory_bytes,
        .sessions = o->slots,
        .cache = o->cache,
        .isa_given = true,
        .isa = o->isa,
    };
    Error error = engine_open(&d->model, &engine, &d->engine, why);
    if (error == OK || !engine.context) return error;
    engine.context = 0;
    return engine_open(&d->model, &engine, &d->engine, why);
}

static Error open_parts(DraftModel *d, const DraftModelOptions *o, Why *why)
{
    d->slots = o->slots;
    d->slot = calloc(o->slots, sizeof *d->slot);
    if (!d->slot) return error_why(why, ERR_MEMORY, "no memory for the draft model");
    TRY(open_model_open(o->model, MODEL_WEIGHTS, o->tell, &d->model, why));
    TRY(check_vocabulary(&d->model.file, o->guesses_for, d->name, why));
    TRY(open_engine(d, o, why));
    d->own = engine_coordinator(d->engine);
    return OK;
}

Error draft_model_open(const DraftModelOptions *options, DraftModel **out, Why *why)
{
    DraftModel *d = calloc(1, sizeof *d);
    if (!d) return error_why(why, ERR_MEMORY, "no memory for the draft model");
    d->name = options->model;
    Error error = open_parts(d, options, why);
    if (error == OK) *out = d;
    else draft_model_close(d);
    return error;
}

void draft_model_close(DraftModel *d)
{
    if (!d) return;
    engine_close(d->engine);
    open_model_close(&d->model);
    free(d->slot);
    free(d);
}

uint64_t draft_model_bytes(const DraftModel *d)
{
    const PlanRole *sum = &engine_plan(d->engine)->sum;
    return sum->total_bytes - sum->process_bytes;
}

void draft_model_describe(const DraftModel *d, char *out, size_t room)
{
    const Plan *plan = engine_plan(d->engine);
    (void)snprintf(out, room, "%s guesses for it: %.1f MiB, %s, %u tokens", d->name,
                   (double)draft_model_bytes(d) / (1 << 20),
                   plan->resident ? "resident" : "streamed", plan->context);
}

/* --- Guessing --- */

/* How the last guesses of this answer went. */
static void learn(DraftModel *d, DraftSlot *s, uint32_t slot, const uint32_t *tokens,
                  uint32_t count)
{
    uint32_t starts = coordinator_starts(d->guessed_for, slot), right = 0;
    if (starts != s->starts) {
        *s = (DraftSlot){.starts = starts, .length = s->length};
        s->length.resting = 0; /* another text */
    }
    if (!s->guess_count || count <= s->said) return;
    uint32_t known = count - s->said;
    while (right < s->guess_count && right < known && tokens[s->said + right] == s->guesses[right])
        right++;
    draft_length_learn(&s->length, s->guess_count, right);
    s->guess_count = 0;
}

static void time_pass(const DraftModel *d, DraftSlot *s, uint64_t now_ns)
{
    if (s->left_ns)
        draft_length_time_pass(&s->length, now_ns - s->left_ns - (d->spent_ns - s->left_spent_ns));
}

static uint32_t answers_in_progress(const DraftModel *d)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < d->slots; i++) count += coordinator_is_active(d->guessed_for, i);
    return count;
}

/* Cuts off what the answer did not become; the draft slot then says a beginning of `tokens`. */
static uint32_t keep_common(DraftModel *d, uint32_t slot, const uint32_t *tokens, uint32_t count)
{
    uint32_t said, same = 0;
    const uint32_t *own = coordinator_tokens(d->own, slot, &said);
    while (same < said && same < count && own[same] == tokens[same]) same++;
    coordinator_truncate(d->own, slot, same);
    return same;
}

/* Works until the slot has said its tokens. Result  false: it failed, and guessing is over, but not when
 * everything ends. */
static bool run(DraftModel *d, uint32_t *out, uint32_t *made)
{
    const CoordinatorEvent *events;
    uint32_t count;
    Why why = {{0}};
    while (engine_step(d->engine, &events, &count, &why))
        for (uint32_t i = 0; i < count; i++) {
            for (uint32_t t = 0; t < events[i].token_count; t++)
                out[(*made)++] = events[i].tokens[t];
            if (events[i].error == OK) continue;
            if (events[i].error == ERR_CANCELLED) return false;
            log_say(LOG_ERROR, "no more guesses from %s: %s: %s", d->name,
                    error_text(events[i].error), why.text);
            d->broken = true;
            return false;
        }
    return true;
}

/* Says tokens[same .. count) and up to `wanted` more. */
static uint32_t say(DraftModel *d, uint32_t slot, const uint32_t *tokens, uint32_t same,
                    uint32_t count, uint32_t wanted, const SamplerParams *params, uint32_t *out)
{
    Why why = {{0}};
    uint32_t made = 0;
    Error error =
        coordinator_start(d->own, slot, tokens + same, count - same, wanted, params, &why);
    if (error == OK && run(d, out, &made)) return made;
    coordinator_stop(d->own, slot);
    return 0;
}

static uint32_t guess(DraftModel *d, DraftSlot *s, uint32_t slot, const uint32_t *tokens,
                      uint32_t count, const SamplerParams *params, uint32_t *out, uint32_t max)
{
    uint32_t context = engine_plan(d->engine)->context, answers = answers_in_progress(d);
    if (answers > DRAFT_MODEL_ANSWERS_MAX || count >= context) return 0;
    if (max > context - count) max = context - count;
    uint32_t wanted = draft_length_choose(&s->length, max, answers);
    if (!wanted) return 0;
    uint32_t same = keep_common(d, slot, tokens, count);
    if (count - same > CATCH_UP_ROWS) {
        (void)say(d, slot, tokens, same, same + CATCH_UP_ROWS, 0, params, out);
        return 0;
    }
    uint64_t start_ns = clock_now_ns();
    bool lacks_one = count - coordinator_fed(d->own, slot) <= DRAFT_LENGTH_FIRST;
    uint32_t made = say(d, slot, tokens, same, count, wanted, params, out);
    if (lacks_one) draft_length_time_guesses(&s->length, clock_now_ns() - start_ns, made);
    return made;
}

static uint32_t draft(void *context, uint32_t slot, const uint32_t *tokens, uint32_t count,
                      const SamplerParams *params, uint32_t *out, uint32_t max)
{
    DraftModel *d = context;
    DraftSlot *s = &d->slot[slot];
    uint64_t start_ns = clock_now_ns();
    if (d->broken) return 0;
    learn(d, s, slot, tokens, count);
    time_pass(d, s, start_ns);
    if (max > COORDINATOR_DRAFTS_MAX) max = COORDINATOR_DRAFTS_MAX;
    uint32_t made = guess(d, s, slot, tokens, count, params, out, max);
    memcpy(s->guesses, out, made * sizeof *out);
    s->guess_count = made;
    s->said = count;
    s->left_ns = clock_now_ns();
    d->spent_ns += s->left_ns - start_ns;
    s->left_spent_ns = d->spent_ns;
    return made;
}

void draft_model_attach(DraftModel *d, Coordinator *coordinator)
{
    d->guessed_for = coordinator;
    coordinator_set_drafter(coordinator, &(CoordinatorDrafter){d, draft});
}
