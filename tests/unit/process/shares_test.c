/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a node may use of a key by what it knows of the other nodes: each case once, with figures worked out by hand.
 * One limit of 1,000 units in ten seconds, of which four have passed; four nodes, which sync every 200 ms. (What comes
 * of it on a fleet: allowance_test.c, unit/fleet.)
 *
 * Guards: src/process/allowance.c, src/process/unseen.c, src/process/fraction.c
 */
#include <inttypes.h>

#include "algorithm/bucket.h"
#include "algorithm/window.h"
#include "process/fraction.h"
#include "process/unseen.h"
#include "support/bare_process.h"

#define LIMIT       1000
#define LIVE        4
#define INTERVAL_NS (200 * MILLISECOND)
#define NOW_NS      BARE_NOW_NS
#define WINDOW_NS   (NOW_NS - 4 * SECOND) /* when the present window began */
#define AT          5                     /* the cell of the key */
#define HALF        (UINT32_C(1) << 31)
#define QUARTER     (UINT32_C(1) << 30)
#define RATE(units) ((uint64_t) (units) << RATE_BITS) /* units a second */

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

struct subject {
    struct process process;
    struct policy policy;
    struct rule rule;
    struct sync_full *sync; /* of the key; NULL: it has a compact state alone */
    struct allowance *allowance;
};

/* The key has a full sync state, of which the fleet has not answered. */
static void subject_open(struct subject *s, weir_algorithm algorithm)
{
    bare_process_open(&s->process, 100, true);
    s->process.interval_ns = INTERVAL_NS;
    store_relaxed(&s->process.shared->nodes, LIVE);
    store_relaxed(&s->process.shared->news_ns, NOW_NS);
    bare_policy_init(&s->policy, algorithm, LIMIT);
    s->rule = s->policy.limits[0].rule;
    cell_meta_write(&s->process.table.metas[AT], 1, 1, CELL_SHARED | cell_kind_flag(rule_kind(&s->rule)));
    s->sync = &s->process.syncs.pool[AT];
    s->allowance = &s->sync->allowance;
    allowance_clear(s->allowance);
    store_relaxed(&s->process.syncs.compacts[AT].sync, COMPACT_HAS_FULL | AT);
}

static void subject_close(struct subject *s)
{
    process_close(&s->process);
}

static void take_full_state(struct subject *s, bool acked)
{
    s->sync = NULL;
    store_relaxed(&s->process.syncs.compacts[AT].sync, 0);
    store_relaxed(&s->process.syncs.compacts[AT].flags, acked ? COMPACT_ACKED : 0);
}

/* The fleet's answer: counts of this time, and so much demand elsewhere. */
static void answer(struct subject *s, uint64_t since_ns, uint64_t seen, uint64_t rate, uint32_t fraction)
{
    store_relaxed(&s->allowance->since_ns, since_ns);
    store_relaxed(&s->allowance->seen, seen);
    store_relaxed(&s->allowance->seq, window_seq_at(&s->rule, NOW_NS));
    store_relaxed(&s->allowance->remote_rate, rate);
    store_relaxed(&s->allowance->remote_fraction, fraction);
    store_relaxed(&s->allowance->flags, 0);
}

static struct state window_of(const struct subject *s, uint64_t count, uint64_t previous)
{
    return window_state(window_seq_at(&s->rule, NOW_NS), count, previous);
}

/* A bucket that owes so many units now, and has charged so many. */
static struct state bucket_of(const struct subject *s, uint64_t owed, uint64_t total)
{
    return (struct state){bucket_time(&s->rule, NOW_NS) + owed * s->rule.unit, total};
}

static struct allowance_query query_of(const struct subject *s, struct state state, uint64_t asked)
{
    return (struct allowance_query){.rule = &s->rule,
                                    .state = state,
                                    .headroom = rule_headroom(&s->rule, state, NOW_NS),
                                    .asked = asked,
                                    .now_ns = NOW_NS,
                                    .cell = AT};
}

static uint64_t left_of(struct subject *s, struct state state, uint64_t asked)
{
    const struct allowance_query query = query_of(s, state, asked);
    return allowance_left(&s->process, &query);
}

/* Whether a sync was requested since the last look. */
static bool is_urgent(struct subject *s)
{
    uint32_t cursor = 0;
    const uint32_t cell = bitmap_next(&s->process.table.urgent, &cursor, (uint32_t) s->process.table.cell_count);
    const bool urgent = exchange_relaxed(&s->process.shared->urgent, 0) != 0;
    assert_int_equal(cell, urgent ? AT : BITMAP_NONE);
    return urgent;
}

static void expect(struct subject *s, struct state state, uint64_t asked, uint64_t left, bool urgent)
{
    const uint64_t is = left_of(s, state, asked);
    const bool asks = is_urgent(s);
    if (is != left || asks != urgent) {
        fail_msg("%" PRIu64 " of %" PRIu64 " are left, not %" PRIu64 "; a sync is %srequested", is, asked, left,
                 asks ? "" : "not ");
    }
}

static void test_equal_shares_are_the_whole_rounded_up(void **state)
{
    (void) state;
    struct subject s;
    subject_open(&s, WEIR_FIXED_WINDOW);
    for (uint32_t nodes = 1; nodes <= 1000; nodes++) {
        store_relaxed(&s.process.shared->nodes, nodes);
        const uint64_t share = fraction_equal_share(&s.process);
        assert_true(nodes == 1 ? share == 0 : share * nodes >= FRACTION_WHOLE && (share - 1) * nodes < FRACTION_WHOLE);
    }
    subject_close(&s);
}

static void test_a_fraction_of_a_rule_has_a_part_of_its_units_at_a_part_of_its_rate(void **state)
{
    (void) state;
    static const struct {
        weir_algorithm algorithm;
        uint64_t fraction, asked, limit;
        uint64_t slower; /* a unit takes so many times as long */
    } rows[] = {
        {WEIR_FIXED_WINDOW, 0, 1, LIMIT, 1},
        {WEIR_FIXED_WINDOW, HALF, 1, 500, 1},
        {WEIR_SLIDING_LOG, QUARTER, 900, 250, 1},
        {WEIR_FIXED_WINDOW, 1, 1, 1, 1},                  /* one unit at least */
        {WEIR_TOKEN_BUCKET, 0, 1, LIMIT, 1},              /* the whole */
        {WEIR_TOKEN_BUCKET, QUARTER, 1, 250, 4},          /* a part of the burst, at a part of the rate */
        {WEIR_TOKEN_BUCKET, QUARTER, 251, 251, 4},        /* a greater request passes when the part is full */
        {WEIR_TOKEN_BUCKET, QUARTER, LIMIT + 1, 1000, 4}, /* but none above the whole */
        {WEIR_LEAKY_BUCKET, QUARTER / 1024, 1, 1, 1000},  /* one unit passes in each period */
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct policy policy;
        bare_policy_init(&policy, rows[i].algorithm, LIMIT);
        const struct rule *whole = &policy.limits[0].rule;
        const struct rule rule = fraction_rule(whole, rows[i].fraction, rows[i].asked);
        assert_int_equal(rule.limit, rows[i].limit);
        assert_int_equal(rule.unit, whole->unit * rows[i].slower);
        const uint64_t burst = rule.limit * rule.unit;
        assert_int_equal(rule.tolerance, burst > whole->tolerance ? burst : whole->tolerance);
        assert_int_equal(rule.period_ns, whole->period_ns);
        assert_int_equal(rule.algorithm, whole->algorithm);
    }
    /* A limit whose units cost nothing stays one; a unit that takes longer than a period takes no longer. */
    struct policy policy;
    bare_policy_init(&policy, WEIR_TOKEN_BUCKET, LIMIT);
    struct rule rule = policy.limits[0].rule;
    rule.unit = rule.tolerance = 0;
    assert_int_equal(fraction_rule(&rule, HALF, 1).unit, 0);
    assert_int_equal(fraction_rule(&rule, HALF, 1).tolerance, 1);
    rule.unit = 3 * (rule.period_ns << BUCKET_FRACTION_BITS);
    assert_int_equal(fraction_rule(&rule, HALF, 1).unit, rule.unit);
}

