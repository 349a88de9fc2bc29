/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What does the background thread take at 20,000 reported keys a second?
 *
 *     weir-background REDIS_URL [REPETITIONS [SECONDS]]
 *
 * The keys of load.h are charged every interval. The time is the thread's own (schedstat: nanoseconds on a processor),
 * less what it takes with one key.
 */
#include <stdio.h>
#include <stdlib.h>

#include <weir/weir.h>

#include "load.h"
#include "tools.h"

/* Processor time of the background thread. */
static uint64_t thread_ns(void)
{
    return tools_background_number("schedstat", "");
}

struct cost {
    double part; /* of a processor */
    double seconds;
    double reports;
};

static struct cost measure(weir *w, weir_thread *t, weir_policy_id policy, size_t count, unsigned intervals)
{
    weir_stats before;
    weir_stats after;
    const uint64_t begun_ns = tools_now_ns();
    const uint64_t begun_cpu_ns = thread_ns();
    weir_get_stats(w, &before);
    load_run(w, t, policy, count, intervals);
    weir_get_stats(w, &after);
    const double wall_ns = (double) (tools_now_ns() - begun_ns);
    return (struct cost){
        .part = (double) (thread_ns() - begun_cpu_ns) / wall_ns,
        .seconds = wall_ns / 1e9,
        .reports = (double) (after.report_count - before.report_count),
    };
}

static void measure_once(weir *w, weir_thread *t, weir_policy_id policy, const char *name, unsigned intervals)
{
    const struct cost none = measure(w, t, policy, 1, intervals);
    const struct cost all = measure(w, t, policy, LOAD_KEYS, intervals);
    const double each_us = (all.part - none.part) * all.seconds * 1e6 / (all.reports != 0 ? all.reports : 1);
    tools_figure(all.reports / all.seconds, "reports/s", "background/%s/reports", name);
    tools_figure(all.part * 100, "%", "background/%s/core", name);
    tools_figure(none.part * 100, "%", "background/%s/core_at_rest", name);
    tools_figure(each_us, "us", "background/%s/report", name);
    tools_figure(none.part * 100 + each_us * 20000 / 1e4, "%", "background/%s/core_at_20000", name);
}

static int run(const char *url, const char *name, const weir_limit *limit, unsigned repetitions, unsigned intervals)
{
    const weir_policy policy = {.name = "api", .limits = limit, .limit_count = 1};
    weir_options options = WEIR_OPTIONS_INIT;
    options.redis_url = url;
    options.sync_interval_ms = LOAD_INTERVAL_MS;
    options.prefix = name;
    weir *w = NULL;
    weir_error error;
    if (weir_open(&options, &w, &error) != 0) {
        (void) fprintf(stderr, "weir-background: %s\n", error.message);
        return 1;
    }
    if (weir_set_policies(w, &policy, 1, &error) != 0) {
        (void) fprintf(stderr, "weir-background: %s\n", error.message);
        weir_close(w);
        return 1;
    }
    weir_thread *t = weir_attach(w);
    const weir_policy_id id = weir_find_policy(w, "api");
    const int result = weir_sync(w, 10000);
    if (result == 0) {
        load_run(w, t, id, LOAD_KEYS, 5); /* the records are there */
        for (unsigned i = 0; i < repetitions; i++) {
            measure_once(w, t, id, name, intervals);
        }
    } else {
        (void) fprintf(stderr, "weir-background: %s: no answer\n", url);
    }
    weir_close(w);
    return result != 0;
}

int main(int argc, char **argv)
{
    const weir_limit window = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1, .period_ns = UINT64_C(3600000) * NS_PER_MS};
    const weir_limit bucket = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 1, .period_ns = NS_PER_MS};
    if (argc < 2) {
        (void) fprintf(stderr, "usage: weir-background REDIS_URL [REPETITIONS [SECONDS]]\n");
        return 2;
    }
    const unsigned repetitions = argc > 2 ? (unsigned) strtoul(argv[2], NULL, 10) : 7;
    const double seconds = argc > 3 ? strtod(argv[3], NULL) : 2;
    const unsigned intervals = (unsigned) (seconds * 1000 / LOAD_INTERVAL_MS) + 1;
    const int result = run(argv[1], "window", &window, repetitions, intervals);
    return result != 0 ? result : run(argv[1], "bucket", &bucket, repetitions, intervals);
}
