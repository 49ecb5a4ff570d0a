/* SPDX-License-Identifier: Apache-2.0 */
/* Where the scripts and the WebAssembly module are:
 *
 *   --modules DIR, COBORD_MODULES        all in one folder
 *   PROGRAM/../share/cobord/workers      installed
 *   PROGRAM/../workers, ../build-wasm    where the program was built
 *
 * Of cobord-relaxed.wasm and cobord.wasm the first: the same bits, sooner, and Workers run it. */
#ifndef COBORD_CLI_DEPLOY_MODULES_H
#define COBORD_CLI_DEPLOY_MODULES_H

#include "host/places.h"

typedef struct DeployModules {
    char scripts[PLACES_PATH_BYTES]; /* folder of *.mjs */
    char module[PLACES_PATH_BYTES];  /* the WebAssembly file */
} DeployModules;

/* `given` NULL: looks at the other places. Errors  ERR_NOT_FOUND: says what is missing, and what to do. */
MUST_CHECK Error deploy_modules_find(const char *given, DeployModules *out, Why *why);

/* Copies all that a script may import into `folder`, which is made: *.mjs and cobord.wasm.
 * Errors  ERR_IO, ERR_NO_SPACE, ERR_TOO_LARGE. */
MUST_CHECK Error deploy_modules_copy(const DeployModules *m, const char *folder, Why *why);

#endif
