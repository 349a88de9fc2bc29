/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Access logs of the load balancers of AWS: the application one, whose lines begin with their type, and the classic
 * one:
 *
 *     https 2026-11-25T10:00:00.123456Z app/web/50dc 198.51.100.7:2817 10.0.0.1:80 0.000 0.001 0.000 200 200 34 366
 *         "GET https://shop.example.org:443/x HTTP/1.1" "curl/8" ...
 */
#include <string.h>

#include "formats.h"

/* Fields from the time on, up to the request. */
enum { ALB_TIME, ALB_NAME, ALB_CLIENT, ALB_SENT = 10, ALB_REQUEST };

/* Splits at spaces. *quote: the request's first quote. False: the line is of another format. */
static bool split(const char *line, const char *end, struct span fields[ALB_REQUEST], const char **quote)
{
    const char *at = line;
    if (end - line < 2 || *line < '0' || *line > '9') { /* the type */
        at = memchr(line, ' ', (size_t) (end - line));
        at = at != NULL ? at + 1 : end;
    }
    for (int i = 0; i < ALB_REQUEST; i++) {
        const char *space = memchr(at, ' ', (size_t) (end - at));
        if (space == NULL) {
            return false;
        }
        fields[i] = (struct span){at, (size_t) (space - at)};
        at = space + 1;
    }
    *quote = at;
    return at < end && *at == '"';
}

static enum line take_key(struct line_reader *reader, struct span client, const char *quote, const char *end,
                          struct record *out)
{
    const struct selection *s = reader->selection;
    const char *close = fields_quote_end(quote + 1, end);
    if (close == NULL) {
        return LINE_MALFORMED;
    }
    if (s->key == KEY_ADDRESS) {
        return fields_address(out, client, s, reader->scratch) ? LINE_RECORD : LINE_NO_CLIENT;
    }
    if (s->key == KEY_PATH) {
        const struct span request = {quote + 1, (size_t) (close - quote - 1)};
        return fields_path(out, fields_target(request), s->depth) ? LINE_RECORD : LINE_MALFORMED;
    }
    if (s->key == KEY_HEADER) { /* the user agent: the next text in quotes */
        const char *first = end - close > 2 && close[1] == ' ' && close[2] == '"' ? close + 3 : NULL;
        const char *last = first != NULL ? fields_quote_end(first, end) : NULL;
        if (last == NULL || (*s->key_name != 'u' && *s->key_name != 'U')) {
            return LINE_MALFORMED;
        }
        fields_text(out, (struct span){first, (size_t) (last - first)});
        return LINE_RECORD;
    }
    fields_all(out);
    return s->key == KEY_ALL ? LINE_RECORD : LINE_MALFORMED;
}

enum line alb_read(struct line_reader *reader, const char *line, const char *end, struct record *out)
{
    struct span fields[ALB_REQUEST];
    const char *quote;
    if (line == end) {
        return LINE_EMPTY;
    }
    if (!split(line, end, fields, &quote) ||
        !time_read_any(&reader->cache, fields[ALB_TIME].text, fields[ALB_TIME].length, &out->time_ms, &out->whole)) {
        return LINE_MALFORMED;
    }
    out->cost = 1;
    if (reader->selection->bytes && !fields_number(fields[ALB_SENT], &out->cost)) {
        return LINE_MALFORMED;
    }
    return take_key(reader, fields[ALB_CLIENT], quote, end, out);
}
