/* SPDX-License-Identifier: Apache-2.0 */
/* A shard that gets any bodies, one after the other. The first byte chooses its ids; of each message's
 * control byte, bit 0 makes CRC and hash right, bit 1 chooses /embed or /logits. The answer to a body that
 * is taken is read by the reader of the other side. */
#include "small_nodes.h"

static void check_embed(const SmallNode *n, const SmallMessage *message, const uint8_t *answer,
                        size_t bytes)
{
    const ShardTerms *terms = &n->shard_config.terms;
    EmbedRequest r;
    FrameHead head;
    Why why;
    uint32_t ids[SMALL_ROWS];
    float into[SMALL_ROWS * SMALL_HIDDEN];
    small_must(shard_frames_read_embed(message->body, message->bytes, terms, &r, &head, &why));
    small_must(shard_frames_take_ids(&r, &head, terms, message->body + head.header_bytes,
                                     message->bytes - head.header_bytes, ids, &why));
    small_must(shard_frames_read_embed_answer(answer, bytes, &r, terms, ids, &head, &why));
    small_must(shard_frames_take_embed(&r, &head, terms, ids, answer + head.header_bytes,
                                       bytes - head.header_bytes, into, &why));
}

static void check_logits(const SmallNode *n, const SmallMessage *message, const uint8_t *answer,
                         size_t bytes)
{
    ShardTerms terms = n->shard_config.terms;
    LogitsRow row[SMALL_ROWS / 2];
    LogitsResult results[SMALL_ROWS / 2];
    LogitsRequest r;
    FrameHead head;
    Why why;
    float hidden[SMALL_ROWS / 2 * SMALL_HIDDEN];
    terms.rows_max = SMALL_ROWS / 2;
    small_must(
        shard_frames_read_logits(message->body, message->bytes, &terms, row, &r, &head, &why));
    small_must(shard_frames_take_logits(&r, &head, &terms, message->body + head.header_bytes,
                                        message->bytes - head.header_bytes, hidden, &why));
    small_must(shard_frames_read_logits_answer(answer, bytes, &r, &terms, results, &head, &why));
    small_must(shard_frames_take_logits_answer(&head, &r, &terms, answer + head.header_bytes,
                                               bytes - head.header_bytes, results, &why));
}

static Error compute(SmallNode *n, const SmallModel *m, Why *why)
{
    ShardWish wish;
    for (shard_next(n->shard, &wish); wish.kind != SHARD_DONE; shard_next(n->shard, &wish))
        TRY(shard_give(n->shard, m->payload + wish.offset, &parallel_serial, why));
    return OK;
}

static void serve(SmallNode *n, const SmallModel *m, SmallMessage *message)
{
    bool embeds = message->control & 2;
    Why why;
    if (message->control & 1) small_seal(message->body, message->bytes);
    Error error =
        shard_service_begin(n->shard_service, embeds ? SHARD_SERVICE_EMBED : SHARD_SERVICE_LOGITS,
                            message->body, message->bytes, &why);
    if (error != OK) {
        if (!why.text[0] || strnlen(why.text, WHY_MAX) == WHY_MAX) abort();
        return;
    }
    error = compute(n, m, &why);
    if (error == ERR_NOT_FINITE) return;
    small_must(error);
    size_t room = shard_service_answer_bytes(n->shard_service), bytes = 0;
    uint8_t *answer = malloc(room);
    error = shard_service_write(n->shard_service, answer, room, &bytes, &why);
    if (error != OK && error != ERR_NOT_FINITE) abort();
    if (error == OK && bytes != room) abort();
    if (error == OK && embeds) check_embed(n, message, answer, bytes);
    if (error == OK && !embeds) check_logits(n, message, answer, bytes);
    free(answer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint32_t ranges[][2] = {{0, SMALL_VOCABULARY}, {0, 7}, {7, 40}, {39, 40}};
    static SmallModel model;
    SmallNode node = {0};
    SmallMessage message;
    if (size < 1) return 0;
    if (!model.memory) small_open(&model);
    small_shard(&node, &model, ranges[data[0] % 4][0], ranges[data[0] % 4][1]);
    for (data++, size--; small_next(&data, &size, &message); free(message.body))
        serve(&node, &model, &message);
    small_close(&node);
    return 0;
}
