/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See repair.h. A process may die at any instruction. So what it left is looked at while no call is at the table, and
 * everything that is not accounted for then is a dead process's (process/mend.h). Checks that a grant covers go on:
 * they change the owner's slot alone.
 *
 * First the logs are completed to which a dead thread was settling. Locks are freed that calls may be waiting for: such
 * a call would never end, and the table would never be still. Then, alone with the table, the repair settles slots of
 * dead threads and slots that a dead thread had locked. At last the cells are mended.
 *
 * Invariant: the place of a dead process is free only after all of it is repaired. So no other process has its index
 * before, and a lock with the index is that of the dead one. A repair whose own process dies is begun anew by another.
 * The place under which a process repairs is taken until the repair has ended.
 */
#include "thread/repair.h"

#include <errno.h>

#include "base/clock.h"
#include "base/numbers.h"
#include "process/mend.h"
#include "thread/joined.h"
#include "thread/limiter.h"
#include "thread/rcu_halt.h"
#include "thread/settle.h"
#include "thread/settling.h"
#include "thread/thread.h"

/* After a halt that a stopped or preempted thread made fail: calls go on for twice as long as they waited. */
#define REPAIR_PAUSE_NS (4 * NS_PER_MS)

/*
 * The part of `repairing` that says which process repairs. What is above it counts repairs. A process with the index of
 * a dead repairer may repair by the time at which a thread, which has seen the dead one, begins. The count differs
 * then.
 */
#define REPAIRER_MASK UINT32_C(2047)
_Static_assert(REPAIRER_MASK > PROCESSES_MOST, "each process has a number above 0");

/* What a repair works on. */
struct repair {
    struct limiter *limiter;
    bool dead[PROCESSES_MOST]; /* by the index of the process; true where there is no such place */
    struct mend mend;
};

static bool is_dead(const struct repair *r, const struct weir_thread *t)
{
    const uint64_t owner = load_acquire(&t->shared->owner); /* pairs with thread_attach() */
    return owner != HANDLE_FREE && process_is_dead_word(r->dead, handle_process(owner) + 1);
}

static bool is_locked_by_dead(const struct repair *r, const struct slot_account *account)
{
    return process_is_dead_word(r->dead, load_acquire(&account->lock)); /* [S2] what was written under the lock */
}

/* Runs a function for every slot that a dead thread had locked, and (`own`) for every slot of a dead thread. */
static void for_each_slot(struct repair *r, bool own,
                          void (*run)(struct repair *r, struct weir_thread *t, size_t index))
{
    const uint32_t high = limiter_thread_high(r->limiter);
    for (uint32_t i = 0; i < high; i++) {
        struct weir_thread *t = &r->limiter->threads[i];
        const bool dead = own && is_dead(r, t);
        for (size_t index = 0; index < t->slot_count; index++) {
            if (dead || is_locked_by_dead(r, &t->accounts[index])) {
                run(r, t, index);
            }
        }
    }
}

/* A settling in a log, whose lock the dead thread had: before the lock is freed. */
static void resolve_log(struct repair *r, struct weir_thread *t, size_t index)
{
    const struct slot_account *account = &t->accounts[index];
    const uint32_t step = load_relaxed(&account->settling.step);
    if (step % 2 == 0 || rule_kind(&account->rules[(step - 1) / 2]) != RULE_HISTORY) {
        return;
    }
    const uint32_t cell = account->cells[(step - 1) / 2];
    if (process_is_dead_word(r->dead, load_acquire(&r->limiter->process.histories.places[cell].lock))) {
        settling_resolve_log(t, index);
    }
}

/* Before any slot is settled: of two dead threads that settled slots of one key, one waited for the other's mark. */
static void resolve_cell(struct repair *r, struct weir_thread *t, size_t index)
{
    (void) r;
    settling_resolve_cell(t, index);
}

static void settle_one(struct repair *r, struct weir_thread *t, size_t index)
{
    settle_alone(t, index, is_dead(r, t));
}

static void count_slots(struct repair *r)
{
    const uint32_t high = limiter_thread_high(r->limiter);
    for (uint32_t i = 0; i < high; i++) {
        const struct weir_thread *t = &r->limiter->threads[i];
        for (size_t index = 0; index < t->slot_count; index++) {
            const struct slot_account *account = &t->accounts[index];
            for (size_t limit = 0; limit < account->limit_count; limit++) {
                mend_count(&r->mend, account->cells[limit], load_relaxed(&account->granted));
            }
        }
    }
}

