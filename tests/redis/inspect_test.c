/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir/inspect.h against nodes of a fleet and their Redis. Two nodes use random keys under every algorithm. What an
 * inspector says of a key is what the nodes have counted; of two nodes' counts each is told under its id. An override
 * is in force for it as it is for them, and the keys at their limits are those that the nodes deny. Nothing is written.
 *
 * Guards: src/inspect/inspector.c, src/inspect/inspect_fleet.c, src/inspect/inspect_key.c,
 * src/inspect/inspect_overrides.c, src/inspect/inspect_records.c, src/inspect/inspect_full_keys.c,
 * src/inspect/chosen_key.c, src/inspect/standing.c, src/inspect/authors.c, src/inspect/limit_reports.c,
 * src/inspect/shelf.c, src/transport/redis/scripts/read_entries.lua, src/transport/redis/scripts/read_page.lua,
 * src/transport/redis/scripts/read_use.lua, src/transport/redis/scripts/use.lua
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/inspect.h>

#include "support/cluster.h"
#include "support/draw.h"
#include "support/server.h"
#include "support/support.h"

#define KEYS     24
#define POLICIES 5
#define NODES    2
#define LIMIT    1000
#define STEPS    600
#define WAIT_MS  60000
#define MONTH    (30 * 24 * HOUR) /* a window that ends amid the test is rare enough */

static const weir_algorithm algorithms[POLICIES] = {WEIR_FIXED_WINDOW, WEIR_SLIDING_WINDOW, WEIR_TOKEN_BUCKET,
                                                    WEIR_LEAKY_BUCKET, WEIR_SLIDING_LOG};
static const char *const names[POLICIES] = {"fixed", "sliding", "token", "leaky", "log"};

static struct {
    struct server server;
    char url[160];
    weir *nodes[NODES];
    weir_thread *threads[NODES];
    weir *reader; /* knows the policies, and no Redis */
    weir_inspector *in;
    uint64_t used[POLICIES][KEYS][NODES];
} s;

static weir *open_weir(const char *redis_url)
{
    weir_limit limits[POLICIES];
    weir_policy policies[POLICIES];
    weir_options options = WEIR_OPTIONS_INIT;
    weir_error error;
    for (size_t i = 0; i < POLICIES; i++) {
        limits[i] = (weir_limit){.algorithm = algorithms[i], .limit = LIMIT, .period_ns = i < 2 ? MONTH : HOUR};
        limits[i].delay = algorithms[i] == WEIR_LEAKY_BUCKET ? LIMIT : 0; /* all may pass at once */
        policies[i] = (weir_policy){.name = names[i],
                                    .limits = &limits[i],
                                    .limit_count = 1,
                                    .on_outage = WEIR_OUTAGE_CLOSED,
                                    .outage_grace_ms = 100};
    }
    options.redis_url = redis_url;
    options.sync_interval_ms = 50;
    options.redis_timeout_ms = WAIT_MS;
    options.no_thread = redis_url == NULL;
    weir *w = open_or_fail(&options);
    if (weir_set_policies(w, policies, POLICIES, &error) != 0) {
        fail_msg("%s", error.message);
    }
    return w;
}

static void scene_open(void)
{
    weir_error error;
    if (!server_available()) {
        skip();
    }
    memset(&s, 0, sizeof(s));
    server_start(&s.server);
    server_url(&s.server, false, s.url, sizeof(s.url));
    for (size_t i = 0; i < NODES; i++) {
        s.nodes[i] = open_weir(s.url);
        s.threads[i] = weir_attach(s.nodes[i]);
        assert_int_equal(weir_sync(s.nodes[i], WAIT_MS), 0);
    }
    s.reader = open_weir(NULL);
    if (weir_inspect_open(s.url, NULL, &s.in, &error) != 0) {
        fail_msg("%s", error.message);
    }
}

static void close_nodes(void)
{
    for (size_t i = 0; i < NODES; i++) {
        weir_close(s.nodes[i]);
        s.nodes[i] = NULL;
    }
}

static void scene_close(void)
{
    weir_inspect_close(s.in);
    close_nodes();
    weir_close(s.reader);
    server_stop(&s.server);
}

