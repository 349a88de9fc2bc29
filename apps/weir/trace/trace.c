/* SPDX-License-Identifier: Apache-2.0 */
/* See trace.h. */
#include "trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "packets.h"

/* What is read at once, and the longest line; a longer one is malformed. */
#define BUFFER_SIZE (1 << 18)

/* The lines by which a format is found; where they may all be empty, twice as many, and so on. */
#define DETECT_LINES 20

#define BIT(key) (1U << (key))

const struct format formats[FORMAT_COUNT] = {
    [FORMAT_CLF] = {"combined", clf_read, BIT(KEY_ADDRESS) | BIT(KEY_USER) | BIT(KEY_PATH) | BIT(KEY_HEADER), true},
    [FORMAT_JSON] = {"json", json_read, BIT(KEY_ADDRESS) | BIT(KEY_USER) | BIT(KEY_PATH) | BIT(KEY_FIELD), true},
    [FORMAT_HAPROXY] = {"haproxy", haproxy_read, BIT(KEY_ADDRESS) | BIT(KEY_PATH) | BIT(KEY_HEADER), true},
    [FORMAT_CSV] = {"csv", csv_read, BIT(KEY_ADDRESS) | BIT(KEY_FIELD), false},
    [FORMAT_PCAP] = {"pcap", NULL, BIT(KEY_ADDRESS), true},
};

/* Moves what is not read yet to the front, and reads more behind it. False: there is no more. */
static bool refill(struct trace *t)
{
    if (t->at != 0) {
        memmove(t->buffer, t->buffer + t->at, t->end - t->at);
        t->end -= t->at;
        t->at = 0;
    }
    const ptrdiff_t got = t->ended ? 0 : bytes_read(t->bytes, t->buffer + t->end, BUFFER_SIZE - t->end, &t->fault);
    t->failed = t->failed || got == -1;
    t->stopped = t->stopped || got == -2;
    t->ended = got <= 0;
    t->end += got > 0 ? (size_t) got : 0;
    return got > 0;
}

/* Whether the buffer has so many lines, or no room for more. */
static bool has_lines(const struct trace *t, unsigned most)
{
    const char *at = t->buffer;
    const char *end = t->buffer + t->end;
    for (unsigned lines = 0; lines < most; lines++) {
        at = memchr(at, '\n', (size_t) (end - at));
        if (at == NULL) {
            return t->end == BUFFER_SIZE;
        }
        at++;
    }
    return true;
}

/* Reads on until the buffer has so many lines. A pipe may give less at once. */
static void read_lines(struct trace *t, unsigned lines)
{
    while (!has_lines(t, lines) && refill(t)) {
    }
}

/* How many of the first `most` lines of the buffer a format reads. *all_empty: to the format they are no requests. */
static unsigned count_read(struct trace *t, const struct format *format, unsigned most, bool *all_empty)
{
    struct record record;
    struct selection plain = {.key = KEY_ADDRESS, .prefix = 128};
    struct line_reader reader = {.selection = &plain};
    unsigned count = 0;
    const char *at = t->buffer;
    memcpy(plain.names, t->reader.selection->names, sizeof(plain.names));
    for (unsigned lines = 0; lines < most && at < t->buffer + t->end; lines++) {
        const char *end = memchr(at, '\n', (size_t) (t->buffer + t->end - at));
        if (end == NULL && !t->ended) {
            break;
        }
        end = end != NULL ? end : t->buffer + t->end;
        const char *last = end > at && end[-1] == '\r' ? end - 1 : end;
        const enum line line = format->read(&reader, at, last, &record);
        count += line == LINE_RECORD;
        *all_empty = *all_empty && line == LINE_EMPTY;
        at = end + 1;
    }
    return count;
}

/* The format that reads most of the first lines; NULL: none reads any. *more: those behind them may tell. */
static const struct format *detect_by(struct trace *t, unsigned lines, bool *more)
{
    unsigned most = 0;
    const struct format *found = NULL;
    *more = false;
    for (int i = 0; i < FORMAT_COUNT; i++) {
        bool all_empty = formats[i].read != NULL;
        const unsigned count = formats[i].read != NULL ? count_read(t, &formats[i], lines, &all_empty) : 0;
        *more = *more || all_empty;
        if (count > most) {
            most = count;
            found = &formats[i];
        }
    }
    return packets_detect((const unsigned char *) t->buffer, t->end) ? &formats[FORMAT_PCAP] : found;
}

/* The format of the trace; NULL: it is of none that is known. How much a read gives makes no difference. */
static const struct format *detect(struct trace *t)
{
    bool more;
    const struct format *found = detect_by(t, DETECT_LINES, &more);
    for (unsigned lines = 2 * DETECT_LINES; found == NULL && more && !t->ended && t->end < BUFFER_SIZE; lines *= 2) {
        read_lines(t, lines);
        found = detect_by(t, lines, &more);
    }
    return found;
}

