/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the server share: jobs, counters, and who may touch what. */
#ifndef COBORD_SERVE_SERVE_STATE_H
#define COBORD_SERVE_SERVE_STATE_H

#include <stdatomic.h>

#include "api/answer.h"
#include "api/answer_ollama.h"
#include "api/metrics.h"
#include "api/request.h"
#include "serve/exchange.h"
#include "serve/machine.h"
#include "serve/serve.h"
#include "serve/serve_keys.h"
#include "text/chat.h"
#include "text/grammar_mask.h"

enum {
    /* Waiting for the reader: the answer pauses above. */
    SERVE_STREAM_PAUSE_BYTES = 512 << 10,
    SERVE_PAUSE_S_MAX = 60,
    SERVE_IDLE_COMMENT_S = 10,
    /* A node that starts again is waited for so long before requests are refused. */
    SERVE_PATIENCE_S = 5,
    SERVE_EVENT_BYTES = JSON_WRITER_GROWTH * DETOKENIZER_OUT_BYTES_MAX + 2 * ANSWER_EVENT_BYTES
};

typedef enum ServeAnswerState {
    SERVE_QUEUED,
    SERVE_RUNNING,
    SERVE_PAUSED,
    SERVE_DONE
} ServeAnswerState;

/* Places in ids of events count the tokens of an answer; behind the last come text that was held, and the finish. */
enum { SERVE_PLACE_HELD = 1, SERVE_PLACE_FINISH = 2 };

enum {
    SERVE_ROUTES_MAX = 32,
    SERVE_HOPS_MAX = 1025, /* a cluster's nodes */
    SERVE_SAID_MAX = 4096  /* entries of a prompt's scores in a stream */
};

typedef struct ServeJob ServeJob;
typedef struct ServeScores ServeScores;
typedef struct ServeTools ServeTools;

typedef struct ServeAnswer {
    ServeJob *job;
    uint32_t index;
    const uint32_t *ids; /* the prompt, and what the journal has of the answer */
    uint32_t count, journaled;
    bool shares_prompt; /* with the answer before: it is counted once */
    uint32_t sent;      /* place up to which a resumed stream's client has everything */
    SamplerParams params;
    ServeAnswerState state;
    uint32_t slot, cached, generated;
    ServeScores *scores;    /* NULL: not wanted */
    uint32_t scored;        /* of a whole answer: how many of them are the text's */
    uint32_t places_before; /* events that say the prompt */
    bool waits;             /* in the queue: for what another answer computes */
    uint32_t place;         /* in ids of events */
    AnswerFinish finish;
    Detokenizer detokenizer;
    GrammarMask *mask; /* of an answer that must have a form, while it has a slot */
    void *mask_memory;
    size_t mask_bytes;
    ServeTools *tools; /* its text may have calls of tools; NULL: it is what it is */
    char *text;        /* when the whole answer goes out at once */
    size_t text_bytes, text_room;
    uint64_t queued_ns, started_ns, first_ns, paused_ns; /* first: of a token; 0: not yet */
    struct ServeAnswer *next;                            /* of the queue */
} ServeAnswer;

/* Made by an intake thread; afterwards the engine thread's alone, but for `gone`. */
struct ServeJob {
    HttpExchange *x;
    ServeKey *key; /* whose request it is; NULL: there are no keys */
    AnswerHead head;
    bool stream, journaled;
    char journal_name[JOURNAL_NAME_BYTES];
    bool scores, says_prompt, pools; /* what is wanted beside, in front, or instead of text */
    uint32_t tops;
    AnswerHop *hops; /* [SERVE_HOPS_MAX] of the usage; NULL: not wanted */
    uint32_t hop_count;
    uint32_t tokens_max;
    uint32_t answer_count, done_count;
    uint32_t running;       /* answers that have a slot */
    void *memory;           /* ids, bias and stop strings */
    const char *form_param; /* the field that says which form its answers have */
    Grammar grammar;
    void *grammar_memory; /* NULL: any */
    size_t grammar_bytes;
    char *echo; /* the head's */
    ServeAnswer answers[];
};

