/* SPDX-License-Identifier: Apache-2.0 */
/* The table of all settings, and its three readers. Help text: options_help.c. */
#include "cli/options.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/mask.h"
#include "cli/complain.h"
#include "cli/options_help.h"
#include "cli/options_near.h"
#include "cli/options_table.h"
#include "host/near.h"
#include "host/places.h"

#define COUNT_MAX UINT32_MAX
#define F OPTION_FLAG_ONLY

/* In the order of OptionId. Bounds: bytes for sizes, values for counts and numbers. */
const OptionSpec options_table[OPTIONS_COUNT] = {
    [OPTION_STATIONS] = {"stations", 0, OPTION_COUNT, "N",
                         "layer ranges, each held by one station (default: 2)", NULL, 1, 511, NULL,
                         0},
    [OPTION_SHARDS] =
        {"shards", 0, OPTION_COUNT, "M",
         "vocabulary ranges, each held by one shard (default: 8); plan and up: 0 keeps "
         "the embedding at the first and the head at the last station",
         NULL, 0, 511, NULL, 0},
    [OPTION_RANGES] =
        {"ranges", 0, OPTION_TEXT, "LIST",
         "station ranges in place of --stations: 0-14,14-end or 0-5.ffn_up,5.ffn_up-end", NULL, 0,
         0, NULL, 0},
    [OPTION_THREADS] = {"threads", 0, OPTION_COUNT, "T",
                        "compute threads, the main one included (default: one per core)", NULL, 1,
                        64, NULL, 0},
    [OPTION_CHUNK] = {"chunk", 0, OPTION_COUNT, "ROWS",
                      "prompt positions per pass (default: what the memory allows)", NULL, 1, 4096,
                      NULL, 0},
    [OPTION_MEMORY] = {"memory", 0, OPTION_SIZE, "SIZE",
                       "peak resident memory per process, such as 128M or 1.5G (powers of 1024)",
                       NULL, 1 << 20, 1e15, NULL, 0},
    [OPTION_CONTEXT] =
        {"context", 0, OPTION_COUNT, "N",
         "positions of attention cache; given, it is a promise (default: the largest that "
         "fits, at most 8192)",
         NULL, 1, 1 << 20, NULL, 0},
    [OPTION_CACHE_TYPE] = {"cache-type", 0, OPTION_CHOICE, NULL,
                           "number type of the attention cache", "f16", 0, 0, "f16|q8_0", 0},
    [OPTION_ISA] = {"isa", 0, OPTION_CHOICE, NULL,
                    "instruction set of the kernels; the numbers are the same with each", "auto", 0,
                    0, "auto|scalar|avx2|avxvnni|avx512|neon|i8mm", 0},
    [OPTION_MAX_TOKENS] = {"max-tokens", 'n', OPTION_COUNT, "N", "tokens to generate at most", NULL,
                           0, 1 << 24, NULL, 0},
    [OPTION_TEMPERATURE] = {"temperature", 't', OPTION_NUMBER, "X",
                            "0 always takes the likeliest token", "0.7", 0, 100, NULL, 0},
    [OPTION_TOP_K] = {"top-k", 0, OPTION_COUNT, "K",
                      "sample from the K likeliest tokens, 0 from all", "0", 0, 1 << 24, NULL, 0},
    [OPTION_TOP_P] = {"top-p", 0, OPTION_NUMBER, "P",
                      "sample from the likeliest tokens that sum to P", "1", 0, 1, NULL, 0},
    [OPTION_MIN_P] = {"min-p", 0, OPTION_NUMBER, "P",
                      "drop tokens less likely than P times the likeliest", "0", 0, 1, NULL, 0},
    [OPTION_SEED] = {"seed", 's', OPTION_COUNT, "N",
                     "same seed, same text (default: a new one each time)", NULL, 0, 1.8e19, NULL,
                     0},
    [OPTION_REPETITION_PENALTY] = {"repetition-penalty", 0, OPTION_NUMBER, "X",
                                   "divides the logits of tokens that occurred; 1 is off", "1",
                                   0.01, 100, NULL, 0},
    [OPTION_PRESENCE_PENALTY] = {"presence-penalty", 0, OPTION_NUMBER, "X",
                                 "taken off the logits of tokens that occurred", "0", -100, 100,
                                 NULL, 0},
    [OPTION_FREQUENCY_PENALTY] = {"frequency-penalty", 0, OPTION_NUMBER, "X",
                                  "taken off the logits, times how often a token occurred", "0",
                                  -100, 100, NULL, 0},
    [OPTION_LOGIT_BIAS] = {"logit-bias", 0, OPTION_TEXT, "LIST", "added to logits: ID:BIAS,ID:BIAS",
                           NULL, 0, 0, NULL, F},
    [OPTION_STOP] = {"stop", 0, OPTION_TEXT, "TEXT",
                     "end the answer before TEXT; may be given up to 8 times", NULL, 0, 0, NULL, F},
    [OPTION_SYSTEM] = {"system", 0, OPTION_TEXT, "TEXT",
                       "the system message before the conversation", NULL, 0, 0, NULL,
                       OPTION_EMPTY},
    [OPTION_ESCAPES] =
        {"escapes", 'e', OPTION_SWITCH, NULL,
         "read \\n \\t \\\\ in the prompt as line break, tab, backslash; without it they "
         "stay as typed",
         NULL, 0, 0, NULL, F},
    [OPTION_RAW] = {"raw", 0, OPTION_SWITCH, NULL,
                    "give the prompt to the model as it is, without the chat's turns", NULL, 0, 0,
                    NULL, F},
    [OPTION_URL] = {"url", 0, OPTION_TEXT, "URL",
                    "ask the server there, such as http://127.0.0.1:8080, in place of a model here",
                    NULL, 0, 0, NULL, 0},
    [OPTION_TOKENS] = {"tokens", 0, OPTION_LIST, "1,2,3", "token ids", NULL, 0, COUNT_MAX, NULL, F},
    [OPTION_TOP] = {"top", 0, OPTION_COUNT, "N", "show the N largest logits of each position", "5",
                    0, 1 << 24, NULL, F},
    [OPTION_HASH] = {"hash", 0, OPTION_SWITCH, NULL, "print XXH3-64 over all logits", NULL, 0, 0,
                     NULL, F},
    [OPTION_WORKERS] = {"workers", 0, OPTION_COUNT, "N", "processes to spread the model over", NULL,
                        1, 65536, NULL, F},
    [OPTION_PROMPT] = {"prompt", 'p', OPTION_COUNT, "N", "prompt length to measure, in tokens",
                       "512", 0, 1 << 24, NULL, F},
    [OPTION_GEN] = {"gen", 0, OPTION_COUNT, "N", "tokens to generate and measure", "64", 0, 1 << 24,
                    NULL, F},
    [OPTION_DEPTH] = {"depth", 0, OPTION_COUNT, "N",
                      "positions in the context before decode is measured", "0", 0, 1 << 20, NULL,
                      F},
    [OPTION_BATCH] = {"batch", 0, OPTION_LIST, "1,8",
                      "sequences decoded together, each to be measured", "1", 1, 4096, NULL, F},
    [OPTION_KERNELS] = {"kernels", 0, OPTION_SWITCH, NULL, "measure the matrix kernels alone", NULL,
                        0, 0, NULL, F},
    [OPTION_OUTPUT] = {"output", 'o', OPTION_TEXT, "FILE", "the file to write; deploy: the folder",
                       NULL, 0, 0, NULL, F},
    [OPTION_KNOT_VERSION] = {"knot-version", 0, OPTION_COUNT, "1|2", "version of the container",
                             "2", 1, 2, NULL, F},
    [OPTION_SHAPE] = {"shape", 0, OPTION_TEXT, "NAME",
                      "the model whose shape to copy, such as qwen2.5-coder-7b", NULL, 0, 0, NULL,
                      F},
    [OPTION_KEEP] = {"keep", 0, OPTION_SWITCH, NULL, "keep the GGUF file beside the knot", NULL, 0,
                     0, NULL, F},
    [OPTION_JSON_LINES] = {"json-lines", 0, OPTION_SWITCH, NULL,
                           "one JSON value per line, in and out", NULL, 0, 0, NULL, F},
    [OPTION_JSON] = {"json", 0, OPTION_SWITCH, NULL, "print one JSON value", NULL, 0, 0, NULL, F},
    [OPTION_LISTEN] = {"listen", 0, OPTION_TEXT, "HOST:PORT", "where to serve", "127.0.0.1:8080", 0,
                       0, NULL, 0},
    [OPTION_SLOTS] = {"slots", 0, OPTION_COUNT, "N",
                      "conversations at once, each with the whole context", "4", 1, 256, NULL, 0},
    [OPTION_DRAFTS] =
        {"drafts", 0, OPTION_COUNT, "N",
         "tokens guessed at most from what was said before and checked in one pass, 0 "
         "for none; the text is the same",
         "15", 0, 31, NULL, 0},
    [OPTION_QUEUE] = {"queue", 0, OPTION_COUNT, "N",
                      "answers that may wait for a slot; more are told to come again", "256", 0,
                      4096, NULL, 0},
    [OPTION_CLUSTER] = {"cluster", 0, OPTION_TEXT, "FILE", "the cluster file (see: cobord plan -o)",
                        NULL, 0, 0, NULL, F},
    [OPTION_STORE] = {"store", 0, OPTION_TEXT, "URL",
                      "a store of models: a directory, s3://BUCKET/PREFIX or https://HOST/PATH",
                      NULL, 0, 0, NULL, F},
    [OPTION_ID] = {"id", 0, OPTION_TEXT, "ID",
                   "which node of the cluster file this process is, such as station-0", NULL, 0, 0,
                   NULL, F},
    [OPTION_DIR] = {"dir", 0, OPTION_TEXT, "DIR",
                    "where cluster file, key, logs and journal are kept", NULL, 0, 0, NULL, F},
    [OPTION_WARDENS] = {"wardens", 0, OPTION_SWITCH, NULL,
                        "weights come from wardens, which keep them in memory for the others", NULL,
                        0, 0, NULL, 0},
    [OPTION_WARDEN_MEMORY] = {"warden-memory", 0, OPTION_SIZE, "SIZE",
                              "peak resident memory of a warden", "128M", 1 << 20, 1e15, NULL, 0},
    [OPTION_REPLICAS] = {"replicas", 0, OPTION_COUNT, "N",
                         "further nodes with the range of each station and shard", "0", 0, 8, NULL,
                         0},
    [OPTION_ELEMENT] = {"element", 0, OPTION_CHOICE, NULL,
                        "number type of activations between nodes; only f32 keeps the same bits",
                        "f32", 0, 0, "f32|f16|int8", 0},
    [OPTION_PIPELINE] = {"pipeline", 0, OPTION_COUNT, "N",
                         "frames under way at once; 0: one a station", "0", 0, 64, NULL, 0},
    [OPTION_KEY_FILE] = {"key-file", 0, OPTION_TEXT, "FILE",
                         "file with the key that nodes show each other, its full path on every "
                         "machine; plan and up make one that is missing",
                         NULL, 0, 0, NULL, 0},
    [OPTION_HOSTS] = {"hosts", 0, OPTION_TEXT, "LIST|FILE",
                      "machines to spread over: addresses with commas between, or a JSON file",
                      NULL, 0, 0, NULL, 0},
    [OPTION_CGROUP] = {"cgroup", 0, OPTION_SWITCH, NULL,
                       "each process in a memory control group of its own, where that is allowed",
                       NULL, 0, 0, NULL, 0},
    [OPTION_JOURNAL] =
        {"journal", 0, OPTION_TEXT, "FILE",
         "where streams are remembered for an hour, to be resumed after a restart; none: "
         "nowhere (default: ~/.local/state/cobord/journal.db; of a node: beside the cluster file)",
         NULL, 0, 0, NULL, 0},
    [OPTION_LOG_FORMAT] = {"log-format", 0, OPTION_CHOICE, NULL,
                           "lines of the log: for people, or JSON objects with the same fields",
                           "text", 0, 0, "text|json", 0},
    [OPTION_LOG_LEVEL] = {"log-level", 0, OPTION_CHOICE, NULL,
                          "info has a line a request; debug one for each call between nodes too",
                          "info", 0, 0, "error|info|debug", 0},
    [OPTION_DRAIN_SECONDS] =
        {"drain-seconds", 0, OPTION_COUNT, "N",
         "after SIGTERM, how long answers that are under way may take before they are ended", "30",
         0, 3600, NULL, 0},
    [OPTION_DRAFT] =
        {"draft", 0, OPTION_TEXT, "MODEL",
         "a smaller model of the same vocabulary, which guesses what MODEL will say: the text is "
         "the same, and often sooner there",
         NULL, 0, 0, NULL, 0},
    [OPTION_DRAFT_MEMORY] =
        {"draft-memory", 0, OPTION_SIZE, "SIZE",
         "how much of --memory the draft model may take (default: a third; of the coordinator of a "
         "cluster: three quarters of what it leaves)",
         NULL, 1 << 20, 1e15, NULL, 0},
    [OPTION_TLS_CERTIFICATE] =
        {"tls-certificate", 0, OPTION_TEXT, "FILE",
         "PEM file of the certificate, and those between it and its authority: the API is then "
         "served over TLS",
         NULL, 0, 0, NULL, 0},
    [OPTION_TLS_KEY] = {"tls-key", 0, OPTION_TEXT, "FILE", "PEM file of the certificate's key",
                        NULL, 0, 0, NULL, 0},
    [OPTION_TLS_CA] = {"tls-ca", 0, OPTION_TEXT, "FILE",
                       "PEM file of the certificates that a server's is checked against (default: "
                       "the system's)",
                       NULL, 0, 0, NULL, 0},
    [OPTION_API_KEYS] =
        {"api-keys", 0, OPTION_TEXT, "FILE",
         "JSON file of the keys that may use the API, and how much each may (see: cobord keys); read "
         "again on SIGHUP (default: everybody may)",
         NULL, 0, 0, NULL, 0},
    [OPTION_CORS] = {"cors", 0, OPTION_TEXT, "ORIGINS",
                     "origins whose pages may use the API, with commas between, or * for all: "
                     "https://app.example,http://localhost:3000 (default: only its own page)",
                     NULL, 0, 0, NULL, 0},
    [OPTION_API_KEY] = {"api-key", 0, OPTION_TEXT, "TEXT", "API key of the server that is asked",
                        NULL, 0, 0, NULL, OPTION_NO_FLAG},
    [OPTION_FILE] =
        {"file", 0, OPTION_TEXT, "FILE",
         "the file of keys (default: that of --api-keys, else ~/.config/cobord/keys.json)", NULL, 0,
         0, NULL, F},
    [OPTION_REQUESTS_PER_MINUTE] = {"requests-per-minute", 0, OPTION_COUNT, "N",
                                    "requests that the key may send in a minute", NULL, 1, 1e9,
                                    NULL, F},
    [OPTION_TOKENS_PER_MINUTE] = {"tokens-per-minute", 0, OPTION_COUNT, "N",
                                  "tokens of prompts and answers that it may use in a minute", NULL,
                                  1, 1e9, NULL, F},
    [OPTION_CONCURRENT] = {"concurrent", 0, OPTION_COUNT, "N",
                           "requests that it may have at the same time", NULL, 1, 1e9, NULL, F},
    [OPTION_ADMIN] = {"admin", 0, OPTION_SWITCH, NULL, "it may also read /metrics and /cluster",
                      NULL, 0, 0, NULL, F},
    [OPTION_DRY_RUN] =
        {"dry-run", 0, OPTION_SWITCH, NULL,
         "write and validate the configurations only: nothing is uploaded or deployed", NULL, 0, 0,
         NULL, F},
    [OPTION_NAME] =
        {"name", 0, OPTION_TEXT, "NAME",
         "what the names of the scripts begin with: a to z, 0 to 9, dashes (default: the "
         "model's name)",
         NULL, 0, 0, NULL, F},
    [OPTION_BUCKET] = {"bucket", 0, OPTION_TEXT, "NAME", "the R2 bucket for the model", "cobord", 0,
                       0, NULL, 0},
    [OPTION_ACCOUNT] = {"account", 0, OPTION_TEXT, "ID",
                        "the Cloudflare account, 32 hexadecimal digits (default: "
                        "CLOUDFLARE_ACCOUNT_ID, or the one that wrangler is logged in to)",
                        NULL, 0, 0, NULL, 0},
    [OPTION_SUBDOMAIN] =
        {"subdomain", 0, OPTION_TEXT, "NAME",
         "the account's name before .workers.dev: every node gets an address there, for clusters "
         "that native nodes are part of (default: only the coordinator has one)",
         NULL, 0, 0, NULL, 0},
    [OPTION_FREE] = {"free", 0, OPTION_SWITCH, NULL,
                     "for the free plan: 50 calls an invocation instead of 10,000", NULL, 0, 0,
                     NULL, 0},
    [OPTION_MODULES] =
        {"modules", 0, OPTION_TEXT, "DIR",
         "folder of the scripts (*.mjs) and of cobord.wasm (default: where they were built or "
         "installed)",
         NULL, 0, 0, NULL, 0},
    [OPTION_WRANGLER] = {"wrangler", 0, OPTION_TEXT, "PROGRAM", "Cloudflare's command line program",
                         "wrangler", 0, 0, NULL, 0},
    [OPTION_CACHE] = {"cache", 0, OPTION_TEXT, "DIR",
                      "where models are kept (default: ~/.cache/cobord)", NULL, 0, 0, NULL, 0},
    [OPTION_HUB] = {"hub", 0, OPTION_TEXT, "URL", "base address of the model hub",
                    "https://huggingface.co", 0, 0, NULL, 0},
    [OPTION_HUB_TOKEN] = {"hub-token", 0, OPTION_TEXT, "TEXT",
                          "access token for gated models of the hub", NULL, 0, 0, NULL,
                          OPTION_NO_FLAG},
};

