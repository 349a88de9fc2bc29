#include <stdio.h>
#include <weir/weir.h>

int main(void)
{
    weir_options options = WEIR_OPTIONS_INIT; /* options.redis_url = "redis://10.0.0.5" shares the limits */
    weir_limit limit = WEIR_LIMIT_INIT;
    limit.algorithm = WEIR_TOKEN_BUCKET;
    limit.limit = 100;
    limit.period_ns = 1000000000;
    limit.burst = 20;
    weir_policy policy = WEIR_POLICY_INIT;
    policy.name = "api";
    policy.limits = &limit;
    policy.limit_count = 1;
    weir *w = NULL;
    weir_error error;
    if (weir_open(&options, &w, &error) != 0 || weir_set_policies(w, &policy, 1, &error) != 0) {
        return fprintf(stderr, "%s\n", error.message), 1;
    }
    weir_thread *thread = weir_attach(w); /* once in each thread */
    const weir_key key = weir_make_key(w, weir_find_policy(w, "api"), "198.51.100.7", 12);
    for (int i = 0; i < 25; i++) {
        weir_verdict verdict;
        const bool pass = weir_check(thread, &key, 1, &verdict);
        printf("%s, %llu left\n", pass ? "served" : "refused", (unsigned long long) verdict.remaining);
    }
    weir_detach(thread);
    weir_close(w);
}
