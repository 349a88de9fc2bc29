/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread tier: weir_check, weir_check_all and weir_peek.
 *
 * A check that hits finds its key's slot, sees that the grant there is of the present epoch and has units left, and
 * adds its cost to `used`. It loads two shared words (the epoch, the tick's time), writes its own slot and its own
 * tally, and nothing else. A denial that was found in this epoch is answered in the same way.
 *
 * Everything else is slow: the slot is settled, the table decides, and the slot gets what was granted or denied for the
 * rest of the epoch. A key gets a slot when it comes a second time within an epoch; until then it is charged straight
 * to the table. What it is granted doubles from pass to pass within an epoch, begins the next one at what it used in
 * the last, and is nothing in the epoch after a denial.
 *
 * Invariants: see struct slot. Ordering: [S1] and [S2] in settle.c;
 *   [S4] epoch before policies: a slow pass loads the epoch (acquire), then the policy set; a change of policies
 * publishes the set, then a new epoch. So a grant made by an old set carries an old epoch, and has lapsed.
 *
 * Progress: a hit is wait-free.
 */
#include "base/numbers.h"
#include "base/rcu.h"
#include "policy/overrides.h"
#include "tier/slot.h"
#include "tier/tier.h"

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* A key that used fewer units than this in its last epoch is cold again: a grant would cost more than it saves. */
#define COLD_BELOW 2

struct weir_thread *thread_attach(struct tier *tier)
{
    for (uint32_t i = 0; i < tier->max_threads; i++) {
        struct weir_thread *t = &tier->threads[i];
        uint32_t free = 0;
        if (load_relaxed(&t->attached) == 0 && cas_acquire(&t->attached, &free, 1)) {
            (void) add_relaxed(&tier->line.thread_count, 1);
            uint32_t high = load_relaxed(&tier->thread_high);
            /* Publishes the slots' set-up to settlers. */
            while (high < i + 1 && !cas_seq_cst(&tier->thread_high, &high, i + 1)) {
            }
            /* A thread's first read section registers it with liburcu, which allocates: here, and not in a check. */
            rcu_enter();
            rcu_leave();
            return t;
        }
    }
    return NULL;
}

/* Takes the owner's lock of a slot, however long that takes: for detaching alone. */
static void slot_lock_owner(struct slot_back *back)
{
    while (!slot_trylock(back)) {
        ck_pr_stall();
    }
}

void thread_detach(struct weir_thread *t)
{
    for (size_t i = 0; i < t->slot_count; i++) {
        if (load_relaxed(&t->slots[i].hash) != 0) {
            slot_lock_owner(&t->backs[i]);
            slot_release_owner(t, i);
            slot_unlock(&t->backs[i]);
        }
    }
    (void) add_relaxed(&t->line->thread_count, (uint32_t) -1);
    store_release(&t->attached, 0); /* pairs with thread_attach */
}

/* How old the fleet's news is at `now_ns`. */
static inline uint64_t fleet_age(const struct tick_line *line, uint64_t now_ns)
{
    const uint64_t news_ns = load_relaxed(&line->news_ns); /* a number that stands for itself */
    return news_ns == 0 ? UINT64_MAX : saturating_sub(now_ns, news_ns);
}

static void verdict_write(weir_verdict *verdict, const struct weir_thread *t, const struct policy *policy,
                          const struct decision *decision, uint64_t now_ns)
{
    const bool shadow = policy->mode == WEIR_SHADOW && !decision->allowed;
    *verdict = (weir_verdict){
        .allowed = decision->allowed || shadow,
        .would_deny = shadow,
        .limit_index = decision->limit_index,
        .basis = (weir_basis) load_relaxed(&policy->basis),
        .limit = decision->limit,
        .remaining = decision->remaining,
        .retry_after_ns = decision->allowed ? 0 : decision->retry_after_ns,
        .reset_after_ns = decision->reset_after_ns,
        .fleet_age_ns = fleet_age(t->line, now_ns),
        .key_index = decision->key_index,
    };
}

/* A second coming within an epoch; else remembered as the first. */
static bool seen_before(struct weir_thread *t, uint64_t hash, uint32_t epoch)
{
    uint32_t *seen = &t->seen[(hash >> 40) % SEEN_COUNT];
    const uint32_t print = (uint32_t) (hash >> 8) ^ epoch * UINT32_C(0x9e3779b1);
    if (*seen == print) {
        return true;
    }
    *seen = print;
    return false;
}

/* Gives a key a locked, empty slot in place of `index`'s present key. False: it has none, and the slot is free. */
static bool slot_assign(struct weir_thread *t, size_t index, const struct policy *policy, const weir_key *key,
                        uint64_t now_ns)
{
    struct slot *slot = &t->slots[index];
    struct slot_back *back = &t->backs[index];
    slot_release_owner(t, index);
    if (!process_pin(t->tier, policy, key, now_ns, back->cells)) {
        return false;
    }
    back->limit_count = (uint32_t) policy->limit_count;
    back->fleet = t->tier->fleet && policy->scope == WEIR_SCOPE_FLEET;
    back->size = 0;
    back->grant_epoch = back->deny_epoch = 0;
    back->used_before = load_relaxed(&slot->used);
    slot->policy = (uint16_t) policy->id;
    const uint64_t used_bits = load_relaxed(&t->slots_used[index / 64]);
    store_relaxed(&t->slots_used[index / 64], used_bits | UINT64_C(1) << (index % 64)); /* one writer */
    store_release(&slot->hash, key->hash);
    return true;
}

/* Whether a slot's cells are still those of the policy's limits. */
static bool slot_fits(const struct weir_thread *t, const struct slot_back *back, const struct policy *policy,
                      const weir_key *key)
{
    if (back->limit_count != policy->limit_count) {
        return false;
    }
    for (size_t i = 0; i < policy->limit_count; i++) {
        /* Relaxed: pinned, so it does not change. */
        if (load_relaxed(&t->tier->table.cells[back->cells[i]].hash) != cell_hash(policy, key, i)) {
            return false;
        }
    }
    return true;
}

/* The slot of a set that was not used for longest and is not being settled, locked; SLOT_NONE: all are. */
static size_t slot_lock_oldest(struct weir_thread *t, uint64_t hash, uint32_t epoch)
{
    const size_t set = slot_set(t, hash);
    size_t oldest = SLOT_NONE;
    uint32_t oldest_age = 0;
    for (size_t i = set; i < set + SLOT_WAYS; i++) {
        const uint32_t age = load_relaxed(&t->slots[i].hash) == 0 ? UINT32_MAX : epoch - t->backs[i].touched;
        if (oldest == SLOT_NONE || age > oldest_age) {
            oldest = i;
            oldest_age = age;
        }
    }
    return slot_trylock(&t->backs[oldest]) ? oldest : SLOT_NONE;
}

size_t slot_take(struct weir_thread *t, const struct policy *policy, const weir_key *key, uint32_t epoch,
                 uint64_t now_ns)
{
    size_t index = slot_find(t, key->hash);
    if (index != SLOT_NONE) {
        struct slot_back *back = &t->backs[index];
        if (!slot_trylock(back)) {
            return SLOT_NONE;
        }
        store_relaxed(&t->slots[index].grant, 0); /* the owner's own: no barrier */
        slot_settle(t, index);
        if (!slot_fits(t, back, policy, key) && !slot_assign(t, index, policy, key, now_ns)) {
            slot_unlock(back);
            return SLOT_NONE;
        }
    } else {
        if (epoch == EPOCH_ASLEEP || !seen_before(t, key->hash, epoch)) {
            return SLOT_NONE;
        }
        index = slot_lock_oldest(t, key->hash, epoch);
        if (index == SLOT_NONE) {
            return SLOT_NONE;
        }
        if (!slot_assign(t, index, policy, key, now_ns)) {
            slot_unlock(&t->backs[index]);
            return SLOT_NONE;
        }
    }
    t->backs[index].touched = epoch;
    return index;
}

/* Units worth granting to a slot beside this request. */
static uint64_t grant_size(const struct weir_thread *t, size_t index, uint32_t epoch)
{
    struct slot_back *back = &t->backs[index];
    const uint64_t used = load_relaxed(&t->slots[index].used);
    if (!t->tier->grants || epoch == EPOCH_ASLEEP || back->deny_epoch == epoch || back->deny_epoch + 1 == epoch) {
        return 0;
    }
    if (back->grant_epoch == epoch) {
        back->size = back->size != 0 ? min_u64(back->size * 2, GRANT_MAX) : 1;
    } else {
        const uint64_t spent = used - back->used_before;
        const bool cold = back->size != 0 && spent < COLD_BELOW;
        back->size = cold ? 0 : min_u64(max_u64(spent, 1), GRANT_MAX);
        back->grant_epoch = epoch;
        back->used_before = used;
    }
    return back->size;
}

/* What a slot answers for the rest of the epoch after the table has allowed. */
static void slot_grant(struct weir_thread *t, size_t index, uint32_t epoch, const struct claim *claim, uint64_t now_ns)
{
    struct slot *slot = &t->slots[index];
    struct slot_back *back = &t->backs[index];
    const struct policy *policy = claim->policy;
    if (claim->granted == 0) {
        return;
    }
    const uint64_t used = load_relaxed(&slot->used);
    size_t least = 0;
    for (size_t i = 0; i < policy->limit_count; i++) {
        back->rules[i] = claim->rules[i];
        least = claim->opinions[i].left < claim->opinions[least].left ? i : least;
    }
    const uint64_t limit = policy->limits[least].rule.limit;
    back->granted_ns = now_ns;
    store_relaxed(&back->granted, claim->granted);
    slot->credit = min_u64(claim->opinions[least].left + claim->granted, limit) + used;
    slot->reset_ns = now_ns + rule_reset_after(&claim->rules[least], claim->opinions[least].state, now_ns);
    slot->limit = limit;
    slot->limit_index = (uint8_t) least;
    slot->flags = (uint8_t) (load_relaxed(&policy->basis) & SLOT_BASIS_MASK);
    slot->denies_from = 0;
    /* Release: a settler that sees the grant sees the account; it has the lock besides. */
    store_release(&slot->grant, grant_make(epoch, used + claim->granted));
}

/* The same after it has denied `cost`. */
static void slot_deny(struct weir_thread *t, size_t index, uint32_t epoch, const struct policy *policy, uint64_t cost,
                      const struct decision *decision, uint64_t now_ns)
{
    struct slot *slot = &t->slots[index];
    struct slot_back *back = &t->backs[index];
    const uint64_t asked = cost != 0 ? cost : 1;
    back->deny_epoch = epoch;
    if (decision->retry_after_ns != UINT64_MAX) {
        counter_add(&slot->denied, asked);
    }
    /* By the tick nothing is lost by denying until the next one: see fine_clock. */
    const bool lasts = !policy->fine_clock || t->tier->host_time || decision->retry_after_ns >= t->tier->tick_ns;
    if (epoch == EPOCH_ASLEEP || !lasts || asked > UINT32_MAX) {
        return;
    }
    back->retry_ns = decision->retry_after_ns == UINT64_MAX ? UINT64_MAX : now_ns + decision->retry_after_ns;
    back->denied_remaining = decision->remaining;
    slot->reset_ns = now_ns + decision->reset_after_ns;
    slot->limit = decision->limit;
    slot->limit_index = decision->limit_index;
    slot->flags =
        (uint8_t) ((load_relaxed(&policy->basis) & SLOT_BASIS_MASK) | (policy->mode == WEIR_SHADOW ? SLOT_SHADOW : 0));
    slot->denies_from = (uint32_t) asked;
    store_release(&slot->grant, grant_make(epoch, load_relaxed(&slot->used))); /* no units */
}

/* A denial without a slot, for what the key tells the fleet of the demand. (What can never pass is no demand.) */
static void deny_without_slot(struct weir_thread *t, const struct policy *policy, const uint32_t *cells, uint64_t cost)
{
    if (!t->tier->fleet || policy->scope != WEIR_SCOPE_FLEET) {
        return;
    }
    for (size_t i = 0; i < policy->limit_count; i++) {
        (void) add_relaxed(&t->tier->table.notes[cells[i]].denied, cost != 0 ? cost : 1);
        table_set_dirty(&t->tier->table, cells[i]);
    }
}

bool thread_allow_unknown(struct weir_thread *t, weir_verdict *verdict)
{
    counter_add(&t->unknown_count, 1);
    if (verdict != NULL) {
        *verdict =
            (weir_verdict){.allowed = true, .limit = UINT64_MAX, .remaining = UINT64_MAX, .fleet_age_ns = UINT64_MAX};
    }
    return true;
}

void thread_tally(struct weir_thread *t, const struct policy *policy, bool allowed)
{
    struct tally *tally = &t->tallies[policy->id];
    if (allowed || policy->mode == WEIR_SHADOW) {
        counter_add(&tally->allowed, 1);
        counter_add(&tally->would_deny, allowed ? 0 : 1);
    } else {
        counter_add(&tally->denied, 1);
    }
}

const struct policy *thread_policy(const struct tier *tier, const weir_key *key)
{
    const struct policy_set *set = load_acquire(&tier->policies); /* [S4] */
    const struct policy *policy = key->policy <= WEIR_MAX_POLICIES ? set->by_id[key->policy] : NULL;
    const struct overrides *overrides = load_acquire(&set->overrides); /* pairs with their publication */
    if (policy != NULL && overrides != NULL) {
        const struct policy *own = overrides_find(overrides, key->hash, key->policy);
        policy = own != NULL ? own : policy;
    }
    return policy;
}

/* A key that is always allowed, or always denied. */
static bool answer_exception(struct weir_thread *t, const struct policy *policy, bool take, weir_verdict *verdict)
{
    const bool allowed = policy->exception == EXCEPTION_ALLOW;
    const uint64_t most = policy->limits[0].rule.limit;
    const struct decision decision = {
        .allowed = allowed, .limit = most, .remaining = allowed ? most : 0, .retry_after_ns = UINT64_MAX};
    if (take) {
        thread_tally(t, policy, allowed);
    }
    if (verdict != NULL) {
        verdict_write(verdict, t, policy, &decision, load_relaxed(&t->line->now_ns));
    }
    return allowed || policy->mode == WEIR_SHADOW;
}

/* Passes what the table has said of one claim on to its slot. */
static void slot_learn(struct weir_thread *t, size_t index, uint32_t epoch, const struct request *r,
                       const struct claim *claim)
{
    if (claim->short_of) {
        struct decision alone;
        process_denial(r, claim, &alone);
        slot_deny(t, index, epoch, claim->policy, claim->cost, &alone, r->now_ns);
    } else if (r->out->allowed) {
        slot_grant(t, index, epoch, claim, r->now_ns);
    }
}

static __attribute__((noinline)) bool check_slow(struct weir_thread *t, const weir_key *key, uint64_t cost, bool take,
                                                 weir_verdict *verdict)
{
    counter_add(&t->slow_count, 1);
    rcu_enter();
    const uint32_t epoch = load_acquire(&t->line->epoch); /* [S4] */
    const struct policy *policy = thread_policy(t->tier, key);
    if (policy == NULL || policy->exception != EXCEPTION_NONE) {
        const bool pass =
            policy == NULL ? thread_allow_unknown(t, verdict) : answer_exception(t, policy, take, verdict);
        rcu_leave();
        return pass;
    }
    struct decision decision;
    uint32_t cells[WEIR_MAX_LIMITS];
    struct claim claim = {.policy = policy, .key = key, .cost = cost, .cells = cells};
    struct request r = {.t = t, .claims = &claim, .count = 1, .now_ns = tick_now(t, policy), .out = &decision};
    const size_t index = slot_take(t, policy, key, take ? epoch : EPOCH_ASLEEP, r.now_ns);
    if (index != SLOT_NONE) {
        claim.cells = t->backs[index].cells;
        claim.pinned = true;
        claim.want = take ? grant_size(t, index, epoch) : 0;
        process_decide(&r, take);
        if (take && !decision.untracked) {
            slot_learn(t, index, epoch, &r, &claim);
        }
        slot_unlock(&t->backs[index]);
    } else {
        process_decide(&r, take);
        if (take && claim.short_of && decision.retry_after_ns != UINT64_MAX) {
            deny_without_slot(t, policy, cells, cost);
        }
    }
    if (take) {
        counter_add(&t->untracked_count, decision.untracked);
        thread_tally(t, policy, decision.allowed);
    }
    if (verdict != NULL) {
        verdict_write(verdict, t, policy, &decision, r.now_ns);
    }
    const bool pass = decision.allowed || policy->mode == WEIR_SHADOW;
    rcu_leave();
    return pass;
}

/* A hit's verdict. */
static inline void verdict_hit(weir_verdict *verdict, const struct weir_thread *t, const struct slot *slot,
                               bool allowed, uint64_t remaining, uint64_t retry_ns)
{
    const uint64_t now_ns = load_relaxed(&t->line->now_ns); /* may be one tick old */
    verdict->allowed = allowed || (slot->flags & SLOT_SHADOW) != 0;
    verdict->would_deny = !allowed && (slot->flags & SLOT_SHADOW) != 0;
    verdict->limit_index = slot->limit_index;
    verdict->basis = (weir_basis) (slot->flags & SLOT_BASIS_MASK);
    verdict->limit = slot->limit;
    verdict->remaining = remaining;
    verdict->retry_after_ns = retry_ns == UINT64_MAX ? UINT64_MAX : saturating_sub(retry_ns, now_ns);
    verdict->reset_after_ns = saturating_sub(slot->reset_ns, now_ns);
    verdict->fleet_age_ns = fleet_age(t->line, now_ns);
    verdict->key_index = 0;
}

bool weir_check(weir_thread *t, const weir_key *key, uint64_t cost, weir_verdict *verdict)
{
    const size_t index = slot_find(t, key->hash);
    if (unlikely(index == SLOT_NONE)) {
        return check_slow(t, key, cost, true, verdict);
    }
    struct slot *slot = &t->slots[index];
    /* [S1] grant before used. Relaxed: a grant is checked against the epoch alone, and taking it back needs no answer
     * from here. */
    const uint64_t grant = load_relaxed(&slot->grant);
    if (unlikely((uint32_t) (grant >> 32) != load_relaxed(&t->line->epoch))) {
        return check_slow(t, key, cost, true, verdict);
    }
    const uint64_t used = load_relaxed(&slot->used);
    const uint32_t left = (uint32_t) grant - (uint32_t) used;
    struct tally *tally = &t->tallies[slot->policy];
    if (likely(cost - 1 < left)) {
        store_release(&slot->used, used + cost); /* [S1] */
        counter_add(&tally->allowed, 1);
        if (verdict != NULL) {
            verdict_hit(verdict, t, slot, true, slot->credit - used - cost, 0);
        }
        return true;
    }
    /* A greater cost is denied as well, but has another retry_after. */
    if (slot->denies_from != 0 && (cost == slot->denies_from || (cost > slot->denies_from && verdict == NULL))) {
        const struct slot_back *back = &t->backs[index];
        const bool shadow = (slot->flags & SLOT_SHADOW) != 0;
        if (back->retry_ns != UINT64_MAX) {
            counter_add(&slot->denied, slot->denies_from);
        }
        counter_add(shadow ? &tally->allowed : &tally->denied, 1);
        counter_add(&tally->would_deny, shadow);
        if (verdict != NULL) {
            verdict_hit(verdict, t, slot, false, back->denied_remaining, back->retry_ns);
        }
        return shadow;
    }
    return check_slow(t, key, cost, true, verdict);
}

bool weir_peek(weir_thread *t, const weir_key *key, uint64_t cost, weir_verdict *verdict)
{
    return check_slow(t, key, cost, false, verdict);
}

/* The slots of the keys of a request, where every one of them has a grant that covers its cost. */
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
        const uint64_t grant = load_relaxed(&slot->grant); /* [S1] as in weir_check */
        const uint32_t left = (uint32_t) grant - (uint32_t) load_relaxed(&slot->used);
        const uint64_t cost = costs != NULL ? costs[i] : 1;
        if ((uint32_t) (grant >> 32) != epoch || cost - 1 >= left) {
            return false;
        }
        for (size_t j = 0; j < i; j++) {
            if (slots[j] == slots[i]) {
                return false; /* a key that is named twice needs room for both */
            }
        }
    }
    return count != 0;
}

