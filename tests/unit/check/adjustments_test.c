/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls that change what a key has used: weir_refund, weir_charge, weir_reserve and weir_reset. Under a clock that
 * the test moves, except for the last three tests.
 *
 * Guards: src/check/refund.c, src/check/charge.c, src/check/reserve.c, src/check/reset.c
 */
#include <errno.h>
#include <inttypes.h>

#include "process/process.h"
#include "support/two_handles.h"
#include "thread/slot.h"
#include "thread/thread.h"

static void test_a_refund_belongs_to_the_window_it_was_taken_from(void **state)
{
    (void) state;
    for (size_t i = 0; i < 2; i++) { /* the windows */
        const bool slides = i == 1;
        open_limits(&kinds[i], 1);
        assert_int_equal(take(d.t, &d.key, 60), 60);
        pass_time(50 * SECOND); /* to the boundary */
        assert_int_equal(left(&d.key), slides ? 40 : 100);
        weir_refund(d.u, &d.key, 20);
        assert_int_equal(left(&d.key), slides ? 60 : 100); /* never above the limit */
        assert_int_equal(take(d.t, &d.key, 10), 10);
        weir_refund(d.t, &d.key, 15); /* the latest units go first: 10 of this window, 5 of the window before */
        assert_int_equal(take(d.t, &d.key, 200), slides ? 65 : 100);
        pass_time(2 * MINUTE); /* a refund now is of a window that no longer counts */
        weir_refund(d.t, &d.key, 100);
        assert_int_equal(take(d.t, &d.key, 200), 100);
    }
}

static void test_a_refund_gives_back_what_was_taken_to_any_thread_at_once(void **state)
{
    (void) state;
    for (size_t i = 0; next_kind(i); i++) {
        weir_refund(d.t, &d.key, 50); /* no unit was taken */
        assert_int_equal(take_both(30), 60);
        weir_refund(d.t, &d.key, 0);
        weir_refund(d.u, &d.key, 25);
        assert_int_equal(left(&d.key), 65);
        weir_refund(d.t, &d.key, UINT64_MAX);
        weir_refund(d.u, &d.key, UINT64_MAX);
        assert_int_equal(take_both(90), 100);
        for (int n = 0; n < 20; n++) { /* after a denial of both */
            assert_int_equal(take_both(3), 0);
            weir_refund(n % 2 == 0 ? d.t : d.u, &d.key, 1);
            assert_true(weir_check(n % 3 == 0 ? d.t : d.u, &d.key, 1, NULL));
        }
    }
}

/* A log is left out: its latest units are those of grants, and a refund takes the latest ones. */
static void test_a_refund_of_units_that_are_charged_leaves_other_threads_their_grants(void **state)
{
    (void) state;
    for (size_t i = 0; next_kind(i); i++) {
        const weir_limit limit = of_units(kinds[i], 1000);
        if (limit.algorithm == WEIR_SLIDING_LOG || limit.algorithm == WEIR_LEAKY_BUCKET) {
            continue;
        }
        set_limits(&limit, 1);
        uint64_t used = 100;
        weir_charge(d.u, &d.key, used);
        do {
            used += take(d.t, &d.key, 1);
        } while (slot_covering(d.t, d.key.hash, 1) == NULL);
        for (uint64_t n = 1; n <= 40; n += 13) {
            weir_refund(d.u, &d.key, n);
            used -= n;
            assert_non_null(slot_covering(d.t, d.key.hash, 1));
        }
        weir_refund(d.u, &d.key, used);
        assert_int_equal(left(&d.key), 1000);
    }
}

static void test_denials_that_a_caller_counts_change_no_answer(void **state)
{
    (void) state;
    for (size_t i = 0; next_kind(i); i++) {
        weir_stats before;
        weir_stats after;
        weir_offender offenders[WEIR_TOP_OFFENDERS];
        const weir_key other = weir_make_key(d.w, d.key.policy, "other", 5);
        const weir_key unknown = weir_make_key(d.w, WEIR_NO_POLICY, "key", 3);
        assert_int_equal(take(d.t, &d.key, 30), 30);
        weir_get_stats(d.w, &before);
        weir_count_denied(d.t, &d.key, 6, 699);
        weir_count_denied(d.t, &d.key, 1, 1);
        weir_count_denied(d.u, &other, 3, UINT64_MAX);
        weir_count_denied(d.u, &other, 0, 5);
        weir_count_denied(d.u, &unknown, 2, 2);
        weir_count_denied(NULL, &d.key, 1, 1);
        assert_int_equal(left(&d.key), 70);
        assert_int_equal(left(&other), 100);
        assert_int_equal(take_both(100), 70);
        pass_time(100 * MILLISECOND); /* the lists of denied keys are made */
        weir_get_stats(d.w, &after);
        assert_int_equal(after.denied_count - before.denied_count, 7 + 3 + 130);
        assert_int_equal(after.allowed_count - before.allowed_count, 70);
        assert_int_equal(after.unknown_policy_count, before.unknown_policy_count);
        assert_int_equal(weir_top_offenders(d.w, d.key.policy, offenders, WEIR_TOP_OFFENDERS), 2);
        assert_string_equal(offenders[0].key, "other");
        assert_int_equal(offenders[1].denied_units, 700 + 130);
    }
}

