/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that uses a shared weir is killed at any instruction of its calls: afterwards no lock is held, no cell is
 * held by nobody, and each unit that passed is counted once.
 *
 * What a dead process leaves differs from one store to the next alone. So half of the deaths are at an instruction that
 * has changed what processes share.
 *
 * Guards: src/thread/repair.c, src/thread/settling.c, src/thread/slot_account.h, src/thread/rcu.c,
 * src/thread/rcu_halt.c, src/thread/rcu_lane.c, src/process/mend.c, src/base/memory/buddy.c,
 * src/process/history_store.c, src/process/insert.c, src/base/spin.h
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomics.h"
#include "base/compiler.h"
#include "limiter/weir_private.h"
#include "support/single_step.h"
#include "support/support.h"
#include "support/watch.h"
#include "thread/joined.h"
#include "thread/repair.h"
#include "thread/settle_pass.h"
#include "thread/slot.h"
#include "thread/tick.h"

#define KEYS          1600
#define WATCHED_KEYS  4   /* those that the scenarios check */
#define FIRST_CHANGES 100 /* of what `first` does: within its calls, or after them */
#define MANY          (UINT64_C(1) << 40)

/* What a child says, in memory that it shares with this process: before and after each call. */
struct board {
    _Atomic uint64_t begun[KEYS], allowed[KEYS]; /* units, by key */
};

static struct board *board;
static struct watch watch;

/* What is done to a weir. The keys of the policy "p" are numbers. */
struct scenario {
    const char *name;
    weir_limit limits[2];
    size_t limit_count;
    size_t max_keys;
    void (*prepare)(weir *w, weir_thread *t); /* in the child, before it is stepped; NULL: nothing */
    void (*run)(weir *w, weir_thread *t);     /* in the child, step by step */
    /* What another child, warmed up, was killed at before, so that there is something to repair; NULL: nothing. */
    void (*first)(weir *w, weir_thread *t);
};

static weir_key key_of(const weir *w, uint64_t name)
{
    return weir_make_key((weir *) w, weir_find_policy((weir *) w, "p"), &name, sizeof(name));
}

static void check(weir *w, weir_thread *t, uint64_t name, uint32_t cost)
{
    const weir_key key = key_of(w, name);
    (void) add_relaxed(&board->begun[name], cost);
    fence_compiler();
    const bool allowed = weir_check(t, &key, cost, NULL);
    fence_compiler();
    if (allowed) {
        (void) add_relaxed(&board->allowed[name], cost);
    } else {
        (void) add_relaxed(&board->begun[name], (uint64_t) -cost);
    }
}

static void check_often(weir *w, weir_thread *t, uint64_t name, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        check(w, t, name, 1);
    }
}

static void warm_up(weir *w, weir_thread *t)
{
    for (unsigned i = 0; i < 3; i++) {
        check_often(w, t, 0, 20);
        tick_epoch(&w->limiter);
    }
}

/* Grants are made, used, renewed and settled. */
static void run_hot(weir *w, weir_thread *t)
{
    check_often(w, t, 0, 3);
    tick_epoch(&w->limiter);
    check_often(w, t, 0, 2);
    tick_epoch(&w->limiter);
    (void) settle_lapsed(&w->limiter);
}

/* The grant of a thread that lives is taken back. */
static void run_take_back(weir *w, weir_thread *t)
{
    check(w, t, 0, (uint32_t) 900);
    check(w, t, 0, (uint32_t) 900);
    (void) settle_lapsed(&w->limiter);
}

static void run_new_keys(weir *w, weir_thread *t)
{
    for (uint64_t name = 1; name < 4; name++) {
        check(w, t, name, 1);
    }
}

/* So many keys that the table is full. */
static uint64_t table_keys(const weir *w)
{
    return min_u64(w->limiter.process.table.max_keys + 200, KEYS - 100);
}

static void fill(weir *w, weir_thread *t)
{
    for (uint64_t name = 100; name < 100 + table_keys(w); name++) {
        check(w, t, name, 1);
    }
}