/* ---- values ---- */

bool options_parse_size(const char *text, uint64_t *out)
{
    char *end;
    if (!isdigit((unsigned char)text[0])) return false;
    double value = strtod(text, &end);
    if (end != text + strspn(text, "0123456789.")) return false; /* 0x10, 1e3 */
    static const char letters[] = "KMGT";
    const char *letter = *end ? strchr(letters, toupper((unsigned char)*end)) : NULL;
    if (letter && *letter) {
        value *= (double)(1ull << (10 * (letter - letters + 1)));
        end++;
        if (end[0] == 'i' && end[1] == 'B') end += 2;
        else if (*end == 'B' || *end == 'b') end++;
    } else if (*end == 'B') {
        end++;
    }
    if (*end || !(value < 1e18)) return false;
    *out = (uint64_t)value;
    return true;
}

static bool options_parse_count(const char *text, uint64_t *out)
{
    if (!isdigit((unsigned char)text[0])) return false;
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    *out = value;
    return errno == 0 && *end == 0;
}

static bool options_parse_number(const char *text, double *out)
{
    char *end;
    if (!text[0] || isspace((unsigned char)text[0]) || strpbrk(text, "xXnN")) return false;
    *out = strtod(text, &end);
    return *end == 0 && *out - *out == 0; /* neither infinite nor NaN */
}

