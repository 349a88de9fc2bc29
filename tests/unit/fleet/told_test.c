/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node whose fleet is this test: when it begins rounds, what it tells in them, and what it makes of each answer.
 *
 * Guards: src/fleet/round.c, src/fleet/fleet.c, src/fleet/keys/report.c, src/fleet/keys/merge.c,
 * src/fleet/keys/merge_bucket.c, src/fleet/keys/gather.c, src/fleet/keys/reading.c, src/fleet/keys/report_history.c,
 * src/fleet/outage.c
 */
#include <errno.h>
#include <unistd.h>

#include "algorithm/window.h"
#include "fleet/keys/full_sync.h"
#include "fleet/keys/reading.h"
#include "fleet/keys/report_history.h"
#include "process/evict.h"
#include "support/nodes.h"
#include "support/policies.h"
#include "transport/author.h"

#define TOLD 1100

/* 20 seconds into a minute. */
#define MINUTE_NUMBER UINT64_C(29333333)
#define MINUTE_NS     (60 * SECOND)

/* The transport, and what it answers. Each round is answered in the step after it. */
static struct {
    struct transport base;
    struct fake_clock clock;
    weir *w;
    weir_thread *t;
    weir_key key;
    struct round *under_way;
    bool down, silent, fails;
    struct transport_counts counts;
    uint64_t due_ns; /* when it is to be stepped */
    int status;
    uint64_t remote, remote_refunds,
        reset;             /* units of others, refunds; units that a reset refunds in the node's name */
    uint64_t tat_ahead_us; /* a bucket's time, from now on */
    uint32_t live, suspect;
    uint64_t watermark_ago_ns, trip_ns;
    bool lost_state;
    /* Of the last round, and of the last one with reports. */
    unsigned rounds;
    uint64_t begun_ns;
    struct round last;
    size_t told_count;
    struct report told[TOLD];
    struct history_report log; /* of the first report */
    /* Of a log: what is answered beside. */
    uint64_t log_own, log_sum;
    struct history_report log_answer;
} f;

static int told_begin(struct transport *t, struct round *round, uint64_t now_ns)
{
    (void) t;
    if (f.down) {
        return -ENOTCONN;
    }
    assert_null(f.under_way);
    f.under_way = round;
    f.begun_ns = round->sent_ns = now_ns;
    f.last = *round;
    f.rounds++;
    if (round->report_count != 0) {
        f.told_count = round->report_count;
        memcpy(f.told, round->reports, round->report_count * sizeof(f.told[0]));
        if (round->reports[0].history != NULL) {
            f.log = *round->reports[0].history;
        }
    }
    return 0;
}

static enum transport_event told_step(struct transport *t, uint64_t now_ns)
{
    (void) t;
    struct round *round = f.under_way;
    if (round == NULL || f.silent) {
        return TRANSPORT_NOTHING;
    }
    f.under_way = NULL;
    if (f.fails) {
        return TRANSPORT_ROUND_FAILED;
    }
    for (size_t i = 0; i < round->report_count; i++) {
        struct report *report = &round->reports[i];
        report->status = f.status;
        report->author_count = report->count;
        report->author_refunds = report->refunds + (i + 1 == round->report_count ? f.reset : 0);
        report->sum = report->count + f.remote;
        report->sum_demand = report->demand + f.remote;
        report->sum_refunds = report->author_refunds + f.remote_refunds;
        report->tat_answer_us = report->now_us + f.tat_ahead_us;
        if (report->history != NULL) {
            report->author_count = f.log_own;
            report->sum = f.log_sum;
            report->history->group_count = f.log_answer.group_count;
            report->history->reset_us = f.log_answer.reset_us;
            report->history->other_authors = 1;
            memcpy(report->history->groups, f.log_answer.groups, sizeof(f.log_answer.groups));
        }
    }
    f.reset = round->report_count != 0 ? 0 : f.reset; /* once */
    round->received_ns = now_ns;
    round->sent_ns = now_ns - f.trip_ns;
    round->fleet_wall_ns = f.clock.wall_ns;
    round->live_nodes = f.live;
    round->suspect_nodes = f.suspect;
    round->watermark_ns = f.clock.wall_ns - f.watermark_ago_ns;
    round->lost_state = f.lost_state;
    round->sent_size = 100;
    return TRANSPORT_ROUND_DONE;
}

static enum transport_state told_state(const struct transport *t)
{
    (void) t;
    return f.down ? TRANSPORT_DOWN : f.under_way != NULL ? TRANSPORT_BUSY : TRANSPORT_READY;
}

static size_t told_wait_for(const struct transport *t, struct pollfd *fds, uint64_t *deadline_ns)
{
    (void) t;
    (void) fds;
    *deadline_ns = f.due_ns;
    return 3;
}

static const char *told_problem(const struct transport *t)
{
    (void) t;
    return f.down ? "it is down" : NULL;
}

static const char *told_server(const struct transport *t)
{
    (void) t;
    return "the test";
}

static struct transport_counts told_counts(const struct transport *t)
{
    (void) t;
    return f.counts;
}

static void told_retry(struct transport *t, uint64_t now_ns)
{
    (void) t;
    (void) now_ns;
}

static bool told_refused(const struct transport *t)
{
    (void) t;
    return false;
}

static void told_close(struct transport *t)
{
    (void) t;
}

static const struct transport_ops told_ops = {.begin = told_begin,
                                              .step = told_step,
                                              .state = told_state,
                                              .wait_for = told_wait_for,
                                              .problem = told_problem,
                                              .server = told_server,
                                              .counts = told_counts,
                                              .retry = told_retry,
                                              .refused = told_refused,
                                              .close = told_close};

static void advance(uint64_t ms)
{
    fake_clock_advance(&f.clock, ms * MILLISECOND);
    assert_true(weir_poll(f.w) >= 0);
}

static void pass_ms(uint64_t ms)
{
    for (uint64_t done = 0; done < ms; done += STEP_MS) {
        advance(STEP_MS);
    }
}

static size_t max_keys = 1000;
static uint32_t expected_nodes = 1;
static const char *node_name;

static void told_open_policy(const weir_policy *policy)
{
    memset(&f, 0, sizeof(f));
    f.base.ops = &told_ops;
    f.live = 1;
    f.due_ns = UINT64_MAX;
    fake_clock_init(&f.clock, START_NS);
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &f.clock.clock;
    options.sync_interval_ms = INTERVAL_MS;
    options.max_keys = max_keys;
    options.max_threads = 2;
    options.expected_nodes = expected_nodes;
    options.redis_timeout_ms = 10;
    options.node_name = node_name;
    weir_error error;
    if (weir_open_on(&options, &f.base, &f.w, &error) != 0 || weir_set_policies(f.w, policy, 1, &error) != 0) {
        fail_msg("%s", error.message);
    }
    f.t = weir_attach(f.w);
    f.key = weir_make_key(f.w, weir_find_policy(f.w, "p"), "key", 3);
}

