/* SPDX-License-Identifier: Apache-2.0 */
/* See subject.h. Progress: lock-free, but for settling. */
#include "check/subject.h"

#include "process/insert.h"
#include "thread/limiter.h"
#include "thread/settle.h"
#include "thread/slot.h"

/*
 * How often the units that others hold of a cell are taken back, or waited for, in all. More than settle_wait() allows
 * in a row (128), so that a preempted thread is waited for as long as before a denial; and bounded, as other threads
 * may be granted units again and again.
 */
#define SETTLE_ROUNDS 160

bool subject_pin(struct subject *s, struct weir_thread *t, const struct policy *policy, const weir_key *key)
{
    *s = (struct subject){.process = t->process, .t = t, .policy = policy, .key = key, .now_ns = tick_now(t, policy)};
    unsigned stalled_tries = 0;
    /* While another thread settles the slot, what this thread has just used is not in the state yet. */
    do {
        s->slot = slot_take(t, policy, key, EPOCH_ASLEEP, s->now_ns);
    } while (s->slot == SLOT_NONE && slot_find(t, key->hash) != SLOT_NONE && settle_wait(t->limiter, &stalled_tries));
    s->cells = s->slot != SLOT_NONE ? t->accounts[s->slot].cells : s->own_cells;
    return s->slot != SLOT_NONE || insert_pin(t->process, policy, key, s->now_ns, s->cells);
}

void subject_unpin(struct subject *s)
{
    if (s->slot != SLOT_NONE) {
        slot_account_unlock(&s->t->accounts[s->slot]);
    } else {
        insert_unpin(s->process, s->policy, s->cells);
    }
}

void subject_set_dirty(struct process *process, const struct policy *policy, uint32_t cell)
{
    if (process_shares(process, policy)) {
        table_set_dirty(&process->table, cell);
    }
}

void subject_settle(struct limiter *limiter, const struct weir_thread *except, const struct policy_set *set,
                    const struct policy *policy, const weir_key *key, uint32_t at)
{
    const struct cell *cell = &limiter->process.table.cells[at];
    unsigned stalled_tries = 0;
    /* [T3] acquire: once held counts no units, what passed is in the state. */
    for (unsigned round = 0; round < SETTLE_ROUNDS && (load_acquire(&cell->held) & HELD_UNITS) != 0; round++) {
        if (process_is_halted(&limiter->process) ||
            (!settle_key(limiter, except, set, policy, key) && !settle_wait(limiter, &stalled_tries))) {
            break;
        }
    }
}