/* A stream of stdio over what is left of a trace, for libpcap. */
static ssize_t read_cookie(void *arg, char *out, size_t size)
{
    struct trace *t = arg;
    if (t->at == t->end && !refill(t)) {
        return t->failed || t->stopped ? -1 : 0;
    }
    const size_t ready = t->end - t->at;
    const size_t given = ready < size ? ready : size;
    memcpy(out, t->buffer + t->at, given);
    t->at += given;
    return (ssize_t) given;
}

static bool open_packets(struct trace *t)
{
    FILE *file = fopencookie(t, "r", (cookie_io_functions_t){.read = read_cookie});
    if (file == NULL) {
        (void) snprintf(t->fault.text, sizeof(t->fault.text), "out of memory");
        return false;
    }
    t->packets = packets_open(file, t->reader.selection, &t->fault);
    return t->packets != NULL;
}

/* Whether there are such keys and costs in the format. */
static bool fits(struct trace *t, const struct selection *s)
{
    static const char *const keys[] = {[KEY_ADDRESS] = "address",
                                       [KEY_USER] = "user",
                                       [KEY_PATH] = "path",
                                       [KEY_HEADER] = "header",
                                       [KEY_FIELD] = "field"};
    if ((t->format->keys & BIT(s->key)) == 0) {
        (void) snprintf(t->fault.text, sizeof(t->fault.text), "a %s trace has no key \"%s\"", t->format->name,
                        keys[s->key]);
    } else if (s->bytes && !t->format->bytes) {
        (void) snprintf(t->fault.text, sizeof(t->fault.text), "a %s trace has no sizes for --cost=bytes",
                        t->format->name);
    } else {
        return true;
    }
    return false;
}

bool trace_open(struct trace *t, const char *path, const struct format *format, const struct selection *selection,
                bool *malformed)
{
    *t = (struct trace){.name = strcmp(path, "-") == 0 ? "<stdin>" : path, .reader = {.selection = selection}};
    *malformed = false;
    t->bytes = bytes_open(path, &t->fault);
    t->buffer = t->bytes != NULL ? calloc(1, BUFFER_SIZE) : NULL;
    if (t->buffer == NULL) {
        return false;
    }
    read_lines(t, DETECT_LINES);
    if (t->failed && t->end == 0) {
        return false;
    }
    *malformed = true;
    t->format = format != NULL ? format : detect(t);
    if (t->format == NULL) {
        (void) snprintf(t->fault.text, sizeof(t->fault.text), "%s",
                        t->end == 0
                            ? "is empty"
                            : "its first lines are of no known format; give --format, or see weir help simulate");
        return false;
    }
    return fits(t, selection) && (t->format->read != NULL || open_packets(t));
}

void trace_close(struct trace *t)
{
    packets_close(t->packets);
    bytes_close(t->bytes);
    free(t->buffer);
    *t = (struct trace){NULL};
}

static void keep_example(struct trace *t, const char *line, const char *end)
{
    if (t->malformed_count++ == 0) {
        const size_t length = (size_t) (end - line);
        const size_t kept = length < EXAMPLE_SIZE - 1 ? length : EXAMPLE_SIZE - 1;
        memcpy(t->example, line, kept);
        for (size_t i = 0; i < kept; i++) {
            t->example[i] = t->example[i] == '\0' ? '?' : t->example[i];
        }
        t->example[kept] = '\0';
        t->example_line = t->line_count;
    }
}

/* The end of the next line: at its line end, or at the end of the trace; NULL: there is no line. */
static const char *next_line(struct trace *t)
{
    size_t searched = 0;
    for (;;) {
        const char *first = t->buffer + t->at;
        const char *end = memchr(first + searched, '\n', t->end - t->at - searched);
        if (end != NULL) {
            return end;
        }
        searched = t->end - t->at;
        if (searched == BUFFER_SIZE) {
            return t->buffer + t->end; /* cut: the rest is a malformed line too */
        }
        if (!refill(t)) {
            return t->at < t->end ? t->buffer + t->end : NULL;
        }
    }
}

static bool next_packet(struct trace *t)
{
    uint64_t malformed = 0;
    const int result = packets_next(t->packets, &t->head, &malformed, &t->fault);
    t->failed = t->failed || (result < 0 && !t->stopped);
    t->malformed_count += malformed;
    t->line_count += malformed + (result > 0);
    t->record_count += result > 0;
    return result > 0;
}

bool trace_next(struct trace *t)
{
    if (t->packets != NULL) {
        return next_packet(t);
    }
    for (;;) {
        const char *end = next_line(t);
        if (end == NULL) {
            return false;
        }
        const char *line = t->buffer + t->at;
        const char *last = end > line && end[-1] == '\r' ? end - 1 : end;
        t->at = (size_t) (end - t->buffer) + (end < t->buffer + t->end);
        t->line_count++;
        switch (t->format->read(&t->reader, line, last, &t->head)) {
        case LINE_RECORD:
            t->record_count++;
            return true;
        case LINE_MALFORMED:
            keep_example(t, line, last);
            break;
        case LINE_EMPTY:
            break;
        }
    }
}
