/* SPDX-License-Identifier: Apache-2.0 */
#include "check/renew_grant.h"

#include "base/numbers.h"
#include "check/decide.h"
#include "check/verdict.h"
#include "thread/settle.h"
#include "thread/slot.h"

/* One key's slot and cell; the slot is locked, and has no grant. */
struct renewal {
    struct weir_thread *t;
    size_t index;
    const struct policy_snapshot *snapshot;
    struct cell *cell;
    uint64_t cost, granted; /* asked for, and given beside it */
    uint64_t passed, held;  /* on the last grant: what passed, and what the cell holds for it */
};

/* The state after what passed on the last grant, and what is left of it beside what others hold; `mine`: all that the
 * cell holds for this thread. */
static uint64_t look(const struct renewal *w, uint64_t mine, struct dwcas_value *value, struct state *state)
{
    const struct rule *rule = &w->snapshot->rule;
    const struct slot_account *account = &w->t->accounts[w->index];
    *value = dwcas_read(&w->cell->state);
    *state = cell_state(*value);
    if (w->passed != 0) {
        *state = rule_charge_late(&account->rules[0], *state, account->granted_ns, w->passed);
    }
    const uint64_t others = (load_acquire(&w->cell->held) & HELD_UNITS) - mine; /* [P1] after the state */
    return saturating_sub(rule_headroom(rule, *state, w->snapshot->now_ns), others);
}

/* How much of `want` there is room for beside the cost; false: not even for that. */
static bool size_grant(struct renewal *w, uint64_t want)
{
    struct dwcas_value value;
    struct state state;
    const struct rule *rule = &w->snapshot->rule;
    const uint64_t left = look(w, w->held, &value, &state);
    if (left < w->cost || (rule_is_bucket(rule) && bucket_rate_id(state) != rule->rate_id && state.a != 0)) {
        return false;
    }
    w->granted = min_u64(want, decide_grant_share(w->t, left - w->cost));
    return true;
}

/* Charges what passed and the cost, where there is room for what is held. *left: what may pass then. */
static bool charge(const struct renewal *w, uint64_t mine, struct state *charged, uint64_t *left)
{
    const struct rule *rule = &w->snapshot->rule;
    struct dwcas_value value;
    struct state state;
    *left = look(w, mine, &value, &state);
    if (*left < w->cost + w->granted) {
        return false;
    }
    *left -= w->cost;
    *charged = rule_charge(rule, state, w->snapshot->now_ns, w->cost);
    struct dwcas_value next = cell_value(*charged, value);
    next.b += w->granted != 0 ? GENERATION_ONE : 0; /* [P1] */
    return dwcas_swap(&w->cell->state, &value, next);
}

/* Settles the slot and grants anew. */
static bool renew(struct renewal *w, uint32_t epoch, uint64_t want, weir_verdict *verdict)
{
    struct slot *slot = &w->t->slots[w->index];
    struct slot_account *account = &w->t->accounts[w->index];
    const uint64_t now_ns = w->snapshot->now_ns;
    const struct rule *rule = &w->snapshot->rule;
    const uint64_t used = load_relaxed(&slot->used);
    w->passed = used - load_relaxed(&account->accounted);
    w->held = load_relaxed(&account->granted);
    if (!size_grant(w, want)) {
        return false;
    }
    const uint64_t raised = w->granted != 0 ? w->cost + w->granted : 0;
    if (raised != 0) {
        (void) cell_hold(w->cell, raised); /* [P2] */
    }
    struct state state;
    uint64_t left;
    const bool done = charge(w, w->held + raised, &state, &left);
    const uint64_t lowered = done ? raised - w->granted + w->held : raised;
    if (lowered != 0) {
        (void) cell_hold(w->cell, (uint64_t) 0 - lowered); /* [S3] */
    }
    if (!done) {
        return false;
    }
    if (w->passed > w->held) {
        (void) add_relaxed(&w->t->late_units, w->passed - w->held);
    }
    store_relaxed(&account->accounted, used);
    store_relaxed(&account->granted, 0);
    const uint64_t reset_after_ns = rule_reset_after(rule, state, now_ns);
    if (w->granted != 0) {
        account->rules[0] = *rule;
        const struct slot_terms terms = {.now_ns = now_ns,
                                         .granted = w->granted,
                                         .limit = rule->limit,
                                         .left = left,
                                         .reset_after_ns = reset_after_ns,
                                         .meta = w->snapshot->meta};
        slot_publish(w->t, w->index, epoch, &terms);
    }
    if (verdict != NULL) {
        direct_write(verdict, w->t, w->snapshot, left, reset_after_ns);
    }
    return true;
}

/* The cell that a slot pins for a hash; NULL: it is not this hash's. */
static struct cell *cell_of(const struct weir_thread *t, const struct slot_account *account, uint64_t hash)
{
    /* The owner's own. The cell is pinned, so it does not change hands. */
    struct cell *cell = &t->process->table.cells[account->cells[0]];
    return account->limit_count == 1 && load_relaxed(&cell->hash) == hash ? cell : NULL;
}

/*
 * Whether a slot has nothing to settle, and denies nothing that has yet to be denied anew. Relaxed: what others settle
 * meanwhile leaves it so.
 */
static bool is_idle(const struct slot *slot, const struct slot_account *account, uint32_t epoch)
{
    return load_relaxed(&account->granted) == 0 && load_relaxed(&account->accounted) == load_relaxed(&slot->used) &&
           grant_epoch(load_relaxed(&slot->grant)) != epoch;
}

bool renew_direct(struct weir_thread *t, struct slot *slot, const struct policy_snapshot *snapshot, const weir_key *key,
                  uint64_t cost, uint32_t epoch, weir_verdict *verdict)
{
    struct slot_account *account = &t->accounts[slot - t->slots];
    const uint64_t hash = policy_snapshot_hash(snapshot, key);
    struct cell *cell = cell_of(t, account, hash);
    struct direct_answer how;
    if (cell == NULL || !is_idle(slot, account, epoch) ||
        !direct_charge(t->process, snapshot, cell, hash, cost, &how)) {
        return false;
    }
    if (verdict != NULL) {
        direct_verdict(verdict, t, snapshot, &how);
    }
    account->direct += cost;
    account->touched = epoch;
    return true;
}

bool renew_grant(struct weir_thread *t, size_t index, const struct policy_snapshot *snapshot, const weir_key *key,
                 uint64_t cost, uint64_t want, uint32_t epoch, weir_verdict *verdict)
{
    struct slot *slot = &t->slots[index];
    struct slot_account *account = &t->accounts[index];
    if (want == 0 && renew_direct(t, slot, snapshot, key, cost, epoch, verdict)) {
        return true;
    }
    struct cell *cell = cell_of(t, account, policy_snapshot_hash(snapshot, key));
    /* Denials are told by who settles; a request so great is one of few (decide.c). */
    if (cell == NULL || snapshot->fleet || cost > HOLD_MOST - GRANT_MAX ||
        load_relaxed(&account->denied_counted) != slot_denied(slot, account) || !slot_trylock(account)) {
        return false;
    }
    store_relaxed(&slot->grant, 0); /* the owner's own: no barrier */
    struct renewal w = {.t = t, .index = index, .snapshot = snapshot, .cell = cell, .cost = cost};
    const bool pass = renew(&w, epoch, want, verdict);
    slot_unlock(account);
    if (pass) {
        account->direct += cost;
        account->touched = epoch;
    }
    return pass;
}
