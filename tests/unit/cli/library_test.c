/* SPDX-License-Identifier: Apache-2.0 */
/* The C library as a program meets it: text and ids, answers, stopping and cancelling, several models and threads,
 * structs of other sizes, files that are none; and that it is silent and leaves signals alone. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/verbs.h"
#include "cobord/cobord.h"

enum { TEXT_MAX = 4096, TOKENS = 40 };

static char folder[64], path[96];

/* All that was shown of an answer. */
typedef struct Answer {
    char text[TEXT_MAX];
    size_t bytes;
    uint32_t tokens, stop_after, cancel_after;
    cobord_model *cancel;
} Answer;

static int keep(void *user, const char *text, size_t bytes, uint32_t id)
{
    Answer *a = user;
    assert_int_equal(strlen(text), bytes);
    assert_true(a->bytes + bytes < TEXT_MAX);
    memcpy(a->text + a->bytes, text, bytes + 1);
    a->bytes += bytes;
    a->tokens += id != COBORD_NO_ID;
    if (a->cancel_after && a->tokens == a->cancel_after) cobord_cancel(a->cancel);
    return a->stop_after && a->tokens == a->stop_after;
}

static int make_model(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/library_test.XXXXXX");
    if (!mkdtemp(folder) || setenv("COBORD_CACHE", folder, 1)) return 1;
    snprintf(path, sizeof path, "%s/test.knot", folder);
    char verb[] = "synth", shape[] = "--shape", test[] = "test", to[] = "-o";
    char *arguments[] = {verb, shape, test, to, path, NULL};
    return cli_synth(5, arguments);
}

static int drop_model(void **state)
{
    (void)state;
    char checked[128];
    snprintf(checked, sizeof checked, "%s.checked", path);
    (void)unlink(checked);
    (void)unlink(path);
    snprintf(checked, sizeof checked, "%s/models", folder);
    (void)rmdir(checked);
    return rmdir(folder);
}

static cobord_model *open_model(uint32_t flags)
{
    cobord_options options;
    cobord_model *model;
    cobord_options_init(&options, sizeof options);
    options.flags = flags;
    options.threads = 2;
    if (cobord_open(path, &options, &model)) fail_msg("%s", cobord_last_error());
    return model;
}

static cobord_settings settings_of(uint64_t seed)
{
    cobord_settings s;
    cobord_settings_init(&s, sizeof s);
    s.seed = seed;
    s.tokens_max = TOKENS;
    return s;
}

static int ask(cobord_model *model, const char *question, const cobord_settings *settings,
               Answer *a, cobord_result *result)
{
    cobord_message messages[] = {{"system", "Be brief."}, {"user", question}};
    result->size = sizeof *result;
    return cobord_chat(model, messages, 2, settings, keep, a, result);
}

/* --- Text --- */

static void turns_text_into_ids_and_back(void **state)
{
    (void)state;
    static const char text[] = "Gr\xc3\xbc\xc3\x9f Gott, \xf0\x9f\x99\x82";
    cobord_model *model = open_model(COBORD_OPEN_TOKENIZER_ONLY);
    uint32_t ids[64];
    char back[64];
    size_t count = 0, bytes = 0;
    assert_int_equal(cobord_tokenize(model, text, strlen(text), 0, NULL, 0, &count),
                     COBORD_ERR_CAPACITY);
    assert_in_range(count, 1, 64);
    assert_int_equal(cobord_tokenize(model, text, strlen(text), 0, ids, 64, &count), COBORD_OK);
    assert_int_equal(cobord_detokenize(model, ids, count, 0, back, 5, &bytes), COBORD_ERR_CAPACITY);
    assert_int_equal(bytes, strlen(text));
    assert_int_equal(cobord_detokenize(model, ids, count, 0, back, bytes, &bytes),
                     COBORD_ERR_CAPACITY);
    assert_int_equal(cobord_detokenize(model, ids, count, 0, back, bytes + 1, &bytes), COBORD_OK);
    assert_string_equal(back, text);
    assert_int_equal(cobord_detokenize(model, ids, count - 1, 0, back, 64, &bytes), COBORD_OK);
    assert_string_equal(back,
                        "Gr\xc3\xbc\xc3\x9f Gott, \xef\xbf\xbd"); /* a character that is cut */
    ids[0] = UINT32_MAX - 1;
    assert_int_equal(cobord_detokenize(model, ids, 1, 0, back, 64, &bytes), COBORD_ERR_RANGE);
    assert_int_equal(cobord_tokenize(model, NULL, 0, 0, NULL, 0, &count), COBORD_OK);
    assert_int_equal(count, 0);
    assert_int_equal(cobord_generate(model, ids, 1, NULL, NULL, NULL, NULL), COBORD_ERR_USAGE);
    cobord_close(model);
}

