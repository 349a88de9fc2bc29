/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir_charge: units counted afterwards, whether there is room for them or not. It tries these in order:
 *
 *   slot_covering       The key has a grant that covers the units, which are spent from it.
 *   charge_where_room   There is room for the units. They are charged as weir_check charges them, so that a key that is
 *                       only charged gets grants as well. A key that comes a second time within an epoch gets a slot.
 *                       The grant of a key with a slot is renewed (renew_grant.h), and the cell of a key without one is
 *                       charged (direct_charge.h).
 *   charge_key          The table counts the units, in every limit.
 *
 * Ordering: [S1] in settle.c, [S4] in check.c. Progress: lock-free, but for logs and settle_key.
 */
#include "check/charge.h"

#include "base/numbers.h"
#include "check/check.h"
#include "check/direct_charge.h"
#include "check/renew_grant.h"
#include "check/slot_learn.h"
#include "check/subject.h"
#include "process/allowance.h"
#include "process/insert.h"
#include "process/process.h"
#include "thread/misuse.h"
#include "thread/rcu.h"
#include "thread/settle.h"
#include "thread/slot.h"
#include "thread/thread.h"
#include "thread/tick.h"

/* The policy's numbers, as the thread has cached them for this epoch, or worked out in *own, as where a look at the
 * clock is due. */
static const struct policy_snapshot *find_numbers(const struct check *c, struct policy_snapshot *own)
{
    const struct policy_snapshot *cached = policy_snapshot_place(c->t, c->policy->id);
    if (cached->epoch == c->epoch && cached->id == c->policy->id && !thread_wants_look(c->t)) {
        return cached;
    }
    *own = policy_snapshot_of(c->t->process, c->policy, tick_now(c->t, c->policy));
    policy_snapshot_keep(c->t, c->set, own, c->epoch);
    return own;
}

/* Gives a slot to a key that comes a second time within the epoch. NULL: it has none. */
static struct slot *new_slot(const struct check *c, uint64_t now_ns)
{
    if (!slot_is_recent(c->t, c->key->hash, c->epoch)) {
        return NULL;
    }
    const size_t index = slot_give(c->t, c->policy, c->key, c->epoch, now_ns);
    if (index == SLOT_NONE) {
        return NULL;
    }
    slot_account_unlock(&c->t->accounts[index]);
    return &c->t->slots[index];
}

/* Renews the grant of a key with a slot. */
static bool renew_slot(struct check *c, const struct policy_snapshot *numbers)
{
    c->grant_wanted = slot_grant_size(c->t, (size_t) (c->slot - c->t->slots), c->epoch, c->cost);
    return renew_grant(c, numbers);
}

bool charge_where_room(struct check *c)
{
    const struct policy *policy = c->policy;
    const bool may_be_plain = policy->limit_count == 1 && policy->grants && !rule_has_history(&policy->limits[0].rule);
    if (!may_be_plain || process_shares(c->t->process, policy) || c->epoch == EPOCH_ASLEEP || c->cost == 0) {
        return false;
    }
    const bool has_slot = slot_get(c->t, c->key->hash, &c->slot);
    if (has_slot && slot_denied_lately(&c->t->accounts[c->slot - c->t->slots], c->epoch)) {
        return false;
    }
    struct policy_snapshot own;
    const struct policy_snapshot *numbers = find_numbers(c, &own);
    if (!policy_snapshot_is_plain(numbers)) {
        return false;
    }
    c->slot = has_slot ? c->slot : new_slot(c, numbers->now_ns);
    return c->slot != NULL ? renew_slot(c, numbers) : direct_check(c->t, numbers, c->key, c->cost, NULL);
}

