/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does a check feel what Redis does? One thread makes checks of one hot key without a pause, each timed, while Redis
 * is up; slow (its replies come 300 ms late); hung (SIGSTOP); and while its connection flaps every 100 ms.
 *
 *     weir-outage-latency [REPETITIONS [MILLISECONDS]]
 *
 * Each repetition goes through all states, in an order that turns. Printed are, over the repetitions, the medians of
 * each state's percentiles and of their ratios to "up" of the same repetition. The thread has a processor of its own;
 * weir's background thread, Redis and the proxy share the others (one processor only: no such thing, and no meaning).
 */
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "support/proxy.h"
#include "support/server.h"
#include "support/support.h"

#define STATES          4
#define PERCENTILES     4
#define MAX_REPETITIONS 101
#define SETTLE_MS       1500 /* before a state is measured: outages are noticed, connections come back */

/* Times are counted in the ticks of ticks_now(): to the tick below FINE, above by powers of two in 64 steps. */
#define FINE    4096
#define STEPS   64
#define BUCKETS (FINE + 64 * STEPS)

enum state { UP, SLOW, HUNG, FLAPPING };

static const char *const state_names[STATES] = {"up", "slow (300 ms)", "hung", "flapping (100 ms)"};
static const double percentiles[PERCENTILES] = {0.5, 0.99, 0.999, 0.9999};

struct bench {
    struct server server;
    struct proxy proxy;
    weir *w;
    weir_thread *t;
    weir_key key;
    pthread_mutex_t lock;
    bool flaps, ends;
    pthread_t flapper;
};

static uint64_t histogram[BUCKETS];

#if defined(__x86_64__)
static uint64_t ticks_now(void)
{
    uint32_t low;
    uint32_t high;
    /* What is before it has been done, what is after it has not begun. */
    __asm__ __volatile__("rdtscp\n\tlfence" : "=a"(low), "=d"(high) : : "rcx", "memory");
    return (uint64_t) high << 32 | low;
}
#else
static uint64_t ticks_now(void)
{
    return real_ns();
}
#endif

static double ticks_per_ns(void)
{
    const uint64_t from_ns = real_ns();
    const uint64_t from = ticks_now();
    while (real_ns() < from_ns + 200 * MILLISECOND) {
    }
    return (double) (ticks_now() - from) / (double) (real_ns() - from_ns);
}

static size_t bucket_of(uint64_t ticks)
{
    if (ticks < FINE) {
        return (size_t) ticks;
    }
    unsigned power = 0;
    while (ticks >> power >= 2 * STEPS) {
        power++;
    }
    const size_t bucket = FINE + (size_t) power * STEPS + (size_t) (ticks >> power) - STEPS;
    return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

/* The least time a bucket stands for. */
static double bucket_ticks(size_t bucket)
{
    if (bucket < FINE) {
        return (double) bucket;
    }
    const size_t above = bucket - FINE;
    return (double) ((STEPS + above % STEPS) << above / STEPS);
}

static void nap_ms(long ms)
{
    const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    (void) nanosleep(&pause, NULL);
}

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
    case SLOW:
        proxy_delay(&b->proxy, 300);
        break;
    case HUNG:
        server_pause(&b->server);
        break;
    case FLAPPING:
        set_flaps(b, true);
        break;
    case UP:
    default:
        break;
    }
}

static void leave(struct bench *b, enum state state)
{
    switch (state) {
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
    case UP:
    default:
        break;
    }
    (void) weir_sync(b->w, 10000);
}

/* Checks for so long; the percentiles in ticks. Returns how many checks there were. */
static uint64_t measure(struct bench *b, uint64_t for_ns, double out[PERCENTILES])
{
    memset(histogram, 0, sizeof(histogram));
    uint64_t count = 0;
    const uint64_t until_ns = real_ns() + for_ns;
    while (real_ns() < until_ns) {
        for (int i = 0; i < 1000; i++) {
            weir_verdict v;
            const uint64_t from = ticks_now();
            (void) weir_check(b->t, &b->key, 1, &v);
            histogram[bucket_of(ticks_now() - from)]++;
        }
        count += 1000;
    }
    for (size_t p = 0; p < PERCENTILES; p++) {
        uint64_t left = (uint64_t) (percentiles[p] * (double) count);
        size_t bucket = 0;
        while (bucket + 1 < BUCKETS && left >= histogram[bucket]) {
            left -= histogram[bucket++];
        }
        out[p] = bucket_ticks(bucket);
    }
    return count;
}