static void told_open(const weir_limit *limit)
{
    const weir_policy policy = patient_policy_of(limit);
    told_open_policy(&policy);
}

/* As told_open, and the node has joined, half an interval before its next round. */
static void told_start(const weir_limit *limit)
{
    told_open(limit);
    pass_ms(INTERVAL_MS + INTERVAL_MS / 2);
    assert_true(f.w->fleet->clock.known);
}

static void told_end(void)
{
    f.down = true;
    weir_close(f.w);
}

static weir_stats stats(void)
{
    weir_stats stats;
    weir_get_stats(f.w, &stats);
    return stats;
}

/* The key's cell, and its full sync state. */
static struct cell *cell(struct sync_full **sync)
{
    struct node node = {.w = f.w, .t = f.t, .key = f.key};
    const uint32_t at = cell_of(&node);
    assert_int_not_equal(at, TABLE_NONE);
    *sync = sync_of(&f.w->limiter.process.syncs, at);
    return &f.w->limiter.process.table.cells[at];
}

static uint64_t window_units(void)
{
    struct sync_full *sync;
    return window_count(cell_state(dwcas_read(&cell(&sync)->state)));
}

static const weir_limit minute = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1000, .period_ns = MINUTE_NS};
static const weir_limit sliding = {.algorithm = WEIR_SLIDING_WINDOW, .limit = 1000, .period_ns = MINUTE_NS};
static const weir_limit bucket = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 1000, .period_ns = MINUTE_NS, .burst = 1000};

static void test_a_node_asks_the_time_first_and_then_tells_each_interval(void **state)
{
    (void) state;
    told_open(&minute);
    advance(10);
    assert_int_equal(f.rounds, 1);
    assert_true(f.last.asks && f.last.first && !f.last.leaves);
    assert_int_equal(f.last.report_count, 0);
    assert_int_equal(f.last.fleet_ns, 0);
    assert_int_equal(f.last.wall_ns, f.clock.wall_ns);
    assert_int_equal(f.last.suspect_ms, 3 * INTERVAL_MS);
    assert_int_equal(f.last.node_lifetime_ms, 10000);
    assert_int_equal(strlen(f.last.node), 12);
    assert_int_equal(strspn(f.last.node, "0123456789abcdef"), 12);
    struct membership alone; /* by the options of told_open */
    membership_open(&alone, 1, INTERVAL_MS * MILLISECOND, 10 * MILLISECOND);
    assert_int_equal(f.w->fleet->membership.await_ns, alone.await_ns);
    assert_int_equal(f.w->fleet->membership.settle_ns, alone.settle_ns);
    const uint64_t first_ns = f.begun_ns;
    advance(10);
    assert_int_equal(f.rounds, 2); /* at once: the first one had no reports */
    assert_true(!f.last.asks && !f.last.first);
    assert_int_equal(f.last.fleet_ns, f.clock.wall_ns);
    for (unsigned i = 1; i <= 10; i++) {
        while (f.rounds < 2 + i) {
            advance(10);
        }
        assert_int_equal(f.begun_ns, first_ns + i * INTERVAL_MS * MILLISECOND);
        assert_false(f.last.asks);
    }
    /* A slow answer moves no later round. */
    f.silent = true;
    pass_ms(INTERVAL_MS + 50);
    f.silent = false;
    while (f.rounds < 14) {
        advance(10);
    }
    while (f.rounds < 15) {
        advance(10);
    }
    const uint64_t off_ns = (f.begun_ns - first_ns) % (INTERVAL_MS * MILLISECOND);
    assert_in_range(off_ns, 0, INTERVAL_MS * MILLISECOND / 4);
    const weir_stats s = stats();
    assert_int_equal(s.sync_error_count, 0);
    assert_int_equal(s.sync_count, f.rounds - (f.under_way != NULL));
    assert_int_equal(s.live_nodes, 1);
    told_end();
}

static void test_a_round_that_failed_leaves_all_to_the_next(void **state)
{
    (void) state;
    told_start(&minute);
    weir_charge(f.t, &f.key, 300);
    f.fails = true;
    pass_ms(INTERVAL_MS);
    assert_int_equal(f.told_count, 1);
    assert_int_equal(f.told[0].count, 300);
    assert_int_equal(stats().sync_error_count, 1);
    f.told_count = 0;
    f.fails = false;
    pass_ms(INTERVAL_MS);
    assert_int_equal(f.told_count, 1);
    assert_int_equal(f.told[0].count, 300);
    assert_int_equal(f.told[0].acked, 0);
    /* After more than three intervals the next round only asks whether the fleet is there. */
    f.fails = true;
    pass_ms(4 * INTERVAL_MS + 100);
    assert_false(f.last.report_count != 0 && f.last.asks);
    assert_true(f.last.asks);
    f.fails = false;
    const uint64_t back_ns = f.clock.monotonic_ns;
    while (f.last.asks) {
        advance(10);
    }
    assert_true(f.begun_ns - back_ns <= INTERVAL_MS * MILLISECOND + 50 * MILLISECOND); /* at once after the answer */
    told_end();
}

static void test_a_window_is_told_by_its_number_until_it_is_over(void **state)
{
    (void) state;
    told_start(&minute);
    weir_charge(f.t, &f.key, 300);
    pass_ms(INTERVAL_MS);
    assert_int_equal(f.told_count, 1);
    const struct report *told = f.told;
    char record[40];
    (void) snprintf(record, sizeof(record), "}:f1m:p:key:%llu", (unsigned long long) MINUTE_NUMBER);
    assert_string_equal(told->record + 9, record);
    assert_ptr_equal(strstr(told->record, "weir:{"), told->record);
    assert_true(author_is_of(told->author, f.last.node));
    assert_int_equal(told->kind, REPORT_WINDOW);
    assert_int_equal(told->count, 300);
    assert_int_equal(told->demand, 300);
    assert_int_equal(told->acked + told->refunds + told->reset_us + told->reset_kept, 0);
    /* It counts in its own minute and in the next, and lives a second longer. */
    const uint64_t end_ns = (MINUTE_NUMBER + 2) * MINUTE_NS;
    const uint64_t told_ns = f.w->fleet->gather.now_ns;
    assert_int_equal(told->expire_ms, (end_ns - told_ns) / MILLISECOND + 1000);
    /* The next report has what was acknowledged, and what was denied. */
    weir_charge(f.t, &f.key, 100);
    assert_false(weir_check(f.t, &f.key, 900, NULL));
    pass_ms(INTERVAL_MS);
    assert_int_equal(f.told_count, 1);
    assert_int_equal(told->count, 400);
    assert_int_equal(told->acked, 300);
    assert_int_equal(told->demand, 1300);
    /* Given back. */
    weir_refund(f.t, &f.key, 150);
    pass_ms(INTERVAL_MS);
    assert_int_equal(told->count, 400);
    assert_int_equal(told->refunds, 150);
    weir_refund(f.t, &f.key, 10);
    pass_ms(INTERVAL_MS);
    assert_int_equal(told->refunds, 160);
    /* In the next minute what is new of the one before is told first. */
    while (f.clock.wall_ns < (MINUTE_NUMBER + 1) * MINUTE_NS) {
        pass_ms(100);
    }
    weir_charge(f.t, &f.key, 700);
    f.told_count = 0;
    while (f.told_count == 0) {
        advance(10);
    }
    assert_int_equal(f.told_count, 2);
    assert_string_equal(told[0].record, told[0].record);
    assert_ptr_equal(strstr(told[0].record, ":29333333"), told[0].record + strlen(told[0].record) - 9);
    assert_ptr_equal(strstr(told[1].record, ":29333334"), told[1].record + strlen(told[1].record) - 9);
    assert_int_equal(told[0].count, 400);
    assert_int_equal(told[0].refunds, 160);
    assert_int_equal(told[1].count, 700);
    assert_int_equal(told[1].refunds, 0);
    told_end();
}

