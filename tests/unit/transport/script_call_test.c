/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The words of script calls, as the opening comments of the scripts list them.
 *
 * Guards: src/transport/redis/script_call.c, src/base/digits.h
 */
#include <malloc.h>

#include "support/redis_scene.h"
#include "transport/redis/script_call.h"
#include "transport/redis/scripts.h"

#define REPORTS BATCH_REPORTS

/* A round whose reports are in one batch, which is not the first of the round. */
static struct {
    struct redis_transport *t;
    struct round round;
    struct report reports[1 + REPORTS];
    struct history_report histories[BATCH_HISTORIES];
    uint32_t order[1 + REPORTS];
    struct batch batch;
    struct command command;
    int at; /* the word that is read next */
} s;

static void begin(enum script script, uint32_t count)
{
    memset(&s, 0, sizeof(s));
    s.t = scene_open("redis://a");
    assert_int_equal(script_call_make_room(s.t), 0);
    s.round = (struct round){.reports = s.reports, .node = "n7"};
    s.t->round = &s.round;
    s.t->report_order = s.order;
    s.batch = (struct batch){.script = script, .first = 1, .count = count};
    for (uint32_t i = 0; i < count; i++) {
        struct report *report = &s.reports[count - 1 - i]; /* the order is not that of the round */
        s.order[1 + i] = count - 1 - i;
        report->kind = (enum report_kind)(script - SCRIPT_WINDOW);
        report->unit_ps = 1000000;
        report->expire_ms = 60000;
        report->history = script == SCRIPT_HISTORY ? &s.histories[i] : NULL;
        (void) snprintf(report->record, sizeof(report->record), "record-%u", i);
        (void) snprintf(report->author, sizeof(report->author), "author-%u", i);
    }
}

static struct report *report_at(uint32_t i)
{
    return &s.reports[s.order[1 + i]];
}

static void finish(void)
{
    assert_int_equal(s.at, s.command.argc);
    s.t->report_order = NULL;
    s.t->round = NULL;
    scene_close(s.t);
}

static void expect(const char *word)
{
    assert_in_range(s.at, 0, s.command.argc - 1);
    assert_int_equal(s.command.lengths[s.at], strlen(word));
    assert_memory_equal(s.command.argv[s.at++], word, strlen(word));
}

static void expect_number(uint64_t number)
{
    char word[24];
    (void) snprintf(word, sizeof(word), "%llu", (unsigned long long) number);
    expect(word);
}

static void make_words(const char *sha)
{
    s.command = script_call_words(s.t, &s.batch);
    s.at = 0;
    expect("EVALSHA");
    expect(sha);
}

/* A word of numbers: doubles, and 16 bits each, the least byte first. */
struct numbers {
    const char *at, *end;
};

static struct numbers next_numbers(void)
{
    assert_in_range(s.at, 0, s.command.argc - 1);
    const char *word = s.command.argv[s.at];
    return (struct numbers){word, word + s.command.lengths[s.at++]};
}

static double next_double(struct numbers *numbers)
{
    double value;
    assert_true(numbers->end - numbers->at >= (int) sizeof(value));
    memcpy(&value, numbers->at, sizeof(value));
    numbers->at += sizeof(value);
    return value;
}

static void expect_doubles(struct numbers *numbers, size_t count, const double *values)
{
    for (size_t i = 0; i < count; i++) {
        assert_true(next_double(numbers) == values[i]);
    }
}

static void expect_index(struct numbers *numbers, unsigned index)
{
    assert_true(numbers->end - numbers->at >= 2);
    assert_int_equal((unsigned char) numbers->at[0] + 256 * (unsigned char) numbers->at[1], index);
    numbers->at += 2;
}

