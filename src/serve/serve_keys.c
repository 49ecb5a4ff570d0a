/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/serve_keys.h"

#include <stdlib.h>
#include <string.h>

#include "api/bearer.h"
#include "api/keys.h"
#include "api/metrics.h"
#include "serve/machine.h"
#include "serve/serve_state.h"

struct ServeKey {
    char name[KEYS_NAME_BYTES];
    bool admin;
    KeyLimiter limiter;
    uint64_t requests, refused, prompt_tokens, generated_tokens;
    uint32_t references; /* of tables and requests */
};

struct ServeKeys {
    void *memory; /* of `keys` */
    Keys keys;
    ServeKey **list; /* [keys.count] */
};

enum { HEADER_BYTES = 128 };

/* ---- Tables ---- */

static void release(ServeKey *key)
{
    if (key && --key->references == 0) free(key);
}

void serve_keys_free(ServeKeys *t)
{
    if (!t) return;
    for (uint32_t i = 0; t->list && i < t->keys.count; i++) release(t->list[i]);
    free(t->list);
    free(t->memory);
    free(t);
}

static Error no_memory(Why *why)
{
    return error_why(why, ERR_MEMORY, "no memory for the API keys");
}

static Error make_list(ServeKeys *t, Why *why)
{
    t->list = calloc((size_t)t->keys.count + 1, sizeof *t->list);
    if (!t->list) return no_memory(why);
    for (uint32_t i = 0; i < t->keys.count; i++) {
        const KeysEntry *entry = &t->keys.entries[i];
        ServeKey *key = t->list[i] = calloc(1, sizeof *key);
        if (!key) return no_memory(why);
        *key = (ServeKey){.admin = entry->admin, .references = 1};
        memcpy(key->name, entry->name, sizeof key->name);
        key_limits_start(&key->limiter, &entry->limits, machine_wall_ns());
    }
    return OK;
}

static Error make_table(const char *text, size_t bytes, ServeKeys **out, Why *why)
{
    size_t room = keys_bytes(bytes);
    ServeKeys *t = *out = calloc(1, sizeof *t);
    if (!t || !(t->memory = malloc(room))) return no_memory(why);
    Arena arena = arena_make(t->memory, room);
    TRY(keys_parse(text, bytes, &arena, &t->keys, why));
    return make_list(t, why);
}

/* What keys of the same name have used goes on in the new table. */
static void take_over(ServeKeys *t, const ServeKeys *old)
{
    for (uint32_t i = 0; old && i < t->keys.count; i++) {
        const KeysEntry *entry = &t->keys.entries[i];
        uint32_t before = keys_find_name(&old->keys, entry->name);
        if (before == KEYS_NONE) continue;
        release(t->list[i]);
        ServeKey *key = t->list[i] = old->list[before];
        key->references++;
        key->admin = entry->admin;
        key_limits_change(&key->limiter, &entry->limits, machine_wall_ns());
    }
}

Error serve_load_keys(Serve *s, const char *text, size_t bytes, Why *why)
{
    ServeKeys *made = NULL;
    Error error = bytes > KEYS_TEXT_BYTES_MAX
                      ? error_why(why, ERR_TOO_LARGE, "more than %d bytes", KEYS_TEXT_BYTES_MAX)
                      : make_table(text, bytes, &made, why);
    if (error != OK) {
        serve_keys_free(made);
        return error;
    }
    machine_lock(s->keys_lock);
    ServeKeys *old = s->keys;
    take_over(made, old);
    s->keys = made;
    serve_keys_free(old);
    machine_unlock(s->keys_lock);
    return OK;
}

uint32_t serve_count_keys(Serve *s)
{
    machine_lock(s->keys_lock);
    uint32_t count = s->keys ? s->keys->keys.count : 0;
    machine_unlock(s->keys_lock);
    return count;
}

/* ---- Refusals; each under the lock ---- */

/* The request's key; NULL with the refusal. */
static ServeKey *find(const Serve *s, const HttpExchange *x, Refusal *refusal)
{
    size_t bytes = 0;
    const char *given = bearer_key(http_exchange_header(x, "Authorization"), &bytes);
    uint32_t at = given && bytes ? keys_find(&s->keys->keys, given, bytes) : KEYS_NONE;
    if (at != KEYS_NONE) return s->keys->list[at];
    (void)refusal_make(refusal, REFUSAL_KEY, NULL,
                       given && bytes
                           ? "this API key is not known here"
                           : "an API key is needed: send the header Authorization: Bearer KEY");
    return NULL;
}

