/* SPDX-License-Identifier: Apache-2.0 */
/* From options to the sampler's parameters. */
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "cli/run.h"

/* "5:-100,17:2.5" */
static Error read_bias(Run *r, const char *text, Why *why)
{
    while (*text) {
        char *end;
        unsigned long id = strtoul(text, &end, 10); /* which would take signs and spaces */
        if (*text < '0' || *text > '9' || *end != ':' || id > UINT32_MAX)
            return error_why(why, ERR_USAGE, "--logit-bias: expected ID:BIAS,ID:BIAS at \"%.*s\"",
                             40, text);
        const char *number = end + 1;
        float bias = strtof(number, &end);
        if (end == number || (*end && *end != ',') || !isfinite(bias))
            return error_why(why, ERR_USAGE, "--logit-bias: expected a number at \"%.*s\"", 40,
                             number);
        if (r->params.bias_count == RUN_BIAS_MAX)
            return error_why(why, ERR_USAGE, "--logit-bias: more than %d entries", RUN_BIAS_MAX);
        r->bias[r->params.bias_count++] = (SamplerBias){(uint32_t)id, bias};
        text = *end ? end + 1 : end;
    }
    return OK;
}

Error run_params_read(Run *r, Why *why)
{
    const Options *o = r->options;
    if (!r->first_seed) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        r->first_seed = (uint64_t)now.tv_sec * 1000000007u + (uint64_t)now.tv_nsec;
    }
    r->params = sampler_defaults();
    r->params.temperature = (float)options_number(o, OPTION_TEMPERATURE);
    r->params.top_k = (uint32_t)options_count(o, OPTION_TOP_K);
    r->params.top_p = (float)options_number(o, OPTION_TOP_P);
    r->params.min_p = (float)options_number(o, OPTION_MIN_P);
    r->params.repetition_penalty = (float)options_number(o, OPTION_REPETITION_PENALTY);
    r->params.presence_penalty = (float)options_number(o, OPTION_PRESENCE_PENALTY);
    r->params.frequency_penalty = (float)options_number(o, OPTION_FREQUENCY_PENALTY);
    r->params.seed = options_given(o, OPTION_SEED) ? options_count(o, OPTION_SEED) : r->first_seed;
    r->params.bias = r->bias;
    if (options_text(o, OPTION_LOGIT_BIAS))
        TRY(read_bias(r, options_text(o, OPTION_LOGIT_BIAS), why));
    return sampler_check(&r->params, r->remote ? UINT32_MAX : r->session.model.hyper.vocabulary,
                         why);
}
