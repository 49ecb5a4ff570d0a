/* SPDX-License-Identifier: Apache-2.0 */
/* Who listens on a TCP port of this machine. */
#ifndef COBORD_HOST_PORT_OWNER_H
#define COBORD_HOST_PORT_OWNER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { PORT_OWNER_NAME_BYTES = 32 };

/* Result  false: nobody, or somebody whom we may not see (of another user). `name` is that of the program. */
bool port_owner(uint16_t port, pid_t *pid, char name[PORT_OWNER_NAME_BYTES]);

#endif
