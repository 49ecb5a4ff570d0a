/* SPDX-License-Identifier: Apache-2.0 */
/* Writes seeds that are frames, where an editor is no help: make_seeds tests/fuzz/corpus
 *
 *   shard/           logits with masks and ids, of the terms of shard_fuzz.c, and their answer
 *   shard_service/   the same for each range of shard_service_fuzz.c
 *   pipeline/        coordinators with guesses, scores and masks among nodes that err now and then
 *
 * Run by hand after a change of the format; what it wrote is committed. */
#include "small_nodes.h"

enum { FIRST = 10, LAST = 26, HIDDEN = 8, BYTES_MAX = 1 << 14 };

static const char *folder;
static uint8_t bytes[BYTES_MAX];

static void save(const char *name, size_t count)
{
    char path[1024];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    bool fine = f && fwrite(bytes, 1, count, f) == count;
    if (f) fine &= fclose(f) == 0;
    if (fine) return;
    perror(path);
    exit(1);
}

/* ---- Requests for logits ---- */

static const Hyper hyper = {.layers = 2, .hidden = HIDDEN, .vocabulary = 40};
static const ShardTerms shard_terms = {.identity = {0x1122334455667788u, 1, FRAME_CACHE_NONE},
                                       .hyper = &hyper,
                                       .id_first = FIRST,
                                       .id_last = LAST,
                                       .rows_max = 4,
                                       .payload_bytes_max = 1 << 16};

static const SamplerSeen seen[] = {
    {.id = 3, .count = 2}, {.id = 12, .count = 1}, {.id = 20, .count = 5}};
static const SamplerBias bias[] = {{.id = 5, .bias = -100}, {.id = 18, .bias = 2.5f}};
static const uint32_t mask[4] = {0x5a5af0f1, 0xffff00ff, 0, 0};

static LogitsRow row_of(bool has_mask, uint32_t id)
{
    return (LogitsRow){.k = 3,
                       .wants_sum = true,
                       .sum_scale = 0.5f,
                       .repetition_penalty = 1.1f,
                       .presence_penalty = 0.25f,
                       .seen = seen,
                       .seen_count = 3,
                       .bias = bias,
                       .bias_count = 2,
                       .mask = has_mask ? mask : NULL,
                       .wants_id = id != UINT32_MAX,
                       .id = id};
}

static size_t write_request(const LogitsRow *rows, uint32_t count, const ShardTerms *of,
                            RowsElement element, uint8_t *to)
{
    float hidden[4 * SMALL_HIDDEN];
    LogitsRequest r = {
        .request_id = 1, .element = element, .rows = count, .row = (LogitsRow *)(uintptr_t)rows};
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++) hidden[i] = (float)i * 0.03f - 1;
    ShardFrameSize size = shard_frames_size_logits(&r, of);
    uint8_t *payload = malloc(size.payload_bytes);
    small_must(shard_frames_write_logits(&r, of, hidden, to, payload, NULL));
    memcpy(to + size.header_bytes, payload, size.payload_bytes);
    free(payload);
    return size.header_bytes + size.payload_bytes;
}

static void save_shard(void)
{
    const LogitsRow masks[] = {row_of(true, UINT32_MAX), row_of(false, UINT32_MAX),
                               row_of(true, 20)},
                    ids[] = {row_of(false, 10), row_of(false, 25), row_of(false, 30)};
    bytes[0] = 3;
    save("shard/logits-masks", 1 + write_request(masks, 3, &shard_terms, ROWS_F32, bytes + 1));
    save("shard/logits-ids", 1 + write_request(ids, 3, &shard_terms, ROWS_INT8, bytes + 1));
}

/* As shard_fuzz.c asks for it. */
static void save_shard_answer(void)
{
    LogitsRow rows[2] = {
        {.k = 3, .repetition_penalty = 1, .wants_sum = true, .sum_scale = 1, .mask = mask},
        {.k = 40, .repetition_penalty = 1, .wants_slice = true, .wants_id = true, .id = 20}};
    LogitsRequest r = {.request_id = 1, .element = ROWS_F32, .rows = 2, .row = rows};
    LogitsResult results[2] = {{.id_logit = 0}, {.id_logit = 2.5f}};
    SamplerCandidate best[2][LAST - FIRST];
    float logits[LAST - FIRST];
    for (int i = 0; i < LAST - FIRST; i++) logits[i] = (float)(i * 7 % 11) * 0.5f;
    for (int i = 0; i < 2; i++) {
        results[i].candidate_count = sampler_top(logits, LAST - FIRST, FIRST, rows[i].k, best[i]);
        results[i].candidates = best[i];
        logsum_start(&results[i].sum);
        logsum_add(&results[i].sum, logits, LAST - FIRST, 1);
    }
    results[1].slice = logits;
    ShardFrameSize size = shard_frames_size_logits_answer(&r, &shard_terms);
    bytes[0] = 5;
    shard_frames_write_logits_answer(&r, &shard_terms, results, bytes + 1,
                                     bytes + 1 + size.header_bytes);
    save("shard/logits-answer-more", 1 + size.header_bytes + size.payload_bytes);
}

/* ---- A shard that is asked ---- */

static size_t put_message(uint8_t *to, const LogitsRow *rows, uint32_t count, const ShardTerms *of)
{
    size_t body = write_request(rows, count, of, ROWS_F32, to + 3);
    to[0] = 1; /* sums are made right, /logits */
    bytes_store16(to + 1, (uint16_t)body);
    return 3 + body;
}

static void save_service(uint8_t range, uint32_t first, uint32_t last, const char *name)
{
    static SmallModel model;
    SmallNode node = {0};
    if (!model.memory) small_open(&model);
    small_shard(&node, &model, first, last);
    const ShardTerms *of = &node.shard_config.terms;
    const LogitsRow masks[] = {row_of(true, UINT32_MAX), row_of(true, first)},
                    ids[] = {row_of(false, last - 1), row_of(false, first)};
    size_t at = 1;
    bytes[0] = range;
    at += put_message(bytes + at, masks, 2, of);
    at += put_message(bytes + at, ids, 2, of);
    save(name, at);
    small_close(&node);
}

/* ---- A coordinator among nodes ---- */

static void save_pipeline(uint8_t shape, uint32_t errors, const char *name)
{
    uint32_t random = shape * 77u + errors;
    size_t count = 300 + shape;
    bytes[0] = shape;
    for (size_t i = 1; i < count; i++) {
        random = random * 1664525u + 1013904223u;
        bool errs = random >> 8 & 31, acts = i % 3 == 1; /* act, then how each call is answered */
        bytes[i] = (uint8_t)(acts                 ? random >> 16
                             : errs && errors < 2 ? 128 + (random >> 24) / 2
                                                  : random >> 24);
    }
    save(name, count);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "make_seeds FOLDER\n");
        return 2;
    }
    folder = argv[1];
    save_shard();
    save_shard_answer();
    save_service(0, 0, 40, "shard_service/more-0-40");
    save_service(1, 0, 7, "shard_service/more-0-7");
    save_service(2, 7, 40, "shard_service/more-7-40");
    save_service(3, 39, 40, "shard_service/more-39-40");
    save_pipeline(0x40, 1, "pipeline/seed-guesses");
    save_pipeline(0x52, 2, "pipeline/seed-guesses-errors");
    save_pipeline(0x80, 1, "pipeline/seed-extras");
    save_pipeline(0x91, 2, "pipeline/seed-extras-errors");
    save_pipeline(0xf7, 1, "pipeline/seed-all");
    save_pipeline(0xe2, 2, "pipeline/seed-all-errors");
    return 0;
}
