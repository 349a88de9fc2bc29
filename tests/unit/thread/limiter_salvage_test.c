/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an opener makes of slots that nobody has any more: what passed on their grants is charged once, at whatever step
 * of a settling a process died; and damage costs no more than the slots that it is in.
 *
 * Guards: src/thread/limiter_salvage.c, src/thread/limiter.c, src/thread/joined.c
 */
#include <unistd.h>

#include "algorithm/history.h"
#include "base/pages.h"
#include "policy/validate.h"
#include "support/bare_process.h"
#include "support/draw.h"
#include "thread/limiter.h"
#include "thread/limiter_salvage.h"
#include "thread/policy_snapshot.h"
#include "thread/settling.h"
#include "thread/slot.h"

#define PROCESSES    3
#define THREADS      3
#define LIMIT        1000
#define HASH         77
#define OTHER_HASH   (UINT64_C(12345) << 40 | 78)
#define CELL         5                   /* of the pair of the hash */
#define COUNTED      (UINT64_C(1) << 50) /* units of a slot that were charged long ago */
#define GRANTED      10
#define PASSED       4
#define TALLIED      0x5a /* each byte of what was counted */
#define MONOTONIC_NS (1000 * SECOND)

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

struct subject {
    struct limiter limiter;
    struct policy policy;
    struct policy_set *set;
};

/* What a subject has; zeros: a limit by the usual window, and no fleet. */
struct terms {
    weir_algorithm algorithm;
    uint64_t period_ns;
    weir_calendar calendar;
    bool fleet;
};

static const struct rule *rule_of(const struct subject *s)
{
    return &s->policy.limits[0].rule;
}

/* The slots that hold units: of one thread the first, of the other one the last. */
static size_t slot_index(const struct weir_thread *t)
{
    return t->index == 0 ? 0 : t->slot_count - 1;
}

/* The counters of a handle lie behind its slots; they stay as they are. */
static size_t tallies_size(const struct weir_thread *t)
{
    return (size_t) ((const unsigned char *) t->recent_keys - (const unsigned char *) t->tallies);
}

static struct slot_account *account_of(struct subject *s, uint32_t thread)
{
    struct weir_thread *t = &s->limiter.threads[thread];
    return &t->accounts[slot_index(t)];
}

static _Atomic uint64_t *used_of(struct subject *s, uint32_t thread)
{
    struct weir_thread *t = &s->limiter.threads[thread];
    return &t->slots[slot_index(t)].used;
}

