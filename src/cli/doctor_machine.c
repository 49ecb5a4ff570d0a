/* SPDX-License-Identifier: Apache-2.0 */
/* Processor, memory, clock, programs: what can be said without asking anybody. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/doctor.h"
#include "host/child.h"
#include "host/clock.h"
#include "host/cpu.h"
#include "host/limits.h"
#include "host/memory.h"
#include "host/probe.h"
#include "host/zoo.h"
#include "serve/machine.h"

enum {
    FILES_MIN = 1024,
    YEAR_2024 = 1704067200, /* seconds since 1970; a clock before it was never set */
    YEAR_2100 = 4102444800
};
static const uint64_t MEMORY_LEAST = 128 << 20, MEMORY_LITTLE = 1 << 30;

/* ---- Processor */

static void isa_list(char *out, size_t room)
{
    size_t used = 0;
    out[0] = 0;
    for (unsigned isa = ISAS; isa-- > 0;) {
        if (!cpu_has((Isa)isa) || !kernels_for((Isa)isa)) continue;
        int n =
            snprintf(out + used, room - used, "%s%s", used ? ", " : "", kernels_isa_name((Isa)isa));
        if (n < 0 || (size_t)n >= room - used) break;
        used += (size_t)n;
    }
}

static void check_kernels(Doctor *d)
{
    char list[96];
    isa_list(list, sizeof list);
    Isa best = cpu_best();
    if (best == ISA_SCALAR)
        doctor_say(d, DOCTOR_WARNING, "kernels",
                   "Use a processor with AVX2, AVX-512 VNNI or ARM's dot products, or a virtual "
                   "machine that shows them (QEMU: -cpu host).",
                   "scalar only: answers are right and about ten times slower");
    else
        doctor_say(d, DOCTOR_OK, "kernels", NULL, "%s is used, of %s; the numbers are the same",
                   kernels_isa_name(best), list);
}

void doctor_check_processor(Doctor *d)
{
    Limits limits;
    limits_read(&limits);
    uint32_t ours = cpu_cores();
    doctor_area(d, "Processor");
    check_kernels(d);
    if (ours < limits.cores)
        doctor_say(d, DOCTOR_OK, "cores", NULL,
                   "%u of the machine's %u: a control group's quota or an affinity leaves no more, "
                   "and as many threads are started",
                   ours, limits.cores);
    else doctor_say(d, DOCTOR_OK, "cores", NULL, "%u, all of the machine's, without a quota", ours);
    if (limits.load > ours)
        doctor_say(d, DOCTOR_WARNING, "load",
                   "End other work, or give Cobord fewer cores (--threads) than there are.",
                   "%.1f processes want %u cores: answers and measurements are slower", limits.load,
                   ours);
    else if (limits.load >= 0)
        doctor_say(d, DOCTOR_OK, "load", NULL, "%.1f processes over the last minute", limits.load);
}

/* ---- Memory */

static void check_available(Doctor *d)
{
    char available[DOCTOR_SIZE_BYTES], total[DOCTOR_SIZE_BYTES];
    uint64_t bytes = memory_available();
    const ZooModel *largest = NULL;
    for (size_t i = 0; i < zoo_count; i++)
        if (zoo_models[i].bytes < memory_allowed() &&
            (!largest || zoo_models[i].bytes > largest->bytes))
            largest = &zoo_models[i];
    DoctorState state = bytes < MEMORY_LEAST    ? DOCTOR_PROBLEM
                        : bytes < MEMORY_LITTLE ? DOCTOR_WARNING
                                                : DOCTOR_OK;
    doctor_say(
        d, state, "available",
        state == DOCTOR_OK
            ? NULL
            : "End other programs, or say how much to take (--memory 128M): the rest of a "
              "model is then read from disk for every token, or spread over machines.",
        "%s of %s; %s%s%s", doctor_size(bytes, available), doctor_size(memory_total(), total),
        largest ? largest->name : "no model of the zoo fits whole", largest ? " fits whole" : "",
        largest ? ", larger ones are streamed from disk or spread over machines" : "");
}

static void check_group(Doctor *d, const Limits *l)
{
    char limit[DOCTOR_SIZE_BYTES], used[DOCTOR_SIZE_BYTES];
    uint64_t bytes = memory_limit();
    if (bytes == UINT64_MAX) {
        doctor_say(d, DOCTOR_OK, "cgroup", NULL, "no memory limit of a control group");
        return;
    }
    doctor_say(d, bytes < MEMORY_LEAST ? DOCTOR_WARNING : DOCTOR_OK, "cgroup",
               bytes < MEMORY_LEAST
                   ? "Raise the limit, or use --memory below it with a small model."
                   : NULL,
               "a control group (version %u) allows %s, %s of it used; processes are planned below "
               "that",
               l->group_version, doctor_size(bytes, limit), doctor_size(l->group_used_bytes, used));
}

static void check_swap(Doctor *d)
{
    char used[DOCTOR_SIZE_BYTES], total[DOCTOR_SIZE_BYTES];
    uint64_t all = memory_swap_total(), taken = all - memory_swap_free();
    if (!all) doctor_say(d, DOCTOR_OK, "swap", NULL, "none");
    else if (taken > all / 4)
        doctor_say(d, DOCTOR_WARNING, "swap",
                   "Free memory, or give Cobord less (--memory): weights come faster from the "
                   "model's file than from swap.",
                   "%s of %s in use: memory was short", doctor_size(taken, used),
                   doctor_size(all, total));
    else
        doctor_say(d, DOCTOR_OK, "swap", NULL, "%s of %s in use", doctor_size(taken, used),
                   doctor_size(all, total));
}

