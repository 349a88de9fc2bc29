/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread tier: weir_check and weir_peek. (weir_check_all is in check_all.c, the life of a slot in slot.c.)
 *
 * A check that hits finds its key's slot, sees that the grant there is of the present epoch and has units left, and
 * adds its cost to `used`. It loads two shared words (the epoch, the tick's time), writes its own slot and its own
 * tally, and nothing else. A denial that was found in this epoch is answered in the same way.
 *
 * Everything else is slow: the slot is settled, the table decides, and the slot gets what was granted or denied for the
 * rest of the epoch. A key gets a slot when it comes a second time within an epoch; until then it is charged straight
 * to the table. The slow have short ways (direct_charge.h, renew_grant.h), and what those need of a policy is kept for
 * the epoch.
 *
 * Invariants: see struct slot. Ordering: [S1] and [S2] in settle.c;
 *
 *   [S4] epoch before policies: a slow pass loads the epoch (acquire), then the policy set; a change of policies
 *        publishes the set, then a new epoch. So a grant made by an old set carries an old epoch, and has lapsed.
 *
 * Progress: a hit is wait-free.
 */
#include "check/check.h"
#include "base/numbers.h"
#include "base/rcu.h"
#include "check/decide.h"
#include "check/renew_grant.h"
#include "check/request.h"
#include "check/slot_learn.h"
#include "check/verdict.h"
#include "policy/override_set.h"
#include "thread/limiter.h"
#include "thread/settle.h"
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
    counter_add(&t->unknown_count, 1);
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

const struct policy *check_policy(const struct policy_set *set, const weir_key *key)
{
    const struct policy *policy = key->policy <= WEIR_MAX_POLICIES ? set->by_id[key->policy] : NULL;
    const struct overrides *overrides = load_acquire(&set->overrides); /* pairs with their publication */
    if (policy != NULL && overrides != NULL) {
        const struct policy *own = overrides_find(overrides, key);
        policy = own != NULL ? own : policy;
    }
    return policy;
}

bool check_answer_override(struct weir_thread *t, const struct policy *policy, bool take, weir_verdict *verdict)
{
    const bool allowed = policy->override == OVERRIDE_ALLOW;
    const uint64_t most = policy->limits[0].rule.limit;
    const struct decision decision = {
        .allowed = allowed, .limit = most, .remaining = allowed ? most : 0, .retry_after_ns = UINT64_MAX};
    if (take) {
        check_tally(t, policy, allowed);
    }
    if (verdict != NULL) {
        verdict_write(verdict, t, policy, &decision, load_relaxed(&t->line->now_ns));
    }
    return allowed || policy->mode == WEIR_SHADOW;
}

/* A check that the table decides, for a slot (locked) or for SLOT_NONE. */
static __attribute__((noinline)) bool decide(struct weir_thread *t, const struct policy *policy, const weir_key *key,
                                             uint64_t cost, bool take, size_t index, uint64_t want, uint32_t epoch,
                                             uint64_t now_ns, weir_verdict *verdict)
{
    struct decision decision = {.allowed = false};
    uint32_t cells[WEIR_MAX_LIMITS];
    struct claim claim = {.policy = policy, .key = key, .cost = cost, .cells = cells};
    struct request r = {.t = t, .claims = &claim, .count = 1, .now_ns = now_ns, .out = &decision};
    if (index != SLOT_NONE) {
        claim.cells = t->accounts[index].cells;
        claim.pinned = true;
        claim.want = want;
        decide_request(&r, take);
        if (take && !decision.untracked) {
            slot_learn_decision(t, index, epoch, &r, &claim);
        }
        slot_unlock(&t->accounts[index]);
    } else {
        decide_request(&r, take);
        if (take && claim.short_of && !decision.untracked && decision.retry_after_ns != UINT64_MAX) {
            slot_learn_denial(t, policy, key, cells, cost);
        }
    }
    if (take) {
        counter_add(&t->untracked_count, decision.untracked);
        check_tally(t, policy, decision.allowed);
    }
    if (verdict != NULL) {
        verdict_write(verdict, t, policy, &decision, now_ns);
    }
    return decision.allowed || policy->mode == WEIR_SHADOW;
}

/* What a slow pass has found out of a key before it began in earnest. */
struct hint {
    bool slotless; /* it is not given a slot now */
    bool sized;    /* `want` was asked of slot_grant_size, which may be asked once */
    uint64_t want;
};

/* A slow pass on its way. */
struct pass {
    struct weir_thread *t;
    const struct policy_set *set;
    const struct policy *policy;
    const weir_key *key;
    uint64_t cost;
    uint32_t epoch;
    uint64_t now_ns;
    struct hint hint;
    weir_verdict *verdict;
};

/* What has no short way, or found it closed. */
static bool check_long(const struct pass *p, uint64_t want)
{
    const size_t index = slot_take(p->t, p->policy, p->key, p->epoch, p->now_ns);
    return decide(p->t, p->policy, p->key, p->cost, true, index, want, p->epoch, p->now_ns, p->verdict);
}

/* A key whose slot did not answer. */
static bool check_slot(const struct pass *p, const struct policy_snapshot *snapshot, size_t index)
{
    const bool is_short = policy_snapshot_is_plain(snapshot) && p->cost != 0;
    const uint64_t want = p->hint.sized ? p->hint.want : slot_grant_size(p->t, index, p->epoch, is_short ? p->cost : 0);
    if (is_short && renew_grant(p->t, index, snapshot, p->key, p->cost, want, p->epoch, p->verdict)) {
        counter_add(&p->t->tallies[p->policy->id].allowed, 1);
        return true;
    }
    return check_long(p, want);
}

/* A key without a slot: it is given one when it comes a second time within an epoch. */
static bool check_slotless(const struct pass *p, const struct policy_snapshot *snapshot)
{
    if (!p->hint.slotless && p->epoch != EPOCH_ASLEEP && slot_is_recent(p->t, p->key->hash, p->epoch)) {
        const size_t index = slot_give(p->t, p->policy, p->key, p->epoch, p->now_ns);
        if (index != SLOT_NONE) {
            slot_unlock(&p->t->accounts[index]);
            return check_slot(p, snapshot, index);
        }
    }
    if (direct_check(p->t, snapshot, p->key, p->cost, p->verdict)) {
        counter_add(&p->t->tallies[p->policy->id].allowed, 1);
        return true;
    }
    return decide(p->t, p->policy, p->key, p->cost, true, SLOT_NONE, 0, p->epoch, p->now_ns, p->verdict);
}

static bool check_with_policy(const struct pass *p, bool take, const struct slot *slot)
{
    if (!take) {
        const size_t locked = slot_take(p->t, p->policy, p->key, EPOCH_ASLEEP, p->now_ns);
        return decide(p->t, p->policy, p->key, p->cost, false, locked, 0, p->epoch, p->now_ns, p->verdict);
    }
    const struct policy_snapshot snapshot = policy_snapshot_of(p->t->process, p->policy, p->now_ns);
    policy_snapshot_keep(p->t, p->set, &snapshot, p->epoch);
    return slot != NULL ? check_slot(p, &snapshot, (size_t) (slot - p->t->slots)) : check_slotless(p, &snapshot);
}

/*
 * A denial by a slot that is other than most (see meta.plain_denial), or of a greater cost than the one that was
 * denied: that is denied as well, but has another retry_after.
 */
static enum slot_answer deny_seldom(struct weir_thread *t, struct slot *slot, uint64_t cost, weir_verdict *verdict)
{
    const uint64_t word = load_relaxed(&slot->meta);
    const struct slot_meta meta = slot_meta_unpack(word);
    const uint64_t denies_from = meta.denies_from;
    const bool live = grant_epoch(load_relaxed(&slot->grant)) == load_relaxed(&t->line->epoch);
    if (!live || denies_from == 0 || cost < denies_from || (cost != denies_from && verdict != NULL)) {
        return SLOT_NO_ANSWER;
    }
    struct tally *tally = slot_tally(t, word);
    const bool never = slot->retry_after_ns == UINT64_MAX;
    const bool shadow = meta.shadow;
    counter_add(&slot->denied, never ? 0 : denies_from); /* what can never pass is no demand */
    counter_add(shadow ? &tally->allowed : &tally->denied, 1);
    counter_add(&tally->would_deny, shadow);
    if (verdict != NULL) {
        slot_verdict_denied(verdict, t->line, slot, word, shadow, t->accounts[slot - t->slots].denied_remaining);
    }
    return shadow ? SLOT_ALLOWED : SLOT_DENIED;
}

/*
 * What many slow passes come to, outside of an RCU section: a denial of another kind; or, by what is kept of the
 * policy, a key without a slot that is not given one is charged straight, and one that has a slot by that.
 * SLOT_NO_ANSWER: nothing was done but to find out what is in *hint.
 */
static inline enum slot_answer check_kept(struct weir_thread *t, const weir_key *key, uint64_t cost, struct slot *slot,
                                          weir_verdict *verdict, struct hint *hint)
{
    const uint32_t epoch = load_acquire(&t->line->epoch); /* [S4] */
    const struct policy_snapshot *snapshot = policy_snapshot_place(t, key->policy);
    const enum slot_answer hit = slot != NULL ? deny_seldom(t, slot, cost, verdict) : SLOT_NO_ANSWER;
    if (hit != SLOT_NO_ANSWER || snapshot->epoch != epoch || snapshot->id != key->policy || cost == 0 ||
        tick_wants_look(t)) {
        return hit;
    }
    bool pass;
    if (slot == NULL) {
        /* Its misses are most of what follows; both, as one key in four is not in its first line. */
        table_prefetch(&t->process->table, policy_snapshot_hash(snapshot, key));
    }
    if (slot != NULL) {
        const size_t index = (size_t) (slot - t->slots);
        hint->sized = true;
        hint->want = slot_grant_size(t, index, epoch, cost);
        pass = renew_grant(t, index, snapshot, key, cost, hint->want, epoch, verdict);
    } else {
        hint->slotless = !slot_is_recent(t, key->hash, epoch) || *set_busy_epoch(t, key->hash) == epoch;
        pass = hint->slotless && direct_check(t, snapshot, key, cost, verdict);
    }
    if (pass) {
        counter_add(&t->slow_count, 1);
        counter_add(&t->tallies[snapshot->id].allowed, 1);
    }
    return pass ? SLOT_ALLOWED : SLOT_NO_ANSWER;
}

/* A slow pass, within an RCU section. `slot`: the key's; NULL: it has none. */
static bool check_in_section(struct weir_thread *t, const weir_key *key, uint64_t cost, bool take, struct slot *slot,
                             const struct hint *hint, weir_verdict *verdict)
{
    struct pass p = {.t = t, .key = key, .cost = cost, .hint = *hint, .verdict = verdict};
    counter_add(&t->slow_count, 1);
    p.epoch = load_acquire(&t->line->epoch);     /* [S4] */
    p.set = load_acquire(&t->process->policies); /* [S4] */
    p.policy = check_policy(p.set, key);
    if (p.policy == NULL) {
        return check_allow_unknown(t, verdict);
    }
    if (p.policy->override != OVERRIDE_NONE) {
        return check_answer_override(t, p.policy, take, verdict);
    }
    p.now_ns = tick_now(t, p.policy);
    return check_with_policy(&p, take, slot);
}

static __attribute__((noinline)) bool check_slow(struct weir_thread *t, const weir_key *key, uint64_t cost, bool take,
                                                 struct slot *slot, weir_verdict *verdict)
{
    struct hint hint = {.slotless = false};
    const enum slot_answer hit = take ? check_kept(t, key, cost, slot, verdict, &hint) : SLOT_NO_ANSWER;
    if (hit != SLOT_NO_ANSWER) {
        return hit == SLOT_ALLOWED;
    }
    rcu_enter();
    const bool pass = check_in_section(t, key, cost, take, slot, &hint, verdict);
    rcu_leave();
    return pass;
}

/* Its few lines begin one of the cache: wherever the functions before it end, a hit takes as long. */
__attribute__((aligned(CACHE_LINE))) bool weir_check(weir_thread *t, const weir_key *key, uint64_t cost,
                                                     weir_verdict *verdict)
{
    struct slot *slot;
    if (unlikely(t == NULL)) {
        return check_allow_unattached(verdict);
    }
    if (unlikely(!slot_get(t, key->hash, &slot))) {
        return check_slow(t, key, cost, true, NULL, verdict);
    }
    const enum slot_answer hit = slot_answer(t, slot, cost, verdict);
    return likely(hit != SLOT_NO_ANSWER) ? hit == SLOT_ALLOWED : check_slow(t, key, cost, true, slot, verdict);
}

bool check_one_of_burst(struct weir_thread *t, const weir_key *key, uint64_t cost)
{
    struct slot *slot = NULL;
    struct hint hint = {.slotless = false};
    enum slot_answer hit = slot_get(t, key->hash, &slot) ? slot_answer(t, slot, cost, NULL) : SLOT_NO_ANSWER;
    hit = hit != SLOT_NO_ANSWER ? hit : check_kept(t, key, cost, slot, NULL, &hint);
    return hit != SLOT_NO_ANSWER ? hit == SLOT_ALLOWED : check_in_section(t, key, cost, true, slot, &hint, NULL);
}

bool check_without_slot(struct weir_thread *t, const struct policy *policy, const weir_key *key, uint64_t cost,
                        uint64_t now_ns)
{
    counter_add(&t->slow_count, 1);
    return decide(t, policy, key, cost, true, SLOT_NONE, 0, EPOCH_ASLEEP, now_ns, NULL);
}

bool weir_peek(weir_thread *t, const weir_key *key, uint64_t cost, weir_verdict *verdict)
{
    return t != NULL ? check_slow(t, key, cost, false, NULL, verdict) : check_allow_unattached(verdict);
}
