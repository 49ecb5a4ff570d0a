/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/log_options.h"

#include "host/log.h"

/* The choices stand in the order of the enums. */
void log_options_open(const Options *o, const char *node)
{
    log_open((LogFormat)options_count(o, OPTION_LOG_FORMAT),
             (LogLevel)options_count(o, OPTION_LOG_LEVEL), node);
}

const char *log_options_format(const Options *o)
{
    return options_count(o, OPTION_LOG_FORMAT) == LOG_JSON ? "json" : "text";
}

const char *log_options_level(const Options *o)
{
    static const char *const levels[] = {"error", "info", "debug"};
    return levels[options_count(o, OPTION_LOG_LEVEL)];
}
