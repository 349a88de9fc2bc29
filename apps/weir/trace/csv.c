/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines of time,key or time,key,cost. A key may stand in quotes, in which "" is a quote. A first line may be names.
 * A key that is an address is one; where keys are addresses, others may stand beside them.
 */
#include <string.h>
#include <strings.h>

#include "formats.h"

/* A field from `at` on; *next: behind its comma, or NULL at the end of the line. False: a quote is not closed. */
static bool read_field(const char *at, const char *end, char *scratch, struct span *out, const char **next)
{
    size_t length = 0;
    if (at == end || *at != '"') {
        const char *comma = memchr(at, ',', (size_t) (end - at));
        *out = (struct span){at, (size_t) ((comma != NULL ? comma : end) - at)};
        *next = comma != NULL ? comma + 1 : NULL;
        return true;
    }
    for (at++; at < end && (*at != '"' || (at + 1 < end && at[1] == '"')); at++) {
        at += *at == '"';
        if (length < KEY_MOST) {
            scratch[length++] = *at;
        }
    }
    if (at >= end || (at + 1 < end && at[1] != ',')) {
        return false;
    }
    *out = (struct span){scratch, length};
    *next = at + 1 < end ? at + 2 : NULL;
    return true;
}

enum line csv_read(struct line_reader *reader, const char *line, const char *end, struct record *out)
{
    char unused[KEY_MOST + 1];
    struct span time, key, cost;
    struct address_bytes address;
    const char *next;
    if (line == end || *line == '#') {
        return LINE_EMPTY;
    }
    if (!read_field(line, end, unused, &time, &next) || next == NULL) {
        return LINE_MALFORMED;
    }
    if (time.length == 4 && strncasecmp(time.text, "time", 4) == 0) {
        return LINE_EMPTY;
    }
    if (!time_read_any(&reader->cache, time.text, time.length, &out->time_ms, &out->whole) ||
        !read_field(next, end, reader->scratch, &key, &next)) {
        return LINE_MALFORMED;
    }
    out->cost = 1;
    if (reader->selection->key == KEY_ALL) {
        fields_all(out);
    } else if (reader->selection->key == KEY_ADDRESS && fields_read_address(key, &address)) {
        fields_set_address(out, &address, reader->selection, reader->scratch);
    } else {
        fields_text(out, key);
    }
    if (next != NULL && (!read_field(next, end, unused, &cost, &next) || !fields_number(cost, &out->cost))) {
        return LINE_MALFORMED;
    }
    return LINE_RECORD;
}
