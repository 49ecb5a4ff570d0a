/* SPDX-License-Identifier: Apache-2.0 */
/* Shards over the wire give the bits of the direct calls: embeddings in both forms, logits with
 * everything that can be asked of them; and a wrong body is refused. */
#include "tiny_model.h"

#include "base/bytes.h"
#include "base/hash.h"
#include "cluster/shard_service.h"
#include "quant/numerics.h"

enum { LOGIT_ROWS = 4, IDS_MAX = 9, SHARDS = 3 };
#define KNOT_ID 0x1122334455667788u

typedef struct Node {
    const TinyModel *model;
    ShardServiceConfig config;
    Shard *shard;
    ShardService *service;
    void *memory, *service_memory, *scratch;
} Node;

static void node_open_shard(Node *n, uint32_t first, uint32_t last)
{
    Why why = {{0}};
    ShardSizes sizes;
    ShardConfig config = {.knot = &n->model->knot,
                          .hyper = &n->model->hyper,
                          .id_first = first,
                          .id_last = last,
                          .rows_max = LOGIT_ROWS,
                          .workers = 1,
                          .tile_bytes_max = 5000,
                          .kernels = kernels_for(ISA_SCALAR)};
    assert_int_equal(shard_sizes(&config, &sizes, &why), OK);
    size_t bytes = (size_t)(sizes.floor_bytes + sizes.logits_bytes);
    n->memory = malloc(bytes);
    n->scratch = malloc((size_t)sizes.scratch_bytes);
    Arena arena = arena_make(n->memory, bytes);
    assert_int_equal(shard_build(&config, &arena, n->scratch, &n->shard, &why), OK);
}

static void node_open(Node *n, const TinyModel *model, uint32_t first, uint32_t last)
{
    Why why = {{0}};
    *n = (Node){.model = model};
    node_open_shard(n, first, last);
    n->config =
        (ShardServiceConfig){.terms = {.identity = {KNOT_ID, NUMERICS_VERSION, FRAME_CACHE_NONE},
                                       .hyper = &model->hyper,
                                       .id_first = first,
                                       .id_last = last,
                                       .rows_max = IDS_MAX},
                             .logit_rows_max = LOGIT_ROWS};
    n->config.terms.payload_bytes_max = shard_service_payload_bytes_max(&n->config);
    size_t bytes = (size_t)shard_service_bytes(&n->config);
    n->service_memory = malloc(bytes);
    memset(n->service_memory, 0xff, bytes);
    Arena arena = arena_make(n->service_memory, bytes);
    assert_int_equal(shard_service_build(&n->config, n->shard, &arena, &n->service, &why), OK);
}

static void node_open_part(Node *n, const TinyModel *model, uint32_t count, uint32_t index)
{
    uint32_t first, last;
    Why why = {{0}};
    assert_int_equal(shard_range(TINY_VOCABULARY, count, index, &first, &last, &why), OK);
    node_open(n, model, first, last);
}

static void node_close(Node *n)
{
    free(n->memory);
    free(n->service_memory);
    free(n->scratch);
}

static Error compute(Shard *s, const TinyModel *t, Why *why)
{
    ShardWish wish;
    for (shard_next(s, &wish); wish.kind != SHARD_DONE; shard_next(s, &wish))
        TRY(shard_give(s, t->payload + wish.offset, &parallel_serial, why));
    return OK;
}

typedef struct Body {
    uint8_t *bytes;
    size_t count;
} Body;

/* As a host does it. `answer` is malloc'd, of exactly its size. */
static Error serve(Node *n, ShardServiceKind kind, const Body *body, Body *answer, Why *why)
{
    assert_true(body->count <= shard_service_body_bytes_max(&n->config));
    TRY(shard_service_begin(n->service, kind, body->bytes, body->count, why));
    TRY(compute(n->shard, n->model, why));
    size_t room = shard_service_answer_bytes(n->service);
    answer->bytes = malloc(room);
    assert_int_equal(shard_service_write(n->service, answer->bytes, room - 1, &answer->count, why),
                     ERR_CAPACITY);
    Error error = shard_service_write(n->service, answer->bytes, room, &answer->count, why);
    if (error != OK) free(answer->bytes);
    else assert_int_equal(answer->count, room);
    return error;
}

static void fill(float *x, size_t count, uint32_t seed)
{
    TinyMaker m = {.random = seed};
    for (size_t i = 0; i < count; i++) x[i] = (float)(tiny_random(&m) % 2001) * 1e-3f - 1.0f;
}

