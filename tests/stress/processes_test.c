/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One weir, used by processes that were forked after it was opened, as by threads of one process.
 *
 * Guards: src/limiter/join.c, src/limiter/leader.c, src/limiter/weir_open.c, src/limiter/shared_policies.c,
 * src/limiter/policy_lock.c, src/limiter/configured_policies.c, src/process/robust_mutex.c, src/thread/joined.c,
 * src/thread/repair.c, src/thread/thread.c, src/base/barrier.c, src/base/pages.c
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomics.h"
#include "base/barrier.h"
#include "base/compiler.h"
#include "base/numbers.h"
#include "limiter/background.h"
#include "limiter/leader.h"
#include "limiter/weir_private.h"
#include "support/independent.h"
#include "support/support.h"
#include "thread/joined.h"
#include "thread/rcu.h"
#include "thread/rcu_lane.h"
#include "thread/slot.h"

#define CHILDREN    8
#define THREADS     2
#define PATIENCE_NS (60 * SECOND)
#define LIMIT_MOST  (SLOWED ? 300000 : 2000000)

/* What the processes tell each other; in memory that they share. */
struct board {
    _Atomic uint64_t ready, allowed, checked, go, failed_at;
};

static struct board *board;

/*
 * Whether processes with threads are forked. Under the sanitizers a child of such a process may start no threads. An
 * emulator forks its own threads' locks with the guest, and a child hangs in 1 of some 100 runs.
 */
static const bool forks_with_threads = !SLOWED;

/* Fails where a child does not end by itself, with status 0. */
static void expect_good(pid_t child)
{
    const uint64_t until_ns = real_ns() + PATIENCE_NS;
    int status = 0;
    pid_t ended = 0;
    while ((ended = waitpid(child, &status, WNOHANG)) == 0) {
        if (real_ns() > until_ns) {
            (void) kill(child, SIGKILL);
            (void) waitpid(child, &status, 0);
            fail_msg("child %d hangs", (int) child);
        }
        nap_ms(1);
    }
    assert_int_equal(ended, child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fail_msg("a child ended with status 0x%x, at step %d", (unsigned) status, WEXITSTATUS(status));
    }
}

static weir *open_shared(uint32_t max_processes, const weir_options *more)
{
    weir_options options = WEIR_OPTIONS_INIT;
    if (more != NULL) {
        options = *more;
    }
    options.shared = true;
    options.max_processes = max_processes;
    options.no_thread = !forks_with_threads;
    weir *w = NULL;
    weir_error error;
    if (weir_open(&options, &w, &error) != 0) {
        fail_msg("%s", error.message);
    }
    return w;
}

/* Runs a function in so many joined children. What it returns is the child's status. */
static void run_children(weir *w, size_t count, int (*run)(weir *w, size_t number))
{
    pid_t children[64];
    memset((void *) board, 0, sizeof(*board));
    for (size_t i = 0; i < count; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
            const int joined = weir_join(w, NULL);
            const int result = joined == 0 ? run(w, i) : 100;
            weir_close(w);
            _exit(result);
        }
    }
    for (size_t i = 0; i < count; i++) {
        expect_good(children[i]);
    }
}

/* A race of all threads of all children for the key "k" of the policy "p". */
struct race {
    uint64_t requests; /* in all: each thread makes its part */
    uint64_t cost;
};

static struct race race;

static void *race_thread(void *arg)
{
    weir *w = arg;
    weir_thread *t = weir_attach(w);
    const weir_key key = weir_make_key(w, weir_find_policy(w, "p"), "k", 1);
    const uint64_t threads = CHILDREN * THREADS;
    const uint64_t number = threads_meet(&board->ready, threads);
    const uint64_t mine = race.requests / threads + (number < race.requests % threads);
    uint64_t allowed = 0;
    for (uint64_t i = 0; i < mine; i++) {
        allowed += weir_check(t, &key, (uint32_t) race.cost, NULL);
    }
    (void) add_relaxed(&board->allowed, allowed * race.cost);
    weir_detach(t);
    return NULL;
}

static int race_child(weir *w, size_t number)
{
    (void) number;
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, race_thread, w) != 0) {
            return 1;
        }
    }
    for (size_t i = 0; i < THREADS; i++) {
        (void) pthread_join(threads[i], NULL);
    }
    return 0;
}

