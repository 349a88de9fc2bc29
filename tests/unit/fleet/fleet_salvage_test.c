/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an opener keeps of the fleet's state that nobody else has: the node is the same, and knows what it knew of the
 * others. Each number that cannot be right is as in a node that has just started.
 *
 * Guards: src/fleet/fleet_salvage.c, src/base/compiler.h
 */
#include <stdio.h>
#include <string.h>

#include "fleet/fleet_salvage.h"
#include "fleet/state.h"
#include "fleet/tuning.h"
#include "process/evict.h"
#include "support/bare_process.h"
#include "support/draw.h"

#define MONO_NS         (1000 * SECOND)
#define NOW_NS          BARE_NOW_NS
#define MINUTE          (60 * SECOND)
#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

struct subject {
    struct process process;
    struct fleet_parts parts;
    weir_options options;
    struct fleet fleet;
};

/* A node that has been in a fleet of five for a while. */
static void subject_open(struct subject *s)
{
    memset((void *) s, 0, sizeof(*s));
    bare_process_open(&s->process, 1000, true);
    s->parts = (struct fleet_parts){.process = &s->process, .batch = calloc(1, fleet_batch_size())};
    assert_non_null(s->parts.batch);
    const weir_options options = WEIR_OPTIONS_INIT;
    s->options = options;
    s->options.prefix = "p";
    s->options.node_name = "first";
    s->options.sync_interval_ms = 200;
    s->options.redis_timeout_ms = 100;
    struct fleet *fleet = &s->fleet;
    assert_int_equal(fleet_open(fleet, &s->parts, &s->options, 5 * SECOND), 0);
    (void) snprintf(fleet->node, sizeof(fleet->node), "0123456789ab");
    fleet->news = (struct round_news){.good_ns = 900 * SECOND,
                                      .begun_ns = 899 * SECOND,
                                      .failed_ns = 950 * SECOND,
                                      .age_ns = 77,
                                      .slow = true,
                                      .awaits_peers = true,
                                      .peers_resume = true};
    struct membership *membership = &fleet->membership;
    membership->live = membership->most = 5;
    membership->suspect = 1;
    membership->expected = 3;
    membership->failed = true;
    membership->most_ns = membership->joined_ns = membership->complete_ns = 800 * SECOND;
    membership->joined = 2;
    membership->watermark_ns = membership->spoken_ns = membership->gone_ns = NOW_NS - SECOND;
    membership->await_live = UINT32_MAX;
    membership->await_until_ns = membership->await_most_ns = MONO_NS + SECOND;
    membership->resume_until_ns = membership->regular_from_ns = MONO_NS + SECOND;
    fleet->clock.known = true;
    fleet->gather.number = 17;
    fleet->gather.interval_count = 40;
    fleet->gather.resynced_at = 30;
    fleet->gather.now_ns = NOW_NS - 2;
    fleet->gather.before_ns = NOW_NS - 3;
    fleet->outage = (struct outage_state){.began = true, .back_ns = 850 * SECOND};
    fleet->schedule.extra_ns = 12;
    fleet->schedule.next_ns = UINT64_MAX;
    fleet->leaves = true;
    store_relaxed(&fleet->sync_calls.requests, 9);
    store_relaxed(&fleet->stats.sync_count, 1234);
    store_relaxed(&fleet->stats.link, 77);
    (void) snprintf(fleet->overrides.version, sizeof(fleet->overrides.version), "version 4");
    fleet->overrides.changed = true;
    fleet->overrides.texts = (struct override_text *) &fleet->overrides; /* of a process that is gone */
    fleet->overrides.count = 3;
    fleet->batch.evicted_count = 2;
    fleet->batch.evicted[1].time_count = 3;
}

static void subject_close(struct subject *s)
{
    free(s->parts.batch);
    process_close(&s->process);
}

static void salvage(struct subject *s)
{
    s->options.node_name = "second";
    assert_int_equal(fleet_salvage(&s->fleet, &s->parts, &s->options, MONO_NS, NOW_NS), 0);
}

