/* SPDX-License-Identifier: Apache-2.0 */
#include "log.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/plain.h"
#include "denial_line.h"
#include "policy/words.h"

/* Sizes of a message, before and after it is made plain, and of a line, in which JSON may double it. */
#define MESSAGE_SIZE 2048
#define PLAIN_SIZE   (2 * MESSAGE_SIZE)
#define FIELD_SIZE   512
#define LINE_SIZE    (3 * PLAIN_SIZE)

/* Seconds between two lines of one kind that log_is_due() allows. */
#define DUE_SECONDS 60

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const char *const level_names[] = {"error", "warning", "info"};
static const struct word_alias level_aliases[] = {
    {"err", "error"},   {"crit", "error"},   {"critical", "error"}, {"alert", "error"}, {"emerg", "error"},
    {"fatal", "error"}, {"warn", "warning"}, {"notice", "info"},    {"debug", "info"},  {"trace", "info"},
};
static const struct words levels = {level_names, COUNT(level_names), level_aliases, COUNT(level_aliases)};

static const char *const format_names[] = {"text", "journal", "json"};
static const struct word_alias format_aliases[] = {
    {"plain", "text"},       {"logfmt", "text"},     {"combined", "text"},  {"common", "text"},
    {"journald", "journal"}, {"systemd", "journal"}, {"syslog", "journal"},
};
static const struct words formats = {format_names, COUNT(format_names), format_aliases, COUNT(format_aliases)};

/* Written by log_start, at the start and at a reload. A line that is written meanwhile may have either. */
static _Atomic weir_log_level most_level = WEIR_LOG_INFO;
static _Atomic enum log_format line_format = LOG_COMMAND;
static _Atomic bool without_denials;

static size_t find_word(const struct words *words, const char *word, char *why, size_t size)
{
    const size_t found = words_find(words, word);
    if (found == WORD_NONE) {
        char list[64];
        const char *meant = words_meant(words, word);
        (void) snprintf(why, size, "%s%s%s%s", meant != NULL ? "did you mean \"" : "give one of ",
                        meant != NULL ? meant : "", meant != NULL ? "\"? There are " : "",
                        words_list(words, list, sizeof(list)));
    }
    return found;
}

bool log_find_level(const char *word, weir_log_level *out, char *why, size_t size)
{
    const size_t found = find_word(&levels, word, why, size);
    *out = found != WORD_NONE ? (weir_log_level) found : *out;
    return found != WORD_NONE;
}

bool log_find_format(const char *word, enum log_format *out, char *why, size_t size)
{
    const size_t found = find_word(&formats, word, why, size);
    *out = found != WORD_NONE ? (enum log_format)(LOG_TEXT + found) : *out;
    return found != WORD_NONE;
}

enum log_format log_default_format(void)
{
    /* "device:inode" of the stream: a program that stderr was given to since has another one. See systemd.exec(5). */
    const char *stream = getenv("JOURNAL_STREAM");
    struct stat stat;
    char ours[64];
    if (stream == NULL || fstat(STDERR_FILENO, &stat) != 0) {
        return LOG_TEXT;
    }
    (void) snprintf(ours, sizeof(ours), "%ju:%ju", (uintmax_t) stat.st_dev, (uintmax_t) stat.st_ino);
    return strcmp(ours, stream) == 0 ? LOG_JOURNAL : LOG_TEXT;
}

void log_start(weir_log_level most, enum log_format format)
{
    most_level = most;
    line_format = format;
}

void log_denials(bool wanted)
{
    without_denials = !wanted;
}

/* A line that is being written: what has no room is left out, and the end of the line always has. */
struct line {
    char bytes[LINE_SIZE];
    size_t length;
};

__attribute__((format(printf, 2, 3))) static void add(struct line *line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const size_t room = sizeof(line->bytes) - 1 - line->length; /* but for the newline */
    const int n = vsnprintf(line->bytes + line->length, room, format, arguments);
    va_end(arguments);
    if (n > 0) {
        line->length += (size_t) n < room ? (size_t) n : room - 1;
    }
}

/* The time in UTC, to the millisecond. */
static void add_time(struct line *line)
{
    struct timespec now;
    struct tm parts;
    char text[32];
    (void) clock_gettime(CLOCK_REALTIME, &now);
    (void) gmtime_r(&now.tv_sec, &parts);
    (void) strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts);
    add(line, "%s.%03ldZ", text, now.tv_nsec / 1000000);
}

