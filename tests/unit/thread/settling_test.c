/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots without checks: which key gets one, how large its grant is, what is charged when it is settled, and how a
 * settling that was not ended is ended. Slots and cells are written by hand.
 *
 * Guards: src/thread/slot.c, src/thread/slot.h, src/thread/slot_word.h, src/thread/slot_account.h,
 * src/thread/slot_word.c, src/thread/settle.c, src/thread/settling.c, src/thread/settling.h, src/thread/settle_pass.c
 */
#include "algorithm/history.h"
#include "support/bare_process.h"
#include "thread/limiter.h"
#include "thread/rcu.h"
#include "thread/settle.h"
#include "thread/settle_pass.h"
#include "thread/settling.h"
#include "thread/slot.h"

#define LIMIT  100
#define NOW_NS BARE_NOW_NS
#define CELL   5
#define INDEX  7 /* of the slot */
#define EPOCH  50
#define NAME   UINT64_C(0x1234567890120001)

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

struct subject {
    struct limiter limiter;
    struct policy policy;
    const struct rule *rule;
    struct weir_thread *t;
    struct slot *slot;
    struct slot_account *account;
};

static void subject_open(struct subject *s, weir_algorithm algorithm, uint32_t processes, bool fleet)
{
    memset(s, 0, sizeof(*s));
    const struct limiter_options options = {
        .process = {.max_keys = 1000, .max_log_units = 100000, .fleet = fleet, .origin_ns = BARE_ORIGIN_NS},
        .max_threads = 2,
        .max_processes = processes};
    assert_int_equal(limiter_open(&s->limiter, &options), 0);
    bare_policy_init(&s->policy, algorithm, LIMIT);
    s->rule = &s->policy.limits[0].rule;
    s->limiter.grants = true;
    s->limiter.host_time = true;
    struct tick_line *line = &s->limiter.shared->line;
    store_relaxed(&line->epoch, EPOCH);
    store_relaxed(&line->now_ns, NOW_NS);
    s->t = thread_attach(&s->limiter, 4);
    s->slot = &s->t->slots[INDEX];
    s->account = &s->t->accounts[INDEX];
}

static void subject_close(struct subject *s)
{
    limiter_close(&s->limiter);
}

static struct cell *cell_of(const struct subject *s, size_t limit)
{
    return &s->limiter.process.table.cells[CELL + limit];
}

/* A slot of a key with so many limits, whose grant has `granted` units, of which so many passed. */
static void give_slot(struct subject *s, uint32_t limits, uint64_t granted, uint64_t passed)
{
    for (uint32_t i = 0; i < limits; i++) {
        const struct state fresh = rule_fresh(s->rule, NOW_NS);
        bare_occupy(&s->limiter.process, &s->policy, CELL + i, 70 + i, fresh);
        s->account->cells[i] = CELL + i;
        s->account->rules[i] = *s->rule;
        (void) cell_hold(cell_of(s, i), HELD_PIN + granted);
    }
    s->account->limit_count = limits;
    s->account->granted_ns = NOW_NS;
    s->account->fleet = s->limiter.process.fleet;
    store_relaxed(&s->account->granted, granted);
    store_relaxed(&s->account->accounted, 1000);
    store_relaxed(&s->slot->used, 1000 + passed);
    slot_set_hash(s->t, INDEX, NAME);
    store_relaxed(&s->slot->grant, grant_make(EPOCH, 1000 + granted));
    s->t->shared->slots_used[0] |= UINT64_C(1) << INDEX;
}

static uint64_t used_of(const struct subject *s, size_t limit)
{
    const struct state is = cell_state(dwcas_read(&cell_of(s, limit)->state));
    return LIMIT - rule_headroom(s->rule, is, NOW_NS);
}

static bool is_dirty(struct subject *s, uint32_t at)
{
    const struct bitmap *dirty = &s->limiter.process.table.dirty;
    return dirty->words != NULL && (load_relaxed(&dirty->words[at / 64]) >> at % 64 & 1) != 0;
}

static void test_what_passed_is_charged_once_and_what_is_held_is_released(void **state)
{
    (void) state;
    static const weir_algorithm algorithms[] = {WEIR_FIXED_WINDOW, WEIR_TOKEN_BUCKET, WEIR_SLIDING_LOG};
    static const struct {
        uint64_t granted, passed, denied, late;
    } rows[] = {{10, 4, 0, 0}, {10, 0, 0, 0}, {10, 10, 3, 0}, {10, 13, 0, 3}, {0, 0, 5, 0}, {0, 2, 0, 2}};
    for (size_t i = 0; i < COUNT_OF(algorithms) * COUNT_OF(rows) * 4; i++) {
        const size_t row = i / 4 % COUNT_OF(rows);
        const bool fleet = i % 2 != 0;
        const uint32_t processes = i / 2 % 2 != 0 ? 2 : 1;
        struct subject s;
        subject_open(&s, algorithms[i / 4 / COUNT_OF(rows)], processes, fleet);
        give_slot(&s, 2, rows[row].granted, rows[row].passed);
        store_relaxed(&s.account->denied, 40 + rows[row].denied);
        store_relaxed(&s.account->denied_counted, 40);
        assert_true(slot_account_trylock(s.t, s.account));
        assert_false(slot_account_trylock(s.t, s.account));
        store_relaxed(&s.slot->grant, 0);
        for (int times = 0; times < 2; times++) { /* the second time there is nothing to settle */
            assert_true(settle_slot(s.t, INDEX));
            for (size_t limit = 0; limit < 2; limit++) {
                assert_int_equal(used_of(&s, limit), rows[row].passed);
                assert_int_equal(load_relaxed(&cell_of(&s, limit)->held) & HELD_IN_USE, HELD_PIN);
                assert_false(cell_is_marked(dwcas_read(&cell_of(&s, limit)->state)));
                const bool tells = fleet && (rows[row].passed != 0 || rows[row].denied != 0);
                assert_int_equal(is_dirty(&s, CELL + (uint32_t) limit), tells);
                if (fleet) {
                    assert_int_equal(load_relaxed(&s.limiter.process.syncs.compacts[CELL + limit].sync),
                                     rows[row].denied);
                }
            }
            assert_int_equal(load_relaxed(&s.account->accounted), 1000 + rows[row].passed);
            assert_int_equal(load_relaxed(&s.account->granted), 0);
            assert_int_equal(load_relaxed(&s.account->denied_counted), 40 + rows[row].denied);
            assert_int_equal(load_relaxed(&s.account->settling.step), 0);
            assert_int_equal(load_relaxed(&s.t->shared->late_units), rows[row].late);
            /* Denials count for the first limit alone. */
            assert_int_equal(load_relaxed(&s.limiter.process.histories.places[CELL].lock), 0);
            const struct denied_entry *entries = s.limiter.process.top_denied.entries;
            assert_int_equal(load_relaxed(&entries[CELL].units), rows[row].denied);
            assert_int_equal(load_relaxed(&entries[CELL + 1].units), 0);
            assert_int_equal(load_relaxed(&s.limiter.process.top_denied.shared->any), rows[row].denied != 0);
        }
        /* Its owner takes the slot from the key: nothing pins the cells any more. */
        slot_account_unlock(s.account);
        assert_true(settle_release_slot(s.t, INDEX));
        assert_int_equal(load_relaxed(&s.slot->hash), 0);
        assert_false(slot_may_have(s.t, NAME));
        assert_int_equal(s.account->limit_count, 0);
        assert_int_equal(load_relaxed(&cell_of(&s, 1)->held) & HELD_IN_USE, 0);
        assert_int_equal(load_relaxed(&s.account->lock), 0);
        assert_true(settle_release_slot(s.t, INDEX)); /* a free one stays free */
        subject_close(&s);
    }
}

