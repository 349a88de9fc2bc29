/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir_check_all from many threads over sets of keys that overlap, beside weir_check on the same keys: all or nothing,
 * to the unit.
 *
 *   far past the limit: admitted <= limit + what came late (weir_stats.late_units) <= limit + threads * cost
 *   after all have left: every key has what was admitted, and nothing of what was refused
 *   requests that fit together, to the last unit of every key: all pass
 *   requests that need each other's last units: one passes, and none waits for ever
 *   policies that change meanwhile: every verdict is of one set
 *
 * The periods are so long that nothing refills, and no window ends, while a test runs.
 *
 * Guards: src/check/check_all.c, src/thread/settle.c
 */
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "support/support.h"

#define THREADS  8
#define STILL    (UINT64_C(366) * 24 * HOUR)
#define COST_MAX 3

/* Keys of one policy, and in one request. */
#define KEYS_EACH   3
#define REQUEST_MAX 6

#define POLICIES 7
#define KEYS     (POLICIES * KEYS_EACH)

static weir_limit still(weir_algorithm algorithm, uint64_t limit)
{
    return (weir_limit){.algorithm = algorithm,
                        .limit = limit,
                        .period_ns = STILL,
                        .delay = algorithm == WEIR_LEAKY_BUCKET ? limit : 0};
}

/* A world of policies of all kinds, with the same keys for every thread. */
struct world {
    weir *w;
    uint64_t limits[POLICIES]; /* of the tightest limit */
    uint64_t names[KEYS];
    weir_key keys[KEYS];
    _Atomic uint64_t admitted[KEYS]; /* units */
    _Atomic uint64_t passed, refused, ready;
    uint64_t seed;
};

static void world_open(struct world *world, uint64_t rate_id)
{
    *world = (struct world){.w = open_or_fail(NULL)};
    const weir_limit alone[] = {still(WEIR_FIXED_WINDOW, rate_id), still(WEIR_SLIDING_WINDOW, rate_id + 1),
                                still(WEIR_SLIDING_LOG, rate_id + 2), still(WEIR_TOKEN_BUCKET, rate_id + 3),
                                still(WEIR_LEAKY_BUCKET, rate_id + 4)};
    const weir_limit several[] = {still(WEIR_TOKEN_BUCKET, rate_id + 7), still(WEIR_SLIDING_LOG, rate_id + 6),
                                  still(WEIR_FIXED_WINDOW, rate_id + 5), still(WEIR_SLIDING_WINDOW, rate_id + 8)};
    const weir_limit two[] = {still(WEIR_SLIDING_WINDOW, rate_id + 9), still(WEIR_LEAKY_BUCKET, rate_id + 6)};
    const weir_policy policies[POLICIES] = {{.name = "fixed", .limits = &alone[0], .limit_count = 1},
                                            {.name = "sliding", .limits = &alone[1], .limit_count = 1},
                                            {.name = "log", .limits = &alone[2], .limit_count = 1},
                                            {.name = "token", .limits = &alone[3], .limit_count = 1},
                                            {.name = "leaky", .limits = &alone[4], .limit_count = 1},
                                            {.name = "several", .limits = several, .limit_count = 4},
                                            {.name = "two", .limits = two, .limit_count = 2}};
    assert_int_equal(weir_set_policies(world->w, policies, POLICIES, NULL), 0);
    for (size_t p = 0; p < POLICIES; p++) {
        world->limits[p] = UINT64_MAX;
        for (size_t i = 0; i < policies[p].limit_count; i++) {
            const uint64_t limit = policies[p].limits[i].limit;
            world->limits[p] = limit < world->limits[p] ? limit : world->limits[p];
        }
        for (size_t i = p * KEYS_EACH; i < (p + 1) * KEYS_EACH; i++) {
            world->names[i] = i;
            world->keys[i] = weir_make_key(world->w, weir_find_policy(world->w, policies[p].name), &world->names[i],
                                           sizeof(world->names[i]));
        }
    }
}

/* One request of the world: keys that may be named more than once. */
struct request {
    size_t count;
    uint8_t at[REQUEST_MAX];
    uint8_t costs[REQUEST_MAX];
};

