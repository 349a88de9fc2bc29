/* SPDX-License-Identifier: Apache-2.0 */
#include "subjects.h"

#include <arpa/inet.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <weir/weir.h>

#define SECOND UINT64_C(1000000000)

static weir *limiter;
static weir *hung; /* its Redis takes connections and says nothing */
static int hung_fd;
static weir_policy_id hot, denied, four, many, logged, queued, used;

void bench_weir_open(size_t max_keys)
{
    weir_error error;
    weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = max_keys;
    /* Nothing is near its limit but what is meant to be. */
    static const weir_limit wide = {WEIR_TOKEN_BUCKET, 600000000, SECOND, 600000000};
    static const weir_limit none = {WEIR_FIXED_WINDOW, 1, 31622400 * SECOND, 0};
    static const weir_limit quad[] = {{WEIR_TOKEN_BUCKET, 600000000, SECOND, 600000000},
                                      {WEIR_FIXED_WINDOW, 4000000000000, 3600 * SECOND, 0},
                                      {WEIR_SLIDING_WINDOW, 4000000000000, 3600 * SECOND, 0},
                                      {WEIR_FIXED_WINDOW, 4000000000000, 86400 * SECOND, 0}};
    static const weir_limit exact = {.algorithm = WEIR_SLIDING_LOG, .limit = 65536, .period_ns = 1000000};
    static const weir_limit queue = {.algorithm = WEIR_LEAKY_BUCKET, .limit = 600000000, .period_ns = SECOND};
    static const weir_policy policies[] = {
        {.name = "hot", .limits = &wide, .limit_count = 1},     {.name = "denied", .limits = &none, .limit_count = 1},
        {.name = "four", .limits = quad, .limit_count = 4},     {.name = "many", .limits = &wide, .limit_count = 1},
        {.name = "logged", .limits = &exact, .limit_count = 1}, {.name = "queued", .limits = &queue, .limit_count = 1},
        {.name = "used", .limits = quad + 1, .limit_count = 1}};
    enum { POLICY_COUNT = sizeof(policies) / sizeof(policies[0]) };
    if (weir_open(&options, &limiter, &error) != 0 || weir_set_policies(limiter, policies, POLICY_COUNT, &error) != 0) {
        (void) fprintf(stderr, "bench: %s\n", error.message);
        exit(1);
    }
    hung_fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    char url[64];
    if (bind(hung_fd, (const struct sockaddr *) &address, sizeof(address)) != 0 || listen(hung_fd, 64) != 0 ||
        getsockname(hung_fd, (struct sockaddr *) &address, &length) != 0) {
        perror("bench");
        exit(1);
    }
    (void) snprintf(url, sizeof(url), "redis://127.0.0.1:%d", ntohs(address.sin_port));
    options.redis_url = url;
    options.max_keys = 65536;
    if (weir_open(&options, &hung, &error) != 0 || weir_set_policies(hung, policies, POLICY_COUNT, &error) != 0) {
        (void) fprintf(stderr, "bench: %s\n", error.message);
        exit(1);
    }
    hot = weir_find_policy(limiter, "hot"); /* the same in both */
    denied = weir_find_policy(limiter, "denied");
    four = weir_find_policy(limiter, "four");
    many = weir_find_policy(limiter, "many");
    logged = weir_find_policy(limiter, "logged");
    queued = weir_find_policy(limiter, "queued");
    used = weir_find_policy(limiter, "used");
}

void bench_weir_close(void)
{
    weir_close(limiter);
    weir_close(hung);
    (void) close(hung_fd);
}

void *bench_weir_attach(void)
{
    return weir_attach(limiter);
}

void *bench_hung_attach(void)
{
    return weir_attach(hung);
}

void bench_weir_detach(void *thread)
{
    weir_detach(thread);
}

static uint64_t check_one(const weir *w, void *thread, weir_policy_id policy, uint64_t count)
{
    const weir_key key = weir_make_key(w, policy, "0123456789abcdef", 16);
    weir_verdict verdict;
    uint64_t allowed = 0;
    for (uint64_t i = 0; i < count; i++) {
        allowed += weir_check(thread, &key, 1, &verdict);
    }
    return allowed;
}

uint64_t bench_hot(void *thread, uint64_t count)
{
    return check_one(limiter, thread, hot, count);
}

uint64_t bench_hot_hung(void *thread, uint64_t count)
{
    return check_one(hung, thread, hot, count);
}

uint64_t bench_denied(void *thread, uint64_t count)
{
    return check_one(limiter, thread, denied, count);
}

uint64_t bench_four_limits(void *thread, uint64_t count)
{
    return check_one(limiter, thread, four, count);
}

uint64_t bench_log(void *thread, uint64_t count)
{
    return check_one(limiter, thread, logged, count);
}

uint64_t bench_queue(void *thread, uint64_t count)
{
    const weir_key key = weir_make_key(limiter, queued, "0123456789abcdef", 16);
    uint64_t taken = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t wait_ns;
        taken += weir_reserve(thread, &key, 1, SECOND, &wait_ns);
    }
    return taken;
}

uint64_t bench_all(void *thread, uint64_t count)
{
    const weir_key keys[] = {weir_make_key(limiter, hot, "0123456789abcdef", 16),
                             weir_make_key(limiter, four, "0123456789abcdef", 16)};
    weir_verdict verdict;
    uint64_t allowed = 0;
    for (uint64_t i = 0; i < count; i++) {
        allowed += weir_check_all(thread, keys, NULL, 2, &verdict);
    }
    return allowed;
}

uint64_t bench_used(void *thread, uint64_t count)
{
    const weir_key key = weir_make_key(limiter, used, "0123456789abcdef", 16);
    for (uint64_t i = 0; i < count; i++) {
        weir_charge(thread, &key, 100);
        weir_refund(thread, &key, 40);
    }
    return count;
}

uint64_t bench_hot_hashed(void *thread, uint64_t count)
{
    char bytes[16] = "0123456789abcde";
    weir_verdict verdict;
    uint64_t allowed = 0;
    for (uint64_t i = 0; i < count; i++) {
        atomic_signal_fence(memory_order_seq_cst); /* the bytes could be others each time */
        const weir_key key = weir_make_key(limiter, hot, bytes, sizeof(bytes));
        allowed += weir_check(thread, &key, 1, &verdict);
    }
    return allowed;
}

uint64_t bench_many_keys(void *thread, uint64_t count, uint64_t keys, uint64_t *rng)
{
    uint64_t allowed = 0;
    for (uint64_t i = 0; i < count; i++) {
        *rng = *rng * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const uint64_t bytes[2] = {(*rng >> 33) % keys, 0};
        const weir_key key = weir_make_key(limiter, many, bytes, sizeof(bytes));
        allowed += weir_check(thread, &key, 1, NULL);
    }
    return allowed;
}

uint64_t bench_burst(void *thread, uint64_t count, uint64_t keys, size_t size, uint64_t *rng)
{
    uint64_t allowed = 0;
    for (uint64_t i = 0; i < count; i += size) {
        weir_key burst[BENCH_BURST_MAX];
        for (size_t j = 0; j < size; j++) {
            *rng = *rng * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            const uint64_t bytes[2] = {(*rng >> 33) % keys, 0};
            burst[j] = weir_make_key(limiter, many, bytes, sizeof(bytes));
        }
        uint64_t bits[BENCH_BURST_MAX / 64];
        allowed += weir_check_burst(thread, burst, NULL, size, bits);
    }
    return allowed;
}
