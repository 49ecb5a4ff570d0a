/* SPDX-License-Identifier: Apache-2.0 */
/* Tools of a request, and what messages say of them: declared (tools), chosen (tool_choice,
 * parallel_tool_calls), called (an assistant's tool_calls), answered (a tool's message). The template sees
 * tools as the client wrote them, and a call's arguments as the object that their JSON text is. */
#include <string.h>

#include "api/request_state.h"
#include "api/schema_calls.h"
#include "text/json_values.h"
#include "text/tool_calls.h"

enum {
    VALUES_OF_A_CALL = 8, /* of a template: the call, its function, their members */
    TEXT_OF_A_VALUE = 24, /* JSON's punctuation, and any number */
    PARSE_BYTES = 1024,   /* of a text of arguments, beside what yyjson says */
    CALL_BYTES_MIN = 60   /* of a message's JSON */
};

_Static_assert((int)JSON_CHECK_DEPTH_MAX <= (int)REQUEST_TOOL_DEPTH_MAX,
               "calls that went out come back");

size_t request_tools_bytes(size_t body_bytes)
{
    size_t values = body_bytes / 2 + 1, calls = body_bytes / CALL_BYTES_MIN;
    if (values > REQUEST_TOOL_VALUES_MAX) values = REQUEST_TOOL_VALUES_MAX;
    if (calls > REQUEST_TOOL_VALUES_MAX / VALUES_OF_A_CALL)
        calls = REQUEST_TOOL_VALUES_MAX / VALUES_OF_A_CALL;
    return (values + calls * VALUES_OF_A_CALL) * JSON_VALUES_BYTES +
           yyjson_read_max_memory_usage(body_bytes, YYJSON_READ_NOFLAG) +
           calls * (PARSE_BYTES + 512) + REQUEST_TOOLS_MAX * sizeof(RequestTool) + 16 * ARENA_ALIGN;
}

/* ---- JSON of clients, bounded ---- */

/* Counts values, the text they make, and looks at what an object may have. */
static bool measure(RequestReader *r, yyjson_val *v, const char *param, unsigned depth)
{
    size_t at, count;
    yyjson_val *key, *item;
    if (depth == REQUEST_TOOL_DEPTH_MAX)
        return request_refuse(r, REFUSAL_VALUE, param, "nests too deep: at most 32 levels");
    if (++r->tool_values > REQUEST_TOOL_VALUES_MAX)
        return request_refuse(r, REFUSAL_VALUE, param,
                              "brings more than 65536 values of tools together");
    r->request->tool_bytes += TEXT_OF_A_VALUE + 2 * yyjson_get_len(v) * yyjson_is_str(v);
    if (yyjson_is_obj(v) && yyjson_obj_size(v) > REQUEST_TOOL_MEMBERS_MAX)
        return request_refuse(r, REFUSAL_VALUE, param, "has an object of more than 1024 members");
    yyjson_arr_foreach(v, at, count, item)
    {
        if (!measure(r, item, param, depth + 1)) return false;
    }
    yyjson_obj_foreach(v, at, count, key, item)
    {
        r->request->tool_bytes += 2 * yyjson_get_len(key);
        if (!measure(r, item, param, depth + 1)) return false;
    }
    return true;
}

static bool no_memory(RequestReader *r, const char *param)
{
    return refusal_make(r->refusal, REFUSAL_MEMORY, param, "no memory for %s", param);
}

/* A member; null is none. */
static yyjson_val *get(yyjson_val *object, const char *name)
{
    yyjson_val *v = yyjson_obj_get(object, name);
    return yyjson_is_null(v) ? NULL : v;
}

static bool read_name(RequestReader *r, yyjson_val *function, const char *param, const char **name,
                      size_t *bytes)
{
    char own[REFUSAL_PARAM_MAX];
    yyjson_val *v = get(function, "name");
    request_name_join(own, param, ".name");
    if (!v) return request_refuse(r, REFUSAL_MISSING, own, "is missing");
    if (!yyjson_is_str(v)) return request_refuse(r, REFUSAL_TYPE, own, "must be a string");
    *name = yyjson_get_str(v);
    *bytes = yyjson_get_len(v);
    return tool_calls_is_name((const uint8_t *)*name, *bytes) ||
           request_refuse(r, REFUSAL_VALUE, own,
                          "must be 1 to 64 letters, digits, underscores or dashes");
}

