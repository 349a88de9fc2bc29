/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir_check_all from slots against weir_check_all in the table. Two limiters get the same requests at the same times.
 * One keeps its handle, so its slots answer what they can. The other one gets a new handle for each request, whose
 * slots are empty. Answers, verdicts, counts and denied units must be equal. Under a clock that the test moves.
 *
 * Guards: src/check/check_all.c, src/check/check_all_burst.c, src/check/all_direct.c,
 * src/check/all_table.c, src/check/slot_learn.c, src/thread/slot_word.h
 */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "limiter/weir_private.h"
#include "support/support.h"
#include "thread/limiter.h"
#include "thread/policy_snapshot.h"
#include "thread/slot_word.h"

#define START_NS (UINT64_C(1767225610) * SECOND) /* 2026-01-01, ten seconds into a minute */
#define POLICIES (POLICY_SNAPSHOTS_KEPT + 2)     /* more than a thread caches the numbers of */
#define KEYS     3
#define ROUNDS   200
#define STEPS    600

/* A limiter, and the keys that both limiters have: keys[policy][key]. */
struct side {
    weir *w;
    weir_thread *t;
    weir_key keys[POLICIES][KEYS];
};

static struct {
    struct fake_clock clock;
    struct side slots, table;
    uint64_t costs[POLICIES]; /* of the requests for keys of a policy */
    bool other_costs;         /* some requests have other costs */
    bool verdicts;            /* every request asks for a verdict */
    uint64_t denied_by_slots;
} d;

#define NUMBERS 2000

/* The bytes of the keys. */
static uint64_t numbers[NUMBERS];

static const char *const names[POLICIES] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};

/* What the logs of NUMBERS keys of all policies have memory for. Which key found none is not said. */
#define LOG_MOST 300

/* Half of the limits are such that the requests of a round use them up. */
static weir_limit random_limit(uint64_t *rng)
{
    weir_limit limit = draw_weir_limit(rng, draw_algorithm(rng), 0);
    if (draw_once_in(rng, 2)) {
        limit.limit = draw_between(rng, 1, 20);
        limit.burst = draw_burst(rng, limit.limit);
    }
    if (limit.algorithm == WEIR_SLIDING_LOG && limit.limit > LOG_MOST) {
        limit.limit = LOG_MOST;
    }
    draw_make_valid(&limit);
    return limit;
}

static void side_open(struct side *side, const weir_policy *policies)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &d.clock.clock;
    side->w = open_or_fail(&options);
    side->t = weir_attach(side->w);
    weir_error error;
    if (weir_set_policies(side->w, policies, POLICIES, &error) != 0) {
        fail_msg("%s", error.message);
    }
}

static weir_key number_key(const struct side *side, size_t policy, const uint64_t *number)
{
    return weir_make_key(side->w, weir_find_policy(side->w, names[policy]), number, sizeof(*number));
}

/* Whether no key of a side before this one belongs to the same set of slots. A set that is full has none to give. */
static bool has_set_alone(const struct side *side, size_t count)
{
    const weir_key *keys = &side->keys[0][0];
    for (size_t i = 0; i < count; i++) {
        if (slot_set(side->t, keys[i].hash) == slot_set(side->t, keys[count].hash)) {
            return false;
        }
    }
    return true;
}

/* Each weir hashes by a seed of its own. */
static void choose_keys(void)
{
    size_t next = 0;
    for (size_t i = 0; i < POLICIES * KEYS; i++) {
        do {
            assert_true(next < NUMBERS);
            (&d.slots.keys[0][0])[i] = number_key(&d.slots, i / KEYS, &numbers[next]);
            (&d.table.keys[0][0])[i] = number_key(&d.table, i / KEYS, &numbers[next]);
            next++;
        } while (!has_set_alone(&d.slots, i) || !has_set_alone(&d.table, i));
    }
}

static void open_both(uint64_t *rng)
{
    for (uint64_t i = 0; i < NUMBERS; i++) {
        numbers[i] = i;
    }
    weir_limit limits[POLICIES];
    weir_policy policies[POLICIES];
    for (size_t p = 0; p < POLICIES; p++) {
        limits[p] = random_limit(rng);
        policies[p] = (weir_policy){.name = names[p],
                                    .limits = &limits[p],
                                    .limit_count = 1,
                                    .mode = random_below(rng, 4) == 0 ? WEIR_SHADOW : WEIR_ENFORCE};
        d.costs[p] = draw_cost(rng, limits[p].burst != 0 ? limits[p].burst : limits[p].limit);
    }
    d.other_costs = random_below(rng, 2) == 0;
    d.verdicts = random_below(rng, 2) == 0;
    fake_clock_init(&d.clock, START_NS);
    side_open(&d.slots, policies);
    side_open(&d.table, policies);
    choose_keys();
}

