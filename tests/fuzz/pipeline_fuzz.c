/* SPDX-License-Identifier: Apache-2.0 */
/* A coordinator among nodes that say anything. Each call takes one byte of the input: what its answer is, from
 * a right one over errors of every kind to bytes of the input. When the input ends all nodes
 * are honest: then every answer ends, within bounded time and steps, and every call has ended once.
 *
 *   first byte    bits 0..1 frames, bit 2 replicas, bit 3 int8 rows, bits 4..5 chunk, bit 6 guesses, bit 7 answers with
 *                 scores (their prompts' ids are asked for), sums of hidden states, masks */
#include <stdlib.h>
#include <string.h>

#include "cluster/pipeline.h"
#include "../unit/text/small_vocab.h"
#include "base/hash.h"
#include "quant/numerics.h"
#include "text/grammar_mask.h"
#include "wire/forward.h"
#include "wire/node_error.h"
#include "wire/shard_frames.h"

enum {
    HIDDEN = 32,
    VOCABULARY = 40,
    CONTEXT = 24,
    SLOTS = 3,
    LOGIT_ROWS = 2,
    DRAFTS = 3,
    LOGIT_ROWS_MAX = LOGIT_ROWS + SLOTS * DRAFTS,
    STATIONS = 2,
    SHARDS = 2,
    NODES_MAX = 2 * (STATIONS + SHARDS),
    CALLS_MAX = 128,
    STEPS_MAX = 20000
};
#define MS ((uint64_t)1000000)

typedef struct Open {
    bool busy;
    PipelineCall call;
    uint64_t due_ns;
    PipelineAnswer answer;
} Open;

typedef struct World {
    const uint8_t *in;
    size_t left;
    Hyper hyper;
    ClusterFile file;
    ClusterNode nodes[NODES_MAX];
    Coordinator *coordinator;
    Pipeline *pipeline;
    Open open[CALLS_MAX];
    uint64_t now_ns;
    uint32_t random;
    bool extras;
    void *mask_memory[SLOTS];
} World;

static uint8_t take(World *w)
{
    if (!w->left) return 0;
    w->left--;
    return *w->in++;
}

static uint32_t chance(World *w)
{
    w->random = w->random * 1664525u + 1013904223u;
    return w->random >> 8;
}

/* ---- Right answers, of no model ---- */

static ForwardTerms forward_terms(const World *w, const ClusterNode *n)
{
    return (ForwardTerms){.identity = {7, NUMERICS_VERSION, FRAME_CACHE_F16},
                          .hyper = &w->hyper,
                          .range = n->range,
                          .rows_max = w->file.chunk,
                          .sequences_max = SLOTS,
                          .context = CONTEXT};
}

static ShardTerms shard_terms(const World *w, uint32_t part)
{
    const ClusterNode *n = &w->nodes[cluster_file_part(&w->file, CLUSTER_SHARD, part)];
    return (ShardTerms){.identity = {7, NUMERICS_VERSION, FRAME_CACHE_NONE},
                        .hyper = &w->hyper,
                        .id_first = n->id_first,
                        .id_last = n->id_last,
                        .rows_max = FRAME_ROWS_MAX,
                        .payload_bytes_max = UINT64_MAX};
}

static void fill(World *w, float *x, size_t count)
{
    for (size_t i = 0; i < count; i++) x[i] = (float)(chance(w) % 2001) * 1e-3f - 1.0f;
}

