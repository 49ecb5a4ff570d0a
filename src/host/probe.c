/* SPDX-License-Identifier: Apache-2.0 */
#include "host/probe.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/clock.h"
#include "host/cpu.h"
#include "host/listen.h"
#include "host/memory.h"
#include "host/pool.h"

enum {
    PROBE_BUFFER_BYTES = 192 << 20, /* more than a last-level cache keeps */
    PROBE_PIECE_BYTES = 16 << 20,
    PROBE_PIECES_MAX = 256,
    PROBE_ITEM_BYTES = 1 << 20,
    PROBE_READ_NS = 60000000,
    PROBE_MESSAGE_BYTES = 6 << 10,
    PROBE_ROUNDS = 101
};

/* ---- Memory */

typedef struct ProbeRead {
    const uint64_t *words;
    uint64_t sums[PARALLEL_WORKERS_MAX][8];
} ProbeRead;

static void probe_read_item(void *argument, uint32_t item, uint32_t worker)
{
    ProbeRead *job = argument;
    const uint64_t *w = job->words + (size_t)item * (PROBE_ITEM_BYTES / sizeof *w);
    uint64_t sum[32] = {0}; /* enough of them for the widest registers */
    for (size_t i = 0; i < PROBE_ITEM_BYTES / sizeof *w; i += 32)
        for (size_t lane = 0; lane < 32; lane++) sum[lane] += w[i + lane];
    for (size_t lane = 0; lane < 32; lane++) job->sums[worker][lane % 8] += sum[lane];
}

static void probe_fill_item(void *argument, uint32_t item, uint32_t worker)
{
    (void)worker;
    memset((uint8_t *)argument + (size_t)item * PROBE_ITEM_BYTES, (int)(item | 1),
           PROBE_ITEM_BYTES);
}

static int probe_compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Piece after piece, round and round, so that none is in the cache when its turn comes. The fast quarter counts:
 * others may be at work too. */
static double probe_read(const Parallel *parallel, uint8_t *buffer)
{
    uint64_t took[PROBE_PIECES_MAX], sum = 0, start;
    size_t count = 0;
    ProbeRead *job = calloc(1, sizeof *job);
    if (!job) return 0;
    parallel_run(parallel, probe_fill_item, buffer, PROBE_BUFFER_BYTES / PROBE_ITEM_BYTES);
    start = clock_now_ns();
    while (count < PROBE_PIECES_MAX && (count < 4 || clock_now_ns() - start < PROBE_READ_NS)) {
        size_t piece = count % (PROBE_BUFFER_BYTES / PROBE_PIECE_BYTES);
        job->words = (const uint64_t *)(const void *)(buffer + piece * PROBE_PIECE_BYTES);
        uint64_t from = clock_now_ns();
        parallel_run(parallel, probe_read_item, job, PROBE_PIECE_BYTES / PROBE_ITEM_BYTES);
        took[count++] = clock_now_ns() - from;
    }
    for (size_t w = 0; w < PARALLEL_WORKERS_MAX; w++)
        for (size_t lane = 0; lane < 8; lane++) sum += job->sums[w][lane];
    free(job);
    qsort(took, count, sizeof took[0], probe_compare);
    uint64_t quarter = took[count / 4];
    return sum && quarter ? (double)PROBE_PIECE_BYTES / (double)quarter : 0;
}

double probe_bandwidth_gbs(void)
{
    Why why = {{0}};
    Pool *pool;
    double gbs = 0;
    if (memory_allowed() < 4 * (uint64_t)PROBE_BUFFER_BYTES) return 0;
    uint32_t cores = cpu_cores();
    if (pool_start(cores < PARALLEL_WORKERS_MAX ? cores : PARALLEL_WORKERS_MAX, &pool, &why) != OK)
        return 0;
    uint8_t *buffer = mmap(NULL, PROBE_BUFFER_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (buffer != MAP_FAILED) {
        (void)madvise(buffer, PROBE_BUFFER_BYTES, MADV_HUGEPAGE);
        Parallel parallel = pool_parallel(pool);
        gbs = probe_read(&parallel, buffer);
        (void)munmap(buffer, PROBE_BUFFER_BYTES);
    }
    pool_stop(pool);
    return gbs;
}

/* ---- Loopback */

static bool probe_transfer(int fd, uint8_t *bytes, bool out)
{
    for (size_t done = 0; done < PROBE_MESSAGE_BYTES;) {
        ssize_t n = out ? send(fd, bytes + done, PROBE_MESSAGE_BYTES - done, MSG_NOSIGNAL)
                        : recv(fd, bytes + done, PROBE_MESSAGE_BYTES - done, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        done += (size_t)n;
    }
    return true;
}

static void *probe_echo(void *argument)
{
    int fd = *(int *)argument;
    uint8_t bytes[PROBE_MESSAGE_BYTES];
    while (probe_transfer(fd, bytes, false) && probe_transfer(fd, bytes, true)) {
    }
    (void)shutdown(fd, SHUT_RDWR); /* nobody waits for what does not come */
    return NULL;
}

static double probe_rounds(int fd)
{
    uint64_t took[PROBE_ROUNDS];
    uint8_t bytes[PROBE_MESSAGE_BYTES] = {0};
    for (int i = 0; i < PROBE_ROUNDS; i++) {
        uint64_t from = clock_now_ns();
        if (!probe_transfer(fd, bytes, true) || !probe_transfer(fd, bytes, false)) return 0;
        took[i] = clock_now_ns() - from;
    }
    qsort(took, PROBE_ROUNDS, sizeof took[0], probe_compare);
    return (double)took[PROBE_ROUNDS / 2] / 1000;
}

/* Two connected sockets; false when there are none. */
static bool probe_connect(int *near, int *far)
{
    Listen listen;
    Why why = {{0}};
    struct sockaddr_storage address;
    socklen_t bytes = sizeof address;
    int on = 1;
    *near = *far = -1;
    if (listen_open("127.0.0.1:0", &listen, &why) != OK) return false;
    *near = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*near >= 0 && getsockname(listen.fd, (struct sockaddr *)&address, &bytes) == 0 &&
        connect(*near, (struct sockaddr *)&address, bytes) == 0)
        *far = accept4(listen.fd, NULL, NULL, SOCK_CLOEXEC);
    close(listen.fd);
    if (*far < 0) return false;
    (void)setsockopt(*near, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(*far, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return true;
}

double probe_loopback_us(void)
{
    int near, far;
    pthread_t thread;
    double us = 0;
    if (probe_connect(&near, &far) && pthread_create(&thread, NULL, probe_echo, &far) == 0) {
        us = probe_rounds(near);
        (void)shutdown(near, SHUT_RDWR);
        (void)pthread_join(thread, NULL);
    }
    if (near >= 0) close(near);
    if (far >= 0) close(far);
    return us;
}
