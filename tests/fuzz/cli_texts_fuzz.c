/* SPDX-License-Identifier: Apache-2.0 */
/* Texts that a person types, or keeps in files: machines (--hosts), sizes, lists of numbers, addresses, saved
 * conversations. The first byte says which. What is taken lies within its bounds. */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/hosts.h"
#include "cli/options.h"
#include "cli/run_save.h"
#include "feed.h"
#include "host/ports.h"

static void check_hosts(const Hosts *h)
{
    CHECK(h->count >= 1 && h->count <= HOSTS_MAX);
    for (uint32_t i = 0; i < h->count; i++) {
        const HostEntry *e = &h->entry[i];
        CHECK(e->host[0] && strnlen(e->host, sizeof e->host) < sizeof e->host);
        CHECK(e->speed_gbs >= 0 && e->speed_gbs < 1e6);
        for (uint32_t k = 0; k < i; k++) CHECK(strcmp(h->entry[k].host, e->host) != 0);
    }
}

static void try_hosts(Feed *f, bool file)
{
    static Hosts hosts;
    Why why = {{0}};
    size_t bytes;
    uint8_t *rest = feed_rest(f, &bytes);
    Error error;
    if (file) {
        error = hosts_parse((const char *)rest, bytes, &hosts, &why);
    } else { /* what looks like a path is one */
        rest = realloc(rest, bytes + 1);
        CHECK(rest);
        rest[bytes] = '\0';
        char *text = (char *)rest;
        size_t length = strlen(text);
        bool path = strchr(text, '/') || (length > 5 && strcmp(text + length - 5, ".json") == 0);
        error = path ? error_why(&why, ERR_USAGE, "a path") : hosts_read(text, &hosts, &why);
    }
    if (error == OK) check_hosts(&hosts);
    else CHECK(why.text[0]);
    free(rest);
}

static void try_sizes(Feed *f)
{
    char *text = feed_text(f, 400);
    uint64_t size;
    uint32_t ids[20];
    if (options_parse_size(text, &size))
        CHECK(strspn(text, "0123456789.KMGTPEkmgtpeiBb ") == strlen(text));
    long count = options_parse_list(text, 1000, NULL, 0),
         again = options_parse_list(text, 1000, ids, 20);
    CHECK(count >= -1 && (count > 20 || again == count));
    for (long i = 0; i < again && i < 20; i++) CHECK(ids[i] <= 1000);
    free(text);
}

static void try_address(Feed *f)
{
    char *text = feed_text(f, 400), host[PORTS_HOST_BYTES];
    uint16_t number;
    Why why = {{0}};
    if (ports_parse(text, host, &number, &why) == OK) CHECK(memchr(host, 0, sizeof host));
    else CHECK(why.text[0]);
    free(text);
}

/* A conversation as a file, on top of one that is under way; written and read again it is the same. */
static void try_conversation(Feed *f)
{
    static Run run;
    static Options options;
    Why why = {{0}};
    char path[64];
    int file = memfd_create("saved", MFD_CLOEXEC);
    CHECK(file >= 0);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    CHECK(write(file, f->at, f->left) == (ssize_t)f->left);
    options.operands[0] = "model";
    run.options = &options;
    Error error = run_answer_add(&run, "user", "before", 6, &why);
    CHECK(error == OK);
    if (run_save_read(&run, path, &why) == OK) {
        CHECK(run.turn_count <= RUN_TURNS_MAX);
        for (size_t i = 0; i < run.turn_count; i++) CHECK(run.turns[i].role && run.turns[i].text);
    } else {
        CHECK(why.text[0] && run.turn_count == 1 && memcmp(run.turns[0].text, "before", 6) == 0);
    }
    run_answer_drop(&run, 0);
    close(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Feed f = {data, size};
    switch (feed_below(&f, 5)) {
    case 0: try_hosts(&f, true); break;
    case 1: try_hosts(&f, false); break;
    case 2: try_sizes(&f); break;
    case 3: try_address(&f); break;
    default: try_conversation(&f);
    }
    return 0;
}