static void test_a_heartbeat_tells_the_node_its_state_and_its_time(void **state)
{
    (void) state;
    static const struct {
        uint32_t suspect_ms;
        bool asks, leaves;
        const char *member, *suspect, *does;
    } cases[] = {
        {2000, false, false, "n7:2000:9000", "2000", "0"},
        {2000, true, false, "n7:2000:9000", "2000", "2"},
        {0, false, true, "n7:9000:9000", "9000", "1"},
        {1, true, true, "n7:1:9000", "1", "1"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin(SCRIPT_HEARTBEAT, 0);
        (void) strcpy(s.t->heartbeats[1].key, "weir:{001}:nodes");
        s.round.suspect_ms = cases[i].suspect_ms;
        s.round.node_lifetime_ms = 9000;
        s.round.asks = cases[i].asks;
        s.round.leaves = cases[i].leaves;
        s.round.fleet_ns = 1760000000123456789;
        s.round.wall_ns = 1750000000000001999;
        make_words(script_heartbeat_sha);
        expect("1");
        expect("weir:{001}:nodes");
        expect(cases[i].member);
        expect(cases[i].suspect);
        expect("9000");
        expect(cases[i].does);
        expect("1760000000123456");
        expect("1750000000000001");
        finish();
    }
}

static void test_the_overrides_are_asked_for_by_their_version(void **state)
{
    (void) state;
    begin(SCRIPT_OVERRIDES, 0);
    (void) strcpy(s.round.overrides_version, "v12");
    make_words(script_overrides_sha);
    expect("1");
    expect("weir:overrides");
    expect("v12");
    finish();
}

static void test_limits_are_told_with_their_digests(void **state)
{
    (void) state;
    begin(SCRIPT_LIMITS, 0);
    struct round_limits *limits = &s.round.limits;
    (void) strcpy(limits->version, "17");
    (void) strcpy(limits->digest, "0123");
    (void) strcpy(limits->before, "4567");
    (void) strcpy(limits->text, "edge-1\napi token_bucket 1 per 1s\n");
    limits->life_ms = 90000;
    make_words(script_limits_sha);
    expect("1");
    expect("weir:limits");
    expect("17");
    expect("0123");
    expect("90000");
    expect(limits->text);
    expect("4567");
    finish();
}

static void test_a_call_has_the_source_where_it_is_to_have_it(void **state)
{
    (void) state;
    const char *const sources[] = {script_read_nodes,    script_read_authors,  script_read_entries,  script_read_use,
                                   script_read_page,     script_heartbeat,     script_overrides,     script_limits,
                                   script_report_window, script_report_bucket, script_report_history};
    struct inspection inspections[2] = {{.words = {"weir:nodes"}, .key_count = 1},
                                        {.words = {"weir:nodes"}, .key_count = 1}};
    for (int script = 0; script < SCRIPT_COUNT; script++) {
        begin((enum script) script, script >= SCRIPT_WINDOW);
        s.round.inspections = inspections;
        s.batch.with_source = true;
        s.command = script_call_words(s.t, &s.batch);
        expect("EVAL");
        expect(sources[script]);
        s.at = s.command.argc;
        finish();
    }
}

/* What a report of a window or bucket says, and whether its new units can just be added to the record. */
struct told {
    uint64_t count, demand, refunds, reset_us, reset_kept, acked;
    bool added;
};

static const struct told told[] = {
    {9, 9, 0, 0, 0, 4, true},
    {9, 9, 0, 0, 0, 8, true},
    {9, 9, 0, 0, 0, 9, false},  /* nothing is new */
    {9, 9, 0, 0, 0, 10, false}, /* nor here */
    {9, 10, 0, 0, 0, 4, false}, /* some were denied */
    {9, 9, 2, 0, 0, 4, false},
    {9, 9, 0, 1760000000000000, 3, 4, false},
    {(UINT64_C(1) << 53) - 1, (UINT64_C(1) << 53) - 1, 0, 0, 0, (UINT64_C(1) << 53) - 2, true},
    {(UINT64_C(1) << 53) - 1, (UINT64_C(1) << 53) + 6, (UINT64_C(1) << 53) - 7, 0, 0, (UINT64_C(1) << 53) - 2, false},
};

#define TOLD (sizeof(told) / sizeof(told[0]))

static void tell(struct report *report, const struct told *from)
{
    report->count = from->count;
    report->demand = from->demand;
    report->refunds = from->refunds;
    report->reset_us = from->reset_us;
    report->reset_kept = from->reset_kept;
    report->acked = from->acked;
}

static void expect_records(uint32_t count)
{
    expect_number(count);
    for (uint32_t i = 0; i < count; i++) {
        char record[24];
        (void) snprintf(record, sizeof(record), "record-%u", i);
        expect(record);
    }
}

static void expect_author(uint32_t i)
{
    char author[24];
    (void) snprintf(author, sizeof(author), "author-%u", i);
    expect(author);
}

static void test_a_window_is_told_as_growth_or_in_full(void **state)
{
    (void) state;
    for (int doubtful = 0; doubtful < 2; doubtful++) {
        begin(SCRIPT_WINDOW, TOLD + 2);
        for (uint32_t i = 0; i < TOLD; i++) {
            tell(report_at(i), &told[i]);
            report_at(i)->expire_ms = i == 3 ? 7 : 60000;
            report_at(i)->unit_ps = i; /* a window has none */
        }
        /* The author's first report; and one of which nothing is known but that it has no units. */
        tell(report_at(TOLD), &(struct told){.count = 5, .demand = 5});
        s.t->doubtful = doubtful != 0;
        s.round.part = doubtful != 0 ? 12 : 0;
        make_words(script_report_window_sha);
        expect_records(TOLD + 2);
        expect(doubtful != 0 ? "12" : "");
        struct numbers counts = next_numbers();
        struct numbers indices = next_numbers();
        struct numbers merged = next_numbers();
        expect("60000");
        expect("7");
        for (uint32_t i = 0; i < TOLD + 2; i++) {
            const struct report *report = report_at(i);
            const bool added = doubtful == 0 && (i < TOLD ? told[i].added : i == TOLD);
            const double count = added ? (double) report->count : 0;
            assert_true(next_double(&counts) == (i == TOLD ? -count : count));
            expect_index(&indices, i == 3 ? 2 : 1);
            expect_author(i);
            if (added) {
                expect_number(report->count - report->acked);
            } else {
                expect_doubles(&merged, 5,
                               (const double[]){(double) (report->count), (double) (report->demand),
                                                (double) (report->refunds), (double) report->reset_us,
                                                (double) report->reset_kept});
            }
        }
        assert_true(counts.at == counts.end && indices.at == indices.end && merged.at == merged.end);
        finish();
    }
}

#define AHEAD_US UINT64_C(280000000000000) /* as report_bucket.lua has it */

static void test_a_bucket_is_told_as_growth_or_in_full(void **state)
{
    (void) state;
    /* What a bucket has beside: the time of its new units, and what makes it be merged. */
    static const struct {
        uint64_t acked, unit_ps, acked_refunds, known_refunds, moves, takes_us;
        bool added;
    } more[] = {
        {4, 1000000, 0, 0, 0, 100, true},
        {4, 1000001, 0, 0, 0, 101, true}, /* rounded up */
        {4, 1, 0, 0, 0, 1, true},
        {0, 1000000, 0, 0, 0, 0, false}, /* the author's first */
        {4, 1000000, 1, 0, 0, 0, false},
        {4, 1000000, 0, 1, 0, 0, false},
        {4, 1000000, 0, 0, 3, 0, false},
        {4, AHEAD_US / 100 * 1000000, 0, 0, 0, 0, false}, /* farther ahead than the script goes */
        {4, AHEAD_US / 100 * 1000000 - 10000, 0, 0, 0, AHEAD_US - 1, true},
    };
    const uint32_t count = TOLD + sizeof(more) / sizeof(more[0]);
    for (int doubtful = 0; doubtful < 2; doubtful++) {
        begin(SCRIPT_BUCKET, count);
        for (uint32_t i = 0; i < count; i++) {
            struct report *report = report_at(i);
            tell(report, i < TOLD ? &told[i] : &(struct told){.count = 104, .demand = 104});
            report->now_us = 1760000000000000;
            report->tat_us = 1000 + i;
            report->from_us = 2000 + i;
            report->most_us = 3000 + i;
            report->known = 4000 + i;
            report->expire_ms = i == 2 ? 7 : 60000;
            if (i >= TOLD) {
                report->acked = more[i - TOLD].acked;
                report->unit_ps = more[i - TOLD].unit_ps;
                report->acked_refunds = more[i - TOLD].acked_refunds;
                report->known_refunds = more[i - TOLD].known_refunds;
                report->moves = more[i - TOLD].moves;
            }
        }
        s.t->doubtful = doubtful != 0;
        s.round.part = 7;
        s.t->cluster = doubtful == 0; /* whose records have no parts */
        make_words(script_report_bucket_sha);
        expect_records(count);
        expect(doubtful != 0 ? "7" : "");
        expect("1760000000000000");
        struct numbers fixed = next_numbers();
        struct numbers merged = next_numbers();
        const struct {
            uint64_t unit_ps, expire_ms;
        } rates[] = {{1000000, 60000},
                     {1000000, 7},
                     {1000001, 60000},
                     {1, 60000},
                     {AHEAD_US / 100 * 1000000, 60000},
                     {AHEAD_US / 100 * 1000000 - 10000, 60000}};
        for (size_t i = 0; i < 6; i++) {
            expect_number(rates[i].unit_ps);
            expect_number(rates[i].expire_ms);
        }
        for (uint32_t i = 0; i < count; i++) {
            const struct report *report = report_at(i);
            const bool added = doubtful == 0 && (i < TOLD ? told[i].added : more[i - TOLD].added);
            const uint64_t growth = report->count - report->acked;
            const uint64_t takes_us = i < TOLD ? growth : more[i - TOLD].takes_us;
            expect_doubles(&fixed, 5,
                           (const double[]){added ? (double) report->count : 0, 1000 + i,
                                            (report->moves != 0 ? 3000 : 2000) + i, added ? (double) takes_us : 0,
                                            4000 + i});
            unsigned rate = 1;
            while (rates[rate - 1].unit_ps != report->unit_ps || rates[rate - 1].expire_ms != report->expire_ms) {
                rate++;
            }
            expect_index(&fixed, rate);
            expect_author(i);
            if (added) {
                expect_number(growth);
                expect_number(takes_us);
            } else {
                expect_doubles(&merged, 9,
                               (const double[]){(double) (report->count), (double) (report->demand),
                                                (double) (report->refunds), (double) report->reset_us,
                                                (double) report->reset_kept, (double) (report->acked),
                                                (double) (report->acked_refunds), (double) (report->known_refunds),
                                                (double) report->moves});
            }
        }
        assert_true(fixed.at == fixed.end && merged.at == merged.end);
        finish();
    }
}

static void test_a_log_is_told_by_its_units(void **state)
{
    (void) state;
    begin(SCRIPT_HISTORY, 2);
    for (uint32_t i = 0; i < 2; i++) {
        struct report *report = report_at(i);
        struct history_report *history = report->history;
        (void) snprintf(history->demand_record, sizeof(history->demand_record), "demand-%u", i);
        history->first = 10 + i;
        history->refund_from = 20 + i;
        history->refund_to = 30 + i;
        history->now_us = 40 + i;
        history->period_us = 50 + i;
        history->limit = 60 + i;
        report->demand = 70 + i;
        report->reset_us = 80 + i;
        report->expire_ms = 90 + i;
        history->time_count = i * REPORT_HISTORY_TIMES;
        for (uint32_t at = 0; at < history->time_count; at++) {
            history->times_us[at] = UINT64_MAX - at;
        }
    }
    make_words(script_report_history_sha);
    expect("4");
    expect("record-0");
    expect("record-1");
    expect("demand-0");
    expect("demand-1");
    for (uint32_t i = 0; i < 2; i++) {
        expect_author(i);
        for (uint64_t field = 10; field <= 90; field += 10) {
            expect_number(field + i);
        }
        expect(i == 0 ? "0" : "256");
        for (uint32_t at = 0; at < i * REPORT_HISTORY_TIMES; at++) {
            expect_number(UINT64_MAX - at);
        }
    }
    finish();
}

/* Bytes of the texts up to the end of the words that are in them; the number of words has room as well. */
static size_t room_taken(void)
{
    size_t most = 0;
    assert_true((size_t) s.command.argc * sizeof(*s.t->argv) <= malloc_usable_size(s.t->argv));
    assert_true((size_t) s.command.argc * sizeof(*s.t->lengths) <= malloc_usable_size(s.t->lengths));
    const size_t size = malloc_usable_size(s.t->texts);
    for (int i = 0; i < s.command.argc; i++) {
        const uintptr_t at = (uintptr_t) s.command.argv[i] - (uintptr_t) s.t->texts;
        if (at < size) {
            most = at + s.command.lengths[i] > most ? at + s.command.lengths[i] : most;
        }
    }
    assert_true(most <= size);
    return most;
}

static void test_the_largest_calls_have_room(void **state)
{
    (void) state;
    for (int script = SCRIPT_WINDOW; script < SCRIPT_COUNT; script++) {
        const uint32_t count = script == SCRIPT_HISTORY ? BATCH_HISTORIES : BATCH_REPORTS;
        begin((enum script) script, count);
        for (uint32_t i = 0; i < count; i++) {
            struct report *report = report_at(i);
            report->count = report->demand = report->reset_us = UINT64_MAX;
            report->unit_ps = UINT64_MAX - i; /* no two are alike, so that an index takes its second byte */
            report->expire_ms = UINT64_MAX - i;
            if (report->history != NULL) {
                struct history_report *history = report->history;
                history->first = history->refund_from = history->refund_to = UINT64_MAX;
                history->now_us = history->period_us = history->limit = UINT64_MAX;
                history->time_count = REPORT_HISTORY_TIMES;
                memset(history->times_us, 0xff, sizeof(history->times_us));
            }
        }
        s.round.part = UINT32_MAX;
        s.command = script_call_words(s.t, &s.batch);
        assert_true(room_taken() > 20000);
        if (script == SCRIPT_WINDOW) {
            s.at = 2 + 1 + BATCH_REPORTS + 2;
            struct numbers indices = next_numbers();
            for (uint32_t i = 0; i < count; i++) {
                expect_index(&indices, i + 1);
            }
        }
        s.at = s.command.argc;
        finish();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_heartbeat_tells_the_node_its_state_and_its_time),
        cmocka_unit_test(test_the_overrides_are_asked_for_by_their_version),
        cmocka_unit_test(test_limits_are_told_with_their_digests),
        cmocka_unit_test(test_a_call_has_the_source_where_it_is_to_have_it),
        cmocka_unit_test(test_a_window_is_told_as_growth_or_in_full),
        cmocka_unit_test(test_a_bucket_is_told_as_growth_or_in_full),
        cmocka_unit_test(test_a_log_is_told_by_its_units),
        cmocka_unit_test(test_the_largest_calls_have_room),
    };
    return cmocka_run_group_tests_name("unit/transport/script_call", tests, NULL, NULL);
}