/* What is left in a free slot's account of the key before. */
static void test_denials_of_a_slot_that_has_no_key_are_nobodys(void **state)
{
    (void) state;
    struct subject s;
    subject_open(&s, WEIR_FIXED_WINDOW, 1, true);
    give_slot(&s, 1, 0, 0);
    s.account->limit_count = 0;
    store_relaxed(&s.account->denied, 3);
    assert_true(settle_slot(s.t, INDEX));
    assert_int_equal(load_relaxed(&s.account->denied_counted), 3);
    assert_int_equal(load_relaxed(&s.limiter.process.top_denied.entries[CELL].units), 0);
    assert_int_equal(load_relaxed(&s.limiter.process.top_denied.shared->any), 0);
    assert_int_equal(load_relaxed(&s.limiter.process.syncs.compacts[CELL].sync), 0);
    subject_close(&s);
}

static void test_a_slot_that_another_thread_settles_is_not_released(void **state)
{
    (void) state;
    struct subject s;
    subject_open(&s, WEIR_FIXED_WINDOW, 1, false);
    give_slot(&s, 1, 10, 4);
    assert_true(slot_account_trylock(s.t, s.account));
    assert_int_equal(load_relaxed(&s.account->lock), 1);
    assert_false(settle_release_slot(s.t, INDEX));
    assert_int_equal(load_relaxed(&s.slot->hash), NAME);
    assert_int_equal(used_of(&s, 0), 0);
    assert_int_equal(load_relaxed(&s.t->shared->rcu_count) % 2, 0);
    slot_account_unlock(s.account);
    assert_true(settle_release_slot(s.t, INDEX));
    assert_int_equal(used_of(&s, 0), 4);
    subject_close(&s);
}

/* Of two limits: which were charged before the settler died. */
static void test_a_settling_that_was_not_ended_goes_on_where_it_was(void **state)
{
    (void) state;
    static const struct {
        uint32_t step;
        uint64_t charged[2]; /* by the one that goes on */
    } rows[] = {{0, {6, 6}}, {1, {4, 4}}, {2, {0, 4}}, {3, {0, 4}}, {4, {0, 0}}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct subject s;
        subject_open(&s, WEIR_FIXED_WINDOW, 2, false);
        give_slot(&s, 2, 10, 6);
        s.account->settling.used = 1004; /* two more have passed since */
        store_relaxed(&s.account->settling.step, rows[i].step);
        uint64_t used = 1006;
        assert_true(settling_charge(s.t, INDEX, &used));
        assert_int_equal(used, rows[i].step != 0 ? 1004 : 1006);
        assert_int_equal(used_of(&s, 0), rows[i].charged[0]);
        assert_int_equal(used_of(&s, 1), rows[i].charged[1]);
        assert_int_equal(load_relaxed(&s.account->settling.step), 4);
        settling_end(s.account);
        assert_int_equal(load_relaxed(&s.account->settling.step), 0);
        subject_close(&s);
    }
}

static void test_a_settler_waits_for_the_mark_of_another_one_and_gives_up_for_a_repair(void **state)
{
    (void) state;
    for (int halted = 0; halted < 2; halted++) {
        struct subject s;
        subject_open(&s, WEIR_TOKEN_BUCKET, 2, false);
        give_slot(&s, 1, 10, 6);
        struct cell *cell = cell_of(&s, 0);
        store_relaxed(&cell->state.b, load_relaxed(&cell->state.b) | CELL_MARK | 9 * GENERATION_ONE);
        store_relaxed(&s.limiter.process.shared->halted_by, (uint32_t) halted);
        assert_true(slot_account_trylock(s.t, s.account));
        assert_false(settle_slot(s.t, INDEX));
        assert_int_equal(used_of(&s, 0), 0);
        assert_int_equal(load_relaxed(&s.account->granted), 10);
        assert_int_equal(load_relaxed(&s.account->accounted), 1000);
        assert_int_equal(load_relaxed(&s.account->settling.step), 1);
        assert_int_equal(load_relaxed(&s.limiter.process.shared->stalled), halted == 0);
        assert_false(settle_release_owner(s.t, INDEX));
        assert_int_equal(load_relaxed(&s.slot->hash), NAME);
        store_relaxed(&s.limiter.process.shared->halted_by, 0);
        store_relaxed(&cell->state.b, load_relaxed(&cell->state.b) & ~CELL_MARK);
        const uint64_t generation = load_relaxed(&cell->state.b) >> STATE_B_BITS;
        assert_true(settle_slot(s.t, INDEX));
        assert_int_equal(used_of(&s, 0), 6);
        assert_int_equal(load_relaxed(&cell->state.b) >> STATE_B_BITS, generation + 1);
        subject_close(&s);
    }
}

static void test_the_mark_of_a_dead_settler_says_that_its_limit_was_charged(void **state)
{
    (void) state;
    enum { OWN, ANOTHERS, NO_MARK, NO_STEP, OF_A_LOG, CASES };
    for (int which = 0; which < CASES; which++) {
        struct subject s;
        subject_open(&s, which == OF_A_LOG ? WEIR_SLIDING_LOG : WEIR_FIXED_WINDOW, 2, false);
        give_slot(&s, 2, 10, 6);
        struct cell *cell = cell_of(&s, 1);
        const struct dwcas_value before = dwcas_read(&cell->state);
        const size_t marker = which == ANOTHERS ? INDEX + 1 : INDEX;
        const struct dwcas_value marked =
            which == NO_MARK ? before : settling_mark(s.t, marker, (struct dwcas_value){before.a + 6, before.b});
        store_relaxed(&cell->state.a, marked.a);
        store_relaxed(&cell->state.b, marked.b);
        settling_begin(s.account, 1, 1006);
        assert_int_equal(load_relaxed(&s.account->settling.step), 3);
        assert_int_equal(s.account->settling.used, 1006);
        if (which == NO_STEP) {
            store_relaxed(&s.account->settling.step, 0);
        }
        settling_resolve_cell(s.t, INDEX);
        const struct dwcas_value after = dwcas_read(&cell->state);
        assert_int_equal(cell_is_marked(after), which != OWN && which != NO_MARK);
        assert_int_equal(after.a, marked.a);
        assert_int_equal(load_relaxed(&s.account->settling.step), which == OWN ? 4 : which == NO_STEP ? 0 : 3);
        if (which == OWN) {
            /* The generation of a mark has the handle's index and a bit of the slot's: the next one. */
            assert_int_equal(after.b >> STATE_B_BITS, ((marked.b & ~CELL_MARK) >> STATE_B_BITS) + 1);
        }
        subject_close(&s);
    }
    /* Two handles, and two neighbouring slots, have different marks. */
    struct subject s;
    subject_open(&s, WEIR_FIXED_WINDOW, 2, false);
    const struct weir_thread *const other = thread_attach(&s.limiter, 8);
    const struct dwcas_value value = {5, 6};
    const uint64_t mark = settling_mark(s.t, 2, value).b;
    assert_int_equal(settling_mark(s.t, 2, value).a, 5);
    assert_int_equal(mark, CELL_MARK | 6);
    assert_int_equal(settling_mark(s.t, 3, value).b, (CELL_MARK | 6) + (GENERATION_ONE << 10));
    assert_int_equal(settling_mark(other, 2, value).b, (CELL_MARK | 6) + GENERATION_ONE);
    subject_close(&s);
}