static void describes_the_model(void **state)
{
    (void)state;
    cobord_model *model = open_model(0);
    cobord_info info;
    assert_int_equal(cobord_get_info(model, &info, sizeof info), COBORD_OK);
    assert_string_equal(info.path, path);
    assert_string_equal(info.architecture, "qwen2");
    assert_true(info.layers && info.hidden && info.vocabulary > 256 && info.context &&
                info.knot_id);
    assert_true(info.memory_bytes > 0 && info.file_bytes > 0);
    /* An older program's struct. */
    uint64_t guard[8];
    memset(guard, 0xee, sizeof guard);
    assert_int_equal(cobord_get_info(model, (cobord_info *)(void *)guard, 16), COBORD_OK);
    assert_int_equal(guard[0], 16);
    assert_memory_equal(&guard[1], &info.path, sizeof info.path);
    assert_int_equal(guard[2], UINT64_C(0xeeeeeeeeeeeeeeee));
    cobord_close(model);
}

/* --- Answers --- */

static void answers_alike_for_a_seed(void **state)
{
    (void)state;
    cobord_model *model = open_model(0), *other = open_model(0);
    cobord_settings s = settings_of(7);
    Answer a = {0}, b = {0}, c = {0};
    cobord_result first, second, third;
    assert_int_equal(ask(model, "Hello?", &s, &a, &first), COBORD_OK);
    assert_true(first.end == COBORD_END_TOKENS || first.end == COBORD_END_TOKEN);
    assert_int_equal(first.kept_tokens, 0);
    assert_in_range(first.generated_tokens, 1, TOKENS);
    assert_int_equal(ask(model, "Hello?", &s, &b, &second), COBORD_OK);
    assert_string_equal(a.text, b.text);
    assert_in_range(second.kept_tokens, 1, second.prompt_tokens);
    assert_int_equal(ask(other, "Hello?", &s, &c, &third), COBORD_OK);
    assert_string_equal(a.text, c.text);
    s.seed = 8;
    Answer d = {0};
    assert_int_equal(ask(other, "Hello?", &s, &d, &third), COBORD_OK);
    assert_string_not_equal(a.text, d.text);
    cobord_close(other);
    cobord_close(model);
}

static void stops_where_it_should(void **state)
{
    (void)state;
    cobord_model *model = open_model(0);
    cobord_settings s = settings_of(3);
    Answer whole = {0}, callback = {.stop_after = 5}, stop = {0}, one = {0};
    cobord_result result;
    assert_int_equal(ask(model, "Hello?", &s, &whole, &result), COBORD_OK);
    assert_int_equal(ask(model, "Hello?", &s, &callback, &result), COBORD_OK);
    assert_int_equal(result.end, COBORD_END_CALLBACK);
    assert_int_equal(callback.tokens, 5);
    assert_memory_equal(callback.text, whole.text, callback.bytes);
    /* The text from the middle of the answer on as a stop text. */
    size_t at = whole.bytes / 2;
    while (at && ((uint8_t)whole.text[at] & 0xc0) == 0x80) at--;
    const char *stops[] = {"not in it at all", whole.text + at};
    s.stops = stops;
    s.stop_count = 2;
    assert_int_equal(ask(model, "Hello?", &s, &stop, &result), COBORD_OK);
    assert_int_equal(result.end, COBORD_END_STOP);
    assert_int_equal(stop.bytes, at);
    assert_memory_equal(stop.text, whole.text, at);
    s.stop_count = 0;
    s.tokens_max = 1;
    assert_int_equal(ask(model, "Hello?", &s, &one, &result), COBORD_OK);
    assert_int_equal(result.end, COBORD_END_TOKENS);
    assert_int_equal(result.generated_tokens, 1);
    cobord_close(model);
}

