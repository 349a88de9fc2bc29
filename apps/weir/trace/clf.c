/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Common Log Format, and the Combined one, which adds two header fields:
 *
 *     198.51.100.7 - alice [25/Nov/2026:10:00:00 +0000] "GET /x HTTP/1.1" 200 1234 "https://from/" "curl/8"
 *
 * A line is read up to its status always, so that a cut line is malformed, and beyond that for the key and the cost
 * alone.
 */
#include <string.h>
#include <strings.h>

#include "formats.h"

/* The parts of a line behind its time. */
struct clf {
    struct span user, request;
    const char *behind; /* the status */
};

/* From the space behind the client to the bracket before the time. A name of a user may have spaces and brackets. */
static const char *find_time(struct line_reader *reader, const char *at, const char *end, struct record *out)
{
    while ((at = memchr(at, '[', (size_t) (end - at))) != NULL) {
        if (end - at > CLF_TIME_SIZE + 1 && at[CLF_TIME_SIZE + 1] == ']' && at[-1] == ' ' &&
            time_read_clf(&reader->cache, at + 1, &out->time_ms)) {
            return at;
        }
        at++;
    }
    return NULL;
}

/* The user: behind the client and the identity, up to the time. */
static struct span user_of(const char *at, const char *time)
{
    const char *user = memchr(at, ' ', (size_t) (time - at));
    user = user != NULL ? user + 1 : time;
    return (struct span){user, user < time ? (size_t) (time - 1 - user) : 0};
}

/* The `number`th string in quotes behind the size. */
static bool header_of(const char *at, const char *end, int number, struct span *out)
{
    for (int i = 0;; i++) {
        const char *first = memchr(at, '"', (size_t) (end - at));
        const char *last = first != NULL ? fields_quote_end(first + 1, end) : NULL;
        if (last == NULL) {
            return false;
        }
        if (i == number) {
            *out = (struct span){first + 1, (size_t) (last - first - 1)};
            return true;
        }
        at = last + 1;
    }
}

static bool take_key(struct line_reader *reader, const struct clf *clf, const char *end, struct record *out)
{
    const struct selection *s = reader->selection;
    struct span header;
    switch (s->key) {
    case KEY_USER:
        fields_text(out, clf->user);
        return true;
    case KEY_PATH:
        return fields_path(out, fields_target(clf->request), s->depth);
    case KEY_HEADER:
        if (!header_of(clf->behind, end, strcasecmp(s->key_name, "referer") == 0 ? 0 : 1, &header)) {
            return false;
        }
        fields_text(out, header);
        return true;
    default:
        return false;
    }
}

/* The size: behind the status; "-" is none. */
static bool take_size(const char *status, const char *end, struct record *out)
{
    const char *size = status + 4;
    if (size > end) {
        return false;
    }
    const char *stop = memchr(size, ' ', (size_t) (end - size));
    const struct span text = {size, (size_t) ((stop != NULL ? stop : end) - size)};
    out->cost = 0;
    return (text.length == 1 && *size == '-') || fields_number(text, &out->cost);
}

enum line clf_read(struct line_reader *reader, const char *line, const char *end, struct record *out)
{
    const char *space = memchr(line, ' ', (size_t) (end - line));
    if (line == end) {
        return LINE_EMPTY;
    }
    if (space == NULL || space == line) {
        return LINE_MALFORMED;
    }
    const char *time = find_time(reader, space + 1, end, out);
    if (time == NULL) {
        return LINE_MALFORMED;
    }
    const char *request = time + CLF_TIME_SIZE + 3;
    if (request >= end || *request != '"') {
        return LINE_MALFORMED;
    }
    const char *quote = fields_quote_end(request + 1, end);
    if (quote == NULL || end - quote < 5 || quote[1] != ' ' || quote[2] < '0' || quote[2] > '9') {
        return LINE_MALFORMED;
    }
    out->cost = 1;
    out->whole = true;
    if (reader->selection->bytes && !take_size(quote + 2, end, out)) {
        return LINE_MALFORMED;
    }
    if (reader->selection->key == KEY_ADDRESS) {
        fields_address(out, (struct span){line, (size_t) (space - line)}, reader->selection->prefix, reader->scratch);
        return LINE_RECORD;
    }
    const struct clf clf = {user_of(space + 1, time), {request + 1, (size_t) (quote - request - 1)}, quote + 2};
    return take_key(reader, &clf, end, out) ? LINE_RECORD : LINE_MALFORMED;
}
