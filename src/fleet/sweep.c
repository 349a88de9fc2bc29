/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is done to every key of a policy, or to all there are: when the outage ladder leaves the open rung, when fleet
 * time is stepped. Cell by cell, each pinned meanwhile; checks go on beside. A part of the table at a time: the first
 * of these begins in the very moment in which nothing may stop the ticks.
 */
#include <string.h>

#include "algorithm/bucket.h"
#include "algorithm/window.h"
#include "base/clock.h"
#include "base/numbers.h"
#include "fleet/report.h"
#include "fleet/state.h"

/* For how long at a time a sweep goes on; between looks at the clock so many cells are looked at. */
#define SWEEP_MOST_NS (500 * NS_PER_US)
#define LOOK_EVERY    64

/* What a sweep over the table is for. */
struct sweep {
    struct fleet *fleet;
    const struct policy_set *set;
    const bool *groups; /* by id: of these alone; NULL: of any */
    uint64_t now_ns;
    int64_t delta_ns;
    uint64_t began_ns; /* no key was used here before it; 0: when that was is of no use */
};

typedef void (*sweep_visit)(const struct sweep *sweep, uint32_t at, struct sync_full *sync, const struct rule *rule);

/* Pins a cell and calls `visit` where its policy is as asked for. */
static void visit_cell(const struct sweep *sweep, uint32_t at, sweep_visit visit)
{
    struct process *process = sweep->fleet->process;
    struct cell *cell = &process->table.cells[at];
    const struct cell_meta *meta = &process->table.metas[at];
    const uint64_t hash = load_acquire(&cell->hash);
    if (hash == 0 || (sweep->groups != NULL && !sweep->groups[load_relaxed(&meta->group)]) || !cell_pin(cell, hash)) {
        return;
    }
    const struct policy *policy = NULL;
    const struct policy_limit *limit =
        policy_set_limit(sweep->set, load_relaxed(&meta->group), load_relaxed(&meta->limit_tag), &policy);
    if (limit != NULL) {
        struct sync_full room;
        struct sync_full *sync = sync_load(process, at, &limit->rule, sweep->now_ns, &room);
        visit(sweep, at, sync, &limit->rule);
        sync_store(process, at, sync);
    }
    cell_unpin(cell);
}

/* Goes on from *cursor, for as long as it may. True: that was the last of the table. */
static bool go_on(const struct sweep *sweep, uint32_t *cursor, sweep_visit visit)
{
    const struct limiter *limiter = sweep->fleet->limiter;
    const uint64_t cell_count = limiter->process.table.cell_count;
    if (*cursor == cell_count) {
        return true;
    }
    const uint64_t until_ns = clock_monotonic_ns(limiter->clock) + SWEEP_MOST_NS;
    do {
        visit_cell(sweep, *cursor, visit);
    } while (++*cursor < cell_count && (*cursor % LOOK_EVERY != 0 || clock_monotonic_ns(limiter->clock) < until_ns));
    return *cursor == cell_count;
}

/*
 * What a bucket has let pass so far is no debt to the fleet. What it owed before is as of the last answer: since the
 * open rung was left, units may have been charged in parts.
 */
static void forgive(const struct sweep *sweep, uint32_t at, struct sync_full *sync, const struct rule *rule)
{
    if (!rule_is_bucket(rule)) {
        return;
    }
    const struct reading reading = report_read(&sweep->fleet->process->table.cells[at], sync->ledger);
    const uint64_t now = bucket_time(rule, sweep->now_ns);
    struct demand_stats *demand = &sync->demand;
    const uint64_t owed = demand->learned_ns != 0 ? max_u64(demand->known_time, now) : now;
    demand->known_time = min_u64(reading.state.a, owed);
    demand->known_total = bucket_total(reading.state);
    demand->known_refunds = reading.refunds[0];
    demand->known_rate_id = bucket_rate_id(reading.state);
    sync->before.acked_refunds = demand->known_refunds;
    sync->before.acked = sync->now.acked + ((demand->known_total - sync->now.acked) & BUCKET_TOTAL_MASK);
}

