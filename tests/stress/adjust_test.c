/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Giving back, charging, reserving and resetting from many threads at once.
 *
 *   after all have left: what a key has left is its limit less what was taken and not given back, to the unit
 *   reserved places in a queue: one for every unit of time, none left out, none given twice
 *   a sliding log: never more than its limit in any period, whatever the memory for logs comes to
 *   logs of keys that come and go: no memory is lost
 *
 * Guards: src/check/refund.c, src/check/charge.c, src/check/subject.c, src/check/reserve.c,
 * src/process/history_store.c, src/algorithm/history.c, src/base/memory/buddy.c
 */
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "support/support.h"

#define THREADS 8
#define STILL   (UINT64_C(366) * 24 * HOUR) /* while a test runs nothing refills, and no window ends */

static weir_limit still(weir_algorithm algorithm, uint64_t limit)
{
    return (weir_limit){.algorithm = algorithm,
                        .limit = limit,
                        .period_ns = STILL,
                        .delay = algorithm == WEIR_LEAKY_BUCKET ? limit : 0};
}

/* One policy per kind, and two keys of each. */
#define KINDS 7
#define KEYS  (KINDS * 2)

enum how { MIXED, RESETS, AT_ONCE };

struct world {
    weir *w;
    uint64_t limits[KINDS]; /* the tightest of each kind */
    weir_key keys[KEYS];
    uint64_t names[KEYS];
    enum how how;
    uint64_t seed;
    _Atomic uint64_t ready;
    _Atomic uint64_t net[KEYS]; /* units taken, less refunds */
    _Atomic uint64_t beyond;    /* verdicts with more left than there is */
};

static void world_open(struct world *world, uint64_t limit)
{
    *world = (struct world){.w = open_or_fail(NULL)};
    const weir_limit alone[] = {still(WEIR_FIXED_WINDOW, limit), still(WEIR_SLIDING_WINDOW, limit + 1),
                                still(WEIR_SLIDING_LOG, limit + 2), still(WEIR_TOKEN_BUCKET, limit + 3),
                                still(WEIR_LEAKY_BUCKET, limit + 4)};
    const weir_limit windows[] = {still(WEIR_SLIDING_LOG, limit + 6), still(WEIR_FIXED_WINDOW, limit + 5),
                                  still(WEIR_SLIDING_WINDOW, limit + 7)};
    const weir_limit buckets[] = {still(WEIR_TOKEN_BUCKET, limit + 6), still(WEIR_FIXED_WINDOW, limit + 7),
                                  still(WEIR_LEAKY_BUCKET, limit + 8)};
    const weir_policy policies[KINDS] = {{.name = "fixed", .limits = &alone[0], .limit_count = 1},
                                         {.name = "sliding", .limits = &alone[1], .limit_count = 1},
                                         {.name = "log", .limits = &alone[2], .limit_count = 1},
                                         {.name = "token", .limits = &alone[3], .limit_count = 1},
                                         {.name = "leaky", .limits = &alone[4], .limit_count = 1},
                                         {.name = "windows", .limits = windows, .limit_count = 3},
                                         {.name = "buckets", .limits = buckets, .limit_count = 3}};
    assert_int_equal(weir_set_policies(world->w, policies, KINDS, NULL), 0);
    for (size_t i = 0; i < KEYS; i++) {
        const size_t kind = i / 2;
        world->limits[kind] = kind < 5 ? limit + kind : kind == 5 ? limit + 5 : limit + 6;
        world->names[i] = i;
        world->keys[i] = weir_make_key(world->w, weir_find_policy(world->w, policies[kind].name), &world->names[i],
                                       sizeof(world->names[i]));
    }
}

