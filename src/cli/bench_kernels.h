/* SPDX-License-Identifier: Apache-2.0 */
/* cobord bench --kernels: every matrix kernel that this machine runs, beside its raw read bandwidth. */
#ifndef COBORD_CLI_BENCH_KERNELS_H
#define COBORD_CLI_BENCH_KERNELS_H

#include "cli/options.h"

/* Result  the exit code. `isa` limits it to one instruction set when --isa is given. */
int bench_kernels(const Options *options);

#endif
