/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report of weir simulate, as a whole: of figures that are given, each line of the tables and each field of the
 * JSON.
 *
 * Guards: apps/weir/simulate/report_text.c, apps/weir/simulate/report_data.c
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "../apps/weir/simulate/doubts.h"
#include "../apps/weir/trace/formats.h"
#include "support/support.h"

static char told[30000];
static unsigned short columns; /* of the terminal; 0: there is none */

const unsigned peak_ppm[PEAK_COUNT] = {500000, 900000, 990000, 999000, 1000000};
static enum line read_line(struct line_reader *reader, const char *line, const char *end, struct record *out);

int __wrap_ioctl(int fd, unsigned long request, void *out);

int __wrap_ioctl(int fd, unsigned long request, void *out)
{
    assert_true(fd == STDOUT_FILENO && (uint32_t) request == TIOCGWINSZ);
    *(struct winsize *) out = (struct winsize){.ws_col = columns == UINT16_MAX ? 0 : columns};
    return columns != 0 ? 0 : -1;
}

static enum line read_line(struct line_reader *reader, const char *line, const char *end, struct record *out)
{
    (void) reader;
    (void) line;
    (void) end;
    (void) out;
    return LINE_EMPTY;
}

__attribute__((format(printf, 1, 0))) static void tell(const char *format, va_list arguments)
{
    const size_t length = strlen(told);
    (void) vsnprintf(told + length, sizeof(told) - length, format, arguments);
}

__attribute__((format(printf, 1, 2))) static void add(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    tell(format, arguments);
    va_end(arguments);
}

void output_text(struct output *out, const char *format, ...)
{
    va_list arguments;
    (void) out;
    va_start(arguments, format);
    tell(format, arguments);
    va_end(arguments);
}

void output_styled(struct output *out, enum style style, const char *text)
{
    (void) out;
    add("%s%s", style == STYLE_NAME ? "*" : style == STYLE_BAD ? "!" : "", text);
}

void output_open(struct output *out, const char *key, char bracket)
{
    (void) out;
    add("%s%c", key != NULL ? key : "", bracket);
}

void output_close(struct output *out, char bracket)
{
    (void) out;
    add("%c", bracket);
}

void output_string(struct output *out, const char *key, const char *text)
{
    (void) out;
    add(" %s=%s", key, text);
}

void output_number(struct output *out, const char *key, uint64_t number)
{
    (void) out;
    add(" %s=%" PRIu64, key, number);
}

void output_flag(struct output *out, const char *key, bool flag)
{
    (void) out;
    add(" %s=%s", key, flag ? "yes" : "no");
}

void output_line(struct output *out)
{
    (void) out;
    add("\n");
}

static weir_policy gateway_policies[2];
static struct service service;
static bool service_found;
static struct packet_counts packet_counts;

uint64_t engine_untracked(const struct engine *engine)
{
    return (uintptr_t) engine == 1 || (uintptr_t) engine == 3 ? 0 : 77;
}

size_t engine_policies(const struct engine *engine, struct engine_policy *out, size_t most)
{
    (void) engine;
    for (size_t i = 0; i < 2 && i < most; i++) {
        out[i] = (struct engine_policy){&gateway_policies[i], 10 + i, 1000 * i};
    }
    return 2;
}

uint64_t engine_denied_of_all(const struct engine *engine)
{
    return (uintptr_t) engine == 1 ? 0 : 3;
}

const struct service *packets_service(const struct packets *packets, bool *is_found)
{
    (void) packets;
    *is_found = service_found;
    return &service;
}

const struct packet_counts *packets_counts(const struct packets *packets)
{
    (void) packets;
    return &packet_counts;
}

uint64_t engine_evicted(const struct engine *engine)
{
    return (uintptr_t) engine == 1 || (uintptr_t) engine == 4 ? 0 : 66;
}

static struct output output;
static struct replay replay;
static struct findings findings;
static struct doubts doubts;
static struct report report;
static struct choices choices;
static struct trace traces[2];
static struct client clients[3];
static const struct client *top[3];
static weir_limit limits[2];
static weir_policy policy, old_policy;
static const struct format lines_format = {.name = "combined", .read = read_line}, packets_format = {.name = "pcap"};