/* One random thing with one key; `mine`: units of it that this thread has. */
static void adjust_one(struct world *world, weir_thread *t, uint64_t *rng, uint64_t mine[KEYS])
{
    const size_t at = (size_t) random_below(rng, KEYS);
    const weir_key *key = &world->keys[at];
    const uint64_t cost = 1 + random_below(rng, 4);
    const uint64_t what = random_below(rng, world->how == RESETS ? 7 : 6);
    weir_verdict v = {.remaining = 0};
    if (what == 0 || world->how == AT_ONCE) {
        for (int i = 0; i < 20; i++) { /* so many that there are grants */
            mine[at] += weir_check(t, key, 1, &v);
        }
    } else if (what == 1) {
        mine[at] += weir_check(t, key, cost, &v) ? cost : 0;
    } else if (what == 2) {
        mine[at] += weir_reserve(t, key, cost, 0, NULL) ? cost : 0;
    } else if (what == 3) {
        mine[at] += cost;
        weir_charge(t, key, cost);
    } else if (what == 4) {
        (void) weir_peek(t, key, cost, &v);
    } else if (what == 6) {
        (void) weir_reset(world->w, key);
    }
    if (what == 5 || world->how == AT_ONCE) {
        const uint64_t some = mine[at] < 3 || world->how == AT_ONCE ? mine[at] : random_below(rng, mine[at] + 1);
        mine[at] -= some;
        weir_refund(t, key, some);
    }
    (void) atomic_fetch_add_explicit(&world->beyond, v.remaining > world->limits[at / 2], memory_order_relaxed);
}

static void *adjust_main(void *arg)
{
    struct world *world = arg;
    uint64_t mine[KEYS] = {0};
    uint64_t rng = world->seed + threads_meet(&world->ready, THREADS);
    weir_thread *t = weir_attach(world->w);
    for (int i = 0; i < (SLOWED ? 3000 : 8000); i++) {
        adjust_one(world, t, &rng, mine);
    }
    for (size_t i = 0; i < KEYS; i++) {
        (void) atomic_fetch_add(&world->net[i], mine[i]);
    }
    weir_detach(t);
    return NULL;
}

/* Units left of a key; then refunds more than it has used. */
static void assert_left(weir_thread *t, const weir_key *key, uint64_t limit, uint64_t net, uint64_t tolerance)
{
    weir_verdict v;
    (void) weir_peek(t, key, 0, &v);
    const uint64_t left = net < limit ? limit - net : 0;
    assert_in_range(v.remaining, left > tolerance ? left - tolerance : 0, left + tolerance);
    /* Past its limit nothing is left; how far past, giving back shows. */
    if (net > limit) {
        weir_refund(t, key, net - limit + 1);
        (void) weir_peek(t, key, 0, &v);
        assert_in_range(v.remaining, 1 - tolerance, 1 + tolerance);
    }
    weir_refund(t, key, net + 100);
}

static void run_world(uint64_t seed, uint64_t limit, enum how how)
{
    struct world world;
    world_open(&world, limit);
    world.seed = seed;
    world.how = how;
    run_threads(THREADS, adjust_main, &world);
    assert_int_equal(world.beyond, 0);
    weir_thread *t = weir_attach(world.w);
    for (size_t i = 0; i < KEYS; i++) {
        const bool bucket = i / 2 == 3 || i / 2 == 4 || i / 2 == 6;
        if (how == RESETS) {
            assert_int_equal(weir_reset(world.w, &world.keys[i]), 0);
        }
        assert_left(t, &world.keys[i], world.limits[i / 2], how == RESETS ? 0 : world.net[i], bucket ? 1 : 0);
    }
    for (size_t i = 0; i < KEYS; i++) {
        assert_int_equal(wait_for_units(t, &world.keys[i], world.limits[i / 2]), world.limits[i / 2]);
    }
    weir_detach(t);
    weir_close(world.w);
}

static void test_a_key_has_its_limit_less_what_was_taken_and_not_given_back(void **state)
{
    (void) state;
    const uint64_t seed = test_seed();
    /* Few units: much is refused, and charges go past the limit. Many: there are grants. */
    run_world(seed, 20, MIXED);
    run_world(seed + THREADS, 300, MIXED);
    run_world(seed + 2 * THREADS, 20000, MIXED);
}

static void test_resets_beside_everything_else_leave_a_key_whole_and_no_more(void **state)
{
    (void) state;
    run_world(test_seed(), 300, RESETS);
    run_world(test_seed(), 20000, RESETS);
}

static void test_what_is_given_back_at_once_is_never_lost(void **state)
{
    (void) state;
    run_world(test_seed(), 20000, AT_ONCE);
}

/* Reservations of one key by all threads. */
#define PLACES 2000

struct queue {
    weir *w;
    weir_key key;
    uint64_t seed;
    _Atomic uint64_t ready, clashes;
    _Atomic uint8_t taken[PLACES];
};

