/* SPDX-License-Identifier: Apache-2.0 */
/* cobord list: the models of the cache, by looking into each, and those of the zoo that are not
 * here. */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/complain.h"
#include "cli/json_text.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "host/knot_file.h"
#include "host/places.h"
#include "host/zoo.h"

static const OptionId list_options[] = {OPTION_JSON, OPTION_CACHE, OPTION_END};
const OptionVerb list_verb = {
    .name = "list",
    .usage = "[--json]",
    .summary =
        "Shows each model that is here: name, size, how its bytes divide over number types, path.\n"
        "Then the models of the zoo that can be pulled.",
    .examples = "  cobord list\n"
                "  cobord list --json | python3 -m json.tool\n",
    .options = list_options,
};

enum { LIST_TYPES_SHOWN = 4, LIST_MIX_BYTES = 96, LIST_MODELS_MAX = 4096 };

typedef struct ListModel {
    char name[PLACES_NAME_BYTES];
    char path[PLACES_PATH_BYTES + 264];
    char mix[LIST_MIX_BYTES];
    char fault[WHY_MAX]; /* "" for a sound header */
    uint64_t bytes;
} ListModel;

/* "Q4_K 79 %, Q6_K 20 %": the types by share of the weights' bytes, largest first. */
static void list_mix(const Knot *knot, char *out, size_t out_bytes)
{
    uint64_t sums[BLOCK_TYPES_END] = {0}, total = 0;
    for (uint32_t i = 0; i < knot->tensor_count; i++) {
        sums[knot->tensors[i].type] += knot->tensors[i].bytes;
        total += knot->tensors[i].bytes;
    }
    size_t used = 0;
    out[0] = 0;
    for (int shown = 0; shown < LIST_TYPES_SHOWN && total; shown++) {
        unsigned best = 0;
        for (unsigned t = 0; t < BLOCK_TYPES_END; t++)
            if (sums[t] > sums[best]) best = t;
        unsigned percent = (unsigned)((sums[best] * 100 + total / 2) / total);
        if (sums[best] == 0 || (percent == 0 && shown)) break;
        int n = snprintf(out + used, out_bytes - used, "%s%s %u %%", shown ? ", " : "",
                         block_traits(best)->name, percent);
        if (n < 0 || (size_t)n >= out_bytes - used) break;
        used += (size_t)n;
        sums[best] = 0;
    }
}

static void list_look(ListModel *m)
{
    KnotFile file;
    Why why = {{0}};
    Error error = knot_file_open(m->path, &file, &why);
    if (error != OK) {
        (void)snprintf(m->fault, sizeof m->fault, "%s", why.text[0] ? why.text : error_text(error));
        return;
    }
    m->bytes = file.knot.file_bytes;
    list_mix(&file.knot, m->mix, sizeof m->mix);
    knot_file_close(&file);
}

static int list_compare(const void *a, const void *b)
{
    return strcmp(((const ListModel *)a)->name, ((const ListModel *)b)->name);
}

/* Reads the directory. Result  the models, sorted; the caller frees. */
static Error list_read(const char *models, ListModel **out, size_t *count, Why *why)
{
    DIR *d = opendir(models);
    *out = NULL;
    *count = 0;
    if (!d) return error_why(why, ERR_IO, "cannot read the directory %s", models);
    for (struct dirent *e; *count < LIST_MODELS_MAX && (e = readdir(d)) != NULL;) {
        char name[PLACES_NAME_BYTES];
        if (!places_model_name(e->d_name, name)) continue;
        ListModel *grown = realloc(*out, (*count + 1) * sizeof **out);
        if (!grown) {
            (void)closedir(d);
            return error_why(why, ERR_MEMORY, "no memory for the list");
        }
        *out = grown;
        ListModel *m = &grown[(*count)++];
        memset(m, 0, sizeof *m);
        (void)snprintf(m->name, sizeof m->name, "%s", name);
        (void)snprintf(m->path, sizeof m->path, "%s/%s", models, e->d_name);
        list_look(m);
    }
    (void)closedir(d);
    if (*count) qsort(*out, *count, sizeof **out, list_compare);
    return OK;
}

static bool list_has(const ListModel *models, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(models[i].name, name) == 0) return true;
    return false;
}

static void list_print_text(const ListModel *models, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const ListModel *m = &models[i];
        char bytes[16];
        progress_print_bytes(bytes, sizeof bytes, m->bytes);
        printf("%-28s ", m->name);
        if (m->fault[0]) {
            printf("damaged: ");
            options_print_safely(stdout, m->fault);
        } else {
            printf("%8s  %s", bytes, m->mix);
        }
        printf("\n    ");
        options_print_safely(stdout, m->path);
        printf("\n");
    }
    if (count == 0) printf("No model is here yet.\n");
    bool head = false;
    for (size_t i = 0; i < zoo_count; i++) {
        if (list_has(models, count, zoo_models[i].name)) continue;
        if (!head) printf("\nCan be pulled (cobord pull NAME):\n");
        head = true;
        char bytes[16];
        progress_print_bytes(bytes, sizeof bytes, zoo_models[i].bytes);
        printf("%-28s %8s  %s\n", zoo_models[i].name, bytes, zoo_models[i].summary);
    }
}

static void list_print_json(const ListModel *models, size_t count)
{
    printf("{\"models\":[");
    for (size_t i = 0; i < count; i++) {
        printf("%s{\"name\":", i ? "," : "");
        json_text_print(models[i].name);
        printf(",\"path\":");
        json_text_print(models[i].path);
        printf(",\"bytes\":%" PRIu64 ",\"types\":", models[i].bytes);
        json_text_print(models[i].mix);
        if (models[i].fault[0]) {
            printf(",\"fault\":");
            json_text_print(models[i].fault);
        }
        printf("}");
    }
    printf("],\"zoo\":[");
    for (size_t i = 0; i < zoo_count; i++)
        printf("%s{\"name\":\"%s\",\"gguf_bytes\":%" PRIu64 ",\"here\":%s}", i ? "," : "",
               zoo_models[i].name, zoo_models[i].bytes,
               list_has(models, count, zoo_models[i].name) ? "true" : "false");
    printf("]}\n");
}

int cli_list(int argc, char **argv)
{
    Options o;
    int code;
    if (!options_read(&o, &list_verb, argc, argv, &code)) return code;
    char directory[PLACES_PATH_BYTES];
    Why why = {{0}};
    ListModel *models = NULL;
    size_t count = 0;
    Error error = places_models(directory, sizeof directory, &why);
    if (error == OK) error = list_read(directory, &models, &count, &why);
    if (error == OK && options_switch(&o, OPTION_JSON)) list_print_json(models, count);
    else if (error == OK) list_print_text(models, count);
    free(models);
    return error == OK ? 0 : complain(error, &why, NULL, NULL);
}
