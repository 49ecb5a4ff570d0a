/* SPDX-License-Identifier: Apache-2.0 */
/* A library to be loaded before the others (LD_PRELOAD): other clocks for the program and all its libraries.
 *
 *     CLOCK_CONTROL=FILE LD_PRELOAD=libshift_clock.so cobord up ...
 *
 * The file's words, of 64 bits each, may change while programs run:
 *
 *     wall     added to the time of day, ns
 *     steady   added to the clocks that go on steadily, ns
 *     frozen   not 0: the steady clocks stand still there, ns
 *
 * A wait for a moment of the time of day is left as the program asks for it: with a time that is ahead, as if the clock
 * was set back right after the moment was computed. A wait by the steady clock ends as if the kernel had ours. */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

typedef struct Shift {
    _Atomic int64_t wall_ns, steady_ns, frozen_ns;
} Shift;

enum { CONDITIONS_MAX = 4096 };
static const int64_t SECOND_NS = 1000000000;

static Shift none, *shift = &none;
static _Atomic(pthread_cond_t *)
    steady[CONDITIONS_MAX]; /* conditions that go by the steady clock */

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("CLOCK_CONTROL");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *map = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof none, PROT_READ, MAP_SHARED, fd, 0);
    if (map != MAP_FAILED) shift = map;
    if (fd >= 0) (void)close(fd);
}

static int64_t real_ns(clockid_t clock)
{
    struct timespec t = {0, 0};
    (void)syscall(SYS_clock_gettime, clock, &t);
    return t.tv_sec * SECOND_NS + t.tv_nsec;
}

static int64_t now_ns(clockid_t clock)
{
    int64_t frozen = atomic_load(&shift->frozen_ns);
    switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE: return real_ns(clock) + atomic_load(&shift->wall_ns);
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_BOOTTIME: return (frozen ? frozen : real_ns(clock)) + atomic_load(&shift->steady_ns);
    default: return real_ns(clock);
    }
}

static struct timespec spec(int64_t ns)
{
    return (struct timespec){(time_t)(ns / SECOND_NS), (long)(ns % SECOND_NS)};
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
    *out = spec(now_ns(clock));
    return 0;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    int64_t ns = now_ns(CLOCK_REALTIME);
    (void)zone;
    *out = (struct timeval){(time_t)(ns / SECOND_NS), (suseconds_t)(ns % SECOND_NS / 1000)};
    return 0;
}

time_t time(time_t *out)
{
    time_t now = (time_t)(now_ns(CLOCK_REALTIME) / SECOND_NS);
    if (out) *out = now;
    return now;
}

/* --- waits --- */

static _Atomic(pthread_cond_t *) *find(pthread_cond_t *condition)
{
    for (int i = 0; i < CONDITIONS_MAX; i++)
        if (atomic_load(&steady[i]) == condition) return &steady[i];
    return NULL;
}

int pthread_cond_init(pthread_cond_t *restrict condition,
                      const pthread_condattr_t *restrict attributes)
{
    int (*real)(pthread_cond_t *, const pthread_condattr_t *) =
        (int (*)(pthread_cond_t *, const pthread_condattr_t *))(uintptr_t)dlsym(
            RTLD_NEXT, "pthread_cond_init");
    clockid_t clock = CLOCK_REALTIME;
    if (attributes) (void)pthread_condattr_getclock(attributes, &clock);
    _Atomic(pthread_cond_t *) *place = find(condition);
    if (place) atomic_store(place, NULL); /* another one that was there */
    for (int i = 0; clock == CLOCK_MONOTONIC && i < CONDITIONS_MAX; i++) {
        pthread_cond_t *free_place = NULL;
        if (atomic_compare_exchange_strong(&steady[i], &free_place, condition)) break;
    }
    return real(condition, attributes);
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict lock,
                           const struct timespec *restrict until)
{
    int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *) =
        (int (*)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *))(uintptr_t)dlsym(
            RTLD_NEXT, "pthread_cond_timedwait");
    struct timespec t = *until;
    if (find(condition)) {
        int64_t ns = t.tv_sec * SECOND_NS + t.tv_nsec - atomic_load(&shift->steady_ns);
        t = spec(ns > 0 ? ns : 0);
    }
    return real(condition, lock, &t);
}
