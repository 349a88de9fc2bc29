/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off: it would join the entries of the list. */
/*
 * Settling slots: what passed on a grant is charged to the key's cells, and what the cells hold for it is released.
 *
 * A slot is settled under its lock: by its owner at the next slow use; by the background thread when the grant has
 * lapsed; or by a thread that would otherwise have to deny. Each of them charges used - accounted, as of the time of
 * the grant, and then lowers `held` by what was granted. Units that pass after a grant was taken back are part of the
 * next settling: late, never lost.
 *
 * The protocol, its model and its bound: docs/decisions/001-grants.md.
 *
 * Ordering
 *   [S1] grant and used. A settler that is not the owner stores grant = 0, makes every thread pass a barrier
 *        (membarrier), and then loads `used` with acquire. The owner loads grant, then stores `used` with release,
 *        and no fence between. After the barrier all that the owner stored before the barrier is visible, and every
 *        check the owner begins finds the grant gone. Only the one check that had loaded the grant and not yet
 *        stored `used` can come late. Partner: slot_answer() and slot_spend() in slot_word.h.
 *   [S2] lock: taken with acquire (slot_account_trylock), given up with release (slot_account_unlock). It passes the
 *        fields of struct slot_account from one settler to the next.
 *   [S3] State before held (I4 in table.h): what passed is charged first, and held is lowered after that. Partner:
 *        the readers of held [P1] in decide.c.
 *   [S5] A refund to a grant lowers `used` under the lock, while the grant is there. So a settler has read `used`
 *        before the owner took the lock, and the owner finds the grant gone; or the settler takes the lock later, and
 *        reads the lowered `used` [S2]. A refund is never late, and used - accounted is never negative. Partner:
 *        slot_give_back() in slot.h, refund_around_grant() in refund.c, and settle_slot().
 *
 * Progress: the lock is only ever tried.
 */
/* clang-format on */
#include <sched.h>
#include <time.h>

#include "base/barrier.h"
#include "base/clock.h"
#include "process/sync_pool.h"
#include "thread/limiter.h"
#include "thread/rcu.h"
#include "thread/settle.h"
#include "thread/settling.h"
#include "thread/slot.h"

/*
 * Adds a slot's denials to the list of the keys denied most, and to the demand that is reported to the fleet. True: the
 * fleet has something to be told.
 */
static bool count_denied(struct process *process, const struct slot *slot, struct slot_account *account)
{
    const uint64_t denied = slot_denied(slot, account);
    const uint64_t uncounted = denied - load_relaxed(&account->denied_counted);
    store_relaxed(&account->denied_counted, denied);
    if (uncounted != 0 && account->limit_count != 0) {
        top_denied_add(process, account->cells[0], uncounted);
    }
    if (uncounted == 0 || !account->fleet) {
        return false;
    }
    for (size_t i = 0; i < account->limit_count; i++) {
        sync_add_denied(&process->syncs, account->cells[i], uncounted);
    }
    return true;
}

size_t settle_accounts_size(size_t slots)
{
    return slots * sizeof(struct slot_account);
}

bool settle_slot(struct weir_thread *t, size_t index)
{
    struct process *process = t->process;
    struct slot *slot = &t->slots[index];
    struct slot_account *account = &t->accounts[index];
    uint64_t used = load_acquire(&slot->used); /* [S1] [S5] */
    if (!settling_charge(t, index, &used)) {
        return false;
    }
    const uint64_t passed = used - load_relaxed(&account->accounted);
    const uint64_t granted = load_relaxed(&account->granted);
    if (passed > granted) {
        (void) add_relaxed(&t->shared->late_units, passed - granted);
    }
    store_relaxed(&account->accounted, used);
    settling_end(account);
    for (size_t i = 0; i < account->limit_count && granted != 0; i++) {
        (void) cell_hold(&process->table.cells[account->cells[i]], (uint64_t) 0 - granted); /* [S3] */
    }
    store_relaxed(&account->granted, 0);
    const bool denied = count_denied(process, slot, account);
    for (size_t i = 0; i < account->limit_count && (passed != 0 || denied) && account->fleet; i++) {
        table_set_dirty(&process->table, account->cells[i]);
    }
    return true;
}

bool settle_release_owner(struct weir_thread *t, size_t index)
{
    struct slot *slot = &t->slots[index];
    struct slot_account *account = &t->accounts[index];
    store_relaxed(&slot->grant, 0); /* by its owner: no barrier */
    if (!settle_slot(t, index)) {
        return false;
    }
    slot_set_hash(t, index, 0);
    for (size_t i = 0; i < account->limit_count; i++) {
        cell_unpin(&t->process->table.cells[account->cells[i]]);
    }
    account->limit_count = 0;
    account->fleet = false;
    return true;
}

bool settle_release_slot(struct weir_thread *t, size_t index)
{
    if (load_relaxed(&t->slots[index].hash) == 0) {
        return true; /* relaxed: only the owner, which asks, gives a slot to a key */
    }
    bool released = false;
    rcu_enter(t);
    if (slot_account_trylock(t, &t->accounts[index])) {
        released = settle_release_owner(t, index);
        slot_account_unlock(&t->accounts[index]);
    }
    rcu_leave(t);
    return released;
}

/* Slots that one barrier serves when a key is taken back: one a thread, and few processes have more threads. */
#define SETTLE_KEY_BATCH 64