/* Two threads of dead processes each had ten units of a key, of which four passed. */
static void subject_open_with(struct subject *s, const struct terms *terms)
{
    struct limiter *limiter = &s->limiter;
    memset(limiter, 0, sizeof(*limiter));
    const struct limiter_options options = {
        .process = {.max_keys = 1000, .max_log_units = 100000, .origin_ns = BARE_ORIGIN_NS, .fleet = terms->fleet},
        .max_threads = THREADS,
        .max_processes = PROCESSES};
    assert_int_equal(limiter_open(limiter, &options), 0);
    limiter->host_time = true;
    bare_policy_init(&s->policy, terms->algorithm, LIMIT);
    struct rule *rule = &s->policy.limits[0].rule;
    rule->period_ns = terms->period_ns != 0 ? terms->period_ns : rule->period_ns;
    rule->calendar = terms->calendar;
    s->set = bare_set_of(&s->policy);
    struct process *process = &limiter->process;
    bare_occupy(process, &s->policy, CELL, HASH, rule_fresh(rule_of(s), BARE_NOW_NS));
    if (rule_has_history(rule_of(s))) {
        history_store_lock(process, CELL);
        assert_non_null(history_store_room(process, CELL, rule_of(s), (uint64_t) 2 * GRANTED, BARE_NOW_NS));
        history_store_unlock(process, CELL);
    }
    for (uint32_t i = 0; i < 2; i++) {
        struct weir_thread *t = &limiter->threads[i];
        struct slot *slot = &t->slots[slot_index(t)];
        struct slot_account *account = account_of(s, i);
        store_relaxed(&t->shared->owner, (uint64_t) (i + 1) << HANDLE_PROCESS_SHIFT | 8);
        account->limit_count = 1;
        account->cells[0] = CELL;
        account->rules[0] = *rule_of(s);
        account->granted_ns = BARE_NOW_NS;
        store_relaxed(&account->granted, GRANTED);
        store_relaxed(&account->lock, i + 1);
        store_relaxed(&account->accounted, COUNTED);
        account->settling.used = COUNTED;
        account->fleet = terms->fleet;
        store_relaxed(&slot->used, COUNTED + PASSED);
        store_relaxed(&slot->hash, HASH);
        store_relaxed(&slot->grant, grant_make(1, COUNTED + GRANTED));
        memset((void *) t->tallies, TALLIED, tallies_size(t));
        store_relaxed(&t->shared->slow_count, 30 + i);
        store_relaxed(&t->shared->rcu_count, 3);
        t->shared->rcu_depth = 1;
        t->shared->time_ns = 9;
        store_relaxed(&t->shared->slots_used[0], 1);
        store_relaxed(&t->shared->slots_used[COUNT_OF(t->shared->slots_used) - 1], UINT64_MAX);
        t->recent_keys[i] = t->set_busy_epochs[i] = 1;
        t->fingerprints[i] = 1;
        t->snapshots[i].epoch = 1;
        t->queues[i].epoch = 1;
        (void) cell_hold(&process->table.cells[CELL], HELD_PIN + GRANTED);
        store_relaxed(&limiter->joined[i + 1].pid, getpid());
        store_relaxed(&limiter->joined[i + 1].started, 1); /* another process had this one's id */
        store_relaxed(&limiter->joined[i + 1].leaving, i);
        store_relaxed(&limiter->lanes[i * RCU_LANES].inside[i], 1);
        store_relaxed(&limiter->lanes[PROCESSES * RCU_LANES - 1].inside[i], 1);
    }
    (void) cell_hold(&process->table.cells[CELL], 50); /* of a request under way */
    store_relaxed(&limiter->shared->thread_high, 2);
    store_relaxed(&limiter->shared->line.thread_count, 2);
    store_relaxed(&limiter->shared->rcu.lock, 3);
    store_relaxed(&limiter->shared->repairing, 3);
    store_relaxed(&limiter->shared->repair_from_ns, UINT64_MAX);
}

static void subject_open(struct subject *s, weir_algorithm algorithm)
{
    subject_open_with(s, &(struct terms){.algorithm = algorithm});
}

static void subject_close(struct subject *s)
{
    free(s->set);
    limiter_close(&s->limiter);
}

static void salvage(struct subject *s)
{
    struct limiter *limiter = &s->limiter;
    limiter_salvage_begin(limiter);
    assert_true(process_is_halted(&limiter->process)); /* a child of a dead process may join, and waits */
    assert_int_equal(limiter_salvage(limiter, s->set, BARE_NOW_NS, MONOTONIC_NS), 0);
    assert_true(process_is_halted(&limiter->process));
    limiter_salvage_end(limiter);
}