static unsigned seconds_of(uint64_t ms)
{
    uint64_t seconds = ms / 1000 + (ms % 1000 != 0);
    return seconds > UINT32_MAX ? UINT32_MAX : (unsigned)seconds;
}

static bool refuse_rate(ServeKey *key, RefusalKind kind, uint32_t limit, uint64_t wait_ms,
                        Refusal *refusal)
{
    char wait[KEY_LIMITS_DURATION_BYTES];
    key_limits_write_duration(wait_ms, wait);
    key->refused++;
    (void)refusal_make(refusal, kind, NULL, "key %s may use %u %s a minute: try again in %s",
                       key->name, limit, kind == REFUSAL_TOKENS ? "tokens" : "requests", wait);
    refusal->retry_s = seconds_of(wait_ms);
    return false;
}

/* ---- Headers, with OpenAI's names; under the lock ---- */

static char *append(char *at, const char *text)
{
    size_t bytes = strlen(text);
    memcpy(at, text, bytes + 1);
    return at + bytes;
}

static void add_header(HttpExchange *x, const char *name, const char *of, const char *value)
{
    char line[HEADER_BYTES];
    (void)append(append(append(append(line, name), of), ": "), value);
    (void)http_answer_header(x, line);
}

static void add_count(HttpExchange *x, const char *name, const char *of, uint64_t count)
{
    char digits[24];
    JsonWriter w = json_writer_make(digits, sizeof digits - 1);
    json_writer_u64(&w, count);
    digits[w.used] = '\0';
    add_header(x, name, of, digits);
}

static void tell_bucket(HttpExchange *x, KeyBucket *b, const char *of)
{
    char reset[KEY_LIMITS_DURATION_BYTES];
    uint64_t now = machine_wall_ns();
    if (!b->limit) return;
    key_limits_write_duration(key_limits_full_ms(b, now), reset);
    add_count(x, "x-ratelimit-limit-", of, b->limit);
    add_count(x, "x-ratelimit-remaining-", of, key_limits_left(b, now));
    add_header(x, "x-ratelimit-reset-", of, reset);
}

static void tell(HttpExchange *x, ServeKey *key)
{
    tell_bucket(x, &key->limiter.requests, "requests");
    tell_bucket(x, &key->limiter.tokens, "tokens");
}

void serve_keys_tell(Serve *s, HttpExchange *x, ServeKey *key)
{
    if (!key) return;
    machine_lock(s->keys_lock);
    tell(x, key);
    machine_unlock(s->keys_lock);
}

/* ---- Requests ---- */

bool serve_keys_check(Serve *s, HttpExchange *x, bool admin, Refusal *refusal)
{
    machine_lock(s->keys_lock);
    const ServeKey *key = s->keys ? find(s, x, refusal) : NULL;
    bool fine = !s->keys || (key && (key->admin || !admin));
    if (key) memcpy(http_exchange_record(x)->key_name, key->name, sizeof key->name);
    if (!fine && key)
        (void)refusal_make(refusal, REFUSAL_ADMIN, NULL,
                           "this path is for keys with \"admin\": true, and %s has none",
                           key->name);
    machine_unlock(s->keys_lock);
    return fine;
}

static bool take_request(ServeKey *key, HttpExchange *x, Refusal *refusal)
{
    uint64_t wait_ms = key_limits_take(&key->limiter.requests, 1, machine_wall_ns());
    key->requests++;
    if (!wait_ms) return true;
    tell(x, key);
    return refuse_rate(key, REFUSAL_REQUESTS, key->limiter.requests.limit, wait_ms, refusal);
}

bool serve_keys_take_request(Serve *s, HttpExchange *x, Refusal *refusal)
{
    machine_lock(s->keys_lock);
    ServeKey *key = s->keys ? find(s, x, refusal) : NULL;
    bool fine = !s->keys || (key && take_request(key, x, refusal));
    machine_unlock(s->keys_lock);
    return fine;
}

static bool enter(ServeKey *key, HttpExchange *x, Refusal *refusal)
{
    if (key_limits_enter(&key->limiter)) {
        key->references++;
        return true;
    }
    key->refused++;
    tell(x, key);
    return refusal_make(refusal, REFUSAL_REQUESTS, NULL,
                        "key %s may have %u requests at once: try again when one of them is done",
                        key->name, key->limiter.concurrent);
}

