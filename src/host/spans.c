/* SPDX-License-Identifier: Apache-2.0 */
#include "host/spans.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

static struct {
    pthread_once_t once;
    atomic_ullong state;
    pthread_mutex_t lock; /* of: */
    Trace now;
} spans = {.once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER};

static void seed(void)
{
    unsigned long long chance;
    if (getrandom(&chance, sizeof chance, 0) != sizeof chance)
        chance = (unsigned long long)time(NULL);
    spans.state = chance;
}

/* That it cannot be guessed is no matter here; that it does not come twice is.
 * Source  SplitMix64, Steele, Lea and Flood, 2014. */
uint64_t spans_number(void)
{
    (void)pthread_once(&spans.once, seed);
    uint64_t z = atomic_fetch_add(&spans.state, 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

void spans_enter(const Trace *trace)
{
    pthread_mutex_lock(&spans.lock);
    if (trace) spans.now = *trace;
    else spans.now.trace_id[0] = '\0';
    pthread_mutex_unlock(&spans.lock);
}

void spans_write(const Trace *trace, char out[SPANS_LINE_BYTES])
{
    static const char name[] = "traceparent: ";
    memcpy(out, name, sizeof name - 1);
    trace_write(trace, out + sizeof name - 1);
}

bool spans_line(char out[SPANS_LINE_BYTES])
{
    pthread_mutex_lock(&spans.lock);
    Trace now = spans.now;
    pthread_mutex_unlock(&spans.lock);
    if (!now.trace_id[0]) return false;
    now = trace_below(&now, spans_number());
    spans_write(&now, out);
    return true;
}