static void test_a_reset_is_told_until_it_is_answered(void **state)
{
    (void) state;
    told_start(&minute);
    weir_charge(f.t, &f.key, 300);
    pass_ms(INTERVAL_MS);
    weir_charge(f.t, &f.key, 20);
    f.status = -EAGAIN;
    f.told_count = 0;
    const uint64_t reset_us = f.clock.wall_ns / 1000;
    f.down = true; /* else it is waited for */
    assert_int_not_equal(weir_reset(f.w, &f.key), 0);
    f.down = false;
    for (int i = 0; i < 2; i++) {
        pass_ms(INTERVAL_MS);
        assert_int_equal(f.told_count, 2); /* both windows, as the reset may be of both */
        f.told_count = 0;
        assert_in_range(f.told[1].reset_us, reset_us - 10000, reset_us + 10000);
        assert_int_equal(f.told[1].count, 320);
        assert_int_equal(f.told[1].refunds, 320); /* it is in force here */
        f.status = 0;
    }
    assert_int_equal(window_units(), 0);
    weir_charge(f.t, &f.key, 500);
    pass_ms(INTERVAL_MS);
    const struct report *last = &f.told[f.told_count - 1];
    assert_int_equal(last->reset_us, 0);
    assert_int_equal(last->count, 820);
    assert_int_equal(last->refunds, 320);
    told_end();
}

/* One answer after the other to a key of which 100 units were used here. */
static void test_an_answer_counts_the_units_of_the_others(void **state)
{
    (void) state;
    static const struct {
        uint64_t remote, remote_refunds, reset;
        uint64_t units, deficit, local_refunds; /* then */
    } answers[][3] = {
        {{250, 0, 0, 350, 0, 0}, {250, 40, 0, 310, 0, 0}, {300, 40, 0, 360, 0, 0}},
        {{250, 0, 0, 350, 0, 0}, {200, 0, 0, 350, 0, 0}, {260, 0, 0, 360, 0, 0}}, /* R3: what was lost stays */
        {{250, 0, 0, 350, 0, 0}, {250, 40, 0, 310, 0, 0}, {250, 30, 0, 310, 0, 0}},
        {{250, 0, 60, 290, 0, 60}, {250, 0, 0, 290, 0, 60}, {250, 0, 10, 280, 0, 70}},
        {{10, 300, 0, 0, 190, 0}, {110, 300, 0, 0, 90, 0}, {250, 300, 0, 50, 0, 0}}, /* both have given back the same */
        {{10, 300, 0, 0, 190, 0}, {200, 300, 0, 0, 0, 0}, {200, 300, 0, 0, 0, 0}},
    };
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        for (int kind = 0; kind < 2; kind++) {
            told_start(kind == 0 ? &minute : &sliding);
            weir_charge(f.t, &f.key, 100);
            for (size_t n = 0; n < 3; n++) {
                f.remote = answers[i][n].remote;
                f.remote_refunds = answers[i][n].remote_refunds;
                f.reset = answers[i][n].reset;
                struct sync_full *sync;
                (void) cell(&sync);
                struct node node = {.w = f.w, .t = f.t, .key = f.key};
                mark_as_asked(&node);
                f.told_count = 0;
                pass_ms(INTERVAL_MS);
                assert_true(f.told_count != 0);
                const struct report *told = &f.told[f.told_count - 1];
                assert_int_equal(told->count, 100); /* R1 */
                (void) cell(&sync);
                const struct refund_ledger *ledger = refund_ledger_of(&f.w->limiter.process, cell_of(&node));
                const uint64_t words[2] = {load_relaxed(&ledger->refunds[0]), load_relaxed(&ledger->refunds[1])};
                const uint64_t refunds = reading_refunds_of(words, load_relaxed(&sync->allowance.seq));
                if (window_units() != answers[i][n].units || sync->now.deficit != answers[i][n].deficit ||
                    refunds != answers[i][n].local_refunds) {
                    fail_msg("case %zu, answer %zu: %u units, deficit %u, refunds %u", i, n, (unsigned) window_units(),
                             (unsigned) sync->now.deficit, (unsigned) refunds);
                }
                assert_int_equal(sync->now.acked, 100);
            }
            told_end();
        }
    }
}

static void test_what_was_not_answered_is_told_again_and_what_was_refused_is_not(void **state)
{
    (void) state;
    told_start(&minute);
    weir_charge(f.t, &f.key, 300);
    f.status = -EAGAIN;
    pass_ms(INTERVAL_MS);
    assert_int_equal(f.told_count, 1);
    weir_stats s = stats();
    assert_int_equal(s.report_retry_count, 1);
    assert_int_equal(s.report_count, 0);
    assert_int_equal(s.rejected_report_count, 0);
    f.told_count = 0;
    f.status = -EPROTO;
    f.trip_ns = 7 * MILLISECOND;
    pass_ms(INTERVAL_MS);
    assert_int_equal(f.told_count, 1);
    s = stats();
    assert_int_equal(s.report_retry_count, 1);
    assert_int_equal(s.rejected_report_count, 1);
    assert_int_equal(s.report_count, 0);
    assert_int_equal(s.round_trip_ns, 7 * MILLISECOND);
    struct sync_full *sync;
    (void) cell(&sync);
    assert_int_equal(sync->now.acked, 0);
    f.told_count = 0;
    f.status = 0;
    pass_ms(2 * SCAN_INTERVALS * INTERVAL_MS); /* it is scanned */
    assert_true(f.told_count != 0);
    assert_int_equal(f.told[f.told_count - 1].count, 300);
    assert_true(stats().report_count >= 1);
    told_end();
}

