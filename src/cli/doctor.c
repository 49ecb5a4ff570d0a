/* SPDX-License-Identifier: Apache-2.0 */
/* cobord doctor: looks at this machine, and where asked at a model, a cluster and a store, and says of each thing
 * whether it is fine, what it means and what to do. Nothing is changed; probes are removed again. Every question to
 * somebody else has a deadline. */
#include "cli/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/complain.h"
#include "cli/json_text.h"
#include "cli/options_help.h"
#include "cli/paint.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "host/stop.h"

static const OptionId doctor_options[] = {OPTION_CLUSTER, OPTION_STORE, OPTION_LISTEN,
                                          OPTION_CACHE,   OPTION_JSON,  OPTION_END};
const OptionVerb doctor_verb = {
    .name = "doctor",
    .usage = "[MODEL] [--cluster FILE] [--store URL] [--json]",
    .summary =
        "Looks at this machine and says what is fine, what will be slow and what will not work, each "
        "with what to do: processor and kernels, memory and its limits, memory bandwidth and the "
        "speed it allows, disk, ports, clock, optional programs. With MODEL whether that runs here; "
        "with --cluster the links to its nodes, their versions, keys and certificates; with --store "
        "what the keys may do there: it lists, writes an object, reads it and deletes it.\n\n"
        "It takes a few seconds, also where somebody does not answer, and leaves nothing behind.",
    .examples = "  cobord doctor\n"
                "  cobord doctor qwen2.5-coder-1.5b\n"
                "  cobord doctor --cluster cluster.json\n"
                "  cobord doctor --store s3://models/cobord --json\n",
    .options = doctor_options,
    .operands_max = 1,
    .operand_names = "MODEL",
    .exits = "0    all is fine, or there are warnings only\n"
             "1    there is a problem: something will not work\n"
             "2    wrong usage\n",
};

enum { DOCTOR_TEXT_BYTES = 1024, DOCTOR_ADVICE_BYTES = 5120, DOCTOR_COLUMN = 25 };

static const char *const doctor_words[DOCTOR_STATES] = {"ok", "warning", "problem"};

const char *doctor_size(uint64_t bytes, char out[DOCTOR_SIZE_BYTES])
{
    progress_print_bytes(out, DOCTOR_SIZE_BYTES, bytes);
    return out;
}

/* ---- Findings */

void doctor_area(Doctor *d, const char *area)
{
    d->area = area;
    d->area_shown = false;
    if (!d->json) progress_line("looking at: %s", area);
}

static void doctor_show_json(Doctor *d, DoctorState state, const char *name, const char *advice,
                             const char *text)
{
    printf("%s{\"area\":", d->json_begun ? "," : "{\"checks\":[");
    d->json_begun = true;
    json_text_print(d->area);
    printf(",\"name\":");
    json_text_print(name);
    printf(",\"state\":\"%s\",\"found\":", doctor_words[state]);
    json_text_print(text);
    if (advice) {
        printf(",\"advice\":");
        json_text_print(advice);
    }
    printf("}");
}

/* What comes from elsewhere must not talk to the terminal: neither C0 nor, as UTF-8, C1. */
static void doctor_clean(char *text)
{
    for (unsigned char *p = (unsigned char *)text; *p; p++) {
        if (*p < ' ' || *p == 0x7f) *p = '?';
        else if (p[0] == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0) p[0] = p[1] = '?';
    }
}

/* "  warning  name           text, wrapped", and below it the advice. */
static void doctor_show(Doctor *d, DoctorState state, const char *name, const char *advice,
                        const char *text)
{
    static const Paint paints[DOCTOR_STATES] = {PAINT_GREEN, PAINT_CYAN, PAINT_RED};
    progress_end(false);
    if (!d->area_shown) {
        paint_begin(stdout, PAINT_BOLD);
        printf("%s%s", d->json_begun ? "\n" : "", d->area);
        paint_end(stdout);
        printf("\n");
    }
    d->area_shown = d->json_begun = true;
    paint_begin(stdout, paints[state]);
    printf("  %-8s", doctor_words[state]);
    paint_end(stdout);
    printf("%-14s ", name);
    if (strlen(name) > 14) printf("\n%*s", DOCTOR_COLUMN, "");
    options_help_wrap(text, DOCTOR_COLUMN);
    if (advice) {
        printf("%*s", DOCTOR_COLUMN - 3, "-> ");
        options_help_wrap(advice, DOCTOR_COLUMN);
    }
    (void)fflush(stdout);
}

void doctor_say(Doctor *d, DoctorState state, const char *name, const char *advice,
                const char *format, ...)
{
    char text[DOCTOR_TEXT_BYTES], told[DOCTOR_ADVICE_BYTES];
    va_list list;
    va_start(list, format);
    (void)vsnprintf(text, sizeof text, format, list);
    va_end(list);
    doctor_clean(text);
    (void)snprintf(told, sizeof told, "%s", advice ? advice : "");
    doctor_clean(told); /* names of files are in it */
    d->counts[state]++;
    if (d->json) doctor_show_json(d, state, name, advice ? told : NULL, text);
    else doctor_show(d, state, name, advice ? told : NULL, text);
}

/* ---- The verb */

static void doctor_end(const Doctor *d)
{
    uint32_t warnings = d->counts[DOCTOR_WARNING], problems = d->counts[DOCTOR_PROBLEM];
    if (d->json) {
        printf("],\"state\":\"%s\",\"problems\":%u,\"warnings\":%u}\n",
               doctor_words[problems   ? DOCTOR_PROBLEM
                            : warnings ? DOCTOR_WARNING
                                       : DOCTOR_OK],
               problems, warnings);
        return;
    }
    progress_end(false);
    if (!problems && !warnings) printf("\nAll is fine.\n");
    else
        printf("\n%u problem%s, %u warning%s.\n", problems, problems == 1 ? "" : "s", warnings,
               warnings == 1 ? "" : "s");
}

static void doctor_run(Doctor *d, const Options *o)
{
    const char *model = o->operand_count ? o->operands[0] : NULL,
               *store = options_text(o, OPTION_STORE);
    doctor_check_processor(d);
    doctor_check_memory(d);
    if (!stop_asked()) doctor_check_disk(d);
    if (model && !stop_asked()) doctor_check_model(d, model);
    if (!stop_asked()) doctor_check_ports(d, options_text(o, OPTION_LISTEN));
    doctor_check_clock(d);
    if (store && !stop_asked()) doctor_check_store(d, store, model);
    else if (d->cluster && d->cluster->store[0] && !stop_asked()) doctor_check_cluster_store(d);
    if (d->cluster && !stop_asked()) doctor_check_links(d);
    doctor_check_programs(d);
}

int cli_doctor(int argc, char **argv)
{
    Options o;
    Why why = {{0}};
    ClusterFile cluster;
    void *memory = NULL;
    int code;
    if (!options_read(&o, &doctor_verb, argc, argv, &code)) return code;
    stop_install();
    Doctor d = {.json = options_switch(&o, OPTION_JSON),
                .cluster_path = options_text(&o, OPTION_CLUSTER)};
    if (d.cluster_path) {
        Error error = node_read_cluster(d.cluster_path, &cluster, &memory, &why);
        if (error != OK) return complain(error, &why, d.cluster_path, complain_cluster_file(error));
        d.cluster = &cluster;
    }
    doctor_run(&d, &o);
    doctor_end(&d);
    free(memory);
    if (stop_asked()) return complain_exit_code(ERR_CANCELLED);
    return d.counts[DOCTOR_PROBLEM] ? 1 : 0;
}
