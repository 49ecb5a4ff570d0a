/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/deploy_wrangler.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <yyjson.h>

#include "host/child.h"
#include "host/stop.h"
#include "host/whole.h"

enum { ARGUMENTS_MAX = 16, OUTPUT_BYTES_MAX = 1 << 20, PROGRAM_MISSING = 127 };

/* ---- One call */

/* Starts, waits, ends it when we are asked to end. `output`: where its standard output goes when not into the log. */
static Error run(const DeployWrangler *w, const char *const *arguments, const char *log, int output,
                 int *code, Why *why)
{
    char *list[ARGUMENTS_MAX + 2] = {(char *)w->program};
    pid_t child;
    for (int i = 0; arguments[i]; i++) {
        ASSERT(i < ARGUMENTS_MAX);
        list[i + 1] = (char *)arguments[i];
    }
    ChildSetup setup = {.arguments = list, .output_path = log, .output_pipe = output};
    TRY(child_start(&setup, &child, why));
    while (!child_ended(child, code)) {
        if (stop_asked()) {
            child_kill(child);
            return error_why(why, ERR_CANCELLED, "%s", w->program);
        }
        (void)nanosleep(&(struct timespec){0, 20000000}, NULL);
    }
    return OK;
}

/* The end of a file, as a text. Owner  free it. */
static char *read_end(const char *path)
{
    char *text = NULL;
    int file = whole_open(path, O_RDONLY | O_CLOEXEC, 0);
    off_t size = file < 0 ? -1 : lseek(file, 0, SEEK_END);
    if (size >= 0 && (text = malloc(OUTPUT_BYTES_MAX + 1)) != NULL) {
        off_t from = size > OUTPUT_BYTES_MAX ? size - OUTPUT_BYTES_MAX : 0;
        ssize_t n = pread(file, text, OUTPUT_BYTES_MAX, from);
        text[n > 0 ? n : 0] = '\0';
    }
    if (file >= 0) (void)close(file);
    return text;
}

/* Without escape sequences and what is beyond ASCII (crosses, frames). */
static void clean_line(const char *at, size_t bytes, char *out, size_t room)
{
    size_t used = 0;
    for (size_t i = 0; i < bytes && used + 1 < room; i++) {
        if (at[i] == '\x1b') {
            while (i + 1 < bytes && at[i] != 'm') i++;
            continue;
        }
        bool blank = at[i] == ' ' && (!used || out[used - 1] == ' ');
        if (at[i] >= ' ' && at[i] < 0x7f && !blank) out[used++] = at[i];
    }
    while (used && out[used - 1] == ' ') used--;
    out[used] = '\0';
}

/* The next line that has something in it, cleaned; `at` then stands behind it. */
static bool next_line(const char **at, char *out, size_t room)
{
    out[0] = '\0';
    while (!out[0] && **at) {
        size_t bytes = strcspn(*at, "\n");
        clean_line(*at, bytes, out, room);
        *at += bytes + ((*at)[bytes] == '\n');
    }
    return out[0] != '\0';
}

void deploy_wrangler_fault(const char *text, char *out, size_t room)
{
    char more[100];
    const char *fault = strstr(text, "ERROR"), *at = fault ? fault : text;
    while (at > text && at[-1] != '\n') at--;
    if (!next_line(&at, out, room)) return;
    while (*at == '\n') at++;
    bool goes_on = strncmp(at, "  ", 2) == 0 && next_line(&at, more, sizeof more);
    size_t used = strlen(out);
    if (goes_on) (void)snprintf(out + used, room - used, " %s", more);
}

static Error fault(const char *what, const char *log, Error error, Why *why)
{
    char line[180] = "";
    char *text = read_end(log);
    if (text) deploy_wrangler_fault(text, line, sizeof line);
    free(text);
    if (line[0] && line[strlen(line) - 1] == '.') line[strlen(line) - 1] = '\0';
    return error_why(why, error, "%s: %s. All it said is in %s.", what,
                     line[0] ? line : "wrangler failed", log);
}

/* Of a call whose only result is that it went well. */
static Error must(const DeployWrangler *w, const char *what, const char *const *arguments,
                  const char *log, Error error, Why *why)
{
    int code;
    TRY(run(w, arguments, log, -1, &code, why));
    return code == 0 ? OK : fault(what, log, error, why);
}

/* ---- The program */

Error deploy_wrangler_open(const char *program, const char *account, const DeployFolder *folder,
                           DeployWrangler *out, Why *why)
{
    char log[PLACES_PATH_BYTES];
    int code;
    *out = (DeployWrangler){.program = program, .folder = folder};
    TRY(deploy_write_path(folder, "", "wrangler.log", log, why));
    (void)setenv("CI", "1", 1); /* it asks no questions then */
    (void)setenv("WRANGLER_SEND_METRICS", "false", 0);
    if (account[0]) (void)setenv("CLOUDFLARE_ACCOUNT_ID", account, 1);
    TRY(run(out, (const char *[]){"--version", NULL}, log, -1, &code, why));
    if (code == 0) return OK;
    if (code != PROGRAM_MISSING) return fault(program, log, ERR_NOT_FOUND, why);
    return error_why(
        why, ERR_NOT_FOUND,
        "%s is not there. Install it with `npm install --global wrangler@4.86.0`, or say "
        "where it is with --wrangler PROGRAM.",
        program);
}

