/* SPDX-License-Identifier: Apache-2.0 */
/* Answers as clients read them: whole objects, and the events of a stream. Each path's shapes are a dialect, a table of
 * functions (answer_state.h); who answers calls these and need not know which it is.
 *
 *   whole    answer_begin - answer_choice for each - answer_end
 *   stream   answer_write_role, a choice each - answer_write_piece ... - answer_write_finish, each - answer_write_end
 *   fault    answer_write_fault, and the stream ends
 *
 * Each answer has a head of its own, which the calls may keep count in. */
#ifndef COBORD_API_ANSWER_H
#define COBORD_API_ANSWER_H

#include "api/refusal.h"
#include "model/sampler.h"
#include "text/tokenizer.h"

enum {
    ANSWER_CHOICES_MAX = 8,
    ANSWER_ID_BYTES = 48,
    /* Of text, of each call beside its arguments: JSON_WRITER_GROWTH comes on top. */
    ANSWER_TOOL_BYTES = 64,
    ANSWER_EVENT_BYTES = 1024, /* of an event without its text, scores and hops */
    ANSWER_TOPS_MAX = 20,
    ANSWER_HOP_BYTES = 640
};

typedef enum AnswerFinish {
    ANSWER_GOES_ON,
    ANSWER_STOP,
    ANSWER_LENGTH,
    ANSWER_TOOLS /* the model calls tools */
} AnswerFinish;

typedef enum AnswerDialect {
    ANSWER_COMPLETION,
    ANSWER_CHAT,
    ANSWER_RESPONSES,
    ANSWER_OLLAMA_CHAT,
    ANSWER_OLLAMA_GENERATE,
    ANSWER_EMBEDDINGS,
    ANSWER_DIALECTS
} AnswerDialect;

typedef struct AnswerHead {
    AnswerDialect dialect;
    char id[ANSWER_ID_BYTES];
    uint64_t created_s;
    const char *model;
    bool stream_usage; /* events carry "usage":null until the last */
    bool degraded;     /* "degraded":true from here on: rows of a lost shard were taken as zeros */
    bool resumable;    /* events carry ids: how far each choice is with the event, in tokens */
    uint32_t choices, places[ANSWER_CHOICES_MAX];
    const Tokenizer *tokenizer; /* of scores: what their tokens are called */
    bool base64;                /* embeddings */
    const char *echo;           /* members that repeat the request, each with a comma in front */
    size_t echo_bytes;
    /* The dialect's own count. */
    uint64_t sequence;
    AnswerFinish finish; /* of the choice that was written last */
} AnswerHead;

/* A call of a tool, or what an event brings of it: its name only the first. */
typedef struct AnswerTool {
    uint32_t index; /* among the choice's calls */
    const uint8_t *name;
    size_t name_bytes;        /* 0: the call goes on */
    const uint8_t *arguments; /* JSON text */
    size_t bytes;
} AnswerTool;

/* What a token was worth. */
typedef struct AnswerScore {
    uint32_t token;
    float logprob;
    bool unscored;   /* a prompt's first token */
    uint64_t offset; /* characters of the choice's text in front of it */
    uint32_t top_count;
    SamplerCandidate top[ANSWER_TOPS_MAX]; /* `logit` is the log-probability */
} AnswerScore;

/* What one event carries, or one choice of a whole answer. */
typedef struct AnswerPiece {
    const uint8_t *text; /* of an embedding: float32, little-endian */
    size_t bytes;
    const AnswerTool *tools;
    uint32_t tool_count;
    /* Of the tokens that the text begins or goes on with; NULL: not wanted. */
    const AnswerScore *scores;
    uint32_t score_count;
} AnswerPiece;

/* What an answer has cost at one node. A call's time counts in full for every answer that had rows in it, its bytes by
 * their share of the rows. */
typedef struct AnswerHop {
    const char *node;
    uint64_t calls, us, bytes_sent, bytes_received;
} AnswerHop;