static void run_leave(weir *w, weir_thread *t)
{
    (void) w;
    weir_detach(t);
}

/* The child of this scenario has not joined: see start_child(). */
static void run_join(weir *w, weir_thread *t)
{
    (void) t;
    if (weir_join(w, NULL) == 0) {
        weir_thread *own = weir_attach(w);
        check(w, own, 0, 1);
        weir_detach(own);
        weir_close(w);
    }
}

static void run_repair(weir *w, weir_thread *t)
{
    (void) t;
    repair_all(&w->limiter);
}

#define DAYS_300 (300 * 24 * HOUR)
#define FIXED(n)                                                                                                       \
    {                                                                                                                  \
        .algorithm = WEIR_FIXED_WINDOW, .limit = (n), .period_ns = DAYS_300                                            \
    }
#define TOKEN(n)                                                                                                       \
    {                                                                                                                  \
        .algorithm = WEIR_TOKEN_BUCKET, .limit = (n), .period_ns = DAYS_300                                            \
    }
#define LOG(n)                                                                                                         \
    {                                                                                                                  \
        .algorithm = WEIR_SLIDING_LOG, .limit = (n), .period_ns = DAYS_300                                             \
    }

static const struct scenario scenarios[] = {
    {"hot, fixed window", {FIXED(100000)}, 1, 10000, warm_up, run_hot, NULL},
    {"hot, token bucket", {TOKEN(100000)}, 1, 10000, warm_up, run_hot, NULL},
    {"hot, sliding log", {LOG(3000)}, 1, 10000, warm_up, run_hot, NULL},
    {"hot, two limits", {FIXED(100000), TOKEN(50000)}, 2, 10000, warm_up, run_hot, NULL},
    {"hot, window and log", {FIXED(100000), LOG(3000)}, 2, 10000, warm_up, run_hot, NULL},
    {"take back, fixed window", {FIXED(2000)}, 1, 10000, warm_up, run_take_back, NULL},
    {"take back, sliding log", {LOG(2000)}, 1, 10000, warm_up, run_take_back, NULL},
    {"take back, two limits", {FIXED(2000), TOKEN(2000)}, 2, 10000, warm_up, run_take_back, NULL},
    {"new keys, fixed window", {FIXED(100)}, 1, 10000, NULL, run_new_keys, NULL},
    {"new keys, two limits", {FIXED(100), TOKEN(100)}, 2, 10000, NULL, run_new_keys, NULL},
    {"new keys, sliding log", {LOG(100)}, 1, 10000, NULL, run_new_keys, NULL},
    {"new keys, full table", {FIXED(100)}, 1, 1000, fill, run_new_keys, NULL},
    {"new keys, full table, sliding log", {LOG(100)}, 1, 1000, fill, run_new_keys, NULL},
    {"detach", {FIXED(100000)}, 1, 10000, warm_up, run_leave, NULL},
    {"join and leave", {FIXED(100000)}, 1, 1000, NULL, run_join, NULL},
    {"repair, fixed window", {FIXED(100000)}, 1, 1000, NULL, run_repair, run_hot},
    {"repair, window and log", {FIXED(100000), LOG(3000)}, 2, 1000, NULL, run_repair, run_hot},
    {"repair, new keys, sliding log", {LOG(100)}, 1, 1000, NULL, run_repair, run_new_keys},
    {"repair, detach", {FIXED(100000)}, 1, 1000, NULL, run_repair, run_leave},
};

/* Time stands still: a child takes long to step, and its grants would lapse before they are used. */
static uint64_t still_ns(void *arg)
{
    (void) arg;
    return DAYS_300;
}

static weir *open_for(const struct scenario *scenario)
{
    static const weir_clock still = {still_ns, still_ns, NULL};
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &still;
    options.max_keys = scenario->max_keys;
    options.max_threads = 8;
    options.shared = true;
    options.max_processes = 4;
    weir *w = NULL;
    weir_error error;
    if (weir_open(&options, &w, &error) != 0) {
        fail_msg("%s", error.message);
    }
    const weir_policy policy = {.name = "p", .limits = scenario->limits, .limit_count = scenario->limit_count};
    assert_int_equal(weir_set_policies(w, &policy, 1, &error), 0);
    return w;
}