static uint64_t slow_count(const struct bench *b)
{
    weir_stats stats;
    weir_get_stats(b->w, &stats);
    return stats.slow_count;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *) a;
    const double y = *(const double *) b;
    return x < y ? -1 : x > y;
}

static double median(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), compare_doubles);
    return count % 2 != 0 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static double times[STATES][PERCENTILES][MAX_REPETITIONS];
static double slow[STATES][MAX_REPETITIONS]; /* checks a million that went past the thread's own counters */

static void print_table(size_t repetitions, double per_ns)
{
    (void) printf("| Redis is | p50, ns | p99, ns | p99.9, ns | p99.99, ns | p50 / up | p99 / up | p99.9 / up | p99.99 "
                  "/ up | past "
                  "the thread, per million |\n"
                  "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (size_t state = 0; state < STATES; state++) {
        (void) printf("| %s ", state_names[state]);
        for (size_t p = 0; p < PERCENTILES; p++) {
            double values[MAX_REPETITIONS];
            memcpy(values, times[state][p], sizeof(values));
            (void) printf("| %.1f ", median(values, repetitions) / per_ns);
        }
        for (size_t p = 0; p < PERCENTILES; p++) {
            double ratios[MAX_REPETITIONS];
            for (size_t i = 0; i < repetitions; i++) {
                ratios[i] = times[state][p][i] / times[UP][p][i];
            }
            (void) printf("| %.3f ", median(ratios, repetitions));
        }
        double values[MAX_REPETITIONS];
        memcpy(values, slow[state], sizeof(values));
        (void) printf("| %.0f |\n", median(values, repetitions));
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
    b->w = open_or_fail(&options);
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = UINT64_C(1) << 40, .period_ns = HOUR};
    const weir_policy_id policy = set_one_policy(b->w, &limit, 1, WEIR_SCOPE_FLEET);
    b->t = weir_attach(b->w);
    b->key = weir_make_key(b->w, policy, "hot", 3);
    (void) pthread_mutex_init(&b->lock, NULL);
    (void) pthread_create(&b->flapper, NULL, flap, b);
}

static void bench_close(struct bench *b)
{
    (void) pthread_mutex_lock(&b->lock);
    b->ends = true;
    (void) pthread_mutex_unlock(&b->lock);
    (void) pthread_join(b->flapper, NULL);
    weir_detach(b->t);
    weir_close(b->w);
    proxy_stop(&b->proxy);
    server_stop(&b->server);
}

int main(int argc, char **argv)
{
    const unsigned long asked = argc > 1 ? strtoul(argv[1], NULL, 10) : 9;
    const size_t repetitions = asked >= 1 && asked <= MAX_REPETITIONS ? asked : 9;
    const unsigned long for_ms = argc > 2 ? strtoul(argv[2], NULL, 10) : 1000;
    static struct bench b;
    if (!server_available()) {
        return 1;
    }
    (void) setenv("WEIR_TEST_SEED", "1", 0);
    pin(false);
    bench_open(&b);
    pin(true);
    const double per_ns = ticks_per_ns();
    double ignored[PERCENTILES];
    (void) measure(&b, 500 * MILLISECOND, ignored);
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < repetitions; i++) {
        for (size_t n = 0; n < STATES; n++) {
            const size_t state = (i + n) % STATES;
            double got[PERCENTILES];
            enter(&b, (enum state) state);
            /* With checks: a node that nobody asks for a while goes to sleep, and takes some ms to wake up. */
            (void) measure(&b, SETTLE_MS * MILLISECOND, ignored);
            const uint64_t slow_before = slow_count(&b);
            const uint64_t count = measure(&b, for_ms * MILLISECOND, got);
            slow[state][i] = (double) (slow_count(&b) - slow_before) * 1e6 / (double) count;
            leave(&b, (enum state) state);
            nap_ms(300);
            least = count < least ? count : least;
            for (size_t p = 0; p < PERCENTILES; p++) {
                times[state][p][i] = got[p];
            }
        }
    }
    (void) printf("%zu repetitions of %lu ms in each state, %" PRIu64
                  " checks or more in each; the clock's own time is "
                  "in all figures\n\n",
                  repetitions, for_ms, least);
    print_table(repetitions, per_ns);
    bench_close(&b);
    return 0;
}
