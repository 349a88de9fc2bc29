/* SPDX-License-Identifier: Apache-2.0 */
/* What a replay has shown, on standard output: tables for people, or JSON. */
#ifndef WEIR_SIMULATE_REPORT_H
#define WEIR_SIMULATE_REPORT_H

#include "../quantity.h"
#include "../trace/packets.h"
#include "findings.h"

struct doubts;

struct report {
    const struct replay *replay;
    const struct findings *findings;
    const struct doubts *doubts;
    const struct trace *traces;
    size_t trace_count;
    struct merge_counts counts;
    struct timeline steps; /* as many as a table has room for */
};

/* Tables, fitted to the width of the terminal, or to 80 columns. */
void report_text(struct output *out, const struct report *report);
/* The fields of the one object of JSON. */
void report_data(struct output *out, const struct report *report);

/* Writes where requests of a capture go: "203.0.113.9:27015". Returns `out`. */
#define REPORT_SERVICE_SIZE 80
const char *report_service(char out[REPORT_SERVICE_SIZE], const struct service *service);

/* The most policies that a gateway asks. */
#define GATEWAY_POLICIES 32

/* What is left out of captures, in words and as fields of JSON. */
#define LEFT_OUT_WORDS 4
extern const struct left_out_word {
    enum datagram_kind kind;
    const char *words, *field;
} report_left_out[LEFT_OUT_WORDS];

/* Writes "2026-11-25 10:00:00", in UTC. Returns `out`. */
#define REPORT_TIME_SIZE 32
char *report_time(char out[REPORT_TIME_SIZE], uint64_t time_ms);

/* The words of a limit with other numbers: "20 a second with bursts of 40". */
void report_limit_words(struct sentence *s, const struct candidates *c, uint64_t limit, uint64_t burst);

#endif
