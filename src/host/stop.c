/* SPDX-License-Identifier: Apache-2.0 */
#include "host/stop.h"

#include <stdatomic.h>

static atomic_int stop_number;

int stop_note(int number) { return atomic_exchange(&stop_number, number); }

bool stop_asked(void) { return atomic_load_explicit(&stop_number, memory_order_relaxed) != 0; }

int stop_signal(void) { return atomic_load(&stop_number); }

void stop_clear(void) { atomic_store(&stop_number, 0); }
