/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for a model's way to chat, chosen once (text/chat.h): of the server, and of who answers alone. */
#ifndef COBORD_SERVE_CHAT_MEMORY_H
#define COBORD_SERVE_CHAT_MEMORY_H

#include "text/chat.h"

/* Chooses between the model's template and the built-in turns.
 * Owner  *memory, which *out lies in, is the caller's: free(), also after an error. Errors  ERR_MEMORY. */
MUST_CHECK Error chat_memory_make(const Tokenizer *tokenizer, Chat *out, void **memory, Why *why);

#endif
