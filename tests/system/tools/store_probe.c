/* SPDX-License-Identifier: Apache-2.0 */
/* A store or a row store by hand, for tests against real servers. Commands on standard input, an answer each:
 *
 *   store_probe store WHERE            size OBJECT | read OBJECT OFFSET BYTES | counters
 *   store_probe upload s3://BUCKET/KEY FILE     no commands: uploads, says "ok BYTES FOUND PARTS RETRIES"
 *   store_probe rows WHERE HIDDEN      put ROW | get ROW.. | delete ROW | settle | counters
 *
 *   ok N           size; of a read N bytes follow
 *   rows 1 0 1     found, and then with the right numbers; rows 2 is a wrong one
 *   done | counters a b c .. | error NUMBER WORDS */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/row_store.h"
#include "host/s3_upload.h"
#include "host/stop.h"
#include "host/store.h"

enum { PROBE_ROWS_MAX = 4096 };

static void say_error(Error error, const Why *why)
{
    printf("error %d %s\n", (int)error, why->text);
}

static uint64_t number(char **at) { return strtoull(*at, at, 10); }

/* The next word of the line; "" at its end. */
static char *word(char **at)
{
    while (**at == ' ') ++*at;
    char *start = *at;
    *at += strcspn(*at, " ");
    if (**at) *(*at)++ = 0;
    return start;
}

static void store_read_to_output(Store *store, const char *object, uint64_t offset, uint64_t bytes)
{
    Why why = {{0}};
    uint8_t *out = malloc(bytes + 1);
    if (!out) exit(1);
    Error error = store_read(store, object, offset, bytes, out, &why);
    if (error != OK) say_error(error, &why);
    else {
        printf("ok %llu\n", (unsigned long long)bytes);
        (void)fwrite(out, 1, bytes, stdout);
    }
    free(out);
}

static void store_command(Store *store, char *line)
{
    Why why = {{0}};
    char *verb = word(&line);
    if (strcmp(verb, "counters") == 0) {
        StoreCounters c = store_counters(store);
        printf("counters %llu %llu %llu %llu\n", (unsigned long long)c.reads,
               (unsigned long long)c.bytes, (unsigned long long)c.retries,
               (unsigned long long)c.failures);
        return;
    }
    char *object = word(&line);
    if (strcmp(verb, "read") == 0) {
        uint64_t offset = number(&line);
        store_read_to_output(store, object, offset, number(&line));
        return;
    }
    uint64_t bytes = 0;
    Error error = store_size(store, object, &bytes, &why);
    if (error != OK) say_error(error, &why);
    else printf("ok %llu\n", (unsigned long long)bytes);
}

static void fill(float *values, uint32_t hidden, uint32_t row)
{
    for (uint32_t i = 0; i < hidden; i++) values[i] = (float)row * 0.5f - (float)i;
}

static void rows_get(RowStore *s, uint32_t hidden, char *line)
{
    uint32_t rows[PROBE_ROWS_MAX], count = 0;
    for (; *line && count < PROBE_ROWS_MAX; line += strspn(line, " "))
        rows[count++] = (uint32_t)number(&line);
    float *out = malloc((size_t)(count + 1) * hidden * sizeof *out);
    bool *found = malloc(count + 1);
    if (!out || !found) exit(1);
    float *wanted = out + (size_t)count * hidden;
    row_store_get(s, rows, count, out, found);
    printf("rows");
    for (uint32_t i = 0; i < count; i++) {
        fill(wanted, hidden, rows[i]);
        bool same = memcmp(wanted, out + (size_t)i * hidden, hidden * sizeof *out) == 0;
        printf(" %d", !found[i] ? 0 : same ? 1 : 2);
    }
    printf("\n");
    free(out);
    free(found);
}

static void rows_command(RowStore *s, uint32_t hidden, char *line)
{
    char *verb = word(&line);
    if (strcmp(verb, "get") == 0) {
        rows_get(s, hidden, line);
        return;
    }
    if (strcmp(verb, "put") == 0) {
        uint32_t row = (uint32_t)number(&line);
        float *values = malloc(hidden * sizeof *values);
        if (!values) exit(1);
        fill(values, hidden, row);
        row_store_put(s, row, values);
        free(values);
    } else if (strcmp(verb, "delete") == 0) {
        row_store_delete(s, (uint32_t)number(&line));
    } else if (strcmp(verb, "settle") == 0) {
        row_store_settle(s);
    }
    RowStoreCounters c = row_store_counters(s);
    if (strcmp(verb, "counters") != 0) printf("done\n");
    else
        printf("counters %llu %llu %llu %llu %llu\n", (unsigned long long)c.hits,
               (unsigned long long)c.misses, (unsigned long long)c.bad,
               (unsigned long long)c.writes, (unsigned long long)c.failures);
}

static void tell_progress(void *context, const char *stage, uint64_t done, uint64_t total)
{
    (void)context;
    fprintf(stderr, "%s %llu %llu\n", stage, (unsigned long long)done, (unsigned long long)total);
}

static int upload(const char *where, const char *path)
{
    static S3Access access;
    S3UploadReport r = {0};
    Tell tell = {.step = tell_progress};
    Why why = {{0}};
    stop_install();
    Error error = s3_access(&access, &why);
    if (error == OK) error = s3_upload(&access, where, path, &tell, &r, &why);
    if (error == OK)
        printf("ok %llu %llu %u %u\n", (unsigned long long)r.bytes,
               (unsigned long long)r.bytes_found, r.parts, r.retries);
    else say_error(error, &why);
    return error == OK ? 0 : 1;
}

int main(int argc, char **argv)
{
    static char line[1 << 16];
    Store *store = NULL;
    RowStore *rows = NULL;
    Why why = {{0}};
    (void)signal(SIGPIPE, SIG_IGN);
    if (argc < 3) return 2;
    if (argc == 4 && strcmp(argv[1], "upload") == 0) return upload(argv[2], argv[3]);
    uint32_t hidden = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 0;
    bool is_store = strcmp(argv[1], "store") == 0;
    Error error = is_store ? store_open(argv[2], &store, &why)
                           : row_store_open(argv[2], 0x1234, hidden, &rows, &why);
    if (error != OK) {
        say_error(error, &why);
        return 1;
    }
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (is_store) store_command(store, line);
        else rows_command(rows, hidden, line);
        (void)fflush(stdout);
    }
    store_close(store);
    row_store_close(rows);
    return 0;
}