/* What a fraction is of: the key's own, an equal share, a part of the demand. */
enum part { WHOLE, OWN, EQUAL, DEMAND, OWN_64TH, EQUAL_64TH };

static void test_the_fraction_in_force_is_by_what_the_fleet_has_said(void **state)
{
    (void) state;
    static const struct {
        enum outage_mode mode;
        bool full, acked;
        enum part window, token, leaky; /* of a log as of a window */
        enum part quota, quota_without_news;
    } rows[] = {
        {OUTAGE_MODE_NONE, true, true, OWN, OWN, OWN, OWN, OWN},
        {OUTAGE_MODE_NONE, true, false, OWN, OWN, OWN, OWN_64TH, OWN_64TH},
        {OUTAGE_MODE_NONE, false, true, WHOLE, WHOLE, EQUAL, WHOLE, WHOLE},
        {OUTAGE_MODE_NONE, false, false, EQUAL, EQUAL, EQUAL, EQUAL_64TH, EQUAL_64TH},
        {OUTAGE_MODE_SHARE, true, true, WHOLE, DEMAND, DEMAND, WHOLE, WHOLE},
        {OUTAGE_MODE_SHARE, true, false, EQUAL, EQUAL, EQUAL, EQUAL, EQUAL_64TH},
        {OUTAGE_MODE_SHARE, false, true, WHOLE, EQUAL, EQUAL, WHOLE, WHOLE},
        {OUTAGE_MODE_SHARE, false, false, EQUAL, EQUAL, EQUAL, EQUAL, EQUAL_64TH},
        {OUTAGE_MODE_LOCAL, true, true, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE},
        {OUTAGE_MODE_LOCAL, false, false, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE},
        {OUTAGE_MODE_OPEN, true, false, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE},
        {OUTAGE_MODE_CLOSED, true, true, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE},
    };
    static const uint64_t parts[] = {
        [WHOLE] = 0,     [OWN] = UINT64_C(77) * 64,  [EQUAL] = QUARTER, [DEMAND] = FRACTION_WHOLE - HALF,
        [OWN_64TH] = 77, [EQUAL_64TH] = QUARTER / 64};
    static const weir_algorithm kinds[] = {WEIR_FIXED_WINDOW, WEIR_SLIDING_LOG, WEIR_TOKEN_BUCKET, WEIR_LEAKY_BUCKET,
                                           WEIR_SLIDING_WINDOW};
    for (size_t i = 0; i < COUNT_OF(rows) * COUNT_OF(kinds) * 2; i++) {
        const size_t row = i / COUNT_OF(kinds) / 2;
        const weir_algorithm kind = kinds[i / 2 % COUNT_OF(kinds)];
        const bool news = i % 2 == 0;
        struct subject s;
        subject_open(&s, kind);
        const bool quota = kind == WEIR_SLIDING_WINDOW;
        s.rule.calendar = quota ? WEIR_CALENDAR_DAY : WEIR_CALENDAR_NONE;
        answer(&s, rows[row].acked ? NOW_NS : 0, 0, 0, HALF);
        store_relaxed(&s.allowance->fraction, 77 * 64);
        store_relaxed(&s.process.shared->news_ns, news ? NOW_NS : 0);
        if (!rows[row].full) {
            take_full_state(&s, rows[row].acked);
        }
        const enum part part = quota && !news              ? rows[row].quota_without_news
                               : quota                     ? rows[row].quota
                               : kind == WEIR_TOKEN_BUCKET ? rows[row].token
                               : kind == WEIR_LEAKY_BUCKET ? rows[row].leaky
                                                           : rows[row].window;
        if (fraction_in_force(&s.process, rows[row].mode, &s.rule, AT) != parts[part]) {
            fail_msg("row %zu, algorithm %d, %s news: %" PRIu64, row, (int) kind, news ? "with" : "without",
                     fraction_in_force(&s.process, rows[row].mode, &s.rule, AT));
        }
        /* The rule in force; of a policy that no other node shares it is the configured one. */
        store_relaxed(&s.policy.outage_mode, (uint8_t) rows[row].mode);
        const struct rule by_fraction = fraction_rule(&s.rule, parts[part], 3);
        s.policy.limits[0].rule = s.rule;
        struct rule rule = allowance_rule(&s.process, &s.policy, 0, AT, 3);
        assert_int_equal(rule.limit, by_fraction.limit);
        assert_int_equal(rule.unit, by_fraction.unit);
        assert_int_equal(rule.tolerance, by_fraction.tolerance);
        s.policy.scope = WEIR_SCOPE_PROCESS;
        rule = allowance_rule(&s.process, &s.policy, 0, AT, 3);
        assert_int_equal(rule.limit, LIMIT);
        subject_close(&s);
    }
}

static void test_a_quota_that_is_unconfirmed_has_a_64th_of_the_whole_and_never_nothing(void **state)
{
    (void) state;
    struct subject s;
    subject_open(&s, WEIR_FIXED_WINDOW);
    s.rule.calendar = WEIR_CALENDAR_MONTH;
    assert_int_equal(fraction_in_force(&s.process, OUTAGE_MODE_NONE, &s.rule, AT), FRACTION_WHOLE / 64);
    store_relaxed(&s.allowance->fraction, 63);
    assert_int_equal(fraction_in_force(&s.process, OUTAGE_MODE_NONE, &s.rule, AT), 1);
    subject_close(&s);
}

static void test_a_node_has_its_part_of_the_demand_where_that_is_known(void **state)
{
    (void) state;
    struct subject s;
    subject_open(&s, WEIR_FIXED_WINDOW);
    answer(&s, NOW_NS, 0, 0, HALF + QUARTER);
    assert_int_equal(fraction_demand(&s.process, s.allowance), QUARTER);
    store_relaxed(&s.allowance->remote_fraction, 0);
    assert_int_equal(fraction_demand(&s.process, s.allowance), 0);
    store_relaxed(&s.process.shared->nodes, 2);
    for (uint8_t flag = 1; flag <= ALLOWANCE_NODE_IS_NEW; flag = (uint8_t) (2 * flag)) {
        store_relaxed(&s.allowance->flags, flag);
        assert_int_equal(fraction_demand(&s.process, s.allowance), HALF);
    }
    assert_int_equal(fraction_compact(&s.process, &s.rule, true), 0);
    assert_int_equal(fraction_compact(&s.process, &s.rule, false), HALF);
    subject_close(&s);
}

