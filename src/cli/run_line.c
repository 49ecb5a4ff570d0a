/* SPDX-License-Identifier: Apache-2.0 */
/* The editor reads its characters through read_character, so that signals are seen at once and
 * pasted text is taken as a whole:
 *
 *   terminal --bytes--> read_character --> libedit --> a line, U+23CE for each line break in it
 *                            '---------> insert_paste: all between ESC[200~ and ESC[201~ */
#include "cli/run_line.h"

#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/paint.h"
#include "cli/run_history.h"
#include "host/stop.h"

#define BREAK_SIGN "\xe2\x8f\x8e" /* U+23CE, as UTF-8 */
static const wchar_t BREAK_CHARACTER = 0x23ce;
enum { PASTE_CHARACTERS_MAX = 1 << 20, LEAVE_KEY = 0x1f };

static struct {
    EditLine *editor; /* NULL: lines are read as they come */
    History *history;
    FILE *out;
    const char *const *words;
    const char *prompt;
    bool dumb;        /* TERM is, or there is none */
    int columns;      /* of the terminal when the line was drawn */
    sigset_t free;    /* signals outside of editing */
    int signal;       /* that ended the line, or 0 */
    bool left;        /* LEAVE_KEY was pressed for it */
    bool typed;       /* there was something for Ctrl-C to clear */
    bool interrupted; /* Ctrl-C at an empty line was the last that happened */
} line;

/* --- Signals while a line is edited: they arrive in read_byte only --- */

static volatile sig_atomic_t line_resized, line_continued;

static void note_signal(int number)
{
    if (number == SIGWINCH) line_resized = 1;
    else line_continued = 1;
}

static void hold_signals(bool on)
{
    static const int watched[] = {SIGWINCH, SIGCONT}, held[] = {SIGINT, SIGTERM, SIGHUP};
    static struct sigaction old[2];
    struct sigaction action;
    sigset_t set;
    memset(&action, 0, sizeof action);
    action.sa_handler = note_signal;
    sigemptyset(&action.sa_mask);
    sigemptyset(&set);
    for (int i = 0; i < 3; i++) (void)sigaddset(&set, held[i]);
    for (int i = 0; i < 2; i++) {
        (void)sigaction(watched[i], on ? &action : &old[i], on ? &old[i] : NULL);
        (void)sigaddset(&set, watched[i]);
    }
    (void)sigprocmask(on ? SIG_BLOCK : SIG_UNBLOCK, &set, on ? &line.free : NULL);
}