/* Counters of /metrics; thread  any. */
typedef struct ServeFigures {
    atomic_ullong requests, refused, failed, gone, answers, prompt_tokens, cached_tokens,
        generated_tokens;
    atomic_ullong drafts, drafts_right;
    atomic_ullong steps, step_ms, wait_ms, paused, degraded;
    atomic_uint active, waiting;
    atomic_ullong statuses[6]; /* none, 1xx .. 5xx */
    atomic_ullong refusals[REFUSAL_LAST + 1];
    MetricsTimes requests_time[SERVE_ROUTES_MAX], first_time, token_time, wait_time;
} ServeFigures;

enum { SERVE_PLACE_BYTES = 160 };
typedef struct ServeIntake {
    HttpExchange *x;
    ServeKey *key;
    char place[SERVE_PLACE_BYTES]; /* Last-Event-ID; "": a new request */
    struct ServeIntake *next;
} ServeIntake;

struct Serve {
    ServeOptions options;
    uint64_t created_s;
    Chat chat;
    void *chat_memory;
    ServeFigures figures;
    atomic_size_t form_bytes; /* that answers with a form have, of form_bytes_max */
    atomic_uint admitted;     /* answers that are queued or have a slot */
    atomic_ullong pace_ns;    /* from one answer's end to the next while others wait; 0: unknown */
    atomic_bool draining;
    atomic_ullong unready_ns; /* since when the engine is not ready; 0: it is */
    atomic_ullong serial;
    MachineLock *form_lock; /* of making forms */
    void *vocab_memory;     /* NULL: no answer has needed a form yet; set once */
    size_t vocab_bytes;
    GrammarVocab vocab;
    MachineLock *keys_lock; /* of: */
    ServeKeys *keys;        /* NULL: everybody may do everything */
    MachineLock *lock;      /* of these: */
    ServeIntake *intake_first, *intake_last;
    ServeAnswer *arrived_first, *arrived_last;
    /* the engine thread's */
    ServeAnswer *queue_first, *queue_last;
    ServeAnswer **slots;
    uint64_t *slot_used; /* when, as a count of answers */
    bool *slot_forget;   /* as soon as no frame under way has rows of it */
    uint64_t answer_serial;
    uint64_t freed_ns; /* when a slot came free while others waited; 0: nobody waited */
    char *event; /* [SERVE_EVENT_BYTES] */
};

/* serve.c */
/* A line of the log: serve_say(why, format, ...), the format is error_why's. `why` is put behind it; it may be NULL. */
#define serve_say(why, ...)                                            \
    do {                                                               \
        Why line_;                                                     \
        if (error_why(&line_, OK, __VA_ARGS__) == OK)                  \
            machine_log(&(LogEntry){.level = LOG_INFO,                 \
                                    .event = "note",                   \
                                    .message = line_.text,             \
                                    .detail = serve_say_detail(why)}); \
    } while (0)
static inline const char *serve_say_detail(const Why *why) { return why ? why->text : NULL; }
/* Sends a refusal as the whole answer. */
void serve_refuse(Serve *s, HttpExchange *x, const Refusal *refusal);
/* What Ollama's clients hear about the model. */
AnswerOllamaModel serve_ollama_model(const Serve *s);
void serve_reply_json(HttpExchange *x, const JsonWriter *w);

/* Whether the engine can answer; `why` says what is missing. Thread  any. */
bool serve_ready(const Serve *s, Why *why);

/* serve_log.c */
/* Its id and its span; the answer gets the id. Thread  HTTP, when its head has come. */
void serve_log_begin(HttpExchange *x);
void serve_log_refused(Serve *s, HttpExchange *x, const Refusal *refusal);
void serve_log_usage(const ServeJob *job, const AnswerUsage *usage);

/* serve_metrics.c */
void serve_metrics_reply(Serve *s, HttpExchange *x);
/* A request is over; an answer had its first token, its last. */
void serve_metrics_request(Serve *s, const HttpExchange *x, unsigned status, uint64_t took_ns);
void serve_metrics_first(Serve *s, const ServeAnswer *a);
void serve_metrics_answer(Serve *s, const ServeAnswer *a);

/* serve_slots.c: the engine thread's. */
/* Slots whose answers were given up, as soon as their last frames are over. */
void serve_slots_forget(Serve *s);
/* Starts answers of the queue as far as there are slots for them. */
void serve_slots_give(Serve *s);

