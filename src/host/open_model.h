/* SPDX-License-Identifier: Apache-2.0 */
/* From what a person calls a model to an open knot with its hyper-parameters and its tokenizer. */
#ifndef COBORD_HOST_OPEN_MODEL_H
#define COBORD_HOST_OPEN_MODEL_H

#include "host/knot_file.h"
#include "host/tell.h"
#include "model/hyper.h"
#include "text/tokenizer.h"

typedef struct OpenModel {
    char path[4096];
    KnotFile file;
    Hyper hyper;
    Vocab vocab;
    Tokenizer *tokenizer; /* NULL when it was not asked for */
    void *memory, *vocab_memory;
    bool borrowed; /* the file is somebody else's */
} OpenModel;

enum {
    MODEL_TOKENIZER = 1, /* an error when the file has none (version 1) */
    MODEL_WEIGHTS = 2    /* check the file's hashes, once per file */
};

/* `model`: a zoo name, a knot, a GGUF file (encoded once into the cache). Progress of encoding and
 * checking to `tell`.
 * Errors  those of locate, knot_file and tokenizer; the Why names the file. Owner  open_model_close. */
MUST_CHECK Error open_model_open(const char *model, unsigned what, const Tell *tell, OpenModel *out,
                                 Why *why);
/* The same of a file that is open already. Owner  the file outlives it; open_model_close. */
MUST_CHECK Error open_model_borrow(const KnotFile *file, unsigned what, OpenModel *out, Why *why);
void open_model_close(OpenModel *model);

#endif
