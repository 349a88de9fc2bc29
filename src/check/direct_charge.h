/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The short way through the table: a key that has no slot, is there, and has room, under one window or token bucket. It
 * is what a flood of addresses asks for, so it makes no request out of it (decide.c), which costs five times as many
 * instructions: a search, a look, and one compare-and-swap of the state.
 *
 * It only ever says yes. Whatever else there is to say (no room, a new key, a queue, a log, a bucket of another rate, a
 * part of the limit, somebody in between) is said by decide_request, as if nobody had been here.
 *
 * What is the same for all keys of a policy at one moment is worked out once (policy_snapshot_of): a burst does it once
 * for all of its keys.
 *
 * Ordering: as a plain charge of decide.c [P1]: the state is read, then held, then that state is swapped. The two
 * words of the state may have been read at two moments; the swap then fails. The hash is read behind both (I3).
 * Progress: wait-free.
 */
#ifndef WEIR_CHECK_DIRECT_CHARGE_H
#define WEIR_CHECK_DIRECT_CHARGE_H

#include "base/numbers.h"
#include "thread/limiter.h"
#include "thread/policy_snapshot.h"
#include "thread/slot.h"

static inline bool policy_snapshot_is_plain(const struct policy_snapshot *snapshot)
{
    return snapshot->limit_at.kind != LIMIT_SNAPSHOT_NONE;
}

static inline uint64_t policy_snapshot_hash(const struct policy_snapshot *snapshot, const weir_key *key)
{
    return cell_hash_salted(key->hash, snapshot->mix);
}

/* How a key stands after it was counted, for a verdict. */
struct direct_answer {
    struct state state;
    uint64_t held;
    uint64_t left; /* units; set where other nodes use the key as well */
};

/* As direct_charge, where other nodes use the key as well. `cost`: 1 to the limit. */
bool direct_charge_shared(struct process *process, const struct policy_snapshot *snapshot, struct cell *cell,
                          uint64_t hash, uint64_t cost, struct direct_answer *out);

/* What a charge is to make of a cell's state, its generation included. */
struct direct_swap {
    struct dwcas_value from, to;
};

/*
 * What counting `cost` units (1 to the limit) of a hash would make of the state of a cell that was its. False: not so
 * easily. *held: beside how many units that threads hold. No other node uses the key.
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
    if (!limit_snapshot_charge(&snapshot->limit_at, &state, *held, cost)) {
        return false;
    }
    swap->from = from;
    swap->to = (struct dwcas_value){state.a, state.b};
    return true;
}

/*
 * Counts `cost` units (not 0) of a hash at a cell that was its, where that takes no more than one look. False: nothing
 * was done.
 */
static inline bool direct_charge(struct process *process, const struct policy_snapshot *snapshot, struct cell *cell,
                                 uint64_t hash, uint64_t cost, struct direct_answer *out)
{
    if (cost > snapshot->limit_at.limit) {
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

/* A verdict on what was counted, of which so much may still pass. */
void direct_write(weir_verdict *verdict, const struct weir_thread *t, const struct policy_snapshot *snapshot,
                  uint64_t left, uint64_t reset_after_ns);
/* The same of what direct_charge has counted. */
void direct_verdict(weir_verdict *verdict, const struct weir_thread *t, const struct policy_snapshot *snapshot,
                    const struct direct_answer *how);

/*
 * The same for a key of which nothing has been looked at yet, and answers. False: nothing was done, and decide_request
 * is to be asked.
 */
bool direct_check(struct weir_thread *t, const struct policy_snapshot *snapshot, const weir_key *key, uint64_t cost,
                  weir_verdict *verdict);

#endif
