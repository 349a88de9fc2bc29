/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node that meets every probe, for probes_test.py. It waits for a line on standard input, so that a tracer can attach
 * before that. Each step prints a line.
 *
 *   traced REDIS_URL    every probe but that of the leader
 *   traced              a child joins a weir, its parent leaves, and the child leads
 */
#include <stdbool.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <weir/weir.h>

#define DAY        (UINT64_C(86400) * 1000000000)
#define MANY_KEYS  20000
#define MANY_TRIES 2000000

static int fail(const char *what, const weir_error *error)
{
    (void) fprintf(stderr, "%s: %s\n", what, error->message);
    return 1;
}

static int set_policies(weir *w)
{
    const weir_limit few = {.algorithm = WEIR_FIXED_WINDOW, .limit = 5, .period_ns = DAY};
    const weir_limit wide = {
        .algorithm = WEIR_TOKEN_BUCKET, .limit = 500000000, .period_ns = 1000000000, .burst = UINT64_C(1) << 40};
    const weir_policy policies[] = {
        {.name = "few", .limits = &few, .limit_count = 1, .on_outage = WEIR_OUTAGE_CLOSED},
        {.name = "wide", .limits = &wide, .limit_count = 1, .scope = WEIR_SCOPE_PROCESS},
    };
    weir_error error;
    return weir_set_policies(w, policies, 2, &error) != 0 ? fail("policies", &error) : 0;
}

/*
 * Denials by the table, one at least: a tick may begin in between. Two keys, so that the round after that has two
 * reports, and the probe fires for each.
 */
static void deny(weir *w, weir_thread *thread)
{
    const weir_key key = weir_make_key(w, weir_find_policy(w, "few"), "customer-17", 11);
    const weir_key other = weir_make_key(w, weir_find_policy(w, "few"), "customer-18", 11);
    (void) weir_check(thread, &other, 1, NULL);
    int allowed = 0;
    for (int i = 0; i < 9; i++) {
        allowed += weir_check(thread, &key, 1, NULL);
    }
    (void) printf("allowed %d\n", allowed);
}

/* Checks of one key within a tick, until the thread has been granted units. */
static void be_granted(weir *w, weir_thread *thread)
{
    const weir_key key = weir_make_key(w, weir_find_policy(w, "wide"), "hot", 3);
    for (int i = 0; i < MANY_TRIES; i++) {
        (void) weir_check(thread, &key, 1, NULL);
    }
}

static void evict(weir *w, weir_thread *thread)
{
    for (unsigned i = 0; i < MANY_KEYS; i++) {
        const weir_key key = weir_make_key(w, weir_find_policy(w, "wide"), &i, sizeof(i));
        (void) weir_check(thread, &key, 1, NULL);
    }
}

static bool wait_for_line(void)
{
    char line[8];
    (void) printf("ready\n");
    (void) fflush(stdout);
    return fgets(line, sizeof(line), stdin) != NULL;
}

static int run_node(const char *redis_url)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.redis_url = redis_url;
    options.max_keys = 1000;
    options.no_thread = true; /* no answer of Redis comes before the policies: "few" begins closed */
    weir *w = NULL;
    weir_error error;
    if (weir_open(&options, &w, &error) != 0) {
        return fail("open", &error);
    }
    if (set_policies(w) != 0) {
        return 1;
    }
    weir_thread *thread = weir_attach(w);
    (void) printf("first sync %d\n", weir_sync(w, 60000));
    deny(w, thread);
    (void) printf("second sync %d\n", weir_sync(w, 60000));
    be_granted(w, thread);
    evict(w, thread);
    weir_detach(thread);
    weir_close(w);
    return 0;
}

/* The child: nobody leads when it joins, so it leads by its first polls. */
static int lead(weir *w, int parent)
{
    char byte;
    weir_error error;
    (void) read(parent, &byte, 1); /* 0: the parent has closed the weir */
    if (weir_join(w, &error) != 0) {
        return fail("join", &error);
    }
    for (int i = 0; i < 20; i++) { /* a leader that worked a moment ago is not looked at */
        (void) weir_poll(w);
        (void) usleep(30000);
    }
    (void) printf("led\n");
    weir_close(w);
    return 0;
}

static int run_joined(void)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.shared = true;
    options.no_thread = true;
    weir *w = NULL;
    weir_error error;
    int ends[2];
    if (weir_open(&options, &w, &error) != 0) {
        return fail("open", &error);
    }
    if (pipe(ends) != 0) {
        return 1;
    }
    const pid_t child = fork();
    if (child < 0) {
        return 1;
    }
    if (child == 0) {
        (void) close(ends[1]);
        const int result = lead(w, ends[0]);
        (void) fflush(stdout);
        _exit(result);
    }
    weir_close(w);
    (void) close(ends[1]);
    int status = 1;
    (void) waitpid(child, &status, 0);
    return status != 0;
}

int main(int argc, char **argv)
{
    if (!wait_for_line()) {
        return 1;
    }
    const int result = argc > 1 ? run_node(argv[1]) : run_joined();
    (void) printf("closed\n");
    return result;
}
