/* SPDX-License-Identifier: Apache-2.0 */
/* response_format and grammar: which form an answer must have. Reading says what is asked for; the grammar is made
 * afterwards, since it needs more memory than a request usually does. */
#include <string.h>

#include "api/request_state.h"
#include "api/schema.h"

const char *request_form_name(RequestKind kind)
{
    if (kind == REQUEST_RESPONSES) return "text.format";
    return kind == REQUEST_CHAT ? "response_format" : "format";
}

static bool take_form(RequestReader *r, const char *name, RequestForm form)
{
    if (form != REQUEST_FREE && r->request->form != REQUEST_FREE)
        return refusal_make(r->refusal, REFUSAL_VALUE, name, "give one of %s and grammar",
                            request_form_name(r->request->kind));
    if (form != REQUEST_FREE) r->request->form = form;
    return true;
}

/* The object `owner` has the schema of the field `name`. `strict` changes nothing: the schema is kept either way, or
 * refused. */
static bool take_schema(RequestReader *r, yyjson_val *value, const char *name, const char *owner)
{
    char param[REFUSAL_PARAM_MAX];
    yyjson_val *strict = yyjson_obj_get(value, "strict");
    request_name_join(param, owner, ".strict");
    if (strict && !yyjson_is_bool(strict) && !yyjson_is_null(strict))
        return refusal_make(r->refusal, REFUSAL_TYPE, param, "strict must be true or false");
    request_name_join(param, owner, ".schema");
    r->request->schema = yyjson_obj_get(value, "schema");
    if (!r->request->schema) return request_refuse(r, REFUSAL_MISSING, param, "is missing");
    return take_form(r, name, REQUEST_JSON_SCHEMA);
}

static bool read_json_schema(RequestReader *r, yyjson_val *value)
{
    static const char *const known[] = {"name", "description", "schema", "strict", NULL};
    static const char name[] = "response_format.json_schema";
    return request_check_members(r, value, name, known) &&
           take_schema(r, value, "response_format", name);
}

static bool take_type(RequestReader *r, yyjson_val *type, const char *name)
{
    char param[REFUSAL_PARAM_MAX];
    request_name_join(param, name, ".type");
    if (yyjson_equals_str(type, "json_object")) return take_form(r, name, REQUEST_JSON_OBJECT);
    return yyjson_equals_str(type, "text") ||
           request_refuse(r, REFUSAL_VALUE, param, "must be text, json_object or json_schema");
}

bool request_form_response_format(RequestReader *r, yyjson_val *value, const char *name)
{
    static const char *const known[] = {"type", "json_schema", NULL};
    yyjson_val *type = yyjson_obj_get(value, "type"),
               *schema = yyjson_obj_get(value, "json_schema");
    if (!request_check_members(r, value, name, known)) return false;
    if (yyjson_equals_str(type, "json_schema")) return read_json_schema(r, schema);
    if (schema)
        return refusal_make(r->refusal, REFUSAL_VALUE, "response_format.json_schema",
                            "json_schema belongs to the type json_schema");
    return take_type(r, type, name);
}

bool request_form_text_format(RequestReader *r, yyjson_val *value, const char *name)
{
    static const char *const plain[] = {"type", NULL}, *const known[] = {"type",        "name",
                                                                         "description", "schema",
                                                                         "strict",      NULL};
    yyjson_val *type = yyjson_obj_get(value, "type");
    bool schema = yyjson_equals_str(type, "json_schema");
    if (!request_check_members(r, value, name, schema ? known : plain)) return false;
    return schema ? take_schema(r, value, name, name) : take_type(r, type, name);
}

bool request_form_format(RequestReader *r, yyjson_val *value, const char *name)
{
    if (yyjson_equals_str(value, "")) return true;
    if (yyjson_equals_str(value, "json")) return take_form(r, name, REQUEST_JSON_OBJECT);
    if (!yyjson_is_obj(value))
        return request_refuse(r, yyjson_is_str(value) ? REFUSAL_VALUE : REFUSAL_TYPE, name,
                              "must be \"json\" or a JSON schema");
    r->request->schema = value;
    return take_form(r, name, REQUEST_JSON_SCHEMA);
}

bool request_form_grammar(RequestReader *r, yyjson_val *value, const char *name)
{
    if (!yyjson_is_str(value))
        return request_refuse(r, REFUSAL_TYPE, name, "must be a string of GBNF");
    r->request->grammar = yyjson_get_str(value);
    r->request->grammar_bytes = yyjson_get_len(value);
    return take_form(r, name, REQUEST_GRAMMAR);
}

const char *request_form_param(const Request *q)
{
    if (q->form == REQUEST_TOOL_CALLS) return "tools";
    return q->form == REQUEST_GRAMMAR ? "grammar" : request_form_name(q->kind);
}

size_t request_form_scratch_bytes(void)
{
    size_t schema = schema_scratch_bytes(), text = grammar_gbnf_scratch_bytes();
    return schema > text ? schema : text;
}

bool request_form_build(const Request *q, Arena *scratch, Arena *arena, Grammar *out,
                        Refusal *refusal)
{
    Why why;
    if (q->form == REQUEST_TOOL_CALLS)
        return request_tools_grammar(q, scratch, arena, out, refusal);
    bool text = q->form == REQUEST_GRAMMAR;
    const char *param = request_form_param(q);
    Error error = text ? grammar_gbnf((const uint8_t *)q->grammar, q->grammar_bytes, scratch, arena,
                                      out, &why)
                       : schema_grammar(q->schema, scratch, arena, out, &why);
    if (error == OK) return true;
    if (error == ERR_MEMORY) return refusal_make(refusal, REFUSAL_MEMORY, param, "%s", why.text);
    return refusal_make(refusal, error == ERR_UNSUPPORTED ? REFUSAL_UNSUPPORTED : REFUSAL_VALUE,
                        param, "%s: %s", param, why.text);
}
