/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts text into the words inside which byte-level BPE merges: what the models' published regular
 * expressions match, as scanners written by hand. Linear in the text, constant stack, no state between words. */
#ifndef COBORD_TEXT_PRETOKENIZE_H
#define COBORD_TEXT_PRETOKENIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "knot/vocab.h"

bool pretokenize_knows(VocabPre pre);

/* The end of the word that begins at `at` < bytes; always greater than `at`. A byte that is no character counts as a
 * symbol: neither letter, number nor space. */
size_t pretokenize_word(VocabPre pre, const uint8_t *text, size_t bytes, size_t at);

#endif