/* A log has its own lock, and the account the number of its last unit before. */
static void test_a_log_that_a_dead_settler_was_charging_gets_the_rest_of_the_units(void **state)
{
    (void) state;
    static const struct {
        uint32_t step;
        uint64_t pushed; /* of six */
        uint64_t units;
        uint32_t after;
    } rows[] = {{1, 0, 3, 1}, {1, 4, 3 + 6, 2}, {1, 6, 3 + 6, 2}, {2, 4, 3 + 4, 2}, {0, 4, 3 + 4, 0}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct subject s;
        subject_open(&s, WEIR_SLIDING_LOG, 2, false);
        give_slot(&s, 1, 10, 6);
        struct process *process = &s.limiter.process;
        store_relaxed(&s.account->settling.step, 1);
        settling_resolve_log(s.t, INDEX); /* it has no log yet */
        assert_int_equal(load_relaxed(&s.account->settling.step), 1);
        assert_true(history_store_charge(process, CELL, s.rule, NOW_NS, 3));
        struct history *history = history_store_get(process, CELL);
        s.account->settling.log_end = history->end;
        s.account->settling.used = 1006;
        store_relaxed(&s.account->settling.step, rows[i].step);
        history_push(history, NOW_NS, rows[i].pushed);
        settling_resolve_log(s.t, INDEX);
        assert_int_equal(history_units(history), rows[i].units);
        assert_int_equal(load_relaxed(&s.account->settling.step), rows[i].after);
        assert_int_equal(used_of(&s, 0), rows[i].step == 1 ? rows[i].units : 3); /* the state, where it is told */
        subject_close(&s);
    }
}

/* The step that a settler has noted when it charges a log. The linker's --wrap leads the call here. */
static struct {
    const struct slot_account *account;
    uint32_t step;
} at_charge;

bool __real_history_store_charge(struct process *process, uint32_t cell, const struct rule *rule, uint64_t now_ns,
                                 uint64_t units);
bool __wrap_history_store_charge(struct process *process, uint32_t cell, const struct rule *rule, uint64_t now_ns,
                                 uint64_t units);

bool __wrap_history_store_charge(struct process *process, uint32_t cell, const struct rule *rule, uint64_t now_ns,
                                 uint64_t units)
{
    at_charge.step = at_charge.account != NULL ? load_relaxed(&at_charge.account->settling.step) : 0;
    return __real_history_store_charge(process, cell, rule, now_ns, units);
}

/* What another process needs to end a settling; where none can be joined nothing is noted. */
static void test_a_settler_of_a_shared_weir_notes_how_far_it_has_come(void **state)
{
    (void) state;
    for (uint32_t processes = 1; processes <= 2; processes++) {
        struct subject s;
        subject_open(&s, WEIR_SLIDING_LOG, processes, false);
        assert_int_equal(settling_is_noted(&s.limiter), processes == 2);
        give_slot(&s, 1, 10, 6);
        assert_true(history_store_charge(&s.limiter.process, CELL, s.rule, NOW_NS, 3));
        uint64_t used = 1006;
        at_charge.account = s.account;
        assert_true(settling_charge(s.t, INDEX, &used));
        at_charge.account = NULL;
        assert_int_equal(at_charge.step, processes == 2 ? 1 : 0);
        assert_int_equal(used_of(&s, 0), 9);
        assert_int_equal(s.account->settling.used, 1006);
        assert_int_equal(s.account->settling.log_end, processes == 2 ? 3 : 0);
        assert_int_equal(load_relaxed(&s.account->settling.step), processes == 2 ? 2 : 0);
        assert_int_equal(load_relaxed(&s.limiter.process.histories.places[CELL].lock), 0);
        /* The limit may be less by now: the units count all the same, and no earlier than they passed. */
        s.account->granted_ns = NOW_NS + SECOND;
        s.account->rules[0].limit = 1;
        settling_end(s.account);
        used = 1086;
        assert_true(settling_charge(s.t, INDEX, &used));
        assert_int_equal(history_units(history_store_get(&s.limiter.process, CELL)), 9 + 86);
        const struct state is = cell_state(dwcas_read(&cell_of(&s, 0)->state));
        assert_int_equal(history_state_until(is), NOW_NS + 11 * SECOND);
        subject_close(&s);
    }
}

static void test_a_slot_of_the_dead_is_settled_and_free_and_one_that_the_dead_had_locked_goes_on(void **state)
{
    (void) state;
    for (int i = 0; i < 4; i++) {
        const int died = i / 2;
        const uint64_t passed = i % 2 != 0 ? 6 : 0; /* 0: the dead thread may have charged its units, and told nobody */
        struct subject s;
        subject_open(&s, WEIR_FIXED_WINDOW, 2, true);
        give_slot(&s, 2, 10, passed);
        store_relaxed(&s.account->lock, 2);
        settle_alone(s.t, INDEX, died != 0);
        assert_int_equal(used_of(&s, 0), passed);
        assert_int_equal(used_of(&s, 1), passed);
        assert_int_equal(load_relaxed(&cell_of(&s, 0)->held) & HELD_IN_USE, HELD_PIN + 10); /* for the repair */
        assert_int_equal(load_relaxed(&s.slot->grant), 0);
        assert_int_equal(load_relaxed(&s.account->granted), 0);
        assert_int_equal(load_relaxed(&s.slot->hash), died != 0 ? 0 : NAME);
        assert_int_equal(s.account->limit_count, died != 0 ? 0 : 2);
        assert_int_equal(s.account->fleet, died == 0);
        assert_int_equal(load_relaxed(&s.account->lock), 0);
        assert_true(is_dirty(&s, CELL) && is_dirty(&s, CELL + 1));
        subject_close(&s);
    }
}

static void test_who_waits_for_units_yields_naps_and_then_gives_up(void **state)
{
    (void) state;
    struct subject s;
    subject_open(&s, WEIR_FIXED_WINDOW, 1, false);
    unsigned tries = 0;
    while (settle_wait(&s.limiter, &tries)) {
        assert_int_equal(load_relaxed(&s.limiter.process.shared->stalled), tries > 64);
    }
    assert_int_equal(tries, 128);
    tries = 0;
    store_relaxed(&s.limiter.process.shared->halted_by, 1);
    assert_false(settle_wait(&s.limiter, &tries));
    assert_int_equal(tries, 0);
    subject_close(&s);
}