static const weir_algorithm algorithms[] = {WEIR_FIXED_WINDOW, WEIR_SLIDING_WINDOW, WEIR_TOKEN_BUCKET, WEIR_SLIDING_LOG,
                                            WEIR_LEAKY_BUCKET};

/* A weir with a limit that is not refilled within the test. */
static weir *open_for_race(weir_algorithm algorithm, uint64_t limit)
{
    weir *w = open_shared(16, NULL);
    weir_limit one = {.algorithm = algorithm, .limit = limit, .period_ns = 300 * 24 * HOUR};
    one.delay = algorithm == WEIR_LEAKY_BUCKET ? limit : 0; /* the whole burst passes at once */
    (void) set_one_policy(w, &one, 1, WEIR_SCOPE_PROCESS);
    return w;
}

static void test_processes_admit_one_limit_together(void **state)
{
    (void) state;
    static const uint64_t limits[] = {1, 7, 100, 10000, 300000, LIMIT_MOST};
    for (size_t a = 0; a < sizeof(algorithms) / sizeof(algorithms[0]); a++) {
        for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
            if (algorithms[a] == WEIR_SLIDING_LOG && limits[i] > 10000) {
                continue;
            }
            weir *w = open_for_race(algorithms[a], limits[i]);
            race = (struct race){.requests = 2 * limits[i] + 200, .cost = 1};
            run_children(w, CHILDREN, race_child);
            /* A request that was under way when a grant was taken back may be late: one a thread. */
            assert_in_range(load_relaxed(&board->allowed), limits[i], limits[i] + CHILDREN * THREADS);
            weir_close(w);
        }
    }
}

static void test_a_burst_of_exactly_the_limit_passes_whole(void **state)
{
    (void) state;
    static const uint64_t limits[] = {1, 16, 1000, 200000, LIMIT_MOST};
    for (size_t a = 0; a < sizeof(algorithms) / sizeof(algorithms[0]); a++) {
        for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
            if (algorithms[a] == WEIR_SLIDING_LOG && limits[i] > 10000) {
                continue;
            }
            weir *w = open_for_race(algorithms[a], limits[i]);
            race = (struct race){.requests = limits[i], .cost = 1};
            run_children(w, CHILDREN, race_child);
            assert_in_range(load_relaxed(&board->allowed), saturating_sub(limits[i], stalled_denials(w)), limits[i]);
            weir_close(w);
        }
    }
}

#define DRAWS     20
#define COST_MOST 5

static void test_drawn_limits_hold_for_processes_together(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (uint64_t i = 0; i < DRAWS; i++) {
        const weir_algorithm algorithm = algorithms[i % (sizeof(algorithms) / sizeof(algorithms[0]))];
        const uint64_t most = algorithm == WEIR_SLIDING_LOG ? WEIR_MAX_LOG_UNITS : LIMIT_MOST;
        const uint64_t cost = 1 + random_below(&rng, COST_MOST);
        const uint64_t limit = max_u64(draw_magnitude(&rng, 1, most) / cost, 1) * cost;
        const bool exact = random_below(&rng, 2) == 0;
        weir *w = open_for_race(algorithm, limit);
        race = (struct race){.requests = exact ? limit / cost : 2 * limit / cost + 200, .cost = cost};
        run_children(w, CHILDREN, race_child);
        const uint64_t allowed = load_relaxed(&board->allowed);
        if (allowed + stalled_denials(w) * cost < limit || allowed > limit + CHILDREN * THREADS * cost) {
            fail_msg("algorithm %d, limit %llu, requests %llu of cost %llu: %llu admitted", (int) algorithm,
                     (unsigned long long) limit, (unsigned long long) race.requests, (unsigned long long) cost,
                     (unsigned long long) allowed);
        }
        weir_close(w);
    }
}

static bool wait_for(_Atomic uint64_t *word, uint64_t least)
{
    const uint64_t until_ns = real_ns() + PATIENCE_NS;
    while (load_acquire(word) < least) {
        if (real_ns() > until_ns) {
            return false;
        }
        nap_ms(1);
    }
    return true;
}

