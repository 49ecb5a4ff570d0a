/* SPDX-License-Identifier: Apache-2.0 */
/* cobord keys: makes, lists and revokes the keys of an API (docs/api.md, Keys). A new key is shown once, and only its
 * hash kept. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "cli/complain.h"
#include "cli/keys_file.h"
#include "cli/options.h"
#include "cli/verbs.h"

static const OptionId keys_options[] = {OPTION_FILE,
                                        OPTION_REQUESTS_PER_MINUTE,
                                        OPTION_TOKENS_PER_MINUTE,
                                        OPTION_CONCURRENT,
                                        OPTION_ADMIN,
                                        OPTION_JSON,
                                        OPTION_END};
const OptionVerb keys_verb = {
    .name = "keys",
    .usage = "new NAME | list | revoke NAME",
    .summary =
        "The keys of an API, in a file for --api-keys. `new` makes a random key, prints it, and keeps its\n"
        "hash only: it cannot be shown again. Limits are per key; without them it may do everything.\n"
        "A server that runs reads the file again on SIGHUP: kill -HUP, systemctl reload.",
    .examples = "  cobord keys new alice --requests-per-minute 60 --concurrent 4\n"
                "  cobord keys new ops --admin --file /etc/cobord/keys.json\n"
                "  cobord serve smollm2-135m --api-keys /etc/cobord/keys.json\n"
                "  cobord keys revoke alice\n",
    .options = keys_options,
    .operands_min = 1,
    .operands_max = 2,
    .operand_names = "new|list|revoke",
};

enum { SECRET_RANDOM_BYTES = 24, SECRET_BYTES = 64 };
#define SECRET_BEGINNING "sk-cobord-"

/* ---- Which file ---- */

static Error default_path(char out[PLACES_PATH_BYTES], Why *why)
{
    char directory[PLACES_PATH_BYTES - 16];
    const char *base = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    bool based = base && base[0] == '/';
    if (!based && !home)
        return error_why(why, ERR_USAGE, "there is no home for a file of keys: name one");
    int n = snprintf(directory, sizeof directory, "%s%s/cobord", based ? base : home,
                     based ? "" : "/.config");
    if (n < 0 || (size_t)n >= sizeof directory)
        return error_why(why, ERR_TOO_LARGE, "the path of the file of keys");
    TRY(places_make_directory(directory, 0700, why));
    (void)snprintf(out, PLACES_PATH_BYTES, "%s/keys.json", directory);
    return OK;
}

static Error open_file(const Options *o, KeysFile *file, Why *why)
{
    char standard[PLACES_PATH_BYTES];
    const char *path = options_text(o, OPTION_FILE);
    *file = (KeysFile){.lock = -1};
    if (!path) path = options_setting(OPTION_API_KEYS);
    if (!path) TRY(default_path(standard, why));
    return keys_file_open(path ? path : standard, file, why);
}

/* ---- new ---- */

static Error make_secret(char out[SECRET_BYTES], Why *why)
{
    uint8_t bytes[SECRET_RANDOM_BYTES];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return error_why(why, ERR_IO, "no random bytes: %s", strerror(errno));
    int used = snprintf(out, SECRET_BYTES, "%s", SECRET_BEGINNING);
    for (size_t i = 0; i < sizeof bytes; i++)
        used += snprintf(out + used, SECRET_BYTES - (size_t)used, "%02x", bytes[i]);
    return OK;
}

static uint32_t limit_of(const Options *o, OptionId id)
{
    return options_given(o, id) ? (uint32_t)options_count(o, id) : 0;
}

static Error add(const Options *o, const KeysFile *file, const char *name, Why *why)
{
    char secret[SECRET_BYTES];
    uint8_t digest[DIGEST_BYTES];
    KeysEntry entry = {.admin = options_switch(o, OPTION_ADMIN),
                       .limits = {limit_of(o, OPTION_REQUESTS_PER_MINUTE),
                                  limit_of(o, OPTION_TOKENS_PER_MINUTE),
                                  limit_of(o, OPTION_CONCURRENT)}};
    if (keys_find_name(&file->keys, name) != KEYS_NONE)
        return error_why(why, ERR_DUPLICATE, "%s has a key of this name. `cobord keys revoke %s`",
                         file->path, name);
    memcpy(entry.name, name, strlen(name));
    TRY(make_secret(secret, why));
    digest_sha256(secret, strlen(secret), digest);
    TRY(keys_file_write(file, KEYS_NONE, &entry, digest, why));
    printf("%s\n", secret);
    (void)fflush(stdout);
    explicit_bzero(secret, sizeof secret);
    fprintf(
        stderr,
        "cobord: this key is shown once: %s has its hash only. Serve with --api-keys %s; a server "
        "that runs reads it again on SIGHUP.\n",
        file->path, file->path);
    return OK;
}

