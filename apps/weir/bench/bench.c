/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir bench: nanoseconds for a check on this machine, beside a baseline in the same run.
 *
 * Each pair of figures comes from rounds in which weir and the baseline take turns, so that what else the machine does
 * falls on both. A figure is the median of its rounds; of several threads it is the mean over the threads.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../command.h"
#include "bench_subject.h"

enum { OPTION_SECONDS = OPTION_OWN, OPTION_THREADS, OPTION_COUNT };
static const struct option_form options[OPTION_COUNT] = {
    COMMON_OPTIONS, [OPTION_SECONDS] = {"seconds", 0, true}, [OPTION_THREADS] = {"threads", 0, true}};

static const char help[] = "Usage: weir bench [OPTION]...\n"
                           "\n"
                           "Measures how long a check takes on this machine: one hot key, a key that is\n"
                           "denied, and 100,000 keys at random; with one thread and with several. Beside\n"
                           "each stands a baseline of the same run: one atomic number for each key, shared\n"
                           "by all threads, and the clock read at each check.\n"
                           "\n"
                           "The figures are those of an idle machine only where the machine is idle: trust\n"
                           "the ratios first.\n"
                           "\n"
                           "Options:\n"
                           "      --seconds=S     for all measurements together, 0.5 to 600 (6)\n"
                           "      --threads=N     the several threads, 2 to 64 (2)\n"
                           "      --json          one line of JSON\n"
                           "      --color=WHEN    auto (default), always or never\n"
                           "  -h, --help          this text\n"
                           "\n"
                           "Examples:\n"
                           "  weir bench\n"
                           "  weir bench --seconds 60 --threads 8\n"
                           "  weir bench --json | jq '.results[] | {load, threads, ratio}'\n"
                           "\n"
                           "Exit codes:\n"
                           "  0  measured\n"
                           "  2  the command line is wrong\n"
                           "  3  there is not enough memory, or no thread\n"
                           "  4  the output cannot be written\n";

#define THREADS_MOST 64
#define ROUNDS       5

/* Checks between two looks at whether the round is over. */
#define CHECKS 1000

struct round {
    struct bench_subjects *subjects;
    bool baseline;
    enum bench_load load;
    unsigned threads;
    _Atomic bool stop;
    pthread_barrier_t begin;
};

struct worker {
    struct round *round;
    pthread_t thread;
    unsigned number;
    double ns_per_check; /* of this thread */
};

static double seconds_now(void)
{
    struct timespec now;
    (void) clock_gettime(CLOCK_MONOTONIC, &now);
    return (double) now.tv_sec + (double) now.tv_nsec / 1e9;
}

static void *work(void *arg)
{
    struct worker *worker = arg;
    struct round *round = worker->round;
    weir_thread *t = round->baseline ? NULL : weir_attach(round->subjects->weir);
    uint64_t rng = UINT64_C(0x9e3779b97f4a7c15) * (worker->number + 1);
    uint64_t count = 0;
    (void) pthread_barrier_wait(&round->begin);
    const double begin = seconds_now();
    while (!atomic_load_explicit(&round->stop, memory_order_relaxed)) {
        (void) (round->baseline ? bench_baseline(round->subjects, round->load, CHECKS, &rng)
                                : bench_weir(round->subjects, t, round->load, CHECKS, &rng));
        count += CHECKS;
    }
    const double spent = seconds_now() - begin;
    worker->ns_per_check = count != 0 ? spent * 1e9 / (double) count : 0;
    weir_detach(t);
    return NULL;
}

/* Sleeps, whatever signals come. */
static void wait_seconds(double seconds)
{
    struct timespec left = {.tv_sec = (time_t) seconds,
                            .tv_nsec = (long) ((seconds - (double) (time_t) seconds) * 1e9)};
    while (nanosleep(&left, &left) != 0) {
    }
}

/* One round. Returns nanoseconds for a check, the mean over the threads; less than 0: no thread could be started. */
static double run_round(struct round *round, double seconds)
{
    struct worker workers[THREADS_MOST];
    double sum = 0;
    unsigned started = 0;
    atomic_store(&round->stop, false);
    if (pthread_barrier_init(&round->begin, NULL, round->threads + 1) != 0) {
        return -1;
    }
    for (; started < round->threads; started++) {
        workers[started] = (struct worker){.round = round, .number = started};
        if (pthread_create(&workers[started].thread, NULL, work, &workers[started]) != 0) {
            break;
        }
    }
    if (started < round->threads) { /* those that wait for the others are not to be had back: the caller ends */
        return -1;
    }
    (void) pthread_barrier_wait(&round->begin);
    wait_seconds(seconds);
    atomic_store(&round->stop, true);
    for (unsigned i = 0; i < started; i++) {
        (void) pthread_join(workers[i].thread, NULL);
        sum += workers[i].ns_per_check;
    }
    (void) pthread_barrier_destroy(&round->begin);
    return sum / round->threads;
}

static int compare_numbers(const void *a, const void *b)
{
    const double one = *(const double *) a;
    const double other = *(const double *) b;
    return one < other ? -1 : one > other;
}

