/* SPDX-License-Identifier: Apache-2.0 */
/* Linear memory in one stretch that only grows, from where it ended at the start. What malloc has
 * lies before it; once malloc has grown the memory, the stretch cannot grow any more. */
#ifndef COBORD_WORKERS_RESERVE_H
#define COBORD_WORKERS_RESERVE_H

#include <stdbool.h>
#include <stdint.h>

/* The memory's largest length: --max-memory of the linker (cmake/WasmModule.cmake). */
enum { RESERVE_BYTES_MAX = 124 << 20 };

/* Its first byte, the beginning of a page. Once, before the first reserve_until. */
uint8_t *reserve_start(void);
/* Makes at[0 .. bytes) usable. False when that is more than the module's maximum (--max-memory of the linker). */
bool reserve_until(const uint8_t *at, uint64_t bytes);
/* The length of the memory. */
uint64_t reserve_bytes(void);

#endif
