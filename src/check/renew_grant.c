/* SPDX-License-Identifier: Apache-2.0 */
/* See renew_grant.h. */
#include "check/renew_grant.h"

#include "base/numbers.h"
#include "base/probe.h"
#include "check/decide.h"
#include "check/direct_charge.h"
#include "thread/rcu.h"
#include "thread/settling.h"
#include "thread/slot.h"

/* One key's slot and cell; the slot is locked, and has no grant. */
struct renewal {
    const struct check *c;
    const struct policy_snapshot *snapshot;
    struct slot *slot;
    struct slot_account *account;
    struct cell *cell;
    uint64_t granted; /* units of the new grant */
    uint64_t passed;  /* on the last grant, and not charged yet */
    uint64_t held;    /* by the cell, for the last grant */
};

/*
 * Reads the cell. *state: the state after what passed on the last grant is charged. Returns the units left beside what
 * others hold; `own`: what the cell holds for this thread.
 */
static uint64_t read_cell(const struct renewal *w, uint64_t own, struct dwcas_value *value, struct state *state)
{
    *value = dwcas_read(&w->cell->state);
    *state = cell_state(*value);
    if (w->passed != 0) {
        *state = rule_charge_late(&w->account->rules[0], *state, w->account->granted_ns, w->passed);
    }
    const uint64_t others = (load_acquire(&w->cell->held) & HELD_UNITS) - own; /* [P1] after the state */
    return saturating_sub(rule_headroom(&w->snapshot->rule, *state, w->snapshot->now_ns), others);
}

/* Sizes the grant by the room beside the cost. False: there is no room for the cost, or the bucket has another rate. */
static bool size_grant(struct renewal *w)
{
    struct dwcas_value value;
    struct state state;
    const struct rule *rule = &w->snapshot->rule;
    const uint64_t left = read_cell(w, w->held, &value, &state);
    if (left < units_asked(w->c->cost) ||
        (rule_is_bucket(rule) && bucket_rate_id(state) != rule->rate_id && state.a != 0)) {
        return false;
    }
    w->granted = min_u64(w->c->grant_wanted, decide_grant_share(w->c->t, left - w->c->cost));
    return true;
}

/* Swaps the state. Where processes share the weir, another one may have to end the settling (settling.c). */
static bool swap_state(const struct renewal *w, struct dwcas_value value, struct dwcas_value next)
{
    struct weir_thread *t = w->c->t;
    if (w->passed == 0 || !settling_is_noted(t->limiter)) {
        return dwcas_swap(&w->cell->state, &value, next);
    }
    const struct dwcas_value before = value;
    const struct dwcas_value marked = settling_mark(t, (size_t) (w->slot - t->slots), next);
    settling_begin(w->account, 0, load_relaxed(&w->account->accounted) + w->passed);
    if (!dwcas_swap(&w->cell->state, &value, marked)) {
        settling_end(w->account);
        return false;
    }
    settling_note_charged(w->account, 0, w->cell, before, marked);
    return true;
}

/* Charges what passed and the cost, where there is room for what is held. *left: units left after that. */
static bool charge_cell(const struct renewal *w, uint64_t own, struct state *charged, uint64_t *left)
{
    struct dwcas_value value;
    struct state state;
    *left = read_cell(w, own, &value, &state);
    if (*left < max_u64(units_asked(w->c->cost), w->c->cost + w->granted) || cell_is_marked(value)) {
        return false;
    }
    *left -= w->c->cost;
    /* Without a cost too: the state becomes that of the present window, in which the grant's units are charged later.
     */
    *charged = rule_charge(&w->snapshot->rule, state, w->snapshot->now_ns, w->c->cost);
    const struct dwcas_value next = cell_value(*charged, value);
    return swap_state(w, value, w->granted != 0 ? cell_next_generation(next) : next); /* [P1] */
}

/* Reserves cost and grant, charges what passed and the cost, and releases all but the grant. False: nothing was done.
 */
static bool swap_grants(const struct renewal *w, struct state *charged, uint64_t *left)
{
    const uint64_t raised = w->granted != 0 ? w->c->cost + w->granted : 0;
    if (raised != 0) {
        (void) cell_hold(w->cell, raised); /* [P2] */
    }
    const bool done = charge_cell(w, w->held + raised, charged, left);
    const uint64_t lowered = done ? raised - w->granted + w->held : raised;
    if (lowered != 0) {
        (void) cell_hold(w->cell, (uint64_t) 0 - lowered); /* [S3] */
    }
    return done;
}