void waive_debt(struct fleet *fleet, const struct policy *policy)
{
    fleet->waive.groups[policy->group->id] = true;
    fleet->waive.cells_done = 0;
}

bool waive_pending(const struct fleet *fleet, const struct policy *policy, uint32_t cell)
{
    return fleet->waive.groups[policy->group->id] && cell >= fleet->waive.cells_done;
}

void waive_step(struct fleet *fleet, const struct policy_set *set)
{
    const struct sweep sweep = {
        .fleet = fleet, .set = set, .groups = fleet->waive.groups, .now_ns = limiter_time(fleet->limiter)};
    if (fleet->waive.cells_done != fleet->process->table.cell_count &&
        go_on(&sweep, &fleet->waive.cells_done, forgive)) {
        memset(fleet->waive.groups, 0, sizeof(fleet->waive.groups));
    }
}

bool report_sweeping(const struct fleet *fleet)
{
    return fleet->waive.cells_done != fleet->process->table.cell_count || fleet->clock.step_ns != 0;
}

/*
 * A step back leaves what is of a time before this process began as it is: it was counted after the step. (Where that
 * is shorter than the process has been running, nothing tells one from the other.)
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

/* As `moves`, of a window's tag. */
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
    /* What was given back goes with its windows. The first time is learned before anything is told. */
    struct refund_ledger *ledger = sync->ledger;
    const uint64_t refunds[2] = {load_acquire(&ledger->refunds[0]), load_acquire(&ledger->refunds[1])};
    for (unsigned i = 0; i < 2 && (refunds[0] | refunds[1]) != 0; i++) {
        const uint32_t seq = (uint32_t) (refunds[i] >> WINDOW_COUNT_BITS) + windows;
        store_release(&ledger->refunds[seq & 1],
                      (uint64_t) seq << WINDOW_COUNT_BITS | (refunds[i] & WINDOW_COUNT_MASK));
    }
    const uint32_t seq = load_relaxed(&sync->allowance.seq);
    store_relaxed(&sync->allowance.seq, seq != SEQ_NONE ? (seq + windows) & WINDOW_SEQ_MASK : seq);
}

static void shift_cell(const struct sweep *sweep, uint32_t at, struct sync_full *sync, const struct rule *rule)
{
    struct cell *cell = &sweep->fleet->process->table.cells[at];
    uint64_t reset_ns = load_relaxed(&sync->ledger->reset);
    if (moves(sweep, reset_ns)) {
        (void) cas_relaxed(&sync->ledger->reset, &reset_ns, reset_ns + (uint64_t) sweep->delta_ns);
    }
    if (rule_is_bucket(rule)) {
        return; /* its times move with their origin (fleet_clock.c) */
    }
    if (rule_has_history(rule)) {
        const uint64_t until_ns = load_relaxed(&sync->before.restored);
        shift_log(sweep, at, rule);
        store_relaxed(&sync->before.restored,
                      moves(sweep, until_ns) ? until_ns + (uint64_t) sweep->delta_ns : until_ns);
    } else {
        shift_window(sweep, cell, sync, rule);
    }
}

bool clock_shift_step(struct fleet *fleet, const struct policy_set *set, uint64_t now_ns, int64_t delta_ns)
{
    const uint64_t up_ns = clock_monotonic_ns(fleet->limiter->clock) - fleet->opened_ns;
    const struct sweep sweep = {.fleet = fleet,
                                .set = set,
                                .now_ns = now_ns,
                                .delta_ns = delta_ns,
                                .began_ns = delta_ns < 0 ? saturating_sub(now_ns, up_ns) : 0};
    return go_on(&sweep, &fleet->clock_shift.cells_done, shift_cell);
}
