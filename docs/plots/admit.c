/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each algorithm admits of the same traffic, with a limit of 100 units per 10 s, for the plots in
 * docs/choosing.md: admit boundary|steady|onoff. Time is the program's own, so that a run is always the same and takes
 * some milliseconds; it begins with a window, as windows are cut from 1970.
 *
 * Prints a block for the traffic ("offered") and one per algorithm, as gnuplot's index wants them: a comment with the
 * name, then lines of time in seconds, units admitted since the beginning, and units admitted in the last period,
 * between tabs; two empty lines after each. The leaky bucket's units are counted when they are served, not when they
 * join the queue.
 */
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

#define MS UINT64_C(1000000)

enum {
    STEP_MS = 10,    /* how finely traffic and admissions are told apart in time */
    SAMPLE_MS = 100, /* how often a line is printed */
    PERIOD_MS = 10000,
    LENGTH_MS = 40000,
    STEPS = LENGTH_MS / STEP_MS,
    LIMIT = 100,
    ALGORITHMS = 5
};

static const weir_limit limits[ALGORITHMS] = {
    {.algorithm = WEIR_FIXED_WINDOW, .limit = LIMIT, .period_ns = PERIOD_MS * MS, .name = "fixed_window"},
    {.algorithm = WEIR_SLIDING_WINDOW, .limit = LIMIT, .period_ns = PERIOD_MS * MS, .name = "sliding_window"},
    {.algorithm = WEIR_SLIDING_LOG, .limit = LIMIT, .period_ns = PERIOD_MS * MS, .name = "sliding_log"},
    {.algorithm = WEIR_TOKEN_BUCKET, .limit = LIMIT, .period_ns = PERIOD_MS * MS, .name = "token_bucket"},
    {.algorithm = WEIR_LEAKY_BUCKET, .limit = LIMIT, .period_ns = PERIOD_MS * MS, .name = "leaky_bucket"},
};

/* 200 units in the second around the end of the first window. */
static unsigned boundary(unsigned ms)
{
    return ms >= 9500 && ms < 10500 ? 2 : 0;
}

/* 20 units a second, twice the limit. */
static unsigned steady(unsigned ms)
{
    return ms % 50 == 0 ? 1 : 0;
}

/* 50 units a second for 3 s, nothing for 4 s, and so on: 21 a second on average. */
static unsigned onoff(unsigned ms)
{
    return ms % 7000 < 3000 && ms % 20 == 0 ? 1 : 0;
}

static const struct traffic {
    const char *name;
    unsigned (*units_at)(unsigned ms); /* how many units ask in this step */
} traffics[] = {{"boundary", boundary}, {"steady", steady}, {"onoff", onoff}};

static uint64_t read_clock(void *now_ns)
{
    return *(const uint64_t *) now_ns;
}

/* A block of the output: units[i] were admitted in step i. */
static void print_block(const char *name, const unsigned units[STEPS])
{
    unsigned since_start = 0, in_period = 0;
    printf("# %s\n", name);
    for (unsigned step = 0; step < STEPS; step++) {
        since_start += units[step];
        in_period += units[step] - (step >= PERIOD_MS / STEP_MS ? units[step - PERIOD_MS / STEP_MS] : 0);
        const unsigned ms = step * STEP_MS;
        if (ms % SAMPLE_MS == 0) {
            printf("%u.%u\t%u\t%u\n", ms / 1000, ms % 1000 / 100, since_start, in_period);
        }
    }
    printf("\n\n");
}

/* One unit asks every algorithm at this step; those that let it pass count it in the step in which it goes. */
static void ask(weir_thread *thread, const weir_key keys[ALGORITHMS], unsigned step, unsigned went[][STEPS])
{
    for (size_t a = 0; a < ALGORITHMS; a++) {
        const uint64_t most_ns = limits[a].algorithm == WEIR_LEAKY_BUCKET ? PERIOD_MS * MS : 0;
        uint64_t wait_ns = 0;
        if (weir_reserve(thread, &keys[a], 1, most_ns, &wait_ns)) {
            const uint64_t at = step + (wait_ns + STEP_MS * MS - 1) / (STEP_MS * MS);
            if (at < STEPS) {
                went[a][at]++;
            }
        }
    }
}

static int run(const struct traffic *traffic)
{
    static unsigned offered[STEPS], went[ALGORITHMS][STEPS];
    uint64_t now_ns = UINT64_C(1767225600) * 1000 * MS; /* 2026-01-01, a multiple of the period */
    const weir_clock clock = {.monotonic_ns = read_clock, .wall_ns = read_clock, .arg = &now_ns};
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &clock;
    weir_policy policies[ALGORITHMS];
    for (size_t a = 0; a < ALGORITHMS; a++) {
        policies[a] =
            (weir_policy){.name = limits[a].name, .limits = &limits[a], .limit_count = 1, .scope = WEIR_SCOPE_PROCESS};
    }
    weir *w = NULL;
    weir_error error;
    if (weir_open(&options, &w, &error) != 0 || weir_set_policies(w, policies, ALGORITHMS, &error) != 0) {
        return fprintf(stderr, "%s\n", error.message), 1;
    }
    weir_thread *thread = weir_attach(w);
    weir_key keys[ALGORITHMS];
    for (size_t a = 0; a < ALGORITHMS; a++) {
        keys[a] = weir_make_key(w, weir_find_policy(w, limits[a].name), "client", 6);
    }
    for (unsigned step = 0; thread != NULL && step < STEPS; step++, now_ns += STEP_MS * MS) {
        if (weir_poll(w) < 0) {
            return fprintf(stderr, "weir_poll failed\n"), 1;
        }
        offered[step] = traffic->units_at(step * STEP_MS);
        for (unsigned i = 0; i < offered[step]; i++) {
            ask(thread, keys, step, went);
        }
    }
    print_block("offered", offered);
    for (size_t a = 0; a < ALGORITHMS; a++) {
        print_block(limits[a].name, went[a]);
    }
    weir_detach(thread);
    weir_close(w);
    return 0;
}

int main(int argc, char **argv)
{
    for (size_t i = 0; argc == 2 && i < sizeof traffics / sizeof traffics[0]; i++) {
        if (strcmp(argv[1], traffics[i].name) == 0) {
            return run(&traffics[i]);
        }
    }
    return fprintf(stderr, "usage: admit boundary|steady|onoff\n"), 2;
}
