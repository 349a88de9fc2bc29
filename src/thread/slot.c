/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a slot. A key gets a slot when it comes a second time within an epoch. Every slow pass of the key takes
 * the slot: settles it, and publishes a grant or a denial for the rest of the epoch. In the end the slot goes to
 * another key of its set.
 *
 * The size of a grant. Within an epoch it doubles from pass to pass. The first one of an epoch is 1.5 times what the
 * key used in its last epoch. In the epoch after a denial it is nothing. Where a request can be charged directly
 * (renew_grant.c) it is nothing until DIRECT_BELOW requests were charged so.
 *
 * Invariants: struct slot. Ordering: [S1] to [S3] in settle.c. Progress: wait-free.
 */
#include "thread/slot.h"

#include "base/numbers.h"
#include "process/insert.h"
#include "thread/limiter.h"
#include "thread/settle.h"

/* Without direct charges, a key that used fewer units than this in its last epoch gets no grant: it would save nothing.
 */
#define IDLE_BELOW 2

/*
 * With direct charges, a key gets a grant from so many requests an epoch on. A grant and its settling take as long as
 * some six direct charges, and a hit as long as a third of one.
 */
#define DIRECT_BELOW 6

/* Gives a locked slot to a key, in place of its present one. False: the key has no cells, and the slot is free. */
static bool slot_assign(struct weir_thread *t, size_t index, const struct policy *policy, const weir_key *key,
                        uint64_t now_ns)
{
    struct slot *slot = &t->slots[index];
    struct slot_account *account = &t->accounts[index];
    if (!settle_release_owner(t, index) || !insert_pin(t->process, policy, key, now_ns, account->cells)) {
        return false;
    }
    account->limit_count = (uint32_t) policy->limit_count;
    account->fleet = process_shares(t->process, policy);
    account->size = account->direct = 0;
    account->grant_epoch = account->deny_epoch = 0;
    account->used_before = load_relaxed(&slot->used);
    const uint64_t used_bits = load_relaxed(&t->shared->slots_used[index / 64]);
    store_relaxed(&t->shared->slots_used[index / 64], used_bits | UINT64_C(1) << (index % 64)); /* one writer */
    slot_set_hash(t, index, key->hash);
    return true;
}

bool slot_fits(const struct weir_thread *t, const struct slot_account *account, const struct policy *policy,
               const weir_key *key)
{
    if (account->limit_count != policy->limit_count) {
        return false;
    }
    for (size_t i = 0; i < policy->limit_count; i++) {
        /* Relaxed: pinned, so it does not change. */
        if (load_relaxed(&t->process->table.cells[account->cells[i]].hash) != cell_hash(policy, key, i)) {
            return false;
        }
    }
    return true;
}

/*
 * The least recently used slot of a set, locked. SLOT_NONE: it is being settled, or all slots of the set were used in
 * this epoch. Taking a slot from a key that soon comes again costs both keys more than going to the table.
 */
static size_t slot_lock_oldest(struct weir_thread *t, uint64_t hash, uint32_t epoch)
{
    const size_t set = slot_set(t, hash);
    size_t oldest = SLOT_NONE;
    uint32_t oldest_age = 0;
    for (size_t i = set; i < set + SLOT_WAYS; i++) {
        const uint32_t age = load_relaxed(&t->slots[i].hash) == 0 ? UINT32_MAX : epoch - t->accounts[i].touched;
        if (oldest == SLOT_NONE || age > oldest_age) {
            oldest = i;
            oldest_age = age;
        }
    }
    if (oldest_age == 0) {
        *set_busy_epoch(t, hash) = epoch;
    }
    return oldest_age != 0 && slot_account_trylock(t, &t->accounts[oldest]) ? oldest : SLOT_NONE;
}

size_t slot_give(struct weir_thread *t, const struct policy *policy, const weir_key *key, uint32_t epoch,
                 uint64_t now_ns)
{
    if (*set_busy_epoch(t, key->hash) == epoch) {
        return SLOT_NONE;
    }
    const size_t index = slot_lock_oldest(t, key->hash, epoch);
    if (index != SLOT_NONE && !slot_assign(t, index, policy, key, now_ns)) {
        slot_account_unlock(&t->accounts[index]);
        return SLOT_NONE;
    }
    if (index != SLOT_NONE) {
        t->accounts[index].touched = epoch;
    }
    return index;
}

size_t slot_take(struct weir_thread *t, const struct policy *policy, const weir_key *key, uint32_t epoch,
                 uint64_t now_ns)
{
    const size_t index = slot_find(t, key->hash);
    if (index == SLOT_NONE) {
        return epoch != EPOCH_ASLEEP && slot_is_recent(t, key->hash, epoch) ? slot_give(t, policy, key, epoch, now_ns)
                                                                            : SLOT_NONE;
    }
    struct slot_account *account = &t->accounts[index];
    if (!slot_account_trylock(t, account)) {
        return SLOT_NONE;
    }
    store_relaxed(&t->slots[index].grant, 0); /* the owner's own: no barrier */
    if (!settle_slot(t, index) ||
        (!slot_fits(t, account, policy, key) && !slot_assign(t, index, policy, key, now_ns))) {
        slot_account_unlock(account);
        return SLOT_NONE;
    }
    account->touched = epoch;
    return index;
}

