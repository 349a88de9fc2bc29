/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request of several keys, decided in the table: each key of a policy with limits is a claim of one request
 * (decide.c). The slots of the keys learn from the answer. Keys with an entry of their own are allowed or denied beside
 * the claims.
 *
 * Ordering: [S4] in check.c. Progress: as decide.c.
 */
#include "check/all_table.h"

#include "check/check.h"
#include "check/decide.h"
#include "check/denial.h"
#include "check/request.h"
#include "check/slot_learn.h"
#include "check/verdict.h"
#include "thread/rcu.h"
#include "thread/slot.h"

/* One request that is decided in the table. */
struct all {
    struct claim claims[WEIR_MAX_KEYS_AT_ONCE];
    uint32_t cells[WEIR_MAX_KEYS_AT_ONCE][WEIR_MAX_LIMITS];
    size_t slots[WEIR_MAX_KEYS_AT_ONCE];
    uint8_t key_of[WEIR_MAX_KEYS_AT_ONCE];               /* by claim */
    size_t count;                                        /* of claims */
    const struct policy *entries[WEIR_MAX_KEYS_AT_ONCE]; /* entries of single keys: allowed, or denied */
    size_t entry_count;
    size_t unknown_count;    /* keys of no policy */
    bool denied, would_deny; /* by one of the entries */
    uint8_t denied_by;       /* of a request that is denied: the key that decided */
};

/* Makes the claims: one for each key of a policy with limits. */
static void all_collect(struct weir_thread *t, const struct policy_set *set, struct all *all,
                        const struct key_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        const struct policy *policy = check_policy(t->process, set, &list->keys[i]);
        if (policy == NULL) {
            all->unknown_count++;
        } else if (policy->override != OVERRIDE_NONE) {
            const bool denies = policy->override == OVERRIDE_DENY;
            all->entries[all->entry_count++] = policy;
            all->would_deny = all->would_deny || (denies && policy->mode == WEIR_SHADOW);
            if (denies && policy->mode != WEIR_SHADOW) {
                all->denied = true;
                all->denied_by = (uint8_t) i;
                denial_trace_entry(true, policy, &list->keys[i], list->costs[i]);
            }
        } else {
            all->key_of[all->count] = (uint8_t) i;
            all->claims[all->count] = (struct claim){.policy = policy,
                                                     .key = &list->keys[i],
                                                     .cost = list->costs[i],
                                                     .cells = all->cells[all->count],
                                                     .optional = policy->mode == WEIR_SHADOW};
            all->count++;
        }
    }
}

/* Whether another claim is for the same key. */
static bool is_named_twice(const struct all *all, size_t i)
{
    for (size_t other = 0; other < all->count; other++) {
        const struct claim *claim = &all->claims[other];
        if (other != i && claim->policy == all->claims[i].policy && claim->key->hash == all->claims[i].key->hash) {
            return true;
        }
    }
    return false;
}

/* Locks the slots of the claims, where they have one. A key that is named twice gets no grant: each of its claims reads
 * what is left after the claims before it, and none what is left in the end. */
static void all_take_slots(struct weir_thread *t, struct all *all, uint32_t epoch, uint64_t now_ns)
{
    for (size_t i = 0; i < all->count; i++) {
        struct claim *claim = &all->claims[i];
        /* The slot of a key that is named twice is locked by its first claim; the second has none. */
        all->slots[i] = slot_take(t, claim->policy, claim->key, epoch, now_ns);
        if (all->slots[i] != SLOT_NONE) {
            claim->cells = t->accounts[all->slots[i]].cells;
            claim->pinned = true;
            claim->grant_wanted = is_named_twice(all, i) ? 0 : slot_grant_size(t, all->slots[i], epoch, 0);
        }
    }
}

/* Counts the denial of a claim that no slot learns. */
static void all_count_denial(const struct request *r, const struct claim *claim)
{
    struct decision alone;
    denial_of_claim(r, claim, &alone);
    if (alone.retry_after_ns != UINT64_MAX) { /* what can never pass is no demand */
        slot_learn_count_denial(r, claim);
    }
}

