/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Common Log Format, and the Combined one, which adds two header fields:
 *
 *     198.51.100.7 - alice [25/Nov/2026:10:00:00 +0000] "GET /x HTTP/1.1" 200 1234 "https://from/" "curl/8"
 *
 * The client is the first address before the time: a name of a virtual host may stand before it, and behind it the rest
 * of a list, as of X-Forwarded-For. Where there is no address it is the first word, the name of a host.
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

/* Words before the time among which the client's address is. */
#define WORDS_MOST 4

/* A word, or what stands in quotes. Returns what is behind it: a space, or `end`. */
static const char *read_word(const char *at, const char *end, struct span *out)
{
    const char *quote = at < end && *at == '"' ? memchr(at + 1, '"', (size_t) (end - at - 1)) : NULL;
    const char *stop = quote != NULL ? quote + 1 : memchr(at, ' ', (size_t) (end - at));
    stop = stop != NULL ? stop : end;
    *out = (struct span){at, (size_t) (stop - at)};
    return stop;
}

/* What a line has before its time. */
struct head {
    struct span client;
    struct address_bytes address; /* of the client */
    bool known;                   /* the client is an address */
    const char *behind;           /* the space behind the client */
};

/*
 * Finds the client. `hosted`: a host stands before the client on most lines, and may be an address. False: the line has
 * no word with a space behind it.
 */
static bool find_client(const char *line, const char *end, bool hosted, struct head *out)
{
    const char *stop = read_word(line, end, &out->client);
    if (stop == line) {
        return false;
    }
    struct span word = out->client;
    out->behind = stop;
    out->known = fields_read_address(word, &out->address);
    for (int i = 1; (!out->known || (hosted && i == 1)) && i < WORDS_MOST && stop < end && stop[-1] != ','; i++) {
        struct address_bytes address;
        stop = read_word(stop + 1, end, &word);
        if (word.length == 0 || (word.length == 1 && *word.text == '-')) {
            break;
        }
        if (fields_read_address(word, &address)) {
            out->known = true;
            out->address = address;
            out->client = word;
            out->behind = stop;
        }
    }
    /* "198.51.100.7, 203.0.113.9 - -": the rest of a list */
    while (out->behind < end && out->behind[-1] == ',') {
        out->behind = read_word(out->behind + 1, end, &word);
    }
    return out->client.length != 0 && out->behind < end && *out->behind == ' ';
}

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
    case KEY_ALL:
        fields_all(out);
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
    struct head head;
    if (line == end) {
        return LINE_EMPTY;
    }
    if (!find_client(line, end, reader->hosted, &head)) {
        return LINE_MALFORMED;
    }
    reader->found_host = head.client.text != line;
    const char *time = find_time(reader, head.behind + 1, end, out);
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
    if (reader->selection->key == KEY_ADDRESS && head.known) {
        fields_set_address(out, &head.address, reader->selection, reader->scratch);
        return LINE_RECORD;
    }
    if (reader->selection->key == KEY_ADDRESS) {
        return fields_address(out, head.client, reader->selection, reader->scratch) ? LINE_RECORD : LINE_NO_CLIENT;
    }
    const struct clf clf = {user_of(head.behind + 1, time), {request + 1, (size_t) (quote - request - 1)}, quote + 2};
    return take_key(reader, &clf, end, out) ? LINE_RECORD : LINE_MALFORMED;
}