bool serve_keys_enter(Serve *s, HttpExchange *x, ServeKey **out, Refusal *refusal)
{
    machine_lock(s->keys_lock);
    ServeKey *key = s->keys ? find(s, x, refusal) : NULL;
    bool fine = !s->keys || (key && enter(key, x, refusal));
    *out = fine ? key : NULL;
    machine_unlock(s->keys_lock);
    return fine;
}

const char *serve_keys_name(const ServeKey *key) { return key ? key->name : ""; }

void serve_keys_leave(Serve *s, ServeKey *key)
{
    if (!key) return;
    machine_lock(s->keys_lock);
    key_limits_leave(&key->limiter);
    release(key);
    machine_unlock(s->keys_lock);
}

/* ---- Tokens ---- */

static bool refuse_tokens(ServeKey *key, size_t count, uint64_t wait_ms, Refusal *refusal)
{
    uint32_t limit = key->limiter.tokens.limit;
    if (wait_ms != KEY_LIMITS_NEVER)
        return refuse_rate(key, REFUSAL_TOKENS, limit, wait_ms, refusal);
    key->refused++;
    return refusal_make(refusal, REFUSAL_TOO_LARGE, NULL,
                        "the prompt has %zu tokens, and key %s may use %u a minute", count,
                        key->name, limit);
}

bool serve_keys_take_tokens(Serve *s, HttpExchange *x, ServeKey *key, size_t count,
                            Refusal *refusal)
{
    if (!key) return true;
    machine_lock(s->keys_lock);
    uint64_t wait_ms = key_limits_take(&key->limiter.tokens, count, machine_wall_ns());
    if (!wait_ms) key->prompt_tokens += count;
    tell(x, key);
    bool fine = !wait_ms || refuse_tokens(key, count, wait_ms, refusal);
    machine_unlock(s->keys_lock);
    return fine;
}

void serve_keys_charge(Serve *s, ServeKey *key, uint32_t tokens)
{
    if (!key) return;
    machine_lock(s->keys_lock);
    key_limits_charge(&key->limiter.tokens, tokens, machine_wall_ns());
    key->generated_tokens += tokens;
    machine_unlock(s->keys_lock);
}

/* ---- /metrics: a family after the other, each with a line a key ---- */

enum { FAMILY_BYTES = 256, SAMPLE_BYTES = KEYS_NAME_BYTES + 80 };

typedef struct Family {
    const char *name, *help;
    MetricsType type;
    uint64_t (*value)(const ServeKey *key);
} Family;

static uint64_t requests_of(const ServeKey *key) { return key->requests; }
static uint64_t refused_of(const ServeKey *key) { return key->refused; }
static uint64_t prompt_of(const ServeKey *key) { return key->prompt_tokens; }
static uint64_t generated_of(const ServeKey *key) { return key->generated_tokens; }
static uint64_t running_of(const ServeKey *key) { return key->limiter.running; }

static const Family families[] = {
    {"cobord_key_requests_total", "Requests of an API key, refused ones too.", METRICS_COUNTER,
     requests_of},
    {"cobord_key_refused_total", "Requests that were over a limit of the key.", METRICS_COUNTER,
     refused_of},
    {"cobord_key_prompt_tokens_total", "Tokens of prompts that the key was charged.",
     METRICS_COUNTER, prompt_of},
    {"cobord_key_generated_tokens_total", "Tokens of answers that the key was charged.",
     METRICS_COUNTER, generated_of},
    {"cobord_key_running", "Requests of the key that are under way.", METRICS_GAUGE, running_of},
};
enum { FAMILIES = sizeof families / sizeof families[0] };

size_t serve_keys_metrics_bytes(Serve *s)
{
    return FAMILIES * (FAMILY_BYTES + (size_t)serve_count_keys(s) * SAMPLE_BYTES);
}

/* Keys that have come since the room was measured wait for the next time. */
void serve_keys_metrics(Serve *s, JsonWriter *w)
{
    machine_lock(s->keys_lock);
    const ServeKeys *t = s->keys;
    size_t room = (w->max - w->used) / FAMILIES, count = t ? t->keys.count : 0;
    size_t most = room > FAMILY_BYTES ? (room - FAMILY_BYTES) / SAMPLE_BYTES : 0;
    if (count > most) count = most;
    for (size_t f = 0; f < FAMILIES && count; f++) {
        const Family *family = &families[f];
        metrics_head(w, family->name, family->help, family->type);
        for (size_t i = 0; i < count; i++) /* names have nothing to escape */
            metrics_line(w, family->name, &METRICS_LABEL("key", t->list[i]->name),
                         family->value(t->list[i]));
    }
    machine_unlock(s->keys_lock);
}