/* The slots of one key in two threads, with a grant, and with a denial. */
static void test_grants_and_denials_of_a_key_are_taken_back_from_the_threads_that_have_them(void **state)
{
    (void) state;
    enum { GRANT, DENIAL, LOCKED, OTHER_KEY, ASKING, TIER, CASES };
    for (int which = 0; which < CASES; which++) {
        for (int denials = 0; denials < 2; denials++) {
            struct subject s;
            subject_open(&s, WEIR_FIXED_WINDOW, 1, false);
            give_slot(&s, 1, which == DENIAL ? 0 : 10, which == DENIAL ? 0 : 6);
            struct policy_set *set = bare_set_of(&s.policy);
            struct policy asked = s.policy;
            weir_key key = {.hash = which == OTHER_KEY ? NAME + 1024 : NAME};
            if (which == TIER) {
                /* Asked for by a policy of the group with another mask. */
                asked.group_key_mask = 0xff00;
                key.hash ^= 0xff00;
            }
            store_relaxed(&s.account->lock, which == LOCKED ? 9 : 0);
            const uint64_t grant = load_relaxed(&s.slot->grant);
            if (denials != 0) {
                settle_denials(&s.limiter, set, &asked, &key);
                assert_int_equal(load_relaxed(&s.slot->grant), which == DENIAL ? 0 : grant);
                assert_int_equal(used_of(&s, 0), 0);
            } else {
                const struct weir_thread *asking = which == ASKING ? s.t : NULL;
                const bool given = settle_key(&s.limiter, asking, set, &asked, &key);
                assert_int_equal(given, which == GRANT || which == TIER);
                assert_int_equal(load_relaxed(&s.slot->grant), given ? 0 : grant);
                assert_int_equal(used_of(&s, 0), given ? 6 : 0);
                assert_int_equal(load_relaxed(&s.account->granted), given || which == DENIAL ? 0 : 10);
                assert_int_equal(load_relaxed(&s.slot->hash), NAME); /* it keeps its slot */
            }
            assert_int_equal(load_relaxed(&s.account->lock), which == LOCKED ? 9 : 0);
            free(set);
            subject_close(&s);
        }
    }
}

/* One barrier serves 64 threads. */
static void test_a_key_is_taken_back_from_all_of_many_threads_but_the_one_that_asks(void **state)
{
    (void) state;
    enum { THREADS = 130, ASKING = 64 };
    struct subject s = {.t = NULL};
    const struct limiter_options options = {
        .process = {.max_keys = 1000, .max_log_units = 1000, .origin_ns = BARE_ORIGIN_NS},
        .max_threads = THREADS,
        .max_processes = 1};
    assert_int_equal(limiter_open(&s.limiter, &options), 0);
    s.limiter.host_time = true;
    bare_policy_init(&s.policy, WEIR_FIXED_WINDOW, LIMIT);
    struct policy_set *set = bare_set_of(&s.policy);
    s.rule = &s.policy.limits[0].rule;
    bare_occupy(&s.limiter.process, &s.policy, CELL, 70, rule_fresh(s.rule, NOW_NS));
    for (uint32_t i = 0; i < THREADS; i++) {
        struct weir_thread *t = thread_attach(&s.limiter, 4);
        struct slot_account *account = &t->accounts[INDEX];
        account->limit_count = 1;
        account->cells[0] = CELL;
        account->rules[0] = *s.rule;
        account->granted_ns = NOW_NS;
        store_relaxed(&account->granted, 10);
        store_relaxed(&t->slots[INDEX].used, i % 2);
        slot_set_hash(t, INDEX, NAME);
        store_relaxed(&t->slots[INDEX].grant, grant_make(EPOCH, 10));
        (void) cell_hold(cell_of(&s, 0), 10);
    }
    const weir_key key = {.hash = NAME};
    assert_true(settle_key(&s.limiter, &s.limiter.threads[ASKING], set, &s.policy, &key));
    for (uint32_t i = 0; i < THREADS; i++) {
        const struct slot_account *account = &s.limiter.threads[i].accounts[INDEX];
        assert_int_equal(load_relaxed(&account->granted), i == ASKING ? 10 : 0);
        assert_int_equal(load_relaxed(&s.limiter.threads[i].slots[INDEX].grant) != 0, i == ASKING);
        assert_int_equal(load_relaxed(&account->lock), 0);
    }
    assert_int_equal(used_of(&s, 0), THREADS / 2);
    assert_int_equal(load_relaxed(&cell_of(&s, 0)->held) & HELD_IN_USE, 10);
    assert_false(settle_key(&s.limiter, &s.limiter.threads[ASKING], set, &s.policy, &key));
    assert_true(settle_key(&s.limiter, NULL, set, &s.policy, &key));
    assert_int_equal(load_relaxed(&cell_of(&s, 0)->held) & HELD_IN_USE, 0);
    free(set);
    subject_close(&s);
}

static void test_a_lapsed_slot_is_found_and_settled_and_a_live_or_locked_one_is_left(void **state)
{
    (void) state;
    enum { LAPSED, LATE, LIVE, LOCKED, MARKED, DENIED, LIVE_DENIED, LIVE_DENIAL, NOTHING, NEVER_USED, CASES };
    for (int which = 0; which < CASES; which++) {
        struct subject s;
        subject_open(&s, WEIR_FIXED_WINDOW, 2, false);
        const bool units = which != DENIED && which != LIVE_DENIAL && which != NOTHING;
        const bool charged = which == LAPSED || which == LATE; /* LATE: passed when the grant had been taken back */
        give_slot(&s, 1, units && which != LATE ? 10 : 0, units ? 6 : 0);
        if (which == DENIED || which == LIVE_DENIED || which == LIVE_DENIAL) {
            store_relaxed(&s.account->denied, 3);
        }
        if (which != LIVE && which != LIVE_DENIED && which != LIVE_DENIAL) {
            store_relaxed(&s.limiter.shared->line.epoch, EPOCH + 1);
        }
        store_relaxed(&s.account->lock, which == LOCKED ? 9 : 0);
        store_relaxed(&cell_of(&s, 0)->state.b,
                      load_relaxed(&cell_of(&s, 0)->state.b) | (which == MARKED ? CELL_MARK : 0));
        store_relaxed(&s.limiter.process.shared->halted_by, which == MARKED); /* who settles waits for no mark */
        if (which == NEVER_USED) {
            s.t->shared->slots_used[0] = 0;
        }
        struct settle_place place;
        const bool found = which != LIVE && which != NOTHING && which != NEVER_USED;
        assert_int_equal(settle_find_lapsed(&s.limiter, &place), found);
        if (found) {
            assert_int_equal(place.thread, 0);
            assert_int_equal(place.slot, INDEX);
        }
        assert_int_equal(settle_lapsed(&s.limiter), which == LOCKED || which == MARKED);
        assert_int_equal(used_of(&s, 0), charged ? 6 : 0);
        assert_int_equal(load_relaxed(&s.account->denied_counted), which == DENIED || which == LIVE_DENIAL ? 3 : 0);
        assert_int_equal(load_relaxed(&s.slot->grant) != 0, !charged && which != MARKED);
        assert_int_equal(load_relaxed(&s.account->lock), which == LOCKED ? 9 : 0);
        subject_close(&s);
    }
}