static bool options_parse_switch(const char *text, uint64_t *out)
{
    static const char *const words[] = {"0", "1", "no", "yes", "off", "on", "false", "true"};
    for (unsigned i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(text, words[i]) == 0) {
            *out = i & 1;
            return true;
        }
    return false;
}

static bool options_parse_choice(const char *text, const char *choices, uint64_t *out)
{
    size_t length = strlen(text);
    uint64_t index = 0;
    for (const char *c = choices;; index++) {
        const char *bar = strchr(c, '|');
        size_t n = bar ? (size_t)(bar - c) : strlen(c);
        if (n == length && memcmp(c, text, n) == 0) {
            *out = index;
            return true;
        }
        if (!bar) return false;
        c = bar + 1;
    }
}

long options_parse_list(const char *text, uint64_t limit, uint32_t *out, long out_max)
{
    long count = 0;
    for (const char *p = text;; p++) {
        if (!isdigit((unsigned char)*p)) return -1;
        char *end;
        errno = 0;
        unsigned long long value = strtoull(p, &end, 10);
        if (errno || value > limit || value > UINT32_MAX) return -1;
        if (out && count < out_max) out[count] = (uint32_t)value;
        count++;
        p = end;
        if (*p == 0) return count;
        if (*p != ',') return -1;
    }
}

