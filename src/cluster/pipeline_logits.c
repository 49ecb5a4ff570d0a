/* SPDX-License-Identifier: Apache-2.0 */
/* The last stage: the rows whose token is wanted go to every shard; what comes back is merged, and the
 * coordinator picks. It may want more candidates: another round, of the picks that are not made. A
 * round asks for as many picks as the frame's area has room for, and for one at least.
 *
 *   hidden rows [picks] | rows of the round, requests, room for answers ... */
#include "cluster/pipeline_state.h"

#include <string.h>

#include "base/min.h"

enum { LOGITS_TABLE_AT = 96, LOGITS_ROW_BYTES = 32, LOGITS_RESULT_BYTES = 48 };

static uint64_t pairs_bytes_max(const Pipeline *p)
{
    const PipelineConfig *c = &p->config;
    uint32_t seen = min_u32(c->cluster->context + 1, SAMPLER_REPEAT_WINDOW_MAX);
    return (seen + (uint64_t)SAMPLER_BIAS_MAX) * sizeof(SamplerSeen);
}

/* Of one row to all shards: each ends its own with a whole word. */
static uint64_t masks_bytes(const Pipeline *p)
{
    return p->config.hyper->vocabulary / 8 + (uint64_t)p->shards * 4 + 4;
}

static uint64_t candidates_bytes_max(const Pipeline *p)
{
    const ClusterFile *file = p->config.cluster;
    uint64_t all = p->config.hyper->vocabulary, usual = 0;
    for (uint32_t i = 0; i < file->node_count; i++) {
        const ClusterNode *n = &file->nodes[i];
        if (n->role == CLUSTER_SHARD && !n->is_replica)
            usual += min_u32(FIRST_K_MAX, n->id_last - n->id_first);
    }
    if (p->head_end != NONE) usual = FIRST_K_MAX;
    usual *= p->config.logit_rows;
    return (usual > all ? usual : all) * sizeof(SamplerCandidate);
}

uint64_t pipeline_logits_area_bytes(const Pipeline *p)
{
    uint64_t rows = p->config.logit_rows, hidden = p->config.hyper->hidden;
    uint64_t floats = arena_bytes((size_t)(rows * hidden * sizeof(float)));
    uint64_t header =
                 arena_bytes((size_t)frame_header_size(LOGITS_TABLE_AT + rows * LOGITS_ROW_BYTES)),
             answer = frame_header_size(LOGITS_TABLE_AT + rows * LOGITS_RESULT_BYTES) +
                      FRAME_ERROR_ROOM + ARENA_ALIGN,
             results = arena_bytes((size_t)rows * sizeof(LogitsResult));
    uint64_t shard = p->twins * (header + answer) + results + floats + ARENA_ALIGN;
    return 2 * floats + p->shards * shard + rows * (pairs_bytes_max(p) + masks_bytes(p)) +
           p->twins * candidates_bytes_max(p) + ARENA_ALIGN;
}

/* ---- Asking ---- */

static LogitsRow row_of(const Pipeline *p, const CoordinatorPick *pick)
{
    const SamplerParams *s = pick->params;
    return (LogitsRow){.k = min_u32(pick->k, p->config.hyper->vocabulary),
                       .wants_sum = pick->wants_sum,
                       .sum_scale = pick->sum_scale,
                       .repetition_penalty = s->repetition_penalty,
                       .presence_penalty = s->presence_penalty,
                       .frequency_penalty = s->frequency_penalty,
                       .seen = pick->seen,
                       .seen_count = pick->seen_count,
                       .bias = s->bias,
                       .bias_count = s->bias_count,
                       .mask = pick->mask,
                       .wants_id = pick->wants_id,
                       .id = pick->id};
}

static LogitsRequest request_of(const Pipeline *p, const Frame *f, uint64_t id)
{
    return (LogitsRequest){
        .request_id = id, .element = p->element, .rows = f->round_count, .row = f->row};
}

static void size_ask(Pipeline *p, const Frame *f, uint32_t shard, ShardFrameSize *asked,
                     ShardFrameSize *answer)
{
    const ShardTerms *terms = &pipeline_shard(p, shard)->terms.shard;
    LogitsRequest request = request_of(p, f, 0);
    *asked = shard_frames_size_logits(&request, terms);
    *answer = shard_frames_size_logits_answer(&request, terms);
}

static size_t room_of(ShardFrameSize answer)
{
    size_t room = answer.header_bytes + (size_t)answer.payload_bytes;
    return room < FRAME_ERROR_ROOM ? FRAME_ERROR_ROOM : room;
}