/* Plain text as a string of JSON. */
static void add_string(struct line *line, const char *plain)
{
    add(line, "\"");
    for (const char *c = plain; *c != '\0'; c++) {
        add(line, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
    }
    add(line, "\"");
}

static void add_fields(struct line *line, const struct log_field *fields, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        add(line, ",\"%s\":", fields[i].name);
        if (fields[i].text != NULL) {
            char plain[FIELD_SIZE];
            (void) plain_line(plain, sizeof(plain), fields[i].text);
            add_string(line, plain);
        } else {
            add(line, "%" PRIu64, fields[i].number);
        }
    }
}

static void add_denial(struct line *line, const struct denial_line *denial)
{
    add(line,
        ",\"policy\":\"%s\",\"state\":\"%s\",\"denied\":%" PRIu64 ",\"would_deny\":%" PRIu64 ",\"seconds\":%" PRIu64
        ",\"offenders\":[",
        denial->policy, denial->state, denial->denied, denial->would_deny, denial->seconds);
    for (size_t i = 0; i < denial->key_count; i++) {
        add(line, "%s{\"key\":", i != 0 ? "," : "");
        add_string(line, denial->keys[i].key);
        add(line, ",\"units\":%" PRIu64 "}", denial->keys[i].units);
    }
    add(line, "]");
}

/* Writes the beginning of a line, up to the message. */
static void begin(struct line *line, weir_log_level level, enum log_format format)
{
    static const int priorities[] = {3, 4, 6}; /* of syslog, by level */
    line->length = 0;
    switch (format) {
    case LOG_JSON:
        add(line, "{\"time\":\"");
        add_time(line);
        add(line, "\",\"level\":\"%s\",\"message\":", level_names[level]);
        break;
    case LOG_JOURNAL:
        add(line, "<%d>", priorities[level]);
        break;
    case LOG_TEXT:
        add_time(line);
        add(line, " weir-gateway: %s: ", level_names[level]);
        break;
    case LOG_COMMAND:
    default:
        add(line, "weir-gateway: %s", level == WEIR_LOG_WARNING ? "warning: " : "");
        break;
    }
}

static void end(struct line *line)
{
    line->bytes[line->length++] = '\n';
    (void) !write(STDERR_FILENO, line->bytes, line->length); /* the reader of the log may close it */
}

static void write_message(weir_log_level level, const char *message, const struct log_field *fields, size_t count,
                          const struct denial_line *denial)
{
    struct line line;
    char plain[PLAIN_SIZE];
    const enum log_format format = line_format;
    (void) plain_line(plain, sizeof(plain), message);
    begin(&line, level, format);
    if (format != LOG_JSON) {
        add(&line, "%s", plain);
    } else {
        add_string(&line, plain);
        add_fields(&line, fields, count);
        if (denial != NULL) {
            add_denial(&line, denial);
        }
        add(&line, "}");
    }
    end(&line);
}

__attribute__((format(printf, 4, 0))) static void write_format(weir_log_level level, const struct log_field *fields,
                                                               size_t field_count, const char *format,
                                                               va_list arguments)
{
    char message[MESSAGE_SIZE];
    if (level <= most_level) {
        (void) vsnprintf(message, sizeof(message), format, arguments);
        write_message(level, message, fields, field_count, NULL);
    }
}

void log_event(weir_log_level level, const struct log_field *fields, size_t field_count, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    write_format(level, fields, field_count, format, arguments);
    va_end(arguments);
}

bool log_is_due(_Atomic uint32_t *last, uint32_t now)
{
    uint32_t written = atomic_load_explicit(last, memory_order_relaxed);
    return (written == 0 || now - written >= DUE_SECONDS) &&
           atomic_compare_exchange_strong_explicit(last, &written, now, memory_order_relaxed, memory_order_relaxed);
}

void log_line(weir_log_level level, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    write_format(level, NULL, 0, format, arguments);
    va_end(arguments);
}

void log_library(void *arg, weir_log_level level, const char *message)
{
    struct denial_line denial;
    (void) arg;
    if (level > most_level) {
        return;
    }
    const bool is_denial = denial_line_read(message, &denial);
    if (!is_denial || !without_denials) {
        write_message(level, message, NULL, 0, is_denial ? &denial : NULL);
    }
}