/* A key with an entry that allows or denies it has no count: what it used before, and after, is as without the entry.
 */
static void test_what_has_no_limits_is_counted_nowhere(void **state)
{
    (void) state;
    static const char *const names[] = {"k", "friend", "foe", "new friend", "new foe"};
    for (size_t i = 0; next_kind(i); i++) {
        weir_key keys[COUNT_OF(names)];
        weir_stats before;
        weir_stats after;
        const weir_key unknown = weir_make_key(d.w, WEIR_NO_POLICY, "k", 1);
        for (size_t k = 0; k < COUNT_OF(names); k++) {
            keys[k] = key_of("p", names[k]);
            weir_charge(d.t, &keys[k], k < 3 ? 30 : 0);
        }
        for (size_t k = 1; k < COUNT_OF(names); k++) {
            char name[32] = "p:";
            assert_int_equal(weir_set_override(d.w, strcat(name, names[k]), k % 2 == 1 ? "allow" : "deny", NULL), 0);
        }
        weir_get_stats(d.w, &before);
        assert_int_equal(before.key_count, 3);
        for (int n = 0; n < 4; n++) {
            weir_thread *t = n % 2 == 0 ? d.t : d.u;
            for (size_t k = 1; k < COUNT_OF(names); k++) {
                weir_charge(t, &keys[k], 5);
                weir_refund(t, &keys[k], 1);
                weir_count_denied(t, &keys[k], 2, 4);
            }
            weir_charge(t, &unknown, 5);
            weir_refund(t, &unknown, 5);
            weir_charge(t, &keys[0], 0);
            weir_refund(t, &keys[0], 0);
        }
        weir_charge(NULL, &keys[0], 5);
        weir_refund(NULL, &keys[0], 5);
        pass_time(100 * MILLISECOND); /* the lists of denied keys are made */
        weir_get_stats(d.w, &after);
        assert_int_equal(after.key_count, 3);
        assert_int_equal(after.denied_count - before.denied_count, 4 * 4 * 2);
        assert_int_equal(after.denied_units, before.denied_units);
        assert_true(after.allowed_count == before.allowed_count && after.untracked_count == 0);
        for (size_t k = 1; k < COUNT_OF(names); k++) {
            char name[32] = "p:";
            assert_int_equal(weir_set_override(d.w, strcat(name, names[k]), NULL, NULL), 0);
        }
        for (size_t k = 0; k < COUNT_OF(names); k++) {
            assert_int_equal(left(&keys[k]), k < 3 ? 70 : 100);
        }
    }
}

/*
 * 20 units are used, then 130 are charged: 51 too many for the next unit. The sliding window carries 150 into the next
 * minute, of which ceil(150 (60 - t) / 60) is 99 at t = 20.4 s.
 */
static void test_later_requests_wait_for_what_was_charged(void **state)
{
    (void) state;
    static const uint64_t waits_ms[] = {50000, 70400, 60000, 30600, 30600, 86390000, UINT64_C(2678390000)};
    for (size_t i = 0; next_kind(i); i++) {
        assert_int_equal(take(d.t, &d.key, 20), 20);
        weir_charge(d.u, &d.key, 30); /* within the limit a charge is as a check */
        assert_int_equal(left(&d.key), 50);
        assert_int_equal(take(d.t, &d.key, 10), 10);
        weir_charge(d.u, &d.key, 100);
        weir_refund(d.u, &d.key, 10); /* a charge can be refunded */
        weir_verdict v;
        assert_true(!weir_check(d.t, &d.key, 1, &v) && v.remaining == 0); /* and its grant is gone */
        assert_int_equal(v.retry_after_ns, waits_ms[i] * MILLISECOND);
        pass_time(v.retry_after_ns - 1);
        assert_int_equal(take_both(2), 0);
        pass_time(1);
        assert_true(weir_check(d.u, &d.key, 1, NULL));
        weir_charge(d.t, &d.key, UINT64_MAX); /* taken for WEIR_MAX_UNITS */
        assert_int_equal(take_both(9), 0);
    }
}