/* A day of requests, of which some are denied; two limits, the second one a bucket. */
static int begin(void **state)
{
    (void) state;
    static const struct step steps[] = {{100, 10, 0}, {0, 0, 0}, {50, 40, 30}, {20000, 1, 0}};
    static const char *const keys[] = {"\300\0\2\1", "a-user", "a-user-of-more-than-24-bytes, and then some"};
    memset(told, 0, sizeof(told));
    columns = 0;
    limits[0] = (weir_limit){.algorithm = WEIR_FIXED_WINDOW, .limit = 20, .burst = 20, .period_ns = 10 * SECOND};
    limits[0].name = "ten";
    limits[1] =
        (weir_limit){.algorithm = WEIR_TOKEN_BUCKET, .limit = 5, .burst = 8, .period_ns = SECOND, .name = "one"};
    policy = (weir_policy){.name = "api", .limits = limits, .limit_count = 2};
    old_policy = (weir_policy){.name = "api", .limits = limits, .limit_count = 1};
    choices = (struct choices){.through_ppm = 999000, .late_s = 900};
    traces[0] = (struct trace){.name = "a.log",
                               .format = &lines_format,
                               .line_count = 12345,
                               .record_count = 12000,
                               .malformed_count = 1001,
                               .clientless_count = 3,
                               .example_line = 17,
                               .example = "junk"};
    traces[1] = (struct trace){.name = "b.pcap", .format = &packets_format, .line_count = 1, .record_count = 1};
    traces[1].failed = true;
    traces[1].foreign_count = 2;
    (void) snprintf(traces[1].foreign, sizeof(traces[1].foreign), "x");
    doubts = (struct doubts){.all = {{.code = CODE_FOREIGN, .text = "more than a few"}}, .count = 1};
    (void) snprintf(traces[1].fault.text, sizeof(traces[1].fault.text), "is cut off");
    replay.choices = &choices;
    replay.side_count = 2;
    replay.sides[SIDE_NEW] = (struct side){.file = {.path = "new.yaml"},
                                           .options = {.nodes = 3},
                                           .policy = &policy,
                                           .engine = (struct engine *) 1,
                                           .denied = 51,
                                           .denied_units = 510,
                                           .delayed = 7};
    replay.sides[SIDE_OLD] = (struct side){.file = {.path = "old.yaml"},
                                           .options = {.nodes = 1},
                                           .policy = &old_policy,
                                           .engine = (struct engine *) 2,
                                           .denied = 30,
                                           .denied_units = 300};
    replay.requests = 20150;
    replay.units = 30000;
    replay.first_ms = UINT64_C(1764064800123);
    replay.last_ms = UINT64_C(1764079199999);
    replay.denied_both = 21;
    replay.interrupted = false;
    replay.clients.row_count = 2;
    replay.timeline = (struct timeline){.step_s = 3600, .first_s = 1764064800, .count = 4};
    memcpy(replay.timeline.steps, steps, sizeof(steps));
    report = (struct report){.replay = &replay,
                             .findings = &findings,
                             .doubts = &doubts,
                             .traces = traces,
                             .trace_count = 2,
                             .counts = {.reordered = 4, .late = 8, .set_back = 3, .leaps = 6}};
    report.steps = replay.timeline;
    for (size_t i = 0; i < 3; i++) {
        clients[i] = (struct client){.requests = 100 * (i + 1),
                                     .denied = 20 - 10 * i,
                                     .denied_old = i,
                                     .length = (uint16_t) (i == 0 ? 4 : strlen(keys[i])),
                                     .address = i == 0,
                                     .first_ms = UINT64_C(1764064801000) + 1000 * i,
                                     .last_ms = UINT64_C(1764064861000) + 1000 * i,
                                     .longest_ms = i == 0   ? 999
                                                   : i == 1 ? 59999
                                                            : 3600000,
                                     .peak = (uint32_t) (7 + i)};
        if (clients[i].length <= KEY_INSIDE) {
            memcpy(clients[i].key.text, keys[i], clients[i].length);
        } else {
            static char more[60];
            memcpy(more, keys[i], clients[i].length);
            clients[i].key.more = more;
        }
        top[i] = &clients[i];
    }
    findings = (struct findings){.top = top,
                                 .top_count = 3,
                                 .known = 40,
                                 .keys = 40,
                                 .limited = 9,
                                 .limited_old = 1,
                                 .only_new = 8,
                                 .only_old = 0,
                                 .peaks = {1, 2, 3, 4, 5}};
    for (size_t l = 0; l < 2; l++) {
        struct candidates *c = &replay.candidates[l];
        *c = (struct candidates){.limit = limits[l], .bucket = l == 1};
        for (unsigned k = 0; k < CANDIDATES; k++) {
            c->numbers[k] = l == 0 ? 10 + k : 1 + k;
            c->bursts[k] = 2 * c->numbers[k];
            findings.limits[l].keys_ppm[k] = 900000 + 3000 * k;
            findings.limits[l].requests_ppm[k] = 950000 + 1000 * k;
        }
    }
    findings.limits[0].for_keys = 6;
    findings.limits[0].for_requests = 4;
    findings.limits[1].for_keys = 1;
    findings.limits[1].for_requests = -1;
    findings.limits[1].burst = 12;
    return 0;
}