/* `direct`: the cost of a request that can be charged directly. Six of them an epoch are worth a grant. */
static void test_a_grant_is_sized_by_what_the_key_used_lately(void **state)
{
    (void) state;
    static const struct {
        uint32_t grant_epoch, deny_epoch; /* of the slot, in epoch 50 */
        uint64_t size, direct, spent;     /* the last size; units charged directly; units on grants */
        uint64_t cost, expected;
    } rows[] = {
        {0, 0, 0, 0, 0, 0, 1},    /* a new key */
        {49, 0, 4, 0, 10, 0, 10}, /* the first one of an epoch: what was used in the last */
        {49, 0, 4, 3, 10, 0, 13},
        {49, 0, 4, 0, 1, 0, 0}, /* it would save nothing */
        {49, 0, 4, 0, 2, 0, 2},
        {49, 0, 0, 0, 0, 0, 1},
        {50, 0, 4, 0, 0, 0, 8}, /* a further one: twice as many */
        {50, 0, 0, 9, 9, 0, 1},
        {50, 0, GRANT_MAX, 0, 0, 0, GRANT_MAX},
        {50, 0, GRANT_MAX / 2 + 1, 0, 0, 0, GRANT_MAX},
        {49, 0, 4, 0, 2 * GRANT_MAX, 0, GRANT_MAX},
        {49, 0, 4, 0, 5, 1, 0}, /* with direct charges: from six on, and one and a half times as many */
        {49, 0, 4, 2, 4, 1, 9},
        {49, 0, 4, 0, 17, 3, 0},
        {49, 0, 4, 0, 18, 3, 27},
        {49, 0, 0, 0, 7, 1, 10},
        {50, 0, 0, 5, 9, 1, 0},
        {50, 0, 0, 6, 9, 1, 6},
        {50, 0, 4, 0, 0, 1, 8},
        {49, 50, 4, 0, 10, 0, 0}, /* denied in this epoch, or the last */
        {50, 49, 4, 0, 10, 0, 0},
        {49, 48, 4, 0, 10, 0, 10},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct subject s;
        subject_open(&s, WEIR_FIXED_WINDOW, 1, false);
        s.account->grant_epoch = rows[i].grant_epoch;
        s.account->deny_epoch = rows[i].deny_epoch;
        s.account->size = rows[i].size;
        s.account->direct = rows[i].direct;
        s.account->used_before = 100;
        store_relaxed(&s.slot->used, 100 + rows[i].spent);
        if (slot_grant_size(s.t, INDEX, EPOCH, rows[i].cost) != rows[i].expected) {
            fail_msg("row %zu: %llu units", i, (unsigned long long) s.account->size);
        }
        const bool denied = rows[i].deny_epoch >= 49;
        const bool anew = !denied && rows[i].grant_epoch != EPOCH;
        assert_int_equal(s.account->size, denied ? rows[i].size : rows[i].expected);
        assert_int_equal(s.account->grant_epoch, denied ? rows[i].grant_epoch : EPOCH);
        assert_int_equal(s.account->used_before, anew ? 100 + rows[i].spent : 100);
        assert_int_equal(s.account->direct, anew ? 0 : rows[i].direct);
        /* None while all sleep, and none without a barrier. */
        assert_int_equal(slot_grant_size(s.t, INDEX, EPOCH_ASLEEP, rows[i].cost), 0);
        s.limiter.grants = false;
        assert_int_equal(slot_grant_size(s.t, INDEX, EPOCH, rows[i].cost), 0);
        subject_close(&s);
    }
}

/* Keys of one set of slots. */
static weir_key neighbour(const struct subject *s, uint64_t n)
{
    return (weir_key){.hash = (n + 1) << 40 | (s->t->slot_count / SLOT_WAYS - 1)};
}

static void test_the_slot_of_a_set_that_was_used_longest_ago_goes_to_a_key_that_comes_twice(void **state)
{
    (void) state;
    struct subject s;
    subject_open(&s, WEIR_FIXED_WINDOW, 1, false);
    struct policy_set *set = bare_set_of(&s.policy);
    reference_set(&s.limiter.process.shared->policies, set);
    const size_t first = s.t->slot_count - SLOT_WAYS;
    size_t slots[SLOT_WAYS];
    for (uint64_t n = 0; n < SLOT_WAYS; n++) {
        const weir_key key = neighbour(&s, n);
        const uint32_t epoch = 10 + (uint32_t) n;
        assert_int_equal(slot_set(s.t, key.hash), first);
        assert_int_equal(slot_find(s.t, key.hash), SLOT_NONE);
        assert_int_equal(slot_take(s.t, &s.policy, &key, epoch, NOW_NS), SLOT_NONE);       /* the first time */
        assert_int_equal(slot_take(s.t, &s.policy, &key, epoch + 100, NOW_NS), SLOT_NONE); /* in another epoch */
        assert_int_equal(slot_take(s.t, &s.policy, &key, EPOCH_ASLEEP, NOW_NS), SLOT_NONE);
        assert_int_equal(slot_take(s.t, &s.policy, &key, EPOCH_ASLEEP, NOW_NS), SLOT_NONE);
        assert_int_equal(slot_take(s.t, &s.policy, &key, epoch, NOW_NS), SLOT_NONE);
        slots[n] = slot_take(s.t, &s.policy, &key, epoch, NOW_NS);
        assert_in_range(slots[n], first, first + SLOT_WAYS - 1);
        assert_int_equal(load_relaxed(&s.t->accounts[slots[n]].lock), 1);
        assert_int_equal(s.t->accounts[slots[n]].touched, epoch);
        assert_int_equal(s.t->accounts[slots[n]].limit_count, 1);
        assert_true(slot_fits(s.t, &s.t->accounts[slots[n]], &s.policy, &key));
        assert_int_equal(load_relaxed(&s.t->shared->slots_used[slots[n] / 64]) >> slots[n] % 64 & 1, 1);
        assert_int_equal(slot_take(s.t, &s.policy, &key, epoch, NOW_NS), SLOT_NONE); /* it is locked */
        slot_account_unlock(&s.t->accounts[slots[n]]);
        assert_int_equal(slot_find(s.t, key.hash), slots[n]);
        assert_true(slot_may_have(s.t, key.hash));
    }
    assert_int_equal(load_relaxed(&s.limiter.process.table.shared->key_count), SLOT_WAYS);
    /* The second key comes again, so the first is the oldest, and then the third. */
    weir_key key = neighbour(&s, 1);
    store_relaxed(&s.t->slots[slots[1]].grant, grant_make(20, 99));
    assert_int_equal(slot_take(s.t, &s.policy, &key, 20, NOW_NS), slots[1]);
    assert_int_equal(load_relaxed(&s.t->slots[slots[1]].grant), 0);
    slot_account_unlock(&s.t->accounts[slots[1]]);
    key = neighbour(&s, 4);
    s.t->accounts[slots[0]].size = s.t->accounts[slots[0]].direct = 9;
    s.t->accounts[slots[0]].grant_epoch = s.t->accounts[slots[0]].deny_epoch = 9;
    store_relaxed(&s.t->slots[slots[0]].used, 0);
    assert_int_equal(slot_give(s.t, &s.policy, &key, 21, NOW_NS), slots[0]);
    const struct slot_account *account = &s.t->accounts[slots[0]];
    assert_int_equal(account->size + account->direct + account->grant_epoch + account->deny_epoch, 0);
    assert_int_equal(account->touched, 21);
    assert_int_equal(slot_find(s.t, neighbour(&s, 0).hash), SLOT_NONE);
    key = neighbour(&s, 5);
    assert_int_equal(slot_give(s.t, &s.policy, &key, 21, NOW_NS), slots[2]);
    key = neighbour(&s, 6);
    store_relaxed(&s.t->accounts[slots[3]].lock, 9);
    assert_int_equal(slot_give(s.t, &s.policy, &key, 21, NOW_NS), SLOT_NONE); /* it is being settled */
    assert_int_equal(*set_busy_epoch(s.t, key.hash), 0);
    store_relaxed(&s.t->accounts[slots[3]].lock, 0);
    assert_int_equal(slot_give(s.t, &s.policy, &key, 21, NOW_NS), slots[3]);
    slot_account_unlock(&s.t->accounts[slots[3]]);
    slot_account_unlock(&s.t->accounts[slots[2]]);
    /* When all were used in this epoch none is to be had, and it is not looked for again. */
    s.t->accounts[slots[1]].touched = 21;
    key = neighbour(&s, 7);
    assert_int_equal(slot_give(s.t, &s.policy, &key, 21, NOW_NS), SLOT_NONE);
    assert_int_equal(*set_busy_epoch(s.t, key.hash), 21);
    s.t->accounts[slots[1]].touched = 1;
    assert_int_equal(slot_give(s.t, &s.policy, &key, 21, NOW_NS), SLOT_NONE);
    assert_false(slot_is_wanted(s.t, key.hash, 21));
    assert_false(slot_is_wanted(s.t, key.hash, 21));
    assert_false(slot_is_wanted(s.t, key.hash, 22));
    assert_true(slot_is_wanted(s.t, key.hash, 22));
    assert_int_equal(slot_give(s.t, &s.policy, &key, 22, NOW_NS), slots[1]);
    slot_account_unlock(&s.t->accounts[slots[1]]);
    /* Another limit, or more of them, are other cells. */
    struct policy other = s.policy;
    other.limits[0].limit_hash++;
    assert_false(slot_fits(s.t, &s.t->accounts[slots[1]], &other, &key));
    other = s.policy;
    other.limit_count = 2;
    other.limits[1] = other.limits[0];
    assert_false(slot_fits(s.t, &s.t->accounts[slots[1]], &other, &key));
    other.limits[1].limit_hash++;
    assert_int_equal(slot_take(s.t, &other, &key, 23, NOW_NS), slots[1]); /* the slot goes over to them */
    assert_int_equal(s.t->accounts[slots[1]].limit_count, 2);
    assert_true(slot_fits(s.t, &s.t->accounts[slots[1]], &other, &key));
    assert_int_equal(s.t->accounts[slots[1]].touched, 23);
    free(set);
    subject_close(&s);
}

