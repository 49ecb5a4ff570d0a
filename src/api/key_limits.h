/* SPDX-License-Identifier: Apache-2.0 */
/* What one API key may do: requests and tokens in a minute, requests at once.
 *
 * Both rates are buckets that hold a minute's worth, begin full and fill steadily:
 *
 *   requests   one is taken by each request that is let in
 *   tokens     a prompt is let in when the bucket has all of it, which is then taken. What is generated is taken as
 *              it comes, also below zero: an answer that was begun is never cut. Until the bucket has filled up
 *              again nothing new is let in.
 *
 * So tokens of a minute exceed the limit by what was under way at once at most. The time is passed in; a clock that
 * goes backwards fills nothing. */
#ifndef COBORD_API_KEY_LIMITS_H
#define COBORD_API_KEY_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct KeyLimits {
    uint32_t requests_per_minute, tokens_per_minute, concurrent; /* 0: no limit */
} KeyLimits;

typedef struct KeyBucket {
    uint32_t limit; /* 0: it is never empty */
    int64_t level;  /* in 1/60000 of one: what a limit of 1 fills in a millisecond */
    uint64_t seen_ns;
} KeyBucket;

typedef struct KeyLimiter {
    KeyBucket requests, tokens;
    uint32_t concurrent, running;
} KeyLimiter;

void key_limits_start(KeyLimiter *k, const KeyLimits *limits, uint64_t now_ns);
/* Other limits, of a key that is in use: buckets stay as full as they were. */
void key_limits_change(KeyLimiter *k, const KeyLimits *limits, uint64_t now_ns);

/* Result  0: it was taken; else the milliseconds until it can be; KEY_LIMITS_NEVER: it is more than a minute's. */
#define KEY_LIMITS_NEVER UINT64_MAX
uint64_t key_limits_take(KeyBucket *b, uint64_t count, uint64_t now_ns);
/* Takes also what is not there. */
void key_limits_charge(KeyBucket *b, uint64_t count, uint64_t now_ns);
/* What is there now, 0 of a bucket in debt; the milliseconds until it is full. */
uint64_t key_limits_left(KeyBucket *b, uint64_t now_ns);
uint64_t key_limits_full_ms(KeyBucket *b, uint64_t now_ns);

/* One more at once. Result  false: there are as many as may be. Give back each that was taken. */
bool key_limits_enter(KeyLimiter *k);
void key_limits_leave(KeyLimiter *k);

/* "6m0s", "1.5s", "20ms": how OpenAI's headers say a duration. */
enum { KEY_LIMITS_DURATION_BYTES = 24 };
void key_limits_write_duration(uint64_t ms, char out[KEY_LIMITS_DURATION_BYTES]);

#endif
