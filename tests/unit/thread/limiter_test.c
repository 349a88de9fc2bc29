/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread layer without checks: the memory of handles, who has one, which processes are joined and which have died,
 * and being alone with the table. Processes that die are children that end.
 *
 * Guards: src/thread/limiter.c, src/thread/thread.c, src/thread/joined.c, src/thread/fork_mark.c,
 * src/thread/rcu.c, src/thread/rcu_halt.c, src/thread/rcu_lane.c, src/thread/rcu.h, src/thread/repair.c
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/memory/segment.h"
#include "base/pages.h"
#include "support/bare_process.h"
#include "support/commits.h"
#include "thread/handle.h"
#include "thread/limiter.h"
#include "thread/policy_snapshot.h"
#include "thread/rcu.h"
#include "thread/rcu_halt.h"
#include "thread/rcu_lane.h"
#include "thread/repair.h"
#include "thread/settle.h"
#include "thread/settling.h"
#include "thread/slot.h"

#define PROCESSES 3

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static void open_sized(struct limiter *limiter, size_t max_keys, uint32_t threads, uint32_t processes)
{
    memset(limiter, 0, sizeof(*limiter));
    const struct limiter_options options = {
        .process = {.max_keys = max_keys, .max_log_units = 1000, .origin_ns = BARE_ORIGIN_NS},
        .max_threads = threads,
        .max_processes = processes};
    assert_int_equal(limiter_open(limiter, &options), 0);
    store_relaxed(&limiter->shared->joined_high, processes); /* tests write into places of others */
}

/* A limiter that three processes may use, of which this one is the first. */
static void open_shared(struct limiter *limiter)
{
    open_sized(limiter, 1000, 3, PROCESSES);
}

/*
 * What the linker's --wrap leads here (tests/meson.build). Each reading of the clock is so much later than the one
 * before, and each nap counts; at one of them the reader or the lock that is waited for goes.
 */
static struct {
    uint64_t now_ns, step_ns; /* 0: the system's clock */
    unsigned readings, naps, end_at;
    _Atomic uint64_t *section; /* a thread's count; NULL: none */
    _Atomic uint32_t *word;    /* any other one */
} waited;

static void wait_ends(void)
{
    if (waited.section != NULL) {
        store_relaxed(waited.section, load_relaxed(waited.section) + 1);
    }
    if (waited.word != NULL) {
        store_relaxed(waited.word, 0);
    }
}

int __real_nanosleep(const struct timespec *nap, struct timespec *rest);
int __wrap_nanosleep(const struct timespec *nap, struct timespec *rest);

int __wrap_nanosleep(const struct timespec *nap, struct timespec *rest)
{
    if (waited.section == NULL && waited.word == NULL) {
        return __real_nanosleep(nap, rest);
    }
    if (++waited.naps == waited.end_at) {
        wait_ends();
    }
    return 0;
}

int __real_clock_gettime(clockid_t id, struct timespec *now);
int __wrap_clock_gettime(clockid_t id, struct timespec *now);

int __wrap_clock_gettime(clockid_t id, struct timespec *now)
{
    if (waited.step_ns == 0) {
        return __real_clock_gettime(id, now);
    }
    *now = (struct timespec){.tv_sec = (time_t) (waited.now_ns / SECOND), .tv_nsec = (long) (waited.now_ns % SECOND)};
    waited.now_ns += waited.step_ns;
    if (++waited.readings == waited.end_at) {
        wait_ends();
    }
    return 0;
}

static void wait_no_more(void)
{
    memset(&waited, 0, sizeof(waited));
}

/* Ends, and is waited for: its id is nobody's for now. */
static pid_t dead_process(void)
{
    const pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return child;
}

/* All slots of all threads pin at most a fourth of the keys, but a thread has 64 at least. */
static void test_a_thread_has_as_many_slots_as_the_table_has_room_for(void **state)
{
    (void) state;
    static const struct {
        size_t max_keys;
        uint32_t threads;
        size_t slots;
    } rows[] = {{100, 1, 64},      {511, 1, 64},     {512, 1, 128},   {4095, 1, 512}, {4096, 1, 1024},
                {100000, 1, 1024}, {32768, 8, 1024}, {32767, 8, 512}, {512, 2, 64}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct limiter limiter;
        open_sized(&limiter, rows[i].max_keys, rows[i].threads, 1);
        assert_int_equal(limiter.max_threads, rows[i].threads);
        assert_int_equal(limiter.slots_size, rows[i].threads * limiter.thread_size);
        for (uint32_t n = 0; n < rows[i].threads; n++) {
            const struct weir_thread *t = &limiter.threads[n];
            assert_int_equal(t->slot_count, rows[i].slots);
            assert_int_equal(t->slot_mask, rows[i].slots - SLOT_WAYS);
            assert_int_equal(t->index, n);
            assert_ptr_equal(t->limiter, &limiter);
            assert_ptr_equal(t->process, &limiter.process);
            assert_ptr_equal(t->line, &limiter.shared->line);
            assert_int_equal(t->lock_word, 1);
            /* Its parts lie one behind the other, in its part of the memory. */
            const struct {
                const void *at;
                size_t size;
            } parts[] = {{t->slots, t->slot_count * sizeof(*t->slots)},
                         {t->accounts, t->slot_count * sizeof(*t->accounts)},
                         {t->tallies, (WEIR_MAX_POLICIES + 1) * sizeof(*t->tallies)},
                         {t->recent_keys, RECENT_COUNT * sizeof(*t->recent_keys)},
                         {t->fingerprints, t->slot_count / SLOT_WAYS * sizeof(*t->fingerprints)},
                         {t->set_busy_epochs, t->slot_count / SLOT_WAYS * sizeof(*t->set_busy_epochs)},
                         {t->snapshots, POLICY_SNAPSHOTS_KEPT * sizeof(*t->snapshots)},
                         {t->queues, POLICY_SNAPSHOTS_KEPT * sizeof(*t->queues)}};
            const unsigned char *end = (unsigned char *) limiter.slots + n * limiter.thread_size;
            const unsigned char *const first = end;
            for (size_t part = 0; part < COUNT_OF(parts); part++) {
                assert_ptr_equal(parts[part].at, end);
                end += (parts[part].size + 63) / 64 * 64;
            }
            assert_int_equal(limiter.thread_size, pages_padded((size_t) (end - first)));
            assert_true(n == 0 || t->shared == limiter.threads[n - 1].shared + 1);
        }
        assert_true((unsigned char *) (limiter.threads[rows[i].threads - 1].shared + 1) <=
                    (unsigned char *) limiter.memory + limiter.memory_size);
        limiter_close(&limiter);
    }
    struct limiter limiter = {.max_threads = 0};
    const struct limiter_options too_much = {
        .process = {.max_keys = SIZE_MAX / 4096, .max_log_units = 1}, .max_threads = 1, .max_processes = 1};
    assert_int_equal(limiter_open(&limiter, &too_much), -ENOMEM);
    limiter_close(&limiter);
}

static uint32_t attached(const struct limiter *limiter)
{
    return load_relaxed(&limiter->shared->line.thread_count);
}

