/* SPDX-License-Identifier: Apache-2.0 */
/* Settings: one table (options.c) makes the flags, the COBORD_* variables, the config file and
 * `--help`.
 *
 *   flag --max-tokens 64     over     COBORD_MAX_TOKENS=64     over     max-tokens = 64 in the
 * config file
 *
 * The config file is ${XDG_CONFIG_HOME:-~/.config}/cobord/config: `name = value` lines, # comments.
 * A verb names the options it takes; a flag it does not take, a value that is not of the kind, a
 * missing or surplus argument is one line on standard error and exit code 2. */
#ifndef COBORD_CLI_OPTIONS_H
#define COBORD_CLI_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

typedef enum OptionId {
    OPTION_END = 0, /* ends a verb's list */
    /* run serve up bench logits: see OPTIONS_ENGINE */
    OPTION_STATIONS,
    OPTION_SHARDS,
    OPTION_RANGES,
    OPTION_THREADS,
    OPTION_CHUNK,
    OPTION_MEMORY,
    OPTION_CONTEXT,
    OPTION_CACHE_TYPE,
    OPTION_ISA,
    /* run: see OPTIONS_SAMPLER */
    OPTION_MAX_TOKENS,
    OPTION_TEMPERATURE,
    OPTION_TOP_K,
    OPTION_TOP_P,
    OPTION_MIN_P,
    OPTION_SEED,
    OPTION_REPETITION_PENALTY,
    OPTION_PRESENCE_PENALTY,
    OPTION_FREQUENCY_PENALTY,
    OPTION_LOGIT_BIAS,
    OPTION_STOP,
    OPTION_SYSTEM,
    OPTION_ESCAPES,
    OPTION_RAW,
    OPTION_URL,
    /* one verb each */
    OPTION_TOKENS,
    OPTION_TOP,
    OPTION_HASH,
    OPTION_WORKERS,
    OPTION_PROMPT,
    OPTION_GEN,
    OPTION_DEPTH,
    OPTION_BATCH,
    OPTION_KERNELS,
    OPTION_OUTPUT,
    OPTION_KNOT_VERSION,
    OPTION_SHAPE,
    OPTION_KEEP,
    OPTION_JSON_LINES,
    OPTION_JSON,
    OPTION_LISTEN,
    OPTION_SLOTS,
    OPTION_DRAFTS,
    OPTION_QUEUE,
    OPTION_JOURNAL,
    OPTION_LOG_FORMAT,
    OPTION_LOG_LEVEL,
    OPTION_DRAIN_SECONDS,
    OPTION_DRAFT,
    OPTION_DRAFT_MEMORY,
    OPTION_TLS_CERTIFICATE,
    OPTION_TLS_KEY,
    OPTION_TLS_CA,
    OPTION_API_KEYS,
    OPTION_CORS,
    OPTION_API_KEY,
    OPTION_FILE,
    OPTION_REQUESTS_PER_MINUTE,
    OPTION_TOKENS_PER_MINUTE,
    OPTION_CONCURRENT,
    OPTION_ADMIN,
    /* clusters: plan, up, node */
    OPTION_CLUSTER,
    OPTION_STORE,
    OPTION_ID,
    OPTION_DIR,
    OPTION_WARDENS,
    OPTION_WARDEN_MEMORY,
    OPTION_REPLICAS,
    OPTION_ELEMENT,
    OPTION_PIPELINE,
    OPTION_KEY_FILE,
    OPTION_HOSTS,
    OPTION_CGROUP,
    /* deploy */
    OPTION_DRY_RUN,
    OPTION_NAME,
    OPTION_BUCKET,
    OPTION_ACCOUNT,
    OPTION_SUBDOMAIN,
    OPTION_FREE,
    OPTION_MODULES,
    OPTION_WRANGLER,
    OPTION_CACHE,
    OPTION_HUB,
    OPTION_HUB_TOKEN,
    OPTIONS_COUNT
} OptionId;

/* For a verb's list: the options that run, serve, up, bench and logits share, and those of the
 * sampler. */
#define OPTIONS_ENGINE                                                                          \
    OPTION_STATIONS, OPTION_SHARDS, OPTION_RANGES, OPTION_THREADS, OPTION_CHUNK, OPTION_MEMORY, \
        OPTION_CONTEXT, OPTION_CACHE_TYPE, OPTION_ISA
