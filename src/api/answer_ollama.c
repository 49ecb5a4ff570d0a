/* SPDX-License-Identifier: Apache-2.0 */
/* Ollama's chat and generate: lines of JSON.
 *
 *   stream   {text, "done":false} ... - {"done":true, why, counts and times}
 *   fault    {"error":"..."}  and the stream ends. A string: the official clients raise it as it is, and stumble over
 *            an object. What the object of other paths has beside its message stands beside it.
 *
 * Lines have no ids, so such a stream cannot be resumed, and no comments: while nothing is ready, nothing is sent. */
#include "api/answer_ollama.h"

#include "api/answer_state.h"
#include "text/json_check.h"
#include "text/utf8.h"

/* ---- Time: a count of seconds as "2026-11-30T05:00:00Z" ---- */

static void write_digits(JsonWriter *w, uint64_t value, unsigned digits)
{
    char text[8];
    for (unsigned i = digits; i; value /= 10) text[--i] = (char)('0' + value % 10);
    json_writer_bytes(w, text, digits);
}

static bool is_leap(uint64_t year) { return year % 4 == 0 && (year % 100 || year % 400 == 0); }

static void write_date(JsonWriter *w, uint64_t days)
{
    static const uint8_t lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    uint64_t year = 1970, month = 0;
    for (; year < 9999 && days >= 365u + is_leap(year); year++) days -= 365u + is_leap(year);
    while (month < 11 && days >= (uint64_t)lengths[month] + (month == 1 && is_leap(year))) {
        days -= (uint64_t)lengths[month] + (month == 1 && is_leap(year));
        month++;
    }
    write_digits(w, year, 4);
    json_writer_raw(w, "-");
    write_digits(w, month + 1, 2);
    json_writer_raw(w, "-");
    write_digits(w, days + 1, 2);
}

static void write_time(JsonWriter *w, const char *name, uint64_t seconds)
{
    json_writer_member(w, name);
    json_writer_raw(w, "\"");
    write_date(w, seconds / 86400);
    json_writer_raw(w, "T");
    write_digits(w, seconds / 3600 % 24, 2);
    json_writer_raw(w, ":");
    write_digits(w, seconds / 60 % 60, 2);
    json_writer_raw(w, ":");
    write_digits(w, seconds % 60, 2);
    json_writer_raw(w, "Z\"");
}

/* ---- Answers ---- */

static void begin(AnswerHead *head, JsonWriter *w)
{
    json_writer_raw(w, "{");
    json_writer_member_text(w, "model", head->model);
    write_time(w, "created_at", head->created_s);
    if (head->degraded) json_writer_member_bool(w, "degraded", true);
}

/* ---- Calls of tools: their arguments are JSON in JSON, so only such as are an object, in one line ---- */

static bool is_object(const uint8_t *text, size_t bytes)
{
    JsonCheck check = {0};
    JsonCheckResult result = JSON_CHECK_GOES_ON;
    size_t at = 0;
    while (at < bytes && result == JSON_CHECK_GOES_ON) result = json_check_push(&check, text[at++]);
    while (at < bytes &&
           (text[at] == ' ' || text[at] == '\t' || text[at] == '\n' || text[at] == '\r'))
        at++;
    return result == JSON_CHECK_WHOLE && at == bytes && utf8_is_text(text, bytes);
}

/* What breaks a line there is never in a string. */
static void write_line(JsonWriter *w, const uint8_t *text, size_t bytes)
{
    for (size_t from = 0, to = 0; from < bytes; from = to + 1) {
        for (to = from; to < bytes && text[to] != '\n' && text[to] != '\r'; to++) {
        }
        json_writer_bytes(w, text + from, to - from);
        if (to < bytes) json_writer_raw(w, " ");
    }
}

/* A call that was cut in its midst is left out: its arguments are nothing that a tool can take. */
static void write_calls(JsonWriter *w, const AnswerPiece *piece)
{
    uint32_t written = 0;
    for (uint32_t i = 0; i < piece->tool_count; i++) {
        const AnswerTool *t = &piece->tools[i];
        if (!is_object(t->arguments, t->bytes)) continue;
        json_writer_raw(w, written++ ? ",{\"function\":{\"name\":"
                                     : ",\"tool_calls\":[{\"function\":{\"name\":");
        json_writer_string(w, t->name, t->name_bytes);
        json_writer_raw(w, ",\"arguments\":");
        write_line(w, t->arguments, t->bytes);
        json_writer_raw(w, "}}");
    }
    if (written) json_writer_raw(w, "]");
}

