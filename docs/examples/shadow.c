/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trying a new policy on live traffic: the old one decides, the new one is in shadow mode beside it, counts, and says
 * in would_deny what it would refuse. The program counts where they differ, over 20 seconds of its own clock in which a
 * client sends 30 requests at once every two seconds.
 */
#include <stdio.h>
#include <weir/weir.h>

#define SECOND UINT64_C(1000000000)

enum { OLD, NEW };

static uint64_t read_clock(void *now_ns)
{
    return *(const uint64_t *) now_ns;
}

int main(void)
{
    uint64_t now_ns = UINT64_C(1767225600) * SECOND; /* 2026-01-01 */
    const weir_clock clock = {.monotonic_ns = read_clock, .wall_ns = read_clock, .arg = &now_ns};
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &clock;
    weir_limit limits[] = {WEIR_LIMIT_INIT, WEIR_LIMIT_INIT};
    limits[OLD].algorithm = WEIR_FIXED_WINDOW;
    limits[NEW].algorithm = WEIR_TOKEN_BUCKET;
    limits[NEW].burst = 25;
    limits[OLD].limit = limits[NEW].limit = 120;
    limits[OLD].period_ns = limits[NEW].period_ns = 10 * SECOND;
    weir_policy policies[] = {WEIR_POLICY_INIT, WEIR_POLICY_INIT};
    policies[OLD].name = "api";
    policies[OLD].limits = &limits[OLD];
    policies[NEW].name = "api-next";
    policies[NEW].limits = &limits[NEW];
    policies[NEW].mode = WEIR_SHADOW;
    policies[OLD].limit_count = policies[NEW].limit_count = 1;
    weir *w = NULL;
    weir_error error;
    if (weir_open(&options, &w, &error) != 0 || weir_set_policies(w, policies, 2, &error) != 0) {
        return fprintf(stderr, "%s\n", error.message), 1;
    }
    weir_thread *thread = weir_attach(w);
    if (thread == NULL) {
        return fprintf(stderr, "as many threads are attached as max_threads allows\n"), 1;
    }
    const weir_key old_key = weir_make_key(w, weir_find_policy(w, "api"), "198.51.100.7", 12);
    const weir_key new_key = weir_make_key(w, weir_find_policy(w, "api-next"), "198.51.100.7", 12);
    unsigned count[][2] = {{0, 0}, {0, 0}}; /* [old one passes][new one passes] */
    for (int second = 0; second < 20; second++, now_ns += SECOND) {
        if (weir_poll(w) < 0) {
            return 1;
        }
        for (int i = 0; i < (second % 2 == 0 ? 30 : 0); i++) {
            weir_verdict v;
            const bool pass = weir_check(thread, &old_key, 1, NULL); /* this one decides */
            (void) weir_check(thread, &new_key, 1, &v);              /* this one always allows */
            count[pass][!v.would_deny]++;
        }
    }
    printf("%-22s %10s %10s\n", "", "new passes", "new denies");
    printf("%-22s %10u %10u\n", "old passes", count[1][1], count[1][0]);
    printf("%-22s %10u %10u\n", "old denies", count[0][1], count[0][0]);
    weir_policy_stats stats; /* what a page of an operator's could show */
    if (weir_get_policy_stats(w, new_key.policy, &stats, sizeof stats) != 0) {
        return 1;
    }
    printf("api-next: %llu allowed, of which it would deny %llu\n", (unsigned long long) stats.allowed_count,
           (unsigned long long) stats.would_deny_count);
    weir_detach(thread);
    weir_close(w);
}