static void options_print_bound(char *out, size_t bytes, OptionKind kind, double bound)
{
    if (kind == OPTION_SIZE && bound >= 1 << 20)
        (void)snprintf(out, bytes, "%.0fM", bound / (1 << 20));
    else (void)snprintf(out, bytes, "%.6g", bound);
}

/* What would have been right, for the line of complaint. */
static void options_allowed(char *out, size_t bytes, const OptionSpec *spec)
{
    char low[32], high[32];
    options_print_bound(low, sizeof low, spec->kind, spec->low);
    options_print_bound(high, sizeof high, spec->kind, spec->high);
    switch (spec->kind) {
    case OPTION_SWITCH: (void)snprintf(out, bytes, "yes or no"); break;
    case OPTION_SIZE:
        (void)snprintf(out, bytes, "a size of at least %s, such as 128M or 1.5G", low);
        break;
    case OPTION_COUNT:
        if (spec->high > COUNT_MAX) (void)snprintf(out, bytes, "a whole number from %s", low);
        else (void)snprintf(out, bytes, "a whole number from %.0f to %.0f", spec->low, spec->high);
        break;
    case OPTION_NUMBER: (void)snprintf(out, bytes, "a number from %s to %s", low, high); break;
    case OPTION_CHOICE: (void)snprintf(out, bytes, "one of %s", spec->choices); break;
    case OPTION_LIST:
        (void)snprintf(out, bytes, "whole numbers with commas between, such as 1,2,3");
        break;
    case OPTION_TEXT: (void)snprintf(out, bytes, "a text that is not empty"); break;
    }
}

