/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who sends too much is denied by the name that the list tells. A server counts by address; one client floods it. The
 * list of offenders names the client, an entry denies its whole network, and one address of that is let through.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

#define SECOND UINT64_C(1000000000)

static uint64_t read_clock(void *now_ns)
{
    return *(const uint64_t *) now_ns;
}

/* How many of 100 requests of an address pass. */
static unsigned ask(weir *w, weir_thread *thread, const char *address)
{
    struct in_addr bytes;
    unsigned passed = 0;
    (void) inet_pton(AF_INET, address, &bytes);
    const weir_key key = weir_make_key(w, weir_find_policy(w, "api"), &bytes, sizeof(bytes));
    for (int i = 0; i < 100; i++) {
        passed += weir_check(thread, &key, 1, NULL);
    }
    printf("%s: %u of 100 pass\n", address, passed);
    return passed;
}

static void show(void *arg, const weir_override *entry)
{
    (void) arg;
    printf("  %s %s%s\n", entry->name, entry->value, entry->in_force ? "" : " (not in force)");
}

int main(void)
{
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
    if (weir_open(&options, &w, &error) != 0 || weir_set_policies(w, &policy, 1, &error) != 0 ||
        weir_set_key_form(w, "api", weir_address_form(64), &error) != 0) {
        return fprintf(stderr, "%s\n", error.message), 1;
    }
    weir_thread *thread = weir_attach(w);
    if (thread == NULL) {
        return fprintf(stderr, "as many threads are attached as max_threads allows\n"), 1;
    }
    (void) ask(w, thread, "198.51.100.7");
    now_ns += SECOND;
    if (weir_poll(w) < 0) {
        return 1;
    }
    weir_offender top[1];
    if (weir_top_offenders(w, weir_find_policy(w, "api"), top, 1) != 1) {
        return 1;
    }
    printf("denied most: %s\n", top[0].key);
    if (weir_set_override(w, "api:198.51.100.0/24", "deny", &error) != 0 ||
        weir_set_override(w, "api:198.51.100.9", "50", &error) != 0) {
        return fprintf(stderr, "%s\n", error.message), 1;
    }
    (void) weir_list_overrides(w, show, NULL);
    const unsigned network = ask(w, thread, top[0].key);
    const unsigned single = ask(w, thread, "198.51.100.9");
    if (weir_set_override(w, "api:198.51.100", "deny", &error) != 0) {
        printf("%s\n", error.message);
    }
    /* The same of all policies; and what it says of an address where a limit is not of addresses. */
    const unsigned char address[] = {203, 0, 113, 7};
    if (weir_set_override(w, "*:203.0.113.0/24", "allow", &error) != 0 ||
        weir_find_override(thread, address, sizeof(address), NULL) != WEIR_OVERRIDE_ALLOW) {
        return 1;
    }
    weir_detach(thread);
    weir_close(w);
    return network == 0 && single == 50 ? 0 : 1;
}
