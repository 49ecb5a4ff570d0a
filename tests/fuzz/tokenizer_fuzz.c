/* SPDX-License-Identifier: Apache-2.0 */
/* Text to ids. The first byte chooses the vocabulary and the flags, the rest is the text; or, when its
 * highest bit is set, the rest is a whole tokenizer section, and a fixed text is tokenized with whatever it says.
 *
 *   bits 0-2  0 qwen2, 1 gpt-2, 2 llama-bpe, 3 smollm, 4 SentencePiece, 5 the same with a space in front
 *   bit 3     TOKENIZE_SPECIALS     bit 4  TOKENIZE_BOS     bit 7  a section */
#include "../unit/text/small_vocab.h"

#define CHECK(condition) ((condition) ? (void)0 : abort())

static SmallVocab *fuzz_vocab(unsigned kind)
{
    static SmallVocab *vocabs[6];
    kind %= 6;
    if (!vocabs[kind]) {
        vocabs[kind] = kind < 4 ? small_bpe((VocabPre)(kind + 1)) : small_sentencepiece(kind == 5);
        CHECK(small_build(vocabs[kind], NULL) == OK);
    }
    return vocabs[kind];
}

/* The ids in memory of exactly the promised sizes, to be freed. */
static uint32_t *fuzz_encode(const Tokenizer *t, const uint8_t *text, size_t bytes, unsigned flags,
                             size_t *count)
{
    size_t room = tokenizer_scratch_bytes(t, bytes), ids_max = tokenizer_ids_max(t, bytes);
    void *memory = malloc(room);
    uint32_t *ids = malloc(ids_max * sizeof *ids);
    Arena scratch = arena_make(memory, room);
    Why why = {{0}};
    CHECK(tokenizer_encode(t, text, bytes, flags, &scratch, ids, ids_max, count, &why) == OK);
    CHECK(scratch.used == 0);
    for (size_t i = 0; i < *count; i++) {
        CHECK(ids[i] < tokenizer_vocab(t)->tokens);
        bool bos = i == 0 && (flags & TOKENIZE_BOS);
        CHECK((flags & TOKENIZE_SPECIALS) || bos || !tokenizer_is_control(t, ids[i]) ||
              ids[i] == tokenizer_vocab(t)->unknown);
    }
    free(memory);
    return ids;
}

/* Byte-level BPE without NFC gives back every byte. */
static void fuzz_back(const Tokenizer *t, const uint32_t *ids, size_t count, const uint8_t *text,
                      size_t bytes)
{
    size_t at = 0, length;
    uint8_t piece[TOKENIZER_PIECE_BYTES_MAX];
    for (size_t i = 0; i < count; i++) {
        CHECK(tokenizer_piece(t, ids[i], true, piece, sizeof piece, &length, NULL) == OK);
        CHECK(length <= bytes - at && memcmp(piece, text + at, length) == 0);
        at += length;
    }
    CHECK(at == bytes);
}

static void fuzz_section(const uint8_t *section, size_t bytes)
{
    static const char text[] =
        "Hello  the world's 12345\r\n\xFF<s></s><|im_end|> e\xCC\x81\xCC\xA3 \xE2\x96\x81";
    Vocab vocab;
    Why why = {{0}};
    if (vocab_parse(section, bytes, &vocab, &why) != OK) return;
    size_t room = tokenizer_bytes(&vocab), count;
    void *memory = malloc(room);
    Arena arena = arena_make(memory, room);
    Tokenizer *t;
    Error error = tokenizer_build(&vocab, &arena, &t, &why);
    CHECK(error != ERR_MEMORY);
    if (error == OK) {
        free(fuzz_encode(t, (const uint8_t *)text, sizeof text - 1,
                         TOKENIZE_SPECIALS | TOKENIZE_BOS, &count));
        free(fuzz_encode(t, (const uint8_t *)text, sizeof text - 1, 0, &count));
        for (uint32_t id = 0; id < vocab.tokens; id++) {
            uint8_t piece[TOKENIZER_PIECE_BYTES_MAX];
            CHECK(tokenizer_piece(t, id, true, piece, sizeof piece, &count, &why) == OK);
        }
    }
    free(memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    if (length == 0) return 0;
    unsigned choice = bytes[0], kind = (choice & 7) % 6;
    if (choice & 0x80) {
        fuzz_section(bytes + 1, length - 1);
        return 0;
    }
    const Tokenizer *t = fuzz_vocab(kind)->tokenizer;
    unsigned flags = (choice & 8 ? TOKENIZE_SPECIALS : 0) | (choice & 16 ? TOKENIZE_BOS : 0);
    size_t count;
    uint32_t *ids = fuzz_encode(t, bytes + 1, length - 1, flags, &count);
    if (kind >= 1 && kind <= 3) fuzz_back(t, ids, count, bytes + 1, length - 1);
    free(ids);
    return 0;
}
