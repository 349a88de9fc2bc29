/* SPDX-License-Identifier: Apache-2.0 */
#include "check/slot_learn.h"

#include "base/numbers.h"
#include "check/denial.h"
#include "process/allowance.h"
#include "thread/limiter.h"
#include "thread/slot.h"

/* What a slot answers for the rest of the epoch after the table has allowed. */
static void slot_learn_grant(struct weir_thread *t, size_t index, uint32_t epoch, const struct claim *claim,
                             uint64_t now_ns)
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
    const struct slot_terms terms = {.now_ns = now_ns,
                                     .granted = claim->granted,
                                     .limit = policy->limits[least].rule.limit,
                                     .left = claim->readings[least].left + claim->granted,
                                     .reset_after_ns =
                                         rule_reset_after(&claim->rules[least], claim->readings[least].level, now_ns),
                                     .limit_index = (uint8_t) least,
                                     .meta = slot_meta_pack(meta)};
    slot_publish(t, index, epoch, &terms);
}

/* The same after it has denied `cost`. */
static void slot_learn_deny(struct weir_thread *t, size_t index, uint32_t epoch, const struct policy *policy,
                            uint64_t cost, const struct decision *decision)
{
    struct slot *slot = &t->slots[index];
    struct slot_account *account = &t->accounts[index];
    const uint64_t asked = cost != 0 ? cost : 1;
    const bool never = decision->retry_after_ns == UINT64_MAX;
    const bool shadow = policy->mode == WEIR_SHADOW;
    const uint64_t denied = slot_denied(slot, account) + (never ? 0 : asked);
    account->deny_epoch = epoch;
    /* By the tick nothing is lost by denying until the next one: see fine_clock. */
    const bool lasts = !policy->fine_clock || t->limiter->host_time || decision->retry_after_ns >= t->limiter->tick_ns;
    if (epoch == EPOCH_ASLEEP || !lasts || asked > META_DENIES_MOST) {
        store_relaxed(slot_denies_from(slot) != 0 ? &slot->denied : &account->denied, denied);
        return;
    }
    account->denied_remaining = decision->remaining;
    slot->retry_after_ns = decision->retry_after_ns;
    slot->reset_after_ns = decision->reset_after_ns;
    slot->limit = decision->limit;
    store_relaxed(&slot->denied, denied);
    struct slot_meta meta = slot_meta_of(policy);
    meta.limit_index = decision->limit_index;
    meta.shadow = shadow;
    meta.plain_denial = !shadow && !never && decision->remaining == 0;
    meta.denies_from = asked;
    store_relaxed(&slot->meta, slot_meta_pack(meta));
    store_release(&slot->grant, grant_make(epoch, load_relaxed(&slot->used))); /* no units */
}

void slot_learn_denial(struct weir_thread *t, const struct policy *policy, const weir_key *key, const uint32_t *cells,
                       uint64_t cost)
{
    top_denied_name(t->process, policy, key, cells[0]);
    top_denied_add(t->process, cells[0], cost != 0 ? cost : 1);
    if (!t->process->fleet || policy->scope != WEIR_SCOPE_FLEET) {
        return;
    }
    for (size_t i = 0; i < policy->limit_count; i++) {
        sync_add_denied(&t->process->syncs, cells[i], cost != 0 ? cost : 1);
        table_set_dirty(&t->process->table, cells[i]);
    }
}

void slot_learn_decision(struct weir_thread *t, size_t index, uint32_t epoch, const struct request *r,
                         const struct claim *claim)
{
    if (claim->short_of) {
        struct decision alone;
        denial_of_claim(r, claim, &alone);
        slot_learn_deny(t, index, epoch, claim->policy, claim->cost, &alone);
        top_denied_name(t->process, claim->policy, claim->key, claim->cells[0]);
    } else if (r->out->allowed) {
        slot_learn_grant(t, index, epoch, claim, r->now_ns);
    }
}