static int keys_new(const Options *o, const char *name)
{
    KeysFile file;
    Why why = {{0}};
    if (!keys_name_is_fine(name, strlen(name)))
        return complain_usage("keys: a name has 1 to %d of A-Z a-z 0-9 . _ - and does not begin "
                              "with sk-; it is public",
                              KEYS_NAME_BYTES - 1);
    Error error = open_file(o, &file, &why);
    if (error == OK) error = add(o, &file, name, &why);
    keys_file_close(&file);
    return error == OK ? 0 : complain(error, &why, error == ERR_DUPLICATE ? name : NULL, NULL);
}

/* ---- revoke ---- */

static Error revoke(const KeysFile *file, const char *name, Why *why)
{
    uint32_t at = keys_find_name(&file->keys, name);
    if (at == KEYS_NONE)
        return error_why(why, ERR_NOT_FOUND, "%s has no key of this name. `cobord keys list`",
                         file->path);
    TRY(keys_file_write(file, at, NULL, NULL, why));
    fprintf(stderr, "cobord: %s is gone from %s; a server that runs lets it in until SIGHUP.\n",
            name, file->path);
    return OK;
}

static int keys_revoke(const Options *o, const char *name)
{
    KeysFile file;
    Why why = {{0}};
    if (!keys_name_is_fine(name, strlen(name)))
        return complain_usage("keys: revoke takes the name of a key, not the key itself");
    Error error = open_file(o, &file, &why);
    if (error == OK) error = revoke(&file, name, &why);
    keys_file_close(&file);
    return error == OK ? 0 : complain(error, &why, error == ERR_NOT_FOUND ? name : NULL, NULL);
}

/* ---- list ---- */

static void show_limit(uint32_t limit)
{
    if (limit) printf("  %11u", limit);
    else printf("  %11s", "-");
}

static void show_table(const KeysFile *file)
{
    printf("%-20s  %11s  %11s  %11s\n", "name", "requests/min", "tokens/min", "at once");
    for (uint32_t i = 0; i < file->keys.count; i++) {
        const KeysEntry *entry = &file->keys.entries[i];
        printf("%-20s", entry->name);
        show_limit(entry->limits.requests_per_minute);
        show_limit(entry->limits.tokens_per_minute);
        show_limit(entry->limits.concurrent);
        printf("%s\n", entry->admin ? "  admin" : "");
    }
}

static void show_member(const char *name, uint32_t limit)
{
    if (limit) printf(",\"%s\":%u", name, limit);
}

/* As the file has it, without the hashes. */
static void show_json(const KeysFile *file)
{
    printf("[");
    for (uint32_t i = 0; i < file->keys.count; i++) {
        const KeysEntry *entry = &file->keys.entries[i];
        printf("%s{\"name\":\"%s\"", i ? "," : "", entry->name);
        show_member("requests_per_minute", entry->limits.requests_per_minute);
        show_member("tokens_per_minute", entry->limits.tokens_per_minute);
        show_member("concurrent", entry->limits.concurrent);
        printf(",\"admin\":%s}", entry->admin ? "true" : "false");
    }
    printf("]\n");
}

static int keys_list(const Options *o)
{
    KeysFile file;
    Why why = {{0}};
    Error error = open_file(o, &file, &why);
    if (error == OK && !file.exists)
        error =
            error_why(&why, ERR_NOT_FOUND, "%s is not there. `cobord keys new NAME`", file.path);
    if (error == OK && options_switch(o, OPTION_JSON)) show_json(&file);
    else if (error == OK) show_table(&file);
    keys_file_close(&file);
    return error == OK ? 0 : complain(error, &why, NULL, NULL);
}

int cli_keys(int argc, char **argv)
{
    Options o;
    int code;
    if (!options_read(&o, &keys_verb, argc, argv, &code)) return code;
    const char *action = o.operands[0], *name = o.operand_count > 1 ? o.operands[1] : NULL;
    bool adds = strcmp(action, "new") == 0, removes = strcmp(action, "revoke") == 0;
    if (!adds && !removes && strcmp(action, "list") != 0)
        return complain_usage("keys: it does new, list and revoke. See: cobord help keys");
    if ((adds || removes) != (name != NULL))
        return complain_usage("keys: %s takes %s", action, name ? "no name" : "the name of a key");
    if (adds) return keys_new(&o, name);
    return removes ? keys_revoke(&o, name) : keys_list(&o);
}
