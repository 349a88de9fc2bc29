/* SPDX-License-Identifier: Apache-2.0 */
/* See doubts.h. */
#include "doubts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is more than a few: one of so many. */
#define FEW 100

/* A capture that lasts less tells no rate. */
#define SHORT_MS 1000

/* So many sources may be a flood. */
#define FLOOD_LEAST 50

#define NS_PER_MS UINT64_C(1000000)
#define MS_PER_S  UINT64_C(1000)

static bool is_more_than_few(uint64_t part, uint64_t whole)
{
    return part > whole / FEW;
}

static void doubt(struct doubts *out, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void doubt(struct doubts *out, int code, const char *format, ...)
{
    if (out->count == DOUBTS_MOST) {
        return;
    }
    struct doubt *one = &out->all[out->count++];
    va_list arguments;
    va_start(arguments, format);
    (void) vsnprintf(one->text, sizeof(one->text), format, arguments);
    va_end(arguments);
    one->code = code;
}

/* "1,234 of 5,678" */
static const char *part_of(struct sentence *s, uint64_t part, uint64_t whole)
{
    s->length = 0;
    quantity_number(s, part);
    sentence_add(s, " of ");
    quantity_number(s, whole);
    return s->text;
}

static void doubt_keys(struct doubts *out, const struct trace *t)
{
    struct sentence s;
    if (is_more_than_few(t->foreign_count, t->record_count)) {
        doubt(out, CODE_FOREIGN,
              "%s: in %s requests the client is no address, as \"%s\"; what this says of keys is not of clients. Give "
              "--format, --fields or another --key",
              t->name, part_of(&s, t->foreign_count, t->record_count), t->foreign);
    }
}

static void doubt_times(struct doubts *out, const struct report *report)
{
    struct sentence s;
    const uint64_t left_out = report->counts.late + report->counts.leaps;
    const uint64_t all = report->replay->requests + left_out;
    if (is_more_than_few(left_out, all)) {
        doubt(out, CODE_LATE,
              "%s requests were left out for their times; what this says is of the others. The logs may be of local "
              "times "
              "when clocks were set back, put together in a wrong order (give each file by itself), or of long "
              "connections (give a longer --late)",
              part_of(&s, left_out, all));
    }
}

/* Whether all traces are captures. */
static bool is_capture(const struct report *report)
{
    bool all = report->trace_count != 0;
    for (size_t i = 0; i < report->trace_count; i++) {
        all = all && report->traces[i].format->read == NULL;
    }
    return all;
}

static uint64_t span_ms(const struct report *report)
{
    return report->replay->last_ms - report->replay->first_ms;
}

bool doubts_short(const struct report *report)
{
    return is_capture(report) && span_ms(report) < SHORT_MS;
}

static void doubt_span(struct doubts *out, const struct report *report)
{
    struct sentence s = {.length = 0};
    uint64_t longest_ns = 0;
    if (doubts_short(report)) {
        doubt(out, CODE_HELPLESS,
              "the capture lasts %llu ms: too short to tell how often anybody comes, or which limit would do",
              (unsigned long long) span_ms(report));
        return;
    }
    const weir_policy *policy = report->replay->sides[SIDE_NEW].policy;
    for (size_t i = 0; i < policy->limit_count; i++) {
        longest_ns = policy->limits[i].period_ns > longest_ns ? policy->limits[i].period_ns : longest_ns;
    }
    if (is_capture(report) && span_ms(report) < longest_ns / NS_PER_MS) {
        quantity_duration(&s, span_ms(report) / MS_PER_S * MS_PER_S * NS_PER_MS);
        sentence_add(&s, ", less than the limit's ");
        quantity_duration(&s, longest_ns);
        doubt(out, CODE_GOOD, "the capture lasts %s: it does not show what the limit does in the long run", s.text);
    }
}

static int compare_numbers(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *) a, y = *(const uint64_t *) b;
    return (x > y) - (x < y);
}