/* Settles the slot, charges the cost and grants anew. */
static bool renew_locked(struct renewal *w)
{
    const uint64_t used = load_relaxed(&w->slot->used);
    w->passed = used - load_relaxed(&w->account->accounted);
    w->held = load_relaxed(&w->account->granted);
    struct state state;
    uint64_t left;
    if (!size_grant(w) || !swap_grants(w, &state, &left)) {
        return false;
    }
    if (w->passed > w->held) {
        (void) add_relaxed(&w->c->t->shared->late_units, w->passed - w->held); /* statistics */
    }
    store_relaxed(&w->account->accounted, used);
    settling_end(w->account);
    store_relaxed(&w->account->granted, 0);
    const struct rule *rule = &w->snapshot->rule;
    const uint64_t reset_after_ns = rule_reset_after(rule, state, w->snapshot->now_ns);
    if (w->granted != 0) {
        const uint64_t used_reset_after_ns =
            w->c->cost != 0 ? reset_after_ns : rule_used_reset_after(rule, state, w->snapshot->now_ns);
        w->account->rules[0] = *rule;
        const struct slot_terms terms = {.now_ns = w->snapshot->now_ns,
                                         .granted = w->granted,
                                         .limit = rule->limit,
                                         .left = left,
                                         .reset_after_ns = reset_after_ns,
                                         .used_reset_after_ns = used_reset_after_ns,
                                         .meta = w->snapshot->meta};
        slot_publish(w->c->t, (size_t) (w->slot - w->c->t->slots), w->c->epoch, &terms);
        probe_grant(w->snapshot->id, w->c->key->data, w->c->key->length, w->granted);
    }
    if (w->c->verdict != NULL) {
        direct_write(w->c->verdict, w->c->t, w->snapshot, left, reset_after_ns);
    }
    return true;
}

struct cell *renew_pinned_cell(const struct weir_thread *t, const struct slot_account *account, uint64_t hash)
{
    /* Relaxed: the slot is the owner's own, and its cell is pinned, so the cell does not change hands. */
    struct cell *cell = &t->process->table.cells[account->cells[0]];
    return account->limit_count == 1 && load_relaxed(&cell->hash) == hash ? cell : NULL;
}

/* Relaxed: a settler leaves an idle slot idle. */
bool renew_is_idle(const struct slot *slot, const struct slot_account *account, uint32_t epoch)
{
    return load_relaxed(&account->granted) == 0 && load_relaxed(&account->accounted) == load_relaxed(&slot->used) &&
           grant_epoch(load_relaxed(&slot->grant)) != epoch;
}

/* Charges the cost alone, in the cell that an idle slot pins. */
static bool charge_idle(const struct check *c, const struct policy_snapshot *snapshot, struct cell *cell, uint64_t hash)
{
    struct direct_answer how;
    if (!direct_charge(c->t->process, snapshot, cell, hash, c->cost, &how)) {
        return false;
    }
    if (c->verdict != NULL) {
        direct_verdict(c->verdict, c->t, snapshot, &how);
    }
    return true;
}

/* Whether a slot's grant may be renewed here: the table settles one with denials to report, and a shared policy's. */
static bool may_renew(const struct check *c, const struct policy_snapshot *snapshot, const struct slot_account *account)
{
    return !snapshot->fleet && load_relaxed(&account->settling.step) == 0 && c->cost <= HOLD_MOST - GRANT_MAX &&
           load_relaxed(&account->denied_counted) == slot_denied(c->slot, account);
}

static bool renew_in_section(const struct check *c, const struct policy_snapshot *snapshot)
{
    struct slot_account *account = &c->t->accounts[c->slot - c->t->slots];
    const uint64_t hash = policy_snapshot_hash(snapshot, c->key);
    struct cell *cell = renew_pinned_cell(c->t, account, hash);
    bool allowed = false;
    if (cell == NULL) {
        return false;
    }
    if (c->grant_wanted == 0 && renew_is_idle(c->slot, account, c->epoch)) {
        allowed = charge_idle(c, snapshot, cell, hash);
    } else if (may_renew(c, snapshot, account) && slot_account_trylock(c->t, account)) {
        store_relaxed(&c->slot->grant, 0); /* the owner's own: no barrier */
        struct renewal w = {.c = c, .snapshot = snapshot, .slot = c->slot, .account = account, .cell = cell};
        allowed = renew_locked(&w);
        slot_account_unlock(account);
    }
    if (allowed) {
        account->direct += units_asked(c->cost);
        account->touched = c->epoch;
    }
    return allowed;
}

bool renew_grant(const struct check *c, const struct policy_snapshot *snapshot)
{
    const bool entered = rcu_enter_to_change(c->t);
    const bool allowed = renew_in_section(c, snapshot);
    rcu_leave_to_change(c->t, entered);
    return allowed;
}

static uint64_t renew_of_in_section(const struct check *c, const struct policy_snapshot *snapshot)
{
    struct slot_account *account = &c->t->accounts[c->slot - c->t->slots];
    struct cell *cell = renew_pinned_cell(c->t, account, policy_snapshot_hash(snapshot, c->key));
    if (cell == NULL || !may_renew(c, snapshot, account) || !slot_account_trylock(c->t, account)) {
        return 0;
    }
    store_relaxed(&c->slot->grant, 0); /* the owner's own: no barrier */
    struct renewal w = {.c = c, .snapshot = snapshot, .slot = c->slot, .account = account, .cell = cell};
    const uint64_t granted = renew_locked(&w) ? w.granted : 0;
    slot_account_unlock(account);
    account->touched = c->epoch;
    return granted;
}

uint64_t renew_grant_of(const struct check *c, const struct policy_snapshot *snapshot)
{
    const bool entered = rcu_enter_to_change(c->t);
    const uint64_t granted = renew_of_in_section(c, snapshot);
    rcu_leave_to_change(c->t, entered);
    return granted;
}
