/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir_check and weir_peek.
 *
 * A check tries these in order, until one answers:
 *
 *   slot_answer         The key has a slot, whose grant or denial is of this epoch (slot_word.h). Nearly every check.
 *   try_cached_denial   The slot has a denial of this epoch that slot_answer() leaves out.
 *   try_renew_grant     The key has a slot, its policy has one window or token bucket: settle the slot, charge the
 *                       cost, and grant the next units, all in one compare-and-swap (renew_grant.h).
 *   charge_cold         The key has no slot, its policy has one window or token bucket: charge the key's cell in one
 *                       compare-and-swap (direct_charge.h).
 *   decide_in_table     Any policy, any algorithm, and every denial that is not cached (decide.c).
 *
 * Both charges need the policy's numbers at this time. A thread caches them for the epoch, so the charge is first
 * tried without RCU. Where they are not cached the charge is tried within the RCU section. A charge is tried once.
 *
 * charge_cold is short, so that a processor looks past it to the memory that the next checks wait for.
 * A key gets a slot when it comes a second time within an epoch. weir_peek tries slot_peek and decide_in_table.
 *
 * Invariants: struct slot.
 *
 * Ordering: [S1] and [S2] in settle.c, and
 *
 *   [S4] epoch before policies: a slow pass loads the epoch (acquire), then the policy set. A change of policies
 *        publishes the set, then a new epoch. So a grant made by an old set has an old epoch, and has lapsed.
 *
 * Progress: a hit is wait-free; decide_in_table as decide.c.
 */
#include "check/check.h"

#include "check/decide.h"
#include "check/denial.h"
#include "check/direct_charge.h"
#include "check/renew_grant.h"
#include "check/request.h"
#include "check/slot_learn.h"
#include "check/verdict.h"
#include "policy/key_form.h"
#include "policy/override_set.h"
#include "thread/misuse.h"
#include "thread/rcu.h"
#include "thread/slot.h"

bool check_allow_unattached(weir_verdict *verdict)
{
    if (verdict != NULL) {
        *verdict =
            (weir_verdict){.allowed = true, .limit = UINT64_MAX, .remaining = UINT64_MAX, .fleet_age_ns = UINT64_MAX};
    }
    return true;
}

bool check_allow_unknown(struct weir_thread *t, weir_verdict *verdict)
{
    counter_add(&t->shared->unknown_count, 1);
    return check_allow_unattached(verdict);
}

void check_tally(struct weir_thread *t, const struct policy *policy, bool allowed)
{
    struct tally *tally = &t->tallies[policy->id];
    if (allowed || policy->mode == WEIR_SHADOW) {
        counter_add(&tally->allowed, 1);
        counter_add(&tally->would_deny, allowed ? 0 : 1);
    } else {
        counter_add(&tally->denied, 1);
    }
}

const struct policy *check_policy(const struct process *process, const struct policy_set *set, const weir_key *key)
{
    const struct policy *policy = policy_set_by_id(set, key->policy);
    const struct overrides *overrides = policy_set_overrides(set); /* pairs with their publication */
    if (policy != NULL && overrides != NULL) {
        const struct policy *own = overrides_find(overrides, key, process->secret, process->record_hash);
        policy = own != NULL ? own : policy;
    }
    return policy;
}

bool check_answer_override(struct weir_thread *t, const struct policy *policy, bool commit, weir_verdict *verdict)
{
    const bool allowed = policy->override == OVERRIDE_ALLOW;
    const uint64_t most = policy->limits[0].rule.limit;
    const struct decision decision = {.allowed = allowed,
                                      .limit = most,
                                      .remaining = allowed ? most : 0,
                                      .retry_after_ns = UINT64_MAX,
                                      .reset_after_ns = allowed ? 0 : UINT64_MAX};
    if (commit) {
        check_tally(t, policy, allowed);
    }
    if (verdict != NULL) {
        verdict_write(verdict, t, policy, &decision, load_relaxed(&t->line->now_ns));
    }
    return allowed || policy->mode == WEIR_SHADOW;
}