/* The first grant of an epoch. `spent`: units used in the last epoch that the key came in. */
static uint64_t first_size(uint64_t spent, uint64_t last_size, uint64_t direct_units)
{
    if (direct_units == 0) {
        const bool idle = last_size != 0 && spent < IDLE_BELOW;
        return idle ? 0 : max_u64(spent, 1);
    }
    /* 1.5 times: demand exceeds its mean in about half of all epochs, and a second grant costs more than an unused
     * unit. */
    return spent < direct_units ? 0 : spent + spent / 2;
}

/* A further grant in the same epoch. */
static uint64_t next_size(uint64_t direct, uint64_t last_size, uint64_t direct_units)
{
    if (last_size != 0) {
        return last_size * 2;
    }
    if (direct_units == 0) {
        return 1;
    }
    return direct < direct_units ? 0 : direct;
}

uint64_t slot_grant_size(const struct weir_thread *t, size_t index, uint32_t epoch, uint64_t direct_cost)
{
    struct slot_account *account = &t->accounts[index];
    const uint64_t used = load_relaxed(&t->slots[index].used);
    const uint64_t direct_units = saturating_mul(direct_cost, DIRECT_BELOW);
    if (!t->limiter->grants || epoch == EPOCH_ASLEEP || slot_denied_lately(account, epoch)) {
        return 0;
    }
    if (account->grant_epoch == epoch) {
        account->size = min_u64(next_size(account->direct, account->size, direct_units), GRANT_MAX);
    } else {
        const uint64_t spent = used - account->used_before + account->direct;
        account->size = min_u64(first_size(spent, account->size, direct_units), GRANT_MAX);
        account->grant_epoch = epoch;
        account->used_before = used;
        account->direct = 0;
    }
    return account->size;
}

void slot_publish(struct weir_thread *t, size_t index, uint32_t epoch, const struct slot_terms *terms)
{
    struct slot *slot = &t->slots[index];
    struct slot_account *account = &t->accounts[index];
    const struct rule *rule = &account->rules[terms->limit_index];
    const uint64_t used = load_relaxed(&slot->used);
    const uint64_t remaining = min_u64(terms->left, terms->limit);
    account->granted_ns = terms->now_ns;
    store_relaxed(&account->granted, terms->granted);
    store_relaxed(&account->denied, slot_denied(slot, account));
    account->asked_reset_ns = terms->now_ns + terms->reset_after_ns;
    store_relaxed(&slot->meta, terms->meta | (terms->used_reset_after_ns != terms->reset_after_ns ? META_ASKED : 0));
    store_relaxed(&slot->remaining_base, remaining + used);
    slot->unit = rule_is_bucket(rule) ? rule->unit : 0;
    /* Modulo 2^64, as everything that is computed from it. */
    slot->reset = ((terms->now_ns + terms->used_reset_after_ns) << BUCKET_FRACTION_BITS) + remaining * slot->unit;
    slot->limit = terms->limit;
    /* Release: the owner's words above are visible before the grant. Settlers have the lock besides [S2]. */
    store_release(&slot->grant, grant_make(epoch, used + terms->granted));
}

enum slot_answer slot_peek(const struct weir_thread *t, uint64_t hash, uint64_t cost, weir_verdict *verdict)
{
    const uint64_t asked = units_asked(cost);
    struct slot *slot;
    if (!slot_get(t, hash, &slot)) {
        return SLOT_NO_ANSWER;
    }
    const uint64_t grant = load_relaxed(&slot->grant); /* [S1] grant before used */
    if (grant_epoch(grant) != load_relaxed(&t->line->epoch)) {
        return SLOT_NO_ANSWER;
    }
    const uint64_t word = load_relaxed(&slot->meta);
    const uint64_t used = load_relaxed(&slot->used);
    if (grant_covers(grant, used, asked)) {
        if (verdict != NULL) {
            slot_verdict_allowed(verdict, t, slot, word, load_relaxed(&slot->remaining_base) - used);
        }
        return SLOT_ALLOWED;
    }
    const struct slot_meta meta = slot_meta_unpack(word);
    /* A denial of another cost than the one asked for has another retry_after. */
    if (meta.denies_from == 0 || asked < meta.denies_from || (asked != meta.denies_from && verdict != NULL)) {
        return SLOT_NO_ANSWER;
    }
    if (verdict != NULL) {
        const uint64_t remaining = t->accounts[slot - t->slots].denied_remaining;
        slot_verdict_denied(verdict, t->line, slot, word, meta.shadow, remaining, false);
    }
    return meta.shadow ? SLOT_ALLOWED : SLOT_DENIED;
}