/* A key of a node's, "k5". */
static weir_key key_of(const weir *w, size_t policy, size_t number)
{
    static char text[8];
    const int length = snprintf(text, sizeof(text), "k%zu", number);
    return weir_make_key(w, weir_find_policy(w, names[policy]), text, (size_t) length);
}

/* A node uses units of a key, whatever the limit says. */
static void charge(size_t node, size_t policy, size_t key, uint64_t units)
{
    const weir_key made = key_of(s.nodes[node], policy, key);
    weir_charge(s.threads[node], &made, units);
    s.used[policy][key][node] += units;
}

/* A node gives units of a key back. */
static void refund(size_t node, size_t policy, size_t key, uint64_t units)
{
    const weir_key made = key_of(s.nodes[node], policy, key);
    weir_refund(s.threads[node], &made, units);
}

static void sync_all(void)
{
    for (size_t i = 0; i < 2 * NODES; i++) {
        assert_int_equal(weir_sync(s.nodes[i % NODES], WAIT_MS), 0);
    }
}

static const weir_inspected_key *inspect(const char *name, uint64_t cost)
{
    const weir_inspected_key *key;
    weir_error error;
    if (weir_inspect_key(s.in, s.reader, name, cost, &key, &error) != 0) {
        fail_msg("%s: %s", name, error.message);
    }
    return key;
}

/* What is said of a key against what the nodes have counted. */
static void check_key(size_t policy, size_t number)
{
    char name[40];
    const uint64_t *counts = s.used[policy][number];
    const uint64_t sum = counts[0] + counts[1];
    (void) snprintf(name, sizeof(name), "%s:k%zu", names[policy], number);
    const weir_inspected_key *key = inspect(name, 1);
    assert_string_equal(key->name, name);
    assert_string_equal(key->policy, names[policy]);
    assert_true(key->override == WEIR_NO_OVERRIDE && key->override_name == NULL && key->mode == WEIR_ENFORCE);
    assert_int_equal(key->limit_count, 1);
    assert_int_equal(key->fleet->node_count, NODES);
    const weir_inspected_limit *limit = &key->limits[0];
    assert_true(limit->limit.algorithm == algorithms[policy] && limit->limit.limit == LIMIT);
    assert_int_equal(limit->record.used, sum);
    assert_int_equal(limit->record.exists, sum != 0);
    assert_in_range(limit->record.demand + (algorithms[policy] == WEIR_SLIDING_LOG ? sum : 0), sum, 2 * sum);
    assert_in_range(limit->used, sum > 100 ? sum - 100 : 0, sum); /* of a bucket some may have come back */
    assert_int_equal(limit->remaining, limit->used < LIMIT ? LIMIT - limit->used : 0);
    assert_int_equal(key->denied, limit->remaining == 0);
    assert_true(limit->fits != key->denied && (limit->retry_after_ns != 0) == key->denied && key->deciding == 0);
    assert_int_equal(limit->end_ns != 0, policy < 2);
    assert_int_equal(limit->record.author_count, (counts[0] != 0) + (counts[1] != 0));
    for (size_t i = 0; i < limit->record.author_count; i++) {
        const weir_inspected_author *author = &limit->record.authors[i];
        const uint64_t most = counts[0] > counts[1] ? counts[0] : counts[1];
        assert_int_equal(author->admitted, i == 0 ? most : sum - most);
        assert_true(strcmp(author->node, key->fleet->nodes[0].id) == 0 ||
                    strcmp(author->node, key->fleet->nodes[1].id) == 0);
        assert_int_equal(author->reported_ns != 0, algorithms[policy] == WEIR_SLIDING_LOG);
    }
}

static void test_a_key_is_what_the_nodes_have_counted(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    scene_open();
    for (size_t i = 0; i < STEPS; i++) {
        charge((size_t) random_below(&rng, NODES), (size_t) random_below(&rng, POLICIES),
               (size_t) random_below(&rng, KEYS), draw_magnitude(&rng, 1, 100));
    }
    sync_all();
    for (size_t policy = 0; policy < POLICIES; policy++) {
        for (size_t key = 0; key < KEYS; key++) {
            check_key(policy, key);
        }
    }
    /* What a cost would meet. */
    charge(0, 0, 0, LIMIT / 2);
    sync_all();
    const uint64_t left = inspect("fixed:k0", 1)->limits[0].remaining;
    assert_true(left == 0 || !inspect("fixed:k0", left)->denied);
    assert_true(inspect("fixed:k0", left + 1)->denied);
    scene_close();
}

