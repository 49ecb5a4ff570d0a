/* SPDX-License-Identifier: Apache-2.0 */
/* From GGUF's tokenizer keys to a knot's tokenizer section (knot/vocab.h): strings are read once
 * more, in order, through a window; merges become ids. */
#ifndef COBORD_KNOT_GGUF_VOCAB_H
#define COBORD_KNOT_GGUF_VOCAB_H

#include "knot/gguf.h"
#include "knot/vocab.h"

/* The section, in `arena`; what was only needed to make it is taken from the same arena and given
 * back. Errors  ERR_UNSUPPORTED (tokenizer model or pre-tokenizer, named), ERR_FORMAT (no
 * tokenizer; a merge of unknown pieces), ERR_TYPE, ERR_RANGE, ERR_MEMORY. */
MUST_CHECK Error gguf_vocab_build(const Gguf *gguf, Arena *arena, uint8_t **section,
                                  size_t *section_bytes, Why *why);

#endif