/* Joins and attaches, where the scenario does not do so itself. Exits where that fails. */
static weir_thread *enter(weir *w, const struct scenario *scenario)
{
    if (scenario->run == run_join) {
        return NULL;
    }
    weir_thread *t = weir_join(w, NULL) == 0 ? weir_attach(w) : NULL;
    if (t == NULL) {
        _exit(1);
    }
    return t;
}

/* A child that waits to be stepped, and stops when it is done. */
static pid_t start_child(weir *w, const struct scenario *scenario)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        weir_thread *t = enter(w, scenario);
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) {
            _exit(2);
        }
        if (scenario->prepare != NULL) {
            scenario->prepare(w, t);
        }
        (void) raise(SIGSTOP);
        scenario->run(w, t);
        (void) raise(SIGSTOP);
        _exit(3);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFSTOPPED(status) || WSTOPSIG(status) != SIGSTOP) {
        fail_msg("%s: a child does not stop: 0x%x", scenario->name, (unsigned) status);
    }
    return child;
}

/* When a child is killed: after so many instructions, or after so many changes of what is watched. */
struct moment {
    uint64_t instructions, changes;
};

/* The hash of a key in the table, for one of the policy's limits. */
static uint64_t table_hash(const weir *w, uint64_t name, size_t limit)
{
    const struct policy_set *set = process_policies(&w->limiter.process);
    const struct policy *policy = policy_set_by_id(set, weir_find_policy(w, "p"));
    return key_of(w, name).hash ^ policy->group_key_mask ^ policy->limits[limit].limit_hash;
}

/* Watches where a hash has its cell, or will have it. */
static void watch_sets(const struct table *table, uint64_t hash)
{
    const size_t sets[] = {table_first_set(table, hash) * SET_CELLS, table_other_set(table, hash)};
    for (size_t i = 0; i < 2; i++) {
        watch_add(&watch, &table->cells[sets[i]], SET_CELLS * sizeof(*table->cells));
        watch_add(&watch, &table->metas[sets[i]], SET_CELLS * sizeof(*table->metas));
        watch_add(&watch, &table->guards[sets[i] / SET_CELLS], sizeof(*table->guards));
    }
}

/* Watches the log of a hash, where there is one. */
static void watch_log(struct process *process, uint64_t hash)
{
    const uint32_t at = table_find(&process->table, hash);
    if (at != TABLE_NONE && cell_meta_is(&process->table.metas[at], CELL_HISTORY)) {
        watch_add(&watch, &process->histories.places[at], sizeof(*process->histories.places));
        const struct history *history = history_store_get(process, at);
        if (history != NULL) {
            watch_add(&watch, history, sizeof(*history));
        }
    }
}

/* Watches what the calls for the first keys change: in the table, the logs, and the slots of two threads. */
static void watch_calls(weir *w, const struct scenario *scenario)
{
    struct limiter *limiter = &w->limiter;
    watch_clear(&watch);
    watch_add(&watch, limiter->joined, limiter->max_processes * sizeof(*limiter->joined));
    watch_add(&watch, limiter->process.histories.shared, sizeof(*limiter->process.histories.shared));
    watch_add(&watch, &limiter->process.shared->oversized, sizeof(limiter->process.shared->oversized));
    for (uint64_t name = 0; name < WATCHED_KEYS; name++) {
        for (size_t limit = 0; limit < scenario->limit_count; limit++) {
            const uint64_t hash = table_hash(w, name, limit);
            watch_sets(&limiter->process.table, hash);
            watch_log(&limiter->process, hash);
        }
        for (uint32_t i = 0; i < 2; i++) {
            const struct weir_thread *t = &limiter->threads[i];
            const size_t slots = slot_set(t, key_of(w, name).hash);
            watch_add(&watch, &t->accounts[slots], SLOT_WAYS * sizeof(*t->accounts));
            watch_add(&watch, &t->slots[slots], SLOT_WAYS * sizeof(*t->slots));
        }
    }
}

