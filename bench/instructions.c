/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A path through the library, so many times, for valgrind to count its instructions:
 *
 *     valgrind --tool=callgrind weir-instructions PATH COUNT
 *
 * What COUNT and twice COUNT differ by is what COUNT calls take, the loop around them included. Time stands still but
 * where this program moves it, so two runs differ in nothing else, and figures of different machines can be compared
 * where their compilers are the same. weir-instructions without a path lists the paths.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/weir.h>

#include "floor.h"

#define SECOND    UINT64_C(1000000000)
#define MAX_COUNT 20000
#define BURST     32

/* Into the middle of a grant that lasts: grants double up to 2^20 units, the nineteenth ends after 524,287. */
#define WARM_UP 300000

static uint64_t now_ns = UINT64_C(1760000000) * SECOND;
static weir *limiter;
static weir_thread *thread;
static weir_policy_id wide_id, none_id;
static weir_key hot, denied, queued, keys[MAX_COUNT + 2];
static uint64_t key_bytes[MAX_COUNT][2];

static uint64_t clock_ns(void *arg)
{
    (void) arg;
    return now_ns;
}

/* `fleet`: a node that is alone: its keys have the sync state of a fleet's, and no answer comes. */
static void open_limiter(size_t max_keys, bool fleet)
{
    static const weir_clock clock = {clock_ns, clock_ns, NULL};
    weir_error error;
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &clock;
    options.max_keys = max_keys;
    options.redis_url = fleet ? "redis://127.0.0.1:1" : NULL;
    static const weir_limit wide = {
        .algorithm = WEIR_TOKEN_BUCKET, .limit = 500000000, .period_ns = SECOND, .burst = UINT64_C(1) << 40};
    static const weir_limit none = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1, .period_ns = 31622400 * SECOND};
    static const weir_limit queue = {
        .algorithm = WEIR_LEAKY_BUCKET, .limit = 500000000, .period_ns = SECOND, .burst = UINT64_C(1) << 40};
    static const weir_policy policies[] = {{.name = "wide", .limits = &wide, .limit_count = 1},
                                           {.name = "none", .limits = &none, .limit_count = 1},
                                           {.name = "queue", .limits = &queue, .limit_count = 1}};
    if (weir_open(&options, &limiter, &error) != 0 || weir_set_policies(limiter, policies, 3, &error) != 0) {
        (void) fprintf(stderr, "weir-instructions: %s\n", error.message);
        exit(1);
    }
    thread = weir_attach(limiter);
    wide_id = weir_find_policy(limiter, "wide");
    none_id = weir_find_policy(limiter, "none");
    hot = weir_make_key(limiter, wide_id, "0123456789abcdef", 16);
    denied = weir_make_key(limiter, none_id, "0123456789abcdef", 16);
    queued = weir_make_key(limiter, weir_find_policy(limiter, "queue"), "0123456789abcdef", 16);
}

static void nothing(void)
{
}

static void warm_hot(void)
{
    weir_verdict verdict;
    for (int i = 0; i < WARM_UP; i++) {
        (void) weir_check(thread, &hot, 1, &verdict);
    }
}

static void warm_denied(void)
{
    weir_verdict verdict;
    for (int i = 0; i < 100; i++) {
        (void) weir_check(thread, &denied, 1, &verdict);
    }
}

/* All keys are in the table, and none has come in this epoch. */
static void warm_cold_for(uint64_t later_ns)
{
    for (uint64_t i = 0; i < MAX_COUNT; i++) {
        key_bytes[i][0] = i;
        keys[i] = weir_make_key(limiter, wide_id, key_bytes[i], sizeof(key_bytes[i]));
        (void) weir_check(thread, &keys[i], 1, NULL);
    }
    now_ns += later_ns;
    (void) weir_poll(limiter);
}

static void warm_cold(void)
{
    warm_cold_for(SECOND);
}

/* Soon enough for the policy to be in no outage mode. */
static void warm_cold_shared(void)
{
    warm_cold_for(SECOND / 100);
}

