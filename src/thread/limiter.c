/* SPDX-License-Identifier: Apache-2.0 */
/* See limiter.h. The memory of the threads' handles and slots is reserved once, at open. */
#include "thread/limiter.h"

#include <errno.h>

#include "base/barrier.h"
#include "base/clock.h"
#include "base/pages.h"
#include "thread/policy_snapshot.h"
#include "thread/settle.h"
#include "thread/slot_word.h"

/*
 * Slots pin cells, which then cannot be evicted. A small table gets fewer slots, so that the slots of all threads pin
 * at most one of SLOT_TABLE_SHARE keys; but never fewer than SLOT_MIN, enough for the hot keys of a thread.
 */
#define SLOT_TABLE_SHARE 4
#define SLOT_MIN         64

static size_t slots_per_thread(size_t max_keys, uint32_t max_threads)
{
    size_t slots = SLOT_MAX;
    while (slots > SLOT_MIN && slots * max_threads > max_keys / SLOT_TABLE_SHARE) {
        slots /= 2;
    }
    return slots;
}

int limiter_open(struct limiter *limiter, const struct limiter_options *options)
{
    const size_t slots = slots_per_thread(options->process.max_keys, options->max_threads);
    const uint32_t max_threads = options->max_threads;
    const size_t slots_size = slots * sizeof(struct slot);
    const size_t accounts_size = settle_accounts_size(slots);
    const size_t tallies_size = arena_padded((WEIR_MAX_POLICIES + 1) * sizeof(struct tally));
    const size_t recent_size = arena_padded(RECENT_COUNT * sizeof(uint32_t));
    const size_t tags_size = arena_padded(slots / SLOT_WAYS * sizeof(uint64_t));
    const size_t busy_size = arena_padded(slots / SLOT_WAYS * sizeof(uint32_t));
    const size_t snapshots_size = arena_padded(POLICY_SNAPSHOTS_KEPT * sizeof(struct policy_snapshot));
    const size_t thread_shared_size = arena_padded(sizeof(struct thread_shared));
    const size_t thread_size = thread_shared_size + slots_size + accounts_size + tallies_size + recent_size +
                               tags_size + busy_size + snapshots_size;
    const size_t shared_size = arena_padded(sizeof(struct limiter_shared));
    const size_t lanes_size = (size_t) options->max_processes * RCU_LANES * sizeof(struct rcu_lane);
    const size_t joined_size = arena_padded(options->max_processes * sizeof(struct joined_process));

    if (process_open(&limiter->process, &options->process) != 0) {
        return -ENOMEM;
    }
    limiter->memory_size = shared_size + joined_size + lanes_size + max_threads * thread_size;
    limiter->memory = pages_reserve(limiter->memory_size, options->process.pages);
    limiter->threads_size = max_threads * sizeof(struct weir_thread);
    limiter->threads = pages_reserve(limiter->threads_size, 0);
    if (limiter->memory == NULL || limiter->threads == NULL) {
        limiter_close(limiter);
        return -ENOMEM;
    }
    unsigned char *next = limiter->memory;
    limiter->shared = arena_carve(&next, shared_size);
    limiter->joined = arena_carve(&next, joined_size);
    limiter->lanes = arena_carve(&next, lanes_size);
    for (uint32_t i = 0; i < max_threads; i++) {
        struct weir_thread *t = &limiter->threads[i];
        t->limiter = limiter;
        t->process = &limiter->process;
        t->line = &limiter->shared->line;
        t->index = i;
        t->slot_count = slots;
        t->slot_mask = slots - SLOT_WAYS;
        t->shared = arena_carve(&next, thread_shared_size);
        t->slots = arena_carve(&next, slots_size);
        t->accounts = arena_carve(&next, accounts_size);
        t->tallies = arena_carve(&next, tallies_size);
        t->recent_keys = arena_carve(&next, recent_size);
        t->fingerprints = arena_carve(&next, tags_size);
        t->set_busy_epochs = arena_carve(&next, busy_size);
        t->snapshots = arena_carve(&next, snapshots_size);
    }
    limiter->max_threads = max_threads;
    limiter->max_processes = options->max_processes;
    limiter->reach = options->max_processes > 1 ? BARRIER_JOINED : BARRIER_OWN;
    limiter->grants = barrier_available(limiter->reach);
    limiter_join(limiter, joined_enter(limiter));
    return 0;
}

void limiter_join(struct limiter *limiter, uint32_t index)
{
    limiter->joined_as = index;
    limiter->process.lock_word = index + 1;
    for (uint32_t i = 0; i < limiter->max_threads; i++) {
        limiter->threads[i].lock_word = index + 1;
    }
}

void limiter_close(struct limiter *limiter)
{
    process_close(&limiter->process);
    pages_release(limiter->memory, limiter->memory_size);
    pages_release(limiter->threads, limiter->threads_size);
    limiter->memory = NULL;
    limiter->threads = NULL;
}
