/* SPDX-License-Identifier: Apache-2.0 */
/* What tokens are worth goes out with their text, and a prompt in front of its answer.
 *
 *   tokens   [ gone out | ready | text held back ]       a score is ready when the text that its token begins is
 *   text     0 .......... out                            out, or when it has none and what is in front of it is out
 *
 * What is behind a stop string never becomes ready. A stream forgets what has gone out; a whole answer keeps it to the
 * end. A prompt that is scored is said when its last token is: in parts that depend on the prompt alone, so that a
 * stream that goes on has the same. */
#include <stdlib.h>
#include <string.h>

#include "base/max.h"
#include "serve/serve_state.h"

enum { PART_TOKENS = 64, PART_TEXT = 4096 };

typedef struct Span {
    uint64_t begin, end; /* bytes of the answer's text, held back or not */
} Span;

struct ServeScores {
    uint32_t count, room;
    AnswerScore *scores;
    Span *spans;
    uint64_t out, characters; /* bytes of text that went out, and how many characters they are */
    uint32_t prompt_left;     /* scores that come before the prompt can be said */
};

void serve_scores_free(ServeAnswer *a)
{
    if (!a->scores) return;
    free(a->scores->scores);
    free(a->scores->spans);
    free(a->scores);
    a->scores = NULL;
}

static uint32_t prompt_tokens(const ServeAnswer *a) { return a->count - a->journaled; }

/* A continuation byte begins no character. */
static uint64_t count_characters(const uint8_t *text, size_t bytes)
{
    uint64_t count = 0;
    for (size_t i = 0; i < bytes; i++) count += (text[i] & 0xC0) != 0x80;
    return count;
}

static bool grow(ServeScores *l)
{
    if (l->count < l->room) return true;
    uint32_t room = 2 * l->room + 32;
    AnswerScore *scores = realloc(l->scores, room * sizeof *scores);
    if (scores) l->scores = scores;
    Span *spans = scores ? realloc(l->spans, room * sizeof *spans) : NULL;
    if (!spans) return false;
    l->spans = spans;
    l->room = room;
    return true;
}

static bool add(ServeScores *l, uint32_t token, const CoordinatorScore *score)
{
    if (!grow(l)) return false;
    AnswerScore *to = &l->scores[l->count];
    *to = (AnswerScore){.token = token, .unscored = !score};
    if (score) {
        to->logprob = score->logprob;
        to->top_count = score->top_count;
        memcpy(to->top, score->top, score->top_count * sizeof *to->top);
    }
    l->spans[l->count++] = (Span){0, 0};
    return true;
}

/* ---- Tokens of the answer ---- */

bool serve_scores_begin(ServeAnswer *a, const CoordinatorScore *score)
{
    ServeScores *l = a->scores;
    const Detokenizer *d = &a->detokenizer;
    if (!add(l, score->token, score)) return false;
    l->spans[l->count - 1].begin = l->out + d->held_bytes;
    l->scores[l->count - 1].offset = l->characters + count_characters(d->held, d->held_bytes);
    return true;
}

void serve_scores_end(ServeAnswer *a, size_t bytes, bool stopped)
{
    ServeScores *l = a->scores;
    const Detokenizer *d = &a->detokenizer;
    l->spans[l->count - 1].end =
        stopped ? UINT64_MAX : l->out + bytes + d->held_bytes + d->pending_bytes;
}

uint32_t serve_scores_ready(ServeAnswer *a, const uint8_t *text, size_t bytes)
{
    ServeScores *l = a->scores;
    uint32_t ready = 0;
    l->out += bytes;
    l->characters += count_characters(text, bytes);
    while (ready < l->count && (l->spans[ready].begin < l->out || l->spans[ready].end <= l->out))
        ready++;
    return ready;
}

const AnswerScore *serve_scores_list(const ServeAnswer *a) { return a->scores->scores; }

