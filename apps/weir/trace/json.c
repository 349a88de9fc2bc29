/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A line of JSON for each request, as nginx writes with log_format escape=json:
 *
 *     {"time_iso8601":"2026-11-25T10:00:00+00:00","msec":1764064800.123,"remote_addr":"198.51.100.7"}
 *
 * Fields of the object itself are looked at; what is within a nested object or list is skipped.
 */
#include <string.h>

#include "formats.h"

/* The usual names of a field, the preferred one first: a time of milliseconds before one of seconds. */
#define NAMES_MOST 8
static const char *const usual[FIELD_COUNT][NAMES_MOST] = {
    [FIELD_TIME] = {"msec", "time_iso8601", "time", "timestamp", "@timestamp", "ts", "time_local"},
    [FIELD_ADDRESS] = {"remote_addr", "client", "client_ip", "remote_ip", "ip"},
    [FIELD_USER] = {"remote_user", "user"},
    [FIELD_PATH] = {"request_uri", "uri", "path", "request"},
    [FIELD_BYTES] = {"bytes_sent", "body_bytes_sent", "bytes", "size"},
};

/* What was found of a field, and how much its name is preferred: 0 most, NAMES_MOST: none was found. */
struct found {
    struct span value;
    int rank;
    bool escaped;
};

/* What a line is read for: the fields above, and in the last place the field that is the key. */
struct wanted {
    struct line_reader *reader;
    size_t place; /* of the next name in the line */
    struct found all[FIELD_COUNT + 1];
};

static const char *skip_space(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\r')) {
        at++;
    }
    return at;
}

/* Behind a nested object or list; NULL: it does not end. */
static const char *skip_nested(const char *at, const char *end)
{
    int depth = 0;
    for (; at != NULL && at < end; at++) {
        if (*at == '"') {
            at = fields_quote_end(at + 1, end);
            if (at == NULL) {
                return NULL;
            }
        } else if (*at == '{' || *at == '[') {
            depth++;
        } else if ((*at == '}' || *at == ']') && --depth == 0) {
            return at + 1;
        }
    }
    return NULL;
}

/* A value from `at` on. Returns what is behind it; NULL: it does not end. */
static const char *read_value(const char *at, const char *end, struct found *out)
{
    if (at < end && *at == '"') {
        const char *quote = fields_quote_end(at + 1, end);
        if (quote == NULL) {
            return NULL;
        }
        out->value = (struct span){at + 1, (size_t) (quote - at - 1)};
        out->escaped = memchr(at + 1, '\\', out->value.length) != NULL;
        return quote + 1;
    }
    const char *first = at;
    if (at < end && (*at == '{' || *at == '[')) {
        at = skip_nested(at, end);
    } else {
        while (at < end && *at != ',' && *at != '}' && *at != ' ') {
            at++;
        }
    }
    out->value = (struct span){first, at != NULL ? (size_t) (at - first) : 0};
    out->escaped = false;
    return at;
}

static bool is_named(struct span name, const char *text)
{
    return text != NULL && strlen(text) == name.length && memcmp(text, name.text, name.length) == 0;
}

/* The fields that a name is of, and how much it is preferred for each. */
static void rank_name(const struct selection *s, struct span name, struct json_name *out)
{
    out->fields = 0;
    for (int field = 0; field < FIELD_COUNT; field++) {
        for (unsigned char rank = NAMES_MOST; rank-- != 0;) {
            if (is_named(name, s->names[field] != NULL ? s->names[field] : usual[field][rank])) {
                out->fields |= (unsigned char) (1U << field);
                out->ranks[field] = rank;
            }
        }
    }
    if (s->key == KEY_FIELD && is_named(name, s->key_name)) {
        out->fields |= 1U << FIELD_COUNT;
        out->ranks[FIELD_COUNT] = 0;
    }
}

/* What is known of the next name in the line: as in the line before, where that had the same name. */
static const struct json_name *look_up(struct wanted *wanted, struct span name)
{
    struct json_name *kept = &wanted->reader->names[wanted->place++ % JSON_PLACES];
    if (kept->length != name.length || name.length == 0 || memcmp(kept->text, name.text, name.length) != 0) {
        rank_name(wanted->reader->selection, name, kept);
        kept->length = name.length <= JSON_NAME_SIZE ? (unsigned char) name.length : 0;
        memcpy(kept->text, name.text, kept->length);
    }
    return kept;
}

/* Keeps a value that is wanted by its name. Of two fields of one name the first one counts, as a key the last one. */
static void keep(struct wanted *wanted, struct span name, const struct found *value)
{
    const struct json_name *known = look_up(wanted, name);
    for (unsigned fields = known->fields; fields != 0; fields &= fields - 1) {
        const int field = __builtin_ctz(fields);
        struct found *found = &wanted->all[field];
        if (known->ranks[field] < found->rank || field == FIELD_COUNT) {
            *found = *value;
            found->rank = known->ranks[field];
        }
    }
}