static void all_learn_decisions(struct weir_thread *t, struct all *all, uint32_t epoch, const struct request *r)
{
    for (size_t i = 0; i < all->count; i++) {
        const struct claim *claim = &all->claims[i];
        const bool has_slot = all->slots[i] != SLOT_NONE;
        /* A key that is named twice has no room for both costs: the slot must not deny one of them. */
        if (has_slot && !r->out->untracked && (claim->status == CLAIM_HAS_ROOM || claim->before[0] == 0)) {
            slot_learn_decision(r, claim, all->slots[i], epoch);
        } else if (claim->status == CLAIM_NO_ROOM) {
            all_count_denial(r, claim);
        }
        if (has_slot) {
            slot_account_unlock(&t->accounts[all->slots[i]]);
        }
        if (r->out->allowed) {
            check_tally(t, claim->policy, claim->status == CLAIM_HAS_ROOM && !r->out->untracked);
        } else if (i == r->out->key_index) {
            check_tally(t, claim->policy, false);
        }
    }
}

/* Counts a request that passes for the keys that have an entry. */
static void all_tally(struct weir_thread *t, const struct all *all)
{
    for (size_t i = 0; i < all->entry_count; i++) {
        check_tally(t, all->entries[i], all->entries[i]->override == OVERRIDE_ALLOW);
    }
}

/* The time of a request of several policies: by the clock, where one of them goes by the clock. */
static uint64_t all_now(struct weir_thread *t, const struct all *all)
{
    const struct policy *policy = all->claims[0].policy;
    for (size_t i = 1; i < all->count && !policy->fine_clock; i++) {
        policy = all->claims[i].policy;
    }
    return tick_now(t, policy);
}

/* Decides the claims; within an RCU section. */
static bool all_decide(struct weir_thread *t, const struct policy_set *set, struct all *all, uint32_t epoch,
                       weir_verdict *verdict)
{
    struct decision decision = {.allowed = false};
    struct request r = {
        .t = t, .set = set, .claims = all->claims, .count = all->count, .now_ns = all_now(t, all), .out = &decision};
    all_take_slots(t, all, epoch, r.now_ns);
    decide_request(&r);
    all_learn_decisions(t, all, epoch, &r);
    all->denied_by = all->key_of[decision.key_index];
    counter_add(&t->shared->untracked_count, decision.untracked);
    if (verdict != NULL) {
        verdict_write(verdict, t, all->claims[decision.key_index].policy, &decision, r.now_ns);
        verdict->would_deny = decision.left_out || all->would_deny;
        verdict->key_index = all->denied_by;
    }
    return decision.allowed;
}

bool all_table_check(struct weir_thread *t, const struct key_list *list, weir_verdict *verdict, uint8_t *denied_by)
{
    struct all all;
    all.count = all.entry_count = all.unknown_count = 0;
    all.denied = all.would_deny = false;
    counter_add(&t->shared->slow_count, 1);
    rcu_enter(t);
    const uint32_t epoch = load_acquire(&t->line->epoch);        /* [S4] before the policies */
    const struct policy_set *set = process_policies(t->process); /* one set for all keys */
    all_collect(t, set, &all, list);
    bool pass = !all.denied;
    if (all.denied) {
        (void) check_answer_override(t, check_policy(t->process, set, &list->keys[all.denied_by]), true, verdict);
        if (verdict != NULL) {
            verdict->key_index = all.denied_by;
        }
    } else if (all.count != 0) {
        pass = all_decide(t, set, &all, epoch, verdict);
    } else if (verdict != NULL) {
        *verdict = (weir_verdict){.allowed = true,
                                  .would_deny = all.would_deny,
                                  .limit = UINT64_MAX,
                                  .remaining = UINT64_MAX,
                                  .fleet_age_ns = UINT64_MAX};
    }
    counter_add(&t->shared->unknown_count, all.unknown_count);
    if (pass) {
        all_tally(t, &all);
    } else {
        counter_add(&t->shared->more_keys, all.unknown_count); /* they count as allowed, and the request was not */
        *denied_by = all.denied_by;
    }
    rcu_leave(t);
    return pass;
}
