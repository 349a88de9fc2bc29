/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many reports telling only what matters saves: two nodes on the in-memory fleet under a virtual clock, keys by
 * Zipf's law, of which one in a hundred is asked for more often than its limit. The same traffic twice: telling every
 * dirty key every interval, and as it is. What the near keys admit must be the same.
 *
 * Printed are reports a second and node, and what the near keys admitted by their limits: reports/all and reports/due.
 *
 *   weir-bench-reports [KEYS [UNITS PER SECOND [SECONDS]]]     1000000 10000000 70
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "limiter/weir_open.h"
#include "limiter/weir_private.h"
#include "tools.h"
#include "transport/loopback/loopback.h"

#define NODES    2
#define STEP_NS  (10 * NS_PER_MS)
#define NEAR     100 /* one key in so many */
#define PERIOD_S 60
#define WARM_S   10 /* until then it is not counted */

struct world {
    uint64_t now_ns;
};

static uint64_t world_time(void *arg)
{
    return ((struct world *) arg)->now_ns;
}

static uint64_t next_random(uint64_t *random)
{
    *random += UINT64_C(0x9e3779b97f4a7c15);
    return hash_mix(*random);
}

struct outcome {
    uint64_t reports, offered;
    double near; /* admitted by the limit, mean over the keys that are asked for too often */
};

/* Rank 1 to keys with the odds 1 / rank, near enough: exp of a uniform number. */
static uint64_t rank_of(uint64_t *random, double log_keys)
{
    const double uniform = (double) (next_random(random) >> 11) / 9007199254740992.0;
    return (uint64_t) exp(uniform * log_keys);
}

static int run(bool tells_all, uint64_t keys, double rate, unsigned seconds, struct outcome *out)
{
    struct world world = {.now_ns = UINT64_C(1760000040) * NS_PER_S}; /* a minute begins */
    weir_clock clock = {world_time, world_time, &world};
    struct loopback_fleet *fleet = loopback_fleet_new(world_time, &world);
    const double log_keys = log((double) keys);
    /* The key at the edge is asked for just as often as it may be. */
    const double edge = rate / ((double) keys / NEAR * log_keys);
    const weir_limit limit = {
        .algorithm = WEIR_FIXED_WINDOW, .limit = (uint64_t) (edge * PERIOD_S) + 1, .period_ns = PERIOD_S * NS_PER_S};
    const weir_policy policy = {.name = "p", .limits = &limit, .limit_count = 1};
    weir *w[NODES];
    weir_thread *t[NODES];
    uint32_t *admitted = calloc(keys / NEAR + 1, sizeof(*admitted));
    weir_error error = {0};
    for (int i = 0; i < NODES; i++) {
        weir_options options = WEIR_OPTIONS_INIT;
        options.clock = &clock;
        options.max_keys = keys;
        options.max_threads = 1;
        options.max_log_units = 1000;
        const struct transport_config config = {.timeout_ms = 1000};
        struct transport *transport = NULL;
        if (admitted == NULL || fleet == NULL || loopback_transport_open(fleet, &config, &transport, &error) != 0 ||
            weir_open_on(&options, transport, &w[i], &error) != 0 || weir_set_policies(w[i], &policy, 1, &error) != 0) {
            (void) fprintf(stderr, "%s\n", error.message);
            return 1;
        }
        w[i]->fleet->gather.reports_all = tells_all;
        t[i] = weir_attach(w[i]);
    }
    const weir_policy_id id = weir_find_policy(w[0], "p");
    uint64_t random = 1;
    uint64_t before = 0;
    *out = (struct outcome){0, 0, 0};
    const uint64_t each = (uint64_t) (rate / NODES * (double) STEP_NS / 1e9);
    for (uint64_t step = 0; step < seconds * NS_PER_S / STEP_NS; step++) {
        world.now_ns += STEP_NS;
        for (int i = 0; i < NODES; i++) {
            /* Until nothing is left to say now: a round of the in-memory fleet is answered in the step after. */
            do {
                (void) weir_poll(w[i]);
                (void) weir_poll(w[i]);
            } while (w[i]->fleet->gather.has_rest);
            for (uint64_t n = 0; n < each; n++) {
                const uint64_t rank = rank_of(&random, log_keys);
                const weir_key key = weir_make_key(w[i], id, &rank, sizeof(rank));
                const bool passed = weir_check(t[i], &key, 1, NULL);
                if (passed && rank <= keys / NEAR && step * STEP_NS < PERIOD_S * NS_PER_S) {
                    admitted[rank]++;
                }
            }
            out->offered += each;
        }
        if ((step + 1) * STEP_NS == WARM_S * NS_PER_S) {
            for (int i = 0; i < NODES; i++) {
                weir_stats stats;
                weir_get_stats(w[i], &stats);
                before += stats.report_count;
            }
        }
    }
    for (int i = 0; i < NODES; i++) {
        weir_stats stats;
        weir_get_stats(w[i], &stats);
        out->reports += stats.report_count;
        weir_close(w[i]);
    }
    out->reports -= before;
    for (uint64_t rank = 1; rank <= keys / NEAR; rank++) {
        out->near += (double) admitted[rank] / (double) limit.limit / ((double) keys / NEAR);
    }
    free(admitted);
    loopback_fleet_free(fleet);
    return 0;
}

int main(int argc, char **argv)
{
    const uint64_t keys = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;
    const double rate = argc > 2 ? strtod(argv[2], NULL) : 10e6;
    const unsigned seconds = argc > 3 ? (unsigned) strtoul(argv[3], NULL, 10) : 70;
    struct outcome all;
    struct outcome due;
    if (keys < NEAR || rate <= 0 || seconds <= PERIOD_S) {
        (void) fprintf(stderr, "weir-bench-reports [KEYS [UNITS PER SECOND [SECONDS, above %d]]]\n", PERIOD_S);
        return 2;
    }
    if (run(true, keys, rate, seconds, &all) != 0 || run(false, keys, rate, seconds, &due) != 0) {
        return 1;
    }
    const double span = (double) (seconds - WARM_S) * NODES;
    tools_figure((double) all.reports / span, "reports/s", "reports/all/told");
    tools_figure((double) due.reports / span, "reports/s", "reports/due/told");
    tools_figure(all.near, "of_the_limit", "reports/all/admitted");
    tools_figure(due.near, "of_the_limit", "reports/due/admitted");
    return 0;
}
