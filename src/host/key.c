/* SPDX-License-Identifier: Apache-2.0 */
#include "host/key.h"
#include "host/whole.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/file_writer.h"
#include "host/places.h"

enum { RANDOM_BYTES = 32 };

static Error check(const char *path, const char *key, size_t bytes, Why *why)
{
    if (bytes == 0)
        return error_why(why, ERR_FORMAT,
                         "%s: the key file is empty. Make a key: `openssl rand -hex 32`", path);
    if (bytes < KEY_BYTES_MIN || bytes > KEY_BYTES_MAX)
        return error_why(why, ERR_FORMAT,
                         "%s: a key has %d to %d characters. Make one: `openssl rand -hex 32`",
                         path, KEY_BYTES_MIN, KEY_BYTES_MAX);
    for (size_t i = 0; i < bytes; i++)
        if (key[i] <= ' ' || key[i] > '~')
            return error_why(why, ERR_FORMAT,
                             "%s: byte %zu of the key is no visible ASCII character. Make one: "
                             "`openssl rand -hex 32`",
                             path, i);
    return OK;
}

/* A group that may read what belongs to somebody else: that is how this process reads it at all, a
 * secret that was mounted. */
bool key_is_open_to_others(const struct stat *about)
{
    mode_t others = S_IRWXO | S_IWGRP | S_IXGRP;
    if (about->st_uid == geteuid()) others |= S_IRGRP;
    return about->st_mode & others;
}

Error key_read(const char *path, char out[KEY_BYTES_MAX + 1], Why *warning, Why *why)
{
    struct stat about;
    char text[KEY_BYTES_MAX + 2];
    *warning = (Why){{0}};
    int fd = whole_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd < 0 || fstat(fd, &about) != 0) {
        Error error = error_why(why, ERR_IO, "key file %s: %s", path, places_fault(path, errno));
        if (fd >= 0) close(fd);
        return error;
    }
    ssize_t n = whole_rest(fd, text, sizeof text);
    int fault = errno;
    close(fd);
    if (n < 0) return error_why(why, ERR_IO, "key file %s: %s", path, strerror(fault));
    size_t bytes = (size_t)n;
    if (bytes && text[bytes - 1] == '\n') bytes--;
    if (bytes && text[bytes - 1] == '\r') bytes--;
    TRY(check(path, text, bytes, why));
    memcpy(out, text, bytes);
    out[bytes] = '\0';
    if (key_is_open_to_others(&about))
        return error_why(warning, OK,
                         "others may read %s: chmod 600 keeps the cluster key a secret", path);
    return OK;
}

Error key_make(const char *path, char out[KEY_BYTES_MAX + 1], Why *why)
{
    static const char digits[] = "0123456789abcdef";
    uint8_t bytes[RANDOM_BYTES];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return error_why(why, ERR_IO, "no random bytes: %s", strerror(errno));
    for (size_t i = 0; i < RANDOM_BYTES; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[2 * RANDOM_BYTES] = '\n';
    Why about = {{0}};
    FileWriter w;
    Error error = file_writer_open_private(&w, path, &about);
    if (error == OK) error = file_writer_append(&w, out, 2 * RANDOM_BYTES + 1, &about);
    if (error == OK) error = file_writer_commit_new(&w, &about);
    file_writer_abandon(&w);
    out[2 * RANDOM_BYTES] = '\0';
    if (error == OK) return OK;
    const char *fault = error == ERR_DUPLICATE ? places_fault(path, EEXIST) : about.text;
    return error_why(why, error, "key file %s: %s", path, fault);
}