static void renew_handle(struct side *side)
{
    weir_detach(side->t);
    side->t = weir_attach(side->w);
}

/* Which keys, at which costs. */
struct plan {
    size_t count;
    size_t policy[WEIR_MAX_KEYS_AT_ONCE], key[WEIR_MAX_KEYS_AT_ONCE];
    uint64_t costs[WEIR_MAX_KEYS_AT_ONCE];
    bool with_verdict;
};

static struct plan random_plan(uint64_t *rng)
{
    struct plan plan = {.count = 1 + random_below(rng, POLICIES),
                        .with_verdict = d.verdicts || random_below(rng, 2) == 0};
    for (size_t i = 0; i < plan.count; i++) {
        plan.policy[i] = random_below(rng, 4) == 0 ? random_below(rng, POLICIES) : i;
        plan.key[i] = random_below(rng, 3) == 0 ? random_below(rng, KEYS) : 0;
        plan.costs[i] = d.costs[plan.policy[i]];
        if (d.other_costs && random_below(rng, 8) == 0) {
            plan.costs[i] = random_below(rng, 5);
        }
    }
    return plan;
}

static bool play(struct side *side, const struct plan *plan, weir_verdict *verdict)
{
    weir_key keys[WEIR_MAX_KEYS_AT_ONCE];
    for (size_t i = 0; i < plan->count; i++) {
        keys[i] = side->keys[plan->policy[i]][plan->key[i]];
    }
    return weir_check_all(side->t, keys, plan->costs, plan->count, plan->with_verdict ? verdict : NULL);
}

/* A slot rounds the time to the next unused state up by at most a nanosecond. */
static void expect_equal_verdicts(size_t step, const weir_verdict *a, const weir_verdict *b)
{
    if (a->allowed != b->allowed || a->would_deny != b->would_deny || a->key_index != b->key_index ||
        a->limit_index != b->limit_index || a->basis != b->basis || a->limit != b->limit ||
        a->remaining != b->remaining || a->retry_after_ns != b->retry_after_ns ||
        a->reset_after_ns - b->reset_after_ns + 1 > 2) {
        fail_msg(
            "step %zu: by slots allowed %d, would deny %d, key %d, limit %" PRIu64 ", %" PRIu64 " left, retry %" PRIu64
            ", reset %" PRIu64 "; by the table %d, %d, %d, %" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64,
            step, a->allowed, a->would_deny, a->key_index, a->limit, a->remaining, a->retry_after_ns, a->reset_after_ns,
            b->allowed, b->would_deny, b->key_index, b->limit, b->remaining, b->retry_after_ns, b->reset_after_ns);
    }
}

static void step_all(uint64_t *rng, size_t step)
{
    const struct plan plan = random_plan(rng);
    weir_verdict by_slots = {0};
    weir_verdict by_table = {0};
    weir_stats before;
    weir_stats after;
    weir_get_stats(d.slots.w, &before);
    const bool allowed = play(&d.slots, &plan, &by_slots);
    weir_get_stats(d.slots.w, &after);
    d.denied_by_slots += !allowed && after.slow_count == before.slow_count;
    renew_handle(&d.table);
    assert_int_equal(play(&d.table, &plan, &by_table), allowed);
    expect_equal_verdicts(step, &by_slots, &by_table);
}

static void step_one(uint64_t *rng)
{
    const size_t p = random_below(rng, POLICIES);
    const size_t k = random_below(rng, KEYS);
    const uint64_t kind = random_below(rng, 3);
    renew_handle(&d.table);
    if (kind == 0) {
        weir_charge(d.slots.t, &d.slots.keys[p][k], 2);
        weir_charge(d.table.t, &d.table.keys[p][k], 2);
    } else if (kind == 1) {
        weir_refund(d.slots.t, &d.slots.keys[p][k], 1);
        weir_refund(d.table.t, &d.table.keys[p][k], 1);
    } else {
        assert_int_equal(weir_check(d.slots.t, &d.slots.keys[p][k], d.costs[p], NULL),
                         weir_check(d.table.t, &d.table.keys[p][k], d.costs[p], NULL));
    }
}