/* Of a sliding window the one before counts in part. */
static void test_the_window_before_counts_in_part(void **state)
{
    (void) state;
    const weir_limit limit = {.algorithm = WEIR_SLIDING_WINDOW, .limit = LIMIT, .period_ns = 4 * SECOND};
    const weir_policy policy = {.name = names[1], .limits = &limit, .limit_count = 1};
    const weir_inspected_limit *at;
    scene_open();
    for (size_t i = 0; i < NODES; i++) {
        assert_int_equal(weir_set_policies(s.nodes[i], &policy, 1, NULL), 0);
    }
    assert_int_equal(weir_set_policies(s.reader, &policy, 1, NULL), 0);
    const uint64_t until_ns = real_ns() + 120 * SECOND;
    size_t number = 0;
    uint64_t start_ns;
    do { /* again with another key where a busy machine has let a window pass */
        char name[40];
        assert_true(real_ns() < until_ns && number < KEYS);
        (void) snprintf(name, sizeof(name), "sliding:k%zu", number);
        charge(0, 1, number, 400);
        do {
            sync_all();
            at = &inspect(name, 1)->limits[0];
        } while (at->record.used != 0);
        start_ns = at->start_ns;
        charge(1, 1, number++, 100);
        sync_all();
        at = &inspect(name, 1)->limits[0];
    } while (at->start_ns != start_ns || at->before.used != 400);
    assert_true(at->before.used == 400 && at->record.used == 100);
    assert_in_range(at->carried, 1, 400);
    assert_int_equal(at->used, 100 + at->carried);
    assert_int_equal(at->remaining, LIMIT - at->used);
    scene_close();
}

/* All records of one walk, in steps: how many, and the units of those whose units do not come back by and by. */
static size_t walk(size_t step, uint64_t *units, char last[200])
{
    const weir_inspected_records *records;
    weir_error error;
    size_t found = 0;
    *units = 0;
    do {
        if (weir_inspect_records(s.in, step, WAIT_MS, &records, &error) != 0) {
            fail_msg("%s", error.message);
        }
        assert_true(records->server_count == 1 && records->servers[0].error == NULL && !records->refused);
        assert_int_equal(records->fleet->node_count, NODES);
        for (size_t i = 0; i < records->use_count; i++) {
            const weir_inspected_use *use = &records->uses[i];
            assert_int_equal(use->key[0], 'k');
            assert_int_equal(use->window != 0,
                             strcmp(use->policy, "fixed") == 0 || strcmp(use->policy, "sliding") == 0);
            *units += strcmp(use->policy, "token") != 0 && strcmp(use->policy, "leaky") != 0 ? use->units : 0;
            (void) snprintf(last, 200, "%s", use->record);
            found++;
        }
    } while (!records->ended);
    return found;
}

static void test_a_walk_reaches_every_record(void **state)
{
    (void) state;
    uint64_t units;
    uint64_t wanted = 0;
    char last[200];
    scene_open();
    for (size_t policy = 0; policy < POLICIES; policy++) {
        for (size_t key = 0; key < KEYS; key++) {
            charge(key % NODES, policy, key, key + 1);
            wanted += policy < 2 || policy == 4 ? key + 1 : 0;
        }
    }
    sync_all();
    redisReply *reply =
        server_command(&s.server, "MSET %s x %s y %s z", "weir:{000}:b1h:p", "weirs:{000}:b1h:p:k", "weir:{0}");
    freeReplyObject(reply);
    for (size_t times = 0; times < 2; times++) { /* the second walk begins anew */
        assert_int_equal(walk(times == 0 ? 100000 : 10, &units, last), POLICIES * KEYS);
        assert_int_equal(units, wanted);
    }
    const char *const names_of[] = {last, "weir:{000}:f1d:none:x:1", "other"};
    const weir_inspected_records *again;
    assert_int_equal(weir_inspect_uses(s.in, names_of, 3, &again, NULL), 0);
    assert_int_equal(again->use_count, 2); /* not the name that is no record's */
    assert_string_equal(again->uses[0].record, last);
    assert_int_equal(again->uses[0].units, strtoull(again->uses[0].key + 1, NULL, 10) + 1);
    assert_int_equal(again->uses[1].units, 0);
    assert_string_equal(again->uses[1].policy, "none");
    scene_close();
}

