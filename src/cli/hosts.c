/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/hosts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yyjson.h>

#include "cli/options.h"
#include "host/file_reader.h"
#include "host/http_client.h"
#include "host/ports.h"
#include "knot/members.h"
#include "wire/cluster_file.h"

enum { PINGS = 7, PING_DEADLINE_MS = 1000 };

/* ---- Addresses */

/* HOST, HOST:PORT, [IPv6], [IPv6]:PORT. */
static Error hosts_address(const char *text, size_t bytes, HostEntry *out, Why *why)
{
    char whole[300];
    size_t at, host_bytes;
    uint16_t port;
    bool six = bytes && text[0] == '[' && text[bytes - 1] == ']';
    bool ported = !six && memchr(text, ':', bytes);
    int length = snprintf(whole, sizeof whole, "%.*s%s", (int)(bytes < 290 ? bytes : 290), text,
                          ported ? "" : ":1"); /* checked like one with a port */
    if (cluster_file_parse_address(whole, (size_t)length, &at, &host_bytes, &port, NULL) != OK)
        return error_why(why, ERR_USAGE,
                         "\"%.*s\" is no address: HOST, HOST:PORT, [IPv6] and [IPv6]:PORT are",
                         (int)(bytes < 80 ? bytes : 80), text);
    memcpy(out->host, whole + at, host_bytes);
    out->host[host_bytes] = '\0';
    out->port = ported ? port : 0;
    return OK;
}

static Error hosts_add(Hosts *hosts, const HostEntry *entry, Why *why)
{
    if (hosts->count == HOSTS_MAX)
        return error_why(why, ERR_TOO_LARGE, "more than %d hosts", HOSTS_MAX);
    for (uint32_t i = 0; i < hosts->count; i++)
        if (strcmp(hosts->entry[i].host, entry->host) == 0)
            return error_why(why, ERR_DUPLICATE, "%s appears twice", entry->host);
    hosts->entry[hosts->count++] = *entry;
    return OK;
}

static Error hosts_parse_list(const char *text, Hosts *out, Why *why)
{
    for (const char *p = text;; p++) {
        size_t bytes = strcspn(p, ",");
        HostEntry entry = {.port = 0};
        TRY(hosts_address(p, bytes, &entry, why));
        TRY(hosts_add(out, &entry, why));
        p += bytes;
        if (!*p) return OK;
    }
}

/* ---- The file */

static Error hosts_memory(Members m, HostEntry *entry, Why *why)
{
    yyjson_val *value;
    TRY(members_find(m, "memory", &value, why));
    if (!value) return OK;
    bool fine = yyjson_is_uint(value);
    if (fine) entry->memory_bytes = yyjson_get_uint(value);
    else
        fine = yyjson_is_str(value) && yyjson_get_len(value) < 32 &&
               options_parse_size(yyjson_get_str(value), &entry->memory_bytes);
    if (fine && entry->memory_bytes >= 1 << 20 && entry->memory_bytes <= (uint64_t)1 << 50)
        return OK;
    return error_why(why, ERR_RANGE, "%s: memory is no size such as \"4G\" or 4294967296", m.where);
}

static Error hosts_number(Members m, const char *name, double *out, Why *why)
{
    yyjson_val *value;
    TRY(members_find(m, name, &value, why));
    if (!value) return OK;
    *out = yyjson_get_num(value);
    if (yyjson_is_num(value) && *out > 0 && *out < 1e6) return OK;
    return error_why(why, ERR_RANGE, "%s: %s is no number above 0", m.where, name);
}

static Error hosts_speed(Members m, HostEntry *entry, Why *why)
{
    yyjson_val *bench;
    TRY(hosts_number(m, "speed_gbs", &entry->speed_gbs, why));
    TRY(members_find(m, "bench", &bench, why));
    if (!bench) return OK;
    if (!yyjson_is_obj(bench)) return error_why(why, ERR_FORMAT, "%s: bench is no object", m.where);
    double speed = 0;
    TRY(hosts_number((Members){bench, m.where}, "read_bandwidth_gbs", &speed, why));
    if (entry->speed_gbs == 0) entry->speed_gbs = speed;
    return OK;
}

static Error hosts_known(Members m, Why *why)
{
    static const char *const known[] = {"address", "memory", "speed_gbs", "bench"};
    size_t i, count;
    yyjson_val *name, *value;
    yyjson_obj_foreach(m.object, i, count, name, value)
    {
        bool found = false;
        for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
            found |= yyjson_equals_str(name, known[k]);
        if (!found)
            return error_why(why, ERR_FORMAT, "%s: there is no member \"%.*s\"", m.where, 60,
                             yyjson_get_str(name));
    }
    return OK;
}

