/* SPDX-License-Identifier: Apache-2.0 */
/* Where things are: the cache of models, the hub.
 *
 *   ${COBORD_CACHE:-${XDG_CACHE_HOME:-~/.cache}/cobord}/
 *       models/NAME.knot         a model that is ready
 *       models/NAME.knot.checked the note that its hashes were checked (host/knot_file.h)
 *       models/NAME.gguf         its source, when it was kept
 *       models/NAME.from         where it came from: what was asked for; of an encoded file its path
 *                                and, in a second line, the state of it
 *       models/.NAME.pull/       a pull or encode that is under way, or was interrupted; locked by
 *                                whoever works on NAME */
#ifndef COBORD_HOST_PLACES_H
#define COBORD_HOST_PLACES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

enum { PLACES_PATH_BYTES = 4096, PLACES_NAME_BYTES = 160 };

/* The settings, by cli after it has read them; each may be NULL: the cache is then found by the
 * environment, and there is no hub. The texts must stay. */
void places_set(const char *cache, const char *hub, const char *hub_token);
const char *places_hub(void);
const char *places_hub_token(void);

/* The models directory, made when it is not there. Errors  ERR_IO (names the path), ERR_NO_SPACE,
 * ERR_TOO_LARGE. */
MUST_CHECK Error places_models(char *out, size_t out_bytes, Why *why);

/* The same without a look at the disk: it need not be there. */
MUST_CHECK Error places_models_path(char *out, size_t out_bytes, Why *why);

/* Whether a file of that directory is a model that is ready; `name` gets what it is called. */
bool places_model_name(const char *file, char name[PLACES_NAME_BYTES]);

/* What outlives a run and is no cache: ${XDG_STATE_HOME:-~/.local/state}/cobord/NAME. Out  "" without a home. */
void places_state(char *out, size_t out_bytes, const char *name);

/* Makes a directory and those above it; none of them need be new. Errors  ERR_IO (names the path), ERR_NO_SPACE,
 * ERR_TOO_LARGE. */
MUST_CHECK Error places_make_directory(const char *path, unsigned mode, Why *why);

/* "DIR/prefix NAME suffix", checked to fit. Errors  ERR_TOO_LARGE. */
MUST_CHECK Error places_join(char *out, size_t out_bytes, const char *directory, const char *prefix,
                             const char *name, const char *suffix, Why *why);

/* Removes a file, or a directory with all in it. Links are removed, not followed. No error when it
 * is not there. */
void places_remove(const char *path);

/* "a link to a file that is not there" when that is why `path` could not be opened or made, else the system's words for
 * `number`. */
const char *places_fault(const char *path, int number);

/* Error of a failed system call on `path`: ERR_NO_SPACE, ERR_NOT_FOUND, ERR_MEMORY or ERR_IO, with
 * the system's words. */
MUST_CHECK Error places_system_error(int number, const char *path, Why *why);

#endif
