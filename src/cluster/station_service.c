/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/station_service.h"

#include "base/hash.h"
#include "cluster/station_sessions.h"

struct StationService {
    ForwardTerms terms;
    Station *station;
    StationSessions sessions;

    /* The frame under way. */
    bool pending;
    Forward request;
    ForwardSequence *sequences; /* [sequences_max] */
    StationSequence *places;    /* the same, in slots */
    uint32_t *wanted;           /* [rows_max] */
    float *x, *g;               /* [rows_max] rows; g: NULL when the range has no phase of an FFN */
};

static bool has_ffn(const ForwardTerms *t)
{
    return t->range.last - t->range.first > 1 || phase_of(t->range.first) != PHASE_ATTN;
}

static bool ends_model(const ForwardTerms *t)
{
    return t->range.last == phase_bound(t->hyper->layers, PHASE_ATTN);
}

static uint64_t float_rows(uint32_t rows, uint32_t width)
{
    return (uint64_t)rows * width * sizeof(float);
}

uint64_t station_service_bytes(const ForwardTerms *t)
{
    uint64_t g = has_ffn(t) ? float_rows(t->rows_max, t->hyper->ffn) : 0;
    return arena_bytes(sizeof(StationService)) + station_sessions_bytes(t->sequences_max) +
           arena_bytes(t->sequences_max * sizeof(ForwardSequence)) +
           arena_bytes(t->sequences_max * sizeof(StationSequence)) +
           arena_bytes(t->rows_max * sizeof(uint32_t)) +
           arena_bytes((size_t)float_rows(t->rows_max, t->hyper->hidden)) + arena_bytes((size_t)g) +
           ARENA_ALIGN;
}

/* A frame of every size at once: only its counts matter. */
static Forward largest(const ForwardTerms *t, const uint32_t *wanted)
{
    return (Forward){.element = ROWS_F32,
                     .rows = t->rows_max,
                     .sequence_count = t->sequences_max,
                     .wanted = wanted,
                     .wanted_count = t->rows_max};
}

uint64_t station_service_body_bytes_max(const ForwardTerms *t)
{
    uint32_t any = 0;
    Forward f = largest(t, &any);
    return forward_header_size(&f) + forward_payload_bytes(t, ROWS_F32, t->rows_max);
}

uint64_t station_service_answer_bytes_max(const ForwardTerms *t)
{
    Forward f = largest(t, NULL);
    return forward_answer_header_size(&f) + forward_answer_payload_bytes(t, ROWS_F32, t->rows_max);
}

Error station_service_build(const ForwardTerms *t, Station *station, Arena *arena,
                            StationService **out, Why *why)
{
    StationService *s = ARENA_NEW(arena, StationService, 1);
    if (!s) return error_why(why, ERR_MEMORY, "no memory for a station's frames");
    s->terms = *t;
    s->station = station;
    Error error = station_sessions_build(&s->sessions, station, t->sequences_max, arena);
    s->sequences = ARENA_NEW(arena, ForwardSequence, t->sequences_max);
    s->places = ARENA_NEW(arena, StationSequence, t->sequences_max);
    s->wanted = ARENA_NEW(arena, uint32_t, t->rows_max);
    s->x = arena_take_raw(arena, (size_t)float_rows(t->rows_max, t->hyper->hidden));
    if (has_ffn(t)) s->g = arena_take_raw(arena, (size_t)float_rows(t->rows_max, t->hyper->ffn));
    if (error != OK || !s->sequences || !s->places || !s->wanted || !s->x || (has_ffn(t) && !s->g))
        return error_why(why, ERR_MEMORY, "no memory for a station's frames");
    *out = s;
    return OK;
}

/* --- The request --- */

static Error read_payload(StationService *s, const FrameHead *head, const uint8_t *payload,
                          uint64_t bytes, Why *why)
{
    const ForwardTerms *t = &s->terms;
    const Forward *f = &s->request;
    TRY(frame_check_payload(head, payload, bytes, why));
    TRY(rows_read(f->element, payload, f->rows, t->hyper->hidden, s->x, why));
    uint32_t g_width = forward_g_width(t->hyper, t->range.first);
    if (!g_width) return OK;
    return rows_read(f->element, payload + forward_g_at(t, f->element, f->rows), f->rows, g_width,
                     s->g, why);
}

