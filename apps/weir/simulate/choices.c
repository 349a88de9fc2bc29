/* SPDX-License-Identifier: Apache-2.0 */
/* See choices.h. */
#include "choices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/plain.h"
#include "policy/words.h"

#define MAX_KEYS       262144
#define MAX_KEYS_LEAST 1000
#define MAX_KEYS_MOST  16777216
#define TOP            10
#define TOP_MOST       1000
#define PPM            1000000
#define THROUGH_PPM    999000
#define QUOTED_SIZE    81

/* A value that is none of the words an option takes. */
static bool refuse(const struct arguments *a, int option, const char *takes)
{
    char quoted[QUOTED_SIZE];
    static const char *const names[OPTION_COUNT] = {
        [OPTION_COST] = "cost",   [OPTION_FIELDS] = "fields",   [OPTION_FORMAT] = "format",
        [OPTION_KEY] = "key",     [OPTION_LATE] = "late",       [OPTION_MAX_KEYS] = "max-keys",
        [OPTION_NODES] = "nodes", [OPTION_PLOT] = "plot",       [OPTION_PORT] = "port",
        [OPTION_TO] = "to",       [OPTION_THROUGH] = "through", [OPTION_TOP] = "top"};
    (void) plain_quoted(quoted, sizeof(quoted), a->values[option]);
    (void) fprintf(stderr, "%s: --%s is \"%s\"; give %s\n", a->command, names[option], quoted, takes);
    return false;
}

static bool read_number(const struct arguments *a, int option, uint64_t least, uint64_t most, uint64_t *out)
{
    char takes[80];
    const char *text = a->values[option];
    if (text == NULL) {
        return true;
    }
    if (!fields_number((struct span){text, strlen(text)}, out) || *out < least || *out > most) {
        (void) snprintf(takes, sizeof(takes), "%llu to %llu", (unsigned long long) least, (unsigned long long) most);
        return refuse(a, option, takes);
    }
    return true;
}

static bool read_format(struct choices *out, const struct arguments *a)
{
    const char *text = a->values[OPTION_FORMAT];
    if (text == NULL || strcmp(text, "auto") == 0) {
        return true;
    }
    for (int i = 0; i < FORMAT_COUNT; i++) {
        if (strcmp(text, formats[i].name) == 0) {
            out->format = &formats[i];
        }
    }
    if (strcmp(text, "common") == 0) {
        out->format = &formats[FORMAT_CLF];
    }
    return out->format != NULL ||
           refuse(a, OPTION_FORMAT, "auto, common, combined, json, haproxy, alb, w3c, csv or pcap");
}

/* "address/64", "path:2": the number behind a sign. */
static bool read_part(const char *text, const char *word, char sign, const char **part)
{
    const size_t length = strlen(word);
    const bool found = strncmp(text, word, length) == 0 && (text[length] == '\0' || text[length] == sign);
    *part = found && text[length] == sign ? text + length + 1 : NULL;
    return found;
}

/* "24" of IPv4, "64" of IPv6, "24,64" of both. What is not named counts by whole addresses. */
static bool read_prefixes(const char *text, struct selection *s)
{
    uint64_t first, second = 128;
    const size_t length = strcspn(text, ",");
    const char *rest = text[length] == ',' ? text + length + 1 : NULL;
    if (!fields_number((struct span){text, length}, &first) || first == 0 || first > 128 ||
        (rest != NULL && (!fields_number((struct span){rest, strlen(rest)}, &second) || first > 32)) || second == 0 ||
        second > 128) {
        return false;
    }
    s->prefix4 = first <= 32 ? (unsigned) first : 32;
    s->prefix = (unsigned) (first <= 32 ? second : first);
    return true;
}