static bool check_type(RequestReader *r, yyjson_val *object, const char *param)
{
    char own[REFUSAL_PARAM_MAX];
    yyjson_val *v = get(object, "type");
    request_name_join(own, param, ".type");
    if (!v) return request_refuse(r, REFUSAL_MISSING, own, "is missing");
    return yyjson_equals_str(v, "function") ||
           request_refuse(r, REFUSAL_UNSUPPORTED, own, "must be \"function\"");
}

/* ---- declared ---- */

static bool read_function(RequestReader *r, yyjson_val *function, const char *param,
                          RequestTool *out)
{
    static const char *const known[] = {"name", "description", "parameters", "strict", NULL};
    char own[REFUSAL_PARAM_MAX];
    if (!request_check_members(r, function, param, known)) return false;
    if (!read_name(r, function, param, &out->name, &out->name_bytes)) return false;
    yyjson_val *strict = get(function, "strict"), *words = get(function, "description");
    out->parameters = get(function, "parameters");
    out->strict = yyjson_is_true(strict);
    request_name_join(own, param, ".description");
    if (words && !yyjson_is_str(words))
        return request_refuse(r, REFUSAL_TYPE, own, "must be a string");
    request_name_join(own, param, ".strict");
    if (strict && !yyjson_is_bool(strict))
        return request_refuse(r, REFUSAL_TYPE, own, "must be true or false");
    request_name_join(own, param, ".parameters");
    if (out->parameters && !yyjson_is_obj(out->parameters))
        return request_refuse(r, REFUSAL_TYPE, own, "must be an object, a JSON schema");
    return true;
}

static bool read_tool(RequestReader *r, yyjson_val *tool, size_t index)
{
    static const char *const known[] = {"type", "function", NULL};
    char param[REFUSAL_PARAM_MAX], function[REFUSAL_PARAM_MAX];
    Request *q = r->request;
    RequestTool *out = &q->tools[index];
    request_name_at(param, "tools", index, "");
    request_name_at(function, "tools", index, ".function");
    if (!request_check_members(r, tool, param, known) || !check_type(r, tool, param) ||
        !read_function(r, yyjson_obj_get(tool, "function"), function, out) ||
        !measure(r, tool, param, 0))
        return false;
    for (size_t i = 0; i < index; i++)
        if (q->tools[i].name_bytes == out->name_bytes &&
            memcmp(q->tools[i].name, out->name, out->name_bytes) == 0)
            return request_refuse(r, REFUSAL_VALUE, function, "has the name of an earlier tool");
    return true;
}

bool request_tools_list(RequestReader *r, yyjson_val *value, const char *name)
{
    Request *q = r->request;
    size_t at, count = yyjson_arr_size(value);
    yyjson_val *tool;
    if (!yyjson_is_arr(value)) return request_refuse(r, REFUSAL_TYPE, name, "must be an array");
    if (!count) return true;
    if (count > REQUEST_TOOLS_MAX)
        return request_refuse(r, REFUSAL_VALUE, name, "has more than 128 tools");
    q->tools = ARENA_NEW(r->arena, RequestTool, count);
    JinjaValue *values = ARENA_NEW(r->arena, JinjaValue, 1);
    if (!q->tools || !values) return no_memory(r, name);
    yyjson_arr_foreach(value, at, count, tool)
    {
        if (!read_tool(r, tool, at)) return false;
    }
    if (!json_values_make(r->arena, value, values)) return no_memory(r, name);
    q->tool_count = (uint32_t)count;
    q->tool_values = values;
    return true;
}

/* ---- chosen ---- */

bool request_tools_choice(RequestReader *r, yyjson_val *value, const char *name)
{
    static const char *const known[] = {"type", "function", NULL}, *const named[] = {"name", NULL};
    static const char *const words[] = {[REQUEST_TOOLS_AUTO] = "auto",
                                        [REQUEST_TOOLS_NONE] = "none",
                                        [REQUEST_TOOLS_REQUIRED] = "required"};
    Request *q = r->request;
    for (unsigned i = 0; i < sizeof words / sizeof *words; i++) {
        if (!yyjson_equals_str(value, words[i])) continue;
        q->tool_choice = (RequestToolChoice)i;
        return true;
    }
    if (yyjson_is_str(value))
        return request_refuse(r, REFUSAL_VALUE, name, "must be none, auto, required or a function");
    yyjson_val *function = yyjson_obj_get(value, "function");
    if (!request_check_members(r, value, name, known) || !check_type(r, value, name) ||
        !request_check_members(r, function, "tool_choice.function", named))
        return false;
    q->tool_choice = REQUEST_TOOLS_NAMED;
    return read_name(r, function, "tool_choice.function", &r->tool_name, &r->tool_name_bytes);
}

