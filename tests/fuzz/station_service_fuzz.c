/* SPDX-License-Identifier: Apache-2.0 */
/* A station that gets any bodies, one after the other. The first byte chooses range and cache; of each
 * message's control byte, bit 0 makes CRC and hash right, bit 1 frees a session instead, bit 2 lets the
 * station fail. A body that is refused has changed nothing; the answer to another one is read by the
 * reader of the other side. */
#include "small_nodes.h"

typedef struct Facts {
    uint64_t sessions, blocks, lengths[SMALL_SESSIONS]; /* of one width: compared as bytes */
    uint64_t evictions;
} Facts;

static Facts facts_of(const SmallNode *n)
{
    Facts f = {.sessions = station_service_sessions(n->station_service),
               .blocks = station_blocks_free(n->station),
               .evictions = station_service_evictions(n->station_service)};
    for (uint32_t i = 0; i < SMALL_SESSIONS; i++) f.lengths[i] = station_length(n->station, i);
    return f;
}

static Error compute(SmallNode *n, const SmallModel *m, const StationFrame *frame, Why *why)
{
    StationWish wish;
    TRY(station_begin(n->station, frame, &parallel_serial, why));
    for (station_next(n->station, &wish); wish.kind != STATION_DONE;
         station_next(n->station, &wish))
        if (wish.kind == STATION_TILE)
            TRY(station_give(n->station, m->payload + wish.offset, &parallel_serial, why));
    return OK;
}

static void check_answer(SmallNode *n, const SmallMessage *message)
{
    ForwardSequence sequences[SMALL_SESSIONS];
    uint32_t wanted[SMALL_ROWS];
    Forward f;
    ForwardAnswer a;
    FrameHead head;
    Why why;
    size_t room = station_service_answer_bytes(n->station_service), bytes = 0;
    uint8_t *answer = malloc(room);
    Error error = station_service_write(n->station_service, 1, answer, room, &bytes, &why);
    small_must(forward_read(message->body, message->bytes, &n->forward_terms, sequences, wanted, &f,
                            &head, &why));
    if (error == OK) {
        if (bytes != room) abort();
        small_must(forward_read_answer(answer, bytes, &f, &n->forward_terms, &a, &head, &why));
        small_must(frame_check_payload(&head, answer + head.header_bytes, bytes - head.header_bytes,
                                       &why));
    } else if (error != ERR_NOT_FINITE) abort();
    free(answer);
}

static void forward(SmallNode *n, const SmallModel *m, SmallMessage *message)
{
    StationFrame frame;
    Why why;
    Facts before = facts_of(n);
    if (message->control & 1) small_seal(message->body, message->bytes);
    Error error =
        station_service_read(n->station_service, message->body, message->bytes, &frame, &why);
    if (error != OK) {
        Facts after = facts_of(n);
        if (memcmp(&before, &after, sizeof before) != 0) abort();
        if (!why.text[0] || strnlen(why.text, WHY_MAX) == WHY_MAX) abort();
        return;
    }
    error = compute(n, m, &frame, &why);
    if (error != OK && error != ERR_NOT_FINITE) abort(); /* room was made, rules were checked */
    if (error == OK && !(message->control & 4)) check_answer(n, message);
    else station_service_end(n->station_service);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const PhaseRange ranges[] = {{0, 8}, {0, 2}, {2, 4}, {3, 8},
                                        {4, 8}, {0, 1}, {7, 8}, {5, 6}};
    static SmallModel model;
    SmallNode node = {0};
    SmallMessage message;
    if (size < 1) return 0;
    if (!model.memory) small_open(&model);
    small_station(&node, &model, ranges[data[0] % 8], 1 + (data[0] >> 3) % 8);
    for (data++, size--; small_next(&data, &size, &message); free(message.body)) {
        if (!(message.control & 2)) forward(&node, &model, &message);
        else if (message.bytes >= 8)
            station_service_drop(node.station_service, bytes_load64(message.body));
        if (station_service_sessions(node.station_service) > SMALL_SESSIONS) abort();
    }
    small_close(&node);
    return 0;
}
