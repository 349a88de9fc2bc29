/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A full sync over several rounds. Whatever happens to one of the rounds, and whatever is used behind the cursor, the
 * fleet has all that was counted before the call when the full sync is over.
 *
 * Guards: src/fleet/keys/gather.c, src/fleet/round.c, src/fleet/keys/full_sync.c, src/fleet/fleet.c,
 * src/fleet/keys/report.c, src/fleet/keys/record.c, src/fleet/keys/merge.c
 */
#include <errno.h>

#include "process/evict.h"
#include "support/nodes.h"
#include "support/policies.h"
#include "thread/slot_account.h"

#define KEYS 3000 /* three rounds of them */

static uint64_t names[KEYS];

static weir_key key_of(const struct node *node, size_t i)
{
    names[i] = i;
    return weir_make_key(node->w, node->key.policy, &names[i], sizeof(names[i]));
}

static void use_each(struct node *node, size_t step)
{
    for (size_t i = 0; i < KEYS; i += step) {
        const weir_key key = key_of(node, i);
        assert_true(weir_check(node->t, &key, 1, NULL));
        node->used++;
    }
}

static uint64_t counts(const struct nodes *n)
{
    return loopback_fleet_sum(n->fleet, ":p:");
}

/*
 * A fleet of one node, and all keys of the node are in the fleet. `unsaid`: there are also units that wait for the
 * scan.
 */
static struct node *start(struct nodes *n, bool unsaid)
{
    static const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 100000, .period_ns = 24 * HOUR};
    static weir_policy policy;
    policy = patient_policy_of(&limit);
    nodes_init(n, &policy, 1);
    n->max_keys = 20000;
    n->key_is_new = true;
    node_open(n, 0, 0);
    struct node *node = &n->node[0];
    pass(n, 2 * INTERVAL_MS);
    use_each(node, 1);
    pass(n, 2 * SCAN_MS);
    assert_int_equal(counts(n), node->used);
    if (unsaid) {
        use_each(node, 1);
        pass(n, INTERVAL_MS + STEP_MS);
        use_each(node, 2); /* these keys are inspected next, the others have been */
        assert_true(counts(n) < node->used);
    }
    return node;
}

/* As weir_sync, which would return only when the full sync is over. */
static void ask_for_flush(struct node *node)
{
    (void) fleet_wait_begin(node->w->fleet);
}

static bool is_served(const struct node *node)
{
    return load_acquire(&node->w->fleet->sync_calls.served) == load_acquire(&node->w->fleet->sync_calls.requests);
}

static void poll_until(struct nodes *n, struct node *node, bool (*is)(const struct node *node))
{
    for (size_t polls = 0; !is(node); polls++) {
        assert_true(polls < 10000);
        fake_clock_advance(&n->fleet_clock, MILLISECOND);
        fake_clock_advance(&node->clock, MILLISECOND);
        assert_true(weir_poll(node->w) >= 0);
    }
}

static bool is_half_way(const struct node *node)
{
    const struct fleet *fleet = node->w->fleet;
    return fleet->full_sync.dirty_cursor > fleet->process->table.cell_count / 2 && fleet->schedule.under_way;
}

static void expect_reported(struct nodes *n, struct node *node, uint64_t used)
{
    poll_until(n, node, is_served);
    assert_int_equal(counts(n), used);
    nodes_stop(n);
}

static void test_news_that_waits_its_turn_is_told(void **state)
{
    (void) state;
    struct nodes n;
    struct node *node = start(&n, true);
    ask_for_flush(node);
    expect_reported(&n, node, node->used);
}

/* Resyncs are two seconds apart, but where somebody waits for one. */
static void test_a_fleet_that_lost_its_data_twice_is_told_all_at_once(void **state)
{
    (void) state;
    struct nodes n;
    struct node *node = start(&n, false);
    for (int times = 0; times < 3; times++) {
        loopback_fleet_flush(n.fleet);
        ask_for_flush(node);
        poll_until(&n, node, is_served);
        assert_int_equal(counts(&n), node->used);
    }
    nodes_stop(&n);
}