static bool set_limit(weir *w, const char *name, uint64_t limit)
{
    const weir_limit one = {.algorithm = WEIR_FIXED_WINDOW, .limit = limit, .period_ns = 300 * 24 * HOUR};
    const weir_policy policy = {.name = name, .limits = &one, .limit_count = 1};
    return weir_set_policies(w, &policy, 1, NULL) == 0;
}

/* The first child changes policies; the other one sees them, and changes them again. */
static int change_child(weir *w, size_t number)
{
    const weir_policy_id before = weir_find_policy(w, "p");
    if (number == 0) {
        if (!set_limit(w, "q", 5) || weir_set_override(w, "q:vip", "9", NULL) != 0) {
            return 1;
        }
        (void) add_relaxed(&board->go, 1);
        if (!wait_for(&board->go, 2)) {
            return 2;
        }
        return weir_find_policy(w, "p") == before && weir_find_policy(w, "q") == WEIR_NO_POLICY ? 0 : 3;
    }
    if (!wait_for(&board->go, 1)) {
        return 4;
    }
    const weir_policy_id q = weir_find_policy(w, "q");
    if (q == WEIR_NO_POLICY || weir_find_policy(w, "p") != WEIR_NO_POLICY) {
        return 5;
    }
    weir_thread *t = weir_attach(w);
    const weir_key vip = weir_make_key(w, q, "vip", 3);
    const weir_key other = weir_make_key(w, q, "x", 1);
    if (!weir_check(t, &vip, 9, NULL) || weir_check(t, &vip, 1, NULL) || weir_check(t, &other, 6, NULL) ||
        !weir_check(t, &other, 5, NULL)) {
        return 6;
    }
    weir_detach(t);
    if (!set_limit(w, "p", 8)) {
        return 7;
    }
    (void) add_relaxed(&board->go, 1);
    return 0;
}

static void test_a_change_of_policies_is_one_for_all(void **state)
{
    (void) state;
    weir *w = open_shared(4, NULL);
    assert_true(set_limit(w, "p", 3));
    run_children(w, 2, change_child);
    assert_true(weir_find_policy(w, "p") != WEIR_NO_POLICY);
    weir_thread *t = weir_attach(w);
    const weir_key key = weir_make_key(w, weir_find_policy(w, "p"), "k", 1);
    assert_false(weir_check(t, &key, 9, NULL));
    assert_true(weir_check(t, &key, 8, NULL));
    weir_close(w);
}

static int join_twice(weir *w, size_t number)
{
    (void) number;
    return weir_join(w, NULL) == -EINVAL ? 0 : 1;
}

static int wait_for_go(weir *w, size_t number)
{
    (void) w;
    (void) add_relaxed(&board->ready, 1);
    return number != 0 || wait_for(&board->go, 1) ? 0 : 1;
}

static void test_what_cannot_join_is_told_why(void **state)
{
    (void) state;
    weir_error error;
    weir *alone = open_or_fail(NULL);
    assert_int_equal(weir_join(alone, &error), -EINVAL);
    assert_non_null(strstr(error.message, "shared"));
    weir_close(alone);
    weir *w = open_shared(2, NULL);
    assert_int_equal(weir_join(w, &error), -EINVAL);
    run_children(w, 1, join_twice);
    /* This process and a child are two: another child finds no place, until the first has left. */
    for (int time = 0; time < 2; time++) {
        memset((void *) board, 0, sizeof(*board));
        const pid_t first = fork();
        if (first == 0) {
            const int result = weir_join(w, NULL) == 0 ? wait_for_go(w, 0) : 100;
            weir_close(w);
            _exit(result);
        }
        assert_true(wait_for(&board->ready, 1));
        weir_stats stats;
        weir_get_stats(w, &stats);
        assert_int_equal(stats.process_count, 2);
        const pid_t second = fork();
        if (second == 0) {
            const int result = weir_join(w, NULL) == -ENOSPC ? 0 : 1;
            weir_close(w);
            _exit(result);
        }
        expect_good(second);
        (void) add_relaxed(&board->go, 1);
        expect_good(first);
    }
    weir_close(w);
}

