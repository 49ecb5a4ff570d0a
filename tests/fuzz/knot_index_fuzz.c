/* SPDX-License-Identifier: Apache-2.0 */
/* A knot that is somewhere else, read by whoever does not trust the way: any bytes of it changed. Input: choices,
 * then edits of three bytes of place and one of bits to turn. Opened under the knot's own id, either nothing that
 * the index keeps was changed, or it is refused; opened under the id that the changed file says (choice),
 * everything in it is still sound. Blocks of the payload are accepted exactly when they are right. */
#include "../unit/knot/tiny_knot.h"
#include "feed.h"
#include "knot/knot_index.h"

enum { EDITS_MAX = 8 };

static TinyKnot file;
static uint64_t file_id;

static void set_up(void)
{
    Tiny t;
    TinyParsed p;
    Why why = {""};
    tiny_model(&t, BLOCK_Q8_0, false);
    Error error = tiny_encode(t.bytes, t.used, 2, &file, &why);
    CHECK(error == OK);
    tiny_free(&t);
    CHECK(tiny_knot_parse(file.bytes, file.used, file.used, &p) == OK);
    file_id = p.knot.id;
    tiny_parsed_free(&p);
}

static void close_index(KnotIndex *x)
{
    free(x->header);
    free(x->row_hashes);
    free(x->block_hashes);
    free(x->tensor_hashes);
    free(x->memory);
}

static Error bring(KnotIndexOpening *o, const KnotIndexNeed *need, const uint8_t *bytes, Why *why)
{
    CHECK(need->offset <= file.used && need->bytes <= file.used - need->offset);
    CHECK(need->memory_bytes < 64 << 20 && need->scratch_bytes < 64 << 20);
    uint8_t *memory = need->memory_bytes
                          ? realloc(need->grows ? o->index->header : NULL, need->memory_bytes)
                          : NULL;
    uint8_t *scratch = malloc(need->scratch_bytes ? need->scratch_bytes : 1);
    uint8_t *to = need->into_scratch ? scratch : memory + need->at;
    if (need->bytes) memcpy(to, bytes + need->offset, (size_t)need->bytes);
    Error error = knot_index_give(o, memory, scratch, why);
    free(scratch);
    return error;
}

static Error open_index(uint64_t id, const uint8_t *bytes, KnotIndex *out)
{
    KnotIndexNeed need;
    Why why = {{0}};
    KnotIndexOpening o = knot_index_start(id, file.used, out);
    Error error = OK;
    for (int i = 0; error == OK && knot_index_need(&o, &need); i++) {
        CHECK(i < 20);
        error = bring(&o, &need, bytes, &why);
    }
    CHECK(error == OK || why.text[0]);
    return error;
}

static bool unchanged(const uint8_t *bytes, uint64_t offset, uint64_t count)
{
    return memcmp(bytes + offset, file.bytes + offset, (size_t)count) == 0;
}

static void check_sections(const KnotIndex *x, const uint8_t *bytes, bool own)
{
    const Knot *k = &x->knot;
    uint64_t first, last, hash, payload = k->payload_offset, seen_first = 0, seen_last = 0;
    if (own) {
        CHECK(unchanged(bytes, 0, x->header_bytes));
        CHECK(unchanged(bytes, payload + k->embedding_row_hashes.offset,
                        k->embedding_row_hashes.bytes));
        CHECK(unchanged(bytes, payload + k->block_hashes.offset, k->block_hashes.bytes));
        CHECK(unchanged(bytes, payload + k->tensor_hashes.offset, k->tensor_hashes.bytes));
    }
    for (uint32_t i = 0; i < k->tensor_count; i++) {
        const KnotTensor *t = &k->tensors[i];
        (void)knot_index_tensor_hash(x, t, &hash);
        knot_index_blocks(x, t->offset, t->bytes, &first, &last);
        CHECK(first <= t->offset && last >= t->offset + t->bytes && last <= k->payload_bytes);
        if (i && first == seen_first && last == seen_last) continue; /* the same blocks again */
        seen_first = first, seen_last = last;
        Error error = knot_index_check(x, first, last - first, bytes + payload + first, NULL);
        if (own) CHECK((error == OK) == unchanged(bytes, payload + first, last - first));
    }
    for (uint32_t row = 0; row < 300; row++) (void)knot_index_row_hash(x, row, &hash);
}

static void check_copy(const KnotIndex *x, Feed *f)
{
    uint64_t offset = feed_bits(f, 3) % (file.used + 1),
             bytes = feed_bits(f, 3) % (file.used - offset + 1);
    uint8_t *out = malloc(bytes ? (size_t)bytes : 1);
    KnotIndexRest rest;
    CHECK(out);
    knot_index_copy(x, offset, bytes, out, &rest);
    CHECK(rest.bytes <= bytes && rest.at <= bytes - rest.bytes);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!file.used) set_up();
    Feed f = {data, size};
    uint32_t choices = feed_u8(&f), edits = feed_below(&f, EDITS_MAX);
    uint8_t *bytes = malloc(file.used);
    CHECK(bytes);
    memcpy(bytes, file.bytes, file.used);
    for (uint32_t i = 0; i < edits && f.left; i++) {
        size_t at = feed_bits(&f, 3) % file.used; /* most of what matters is in front */
        if (choices & 2) at %= 2048;
        if (choices & 4) bytes[at] = feed_u8(&f);
        else bytes[at] ^= feed_u8(&f);
    }
    uint64_t id = file_id;
    TinyParsed p;
    if (choices & 1) {
        if (tiny_knot_parse(bytes, file.used, file.used, &p) == OK) id = p.knot.id;
        tiny_parsed_free(&p);
    }
    KnotIndex x = {0};
    if (open_index(id, bytes, &x) == OK) {
        check_sections(&x, bytes, id == file_id);
        check_copy(&x, &f);
    }
    close_index(&x);
    free(bytes);
    return 0;
}