/* During a halt: a cell has the mark of another settler, or a new key's set is locked. */
static void test_a_slot_that_cannot_be_settled_or_given_to_a_key_is_unlocked(void **state)
{
    (void) state;
    enum { GIVEN, GIVEN_NOT_SETTLED, TAKEN_NOT_SETTLED, TAKEN_OF_OTHER_LIMITS, CASES };
    for (int which = 0; which < CASES; which++) {
        struct subject s;
        subject_open(&s, WEIR_FIXED_WINDOW, 2, false);
        struct process *process = &s.limiter.process;
        const weir_key key = {.hash = NAME, .data = "k", .length = 1};
        const size_t set = table_first_set(&process->table, cell_hash(&s.policy, &key, 0));
        const size_t first = slot_set(s.t, NAME);
        const size_t index = first + 1;
        const bool settled = which == GIVEN || which == TAKEN_OF_OTHER_LIMITS;
        for (size_t i = first; i < first + SLOT_WAYS; i++) {
            slot_set_hash(s.t, i, NAME + (i - first) * 1024);
            s.t->accounts[i].touched = i == index ? 7 : 8;
        }
        slot_set_hash(s.t, first, NAME + 5 * 1024);
        slot_set_hash(s.t, index, which >= TAKEN_NOT_SETTLED ? NAME : NAME + 1024);
        struct slot_account *account = &s.t->accounts[index];
        bare_occupy(process, &s.policy, CELL, 70, rule_fresh(s.rule, NOW_NS));
        (void) cell_hold(cell_of(&s, 0), HELD_PIN + 10);
        account->limit_count = 1;
        account->cells[0] = CELL;
        account->rules[0] = *s.rule;
        account->granted_ns = NOW_NS;
        store_relaxed(&account->granted, 10);
        store_relaxed(&s.t->slots[index].used, 4);
        if (!settled) {
            store_relaxed(&cell_of(&s, 0)->state.b, load_relaxed(&cell_of(&s, 0)->state.b) | CELL_MARK);
        }
        assert_true(table_trylock(&process->table, set));
        store_relaxed(&process->shared->halted_by, 1);
        *recent_key(s.t, NAME) = recent_fingerprint(NAME, 9);
        assert_int_equal(slot_take(s.t, &s.policy, &key, 9, NOW_NS), SLOT_NONE);
        assert_int_equal(load_relaxed(&account->lock), 0);
        assert_int_equal(account->touched, 7);
        assert_int_equal(load_relaxed(&account->granted), settled ? 0 : 10);
        assert_int_equal(load_relaxed(&s.t->slots[index].hash) == 0, settled);
        assert_int_equal(account->limit_count, settled ? 0 : 1);
        store_relaxed(&cell_of(&s, 0)->state.b, load_relaxed(&cell_of(&s, 0)->state.b) & ~CELL_MARK);
        assert_int_equal(used_of(&s, 0), settled ? 4 : 0);
        assert_int_equal(load_relaxed(&cell_of(&s, 0)->held) & HELD_IN_USE, settled ? 0 : HELD_PIN + 10);
        subject_close(&s);
    }
}

static void test_units_go_back_to_a_grant_of_the_present_on_which_they_passed(void **state)
{
    (void) state;
    enum { PRESENT, ALL, TOO_MANY, OLD_EPOCH, LATER, NO_GRANT, LOCKED, CASES };
    for (int which = 0; which < CASES; which++) {
        struct subject s;
        subject_open(&s, WEIR_FIXED_WINDOW, 1, false);
        give_slot(&s, 1, which == NO_GRANT ? 0 : 10, 6);
        store_relaxed(&s.limiter.shared->line.epoch, which == OLD_EPOCH ? EPOCH + 1 : EPOCH);
        store_relaxed(&s.limiter.shared->line.now_ns, which == LATER ? NOW_NS + 1 : NOW_NS);
        store_relaxed(&s.account->lock, which == LOCKED ? 9 : 0);
        const uint64_t units = which == ALL ? 6 : which == TOO_MANY ? 7 : 4;
        const bool given = which == PRESENT || which == ALL;
        assert_int_equal(slot_give_back(s.t, s.slot, units), given);
        assert_int_equal(load_relaxed(&s.slot->used), 1006 - (given ? units : 0));
        assert_int_equal(load_relaxed(&s.account->lock), which == LOCKED ? 9 : 0);
        subject_close(&s);
    }
}

