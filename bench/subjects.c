/* SPDX-License-Identifier: Apache-2.0 */
#include "subjects.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include <weir/weir.h>

#include "awake.h"
#include "floor.h"

#define SECOND UINT64_C(1000000000)

#define KEY_16 "0123456789abcdef"
#define KEY_64 KEY_16 KEY_16 KEY_16 KEY_16

static pthread_once_t opened = PTHREAD_ONCE_INIT;
static pthread_once_t filled = PTHREAD_ONCE_INIT;
static weir *limiter;
static weir_policy_id under[BENCH_LIMITS_MAX + 1]; /* by the number of limits */
static weir_policy_id denied, logged, queued, used;
static uint64_t key_count = BENCH_KEYS;

void bench_use_keys(uint64_t keys)
{
    key_count = keys > BENCH_KEYS ? keys : BENCH_KEYS;
}

uint64_t bench_key_count(void)
{
    return key_count;
}

static void open_limiter(void)
{
    weir_error error;
    weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = key_count;
    /* Nothing is near its limit but what is meant to be. */
    static const weir_limit wide[BENCH_LIMITS_MAX] = {
        {.algorithm = WEIR_TOKEN_BUCKET, .limit = 600000000, .period_ns = SECOND, .burst = 600000000},
        {.algorithm = WEIR_FIXED_WINDOW, .limit = 4000000000000, .period_ns = 3600 * SECOND},
        {.algorithm = WEIR_SLIDING_WINDOW, .limit = 4000000000000, .period_ns = 3600 * SECOND},
        {.algorithm = WEIR_FIXED_WINDOW, .limit = 4000000000000, .period_ns = 86400 * SECOND}};
    static const weir_limit none = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1, .period_ns = 31622400 * SECOND};
    static const weir_limit exact = {.algorithm = WEIR_SLIDING_LOG, .limit = 65536, .period_ns = 1000000};
    static const weir_limit queue = {.algorithm = WEIR_LEAKY_BUCKET, .limit = 600000000, .period_ns = SECOND};
    static const weir_policy policies[] = {
        {.name = "under_1", .limits = wide, .limit_count = 1},  {.name = "under_2", .limits = wide, .limit_count = 2},
        {.name = "under_3", .limits = wide, .limit_count = 3},  {.name = "under_4", .limits = wide, .limit_count = 4},
        {.name = "denied", .limits = &none, .limit_count = 1},  {.name = "logged", .limits = &exact, .limit_count = 1},
        {.name = "queued", .limits = &queue, .limit_count = 1}, {.name = "used", .limits = wide + 1, .limit_count = 1}};
    enum { POLICY_COUNT = sizeof(policies) / sizeof(policies[0]) };
    if (weir_open(&options, &limiter, &error) != 0 || weir_set_policies(limiter, policies, POLICY_COUNT, &error) != 0) {
        (void) fprintf(stderr, "bench: %s\n", error.message);
        exit(1);
    }
    for (size_t i = 0; i < BENCH_LIMITS_MAX; i++) {
        under[i + 1] = weir_find_policy(limiter, policies[i].name);
    }
    denied = weir_find_policy(limiter, "denied");
    logged = weir_find_policy(limiter, "logged");
    queued = weir_find_policy(limiter, "queued");
    used = weir_find_policy(limiter, "used");
}

void *bench_attach(void)
{
    (void) pthread_once(&opened, open_limiter);
    weir_thread *thread = weir_attach(limiter);
    const weir_key key = weir_make_key(limiter, under[1], "awake", 5);
    awake_wait(limiter, thread, &key);
    return thread;
}

void bench_detach(void *thread)
{
    weir_detach(thread);
}

void bench_close(void)
{
    weir_close(limiter);
    limiter = NULL;
}

/* The bytes of a key could be others each time. */
static inline void bytes_may_change(void)
{
    atomic_signal_fence(memory_order_seq_cst);
}

uint64_t bench_floor(void *thread, uint64_t count)
{
    (void) thread;
    struct floor_counter counter = {.left = UINT64_MAX};
    uint64_t allowed = 0;
    for (uint64_t i = 0; i < count; i++) {
        allowed += floor_check(&counter, 1);
    }
    return allowed;
}

