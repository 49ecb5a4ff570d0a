/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/chat_memory.h"

#include <stdlib.h>

Error chat_memory_make(const Tokenizer *tokenizer, Chat *out, void **memory, Why *why)
{
    size_t bytes = chat_bytes(tokenizer), probe_bytes = chat_probe_bytes(tokenizer);
    void *probe_memory = malloc(probe_bytes);
    *memory = malloc(bytes);
    bool enough = *memory && probe_memory;
    if (enough) {
        Arena arena = arena_make(*memory, bytes), probe = arena_make(probe_memory, probe_bytes);
        chat_make(tokenizer, &arena, &probe, out);
    }
    free(probe_memory);
    return enough && out->tokenizer ? OK
                                    : error_why(why, ERR_MEMORY, "no memory for the chat template");
}