static bool options_parse(const OptionSpec *spec, const char *text, OptionValue *out)
{
    switch (spec->kind) {
    case OPTION_SWITCH: return options_parse_switch(text, &out->count);
    case OPTION_SIZE:
        return options_parse_size(text, &out->count) && (double)out->count >= spec->low &&
               (double)out->count <= spec->high;
    case OPTION_COUNT:
        return options_parse_count(text, &out->count) && (double)out->count >= spec->low &&
               (double)out->count <= spec->high;
    case OPTION_NUMBER:
        return options_parse_number(text, &out->number) && out->number >= spec->low &&
               out->number <= spec->high;
    case OPTION_CHOICE: return options_parse_choice(text, spec->choices, &out->count);
    case OPTION_LIST: return options_parse_list(text, (uint64_t)spec->high, NULL, 0) > 0;
    case OPTION_TEXT: return text[0] != 0 || spec->flags & OPTION_EMPTY;
    }
    return false;
}

static int options_refuse(const OptionSpec *spec, const char *where, const char *text)
{
    char allowed[160];
    options_allowed(allowed, sizeof allowed, spec);
    return complain_usage("bad value: %s: '%.200s' is not %s.", where, text, allowed);
}

Error options_change(Options *o, OptionId id, const char *text, Why *why)
{
    const OptionSpec *spec = &options_table[id];
    OptionValue value = {.given = true, .text = text, .where = spec->name};
    char allowed[160];
    options_allowed(allowed, sizeof allowed, spec);
    if (!options_parse(spec, text, &value))
        return error_why(why, ERR_USAGE, "%s: '%.*s' is not %s.", spec->name, 80, text, allowed);
    o->values[id] = value;
    return OK;
}