/* Reads the fields of an object. False: the line is none. */
static bool read_object(struct wanted *wanted, const char *at, const char *end)
{
    if (at == end || *at != '{') {
        return false;
    }
    at = skip_space(at + 1, end);
    while (at < end && *at == '"') {
        struct found value = {{NULL, 0}, 0, false};
        const char *quote = fields_quote_end(at + 1, end);
        const struct span name = {at + 1, quote != NULL ? (size_t) (quote - at - 1) : 0};
        at = quote != NULL ? skip_space(quote + 1, end) : end;
        if (at == end || *at != ':') {
            return false;
        }
        at = read_value(skip_space(at + 1, end), end, &value);
        if (at == NULL) {
            return false;
        }
        keep(wanted, name, &value);
        at = skip_space(at, end);
        if (at < end && *at == ',') {
            at = skip_space(at + 1, end);
        } else {
            break;
        }
    }
    return at < end && *at == '}' && skip_space(at + 1, end) == end;
}

/* A hexadecimal digit, or 16 and more. */
static unsigned hex_of(char c)
{
    const char *digits = "0123456789abcdef";
    const char *at = c != '\0' ? strchr(digits, c | ((c >= 'A' && c <= 'F') ? 0x20 : 0)) : NULL;
    return at != NULL ? (unsigned) (at - digits) : 16;
}

/* The character behind a backslash: \u00e9 is what nginx makes of a byte. */
static const char *unescape(const char *at, const char *end, char *out, size_t *length)
{
    static const char plain[] = "b\bf\fn\nr\rt\t";
    if (*at == 'u' && end - at >= 5) {
        const unsigned code = hex_of(at[1]) << 12 | hex_of(at[2]) << 8 | hex_of(at[3]) << 4 | hex_of(at[4]);
        if (code < 0x80) {
            out[(*length)++] = (char) code;
        } else if (code < 0x800) {
            out[(*length)++] = (char) (0xc0 | code >> 6);
            out[(*length)++] = (char) (0x80 | (code & 0x3f));
        } else {
            out[(*length)++] = (char) (0xe0 | (code >> 12 & 0xf));
            out[(*length)++] = (char) (0x80 | (code >> 6 & 0x3f));
            out[(*length)++] = (char) (0x80 | (code & 0x3f));
        }
        return at + 5;
    }
    const char *found = strchr(plain, *at);
    out[(*length)++] = found != NULL && *at != '\0' && (found - plain) % 2 == 0 ? found[1] : *at;
    return at + 1;
}

/* The value without its escapes, in `scratch` where there are any. */
static struct span plain_value(const struct found *found, char *scratch)
{
    const char *at = found->value.text;
    const char *end = at + found->value.length;
    size_t length = 0;
    if (!found->escaped) {
        return found->value;
    }
    while (at < end && length + 3 < KEY_MOST) {
        if (*at == '\\' && at + 1 < end) {
            at = unescape(at + 1, end, scratch, &length);
        } else {
            scratch[length++] = *at++;
        }
    }
    return (struct span){scratch, length};
}

/* The key. False: the line does not have it. */
static bool take_key(struct line_reader *reader, const struct wanted *wanted, struct record *out)
{
    static const int fields[] = {
        [KEY_ADDRESS] = FIELD_ADDRESS, [KEY_USER] = FIELD_USER, [KEY_PATH] = FIELD_PATH, [KEY_FIELD] = FIELD_COUNT};
    const struct selection *s = reader->selection;
    if (s->key == KEY_HEADER) {
        return false;
    }
    const struct found *found = &wanted->all[fields[s->key]];
    if (found->rank == NAMES_MOST) {
        return false;
    }
    const struct span value = plain_value(found, reader->scratch);
    if (s->key == KEY_ADDRESS) {
        fields_address(out, value, s->prefix, reader->scratch);
    } else if (s->key == KEY_PATH) {
        return fields_path(out, value.length != 0 && *value.text != '/' ? fields_target(value) : value, s->depth);
    } else {
        fields_text(out, value);
    }
    return true;
}

enum line json_read(struct line_reader *reader, const char *line, const char *end, struct record *out)
{
    struct wanted wanted = {.reader = reader};
    line = skip_space(line, end);
    if (line == end) {
        return LINE_EMPTY;
    }
    for (int i = 0; i <= FIELD_COUNT; i++) {
        wanted.all[i].rank = NAMES_MOST;
    }
    if (!read_object(&wanted, line, end)) {
        return LINE_MALFORMED;
    }
    const struct found *time = &wanted.all[FIELD_TIME];
    const struct found *bytes = &wanted.all[FIELD_BYTES];
    if (time->rank == NAMES_MOST ||
        !time_read_any(&reader->cache, time->value.text, time->value.length, &out->time_ms, &out->whole)) {
        return LINE_MALFORMED;
    }
    out->cost = 1;
    if (reader->selection->bytes && (bytes->rank == NAMES_MOST || !fields_number(bytes->value, &out->cost))) {
        return LINE_MALFORMED;
    }
    return take_key(reader, &wanted, out) ? LINE_RECORD : LINE_MALFORMED;
}