static void step_time(uint64_t *rng)
{
    /* Whole ticks: an answer from a slot may be a tick old. */
    fake_clock_advance(&d.clock,
                       d.slots.t->limiter->tick_ns * (1 + random_below(rng, random_below(rng, 4) == 0 ? 200 : 2)));
    assert_true(weir_poll(d.slots.w) >= 0);
    renew_handle(&d.table);
    assert_true(weir_poll(d.table.w) >= 0);
}

/* What all handles have counted for a policy. */
static struct tally tally_of(const struct side *side, size_t policy)
{
    const struct limiter *limiter = &side->w->limiter;
    const weir_policy_id id = weir_find_policy(side->w, names[policy]);
    struct tally sum = {0};
    for (uint32_t i = 0; i < load_relaxed(&limiter->shared->thread_high); i++) {
        const struct tally *one = &limiter->threads[i].tallies[id];
        counter_add(&sum.allowed, load_relaxed(&one->allowed));
        counter_add(&sum.denied, load_relaxed(&one->denied));
        counter_add(&sum.would_deny, load_relaxed(&one->would_deny));
    }
    return sum;
}

static void expect_equal_tallies(void)
{
    for (size_t p = 0; p < POLICIES; p++) {
        const struct tally a = tally_of(&d.slots, p);
        const struct tally b = tally_of(&d.table, p);
        assert_int_equal(load_relaxed(&a.allowed), load_relaxed(&b.allowed));
        assert_int_equal(load_relaxed(&a.would_deny), load_relaxed(&b.would_deny));
        if (d.verdicts) { /* else a slot denies, and nobody looks whether other keys deny for longer */
            assert_int_equal(load_relaxed(&a.denied), load_relaxed(&b.denied));
        }
    }
}

/* Both have counted the checks of each outcome, and the denied units. */
static void expect_equal_counts(void)
{
    weir_stats a;
    weir_stats b;
    renew_handle(&d.slots); /* what its slots have counted is settled */
    renew_handle(&d.table);
    for (int i = 0; i < 10; i++) {
        fake_clock_advance(&d.clock, 100 * MILLISECOND);
        assert_true(weir_poll(d.slots.w) >= 0 && weir_poll(d.table.w) >= 0);
    }
    weir_get_stats(d.slots.w, &a);
    weir_get_stats(d.table.w, &b);
    expect_equal_tallies();
    assert_int_equal(a.allowed_count, b.allowed_count);
    assert_int_equal(a.denied_count, b.denied_count);
    assert_int_equal(a.would_deny_count, b.would_deny_count);
    /* Without a verdict, of a request that a slot denies, a key without a slot counts no units. Of a greater cost than
     * the one that was denied a slot counts those of the latter: the former may never pass. */
    if (d.verdicts && !d.other_costs) {
        assert_int_equal(a.denied_units, b.denied_units);
    }
}

static void test_slots_answer_for_several_keys_as_the_table_does(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    d.denied_by_slots = 0;
    for (int round = 0; round < ROUNDS; round++) {
        open_both(&rng);
        for (size_t step = 0; step < STEPS; step++) {
            const uint64_t kind = random_below(&rng, 20);
            if (kind == 0) {
                step_time(&rng);
            } else if (kind < 4) {
                step_one(&rng);
            } else {
                step_all(&rng, step);
            }
        }
        expect_equal_counts();
        weir_close(d.slots.w);
        weir_close(d.table.w);
    }
    assert_true(d.denied_by_slots > ROUNDS * STEPS / 20);
}

/* Whether the key denies by itself: with its cost, or with that of all its places in the request. */
static bool denies_alone(const weir_key *keys, const uint64_t *costs, size_t width, size_t index)
{
    uint64_t cost = 0;
    for (size_t i = 0; i < width; i++) {
        const bool same = keys[i].policy == keys[index].policy && keys[i].hash == keys[index].hash;
        cost += same ? (costs != NULL ? costs[i] : 1) : 0;
    }
    return !weir_peek(d.table.t, &keys[index], cost, NULL);
}

