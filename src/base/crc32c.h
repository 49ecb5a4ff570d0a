/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32C (Castagnoli): guards the headers of frames, which are short. Payloads have XXH64.
 * Source  RFC 3720, section B.4; polynomial 1EDC6F41, reflected 82F63B78. */
#ifndef COBORD_BASE_CRC32C_H
#define COBORD_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Continues `crc` (0 at the start) over `length` bytes: pieces give what the whole gives. */
uint32_t crc32c_update(uint32_t crc, const void *bytes, size_t length);

#endif
