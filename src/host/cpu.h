/* SPDX-License-Identifier: Apache-2.0 */
/* What the processor can run, and how much of it is ours. */
#ifndef COBORD_HOST_CPU_H
#define COBORD_HOST_CPU_H

#include <stdbool.h>
#include <stdint.h>

#include "quant/kernels.h"

/* Whether processor and operating system (saved registers) run kernels of `isa`. AVX-512 means F,
 * BW, VL, DQ and VNNI; NEON means the dot products of ARMv8.2, I8MM matrix products besides. */
bool cpu_has(Isa isa);

/* The fastest of those that this build has kernels for. */
Isa cpu_best(void);

/* Processors that this process may use: affinity and the control group's quota, rounded up; at
 * least 1. */
uint32_t cpu_cores(void);

#endif
