/* SPDX-License-Identifier: Apache-2.0 */
/* See report.h: the tables. */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "../describe.h"
#include "base/plain.h"
#include "doubts.h"
#include "key_text.h"
#include "report.h"

#define WIDTH       80
#define WIDTH_LEAST 40
#define WIDTH_MOST  200

/* Widths of columns, with the space before each. */
#define TIME_WIDTH  20
#define COUNT_WIDTH 13
#define SHARE_WIDTH 9
#define KEY_LEAST   15
#define KEY_WIDEST  60

/* Rows of candidates on each side of those that are named. */
#define ROWS_AROUND 2

static int width_of(void)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
        return WIDTH;
    }
    return size.ws_col < WIDTH_LEAST ? WIDTH_LEAST : size.ws_col > WIDTH_MOST ? WIDTH_MOST : size.ws_col;
}

char *report_time(char out[REPORT_TIME_SIZE], uint64_t time_ms)
{
    const time_t seconds = (time_t) (time_ms / 1000);
    struct tm date;
    (void) gmtime_r(&seconds, &date);
    (void) strftime(out, REPORT_TIME_SIZE, "%Y-%m-%d %H:%M:%S", &date);
    return out;
}

void report_limit_words(struct sentence *s, const struct candidates *c, uint64_t limit, uint64_t burst)
{
    weir_limit other = c->limit;
    other.limit = limit;
    other.burst = c->bucket ? burst : limit;
    other.delay = other.delay < other.burst ? other.delay : other.burst;
    describe_limits(s, &other, 1);
}

/* "1,234" on the right of a column. */
static void put_count(struct output *out, uint64_t number, int width)
{
    struct sentence s = {.length = 0};
    quantity_number(&s, number);
    output_text(out, "%*s", width, s.text);
}

#define SHARE_SIZE 24

/* "12.34%"; a part too small for two digits is "<0.01%". Returns `text`. */
static const char *write_share(char text[SHARE_SIZE], uint64_t part, uint64_t whole)
{
    const double share = whole != 0 ? 100.0 * (double) part / (double) whole : 0;
    (void) snprintf(text, SHARE_SIZE, "%.2f%%", share);
    if (part != 0 && share < 0.01) {
        (void) snprintf(text, SHARE_SIZE, "<0.01%%");
    } else if (part != whole && share > 99.99) {
        (void) snprintf(text, SHARE_SIZE, ">99.99%%");
    }
    return text;
}

static void put_share(struct output *out, uint64_t part, uint64_t whole)
{
    char text[SHARE_SIZE];
    output_text(out, "%*s", SHARE_WIDTH, write_share(text, part, whole));
}

static void put_heading(struct output *out, const char *text)
{
    output_text(out, "\n");
    output_styled(out, STYLE_NAME, text);
    output_text(out, "\n");
}

static void put_duration(struct output *out, uint64_t ms)
{
    struct sentence s = {.length = 0};
    if (ms < 1000) {
        sentence_add(&s, "%u ms", (unsigned) ms);
    } else if (ms < 60000) {
        sentence_add(&s, "%.1f s", (double) ms / 1000);
    } else if (ms < 3600000) {
        sentence_add(&s, "%.1f min", (double) ms / 60000);
    } else {
        sentence_add(&s, "%.1f h", (double) ms / 3600000);
    }
    output_text(out, "%10s", s.text);
}

static void put_trace(struct output *out, const struct trace *t)
{
    const char *things = t->format->read != NULL ? plain_number(t->line_count, "line", "lines")
                                                 : plain_number(t->line_count, "packet", "packets");
    struct sentence s = {.length = 0};
    quantity_number(&s, t->line_count);
    output_styled(out, STYLE_NAME, t->name);
    output_text(out, ": %s %s, %s", s.text, things, t->format->name);
    if (t->malformed_count != 0) {
        s.length = 0;
        quantity_number(&s, t->malformed_count);
        output_text(out, ", %s malformed", s.text);
    }
    if (t->clientless_count != 0) {
        s.length = 0;
        quantity_number(&s, t->clientless_count);
        output_text(out, ", %s without a client", s.text);
    }
    output_text(out, "\n");
    if (t->example_line != 0) {
        output_text(out, "  line %llu is malformed: ", (unsigned long long) t->example_line);
        output_styled(out, STYLE_BAD, t->example);
        output_text(out, "\n");
    }
}

