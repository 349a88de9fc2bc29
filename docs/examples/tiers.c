/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tiers of one policy: "api/free" has 5 requests a minute, "api/pro" 20. They share what a key has used, since their
 * limits have the same algorithm and period: who upgrades goes on at once, with what is left of the greater limit, and
 * who goes back does not start afresh.
 */
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

#define MINUTE (60 * UINT64_C(1000000000))

static weir_key key_of(const weir *w, const char *tier, const char *customer)
{
    return weir_make_key(w, weir_find_policy(w, tier), customer, strlen(customer));
}

static void send_some(weir_thread *thread, const char *tier, const weir_key *key, unsigned count)
{
    unsigned served = 0;
    for (unsigned i = 0; i < count; i++) {
        served += weir_check(thread, key, 1, NULL);
    }
    weir_verdict v;
    (void) weir_peek(thread, key, 1, &v);
    printf("%-8s %2u of %2u served, %2llu of %2llu left\n", tier, served, count, (unsigned long long) v.remaining,
           (unsigned long long) v.limit);
}

int main(void)
{
    weir_options options = WEIR_OPTIONS_INIT;
    weir_limit limits[] = {WEIR_LIMIT_INIT, WEIR_LIMIT_INIT};
    limits[0].algorithm = limits[1].algorithm = WEIR_SLIDING_WINDOW;
    limits[0].period_ns = limits[1].period_ns = MINUTE;
    limits[0].limit = 5;
    limits[1].limit = 20;
    weir_policy policies[] = {WEIR_POLICY_INIT, WEIR_POLICY_INIT};
    policies[0].name = "api/free";
    policies[0].limits = &limits[0];
    policies[1].name = "api/pro";
    policies[1].limits = &limits[1];
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
    const weir_key free_key = key_of(w, "api/free", "customer-17");
    const weir_key pro_key = key_of(w, "api/pro", "customer-17");
    send_some(thread, "api/free", &free_key, 7);
    printf("the customer upgrades\n");
    send_some(thread, "api/pro", &pro_key, 10);
    printf("the customer goes back\n");
    send_some(thread, "api/free", &free_key, 3);
    weir_detach(thread);
    weir_close(w);
}