/*
 * Answers by a cached denial that slot_answer() leaves out: one that is not plain (struct slot_meta), or of a greater
 * cost than the one that was denied. A greater cost is denied as well, but has another retry_after, so it is answered
 * here only without a verdict.
 */
static inline __attribute__((always_inline)) enum slot_answer try_cached_denial(const struct check *c)
{
    struct slot *slot = c->slot;
    const uint64_t word = load_relaxed(&slot->meta); /* the owner's own */
    const struct slot_meta meta = slot_meta_unpack(word);
    const bool live = grant_epoch(load_relaxed(&slot->grant)) == load_relaxed(&c->t->line->epoch);
    const uint64_t asked = units_asked(c->cost);
    if (!live || meta.denies_from == 0 || asked < meta.denies_from ||
        (asked != meta.denies_from && c->verdict != NULL)) {
        return SLOT_NO_ANSWER;
    }
    struct tally *tally = slot_tally(c->t, word);
    const bool never = slot->retry_ns == UINT64_MAX;
    counter_add(&slot->denied, never ? 0 : meta.denies_from); /* what can never pass is no demand */
    counter_add(meta.shadow ? &tally->allowed : &tally->denied, 1);
    counter_add(&tally->would_deny, meta.shadow);
    if (c->verdict != NULL) {
        const uint64_t remaining = c->t->accounts[slot - c->t->slots].denied_remaining;
        slot_verdict_denied(c->verdict, c->t->line, slot, word, meta.shadow, remaining, false);
    }
    return meta.shadow ? SLOT_ALLOWED : SLOT_DENIED;
}

/* Renews the grant of a key that has a slot. Units wanted beside the cost are asked for once a check. */
static inline bool try_renew_grant(struct check *c, const struct policy_snapshot *snapshot)
{
    const bool plain = policy_snapshot_is_plain(snapshot);
    const uint64_t direct_cost = plain ? units_asked(c->cost) : 0;
    c->grant_wanted = slot_grant_size(c->t, (size_t) (c->slot - c->t->slots), c->epoch, direct_cost);
    if (!plain) {
        return false;
    }
    const struct check renewed = *c; /* a copy, so that a check without a slot stays in registers */
    return renew_grant(&renewed, snapshot);
}

/* Tries the charge that the key is for. True: it was counted, and is allowed. */
static inline bool try_charge(struct check *c, const struct policy_snapshot *snapshot)
{
    c->charge_tried = true;
    const bool allowed =
        c->slot != NULL ? try_renew_grant(c, snapshot) : direct_check(c->t, snapshot, c->key, c->cost, c->verdict);
    if (allowed) {
        counter_add(&c->t->tallies[snapshot->id].allowed, 1);
    }
    return allowed;
}

/* Decides in the table: for the key's slot, which is locked meanwhile, or without one. */
static __attribute__((noinline)) bool decide_in_table(const struct check *c)
{
    struct weir_thread *t = c->t;
    struct decision decision = {.allowed = false};
    uint32_t cells[WEIR_MAX_LIMITS];
    struct claim claim = {.policy = c->policy, .key = c->key, .cost = c->cost, .cells = cells};
    struct request r = {.t = t, .set = c->set, .claims = &claim, .count = 1, .now_ns = c->now_ns, .out = &decision};
    r.peeks = !c->commit;
    const bool with_slot = c->slot != NULL || r.peeks;
    const size_t index = with_slot ? slot_take(t, c->policy, c->key, c->epoch, c->now_ns) : SLOT_NONE;
    if (index != SLOT_NONE) {
        claim.cells = t->accounts[index].cells;
        claim.pinned = true;
        claim.grant_wanted = c->grant_wanted;
    }
    decide_request(&r);
    if (c->commit && !decision.untracked) {
        if (index != SLOT_NONE) {
            slot_learn_decision(&r, &claim, index, c->epoch);
        } else if (claim.status == CLAIM_NO_ROOM && decision.retry_after_ns != UINT64_MAX) {
            slot_learn_count_denial(&r, &claim);
        }
    }
    if (c->commit) {
        counter_add(&t->shared->untracked_count, decision.untracked);
        check_tally(t, c->policy, decision.allowed);
    }
    if (index != SLOT_NONE) {
        slot_account_unlock(&t->accounts[index]);
    }
    if (c->verdict != NULL) {
        verdict_write(c->verdict, t, c->policy, &decision, c->now_ns);
    }
    return decision.allowed || c->policy->mode == WEIR_SHADOW;
}