/* Of a share of 250 two units request a sync; of one of 1,280 ten. */
static void test_a_new_key_asks_the_fleet_when_a_128th_of_its_share_is_used_or_the_share_is_too_small(void **state)
{
    (void) state;
    static const struct {
        uint64_t limit, used, asked;
        bool urgent;
    } rows[] = {{250, 1, 1, false},   {250, 2, 1, true},   {1280, 9, 1, false},  {1280, 10, 1, true},
                {250, 1, 249, false}, {250, 1, 250, true}, {1280, 1, 249, false}};
    for (size_t i = 0; i < 3 * COUNT_OF(rows); i++) {
        struct subject s;
        subject_open(&s, WEIR_FIXED_WINDOW);
        s.rule.limit = rows[i / 3].limit;
        store_relaxed(&s.allowance->fraction, QUARTER);
        struct allowance_query query = query_of(&s, window_of(&s, rows[i / 3].used, 0), rows[i / 3].asked);
        if (i % 3 == 1) {
            take_full_state(&s, false);
        }
        query.outage_mode = i % 3 == 2 ? OUTAGE_MODE_SHARE : OUTAGE_MODE_NONE;
        assert_int_equal(allowance_left(&s.process, &query), rows[i / 3].limit - rows[i / 3].used);
        assert_int_equal(is_urgent(&s), rows[i / 3].urgent && i % 3 != 2); /* in an outage nobody answers */
        subject_close(&s);
    }
}

static void test_without_other_nodes_or_by_another_outage_mode_all_of_the_headroom_is_left(void **state)
{
    (void) state;
    struct subject s;
    subject_open(&s, WEIR_FIXED_WINDOW);
    answer(&s, NOW_NS - 100 * MILLISECOND, 50, RATE(1000), HALF);
    struct allowance_query query = query_of(&s, window_of(&s, 100, 0), 1);
    assert_int_equal(allowance_left(&s.process, &query), 800);
    for (enum outage_mode mode = OUTAGE_MODE_LOCAL; mode <= OUTAGE_MODE_CLOSED; mode++) {
        query.outage_mode = mode;
        assert_int_equal(allowance_left(&s.process, &query), 900);
    }
    query.outage_mode = OUTAGE_MODE_NONE;
    store_relaxed(&s.process.shared->nodes, 1);
    assert_int_equal(allowance_left(&s.process, &query), 900);
    store_relaxed(&s.allowance->fraction, QUARTER); /* by this the headroom is not all */
    assert_int_equal(allowance_left(&s.process, &query), 800);
    uint64_t left = 7;
    assert_false(allowance_left_whole(&s.process, &query, &left));
    assert_int_equal(left, 7);
    store_relaxed(&s.allowance->fraction, 0);
    store_relaxed(&s.process.shared->nodes, LIVE);
    assert_true(allowance_left_whole(&s.process, &query, &left));
    assert_int_equal(left, 800);
    assert_false(is_urgent(&s));
    subject_close(&s);
}

static void test_the_other_nodes_keep_what_they_use_until_the_next_answer(void **state)
{
    (void) state;
    static const struct {
        weir_algorithm algorithm;
        uint64_t rate, left;
    } rows[] = {
        {WEIR_FIXED_WINDOW, 1000, 800},    /* a tenth of a second */
        {WEIR_FIXED_WINDOW, 1000000, 425}, /* at most a half of the 950 that there were at the answer */
        {WEIR_FIXED_WINDOW, 0, 900},       {WEIR_SLIDING_WINDOW, 1000, 800}, {WEIR_SLIDING_LOG, 1000, 800},
        {WEIR_SLIDING_LOG, 1000000, 425},  {WEIR_TOKEN_BUCKET, 1000, 800},   {WEIR_TOKEN_BUCKET, 1000000, 425},
        {WEIR_LEAKY_BUCKET, 1000000, 900}, /* its level has them */
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct subject s;
        subject_open(&s, rows[i].algorithm);
        answer(&s, NOW_NS - 100 * MILLISECOND, 50, RATE(rows[i].rate), HALF);
        store_relaxed(&s.sync->history_end, 100);
        const struct state state_of = rule_is_bucket(&s.rule)     ? bucket_of(&s, 100, 100)
                                      : rule_has_history(&s.rule) ? (struct state){NOW_NS + SECOND, 100}
                                                                  : window_of(&s, 100, 0);
        store_relaxed(&s.allowance->urgent_threshold, 51);
        expect(&s, state_of, 1, rows[i].left, false);
        store_relaxed(&s.allowance->urgent_threshold, 50); /* more units than the answer gave reason to expect */
        expect(&s, state_of, 1, rows[i].left, true);
        subject_close(&s);
    }
}

/* The answer was of the window before: all units of this one are unseen, and count from its beginning. */
static void test_units_of_a_later_window_than_the_answers_are_unseen_since_it_began(void **state)
{
    (void) state;
    struct subject s;
    subject_open(&s, WEIR_FIXED_WINDOW);
    answer(&s, NOW_NS - 5 * SECOND, 50, RATE(10), HALF);
    store_relaxed(&s.allowance->seq, window_seq_at(&s.rule, NOW_NS) - 1);
    store_relaxed(&s.allowance->inspected_ns, NOW_NS - 100 * MILLISECOND);
    store_relaxed(&s.allowance->urgent_threshold, 101);
    expect(&s, window_of(&s, 100, 0), 1, 900 - 40, false);
    store_relaxed(&s.allowance->urgent_threshold, 100);
    expect(&s, window_of(&s, 100, 0), 1, 900 - 40, true);
    subject_close(&s);
}

static void test_the_others_of_a_node_that_has_just_joined_use_as_much_until_they_hear_of_it(void **state)
{
    (void) state;
    struct subject s;
    subject_open(&s, WEIR_FIXED_WINDOW);
    answer(&s, NOW_NS - 100 * MILLISECOND, 50, RATE(1000), HALF);
    store_relaxed(&s.allowance->flags, ALLOWANCE_NODE_IS_NEW | ALLOWANCE_DEMAND_UNKNOWN);
    /* 100 ms since the answer, and half an interval from now on: 200 units. Then a tenth of a second for all. */
    expect(&s, window_of(&s, 100, 0), 1, 900 - 200 - 100, false);
    /* No longer than to the end of the window. */
    s.rule.period_ns = 4 * SECOND; /* the window began 0 s ago, at a multiple of four */
    const uint64_t late_ns = NOW_NS + 4 * SECOND - 50 * MILLISECOND;
    answer(&s, late_ns - 100 * MILLISECOND, 50, RATE(1000), HALF);
    store_relaxed(&s.allowance->flags, ALLOWANCE_NODE_IS_NEW | ALLOWANCE_DEMAND_UNKNOWN);
    store_relaxed(&s.process.shared->news_ns, late_ns);
    struct allowance_query query = query_of(&s, window_of(&s, 100, 0), 1);
    query.now_ns = late_ns;
    assert_int_equal(allowance_left(&s.process, &query), 900 - 150 - 100);
    subject_close(&s);
    /* Of no other algorithm. */
    subject_open(&s, WEIR_SLIDING_WINDOW);
    answer(&s, NOW_NS - 100 * MILLISECOND, 50, RATE(1000), HALF);
    store_relaxed(&s.allowance->flags, ALLOWANCE_NODE_IS_NEW | ALLOWANCE_DEMAND_UNKNOWN);
    expect(&s, window_of(&s, 100, 0), 1, 800, false);
    subject_close(&s);
}

