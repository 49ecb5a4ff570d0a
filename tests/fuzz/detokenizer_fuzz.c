/* SPDX-License-Identifier: Apache-2.0 */
/* Ids to text with stop strings, against the definition: repair all bytes at once, then look for the stop
 * that is complete first. Input: one byte flags (bit 0 SentencePiece, bit 1 specials), stops each as a
 * length byte and its bytes up to a length of 0, then ids of two bytes. */
#include "../unit/text/small_vocab.h"
#include "text/detokenizer.h"
#include "text/utf8.h"

#define CHECK(condition) ((condition) ? (void)0 : abort())

typedef struct Text {
    uint8_t *bytes;
    size_t count;
} Text;

static const Tokenizer *fuzz_tokenizer(bool sentencepiece)
{
    static SmallVocab *vocabs[2];
    SmallVocab **v = &vocabs[sentencepiece];
    if (!*v) {
        *v = sentencepiece ? small_sentencepiece(false) : small_bpe(VOCAB_PRE_GPT2);
        CHECK(small_build(*v, NULL) == OK);
    }
    return (*v)->tokenizer;
}

/* All pieces, repaired. */
static Text fuzz_repaired(const Tokenizer *t, bool specials, const uint8_t *ids, size_t count)
{
    Text raw = {malloc(count * 64 + 1), 0}, text = {malloc(count * 192 + 1), 0};
    for (size_t i = 0; i < count; i++) {
        size_t bytes;
        uint32_t id = bytes_load16(ids + 2 * i) % tokenizer_vocab(t)->tokens;
        CHECK(tokenizer_piece(t, id, specials, raw.bytes + raw.count, 64, &bytes, NULL) == OK);
        raw.count += bytes;
    }
    for (size_t at = 0; at < raw.count;) {
        int found = utf8_look(raw.bytes + at, raw.count - at);
        size_t bytes = found > 0 ? (size_t)found : found < 0 ? (size_t)-found : raw.count - at;
        if (found > 0) memcpy(text.bytes + text.count, raw.bytes + at, bytes);
        else memcpy(text.bytes + text.count, "\xEF\xBF\xBD", 3);
        text.count += found > 0 ? bytes : 3;
        at += bytes;
    }
    free(raw.bytes);
    return text;
}

static bool fuzz_cut(Text *text, const Detokenizer *d)
{
    for (size_t end = 1; end <= text->count; end++) {
        size_t longest = 0;
        for (uint32_t i = 0; i < d->stop_count; i++) {
            size_t bytes = d->stop_bytes[i];
            if (bytes <= end && bytes > longest &&
                memcmp(text->bytes + end - bytes, d->stops[i], bytes) == 0)
                longest = bytes;
        }
        if (!longest) continue;
        text->count = end - longest;
        return true;
    }
    return false;
}

static Text fuzz_streamed(Detokenizer *d, const uint8_t *ids, size_t count)
{
    Text text = {malloc(count * 192 + 2 * DETOKENIZER_OUT_BYTES_MAX), 0};
    bool stopped;
    size_t bytes;
    for (size_t i = 0; i < count; i++) {
        uint32_t id = bytes_load16(ids + 2 * i) % tokenizer_vocab(d->tokenizer)->tokens;
        uint8_t out[DETOKENIZER_OUT_BYTES_MAX];
        CHECK(detokenizer_push(d, id, out, sizeof out, &bytes, &stopped, NULL) == OK);
        memcpy(text.bytes + text.count, out, bytes);
        text.count += bytes;
    }
    CHECK(detokenizer_end(d, text.bytes + text.count, DETOKENIZER_OUT_BYTES_MAX, &bytes, NULL) ==
          OK);
    text.count += bytes;
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    if (length == 0) return 0;
    const uint8_t *at = bytes + 1, *end = bytes + length;
    Detokenizer d;
    detokenizer_start(&d, fuzz_tokenizer(bytes[0] & 1), bytes[0] & 2);
    while (at != end && *at) {
        size_t size = *at++;
        if (size > (size_t)(end - at)) size = (size_t)(end - at);
        Error error = detokenizer_add_stop(&d, (const char *)at, size, NULL);
        CHECK(error == OK || size == 0 || d.stop_count == DETOKENIZER_STOPS_MAX);
        at += size;
    }
    if (at != end) at++;
    size_t count = (size_t)(end - at) / 2;
    Text want = fuzz_repaired(d.tokenizer, d.specials, at, count);
    bool cut = fuzz_cut(&want, &d);
    Text got = fuzz_streamed(&d, at, count);
    CHECK(d.stopped == cut && got.count == want.count &&
          memcmp(got.bytes, want.bytes, got.count) == 0);
    free(got.bytes);
    free(want.bytes);
    return 0;
}