static void write_text(const AnswerHead *head, JsonWriter *w, const AnswerPiece *piece)
{
    bool chat = head->dialect == ANSWER_OLLAMA_CHAT;
    json_writer_raw(w,
                    chat ? ",\"message\":{\"role\":\"assistant\",\"content\":" : ",\"response\":");
    json_writer_string(w, piece->text, piece->bytes);
    if (chat) write_calls(w, piece);
    if (chat) json_writer_raw(w, "}");
}

static const char *reason_of(AnswerFinish finish)
{
    return finish == ANSWER_LENGTH ? "length" : "stop";
}

static void end(AnswerHead *head, JsonWriter *w, const AnswerUsage *usage)
{
    json_writer_member_bool(w, "done", true);
    json_writer_member_text(w, "done_reason", reason_of(head->finish));
    json_writer_member_u64(w, "total_duration", usage->total_ns);
    json_writer_member_u64(w, "load_duration", usage->wait_ns);
    json_writer_member_u64(w, "prompt_eval_count", usage->prompt);
    json_writer_member_u64(w, "prompt_eval_duration", usage->prompt_ns);
    json_writer_member_u64(w, "eval_count", usage->completion);
    json_writer_member_u64(w, "eval_duration", usage->completion_ns);
    json_writer_raw(w, "}");
}

static void choice(AnswerHead *head, JsonWriter *w, uint32_t index, const AnswerPiece *piece,
                   AnswerFinish finish)
{
    (void)index;
    head->finish = finish;
    write_text(head, w, piece);
}

static void write_piece(AnswerHead *head, JsonWriter *w, uint32_t index, const AnswerPiece *piece)
{
    (void)index;
    if (!piece->bytes) return; /* calls go out whole, at the end */
    begin(head, w);
    write_text(head, w, &(AnswerPiece){.text = piece->text, .bytes = piece->bytes});
    json_writer_raw(w, ",\"done\":false}\n");
}

/* The end says it, in one line with the counts. */
static void write_finish(AnswerHead *head, JsonWriter *w, uint32_t index, AnswerFinish finish)
{
    (void)w;
    (void)index;
    head->finish = finish;
}

static void write_stream_end(AnswerHead *head, JsonWriter *w, const AnswerPiece *whole,
                             const AnswerUsage *usage)
{
    AnswerPiece calls = {0};
    if (whole) calls = (AnswerPiece){.tools = whole->tools, .tool_count = whole->tool_count};
    if (calls.tool_count) {
        begin(head, w);
        write_text(head, w, &calls);
        json_writer_raw(w, ",\"done\":false}\n");
    }
    begin(head, w);
    write_text(head, w, &(AnswerPiece){.bytes = 0});
    end(head, w, usage);
    json_writer_raw(w, "\n");
}

static void write_fault(AnswerHead *head, JsonWriter *w, const Refusal *refusal)
{
    (void)head;
    json_writer_raw(w, "{\"error\":");
    json_writer_text(w, refusal->why.text);
    json_writer_member_text(w, "code", refusal_code(refusal));
    json_writer_member_bool(w, "retryable", refusal_retry_s(refusal) > 0);
    json_writer_raw(w, "}\n");
}

void answer_ollama_loaded(AnswerHead *head, JsonWriter *w)
{
    begin(head, w);
    write_text(head, w, &(AnswerPiece){.bytes = 0});
    json_writer_raw(w, ",\"done\":true,\"done_reason\":\"load\"}\n");
}

#define TABLE(times)                 \
    {.prefix = "ollama-",            \
     .type = "application/x-ndjson", \
     .repeats = times,               \
     .piece = write_piece,           \
     .finish = write_finish,         \
     .stream_end = write_stream_end, \
     .fault = write_fault,           \
     .begin = begin,                 \
     .choice = choice,               \
     .end = end}

const AnswerTable answer_ollama_chat = TABLE(1), answer_ollama_generate = TABLE(0);

/* ---- The model ---- */

/* Numbers in tensors; a head that repeats the embedding counts once. */
static uint64_t count_parameters(const Knot *knot)
{
    const KnotTensor *head = knot->tied_head ? knot_find(knot, "output_weight") : NULL;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < knot->tensor_count; i++)
        if (&knot->tensors[i] != head)
            sum += (uint64_t)knot->tensors[i].rows * knot->tensors[i].cols;
    return sum;
}

/* The type that most bytes of matrices have. */
static const char *main_type(const Knot *knot)
{
    uint32_t best = BLOCK_F32;
    uint64_t bytes[BLOCK_TYPES_END] = {0};
    for (uint32_t i = 0; i < knot->tensor_count; i++)
        bytes[knot->tensors[i].type] += knot->tensors[i].bytes;
    for (uint32_t type = 0; type < BLOCK_TYPES_END; type++)
        if (bytes[type] > bytes[best]) best = type;
    return block_traits(best)->name;
}

