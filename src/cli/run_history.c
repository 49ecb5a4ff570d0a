/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run_history.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/run_line.h"
#include "host/file_writer.h"
#include "host/places.h"
#include "host/whole.h"

enum {
    HISTORY_BYTES_MAX = 1 << 20, /* of the file that is looked at: its end */
    HISTORY_SLACK = 200          /* messages beyond the bound before the file is cut */
};

/* -1 when it is not there, or no file of ours. */
static int open_file(int flags, struct stat *state)
{
    char path[PLACES_PATH_BYTES], folder[PLACES_PATH_BYTES];
    Why why;
    places_state(path, sizeof path, "history");
    if (!path[0]) return -1;
    memcpy(folder, path, sizeof folder);
    *strrchr(folder, '/') = 0;
    if (flags & O_CREAT && places_make_directory(folder, 0700, &why) != OK) return -1;
    int fd = whole_open(path, flags | O_CLOEXEC | O_NONBLOCK, 0600);
    if (fd < 0) return -1;
    if (fstat(fd, state) == 0 && S_ISREG(state->st_mode)) return fd;
    close(fd);
    return -1;
}

/* The file's end, from the start of a line on. Owner  the caller; NULL: none. */
static char *read_end(bool *cut)
{
    struct stat state;
    int fd = open_file(O_RDONLY, &state);
    if (fd < 0) return NULL;
    off_t from = state.st_size > HISTORY_BYTES_MAX ? state.st_size - HISTORY_BYTES_MAX : 0;
    char *text = malloc(HISTORY_BYTES_MAX + 1);
    ssize_t got = text ? pread(fd, text, HISTORY_BYTES_MAX, from) : -1;
    close(fd);
    if (got < 0) {
        free(text);
        return NULL;
    }
    text[got] = 0;
    *cut = from > 0;
    char *first = *cut ? strchr(text, '\n') : NULL;
    if (first) memmove(text, first + 1, strlen(first + 1) + 1);
    return text;
}

static size_t count_lines(const char *text)
{
    size_t count = 0;
    for (; *text; text++) count += *text == '\n';
    return count;
}

static const char *skip_lines(const char *text, size_t count)
{
    while (count--) text = strchr(text, '\n') + 1;
    return text;
}

/* The newest messages stay. A failure leaves the file as it is. */
static void rewrite(const char *text)
{
    char path[PLACES_PATH_BYTES];
    FileWriter w;
    Why why;
    places_state(path, sizeof path, "history");
    if (file_writer_open(&w, path, 0, &why) != OK) return;
    if (fchmod(w.descriptor, 0600) != 0 || file_writer_append(&w, text, strlen(text), &why) != OK ||
        file_writer_commit(&w, &why) != OK)
        file_writer_abandon(&w);
}

/* \n to U+23CE, \\ to \. */
static void unescape(const char *from, size_t bytes, char *to)
{
    static const char sign[] = "\xe2\x8f\x8e";
    for (size_t i = 0; i < bytes; i++) {
        bool escape = from[i] == '\\' && i + 1 < bytes;
        if (!escape) {
            *to++ = from[i];
        } else if (from[++i] == 'n') {
            memcpy(to, sign, 3);
            to += 3;
        } else {
            *to++ = from[i];
        }
    }
    *to = 0;
}

void run_history_load(void (*visit)(void *context, const char *message), void *context)
{
    static char message[2 * RUN_LINE_HISTORY_ENTRY_BYTES * 2];
    bool cut = false;
    char *text = read_end(&cut);
    if (!text) return;
    size_t lines = count_lines(text);
    const char *at =
        skip_lines(text, lines > RUN_LINE_HISTORY_MAX ? lines - RUN_LINE_HISTORY_MAX : 0);
    if (cut || lines > RUN_LINE_HISTORY_MAX + HISTORY_SLACK) rewrite(at);
    for (const char *end; (end = strchr(at, '\n')) != NULL; at = end + 1) {
        size_t bytes = (size_t)(end - at);
        if (bytes == 0 || bytes > 2 * RUN_LINE_HISTORY_ENTRY_BYTES) continue;
        unescape(at, bytes, message);
        visit(context, message);
    }
    free(text);
}

/* What a killed chat wrote half of a line: the next one must not become its end. */
static void cut_torn_line(int fd, off_t bytes)
{
    char text[2 * RUN_LINE_HISTORY_ENTRY_BYTES + 2];
    off_t from = bytes > (off_t)sizeof text ? bytes - (off_t)sizeof text : 0;
    ssize_t got = pread(fd, text, sizeof text, from);
    ssize_t whole = got;
    while (whole > 0 && text[whole - 1] != '\n') whole--;
    if (got <= 0 || whole == got || (!whole && from)) return; /* no line of ours is as long */
    (void)!ftruncate(fd, from + whole);                       /* else the two are one entry */
}

/* Without a word: see run_line.h. What a full disk took half of is not a message. */
static void append(int fd, const char *text, size_t bytes)
{
    struct stat state;
    (void)flock(fd, LOCK_EX);
    if (fstat(fd, &state) != 0) return;
    cut_torn_line(fd, state.st_size);
    if (fstat(fd, &state) != 0) return;
    ssize_t done = write(fd, text, bytes);
    if (done > 0 && (size_t)done < bytes) (void)!ftruncate(fd, state.st_size);
}

void run_history_add(const char *message)
{
    size_t bytes = strlen(message), at = 0;
    struct stat state;
    if (!bytes || bytes > RUN_LINE_HISTORY_ENTRY_BYTES) return;
    char *text = malloc(2 * bytes + 1);
    for (size_t i = 0; text && i < bytes; i++) {
        if (message[i] == '\n' || message[i] == '\\') text[at++] = '\\';
        text[at++] = message[i] == '\n' ? 'n' : message[i];
    }
    int fd = text ? open_file(O_RDWR | O_APPEND | O_CREAT, &state) : -1;
    if (fd >= 0) {
        text[at++] = '\n';
        append(fd, text, at);
        close(fd);
    }
    free(text);
}
