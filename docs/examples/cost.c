/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that weigh differently: a key has 100 units, and 50 more each second; reading takes 1 of them, searching
 * 10, exporting 60. A cost of 0 asks and takes nothing; a cost above what can ever be there at once never passes.
 */
#include <stdio.h>
#include <weir/weir.h>

static const struct {
    const char *name;
    uint64_t cost;
} requests[] = {{"read", 1}, {"export", 60}, {"search", 10}, {"search", 10}, {"export", 60}, {"search", 10},
                {"read", 1}, {"search", 10}, {"read", 1},    {"ask", 0},     {"dump", 500}};

int main(void)
{
    weir_options options = WEIR_OPTIONS_INIT;
    weir_limit limit = WEIR_LIMIT_INIT;
    limit.algorithm = WEIR_TOKEN_BUCKET;
    limit.limit = 50;
    limit.period_ns = 1000000000;
    limit.burst = 100;
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
    const weir_key key = weir_make_key(w, weir_find_policy(w, "api"), "key-1", 5);
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        weir_verdict v;
        const bool pass = weir_check(thread, &key, requests[i].cost, &v);
        printf("%-6s %3llu units: %-7s %3llu left", requests[i].name, (unsigned long long) requests[i].cost,
               pass ? "served," : "refused,", (unsigned long long) v.remaining);
        if (!pass && v.retry_after_ns == UINT64_MAX) {
            printf(", will never pass: the most at once is %llu", (unsigned long long) v.limit);
        } else if (!pass) {
            printf(", again in %.2f s", (double) v.retry_after_ns / 1e9);
        }
        printf("\n");
    }
    weir_detach(thread);
    weir_close(w);
}
