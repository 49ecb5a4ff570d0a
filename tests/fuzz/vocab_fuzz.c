/* SPDX-License-Identifier: Apache-2.0 */
/* A tokenizer section from outside; every accessor over everything that was accepted. */
#include "knot/vocab.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Vocab v;
    Why why;
    volatile uint32_t sum = 0;
    if (vocab_parse(data, size, &v, &why) != OK) return 0;
    for (uint32_t i = 0; i < v.tokens; i++) {
        uint32_t bytes = 0;
        const uint8_t *text = vocab_token(&v, i, &bytes);
        for (uint32_t n = 0; n < bytes; n++) sum += text[n];
        sum += (uint32_t)vocab_type(&v, i) + (vocab_score(&v, i) > 0.0f);
    }
    for (uint32_t i = 0; i < v.merges; i++) sum += vocab_merge(&v, i).merged;
    for (uint32_t i = 0; i < v.chat_template_bytes; i++) sum += v.chat_template[i];
    return 0;
}
