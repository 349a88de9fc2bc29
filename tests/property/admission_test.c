/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many requests of known sources find their key in the table, and pass, while nine of ten requests are of keys that
 * come once. Known sources come by Zipf's law, from twice as many keys as the table holds. The figures are printed, for
 * docs/decisions/020-new-keys.md.
 *
 * Guards: src/process/admission.c, src/process/insert.c
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "limiter/weir_private.h"
#include "support/support.h"
#include "thread/rcu.h"

/* The figures are those of a document, so that the traffic is the same in every run but for its order. */
#define MAX_KEYS        5000
#define SOURCES         (2 * MAX_KEYS)
#define FORGED          9     /* forged requests for each request of a known source */
#define REQUESTS        75000 /* of known sources, in each phase */
#define REQUESTS_PER_MS 25
#define FORGED_NAMES    (UINT64_C(1) << 40)

struct traffic {
    struct fake_clock clock;
    weir *w;
    weir_thread *t;
    weir_policy_id policy;
    double *weights; /* cumulative, by rank */
    uint64_t rng, forged, sent;
    uint64_t first; /* the name of the most frequent source */
};

/* What came of the known sources' requests. */
struct outcome {
    uint64_t requests, held, allowed;
};

static void traffic_open(struct traffic *traffic, const weir_limit *limit)
{
    memset(traffic, 0, sizeof(*traffic));
    fake_clock_init(&traffic->clock, 1760000000 * SECOND);
    weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = MAX_KEYS;
    options.max_threads = 1;
    options.clock = &traffic->clock.clock;
    traffic->w = open_or_fail(&options);
    traffic->t = weir_attach(traffic->w);
    traffic->policy = set_one_policy(traffic->w, limit, 1, WEIR_SCOPE_PROCESS);
    traffic->rng = test_seed();
    traffic->weights = calloc(SOURCES, sizeof(*traffic->weights));
    assert_non_null(traffic->weights);
    double sum = 0;
    for (size_t rank = 0; rank < SOURCES; rank++) {
        sum += 1 / ((double) rank + 1);
        traffic->weights[rank] = sum;
    }
}

static void traffic_close(struct traffic *traffic)
{
    free(traffic->weights);
    weir_detach(traffic->t);
    weir_close(traffic->w);
}

static uint64_t next_source(struct traffic *traffic)
{
    const double at = traffic->weights[SOURCES - 1] * (double) random_below(&traffic->rng, UINT32_MAX) / UINT32_MAX;
    size_t low = 0;
    size_t high = SOURCES - 1;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (traffic->weights[middle] < at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return traffic->first + low;
}

static bool is_held(const struct traffic *traffic, const weir_key *key)
{
    rcu_enter(traffic->t);
    const struct policy_set *set = process_policies(&traffic->w->limiter.process);
    const uint64_t hash = cell_hash(policy_set_by_id(set, traffic->policy), key, 0);
    rcu_leave(traffic->t);
    return table_find(&traffic->w->limiter.process.table, hash) != TABLE_NONE;
}

static bool request(struct traffic *traffic, uint64_t name, bool *held)
{
    const weir_key key = weir_make_key(traffic->w, traffic->policy, &name, sizeof(name));
    *held = is_held(traffic, &key);
    if (++traffic->sent % REQUESTS_PER_MS == 0) {
        fake_clock_advance(&traffic->clock, MILLISECOND);
        (void) weir_poll(traffic->w);
    }
    return weir_check(traffic->t, &key, 1, NULL);
}

static struct outcome run(struct traffic *traffic, unsigned forged)
{
    struct outcome outcome = {0};
    for (uint64_t i = 0; i < REQUESTS; i++) {
        bool held;
        outcome.requests++;
        outcome.allowed += request(traffic, next_source(traffic), &held);
        outcome.held += held;
        for (unsigned f = 0; f < forged; f++) {
            bool forged_held;
            (void) request(traffic, FORGED_NAMES + traffic->forged++, &forged_held);
        }
    }
    return outcome;
}

static double part(uint64_t some, const struct outcome *outcome)
{
    return (double) some / (double) outcome->requests;
}

/*
 * Known sources alone; then with the flood; then the flood with other known sources. `flooded_least`, `others_least`:
 * parts of the requests that find their key in the table. A table that gives every new key a cell has less.
 */
static void run_phases(const char *name, const weir_limit *limit, double flooded_least, double others_least)
{
    struct traffic traffic;
    traffic_open(&traffic, limit);
    (void) run(&traffic, 0); /* fills the table */
    const struct outcome alone = run(&traffic, 0);
    (void) run(&traffic, FORGED);
    const struct outcome flooded = run(&traffic, FORGED);
    traffic.first = SOURCES;
    (void) run(&traffic, FORGED);
    const struct outcome others = run(&traffic, FORGED);
    print_message(
        "# %s: in the table %.3f alone, %.3f in the flood, %.3f of other sources after it; passed %.3f, %.3f, "
        "%.3f\n",
        name, part(alone.held, &alone), part(flooded.held, &flooded), part(others.held, &others),
        part(alone.allowed, &alone), part(flooded.allowed, &flooded), part(others.allowed, &others));
    assert_true(part(flooded.held, &flooded) >= flooded_least);
    assert_true(part(others.held, &others) >= others_least);
    assert_true(part(flooded.allowed, &flooded) >= 0.99);
    assert_true(part(others.allowed, &others) >= 0.99);
    traffic_close(&traffic);
}

static void test_known_sources_stay_in_the_table_while_keys_come_once(void **state)
{
    (void) state;
    const weir_limit minute = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1000000, .period_ns = 60 * SECOND};
    const weir_limit second = {.algorithm = WEIR_FIXED_WINDOW, .limit = 100000, .period_ns = SECOND};
    const weir_limit slow = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 1000, .burst = 1000000, .period_ns = SECOND};
    const weir_limit fast = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 1000000, .period_ns = SECOND};
    run_phases("window of a minute", &minute, 0.8, 0.63);
    run_phases("window of a second", &second, 0.88, 0.72);
    run_phases("bucket, 1 ms a unit", &slow, 0.88, 0.72);
    run_phases("bucket, 1 us a unit", &fast, 0.88, 0.72);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_sources_stay_in_the_table_while_keys_come_once),
    };
    return cmocka_run_group_tests_name("property/admission", tests, NULL, NULL);
}
