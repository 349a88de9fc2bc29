/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir_check_all: several keys, all or nothing.
 *
 * Where every key has a slot with a grant that covers its cost, the request is one store per key. The grants are this
 * thread's own, so no other thread can spend them between the test and the stores. Else all keys are claims of one
 * request. The table decides the request (decide.c), and the slots learn from the answer.
 *
 * Ordering: [S1] in settle.c, [S4] in check.c. Progress: as weir_check.
 */
#include "base/numbers.h"
#include "base/rcu.h"
#include "check/check.h"
#include "check/decide.h"
#include "check/request.h"
#include "check/slot_learn.h"
#include "check/verdict.h"
#include "thread/slot.h"

/* Finds the slots of all keys. False: one has no slot, or no grant that covers its cost; or a key is named twice. */
static bool find_granted(const struct weir_thread *t, const weir_key *keys, const uint64_t *costs, size_t count,
                         size_t slots[WEIR_MAX_KEYS_AT_ONCE])
{
    const uint32_t epoch = load_relaxed(&t->line->epoch);
    for (size_t i = 0; i < count; i++) {
        slots[i] = slot_find(t, keys[i].hash);
        if (slots[i] == SLOT_NONE) {
            return false;
        }
        const struct slot *slot = &t->slots[slots[i]];
        const uint64_t grant = load_relaxed(&slot->grant); /* [S1] grant before used */
        const uint64_t cost = costs != NULL ? costs[i] : 1;
        if (grant_epoch(grant) != epoch || !grant_covers(grant, load_relaxed(&slot->used), cost)) {
            return false;
        }
        /* Between the publication of a policy set and the epoch that follows it, grants of both sets have this epoch.
         * There are never more than two sets at a time. */
        if (!slot_meta_same_set(load_relaxed(&slot->meta), load_relaxed(&t->slots[slots[0]].meta))) {
            return false;
        }
        for (size_t j = 0; j < i; j++) {
            if (slots[j] == slots[i]) {
                return false; /* the grant must cover both costs */
            }
        }
    }
    return count != 0;
}

/* One request that is decided in the table. */
struct all {
    struct claim claims[WEIR_MAX_KEYS_AT_ONCE];
    uint32_t cells[WEIR_MAX_KEYS_AT_ONCE][WEIR_MAX_LIMITS];
    size_t slots[WEIR_MAX_KEYS_AT_ONCE];
    uint8_t key_of[WEIR_MAX_KEYS_AT_ONCE];               /* by claim */
    size_t count;                                        /* of claims */
    const struct policy *entries[WEIR_MAX_KEYS_AT_ONCE]; /* entries of single keys: allowed, or denied */
    size_t entry_count;
    bool denied, would_deny; /* by one of the entries */
    uint8_t denied_by;
};

/* Makes the claims: one for each key of a policy with limits. */
static void all_collect(struct weir_thread *t, const struct policy_set *set, struct all *all, const weir_key *keys,
                        const uint64_t *costs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct policy *policy = check_policy(set, &keys[i]);
        if (policy == NULL) {
            counter_add(&t->unknown_count, 1);
        } else if (policy->override != OVERRIDE_NONE) {
            const bool denies = policy->override == OVERRIDE_DENY;
            all->entries[all->entry_count++] = policy;
            all->would_deny = all->would_deny || (denies && policy->mode == WEIR_SHADOW);
            if (denies && policy->mode != WEIR_SHADOW) {
                all->denied = true;
                all->denied_by = (uint8_t) i;
            }
        } else {
            all->key_of[all->count] = (uint8_t) i;
            all->claims[all->count] = (struct claim){.policy = policy,
                                                     .key = &keys[i],
                                                     .cost = costs != NULL ? costs[i] : 1,
                                                     .cells = all->cells[all->count],
                                                     .optional = policy->mode == WEIR_SHADOW};
            all->count++;
        }
    }
}

/* Locks the slots of the claims, where they have one. */
static void all_take_slots(struct weir_thread *t, struct all *all, uint32_t epoch, uint64_t now_ns)
{
    for (size_t i = 0; i < all->count; i++) {
        struct claim *claim = &all->claims[i];
        /* The slot of a key that is named twice is locked by its first claim; the second has none. */
        all->slots[i] = slot_take(t, claim->policy, claim->key, epoch, now_ns);
        if (all->slots[i] != SLOT_NONE) {
            claim->cells = t->accounts[all->slots[i]].cells;
            claim->pinned = true;
            claim->grant_wanted = slot_grant_size(t, all->slots[i], epoch, 0);
        }
    }
}

static void all_learn_decisions(struct weir_thread *t, struct all *all, uint32_t epoch, const struct request *r)
{
    for (size_t i = 0; i < all->count; i++) {
        const struct claim *claim = &all->claims[i];
        if (all->slots[i] != SLOT_NONE) {
            /* A key that is named twice has no room for both costs: the slot must not deny one of them. */
            if (!r->out->untracked && !(claim->status != CLAIM_HAS_ROOM && claim->before[0] != 0)) {
                slot_learn_decision(r, claim, all->slots[i], epoch);
            }
            slot_unlock(&t->accounts[all->slots[i]]);
        } else if (claim->status == CLAIM_NO_ROOM) {
            slot_learn_count_denial(r, claim);
        }
        check_tally(t, claim->policy, claim->optional ? claim->status == CLAIM_HAS_ROOM : r->out->allowed);
    }
}

