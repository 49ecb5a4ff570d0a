/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/options_theme.h"

OptionTheme options_theme(OptionId id)
{
    switch (id) {
    case OPTION_STATIONS:
    case OPTION_SHARDS:
    case OPTION_RANGES:
    case OPTION_WORKERS:
    case OPTION_REPLICAS:
    case OPTION_WARDENS:
    case OPTION_WARDEN_MEMORY:
    case OPTION_HOSTS:
    case OPTION_ELEMENT:
    case OPTION_PIPELINE: return THEME_SPREAD;
    case OPTION_MEMORY:
    case OPTION_CONTEXT:
    case OPTION_CACHE_TYPE:
    case OPTION_CHUNK:
    case OPTION_THREADS:
    case OPTION_ISA:
    case OPTION_DRAFTS:
    case OPTION_DRAFT:
    case OPTION_DRAFT_MEMORY:
    case OPTION_CGROUP: return THEME_MEMORY;
    case OPTION_MAX_TOKENS:
    case OPTION_TEMPERATURE:
    case OPTION_TOP_K:
    case OPTION_TOP_P:
    case OPTION_MIN_P:
    case OPTION_SEED:
    case OPTION_REPETITION_PENALTY:
    case OPTION_PRESENCE_PENALTY:
    case OPTION_FREQUENCY_PENALTY:
    case OPTION_LOGIT_BIAS:
    case OPTION_STOP: return THEME_SAMPLING;
    case OPTION_LISTEN:
    case OPTION_SLOTS:
    case OPTION_QUEUE:
    case OPTION_JOURNAL:
    case OPTION_LOG_FORMAT:
    case OPTION_LOG_LEVEL:
    case OPTION_DRAIN_SECONDS: return THEME_SERVING;
    case OPTION_TLS_CERTIFICATE:
    case OPTION_TLS_KEY:
    case OPTION_TLS_CA:
    case OPTION_API_KEYS:
    case OPTION_CORS:
    case OPTION_API_KEY:
    case OPTION_KEY_FILE: return THEME_KEYS;
    case OPTION_BUCKET:
    case OPTION_ACCOUNT:
    case OPTION_SUBDOMAIN:
    case OPTION_FREE:
    case OPTION_MODULES:
    case OPTION_WRANGLER: return THEME_CLOUDFLARE;
    case OPTION_CACHE:
    case OPTION_HUB:
    case OPTION_HUB_TOKEN: return THEME_PLACES;
    default: return THEME_OWN;
    }
}

const char *options_theme_name(OptionTheme theme)
{
    static const char *const names[THEMES] = {
        "Options", "Spreading the model",   "Memory and speed", "Choosing the next token",
        "Serving", "Keys and certificates", "Cloudflare",       "Places"};
    return names[theme];
}