static struct request request_random(uint64_t *rng)
{
    struct request request = {.count = 1 + (size_t) random_below(rng, REQUEST_MAX)};
    for (size_t i = 0; i < request.count; i++) {
        request.at[i] = (uint8_t) random_below(rng, KEYS);
        request.costs[i] = (uint8_t) (1 + random_below(rng, COST_MAX));
    }
    return request;
}

static bool request_ask(const struct world *world, weir_thread *t, const struct request *request, bool single)
{
    weir_key keys[REQUEST_MAX];
    uint64_t costs[REQUEST_MAX];
    for (size_t i = 0; i < request->count; i++) {
        keys[i] = world->keys[request->at[i]];
        costs[i] = request->costs[i];
    }
    if (single && request->count == 1) {
        return weir_check(t, &keys[0], costs[0], NULL);
    }
    return weir_check_all(t, keys, costs, request->count, NULL);
}

/*
 * What every key has, to the unit, after all threads have left. Units left do not show how far a key is past its limit.
 * So the test refunds units too: a refund of all that was admitted, and no smaller one, makes the key whole again.
 */
static void assert_counts_are_exact(struct world *world)
{
    weir_thread *t = weir_attach(world->w);
    for (size_t i = 0; i < KEYS; i++) {
        const uint64_t limit = world->limits[i / KEYS_EACH];
        const uint64_t admitted = world->admitted[i];
        weir_verdict v;
        (void) weir_peek(t, &world->keys[i], 0, &v);
        assert_int_equal(v.remaining, admitted < limit ? limit - admitted : 0);
        if (admitted > 1) {
            weir_refund(t, &world->keys[i], admitted - 1);
            (void) weir_peek(t, &world->keys[i], 0, &v);
            assert_int_equal(v.remaining, limit - 1);
        }
        weir_refund(t, &world->keys[i], 1);
        assert_true(weir_peek(t, &world->keys[i], 0, &v));
        assert_int_equal(v.remaining, limit);
    }
    weir_detach(t);
}

static void *flood_main(void *arg)
{
    struct world *world = arg;
    uint64_t admitted[KEYS] = {0};
    uint64_t passed = 0;
    uint64_t refused = 0;
    uint64_t rng = world->seed + threads_meet(&world->ready, THREADS);
    weir_thread *t = weir_attach(world->w);
    for (int demand = 0; demand < (SLOWED ? 2000 : 6000); demand++) {
        const struct request request = request_random(&rng);
        if (!request_ask(world, t, &request, demand % 2 == 0)) {
            refused++;
            continue;
        }
        passed++;
        for (size_t i = 0; i < request.count; i++) {
            admitted[request.at[i]] += request.costs[i];
        }
    }
    for (size_t i = 0; i < KEYS; i++) {
        (void) atomic_fetch_add(&world->admitted[i], admitted[i]);
    }
    (void) atomic_fetch_add(&world->passed, passed);
    (void) atomic_fetch_add(&world->refused, refused);
    weir_detach(t);
    return NULL;
}

static void test_a_flood_of_check_all_keeps_every_limit_and_gives_back_what_it_refuses(void **state)
{
    (void) state;
    const uint64_t seed = test_seed();
    uint64_t above = 0;
    for (uint64_t round = 0; round < 6; round++) {
        struct world world;
        world_open(&world, round % 2 == 0 ? 400 : 3000);
        world.seed = seed + round * THREADS;
        run_threads(THREADS, flood_main, &world);
        assert_true(world.passed != 0 && world.refused != 0);
        weir_stats stats;
        weir_get_stats(world.w, &stats);
        assert_int_equal(stats.untracked_count, 0);
        for (size_t i = 0; i < KEYS; i++) {
            const uint64_t limit = world.limits[i / KEYS_EACH];
            const uint64_t over = world.admitted[i] > limit ? world.admitted[i] - limit : 0;
            above += over != 0;
            /* A key may be named in all places of a request. */
            assert_in_range(over, 0, THREADS * COST_MAX * REQUEST_MAX);
            assert_in_range(over, 0, stats.late_units);
        }
        assert_counts_are_exact(&world);
        weir_close(world.w);
    }
    print_message("# keys above their limit: %" PRIu64 "\n", above);
}

