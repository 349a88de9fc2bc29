/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deciding in the table.
 *
 * A request asks every limit of its policy, each of which is a cell, and passes when all have room. It is charged cell
 * by cell, each by one compare-and-swap that fails if the room is gone; then what was charged before is given back.
 *
 * A grant is charged in the same way, with the request: `cost + extra` units at once, where extra is at most
 * headroom / (4 * threads) of the tightest limit, so that what all threads can hold at once is a quarter of what is
 * left.
 *
 * The denial rule. Units that another thread was granted and has not used are no reason to deny. So a request is denied
 * only if a limit had no room for it, and that cell's `held` counted no units and was the same word (it has a version)
 * before the state was read and after: then no grant was live, given or given back in between, and all that is charged
 * has been used. Otherwise what the others hold is taken back (settle_key), and the request tries again.
 *
 * The exception: what a thread holds cannot be taken back while it stands between raising `held` and publishing its
 * grant, or while another thread settles it. That is some ten nanoseconds, or one barrier; but that thread may be
 * preempted just there. The request then yields the processor, and at last naps, so that it runs; and is denied all the
 * same after DENY_YIELDS + DENY_NAPS fruitless rounds, some 10 ms. So long a check waits only for units that are there,
 * and whose holder does not run.
 *
 * Progress: with one limit lock-free: a retry means that another thread has charged, settled or been granted. With
 * several, two requests for the last units can make each other let go; they yield the processor and try again.
 */
#include <sched.h>
#include <time.h>

#include "base/numbers.h"
#include "tier/tier.h"

#define DENY_YIELDS 64
#define DENY_NAPS   64
#define DENY_NAP_NS 100000

/* Spread of a grant: see above. */
#define GRANT_SHARE 4

bool process_locate(struct weir_thread *t, const struct policy *policy, const weir_key *key, uint64_t now_ns,
                    uint32_t cells[WEIR_MAX_LIMITS])
{
    for (size_t i = 0; i < policy->limit_count; i++) {
        cells[i] = table_find(&t->tier->table, table_hash(key->hash, policy->limits[i].salt));
        if (cells[i] == TABLE_NONE) {
            cells[i] = place_key(t->tier, policy, i, key, now_ns);
            if (cells[i] == TABLE_NONE) {
                return false;
            }
        }
    }
    return true;
}

/* What one limit says. */
struct opinion {
    uint64_t held; /* the cell's word, read before its state */
    struct state state;
    uint64_t left;
};

/* One request on its way through the table. */
struct request {
    struct weir_thread *t;
    const struct policy *policy;
    const weir_key *key;
    uint64_t now_ns;
    uint32_t *cells;
    struct decision *out;
    struct opinion opinions[WEIR_MAX_LIMITS];
};

static struct cell *cell_of(const struct request *r, size_t i)
{
    return &r->t->tier->table.cells[r->cells[i]];
}

static uint64_t hash_of(const struct request *r, size_t i)
{
    return table_hash(r->key->hash, r->policy->limits[i].salt);
}

/* Hears one limit. `mine`: units of those held there that are this request's own. False: the cell is another key's. */
static bool ask_one(struct request *r, size_t i, uint64_t mine, struct pair_value *value)
{
    const struct cell *cell = cell_of(r, i);
    struct opinion *opinion = &r->opinions[i];
    opinion->held = load_acquire(&cell->held); /* [T3] before the state, for the denial rule */
    if (!cell_read(cell, hash_of(r, i), value)) {
        return false;
    }
    opinion->state = cell_state(*value);
    const uint64_t held = load_acquire(&cell->held) & HELD_UNITS; /* [P1] after the state */
    opinion->left = saturating_sub(rule_headroom(&r->out->rules[i], opinion->state, r->now_ns), held - mine);
    return true;
}

/* Hears all limits. False: a cell was given to another key. */
static bool ask(struct request *r)
{
    for (size_t i = 0; i < r->policy->limit_count; i++) {
        struct pair_value value;
        r->out->rules[i] = policy_rule(&r->policy->limits[i]);
        if (!ask_one(r, i, 0, &value)) {
            return false;
        }
    }
    return true;
}

/* The limit with the least left; *denied: how many have less than `cost`. */
static size_t tightest(const struct request *r, uint64_t cost, size_t *denied)
{
    size_t least = 0;
    *denied = 0;
    for (size_t i = 0; i < r->policy->limit_count; i++) {
        *denied += r->opinions[i].left < cost;
        if (r->opinions[i].left < r->opinions[least].left) {
            least = i;
        }
    }
    return least;
}