/* ---- Embeddings ------------------------------------------------------------------------------ */

static Body embed_body(const Node *n, const EmbedRequest *r, const uint32_t *ids)
{
    ShardFrameSize size = shard_frames_size_embed(r);
    Body b = {malloc(size.header_bytes + size.payload_bytes + 1),
              size.header_bytes + (size_t)size.payload_bytes};
    if (r->count) memcpy(b.bytes + size.header_bytes, ids, (size_t)size.payload_bytes);
    shard_frames_write_embed(r, &n->config.terms, ids, b.bytes);
    return b;
}

static void embed(Node *n, const EmbedRequest *r, const uint32_t *ids, float *into)
{
    Why why = {{0}};
    FrameHead head;
    Body body = embed_body(n, r, ids), answer;
    if (serve(n, SHARD_SERVICE_EMBED, &body, &answer, &why) != OK) fail_msg("%s", why.text);
    Error error = shard_frames_read_embed_answer(answer.bytes, answer.count, r, &n->config.terms,
                                                 ids, &head, &why);
    if (error != OK) fail_msg("%s", why.text);
    error =
        shard_frames_take_embed(r, &head, &n->config.terms, ids, answer.bytes + head.header_bytes,
                                answer.count - head.header_bytes, into, &why);
    if (error != OK) fail_msg("%s", why.text);
    free(body.bytes);
    free(answer.bytes);
}

/* All ids of one shard of one, by direct calls. */
static void embed_direct(const TinyModel *t, RowsElement element, const uint32_t *ids,
                         uint32_t count, float *out)
{
    Node n;
    Why why = {{0}};
    uint8_t *wire = malloc(IDS_MAX * TINY_HIDDEN * 4);
    node_open(&n, t, 0, TINY_VOCABULARY);
    assert_int_equal(shard_begin_embed(n.shard, ids, count, out, &why), OK);
    assert_int_equal(compute(n.shard, t, &why), OK);
    assert_int_equal(rows_write(element, out, count, TINY_HIDDEN, wire, &why), OK);
    assert_int_equal(rows_read(element, wire, count, TINY_HIDDEN, out, &why), OK);
    for (uint32_t i = 0; i < count * TINY_HIDDEN; i++) out[i] += 0.0f;
    free(wire);
    node_close(&n);
}

static void embeddings_have_the_bits_of_direct_calls(void **state)
{
    (void)state;
    static const uint32_t ids[IDS_MAX] = {0, 300, 150, 37, 300, 99, 100, 101, 200};
    static float want[IDS_MAX * TINY_HIDDEN], got[IDS_MAX * TINY_HIDDEN];
    TinyModel t;
    tiny_make(&t, true, NULL);
    for (int element = ROWS_F32; element <= ROWS_INT8; element++)
        for (int form = EMBED_DENSE; form <= EMBED_SPARSE; form++)
            for (uint32_t count = 1; count <= SHARDS; count++)
                for (uint32_t some = 0; some <= IDS_MAX; some += 3) {
                    EmbedRequest r = {5, (RowsElement)element, (EmbedForm)form, some};
                    embed_direct(&t, r.element, ids, some, want);
                    memset(got, 0xff, sizeof got);
                    for (uint32_t i = 0; i < count; i++) {
                        Node n;
                        node_open_part(&n, &t, count, i);
                        embed(&n, &r, ids, got);
                        node_close(&n);
                    }
                    assert_memory_equal(got, want, some * TINY_HIDDEN * sizeof(float));
                }
    tiny_free(&t);
}

/* ---- Logits ---------------------------------------------------------------------------------- */

static const SamplerSeen seen[] = {{1, 2}, {40, 1}, {150, 7}, {299, 1}};
static const SamplerBias bias[] = {{0, 3.5f}, {42, -100.0f}, {101, -7.0f}, {300, 100.0f}};

/* Every third id is forbidden, and all from 200 to 280. */
static const uint32_t *mask_of_some(void)
{
    static uint32_t mask[(TINY_VOCABULARY + 31) / 32];
    for (uint32_t id = 0; id < TINY_VOCABULARY; id++)
        if (id % 3 && (id < 200 || id > 280)) mask[id / 32] |= 1u << id % 32;
    return mask;
}