/* Checks a key for some ticks, so that grants are made and lapse. True: time went on. */
static bool time_goes_on(weir *w)
{
    const uint64_t until_ns = real_ns() + PATIENCE_NS;
    const uint64_t first = load_relaxed(&w->limiter.shared->line.now_ns);
    weir_thread *t = weir_attach(w);
    const weir_key key = weir_make_key(w, weir_find_policy(w, "p"), "k", 1);
    uint64_t now = first;
    while (now < first + 100 * MILLISECOND && real_ns() < until_ns) {
        (void) weir_check(t, &key, 1, NULL);
        now = load_relaxed(&w->limiter.shared->line.now_ns);
    }
    weir_detach(t);
    return now >= first + 100 * MILLISECOND;
}

static void *attach_and_end(void *arg)
{
    return weir_attach(arg) != NULL ? arg : NULL;
}

static void *attach_and_wait(void *arg)
{
    weir *w = arg;
    weir_thread *t = weir_attach(w);
    (void) add_relaxed(&board->ready, 1);
    const bool waited = wait_for(&board->go, 1);
    return waited && t != NULL && handle_process(load_acquire(&t->shared->owner)) == w->limiter.joined_as ? arg : NULL;
}

/* The first new thread of each child has the same token. A thread that ends gives back its own handle alone. */
static int end_thread(weir *w, size_t number)
{
    pthread_t thread;
    void *good = NULL;
    if (number != 0 && !wait_for(&board->ready, 1)) {
        return 1;
    }
    if (pthread_create(&thread, NULL, number == 0 ? attach_and_wait : attach_and_end, w) != 0 ||
        pthread_join(thread, &good) != 0 || good == NULL) {
        return 2;
    }
    if (number == 0) {
        return 0;
    }
    const bool given_back = load_relaxed(&w->limiter.shared->line.thread_count) == 1;
    (void) add_relaxed(&board->go, 1);
    return given_back ? 0 : 3;
}

static void test_a_thread_that_ends_gives_back_its_own_handle(void **state)
{
    (void) state;
    weir *w = open_shared(3, NULL);
    run_children(w, 2, end_thread);
    weir_close(w);
}

/* Reports of the one that pays nothing, in a ring: what it saw of `paid` when it had stored this number. */
#define SEEN_COUNT (1U << 16)
#define PAYMENTS   10000

struct barrier_board {
    _Alignas(64) _Atomic uint64_t free; /* stored by the child, which has no fence */
    _Atomic uint64_t taken;             /* stored by this process, so that the child's stores wait for the line */
    _Alignas(64) _Atomic uint64_t paid; /* stored by this process, with a barrier behind it */
    _Alignas(64) _Atomic uint32_t stop;
    _Atomic uint64_t seen[SEEN_COUNT];
};

static void store_without_fence(struct barrier_board *both)
{
    for (uint64_t i = 1; load_relaxed(&both->stop) == 0; i++) {
        store_relaxed(&both->free, i);
        fence_compiler();
        store_relaxed(&both->seen[i % SEEN_COUNT], load_relaxed(&both->paid));
    }
}

/*
 * Either side sees what the other one stored before, as two threads of one process do. Without any barrier nine in ten
 * payments are missed. A system call in its place lasts long enough to hide that it reaches nobody.
 */
static void test_a_barrier_reaches_a_joined_process(void **state)
{
    (void) state;
    if (!barrier_available(BARRIER_JOINED)) {
        skip();
    }
    struct barrier_board *both = mmap(NULL, sizeof(*both), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(both != MAP_FAILED);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        const bool available = barrier_available(BARRIER_JOINED);
        store_without_fence(both);
        _exit(available ? 0 : 1);
    }
    uint64_t compared = 0;
    uint64_t missed = 0;
    for (uint64_t i = 1; i <= PAYMENTS; i++) {
        store_relaxed(&both->taken, i);
        fence_seq_cst();
        store_relaxed(&both->paid, i);
        barrier_all_threads(BARRIER_JOINED);
        /* The child's next number was not stored yet: what it saw then is this payment, or a later one. */
        const uint64_t next = load_relaxed(&both->free) + 1;
        const uint64_t until_ns = real_ns() + PATIENCE_NS;
        uint64_t there = 0;
        while ((there = load_acquire(&both->free)) <= next && real_ns() < until_ns) {
        }
        if (there > next && there < next + SEEN_COUNT / 2) {
            const uint64_t seen = load_acquire(&both->seen[next % SEEN_COUNT]);
            compared += load_acquire(&both->free) < next + SEEN_COUNT;
            missed += seen < i;
        }
    }
    store_relaxed(&both->stop, 1);
    expect_good(child);
    assert_int_equal(missed, 0);
    assert_true(compared > 0);
    (void) munmap(both, sizeof(*both));
}

