/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a node makes of one answer: the demand that it learns, what it presumes of nodes that are silent, and what it
 * publishes to the checks. There is no fleet: the test says what was known, and what the answer is. An interval has
 * 200 ms; the news of the other nodes is half an interval old.
 *
 * Guards: src/fleet/keys/demand_learn.c, src/fleet/keys/bucket_level.c, src/fleet/keys/presumed.c,
 * src/fleet/keys/publish.c, src/fleet/keys/merge_bucket.c, src/fleet/keys/merge_target.h
 */
#include <math.h>

#include "algorithm/bucket.h"
#include "fleet/keys/bucket_level.h"
#include "fleet/keys/demand_learn.h"
#include "fleet/keys/merge_bucket.h"
#include "fleet/keys/merge_target.h"
#include "fleet/keys/presumed.h"
#include "fleet/keys/publish.h"
#include "support/one_answer.h"

/* One answer, `span_ms` after the one before, by which this node was asked for 700 units a second and the others for
 * 400, of which `presumed` were not reported. */
struct lesson {
    const char *kinds; /* of limits: fixed, sliding, log, bucket */
    double span_ms;
    uint64_t local, remote; /* units that were asked for since */
    double spoken_ms;       /* all nodes have reported up to so long ago */
    uint32_t suspect, silent;
    double presumed;
    double learned_local, learned_remote, learned_presumed; /* learned_local 0: nothing was learned */
    enum { NOTHING_ELSE, DENIED, DENIED_BEFORE, JOINED, JOINED_BEFORE, IRREGULAR, FIRST, MANY, AWAY } beside;
};

static const struct lesson lessons[] = {
    {"fslb", 200, 140, 80, 0, 0, 0, 0, 700, 400, 0},
    /* Older demand counts half with each interval. */
    {"fslb", 200, 280, 160, 0, 0, 0, 0, 1050, 600, 0},
    {"fslb", 299, 0, 598, 0, 0, 0, 0, 350, 1200, 0},
    {"fslb", 300, 0, 600, 0, 0, 0, 0, 175, 1600, 0},
    {"fslb", 500, 0, 1000, 0, 0, 0, 0, 87.5, 1800, 0},
    {"fslb", 200, 280, 160, 0, 0, 0, 0, 1400, 800, 0, FIRST},
    /* Three quarters of an interval tell a rate. */
    {"fslb", 149, 100, 80, 0, 0, 0, 0, 0, 400, 0},
    {"fslb", 150, 105, 60, 0, 0, 0, 0, 700, 400, 0},
    /* A fall of more than a quarter: a fixed window waits for the next answer. Where requests were denied here, the
     * others believe it. */
    {"f", 200, 140, 40, 0, 0, 0, 0, 0, 400, 0},
    {"slb", 200, 140, 40, 0, 0, 0, 0, 700, 300, 0},
    {"sl", 200, 140, 40, 0, 0, 0, 0, 700, 200, 0, DENIED},
    {"sl", 200, 140, 40, 0, 0, 0, 0, 700, 200, 0, DENIED_BEFORE},
    {"b", 200, 140, 40, 0, 0, 0, 0, 700, 300, 0, DENIED},
    {"fsl", 200, 140, 60, 0, 0, 0, 0, 700, 350, 0, DENIED},
    {"f", 200, 140, 59, 0, 0, 0, 0, 0, 400, 0, DENIED},
    {"f", 249, 140, 40, 0, 0, 0, 0, 0, 400, 0},
    {"f", 250, 175, 50, 0, 0, 0, 0, 700, 300, 0},
    {"fsl", 250, 175, 50, 0, 0, 0, 0, 700, 200, 0, DENIED},
    {"sl", 200, 140, 40, 193, 0, 0, 0, 700, 200, 0, DENIED}, /* all have reported since the last answer */
    {"sl", 200, 140, 40, 193.75, 0, 0, 0, 700, 300, 0, DENIED},
    /* Nodes that have not reported within an interval, a little late, are silent: their demand is presumed. */
    {"slb", 200, 140, 40, 206.25, 1, 0, 0, 700, 300, 0},
    {"fslb", 200, 140, 40, 207, 1, 0, 0, 700, 400, 200},
    {"fslb", 200, 140, 40, 207, 3, 0, 0, 700, 400, 200},
    {"fslb", 200, 140, 40, 207, 0, 0, 0, 700, 400, 200},
    {"fslb", 200, 140, 100, 207, 1, 0, 0, 700, 450, 0}, /* there is more demand than before */
    {"fslb", 400, 280, 80, 256.25, 1, 0, 0, 700, 250, 0},
    {"fslb", 400, 280, 80, 257, 1, 0, 0, 700, 400, 200},
    /* No more than their number makes likely. */
    {"fslb", 200, 140, 40, 500, 1, 0, 0, 700, 344, 144, MANY},
    {"fslb", 200, 140, 40, 500, 2, 0, 0, 700, 400, 200, MANY},
    {"fslb", 200, 140, 40, 500, 1, 0, 0, 700, 400, 200, AWAY},
    /* While the silence lasts: the rest is what was told, smoothed but in a fixed window. */
    {"fslb", 200, 140, 40, 500, 1, 1, 200, 700, 400, 200},
    {"f", 200, 140, 20, 500, 1, 1, 200, 700, 400, 300},
    {"slb", 200, 140, 20, 500, 1, 1, 200, 700, 400, 250},
    {"l", 200, 140, 20, 1200, 1, 1, 200, 700, 400, 250},
    {"l", 200, 140, 20, 1201, 1, 1, 200, 700, 400, 212.5}, /* of a log the steady ones move little */
    {"l", 200, 140, 20, 1201, 2, 1, 200, 700, 400, 250},
    {"sb", 200, 140, 20, 1201, 1, 1, 200, 700, 400, 250},
    {"fslb", 200, 140, 81, 500, 1, 1, 200, 700, 400, 200}, /* reports that were late tell no rate */
    {"fslb", 200, 140, 80, 500, 1, 1, 200, 700, 400, 100},
    /* One of two is back: what it asks for is told again. */
    {"f", 200, 140, 40, 500, 1, 2, 200, 700, 400, 100},
    {"sl", 200, 140, 40, 500, 1, 2, 200, 700, 400, 150},
    {"b", 200, 140, 40, 500, 1, 2, 200, 700, 400, 200},
    /* All are: a report of all they used since is no rate. */
    {"fslb", 200, 140, 200, 0, 0, 1, 200, 700, 400, 0},
    {"fslb", 200, 140, 60, 0, 0, 1, 200, 700, 400, 0},
    {"fslb", 200, 140, 160, 0, 0, 1, 0, 700, 400, 0},
    /* Nodes that were away report at irregular moments. */
    {"fsl", 200, 140, 160, 0, 0, 0, 0, 700, 400, 0, IRREGULAR},
    {"b", 200, 140, 160, 0, 0, 0, 0, 700, 600, 0, IRREGULAR},
    /* A node that joins takes over demand, or adds to it. */
    {"fslb", 200, 70, 160, 0, 0, 0, 0, 350, 800, 0, JOINED},
    {"fslb", 200, 280, 80, 0, 0, 0, 0, 1050, 400, 0, JOINED},
    {"slb", 200, 140, 40, 0, 0, 0, 0, 700, 300, 0, JOINED},
    {"fslb", 200, 70, 160, 0, 0, 0, 0, 525, 600, 0, JOINED_BEFORE},
};