static uint64_t floor_hashed(uint64_t count, const void *bytes, size_t length)
{
    /* What is in it does not matter for the time. */
    static unsigned char secret[FLOOR_SECRET_SIZE] = {1, 2, 3};
    struct floor_counter counters[2] = {{.left = UINT64_MAX}, {.left = UINT64_MAX}};
    uint64_t allowed = 0;
    for (uint64_t i = 0; i < count; i++) {
        bytes_may_change();
        allowed += floor_check(&counters[floor_hash(secret, bytes, length) & 1], 1);
    }
    return allowed;
}

uint64_t bench_floor_hash_16(void *thread, uint64_t count)
{
    (void) thread;
    char bytes[] = KEY_16;
    return floor_hashed(count, bytes, 16);
}

uint64_t bench_floor_hash_64(void *thread, uint64_t count)
{
    (void) thread;
    char bytes[] = KEY_64;
    return floor_hashed(count, bytes, 64);
}

static uint64_t check_key(void *thread, const weir_key *key, uint64_t count)
{
    weir_verdict verdict;
    uint64_t allowed = 0;
    for (uint64_t i = 0; i < count; i++) {
        allowed += weir_check(thread, key, 1, &verdict);
    }
    return allowed;
}

static uint64_t check_one(void *thread, weir_policy_id policy, uint64_t count)
{
    const weir_key key = weir_make_key(limiter, policy, KEY_16, 16);
    return check_key(thread, &key, count);
}

uint64_t bench_hot(void *thread, uint64_t count)
{
    return check_one(thread, under[1], count);
}

uint64_t bench_denied(void *thread, uint64_t count)
{
    return check_one(thread, denied, count);
}

uint64_t bench_log(void *thread, uint64_t count)
{
    return check_one(thread, logged, count);
}

uint64_t bench_limits(void *thread, uint64_t count, size_t limits)
{
    return check_one(thread, under[limits], count);
}

uint64_t bench_own(void *thread, uint64_t count, uint64_t number)
{
    const weir_key key = weir_make_key(limiter, under[1], &number, sizeof(number));
    return check_key(thread, &key, count);
}

static uint64_t check_hashed(void *thread, uint64_t count, const void *bytes, size_t length)
{
    weir_verdict verdict;
    uint64_t allowed = 0;
    for (uint64_t i = 0; i < count; i++) {
        bytes_may_change();
        const weir_key key = weir_make_key(limiter, under[1], bytes, length);
        allowed += weir_check(thread, &key, 1, &verdict);
    }
    return allowed;
}

uint64_t bench_hot_hash_16(void *thread, uint64_t count)
{
    char bytes[] = KEY_16;
    return check_hashed(thread, count, bytes, 16);
}

uint64_t bench_hot_hash_64(void *thread, uint64_t count)
{
    char bytes[] = KEY_64;
    return check_hashed(thread, count, bytes, 64);
}

uint64_t bench_peek(void *thread, uint64_t count)
{
    const weir_key key = weir_make_key(limiter, under[1], KEY_16, 16);
    weir_verdict verdict;
    uint64_t allowed = 0;
    for (uint64_t i = 0; i < count; i++) {
        allowed += i % 64 == 0 ? weir_check(thread, &key, 1, &verdict) : weir_peek(thread, &key, 1, &verdict);
    }
    return allowed;
}

static uint64_t reserve_one(void *thread, weir_policy_id policy, uint64_t count)
{
    const weir_key key = weir_make_key(limiter, policy, KEY_16, 16);
    uint64_t taken = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t wait_ns;
        taken += weir_reserve(thread, &key, 1, SECOND, &wait_ns);
    }
    return taken;
}

uint64_t bench_queue(void *thread, uint64_t count)
{
    return reserve_one(thread, queued, count);
}

uint64_t bench_reserve(void *thread, uint64_t count)
{
    return reserve_one(thread, under[1], count);
}

uint64_t bench_ask(void *thread, uint64_t count)
{
    const weir_key key = weir_make_key(limiter, under[1], KEY_16, 16);
    weir_verdict verdict;
    uint64_t allowed = 0;
    for (uint64_t i = 0; i < count; i++) {
        allowed += weir_check(thread, &key, 0, &verdict);
    }
    return allowed;
}