/* The denial rule. */
static bool denial_is_sure(const struct request *r, uint64_t cost)
{
    for (size_t i = 0; i < r->policy->limit_count; i++) {
        const uint64_t held = r->opinions[i].held;
        /* [T3] after the state, which was read with acquire. */
        if (r->opinions[i].left < cost && (held & HELD_UNITS) == 0 && load_acquire(&cell_of(r, i)->held) == held) {
            return true;
        }
    }
    return false;
}

/* Fills in a denial: by the limit that will be the last to let this cost pass. */
static void deny(struct request *r, uint64_t cost)
{
    struct decision *out = r->out;
    out->allowed = false;
    out->retry_after_ns = 0;
    out->remaining = UINT64_MAX;
    for (size_t i = 0; i < r->policy->limit_count; i++) {
        const struct policy_limit *limit = &r->policy->limits[i];
        out->remaining = min_u64(out->remaining, r->opinions[i].left);
        if (r->opinions[i].left >= cost) {
            continue;
        }
        uint64_t retry_ns = rule_retry_after(&out->rules[i], r->opinions[i].state, r->now_ns, cost);
        if (retry_ns == UINT64_MAX && cost <= limit->rule.limit) {
            /* Only the outage ladder's numbers are too small for it: that can change with the next sync. */
            retry_ns = NS_PER_S;
        }
        if (retry_ns >= out->retry_after_ns) {
            out->retry_after_ns = retry_ns;
            out->reset_after_ns = rule_reset_after(&out->rules[i], r->opinions[i].state, r->now_ns);
            out->limit_index = (uint8_t) i;
            out->limit = limit->rule.limit;
        }
    }
    out->remaining = min_u64(out->remaining, out->limit);
}

enum charge { CHARGE_DONE, CHARGE_NO_ROOM, CHARGE_LOST };

/* Charges one cell. `mine` as in ask_one; `add`: to the generation. */
static enum charge charge_cell(struct request *r, size_t i, uint64_t cost, uint64_t mine, uint64_t wanted, uint64_t add)
{
    struct cell *cell = cell_of(r, i);
    for (;;) {
        struct pair_value value;
        if (!ask_one(r, i, mine, &value)) {
            return CHARGE_LOST;
        }
        if (r->opinions[i].left < wanted) {
            return CHARGE_NO_ROOM;
        }
        const struct state charged = rule_charge(&r->out->rules[i], r->opinions[i].state, r->now_ns, cost);
        struct pair_value next = cell_value(charged, value);
        next.b += add;
        if (pair_cas(&cell->state, &value, next)) {
            r->opinions[i].state = charged;
            r->opinions[i].left -= min_u64(cost, r->opinions[i].left);
            return CHARGE_DONE;
        }
    }
}

static void hold_all(struct request *r, uint64_t delta)
{
    for (size_t i = 0; i < r->policy->limit_count; i++) {
        (void) cell_hold(cell_of(r, i), delta);
    }
}

/* Holds, looks, and charges or lets go. The cells are pinned. */
static enum charge charge_held(struct request *r, uint64_t cost, uint64_t extra)
{
    const uint64_t all = cost + extra;
    hold_all(r, all); /* [P2] */
    for (size_t i = 0; i < r->policy->limit_count; i++) {
        /* Nothing is charged yet: what changes is the generation [P1]. */
        if (charge_cell(r, i, 0, all, all, GENERATION_ONE) != CHARGE_DONE) {
            hold_all(r, (uint64_t) 0 - all);
            return CHARGE_NO_ROOM;
        }
    }
    for (size_t i = 0; i < r->policy->limit_count; i++) {
        (void) charge_cell(r, i, cost, all, 0, 0);
        (void) cell_hold(cell_of(r, i), (uint64_t) 0 - cost); /* I4: after it was charged */
        r->opinions[i].left -= min_u64(extra, r->opinions[i].left);
    }
    return CHARGE_DONE;
}

