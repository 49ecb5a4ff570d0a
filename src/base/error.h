/* SPDX-License-Identifier: Apache-2.0 */
/* Error codes: one list, stable numbers, three classes.
 *
 *   1..99     ours      a promise of our own that broke, or a resource of this machine
 *   100..199  theirs    bytes, arguments or requests that are not what they claim to be
 *   200..299  again     nothing is wrong with the input; the same call may work later
 *
 * A function that can fail returns `Error` and is MUST_CHECK; its results leave through pointers. Details that a
 * person needs (which tensor, which offset, which value) go into a `Why`, written once, where the fault is seen.
 * The sentence that a person reads is finished in `cli` and `api` only. */
#ifndef COBORD_BASE_ERROR_H
#define COBORD_BASE_ERROR_H

#include <stdarg.h>
#include <stdint.h>

#define MUST_CHECK __attribute__((warn_unused_result))

#define ERROR_LIST(X)                                                      \
    X(OK, 0, "ok")                                                         \
    X(ERR_INTERNAL, 1, "internal error")                                   \
    X(ERR_MEMORY, 2, "not enough memory")                                  \
    X(ERR_IO, 3, "input or output failed")                                 \
    X(ERR_NO_SPACE, 4, "no space left")                                    \
    X(ERR_CAPACITY, 5, "larger than the room for it")                      \
    X(ERR_NOT_AVAILABLE, 6, "not available on this machine")               \
    X(ERR_USAGE, 100, "wrong usage")                                       \
    X(ERR_FORMAT, 101, "not the expected format")                          \
    X(ERR_TRUNCATED, 102, "shorter than it claims")                        \
    X(ERR_UNSUPPORTED, 103, "not supported")                               \
    X(ERR_MISSING_TENSOR, 104, "a tensor is missing")                      \
    X(ERR_TYPE, 105, "a type is wrong or unknown")                         \
    X(ERR_SHAPE, 106, "a shape is wrong")                                  \
    X(ERR_CHECKSUM, 107, "a checksum does not match")                      \
    X(ERR_STALE, 108, "written by an early encoder, payload one byte off") \
    X(ERR_NOT_FINITE, 109, "a number is not finite")                       \
    X(ERR_RANGE, 110, "a value is out of range")                           \
    X(ERR_DUPLICATE, 111, "a name appears twice")                          \
    X(ERR_NOT_FOUND, 112, "not found")                                     \
    X(ERR_TOO_LARGE, 113, "larger than a limit")                           \
    X(ERR_PLAN, 114, "the plan does not fit")                              \
    X(ERR_POSITION, 115, "a position is not the expected one")             \
    X(ERR_SESSION, 116, "the session is not known")                        \
    X(ERR_SUPERSEDED, 117, "a later request has taken its place")          \
    X(ERR_KEY, 118, "the key is missing or wrong")                         \
    X(ERR_AGAIN, 200, "try again")                                         \
    X(ERR_CANCELLED, 201, "cancelled")                                     \
    X(ERR_UNREACHABLE, 202, "not reachable")

typedef enum Error {
#define ERROR_ENTRY(name, number, text) name = number,
    ERROR_LIST(ERROR_ENTRY)
#undef ERROR_ENTRY
} Error;

/* What happened, in the words of the place that saw it. Cut, never overrun, at WHY_MAX - 1 bytes.
 * Bytes that are not printable ASCII are written as \xNN, so that no file can reach the terminal. */
#define WHY_MAX 320
typedef struct Why {
    char text[WHY_MAX];
} Why;

/* The list's text for a number, "unknown error" for one outside the list. */
const char *error_text(Error error);

/* Writes the details and returns `error`, so that a fault reads: return error_why(why, ERR_SHAPE, "...", ...).
 * `why` may be NULL. Understands %s %.*s %c %d %u %x %% and, with `ll` or `z`, their 64-bit and size forms. */
MUST_CHECK Error error_why(Why *why, Error error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A broken promise of our own: says where and stops, in every build. Never reached by bytes from outside. */
_Noreturn void error_abort(const char *file, int line, const char *text);
#define ASSERT(condition) ((condition) ? (void)0 : error_abort(__FILE__, __LINE__, #condition))

/* Returns from the calling function when `expression` is an error. */
#define TRY(expression)                          \
    do {                                         \
        Error try_error_ = (expression);         \
        if (try_error_ != OK) return try_error_; \
    } while (0)

#endif
