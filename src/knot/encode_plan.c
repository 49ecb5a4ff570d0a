/* SPDX-License-Identifier: Apache-2.0 */
#include "knot/encode_plan.h"

#include <string.h>

#include "base/bytes.h"
#include "knot/emit.h"
#include "knot/gguf_model.h"
#include "knot/ranges.h"

/* --- order --- */

/* Version 2: vectors, then phases, head, embedding. The key sorts as the payload is laid out. */
static uint64_t encode_plan_key(GgufPlace p)
{
    uint64_t in_layer = (uint64_t)p.layer << 8 | p.phase << 6 | p.place;
    switch (p.role) {
    case GGUF_ROLE_VECTOR: return in_layer;
    case GGUF_ROLE_MATRIX: return 1ull << 40 | in_layer;
    case GGUF_ROLE_HEAD: return 2ull << 40;
    default: return 3ull << 40;
    }
}

static Error encode_plan_tensor(const EncodeInput *in, uint32_t source, GgufRole role,
                                const char *name, EncodeTensor *out, Why *why)
{
    const GgufTensor *t = &in->tensors[source];
    memset(out, 0, sizeof *out);
    bool vector = role == GGUF_ROLE_VECTOR;
    out->source = source;
    out->embedding = role == GGUF_ROLE_EMBEDDING;
    out->out = (KnotTensor){name, t->type, LAYOUT_ROWS, t->rows, t->cols, 0, 0};
    if (in->version == 2 && vector) out->out.type = BLOCK_F32;
    if (in->version == 2 && (role == GGUF_ROLE_MATRIX || role == GGUF_ROLE_HEAD))
        out->out.layout = LAYOUT_X16;
    TRY(block_row_bytes(t->type, t->cols, &out->source_row_bytes, why));
    if (out->source_row_bytes > ENCODE_ROW_BYTES_MAX || (uint64_t)t->cols * 4 > ENCODE_CHUNK_BYTES)
        return error_why(why, ERR_TOO_LARGE, "tensor %s has rows of %llu bytes", t->name,
                         (unsigned long long)out->source_row_bytes);
    return layout_tensor_bytes(out->out.type, out->out.layout, t->rows, t->cols, &out->out.bytes,
                               why);
}

typedef struct EncodeOrder {
    Range *keys; /* offset: the key, bytes: the source */
    uint32_t count;
    bool head;
    uint32_t embedding;
} EncodeOrder;

static Error encode_plan_order(const EncodeInput *in, Arena *arena, EncodeOrder *order, Why *why)
{
    *order = (EncodeOrder){ARENA_NEW(arena, Range, in->tensor_count + 1), 0, false, UINT32_MAX};
    if (!order->keys)
        return error_why(why, ERR_MEMORY, "the order of %u tensors", in->tensor_count);
    for (uint32_t i = 0; i < in->tensor_count; i++) {
        GgufPlace place = gguf_model_place(in->tensors[i].knot_name, in->model->layers);
        if (place.role == GGUF_ROLE_HEAD) order->head = true;
        if (place.role == GGUF_ROLE_EMBEDDING) order->embedding = i;
        uint64_t key = in->version == 2 ? encode_plan_key(place) : i;
        order->keys[order->count++] = (Range){key, i, in->tensors[i].knot_name};
    }
    if (in->version == 2 && !order->head && order->embedding != UINT32_MAX)
        order->keys[order->count++] = (Range){2ull << 40, order->embedding, "output_weight"};
    ranges_sort(order->keys, order->count);
    return OK;
}

static Error encode_plan_tensors(const EncodeInput *in, Arena *arena, EncodePlan *plan, Why *why)
{
    EncodeOrder order;
    TRY(encode_plan_order(in, arena, &order, why));
    plan->tensors = ARENA_NEW(arena, EncodeTensor, order.count);
    if (!plan->tensors) return error_why(why, ERR_MEMORY, "the plan of %u tensors", order.count);
    plan->tensor_count = order.count;
    for (uint32_t i = 0; i < order.count; i++) {
        EncodeTensor *t = &plan->tensors[i];
        const Range *key = &order.keys[i];
        GgufRole role = gguf_model_place(key->name, in->model->layers).role;
        TRY(encode_plan_tensor(in, (uint32_t)key->bytes, role, key->name, t, why));
        t->tied = role == GGUF_ROLE_HEAD && !order.head;
    }
    return OK;
}

/* --- offsets --- */

/* Phases, head and embedding start a part of their own; what follows inside a part is only aligned.
 */