/* "203.0.113.9:27015", "[2001:db8::1]:27015", "any address, port 27015" */
const char *report_service(char out[REPORT_SERVICE_SIZE], const struct service *service)
{
    char address[INET6_ADDRSTRLEN] = "";
    const bool v6 = service->address.length == 16;
    if (service->address.length != 0) {
        (void) inet_ntop(v6 ? AF_INET6 : AF_INET, service->address.bytes, address, sizeof(address));
    }
    if (service->address.length == 0) {
        (void) snprintf(out, REPORT_SERVICE_SIZE, "port %u of any address", service->port);
    } else if (service->port == 0) {
        (void) snprintf(out, REPORT_SERVICE_SIZE, "any port of %s", address);
    } else {
        (void) snprintf(out, REPORT_SERVICE_SIZE, v6 ? "[%s]:%u" : "%s:%u", address, service->port);
    }
    return out;
}

const struct left_out_word report_left_out[LEFT_OUT_WORDS] = {{DATAGRAM_TCP, "TCP", "tcp"},
                                                              {DATAGRAM_ICMP, "ICMP", "icmp"},
                                                              {DATAGRAM_FRAGMENT, "later fragments", "fragments"},
                                                              {DATAGRAM_OTHER, "other protocols", "other_protocols"}};

static void put_left_out(struct output *out, uint64_t count, const char *words, bool *any)
{
    struct sentence s = {.length = 0};
    if (count != 0) {
        quantity_number(&s, count);
        output_text(out, "%s%s %s", *any ? ", " : "  left out: ", s.text, words);
        *any = true;
    }
}

/* Where the datagrams of a capture go that are requests, and what else there was. */
static void put_packets(struct output *out, const struct trace *t)
{
    char text[REPORT_SERVICE_SIZE];
    bool found, any = false;
    const struct service *service = packets_service(t->packets, &found);
    const struct packet_counts *counts = packets_counts(t->packets);
    output_text(out, "  datagrams to %s%s\n", report_service(text, service),
                found ? ", where most of them go (--to and --port name another service)" : "");
    for (size_t i = 0; i < LEFT_OUT_WORDS; i++) {
        put_left_out(out, counts->kinds[report_left_out[i].kind], report_left_out[i].words, &any);
    }
    put_left_out(out, counts->elsewhere, "to elsewhere", &any);
    output_text(out, any ? "\n" : "");
}

static void put_traces(struct output *out, const struct report *report)
{
    const struct replay *r = report->replay;
    char first[REPORT_TIME_SIZE], last[REPORT_TIME_SIZE];
    struct sentence s = {.length = 0};
    for (size_t i = 0; i < report->trace_count; i++) {
        put_trace(out, &report->traces[i]);
        if (report->traces[i].packets != NULL && report->traces[i].record_count != 0) {
            put_packets(out, &report->traces[i]);
        }
    }
    quantity_number(&s, r->requests);
    sentence_add(&s, " %s of %s", plain_number(r->requests, "request", "requests"),
                 report->findings->sampled ? "about " : "");
    quantity_number(&s, report->findings->keys);
    output_text(out, "%s %s, from %s to %s UTC\n", s.text, plain_number(report->findings->keys, "key", "keys"),
                report_time(first, r->first_ms), report_time(last, r->last_ms));
    if (report->counts.reordered != 0) {
        output_text(out, "  %llu came out of order and were put in order\n",
                    (unsigned long long) report->counts.reordered);
    }
    const uint64_t late = report->counts.late - report->counts.set_back;
    if (late != 0) {
        s.length = 0;
        quantity_duration(&s, r->choices->late_s * UINT64_C(1000000000));
        output_text(out, "  %llu came more than %s late and were left out\n", (unsigned long long) late, s.text);
    }
    if (late != 0 && report->counts.shortened_s != 0) {
        output_text(out, "  (of so many requests at once there was room for %llu seconds at least)\n",
                    (unsigned long long) report->counts.shortened_s);
    }
    if (report->counts.set_back != 0) {
        output_text(out, "  %llu were left out: the clock was set back, as local times are\n",
                    (unsigned long long) report->counts.set_back);
    }
    if (report->counts.leaps != 0) {
        output_text(out, "  %llu were left out: most of those around them have other times\n",
                    (unsigned long long) report->counts.leaps);
    }
}

static void put_doubts(struct output *out, const struct doubts *doubts)
{
    for (size_t i = 0; i < doubts->count; i++) {
        output_text(out, "  ");
        output_styled(out, STYLE_BAD, doubts->all[i].text);
        output_text(out, "\n");
    }
}

