/* SPDX-License-Identifier: Apache-2.0 */
/* What somebody probably meant who wrote a name that is none: verbs, flags, models. */
#ifndef COBORD_HOST_NEAR_H
#define COBORD_HOST_NEAR_H

#include <stddef.h>

enum { NEAR_NAME_BYTES = 64, NEAR_FAR = 1000 };

/* How far `written` is from `name`: 0 equal, 1 a beginning of it, else one more than the letters that were dropped,
 * added, changed or swapped with their neighbour. NEAR_FAR: another word, or one of them has more than 63 bytes. */
unsigned near_distance(const char *written, const char *name);

/* The model of the zoo that was probably meant, NULL: none. Another program's spelling counts as ours: case, dashes,
 * colons and dots make no difference, nor do "instruct", "latest" and "q4_k_m": "qwen2.5-coder:1.5b",
 * "gemma3:270m", "Qwen2.5-Coder-0.5B-Instruct". */
const char *near_model(const char *written);

#endif
