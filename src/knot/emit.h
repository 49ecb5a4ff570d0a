/* SPDX-License-Identifier: Apache-2.0 */
/* Writes JSON text into a buffer of fixed size. What does not fit is dropped and remembered: ask
 * emit_fits at the end. */
#ifndef COBORD_KNOT_EMIT_H
#define COBORD_KNOT_EMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Emit {
    char *out;
    size_t room, used;
    bool cut;
} Emit;

static inline Emit emit_make(void *out, size_t room) { return (Emit){out, room, 0, false}; }
static inline bool emit_fits(const Emit *e) { return !e->cut; }

void emit_text(Emit *e, const char *text);
void emit_u64(Emit *e, uint64_t value);
/* 16 digits, lower case. */
void emit_hex64(Emit *e, uint64_t value);
/* The shortest decimal that reads back as the same double, and so as the same float. Finite numbers
 * only. */
void emit_f32(Emit *e, float value);
/* In quotes; control characters, quotes and backslashes escaped. `text` is UTF-8. */
void emit_string(Emit *e, const char *text);

#endif