static uint32_t leader_of(weir *w)
{
    (void) robust_mutex_lock(&w->limiter.process, &w->shared->work_lock);
    const uint32_t leader = load_relaxed(&w->shared->leader);
    robust_mutex_unlock(&w->shared->work_lock);
    return leader;
}

static int stay(weir *w, size_t number)
{
    (void) number;
    (void) add_relaxed(&board->ready, 1);
    return wait_for(&board->go, 1) && time_goes_on(w) ? 0 : 1;
}

/* The opener leaves: a child leads. */
static int lead_after_opener(void)
{
    weir *w = open_shared(4, NULL);
    if (!set_limit(w, "p", 1000000000)) {
        return 1;
    }
    memset((void *) board, 0, sizeof(*board));
    const pid_t child = fork();
    if (child == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        int result = weir_join(w, NULL) == 0 ? stay(w, 0) : 100;
        const uint64_t until_ns = real_ns() + PATIENCE_NS;
        while (result == 0 && leader_of(w) != w->limiter.joined_as) {
            result = real_ns() > until_ns ? 2 : 0;
            nap_ms(1);
        }
        weir_close(w);
        _exit(result);
    }
    if (!wait_for(&board->ready, 1)) {
        return 3;
    }
    weir_close(w);
    (void) add_relaxed(&board->go, 1);
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 4;
}

static void test_another_process_leads_when_the_leader_leaves(void **state)
{
    (void) state;
    if (!forks_with_threads) {
        return; /* needs a background thread in a child */
    }
    assert_int_equal(lead_after_opener(), 0);
}

static void take_grants(weir *w, weir_thread *t)
{
    for (uint64_t name = 0; name < 300; name++) {
        const weir_key key = weir_make_key(w, weir_find_policy(w, "p"), &name, sizeof(name));
        (void) weir_check(t, &key, 1, NULL);
        (void) weir_check(t, &key, 1, NULL);
        (void) weir_check(t, &key, 1, NULL);
    }
}

/* Takes grants of many keys, and a read section, and waits to be killed. */
static void wait_to_be_killed(weir *w)
{
    weir_thread *t = NULL;
    for (int i = 0; i < 3; i++) {
        t = weir_attach(w);
        if (t == NULL) {
            return;
        }
        take_grants(w, t);
    }
    /* A key gets a slot where it comes again within a tick, so a thread that was kept waiting may have none. */
    size_t index = 0;
    while (load_relaxed(&t->slots[index].hash) == 0) {
        index = (index + 1) % t->slot_count;
        if (index == 0) {
            take_grants(w, t);
        }
    }
    rcu_enter(t);
    (void) rcu_enter_lane(&w->limiter);
    (void) slot_account_trylock(t, &t->accounts[index]); /* as a thread that settles, or takes a slot */
    (void) add_relaxed(&board->ready, 1);
    (void) pause();
}

static uint64_t held_cells(const weir *w)
{
    uint64_t count = 0;
    for (size_t i = 0; i < w->limiter.process.table.cell_count; i++) {
        count += (load_relaxed(&w->limiter.process.table.cells[i].held) & HELD_IN_USE) != 0;
    }
    return count;
}

/* As destructors of C++ do, where a child ends before it has joined. */
static void test_a_child_that_has_not_joined_keeps_its_hands_off_handles(void **state)
{
    (void) state;
    weir *w = open_shared(3, NULL);
    weir_thread *t = weir_attach(w);
    assert_non_null(t);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        weir_unbind(t);
        weir_detach(t);
        weir_close(w);
        _exit(0);
    }
    expect_good(child);
    weir_stats stats;
    weir_get_stats(w, &stats);
    assert_int_equal(stats.thread_count, 1);
    weir_thread *another = weir_attach(w);
    assert_non_null(another);
    assert_ptr_not_equal(another, t);
    weir_detach(t);
    weir_detach(another);
    weir_close(w);
}

