/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of one thread, while another thread is at the same keys: it acts between two steps of the request. The
 * linker's --wrap leads the calls from step to step here (tests/meson.build). No time passes, so that each key has what
 * its limits let pass, less what was admitted and charged, plus what was given back: to the unit, whatever comes
 * between. A request that is denied had a key without room, before or after what came between.
 *
 * Guards: src/check/decide.c, src/check/claim.c, src/check/claim.h, src/check/decide.h, src/check/reserved_charge.c,
 * src/check/reserve.c, src/check/charge.c, src/check/refund.c, src/check/subject.c, src/check/renew_grant.c,
 * src/check/all_table.c, src/check/direct_charge.c
 */
#include <inttypes.h>
#include <string.h>

#include "check/claim.h"
#include "check/direct_charge.h"
#include "check/refund.h"
#include "check/renew_grant.h"
#include "check/subject.h"
#include "limiter/weir_private.h"
#include "process/insert.h"
#include "support/two_handles.h"
#include "thread/rcu.h"
#include "thread/settle.h"
#include "thread/settle_pass.h"
#include "thread/settling.h"
#include "thread/slot.h"

#define KEYS 4

/* Steps that another thread may come before. Each calls `before_step`, and then the function itself. */
static void before_step(const char *step);

#define STEP(type, gives, function, parameters, arguments)                                                             \
    type __real_##function parameters;                                                                                 \
    type __wrap_##function parameters;                                                                                 \
    type __wrap_##function parameters                                                                                  \
    {                                                                                                                  \
        before_step(#function);                                                                                        \
        gives __real_##function arguments;                                                                             \
    }

STEP(bool, return, claim_read_limits, (struct request * r, struct claim *claim, uint64_t own), (r, claim, own))
STEP(enum charge, return, claim_charge_cell, (struct request * r, struct claim *claim, size_t limit), (r, claim, limit))
STEP(enum charge, return, claim_verify_cell,
     (struct request * r, struct claim *claim, size_t limit, uint64_t own, uint64_t wanted),
     (r, claim, limit, own, wanted))
STEP(enum charge, return, claim_commit_cell, (struct request * r, struct claim *claim, size_t limit, uint64_t own),
     (r, claim, limit, own))
STEP(bool, return, insert_pin,
     (struct process * process, const struct policy *policy, const weir_key *key, uint64_t now_ns,
      uint32_t cells[WEIR_MAX_LIMITS]),
     (process, policy, key, now_ns, cells))
STEP(bool, return, direct_check,
     (struct weir_thread * t, const struct policy_snapshot *snapshot, const weir_key *key, uint64_t cost,
      weir_verdict *verdict),
     (t, snapshot, key, cost, verdict))
STEP(bool, return, renew_grant, (const struct check *c, const struct policy_snapshot *snapshot), (c, snapshot))
STEP(void, , subject_settle,
     (struct limiter * limiter, const struct weir_thread *except, const struct policy_set *set,
      const struct policy *policy, const weir_key *key, uint32_t at),
     (limiter, except, set, policy, key, at))

/* The step in which a request takes the grants of its claims, beside their costs. */
void __real_claim_reserve(struct request *r, const struct claim *claim, uint64_t units);
void __wrap_claim_reserve(struct request *r, const struct claim *claim, uint64_t units);

/* No step of the above: a thread that settles comes here as well, and others would wait for it. */
struct state __real_rule_charge_late(const struct rule *rule, struct state state, uint64_t then_ns, uint64_t units);
struct state __wrap_rule_charge_late(const struct rule *rule, struct state state, uint64_t then_ns, uint64_t units);

/* Where the process may die, after the first of a settler's two swaps, and after the second. */
void __real_settling_note_charged(struct slot_account *account, size_t limit, struct cell *cell,
                                  struct dwcas_value before, struct dwcas_value marked);
void __wrap_settling_note_charged(struct slot_account *account, size_t limit, struct cell *cell,
                                  struct dwcas_value before, struct dwcas_value marked);

/* The test is the only thread: to wait for another one takes no time, however busy the machine is. */
int __wrap_sched_yield(void);

int __wrap_sched_yield(void)
{
    return 0;
}

static const weir_limit limits[] = {
    {.algorithm = WEIR_FIXED_WINDOW, .limit = 40, .period_ns = 24 * HOUR},
    {.algorithm = WEIR_TOKEN_BUCKET, .limit = 20, .period_ns = 24 * HOUR, .burst = 30},
    {.algorithm = WEIR_SLIDING_LOG, .limit = 25, .period_ns = 24 * HOUR},
    {.algorithm = WEIR_SLIDING_WINDOW, .limit = 35, .period_ns = 24 * HOUR},
    {.algorithm = WEIR_LEAKY_BUCKET, .limit = 30, .period_ns = 24 * HOUR, .delay = 30},
};
/* `most`: what the tightest limit lets pass. */
static const struct {
    const char *name;
    size_t first, count;
    uint64_t most;
} kinds_of[] = {{"window", 0, 1, 40}, {"bucket", 1, 1, 30}, {"log", 2, 1, 25},  {"sliding", 3, 1, 35},
                {"queue", 4, 1, 30},  {"two", 0, 2, 30},    {"three", 1, 3, 25}};

#define KINDS COUNT_OF(kinds_of)

/* A key, and the units that are used of it. */
struct used_key {
    uint64_t name;
    weir_key key;
    uint64_t most, used;
};

static struct {
    uint64_t rng;
    weir_thread *third; /* looks */
    struct used_key keys[KEYS];
    uint64_t names;
    /* The request. */
    size_t at[KEYS];
    uint64_t costs[KEYS];
    size_t count;
    /* What comes between. */
    bool acts;                    /* a request is under way */
    unsigned steps, step;         /* so far; the one before which the other thread acts */
    bool acted, lacked, refunded; /* it has; a key of the request had too little then */
    bool halts;                   /* before that step another process begins to wait until no call is at the table */
    struct cell *lost;            /* before that step a cell becomes another key's */
    unsigned losses;              /* before so many readings the key's cell becomes another key's */
    bool oversized;   /* when units were reserved last, the request had the lock of those that are too great */
    uint64_t charged; /* before that reading of a renewal the other thread takes so many units, if it can */
    /* Before this step, when it comes for the n-th time, the other thread is charged so many units of a key. */
    const char *charge_step;
    unsigned charge_nth;
    size_t charge_key;
    uint64_t charge_units;
    /* A mark in a cell, of a settler of another process. */
    struct cell *marked;
    bool dies;
    unsigned death; /* 1, 2: after this swap of a renewal, by a jump */
    jmp_buf after_death;
    unsigned tables;            /* steps in the table */
    unsigned readings;          /* of a claim, by the request */
    uint64_t granted[KEYS + 1]; /* units of grants reserved when so many claims were read; the last: so many or more */
    unsigned ends;              /* how often the request has waited for so long that the settler may have died */
} s;

/* What the request asks of a key, in all its places. */
static uint64_t asked(size_t key)
{
    uint64_t cost = 0;
    for (size_t i = 0; i < s.count; i++) {
        cost += s.at[i] == key ? s.costs[i] : 0;
    }
    return cost;
}

static bool lacks_room(void)
{
    for (size_t i = 0; i < s.count; i++) {
        const struct used_key *key = &s.keys[s.at[i]];
        const uint64_t cost = asked(s.at[i]);
        if (key->used + cost + (s.costs[i] == 0) > key->most) {
            return true;
        }
    }
    return false;
}

/* Whether the request has locked its slot of a key: another call would wait for it, and it would not go on. */
static bool is_locked(const struct used_key *key)
{
    const size_t slot = slot_find(d.t, key->key.hash);
    if (slot == SLOT_NONE) {
        return false;
    }
    const bool locked = !slot_account_trylock(d.t, &d.t->accounts[slot]);
    if (!locked) {
        slot_account_unlock(&d.t->accounts[slot]);
    }
    return locked;
}

/* One call by the other thread. */
static void act(void)
{
    const size_t at = random_below(&s.rng, KEYS);
    struct used_key *key = &s.keys[at];
    const uint64_t cost = 1 + random_below(&s.rng, draw_once_in(&s.rng, 3) ? key->most : 4);
    if (is_locked(key)) {
        return;
    }
    switch (random_below(&s.rng, 6)) {
    case 0:
    case 1:
    case 2:
        key->used += weir_check(d.u, &key->key, cost, NULL) ? cost : 0;
        break;
    case 3:
        if (key->used + cost + asked(at) <= key->most) { /* it counts whether it fits or not */
            weir_charge(d.u, &key->key, cost);
            key->used += cost;
        }
        break;
    case 4:
        if (key->used != 0) {
            const uint64_t units = 1 + random_below(&s.rng, key->used);
            weir_refund(d.u, &key->key, units);
            key->used -= units;
            s.refunded = true;
        }
        break;
    default:
        (void) weir_peek(d.u, &key->key, key->most, NULL);
        break;
    }
}

/* The cell of a key; NULL: it has none. */
static struct cell *find_cell(size_t i, size_t limit)
{
    const struct process *process = &d.w->limiter.process;
    const struct policy *policy = policy_set_by_id(process_policies(process), s.keys[i].key.policy);
    const uint32_t at = table_find(&process->table, cell_hash(policy, &s.keys[i].key, limit));
    return at != TABLE_NONE ? &process->table.cells[at] : NULL;
}

static void before_step(const char *step)
{
    if (strcmp(step, "claim_reserve") == 0) {
        s.oversized = load_relaxed(&d.w->limiter.process.shared->oversized) != 0;
    }
    if (s.losses != 0 && strcmp(step, "claim_read_limits") == 0) {
        struct cell *cell = find_cell(0, 0);
        assert_non_null(cell);
        store_relaxed(&cell->hash, load_relaxed(&cell->hash) + 1);
        store_relaxed(&d.w->limiter.process.shared->halted_by, s.dies);
        s.losses--;
    }
    s.tables += strncmp(step, "claim_", 6) == 0;
    s.readings += strcmp(step, "claim_read_limits") == 0;
    if (s.halts && ++s.steps == s.step) {
        store_relaxed(&d.w->limiter.process.shared->halted_by, 1);
    }
    if (s.charge_step != NULL && strcmp(step, s.charge_step) == 0 && --s.charge_nth == 0) {
        s.charge_step = NULL;
        weir_charge(d.u, &s.keys[s.charge_key].key, s.charge_units);
        s.keys[s.charge_key].used += s.charge_units;
    }
    if (s.lost != NULL && ++s.steps == s.step && (load_relaxed(&s.lost->held) & HELD_IN_USE) == 0) {
        store_relaxed(&s.lost->hash, load_relaxed(&s.lost->hash) + 1);
        s.lost = NULL;
    }
    if (s.acts && ++s.steps >= s.step && (!s.acted || draw_once_in(&s.rng, 4))) {
        s.acts = false; /* what the other thread calls is no step */
        act();
        s.acted = true;
        s.lacked = s.lacked || lacks_room();
        s.acts = true;
    }
}

void __wrap_claim_reserve(struct request *r, const struct claim *claim, uint64_t units)
{
    before_step("claim_reserve");
    s.granted[s.readings < KEYS ? s.readings : KEYS] += claim->granted;
    const uint64_t threads = load_relaxed(&r->t->line->thread_count);
    for (size_t i = 0; i < claim->policy->limit_count; i++) {
        /* Of no limit may a grant take more than this thread's part of a quarter of what is left. */
        assert_in_range(claim->granted, 0, (claim->readings[i].left - claim->cost) / (4 * threads));
    }
    __real_claim_reserve(r, claim, units);
}

struct state __wrap_rule_charge_late(const struct rule *rule, struct state state, uint64_t then_ns, uint64_t units)
{
    if (s.charged != 0 && ++s.steps == s.step) {
        weir_verdict v;
        (void) weir_peek(d.u, &d.key, 1, &v);
        s.charged = v.remaining < s.charged ? v.remaining : s.charged;
        assert_true(weir_check(d.u, &d.key, s.charged, NULL));
    }
    return __real_rule_charge_late(rule, state, then_ns, units);
}

void __wrap_settling_note_charged(struct slot_account *account, size_t limit, struct cell *cell,
                                  struct dwcas_value before, struct dwcas_value marked)
{
    if (s.death == 1) {
        longjmp(s.after_death, 1);
    }
    __real_settling_note_charged(account, limit, cell, before, marked);
    if (s.death == 2) {
        longjmp(s.after_death, 1);
    }
}

/* Lapses all grants, and has what passed on them charged. */
static void settle_all(void)
{
    struct limiter *limiter = &d.w->limiter;
    rcu_enter(s.third);
    tick_epoch(limiter);
    (void) settle_lapsed(limiter);
    rcu_leave(s.third);
}

static void expect_exact(const char *after)
{
    settle_all();
    for (size_t i = 0; i < KEYS; i++) {
        weir_verdict v;
        (void) weir_peek(s.third, &s.keys[i].key, 1, &v);
        if (v.remaining != s.keys[i].most - (s.keys[i].used < s.keys[i].most ? s.keys[i].used : s.keys[i].most)) {
            fail_msg("after %s, %" PRIu64 " of %" PRIu64 " are used and %" PRIu64 " are left", after, s.keys[i].used,
                     s.keys[i].most, v.remaining);
        }
    }
    const struct table *table = &d.w->limiter.process.table;
    for (uint32_t cell = 0; cell < table->cell_count; cell++) {
        assert_int_equal(load_relaxed(&table->cells[cell].held) & HELD_UNITS, 0);
    }
}

static void new_key(size_t i)
{
    const size_t kind = random_below(&s.rng, KINDS);
    s.keys[i] = (struct used_key){.name = s.names++, .most = kinds_of[kind].most};
    s.keys[i].key = weir_make_key(d.w, weir_find_policy(d.w, kinds_of[kind].name), &s.keys[i].name, sizeof(uint64_t));
}

static bool is_queue(size_t i)
{
    return s.keys[i].key.policy == weir_find_policy(d.w, "queue");
}

static void draw_request(size_t count)
{
    s.count = count;
    for (size_t i = 0; i < count; i++) {
        s.at[i] = random_below(&s.rng, KEYS);
        const uint64_t most = s.keys[s.at[i]].most;
        s.costs[i] = draw_once_in(&s.rng, 8) ? random_below(&s.rng, most + 2) : 1 + random_below(&s.rng, 5);
    }
}

static void begin_request(void)
{
    s.steps = 0;
    s.step = 1 + (unsigned) random_below(&s.rng, 12);
    s.acted = draw_once_in(&s.rng, 4); /* sometimes nobody comes */
    s.lacked = lacks_room();
    s.acts = !s.acted;
}

/* The request is over: what was admitted is used. */
static void end_request(const char *call, bool allowed, bool may_wait)
{
    weir_stats stats;
    static uint64_t stalled;
    s.acts = false;
    weir_get_stats(d.w, &stats);
    if (!allowed && !s.lacked && !may_wait && stats.stalled_denied_count == stalled) {
        fail_msg("%s: a request of %zu keys is denied that had room", call, s.count);
    }
    stalled = stats.stalled_denied_count;
    for (size_t i = 0; i < s.count && allowed; i++) {
        s.keys[s.at[i]].used += s.costs[i];
        if (s.keys[s.at[i]].used > s.keys[s.at[i]].most) {
            fail_msg("%s: %" PRIu64 " of %" PRIu64 " units were admitted", call, s.keys[s.at[i]].used,
                     s.keys[s.at[i]].most);
        }
    }
}

static void one_request(void)
{
    weir_key keys[KEYS];
    uint64_t wait_ns = 0;
    bool allowed = false;
    const uint64_t kind = random_below(&s.rng, 10);
    draw_request(kind < 4 ? 1 + random_below(&s.rng, KEYS) : 1);
    for (size_t i = 0; i < s.count; i++) {
        keys[i] = s.keys[s.at[i]].key;
    }
    struct used_key *key = &s.keys[s.at[0]];
    begin_request();
    if (kind < 4) {
        weir_verdict v;
        allowed = weir_check_all(d.t, keys, s.costs, s.count, draw_once_in(&s.rng, 2) ? &v : NULL);
        end_request("weir_check_all", allowed, false);
    } else if (kind < 7) {
        weir_verdict v;
        allowed = weir_check(d.t, keys, s.costs[0], draw_once_in(&s.rng, 2) ? &v : NULL);
        end_request("weir_check", allowed, false);
    } else if (kind < 8) {
        allowed = weir_reserve(d.t, keys, s.costs[0], 0, &wait_ns);
        assert_true(!allowed || wait_ns == 0);
        end_request("weir_reserve", allowed, is_queue(s.at[0]));
    } else if (kind < 9 && key->used != 0) {
        const uint64_t units = 1 + random_below(&s.rng, key->used);
        key->used -= units; /* so that the other thread does not give them back as well */
        weir_refund(d.t, keys, units);
        s.acts = false;
        expect_exact("weir_refund");
    } else if (key->used + s.costs[0] <= key->most) {
        s.acts = false; /* a charge beyond the limit would be none that fits */
        weir_charge(d.t, keys, s.costs[0]);
        key->used += s.costs[0];
    }
    s.acts = false;
    if (s.refunded) {
        tick_epoch(&d.w->limiter); /* a denial that was decided just before is remembered until the next tick */
        s.refunded = false;
    }
}

static void test_what_comes_between_two_steps_loses_no_unit_and_lets_none_through(void **state)
{
    (void) state;
    weir_policy policies[KINDS];
    for (size_t i = 0; i < KINDS; i++) {
        policies[i] = (weir_policy){
            .name = kinds_of[i].name, .limits = &limits[kinds_of[i].first], .limit_count = kinds_of[i].count};
    }
    s.rng = test_seed();
    for (unsigned round = 0; round < test_draws(60); round++) {
        if (round % 20 == 0) {
            open_two_handles(policies, KINDS);
            s.third = weir_attach(d.w);
        }
        for (size_t i = 0; i < KEYS; i++) {
            new_key(i);
        }
        for (int i = 0; i < 40; i++) {
            one_request();
            if (draw_once_in(&s.rng, 3)) {
                expect_exact("a request");
            } else if (draw_once_in(&s.rng, 4)) {
                tick_epoch(&d.w->limiter);
            }
        }
        expect_exact("all");
    }
}

static struct cell *cell_of_key(size_t i, size_t limit)
{
    struct cell *cell = find_cell(i, limit);
    assert_non_null(cell);
    return cell;
}

static void mark(struct cell *cell, bool marks)
{
    struct dwcas_value value = dwcas_read(&cell->state);
    const uint64_t b = marks ? value.b | CELL_MARK : value.b & ~CELL_MARK;
    assert_true(dwcas_swap(&cell->state, &value, (struct dwcas_value){value.a, b}));
}

static bool is_marked(const struct cell *cell)
{
    return cell_is_marked(dwcas_read(&cell->state));
}

/* The settler ends, or the process halts the others to repair what the dead one has left. */
static bool end_of_settler(void *arg)
{
    (void) arg;
    s.ends++;
    if (s.dies) {
        store_relaxed(&d.w->limiter.process.shared->halted_by, 1);
    } else if (is_marked(s.marked)) {
        mark(s.marked, false);
    }
    return s.dies;
}

/* A new key of each kind, of which one unit is used. */
static void open_marked(weir_mode mode)
{
    weir_policy policies[KINDS];
    for (size_t i = 0; i < KINDS; i++) {
        policies[i] = (weir_policy){.name = kinds_of[i].name,
                                    .limits = &limits[kinds_of[i].first],
                                    .limit_count = kinds_of[i].count,
                                    .mode = mode};
    }
    open_two_handles(policies, KINDS);
    s.third = weir_attach(d.w);
    d.w->limiter.process.free_locks = end_of_settler;
}

static void choose_key(size_t i, size_t kind)
{
    s.keys[i] = (struct used_key){.name = s.names++, .most = kinds_of[kind].most, .used = 1};
    s.keys[i].key = weir_make_key(d.w, weir_find_policy(d.w, kinds_of[kind].name), &s.keys[i].name, sizeof(uint64_t));
    assert_true(weir_check(d.u, &s.keys[i].key, 1, NULL));
}

/* One of the two has several limits, so that the request is decided in the table. */
#define TWO 5

static bool check_two(void)
{
    const weir_key keys[] = {s.keys[0].key, s.keys[1].key};
    return weir_check_all(d.t, keys, (const uint64_t[]){2, 3}, 2, NULL);
}

static uint64_t left_by(weir_thread *t, size_t i)
{
    weir_verdict v;
    (void) weir_peek(t, &s.keys[i].key, 1, &v);
    return v.remaining;
}

static void test_a_charge_keeps_a_settlers_mark_and_a_reservation_waits_until_it_is_gone(void **state)
{
    (void) state;
    weir_stats stats;
    open_marked(WEIR_ENFORCE);
    for (size_t kind = 0; kind < KINDS; kind++) {
        for (size_t limit = 0; limit < kinds_of[kind].count; limit++) {
            if (limits[kinds_of[kind].first + limit].algorithm == WEIR_SLIDING_LOG) {
                continue; /* has a lock, and no mark */
            }
            s.dies = false;
            s.ends = 0;
            choose_key(0, kind);
            choose_key(1, TWO);
            s.marked = cell_of_key(0, limit);
            mark(s.marked, true);
            weir_charge(d.u, &s.keys[0].key, 1);
            weir_refund(d.u, &s.keys[0].key, 1);
            if (kinds_of[kind].count == 1) {
                assert_true(weir_check(d.u, &s.keys[0].key, 1, NULL));
                s.keys[0].used++;
            }
            assert_true(s.ends == 0 && is_marked(s.marked));
            assert_true(check_two());
            assert_true(s.ends == 1 && !is_marked(s.marked));
            assert_int_equal(left_by(d.u, 0), s.keys[0].most - s.keys[0].used - 2);
            assert_int_equal(left_by(d.u, 1), s.keys[1].most - s.keys[1].used - 3);
            /* The settler has died, and the table is to be repaired: the request gives up. */
            s.dies = true;
            weir_get_stats(d.w, &stats);
            const uint64_t untracked = stats.untracked_count;
            mark(s.marked, true);
            const bool allowed = check_two();
            store_relaxed(&d.w->limiter.process.shared->halted_by, 0);
            assert_false(allowed);
            assert_true(s.ends == 2 && is_marked(s.marked));
            mark(s.marked, false);
            weir_get_stats(d.w, &stats);
            assert_int_equal(stats.untracked_count, untracked + 1);
            if (kinds_of[kind].count > 1) {
                uint64_t wait_ns = 0;
                mark(s.marked, true);
                const bool place = weir_reserve(d.t, &s.keys[0].key, 1, NEVER, &wait_ns);
                store_relaxed(&d.w->limiter.process.shared->halted_by, 0);
                assert_true(!place && wait_ns == SECOND);
                assert_true(s.ends == 3 && is_marked(s.marked));
                mark(s.marked, false);
                weir_get_stats(d.w, &stats);
                assert_int_equal(stats.untracked_count, untracked + 2);
            }
            assert_int_equal(left_by(d.u, 0), s.keys[0].most - s.keys[0].used - 2);
            assert_int_equal(load_relaxed(&s.marked->held) & HELD_UNITS, 0);
        }
    }
}

/* The settler has died, and the table is to be repaired: in shadow mode a request that gives up passes uncounted. */
static void test_a_request_in_shadow_mode_that_gives_up_passes(void **state)
{
    (void) state;
    weir_stats before;
    weir_stats after;
    weir_verdict v;
    open_marked(WEIR_SHADOW);
    choose_key(0, TWO);
    choose_key(1, TWO);
    const weir_key keys[] = {s.keys[0].key, s.keys[1].key};
    s.marked = cell_of_key(0, 0);
    s.dies = true;
    weir_get_stats(d.w, &before);
    mark(s.marked, true);
    const bool allowed = weir_check_all(d.t, keys, NULL, 2, &v);
    store_relaxed(&d.w->limiter.process.shared->halted_by, 0);
    mark(s.marked, false);
    assert_true(allowed && v.allowed && v.would_deny && v.retry_after_ns == 0);
    weir_get_stats(d.w, &after);
    assert_int_equal(after.untracked_count - before.untracked_count, 1);
    assert_int_equal(after.allowed_count - before.allowed_count, 1);
    assert_int_equal(after.would_deny_count - before.would_deny_count, 2); /* of the policy of each key */
    assert_int_equal(left_by(d.u, 0), s.keys[0].most - 1);
    assert_int_equal(left_by(d.u, 1), s.keys[1].most - 1);
}

/* Another process begins to wait until no call is at the table. A call that waits for nobody goes on to its end. */
static void test_a_request_that_waits_for_nobody_is_decided_while_the_table_is_to_be_repaired(void **state)
{
    (void) state;
    open_marked(WEIR_ENFORCE);
    for (size_t kind = 0; kind < KINDS; kind++) {
        for (s.step = 1; s.step <= 12; s.step++) {
            uint64_t wait_ns;
            choose_key(0, kind);
            choose_key(1, TWO);
            s.steps = 0;
            s.halts = true;
            const bool all = check_two();
            store_relaxed(&d.w->limiter.process.shared->halted_by, 0);
            s.steps = 0;
            const bool one = weir_check(d.t, &s.keys[0].key, 1, NULL);
            store_relaxed(&d.w->limiter.process.shared->halted_by, 0);
            s.steps = 0;
            const bool place = weir_reserve(d.t, &s.keys[0].key, 1, NEVER, &wait_ns);
            store_relaxed(&d.w->limiter.process.shared->halted_by, 0);
            s.halts = false;
            assert_true(all && one && place);
            assert_int_equal(left_by(d.u, 0), s.keys[0].most - 5);
            assert_int_equal(left_by(d.u, 1), s.keys[1].most - 4);
        }
    }
}

/*
 * Three keys have room, and the request reserves their units; then another thread is charged units of one of them. It
 * leaves what the request asks for, or a unit less. From then on the request takes no grants of any key: with less to
 * take, it is less in the way of others.
 */
static void test_a_request_that_loses_its_room_to_a_charge_gives_back_all_that_it_has_reserved(void **state)
{
    (void) state;
    static const char *const steps[] = {"claim_read_limits", "claim_reserve", "claim_verify_cell"};
    static const size_t kinds_at[] = {TWO, TWO + 1, TWO};
    enum { ASKED = COUNT_OF(kinds_at), MOST_STEPS = 8 };
    _Static_assert(ASKED + 1 == KEYS, "all later readings are counted together");
    open_marked(WEIR_ENFORCE);
    choose_key(ASKED, 0);
    uint64_t granted = 0;
    for (size_t i = 0; i < COUNT_OF(steps) * MOST_STEPS * ASKED * 4; i++) {
        const uint64_t lacks = i % 2;
        const unsigned nth = 1 + i / 4 / ASKED % MOST_STEPS;
        const size_t step = i / 4 / ASKED / MOST_STEPS;
        uint64_t wait_ns;
        weir_key keys[ASKED];
        static const uint64_t costs[ASKED] = {2, 3, 4};
        for (size_t k = 0; k < ASKED; k++) {
            choose_key(k, kinds_at[k]);
            keys[k] = s.keys[k].key;
            if (i / 2 % 2 != 0) { /* the keys have slots, and are to get grants */
                assert_true(weir_check(d.t, &keys[k], 1, NULL) && weir_check(d.t, &keys[k], 1, NULL));
                s.keys[k].used += 2;
            }
        }
        s.charge_key = i / 4 % ASKED;
        s.charge_nth = nth;
        s.charge_step = steps[step];
        const struct used_key *lost = &s.keys[s.charge_key];
        s.charge_units = lost->most - lost->used - costs[s.charge_key] + lacks;
        const bool one = s.charge_key == 1 && nth <= 4; /* a place of one key, or all of them */
        s.readings = 0;
        memset(s.granted, 0, sizeof(s.granted));
        const bool allowed =
            one ? weir_reserve(d.t, &keys[1], costs[1], 0, &wait_ns) : weir_check_all(d.t, keys, costs, ASKED, NULL);
        const bool charged = s.charge_step == NULL;
        s.charge_step = NULL;
        /* A charge comes after the request where the key's tightest limit has been verified. */
        static const unsigned verified[ASKED] = {2, 4, 7};
        const bool late = !one && step == 2 && nth > verified[s.charge_key];
        assert_int_equal(allowed, !charged || lacks == 0 || late);
        for (size_t k = 0; k < ASKED && allowed; k++) {
            s.keys[k].used += !one || k == 1 ? costs[k] : 0;
        }
        granted += s.granted[ASKED];
        assert_int_equal(s.granted[KEYS], 0);
        expect_exact(one ? "weir_reserve" : "weir_check_all");
    }
    assert_true(granted != 0);
}

/* A cell cannot hold the reservations of many such requests at once, so they come one at a time. */
static void test_a_request_for_very_many_units_of_any_key_is_alone_in_reserving_them(void **state)
{
    (void) state;
    enum { ASKED = 3 };
    static const weir_limit great[] = {
        {.algorithm = WEIR_FIXED_WINDOW, .limit = UINT64_C(1) << 36, .period_ns = 24 * HOUR},
        {.algorithm = WEIR_SLIDING_WINDOW, .limit = UINT64_C(1) << 36, .period_ns = 24 * HOUR}};
    open_limits(great, 2);
    for (size_t i = 0; i < 2 * (ASKED + 1); i++) {
        const bool oversized = i % 2 != 0;
        const size_t at = i / 2 % ASKED;
        const bool all = i / 2 < ASKED;
        weir_key keys[ASKED];
        uint64_t names[ASKED];
        uint64_t costs[ASKED] = {1, 1, 1};
        costs[at] = (all ? HOLD_MOST - GRANT_MAX : HOLD_MOST) + oversized;
        for (size_t k = 0; k < ASKED; k++) {
            names[k] = i * ASKED + k;
            keys[k] = weir_make_key(d.w, d.key.policy, &names[k], sizeof(names[k]));
        }
        s.oversized = !oversized;
        assert_true(all ? weir_check_all(d.t, keys, costs, ASKED, NULL)
                        : weir_reserve(d.t, &keys[at], costs[at], 0, NULL));
        assert_int_equal(s.oversized, oversized);
        assert_int_equal(load_relaxed(&d.w->limiter.process.shared->oversized), 0);
        for (size_t k = 0; k < ASKED; k++) {
            assert_int_equal(left(&keys[k]), great[0].limit - (all || k == at ? costs[k] : 0));
        }
    }
}

/* Two threads have grants of one key, renewed in one swap; what passed on them is counted whoever holds how much. */
static void test_a_hot_key_of_one_window_or_token_bucket_needs_no_table(void **state)
{
    (void) state;
    static const weir_algorithm plain[] = {WEIR_FIXED_WINDOW, WEIR_SLIDING_WINDOW, WEIR_TOKEN_BUCKET};
    for (size_t i = 0; i < COUNT_OF(plain); i++) {
        const weir_limit limit = {.algorithm = plain[i], .limit = 30000, .period_ns = 300 * 24 * HOUR};
        open_limits(&limit, 1);
        uint64_t used = 0;
        s.tables = 0;
        for (uint64_t n = 0; n < 1000; n++) {
            weir_thread *t = n % 3 == 0 ? d.u : d.t;
            const uint64_t cost = 1 + n % 7 / 5;
            if (n % 11 == 0) {
                weir_charge(t, &d.key, cost);
            } else if (n % 11 == 1) {
                assert_true(weir_reserve(t, &d.key, cost, 0, NULL));
            } else {
                assert_true(weir_check(t, &d.key, cost, NULL));
            }
            used += cost;
            if (n % 100 == 99) {
                tick_epoch(&d.w->limiter);
            }
        }
        assert_int_equal(s.tables, 0);
        assert_int_equal(left(&d.key), limit.limit - used);
    }
}

/* Opens a weir whose first thread has used up its grant of the key. Returns what is used. */
static uint64_t use_up_grant(const weir_limit *limit)
{
    uint64_t used = 0;
    open_limits(limit, 1);
    for (unsigned epoch = 0; epoch < 5; epoch++) {
        used += take(d.t, &d.key, 40);
        tick_epoch(&d.w->limiter);
    }
    do {
        used += take(d.t, &d.key, 1);
    } while (slot_covering(d.t, d.key.hash, 1) == NULL);
    while (slot_covering(d.t, d.key.hash, 1) != NULL) {
        used += take(d.t, &d.key, 1);
    }
    return used;
}

/*
 * A thread has used up its grant. It reads what room there is for the next one, in two steps: before either, another
 * thread takes all units but a few.
 */
static void test_a_renewed_grant_fits_into_the_room_that_another_thread_leaves(void **state)
{
    (void) state;
    static const weir_algorithm plain[] = {WEIR_FIXED_WINDOW, WEIR_SLIDING_WINDOW, WEIR_TOKEN_BUCKET};
    enum { COST = 3, ROOMS = 12 };
    for (size_t i = 0; i < COUNT_OF(plain) * 8 * ROOMS; i++) {
        const weir_limit limit = {.algorithm = plain[i / ROOMS / 8], .limit = 2000, .period_ns = 300 * 24 * HOUR};
        uint64_t used = use_up_grant(&limit);
        d.w->limiter.max_processes = 1 + i / ROOMS / 2 % 2; /* 2: the renewal is noted for another process */
        const bool bare = i / ROOMS / 4 % 2 != 0;           /* as after a denial: the next grant has no units */
        if (bare) {
            d.t->accounts[slot_find(d.t, d.key.hash)].deny_epoch = load_relaxed(&d.w->limiter.shared->line.epoch);
        }
        s.steps = 0;
        s.step = 1 + i / ROOMS % 2;
        s.charged = limit.limit - used - i % ROOMS;
        const bool allowed = weir_check(d.t, &d.key, COST, NULL);
        used += s.charged;
        const uint64_t room = limit.limit - used; /* more, where the units of the new grant were held already */
        assert_true(!bare || room == i % ROOMS);
        s.charged = 0;
        d.w->limiter.max_processes = 1;
        assert_true(s.steps >= s.step);
        assert_int_equal(allowed, room >= COST);
        assert_int_equal(load_relaxed(&d.t->accounts[slot_find(d.t, d.key.hash)].settling.step), 0);
        used += allowed ? COST : 0;
        assert_int_equal(used + take(d.t, &d.key, room + 1), limit.limit);
        assert_int_equal(left(&d.key), 0);
    }
}

/* A check that does not return. */
static void die_amid_check(unsigned swaps, uint64_t cost)
{
    s.death = swaps;
    if (setjmp(s.after_death) == 0) {
        (void) weir_check(d.t, &d.key, cost, NULL);
        fail();
    }
    s.death = 0;
}

/* The cost and what passed on the last grant are charged in one swap: what is left over is settled by a repair. */
static void test_a_renewal_whose_process_dies_amid_it_has_charged_each_unit_once(void **state)
{
    (void) state;
    enum { COST = 3 };
    static const weir_algorithm plain[] = {WEIR_FIXED_WINDOW, WEIR_SLIDING_WINDOW, WEIR_TOKEN_BUCKET};
    for (size_t i = 0; i < COUNT_OF(plain) * 2; i++) {
        const weir_limit limit = {.algorithm = plain[i / 2], .limit = 2000, .period_ns = 300 * 24 * HOUR};
        const uint64_t used = use_up_grant(&limit);
        const size_t index = slot_find(d.t, d.key.hash);
        struct slot_account *account = &d.t->accounts[index];
        struct cell *cell = &d.w->limiter.process.table.cells[account->cells[0]];
        d.w->limiter.max_processes = 2;
        const unsigned swaps = 1 + i % 2;
        die_amid_check(swaps, COST);
        assert_int_equal(load_relaxed(&account->settling.step), swaps);
        assert_int_equal(is_marked(cell), swaps == 1);
        assert_true(load_relaxed(&d.t->slots[index].used) - load_relaxed(&account->accounted) != 0);
        settling_resolve_cell(d.t, index);
        settle_alone(d.t, index, false);
        (void) cell_hold(cell, (uint64_t) 0 - (load_relaxed(&cell->held) & HELD_UNITS));
        rcu_leave(d.t);
        d.w->limiter.max_processes = 1;
        assert_int_equal(left(&d.key), limit.limit - used - COST);
    }
}

/* But for a new key, and for the first refusal, which is remembered. */
static void test_a_place_in_one_queue_is_taken_or_refused_without_the_table(void **state)
{
    (void) state;
    static const weir_limit limit = {.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .period_ns = SECOND, .burst = 5};
    uint64_t wait_ns;
    open_limits(&limit, 1);
    for (uint64_t i = 0; i < 20; i++) {
        s.tables = 0;
        assert_int_equal(weir_reserve(d.t, &d.key, 1, NEVER, &wait_ns), i < 5);
        assert_int_equal(wait_ns, (i < 5 ? i : 5) * 100 * MILLISECOND);
        assert_int_equal(s.tables != 0, i == 0 || i == 5);
        if (i == 10) {
            tick_epoch(&d.w->limiter); /* the numbers are worked out anew */
            assert_false(weir_reserve(d.t, &d.key, 1, NEVER, NULL));
        }
    }
}

/* As if the key had been evicted, and nothing been remembered of it. */
static void test_a_check_whose_cell_becomes_another_keys_is_decided_in_its_keys_new_cell(void **state)
{
    (void) state;
    unsigned lost = 0;
    open_marked(WEIR_ENFORCE);
    for (size_t kind = 0; kind < KINDS; kind++) {
        const bool single = kinds_of[kind].count == 1;
        for (unsigned i = 0; i < 12 && single; i++) {
            choose_key(0, kind);
            struct used_key *key = &s.keys[0];
            const bool full = i % 2 == 0;
            weir_charge(d.u, &key->key, full ? key->most - 1 : 0);
            key->used = full ? key->most : 1;
            tick_epoch(&d.w->limiter); /* the other thread gets no slot, which would pin the cell */
            s.steps = 0;
            s.step = 1 + i / 2;
            s.lost = cell_of_key(0, 0);
            const bool allowed = weir_check(d.t, &key->key, 2, NULL);
            key->used = s.lost == NULL ? 0 : key->used;
            lost += s.lost == NULL;
            s.lost = NULL;
            assert_int_equal(allowed, key->used + 2 <= key->most);
            assert_int_equal(left_by(s.third, 0), key->most - key->used - (allowed ? 2 : 0));
        }
    }
    assert_true(lost >= 2 * 5);
}

/* Each time the key begins anew. A call that finds no end of it gives up where the table is to be repaired. */
static void test_a_check_that_loses_its_cell_again_and_again_gives_up_for_a_repair_alone(void **state)
{
    (void) state;
    open_marked(WEIR_ENFORCE);
    for (unsigned i = 0; i < 4 * 7; i++) {
        const bool halted = i % 2 != 0;
        const unsigned losses = i / 4;
        weir_stats before;
        weir_stats after;
        weir_verdict v;
        choose_key(0, !halted && i / 2 % 2 != 0 ? 2 : 4); /* a queue; or a log, which takes memory meanwhile */
        tick_epoch(&d.w->limiter);
        weir_get_stats(d.w, &before);
        s.losses = losses;
        s.dies = halted;
        const bool allowed = weir_check(d.t, &s.keys[0].key, 2, &v);
        store_relaxed(&d.w->limiter.process.shared->halted_by, 0);
        weir_get_stats(d.w, &after);
        const bool gives_up = halted && losses >= 4;
        assert_int_equal(s.losses, gives_up ? losses - 4 : 0);
        s.losses = 0;
        assert_int_equal(allowed, !gives_up);
        assert_int_equal(after.untracked_count - before.untracked_count, gives_up);
        assert_int_equal(v.retry_after_ns, gives_up ? SECOND : 0);
        assert_int_equal(left_by(s.third, 0), s.keys[0].most - (gives_up ? 0 : losses == 0 ? 3 : 2));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_comes_between_two_steps_loses_no_unit_and_lets_none_through),
        cmocka_unit_test(test_a_charge_keeps_a_settlers_mark_and_a_reservation_waits_until_it_is_gone),
        cmocka_unit_test(test_a_request_in_shadow_mode_that_gives_up_passes),
        cmocka_unit_test(test_a_request_that_loses_its_room_to_a_charge_gives_back_all_that_it_has_reserved),
        cmocka_unit_test(test_a_request_for_very_many_units_of_any_key_is_alone_in_reserving_them),
        cmocka_unit_test(test_a_hot_key_of_one_window_or_token_bucket_needs_no_table),
        cmocka_unit_test(test_a_renewed_grant_fits_into_the_room_that_another_thread_leaves),
        cmocka_unit_test(test_a_renewal_whose_process_dies_amid_it_has_charged_each_unit_once),
        cmocka_unit_test(test_a_place_in_one_queue_is_taken_or_refused_without_the_table),
        cmocka_unit_test(test_a_check_whose_cell_becomes_another_keys_is_decided_in_its_keys_new_cell),
        cmocka_unit_test(test_a_request_that_waits_for_nobody_is_decided_while_the_table_is_to_be_repaired),
        cmocka_unit_test(test_a_check_that_loses_its_cell_again_and_again_gives_up_for_a_repair_alone),
    };
    return cmocka_run_group_tests_name("unit/check/between", tests, NULL, close_two_handles);
}
