/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What does a hot check cost in a weir that processes share?
 *
 *     weir-processes REPETITIONS SECONDS
 *
 * Two processes, each on a processor of its own where there are two. Short turns alternate, so that all figures see the
 * same machine: the first process in a weir of its own, the first one in a shared weir, both in the shared weir on one
 * key, and each in a weir of its own at once, which shows what the machine does to any two processes.
 */
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <weir/weir.h>

#include "tools.h"

/* Each weir has a turn before its background thread sleeps, 50 ms after the last check. */
#define TURN_NS  (10 * NS_PER_MS)
#define AHEAD_NS (1 * NS_PER_MS) /* both processes are told of a turn so long before */
#define WARM_NS  (2 * NS_PER_MS) /* of a turn, not counted: grants grow */
#define BATCH    1000            /* checks between two looks at the clock */

/* What a turn is of, and what it is called. */
enum turn { UNSHARED, SHARED, BOTH_SHARED, BOTH_UNSHARED, TURNS };

static const char *const names[TURNS] = {"unshared", "shared", "two_shared", "two_unshared"};

/* Time and checks of the turns of one kind. */
struct sum {
    double ns, checks;
};

/* What the first process tells the second one, and its answer; in memory that both share. */
struct board {
    atomic_ulong turns;    /* given so far */
    atomic_ulong finished; /* by the second process */
    atomic_ulong from_ns;
    atomic_int turn; /* TURNS: the second process ends */
    struct sum second;
};

static struct board *board;

/* A hot key of one weir. */
struct hot {
    weir *w;
    weir_thread *t;
    weir_key key;
};

static weir *open_weir(bool shared)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.shared = shared;
    weir_limit limit = WEIR_LIMIT_INIT;
    limit.algorithm = WEIR_FIXED_WINDOW;
    limit.limit = UINT64_C(1000000000000);
    limit.period_ns = 86400 * UINT64_C(1000000000);
    weir_policy policy = WEIR_POLICY_INIT;
    policy.name = "p";
    policy.limits = &limit;
    policy.limit_count = 1;
    weir *w = NULL;
    weir_error error;
    if (weir_open(&options, &w, &error) != 0 || weir_set_policies(w, &policy, 1, &error) != 0) {
        (void) fprintf(stderr, "weir-processes: %s\n", error.message);
        exit(1);
    }
    return w;
}

static struct hot hot_key(weir *w)
{
    return (struct hot){w, weir_attach(w), weir_make_key(w, weir_find_policy(w, "p"), "198.51.100.7", 12)};
}

static void use_processor(size_t index)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(index, &set);
    (void) sched_setaffinity(0, sizeof(set), &set); /* where there is no such processor, on any */
}

/* Checks a key for a turn. A check that is refused would be another check: that ends the program. */
static void run_turn(const struct hot *hot, uint64_t from_ns, struct sum *sum)
{
    uint64_t begun_ns = 0;
    uint64_t now_ns = tools_now_ns();
    uint64_t checks = 0;
    while (now_ns < from_ns) {
        now_ns = tools_now_ns();
    }
    while (now_ns < from_ns + TURN_NS) {
        unsigned allowed = 0;
        for (int i = 0; i < BATCH; i++) {
            allowed += weir_check(hot->t, &hot->key, 1, NULL);
        }
        now_ns = tools_now_ns();
        if (allowed != BATCH) {
            (void) fprintf(stderr, "weir-processes: a check was refused\n");
            exit(1);
        }
        checks += begun_ns != 0 ? BATCH : 0;
        begun_ns = begun_ns == 0 && now_ns >= from_ns + WARM_NS ? now_ns : begun_ns;
    }
    sum->ns = (double) (now_ns - begun_ns);
    sum->checks = (double) checks;
}

static int second_process(weir *w)
{
    weir_error error;
    if (weir_join(w, &error) != 0) {
        (void) fprintf(stderr, "weir-processes: %s\n", error.message);
        return 1;
    }
    const struct hot shared = hot_key(w);
    const struct hot own = hot_key(open_weir(false));
    use_processor(1);
    for (unsigned long turn = 1;; turn++) {
        while (atomic_load(&board->turns) < turn) {
            tools_sleep_until(tools_now_ns() + NS_PER_MS / 10);
        }
        const int which = atomic_load(&board->turn);
        if (which == TURNS) {
            break;
        }
        run_turn(which == BOTH_SHARED ? &shared : &own, atomic_load(&board->from_ns), &board->second);
        atomic_store(&board->finished, turn);
    }
    weir_close(own.w);
    weir_close(w);
    return 0;
}

/* One turn; with two processes the sum is of both. False: the second process has ended. */
static bool take_turn(const struct hot hots[2], enum turn turn, pid_t second, struct sum *sum)
{
    const bool both = turn == BOTH_SHARED || turn == BOTH_UNSHARED;
    const uint64_t from_ns = tools_now_ns() + AHEAD_NS;
    struct sum first;
    unsigned long given = 0;
    if (both) {
        atomic_store(&board->turn, (int) turn);
        atomic_store(&board->from_ns, from_ns);
        given = atomic_fetch_add(&board->turns, 1) + 1;
    }
    run_turn(&hots[turn == SHARED || turn == BOTH_SHARED], from_ns, &first);
    while (both && atomic_load(&board->finished) < given) {
        if (waitpid(second, NULL, WNOHANG) != 0) {
            return false;
        }
        (void) sched_yield();
    }
    sum->ns += first.ns + (both ? board->second.ns : 0);
    sum->checks += first.checks + (both ? board->second.checks : 0);
    return true;
}

/* True: all went well. */
static bool measure(const struct hot hots[2], pid_t second, unsigned long repetitions, double seconds)
{
    const unsigned long rounds = (unsigned long) (seconds * 1e9 / TURN_NS) + 1;
    for (unsigned long i = 0; i < repetitions; i++) {
        struct sum sums[TURNS] = {{0, 0}};
        for (unsigned long turn = 0; turn < rounds * TURNS; turn++) {
            if (!take_turn(hots, (enum turn)(turn % TURNS), second, &sums[turn % TURNS])) {
                return false;
            }
        }
        for (int turn = 0; turn < TURNS; turn++) {
            tools_figure(sums[turn].ns / sums[turn].checks, "ns", "processes/%s", names[turn]);
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    const unsigned long repetitions = argc > 1 ? strtoul(argv[1], NULL, 10) : 7;
    const double seconds = argc > 2 ? strtod(argv[2], NULL) : 0.5;
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) {
        return perror("mmap"), 1;
    }
    weir *shared = open_weir(true);
    const pid_t second = fork();
    if (second < 0) {
        return perror("fork"), 1;
    }
    if (second == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(second_process(shared));
    }
    const struct hot hots[2] = {hot_key(open_weir(false)), hot_key(shared)};
    use_processor(0);
    const bool good = measure(hots, second, repetitions, seconds);
    if (good) {
        atomic_store(&board->turn, TURNS);
        (void) atomic_fetch_add(&board->turns, 1);
        (void) waitpid(second, NULL, 0);
    }
    weir_close(hots[0].w);
    weir_close(shared);
    return good ? 0 : 1;
}
