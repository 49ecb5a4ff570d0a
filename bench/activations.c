/* SPDX-License-Identifier: Apache-2.0 */
/* What rounding the activations between nodes does to log-probabilities. Built and run by bench/activations.
 *
 *   embedding --round--> station 0 --round--> .. --round--> exit, output norm --round--> head
 *
 * The roles are those of the nodes and rows are rounded by what writes them into frames, wherever a cluster sends
 * them. Tokens are what they are: each position's prediction of the next one is asked for.
 *
 *   activations KNOT RANGES ELEMENT < IDS        IDS: numbers with blanks between
 *
 * Prints the log-probability of each token but the first, one a line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/cache.h"
#include "host/cpu.h"
#include "host/knot_file.h"
#include "host/worker.h"
#include "wire/rows.h"

enum { ROWS = 32, TOKENS_MAX = 4096, STATIONS_MAX = 64 };

typedef struct Cluster {
    KnotFile file;
    Hyper hyper;
    Worker worker;
    uint32_t stations;
    Station *station[STATIONS_MAX];
    Shard *shard;
    RowsElement element;
    float *x, *g;
    uint8_t *bytes;
} Cluster;

static void must(Error error, const Why *why)
{
    if (error == OK) return;
    fprintf(stderr, "activations: %s\n", why->text);
    exit(1);
}

static void *take(size_t bytes)
{
    void *memory = aligned_alloc(ARENA_ALIGN, (bytes / ARENA_ALIGN + 1) * ARENA_ALIGN);
    if (!memory) abort();
    return memory;
}

static void build_station(Cluster *c, PhaseRange range, Station **out)
{
    Why why;
    StationSizes sizes;
    Isa isa = cpu_best();
    StationConfig config = {.knot = &c->file.knot,
                            .hyper = &c->hyper,
                            .range = range,
                            .cache = CACHE_F16,
                            .rows_max = ROWS,
                            .sessions_max = 1,
                            .context = TOKENS_MAX,
                            .blocks = cache_blocks_for(TOKENS_MAX),
                            .workers = cpu_cores(),
                            .kernels = kernels_for(isa),
                            .ops = ops_for(isa)};
    must(station_sizes(&config, &sizes, &why), &why);
    size_t bytes = (size_t)(sizes.floor_bytes + sizes.cache_bytes) + 64 * ARENA_ALIGN;
    Arena arena = arena_make(take(bytes), bytes);
    must(station_build(&config, &arena, take((size_t)sizes.scratch_bytes), out, &why), &why);
    must(worker_read_floor(&c->worker, *out, &why), &why);
}

static void build_shard(Cluster *c)
{
    Why why;
    ShardSizes sizes;
    ShardConfig config = {.knot = &c->file.knot,
                          .hyper = &c->hyper,
                          .id_last = c->hyper.vocabulary,
                          .rows_max = ROWS,
                          .workers = cpu_cores(),
                          .kernels = kernels_for(cpu_best())};
    must(shard_sizes(&config, &sizes, &why), &why);
    size_t bytes = (size_t)(sizes.floor_bytes + sizes.logits_bytes) + 64 * ARENA_ALIGN;
    Arena arena = arena_make(take(bytes), bytes);
    must(shard_build(&config, &arena, take((size_t)sizes.scratch_bytes), &c->shard, &why), &why);
}

static void open_cluster(Cluster *c, const char *knot, const char *ranges)
{
    Why why;
    PhaseRange range[STATIONS_MAX];
    must(knot_file_open(knot, &c->file, &why), &why);
    must(hyper_from_knot(&c->file.knot, &c->hyper, &why), &why);
    must(phase_parse_ranges(ranges, c->hyper.layers, range, STATIONS_MAX, &c->stations, &why),
         &why);
    must(worker_start(&c->worker, &c->file, c->file.knot.payload_bytes, 0, cpu_cores(), &why),
         &why);
    for (uint32_t i = 0; i < c->stations; i++) build_station(c, range[i], &c->station[i]);
    build_shard(c);
    c->x = take(sizeof(float) * ROWS * c->hyper.hidden);
    c->g = take(sizeof(float) * ROWS * c->hyper.ffn);
    c->bytes = take((size_t)rows_bytes(ROWS_F32, ROWS, c->hyper.hidden));
}

/* Into a frame and out of it. */
static void send(Cluster *c, uint32_t rows)
{
    Why why;
    must(rows_write(c->element, c->x, rows, c->hyper.hidden, c->bytes, &why), &why);
    must(rows_read(c->element, c->bytes, rows, c->hyper.hidden, c->x, &why), &why);
}

/* The shard's answer, and what the coordinator makes of all of them. */
static void embed(Cluster *c, const uint32_t *ids, uint32_t rows)
{
    Why why;
    must(shard_begin_embed(c->shard, ids, rows, c->x, &why), &why);
    must(worker_run_shard(&c->worker, c->shard, &why), &why);
    send(c, rows);
    send(c, rows);
}

static void forward(Cluster *c, uint32_t position, uint32_t rows)
{
    Why why;
    StationSequence sequence = {.session = 0, .position = position, .rows = rows};
    StationFrame frame = {
        .x = c->x, .g = c->g, .rows = rows, .sequences = &sequence, .sequence_count = 1};
    for (uint32_t i = 0; i < c->stations; i++) {
        must(worker_run_station(&c->worker, c->station[i], &frame, &why), &why);
        for (uint32_t row = 0; i + 1 == c->stations && row < rows; row++) {
            float *x = c->x + (size_t)row * c->hyper.hidden;
            station_norm_output(c->station[i], x, x);
        }
        send(c, rows);
    }
}

static void print_scores(Cluster *c, const uint32_t *next, uint32_t rows)
{
    Why why;
    must(shard_begin_logits(c->shard, c->x, rows, &why), &why);
    must(worker_run_shard(&c->worker, c->shard, &why), &why);
    for (uint32_t row = 0; row < rows; row++) {
        LogSum sum;
        logsum_start(&sum);
        (void)shard_top(c->shard, row, 0, NULL, &sum, 1);
        printf("%.9g\n", (double)shard_logits(c->shard, row)[next[row]] - logsum_log(&sum));
    }
}

static uint32_t read_ids(uint32_t *ids)
{
    static char text[TOKENS_MAX * 8];
    uint32_t count = 0;
    text[fread(text, 1, sizeof text - 1, stdin)] = '\0';
    for (char *at = text, *end; count < TOKENS_MAX; at = end) {
        unsigned long id = strtoul(at, &end, 10);
        if (end == at) break;
        ids[count++] = (uint32_t)id;
    }
    return count;
}

int main(int argc, char **argv)
{
    static Cluster c;
    static uint32_t ids[TOKENS_MAX];
    uint32_t count = 0;
    Why why;
    if (argc != 4) return 2;
    must(rows_element_from_name(argv[3], strlen(argv[3]), &c.element, &why), &why);
    open_cluster(&c, argv[1], argv[2]);
    count = read_ids(ids);
    for (uint32_t at = 0; at + 1 < count; at += ROWS) {
        uint32_t rows = count - 1 - at < ROWS ? count - 1 - at : ROWS;
        embed(&c, ids + at, rows);
        forward(&c, at, rows);
        print_scores(&c, ids + at + 1, rows);
    }
    worker_stop(&c.worker);
    return 0;
}
