/* SPDX-License-Identifier: Apache-2.0 */
/* What cobord doctor found: one finding after the other, shown as it comes or gathered for one JSON value. The
 * checks: doctor_machine.c, doctor_disk.c, doctor_ports.c, doctor_store.c, doctor_links.c. */
#ifndef COBORD_CLI_DOCTOR_H
#define COBORD_CLI_DOCTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "host/key.h"
#include "host/node.h"

typedef enum DoctorState { DOCTOR_OK, DOCTOR_WARNING, DOCTOR_PROBLEM, DOCTOR_STATES } DoctorState;

typedef struct Doctor {
    bool json;
    bool json_begun;
    const char *area; /* whose findings come now */
    bool area_shown;
    uint32_t counts[DOCTOR_STATES];
    /* what several checks want to know */
    double bandwidth_gbs;       /* 0: not measured */
    double disk_bytes_per_s;    /* 0: not measured */
    const ClusterFile *cluster; /* NULL: none */
    const char *cluster_path;
} Doctor;

/* The findings that follow are of this area: "Memory". */
void doctor_area(Doctor *d, const char *area);

/* A finding in printf form: what was found and what it means. `advice`: what to do, NULL when it is OK. */
void doctor_say(Doctor *d, DoctorState state, const char *name, const char *advice,
                const char *format, ...) __attribute__((format(printf, 5, 6)));

/* "1.1 GB" of bytes, in memory of the caller's. */
#define DOCTOR_SIZE_BYTES 16
const char *doctor_size(uint64_t bytes, char out[DOCTOR_SIZE_BYTES]);

void doctor_check_processor(Doctor *d);
void doctor_check_memory(Doctor *d);
void doctor_check_disk(Doctor *d);
void doctor_check_model(Doctor *d, const char *model);
void doctor_check_ports(Doctor *d, const char *listen);
void doctor_check_clock(Doctor *d);
void doctor_check_store(Doctor *d, const char *store, const char *model);
void doctor_check_cluster_store(Doctor *d);
void doctor_check_links(Doctor *d);
void doctor_check_programs(Doctor *d);

#endif