/* 100 units of which 60 are left, 20 of them in the grant; nothing is used in ten seconds from now on. */
static void test_a_slot_answers_by_what_was_published(void **state)
{
    (void) state;
    static const weir_algorithm algorithms[] = {WEIR_FIXED_WINDOW, WEIR_TOKEN_BUCKET};
    for (size_t i = 0; i < COUNT_OF(algorithms); i++) {
        const bool bucket = algorithms[i] == WEIR_TOKEN_BUCKET;
        struct subject s;
        subject_open(&s, algorithms[i], 1, false);
        give_slot(&s, 1, 0, 0);
        store_relaxed(&s.account->denied, 5);
        store_relaxed(&s.limiter.shared->line.age_ns, 77);
        const struct slot_meta meta = {.policy_id = 1, .limit_index = 0, .basis = WEIR_BASIS_FLEET};
        const struct slot_terms terms = {.now_ns = NOW_NS,
                                         .granted = 20,
                                         .limit = LIMIT,
                                         .left = 60,
                                         .reset_after_ns = 10 * SECOND,
                                         .used_reset_after_ns = 10 * SECOND,
                                         .limit_index = 0,
                                         .meta = slot_meta_pack(meta)};
        slot_publish(s.t, INDEX, EPOCH, &terms);
        assert_int_equal(load_relaxed(&s.account->granted), 20);
        assert_int_equal(s.account->granted_ns, NOW_NS);
        assert_int_equal(load_relaxed(&s.account->denied), 5);
        assert_int_equal(load_relaxed(&s.slot->grant), grant_make(EPOCH, 1020));
        assert_ptr_equal(slot_covering(s.t, NAME, 20), s.slot);
        assert_null(slot_covering(s.t, NAME, 21));
        assert_null(slot_covering(s.t, NAME + 1, 1));
        weir_verdict v = {.key_index = 9};
        /* A refill of a unit takes 100 ms. */
        assert_int_equal(slot_answer(s.t, s.slot, 3, &v), SLOT_ALLOWED);
        assert_true(v.allowed);
        assert_int_equal(v.remaining, 57);
        assert_int_equal(v.limit, LIMIT);
        assert_int_equal(v.basis, WEIR_BASIS_FLEET);
        assert_int_equal(v.retry_after_ns, 0);
        assert_int_equal(v.reset_after_ns, 10 * SECOND + (bucket ? 300 * MILLISECOND : 0));
        assert_int_equal(v.decided_ns, NOW_NS);
        assert_int_equal(v.fleet_age_ns, 77);
        store_relaxed(&s.limiter.shared->line.now_ns, NOW_NS + SECOND);
        assert_int_equal(slot_peek(s.t, NAME, 17, &v), SLOT_ALLOWED);
        assert_int_equal(v.remaining, 57);
        assert_int_equal(v.reset_after_ns, 9 * SECOND + (bucket ? 300 * MILLISECOND : 0));
        store_relaxed(&s.limiter.shared->line.now_ns, NOW_NS + 20 * SECOND);
        assert_int_equal(slot_answer(s.t, s.slot, 17, &v), SLOT_ALLOWED);
        assert_int_equal(v.remaining, 40);
        assert_int_equal(v.reset_after_ns, 0);
        assert_int_equal(load_relaxed(&s.slot->used), 1020);
        assert_int_equal(load_relaxed(&s.t->tallies[1].allowed), 2);
        assert_int_equal(slot_answer(s.t, s.slot, 1, &v), SLOT_NO_ANSWER);
        assert_int_equal(slot_peek(s.t, NAME, 1, NULL), SLOT_NO_ANSWER);
        assert_int_equal(slot_peek(s.t, NAME + 1, 1, NULL), SLOT_NO_ANSWER);
        store_relaxed(&s.limiter.shared->line.epoch, EPOCH + 1);
        store_relaxed(&s.slot->used, 1000);
        assert_int_equal(slot_answer(s.t, s.slot, 1, &v), SLOT_NO_ANSWER);
        assert_int_equal(slot_peek(s.t, NAME, 1, NULL), SLOT_NO_ANSWER);
        assert_null(slot_covering(s.t, NAME, 1));
        assert_false(slot_is_live(s.t, s.slot));
        subject_close(&s);
    }
}

/* A grant that a cost of 0 has brought: the key is as unused when it was before, until a unit passes. */
static void test_a_grant_without_a_charge_says_when_the_key_was_unused(void **state)
{
    (void) state;
    struct subject s;
    subject_open(&s, WEIR_FIXED_WINDOW, 1, false);
    give_slot(&s, 1, 0, 0);
    const struct slot_terms terms = {.now_ns = NOW_NS,
                                     .granted = 20,
                                     .limit = LIMIT,
                                     .left = LIMIT,
                                     .reset_after_ns = 2 * SECOND,
                                     .used_reset_after_ns = 6 * SECOND};
    slot_publish(s.t, INDEX, EPOCH, &terms);
    weir_verdict v;
    assert_int_equal(slot_answer(s.t, s.slot, 0, &v), SLOT_ALLOWED);
    assert_int_equal(v.reset_after_ns, 2 * SECOND);
    store_relaxed(&s.limiter.shared->line.now_ns, NOW_NS + 3 * SECOND);
    assert_int_equal(slot_peek(s.t, NAME, 1, &v), SLOT_ALLOWED);
    assert_int_equal(v.reset_after_ns, 0);
    assert_int_equal(slot_answer(s.t, s.slot, 1, &v), SLOT_ALLOWED);
    assert_int_equal(v.reset_after_ns, 3 * SECOND);
    assert_int_equal(slot_answer(s.t, s.slot, 0, &v), SLOT_ALLOWED);
    assert_int_equal(v.reset_after_ns, 3 * SECOND);
    subject_close(&s);
}

static void test_a_cached_denial_answers_the_cost_it_was_of(void **state)
{
    (void) state;
    for (unsigned i = 0; i < 4; i++) {
        const bool shadow = i % 2 != 0;
        const bool plain = i / 2 != 0;
        struct subject s;
        subject_open(&s, WEIR_FIXED_WINDOW, 1, false);
        give_slot(&s, 1, 0, 0);
        s.slot->limit = LIMIT;
        s.slot->retry_ns = NOW_NS + 3 * SECOND;
        s.slot->reset_ns = NOW_NS + 4 * SECOND;
        store_relaxed(&s.slot->denied, 30);
        s.account->denied_remaining = 2;
        const struct slot_meta meta = {.policy_id = 1, .shadow = shadow, .plain_denial = plain, .denies_from = 5};
        store_relaxed(&s.slot->meta, slot_meta_pack(meta));
        assert_int_equal(slot_denies_from(s.slot), 5);
        assert_int_equal(slot_denied(s.slot, s.account), 30);
        weir_verdict v;
        assert_int_equal(slot_answer(s.t, s.slot, 4, &v), SLOT_NO_ANSWER);
        assert_int_equal(slot_answer(s.t, s.slot, 6, &v), SLOT_NO_ANSWER);
        assert_int_equal(slot_answer(s.t, s.slot, 5, &v), plain ? SLOT_DENIED : SLOT_NO_ANSWER);
        assert_int_equal(load_relaxed(&s.slot->denied), plain ? 35 : 30);
        assert_int_equal(load_relaxed(&s.t->tallies[1].denied), plain);
        if (plain) {
            assert_false(v.allowed);
            assert_int_equal(v.remaining, 0);
            assert_int_equal(v.retry_after_ns, 3 * SECOND);
            assert_int_equal(v.reset_after_ns, 4 * SECOND);
        }
        const enum slot_answer answer = shadow ? SLOT_ALLOWED : SLOT_DENIED;
        assert_int_equal(slot_peek(s.t, NAME, 4, NULL), SLOT_NO_ANSWER);
        assert_int_equal(slot_peek(s.t, NAME, 5, NULL), answer);
        assert_int_equal(slot_peek(s.t, NAME, 6, NULL), answer);
        assert_int_equal(slot_peek(s.t, NAME, 6, &v), SLOT_NO_ANSWER); /* it would have to wait for longer */
        assert_int_equal(slot_peek(s.t, NAME, 5, &v), answer);
        assert_int_equal(v.allowed, shadow);
        assert_int_equal(v.would_deny, shadow);
        assert_int_equal(v.remaining, 2);
        assert_int_equal(v.retry_after_ns, 3 * SECOND);
        assert_int_equal(v.decided_ns, NOW_NS);
        /* The clock is raised within the epoch: to another time, and to one at which the wait is over. */
        static const uint64_t later_ns[] = {1, 3 * SECOND - 1, 3 * SECOND, 9 * SECOND};
        for (size_t n = 0; n < COUNT_OF(later_ns); n++) {
            store_relaxed(&s.limiter.shared->line.now_ns, NOW_NS + later_ns[n]);
            const uint64_t passed_ns = min_u64(later_ns[n], 3 * SECOND - 1);
            assert_int_equal(slot_peek(s.t, NAME, 5, &v), answer);
            assert_int_equal(v.decided_ns, NOW_NS + passed_ns);
            assert_int_equal(v.retry_after_ns, 3 * SECOND - passed_ns);
            assert_int_equal(v.reset_after_ns, 4 * SECOND - passed_ns);
            assert_int_equal(slot_answer(s.t, s.slot, 5, &v), plain ? SLOT_DENIED : SLOT_NO_ANSWER);
            assert_int_equal(v.decided_ns + v.retry_after_ns, NOW_NS + 3 * SECOND);
        }
        s.slot->retry_ns = UINT64_MAX;
        assert_int_equal(slot_peek(s.t, NAME, 5, &v), answer);
        assert_int_equal(v.retry_after_ns, UINT64_MAX);
        assert_int_equal(v.decided_ns, NOW_NS + 9 * SECOND);
        assert_int_equal(v.reset_after_ns, 0);
        subject_close(&s);
    }
}

