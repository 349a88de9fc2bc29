/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For a support desk: how does a customer stand (weir_peek, which counts nothing), and a fresh beginning
 * (weir_reset, which with options.redis_url set forgets the key on the whole fleet).
 */
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

static void show(weir_thread *thread, const weir_key *key, const char *when)
{
    weir_verdict v;
    const bool pass = weir_peek(thread, key, 1, &v);
    printf("%-14s %llu of %llu left, one more would be %s", when, (unsigned long long) v.remaining,
           (unsigned long long) v.limit, pass ? "served" : "refused");
    if (!pass) {
        printf(" for %.0f s", (double) v.retry_after_ns / 1e9);
    }
    printf("; as new in %.0f s\n", (double) v.reset_after_ns / 1e9);
}

int main(void)
{
    weir_options options = WEIR_OPTIONS_INIT;
    weir_limit limit = WEIR_LIMIT_INIT;
    limit.algorithm = WEIR_TOKEN_BUCKET;
    limit.limit = 60;
    limit.period_ns = 3600 * UINT64_C(1000000000);
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
    const weir_key key = weir_make_key(w, weir_find_policy(w, "api"), "customer-17", 11);
    show(thread, &key, "at first:");
    for (int i = 0; i < 70; i++) {
        (void) weir_check(thread, &key, 1, NULL);
    }
    show(thread, &key, "after 70:");
    show(thread, &key, "asked again:");
    const int status = weir_reset(w, &key);
    if (status != 0) { /* -ENOTCONN, -ETIMEDOUT: forgotten here, and the fleet will be told */
        return fprintf(stderr, "weir_reset: %s\n", strerror(-status)), 1;
    }
    show(thread, &key, "after a reset:");
    weir_detach(thread);
    weir_close(w);
}