static void test_a_fleet_that_has_lost_its_data_is_told_everything_once(void **state)
{
    (void) state;
    told_start(&minute);
    weir_charge(f.t, &f.key, 300);
    pass_ms(INTERVAL_MS);
    f.told_count = 0;
    pass_ms(8 * INTERVAL_MS);
    for (size_t i = 0; i < f.told_count; i++) {
        assert_int_equal(f.told[i].acked, 300);
    }
    f.lost_state = true;
    pass_ms(INTERVAL_MS);
    f.lost_state = false;
    assert_int_equal(stats().redis_lost_state_count, 1);
    bool again = false;
    for (unsigned i = 0; i < 5 * INTERVAL_MS / STEP_MS; i++) {
        f.told_count = 0;
        advance(STEP_MS);
        again = again || (f.told_count != 0 && f.told[0].count == 300 && f.told[0].acked == 0);
    }
    assert_true(again);
    told_end();
}

/* A round has room for a thousand reports; the rest follows at once, and so does what is new before it. */
static void test_what_a_round_has_no_room_for_follows_at_once(void **state)
{
    (void) state;
    max_keys = 10000;
    told_start(&minute);
    max_keys = 1000;
    static uint32_t names[3000];
    size_t named = 0;
    while (named < 2500) {
        names[named] = (uint32_t) named;
        const weir_key key = weir_make_key(f.w, weir_find_policy(f.w, "p"), &names[named++], sizeof(names[0]));
        weir_charge(f.t, &key, 600);
    }
    size_t told = 0;
    unsigned rounds = 0;
    for (unsigned i = 0; i < INTERVAL_MS / STEP_MS + 3 && told < named; i++) {
        f.told_count = 0;
        advance(STEP_MS);
        assert_true(f.told_count <= 1000);
        struct node node = {.w = f.w, .t = f.t};
        while (rounds == 0 && f.told_count != 0) {
            names[named] = (uint32_t) named;
            node.key = weir_make_key(f.w, weir_find_policy(f.w, "p"), &names[named++], sizeof(names[0]));
            weir_charge(f.t, &node.key, 1);
            if (cell_of(&node) < f.w->fleet->gather.dirty_cursor) {
                break;
            }
        }
        rounds += f.told_count != 0;
        told += f.told_count;
    }
    assert_in_range(told, named, named + 5); /* a key that a new one has moved is told again */
    assert_in_range(rounds, 3, 6);           /* and a bound in time */
    told_end();
}

static void test_the_last_round_tells_what_is_left_and_that_the_node_leaves(void **state)
{
    (void) state;
    told_start(&minute);
    weir_charge(f.t, &f.key, 7);
    pass_ms(INTERVAL_MS);
    assert_true(f.rounds > 1 && !f.last.leaves);
    weir_charge(f.t, &f.key, 5);
    f.told_count = 0;
    weir_close(f.w);
    assert_true(f.last.leaves);
    assert_int_equal(f.told_count, 1);
    assert_int_equal(f.told[0].count, 12);
}

static void test_an_answer_moves_a_bucket_to_the_fleets_time(void **state)
{
    (void) state;
    told_start(&bucket);
    weir_charge(f.t, &f.key, 300);
    pass_ms(INTERVAL_MS);
    assert_int_equal(f.told_count, 1);
    const struct report *told = f.told;
    assert_string_equal(told->record + 9, "}:b1m:p:key");
    assert_int_equal(told->kind, REPORT_BUCKET);
    assert_int_equal(told->count, 300);
    assert_int_equal(told->unit_ps, UINT64_C(60000000000));
    struct sync_full *sync;
    struct cell *at = cell(&sync);
    assert_int_equal(sync->now.acked, 300);
    assert_int_equal(bucket_total(cell_state(dwcas_read(&at->state))), 300);
    /* The node's own units stay owed, whatever an answer says that has no more of the others. */
    const uint64_t tat = cell_state(dwcas_read(&at->state)).a;
    weir_charge(f.t, &f.key, 100);
    pass_ms(INTERVAL_MS);
    assert_int_equal(f.told[0].count, 400);
    assert_int_equal(f.told[0].acked, 300);
    assert_int_equal(cell_state(dwcas_read(&at->state)).a - tat, 100 * 60 * MILLISECOND << BUCKET_FRACTION_BITS);
    /* What others have given back is taken off. */
    struct node node = {.w = f.w, .t = f.t, .key = f.key};
    f.remote = f.remote_refunds = 50;
    make_urgent(&node);
    pass_ms(INTERVAL_MS);
    (void) cell(&sync);
    assert_int_equal(load_relaxed(&sync->now.remote), 50);
    assert_int_equal(load_relaxed(&sync->now.remote_refunds), 50);
    told_end();
}

static const weir_limit log_limit = {.algorithm = WEIR_SLIDING_LOG, .limit = 1000, .period_ns = MINUTE_NS};

/* Until the next round that tells of a key, and its answer is taken in. */
static void tell_log(void)
{
    f.told_count = 0;
    while (f.told_count == 0 || f.under_way != NULL) {
        advance(10);
    }
    /* Of units that are lost a resync begins, whose turn may have come in the same round. */
    assert_in_range(f.told_count, 1, 2);
}

static void answer_log(uint64_t own, uint64_t sum)
{
    f.log_own = own;
    f.log_sum = sum;
}

static void expect_log(uint64_t first, uint32_t count, uint64_t refund_from, uint64_t refund_to, uint64_t live)
{
    if (f.log.first != first || f.log.time_count != count || f.log.refund_from != refund_from ||
        f.log.refund_to != refund_to || f.log.live != live) {
        fail_msg("from %u so many %u, refunds %u to %u, live %u", (unsigned) f.log.first, f.log.time_count,
                 (unsigned) f.log.refund_from, (unsigned) f.log.refund_to, (unsigned) f.log.live);
    }
}

static uint64_t log_room(void)
{
    struct node node = {.w = f.w, .t = f.t, .key = f.key};
    return room(&node);
}

/* A round has room for few logs, each in a place of its own; the rest follows at once. */
static void test_logs_that_a_round_has_no_room_for_follow_at_once(void **state)
{
    (void) state;
    static uint32_t names[300];
    told_start(&log_limit);
    answer_log(2, 2);
    for (uint32_t i = 0; i < 300; i++) {
        names[i] = i;
        const weir_key key = weir_make_key(f.w, weir_find_policy(f.w, "p"), &names[i], sizeof(names[i]));
        weir_charge(f.t, &key, 2);
    }
    size_t told = 0;
    for (unsigned i = 0; i < INTERVAL_MS / STEP_MS + 3 && told < 300; i++) {
        f.told_count = 0;
        advance(STEP_MS);
        assert_in_range(f.told_count, 0, ROUND_HISTORIES);
        for (size_t at = 0; at < f.told_count; at++) {
            assert_int_equal(f.told[at].count, 2);
            assert_ptr_equal(f.told[at].history, f.told[0].history + at);
        }
        told += f.told_count;
    }
    assert_int_equal(told, 300);
    told_end();
}

