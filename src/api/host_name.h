/* SPDX-License-Identifier: Apache-2.0 */
/* Under which names a server that only this machine reaches may be asked (the header Host). A page of anybody's may let
 * its name point to 127.0.0.1 once it has been loaded ("DNS rebinding"): for the browser the server is then its own
 * origin, and nothing asks before. The name it must use gives it away. Addresses and localhost nobody can take over.
 *
 *   known: 127.0.0.1, [::1], any other address; localhost, a.localhost; the name of --listen;
 *          the hosts of --cors, and everything when that is "*"; a request that says no host, as no browser does
 *
 * Does not look at the port. Source  RFC 9110, 7.2; RFC 6761, 6.3 (localhost). */
#ifndef COBORD_API_HOST_NAME_H
#define COBORD_API_HOST_NAME_H

#include <stdbool.h>

/* `header`: NULL when there is none. `own`: of --listen, "" or a name. `cors`: api/cors.h, NULL when there is none. */
bool host_name_is_known(const char *header, const char *own, const char *cors);

#endif
