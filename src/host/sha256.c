/* SPDX-License-Identifier: Apache-2.0 */
#include "host/sha256.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>

#include "host/stop.h"
#include "host/whole.h"

enum { SHA256_READ_BYTES = 1 << 20 };

Error sha256_start(Sha256 *hash, Why *why)
{
    gnutls_hash_hd_t state;
    int failed = gnutls_hash_init(&state, GNUTLS_DIG_SHA256);
    if (failed)
        return error_why(why, ERR_MEMORY, "SHA-256 does not start: %s", gnutls_strerror(failed));
    hash->state = state;
    return OK;
}

void sha256_add(Sha256 *hash, const void *bytes, size_t length)
{
    ASSERT(gnutls_hash(hash->state, bytes, length) == 0);
}

void sha256_end(Sha256 *hash, char *hex)
{
    uint8_t digest[32];
    gnutls_hash_deinit(hash->state, digest);
    hash->state = NULL;
    if (!hex) return;
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < 32; i++) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    hex[64] = 0;
}

static Error sha256_read(int file, const char *path, uint64_t bytes, uint8_t *buffer, Sha256 *into,
                         const char *stage, const Tell *tell, Why *why)
{
    struct stat state;
    uint64_t total = bytes;
    if (total == UINT64_MAX) total = fstat(file, &state) == 0 ? (uint64_t)state.st_size : 0;
    for (uint64_t done = 0; done < bytes;) {
        if (stop_asked()) return error_why(why, ERR_CANCELLED, "while hashing %s", path);
        size_t wanted =
            bytes - done < SHA256_READ_BYTES ? (size_t)(bytes - done) : SHA256_READ_BYTES;
        ssize_t n = read(file, buffer, wanted);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return error_why(why, ERR_IO, "%s: %s", path, strerror(errno));
        if (n == 0 && bytes == UINT64_MAX) return OK;
        if (n == 0)
            return error_why(why, ERR_TRUNCATED, "%s ends after %llu bytes", path,
                             (unsigned long long)done);
        sha256_add(into, buffer, (size_t)n);
        done += (uint64_t)n;
        tell_step(tell, stage, done, total);
    }
    return OK;
}

Error sha256_file(const char *path, uint64_t bytes, Sha256 *into, const char *stage,
                  const Tell *tell, Why *why)
{
    int file = whole_open(path, O_RDONLY | O_CLOEXEC, 0);
    if (file < 0) return error_why(why, ERR_IO, "%s: %s", path, strerror(errno));
    uint8_t *buffer = malloc(SHA256_READ_BYTES);
    Error error = buffer ? sha256_read(file, path, bytes, buffer, into, stage, tell, why)
                         : error_why(why, ERR_MEMORY, "no memory to read %s", path);
    free(buffer);
    (void)close(file);
    return error;
}

bool sha256_is_hex(const char *text)
{
    size_t n = 0;
    while (isxdigit((unsigned char)text[n])) n++;
    return n == 64 && text[n] == 0;
}

bool sha256_equal(const char *a, const char *b)
{
    return sha256_is_hex(a) && sha256_is_hex(b) && strcasecmp(a, b) == 0;
}