static void expect_fresh(const struct subject *s)
{
    const struct fleet *fleet = &s->fleet;
    const uint32_t cells = (uint32_t) s->process.table.cell_count;
    assert_string_equal(fleet->prefix, "p");
    assert_string_equal(fleet->name, "second");
    assert_ptr_equal(fleet->process, &s->process);
    assert_ptr_equal(fleet->batch.reports, s->parts.batch);
    assert_int_equal(fleet->schedule.extra_ns, UINT64_MAX);
    assert_int_equal(fleet->schedule.next_ns, 0);
    assert_false(fleet->schedule.under_way);
    assert_false(fleet->leaves);
    assert_false(fleet_wanted(fleet));
    assert_false(fleet->overrides.changed);
    assert_null(fleet->overrides.texts);
    assert_int_equal(fleet->overrides.count, 0);
    assert_int_equal(fleet->gather.deferred_cursor, cells);
    assert_int_equal(fleet->interval_ms, 200);
    assert_int_equal(s->process.interval_ns, 200 * MILLISECOND);
    assert_int_equal(load_relaxed(&fleet->stats.link), WEIR_LINK_DOWN);
    assert_int_equal(load_relaxed(&s->process.shared->nodes), membership_nodes(&fleet->membership));
}

static void test_the_node_knows_what_it_knew(void **state)
{
    (void) state;
    static struct subject s;
    subject_open(&s);
    const struct fleet was = s.fleet;
    memset((void *) &s.fleet.news.slow, 6, 1); /* a byte that no bool has */
    s.fleet.batch.evicted[0].key.length = UINT8_MAX;
    s.fleet.batch.evicted[0].time_count = UINT32_MAX;
    salvage(&s);
    const struct fleet *fleet = &s.fleet;
    expect_fresh(&s);
    assert_string_equal(fleet->node, "0123456789ab");
    assert_int_equal(fleet->opened_ns, 5 * SECOND);
    assert_memory_equal(&fleet->membership, &was.membership, sizeof(was.membership));
    assert_int_equal(fleet->news.good_ns, 900 * SECOND);
    assert_int_equal(fleet->news.begun_ns, 899 * SECOND);
    assert_int_equal(fleet->news.failed_ns, 950 * SECOND);
    assert_int_equal(fleet->news.age_ns, 77);
    assert_true(fleet->news.slow && fleet->news.awaits_peers && fleet->news.peers_resume);
    unsigned char slow;
    memcpy(&slow, &fleet->news.slow, sizeof(slow));
    assert_int_equal(slow, 1);
    assert_true(fleet->clock.known);
    assert_int_equal(fleet->clock.step_ns, 0);
    assert_int_equal(fleet->gather.number, 17);
    assert_int_equal(fleet->gather.interval_count, 40);
    assert_int_equal(fleet->gather.resynced_at, 30);
    assert_int_equal(fleet->gather.now_ns, NOW_NS - 2);
    assert_int_equal(fleet->gather.before_ns, NOW_NS - 3);
    assert_int_equal(fleet->gather.resync_left, 0); /* none is under way */
    assert_true(fleet->outage.began);
    assert_int_equal(fleet->outage.back_ns, 850 * SECOND);
    assert_int_equal(load_relaxed(&fleet->stats.sync_count), 1234);
    assert_string_equal(fleet->overrides.version, "version 4");
    assert_int_equal(fleet->batch.evicted_count, 2);
    assert_int_equal(fleet->batch.evicted[0].key.length, KEY_NAME_SIZE);
    assert_int_equal(fleet->batch.evicted[0].time_count, EVICTED_TIMES);
    assert_int_equal(fleet->batch.evicted[1].time_count, 3);
    subject_close(&s);
}

/* What a round under way has told is not known: every key is reported again. */
static void test_a_round_under_way_is_followed_by_a_report_of_each_key(void **state)
{
    (void) state;
    static struct subject s;
    subject_open(&s);
    s.fleet.schedule.under_way = true;
    salvage(&s);
    expect_fresh(&s);
    assert_int_equal(s.fleet.gather.resync_left, s.process.table.cell_count);
    assert_int_equal(s.fleet.gather.resynced_at, 40);
    subject_close(&s);
}