/* All is as of a weir that was just opened by one process, but for what is counted. */
static void expect_new(const struct subject *s)
{
    const struct limiter *limiter = &s->limiter;
    assert_false(process_is_halted(&limiter->process));
    assert_int_equal(load_relaxed(&limiter->shared->rcu.lock), 0);
    assert_int_equal(load_relaxed(&limiter->shared->repairing), 0);
    assert_int_equal(load_relaxed(&limiter->shared->repair_from_ns), 0);
    assert_int_equal(load_relaxed(&limiter->shared->joined_count), 1);
    assert_int_equal(load_relaxed(&limiter->shared->line.thread_count), 0);
    for (uint32_t i = 0; i < PROCESSES; i++) {
        const struct joined_process *entry = &limiter->joined[i];
        assert_int_equal(load_relaxed(&entry->pid), i == limiter->joined_as ? getpid() : 0);
        assert_true(i == limiter->joined_as || load_relaxed(&entry->started) == 0);
        assert_int_equal(load_relaxed(&entry->leaving), 0);
    }
    assert_int_equal(limiter->joined_as, 0);
    assert_int_equal(load_relaxed(&limiter->shared->thread_high), THREADS); /* of all that are present */
    for (uint32_t i = 0; i < PROCESSES * RCU_LANES; i++) {
        assert_int_equal(load_relaxed(&limiter->lanes[i].inside[0]) | load_relaxed(&limiter->lanes[i].inside[1]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        const struct weir_thread *t = &limiter->threads[i];
        assert_int_equal(load_relaxed(&t->shared->owner), HANDLE_FREE);
        assert_int_equal(load_relaxed(&t->shared->rcu_count) | t->shared->rcu_depth | t->shared->time_ns, 0);
        assert_int_equal(t->shared->looked_count, load_relaxed(&t->shared->slow_count));
        for (size_t word = 0; word < COUNT_OF(t->shared->slots_used); word++) {
            assert_int_equal(load_relaxed(&t->shared->slots_used[word]), 0);
        }
        const unsigned char *own = (const unsigned char *) t->slots;
        const size_t tallies = (size_t) ((const unsigned char *) t->tallies - own);
        const size_t behind = (size_t) ((const unsigned char *) t->recent_keys - own);
        for (size_t at = 0; at < limiter->thread_size; at += sizeof(uint64_t)) {
            uint64_t word;
            memcpy(&word, own + at, sizeof(word));
            assert_true(word == 0 || (at >= tallies && at < behind));
        }
    }
}

static void expect_charged(const struct subject *s, uint64_t units)
{
    const struct cell *cell = &s->limiter.process.table.cells[CELL];
    assert_int_equal(rule_headroom(rule_of(s), cell_state(dwcas_read(&cell->state)), BARE_NOW_NS), LIMIT - units);
    assert_int_equal(load_relaxed(&cell->held) & HELD_IN_USE, 0);
    assert_false(cell_is_marked(dwcas_read(&cell->state)));
}

static void test_what_passed_is_charged_and_nobody_has_anything_left(void **state)
{
    (void) state;
    static const weir_algorithm algorithms[] = {WEIR_FIXED_WINDOW, WEIR_SLIDING_LOG, WEIR_TOKEN_BUCKET};
    for (size_t i = 0; i < COUNT_OF(algorithms); i++) {
        struct subject s;
        subject_open(&s, algorithms[i]);
        for (int again = 0; again < 2; again++) { /* the second opener finds that all is done */
            store_relaxed(&s.limiter.joined[0].pid, again == 0 ? getpid() : 0);
            salvage(&s);
            expect_new(&s);
            expect_charged(&s, 2 * PASSED);
        }
        for (uint32_t n = 0; n < 2; n++) {
            const struct weir_thread *t = &s.limiter.threads[n];
            for (size_t at = 0; at < tallies_size(t); at++) {
                assert_int_equal(((const unsigned char *) t->tallies)[at], TALLIED);
            }
            assert_int_equal(load_relaxed(&t->shared->slow_count), 30 + n);
        }
        assert_non_null(thread_attach(&s.limiter, 4));
        subject_close(&s);
    }
}

/* Before or after the mark in a cell, and in the middle of a log. */
static void test_a_settling_that_had_begun_is_ended_once(void **state)
{
    (void) state;
    enum { NOTED, MARKED, CHARGED, LOG_NOTED, LOG_FREED, LOG_PUSHED, LOG_CHARGED, CASES };
    enum { OTHERS = 3 };
    for (int n = 0; n < 2 * CASES; n++) {
        const int which = n % CASES;
        const size_t limit = n >= CASES ? 1 : 0; /* the key's first, or its second: the first was charged before */
        struct subject s;
        subject_open(&s, which >= LOG_NOTED ? WEIR_SLIDING_LOG : WEIR_TOKEN_BUCKET);
        struct process *process = &s.limiter.process;
        const uint32_t thread = (uint32_t) which % 2; /* of which the slot is the first, or the last */
        struct weir_thread *t = &s.limiter.threads[thread];
        struct slot_account *account = account_of(&s, thread);
        struct cell *cell = &process->table.cells[CELL];
        struct dwcas_value value = dwcas_read(&cell->state);
        if (limit == 1) {
            account->limit_count = 2;
            account->rules[1] = *rule_of(&s);
            account->cells[1] = CELL;
            account->cells[0] = (uint32_t) table_pair(&process->table, OTHER_HASH);
            bare_occupy(process, &s.policy, account->cells[0], OTHER_HASH, rule_fresh(rule_of(&s), BARE_NOW_NS));
        }
        settling_begin(account, limit, COUNTED + PASSED);
        if (which == MARKED || which == CHARGED) {
            const struct state charged = rule_charge(rule_of(&s), cell_state(value), BARE_NOW_NS, PASSED);
            const struct dwcas_value next = cell_value(charged, value);
            assert_true(
                dwcas_swap(&cell->state, &value,
                           which == MARKED ? settling_mark(t, slot_index(t), next) : cell_next_generation(next)));
        } else if (which == LOG_FREED) {
            assert_true(history_store_charge(process, CELL, rule_of(&s), BARE_NOW_NS, OTHERS));
        } else if (which == LOG_PUSHED || which == LOG_CHARGED) {
            assert_true(
                history_store_charge(process, CELL, rule_of(&s), BARE_NOW_NS, which == LOG_PUSHED ? 2 : PASSED));
        }
        if (which == CHARGED || which == LOG_CHARGED) {
            store_relaxed(&account->settling.step, (uint32_t) (2 * limit + 2));
        }
        store_relaxed(&process->histories.places[CELL].lock,
                      which == LOG_NOTED || which == LOG_PUSHED ? thread + 1 : 0);
        salvage(&s);
        expect_new(&s);
        expect_charged(&s, which == LOG_FREED ? 2 * PASSED + OTHERS : 2 * PASSED);
        assert_int_equal(load_relaxed(&process->histories.places[CELL].lock), 0);
        subject_close(&s);
    }
}

/* The other slot of the key is charged; and this one as far as it makes sense, and was not. */
static void test_a_slot_that_makes_no_sense_is_dropped_alone(void **state)
{
    (void) state;
    enum {
        LIMITS,
        ALL_LIMITS,
        STEP,
        FIRST_CELL,
        LAST_CELL,
        ALGORITHM,
        KIND,
        CALENDAR,
        SHORT,
        LONG,
        USED,
        MOST_USED,
        TOO_MUCH_USED,
        SETTLED,
        WAS_SETTLED,
        MOST_SETTLED,
        TOO_MUCH_SETTLED,
        FLEET,
        CASES
    };
    static const uint64_t charged[CASES] = {[ALL_LIMITS] = (1 + WEIR_MAX_LIMITS) * PASSED,
                                            [MOST_USED] = LIMIT,
                                            [SETTLED] = PASSED + 1,
                                            [MOST_SETTLED] = LIMIT,
                                            [FLEET] = 2 * PASSED};
    const uint64_t most = 4 * GRANT_MAX;
    for (int which = 0; which < CASES; which++) {
        struct subject s;
        subject_open(&s, WEIR_FIXED_WINDOW);
        struct slot_account *account = account_of(&s, 0);
        struct rule *rule = &account->rules[0];
        const uint32_t behind = (uint32_t) s.limiter.process.table.cell_count;
        switch (which) {
        case LIMITS:
            account->limit_count = WEIR_MAX_LIMITS + 1;
            account->cells[0] = UINT32_MAX;
            break;
        case ALL_LIMITS: /* all of them of one cell */
        case LAST_CELL:
            account->limit_count = WEIR_MAX_LIMITS;
            account->rules[1] = account->rules[2] = account->rules[3] = *rule;
            account->cells[1] = account->cells[2] = CELL;
            account->cells[3] = which == LAST_CELL ? UINT32_MAX : CELL;
            break;
        case STEP:
            store_relaxed(&account->settling.step, 3); /* of a second limit, and there is one */
            account->cells[1] = UINT32_MAX;
            break;
        case FIRST_CELL:
            account->cells[0] = behind;
            break;
        case ALGORITHM:
            rule->algorithm = (weir_algorithm) 77;
            break;
        case KIND:
            rule->algorithm = WEIR_TOKEN_BUCKET; /* of another key */
            break;
        case CALENDAR:
            rule->calendar = (weir_calendar) (WEIR_CALENDAR_MONTH + 1);
            break;
        case SHORT:
            rule->period_ns = POLICY_PERIOD_MIN_NS - 1;
            break;
        case LONG:
            rule->period_ns = POLICY_PERIOD_MAX_NS + 1;
            break;
        case USED:
            store_relaxed(used_of(&s, 0), COUNTED + (UINT64_C(1) << 40));
            break;
        case MOST_USED:
        case TOO_MUCH_USED:
            store_relaxed(used_of(&s, 0), COUNTED + most + (which == TOO_MUCH_USED));
            break;
        case SETTLED:
            settling_begin(account, 0, COUNTED + 1);
            break;
        case WAS_SETTLED:
            settling_begin(account, 0, COUNTED + PASSED);
            store_relaxed(&account->settling.step, 2);
            account->cells[1] = UINT32_MAX; /* of a limit that there is not */
            break;
        case MOST_SETTLED:
        case TOO_MUCH_SETTLED:
            settling_begin(account, 0, COUNTED + most + (which == TOO_MUCH_SETTLED));
            break;
        default:
            account->fleet = true; /* there is none */
            break;
        }
        salvage(&s);
        expect_new(&s);
        expect_charged(&s, charged[which] != 0 ? charged[which] : PASSED);
        subject_close(&s);
    }
}

/* The shortest period, the longest, and a calendar's last unit. */
static void test_a_slot_of_any_rule_that_there_can_be_is_charged(void **state)
{
    (void) state;
    static const struct terms rows[] = {
        {.algorithm = WEIR_FIXED_WINDOW, .period_ns = POLICY_PERIOD_MIN_NS},
        {.algorithm = WEIR_FIXED_WINDOW, .period_ns = POLICY_PERIOD_MAX_NS},
        {.algorithm = WEIR_FIXED_WINDOW, .period_ns = 31 * 24 * HOUR, .calendar = WEIR_CALENDAR_MONTH},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct subject s;
        subject_open_with(&s, &rows[i]);
        salvage(&s);
        expect_new(&s);
        expect_charged(&s, 2 * PASSED);
        subject_close(&s);
    }
}

/* A key that the fleet shares is reported; one that it does not share is not. */
static void test_what_is_charged_to_a_shared_key_is_reported(void **state)
{
    (void) state;
    for (int shares = 0; shares < 2; shares++) {
        struct subject s;
        subject_open_with(&s, &(struct terms){.algorithm = WEIR_FIXED_WINDOW, .fleet = true});
        account_of(&s, 0)->fleet = account_of(&s, 1)->fleet = shares != 0;
        salvage(&s);
        expect_new(&s);
        expect_charged(&s, 2 * PASSED);
        assert_int_equal(bitmap_count(&s.limiter.process.table.dirty), shares);
        subject_close(&s);
    }
}

static void test_a_time_after_now_is_now_and_an_address_is_not_followed(void **state)
{
    (void) state;
    struct subject s;
    subject_open(&s, WEIR_TOKEN_BUCKET);
    struct process *process = &s.limiter.process;
    const uint32_t other = (uint32_t) table_pair(&process->table, OTHER_HASH);
    bare_occupy(process, &s.policy, other, OTHER_HASH, rule_fresh(rule_of(&s), BARE_NOW_NS));
    for (uint32_t i = 0; i < 2; i++) {
        struct slot_account *account = account_of(&s, i);
        account->granted_ns = BARE_NOW_NS + 1000 * HOUR;
        account->rules[0].origin_ns = 0;
        account->rules[0].rate_id = 1;
        account->rules[0].rate_table = 8;
        account->limit_count = 2;
        account->rules[1] = account->rules[0];
        account->cells[1] = other;
    }
    /* Charged under another rate. */
    bare_set_state(process, CELL, (struct state){0, UINT64_C(2) << 44});
    bare_set_state(process, other, (struct state){0, UINT64_C(2) << 44});
    salvage(&s);
    expect_new(&s);
    expect_charged(&s, 2 * PASSED);
    const struct state charged = cell_state(dwcas_read(&process->table.cells[other].state));
    assert_int_equal(rule_headroom(rule_of(&s), charged, BARE_NOW_NS), LIMIT - 2 * PASSED);
    subject_close(&s);
}

/* Wherever in what threads and processes have left: the opener goes on, and the key has no more than it had. */
static void test_drawn_damage_leaves_a_weir_that_can_be_used(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (unsigned round = 0; round < test_draws(300); round++) {
        struct subject s;
        subject_open(&s, round % 2 != 0 ? WEIR_SLIDING_LOG : WEIR_FIXED_WINDOW);
        struct limiter *limiter = &s.limiter;
        const struct {
            void *at;
            size_t size;
        } parts[] = {
            {limiter->shared, sizeof(*limiter->shared)},
            {limiter->joined, PROCESSES * sizeof(*limiter->joined)},
            {limiter->lanes, PROCESSES * RCU_LANES * sizeof(*limiter->lanes)},
            {limiter->threads[0].shared, sizeof(struct thread_shared)},
            {limiter->threads[1].shared, sizeof(struct thread_shared)},
            {account_of(&s, 0), sizeof(struct slot_account)},
            {(void *) used_of(&s, 1), sizeof(uint64_t)},
            {limiter->threads[2].slots, limiter->thread_size},
        };
        for (unsigned i = 0; i < 1 + round % 8; i++) {
            const size_t part = random_below(&rng, COUNT_OF(parts));
            ((unsigned char *) parts[part].at)[random_below(&rng, parts[part].size)] ^=
                (unsigned char) (random_below(&rng, 2) == 0 ? 255 : 1U << random_below(&rng, 8));
        }
        salvage(&s);
        expect_new(&s);
        const struct cell *cell = &limiter->process.table.cells[CELL];
        assert_int_equal(load_relaxed(&cell->held) & HELD_IN_USE, 0);
        struct weir_thread *threads[THREADS];
        for (size_t i = 0; i < THREADS; i++) {
            threads[i] = thread_attach(limiter, 4);
            assert_non_null(threads[i]);
        }
        assert_null(thread_attach(limiter, 4));
        subject_close(&s);
    }
}

/* Without the time when it was started an entry is damaged; an opener looks for a moment whether the time comes. */
static void test_an_opener_believes_an_entry_that_says_since_when(void **state)
{
    (void) state;
    struct subject s;
    subject_open(&s, WEIR_FIXED_WINDOW);
    struct limiter *limiter = &s.limiter;
    assert_true(joined_lives(limiter, 0)); /* this process, which has entered */
    store_relaxed(&limiter->joined[1].started, 0);
    assert_false(joined_lives(limiter, 1)); /* the same, without its start */
    store_relaxed(&limiter->joined[1].started, load_relaxed(&limiter->joined[0].started));
    assert_true(joined_lives(limiter, 1));
    static const int32_t damaged[] = {-1, INT32_MIN, 0};
    for (size_t i = 0; i < COUNT_OF(damaged); i++) {
        store_relaxed(&limiter->joined[1].pid, damaged[i]);
        assert_false(joined_lives(limiter, 1));
    }
    static const uint32_t nobody[] = {PROCESSES, UINT32_MAX};
    for (size_t i = 0; i < COUNT_OF(nobody); i++) {
        assert_true(joined_is_dead(limiter, nobody[i]));
    }
    assert_false(joined_is_dead(limiter, 1)); /* the place is free */
    subject_close(&s);
}

/* A dead process's place, if there is one, so that a child of it that joins finds room; else the first. */
static void test_an_opener_enters_in_the_place_of_a_dead_process(void **state)
{
    (void) state;
    static const struct {
        bool taken[PROCESSES];
        uint32_t place;
    } rows[] = {{{1, 1, 1}, 0}, {{0, 1, 1}, 1}, {{0, 0, 1}, 2}, {{1, 0, 0}, 0}, {{0, 0, 0}, 0}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct subject s;
        subject_open(&s, WEIR_FIXED_WINDOW);
        struct limiter *limiter = &s.limiter;
        const uint64_t started = load_relaxed(&limiter->joined[0].started);
        for (uint32_t place = 0; place < PROCESSES; place++) {
            store_relaxed(&limiter->joined[place].pid, rows[i].taken[place] ? getpid() : 0);
            store_relaxed(&limiter->joined[place].started, 1); /* of a free one by damage */
            store_relaxed(&limiter->joined[place].leaving, 0);
        }
        store_relaxed(&limiter->shared->joined_high, 0); /* walks over places end there, also of other processes */
        limiter_salvage_begin(limiter);
        assert_int_equal(limiter->joined_as, rows[i].place);
        assert_in_range(joined_high(limiter), rows[i].place + 1, PROCESSES);
        assert_int_equal(load_relaxed(&limiter->joined[rows[i].place].started), started);
        assert_int_equal(load_relaxed(&limiter->shared->repairing), rows[i].place + 1);
        assert_int_equal(load_relaxed(&limiter->process.shared->halted_by), rows[i].place + 1);
        /* A child joins meanwhile, and stays. */
        const uint32_t child = (rows[i].place + 1) % PROCESSES;
        store_relaxed(&limiter->joined[child].pid, getpid());
        store_relaxed(&limiter->joined[child].started, started);
        limiter_salvage_end(limiter);
        for (uint32_t place = 0; place < PROCESSES; place++) {
            const bool stays = place == rows[i].place || place == child;
            assert_int_equal(load_relaxed(&limiter->joined[place].pid), stays ? getpid() : 0);
            assert_int_equal(load_relaxed(&limiter->joined[place].started), stays ? started : 0);
        }
        subject_close(&s);
    }
}

/* A place whose numbers do not go together is free in the end, whichever of them is not 0. */
static void test_a_place_of_nobody_is_as_new(void **state)
{
    (void) state;
    for (int which = 0; which < 3; which++) {
        struct subject s;
        subject_open(&s, WEIR_FIXED_WINDOW);
        for (uint32_t place = 1; place < PROCESSES; place++) {
            store_relaxed(&s.limiter.joined[place].pid, which == 0 ? getpid() : 0);
            store_relaxed(&s.limiter.joined[place].started, which == 1);
            store_relaxed(&s.limiter.joined[place].leaving, which == 2);
        }
        salvage(&s);
        expect_new(&s);
        subject_close(&s);
    }
}

/* No process writes such a word: its memory was damaged, or the place is another process's by now. */
static void test_a_mutex_of_nobody_who_has_joined_is_taken(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    struct subject s;
    subject_open(&s, WEIR_FIXED_WINDOW);
    struct process *process = &s.limiter.process;
    process->has_died = joined_has_died;
    process->free_arg = &s.limiter;
    const uint64_t own = process->ticket;
    struct robust_mutex mutex = {0};
    assert_int_equal(robust_mutex_lock(process, &mutex), ROBUST_TAKEN);
    assert_int_equal(load_relaxed(&mutex.word), own);
    assert_int_equal(robust_mutex_trylock(process, &mutex), ROBUST_BUSY);
    for (unsigned i = 0; i < 1000; i++) {
        const uint64_t word = i < 64 ? UINT64_C(1) << i : random_next(&rng);
        store_relaxed(&mutex.word, i % 2 == 0 ? word : own ^ UINT64_C(1) << i % 64);
        assert_int_equal(robust_mutex_lock(process, &mutex), ROBUST_DIED);
    }
    /* Of the process that had the place before, of another one with its id, and of one that has left. */
    struct joined_process *entry = &s.limiter.joined[0];
    const uint64_t started = load_relaxed(&entry->started);
    const int32_t pid = load_relaxed(&entry->pid);
    for (unsigned i = 0; i < 3; i++) {
        store_relaxed(&mutex.word, own);
        process->ticket = own + 1; /* as another process */
        assert_int_equal(robust_mutex_trylock(process, &mutex), ROBUST_BUSY);
        store_relaxed(&entry->started, started + (i == 0));
        store_relaxed(&entry->pid, i == 1 ? pid + 1 : i == 2 ? 0 : pid);
        assert_int_equal(robust_mutex_trylock(process, &mutex), ROBUST_DIED);
        store_relaxed(&entry->started, started);
        store_relaxed(&entry->pid, pid);
    }
    process->ticket = own;
    subject_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_passed_is_charged_and_nobody_has_anything_left),
        cmocka_unit_test(test_a_settling_that_had_begun_is_ended_once),
        cmocka_unit_test(test_a_slot_that_makes_no_sense_is_dropped_alone),
        cmocka_unit_test(test_a_slot_of_any_rule_that_there_can_be_is_charged),
        cmocka_unit_test(test_what_is_charged_to_a_shared_key_is_reported),
        cmocka_unit_test(test_a_time_after_now_is_now_and_an_address_is_not_followed),
        cmocka_unit_test(test_drawn_damage_leaves_a_weir_that_can_be_used),
        cmocka_unit_test(test_an_opener_believes_an_entry_that_says_since_when),
        cmocka_unit_test(test_an_opener_enters_in_the_place_of_a_dead_process),
        cmocka_unit_test(test_a_place_of_nobody_is_as_new),
        cmocka_unit_test(test_a_mutex_of_nobody_who_has_joined_is_taken),
    };
    return cmocka_run_group_tests_name("unit/thread/limiter_salvage", tests, NULL, NULL);
}