static void test_reservations_are_spaced_evenly_and_wait_no_longer_than_asked(void **state)
{
    (void) state;
    const weir_limit limit = {.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .period_ns = SECOND, .burst = 5};
    open_limits(&limit, 1);
    uint64_t wait_ns = 1;
    assert_true(weir_reserve(NULL, &d.key, 100, 0, NULL));
    assert_true(weir_reserve(NULL, &d.key, 100, 0, &wait_ns) && wait_ns == 0); /* without a handle all pass */
    for (uint64_t i = 0; i < 5; i++) {
        assert_true(weir_reserve(i % 2 == 0 ? d.t : d.u, &d.key, 1, NEVER, &wait_ns) &&
                    wait_ns == 100 * i * MILLISECOND);
    }
    /* Five places are taken: the request could go after them. */
    assert_false(weir_reserve(d.t, &d.key, 1, NEVER, &wait_ns));
    assert_int_equal(wait_ns, 500 * MILLISECOND);
    weir_refund(d.t, &d.key, 2); /* the last two are cancelled */
    assert_true(!weir_reserve(d.t, &d.key, 1, 300 * MILLISECOND - 1, &wait_ns) && wait_ns == 300 * MILLISECOND);
    assert_true(weir_reserve(d.t, &d.key, 1, 300 * MILLISECOND, &wait_ns) && wait_ns == 300 * MILLISECOND);
    assert_false(weir_check(d.t, &d.key, 1, NULL)); /* a reservation that cannot wait */
    pass_time(50 * MILLISECOND);
    assert_false(weir_reserve(d.u, &d.key, 2, NEVER, NULL));
    assert_true(weir_reserve(d.u, &d.key, 1, NEVER, NULL)); /* in 350 ms */
    pass_time(450 * MILLISECOND);
    assert_true(weir_check(d.u, &d.key, 3, NULL)); /* the next request waits for all three */
    assert_true(weir_reserve(d.t, &d.key, 0, NEVER, &wait_ns) && wait_ns == 300 * MILLISECOND);
}

/* Of a log, the latest units are those that passed on the grants of both threads: the units before them stay. */
static void test_a_refund_of_a_log_takes_the_units_of_other_threads_grants_first(void **state)
{
    (void) state;
    const weir_limit limit = {.algorithm = WEIR_SLIDING_LOG, .limit = 10000, .period_ns = MINUTE};
    open_limits(&limit, 1);
    weir_charge(d.t, &d.key, 500);
    pass_time(30 * SECOND);
    assert_int_equal(take_both(300), 600);
    weir_refund(d.t, &d.key, 600);
    assert_int_equal(left(&d.key), 10000 - 500);
    pass_time(31 * SECOND);
    assert_int_equal(left(&d.key), 10000);
}

/* Units that a request under way holds are before a reservation in the queue. */
static void test_a_reservation_queues_behind_units_that_are_held(void **state)
{
    (void) state;
    const weir_limit limit = {.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .period_ns = SECOND, .burst = 5};
    open_limits(&limit, 1);
    uint64_t wait_ns;
    assert_true(weir_reserve(d.t, &d.key, 1, NEVER, &wait_ns) && wait_ns == 0);
    struct process *process = d.t->process;
    const struct policy *policy = policy_set_by_id(process_policies(process), d.key.policy);
    struct cell *cell = &process->table.cells[table_find(&process->table, cell_hash(policy, &d.key, 0))];
    (void) cell_hold(cell, 2);
    assert_true(weir_reserve(d.t, &d.key, 1, NEVER, &wait_ns) && wait_ns == 300 * MILLISECOND);
    (void) cell_hold(cell, (uint64_t) 0 - 2);
}