/* Takes places as long as there are any; two refusals after another mean that there are none. */
static void *queue_main(void *arg)
{
    struct queue *queue = arg;
    uint64_t rng = queue->seed + threads_meet(&queue->ready, THREADS);
    weir_thread *t = weir_attach(queue->w);
    for (int refusals = 0; refusals < 2;) {
        const uint64_t cost = 1 + random_below(&rng, 3);
        uint64_t wait_ns = 0;
        if (!weir_reserve(t, &queue->key, cost, UINT64_MAX, &wait_ns)) {
            refusals += cost == 1;
            continue;
        }
        /* A place is an hour long, and the test some seconds: far less than a minute. */
        const uint64_t place = (wait_ns + HOUR / 2) / HOUR;
        const uint64_t off_ns = wait_ns < place * HOUR ? place * HOUR - wait_ns : wait_ns - place * HOUR;
        (void) atomic_fetch_add(&queue->clashes, off_ns > 60 * SECOND);
        for (uint64_t i = place; i < place + cost; i++) {
            (void) atomic_fetch_add(&queue->clashes, i >= PLACES || atomic_fetch_add(&queue->taken[i], 1) != 0);
        }
    }
    weir_detach(t);
    return NULL;
}

static void test_places_in_a_queue_are_evenly_spaced_and_each_is_given_once(void **state)
{
    (void) state;
    const weir_limit limits[] = {{.algorithm = WEIR_LEAKY_BUCKET, .limit = PLACES, .period_ns = PLACES * HOUR},
                                 still(WEIR_FIXED_WINDOW, 2 * PLACES),
                                 still(WEIR_SLIDING_LOG, 2 * PLACES)};
    const uint64_t seed = test_seed();
    for (size_t count = 1; count <= 3; count++) {
        struct queue queue = {.w = open_or_fail(NULL), .seed = seed + count * THREADS};
        const weir_policy_id policy = set_one_policy(queue.w, limits, count, WEIR_SCOPE_FLEET);
        queue.key = weir_make_key(queue.w, policy, "q", 1);
        run_threads(THREADS, queue_main, &queue);
        assert_int_equal(queue.clashes, 0);
        for (size_t i = 0; i < PLACES; i++) {
            assert_int_equal(queue.taken[i], 1);
        }
        weir_close(queue.w);
    }
}

/* One request that passed, at some time between two readings of the clock outside of the library. */
struct passage {
    uint64_t before_ns, after_ns, cost;
};

#define PASSAGES 40000
#define HOT_KEYS 2

struct stream {
    weir *w;
    weir_policy_id policy, filler;
    uint64_t seed;
    bool pressed; /* half of the threads use up the memory for logs */
    _Atomic uint64_t ready, count[HOT_KEYS];
    struct passage *passages[HOT_KEYS];
};

static void passed(struct stream *stream, uint64_t which, uint64_t before_ns, uint64_t cost)
{
    const uint64_t i = atomic_fetch_add(&stream->count[which], 1);
    if (i < PASSAGES) {
        stream->passages[which][i] = (struct passage){before_ns, real_ns(), cost};
    }
}

static void *stream_main(void *arg)
{
    struct stream *stream = arg;
    const uint64_t number = threads_meet(&stream->ready, THREADS);
    uint64_t rng = stream->seed + number;
    weir_thread *t = weir_attach(stream->w);
    const weir_key keys[HOT_KEYS] = {weir_make_key(stream->w, stream->policy, "a", 1),
                                     weir_make_key(stream->w, stream->policy, "b", 1)};
    const uint64_t until_ns = real_ns() + 300 * MILLISECOND;
    while (real_ns() < until_ns) {
        if (stream->pressed && number % 2 == 0) {
            const uint64_t name = random_below(&rng, 200);
            const weir_key key = weir_make_key(stream->w, stream->filler, &name, sizeof(name));
            (void) weir_check(t, &key, 1 + random_below(&rng, 2000), NULL); /* large, and soon over */
            continue;
        }
        const uint64_t costs[HOT_KEYS] = {1 + random_below(&rng, 3), 1 + random_below(&rng, 3)};
        const uint64_t which = random_below(&rng, 4);
        const uint64_t before_ns = real_ns();
        if (which < 2 && weir_check(t, &keys[which], costs[which], NULL)) {
            passed(stream, which, before_ns, costs[which]);
        } else if (which == 2 && weir_check_all(t, keys, costs, HOT_KEYS, NULL)) {
            passed(stream, 0, before_ns, costs[0]);
            passed(stream, 1, before_ns, costs[1]);
        } else if (which == 3 && weir_reserve(t, &keys[0], costs[0], 0, NULL)) {
            passed(stream, 0, before_ns, costs[0]);
        }
    }
    weir_detach(t);
    return NULL;
}