/* Counts the request for the keys that an entry has decided, and where one denies for all other keys. */
static void all_tally(struct weir_thread *t, const struct all *all, bool pass)
{
    for (size_t i = 0; i < all->entry_count; i++) {
        const struct policy *policy = all->entries[i];
        check_tally(t, policy, policy->mode == WEIR_SHADOW ? policy->override == OVERRIDE_ALLOW : pass);
    }
    for (size_t i = 0; i < all->count && all->denied; i++) {
        check_tally(t, all->claims[i].policy, all->claims[i].policy->mode == WEIR_SHADOW);
    }
}

/* The time of a request of several policies: by the clock, where one of them goes by the clock. */
static uint64_t all_now(struct weir_thread *t, const struct all *all)
{
    for (size_t i = 0; i < all->count; i++) {
        if (all->claims[i].policy->fine_clock) {
            return tick_now(t, all->claims[i].policy);
        }
    }
    return tick_now(t, all->claims[0].policy);
}

/* Decides the claims; within an RCU section. */
static bool all_decide(struct weir_thread *t, struct all *all, uint32_t epoch, weir_verdict *verdict)
{
    struct decision decision = {.allowed = false};
    struct request r = {
        .t = t, .claims = all->claims, .count = all->count, .now_ns = all_now(t, all), .out = &decision};
    all_take_slots(t, all, epoch, r.now_ns);
    decide_request(&r, true);
    all_learn_decisions(t, all, epoch, &r);
    counter_add(&t->untracked_count, decision.untracked);
    if (verdict != NULL) {
        verdict_write(verdict, t, all->claims[decision.key_index].policy, &decision, r.now_ns);
        verdict->allowed = decision.allowed;
        verdict->retry_after_ns = decision.allowed ? 0 : decision.retry_after_ns;
        verdict->would_deny = decision.left_out || all->would_deny;
        verdict->key_index = all->key_of[decision.key_index];
    }
    return decision.allowed;
}

static __attribute__((noinline)) bool check_all_slow(struct weir_thread *t, const weir_key *keys, const uint64_t *costs,
                                                     size_t count, weir_verdict *verdict)
{
    struct all all;
    all.count = all.entry_count = 0;
    all.denied = all.would_deny = false;
    counter_add(&t->slow_count, 1);
    rcu_enter();
    const uint32_t epoch = load_acquire(&t->line->epoch);               /* [S4] before the policies */
    const struct policy_set *set = load_acquire(&t->process->policies); /* one set for all keys */
    all_collect(t, set, &all, keys, costs, count);
    bool pass = !all.denied;
    if (all.denied) {
        (void) check_answer_override(t, check_policy(set, &keys[all.denied_by]), false, verdict);
        if (verdict != NULL) {
            verdict->key_index = all.denied_by;
        }
    } else if (all.count != 0) {
        pass = all_decide(t, &all, epoch, verdict);
    } else if (verdict != NULL) {
        *verdict = (weir_verdict){.allowed = true,
                                  .would_deny = all.would_deny,
                                  .limit = UINT64_MAX,
                                  .remaining = UINT64_MAX,
                                  .fleet_age_ns = UINT64_MAX};
    }
    all_tally(t, &all, pass);
    rcu_leave();
    return pass;
}

bool weir_check_all(weir_thread *t, const weir_key *keys, const uint64_t *costs, size_t count, weir_verdict *verdict)
{
    size_t slots[WEIR_MAX_KEYS_AT_ONCE];
    if (t == NULL) {
        return check_allow_unattached(verdict);
    }
    if (count > WEIR_MAX_KEYS_AT_ONCE) {
        if (verdict != NULL) {
            *verdict = (weir_verdict){.retry_after_ns = UINT64_MAX, .fleet_age_ns = UINT64_MAX};
        }
        return false;
    }
    if (!find_granted(t, keys, costs, count, slots)) {
        return check_all_slow(t, keys, costs, count, verdict);
    }
    /* The grants are this thread's own. One that is being taken back is spent late, as by weir_check [S1]. */
    size_t least = 0;
    uint64_t least_left = UINT64_MAX;
    for (size_t i = 0; i < count; i++) {
        struct slot *slot = &t->slots[slots[i]];
        const uint64_t meta = load_relaxed(&slot->meta); /* the owner's own */
        const uint64_t used = slot_spend(t, slot, meta, load_relaxed(&slot->used), costs != NULL ? costs[i] : 1);
        const uint64_t left = load_relaxed(&slot->remaining_base) - used;
        if (left < least_left) {
            least_left = left;
            least = i;
        }
    }
    if (verdict != NULL) {
        const struct slot *slot = &t->slots[slots[least]];
        slot_verdict_allowed(verdict, t->line, slot, load_relaxed(&slot->meta), least_left);
        verdict->key_index = (uint8_t) least;
    }
    return true;
}
