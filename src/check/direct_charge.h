/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Charging a cell directly: a key without a slot that is in the table and has room, under one window or token bucket.
 * A flood of addresses asks for nothing else, so no request is made of it (decide.c), which takes five times as many
 * instructions: a search, a look, and one compare-and-swap of the state.
 *
 * The answer is "allowed" or none. On false nothing has changed, and the caller falls back to decide_request(). The
 * reasons: no room; a new key; a queue or a log; a bucket that was charged by another rate; a key of which the node has
 * an equal share alone; another thread in between.
 *
 * What all keys of a policy have in common at one time is worked out once (policy_snapshot_of).
 *
 * Ordering: [P1] of decide.c: the state is read, then held, then that state is swapped. The two words of the state may
 * have been read at two times; then the swap fails. The hash is read after both (I3, [T2] of cell.h).
 * Progress: wait-free.
 * Names: direct_.
 */
#ifndef WEIR_CHECK_DIRECT_CHARGE_H
#define WEIR_CHECK_DIRECT_CHARGE_H

#include "process/process.h"
#include "thread/policy_snapshot.h"
#include "thread/slot.h"
#include "thread/thread.h"

/* How a key stands after the charge, for a verdict. */
struct direct_answer {
    struct state state;
    uint64_t held;
    uint64_t left; /* units; set where other nodes use the key too */
};

/* The swap that charges a cell: its state before and after, with the generation. */
struct direct_swap {
    struct dwcas_value from, to;
};

/* A charge that was worked out, and how the key stands after it. */
struct direct_plan {
    struct direct_swap swap;
    struct direct_answer answer;
};

/*
 * Works out the swap that charges `cost` units (up to the limit) to a cell that was this hash's. False: the charge
 * needs more than one swap. *held: units that threads hold in the cell. No other node uses the key.
 */
static inline bool direct_look(const struct policy_snapshot *snapshot, const struct cell *cell, uint64_t hash,
                               uint64_t cost, struct direct_swap *swap, uint64_t *held)
{
    const struct dwcas_value from = dwcas_guess(&cell->state);
    /* Relaxed: ordered behind the state by [T2]. */
    if (load_relaxed(&cell->hash) != hash) {
        return false;
    }
    struct state state = {from.a, from.b};
    *held = load_acquire(&cell->held) & HELD_UNITS; /* [P1] after the state */
    if (!limit_snapshot_charge(&snapshot->limit_at, &state, *held, units_asked(cost))) {
        return false;
    }
    swap->from = from;
    /* A cost of 0 swaps the state for itself: the swap says that both words were read at one time. */
    swap->to = cost != 0 ? (struct dwcas_value){state.a, state.b} : from;
    return true;
}

/* direct_look() of a key that other nodes use too, with its answer. */
bool direct_look_shared(struct process *process, const struct policy_snapshot *snapshot, struct cell *cell,
                        uint64_t hash, uint64_t cost, struct direct_plan *plan);

/* direct_charge() of a key that other nodes use too. `cost`: up to the limit. */
bool direct_charge_shared(struct process *process, const struct policy_snapshot *snapshot, struct cell *cell,
                          uint64_t hash, uint64_t cost, struct direct_answer *out);

/* Works out how `cost` units (up to the limit) are charged to a cell that was this hash's. False: see direct_look(). */
static inline bool direct_plan_charge(struct process *process, const struct policy_snapshot *snapshot,
                                      struct cell *cell, uint64_t hash, uint64_t cost, struct direct_plan *plan)
{
    if (snapshot->fleet) {
        return direct_look_shared(process, snapshot, cell, hash, cost, plan);
    }
    uint64_t held;
    if (!direct_look(snapshot, cell, hash, cost, &plan->swap, &held)) {
        top_denied_prefetch(&process->top_denied, (uint32_t) (cell - process->table.cells));
        return false;
    }
    plan->answer = (struct direct_answer){.state = {plan->swap.to.a, plan->swap.to.b & STATE_B_MASK}, .held = held};
    return true;
}

/* Swaps as planned. False: another thread was in between. */
static inline bool direct_swap_cell(struct process *process, const struct policy_snapshot *snapshot, struct cell *cell,
                                    struct direct_swap *swap)
{
    if (!dwcas_swap(&cell->state, &swap->from, swap->to)) {
        return false;
    }
    if (snapshot->fleet) {
        table_set_dirty(&process->table, (uint32_t) (cell - process->table.cells));
    }
    return true;
}

/* Charges `cost` units to a cell that was this hash's. False: nothing was done. */
static inline bool direct_charge(struct process *process, const struct policy_snapshot *snapshot, struct cell *cell,
                                 uint64_t hash, uint64_t cost, struct direct_answer *out)
{
    if (units_asked(cost) > snapshot->limit_at.limit) {
        return false;
    }
    if (snapshot->fleet) {
        return direct_charge_shared(process, snapshot, cell, hash, cost, out);
    }
    struct direct_swap swap;
    uint64_t held;
    if (!direct_look(snapshot, cell, hash, cost, &swap, &held)) {
        top_denied_prefetch(&process->top_denied, (uint32_t) (cell - process->table.cells));
        return false;
    }
    *out = (struct direct_answer){.state = {swap.to.a, swap.to.b & STATE_B_MASK}, .held = held};
    return dwcas_swap(&cell->state, &swap.from, swap.to);
}

/* The verdict on a charge after which `left` units may pass. */
void direct_write(weir_verdict *verdict, const struct weir_thread *t, const struct policy_snapshot *snapshot,
                  uint64_t left, uint64_t reset_after_ns);
/* The verdict on what direct_charge() has charged. */
void direct_verdict(weir_verdict *verdict, const struct weir_thread *t, const struct policy_snapshot *snapshot,
                    const struct direct_answer *how);

/*
 * Charges a key that was not found, and is not shared, in an empty cell of its pairs. The caller counts the key
 * (table_count_keys). False: nothing was done.
 */
bool direct_fill_new(struct weir_thread *t, const struct policy_snapshot *snapshot, uint64_t hash, uint64_t cost,
                     struct state *state);

/* Charges such a key that direct_fill_new() found no cell for. False: nothing was done. */
bool direct_charge_new(struct weir_thread *t, const struct policy_snapshot *snapshot, uint64_t hash, uint64_t cost,
                       struct state *state);

/* Finds the key's cell, charges it and answers. False: nothing was done. */
bool direct_check(struct weir_thread *t, const struct policy_snapshot *snapshot, const weir_key *key, uint64_t cost,
                  weir_verdict *verdict);

#endif
