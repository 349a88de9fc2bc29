/* SPDX-License-Identifier: Apache-2.0 */
/* See bench_subject.h. */
#include "bench_subject.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"

/* Units a second: the wide limit is beyond what any machine checks. The narrow one is used up at once. */
#define WIDE_LIMIT   UINT64_C(400000000)
#define WIDE_BURST   UINT64_C(4000000000)
#define NARROW_BURST UINT64_C(1)

static int set_policies(struct bench_subjects *subjects, weir_error *error)
{
    static const weir_limit limits[] = {
        {.algorithm = WEIR_TOKEN_BUCKET, .limit = WIDE_LIMIT, .period_ns = 1000000000, .burst = WIDE_BURST},
        {.algorithm = WEIR_TOKEN_BUCKET, .limit = 1, .period_ns = 1000000000, .burst = NARROW_BURST},
    };
    static const weir_policy policies[] = {{.name = "wide", .limits = &limits[0], .limit_count = 1},
                                           {.name = "narrow", .limits = &limits[1], .limit_count = 1}};
    const int result = weir_set_policies(subjects->weir, policies, 2, error);
    if (result == 0) {
        subjects->wide = weir_find_policy(subjects->weir, "wide");
        subjects->narrow = weir_find_policy(subjects->weir, "narrow");
    }
    return result;
}

int bench_subjects_open(struct bench_subjects *subjects, weir_error *error)
{
    weir_options options = WEIR_OPTIONS_INIT;
    memset(subjects, 0, sizeof(*subjects));
    options.max_keys = (size_t) 2 * BENCH_MANY_KEYS;
    options.no_denial_log = true;
    int result = weir_open(&options, &subjects->weir, error);
    if (result != 0) {
        subjects->weir = NULL;
        return result;
    }
    result = set_policies(subjects, error);
    subjects->keys = calloc(BENCH_MANY_KEYS, sizeof(*subjects->keys));
    subjects->arrivals = calloc(BENCH_MANY_KEYS, sizeof(*subjects->arrivals));
    if (result == 0 && (subjects->keys == NULL || subjects->arrivals == NULL)) {
        return error_set(error, -ENOMEM, "out of memory");
    }
    for (uint64_t i = 0; result == 0 && i < BENCH_MANY_KEYS; i++) {
        const uint64_t name[2] = {i, ~i};
        subjects->keys[i] = weir_make_key(subjects->weir, subjects->wide, name, sizeof(name));
    }
    return result;
}

void bench_subjects_close(struct bench_subjects *subjects)
{
    weir_close(subjects->weir);
    free(subjects->keys);
    free((void *) subjects->arrivals);
    memset((void *) subjects, 0, sizeof(*subjects));
}

/* xorshift64. */
static uint64_t next_random(uint64_t *rng)
{
    *rng ^= *rng << 13;
    *rng ^= *rng >> 7;
    *rng ^= *rng << 17;
    return *rng;
}

uint64_t bench_weir(struct bench_subjects *subjects, weir_thread *t, enum bench_load load, uint64_t count,
                    uint64_t *rng)
{
    const weir_policy_id policy = load == LOAD_DENIED ? subjects->narrow : subjects->wide;
    const weir_key key = weir_make_key(subjects->weir, policy, "0123456789abcdef", 16);
    uint64_t allowed = 0;
    if (load == LOAD_MANY) {
        for (uint64_t i = 0; i < count; i++) {
            allowed += weir_check(t, &subjects->keys[next_random(rng) % BENCH_MANY_KEYS], 1, NULL);
        }
        return allowed;
    }
    for (uint64_t i = 0; i < count; i++) {
        allowed += weir_check(t, &key, 1, NULL);
    }
    return allowed;
}

static uint64_t clock_ns(void)
{
    struct timespec now;
    (void) clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t) now.tv_sec * 1000000000 + (uint64_t) now.tv_nsec;
}

/* GCRA: a request passes when the arrival time is no more than `tolerance_ns` ahead, and moves the time on. */
static bool gcra(_Atomic uint64_t *arrival, uint64_t emission_ns, uint64_t tolerance_ns)
{
    const uint64_t now = clock_ns();
    uint64_t at = atomic_load_explicit(arrival, memory_order_relaxed);
    for (;;) {
        const uint64_t from = at > now ? at : now;
        if (from - now > tolerance_ns) {
            return false;
        }
        if (atomic_compare_exchange_weak_explicit(arrival, &at, from + emission_ns, memory_order_relaxed,
                                                  memory_order_relaxed)) {
            return true;
        }
    }
}

uint64_t bench_baseline(struct bench_subjects *subjects, enum bench_load load, uint64_t count, uint64_t *rng)
{
    uint64_t allowed = 0;
    for (uint64_t i = 0; i < count; i++) {
        const size_t at = load == LOAD_MANY ? next_random(rng) % BENCH_MANY_KEYS : load;
        allowed += load == LOAD_DENIED ? gcra(&subjects->arrivals[at], UINT64_C(1000000000), 0)
                                       : gcra(&subjects->arrivals[at], 2, UINT64_C(10000000000));
    }
    return allowed;
}