/* An answer is stale after three intervals without a look; 237 units of the 950 at the answer are an equal share. */
static void test_of_a_key_left_alone_an_equal_share_is_left(void **state)
{
    (void) state;
    static const struct {
        uint64_t since_ms, inspected_ms, news_ms; /* ago */
        bool stale;
    } rows[] = {
        {600, 10000, 0, false},
        {601, 10000, 0, true},
        {10000, 600, 0, false},
        {10000, 601, 0, true},
        /* Without a later sync all answers age no more from an interval after the last one on. */
        {601, 10000, 200, true},
        {601, 10000, 201, false},
        {700, 10000, 300, false},
        {701, 10000, 300, true},
        {10000, 10000, 9600, false},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct subject s;
        subject_open(&s, WEIR_FIXED_WINDOW);
        s.rule.period_ns = 40 * SECOND; /* one window all the time */
        answer(&s, NOW_NS - rows[i].since_ms * MILLISECOND, 50, 0, HALF);
        store_relaxed(&s.allowance->inspected_ns, NOW_NS - rows[i].inspected_ms * MILLISECOND);
        store_relaxed(&s.process.shared->news_ns, NOW_NS - rows[i].news_ms * MILLISECOND);
        store_relaxed(&s.allowance->urgent_threshold, 1); /* of an answer that is not stale */
        expect(&s, window_of(&s, 100, 0), 1, rows[i].stale ? 237 - 50 : 900, true);
        if (rows[i].stale) {
            store_relaxed(&s.allowance->seen, 99); /* one unseen unit is less than a 128th of 225, and than two */
            expect(&s, window_of(&s, 100, 0), 1, 225 - 1, false);
            expect(&s, window_of(&s, 100, 0), 224, 225 - 1, false);
            expect(&s, window_of(&s, 100, 0), 225, 225 - 1, true);
            expect(&s, window_of(&s, 100, 0), 900, 225 - 1, true);
            expect(&s, window_of(&s, 100, 0), 901, 225 - 1, false); /* no answer would let it pass */
            store_relaxed(&s.allowance->seen, 98);
            expect(&s, window_of(&s, 100, 0), 1, 225 - 2, true);
        }
        subject_close(&s);
    }
}

static void test_while_peers_are_awaited_an_equal_share_is_left_and_the_fleet_is_asked_when_they_may_have_told(
    void **state)
{
    (void) state;
    static const struct {
        uint64_t since_ms;
        bool due;
    } rows[] = {{100, false}, {150, false}, {151, true}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct subject s;
        subject_open(&s, WEIR_FIXED_WINDOW);
        answer(&s, NOW_NS - rows[i].since_ms * MILLISECOND, 50, RATE(1000000), HALF);
        store_relaxed(&s.allowance->flags, ALLOWANCE_AWAITS_PEERS);
        expect(&s, window_of(&s, 100, 0), 1, 237 - 50, rows[i].due);
        expect(&s, window_of(&s, 999, 0), 1, 0, rows[i].due); /* 1 + 949, of which 237 passed here long ago */
        /* At least one unit; and of a fraction all of it. */
        store_relaxed(&s.allowance->seen, 0);
        store_relaxed(&s.process.shared->nodes, 2000);
        expect(&s, window_of(&s, 0, 0), 1, 1, false);
        store_relaxed(&s.allowance->fraction, QUARTER);
        s.rule.limit = 250;
        store_relaxed(&s.allowance->seen, 50);
        expect(&s, window_of(&s, 100, 0), 1, 150, rows[i].due);
        subject_close(&s);
    }
}

/* The level: the bucket's time at the answer, with the units elsewhere. Ten milliseconds a unit. */
static void test_a_bucket_has_no_more_room_than_its_level_leaves_to_all_nodes(void **state)
{
    (void) state;
    struct subject s;
    subject_open(&s, WEIR_TOKEN_BUCKET);
    const struct state owes = bucket_of(&s, 100, 100);
    answer(&s, NOW_NS - 100 * MILLISECOND, 40, 0, HALF);
    store_relaxed(&s.allowance->level, bucket_time(&s.rule, NOW_NS) + 200 * s.rule.unit);
    struct allowance_query query = query_of(&s, owes, 1);
    query.held = 5;
    query.headroom -= 5;
    /* 800 by the level, less 60 unseen ones and 5 that are held. */
    assert_int_equal(allowance_left(&s.process, &query), 735);
    store_relaxed(&s.allowance->remote_rate, RATE(1000));
    assert_int_equal(allowance_left(&s.process, &query), 635);
    store_relaxed(&s.allowance->level, 0); /* it is not known */
    assert_int_equal(allowance_left(&s.process, &query), 795);
    store_relaxed(&s.allowance->level, bucket_time(&s.rule, NOW_NS) - 1000 * s.rule.unit); /* it was full for long */
    assert_int_equal(allowance_left(&s.process, &query), 895);
    store_relaxed(&s.allowance->level, bucket_time(&s.rule, NOW_NS) + 2000 * s.rule.unit);
    assert_int_equal(allowance_left(&s.process, &query), 0);
    s.rule.unit = 0; /* units cost nothing */
    assert_int_equal(allowance_left(&s.process, &query), 795);
    assert_false(is_urgent(&s));
    subject_close(&s);
}

/* A sync may help a request that finds no room by what is presumed, when an answer may have come. */
static void test_a_bucket_whose_demand_is_unknown_asks_the_fleet_when_a_request_finds_no_room(void **state)
{
    (void) state;
    static const struct {
        uint64_t since_ms, asked;
        uint8_t flags;
        bool urgent;
    } rows[] = {{151, 501, ALLOWANCE_DEMAND_UNKNOWN, true},
                {150, 501, ALLOWANCE_DEMAND_UNKNOWN, false},
                {151, 400, ALLOWANCE_DEMAND_UNKNOWN, false},
                {151, 901, ALLOWANCE_DEMAND_UNKNOWN, false},
                {151, 501, 0, false},
                {151, 501, ALLOWANCE_AWAITS_PEERS, true},
                {151, 900, ALLOWANCE_AWAITS_PEERS, true}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct subject s;
        subject_open(&s, WEIR_TOKEN_BUCKET);
        answer(&s, NOW_NS - rows[i].since_ms * MILLISECOND, 100, RATE(1000000), HALF);
        store_relaxed(&s.allowance->flags, rows[i].flags);
        expect(&s, bucket_of(&s, 100, 100), rows[i].asked, 450, rows[i].urgent);
        subject_close(&s);
    }
}

