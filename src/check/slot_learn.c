/* SPDX-License-Identifier: Apache-2.0 */
/* See slot_learn.h. */
#include "check/slot_learn.h"

#include "base/probe.h"
#include "check/denial.h"
#include "process/sync_pool.h"
#include "thread/limiter.h"
#include "thread/slot.h"

/* Gives a slot the grant that the table has reserved for it. */
static void cache_grant(struct weir_thread *t, size_t index, uint32_t epoch, const struct claim *claim, uint64_t now_ns)
{
    struct slot_account *account = &t->accounts[index];
    const struct policy *policy = claim->policy;
    if (claim->granted == 0) {
        return;
    }
    size_t least = 0;
    for (size_t i = 0; i < policy->limit_count; i++) {
        account->rules[i] = claim->rules[i];
        least = claim->readings[i].left < claim->readings[least].left ? i : least;
    }
    struct slot_meta meta = slot_meta_of(policy);
    meta.limit_index = (uint8_t) least;
    const struct rule *rule = &claim->rules[least];
    const struct state level = claim->readings[least].level;
    const uint64_t reset_after_ns = rule_reset_after(rule, level, now_ns);
    const struct slot_terms terms = {.now_ns = now_ns,
                                     .granted = claim->granted,
                                     .limit = policy->limits[least].rule.limit,
                                     .left = claim->readings[least].left + claim->granted,
                                     .reset_after_ns = reset_after_ns,
                                     .used_reset_after_ns =
                                         claim->cost != 0 ? reset_after_ns : rule_used_reset_after(rule, level, now_ns),
                                     .limit_index = (uint8_t) least,
                                     .meta = slot_meta_pack(meta)};
    slot_publish(t, index, epoch, &terms);
    probe_grant(policy->id, claim->key->data, claim->key->length, claim->granted);
}

/* Makes a slot answer for the rest of the epoch that a cost is denied. */
static void cache_denial(struct weir_thread *t, size_t index, uint32_t epoch, const struct claim *claim,
                         const struct decision *decision, uint64_t now_ns)
{
    const struct policy *policy = claim->policy;
    struct slot *slot = &t->slots[index];
    struct slot_account *account = &t->accounts[index];
    const uint64_t asked = claim_asked(claim);
    const bool never = decision->retry_after_ns == UINT64_MAX;
    const bool shadow = policy->mode == WEIR_SHADOW;
    const uint64_t denied = slot_denied(slot, account) + (never ? 0 : asked);
    account->deny_epoch = epoch;
    /* Under a policy that goes by the tick nothing can be freed before the next one (fine_clock: by the clock). */
    const bool waits = !policy->fine_clock || t->limiter->host_time || decision->retry_after_ns >= t->limiter->tick_ns;
    const bool lasts = waits && !claim->stalled; /* a thread that holds units may run again at once */
    if (epoch == EPOCH_ASLEEP || !lasts || asked > META_DENIES_MOST) {
        store_relaxed(slot_denies_from(slot) != 0 ? &slot->denied : &account->denied, denied);
        return;
    }
    account->denied_remaining = decision->remaining;
    slot->retry_ns = saturating_add(now_ns, decision->retry_after_ns);
    slot->reset_ns = saturating_add(now_ns, decision->reset_after_ns);
    slot->limit = decision->limit;
    store_relaxed(&slot->denied, denied);
    struct slot_meta meta = slot_meta_of(policy);
    meta.limit_index = decision->limit_index;
    meta.plain_denial = !shadow && !never && decision->remaining == 0 && !thread_may_stand_still(t);
    meta.denies_from = asked;
    store_relaxed(&slot->meta, slot_meta_pack(meta));
    store_release(&slot->grant, grant_make(epoch, load_relaxed(&slot->used))); /* no units */
}

/*
 * Makes a slot remember for the rest of the epoch that its key had room, while another key of the request had none. The
 * slot has a grant of no units, which denies nothing. Then the next such request is denied from the slots
 * (check_all.c).
 */
static void cache_room(struct weir_thread *t, size_t index, uint32_t epoch, const struct claim *claim)
{
    struct slot *slot = &t->slots[index];
    struct slot_account *account = &t->accounts[index];
    if (epoch != EPOCH_ASLEEP) {
        store_relaxed(&account->denied, slot_denied(slot, account));
        struct slot_meta meta = slot_meta_of(claim->policy);
        meta.had_room = true;
        store_relaxed(&slot->room, claim_asked(claim));
        store_relaxed(&slot->meta, slot_meta_pack(meta));
        store_release(&slot->grant, grant_make(epoch, load_relaxed(&slot->used)));
    }
}

void slot_learn_add_denied(struct process *process, const struct policy *policy, const weir_key *key,
                           const uint32_t *cells, uint64_t units)
{
    top_denied_name(process, policy, key, cells[0]);
    top_denied_add(process, cells[0], units);
    if (!process_shares(process, policy)) {
        return;
    }
    for (size_t i = 0; i < policy->limit_count; i++) {
        sync_add_denied(&process->syncs, cells[i], units);
        table_set_dirty(&process->table, cells[i]);
    }
}

void slot_learn_count_denial(const struct request *r, const struct claim *claim)
{
    slot_learn_add_denied(r->t->process, claim->policy, claim->key, claim->cells, claim_asked(claim));
}

void slot_learn_decision(const struct request *r, const struct claim *claim, size_t index, uint32_t epoch)
{
    if (claim->status != CLAIM_HAS_ROOM) {
        struct decision alone;
        denial_of_claim(r, claim, &alone);
        cache_denial(r->t, index, epoch, claim, &alone, r->now_ns);
        top_denied_name(r->t->process, claim->policy, claim->key, claim->cells[0]);
    } else if (r->out->allowed) {
        cache_grant(r->t, index, epoch, claim, r->now_ns);
    } else {
        cache_room(r->t, index, epoch, claim);
    }
}
