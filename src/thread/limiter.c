/* SPDX-License-Identifier: Apache-2.0 */
/* See limiter.h. The memory of the threads' handles and slots is reserved once, at open. */
#include "thread/limiter.h"

#include <errno.h>
#include <string.h>

#include "base/barrier.h"
#include "base/clock.h"
#include "base/pages.h"
#include "thread/policy_snapshot.h"
#include "thread/rcu_halt.h"
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

/* The bytes of a thread's own parts, in the order in which they lie. */
struct thread_sizes {
    size_t slots, accounts, tallies, recent, tags, busy, snapshots, queues, all;
};

static struct thread_sizes thread_sizes(size_t slots)
{
    struct thread_sizes sizes = {
        .slots = slots * sizeof(struct slot),
        .accounts = settle_accounts_size(slots),
        .tallies = arena_padded((WEIR_MAX_POLICIES + 1) * sizeof(struct tally)),
        .recent = arena_padded(RECENT_COUNT * sizeof(uint32_t)),
        .tags = arena_padded(slots / SLOT_WAYS * sizeof(uint64_t)),
        .busy = arena_padded(slots / SLOT_WAYS * sizeof(uint32_t)),
        .snapshots = arena_padded(POLICY_SNAPSHOTS_KEPT * sizeof(struct policy_snapshot)),
        .queues = arena_padded(POLICY_SNAPSHOTS_KEPT * sizeof(struct policy_queue)),
    };
    sizes.all = pages_padded(sizes.slots + sizes.accounts + sizes.tallies + sizes.recent + sizes.tags + sizes.busy +
                             sizes.snapshots + sizes.queues);
    return sizes;
}

/* Makes the handle of an index. `next`: of its struct thread_shared. */
static void place_thread(struct limiter *limiter, uint32_t index, size_t slots, const struct thread_sizes *sizes,
                         unsigned char **next)
{
    struct weir_thread *t = &limiter->threads[index];
    unsigned char *own = (unsigned char *) limiter->slots + index * sizes->all;
    t->limiter = limiter;
    t->process = &limiter->process;
    t->line = &limiter->shared->line;
    t->index = index;
    store_relaxed(&t->may_stand_still, limiter->may_stand_still);
    t->is_watched = limiter->is_watched;
    t->slot_count = slots;
    t->slot_mask = slots - SLOT_WAYS;
    t->shared = arena_carve(next, sizeof(*t->shared));
    t->slots = arena_carve(&own, sizes->slots);
    t->accounts = arena_carve(&own, sizes->accounts);
    t->tallies = arena_carve(&own, sizes->tallies);
    t->recent_keys = arena_carve(&own, sizes->recent);
    t->fingerprints = arena_carve(&own, sizes->tags);
    t->set_busy_epochs = arena_carve(&own, sizes->busy);
    t->snapshots = arena_carve(&own, sizes->snapshots);
    t->queues = arena_carve(&own, sizes->queues);
}

int limiter_open(struct limiter *limiter, const struct limiter_options *options)
{
    const uint32_t max_threads = options->max_threads;
    const size_t slots = slots_per_thread(options->process.max_keys, max_threads);
    const struct thread_sizes sizes = thread_sizes(slots);
    const size_t thread_shared_size = arena_padded(sizeof(struct thread_shared));
    const size_t shared_size = arena_padded(sizeof(struct limiter_shared));
    const size_t lanes_size = (size_t) options->max_processes * RCU_LANES * sizeof(struct rcu_lane);
    const size_t joined_size = arena_padded(options->max_processes * sizeof(struct joined_process));

    if (process_open(&limiter->process, &options->process) != 0) {
        return -ENOMEM;
    }
    struct pages_owner *pages = limiter->process.pages;
    limiter->memory_size = shared_size + joined_size + lanes_size + max_threads * thread_shared_size;
    limiter->memory = pages_take(pages, limiter->memory_size, PAGES_SPARSE);
    limiter->thread_size = sizes.all;
    limiter->slots_size = max_threads * sizes.all;
    limiter->slots = pages_take(pages, limiter->slots_size, PAGES_LATER);
    limiter->threads_size = max_threads * sizeof(struct weir_thread);
    limiter->threads = pages_reserve(limiter->threads_size, 0);
    if (limiter->memory == NULL || limiter->slots == NULL || limiter->threads == NULL) {
        return -ENOMEM;
    }
    unsigned char *next = limiter->memory;
    limiter->shared = arena_carve(&next, shared_size);
    limiter->joined = arena_carve(&next, joined_size);
    limiter->lanes = arena_carve(&next, lanes_size);
    for (uint32_t i = 0; i < max_threads; i++) {
        place_thread(limiter, i, slots, &sizes, &next);
    }
    limiter->max_threads = max_threads;
    limiter->max_processes = options->max_processes;
    limiter->reach = options->max_processes > 1 ? BARRIER_JOINED : BARRIER_OWN;
    limiter->grants = barrier_available(limiter->reach);
    limiter->pid_namespace = options->max_processes > 1 ? joined_pid_namespace() : 0;
    if (pages_are_fresh(pages)) {
        limiter_join(limiter, joined_enter(limiter));
    }
    return 0;
}

void limiter_clear_thread(const struct limiter *limiter, uint32_t index)
{
    const struct weir_thread *t = &limiter->threads[index];
    unsigned char *own = (unsigned char *) t->slots;
    unsigned char *behind_tallies = (unsigned char *) t->recent_keys;
    memset(own, 0, (size_t) ((unsigned char *) t->tallies - own));
    memset(behind_tallies, 0, (size_t) (own + limiter->thread_size - behind_tallies));
}

void limiter_join(struct limiter *limiter, uint32_t index)
{
    limiter->joined_as = index;
    limiter->mark = fork_mark_own();
    limiter->process.lock_word = index + 1;
    limiter->process.ticket = joined_ticket(limiter, index);
    for (uint32_t i = 0; i < limiter->max_threads; i++) {
        limiter->threads[i].lock_word = index + 1;
        store_relaxed(&limiter->threads[i].is_own, 0); /* a parent's */
    }
    rcu_halt_forget_lanes(limiter, index); /* nobody is inside yet */
}

bool limiter_has_handles(const struct limiter *limiter)
{
    bool any = false;
    for (uint32_t i = 0; i < limiter->max_threads && !any; i++) {
        any = load_relaxed(&limiter->threads[i].is_own) != 0; /* those of threads that attach meanwhile do not count */
    }
    return any;
}

void limiter_forget(struct limiter *limiter)
{
    limiter->mark = (struct fork_mark){0};
}

void limiter_close(struct limiter *limiter)
{
    const struct pages_owner *pages = limiter->process.pages;
    process_close(&limiter->process);
    pages_give(pages, limiter->memory, limiter->memory_size);
    pages_give(pages, limiter->slots, limiter->slots_size);
    pages_release(limiter->threads, limiter->threads_size);
}