bool request_tools_parallel(RequestReader *r, yyjson_val *value, const char *name)
{
    bool parallel = true;
    if (!request_plain_bool(r, value, name, &parallel)) return false;
    r->request->one_call = !parallel;
    return true;
}

static bool find_named(RequestReader *r)
{
    Request *q = r->request;
    for (uint32_t i = 0; i < q->tool_count; i++) {
        q->tool_chosen = i;
        if (q->tools[i].name_bytes == r->tool_name_bytes &&
            memcmp(q->tools[i].name, r->tool_name, r->tool_name_bytes) == 0)
            return true;
    }
    return refusal_make(r->refusal, REFUSAL_VALUE, "tool_choice.function.name",
                        "tool_choice.function.name is none of the tools");
}

/* Which answers are read for calls, and which must have their form. */
bool request_tools_check(RequestReader *r)
{
    Request *q = r->request;
    bool must = q->tool_choice == REQUEST_TOOLS_REQUIRED || q->tool_choice == REQUEST_TOOLS_NAMED,
         strict = false;
    if (must && !q->tool_count)
        return refusal_make(r->refusal, REFUSAL_VALUE, "tool_choice", "tool_choice needs tools");
    if (q->tool_choice == REQUEST_TOOLS_NAMED && !find_named(r)) return false;
    q->reads_calls = q->tool_count && q->tool_choice != REQUEST_TOOLS_NONE;
    if (!q->reads_calls) {
        q->tool_values = NULL;
        return true;
    }
    if (q->form != REQUEST_FREE)
        return request_refuse(r, REFUSAL_UNSUPPORTED, request_form_param(q),
                              "excludes tools, unless tool_choice is none");
    for (uint32_t i = 0; i < q->tool_count; i++) strict |= q->tools[i].strict;
    if (must || strict) q->form = REQUEST_TOOL_CALLS;
    return true;
}

/* ---- called ---- */

static bool is_id(yyjson_val *v)
{
    const char *text = yyjson_get_str(v);
    size_t bytes = yyjson_get_len(v);
    for (size_t i = 0; yyjson_is_str(v) && i < bytes; i++)
        if (text[i] <= ' ' || text[i] > '~') return false;
    return yyjson_is_str(v) && bytes > 0 && bytes <= REQUEST_TOOL_ID_MAX;
}

static bool read_id(RequestReader *r, yyjson_val *v, const char *param, const char **out)
{
    if (!v) return request_refuse(r, REFUSAL_MISSING, param, "is missing");
    if (!is_id(v))
        return request_refuse(r, yyjson_is_str(v) ? REFUSAL_VALUE : REFUSAL_TYPE, param,
                              "must be 1 to 128 plain characters");
    *out = yyjson_get_str(v);
    return true;
}

static bool is_ollama(const RequestReader *r) { return r->request->kind == REQUEST_OLLAMA_CHAT; }

/* An object, as Ollama has it. */
static bool read_object(RequestReader *r, yyjson_val *v, const char *param, JinjaValue *out)
{
    if (!yyjson_is_obj(v))
        return request_refuse(r, v ? REFUSAL_TYPE : REFUSAL_MISSING, param, "must be an object");
    return measure(r, v, param, 0) && (json_values_make(r->arena, v, out) || no_memory(r, param));
}

