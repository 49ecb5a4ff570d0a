/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run_save.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yyjson.h>

#include "host/file_writer.h"
#include "host/places.h"
#include "text/utf8.h"

enum { ATTACHED_BYTES_MAX = 1 << 20 };

Error run_save_path(const char *said, char *out, size_t out_bytes, Why *why)
{
    size_t length = strlen(said);
    const char *home = getenv("HOME");
    while (length && (said[length - 1] == ' ' || said[length - 1] == '\t')) length--;
    bool quoted = length >= 2 && (said[0] == '"' || said[0] == '\'') && said[length - 1] == said[0];
    if (quoted) {
        said++;
        length -= 2;
    }
    if (!length) return error_why(why, ERR_USAGE, "which file? Name it after the command.");
    bool at_home = said[0] == '~' && (said[1] == '/' || length == 1) && home;
    if (at_home) {
        said++;
        length--;
    }
    int bytes = snprintf(out, out_bytes, "%s%.*s", at_home ? home : "", (int)length, said);
    if (bytes < 0 || (size_t)bytes >= out_bytes)
        return error_why(why, ERR_TOO_LARGE, "a path of %zu bytes", length);
    return OK;
}

/* A regular file's bytes, and a NUL. Owner  the caller frees *out. */
static Error read_file(const char *path, size_t bytes_max, char **out, size_t *bytes, Why *why)
{
    struct stat state;
    *out = NULL;
    if (stat(path, &state) != 0) return error_why(why, ERR_NOT_FOUND, "%s is not there.", path);
    if (!S_ISREG(state.st_mode)) return error_why(why, ERR_FORMAT, "%s is no regular file.", path);
    if ((uint64_t)state.st_size > bytes_max)
        return error_why(why, ERR_TOO_LARGE, "%s has %lld bytes; at most %zu are read.", path,
                         (long long)state.st_size, bytes_max);
    FILE *file = fopen(path, "re");
    if (!file) return error_why(why, ERR_IO, "%s cannot be read", path);
    *out = malloc((size_t)state.st_size + 1);
    *bytes = *out ? fread(*out, 1, (size_t)state.st_size, file) : 0;
    bool failed = ferror(file);
    (void)fclose(file);
    if (!*out) return error_why(why, ERR_MEMORY, "no memory for %s", path);
    if (failed) return error_why(why, ERR_IO, "%s cannot be read", path);
    (*out)[*bytes] = 0;
    return OK;
}

/* --- Writing --- */

static yyjson_mut_doc *conversation(const Run *r)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = doc ? yyjson_mut_obj(doc) : NULL;
    if (!root) return doc;
    yyjson_mut_doc_set_root(doc, root);
    yyjson_mut_obj_add_str(doc, root, "model", r->options->operands[0]);
    yyjson_mut_val *messages = yyjson_mut_obj_add_arr(doc, root, "messages");
    for (size_t i = 0; messages && i < r->turn_count; i++) {
        const Turn *t = &r->turns[i];
        yyjson_mut_val *message = yyjson_mut_arr_add_obj(doc, messages);
        yyjson_mut_obj_add_str(doc, message, "role", t->role);
        yyjson_mut_obj_add_strn(doc, message, "content", (const char *)t->text, t->bytes);
    }
    return doc;
}

/* A file that is there is only replaced by its like. */
static Error check_target(const char *path, Why *why)
{
    char *text;
    size_t bytes;
    Why none;
    if (access(path, F_OK) != 0) return OK;
    Error error = read_file(path, RUN_TEXT_BYTES_MAX, &text, &bytes, &none);
    yyjson_doc *doc = error == OK ? yyjson_read(text, bytes, 0) : NULL;
    bool alike = yyjson_is_arr(yyjson_obj_get(yyjson_doc_get_root(doc), "messages"));
    yyjson_doc_free(doc);
    free(text);
    if (alike) return OK;
    return error_why(why, ERR_USAGE, "%s is there and is no conversation. Choose another name.",
                     path);
}

Error run_save_write(const Run *r, const char *path, Why *why)
{
    size_t bytes = 0;
    FileWriter w;
    TRY(check_target(path, why));
    yyjson_mut_doc *doc = conversation(r);
    char *text =
        yyjson_mut_write(doc, YYJSON_WRITE_PRETTY_TWO_SPACES | YYJSON_WRITE_NEWLINE_AT_END, &bytes);
    yyjson_mut_doc_free(doc);
    if (!text) return error_why(why, ERR_USAGE, "the conversation has text that is no UTF-8.");
    Error error = file_writer_open(&w, path, bytes, why);
    if (error == OK) {
        error = file_writer_append(&w, text, bytes, why);
        if (error == OK) error = file_writer_commit(&w, why);
        if (error != OK) file_writer_abandon(&w);
    }
    free(text);
    return error;
}

