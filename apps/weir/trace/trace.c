/* SPDX-License-Identifier: Apache-2.0 */
/* See trace.h. */
#include "trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/plain.h"
#include "packets.h"
#include "prefix.h"

/* What is read at once, and the longest line; a longer one is malformed. */
#define BUFFER_SIZE (1 << 18)

/* The lines by which a format is found; where they may all be empty, twice as many, and so on. */
#define DETECT_LINES 20

#define BIT(key) (1U << (key))

const struct format formats[FORMAT_COUNT] = {
    [FORMAT_CLF] = {"combined", clf_read, BIT(KEY_USER) | BIT(KEY_PATH) | BIT(KEY_HEADER), true, false},
    [FORMAT_JSON] = {"json", json_read, BIT(KEY_USER) | BIT(KEY_PATH) | BIT(KEY_FIELD), true, true},
    [FORMAT_HAPROXY] = {"haproxy", haproxy_read, BIT(KEY_PATH) | BIT(KEY_HEADER), true, true},
    [FORMAT_ALB] = {"alb", alb_read, BIT(KEY_PATH) | BIT(KEY_HEADER), true, true},
    [FORMAT_W3C] = {"w3c", w3c_read, BIT(KEY_USER) | BIT(KEY_PATH), true, true},
    [FORMAT_CSV] = {"csv", csv_read, BIT(KEY_FIELD), false, true},
    [FORMAT_PCAP] = {"pcap", NULL, 0, true, false},
};

/* Keys of every format. */
#define KEYS_OF_ALL (BIT(KEY_ADDRESS) | BIT(KEY_ALL))

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

/* The line that a line of JSON carries. NULL: it carries none. */
static const char *carried_line(struct trace *t, const char *line, const char *end, const char **carried_end)
{
    if (t->carried == NULL) {
        t->carried = malloc(BUFFER_SIZE);
    }
    const size_t length = t->carried != NULL ? json_carried(line, end, t->carried, BUFFER_SIZE) : 0;
    *carried_end = t->carried + length;
    return length != 0 ? t->carried : NULL;
}

/* Reads a line without what stands before it: see prefix.h. */
static enum line read_behind(struct trace *t, const struct format *format, struct line_reader *reader, const char *line,
                             const char *end, struct record *out)
{
    const char *at = prefix_skip(line, end);
    const char *inner = NULL, *inner_end = NULL;
    enum line result = LINE_MALFORMED;
    const bool may_carry = at < end && *at == '{';
    if ((!may_carry || format == &formats[FORMAT_JSON]) && (at != line || !format->bare)) {
        result = format->read(reader, at, end, out);
    }
    if (may_carry && result == LINE_MALFORMED) {
        inner = carried_line(t, at, end, &inner_end);
    }
    return inner != NULL ? format->read(reader, prefix_skip(inner, inner_end), inner_end, out) : result;
}

/* Reads a line, whatever stands before it. */
static enum line read_line(struct trace *t, const struct format *format, struct line_reader *reader, const char *line,
                           const char *end, struct record *out)
{
    if (!format->bare && prefix_may_be(line, end)) {
        return read_behind(t, format, reader, line, end, out);
    }
    const bool wraps = format->bare && line < end && *line == '{' && format != &formats[FORMAT_JSON];
    const enum line result = wraps ? LINE_MALFORMED : format->read(reader, line, end, out);
    return result == LINE_MALFORMED && format->bare ? read_behind(t, format, reader, line, end, out) : result;
}

