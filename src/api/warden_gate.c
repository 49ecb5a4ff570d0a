/* SPDX-License-Identifier: Apache-2.0 */
#include "api/warden_gate.h"

#include <string.h>
#include <yyjson.h>

#include "api/warden_answer.h"
#include "knot/emit.h"

/* --- numbers --- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

Error warden_gate_knot_id(const char *text, uint64_t *out, Why *why)
{
    size_t digits = 0;
    for (*out = 0; digits < 16 && hex_digit(text[digits]) >= 0; digits++)
        *out = *out << 4 | (uint64_t)hex_digit(text[digits]);
    if (digits == 16 && text[16] == '\0') return OK;
    return error_why(why, ERR_USAGE, "\"%s\" is no knot_id: 16 hexadecimal digits", text);
}

/* Decimal digits; what is larger than 64 bits is UINT64_MAX. Result  behind them; `text` when there are none. */
static const char *take_number(const char *text, uint64_t *out)
{
    for (*out = 0; *text >= '0' && *text <= '9'; text++) {
        uint64_t digit = (uint64_t)(*text - '0');
        *out = *out > (UINT64_MAX - digit) / 10 ? UINT64_MAX : *out * 10 + digit;
    }
    return text;
}

static bool is_number(const char *text, uint64_t *out)
{
    const char *end = take_number(text, out);
    return end != text && *end == '\0';
}

/* --- identity --- */

static Error take_bound(const WardenSelf *self, bool is_shard, const char *text, uint32_t *out,
                        Why *why)
{
    uint64_t value;
    if (!is_shard) return phase_parse_bound(text, strlen(text), self->layers, out, why);
    if (!is_number(text, &value) || value > UINT32_MAX)
        return error_why(why, ERR_USAGE, "\"%s\" is no id", text);
    *out = (uint32_t)value;
    return OK;
}

Error warden_gate_matches(const WardenSelf *self, const WardenAsked *a, Why *why)
{
    WardenIdentity asked = self->identity;
    bool layers = a->layer_first || a->layer_last, ids = a->id_first || a->id_last;
    if (layers && ids)
        return error_why(why, ERR_USAGE, "a request for a layer warden and for a shard warden");
    if (a->knot_id) TRY(warden_gate_knot_id(a->knot_id, &asked.knot_id, why));
    if (layers || ids) asked.is_shard = ids;
    const char *first = ids ? a->id_first : a->layer_first,
               *last = ids ? a->id_last : a->layer_last;
    if (first) TRY(take_bound(self, asked.is_shard, first, &asked.first, why));
    if (last) TRY(take_bound(self, asked.is_shard, last, &asked.last, why));
    TRY(warden_identity_check(&self->identity, &asked, self->layers, why));
    if (!a->knot_key || strcmp(a->knot_key, self->knot_key) == 0) return OK;
    return error_why(why, ERR_UNSUPPORTED, "the request is for \"%s\", this warden reads \"%s\"",
                     a->knot_key, self->knot_key);
}

/* --- POST /configure --- */

/* A number or a text, as text. */
static const char *member_text(yyjson_val *object, const char *name, char room[24])
{
    yyjson_val *v = yyjson_obj_get(object, name);
    if (yyjson_is_str(v)) return yyjson_get_str(v);
    if (!yyjson_is_uint(v)) return NULL;
    Emit e = emit_make(room, 23);
    emit_u64(&e, yyjson_get_uint(v));
    room[e.used] = '\0';
    return room;
}

static Error configure_object(const WardenSelf *self, yyjson_val *o, Why *why)
{
    char room[4][24];
    WardenAsked a = {.knot_id = yyjson_get_str(yyjson_obj_get(o, "knot_id")),
                     .knot_key = yyjson_get_str(yyjson_obj_get(o, "knot_key")),
                     .layer_first = member_text(o, "layer_start", room[0]),
                     .layer_last = member_text(o, "layer_end", room[1]),
                     .id_first = member_text(o, "vocab_start", room[2]),
                     .id_last = member_text(o, "vocab_end", room[3])};
    if (!a.knot_id || !a.knot_key ||
        !((a.layer_first && a.layer_last) || (a.id_first && a.id_last)))
        return error_why(why, ERR_FORMAT,
                         "configure needs knot_id, knot_key, and layer_start and layer_end or "
                         "vocab_start and vocab_end");
    return warden_gate_matches(self, &a, why);
}