/* Shows where two texts begin to differ. */
static void check_told(const char *wanted)
{
    size_t at = 0, line = 0;
    for (; told[at] != '\0' && told[at] == wanted[at]; at++) {
        line = told[at] == '\n' ? at + 1 : line;
    }
    if (told[at] != wanted[at]) {
        fail_msg("\"%.200s\"\ninstead of\n\"%.200s\"", told + line, wanted + line);
    }
}

static void test_the_tables_say_it_to_people(void **state)
{
    (void) state;
    report_text(&output, &report);
    check_told("*a.log: 12,345 lines, combined, 1,001 malformed, 3 without a client\n"
               "  line 17 is malformed: !junk\n"
               "*b.pcap: 1 packet, pcap\n"
               "20,150 requests of 40 keys, from 2025-11-25 10:00:00 to 2025-11-25 13:59:59 UTC\n"
               "  4 came out of order and were put in order\n"
               "  5 came more than 15 minutes late and were left out\n"
               "  3 were left out: the clock was set back, as local times are\n"
               "  6 were left out: most of those around them have other times\n"
               "  !more than a few\n"
               "\n"
               "*policy api of new.yaml: 20 every 10 seconds (counted anew every 10 seconds), and 5 a second with "
               "bursts of 8\n"
               "  on 3 nodes, which take requests in turn\n"
               "  admitted       20,099   99.75%\n"
               "  delayed             7    0.03%, of those admitted\n"
               "  denied             51    0.25%, of 9 keys (22.50%)\n"
               "\n"
               "*policy api of old.yaml: 20 every 10 seconds (counted anew every 10 seconds)\n"
               "  admitted       20,120   99.85%\n"
               "  denied             30    0.15%, of 1 key (2.50%)\n"
               "  there were more keys at once than fit: give a larger --max-keys (66 keys evicted, 77 requests denied "
               "for that)\n"
               "\n"
               "*New against old\n"
               "                        requests         keys\n"
               "  denied by both              21            1\n"
               "  by the new alone            30            8\n"
               "  by the old alone             9            0\n"
               "\n"
               "*By time, in steps of 1 hour (UTC)\n"
               "from                     requests       denied    share   old denied\n"
               "2025-11-25 10:00:00           100           10   10.00%            0  ###\n"
               "2025-11-25 11:00:00             0            0    0.00%            0\n"
               "2025-11-25 12:00:00            50           40   80.00%           30  ##########\n"
               "2025-11-25 13:00:00        20,000            1   <0.01%            0  \n"
               "\n"
               "*Keys that were denied most\n"
               "key                        requests       denied    share   old denied    longest\n"
               "192.0.2.1                       100           20   20.00%            0    999 ms\n"
               "a-user                          200           10    5.00%            1    60.0 s\n"
               "a-user-of-more-than-24          300            0    0.00%            2     1.0 h\n"
               "\n"
               "*Requests of a key in its busiest second\n"
               "  half of the keys 1, 90% 2, 99% 3, 99.9% 4, all 5\n"
               "\n"
               "*Limits that would have let 99.9% through, for limit 1 by itself\n"
               "  of the keys, with every request (91.80%):\n"
               "    16 every 10 seconds (counted anew every 10 seconds)\n"
               "  of the requests (95.40%):\n"
               "    14 every 10 seconds (counted anew every 10 seconds)\n"
               "          limit  keys limited  requests denied\n"
               "             12         9.40%            4.80%\n"
               "             13         9.10%            4.70%\n"
               "             14         8.80%            4.60%\n"
               "             15         8.50%            4.50%\n"
               "             16         8.20%            4.40%\n"
               "             17         7.90%            4.30%\n"
               "\n"
               "*Limits that would have let 99.9% through, for limit 2 by itself\n"
               "  of the keys, with every request (90.30%):\n"
               "    2 a second with bursts of 4\n"
               "  of the requests:\n"
               "    more than 32 a second with bursts of 64; try a policy of that limit\n"
               "  of the keys, at the present rate:\n"
               "    5 a second with bursts of 12\n"
               "          limit        burst  keys limited  requests denied\n"
               "             29           58         1.60%            2.20%\n"
               "             30           60         1.30%            2.10%\n"
               "             31           62         1.00%            2.00%\n"
               "             32           64         0.70%            1.90%\n");
}