/* Everything of one check_all that needs the table; no more than the most keys. */
struct all {
    struct claim claims[WEIR_MAX_KEYS_AT_ONCE];
    uint32_t cells[WEIR_MAX_KEYS_AT_ONCE][WEIR_MAX_LIMITS];
    size_t slots[WEIR_MAX_KEYS_AT_ONCE];
    uint8_t key_of[WEIR_MAX_KEYS_AT_ONCE]; /* claim to key */
    size_t count;                          /* of claims */
    bool denied, would_deny;               /* by entries of single keys */
    uint8_t denied_by;
};

/* Makes the claims: one per key that has a policy to ask. */
static void all_collect(struct weir_thread *t, struct all *all, const weir_key *keys, const uint64_t *costs,
                        size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct policy *policy = thread_policy(t->tier, &keys[i]);
        if (policy == NULL) {
            counter_add(&t->unknown_count, 1);
        } else if (policy->exception == EXCEPTION_DENY && policy->mode != WEIR_SHADOW) {
            all->denied = true;
            all->denied_by = (uint8_t) i;
        } else if (policy->exception != EXCEPTION_NONE) {
            all->would_deny = all->would_deny || policy->exception == EXCEPTION_DENY;
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

/* Gives the claims their slots: those that can be had. */
static void all_take_slots(struct weir_thread *t, struct all *all, uint32_t epoch, uint64_t now_ns)
{
    for (size_t i = 0; i < all->count; i++) {
        struct claim *claim = &all->claims[i];
        /* A slot that an earlier claim has is locked, and is not given twice. */
        all->slots[i] = slot_take(t, claim->policy, claim->key, epoch, now_ns);
        if (all->slots[i] != SLOT_NONE) {
            claim->cells = t->backs[all->slots[i]].cells;
            claim->pinned = true;
            claim->want = grant_size(t, all->slots[i], epoch);
        }
    }
}

static void all_learn(struct weir_thread *t, struct all *all, uint32_t epoch, const struct request *r)
{
    for (size_t i = 0; i < all->count; i++) {
        const struct claim *claim = &all->claims[i];
        if (all->slots[i] != SLOT_NONE) {
            /* A key that is named twice was short of both costs, and a slot would deny the one. */
            if (!r->out->untracked && !(claim->short_of && claim->before[0] != 0)) {
                slot_learn(t, all->slots[i], epoch, r, claim);
            }
            slot_unlock(&t->backs[all->slots[i]]);
        } else if (claim->short_of) {
            deny_without_slot(t, claim->policy, claim->cells, claim->cost);
        }
        thread_tally(t, claim->policy, claim->optional ? !claim->short_of : r->out->allowed);
    }
}

/* A time for a request of several policies: the clock's, where one of them wants that. */
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
static bool all_decide(struct weir_thread *t, struct all *all, weir_verdict *verdict)
{
    const uint32_t epoch = load_acquire(&t->line->epoch); /* [S4] it is older than the policies at worst */
    struct decision decision;
    struct request r = {
        .t = t, .claims = all->claims, .count = all->count, .now_ns = all_now(t, all), .out = &decision};
    all_take_slots(t, all, epoch, r.now_ns);
    process_decide(&r, true);
    all_learn(t, all, epoch, &r);
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
    all.count = 0;
    all.denied = all.would_deny = false;
    counter_add(&t->slow_count, 1);
    rcu_enter();
    all_collect(t, &all, keys, costs, count);
    bool pass = !all.denied;
    if (all.denied) {
        (void) answer_exception(t, thread_policy(t->tier, &keys[all.denied_by]), true, verdict);
        if (verdict != NULL) {
            verdict->key_index = all.denied_by;
        }
    } else if (all.count != 0) {
        pass = all_decide(t, &all, verdict);
    } else if (verdict != NULL) {
        *verdict = (weir_verdict){.allowed = true,
                                  .would_deny = all.would_deny,
                                  .limit = UINT64_MAX,
                                  .remaining = UINT64_MAX,
                                  .fleet_age_ns = UINT64_MAX};
    }
    rcu_leave();
    return pass;
}

bool weir_check_all(weir_thread *t, const weir_key *keys, const uint64_t *costs, size_t count, weir_verdict *verdict)
{
    size_t slots[WEIR_MAX_KEYS_AT_ONCE];
    if (unlikely(count > WEIR_MAX_KEYS_AT_ONCE)) {
        if (verdict != NULL) {
            *verdict = (weir_verdict){.retry_after_ns = UINT64_MAX, .fleet_age_ns = UINT64_MAX};
        }
        return false;
    }
    if (!find_granted(t, keys, costs, count, slots)) {
        return check_all_slow(t, keys, costs, count, verdict);
    }
    /* The grants are this thread's own: nobody can spend them between the look and here. One that is being taken back
     * is spent late, as by weir_check. */
    size_t least = 0;
    uint64_t least_left = UINT64_MAX;
    for (size_t i = 0; i < count; i++) {
        struct slot *slot = &t->slots[slots[i]];
        const uint64_t used = load_relaxed(&slot->used) + (costs != NULL ? costs[i] : 1);
        store_release(&slot->used, used); /* [S1] */
        counter_add(&t->tallies[slot->policy].allowed, 1);
        if (slot->credit - used < least_left) {
            least_left = slot->credit - used;
            least = i;
        }
    }
    if (verdict != NULL) {
        verdict_hit(verdict, t, &t->slots[slots[least]], true, least_left, 0);
        verdict->key_index = (uint8_t) least;
    }
    return true;
}
