/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir itself, as one of its peers: `weir` asks about one prepared key, as those without keys do; `weir_keyed` makes
 * the key from its bytes at each check, as those with a table do; `weir_burst` does so for PEER_BURST keys at once. One
 * token bucket, no fleet; no verdict is asked for, as the peers give none.
 */
#include <weir/weir.h>

#include "awake.h"
#include "peers/peer.h"

static weir *limiter;
static weir_policy_id policy_id;
static weir_error error;

static const char *open_weir(const struct peer_limit *limit, size_t key_count)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = key_count > options.max_keys ? key_count : options.max_keys;
    const weir_limit bucket = {
        .algorithm = WEIR_TOKEN_BUCKET, .limit = limit->units, .period_ns = limit->period_ns, .burst = limit->burst};
    const weir_policy policy = {.name = "peer", .limits = &bucket, .limit_count = 1};
    if (weir_open(&options, &limiter, &error) != 0) {
        return error.message;
    }
    if (weir_set_policies(limiter, &policy, 1, &error) != 0) {
        weir_close(limiter);
        return error.message;
    }
    policy_id = weir_find_policy(limiter, "peer");
    return NULL;
}

static void close_weir(void)
{
    weir_close(limiter);
    limiter = NULL;
}

static void *attach_weir(void)
{
    weir_thread *thread = weir_attach(limiter);
    const weir_key key = weir_make_key(limiter, policy_id, "awake", 5);
    awake_wait(limiter, thread, &key);
    return thread;
}

static void detach_weir(void *thread)
{
    weir_detach(thread);
}

static uint64_t run_one(void *thread, struct peer_draws *draws, uint64_t count)
{
    (void) draws;
    const weir_key key = weir_make_key(limiter, policy_id, "0123456789abcdef", PEER_KEY_SIZE);
    uint64_t allowed = 0;
    for (uint64_t i = 0; i < count; i++) {
        allowed += weir_check(thread, &key, 1, NULL);
    }
    return allowed;
}

static uint64_t run_keyed(void *thread, struct peer_draws *draws, uint64_t count)
{
    uint64_t allowed = 0;
    for (uint64_t i = 0; i < count; i++) {
        unsigned char bytes[PEER_KEY_SIZE];
        peer_next_key(draws, bytes);
        const weir_key key = weir_make_key(limiter, policy_id, bytes, sizeof(bytes));
        allowed += weir_check(thread, &key, 1, NULL);
    }
    return allowed;
}

static uint64_t run_burst(void *thread, struct peer_draws *draws, uint64_t count)
{
    uint64_t allowed = 0;
    for (uint64_t left = count; left != 0;) {
        const size_t size = left < PEER_BURST ? (size_t) left : PEER_BURST;
        unsigned char bytes[PEER_BURST][PEER_KEY_SIZE];
        weir_key keys[PEER_BURST];
        for (size_t i = 0; i < size; i++) {
            peer_next_key(draws, bytes[i]);
            keys[i] = weir_make_key(limiter, policy_id, bytes[i], PEER_KEY_SIZE);
        }
        uint64_t bits;
        allowed += weir_check_burst(thread, keys, NULL, size, &bits);
        left -= size;
    }
    return allowed;
}

const struct peer peer_weir = {.name = "weir",
                               .threads = true,
                               .batch = 1000,
                               .open = open_weir,
                               .close = close_weir,
                               .attach = attach_weir,
                               .detach = detach_weir,
                               .run = run_one};
const struct peer peer_weir_keyed = {.name = "weir_keyed",
                                     .keyed = true,
                                     .threads = true,
                                     .floods = true,
                                     .batch = 1000,
                                     .open = open_weir,
                                     .close = close_weir,
                                     .attach = attach_weir,
                                     .detach = detach_weir,
                                     .run = run_keyed};
const struct peer peer_weir_burst = {.name = "weir_burst",
                                     .keyed = true,
                                     .threads = true,
                                     .bursts = true,
                                     .floods = true,
                                     .batch = 1024,
                                     .open = open_weir,
                                     .close = close_weir,
                                     .attach = attach_weir,
                                     .detach = detach_weir,
                                     .run = run_burst};
