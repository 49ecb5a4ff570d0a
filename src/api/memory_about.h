/* SPDX-License-Identifier: Apache-2.0 */
/* What a process says of its memory, whoever says it: nodes of themselves, a coordinator of them and of itself. */
#ifndef COBORD_API_MEMORY_ABOUT_H
#define COBORD_API_MEMORY_ABOUT_H

#include "api/json_writer.h"

typedef struct MemoryAbout {
    uint64_t budget_bytes;   /* what it may take */
    uint64_t need_bytes;     /* the sum that was made before it started */
    uint64_t cache_bytes;    /* a warden: of these, for what it keeps; 0: it is none */
    uint64_t resident_bytes; /* now */
    uint64_t peak_bytes;
} MemoryAbout;

/* The member "memory". */
void memory_about_write(const MemoryAbout *m, JsonWriter *w);

#endif
