/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off: it would join the entries of the list. */
/*
 * Charging what passed on a grant: once, also where the process dies that does it.
 *
 * The units of a grant are counted in two places: in the slot until they are charged, and in the cell from then on. A
 * process that dies in between must not leave them in both, nor in none. So where processes share a weir, each charge
 * takes two swaps. The slot's account notes what is about to be charged (struct settling). The first swap charges, and
 * leaves a mark in place of the cell's generation. Then the account notes that the cell was charged. The second swap
 * removes the mark. A thread that ends the settling of a dead one sees by the mark what the account does not tell yet.
 * Charges of requests keep a mark that they find. A cell has one mark at a time: settlers, and those that change a
 * generation, wait for it to go.
 *
 * A log changes under its lock. The account notes the number of the log's last unit before. A lock that is still the
 * dead process's, and a higher number, tell that the log was charged.
 *
 * Invariant: a cell has a mark only while the slot that the mark names is locked, or its settler has died. The
 * account's step is of the cell's limit then.
 *
 * Ordering: a process that dies leaves what its instructions stored up to one of them. So the compiler's order is
 * enough between the notes and the swaps. [S1] to [S3] of settle.c.
 *
 * Progress: a settler waits for the mark of another one, some ten nanoseconds. After some milliseconds it gives up.
 */
/* clang-format on */
#include "thread/settling.h"

#include "algorithm/history.h"
#include "base/clock.h"
#include "base/numbers.h"
#include "base/spin.h"

/* A mark names a slot's handle, and one bit of the slot's index. */
#define MARK_SLOT_SHIFT 10

_Static_assert(THREADS_MOST <= 1 << MARK_SLOT_SHIFT, "a mark has a generation's bits");

static uint64_t mark_of(const struct weir_thread *t, size_t index)
{
    return CELL_MARK | (t->index | (uint64_t) (index & 1) << MARK_SLOT_SHIFT) * GENERATION_ONE;
}

struct dwcas_value settling_mark(const struct weir_thread *t, size_t index, struct dwcas_value value)
{
    return (struct dwcas_value){value.a, (value.b & STATE_B_MASK) | mark_of(t, index)};
}

static void remove_mark(struct cell *cell, struct dwcas_value before, struct dwcas_value marked)
{
    while (!dwcas_swap(&cell->state, &marked, cell_next_generation(cell_value(cell_state(marked), before)))) {
    }
}

void settling_note_charged(struct slot_account *account, size_t limit, struct cell *cell, struct dwcas_value before,
                           struct dwcas_value marked)
{
    fence_compiler();
    store_relaxed(&account->settling.step, (uint32_t) (2 * limit + 2));
    fence_compiler();
    remove_mark(cell, before, marked);
}

/*
 * The time at which units of a grant count for a log: not earlier than they passed, so now. Under the host's own time
 * nothing has moved since the grant.
 */
static uint64_t late_time(const struct limiter *limiter, const struct slot_account *account)
{
    return limiter->host_time ? account->granted_ns
                              : clock_monotonic_ns(limiter->clock) + load_relaxed(&limiter->shared->line.offset_ns);
}

static uint64_t log_end(struct process *process, uint32_t at)
{
    const struct history *history = history_store_get(process, at);
    return history != NULL ? history->end : 0;
}

static void charge_log(const struct weir_thread *t, struct slot_account *account, size_t limit, uint64_t passed)
{
    struct process *process = t->process;
    const uint32_t at = account->cells[limit];
    /* The units were granted: the log makes room for them, whatever the limit is by now. */
    struct rule late = account->rules[limit];
    late.limit = WEIR_MAX_LOG_UNITS;
    history_store_lock(process, at);
    if (settling_is_noted(t->limiter)) {
        account->settling.log_end = log_end(process, at);
        settling_begin(account, limit, account->settling.used);
    }
    (void) history_store_charge(process, at, &late, late_time(t->limiter, account), passed);
    if (settling_is_noted(t->limiter)) {
        fence_compiler();
        store_relaxed(&account->settling.step, (uint32_t) (2 * limit + 2));
        fence_compiler();
    }
    history_store_unlock(process, at);
}

/* Charges a cell of a weir that is not shared. */
static void charge_unmarked(const struct weir_thread *t, const struct slot_account *account, size_t limit,
                            uint64_t passed)
{
    struct cell *cell = &t->process->table.cells[account->cells[limit]];
    struct dwcas_value value = dwcas_read(&cell->state);
    struct state charged;
    do {
        charged = rule_charge_late(&account->rules[limit], cell_state(value), account->granted_ns, passed);
    } while (!dwcas_swap(&cell->state, &value, cell_value(charged, value)));
}