static Error hosts_entry(yyjson_val *value, uint32_t number, Hosts *out, Why *why)
{
    char where[32];
    HostEntry entry = {.port = 0};
    yyjson_val *address;
    (void)snprintf(where, sizeof where, "host %u", number);
    Members m = {value, where};
    if (!yyjson_is_obj(value)) return error_why(why, ERR_FORMAT, "%s is no object", where);
    TRY(hosts_known(m, why));
    TRY(members_find(m, "address", &address, why));
    if (!yyjson_is_str(address))
        return error_why(why, ERR_FORMAT, "%s: address is missing or no text", where);
    TRY(hosts_address(yyjson_get_str(address), yyjson_get_len(address), &entry, why));
    TRY(hosts_memory(m, &entry, why));
    TRY(hosts_speed(m, &entry, why));
    return hosts_add(out, &entry, why);
}

static Error hosts_entries(yyjson_val *root, Hosts *out, Why *why)
{
    size_t i, count;
    yyjson_val *value;
    if (!yyjson_is_arr(root) || !yyjson_arr_size(root))
        return error_why(why, ERR_FORMAT, "hosts are a JSON array of at least one object");
    yyjson_arr_foreach(root, i, count, value) TRY(hosts_entry(value, (uint32_t)i, out, why));
    return OK;
}

Error hosts_parse(const char *text, size_t bytes, Hosts *out, Why *why)
{
    yyjson_read_err fault;
    *out = (Hosts){.count = 0};
    yyjson_doc *doc =
        yyjson_read_opts((char *)(uintptr_t)text, bytes, YYJSON_READ_NOFLAG, NULL, &fault);
    if (!doc) return error_why(why, ERR_FORMAT, "no JSON: %s at byte %zu", fault.msg, fault.pos);
    Error error = hosts_entries(yyjson_doc_get_root(doc), out, why);
    yyjson_doc_free(doc);
    return error;
}

static Error hosts_read_file(const char *path, Hosts *out, Why *why)
{
    int descriptor;
    struct stat state;
    TRY(file_reader_open(path, "a file of hosts", &descriptor, &state, why));
    size_t bytes = (size_t)state.st_size;
    char *text = bytes <= HOSTS_FILE_BYTES_MAX ? malloc(bytes + 1) : NULL;
    Error error = text ? file_reader_read(descriptor, path, 0, text, bytes, why)
                       : error_why(why, ERR_TOO_LARGE, "%s: more than 4 MiB", path);
    close(descriptor);
    if (error == OK) error = hosts_parse(text, bytes, out, why);
    free(text);
    return error;
}

Error hosts_read(const char *text, Hosts *out, Why *why)
{
    size_t bytes = strlen(text);
    *out = (Hosts){.count = 0};
    bool file = strchr(text, '/') || (bytes > 5 && strcmp(text + bytes - 5, ".json") == 0);
    return file ? hosts_read_file(text, out, why) : hosts_parse_list(text, out, why);
}

/* ---- Distance */

static double hosts_ping_one(HttpClient *client, const HostEntry *entry)
{
    char url[320], place[PORTS_TEXT_BYTES];
    uint8_t answer[1024];
    double best = 0;
    (void)snprintf(url, sizeof url, "http://%s/health",
                   ports_text(entry->host, entry->port, place));
    for (int i = 0; i < PINGS; i++) { /* the first makes the connection */
        HttpCall call = {.method = "GET",
                         .url = url,
                         .deadline_ms = PING_DEADLINE_MS,
                         .answer = answer,
                         .answer_room = sizeof answer};
        http_client_run(client, &call);
        if (call.error != OK || call.status != 200) return best;
        if (best == 0 || call.microseconds < best) best = call.microseconds;
    }
    return best;
}

void hosts_ping(Hosts *hosts)
{
    Why why = {{0}};
    HttpClient *client;
    HttpClientOptions options = {.connect_ms = PING_DEADLINE_MS};
    if (http_client_open(&options, &client, &why) != OK) return;
    for (uint32_t i = 0; i < hosts->count; i++)
        if (hosts->entry[i].port)
            hosts->entry[i].ping_us = hosts_ping_one(client, &hosts->entry[i]);
    http_client_close(client);
}