static void test_a_step_of_time_and_a_waiver_go_on_where_they_were(void **state)
{
    (void) state;
    static struct subject s;
    for (int which = 0; which < 5; which++) {
        subject_open(&s);
        const uint32_t cells = (uint32_t) s.process.table.cell_count;
        s.fleet.clock.step_ns = which == 1 ? INT64_MAX : which == 2 ? INT64_MIN : -5000;
        s.fleet.clock.readers_drained = true;
        s.fleet.clock_shift.cells_done = which == 3 ? cells + 1 : cells;
        s.fleet.waive.groups[WEIR_MAX_POLICIES] = true;
        s.fleet.waive.cells_done = which == 4 ? UINT32_MAX : 3;
        salvage(&s);
        expect_fresh(&s);
        const bool steps = which == 0 || which == 4;
        assert_int_equal(s.fleet.clock.step_ns, steps ? -5000 : 0);
        assert_int_equal(s.fleet.clock.readers_drained, steps);
        assert_int_equal(s.fleet.clock_shift.cells_done, cells);
        assert_int_equal(s.fleet.waive.cells_done, which == 4 ? cells : 3);
        assert_int_equal(s.fleet.waive.groups[WEIR_MAX_POLICIES], which != 4);
        subject_close(&s);
    }
}

static void test_what_cannot_be_is_as_in_a_node_that_has_just_started(void **state)
{
    (void) state;
    static struct subject s;
    enum { ID, LONG_ID, NEWS, BEGUN, FAILED, OPENED, BACK, VERSION, EVICTED, CURSORS, CASES };
    for (int which = 0; which < CASES; which++) {
        subject_open(&s);
        struct fleet *fleet = &s.fleet;
        switch (which) {
        case ID:
            fleet->node[3] = 'G';
            break;
        case LONG_ID:
            memset(fleet->node, 'a', sizeof(fleet->node));
            break;
        case NEWS:
            fleet->news.good_ns = MONO_NS + 1;
            break;
        case BEGUN:
            fleet->news.begun_ns = fleet->news.good_ns + 1;
            break;
        case FAILED:
            fleet->news.failed_ns = UINT64_MAX;
            break;
        case OPENED:
            fleet->opened_ns = UINT64_MAX;
            break;
        case BACK:
            fleet->outage.back_ns = MONO_NS + 1;
            break;
        case VERSION:
            memset(fleet->overrides.version, 'v', sizeof(fleet->overrides.version));
            break;
        case EVICTED:
            fleet->batch.evicted_count = ROUND_EVICTED + 1;
            break;
        default:
            fleet->gather.resynced_at = fleet->gather.now_ns = fleet->gather.before_ns = UINT64_MAX;
            break;
        }
        salvage(&s);
        expect_fresh(&s);
        assert_int_equal(strspn(fleet->node, "0123456789abcdef"), 12);
        assert_int_equal(strlen(fleet->node), 12);
        assert_int_equal(strcmp(fleet->node, "0123456789ab") == 0, which != ID && which != LONG_ID);
        const bool no_news = which == NEWS || which == BEGUN || which == FAILED;
        assert_int_equal(fleet->news.good_ns, no_news ? 0 : 900 * SECOND);
        assert_int_equal(fleet->news.failed_ns, no_news ? 0 : 950 * SECOND);
        assert_int_equal(fleet->opened_ns, which == OPENED ? MONO_NS : 5 * SECOND);
        assert_int_equal(fleet->outage.back_ns, which == BACK ? 0 : 850 * SECOND);
        assert_string_equal(fleet->overrides.version, which == VERSION ? "" : "version 4");
        assert_int_equal(fleet->batch.evicted_count, which == EVICTED ? 0 : 2);
        assert_int_equal(fleet->gather.resynced_at, which == CURSORS ? 40 : 30);
        assert_int_equal(fleet->gather.now_ns, which == CURSORS ? NOW_NS : NOW_NS - 2);
        subject_close(&s);
    }
}

