/* SPDX-License-Identifier: Apache-2.0 */
/*
 * No request is denied by a charge that is taken back. Threads ask for a key with room for one unit together with
 * others, of which the last is full now and then: such a request has charged the first keys, and takes the charges
 * back. Another thread asks for the first key alone. Each of its denials overlaps a time in which a request of the
 * others had the unit. A timer stops the others again and again between two charges.
 *
 * Guards: src/check/all_direct.c
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "support/stops.h"
#include "support/support.h"

#define STILL    (UINT64_C(366) * 24 * HOUR)
#define ASKERS   2
#define BETWEEN  6 /* keys that are charged between the first and the last */
#define KEYS     (1 + BETWEEN + 1)
#define REQUESTS (SLOWED ? 10000 : 100000)

/* From before a request until its units are back. */
struct interval {
    uint64_t from_ns, to_ns;
};

struct intervals {
    struct interval *at;
    size_t count;
};

static struct {
    weir *w;
    uint64_t names[2 + BETWEEN * ASKERS];
    weir_key one; /* has room for one unit */
    weir_key last;
    weir_key between[ASKERS][BETWEEN];
    struct intervals had[ASKERS]; /* the asker had the unit */
    struct intervals denied;
    uint64_t stalled_denied;
    _Atomic uint64_t running, next;
} d;

static weir_key key_of(const char *policy, size_t number)
{
    d.names[number] = number;
    return weir_make_key(d.w, weir_find_policy(d.w, policy), &d.names[number], sizeof(d.names[number]));
}

static void open_world(void)
{
    const weir_limit one = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1, .period_ns = STILL};
    const weir_limit many = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1000000, .period_ns = STILL};
    const weir_policy policies[] = {{.name = "one", .limits = &one, .limit_count = 1},
                                    {.name = "many", .limits = &many, .limit_count = 1}};
    weir_options options = WEIR_OPTIONS_INIT;
    options.tick_us = 100; /* a key that comes again within a tick gets a slot */
    d.w = open_or_fail(&options);
    assert_int_equal(weir_set_policies(d.w, policies, 2, NULL), 0);
    d.one = key_of("one", 0);
    d.last = key_of("one", 1);
    for (size_t a = 0; a < ASKERS; a++) {
        for (size_t i = 0; i < BETWEEN; i++) {
            d.between[a][i] = key_of("many", 2 + a * BETWEEN + i);
        }
    }
    atomic_store(&d.running, ASKERS);
    atomic_store(&d.next, 0);
}

static void add(struct intervals *intervals, uint64_t from_ns, size_t most)
{
    if (intervals->count < most) {
        intervals->at[intervals->count++] = (struct interval){from_ns, real_ns()};
    }
}

/* Each request comes by a new handle, so no key gets a slot. */
static void ask_for_several(size_t asker)
{
    weir_key keys[KEYS];
    keys[0] = d.one;
    for (size_t i = 0; i < BETWEEN; i++) {
        keys[1 + i] = d.between[asker][i];
    }
    keys[KEYS - 1] = d.last;
    const timer_t timer = stops_start(200);
    for (int i = 0; i < REQUESTS; i++) {
        weir_thread *t = weir_attach(d.w);
        const uint64_t from_ns = real_ns();
        if (weir_check_all(t, keys, NULL, KEYS, NULL)) {
            weir_refund(t, &d.one, 1);
            weir_refund(t, &d.last, 1);
            add(&d.had[asker], from_ns, REQUESTS);
        }
        weir_detach(t);
    }
    stops_end(timer);
    atomic_fetch_sub(&d.running, 1);
}

static void take_last(void)
{
    while (atomic_load(&d.running) > 0) {
        weir_thread *t = weir_attach(d.w);
        if (weir_check(t, &d.last, 1, NULL)) {
            weir_refund(t, &d.last, 1);
        }
        weir_detach(t);
    }
}

static void ask_for_one(size_t most)
{
    while (atomic_load(&d.running) > 0) {
        weir_thread *t = weir_attach(d.w);
        const uint64_t from_ns = real_ns();
        if (weir_check(t, &d.one, 1, NULL)) {
            weir_refund(t, &d.one, 1);
        } else {
            add(&d.denied, from_ns, most);
        }
        weir_detach(t);
    }
}

#define MOST_DENIALS 4000000

static void *run(void *arg)
{
    (void) arg;
    const uint64_t number = atomic_fetch_add(&d.next, 1);
    if (number < ASKERS) {
        ask_for_several(number);
    } else if (number == ASKERS) {
        take_last();
    } else {
        ask_for_one(MOST_DENIALS);
    }
    return NULL;
}

/* Whether an interval overlaps one of these, which are in order. `*first`: those before it ended earlier. */
static bool overlaps(const struct intervals *these, size_t *first, const struct interval *interval)
{
    while (*first < these->count && these->at[*first].to_ns < interval->from_ns) {
        ++*first;
    }
    return *first < these->count && these->at[*first].from_ns <= interval->to_ns;
}

static void expect_denials_have_reasons(void)
{
    size_t first[ASKERS] = {0};
    uint64_t without = 0;
    for (size_t i = 0; i < d.denied.count; i++) {
        bool has_reason = false;
        for (size_t a = 0; a < ASKERS; a++) {
            has_reason = overlaps(&d.had[a], &first[a], &d.denied.at[i]) || has_reason;
        }
        without += !has_reason;
    }
    print_message("# %zu and %zu requests had the unit; of %zu denials %" PRIu64 " had no reason, %" PRIu64
                  " stalled\n",
                  d.had[0].count, d.had[1].count, d.denied.count, without, d.stalled_denied);
    assert_in_range(without, 0, d.stalled_denied);
    assert_true(d.denied.count > 0 && d.had[0].count > 0 && d.had[0].count < REQUESTS);
}

static struct intervals intervals_of(size_t most)
{
    const struct intervals intervals = {.at = malloc(most * sizeof(struct interval))};
    assert_non_null(intervals.at);
    return intervals;
}

static void play(void)
{
    stops_prepare();
    for (size_t a = 0; a < ASKERS; a++) {
        d.had[a] = intervals_of(REQUESTS);
    }
    d.denied = intervals_of(MOST_DENIALS);
    open_world();
    run_threads(ASKERS + 2, run, NULL);
    /* As many as there are: a timer stops the threads again and again. */
    weir_stats stats;
    weir_get_stats(d.w, &stats);
    d.stalled_denied = stats.stalled_denied_count;
    weir_close(d.w);
    expect_denials_have_reasons();
    for (size_t a = 0; a < ASKERS; a++) {
        free(d.had[a].at);
    }
    free(d.denied.at);
}

/* Several times: the threads of one play may have hardly met, on a machine with other work. */
static void test_no_request_is_denied_by_a_charge_that_is_taken_back(void **state)
{
    (void) state;
    for (int i = 0; i < (SLOWED ? 2 : 4); i++) {
        play();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_request_is_denied_by_a_charge_that_is_taken_back),
    };
    return cmocka_run_group_tests_name("stress/take_back", tests, NULL, NULL);
}