static void test_what_is_used_behind_it_is_not_waited_for(void **state)
{
    (void) state;
    struct nodes n;
    struct node *node = start(&n, true);
    const uint64_t used = node->used;
    ask_for_flush(node);
    size_t rounds = 0;
    for (; !is_served(node); rounds++) {
        assert_true(rounds < 20);
        use_each(node, 1);
        assert_true(weir_poll(node->w) >= 0);
    }
    assert_in_range(rounds, 3, 12);
    assert_true(counts(&n) >= used);
    nodes_stop(&n);
}

static void test_a_round_of_it_that_fails_is_told_again(void **state)
{
    (void) state;
    struct nodes n;
    struct node *node = start(&n, true);
    ask_for_flush(node);
    poll_until(&n, node, is_half_way);
    loopback_fleet_set_down(n.fleet, true);
    for (int i = 0; i < 3; i++) {
        assert_true(weir_poll(node->w) >= 0);
    }
    assert_false(node->w->fleet->schedule.under_way);
    loopback_fleet_set_down(n.fleet, false);
    expect_reported(&n, node, node->used);
}

static void test_reports_that_could_not_be_said_are_told_again(void **state)
{
    (void) state;
    struct nodes n;
    struct node *node = start(&n, true);
    ask_for_flush(node);
    loopback_transport_set_link(node->w->fleet->transport, &(struct loopback_link){.unsaid_ppm = 300000});
    poll_until(&n, node, is_half_way);
    loopback_transport_set_link(node->w->fleet->transport, &(struct loopback_link){.unsaid_ppm = 0});
    expect_reported(&n, node, node->used);
}

static void test_a_fleet_that_has_forgotten_is_told_everything(void **state)
{
    (void) state;
    struct nodes n;
    struct node *node = start(&n, false);
    loopback_fleet_forget(n.fleet);
    assert_int_equal(counts(&n), 0);
    ask_for_flush(node);
    expect_reported(&n, node, node->used);
}

static void test_what_passed_on_a_grant_that_lasts_is_told(void **state)
{
    (void) state;
    struct nodes n;
    struct node *node = start(&n, false);
    node->key = key_of(node, 1);
    for (int ticks = 0; ticks < 5; ticks++) { /* its grants grow */
        (void) ask(node, 100);
        pass(&n, STEP_MS);
    }
    const uint64_t slow = node->t->shared->slow_count;
    assert_int_equal(ask(node, 50), 50);
    assert_true(node->t->shared->slow_count - slow < 50); /* most units are not yet charged to the table */
    assert_int_equal(weir_sync(node->w, 60000), 0);
    assert_int_equal(counts(&n), node->used);
    nodes_stop(&n);
}

/* A process that was stopped has the lock, or one that has died, until its place is repaired. */
static void test_a_slot_that_is_locked_is_not_waited_for(void **state)
{
    (void) state;
    struct nodes n;
    struct node *node = start(&n, false);
    node->key = key_of(node, 1);
    for (int ticks = 0; ticks < 5; ticks++) {
        (void) ask(node, 100);
        pass(&n, STEP_MS);
    }
    assert_int_equal(ask(node, 50), 50);
    size_t at = 0;
    while (at < node->t->slot_count && load_relaxed(&node->t->accounts[at].granted) == 0) {
        at++;
    }
    assert_int_not_equal(at, node->t->slot_count);
    assert_true(slot_account_trylock(node->t, &node->t->accounts[at]));
    ask_for_flush(node);
    poll_until(&n, node, is_served);
    assert_true(counts(&n) < node->used);
    slot_account_unlock(&node->t->accounts[at]);
    assert_int_equal(weir_sync(node->w, 5000), 0);
    assert_int_equal(counts(&n), node->used);
    nodes_stop(&n);
}

/* A full sync that waits for units that cannot be reported ends the threads' grants once, and not in every round. */
static void test_one_that_begins_again_lets_grants_last(void **state)
{
    (void) state;
    struct nodes n;
    struct node *node = start(&n, true);
    loopback_transport_set_link(node->w->fleet->transport, &(struct loopback_link){.unsaid_ppm = 1000000});
    const uint32_t epoch = load_relaxed(&node->w->limiter.shared->line.epoch);
    const uint64_t rounds = node->w->fleet->stats.sync_count;
    ask_for_flush(node);
    for (int polls = 0; polls < 40; polls++) { /* no time passes */
        assert_true(weir_poll(node->w) >= 0);
    }
    assert_true(node->w->fleet->stats.sync_count - rounds > 10);
    assert_int_equal(load_relaxed(&node->w->limiter.shared->line.epoch), epoch + 1);
    nodes_stop(&n);
}

