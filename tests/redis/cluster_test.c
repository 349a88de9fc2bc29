/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Redis Cluster of real servers: sums over slots, slots that move, shards that are lost, forget, or fail over.
 *
 * Guards: src/transport/redis/slot_map.c, src/transport/redis/topology.c, src/transport/redis/batch.c,
 * src/transport/redis/script_call.c
 */
#include <pthread.h>
#include <string.h>

#include "base/atomics.h"
#include "support/cluster.h"
#include "support/exchange.h"
#include "support/support.h"

#define TIMEOUT_MS 1000  /* where a server is paused, so that rounds end by it */
#define PATIENT_MS 20000 /* where all servers answer, each as soon as it gets a processor */
#define WAIT_NS    (60 * SECOND)
#define TAGS       60

/* One report for each of some tags, spread over the shards. */
static void fill(struct report *reports, size_t count, uint64_t said)
{
    for (size_t i = 0; i < count; i++) {
        reports[i] = window("a.1", said, said);
        (void) snprintf(reports[i].record, sizeof(reports[i].record), "weir:{%03zx}:p:key", i * 17 % 1024);
    }
}

static struct round round_of(struct report *reports, size_t count)
{
    return (struct round){.reports = reports, .report_count = count, .node = "n1", .node_lifetime_ms = 60000};
}

static void expect_all_reported(struct transport *t, struct report *reports, size_t count, uint64_t said)
{
    fill(reports, count, said);
    struct round round = round_of(reports, count);
    if (exchange(t, &round) != TRANSPORT_ROUND_DONE) {
        fail_msg("%s", t->ops->problem(t) != NULL ? t->ops->problem(t) : "no problem");
    }
    for (size_t i = 0; i < count; i++) {
        if (reports[i].status != 0 || reports[i].author_count != said) {
            fail_msg("%s: status %d, %llu", reports[i].record, reports[i].status,
                     (unsigned long long) reports[i].author_count);
        }
    }
    assert_int_equal(round.live_nodes, 1);
    assert_in_range(round.fleet_wall_ns, SECOND, UINT64_MAX);
}

static void test_every_report_goes_to_the_shard_of_its_slot(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    static struct cluster c;
    static struct report reports[1100];
    cluster_start(&c, 0);
    static const char *const schemes[] = {"redis", "redis+cluster"};
    for (size_t i = 0; i < 2; i++) {
        char url[200];
        cluster_url(&c, schemes[i], 1 + i, url, sizeof(url));
        struct transport *t = open_redis(url, PATIENT_MS);
        expect_all_reported(t, reports, 1100, 3 + i); /* more than there are tags: two records of some */
        assert_null(t->ops->problem(t));
        t->ops->close(t);
    }
    assert_int_equal(cluster_sum(&c, "weir:*:p:key"), 1024 * 4);
    for (size_t i = 0; i < CLUSTER_PRIMARIES; i++) {
        assert_true(server_sum(&c.servers[i], "weir:*:p:key") > 1000);
    }
#ifdef REDIS_REPLY_MAP
    char resp3[200];
    cluster_url(&c, "redis", 1, resp3, sizeof(resp3));
    (void) snprintf(resp3 + strlen(resp3), 20, "?protocol=3");
    struct transport *as_resp3 = open_redis(resp3, PATIENT_MS);
    expect_all_reported(as_resp3, reports, 1100, 5);
    as_resp3->ops->close(as_resp3);
#endif
    /* A seed that is gone is passed over; a Cluster needs no more than one that is there. */
    char url[200];
    (void) snprintf(url, sizeof(url), "redis://127.0.0.1:1,127.0.0.1:%d", c.servers[2].port);
    struct transport *t = open_redis(url, PATIENT_MS);
    expect_all_reported(t, reports, 50, 9);
    t->ops->close(t);
    cluster_stop(&c);
}

static void test_a_cluster_that_does_not_say_so_is_found_out(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    static struct cluster c;
    static struct report reports[TAGS];
    cluster_start(&c, 0);
    for (int i = 0; i < CLUSTER_PRIMARIES; i++) {
        server_must(&c.servers[i], "ACL SETUSER ann on >secret ~weir:* +@all -info");
    }
    char url[200];
    (void) snprintf(url, sizeof(url), "redis://ann:secret@127.0.0.1:%d", c.servers[1].port);
    struct transport *t = open_redis(url, PATIENT_MS);
    fill(reports, TAGS, 1);
    struct round round = round_of(reports, TAGS);
    assert_int_equal(exchange(t, &round), TRANSPORT_ROUND_FAILED); /* this round brings the new map */
    expect_all_reported(t, reports, TAGS, 2);
    assert_int_equal(cluster_sum(&c, "weir:*:p:key"), TAGS * 2);
    t->ops->close(t);
    cluster_stop(&c);
}

