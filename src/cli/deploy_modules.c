/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/deploy_modules.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/file_writer.h"
#include "host/whole.h"

enum { FILE_BYTES_MAX = 16 << 20 }; /* what a script may be, with room */

/* ---- Finding */

static bool join(char *out, const char *folder, const char *name)
{
    int n = snprintf(out, PLACES_PATH_BYTES, "%s/%s", folder, name);
    return n > 0 && n < PLACES_PATH_BYTES;
}

static bool is_there(const char *folder, const char *name)
{
    char path[PLACES_PATH_BYTES];
    return join(path, folder, name) && access(path, R_OK) == 0;
}

static bool find_module(const char *folder, DeployModules *m)
{
    static const char *const names[] = {"cobord-relaxed.wasm", "cobord.wasm"};
    for (int i = 0; i < 2; i++)
        if (is_there(folder, names[i])) return join(m->module, folder, names[i]);
    return false;
}

/* Both, in the folders that stand for one place. */
static bool find_both(const char *scripts, const char *modules, DeployModules *m)
{
    if (!is_there(scripts, "coordinator.mjs") || !find_module(modules, m)) return false;
    int n = snprintf(m->scripts, sizeof m->scripts, "%s", scripts);
    return n > 0 && n < PLACES_PATH_BYTES;
}

/* The folder above the program's own, without links. */
static bool program_root(char *out)
{
    char *path = realpath("/proc/self/exe", NULL);
    bool fine = path && strlen(path) < PLACES_PATH_BYTES;
    if (fine) (void)snprintf(out, PLACES_PATH_BYTES, "%s", path);
    free(path);
    for (int up = 0; fine && up < 2; up++) {
        char *slash = strrchr(out, '/');
        fine = slash != NULL;
        if (fine) *slash = '\0';
    }
    return fine;
}

static bool find_beside(const char *root, DeployModules *m)
{
    static const struct {
        const char *scripts, *module;
    } places[] = {{"share/cobord/workers", "share/cobord/workers"}, {"workers", "build-wasm"}};
    char scripts[PLACES_PATH_BYTES], module[PLACES_PATH_BYTES];
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if (join(scripts, root, places[i].scripts) && join(module, root, places[i].module) &&
            find_both(scripts, module, m))
            return true;
    return false;
}

Error deploy_modules_find(const char *given, DeployModules *out, Why *why)
{
    char root[PLACES_PATH_BYTES] = "";
    if (given) {
        if (find_both(given, given, out)) return OK;
        return error_why(why, ERR_NOT_FOUND,
                         "%s has not both coordinator.mjs and cobord.wasm. Build the module with "
                         "`make wasm` and put it beside the scripts of workers/.",
                         given);
    }
    if (program_root(root) && find_beside(root, out)) return OK;
    return error_why(why, ERR_NOT_FOUND,
                     "the WebAssembly module is not at %s/build-wasm, nor installed. Build it with "
                     "`make wasm`, or say where it is with --modules DIR.",
                     root);
}

/* ---- Copying */

static Error read_all(const char *path, uint8_t **out, size_t *bytes, Why *why)
{
    struct stat state;
    int file = whole_open(path, O_RDONLY | O_CLOEXEC, 0);
    if (file < 0 || fstat(file, &state) != 0) {
        Error error = places_system_error(errno, path, why);
        if (file >= 0) (void)close(file);
        return error;
    }
    Error error = OK;
    *bytes = (size_t)state.st_size;
    *out = NULL;
    if (state.st_size > FILE_BYTES_MAX) error = error_why(why, ERR_TOO_LARGE, "%s", path);
    if (error == OK && !(*out = malloc(*bytes + 1))) error = error_why(why, ERR_MEMORY, "%s", path);
    if (error == OK && !whole_read(file, 0, *out, *bytes))
        error = places_system_error(errno ? errno : EIO, path, why);
    if (error != OK) free(*out);
    (void)close(file);
    return error;
}

static Error copy_file(const char *from, const char *folder, const char *name, Why *why)
{
    char to[PLACES_PATH_BYTES];
    FileWriter writer;
    uint8_t *bytes = NULL;
    size_t count = 0;
    if (!join(to, folder, name)) return error_why(why, ERR_TOO_LARGE, "the path of %s", name);
    TRY(read_all(from, &bytes, &count, why));
    Error error = file_writer_open(&writer, to, count, why);
    if (error == OK) {
        error = file_writer_append(&writer, bytes, count, why);
        if (error == OK) error = file_writer_commit(&writer, why);
        else file_writer_abandon(&writer);
    }
    free(bytes);
    return error;
}

static bool is_script(const char *name)
{
    size_t bytes = strlen(name);
    return name[0] != '.' && bytes > 4 && strcmp(name + bytes - 4, ".mjs") == 0;
}

Error deploy_modules_copy(const DeployModules *m, const char *folder, Why *why)
{
    char path[PLACES_PATH_BYTES];
    TRY(places_make_directory(folder, 0755, why));
    TRY(copy_file(m->module, folder, "cobord.wasm", why));
    DIR *directory = opendir(m->scripts);
    if (!directory) return places_system_error(errno, m->scripts, why);
    Error error = OK;
    for (struct dirent *e; error == OK && (e = readdir(directory)) != NULL;) {
        if (!is_script(e->d_name)) continue;
        if (!join(path, m->scripts, e->d_name))
            error = error_why(why, ERR_TOO_LARGE, "the path of %s", e->d_name);
        else error = copy_file(path, folder, e->d_name, why);
    }
    (void)closedir(directory);
    return error;
}
