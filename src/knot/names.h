/* SPDX-License-Identifier: Apache-2.0 */
/* A set of byte strings that are owned elsewhere, by hash: finding a duplicate among n names costs
 * O(n) for all. */
#ifndef COBORD_KNOT_NAMES_H
#define COBORD_KNOT_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"

#define NAMES_NONE UINT32_MAX

typedef struct NamesEntry {
    const uint8_t *text;
    uint32_t bytes;
    uint32_t value;
} NamesEntry;

typedef struct Names {
    NamesEntry *slots; /* text NULL: empty */
    uint32_t mask, room, count;
} Names;

size_t names_bytes(uint32_t room);
/* For at most `room` names, at most 2^30. Errors  ERR_MEMORY. */
MUST_CHECK Error names_make(Names *out, uint32_t room, Arena *arena, Why *why);

/* The value kept with a name, NAMES_NONE when it is not there. */
uint32_t names_find(const Names *names, const void *text, size_t bytes);

/* Puts a name with its value; false when it is there already (its value stays). Owner  borrows
 * `text`. */
bool names_put(Names *names, const void *text, size_t bytes, uint32_t value);

#endif
