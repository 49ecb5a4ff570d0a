/* SPDX-License-Identifier: Apache-2.0 */
/* Embed and logits frames and their answers: the first byte chooses which. CRC and payload hash are put
 * right, so that what lies behind them is reached. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "wire/shard_frames.h"

enum { ROWS = 4, FIRST = 10, LAST = 26 };
static const Hyper hyper = {.layers = 2, .hidden = 8, .vocabulary = 40};
static const ShardTerms terms = {.identity = {0x1122334455667788u, 1, FRAME_CACHE_NONE},
                                 .hyper = &hyper,
                                 .id_first = FIRST,
                                 .id_last = LAST,
                                 .rows_max = ROWS,
                                 .payload_bytes_max = 1 << 16};
static const uint32_t ids[ROWS] = {10, 3, 25, 39};

static void fuzz_embed(const uint8_t *header, size_t size, const uint8_t *payload, uint64_t bytes)
{
    EmbedRequest r;
    FrameHead head;
    Why why;
    uint32_t got[ROWS];
    if (shard_frames_read_embed(header, size, &terms, &r, &head, &why) != OK) return;
    if (shard_frames_take_ids(&r, &head, &terms, payload, bytes, got, &why) != OK) return;
    for (uint32_t i = 0; i < r.count; i++)
        if (got[i] >= hyper.vocabulary) abort();
}

static void fuzz_embed_answer(const uint8_t *header, size_t size, const uint8_t *payload,
                              uint64_t bytes, EmbedForm form)
{
    EmbedRequest r = {.request_id = 1, .element = ROWS_INT8, .form = form, .count = ROWS};
    FrameHead head;
    Why why;
    float into[ROWS * 8];
    for (int i = 0; i < ROWS * 8; i++) into[i] = 77.0f;
    if (shard_frames_read_embed_answer(header, size, &r, &terms, ids, &head, &why) != OK) return;
    if (shard_frames_take_embed(&r, &head, &terms, ids, payload, bytes, into, &why) != OK) return;
    for (int c = 0; c < 8; c++)
        if (into[8 + c] != 77.0f || into[24 + c] != 77.0f) abort(); /* rows of others */
}

static void fuzz_logits(const uint8_t *header, size_t size, const uint8_t *payload, uint64_t bytes)
{
    LogitsRow rows[ROWS];
    LogitsRequest r;
    FrameHead head;
    Why why;
    float hidden[ROWS * 8], logits[LAST - FIRST];
    if (shard_frames_read_logits(header, size, &terms, rows, &r, &head, &why) != OK) return;
    if (shard_frames_take_logits(&r, &head, &terms, payload, bytes, hidden, &why) != OK) return;
    for (uint32_t i = 0; i < r.rows; i++) { /* the sampler takes what was let through */
        SamplerParams p = sampler_defaults();
        p.repetition_penalty = rows[i].repetition_penalty;
        p.presence_penalty = rows[i].presence_penalty;
        p.frequency_penalty = rows[i].frequency_penalty;
        p.bias = rows[i].bias, p.bias_count = rows[i].bias_count;
        for (int id = 0; id < LAST - FIRST; id++) logits[id] = (float)id - 8.0f;
        if (rows[i].mask) sampler_mask(rows[i].mask, 0, logits, LAST - FIRST);
        if (rows[i].wants_id && (rows[i].id < FIRST || rows[i].id >= LAST)) abort();
        sampler_adjust(&p, rows[i].seen, rows[i].seen_count, FIRST, logits, LAST - FIRST);
    }
}

/* `more`: the first row has a mask, the second asks for the logit of an id. */
static void fuzz_logits_answer(const uint8_t *header, size_t size, const uint8_t *payload,
                               uint64_t bytes, bool more)
{
    static const uint32_t mask[2] = {0x00fff800, 0};
    LogitsRow rows[2] = {{.k = 3, .repetition_penalty = 1.0f},
                         {.k = 40, .repetition_penalty = 1.0f}};
    LogitsRequest r = {.request_id = 1, .element = ROWS_F32, .rows = 2, .row = rows};
    LogitsResult results[2];
    FrameHead head;
    Why why;
    SamplerCandidate merged[64], scratch[64];
    rows[0].wants_sum = rows[1].wants_slice = true;
    rows[0].sum_scale = 1.0f;
    if (more) rows[0].mask = mask;
    rows[1].wants_id = more;
    rows[1].id = 20;
    if (shard_frames_read_logits_answer(header, size, &r, &terms, results, &head, &why) != OK)
        return;
    if (shard_frames_take_logits_answer(&head, &r, &terms, payload, bytes, results, &why) != OK)
        return;
    LogSum sum;
    logsum_start(&sum);
    for (int i = 0; i < 100; i++) logsum_merge(&sum, &results[0].sum);
    (void)logsum_log(&sum);
    memcpy(merged, results[0].candidates, results[0].candidate_count * sizeof *merged);
    (void)sampler_merge(merged, results[0].candidate_count, results[1].candidates,
                        results[1].candidate_count, 10, scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 65) return 0;
    size_t n = size - 1;
    uint8_t *copy = malloc(n), *payload = NULL;
    memcpy(copy, data + 1, n);
    uint32_t stated = bytes_load32(copy + 8);
    uint64_t bytes = 0;
    if (stated >= FRAME_HEADER_BYTES_MIN && stated <= n && stated <= FRAME_HEADER_BYTES_MAX) {
        bytes = n - stated;
        payload = malloc(bytes ? bytes : 1); /* aligned, and of its exact size */
        memcpy(payload, copy + stated, bytes);
        frame_put_payload_hash(copy, hash_xxh64(payload, bytes));
        frame_seal(copy);
    }
    switch (data[0] % 6) {
    case 0: fuzz_embed(copy, n, payload, bytes); break;
    case 1: fuzz_embed_answer(copy, n, payload, bytes, EMBED_DENSE); break;
    case 2: fuzz_embed_answer(copy, n, payload, bytes, EMBED_SPARSE); break;
    case 3: fuzz_logits(copy, n, payload, bytes); break;
    default: fuzz_logits_answer(copy, n, payload, bytes, data[0] % 6 == 5); break;
    }
    free(copy);
    free(payload);
    return 0;
}