/* Steps a child up to a moment. Returns what was left of it when the child was done. */
static struct moment step(weir *w, const struct scenario *scenario, pid_t child, struct moment moment)
{
    watch_calls(w, scenario);
    while (moment.instructions > 0 && moment.changes > 0) {
        int status = 0;
        assert_int_equal(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSTOPPED(status));
        if (WSTOPSIG(status) != SIGTRAP) {
            break;
        }
        moment.instructions--;
        moment.changes -= watch_changed(&watch);
    }
    return moment;
}

/* What the slots account for of a cell. */
static uint64_t accounted_for(const struct limiter *limiter, uint32_t at)
{
    uint64_t held = 0;
    for (uint32_t i = 0; i < load_relaxed(&limiter->shared->thread_high); i++) {
        const struct weir_thread *t = &limiter->threads[i];
        for (size_t index = 0; index < t->slot_count; index++) {
            const struct slot_account *account = &t->accounts[index];
            for (size_t limit = 0; limit < account->limit_count; limit++) {
                held += account->cells[limit] == at ? HELD_PIN + load_relaxed(&account->granted) : 0;
            }
        }
    }
    return held;
}

static void expect_sound(const weir *w, const char *what, uint64_t stepped)
{
    const struct limiter *limiter = &w->limiter;
    const struct table *table = &limiter->process.table;
    for (uint32_t at = 0; at < table->cell_count; at++) {
        const uint64_t held = load_relaxed(&table->cells[at].held) & HELD_IN_USE;
        if (held != 0 && held != accounted_for(limiter, at)) {
            fail_msg("%s, %llu steps: cell %u holds %llx", what, (unsigned long long) stepped, at,
                     (unsigned long long) held);
        }
        if (cell_is_marked(dwcas_read(&table->cells[at].state))) {
            fail_msg("%s, %llu steps: cell %u is marked", what, (unsigned long long) stepped, at);
        }
        const uint64_t hash = load_relaxed(&table->cells[at].hash);
        if (hash != 0 && table_find(table, hash) != at) {
            fail_msg("%s, %llu steps: cell %u is not found", what, (unsigned long long) stepped, at);
        }
        if (cell_meta_is(&table->metas[at], CELL_HISTORY) &&
            load_relaxed(&limiter->process.histories.places[at].lock) != 0) {
            fail_msg("%s, %llu steps: the log of cell %u is locked", what, (unsigned long long) stepped, at);
        }
    }
    for (size_t set = 0; set < table->set_count; set++) {
        assert_int_equal(load_relaxed(&table->guards[set].lock), 0);
    }
    assert_int_equal(load_relaxed(&limiter->process.histories.shared->lock), 0);
    assert_int_equal(load_relaxed(&limiter->process.shared->oversized), 0);
    assert_int_equal(load_relaxed(&limiter->process.shared->evicted_reports.lock), 0);
    for (uint32_t i = 0; i < load_relaxed(&limiter->shared->thread_high); i++) {
        for (size_t index = 0; index < limiter->threads[i].slot_count; index++) {
            assert_int_equal(load_relaxed(&limiter->threads[i].accounts[index].lock), 0);
        }
    }
    assert_int_equal(load_relaxed(&limiter->shared->joined_count), 1);
    assert_int_equal(load_relaxed(&limiter->shared->line.thread_count), 1);
}

/* What is left of a limit is what no call took: a call under way took its cost, or nothing. */
static void expect_left(weir *w, weir_thread *own, const struct scenario *scenario, uint64_t name, uint64_t stepped)
{
    uint64_t limit = UINT64_MAX;
    for (size_t i = 0; i < scenario->limit_count; i++) {
        limit = min_u64(limit, scenario->limits[i].limit);
    }
    const weir_key key = key_of(w, name);
    weir_verdict verdict;
    (void) weir_peek(own, &key, 1, &verdict);
    const uint64_t most = limit - min_u64(load_relaxed(&board->allowed[name]), limit);
    const uint64_t least = limit - min_u64(load_relaxed(&board->begun[name]), limit);
    if (verdict.remaining < least || verdict.remaining > most) {
        fail_msg("%s, %llu steps: of key %llu %llu are left, not %llu to %llu", scenario->name,
                 (unsigned long long) stepped, (unsigned long long) name, (unsigned long long) verdict.remaining,
                 (unsigned long long) least, (unsigned long long) most);
    }
}