static bool read_key(struct choices *out, const struct arguments *a)
{
    static const char takes[] = "address, a network as address/24, address/64 or address/24,64, all, gateway, "
                                "user, path, path:2, header:user-agent or field:NAME";
    struct selection *s = &out->selection;
    const char *text = a->values[OPTION_KEY] != NULL ? a->values[OPTION_KEY] : "address";
    const char *part;
    uint64_t number;
    out->key_given = a->values[OPTION_KEY] != NULL;
    if (strcmp(text, "gateway") == 0) {
        out->gateway = true;
        return true;
    }
    if (strcmp(text, "all") == 0) {
        s->key = KEY_ALL;
        return true;
    }
    if (read_part(text, "address", '/', &part)) {
        return part == NULL || read_prefixes(part, s) || refuse(a, OPTION_KEY, takes);
    }
    if (read_part(text, "path", ':', &part)) {
        number = 1;
        const bool good = part == NULL || fields_number((struct span){part, strlen(part)}, &number);
        s->key = KEY_PATH;
        s->depth = (unsigned) number;
        return (good && number >= 1 && number <= 16) || refuse(a, OPTION_KEY, "a path of 1 to 16 segments, as path:2");
    }
    if (strcmp(text, "user") == 0) {
        s->key = KEY_USER;
        return true;
    }
    if (read_part(text, "header", ':', &part) && part != NULL) {
        s->key = KEY_HEADER;
        s->key_name = part;
        return strcasecmp(part, "referer") == 0 || strcasecmp(part, "user-agent") == 0 || strtol(part, NULL, 10) > 0 ||
               refuse(a, OPTION_KEY, "header:referer, header:user-agent, or of HAProxy the captured header:1");
    }
    if (read_part(text, "field", ':', &part) && part != NULL) {
        s->key = KEY_FIELD;
        s->key_name = part;
        return true;
    }
    return refuse(a, OPTION_KEY, takes);
}

/* "time=ts,address=ip" */
static bool read_fields(struct choices *out, const struct arguments *a)
{
    static const char *const fields[FIELD_COUNT] = {[FIELD_TIME] = "time",
                                                    [FIELD_ADDRESS] = "address",
                                                    [FIELD_USER] = "user",
                                                    [FIELD_PATH] = "path",
                                                    [FIELD_BYTES] = "bytes"};
    static const char takes[] =
        "fields of JSON as time=ts,address=request.client_ip; there are time, address, user, path and bytes";
    if (a->values[OPTION_FIELDS] == NULL) {
        return true;
    }
    if (strlen(a->values[OPTION_FIELDS]) >= sizeof(out->names)) {
        return refuse(a, OPTION_FIELDS, takes);
    }
    (void) snprintf(out->names, sizeof(out->names), "%s", a->values[OPTION_FIELDS]);
    char *rest = out->names, *pair;
    while ((pair = strsep(&rest, ",")) != NULL) {
        char *name = strchr(pair, '=');
        bool known = false;
        if (name == NULL || name[1] == '\0') {
            return refuse(a, OPTION_FIELDS, takes);
        }
        *name++ = '\0';
        for (int i = 0; i < FIELD_COUNT; i++) {
            if (strcmp(pair, fields[i]) == 0) {
                out->selection.names[i] = name;
                known = true;
            }
        }
        if (!known) {
            return refuse(a, OPTION_FIELDS, takes);
        }
    }
    return true;
}