static bool round_fits(Pipeline *p, const Frame *f)
{
    uint64_t bytes = arena_bytes((size_t)f->round_count * p->config.hyper->hidden * sizeof(float));
    for (uint32_t i = 0; i < p->shards; i++) {
        ShardFrameSize asked, answer;
        if (!pipeline_ends_asks(p, STAGE_LOGITS, i)) continue;
        size_ask(p, f, i, &asked, &answer);
        bytes += p->twins * (arena_bytes(asked.header_bytes) + arena_bytes(room_of(answer))) +
                 arena_bytes((size_t)asked.payload_bytes) +
                 arena_bytes(f->round_count * sizeof(LogitsResult));
    }
    return bytes <= f->area.size - f->area_mark;
}

/* The picks of a round, in f->round and f->row: as many of those not made as fit. */
static void choose_round(Pipeline *p, Frame *f)
{
    f->round_count = 0;
    for (uint32_t i = 0; i < f->work->pick_count; i++) {
        const CoordinatorPick *pick = &f->work->picks[i];
        if (pick->picked || !coordinator_is_active(p->coordinator, pick->slot)) continue;
        f->round[f->round_count] = i;
        f->row[f->round_count++] = row_of(p, pick);
    }
    while (f->round_count > 1 && !round_fits(p, f)) f->round_count--;
}

static void begin_ask(Pipeline *p, Frame *f, uint32_t shard)
{
    Ask *a = &f->asks[shard];
    ShardFrameSize asked, answer;
    *a = (Ask){0};
    if (!pipeline_ends_asks(p, STAGE_LOGITS, shard)) return;
    size_ask(p, f, shard, &asked, &answer);
    *a = (Ask){.open = true,
               .header_bytes = asked.header_bytes,
               .payload_bytes = (size_t)asked.payload_bytes,
               .room = room_of(answer)};
    uint8_t *payload = arena_take_raw(&f->area, a->payload_bytes);
    a->payload = payload;
    a->results = arena_take_raw(&f->area, f->round_count * sizeof(LogitsResult));
    ASSERT(payload && a->results);
    for (uint32_t t = 0; t < p->twins; t++) {
        a->header[t] = arena_take_raw(&f->area, a->header_bytes);
        a->answer[t] = arena_take_raw(&f->area, a->room);
        ASSERT(a->header[t] && a->answer[t]);
    }
}

static void begin_round(Pipeline *p, Frame *f)
{
    size_t width = p->config.hyper->hidden;
    choose_round(p, f);
    if (!f->round_count) {
        f->stage = STAGE_DONE;
        return;
    }
    arena_reset(&f->area, f->area_mark);
    f->round_hidden = arena_take_raw(&f->area, f->round_count * width * sizeof(float));
    ASSERT(f->round_hidden);
    for (uint32_t i = 0; i < f->round_count; i++)
        memcpy(f->round_hidden + i * width, f->hidden + f->round[i] * width, width * sizeof(float));
    for (uint32_t i = 0; i < p->shards; i++) begin_ask(p, f, i);
}

/* A wanted row of the last station's answer. */
static Error read_row(const Pipeline *p, const Frame *f, uint32_t wanted, float *out, Why *why)
{
    uint32_t width = p->config.hyper->hidden;
    uint64_t row = f->only_wanted ? wanted : f->work->wanted[wanted];
    return rows_read(p->element, f->rows + row * rows_row_bytes(p->element, width), 1, width, out,
                     why);
}

/* Those of picks to the frame's area; those of pools stay where they are until the frame ends. */
static Error read_rows(Pipeline *p, Frame *f, Why *why)
{
    const CoordinatorFrame *w = f->work;
    size_t width = p->config.hyper->hidden;
    for (uint32_t i = 0; i < w->pick_count; i++)
        TRY(read_row(p, f, w->picks[i].wanted, f->hidden + i * width, why));
    for (uint32_t i = 0; i < w->pool_count; i++)
        for (uint32_t j = 0; j < w->pools[i].count; j++)
            TRY(read_row(p, f, w->pools[i].first + j, p->row, why));
    return OK;
}

void pipeline_logits_give_pools(Pipeline *p, const Frame *f)
{
    const CoordinatorFrame *w = f->work;
    for (uint32_t i = 0; i < w->pool_count; i++)
        for (uint32_t j = 0; j < w->pools[i].count; j++) {
            Error error = read_row(p, f, w->pools[i].first + j, p->row, NULL);
            ASSERT(error == OK); /* it was read before */
            coordinator_give_hidden(p->coordinator, w->pools[i].slot, p->row);
        }
}