Error deploy_wrangler_login(const DeployWrangler *w, Why *why)
{
    char log[PLACES_PATH_BYTES];
    int code;
    TRY(deploy_write_path(w->folder, "", "wrangler.log", log, why));
    TRY(run(w, (const char *[]){"whoami", "--json", NULL}, log, -1, &code, why));
    char *text = code ? read_end(log) : NULL;
    bool nobody = text && strstr(text, "\"loggedIn\":false");
    free(text);
    if (!nobody) return OK; /* a token that is wrong is found by the first call that needs it */
    return error_why(
        why, ERR_KEY,
        "wrangler is not logged in. Run `wrangler login`, or set CLOUDFLARE_API_TOKEN.");
}

Error deploy_wrangler_check(const DeployWrangler *w, const ClusterNode *n, Why *why)
{
    char path[PLACES_PATH_BYTES], log[PLACES_PATH_BYTES];
    TRY(deploy_write_path(w->folder, n->id, "wrangler.json", path, why));
    TRY(deploy_write_path(w->folder, n->id, "wrangler.log", log, why));
    return must(w, n->id, (const char *[]){"deploy", "--dry-run", "--config", path, NULL}, log,
                ERR_FORMAT, why);
}

/* https://NAME.SUBDOMAIN.workers.dev, or "". */
static void find_url(const char *log, char *url, size_t room)
{
    char *text = read_end(log);
    const char *at = text ? strstr(text, "https://") : NULL;
    url[0] = '\0';
    for (; at; at = strstr(at + 1, "https://")) {
        size_t bytes = strcspn(at, " \r\n\t\x1b");
        if (bytes >= room || bytes < 20 || memcmp(at + bytes - 12, ".workers.dev", 12) != 0)
            continue;
        (void)snprintf(url, room, "%.*s", (int)bytes, at);
        break;
    }
    free(text);
}

Error deploy_wrangler_deploy(const DeployWrangler *w, const ClusterNode *n, char *url, size_t room,
                             Why *why)
{
    char path[PLACES_PATH_BYTES], log[PLACES_PATH_BYTES], secrets[PLACES_PATH_BYTES];
    TRY(deploy_write_path(w->folder, n->id, "wrangler.json", path, why));
    TRY(deploy_write_path(w->folder, n->id, "wrangler.log", log, why));
    TRY(deploy_write_path(w->folder, "", "secrets.json", secrets, why));
    TRY(must(w, n->id,
             (const char *[]){"deploy", "--config", path, "--secrets-file", secrets, NULL}, log,
             ERR_IO, why));
    find_url(log, url, room);
    return OK;
}

/* ---- The namespace for rows */

static Error list_namespaces(const DeployWrangler *w, const char *title, char id[DEPLOY_KV_BYTES],
                             Why *why)
{
    char log[PLACES_PATH_BYTES], list[PLACES_PATH_BYTES];
    int code;
    TRY(deploy_write_path(w->folder, "", "wrangler.log", log, why));
    TRY(deploy_write_path(w->folder, "", "namespaces.json", list, why));
    int output = whole_open(list, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (output < 0) return places_system_error(errno, list, why);
    Error error =
        run(w, (const char *[]){"kv", "namespace", "list", NULL}, log, output, &code, why);
    (void)close(output);
    TRY(error);
    if (code != 0) return fault("the list of KV namespaces", log, ERR_IO, why);
    char *text = read_end(list);
    (void)unlink(list);
    yyjson_doc *doc = text ? yyjson_read(text, strlen(text), 0) : NULL;
    yyjson_val *one;
    size_t at, count;
    id[0] = '\0';
    if (!yyjson_is_arr(yyjson_doc_get_root(doc)))
        error = error_why(why, ERR_IO, "wrangler's list of KV namespaces is no list");
    yyjson_arr_foreach(yyjson_doc_get_root(doc), at, count, one)
    {
        const char *name = yyjson_get_str(yyjson_obj_get(one, "title"));
        const char *found = yyjson_get_str(yyjson_obj_get(one, "id"));
        if (!name || !found || strcmp(name, title) != 0) continue;
        if (strlen(found) == DEPLOY_KV_BYTES - 1 &&
            strspn(found, "0123456789abcdef") == DEPLOY_KV_BYTES - 1)
            (void)snprintf(id, DEPLOY_KV_BYTES, "%s", found);
    }
    yyjson_doc_free(doc);
    free(text);
    return error;
}

Error deploy_wrangler_namespace(const DeployWrangler *w, const char *title,
                                char id[DEPLOY_KV_BYTES], Why *why)
{
    char log[PLACES_PATH_BYTES];
    TRY(list_namespaces(w, title, id, why));
    if (id[0]) return OK;
    TRY(deploy_write_path(w->folder, "", "wrangler.log", log, why));
    TRY(must(w, "the KV namespace", (const char *[]){"kv", "namespace", "create", title, NULL}, log,
             ERR_IO, why));
    TRY(list_namespaces(w, title, id, why));
    return id[0] ? OK
                 : error_why(why, ERR_IO, "the KV namespace %s was made and is not there", title);
}

Error deploy_wrangler_bucket(const DeployWrangler *w, const char *bucket, Why *why)
{
    char log[PLACES_PATH_BYTES];
    TRY(deploy_write_path(w->folder, "", "wrangler.log", log, why));
    return must(w, "the bucket", (const char *[]){"r2", "bucket", "create", bucket, NULL}, log,
                ERR_IO, why);
}