/* --- Reading --- */

/* One of our own texts for the role; NULL: none. */
static const char *role_of(const char *said)
{
    static const char *const roles[] = {"system", "user", "assistant"};
    for (size_t i = 0; said && i < sizeof roles / sizeof roles[0]; i++)
        if (strcmp(said, roles[i]) == 0) return roles[i];
    return NULL;
}

static Error add_messages(Run *r, yyjson_val *messages, Why *why)
{
    size_t i, count;
    yyjson_val *message;
    yyjson_arr_foreach(messages, i, count, message)
    {
        const char *role = role_of(yyjson_get_str(yyjson_obj_get(message, "role")));
        yyjson_val *content = yyjson_obj_get(message, "content");
        if (!role || !yyjson_is_str(content))
            return error_why(why, ERR_FORMAT,
                             "message %zu has no role of system, user, assistant, or no text.",
                             i + 1);
        TRY(run_answer_add(r, role, yyjson_get_str(content), yyjson_get_len(content), why));
    }
    return OK;
}

static Error read_messages(Run *r, const char *text, size_t bytes, const char *path, Why *why)
{
    yyjson_read_err fault;
    yyjson_doc *doc = yyjson_read_opts((char *)(uintptr_t)text, bytes, 0, NULL, &fault);
    yyjson_val *root = yyjson_doc_get_root(doc),
               *messages = yyjson_is_arr(root) ? root : yyjson_obj_get(root, "messages");
    Error error = OK;
    if (!doc) error = error_why(why, ERR_FORMAT, "%s is no JSON: %s.", path, fault.msg);
    else if (!yyjson_is_arr(messages))
        error = error_why(why, ERR_FORMAT, "%s has no list of messages.", path);
    else error = add_messages(r, messages, why);
    yyjson_doc_free(doc);
    return error;
}

Error run_save_read(Run *r, const char *path, Why *why)
{
    static Turn before[RUN_TURNS_MAX];
    size_t bytes, count = r->turn_count;
    char *text;
    Error error = read_file(path, RUN_TEXT_BYTES_MAX, &text, &bytes, why);
    if (error == OK) {
        memcpy(before, r->turns, sizeof before);
        r->turn_count = 0;
        error = read_messages(r, text, bytes, path, why);
        if (error != OK) {
            run_answer_drop(r, 0);
            memcpy(r->turns, before, sizeof before);
            r->turn_count = count;
        } else {
            while (count) free((void *)(uintptr_t)before[--count].text);
        }
    }
    free(text);
    return error;
}

/* --- Attaching --- */

/* Longer than any row of backticks in the text. */
static size_t fence_of(const char *text)
{
    size_t longest = 2, row = 0;
    for (; *text; text++) {
        row = *text == '`' ? row + 1 : 0;
        if (row > longest) longest = row;
    }
    return longest + 1;
}

static Error append_file(const char *path, const char *content, char **text, Why *why)
{
    size_t old = *text ? strlen(*text) : 0, fence = fence_of(content), bytes = strlen(content);
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *end = bytes && content[bytes - 1] != '\n' ? "\n" : "";
    size_t room = old + bytes + strlen(name) + 2 * fence + 16;
    char *grown = realloc(*text, room), *ticks = malloc(fence + 1);
    if (grown) *text = grown;
    if (grown && ticks) {
        memset(ticks, '`', fence);
        ticks[fence] = 0;
        (void)snprintf(grown + old, room - old, "%s:\n%s\n%s%s%s\n\n", name, ticks, content, end,
                       ticks);
    }
    bool done = grown && ticks;
    free(ticks);
    return done ? OK : error_why(why, ERR_MEMORY, "no memory for %s", path);
}

Error run_save_attach(const char *path, char **text, size_t *lines, Why *why)
{
    char *content;
    size_t bytes = 0;
    Error error = read_file(path, ATTACHED_BYTES_MAX, &content, &bytes, why);
    if (error == OK && (strlen(content) != bytes || !utf8_is_text((uint8_t *)content, bytes)))
        error = error_why(why, ERR_FORMAT, "%s is no text.", path);
    if (error == OK) error = append_file(path, content, text, why);
    *lines = 0;
    for (size_t i = 0; error == OK && i < bytes; i++)
        *lines += content[i] == '\n' || i + 1 == bytes;
    free(content);
    return error;
}