static void test_units_of_a_bucket_that_have_refilled_count_for_no_share(void **state)
{
    (void) state;
    static const struct {
        weir_algorithm algorithm;
        uint64_t owed, total, seen; /* units */
        uint64_t full_for;          /* the time of so many units */
        uint64_t left;
    } rows[] = {
        {WEIR_TOKEN_BUCKET, 100, 100, 40, 0, 240 - 60}, /* 960 / 4, of which 60 passed here */
        {WEIR_TOKEN_BUCKET, 40, 100, 0, 0, 250 - 85},   /* of 60 that refilled in three intervals 15 are this node's */
        {WEIR_TOKEN_BUCKET, 40, 200, 0, 0, 250 - 85},   /* what refilled earlier passed before */
        {WEIR_TOKEN_BUCKET, 0, 100, 0, 20, 250 - 45 + 5}, /* a full bucket has refilled the share as well */
        {WEIR_TOKEN_BUCKET, 0, 100, 0, 2000, 250},
        {WEIR_LEAKY_BUCKET, 100, 100, 40, 0, 225}, /* a fourth of the 900, as its level has the units elsewhere */
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct subject s;
        subject_open(&s, rows[i].algorithm);
        answer(&s, NOW_NS - 700 * MILLISECOND, rows[i].seen, 0, HALF);
        struct state state_of = bucket_of(&s, rows[i].owed, rows[i].total);
        state_of.a -= rows[i].full_for * s.rule.unit;
        expect(&s, state_of, 1, rows[i].left, rows[i].left != 250);
        if (rows[i].algorithm == WEIR_LEAKY_BUCKET) {
            store_relaxed(&s.allowance->flags, ALLOWANCE_AWAITS_PEERS);
            expect(&s, state_of, 1, 240 - 60, true);
        }
        subject_close(&s);
    }
    /* A small burst: of its 40 units 10 are this node's, of which a fourth of the 20 that refilled are there again. */
    struct subject s;
    subject_open(&s, WEIR_TOKEN_BUCKET);
    s.rule.limit = 40;
    s.rule.tolerance = 40 * s.rule.unit;
    answer(&s, NOW_NS - 700 * MILLISECOND, 0, 0, HALF);
    struct state full = bucket_of(&s, 0, 100);
    full.a -= 20 * s.rule.unit;
    expect(&s, full, 1, 5, true);
    s.rule.unit = 0; /* no unit is owed */
    expect(&s, full, 1, 10, false);
    subject_close(&s);
    /* By a fourth of the rule each unit owes four times as long. */
    subject_open(&s, WEIR_TOKEN_BUCKET);
    answer(&s, NOW_NS - 700 * MILLISECOND, 0, 0, HALF);
    store_relaxed(&s.allowance->fraction, QUARTER);
    s.rule = fraction_rule(&s.rule, QUARTER, 1);
    expect(&s, bucket_of(&s, 40, 200), 1, 250 - 160, true);
    expect(&s, bucket_of(&s, 40, 100), 1, 250 - 100, true);
    subject_close(&s);
}

static void test_in_an_outage_a_node_has_its_part_of_what_was_left(void **state)
{
    (void) state;
    struct subject s;
    subject_open(&s, WEIR_FIXED_WINDOW);
    answer(&s, NOW_NS - 5 * SECOND, 50, 0, HALF + QUARTER);
    struct allowance_query query = query_of(&s, window_of(&s, 100, 0), 1);
    query.outage_mode = OUTAGE_MODE_SHARE;
    assert_int_equal(allowance_left(&s.process, &query), 187); /* 900, less three fourths of 950 */
    store_relaxed(&s.allowance->dither, 65535);
    assert_int_equal(allowance_left(&s.process, &query), 188);
    store_relaxed(&s.allowance->dither, 0);
    store_relaxed(&s.allowance->level, 70); /* presumed units of silent nodes */
    assert_int_equal(allowance_left(&s.process, &query), 170);
    store_relaxed(&s.allowance->level, 0);
    store_relaxed(&s.allowance->remote_fraction, HALF);
    assert_int_equal(allowance_left(&s.process, &query), 425);
    store_relaxed(&s.allowance->flags, ALLOWANCE_DEMAND_UNKNOWN);
    assert_int_equal(allowance_left(&s.process, &query), 187);
    store_relaxed(&s.allowance->flags, 0);
    store_relaxed(&s.allowance->remote_fraction, 0);
    assert_int_equal(allowance_left(&s.process, &query), 900);
    assert_false(is_urgent(&s));
    subject_close(&s);
    subject_open(&s, WEIR_SLIDING_WINDOW);
    answer(&s, WINDOW_NS - SECOND, 0, 0, HALF);
    store_relaxed(&s.allowance->seq, window_seq_at(&s.rule, NOW_NS) - 1);
    query = query_of(&s, window_of(&s, 100, 200), 1);
    query.outage_mode = OUTAGE_MODE_SHARE;
    /* 780; less 120 that count of the 200 elsewhere in the window before; less half of that and of the 100 here. */
    assert_int_equal(allowance_left(&s.process, &query), 660 - 380);
    subject_close(&s);
    subject_open(&s, WEIR_TOKEN_BUCKET);
    answer(&s, NOW_NS - 5 * SECOND, 50, 0, HALF);
    query = query_of(&s, bucket_of(&s, 100, 100), 1);
    query.outage_mode = OUTAGE_MODE_SHARE;
    assert_int_equal(allowance_left(&s.process, &query), 900); /* its rule is the part already */
    subject_close(&s);
}

