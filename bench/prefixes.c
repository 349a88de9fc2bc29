/* SPDX-License-Identifier: Apache-2.0 */
#include "prefixes.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <weir/weir.h>

#include "awake.h"
#include "subjects.h"

#define SECOND   UINT64_C(1000000000)
#define PREFIXES 5

/* The high half of each prefix: /128 and /64, /56, /48, /32. The low half is of the /128 alone. */
static const uint64_t masks[PREFIXES] = {UINT64_MAX, UINT64_MAX, UINT64_MAX << 8, UINT64_MAX << 16, UINT64_MAX << 32};

enum { PREFIX_56 = 2, PREFIX_48 = 3 };

struct address {
    uint64_t high, low;
};

static pthread_once_t opened = PTHREAD_ONCE_INIT;
static weir *limiter;
static weir_policy_id under[PREFIXES], full;
static uint64_t filled;

static void open_limiter(void)
{
    static const weir_limit wide = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 600000000, .period_ns = SECOND};
    static const weir_limit none = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1, .period_ns = 31622400 * SECOND};
    static const weir_policy policies[] = {{.name = "address", .limits = &wide, .limit_count = 1},
                                           {.name = "prefix_64", .limits = &wide, .limit_count = 1},
                                           {.name = "prefix_56", .limits = &wide, .limit_count = 1},
                                           {.name = "prefix_48", .limits = &wide, .limit_count = 1},
                                           {.name = "prefix_32", .limits = &wide, .limit_count = 1},
                                           {.name = "full", .limits = &none, .limit_count = 1}};
    weir_error error;
    weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = 2 * bench_key_count();
    if (weir_open(&options, &limiter, &error) != 0 || weir_set_policies(limiter, policies, PREFIXES + 1, &error) != 0) {
        (void) fprintf(stderr, "bench: %s\n", error.message);
        exit(1);
    }
    for (size_t i = 0; i < PREFIXES; i++) {
        under[i] = weir_find_policy(limiter, policies[i].name);
    }
    full = weir_find_policy(limiter, "full");
}

void *prefixes_attach(void)
{
    (void) pthread_once(&opened, open_limiter);
    weir_thread *thread = weir_attach(limiter);
    const weir_key key = weir_make_key(limiter, under[0], "awake", 5);
    awake_wait(limiter, thread, &key);
    return thread;
}

void prefixes_detach(void *thread)
{
    weir_detach(thread);
}

void prefixes_close(void)
{
    if (limiter != NULL) {
        weir_close(limiter);
        limiter = NULL;
    }
}

static struct address numbered_address(uint64_t number)
{
    const uint64_t high = number >> 8 << 32 | (number >> 6 & 3) << 16 | (number >> 4 & 3) << 8 | (number >> 2 & 3);
    return (struct address){high, number};
}

/* The keys of an address, the widest prefix last, and their bytes. */
struct request {
    weir_key keys[PREFIXES];
    struct address prefixes[PREFIXES];
};

/* `keys`: of the request. `denied`: the prefix that is at its limit, PREFIXES: none. */
static void make_keys(weir_key keys[PREFIXES], struct address prefixes[PREFIXES], struct address address, size_t denied)
{
    for (size_t i = 0; i < PREFIXES; i++) {
        prefixes[i] = (struct address){address.high & masks[i], i == 0 ? address.low : 0};
        keys[i] = weir_make_key(limiter, i == denied ? full : under[i], &prefixes[i], sizeof(prefixes[i]));
    }
}

static bool check_request(void *thread, struct address address, size_t denied)
{
    struct request r;
    make_keys(r.keys, r.prefixes, address, denied);
    return weir_check_all(thread, r.keys, NULL, PREFIXES, NULL);
}

static uint64_t check_address(void *thread, uint64_t count, size_t denied)
{
    uint64_t allowed = 0;
    for (uint64_t i = 0; i < count; i++) {
        allowed += check_request(thread, numbered_address(1), denied);
    }
    return allowed;
}

uint64_t prefixes_hot(void *thread, uint64_t count)
{
    return check_address(thread, count, PREFIXES);
}

uint64_t prefixes_denied(void *thread, uint64_t count)
{
    return check_address(thread, count, PREFIX_56);
}

/* Knuth's 64-bit linear congruential generator. */
static uint64_t next_random(uint64_t *rng)
{
    *rng = *rng * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *rng;
}

uint64_t prefixes_flood(void *thread, uint64_t count, uint64_t *rng)
{
    uint64_t allowed = 0;
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t random = next_random(rng);
        allowed += check_request(thread, (struct address){UINT64_MAX << 16 | random >> 48, random}, PREFIX_48);
    }
    return allowed;
}

static struct address random_address(uint64_t *rng, uint64_t addresses)
{
    return numbered_address(((next_random(rng) >> 32) * addresses) >> 32);
}

void prefixes_fill(uint64_t addresses)
{
    void *thread = prefixes_attach();
    for (; filled < addresses; filled++) {
        (void) check_request(thread, numbered_address(filled), PREFIXES);
    }
    prefixes_detach(thread);
}

uint64_t prefixes_many(void *thread, uint64_t count, uint64_t addresses, uint64_t *rng)
{
    uint64_t allowed = 0;
    for (uint64_t i = 0; i < count; i++) {
        allowed += check_request(thread, random_address(rng, addresses), PREFIXES);
    }
    return allowed;
}

uint64_t prefixes_burst(void *thread, uint64_t count, uint64_t addresses, uint64_t *rng)
{
    uint64_t allowed = 0;
    for (uint64_t i = 0; i < count; i += BENCH_PREFIX_BURST) {
        weir_key keys[BENCH_PREFIX_BURST][PREFIXES];
        struct address prefixes[BENCH_PREFIX_BURST][PREFIXES];
        uint64_t bits;
        for (size_t j = 0; j < BENCH_PREFIX_BURST; j++) {
            make_keys(keys[j], prefixes[j], random_address(rng, addresses), PREFIXES);
        }
        allowed += weir_check_all_burst(thread, keys[0], PREFIXES, BENCH_PREFIX_BURST, NULL, &bits);
    }
    return allowed;
}