/* "1.5B", "494.0M" */
static void write_size(JsonWriter *w, const char *name, uint64_t parameters)
{
    bool billions = parameters >= 1000000000;
    uint64_t tenths = parameters / (billions ? 100000000 : 100000);
    json_writer_member(w, name);
    json_writer_raw(w, "\"");
    json_writer_u64(w, tenths / 10);
    json_writer_raw(w, ".");
    json_writer_u64(w, tenths % 10);
    json_writer_raw(w, billions ? "B\"" : "M\"");
}

static void write_details(const AnswerOllamaModel *m, JsonWriter *w)
{
    json_writer_member(w, "details");
    json_writer_raw(w, "{");
    json_writer_member_text(w, "parent_model", "");
    json_writer_member_text(w, "format", "knot");
    json_writer_member_text(w, "family", m->knot->model.architecture);
    json_writer_member(w, "families");
    json_writer_raw(w, "[");
    json_writer_text(w, m->knot->model.architecture);
    json_writer_raw(w, "]");
    write_size(w, "parameter_size", count_parameters(m->knot));
    json_writer_member_text(w, "quantization_level", main_type(m->knot));
    json_writer_raw(w, "}");
}

/* Without its closing brace, in a list of one. */
static void write_model(const AnswerOllamaModel *m, JsonWriter *w)
{
    json_writer_raw(w, "{\"models\":[{");
    json_writer_member_text(w, "name", m->name);
    json_writer_member_text(w, "model", m->name);
    json_writer_member_u64(w, "size", m->knot->file_bytes);
    json_writer_member(w, "digest");
    json_writer_raw(w, "\"");
    json_writer_hex64(w, m->knot->id);
    json_writer_raw(w, "\"");
    write_details(m, w);
}

void answer_ollama_tags(const AnswerOllamaModel *m, JsonWriter *w)
{
    write_model(m, w);
    write_time(w, "modified_at", m->created_s);
    json_writer_raw(w, "}]}");
}

/* It stays: the time at which it expires is the last that can be written. */
void answer_ollama_processes(const AnswerOllamaModel *m, JsonWriter *w)
{
    write_model(m, w);
    json_writer_member_text(w, "expires_at", "9999-12-31T23:59:59Z");
    json_writer_member_u64(w, "size_vram", 0);
    json_writer_member_u64(w, "context_length", m->context);
    json_writer_raw(w, "}]}");
}

/* The architecture is the file's word: nothing says that its characters are plain. */
static void write_fact(JsonWriter *w, const char *architecture, const char *name, uint64_t value)
{
    char key[96];
    JsonWriter text = json_writer_make(key, sizeof key);
    json_writer_raw(&text, architecture);
    json_writer_raw(&text, ".");
    json_writer_raw(&text, name);
    json_writer_raw(w, ",");
    json_writer_string(w, key, text.used);
    json_writer_raw(w, ":");
    json_writer_u64(w, value);
}

static void write_facts(const KnotModel *model, uint64_t parameters, JsonWriter *w)
{
    const char *a = model->architecture;
    json_writer_raw(w, ",\"model_info\":{\"general.architecture\":");
    json_writer_text(w, a);
    json_writer_raw(w, ",\"general.basename\":");
    json_writer_text(w, model->name);
    write_fact(w, "general", "parameter_count", parameters);
    write_fact(w, a, "block_count", model->layers);
    write_fact(w, a, "context_length", model->context);
    write_fact(w, a, "embedding_length", model->hidden);
    write_fact(w, a, "feed_forward_length", model->ffn);
    write_fact(w, a, "attention.head_count", model->heads);
    write_fact(w, a, "attention.head_count_kv", model->kv_heads);
    write_fact(w, a, "attention.key_length", model->head_dim);
    write_fact(w, a, "vocab_size", model->vocabulary);
    json_writer_raw(w, "}");
}

void answer_ollama_show(const AnswerOllamaModel *m, JsonWriter *w)
{
    const Vocab *v = m->vocab;
    json_writer_raw(w, "{");
    json_writer_member_text(w, "modelfile", "");
    json_writer_member_text(w, "parameters", "");
    json_writer_member(w, "template");
    json_writer_string(w, v->chat_template, v->chat_template_bytes);
    write_details(m, w);
    write_facts(&m->knot->model, count_parameters(m->knot), w);
    json_writer_member_u64(w, "context_length", m->context);
    json_writer_raw(w, m->tools ? ",\"capabilities\":[\"completion\",\"tools\"]"
                                : ",\"capabilities\":[\"completion\"]");
    write_time(w, "modified_at", m->created_s);
    json_writer_raw(w, "}");
}

size_t answer_ollama_bytes(const AnswerOllamaModel *m)
{
    return 8 * ANSWER_EVENT_BYTES + JSON_WRITER_GROWTH * (size_t)m->vocab->chat_template_bytes;
}
