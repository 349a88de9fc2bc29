/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Header fields for limits of any names and verdicts of any numbers, into buffers of any size.
 *
 * The text is read back by a parser of its own: lists of strings with integer parameters as RFC 9651 (structured field
 * values) has them, names unescaped and held beside the ones that were given, numbers beside what weir.h says of them.
 *
 * An input is, in this order and zero where it ends early: style (1 byte); buffer size (2); which policy (1, with 4
 * more of its number where that is 3 modulo 4); number of limits (1); for each limit its algorithm, calendar, period
 * and limit (1 + 1 + 1 + 8 each), the length of its name (1) and that many bytes of it; then the verdict's bytes in the
 * order of read_verdict().
 */
#include <errno.h>

#include "fuzz.h"
#include "weir/weir.h"

#define SECOND UINT64_C(1000000000)

/* 2026-11-30T23:59:58.5Z, for ever. */
#define WALL_NS (UINT64_C(1796083198) * SECOND + SECOND / 2)

#define POLICY_NAME "api"
#define SIZE_MOST   400
#define WHOLE_SIZE  4096 /* room for every text there can be */
#define PARAMS_MAX  8
#define INTEGER_MAX UINT64_C(999999999999999) /* RFC 9651, 3.3.1 */

static weir *w;

static uint64_t stopped_monotonic(void *arg)
{
    (void) arg;
    return 1000 * SECOND;
}

static uint64_t stopped_wall(void *arg)
{
    (void) arg;
    return WALL_NS;
}

/* A policy's limits, and room for their names. */
struct subject {
    weir_limit limits[WEIR_MAX_LIMITS];
    char names[WEIR_MAX_LIMITS][WEIR_MAX_NAME + 1];
    size_t limit_count;
};

static void read_limit(struct input *in, struct subject *s, size_t index)
{
    static const uint64_t periods[] = {1000000,     250 * SECOND / 1000, SECOND,         1500 * SECOND / 1000,
                                       60 * SECOND, 3600 * SECOND,       86400 * SECOND, 31622400 * SECOND,
                                       SECOND + 1};
    weir_limit *limit = &s->limits[index];
    limit->algorithm = (weir_algorithm) (input_number(in, 1) % 5);
    limit->calendar = (weir_calendar) (input_number(in, 1) % 3);
    limit->period_ns = periods[input_number(in, 1) % (sizeof(periods) / sizeof(periods[0]))];
    const uint64_t most = limit->algorithm == WEIR_SLIDING_LOG ? WEIR_MAX_LOG_UNITS : WEIR_MAX_UNITS;
    limit->limit = 1 + input_number(in, 8) % most;
    if (limit->algorithm != WEIR_FIXED_WINDOW) {
        limit->calendar = WEIR_CALENDAR_NONE;
    } else if (limit->calendar != WEIR_CALENDAR_NONE) {
        limit->period_ns = 0;
    }
    const size_t length = input_number(in, 1) % (WEIR_MAX_NAME + 1);
    for (size_t i = 0; i < length; i++) {
        s->names[index][i] = (char) (' ' + input_number(in, 1) % ('~' - ' ' + 1));
    }
    s->names[index][length] = '\0';
    limit->name = length != 0 ? s->names[index] : NULL;
}

/* Numbers as they come, and the ones that lie at edges. */
static uint64_t read_number(struct input *in)
{
    switch (input_number(in, 1) % 6) {
    case 0:
        return input_number(in, 1);
    case 1:
        return input_number(in, 4) * SECOND;
    case 2:
        return UINT64_MAX - input_number(in, 1);
    case 3:
        return INTEGER_MAX + 128 - input_number(in, 1);
    default:
        return input_number(in, 8);
    }
}