static void learn(const struct lesson *lesson)
{
    struct demand_stats *demand = &k.sync.demand;
    struct membership *membership = &k.fleet.membership;
    demand->learned_ns = ago(lesson->span_ms);
    demand->local_demand = lesson->local;
    demand->remote_demand = lesson->remote;
    demand->silent = (uint16_t) lesson->silent;
    demand->presumed_rate = rate_of(lesson->presumed);
    demand->begun = true;
    membership->spoken_ns = membership->watermark_ns = ago(lesson->spoken_ms);
    membership->suspect = lesson->suspect;
    switch (lesson->beside) {
    case DENIED:
    case DENIED_BEFORE:
        demand->denied = lesson->beside == DENIED;
        demand->denied_before = lesson->beside == DENIED_BEFORE;
        break;
    case JOINED:
    case JOINED_BEFORE:
        membership->joined_ns = ago(lesson->beside == JOINED ? 2 * INTERVAL_MS - 1 : 2 * INTERVAL_MS);
        break;
    case IRREGULAR:
        membership->regular_from_ns = NOW_NS + 1;
        break;
    case FIRST:
        demand->rates.known = false;
        break;
    case MANY:
        membership->live = 100;
        break;
    case AWAY:
        membership->live = 100;
        k.fleet.news.peers_resume = true;
        break;
    case NOTHING_ELSE:
        break;
    }
    const struct demand_span span = {.rule = &k.rule, .report = &k.report};
    demand_learn(&k.fleet, &k.sync, &span);
}

static void test_an_answer_teaches_the_demand_of_all_nodes(void **state)
{
    (void) state;
    for (size_t i = 0; i < sizeof(lessons) / sizeof(lessons[0]); i++) {
        const struct lesson *lesson = &lessons[i];
        for (const char *kind = lesson->kinds; *kind != '\0'; kind++) {
            begin(limit_named(*kind));
            learn(lesson);
            const struct demand_stats *demand = &k.sync.demand;
            const bool learned = lesson->learned_local != 0;
            if (!is_near(demand->rates.local_rate, learned ? lesson->learned_local : 700) ||
                !is_near(demand->rates.remote_rate, lesson->learned_remote) ||
                !is_near(demand->presumed_rate, lesson->learned_presumed)) {
                fail_msg("lesson %zu of '%c': local %.1f, remote %.1f, presumed %.1f", i, *kind,
                         (double) demand->rates.local_rate / 65536, (double) demand->rates.remote_rate / 65536,
                         (double) demand->presumed_rate / 65536);
            }
            assert_true(demand->rates.known);
            assert_int_equal(demand->learned_ns, learned ? NOW_NS : ago(lesson->span_ms));
            assert_int_equal(demand->own, learned ? 1140 : 1000);
            assert_int_equal(demand->local_demand, learned ? 0 : lesson->local);
            assert_int_equal(demand->remote_demand, learned ? 0 : lesson->remote);
            assert_int_equal(demand->begun, !learned);
        }
    }
}

/* After a first answer, or after so many intervals. A window knows the remote units of its own time alone. */
static void test_remote_demand_is_spread_over_the_time_that_is_read(void **state)
{
    (void) state;
    static const struct {
        char kind;
        double start_ms;
        bool with_before;
        double remote; /* as learned of 40 units of 200 ms, from none */
    } cases[] = {
        {'s', 200, false, 200}, {'s', 100, false, 400}, {'s', 50, false, 400}, {'s', 50, true, 200},
        {'s', 150, false, 270}, {'l', 50, false, 200},  {'b', 50, false, 200},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin(limit_named(cases[i].kind));
        k.sync.demand.rates.known = false;
        k.sync.demand.remote_demand = 40;
        const struct demand_span span = {.rule = &k.rule,
                                         .report = &k.report,
                                         .start_ns = ago(cases[i].start_ms),
                                         .with_before = cases[i].with_before};
        demand_learn(&k.fleet, &k.sync, &span);
        if (!is_near(k.sync.demand.rates.remote_rate, cases[i].remote)) {
            fail_msg("case %zu: %.1f", i, (double) k.sync.demand.rates.remote_rate / 65536);
        }
    }
}

/* Local units that passed before the other nodes' reports were made: half an interval ago on average. */
static void test_local_units_are_seen_as_far_as_the_others_news_reaches(void **state)
{
    (void) state;
    static const struct {
        const char *kinds;
        double span_ms, start_ms;
        uint64_t seen_before, recent_units; /* recent: at 700 a second, inspected just now; 0: not just now */
        uint64_t seen;
    } cases[] = {
        {"fslb", 200, 60000, 0, 0, 1070},    /* half of the 140 units since the last answer */
        {"fs", 400, 200, 0, 0, 570},         /* half of 1,140 units since the window began, 200 ms ago */
        {"fs", 400, 100, 0, 0, 285},         /* a quarter, of a window that is half as old */
        {"lb", 400, 100, 0, 0, 1105},        /* 140 * 300 / 400 */
        {"fslb", 100, 60000, 1050, 0, 1050}, /* too early to tell a rate */
        {"fslb", 100, 60000, 1050, 1, 1070}, /* but 70 units have passed in the last 100 ms */
        {"fslb", 100, 60000, 1100, 1, 1100},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (const char *kind = cases[i].kinds; *kind != '\0'; kind++) {
            begin(limit_named(*kind));
            struct demand_stats *demand = &k.sync.demand;
            demand->learned_ns = ago(cases[i].span_ms);
            demand->remote_demand = 80;
            demand->local_seen = cases[i].seen_before;
            demand->recent_rate = rate_of(700);
            demand->recent_ns = cases[i].recent_units != 0 ? NOW_NS : NOW_NS - 1;
            const struct demand_span span = {.rule = &k.rule, .report = &k.report, .start_ns = ago(cases[i].start_ms)};
            demand_learn(&k.fleet, &k.sync, &span);
            if (demand->local_seen != cases[i].seen) {
                fail_msg("case %zu of '%c': %u", i, *kind, (unsigned) demand->local_seen);
            }
        }
    }
}

static void test_a_fall_by_half_says_that_demand_moves(void **state)
{
    (void) state;
    static const struct {
        double local, remote;
        uint64_t told;
        bool moves;
    } cases[] = {{700, 400, 39, true}, {700, 400, 40, false}, {3200, 400, 0, false}, {3192, 400, 0, true}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin(&sliding);
        k.sync.demand.rates.local_rate = rate_of(cases[i].local);
        k.sync.demand.rates.remote_rate = rate_of(cases[i].remote);
        k.sync.demand.remote_demand = cases[i].told;
        const struct demand_span span = {.rule = &k.rule, .report = &k.report};
        demand_learn(&k.fleet, &k.sync, &span);
        assert_int_equal(k.sync.demand.changed_ns, cases[i].moves ? NOW_NS : 1);
    }
}

