/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir in a server's own event loop, without a thread of its own: the loop reads the clock once a turn, weir takes that
 * time, and weir_poll does what is due and says when it wants to be called again. Two checks every 10 ms, 200 a second,
 * against 100 a second, for half a second.
 */
#include <poll.h>
#include <stdio.h>
#include <time.h>
#include <weir/weir.h>

#define SECOND UINT64_C(1000000000)

struct loop {
    uint64_t monotonic_ns, wall_ns; /* as of this turn */
};

static uint64_t read_ns(clockid_t id)
{
    struct timespec now;
    (void) clock_gettime(id, &now); /* of clocks that are there it cannot fail */
    return (uint64_t) now.tv_sec * SECOND + (uint64_t) now.tv_nsec;
}

static uint64_t loop_monotonic(void *loop)
{
    return ((const struct loop *) loop)->monotonic_ns;
}

static uint64_t loop_wall(void *loop)
{
    return ((const struct loop *) loop)->wall_ns;
}

int main(void)
{
    struct loop loop = {read_ns(CLOCK_MONOTONIC), read_ns(CLOCK_REALTIME)};
    const weir_clock clock = {.monotonic_ns = loop_monotonic, .wall_ns = loop_wall, .arg = &loop};
    weir_options options = WEIR_OPTIONS_INIT;
    options.no_thread = true;
    options.clock = &clock;
    weir_limit limit = WEIR_LIMIT_INIT;
    limit.algorithm = WEIR_TOKEN_BUCKET;
    limit.limit = 100;
    limit.period_ns = SECOND;
    limit.burst = 10;
    weir_policy policy = WEIR_POLICY_INIT;
    policy.name = "api";
    policy.limits = &limit;
    policy.limit_count = 1;
    weir *w = NULL;
    weir_error error;
    if (weir_open(&options, &w, &error) != 0 || weir_set_policies(w, &policy, 1, &error) != 0) {
        return fprintf(stderr, "%s\n", error.message), 1;
    }
    weir_thread *thread = weir_attach(w);
    const weir_key key = weir_make_key(w, weir_find_policy(w, "api"), "198.51.100.7", 12);
    uint64_t next_ns = loop.monotonic_ns, end_ns = next_ns + SECOND / 2;
    unsigned turns = 0, asked = 0, served = 0;
    for (; thread != NULL && loop.monotonic_ns < end_ns; turns++) {
        loop.monotonic_ns = read_ns(CLOCK_MONOTONIC);
        loop.wall_ns = read_ns(CLOCK_REALTIME);
        const int timeout_ms = weir_poll(w);
        if (timeout_ms < 0) {
            return fprintf(stderr, "weir_poll: %d\n", timeout_ms), 1;
        }
        for (; next_ns <= loop.monotonic_ns; next_ns += SECOND / 100, asked += 2) { /* what came in */
            served += weir_check(thread, &key, 1, NULL);
            served += weir_check(thread, &key, 1, NULL);
        }
        const int next_ms = (int) ((next_ns - loop.monotonic_ns) / 1000000) + 1;
        (void) poll(NULL, 0, timeout_ms < next_ms ? timeout_ms : next_ms); /* the server's descriptors go here */
    }
    printf("%u turns of the loop, %u asked, %u served\n", turns, asked, served);
    weir_detach(thread);
    weir_close(w);
    return thread == NULL;
}
