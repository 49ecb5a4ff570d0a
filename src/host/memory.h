/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory there is for us, and how much we took. */
#ifndef COBORD_HOST_MEMORY_H
#define COBORD_HOST_MEMORY_H

#include <stdint.h>

/* What this process may take in all, its present share included: the control groups' limit, and
 * what the machine can give without swapping (MemAvailable; where /proc hides that, all it has),
 * whichever is less. */
uint64_t memory_allowed(void);

/* The control groups' limit alone; UINT64_MAX when there is none. */
uint64_t memory_limit(void);

/* MemAvailable of the whole machine; 0 when it is not known. */
uint64_t memory_available(void);

/* Of the whole machine, in bytes; 0 when not known. */
uint64_t memory_total(void);
uint64_t memory_swap_total(void);
uint64_t memory_swap_free(void);

/* Of this process, file pages counted, in bytes: at its peak (VmHWM) and now (VmRSS, without what
 * ThreadSanitizer takes). 0 when not known. No allocation. */
uint64_t memory_peak(void);
uint64_t memory_resident(void);

/* From here on what a large body took goes back to the system when it is freed, instead of staying in the
 * heaps of the threads that read it. */
void memory_keep_heap_small(void);

#endif