Error warden_gate_configure(const WardenSelf *self, const uint8_t *body, size_t bytes, void *pool,
                            Why *why)
{
    yyjson_alc allocator;
    if (bytes > WARDEN_CONFIGURE_BYTES_MAX)
        return error_why(why, ERR_TOO_LARGE, "%zu bytes to configure a warden", bytes);
    if (!yyjson_alc_pool_init(&allocator, pool, WARDEN_CONFIGURE_POOL_BYTES))
        return error_why(why, ERR_MEMORY, "no memory to read a body");
    yyjson_doc *doc =
        yyjson_read_opts((char *)(uintptr_t)body, bytes, YYJSON_READ_NOFLAG, &allocator, NULL);
    yyjson_val *o = yyjson_doc_get_root(doc);
    return yyjson_is_obj(o) ? configure_object(self, o, why)
                            : error_why(why, ERR_FORMAT, "the body is no JSON object");
}

/* --- queries --- */

/* "NAME=A-B", numbers of at most 18 digits. Result  false for any other form. */
static bool take_pair(const char *query, const char *name, uint64_t out[2])
{
    size_t start = strlen(name);
    const char *at = query + start;
    if (strncmp(query, name, start) != 0) return false;
    for (int i = 0; i < 2; i++) {
        const char *first = at;
        at = take_number(at, &out[i]);
        if (at == first || at - first > 18 || *at != (i ? '\0' : '-')) return false;
        at += !i;
    }
    return true;
}

static Error take_rows(const char *query, AwfrPiece *p, Why *why)
{
    uint64_t pair[2];
    if (!query[0]) return OK;
    if (!take_pair(query, "rows=", pair) || pair[0] >= pair[1] || pair[1] > UINT32_MAX)
        return error_why(why, ERR_USAGE, "\"%s\": rows=FIRST-LAST, the last one excluded", query);
    p->row_first = (uint32_t)pair[0];
    p->row_count = (uint32_t)(pair[1] - pair[0]);
    return OK;
}

static Error find_tensor(const Knot *knot, const char *name, const KnotTensor **out, Why *why)
{
    *out = knot_find(knot, name);
    if (*out) return OK;
    return error_why(why, ERR_MISSING_TENSOR, "the knot has no tensor \"%s\"", name);
}

Error warden_gate_tensor(const Knot *knot, const char *name, const char *query, AwfrPiece *out,
                         Why *why)
{
    const KnotTensor *t;
    TRY(find_tensor(knot, name, &t, why));
    *out = (AwfrPiece){.tensor = t, .row_count = t->rows};
    return take_rows(query, out, why);
}

Error warden_gate_bytes(const Knot *knot, const char *query, uint64_t *first, uint64_t *bytes,
                        Why *why)
{
    uint64_t pair[2];
    if (!take_pair(query, "bytes=", pair))
        return error_why(why, ERR_USAGE, "\"%s\": bytes=FIRST-LAST, or size", query);
    if (pair[0] > pair[1] || pair[1] >= knot->file_bytes)
        return error_why(why, ERR_RANGE, "bytes %llu to %llu, the file has %llu",
                         (unsigned long long)pair[0], (unsigned long long)pair[1],
                         (unsigned long long)knot->file_bytes);
    *first = pair[0];
    *bytes = pair[1] - pair[0] + 1;
    return warden_answer_check_size(*bytes, WARDEN_ANSWER_BYTES_MAX, why);
}

Error warden_gate_invalidate(const WardenSelf *self, const Knot *knot, const char *what,
                             const KnotTensor **tensor, uint32_t *row, Why *why)
{
    uint64_t number;
    char text[WARDEN_IDENTITY_TEXT_MAX];
    *tensor = NULL;
    *row = 0;
    if (!is_number(what, &number)) return find_tensor(knot, what, tensor, why);
    const WardenIdentity *id = &self->identity;
    if (!id->is_shard || number < id->first || number >= id->last)
        return error_why(why, ERR_RANGE, "row %s: not of this warden, %s", what,
                         warden_identity_text(id, self->layers, text));
    *row = (uint32_t)number;
    return OK;
}