static bool tells(const char *part)
{
    return strstr(told, part) != NULL;
}

static void test_the_tables_are_as_wide_as_the_terminal_and_leave_out_what_is_not(void **state)
{
    (void) state;
    static const struct {
        unsigned short columns;
        const char *head; /* of the keys, of which the widest has 51 characters */
        unsigned bar;     /* the longest bar by time */
    } rows[] = {
        {0, "    longest\n", 23},
        {UINT16_MAX, "    longest\n", 23},
        {1, "    longest\n", 0}, /* as if there were 40 */
        {58, "    longest\n", 1},
        {60, "    longest\n", 3},
        {90, "    longest\n", 33},
        {130, "  first denial           longest\n", 73},
        {1000, "  first denial         last denial            longest\n", 143}, /* as if there were 200 */
    };
    static const int widths[] = {35, 35, 15, 15, 15, 45, 51, 51};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char wanted[300];
        size_t bar = 0;
        (void) begin(state);
        columns = rows[i].columns;
        replay.side_count = 1;
        report_text(&output, &report);
        for (const char *at = told; *at != '\0'; at++) {
            const size_t length = strspn(at, "#");
            bar = length > bar ? length : bar;
        }
        assert_int_equal(bar, rows[i].bar);
        (void) snprintf(wanted, sizeof(wanted), "\n%-*s     requests       denied    share%s", widths[i], "key",
                        rows[i].head);
        assert_true(tells(wanted));
        (void) snprintf(wanted, sizeof(wanted), "\n%-*s          100           20   20.00%%%s%s    999 ms\n", widths[i],
                        "192.0.2.1", i >= 6 ? "  2025-11-25 10:00:01" : "", i == 7 ? "  2025-11-25 10:01:01" : "");
        assert_true(tells(wanted));
        (void) snprintf(wanted, sizeof(wanted), "\n%.*s          300            0    0.00%%%s%s     1.0 h\n", widths[i],
                        "a-user-of-more-than-24-bytes%2c%20and%20then%20some", i >= 6 ? "                    -" : "",
                        i == 7 ? "                    -" : "");
        assert_true(tells(wanted));
    }
}

static void test_what_there_is_none_of_is_not_told(void **state)
{
    (void) state;
    replay.side_count = 1;
    replay.sides[SIDE_NEW].engine = NULL;
    replay.sides[SIDE_NEW].options.nodes = 1;
    replay.sides[SIDE_NEW].delayed = replay.sides[SIDE_NEW].denied = 0;
    memset(&report.counts, 0, sizeof(report.counts));
    for (size_t i = 0; i < report.steps.count; i++) {
        report.steps.steps[i].denied = 0;
    }
    traces[0].malformed_count = traces[0].example_line = traces[0].clientless_count = 0;
    doubts.count = 0;
    policy.limit_count = replay.clients.row_count = 1;
    findings.top_count = 0;
    findings.sampled = true;
    findings.limits[0].for_keys = 31;
    findings.limits[0].for_requests = 0;
    report_text(&output, &report);
    static const char *const none[] = {"malformed", "without", "more than", "order",     "late",
                                       "left out",  "delayed", "on 1 node", "fit",       "old",
                                       "New",       "#",       "most",      "by itself", "burst"};
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        assert_false(tells(none[i]));
    }
    assert_true(tells("20,150 requests of about 40 keys") && tells("of about 9 keys (22.50%)\n"));
    assert_true(tells("  admitted       20,150  100.00%\n  denied              0    0.00%, of"));
    assert_true(tells("Limits that would have let 99.9% through\n"));
    /* From the least candidate to the greatest; the present one is marked. */
    assert_true(tells("             10        10.00%            5.00%\n             11"));
    assert_true(tells("             20         7.00%            4.00%  now\n"));
    assert_true(tells("             41         0.70%            1.90%\n"));
    assert_int_equal(told[strlen(told) - 1], '\n');
    for (uintptr_t engine = 3; engine < 5; engine++) {
        (void) begin(state);
        replay.sides[SIDE_OLD].engine = (struct engine *) engine;
        report_text(&output, &report);
        assert_true(tells(engine == 3 ? "(66 keys evicted, 0 requests denied for that)\n"
                                      : "(0 keys evicted, 77 requests denied for that)\n"));
    }
    /* A part that is too small for two digits is none. */
    (void) begin(state);
    replay.requests = 100000;
    replay.sides[SIDE_NEW].denied = 9;
    findings.sampled = true;
    replay.clients.lost = 3;
    report_text(&output, &report);
    assert_true(tells("99,991  >99.99%") && tells("9   <0.01%"));
    assert_true(tells("Of each key up to 3 denials may be missing: there are more keys than --max-keys\n"));
    replay.clients.lost = 0;
}