/* Records of the tag {001}, whose slot is half on its way: some are still at the source, some are not, some are new. */
static void test_a_slot_on_its_way_is_followed_within_the_round(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    static struct cluster c;
    cluster_start(&c, 0);
    char url[200];
    cluster_url(&c, "redis", 1, url, sizeof(url));
    struct transport *t = open_redis(url, PATIENT_MS);
    struct report reports[12];
    for (unsigned said = 1; said <= 4; said++) {
        const int slot = cluster_slot(&c, "{001}");
        const int from = c.owner[slot];
        const int to = (from + 1) % CLUSTER_PRIMARIES;
        const size_t count = said == 1 ? 6 : 12; /* the second half is new at the second time */
        for (size_t i = 0; i < count; i++) {
            reports[i] = window("a.1", said, said);
            (void) snprintf(reports[i].record, sizeof(reports[i].record), "weir:{001}:p:%zu", i);
        }
        struct round round = round_of(reports, count);
        assert_int_equal(exchange(t, &round), TRANSPORT_ROUND_DONE);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(reports[i].status, 0);
            assert_int_equal(reports[i].author_count, said);
        }
        assert_false(round.lost_state);
        if (said == 1) {
            cluster_move_begin(&c, slot, from, to);
            assert_int_equal(cluster_move_keys(&c, slot, from, to, 3), 3);
        } else if (said == 2) {
            while (cluster_move_keys(&c, slot, from, to, 100) != 0) {
            }
        } else if (said == 3) {
            cluster_move_end(&c, slot, to); /* MOVED */
        }
    }
    assert_int_equal(cluster_sum(&c, "weir:{001}:p:*"), 12 * 4);
    t->ops->close(t);
    cluster_stop(&c);
}

/* How many reports of a round have no answer. Nothing else may be wrong with a report. */
static size_t unanswered(struct transport *t, struct round *round, uint64_t said)
{
    if (exchange(t, round) != TRANSPORT_ROUND_DONE) {
        return round->report_count;
    }
    size_t count = 0;
    for (size_t i = 0; i < round->report_count; i++) {
        const struct report *report = &round->reports[i];
        if (report->status == -EAGAIN) {
            count++;
        } else if (report->status != 0 || report->author_count != said) {
            fail_msg("%s: status %d, %llu", report->record, report->status, (unsigned long long) report->author_count);
        }
    }
    return count;
}

/* As expect_all_reported, where a server that gets no processor for TIMEOUT_MS answers a later round. */
static void expect_all_reported_soon(struct transport *t, struct report *reports, size_t count, uint64_t said)
{
    const uint64_t until_ns = real_ns() + WAIT_NS;
    for (size_t missing = count; missing != 0;) {
        fill(reports, count, said);
        struct round round = round_of(reports, count);
        missing = unanswered(t, &round, said);
        if (missing != 0 && real_ns() > until_ns) {
            fail_msg("%zu of %zu reports are not answered: %s", missing, count,
                     t->ops->problem(t) != NULL ? t->ops->problem(t) : "no problem");
        }
    }
}

/*
 * Reports everything again and again. The reports of one shard fail, and those of the others arrive: in the same round,
 * but for a shard that gets no processor for TIMEOUT_MS. Returns what was said last.
 */
static uint64_t without(struct transport *t, const int shards[TAGS], int shard, struct report *reports, uint64_t said)
{
    const uint64_t until_ns = real_ns() + WAIT_NS;
    size_t of_shard = 0;
    for (size_t i = 0; i < TAGS; i++) {
        of_shard += shards[i] == shard;
    }
    for (int whole = 0; whole < 4; said++) {
        fill(reports, TAGS, said);
        struct round round = round_of(reports, TAGS);
        const size_t missing = unanswered(t, &round, said);
        for (size_t i = 0; i < TAGS && missing != TAGS; i++) { /* else the round may have failed as a whole */
            assert_true(shards[i] != shard || reports[i].status == -EAGAIN);
        }
        assert_non_null(t->ops->problem(t));
        if (missing == of_shard) {
            whole++;
            assert_in_range(round.fleet_wall_ns, SECOND, UINT64_MAX);
            assert_int_equal(round.live_nodes, 1);
        } else if (real_ns() > until_ns) {
            fail_msg("%zu reports are not answered, and %zu are of the lost shard", missing, of_shard);
        }
    }
    return said;
}

