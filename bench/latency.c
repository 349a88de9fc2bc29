/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does a check feel what Redis and the background thread do? One thread makes checks of one hot key without a pause,
 * while Redis is up and nothing else goes on; while the background thread reports 20,000 other keys a second; while
 * Redis is slow (its replies come 300 ms late); hung (SIGSTOP); and while its connection flaps every 100 ms. And what
 * does the machine take from anyone? For that the thread calls the floor (floor.h), a counter and nothing else, in
 * the place of the checks.
 *
 *     weir-latency [REPETITIONS [MILLISECONDS [MILLISECONDS BEFORE]]]
 *
 * Each repetition goes through all states, in an order that turns, so that what the machine does otherwise falls on all
 * of them. Half of the time every check is timed by itself (the clock's own time is in these figures), half of it they
 * are timed by the thousand, for the mean. Printed at last is the whole distribution of each state, over all
 * repetitions, as latency/STATE/curve/HALVINGS: the time of which 2^-HALVINGS of the checks took longer.
 *
 * The thread has a processor of its own; weir's background thread, Redis, the proxy and the other keys' thread share
 * the others (one processor only: no such thing, and no meaning).
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/proxy.h"
#include "support/server.h"
#include "support/support.h"

#include "floor.h"
#include "histogram.h"
#include "load.h"
#include "tools.h"

#define STATES 6

/* 2^-23 of some ten million checks: the slowest few. */
#define HALVINGS 23

enum state { IDLE, SYNCING, SLOW, HUNG, FLAPPING, FLOOR };

static const char *const state_names[STATES] = {"idle", "syncing", "slow", "hung", "flapping", "floor"};

static const struct {
    const char *name;
    double part;
} percentiles[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p99.9", 0.999}, {"p99.99", 0.9999}};

struct bench {
    struct server server;
    struct proxy proxy;
    weir *w;
    weir_thread *t;
    weir_key key;
    struct floor_counter floor;
    struct load load;
    double ticks; /* per ns */
    pthread_mutex_t lock;
    bool flaps, ends;
    pthread_t flapper;
};

static struct histogram now;           /* what is measured */
static struct histogram whole[STATES]; /* of all repetitions */

/* This thread, and those it makes, run on the first processor, or on all others. */
static void pin(bool first)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    const long count = sysconf(_SC_NPROCESSORS_ONLN);
    for (int i = 0; i < count; i++) {
        if ((i == 0) == first || count == 1) {
            CPU_SET((size_t) i, &set);
        }
    }
    (void) sched_setaffinity(0, sizeof(set), &set);
}

static void *flap(void *arg)
{
    struct bench *b = arg;
    bool cut = false;
    for (bool ends = false; !ends;) {
        (void) pthread_mutex_lock(&b->lock);
        ends = b->ends;
        if (b->flaps || cut) {
            cut = b->flaps && !cut;
            proxy_set(&b->proxy, cut ? PROXY_CUT : PROXY_PASS);
        }
        (void) pthread_mutex_unlock(&b->lock);
        nap_ms(100);
    }
    return NULL;
}

static void set_flaps(struct bench *b, bool flaps)
{
    (void) pthread_mutex_lock(&b->lock);
    b->flaps = flaps;
    (void) pthread_mutex_unlock(&b->lock);
}

static void enter(struct bench *b, enum state state)
{
    switch (state) {
    case SYNCING:
        load_set(&b->load, true);
        break;
    case SLOW:
        proxy_delay(&b->proxy, 300);
        break;
    case HUNG:
        server_pause(&b->server);
        break;
    case FLAPPING:
        set_flaps(b, true);
        break;
    case IDLE:
    case FLOOR:
    default:
        break;
    }
}

static void leave(struct bench *b, enum state state)
{
    switch (state) {
    case SYNCING:
        load_set(&b->load, false);
        nap_ms(2 * LOAD_INTERVAL_MS); /* the last news is told */
        break;
    case SLOW:
        proxy_delay(&b->proxy, 0);
        break;
    case HUNG:
        server_resume(&b->server);
        break;
    case FLAPPING:
        set_flaps(b, false);
        nap_ms(200); /* the last cut is over */
        break;
    case IDLE:
    case FLOOR:
    default:
        break;
    }
    (void) weir_sync(b->w, 10000);
}

/*
 * What is measured in a state, which is known where this is called. The floor is called in a shared library, weir is
 * linked into this program: what they take can be compared in the groups floor and hot.
 */
static inline __attribute__((always_inline)) void call(struct bench *b, enum state state)
{
    if (state == FLOOR) {
        (void) floor_check(&b->floor, 1);
    } else {
        weir_verdict v;
        (void) weir_check(b->t, &b->key, 1, &v);
    }
}

/* Calls for so long, each timed. */
static inline __attribute__((always_inline)) void measure_calls(struct bench *b, enum state state, uint64_t for_ns)
{
    histogram_clear(&now);
    const uint64_t until_ns = tools_now_ns() + for_ns;
    while (tools_now_ns() < until_ns) {
        for (int i = 0; i < 1000; i++) {
            const uint64_t from = ticks_now();
            call(b, state);
            histogram_add(&now, ticks_now() - from);
        }
    }
}

static void measure_each(struct bench *b, enum state state, uint64_t for_ns)
{
    if (state == FLOOR) {
        measure_calls(b, FLOOR, for_ns);
    } else {
        measure_calls(b, IDLE, for_ns); /* checks, as in all others */
    }
}

/* Calls for so long; ns of one. */
static inline __attribute__((always_inline)) double mean_of_calls(struct bench *b, enum state state, uint64_t for_ns)
{
    uint64_t count = 0;
    const uint64_t from_ns = tools_now_ns();
    uint64_t spent_ns = 0;
    while (spent_ns < for_ns) {
        for (int i = 0; i < 1000; i++) {
            call(b, state);
        }
        count += 1000;
        spent_ns = tools_now_ns() - from_ns;
    }
    return (double) spent_ns / (double) count;
}

static double measure_mean(struct bench *b, enum state state, uint64_t for_ns)
{
    return state == FLOOR ? mean_of_calls(b, FLOOR, for_ns) : mean_of_calls(b, IDLE, for_ns);
}

static double slow_count(const struct bench *b)
{
    weir_stats stats;
    weir_get_stats(b->w, &stats);
    return (double) stats.slow_count;
}

static double reports(const struct bench *b)
{
    weir_stats stats;
    weir_get_stats(b->w, &stats);
    return (double) stats.report_count;
}

static void measure_state(struct bench *b, enum state state, uint64_t for_ns, uint64_t before_ns)
{
    const char *name = state_names[state];
    enter(b, state);
    /* With checks: a node that nobody asks for a while goes to sleep, and takes some ms to wake up. */
    measure_each(b, state, before_ns);
    const double reports_before = reports(b);
    const double slow_before = slow_count(b);
    const uint64_t begun_ns = tools_now_ns();
    measure_each(b, state, for_ns / 2);
    const double slow = (slow_count(b) - slow_before) * 1e6 / (double) now.count;
    const double mean_ns = measure_mean(b, state, for_ns / 2);
    const double seconds = (double) (tools_now_ns() - begun_ns) / 1e9;
    const double told = (reports(b) - reports_before) / seconds;
    leave(b, state);
    nap_ms(300);
    tools_figure(mean_ns, "ns", "latency/%s/mean", name);
    for (size_t i = 0; i < sizeof(percentiles) / sizeof(percentiles[0]); i++) {
        tools_figure(histogram_at(&now, percentiles[i].part) / b->ticks, "ns", "latency/%s/%s", name,
                     percentiles[i].name);
    }
    tools_figure(slow, "per_million", "latency/%s/past_the_thread", name);
    tools_figure(told, "reports/s", "latency/%s/reports", name);
    histogram_merge(&whole[state], &now);
}

static void print_curves(const struct bench *b)
{
    for (size_t state = 0; state < STATES; state++) {
        double part = 1;
        for (int halvings = 0; halvings <= HALVINGS && part * (double) whole[state].count >= 1; halvings++) {
            tools_figure(histogram_at(&whole[state], 1 - part) / b->ticks, "ns", "latency/%s/curve/%d",
                         state_names[state], halvings);
            part /= 2;
        }
    }
}

static void bench_open(struct bench *b)
{
    char url[64];
    server_start(&b->server);
    proxy_start(&b->proxy, b->server.socket);
    proxy_url(&b->proxy, url, sizeof(url));
    weir_options options = WEIR_OPTIONS_INIT;
    options.redis_url = url;
    options.sync_interval_ms = LOAD_INTERVAL_MS;
    b->w = open_or_fail(&options);
    const weir_limit limits[] = {
        {.algorithm = WEIR_FIXED_WINDOW, .limit = UINT64_C(1) << 40, .period_ns = HOUR},
        {.algorithm = WEIR_FIXED_WINDOW, .limit = 1, .period_ns = HOUR},
    };
    const weir_policy policies[] = {
        {.name = "hot", .limits = &limits[0], .limit_count = 1},
        {.name = "load", .limits = &limits[1], .limit_count = 1},
    };
    weir_error error;
    if (weir_set_policies(b->w, policies, 2, &error) != 0) {
        (void) fprintf(stderr, "weir-latency: %s\n", error.message);
        exit(1);
    }
    b->t = weir_attach(b->w);
    b->key = weir_make_key(b->w, weir_find_policy(b->w, "hot"), "hot", 3);
    (void) pthread_mutex_init(&b->lock, NULL);
    if (load_start(&b->load, b->w, weir_find_policy(b->w, "load")) != 0 ||
        pthread_create(&b->flapper, NULL, flap, b) != 0) {
        (void) fprintf(stderr, "weir-latency: no thread to be had\n");
        exit(1);
    }
}

static void bench_close(struct bench *b)
{
    (void) pthread_mutex_lock(&b->lock);
    b->ends = true;
    (void) pthread_mutex_unlock(&b->lock);
    (void) pthread_join(b->flapper, NULL);
    load_stop(&b->load);
    weir_detach(b->t);
    weir_close(b->w);
    proxy_stop(&b->proxy);
    server_stop(&b->server);
}

int main(int argc, char **argv)
{
    const unsigned long repetitions = argc > 1 ? strtoul(argv[1], NULL, 10) : 7;
    const unsigned long for_ms = argc > 2 ? strtoul(argv[2], NULL, 10) : 1000;
    const unsigned long before_ms = argc > 3 ? strtoul(argv[3], NULL, 10) : 1500;
    static struct bench b = {.floor = {.left = UINT64_MAX}};
    if (!server_available()) {
        return 1;
    }
    (void) setenv("WEIR_TEST_SEED", "1", 0);
    pin(false);
    bench_open(&b);
    pin(true);
    b.ticks = ticks_per_ns();
    measure_each(&b, IDLE, 500 * NS_PER_MS);
    for (unsigned long i = 0; i < repetitions; i++) {
        for (unsigned long n = 0; n < STATES; n++) {
            measure_state(&b, (enum state)((i + n) % STATES), for_ms * NS_PER_MS, before_ms * NS_PER_MS);
        }
    }
    print_curves(&b);
    bench_close(&b);
    return 0;
}