static void test_json_has_every_figure(void **state)
{
    (void) state;
    report_data(&output, &report);
    static const char head[] =
        "{traces[{ name=a.log format=combined lines=12345 requests=12000 malformed=1001 without_client=3 "
        "no_addresses=0 malformed_line=17 malformed_example=junk}{ name=b.pcap format=pcap lines=1 requests=1 "
        "malformed=0 without_client=0 no_addresses=2 no_address_example=x error=is cut off}] reordered=4 late=8 "
        "set_back=3 leaps=6doubts[{ code=7 words=more than a few}] interrupted=no requests=20150 units=30000 "
        "first_ms=1764064800123 "
        "last_ms=1764079199999 keys=40 keys_sampled=no keys_known=40new{ policy=api file=new.yaml words=20 "
        "every 10 seconds (counted anew every 10 seconds), and 5 a second with bursts of 8 nodes=3 denied=51 "
        "denied_units=510 delayed=7 limited_keys=9 evicted=0 untracked=0}old{ policy=api file=old.yaml "
        "words=20 every 10 seconds (counted anew every 10 seconds) nodes=1 denied=30 denied_units=300 "
        "delayed=0 limited_keys=1 evicted=66 untracked=77} denied_both=21 keys_only_new=8 keys_only_old=0 "
        "step_s=3600steps[{ time_s=1764064800 requests=100 denied=10 denied_old=0}{ time_s=1764068400 "
        "requests=0 denied=0 denied_old=0}{ time_s=1764072000 requests=50 denied=40 denied_old=30}{ "
        "time_s=1764075600 requests=20000 denied=1 denied_old=0}]top[{ key=192.0.2.1 requests=100 denied=20 "
        "denied_old=0 first_ms=1764064801000 last_ms=1764064861000 longest_ms=999 peak=7}{ key=a-user "
        "requests=200 denied=10 denied_old=1 first_ms=1764064802000 last_ms=1764064862000 longest_ms=59999 "
        "peak=8}{ key=a-user-of-more-than-24-bytes%2c%20and%20then%20some requests=300 denied=0 denied_old=2 "
        "longest_ms=3600000 peak=9}] top_missing=0peaks[{ keys_ppm=500000 requests=1}{ keys_ppm=900000 "
        "requests=2}{ keys_ppm=990000 requests=3}{ keys_ppm=999000 requests=4}{ keys_ppm=1000000 requests=5}] "
        "through_ppm=999000limits[{ name=ten";
    assert_true(strlen(told) > strlen(head));
    told[strlen(head)] = '\0';
    check_told(head);
    (void) begin(state);
    report_data(&output, &report);
    assert_true(
        tells("limits[{ name=tenfor_keys{ limit=16 keys_ppm=918000 requests_ppm=956000 words=16 every 10 seconds"));
    assert_true(tells(")}for_requests{ limit=14 keys_ppm=912000 requests_ppm=954000 words=14 every 10 seconds"));
    assert_true(tells(")}candidates[{ limit=10 keys_ppm=900000 requests_ppm=950000 words=10 every 10 seconds"));
    assert_true(tells("{ limit=41 keys_ppm=993000 requests_ppm=981000 words=41 every 10 seconds"));
    assert_true(
        tells(")}]}{ name=onefor_keys{ limit=2 burst=4 keys_ppm=903000 requests_ppm=951000 words=2 a second with "
              "bursts of 4} burst_for_keys=12candidates[{ limit=1 burst=2 keys_ppm=900000"));
    assert_true(
        tells("{ limit=32 burst=64 keys_ppm=993000 requests_ppm=981000 words=32 a second with bursts of 64}]}]}\n"));
    (void) begin(state);
    replay.side_count = 1;
    replay.interrupted = findings.sampled = true;
    replay.sides[SIDE_NEW].engine = NULL;
    replay.clients.lost = 4;
    report_data(&output, &report);
    assert_false(tells("old"));
    assert_true(tells("interrupted=yes") && tells("keys_sampled=yes") && tells("top_missing=4"));
    assert_true(tells("limited_keys=9 evicted=0 untracked=0}"));
    replay.clients.lost = 0;
}

