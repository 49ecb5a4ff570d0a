/* SPDX-License-Identifier: Apache-2.0 */
/* The module's linear memory above the C stack and data: one stretch that only grows. */
#ifndef COBORD_WORKERS_RESERVE_H
#define COBORD_WORKERS_RESERVE_H

#include <stdbool.h>
#include <stdint.h>

/* The first free byte, a multiple of 64. */
uint8_t *reserve_start(void);
/* Makes at[0 .. bytes) usable. False when that is more than the module's maximum (--max-memory of the linker). */
bool reserve_until(const uint8_t *at, uint64_t bytes);
/* The length of the memory. */
uint64_t reserve_bytes(void);

#endif