static int compare_passages(const void *a, const void *b)
{
    const struct passage *x = a;
    const struct passage *y = b;
    return (x->before_ns > y->before_ns) - (x->before_ns < y->before_ns);
}

/* Most units that are sure to have passed within any period. */
static uint64_t most_in(struct passage *passages, uint64_t count, uint64_t period_ns)
{
    uint64_t most = 0;
    qsort(passages, (size_t) count, sizeof(*passages), compare_passages);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t units = 0;
        for (uint64_t j = i; j < count && passages[j].before_ns < passages[i].before_ns + period_ns; j++) {
            units += passages[j].after_ns < passages[i].before_ns + period_ns ? passages[j].cost : 0;
        }
        most = units > most ? units : most;
    }
    return most;
}

static void run_stream(const weir_options *options, const weir_limit *limits, size_t limit_count, bool pressed)
{
    struct stream stream = {.w = open_or_fail(options), .seed = test_seed(), .pressed = pressed};
    const weir_limit filler = {.algorithm = WEIR_SLIDING_LOG, .limit = 60000, .period_ns = 3 * MILLISECOND};
    const weir_policy policies[] = {{.name = "hot", .limits = limits, .limit_count = limit_count},
                                    {.name = "filler", .limits = &filler, .limit_count = 1}};
    assert_int_equal(weir_set_policies(stream.w, policies, 2, NULL), 0);
    stream.policy = weir_find_policy(stream.w, "hot");
    stream.filler = weir_find_policy(stream.w, "filler");
    for (size_t i = 0; i < HOT_KEYS; i++) {
        stream.passages[i] = calloc(PASSAGES, sizeof(struct passage));
    }
    run_threads(THREADS, stream_main, &stream);
    weir_stats stats;
    weir_get_stats(stream.w, &stats);
    for (size_t i = 0; i < HOT_KEYS; i++) {
        const uint64_t count = stream.count[i];
        assert_in_range(count, 1, PASSAGES);
        const uint64_t most = most_in(stream.passages[i], count, limits[0].period_ns);
        print_message("# at most %" PRIu64 " of %" PRIu64 ", %" PRIu64 " passed\n", most, limits[0].limit, count);
        /* A late unit is put into its place in the log afterwards. */
        assert_in_range(most, 1, limits[0].limit + stats.late_units);
        free(stream.passages[i]);
    }
    weir_close(stream.w);
}

static weir_limit log_limit(uint64_t limit, uint64_t period_ns)
{
    return (weir_limit){.algorithm = WEIR_SLIDING_LOG, .limit = limit, .period_ns = period_ns};
}

static void test_a_sliding_log_never_passes_its_limit_in_any_period(void **state)
{
    (void) state;
    weir_options options = WEIR_OPTIONS_INIT;
    const weir_limit limits[] = {log_limit(200, 20 * MILLISECOND), log_limit(1500, 100 * MILLISECOND)};
    run_stream(&options, limits, 1, false);
    options.tick_us = 50000; /* grants that outlive the window */
    run_stream(&options, limits, 1, false);
    run_stream(&options, limits, 2, false);
}

static void test_a_sliding_log_that_finds_no_memory_refuses_and_forgets_nothing(void **state)
{
    (void) state;
    weir_options options = WEIR_OPTIONS_INIT;
    options.max_log_units = 1000;
    options.tick_us = 50000;
    const weir_limit limits[] = {log_limit(200, 3 * MILLISECOND), log_limit(900, 20 * MILLISECOND)};
    run_stream(&options, limits, 1, true);
    run_stream(&options, limits, 2, true);
}

#if defined __SANITIZE_THREAD__ || defined EMULATED
#define CROWD_CALLS 8000
#else
#define CROWD_CALLS 20000
#endif

/* Keys of logs that come and go, far more than there are cells and memory for. */
struct crowd {
    weir *w;
    weir_policy_id small, large;
    uint64_t seed;
    _Atomic uint64_t ready;
};