static uint64_t encode_plan_unit(const EncodeInput *in, const EncodePlan *plan, uint32_t i)
{
    if (plan->version == 1) return 1;
    GgufPlace here = gguf_model_place(plan->tensors[i].out.name, in->model->layers);
    if (here.role == GGUF_ROLE_VECTOR) return KNOT_ALIGNMENT;
    if (here.role != GGUF_ROLE_MATRIX || i == 0) return KNOT_PART_ALIGNMENT;
    GgufPlace before = gguf_model_place(plan->tensors[i - 1].out.name, in->model->layers);
    bool same =
        before.role == GGUF_ROLE_MATRIX && before.layer == here.layer && before.phase == here.phase;
    return same ? KNOT_ALIGNMENT : KNOT_PART_ALIGNMENT;
}

static Error encode_plan_place(uint64_t *at, uint64_t unit, uint64_t bytes, uint64_t *offset,
                               Why *why)
{
    if (bytes_round_up(*at, unit, offset) && bytes_add(*offset, bytes, at) && *at <= INT64_MAX)
        return OK;
    return error_why(why, ERR_TOO_LARGE, "a payload of more than 2^63 bytes");
}

static Error encode_plan_offsets(const EncodeInput *in, EncodePlan *plan, Why *why)
{
    uint64_t at = 0;
    const EncodeTensor *embedding = NULL;
    for (uint32_t i = 0; i < plan->tensor_count; i++) {
        EncodeTensor *t = &plan->tensors[i];
        TRY(encode_plan_place(&at, encode_plan_unit(in, plan, i), t->out.bytes, &t->out.offset,
                              why));
        if (t->embedding) embedding = t;
    }
    if (plan->version == 2) {
        plan->tokenizer.bytes = in->vocab_bytes;
        plan->row_hashes.bytes = embedding ? 8 * (uint64_t)embedding->out.rows : 0;
        TRY(encode_plan_place(&at, KNOT_PART_ALIGNMENT, plan->tokenizer.bytes,
                              &plan->tokenizer.offset, why));
        TRY(encode_plan_place(&at, KNOT_ALIGNMENT, plan->row_hashes.bytes, &plan->row_hashes.offset,
                              why));
        plan->tensor_hashes.bytes = 8 * (uint64_t)plan->tensor_count;
        TRY(encode_plan_place(&at, KNOT_ALIGNMENT, plan->tensor_hashes.bytes,
                              &plan->tensor_hashes.offset, why));
        TRY(encode_plan_place(&at, KNOT_ALIGNMENT, 0, &plan->block_hashes.offset, why));
        uint64_t covered = plan->block_hashes.offset;
        plan->block_hashes.bytes =
            8 * ((covered + KNOT_HASH_BLOCK_BYTES - 1) / KNOT_HASH_BLOCK_BYTES);
        at += plan->block_hashes.bytes;
    }
    plan->payload_bytes = at;
    return OK;
}

/* --- JSON --- */

static void encode_plan_member(Emit *e, const char *name, uint64_t value)
{
    emit_text(e, ",\"");
    emit_text(e, name);
    emit_text(e, "\":");
    emit_u64(e, value);
}

static void encode_plan_float(Emit *e, const char *name, float value)
{
    emit_text(e, ",\"");
    emit_text(e, name);
    emit_text(e, "\":");
    emit_f32(e, value);
}

static void encode_plan_string(Emit *e, const char *name, const char *value)
{
    emit_text(e, ",\"");
    emit_text(e, name);
    emit_text(e, "\":");
    emit_string(e, value);
}

static void encode_plan_model(Emit *e, const KnotModel *m)
{
    emit_text(e, "\"model\":{\"architecture\":");
    emit_string(e, m->architecture);
    encode_plan_string(e, "name", m->name);
    encode_plan_member(e, "layers", m->layers);
    encode_plan_member(e, "hidden", m->hidden);
    encode_plan_member(e, "ffn", m->ffn);
    encode_plan_member(e, "heads", m->heads);
    encode_plan_member(e, "kv_heads", m->kv_heads);
    encode_plan_member(e, "head_dim", m->head_dim);
    encode_plan_member(e, "vocabulary", m->vocabulary);
    encode_plan_member(e, "context", m->context);
    encode_plan_float(e, "norm_epsilon", m->norm_epsilon);
    encode_plan_float(e, "rope_base", m->rope_base);
    encode_plan_float(e, "rope_base_local", m->rope_base_local);
    encode_plan_member(e, "rope_dim", m->rope_dim);
    encode_plan_string(e, "rope_scaling", m->rope_scaling);
    encode_plan_float(e, "rope_scale_factor", m->rope_scale_factor);
    encode_plan_member(e, "rope_original_context", m->rope_original_context);
    encode_plan_member(e, "sliding_window", m->sliding_window);
    encode_plan_member(e, "sliding_window_pattern", m->sliding_window_pattern);
    emit_text(e, "}");
}

