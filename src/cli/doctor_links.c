/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes of a cluster file from here:
 *
 *   all at once   GET /health       who answers at all; 2 s for the slowest
 *   one by one    GET /health       how long there and back
 *                 GET /ready        version, knot, state; 401: another key
 *                 128 KiB           how fast bytes get there, in a request that is refused
 *
 * Whoever does not answer has cost 2 s by then, and all of them together LINKS_MS at most. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yyjson.h>

#include "cli/doctor.h"
#include "host/clock.h"
#include "host/http_client.h"
#include "host/ports.h"
#include "host/stop.h"
#include "quant/numerics.h"
#include "serve/machine.h"
#include "wire/frame.h"

enum {
    LINKS_MS = 15000,
    CALL_MS = 2000,
    ROUNDS = 4,
    ANSWER_BYTES = 16 << 10,
    BODY_BYTES = 128 << 10,
    CLOCK_S_MAX = 5,
    DAYS_FEW = 14,
    DAY_S = 86400
};

typedef struct Link {
    const ClusterNode *node;
    HttpCall call;
    char place[PORTS_TEXT_BYTES], url[PORTS_TEXT_BYTES + 32];
    int64_t clock_off_s, certificate_until_s;
    uint32_t round_us; /* 0: not measured */
    double bytes_per_s;
} Link;

typedef struct Links {
    Doctor *d;
    HttpClient *client;
    const char *key, *ca_file, *scheme;
    Link *links;
    uint32_t count;
    uint64_t until_ms;
    uint8_t *answer;
    uint8_t *body;
} Links;

/* ---- Calls */

static void set_url(const Links *all, Link *l, const char *path)
{
    (void)snprintf(l->url, sizeof l->url, "%s://%s%s", all->scheme, l->place, path);
}

static bool ask(Links *all, Link *l, const char *method, const char *path, bool body)
{
    uint64_t now = clock_now_ms();
    if (now >= all->until_ms) return false;
    set_url(all, l, path);
    l->call = (HttpCall){.method = method,
                         .url = l->url,
                         .deadline_ms = CALL_MS,
                         .answer = all->answer,
                         .answer_room = ANSWER_BYTES};
    if (body) {
        l->call.parts[0] = all->body;
        l->call.part_bytes[0] = BODY_BYTES;
    }
    http_client_run(all->client, &l->call);
    return l->call.error == OK;
}

/* All of them at once: one that hangs costs no more than its deadline. */
static void knock(Links *all)
{
    for (uint32_t i = 0; i < all->count; i++) {
        Link *l = &all->links[i];
        set_url(all, l, "/health");
        l->call = (HttpCall){.method = "GET", .url = l->url, .deadline_ms = CALL_MS, .tag = l};
        http_client_start(all->client, &l->call);
    }
    for (uint32_t i = 0; i < all->count; i++) {
        Link *l = http_client_wait(all->client, -1)->tag;
        if (l->call.date_s) l->clock_off_s = (int64_t)machine_time_s() - l->call.date_s;
        l->certificate_until_s = l->call.certificate_until_s;
    }
}

static void measure_round(Links *all, Link *l)
{
    for (int i = 0; i < ROUNDS && ask(all, l, "GET", "/health", false); i++)
        if (!l->round_us || l->call.microseconds < l->round_us) l->round_us = l->call.microseconds;
}

/* A body that is heard and then refused without a line in the node's log: of a session that is not there, of a list
 * of tensors that is none. A shard has no such question; the way to it is mostly that to a station. */
static void measure_bytes(Links *all, Link *l)
{
    char path[48];
    uint32_t least = 0;
    bool station = l->node->role == CLUSTER_STATION;
    if (!station && !cluster_file_is_warden(l->node->role)) return;
    if (station) (void)snprintf(path, sizeof path, "/sessions/%" PRIu64, machine_random() | 1);
    else (void)snprintf(path, sizeof path, "/tensors");
    for (int i = 0; i < ROUNDS && ask(all, l, station ? "DELETE" : "POST", path, true); i++) {
        if (l->call.status == 401 || l->call.status == 413) return;
        if (!least || l->call.microseconds < least) least = l->call.microseconds;
    }
    if (!least) return;
    uint32_t us = least > l->round_us ? least - l->round_us : least; /* noise: at least as fast */
    l->bytes_per_s = 1e6 * (double)BODY_BYTES / us;
}

/* ---- What a node says of itself */

