/* SPDX-License-Identifier: Apache-2.0 */
#include "api/key_limits.h"

#include <string.h>

#include "base/error.h"

enum { MINUTE_MS = 60000, MS_NS = 1000000 };

/* ---- Buckets ---- */

static int64_t capacity(const KeyBucket *b) { return (int64_t)b->limit * MINUTE_MS; }

static KeyBucket full_bucket(uint32_t limit, uint64_t now_ns)
{
    KeyBucket b = {.limit = limit, .seen_ns = now_ns};
    b.level = capacity(&b);
    return b;
}

/* Whole milliseconds only: what is left of one counts the next time. A bucket in debt may need more than a minute. */
static void fill(KeyBucket *b, uint64_t now_ns)
{
    if (now_ns < b->seen_ns) b->seen_ns = now_ns;
    uint64_t passed_ms = (now_ns - b->seen_ns) / MS_NS,
             missing = (uint64_t)(capacity(b) - b->level);
    b->seen_ns += passed_ms * MS_NS;
    if (b->limit && passed_ms < missing / b->limit + 1)
        missing = passed_ms * b->limit < missing ? passed_ms * b->limit : missing;
    b->level += (int64_t)missing;
}

static uint64_t ms_until(const KeyBucket *b, int64_t level)
{
    if (b->level >= level) return 0;
    return ((uint64_t)(level - b->level) + b->limit - 1) / b->limit;
}

uint64_t key_limits_take(KeyBucket *b, uint64_t count, uint64_t now_ns)
{
    if (!b->limit) return 0;
    if (count > b->limit) return KEY_LIMITS_NEVER;
    fill(b, now_ns);
    uint64_t wait_ms = ms_until(b, (int64_t)count * MINUTE_MS);
    if (!wait_ms) b->level -= (int64_t)count * MINUTE_MS;
    return wait_ms;
}

/* Debts end at a day of filling: more would be no use to anybody, and numbers stay small. */
void key_limits_charge(KeyBucket *b, uint64_t count, uint64_t now_ns)
{
    if (!b->limit) return;
    fill(b, now_ns);
    int64_t lowest = -capacity(b) * 24 * 60;
    if (count > INT32_MAX) count = INT32_MAX;
    b->level -= (int64_t)count * MINUTE_MS;
    if (b->level < lowest) b->level = lowest;
}

uint64_t key_limits_left(KeyBucket *b, uint64_t now_ns)
{
    fill(b, now_ns);
    return b->level > 0 ? (uint64_t)b->level / MINUTE_MS : 0;
}

uint64_t key_limits_full_ms(KeyBucket *b, uint64_t now_ns)
{
    fill(b, now_ns);
    return b->limit ? ms_until(b, capacity(b)) : 0;
}

/* ---- A key ---- */

void key_limits_start(KeyLimiter *k, const KeyLimits *limits, uint64_t now_ns)
{
    *k = (KeyLimiter){.requests = full_bucket(limits->requests_per_minute, now_ns),
                      .tokens = full_bucket(limits->tokens_per_minute, now_ns),
                      .concurrent = limits->concurrent};
}

/* As full as it was, in parts of its limit. The quotient first: the product may not fit. */
static void change(KeyBucket *b, uint32_t limit, uint64_t now_ns)
{
    KeyBucket changed = full_bucket(limit, now_ns);
    fill(b, now_ns);
    if (b->limit)
        changed.level = b->level / b->limit * limit + b->level % b->limit * limit / b->limit;
    changed.seen_ns = b->seen_ns;
    *b = changed;
}

void key_limits_change(KeyLimiter *k, const KeyLimits *limits, uint64_t now_ns)
{
    change(&k->requests, limits->requests_per_minute, now_ns);
    change(&k->tokens, limits->tokens_per_minute, now_ns);
    k->concurrent = limits->concurrent;
}

bool key_limits_enter(KeyLimiter *k)
{
    if (k->concurrent && k->running >= k->concurrent) return false;
    k->running++;
    return true;
}

void key_limits_leave(KeyLimiter *k)
{
    ASSERT(k->running > 0);
    k->running--;
}

/* ---- Durations ---- */

static char *add_number(char *at, uint64_t value)
{
    char digits[20];
    size_t first = sizeof digits;
    do digits[--first] = (char)('0' + value % 10);
    while (value /= 10);
    memcpy(at, digits + first, sizeof digits - first);
    return at + (sizeof digits - first);
}

static char *add_thousandths(char *at, unsigned value)
{
    if (!value) return at;
    *at++ = '.';
    for (unsigned unit = 100; value; unit /= 10) {
        *at++ = (char)('0' + value / unit);
        value %= unit;
    }
    return at;
}

void key_limits_write_duration(uint64_t ms, char out[KEY_LIMITS_DURATION_BYTES])
{
    char *at = out;
    const uint64_t day_ms = 24 * 60 * (uint64_t)MINUTE_MS;
    if (ms > 999 * day_ms) ms = 999 * day_ms;
    if (ms < 1000) {
        at = add_number(at, ms);
        *at++ = 'm';
    } else {
        uint64_t minutes = ms / MINUTE_MS, seconds = ms % MINUTE_MS / 1000;
        if (minutes) {
            at = add_number(at, minutes);
            *at++ = 'm';
        }
        at = add_thousandths(add_number(at, seconds), (unsigned)(ms % 1000));
    }
    memcpy(at, "s", 2);
}
