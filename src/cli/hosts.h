/* SPDX-License-Identifier: Apache-2.0 */
/* The machines that a plan may use: --hosts 10.0.0.1,10.0.0.2 or --hosts HOSTS.json.
 *
 *   [{"address": "10.0.0.1", "memory": "4G", "speed_gbs": 38.5},
 *    {"address": "10.0.0.2:9000", "memory": 2147483648, "bench": { .. what `cobord bench --json` prints there .. }}]
 *
 *   address    required: HOST, [IPv6], or either with the first port to use there; where something of
 *              Cobord answers GET /health on that port, its distance is measured
 *   memory     bytes for all of Cobord's processes there, as a number or as --memory takes it
 *   speed_gbs  weights that it goes through, 10^9 bytes a second; or bench, of which read_bandwidth_gbs is used */
#ifndef COBORD_CLI_HOSTS_H
#define COBORD_CLI_HOSTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { HOSTS_MAX = 256, HOSTS_FILE_BYTES_MAX = 4 << 20 };

typedef struct HostEntry {
    char host[256];        /* IPv6 without brackets */
    uint16_t port;         /* 0: not given */
    uint64_t memory_bytes; /* 0: not given */
    double speed_gbs;      /* 0: not given */
    double ping_us;        /* 0: not measured */
} HostEntry;

typedef struct Hosts {
    uint32_t count; /* 0: this machine */
    HostEntry entry[HOSTS_MAX];
} Hosts;

/* `text`: a list, or the path of a file. Errors  ERR_USAGE, ERR_FORMAT, ERR_RANGE, ERR_DUPLICATE,
 * ERR_TOO_LARGE, ERR_IO, ERR_NOT_FOUND. */
MUST_CHECK Error hosts_read(const char *text, Hosts *out, Why *why);
/* The text of such a file. */
MUST_CHECK Error hosts_parse(const char *text, size_t bytes, Hosts *out, Why *why);

/* Measures the way to those with a port. */
void hosts_ping(Hosts *hosts);

#endif