/* Without a full state: a fourth of 900 that are left and 40 that passed here; a sync from a fourth of that on. */
static void test_a_key_with_a_compact_state_has_an_equal_share_of_what_is_not_used_elsewhere(void **state)
{
    (void) state;
    static const struct {
        uint64_t remote, acked, asked, left;
        bool urgent;
    } rows[] = {
        {60, 30, 1, 235 - 40, false},  {60, 30, 195, 235 - 40, false}, {60, 30, 196, 235 - 40, true},
        {60, 30, 900, 235 - 40, true}, {60, 30, 901, 235 - 40, false}, {0, 43, 1, 250 - 100, false},
        {0, 38, 1, 250 - 100, true}, /* 62 of 250 are unreported */
        {0, 39, 1, 250 - 100, false},  {100, 0, 1, 225, false},        {0, 0, 1, 250 - 100, true},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct subject s;
        subject_open(&s, WEIR_FIXED_WINDOW);
        take_full_state(&s, true);
        struct sync_compact *compact = &s.process.syncs.compacts[AT];
        store_relaxed(&compact->flags, COMPACT_ACKED);
        store_relaxed(&compact->residency, window_seq_at(&s.rule, NOW_NS));
        store_relaxed(&compact->words[0], rows[i].remote | rows[i].acked << WINDOW_COUNT_BITS);
        expect(&s, window_of(&s, 100, 0), rows[i].asked, rows[i].left, rows[i].urgent);
        /* Of another window nothing is known. */
        store_relaxed(&compact->residency, window_seq_at(&s.rule, NOW_NS) - 1);
        expect(&s, window_of(&s, 100, 0), 1, 250 - 100, true);
        subject_close(&s);
    }
    struct subject s;
    subject_open(&s, WEIR_SLIDING_LOG);
    take_full_state(&s, true);
    expect(&s, (struct state){NOW_NS + SECOND, 100}, 1, 250 - 100, true);
    expect(&s, (struct state){NOW_NS + SECOND, 61}, 1, 250 - 61, false);
    expect(&s, (struct state){NOW_NS + SECOND, 62}, 1, 250 - 62, true);
    store_relaxed(&s.process.shared->nodes, 2000);
    expect(&s, (struct state){NOW_NS + SECOND, 0}, 1, 1, false);
    subject_close(&s);
    subject_open(&s, WEIR_TOKEN_BUCKET);
    take_full_state(&s, true);
    store_relaxed(&s.process.syncs.compacts[AT].words[1], 300); /* acknowledged */
    expect(&s, bucket_of(&s, 100, 361), 1, 250 - 100, false);
    expect(&s, bucket_of(&s, 100, 362), 1, 250 - 100, true);
    subject_close(&s);
    /* A queue goes by a share always: of that all is left. */
    subject_open(&s, WEIR_LEAKY_BUCKET);
    take_full_state(&s, true);
    s.rule.limit = 250;
    s.rule.tolerance = 250 * s.rule.unit;
    expect(&s, bucket_of(&s, 100, 0), 1, 150, false);
    subject_close(&s);
}

static void test_a_refund_lowers_the_level_of_a_bucket_that_has_one(void **state)
{
    (void) state;
    struct subject s;
    subject_open(&s, WEIR_TOKEN_BUCKET);
    store_relaxed(&s.allowance->level, 10 * s.rule.unit + 7);
    allowance_refund(&s.process, AT, &s.rule, 3);
    assert_int_equal(load_relaxed(&s.allowance->level), 7 * s.rule.unit + 7);
    allowance_refund(&s.process, AT, &s.rule, 8);
    for (int times = 0; times < 2; times++) {
        assert_int_equal(load_relaxed(&s.allowance->level), 1); /* 0 would say that it has none */
        allowance_refund(&s.process, AT, &s.rule, 3);
    }
    store_relaxed(&s.allowance->level, 0);
    allowance_refund(&s.process, AT, &s.rule, 3);
    assert_int_equal(load_relaxed(&s.allowance->level), 0);
    store_relaxed(&s.allowance->level, 100 * s.rule.unit);
    take_full_state(&s, true);
    allowance_refund(&s.process, AT, &s.rule, 3); /* without a full state there is no level */
    assert_int_equal(load_relaxed(&s.allowance->level), 100 * s.rule.unit);
    subject_close(&s);
}

static void test_a_denied_request_may_wait_for_the_next_answer_where_that_can_let_it_pass(void **state)
{
    (void) state;
    static const struct {
        uint64_t since_ms; /* ago; 0: no answer */
        uint64_t rate, level;
        enum outage_mode mode;
        uint64_t wait_ms;
    } rows[] = {{0, 1, 1, OUTAGE_MODE_NONE, 100},   {100, 0, 0, OUTAGE_MODE_NONE, 0},
                {100, 1, 0, OUTAGE_MODE_NONE, 200}, {100, 0, 1, OUTAGE_MODE_NONE, 200},
                {299, 1, 1, OUTAGE_MODE_NONE, 1},   {1000, 1, 1, OUTAGE_MODE_NONE, 1},
                {100, 1, 1, OUTAGE_MODE_SHARE, 0},  {0, 1, 1, OUTAGE_MODE_OPEN, 0}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct subject s;
        subject_open(&s, WEIR_TOKEN_BUCKET);
        store_relaxed(&s.policy.outage_mode, (uint8_t) rows[i].mode);
        answer(&s, rows[i].since_ms != 0 ? NOW_NS - rows[i].since_ms * MILLISECOND : 0, 0, rows[i].rate, 0);
        store_relaxed(&s.allowance->level, rows[i].level);
        assert_int_equal(allowance_retry_after(&s.process, &s.policy, AT, NOW_NS), rows[i].wait_ms * MILLISECOND);
        take_full_state(&s, true);
        assert_int_equal(allowance_retry_after(&s.process, &s.policy, AT, NOW_NS),
                         rows[i].mode == OUTAGE_MODE_NONE ? 100 * MILLISECOND : 0);
        subject_close(&s);
    }
}

static void test_a_window_that_goes_by_local_units_alone_is_without_the_remote_ones(void **state)
{
    (void) state;
    struct subject s;
    subject_open(&s, WEIR_SLIDING_WINDOW);
    answer(&s, NOW_NS, 0, 0, 0);
    store_relaxed(&s.sync->now.remote, 30);
    store_relaxed(&s.sync->before.remote, 70);
    store_relaxed(&s.sync->before.remote_refunds, 20);
    for (enum outage_mode mode = OUTAGE_MODE_NONE; mode <= OUTAGE_MODE_CLOSED; mode++) {
        store_relaxed(&s.policy.outage_mode, (uint8_t) mode);
        const struct state is = allowance_level(&s.process, &s.policy, &s.rule, AT, window_of(&s, 100, 200), NOW_NS);
        assert_int_equal(window_count(is), mode == OUTAGE_MODE_LOCAL ? 70 : 100);
        assert_int_equal(window_previous(is), mode == OUTAGE_MODE_LOCAL ? 150 : 200);
        assert_int_equal(window_seq(is), window_seq_at(&s.rule, NOW_NS));
    }
    /* Remote units of the window before that the state has rolled on since. */
    store_relaxed(&s.policy.outage_mode, OUTAGE_MODE_LOCAL);
    store_relaxed(&s.allowance->seq, window_seq_at(&s.rule, NOW_NS) - 1);
    struct state is = allowance_level(&s.process, &s.policy, &s.rule, AT, window_of(&s, 100, 200), NOW_NS);
    assert_int_equal(window_count(is), 100);
    assert_int_equal(window_previous(is), 170);
    store_relaxed(&s.allowance->seq, 0);
    is = allowance_level(&s.process, &s.policy, &s.rule, AT, window_of(&s, 100, 200), NOW_NS);
    assert_int_equal(window_count(is), 100);
    assert_int_equal(window_previous(is), 200);
    subject_close(&s);
    subject_open(&s, WEIR_SLIDING_LOG);
    store_relaxed(&s.policy.outage_mode, OUTAGE_MODE_LOCAL);
    is = allowance_level(&s.process, &s.policy, &s.rule, AT, (struct state){NOW_NS + SECOND, 100}, NOW_NS);
    assert_int_equal(is.a, NOW_NS + SECOND);
    assert_int_equal(is.b, 100);
    subject_close(&s);
}

