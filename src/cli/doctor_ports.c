/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses to listen on: free, or whose. An address is tried by listening on it for a moment. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/doctor.h"
#include "host/listen.h"
#include "host/port_owner.h"
#include "host/ports.h"

typedef enum Place { PLACE_FREE, PLACE_TAKEN, PLACE_ELSEWHERE, PLACE_BAD } Place;

typedef struct Taken {
    bool known, cobord;
    pid_t pid;
    char name[PORT_OWNER_NAME_BYTES];
} Taken;

static Place look_at(const char *text, uint16_t port, Taken *taken, Why *why)
{
    Listen listen;
    *taken = (Taken){.known = false};
    if (listen_open(text, &listen, why) == OK) {
        close(listen.fd);
        return PLACE_FREE;
    }
    if (listen.fault == EADDRNOTAVAIL) return PLACE_ELSEWHERE;
    if (listen.fault != EADDRINUSE) return PLACE_BAD;
    taken->known = port_owner(port, &taken->pid, taken->name);
    taken->cobord = taken->known && strncmp(taken->name, "cobord", 6) == 0;
    return PLACE_TAKEN;
}

static void say_taken(Doctor *d, DoctorState state, const char *name, const char *place,
                      const char *advice, const Taken *taken)
{
    if (taken->known)
        doctor_say(d, state, name, advice, "%s is taken by %s (process %d)", place, taken->name,
                   (int)taken->pid);
    else
        doctor_say(d, state, name, advice, "%s is taken by a process that is not ours to see",
                   place);
}

static void check_listen(Doctor *d, const char *listen)
{
    char host[PORTS_HOST_BYTES];
    uint16_t port = 0;
    Taken taken;
    Why why = {{0}};
    if (ports_parse(listen, host, &port, &why) != OK) {
        doctor_say(d, DOCTOR_PROBLEM, "listen", "Give HOST:PORT with --listen.", "%s", why.text);
        return;
    }
    switch (look_at(listen, port, &taken, &why)) {
    case PLACE_FREE:
        doctor_say(d, DOCTOR_OK, "listen", NULL, "%s is free for cobord serve and up", listen);
        return;
    case PLACE_TAKEN:
        say_taken(d, DOCTOR_WARNING, "listen", listen,
                  taken.cobord ? "Use it (cobord status), or serve elsewhere: --listen HOST:PORT."
                               : "Serve elsewhere: --listen HOST:PORT.",
                  &taken);
        return;
    case PLACE_ELSEWHERE:
    case PLACE_BAD:
        doctor_say(d, DOCTOR_PROBLEM, "listen", "Choose another place with --listen HOST:PORT.",
                   "%s", why.text);
    }
}

/* A name is left to the links: looking it up may take long. */
static bool is_numeric_or_ours(const char *host)
{
    char own[PORTS_HOST_BYTES] = "";
    if (strspn(host, "0123456789.") == strlen(host) || strchr(host, ':')) return true;
    (void)gethostname(own, sizeof own - 1);
    return strcmp(host, "localhost") == 0 || strcmp(host, own) == 0;
}

static void check_nodes(Doctor *d)
{
    uint32_t counts[4] = {0}, running = 0, names = 0;
    for (uint32_t i = 0; i < d->cluster->node_count; i++) {
        const ClusterNode *n = &d->cluster->nodes[i];
        char place[PORTS_TEXT_BYTES];
        Taken taken;
        Why why = {{0}};
        if (!is_numeric_or_ours(n->host)) {
            names++;
            continue;
        }
        Place what = look_at(ports_text(n->host, n->port, place), n->port, &taken, &why);
        counts[what]++;
        if (what == PLACE_TAKEN && taken.cobord) running++;
        else if (what == PLACE_TAKEN)
            say_taken(d, DOCTOR_PROBLEM, n->id, place,
                      "End that process, or plan the cluster with other ports (cobord plan "
                      "--listen).",
                      &taken);
        else if (what == PLACE_BAD)
            doctor_say(d, DOCTOR_PROBLEM, n->id, "Choose another port in the cluster file.", "%s",
                       why.text);
    }
    doctor_say(d, DOCTOR_OK, "cluster file", NULL,
               "of its %u addresses %u are free on this machine, %u are used by cobord, %u are on "
               "other machines",
               d->cluster->node_count, counts[PLACE_FREE], running,
               counts[PLACE_ELSEWHERE] + names);
}

void doctor_check_ports(Doctor *d, const char *listen)
{
    doctor_area(d, "Ports");
    if (d->cluster) check_nodes(d);
    else check_listen(d, listen);
}