static void test_nodes_that_cannot_be_are_those_of_the_options(void **state)
{
    (void) state;
    static struct subject s;
    enum {
        LIVE,
        SUSPECT,
        EXPECTED,
        NONE_EXPECTED,
        MOST,
        JOINED,
        AWAIT_LIVE,
        MOST_NS,
        JOINED_NS,
        COMPLETE,
        WATERMARK,
        SPOKEN,
        GONE,
        UNTIL,
        UNTIL_MOST,
        RESUME,
        REGULAR,
        CASES
    };
    for (int which = 0; which < CASES; which++) {
        subject_open(&s);
        struct membership *membership = &s.fleet.membership;
        uint32_t *const numbers[] = {&membership->live,      &membership->suspect, &membership->expected,
                                     &membership->expected,  &membership->most,    &membership->joined,
                                     &membership->await_live};
        uint64_t *const times[] = {&membership->most_ns,         &membership->joined_ns,
                                   &membership->complete_ns,     &membership->watermark_ns,
                                   &membership->spoken_ns,       &membership->gone_ns,
                                   &membership->await_until_ns,  &membership->await_most_ns,
                                   &membership->resume_until_ns, &membership->regular_from_ns};
        const uint64_t now_ns = which >= WATERMARK && which <= GONE ? NOW_NS : MONO_NS;
        const uint64_t most_ns = which >= UNTIL ? now_ns + 10 * MINUTE : now_ns;
        if (which <= AWAIT_LIVE) {
            *numbers[which] = which == NONE_EXPECTED ? 0 : (1U << 20) + 1;
        } else {
            *times[which - MOST_NS] = most_ns;
            salvage(&s);
            assert_int_equal(membership->live, 5); /* so far it can be */
            *times[which - MOST_NS] = most_ns + 1;
        }
        salvage(&s);
        expect_fresh(&s);
        assert_int_equal(membership->live, 0);
        assert_int_equal(membership->await_until_ns, 0);
        assert_int_equal(membership_nodes(membership), s.options.expected_nodes != 0 ? s.options.expected_nodes : 1);
        subject_close(&s);
    }
}

/* Drawn bytes of all of it: afterwards it is the state of some node. */
static void test_drawn_damage_leaves_a_state_that_can_be_gone_by(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    static struct subject s;
    for (unsigned round = 0; round < test_draws(2000); round++) {
        subject_open(&s);
        for (unsigned i = 0; i < 1 + round % 16; i++) {
            ((unsigned char *) &s.fleet)[random_below(&rng, offsetof(struct fleet, batch))] =
                (unsigned char) random_next(&rng);
            ((unsigned char *) &s.fleet)[offsetof(struct fleet, gather) +
                                         random_below(&rng, sizeof(struct fleet) - offsetof(struct fleet, gather))] =
                (unsigned char) random_next(&rng);
        }
        salvage(&s);
        expect_fresh(&s);
        const uint32_t cells = (uint32_t) s.process.table.cell_count;
        assert_in_range(membership_nodes(&s.fleet.membership), 1, 3 << 20);
        assert_in_range(s.fleet.waive.cells_done, 0, cells);
        assert_in_range(s.fleet.clock_shift.cells_done, 0, cells);
        assert_in_range(s.fleet.gather.resync_cursor, 0, cells - 1);
        assert_in_range(s.fleet.gather.resync_left, 0, cells);
        assert_in_range(s.fleet.batch.evicted_count, 0, ROUND_EVICTED);
        assert_in_range(s.fleet.news.good_ns, 0, MONO_NS);
        subject_close(&s);
    }
}

static void test_without_a_fleet_the_name_is_new_and_the_time_since_it_was_opened_stays(void **state)
{
    (void) state;
    static struct fleet fleet;
    fleet_open_alone(&fleet, "first", 70);
    store_relaxed(&fleet.stats.link, 77);
    fleet_salvage_alone(&fleet, "second", 100);
    assert_string_equal(fleet.name, "second");
    assert_int_equal(fleet.opened_ns, 70);
    assert_int_equal(load_relaxed(&fleet.stats.link), 0);
    fleet.opened_ns = 101;
    fleet_salvage_alone(&fleet, "second", 100);
    assert_int_equal(fleet.opened_ns, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_node_knows_what_it_knew),
        cmocka_unit_test(test_a_round_under_way_is_followed_by_a_report_of_each_key),
        cmocka_unit_test(test_a_step_of_time_and_a_waiver_go_on_where_they_were),
        cmocka_unit_test(test_what_cannot_be_is_as_in_a_node_that_has_just_started),
        cmocka_unit_test(test_nodes_that_cannot_be_are_those_of_the_options),
        cmocka_unit_test(test_drawn_damage_leaves_a_state_that_can_be_gone_by),
        cmocka_unit_test(test_without_a_fleet_the_name_is_new_and_the_time_since_it_was_opened_stays),
    };
    return cmocka_run_group_tests_name("unit/fleet/fleet_salvage", tests, NULL, NULL);
}