void pipeline_logits_begin(Pipeline *p, Frame *f)
{
    Why why;
    size_t floats = (size_t)f->work->pick_count * p->config.hyper->hidden;
    f->stage = STAGE_LOGITS;
    f->begun_ns[PIPELINE_LOGITS] = p->now_ns;
    p->again = true;
    arena_reset(&f->area, 0);
    f->hidden = arena_take_raw(&f->area, floats * sizeof(float));
    ASSERT(f->hidden);
    f->area_mark = arena_mark(&f->area);
    Error error = read_rows(p, f, &why);
    if (error != OK) pipeline_fail(p, f, error, &why);
    else begin_round(p, f);
}

void pipeline_logits_write(Pipeline *p, Frame *f, uint32_t shard, uint32_t twin)
{
    Ask *a = &f->asks[shard];
    LogitsRequest request = request_of(p, f, a->request_id[twin]);
    Error error =
        shard_frames_write_logits(&request, &pipeline_shard(p, shard)->terms.shard, f->round_hidden,
                                  a->header[twin], (uint8_t *)(uintptr_t)a->payload, NULL);
    ASSERT(error == OK); /* they were read from such rows */
}

/* ---- Answers ---- */

Error pipeline_logits_take(Pipeline *p, Frame *f, uint32_t shard, uint32_t twin, size_t bytes,
                           Why *why)
{
    const Ask *a = &f->asks[shard];
    const ShardTerms *terms = &pipeline_shard(p, shard)->terms.shard;
    LogitsRequest request = request_of(p, f, a->request_id[twin]);
    const uint8_t *answer = a->answer[twin];
    FrameHead head;
    TRY(shard_frames_read_logits_answer(answer, bytes, &request, terms, a->results, &head, why));
    return shard_frames_take_logits_answer(&head, &request, terms, answer + head.header_bytes,
                                           bytes - head.header_bytes, a->results, why);
}

/* Its slice is missing: what the others have is all there is. */
void pipeline_logits_zero(Pipeline *p, Frame *f, uint32_t shard)
{
    (void)shard;
    for (uint32_t i = 0; i < f->round_count; i++)
        coordinator_mark_degraded(p->coordinator, f->work->picks[f->round[i]].slot);
}

typedef struct Merged {
    uint32_t count, ids; /* candidates; ids of the shards that answered */
    LogSum sum;
    float id_logit; /* of the id that is wanted */
} Merged;

static Merged merge(Pipeline *p, const Frame *f, uint32_t row)
{
    Merged m = {.id_logit = -__builtin_inff()}; /* as of a row of zeros' shard: it is not known */
    logsum_start(&m.sum);
    for (uint32_t i = 0; i < p->shards; i++) {
        const ShardTerms *t = &pipeline_shard(p, i)->terms.shard;
        if (!f->asks[i].answered) continue;
        const LogitsResult *r = &f->asks[i].results[row];
        m.count = sampler_merge(p->best, m.count, r->candidates, r->candidate_count, f->row[row].k,
                                p->merged);
        if (f->row[row].wants_sum) logsum_merge(&m.sum, &r->sum);
        if (f->row[row].wants_id && f->row[row].id - t->id_first < t->id_last - t->id_first)
            m.id_logit = r->id_logit;
        m.ids += t->id_last - t->id_first;
    }
    return m;
}

static Error give(Pipeline *p, Frame *f, uint32_t row, Why *why)
{
    CoordinatorPick *pick = &f->work->picks[f->round[row]];
    const LogitsRow *asked = &f->row[row];
    if (pick->picked) return OK; /* behind a draft that was wrong */
    Merged m = merge(p, f, row);
    if (!m.count) return error_why(why, ERR_UNREACHABLE, "no shard answered");
    bool complete = m.count == m.ids;
    TRY(coordinator_give_top(p->coordinator, pick, p->best, m.count, complete,
                             asked->wants_sum ? &m.sum : NULL, m.id_logit, why));
    bool other_sum = pick->wants_sum && (!asked->wants_sum || pick->sum_scale != asked->sum_scale);
    if (pick->picked || other_sum || (pick->k > asked->k && !complete)) return OK;
    return error_why(why, ERR_INTERNAL, "%u candidates did not suffice for a pick", m.count);
}

void pipeline_logits_drop(Pipeline *p, Frame *f)
{
    for (uint32_t i = 0; i < p->shards; i++) f->asks[i].open = false;
    f->round_count = 0;
    pipeline_calls_cancel_frame(p, f);
}

void pipeline_logits_end(Pipeline *p, Frame *f)
{
    Why why;
    for (uint32_t i = 0; i < f->round_count; i++) {
        Error error = give(p, f, i, &why);
        if (error == OK) continue;
        if (error == ERR_UNREACHABLE) pipeline_refuse(p, f, error, &why);
        else pipeline_fail(p, f, error, &why);
        return;
    }
    begin_round(p, f);
}