static weir_verdict read_verdict(struct input *in)
{
    const uint64_t flags = input_number(in, 1);
    weir_verdict verdict;
    memset(&verdict, 0, sizeof(verdict));
    verdict.allowed = (flags & 1) != 0;
    verdict.would_deny = (flags & 2) != 0;
    verdict.basis = (weir_basis) (flags >> 2 & 3);
    verdict.limit_index = (uint8_t) ((flags & 16) != 0 ? input_number(in, 1) : flags >> 5 & 3);
    verdict.key_index = (uint8_t) input_number(in, 1);
    verdict.limit = read_number(in);
    verdict.remaining = read_number(in);
    verdict.retry_after_ns = read_number(in);
    verdict.reset_after_ns = read_number(in);
    verdict.fleet_age_ns = read_number(in);
    verdict.decided_ns = (flags & 128) != 0 ? read_number(in) : 0;
    return verdict;
}

/* Puts the limits in force; where they make no valid policy, such limits with the same names, which must be valid. */
static weir_policy_id set_policy(struct subject *s)
{
    weir_error error;
    const weir_policy policy = {.name = POLICY_NAME, .limits = s->limits, .limit_count = s->limit_count};
    if (weir_set_policies(w, &policy, 1, &error) != 0) {
        CHECK(memchr(error.message, '\0', sizeof(error.message)) != NULL && error.message[0] != '\0');
        for (size_t i = 0; i < s->limit_count; i++) {
            s->limits[i] = (weir_limit){.algorithm = WEIR_FIXED_WINDOW,
                                        .limit = 100 * (i + 1),
                                        .period_ns = 60 * (i + 1) * SECOND,
                                        .name = s->limits[i].name};
        }
        const bool names_are_valid = weir_set_policies(w, &policy, 1, &error) == 0;
        if (!names_are_valid) {
            (void) fprintf(stderr, "%s\n", error.message);
        }
        CHECK(names_are_valid);
    }
    const weir_policy_id id = weir_find_policy(w, POLICY_NAME);
    CHECK(id != WEIR_NO_POLICY);
    return id;
}

/* A member of a list: a string, and integer parameters whose names are of one letter. */
struct member {
    char text[WEIR_MAX_NAME + 16];
    struct {
        char key;
        uint64_t value;
    } params[PARAMS_MAX];
    size_t param_count;
};

/* sf-string: in quotes, printable ASCII, a backslash before a quote or a backslash and nothing else. */
static const char *parse_string(const char *at, char *out, size_t out_size)
{
    size_t length = 0;
    CHECK(*at == '"');
    for (at++; *at != '"'; at++) {
        if (*at == '\\') {
            at++;
            CHECK(*at == '"' || *at == '\\');
        }
        CHECK(*at >= ' ' && *at <= '~');
        CHECK(length + 1 < out_size);
        out[length++] = *at;
    }
    out[length] = '\0';
    return at + 1;
}

/* An integer of 1 to `most` digits without a sign, and without zeros that are not needed. */
static const char *parse_integer(const char *at, size_t most, uint64_t *value)
{
    const size_t digits = strspn(at, "0123456789");
    CHECK(digits >= 1 && digits <= most);
    CHECK(*at != '0' || digits == 1);
    *value = 0;
    for (size_t i = 0; i < digits; i++) {
        *value = *value * 10 + (uint64_t) (at[i] - '0');
    }
    return at + digits;
}

static const char *parse_member(const char *at, struct member *member)
{
    memset(member, 0, sizeof(*member));
    at = parse_string(at, member->text, sizeof(member->text));
    while (*at == ';') {
        at++;
        at += strspn(at, " ");
        CHECK(*at >= 'a' && *at <= 'z');
        CHECK(member->param_count < PARAMS_MAX);
        for (size_t i = 0; i < member->param_count; i++) {
            CHECK(member->params[i].key != *at);
        }
        member->params[member->param_count].key = *at;
        CHECK(at[1] == '=');
        at = parse_integer(at + 2, 15, &member->params[member->param_count++].value);
    }
    return at;
}

/* A list that ends where its line does. Returns how many members it has. */
static size_t parse_list(const char *at, struct member *members, size_t most)
{
    size_t count = 0;
    for (;;) {
        CHECK(count < most);
        at = parse_member(at, &members[count++]);
        at += strspn(at, " \t");
        if (*at == '\0') {
            return count;
        }
        CHECK(*at == ',');
        at++;
        at += strspn(at, " \t");
    }
}