static void say_identity(Links *all, Link *l, yyjson_val *root)
{
    Doctor *d = all->d;
    char wanted[17];
    const char *version = yyjson_get_str(yyjson_obj_get(root, "version")),
               *knot = yyjson_get_str(yyjson_obj_get(root, "knot_id")),
               *state = yyjson_get_str(yyjson_obj_get(root, "state"));
    yyjson_val *frame = yyjson_obj_get(root, "frame_version"),
               *numerics = yyjson_obj_get(root, "numerics_version");
    (void)snprintf(wanted, sizeof wanted, "%016" PRIx64, d->cluster->knot_id);
    if (frame && yyjson_get_uint(frame) != FRAME_VERSION)
        doctor_say(d, DOCTOR_PROBLEM, l->node->id, "Install the same version on every machine.",
                   "it speaks version %u of the frames, this program %u",
                   (unsigned)yyjson_get_uint(frame), (unsigned)FRAME_VERSION);
    else if (numerics && yyjson_get_uint(numerics) != NUMERICS_VERSION)
        doctor_say(d, DOCTOR_PROBLEM, l->node->id, "Install the same version on every machine.",
                   "it computes by version %u of the numerics, this program by %u",
                   (unsigned)yyjson_get_uint(numerics), (unsigned)NUMERICS_VERSION);
    else if (version && strcmp(version, COBORD_VERSION) != 0)
        doctor_say(d, DOCTOR_WARNING, l->node->id, "Install the same version on every machine.",
                   "it is version %.40s, this program %s", version, COBORD_VERSION);
    if (knot && strcmp(knot, wanted) != 0)
        doctor_say(d, DOCTOR_PROBLEM, l->node->id,
                   "Give every machine the same file, or plan the cluster again.",
                   "it serves knot %.20s, the cluster file is of %s", knot, wanted);
    if (state && strcmp(state, "ready") != 0)
        doctor_say(d, DOCTOR_WARNING, l->node->id, "Wait, then look again; its log says more.",
                   "it is %.20s", state);
}

static void say_refused(Links *all, const Link *l)
{
    if (l->node->role == CLUSTER_COORDINATOR)
        doctor_say(all->d, DOCTOR_OK, l->node->id, NULL,
                   "its API wants a key of its own, which is not asked for here");
    else
        doctor_say(all->d, DOCTOR_PROBLEM, l->node->id,
                   "Put the same key file on every machine (\"key_file\" of the cluster file), and "
                   "start the node again.",
                   "it refuses %s", all->key ? "this machine's key" : "calls without a key");
}

static void say_clock(Links *all, const Link *l)
{
    int64_t far = l->clock_off_s < 0 ? -l->clock_off_s : l->clock_off_s;
    if (far <= CLOCK_S_MAX) return;
    doctor_say(all->d, DOCTOR_WARNING, l->node->id, "Set both clocks: timedatectl set-ntp true.",
               "its clock is %" PRId64 " s %s ours: certificates and signatures may be refused",
               far, l->clock_off_s > 0 ? "behind" : "ahead of");
}

static void say_certificate(Links *all, const Link *l)
{
    int64_t left = (l->certificate_until_s - (int64_t)machine_time_s()) / DAY_S;
    if (!l->certificate_until_s || left >= DAYS_FEW) return;
    doctor_say(all->d, DOCTOR_WARNING, l->node->id,
               "Make a new certificate in time (\"tls\" of the cluster file).",
               "its certificate ends in %" PRId64 " days", left);
}

static void say_link(Links *all, const Link *l)
{
    char speed[40] = "", days[48] = "";
    if (l->bytes_per_s > 0)
        (void)snprintf(speed, sizeof speed, ", %.0f MB/s to it", l->bytes_per_s / 1e6);
    if (l->certificate_until_s)
        (void)snprintf(days, sizeof days, ", certificate good for %" PRId64 " days",
                       (l->certificate_until_s - (int64_t)machine_time_s()) / DAY_S);
    doctor_say(all->d, DOCTOR_OK, l->node->id, NULL, "%s: %.2f ms there and back%s%s", l->place,
               l->round_us / 1e3, speed, days);
}

static void look_at(Links *all, Link *l)
{
    measure_round(all, l);
    if (!l->round_us) {
        doctor_say(all->d, DOCTOR_WARNING, l->node->id, "Look at this node alone: curl its /ready.",
                   "%s answers, and then does not: it was not looked at further", l->place);
        return;
    }
    yyjson_doc *doc = NULL;
    bool told = ask(all, l, "GET", "/ready", false);
    bool refused = told && (l->call.status == 401 || l->call.status == 403);
    if (told && !refused) doc = yyjson_read((char *)all->answer, l->call.answer_bytes, 0);
    if (told && !refused) measure_bytes(all, l);
    say_link(all, l);
    if (refused) say_refused(all, l);
    say_identity(all, l, yyjson_doc_get_root(doc));
    yyjson_doc_free(doc);
    say_clock(all, l);
    say_certificate(all, l);
}