/* Units that nobody can take back: their thread stands still, and the place in a queue of several limits is unknown. */
static void test_a_reservation_of_several_limits_is_refused_while_others_hold_units(void **state)
{
    (void) state;
    static const weir_limit limits[] = {{.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .period_ns = SECOND, .burst = 5},
                                        {.algorithm = WEIR_FIXED_WINDOW, .limit = 100, .period_ns = MINUTE}};
    static const struct {
        const char *key;
        uint64_t places; /* taken before */
        size_t limit;    /* of which units are held */
        uint64_t held, wait_ms;
    } rows[] = {{"a", 1, 0, 3, 400}, {"b", 0, 0, 2, 200}, {"c", 2, 1, 7, 200}, {"d", 0, 1, 7, 1}, {"e", 0, 0, 5, 500}};
    for (size_t i = 0; i < 2 * COUNT_OF(rows); i++) {
        const bool shadow = i % 2 != 0;
        const weir_policy p = {
            .name = "p", .limits = limits, .limit_count = 2, .mode = shadow ? WEIR_SHADOW : WEIR_ENFORCE};
        uint64_t wait_ns;
        weir_stats before;
        weir_stats after;
        open_two_handles(&p, 1);
        d.key = key_of("p", rows[i / 2].key);
        (void) weir_peek(d.t, &d.key, 1, NULL); /* now the key has its cells */
        assert_true(rows[i / 2].places == 0 || weir_reserve(d.t, &d.key, rows[i / 2].places, 0, NULL));
        struct process *process = d.t->process;
        const struct policy *policy = policy_set_by_id(process_policies(process), d.key.policy);
        const uint64_t hash = cell_hash(policy, &d.key, rows[i / 2].limit);
        struct cell *cell = &process->table.cells[table_find(&process->table, hash)];
        weir_get_stats(d.w, &before);
        (void) cell_hold(cell, rows[i / 2].held);
        assert_int_equal(weir_reserve(d.t, &d.key, 1, NEVER, &wait_ns), shadow);
        (void) cell_hold(cell, (uint64_t) 0 - rows[i / 2].held);
        weir_get_stats(d.w, &after);
        assert_int_equal(wait_ns, shadow ? 0 : rows[i / 2].wait_ms * MILLISECOND);
        assert_int_equal(after.stalled_denied_count - before.stalled_denied_count, !shadow);
        assert_int_equal(after.denied_count - before.denied_count, !shadow);
        assert_int_equal(after.would_deny_count - before.would_deny_count, shadow);
        assert_true(weir_reserve(d.t, &d.key, 1, NEVER, &wait_ns));
        assert_int_equal(wait_ns, rows[i / 2].places * 100 * MILLISECOND);
    }
}

/* Nobody knows what the key has used, so a request is refused, and may come again in a second. */
static void test_a_reservation_or_a_charge_that_finds_no_memory_for_its_log_is_untracked(void **state)
{
    (void) state;
    const weir_limit limits[] = {of_units(kinds[2], WEIR_MAX_LOG_UNITS), of_units(kinds[0], WEIR_MAX_LOG_UNITS)};
    for (size_t count = 1; count <= 2; count++) {
        uint64_t wait_ns = 0;
        weir_stats stats;
        open_limits(limits, count);
        char name[2] = "a";
        weir_key key = key_of("p", name);
        while (weir_reserve(d.t, &key, WEIR_MAX_LOG_UNITS, 0, &wait_ns)) {
            assert_int_equal(wait_ns, 0);
            assert_in_range(++name[0], 'b', 'z');
            key = key_of("p", name);
        }
        assert_int_equal(wait_ns, SECOND);
        weir_get_stats(d.w, &stats);
        assert_int_equal(stats.untracked_count, 1);
        assert_int_equal(stats.denied_count, 1);
        assert_int_equal(stats.allowed_count, name[0] - 'a');
        assert_int_equal(left(&key), WEIR_MAX_LOG_UNITS);
        assert_true(!weir_reserve(d.t, &d.key, WEIR_MAX_LOG_UNITS, 0, &wait_ns) && wait_ns == SECOND);
        weir_charge(d.t, &d.key, WEIR_MAX_LOG_UNITS);
        weir_get_stats(d.w, &stats);
        assert_int_equal(stats.untracked_count, 3);
    }
}

/* Three units of a tenth of a second become three of a twentieth. */
static void test_a_reservation_waits_by_the_rate_that_a_queue_has_now(void **state)
{
    (void) state;
    weir_limit limit = {.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .period_ns = SECOND, .burst = 5};
    open_limits(&limit, 1);
    assert_true(weir_reserve(d.t, &d.key, 3, NEVER, NULL));
    limit.limit = 20;
    set_limits(&limit, 1);
    uint64_t wait_ns;
    assert_true(weir_reserve(d.t, &d.key, 1, NEVER, &wait_ns));
    assert_int_equal(wait_ns, 150 * MILLISECOND);
}

/*
 * A queue of 5 places, one each 100 ms. A thread caches its numbers for an epoch. Each change takes force within the
 * same epoch, for the key that the thread has just asked for and refused.
 */
