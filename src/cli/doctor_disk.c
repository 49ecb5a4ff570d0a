/* SPDX-License-Identifier: Apache-2.0 */
/* The cache of models, the disk it is on, and one model. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/doctor.h"
#include "host/disk.h"
#include "host/knot_file.h"
#include "host/locate.h"
#include "host/memory.h"
#include "host/places.h"
#include "host/zoo.h"

enum { READ_MS = 400, NAMES_BYTES = 400 };
static const uint64_t FREE_LEAST = 256 << 20;

/* ---- The folder */

static void check_kind(Doctor *d, const Disk *disk)
{
    switch (disk->kind) {
    case DISK_MEMORY:
        doctor_say(d, DOCTOR_WARNING, "file system",
                   "Put the cache on a disk: --cache DIR, or COBORD_CACHE.",
                   "%s: models take memory twice, and are gone after a restart", disk->name);
        return;
    case DISK_NETWORK:
        doctor_say(d, DOCTOR_WARNING, "file system",
                   "Put the cache on a disk of this machine: --cache DIR, or COBORD_CACHE.",
                   "%s: as fast as the network, and what it does not hold in memory is read over "
                   "it again",
                   disk->name);
        return;
    case DISK_LAYERED:
        doctor_say(d, DOCTOR_OK, "file system", NULL,
                   "%s: a container's own, gone with it; a volume would stay", disk->name);
        return;
    case DISK_LOCAL: break;
    }
    doctor_say(d, DOCTOR_OK, "file system", NULL, "%s", disk->name);
}

/* The default model and its GGUF file side by side, for a moment. */
static void check_space(Doctor *d, const Disk *disk)
{
    char free_text[DOCTOR_SIZE_BYTES], need_text[DOCTOR_SIZE_BYTES];
    uint64_t need = 2 * zoo_models[0].bytes;
    DoctorState state = disk->free_bytes < FREE_LEAST ? DOCTOR_PROBLEM
                        : disk->free_bytes < need     ? DOCTOR_WARNING
                                                      : DOCTOR_OK;
    doctor_say(d, state, "space",
               state == DOCTOR_OK ? NULL
                                  : "Remove models (cobord rm NAME) or use another disk (--cache "
                                    "DIR, COBORD_CACHE).",
               "%s free; a pull of %s takes %s for a moment, half of it afterwards",
               doctor_size(disk->free_bytes, free_text), zoo_models[0].name,
               doctor_size(need, need_text));
}

/* ---- What is in it */

typedef struct DiskModels {
    uint32_t sound, damaged;
    char largest[PLACES_PATH_BYTES + 264];
    uint64_t largest_bytes;
} DiskModels;

static void look_at_model(Doctor *d, const char *folder, const char *file, const char *name,
                          DiskModels *m)
{
    KnotFile knot;
    Why why = {{0}};
    char path[PLACES_PATH_BYTES + 264], advice[PLACES_NAME_BYTES * 2 + 64];
    (void)snprintf(path, sizeof path, "%s/%s", folder, file);
    Error error = knot_file_open(path, &knot, &why);
    if (error != OK) {
        m->damaged++;
        (void)snprintf(advice, sizeof advice, "Run: cobord rm %s, then: cobord pull %s", name,
                       name);
        doctor_say(d, DOCTOR_PROBLEM, "model", advice, "%s is damaged: %s", name,
                   why.text[0] ? why.text : error_text(error));
        return;
    }
    m->sound++;
    if (knot.knot.file_bytes > m->largest_bytes) {
        m->largest_bytes = knot.knot.file_bytes;
        memcpy(m->largest, path, sizeof path);
    }
    knot_file_close(&knot);
}