static void test_one_of_no_time_goes_on_by_itself(void **state)
{
    (void) state;
    struct nodes n;
    struct node *node = start(&n, true);
    assert_int_equal(weir_sync(node->w, 0), -ETIMEDOUT);
    pass(&n, 5 * STEP_MS);
    assert_int_equal(counts(&n), node->used);
    nodes_stop(&n);
}

/* A fleet of one node with a small table, after the node's first round. */
static struct node *start_small(struct nodes *n, const weir_limit *limit)
{
    static weir_policy policy;
    policy = patient_policy_of(limit);
    nodes_init(n, &policy, 1);
    n->max_keys = 1000;
    n->key_is_new = true;
    node_open(n, 0, 0);
    pass(n, 2 * INTERVAL_MS);
    return &n->node[0];
}

/* The node's slots hold keys in the table. */
static void let_go(struct node *node)
{
    weir_detach(node->t);
    node->t = weir_attach(node->w);
}

/* Gathering takes long, and there are more evicted keys than a round has time for. */
static void evict_many(weir_algorithm algorithm, bool full_sync)
{
    struct nodes n;
    const weir_limit limit = {.algorithm = algorithm, .limit = 1000, .period_ns = 24 * HOUR};
    struct node *node = start_small(&n, &limit);
    const struct fleet *fleet = node->w->fleet;
    use_each(node, 1);
    struct creep creep;
    creep_begin(&creep, node, 3 * MILLISECOND / 20);
    if (full_sync) {
        ask_for_flush(node);
    }
    fake_clock_advance(&node->clock, INTERVAL_MS * MILLISECOND);
    while (!fleet->schedule.under_way) {
        assert_true(weir_poll(node->w) >= 0);
    }
    assert_int_equal(fleet->batch.evicted_count, ROUND_EVICTED);
    assert_in_range(fleet->batch.evicted_sent, 32, ROUND_EVICTED - 32);
    assert_true(fleet->round.report_count - fleet->batch.evicted_sent >= 32);
    poll_until(&n, node, is_served);
    pass(&n, 2 * SCAN_MS);
    assert_int_equal(counts(&n), node->used);
    nodes_stop(&n);
}

static void test_forgotten_keys_leave_room_for_those_that_are_there(void **state)
{
    (void) state;
    evict_many(WEIR_FIXED_WINDOW, false);
    evict_many(WEIR_FIXED_WINDOW, true);
    evict_many(WEIR_SLIDING_LOG, false);
    evict_many(WEIR_SLIDING_LOG, true);
}

static void test_forgotten_keys_are_told_beside_urgent_logs(void **state)
{
    (void) state;
    struct nodes n;
    const weir_limit limit = {.algorithm = WEIR_SLIDING_LOG, .limit = 1000, .period_ns = 24 * HOUR};
    struct node *node = start_small(&n, &limit);
    const struct fleet *fleet = node->w->fleet;
    struct process *process = &node->w->limiter.process;
    use_each(node, 1);
    uint32_t urgent = 0;
    for (uint32_t at = 0; urgent < 3 * ROUND_HISTORIES / 4; at++) {
        if (load_relaxed(&process->table.cells[at].hash) != 0) {
            bitmap_set(&process->table.urgent, at);
            urgent++;
        }
    }
    store_relaxed(&process->shared->urgent, 1);
    fake_clock_advance(&node->clock, INTERVAL_MS * MILLISECOND);
    while (!fleet->schedule.under_way) {
        assert_true(weir_poll(node->w) >= 0);
    }
    assert_true(fleet->round.report_count > urgent);
    assert_true(fleet->batch.evicted_sent != 0);
    nodes_stop(&n);
}

static void test_a_key_that_is_claimed_is_waited_for(void **state)
{
    (void) state;
    struct nodes n;
    struct node *node = start(&n, true);
    node->key = key_of(node, 1);
    assert_int_equal(ask(node, 1), 1); /* a round may have reported it by now */
    let_go(node);
    struct cell *cell = &node->w->limiter.process.table.cells[cell_of(node)];
    assert_true(cell_lock(cell)); /* as a thread does that is about to evict it */
    ask_for_flush(node);
    for (int polls = 0; polls < 50; polls++) {
        assert_true(weir_poll(node->w) >= 0);
        assert_false(is_served(node));
    }
    cell_unlock(cell); /* and the key stays */
    expect_reported(&n, node, node->used);
}