static void cancels(void **state)
{
    (void)state;
    cobord_model *model = open_model(0);
    cobord_settings s = settings_of(3);
    Answer whole = {0}, cut = {.cancel_after = 4, .cancel = model}, again = {0};
    cobord_result result;
    assert_int_equal(ask(model, "Hello?", &s, &whole, &result), COBORD_OK);
    cobord_cancel(model); /* nothing runs */
    assert_int_equal(ask(model, "Hello?", &s, &cut, &result), COBORD_ERR_CANCELLED);
    assert_int_equal(cut.tokens, 4);
    assert_non_null(strstr(cobord_last_error(), "cancelled"));
    assert_int_equal(ask(model, "Hello?", &s, &again, &result), COBORD_OK);
    assert_string_equal(again.text, whole.text);
    cobord_close(model);
}

static int ask_within(void *user, const char *text, size_t bytes, uint32_t id)
{
    (void)text, (void)bytes;
    cobord_model *model = user;
    assert_int_equal(cobord_generate(model, &id, 1, NULL, NULL, NULL, NULL), COBORD_ERR_AGAIN);
    size_t count;
    uint32_t ids[8];
    assert_int_equal(cobord_tokenize(model, "a", 1, 0, ids, 8, &count), COBORD_OK);
    return 1;
}

static void refuses_what_is_wrong(void **state)
{
    (void)state;
    cobord_model *model = open_model(0);
    cobord_settings s = settings_of(1);
    uint32_t id = 65, far = UINT32_MAX - 1, *long_ids = calloc(1 << 20, sizeof *long_ids);
    cobord_message nobody = {"nobody", "x"}, silent = {"user", NULL};
    assert_int_equal(cobord_generate(model, &id, 1, &s, ask_within, model, NULL), COBORD_OK);
    assert_int_equal(cobord_generate(model, &far, 1, &s, NULL, NULL, NULL), COBORD_ERR_RANGE);
    assert_int_equal(cobord_generate(model, NULL, 0, &s, NULL, NULL, NULL), COBORD_ERR_USAGE);
    assert_int_equal(cobord_generate(model, long_ids, 1 << 20, &s, NULL, NULL, NULL),
                     COBORD_ERR_CAPACITY);
    assert_int_equal(cobord_chat(model, &nobody, 1, &s, NULL, NULL, NULL), COBORD_ERR_USAGE);
    assert_int_equal(cobord_chat(model, &silent, 1, &s, NULL, NULL, NULL), COBORD_ERR_USAGE);
    assert_int_equal(cobord_chat(model, NULL, 0, &s, NULL, NULL, NULL), COBORD_ERR_USAGE);
    cobord_options_init(NULL, sizeof(cobord_options)); /* nothing, which cobord_open may say */
    cobord_settings_init(NULL, sizeof(cobord_settings));
    s.temperature = -1;
    assert_int_equal(cobord_generate(model, &id, 1, &s, NULL, NULL, NULL), COBORD_ERR_RANGE);
    assert_non_null(strstr(cobord_last_error(), "temperature"));
    s = settings_of(1);
    s.json_schema = "{}";
    assert_int_equal(cobord_generate(model, &id, 1, &s, NULL, NULL, NULL), COBORD_ERR_USAGE);
    assert_non_null(strstr(cobord_last_error(), "COBORD_OPEN_FORMS"));
    s = settings_of(1);
    const char *no_stop[] = {NULL}, *empty[] = {""};
    s.stop_count = 1;
    s.stops = no_stop;
    assert_int_equal(cobord_generate(model, &id, 1, &s, NULL, NULL, NULL), COBORD_ERR_USAGE);
    s.stops = empty;
    assert_int_equal(cobord_generate(model, &id, 1, &s, NULL, NULL, NULL), COBORD_ERR_RANGE);
    free(long_ids);
    cobord_close(model);
}

static void keeps_a_form(void **state)
{
    (void)state;
    cobord_model *model = open_model(COBORD_OPEN_FORMS);
    cobord_settings s = settings_of(5);
    Answer colour = {0}, word = {0};
    cobord_result result;
    s.json_schema = "{\"enum\": [\"red\", \"green\", \"blue\"]}";
    assert_int_equal(ask(model, "Which?", &s, &colour, &result), COBORD_OK);
    assert_true(!strcmp(colour.text, "\"red\"") || !strcmp(colour.text, "\"green\"") ||
                !strcmp(colour.text, "\"blue\""));
    s.json_schema = NULL;
    s.grammar = "root ::= [a-c]{3} \"!\"";
    assert_int_equal(ask(model, "Which?", &s, &word, &result), COBORD_OK);
    assert_int_equal(word.bytes, 4);
    assert_int_equal(strspn(word.text, "abc"), 3);
    s.grammar = "root ::= [";
    assert_int_equal(ask(model, "Which?", &s, &word, &result), COBORD_ERR_FORMAT);
    s.grammar = NULL;
    s.json_schema = "{\"type\": ";
    assert_int_equal(ask(model, "Which?", &s, &word, &result), COBORD_ERR_FORMAT);
    assert_non_null(strstr(cobord_last_error(), "json_schema"));
    s.grammar = "root ::= \"a\"";
    assert_int_equal(ask(model, "Which?", &s, &word, &result), COBORD_ERR_USAGE);
    cobord_close(model);
}

