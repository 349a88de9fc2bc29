/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs with other limits under one prefix and one name, over a real Redis: both logs name the policy, the other
 * node and both limits. What lies under the name PREFIX:limits is bounded, whatever others write there.
 *
 * Guards: src/transport/redis/scripts/limits.lua, src/transport/redis/answer.c, src/transport/redis/script_call.c,
 * src/transport/redis/batch.c, src/fleet/agreement.c
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomics.h"
#include "support/exchange.h"
#include "support/independent.h"
#include "support/server.h"
#include "support/support.h"
#include "transport/loopback/loopback.h"

#define PATIENT_MS 60000

struct node {
    weir *w;
    _Atomic uint64_t lines;
    char line[900];
    _Atomic uint64_t agreed;
};

static struct server server;
static char url[128];

static void keep(void *arg, weir_log_level level, const char *message)
{
    struct node *node = arg;
    if (level == WEIR_LOG_WARNING && strstr(message, "under the same prefix") != NULL) {
        (void) snprintf(node->line, sizeof(node->line), "%s", message);
        (void) add_release(&node->lines, 1); /* the line, then the count */
    }
    if (strstr(message, "the same limits again") != NULL) {
        (void) add_release(&node->agreed, 1);
    }
}

static void set_limit(struct node *node, uint64_t units)
{
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = units, .period_ns = SECOND};
    const weir_policy policy = {.name = "api", .limits = &limit, .limit_count = 1};
    assert_int_equal(weir_set_policies(node->w, &policy, 1, NULL), 0);
}

static void open_node(struct node *node, const char *name, uint64_t units)
{
    memset(node, 0, sizeof(*node));
    weir_options options = WEIR_OPTIONS_INIT;
    options.redis_url = url;
    options.node_name = name;
    options.max_keys = 1000;
    options.sync_interval_ms = 50;
    options.log = keep;
    options.log_arg = node;
    node->w = open_or_fail(&options);
    set_limit(node, units);
    assert_int_equal(weir_sync(node->w, PATIENT_MS), 0);
}

static int start(void **state)
{
    (void) state;
    if (server_available()) {
        server_start(&server);
        server_url(&server, false, url, sizeof(url));
    }
    return 0;
}

static int stop(void **state)
{
    (void) state;
    if (server_available()) {
        server_stop(&server);
    }
    return 0;
}

static void run(const char *format, const char *argument)
{
    redisReply *reply = server_command(&server, format, argument);
    assert_non_null(reply);
    assert_int_not_equal(reply->type, REDIS_REPLY_ERROR);
    freeReplyObject(reply);
}

static void expect_told(bool agrees)
{
    struct node a;
    struct node b;
    open_node(&a, "web-1", 1000);
    open_node(&b, "batch-1", 100);
    assert_true(wait_for_word(&a.lines, 1) && wait_for_word(&b.lines, 1));
    assert_non_null(strstr(a.line,
                           "policy api: this node has fixed_window 1000 per 1s, and node batch-1 has fixed_window "
                           "100 per 1s under the same prefix \"weir\""));
    assert_non_null(strstr(b.line, "policy api: this node has fixed_window 100 per 1s, and node web-1 has fixed_window "
                                   "1000 per 1s under the same prefix \"weir\""));
    if (agrees) {
        set_limit(&b, 1000);
        assert_true(wait_for_word(&b.agreed, 1) && wait_for_word(&a.agreed, 1));
    }
    weir_close(b.w);
    weir_close(a.w);
}

static void test_both_logs_name_the_other_node_and_both_limits(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    expect_told(true);
    /* Who leaves takes back what it has told. */
    assert_int_equal(server_number(&server, "HLEN %s", "weir:limits"), 1); /* the version */
    assert_true(server_number(&server, "PTTL %s", "weir:limits") > 0);
}

