/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What does the background thread take at 20,000 reported keys a second? weir-background REDIS_URL [SECONDS]
 *
 * KEYS keys are charged every interval, all of them beyond their limits, so that each is due in every round. The time
 * is the thread's own (schedstat: nanoseconds on a processor), less what it takes with no keys at all.
 */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <weir/weir.h>

#define INTERVAL_MS 200
#define KEYS        4000
#define STEPS       10 /* in an interval */
#define NS_PER_MS   UINT64_C(1000000)

static uint64_t now_ns(void)
{
    struct timespec now;
    (void) clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t) now.tv_sec * 1000 * NS_PER_MS + (uint64_t) now.tv_nsec;
}

static void sleep_until(uint64_t at_ns)
{
    const struct timespec at = {.tv_sec = (time_t) (at_ns / (1000 * NS_PER_MS)),
                                .tv_nsec = (long) (at_ns % (1000 * NS_PER_MS))};
    (void) clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

static bool read_line(const char *task, const char *file, char *line, int size)
{
    char path[320];
    (void) snprintf(path, sizeof(path), "/proc/self/task/%s/%s", task, file);
    FILE *in = fopen(path, "r");
    const bool good = in != NULL && fgets(line, size, in) != NULL;
    if (in != NULL) {
        (void) fclose(in);
    }
    return good;
}

/* Processor time of the thread named "weir". */
static uint64_t thread_ns(void)
{
    uint64_t ns = 0;
    DIR *tasks = opendir("/proc/self/task");
    if (tasks == NULL) {
        return 0;
    }
    char line[64];
    for (const struct dirent *task = readdir(tasks); task != NULL; task = readdir(tasks)) {
        if (read_line(task->d_name, "comm", line, sizeof(line)) && strcmp(line, "weir\n") == 0 &&
            read_line(task->d_name, "schedstat", line, sizeof(line))) {
            ns = strtoull(line, NULL, 10);
        }
    }
    (void) closedir(tasks);
    return ns;
}

struct cost {
    uint64_t cpu_ns, wall_ns, reports;
};

/* Charges so many keys every interval, a part of them at a time, so that the thread does not fall asleep. */
static struct cost measure(weir *w, weir_thread *t, weir_policy_id policy, size_t count, unsigned seconds)
{
    weir_stats before;
    weir_stats after;
    const uint64_t begun_ns = now_ns();
    const uint64_t begun_cpu_ns = thread_ns();
    weir_get_stats(w, &before);
    for (unsigned step = 0; step < seconds * 1000 / INTERVAL_MS * STEPS; step++) {
        for (size_t i = step % STEPS; i < count || i == step % STEPS; i += STEPS) {
            char text[32];
            const size_t number = i < count ? i : 0;
            const int length = snprintf(text, sizeof(text), "198.51.%zu.%zu", number >> 8, number & 255);
            const weir_key key = weir_make_key(w, policy, text, (size_t) length);
            weir_charge(t, &key, 3);
        }
        sleep_until(begun_ns + (step + 1) * INTERVAL_MS * NS_PER_MS / STEPS);
    }
    weir_get_stats(w, &after);
    return (struct cost){
        .cpu_ns = thread_ns() - begun_cpu_ns,
        .wall_ns = now_ns() - begun_ns,
        .reports = after.reported_count - before.reported_count,
    };
}

static int run(const char *url, const char *name, const weir_limit *limit, unsigned seconds)
{
    const weir_policy policy = {.name = "api", .limits = limit, .limit_count = 1};
    weir_options options = WEIR_OPTIONS_INIT;
    options.redis_url = url;
    options.sync_interval_ms = INTERVAL_MS;
    options.prefix = name;
    weir *w = NULL;
    weir_error error;
    if (weir_open(&options, &w, &error) != 0 || weir_set_policies(w, &policy, 1, &error) != 0) {
        (void) fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    weir_thread *t = weir_attach(w);
    const weir_policy_id id = weir_find_policy(w, "api");
    int result = weir_sync(w, 10000);
    if (result == 0) {
        (void) measure(w, t, id, KEYS, 1); /* the records are there */
        const struct cost none = measure(w, t, id, 1, seconds);
        const struct cost all = measure(w, t, id, KEYS, seconds);
        const double rest = (double) none.cpu_ns / (double) none.wall_ns;
        const double whole = (double) all.cpu_ns / (double) all.wall_ns;
        const double each_us =
            (whole - rest) * (double) all.wall_ns / (double) (all.reports != 0 ? all.reports : 1) / 1e3;
        (void) printf("| %s | %.0f | %.2f%% | %.2f%% | %.2f | %.2f%% |\n", name,
                      (double) all.reports * 1e9 / (double) all.wall_ns, whole * 100, rest * 100, each_us,
                      rest * 100 + each_us * 20000 / 1e4);
    }
    weir_close(w);
    return result != 0;
}

int main(int argc, char **argv)
{
    const uint64_t hour_ns = UINT64_C(3600000) * NS_PER_MS;
    const weir_limit window = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1, .period_ns = hour_ns};
    const weir_limit bucket = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 1, .period_ns = NS_PER_MS};
    if (argc < 2) {
        (void) fprintf(stderr, "usage: weir-background REDIS_URL [SECONDS]\n");
        return 2;
    }
    const unsigned seconds = argc > 2 ? (unsigned) strtoul(argv[2], NULL, 10) : 5;
    (void) printf(
        "| background thread | reports a second | of a core | with no keys | us a report | at 20,000 a second |\n"
        "| --- | --- | --- | --- | --- | --- |\n");
    const int result = run(argv[1], "window", &window, seconds);
    return result != 0 ? result : run(argv[1], "bucket", &bucket, seconds);
}
