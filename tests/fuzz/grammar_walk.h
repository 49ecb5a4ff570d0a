/* SPDX-License-Identifier: Apache-2.0 */
/* A walk through a grammar's machine by a seed, which comes to an end more often than not. */
#ifndef COBORD_TESTS_GRAMMAR_WALK_H
#define COBORD_TESTS_GRAMMAR_WALK_H

#include "text/grammar_machine.h"

enum { WALK_STEPS_MAX = 400, WALK_VISITS_MAX = 1 << 20 };

static inline uint32_t walk_draw(uint64_t *seed, uint32_t below)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % below;
}

/* A walk of at most WALK_STEPS_MAX bytes, which prefers to close and gives up where it would take seconds. Result  its
 * bytes when it came to an end, else 0. */
static inline size_t walk_to_end(GrammarMachine *m, uint64_t *seed, uint8_t *out)
{
    static const char closing[] = "\"}]0e";
    for (size_t bytes = 0; bytes < WALK_STEPS_MAX; bytes++) {
        if (grammar_machine_may_end(m, grammar_machine_state(m)) && walk_draw(seed, 3))
            return bytes;
        if (grammar_machine_visits(m) > WALK_VISITS_MAX) return 0;
        uint32_t start = walk_draw(seed, 256), tried = 0;
        uint8_t byte = walk_draw(seed, 2) ? (uint8_t)closing[walk_draw(seed, 5)] : (uint8_t)start;
        bool taken = grammar_machine_take(m, byte);
        while (!taken && tried < 256) {
            byte = (uint8_t)(start + tried++);
            taken = grammar_machine_take(m, byte);
        }
        if (!taken) {
            /* Only what nests too deep, or branches too much, may end like this; neither is done with few visits. */
            ASSERT(grammar_machine_may_end(m, grammar_machine_state(m)) ||
                   grammar_machine_visits(m) > 10000);
            return 0;
        }
        out[bytes] = byte;
    }
    return 0;
}

#endif
