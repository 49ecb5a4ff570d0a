/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a Grammar over bytes. A state is everything that may still come: a set of places in the program, each with a
 * stack of the calls and rounds it is in. Places and stacks are nodes that are kept once each:
 *
 *   node   {instruction, round, node below}      a stack is its top node; node 0 is the bottom
 *   state  a set of nodes at RANGE or SET instructions, and whether the text may end here
 *   row    per class of bytes the next state, found when it is asked for and then remembered
 *
 * So a text that was seen before costs one look-up a byte. All of it is bounded: when a pool is full, everything but
 * the current state is forgotten. Numbers of states are valid until grammar_machine_forget.
 *
 * A stack deeper than GRAMMAR_STACK_MAX, or a step that would lead to more than GRAMMAR_PLACES_MAX places, is not
 * taken: that way is closed, and what is let through is always a beginning of the grammar's language. */
#ifndef COBORD_TEXT_GRAMMAR_MACHINE_H
#define COBORD_TEXT_GRAMMAR_MACHINE_H

#include "text/grammar.h"

enum { GRAMMAR_STACK_MAX = 1024, GRAMMAR_PLACES_MAX = 2048 };

/* A state's number. */
enum { GRAMMAR_UNKNOWN, GRAMMAR_DEAD, GRAMMAR_FIRST_STATE };

typedef struct GrammarMachine GrammarMachine;

typedef struct GrammarLimits {
    uint32_t nodes, states, places; /* places: of all states together */
} GrammarLimits;
GrammarLimits grammar_machine_limits(void); /* about 1 MB for a usual grammar */

/* Owner  the grammar outlives it. Errors  ERR_MEMORY, ERR_CAPACITY (the start alone exceeds the limits). */
size_t grammar_machine_bytes(const Grammar *g, const GrammarLimits *limits);
MUST_CHECK Error grammar_machine_build(const Grammar *g, const GrammarLimits *limits, Arena *arena,
                                       GrammarMachine **out, Why *why);

void grammar_machine_restart(GrammarMachine *m);
uint32_t grammar_machine_state(const GrammarMachine *m); /* the current one */
/* Takes a byte from the current state. false: it may not follow, nothing has changed. */
bool grammar_machine_take(GrammarMachine *m, uint8_t byte);
/* The text so far may be the whole text; nothing may follow it. */
bool grammar_machine_may_end(const GrammarMachine *m, uint32_t state);
bool grammar_machine_must_end(const GrammarMachine *m, uint32_t state);

/* The state behind `byte`: GRAMMAR_DEAD when it may not follow, GRAMMAR_UNKNOWN when a pool is full: then
 * grammar_machine_forget, and start over from the current state. */
uint32_t grammar_machine_next(GrammarMachine *m, uint32_t state, uint8_t byte);
/* States of one kind take the same texts of up to `reach` bytes: they differ only in rounds that are that far from a
 * count's bounds. Numbers of kinds outlive grammar_machine_forget. Result  0: not known. */
uint64_t grammar_machine_kind(const GrammarMachine *m, uint32_t state, uint32_t reach);
/* Forgets all states but the current one, whose number changes. */
void grammar_machine_forget(GrammarMachine *m);
/* How often that was. */
uint32_t grammar_machine_epoch(const GrammarMachine *m);
/* Places visited since it was built: what its work costs. */
uint64_t grammar_machine_visits(const GrammarMachine *m);

#endif