/* --- Threads --- */

static void *ask_in_thread(void *argument)
{
    cobord_model *model = argument;
    cobord_settings s = settings_of(7);
    Answer *a = calloc(1, sizeof *a);
    cobord_result result;
    if (ask(model, "Hello?", &s, a, &result)) a->text[0] = '\0';
    return a;
}

static void works_with_several_models_at_once(void **state)
{
    (void)state;
    pthread_t threads[3];
    cobord_model *models[3];
    Answer *answers[3];
    for (int i = 0; i < 3; i++) models[i] = open_model(0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_in_thread, models[i]), 0);
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_join(threads[i], (void **)&answers[i]), 0);
    assert_true(answers[0]->bytes > 0);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(answers[i]->text, answers[0]->text);
        cobord_close(models[i]);
    }
    for (int i = 0; i < 3; i++) free(answers[i]);
}

static void *cancel_soon(void *argument)
{
    struct timespec t = {0, 20000000};
    for (int i = 0; i < 200; i++) {
        nanosleep(&t, NULL);
        cobord_cancel(argument);
    }
    return NULL;
}

static void is_cancelled_from_another_thread(void **state)
{
    (void)state;
    cobord_model *model = open_model(0);
    cobord_info info;
    assert_int_equal(cobord_get_info(model, &info, sizeof info), COBORD_OK);
    uint32_t count = info.context - 8, *ids = calloc(count, sizeof *ids);
    for (uint32_t i = 0; i < count; i++) ids[i] = i % 256;
    cobord_settings s = settings_of(1);
    s.tokens_max = 0;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, cancel_soon, model), 0);
    int code = COBORD_OK;
    for (int i = 0; i < 100 && code == COBORD_OK; i++) {
        ids[0] = (uint32_t)i; /* nothing is kept */
        code = cobord_generate(model, ids, count, &s, NULL, NULL, NULL);
    }
    assert_int_equal(code, COBORD_ERR_CANCELLED);
    assert_int_equal(pthread_join(thread, NULL), 0);
    free(ids);
    cobord_close(model);
}

/* --- Structs of other versions --- */

static void takes_structs_of_other_sizes(void **state)
{
    (void)state;
    cobord_model *model;
    struct {
        cobord_options options;
        uint64_t later;
    } newer;
    cobord_options_init(&newer.options, sizeof newer);
    assert_int_equal(newer.options.size, sizeof newer);
    assert_int_equal(newer.later, 0);
    assert_int_equal(cobord_open(path, &newer.options, &model), COBORD_OK);
    cobord_close(model);
    newer.later = 1;
    assert_int_equal(cobord_open(path, &newer.options, &model), COBORD_ERR_USAGE);
    assert_null(model);
    cobord_options older;
    memset(&older, 0xee, sizeof older);
    cobord_options_init(&older, offsetof(cobord_options, context));
    assert_int_equal(cobord_open(path, &older, &model), COBORD_OK);
    cobord_close(model);
    cobord_options none = {0};
    assert_int_equal(cobord_open(path, &none, &model), COBORD_ERR_USAGE);
    newer.later = 0;
    newer.options.flags = 1u << 31;
    assert_int_equal(cobord_open(path, &newer.options, &model), COBORD_ERR_USAGE);
    newer.options.flags = 0;
    newer.options.memory_bytes = 1 << 16;
    assert_int_equal(cobord_open(path, &newer.options, &model), COBORD_ERR_PLAN);
}

/* --- Files that are none --- */

static void expect_refusal(const char *name)
{
    cobord_model *model = (cobord_model *)(uintptr_t)1;
    int code = cobord_open(name, NULL, &model);
    assert_int_not_equal(code, COBORD_OK);
    assert_null(model);
    assert_true(strlen(cobord_last_error()) > 10);
    assert_string_not_equal(cobord_error_text(code), "unknown error");
}