/* Each row asks for something else. */
static void ask_rows(LogitsRow row[LOGIT_ROWS])
{
    row[0] = (LogitsRow){.k = 5, .repetition_penalty = 1.0f};
    row[1] = (LogitsRow){.k = 40,
                         .wants_sum = true,
                         .sum_scale = 1.25f,
                         .repetition_penalty = 1.3f,
                         .presence_penalty = 0.5f,
                         .frequency_penalty = 0.25f,
                         .seen = seen,
                         .seen_count = 4,
                         .mask = mask_of_some()};
    row[2] = (LogitsRow){.wants_slice = true,
                         .wants_sum = true,
                         .sum_scale = -0.5f,
                         .repetition_penalty = 1.0f,
                         .bias = bias,
                         .bias_count = 4,
                         .wants_id = true,
                         .id = 101};
    row[3] = (LogitsRow){.k = TINY_VOCABULARY,
                         .wants_slice = true,
                         .repetition_penalty = 0.9f,
                         .mask = mask_of_some(),
                         .seen = seen,
                         .seen_count = 4,
                         .bias = bias,
                         .bias_count = 4,
                         .wants_id = true,
                         .id = 299};
}

static Body logits_body(const Node *n, const LogitsRequest *r, const float *hidden)
{
    Why why = {{0}};
    ShardTerms terms = n->config.terms;
    terms.rows_max = LOGIT_ROWS;
    ShardFrameSize size = shard_frames_size_logits(r, &terms);
    Body b = {malloc(size.header_bytes + (size_t)size.payload_bytes),
              size.header_bytes + (size_t)size.payload_bytes};
    assert_int_equal(
        shard_frames_write_logits(r, &terms, hidden, b.bytes, b.bytes + size.header_bytes, &why),
        OK);
    return b;
}

typedef struct Merged {
    SamplerCandidate candidates[TINY_VOCABULARY];
    uint32_t count;
    LogSum sum;
    float slice[TINY_VOCABULARY], id_logit;
} Merged;

static void merge_row(Merged *m, const LogitsRow *row, const LogitsResult *result,
                      const ShardTerms *terms)
{
    static SamplerCandidate scratch[TINY_VOCABULARY], both[2 * TINY_VOCABULARY];
    memcpy(both, m->candidates, m->count * sizeof *both);
    m->count =
        sampler_merge(both, m->count, result->candidates, result->candidate_count, row->k, scratch);
    memcpy(m->candidates, both, m->count * sizeof *both);
    logsum_merge(&m->sum, &result->sum);
    if (row->wants_id && row->id >= terms->id_first && row->id < terms->id_last)
        m->id_logit = result->id_logit;
    if (row->wants_slice)
        memcpy(m->slice + terms->id_first, result->slice,
               (terms->id_last - terms->id_first) * sizeof(float));
}

static void logits(Node *n, const LogitsRequest *r, const float *hidden, Merged *merged)
{
    Why why = {{0}};
    FrameHead head;
    LogitsResult results[LOGIT_ROWS];
    ShardTerms terms = n->config.terms;
    terms.rows_max = LOGIT_ROWS;
    Body body = logits_body(n, r, hidden), answer;
    if (serve(n, SHARD_SERVICE_LOGITS, &body, &answer, &why) != OK) fail_msg("%s", why.text);
    free(body.bytes);
    Error error = shard_frames_read_logits_answer(answer.bytes, answer.count, r, &terms, results,
                                                  &head, &why);
    if (error != OK) fail_msg("%s", why.text);
    error = shard_frames_take_logits_answer(&head, r, &terms, answer.bytes + head.header_bytes,
                                            answer.count - head.header_bytes, results, &why);
    if (error != OK) fail_msg("%s", why.text);
    for (uint32_t i = 0; i < r->rows; i++) merge_row(&merged[i], &r->row[i], &results[i], &terms);
    free(answer.bytes);
}

/* One shard of one, by direct calls. */
static void logits_direct(const TinyModel *t, const LogitsRequest *r, const float *hidden,
                          Merged *merged)
{
    Node n;
    Why why = {{0}};
    node_open(&n, t, 0, TINY_VOCABULARY);
    assert_int_equal(shard_begin_logits(n.shard, hidden, r->rows, &why), OK);
    assert_int_equal(compute(n.shard, t, &why), OK);
    for (uint32_t i = 0; i < r->rows; i++) {
        const LogitsRow *row = &r->row[i];
        SamplerParams p = sampler_defaults();
        p.repetition_penalty = row->repetition_penalty;
        p.presence_penalty = row->presence_penalty;
        p.frequency_penalty = row->frequency_penalty;
        p.bias = row->bias, p.bias_count = row->bias_count;
        if (row->mask) shard_mask(n.shard, i, row->mask, 0);
        shard_adjust(n.shard, i, &p, row->seen, row->seen_count);
        merged[i].count = shard_top(n.shard, i, row->k, row->k ? merged[i].candidates : NULL,
                                    row->wants_sum ? &merged[i].sum : NULL, row->sum_scale);
        if (row->wants_slice)
            memcpy(merged[i].slice, shard_logits(n.shard, i), sizeof merged[i].slice);
        if (row->wants_id) merged[i].id_logit = shard_logits(n.shard, i)[row->id];
    }
    node_close(&n);
}

