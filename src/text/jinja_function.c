/* SPDX-License-Identifier: Apache-2.0 */
/* Global functions: range, dict, namespace are of Jinja; raise_exception and strftime_now are those that
 * HF gives to templates. The clock is the caller's, in UTC, so that a request gives one prompt on every machine. */
#include "text/jinja_number.h"
#include "text/jinja_run.h"

typedef Error (*Function)(JinjaRun *r, const JinjaArguments *a, JinjaValue *out);

static Error call_range(JinjaRun *r, const JinjaArguments *a, JinjaValue *out)
{
    int64_t bounds[3] = {0, 0, 1};
    if (a->count != a->unnamed || a->count < 1 || a->count > 3)
        return jinja_run_fail(r, "range takes one to three numbers");
    for (size_t i = 0; i < a->count; i++)
        TRY(jinja_run_int(r, &a->values[i], &bounds[a->count == 1 ? 1 : i]));
    if (bounds[2] == 0) return jinja_run_fail(r, "range with step 0");
    JinjaList *list = ARENA_NEW(r->arena, JinjaList, 1);
    size_t room = 0;
    if (!list) return jinja_run_no_memory(r);
    for (int64_t i = bounds[0]; bounds[2] > 0 ? i < bounds[1] : i > bounds[1];) {
        if (list->count == JINJA_RANGE_MAX)
            return JINJA_FAIL(r, ERR_TOO_LARGE, "a range of more than %d", JINJA_RANGE_MAX);
        TRY(jinja_run_push(r, list, &room, jinja_value_int(i)));
        if (__builtin_add_overflow(i, bounds[2], &i)) break;
    }
    *out = (JinjaValue){.kind = JINJA_LIST, .list = list};
    return OK;
}

static Error call_dict(JinjaRun *r, const JinjaArguments *a, JinjaValue *out)
{
    const JinjaDict *first = NULL;
    if (a->unnamed) {
        if (a->unnamed > 1 || a->values[0].kind != JINJA_DICT)
            return jinja_run_fail(r, "a dictionary and names with values are taken here");
        first = a->values[0].dict;
    }
    size_t known = first ? first->count : 0;
    JinjaDict *dict = jinja_value_dict(r->arena, known + a->count);
    TRY(jinja_run_spend(r, known));
    if (!dict) return jinja_run_no_memory(r);
    for (size_t i = 0; i < known; i++) dict->pairs[i] = first->pairs[i];
    dict->count = known;
    for (size_t i = a->unnamed; i < a->count; i++)
        if (!jinja_value_put(r->arena, dict, jinja_value_text(a->names[i]), a->values[i]))
            return jinja_run_no_memory(r);
    *out = (JinjaValue){.kind = JINJA_DICT, .dict = dict};
    return OK;
}

static Error call_namespace(JinjaRun *r, const JinjaArguments *a, JinjaValue *out)
{
    TRY(call_dict(r, a, out));
    out->kind = JINJA_NAMESPACE;
    return OK;
}

/* The template's own refusal: the message alone, as people wrote it. */
static Error call_raise(JinjaRun *r, const JinjaArguments *a, JinjaValue *out)
{
    JinjaText text = {0};
    const JinjaValue *message = jinja_run_argument(a, 0, "message");
    (void)out;
    if (message) TRY(jinja_write_str(r, message, &text));
    if (!text.count) text = jinja_value_words("the template refuses this conversation");
    return error_why(r->why, ERR_USAGE, "%.*s", (int)(text.count < WHY_MAX ? text.count : WHY_MAX),
                     (const char *)text.bytes);
}

/* ---- strftime_now ---- */

typedef struct Moment {
    int64_t year;
    unsigned month, day, hour, minute, second, weekday,
        yearday; /* month, day from 1; Sunday is 0 */
} Moment;

