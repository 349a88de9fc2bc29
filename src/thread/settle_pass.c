/* SPDX-License-Identifier: Apache-2.0 */
/* See settle_pass.h. For [S1] see settle.c. */
#include "thread/settle_pass.h"

#include "base/barrier.h"
#include "base/numbers.h"
#include "thread/limiter.h"
#include "thread/settle.h"
#include "thread/slot.h"

/*
 * Slots that one barrier serves in a pass of the background thread. A barrier takes some microseconds, a settling some
 * tens of nanoseconds: more slots a barrier would gain nothing, and their owners find them locked for longer.
 */
#define SETTLE_BATCH 256U

/*
 * A piece looks at this part of all slots, and settles this part of what the pass before settled. So a pass over many
 * slots has about as many pieces as one over few.
 */
#define SETTLE_PIECES 16U

/* Slots that a piece looks at in any case: some 10 us. */
#define PIECE_LOOK 2048

/* Whether settling this slot needs a barrier first [S1]. */
static bool needs_barrier(const struct slot *slot, const struct slot_account *account)
{
    return load_relaxed(&account->granted) != 0 || load_relaxed(&account->accounted) != load_relaxed(&slot->used);
}

/* Whether a slot has something lapsed to settle. Relaxed: a hint; it is looked at again under the lock. */
static bool wants_settling(const struct slot *slot, const struct slot_account *account, uint32_t epoch)
{
    const uint32_t granted_in = grant_epoch(load_relaxed(&slot->grant));
    const bool lapsed = granted_in != epoch && needs_barrier(slot, account);
    return load_relaxed(&slot->hash) != 0 &&
           (lapsed || load_relaxed(&account->denied_counted) != slot_denied(slot, account));
}

/* The next slot of a thread, from `index` on, with something lapsed to settle; `end`: there is none below that. */
static size_t next_lapsed(const struct weir_thread *t, size_t index, size_t end, uint32_t epoch)
{
    while (index < end) {
        const uint64_t used = load_relaxed(&t->shared->slots_used[index / 64]) >> index % 64;
        if (used == 0) {
            index = (index / 64 + 1) * 64;
            continue;
        }
        index += (size_t) __builtin_ctzll(used);
        if (index < end && wants_settling(&t->slots[index], &t->accounts[index], epoch)) {
            return index;
        }
        index++;
    }
    return end;
}

bool settle_find_lapsed(const struct limiter *limiter, struct settle_place *out)
{
    const uint32_t high = limiter_thread_high(limiter);
    for (out->thread = 0; out->thread < high; out->thread++) {
        const struct weir_thread *t = &limiter->threads[out->thread];
        out->slot = next_lapsed(t, 0, t->slot_count, load_acquire(&t->line->epoch));
        if (out->slot != t->slot_count) {
            return true;
        }
    }
    return false;
}

/* What a settling of many slots may still do, and what it has left undone. */
struct budget {
    size_t look, settle; /* slots */
    size_t missed;       /* slots that were locked already */
};

/*
 * Locks lapsed slots of one thread from *index on and below `end`, at most SETTLE_BATCH, and takes their grants back;
 * settles at once the slots that need no barrier. Returns how many are locked.
 */
static size_t take_lapsed(struct weir_thread *t, size_t *index, size_t end, uint16_t *taken, struct budget *left)
{
    size_t count = 0;
    const uint32_t epoch = load_acquire(&t->line->epoch);
    for (; count < SETTLE_BATCH && left->settle != 0 && (*index = next_lapsed(t, *index, end, epoch)) != end;
         (*index)++) {
        struct slot *slot = &t->slots[*index];
        struct slot_account *account = &t->accounts[*index];
        if (!slot_account_trylock(t, account)) {
            left->missed++;
            continue;
        }
        const bool live = grant_epoch(load_relaxed(&slot->grant)) == epoch;
        if (live && needs_barrier(slot, account)) {
            slot_account_unlock(account); /* granted since; the denials can wait until this grant lapses */
            continue;
        }
        left->settle--;
        if (needs_barrier(slot, account)) {
            store_relaxed(&slot->grant, 0); /* [S1] */
            taken[count++] = (uint16_t) *index;
            continue;
        }
        left->missed += !settle_slot(t, *index);
        slot_account_unlock(account);
    }
    return count;
}

/* Settles from a place on, which it moves, until there are no more slots or the budget is used up. True: no more. */
static bool settle_some(struct limiter *limiter, struct settle_place *at, struct budget *left)
{
    uint16_t taken[SETTLE_BATCH];
    const uint32_t high = limiter_thread_high(limiter);
    for (; at->thread < high; *at = (struct settle_place){at->thread + 1, 0}) {
        struct weir_thread *t = &limiter->threads[at->thread];
        while (at->slot < t->slot_count) {
            if (left->look == 0 || left->settle == 0) {
                return false;
            }
            const size_t from = at->slot;
            const size_t end = from + min_u64(left->look, t->slot_count - from);
            const size_t count = take_lapsed(t, &at->slot, end, taken, left);
            left->look -= at->slot - from;
            if (count == 0) {
                continue;
            }
            barrier_all_threads(limiter->reach); /* [S1] */
            for (size_t i = 0; i < count; i++) {
                left->missed += !settle_slot(t, taken[i]);
                slot_account_unlock(&t->accounts[taken[i]]);
            }
        }
    }
    return true;
}

size_t settle_lapsed(struct limiter *limiter)
{
    return settle_lapsed_from(limiter, (struct settle_place){0, 0});
}

size_t settle_lapsed_from(struct limiter *limiter, struct settle_place from)
{
    struct budget left = {.look = SIZE_MAX, .settle = SIZE_MAX};
    (void) settle_some(limiter, &from, &left);
    return left.missed;
}

bool settle_piece(struct limiter *limiter, struct settle_pass *pass)
{
    if (settle_pass_begins(pass)) {
        pass->slots = 0;
        const uint32_t high = limiter_thread_high(limiter);
        for (uint32_t i = 0; i < high; i++) {
            pass->slots += limiter->threads[i].slot_count;
        }
    }
    const size_t settle = SETTLE_BATCH * (1 + pass->settled_before / SETTLE_PIECES / SETTLE_BATCH);
    struct budget left = {.look = max_u64(PIECE_LOOK, pass->slots / SETTLE_PIECES), .settle = settle};
    const bool ended = settle_some(limiter, &pass->at, &left);
    pass->settled += settle - left.settle;
    if (ended) {
        *pass = (struct settle_pass){.settled_before = pass->settled};
    }
    return ended;
}
