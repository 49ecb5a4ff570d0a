/* SPDX-License-Identifier: Apache-2.0 */
/* libcobord: a language model in your own process. C99 and C++.
 *
 *     cobord_model *model;
 *     cobord_message hello = {"user", "Say hello."};
 *     if (cobord_open("smollm2-135m", NULL, &model) == COBORD_OK)
 *         cobord_chat(model, &hello, 1, NULL, on_text, NULL, NULL);
 *
 * Errors   Every function that can fail returns a code, COBORD_OK or one of COBORD_ERR_..., and on failure leaves its
 *          outputs alone where nothing else is said. cobord_last_error() has the sentence: what happened, to which
 *          thing. The library never ends the process, prints nothing, installs no signal handler and does not change
 *          the environment, the locale or the working directory.
 * Threads  Models are independent of each other: any number may be open, and work at the same time. Of one model,
 *          one generation runs at a time (a second one gets COBORD_ERR_AGAIN at once); everything else that takes a
 *          `const cobord_model *`, and cobord_cancel, may be called from any thread beside it. cobord_close: when no
 *          other call has the model. The library starts threads of its own, which block all signals; they are not in
 *          the child of a fork(), so a child must not use a model that its parent opened.
 * Files    What is open stays mapped: it must not be rewritten meanwhile (that is an error of the next answer), nor
 *          shortened (then the system sends SIGBUS); replace it by a rename.
 *          Every byte of a file is range-checked, and its hashes are checked once; a hostile file gives an error.
 * ABI      Functions are only ever added within one major version of the shared library (libcobord.so.0). Structs that
 *          may grow begin with `size`: the _init functions set it and every default; a program that was compiled
 *          with an older header keeps working with a newer library, and what an older library does not know of a
 *          newer header is refused unless it is 0. Error numbers never change. */
#ifndef COBORD_COBORD_H
#define COBORD_COBORD_H

#include <stddef.h>
#include <stdint.h>

#define COBORD_VERSION_MAJOR 0
#define COBORD_VERSION_MINOR 1
#define COBORD_VERSION_PATCH 0
#define COBORD_VERSION "0.1.0"

#if defined(__GNUC__)
#define COBORD_API __attribute__((visibility("default")))
#else
#define COBORD_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library that runs, which may be newer than the header's. */
COBORD_API const char *cobord_version(void);

/* ---- Errors: 1..99 ours or this machine's, 100..199 what was given, 200..299 may work later. */

enum {
    COBORD_OK = 0,
    COBORD_ERR_INTERNAL = 1,
    COBORD_ERR_MEMORY = 2,
    COBORD_ERR_IO = 3,
    COBORD_ERR_NO_SPACE = 4,
    COBORD_ERR_CAPACITY = 5, /* an array that was given, or the context, is too small */
    COBORD_ERR_NOT_AVAILABLE = 6,
    COBORD_ERR_USAGE = 100,
    COBORD_ERR_FORMAT = 101,
    COBORD_ERR_TRUNCATED = 102,
    COBORD_ERR_UNSUPPORTED = 103,
    COBORD_ERR_MISSING_TENSOR = 104,
    COBORD_ERR_TYPE = 105,
    COBORD_ERR_SHAPE = 106,
    COBORD_ERR_CHECKSUM = 107,
    COBORD_ERR_STALE = 108,
    COBORD_ERR_NOT_FINITE = 109,
    COBORD_ERR_RANGE = 110,
    COBORD_ERR_DUPLICATE = 111,
    COBORD_ERR_NOT_FOUND = 112,
    COBORD_ERR_TOO_LARGE = 113,
    COBORD_ERR_PLAN = 114, /* the model does not fit into the memory it was given */
    COBORD_ERR_AGAIN = 200,
    COBORD_ERR_CANCELLED = 201
};

/* A few words for a code; never NULL, "unknown error" for a number that this library does not know. */
COBORD_API const char *cobord_error_text(int error);
/* What the last failed call of this thread said; "" when none has failed. Valid until the thread's next failure. */
COBORD_API const char *cobord_last_error(void);

/* ---- Models */

typedef struct cobord_model cobord_model;

enum { COBORD_CACHE_F16 = 0, COBORD_CACHE_Q8_0 = 1 };