static void test_a_change_of_a_queue_holds_for_the_next_reservation(void **state)
{
    (void) state;
    weir_limit limit = {.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .period_ns = SECOND, .burst = 5};
    weir_policy policy = {.name = "p", .limits = &limit, .limit_count = 1};
    open_two_handles(&policy, 1);
    uint64_t wait_ns;
    for (int i = 0; i < 5; i++) {
        assert_true(weir_reserve(d.t, &d.key, 1, NEVER, NULL));
    }
    for (int i = 0; i < 5; i++) {
        assert_true(!weir_reserve(d.t, &d.key, 1, NEVER, &wait_ns) && wait_ns == 500 * MILLISECOND);
    }
    assert_int_equal(weir_set_override(d.w, "p:k", "allow", NULL), 0);
    assert_true(weir_reserve(d.t, &d.key, 1, NEVER, &wait_ns) && wait_ns == 0);
    assert_int_equal(weir_set_override(d.w, "p:k", "deny", NULL), 0);
    assert_true(!weir_reserve(d.t, &d.key, 1, NEVER, &wait_ns) && wait_ns == NEVER);
    assert_int_equal(weir_set_override(d.w, "p:k", NULL, NULL), 0);
    assert_true(!weir_reserve(d.t, &d.key, 1, NEVER, &wait_ns) && wait_ns == 500 * MILLISECOND);
    limit.burst = 6;
    assert_int_equal(weir_set_policies(d.w, &policy, 1, NULL), 0);
    assert_true(weir_reserve(d.t, &d.key, 1, NEVER, &wait_ns) && wait_ns == 500 * MILLISECOND);
    assert_false(weir_reserve(d.t, &d.key, 1, NEVER, NULL));
    policy.mode = WEIR_SHADOW;
    assert_int_equal(weir_set_policies(d.w, &policy, 1, NULL), 0);
    for (int i = 0; i < 3; i++) {
        assert_true(weir_reserve(d.t, &d.key, 1, NEVER, &wait_ns) && wait_ns == 0);
    }
    assert_int_equal(weir_set_policies(d.w, NULL, 0, NULL), 0);
    assert_true(weir_reserve(d.t, &d.key, 1, NEVER, &wait_ns) && wait_ns == 0);
    weir_stats stats;
    weir_get_stats(d.w, &stats);
    assert_int_equal(stats.denied_count, 5 + 1 + 1 + 1);
    assert_int_equal(stats.would_deny_count, 3);
    assert_int_equal(stats.unknown_policy_count, 1);
}

/* Each refusal counts for its key, whichever way it was decided. */
static void test_refused_reservations_name_the_key_that_is_refused_most(void **state)
{
    (void) state;
    const weir_limit limit = {.algorithm = WEIR_LEAKY_BUCKET, .limit = 1, .period_ns = MINUTE};
    open_limits(&limit, 1);
    const weir_key other = key_of("p", "other");
    for (uint64_t i = 0; i < 101; i++) {
        assert_int_equal(weir_reserve(i % 2 == 0 ? d.t : d.u, &d.key, 1, NEVER, NULL), i == 0);
        assert_int_equal(weir_reserve(d.t, &other, i % 4 == 3, NEVER, NULL), i < 4);
    }
    pass_time(40 * MILLISECOND);
    weir_offender offenders[2];
    assert_int_equal(weir_top_offenders(d.w, d.key.policy, offenders, 2), 2);
    assert_int_equal(offenders[0].denied_units, 100);
    assert_int_equal(offenders[1].denied_units, 97);
}

static void test_a_token_bucket_lends_and_other_limits_have_no_queue(void **state)
{
    (void) state;
    for (size_t i = 0; next_kind(i); i++) {
        const bool lends = kinds[i].algorithm == WEIR_TOKEN_BUCKET;
        uint64_t wait_ns = 1;
        assert_true(weir_reserve(d.t, &d.key, 98, 0, &wait_ns) && wait_ns == 0);
        assert_int_equal(weir_reserve(d.u, &d.key, 4, NEVER, &wait_ns), lends);
        assert_true(lends ? wait_ns == 1200 * MILLISECOND : wait_ns > 0);
        assert_int_equal(left(&d.key), lends ? 0 : 2); /* a refused reservation takes no unit */
        weir_refund(d.t, &d.key, lends ? 4 : 0);
        assert_int_equal(take(d.t, &d.key, 9), 2);
        assert_false(weir_reserve(d.t, &d.key, 1, 0, NULL));
    }
}