/* ---- Who does not answer */

/* Whose certificate was not trusted is asked again without a look at it, and without our key: it may have ended. */
static int64_t untrusted_until(Links *all, Link *l)
{
    HttpClientOptions options = {.unverified = true, .certificates = true, .connect_ms = CALL_MS};
    HttpClient *client, *own = all->client;
    Why why = {{0}};
    if (http_client_open(&options, &client, &why) != OK) return 0;
    all->client = client;
    bool answered = ask(all, l, "GET", "/health", false);
    all->client = own;
    http_client_close(client);
    return answered ? l->call.certificate_until_s : 0;
}

static void say_silent(Links *all, Link *l)
{
    const char *id = l->node->id;
    Why why = l->call.why;
    int64_t now = (int64_t)machine_time_s();
    if (!strstr(why.text, "not trusted")) {
        doctor_say(all->d, DOCTOR_PROBLEM, id,
                   "Start it there (cobord node --cluster FILE --id ID), and let the port through "
                   "firewalls.",
                   "%s", why.text);
        return;
    }
    int64_t until = untrusted_until(all, l);
    if (until && until < now)
        doctor_say(
            all->d, DOCTOR_PROBLEM, id,
            "Make a new certificate (\"tls\" of the cluster file), and start the node again.",
            "%s: its certificate ended %" PRId64 " days ago", l->place, (now - until) / DAY_S);
    else
        doctor_say(
            all->d, DOCTOR_PROBLEM, id,
            "Name the authority of its certificate as \"ca\" in \"tls\" of the cluster file; "
            "the certificate must be of this address.",
            "%s", why.text);
}

/* ---- */

static void run(Links *all)
{
    knock(all);
    for (uint32_t i = 0; i < all->count && !stop_asked(); i++) {
        Link *l = &all->links[i];
        if (l->call.error == OK) look_at(all, l);
        else say_silent(all, l);
    }
}

static Error prepare(Links *all, char key[KEY_BYTES_MAX + 1], char ca[NODE_PATH_BYTES], Why *why)
{
    const ClusterFile *c = all->d->cluster;
    char path[NODE_PATH_BYTES];
    Why warning = {{0}};
    if (c->tls_ca[0]) {
        TRY(node_path(all->d->cluster_path, c->tls_ca, ca, why));
        all->ca_file = ca;
    }
    if (c->key_file[0]) {
        TRY(node_path(all->d->cluster_path, c->key_file, path, why));
        TRY(key_read(path, key, &warning, why));
        all->key = key;
        if (warning.text[0])
            doctor_say(all->d, DOCTOR_WARNING, "key", "chmod 600 it.", "%s", warning.text);
    }
    all->scheme = c->tls_certificate[0] ? "https" : "http";
    HttpClientOptions options = {
        .key = all->key, .ca_file = all->ca_file, .certificates = true, .connect_ms = CALL_MS};
    all->count = c->node_count;
    all->links = calloc(all->count, sizeof *all->links);
    all->answer = malloc(ANSWER_BYTES);
    all->body = calloc(1, BODY_BYTES);
    if (!all->links || !all->answer || !all->body)
        return error_why(why, ERR_MEMORY, "no memory for %u links", all->count);
    for (uint32_t i = 0; i < all->count; i++) {
        all->links[i].node = &c->nodes[i];
        (void)ports_text(c->nodes[i].host, c->nodes[i].port, all->links[i].place);
    }
    return http_client_open(&options, &all->client, why);
}

void doctor_check_links(Doctor *d)
{
    char key[KEY_BYTES_MAX + 1], ca[NODE_PATH_BYTES];
    Links all = {.d = d, .until_ms = clock_now_ms() + LINKS_MS};
    Why why = {{0}};
    doctor_area(d, "Links");
    Error error = prepare(&all, key, ca, &why);
    if (error == OK) run(&all);
    else
        doctor_say(d, DOCTOR_PROBLEM, "cluster file",
                   "Copy the key and the certificates that it names to this machine.", "%s: %s",
                   error_text(error), why.text);
    http_client_close(all.client);
    free(all.links);
    free(all.answer);
    free(all.body);
}