/* How many of the first `most` lines of the buffer a format reads. *all_empty: to the format they are no requests. */
static unsigned count_read(struct trace *t, const struct format *format, unsigned most, bool *all_empty)
{
    unsigned hosts = 0;
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
        const enum line line = read_line(t, format, &reader, at, last, &record);
        const bool is_read = line == LINE_RECORD || line == LINE_NO_CLIENT;
        count += is_read;
        hosts += is_read && reader.found_host;
        *all_empty = *all_empty && line == LINE_EMPTY;
        at = end + 1;
    }
    t->reader.hosted = 2 * hosts > count;
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
    if (((t->format->keys | KEYS_OF_ALL) & BIT(s->key)) == 0) {
        (void) snprintf(t->fault.text, sizeof(t->fault.text), "a %s trace has no key \"%s\"", t->format->name,
                        keys[s->key]);
    } else if (s->bytes && !t->format->bytes) {
        (void) snprintf(t->fault.text, sizeof(t->fault.text), "a %s trace has no sizes for --cost=bytes",
                        t->format->name);
    } else if (t->format->read != NULL && (s->service.port != 0 || s->service.address.length != 0)) {
        (void) snprintf(t->fault.text, sizeof(t->fault.text), "a %s trace has no packets for --to and --port",
                        t->format->name);
    } else {
        return true;
    }
    return false;
}

/* Says which formats there are, and how the trace begins. */
static void tell_unknown(struct trace *t)
{
    char quoted[3 * EXAMPLE_SIZE];
    const char *first = t->buffer;
    const char *end = t->buffer + t->end;
    while (first < end && (*first == '\n' || *first == '\r')) {
        first++;
    }
    const char *stop = memchr(first, '\n', (size_t) (end - first));
    const size_t length = (size_t) ((stop != NULL ? stop : end) - first);
    if (t->end == 0 || length == 0) {
        (void) snprintf(t->fault.text, sizeof(t->fault.text), "is empty");
        return;
    }
    (void) plain_bytes(quoted, sizeof(quoted), first, length < EXAMPLE_SIZE ? length : EXAMPLE_SIZE);
    (void) snprintf(t->fault.text, sizeof(t->fault.text),
                    "is of no known format; there are common, combined, json, haproxy, alb, w3c, csv and pcap%s. Its "
                    "first line is \"%s%s\"",
                    *first == '{' ? " (what JSON calls its time and address is for --fields=time=...,address=...)" : "",
                    quoted, length > EXAMPLE_SIZE ? "..." : "");
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
    if (t->format == &formats[FORMAT_CLF]) {
        bool unused = true;
        (void) count_read(t, t->format, DETECT_LINES, &unused);
    }
    if (t->format == NULL) {
        tell_unknown(t);
        return false;
    }
    return fits(t, selection) && (t->format->read != NULL || open_packets(t));
}

void trace_close(struct trace *t)
{
    packets_close(t->packets);
    bytes_close(t->bytes);
    free(t->buffer);
    free(t->carried);
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

/* A key that is no address. Those of CSV are as they are. */
static void note_foreign(struct trace *t)
{
    if (t->format != &formats[FORMAT_CSV] && t->foreign_count++ == 0) {
        (void) plain_bytes(t->foreign, sizeof(t->foreign), t->head.key, t->head.length);
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

/* What costs nothing costs 1, but for packets to the gateway. */
static void count_record(struct trace *t, bool is_one)
{
    t->record_count += is_one;
    if (t->head.cost == 0 && !t->reader.selection->packets) {
        t->head.cost = 1;
    }
}

static bool next_packet(struct trace *t)
{
    const int result = packets_next(t->packets, &t->head, &t->fault);
    const struct packet_counts *left = packets_counts(t->packets);
    t->failed = t->failed || (result < 0 && !t->stopped);
    count_record(t, result > 0);
    t->packet_count += result > 0;
    t->malformed_count = left->kinds[DATAGRAM_CUT];
    t->line_count = t->packet_count + left->elsewhere;
    for (int i = 0; i < DATAGRAM_KINDS; i++) {
        t->line_count += left->kinds[i];
    }
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
        switch (read_line(t, t->format, &t->reader, line, last, &t->head)) {
        case LINE_RECORD:
            t->head.kind = 0;
            count_record(t, true);
            if (!t->head.address && t->reader.selection->key == KEY_ADDRESS) {
                note_foreign(t);
            }
            return true;
        case LINE_NO_CLIENT:
            t->clientless_count++;
            break;
        case LINE_MALFORMED:
            keep_example(t, line, last);
            break;
        case LINE_EMPTY:
            break;
        }
    }
}
