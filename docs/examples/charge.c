/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Costs that are known afterwards: tokens of a language model, 1,000 at once and 1,000 more a minute. A request is
 * admitted for what it will use by estimate; then what it did not use is given back (weir_refund), and what it used
 * besides is charged (weir_charge), even into debt. Bytes of a stream need no estimate: ask with cost 0, then charge.
 */
#include <stdio.h>
#include <weir/weir.h>

static void say(weir_thread *thread, const weir_key *key, const char *what, uint64_t units)
{
    weir_verdict v;
    const bool room = weir_peek(thread, key, 1, &v);
    printf("%-28s %4llu: %4llu left", what, (unsigned long long) units, (unsigned long long) v.remaining);
    if (!room) {
        printf(", a token will be there in %.1f s", (double) v.retry_after_ns / 1e9);
    }
    printf("\n");
}

static void complete(weir_thread *thread, const weir_key *key, uint64_t estimate, uint64_t used)
{
    if (!weir_check(thread, key, estimate, NULL)) {
        say(thread, key, "refused, estimated tokens", estimate);
        return;
    }
    say(thread, key, "admitted, estimated tokens", estimate);
    /* ... the model answers here, and says how many tokens it took ... */
    if (used < estimate) {
        weir_refund(thread, key, estimate - used);
        say(thread, key, "  given back", estimate - used);
    } else if (used > estimate) {
        weir_charge(thread, key, used - estimate);
        say(thread, key, "  charged besides", used - estimate);
    }
}

int main(void)
{
    weir_options options = WEIR_OPTIONS_INIT;
    weir_limit limit = WEIR_LIMIT_INIT;
    limit.algorithm = WEIR_TOKEN_BUCKET;
    limit.limit = 1000;
    limit.period_ns = 60 * UINT64_C(1000000000);
    weir_policy policies[] = {WEIR_POLICY_INIT, WEIR_POLICY_INIT};
    policies[0].name = "tokens";
    policies[1].name = "kilobytes";
    policies[0].limits = policies[1].limits = &limit;
    policies[0].limit_count = policies[1].limit_count = 1;
    weir *w = NULL;
    weir_error error;
    if (weir_open(&options, &w, &error) != 0 || weir_set_policies(w, policies, 2, &error) != 0) {
        return fprintf(stderr, "%s\n", error.message), 1;
    }
    weir_thread *thread = weir_attach(w);
    if (thread == NULL) {
        return fprintf(stderr, "as many threads are attached as max_threads allows\n"), 1;
    }
    const weir_key tokens = weir_make_key(w, weir_find_policy(w, "tokens"), "key-1", 5);
    complete(thread, &tokens, 400, 150);
    complete(thread, &tokens, 400, 1100);
    complete(thread, &tokens, 400, 400);

    const weir_key kilobytes = weir_make_key(w, weir_find_policy(w, "kilobytes"), "key-1", 5);
    for (int i = 0; i < 4 && weir_check(thread, &kilobytes, 0, NULL); i++) {
        weir_charge(thread, &kilobytes, 450); /* a download, when it is over */
        say(thread, &kilobytes, "downloaded, kilobytes", 450);
    }
    weir_detach(thread);
    weir_close(w);
}