static size_t answer_forward(World *w, const PipelineCall *c)
{
    ForwardTerms terms = forward_terms(w, &w->nodes[c->node]);
    ForwardSequence sequences[SLOTS];
    uint32_t wanted[64];
    float x[64 * HIDDEN];
    Forward f;
    FrameHead head;
    Error error =
        forward_read(c->parts[0], c->part_bytes[0], &terms, sequences, wanted, &f, &head, NULL);
    ASSERT(error == OK);
    ASSERT(frame_check_payload(&head, c->parts[1], c->part_bytes[1], NULL) == OK);
    ForwardAnswer a = {f.wanted != NULL, f.wanted ? f.wanted_count : f.rows, 3};
    uint32_t header = forward_answer_header_size(&f);
    uint64_t payload = forward_answer_payload_bytes(&terms, f.element, a.rows);
    ASSERT(header + payload <= c->answer_room);
    fill(w, x, (size_t)a.rows * HIDDEN);
    error = rows_write(f.element, x, a.rows, HIDDEN, c->answer + header, NULL);
    ASSERT(error == OK);
    FrameHead hashed = {0};
    forward_write_answer(&a, &f, &terms, hashed.payload_hash, c->answer);
    frame_put_payload_hash(c->answer, hash_xxh64(c->answer + header, (size_t)payload));
    frame_seal(c->answer);
    return header + (size_t)payload;
}

static size_t answer_embed(World *w, const PipelineCall *c)
{
    ShardTerms terms = shard_terms(w, c->part);
    EmbedRequest r;
    FrameHead head;
    uint32_t ids[64];
    float partial[64 * HIDDEN];
    Error error = shard_frames_read_embed(c->parts[0], c->part_bytes[0], &terms, &r, &head, NULL);
    ASSERT(error == OK);
    error = shard_frames_take_ids(&r, &head, &terms, c->parts[1], c->part_bytes[1], ids, NULL);
    ASSERT(error == OK);
    ShardFrameSize size = shard_frames_size_embed_answer(&r, &terms, ids);
    ASSERT(size.header_bytes + size.payload_bytes <= c->answer_room);
    fill(w, partial, (size_t)r.count * HIDDEN);
    error = shard_frames_write_embed_answer(&r, &terms, ids, partial, c->answer,
                                            c->answer + size.header_bytes, NULL);
    ASSERT(error == OK);
    return size.header_bytes + (size_t)size.payload_bytes;
}

static size_t answer_logits(World *w, const PipelineCall *c)
{
    ShardTerms terms = shard_terms(w, c->part);
    LogitsRow row[LOGIT_ROWS_MAX];
    LogitsRequest r;
    LogitsResult results[LOGIT_ROWS_MAX];
    SamplerCandidate candidates[LOGIT_ROWS_MAX][VOCABULARY];
    float hidden[LOGIT_ROWS_MAX * HIDDEN], logits[VOCABULARY];
    FrameHead head;
    uint32_t count = terms.id_last - terms.id_first;
    terms.rows_max = LOGIT_ROWS_MAX;
    Error error =
        shard_frames_read_logits(c->parts[0], c->part_bytes[0], &terms, row, &r, &head, NULL);
    ASSERT(error == OK);
    error =
        shard_frames_take_logits(&r, &head, &terms, c->parts[1], c->part_bytes[1], hidden, NULL);
    ASSERT(error == OK);
    for (uint32_t i = 0; i < r.rows; i++) {
        fill(w, logits, count);
        if (row[i].mask) sampler_mask(row[i].mask, 0, logits, count);
        if (row[i].wants_id) results[i].id_logit = logits[row[i].id - terms.id_first];
        logsum_start(&results[i].sum);
        if (row[i].wants_sum) logsum_add(&results[i].sum, logits, count, row[i].sum_scale);
        results[i].candidates = candidates[i];
        results[i].candidate_count =
            sampler_top(logits, count, terms.id_first, row[i].k, candidates[i]);
    }
    ShardFrameSize size = shard_frames_size_logits_answer(&r, &terms);
    ASSERT(size.header_bytes + size.payload_bytes <= c->answer_room);
    shard_frames_write_logits_answer(&r, &terms, results, c->answer, c->answer + size.header_bytes);
    return size.header_bytes + (size_t)size.payload_bytes;
}

static size_t answer_right(World *w, const PipelineCall *c)
{
    switch (c->path) {
    case PIPELINE_FORWARD: return answer_forward(w, c);
    case PIPELINE_EMBED: return answer_embed(w, c);
    case PIPELINE_LOGITS: return answer_logits(w, c);
    default: return 0;
    }
}