static void *crowd_main(void *arg)
{
    struct crowd *crowd = arg;
    uint64_t rng = crowd->seed + threads_meet(&crowd->ready, THREADS);
    weir_thread *t = weir_attach(crowd->w);
    for (int i = 0; i < CROWD_CALLS; i++) {
        const uint64_t names[] = {random_below(&rng, 4000), random_below(&rng, 40)};
        const weir_key keys[] = {weir_make_key(crowd->w, crowd->small, &names[0], sizeof(names[0])),
                                 weir_make_key(crowd->w, crowd->large, &names[1], sizeof(names[1]))};
        const uint64_t costs[] = {1 + random_below(&rng, 40), 1 + random_below(&rng, 5000)};
        const uint64_t what = random_below(&rng, 16);
        if (what == 0) {
            (void) weir_check_all(t, keys, costs, 2, NULL);
        } else if (what == 1) {
            weir_refund(t, &keys[0], costs[0]);
        } else if (what == 2) {
            weir_charge(t, &keys[0], costs[0]);
        } else if (what == 3) {
            (void) weir_reserve(t, &keys[0], costs[0], 0, NULL);
        } else if (what == 4) {
            (void) weir_reset(crowd->w, &keys[random_below(&rng, 2)]);
        } else {
            (void) weir_check(t, &keys[what % 8 == 0], costs[what % 8 == 0], NULL);
        }
    }
    weir_detach(t);
    return NULL;
}

/* How many keys find memory for 1,000 units each before one does not. */
static uint64_t fill(weir *w)
{
    const weir_policy_id policy = weir_find_policy(w, "large");
    weir_thread *t = weir_attach(w);
    uint64_t filled = 0;
    for (bool found = true; found && filled < 1000; filled += found) {
        const uint64_t name = filled + 1000000;
        const weir_key key = weir_make_key(w, policy, &name, sizeof(name));
        found = weir_check(t, &key, 1000, NULL);
    }
    weir_detach(t);
    return filled;
}

static void test_logs_of_keys_that_come_and_go_lose_no_memory(void **state)
{
    (void) state;
    weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = 1000;
    options.max_threads = THREADS;
    options.max_log_units = 1000;
    const weir_limit limits[] = {log_limit(40, 100 * MILLISECOND), log_limit(60000, 100 * MILLISECOND)};
    const weir_policy policies[] = {{.name = "small", .limits = &limits[0], .limit_count = 1},
                                    {.name = "large", .limits = &limits[1], .limit_count = 1}};
    struct crowd crowd = {.seed = test_seed()};
    weir *both[2];
    for (int i = 0; i < 2; i++) {
        both[i] = open_or_fail(&options);
        assert_int_equal(weir_set_policies(both[i], policies, 2, NULL), 0);
    }
    crowd.w = both[0];
    crowd.small = weir_find_policy(crowd.w, "small");
    crowd.large = weir_find_policy(crowd.w, "large");
    run_threads(THREADS, crowd_main, &crowd);
    weir_stats stats;
    weir_get_stats(crowd.w, &stats);
    assert_true(stats.evicted_used_count + stats.evicted_unused_count > 1000 && stats.untracked_count != 0);
    /* When the last one's window is over, all windows are, and all of it can be used again. The last one is the second
     * here, since the threads' clocks may have been a tick ahead when the first was charged. */
    weir_thread *t = weir_attach(crowd.w);
    const weir_key last = weir_make_key(crowd.w, crowd.small, "last", 4);
    for (int i = 0; i < 2; i++) {
        weir_charge(t, &last, 1);
        assert_int_equal(wait_for_units(t, &last, limits[0].limit), limits[0].limit);
    }
    weir_detach(t);
    const uint64_t room = fill(both[1]);
    assert_true(room >= 64 && room < 1000);
    assert_int_equal(fill(crowd.w), room);
    weir_close(both[1]);
    weir_close(crowd.w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_key_has_its_limit_less_what_was_taken_and_not_given_back),
        cmocka_unit_test(test_resets_beside_everything_else_leave_a_key_whole_and_no_more),
        cmocka_unit_test(test_what_is_given_back_at_once_is_never_lost),
        cmocka_unit_test(test_places_in_a_queue_are_evenly_spaced_and_each_is_given_once),
        cmocka_unit_test(test_a_sliding_log_never_passes_its_limit_in_any_period),
        cmocka_unit_test(test_a_sliding_log_that_finds_no_memory_refuses_and_forgets_nothing),
        cmocka_unit_test(test_logs_of_keys_that_come_and_go_lose_no_memory),
    };
    return cmocka_run_group_tests_name("stress/adjust", tests, NULL, NULL);
}
