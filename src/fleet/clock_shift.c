/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See clock_shift.h, and fleet_clock.c for the order of a step.
 *
 * Buckets stay as they are: their times move with the origin of all bucket times (move_origin).
 */
#include "fleet/clock_shift.h"

#include "algorithm/window.h"
#include "base/clock.h"
#include "base/numbers.h"
#include "fleet/keys/sweep.h"
#include "fleet/state.h"
#include "process/process.h"
#include "process/sync_state.h"

/*
 * Whether a time moves with the step. After a step back, a time before this process began stays: it was counted after
 * the step. (Where the step is shorter than the process has been running, the two cannot be told apart.)
 */
static bool moves(const struct sweep *sweep, uint64_t time_ns)
{
    return time_ns != 0 && time_ns >= sweep->began_ns;
}

static void shift_log(const struct sweep *sweep, uint32_t at, const struct rule *rule)
{
    struct process *process = sweep->fleet->process;
    history_store_lock(process, at);
    struct history *log = history_store_get(process, at);
    if (log != NULL && log->first < log->end && moves(sweep, *history_time(log, log->first))) {
        for (uint64_t number = log->first; number < log->end; number++) {
            *history_time(log, number) += (uint64_t) sweep->delta_ns;
        }
    }
    history_store_publish(process, at, rule);
    history_store_unlock(process, at);
}

/* Whether a window moves with the step. */
static bool seq_moves(const struct sweep *sweep, const struct rule *rule, uint32_t seq)
{
    const uint32_t since = (seq - window_seq_at(rule, sweep->began_ns)) & WINDOW_SEQ_MASK;
    return sweep->began_ns == 0 || since <= WINDOW_SEQ_MASK / 2;
}

static void shift_window(const struct sweep *sweep, struct cell *cell, struct sync_full *sync, const struct rule *rule)
{
    const uint64_t later_ns = sweep->now_ns + (uint64_t) sweep->delta_ns;
    const uint32_t windows = window_seq_at(rule, later_ns) - window_seq_at(rule, sweep->now_ns);
    if (windows == 0) {
        return;
    }
    struct dwcas_value value = dwcas_read(&cell->state);
    struct state state;
    do {
        state = cell_state(value);
        if (!seq_moves(sweep, rule, window_seq(state))) {
            return;
        }
        state = window_state(window_seq(state) + windows, window_count(state), window_previous(state));
    } while (!dwcas_swap(&cell->state, &value, cell_value(state, value)));
    /* Refunds move with their windows. The first step comes before anything is reported. */
    struct refund_ledger *ledger = sync->ledger;
    const uint64_t refunds[2] = {load_acquire(&ledger->refunds[0]), load_acquire(&ledger->refunds[1])};
    for (unsigned i = 0; i < 2 && (refunds[0] | refunds[1]) != 0; i++) {
        const uint32_t seq = (uint32_t) (refunds[i] >> WINDOW_COUNT_BITS) + windows;
        store_release(&ledger->refunds[seq & 1],
                      (uint64_t) seq << WINDOW_COUNT_BITS | (refunds[i] & WINDOW_COUNT_MASK));
    }
    store_relaxed(&sync->allowance.seq, (load_relaxed(&sync->allowance.seq) + windows) & WINDOW_SEQ_MASK);
}

static void shift_cell(const struct sweep *sweep, uint32_t at, struct sync_full *sync, const struct rule *rule)
{
    uint64_t reset_ns = load_relaxed(&sync->ledger->reset);
    if (moves(sweep, reset_ns)) {
        (void) cas_relaxed(&sync->ledger->reset, &reset_ns, reset_ns + (uint64_t) sweep->delta_ns);
    }
    switch (rule_kind(rule)) {
    case RULE_WINDOW:
        shift_window(sweep, &sweep->fleet->process->table.cells[at], sync, rule);
        break;
    case RULE_HISTORY: {
        const uint64_t until_ns = load_relaxed(&sync->before.restored);
        shift_log(sweep, at, rule);
        store_relaxed(&sync->before.restored,
                      moves(sweep, until_ns) ? until_ns + (uint64_t) sweep->delta_ns : until_ns);
        break;
    }
    case RULE_BUCKET:
        break; /* a bucket's times move with their origin (fleet_clock.c) */
    }
}

bool clock_shift_step(struct fleet *fleet, const struct policy_set *set, uint64_t now_ns, int64_t delta_ns)
{
    const uint64_t up_ns = clock_monotonic_ns(fleet->node_clock) - fleet->opened_ns;
    const struct sweep sweep = {.fleet = fleet,
                                .set = set,
                                .now_ns = now_ns,
                                .delta_ns = delta_ns,
                                .began_ns = delta_ns < 0 ? saturating_sub(now_ns, up_ns) : 0};
    return sweep_slice(&sweep, &fleet->clock_shift.cells_done, shift_cell);
}