typedef struct AnswerUsage {
    uint64_t prompt, cached, completion; /* tokens; cached: of the prompt, not computed again */
    uint64_t total_ns, wait_ns, prompt_ns, completion_ns; /* wait: for a slot */
    const AnswerHop *hops;                                /* NULL: not wanted */
    uint32_t hop_count;
} AnswerUsage;

/* The id of an answer, made of 128 random bits: no other has them, and nobody guesses them. */
void answer_make_id(AnswerHead *head, const uint64_t number[2]);

/* ---- Streams ---- */

const char *answer_stream_type(AnswerDialect dialect);
/* What is written into a stream that is silent; NULL: the dialect has nothing of the kind. A literal. */
const char *answer_comment(AnswerDialect dialect);
/* Whether its events can have ids, so that a stream can go on. */
bool answer_has_places(AnswerDialect dialect);
/* Whether a stream's last events say the whole text again: `whole` of answer_write_end. */
bool answer_repeats(AnswerDialect dialect);
/* Suffices for a whole answer whose texts have so many bytes, for all that is written in front of a stream's first
 * piece (no text), and for its end (the text of `whole`). ANSWER_EVENT_BYTES and JSON_WRITER_GROWTH for each byte of
 * text suffice for any other event; scores need answer_scores_bytes besides, hops ANSWER_HOP_BYTES each. */
size_t answer_bytes(const AnswerHead *head, size_t text_bytes);
size_t answer_scores_bytes(const AnswerHead *head, const AnswerScore *scores, uint32_t count);

/* In front of a choice's first piece. Nothing in some dialects. */
void answer_write_role(AnswerHead *head, JsonWriter *w, uint32_t index);
void answer_write_piece(AnswerHead *head, JsonWriter *w, uint32_t index, const AnswerPiece *piece);
void answer_write_finish(AnswerHead *head, JsonWriter *w, uint32_t index, AnswerFinish finish);
/* After all choices. `whole` is the first choice again, when the dialect repeats, else NULL. */
void answer_write_end(AnswerHead *head, JsonWriter *w, const AnswerPiece *whole,
                      const AnswerUsage *usage);
void answer_write_fault(AnswerHead *head, JsonWriter *w, const Refusal *refusal);

/* ---- Where a stream can go on: the id of the event to come, and of the last that a client got (Last-Event-ID).
 *
 *   id: chatcmpl-0123456789abcdef0123456789abcdef:12,9      after 12 tokens of the first choice and 9 of the second
 */

typedef struct AnswerPlace {
    char id[ANSWER_ID_BYTES];
    uint32_t count, tokens[ANSWER_CHOICES_MAX];
} AnswerPlace;

/* Result  false: no id of ours. */
bool answer_read_place(const char *text, AnswerPlace *out);

/* ---- Whole answers: begin, each choice in order, end ---- */

void answer_begin(AnswerHead *head, JsonWriter *w);
void answer_choice(AnswerHead *head, JsonWriter *w, uint32_t index, const AnswerPiece *piece,
                   AnswerFinish finish);
void answer_end(AnswerHead *head, JsonWriter *w, const AnswerUsage *usage);

/* The sums of hidden states, scaled to length 1, as the text of an embedding's piece. Shapes  out[4 * count].
 * Result  false: not finite. */
bool answer_embed(const double *sums, uint32_t count, uint8_t *out);

/* ---- Other bodies ---- */

/* One model, or the list of one. */
void answer_model(JsonWriter *w, const char *model, uint64_t created_s, uint32_t context,
                  uint32_t hidden);
void answer_models(JsonWriter *w, const char *model, uint64_t created_s, uint32_t context,
                   uint32_t hidden);
/* {"ids":[...],"tokens":[...],"count":N}; ANSWER_ID_DIGITS per id and ANSWER_EVENT_BYTES suffice. */
enum { ANSWER_ID_DIGITS = 2 * 11 };
void answer_ids(JsonWriter *w, const uint32_t *ids, size_t count);
/* {"prompt":"..."} */
void answer_prompt(JsonWriter *w, const uint8_t *text, size_t bytes);
void answer_detokenized(JsonWriter *w, const uint8_t *text, size_t bytes);

#endif