static void check_merged(const Merged *got, const Merged *want, uint32_t rows)
{
    for (uint32_t i = 0; i < rows; i++) {
        assert_int_equal(got[i].count, want[i].count);
        assert_memory_equal(got[i].candidates, want[i].candidates,
                            want[i].count * sizeof(SamplerCandidate));
        double a = logsum_log(&got[i].sum), b = logsum_log(&want[i].sum);
        assert_memory_equal(&a, &b, sizeof a);
        assert_memory_equal(got[i].slice, want[i].slice, sizeof want[i].slice);
        assert_memory_equal(&got[i].id_logit, &want[i].id_logit, sizeof(float));
    }
}

static void merged_start(Merged *m)
{
    memset(m, 0, LOGIT_ROWS * sizeof *m);
    for (int i = 0; i < LOGIT_ROWS; i++) logsum_start(&m[i].sum);
}

static void logits_have_the_bits_of_direct_calls(void **state)
{
    (void)state;
    static float hidden[LOGIT_ROWS * TINY_HIDDEN], seen_there[LOGIT_ROWS * TINY_HIDDEN];
    static Merged want[LOGIT_ROWS], got[LOGIT_ROWS];
    static uint8_t wire[LOGIT_ROWS * TINY_HIDDEN * 4];
    Why why = {{0}};
    LogitsRow row[LOGIT_ROWS];
    TinyModel t;
    tiny_make(&t, true, NULL);
    fill(hidden, LOGIT_ROWS * TINY_HIDDEN, 9);
    ask_rows(row);
    for (int element = ROWS_F32; element <= ROWS_INT8; element++)
        for (uint32_t rows = 0; rows <= LOGIT_ROWS; rows += 2)
            for (uint32_t count = 1; count <= SHARDS; count++) {
                LogitsRequest r = {7, (RowsElement)element, rows, row};
                assert_int_equal(rows_write(r.element, hidden, rows, TINY_HIDDEN, wire, &why), OK);
                assert_int_equal(rows_read(r.element, wire, rows, TINY_HIDDEN, seen_there, &why),
                                 OK);
                merged_start(want);
                logits_direct(&t, &r, seen_there, want);
                merged_start(got);
                for (uint32_t i = 0; i < count; i++) {
                    Node n;
                    node_open_part(&n, &t, count, i);
                    logits(&n, &r, hidden, got);
                    node_close(&n);
                }
                check_merged(got, want, rows);
            }
    assert_true(want[2].slice[42] == -__builtin_inff()); /* forbidden, and passes */
    tiny_free(&t);
}

/* No state: the same request twice, with others between, gives the same bytes. */
static void answers_do_not_depend_on_what_was_before(void **state)
{
    (void)state;
    static float hidden[LOGIT_ROWS * TINY_HIDDEN];
    static const uint32_t ids[3] = {7, 300, 20};
    LogitsRow row[LOGIT_ROWS];
    TinyModel t;
    Node n;
    Why why = {{0}};
    Body first, again, between;
    tiny_make(&t, true, NULL);
    node_open_part(&n, &t, 2, 0);
    fill(hidden, LOGIT_ROWS * TINY_HIDDEN, 9);
    ask_rows(row);
    LogitsRequest r = {7, ROWS_F32, LOGIT_ROWS, row};
    EmbedRequest e = {8, ROWS_F32, EMBED_DENSE, 3};
    Body body = logits_body(&n, &r, hidden), other = embed_body(&n, &e, ids);
    assert_int_equal(serve(&n, SHARD_SERVICE_LOGITS, &body, &first, &why), OK);
    assert_int_equal(serve(&n, SHARD_SERVICE_EMBED, &other, &between, &why), OK);
    assert_int_equal(serve(&n, SHARD_SERVICE_LOGITS, &body, &again, &why), OK);
    assert_int_equal(first.count, again.count);
    assert_memory_equal(first.bytes, again.bytes, first.count);
    free(first.bytes), free(again.bytes), free(between.bytes), free(body.bytes), free(other.bytes);
    node_close(&n);
    tiny_free(&t);
}