static void test_a_reservation_of_very_many_units_is_as_good_as_a_check(void **state)
{
    (void) state;
    const weir_limit limits[] = {of_units(kinds[3], UINT64_C(1) << 34), of_units(kinds[5], UINT64_C(1) << 34)};
    for (size_t count = 1; count <= 2; count++) {
        open_limits(limits, count);
        assert_true(weir_check(d.t, &d.key, UINT64_C(1) << 32, NULL));
        assert_true(weir_reserve(d.t, &d.key, UINT64_C(1) << 32, 0, NULL));
        assert_int_equal(left(&d.key), UINT64_C(1) << 33);
    }
}

static void test_a_reset_forgets_what_was_used_charged_and_denied(void **state)
{
    (void) state;
    for (size_t i = 0; next_kind(i); i++) {
        for (uint64_t n = 0; n < 3; n++) {
            assert_int_equal(take_both(60), 100);
            weir_charge(d.t, &d.key, 500 * n);
            assert_false(weir_check(d.t, &d.key, 1, NULL) || weir_check(d.u, &d.key, 1, NULL)); /* slots deny now */
            assert_int_equal(weir_reset(d.w, &d.key), 0);
            weir_verdict v;
            assert_true(weir_peek(d.u, &d.key, 100, &v) && v.remaining == 100 && v.reset_after_ns == 0);
            assert_true(weir_peek(d.t, &d.key, 1, NULL) && weir_check(d.u, &d.key, 1, NULL));
            weir_refund(d.u, &d.key, 1);
            pass_time(n == 0 ? 50 * SECOND : 0); /* and the units do not come back with the next window */
        }
        const weir_key none = weir_make_key(d.w, WEIR_NO_POLICY, "k", 1);
        assert_int_equal(weir_reset(d.w, &none), -ENOENT);
    }
}

/*
 * Three tiers: "free" and "pro" have a count in common, and each has counts of its own; 100 units of each limit pass.
 * The key is used under all of them, and its usage may have been evicted since.
 */
static void test_a_reset_clears_all_limits_of_all_tiers_and_what_is_remembered_of_evicted_keys(void **state)
{
    (void) state;
    static const size_t tier_limits[3][WEIR_MAX_LIMITS] = {{0, 5, 3}, {5, 2, 1}, {4}};
    static const size_t counts[] = {3, 3, 1};
    static const char *const names[] = {"api/free", "api/pro", "api/queue"};
    weir_limit limits[3][WEIR_MAX_LIMITS];
    weir_policy tiers[3];
    for (size_t i = 0; i < 3; i++) {
        for (size_t n = 0; n < counts[i]; n++) {
            limits[i][n] = kinds[tier_limits[i][n]];
        }
        tiers[i] = (weir_policy){.name = names[i], .limits = limits[i], .limit_count = counts[i]};
    }
    for (size_t by = 0; by < 6; by++) { /* by each tier, of keys in the table, and of keys that were evicted */
        weir_key keys[3][2];
        const bool evicted = by >= 3;
        open_two_handles(tiers, 3);
        struct process *process = d.t->process;
        for (size_t i = 0; i < 3; i++) {
            for (size_t k = 0; k < 2; k++) {
                keys[i][k] = key_of(names[i], k == 0 ? "ann" : "bob");
                const struct policy *policy = policy_set_by_id(process_policies(process), keys[i][k].policy);
                for (size_t n = 0; evicted && n < counts[i]; n++) {
                    (void) sketch_record(&process->sketch, cell_hash(policy, &keys[i][k], n),
                                         (struct usage){60, START_NS + HOUR}, SKETCH_REFUSED, START_NS);
                }
                assert_int_equal(take(k == 0 ? d.t : d.u, &keys[i][k], evicted ? 0 : 30), evicted ? 0 : 30);
            }
        }
        assert_int_equal(weir_reset(d.w, &keys[by % 3][0]), 0);
        for (size_t i = 0; i < 3; i++) {
            weir_verdict v;
            assert_true(weir_peek(d.u, &keys[i][0], 100, &v) && v.remaining == 100 && v.reset_after_ns == 0);
            const struct policy *policy = policy_set_by_id(process_policies(process), keys[i][0].policy);
            for (size_t n = 0; n < counts[i];
                 n++) { /* nor will it come back with the key, should it be evicted again */
                const uint64_t hash = cell_hash(policy, &keys[i][0], n);
                assert_int_equal(sketch_find(&process->sketch, hash, 100, START_NS).units, 0);
            }
            assert_int_equal(left(&keys[i][1]), evicted || i < 2 ? 40 : 70);
        }
    }
}

