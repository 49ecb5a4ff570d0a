/* SPDX-License-Identifier: Apache-2.0 */
#include "host/node_vocab.h"

#include <stdlib.h>

#include "api/node_gate.h"
#include "cluster/window.h"
#include "quant/numerics.h"

/* Without the head no logits are made: what the shard wants is kept small. */
static uint32_t logit_rows_of(const NodeVocab *v, const NodeWork *w)
{
    return v->head ? w->logit_rows : 1;
}

static ShardConfig make_config(const NodeVocab *v, const NodeWork *w)
{
    return (ShardConfig){
        .knot = &w->model.file.knot,
        .hyper = &w->model.hyper,
        .id_first = v->id_first,
        .id_last = v->id_last,
        .rows_max = logit_rows_of(v, w),
        .workers = w->threads,
        .tile_bytes_max = w->memory.tile_bytes_max,
        .kernels = w->kernels,
    };
}

static ShardServiceConfig make_service_config(const NodeVocab *v, const NodeWork *w)
{
    ShardServiceConfig c = {
        .terms = {.identity = {w->node->cluster->knot_id, NUMERICS_VERSION, FRAME_CACHE_NONE},
                  .hyper = &w->model.hyper,
                  .id_first = v->id_first,
                  .id_last = v->id_last,
                  .rows_max = w->chunk},
        .logit_rows_max = logit_rows_of(v, w),
    };
    c.terms.payload_bytes_max = shard_service_payload_bytes_max(&c);
    return c;
}

/* ---- The sum ---- */

Error node_vocab_size(const NodeVocab *v, const NodeWork *w, NodeMemory *m, Why *why)
{
    ShardConfig config = make_config(v, w);
    ShardServiceConfig service = make_service_config(v, w);
    if (v->embed) m->rows_window_bytes = WINDOW_ROWS_BYTES;
    return node_sizes_ids(&config, &service, v->embed, v->head, &m->sizes, why);
}

Error node_vocab_build(NodeVocab *v, const NodeWork *w, Arena *arena, void *scratch, Why *why)
{
    ShardConfig config = make_config(v, w);
    ShardServiceConfig service = make_service_config(v, w);
    if (!v->embed && !v->head) return OK;
    TRY(shard_build(&config, arena, scratch, &v->shard, why));
    return shard_service_build(&service, v->shard, arena, &v->service, why);
}

/* ---- Requests ---- */

static Error answer(NodeVocab *v, NodeWork *w, ShardServiceKind kind, const NodeRequest *r,
                    uint8_t **out, size_t *bytes, Why *why)
{
    TRY(shard_service_begin(v->service, kind, r->body, r->body_bytes, why));
    Slice *slice = w->model.slice;
    TRY(slice ? slice_run_shard(slice, &w->worker, v->shard, why)
              : worker_run_shard(&w->worker, v->shard, why));
    size_t room = shard_service_answer_bytes(v->service);
    *out = malloc(room);
    if (!*out) return error_why(why, ERR_MEMORY, "no memory for an answer of %zu bytes", room);
    Error error = shard_service_write(v->service, *out, room, bytes, why);
    if (error != OK) free(*out);
    return error;
}

void node_vocab_run(NodeVocab *v, NodeWork *w, ShardServiceKind kind, NodeRequest *r)
{
    Why why = {{0}};
    uint8_t *bytes = NULL;
    size_t count = 0;
    bool embed = kind == SHARD_SERVICE_EMBED;
    if (embed ? !v->embed : !v->head) {
        node_server_reply_error(r, node_gate_no_part(w->node->self->id, embed, &why), &why);
        return;
    }
    atomic_fetch_add(embed ? &v->embeds : &v->logits, 1);
    if (node_work_refuses(w, r)) return;
    uint64_t begun = node_work_begin(w, r);
    Error error = answer(v, w, kind, r, &bytes, &count, &why);
    (void)node_work_end(w, begun);
    if (error == OK) node_server_reply_take(r, 200, NODE_GATE_OCTETS, bytes, count);
    else node_work_fail(w, r, embed ? "embed" : "logits", error, &why);
}

void node_vocab_write_metrics(const NodeVocab *v, JsonWriter *out)
{
    if (!v->embed && !v->head) return;
    node_about_ids_counts(v->embeds, v->logits, out);
}