static void test_what_was_given_back_is_not_in_use(void **state)
{
    (void) state;
    uint64_t units;
    char last[200];
    scene_open();
    charge(0, 0, 0, LIMIT);
    sync_all();
    refund(0, 0, 0, 600);
    sync_all();
    const weir_inspected_record *record = &inspect("fixed:k0", 1)->limits[0].record;
    assert_true(record->used == LIMIT - 600 && record->refunds == 600 && record->authors[0].refunds == 600);
    assert_int_equal(walk(1000, &units, last), 1);
    assert_int_equal(units, LIMIT - 600);
    charge(1, 0, 0, 600); /* it is full again */
    sync_all();
    assert_int_equal(walk(1000, &units, last), 1);
    assert_int_equal(units, LIMIT);
    scene_close();
}

/* The weir that has the policies is a node whose own Redis does not answer, so that it denies all. */
static void test_an_outage_of_the_node_that_asks_is_no_matter(void **state)
{
    (void) state;
    scene_open();
    weir *alone = open_weir("redis://127.0.0.1:1");
    weir_thread *t = weir_attach(alone);
    const weir_key key = key_of(alone, 0, 0);
    const uint64_t until_ns = real_ns() + 60 * SECOND;
    weir_verdict verdict;
    while (weir_check(t, &key, 1, &verdict)) {
        assert_true(real_ns() < until_ns);
    }
    weir_close(s.reader);
    s.reader = alone;
    assert_int_equal(inspect("fixed:k0", 1)->limits[0].at_once, LIMIT);
    assert_false(inspect("token:k0", 1)->denied);
    scene_close();
}

static const weir_inspected_full_keys *full_keys(void)
{
    const weir_inspected_records *records;
    const weir_inspected_full_keys *full = NULL;
    weir_error error;
    if (weir_inspect_records(s.in, 100000, WAIT_MS, &records, &error) != 0 ||
        weir_inspect_full_keys(s.in, s.reader, records->uses, records->use_count, WAIT_MS, &full, &error) != 0) {
        fail_msg("%s", error.message);
    }
    assert_false(full->partly);
    return full;
}

static void test_keys_at_their_limit_are_found(void **state)
{
    (void) state;
    scene_open();
    for (size_t policy = 0; policy < POLICIES; policy++) {
        for (size_t key = 0; key < KEYS; key++) {
            charge(key % NODES, policy, key, 100 + key);
        }
    }
    sync_all();
    const weir_inspected_full_keys *none = full_keys();
    if (none->policy_count != 0) {
        fail_msg("%s is at limit %s, %f times", none->policies[0].top, none->policies[0].limit,
                 none->policies[0].times);
    }
    for (size_t policy = 0; policy < POLICIES; policy++) {
        for (size_t key = 0; key <= policy; key++) { /* as many of each policy as its number says, and one */
            charge(0, policy, key, LIMIT + 100 * key);
        }
    }
    sync_all();
    const weir_inspected_full_keys *full = full_keys();
    assert_int_equal(full->policy_count, POLICIES);
    for (size_t i = 0; i < POLICIES; i++) {
        const weir_inspected_full *row = &full->policies[i];
        size_t policy = 0;
        char top[40];
        while (strcmp(names[policy], row->policy) != 0) {
            policy++;
        }
        (void) snprintf(top, sizeof(top), "%s:k%zu", names[policy], policy);
        assert_int_equal(row->keys, policy + 1);
        if (algorithms[policy] != WEIR_SLIDING_LOG) { /* which has no more units than its limit */
            assert_string_equal(row->top, top);
        }
        assert_string_equal(row->limit, names[policy]);
        assert_true(!row->shadow && row->times > 0.95);
        assert_true(i == 0 || full->policies[i - 1].times >= row->times);
        assert_true(algorithms[policy] == WEIR_SLIDING_LOG || row->times > 1.05 + (double) policy / 10);
    }
    /* An override that allows a key takes it out; one that makes its limit small brings one in. */
    freeReplyObject(server_command(&s.server, "HSET weir:overrides fixed:k0 allow fixed:k5 10"));
    full = full_keys();
    for (size_t i = 0; i < full->policy_count; i++) {
        if (strcmp(full->policies[i].policy, "fixed") == 0) {
            assert_string_equal(full->policies[i].top, "fixed:k5");
            assert_int_equal(full->policies[i].keys, 1);
        }
    }
    scene_close();
}