/* The gateway's policies, each with what it denied. */
static void put_gateway(struct output *out, const struct side *side)
{
    struct engine_policy policies[GATEWAY_POLICIES];
    char heading[300];
    const size_t count = engine_policies(side->engine, policies, GATEWAY_POLICIES);
    const uint64_t of_all = engine_denied_of_all(side->engine);
    (void) snprintf(heading, sizeof(heading), "policies of %s", side->file.path);
    output_text(out, "\n");
    output_styled(out, STYLE_NAME, heading);
    output_text(out, ", as weir-gateway plays them\n");
    for (size_t i = 0; i < count; i++) {
        struct sentence s = {.length = 0};
        const bool shadow = policies[i].policy->mode == WEIR_SHADOW;
        describe_limits(&s, policies[i].policy->limits, policies[i].policy->limit_count);
        output_text(out, "  %s: %s\n", policies[i].policy->name, s.text);
        s.length = 0;
        quantity_number(&s, policies[i].denied);
        sentence_add(&s, " of ");
        quantity_number(&s, policies[i].checked);
        output_text(out, "    %s %s\n", shadow ? "in shadow mode: would deny" : "denies", s.text);
    }
    if (of_all != 0) {
        output_text(out, "  * (overrides of all policies)\n    denies %llu\n", (unsigned long long) of_all);
    }
}

static void put_side(struct output *out, const struct report *report, const struct side *side, uint64_t limited)
{
    const struct replay *r = report->replay;
    struct sentence s = {.length = 0};
    char heading[300], share[SHARE_SIZE];
    if (r->gateway) {
        put_gateway(out, side);
    } else {
        describe_limits(&s, side->policy->limits, side->policy->limit_count);
        (void) snprintf(heading, sizeof(heading), "policy %s of %s", side->policy->name, side->file.path);
        output_text(out, "\n");
        output_styled(out, STYLE_NAME, heading);
        output_text(out, ": %s\n", s.text);
    }
    if (side->options.nodes > 1) {
        output_text(out, "  on %u nodes, which take requests in turn\n", side->options.nodes);
    }
    output_text(out, "  admitted");
    put_count(out, r->requests - side->denied, COUNT_WIDTH);
    put_share(out, r->requests - side->denied, r->requests);
    output_text(out, "\n");
    if (side->delayed != 0) {
        output_text(out, "  delayed ");
        put_count(out, side->delayed, COUNT_WIDTH);
        put_share(out, side->delayed, r->requests);
        output_text(out, ", of those admitted\n");
    }
    output_text(out, "  denied  ");
    put_count(out, side->denied, COUNT_WIDTH);
    put_share(out, side->denied, r->requests);
    s.length = 0;
    quantity_number(&s, limited);
    output_text(out, ", of %s%s %s (%s)\n", report->findings->sampled ? "about " : "", s.text,
                plain_number(limited, "key", "keys"), write_share(share, limited, report->findings->keys));
    const uint64_t untracked = side->engine != NULL ? engine_untracked(side->engine) : 0;
    const uint64_t evicted = side->engine != NULL ? engine_evicted(side->engine) : 0;
    if (untracked != 0 || evicted != 0) {
        output_text(out,
                    "  there were more keys at once than fit: give a larger --max-keys (%llu keys evicted, %llu "
                    "requests denied for that)\n",
                    (unsigned long long) evicted, (unsigned long long) untracked);
    }
}

static void put_comparison(struct output *out, const struct report *report)
{
    const struct replay *r = report->replay;
    const struct findings *f = report->findings;
    const uint64_t both = r->denied_both;
    put_heading(out, "New against old");
    output_text(out, "                   %*s%*s\n", COUNT_WIDTH, "requests", COUNT_WIDTH, "keys");
    output_text(out, "  denied by both   ");
    put_count(out, both, COUNT_WIDTH);
    put_count(out, f->limited - f->only_new, COUNT_WIDTH);
    output_text(out, "\n  by the new alone ");
    put_count(out, r->sides[SIDE_NEW].denied - both, COUNT_WIDTH);
    put_count(out, f->only_new, COUNT_WIDTH);
    output_text(out, "\n  by the old alone ");
    put_count(out, r->sides[SIDE_OLD].denied - both, COUNT_WIDTH);
    put_count(out, f->only_old, COUNT_WIDTH);
    output_text(out, "\n");
}