static const uint64_t *param(const struct member *member, char key)
{
    for (size_t i = 0; i < member->param_count; i++) {
        if (member->params[i].key == key) {
            return &member->params[i].value;
        }
    }
    return NULL;
}

static uint64_t seconds_up(uint64_t ns)
{
    return ns / SECOND + (ns % SECOND != 0);
}

static uint64_t second_after(const weir_verdict *v, uint64_t after_ns)
{
    const uint64_t from_ns = v->decided_ns != 0 ? v->decided_ns : WALL_NS;
    return seconds_up(from_ns < UINT64_MAX - after_ns ? from_ns + after_ns : UINT64_MAX);
}

static uint64_t seconds_until(const weir_verdict *v, uint64_t after_ns)
{
    const uint64_t passed_ns = v->decided_ns != 0 && v->decided_ns < WALL_NS ? WALL_NS - v->decided_ns : 0;
    return seconds_up(after_ns > passed_ns ? after_ns - passed_ns : 0);
}

static uint64_t capped(uint64_t value)
{
    return value < INTEGER_MAX ? value : INTEGER_MAX;
}

/* Whole seconds of a period; 0: it has none. A day of the calendar has 86,400 of them, a month has no number. */
static uint64_t window_of(const weir_limit *limit)
{
    if (limit->calendar != WEIR_CALENDAR_NONE) {
        return limit->calendar == WEIR_CALENDAR_DAY ? 86400 : 0;
    }
    return limit->period_ns % SECOND == 0 ? limit->period_ns / SECOND : 0;
}

static void expected_name(const struct subject *s, size_t index, char *out, size_t size)
{
    if (s->limits[index].name != NULL) {
        (void) snprintf(out, size, "%s", s->limits[index].name);
    } else if (s->limit_count == 1) {
        (void) snprintf(out, size, "%s", POLICY_NAME);
    } else {
        (void) snprintf(out, size, "%s-%zu", POLICY_NAME, index + 1);
    }
}

static void check_policy_field(const char *value, const struct subject *s)
{
    struct member members[WEIR_MAX_LIMITS];
    CHECK(parse_list(value, members, WEIR_MAX_LIMITS) == s->limit_count);
    for (size_t i = 0; i < s->limit_count; i++) {
        char name[WEIR_MAX_NAME + 16];
        expected_name(s, i, name, sizeof(name));
        CHECK(strcmp(members[i].text, name) == 0);
        const uint64_t *quota = param(&members[i], 'q');
        CHECK(quota != NULL && *quota == capped(s->limits[i].limit));
        const uint64_t window = window_of(&s->limits[i]);
        const uint64_t *written = param(&members[i], 'w');
        CHECK(window == 0 ? written == NULL : written != NULL && *written == window);
        CHECK(members[i].param_count == (written != NULL ? 2 : 1));
    }
}

static void check_state_field(const char *value, const struct subject *s, const weir_verdict *v)
{
    struct member member;
    CHECK(parse_list(value, &member, 1) == 1);
    const uint64_t *remaining = param(&member, 'r');
    const uint64_t *reset = param(&member, 't');
    CHECK(remaining != NULL);
    CHECK(member.param_count == (reset != NULL ? 2 : 1));
    if (v->limit_index < s->limit_count) {
        char name[WEIR_MAX_NAME + 16];
        expected_name(s, v->limit_index, name, sizeof(name));
        CHECK(strcmp(member.text, name) == 0);
        CHECK(*remaining == capped(v->remaining));
        CHECK(reset != NULL ? *reset == seconds_until(v, v->reset_after_ns) : v->reset_after_ns == UINT64_MAX);
    }
}

static uint64_t check_integer_field(const char *value)
{
    uint64_t number;
    CHECK(*parse_integer(value, 20, &number) == '\0');
    return number;
}

static void check_unix_field(const char *value, const weir_verdict *v)
{
    uint64_t number;
    CHECK(*parse_integer(value, 12, &number) == '\0');
    CHECK(number == second_after(v, v->reset_after_ns));
}

