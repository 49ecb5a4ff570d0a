/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens that are matched as a whole, before anything else looks at the text: a trie over their bytes, children as a
 * linked list, the root's as a table. Matching from the left, the longest token wins. A search from one
 * place is as long as the longest special token at most (TOKENIZER_PIECE_BYTES_MAX). */
#include <string.h>

#include "text/tables.h"

/* Markers of turns and ends, which some files list as user-defined. They must never be made from a message's text. */
static const char *const MARKERS[] = {"<|im_start|>",
                                      "<|im_end|>",
                                      "<|endoftext|>",
                                      "<start_of_turn>",
                                      "<end_of_turn>",
                                      "<|start_header_id|>",
                                      "<|end_header_id|>",
                                      "<|eot_id|>",
                                      "<|eom_id|>",
                                      "<|begin_of_text|>",
                                      "<|end_of_text|>",
                                      "<bos>",
                                      "<eos>",
                                      "<s>",
                                      "</s>",
                                      "<pad>"};

static bool is_marker(const uint8_t *text, size_t bytes)
{
    for (size_t i = 0; i < sizeof MARKERS / sizeof *MARKERS; i++)
        if (strlen(MARKERS[i]) == bytes && memcmp(MARKERS[i], text, bytes) == 0) return true;
    return false;
}

bool specials_is_control(const Vocab *vocab, uint32_t id)
{
    VocabTokenType type = vocab_type(vocab, id);
    if (type == VOCAB_CONTROL || type == VOCAB_UNKNOWN) return true;
    if (type != VOCAB_USER_DEFINED) return false;
    uint32_t bytes;
    const uint8_t *text = vocab_token(vocab, id, &bytes);
    return is_marker(text, bytes);
}

static bool is_special(const Vocab *vocab, uint32_t id)
{
    VocabTokenType type = vocab_type(vocab, id);
    return type == VOCAB_CONTROL || type == VOCAB_UNKNOWN || type == VOCAB_USER_DEFINED;
}

/* An upper bound: no two tokens share a prefix. */
static size_t nodes_max(const Vocab *vocab)
{
    size_t nodes = 1;
    for (uint32_t id = 0; id < vocab->tokens; id++) {
        uint32_t bytes;
        if (!is_special(vocab, id)) continue;
        (void)vocab_token(vocab, id, &bytes);
        nodes += bytes;
    }
    return nodes;
}

size_t specials_bytes(const Vocab *vocab)
{
    return arena_bytes(nodes_max(vocab) * sizeof(SpecialNode));
}

static uint32_t child_of(const Tokenizer *t, uint32_t node, uint8_t byte)
{
    if (node == 0) return t->root_child[byte];
    uint32_t child = t->nodes[node].child;
    while (child && t->nodes[child].byte != byte) child = t->nodes[child].sibling;
    return child;
}

static uint32_t add_child(Tokenizer *t, uint32_t node, uint8_t byte)
{
    uint32_t child = t->node_count++;
    t->nodes[child] = (SpecialNode){0, t->nodes[node].child, VOCAB_NO_TOKEN, byte};
    t->nodes[node].child = child;
    if (node == 0) t->root_child[byte] = child;
    return child;
}

static void add_special(Tokenizer *t, uint32_t id)
{
    uint32_t bytes, node = 0;
    const uint8_t *text = vocab_token(t->vocab, id, &bytes);
    for (uint32_t i = 0; i < bytes; i++) {
        uint32_t child = child_of(t, node, text[i]);
        node = child ? child : add_child(t, node, text[i]);
    }
    if (node && t->nodes[node].id == VOCAB_NO_TOKEN) t->nodes[node].id = id;
}

Error specials_build(Tokenizer *t, Arena *arena, Why *why)
{
    t->nodes = ARENA_NEW(arena, SpecialNode, nodes_max(t->vocab));
    if (!t->nodes) return error_why(why, ERR_MEMORY, "no room for the vocabulary's special tokens");
    t->nodes[0].id = VOCAB_NO_TOKEN;
    t->node_count = 1;
    for (uint32_t id = 0; id < t->vocab->tokens; id++)
        if (is_special(t->vocab, id)) add_special(t, id);
    return OK;
}

size_t specials_match(const Tokenizer *t, const uint8_t *text, size_t bytes, bool control,
                      uint32_t *id)
{
    size_t matched = 0;
    uint32_t node = 0;
    for (size_t i = 0; i < bytes && (node = child_of(t, node, text[i])) != 0; i++) {
        uint32_t found = t->nodes[node].id;
        if (found == VOCAB_NO_TOKEN || (!control && specials_is_control(t->vocab, found))) continue;
        *id = found;
        matched = i + 1;
    }
    return matched;
}