static void put_bar(struct output *out, int width, uint64_t part, uint64_t most)
{
    const int length = most != 0 && width > 0 ? (int) ((double) part / (double) most * width + 0.5) : 0;
    for (int i = 0; i < length; i++) {
        output_text(out, "#");
    }
}

static void put_timeline(struct output *out, const struct report *report, int width)
{
    const struct timeline *t = &report->steps;
    const bool compares = report->replay->side_count > 1;
    const int bar = width - TIME_WIDTH - 2 * COUNT_WIDTH - SHARE_WIDTH - (compares ? COUNT_WIDTH : 0) - 2;
    struct sentence s = {.length = 0};
    char text[REPORT_TIME_SIZE];
    uint64_t most = 0;
    for (size_t i = 0; i < t->count; i++) {
        most = t->steps[i].denied > most ? t->steps[i].denied : most;
    }
    sentence_add(&s, "By time, in steps of ");
    quantity_duration(&s, t->step_s * UINT64_C(1000000000));
    sentence_add(&s, " (UTC)");
    put_heading(out, s.text);
    output_text(out, "%-*s%*s%*s%*s%s\n", TIME_WIDTH, "from", COUNT_WIDTH, "requests", COUNT_WIDTH, "denied",
                SHARE_WIDTH, "share", compares ? "   old denied" : "");
    for (size_t i = 0; i < t->count; i++) {
        output_text(out, "%-*s", TIME_WIDTH, report_time(text, (t->first_s + i * t->step_s) * 1000));
        put_count(out, t->steps[i].requests, COUNT_WIDTH);
        put_count(out, t->steps[i].denied, COUNT_WIDTH);
        put_share(out, t->steps[i].denied, t->steps[i].requests);
        if (compares) {
            put_count(out, t->steps[i].denied_old, COUNT_WIDTH);
        }
        output_text(out, t->steps[i].denied != 0 ? "  " : "");
        put_bar(out, bar, t->steps[i].denied, most);
        output_text(out, "\n");
    }
}

/* How wide keys are, and how many of the columns of times there is room for. */
static int fit_keys(const struct report *report, int width, int *times)
{
    char text[KEY_TEXT_SIZE];
    int widest = KEY_LEAST;
    for (size_t i = 0; i < report->findings->top_count; i++) {
        const struct client *c = report->findings->top[i];
        const int length = (int) strlen(key_text(text, client_key_text(c), c->length, c->address));
        widest = length > widest ? length : widest;
    }
    widest = widest > KEY_WIDEST ? KEY_WIDEST : widest;
    const int others = 2 * COUNT_WIDTH + SHARE_WIDTH + 10 + (report->replay->side_count > 1 ? COUNT_WIDTH : 0);
    *times = (width - others - widest) / (TIME_WIDTH + 1);
    *times = *times < 0 ? 0 : *times > 2 ? 2 : *times;
    const int room = width - others - *times * (TIME_WIDTH + 1);
    return widest < room ? widest : room < KEY_LEAST ? KEY_LEAST : room;
}

static void put_top(struct output *out, const struct report *report, int width)
{
    int times;
    const bool compares = report->replay->side_count > 1;
    const int keys = fit_keys(report, width, &times);
    char text[KEY_TEXT_SIZE], time[REPORT_TIME_SIZE];
    put_heading(out, "Keys that were denied most");
    output_text(out, "%-*s%*s%*s%*s%s%s%s    longest\n", keys, "key", COUNT_WIDTH, "requests", COUNT_WIDTH, "denied",
                SHARE_WIDTH, "share", compares ? "   old denied" : "", times > 0 ? "  first denial       " : "",
                times > 1 ? "  last denial        " : "");
    for (size_t i = 0; i < report->findings->top_count; i++) {
        const struct client *c = report->findings->top[i];
        (void) key_text(text, client_key_text(c), c->length, c->address);
        output_text(out, "%-*.*s", keys, keys, text);
        put_count(out, c->requests, COUNT_WIDTH);
        put_count(out, c->denied, COUNT_WIDTH);
        put_share(out, c->denied, c->requests);
        if (compares) {
            put_count(out, c->denied_old, COUNT_WIDTH);
        }
        if (times > 0) {
            output_text(out, "  %19s", c->denied != 0 ? report_time(time, c->first_ms) : "-");
        }
        if (times > 1) {
            output_text(out, "  %19s", c->denied != 0 ? report_time(time, c->last_ms) : "-");
        }
        put_duration(out, c->longest_ms);
        output_text(out, "\n");
    }
    if (report->findings->sampled) {
        output_text(out, "Of each key up to %llu denials may be missing: there are more keys than --max-keys\n",
                    (unsigned long long) report->replay->clients.lost);
    }
}

