/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One report of a key: what was asked for, which numbers a bucket's report has, and when a key is due. There is no
 * fleet: the test says what is known of the key. An interval has 200 ms; a unit of the bucket takes a millisecond.
 *
 * Guards: src/fleet/keys/report_bucket.c, src/fleet/keys/account.c, src/fleet/keys/record.c,
 * src/fleet/keys/record_text.c, src/fleet/keys/waive.c, src/fleet/keys/demand.c
 */
#include <stdlib.h>

#include "algorithm/window.h"
#include "fleet/keys/account.h"
#include "fleet/keys/demand.h"
#include "fleet/keys/reading.h"
#include "fleet/keys/record_text.h"
#include "fleet/keys/report_bucket.h"
#include "fleet/tuning.h"
#include "policy/policy_names.h"
#include "process/key_name.h"
#include "process/table.h"
#include "support/one_answer.h"
#include "transport/author.h"

/* What a report is made of, beside k. */
static struct {
    struct process_shared shared;
    struct policy policy;
    struct policy_names names;
    struct record_forms forms;
    struct key_name key;
    struct report reports[2];
    struct report_source sources[2];
    struct report_subject subject;
    struct reading reading;
    struct account account;
} r;

/* A bucket that is used up to 30 ms from now, of whose 1,140 units 40 are not reported. There are two nodes. The fleet
 * knows 1,100 units, and the bucket used up to 10 ms ago. */
static void begin_report(const weir_limit *limit)
{
    begin(limit);
    memset(&r, 0, sizeof(r));
    struct fleet *fleet = &k.fleet;
    k.limiter.process.shared = &r.shared;
    store_relaxed(&r.shared.nodes, 2);
    fleet->forms = &r.forms;
    r.forms.names = &r.names;
    fleet->batch.reports = r.reports;
    fleet->batch.sources = r.sources;
    (void) strcpy(fleet->prefix, "weir");
    (void) strcpy(fleet->node, "0123456789ab");
    fleet->membership.watermark_ns = ago(150);
    (void) strcpy(r.policy.base, "api");
    r.policy.group = 1;
    r.policy.limit_count = 1;
    r.policy.limits[0].rule = k.rule;
    (void) strcpy(r.policy.limits[0].label, "b1s");
    r.key = (struct key_name){.length = 3, .bytes = "key"};
    struct sync_full *sync = &k.sync;
    sync->incarnation = 0x2f;
    sync->now.acked = 1100;
    sync->now.demand = 1150;
    sync->demand.known_time = after(-10);
    sync->demand.known_total = 1100;
    sync->demand.known_rate_id = k.rule.rate_id;
    store_relaxed(&sync->now.remote, 500);
    store_relaxed(&sync->allowance.seq, 77);
    r.subject = (struct report_subject){5, sync, &r.key, &r.policy, &r.policy.limits[0], NOW_NS};
    r.reading.state = (struct state){after(30), 1140};
    r.account = (struct account){.own = {1140, 0}, .unreported = 40};
}

static const struct report *make_report(void)
{
    report_bucket_add(&k.fleet, &r.subject, &r.reading, &r.account);
    assert_int_equal(k.fleet.round.report_count, 1);
    return &r.reports[0];
}

static uint64_t us(double after_ms)
{
    return (uint64_t) ((double) (NOW_NS / 1000) + after_ms * 1000);
}

static void test_a_report_names_its_record_its_author_and_its_cell(void **state)
{
    (void) state;
    begin_report(&bucket);
    memset(&r.reports, 0xff, sizeof(r.reports));
    r.account.again = true;
    const struct report *report = make_report();
    assert_ptr_equal(strstr(report->record, "weir:{"), report->record);
    assert_string_equal(report->record + 9, "}:b1s:api:key");
    char author[AUTHOR_LENGTH + 1];
    author_write(author, "0123456789ab", 0x2f);
    assert_string_equal(report->author, author);
    char demand[REPORT_RECORD_SIZE];
    record_text_write_demand(demand, "weir", &r.policy.limits[0], report->record);
    assert_memory_equal(demand, report->record, 14);
    assert_string_equal(demand + 14, "?api:key");
    const struct report_source *source = &r.sources[0];
    assert_int_equal(source->cell, 5);
    assert_int_equal(source->seq, 77);
    assert_int_equal(source->incarnation, 0x2f);
    assert_true(source->again && !source->before && !source->with_before);
    assert_null(report->history);
    assert_int_equal(report->status, 0);
}