/* Requests of a burst are those of weir_check_all, one after the other. */
static void burst_all(uint64_t *rng, size_t width, size_t requests)
{
    weir_key keys[2][150 * POLICIES];
    uint64_t costs[150 * POLICIES];
    uint64_t bits[(150 + 63) / 64 + 1];
    for (size_t i = 0; i < width * requests; i++) {
        const size_t p = random_below(rng, POLICIES);
        const size_t k = random_below(rng, KEYS);
        costs[i] = d.costs[p];
        keys[0][i] = d.slots.keys[p][k];
        keys[1][i] = d.table.keys[p][k];
        if (random_below(rng, 3) == 0) { /* one of many */
            const uint64_t *number = &numbers[random_below(rng, NUMBERS)];
            keys[0][i] = number_key(&d.slots, p, number);
            keys[1][i] = number_key(&d.table, p, number);
        }
    }
    memset(bits, 0xa5, sizeof(bits));
    const uint64_t *given = random_below(rng, 2) == 0 ? costs : NULL;
    const size_t words = (requests + 63) / 64;
    unsigned char denied_by[151];
    memset(denied_by, 0xa5, sizeof(denied_by));
    const bool tells = random_below(rng, 2) == 0;
    const weir_requests asked = {keys[0], given, width, requests, bits, denied_by};
    const size_t allowed = tells ? weir_check_requests(d.slots.t, &asked)
                                 : weir_check_all_burst(d.slots.t, keys[0], width, requests, given, bits);
    size_t expected = 0;
    for (size_t r = 0; r < words * 64; r++) {
        const uint64_t *own = given != NULL && r < requests ? given + r * width : NULL;
        const bool told = tells && r < requests && denied_by[r] < width;
        assert_true(!told || denies_alone(&keys[1][r * width], own, width, denied_by[r]));
        const bool pass = r < requests && weir_check_all(d.table.t, &keys[1][r * width], own, width, NULL);
        expected += pass;
        assert_true(!tells || r >= requests || (pass ? denied_by[r] == WEIR_NO_KEY : told));
        assert_int_equal(bits[r / 64] >> (r % 64) & 1, pass);
    }
    assert_int_equal(allowed, expected);
    assert_int_equal(bits[words], UINT64_C(0xa5a5a5a5a5a5a5a5)); /* no word more */
    assert_int_equal(denied_by[requests], 0xa5);
}

static void test_a_burst_of_requests_is_its_requests_in_order(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (int round = 0; round < ROUNDS / 3; round++) {
        open_both(&rng);
        for (int i = 0; i < 40; i++) {
            burst_all(&rng, 1 + random_below(&rng, 5), random_below(&rng, 2) == 0 ? 64 : random_below(&rng, 151));
            step_time(&rng);
        }
        weir_close(d.slots.w);
        weir_close(d.table.w);
    }
}

static void test_a_burst_of_no_keys_or_too_many_needs_no_limiter(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    uint64_t bits[2] = {0, 0};
    weir_key keys[70 * (WEIR_MAX_KEYS_AT_ONCE + 1)];
    open_both(&rng);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        keys[i] = d.slots.keys[0][0];
    }
    assert_int_equal(weir_check_all_burst(d.slots.t, NULL, 0, 70, NULL, bits), 70);
    assert_true(bits[0] == UINT64_MAX && bits[1] == 63);
    assert_int_equal(weir_check_all_burst(d.slots.t, keys, WEIR_MAX_KEYS_AT_ONCE + 1, 70, NULL, bits), 0);
    assert_true(bits[0] == 0 && bits[1] == 0);
    assert_int_equal(weir_check_all_burst(d.slots.t, keys, 1, 0, NULL, bits), 0);
    assert_int_equal(weir_check_all_burst(NULL, keys, 3, 70, NULL, bits), 70);
    assert_true(bits[0] == UINT64_MAX && bits[1] == 63);
    assert_int_equal(weir_check_all_burst(NULL, keys, 3, 64, NULL, NULL), 64);
    uint8_t denied_by[2] = {0, 0};
    const weir_requests too_many = {keys, NULL, WEIR_MAX_KEYS_AT_ONCE + 1, 2, NULL, denied_by};
    assert_int_equal(weir_check_requests(d.slots.t, &too_many), 0);
    assert_true(denied_by[0] == WEIR_NO_KEY && denied_by[1] == WEIR_NO_KEY);
    weir_close(d.slots.w);
    weir_close(d.table.w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slots_answer_for_several_keys_as_the_table_does),
        cmocka_unit_test(test_a_burst_of_requests_is_its_requests_in_order),
        cmocka_unit_test(test_a_burst_of_no_keys_or_too_many_needs_no_limiter),
    };
    return cmocka_run_group_tests_name("unit/check/check_all", tests, NULL, NULL);
}