/* The medians of rounds in which both take turns: of weir and of the baseline. False: no thread could be started. */
static bool measure(struct bench_subjects *subjects, enum bench_load load, unsigned threads, double seconds,
                    double medians[2])
{
    double rounds[2][ROUNDS];
    struct round round = {.subjects = subjects, .load = load, .threads = threads};
    for (int i = -1; i < ROUNDS; i++) { /* the first one fills tables and caches, and does not count */
        for (int baseline = 0; baseline < 2; baseline++) {
            round.baseline = baseline != 0;
            const double ns = run_round(&round, i < 0 ? seconds / 4 : seconds);
            if (ns < 0) {
                return false;
            }
            rounds[baseline][i < 0 ? 0 : i] = ns;
        }
    }
    for (int baseline = 0; baseline < 2; baseline++) {
        qsort(rounds[baseline], ROUNDS, sizeof(double), compare_numbers);
        medians[baseline] = rounds[baseline][ROUNDS / 2];
    }
    return true;
}

/* The processor's name, as the kernel tells it; empty: the kernel does not. */
static void read_processor(char *out, size_t size)
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "re");
    out[0] = '\0';
    while (file != NULL && out[0] == '\0' && fgets(line, sizeof(line), file) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon != NULL && colon[1] != '\0') {
            (void) snprintf(out, size, "%.*s", (int) strcspn(colon + 2, "\n"), colon + 2);
        }
    }
    if (file != NULL) {
        (void) fclose(file);
    }
}

static bool read_number(const struct arguments *arguments, int option, double least, double most, double otherwise,
                        double *out)
{
    const char *text = arguments->values[option];
    char *end = NULL;
    *out = text != NULL ? strtod(text, &end) : otherwise;
    const bool good = text == NULL || (end != text && *end == '\0' && *out >= least && *out <= most);
    if (!good) {
        (void) fprintf(stderr, "%s: --%s takes a number from %g to %g\n", arguments->command, options[option].name,
                       least, most);
    }
    return good;
}

static void tell_result(struct output *out, const char *load, unsigned threads, const double medians[2])
{
    output_text(out, "%-28s %7u %10.1f %12.1f %9.2f\n", load, threads, medians[0], medians[1], medians[0] / medians[1]);
    output_flush(out);
    output_open(out, NULL, '{');
    output_string(out, "load", load);
    output_number(out, "threads", threads);
    output_decimal(out, "weir_ns", medians[0]);
    output_decimal(out, "baseline_ns", medians[1]);
    output_decimal(out, "ratio", medians[0] / medians[1]);
    output_close(out, '}');
}

static int measure_all(struct bench_subjects *subjects, struct output *out, double seconds, unsigned several)
{
    static const char *const names[LOAD_COUNT] = {"one hot key", "one key, denied", "100,000 keys at random"};
    const unsigned counts[] = {1, several};
    const double each = seconds / (2 * LOAD_COUNT * 2 * (ROUNDS + 0.25));
    for (enum bench_load load = LOAD_HOT; load < LOAD_COUNT; load++) {
        for (size_t i = 0; i < 2; i++) {
            double medians[2];
            if (!measure(subjects, load, counts[i], each, medians)) {
                output_fault(out, "no thread could be started");
                return CODE_UNASKED;
            }
            tell_result(out, names[load], counts[i], medians);
        }
    }
    return CODE_GOOD;
}

static int run_bench(const struct arguments *arguments, struct output *out)
{
    double seconds;
    double threads;
    struct bench_subjects subjects;
    weir_error error;
    char processor[128];
    if (arguments->operand_count != 0) {
        (void) fprintf(stderr, "%s: it takes options alone\n", arguments->command);
        return CODE_USAGE;
    }
    if (!read_number(arguments, OPTION_SECONDS, 0.5, 600, 6, &seconds) ||
        !read_number(arguments, OPTION_THREADS, 2, THREADS_MOST, 2, &threads)) {
        return CODE_USAGE;
    }
    int code = CODE_UNASKED;
    if (bench_subjects_open(&subjects, &error) != 0) {
        output_fault(out, error.message);
    } else {
        read_processor(processor, sizeof(processor));
        const long cores = sysconf(_SC_NPROCESSORS_ONLN);
        output_text(out, "weir %s on %s, %ld processors\n\n", weir_version(),
                    processor[0] != '\0' ? processor : "this machine", cores);
        output_text(out, "%-28s %7s %10s %12s %9s\n", "nanoseconds for a check", "threads", "weir", "baseline",
                    "ratio");
        output_flush(out);
        output_open(out, NULL, '{');
        output_string(out, "version", weir_version());
        output_string(out, "processor", processor);
        output_number(out, "processors", (uint64_t) cores);
        output_open(out, "results", '[');
        code = measure_all(&subjects, out, seconds, (unsigned) threads);
        output_close(out, ']');
        output_close(out, '}');
        output_line(out);
    }
    bench_subjects_close(&subjects);
    return code;
}

const struct command bench_command = {.name = "bench",
                                      .summary = "how long a check takes on this machine",
                                      .help = help,
                                      .options = options,
                                      .option_count = OPTION_COUNT,
                                      .run = run_bench};
