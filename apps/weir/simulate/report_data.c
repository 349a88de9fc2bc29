/* SPDX-License-Identifier: Apache-2.0 */
/* See report.h: the JSON. Shares are in millionths, as JSON has no exact fractions. */
#include "../describe.h"
#include "doubts.h"
#include "key_text.h"
#include "report.h"

static void tell_packets(struct output *out, const struct trace *t)
{
    char text[REPORT_SERVICE_SIZE];
    bool found;
    const struct service *service = packets_service(t->packets, &found);
    const struct packet_counts *counts = packets_counts(t->packets);
    output_string(out, "service", report_service(text, service));
    output_flag(out, "service_found", found);
    output_open(out, "left_out", '{');
    for (size_t i = 0; i < LEFT_OUT_WORDS; i++) {
        output_number(out, report_left_out[i].field, counts->kinds[report_left_out[i].kind]);
    }
    output_number(out, "elsewhere", counts->elsewhere);
    output_close(out, '}');
}

static void tell_traces(struct output *out, const struct report *report)
{
    output_open(out, "traces", '[');
    for (size_t i = 0; i < report->trace_count; i++) {
        const struct trace *t = &report->traces[i];
        output_open(out, NULL, '{');
        output_string(out, "name", t->name);
        output_string(out, "format", t->format->name);
        output_number(out, "lines", t->line_count);
        output_number(out, "requests", t->record_count);
        output_number(out, "malformed", t->malformed_count);
        output_number(out, "without_client", t->clientless_count);
        output_number(out, "no_addresses", t->foreign_count);
        if (t->foreign_count != 0) {
            output_string(out, "no_address_example", t->foreign);
        }
        if (t->example_line != 0) {
            output_number(out, "malformed_line", t->example_line);
            output_string(out, "malformed_example", t->example);
        }
        if (t->packets != NULL) {
            tell_packets(out, t);
        }
        if (t->failed) {
            output_string(out, "error", t->fault.text);
        }
        output_close(out, '}');
    }
    output_close(out, ']');
    output_number(out, "reordered", report->counts.reordered);
    output_number(out, "late", report->counts.late);
    output_number(out, "set_back", report->counts.set_back);
    output_number(out, "leaps", report->counts.leaps);
}

static void tell_doubts(struct output *out, const struct doubts *doubts)
{
    output_open(out, "doubts", '[');
    for (size_t i = 0; i < doubts->count; i++) {
        output_open(out, NULL, '{');
        output_number(out, "code", (uint64_t) doubts->all[i].code);
        output_string(out, "words", doubts->all[i].text);
        output_close(out, '}');
    }
    output_close(out, ']');
}

static void tell_gateway(struct output *out, const struct side *side)
{
    struct engine_policy policies[GATEWAY_POLICIES];
    const size_t count = side->engine != NULL ? engine_policies(side->engine, policies, GATEWAY_POLICIES) : 0;
    output_open(out, "policies", '[');
    for (size_t i = 0; i < count; i++) {
        struct sentence s = {.length = 0};
        describe_limits(&s, policies[i].policy->limits, policies[i].policy->limit_count);
        output_open(out, NULL, '{');
        output_string(out, "policy", policies[i].policy->name);
        output_string(out, "words", s.text);
        output_flag(out, "shadow", policies[i].policy->mode == WEIR_SHADOW);
        output_number(out, "checked", policies[i].checked);
        output_number(out, "denied", policies[i].denied);
        output_close(out, '}');
    }
    output_close(out, ']');
    output_number(out, "denied_of_all", side->engine != NULL ? engine_denied_of_all(side->engine) : 0);
}

static void tell_side(struct output *out, const char *name, const struct side *side, uint64_t limited)
{
    struct sentence s = {.length = 0};
    output_open(out, name, '{');
    if (side->options.gateway) {
        tell_gateway(out, side);
    } else {
        output_string(out, "policy", side->policy->name);
    }
    output_string(out, "file", side->file.path);
    if (!side->options.gateway) {
        describe_limits(&s, side->policy->limits, side->policy->limit_count);
        output_string(out, "words", s.text);
    }
    output_number(out, "nodes", side->options.nodes);
    output_number(out, "denied", side->denied);
    output_number(out, "denied_units", side->denied_units);
    output_number(out, "delayed", side->delayed);
    output_number(out, "limited_keys", limited);
    output_number(out, "evicted", side->engine != NULL ? engine_evicted(side->engine) : 0);
    output_number(out, "untracked", side->engine != NULL ? engine_untracked(side->engine) : 0);
    output_close(out, '}');
}

