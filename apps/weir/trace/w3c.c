/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Extended Log Format of the W3C, as IIS and CloudFront write it: a line of names, then values in that order, with
 * tabs or spaces between them.
 *
 *     #Fields: date time c-ip cs-method cs-uri-stem sc-bytes
 *     2026-11-25 10:00:00 198.51.100.7 GET /x 1234
 *
 * Times have no zone; the format says that they are of UTC.
 */
#include <string.h>

#include "formats.h"

static const char names_mark[] = "#Fields:";

/* "2026-11-25 10:00:00" */
#define TIME_SIZE 19

static bool is_gap(char c)
{
    return c == ' ' || c == '\t';
}

/* The next value; NULL: the line has ended. */
static const char *next_value(const char *at, const char *end, struct span *out)
{
    while (at < end && is_gap(*at)) {
        at++;
    }
    const char *first = at;
    while (at < end && !is_gap(*at)) {
        at++;
    }
    *out = (struct span){first, (size_t) (at - first)};
    return first < end ? at : NULL;
}

static void read_names(unsigned char columns[COLUMN_COUNT], const char *at, const char *end)
{
    static const char *const names[COLUMN_COUNT] = {"date", "time", "c-ip", "cs-username", "cs-uri-stem", "sc-bytes"};
    struct span name;
    memset(columns, 0, COLUMN_COUNT);
    for (unsigned char number = 1; number != 0 && (at = next_value(at, end, &name)) != NULL; number++) {
        for (int i = 0; i < COLUMN_COUNT; i++) {
            if (strlen(names[i]) == name.length && memcmp(names[i], name.text, name.length) == 0) {
                columns[i] = number;
            }
        }
    }
}

static bool read_time(struct line_reader *reader, const struct span found[COLUMN_COUNT], struct record *out)
{
    char text[TIME_SIZE + 1];
    const struct span date = found[COLUMN_DATE], time = found[COLUMN_TIME];
    if (date.length != 10 || time.length != 8) {
        return false;
    }
    memcpy(text, date.text, date.length);
    text[date.length] = ' ';
    memcpy(text + date.length + 1, time.text, time.length);
    return time_read_any(&reader->cache, text, TIME_SIZE, &out->time_ms, &out->whole);
}

static enum line take_key(struct line_reader *reader, const struct span found[COLUMN_COUNT], struct record *out)
{
    const struct selection *s = reader->selection;
    switch (s->key) {
    case KEY_ADDRESS:
        if (found[COLUMN_ADDRESS].length == 0) {
            return LINE_MALFORMED;
        }
        return fields_address(out, found[COLUMN_ADDRESS], s, reader->scratch) ? LINE_RECORD : LINE_NO_CLIENT;
    case KEY_USER:
        fields_text(out, found[COLUMN_USER]);
        return found[COLUMN_USER].length != 0 ? LINE_RECORD : LINE_MALFORMED;
    case KEY_PATH:
        return found[COLUMN_PATH].length != 0 && fields_path(out, found[COLUMN_PATH], s->depth) ? LINE_RECORD
                                                                                                : LINE_MALFORMED;
    case KEY_ALL:
        fields_all(out);
        return LINE_RECORD;
    default:
        return LINE_MALFORMED;
    }
}

enum line w3c_read(struct line_reader *reader, const char *line, const char *end, struct record *out)
{
    struct span found[COLUMN_COUNT] = {{NULL, 0}}, value;
    const char *at = line;
    if (line == end || *line == '#') {
        const size_t mark = sizeof(names_mark) - 1;
        if ((size_t) (end - line) > mark && memcmp(line, names_mark, mark) == 0) {
            read_names(reader->columns, line + mark, end);
        }
        return LINE_EMPTY;
    }
    for (unsigned number = 1; (at = next_value(at, end, &value)) != NULL; number++) {
        for (int i = 0; i < COLUMN_COUNT; i++) {
            if (reader->columns[i] == number) {
                found[i] = value;
            }
        }
    }
    if (!read_time(reader, found, out)) {
        return LINE_MALFORMED;
    }
    out->cost = 1;
    if (reader->selection->bytes && !fields_number(found[COLUMN_BYTES], &out->cost)) {
        return LINE_MALFORMED;
    }
    return take_key(reader, found, out);
}