static void test_forgotten_keys_of_a_round_that_failed_outlast_an_urgent_one(void **state)
{
    (void) state;
    struct nodes n;
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1000, .period_ns = 24 * HOUR};
    struct node *node = start_small(&n, &limit);
    const struct fleet *fleet = node->w->fleet;
    use_each(node, 1);
    ask_for_flush(node);
    while (!fleet->schedule.under_way || fleet->batch.evicted_sent == 0) {
        assert_true(weir_poll(node->w) >= 0);
    }
    loopback_fleet_set_down(n.fleet, true);
    while (fleet->schedule.under_way) {
        assert_true(weir_poll(node->w) >= 0);
    }
    loopback_fleet_set_down(n.fleet, false);
    node->key = key_of(node, KEYS - 1); /* it is there */
    make_urgent(node);
    expect_reported(&n, node, node->used);
}

/*
 * A round is done, and some of its reports could not be taken. Their keys are evicted, and other keys have the cells.
 */
static void test_forgotten_keys_that_could_not_be_said_are_told_again(void **state)
{
    (void) state;
    static const weir_algorithm kinds[] = {WEIR_FIXED_WINDOW, WEIR_TOKEN_BUCKET, WEIR_SLIDING_LOG};
    for (size_t a = 0; a < sizeof(kinds) / sizeof(kinds[0]); a++) {
        struct nodes n;
        const weir_limit limit = {.algorithm = kinds[a], .limit = 1000, .period_ns = 24 * HOUR};
        struct node *node = start_small(&n, &limit);
        const struct fleet *fleet = node->w->fleet;
        use_each(node, 1);
        loopback_transport_set_link(fleet->transport, &(struct loopback_link){.unsaid_ppm = 300000});
        ask_for_flush(node);
        for (int rounds = 0; rounds < 5; rounds++) {
            const uint64_t unsaid = fleet->stats.report_retry_count;
            while (fleet->stats.report_retry_count == unsaid || fleet->batch.evicted_sent == 0) {
                assert_true(weir_poll(node->w) >= 0);
            }
        }
        loopback_transport_set_link(fleet->transport, &(struct loopback_link){.unsaid_ppm = 0});
        expect_reported(&n, node, node->used);
    }
}

/* A host's clock that inserts new keys when it is read, in the middle of a round. Other keys are evicted for them. */
struct crowding {
    struct nodes n;
    struct node *node;
    int keys; /* 0: the new keys have come */
};

static bool use_named(const struct node *node, const char *kind, int number, uint64_t units)
{
    char name[16];
    const int length = snprintf(name, sizeof(name), "%s-%d", kind, number);
    const weir_key key = weir_make_key(node->w, node->key.policy, name, (size_t) length);
    return weir_check(node->t, &key, units, NULL);
}

static uint64_t crowding_ns(void *arg)
{
    struct crowding *crowding = arg;
    struct fleet *fleet = crowding->node->w->fleet;
    if (fleet->full_sync.dirty_cursor != 0 && crowding->keys != 0) { /* the full sync is on its way through the table */
        /* As after a flood that has gone on since the start. */
        fleet->full_sync.evicted_reported = EVICTED_COUNT + ROUND_EVICTED;
        for (; crowding->keys != 0; crowding->keys--) {
            /* More units than any other key has: no new key is evicted. */
            (void) use_named(crowding->node, "new", crowding->keys, 5);
        }
    }
    return crowding->node->clock.monotonic_ns;
}

