/* SPDX-License-Identifier: Apache-2.0 */
/* The baseline: one atomic theoretical arrival time for all threads, clock_gettime at each check. */
#include "peers/gcra.h"

static struct gcra_rule rule;
static _Alignas(64) _Atomic uint64_t tat;

static const char *open_gcra(const struct peer_limit *limit, size_t key_count)
{
    (void) key_count;
    rule = gcra_rule_of(limit);
    atomic_store_explicit(&tat, 0, memory_order_relaxed);
    return NULL;
}

static void close_gcra(void)
{
}

static uint64_t run_gcra(void *thread, struct peer_draws *draws, uint64_t count)
{
    (void) thread;
    (void) draws;
    const struct gcra_rule own = rule;
    uint64_t allowed = 0;
    for (uint64_t i = 0; i < count; i++) {
        allowed += gcra_take(&tat, &own, peer_now_ns());
    }
    return allowed;
}

const struct peer peer_shared_gcra = {
    .name = "shared_gcra", .threads = true, .batch = 1000, .open = open_gcra, .close = close_gcra, .run = run_gcra};