static uint64_t run_floor(uint64_t count)
{
    struct floor_counter counter = {.left = UINT64_MAX};
    uint64_t sum = 0;
    for (uint64_t i = 0; i < count; i++) {
        sum += floor_check(&counter, 1);
    }
    return sum;
}

static uint64_t check(const weir_key *key, uint64_t count, weir_verdict *verdict)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < count; i++) {
        sum += weir_check(thread, key, 1, verdict);
    }
    return sum;
}

static uint64_t run_hot(uint64_t count)
{
    return check(&hot, count, NULL);
}

static uint64_t run_hot_verdict(uint64_t count)
{
    weir_verdict verdict;
    return check(&hot, count, &verdict);
}

static uint64_t run_denied(uint64_t count)
{
    weir_verdict verdict;
    return check(&denied, count, &verdict);
}

static uint64_t run_cold(uint64_t count)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < count; i++) {
        sum += weir_check(thread, &keys[i], 1, NULL);
    }
    return sum;
}

static uint64_t run_burst(uint64_t count)
{
    uint64_t sum = 0;
    uint64_t bits;
    for (uint64_t i = 0; i + BURST <= count; i += BURST) {
        sum += weir_check_burst(thread, &keys[i], NULL, BURST, &bits);
    }
    return sum;
}

/* Two policies of one source: each a hot key, or the second one denied. */
static void warm_all(void)
{
    warm_hot();
    keys[0] = hot;
    keys[1] = weir_make_key(limiter, wide_id, "fedcba9876543210", 16);
    for (int i = 0; i < WARM_UP; i++) {
        (void) weir_check(thread, &keys[1], 1, NULL);
    }
}

static void warm_all_denied(void)
{
    warm_all();
    warm_denied();
    keys[1] = denied;
}

static uint64_t run_all(uint64_t count)
{
    weir_verdict verdict;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < count; i++) {
        sum += weir_check_all(thread, keys, NULL, 2, &verdict);
    }
    return sum;
}

/* Two hot keys, and one that is in the table. */
static uint64_t run_all_cold(uint64_t count)
{
    weir_key asked[3] = {hot, keys[1]};
    uint64_t sum = 0;
    for (uint64_t i = 0; i < count; i++) {
        asked[2] = keys[i + 2];
        sum += weir_check_all(thread, asked, NULL, 3, NULL);
    }
    return sum;
}

/* Three keys that are in the table. */
static uint64_t run_all_three(uint64_t count)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i + 3 <= count; i += 3) {
        sum += weir_check_all(thread, &keys[i], NULL, 3, NULL);
    }
    return sum;
}

static void warm_all_cold(void)
{
    warm_cold();
    warm_all();
}

static uint64_t run_peek(uint64_t count)
{
    weir_verdict verdict;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < count; i++) {
        sum += weir_peek(thread, &hot, 1, &verdict);
    }
    return sum;
}

/* A peek at a key that is denied. */
static uint64_t run_peek_denied(uint64_t count)
{
    weir_verdict verdict;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < count; i++) {
        sum += weir_peek(thread, &denied, 1, &verdict);
    }
    return sum;
}

static uint64_t run_charge(uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        weir_charge(thread, &hot, 1);
    }
    return count;
}

/* Units that passed on the grant before. */
static uint64_t run_refund(uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        weir_refund(thread, &hot, 1);
    }
    return count;
}

static uint64_t reserve(const weir_key *key, uint64_t count)
{
    uint64_t wait_ns;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < count; i++) {
        sum += weir_reserve(thread, key, 1, UINT64_MAX, &wait_ns);
    }
    return sum;
}

static uint64_t run_reserve(uint64_t count)
{
    return reserve(&hot, count);
}

/* Places in the queue of a leaky bucket. */
static uint64_t run_reserve_queue(uint64_t count)
{
    return reserve(&queued, count);
}