/* ".NAME.pull" of a pull that was stopped, ".NAME.PID.part" of a file that was never finished. */
static void look_at_leftover(Doctor *d, const char *folder, const char *file)
{
    char advice[PLACES_PATH_BYTES + 600];
    size_t bytes = strlen(file);
    if (bytes > 6 && strcmp(file + bytes - 5, ".pull") == 0) {
        (void)snprintf(advice, sizeof advice,
                       "If none is under way: cobord pull %.*s goes on with it, cobord rm %.*s "
                       "removes it.",
                       (int)bytes - 6, file + 1, (int)bytes - 6, file + 1);
        doctor_say(d, DOCTOR_WARNING, "leftover", advice,
                   "%s: a pull that was stopped, or is under way", file);
    } else if (bytes > 5 && strcmp(file + bytes - 5, ".part") == 0) {
        (void)snprintf(advice, sizeof advice, "If nothing writes it: rm '%s/%s'", folder, file);
        doctor_say(d, DOCTOR_WARNING, "leftover", advice, "%s: a file that was not finished", file);
    }
}

static void look_inside(Doctor *d, const char *folder, DiskModels *m)
{
    char name[PLACES_NAME_BYTES];
    DIR *directory = opendir(folder);
    for (struct dirent *e; directory && (e = readdir(directory)) != NULL;) {
        if (places_model_name(e->d_name, name)) look_at_model(d, folder, e->d_name, name, m);
        else look_at_leftover(d, folder, e->d_name);
    }
    if (directory) (void)closedir(directory);
    if (m->sound) doctor_say(d, DOCTOR_OK, "models", NULL, "%u ready (see: cobord list)", m->sound);
    else if (!m->damaged)
        doctor_say(d, DOCTOR_OK, "models", NULL, "none yet: cobord pull %s gets the default",
                   zoo_models[0].name);
}

static void check_reading(Doctor *d, const DiskModels *m)
{
    if (m->largest_bytes) d->disk_bytes_per_s = disk_read_rate(m->largest, READ_MS);
    if (d->disk_bytes_per_s <= 0) {
        doctor_say(d, DOCTOR_OK, "reading", NULL, "not measured: there is no model to read yet");
        return;
    }
    doctor_say(d, DOCTOR_OK, "reading", NULL,
               "%.0f MB/s from the disk itself: %s starts %.1f s after a restart of the machine, "
               "and streams %.2g tokens/s where its weights do not fit the memory",
               d->disk_bytes_per_s / 1e6, zoo_models[0].name,
               (double)zoo_models[0].bytes / d->disk_bytes_per_s,
               d->disk_bytes_per_s / (double)zoo_models[0].bytes);
}

/* The folder itself, or the nearest above it: what is missing is made by the first pull. */
static void nearest(const char *folder, char out[PLACES_PATH_BYTES])
{
    (void)snprintf(out, PLACES_PATH_BYTES, "%s", folder);
    for (char *slash; access(out, F_OK) != 0 && (slash = strrchr(out, '/')) != NULL;) {
        if (slash == out) slash++; /* the root stays */
        if (!*slash) return;
        *slash = 0;
    }
}

void doctor_check_disk(Doctor *d)
{
    static const char advice[] =
        "Choose a folder that you may write: --cache DIR, or COBORD_CACHE.";
    char folder[PLACES_PATH_BYTES], there[PLACES_PATH_BYTES];
    Disk disk;
    DiskModels models = {.sound = 0};
    Why why = {{0}};
    doctor_area(d, "Disk");
    Error error = places_models_path(folder, sizeof folder, &why);
    if (error == OK) {
        nearest(folder, there);
        error = disk_look(there, &disk, &why);
    }
    if (error != OK) {
        doctor_say(d, DOCTOR_PROBLEM, "cache", advice, "%s", why.text);
        return;
    }
    error = disk_try_write(there, &why);
    bool whole = strcmp(folder, there) == 0;
    if (error != OK)
        doctor_say(d, DOCTOR_PROBLEM, "cache", advice, "%s cannot be written: %s", folder,
                   why.text);
    else
        doctor_say(d, DOCTOR_OK, "cache", NULL, "%s can be %s", folder,
                   whole ? "written" : "made: it is not there yet");
    check_kind(d, &disk);
    if (error == OK) check_space(d, &disk);
    look_inside(d, folder, &models);
    check_reading(d, &models);
}

/* ---- One model */

