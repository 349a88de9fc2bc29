/* SPDX-License-Identifier: Apache-2.0 */
/* See output.h. */
#include "output.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/plain.h"

/* A path, or a sentence of the library, with every byte of it escaped. */
#define PLAIN_SIZE 16384

static bool takes_colours(int descriptor)
{
    const char *no_color = getenv("NO_COLOR");
    const char *term = getenv("TERM");
    return isatty(descriptor) != 0 && (no_color == NULL || *no_color == '\0') &&
           (term == NULL || strcmp(term, "dumb") != 0);
}

bool output_begin(struct output *out, const char *command, const char *when, bool json)
{
    *out = (struct output){.json = json};
    if (when == NULL || strcmp(when, "auto") == 0) {
        out->colour = takes_colours(STDOUT_FILENO);
        out->error_colour = takes_colours(STDERR_FILENO);
    } else if (strcmp(when, "always") == 0) {
        out->colour = out->error_colour = true;
    } else if (strcmp(when, "never") != 0) {
        (void) fprintf(stderr, "%s: --color takes auto, always or never\n", command);
        return false;
    }
    return true;
}

static void note_error(struct output *out, bool good)
{
    if (!good && out->error == 0) {
        out->error = errno;
    }
}

void output_flush(struct output *out)
{
    note_error(out, fflush(stdout) == 0);
}

bool output_end(struct output *out, const char *command)
{
    note_error(out, fflush(stdout) == 0);
    /* Some file systems say so at the end alone that there is no room. A copy is closed, as exit closes the stream. */
    if (out->error == 0) {
        const int copy = dup(STDOUT_FILENO);
        note_error(out, copy >= 0 && close(copy) == 0);
    }
    if (out->error != 0) {
        (void) fprintf(stderr, "%s: standard output: %s\n", command, strerror(out->error));
    }
    return out->error == 0;
}

__attribute__((format(printf, 2, 3))) static void put(struct output *out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    note_error(out, vprintf(format, arguments) >= 0);
    va_end(arguments);
}

void output_text(struct output *out, const char *format, ...)
{
    if (out->json || out->quiet) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    note_error(out, vprintf(format, arguments) >= 0);
    va_end(arguments);
}

static const char *style_code(enum style style)
{
    static const char *const codes[] = {[STYLE_NAME] = "\033[1m", [STYLE_GOOD] = "\033[32m", [STYLE_BAD] = "\033[31m"};
    return codes[style];
}

void output_styled(struct output *out, enum style style, const char *text)
{
    char plain[PLAIN_SIZE];
    (void) plain_line(plain, sizeof(plain), text);
    const bool coloured = out->colour && style != STYLE_PLAIN;
    output_text(out, "%s%s%s", coloured ? style_code(style) : "", plain, coloured ? "\033[0m" : "");
}

void output_fault(struct output *out, const char *text)
{
    char plain[PLAIN_SIZE];
    (void) plain_line(plain, sizeof(plain), text);
    note_error(out, fflush(stdout) == 0);
    (void) fprintf(stderr, "%s%s%s\n", out->error_colour ? style_code(STYLE_BAD) : "", plain,
                   out->error_colour ? "\033[0m" : "");
}

void output_fault_of(struct output *out, const char *name, const char *text)
{
    char sentence[PLAIN_SIZE];
    (void) snprintf(sentence, sizeof(sentence), "%s: %s", name, text);
    output_fault(out, sentence);
}

/* A string of JSON. Bytes that are no UTF-8 are written as \xNN. */
static void put_string(struct output *out, const char *text)
{
    char plain[PLAIN_SIZE];
    (void) plain_line(plain, sizeof(plain), text);
    put(out, "\"");
    for (const char *c = plain; *c != '\0'; c++) {
        put(out, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
    }
    put(out, "\"");
}

/* What stands before a value: a comma, and its key. */
static void begin_value(struct output *out, const char *key)
{
    if (out->item) {
        put(out, ",");
    }
    if (key != NULL) {
        put(out, "\"%s\":", key);
    }
    out->item = true;
}

void output_open(struct output *out, const char *key, char bracket)
{
    if (out->json) {
        begin_value(out, key);
        put(out, "%c", bracket);
        out->item = false;
    }
}

void output_close(struct output *out, char bracket)
{
    if (out->json) {
        put(out, "%c", bracket);
        out->item = true;
    }
}

void output_string(struct output *out, const char *key, const char *text)
{
    if (out->json) {
        begin_value(out, key);
        put_string(out, text);
    }
}

void output_number(struct output *out, const char *key, uint64_t number)
{
    if (out->json) {
        begin_value(out, key);
        put(out, "%" PRIu64, number);
    }
}

void output_decimal(struct output *out, const char *key, double number)
{
    if (out->json) {
        begin_value(out, key);
        put(out, "%.3f", number);
    }
}

void output_flag(struct output *out, const char *key, bool flag)
{
    if (out->json) {
        begin_value(out, key);
        put(out, "%s", flag ? "true" : "false");
    }
}

void output_line(struct output *out)
{
    if (out->json) {
        put(out, "\n");
        out->item = false;
    }
}