struct locked_slot {
    struct weir_thread *thread;
    size_t index;
};

/* Locks a thread's slot of a key and takes its grant back, where there is one. */
static bool lock_granted(struct weir_thread *t, uint64_t key_hash, struct locked_slot *out)
{
    const size_t index = slot_find(t, key_hash);
    if (index == SLOT_NONE || !slot_account_trylock(t, &t->accounts[index])) {
        return false;
    }
    /* Relaxed: under the lock. */
    if (load_relaxed(&t->slots[index].hash) != key_hash || load_relaxed(&t->accounts[index].granted) == 0) {
        slot_account_unlock(&t->accounts[index]);
        return false;
    }
    store_relaxed(&t->slots[index].grant, 0); /* [S1] */
    *out = (struct locked_slot){t, index};
    return true;
}

/* Takes back this key's grants from all threads except `except` (NULL: from all). True: there was one. */
static bool settle_hash(struct limiter *limiter, const struct weir_thread *except, uint64_t key_hash)
{
    struct locked_slot locked[SETTLE_KEY_BATCH];
    bool given_back = false;
    const uint32_t high = limiter_thread_high(limiter);
    for (uint32_t next = 0; next < high;) {
        size_t count = 0;
        for (; next < high && count < SETTLE_KEY_BATCH; next++) {
            struct weir_thread *t = &limiter->threads[next];
            count += t != except && lock_granted(t, key_hash, &locked[count]);
        }
        if (count == 0) {
            continue;
        }
        barrier_all_threads(limiter->reach); /* [S1] */
        for (size_t i = 0; i < count; i++) {
            (void) settle_slot(locked[i].thread, locked[i].index);
            slot_account_unlock(&locked[i].thread->accounts[locked[i].index]);
        }
        given_back = true;
    }
    return given_back;
}

bool settle_key(struct limiter *limiter, const struct weir_thread *asking, const struct policy_set *set,
                const struct policy *policy, const weir_key *key)
{
    bool given_back = settle_hash(limiter, asking, key->hash);
    const struct policy *member = policy_set_group(set, policy->group);
    for (; member != NULL; member = policy_set_next(set, member)) {
        const uint64_t share = member->group_key_mask;
        if (share != policy->group_key_mask) {
            given_back = settle_hash(limiter, NULL, key->hash ^ policy->group_key_mask ^ share) || given_back;
        }
    }
    return given_back;
}

/*
 * A holder that runs is done before the first yields are over. A preempted one runs again in some milliseconds: 64 naps
 * of 0.1 ms, which take about 0.16 ms each, are some 10 ms in all.
 */
#define WAIT_YIELDS 64
#define WAIT_NAPS   64
#define WAIT_NAP_NS 100000

bool settle_wait(const struct limiter *limiter, unsigned *stalled_tries)
{
    if (process_is_halted(&limiter->process)) {
        return false; /* the units may be a dead process's */
    }
    if (++*stalled_tries <= WAIT_YIELDS) {
        (void) sched_yield();
        return true;
    }
    store_relaxed(&limiter->process.shared->stalled, 1); /* a hint to those that repair: the thread may have died */
    const struct timespec nap = {.tv_nsec = WAIT_NAP_NS};
    (void) nanosleep(&nap, NULL);
    return *stalled_tries < WAIT_YIELDS + WAIT_NAPS;
}

/* Ends the denials that threads answer for a hash from their slots. */
static void end_denials(struct limiter *limiter, uint64_t key_hash)
{
    const uint32_t high = limiter_thread_high(limiter);
    for (uint32_t i = 0; i < high; i++) {
        struct weir_thread *t = &limiter->threads[i];
        const size_t index = slot_find(t, key_hash);
        if (index == SLOT_NONE || !slot_account_trylock(t, &t->accounts[index])) {
            continue; /* the thread that has it locked decides anew */
        }
        /* A grant word without units is a denial. The owner may answer one more check from it. */
        if (load_relaxed(&t->slots[index].hash) == key_hash && load_relaxed(&t->accounts[index].granted) == 0) {
            store_relaxed(&t->slots[index].grant, 0);
        }
        slot_account_unlock(&t->accounts[index]);
    }
}

void settle_denials(struct limiter *limiter, const struct policy_set *set, const struct policy *policy,
                    const weir_key *key)
{
    end_denials(limiter, key->hash);
    const struct policy *member = policy_set_group(set, policy->group);
    for (; member != NULL; member = policy_set_next(set, member)) {
        const uint64_t share = member->group_key_mask;
        if (share != policy->group_key_mask) {
            end_denials(limiter, key->hash ^ policy->group_key_mask ^ share);
        }
    }
}

void settle_alone(struct weir_thread *t, size_t index, bool owner_died)
{
    struct slot_account *account = &t->accounts[index];
    store_relaxed(&t->slots[index].grant, 0); /* [S1] */
    if (!owner_died) {
        barrier_all_threads(t->limiter->reach); /* [S1] */
    }
    store_relaxed(&account->granted, 0); /* so that `held` stays as it is */
    (void) settle_slot(t, index);
    for (size_t i = 0; i < account->limit_count && account->fleet; i++) {
        table_set_dirty(&t->process->table, account->cells[i]); /* the dead thread may have been about to */
    }
    if (owner_died) {
        slot_set_hash(t, index, 0);
        account->limit_count = 0;
        account->fleet = false;
    }
    slot_account_unlock(account);
}