/* ---- variables and the config file ---- */

void options_variable(char *out, size_t bytes, const OptionSpec *spec)
{
    (void)snprintf(out, bytes, "COBORD_%s", spec->name);
    for (char *p = out; *p; p++) *p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
}

static struct {
    bool read;
    char path[PATH_MAX];
    char text[16384];
    const char *values[OPTIONS_COUNT];
    char wheres[OPTIONS_COUNT][48];
} config;

static OptionId options_find(const char *name, size_t length)
{
    for (unsigned id = 1; id < OPTIONS_COUNT; id++)
        if (strlen(options_table[id].name) == length &&
            memcmp(options_table[id].name, name, length) == 0)
            return (OptionId)id;
    return OPTION_END;
}

static char *options_trim(char *text)
{
    while (isspace((unsigned char)*text)) text++;
    size_t length = strlen(text);
    while (length && isspace((unsigned char)text[length - 1])) text[--length] = 0;
    return text;
}

/* One line: nothing, a comment, or `name = value`; a value may stand in double quotes. */
static int options_config_line(char *line, unsigned number)
{
    line = options_trim(line);
    if (*line == 0 || *line == '#') return 0;
    char *equals = strchr(line, '=');
    if (!equals)
        return complain_usage("bad config file: %s:%u: the line is not `name = value`.",
                              config.path, number); /* its words may be a secret */
    *equals = 0;
    char *name = options_trim(line), *value = options_trim(equals + 1);
    size_t length = strlen(value);
    if (length >= 2 && value[0] == '"' && value[length - 1] == '"') {
        value[length - 1] = 0;
        value++;
    }
    OptionId id = options_find(name, strlen(name));
    if (id == OPTION_END || options_table[id].flags & OPTION_FLAG_ONLY)
        return complain_usage(
            "bad config file: %s:%u: there is no setting '%.60s'. See: cobord help VERB",
            config.path, number, name);
    config.values[id] = value;
    (void)snprintf(config.wheres[id], sizeof config.wheres[id], "%s (config file, line %u)",
                   options_table[id].name, number);
    return 0;
}