/* serve_routes.c */
/* Its place in the table of paths, and how figures call it. */
const char *serve_routes_name(const Serve *s, const HttpExchange *x, uint32_t *route);
const char *serve_routes_label(uint32_t route);
/* Whose path it is. */
RequestKind serve_routes_kind(const Serve *s, const HttpExchange *x);

/* serve_intake.c */
void serve_intake_push(Serve *s, HttpExchange *x, ServeKey *key);

/* serve_form.c: answers with a form. */
/* Makes the job's grammar, when the request wants one. Thread  intake. Result  false with the refusal. */
bool serve_form_prepare(Serve *s, const Request *q, ServeJob *job, Refusal *refusal);
void serve_form_free(Serve *s, ServeJob *job);
void serve_form_close(Serve *s);
/* After each coordinator_start of the answer; leave: when it has no slot any more. Thread  the engine's. */
MUST_CHECK Error serve_form_constrain(Serve *s, ServeAnswer *a, Why *why);
void serve_form_leave(Serve *s, ServeAnswer *a);
/* Whether the answer failed by its form: it begins in too many ways, leaves no token, or none that logit_bias does
 * not forbid. */
bool serve_form_explains(const ServeAnswer *a, Error error, const Why *why, Refusal *refusal);

/* serve_tools.c: answers that may call tools. Result  NULL: no memory. */
ServeTools *serve_tools_make(const Request *q);
void serve_tools_free(ServeTools *t);
/* Result  false: no memory. */
bool serve_tools_push(ServeTools *t, const uint8_t *text, size_t bytes, bool end);
bool serve_tools_called(const ServeTools *t); /* a call has begun */
bool serve_tools_enough(const ServeTools *t); /* nothing is wanted any more */
/* What has come since the last time; false: nothing. Valid until the next push. */
bool serve_tools_news(ServeTools *t, AnswerPiece *out);
AnswerPiece serve_tools_whole(ServeTools *t);
/* Of a text as long as all of it, for answer_bytes. */
size_t serve_tools_bytes(const ServeTools *t);

/* serve_scores.c: what tokens are worth, and the prompt in front of its answer. Thread  the engine's. */
/* Before anything of the answer; then after each coordinator_start. */
MUST_CHECK Error serve_scores_start(Serve *s, ServeAnswer *a, Why *why);
MUST_CHECK Error serve_scores_ask(Serve *s, ServeAnswer *a, Why *why);
void serve_scores_free(ServeAnswer *a);
/* Whether the next score is of the prompt; takes it, NULL for the first token, which has none. */
bool serve_scores_waits(const ServeAnswer *a);
MUST_CHECK Error serve_scores_prompt(Serve *s, ServeAnswer *a, const CoordinatorScore *score,
                                     Why *why);
/* Around the detokenizer's push of a token. Result  false: no memory. */
bool serve_scores_begin(ServeAnswer *a, const CoordinatorScore *score);
void serve_scores_end(ServeAnswer *a, size_t bytes, bool stopped);
/* Text is about to go out. Result  how many scores, from the first that is kept, go with it. */
uint32_t serve_scores_ready(ServeAnswer *a, const uint8_t *text, size_t bytes);
const AnswerScore *serve_scores_list(const ServeAnswer *a);
void serve_scores_forget(ServeAnswer *a, uint32_t count);

/* serve_answer.c: the engine thread's. */
/* After each coordinator_start of the answer: its form, scores or pool. */
MUST_CHECK Error serve_answer_ask(Serve *s, ServeAnswer *a, Why *why);
/* Keeps text, or sends it. Result  false: no memory, or the stream is full. */
bool serve_answer_put(Serve *s, ServeAnswer *a, const AnswerPiece *piece);
void serve_answer_start(Serve *s, ServeAnswer *a, uint32_t slot, uint32_t cached);
void serve_answer_event(Serve *s, ServeAnswer *a, const CoordinatorEvent *event, const Why *why);
/* Ends a whole job early; `refusal` is NULL when the client is gone. */
void serve_answer_end_job(Serve *s, ServeJob *job, const Refusal *refusal);
void serve_answer_leave_queue(Serve *s, ServeAnswer *a);
/* Frees a job and lets go of its exchange. Thread  whoever has it. */
void serve_answer_free_job(Serve *s, ServeJob *job);

#endif