/* ---- And others ---- */

static void answer_error(const PipelineCall *c, Error error, PipelineAnswer *a)
{
    char text[NODE_ERROR_BYTES_MAX];
    Why why = {{0}};
    a->status = node_error_status(error);
    a->bytes = node_error_write(error, &why, text);
    if (a->bytes > c->answer_room) a->bytes = c->answer_room;
    memcpy(c->answer, text, a->bytes);
}

static void answer_bytes(World *w, const PipelineCall *c, PipelineAnswer *a)
{
    a->bytes = take(w) * 8u;
    if (a->bytes > c->answer_room) a->bytes = c->answer_room;
    for (size_t i = 0; i < a->bytes; i++) c->answer[i] = take(w);
    a->status = take(w) & 1 ? 200 : 100u + take(w) * 2;
}

static void answer(World *w, const PipelineCall *c, PipelineAnswer *a)
{
    static const Error errors[] = {ERR_SESSION,   ERR_POSITION, ERR_SUPERSEDED, ERR_AGAIN,
                                   ERR_CHECKSUM,  ERR_FORMAT,   ERR_NOT_FINITE, ERR_UNSUPPORTED,
                                   ERR_TOO_LARGE, ERR_INTERNAL, ERR_KEY,        ERR_MEMORY};
    uint8_t how = take(w);
    *a = (PipelineAnswer){.error = OK, .status = 200};
    if (how >= 40 && how < 52) answer_error(c, errors[how - 40], a);
    else if (how >= 52 && how < 60) a->error = ERR_UNREACHABLE;
    else if (how >= 60 && how < 70) answer_bytes(w, c, a);
    else a->bytes = answer_right(w, c);
    if (how >= 70 && how < 90 && a->bytes) c->answer[(take(w) * 7u) % a->bytes] ^= (uint8_t)how;
    if (how >= 90 && how < 95) a->bytes /= 2;
}

/* ---- The host's side ---- */

static void end(World *w, Open *o)
{
    o->busy = false;
    pipeline_answer(w->pipeline, o->call.call, &o->answer, w->now_ns);
}

static void start_calls(World *w)
{
    PipelineCall call;
    uint32_t number;
    while (pipeline_next_call(w->pipeline, w->now_ns, &call)) {
        Open *o = &w->open[call.call];
        ASSERT(!o->busy && call.deadline_ns > w->now_ns);
        *o = (Open){.busy = true, .call = call, .due_ns = w->now_ns + take(w) * MS / 4};
        answer(w, &call, &o->answer);
    }
    while (pipeline_next_cancel(w->pipeline, &number)) {
        ASSERT(w->open[number].busy);
        w->open[number].answer = (PipelineAnswer){.error = ERR_CANCELLED};
        end(w, &w->open[number]);
    }
}

static void pass_time(World *w)
{
    uint64_t next = pipeline_wake_ns(w->pipeline);
    for (uint32_t i = 0; i < CALLS_MAX; i++)
        if (w->open[i].busy && w->open[i].due_ns < next) next = w->open[i].due_ns;
    ASSERT(next != UINT64_MAX);
    if (next > w->now_ns) w->now_ns = next;
    for (uint32_t i = 0; i < CALLS_MAX; i++)
        if (w->open[i].busy && w->open[i].due_ns <= w->now_ns) end(w, &w->open[i]);
}

