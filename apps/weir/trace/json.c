/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A line of JSON for each request, as nginx writes with log_format escape=json:
 *
 *     {"time_iso8601":"2026-11-25T10:00:00+00:00","msec":1764064800.123,"remote_addr":"198.51.100.7"}
 *
 * A name with dots leads into nested objects, as request.client_ip of Caddy. What no wanted name leads into is skipped.
 * Of a list of texts the first one is the value.
 */
#include <string.h>

#include "formats.h"

/*
 * The usual names of a field, the preferred one first: a time of milliseconds before one of seconds, an address that
 * the server trusts before one that the client wrote. They are those of nginx, Caddy, Traefik, Envoy, load balancers of
 * clouds, and the Elastic Common Schema.
 */
#define NAMES_MOST 24
static const char *const usual[FIELD_COUNT][NAMES_MOST] = {
    [FIELD_TIME] = {"msec", "time_iso8601", "StartUTC", "time", "timestamp", "@timestamp", "ts", "time_local",
                    "start_time", "datetime", "EdgeStartTimestamp"},
    [FIELD_ADDRESS] = {"remote_addr",
                       "client",
                       "client_ip",
                       "remote_ip",
                       "ip",
                       "request.client_ip",
                       "request.remote_ip",
                       "request.remote_addr",
                       "ClientHost",
                       "ClientAddr",
                       "ClientIP",
                       "clientIp",
                       "clientip",
                       "remoteIp",
                       "client.ip",
                       "source.ip",
                       "client.address",
                       "remote_address",
                       "remoteAddress",
                       "downstream_remote_address",
                       "httpRequest.remoteIp",
                       "httpRequest.clientIp"},
    [FIELD_USER] = {"remote_user", "user", "user_id", "ClientUsername", "user.name"},
    [FIELD_PATH] = {"request_uri", "uri", "path", "request", "request.uri", "RequestPath", "ClientRequestURI",
                    "url.path", "httpRequest.requestUrl", "httpRequest.uri"},
    [FIELD_BYTES] = {"bytes_sent", "body_bytes_sent", "bytes", "size", "DownstreamContentSize", "EdgeResponseBytes",
                     "http.response.bytes", "httpRequest.responseSize"},
};

/* The longest name, with those of the objects that it is in. */
#define PATH_SIZE 256

/* Objects within objects. */
#define DEPTH_MOST 8

/* What was found of a field, and how much its name is preferred: 0 most, NAMES_MOST: none was found. */
struct found {
    struct span value;
    int rank;
    bool quoted, escaped;
};

/* What a line is read for: the fields above, and in the last place the field that is the key. */
struct wanted {
    struct line_reader *reader;
    size_t place; /* of the next name in the line */
    struct found all[FIELD_COUNT + 1];
    char path[PATH_SIZE]; /* the names of the objects that are read, each with a dot behind it */
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
        out->quoted = true;
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
    out->quoted = out->escaped = false;
    return at;
}

/* Of a list of texts the first one. */
static void unwrap_list(struct found *value, const char *end)
{
    if (!value->quoted && value->value.length > 2 && *value->value.text == '[') {
        struct found first = *value;
        const char *at = skip_space(value->value.text + 1, end);
        if (at < end && *at == '"' && read_value(at, end, &first) != NULL) {
            *value = first;
        }
    }
}

static bool is_named(struct span name, const char *text)
{
    return text != NULL && strlen(text) == name.length && memcmp(text, name.text, name.length) == 0;
}

/* Whether a wanted name leads into the object of this name. */
static bool leads_into(struct span name, const char *text)
{
    return text != NULL && strlen(text) > name.length && memcmp(text, name.text, name.length) == 0 &&
           text[name.length] == '.';
}