uint64_t bench_charge(void *thread, uint64_t count)
{
    const weir_key key = weir_make_key(limiter, used, KEY_16, 16);
    for (uint64_t i = 0; i < count; i++) {
        weir_charge(thread, &key, 100);
    }
    return count;
}

uint64_t bench_refund(void *thread, uint64_t count)
{
    const weir_key key = weir_make_key(limiter, under[1], KEY_16, 16);
    weir_verdict verdict;
    uint64_t allowed = 0;
    for (uint64_t i = 0; i < count; i++) {
        allowed += weir_check(thread, &key, 1, &verdict);
        weir_refund(thread, &key, 1);
    }
    return allowed;
}

uint64_t bench_all(void *thread, uint64_t count, size_t keys)
{
    weir_key all[BENCH_ALL_MAX];
    for (size_t i = 0; i < keys; i++) {
        all[i] = weir_make_key(limiter, under[i % BENCH_LIMITS_MAX + 1], KEY_16, 16);
    }
    weir_verdict verdict;
    uint64_t allowed = 0;
    for (uint64_t i = 0; i < count; i++) {
        allowed += weir_check_all(thread, all, NULL, keys, &verdict);
    }
    return allowed;
}

uint64_t bench_used(void *thread, uint64_t count)
{
    const weir_key key = weir_make_key(limiter, used, KEY_16, 16);
    for (uint64_t i = 0; i < count; i++) {
        weir_charge(thread, &key, 100);
        weir_refund(thread, &key, 40);
    }
    return count;
}

static weir_key numbered_key(uint64_t number, uint64_t bytes[2])
{
    bytes[0] = number;
    bytes[1] = 0;
    return weir_make_key(limiter, under[1], bytes, 2 * sizeof(bytes[0]));
}

static void fill(void)
{
    void *thread = bench_attach();
    for (uint64_t i = 0; i < key_count; i++) {
        uint64_t bytes[2];
        const weir_key key = numbered_key(i, bytes);
        (void) weir_check(thread, &key, 1, NULL);
    }
    bench_detach(thread);
}

void bench_fill(void)
{
    (void) pthread_once(&filled, fill);
}

/* Knuth's 64-bit linear congruential generator; the upper bits, without a division, as peers' keys are drawn. */
static weir_key random_key(uint64_t *rng, uint64_t keys, uint64_t bytes[2])
{
    *rng = *rng * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return numbered_key(((*rng >> 32) * keys) >> 32, bytes);
}

uint64_t bench_many(void *thread, uint64_t count, uint64_t keys, uint64_t *rng)
{
    uint64_t allowed = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t bytes[2];
        const weir_key key = random_key(rng, keys, bytes);
        allowed += weir_check(thread, &key, 1, NULL);
    }
    return allowed;
}

uint64_t bench_prefetched(void *thread, uint64_t count, uint64_t keys, size_t ahead, uint64_t *rng)
{
    uint64_t allowed = 0;
    uint64_t bytes[BENCH_AHEAD_MAX][2];
    weir_key ring[BENCH_AHEAD_MAX];
    for (uint64_t i = 0; i < ahead; i++) {
        ring[i] = random_key(rng, keys, bytes[i]);
    }
    for (uint64_t i = 0; i < count; i++) {
        const size_t at = (size_t) i & (ahead - 1);
        allowed += weir_check(thread, &ring[at], 1, NULL);
        ring[at] = random_key(rng, keys, bytes[at]);
        weir_prefetch(thread, &ring[at]);
    }
    return allowed;
}

uint64_t bench_burst(void *thread, uint64_t count, uint64_t keys, size_t size, uint64_t *rng)
{
    uint64_t allowed = 0;
    for (uint64_t i = 0; i < count; i += size) {
        uint64_t bytes[BENCH_BURST_MAX][2];
        weir_key burst[BENCH_BURST_MAX];
        for (size_t j = 0; j < size; j++) {
            burst[j] = random_key(rng, keys, bytes[j]);
        }
        uint64_t bits[BENCH_BURST_MAX / 64];
        allowed += weir_check_burst(thread, burst, NULL, size, bits);
    }
    return allowed;
}