/* JSON text to a value of the template. */
static bool read_text_arguments(RequestReader *r, yyjson_val *v, const char *param, JinjaValue *out)
{
    const char *text = yyjson_get_str(v);
    size_t bytes = yyjson_get_len(v);
    if (!v) return request_refuse(r, REFUSAL_MISSING, param, "is missing");
    if (!yyjson_is_str(v))
        return request_refuse(r, REFUSAL_TYPE, param, "must be a string: an object as JSON text");
    if (!bytes) text = "{}", bytes = 2;
    if (json_scan((const uint8_t *)text, bytes).depth > REQUEST_TOOL_DEPTH_MAX)
        return request_refuse(r, REFUSAL_VALUE, param, "nests too deep: at most 32 levels");
    size_t room = yyjson_read_max_memory_usage(bytes, YYJSON_READ_NOFLAG) + PARSE_BYTES;
    void *memory = arena_take_raw(r->arena, room);
    yyjson_alc allocator;
    if (!memory || !yyjson_alc_pool_init(&allocator, memory, room)) return no_memory(r, param);
    yyjson_doc *doc =
        yyjson_read_opts((char *)(uintptr_t)text, bytes, YYJSON_READ_NOFLAG, &allocator, NULL);
    yyjson_val *root = yyjson_doc_get_root(doc);
    if (!yyjson_is_obj(root))
        return request_refuse(r, REFUSAL_VALUE, param, "must be an object as JSON text");
    if (!measure(r, root, param, 0)) return false;
    return json_values_make(r->arena, root, out) || no_memory(r, param);
}

static bool read_arguments(RequestReader *r, yyjson_val *v, const char *param, JinjaValue *out)
{
    return is_ollama(r) ? read_object(r, v, param, out) : read_text_arguments(r, v, param, out);
}

static bool make_call(RequestReader *r, const char *id, const char *name, size_t name_bytes,
                      JinjaValue arguments, JinjaValue *out)
{
    JinjaDict *call = jinja_value_dict(r->arena, 3), *function = jinja_value_dict(r->arena, 2);
    JinjaText id_text = {(const uint8_t *)id, NULL, strlen(id), JINJA_FOREIGN},
              name_text = {(const uint8_t *)name, NULL, name_bytes, JINJA_FOREIGN};
    *out = (JinjaValue){.kind = JINJA_DICT, .dict = call};
    return call && function &&
           jinja_value_put_words(r->arena, call, "id", jinja_value_text(id_text)) &&
           jinja_value_put_words(r->arena, call, "type",
                                 jinja_value_text(jinja_value_words("function"))) &&
           jinja_value_put_words(r->arena, call, "function",
                                 (JinjaValue){.kind = JINJA_DICT, .dict = function}) &&
           jinja_value_put_words(r->arena, function, "name", jinja_value_text(name_text)) &&
           jinja_value_put_words(r->arena, function, "arguments", arguments);
}

static bool read_call(RequestReader *r, yyjson_val *call, const char *param, JinjaValue *out)
{
    static const char *const known[] = {"id", "type", "function", NULL};
    static const char *const of_function[] = {"name", "arguments", NULL}, *const of_ollama[] = {
                                                                              "name", "arguments",
                                                                              "index", NULL};
    char own[REFUSAL_PARAM_MAX];
    const char *id = "", *name = "";
    size_t name_bytes = 0;
    JinjaValue arguments;
    yyjson_val *function = yyjson_obj_get(call, "function");
    if (!request_check_members(r, call, param, known)) return false;
    request_name_join(own, param, ".id");
    bool named = !is_ollama(r) || get(call, "id"), typed = !is_ollama(r) || get(call, "type");
    if (named && !read_id(r, get(call, "id"), own, &id)) return false;
    if (typed && !check_type(r, call, param)) return false;
    request_name_join(own, param, ".function");
    if (!request_check_members(r, function, own, is_ollama(r) ? of_ollama : of_function) ||
        !read_name(r, function, own, &name, &name_bytes))
        return false;
    request_name_join(own, param, ".function.arguments");
    if (!read_arguments(r, get(function, "arguments"), own, &arguments)) return false;
    r->tool_values += VALUES_OF_A_CALL;
    r->request->tool_bytes += VALUES_OF_A_CALL * TEXT_OF_A_VALUE + strlen(id) + name_bytes;
    return make_call(r, id, name, name_bytes, arguments, out) || no_memory(r, param);
}

bool request_tools_calls(RequestReader *r, yyjson_val *value, const char *param, Turn *turn)
{
    size_t at, count = yyjson_arr_size(value);
    yyjson_val *call;
    if (!yyjson_is_arr(value)) return request_refuse(r, REFUSAL_TYPE, param, "must be an array");
    if (!count) return true;
    if (count > REQUEST_TOOLS_MAX)
        return request_refuse(r, REFUSAL_VALUE, param, "has more than 128 calls");
    JinjaList *list = jinja_value_list(r->arena, count);
    JinjaValue *calls = ARENA_NEW(r->arena, JinjaValue, 1);
    if (!list || !calls) return no_memory(r, param);
    yyjson_arr_foreach(value, at, count, call)
    {
        char own[REFUSAL_PARAM_MAX];
        request_name_at(own, param, at, "");
        if (!read_call(r, call, own, &list->items[at])) return false;
    }
    *calls = (JinjaValue){.kind = JINJA_LIST, .list = list};
    turn->calls = calls;
    return true;
}