static void test_a_lost_shard_leaves_the_others(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    static struct cluster c;
    static struct report reports[TAGS];
    cluster_start(&c, 0);
    int shards[TAGS]; /* of every report */
    fill(reports, TAGS, 0);
    for (size_t i = 0; i < TAGS; i++) {
        shards[i] = c.owner[cluster_slot(&c, reports[i].record)];
    }
    /* Once the one whose slot the fleet's own heartbeat is in, once another one. */
    const int first = c.owner[cluster_slot(&c, "weir:nodes")];
    for (int scan_cursor = 0; scan_cursor < 2; scan_cursor++) {
        const int lost = (first + scan_cursor) % CLUSTER_PRIMARIES;
        char url[200];
        cluster_url(&c, "redis+cluster", 3, url, sizeof(url));
        struct transport *t = open_redis(url, TIMEOUT_MS);
        expect_all_reported_soon(t, reports, TAGS, 1);
        expect_all_reported_soon(t, reports, TAGS, 2);
        server_pause(&c.servers[lost]);
        /* The servers' own view is not asked for: cluster-node-timeout has not passed, or slots stay as they are. */
        const uint64_t said = without(t, shards, lost, reports, 3);
        server_resume(&c.servers[lost]);
        expect_all_reported_soon(t, reports, TAGS, said);
        assert_null(t->ops->problem(t));
        assert_int_equal(cluster_sum(&c, "weir:*:p:key"), TAGS * said);
        t->ops->close(t);
        for (int i = 0; i < CLUSTER_PRIMARIES; i++) {
            server_must(&c.servers[i], "FLUSHALL");
        }
    }
    cluster_stop(&c);
}

static bool forgets(struct transport *t)
{
    static struct report reports[TAGS];
    fill(reports, TAGS, 50);
    struct round round = round_of(reports, TAGS);
    assert_int_equal(exchange(t, &round), TRANSPORT_ROUND_DONE);
    return round.lost_state;
}

static void test_a_shard_that_forgets_is_noticed(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    static struct cluster c;
    cluster_start(&c, 0);
    char url[200];
    cluster_url(&c, "redis+cluster", 3, url, sizeof(url));
    struct transport *t = open_redis(url, PATIENT_MS);
    assert_false(forgets(t));
    assert_false(forgets(t));
    for (int i = 0; i < CLUSTER_PRIMARIES; i++) {
        server_must(&c.servers[i], "FLUSHALL");
        assert_true(forgets(t));
        assert_false(forgets(t));
    }
    server_restart(&c.servers[1]);
    bool noticed = false;
    const uint64_t until_ns = real_ns() + WAIT_NS;
    while (!noticed) {
        noticed = forgets(t);
        assert_true(real_ns() < until_ns);
        nap_ms(20);
    }
    t->ops->close(t);
    cluster_stop(&c);
}

static void test_a_promoted_replica_is_followed_and_told_again(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    static struct cluster c;
    static struct report reports[TAGS];
    cluster_start(&c, CLUSTER_PRIMARIES);
    char url[200];
    cluster_url(&c, "redis", 1, url, sizeof(url));
    struct transport *t = open_redis(url, TIMEOUT_MS);
    expect_all_reported_soon(t, reports, TAGS, 1);
    server_kill(&c.servers[0]); /* the only seed, too */
    bool forgot = false;
    const uint64_t until_ns = real_ns() + WAIT_NS;
    for (size_t missing = 1; missing != 0 || !forgot;) {
        fill(reports, TAGS, 2);
        struct round round = round_of(reports, TAGS);
        (void) exchange(t, &round);
        forgot = forgot || round.lost_state;
        missing = 0;
        for (size_t i = 0; i < TAGS; i++) {
            assert_true(reports[i].status == 0 || reports[i].status == -EAGAIN);
            missing += reports[i].status != 0;
        }
        if (real_ns() > until_ns) {
            fail_msg("%zu not told, %s: %s", missing, forgot ? "forgot" : "all known",
                     t->ops->problem(t) != NULL ? t->ops->problem(t) : "no problem");
        }
        nap_ms(20);
    }
    expect_all_reported_soon(t, reports, TAGS, 3);
    assert_null(t->ops->problem(t));
    assert_int_equal(cluster_sum(&c, "weir:*:p:key"), TAGS * 3);
    t->ops->close(t);
    cluster_stop(&c);
}

/* Slots are moved to the last shard while nodes report. (To one alone: servers that take slots from each other quicker
 * than they gossip come to disagree for good about whose they are.) */
struct mover {
    struct cluster *cluster;
    _Atomic uint64_t stop, moves;
};