/* Of those that serve. */
#define OPTIONS_LOG OPTION_LOG_FORMAT, OPTION_LOG_LEVEL, OPTION_DRAIN_SECONDS
/* Of those that answer. */
#define OPTIONS_DRAFT OPTION_DRAFTS, OPTION_DRAFT, OPTION_DRAFT_MEMORY
#define OPTIONS_SAMPLER                                                                           \
    OPTION_MAX_TOKENS, OPTION_TEMPERATURE, OPTION_TOP_K, OPTION_TOP_P, OPTION_MIN_P, OPTION_SEED, \
        OPTION_REPETITION_PENALTY, OPTION_PRESENCE_PENALTY, OPTION_FREQUENCY_PENALTY,             \
        OPTION_LOGIT_BIAS, OPTION_STOP

/* What a verb takes and how it is explained. */
typedef struct OptionVerb {
    const char *name;
    const char *usage;       /* what follows `cobord NAME`: "MODEL [PROMPT]" */
    const char *summary;     /* what it is for: paragraphs, with an empty line between */
    const char *examples;    /* lines of two leading spaces, each with its '\n' */
    const OptionId *options; /* ended by OPTION_END */
    unsigned operands_min, operands_max;
    const char
        *operand_names; /* of the missing one: "MODEL" or "IN.gguf"; what completion offers */
    const char *exits;  /* lines of exit codes in place of the usual ones; NULL: those */
} OptionVerb;

enum { OPTIONS_OPERANDS_MAX = 8, OPTIONS_TEXTS_MAX = 8 };

typedef struct OptionValue {
    bool given;       /* by a flag, a variable or the config file; not by the table's default */
    const char *text; /* as written; NULL when there is neither a value nor a default */
    uint64_t count;   /* size, count, or index of the choice */
    double number;
    const char *where; /* "--threads", "COBORD_THREADS", "threads in the config file" */
} OptionValue;

typedef struct Options {
    OptionValue values[OPTIONS_COUNT];
    const char *operands[OPTIONS_OPERANDS_MAX];
    unsigned operand_count;
    const char *stops[OPTIONS_TEXTS_MAX]; /* --stop may be repeated */
    unsigned stop_count;
} Options;

/* Reads flags, variables and the config file. false: the verb is done (help was printed, or the
 * usage was wrong), return
 * `*exit_code`. Texts point into argv, the environment and a static copy of the config file. */
bool options_read(Options *out, const OptionVerb *verb, int argc, char **argv, int *exit_code);

static inline bool options_given(const Options *o, OptionId id) { return o->values[id].given; }
/* Sizes in bytes, counts, and for a choice its place in the table's list. */
static inline uint64_t options_count(const Options *o, OptionId id) { return o->values[id].count; }
static inline bool options_switch(const Options *o, OptionId id)
{
    return o->values[id].count != 0;
}
static inline double options_number(const Options *o, OptionId id) { return o->values[id].number; }
static inline const char *options_text(const Options *o, OptionId id) { return o->values[id].text; }
/* How an error should call the option: "--memory", "COBORD_MEMORY". The flag when it was not given.
 */
const char *options_where(const Options *o, OptionId id);

/* Changes one setting while the verb runs; `text` stays. Errors  ERR_USAGE, with what it may be. */
MUST_CHECK Error options_change(Options *o, OptionId id, const char *text, Why *why);

/* Whether the verb has this flag. */
bool options_takes(const OptionVerb *verb, OptionId id);

/* The value of a setting outside any verb: from its variable, the config file or the table's
 * default. NULL when there is none. For the host's ports: cache directory, hub. */
const char *options_setting(OptionId id);

/* Parses "128M", "1.5G", "65536", "2GiB": powers of 1024, a B or iB may follow. false when it is
 * none or overflows. */
bool options_parse_size(const char *text, uint64_t *out);

/* Parses "1,2,3" with each number at most `limit`. Result  how many, or -1 when the text is no such
 * list; `out` may be NULL to count them. */
long options_parse_list(const char *text, uint64_t limit, uint32_t *out, long out_max);

/* Prints text from outside with control characters as \xNN. */
void options_print_safely(FILE *out, const char *text);

#endif