static void test_handles_are_handed_out_in_order_and_come_back(void **state)
{
    (void) state;
    struct limiter limiter;
    open_shared(&limiter);
    struct weir_thread *t[3];
    for (uint32_t i = 0; i < 3; i++) {
        limiter.threads[i].shared->time_ns = 7;
        limiter.threads[i].snapshots[1].epoch = 7;
        t[i] = thread_attach(&limiter, UINT64_C(4) * (i + 1));
        assert_ptr_equal(t[i], &limiter.threads[i]);
        assert_int_equal(load_relaxed(&t[i]->shared->owner), 4 * (i + 1));
        assert_int_equal(load_relaxed(&limiter.shared->thread_high), i + 1);
        assert_int_equal(attached(&limiter), i + 1);
        assert_int_equal(load_relaxed(&t[i]->shared->present), 1);
        assert_int_equal(t[i]->shared->time_ns, 0);
        assert_int_equal(t[i]->snapshots[1].epoch, 0);
    }
    assert_null(thread_attach(&limiter, 396));
    assert_int_equal(load_relaxed(&limiter.shared->attach_failures[ATTACH_FULL]), 1);
    thread_detach(t[1]);
    assert_int_equal(load_relaxed(&t[1]->shared->owner), HANDLE_FREE);
    assert_int_equal(attached(&limiter), 2);
    thread_detach(t[1]); /* it is nobody's */
    assert_int_equal(attached(&limiter), 2);
    assert_ptr_equal(thread_attach(&limiter, 44), t[1]);
    assert_int_equal(attached(&limiter), 3);
    assert_int_equal(load_relaxed(&limiter.shared->thread_high), 3);
    /* By the token of the thread that ends; a handle that was attached anew has another one. */
    thread_detach_bound(t[1], 8);
    assert_int_equal(attached(&limiter), 3);
    thread_detach_bound(t[1], 44);
    assert_int_equal(attached(&limiter), 2);
    thread_unbind(t[1]);
    assert_int_equal(load_relaxed(&t[1]->shared->owner), HANDLE_FREE);
    thread_unbind(t[0]);
    assert_int_equal(load_relaxed(&t[0]->shared->owner), HANDLE_UNBOUND);
    thread_detach_bound(t[0], 4);
    assert_int_equal(attached(&limiter), 2);
    /* One that another thread detaches is left to that one. */
    store_relaxed(&t[2]->shared->owner, HANDLE_LEAVING);
    thread_detach(t[2]);
    thread_unbind(t[2]);
    assert_int_equal(load_relaxed(&t[2]->shared->owner), HANDLE_LEAVING);
    thread_free(t[2]);
    assert_int_equal(attached(&limiter), 1);
    thread_detach(t[0]);
    assert_int_equal(attached(&limiter), 0);
    limiter_close(&limiter);
}

/* How often somebody has yielded. The linker's --wrap leads these calls here. */
static unsigned yields;

/* Whether there is no memory for what a repair works on. */
static bool no_memory;

void *__real_pages_reserve(size_t size, unsigned use);
void *__wrap_pages_reserve(size_t size, unsigned use);

void *__wrap_pages_reserve(size_t size, unsigned use)
{
    return no_memory ? NULL : __real_pages_reserve(size, use);
}

int __real_sched_yield(void);
int __wrap_sched_yield(void);

int __wrap_sched_yield(void)
{
    yields++;
    return __real_sched_yield();
}

static void test_the_memory_of_a_handle_is_had_present_once(void **state)
{
    (void) state;
    struct limiter limiter;
    open_shared(&limiter);
    struct segment segment = {.at = NULL};
    struct pages_owner owner = {.segment = &segment};
    limiter.process.pages = &owner;
    struct weir_thread *t = &limiter.threads[0];
    commits.count = 0;
    commits.result = -ENOSPC;
    for (unsigned tries = 1; tries <= 2; tries++) {
        assert_null(thread_attach(&limiter, 4));
        assert_int_equal(commits.count, tries);
        assert_int_equal(load_relaxed(&t->shared->present), 0);
        assert_int_equal(load_relaxed(&t->shared->owner), HANDLE_FREE);
        assert_int_equal(load_relaxed(&limiter.shared->thread_high), 0); /* nobody looks at its slots */
        assert_int_equal(load_relaxed(&limiter.shared->attach_failures[ATTACH_NO_ROOM]), tries);
    }
    assert_int_equal(load_relaxed(&limiter.shared->attach_failures[ATTACH_FULL]), 0);
    commits.result = 0;
    for (unsigned times = 0; times < 2; times++) {
        assert_ptr_equal(thread_attach(&limiter, 4), t);
        assert_int_equal(commits.count, 3);
        thread_detach(t);
    }
    assert_ptr_equal(commits.at, t->slots);
    assert_int_equal(commits.size, limiter.thread_size);
    limiter.process.pages = NULL;
    limiter_close(&limiter);
}

static struct {
    struct slot_account *account;
    unsigned yields, repairs;
} stuck;

static bool finds_dead(void *arg)
{
    (void) arg;
    stuck.yields = yields;
    return true;
}

static void frees_slot(struct limiter *limiter)
{
    assert_int_equal(load_relaxed(&limiter->threads[0].shared->rcu_count) % 2, 0); /* outside of a section */
    stuck.repairs++;
    store_relaxed(&stuck.account->lock, 0);
}

/* Of 8,000 looks the first 2,000 only spin. */
static void test_a_thread_that_leaves_waits_for_its_slots_and_has_repaired_what_the_dead_left(void **state)
{
    (void) state;
    struct limiter limiter;
    open_shared(&limiter);
    limiter.process.free_locks = finds_dead;
    limiter.repair = frees_slot;
    struct weir_thread *t = thread_attach(&limiter, 4);
    stuck.account = &t->accounts[t->slot_count - 1];
    store_relaxed(&t->slots[t->slot_count - 1].hash, 77);
    store_relaxed(&stuck.account->lock, 2);
    yields = 0;
    thread_detach(t);
    assert_int_equal(stuck.repairs, 1);
    assert_int_equal(stuck.yields, 6000);
    assert_int_equal(load_relaxed(&t->slots[t->slot_count - 1].hash), 0);
    assert_int_equal(load_relaxed(&t->shared->owner), HANDLE_FREE);
    limiter_close(&limiter);
}

static void test_a_handle_of_another_process_is_left_to_it(void **state)
{
    (void) state;
    struct limiter limiter;
    open_shared(&limiter);
    struct weir_thread *t = thread_attach(&limiter, 4);
    limiter_join(&limiter, 2);
    assert_int_equal(limiter.process.lock_word, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(limiter.threads[i].lock_word, 3);
    }
    struct weir_thread *own = thread_attach(&limiter, 4);
    assert_int_equal(load_relaxed(&own->shared->owner), UINT64_C(2) << 48 | 4);
    assert_int_equal(handle_process(load_relaxed(&own->shared->owner)), 2);
    thread_detach(t);
    thread_unbind(t);
    thread_detach_bound(t, 4);
    assert_int_equal(load_relaxed(&t->shared->owner), 4);
    /* Nor is it this process's because damaged memory says so. */
    store_relaxed(&t->shared->owner, UINT64_C(2) << 48 | 4);
    thread_detach(t);
    thread_unbind(t);
    thread_detach_bound(t, 4);
    assert_int_equal(load_relaxed(&t->shared->owner), UINT64_C(2) << 48 | 4);
    assert_true(limiter_has_handles(&limiter));
    /* A child that has not joined has its parent's number, and none of the handles. */
    limiter_forget(&limiter);
    thread_detach(own);
    thread_unbind(own);
    assert_int_equal(load_relaxed(&own->shared->owner), UINT64_C(2) << 48 | 4);
    limiter.mark = fork_mark_own();
    thread_detach(own);
    assert_int_equal(load_relaxed(&own->shared->owner), HANDLE_FREE);
    assert_false(limiter_has_handles(&limiter));
    assert_int_equal(attached(&limiter), 1);
    limiter_close(&limiter);
    /* A weir that is not shared has no child that may join. */
    open_sized(&limiter, 1000, 1, 1);
    t = thread_attach(&limiter, 4);
    limiter_forget(&limiter);
    thread_detach(t);
    assert_int_equal(attached(&limiter), 0);
    limiter_close(&limiter);
}

