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

static const weir_limit call = {.algorithm = WEIR_LEAKY_BUCKET, .limit = 50, .period_ns = SECOND, .burst = 10};
static const weir_limit burst = {.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .period_ns = SECOND, .burst = 5};
static const weir_limit delay = {
    .algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .period_ns = SECOND, .burst = 5, .delay = 2};
static const weir_limit nodelay = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 10, .period_ns = SECOND, .burst = 5};
static const weir_policy policies[] = {
    {.name = "calls", .limits = &call, .limit_count = 1},
    {.name = "burst-4", .limits = &burst, .limit_count = 1},
    {.name = "burst-4-delay-2", .limits = &delay, .limit_count = 1},
    {.name = "burst-4-nodelay", .limits = &nodelay, .limit_count = 1},
};

int main(void)
{
    weir_options options = WEIR_OPTIONS_INIT;
    weir *w = NULL;
    weir_error error;
    if (weir_open(&options, &w, &error) != 0 || weir_set_policies(w, policies, 4, &error) != 0) {
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
    for (size_t p = 1; p < 4; p++) {
        key = weir_make_key(w, weir_find_policy(w, policies[p].name), "198.51.100.7", 12);
        const uint64_t most_ns = policies[p].limits->algorithm == WEIR_LEAKY_BUCKET ? SECOND : 0;
        printf("%-16s", policies[p].name);
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