/* A full table, in which no key is moved. One key in `one_in` has unreported units when the new keys come. */
static void crowd(int one_in, int keys)
{
    enum { OLD = 1000 };
    static const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1000, .period_ns = 24 * HOUR};
    struct crowding c = {.keys = keys};
    struct node *node = start_small(&c.n, &limit);
    c.node = node;
    uint64_t used = 0;
    for (int i = 0; i < OLD; i++) {
        const uint64_t units =
            i % one_in != 0 ? 3 : 1; /* a key with unreported units has used the least, and is evicted first */
        assert_true(use_named(node, "old", i, units));
        used += units;
    }
    assert_int_equal(weir_sync(node->w, 60000), 0);
    for (int i = 0; i < OLD; i += one_in) {
        assert_true(use_named(node, "old", i, 1));
        used++;
    }
    let_go(node);
    assert_true(loopback_fleet_sum(c.n.fleet, ":p:old-") < used);
    node->w->clock.monotonic_ns = crowding_ns;
    node->w->clock.arg = &c;
    ask_for_flush(node);
    poll_until(&c.n, node, is_served);
    assert_int_equal(c.keys, 0);
    assert_int_equal(loopback_fleet_sum(c.n.fleet, ":p:old-"), used);
    /* All is quiet, so no other round is needed. */
    const uint64_t rounds = node->w->fleet->stats.sync_count;
    assert_int_equal(weir_sync(node->w, 60000), 0);
    assert_int_equal(node->w->fleet->stats.sync_count, rounds + 1);
    nodes_stop(&c.n);
}

static void test_a_key_that_is_forgotten_just_before_it_comes_to_it_is_told(void **state)
{
    (void) state;
    crowd(8, 200); /* all in one round */
    crowd(1, KEYS);
}

/* Two logs of so many units. Each is used for more units than a round reports of a log. */
static void use_logs_in_use(uint64_t first, uint64_t second)
{
    struct nodes n;
    const weir_limit limit = {.algorithm = WEIR_SLIDING_LOG, .limit = 60000, .period_ns = 24 * HOUR};
    struct node *node = start_small(&n, &limit);
    assert_true(use_named(node, "log", 1, first));
    assert_true(use_named(node, "log", 2, second));
    use_each(node, 100);
    const uint64_t remote = KEYS / 100;
    ask_for_flush(node);
    for (size_t polls = 0; !is_served(node); polls++) {
        assert_true(polls < 100);
        (void) use_named(node, "log", 1, 300);
        (void) use_named(node, "log", 2, 300);
        fake_clock_advance(&n.fleet_clock, 2 * MILLISECOND);
        fake_clock_advance(&node->clock, 2 * MILLISECOND);
        assert_true(weir_poll(node->w) >= 0);
    }
    assert_true(loopback_fleet_sum(n.fleet, ":p:log-1") >= first);
    assert_true(loopback_fleet_sum(n.fleet, ":p:log-2") >= second);
    assert_true(counts(&n) >= first + second + remote);
    nodes_stop(&n);
}

static void test_a_log_that_is_in_use_is_waited_for_up_to_what_it_held(void **state)
{
    (void) state;
    use_logs_in_use(1000, 4000);
    use_logs_in_use(4000, 1000);
}

/*
 * More logs than a round holds, whose only unreported change is a refund; and one log with more refunds than the
 * others.
 */
static void test_what_is_given_back_of_logs_is_told(void **state)
{
    (void) state;
    enum { LOGS = 500, MUCH = 3500 }; /* of 1,000 keys: none is evicted */
    struct nodes n;
    const weir_limit limit = {.algorithm = WEIR_SLIDING_LOG, .limit = 60000, .period_ns = 24 * HOUR};
    struct node *node = start_small(&n, &limit);
    for (int i = 0; i < LOGS; i++) {
        assert_true(use_named(node, "log", i, i == 7 ? MUCH : 3));
    }
    assert_int_equal(weir_sync(node->w, 60000), 0);
    assert_int_equal(counts(&n), 3 * (LOGS - 1) + MUCH);
    for (int i = 0; i < LOGS; i++) {
        char name[16];
        const int length = snprintf(name, sizeof(name), "log-%d", i);
        const weir_key key = weir_make_key(node->w, node->key.policy, name, (size_t) length);
        weir_refund(node->t, &key, i == 7 ? MUCH - 1 : 1);
    }
    assert_int_equal(weir_sync(node->w, 60000), 0);
    assert_int_equal(counts(&n), 2 * (LOGS - 1) + 1);
    nodes_stop(&n);
}

static void test_what_cannot_wait_goes_beside_it_and_ends_it_no_later(void **state)
{
    (void) state;
    struct nodes n;
    struct node *node = start(&n, true);
    node->key = key_of(node, 1);
    const struct fleet_stats *stats = &node->w->fleet->stats;
    const uint64_t before = stats->urgent_sync_count;
    ask_for_flush(node);
    size_t rounds = 0;
    for (; !is_served(node); rounds++) {
        assert_true(rounds < 30);
        (void) ask(node, 1);
        make_urgent(node);
        assert_true(weir_poll(node->w) >= 0);
    }
    assert_in_range(stats->urgent_sync_count - before, 3, rounds / 2 + 1);
    nodes_stop(&n);
}