/* cobord_options.flags */
enum {
    COBORD_OPEN_TOKENIZER_ONLY = 1, /* for ids and text alone: little memory, no generation */
    COBORD_OPEN_FORMS = 2           /* keep memory for json_schema and grammar, which are refused without it */
};

typedef struct cobord_options {
    size_t size;
    uint64_t memory_bytes; /* what the model may take in all, weights that are held included; 0: what there is.
                              Weights that do not fit are read again for every pass: slower, same text */
    uint32_t context;      /* positions; given, they are a promise. 0: the largest that fits, at most 8192 */
    uint32_t threads;      /* 0: the processors that this process may use */
    uint32_t cache_type;   /* COBORD_CACHE_...: q8_0 takes about half of f16's memory */
    uint32_t flags;        /* COBORD_OPEN_... */
    /* How far cobord_open is with "encode" (a .gguf file) or "verify" (hashes); `total` 0: not known. Or NULL. */
    void (*progress)(void *user, const char *stage, uint64_t done, uint64_t total);
    void *progress_user;
} cobord_options;

/* Sets all defaults. `size`: sizeof *options. */
COBORD_API void cobord_options_init(cobord_options *options, size_t size);

/* Opens a model by the name it has in the cache (see `cobord pull`, `cobord list`), or a .knot, or a .gguf file, which
 * is encoded into the cache first. Nothing is downloaded. The cache: COBORD_CACHE, else XDG_CACHE_HOME/cobord, else
 * ~/.cache/cobord. `options`: NULL for the defaults.
 * Errors  COBORD_ERR_NOT_FOUND, _FORMAT and others of files that are no models or damaged, _PLAN, _MEMORY, _IO,
 *         _NO_SPACE, _USAGE. *out is NULL after an error. */
COBORD_API int cobord_open(const char *name, const cobord_options *options, cobord_model **out);
/* NULL is fine. */
COBORD_API void cobord_close(cobord_model *model);

typedef struct cobord_info {
    size_t size;
    const char *path;         /* of the knot; valid until cobord_close, as the other texts */
    const char *architecture; /* "llama", "qwen2", ... */
    uint64_t file_bytes;
    uint64_t knot_id;      /* of the content: the same number is the same model */
    uint64_t memory_bytes; /* the plan's sum: what the model takes at most; 0 with COBORD_OPEN_TOKENIZER_ONLY */
    uint32_t layers, hidden, vocabulary;
    uint32_t context;         /* positions that there is memory for; 0 with COBORD_OPEN_TOKENIZER_ONLY */
    uint32_t context_trained; /* 0: the file does not say */
    uint32_t resident;        /* 1: all weights are held; 0: some are read again for every pass */
    uint32_t can_chat;        /* 1: the model has a chat template, or turns that are known */
} cobord_info;

/* Fills `info`; `size`: sizeof *info. Errors  COBORD_ERR_USAGE. */
COBORD_API int cobord_get_info(const cobord_model *model, cobord_info *info, size_t size);

/* ---- Text and ids. When an array is too small: COBORD_ERR_CAPACITY, *count is what is needed, and nothing was
 * written, so that a first call may ask with NULL and 0. */

/* flags */
enum {
    COBORD_SPECIALS = 1, /* tokenize: control tokens in the text become their ids; detokenize: they are shown */
    COBORD_BOS = 2       /* tokenize: what the model wants at the beginning is put there */
};

/* `text` need not be UTF-8, and is bytes long: strlen(text), or what there is. */
COBORD_API int cobord_tokenize(const cobord_model *model, const char *text, size_t bytes, unsigned flags, uint32_t *ids,
                               size_t ids_max, size_t *count);
/* Whole UTF-8 characters (U+FFFD for what is none) and a NUL behind them, which is not counted in *bytes, but needs
 * its place in text[text_max]. */
COBORD_API int cobord_detokenize(const cobord_model *model, const uint32_t *ids, size_t count, unsigned flags,
                                 char *text, size_t text_max, size_t *bytes);

typedef struct cobord_message {
    const char *role; /* "system", "user", "assistant" */
    const char *text; /* UTF-8 with a NUL behind it; it never becomes a control token */
} cobord_message;

/* The ids of a conversation by the model's chat template, and the opening of the next answer. A model that cannot chat
 * (cobord_info.can_chat) gets the last message as it is. */