/* A queue that owes 100 units, of which 60 are unseen; its level owes 200. */
static void test_a_queue_is_as_long_as_its_level_with_the_units_since_then_here_and_elsewhere(void **state)
{
    (void) state;
    static const struct {
        weir_algorithm algorithm;
        enum outage_mode mode;
        uint8_t flags;
        uint32_t fraction, nodes;
        uint64_t rate, since_ms; /* ago */
        uint64_t owes;           /* units */
    } rows[] = {
        {WEIR_LEAKY_BUCKET, OUTAGE_MODE_NONE, 0, 0, LIVE, 100, 100, 200 + 60 + 10},
        {WEIR_LEAKY_BUCKET, OUTAGE_MODE_NONE, 0, 0, LIVE, 100000, 100, 200 + 60 + 60}, /* one elsewhere for one here */
        {WEIR_LEAKY_BUCKET, OUTAGE_MODE_NONE, 0, 0, LIVE, 100, 700, 200 + 60 + 180},   /* stale: three for one */
        {WEIR_LEAKY_BUCKET, OUTAGE_MODE_NONE, 0, 0, 1, 100, 700, 200 + 60},
        {WEIR_LEAKY_BUCKET, OUTAGE_MODE_NONE, ALLOWANCE_DEMAND_UNKNOWN, 0, LIVE, 100, 100, 100},
        {WEIR_LEAKY_BUCKET, OUTAGE_MODE_NONE, 0, QUARTER, LIVE, 100, 100, 100},
        {WEIR_LEAKY_BUCKET, OUTAGE_MODE_SHARE, ALLOWANCE_DEMAND_UNKNOWN, QUARTER, LIVE, 100, 100, 200 + 60},
        {WEIR_LEAKY_BUCKET, OUTAGE_MODE_LOCAL, 0, 0, LIVE, 100, 100, 100},
        {WEIR_TOKEN_BUCKET, OUTAGE_MODE_NONE, 0, 0, LIVE, 100, 100, 100},
        {WEIR_TOKEN_BUCKET, OUTAGE_MODE_SHARE, 0, 0, LIVE, 100, 100, 200 + 60},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct subject s;
        subject_open(&s, rows[i].algorithm);
        store_relaxed(&s.policy.outage_mode, (uint8_t) rows[i].mode);
        store_relaxed(&s.process.shared->nodes, rows[i].nodes);
        answer(&s, NOW_NS - rows[i].since_ms * MILLISECOND, 40, RATE(rows[i].rate), HALF);
        store_relaxed(&s.allowance->flags, rows[i].flags);
        store_relaxed(&s.allowance->fraction, rows[i].fraction);
        const uint64_t now = bucket_time(&s.rule, NOW_NS);
        const struct state owes = bucket_of(&s, 100, 100);
        store_relaxed(&s.allowance->level, now + 200 * s.rule.unit);
        struct state is = allowance_level(&s.process, &s.policy, &s.rule, AT, owes, NOW_NS);
        if (bucket_tat(is) != now + rows[i].owes * s.rule.unit) {
            fail_msg("row %zu owes %" PRIu64 " units", i, (bucket_tat(is) - now) / s.rule.unit);
        }
        assert_int_equal(bucket_total(is), 100);
        /* The state's own time is the least; and there is no level, or no full state. */
        store_relaxed(&s.allowance->level, 1);
        is = allowance_level(&s.process, &s.policy, &s.rule, AT, owes, NOW_NS);
        assert_int_equal(bucket_tat(is), bucket_tat(owes));
        store_relaxed(&s.allowance->level, 0);
        is = allowance_level(&s.process, &s.policy, &s.rule, AT, owes, NOW_NS);
        assert_int_equal(bucket_tat(is), bucket_tat(owes));
        take_full_state(&s, true);
        is = allowance_level(&s.process, &s.policy, &s.rule, AT, owes, NOW_NS);
        assert_int_equal(bucket_tat(is), bucket_tat(owes));
        subject_close(&s);
    }
}

static void test_units_of_logs_and_buckets_are_unseen_from_the_answers_number_on(void **state)
{
    (void) state;
    static const struct {
        uint64_t end, seen, count, unseen;
    } logs[] = {{120, 50, 100, 70}, {120, 50, 60, 60}, {50, 50, 60, 0}, {20, 50, 60, 20} /* freed in between */};
    uint64_t since_ns = 77;
    for (size_t i = 0; i < COUNT_OF(logs); i++) {
        struct subject s;
        subject_open(&s, WEIR_SLIDING_LOG);
        store_relaxed(&s.sync->history_end, logs[i].end);
        store_relaxed(&s.allowance->seen, logs[i].seen);
        const struct allowance_query query = query_of(&s, (struct state){NOW_NS + SECOND, logs[i].count}, 1);
        assert_int_equal(unseen_local(s.sync, &query, &since_ns), logs[i].unseen);
        subject_close(&s);
    }
    static const struct {
        uint64_t total, seen, unseen;
    } buckets[] = {{300, 100, 200},
                   {300, 300, 0},
                   {300, 301, 0}, /* another key's number */
                   {10, BUCKET_TOTAL_MASK - 9, 20},
                   {BUCKET_TOTAL_MASK / 2, 0, BUCKET_TOTAL_MASK / 2},
                   {BUCKET_TOTAL_MASK / 2 + 1, 0, 0}};
    for (size_t i = 0; i < COUNT_OF(buckets); i++) {
        struct subject s;
        subject_open(&s, WEIR_TOKEN_BUCKET);
        store_relaxed(&s.allowance->seen, buckets[i].seen);
        const struct allowance_query query = query_of(&s, bucket_of(&s, 0, buckets[i].total), 1);
        assert_int_equal(unseen_local(s.sync, &query, &since_ns), buckets[i].unseen);
        subject_close(&s);
    }
    assert_int_equal(since_ns, 77);
}