/*
 * A request that waits for units held by a thread that does not run is refused after some 10 ms (decision 1), and asks
 * again. This happens on slow machines, and seldom elsewhere.
 */
#define BURST_ASKS 100

/* A bag of requests that all threads draw from. */
struct burst {
    struct world world;
    struct request *requests;
    uint64_t count;
    _Atomic uint64_t next, again, refused;
};

static void *burst_main(void *arg)
{
    struct burst *burst = arg;
    (void) threads_meet(&burst->world.ready, THREADS);
    weir_thread *t = weir_attach(burst->world.w);
    for (;;) {
        const uint64_t i = atomic_fetch_add(&burst->next, 1);
        if (i >= burst->count) {
            break;
        }
        int asks = BURST_ASKS;
        while (!request_ask(&burst->world, t, &burst->requests[i], i % 2 == 0) && --asks > 0) {
            (void) usleep(2000);
        }
        (void) atomic_fetch_add(&burst->again, asks != BURST_ASKS);
        (void) atomic_fetch_add(&burst->refused, asks == 0);
    }
    weir_detach(t);
    return NULL;
}

static void test_requests_that_fit_together_to_the_last_unit_all_pass(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    static struct request requests[2000];
    uint64_t again = 0;
    uint64_t demand = 0;
    for (int round = 0; round < 12; round++) {
        struct burst burst = {.requests = requests};
        world_open(&burst.world, 800);
        /* So many that the first key whose units run out has none left; the others' are taken up before. */
        for (; burst.count < 2000; burst.count++) {
            const struct request request = request_random(&rng);
            bool fits = true;
            for (size_t i = 0; i < request.count; i++) {
                burst.world.admitted[request.at[i]] += request.costs[i];
            }
            for (size_t i = 0; i < KEYS; i++) {
                fits = fits && burst.world.admitted[i] <= burst.world.limits[i / KEYS_EACH];
            }
            if (!fits) {
                for (size_t i = 0; i < request.count; i++) {
                    burst.world.admitted[request.at[i]] -= request.costs[i];
                }
                break;
            }
            requests[burst.count] = request;
        }
        weir_thread *t = weir_attach(burst.world.w);
        for (size_t i = 0; i < KEYS; i++) {
            const uint64_t rest = burst.world.limits[i / KEYS_EACH] - burst.world.admitted[i];
            assert_true(weir_check(t, &burst.world.keys[i], rest, NULL));
            burst.world.admitted[i] += rest;
        }
        weir_detach(t);
        run_threads(THREADS, burst_main, &burst);
        assert_int_equal(burst.refused, 0);
        again += burst.again;
        demand += burst.count;
        assert_counts_are_exact(&burst.world);
        weir_close(burst.world.w);
    }
#ifndef __SANITIZE_THREAD__
    assert_in_range(again, 0, demand / 10);
#endif
    print_message("# %" PRIu64 " of %" PRIu64 " asked again\n", again, demand);
}

/* Requests for the same last units, in different orders, round by round. */
struct tangle {
    weir *w;
    weir_policy_id policies[3];
    uint64_t threads;
    uint32_t rounds;
    bool mixed; /* the first asks for all, one reserves in the bucket, one checks that */
    _Atomic uint64_t ready[1500];
    _Atomic uint32_t passed[1500];
    _Atomic uint64_t number;
};

static void *tangle_main(void *arg)
{
    struct tangle *tangle = arg;
    const uint64_t number = atomic_fetch_add(&tangle->number, 1);
    weir_thread *t = weir_attach(tangle->w);
    for (uint32_t round = 0; round < tangle->rounds; round++) {
        /* The next thread begins with the next key; with an even number of threads the last two ask in both orders. */
        weir_key keys[3];
        for (uint64_t i = 0; i < 3; i++) {
            const uint64_t which = number % 2 == 0 ? (number + i) % 3 : (number + 3 - i) % 3;
            keys[i] = weir_make_key(tangle->w, tangle->policies[which], &round, sizeof(round));
        }
        const weir_key bucket = weir_make_key(tangle->w, tangle->policies[1], &round, sizeof(round));
        (void) threads_meet(&tangle->ready[round], tangle->threads);
        const bool pass = !tangle->mixed || number == 0 ? weir_check_all(t, keys, NULL, 3, NULL)
                          : number == 1                 ? weir_reserve(t, &bucket, 1, 0, NULL)
                                                        : weir_check(t, &bucket, 1, NULL);
        (void) atomic_fetch_add(&tangle->passed[round], pass);
    }
    weir_detach(t);
    return NULL;
}