static void say_speed(Doctor *d, uint64_t bytes)
{
    char size[DOCTOR_SIZE_BYTES], allowed[DOCTOR_SIZE_BYTES];
    bool fits = bytes + bytes / 8 < memory_allowed();
    double rate = fits ? 1e9 * d->bandwidth_gbs : d->disk_bytes_per_s;
    doctor_size(bytes, size);
    doctor_size(memory_allowed(), allowed);
    doctor_say(d, fits ? DOCTOR_OK : DOCTOR_WARNING, "memory",
               fits ? NULL
                    : "Spread it over machines (cobord plan MODEL --hosts LIST), or take a smaller "
                      "model.",
               fits ? "%s of weights fit in the %s that it may take"
                    : "%s of weights do not fit in the %s that it may take: they are read from "
                      "disk for every token",
               size, allowed);
    if (rate > 0)
        doctor_say(d, DOCTOR_OK, "speed", NULL,
                   "at most about %.3g tokens/s for one answer, without guessed ones",
                   rate / (double)bytes);
}

static void say_knot(Doctor *d, const char *path)
{
    KnotFile file;
    Why why = {{0}};
    char checked[PLACES_PATH_BYTES + 16], size[DOCTOR_SIZE_BYTES];
    Error error = knot_file_open(path, &file, &why);
    if (error != OK) {
        doctor_say(d, DOCTOR_PROBLEM, "file", "Pull or encode it again.", "%s: %s",
                   error_text(error), why.text);
        return;
    }
    uint64_t bytes = file.knot.file_bytes;
    knot_file_close(&file);
    doctor_say(d, DOCTOR_OK, "file", NULL, "%s, %s", path, doctor_size(bytes, size));
    (void)snprintf(checked, sizeof checked, "%s.checked", path);
    doctor_say(d, DOCTOR_OK, "hashes", NULL, "%s",
               access(checked, F_OK) == 0 ? "checked before"
                                          : "are checked at the first use (cobord verify)");
    say_speed(d, bytes);
}

static bool is_gguf(const char *path)
{
    size_t bytes = strlen(path);
    return bytes > 5 && strcmp(path + bytes - 5, ".gguf") == 0;
}

/* Where its knot is, or would be. */
static Error find_knot(const char *model, char path[PLACES_PATH_BYTES], LocateKind *kind, Why *why)
{
    char name[PLACES_NAME_BYTES], models[PLACES_PATH_BYTES];
    TRY(locate_kind(model, kind, name, sizeof name, why));
    if (*kind != LOCATE_PATH) {
        TRY(places_models_path(models, sizeof models, why));
        return places_join(path, PLACES_PATH_BYTES, models, "", name, ".knot", why);
    }
    const char *given = locate_file_path(model);
    if (access(given, F_OK) != 0) return locate_unknown(model, why);
    int n = snprintf(path, PLACES_PATH_BYTES, "%s", given);
    return n < PLACES_PATH_BYTES ? OK : error_why(why, ERR_TOO_LARGE, "the path of the model");
}

void doctor_check_model(Doctor *d, const char *model)
{
    char path[PLACES_PATH_BYTES], advice[600];
    LocateKind kind;
    Why why = {{0}};
    doctor_area(d, "Model");
    Error error = find_knot(model, path, &kind, &why);
    bool here = error == OK && access(path, R_OK) == 0;
    if (error == OK && !here && kind == LOCATE_CACHED) error = locate_unknown(model, &why);
    if (error != OK)
        doctor_say(d, DOCTOR_PROBLEM, "file", "cobord list shows the names.", "%s", why.text);
    else if (!here) {
        (void)snprintf(advice, sizeof advice, "Run: cobord pull %.500s", model);
        doctor_say(d, DOCTOR_PROBLEM, "file", advice, "%s is not here yet", model);
        if (zoo_find(model)) say_speed(d, zoo_find(model)->bytes);
    } else if (is_gguf(path))
        doctor_say(d, DOCTOR_OK, "file", NULL,
                   "%s is made a knot of at the first use, which takes as much room in the cache",
                   path);
    else say_knot(d, path);
}
