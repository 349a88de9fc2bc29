/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policies change while threads check: every check sees one set or the other.
 *
 * Guards: src/policy/policy_set.c, src/limiter/bucket_origin.c, src/thread/rcu.c
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "support/support.h"

#define THREADS 8
#define CHANGES 400

struct change {
    weir *w;
    weir_policy_id policy;
    _Atomic bool stop;
    _Atomic uint64_t mixtures, checks;
};

/* Limit 1,000,000 comes with index 0 alone; with two limits the tighter one, index 1, is 500. */
static void *check_main(void *arg)
{
    struct change *change = arg;
    weir_thread *t = weir_attach(change->w);
    uint64_t mixtures = 0;
    for (uint64_t name = 0; !atomic_load(&change->stop); name++) {
        const uint64_t bytes = name / 400 % 64;
        const weir_key key = weir_make_key(change->w, change->policy, &bytes, sizeof(bytes));
        weir_verdict v;
        (void) weir_check(t, &key, 1, &v);
        mixtures += !((v.limit == 1000000 && v.limit_index == 0) || (v.limit == 500 && v.limit_index == 1));
        (void) atomic_fetch_add(&change->checks, 1);
    }
    (void) atomic_fetch_add(&change->mixtures, mixtures);
    weir_detach(t);
    return NULL;
}

static void test_every_check_sees_one_set_or_the_other(void **state)
{
    (void) state;
    struct change change = {.w = open_or_fail(NULL)};
    const weir_limit one[] = {{.algorithm = WEIR_TOKEN_BUCKET, .limit = 1000000, .period_ns = SECOND}};
    const weir_limit two[] = {{.algorithm = WEIR_TOKEN_BUCKET, .limit = 2000000, .period_ns = SECOND},
                              {.algorithm = WEIR_FIXED_WINDOW, .limit = 500, .period_ns = 60 * SECOND}};
    change.policy = set_one_policy(change.w, one, 1, WEIR_SCOPE_FLEET);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, check_main, &change), 0);
    }
    for (int i = 0; i < CHANGES; i++) {
        const bool first = i % 2 == 0;
        const uint64_t before = atomic_load(&change.checks);
        assert_int_equal(set_one_policy(change.w, first ? two : one, first ? 2 : 1, WEIR_SCOPE_FLEET), change.policy);
        /* A change waits for no check, and 400 can be over before a thread has run. */
        while (atomic_load(&change.checks) == before) {
            (void) sched_yield();
        }
    }
    atomic_store(&change.stop, true);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(change.mixtures, 0);
    weir_close(change.w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_check_sees_one_set_or_the_other),
    };
    return cmocka_run_group_tests_name("stress/change", tests, NULL, NULL);
}
