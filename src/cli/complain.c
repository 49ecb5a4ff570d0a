/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/complain.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/options.h"
#include "cli/paint.h"
#include "cli/progress.h"
#include "host/stop.h"

static const char *complain_advice(Error error)
{
    switch (error) {
    case OK: return NULL;
    case ERR_INTERNAL: return "This is a fault of cobord: please report it with this line";
    case ERR_MEMORY: return "Give it a smaller --context or --chunk, or more memory";
    case ERR_IO: return "Check the path, its permissions and the disk";
    case ERR_NO_SPACE: return "Free some space, or use another disk (of models: set COBORD_CACHE)";
    case ERR_CAPACITY: return "Use a smaller input";
    case ERR_NOT_AVAILABLE: return "Use --isa auto, or another machine";
    case ERR_USAGE: return "See: cobord help";
    case ERR_FORMAT: return "Give a .gguf or .knot file, or download it again";
    case ERR_TRUNCATED: return "The file is cut off: download or encode it again";
    case ERR_UNSUPPORTED: return "Use a model of a supported kind (see: cobord list)";
    case ERR_MISSING_TENSOR:
    case ERR_TYPE:
    case ERR_SHAPE:
    case ERR_DUPLICATE:
        return "The file is damaged or of another kind: download or encode it again";
    case ERR_CHECKSUM: return "The file is damaged: pull or encode it again";
    case ERR_STALE: return "Rewrite it with: cobord repair OLD.knot -o NEW.knot";
    case ERR_NOT_FINITE: return "The weights are damaged: run `cobord verify` on the file";
    case ERR_RANGE: return "Use a value in the range";
    case ERR_NOT_FOUND: return "Check the name (see: cobord list)";
    case ERR_TOO_LARGE: return "Use a smaller one";
    case ERR_PLAN: return "Give more --memory, a smaller --context, or more stations and shards";
    case ERR_POSITION:
    case ERR_SUPERSEDED:
    case ERR_SESSION: return "Start again from the prompt";
    case ERR_KEY: return "Use the cluster's key file on every machine";
    case ERR_AGAIN: return "Try again";
    case ERR_CANCELLED: return NULL;
    case ERR_UNREACHABLE: return "Check the network and the address, then try again";
    }
    return NULL;
}

int complain_exit_code(Error error)
{
    switch (error) {
    case OK: return 0;
    case ERR_USAGE:
    case ERR_NOT_AVAILABLE: return 2;
    case ERR_CANCELLED: return stop_signal() ? 128 + stop_signal() : 1;
    default: return 1;
    }
}

static bool complain_is_complete(const char *text)
{
    size_t length = strlen(text);
    return length &&
           (text[length - 1] == '.' || text[length - 1] == '`' || text[length - 1] == '?');
}

int complain(Error error, const Why *why, const char *thing, const char *advice)
{
    progress_interrupt();
    const char *details = why && why->text[0] ? why->text : NULL;
    paint_error_head();
    fputs(error_text(error), stderr);
    if (thing && !(details && strstr(details, thing))) { /* details that name it say it once */
        fputs(": ", stderr);
        options_print_safely(stderr, thing);
    }
    if (details) {
        fputs(": ", stderr);
        options_print_safely(stderr, details);
    }
    bool complete = details && complain_is_complete(details);
    if (!advice && !complete) advice = complain_advice(error);
    if (!complete) fputc('.', stderr);
    if (advice) fprintf(stderr, " %s%s", advice, complain_is_complete(advice) ? "" : ".");
    fputc('\n', stderr);
    return complain_exit_code(error);
}

/* The pipe itself is asked: which errno a stream failed with is long forgotten. */
static bool complain_reader_left(void)
{
    struct pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&output, 1, 0) == 1 && (output.revents & (POLLERR | POLLHUP));
}

int complain_output(void)
{
    if (complain_reader_left()) return 128 + SIGPIPE;
    return complain(ERR_IO, NULL, "standard output", "Check the disk or the terminal");
}

const char *complain_cluster_file(Error error)
{
    if (error == ERR_NOT_FOUND) return "Write one with: cobord plan MODEL -o FILE";
    return "Mend it, or write it again with: cobord plan MODEL -o FILE";
}

int complain_usage(const char *format, ...)
{
    char line[1024];
    va_list list;
    va_start(list, format);
    (void)vsnprintf(line, sizeof line, format, list);
    va_end(list);
    progress_interrupt();
    paint_error_head();
    options_print_safely(stderr, line);
    fputc('\n', stderr);
    return 2;
}
