/* SPDX-License-Identifier: Apache-2.0 */
/* AWFR frames: a request, or an answer when the first byte is odd. The CRC is put right. */
#include <stdlib.h>
#include <string.h>

#include "../unit/wire/small_tensors.h"
#include "base/bytes.h"
#include "wire/awfr.h"

enum { PIECES = 16 };

static void fuzz_check(const AwfrTerms *terms, FrameKind kind, const AwfrPiece *pieces,
                       uint32_t count, const FrameHead *head, const uint8_t *header, size_t size)
{
    static uint8_t again[4096];
    uint64_t end = 0, payload = kind == FRAME_TENSORS ? 0 : head->payload_bytes;
    Why why;
    for (uint32_t i = 0; i < count; i++) {
        const AwfrPiece *p = &pieces[i];
        if (p->at < end || p->at % AWFR_ALIGN || p->row_count > p->tensor->rows - p->row_first)
            abort();
        end = p->at + p->bytes;
    }
    if (payload && end != payload) abort();
    if (awfr_header_size(pieces, count) <= sizeof again)
        awfr_write(kind, terms, head->request_id, pieces, count, again);
    if (payload && size - head->header_bytes >= payload) {
        Error found = awfr_check_gaps(pieces, count, header + head->header_bytes, &why);
        for (uint32_t i = 0; i < count; i++)
            found = awfr_check_piece(&pieces[i], header + head->header_bytes + pieces[i].at, &why);
        (void)found; /* whatever it is */
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t memory[1 << 18];
    static Knot knot;
    AwfrTerms terms = {.identity = {0x1122334455667788u, 1, FRAME_CACHE_NONE},
                       .knot = &knot,
                       .pieces_max = PIECES,
                       .payload_bytes_max = 1 << 20};
    AwfrPiece pieces[PIECES];
    FrameHead head;
    Why why;
    uint32_t count;
    if (!knot.tensors && !small_tensors_make(&knot, memory, sizeof memory)) abort();
    if (size < 17) return 0;
    FrameKind kind = data[0] & 1 ? FRAME_TENSORS_ANSWER : FRAME_TENSORS;
    size_t n = size - 1;
    uint8_t *copy = malloc(n);
    memcpy(copy, data + 1, n);
    uint32_t stated = bytes_load32(copy + 8);
    if (stated >= FRAME_HEADER_BYTES_MIN && stated <= n && stated <= FRAME_HEADER_BYTES_MAX)
        frame_seal(copy);
    if (awfr_read(kind, copy, n, &terms, pieces, &count, &head, &why) == OK)
        fuzz_check(&terms, kind, pieces, count, &head, copy, n);
    free(copy);
    return 0;
}