static void test_overrides_are_in_force_as_for_nodes(void **state)
{
    (void) state;
    const weir_inspected_overrides *overrides;
    weir_error error;
    scene_open();
    assert_int_equal(weir_inspect_overrides(s.in, &overrides, &error), 0);
    assert_true(overrides->override_count == 0 && overrides->version == NULL && !overrides->wrong_type);
    freeReplyObject(server_command(&s.server, "HSET weir:overrides version 7 token:k1 5 token:k0 deny zz x %s %s",
                                   "token:k2", "9 until 2020-01-01T00:00Z"));
    charge(0, 2, 1, 2);
    sync_all();
    assert_int_equal(weir_inspect_overrides(s.in, &overrides, &error), 0);
    assert_int_equal(overrides->override_count, 4);
    assert_string_equal(overrides->record, "weir:overrides");
    assert_string_equal(overrides->version, "7");
    assert_string_equal(overrides->overrides[0].name, "token:k0");
    assert_string_equal(overrides->overrides[3].name, "zz");
    assert_string_equal(overrides->overrides[3].value, "x");
    const weir_inspected_key *key = inspect("token:k0", 1);
    assert_true(key->override == WEIR_OVERRIDE_DENY && key->denied && key->override_from_fleet &&
                key->deciding == key->limit_count);
    key = inspect("token:k1", 1);
    assert_true(key->override == WEIR_NO_OVERRIDE && key->override_from_fleet && key->limits[0].limit.limit == 5);
    assert_string_equal(key->override_value, "5");
    assert_true(key->limits[0].at_once == 5 && key->limits[0].remaining == 3);
    assert_null(inspect("token:k2", 1)->override_name); /* it has ended */
    assert_int_equal(weir_set_override(s.reader, "token:k0", "allow", &error), 0);
    key = inspect("token:k0", 1); /* that of the program is before that in Redis */
    assert_true(key->override == WEIR_OVERRIDE_ALLOW && !key->denied && !key->override_from_fleet);
    /* Of 1,200 entries none is lost between two pages. */
    for (size_t i = 0; i < 1200; i++) {
        freeReplyObject(server_command(&s.server, "HSET weir:overrides fixed:n%d %d", (int) i, (int) i));
    }
    assert_int_equal(weir_inspect_overrides(s.in, &overrides, &error), 0);
    assert_int_equal(overrides->override_count, 1204);
    freeReplyObject(server_command(&s.server, "DEL weir:overrides"));
    freeReplyObject(server_command(&s.server, "SET weir:overrides x"));
    assert_int_equal(weir_inspect_overrides(s.in, &overrides, &error), 0);
    assert_true(overrides->wrong_type && overrides->override_count == 0);
    assert_int_equal(inspect("token:k1", 1)->limits[0].at_once, LIMIT);
    scene_close();
}