/* A station's tables of sequences are as long as those of rows. */
static Error check_sequences(const Forward *f, const ForwardTerms *t, Why *why)
{
    if (f->sequence_count <= t->rows_max) return OK;
    return error_why(why, ERR_TOO_LARGE, "the frame has %u sequences, at most %u fit here",
                     f->sequence_count, t->rows_max);
}

Error station_service_read(StationService *s, const uint8_t *body, size_t bytes,
                           StationFrame *frame, Why *why)
{
    FrameHead head;
    Forward *f = &s->request;
    station_service_end(s);
    TRY(forward_read(body, bytes, &s->terms, s->sequences, s->wanted, f, &head, why));
    TRY(check_sequences(f, &s->terms, why));
    TRY(read_payload(s, &head, body + head.header_bytes, bytes - head.header_bytes, why));
    TRY(station_sessions_admit(&s->sessions, f, s->places, why));
    s->pending = true;
    *frame = (StationFrame){.x = s->x,
                            .g = s->g,
                            .rows = f->rows,
                            .sequences = s->places,
                            .sequence_count = f->sequence_count};
    if (f->wanted && station_drops_unwanted(s->station)) {
        frame->wanted = f->wanted;
        frame->wanted_count = f->wanted_count;
    }
    return OK;
}

void station_service_end(StationService *s)
{
    if (!s->pending) return;
    s->pending = false;
    for (uint32_t i = 0; i < s->request.sequence_count; i++)
        station_truncate(s->station, s->places[i].session, s->places[i].position);
}

/* --- The answer --- */

static ForwardAnswer answer_of(const StationService *s, uint32_t compute_us)
{
    const Forward *f = &s->request;
    bool only_wanted = f->wanted && station_drops_unwanted(s->station);
    return (ForwardAnswer){only_wanted, only_wanted ? f->wanted_count : f->rows, compute_us};
}

size_t station_service_answer_bytes(const StationService *s)
{
    const Forward *f = &s->request;
    ASSERT(s->pending);
    return forward_answer_header_size(f) +
           (size_t)forward_answer_payload_bytes(&s->terms, f->element, answer_of(s, 0).rows);
}

static Error write_payload(StationService *s, uint32_t rows, uint8_t *out, Why *why)
{
    const ForwardTerms *t = &s->terms;
    uint32_t hidden = t->hyper->hidden, g_width = forward_g_width(t->hyper, t->range.last);
    RowsElement element = s->request.element;
    for (uint32_t r = 0; ends_model(t) && r < rows; r++) {
        float *row = s->x + (size_t)r * hidden;
        station_norm_output(s->station, row, row);
    }
    TRY(rows_write(element, s->x, rows, hidden, out, why));
    if (!g_width) return OK;
    return rows_write(element, s->g, rows, g_width, out + rows_bytes(element, rows, hidden), why);
}

Error station_service_write(StationService *s, uint32_t compute_us, uint8_t *out, size_t room,
                            size_t *bytes, Why *why)
{
    size_t size = station_service_answer_bytes(s);
    size_t header = forward_answer_header_size(&s->request);
    if (size > room)
        return error_why(why, ERR_CAPACITY, "an answer of %zu bytes, with room for %zu", size,
                         room);
    ForwardAnswer answer = answer_of(s, compute_us);
    Error error = write_payload(s, answer.rows, out + header, why);
    if (error != OK) {
        station_service_end(s);
        return error;
    }
    forward_write_answer(&answer, &s->request, &s->terms, hash_xxh64(out + header, size - header),
                         out);
    s->pending = false;
    *bytes = size;
    return OK;
}

/* --- Sessions --- */

bool station_service_drop(StationService *s, uint64_t session)
{
    return station_sessions_drop(&s->sessions, session);
}

uint32_t station_service_sessions(const StationService *s) { return s->sessions.known; }

StationSessions *station_service_table(StationService *s) { return &s->sessions; }

uint64_t station_service_evictions(const StationService *s) { return s->sessions.evictions; }
