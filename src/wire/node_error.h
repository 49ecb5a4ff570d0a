/* SPDX-License-Identifier: Apache-2.0 */
/* How a node says no: an Error as HTTP status and JSON, and back.
 *
 *   {"error":{"message":"session 7: position 9, expected 4","type":"node_error","param":null,
 *             "code":"position","retryable":true}}
 *
 * The code is the Error's name in lower case without ERR_: both ends have one list (base/error.h).
 *
 *   410 session               409 position superseded unsupported (the handshake)
 *   400 what is wrong with the bytes, checksum and format included
 *   413 too_large             404 not_found, missing_tensor        401 no or another key
 *   405 usage, when it was the method: the server's choice beside 400
 *   503 again capacity cancelled memory unreachable no_space       500 the others, not_finite among them */
#ifndef COBORD_WIRE_NODE_ERROR_H
#define COBORD_WIRE_NODE_ERROR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { NODE_ERROR_BYTES_MAX = 2048 };

unsigned node_error_status(Error error);
/* Whether the same request may work later, here or at another node. */
bool node_error_is_retryable(Error error);

/* Result  bytes written, at most NODE_ERROR_BYTES_MAX. */
size_t node_error_write(Error error, const Why *why, char out[NODE_ERROR_BYTES_MAX]);

/* The Error that an answer of this status means; ERR_UNREACHABLE or ERR_FORMAT for a body that no
 * node wrote, by its status. Never OK. `why` gets the message. */
Error node_error_read(unsigned status, const uint8_t *body, size_t bytes, Why *why);

#endif
