/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One decision over two keys: each address and each user may do 10 requests a second, 120 a minute and 240 an hour. A
 * request that either of them refuses is counted against neither. The program brings a clock of its own.
 */
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

#define SECOND UINT64_C(1000000000)

static weir_limit limit_of(const char *name, weir_algorithm algorithm, uint64_t units, uint64_t period_ns)
{
    weir_limit limit = WEIR_LIMIT_INIT;
    limit.name = name;
    limit.algorithm = algorithm;
    limit.limit = units;
    limit.period_ns = period_ns;
    return limit;
}

static uint64_t read_clock(void *now_ns)
{
    return *(const uint64_t *) now_ns;
}

static bool request(weir *w, weir_thread *thread, const char *address, const char *user, weir_verdict *verdict)
{
    const weir_key keys[] = {
        weir_make_key(w, weir_find_policy(w, "address"), address, strlen(address)), /* look ids up once, really */
        weir_make_key(w, weir_find_policy(w, "user"), user, strlen(user)),
    };
    return weir_check_all(thread, keys, NULL, 2, verdict);
}

int main(void)
{
    uint64_t now_ns = UINT64_C(1767225600) * SECOND; /* 2026-01-01 */
    const weir_clock clock = {.monotonic_ns = read_clock, .wall_ns = read_clock, .arg = &now_ns};
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &clock;
    const weir_limit limits[] = {
        limit_of("10/s", WEIR_TOKEN_BUCKET, 10, SECOND),
        limit_of("120/min", WEIR_SLIDING_WINDOW, 120, 60 * SECOND),
        limit_of("240/h", WEIR_SLIDING_WINDOW, 240, 3600 * SECOND),
    };
    weir_policy policies[] = {WEIR_POLICY_INIT, WEIR_POLICY_INIT};
    policies[0].name = "address";
    policies[1].name = "user";
    policies[0].limits = policies[1].limits = limits;
    policies[0].limit_count = policies[1].limit_count = 3;
    weir *w = NULL;
    weir_error error;
    if (weir_open(&options, &w, &error) != 0 || weir_set_policies(w, policies, 2, &error) != 0) {
        return fprintf(stderr, "%s\n", error.message), 1;
    }
    weir_thread *thread = weir_attach(w);
    if (thread == NULL) {
        return fprintf(stderr, "as many threads are attached as max_threads allows\n"), 1;
    }
    weir_verdict v;
    unsigned refused[] = {0, 0, 0};
    for (int i = 0; i < 12 + 3 * 180 && weir_poll(w) >= 0; i++) { /* twelve at once, then three a second */
        now_ns += i >= 12 && i % 3 == 0 ? SECOND : 0;
        if (!request(w, thread, "198.51.100.7", "alice", &v) && refused[v.limit_index]++ == 0) {
            printf("request %d of alice is the first that %s of her %s refuses\n", i + 1, limits[v.limit_index].name,
                   policies[v.key_index].name);
        }
    }
    (void) request(w, thread, "198.51.100.7", "bob", &v);
    printf("bob, from there: %s by %s of the %s\n", v.allowed ? "served" : "refused", limits[v.limit_index].name,
           policies[v.key_index].name);
    const weir_key bob = weir_make_key(w, weir_find_policy(w, "user"), "bob", 3);
    (void) weir_peek(thread, &bob, 1, &v);
    printf("that cost bob nothing: %d of %d left\n", (int) v.remaining, (int) v.limit);
    printf("bob, from elsewhere: %s\n", request(w, thread, "203.0.113.9", "bob", &v) ? "served" : "refused");
    weir_detach(thread);
    weir_close(w);
}