/* 200 units of the window before, of which six tenths still count. */
static void test_unreported_units_elsewhere_in_the_window_before_count_as_far_as_that_does(void **state)
{
    (void) state;
    static const struct {
        weir_algorithm algorithm;
        uint32_t ago;       /* windows since the answer's */
        uint64_t before_ns; /* the answer is older than the window by so much */
        uint64_t rate, previous;
        uint64_t units, alone; /* the latter in an outage */
    } rows[] = {
        /* The answer is of this window, or of the last interval before it. */
        {WEIR_SLIDING_WINDOW, 0, 0, 1000, 200, 0, 0},
        {WEIR_SLIDING_WINDOW, 0, 200 * MILLISECOND, 1000, 200, 0, 0},
        /* Of 200 units 80 are remote ones; as many again as the other 120, or as fit into the time; less those 80. */
        {WEIR_SLIDING_WINDOW, 0, SECOND, 1000, 200, 24, 24},
        {WEIR_SLIDING_WINDOW, 0, SECOND, 100, 200, 12, 24},
        {WEIR_SLIDING_WINDOW, 0, SECOND, 50, 200, 0, 24},
        {WEIR_SLIDING_WINDOW, 0, 11 * SECOND, 10, 200, 12, 24}, /* no longer than the window before */
        /* 50 units were seen, and no remote one was merged. */
        {WEIR_SLIDING_WINDOW, 1, SECOND, 1000, 200, 90, 90},
        {WEIR_SLIDING_WINDOW, 1, SECOND, 101, 200, 61, 90},
        {WEIR_SLIDING_WINDOW, 1, 20 * SECOND, 10, 200, 60, 90},
        /* Nothing is known of that window. */
        {WEIR_SLIDING_WINDOW, 2, SECOND, 10, 200, 60, 120},
        {WEIR_SLIDING_WINDOW, 2, SECOND, 10, 0, 0, 0},
        {WEIR_FIXED_WINDOW, 2, SECOND, 10, 200, 0, 0},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct subject s;
        subject_open(&s, rows[i].algorithm);
        answer(&s, WINDOW_NS - rows[i].before_ns, 50, RATE(rows[i].rate), HALF);
        store_relaxed(&s.allowance->seq, window_seq_at(&s.rule, NOW_NS) - rows[i].ago);
        store_relaxed(&s.sync->before.remote, 80);
        const struct allowance_query query = query_of(&s, window_of(&s, 100, rows[i].previous), 1);
        assert_int_equal(unseen_before(&s.process, s.allowance, &query, false), rows[i].units);
        assert_int_equal(unseen_before(&s.process, s.allowance, &query, true), rows[i].alone);
        subject_close(&s);
    }
    /* A nanosecond more than an interval before the window. Of the answer's own window no remote units are known. */
    struct subject s;
    subject_open(&s, WEIR_SLIDING_WINDOW);
    answer(&s, WINDOW_NS - INTERVAL_NS - 1, 0, RATE(1000), HALF);
    const struct allowance_query query = query_of(&s, window_of(&s, 100, 200), 1);
    assert_int_equal(unseen_before(&s.process, s.allowance, &query, true), 120);
    subject_close(&s);
}

static void test_presumed_units_of_silent_nodes_leave_as_all_others_do(void **state)
{
    (void) state;
    const uint64_t two = presumed_pack(LIMIT, 100, 50);
    const struct {
        weir_algorithm algorithm;
        uint32_t ago;
        uint64_t level, since_ns, units;
    } rows[] = {
        {WEIR_FIXED_WINDOW, 0, 70, 0, 70},
        {WEIR_FIXED_WINDOW, 0, 0, 0, 0},
        {WEIR_FIXED_WINDOW, 1, 70, 0, 0},
        {WEIR_SLIDING_WINDOW, 0, two, 0, 100 + 30},
        {WEIR_SLIDING_WINDOW, 1, two, 0, 60},
        {WEIR_SLIDING_WINDOW, 2, two, 0, 0},
        {WEIR_SLIDING_LOG, 0, 100, NOW_NS - 4 * SECOND, 60},
        {WEIR_SLIDING_LOG, 0, 101, NOW_NS - 9999 * MILLISECOND, 1},
        {WEIR_SLIDING_LOG, 0, 100, NOW_NS - 11 * SECOND, 0},
        {WEIR_SLIDING_LOG, 0, 100 | PRESUMED_HELD, NOW_NS - 11 * SECOND, 100},
        {WEIR_TOKEN_BUCKET, 0, 100, 0, 0},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct subject s;
        subject_open(&s, rows[i].algorithm);
        answer(&s, rows[i].since_ns, 0, 0, 0);
        store_relaxed(&s.allowance->seq, window_seq_at(&s.rule, NOW_NS) - rows[i].ago);
        store_relaxed(&s.allowance->level, rows[i].level);
        const struct allowance_query query = query_of(&s, window_of(&s, 100, 0), 1);
        assert_int_equal(unseen_presumed(s.allowance, &query), rows[i].units);
        subject_close(&s);
    }
    /* They are not left here. */
    struct subject s;
    subject_open(&s, WEIR_FIXED_WINDOW);
    answer(&s, NOW_NS, 100, 0, 0);
    store_relaxed(&s.allowance->level, 70);
    expect(&s, window_of(&s, 100, 0), 1, 830, false);
    subject_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_shares_are_the_whole_rounded_up),
        cmocka_unit_test(test_a_fraction_of_a_rule_has_a_part_of_its_units_at_a_part_of_its_rate),
        cmocka_unit_test(test_the_fraction_in_force_is_by_what_the_fleet_has_said),
        cmocka_unit_test(test_a_quota_that_is_unconfirmed_has_a_64th_of_the_whole_and_never_nothing),
        cmocka_unit_test(test_a_node_has_its_part_of_the_demand_where_that_is_known),
        cmocka_unit_test(test_a_new_key_asks_the_fleet_when_a_128th_of_its_share_is_used_or_the_share_is_too_small),
        cmocka_unit_test(test_without_other_nodes_or_by_another_outage_mode_all_of_the_headroom_is_left),
        cmocka_unit_test(test_the_other_nodes_keep_what_they_use_until_the_next_answer),
        cmocka_unit_test(test_units_of_a_later_window_than_the_answers_are_unseen_since_it_began),
        cmocka_unit_test(test_the_others_of_a_node_that_has_just_joined_use_as_much_until_they_hear_of_it),
        cmocka_unit_test(test_of_a_key_left_alone_an_equal_share_is_left),
        cmocka_unit_test(
            test_while_peers_are_awaited_an_equal_share_is_left_and_the_fleet_is_asked_when_they_may_have_told),
        cmocka_unit_test(test_a_bucket_has_no_more_room_than_its_level_leaves_to_all_nodes),
        cmocka_unit_test(test_a_bucket_whose_demand_is_unknown_asks_the_fleet_when_a_request_finds_no_room),
        cmocka_unit_test(test_units_of_a_bucket_that_have_refilled_count_for_no_share),
        cmocka_unit_test(test_in_an_outage_a_node_has_its_part_of_what_was_left),
        cmocka_unit_test(test_a_key_with_a_compact_state_has_an_equal_share_of_what_is_not_used_elsewhere),
        cmocka_unit_test(test_a_refund_lowers_the_level_of_a_bucket_that_has_one),
        cmocka_unit_test(test_a_denied_request_may_wait_for_the_next_answer_where_that_can_let_it_pass),
        cmocka_unit_test(test_a_window_that_goes_by_local_units_alone_is_without_the_remote_ones),
        cmocka_unit_test(test_a_queue_is_as_long_as_its_level_with_the_units_since_then_here_and_elsewhere),
        cmocka_unit_test(test_units_of_logs_and_buckets_are_unseen_from_the_answers_number_on),
        cmocka_unit_test(test_unreported_units_elsewhere_in_the_window_before_count_as_far_as_that_does),
        cmocka_unit_test(test_presumed_units_of_silent_nodes_leave_as_all_others_do),
    };
    return cmocka_run_group_tests_name("unit/process/shares", tests, NULL, NULL);
}