/* A date and time that there is: 2026-11-30T23:59:59Z. */
static void check_date_field(const char *value, const weir_verdict *v)
{
    static const char form[] = "dddd-dd-ddTdd:dd:ddZ";
    static const int month_days[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    CHECK(strlen(value) == sizeof(form) - 1);
    for (size_t i = 0; i < sizeof(form) - 1; i++) {
        CHECK(form[i] == 'd' ? value[i] >= '0' && value[i] <= '9' : value[i] == form[i]);
    }
    int year, month, day, hour, minute, second;
    CHECK(sscanf(value, "%4d-%2d-%2dT%2d:%2d:%2dZ", &year, &month, &day, &hour, &minute, &second) == 6);
    CHECK(year >= (v->decided_ns != 0 ? 1970 : 2026) && month >= 1 && month <= 12 && day >= 1 &&
          day <= month_days[month - 1]);
    const bool leaps = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    CHECK(month != 2 || day < 29 || leaps);
    CHECK(hour < 24 && minute < 60 && second < 60);
}

static void check_retry_field(const char *value, const weir_verdict *v)
{
    uint64_t number;
    CHECK(*parse_integer(value, 12, &number) == '\0');
    CHECK(!v->allowed && v->retry_after_ns != UINT64_MAX);
    const uint64_t wait_s = seconds_until(v, v->retry_after_ns);
    CHECK(number == (wait_s != 0 ? wait_s : 1));
}

/* The fields that a style has, in the order in which they are recognized. */
enum field { FIELD_POLICY, FIELD_STATE, FIELD_LIMIT, FIELD_REMAINING, FIELD_RESET, FIELD_RETRY_AFTER, FIELD_COUNT };

static const char *const field_names[][FIELD_COUNT] = {
    [WEIR_HEADERS_DRAFT_11] = {"RateLimit-Policy", "RateLimit", NULL, NULL, NULL, "Retry-After"},
    [WEIR_HEADERS_TRIO] = {NULL, NULL, "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset", "Retry-After"},
    [WEIR_HEADERS_X_UNIX] = {NULL, NULL, "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset",
                             "Retry-After"},
    [WEIR_HEADERS_X_ISO8601] = {NULL, NULL, "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset",
                                "Retry-After"},
    [WEIR_HEADERS_RETRY_AFTER] = {NULL, NULL, NULL, NULL, NULL, "Retry-After"},
};

/* One line without its end. Returns which field it is. */
static enum field check_line(char *line, weir_header_style style, const struct subject *s, const weir_verdict *v)
{
    for (const char *c = line; *c != '\0'; c++) {
        CHECK(*c >= ' ' && *c <= '~');
    }
    char *value = strstr(line, ": ");
    CHECK(value != NULL && value > line);
    *value = '\0';
    value += 2;
    CHECK(*value != '\0' && *value != ' ' && value[strlen(value) - 1] != ' ');
    int field = 0;
    while (field < FIELD_COUNT && (field_names[style][field] == NULL || strcmp(field_names[style][field], line) != 0)) {
        field++;
    }
    const bool style_has_field = field < FIELD_COUNT;
    CHECK(style_has_field);
    switch (field) {
    case FIELD_POLICY:
        check_policy_field(value, s);
        break;
    case FIELD_STATE:
        check_state_field(value, s, v);
        break;
    case FIELD_LIMIT:
    case FIELD_REMAINING:
        (void) check_integer_field(value);
        break;
    case FIELD_RESET:
        if (style == WEIR_HEADERS_X_ISO8601) {
            check_date_field(value, v);
        } else if (style == WEIR_HEADERS_X_UNIX) {
            check_unix_field(value, v);
        } else {
            CHECK(check_integer_field(value) == seconds_until(v, v->reset_after_ns));
        }
        break;
    default:
        check_retry_field(value, v);
        break;
    }
    return (enum field) field;
}

/* The whole text, of a policy that is in force. */
static void check_text(const char *text, weir_header_style style, const struct subject *s, const weir_verdict *v)
{
    bool seen[FIELD_COUNT] = {false};
    static char line[WHOLE_SIZE];
    while (*text != '\0') {
        const size_t length = strcspn(text, "\r");
        CHECK(text[length] == '\r' && text[length + 1] == '\n');
        memcpy(line, text, length);
        line[length] = '\0';
        const enum field field = check_line(line, style, s, v);
        CHECK(!seen[field]);
        seen[field] = true;
        text += length + 2;
    }
    if (v->limit_index >= s->limit_count) {
        return; /* a verdict that no check gave: its fields must be well-formed, and may have any values */
    }
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        const bool comes = i == FIELD_RETRY_AFTER ? !v->allowed && v->retry_after_ns != UINT64_MAX
                           : i == FIELD_RESET     ? v->reset_after_ns != UINT64_MAX
                                                  : true;
        const bool wanted = comes && field_names[style][i] != NULL;
        CHECK(seen[i] == wanted);
    }
}

