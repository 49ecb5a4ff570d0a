/* SPDX-License-Identifier: Apache-2.0 */
#include "base/parallel.h"

static void serial_run(void *pool, ParallelJob job, void *argument, uint32_t items)
{
    (void)pool;
    for (uint32_t i = 0; i < items; i++) job(argument, i, 0);
}

const Parallel parallel_serial = {serial_run, 0, 1};