/*
 * The handles, read sections and places of the dead are free. But the place stays under which this process repairs:
 * `halted_by` and `repairing` name that place, and would name nobody if this process died before it clears them.
 */
static void free_places(struct repair *r)
{
    struct limiter *limiter = r->limiter;
    const uint32_t high = limiter_thread_high(limiter);
    for (uint32_t i = 0; i < high; i++) {
        struct weir_thread *t = &limiter->threads[i];
        if (is_dead(r, t)) {
            rcu_halt_forget(t);
            thread_free(t);
        }
    }
    thread_count(limiter); /* a process may have died between a free handle and the count */
    for (uint32_t process = 0; process < joined_high(limiter); process++) {
        if (r->dead[process]) {
            rcu_halt_forget_lanes(limiter, process);
            if (process != limiter->joined_as) {
                (void) joined_leave_begin(limiter, process);
                joined_leave(limiter, process);
            }
        }
    }
}

/*
 * Repairs what the dead processes left. 0; or nothing was done, and the next look tries again: -ENOMEM; -EBUSY: the
 * table does not become still.
 */
static int repair(struct repair *r)
{
    struct process *process = &r->limiter->process;
    for_each_slot(r, false, resolve_log);
    mend_locks(process, r->dead);
    int result = mend_find(&r->mend, process);
    result = result == 0 && !rcu_halt(r->limiter, r->dead) ? -EBUSY : result;
    if (result == 0) {
        for_each_slot(r, true, resolve_cell);
        for_each_slot(r, true, settle_one);
        count_slots(r);
        mend_cells(&r->mend, process, r->dead);
        free_places(r);
        rcu_halt_end(r->limiter);
    } else {
        store_relaxed(&r->limiter->shared->repair_from_ns, clock_monotonic_ns(NULL) + REPAIR_PAUSE_NS);
    }
    mend_end(&r->mend);
    return result;
}

void repair_next(struct limiter *limiter, uint32_t *cursor)
{
    const uint32_t high = joined_high(limiter); /* above 0: this process has entered */
    uint32_t looked = 0;
    do {
        *cursor = (*cursor + 1) % high;
    } while (load_relaxed(&limiter->joined[*cursor].pid) == 0 && ++looked < high);
    if (*cursor != limiter->joined_as && joined_is_dead(limiter, *cursor)) {
        repair_all(limiter);
    }
}

/* Whether there are dead, by their index in r->dead. */
static bool find_dead(struct repair *r)
{
    const struct limiter *limiter = r->limiter;
    bool any = false;
    for (uint32_t process = limiter->max_processes; process < PROCESSES_MOST; process++) {
        r->dead[process] = true;
    }
    for (uint32_t process = 0; process < joined_high(limiter); process++) {
        r->dead[process] = process != limiter->joined_as && joined_is_dead(limiter, process);
        any = any || r->dead[process];
    }
    return any;
}

/* Begins a repair, unless another one is under way, of a thread of this process, too. */
static bool begin(struct limiter *limiter)
{
    uint32_t word = load_relaxed(&limiter->shared->repairing);
    const uint32_t owner = word & REPAIRER_MASK;
    if (owner != 0 && !joined_is_dead(limiter, owner - 1)) {
        return false;
    }
    const uint32_t next = ((word | REPAIRER_MASK) + 1) | (limiter->joined_as + 1);
    return cas_acquire(&limiter->shared->repairing, &word, next);
}

static void end(struct limiter *limiter)
{
    const uint32_t word = load_relaxed(&limiter->shared->repairing);   /* this process's own */
    store_release(&limiter->shared->repairing, word & ~REPAIRER_MASK); /* pairs with the exchange of begin() */
}

void repair_all(struct limiter *limiter)
{
    struct repair r = {.limiter = limiter};
    const bool early = clock_monotonic_ns(NULL) < load_relaxed(&limiter->shared->repair_from_ns);
    if (early || !begin(limiter)) {
        return;
    }
    store_relaxed(&limiter->process.shared->stalled, 0); /* before the look: a call that stalls later says so again */
    if (find_dead(&r)) {
        (void) repair(&r);
    }
    end(limiter);
}

bool repair_locks(void *arg)
{
    struct limiter *limiter = arg;
    struct repair r = {.limiter = limiter};
    if (!begin(limiter)) {
        return false; /* another thread repairs */
    }
    const bool dead = find_dead(&r);
    if (dead) {
        for_each_slot(&r, false, resolve_log);
        mend_locks(&limiter->process, r.dead);
    }
    end(limiter);
    return dead;
}