/*
 * The next rounds report them, ten milliseconds after each other. They wait neither for the next interval nor for the
 * scan.
 */
static void test_keys_that_cannot_wait_and_have_no_room_in_a_round_are_in_the_next_one(void **state)
{
    (void) state;
    struct nodes n;
    struct node *node = start(&n, false);
    struct process *process = &node->w->limiter.process;
    const uint64_t next_ns = node->w->fleet->schedule.next_ns;
    while (node->w->fleet->schedule.next_ns == next_ns) {
        pass(&n, STEP_MS); /* a whole interval is ahead */
    }
    pass(&n, 2 * STEP_MS);
    use_each(node, 1);
    for (uint32_t at = 0; at < process->table.cell_count; at++) {
        if (load_relaxed(&process->table.cells[at].hash) != 0) {
            bitmap_set(&process->table.urgent, at);
        }
    }
    store_relaxed(&process->shared->urgent, 1);
    pass(&n, INTERVAL_MS / 2);
    assert_int_equal(counts(&n), node->used);
    nodes_stop(&n);
}

/*
 * No call waits any more: the full sync goes through the table once. Units that could not be reported then go with each
 * interval.
 */
static void test_a_weir_sync_that_has_given_up_drives_no_more_rounds(void **state)
{
    (void) state;
    struct nodes n;
    struct node *node = start(&n, true);
    const struct fleet *fleet = node->w->fleet;
    loopback_transport_set_link(fleet->transport, &(struct loopback_link){.unsaid_ppm = 1000000});
    assert_int_equal(weir_sync(node->w, 30), -ETIMEDOUT);
    pass(&n, INTERVAL_MS);
    assert_int_equal(fleet->full_sync.request, 0);
    const uint64_t rounds = fleet->stats.sync_count;
    pass(&n, 10 * INTERVAL_MS);
    assert_in_range(fleet->stats.sync_count - rounds, 5, 30);
    loopback_transport_set_link(fleet->transport, &(struct loopback_link){.unsaid_ppm = 0});
    ask_for_flush(node);
    expect_reported(&n, node, node->used);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_news_that_waits_its_turn_is_told),
        cmocka_unit_test(test_a_fleet_that_lost_its_data_twice_is_told_all_at_once),
        cmocka_unit_test(test_what_is_used_behind_it_is_not_waited_for),
        cmocka_unit_test(test_a_round_of_it_that_fails_is_told_again),
        cmocka_unit_test(test_reports_that_could_not_be_said_are_told_again),
        cmocka_unit_test(test_a_fleet_that_has_forgotten_is_told_everything),
        cmocka_unit_test(test_forgotten_keys_leave_room_for_those_that_are_there),
        cmocka_unit_test(test_forgotten_keys_are_told_beside_urgent_logs),
        cmocka_unit_test(test_a_key_that_is_claimed_is_waited_for),
        cmocka_unit_test(test_forgotten_keys_of_a_round_that_failed_outlast_an_urgent_one),
        cmocka_unit_test(test_forgotten_keys_that_could_not_be_said_are_told_again),
        cmocka_unit_test(test_a_key_that_is_forgotten_just_before_it_comes_to_it_is_told),
        cmocka_unit_test(test_a_log_that_is_in_use_is_waited_for_up_to_what_it_held),
        cmocka_unit_test(test_what_is_given_back_of_logs_is_told),
        cmocka_unit_test(test_what_cannot_wait_goes_beside_it_and_ends_it_no_later),
        cmocka_unit_test(test_what_passed_on_a_grant_that_lasts_is_told),
        cmocka_unit_test(test_a_slot_that_is_locked_is_not_waited_for),
        cmocka_unit_test(test_one_that_begins_again_lets_grants_last),
        cmocka_unit_test(test_one_of_no_time_goes_on_by_itself),
        cmocka_unit_test(test_keys_that_cannot_wait_and_have_no_room_in_a_round_are_in_the_next_one),
        cmocka_unit_test(test_a_weir_sync_that_has_given_up_drives_no_more_rounds),
    };
    return cmocka_run_group_tests_name("unit/fleet/full_sync", tests, NULL, NULL);
}