static int options_config_parse(void)
{
    unsigned number = 1;
    for (char *line = config.text; line; number++) {
        char *next = strchr(line, '\n');
        if (next) *next++ = 0;
        int code = options_config_line(line, number);
        if (code) return code;
        line = next;
    }
    return 0;
}

/* 0, or the exit code of a complaint. No file is fine. */
static int options_config_read(void)
{
    if (config.read) return 0;
    config.read = true;
    const char *base = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    if (base && base[0] == '/')
        (void)snprintf(config.path, sizeof config.path, "%s/cobord/config", base);
    else if (home)
        (void)snprintf(config.path, sizeof config.path, "%s/.config/cobord/config", home);
    else return 0;
    FILE *file = fopen(config.path, "re");
    if (!file) {
        if (errno == ENOENT || errno == ENOTDIR || errno == EACCES) return 0;
        return complain_usage("cannot read the config file: %s: %s.", config.path, strerror(errno));
    }
    size_t length = fread(config.text, 1, sizeof config.text - 1, file);
    bool failed = ferror(file) || length == sizeof config.text - 1;
    (void)fclose(file);
    if (failed)
        return complain_usage("cannot read the config file: %s: unreadable or over 16 KiB.",
                              config.path);
    config.text[length] = 0;
    return options_config_parse();
}

/* Fills what no flag gave: variable, config file, default. */
static int options_fill(OptionValue *value, OptionId id)
{
    static char names[OPTIONS_COUNT][48];
    const OptionSpec *spec = &options_table[id];
    if (value->given) return 0;
    if (!(spec->flags & OPTION_FLAG_ONLY)) {
        options_variable(names[id], sizeof names[id], spec);
        const char *text = getenv(names[id]);
        if (text && text[0]) {
            value->where = names[id];
            value->text = text;
        } else if (config.values[id]) {
            value->where = config.wheres[id];
            value->text = config.values[id];
        }
    }
    value->given = value->text != NULL;
    if (!value->text) value->text = spec->standard;
    if (!value->text) return 0;
    if (!options_parse(spec, value->text, value))
        return options_refuse(spec, value->where ? value->where : "default", value->text);
    return 0;
}

const char *options_setting(OptionId id)
{
    OptionValue value = {0};
    if (options_config_read() != 0 || options_fill(&value, id) != 0)
        return options_table[id].standard;
    return value.text;
}

/* ---- flags ---- */

bool options_takes(const OptionVerb *verb, OptionId id)
{
    for (const OptionId *o = verb->options; *o != OPTION_END; o++)
        if (*o == id) return !(options_table[id].flags & OPTION_NO_FLAG);
    return false;
}

static int options_unknown(const OptionVerb *verb, const char *flag)
{
    size_t length = strcspn(flag, "=");
    char name[NEAR_NAME_BYTES];
    (void)snprintf(name, sizeof name, "%.*s", (int)(length > 2 ? length - 2 : 0),
                   length > 2 ? flag + 2 : "");
    for (char *c = name; *c; c++)
        if (*c == '_') *c = '-';
    const char *operand = options_near_operand(verb->operand_names, name),
               *near = operand ? NULL : options_near_flag(verb, name);
    if (operand)
        return complain_usage("unknown flag: %.*s: %s stands without a flag: cobord %s %s.",
                              (int)length, flag, operand, verb->name, verb->operand_names);
    if (near)
        return complain_usage(
            "unknown flag: %.*s: `cobord %s` does not take it. Did you mean --%s?", (int)length,
            flag, verb->name, near);
    return complain_usage("unknown flag: %.*s: `cobord %s` does not take it. See: cobord help %s",
                          (int)length, flag, verb->name, verb->name);
}

static OptionId options_find_flag(const OptionVerb *verb, const char *argument, const char **value)
{
    *value = NULL;
    OptionId id = OPTION_END;
    if (argument[1] == '-') {
        const char *name = argument + 2;
        const char *equals = strchr(name, '=');
        id = options_find(name, equals ? (size_t)(equals - name) : strlen(name));
        if (equals) *value = equals + 1;
    } else {
        for (unsigned i = 1; i < OPTIONS_COUNT; i++)
            if (options_table[i].letter && options_table[i].letter == argument[1]) id = (OptionId)i;
        if (argument[2]) *value = argument + 2;
    }
    return id != OPTION_END && options_takes(verb, id) ? id : OPTION_END;
}