static void test_a_key_is_found_in_each_way_of_its_set_and_in_no_other(void **state)
{
    (void) state;
    struct subject s;
    subject_open(&s, WEIR_FIXED_WINDOW, 1, false);
    for (size_t index = 0; index < s.t->slot_count; index++) {
        /* Hashes of a set differ in all of their fingerprints. */
        const uint64_t hash = (index % SLOT_WAYS + 1) * UINT64_C(0x1000100010001000) | index / SLOT_WAYS;
        assert_int_equal(slot_set(s.t, hash), index - index % SLOT_WAYS);
        assert_false(slot_may_have(s.t, hash));
        slot_set_hash(s.t, index, hash);
        assert_true(slot_may_have(s.t, hash));
        struct slot *slot = NULL;
        assert_true(slot_get(s.t, hash, &slot));
        assert_ptr_equal(slot, &s.t->slots[index]);
        assert_int_equal(slot_find(s.t, hash), index);
        assert_int_equal(slot_find(s.t, hash ^ UINT64_C(1) << 50), SLOT_NONE);
    }
    for (size_t index = 0; index < s.t->slot_count; index++) {
        const uint64_t hash = load_relaxed(&s.t->slots[index].hash);
        assert_true(slot_may_have(s.t, hash)); /* its neighbours have left it its fingerprint */
        slot_set_hash(s.t, index, 0);
        assert_false(slot_may_have(s.t, hash));
        assert_int_equal(slot_find(s.t, hash), SLOT_NONE);
    }
    subject_close(&s);
}

/* Of keys without a slot that have one place in a thread's memory, the last one is remembered for the epoch. */
static void test_a_key_is_taken_for_another_one_only_where_32_bits_of_both_are_alike(void **state)
{
    (void) state;
    struct subject s;
    subject_open(&s, WEIR_FIXED_WINDOW, 1, false);
    for (unsigned bit = 8; bit < 40; bit++) {
        const uint64_t other = NAME ^ UINT64_C(1) << bit;
        assert_ptr_equal(recent_key(s.t, other), recent_key(s.t, NAME));
        assert_false(slot_is_recent(s.t, NAME, EPOCH + bit));
        assert_true(slot_is_recent(s.t, NAME, EPOCH + bit));
        assert_false(slot_is_recent(s.t, other, EPOCH + bit));
        assert_true(slot_is_recent(s.t, other, EPOCH + bit));
        assert_false(slot_is_recent(s.t, NAME, EPOCH + bit));
    }
    for (unsigned bit = 40; bit < 51; bit++) {
        const uint64_t other = NAME ^ UINT64_C(1) << bit;
        assert_ptr_not_equal(recent_key(s.t, other), recent_key(s.t, NAME));
        assert_in_range(recent_key(s.t, other) - s.t->recent_keys, 0, RECENT_COUNT - 1);
    }
    subject_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_passed_is_charged_once_and_what_is_held_is_released),
        cmocka_unit_test(test_denials_of_a_slot_that_has_no_key_are_nobodys),
        cmocka_unit_test(test_a_slot_that_another_thread_settles_is_not_released),
        cmocka_unit_test(test_a_settling_that_was_not_ended_goes_on_where_it_was),
        cmocka_unit_test(test_a_settler_waits_for_the_mark_of_another_one_and_gives_up_for_a_repair),
        cmocka_unit_test(test_the_mark_of_a_dead_settler_says_that_its_limit_was_charged),
        cmocka_unit_test(test_a_log_that_a_dead_settler_was_charging_gets_the_rest_of_the_units),
        cmocka_unit_test(test_a_settler_of_a_shared_weir_notes_how_far_it_has_come),
        cmocka_unit_test(test_a_slot_of_the_dead_is_settled_and_free_and_one_that_the_dead_had_locked_goes_on),
        cmocka_unit_test(test_who_waits_for_units_yields_naps_and_then_gives_up),
        cmocka_unit_test(test_grants_and_denials_of_a_key_are_taken_back_from_the_threads_that_have_them),
        cmocka_unit_test(test_a_key_is_taken_back_from_all_of_many_threads_but_the_one_that_asks),
        cmocka_unit_test(test_a_lapsed_slot_is_found_and_settled_and_a_live_or_locked_one_is_left),
        cmocka_unit_test(test_a_grant_is_sized_by_what_the_key_used_lately),
        cmocka_unit_test(test_the_slot_of_a_set_that_was_used_longest_ago_goes_to_a_key_that_comes_twice),
        cmocka_unit_test(test_a_slot_that_cannot_be_settled_or_given_to_a_key_is_unlocked),
        cmocka_unit_test(test_units_go_back_to_a_grant_of_the_present_on_which_they_passed),
        cmocka_unit_test(test_a_slot_answers_by_what_was_published),
        cmocka_unit_test(test_a_grant_without_a_charge_says_when_the_key_was_unused),
        cmocka_unit_test(test_a_cached_denial_answers_the_cost_it_was_of),
        cmocka_unit_test(test_a_key_is_found_in_each_way_of_its_set_and_in_no_other),
        cmocka_unit_test(test_a_key_is_taken_for_another_one_only_where_32_bits_of_both_are_alike),
    };
    return cmocka_run_group_tests_name("unit/thread/settling", tests, NULL, NULL);
}