static void refuses_hostile_files(void **state)
{
    (void)state;
    static const char *const names[] = {"cut", "hole", "overlap", "stale", "tail", "twice", "type"};
    char name[256];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(name, sizeof name, "%s/knot/error-%s.knot", COBORD_TEST_DATA, names[i]);
        expect_refusal(name);
    }
    expect_refusal("/nowhere/x.knot");
    expect_refusal("no-such-model");
    expect_refusal("");
    expect_refusal(folder);
    expect_refusal("/dev/zero");
    assert_int_equal(cobord_open(NULL, NULL, NULL), COBORD_ERR_USAGE);
}

static uint8_t *read_file(const char *name, size_t *bytes)
{
    FILE *file = fopen(name, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *bytes = (size_t)ftell(file);
    rewind(file);
    uint8_t *all = malloc(*bytes);
    assert_int_equal(fread(all, 1, *bytes, file), *bytes);
    fclose(file);
    return all;
}

static void write_file(const char *name, const uint8_t *bytes, size_t count)
{
    FILE *file = fopen(name, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

/* A sound knot, shortened or with one byte changed. */
static void refuses_damaged_files(void **state)
{
    (void)state;
    char name[128], checked[160];
    size_t bytes;
    uint8_t *all = read_file(path, &bytes);
    snprintf(name, sizeof name, "%s/damaged.knot", folder);
    snprintf(checked, sizeof checked, "%s.checked", name);
    for (size_t cut = 0; cut < 40; cut++) {
        write_file(name, all, bytes * cut / 40);
        expect_refusal(name);
    }
    for (size_t i = 0; i < 40; i++) {
        size_t at = bytes * i / 40 + i;
        all[at] ^= 0x40;
        write_file(name, all, bytes);
        cobord_model *model;
        if (cobord_open(name, NULL, &model) == COBORD_OK) fail_msg("byte %zu was changed", at);
        all[at] ^= 0x40;
    }
    (void)unlink(checked);
    unlink(name);
    free(all);
}

/* --- A guest in the process --- */

static void is_silent_and_leaves_signals_alone(void **state)
{
    (void)state;
    static const int numbers[] = {SIGINT,  SIGTERM, SIGHUP,  SIGPIPE,
                                  SIGXFSZ, SIGBUS,  SIGSEGV, SIGCHLD};
    struct sigaction before[8], after;
    char name[96];
    struct stat st;
    snprintf(name, sizeof name, "%s/said", folder);
    int said = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600), out = dup(1), err = dup(2);
    for (int i = 0; i < 8; i++) sigaction(numbers[i], NULL, &before[i]);
    fflush(NULL);
    dup2(said, 1);
    dup2(said, 2);
    cobord_model *model;
    bool fine = cobord_open("no-such-model", NULL, &model) == COBORD_ERR_NOT_FOUND &&
                cobord_open(path, NULL, &model) == COBORD_OK;
    uint32_t id = 65;
    cobord_settings s = settings_of(1);
    fine = fine && cobord_generate(model, &id, 1, &s, NULL, NULL, NULL) == COBORD_OK;
    cobord_close(model);
    fflush(NULL);
    dup2(out, 1);
    dup2(err, 2);
    assert_true(fine);
    assert_int_equal(fstat(said, &st), 0);
    assert_int_equal(st.st_size, 0);
    for (int i = 0; i < 8; i++) {
        sigaction(numbers[i], NULL, &after);
        assert_true(after.sa_handler == before[i].sa_handler);
    }
    close(said);
    close(out);
    close(err);
    unlink(name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turns_text_into_ids_and_back),
        cmocka_unit_test(describes_the_model),
        cmocka_unit_test(answers_alike_for_a_seed),
        cmocka_unit_test(stops_where_it_should),
        cmocka_unit_test(cancels),
        cmocka_unit_test(refuses_what_is_wrong),
        cmocka_unit_test(keeps_a_form),
        cmocka_unit_test(works_with_several_models_at_once),
        cmocka_unit_test(is_cancelled_from_another_thread),
        cmocka_unit_test(takes_structs_of_other_sizes),
        cmocka_unit_test(refuses_hostile_files),
        cmocka_unit_test(refuses_damaged_files),
        cmocka_unit_test(is_silent_and_leaves_signals_alone),
    };
    return cmocka_run_group_tests(tests, make_model, drop_model);
}