static void test_requests_that_need_each_others_last_units_end_with_one_that_passes(void **state)
{
    (void) state;
    const weir_limit limits[] = {still(WEIR_FIXED_WINDOW, 1), still(WEIR_TOKEN_BUCKET, 1), still(WEIR_SLIDING_LOG, 1)};
    const weir_policy policies[] = {{.name = "a", .limits = &limits[0], .limit_count = 1},
                                    {.name = "b", .limits = &limits[1], .limit_count = 1},
                                    {.name = "c", .limits = &limits[2], .limit_count = 1}};
    static struct tangle tangle;
    for (int scan_cursor = 0; scan_cursor < 4; scan_cursor++) {
        const uint64_t threads = scan_cursor < 3 ? 2 + (uint64_t) scan_cursor : 3;
        tangle = (struct tangle){.w = open_or_fail(NULL), .threads = threads, .mixed = scan_cursor == 3};
        tangle.rounds = threads == 2 || tangle.mixed ? 1500 : 300;
        assert_int_equal(weir_set_policies(tangle.w, policies, 3, NULL), 0);
        for (size_t i = 0; i < 3; i++) {
            tangle.policies[i] = weir_find_policy(tangle.w, policies[i].name);
        }
        run_threads(threads, tangle_main, &tangle);
        for (uint32_t round = 0; round < tangle.rounds; round++) {
            assert_int_equal(tangle.passed[round], 1);
        }
        (void) stalled_denials(tangle.w); /* requests that wait for each other are stalled, and those are few */
        weir_close(tangle.w);
    }
}

static void test_keys_that_are_numbers_are_told_apart_in_all_policies(void **state)
{
    (void) state;
    weir *w = open_or_fail(NULL);
    uint64_t hashes[400];
    for (uint64_t i = 0; i < 400; i++) {
        const uint64_t name = i % 20;
        hashes[i] = weir_make_key(w, (weir_policy_id) (1 + i / 20), &name, sizeof(name)).hash;
        for (uint64_t j = 0; j < i; j++) {
            assert_true(hashes[j] != hashes[i]);
        }
    }
    weir_close(w);
}

/* Two sets of policies that take turns. */
#define BIG UINT64_C(1000000000)

struct change {
    weir *w;
    weir_policy_id both[2], low, high, tiers[2];
    _Atomic bool stop;
    _Atomic uint64_t mixtures, checks, number;
    uint64_t seed;
};

/* Set 0 and 1: "both" has 100,000 and 200,000 units, or ten times as many; of "low" and "high" one has few. */
static void change_to(struct change *change, unsigned set)
{
    const uint64_t times = set == 0 ? 1 : 10;
    weir_limit both[] = {still(WEIR_FIXED_WINDOW, 100000 * times), still(WEIR_TOKEN_BUCKET, 200000 * times)};
    weir_limit tier[] = {still(WEIR_FIXED_WINDOW, 100001 * times), still(WEIR_TOKEN_BUCKET, 200001 * times)};
    both[0].name = set == 0 ? "a" : "b";
    const weir_limit low = still(WEIR_SLIDING_WINDOW, set == 0 ? 300000 : 2 * BIG);
    const weir_limit high = still(WEIR_TOKEN_BUCKET, set == 0 ? BIG : 400000);
    const weir_policy policies[] = {{.name = "both", .limits = both, .limit_count = 2},
                                    {.name = set == 0 ? "both/x" : "both/y", .limits = tier, .limit_count = 2},
                                    {.name = "low", .limits = &low, .limit_count = 1},
                                    {.name = "high", .limits = &high, .limit_count = 1}};
    const weir_policy turned[] = {policies[3], policies[1], policies[2], policies[0]};
    assert_int_equal(weir_set_policies(change->w, set == 0 ? policies : turned, 4, NULL), 0);
}

