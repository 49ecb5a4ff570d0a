/* SPDX-License-Identifier: Apache-2.0 */
/* What of a request asks for figures beside the text: log-probabilities, the prompt again, the cost of each hop. */
#include "api/request_state.h"

/* A chat's: true or false. */
bool request_scores_wanted(RequestReader *r, yyjson_val *value, const char *name)
{
    return request_plain_bool(r, value, name, &r->request->scores);
}

bool request_scores_tops(RequestReader *r, yyjson_val *value, const char *name)
{
    r->tops_given = true;
    return request_plain_count(r, value, name, 0, REQUEST_TOPS_MAX, &r->request->tops);
}

/* A completion's: how many; 0 is the tokens' own. */
bool request_scores_count(RequestReader *r, yyjson_val *value, const char *name)
{
    if (yyjson_is_false(value)) return true;
    if (!request_plain_count(r, value, name, 0, REQUEST_TOPS_MAX, &r->request->tops)) return false;
    r->request->scores = true;
    return true;
}

bool request_scores_echo(RequestReader *r, yyjson_val *value, const char *name)
{
    return request_plain_bool(r, value, name, &r->request->says_prompt);
}

bool request_scores_hops(RequestReader *r, yyjson_val *value, const char *name)
{
    return request_plain_bool(r, value, name, &r->request->hops);
}

bool request_scores_check(RequestReader *r)
{
    const Request *q = r->request;
    if (r->tops_given && q->tops && !q->scores)
        return refusal_make(r->refusal, REFUSAL_VALUE, "top_logprobs",
                            "top_logprobs needs logprobs: true");
    if (q->hops && q->stream && !q->include_usage)
        return refusal_make(r->refusal, REFUSAL_VALUE, "hops",
                            "hops are in the usage: in a stream they need "
                            "stream_options.include_usage");
    return true;
}