/* Urgent logs come first in a round, and evicted ones next. Those that find no room are told in a later round. */
static void test_evicted_logs_for_which_urgent_ones_leave_no_room_are_told_later(void **state)
{
    (void) state;
    enum { URGENT = ROUND_HISTORIES - 20, EVICTED = ROUND_HISTORIES / 2 };
    static uint32_t names[URGENT + EVICTED];
    told_start(&log_limit);
    answer_log(2, 2);
    struct process *process = &f.w->limiter.process;
    for (uint32_t i = 0; i < URGENT + EVICTED; i++) {
        names[i] = i;
        struct node node = {.w = f.w, .t = f.t};
        node.key = weir_make_key(f.w, weir_find_policy(f.w, "p"), &names[i], sizeof(names[i]));
        weir_charge(f.t, &node.key, 2);
        if (i < URGENT) {
            make_urgent(&node);
        } else {
            const uint32_t at = cell_of(&node);
            assert_true(cell_lock(&process->table.cells[at]));
            evict_cell(process, process_policies(process), at, f.w->fleet->gather.now_ns);
            cell_unlock(&process->table.cells[at]);
        }
    }
    f.w->fleet->schedule.next_ns = f.clock.monotonic_ns; /* an interval's round, which has all kinds of reports */
    size_t told = 0;
    size_t most = 0;
    for (unsigned i = 0; i < INTERVAL_MS / STEP_MS + 3; i++) {
        f.told_count = 0;
        advance(STEP_MS);
        told += f.told_count;
        most = max_u64(most, f.told_count);
    }
    assert_int_equal(most, ROUND_HISTORIES);
    assert_int_equal(told, URGENT + EVICTED);
    told_end();
}

static void test_a_log_is_told_unit_by_unit(void **state)
{
    (void) state;
    told_start(&log_limit);
    const uint64_t first_us = f.clock.wall_ns / 1000;
    weir_charge(f.t, &f.key, 5);
    advance(10);
    weir_charge(f.t, &f.key, 3);
    answer_log(8, 8);
    tell_log();
    const struct report *told = f.told;
    assert_string_equal(told->record + 9, "}:l1m:p:key");
    assert_int_equal(told->kind, REPORT_HISTORY);
    assert_string_equal(f.log.demand_record + 9, "}:l1m?p:key");
    assert_memory_equal(f.log.demand_record, told->record, 9);
    expect_log(0, 8, 8, 8, 8);
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(f.log.times_us[i], first_us + (i < 5 ? 0 : 10000));
    }
    assert_int_equal(told->count, 8);
    assert_int_equal(told->demand, 8);
    assert_int_equal(told->expire_ms, 61000);
    assert_int_equal(f.log.period_us, 60000000);
    assert_int_equal(f.log.limit, 1000);
    assert_int_equal(f.log.window_first, 0);
    assert_int_equal(f.log.now_us, f.w->fleet->gather.now_ns / 1000);
    /* New units alone; after a round that was not answered, all again. */
    weir_charge(f.t, &f.key, 2);
    answer_log(10, 10);
    f.status = -EAGAIN;
    tell_log();
    expect_log(8, 2, 10, 10, 10);
    assert_int_equal(f.told[0].count, 10);
    f.status = 0;
    tell_log();
    expect_log(0, 10, 10, 10, 10);
    /* What is given back: the last units; their numbers are used again. */
    weir_refund(f.t, &f.key, 4);
    answer_log(6, 6);
    tell_log();
    expect_log(6, 0, 6, 10, 6);
    weir_charge(f.t, &f.key, 1);
    answer_log(7, 7);
    tell_log();
    expect_log(6, 1, 7, 7, 7);
    /* The fleet has lost some: all are told again. */
    weir_charge(f.t, &f.key, 1);
    answer_log(3, 3);
    tell_log();
    expect_log(7, 1, 8, 8, 8);
    answer_log(8, 8);
    tell_log();
    expect_log(0, 8, 8, 8, 8);
    pass_ms((RESYNC_INTERVALS + 2) * INTERVAL_MS); /* so are all keys */
    assert_true(stats().redis_lost_state_count >= 1);
    /* Not so where it has as many units as the limit, of which it keeps the latest. */
    weir_charge(f.t, &f.key, 1);
    answer_log(3, 1000);
    tell_log();
    expect_log(8, 1, 9, 9, 9);
    answer_log(10, 10);
    weir_charge(f.t, &f.key, 1);
    tell_log();
    expect_log(9, 1, 10, 10, 10);
    /* A report has 256 units; the rest follows. */
    weir_charge(f.t, &f.key, 300);
    answer_log(266, 266);
    f.told_count = 0;
    while (f.told_count == 0) {
        advance(10);
    }
    expect_log(10, 256, 310, 310, 266);
    tell_log();
    expect_log(266, 44, 310, 310, 310);
    told_end();
}

/* weir_sync waits until the fleet has everything: what the fleet has lost of a log has been told again by then. */
static void test_a_sync_waits_for_the_units_of_a_log_that_the_fleet_has_lost(void **state)
{
    (void) state;
    told_start(&log_limit);
    weir_charge(f.t, &f.key, 10);
    answer_log(10, 10);
    tell_log();
    weir_charge(f.t, &f.key, 1);
    const uint64_t request = full_sync_call_begin(f.w->fleet);
    answer_log(3, 3);
    f.told_count = 0;
    while (f.told_count == 0) {
        advance(10);
    }
    expect_log(10, 1, 11, 11, 11);
    advance(10);
    assert_true(load_relaxed(&f.w->fleet->sync_calls.served) != request);
    answer_log(11, 11);
    advance(10);
    assert_int_equal(f.log.first, 0);
    assert_int_equal(f.log.time_count, 11);
    assert_true(load_relaxed(&f.w->fleet->sync_calls.served) == request);
    full_sync_call_end(f.w->fleet);
    told_end();
}

/* The fleet has 5 + 4 units of one moment, and 3 + 8 of a second later; the 8 are this node's. */
static void test_a_log_takes_its_own_units_out_of_the_answer(void **state)
{
    (void) state;
    static const struct {
        uint64_t own, sum;
        uint64_t first, second;    /* units of the two groups that the fleet answers */
        uint64_t left, left_later; /* of 1000; and when the first moment has left the window */
    } cases[] = {
        {8, 20, 9, 11, 980, 989}, {8, 8, 5, 3, 992, 997},   {8, 12, 9, 3, 988, 997},
        {8, 16, 5, 11, 984, 989}, {6, 18, 7, 11, 980, 989}, /* two have left the fleet's window already */
        {0, 12, 4, 8, 980, 989},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        told_start(&log_limit);
        struct history_report *answer = &f.log_answer;
        const uint64_t first_ns = f.clock.wall_ns;
        weir_charge(f.t, &f.key, 5);
        answer_log(5, 5);
        tell_log();
        while (f.clock.wall_ns < first_ns + SECOND) {
            advance(10);
        }
        weir_charge(f.t, &f.key, 3);
        answer->group_count = 2;
        answer->groups[0] = (struct history_group){first_ns / 1000, cases[i].first};
        answer->groups[1] = (struct history_group){first_ns / 1000 + 1000000, cases[i].second};
        answer_log(cases[i].own, cases[i].sum);
        tell_log();
        assert_int_equal(log_room(), cases[i].left);
        f.down = true;
        pass_ms((first_ns + MINUTE_NS - f.clock.wall_ns) / MILLISECOND + 20);
        assert_int_equal(log_room(), cases[i].left_later);
        told_end();
    }
}