static void tell_steps(struct output *out, const struct report *report)
{
    const struct timeline *t = &report->replay->timeline;
    const bool compares = report->replay->side_count > 1;
    output_number(out, "step_s", t->step_s);
    output_open(out, "steps", '[');
    for (size_t i = 0; i < t->count; i++) {
        output_open(out, NULL, '{');
        output_number(out, "time_s", t->first_s + i * t->step_s);
        output_number(out, "requests", t->steps[i].requests);
        output_number(out, "denied", t->steps[i].denied);
        if (compares) {
            output_number(out, "denied_old", t->steps[i].denied_old);
        }
        output_close(out, '}');
    }
    output_close(out, ']');
}

static void tell_top(struct output *out, const struct report *report)
{
    char text[KEY_TEXT_SIZE];
    output_open(out, "top", '[');
    for (size_t i = 0; i < report->findings->top_count; i++) {
        const struct client *c = report->findings->top[i];
        output_open(out, NULL, '{');
        output_string(out, "key", key_text(text, client_key_text(c), c->length, c->address));
        output_number(out, "requests", c->requests);
        output_number(out, "denied", c->denied);
        if (report->replay->side_count > 1) {
            output_number(out, "denied_old", c->denied_old);
        }
        if (c->denied != 0) {
            output_number(out, "first_ms", c->first_ms);
            output_number(out, "last_ms", c->last_ms);
        }
        output_number(out, "longest_ms", c->longest_ms);
        output_number(out, "peak", c->peak);
        output_close(out, '}');
    }
    output_close(out, ']');
    output_number(out, "top_missing", report->replay->clients.lost);
}

static void tell_candidate(struct output *out, const char *name, const struct candidates *c,
                           const struct limit_finding *found, int number)
{
    struct sentence s = {.length = 0};
    if (number < 0) {
        return;
    }
    report_limit_words(&s, c, c->numbers[number], c->bursts[number]);
    output_open(out, name, '{');
    output_number(out, "limit", c->numbers[number]);
    if (c->bucket) {
        output_number(out, "burst", c->bursts[number]);
    }
    output_number(out, "keys_ppm", found->keys_ppm[number]);
    output_number(out, "requests_ppm", found->requests_ppm[number]);
    output_string(out, "words", s.text);
    output_close(out, '}');
}

static void tell_limits(struct output *out, const struct report *report)
{
    const struct replay *r = report->replay;
    output_number(out, "through_ppm", r->choices->through_ppm);
    output_open(out, "limits", '[');
    for (size_t i = 0; i < r->clients.row_count; i++) {
        const struct candidates *c = &r->candidates[i];
        const struct limit_finding *found = &report->findings->limits[i];
        output_open(out, NULL, '{');
        output_string(out, "name", c->limit.name);
        tell_candidate(out, "for_keys", c, found, found->for_keys);
        tell_candidate(out, "for_requests", c, found, found->for_requests);
        if (c->bucket) {
            output_number(out, "burst_for_keys", found->burst);
        }
        output_open(out, "candidates", '[');
        for (int k = 0; k < CANDIDATES; k++) {
            tell_candidate(out, NULL, c, found, k);
        }
        output_close(out, ']');
        output_close(out, '}');
    }
    output_close(out, ']');
}

void report_data(struct output *out, const struct report *report)
{
    const struct replay *r = report->replay;
    const struct findings *f = report->findings;
    output_open(out, NULL, '{');
    tell_traces(out, report);
    tell_doubts(out, report->doubts);
    output_flag(out, "interrupted", r->interrupted);
    output_number(out, "requests", r->requests);
    output_number(out, "units", r->units);
    output_number(out, "first_ms", r->first_ms);
    output_number(out, "last_ms", r->last_ms);
    output_number(out, "keys", f->keys);
    output_flag(out, "keys_sampled", f->sampled);
    output_number(out, "keys_known", f->known);
    tell_side(out, "new", &r->sides[SIDE_NEW], f->limited);
    if (r->side_count > 1) {
        tell_side(out, "old", &r->sides[SIDE_OLD], f->limited_old);
        output_number(out, "denied_both", r->denied_both);
        output_number(out, "keys_only_new", f->only_new);
        output_number(out, "keys_only_old", f->only_old);
    }
    tell_steps(out, report);
    tell_top(out, report);
    output_open(out, "peaks", '[');
    for (size_t i = 0; i < PEAK_COUNT; i++) {
        output_open(out, NULL, '{');
        output_number(out, "keys_ppm", peak_ppm[i]);
        output_number(out, "requests", f->peaks[i]);
        output_close(out, '}');
    }
    output_close(out, ']');
    tell_limits(out, report);
    output_close(out, '}');
    output_line(out);
}
