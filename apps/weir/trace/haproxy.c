/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP log of HAProxy, with what syslog writes before it or without:
 *
 *     Nov 25 10:00:00 lb haproxy[14]: 198.51.100.7:40000 [25/Nov/2026:10:00:00.655] web app/s1 10/0/30/69/109 200 2750
 *         - - ---- 1/1/1/1/0 0/0 {curl/8} {} "GET /x HTTP/1.1"
 *
 * and its TCP log, of a connection when it ends:
 *
 *     198.51.100.7:40000 [25/Nov/2026:10:00:00.655] front back/s1 0/0/5007 212 -- 0/0/0/0/3 0/0
 */
#include <stdlib.h>
#include <string.h>

#include "formats.h"

/* The fields behind the time, counted from 0. */
enum { TCP_TIMES_AT = 2, TCP_SIZE_AT = 3, SIZE_AT = 4 };

/* The bracket before the time. */
static const char *find_time(struct line_reader *reader, const char *line, const char *end, struct record *out)
{
    const char *at = line;
    while ((at = memchr(at, '[', (size_t) (end - at))) != NULL) {
        const char *close = memchr(at, ']', (size_t) (end - at));
        if (close == NULL) {
            return NULL;
        }
        if (at - line >= 2 && at[-1] == ' ' &&
            time_read_haproxy(&reader->cache, at + 1, (size_t) (close - at - 1), &out->time_ms)) {
            return at;
        }
        at++;
    }
    return NULL;
}

/* "198.51.100.7:40000" before the time, without the port. */
static bool client_of(const char *line, const char *time, struct span *out)
{
    const char *space = memrchr(line, ' ', (size_t) (time - 1 - line));
    const char *first = space != NULL ? space + 1 : line;
    const char *colon = memrchr(first, ':', (size_t) (time - 1 - first));
    if (colon == NULL || colon == first) {
        return false;
    }
    *out = (struct span){first, (size_t) (colon - first)};
    return true;
}

/* The `number`th field behind the time. */
static struct span field_of(const char *at, const char *end, int number)
{
    for (int i = 0; i < number && at != NULL; i++) {
        at = memchr(at, ' ', (size_t) (end - at));
        at = at != NULL ? at + 1 : NULL;
    }
    const char *stop = at != NULL ? memchr(at, ' ', (size_t) (end - at)) : NULL;
    return stop != NULL ? (struct span){at, (size_t) (stop - at)} : (struct span){NULL, 0};
}

/* The `number`th header field of a request that the configuration captures, counted from 1: in the first braces. */
static bool captured(const char *at, const char *end, long number, struct span *out)
{
    const char *first = memchr(at, '{', (size_t) (end - at));
    const char *close = first != NULL ? memchr(first, '}', (size_t) (end - first)) : NULL;
    if (close == NULL) {
        return false;
    }
    for (first++; number > 1; number--) {
        first = memchr(first, '|', (size_t) (close - first));
        if (first == NULL) {
            return false;
        }
        first++;
    }
    const char *stop = memchr(first, '|', (size_t) (close - first));
    *out = (struct span){first, (size_t) ((stop != NULL ? stop : close) - first)};
    return true;
}

/* Whether the fields are those of a TCP log, where there is no request: three times, and a number of bytes. */
static bool is_tcp(const char *at, const char *end)
{
    const struct span times = field_of(at, end, TCP_TIMES_AT);
    const struct span size = field_of(at, end, TCP_SIZE_AT);
    unsigned slashes = 0;
    bool numbers = size.length != 0 && size.text[size.length - 1] >= '0' && size.text[size.length - 1] <= '9';
    for (size_t i = 0; i < times.length; i++) {
        slashes += times.text[i] == '/';
        numbers = numbers && strchr("0123456789/+-", times.text[i]) != NULL && times.text[i] != '\0';
    }
    return numbers && slashes == 2;
}

/* The key of a connection, which has no request. */
static enum line take_client(struct line_reader *reader, struct span client, struct record *out)
{
    if (reader->selection->key == KEY_ADDRESS) {
        return fields_address(out, client, reader->selection, reader->scratch) ? LINE_RECORD : LINE_NO_CLIENT;
    }
    fields_all(out);
    return reader->selection->key == KEY_ALL ? LINE_RECORD : LINE_MALFORMED;
}

/* `request`: its first quote; NULL: there is none. */
static enum line take_key(struct line_reader *reader, struct span client, const char *behind, const char *request,
                          const char *end, struct record *out)
{
    const struct selection *s = reader->selection;
    const char *quote = request != NULL ? fields_quote_end(request + 1, end) : NULL;
    struct span header;
    if (quote == NULL) {
        return LINE_MALFORMED;
    }
    const struct span target = fields_target((struct span){request + 1, (size_t) (quote - request - 1)});
    switch (s->key) {
    case KEY_ADDRESS:
        return fields_address(out, client, s, reader->scratch) ? LINE_RECORD : LINE_NO_CLIENT;
    case KEY_PATH:
        return fields_path(out, target, s->depth) ? LINE_RECORD : LINE_MALFORMED;
    case KEY_HEADER:
        if (!captured(behind, request, strtol(s->key_name, NULL, 10), &header)) {
            return LINE_MALFORMED;
        }
        fields_text(out, header);
        return LINE_RECORD;
    case KEY_ALL:
        fields_all(out);
        return LINE_RECORD;
    default:
        return LINE_MALFORMED;
    }
}

enum line haproxy_read(struct line_reader *reader, const char *line, const char *end, struct record *out)
{
    struct span client;
    if (line == end) {
        return LINE_EMPTY;
    }
    const char *time = find_time(reader, line, end, out);
    if (time == NULL || !client_of(line, time, &client)) {
        return LINE_MALFORMED;
    }
    const char *behind = memchr(time, ']', (size_t) (end - time));
    if (end - behind < 3 || behind[1] != ' ') {
        return LINE_MALFORMED;
    }
    behind += 2;
    out->whole = false;
    out->cost = 1;
    const char *request = memchr(behind, '"', (size_t) (end - behind));
    const bool tcp = request == NULL && is_tcp(behind, end);
    if (reader->selection->bytes) {
        struct span size = field_of(behind, end, tcp ? TCP_SIZE_AT : SIZE_AT);
        if (size.length != 0 && *size.text == '+') { /* option logasap: more followed */
            size = (struct span){size.text + 1, size.length - 1};
        }
        if (!fields_number(size, &out->cost)) {
            return LINE_MALFORMED;
        }
    }
    return tcp ? take_client(reader, client, out) : take_key(reader, client, behind, request, end, out);
}