/* A thread that comes gets the dead one's handle. It finds nothing there of what the dead one had begun. */
static void use_again(weir *w)
{
    weir_thread *t = weir_attach(w);
    for (unsigned i = 0; i < 3; i++) {
        for (uint64_t name = 0; name < WATCHED_KEYS; name++) {
            check_often(w, t, name, 3);
        }
        tick_epoch(&w->limiter);
    }
    (void) settle_lapsed(&w->limiter);
    weir_detach(t);
}

/* Runs a child up to a moment, and kills the child. Returns what was left of the moment. */
static struct moment run_and_kill(weir *w, const struct scenario *scenario, struct moment moment)
{
    const pid_t child = start_child(w, scenario);
    const struct moment left = step(w, scenario, child, moment);
    (void) kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    return left;
}

/* Runs a scenario up to a moment. Returns what was left of the moment when it had ended. */
static struct moment kill_at(const struct scenario *scenario, struct moment moment, uint64_t *random)
{
    memset((void *) board, 0, sizeof(*board));
    weir *w = open_for(scenario);
    weir_thread *own = weir_attach(w);
    if (scenario->run == run_take_back) {
        warm_up(w, own);
    }
    if (scenario->first != NULL) {
        struct scenario first = *scenario;
        first.prepare = warm_up;
        first.run = scenario->first;
        (void) run_and_kill(w, &first, (struct moment){MANY, random_below(random, FIRST_CHANGES)});
    }
    const struct moment left = run_and_kill(w, scenario, moment);
    repair_all(&w->limiter);
    const uint64_t stepped = moment.instructions - left.instructions;
    expect_sound(w, scenario->name, stepped);
    const bool full = scenario->max_keys < KEYS; /* some keys have been evicted */
    use_again(w);
    for (uint64_t name = 0; name < 100 && !full; name++) {
        expect_left(w, own, scenario, name, stepped);
    }
    /* Every key can be used. */
    for (uint64_t name = 0; name < KEYS; name++) {
        check(w, own, name, 1);
    }
    weir_detach(own);
    weir_close(w);
    return left;
}

/* So many deaths in each scenario: as many as an environment variable says, else a few. */
static uint64_t deaths_to_try(void)
{
    const char *text = getenv("WEIR_DEATHS");
    return text != NULL ? strtoull(text, NULL, 10) : 4;
}

static void test_a_process_may_die_at_any_instruction(void **state)
{
    (void) state;
    uint64_t random = test_seed();
    const char *only = getenv("WEIR_DEATHS_ONLY");
    for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
        const struct scenario *scenario = &scenarios[i];
        if (only != NULL && strstr(scenario->name, only) == NULL) {
            continue;
        }
        const struct moment left = kill_at(scenario, (struct moment){MANY, MANY}, &random);
        const struct moment all = {MANY - left.instructions, MANY - left.changes};
        for (uint64_t tried = 0; tried < deaths_to_try(); tried++) {
            const struct moment any = {random_below(&random, all.instructions), MANY};
            const struct moment change = {MANY, random_below(&random, all.changes + 1)};
            (void) kill_at(scenario, tried % 2 == 0 ? change : any, &random);
        }
        print_message("# %s: %llu instructions, %llu changes\n", scenario->name, (unsigned long long) all.instructions,
                      (unsigned long long) all.changes);
    }
}

int main(void)
{
    if (SANITIZED || !can_step()) {
        (void) puts(SANITIZED ? "1..0 # SKIP a sanitizer's code is not single-stepped"
                              : "1..0 # SKIP no process can be single-stepped here");
        return 0;
    }
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_process_may_die_at_any_instruction),
    };
    return cmocka_run_group_tests_name("stress/deaths", tests, NULL, NULL);
}