static void encode_plan_emit_tensor(Emit *e, const EncodePlan *plan, const EncodeInput *in,
                                    const EncodeTensor *t)
{
    emit_text(e, "{\"name\":");
    emit_string(e, t->out.name);
    encode_plan_string(e, "type", block_traits(t->out.type)->name);
    if (plan->version == 2) encode_plan_string(e, "layout", layout_name(t->out.layout));
    emit_text(e, ",\"shape\":[");
    if (in->tensors[t->source].dimensions > 1 || t->out.rows > 1) {
        emit_u64(e, t->out.rows);
        emit_text(e, ",");
    }
    emit_u64(e, t->out.cols);
    emit_text(e, "]");
    encode_plan_member(e, "offset", t->out.offset);
    encode_plan_member(e, "length", t->out.bytes);
    emit_text(e, t->tied ? ",\"tied\":true}" : "}");
}

static void encode_plan_section(Emit *e, const char *name, KnotSection s)
{
    if (!s.bytes) return;
    emit_text(e, ",\"");
    emit_text(e, name);
    emit_text(e, "\":{\"offset\":");
    emit_u64(e, s.offset);
    encode_plan_member(e, "length", s.bytes);
    emit_text(e, "}");
}

static void encode_plan_emit(Emit *e, const EncodeInput *in, const EncodePlan *plan)
{
    if (plan->version == 2) {
        emit_text(e, "{\"knot_id\":\"0000000000000000\",\"numerics\":1,\"alignment\":64");
        encode_plan_member(e, "payload_bytes", plan->payload_bytes);
        encode_plan_section(e, "tokenizer", plan->tokenizer);
        encode_plan_section(e, "embedding_row_hashes", plan->row_hashes);
        encode_plan_section(e, "tensor_hashes", plan->tensor_hashes);
        encode_plan_section(e, "block_hashes", plan->block_hashes);
        emit_text(e, ",");
    } else emit_text(e, "{");
    encode_plan_model(e, in->model);
    emit_text(e, ",\"tensors\":[");
    for (uint32_t i = 0; i < plan->tensor_count; i++) {
        if (i) emit_text(e, ",");
        encode_plan_emit_tensor(e, plan, in, &plan->tensors[i]);
    }
    emit_text(e, "]}");
}

/* --- the whole --- */

static Error encode_plan_header(const EncodeInput *in, Arena *arena, EncodePlan *plan, Why *why)
{
    enum { FIXED = 10, TENSOR_TEXT_MAX = 256, REST_TEXT_MAX = 4096 };
    size_t room = REST_TEXT_MAX + (size_t)plan->tensor_count * TENSOR_TEXT_MAX;
    uint8_t *header = arena_take(arena, FIXED + room + 2 * KNOT_PART_ALIGNMENT);
    if (!header) return error_why(why, ERR_MEMORY, "a header for %u tensors", plan->tensor_count);
    Emit e = emit_make(header + FIXED, room);
    encode_plan_emit(&e, in, plan);
    ASSERT(emit_fits(&e));
    if (e.used > KNOT_META_BYTES_MAX)
        return error_why(why, ERR_TOO_LARGE, "a header of %zu bytes", e.used);
    memcpy(header, "KNOT", 4);
    bytes_store16(header + 4, (uint16_t)plan->version);
    bytes_store32(header + 6, (uint32_t)e.used);
    plan->header = header;
    plan->header_end = (size_t)knot_header_end(e.used);
    plan->payload_offset = knot_payload_start((uint16_t)plan->version, e.used);
    header[plan->header_end - 1] = 0x40;
    return OK;
}

/* What is written must be what the reader accepts: a plan that breaks a rule of the format is a
 * fault of this file. */
static Error encode_plan_check(EncodePlan *plan, Arena *arena, Why *why)
{
    size_t mark = arena_mark(arena);
    size_t tables_bytes = knot_arena_bytes(plan->header_end),
           json_bytes = knot_scratch_bytes(plan->header_end);
    void *tables = arena_take(arena, tables_bytes), *json = arena_take(arena, json_bytes);
    if (!tables || !json)
        return error_why(why, ERR_MEMORY, "a header of %zu bytes", plan->header_end);
    Arena a = arena_make(tables, tables_bytes), b = arena_make(json, json_bytes);
    Knot knot;
    Why detail = {""};
    uint64_t file_bytes = plan->payload_offset + plan->payload_bytes;
    Error e = knot_parse(plan->header, plan->header_end, file_bytes, &a, &b, &knot, &detail);
    arena_reset(arena, mark);
    return e ? error_why(why, ERR_INTERNAL, "the planned header is not valid: %s", detail.text)
             : OK;
}

Error encode_plan_make(const EncodeInput *in, Arena *arena, EncodePlan *out, Why *why)
{
    memset(out, 0, sizeof *out);
    out->version = in->version;
    ASSERT(in->version == 1 || in->version == 2);
    TRY(encode_plan_tensors(in, arena, out, why));
    TRY(encode_plan_offsets(in, out, why));
    TRY(encode_plan_header(in, arena, out, why));
    return encode_plan_check(out, arena, why);
}