static uint64_t run_charge_and_refund(uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        weir_charge(thread, &hot, 1);
        weir_refund(thread, &hot, 1);
    }
    return count;
}

static void warm_new(void)
{
    for (uint64_t i = 0; i < MAX_COUNT; i++) {
        key_bytes[i][0] = i;
        keys[i] = weir_make_key(limiter, wide_id, key_bytes[i], sizeof(key_bytes[i]));
    }
}

/* The table is full of other keys. */
static void warm_full(void)
{
    for (uint64_t i = 0; i < MAX_COUNT; i++) {
        const uint64_t bytes[2] = {i, 1};
        const weir_key key = weir_make_key(limiter, wide_id, bytes, sizeof(bytes));
        (void) weir_check(thread, &key, 1, NULL);
    }
    warm_new();
}

static uint64_t make_keys(uint64_t count, const void *bytes, size_t length)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < count; i++) {
        sum += weir_make_key(limiter, wide_id, bytes, length).hash;
    }
    return sum;
}

static uint64_t run_make_key_16(uint64_t count)
{
    return make_keys(count, "0123456789abcdef", 16);
}

static uint64_t run_make_key_64(uint64_t count)
{
    return make_keys(count, "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", 64);
}

static const struct path {
    const char *name;
    void (*warm)(void);
    uint64_t (*run)(uint64_t count);
    bool full;  /* the table has fewer cells than there are keys */
    bool fleet; /* the fleet shares the policies */
} paths[] = {
    {"floor", nothing, run_floor, false, false},
    {"hot", warm_hot, run_hot, false, false},
    {"hot_verdict", warm_hot, run_hot_verdict, false, false},
    {"denied", warm_denied, run_denied, false, false},
    {"cold", warm_cold, run_cold, false, false},
    {"cold_shared", warm_cold_shared, run_cold, false, true},
    {"burst_32", warm_cold, run_burst, false, false},
    {"new", warm_new, run_cold, false, false},
    {"new_burst_32", warm_new, run_burst, false, false},
    {"new_full", warm_full, run_cold, true, false},
    {"new_full_burst_32", warm_full, run_burst, true, false},
    {"check_all_2", warm_all, run_all, false, false},
    {"check_all_2_denied", warm_all_denied, run_all, false, false},
    {"check_all_2_and_cold", warm_all_cold, run_all_cold, false, false},
    {"check_all_cold_key", warm_cold, run_all_three, false, false},
    {"peek", warm_hot, run_peek, false, false},
    {"peek_denied", warm_denied, run_peek_denied, false, false},
    {"charge", warm_hot, run_charge, false, false},
    {"refund", warm_hot, run_refund, false, false},
    {"reserve", warm_hot, run_reserve, false, false},
    {"reserve_queue", nothing, run_reserve_queue, false, false},
    {"charge_and_refund", warm_hot, run_charge_and_refund, false, false},
    {"make_key_16", nothing, run_make_key_16, false, false},
    {"make_key_64", nothing, run_make_key_64, false, false},
};

int main(int argc, char **argv)
{
    const size_t path_count = sizeof(paths) / sizeof(paths[0]);
    const uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    if (argc == 1) {
        for (size_t i = 0; i < path_count; i++) {
            (void) printf("%s\n", paths[i].name);
        }
        return 0;
    }
    for (size_t i = 0; i < path_count && count <= MAX_COUNT; i++) {
        if (strcmp(argv[1], paths[i].name) == 0) {
            /* In a table that is neither full nor half empty the counts differ more from run to run. */
            open_limiter(paths[i].full ? MAX_COUNT / 4 : (size_t) 2 * MAX_COUNT, paths[i].fleet);
            paths[i].warm();
            (void) printf("# %llu\n", (unsigned long long) paths[i].run(count));
            weir_detach(thread);
            weir_close(limiter);
            return 0;
        }
    }
    (void) fprintf(stderr, "usage: weir-instructions PATH COUNT, at most %d\n", MAX_COUNT);
    return 2;
}