/* ---- answered ---- */

/* The assistant's turn that the tool's turn before `index` belongs to, NULL when there is none. */
static const Turn *caller_of(const Request *q, size_t index)
{
    while (index && strcmp(q->turns[index - 1].role, "tool") == 0) index--;
    return index && q->turns[index - 1].calls ? &q->turns[index - 1] : NULL;
}

static bool has_id(const Turn *caller, const char *id)
{
    const JinjaList *list = caller->calls->list;
    JinjaValue key = jinja_value_text(jinja_value_words("id"));
    for (size_t i = 0; i < list->count; i++) {
        const JinjaValue *own = jinja_value_get(list->items[i].dict, key);
        if (own && own->kind == JINJA_TEXT && jinja_value_is(own->text, id)) return true;
    }
    return false;
}

/* Ollama's answers follow their calls, and at most say their tools' names. */
static bool read_tool_name(RequestReader *r, yyjson_val *message, size_t index, Turn *turn)
{
    char param[REFUSAL_PARAM_MAX];
    yyjson_val *v = get(message, "tool_name");
    request_name_at(param, "messages", index, ".tool_name");
    if (v && !yyjson_is_str(v)) return request_refuse(r, REFUSAL_TYPE, param, "must be a string");
    if (v && !tool_calls_is_name((const uint8_t *)yyjson_get_str(v), yyjson_get_len(v)))
        return request_refuse(r, REFUSAL_VALUE, param,
                              "must be 1 to 64 letters, digits, underscores or dashes");
    turn->name = yyjson_get_str(v);
    return true;
}

bool request_tools_answer(RequestReader *r, yyjson_val *message, size_t index, Turn *turn)
{
    char param[REFUSAL_PARAM_MAX];
    yyjson_val *name = get(message, "name");
    size_t bytes;
    const Turn *caller = caller_of(r->request, index);
    if (is_ollama(r)) return read_tool_name(r, message, index, turn);
    request_name_at(param, "messages", index, ".tool_call_id");
    if (!read_id(r, get(message, "tool_call_id"), param, &turn->call_id)) return false;
    if (!caller)
        return request_refuse(r, REFUSAL_VALUE, param,
                              "answers nothing: no assistant's message with tool_calls before it");
    if (!has_id(caller, turn->call_id))
        return request_refuse(r, REFUSAL_VALUE, param, "is the id of no call that it follows");
    request_name_at(param, "messages", index, "");
    return !name || read_name(r, message, param, &turn->name, &bytes);
}

/* ---- the grammar ---- */

bool request_tools_grammar(const Request *q, Arena *scratch, Arena *arena, Grammar *out,
                           Refusal *refusal)
{
    Why why;
    char param[REFUSAL_PARAM_MAX];
    SchemaTool tools[REQUEST_TOOLS_MAX];
    bool must = q->tool_choice != REQUEST_TOOLS_AUTO, named = q->tool_choice == REQUEST_TOOLS_NAMED;
    uint32_t fault, first = named ? q->tool_chosen : 0, count = named ? 1 : q->tool_count;
    for (uint32_t i = 0; i < count; i++) {
        const RequestTool *t = &q->tools[first + i];
        tools[i] = (SchemaTool){t->name, t->name_bytes, t->parameters, !must && !t->strict};
    }
    SchemaCalls calls = {tools, count, must, !q->one_call};
    Error error = schema_calls_grammar(&calls, scratch, arena, out, &fault, &why);
    if (error == OK) return true;
    if (fault < count) request_name_at(param, "tools", first + fault, ".function.parameters");
    else request_name_join(param, "tools", "");
    if (error == ERR_MEMORY) return refusal_make(refusal, REFUSAL_MEMORY, param, "%s", why.text);
    return refusal_make(refusal, error == ERR_UNSUPPORTED ? REFUSAL_UNSUPPORTED : REFUSAL_VALUE,
                        param, "%s: %s", param, why.text);
}