/* Token i is the character 'A' + i. */
static const GrammarVocab *vocabulary(Grammar *grammar)
{
    static const char text[] = "root ::= ([A-M]+ [N-h])+";
    static GrammarVocab v;
    static Grammar g;
    if (!v.tokenizer) {
        SmallVocab *s = small_empty(VOCAB_BPE, VOCAB_PRE_QWEN2);
        for (uint32_t i = 0; i < VOCABULARY; i++)
            small_word(s, (char[]){(char)('A' + i), '\0'}, VOCAB_NORMAL, 0);
        Error error = small_build(s, NULL);
        size_t scratch_bytes = grammar_vocab_scratch_bytes(s->tokenizer, 0, VOCABULARY) +
                               grammar_gbnf_scratch_bytes(),
               bytes = grammar_bytes_max() + 65536;
        void *memory = malloc(scratch_bytes);
        Arena scratch = arena_make(memory, scratch_bytes), arena = arena_make(malloc(bytes), bytes);
        ASSERT(error == OK);
        error = grammar_vocab_build(s->tokenizer, 0, VOCABULARY, &scratch, &arena, &v, NULL);
        ASSERT(error == OK);
        error = grammar_gbnf((const uint8_t *)text, strlen(text), &scratch, &arena, &g, NULL);
        ASSERT(error == OK);
        free(memory);
    }
    *grammar = g;
    return &v;
}

static Error constrain(World *w, uint32_t slot)
{
    static Grammar grammar;
    const GrammarVocab *v = vocabulary(&grammar);
    const GrammarLimits limits = {.nodes = 64, .states = 12, .places = 64};
    size_t bytes = grammar_mask_bytes(v, &grammar, &limits);
    GrammarMask *mask = NULL;
    free(w->mask_memory[slot]);
    w->mask_memory[slot] = malloc(bytes);
    Arena arena = arena_make(w->mask_memory[slot], bytes);
    Error error = grammar_mask_build(v, &grammar, &limits, &arena, &mask, NULL);
    ASSERT(error == OK);
    return coordinator_constrain(w->coordinator, slot, mask, NULL);
}

/* What is wanted beside the text, or of it. */
static void start_extras(World *w, uint32_t slot, uint32_t fed, bool answers)
{
    Error error = OK;
    switch (chance(w) % 4) {
    case 0: error = coordinator_score(w->coordinator, slot, chance(w) % 4, fed + 1, NULL); break;
    case 1: error = answers || fed ? OK : coordinator_pool(w->coordinator, slot, NULL); break;
    case 2: error = constrain(w, slot); break;
    default: break;
    }
    ASSERT(error == OK);
}

static uint32_t draft(void *world, uint32_t slot, const uint32_t *tokens, uint32_t count,
                      const SamplerParams *params, uint32_t *out, uint32_t max)
{
    World *w = world;
    (void)slot, (void)tokens, (void)count, (void)params;
    for (uint32_t i = 0; i < max; i++) out[i] = chance(w) % (VOCABULARY + 1);
    return max;
}

static void start_slot(World *w, uint32_t slot)
{
    SamplerParams params = sampler_defaults();
    uint32_t ids[9], count = 1 + chance(w) % 9, held;
    if (coordinator_is_active(w->coordinator, slot) ||
        coordinator_is_under_way(w->coordinator, slot))
        return;
    if (chance(w) % 2) params.temperature = 1, params.frequency_penalty = 0.5f;
    for (uint32_t i = 0; i < count; i++) ids[i] = chance(w) % VOCABULARY;
    (void)coordinator_tokens(w->coordinator, slot, &held);
    if (held + count > CONTEXT) coordinator_truncate(w->coordinator, slot, held / 4);
    uint32_t most = chance(w) % 6;
    Error error = coordinator_start(w->coordinator, slot, ids, count, most, &params, NULL);
    ASSERT(error == OK);
    if (w->extras) start_extras(w, slot, coordinator_fed(w->coordinator, slot), most);
}

static void act(World *w)
{
    uint8_t what = take(w);
    uint32_t slot = what % SLOTS;
    if (what >= 200) start_slot(w, slot);
    if (what >= 180 && what < 200) coordinator_stop(w->coordinator, slot);
    if (what >= 160 && what < 190 && !coordinator_is_active(w->coordinator, slot))
        pipeline_forget(w->pipeline, slot);
}