/* Charges all cells or none. */
static enum charge charge_all(struct request *r, uint64_t cost, uint64_t extra)
{
    const bool plain = extra == 0 && r->policy->limit_count == 1;
    const enum charge result = plain ? charge_cell(r, 0, cost, 0, cost, 0) : charge_held(r, cost, extra);
    if (result == CHARGE_DONE && r->policy->scope == WEIR_SCOPE_FLEET && r->t->tier->fleet) {
        for (size_t i = 0; i < r->policy->limit_count; i++) {
            table_set_dirty(&r->t->tier->table, r->cells[i]);
        }
    }
    return result;
}

static void allow(struct request *r, uint64_t extra)
{
    struct decision *out = r->out;
    size_t denied;
    const size_t least = tightest(r, 0, &denied);
    out->allowed = true;
    out->granted = extra;
    out->limit_index = (uint8_t) least;
    out->limit = r->policy->limits[least].rule.limit;
    out->remaining = min_u64(r->opinions[least].left + extra, out->limit); /* the thread can still spend the grant */
    out->retry_after_ns = 0;
    out->reset_after_ns = rule_reset_after(&out->rules[least], r->opinions[least].state, r->now_ns);
}

static bool policy_is_plural(const struct policy *policy)
{
    return policy->limit_count > 1;
}

/* Lets another thread run. False: it was asked often enough. */
static bool wait_for_holder(unsigned *fruitless)
{
    if (++*fruitless <= DENY_YIELDS) {
        (void) sched_yield();
        return true;
    }
    const struct timespec nap = {.tv_nsec = DENY_NAP_NS};
    (void) nanosleep(&nap, NULL);
    return *fruitless < DENY_YIELDS + DENY_NAPS;
}

/* Until it is decided. False: a cell was given to another key on the way. */
static bool decide(struct request *r, uint64_t cost, uint64_t want, bool take)
{
    unsigned fruitless = 0;
    const uint64_t asked = cost != 0 ? cost : 1;
    for (;;) {
        if (!ask(r)) {
            return false;
        }
        size_t denied;
        const uint64_t left = r->opinions[tightest(r, asked, &denied)].left;
        if (denied != 0) {
            if (denial_is_sure(r, asked) || !(settle_key(r->t, r->key->hash) || wait_for_holder(&fruitless))) {
                deny(r, asked);
                return true;
            }
            want = 0;
            continue;
        }
        if (!take || cost == 0) {
            allow(r, 0);
            return true;
        }
        /* Relaxed: the count of threads only sizes the grant. */
        const uint64_t share = (left - cost) / ((uint64_t) GRANT_SHARE * load_relaxed(&r->t->line->thread_count));
        const uint64_t extra = min_u64(want, min_u64(share, GRANT_MAX));
        switch (charge_all(r, cost, extra)) {
        case CHARGE_DONE:
            allow(r, extra);
            return true;
        case CHARGE_LOST:
            return false;
        case CHARGE_NO_ROOM:
            if (want == 0 && policy_is_plural(r->policy)) {
                (void) sched_yield(); /* to whom it is that holds */
            }
            want = 0; /* others are at it: take only what is needed */
            break;
        }
    }
}

/* Pins the first `*pinned` cells; all of them, or false. */
static bool pin_all(struct request *r, size_t *pinned)
{
    for (*pinned = 0; *pinned < r->policy->limit_count; (*pinned)++) {
        if (!cell_pin(cell_of(r, *pinned), hash_of(r, *pinned))) {
            return false;
        }
    }
    return true;
}

void process_decide(struct weir_thread *t, const struct policy *policy, const weir_key *key, uint64_t cost,
                    uint64_t want, bool take, bool pinned, uint64_t now_ns, uint32_t cells[WEIR_MAX_LIMITS],
                    struct decision *out)
{
    struct request r = {.t = t, .policy = policy, .key = key, .now_ns = now_ns, .cells = cells, .out = out};
    *out = (struct decision){.allowed = false};
    if (pinned) {
        (void) decide(&r, cost, want, take);
        return;
    }
    for (;;) {
        if (!process_locate(t, policy, key, now_ns, cells)) {
            *out =
                (struct decision){.untracked = true, .limit = policy->limits[0].rule.limit, .retry_after_ns = NS_PER_S};
            return;
        }
        /* One cell is charged in one step; several must all be there until the last is charged. */
        size_t pins = 0;
        const bool ready = policy->limit_count == 1 || pin_all(&r, &pins);
        const bool done = ready && decide(&r, cost, 0, take);
        while (pins > 0) {
            cell_unpin(cell_of(&r, --pins));
        }
        if (done) {
            return;
        }
    }
}