/* A duration: "90s", "15m", "1h", "1d"; or seconds. */
static bool read_late(struct choices *out, const struct arguments *a)
{
    static const struct {
        char sign;
        unsigned seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
    const char *text = a->values[OPTION_LATE];
    uint64_t number, unit = 1;
    out->late_s = MERGE_WAIT_S;
    if (text == NULL) {
        return true;
    }
    size_t length = strlen(text);
    for (size_t i = 0; length != 0 && i < sizeof(units) / sizeof(units[0]); i++) {
        unit = text[length - 1] == units[i].sign ? units[i].seconds : unit;
    }
    length -= length != 0 && strchr("smhd", text[length - 1]) != NULL;
    if (!fields_number((struct span){text, length}, &number) || number > MERGE_WAIT_MOST / unit) {
        return refuse(a, OPTION_LATE, "a duration of up to 24 hours, such as 90s, 15m or 1h");
    }
    out->late_s = (unsigned) (number * unit);
    return true;
}

/* Where requests of captures go: an address, with its port or without. */
static bool read_to(struct choices *out, const struct arguments *a)
{
    struct service *service = &out->selection.service;
    const char *text = a->values[OPTION_TO];
    uint64_t port = 0;
    if (text == NULL) {
        return true;
    }
    if (!fields_read_address((struct span){text, strlen(text)}, &service->address)) {
        return refuse(a, OPTION_TO, "an address, such as 203.0.113.9, 203.0.113.9:27015 or [2001:db8::1]:27015");
    }
    const char *colon = strrchr(text, ':');
    if (colon != NULL && (strchr(text, ']') != NULL ? colon[-1] == ']' : strchr(text, ':') == colon)) {
        if (!fields_number((struct span){colon + 1, strlen(colon + 1)}, &port) || port == 0 || port > UINT16_MAX) {
            return refuse(a, OPTION_TO, "an address, and a port of 1 to 65535");
        }
        service->port = (uint16_t) port;
    }
    return true;
}

/* A percentage with up to four digits behind its dot, as 1 to 999,999 millionths. */
static bool read_through(struct choices *out, const struct arguments *a)
{
    const char *text = a->values[OPTION_THROUGH];
    uint64_t whole, part = 0;
    if (text == NULL) {
        return true;
    }
    const size_t length = strcspn(text, ".");
    const size_t digits = text[length] == '.' ? strlen(text + length + 1) : 0;
    bool good = fields_number((struct span){text, length}, &whole) && whole < 100 && digits <= 4 &&
                (text[length] != '.' || fields_number((struct span){text + length + 1, digits}, &part));
    for (size_t i = digits; i < 4; i++) {
        part *= 10;
    }
    out->through_ppm = good ? (unsigned) (whole * 10000 + part) : 0;
    good = good && out->through_ppm != 0;
    return good || refuse(a, OPTION_THROUGH, "a percentage below 100, such as 99.9");
}

static bool read_plot(struct choices *out, const struct arguments *a)
{
    out->plot = a->values[OPTION_PLOT];
    const size_t length = out->plot != NULL ? strlen(out->plot) : 0;
    return out->plot == NULL ||
           (length > 4 &&
            (strcmp(out->plot + length - 4, ".svg") == 0 || strcmp(out->plot + length - 4, ".png") == 0)) ||
           refuse(a, OPTION_PLOT, "a file that ends in .svg or .png");
}

static bool check_traces(const struct arguments *a)
{
    size_t inputs = a->values[OPTION_POLICIES] != NULL && strcmp(a->values[OPTION_POLICIES], "-") == 0;
    inputs += a->values[OPTION_AGAINST] != NULL && strcmp(a->values[OPTION_AGAINST], "-") == 0;
    for (size_t i = 0; i < a->operand_count; i++) {
        inputs += strcmp(a->operands[i], "-") == 0;
    }
    if (a->values[OPTION_POLICIES] == NULL) {
        (void) fprintf(stderr, "%s: there is no policy file; give --policies=FILE\n", a->command);
    } else if (a->operand_count == 0) {
        (void) fprintf(stderr, "%s: there is no TRACE; \"-\" is standard input\n", a->command);
    } else if (inputs > 1) {
        (void) fprintf(stderr, "%s: \"-\" is there twice; standard input can be read once\n", a->command);
    } else {
        return true;
    }
    return false;
}

bool choices_read(struct choices *out, const struct arguments *a)
{
    uint64_t nodes = 1, max_keys = MAX_KEYS, top = TOP, port = 0;
    const char *cost = a->values[OPTION_COST];
    *out = (struct choices){.policies = a->values[OPTION_POLICIES],
                            .against = a->values[OPTION_AGAINST],
                            .policy = a->values[OPTION_POLICY],
                            .through_ppm = THROUGH_PPM,
                            .kinds = a->values[OPTION_KINDS],
                            .decisions = a->values[OPTION_DECISIONS]};
    out->selection.prefix = 128;
    if (!check_traces(a) || !read_format(out, a) || !read_key(out, a) || !read_fields(out, a) || !read_late(out, a) ||
        !read_through(out, a) || !read_plot(out, a) || !read_number(a, OPTION_NODES, 1, NODES_MOST, &nodes) ||
        !read_number(a, OPTION_MAX_KEYS, MAX_KEYS_LEAST, MAX_KEYS_MOST, &max_keys) ||
        !read_number(a, OPTION_TOP, 0, TOP_MOST, &top) || !read_to(out, a) ||
        !read_number(a, OPTION_PORT, 1, UINT16_MAX, &port)) {
        return false;
    }
    out->selection.service.port = port != 0 ? (uint16_t) port : out->selection.service.port;
    out->nodes = (unsigned) nodes;
    out->max_keys = (size_t) max_keys;
    out->top = (size_t) top;
    out->selection.bytes = cost != NULL && strcmp(cost, "bytes") == 0;
    return cost == NULL || out->selection.bytes || strcmp(cost, "1") == 0 || refuse(a, OPTION_COST, "1 or bytes");
}
