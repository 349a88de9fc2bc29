/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes every place that an nginx's weir has left, for the tests of the nginx module:
 *
 *     nginx-crowd NAME KEYS
 *
 * opens the weir NAME, which has a table of KEYS, with the options of the module, and forks children that join. A child
 * that finds no place waits, and takes that of whoever leaves. The program says "full" when all places are taken. When
 * standard input ends, every eighth child is killed, and the others leave.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <weir/weir.h>

#define PLACES 1024

/* Waits for SIGTERM, which is blocked, for so long. True: it has come. */
static bool is_told_to_leave(long wait_ms)
{
    const struct timespec wait = {.tv_sec = wait_ms / 1000, .tv_nsec = wait_ms % 1000 * 1000000};
    sigset_t leave;
    (void) sigemptyset(&leave);
    (void) sigaddset(&leave, SIGTERM);
    return sigtimedwait(&leave, NULL, &wait) == SIGTERM;
}

/* A child's life: joins as soon as there is a place, and has it until it is told to leave. */
static int stay(weir *w)
{
    weir_error error;
    while (weir_join(w, &error) != 0) {
        if (error.code != -ENOSPC) {
            return fprintf(stderr, "%s\n", error.message), EXIT_FAILURE;
        }
        if (is_told_to_leave(20)) {
            return EXIT_SUCCESS;
        }
    }
    while (!is_told_to_leave(3600000)) {
    }
    weir_close(w);
    return EXIT_SUCCESS;
}

static void wait_until_full(const weir *w)
{
    weir_stats stats;
    do {
        (void) usleep(20000);
        weir_get_stats(w, &stats);
    } while (stats.process_count < PLACES);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        return fprintf(stderr, "NAME KEYS\n"), EXIT_FAILURE;
    }
    weir_options options = WEIR_OPTIONS_INIT;
    options.shared = true;
    options.shared_name = argv[1];
    options.no_thread = true;
    options.tick_us = 10000;
    options.max_processes = options.max_threads = PLACES;
    options.max_keys = strtoull(argv[2], NULL, 10);
    weir *w = NULL;
    weir_error error;
    if (weir_open(&options, &w, &error) != 0) {
        return fprintf(stderr, "%s\n", error.message), EXIT_FAILURE;
    }
    sigset_t leave;
    (void) sigemptyset(&leave);
    (void) sigaddset(&leave, SIGTERM);
    (void) sigprocmask(SIG_BLOCK, &leave, NULL);
    static pid_t children[PLACES];
    for (size_t i = 0; i < PLACES; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            return stay(w);
        }
    }
    wait_until_full(w);
    (void) write(STDOUT_FILENO, "full\n", 5);
    while (getchar() != EOF) {
    }
    for (size_t i = 0; i < PLACES; i++) {
        if (children[i] > 0) {
            (void) kill(children[i], i % 8 == 0 ? SIGKILL : SIGTERM);
        }
    }
    while (wait(NULL) > 0 || errno == EINTR) {
    }
    weir_close(w);
    return EXIT_SUCCESS;
}
