/* SPDX-License-Identifier: Apache-2.0 */
/*
 * More keys than full sync states, and some more than cells. Threads use the keys, refund units, and make each other's
 * keys move and go. Meanwhile two nodes' background threads promote and demote sync states. At the end the fleet has
 * every unit that passed, once.
 *
 * Guards: src/process/sync_state.c, src/process/sync_pool.c, src/process/refund_ledger.c, src/process/insert.c
 */
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/numbers.h"
#include "base/spin.h"
#include "limiter/weir_open.h"
#include "limiter/weir_private.h"
#include "process/evict.h"
#include "support/support.h"
#include "transport/loopback/loopback.h"

#define NODES    2
#define THREADS  2     /* per node */
#define MAX_KEYS 16000 /* 19,200 cells, 16,384 full sync states */
#define NAMES    20500

/* Checks between two short sleeps. */
#define BURST 24

#ifdef __SANITIZE_THREAD__
#define BURSTS 1000
#else
#define BURSTS 2500
#endif

struct crowd {
    weir *w;
    weir_policy_id policies[2];
    _Atomic uint64_t *seed;
    _Atomic uint64_t *units;  /* units that passed, less refunds */
    _Atomic uint64_t *unsure; /* refunds of keys that may have gone */
};

static uint64_t real_wall(void *arg)
{
    (void) arg;
    struct timespec now;
    (void) clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t) now.tv_sec * SECOND + (uint64_t) now.tv_nsec;
}

/* Evicted keys are reported through a ring of fixed size: lets the background thread run until there is room. */
static void wait_for_room(struct process *process)
{
    size_t count;
    do {
        (void) usleep(1000);
        process_lock(process, &process->shared->evicted_reports.lock);
        count = process->shared->evicted_reports.put - process->shared->evicted_reports.taken;
        spin_unlock(&process->shared->evicted_reports.lock);
    } while (count > EVICTED_COUNT / 2);
}

static void *crowd_main(void *arg)
{
    struct crowd *crowd = arg;
    weir_thread *t = weir_attach(crowd->w);
    uint64_t rng = atomic_fetch_add(crowd->seed, 1);
    uint64_t units = 0;
    uint64_t unsure = 0;
    const struct process *process = &crowd->w->limiter.process;
    for (int burst = 0; burst < BURSTS; burst++) {
        for (int i = 0; i < BURST; i++) {
            const uint64_t name[4] = {random_below(&rng, NAMES)}; /* longer than the compact state's room */
            const weir_policy_id policy = crowd->policies[name[0] % 2];
            const weir_key key = weir_make_key(crowd->w, policy, name, sizeof(name));
            const uint64_t cost = 2 + random_below(&rng, 3);
            const uint64_t evictions = evict_begun_count(process);
            if (!weir_check(t, &key, cost, NULL)) {
                continue;
            }
            units += cost;
            /* A key that goes between check and refund takes the unit along: nobody knows any more whose it is. */
            if (random_below(&rng, 8) == 0 && evict_begun_count(process) == evictions) {
                weir_refund(t, &key, 1);
                units -= 1;
                unsure += evict_begun_count(process) != evictions;
            }
        }
        wait_for_room(&crowd->w->limiter.process);
    }
    weir_detach(t);
    (void) atomic_fetch_add(crowd->units, units);
    (void) atomic_fetch_add(crowd->unsure, unsure);
    return NULL;
}

static void node_start(struct loopback_fleet *fleet, struct crowd *crowd)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = MAX_KEYS;
    options.max_threads = THREADS;
    options.sync_interval_ms = 50;
    const struct transport_config config = {.timeout_ms = 1000};
    struct transport *transport = NULL;
    weir_error error;
    assert_int_equal(loopback_transport_open(fleet, &config, &transport, NULL), 0);
    const weir_limit limits[] = {{.algorithm = WEIR_SLIDING_WINDOW, .limit = 300, .period_ns = 20 * 24 * HOUR},
                                 {.algorithm = WEIR_TOKEN_BUCKET, .limit = 300, .period_ns = 20 * 24 * HOUR}};
    const weir_policy policies[] = {{.name = "window", .limits = &limits[0], .limit_count = 1},
                                    {.name = "bucket", .limits = &limits[1], .limit_count = 1}};
    if (weir_open_on(&options, transport, &crowd->w, &error) != 0 ||
        weir_set_policies(crowd->w, policies, 2, &error) != 0) {
        fail_msg("%s", error.message);
    }
    for (int i = 0; i < 2; i++) {
        crowd->policies[i] = weir_find_policy(crowd->w, policies[i].name);
    }
    assert_false(crowd->w->limiter.process.syncs.all);
}

/* The background thread, which goes on, pins a cell for an instant. */
static void expect_released(const struct cell *cell)
{
    const uint64_t until_ns = real_ns() + 60 * SECOND;
    uint64_t held;
    while (((held = load_acquire(&cell->held)) & HELD_IN_USE) == HELD_PIN && real_ns() < until_ns) {
        (void) sched_yield();
    }
    assert_int_equal(held & HELD_IN_USE, 0);
}

/* Every full sync state names its cell, and no unit is held. */
static void expect_whole(const struct process *process)
{
    uint64_t noted = 0;
    for (uint32_t at = 0; at < process->table.cell_count; at++) {
        const struct sync_full *sync = sync_of(&process->syncs, at);
        expect_released(&process->table.cells[at]);
        if (sync != NULL) {
            assert_int_equal(load_relaxed(&sync->cell), at);
            assert_int_not_equal(load_relaxed(&process->table.cells[at].hash), 0);
            noted++;
        }
    }
    for (uint32_t i = 0; i < process->syncs.count; i++) {
        noted -= load_relaxed(&process->syncs.pool[i].cell) != TABLE_NONE;
    }
    assert_int_equal(noted, 0);
}

static void test_every_unit_is_told_once_whoever_has_a_note(void **state)
{
    (void) state;
    struct loopback_fleet *fleet = loopback_fleet_new(real_wall, NULL);
    assert_non_null(fleet);
    _Atomic uint64_t seed = test_seed();
    _Atomic uint64_t units = 0;
    _Atomic uint64_t unsure = 0;
    struct crowd crowds[NODES];
    pthread_t threads[NODES * THREADS];
    for (int i = 0; i < NODES; i++) {
        crowds[i] = (struct crowd){.seed = &seed, .units = &units, .unsure = &unsure};
        node_start(fleet, &crowds[i]);
    }
    for (int i = 0; i < NODES * THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, crowd_main, &crowds[i % NODES]), 0);
    }
    for (int i = 0; i < NODES * THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    uint64_t lost = 0;
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(weir_sync(crowds[i].w, 60000), 0);
        weir_stats stats;
        weir_get_stats(crowds[i].w, &stats);
        lost += stats.lost_report_count;
        assert_true(stats.evicted_used_count > 0);
        expect_whole(&crowds[i].w->limiter.process);
    }
    assert_int_equal(lost, 0);
    print_message("# %" PRIu64 " refunds of keys that may have gone\n", unsure);
    assert_in_range(loopback_fleet_sum(fleet, ":window:") + loopback_fleet_sum(fleet, ":bucket:"), units,
                    units + unsure);
    for (int i = 0; i < NODES; i++) {
        weir_close(crowds[i].w);
    }
    loopback_fleet_free(fleet);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_unit_is_told_once_whoever_has_a_note),
    };
    return cmocka_run_group_tests_name("stress/sync_pool", tests, NULL, NULL);
}
