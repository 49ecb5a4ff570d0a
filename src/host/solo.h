/* SPDX-License-Identifier: Apache-2.0 */
/* One conversation that has an engine for itself: text or turns to ids, ids to an answer in pieces. What `cobord run`
 * and the library do alike.
 *
 *   solo_text_ids, solo_turns_ids --> ids --> solo_start --> solo_next, solo_next, ... --> an end
 *
 * Each answer is asked for with the whole conversation; what the engine said or was told before, and which the new
 * ids begin with, is not computed again. Slot 0 is used.
 * Thread  one at a time; the functions that only make ids may run beside it. */
#ifndef COBORD_HOST_SOLO_H
#define COBORD_HOST_SOLO_H

#include "host/engine.h"
#include "text/chat.h"
#include "text/detokenizer.h"

typedef enum SoloEnd {
    SOLO_GOES_ON,
    SOLO_END_TOKEN,  /* the model ended its answer */
    SOLO_END_STOP,   /* a stop string came */
    SOLO_END_TOKENS, /* as many as were asked for */
    SOLO_END_CONTEXT /* the context is full */
} SoloEnd;

typedef struct Solo {
    const OpenModel *model;
    Engine *engine; /* NULL: ids only */
    Chat chat;
    void *chat_memory;
    /* The answer under way. */
    Detokenizer detokenizer;
    const uint32_t *ids; /* of the step before, not yet shown */
    uint32_t id_count;
    SoloEnd end;
    bool flushed;
    void (*reading)(void *context, uint32_t tokens);
    void *context;
    uint8_t text[DETOKENIZER_OUT_BYTES_MAX + 1];
} Solo;

/* Chooses how conversations become ids; chat.fault then says why the model's template is not used, if so. The
 * model has its tokenizer. Owner  model and engine outlive it; solo_close. Errors  ERR_MEMORY. */
MUST_CHECK Error solo_open(Solo *s, const OpenModel *model, Engine *engine, Why *why);
void solo_close(Solo *s);

/* The ids of a text as it stands; flags of tokenizer.h. `room`: bytes that tokenizing may take, 0: any number.
 * Owner  the caller frees *ids. Errors  ERR_MEMORY (more than `room`), those of tokenizer_encode. */
MUST_CHECK Error solo_text_ids(const Solo *s, const uint8_t *text, size_t bytes, unsigned flags,
                               uint64_t room, uint32_t **ids, size_t *count, Why *why);
/* The ids of a conversation and the opening of the answer; `turns->now_s` is set by this. A model without a way to
 * chat gets the text of the last turn. Errors  as above, those of chat.h. */
MUST_CHECK Error solo_turns_ids(const Solo *s, ChatTurns turns, uint64_t room, uint32_t **ids,
                                size_t *count, Why *why);

typedef struct SoloRequest {
    const uint32_t *ids; /* the whole conversation */
    size_t count;
    uint32_t tokens_max; /* UINT32_MAX: as many as the context holds */
    const SamplerParams *params;
    const char *const *stops; /* they stay while the answer is under way */
    size_t stop_count;
    GrammarMask *mask; /* or NULL */
    /* While the first token is awaited, after each frame: how many tokens are read. Or NULL. */
    void (*reading)(void *context, uint32_t tokens);
    void *context;
} SoloRequest;

/* Begins an answer. Out  *kept: how many of the ids need not be computed again.
 * Errors  ERR_CAPACITY (longer than the context), ERR_RANGE, ERR_USAGE (no ids). */
MUST_CHECK Error solo_start(Solo *s, const SoloRequest *request, uint32_t *kept, Why *why);

enum { SOLO_NO_ID = UINT32_MAX };

typedef struct SoloPiece {
    const uint8_t *text; /* whole characters, with a NUL behind them; valid until the next call */
    size_t bytes;        /* may be 0: held back, or a token without text */
    uint32_t id;         /* SOLO_NO_ID: text that was held back, at the end */
    SoloEnd end;         /* of the answer, with its last piece */
} SoloPiece;

/* The next token's piece. After an error, or when no more is wanted: solo_stop. */
MUST_CHECK Error solo_next(Solo *s, SoloPiece *out, Why *why);
void solo_stop(Solo *s);

#endif