static void put_candidate(struct output *out, const struct candidates *c, int number, const char *what, unsigned ppm)
{
    struct sentence s = {.length = 0};
    char share[SHARE_SIZE];
    if (number < 0) {
        report_limit_words(&s, c, c->numbers[CANDIDATES - 1], c->bursts[CANDIDATES - 1]);
        output_text(out, "  %s:\n    more than %s; try a policy of that limit\n", what, s.text);
        return;
    }
    report_limit_words(&s, c, c->numbers[number], c->bursts[number]);
    output_text(out, "  %s (%s):\n    %s\n", what, write_share(share, ppm, PPM), s.text);
}

/* The candidates from below the least that is named to above the greatest. */
static void put_ladder(struct output *out, const struct candidates *c, const struct limit_finding *found)
{
    const int low = found->for_keys < found->for_requests ? found->for_keys : found->for_requests;
    const int high = found->for_keys > found->for_requests ? found->for_keys : found->for_requests;
    const int first = low < 0 ? CANDIDATES - 4 : low > ROWS_AROUND ? low - ROWS_AROUND : 0;
    const int last = high < 0 || low < 0 ? CANDIDATES - 1 : high + 1;
    output_text(out, "  %*s%*s  keys limited  requests denied\n", COUNT_WIDTH, "limit", c->bucket ? COUNT_WIDTH : 0,
                c->bucket ? "burst" : "");
    for (int i = first; i <= last && i < CANDIDATES; i++) {
        output_text(out, "  ");
        put_count(out, c->numbers[i], COUNT_WIDTH);
        if (c->bucket) {
            put_count(out, c->bursts[i], COUNT_WIDTH);
        }
        output_text(out, "     ");
        put_share(out, PPM - found->keys_ppm[i], PPM);
        output_text(out, "        ");
        put_share(out, PPM - found->requests_ppm[i], PPM);
        output_text(out, "%s\n", c->numbers[i] == c->limit.limit ? "  now" : "");
    }
}

static void put_limits(struct output *out, const struct report *report)
{
    const struct replay *r = report->replay;
    const size_t count = r->clients.row_count;
    for (size_t i = 0; i < count; i++) {
        const struct candidates *c = &r->candidates[i];
        const struct limit_finding *found = &report->findings->limits[i];
        struct sentence s = {.length = 0};
        sentence_add(&s, "Limits that would have let %g%% through", r->choices->through_ppm / 1e4);
        if (count > 1) {
            sentence_add(&s, ", for limit %zu by itself", i + 1);
        }
        put_heading(out, s.text);
        put_candidate(out, c, found->for_keys, "of the keys, with every request",
                      found->for_keys >= 0 ? found->keys_ppm[found->for_keys] : 0);
        put_candidate(out, c, found->for_requests, "of the requests",
                      found->for_requests >= 0 ? found->requests_ppm[found->for_requests] : 0);
        if (c->bucket) {
            s.length = 0;
            report_limit_words(&s, c, c->limit.limit, found->burst);
            output_text(out, "  of the keys, at the present rate:\n    %s\n", s.text);
        }
        put_ladder(out, c, found);
    }
}

void report_text(struct output *out, const struct report *report)
{
    const struct findings *f = report->findings;
    const int width = width_of();
    put_traces(out, report);
    put_doubts(out, report->doubts);
    put_side(out, report, &report->replay->sides[SIDE_NEW], f->limited);
    if (report->replay->side_count > 1) {
        put_side(out, report, &report->replay->sides[SIDE_OLD], f->limited_old);
        put_comparison(out, report);
    }
    put_timeline(out, report, width);
    if (f->top_count != 0) {
        put_top(out, report, width);
    }
    if (doubts_short(report)) {
        return; /* there is no rate to tell */
    }
    put_heading(out, "Requests of a key in its busiest second");
    output_text(out, "  half of the keys %u, 90%% %u, 99%% %u, 99.9%% %u, all %u\n", f->peaks[0], f->peaks[1],
                f->peaks[2], f->peaks[3], f->peaks[4]);
    put_limits(out, report);
}
