/* SPDX-License-Identifier: Apache-2.0 */
/* A forward frame, or an answer (first byte odd), from another node. The first byte is the test's; the
 * CRC and sizes of the rest are put right, so that the fields behind them are reached. What is accepted
 * must hold what the header file promises. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "wire/forward.h"

static const Hyper hyper = {.layers = 6, .hidden = 8, .ffn = 12, .vocabulary = 100};
static const ForwardTerms terms = {.identity = {0x1122334455667788u, 1, FRAME_CACHE_F16},
                                   .hyper = &hyper,
                                   .range = {2, 7},
                                   .rows_max = 16,
                                   .sequences_max = 4,
                                   .context = 64};

static void fuzz_request(const uint8_t *header, size_t size)
{
    ForwardSequence sequences[4];
    uint32_t wanted[16];
    Forward f;
    FrameHead head;
    Why why;
    uint64_t sum = 0;
    if (forward_read(header, size, &terms, sequences, wanted, &f, &head, &why) != OK) return;
    for (uint32_t i = 0; i < f.sequence_count; i++) {
        sum += f.sequences[i].rows;
        if (f.sequences[i].position + f.sequences[i].rows > terms.context) abort();
    }
    if (sum != f.rows || f.rows > 16 || f.wanted_count > f.rows) abort();
    uint8_t again[2048];
    if (forward_header_size(&f) > sizeof again) abort();
    forward_write(&f, &terms, head.payload_hash, again); /* one meaning, one form */
    if (memcmp(again, header, head.header_bytes) != 0) abort();
    if (size - head.header_bytes < head.payload_bytes) return;
    const uint8_t *payload = header + head.header_bytes;
    float x[16 * 12];
    if (rows_read(f.element, payload, f.rows, hyper.hidden, x, &why) != OK) return;
    for (uint32_t i = 0; i < f.rows * hyper.hidden; i++)
        if ((bytes_load32(&x[i]) & 0x7f800000u) == 0x7f800000u) abort();
}

static void fuzz_answer(const uint8_t *header, size_t size)
{
    static const ForwardSequence sequences[2] = {{1, 0, 0, 3, 2}, {2, 1, 5, 5, 1}};
    static const uint32_t wanted[1] = {2};
    static const Forward request = {.request_id = 4,
                                    .mode = FORWARD_PREFILL,
                                    .element = ROWS_F16,
                                    .rows = 3,
                                    .sequences = sequences,
                                    .sequence_count = 2,
                                    .wanted = wanted,
                                    .wanted_count = 1};
    ForwardAnswer a;
    FrameHead head;
    Why why;
    if (forward_read_answer(header, size, &request, &terms, &a, &head, &why) != OK) return;
    if (a.rows != (a.only_wanted ? 1 : 3)) abort();
    if (head.payload_bytes != forward_answer_payload_bytes(&terms, ROWS_F16, a.rows)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 17) return 0;
    size_t n = size - 1;
    uint8_t *copy = malloc(n);
    memcpy(copy, data + 1, n);
    uint32_t stated = bytes_load32(copy + 8);
    if (stated >= FRAME_HEADER_BYTES_MIN && stated <= n && stated <= FRAME_HEADER_BYTES_MAX)
        frame_seal(copy);
    if (data[0] & 1) fuzz_answer(copy, n);
    else fuzz_request(copy, n);
    free(copy);
    return 0;
}