/* The policy's numbers, as the thread has cached them for this epoch. NULL: they are not, or a look is due. */
static inline const struct policy_snapshot *cached_snapshot(const struct weir_thread *t, const weir_key *key,
                                                            uint32_t epoch)
{
    const struct policy_snapshot *snapshot = policy_snapshot_place(t, key->policy);
    const bool usable = snapshot->epoch == epoch && snapshot->id == key->policy;
    return likely(usable && !thread_wants_look(t)) ? snapshot : NULL;
}

/* Tries what needs no RCU section for a key with a slot: all that is read is the thread's own or a cell. */
static inline __attribute__((always_inline)) enum slot_answer check_by_slot(struct check *c)
{
    if (thread_may_stand_still(c->t)) {
        tick_look(c->t); /* a cached denial is to end */
    }
    c->epoch = load_acquire(&c->t->line->epoch); /* [S4] */
    const enum slot_answer answer = try_cached_denial(c);
    if (answer != SLOT_NO_ANSWER) {
        return answer;
    }
    const struct policy_snapshot *snapshot = cached_snapshot(c->t, c->key, c->epoch);
    if (snapshot == NULL || !try_charge(c, snapshot)) {
        return SLOT_NO_ANSWER;
    }
    counter_add(&c->t->shared->slow_count, 1);
    return SLOT_ALLOWED;
}

enum charge { CHARGE_NOT_TRIED, CHARGE_FAILED, CHARGE_DONE };

/* The tail of charge_cold() where a guess at the key's cell was wrong, the cell has no room, or the key is shared. */
static __attribute__((noinline)) enum charge charge_unguessed(struct weir_thread *t, const weir_key *key, uint64_t cost,
                                                              weir_verdict *verdict, struct cell *guess)
{
    const struct policy_snapshot *snapshot = policy_snapshot_place(t, key->policy);
    const uint64_t hash = policy_snapshot_hash(snapshot, key);
    const bool guessed = load_relaxed(&guess->hash) == hash; /* [T1] only a hint */
    struct direct_answer how;
    if (guessed && !snapshot->fleet) {
        top_denied_prefetch(&t->process->top_denied, (uint32_t) (guess - t->process->table.cells));
        return CHARGE_FAILED;
    }
    if (guessed ? !direct_charge_shared(t->process, snapshot, guess, hash, cost, &how)
                : !direct_check(t, snapshot, key, cost, verdict)) {
        return CHARGE_FAILED;
    }
    counter_add(&t->tallies[snapshot->id].allowed, 1);
    counter_add(&t->shared->slow_count, 1);
    if (guessed && verdict != NULL) {
        direct_verdict(verdict, t, snapshot, &how);
    }
    return CHARGE_DONE;
}

