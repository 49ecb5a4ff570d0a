/* SPDX-License-Identifier: Apache-2.0 */
/* Unicode normalization form C over byte strings that may not be UTF-8 everywhere: bytes that are no character pass
 * through as they are, and nothing composes across them. Source  UAX #15. */
#ifndef COBORD_TEXT_NFC_H
#define COBORD_TEXT_NFC_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/error.h"

/* True when no character of the text needs a second look: it is in NFC. False decides nothing. */
bool nfc_is_plain(const uint8_t *text, size_t bytes);

enum { NFC_GROWTH_MAX = 3 }; /* U+1D160: 4 bytes become 12 */

/* Scratch that nfc_normalize takes on top of its result. */
size_t nfc_scratch_bytes(size_t bytes);

/* Writes the normal form to out[NFC_GROWTH_MAX * bytes]. The scratch is released again. Errors  ERR_MEMORY. */
MUST_CHECK Error nfc_normalize(const uint8_t *text, size_t bytes, Arena *scratch, uint8_t *out,
                               size_t *out_bytes, Why *why);

#endif