/* Whether "both", or the tier of set `set` (2: "both" itself), can have said this. */
static bool pair_exists(const weir_verdict *v, unsigned tier)
{
    const uint64_t more = tier != 2 ? 1 : 0;
    const uint64_t few = (v->limit_index == 0 ? 100000 : 200000) + more;
    if (tier != 2 && v->limit == UINT64_MAX) {
        return v->allowed; /* not in this set: unknown, and allowed */
    }
    return v->limit_index < 2 && ((v->limit == few && tier != 1) || (v->limit == few * 10 && tier != 0));
}

static void *change_main(void *arg)
{
    struct change *change = arg;
    const uint64_t number = atomic_fetch_add(&change->number, 1);
    uint64_t rng = change->seed + number;
    weir_thread *t = weir_attach(change->w);
    uint64_t mixtures = 0;
    uint64_t checks = 0;
    for (; !atomic_load(&change->stop); checks++) {
        /* A name for some time, so that there are grants; never so long that its units run out. */
        const uint64_t name = checks / 256 % 1024;
        const weir_key both = weir_make_key(change->w, change->both[0], &name, sizeof(name));
        const weir_key tiers[] = {weir_make_key(change->w, change->tiers[0], &name, sizeof(name)),
                                  weir_make_key(change->w, change->tiers[1], &name, sizeof(name))};
        const weir_key few[] = {weir_make_key(change->w, change->low, &name, sizeof(name)),
                                weir_make_key(change->w, change->high, &name, sizeof(name))};
        const weir_key turned[] = {few[1], few[0]};
        weir_verdict v;
        const unsigned tier = (unsigned) random_below(&rng, 2);
        switch (random_below(&rng, 5)) {
        case 0:
            (void) weir_check(t, &both, 1, &v);
            mixtures += !pair_exists(&v, 2);
            break;
        case 1:
            (void) weir_check(t, &tiers[tier], 1, &v);
            mixtures += !pair_exists(&v, tier);
            break;
        case 2:
            (void) weir_check_all(t, &both, NULL, 1, &v);
            mixtures += !pair_exists(&v, 2);
            break;
        case 3: /* In each set one of them has few, and is the one with the least left. */
            (void) weir_check_all(t, few, NULL, 2, &v);
            mixtures += v.limit != (v.key_index == 0 ? 300000 : 400000);
            break;
        default:
            (void) weir_check_all(t, turned, NULL, 2, &v);
            mixtures += v.limit != (v.key_index == 1 ? 300000 : 400000);
            break;
        }
    }
    (void) atomic_fetch_add(&change->mixtures, mixtures);
    (void) atomic_fetch_add(&change->checks, checks);
    weir_detach(t);
    return NULL;
}

static void test_every_check_all_sees_one_set_of_policies(void **state)
{
    (void) state;
    struct change change = {.w = open_or_fail(NULL), .seed = test_seed()};
    /* Both once, so that all names have their numbers. */
    change_to(&change, 1);
    change.tiers[1] = weir_find_policy(change.w, "both/y");
    change_to(&change, 0);
    change.tiers[0] = weir_find_policy(change.w, "both/x");
    change.both[0] = weir_find_policy(change.w, "both");
    change.low = weir_find_policy(change.w, "low");
    change.high = weir_find_policy(change.w, "high");
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, change_main, &change), 0);
    }
    const uint64_t until_ns = real_ns() + SECOND;
    unsigned changes = 0;
    while (real_ns() < until_ns || changes < 50) {
        change_to(&change, ++changes % 2);
    }
    atomic_store(&change.stop, true);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(change.mixtures, 0);
    print_message("# %u changes, %" PRIu64 " checks\n", changes, (uint64_t) change.checks);
    weir_close(change.w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_flood_of_check_all_keeps_every_limit_and_gives_back_what_it_refuses),
        cmocka_unit_test(test_requests_that_fit_together_to_the_last_unit_all_pass),
        cmocka_unit_test(test_requests_that_need_each_others_last_units_end_with_one_that_passes),
        cmocka_unit_test(test_keys_that_are_numbers_are_told_apart_in_all_policies),
        cmocka_unit_test(test_every_check_all_sees_one_set_of_policies),
    };
    return cmocka_run_group_tests_name("stress/all", tests, NULL, NULL);
}