/* Days since 1970 to a date. Source  the calendar repeats every 146,097 days; years are taken to begin in March. */
static Moment moment_of(int64_t seconds)
{
    int64_t days = seconds / 86400, rest = seconds % 86400;
    if (rest < 0) {
        rest += 86400;
        days--;
    }
    int64_t shifted = days + 719468, era = (shifted >= 0 ? shifted : shifted - 146096) / 146097;
    unsigned in_era = (unsigned)(shifted - era * 146097);
    unsigned year = (in_era - in_era / 1460 + in_era / 36524 - in_era / 146096) / 365;
    unsigned in_year = in_era - (365 * year + year / 4 - year / 100),
             month = (5 * in_year + 2) / 153;
    Moment m = {.year = era * 400 + year + (month >= 10),
                .month = month < 10 ? month + 3 : month - 9,
                .day = in_year - (153 * month + 2) / 5 + 1,
                .hour = (unsigned)(rest / 3600),
                .minute = (unsigned)(rest / 60 % 60),
                .second = (unsigned)(rest % 60),
                .weekday = (unsigned)(((days % 7) + 11) % 7)};
    bool leap = (m.year % 4 == 0 && m.year % 100 != 0) || m.year % 400 == 0;
    static const unsigned before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    m.yearday = before[m.month - 1] + m.day + (leap && m.month > 2);
    return m;
}

static void put_padded(JinjaBuilder *b, int64_t number, size_t digits)
{
    char text[JINJA_NUMBER_BYTES];
    size_t count = jinja_number_write_int(number, text);
    for (; digits > count; digits--) jinja_text_add_words(b, "0");
    jinja_text_add_bytes(b, text, count, JINJA_OWN);
}

static void put_word(JinjaBuilder *b, const char *word, bool whole)
{
    JinjaText text = jinja_value_words(word);
    jinja_text_add(b, whole ? text : jinja_text_cut(text, 0, 3));
}

/* False for a letter that is not known here. */
static bool put_part(JinjaBuilder *b, const Moment *m, uint8_t letter)
{
    static const char *const months[] = {"January",   "February", "March",    "April",
                                         "May",       "June",     "July",     "August",
                                         "September", "October",  "November", "December"};
    static const char *const days[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                       "Thursday", "Friday", "Saturday"};
    switch (letter) {
    case 'Y': put_padded(b, m->year, 4); return true;
    case 'y': put_padded(b, m->year % 100, 2); return true;
    case 'm': put_padded(b, m->month, 2); return true;
    case 'd': put_padded(b, m->day, 2); return true;
    case 'H': put_padded(b, m->hour, 2); return true;
    case 'I': put_padded(b, (m->hour + 11) % 12 + 1, 2); return true;
    case 'M': put_padded(b, m->minute, 2); return true;
    case 'S': put_padded(b, m->second, 2); return true;
    case 'j': put_padded(b, m->yearday, 3); return true;
    case 'p': put_word(b, m->hour < 12 ? "AM" : "PM", true); return true;
    case 'B':
    case 'b': put_word(b, months[m->month - 1], letter == 'B'); return true;
    case 'A':
    case 'a': put_word(b, days[m->weekday], letter == 'A'); return true;
    case '%': put_word(b, "%", true); return true;
    default: return false;
    }
}

static Error call_strftime(JinjaRun *r, const JinjaArguments *a, JinjaValue *out)
{
    const JinjaValue *format = jinja_run_argument(a, 0, "format");
    if (!format || format->kind != JINJA_TEXT) return jinja_run_fail(r, "a format is needed");
    JinjaBuilder b = jinja_run_builder(r);
    Moment now = moment_of(r->now_s);
    JinjaText t = format->text, text;
    for (size_t i = 0; i < t.count; i++) {
        bool part = t.bytes[i] == '%' && i + 1 < t.count;
        if (part && !put_part(&b, &now, t.bytes[i + 1]))
            return JINJA_FAIL(r, ERR_UNSUPPORTED, "%%%c is not supported in a date",
                              t.bytes[i + 1]);
        if (part) i++;
        else jinja_text_add(&b, jinja_text_cut(t, i, i + 1));
    }
    TRY(jinja_run_finish(r, &b, &text));
    *out = jinja_value_text(text);
    return OK;
}

typedef struct Named {
    const char *name;
    Function call;
} Named;

static const Named functions[] = {
    {"range", call_range},           {"dict", call_dict},
    {"namespace", call_namespace},   {"raise_exception", call_raise},
    {"strftime_now", call_strftime},
};

bool jinja_function_exists(JinjaText name)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (jinja_value_is(name, functions[i].name)) return true;
    return false;
}

Error jinja_function_call(JinjaRun *r, JinjaText name, const JinjaArguments *a, JinjaValue *out)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (jinja_value_is(name, functions[i].name)) return functions[i].call(r, a, out);
    return JINJA_FAIL(r, ERR_UNSUPPORTED, "the function \"%.*s\" is not supported",
                      JINJA_SHOW(name));
}
