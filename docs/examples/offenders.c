/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is denied most? Three clients send for ten minutes of the program's own clock: one keeps to its limit, one sends
 * three times too much throughout, and one sends ten times too much in the second minute and then stops. The list,
 * asked for each minute, tells of the last minutes: the second client passes the third again.
 */
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

#define SECOND UINT64_C(1000000000)

static uint64_t read_clock(void *now_ns)
{
    return *(const uint64_t *) now_ns;
}

int main(void)
{
    static const char *const clients[] = {"polite", "greedy", "burst"};
    uint64_t now_ns = UINT64_C(1767225600) * SECOND; /* 2026-01-01 */
    const weir_clock clock = {.monotonic_ns = read_clock, .wall_ns = read_clock, .arg = &now_ns};
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &clock;
    weir_limit limit = WEIR_LIMIT_INIT;
    limit.algorithm = WEIR_TOKEN_BUCKET;
    limit.limit = 10;
    limit.period_ns = SECOND;
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
    if (thread == NULL) {
        return fprintf(stderr, "as many threads are attached as max_threads allows\n"), 1;
    }
    const weir_policy_id api = weir_find_policy(w, "api");
    for (int second = 1; second <= 600; second++) {
        const int sent[] = {8, 30, second > 60 && second <= 120 ? 100 : 0};
        for (int c = 0; c < 3; c++) {
            const weir_key key = weir_make_key(w, api, clients[c], strlen(clients[c]));
            for (int i = 0; i < sent[c]; i++) {
                (void) weir_check(thread, &key, 1, NULL);
            }
        }
        now_ns += SECOND;
        if (weir_poll(w) < 0) {
            return 1;
        }
        if (second % 60 != 0) {
            continue;
        }
        weir_offender top[WEIR_TOP_OFFENDERS];
        const size_t count = weir_top_offenders(w, api, top, WEIR_TOP_OFFENDERS);
        printf("minute %2d:", second / 60);
        for (size_t i = 0; i < count; i++) {
            printf("  %s %llu", top[i].key, (unsigned long long) top[i].denied_units);
        }
        printf("\n");
    }
    weir_detach(thread);
    weir_close(w);
}