/* Writes the headers into a buffer of this size, whose end AddressSanitizer watches. */
static void check_cut(const char *whole, int needed, size_t size, weir_header_style style, weir_policy_id policy,
                      const weir_verdict *v)
{
    char *memory = malloc(size != 0 ? size : 1);
    CHECK(memory != NULL);
    char *buffer = size != 0 ? memory : memory + 1; /* none of it may be written */
    memset(memory, 'x', size != 0 ? size : 1);
    CHECK(weir_write_headers(style, w, policy, v, buffer, size) == needed);
    if (size != 0) {
        const size_t kept = (size_t) needed < size ? (size_t) needed : size - 1;
        CHECK(memcmp(buffer, whole, kept) == 0);
        CHECK(buffer[kept] == '\0');
    }
    free(memory);
}

static void open_weir(void)
{
    static weir_clock stopped = {stopped_monotonic, stopped_wall, NULL};
    weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = 1000;
    options.max_threads = 1;
    options.max_log_units = 1000;
    options.clock = &stopped;
    weir_error error;
    CHECK(weir_open(&options, &w, &error) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (w == NULL) {
        open_weir();
    }
    struct input in = {data, data + size};
    const weir_header_style style = (weir_header_style) (input_number(&in, 1) & 7);
    const size_t cut_size = input_number(&in, 2) % (SIZE_MOST + 1);
    const bool any_policy = input_number(&in, 1) % 4 == 3;
    const weir_policy_id drawn = any_policy ? (weir_policy_id) input_number(&in, 4) : WEIR_NO_POLICY;
    struct subject s;
    memset(&s, 0, sizeof(s));
    s.limit_count = 1 + input_number(&in, 1) % WEIR_MAX_LIMITS;
    for (size_t i = 0; i < s.limit_count; i++) {
        read_limit(&in, &s, i);
    }
    const weir_verdict verdict = read_verdict(&in);
    const weir_policy_id id = set_policy(&s);
    const weir_policy_id policy = any_policy ? drawn : id;

    static char whole[WHOLE_SIZE];
    memset(whole, 'x', sizeof(whole));
    const int needed = weir_write_headers(style, w, policy, &verdict, whole, sizeof(whole));
    if (style > WEIR_HEADERS_RETRY_AFTER) {
        CHECK(needed == -EINVAL);
        CHECK(weir_write_headers(style, w, policy, &verdict, NULL, 0) == -EINVAL);
        return 0;
    }
    CHECK(needed >= 0 && (size_t) needed < sizeof(whole));
    CHECK(strnlen(whole, sizeof(whole)) == (size_t) needed);
    CHECK(weir_write_headers(style, w, policy, &verdict, NULL, 0) == needed);
    check_cut(whole, needed, cut_size, style, policy, &verdict);
    check_cut(whole, needed, (size_t) needed, style, policy, &verdict);
    check_cut(whole, needed, (size_t) needed + 1, style, policy, &verdict);
    if (policy == id) {
        check_text(whole, style, &s, &verdict);
    } else {
        CHECK(needed == 0);
    }
    return 0;
}