/* The key has no cell, and no other key can give way: each cell is pinned. */
static void test_a_reset_of_a_key_that_finds_no_cell_changes_nothing(void **state)
{
    (void) state;
    for (size_t i = 0; next_kind(i); i++) {
        struct table *table = &d.t->process->table;
        const weir_key other = key_of("p", "other");
        assert_int_equal(take(d.t, &other, 30), 30);
        for (uint32_t at = 0; at < table->cell_count; at++) {
            (void) cell_hold(&table->cells[at], HELD_PIN);
            if (load_relaxed(&table->cells[at].hash) == 0) {
                store_relaxed(&table->cells[at].hash, UINT64_MAX - at);
            }
        }
        assert_int_equal(weir_reset(d.w, &d.key), 0);
        for (uint32_t at = 0; at < table->cell_count; at++) {
            (void) cell_hold(&table->cells[at], (uint64_t) 0 - HELD_PIN);
            if (load_relaxed(&table->cells[at].hash) == UINT64_MAX - at) {
                store_relaxed(&table->cells[at].hash, 0);
                assert_int_equal(load_relaxed(&table->cells[at].held) & HELD_IN_USE, 0);
            }
        }
        assert_true(left(&other) == 70 && left(&d.key) == 100);
    }
}

static void test_a_reset_moves_no_time_where_the_host_does(void **state)
{
    (void) state;
    open_limits(&kinds[3], 1);
    const weir_key other = key_of("p", "other");
    assert_int_equal(take(d.t, &other, 101), 100);
    fake_clock_advance(&d.clock, 30 * SECOND);
    assert_int_equal(weir_reset(d.w, &d.key), 0);
    assert_false(weir_check(d.u, &other, 1, NULL));
    pass_time(0);
    assert_true(weir_check(d.u, &other, 50, NULL));
}

/* Opens the weir on the system's clock. */
static void open_real(weir_limit limit)
{
    (void) close_two_handles(NULL);
    d.w = open_or_fail(NULL);
    d.t = weir_attach(d.w);
    d.u = weir_attach(d.w);
    d.key = weir_make_key(d.w, set_one_policy(d.w, &limit, 1, WEIR_SCOPE_FLEET), "k", 1);
}

static void test_in_real_time_a_reset_right_after_use_leaves_all_of_it(void **state)
{
    (void) state;
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        weir_limit limit = kinds[i];
        limit.period_ns *= 1440; /* so slow that nothing refills meanwhile */
        open_real(limit);
        for (int n = 0; n < 300; n++) {
            assert_int_equal(take_both(30), 60);
            assert_int_equal(weir_reset(d.w, &d.key), 0);
            weir_verdict v;
            (void) weir_peek(n % 2 == 0 ? d.t : d.u, &d.key, 100, &v);
            if (v.remaining != 100) {
                fail_msg("algorithm %d: %" PRIu64 " left", (int) limit.algorithm, v.remaining);
            }
        }
    }
}

/* When 30 places that were taken in a row are due. */
static void test_in_real_time_reservations_are_even(void **state)
{
    (void) state;
    open_real((weir_limit){.algorithm = WEIR_LEAKY_BUCKET, .limit = 100, .period_ns = SECOND, .burst = 50});
    bool even = false;
    for (int attempt = 0; attempt < 100 && !even; attempt++) { /* until no other process takes the processor */
        assert_int_equal(weir_reset(d.w, &d.key), 0);
        const uint64_t start_ns = real_ns();
        uint64_t due_ns[30];
        for (size_t i = 0; i < 30; i++) {
            assert_true(weir_reserve(d.t, &d.key, 1, SECOND, &due_ns[i]));
            due_ns[i] += real_ns();
        }
        even = real_ns() - start_ns < 3 * MILLISECOND;
        for (size_t i = 1; i < 30 && even; i++) {
            assert_in_range(due_ns[i] - due_ns[i - 1], 7 * MILLISECOND, 13 * MILLISECOND);
        }
    }
    assert_true(even);
}

static void test_a_clock_of_the_host_counts_before_the_time_that_a_thread_has_set(void **state)
{
    (void) state;
    const weir_limit queue = {.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .period_ns = SECOND, .burst = 2};
    open_limits(&queue, 1);
    uint64_t wait_ns;
    for (uint64_t i = 0; i < 2; i++) {
        weir_set_time(d.t, (i + 1) * HOUR);
        assert_true(weir_reserve(d.t, &d.key, 1, NEVER, &wait_ns) && wait_ns == 100 * i * MILLISECOND);
    }
    weir_set_time(d.t, 3 * HOUR);
    assert_false(weir_reserve(d.t, &d.key, 1, NEVER, NULL));
}