/* ---- Refusals -------------------------------------------------------------------------------- */

static Error begin(Node *n, ShardServiceKind kind, const uint8_t *bytes, size_t count, Why *why)
{
    uint8_t *copy = malloc(count ? count : 1);
    memcpy(copy, bytes, count);
    Error error = shard_service_begin(n->service, kind, copy, count, why);
    if (error != OK) free(copy);
    else fail_msg("a damaged body was taken");
    return error;
}

static void cut_and_flip(Node *n, ShardServiceKind kind, Body *b)
{
    Why why = {{0}};
    uint32_t header = bytes_load32(b->bytes + 8);
    for (size_t cut = 0; cut < b->count; cut++)
        assert_int_equal(begin(n, kind, b->bytes, cut, &why), ERR_TRUNCATED);
    for (size_t i = 0; i < b->count; i++) {
        b->bytes[i] ^= (uint8_t)(1u << i % 8);
        Error error = begin(n, kind, b->bytes, b->count, &why);
        if (i >= 12 && i < header) assert_int_equal(error, ERR_CHECKSUM);
        b->bytes[i] ^= (uint8_t)(1u << i % 8);
    }
}

static Error set(Node *n, ShardServiceKind kind, const Body *b, size_t at, uint64_t value,
                 size_t bytes)
{
    Why why = {{0}};
    uint8_t *copy = malloc(b->count);
    memcpy(copy, b->bytes, b->count);
    memcpy(copy + at, &value, bytes);
    uint32_t header = bytes_load32(b->bytes + 8);
    frame_put_payload_hash(copy, hash_xxh64(copy + header, b->count - header));
    frame_seal(copy);
    Error error = begin(n, kind, copy, b->count, &why);
    free(copy);
    return error;
}

static void wrong_embeds_are_refused(void **state)
{
    (void)state;
    static const uint32_t ids[3] = {7, 300, 20};
    TinyModel t;
    Node n;
    tiny_make(&t, true, NULL);
    node_open_part(&n, &t, 2, 0);
    EmbedRequest e = {8, ROWS_F16, EMBED_SPARSE, 3};
    Body b = embed_body(&n, &e, ids);
    cut_and_flip(&n, SHARD_SERVICE_EMBED, &b);
    assert_int_equal(set(&n, SHARD_SERVICE_LOGITS, &b, 64, 3, 4), ERR_FORMAT); /* the wrong door */
    assert_int_equal(set(&n, SHARD_SERVICE_EMBED, &b, 16, 3, 8), ERR_UNSUPPORTED);
    assert_int_equal(set(&n, SHARD_SERVICE_EMBED, &b, 26, 1, 2), ERR_UNSUPPORTED);
    assert_int_equal(set(&n, SHARD_SERVICE_EMBED, &b, 60, 300, 4), ERR_UNSUPPORTED);
    assert_int_equal(set(&n, SHARD_SERVICE_EMBED, &b, 64, IDS_MAX + 1, 4), ERR_TOO_LARGE);
    assert_int_equal(set(&n, SHARD_SERVICE_EMBED, &b, 64, 2, 4), ERR_FORMAT);
    assert_int_equal(set(&n, SHARD_SERVICE_EMBED, &b, 68, 4, 1), ERR_TYPE);
    assert_int_equal(set(&n, SHARD_SERVICE_EMBED, &b, 69, 3, 1), ERR_FORMAT);
    assert_int_equal(set(&n, SHARD_SERVICE_EMBED, &b, 72, 8, 4), ERR_SHAPE);
    assert_int_equal(set(&n, SHARD_SERVICE_EMBED, &b, 128, TINY_VOCABULARY, 4), ERR_RANGE);
    free(b.bytes);
    node_close(&n);
    tiny_free(&t);
}