static void step(World *w)
{
    CoordinatorEvent event;
    Why why;
    pipeline_advance(w->pipeline, w->now_ns);
    while (pipeline_next_event(w->pipeline, &event, &why)) {
        ASSERT(event.slot < SLOTS);
        for (uint32_t i = 0; i < event.token_count; i++) ASSERT(event.tokens[i] < VOCABULARY);
        uint32_t scores = 0;
        if (event.scored) (void)coordinator_take_scores(w->coordinator, event.slot, &scores);
        ASSERT(!event.scored || scores);
    }
    pipeline_advance(w->pipeline, w->now_ns);
    start_calls(w);
    pass_time(w);
}

/* ---- The cluster ---- */

static void add(World *w, ClusterRole role, uint32_t part, bool replica)
{
    w->nodes[w->file.node_count++] = (ClusterNode){
        .role = role,
        .id = "node",
        .host = "h",
        .range = {part * PHASES, (part + 1) * PHASES},
        .id_first = part * 17,
        .id_last = part ? VOCABULARY : 17,
        .part = part,
        .is_replica = replica,
    };
}

static void make_cluster(World *w, uint8_t shape)
{
    w->hyper = (Hyper){.layers = STATIONS,
                       .hidden = HIDDEN,
                       .ffn = 64,
                       .vocabulary = VOCABULARY,
                       .context = CONTEXT};
    w->file = (ClusterFile){.knot_id = 7,
                            .layers = STATIONS,
                            .vocabulary = VOCABULARY,
                            .context = CONTEXT,
                            .chunk = 1 + (shape >> 4 & 3) * 3,
                            .sessions = SLOTS,
                            .cache = CACHE_F16,
                            .element = shape & 8 ? ROWS_INT8 : ROWS_F32,
                            .nodes = w->nodes};
    w->file.parts[CLUSTER_STATION] = STATIONS;
    w->file.parts[CLUSTER_SHARD] = SHARDS;
    for (ClusterRole role = CLUSTER_STATION; role <= CLUSTER_SHARD; role++)
        for (uint32_t part = 0; part < 2; part++)
            for (int replica = 0; replica <= (shape >> 2 & 1); replica++)
                add(w, role, part, replica > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static World world;
    World *w = &world;
    if (size < 2 || size > 4096) return 0;
    *w = (World){.in = data, .left = size, .now_ns = 1000 * MS, .random = (uint32_t)size};
    uint8_t shape = take(w);
    make_cluster(w, shape);
    PipelineConfig config = {.cluster = &w->file,
                             .hyper = &w->hyper,
                             .slots = SLOTS,
                             .logit_rows = shape & 64 ? LOGIT_ROWS_MAX : LOGIT_ROWS,
                             .drafts = shape & 64 ? DRAFTS : 0,
                             .frames = shape & 3,
                             .nonce = 5};
    CoordinatorConfig coordinator = pipeline_coordinator_config(&config);
    size_t bytes = (size_t)(pipeline_bytes(&config) + coordinator_bytes(&coordinator)) + 256;
    void *memory = malloc(bytes);
    Arena arena = arena_make(memory, bytes);
    Error error = coordinator_build(&coordinator, &arena, &w->coordinator, NULL);
    ASSERT(error == OK);
    error = pipeline_build(&config, w->coordinator, &arena, &w->pipeline, NULL);
    ASSERT(error == OK && pipeline_calls_max(w->pipeline) <= CALLS_MAX);
    w->extras = shape & 128;
    if (shape & 64) coordinator_set_drafter(w->coordinator, &(CoordinatorDrafter){w, draft});
    for (uint32_t i = 0; i < SLOTS; i++) start_slot(w, i);
    uint32_t steps = 0;
    for (; w->left; steps++) {
        act(w);
        step(w);
        ASSERT(steps < STEPS_MAX);
    }
    for (steps = 0; pipeline_is_busy(w->pipeline); steps++) {
        step(w);
        ASSERT(steps < STEPS_MAX);
    }
    for (uint32_t i = 0; i < SLOTS; i++) free(w->mask_memory[i]);
    free(memory);
    return 0;
}
