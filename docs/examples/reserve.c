/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pacing: a leaky bucket says how long to wait before each call to a service that takes 50 a second, evenly. Then what
 * nginx's "limit_req burst=4", "burst=4 delay=2" and "burst=4 nodelay" are here, for six requests that come at once.
 * A place that is not needed is given back with weir_refund, and the next caller has it.
 */
#include <stdio.h>
#include <time.h>
#include <weir/weir.h>

#define SECOND UINT64_C(1000000000)

enum { POLICIES = 4 };

static const char *const names[POLICIES] = {"calls", "burst-4", "burst-4-delay-2", "burst-4-nodelay"};

static weir_limit limit_of(weir_algorithm algorithm, uint64_t a_second, uint64_t burst, uint64_t delay)
{
    weir_limit limit = WEIR_LIMIT_INIT;
    limit.algorithm = algorithm;
    limit.limit = a_second;
    limit.period_ns = SECOND;
    limit.burst = burst;
    limit.delay = delay;
    return limit;
}

int main(void)
{
    weir_options options = WEIR_OPTIONS_INIT;
    const weir_limit limits[POLICIES] = {
        limit_of(WEIR_LEAKY_BUCKET, 50, 10, 0),
        limit_of(WEIR_LEAKY_BUCKET, 10, 5, 0),
        limit_of(WEIR_LEAKY_BUCKET, 10, 5, 2),
        limit_of(WEIR_TOKEN_BUCKET, 10, 5, 0),
    };
    weir_policy policies[] = {WEIR_POLICY_INIT, WEIR_POLICY_INIT, WEIR_POLICY_INIT, WEIR_POLICY_INIT};
    for (size_t p = 0; p < POLICIES; p++) {
        policies[p].name = names[p];
        policies[p].limits = &limits[p];
        policies[p].limit_count = 1;
    }
    weir *w = NULL;
    weir_error error;
    if (weir_open(&options, &w, &error) != 0 || weir_set_policies(w, policies, POLICIES, &error) != 0) {
        return fprintf(stderr, "%s\n", error.message), 1;
    }
    weir_thread *thread = weir_attach(w);
    if (thread == NULL) {
        return fprintf(stderr, "as many threads are attached as max_threads allows\n"), 1;
    }
    weir_key key = weir_make_key(w, weir_find_policy(w, "calls"), "service", 7);
    uint64_t wait_ns;
    for (int i = 1; i <= 5; i++) {
        if (weir_reserve(thread, &key, 1, SECOND, &wait_ns)) {
            const struct timespec wait = {.tv_sec = (time_t) (wait_ns / SECOND), .tv_nsec = (long) (wait_ns % SECOND)};
            (void) nanosleep(&wait, NULL);
            printf("call %d after a wait of %.0f ms\n", i, (double) wait_ns / 1e6);
        }
    }
    for (int i = 0; i < 2; i++) { /* the second one gets the place that the first one gave back */
        if (weir_reserve(thread, &key, 1, SECOND, &wait_ns)) {
            printf("a place in %.0f ms, given back\n", (double) wait_ns / 1e6);
            weir_refund(thread, &key, 1);
        }
    }
    for (size_t p = 1; p < POLICIES; p++) {
        key = weir_make_key(w, weir_find_policy(w, names[p]), "198.51.100.7", 12);
        const uint64_t most_ns = limits[p].algorithm == WEIR_LEAKY_BUCKET ? SECOND : 0;
        printf("%-16s", names[p]);
        for (int i = 0; i < 6; i++) {
            if (weir_reserve(thread, &key, 1, most_ns, &wait_ns)) {
                printf("%7.0f ms", (double) wait_ns / 1e6);
            } else {
                printf("   refused");
            }
        }
        printf("\n");
    }
    weir_detach(thread);
    weir_close(w);
}