static void test_a_mark_is_of_one_process(void **state)
{
    (void) state;
    const struct fork_mark own = fork_mark_own();
    assert_int_equal(own.pid, getpid());
    assert_true(fork_mark_is_own(own));
    assert_false(fork_mark_is_own((struct fork_mark){0}));
    assert_false(fork_mark_is_own((struct fork_mark){.pid = own.pid, .forks = own.forks + 1}));
    assert_false(fork_mark_is_own((struct fork_mark){.pid = own.pid + 1, .forks = own.forks}));
    const pid_t child = fork();
    if (child == 0) {
        const struct fork_mark its = fork_mark_own();
        _exit(!fork_mark_is_own(own) && its.forks == own.forks + 1 && its.pid == getpid() ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(fork_mark_is_own(own));
}

static uint32_t joined(const struct limiter *limiter)
{
    return load_relaxed(&limiter->shared->joined_count);
}

static void test_processes_enter_free_places_and_leave_them_in_two_steps(void **state)
{
    (void) state;
    struct limiter limiter;
    open_shared(&limiter);
    assert_int_equal(limiter.joined_as, 0);
    assert_int_equal(joined(&limiter), 1);
    assert_int_equal(load_relaxed(&limiter.joined[0].pid), getpid());
    const uint64_t started = load_relaxed(&limiter.joined[0].started);
    assert_int_not_equal(started, 0);
    assert_int_equal(joined_enter(&limiter), 1);
    assert_int_equal(joined_enter(&limiter), 2);
    assert_int_equal(joined(&limiter), 3);
    assert_int_equal(load_relaxed(&limiter.joined[2].started), started);
    assert_int_equal(joined_enter(&limiter), JOINED_NONE);
    assert_int_equal(joined_leave_begin(&limiter, 1), 2);
    assert_int_equal(joined(&limiter), 2);
    assert_int_equal(load_relaxed(&limiter.joined[1].leaving), 1);
    assert_int_equal(joined_enter(&limiter), JOINED_NONE); /* the place is taken until it has left */
    assert_int_equal(joined_leave_begin(&limiter, 0), 1);
    joined_leave(&limiter, 1);
    assert_int_equal(load_relaxed(&limiter.joined[1].pid), 0);
    assert_int_equal(load_relaxed(&limiter.joined[1].leaving), 0);
    assert_int_equal(load_relaxed(&limiter.joined[1].started), 0);
    assert_int_equal(joined(&limiter), 1);
    assert_int_equal(joined_enter(&limiter), 1);
    assert_int_equal(joined(&limiter), 2);
    joined_leave(&limiter, 2); /* in the place of a dead process, which has not begun to leave */
    assert_int_equal(joined(&limiter), 1);
    limiter_close(&limiter);
    /* What lies behind the last place is no process. */
    open_sized(&limiter, 1000, 1, 4);
    assert_ptr_equal(limiter.lanes, limiter.joined + 4);
    store_relaxed(&limiter.lanes[0].inside[0], 1);
    for (uint32_t i = 1; i < 4; i++) {
        assert_int_equal(joined_enter(&limiter), i);
        assert_int_equal(joined(&limiter), i + 1);
    }
    store_relaxed(&limiter.lanes[0].inside[0], 0);
    assert_int_equal(joined_enter(&limiter), JOINED_NONE);
    assert_int_not_equal(joined_pid_namespace(), 0);
    assert_int_equal(limiter.pid_namespace, joined_pid_namespace());
    limiter_close(&limiter);
}

/* Of 1,024 places three are used: who waits for readers, or looks for the dead, looks at those alone. */
static void test_walks_over_places_end_at_the_highest_that_was_ever_in_use(void **state)
{
    (void) state;
    struct limiter limiter = {.shared = NULL};
    const struct limiter_options options = {
        .process = {.max_keys = 1000, .max_log_units = 1000}, .max_threads = 1, .max_processes = PROCESSES_MOST};
    assert_int_equal(limiter_open(&limiter, &options), 0);
    assert_int_equal(joined_high(&limiter), 1);
    assert_int_equal(joined_enter(&limiter), 1);
    assert_int_equal(joined_enter(&limiter), 2);
    assert_int_equal(joined_high(&limiter), 3);
    joined_leave(&limiter, 2);
    joined_leave(&limiter, 1);
    assert_int_equal(joined_enter(&limiter), 1); /* the lowest that is free */
    assert_int_equal(joined_high(&limiter), 3);
    assert_int_equal(joined(&limiter), 2);
    /* Nobody is there: a walk that came here would count a process, and wait for a reader without end. */
    store_relaxed(&limiter.joined[3].pid, getpid());
    for (size_t lane = 0; lane < RCU_LANES; lane++) {
        store_relaxed(&limiter.lanes[3 * RCU_LANES + lane].inside[0], 1);
        store_relaxed(&limiter.lanes[3 * RCU_LANES + lane].inside[1], 1);
    }
    joined_leave(&limiter, 1);
    assert_int_equal(joined(&limiter), 1);
    rcu_synchronize(&limiter);
    static const bool dead[PROCESSES_MOST];
    assert_true(rcu_halt(&limiter, dead));
    rcu_halt_end(&limiter);
    uint32_t cursor = 0;
    for (size_t i = 0; i < 9; i++) {
        repair_next(&limiter, &cursor);
        assert_in_range(cursor, 0, 2);
    }
    /* In a segment that is damaged there may be any number. */
    store_relaxed(&limiter.joined[3].pid, 0);
    store_relaxed(&limiter.shared->joined_high, UINT32_MAX);
    assert_int_equal(joined_high(&limiter), PROCESSES_MOST);
    limiter_close(&limiter);
}

static void test_a_process_is_dead_when_no_other_one_has_its_id_and_its_start(void **state)
{
    (void) state;
    struct limiter limiter;
    open_shared(&limiter);
    struct joined_process *entry = &limiter.joined[1];
    const uint64_t started = load_relaxed(&limiter.joined[0].started);
    assert_false(joined_is_dead(&limiter, 0));
    assert_false(joined_is_dead(&limiter, 1)); /* a free place */
    store_relaxed(&entry->pid, getpid());
    assert_false(joined_is_dead(&limiter, 1)); /* its start is not known yet */
    store_relaxed(&entry->started, started);
    assert_false(joined_is_dead(&limiter, 1));
    store_relaxed(&entry->started, started - 1);
    assert_true(joined_is_dead(&limiter, 1)); /* another process had the id */
    store_relaxed(&entry->pid, dead_process());
    assert_true(joined_is_dead(&limiter, 1));
    store_relaxed(&entry->started, 0);
    assert_true(joined_is_dead(&limiter, 1));
    /* A child that has ended, and that nobody has waited for; and one that waits to be killed. */
    for (int killed = 0; killed < 2; killed++) {
        const pid_t child = fork();
        if (child == 0) {
            while (killed != 0 && pause() != 0) {
            }
            _exit(0);
        }
        store_relaxed(&entry->pid, child);
        if (killed != 0) {
            assert_false(joined_is_dead(&limiter, 1));
            assert_int_equal(kill(child, SIGKILL), 0);
        }
        for (int tries = 0; !joined_is_dead(&limiter, 1); tries++) {
            assert_true(tries < 60000);
            nap_ms(1);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
    }
    limiter_close(&limiter);
}

static void *pauses(void *arg)
{
    while (pause() != 0) {
    }
    return arg;
}

/* The state of a process's first thread, as the system tells it. */
static char letter_of(pid_t pid)
{
    char text[256] = "";
    (void) snprintf(text, sizeof(text), "/proc/%d/task/%d/stat", (int) pid, (int) pid);
    FILE *file = fopen(text, "re");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof(text), file));
    assert_int_equal(fclose(file), 0);
    const char *end = strrchr(text, ')');
    assert_non_null(end);
    return end[2];
}

static void test_a_process_lives_while_any_of_its_threads_does(void **state)
{
    (void) state;
#ifdef EMULATED
    skip(); /* the first thread is the emulator's */
#endif
    struct limiter limiter;
    open_shared(&limiter);
    const pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        const int result = pthread_create(&thread, NULL, pauses, NULL);
        (void) syscall(SYS_exit, 0); /* of this thread alone */
        _exit(result);
    }
    while (letter_of(child) != 'Z') {
        nap_ms(1);
    }
    store_relaxed(&limiter.joined[1].pid, child);
    assert_false(joined_is_dead(&limiter, 1));
    assert_int_equal(kill(child, SIGKILL), 0);
    while (!joined_is_dead(&limiter, 1)) {
        nap_ms(1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    limiter_close(&limiter);
}

/*
 * What the system says of a process, in place of what it does say; NULL: what it does. Empty: nothing. And who takes
 * the process's place in the meantime; NULL: nobody does.
 */
static const char *told;
static struct joined_process *taken;
static struct {
    int32_t pid;
    uint64_t started;
} taker;

ssize_t __real_read(int fd, void *to, size_t size);
ssize_t __wrap_read(int fd, void *to, size_t size);

ssize_t __wrap_read(int fd, void *to, size_t size)
{
    if (told == NULL) {
        return __real_read(fd, to, size);
    }
    if (taken != NULL) {
        store_relaxed(&taken->pid, taker.pid);
        store_relaxed(&taken->started, taker.started);
    }
    const size_t length = strlen(told) < size ? strlen(told) : size;
    memcpy(to, told, length);
    return length != 0 ? (ssize_t) length : -1;
}

/* Of /proc/PID/stat: a name of any bytes, a letter, the number of threads, and the start. Else this process lives. */
static void test_a_process_is_known_by_what_stands_behind_its_name(void **state)
{
    (void) state;
#define UP_TO_THREADS " 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 "
    static const struct {
        const char *text;
        bool dead;
    } rows[] = {{"1 (x) S" UP_TO_THREADS "1 21 500 23\n", false},
                {"1 (x) S" UP_TO_THREADS "1 21 501 23\n", true},
                {"1 (x) S" UP_TO_THREADS "9 500 21 500\n", true},
                {"1 (x) Z" UP_TO_THREADS "1 21 500 23\n", true},
                {"1 (x) Z" UP_TO_THREADS "0 21 500", true},
                {"1 (x) Z" UP_TO_THREADS "2 21 500", false},
                {"1 (x) X" UP_TO_THREADS "1 21 500", true},
                {"1 (x) X" UP_TO_THREADS "2 21 500", false},
                {"1 (x) D" UP_TO_THREADS "2 21 500", false},
                {"1 (a) Z 4 (b) S" UP_TO_THREADS "1 21 500 23\n", false},
                {"1 (a) S 4 (b) Z" UP_TO_THREADS "1 21 500 23\n", true},
                {"1 (x) Z" UP_TO_THREADS "1 21", false},
                {"1 (x) Z 4", false},
                {"1 (x)Z" UP_TO_THREADS "1 21 501", false},
                {"1 Z" UP_TO_THREADS "1 21 501", false},
                {"", false}};
    struct limiter limiter;
    open_shared(&limiter);
    store_relaxed(&limiter.joined[1].pid, getpid());
    store_relaxed(&limiter.joined[1].started, 500);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        told = rows[i].text;
        const bool dead = joined_is_dead(&limiter, 1);
        told = NULL;
        if (dead != rows[i].dead) {
            fail_msg("%s: a process that is %s", rows[i].text, dead ? "dead" : "alive");
        }
    }
    /* It left before its end, and another one has its place: of another id, or of another start. */
    told = rows[1].text;
    taken = &limiter.joined[1];
    for (int which = 0; which < 3; which++) {
        store_relaxed(&taken->pid, getpid());
        store_relaxed(&taken->started, 500);
        taker.pid = which == 1 ? getpid() + 1 : getpid();
        taker.started = which == 2 ? 501 : 500;
        assert_int_equal(joined_is_dead(&limiter, 1), which == 0);
    }
    taken = NULL;
    told = NULL;
    store_relaxed(&limiter.joined[1].pid, getpid());
    store_relaxed(&limiter.joined[1].started, 500);
    /* Also where this process has no standard input. */
    const int in = dup(STDIN_FILENO);
    (void) close(STDIN_FILENO);
    const size_t descriptors = count_descriptors();
    told = rows[1].text;
    const bool dead = joined_is_dead(&limiter, 1);
    told = NULL;
    assert_int_equal(count_descriptors(), descriptors);
    if (in >= 0) {
        (void) dup2(in, STDIN_FILENO);
        (void) close(in);
    }
    assert_true(dead);
    limiter_close(&limiter);
}

static const bool nobody[PROCESSES];

/* Barriers that all threads pass. The linker's --wrap leads the call here. */
static struct {
    unsigned count;
    enum barrier_reach reach;
} barriers;

void __real_barrier_all_threads(enum barrier_reach reach);
void __wrap_barrier_all_threads(enum barrier_reach reach);

void __wrap_barrier_all_threads(enum barrier_reach reach)
{
    barriers.count++;
    barriers.reach = reach;
    __real_barrier_all_threads(reach);
}

/* Readers have no fence of their own then. */
static void test_all_threads_pass_a_barrier_before_readers_are_looked_at_where_the_system_has_one(void **state)
{
    (void) state;
    for (unsigned i = 0; i < 4; i++) {
        struct limiter limiter;
        open_sized(&limiter, 1000, 1, i < 2 ? 1 : PROCESSES);
        const bool grants = limiter.grants && i % 2 == 0;
        limiter.grants = grants;
        barriers.count = 0;
        rcu_synchronize(&limiter);
        assert_int_equal(barriers.count, grants);
        assert_true(rcu_halt(&limiter, nobody));
        rcu_halt_end(&limiter);
        assert_int_equal(barriers.count, 2 * grants);
        assert_true(!grants || barriers.reach == limiter.reach);
        limiter_close(&limiter);
    }
}

static void test_a_process_is_alone_with_the_table_when_all_living_threads_are_out_of_it(void **state)
{
    (void) state;
    enum { NONE, OPEN, OF_THE_DEAD, LANE, LANE_OF_THE_DEAD, BOTH, PHASES, HALTED, HALTED_BY_THE_DEAD, CASES };
    static const bool second[PROCESSES] = {false, true, false};
    for (int which = 0; which < CASES; which++) {
        struct limiter limiter;
        open_shared(&limiter);
        store_relaxed(&limiter.joined[1].pid, getpid());
        store_relaxed(&limiter.joined[2].pid, getpid());
        struct weir_thread *t = thread_attach(&limiter, 4);
        const bool is_dead = which == OF_THE_DEAD || which == LANE_OF_THE_DEAD || which == HALTED_BY_THE_DEAD;
        unsigned lane = 0;
        if (which == OPEN || which == OF_THE_DEAD) {
            store_relaxed(&t->shared->owner, UINT64_C(1) << 48 | 4);
            rcu_enter(t);
        } else if (which == LANE || which == LANE_OF_THE_DEAD) {
            limiter.joined_as = 1;
            lane = rcu_enter_lane(&limiter);
            limiter.joined_as = 0;
            assert_in_range(lane / 2, RCU_LANES, 2 * RCU_LANES - 1);
        } else if (which == BOTH || which == PHASES) { /* a thread and a caller without a handle, or two callers */
            store_relaxed(&t->shared->rcu_count, which == BOTH);
            store_relaxed(&limiter.lanes[2].inside[0], which == PHASES);
            store_relaxed(&limiter.lanes[2].inside[1], 1);
        } else if (which == HALTED || which == HALTED_BY_THE_DEAD) {
            store_relaxed(&limiter.process.shared->halted_by, 2);
        }
        const bool alone = which == NONE || is_dead;
        assert_int_equal(rcu_halt(&limiter, is_dead ? second : nobody), alone);
        assert_int_equal(load_relaxed(&limiter.process.shared->halted_by), alone ? 1 : which == HALTED ? 2 : 0);
        if (alone) {
            assert_false(rcu_halt(&limiter, nobody)); /* it is, already */
            rcu_halt_end(&limiter);
        }
        /* The dead leave their sections. */
        if (which == OF_THE_DEAD) {
            rcu_halt_forget(t);
            assert_int_equal(load_relaxed(&t->shared->rcu_count) % 2, 0);
            assert_int_equal(t->shared->rcu_depth, 0);
            const uint64_t count = load_relaxed(&t->shared->rcu_count);
            rcu_halt_forget(t);
            assert_int_equal(load_relaxed(&t->shared->rcu_count), count);
            assert_true(rcu_halt(&limiter, nobody));
        } else if (which == LANE_OF_THE_DEAD) {
            store_relaxed(&limiter.shared->rcu.lock, 2);
            store_relaxed(&limiter.lanes[lane / 2].inside[lane % 2], 0);
            for (size_t at = RCU_LANES - 1; at <= 2 * RCU_LANES; at++) { /* of all lanes of the dead, and of no other */
                const bool of_the_dead = at / RCU_LANES == 1;
                _Atomic uint32_t *inside = &limiter.lanes[at].inside[at % 2];
                store_relaxed(inside, 1);
                assert_int_equal(rcu_halt(&limiter, second), of_the_dead);
                rcu_halt_end(&limiter);
                store_relaxed(inside, 0);
            }
            for (size_t at = 0; at < PROCESSES * RCU_LANES; at++) {
                for (unsigned phase = 0; phase < 2; phase++) {
                    store_relaxed(&limiter.lanes[at].inside[phase], 1);
                }
            }
            rcu_halt_forget_lanes(&limiter, 1);
            for (size_t at = 0; at < PROCESSES * RCU_LANES; at++) {
                for (unsigned phase = 0; phase < 2; phase++) { /* those of the others stay */
                    assert_int_equal(load_relaxed(&limiter.lanes[at].inside[phase]), at / RCU_LANES != 1);
                    store_relaxed(&limiter.lanes[at].inside[phase], 0);
                }
            }
            assert_int_equal(load_relaxed(&limiter.shared->rcu.lock), 0);
            assert_true(rcu_halt(&limiter, nobody));
            store_relaxed(&limiter.shared->rcu.lock, 1);
            rcu_halt_forget_lanes(&limiter, 1);
            assert_int_equal(load_relaxed(&limiter.shared->rcu.lock), 1);
            store_relaxed(&limiter.shared->rcu.lock, 0);
        } else if (which == OPEN) {
            rcu_leave(t);
            assert_true(rcu_halt(&limiter, nobody));
        } else if (which == BOTH || which == PHASES) {
            store_relaxed(&t->shared->rcu_count, 0);
            store_relaxed(&limiter.lanes[2].inside[0], 0);
            store_relaxed(&limiter.lanes[2].inside[1], 0);
        } else if (which == LANE) {
            rcu_leave_lane(&limiter, lane);
            assert_true(rcu_halt(&limiter, nobody));
        }
        rcu_halt_end(&limiter);
        rcu_synchronize(&limiter);
        limiter_close(&limiter);
    }
}

static void test_sections_are_nested_and_one_for_a_change_is_there_where_processes_share_alone(void **state)
{
    (void) state;
    for (uint32_t processes = 1; processes <= 2; processes++) {
        struct limiter limiter;
        open_sized(&limiter, 1000, 1, processes);
        struct weir_thread *t = thread_attach(&limiter, 4);
        assert_int_equal(limiter.reach, processes > 1 ? BARRIER_JOINED : BARRIER_OWN);
        rcu_enter(t);
        rcu_enter(t);
        assert_int_equal(load_relaxed(&t->shared->rcu_count), 1);
        rcu_leave(t);
        assert_int_equal(load_relaxed(&t->shared->rcu_count), 1);
        rcu_leave(t);
        assert_int_equal(load_relaxed(&t->shared->rcu_count), 2);
        const bool entered = rcu_enter_to_change(t);
        assert_int_equal(entered, processes > 1);
        assert_int_equal(load_relaxed(&t->shared->rcu_count), processes > 1 ? 3 : 2);
        rcu_leave_to_change(t, entered);
        assert_int_equal(load_relaxed(&t->shared->rcu_count), processes > 1 ? 4 : 2);
        /* Both phases of a lane, in turn. */
        unsigned lanes[2];
        for (unsigned phase = 0; phase < 2; phase++) {
            store_relaxed(&limiter.shared->rcu.phase, phase);
            lanes[phase] = rcu_enter_lane(&limiter);
            assert_int_equal(lanes[phase] % 2, phase);
            assert_int_equal(load_relaxed(&limiter.lanes[lanes[phase] / 2].inside[phase]), 1);
        }
        for (unsigned phase = 0; phase < 2; phase++) {
            rcu_leave_lane(&limiter, lanes[phase]);
            assert_int_equal(load_relaxed(&limiter.lanes[lanes[phase] / 2].inside[phase]), 0);
        }
        limiter_close(&limiter);
    }
}

static void test_nobody_waits_for_the_dead(void **state)
{
    (void) state;
    struct limiter limiter;
    open_shared(&limiter);
    struct weir_thread *t = thread_attach(&limiter, 4);
    struct weir_thread *its = thread_attach(&limiter, 8);
    store_relaxed(&limiter.joined[1].pid, dead_process());
    store_relaxed(&limiter.joined[1].started, 1);
    _Atomic uint32_t *halted_by = &limiter.process.shared->halted_by;
    store_relaxed(halted_by, 2);
    rcu_enter(t);
    assert_int_equal(load_relaxed(halted_by), 0);
    assert_int_equal(load_relaxed(&t->shared->rcu_count), 3); /* it left, and came again */
    rcu_leave(t);
    store_relaxed(halted_by, 2);
    const unsigned lane = rcu_enter_lane(&limiter);
    assert_int_equal(load_relaxed(halted_by), 0);
    assert_int_equal(load_relaxed(&limiter.lanes[lane / 2].inside[lane % 2]), 1);
    rcu_leave_lane(&limiter, lane);
    /* The lock of the one that waits for readers, and what it waits for: a thread's section, and one in each phase. */
    store_relaxed(&limiter.shared->rcu.lock, 2);
    store_relaxed(&its->shared->owner, UINT64_C(1) << 48 | 8);
    store_relaxed(&its->shared->rcu_count, 1);
    store_relaxed(&limiter.lanes[RCU_LANES].inside[0], 1);
    store_relaxed(&limiter.lanes[2 * RCU_LANES - 1].inside[1], 1);
    const uint32_t phase = load_relaxed(&limiter.shared->rcu.phase);
    rcu_synchronize(&limiter);
    assert_int_equal(load_relaxed(&limiter.shared->rcu.lock), 0);
    assert_int_equal(load_relaxed(&limiter.shared->rcu.phase), phase); /* turned twice */
    limiter_close(&limiter);
}

/* What a dead process leaves in the second place: a handle, a slot's lock, an open section, and a pinned cell. */
struct wreck {
    struct limiter limiter;
    struct policy policy;
    struct weir_thread *own, *its;
    pid_t pid;
    uint32_t limits; /* of this process's slot */
};

static void wreck_open(struct wreck *wreck, weir_algorithm algorithm)
{
    open_shared(&wreck->limiter);
    struct limiter *limiter = &wreck->limiter;
    limiter->host_time = true;
    bare_policy_init(&wreck->policy, algorithm, 100);
    wreck->own = thread_attach(limiter, 4);
    wreck->its = thread_attach(limiter, 8);
    wreck->pid = dead_process();
    wreck->limits = 1;
    store_relaxed(&limiter->joined[1].pid, wreck->pid);
    store_relaxed(&limiter->joined[1].started, 1);
    store_relaxed(&wreck->its->shared->owner, UINT64_C(1) << 48 | 8);
    const uint64_t hash = 77;
    bare_occupy(&limiter->process, &wreck->policy, 5, hash, rule_fresh(&wreck->policy.limits[0].rule, BARE_NOW_NS));
    if (rule_has_history(&wreck->policy.limits[0].rule)) {
        /* Who is granted units of a log has been promised room. */
        history_store_lock(&limiter->process, 5);
        assert_non_null(history_store_room(&limiter->process, 5, &wreck->policy.limits[0].rule, 20, BARE_NOW_NS));
        history_store_unlock(&limiter->process, 5);
    }
    for (int i = 0; i < 2; i++) {
        /* A slot of the dead, and one of this process that the dead was settling: each with 10 units, of which 4
         * passed. */
        struct weir_thread *t = i == 0 ? wreck->its : wreck->own;
        struct slot_account *account = &t->accounts[3];
        account->limit_count = 1;
        account->cells[0] = account->cells[1] = 5; /* the second is of an earlier key */
        account->rules[0] = wreck->policy.limits[0].rule;
        account->granted_ns = BARE_NOW_NS;
        store_relaxed(&account->granted, 10);
        store_relaxed(&t->slots[3].used, 4);
        store_relaxed(&t->slots[3].hash, hash);
        store_relaxed(&t->slots[3].grant, grant_make(1, 10));
        (void) cell_hold(&limiter->process.table.cells[5], HELD_PIN + 10);
    }
    store_relaxed(&wreck->own->accounts[3].lock, 2);
    (void) cell_hold(&limiter->process.table.cells[5], 50); /* of a request under way */
    store_relaxed(&wreck->its->shared->rcu_count, 1);
    wreck->its->shared->rcu_depth = 1;
    store_relaxed(&limiter->lanes[RCU_LANES].inside[1], 1);
}

static void wreck_expect_charged(const struct wreck *wreck, uint64_t units)
{
    const struct limiter *limiter = &wreck->limiter;
    const struct cell *cell = &limiter->process.table.cells[5];
    /* Only this process's slot still pins the cell. */
    assert_int_equal(rule_headroom(&wreck->policy.limits[0].rule, cell_state(dwcas_read(&cell->state)), BARE_NOW_NS),
                     100 - units);
    assert_int_equal(load_relaxed(&cell->held) & HELD_IN_USE, HELD_PIN);
    assert_int_equal(load_relaxed(&wreck->own->accounts[3].lock), 0);
    assert_int_equal(load_relaxed(&wreck->own->slots[3].grant), 0);
    assert_int_equal(load_relaxed(&wreck->own->slots[3].hash), 77);
    assert_int_equal(wreck->own->accounts[3].limit_count, wreck->limits);
    assert_int_equal(load_relaxed(&wreck->own->accounts[3].accounted), 4);
    assert_int_equal(load_relaxed(&wreck->its->slots[3].hash), 0);
    assert_int_equal(wreck->its->accounts[3].limit_count, 0);
    assert_int_equal(load_relaxed(&wreck->its->shared->owner), HANDLE_FREE);
    assert_int_equal(load_relaxed(&wreck->its->shared->rcu_count) % 2, 0);
    assert_int_equal(wreck->its->shared->rcu_depth, 0);
    assert_int_equal(load_relaxed(&limiter->lanes[RCU_LANES].inside[1]), 0);
    assert_int_equal(load_relaxed(&limiter->joined[1].pid), 0);
    assert_int_equal(load_relaxed(&limiter->joined[0].pid), getpid());
    assert_int_equal(attached(limiter), 1);
    assert_int_equal(joined(limiter), 1);
    assert_int_equal(load_relaxed(&limiter->process.shared->halted_by), 0);
    assert_int_equal(load_relaxed(&limiter->shared->repairing) & 2047, 0);
}

/* What passed on either grant is charged. */
static void wreck_expect_repaired(const struct wreck *wreck)
{
    wreck_expect_charged(wreck, 8);
}

static void test_what_a_dead_process_had_is_charged_and_freed_once(void **state)
{
    (void) state;
    for (int by_turn = 0; by_turn < 2; by_turn++) {
        struct wreck wreck;
        wreck_open(&wreck, WEIR_FIXED_WINDOW);
        struct limiter *limiter = &wreck.limiter;
        store_relaxed(&limiter->process.shared->stalled, 1);
        /* A slot of this process that nobody has locked goes on: what the cells of its limits hold for it stays. */
        struct slot_account *goes_on = &wreck.own->accounts[4];
        goes_on->limit_count = 2;
        store_relaxed(&goes_on->granted, 6);
        for (uint32_t limit = 0; limit < 2; limit++) {
            goes_on->cells[limit] = 8 + limit;
            bare_occupy(&limiter->process, &wreck.policy, 8 + limit, 80 + limit, (struct state){0, 0});
            (void) cell_hold(&limiter->process.table.cells[8 + limit], HELD_PIN + 6 + 50);
        }
        struct slot_account *locked = &wreck.own->accounts[5]; /* by a thread of this process */
        locked->limit_count = 1;
        locked->cells[0] = 9;
        store_relaxed(&locked->granted, 3);
        store_relaxed(&locked->lock, 1);
        (void) cell_hold(&limiter->process.table.cells[9], HELD_PIN + 3);
        uint32_t cursor = 0;
        if (by_turn != 0) {
            repair_next(limiter, &cursor); /* over the places in turn, but for the free ones */
            assert_int_equal(cursor, 1);
        } else {
            repair_all(limiter);
        }
        wreck_expect_repaired(&wreck);
        for (uint32_t limit = 0; limit < 2; limit++) {
            const uint64_t of_locked = limit == 1 ? HELD_PIN + 3 : 0;
            assert_int_equal(load_relaxed(&limiter->process.table.cells[8 + limit].held) & HELD_IN_USE,
                             HELD_PIN + 6 + of_locked);
        }
        assert_int_equal(load_relaxed(&locked->lock), 1);
        assert_int_equal(load_relaxed(&locked->granted), 3);
        assert_int_equal(load_relaxed(&limiter->process.shared->stalled), 0);
        assert_int_equal(load_relaxed(&limiter->shared->repairing), 2048); /* one was begun, and is over */
        repair_next(limiter, &cursor);
        assert_int_equal(cursor, 0); /* this process is the only one */
        store_relaxed(&limiter->joined[2].pid, getpid());
        store_relaxed(&limiter->joined[2].started, load_relaxed(&limiter->joined[0].started));
        for (uint32_t turn = 1; turn <= 4; turn++) {
            repair_next(limiter, &cursor);
            assert_int_equal(cursor, turn % 2 * 2);
        }
        store_relaxed(&limiter->joined[0].pid, 0);
        store_relaxed(&limiter->joined[2].pid, 0);
        repair_next(limiter, &cursor); /* there is nobody, for the moment */
        assert_int_equal(load_relaxed(&limiter->shared->repairing), 2048);
        store_relaxed(&limiter->joined[0].pid, getpid());
        store_relaxed(&limiter->joined[2].started, 0);
        repair_all(limiter);
        wreck_expect_repaired(&wreck);
        limiter_close(limiter);
    }
}

/* The dead process was settling this process's slot: before or after its mark, and in the middle of a log. */
static void test_a_settling_that_a_dead_process_had_begun_is_ended_once(void **state)
{
    (void) state;
    enum { NOTED, MARKED, CHARGED, LOG_NOTED, LOG_FREED, LOG_PUSHED, LOG_CHARGED, CASES };
    enum { OTHERS = 3 };
    for (int which = 0; which < CASES; which++) {
        struct wreck wreck;
        wreck_open(&wreck, which >= LOG_NOTED ? WEIR_SLIDING_LOG : WEIR_TOKEN_BUCKET);
        struct process *process = &wreck.limiter.process;
        struct slot_account *account = &wreck.own->accounts[3];
        struct cell *cell = &process->table.cells[5];
        struct dwcas_value value = dwcas_read(&cell->state);
        const struct rule *rule = &account->rules[0];
        settling_begin(account, 0, 4);
        if (which == MARKED || which == CHARGED) {
            const struct state charged = rule_charge(rule, cell_state(value), BARE_NOW_NS, 4);
            const struct dwcas_value next = cell_value(charged, value);
            assert_true(dwcas_swap(&cell->state, &value,
                                   which == MARKED ? settling_mark(wreck.own, 3, next) : cell_next_generation(next)));
        } else if (which == LOG_FREED) { /* in a repair that went no further; others have used the log since */
            assert_true(history_store_charge(process, 5, rule, BARE_NOW_NS, OTHERS));
        } else if (which == LOG_PUSHED || which == LOG_CHARGED) {
            assert_true(history_store_charge(process, 5, rule, BARE_NOW_NS, which == LOG_PUSHED ? 2 : 4));
        }
        if (which == CHARGED || which == LOG_CHARGED) {
            store_relaxed(&account->settling.step, 2);
        }
        store_relaxed(&process->histories.places[5].lock, which == LOG_NOTED || which == LOG_PUSHED ? 2 : 0);
        repair_all(&wreck.limiter);
        wreck_expect_charged(&wreck, which == LOG_FREED ? 8 + OTHERS : 8);
        assert_int_equal(load_relaxed(&account->settling.step), 0);
        assert_int_equal(load_relaxed(&process->histories.places[5].lock), 0);
        assert_false(cell_is_marked(dwcas_read(&cell->state)));
        limiter_close(&wreck.limiter);
    }
}

/* The log is that of the second limit, and the dead process had charged the first one: a window in the cell before. */
static void test_a_log_that_a_dead_process_was_charging_is_completed_before_its_lock_is_free(void **state)
{
    (void) state;
    for (uint64_t pushed = 0; pushed <= 4; pushed++) {
        struct wreck wreck;
        struct policy window;
        wreck_open(&wreck, WEIR_SLIDING_LOG);
        struct process *process = &wreck.limiter.process;
        struct slot_account *account = &wreck.own->accounts[3];
        bare_policy_init(&window, WEIR_FIXED_WINDOW, 100);
        const struct rule *rule = &window.limits[0].rule;
        bare_occupy(process, &window, 4, 78, rule_charge(rule, rule_fresh(rule, BARE_NOW_NS), BARE_NOW_NS, 4));
        (void) cell_hold(&process->table.cells[4], HELD_PIN + 10);
        account->rules[1] = account->rules[0];
        account->rules[0] = *rule;
        account->cells[0] = 4;
        wreck.limits = account->limit_count = 2;
        settling_begin(account, 1, 4);
        assert_true(pushed == 0 || history_store_charge(process, 5, &account->rules[1], BARE_NOW_NS, pushed));
        store_relaxed(&process->histories.places[5].lock, 2);
        if (pushed % 2 == 0) {
            assert_true(repair_locks(&wreck.limiter));
            assert_int_equal(load_relaxed(&process->histories.places[5].lock), 0);
            assert_int_equal(load_relaxed(&account->settling.step), pushed != 0 ? 4 : 3);
            const struct history *history = history_store_get(process, 5);
            assert_int_equal(history_units(history), pushed != 0 ? 4 : 0);
        }
        repair_all(&wreck.limiter);
        wreck_expect_repaired(&wreck);
        assert_int_equal(load_relaxed(&account->settling.step), 0);
        const struct cell *cell = &process->table.cells[4];
        assert_int_equal(rule_headroom(rule, cell_state(dwcas_read(&cell->state)), BARE_NOW_NS), 100 - 4);
        assert_int_equal(load_relaxed(&cell->held) & HELD_IN_USE, HELD_PIN);
        limiter_close(&wreck.limiter);
    }
}

static void test_a_repair_waits_its_turn(void **state)
{
    (void) state;
    enum { ANOTHER_LIVES, EARLY, NOT_STILL, NO_MEMORY, CASES };
    for (int which = 0; which < CASES; which++) {
        struct wreck wreck;
        wreck_open(&wreck, WEIR_FIXED_WINDOW);
        struct limiter *limiter = &wreck.limiter;
        if (which == ANOTHER_LIVES) {
            store_relaxed(&limiter->shared->repairing, 1);
        } else if (which == EARLY) {
            store_relaxed(&limiter->shared->repair_from_ns, UINT64_MAX);
        } else if (which == NOT_STILL) {
            rcu_enter(wreck.own);
        }
        no_memory = which == NO_MEMORY;
        repair_all(limiter);
        no_memory = false;
        assert_int_equal(load_relaxed(&limiter->joined[1].pid), wreck.pid); /* nothing was done */
        assert_int_equal(load_relaxed(&wreck.own->accounts[3].lock), 2);
        assert_int_equal(load_relaxed(&wreck.its->slots[3].hash), 77);
        if (which == NOT_STILL) {
            rcu_leave(wreck.own);
        }
        assert_int_equal(load_relaxed(&limiter->process.shared->halted_by), 0);
        assert_int_equal(load_relaxed(&limiter->shared->repair_from_ns) != 0, which != ANOTHER_LIVES);
        /* One that died in the middle is followed by another. */
        store_relaxed(&limiter->shared->repairing, 5 * 2048 + 2);
        store_relaxed(&limiter->shared->repair_from_ns, 0);
        repair_all(limiter);
        wreck_expect_repaired(&wreck);
        assert_int_equal(load_relaxed(&limiter->shared->repairing), 6 * 2048);
        limiter_close(limiter);
    }
}

/* A reader is one of this process, or of another one that lives. */
static void test_who_waits_waits_for_each_reader_and_for_who_has_the_lock_or_the_halt(void **state)
{
    (void) state;
    enum { LOCK, SECTION, FIRST_PHASE, SECOND_PHASE, HALT_OF_A_THREAD, HALT_OF_A_CALLER, CASES };
    for (unsigned i = 0; i < 4 * CASES; i++) {
        const unsigned which = i / 4;
        const uint32_t whose = i % 2;
        struct limiter limiter;
        open_shared(&limiter);
        limiter.grants = limiter.grants && i / 2 % 2 == 0;
        store_relaxed(&limiter.joined[1].pid, getpid());
        store_relaxed(&limiter.joined[1].started, load_relaxed(&limiter.joined[0].started));
        struct weir_thread *t = thread_attach(&limiter, 4);
        struct weir_thread *reader = thread_attach(&limiter, 8);
        store_relaxed(&reader->shared->owner, (uint64_t) whose << 48 | 8);
        _Atomic uint32_t *halted_by = &limiter.process.shared->halted_by;
        waited.end_at = 3;
        if (which == SECTION) {
            store_relaxed(&reader->shared->rcu_count, 5);
            waited.section = &reader->shared->rcu_count;
        } else if (which == LOCK) {
            waited.word = &limiter.shared->rcu.lock;
        } else if (which == FIRST_PHASE || which == SECOND_PHASE) {
            waited.word = &limiter.lanes[(whose + 1) * RCU_LANES - 1].inside[which == SECOND_PHASE];
        } else {
            waited.word = halted_by;
        }
        if (waited.word != NULL) {
            store_relaxed(waited.word, whose + 1);
        }
        if (which == HALT_OF_A_THREAD) {
            rcu_enter(t);
            assert_int_equal(load_relaxed(&t->shared->rcu_count), 3);
            assert_int_equal(t->shared->rcu_depth, 1);
        } else if (which == HALT_OF_A_CALLER) {
            const unsigned lane = rcu_enter_lane(&limiter);
            assert_int_equal(load_relaxed(&limiter.lanes[lane / 2].inside[lane % 2]), 1);
            rcu_leave_lane(&limiter, lane);
        } else {
            rcu_synchronize(&limiter);
        }
        assert_int_equal(waited.naps, 3);
        wait_no_more();
        assert_int_equal(load_relaxed(&limiter.shared->rcu.lock), 0);
        assert_int_equal(load_relaxed(halted_by), 0);
        limiter_close(&limiter);
    }
}

/* A thread that was preempted in its section is waited for. The clock moves by a millisecond from look to look. */
/* Where processes share the limiter: where the memory is damaged, a reader may have no end. */
static void test_readers_are_waited_for_ten_seconds(void **state)
{
    (void) state;
    enum { LOCK, SECTION, LANE, CASES };
    for (unsigned i = 0; i < 2 * CASES; i++) {
        const unsigned which = i / 2;
        const bool ends = i % 2 != 0; /* within that time */
        struct limiter limiter;
        open_shared(&limiter);
        store_relaxed(&limiter.joined[1].pid, getpid());
        store_relaxed(&limiter.joined[1].started, load_relaxed(&limiter.joined[0].started));
        struct weir_thread *reader = thread_attach(&limiter, 8);
        store_relaxed(&reader->shared->owner, UINT64_C(1) << 48 | 8);
        store_relaxed(&reader->shared->rcu_count, which == SECTION);
        waited.section = which == SECTION ? &reader->shared->rcu_count : NULL;
        waited.word = which == LOCK   ? &limiter.shared->rcu.lock
                      : which == LANE ? &limiter.lanes[RCU_LANES].inside[0]
                                      : NULL;
        if (waited.word != NULL) {
            store_relaxed(waited.word, 2);
        }
        waited.now_ns = 1000 * SECOND;
        waited.step_ns = SECOND;
        waited.end_at = ends ? 10 : 0;
        assert_int_equal(rcu_synchronize(&limiter), ends);
        assert_in_range(waited.readings, 10, ends ? 10 : 14);
        wait_no_more();
        assert_int_equal(load_relaxed(&limiter.shared->rcu.lock), which == LOCK && !ends ? 2 : 0);
        limiter_close(&limiter);
    }
}

static void test_nobody_waits_for_what_damaged_memory_says(void **state)
{
    (void) state;
    static bool others[PROCESSES_MOST]; /* those of places that there are not */
    for (uint32_t process = PROCESSES; process < PROCESSES_MOST; process++) {
        others[process] = true;
    }
    struct limiter limiter;
    open_shared(&limiter);
    struct weir_thread *t = thread_attach(&limiter, 4);
    struct weir_thread *free_one = &limiter.threads[2];
    store_relaxed(&free_one->shared->rcu_count, 7);           /* of a free handle */
    store_relaxed(&t->shared->owner, UINT64_C(77) << 48 | 4); /* of a process that there is not */
    store_relaxed(&t->shared->rcu_count, 7);
    store_relaxed(&limiter.lanes[2 * RCU_LANES].inside[0], 5); /* of a free place */
    store_relaxed(&limiter.lanes[2 * RCU_LANES].inside[1], 5);
    store_relaxed(&limiter.shared->rcu.lock, 2000);
    store_relaxed(&limiter.shared->thread_high, UINT32_MAX);
    store_relaxed(&limiter.process.shared->halted_by, 2000);
    assert_int_equal(limiter_thread_high(&limiter), 3);
    assert_true(rcu_synchronize(&limiter));
    rcu_leave_lane(&limiter, rcu_enter_lane(&limiter)); /* whoever halts the sections */
    assert_true(rcu_halt(&limiter, others));
    rcu_halt_end(&limiter);
    store_relaxed(&limiter.process.shared->halted_by, 2000);
    assert_true(rcu_halt(&limiter, others));
    rcu_halt_end(&limiter);
    /* Whoever gets the handle or the place begins outside. */
    thread_free(t);
    t->shared->rcu_depth = 3;
    assert_ptr_equal(thread_attach(&limiter, 4), t);
    assert_int_equal(load_relaxed(&t->shared->rcu_count) % 2, 0);
    assert_int_equal(t->shared->rcu_depth, 0);
    limiter_join(&limiter, 2);
    assert_int_equal(load_relaxed(&limiter.lanes[2 * RCU_LANES].inside[0]), 0);
    assert_int_equal(load_relaxed(&limiter.lanes[2 * RCU_LANES].inside[1]), 0);
    limiter_close(&limiter);
}

static void test_a_halt_is_given_up_after_two_milliseconds_and_a_repair_tried_again_after_four(void **state)
{
    (void) state;
    static const struct {
        unsigned end_at;
        bool alone;
        unsigned readings;
    } rows[] = {{0, false, 4}, {2, true, 2}, {3, true, 3}, {4, false, 4}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct limiter limiter;
        open_shared(&limiter);
        struct weir_thread *t = thread_attach(&limiter, 4);
        store_relaxed(&t->shared->rcu_count, 1);
        waited.section = rows[i].end_at != 0 ? &t->shared->rcu_count : NULL;
        waited.end_at = rows[i].end_at;
        waited.now_ns = 1000 * SECOND;
        waited.step_ns = MILLISECOND;
        assert_int_equal(rcu_halt(&limiter, nobody), rows[i].alone);
        assert_int_equal(waited.readings, rows[i].readings);
        wait_no_more();
        assert_int_equal(load_relaxed(&limiter.process.shared->halted_by), rows[i].alone);
        limiter_close(&limiter);
    }
    struct wreck wreck;
    wreck_open(&wreck, WEIR_FIXED_WINDOW);
    struct limiter *limiter = &wreck.limiter;
    rcu_enter(wreck.own);
    waited.now_ns = 1000 * SECOND;
    waited.step_ns = MILLISECOND;
    repair_all(limiter);
    const uint64_t failed_ns = waited.now_ns - MILLISECOND; /* the last reading */
    assert_int_equal(load_relaxed(&limiter->shared->repair_from_ns), failed_ns + 4 * MILLISECOND);
    rcu_leave(wreck.own);
    const uint32_t repairs = load_relaxed(&limiter->shared->repairing);
    waited.now_ns = failed_ns + 4 * MILLISECOND - 1;
    repair_all(limiter);
    assert_int_equal(load_relaxed(&limiter->shared->repairing), repairs);
    waited.now_ns = failed_ns + 4 * MILLISECOND;
    repair_all(limiter);
    wait_no_more();
    wreck_expect_repaired(&wreck);
    limiter_close(limiter);
}

static void test_locks_that_calls_wait_for_are_freed_without_a_halt(void **state)
{
    (void) state;
    struct wreck wreck;
    wreck_open(&wreck, WEIR_FIXED_WINDOW);
    struct limiter *limiter = &wreck.limiter;
    store_relaxed(&limiter->process.shared->oversized, 2);
    store_relaxed(&limiter->shared->repairing, 1);
    assert_false(repair_locks(limiter)); /* another thread repairs */
    assert_int_equal(load_relaxed(&limiter->process.shared->oversized), 2);
    store_relaxed(&limiter->shared->repairing, 0);
    assert_true(repair_locks(limiter));
    assert_int_equal(load_relaxed(&limiter->process.shared->oversized), 0);
    assert_int_equal(load_relaxed(&wreck.own->accounts[3].lock), 2); /* that only a repair frees */
    repair_all(limiter);
    assert_false(repair_locks(limiter)); /* there are no dead */
    wreck_expect_repaired(&wreck);
    limiter_close(limiter);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_thread_has_as_many_slots_as_the_table_has_room_for),
        cmocka_unit_test(test_handles_are_handed_out_in_order_and_come_back),
        cmocka_unit_test(test_the_memory_of_a_handle_is_had_present_once),
        cmocka_unit_test(test_a_thread_that_leaves_waits_for_its_slots_and_has_repaired_what_the_dead_left),
        cmocka_unit_test(test_a_handle_of_another_process_is_left_to_it),
        cmocka_unit_test(test_a_mark_is_of_one_process),
        cmocka_unit_test(test_processes_enter_free_places_and_leave_them_in_two_steps),
        cmocka_unit_test(test_walks_over_places_end_at_the_highest_that_was_ever_in_use),
        cmocka_unit_test(test_a_process_is_dead_when_no_other_one_has_its_id_and_its_start),
        cmocka_unit_test(test_a_process_lives_while_any_of_its_threads_does),
        cmocka_unit_test(test_a_process_is_known_by_what_stands_behind_its_name),
        cmocka_unit_test(test_a_process_is_alone_with_the_table_when_all_living_threads_are_out_of_it),
        cmocka_unit_test(test_all_threads_pass_a_barrier_before_readers_are_looked_at_where_the_system_has_one),
        cmocka_unit_test(test_sections_are_nested_and_one_for_a_change_is_there_where_processes_share_alone),
        cmocka_unit_test(test_nobody_waits_for_the_dead),
        cmocka_unit_test(test_what_a_dead_process_had_is_charged_and_freed_once),
        cmocka_unit_test(test_a_settling_that_a_dead_process_had_begun_is_ended_once),
        cmocka_unit_test(test_a_log_that_a_dead_process_was_charging_is_completed_before_its_lock_is_free),
        cmocka_unit_test(test_a_repair_waits_its_turn),
        cmocka_unit_test(test_who_waits_waits_for_each_reader_and_for_who_has_the_lock_or_the_halt),
        cmocka_unit_test(test_readers_are_waited_for_ten_seconds),
        cmocka_unit_test(test_nobody_waits_for_what_damaged_memory_says),
        cmocka_unit_test(test_a_halt_is_given_up_after_two_milliseconds_and_a_repair_tried_again_after_four),
        cmocka_unit_test(test_locks_that_calls_wait_for_are_freed_without_a_halt),
    };
    return cmocka_run_group_tests_name("unit/thread/limiter", tests, NULL, NULL);
}