/* Charges one limit. Returns the units left; *over: fewer than other threads hold. */
static uint64_t charge_limit(const struct subject *s, size_t limit, uint64_t units, bool *over)
{
    const uint32_t at = s->cells[limit];
    const bool shared = process_shares(s->process, s->policy);
    const struct rule rule =
        shared ? allowance_rule(s->process, s->policy, limit, at, 1) : policy_rule(&s->policy->limits[limit]);
    struct cell *cell = &s->process->table.cells[at];
    switch (rule_kind(&rule)) {
    case RULE_HISTORY:
        history_store_lock(s->process, at);
        if (!history_store_charge(s->process, at, &rule, s->now_ns, units)) {
            counter_add(&s->t->shared->untracked_count, 1);
        }
        history_store_unlock(s->process, at);
        break;
    case RULE_WINDOW:
    case RULE_BUCKET: {
        struct dwcas_value value = dwcas_read(&cell->state);
        struct state charged;
        do {
            charged = rule_charge(&rule, cell_state(value), s->now_ns, units);
        } while (!dwcas_swap(&cell->state, &value, cell_value(charged, value)));
        break;
    }
    }
    if (shared) {
        table_set_dirty(&s->process->table, at);
    }
    const uint64_t left = rule_headroom(&rule, cell_state(dwcas_read(&cell->state)), s->now_ns);
    *over = *over || left < (load_acquire(&cell->held) & HELD_UNITS); /* [T3] after the state */
    return left;
}

/* Charges a key of a policy with limits in the table. A key with no room left goes there for this epoch and the next.
 */
static void charge_key(const struct check *c)
{
    struct weir_thread *t = c->t;
    struct subject s;
    if (!subject_pin(&s, t, c->policy, c->key)) {
        counter_add(&t->shared->untracked_count, 1);
        return;
    }
    bool over = false;
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < c->policy->limit_count; i++) {
        least = min_u64(least, charge_limit(&s, i, c->cost, &over));
    }
    if (over) {
        /* What other threads were granted is no longer there. */
        (void) settle_key(t->limiter, t, c->set, c->policy, c->key);
    }
    if (least == 0 && s.slot != SLOT_NONE) {
        t->accounts[s.slot].deny_epoch = c->epoch;
    }
    subject_unpin(&s);
}

static __attribute__((noinline)) void charge_slow(struct weir_thread *t, const weir_key *key, uint64_t units)
{
    counter_add(&t->shared->slow_count, 1);
    rcu_enter(t);
    struct check c = {.t = t, .key = key, .cost = units, .commit = true, .epoch = load_acquire(&t->line->epoch)};
    c.set = process_policies(t->process); /* [S4] after the epoch */
    c.policy = check_policy(t->process, c.set, key);
    if (c.policy != NULL && c.policy->override == OVERRIDE_NONE && units != 0 && !charge_where_room(&c)) {
        charge_key(&c);
    }
    rcu_leave(t);
}

void weir_charge(weir_thread *t, const weir_key *key, uint64_t cost)
{
    if (t == NULL) {
        return;
    }
    struct slot *slot = slot_covering(t, key->hash, cost);
    if (likely(slot != NULL)) {
        store_release(&slot->used, load_relaxed(&slot->used) + cost); /* [S1] */
        return;
    }
    if (misuse_begin(t, "weir_charge")) {
        charge_slow(t, key, min_u64(cost, WEIR_MAX_UNITS));
    }
}

void weir_count_denied(weir_thread *t, const weir_key *key, uint64_t requests, uint64_t units)
{
    if (t == NULL || requests == 0 || !misuse_begin(t, "weir_count_denied")) {
        return;
    }
    struct process *process = t->process;
    rcu_enter(t);
    const struct policy_set *set = process_policies(process); /* pairs with the publication in weir_set_policies */
    const struct policy *policy = check_policy(process, set, key);
    uint32_t cells[WEIR_MAX_LIMITS];
    if (policy != NULL) {
        counter_add(&t->tallies[policy->id].denied, requests);
    }
    if (policy != NULL && policy->override == OVERRIDE_NONE && units != 0 &&
        insert_pin(process, policy, key, tick_now(t, policy), cells)) {
        slot_learn_add_denied(process, policy, key, cells, min_u64(units, WEIR_MAX_UNITS));
        insert_unpin(process, policy, cells);
    }
    rcu_leave(t);
}
