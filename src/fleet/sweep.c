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
#include "fleet/fleet.h"
#include "fleet/report.h"

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

typedef void (*sweep_visit)(const struct sweep *sweep, uint32_t at, struct note *note, const struct rule *rule);

/* Pins a cell and calls `visit` where its policy is as asked for. */
static void visit_cell(const struct sweep *sweep, uint32_t at, sweep_visit visit)
{
    struct process *process = sweep->fleet->process;
    struct cell *cell = &process->table.cells[at];
    const struct owner *owner = &process->table.owners[at];
    const uint64_t hash = load_acquire(&cell->hash);
    if (hash == 0 || (sweep->groups != NULL && !sweep->groups[load_relaxed(&owner->group)]) || !cell_pin(cell, hash)) {
        return;
    }
    const struct policy *policy = NULL;
    const struct policy_limit *limit =
        policy_set_limit(sweep->set, load_relaxed(&owner->group), load_relaxed(&owner->limit_tag), &policy);
    if (limit != NULL) {
        struct note room;
        struct note *note = note_open(process, at, &limit->rule, sweep->now_ns, &room);
        visit(sweep, at, note, &limit->rule);
        note_shut(process, at, note);
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
static void forgive(const struct sweep *sweep, uint32_t at, struct note *note, const struct rule *rule)
{
    if (!rule_is_bucket(rule)) {
        return;
    }
    const struct reading reading = report_read(&sweep->fleet->process->table.cells[at], note->given);
    const uint64_t now = bucket_time(rule, sweep->now_ns);
    struct lesson *lesson = &note->lesson;
    const uint64_t owed = lesson->learned_ns != 0 ? max_u64(lesson->known_time, now) : now;
    lesson->known_time = min_u64(reading.state.a, owed);
    lesson->known_total = bucket_total(reading.state);
    lesson->known_back = reading.back[0];
    lesson->known_scale = bucket_scale(reading.state);
    note->before.reported_back = lesson->known_back;
    note->before.reported = note->now.reported + ((lesson->known_total - note->now.reported) & BUCKET_TOTAL_MASK);
}

void report_forgive(struct fleet *fleet, const struct policy *policy)
{
    fleet->forgives[policy->group->id] = true;
    fleet->forgiven = 0;
}

bool report_forgives(const struct fleet *fleet, const struct policy *policy, uint32_t cell)
{
    return fleet->forgives[policy->group->id] && cell >= fleet->forgiven;
}

void report_sweep(struct fleet *fleet, const struct policy_set *set)
{
    const struct sweep sweep = {
        .fleet = fleet, .set = set, .groups = fleet->forgives, .now_ns = limiter_time(fleet->limiter)};
    if (fleet->forgiven != fleet->process->table.cell_count && go_on(&sweep, &fleet->forgiven, forgive)) {
        memset(fleet->forgives, 0, sizeof(fleet->forgives));
    }
}

bool report_sweeping(const struct fleet *fleet)
{
    return fleet->forgiven != fleet->process->table.cell_count || fleet->skew.step_ns != 0;
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
    logs_lock(process, at);
    struct log *log = logs_get(process, at);
    if (log != NULL && log->first < log->end && moves(sweep, *log_time(log, log->first))) {
        for (uint64_t number = log->first; number < log->end; number++) {
            *log_time(log, number) += (uint64_t) sweep->delta_ns;
        }
    }
    logs_publish(process, at, rule);
    logs_unlock(process, at);
}

/* As `moves`, of a window's tag. */
static bool tag_moves(const struct sweep *sweep, const struct rule *rule, uint32_t tag)
{
    const uint32_t since = (tag - window_tag_at(rule, sweep->began_ns)) & WINDOW_TAG_MASK;
    return sweep->began_ns == 0 || since <= WINDOW_TAG_MASK / 2;
}

static void shift_window(const struct sweep *sweep, struct cell *cell, struct note *note, const struct rule *rule)
{
    const uint64_t later_ns = sweep->now_ns + (uint64_t) sweep->delta_ns;
    const uint32_t windows = window_tag_at(rule, later_ns) - window_tag_at(rule, sweep->now_ns);
    if (windows == 0) {
        return;
    }
    struct pair_value value = pair_read(&cell->state);
    struct state state;
    do {
        state = cell_state(value);
        if (!tag_moves(sweep, rule, window_tag(state))) {
            return;
        }
        state = window_state(window_tag(state) + windows, window_count(state), window_previous(state));
    } while (!pair_cas(&cell->state, &value, cell_value(state, value)));
    /* What was given back goes with its windows. The first time is learned before anything is told. */
    struct given *given = note->given;
    const uint64_t back[2] = {load_acquire(&given->back[0]), load_acquire(&given->back[1])};
    for (unsigned i = 0; i < 2 && (back[0] | back[1]) != 0; i++) {
        const uint32_t tag = (uint32_t) (back[i] >> WINDOW_COUNT_BITS) + windows;
        store_release(&given->back[tag & 1], (uint64_t) tag << WINDOW_COUNT_BITS | (back[i] & WINDOW_COUNT_MASK));
    }
    const uint32_t tag = load_relaxed(&note->mirror.tag);
    store_relaxed(&note->mirror.tag, tag != TAG_NONE ? (tag + windows) & WINDOW_TAG_MASK : tag);
}

static void shift_cell(const struct sweep *sweep, uint32_t at, struct note *note, const struct rule *rule)
{
    struct cell *cell = &sweep->fleet->process->table.cells[at];
    uint64_t reset_ns = load_relaxed(&note->given->reset);
    if (moves(sweep, reset_ns)) {
        (void) cas_relaxed(&note->given->reset, &reset_ns, reset_ns + (uint64_t) sweep->delta_ns);
    }
    if (rule_is_bucket(rule)) {
        return; /* its times move with their origin (skew.c) */
    }
    if (rule_is_log(rule)) {
        const uint64_t until_ns = load_relaxed(&note->before.remembered);
        shift_log(sweep, at, rule);
        store_relaxed(&note->before.remembered,
                      moves(sweep, until_ns) ? until_ns + (uint64_t) sweep->delta_ns : until_ns);
    } else {
        shift_window(sweep, cell, note, rule);
    }
}

bool report_shift_time(struct fleet *fleet, const struct policy_set *set, uint64_t now_ns, int64_t delta_ns)
{
    const uint64_t up_ns = clock_monotonic_ns(fleet->limiter->clock) - fleet->opened_ns;
    const struct sweep sweep = {.fleet = fleet,
                                .set = set,
                                .now_ns = now_ns,
                                .delta_ns = delta_ns,
                                .began_ns = delta_ns < 0 ? saturating_sub(now_ns, up_ns) : 0};
    return go_on(&sweep, &fleet->shifted, shift_cell);
}