static void check_limits(Doctor *d, const Limits *l)
{
    char bytes[DOCTOR_SIZE_BYTES];
    if (l->address_space_bytes != LIMITS_NONE)
        doctor_say(d, DOCTOR_WARNING, "ulimit -v",
                   "Run: ulimit -v unlimited (systemd: LimitAS=infinity).",
                   "address space ends at %s: a model's file is mapped whole and may not fit",
                   doctor_size(l->address_space_bytes, bytes));
    else doctor_say(d, DOCTOR_OK, "ulimit -v", NULL, "no limit of the address space");
    if (l->files < FILES_MIN)
        doctor_say(d, DOCTOR_WARNING, "ulimit -n",
                   "Run: ulimit -n 4096 (systemd: LimitNOFILE=4096).",
                   "%" PRIu64 " open files: too few for many connections at once", l->files);
    else if (l->files == LIMITS_NONE) doctor_say(d, DOCTOR_OK, "ulimit -n", NULL, "no limit");
    else doctor_say(d, DOCTOR_OK, "ulimit -n", NULL, "%" PRIu64 " open files", l->files);
    if (l->locked_bytes == LIMITS_NONE)
        doctor_say(d, DOCTOR_OK, "ulimit -l", NULL, "no limit; Cobord locks no memory");
    else
        doctor_say(d, DOCTOR_OK, "ulimit -l", NULL, "%s; Cobord locks no memory",
                   doctor_size(l->locked_bytes, bytes));
}

static void check_kernel_settings(Doctor *d, const Limits *l)
{
    static const char *const words[] = {"heuristic", "always", "strict"};
    if (l->overcommit == 2)
        doctor_say(d, DOCTOR_WARNING, "overcommit",
                   "If memory is refused: sysctl vm.overcommit_memory=0.",
                   "strict: what is reserved counts as if it were used");
    else
        doctor_say(d, DOCTOR_OK, "overcommit", NULL, "%s",
                   words[l->overcommit < 2 ? l->overcommit : 0]);
    if (strcmp(l->huge_pages, "never") == 0)
        doctor_say(d, DOCTOR_WARNING, "huge pages",
                   "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
                   "never: weights are read through small pages, a little slower");
    else
        doctor_say(d, DOCTOR_OK, "huge pages", NULL, "%s",
                   l->huge_pages[0] ? l->huge_pages : "not known");
}

/* "32 of qwen2.5-coder-1.5b, 7.6 of qwen2.5-coder-7b" */
static void speeds(double gbs, char *out, size_t room)
{
    size_t used = 0;
    out[0] = 0;
    for (size_t i = 0; i < zoo_count; i++) {
        double rate = 1e9 * gbs / (double)zoo_models[i].bytes;
        int n = snprintf(out + used, room - used, "%s%.*f of %s", i ? ", " : "", rate < 10 ? 1 : 0,
                         rate, zoo_models[i].name);
        if (n < 0 || (size_t)n >= room - used) break;
        used += (size_t)n;
    }
}

static void check_bandwidth(Doctor *d)
{
    char text[256];
    d->bandwidth_gbs = probe_bandwidth_gbs();
    if (d->bandwidth_gbs <= 0) {
        doctor_say(d, DOCTOR_WARNING, "bandwidth", "Free 800 MB, then ask again.",
                   "not measured: too little memory to try");
        return;
    }
    speeds(d->bandwidth_gbs, text, sizeof text);
    doctor_say(d, DOCTOR_OK, "bandwidth", NULL, "%.1f GB/s with %u threads", d->bandwidth_gbs,
               cpu_cores());
    doctor_say(d, DOCTOR_OK, "speed", NULL,
               "each token reads the weights once: without guessed tokens one answer gets at most "
               "about (tokens/s) %s",
               text);
}

void doctor_check_memory(Doctor *d)
{
    Limits limits;
    limits_read(&limits);
    doctor_area(d, "Memory");
    check_available(d);
    check_group(d, &limits);
    check_swap(d);
    check_limits(d, &limits);
    check_kernel_settings(d, &limits);
    check_bandwidth(d);
}

/* ---- Clock */

void doctor_check_clock(Doctor *d)
{
    static const char set[] =
        "Set it: timedatectl set-ntp true, or date -u -s 'YYYY-MM-DD hh:mm:ss'.";
    int64_t now = (int64_t)machine_time_s();
    doctor_area(d, "Clock");
    if (now < YEAR_2024 || now > YEAR_2100)
        doctor_say(d, DOCTOR_PROBLEM, "time of day", set,
                   "%s: certificates and signatures for S3 will be refused",
                   now < YEAR_2024 ? "before 2024" : "after 2100");
    else
        doctor_say(d, DOCTOR_OK, "time of day", NULL, "%s",
                   clock_is_kept() ? "kept right by NTP"
                                   : "plausible; the kernel does not know of an NTP that keeps it, "
                                     "which virtual machines need not say");
}

/* ---- Programs */

void doctor_check_programs(Doctor *d)
{
    static const struct {
        const char *program, *use;
    } programs[] = {{"python3", "cobord pull uses it, where the hub cannot be reached"},
                    {"wrangler", "cobord deploy cloudflare uses it"},
                    {"node", "wrangler uses it"}};
    doctor_area(d, "Optional programs");
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++)
        doctor_say(d, DOCTOR_OK, programs[i].program, NULL, "%s; only %s",
                   child_has(programs[i].program) ? "here" : "not here", programs[i].use);
}
