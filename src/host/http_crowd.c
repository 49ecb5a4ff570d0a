/* SPDX-License-Identifier: Apache-2.0 */
/* Who has to go when more connect than there is room for. A connection costs a client nothing, so that without this ten
 * thousand that say nothing keep everybody else out for a minute.
 *
 *   lines ---------------------------------------------------- most
 *         |  let in as they come   | each new one: an old one goes |
 *
 *   the first that go    do not read their answer: nothing of it could be sent for STALLED_S
 *   then                 have not sent a whole request, and never brought one that was answered
 *   then                 have not sent a whole request, but have been served before
 *   then                 read their answer, but have taken longer than STALLED_S
 *   never                are being answered
 *
 * Of those that are alike, first the address that has the most of them (of IPv6 its first 64 bits), and of that the
 * one that has waited longest: one host does not drive out the others. Behind a proxy all have one address, and the
 * oldest goes. Which addresses have one count together is a secret of the server (a seed), or somebody would choose
 * addresses that make a neighbour's count the highest.
 * A stranger that has just come stays while there are few of its kind.
 * Does not know who is honest: who sends a head at once is answered, whoever else is there. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/hash.h"
#include "host/clock.h"
#include "host/http_state.h"

enum {
    SPARE_SHARE = 8,
    FILES_OF_OTHERS = 256,
    STALLED_S = 5,
    YOUNG_MS = 1000,
    SHED_AT_ONCE = 100,
    ADDRESSES = 1024
};

typedef enum Claim { STALLED, STRANGER, SERVED, SLOW, STAYS } Claim;

uint32_t http_crowd_room(uint32_t wanted)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) return wanted;
    rlim_t enough = (rlim_t)wanted + FILES_OF_OTHERS;
    if (files.rlim_cur < enough && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max < enough ? files.rlim_max : enough;
        if (setrlimit(RLIMIT_NOFILE, &files) != 0) (void)getrlimit(RLIMIT_NOFILE, &files);
    }
    if (files.rlim_cur >= enough) return wanted;
    rlim_t room = files.rlim_cur > 2 * FILES_OF_OTHERS ? files.rlim_cur - FILES_OF_OTHERS
                                                       : files.rlim_cur / 2;
    return room < wanted ? (uint32_t)room : wanted;
}

static uint32_t address_of(uint64_t seed, const uint8_t *bytes, size_t count)
{
    uint64_t seeded[2] = {seed, 0};
    memcpy(&seeded[1], bytes, count);
    return (uint32_t)(hash_xxh64(seeded, sizeof seeded) % ADDRESSES);
}

uint32_t http_crowd_address(uint64_t seed, const struct sockaddr *a)
{
    if (a && a->sa_family == AF_INET) {
        const struct sockaddr_in *four = (const struct sockaddr_in *)(const void *)a;
        return address_of(seed, (const uint8_t *)&four->sin_addr, 4);
    }
    if (!a || a->sa_family != AF_INET6) return 0;
    const uint8_t *six = ((const struct sockaddr_in6 *)(const void *)a)->sin6_addr.s6_addr;
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    bool four = memcmp(six, mapped, sizeof mapped) == 0;
    return four ? address_of(seed, six + 12, 4) : address_of(seed, six, 8);
}

/* Between the first that has to go and the last that is let in. */
static uint32_t spare_of(const HttpServer *s) { return s->options.connections_max / SPARE_SHARE; }

static bool is_long_ago(uint64_t now, uint64_t then)
{
    return now > then && now - then >= STALLED_S * UINT64_C(1000000000);
}

static Claim claim_of(const HttpLine *line, uint64_t now)
{
    if (line->shed) return STAYS; /* it has gone already */
    if (line->replying && is_long_ago(now, line->since_ns))
        return is_long_ago(now, line->sent_ns) ? STALLED : SLOW;
    if (line->replying || line->busy) return STAYS;
    return line->served ? SERVED : STRANGER;
}

/* Where nearly all are being answered, the few that have just come are not what it is full of. */
static bool has_time(const HttpServer *s, const HttpLine *line, uint32_t alike, uint64_t now)
{
    bool young = now < line->since_ns || now - line->since_ns < YOUNG_MS * 1000000ull;
    return claim_of(line, now) == STRANGER && young && alike < spare_of(s) / 2;
}

/* The next to go; NULL: all are being answered. */
static HttpLine *choose(const HttpServer *s, const HttpLine *newest, uint64_t now)
{
    uint16_t counts[ADDRESSES] = {0};
    uint32_t alike = 0;
    Claim least = STAYS;
    HttpLine *best = NULL;
    for (HttpLine *line = s->lines; line; line = line->next) {
        Claim claim = claim_of(line, now);
        if (line == newest || claim > least) continue;
        if (claim < least) memset(counts, 0, sizeof counts), alike = 0;
        least = claim;
        alike++;
        if (claim < STAYS && counts[line->address] < UINT16_MAX) counts[line->address]++;
    }
    for (HttpLine *line = s->lines; line && least < STAYS; line = line->next) {
        if (line == newest || claim_of(line, now) != least) continue;
        bool more = !best || counts[line->address] > counts[best->address],
             older = best && counts[line->address] == counts[best->address] &&
                     line->since_ns < best->since_ns;
        if (more || older) best = line;
    }
    return best && !has_time(s, best, alike, now) ? best : NULL;
}

/* Result  false: there is room, or nobody to go. */
static bool shed_one(HttpServer *s, const HttpLine *newest)
{
    if (s->line_count - s->shed_count <= s->options.connections_max - spare_of(s)) return false;
    HttpLine *line = choose(s, newest, clock_now_ns());
    if (!line) return false;
    line->shed = true; /* the other thread sees its end, and lets go of it */
    s->shed_count++;
    s->shed_total++;
    (void)shutdown(line->fd, SHUT_RDWR);
    return true;
}

void http_crowd_shed_locked(HttpServer *s, const HttpLine *newest) { (void)shed_one(s, newest); }

/* When their windows last took bytes of their answers; probes of a shut one carry none. */
static void note_readers(HttpServer *s, uint64_t now)
{
    for (HttpLine *line = s->lines; line; line = line->next) {
        struct tcp_info tcp;
        socklen_t bytes = sizeof tcp;
        if (!line->replying || line->shed ||
            getsockopt(line->fd, IPPROTO_TCP, TCP_INFO, &tcp, &bytes) != 0)
            continue;
        uint64_t quiet_ns = tcp.tcpi_last_data_sent * UINT64_C(1000000);
        if (quiet_ns < now) line->sent_ns = now - quiet_ns;
    }
}

/* libmicrohttpd 0.9.75 takes 128 events at a time, and when it gets exactly so many it waits for more before it looks
 * at them; where no connection can come, that is for long. */
void http_crowd_tick_locked(HttpServer *s)
{
    note_readers(s, clock_now_ns());
    for (uint32_t i = 0; i < SHED_AT_ONCE && shed_one(s, NULL); i++) {
    }
}