/* Charges the cell of a key without a slot, without an RCU section: all that is read is the thread's own or a cell. */
static inline __attribute__((always_inline)) enum charge charge_cold(struct weir_thread *t, const weir_key *key,
                                                                     uint64_t cost, weir_verdict *verdict)
{
    const uint32_t epoch = load_acquire(&t->line->epoch); /* [S4] */
    const struct policy_snapshot *snapshot = cached_snapshot(t, key, epoch);
    if (unlikely(snapshot == NULL || units_asked(cost) > snapshot->limit_at.limit)) {
        return CHARGE_NOT_TRIED;
    }
    const uint64_t hash = policy_snapshot_hash(snapshot, key);
    const struct table_pairs pairs = table_pairs_of(&t->process->table, hash);
    table_prefetch_pairs(pairs);
    if (unlikely(slot_is_wanted(t, key->hash, epoch))) {
        return CHARGE_NOT_TRIED;
    }
    struct cell *cell = table_guess(pairs, hash);
    struct direct_swap swap;
    uint64_t held;
    if (unlikely(snapshot->fleet || !direct_look(snapshot, cell, hash, cost, &swap, &held) ||
                 !dwcas_swap(&cell->state, &swap.from, swap.to))) {
        return charge_unguessed(t, key, cost, verdict, cell);
    }
    counter_add(&t->tallies[snapshot->id].allowed, 1);
    counter_add(&t->shared->slow_count, 1);
    if (verdict != NULL) {
        const struct direct_answer how = {.state = {swap.to.a, swap.to.b & STATE_B_MASK}, .held = held};
        direct_verdict(verdict, t, snapshot, &how);
    }
    return CHARGE_DONE;
}

/* Gives a slot to a key that comes a second time within an epoch, where there is one to be had. */
static void give_slot(struct check *c)
{
    if (c->epoch == EPOCH_ASLEEP || !slot_is_recent(c->t, c->key->hash, c->epoch)) {
        return;
    }
    const size_t index = slot_give(c->t, c->policy, c->key, c->epoch, c->now_ns);
    if (index != SLOT_NONE) {
        slot_account_unlock(&c->t->accounts[index]);
        c->slot = &c->t->slots[index];
    }
}

/* The tries within an RCU section. */
static bool check_in_section(struct check *c)
{
    struct weir_thread *t = c->t;
    counter_add(&t->shared->slow_count, 1);
    c->epoch = c->commit ? load_acquire(&t->line->epoch) : EPOCH_ASLEEP; /* [S4] */
    c->set = process_policies(t->process);                               /* [S4] */
    c->policy = check_policy(t->process, c->set, c->key);
    if (c->policy == NULL) {
        return check_allow_unknown(t, c->verdict);
    }
    if (c->policy->override != OVERRIDE_NONE) {
        denial_trace_entry(c->commit, c->policy, c->key, c->cost);
        return check_answer_override(t, c->policy, c->commit, c->verdict);
    }
    c->now_ns = tick_now(t, c->policy);
    if (c->commit && !c->charge_tried) {
        const struct policy_snapshot snapshot = policy_snapshot_of(t->process, c->policy, c->now_ns);
        policy_snapshot_keep(t, c->set, &snapshot, c->epoch);
        if (c->slot == NULL) {
            give_slot(c);
        }
        if (try_charge(c, &snapshot)) {
            return true;
        }
    }
    return decide_in_table(c);
}

/* By value: check_slow()'s own stays in registers. */
static __attribute__((noinline)) bool check_under_rcu(struct check c)
{
    rcu_enter(c.t);
    const bool allowed = check_in_section(&c);
    rcu_leave(c.t);
    return allowed;
}

/* The parameters are in the order of weir_check's: a hit then keeps them where they are. */
static __attribute__((noinline)) bool check_slot_slow(struct weir_thread *t, const weir_key *key, uint64_t cost,
                                                      weir_verdict *verdict, struct slot *slot)
{
    if (!misuse_begin(t, "weir_check")) {
        return check_allow_unattached(verdict);
    }
    struct check c = {.t = t, .key = key, .cost = cost, .verdict = verdict, .slot = slot, .commit = true};
    const enum slot_answer answer = check_by_slot(&c);
    if (answer != SLOT_NO_ANSWER) {
        return answer == SLOT_ALLOWED;
    }
    return check_under_rcu(c);
}

static __attribute__((noinline)) bool check_cold(struct weir_thread *t, const weir_key *key, uint64_t cost,
                                                 weir_verdict *verdict)
{
    if (!misuse_begin(t, "weir_check")) {
        return check_allow_unattached(verdict);
    }
    if (thread_may_stand_still(t)) {
        tick_look(t);
    }
    const enum charge charge = charge_cold(t, key, cost, verdict);
    return charge == CHARGE_DONE || check_under_rcu((struct check){.t = t,
                                                                   .key = key,
                                                                   .cost = cost,
                                                                   .verdict = verdict,
                                                                   .commit = true,
                                                                   .charge_tried = charge == CHARGE_FAILED});
}