static void wrong_logits_are_refused(void **state)
{
    (void)state;
    static float hidden[2 * TINY_HIDDEN];
    LogitsRow row[LOGIT_ROWS];
    TinyModel t;
    Node n;
    tiny_make(&t, true, NULL);
    node_open_part(&n, &t, 2, 0);
    fill(hidden, 2 * TINY_HIDDEN, 3);
    ask_rows(row);
    row[0] = row[3];
    LogitsRequest r = {7, ROWS_INT8, 2, row};
    Body b = logits_body(&n, &r, hidden);
    cut_and_flip(&n, SHARD_SERVICE_LOGITS, &b);
    assert_int_equal(set(&n, SHARD_SERVICE_LOGITS, &b, 56, 1, 4), ERR_UNSUPPORTED);
    assert_int_equal(set(&n, SHARD_SERVICE_LOGITS, &b, 64, LOGIT_ROWS + 1, 4), ERR_TOO_LARGE);
    assert_int_equal(set(&n, SHARD_SERVICE_LOGITS, &b, 96, TINY_VOCABULARY + 1, 4), ERR_RANGE);
    assert_int_equal(set(&n, SHARD_SERVICE_LOGITS, &b, 96 + 8, 0x7fc00000, 4), ERR_RANGE);
    assert_int_equal(set(&n, SHARD_SERVICE_LOGITS, &b, 96 + 20, 1000, 4), ERR_RANGE);
    assert_int_equal(set(&n, SHARD_SERVICE_LOGITS, &b, 96 + 28, 8, 4), ERR_FORMAT);
    uint32_t pairs =
        bytes_load32(b.bytes + 8) + (uint32_t)rows_bytes(ROWS_INT8, 2, TINY_HIDDEN); /* seen */
    assert_int_equal(set(&n, SHARD_SERVICE_LOGITS, &b, pairs, 200, 4), ERR_RANGE);
    free(b.bytes);
    node_close(&n);
    tiny_free(&t);
}

/* A row of the embedding that is beyond f16: the answer is refused, and says which. */
static void answers_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    static const uint32_t ids[2] = {1, 7};
    TinyModel t;
    Node n;
    Why why = {{0}};
    Body answer;
    tiny_make(&t, false, NULL);
    const KnotTensor *w = knot_find(&t.knot, "token_embd_weight");
    for (uint64_t at = 0; at < w->bytes / TINY_ROWS; at += 18) {
        uint8_t *scale = t.payload + w->offset + 7 * (w->bytes / TINY_ROWS) + at;
        scale[0] = 0xff, scale[1] = 0x7b; /* 65504 */
    }
    node_open_part(&n, &t, 2, 0);
    EmbedRequest e = {8, ROWS_F16, EMBED_DENSE, 2};
    Body b = embed_body(&n, &e, ids);
    assert_int_equal(serve(&n, SHARD_SERVICE_EMBED, &b, &answer, &why), ERR_NOT_FINITE);
    assert_non_null(strstr(why.text, "row 1"));
    free(b.bytes);
    node_close(&n);
    tiny_free(&t);
}

/* A logit near the largest float, which a penalty of 0.01 divides. */
static void penalties_that_overflow_are_refused(void **state)
{
    (void)state;
    static float hidden[TINY_HIDDEN];
    static const SamplerSeen all[] = {{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}};
    TinyModel t;
    Node n;
    Why why = {{0}};
    Body answer;
    tiny_make(&t, true, NULL);
    node_open_part(&n, &t, 2, 0);
    fill(hidden, TINY_HIDDEN, 3);
    for (int i = 0; i < TINY_HIDDEN; i++) hidden[i] *= 1e37f;
    LogitsRow row = {.k = 1, .repetition_penalty = 1.0f, .seen = all, .seen_count = 6};
    LogitsRequest r = {7, ROWS_F32, 1, &row};
    Body b = logits_body(&n, &r, hidden);
    Error error = serve(&n, SHARD_SERVICE_LOGITS, &b, &answer, &why);
    if (error != OK) fail_msg("%s", why.text);
    free(answer.bytes);
    free(b.bytes);
    row.repetition_penalty = 0.01f;
    b = logits_body(&n, &r, hidden);
    assert_int_equal(serve(&n, SHARD_SERVICE_LOGITS, &b, &answer, &why), ERR_NOT_FINITE);
    assert_non_null(strstr(why.text, "row 0: penalties make the logit of id "));
    free(b.bytes);
    node_close(&n);
    tiny_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embeddings_have_the_bits_of_direct_calls),
        cmocka_unit_test(logits_have_the_bits_of_direct_calls),
        cmocka_unit_test(answers_do_not_depend_on_what_was_before),
        cmocka_unit_test(wrong_embeds_are_refused),
        cmocka_unit_test(wrong_logits_are_refused),
        cmocka_unit_test(answers_that_do_not_fit_are_refused),
        cmocka_unit_test(penalties_that_overflow_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
