/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A monthly quota with a limit per second beside it: 60 requests in a calendar month (UTC), at most 5 at once and 5 a
 * second. The program brings a clock of its own and starts 15 seconds before the end of January.
 */
#include <stdio.h>
#include <weir/weir.h>

#define SECOND UINT64_C(1000000000)

enum { RATE, QUOTA };

static uint64_t read_clock(void *now_ns)
{
    return *(const uint64_t *) now_ns;
}

int main(void)
{
    uint64_t now_ns = UINT64_C(1769903985) * SECOND; /* 2026-01-31 23:59:45 UTC */
    const weir_clock clock = {.monotonic_ns = read_clock, .wall_ns = read_clock, .arg = &now_ns};
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &clock;
    weir_limit limits[] = {WEIR_LIMIT_INIT, WEIR_LIMIT_INIT};
    limits[RATE].algorithm = WEIR_TOKEN_BUCKET;
    limits[RATE].limit = 5;
    limits[RATE].period_ns = SECOND;
    limits[QUOTA].algorithm = WEIR_FIXED_WINDOW;
    limits[QUOTA].limit = 60;
    limits[QUOTA].calendar = WEIR_CALENDAR_MONTH;
    weir_policy policy = WEIR_POLICY_INIT;
    policy.name = "api";
    policy.limits = limits;
    policy.limit_count = 2;
    weir *w = NULL;
    weir_error error;
    if (weir_open(&options, &w, &error) != 0 || weir_set_policies(w, &policy, 1, &error) != 0) {
        return fprintf(stderr, "%s\n", error.message), 1;
    }
    weir_thread *thread = weir_attach(w);
    if (thread == NULL) {
        return fprintf(stderr, "as many threads are attached as max_threads allows\n"), 1;
    }
    const weir_key key = weir_make_key(w, weir_find_policy(w, "api"), "customer-17", 11);
    for (int second = -15; second < 3; second++) { /* seven requests in each second */
        unsigned served = 0, refused[] = {0, 0};
        uint64_t retry_after_ns = 0;
        if (weir_poll(w) < 0) {
            return 1;
        }
        for (int i = 0; i < 7; i++) {
            weir_verdict v;
            if (weir_check(thread, &key, 1, &v)) {
                served++;
            } else {
                refused[v.limit_index]++;
                retry_after_ns = v.retry_after_ns;
            }
        }
        printf("%+3d s: %u served, %u refused by the rate, %u by the quota", second, served, refused[RATE],
               refused[QUOTA]);
        if (refused[QUOTA] != 0) {
            printf("; again in %.0f s", (double) retry_after_ns / 1e9);
        }
        printf("\n");
        now_ns += SECOND;
    }
    weir_detach(thread);
    weir_close(w);
}