/* The function begins a cache line: then a hit takes as long wherever the functions before it end. */
__attribute__((aligned(CACHE_LINE))) bool weir_check(weir_thread *t, const weir_key *key, uint64_t cost,
                                                     weir_verdict *verdict)
{
    struct slot *slot;
    if (unlikely(t == NULL)) {
        return check_allow_unattached(verdict);
    }
    if (unlikely(!slot_get(t, key->hash, &slot))) {
        return check_cold(t, key, cost, verdict);
    }
    const enum slot_answer answer = slot_answer(t, slot, cost, verdict);
    return likely(answer != SLOT_NO_ANSWER) ? answer == SLOT_ALLOWED : check_slot_slow(t, key, cost, verdict, slot);
}

bool check_one_of_burst(struct weir_thread *t, const weir_key *key, uint64_t cost)
{
    struct check c = {.t = t, .key = key, .cost = cost, .commit = true}; /* slot: NULL where slot_get() finds none */
    if (slot_get(t, key->hash, &c.slot)) {
        enum slot_answer answer = slot_answer(t, c.slot, cost, NULL);
        answer = answer != SLOT_NO_ANSWER ? answer : check_by_slot(&c);
        return answer != SLOT_NO_ANSWER ? answer == SLOT_ALLOWED : check_in_section(&c);
    }
    const enum charge charge = charge_cold(t, key, cost, NULL);
    c.charge_tried = charge == CHARGE_FAILED;
    return charge == CHARGE_DONE || check_in_section(&c);
}

bool check_without_slot(struct weir_thread *t, const struct policy_set *set, const struct policy *policy,
                        const weir_key *key, uint64_t cost, uint64_t now_ns)
{
    const struct check c = {.t = t,
                            .key = key,
                            .cost = cost,
                            .commit = true,
                            .epoch = EPOCH_ASLEEP,
                            .set = set,
                            .policy = policy,
                            .now_ns = now_ns};
    counter_add(&t->shared->slow_count, 1);
    return decide_in_table(&c);
}

bool weir_peek(weir_thread *t, const weir_key *key, uint64_t cost, weir_verdict *verdict)
{
    if (t == NULL || !misuse_begin(t, "weir_peek")) {
        return check_allow_unattached(verdict);
    }
    if (thread_may_stand_still(t)) {
        tick_look(t);
    }
    const enum slot_answer answer = slot_peek(t, key->hash, cost, verdict);
    if (answer != SLOT_NO_ANSWER) {
        return answer == SLOT_ALLOWED;
    }
    return check_under_rcu((struct check){.t = t, .key = key, .cost = cost, .verdict = verdict, .commit = false});
}

weir_override_answer weir_find_override(weir_thread *t, const void *address, size_t length, unsigned *bits)
{
    static const weir_override_answer answers[] = {[OVERRIDE_NONE] = WEIR_NO_OVERRIDE,
                                                   [OVERRIDE_ALLOW] = WEIR_OVERRIDE_ALLOW,
                                                   [OVERRIDE_DENY] = WEIR_OVERRIDE_DENY};
    unsigned found_bits = 0;
    if (t == NULL || (length != 4 && length != 16) || !misuse_begin(t, "weir_find_override")) {
        return WEIR_NO_OVERRIDE;
    }
    const size_t mapped = key_form_mapped(address, length);
    rcu_enter(t);
    const enum override found =
        overrides_find_all(policy_set_overrides(process_policies(t->process)), (const unsigned char *) address + mapped,
                           length - mapped, t->process->secret, &found_bits);
    rcu_leave(t);
    if (found != OVERRIDE_NONE && bits != NULL) {
        *bits = found_bits;
    }
    return answers[found];
}