static void test_what_others_write_there_is_cleared_away(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    static const char *const rubbish[] = {"SET %s text",
                                          "SADD %s member",
                                          "HSET %s version x other y",
                                          "HSET %s version 99999999999999999999999999",
                                          "HSET %s 0011223344556677 nonsense",
                                          "HSET %s 0011223344556677 1|x"};
    for (size_t i = 0; i < sizeof(rubbish) / sizeof(rubbish[0]); i++) {
        run("DEL %s", "weir:limits");
        run(rubbish[i], "weir:limits");
        expect_told(false);
    }
    /* More fields than there can be, and texts that are too long. */
    run("DEL %s", "weir:limits");
    for (int field = 0; field < 100; field++) {
        char word[32];
        (void) snprintf(word, sizeof(word), "%d", field);
        run("HSET weir:limits %s 99999999999999", word);
    }
    expect_told(false);
    run("DEL %s", "weir:limits");
    char *text = malloc(20001);
    memset(text, '7', 20000);
    text[13] = ' ';
    text[20000] = '\0';
    run("HSET weir:limits 0011223344556677 %s", text);
    free(text);
    expect_told(false);
    assert_int_equal(server_number(&server, "HLEN %s", "weir:limits"), 1);
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(((const struct override_text *) a)->value, ((const struct override_text *) b)->value);
}

/* What one node is told by the script, and by the fleet in memory. */
static void tell_both(struct transport *const transports[2], struct round rounds[2], const struct round_limits *limits,
                      char versions[2][24])
{
    for (size_t i = 0; i < 2; i++) {
        rounds[i] = (struct round){.node = "n", .suspect_ms = 3000, .node_lifetime_ms = 10000, .limits = *limits};
        memcpy(rounds[i].limits.version, versions[i], sizeof(rounds[i].limits.version));
        assert_int_equal(exchange(transports[i], &rounds[i]), TRANSPORT_ROUND_DONE);
        overrides_drop(rounds[i].overrides_new ? rounds[i].overrides : NULL, rounds[i].override_count);
        memcpy(versions[i], rounds[i].limits.version, sizeof(rounds[i].limits.version));
    }
    const struct round_limits *script = &rounds[0].limits;
    const struct round_limits *memory = &rounds[1].limits;
    assert_int_equal(script->news, memory->news);
    if (script->news) {
        assert_int_equal(script->other_count, memory->other_count);
        qsort(script->others, script->other_count, sizeof(*script->others), compare_texts);
        qsort(memory->others, memory->other_count, sizeof(*memory->others), compare_texts);
        for (size_t i = 0; i < script->other_count; i++) {
            assert_string_equal(script->others[i].value, memory->others[i].value);
        }
        overrides_drop(script->others, script->other_count);
        overrides_drop(memory->others, memory->other_count);
    }
}

/* Nodes that come, change their limits, change them back and leave, as a draw has it. */
static void test_the_script_answers_as_the_fleet_in_memory_does(void **state)
{
    (void) state;
    enum { NODES = 5, SETS = 4 };
    struct server own;
    uint64_t rng = test_seed();
    struct transport *transports[2] = {redis_start(&own, PATIENT_MS), NULL};
    struct loopback_fleet *fleet = loopback_fleet_new(real_wall_ns, NULL);
    const struct transport_config config = {.timeout_ms = PATIENT_MS};
    assert_int_equal(loopback_transport_open(fleet, &config, &transports[1], NULL), 0);
    static char versions[NODES][2][24];
    static struct round rounds[2];
    unsigned has[NODES] = {0};
    memset(versions, 0, sizeof(versions));
    for (uint64_t draw = 0; draw < test_draws(2000); draw++) {
        const size_t node = (size_t) random_below(&rng, NODES);
        const unsigned set = 1 + (unsigned) random_below(&rng, SETS);
        const bool leaves = has[node] != 0 && random_below(&rng, 6) == 0;
        struct round_limits limits = {.told = true, .life_ms = leaves ? 0 : 600000};
        const unsigned told = leaves ? has[node] : set;
        (void) snprintf(limits.digest, sizeof(limits.digest), "%016u", told);
        if (has[node] != 0 && has[node] != told) {
            (void) snprintf(limits.before, sizeof(limits.before), "%016u", has[node]);
            versions[node][0][0] = versions[node][1][0] = '\0'; /* it compares anew */
        }
        (void) snprintf(limits.text, sizeof(limits.text), "edge-%zu\napi fixed_window %u per 1s\n", node % 3, told);
        tell_both(transports, rounds, &limits, versions[node]);
        has[node] = leaves ? 0 : told;
    }
    transports[1]->ops->close(transports[1]);
    loopback_fleet_free(fleet);
    redis_stop(&own, transports[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_logs_name_the_other_node_and_both_limits),
        cmocka_unit_test(test_what_others_write_there_is_cleared_away),
        cmocka_unit_test(test_the_script_answers_as_the_fleet_in_memory_does),
    };
    return cmocka_run_group_tests_name("redis/agreement", tests, start, stop);
}