static void test_a_report_of_a_bucket_tells_its_counts_and_its_rate(void **state)
{
    (void) state;
    static const struct {
        uint64_t demand, told_demand;
        uint64_t acked, acked_before, told_acked;
        uint64_t refunds, acked_refunds, before_refunds, told_acked_refunds;
    } cases[] = {
        {1150, 1150, 1100, 0, 1100, 0, 0, 0, 0},
        {1130, 1140, 1100, 1120, 1120, 0, 0, 0, 0}, /* what was admitted was asked for */
        {1150, 1150, 1100, 0, 1100, 7, 4, 2, 4},
        {1150, 1150, 1100, 0, 1100, 7, 2, 4, 4},
        {(UINT64_C(1) << 52) + 3, (UINT64_C(1) << 52) + 3, 1100, 0, 1100, 0, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin_report(&bucket);
        k.sync.now.demand = cases[i].demand;
        k.sync.now.acked = cases[i].acked;
        k.sync.before.acked = cases[i].acked_before;
        k.sync.now.acked_refunds = cases[i].acked_refunds;
        k.sync.before.acked_refunds = cases[i].before_refunds;
        r.account.refunds[0] = cases[i].refunds;
        const struct report *report = make_report();
        assert_int_equal(report->kind, REPORT_BUCKET);
        assert_int_equal(report->count, 1140);
        assert_int_equal(report->demand, cases[i].told_demand);
        assert_int_equal(report->acked, cases[i].told_acked);
        assert_int_equal(report->refunds, cases[i].refunds);
        assert_int_equal(report->acked_refunds, cases[i].told_acked_refunds);
        assert_int_equal(report->now_us, us(0));
        assert_int_equal(report->unit_ps, 1000000000);
        assert_int_equal(report->expire_ms, 60000);
        assert_int_equal(report->moves + report->most_us + report->reset_us + report->reset_kept, 0);
        assert_int_equal(report->rate_id, k.rule.rate_id);
    }
    /* A reset, and what the key has used since: 30 ms of units. */
    for (uint8_t emptied = 0; emptied < 2; emptied++) {
        begin_report(&bucket);
        store_relaxed(&k.ledger.reset, NOW_NS - 1);
        store_relaxed(&k.ledger.reset_emptied, emptied);
        const struct report *report = make_report();
        assert_int_equal(report->reset_us, us(0)); /* rounded up */
        assert_int_equal(report->reset_kept, emptied != 0 ? 30 : 0);
    }
    /* A unit that takes no time still takes some. */
    begin_report(&bucket);
    r.policy.limits[0].rule.unit = 0;
    assert_int_equal(make_report()->unit_ps, 1);
}

/* The bucket was full up to the watermark, 150 ms ago, and perhaps until the new units were used: 10 ms ago at the
 * earliest. The other nodes may use a fifth of the bucket, as their demand was 400 an interval ago. */
static void test_up_to_when_a_bucket_may_have_been_full(void **state)
{
    (void) state;
    static const struct {
        double mark_ms, tat_ms, learned_ms;
        bool shared, in_parts, small;
        double from_ms;
    } cases[] = {
        {150, 30, 200, false, false, false, -38},
        {150, 30, 0, false, false, false, -66}, /* two fifths */
        {150, 30, 400, false, false, false, -24},
        {150, 30, 12800, false, false, false, -10},  /* demand that is so old is none */
        {150, 30, NOW_MS, false, false, false, -10}, /* none is known */
        {900, 30, 200, false, false, false, -500},   /* no more than a part of the burst */
        {150, 30, 200, true, false, false, -150},
        {150, 30, 200, false, false, true, -150}, /* a burst that refills within an interval */
        {150, 30, 200, false, true, false, -70},  /* units were charged as if they took twice as long */
        {150, 90, 200, false, false, false, -30}, /* not after now */
        {150, -200, 200, false, false, false, -150},
        {-50, 30, 200, false, false, false, 0},
        {NOW_MS, 30, 200, false, false, false, 0}, /* there is no watermark */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        static const weir_limit small = {
            .algorithm = WEIR_TOKEN_BUCKET, .limit = 1000, .period_ns = SECOND, .burst = 100};
        begin_report(cases[i].small ? &small : &bucket);
        k.fleet.membership.watermark_ns = cases[i].mark_ms < 0 ? NOW_NS + 50 * MILLISECOND : ago(cases[i].mark_ms);
        k.sync.demand.shared = cases[i].shared;
        k.sync.demand.learned_ns = ago(cases[i].learned_ms);
        store_relaxed(&k.sync.allowance.fraction, cases[i].in_parts ? 1U << 31 : 0);
        r.reading.state.a = after(cases[i].tat_ms);
        const uint64_t from_us = make_report()->from_us;
        if (from_us != us(cases[i].from_ms)) {
            fail_msg("case %zu: %.3f ms", i, ((double) from_us - (double) us(0)) / 1000);
        }
    }
}

/* The time of the bucket without the 40 units that the report is about: in case the fleet has lost the record. */
static void test_what_a_node_has_seen_of_a_bucket(void **state)
{
    (void) state;
    static const struct {
        enum { KNOWN, ALONE, REMOTE, NEVER, OTHER_RATE, BACK, HAS_FAILED, LEVEL, EARLY } beside;
        uint64_t acked, refunds, acked_refunds, known_refunds;
        double tat_ms; /* of the report */
        uint64_t told_refunds;
        uint64_t told_units; /* of all nodes; 0: nothing is told of them */
    } cases[] = {
        {KNOWN, 1100, 0, 0, 0, -10, 9, 1600},
        {KNOWN, 1080, 0, 0, 0, -30, 9, 1580},     /* 20 units that were answered are told again */
        {KNOWN, 1110, 0, 0, 0, 0, 9, 1610},       /* 10 units were acknowledged since */
        {KNOWN, 1100, 8, 3, 5, -8, 3 + 9, 1600},  /* 2 refunds that were answered are not acknowledged */
        {KNOWN, 1100, 8, 6, 5, -11, 6 + 9, 1600}, /* a refund was acknowledged since */
        {ALONE, 1100, 0, 0, 0, 30 - 40, 9, 1100}, /* the state itself */
        {ALONE, 1100, 8, 3, 0, 30 - 40 + 5, 3 + 9, 1100},
        {REMOTE, 1100, 0, 0, 0, -10, 9, 1600},       /* the other nodes are gone, their units are not */
        {NEVER, 1100, 0, 0, 0, 30 - 40 - 150, 9, 0}, /* less what the others may not have reported */
        {OTHER_RATE, 1100, 0, 0, 0, 30 - 40 - 150, 9, 0},
        /* What was left to nodes that are back, or have failed, is in the level. */
        {BACK, 1100, 0, 0, 0, 100 - 40 - 40, 9, 0},
        {HAS_FAILED, 1100, 0, 0, 0, 100 - 40 - 40, 9, 0},
        {LEVEL, 1100, 0, 0, 0, -10, 9, 1600},
        {EARLY, 1100, 0, 0, 0, NAN, 9, 0}, /* nothing */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin_report(&bucket);
        struct demand_stats *demand = &k.sync.demand;
        k.sync.now.acked = cases[i].acked;
        k.sync.now.acked_refunds = cases[i].acked_refunds;
        demand->known_refunds = cases[i].known_refunds;
        store_relaxed(&k.sync.now.remote_refunds, 9);
        store_relaxed(&k.ledger.refunds[0], cases[i].known_refunds);
        r.account.refunds[0] = cases[i].refunds;
        switch (cases[i].beside) {
        case ALONE:
            store_relaxed(&k.sync.now.remote, 0);
            k.fleet.membership.live = k.fleet.membership.most = 1;
            break;
        case REMOTE:
            k.fleet.membership.live = k.fleet.membership.most = 1;
            break;
        case NEVER:
            demand->learned_ns = 0;
            break;
        case OTHER_RATE:
            demand->known_rate_id++;
            break;
        case BACK:
        case HAS_FAILED:
        case LEVEL:
            last_answer(100, 1140, 400);
            k.fleet.news.peers_resume = cases[i].beside == BACK;
            demand->presumed_rate = cases[i].beside == BACK;
            demand->resumed = k.fleet.membership.failed = cases[i].beside == HAS_FAILED;
            break;
        case EARLY:
            demand->known_time = 0;
            break;
        case KNOWN:
            break;
        }
        const struct report *report = make_report();
        const uint64_t expected = isnan(cases[i].tat_ms) ? 0 : us(cases[i].tat_ms);
        if (report->tat_us != expected) {
            fail_msg("case %zu: %.3f ms", i, ((double) report->tat_us - (double) us(0)) / 1000);
        }
        assert_int_equal(report->known_refunds, cases[i].told_refunds);
        assert_int_equal(report->known, cases[i].told_units != 0 ? cases[i].told_units - cases[i].told_refunds : 0);
    }
}

/* After an outage in which the key went by this node's half: 30 ms are owed by its rate, so 15 of the 40 units. */
static void test_what_a_bucket_owes_since_an_outage(void **state)
{
    (void) state;
    static const struct {
        bool awaits, tells, evicted;
        uint8_t nodes;
        double tat_ms;
        uint64_t unreported;
        uint64_t moves, count;
        double most_ms; /* below 0: no bound */
    } cases[] = {
        {false, true, false, 2, 30, 40, 0, 1140, 0},
        {true, true, false, 2, 30, 40, 1 + 15, 1140, 1000},
        {true, false, false, 2, 30, 40, 1, 1125, 1000},       /* held back until all nodes are there */
        {true, false, true, 2, 30, 40, 1 + 15, 1140, 1000},   /* it has no other time */
        {true, true, false, 2, 29.1, 40, 1 + 15, 1140, 1000}, /* rounded up */
        {true, true, false, 2, 30, 9, 1 + 9, 1140, 1000},
        {true, true, false, 2, -5, 40, 1, 1140, 1000},
        {true, true, false, 1, 30, 40, 1 + 30, 1140, 1000}, /* alone there are no halves */
        {true, true, false, 2, 1125, 999, 1 + 563, 1140, 1000},
        {true, true, false, 2, 1126, 999, 1 + 563, 1140, -1}, /* more than an empty bucket was charged unasked */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin_report(&bucket);
        k.sync.demand.shared = true;
        k.fleet.news.awaits_peers = cases[i].awaits;
        k.fleet.batch.tells_debt = cases[i].tells;
        store_relaxed(&r.shared.nodes, cases[i].nodes);
        store_relaxed(&k.sync.allowance.remote_fraction, cases[i].nodes == 2 ? 1U << 31 : 0);
        store_relaxed(&k.sync.allowance.flags, 0);
        r.subject.cell = cases[i].evicted ? TABLE_NONE : 5;
        r.reading.state.a = after(cases[i].tat_ms);
        r.account.unreported = cases[i].unreported;
        const struct report *report = make_report();
        if (report->moves != cases[i].moves || report->count != cases[i].count) {
            fail_msg("case %zu: moves %u, count %u", i, (unsigned) report->moves, (unsigned) report->count);
        }
        assert_int_equal(report->most_us, cases[i].most_ms < 0    ? UINT64_MAX
                                          : cases[i].most_ms == 0 ? 0
                                                                  : us(cases[i].most_ms));
    }
}

/* What a node was told to admit in an outage is no debt. */
static void test_units_of_an_open_outage_are_told_as_acknowledged(void **state)
{
    (void) state;
    for (int way = 0; way < 5; way++) {
        begin_report(&bucket);
        r.account.refunds[0] = 6;
        store_relaxed(&r.policy.outage_mode, way == 1   ? OUTAGE_MODE_OPEN
                                             : way == 4 ? OUTAGE_MODE_SHARE
                                                        : OUTAGE_MODE_NONE);
        k.fleet.waive.groups[1] = way == 2 || way == 3;
        k.fleet.waive.cells_done = way == 2 ? 5 : 6; /* the sweep has come to the cell, or not */
        const struct report *report = make_report();
        const bool waived = way == 1 || way == 2;
        assert_int_equal(report->acked, waived ? 1140 : 1100);
        assert_int_equal(report->acked_refunds, waived ? 6 : 0);
        assert_int_equal(report->count, 1140);
        assert_int_equal(k.sync.demand.shared, way == 4); /* the key goes by its part from now on */
    }
    begin_report(&bucket);
    store_relaxed(&r.policy.outage_mode, OUTAGE_MODE_SHARE);
    k.fleet.membership.live = k.fleet.membership.most = 1; /* and alone by the whole */
    (void) make_report();
    assert_false(k.sync.demand.shared);
}

/* A window of a minute, or a bucket, with 1000 units; so many of them are used, and so many not reported. */
static void test_when_a_key_is_due(void **state)
{
    (void) state;
    static const struct {
        const char *kinds;
        enum urge urge;
        uint64_t used, unreported;
        enum {
            NOTHING,
            NEWS,
            AGAIN,
            RESET,
            FRACTION,
            QUOTA,
            UNKNOWN_KEY,
            RESUMES,
            SHORT,
            OLD,
            YOUNGER,
            FOURTH,
            DENIED,
            ENDS,
            SOON_ENDS
        } beside;
        bool due;
    } cases[] = {
        /* An eighth of a half of what is left. */
        {"fsb", URGE_IF_DUE, 200, 49, NOTHING, false},
        {"fsb", URGE_IF_DUE, 200, 50, NOTHING, true},
        {"fsb", URGE_SCAN, 200, 24, NOTHING, false},
        {"fsb", URGE_SCAN, 200, 25, NOTHING, true},
        {"fsb", URGE_IF_DUE, 1000, 1, NOTHING, true},
        /* Whatever is new beside counts, or is to be told at once. */
        {"fsb", URGE_IF_DUE, 200, 1, NEWS, true},
        {"fsb", URGE_IF_DUE, 200, 1, AGAIN, true},
        {"fsb", URGE_IF_DUE, 200, 1, RESET, true},
        {"fsb", URGE_IF_DUE, 200, 1, FRACTION, true},
        {"fsb", URGE_IF_DUE, 200, 1, QUOTA, true},
        {"fsb", URGE_IF_DUE, 200, 1, UNKNOWN_KEY, true},
        {"b", URGE_IF_DUE, 200, 1, RESUMES, true},
        {"fs", URGE_IF_DUE, 200, 1, RESUMES, false},
        {"fs", URGE_IF_DUE, 200, 1, SHORT, true}, /* its scan would come too late */
        {"fsb", URGE_SCAN, 200, 1, OLD, true},
        {"fsb", URGE_IF_DUE, 200, 1, OLD, false},
        {"fsb", URGE_SCAN, 200, 1, YOUNGER, false},
        /* Without any new unit: each fourth time, or where room was denied, or where the window ends soon. */
        {"fsb", URGE_IF_DUE, 200, 0, NOTHING, false},
        {"fsb", URGE_IF_DUE, 200, 0, FOURTH, true},
        {"fsb", URGE_IF_DUE, 200, 0, DENIED, true},
        {"fsb", URGE_IF_DUE, 1000, 0, DENIED, false},
        {"f", URGE_IF_DUE, 200, 0, ENDS, true},
        {"f", URGE_IF_DUE, 200, 0, SOON_ENDS, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (const char *kind = cases[i].kinds; *kind != '\0'; kind++) {
            weir_limit limit = *limit_named(*kind);
            if (cases[i].beside == SHORT) {
                limit.period_ns = 6400 * MILLISECOND - 1;
            }
            begin_report(&limit);
            struct demand_stats *demand = &k.sync.demand;
            uint64_t now_ns = NOW_NS;
            struct account account = {.unreported = cases[i].unreported};
            account.news = cases[i].beside == NEWS;
            account.again = cases[i].beside == AGAIN;
            account.denied = cases[i].beside == DENIED ? 7 : 0;
            store_relaxed(&k.ledger.reset, cases[i].beside == RESET ? NOW_NS : 0);
            store_relaxed(&k.sync.allowance.fraction, cases[i].beside == FRACTION);
            store_relaxed(&k.sync.allowance.quota_unacked, cases[i].beside == QUOTA);
            k.fleet.news.peers_resume = cases[i].beside == RESUMES;
            demand->presumed_rate = cases[i].beside == RESUMES;
            demand->learned_ns = cases[i].beside == UNKNOWN_KEY ? 0
                                 : cases[i].beside == OLD       ? ago(30001)
                                 : cases[i].beside == YOUNGER   ? ago(30000)
                                                                : ago(1);
            k.sync.incarnation = 5;
            k.fleet.gather.interval_count = cases[i].beside == FOURTH ? 7 : 6;
            if (cases[i].beside == ENDS || cases[i].beside == SOON_ENDS) {
                /* 3.2 seconds before the end of the minute, or just not so soon */
                now_ns = 60 * SECOND * (NOW_NS / (60 * SECOND) + 1) - 3200 * MILLISECOND + (cases[i].beside == ENDS);
            } else {
                now_ns = 60 * SECOND * (NOW_NS / (60 * SECOND)) + 10 * SECOND;
                demand->learned_ns = demand->learned_ns != 0 ? demand->learned_ns + now_ns - NOW_NS : 0;
            }
            const struct state used = rule_charge(&k.rule, rule_fresh(&k.rule, now_ns), now_ns, cases[i].used);
            const struct account_view view = {&k.sync, &k.rule, used, &account, now_ns};
            if (account_due(&k.fleet, &view, cases[i].urge) != cases[i].due) {
                fail_msg("case %zu of '%c'", i, *kind);
            }
        }
    }
}

/* A quarter of the room that is this node's own makes a key due as well, where the others have most of it. */
static void test_a_small_part_of_a_limit_is_told_by_its_own_measure(void **state)
{
    (void) state;
    begin_report(&fixed);
    store_relaxed(&k.sync.allowance.remote_fraction, (uint32_t) (FRACTION_WHOLE / 10 * 9)); /* 100 of 1000 are left */
    k.sync.demand.learned_ns = ago(1);
    for (uint64_t unreported = 1; unreported < 60; unreported++) {
        const struct account account = {.unreported = unreported};
        const struct account_view view = {&k.sync, &k.rule, rule_fresh(&k.rule, NOW_NS), &account, NOW_NS};
        assert_int_equal(account_due(&k.fleet, &view, URGE_IF_DUE), unreported >= 25);
    }
}

/* R1: a window's units are this node's, the others' and what was given back; of the window before as well. */
static void test_local_units_are_what_the_others_have_not(void **state)
{
    (void) state;
    static const struct {
        uint64_t count, refunds, remote, remote_refunds, restored, deficit, acked, own;
    } cases[] = {
        {100, 0, 0, 0, 0, 0, 0, 100},   {100, 0, 30, 0, 0, 0, 0, 70},  {100, 5, 30, 0, 0, 0, 0, 75},
        {100, 5, 30, 4, 0, 0, 0, 79},   {100, 5, 30, 4, 40, 0, 0, 69}, {100, 5, 30, 4, 40, 3, 0, 66},
        {100, 5, 30, 4, 40, 3, 80, 80}, {10, 0, 30, 0, 0, 0, 0, 0},    {100, 0, 30, 0, 20, 0, 70, 70},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (unsigned before = 0; before < 2; before++) {
            begin_report(&sliding);
            const uint32_t seq = window_seq_at(&k.rule, NOW_NS);
            struct sync_counts *counts = before != 0 ? &k.sync.before : &k.sync.now;
            k.sync.now = k.sync.before = (struct sync_counts){.acked = 0};
            counts->acked = cases[i].acked;
            counts->deficit = cases[i].deficit;
            store_relaxed(&counts->remote, cases[i].remote);
            store_relaxed(&counts->remote_refunds, cases[i].remote_refunds);
            store_relaxed(&counts->restored, cases[i].restored);
            store_relaxed(&k.sync.allowance.seq, seq);
            set_state(window_state(seq, before == 0 ? cases[i].count : 0, before != 0 ? cases[i].count : 0));
            const uint32_t refunded = seq - before;
            store_relaxed(&k.ledger.refunds[refunded & 1], (uint64_t) refunded << WINDOW_COUNT_BITS | cases[i].refunds);
            struct reading reading;
            const struct account account = account_take(&k.fleet, &k.cell, &k.sync, &k.rule, &reading, NOW_NS);
            assert_int_equal(account.own[before], cases[i].own);
            assert_int_equal(account.own[1 - before], 0);
            assert_int_equal(account.refunds[before], cases[i].refunds);
            assert_int_equal(account.unreported, before == 0 ? cases[i].own - cases[i].acked : 0);
            assert_int_equal(account.news, cases[i].refunds != 0 || (before != 0 && cases[i].own != cases[i].acked));
            assert_int_equal(counts->own, cases[i].own);
        }
    }
}

/* With the next window, what was counted of this one is of the window before; after a longer time nothing is. */
static void test_counts_follow_the_window(void **state)
{
    (void) state;
    for (uint32_t later = 0; later < 4; later++) {
        for (int kind = 0; kind < 2; kind++) {
            begin_report(kind == 0 ? &fixed : &sliding);
            const uint32_t seq = window_seq_at(&k.rule, NOW_NS);
            struct allowance *allowance = &k.sync.allowance;
            store_relaxed(&allowance->seq, later == 3 ? 0 : seq - later);
            store_relaxed(&allowance->level, presumed_pack(1000, 300, 200));
            store_relaxed(&allowance->seen, 9);
            k.sync.demand.own = k.sync.demand.local_seen = 9;
            k.sync.now = (struct sync_counts){.acked = 50, .own = 50, .demand = 60};
            k.sync.before = (struct sync_counts){.acked = 40, .own = 40, .demand = 45};
            set_state(window_state(seq - (later < 3 ? later : 0), 50, later == 0 ? 40 : 0));
            struct reading reading;
            const struct account account = account_take(&k.fleet, &k.cell, &k.sync, &k.rule, &reading, NOW_NS);
            assert_int_equal(load_relaxed(&allowance->seq), seq);
            assert_int_equal(window_seq(reading.state), seq);
            assert_int_equal(k.sync.now.acked, later == 0 ? 50 : 0);
            assert_int_equal(k.sync.before.acked, later == 0 ? 40 : later == 1 ? 50 : 0);
            assert_int_equal(k.sync.before.demand, later == 0 ? 45 : later == 1 ? 60 : 0);
            assert_int_equal(account.own[0], later == 0 || later == 3 ? 50 : 0);
            assert_int_equal(account.own[1], later == 0 ? 40 : later == 1 ? 50 : 0);
            assert_int_equal(k.sync.demand.own, later == 0 ? 9 : 0);
            assert_int_equal(k.sync.demand.local_seen, later == 0 ? 9 : 0);
            assert_int_equal(load_relaxed(&allowance->seen), later == 0 ? 9 : 0);
            const uint64_t level = presumed_pack(1000, 300, 200);
            assert_int_equal(load_relaxed(&allowance->level), later == 0                ? level
                                                              : later == 1 && kind == 1 ? level >> 32
                                                                                        : 0);
        }
    }
}

static void test_a_bucket_counts_on_past_the_end_of_its_total(void **state)
{
    (void) state;
    begin_report(&bucket);
    k.sync.now = (struct sync_counts){.acked = BUCKET_TOTAL_MASK - 9, .acked_refunds = 2, .own = BUCKET_TOTAL_MASK - 9};
    set_state((struct state){after(30), 20});
    store_relaxed(&k.ledger.refunds[0], 2);
    store_relaxed(&k.sync.denied, 6);
    struct reading reading;
    struct account account = account_take(&k.fleet, &k.cell, &k.sync, &k.rule, &reading, NOW_NS);
    assert_int_equal(account.unreported, 30);
    assert_int_equal(account.own[0], BUCKET_TOTAL_MASK + 21);
    assert_int_equal(account.denied, 6);
    assert_int_equal(account.refunds[0], 2);
    assert_false(account.news);
    assert_int_equal(k.sync.demand.recent_units, 30);
    assert_int_equal(load_relaxed(&k.sync.allowance.seq), 0);
    store_relaxed(&k.ledger.refunds[0], 3);
    account = account_take(&k.fleet, &k.cell, &k.sync, &k.rule, &reading, NOW_NS);
    assert_true(account.news);
    assert_int_equal(account.denied, 0);
    assert_int_equal(k.sync.demand.recent_units, 0);
}

static void test_units_that_were_admitted_are_demand_once(void **state)
{
    (void) state;
    begin(&fixed);
    struct sync_counts *counts = &k.sync.now;
    struct demand_stats *demand = &k.sync.demand;
    demand->recent_units = 99;
    demand_begin(&k.sync);
    *counts = (struct sync_counts){.own = 10, .demand = 15};
    static const uint64_t own[] = {30, 30, 25, 31};
    static const uint64_t more[] = {20, 20, 20, 21};
    for (size_t i = 0; i < 4; i++) {
        demand_local(&k.sync, counts, own[i]);
        assert_int_equal(counts->own, 10 + more[i]);
        assert_int_equal(counts->demand, 15 + more[i]);
        assert_int_equal(demand->local_demand, more[i]);
        assert_int_equal(demand->recent_units, more[i]);
    }
    /* Elsewhere: what the sum has grown by, less the local part. */
    counts->remote_demand = 50;
    demand->remote_demand = 7;
    const struct report report = {.demand = 100, .sum_demand = 180};
    demand_remote(&k.sync, counts, &report);
    assert_int_equal(counts->remote_demand, 80);
    assert_int_equal(demand->remote_demand, 37);
    demand_remote(&k.sync, counts, &(struct report){.demand = 100, .sum_demand = 170}); /* it has lost some */
    assert_int_equal(counts->remote_demand, 80);
    assert_int_equal(demand->remote_demand, 37);
}

static void test_denied_units_are_demand_and_tell_a_recent_rate(void **state)
{
    (void) state;
    static const struct {
        double inspected_ms, before_ms, recent_ms; /* the last inspection, the last round, the last rate (of 500) */
        uint64_t admitted, denied;
        double rate;
        bool risen, idle;
    } cases[] = {
        {200, 200, 200, 0, 8, 40, false, false},
        {200, 200, 200, 4, 3, 0, false, false}, /* too few tell none, and after an interval there is none */
        {200, 200, 199, 4, 3, 500, false, false},
        {200, 200, 200, 5, 3, 40, false, false},
        {200, 200, 200, 100, 76, 880, false, false}, /* 140 were expected */
        {200, 200, 200, 100, 77, 885, true, false},  /* and three deviations more are no chance */
        {100, 200, 200, 100, 50, 1500, true, false},
        /* Within the last interval, or since the round before. A key that was not looked at for longer was idle. */
        {600, 200, 200, 0, 100, 500, false, false},
        {601, 200, 200, 0, 100, 500, false, true},
        {900, 500, 200, 0, 100, 200, false, false},
        {901, 500, 200, 0, 100, 200, false, true},
        {100000, 200, 200, 0, 100, 500, false, true},
        {0, 200, 200, 0, 8, 8e9, true, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin(&fixed);
        struct demand_stats *demand = &k.sync.demand;
        k.fleet.gather.before_ns = ago(cases[i].before_ms);
        store_relaxed(&k.sync.allowance.inspected_ns, ago(cases[i].inspected_ms));
        store_relaxed(&k.sync.denied, cases[i].denied);
        demand->recent_rate = rate_of(500);
        demand->recent_ns = ago(cases[i].recent_ms);
        demand->denied_before = true;
        demand_begin(&k.sync);
        demand_local(&k.sync, &k.sync.now, cases[i].admitted);
        assert_int_equal(demand_denied(&k.fleet, &k.sync, UINT64_MAX, 0, NOW_NS), cases[i].denied);
        assert_int_equal(k.sync.now.demand, cases[i].admitted + cases[i].denied);
        assert_int_equal(demand->local_demand, cases[i].admitted + cases[i].denied);
        assert_int_equal(load_relaxed(&k.sync.denied), 0);
        assert_true(demand->denied && !demand->denied_before);
        const double rate = (double) demand->recent_rate / 65536;
        if (fabs(rate - cases[i].rate) > 1 || demand->risen != cases[i].risen || demand->idle != cases[i].idle) {
            fail_msg("case %zu: rate %.1f, risen %d, idle %d", i, rate, demand->risen, demand->idle);
        }
        const bool told = cases[i].admitted + cases[i].denied >= RECENT_UNITS;
        assert_int_equal(demand->recent_ns, told ? NOW_NS : ago(cases[i].recent_ms));
        /* An answer is stale until there is a new one, where the key was idle. */
        assert_int_equal(load_relaxed(&k.sync.allowance.inspected_ns),
                         cases[i].idle ? ago(cases[i].inspected_ms) : NOW_NS);
        assert_int_equal(demand_denied(&k.fleet, &k.sync, UINT64_MAX, 0, NOW_NS), 0);
        assert_true(!demand->denied && demand->denied_before);
    }
    begin(&fixed);
    store_relaxed(&k.sync.denied, UINT64_MAX);
    assert_int_equal(demand_denied(&k.fleet, &k.sync, UINT64_MAX, 0, NOW_NS), WEIR_MAX_UNITS);
}

/* A key that was given room for its demand just now: is its use new, or does it go on? */
static void test_a_key_that_is_looked_at_anew_keeps_its_demand_where_its_use_goes_on(void **state)
{
    (void) state;
    for (int steady = 0; steady < 2; steady++) {
        for (int known = 0; known < 2; known++) {
            begin(&fixed);
            struct demand_stats *demand = &k.sync.demand;
            demand->learned_ns = known != 0 ? ago(400) : 0;
            demand->recent_units = 100;
            demand->idle = true;
            demand_reset(&k.sync, NOW_NS, INTERVAL_MS * MILLISECOND, steady != 0);
            const bool goes_on = steady != 0 && known != 0;
            assert_int_equal(demand->learned_ns, goes_on ? ago(400) : 0);
            assert_int_equal(demand->idle, !goes_on);
            assert_int_equal(load_relaxed(&k.sync.allowance.inspected_ns), goes_on ? NOW_NS : 0);
            assert_true(is_near(demand->recent_rate, goes_on ? 250 : 0)); /* since the last answer */
        }
    }
    begin(&fixed);
    k.sync.demand.recent_units = 100;
    k.sync.demand.learned_ns = ago(20);
    demand_reset(&k.sync, NOW_NS, INTERVAL_MS * MILLISECOND, true);
    assert_true(is_near(k.sync.demand.recent_rate, 500)); /* over an interval at least */
}

static void test_the_units_of_a_log_are_demand_from_what_was_reported_on(void **state)
{
    (void) state;
    static const struct {
        uint64_t own, counts, end, more;
    } cases[] = {{0, 40, 50, 10}, {45, 40, 50, 5}, {60, 40, 50, 0}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin(&log_limit);
        k.sync.now.own = cases[i].own;
        k.sync.now.demand = 7;
        k.sync.demand.recent_units = 99;
        store_relaxed(&k.sync.denied, 3);
        demand_units(&k.fleet, &k.sync, cases[i].counts, cases[i].end, NOW_NS);
        assert_int_equal(k.sync.now.own, 50);
        assert_int_equal(k.sync.now.demand, 7 + cases[i].more + 3);
        assert_int_equal(k.sync.demand.local_demand, cases[i].more + 3);
        assert_int_equal(k.sync.demand.recent_units, cases[i].more);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_report_names_its_record_its_author_and_its_cell),
        cmocka_unit_test(test_a_report_of_a_bucket_tells_its_counts_and_its_rate),
        cmocka_unit_test(test_up_to_when_a_bucket_may_have_been_full),
        cmocka_unit_test(test_what_a_node_has_seen_of_a_bucket),
        cmocka_unit_test(test_what_a_bucket_owes_since_an_outage),
        cmocka_unit_test(test_units_of_an_open_outage_are_told_as_acknowledged),
        cmocka_unit_test(test_when_a_key_is_due),
        cmocka_unit_test(test_a_small_part_of_a_limit_is_told_by_its_own_measure),
        cmocka_unit_test(test_local_units_are_what_the_others_have_not),
        cmocka_unit_test(test_counts_follow_the_window),
        cmocka_unit_test(test_a_bucket_counts_on_past_the_end_of_its_total),
        cmocka_unit_test(test_units_that_were_admitted_are_demand_once),
        cmocka_unit_test(test_denied_units_are_demand_and_tell_a_recent_rate),
        cmocka_unit_test(test_a_key_that_is_looked_at_anew_keeps_its_demand_where_its_use_goes_on),
        cmocka_unit_test(test_the_units_of_a_log_are_demand_from_what_was_reported_on),
    };
    return cmocka_run_group_tests_name("unit/fleet/one_report", tests, NULL, NULL);
}