/* How many networks of `prefix` bits, up to 64, the known keys of a family are of. */
static size_t count_networks(const struct clients *c, size_t length, unsigned prefix)
{
    uint64_t *networks = calloc(c->count + 1, sizeof(*networks));
    size_t count = 0, different = 0;
    for (size_t i = 0; networks != NULL && i < c->count; i++) {
        const struct client *client = &c->all[i];
        if (client->address && client->length == length && clients_sampled(c, client)) {
            uint64_t bits = 0;
            for (size_t byte = 0; byte < sizeof(bits); byte++) {
                bits = bits << 8 | (byte < length ? (unsigned char) client_key_text(client)[byte] : 0);
            }
            networks[count++] = bits >> (64 - prefix);
        }
    }
    if (networks != NULL) {
        qsort(networks, count, sizeof(*networks), compare_numbers);
    }
    for (size_t i = 0; i < count; i++) {
        different += i == 0 || networks[i] != networks[i - 1];
    }
    free(networks);
    return different << c->halvings;
}

/* Lengths of a network, of keys of so many bytes, that are offered. */
struct offer {
    size_t length;
    unsigned narrow, wide;
};

/* "address/24 (12 networks), address/16 (3), " as keys, or "network24 (12 networks), ..." as policies of the gateway.
 */
static void offer_networks(struct sentence *s, const struct replay *r, const struct offer *offer)
{
    const char *word = r->gateway ? "network" : "address/";
    const size_t few = count_networks(&r->clients, offer->length, offer->wide);
    if (few != 0) {
        sentence_add(s, "%s%u (", word, offer->narrow);
        quantity_number(s, count_networks(&r->clients, offer->length, offer->narrow));
        sentence_add(s, " networks), %s%u (", word, offer->wide);
        quantity_number(s, few);
        sentence_add(s, "), ");
    }
}

/* Whether each source by itself is limited, and nothing else. */
static bool limits_sources(const struct replay *r)
{
    const struct tried_file *file = &r->sides[SIDE_NEW].file;
    bool sources = r->choices->selection.key == KEY_ADDRESS;
    for (size_t i = 0; r->gateway && i < file->list.count; i++) {
        sources = sources && strncmp(file->list.all[i].name, "source", strlen("source")) == 0;
    }
    return sources;
}

/* A flood in which each source comes once or twice. */
static void doubt_limit(struct doubts *out, const struct report *report)
{
    static const struct offer by_key[] = {{4, 24, 16}, {16, 64, 48}}, by_policy[] = {{4, 24, 16}, {8, 56, 48}};
    const struct findings *f = report->findings;
    const struct replay *r = report->replay;
    if (!is_capture(report) || !limits_sources(r) || f->known < FLOOD_LEAST ||
        2 * f->rare_requests < f->known_requests) {
        return;
    }
    struct sentence s = {.length = 0};
    struct sentence offers = {.length = 0};
    for (size_t i = 0; i < 2; i++) {
        offer_networks(&offers, r, r->gateway ? &by_policy[i] : &by_key[i]);
    }
    doubt(out, CODE_HELPLESS,
          "%s sources come once or twice, and send half of the requests or more: a limit of a source does nothing to "
          "those. Try %s%s%s",
          part_of(&s, f->rare << r->clients.halvings, f->keys), r->gateway ? "policies " : "--key=", offers.text,
          r->gateway ? "overall" : "all");
}

/* Packets whose kind cannot be told. */
static void doubt_kinds(struct doubts *out, const struct trace *t)
{
    struct sentence s;
    const uint64_t unseen = t->packets != NULL ? packets_counts(t->packets)->unseen : 0;
    if (unseen != 0) {
        doubt(out, CODE_HELPLESS,
              "%s: of %s packets the first bytes are not there that tell their kind; capture more of each", t->name,
              part_of(&s, unseen, t->packet_count));
    }
}

void doubts_find(struct doubts *out, const struct report *report)
{
    out->count = 0;
    doubt_times(out, report);
    for (size_t i = 0; i < report->trace_count; i++) {
        doubt_keys(out, &report->traces[i]);
        doubt_kinds(out, &report->traces[i]);
    }
    doubt_span(out, report);
    doubt_limit(out, report);
}

int doubts_code(const struct doubts *d)
{
    int code = CODE_GOOD;
    for (size_t i = 0; i < d->count; i++) {
        code = d->all[i].code > code ? d->all[i].code : code;
    }
    return code;
}
