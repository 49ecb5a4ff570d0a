/* SPDX-License-Identifier: Apache-2.0 */
/* The first stage: the ids go to the shards that own one of them, their rows come back sparse and go
 * to their places. */
#include "cluster/pipeline_state.h"

#include <string.h>

#include "base/hash.h"

enum { EMBED_TABLE_AT = 80 }; /* of an answer's header, before the places of its rows */

static bool owns(const ShardTerms *t, uint32_t id) { return id >= t->id_first && id < t->id_last; }

uint64_t pipeline_embed_area_bytes(const Pipeline *p)
{
    uint64_t header = arena_bytes(FRAME_HEADER_BYTES_MIN);
    uint64_t rows = p->chunk * (rows_row_bytes(p->element, p->config.hyper->hidden) + 4);
    return p->shards * p->twins * (header + FRAME_ERROR_ROOM + EMBED_TABLE_AT + 2 * ARENA_ALIGN) +
           p->twins * rows + ARENA_ALIGN;
}

/* The rows as floats: where they stay when the element is F32, else in the other buffer. */
static float *floats_of(const Pipeline *p, const Frame *f)
{
    return (float *)(void *)f->buffer[p->element == ROWS_F32 ? 0 : 1];
}

static EmbedRequest request_of(const Pipeline *p, const Frame *f, const Ask *a, uint32_t twin)
{
    return (EmbedRequest){.request_id = a->request_id[twin],
                          .element = p->element,
                          .form = EMBED_SPARSE,
                          .count = f->work->rows};
}

static void begin_ask(Pipeline *p, Frame *f, uint32_t shard)
{
    Ask *a = &f->asks[shard];
    const ShardTerms *terms = &pipeline_shard(p, shard)->terms.shard;
    *a = (Ask){0};
    if (!pipeline_ends_asks(p, STAGE_EMBED, shard)) return;
    EmbedRequest request = request_of(p, f, a, 0);
    for (uint32_t i = 0; i < request.count; i++) a->open |= owns(terms, f->ids[i]);
    if (!a->open) return;
    ShardFrameSize asked = shard_frames_size_embed(&request),
                   answer = shard_frames_size_embed_answer(&request, terms, f->ids);
    a->payload = (const uint8_t *)f->ids;
    a->payload_bytes = (size_t)asked.payload_bytes;
    a->header_bytes = asked.header_bytes;
    a->room = answer.header_bytes + (size_t)answer.payload_bytes;
    if (a->room < FRAME_ERROR_ROOM) a->room = FRAME_ERROR_ROOM;
    for (uint32_t t = 0; t < p->twins; t++) {
        a->header[t] = arena_take_raw(&f->area, a->header_bytes);
        a->answer[t] = arena_take_raw(&f->area, a->room);
        ASSERT(a->header[t] && a->answer[t]);
    }
}

void pipeline_embed_begin(Pipeline *p, Frame *f)
{
    const CoordinatorFrame *w = f->work;
    f->stage = STAGE_EMBED;
    f->begun_ns[PIPELINE_EMBED] = p->now_ns;
    f->moved_ns = p->now_ns;
    p->again = true;
    arena_reset(&f->area, 0);
    memcpy(f->ids, w->ids, w->rows * sizeof *f->ids);
    memset(floats_of(p, f), 0, (size_t)w->rows * p->config.hyper->hidden * sizeof(float));
    for (uint32_t i = 0; i < p->shards; i++) begin_ask(p, f, i);
}

void pipeline_embed_write(Pipeline *p, Frame *f, uint32_t shard, uint32_t twin)
{
    Ask *a = &f->asks[shard];
    EmbedRequest request = request_of(p, f, a, twin);
    shard_frames_write_embed(&request, &pipeline_shard(p, shard)->terms.shard, f->ids,
                             a->header[twin]);
}

Error pipeline_embed_take(Pipeline *p, Frame *f, uint32_t shard, uint32_t twin, size_t bytes,
                          Why *why)
{
    const Ask *a = &f->asks[shard];
    const ShardTerms *terms = &pipeline_shard(p, shard)->terms.shard;
    EmbedRequest request = request_of(p, f, a, twin);
    const uint8_t *answer = a->answer[twin];
    FrameHead head;
    TRY(shard_frames_read_embed_answer(answer, bytes, &request, terms, f->ids, &head, why));
    return shard_frames_take_embed(&request, &head, terms, f->ids, answer + head.header_bytes,
                                   bytes - head.header_bytes, floats_of(p, f), why);
}

void pipeline_embed_zero(Pipeline *p, Frame *f, uint32_t shard)
{
    const ShardTerms *terms = &pipeline_shard(p, shard)->terms.shard;
    size_t width = p->config.hyper->hidden;
    uint32_t row = 0;
    for (uint32_t i = 0; i < f->work->sequence_count; i++) {
        const StationSequence *q = &f->work->sequences[i];
        for (uint32_t end = row + q->rows; row < end; row++) {
            if (!owns(terms, f->ids[row])) continue;
            memset(floats_of(p, f) + row * width, 0, width * sizeof(float));
            coordinator_mark_degraded(p->coordinator, q->session);
        }
    }
}

void pipeline_embed_end(Pipeline *p, Frame *f)
{
    uint32_t rows = f->work->rows, hidden = p->config.hyper->hidden;
    Why why;
    if (p->element != ROWS_F32) {
        Error error = rows_write(p->element, floats_of(p, f), rows, hidden, f->buffer[0], &why);
        if (error != OK) {
            pipeline_fail(p, f, error, &why);
            return;
        }
    }
    f->side = 0;
    f->rows = f->buffer[0];
    f->rows_bytes = rows_bytes(p->element, rows, hidden);
    f->rows_hash = hash_xxh64(f->rows, (size_t)f->rows_bytes);
    pipeline_forward_begin(p, f);
}