/* The fields that a name is of, and how much it is preferred for each. */
static void rank_name(const struct selection *s, struct span name, struct json_name *out)
{
    out->fields = 0;
    out->nested = s->key == KEY_FIELD && leads_into(name, s->key_name);
    for (int field = 0; field < FIELD_COUNT; field++) {
        for (unsigned char rank = NAMES_MOST; rank-- != 0;) {
            const char *wanted = s->names[field] != NULL ? s->names[field] : usual[field][rank];
            out->nested = out->nested || leads_into(name, wanted);
            if (is_named(name, wanted)) {
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

/* Whether an address is given as none: "", "-" or null. */
static bool is_no_address(const struct found *value)
{
    return value->value.length == 0 || is_named(value->value, "-") ||
           (!value->quoted && is_named(value->value, "null"));
}

/* Keeps a value that is wanted by its name. An address that is none gives way to any other. Of two fields of one name
 * the first one counts, as a key the last one. */
static void keep(struct wanted *wanted, const struct json_name *known, const struct found *value)
{
    const bool object = !value->quoted && value->value.length != 0 && *value->value.text == '{';
    for (unsigned fields = known->fields; fields != 0; fields &= fields - 1) {
        const int field = __builtin_ctz(fields);
        struct found *found = &wanted->all[field];
        const int rank = field == FIELD_ADDRESS && is_no_address(value) ? NAMES_MOST - 1 : known->ranks[field];
        if ((rank < found->rank && !object) || field == FIELD_COUNT) {
            *found = *value;
            found->rank = rank;
        }
    }
}

/* A name with those of the objects that it is in: `prefix` bytes of the path. Empty, where it is too long. */
static struct span whole_name(struct wanted *wanted, struct span name, size_t prefix)
{
    if (prefix == 0 || prefix + name.length + 1 >= PATH_SIZE) {
        return prefix == 0 ? name : (struct span){name.text, 0};
    }
    memcpy(wanted->path + prefix, name.text, name.length);
    return (struct span){wanted->path, prefix + name.length};
}

/* Reads the fields of an object, which begins at `at`. Returns what is behind it; NULL: there is none. */
static const char *read_object(struct wanted *wanted, const char *at, const char *end, size_t prefix, int depth)
{
    if (at == end || *at != '{') {
        return NULL;
    }
    at = skip_space(at + 1, end);
    while (at < end && *at == '"') {
        struct found value = {{NULL, 0}, 0, false, false};
        const char *quote = fields_quote_end(at + 1, end);
        const struct span own = {at + 1, quote != NULL ? (size_t) (quote - at - 1) : 0};
        at = quote != NULL ? skip_space(quote + 1, end) : end;
        if (at == end || *at != ':') {
            return NULL;
        }
        at = skip_space(at + 1, end);
        const struct span name = whole_name(wanted, own, prefix);
        const struct json_name *known = look_up(wanted, name);
        struct json_name kept;
        const bool enters =
            known->nested && at < end && *at == '{' && depth < DEPTH_MOST && name.length + 1 < PATH_SIZE;
        const char *first = at;
        if (enters) {
            kept = *known; /* the object's names may take its place */
            known = &kept;
            memmove(wanted->path, name.text, name.length);
            wanted->path[name.length] = '.';
            at = read_object(wanted, at, end, name.length + 1, depth + 1);
            value.value = (struct span){first, at != NULL ? (size_t) (at - first) : 0};
        } else {
            at = read_value(at, end, &value);
        }
        if (at == NULL) {
            return NULL;
        }
        if (known->fields != 0) {
            unwrap_list(&value, end);
            keep(wanted, known, &value);
        }
        at = skip_space(at, end);
        if (at < end && *at == ',') {
            at = skip_space(at + 1, end);
        } else {
            break;
        }
    }
    return at < end && *at == '}' ? at + 1 : NULL;
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

/* Writes a text without its escapes, as far as there is room for three bytes more. Returns the length. */
static size_t unescape_text(struct span text, char *out, size_t size)
{
    const char *at = text.text;
    const char *end = at + text.length;
    size_t length = 0;
    while (at < end && length + 3 < size) {
        if (*at == '\\' && at + 1 < end) {
            at = unescape(at + 1, end, out, &length);
        } else {
            out[length++] = *at++;
        }
    }
    return length;
}

/* The value without its escapes, in `scratch` where there are any. */
static struct span plain_value(const struct found *found, char *scratch)
{
    return found->escaped ? (struct span){scratch, unescape_text(found->value, scratch, KEY_MOST)} : found->value;
}

static bool is_null(const struct found *found)
{
    return !found->quoted && is_named(found->value, "null");
}

/* The key. LINE_MALFORMED: the line does not have it. */
static enum line take_key(struct line_reader *reader, const struct wanted *wanted, struct record *out)
{
    static const int fields[] = {
        [KEY_ADDRESS] = FIELD_ADDRESS, [KEY_USER] = FIELD_USER, [KEY_PATH] = FIELD_PATH, [KEY_FIELD] = FIELD_COUNT};
    const struct selection *s = reader->selection;
    if (s->key == KEY_ALL) {
        fields_all(out);
        return LINE_RECORD;
    }
    if (s->key == KEY_HEADER || wanted->all[fields[s->key]].rank == NAMES_MOST) {
        return LINE_MALFORMED;
    }
    const struct found *found = &wanted->all[fields[s->key]];
    const struct span value = plain_value(found, reader->scratch);
    if (s->key == KEY_ADDRESS) {
        return !is_null(found) && fields_address(out, value, s, reader->scratch) ? LINE_RECORD : LINE_NO_CLIENT;
    }
    if (s->key == KEY_PATH) {
        const struct span target = value.length != 0 && *value.text != '/' ? fields_target(value) : value;
        return fields_path(out, target, s->depth) ? LINE_RECORD : LINE_MALFORMED;
    }
    fields_text(out, value);
    return LINE_RECORD;
}

size_t json_carried(const char *line, const char *end, char *out, size_t size)
{
    static const char *const names[] = {"log", "MESSAGE", "message", "textPayload", "short_message", "line"};
    const char *at = line < end && *line == '{' ? skip_space(line + 1, end) : end;
    while (at < end && *at == '"') {
        struct found value = {{NULL, 0}, 0, false, false};
        const char *quote = fields_quote_end(at + 1, end);
        const struct span name = {at + 1, quote != NULL ? (size_t) (quote - at - 1) : 0};
        at = quote != NULL ? skip_space(quote + 1, end) : end;
        if (at == end || *at != ':' || (at = read_value(skip_space(at + 1, end), end, &value)) == NULL) {
            return 0;
        }
        for (size_t i = 0; value.quoted && i < sizeof(names) / sizeof(names[0]); i++) {
            if (is_named(name, names[i])) {
                const size_t length = value.value.length + 3 < size ? unescape_text(value.value, out, size) : 0;
                return length != 0 && out[length - 1] == '\n' ? length - 1 : length;
            }
        }
        at = skip_space(at, end);
        at = at < end && *at == ',' ? skip_space(at + 1, end) : end;
    }
    return 0;
}

enum line json_read(struct line_reader *reader, const char *line, const char *end, struct record *out)
{
    struct wanted wanted; /* its path is written before it is read */
    wanted.reader = reader;
    wanted.place = 0;
    line = skip_space(line, end);
    if (line == end) {
        return LINE_EMPTY;
    }
    for (int i = 0; i <= FIELD_COUNT; i++) {
        wanted.all[i].rank = NAMES_MOST;
    }
    const char *behind = read_object(&wanted, line, end, 0, 0);
    if (behind == NULL || skip_space(behind, end) != end) {
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
    return take_key(reader, &wanted, out);
}