static int terminal_columns(void)
{
    struct winsize size;
    if (ioctl(fileno(line.out), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
    return size.ws_col;
}

/* Rows between the start of the prompt and the cursor, after the terminal broke each row of the
 * width before into as many as it needs now. */
static int rows_above(EditLine *e, int before, int now)
{
    const LineInfoW *info = el_wline(e);
    int columns = (int)strlen(line.prompt);
    for (const wchar_t *p = info->buffer; p < info->cursor; p++) {
        int width = wcwidth(*p);
        columns += width > 0 ? width : 0;
    }
    return columns / before * ((before + now - 1) / now) + columns % before / now;
}

/* The terminal became another size, and broke the line anew; or the program was in the background,
 * where the shell gave the terminal other modes. */
static void redraw(EditLine *e)
{
    if (line_continued) {
        (void)el_set(e, EL_PREP_TERM, 0);
        (void)el_set(e, EL_PREP_TERM, 1);
        if (!line.dumb) fputs("\x1b[?2004h", line.out);
    }
    if (line_resized) {
        int now = terminal_columns(), rows = rows_above(e, line.columns, now);
        line.columns = now;
        if (rows && !line.dumb) fprintf(line.out, "\x1b[%dA", rows);
        fputs(line.dumb ? "\r" : "\r\x1b[J", line.out);
        fflush(line.out);
        el_resize(e);
    }
    if (line_resized || line_continued) (void)el_set(e, EL_REFRESH);
    line_resized = line_continued = 0;
    fflush(line.out);
}

/* --- Characters --- */

/* The bytes that follow a first byte of UTF-8; -1 when it is none. */
static int bytes_after(unsigned char first)
{
    if (first < 0x80) return 0;
    if (first < 0xc2 || first > 0xf4) return -1;
    return first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
}

/* Result  1, 0 at the end, -1 on an error. Ctrl-C is the key that LEAVE_KEY is bound to, and then
 * an error. */
static int read_byte(EditLine *e, unsigned char *out)
{
    struct pollfd wait = {.fd = STDIN_FILENO, .events = POLLIN};
    while (!stop_asked()) {
        redraw(e);
        if (ppoll(&wait, 1, NULL, &line.free) > 0) return (int)read(STDIN_FILENO, out, 1);
    }
    if (line.left) return -1;
    line.left = true;
    *out = LEAVE_KEY;
    return 1;
}

static int read_character(EditLine *e, wchar_t *out)
{
    unsigned char byte;
    int got = read_byte(e, &byte);
    if (got != 1) return got;
    int more = bytes_after(byte);
    wchar_t c = more <= 0 ? byte : byte & (0x3f >> more);
    for (int i = 0; i < more; i++) {
        got = read_byte(e, &byte);
        if (got != 1) return got;
        if ((byte & 0xc0) != 0x80) more = -1;
        c = (wchar_t)(c << 6) | (byte & 0x3f);
    }
    bool none = more < 0 || (c >= 0xd800 && c < 0xe000) || c > 0x10ffff;
    *out = none ? 0xfffd : c;
    return 1;
}

/* --- Keys of ours --- */

static bool ends_with(const wchar_t *text, size_t count, const wchar_t *end)
{
    size_t length = wcslen(end);
    return count >= length && wmemcmp(text + count - length, end, length) == 0;
}

/* Line breaks to signs, one at the end dropped; control characters but tabs dropped. */
static void clean_paste(wchar_t *text, size_t count)
{
    size_t to = 0;
    for (size_t i = 0; i < count; i++) {
        bool cr = text[i] == '\r';
        if (cr && i + 1 < count && text[i + 1] == '\n') continue;
        if (cr || text[i] == '\n') text[to++] = BREAK_CHARACTER;
        else if (text[i] == '\t' || (text[i] >= 0x20 && (text[i] < 0x7f || text[i] >= 0xa0)))
            text[to++] = text[i];
    }
    if (to && text[to - 1] == BREAK_CHARACTER) to--;
    text[to] = 0;
}

static unsigned char insert_paste(EditLine *e, int key)
{
    static const wchar_t end[] = L"\x1b[201~";
    size_t count = 0, room = 0;
    wchar_t *text = NULL, c;
    (void)key;
    while (!ends_with(text, count, end) && read_character(e, &c) == 1) {
        if (count + 1 >= room) {
            room = room ? 2 * room : 1024;
            wchar_t *grown = realloc(text, room * sizeof *text);
            if (!grown) break;
            text = grown;
        }
        if (count == PASTE_CHARACTERS_MAX) /* the end must still be found */
            wmemmove(text + count - 16, text + count - 15, 15);
        else count++;
        text[count - 1] = c;
    }
    if (text) {
        clean_paste(text, ends_with(text, count, end) ? count - 6 : count);
        (void)el_winsertstr(e, text);
    }
    free(text);
    return CC_REFRESH;
}

static unsigned char insert_break(EditLine *e, int key)
{
    const wchar_t text[] = {BREAK_CHARACTER, 0};
    (void)key;
    return el_winsertstr(e, text) == 0 ? CC_REFRESH : CC_ERROR;
}

/* To the end of what was typed, however many rows it has. */
static unsigned char leave(EditLine *e, int key)
{
    const LineInfo *info = el_line(e);
    (void)key;
    line.typed = info->lastchar > info->buffer;
    (void)el_cursor(e, (int)(info->lastchar - info->cursor));
    return CC_REDISPLAY; /* all of it: in a search the terminal shows more than the line */
}

/* Completes what the words that begin like the line have in common. */
static unsigned char complete(EditLine *e, int key)
{
    const LineInfo *info = el_line(e);
    size_t length = (size_t)(info->cursor - info->buffer), common = 0;
    const char *found = NULL;
    (void)key;
    if (!length || info->buffer[0] != '/') return CC_NORM;
    for (const char *const *w = line.words; *w; w++) {
        if (strncmp(*w, info->buffer, length) != 0) continue;
        size_t same = 0;
        while (found && same < common && (*w)[same] == found[same]) same++;
        common = found ? same : strlen(*w);
        found = *w;
    }
    if (!found || common <= length) return CC_ERROR; /* beeps */
    char rest[64];
    (void)snprintf(rest, sizeof rest, "%.*s", (int)(common - length), found + length);
    return el_insertstr(e, rest) == 0 ? CC_REFRESH : CC_ERROR;
}

static void bind_keys(EditLine *e)
{
    static const char *const keys[][2] = {
        {"\\e[200~", "cobord-paste"},
        {"\\e\\r", "cobord-break"},
        {"\\e\\n", "cobord-break"},
        {"^I", "cobord-complete"},
        {"^@", "em-delete-or-list"}, /* what Ctrl-D becomes when it is typed before the line */
        {"^_", "cobord-leave"},
        {"^R", "em-inc-search-prev"},
        {"\\e[1~", "ed-move-to-beg"},
        {"\\e[4~", "ed-move-to-end"},
        {"\\e[H", "ed-move-to-beg"},
        {"\\e[F", "ed-move-to-end"},
        {"\\e[3~", "ed-delete-next-char"},
        {"\\e[1;5C", "em-next-word"},
        {"\\e[1;5D", "ed-prev-word"},
    };
    (void)el_set(e, EL_ADDFN, "cobord-paste", "inserts pasted text", insert_paste);
    (void)el_set(e, EL_ADDFN, "cobord-break", "inserts a line break", insert_break);
    (void)el_set(e, EL_ADDFN, "cobord-complete", "completes a command", complete);
    (void)el_set(e, EL_ADDFN, "cobord-leave", "ends the line", leave);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        (void)el_set(e, EL_BIND, keys[i][0], keys[i][1], NULL);
}

/* --- Open and close --- */

/* A sequence belongs to the character after it, so the last character stands behind the last one. */
static char *prompt_of(EditLine *e)
{
    static char painted[64];
    (void)e;
    if (!paint_is_on(line.out)) return (char *)(uintptr_t)line.prompt;
    int mark = (int)strlen(line.prompt) - 1;
    (void)snprintf(painted, sizeof painted, "\1\x1b[1;36m\1%.*s\1\x1b[0m\1 ", mark, line.prompt);
    return painted;
}

/* The editor needs a locale of UTF-8 to know how wide characters are. */
static void choose_locale(void)
{
    const char *set = setlocale(LC_CTYPE, "");
    if (!set || strcmp(nl_langinfo(CODESET), "UTF-8") != 0) (void)setlocale(LC_CTYPE, "C.UTF-8");
}

static void enter(void *context, const char *message)
{
    HistEvent event;
    (void)context;
    (void)history(line.history, &event, H_ENTER, message);
}

void run_line_open(const char *const *words)
{
    HistEvent event;
    line.words = words;
    line.out = paint_is_terminal(stdout) ? stdout : stderr;
    if (!paint_is_terminal(line.out)) return;
    const char *terminal = getenv("TERM");
    line.dumb = !terminal || !terminal[0] || strcmp(terminal, "dumb") == 0;
    choose_locale();
    line.editor = el_init("cobord", stdin, line.out, stderr);
    line.history = line.editor ? history_init() : NULL;
    if (!line.history) return;
    (void)history(line.history, &event, H_SETSIZE, RUN_LINE_HISTORY_MAX);
    (void)history(line.history, &event, H_SETUNIQUE, 1);
    (void)el_set(line.editor, EL_HIST, history, line.history);
    (void)el_set(line.editor, EL_EDITOR, "emacs");
    (void)el_set(line.editor, EL_SIGNAL, 0);
    (void)el_set(line.editor, EL_PROMPT_ESC, prompt_of, '\1');
    (void)el_set(line.editor, EL_GETCFN, read_character);
    bind_keys(line.editor);
    (void)el_source(line.editor, NULL);
    run_history_load(enter, NULL);
}

void run_line_close(void)
{
    if (line.history) history_end(line.history);
    if (line.editor) el_end(line.editor);
    line.history = NULL;
    line.editor = NULL;
}

/* --- Lines --- */

static char *copy_line(const char *got)
{
    char *copy = got ? strdup(got) : NULL;
    if (copy) copy[strcspn(copy, "\r\n")] = 0;
    return copy;
}

/* What Ctrl-C meant is over; another signal stays. */
static void take_signal(void)
{
    line.signal = stop_signal();
    if (line.signal == SIGINT) stop_clear();
}

/* One line of the terminal without its end. Owner  the caller; NULL: none. */
static char *edit(void)
{
    int count = 0;
    line.left = false;
    line.columns = terminal_columns();
    hold_signals(true);
    (void)el_set(line.editor, EL_PREP_TERM, 1); /* before the prompt: keys count from then on */
    if (!line.dumb) fputs("\x1b[?2004h", line.out);
    fflush(line.out);
    const char *got = el_gets(line.editor, &count);
    if (count <= 0) got = NULL;
    if (!got) fputc('\n', line.out);
    if (!line.dumb) fputs("\x1b[?2004l", line.out);
    fflush(line.out);
    take_signal();
    hold_signals(false);
    return copy_line(got);
}

/* Owner  the caller; NULL: none. */
static char *next_line(const char *prompt)
{
    char *got = NULL;
    size_t room = 0;
    line.prompt = prompt;
    line.typed = false;
    if (line.editor) return edit();
    ssize_t bytes = getline(&got, &room, stdin);
    take_signal();
    char *copy = bytes < 0 ? NULL : copy_line(got);
    free(got);
    return copy;
}

/* Every `from` in the text becomes a line break, in place. */
static void signs_to_breaks(char *text)
{
    char *to = text;
    for (const char *from = text; *from;) {
        bool sign = strncmp(from, BREAK_SIGN, strlen(BREAK_SIGN)) == 0;
        *to++ = sign ? '\n' : *from;
        from += sign ? strlen(BREAK_SIGN) : 1;
    }
    *to = 0;
}

static char *breaks_to_signs(const char *text)
{
    size_t length = strlen(text), at = 0;
    char *out = malloc(length * strlen(BREAK_SIGN) + 1);
    for (; out && *text; text++) {
        if (*text == '\n') {
            memcpy(out + at, BREAK_SIGN, strlen(BREAK_SIGN));
            at += strlen(BREAK_SIGN);
        } else {
            out[at++] = *text;
        }
    }
    if (out) out[at] = 0;
    return out;
}

/* What is still missing of a message. */
typedef enum Rest { REST_NONE, REST_LINE, REST_BLOCK } Rest;

static Rest rest_of(char *text)
{
    size_t length = strlen(text), start = strspn(text, " \t");
    if (strncmp(text + start, "\"\"\"", 3) == 0) {
        while (length && strchr(" \t\n", text[length - 1])) length--;
        bool closed = length >= start + 6 && strncmp(text + length - 3, "\"\"\"", 3) == 0;
        if (!closed) return REST_BLOCK;
        length -= 3;
        if (text[length - 1] == '\n') length--; /* the one before the closing quotes */
        size_t first = start + 3 + (text[start + 3] == '\n');
        if (first > length) first = length;
        memmove(text, text + first, length - first);
        text[length - first] = 0;
        return REST_NONE;
    }
    if (!length || text[length - 1] != '\\') return REST_NONE;
    text[length - 1] = 0;
    return REST_LINE;
}

static bool append(char **text, const char *more)
{
    size_t a = strlen(*text), b = strlen(more);
    if (a + b > RUN_LINE_MESSAGE_BYTES_MAX) return false;
    char *grown = realloc(*text, a + b + 2);
    if (!grown) return false;
    grown[a] = '\n';
    memcpy(grown + a + 1, more, b + 1);
    *text = grown;
    return true;
}

static void remember(const char *message)
{
    char *shown = line.history ? breaks_to_signs(message) : NULL;
    if (!shown || !message[strspn(message, " \t\n")]) {
        free(shown);
        return;
    }
    enter(NULL, shown);
    free(shown);
    run_history_add(message);
}

/* Reading ended: by Ctrl-C, or for good. */
static RunLineEnd nothing(char *text)
{
    bool something = line.typed || text;
    free(text);
    if (line.signal != SIGINT || (line.interrupted && !something)) return RUN_LINE_OVER;
    clearerr(stdin);
    line.interrupted = !something;
    return something ? RUN_LINE_CLEARED : RUN_LINE_INTERRUPTED;
}

RunLineEnd run_line_read(char **out)
{
    char *text = next_line("> ");
    if (!text) return nothing(text);
    line.interrupted = false;
    signs_to_breaks(text);
    for (Rest rest; (rest = rest_of(text)) != REST_NONE;) {
        char *more = next_line("... ");
        if (!more) return nothing(text);
        signs_to_breaks(more);
        bool fits = append(&text, more);
        free(more);
        if (!fits) break;
    }
    remember(text);
    *out = text;
    return RUN_LINE_MESSAGE;
}