/* Another process that got the id of a dead one is not taken for it. */
static void test_a_process_is_known_by_its_start_as_well(void **state)
{
    (void) state;
    weir *w = open_shared(3, NULL);
    background_stop(w); /* which would repair what is not broken */
    memset((void *) board, 0, sizeof(*board));
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        const int result = weir_join(w, NULL) == 0 ? wait_for_go(w, 0) : 100;
        weir_close(w);
        _exit(result);
    }
    assert_true(wait_for(&board->ready, 1));
    uint32_t index = 0;
    while (load_relaxed(&w->limiter.joined[index].pid) != child) {
        index++;
    }
    struct joined_process *entry = &w->limiter.joined[index];
    assert_true(load_relaxed(&entry->started) != 0);
    assert_false(joined_is_dead(&w->limiter, index));
    (void) add_relaxed(&entry->started, 1);
    assert_true(joined_is_dead(&w->limiter, index));
    (void) add_relaxed(&entry->started, (uint64_t) -1);
    (void) add_relaxed(&board->go, 1);
    expect_good(child);
    assert_false(joined_is_dead(&w->limiter, index)); /* its place is free */
    weir_close(w);
}

#define LOOKERS 6
#define LEAVERS (SLOWED ? 100 : 300)

/* Looks at all places until it is told to end; counts the processes that it takes for dead. */
static void look_for_dead(const weir *w)
{
    while (load_relaxed(&board->go) == 0) {
        for (uint32_t index = 0; index < w->limiter.max_processes; index++) {
            (void) add_relaxed(&board->failed_at, joined_is_dead(&w->limiter, index));
        }
    }
}

