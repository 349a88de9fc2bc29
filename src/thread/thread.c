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

#include "base/pages.h"
#include "thread/limiter.h"
#include "thread/policy_snapshot.h"
#include "thread/rcu_halt.h"
#include "thread/settle.h"

/* A word for thread_shared.owner of this process. */
static uint64_t owner_word(const struct limiter *limiter, uint64_t state)
{
    return (uint64_t) limiter->joined_as << HANDLE_PROCESS_SHIFT | state;
}

static uint32_t attached_count(const struct limiter *limiter)
{
    uint32_t count = 0;
    const uint32_t high = limiter_thread_high(limiter); /* a look that comes too early comes again */
    for (uint32_t i = 0; i < high; i++) {
        count += load_relaxed(&limiter->threads[i].shared->owner) != HANDLE_FREE;
    }
    return count;
}

/*
 * Handles are counted anew, not one more or less: a process may die between two stores. Of several callers, the last
 * one that stores a count looks again after its store.
 */
void thread_count(struct limiter *limiter)
{
    uint32_t count;
    do {
        count = attached_count(limiter);
        store_relaxed(&limiter->shared->line.thread_count, count);
        fence_seq_cst(); /* the store, then the look */
    } while (attached_count(limiter) != count);
}

/* Has the memory of a handle present. False: there is no room. */
static bool make_present(const struct limiter *limiter, const struct weir_thread *t)
{
    if (load_relaxed(&t->shared->present) == 0) { /* pages never go */
        if (pages_commit(limiter->process.pages, t->slots, limiter->thread_size) != 0) {
            return false;
        }
        store_relaxed(&t->shared->present, 1);
    }
    return true;
}

/* What this thread checks is not limited. So it is counted, and the background thread says so. */
static struct weir_thread *fail_to_attach(struct limiter *limiter, enum attach_failure why)
{
    (void) add_relaxed(&limiter->shared->attach_failures[why], 1); /* statistics */
    return NULL;
}

struct weir_thread *thread_attach(struct limiter *limiter, uint64_t owner)
{
    for (uint32_t i = 0; i < limiter->max_threads; i++) {
        struct weir_thread *t = &limiter->threads[i];
        if (load_relaxed(&t->shared->owner) != HANDLE_FREE) {
            continue;
        }
        if (!make_present(limiter, t)) {
            return fail_to_attach(limiter, ATTACH_NO_ROOM);
        }
        uint32_t high = load_relaxed(&limiter->shared->thread_high);
        /* First: a repair looks for handles of dead processes below. Settlers load thread_high with acquire. */
        while (high < i + 1 && !cas_seq_cst(&limiter->shared->thread_high, &high, i + 1)) {
        }
        uint64_t free = HANDLE_FREE;
        if (cas_seq_cst(&t->shared->owner, &free, owner_word(limiter, owner))) {
            store_relaxed(&t->is_own, 1); /* read by this process, which orders its own calls */
            policy_snapshot_drop(t);
            t->shared->time_ns = 0;
            rcu_halt_forget(t); /* of a handle that was in no section: the count is even, unless it is damaged */
            thread_count(limiter);
            return t;
        }
    }
    return fail_to_attach(limiter, ATTACH_FULL);
}

/* False: a child that has not joined has its parent's number yet, and none of the handles. */
static bool has_joined(const struct limiter *limiter)
{
    return limiter->max_processes == 1 || fork_mark_is_own(limiter->mark);
}

/* Whether this process has the handle, and no thread detaches it. */
static bool is_attached(const struct weir_thread *t, uint64_t owner)
{
    const uint64_t state = owner & HANDLE_STATE_MASK;
    return load_relaxed(&t->is_own) != 0 && state != HANDLE_FREE && state != HANDLE_LEAVING &&
           handle_process(owner) == t->limiter->joined_as && has_joined(t->limiter);
}

void thread_free(struct weir_thread *t)
{
    store_relaxed(&t->is_own, 0);
    store_release(&t->shared->owner, HANDLE_FREE); /* pairs with the exchange of thread_attach() */
    thread_count(t->limiter);
}

/* Detaches a handle whose owner this thread has set to HANDLE_LEAVING. */
static void leave(struct weir_thread *t)
{
    for (size_t i = 0; i < t->slot_count; i++) {
        /* However long that takes. Not within a section: the lock may be a dead process's. */
        for (unsigned tries = 0; !settle_release_slot(t, i); tries++) {
            if (!process_wait(t->process, tries)) {
                t->limiter->repair(t->limiter); /* no other process may be there to do so */
            }
        }
    }
    thread_free(t);
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

void thread_detach_bound(struct weir_thread *t, uint64_t token)
{
    uint64_t owner = owner_word(t->limiter, token);
    /* Relaxed: a thread sees its own stores. A handle that was given back and attached anew has another token. */
    if (load_relaxed(&t->is_own) != 0 && load_relaxed(&t->shared->owner) == owner &&
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
