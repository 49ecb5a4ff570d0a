/* SPDX-License-Identifier: Apache-2.0 */
/* Asks a model one question and prints the answer as it comes.
 *
 *     cc generate.c $(pkg-config --cflags --libs cobord) -o generate && ./generate smollm2-135m "What is 2 + 2?" */
#include <stdio.h>

#include <cobord/cobord.h>

static int print_piece(void *user, const char *text, size_t bytes, uint32_t id)
{
    (void)user, (void)id;
    fwrite(text, 1, bytes, stdout);
    return fflush(stdout) != 0; /* nobody reads any more: stop */
}

int main(int argc, char **argv)
{
    cobord_model *model;
    cobord_settings settings;
    cobord_result result;
    cobord_message messages[1];
    int error;
    if (argc != 3) {
        fprintf(stderr, "usage: generate MODEL QUESTION\n");
        return 2;
    }
    messages[0].role = "user";
    messages[0].text = argv[2];
    cobord_settings_init(&settings, sizeof settings);
    settings.temperature = 0; /* the same answer every time, on every machine */
    settings.tokens_max = 200;
    result.size = sizeof result;
    error = cobord_open(argv[1], NULL, &model);
    if (!error) error = cobord_chat(model, messages, 1, &settings, print_piece, NULL, &result);
    if (error) fprintf(stderr, "generate: %s\n", cobord_last_error());
    else printf("\n[%u tokens in %.2f s]\n", (unsigned)result.generated_tokens, 1e-9 * (double)result.generate_ns);
    cobord_close(model);
    return error ? 1 : 0;
}