/* A process that leaves and ends, and its place with it, while another looks whether the process has died. */
static void test_a_process_that_leaves_is_not_taken_for_dead(void **state)
{
    (void) state;
    weir *w = open_shared(3, NULL);
    background_stop(w);
    memset((void *) board, 0, sizeof(*board));
    pid_t lookers[LOOKERS];
    for (int i = 0; i < LOOKERS; i++) {
        lookers[i] = fork();
        assert_true(lookers[i] >= 0);
        if (lookers[i] == 0) {
            (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
            look_for_dead(w);
            _exit(0);
        }
    }
    for (int i = 0; i < LEAVERS; i++) {
        const pid_t leaver = fork();
        assert_true(leaver >= 0);
        if (leaver == 0) {
            (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
            const int result = weir_join(w, NULL);
            weir_close(w);
            _exit(result != 0);
        }
        int status = 0;
        assert_int_equal(waitpid(leaver, &status, 0), leaver);
        assert_int_equal(status, 0);
    }
    (void) add_relaxed(&board->go, 1);
    for (int i = 0; i < LOOKERS; i++) {
        expect_good(lookers[i]);
    }
    assert_int_equal(load_relaxed(&board->failed_at), 0);
    weir_close(w);
}

/* What a child that is killed between two calls leaves is repaired by whoever leads. */
static void test_what_the_killed_leave_is_repaired(void **state)
{
    (void) state;
    if (!forks_with_threads) {
        return; /* needs background threads in children */
    }
    weir_options options = WEIR_OPTIONS_INIT;
    options.max_threads = 6;
    options.max_keys = 100000;
    weir *w = open_shared(3, &options);
    assert_true(set_limit(w, "p", 1000));
    weir_thread *own = weir_attach(w);
    for (int round = 0; round < 5; round++) {
        memset((void *) board, 0, sizeof(*board));
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (weir_join(w, NULL) == 0) {
                wait_to_be_killed(w);
            }
            _exit(1);
        }
        assert_true(wait_for(&board->ready, 1));
        assert_int_equal(load_relaxed(&w->limiter.shared->joined_count), 2);
        assert_int_equal(load_relaxed(&w->limiter.shared->line.thread_count), 4);
        background_stop(w);
        (void) kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
        assert_true(set_limit(w, "p", 2000 + (uint64_t) round)); /* before the repair; waits for no dead reader */
        assert_int_equal(background_start(w), 0);
        const uint64_t until_ns = real_ns() + PATIENCE_NS;
        while (load_relaxed(&w->limiter.shared->joined_count) != 1) {
            assert_true(real_ns() < until_ns);
            nap_ms(1);
        }
        assert_int_equal(load_relaxed(&w->limiter.shared->line.thread_count), 1);
        assert_int_equal(held_cells(w), 0);
    }
    weir_detach(own);
    weir_close(w);
}

/* As if the leader had worked an hour from now. */
static void seem_at_work(weir *w)
{
    (void) robust_mutex_lock(&w->limiter.process, &w->shared->work_lock);
    store_relaxed(&w->shared->worked_ns, real_ns() + HOUR);
    robust_mutex_unlock(&w->shared->work_lock);
}

/* A child leads after the leader was killed, within a tenth of a second on a machine that is not busy. */
static void test_another_process_leads_when_the_leader_is_killed(void **state)
{
    (void) state;
    if (!forks_with_threads) {
        return; /* needs background threads in children */
    }
    weir *w = open_shared(4, NULL);
    assert_true(set_limit(w, "p", 1000000000));
    memset((void *) board, 0, sizeof(*board));
    pid_t children[2];
    for (size_t i = 0; i < 2; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
            const int result = weir_join(w, NULL) == 0 ? wait_for_go(w, 0) : 100;
            weir_close(w);
            _exit(result);
        }
        assert_true(wait_for(&board->ready, i + 1));
    }
    /* The opener leads no more: a child does. */
    background_stop(w);
    leader_leave(w);
    const uint64_t until_ns = real_ns() + PATIENCE_NS;
    uint32_t leader = JOINED_NONE;
    while ((leader = leader_of(w)) == JOINED_NONE) {
        assert_true(real_ns() < until_ns);
        nap_ms(1);
    }
    const pid_t pid = (pid_t) load_relaxed(&w->limiter.joined[leader].pid);
    seem_at_work(w); /* so the leader is replaced for its death alone */
    assert_true(pid == children[0] || pid == children[1]);
    const pid_t other = pid == children[0] ? children[1] : children[0];
    (void) kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    while ((leader = leader_of(w)) == JOINED_NONE || load_relaxed(&w->limiter.joined[leader].pid) != other) {
        assert_true(real_ns() < until_ns);
        nap_ms(1);
    }
    (void) add_relaxed(&board->go, 1);
    expect_good(other);
    assert_int_equal(background_start(w), 0);
    assert_true(time_goes_on(w));
    weir_close(w);
}

int main(void)
{
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processes_admit_one_limit_together),
        cmocka_unit_test(test_a_burst_of_exactly_the_limit_passes_whole),
        cmocka_unit_test(test_drawn_limits_hold_for_processes_together),
        cmocka_unit_test(test_a_change_of_policies_is_one_for_all),
        cmocka_unit_test(test_what_cannot_join_is_told_why),
        cmocka_unit_test(test_a_thread_that_ends_gives_back_its_own_handle),
        cmocka_unit_test(test_a_barrier_reaches_a_joined_process),
        cmocka_unit_test(test_another_process_leads_when_the_leader_leaves),
        cmocka_unit_test(test_another_process_leads_when_the_leader_is_killed),
        cmocka_unit_test(test_a_child_that_has_not_joined_keeps_its_hands_off_handles),
        cmocka_unit_test(test_a_process_is_known_by_its_start_as_well),
        cmocka_unit_test(test_a_process_that_leaves_is_not_taken_for_dead),
        cmocka_unit_test(test_what_the_killed_leave_is_repaired),
    };
#ifdef COMPILER_THREAD_SANITIZER
    /* Its sixteen-byte exchange takes a lock of the process, so it is no exchange between two processes. */
    const struct CMUnitTest without_exchanges[] = {tests[3], tests[4], tests[5]};
    return cmocka_run_group_tests_name("stress/processes", without_exchanges, NULL, NULL);
#else
    return cmocka_run_group_tests_name("stress/processes", tests, NULL, NULL);
#endif
}