/* What other programs may have written as an override. */
static void test_odd_overrides_are_told_and_are_not_in_force(void **state)
{
    (void) state;
    const weir_inspected_overrides *overrides;
    scene_open();
    char *large = malloc(5000000);
    assert_non_null(large);
    memset(large, 'x', 5000000);
    freeReplyObject(server_command(&s.server, "HSET weir:overrides token:large %b token:ends %b %b deny", large,
                                   (size_t) 5000000, "5\0x", (size_t) 3, "token:k9\0x", (size_t) 10));
    free(large);
    assert_int_equal(weir_inspect_overrides(s.in, &overrides, NULL), 0);
    assert_int_equal(overrides->override_count, 3);
    assert_string_equal(overrides->overrides[0].name, "token:ends");
    assert_string_equal(overrides->overrides[0].value, "5%x");
    assert_string_equal(overrides->overrides[1].name, "token:k9%x");
    assert_int_equal(strlen(overrides->overrides[2].value), 4097);
    assert_null(inspect("token:k9", 1)->override_name);
    assert_null(inspect("token:ends", 1)->override_name);
    /* A long key has a hash in its record's name: its override counts by either name. */
    static const char key[] = "a key of more than thirty-two bytes, as tokens are";
    const weir_key made = weir_make_key(s.nodes[0], weir_find_policy(s.nodes[0], "token"), key, sizeof(key) - 1);
    const weir_inspected_records *records;
    char name[200];
    weir_charge(s.threads[0], &made, 3);
    sync_all();
    freeReplyObject(server_command(&s.server, "HSET weir:overrides %s 7",
                                   "token:a%20key%20of%20more%20than%20thirty-two%20bytes%2C%20as%20tokens%20are"));
    assert_int_equal(weir_inspect_records(s.in, 100, WAIT_MS, &records, NULL), 0);
    assert_int_equal(records->use_count, 1);
    (void) snprintf(name, sizeof(name), "token:%s", records->uses[0].key);
    const weir_inspected_key *at = inspect(name, 1);
    assert_string_equal(at->override_value, "7");
    assert_true(at->limits[0].at_once == 7 && at->limits[0].record.used == 3);
    scene_close();
}

static long long changes(void)
{
    redisReply *reply = server_command(&s.server, "INFO persistence");
    const char *at = strstr(reply->str, "rdb_changes_since_last_save:");
    const long long count = strtoll(at + strlen("rdb_changes_since_last_save:"), NULL, 10);
    freeReplyObject(reply);
    return count;
}

static void test_nothing_is_written(void **state)
{
    (void) state;
    const weir_inspected_fleet *fleet;
    const weir_inspected_overrides *overrides;
    scene_open();
    for (size_t policy = 0; policy < POLICIES; policy++) {
        charge(0, policy, 1, LIMIT);
    }
    sync_all();
    freeReplyObject(server_command(&s.server, "HSET weir:overrides token:k1 5"));
    close_nodes(); /* their heartbeats are written */
    const long long before = changes();
    assert_int_equal(weir_inspect_fleet(s.in, &fleet, NULL), 0);
    assert_true(fleet->exists && !fleet->wrong_type && fleet->node_count == 0);
    assert_int_equal(weir_inspect_overrides(s.in, &overrides, NULL), 0);
    assert_int_equal(full_keys()->policy_count, POLICIES);
    for (size_t policy = 0; policy < POLICIES; policy++) {
        char name[40];
        (void) snprintf(name, sizeof(name), "%s:k1", names[policy]);
        assert_int_equal(inspect(name, 1)->limits[0].record.used, LIMIT);
        assert_string_equal(inspect(name, 1)->limits[0].record.authors[0].node + 6, "..."); /* the node is gone */
        (void) snprintf(name, sizeof(name), "%s:none", names[policy]);
        assert_false(inspect(name, 1)->limits[0].record.exists);
    }
    assert_int_equal(changes(), before);
    scene_close();
}