/* Of a node that has just joined, the first rate of a log needs a report of each node. */
static void test_the_first_rate_of_a_log_waits_for_all_nodes(void **state)
{
    (void) state;
    static const struct {
        char kind;
        double span_ms, spoken_ms, opened_ms;
        bool known, learned;
    } cases[] = {
        {'l', 200, 201, 399, false, false}, {'l', 200, 200, 399, false, true},  {'l', 200, 201, 400, false, true},
        {'l', 200, 201, 399, true, true},   {'l', 399, 400, 399, false, false}, {'l', 400, 401, 399, false, true},
        {'s', 200, 201, 399, false, true},  {'b', 200, 201, 399, false, true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin(limit_named(cases[i].kind));
        k.fleet.opened_ns = ago(cases[i].opened_ms);
        k.fleet.membership.spoken_ns = ago(cases[i].spoken_ms);
        k.sync.demand.rates.known = cases[i].known;
        k.sync.demand.learned_ns = ago(cases[i].span_ms);
        k.sync.demand.remote_demand = 400;
        const struct demand_span span = {.rule = &k.rule, .report = &k.report};
        demand_learn(&k.fleet, &k.sync, &span);
        if ((k.sync.demand.learned_ns == NOW_NS) != cases[i].learned) {
            fail_msg("case %zu", i);
        }
        assert_int_equal(demand_learn_node_is_new(&k.fleet), cases[i].opened_ms < 400);
    }
}

static void test_a_first_answer_guesses_where_it_can(void **state)
{
    (void) state;
    static const struct {
        char kind;
        double start_ms;
        bool guessed;
        double remote;
    } cases[] = {
        {'f', 1000, true, 1000}, /* 900 units, as of half an interval ago */
        {'s', 3200, true, 290},  {'f', 3201, false, 0}, {'f', 50, true, 9000}, /* at least half an interval */
        {'l', 0, true, 100}, /* 30 units in the last two intervals, whose news is half an interval old */
        {'b', 0, false, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin(limit_named(cases[i].kind));
        struct demand_stats *demand = &k.sync.demand;
        *demand = (struct demand_stats){.local_demand = 20, .remote_demand = 7, .idle = true};
        k.sync.now.remote_demand = 900;
        k.history.group_count = 3;
        for (unsigned g = 0; g < 3; g++) {
            static const double times[] = {400, 399, 1};
            k.history.groups[g] = (struct history_group){.time_ns = ago(times[g]) / 1000, .units = 10 + 10 * g % 20};
        }
        k.history.groups[0].units = 500;
        const struct demand_span span = {.rule = &k.rule, .report = &k.report, .start_ns = ago(cases[i].start_ms)};
        assert_true(demand_learn_first_contact(&k.fleet, &k.sync, &span));
        assert_int_equal(demand->guessed, cases[i].guessed);
        if (!is_near(demand->rates.remote_rate, cases[i].remote) ||
            !is_near(demand->rates.local_rate, cases[i].guessed ? 100 : 0)) {
            fail_msg("case %zu: remote %.1f, local %.1f", i, (double) demand->rates.remote_rate / 65536,
                     (double) demand->rates.local_rate / 65536);
        }
        assert_true(demand->first_ns == NOW_NS && demand->learned_ns == NOW_NS && demand->changed_ns == NOW_NS);
        assert_int_equal(demand->own, 1140);
        assert_int_equal(demand->local_demand + demand->remote_demand, 0);
        assert_false(demand->idle || demand->begun);
    }
}

static void test_use_that_begins_or_surges_awaits_the_other_nodes(void **state)
{
    (void) state;
    static const struct {
        bool idle, known, guessed;
        double recent_rate, first_ms;
        uint64_t recent_units;
        bool begins, awaits;
    } cases[] = {
        {true, true, false, 0, 1000, 125, true, true},
        {true, true, false, 0, 1000, 3, true, true}, /* 1/128 of an equal share */
        {true, true, false, 0, 1000, 2, false, false},
        {false, true, false, 5608, 1000, 125, true, true}, /* eight times the 700 a second before */
        {false, true, false, 5599, 1000, 125, false, false},
        {false, true, false, 5608, 199, 125, false, false}, /* the last one is not over */
        {false, true, false, 5608, 200, 125, true, true},
        {false, true, false, 0, 49, 125, false, true}, /* a quarter of an interval is waited */
        {false, true, false, 0, 50, 125, false, false},
        {false, false, true, 0, 50, 125, false, false},
        {false, false, false, 9999, 500, 125, false, true}, /* nothing is known yet */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin(&sliding);
        struct demand_stats *demand = &k.sync.demand;
        demand->idle = cases[i].idle;
        demand->rates.known = cases[i].known;
        demand->guessed = cases[i].guessed;
        demand->recent_rate = rate_of(cases[i].recent_rate);
        demand->recent_units = cases[i].recent_units;
        demand->first_ns = ago(cases[i].first_ms);
        demand->local_seen = 1100;
        const struct demand_span span = {.rule = &k.rule, .report = &k.report};
        assert_int_equal(demand_learn_first_contact(&k.fleet, &k.sync, &span), cases[i].awaits);
        assert_int_equal(demand->begun, cases[i].begins);
        assert_int_equal(demand->first_ns, cases[i].begins ? NOW_NS : ago(cases[i].first_ms));
        assert_int_equal(demand->changed_ns, cases[i].begins ? NOW_NS : 1);
        assert_int_equal(demand->local_seen, cases[i].begins ? min_u64(1140 - cases[i].recent_units, 1100) : 1100);
        assert_false(demand->idle);
    }
}

/* What an answer leaves for the checks. */
static struct allowance *publish(uint64_t remote, double start_ms)
{
    const struct publish_input input = {.cell = &k.cell,
                                        .sync = &k.sync,
                                        .rule = &k.rule,
                                        .report = &k.report,
                                        .remote = remote,
                                        .start_ns = start_ms != 0 ? ago(start_ms) : 0};
    publish_answer(&k.fleet, &input);
    return &k.sync.allowance;
}

/* The part of the demand that is remote, of 1. */
static double remote_part(void)
{
    return (double) load_relaxed(&k.sync.allowance.remote_fraction) / 4294967296.0;
}

static bool is_part(double part)
{
    return fabs(remote_part() - part) < 0.0001;
}

/* 140 units were asked for here and 80 elsewhere: 700 and 400 a second, as before. */
static void publish_steady(char kind)
{
    begin(limit_named(kind));
    k.sync.demand.local_demand = 140;
    k.sync.demand.remote_demand = 80;
    store_relaxed(&k.sync.allowance.quota_unacked, 1);
    store_relaxed(&k.sync.allowance.fraction, 5);
    (void) publish(80, kind == 'f' || kind == 's' ? 60000 : 0);
}

static void test_an_answer_is_published_to_the_checks(void **state)
{
    (void) state;
    for (const char *kind = "fslb"; *kind != '\0'; kind++) {
        publish_steady(*kind);
        const struct allowance *allowance = &k.sync.allowance;
        assert_true(is_near(load_relaxed(&allowance->remote_rate), 400));
        assert_true(is_part(400.0 / 1100));
        /* A log goes by the units that it has told of; here none. A bucket's state has all that were reported. */
        const uint64_t seen = *kind == 'b' ? 1140 : *kind == 'l' ? 0 : 1070;
        assert_int_equal(load_relaxed(&allowance->seen), seen);
        assert_int_equal(load_relaxed(&allowance->since_ns), *kind == 'b' ? NOW_NS : ago(100));
        assert_int_equal(load_relaxed(&allowance->inspected_ns), NOW_NS);
        assert_int_equal(load_relaxed(&allowance->quota_unacked), 0);
        assert_int_equal(load_relaxed(&allowance->fraction), 0);
        assert_int_equal(load_relaxed(&allowance->flags), 0);
        assert_int_equal(k.sync.demand.fraction_ns, NOW_NS); /* until now a fraction was in force */
        /* Three intervals of 700 a second come before the next answer at the latest. */
        const uint64_t unseen = *kind == 'b' ? 0 : 1140 - seen;
        assert_int_equal(load_relaxed(&allowance->urgent_threshold), unseen + 420);
        if (*kind == 'b') {
            /* What the others use in half an interval, beside an empty record: 40 of 1000 units a second. The bucket is
             * full, so its level lies an eighth of an interval behind. */
            assert_int_equal(load_relaxed(&allowance->level),
                             max_u64(bucket_time(&k.rule, NOW_NS) - (25 * MILLISECOND << 6), 1));
            assert_int_equal(load_relaxed(&allowance->dither), 0);
        } else {
            assert_int_equal(load_relaxed(&allowance->level), 0);
        }
    }
}

/* Fractions are rounded by chance: alike for one key and time, otherwise for others. */
static void test_the_dither_differs_from_key_to_key(void **state)
{
    (void) state;
    uint64_t sum = 0;
    for (uint64_t hash = 0; hash < 1000; hash++) {
        begin(&sliding);
        store_relaxed(&k.cell.hash, hash);
        sum += load_relaxed(&publish(0, 60000)->dither);
    }
    assert_in_range(sum / 1000, 30000, 35500); /* half of 65,536 */
}

static void test_what_a_key_is_urgent_at(void **state)
{
    (void) state;
    static const struct {
        const char *kinds;
        double local, recent, changed_ms, first_ms;
        uint64_t used, seen; /* of a window's 1000 units; of the 1140 local ones */
        uint64_t threshold;
    } cases[] = {
        {"fs", 700, 0, 9999, 9999, 0, 1140, 420},
        {"fs", 100, 0, 9999, 9999, 0, 1140, 125}, /* an eighth of what is left */
        {"fs", 100, 0, 9999, 9999, 520, 1140, 60},
        {"fs", 0, 0, 9999, 9999, 1000, 1140, 2},
        {"fs", 700, 0, 9999, 9999, 0, 1000, 560},
        /* While demand moves, a quarter of an interval; it moves for four intervals. */
        {"fs", 10000, 0, 799, 9999, 0, 1140, 500},
        {"fs", 10000, 0, 800, 9999, 0, 1140, 6000},
        {"fs", 10000, 20001, 9999, 9999, 0, 1140, 500},
        {"fs", 10000, 20000, 9999, 9999, 0, 1140, 6000},
        /* While other nodes are awaited, an equal share is told in quarters. */
        {"fs", 700, 0, 9999, 49, 0, 1140, 125},
        {"fs", 700, 0, 9999, 49, 600, 1040, 162}, /* of what there was before 100 unseen units: 500 */
        {"fs", 700, 0, 9999, 49, 1000, 1140, 2},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (const char *kind = cases[i].kinds; *kind != '\0'; kind++) {
            begin(limit_named(*kind));
            struct demand_stats *demand = &k.sync.demand;
            demand->learned_ns = ago(100); /* too early to learn */
            demand->rates.local_rate = rate_of(cases[i].local);
            demand->recent_rate = rate_of(cases[i].recent);
            demand->changed_ns = ago(cases[i].changed_ms);
            demand->first_ns = ago(cases[i].first_ms);
            demand->local_seen = cases[i].seen;
            set_state(rule_charge(&k.rule, rule_fresh(&k.rule, NOW_NS), NOW_NS, cases[i].used));
            const uint64_t threshold = load_relaxed(&publish(0, 60000)->urgent_threshold);
            if (threshold != cases[i].threshold) {
                fail_msg("case %zu of '%c': %u", i, *kind, (unsigned) threshold);
            }
        }
    }
}

/* The fraction of the other nodes, and their rate, where demand says little. Two nodes have a half each. */
static void test_what_is_left_to_the_other_nodes(void **state)
{
    (void) state;
    static const struct {
        const char *kinds;
        double local, remote; /* units a second */
        double recent;        /* a rate that has risen; 0: none has */
        uint64_t told;        /* units since the last answer, while use begins; 0: it does not */
        uint64_t limit;       /* 0: 1000 */
        double part, rate;    /* rate < 0: any, as each may take its part */
    } cases[] = {
        {"fslb", 700, 400, 0, 0, 0, 400.0 / 1100, 400},
        {"fslb", 700, 400, 800, 0, 0, 400.0 / 1100, 400}, /* not by a quarter */
        {"fslb", 700, 400, 1600, 0, 0, 400.0 / 2000, 400},
        {"fslb", 0, 400, 0, 0, 0, 400.0 / 405, 400}, /* a unit in an interval is asked for here */
        /* Use that begins: what is reported of the other nodes is less than they use. */
        {"fsl", 700, 100, 0, 20, 0, 200.0 / 900, 200},
        {"b", 700, 100, 0, 20, 0, 400.0 / 900, 200},
        {"b", 700, 100, 0, 40, 0, 0.5, 400}, /* an equal share at most */
        {"fslb", 700, 900, 0, 20, 0, 0.5, 900},
        /* A limit of which this node's part is hardly a unit: everybody gets a unit, or none. */
        {"fsl", 700, 400, 0, 0, 3, 0.5, -1},
        {"fsl", 100, 400, 0, 0, 3, 0.8, -1},
        {"fsl", 700, 400, 0, 0, 4, 400.0 / 1100, 400},
        {"fsl", 0.03, 0.02, 0, 0, 3, 0.02 / 5.02, 0.02}, /* it is not asked for too often */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (const char *kind = cases[i].kinds; *kind != '\0'; kind++) {
            weir_limit limit = *limit_named(*kind);
            limit.limit = cases[i].limit != 0 ? cases[i].limit : limit.limit;
            if (*kind == 'b') {
                limit.limit = limit.burst = 10000; /* ten seconds' worth */
                limit.period_ns = 10 * SECOND;
            }
            begin(&limit);
            struct demand_stats *demand = &k.sync.demand;
            demand->learned_ns = ago(100);
            demand->rates.local_rate = rate_of(cases[i].local);
            demand->rates.remote_rate = rate_of(cases[i].remote);
            demand->recent_rate = rate_of(cases[i].recent);
            demand->risen = cases[i].recent != 0;
            demand->remote_demand = cases[i].told;
            demand->begun = cases[i].told != 0;
            const struct allowance *allowance = publish(0, 60000);
            const uint64_t rate = load_relaxed(&allowance->remote_rate);
            if (!is_part(cases[i].part) || (cases[i].rate < 0 ? rate != RATE_MOST : !is_near(rate, cases[i].rate))) {
                fail_msg("case %zu of '%c': %.4f of %.1f", i, *kind, remote_part(), (double) rate / 65536);
            }
        }
    }
}

/* While the other nodes' first reports are awaited, a bucket that makes up for it late goes by equal shares. */
static void test_a_bucket_goes_by_equal_shares_until_the_others_are_heard(void **state)
{
    (void) state;
    static const weir_limit small = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 1000, .period_ns = SECOND, .burst = 200};
    static const weir_limit queue = {
        .algorithm = WEIR_LEAKY_BUCKET, .limit = 1000, .period_ns = SECOND, .burst = 1000, .delay = 1000};
    static const struct {
        const weir_limit *limit;
        bool awaits, known;
        uint32_t nodes;
        bool evenly;
        uint8_t flags;
    } cases[] = {
        {&bucket, false, true, 2, false, 0},
        {&bucket, true, true, 2, true, ALLOWANCE_AWAITS_PEERS},
        {&small, true, true, 2, false, ALLOWANCE_AWAITS_PEERS}, /* it refills within an interval */
        {&small, false, false, 2, true, ALLOWANCE_AWAITS_PEERS | ALLOWANCE_DEMAND_UNKNOWN},
        {&bucket, true, true, 4, true, ALLOWANCE_AWAITS_PEERS},
        {&queue, true, true, 2, false, ALLOWANCE_AWAITS_PEERS},
        {&sliding, true, true, 2, false, ALLOWANCE_AWAITS_PEERS},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (int is_new = 0; is_new < 2; is_new++) {
            begin(cases[i].limit);
            struct demand_stats *demand = &k.sync.demand;
            k.fleet.opened_ns = is_new != 0 ? ago(399) : 1;
            k.fleet.membership.live = cases[i].nodes;
            demand->learned_ns = ago(100);
            demand->first_ns = ago(cases[i].awaits ? 49 : 9999);
            demand->rates.known = cases[i].known;
            demand->local_seen = 1000;
            store_relaxed(&k.sync.allowance.fraction, 5);
            const struct allowance *allowance = publish(0, cases[i].limit == &sliding ? 60000 : 0);
            assert_int_equal(load_relaxed(&allowance->flags),
                             cases[i].flags | (cases[i].flags != 0 && is_new != 0 ? ALLOWANCE_NODE_IS_NEW : 0));
            if (cases[i].evenly) {
                assert_true(is_part(1 - 1.0 / cases[i].nodes));
                assert_int_equal(load_relaxed(&allowance->remote_rate), RATE_MOST);
                assert_int_equal(load_relaxed(&allowance->seen), 1000); /* a share of what was there before */
            } else {
                assert_true(is_part(400.0 / 1100));
            }
            /* A queue that awaits them is served in part. */
            assert_int_equal(load_relaxed(&allowance->fraction), cases[i].limit == &queue ? 5 : 0);
            const bool halfway = cases[i].awaits || cases[i].evenly;
            assert_int_equal(load_relaxed(&allowance->since_ns),
                             halfway || cases[i].limit == &sliding ? ago(100) : NOW_NS);
        }
    }
}

static void test_a_limit_admits_its_units_in_its_period(void **state)
{
    (void) state;
    begin(&bucket);
    assert_true(is_near(bucket_level_rule_rate(&k.rule), 1000));
    k.rule.unit = 0; /* off */
    assert_int_equal(bucket_level_rule_rate(&k.rule), UINT64_MAX);
    for (const char *kind = "fsl"; *kind != '\0'; kind++) {
        begin(limit_named(*kind));
        assert_true(is_near(bucket_level_rule_rate(&k.rule), 1000.0 / 60));
    }
}

static void test_a_level_has_the_units_since_the_last_answer(void **state)
{
    (void) state;
    static const struct {
        uint64_t seen; /* of 1140 units */
        double rate, level_ms;
    } cases[] = {
        {1140, 400, 100 - 40},            /* less what the others use in half an interval */
        {1090, 400, 100 + 50 + 50 - 40},  /* own units, and as many of the others */
        {940, 400, 100 + 200 + 120 - 40}, /* no more than they ask for */
        {940, 900, 100 + 200 + 200 - 50}, /* nor in that half than half of the bucket's rate */
        {1141, 400, 100 - 40},            /* none came */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin(&bucket);
        last_answer(100, cases[i].seen, cases[i].rate);
        const uint64_t level = bucket_level_reported(&k.fleet, &k.sync, &k.rule, 1140, NOW_NS);
        assert_true(fabs((double) level - (double) after(cases[i].level_ms)) <= 640);
    }
    begin(&bucket);
    assert_int_equal(bucket_level_reported(&k.fleet, &k.sync, &k.rule, 0, 0), 0);
}

/* An answer whose bucket is used up to now with 1100 units; so with those reported, 40 ms on. The others ask for 400 a
 * second, which are 40 in the time that their news is old. */
static void test_a_level_stays_within_what_the_news_leaves_open(void **state)
{
    (void) state;
    static const struct {
        double known_ms, was_ms; /* was_ms 0: the last answer left no level */
        double tat_ms;           /* the state's, with 30 units that were not reported */
        enum { SPEAKS, SILENT, FAILED, UNKNOWN, ONE_DENIED, BOTH_DENIED, FEWER } beside;
        double level_ms;
    } cases[] = {
        {0, 0, 0, SPEAKS, 80},
        {0, 0, 0, UNKNOWN, 90}, /* by the estimate: half of the bucket's rate */
        {0, 0, 0, FEWER, 40},   /* none are new */
        {0, 10, 0, SPEAKS, 60},
        {0, 90, 0, SPEAKS, 90},
        {0, 200, 0, SPEAKS, 100},
        {0, 10, 95, SPEAKS, 65}, /* the state without those 30 units */
        {0, 10, 0, SILENT, 10},
        {0, 200, 0, SILENT, 200},
        {0, 10, 0, FAILED, 60},
        {0, 200, 0, FAILED, 200},
        /* Credit: a bucket that was full stays a little behind, and more where both were denied. */
        {-1000, 0, 0, SPEAKS, -25},
        {-1000, 0, 0, ONE_DENIED, -25},
        {-1000, 0, 0, BOTH_DENIED, -200},
        {-200, 0, 0, BOTH_DENIED, -120},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin(&bucket);
        struct demand_stats *demand = &k.sync.demand;
        if (cases[i].was_ms != 0) {
            last_answer(cases[i].was_ms, 1140, 0);
        }
        demand->known_time = after(cases[i].known_ms);
        demand->known_total = cases[i].beside == FEWER ? 1141 : 1100;
        demand->presumed_rate = cases[i].beside == SILENT ? 1 : 0;
        demand->resumed = k.fleet.membership.failed = cases[i].beside == FAILED;
        demand->denied = cases[i].beside == ONE_DENIED || cases[i].beside == BOTH_DENIED;
        demand->denied_before = cases[i].beside == BOTH_DENIED;
        struct demand_rates rates = demand->rates;
        rates.known = cases[i].beside != UNKNOWN;
        const struct estimate estimate = {.remote_rate = rate_of(900), .remote_fraction = FRACTION_WHOLE / 2};
        const struct bucket_level_input input = {
            &k.sync, &k.rule, &k.report, {cases[i].tat_ms != 0 ? after(cases[i].tat_ms) : 0, 1170}};
        const uint64_t level = bucket_level_answer(&k.fleet, &input, &rates, &estimate);
        if (fabs((double) level - (double) after(cases[i].level_ms)) > 1280) {
            fail_msg("case %zu: %.3f ms", i, ((double) level - (double) after(0)) / 64e6);
        }
    }
}

/* Nodes are silent that asked for 200 of the 1,100 units a second: 181.8 units of the limit. */
static void silent_for(const weir_limit *limit, double spoken_ms)
{
    begin(limit);
    k.fleet.membership.spoken_ns = ago(spoken_ms);
    k.sync.demand.presumed_rate = rate_of(200);
    k.sync.demand.silent = 1;
}

static void test_what_is_presumed_of_silent_nodes_in_a_window(void **state)
{
    (void) state;
    static const struct {
        char kind;
        double spoken_ms, start_ms;
        uint64_t now, before; /* units */
    } cases[] = {
        {'f', 500, 60000, 80, 0},                             /* up to the time of the other nodes' news */
        {'f', 5000, 60000, 182, 0},                           /* their share */
        {'f', 500, 300, 40, 0},                               /* of this window alone */
        {'f', 99, 60000, 0, 0},      {'s', 500, 60000, 1, 0}, /* a window that slides becomes free by 3.03 units a
                                                                 second of theirs */
        {'s', 30000, 10000, 30, 61}, {'s', 100000, 10000, 30, 182}, {'s', 9000, 10000, 27, 0},
        {'s', 30000, 50, 0, 91}, /* up to the news */
        {'l', 5000, 0, 0, 0},        {'b', 5000, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        silent_for(limit_named(cases[i].kind), cases[i].spoken_ms);
        const uint64_t expected =
            cases[i].kind == 's' ? presumed_pack(1000, cases[i].now, cases[i].before) : cases[i].now;
        assert_int_equal(presumed_in_window(&k.fleet, &k.sync.demand, &k.rule, ago(cases[i].start_ms)), expected);
        assert_true(fabs(presumed_fraction(&k.sync.demand) / 4294967296.0 - 200.0 / 1100) < 0.0001);
        k.sync.demand.presumed_rate = 0;
        assert_int_equal(presumed_in_window(&k.fleet, &k.sync.demand, &k.rule, ago(cases[i].start_ms)), 0);
    }
    k.sync.demand.rates = (struct demand_rates){.known = true};
    k.sync.demand.presumed_rate = 5;
    assert_int_equal(presumed_fraction(&k.sync.demand), UINT32_MAX); /* below all */
}

static void test_what_is_presumed_of_silent_nodes_in_a_log(void **state)
{
    (void) state;
    static const struct {
        double spoken_ms;
        uint64_t kept; /* units from before, which still take a part */
        uint16_t silent;
        bool resume;
        uint64_t units;
        bool held;
    } cases[] = {
        {500, 0, 1, false, 80, false},   {500, 500, 1, false, 80, false}, {500, 560, 1, false, 80, true},
        {500, 900, 1, false, 18, true},  {500, 900, 0, false, 18, false}, {500, 900, 1, true, 18, false},
        {500, 1000, 1, false, 0, true},  {5000, 0, 1, false, 182, true},  {900000, 0, 1, false, 182, true},
        {1008, 0, 1, false, 182, false}, {1011, 0, 1, false, 182, true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        silent_for(&log_limit, cases[i].spoken_ms);
        k.sync.demand.silent = cases[i].silent;
        k.fleet.news.peers_resume = cases[i].resume;
        const uint64_t level = presumed_in_log(&k.fleet, &k.sync.demand, &k.rule, cases[i].kept);
        if (level != (cases[i].units | (cases[i].held ? PRESUMED_HELD : 0))) {
            fail_msg("case %zu: %u, %s", i, (unsigned) level, level >= PRESUMED_HELD ? "held" : "not held");
        }
        assert_int_equal(presumed_held(&k.fleet, &k.sync.demand, &k.rule, cases[i].kept), cases[i].held);
    }
    silent_for(&sliding, 5000);
    assert_false(presumed_held(&k.fleet, &k.sync.demand, &k.rule, 0));
    silent_for(&log_limit, 5000);
    k.sync.demand.presumed_rate = 0;
    assert_int_equal(presumed_in_log(&k.fleet, &k.sync.demand, &k.rule, 0), 0);
    /* A rate that leaves a log's period idle is never held. */
    silent_for(&log_limit, 900000);
    k.sync.demand.presumed_rate = rate_of(1);
    k.sync.demand.rates.remote_rate = rate_of(1);
    k.sync.demand.rates.local_rate = 0;
    assert_false(presumed_held(&k.fleet, &k.sync.demand, &k.rule, 0));
}

/* A node that was away itself adds up what the demand of all lets expect, and takes off what was reported. */
static void test_what_is_presumed_of_nodes_that_were_away_together(void **state)
{
    (void) state;
    static const struct {
        bool resume, presumes;
        uint64_t level, brought, had; /* presumed before; remote units of the answer, and of the window */
        double start_ms;
        uint64_t units;
    } cases[] = {
        {false, true, 50, 30, 0, 60000, 80},                                       /* as of nodes that are silent */
        {true, false, 50, 30, 0, 60000, 0},   {true, true, 50, 30, 0, 60000, 100}, /* 80 more in 200 ms */
        {true, true, 0, 30, 0, 60000, 50},    {true, true, 0, 90, 0, 60000, 0},
        {true, true, 50, 30, 0, 150, 40},    /* 20 since the window began */
        {true, true, 900, 0, 0, 60000, 363}, /* their part of the limit */
        {true, true, 900, 0, 300, 60000, 63}, {true, true, 900, 0, 400, 60000, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        silent_for(&fixed, 500);
        k.fleet.news.peers_resume = cases[i].resume;
        k.sync.demand.presumed_rate = cases[i].presumes ? rate_of(200) : 0;
        store_relaxed(&k.sync.allowance.level, cases[i].level);
        store_relaxed(&k.sync.now.remote, cases[i].had);
        const uint64_t units = presumed_in_fixed(&k.fleet, &k.sync, &k.rule, ago(cases[i].start_ms), cases[i].brought);
        if (units != cases[i].units) {
            fail_msg("case %zu: %u", i, (unsigned) units);
        }
    }
    for (int i = 0; i < 4; i++) {
        k.sync.demand.resumed = i % 2 != 0;
        k.fleet.membership.failed = i / 2 != 0;
        assert_int_equal(presumed_failed(&k.fleet, &k.sync.demand), i == 3);
    }
}

/* The last estimate was of 80 units, of a limit of 1000. */
static void test_how_far_an_estimate_was_off_is_counted(void **state)
{
    (void) state;
    static const struct {
        char kind;
        uint64_t remote;
        double since_ms, start_ms;
        bool by_fraction;
        int bucket; /* below 0: there was no estimate */
        int64_t error;
    } cases[] = {
        {'s', 80, 300, 60000, false, 4, 0},
        {'s', 83, 300, 60000, false, 3, -3000},
        {'s', 82, 300, 60000, false, 4, -2000},
        {'s', 77, 300, 60000, false, 4, 3000},
        {'s', 76, 300, 60000, false, 5, 4000},
        {'s', 0, 300, 60000, false, 7, 80000},
        {'s', 500, 300, 60000, false, 0, -420000},
        {'s', 110, 300, 60000, false, 1, -30000},
        {'s', 80, 300, 299, false, -1, 0},
        {'s', 80, 300, 300, false, 4, 0},
        {'s', 80, 300, 60000, true, -1, 0},
        {'s', 0, 100, 60000, false, -1, 0},
        {'s', 0, 101, 60000, false, 4, 1000},
        {'b', 80, 200, 0, false, 4, 0},
        {'b', 0, 0, 0, false, -1, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin(limit_named(cases[i].kind));
        k.sync.demand.learned_ns = ago(100);
        last_answer(0, 1140, 400);
        store_relaxed(&k.sync.allowance.since_ns, ago(cases[i].since_ms));
        store_relaxed(&k.sync.allowance.fraction, cases[i].by_fraction);
        (void) publish(cases[i].remote, cases[i].start_ms);
        uint64_t all = 0;
        for (int b = 0; b < ESTIMATE_BUCKETS; b++) {
            const uint64_t count = load_relaxed(&k.fleet.stats.estimate_counts[b]);
            all += count;
            if ((count != 0) != (b == cases[i].bucket)) {
                fail_msg("case %zu: bucket %d", i, b);
            }
        }
        assert_int_equal(all, cases[i].bucket >= 0);
        assert_int_equal(load_relaxed(&k.fleet.stats.estimate_sum), cases[i].error);
    }
}

/* A node that has just joined is presumed to be asked as often as the others are on average. */
static void test_a_node_that_joins_is_left_its_part_of_a_window(void **state)
{
    (void) state;
    static const struct {
        const char *kinds;
        uint32_t live, joined;
        double joined_ms;
        uint64_t remote;
        double rate;
    } cases[] = {
        {"f", 3, 1, 149, 0, 400 + 1100.0 / 2},
        {"f", 4, 2, 149, 0, 400 + 1100},
        {"slb", 3, 1, 149, 9, 400},
        {"fslb", 3, 1, 150, 9, 400}, /* it has reported by now */
        {"fs", 2, 1, 149, 1, 400 + 1100},
        {"fslb", 2, 1, 149, 0, 400}, /* perhaps it does not use the key */
        {"lb", 2, 1, 149, 1, 400},
        {"fs", 2, 5, 149, 1, 400 + 5 * 1100}, /* more than there are now: one was there before */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (const char *kind = cases[i].kinds; *kind != '\0'; kind++) {
            begin(limit_named(*kind));
            k.sync.demand.learned_ns = ago(100);
            k.fleet.membership.live = k.fleet.membership.most = cases[i].live;
            k.fleet.membership.joined = cases[i].joined;
            k.fleet.membership.joined_ns = ago(cases[i].joined_ms);
            const uint64_t rate = load_relaxed(&publish(cases[i].remote, 60000)->remote_rate);
            if (!is_near(rate, cases[i].rate)) {
                fail_msg("case %zu of '%c': %.1f", i, *kind, (double) rate / 65536);
            }
        }
    }
}

/* A node that is new keeps from what others use before they hear of it: 200 ms on average. */
static void test_a_new_node_leaves_room_to_those_that_do_not_know_it(void **state)
{
    (void) state;
    static const struct {
        char kind;
        double opened_ms, first_ms, remote;
        bool known;
        uint64_t sum, units;
    } cases[] = {
        {'s', 399, 49, 400, true, 0, 3},
        {'s', 400, 49, 400, true, 0, 0},
        {'s', 399, 60, 400, true, 0, 0},
        {'s', 399, 9999, 400, false, 0, 3},
        {'s', 399, 49, 34, true, 0, 3},
        {'s', 399, 49, 33, true, 0, 0},
        {'l', 399, 49, 400, true, 0, 80},
        {'l', 399, 49, 9000, true, 0, 1000},
        {'f', 399, 49, 400, true, 0, 0},
        /* A log that is kept full, of which little has become free lately: a quarter. */
        {'l', 399, 99, 10, false, 875, 250},
        {'l', 399, 99, 10, false, 874, 0},
        {'l', 399, 100, 10, false, 875, 0},
        {'l', 399, 49, 10, true, 875, 0},
        {'l', 399, 99, 34, false, 875, 6},
        {'s', 399, 99, 10, false, 875, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin(limit_named(cases[i].kind));
        struct demand_stats *demand = &k.sync.demand;
        k.fleet.opened_ns = ago(cases[i].opened_ms);
        demand->learned_ns = ago(100);
        demand->first_ns = ago(cases[i].first_ms);
        demand->rates.known = cases[i].known;
        demand->guessed = true;
        demand->rates.remote_rate = rate_of(cases[i].remote);
        k.report.sum = cases[i].sum + 100;
        k.report.author_count = 100;
        const uint64_t level = load_relaxed(&publish(0, 60000)->level);
        const uint64_t expected = cases[i].kind == 's' ? presumed_pack(1000, cases[i].units, 0) : cases[i].units;
        if (level != expected) {
            fail_msg("case %zu: %llu, not %llu", i, (unsigned long long) level, (unsigned long long) expected);
        }
    }
}

/* A log's demand is a sum over the other authors, and goes on as it was where these are others than before. */
static void test_the_demand_of_a_log_is_that_of_its_authors(void **state)
{
    (void) state;
    static const struct {
        uint64_t sum, had, counted, more;
        uint32_t authors;
    } cases[] = {
        {150, 100, 7, 50, 2},
        {100, 150, 7, 0, 2}, /* an author has forgotten its demand */
        {5, REPORT_HISTORY_DEMAND - 10, 7, 15, 2},
        {150, 100, 7, 33, 3}, /* 40 units were expected by now */
        {150, 100, 50, 0, 3},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin(&log_limit);
        struct demand_stats *demand = &k.sync.demand;
        demand->learned_ns = ago(100);
        demand->first_ns = ago(40);
        demand->remote_demand = cases[i].counted;
        demand->local_seen = 1000;
        k.sync.now.remote_demand = cases[i].had;
        k.sync.before.remote_demand = 2;
        k.report.sum_demand = cases[i].sum;
        k.history.other_authors = cases[i].authors;
        const struct publish_input input = {
            .cell = &k.cell, .sync = &k.sync, .rule = &k.rule, .report = &k.report, .seen = 900};
        publish_history(&k.fleet, &input);
        assert_int_equal(demand->remote_demand, cases[i].counted + cases[i].more);
        assert_int_equal(k.sync.now.remote_demand, cases[i].sum);
        assert_int_equal(k.sync.before.remote_demand, cases[i].authors);
        assert_int_equal(demand->local_seen, 1000); /* while others are awaited */
        demand->first_ns = ago(9999);
        publish_history(&k.fleet, &input);
        assert_int_equal(demand->local_seen, 900); /* what passed just now passed elsewhere as well */
    }
}

/* A bucket with 1140 local units, of which an answer on 1100 comes: used up to 200 ms from now, with 500 units of the
 * others. The state is at 100 ms. */
static void test_what_an_answer_makes_known_of_a_bucket(void **state)
{
    (void) state;
    enum how { LISTENS, ONLY_ACKNOWLEDGES, IS_ALONE, IN_PARTS, WAS_SHARED, IS_FIRST, OTHER_RATE };
    static const struct {
        enum how how;
        uint64_t had, unseen_refunds; /* units of the others that were known; refunds since the report */
        double state_ms, known_ms;    /* then */
        uint64_t known_total, known_refunds, remote;
    } cases[] = {
        {LISTENS, 450, 0, 150, 200, 1100, 3, 500}, /* 50 more units of the others */
        {LISTENS, 300, 0, 240, 200, 1100, 3, 500}, /* the 40 units that are not reported come on top */
        {LISTENS, 500, 0, 100, 200, 1100, 3, 500}, /* there are no more */
        {LISTENS, 300, 5, 235, 195, 1100, 8, 500},
        {ONLY_ACKNOWLEDGES, 300, 0, 100, 7, 9, 2, 300},
        {IS_ALONE, 0, 0, 100, 100, 1140, 3, 0},
        {IN_PARTS, 500, 0, 240, 200, 1100, 3, 500}, /* the fleet's time is the right one */
        {WAS_SHARED, 500, 0, 240, 200, 1100, 3, 500},
        {IS_FIRST, 500, 0, 240, 200, 1100, 3, 500},
        {LISTENS, 600, 0, 100, 7, 9, 2, 600}, /* the record lacks 100 units of the others: what was known stays */
        {IN_PARTS, 600, 0, 240, 200, 1100, 3, 600},
        {IS_FIRST, 600, 0, 240, 200, 1100, 3, 600},
        {OTHER_RATE, 600, 0, 100, 200, 1100, 3, 600}, /* known by another rate: it is no time of this bucket */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin(&bucket);
        struct sync_full *sync = &k.sync;
        struct demand_stats *demand = &sync->demand;
        k.limiter.process.table.cells = &k.cell;
        set_state((struct state){after(100), 1140 | (uint64_t) k.rule.rate_id << BUCKET_TOTAL_BITS});
        demand->known_time = after(7);
        demand->known_total = 9;
        demand->known_refunds = 2;
        demand->known_rate_id = cases[i].how == OTHER_RATE ? k.rule.rate_id + 1 : k.rule.rate_id;
        demand->learned_ns = cases[i].how == IS_FIRST ? 0 : ago(200);
        demand->shared = cases[i].how == WAS_SHARED;
        demand->fraction_ns = cases[i].how == IN_PARTS ? ago(199) : ago(200);
        sync->now.acked = 1000;
        store_relaxed(&sync->now.remote, cases[i].had);
        store_relaxed(&k.ledger.refunds[0], 3 + cases[i].unseen_refunds);
        const uint64_t others = cases[i].how == IS_ALONE ? 0 : 500;
        const uint64_t returned = cases[i].had > others ? 20 : 0; /* by the others: perhaps of the units that lack */
        const struct report report = {.kind = REPORT_BUCKET,
                                      .count = 1100,
                                      .refunds = 3,
                                      .rate_id = k.rule.rate_id,
                                      .author_count = 1100,
                                      .author_refunds = 3,
                                      .sum = 1100 + others,
                                      .sum_refunds = 3 + returned,
                                      .tat_answer_us = (NOW_NS + 200 * MILLISECOND) / 1000};
        const struct merge_target target = {.report = &report,
                                            .subject = {0, sync, NULL, NULL, NULL, NOW_NS},
                                            .rule = k.rule,
                                            .listens = cases[i].how != ONLY_ACKNOWLEDGES};
        assert_false(merge_bucket_report(&k.fleet, &target));
        const double at_ms = ((double) load_relaxed(&k.cell.state.a) - (double) after(0)) / 64e6;
        const double known_ms = ((double) demand->known_time - (double) after(0)) / 64e6;
        if (fabs(at_ms - cases[i].state_ms) > 0.01 || fabs(known_ms - cases[i].known_ms) > 0.01) {
            fail_msg("case %zu: at %.3f ms, known %.3f ms", i, at_ms, known_ms);
        }
        assert_int_equal(demand->known_total, cases[i].known_total);
        assert_int_equal(demand->known_refunds, cases[i].known_refunds);
        assert_int_equal(load_relaxed(&sync->now.remote), cases[i].remote);
        assert_int_equal(load_relaxed(&sync->now.remote_refunds), 0);
        assert_int_equal(sync->now.acked, 1100);
        assert_int_equal(sync->now.acked_refunds, 3);
        assert_false(demand->shared);
        assert_int_equal(demand->fraction_ns, cases[i].how == WAS_SHARED ? NOW_NS
                                              : cases[i].how == IN_PARTS ? ago(199)
                                                                         : ago(200));
    }
}

/* Where silent nodes are certain to have used their share of a log, it is held, and the estimate is of the others. */
static void test_the_estimate_of_a_log_is_of_those_whose_share_is_not_held(void **state)
{
    (void) state;
    for (int held = 0; held < 2; held++) {
        silent_for(&log_limit, held != 0 ? 5000 : 500);
        k.sync.demand.learned_ns = ago(100);
        const struct allowance *allowance = publish(0, 0);
        assert_true(is_near(load_relaxed(&allowance->remote_rate), held != 0 ? 200 : 400));
        assert_true(is_part(held != 0 ? 200.0 / 900 : 400.0 / 1100));
        assert_int_equal(load_relaxed(&allowance->level), held != 0 ? PRESUMED_HELD | 182 : 80);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_answer_teaches_the_demand_of_all_nodes),
        cmocka_unit_test(test_remote_demand_is_spread_over_the_time_that_is_read),
        cmocka_unit_test(test_local_units_are_seen_as_far_as_the_others_news_reaches),
        cmocka_unit_test(test_a_fall_by_half_says_that_demand_moves),
        cmocka_unit_test(test_the_first_rate_of_a_log_waits_for_all_nodes),
        cmocka_unit_test(test_a_first_answer_guesses_where_it_can),
        cmocka_unit_test(test_use_that_begins_or_surges_awaits_the_other_nodes),
        cmocka_unit_test(test_an_answer_is_published_to_the_checks),
        cmocka_unit_test(test_the_dither_differs_from_key_to_key),
        cmocka_unit_test(test_what_a_key_is_urgent_at),
        cmocka_unit_test(test_what_is_left_to_the_other_nodes),
        cmocka_unit_test(test_a_bucket_goes_by_equal_shares_until_the_others_are_heard),
        cmocka_unit_test(test_a_limit_admits_its_units_in_its_period),
        cmocka_unit_test(test_a_level_has_the_units_since_the_last_answer),
        cmocka_unit_test(test_a_level_stays_within_what_the_news_leaves_open),
        cmocka_unit_test(test_what_is_presumed_of_silent_nodes_in_a_window),
        cmocka_unit_test(test_what_is_presumed_of_silent_nodes_in_a_log),
        cmocka_unit_test(test_what_is_presumed_of_nodes_that_were_away_together),
        cmocka_unit_test(test_how_far_an_estimate_was_off_is_counted),
        cmocka_unit_test(test_a_node_that_joins_is_left_its_part_of_a_window),
        cmocka_unit_test(test_a_new_node_leaves_room_to_those_that_do_not_know_it),
        cmocka_unit_test(test_the_demand_of_a_log_is_that_of_its_authors),
        cmocka_unit_test(test_what_an_answer_makes_known_of_a_bucket),
        cmocka_unit_test(test_the_estimate_of_a_log_is_of_those_whose_share_is_not_held),
    };
    return cmocka_run_group_tests_name("unit/fleet/answer", tests, NULL, NULL);
}