static int options_flag(Options *out, const OptionVerb *verb, int argc, char **argv, int *at)
{
    const char *argument = argv[*at], *text;
    OptionId id = options_find_flag(verb, argument, &text);
    if (id == OPTION_END) return options_unknown(verb, argument);
    const OptionSpec *spec = &options_table[id];
    OptionValue *value = &out->values[id];
    static char flags[OPTIONS_COUNT][32];
    (void)snprintf(flags[id], sizeof flags[id], "--%s", spec->name);
    if (spec->kind == OPTION_SWITCH && !text) text = "yes";
    else if (!text) {
        if (*at + 1 >= argc) {
            char allowed[160];
            options_allowed(allowed, sizeof allowed, spec);
            return complain_usage("missing value: %s: needs %s.", flags[id], allowed);
        }
        text = argv[++*at];
    }
    if (id == OPTION_STOP) {
        if (out->stop_count == OPTIONS_TEXTS_MAX)
            return complain_usage("too many values: --stop: at most %d.", OPTIONS_TEXTS_MAX);
        out->stops[out->stop_count++] = text;
    }
    *value = (OptionValue){.given = true, .text = text, .where = flags[id]};
    return options_parse(spec, text, value) ? 0 : options_refuse(spec, flags[id], text);
}

static int options_arguments(Options *out, const OptionVerb *verb, int argc, char **argv)
{
    bool flags = true;
    for (int i = 1; i < argc; i++) {
        if (flags && strcmp(argv[i], "--") == 0) {
            flags = false;
        } else if (flags && argv[i][0] == '-' && argv[i][1]) {
            int code = options_flag(out, verb, argc, argv, &i);
            if (code) return code;
        } else if (out->operand_count == verb->operands_max ||
                   out->operand_count == OPTIONS_OPERANDS_MAX) {
            return complain_usage("too many arguments: '%.100s': `cobord %s` takes %s.%s", argv[i],
                                  verb->name, verb->usage,
                                  verb->operands_max > 1 ? " Put quotes around a text with spaces."
                                                         : "");
        } else {
            out->operands[out->operand_count++] = argv[i];
        }
    }
    return 0;
}

static bool options_wants_help(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
    return false;
}

/* Tells the host where things are. */
static void options_places(const Options *o)
{
    const char *texts[3];
    static const OptionId ids[3] = {OPTION_CACHE, OPTION_HUB, OPTION_HUB_TOKEN};
    for (int i = 0; i < 3; i++)
        texts[i] = o->values[ids[i]].text ? o->values[ids[i]].text : options_setting(ids[i]);
    places_set(texts[0], texts[1], texts[2]);
}

bool options_read(Options *out, const OptionVerb *verb, int argc, char **argv, int *exit_code)
{
    memset(out, 0, sizeof *out);
    *exit_code = 0;
    if (options_wants_help(argc, argv)) {
        options_help(verb);
        return false;
    }
    *exit_code = options_arguments(out, verb, argc, argv);
    if (*exit_code == 0) *exit_code = options_config_read();
    for (const OptionId *o = verb->options; *exit_code == 0 && *o != OPTION_END; o++)
        *exit_code = options_fill(&out->values[*o], *o);
    if (*exit_code == 0 && out->operand_count < verb->operands_min)
        *exit_code =
            complain_usage("missing argument: %s: usage: cobord %s %s. See: cobord help %s",
                           verb->operand_names ? verb->operand_names : "MODEL", verb->name,
                           verb->usage, verb->name);
    if (*exit_code == 0) options_places(out);
    return *exit_code == 0;
}

const char *options_where(const Options *o, OptionId id)
{
    static char flags[OPTIONS_COUNT][32];
    if (o->values[id].where) return o->values[id].where;
    (void)snprintf(flags[id], sizeof flags[id], "--%s", options_table[id].name);
    return flags[id];
}

void options_print_safely(FILE *out, const char *text)
{
    size_t bytes = strlen(text);
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        size_t hidden = mask_bytes(text, bytes, (size_t)((const char *)p - text));
        if (hidden) {
            fputs(MASK_SHOWN, out);
            p += hidden - 1;
            continue;
        }
        bool c1 =
            p[0] == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0; /* U+0080..9F: terminals obey these too */
        if (*p < 0x20 || *p == 0x7f || c1) fprintf(out, "\\x%02x", *p);
        else fputc(*p, out);
    }
}