/*
 * The others' units of a silence, of which those stay that count when the next answer comes; this node's 5 are a minute
 * old in 20 seconds.
 */
static void test_units_from_before_a_silence_are_known_as_long_as_they_count(void **state)
{
    (void) state;
    static const uint64_t units[] = {3, 7, 11, 13, 17};
    static const struct {
        int64_t spoken_us; /* after this node's units */
        uint64_t age_ms;   /* of the news */
        uint64_t kept, seen;
    } cases[] = {
        {10000000, 100, 5 + 11 + 13, 5}, {0, 40000, 5 + 11 + 13, 5}, {-1, 40001, 11 + 13, 0}, {-20000000, 100, 0, 5}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        told_start(&log_limit);
        struct fleet *fleet = f.w->fleet;
        const uint64_t own_ns = f.clock.wall_ns / 1000 * 1000;
        weir_charge(f.t, &f.key, 5);
        answer_log(5, 5);
        tell_log();
        const uint64_t now_ns = own_ns + 40 * SECOND;
        const uint64_t spoken_ns = own_ns + (uint64_t) (1000 * cases[i].spoken_us);
        const uint64_t gone_us = (now_ns + INTERVAL_MS * MILLISECOND - MINUTE_NS) / 1000;
        static struct history_report answer;
        answer = (struct history_report){.group_count = 5, .other_authors = 1, .limit = 1000};
        answer.groups[0].time_ns = gone_us - 100000;
        answer.groups[1].time_ns = gone_us;
        answer.groups[2].time_ns = gone_us + 1;
        answer.groups[3].time_ns = spoken_ns / 1000 > gone_us ? spoken_ns / 1000 : gone_us + 2;
        answer.groups[4].time_ns = answer.groups[3].time_ns + 1;
        for (size_t g = 0; g < 5; g++) {
            answer.groups[g].units = units[g];
        }
        const struct report report = {.kind = REPORT_HISTORY, .history = &answer, .count = 5, .sum = 51};
        fleet->gather.now_ns = now_ns;
        fleet->news.age_ns = cases[i].age_ms * MILLISECOND;
        fleet->membership.spoken_ns = spoken_ns;
        const struct node node = {.w = f.w, .t = f.t, .key = f.key};
        struct report_subject subject = {.cell = cell_of(&node), .now_ns = now_ns};
        (void) cell(&subject.sync);
        const struct rule rule = process_policies(&f.w->limiter.process)->policies[0].limits[0].rule;
        struct history_news told;
        assert_false(report_history_merge(fleet, &subject, &report, &rule, &told));
        assert_int_equal(told.remote, 51);
        assert_int_equal(told.kept, cases[i].kept);
        assert_int_equal(told.seen, cases[i].seen);
        /* The same answer tells no more; one of fewer units has had some given back. */
        answer.group_count = 5;
        for (size_t g = 0; g < 5; g++) {
            answer.groups[g].units = units[g];
        }
        assert_false(report_history_merge(fleet, &subject, &report, &rule, &told));
        assert_int_equal(told.remote, 0);
        assert_int_equal(told.kept, cases[i].kept);
        struct report fewer = report;
        fewer.sum = 3;
        answer.group_count = 1;
        assert_true(report_history_merge(fleet, &subject, &fewer, &rule, &told));
        assert_int_equal(told.remote, 0);
        /* Where answers are not taken in yet, only a reset gives units back. */
        assert_false(report_history_acknowledge(fleet, &subject, &fewer, &rule));
        assert_int_equal(log_room(), 1000 - 5 - 3);
        answer.reset_us = own_ns / 1000;
        assert_true(report_history_acknowledge(fleet, &subject, &fewer, &rule));
        assert_int_equal(log_room(), 1000);
        told_end();
    }
}

/* A window before that is acknowledged is told for as long as others may report theirs; and one that still counts, now
 * and then. */
static void test_the_window_before_is_told_as_long_as_it_may_change(void **state)
{
    (void) state;
    for (int kind = 0; kind < 2; kind++) {
        for (int used = 0; used < 2; used++) {
            told_start(kind == 0 ? &minute : &sliding);
            weir_charge(f.t, &f.key, used != 0 ? 300 : 0);
            pass_ms(INTERVAL_MS);
            const uint64_t start_ns = (MINUTE_NUMBER + 1) * MINUTE_NS;
            while (f.clock.wall_ns < start_ns) {
                pass_ms(100);
            }
            unsigned later = 0;
            for (int i = 0; i < 24; i++) {
                weir_charge(f.t, &f.key, 20);
                struct node node = {.w = f.w, .t = f.t, .key = f.key};
                make_urgent(&node);
                f.told_count = 0;
                while (f.told_count == 0 || f.under_way != NULL) {
                    advance(10);
                }
                const bool fresh = f.w->fleet->gather.now_ns - start_ns < 3 * INTERVAL_MS * MILLISECOND;
                assert_in_range(f.told_count, 1, 2);
                if (used == 0 && kind == 0) {
                    assert_int_equal(f.told_count, 1); /* a window that nobody used */
                } else if (fresh && used != 0) {
                    assert_int_equal(f.told_count, 2);
                } else if (!fresh) {
                    later += f.told_count == 2;
                    assert_true(kind == 1 || f.told_count == 1);
                }
                pass_ms(INTERVAL_MS - 20);
            }
            assert_int_equal(later != 0, kind == 1 && used != 0);
            assert_true(later < 8);
            told_end();
        }
    }
}

/* With its first answer a node chooses one of as many parts as the fleet has 150 nodes, and stays there, as
 * its counts do. */
static void test_a_node_of_a_large_fleet_belongs_to_one_part_for_good(void **state)
{
    (void) state;
    static const struct {
        uint32_t live, expected, parts;
    } cases[] = {{1, 1, 1}, {299, 1, 1}, {300, 1, 2}, {1, 300, 2}, {620, 5, 4}, {10000, 1, 66}};
    enum { TRIES = 400 };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bool chosen[66] = {false};
        uint32_t count = 0;
        for (int n = 0; n < TRIES && count < cases[i].parts; n++) {
            expected_nodes = cases[i].expected;
            told_open(&minute);
            f.live = cases[i].live;
            pass_ms(INTERVAL_MS + INTERVAL_MS / 2);
            f.live = cases[i].live / 10 + 1;
            weir_charge(f.t, &f.key, 1);
            pass_ms(INTERVAL_MS);
            const uint32_t part = f.last.part;
            assert_in_range(part, 0, cases[i].parts - 1);
            f.live = 100 * cases[i].live;
            weir_charge(f.t, &f.key, 1);
            pass_ms(INTERVAL_MS);
            assert_int_equal(f.last.part, part);
            count += !chosen[part];
            chosen[part] = true;
            told_end();
        }
        /* By the ids of nodes, which are random. */
        assert_in_range(count, cases[i].parts > 10 ? 20 : cases[i].parts, cases[i].parts);
    }
    expected_nodes = 1;
}

