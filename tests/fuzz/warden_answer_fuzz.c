/* SPDX-License-Identifier: Apache-2.0 */
/* POST /tensors to a warden, from the body to the frame of the answer, for a warden of layers and one of ids
 * (first byte). CRC and payload hash are put right. What is let in lies within the warden's range and its limits,
 * and the answer is read by the other side. */
#include "../unit/wire/small_tensors.h"
#include "api/warden_answer.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "feed.h"
#include "quant/numerics.h"

enum { ROW_BYTES = 68, EMBEDDING_ROWS = 50 };

static KnotIndex x;
static uint8_t memory[1 << 18], row_hashes[8 * EMBEDDING_ROWS];
static uint8_t payload_bytes[1 << 16];

static void set_up(void)
{
    CHECK(small_tensors_make(&x.knot, memory, sizeof memory));
    for (size_t i = 0; i < sizeof payload_bytes; i++) payload_bytes[i] = (uint8_t)(i * 31 + i / 68);
    for (uint32_t i = 0; i < EMBEDDING_ROWS; i++)
        bytes_store64(row_hashes + 8 * i,
                      hash_xxh64(payload_bytes, ROW_BYTES)); /* all rows are the same */
    x.knot.id = 0x1122334455667788u; /* as in the seeds */
    x.row_hashes = row_hashes;
    x.knot.embedding_row_hashes.bytes = sizeof row_hashes;
}

static void check_answer(const WardenServing *w, AwfrPiece *pieces, uint32_t count,
                         uint64_t request_id)
{
    static AwfrPiece got[AWFR_PIECES_MAX];
    Why why = {{0}};
    WardenSizes sizes;
    FrameHead head;
    uint32_t read = 0;
    CHECK(warden_answer_lay_out(pieces, count, &sizes, &why) == OK);
    size_t whole = sizes.header_bytes + sizes.payload_bytes;
    uint8_t *body = calloc(1, whole ? whole : 1);
    CHECK(body);
    for (uint32_t i = 0; i < count; i++) {
        CHECK(pieces[i].at + pieces[i].bytes <= sizes.payload_bytes &&
              pieces[i].bytes <= sizeof payload_bytes);
        memcpy(body + sizes.header_bytes + pieces[i].at, payload_bytes, (size_t)pieces[i].bytes);
        warden_answer_hash(w, &pieces[i], payload_bytes);
    }
    warden_answer_write_head(w, pieces, count, request_id, body);
    AwfrTerms terms = {.identity = {x.knot.id, NUMERICS_VERSION, FRAME_CACHE_NONE},
                       .knot = &x.knot,
                       .pieces_max = AWFR_PIECES_MAX,
                       .payload_bytes_max = whole};
    CHECK(awfr_read(FRAME_TENSORS_ANSWER, body, whole, &terms, got, &read, &head, &why) == OK);
    CHECK(read == count && head.request_id == request_id);
    for (uint32_t i = 0; i < count; i++)
        if (got[i].hash_kind == AWFR_HASH_PIECE)
            CHECK(awfr_check_piece(&got[i], body + sizes.header_bytes + got[i].at, &why) == OK);
    free(body);
}

static void serve(const WardenServing *w, const uint8_t *body, size_t bytes)
{
    static AwfrPiece pieces[AWFR_PIECES_MAX];
    Why why = {{0}};
    uint64_t request_id = 0;
    uint32_t count = 0, rows = 0;
    if (warden_answer_read(w, body, bytes, pieces, &count, &request_id, &why) != OK ||
        warden_answer_check(w, pieces, count, &rows, &why) != OK) {
        CHECK(why.text[0]);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        const AwfrPiece *p = &pieces[i];
        CHECK(p->row_first < p->tensor->rows && p->row_count <= p->tensor->rows - p->row_first);
        if (w->vocab == p->tensor && p->row_count == 1)
            CHECK(p->row_first >= w->identity.first && p->row_first < w->identity.last);
        pieces[i].as_f32 = warden_answer_is_row(w, p) && (bytes & 1);
    }
    check_answer(w, pieces, count, request_id);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!x.knot.tensor_count) set_up();
    Feed f = {data, size};
    const WardenServing shard = {{x.knot.id, true, 10, 30}, &x, &x.knot.tensors[0]},
                        layers = {{x.knot.id, false, 0, 4}, &x, NULL};
    bool is_shard = feed_u8(&f) & 1;
    size_t bytes;
    uint8_t *body = feed_rest(&f, &bytes);
    if (bytes >= FRAME_HEADER_BYTES_MIN) {
        uint32_t stated = bytes_load32(body + 8);
        if (stated >= FRAME_HEADER_BYTES_MIN && stated <= bytes &&
            stated <= FRAME_HEADER_BYTES_MAX) {
            frame_put_payload_hash(body, hash_xxh64(body + stated, bytes - stated));
            frame_seal(body);
        }
    }
    serve(is_shard ? &shard : &layers, body, bytes);
    free(body);
    return 0;
}
