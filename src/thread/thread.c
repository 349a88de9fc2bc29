/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See thread.h.
 *
 * Invariant: the thread that changes `owner` from an attached value to HANDLE_LEAVING, by compare-and-swap, detaches
 * the handle, and no other thread does.
 *
 * Progress: attaching is lock-free; detaching waits for settlers of its slots.
 */
#include "thread/thread.h"

#include "thread/limiter.h"
#include "thread/policy_snapshot.h"
#include "thread/settle.h"
#include "thread/slot.h"

/* A word for thread_shared.owner of this process. */
static uint64_t owner_word(const struct limiter *limiter, uint64_t state)
{
    return (uint64_t) limiter->joined_as << HANDLE_PROCESS_SHIFT | state;
}

struct weir_thread *thread_attach(struct limiter *limiter, uint64_t owner)
{
    for (uint32_t i = 0; i < limiter->max_threads; i++) {
        struct weir_thread *t = &limiter->threads[i];
        uint64_t free = HANDLE_FREE;
        if (load_relaxed(&t->shared->owner) == HANDLE_FREE &&
            cas_acquire(&t->shared->owner, &free, owner_word(limiter, owner))) {
            policy_snapshot_drop(t);
            (void) add_relaxed(&limiter->shared->line.thread_count, 1);
            uint32_t high = load_relaxed(&limiter->shared->thread_high);
            /* Publishes the slots' set-up to settlers, which load thread_high with acquire. */
            while (high < i + 1 && !cas_seq_cst(&limiter->shared->thread_high, &high, i + 1)) {
            }
            return t;
        }
    }
    return NULL;
}

/* Locks a slot, however long that takes: for detaching alone. */
static void slot_lock_owner(const struct weir_thread *t, struct slot_account *account)
{
    while (!slot_trylock(t, account)) {
        ck_pr_stall();
    }
}

/* Whether this process has the handle, and no thread detaches it. */
static bool is_attached(const struct weir_thread *t, uint64_t owner)
{
    const uint64_t state = owner & HANDLE_STATE_MASK;
    return state != HANDLE_FREE && state != HANDLE_LEAVING && handle_process(owner) == t->limiter->joined_as;
}

/* Detaches a handle whose owner this thread has set to HANDLE_LEAVING. */
static void leave(struct weir_thread *t)
{
    for (size_t i = 0; i < t->slot_count; i++) {
        if (load_relaxed(&t->slots[i].hash) != 0) {
            slot_lock_owner(t, &t->accounts[i]);
            settle_release_owner(t, i);
            slot_unlock(&t->accounts[i]);
        }
    }
    (void) add_relaxed(&t->line->thread_count, (uint32_t) -1);
    store_release(&t->shared->owner, HANDLE_FREE); /* pairs with the acquire of thread_attach() */
}

void thread_detach(struct weir_thread *t)
{
    uint64_t owner = load_relaxed(&t->shared->owner);
    while (is_attached(t, owner)) {
        if (cas_acquire(&t->shared->owner, &owner, owner_word(t->limiter, HANDLE_LEAVING))) {
            leave(t);
            return;
        }
    }
}

void thread_detach_dead(struct weir_thread *t, uint32_t process)
{
    uint64_t owner = load_acquire(&t->shared->owner);
    if (thread_is_of(t, process) && cas_acquire(&t->shared->owner, &owner, owner_word(t->limiter, HANDLE_LEAVING))) {
        leave(t);
    }
}

void thread_detach_bound(struct weir_thread *t, uint64_t token)
{
    uint64_t owner = owner_word(t->limiter, token);
    /* Relaxed: a thread sees its own stores. A handle that was given back and attached anew has another token. */
    if (load_relaxed(&t->shared->owner) == owner &&
        cas_acquire(&t->shared->owner, &owner, owner_word(t->limiter, HANDLE_LEAVING))) {
        leave(t);
    }
}

void thread_unbind(struct weir_thread *t)
{
    uint64_t owner = load_relaxed(&t->shared->owner);
    while (is_attached(t, owner) && !cas_acquire(&t->shared->owner, &owner, owner_word(t->limiter, HANDLE_UNBOUND))) {
    }
}