/* Nodes that report at one moment hear of each other by chance. Of two nodes each has a quarter of an interval to
 * itself, half of which is before its round. Rounds of an idle node do not count. */
static void test_a_node_whose_rounds_come_just_before_anothers_goes_ahead(void **state)
{
    (void) state;
    static const struct {
        uint32_t live, suspect;
        uint64_t age_ms;   /* of the earliest heartbeat: the next node reports an interval after it */
        uint64_t ahead_ms; /* after eight rounds */
        bool idle;
    } cases[] = {
        {2, 0, 150, 0}, {2, 0, 170, 0}, {2, 0, 180, 5}, {2, 0, 190, 15}, {2, 0, 200, 25}, {2, 0, 220, 25},
        {2, 0, 230, 0}, {1, 0, 190, 0}, {2, 1, 190, 0}, {4, 0, 180, 0},  {4, 0, 190, 2},  {2, 0, 200, 0, .idle = true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        told_start(&minute);
        f.w->asleep = cases[i].idle; /* which the thread decides, that there is none of here */
        f.live = cases[i].live;
        f.suspect = cases[i].suspect;
        f.watermark_ago_ns = (cases[i].age_ms + 10) * MILLISECOND; /* of the answer, 10 ms later */
        const uint64_t phase_ns = f.w->fleet->schedule.phase_ns;
        unsigned least = 0;
        for (int n = 0; n < (cases[i].idle ? 40 : 12); n++) {
            if (!cases[i].idle) {
                weir_charge(f.t, &f.key, 1);
            }
            pass_ms(INTERVAL_MS);
            const struct fleet_stats *told = &f.w->fleet->stats;
            assert_int_equal(load_relaxed(&told->live_nodes), cases[i].live);
            assert_int_equal(load_relaxed(&told->suspect_nodes), cases[i].suspect);
            const uint64_t ahead_ns = phase_ns - f.w->fleet->schedule.phase_ns;
            if (ahead_ns != 0 && least == 0) {
                least = (unsigned) n + 1;
                assert_int_equal(ahead_ns / MILLISECOND, cases[i].ahead_ms);
            }
        }
        if ((least != 0) != (cases[i].ahead_ms != 0)) {
            fail_msg("case %zu: after %u rounds", i, least);
        }
        assert_true(least == 0 || (least >= 8 && least <= 9));
        told_end();
    }
}

/* Without an answer since the last good round began: the grace, the outage, and a long outage. */
static void test_an_outage_begins_when_its_grace_is_over(void **state)
{
    (void) state;
    static const struct {
        uint32_t grace_ms, long_ms;
        weir_outage on, on_long;
        uint64_t begins_ms, changes_ms; /* 0: not at all */
        enum outage_mode mode, later;
    } cases[] = {
        {1000, 500, WEIR_OUTAGE_LOCAL, WEIR_OUTAGE_CLOSED, 1000, 1500, OUTAGE_MODE_LOCAL, OUTAGE_MODE_CLOSED},
        {500, 0, WEIR_OUTAGE_OPEN, WEIR_OUTAGE_CLOSED, 500, 0, OUTAGE_MODE_OPEN, OUTAGE_MODE_OPEN},
        {0, 700, WEIR_OUTAGE_SHARE, WEIR_OUTAGE_OPEN, 600, 1300, OUTAGE_MODE_SHARE, OUTAGE_MODE_OPEN},
        {100, 300, WEIR_OUTAGE_CLOSED, WEIR_OUTAGE_LOCAL, 400, 700, OUTAGE_MODE_CLOSED, OUTAGE_MODE_LOCAL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        weir_policy policy = patient_policy_of(&bucket);
        policy.outage_grace_ms = cases[i].grace_ms;
        policy.long_outage_ms = cases[i].long_ms;
        policy.on_outage = cases[i].on;
        policy.on_long_outage = cases[i].on_long;
        told_open_policy(&policy);
        const struct policy_set *set = process_policies(&f.w->limiter.process);
        const struct policy *p = &set->policies[0];
        assert_int_equal(load_relaxed(&p->outage_mode),
                         cases[i].on == WEIR_OUTAGE_CLOSED ? OUTAGE_MODE_CLOSED : OUTAGE_MODE_NONE);
        pass_ms(7 * INTERVAL_MS);
        assert_int_equal(load_relaxed(&p->outage_mode), OUTAGE_MODE_NONE);
        assert_int_equal(load_relaxed(&p->basis), WEIR_BASIS_FLEET);
        const uint64_t good_ns = f.w->fleet->news.begun_ns;
        f.fails = true;
        while (f.clock.monotonic_ns < good_ns + 2000 * MILLISECOND) {
            advance(10);
            const uint64_t since_ms = (f.clock.monotonic_ns - good_ns) / MILLISECOND;
            const enum outage_mode expected = since_ms <= cases[i].begins_ms ? OUTAGE_MODE_NONE
                                              : cases[i].changes_ms != 0 && since_ms > cases[i].changes_ms
                                                  ? cases[i].later
                                                  : cases[i].mode;
            if (load_relaxed(&p->outage_mode) != expected) {
                fail_msg("case %zu, after %u ms: %u", i, (unsigned) since_ms, load_relaxed(&p->outage_mode));
            }
            const struct policy_limit *limit = &p->limits[0];
            const bool open = expected == OUTAGE_MODE_OPEN;
            const bool closed = expected == OUTAGE_MODE_CLOSED;
            assert_int_equal(load_relaxed(&limit->limit_now), open ? WEIR_MAX_UNITS : closed ? 0 : 1000);
            assert_int_equal(load_relaxed(&limit->unit_now), open ? 0 : limit->rule.unit);
            assert_int_equal(load_relaxed(&limit->tolerance_now), closed ? 0 : limit->rule.tolerance);
            assert_int_equal(load_relaxed(&p->basis),
                             expected == OUTAGE_MODE_NONE ? WEIR_BASIS_FLEET : WEIR_BASIS_OUTAGE);
        }
        told_end();
    }
}

/* A unit takes 60 ms. Of the time that an answer tells, a bucket goes as far as the others' units since the last answer
 * reach; it goes back by what they have given back alone. */
static void test_a_bucket_goes_no_further_than_the_others_units_reach(void **state)
{
    (void) state;
    told_start(&bucket);
    struct node node = {.w = f.w, .t = f.t, .key = f.key};
    weir_charge(f.t, &f.key, 300);
    static const struct {
        uint64_t remote, refunds, ahead_ms;
        int64_t moves_ms; /* from the time before; the first: from now on */
    } answers[] = {
        {200, 0, 30000, 30000}, /* of a first answer it is all believed */
        {300, 0, 90000, 6000},  {300, 0, 90000, 0}, {300, 0, 10000, 0},           {310, 0, 90000, 600},
        {310, 50, 0, -3000},    {310, 50, 0, 0},    {410, 60, 90000, 6000 - 600},
    };
    uint64_t before = 0;
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        f.remote = answers[i].remote;
        f.remote_refunds = answers[i].refunds;
        f.tat_ahead_us = answers[i].ahead_ms * 1000;
        make_urgent(&node);
        f.told_count = 0;
        while (f.told_count == 0 || f.under_way != NULL) {
            advance(10);
        }
        struct sync_full *sync;
        const struct cell *at = cell(&sync);
        const struct rule *rule = &process_policies(&f.w->limiter.process)->policies[0].limits[0].rule;
        const uint64_t tat = cell_state(dwcas_read(&at->state)).a;
        before = i == 0 ? bucket_time(rule, f.w->fleet->gather.now_ns) : before;
        const int64_t moved_us = (int64_t) (tat - before) / (1000 << BUCKET_FRACTION_BITS);
        if (moved_us < answers[i].moves_ms * 1000 - 2 || moved_us > answers[i].moves_ms * 1000 + 2) {
            fail_msg("answer %zu: %lld us", i, (long long) moved_us);
        }
        assert_int_equal(load_relaxed(&sync->now.remote), answers[i].remote);
        assert_int_equal(load_relaxed(&sync->now.remote_refunds), answers[i].refunds);
        assert_int_equal(sync->now.acked, 300);
        before = tat;
    }
    told_end();
}

static void test_a_node_has_a_name_that_can_be_printed(void **state)
{
    (void) state;
    static const char *const names[][2] = {
        {"host-7.example", "host-7.example"},
        {"a\"b\\c d\x7f~\n\xc3\xa4", "a_b_c d_~___"},
        {"0123456789012345678901234567890123456789012345678901234567890123456789",
         "012345678901234567890123456789012345678901234567890123456789012"},
    };
    char id[2][16];
    for (size_t i = 0; i < 3; i++) {
        node_name = names[i][0];
        told_open(&minute);
        assert_string_equal(f.w->fleet->name, names[i][1]);
        (void) strcpy(id[i % 2], f.w->fleet->node);
        told_end();
    }
    assert_string_not_equal(id[0], id[1]);
    char host[64] = "";
    assert_int_equal(gethostname(host, sizeof(host) - 1), 0);
    node_name = NULL;
    told_open(&minute);
    assert_string_equal(f.w->fleet->name, host);
    assert_string_equal(f.w->fleet->prefix, "weir");
    assert_int_equal(load_relaxed(&f.w->fleet->stats.link), WEIR_LINK_DOWN);
    assert_int_equal(load_relaxed(&f.w->limiter.process.shared->nodes), 1);
    told_end();
}

/* By when a node is to be stepped, beside the next tick. */
static void test_a_node_is_stepped_when_something_is_due(void **state)
{
    (void) state;
    told_start(&minute);
    struct fleet *fleet = f.w->fleet;
    const uint64_t next_ns = fleet->schedule.next_ns;
    enum what { NOTHING, EARLIER, TRANSPORT, DOWN, EXTRA, REST, SYNC, STEP, SWEEP, ASKS };
    for (int what = NOTHING; what <= ASKS; what++) {
        const struct fleet was = *fleet;
        uint64_t deadline_ns = what == EARLIER ? next_ns - 7 : UINT64_MAX;
        f.due_ns = what == TRANSPORT ? next_ns - 5 : UINT64_MAX;
        f.down = what == DOWN;
        fleet->schedule.extra_ns = what == EXTRA ? next_ns - 3 : UINT64_MAX;
        fleet->gather.has_rest = what == REST;
        fleet->clock.step_ns = what == STEP;
        fleet->waive.cells_done -= what == SWEEP;
        fleet->news.awaits_peers = what == ASKS;
        fleet->membership.await_until_ns = what == ASKS ? UINT64_MAX / 2 : 0;
        store_relaxed(&fleet->sync_calls.requests, load_relaxed(&fleet->sync_calls.served) + (what == SYNC));
        assert_int_equal(fleet_wait_for(fleet, NULL, &deadline_ns), 3);
        const uint64_t asks_ns = fleet->schedule.begun_ns + INTERVAL_MS * MILLISECOND / ASK_DIVISOR;
        const uint64_t expected[] = {next_ns, next_ns - 7, next_ns - 5, UINT64_MAX, next_ns - 3, 0, 0, 0, 0, asks_ns};
        if (deadline_ns != expected[what]) {
            fail_msg("%d: %lld", what, (long long) (deadline_ns - next_ns));
        }
        assert_int_equal(fleet->schedule.transport_due_ns, f.due_ns);
        memcpy(fleet, &was, sizeof(was));
    }
    f.down = false;
    told_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_node_asks_the_time_first_and_then_tells_each_interval),
        cmocka_unit_test(test_a_round_that_failed_leaves_all_to_the_next),
        cmocka_unit_test(test_a_window_is_told_by_its_number_until_it_is_over),
        cmocka_unit_test(test_a_reset_is_told_until_it_is_answered),
        cmocka_unit_test(test_an_answer_counts_the_units_of_the_others),
        cmocka_unit_test(test_what_was_not_answered_is_told_again_and_what_was_refused_is_not),
        cmocka_unit_test(test_a_fleet_that_has_lost_its_data_is_told_everything_once),
        cmocka_unit_test(test_what_a_round_has_no_room_for_follows_at_once),
        cmocka_unit_test(test_the_last_round_tells_what_is_left_and_that_the_node_leaves),
        cmocka_unit_test(test_an_answer_moves_a_bucket_to_the_fleets_time),
        cmocka_unit_test(test_evicted_logs_for_which_urgent_ones_leave_no_room_are_told_later),
        cmocka_unit_test(test_a_log_is_told_unit_by_unit),
        cmocka_unit_test(test_a_sync_waits_for_the_units_of_a_log_that_the_fleet_has_lost),
        cmocka_unit_test(test_logs_that_a_round_has_no_room_for_follow_at_once),
        cmocka_unit_test(test_a_log_takes_its_own_units_out_of_the_answer),
        cmocka_unit_test(test_units_from_before_a_silence_are_known_as_long_as_they_count),
        cmocka_unit_test(test_the_window_before_is_told_as_long_as_it_may_change),
        cmocka_unit_test(test_a_node_of_a_large_fleet_belongs_to_one_part_for_good),
        cmocka_unit_test(test_a_node_whose_rounds_come_just_before_anothers_goes_ahead),
        cmocka_unit_test(test_an_outage_begins_when_its_grace_is_over),
        cmocka_unit_test(test_a_bucket_goes_no_further_than_the_others_units_reach),
        cmocka_unit_test(test_a_node_has_a_name_that_can_be_printed),
        cmocka_unit_test(test_a_node_is_stepped_when_something_is_due),
    };
    return cmocka_run_group_tests_name("unit/fleet/told", tests, NULL, NULL);
}