COBORD_API int cobord_apply_chat(const cobord_model *model, const cobord_message *messages, size_t message_count,
                                 uint32_t *ids, size_t ids_max, size_t *count);

/* ---- Answers */

typedef struct cobord_bias {
    uint32_t id;
    float bias; /* added to the token's logit; -100 and below forbids it */
} cobord_bias;

typedef struct cobord_settings {
    size_t size;
    uint64_t seed;         /* the same seed and the same ids give the same text everywhere; _init takes a random one */
    uint32_t tokens_max;   /* of the answer; 0: as many as the context holds */
    uint32_t top_k;        /* sample from the k likeliest; 0: from all */
    float temperature;     /* 0.7; 0 always takes the likeliest token */
    float top_p;           /* 1: off */
    float min_p;           /* 0: off */
    float repetition_penalty;                  /* 1: off */
    float presence_penalty, frequency_penalty; /* 0: off */
    uint32_t repeat_window; /* the last tokens that penalties look at; 0: all, at most 4096 */
    uint32_t flags;         /* 0 */
    const cobord_bias *biases; /* at most 1024 */
    size_t bias_count;
    const char *const *stops; /* the answer ends before any of these texts; at most 16 */
    size_t stop_count;
    /* At most one of the two: the answer is JSON that this schema accepts (docs/format/schema.md of the sources has
       what is understood), or follows this grammar in GBNF. */
    const char *json_schema;
    const char *grammar;
} cobord_settings;

/* Sets all defaults. `size`: sizeof *settings. */
COBORD_API void cobord_settings_init(cobord_settings *settings, size_t size);

/* A piece of the answer: whole UTF-8 characters, a NUL behind them, valid during the call. `bytes` is 0 for a token
 * whose text waits for the next one's; `id` is COBORD_NO_ID for text that came free at the end. The token that ends an
 * answer is not shown. Return nonzero to stop: the answer then ends with COBORD_END_CALLBACK.
 * Of the library, only functions on other models, those of const models, and cobord_cancel may be called inside; it
 * must not throw or jump out. */
#define COBORD_NO_ID UINT32_MAX
typedef int (*cobord_callback)(void *user, const char *text, size_t bytes, uint32_t id);

enum {
    COBORD_END_TOKEN = 1,   /* the model ended its answer */
    COBORD_END_STOP = 2,    /* a stop text came */
    COBORD_END_TOKENS = 3,  /* tokens_max were generated */
    COBORD_END_CONTEXT = 4, /* the context is full */
    COBORD_END_CALLBACK = 5 /* the callback asked for it */
};

typedef struct cobord_result {
    size_t size;
    uint32_t end;              /* COBORD_END_... */
    uint32_t prompt_tokens;    /* what was given */
    uint32_t kept_tokens;      /* of those: known from the answers before, so not computed again */
    uint32_t generated_tokens; /* the one that ended the answer included */
    uint64_t prompt_ns;        /* until the first token */
    uint64_t generate_ns;      /* from there on */
} cobord_result;

/* Generates behind `ids`, the whole conversation. `settings` NULL: the defaults; `callback` may be NULL. `result` may
 * be NULL, else result->size is to be sizeof *result.
 * Errors  COBORD_ERR_CAPACITY (longer than the context), _RANGE, _USAGE, _AGAIN (busy), _CANCELLED, _NOT_FINITE,
 *         _UNSUPPORTED and _FORMAT (schema, grammar), _MEMORY. */
COBORD_API int cobord_generate(cobord_model *model, const uint32_t *ids, size_t count, const cobord_settings *settings,
                               cobord_callback callback, void *user, cobord_result *result);
/* cobord_apply_chat, then cobord_generate. */
COBORD_API int cobord_chat(cobord_model *model, const cobord_message *messages, size_t message_count,
                           const cobord_settings *settings, cobord_callback callback, void *user,
                           cobord_result *result);
/* Ends the generation that runs, within a few milliseconds also while the prompt is read: it returns
 * COBORD_ERR_CANCELLED. Nothing when none runs. Thread  any; also from a signal handler. */
COBORD_API void cobord_cancel(cobord_model *model);

#ifdef __cplusplus
}
#endif

#endif
