/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the library share. The interface is include/cobord/cobord.h. */
#ifndef COBORD_LIBRARY_LIBRARY_H
#define COBORD_LIBRARY_LIBRARY_H

#include <stdatomic.h>
#include <stdbool.h>

#include "cobord/cobord.h"
#include "host/engine.h"
#include "host/solo.h"

enum { LIBRARY_MESSAGES_MAX = 1 << 16 };

struct cobord_model {
    OpenModel open;
    Engine *engine; /* NULL: the tokenizer only */
    Solo solo;
    atomic_bool busy, cancelled;
    /* The vocabulary's tree, made for the first answer with a form; of the generation that runs. */
    GrammarVocab vocab;
    void *vocab_memory;
};

/* The sentence of this thread's last failure becomes that of `error`; returns its number. OK changes nothing. */
int library_result(Error error, const Why *why);

/* Copies what the caller's struct of given[0 .. size) has over `known` bytes of defaults, its size included.
 * Errors  ERR_USAGE: too small to be one, or something that this library does not know is not 0. */
MUST_CHECK Error library_take(const void *given, size_t size, void *defaults, size_t known,
                              const char *name, Why *why);

/* ---- Answers with a form. */

typedef struct LibraryForm {
    void *grammar_memory, *mask_memory;
    Grammar grammar;
    GrammarMask *mask; /* NULL: any text */
} LibraryForm;

/* Owner  library_form_free, also after an error. Errors  those of schema.h and grammar.h, ERR_USAGE. */
MUST_CHECK Error library_form_make(cobord_model *m, const cobord_settings *settings,
                                   LibraryForm *out, Why *why);
void library_form_free(LibraryForm *form);

#endif
