/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node on a real Redis that fails in one way: scrape FAILURE writes the node's metrics to stdout, scrape after
 * scrape, for alerts_test.py. Each scrape begins with a line "# scrape PHASE"; the phase "before" is up to the failure,
 * the phase "failing" is from the moment at which the node has noticed it. Lines of the log go to stdout, too, as "#
 * log ...".
 *
 * Phases end by what the node has counted, not by time. A machine that is slow makes them longer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/server.h"
#include "support/support.h"

#define DEADLINE_NS     (100 * SECOND)
#define PATIENT_MS      20000 /* no answer is so late */
#define HUNG_TIMEOUT_MS 1000
#define SCRAPE_EVERY_MS 60
#define SCRAPES_LEAST   8
#define PASSWORD        "hunter2"

struct node {
    const char *phase;
    weir *w;
    weir_thread *t;
    weir_key key;
};

static void say(void *arg, weir_log_level level, const char *message)
{
    (void) arg;
    (void) level;
    (void) printf("# log %s\n", message);
}

static weir_stats stats_of(const struct node *node)
{
    weir_stats stats;
    weir_get_stats(node->w, &stats);
    return stats;
}

/* Some traffic, and the metrics. */
static void scrape(struct node *node)
{
    static char text[65536];
    const struct timespec pause = {.tv_nsec = SCRAPE_EVERY_MS * 1000000L};
    (void) weir_check(node->t, &node->key, 1, NULL);
    (void) nanosleep(&pause, NULL);
    assert_in_range(weir_write_metrics(node->w, text, sizeof(text)), 1, sizeof(text) - 1);
    (void) printf("# scrape %s\n%s", node->phase, text);
}

static weir_basis basis_of(const struct node *node)
{
    weir_verdict v;
    (void) weir_peek(node->t, &node->key, 1, &v);
    return v.basis;
}

/* Opens one without waiting for anything. */
static void open_node(struct node *node, const char *url, uint32_t timeout_ms, uint32_t grace_ms)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.redis_url = url;
    options.redis_timeout_ms = timeout_ms;
    options.log = say;
    node->w = open_or_fail(&options);
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1000000, .period_ns = 24 * HOUR};
    const weir_policy policy = {.name = "p", .limits = &limit, .limit_count = 1, .outage_grace_ms = grace_ms};
    weir_error error;
    assert_int_equal(weir_set_policies(node->w, &policy, 1, &error), 0);
    node->t = weir_attach(node->w);
    node->key = weir_make_key(node->w, weir_find_policy(node->w, "p"), "key", 3);
}

/* Scrapes until so many rounds more were answered. */
static void stays_well(struct node *node, const char *phase, uint64_t rounds)
{
    const uint64_t until_ns = real_ns() + DEADLINE_NS;
    const uint64_t from = stats_of(node).sync_count;
    node->phase = phase;
    for (int i = 0; i < SCRAPES_LEAST || stats_of(node).sync_count < from + rounds; i++) {
        if (real_ns() > until_ns) {
            fail_msg("no rounds are answered");
        }
        scrape(node);
    }
}

/* Waits until the node has noticed that Redis fails, and then scrapes until it has tried some times more. */
static void fails(struct node *node)
{
    const uint64_t until_ns = real_ns() + DEADLINE_NS;
    const struct timespec pause = {.tv_nsec = 1000000};
    weir_stats stats = stats_of(node);
    while (stats.link != WEIR_LINK_DOWN || basis_of(node) != WEIR_BASIS_OUTAGE) {
        if (real_ns() > until_ns) {
            fail_msg("the failure is not noticed");
        }
        (void) nanosleep(&pause, NULL);
        stats = stats_of(node);
    }
    const weir_stats from = stats;
    node->phase = "failing";
    for (int i = 0; i < SCRAPES_LEAST || stats.connection_attempt_count < from.connection_attempt_count + 3 ||
                    stats.sync_error_count < from.sync_error_count + 5;
         i++) {
        if (real_ns() > until_ns) {
            (void) printf("# what fails was not counted: %llu attempts, %llu errors of syncs\n",
                          (unsigned long long) (stats.connection_attempt_count - from.connection_attempt_count),
                          (unsigned long long) (stats.sync_error_count - from.sync_error_count));
            return; /* the table says what is missing */
        }
        scrape(node);
        stats = stats_of(node);
    }
}

/* Comes and goes, three times. */
static void flaps(struct node *node, struct server *server)
{
    const uint64_t until_ns = real_ns() + DEADLINE_NS;
    node->phase = "failing";
    for (int i = 0; i < 3; i++) {
        server_kill(server);
        while (stats_of(node).link != WEIR_LINK_DOWN) {
            assert_true(real_ns() < until_ns);
            scrape(node);
        }
        const uint64_t errors = stats_of(node).sync_error_count;
        const uint64_t attempts = stats_of(node).connection_attempt_count;
        while (stats_of(node).sync_error_count <= errors || stats_of(node).connection_attempt_count <= attempts) {
            if (real_ns() > until_ns) {
                return; /* the table says what is missing */
            }
            scrape(node);
        }
        const uint64_t rounds = stats_of(node).sync_count;
        server_restart(server);
        while (stats_of(node).sync_count < rounds + 3) {
            assert_true(real_ns() < until_ns);
            scrape(node);
        }
    }
}

static void run(const char *failure)
{
    struct server server;
    struct node node = {.phase = "before"};
    char url[160];
    const bool never = strcmp(failure, "never") == 0;
    const bool refused = strcmp(failure, "refused") == 0;
    const bool hung = strcmp(failure, "hung") == 0;
    const bool password = strcmp(failure, "password") == 0;
    const bool well = strcmp(failure, "well") == 0;
    server_init(&server);
    server.password = PASSWORD;
    if (!never) {
        server_launch(&server);
    }
    if (password) {
        (void) snprintf(url, sizeof(url), "redis://:not-%s@127.0.0.1:%d", PASSWORD, server.port);
    } else {
        server_url(&server, true, url, sizeof(url));
    }
    /* Where nothing fails, a machine that stands still for a second is no outage. */
    open_node(&node, url, hung ? HUNG_TIMEOUT_MS : PATIENT_MS, well ? PATIENT_MS : 0);
    if (!never && !password) {
        assert_int_equal(weir_sync(node.w, PATIENT_MS), 0);
        stays_well(&node, well ? "failing" : "before", well ? 12 : 3);
    }
    if (refused) {
        server_kill(&server);
    } else if (hung) {
        server_pause(&server);
    }
    if (strcmp(failure, "flaps") == 0) {
        flaps(&node, &server);
    } else if (!well) {
        fails(&node);
    }
    weir_detach(node.t);
    weir_close(node.w);
    server_stop(&server);
}

int main(int argc, char **argv)
{
    static const char *const failures[] = {"well", "never", "refused", "hung", "flaps", "password"};
    for (size_t i = 0; argc == 2 && i < sizeof(failures) / sizeof(failures[0]); i++) {
        if (strcmp(argv[1], failures[i]) == 0) {
            if (!server_available()) {
                return 77;
            }
            run(argv[1]);
            return 0;
        }
    }
    (void) fprintf(stderr, "usage: scrape well|never|refused|hung|flaps|password\n");
    return 2;
}