static void test_captures_and_the_policies_of_the_gateway_are_told(void **state)
{
    (void) state;
    service = (struct service){.address = {.bytes = {192, 0, 2, 1}, .length = 4}, .port = 27015};
    service_found = true;
    packet_counts = (struct packet_counts){.elsewhere = 1234, .kinds = {[DATAGRAM_TCP] = 2, [DATAGRAM_FRAGMENT] = 1}};
    traces[1].packets = (struct packets *) 1;
    replay.gateway = true;
    replay.side_count = 1;
    replay.sides[SIDE_NEW].options.gateway = true;
    gateway_policies[0] = (weir_policy){.name = "source", .limits = limits, .limit_count = 1};
    gateway_policies[1] = (weir_policy){.name = "overall", .limits = limits + 1, .limit_count = 1, .mode = WEIR_SHADOW};
    report_text(&output, &report);
    assert_true(tells("  datagrams to 192.0.2.1:27015, where most of them go (--to and --port name another service)\n"
                      "  left out: 2 TCP, 1 later fragments, 1,234 to elsewhere\n"));
    assert_true(tells("*policies of new.yaml, as weir-gateway plays them\n"
                      "  source: 20 every 10 seconds (counted anew every 10 seconds)\n"
                      "    denies 0 of 10\n"
                      "  overall: 5 a second with bursts of 8\n"
                      "    in shadow mode: would deny 1,000 of 11\n"));
    assert_false(tells("overrides of all policies") || tells("policy api"));
    (void) memset(told, 0, sizeof(told));
    report_data(&output, &report);
    assert_true(tells(" service=192.0.2.1:27015 service_found=yesleft_out{ tcp=2 icmp=0 fragments=1 other_protocols=0 "
                      "elsewhere=1234}"));
    assert_true(
        tells("new{policies[{ policy=source words=20 every 10 seconds (counted anew every 10 seconds) shadow=no "
              "checked=10 denied=0}{ policy=overall words=5 a second with bursts of 8 shadow=yes checked=11 "
              "denied=1000}] denied_of_all=0 file=new.yaml"));
    char text[REPORT_SERVICE_SIZE];
    service.address.length = 0;
    assert_string_equal(report_service(text, &service), "port 27015 of any address");
    service = (struct service){.address = {.bytes = {0x20, 1, 0xd, 0xb8, [15] = 1}, .length = 16}};
    assert_string_equal(report_service(text, &service), "any port of 2001:db8::1");
    service.port = 53;
    assert_string_equal(report_service(text, &service), "[2001:db8::1]:53");
    replay.gateway = replay.sides[SIDE_NEW].options.gateway = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_the_tables_say_it_to_people, begin),
        cmocka_unit_test_setup(test_the_tables_are_as_wide_as_the_terminal_and_leave_out_what_is_not, begin),
        cmocka_unit_test_setup(test_what_there_is_none_of_is_not_told, begin),
        cmocka_unit_test_setup(test_json_has_every_figure, begin),
        cmocka_unit_test_setup(test_captures_and_the_policies_of_the_gateway_are_told, begin),
    };
    return cmocka_run_group_tests_name("unit/apps/weir_report", tests, NULL, NULL);
}