/* A queue of ten places a second, by times that the test sets. */
static void test_a_reservation_is_decided_by_the_time_that_its_thread_has_set(void **state)
{
    (void) state;
    open_real((weir_limit){.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .period_ns = SECOND, .burst = 5});
    const uint64_t start_ns = real_ns();
    uint64_t wait_ns;
    weir_set_time(NULL, start_ns);
    weir_set_time(d.t, start_ns);
    weir_set_time(d.u, start_ns + 250 * MILLISECOND);
    for (uint64_t i = 0; i < 5; i++) {
        assert_true(weir_reserve(d.t, &d.key, 1, NEVER, &wait_ns) && wait_ns == 100 * i * MILLISECOND);
    }
    for (int i = 0; i < 3; i++) { /* refusals of a key that was refused are counted another way */
        assert_true(!weir_reserve(d.t, &d.key, 1, NEVER, &wait_ns) && wait_ns == 500 * MILLISECOND);
    }
    assert_true(weir_reserve(d.u, &d.key, 1, NEVER, &wait_ns) && wait_ns == 250 * MILLISECOND);
    weir_set_time(d.t, start_ns + 600 * MILLISECOND);
    assert_true(weir_reserve(d.t, &d.key, 1, NEVER, &wait_ns) && wait_ns == 0);
    /* By the clock the queue is empty an hour later, and full for a while yet. */
    weir_set_time(d.t, start_ns + HOUR);
    assert_true(weir_reserve(d.t, &d.key, 5, NEVER, &wait_ns) && wait_ns == 0);
    weir_set_time(d.t, 0);
    assert_false(weir_reserve(d.t, &d.key, 1, NEVER, NULL));
    weir_detach(d.u);
    d.u = weir_attach(d.w); /* the next owner's handle has no time */
    assert_false(weir_reserve(d.u, &d.key, 1, NEVER, &wait_ns));
    assert_true(wait_ns > HOUR / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_refund_belongs_to_the_window_it_was_taken_from),
        cmocka_unit_test(test_a_refund_gives_back_what_was_taken_to_any_thread_at_once),
        cmocka_unit_test(test_a_refund_of_units_that_are_charged_leaves_other_threads_their_grants),
        cmocka_unit_test(test_denials_that_a_caller_counts_change_no_answer),
        cmocka_unit_test(test_what_has_no_limits_is_counted_nowhere),
        cmocka_unit_test(test_later_requests_wait_for_what_was_charged),
        cmocka_unit_test(test_reservations_are_spaced_evenly_and_wait_no_longer_than_asked),
        cmocka_unit_test(test_a_refund_of_a_log_takes_the_units_of_other_threads_grants_first),
        cmocka_unit_test(test_a_reservation_queues_behind_units_that_are_held),
        cmocka_unit_test(test_a_reservation_of_several_limits_is_refused_while_others_hold_units),
        cmocka_unit_test(test_a_reservation_or_a_charge_that_finds_no_memory_for_its_log_is_untracked),
        cmocka_unit_test(test_a_reservation_waits_by_the_rate_that_a_queue_has_now),
        cmocka_unit_test(test_a_change_of_a_queue_holds_for_the_next_reservation),
        cmocka_unit_test(test_refused_reservations_name_the_key_that_is_refused_most),
        cmocka_unit_test(test_a_token_bucket_lends_and_other_limits_have_no_queue),
        cmocka_unit_test(test_a_reservation_of_very_many_units_is_as_good_as_a_check),
        cmocka_unit_test(test_a_reset_forgets_what_was_used_charged_and_denied),
        cmocka_unit_test(test_a_reset_clears_all_limits_of_all_tiers_and_what_is_remembered_of_evicted_keys),
        cmocka_unit_test(test_a_reset_of_a_key_that_finds_no_cell_changes_nothing),
        cmocka_unit_test(test_a_reset_moves_no_time_where_the_host_does),
        cmocka_unit_test(test_a_clock_of_the_host_counts_before_the_time_that_a_thread_has_set),
        cmocka_unit_test(test_in_real_time_a_reset_right_after_use_leaves_all_of_it),
        cmocka_unit_test(test_in_real_time_reservations_are_even),
        cmocka_unit_test(test_a_reservation_is_decided_by_the_time_that_its_thread_has_set),
    };
    return cmocka_run_group_tests_name("unit/check/adjustments", tests, NULL, NULL);
}