static void *move_slots(void *arg)
{
    struct mover *m = arg;
    struct cluster *c = m->cluster;
    for (unsigned seq = 0; seq < 1024 && load_acquire(&m->stop) == 0; seq++) {
        char name[16];
        (void) snprintf(name, sizeof(name), "{%03x}", seq);
        const int slot = cluster_slot(c, name);
        const int from = c->owner[slot];
        const int to = CLUSTER_PRIMARIES - 1;
        if (from == to) {
            continue;
        }
        cluster_move_begin(c, slot, from, to);
        while (cluster_move_keys(c, slot, from, to, 1) != 0) {
        }
        cluster_move_end(c, slot, to);
        c->owner[slot] = to;
        (void) add_release(&m->moves, 1);
    }
    return NULL;
}

#define NODES       2
#define KEYS        400
#define MOVES_LEAST 20

static void test_counts_are_exact_while_slots_move(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    static struct cluster c;
    cluster_start(&c, 0);
    char url[200];
    cluster_url(&c, "redis", 3, url, sizeof(url));
    weir_options options = WEIR_OPTIONS_INIT;
    options.redis_url = url;
    options.sync_interval_ms = 20;
    options.redis_timeout_ms = PATIENT_MS;
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1000000, .period_ns = 24 * HOUR};
    weir *w[NODES];
    weir_thread *t[NODES];
    weir_policy_id policy[NODES];
    for (int i = 0; i < NODES; i++) {
        w[i] = open_or_fail(&options);
        policy[i] = set_one_policy(w[i], &limit, 1, WEIR_SCOPE_FLEET);
        t[i] = weir_attach(w[i]);
        assert_int_equal(weir_sync(w[i], 60000), 0);
    }
    struct mover mover = {.cluster = &c};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, move_slots, &mover), 0);
    uint64_t admitted = 0;
    uint64_t seed = test_seed();
    const uint64_t begun_ns = real_ns();
    uint64_t moves = 0;
    while (moves < 1024 && real_ns() < begun_ns + (moves <= MOVES_LEAST ? WAIT_NS : 6 * SECOND)) {
        for (int i = 0; i < 200; i++) {
            const int node = (int) random_below(&seed, NODES);
            const uint64_t number = random_below(&seed, KEYS);
            const weir_key key = weir_make_key(w[node], policy[node], &number, sizeof(number));
            admitted += weir_check(t[node], &key, 1, NULL);
        }
        nap_ms(1);
        moves = load_acquire(&mover.moves);
    }
    store_release(&mover.stop, 1);
    (void) pthread_join(thread, NULL);
    /* Uses every key once more, so that a key whose report failed is reported now. */
    for (int node = 0; node < NODES; node++) {
        for (uint64_t number = 0; number < KEYS; number++) {
            const weir_key key = weir_make_key(w[node], policy[node], &number, sizeof(number));
            admitted += weir_check(t[node], &key, 1, NULL);
        }
        assert_int_equal(weir_sync(w[node], 60000), 0);
        assert_int_equal(weir_sync(w[node], 60000), 0);
    }
    for (int node = 0; node < NODES; node++) {
        weir_stats stats;
        const uint64_t deadline_ns = real_ns() + WAIT_NS;
        do { /* a node whose thread got no processor for a while is live again after its next round */
            assert_true(real_ns() < deadline_ns);
            assert_int_equal(weir_sync(w[node], 60000), 0);
            weir_get_stats(w[node], &stats);
        } while (stats.live_nodes != NODES);
        assert_int_equal(stats.redis_lost_state_count, 0);
    }
    print_message("# %llu slots moved, %llu units\n", (unsigned long long) load_acquire(&mover.moves),
                  (unsigned long long) admitted);
    assert_true(load_acquire(&mover.moves) > MOVES_LEAST);
    assert_int_equal(cluster_sum(&c, "weir:*:p:*"), admitted);
    for (int i = 0; i < NODES; i++) {
        weir_detach(t[i]);
        weir_close(w[i]);
    }
    cluster_stop(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_report_goes_to_the_shard_of_its_slot),
        cmocka_unit_test(test_a_cluster_that_does_not_say_so_is_found_out),
        cmocka_unit_test(test_a_slot_on_its_way_is_followed_within_the_round),
        cmocka_unit_test(test_a_lost_shard_leaves_the_others),
        cmocka_unit_test(test_a_shard_that_forgets_is_noticed),
        cmocka_unit_test(test_a_promoted_replica_is_followed_and_told_again),
        cmocka_unit_test(test_counts_are_exact_while_slots_move),
    };
    return cmocka_run_group_tests_name("redis/cluster", tests, NULL, NULL);
}
