/* SPDX-License-Identifier: Apache-2.0 */
/* What a station is made of: shared by station.c (building, wishes) and station_compute.c (the
 * arithmetic). */
#ifndef COBORD_CLUSTER_STATION_STATE_H
#define COBORD_CLUSTER_STATION_STATE_H

#include "cluster/cache.h"
#include "cluster/station.h"

/* The resident vectors of one layer, NULL where the model has none. */
typedef struct LayerFloor {
    float *attn_norm, *ffn_norm, *q_norm, *k_norm, *post_attn_norm, *post_ffn_norm;
    float *bias[PHASES][PHASE_MATRICES_MAX];
} LayerFloor;

typedef struct FloorTensor {
    const KnotTensor *tensor;
    float *to;
} FloorTensor;

typedef struct PhasePlan {
    PhaseMatrix matrix[PHASE_MATRICES_MAX];
    uint32_t count;
    uint64_t bytes;
} PhasePlan;

/* Frame-sized working memory; every pointer into the scratch that the host lends. Widths in floats
 * per row. */
typedef struct StationBuffers {
    /* [rows] quantized inputs of the current matrix, then [rows] their residuals. */
    uint8_t *activations;
    size_t activation_stride; /* of the current matrix */
    float *work;              /* attn: q | k | v | attended; ffn_up: u; ffn_down: product */
    size_t work_stride;
    uint32_t at_k, at_v, at_attended; /* offsets of k, v and the attended heads in a work row */
    float *cosine[2], *sine[2];       /* [rows][rope_dim / 2], global and local layers */
    const uint8_t **blocks; /* cache blocks of the current layer, sequence after sequence */
    uint32_t *row_sequence, *row_position; /* [rows] */
    /* [rows] first row and first entry in `blocks` of a sequence. */
    uint32_t *sequence_row, *sequence_block;
    uint32_t *group_row; /* [rows + 1] first row of each group of rows that attend together */
    uint32_t groups;
    uint8_t *finite;        /* [rows][parts] */
    uint32_t parts;         /* of a row of g */
    float *normed, *missed; /* [workers][hidden] */
    float *attention;       /* [workers] ops_attention_rows_scratch_floats */
    size_t attention_floats;
    uint8_t *panel; /* [workers] re-laid panels */
    size_t panel_bytes;
} StationBuffers;

/* A multiple of every block's elements whose activations are whole units of memory in every
 * form. */
enum { STATION_PART_COLUMNS = 2048 };

typedef enum StationStep { STEP_IDLE, STEP_LOAD, STEP_TILE, STEP_EVICT } StationStep;

struct Station {
    StationConfig config;
    uint32_t layer_first, layer_last; /* layers that the range touches */
    uint32_t attn_first;              /* first layer whose attn is in the range */
    uint32_t rotated;                 /* rope_dim / 2 */
    LayerFloor *layers;               /* [layer_last - layer_first] */
    PhasePlan *phases;                /* [range.last - range.first] */
    FloorTensor *floor;
    uint32_t floor_count;
    float *output_norm;  /* NULL unless the range ends the model */
    float *rope_factors; /* NULL without rope_freqs_weight */
    double *frequencies[2];
    float magnitude[2];
    bool rope_ready;
    Cache cache;
    uint32_t *marks, mark; /* which sessions the current frame has named */
    StationBuffers b;

    /* The frame in progress. */
    StationFrame frame;
    StationStep step;
    PhaseBound phase;
    uint32_t matrix, row;
    int form; /* of the quantized activations, -1: none yet */
    bool has_residual;
    uint32_t tile_rows; /* of the tile in hand */
};

/* k and v, which every later position reads, get their input in two terms: the quantized row, and
 * its quantized error. */
enum { MATRIX_Q, MATRIX_K, MATRIX_V, MATRIX_OUTPUT }; /* of the attn phase */
static inline bool station_wants_residual(Phase phase, uint32_t matrix)
{
    return phase == PHASE_ATTN && (matrix == MATRIX_K || matrix == MATRIX_V);
}

static inline PhasePlan *station_plan(Station *s)
{
    return &s->phases[s->phase - s->config.range.first];
}
static inline LayerFloor *station_layer(Station *s)
{
    return &s->layers[phase_layer(s->phase) - s->layer_first];
}

/* Cosines and sines of every row's position. */
void station_compute_rope(Station *s, const Parallel *parallel);
/* Which rows attend together, from row_sequence and row_position. */
void station_compute_groups(Station *s);
/* Multiplies the tile's rows row..row+count of the current matrix into its place. */
void station_compute_tile(Station *s, const uint8_t *tile, uint32_t row_count,
                          const Parallel *parallel);
/* What follows when the current matrix is complete. Errors  ERR_NOT_FINITE. */
MUST_CHECK Error station_compute_matrix_end(Station *s, const Parallel *parallel, Why *why);

#endif