static void test_errors_are_told(void **state)
{
    (void) state;
    weir_inspector *in;
    weir_error error;
    const weir_inspected_fleet *fleet = NULL;
    const weir_inspected_key *key = NULL;
    const weir_inspected_records *records = NULL;
    scene_open();
    static const struct {
        const char *url, *prefix, *says;
    } rows[] = {{NULL, NULL, "redis_url is NULL"},
                {"http://h", NULL, "scheme"},
                {"redis://h", "{", "prefix"},
                {"redis://h", "", "prefix"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(weir_inspect_open(rows[i].url, rows[i].prefix, &in, &error), -EINVAL);
        assert_true(in == NULL && strstr(error.message, rows[i].says) != NULL);
    }
    weir_inspect_close(NULL);
    /* A user with few rights: names that are no record's are not asked for, and a walk is refused as such. */
    freeReplyObject(server_command(&s.server, "ACL SETUSER few on >pass ~weir:* +@all -scan"));
    char url[200];
    (void) snprintf(url, sizeof(url), "redis://few:pass@127.0.0.1:%d", s.server.port);
    assert_int_equal(weir_inspect_open(url, NULL, &in, &error), 0);
    const char *const asked[] = {"other", "weir:nodes", "weir:{000}:f1d:none:x:1"};
    assert_int_equal(weir_inspect_uses(in, asked, 3, &records, &error), 0);
    assert_true(records->use_count == 1 && !records->refused);
    assert_int_equal(weir_inspect_records(in, 100, 1000, &records, &error), 0);
    assert_true(records->refused && !records->ended && records->use_count == 0);
    weir_inspect_close(in);
    records = NULL;
    assert_int_equal(weir_inspect_key(s.in, s.reader, NULL, 1, &key, &error), -EINVAL);
    assert_int_equal(weir_inspect_key(s.in, s.reader, "fixed", 1, &key, &error), -EINVAL);
    assert_int_equal(weir_inspect_key(s.in, s.reader, "other:x", 1, &key, &error), -ENOENT);
    assert_non_null(strstr(error.message, "other"));
    assert_null(key);
    close_nodes();
    freeReplyObject(server_command(&s.server, "DEL weir:nodes"));
    freeReplyObject(server_command(&s.server, "SET weir:nodes x"));
    assert_int_equal(weir_inspect_fleet(s.in, &fleet, &error), 0);
    assert_true(fleet->wrong_type && fleet->node_count == 0);
    /* The connection is lost, there is no server, and it is back. */
    server_kill(&s.server);
    assert_int_equal(weir_inspect_records(s.in, 100, 1000, &records, &error), -EIO);
    assert_null(records);
    assert_non_null(strstr(error.message, s.server.socket));
    assert_int_equal(weir_inspect_key(s.in, s.reader, "fixed:x", 1, &key, &error), -EIO);
    server_restart(&s.server);
    assert_int_equal(weir_inspect_fleet(s.in, &fleet, &error), 0);
    assert_false(fleet->exists);
    scene_close();
}

#define CLUSTER_KEYS 90

/* A walk over all servers: how many of the keys it has found; *lost: a server that has not answered. */
static size_t walk_cluster(size_t step, const char **lost)
{
    const weir_inspected_records *records;
    weir_error error;
    size_t found = 0;
    *lost = NULL;
    for (size_t calls = 0; calls < 100; calls++) {
        if (weir_inspect_records(s.in, step, WAIT_MS, &records, &error) != 0) {
            fail_msg("%s", error.message);
        }
        assert_int_equal(records->server_count, CLUSTER_PRIMARIES);
        assert_false(records->refused);
        found += records->use_count;
        for (size_t i = 0; i < records->server_count; i++) {
            *lost = records->servers[i].error != NULL ? records->servers[i].server : *lost;
            assert_true(records->servers[i].error == NULL ||
                        strstr(records->servers[i].error, records->servers[i].server) != NULL);
        }
        if (records->ended || *lost != NULL) {
            return found;
        }
    }
    fail_msg("the walk does not end");
    return 0;
}

/* The records of all keys, as a Cluster has them on its servers. */
static void test_a_cluster_is_read_on_all_its_servers(void **state)
{
    (void) state;
    static struct cluster c;
    const char *lost;
    const weir_inspected_key *key;
    weir_error error;
    char url[200];
    if (!server_available()) {
        skip();
    }
    memset(&s, 0, sizeof(s));
    cluster_start(&c, 0);
    cluster_url(&c, "redis+cluster", CLUSTER_PRIMARIES, url, sizeof(url));
    weir *w = open_weir(url);
    weir_thread *t = weir_attach(w);
    s.reader = open_weir(NULL);
    assert_int_equal(weir_inspect_open(url, NULL, &s.in, &error), 0);
    for (size_t i = 0; i < CLUSTER_KEYS; i++) {
        const weir_key made = key_of(w, 0, i);
        weir_charge(t, &made, i + 1);
    }
    assert_int_equal(weir_sync(w, WAIT_MS), 0);
    assert_int_equal(weir_sync(w, WAIT_MS), 0);
    static const size_t steps[] = {1, 30, 300, 30000};
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        assert_int_equal(walk_cluster(steps[i], &lost), CLUSTER_KEYS);
        assert_null(lost);
    }
    const weir_inspected_records *records;
    assert_int_equal(weir_inspect_records(s.in, 30000, WAIT_MS, &records, &error), 0);
    char label[16];
    (void) snprintf(label, sizeof(label), "%s", records->uses[0].limit);
    weir_inspected_use use = {
        .policy = "fixed", .limit = label, .window = records->uses[0].window, .units = records->uses[0].units};
    /* Servers that have closed the connection are connected anew. */
    for (size_t i = 0; i < CLUSTER_PRIMARIES; i++) {
        server_must(&c.servers[i], "CLIENT KILL TYPE normal");
    }
    for (size_t i = 0; i < 10; i++) {
        char name[20];
        (void) snprintf(name, sizeof(name), "fixed:k%zu", i);
        assert_int_equal(inspect(name, 1)->limits[0].record.used, i + 1);
    }
    /* A slot that is half moved. */
    char record[400];
    (void) snprintf(record, sizeof(record), "%s", inspect("fixed:k0", 1)->limits[0].record.name);
    const int slot = cluster_slot(&c, record);
    const int from = c.owner[slot];
    const int to = (from + 1) % CLUSTER_PRIMARIES;
    cluster_move_begin(&c, slot, from, to);
    (void) cluster_move_keys(&c, slot, from, to, 1);
    assert_int_equal(walk_cluster(30, &lost), CLUSTER_KEYS);
    assert_int_equal(inspect("fixed:k0", 1)->limits[0].record.used, 1);
    while (cluster_move_keys(&c, slot, from, to, 100) != 0) {
    }
    cluster_move_end(&c, slot, to);
    /* A server that hangs, and has not the set of nodes, is left out. */
    const int nodes_on = c.owner[cluster_slot(&c, "weir:nodes")];
    const int overrides_on = c.owner[cluster_slot(&c, "weir:overrides")];
    int hangs = 0;
    while (hangs == nodes_on || hangs == overrides_on) {
        hangs++;
    }
    assert_int_equal(walk_cluster(30, &lost), CLUSTER_KEYS);
    server_pause(&c.servers[hangs]);
    const size_t found = walk_cluster(30000, &lost);
    assert_true(found > 0 && found < CLUSTER_KEYS && lost != NULL);
    char port[8];
    (void) snprintf(port, sizeof(port), "%d", c.servers[hangs].port);
    assert_non_null(strstr(lost, port));
    bool unread = false;
    char name[20];
    for (size_t k = 0; k < CLUSTER_KEYS && !unread; k++) { /* a key there cannot be read, and others can */
        (void) snprintf(name, sizeof(name), "fixed:k%zu", k);
        const int result = weir_inspect_key(s.in, s.reader, name, 1, &key, &error);
        assert_true(result == 0 || result == -EIO);
        unread = result == -EIO;
    }
    assert_true(unread);
    use.key = strchr(name, ':') + 1;
    const weir_inspected_full_keys *full;
    assert_int_equal(weir_inspect_full_keys(s.in, s.reader, &use, 1, WAIT_MS, &full, &error), 0);
    assert_true(full->partly && full->policy_count == 0);
    server_resume(&c.servers[hangs]);
    weir_inspect_close(s.in);
    weir_close(w);
    weir_close(s.reader);
    cluster_stop(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_key_is_what_the_nodes_have_counted),
        cmocka_unit_test(test_the_window_before_counts_in_part),
        cmocka_unit_test(test_a_walk_reaches_every_record),
        cmocka_unit_test(test_what_was_given_back_is_not_in_use),
        cmocka_unit_test(test_an_outage_of_the_node_that_asks_is_no_matter),
        cmocka_unit_test(test_keys_at_their_limit_are_found),
        cmocka_unit_test(test_overrides_are_in_force_as_for_nodes),
        cmocka_unit_test(test_odd_overrides_are_told_and_are_not_in_force),
        cmocka_unit_test(test_nothing_is_written),
        cmocka_unit_test(test_errors_are_told),
        cmocka_unit_test(test_a_cluster_is_read_on_all_its_servers),
    };
    return cmocka_run_group_tests_name("redis/inspect", tests, NULL, NULL);
}