/*
 * Charges a cell of a shared weir. False: another process wants to be alone with the table, or the mark of another slot
 * stays. That slot's settler may have died, and this thread may be the one that is to repair.
 */
static bool charge_with_mark(const struct weir_thread *t, size_t index, size_t limit, uint64_t passed)
{
    struct slot_account *account = &t->accounts[index];
    struct cell *cell = &t->process->table.cells[account->cells[limit]];
    settling_begin(account, limit, account->settling.used);
    struct dwcas_value value = dwcas_read(&cell->state);
    for (unsigned spins = 0;;) {
        if (cell_is_marked(value)) {
            if (process_is_halted(t->process) || spins > PROCESS_STALLED_AFTER) {
                return false;
            }
            (void) process_wait(t->process, spins++);
            value = dwcas_read(&cell->state);
            continue;
        }
        const struct state charged =
            rule_charge_late(&account->rules[limit], cell_state(value), account->granted_ns, passed);
        const struct dwcas_value before = value;
        const struct dwcas_value marked = settling_mark(t, index, cell_value(charged, value));
        if (dwcas_swap(&cell->state, &value, marked)) {
            settling_note_charged(account, limit, cell, before, marked);
            return true;
        }
    }
}

/* Charges what passed to one limit. */
static bool charge_one(const struct weir_thread *t, size_t index, size_t limit, uint64_t passed)
{
    struct slot_account *account = &t->accounts[index];
    switch (rule_kind(&account->rules[limit])) {
    case RULE_HISTORY:
        charge_log(t, account, limit, passed);
        break;
    case RULE_WINDOW:
    case RULE_BUCKET:
        if (settling_is_noted(t->limiter)) {
            return charge_with_mark(t, index, limit, passed);
        }
        charge_unmarked(t, account, limit, passed);
        break;
    }
    return true;
}

bool settling_charge(struct weir_thread *t, size_t index, uint64_t *used)
{
    struct slot_account *account = &t->accounts[index];
    const uint32_t step = load_relaxed(&account->settling.step);
    *used = step != 0 ? account->settling.used : *used;
    const uint64_t passed = *used - load_relaxed(&account->accounted);
    account->settling.used = *used;
    bool charged = true;
    for (size_t i = step / 2; i < account->limit_count && passed != 0 && charged; i++) {
        charged = charge_one(t, index, i, passed);
    }
    return charged;
}

/* The limit that a settling was charging last; *history: it is one with a log. */
static size_t last_limit(const struct slot_account *account, uint32_t step, bool *history)
{
    const size_t limit = step != 0 ? (step - 1) / 2 : 0;
    *history = rule_kind(&account->rules[limit]) == RULE_HISTORY;
    return limit;
}

void settling_resolve_log(struct weir_thread *t, size_t index)
{
    struct slot_account *account = &t->accounts[index];
    const uint32_t step = load_relaxed(&account->settling.step);
    bool is_log;
    const size_t limit = last_limit(account, step, &is_log);
    struct history *history = history_store_get(t->process, account->cells[limit]);
    if (step % 2 == 0 || !is_log || history == NULL || history->end <= account->settling.log_end) {
        return;
    }
    const uint64_t passed = account->settling.used - load_relaxed(&account->accounted);
    const uint64_t pushed = history->end - account->settling.log_end;
    history_mend(history);
    if (pushed < passed) {
        history_push(history, late_time(t->limiter, account), passed - pushed);
    }
    history_store_publish(t->process, account->cells[limit], &account->rules[limit]);
    store_relaxed(&account->settling.step, (uint32_t) (2 * limit + 2));
}

void settling_resolve_cell(struct weir_thread *t, size_t index)
{
    struct slot_account *account = &t->accounts[index];
    const uint32_t step = load_relaxed(&account->settling.step);
    bool is_log;
    const size_t limit = last_limit(account, step, &is_log);
    if (step == 0 || is_log) {
        return;
    }
    struct cell *cell = &t->process->table.cells[account->cells[limit]];
    const struct dwcas_value value = dwcas_read(&cell->state);
    if ((value.b & CELL_MARK_BITS) == mark_of(t, index)) {
        store_relaxed(&account->settling.step, (uint32_t) (2 * limit + 2));
        fence_compiler();
        remove_mark(cell, value, value);
    }
}