void serve_scores_forget(ServeAnswer *a, uint32_t count)
{
    ServeScores *l = a->scores;
    l->count -= count;
    if (!l->count) return;
    memmove(l->scores, l->scores + count, l->count * sizeof *l->scores);
    memmove(l->spans, l->spans + count, l->count * sizeof *l->spans);
}

/* ---- The prompt in front ---- */

/* Up to PART_TOKENS of the prompt's from `first` on, as text with their offsets. Result  how many. */
static Error say_part(Serve *s, ServeAnswer *a, Detokenizer *d, uint32_t first, uint8_t *text,
                      size_t *bytes, uint32_t *count, Why *why)
{
    const Tokenizer *t = s->options.tokenizer;
    uint32_t tokens = prompt_tokens(a);
    uint64_t characters = a->scores ? a->scores->characters : 0;
    *bytes = 0;
    for (*count = 0; *count < PART_TOKENS && first + *count < tokens && *bytes < PART_TEXT;
         ++*count) {
        uint32_t at = first + *count, id = a->ids[at];
        size_t more = 0;
        bool stopped;
        if (a->scores) a->scores->scores[at].offset = characters;
        if (at == 0 && id == tokenizer_vocab(t)->bos) continue; /* what the text does not have */
        TRY(detokenizer_push(d, id, text + *bytes, DETOKENIZER_OUT_BYTES_MAX - *bytes, &more,
                             &stopped, why));
        characters += count_characters(text + *bytes, more);
        *bytes += more;
    }
    if (first + *count < tokens) return OK;
    size_t more;
    TRY(detokenizer_end(d, text + *bytes, DETOKENIZER_OUT_BYTES_MAX - *bytes, &more, why));
    *bytes += more;
    return OK;
}

static Error say_prompt(Serve *s, ServeAnswer *a, Why *why)
{
    uint8_t text[DETOKENIZER_OUT_BYTES_MAX];
    ServeScores *l = a->scores;
    Detokenizer d;
    detokenizer_start(&d, s->options.tokenizer, true);
    for (uint32_t first = 0, count; first < prompt_tokens(a); first += count) {
        size_t bytes;
        TRY(say_part(s, a, &d, first, text, &bytes, &count, why));
        a->place = ++a->places_before;
        AnswerPiece piece = {.text = text, .bytes = bytes};
        if (l) {
            piece.scores = l->scores + first;
            piece.score_count = count;
            l->out += bytes;
            l->characters += count_characters(text, bytes);
        }
        if (!serve_answer_put(s, a, &piece)) return error_why(why, ERR_MEMORY, "the prompt's text");
    }
    if (l && a->job->stream) l->count = 0;
    return OK;
}

bool serve_scores_waits(const ServeAnswer *a) { return a->scores && a->scores->prompt_left; }

Error serve_scores_prompt(Serve *s, ServeAnswer *a, const CoordinatorScore *score, Why *why)
{
    ServeScores *l = a->scores;
    uint32_t at = prompt_tokens(a) - l->prompt_left;
    if (!add(l, a->ids[at], score)) return error_why(why, ERR_MEMORY, "the scores of the prompt");
    return --l->prompt_left ? OK : say_prompt(s, a, why);
}

Error serve_scores_start(Serve *s, ServeAnswer *a, Why *why)
{
    ServeJob *job = a->job;
    if (job->scores && !a->scores) {
        a->scores = calloc(1, sizeof *a->scores);
        if (!a->scores) return error_why(why, ERR_MEMORY, "the scores of tokens");
        a->scores->prompt_left = job->says_prompt ? prompt_tokens(a) : 0;
        if (a->scores->prompt_left) return serve_scores_prompt(s, a, NULL, why);
    }
    return job->says_prompt && !job->scores ? say_prompt(s, a, why) : OK;
}

Error serve_scores_ask(Serve *s, ServeAnswer *a, Why *why)
{
    if (!a->job->scores) return OK;
    return coordinator_score(s->options.engine.coordinator, a->slot, a->job->tops,
                             serve_scores_waits(a) ? 1 : UINT32_MAX, why);
}
