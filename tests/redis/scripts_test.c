/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scripts of windows and buckets: random reports, repeated, late, of resets and of units given back, are answered
 * by Redis as by the commands of the fleet in memory. And what a record in Redis always has: a time to live.
 *
 * Guards: src/transport/redis/scripts/report_window.lua, src/transport/redis/scripts/report_bucket.lua,
 * src/transport/redis/scripts/common.lua, src/transport/redis/scripts/counts.lua,
 * src/transport/redis/scripts/counts_add.lua,
 * src/transport/loopback/commands.lua, src/transport/loopback/script_host.c,
 * src/transport/redis/embed.py, src/transport/redis/script_call.c
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/exchange.h"
#include "support/server.h"
#include "transport/loopback/loopback.h"
#include "transport/redis/redis_state.h"

#define TIMEOUT_MS 5000
#define RECORDS    12
#define AUTHORS    5
#define ROUNDS     1500
#define IN_ROUND   8
#define REMEMBERED 64
#define BATCH      32
#define NOW_US     UINT64_C(1760000000000000)

static enum transport_event tell(struct transport *t, struct report *reports, size_t count)
{
    struct round round = {.reports = reports, .report_count = count, .node = "n1", .node_lifetime_ms = 60000};
    return exchange(t, &round);
}

/* What an author has counted so far of one record, and what it knows. */
struct author {
    uint64_t count, demand, refunds, tat_us, known_refunds, known, acked, acked_refunds;
};

struct world {
    uint64_t rng;
    struct author authors[RECORDS][AUTHORS];
    uint64_t reset_us, from_us;
    struct report past[REMEMBERED];
    size_t past_count;
};

/* A few large ones among many small ones. */
static uint64_t some_units(struct world *world)
{
    const uint64_t most = random_below(&world->rng, 50) == 0 ? UINT64_C(1) << 40 : 20;
    return random_below(&world->rng, most);
}

/* Whether nobody is denied and nothing refunded. Of some records for ever, of others for the time being. */
static bool is_plain_record(struct world *world, size_t i)
{
    return i < 4 || (i < 6 && random_below(&world->rng, 40) != 0);
}

static struct report new_report(struct world *world)
{
    const size_t i = random_below(&world->rng, RECORDS);
    const size_t by = random_below(&world->rng, AUTHORS);
    struct author *author = &world->authors[i][by];
    const bool bucket = i % 2 == 1;
    struct report r = {.kind = bucket ? REPORT_BUCKET : REPORT_WINDOW, .expire_ms = 600000};
    (void) snprintf(r.record, sizeof(r.record), "weir:{001}:x:p:%zu", i);
    (void) snprintf(r.author, sizeof(r.author), "%012zx.%zx", by, i);
    if (random_below(&world->rng, 4) != 0) {
        /* Over 2^40 a bucket would stand years ahead, at its bound, where all that is left of a difference is rounding.
         */
        const uint64_t units = bucket ? random_below(&world->rng, 20) : some_units(world);
        author->count += units;
        author->demand += units;
    }
    const bool plain = is_plain_record(world, i);
    const uint64_t most_denied = random_below(&world->rng, 8) == 0 ? UINT64_C(1) << 50 : 100;
    author->demand += !plain && random_below(&world->rng, 3) == 0 ? random_below(&world->rng, most_denied) : 0;
    if (!plain && author->refunds < author->count && random_below(&world->rng, 6) == 0) {
        const uint64_t most = author->count - author->refunds;
        author->refunds += random_below(&world->rng, (bucket && most > 100 ? 100 : most) + 1);
    }
    r.count = author->count;
    r.demand = author->demand;
    r.refunds = author->refunds;
    /* Of a window only a guess. */
    r.acked =
        !bucket && random_below(&world->rng, 8) == 0 ? random_below(&world->rng, 2 * author->count + 1) : author->acked;
    if (!plain && random_below(&world->rng, 12) == 0) {
        world->reset_us += random_below(&world->rng, 3); /* several nodes' resets at one time */
        r.reset_us = world->reset_us;
        r.reset_kept = random_below(&world->rng, 3);
    }
    if (bucket) {
        world->from_us += random_below(&world->rng, 2) * random_below(&world->rng, 100);
        r.from_us = world->from_us;
        r.tat_us = random_below(&world->rng, 3) != 0 ? author->tat_us : 0;
        r.acked_refunds = author->acked_refunds;
        r.known_refunds = author->known_refunds;
        r.known = r.tat_us != 0 ? author->known : 0;
        r.moves = !plain && random_below(&world->rng, 3) == 0 ? 1 + random_below(&world->rng, 20) : 0;
        r.most_us = world->from_us + random_below(&world->rng, 2000);
        /* Powers of two, so that a double's rounding is none. */
        r.unit_ps = (i % 4 == 1 ? UINT64_C(1) : UINT64_C(1) << random_below(&world->rng, 3)) << 24;
    }
    return r;
}

/* A new report, or one of the last again. */
static struct report next_report(struct world *world)
{
    if (world->past_count != 0 && random_below(&world->rng, 3) == 0) {
        const size_t had = world->past_count < REMEMBERED ? world->past_count : REMEMBERED;
        return world->past[random_below(&world->rng, had)];
    }
    const struct report r = new_report(world);
    world->past[world->past_count++ % REMEMBERED] = r;
    return r;
}

static void learn(struct world *world, const struct report *r)
{
    unsigned i;
    size_t by;
    assert_int_equal(sscanf(r->record, "weir:{001}:x:p:%u", &i), 1);
    assert_int_equal(sscanf(r->author, "%zx.", &by), 1);
    struct author *author = &world->authors[i][by];
    author->tat_us = r->tat_answer_us;
    author->known_refunds = r->sum_refunds;
    author->known = r->sum - r->sum_refunds;
    author->acked = author->acked > r->count ? author->acked : r->count;
    author->acked_refunds = author->acked_refunds > r->refunds ? author->acked_refunds : r->refunds;
    author->refunds =
        author->refunds > r->author_refunds ? author->refunds : r->author_refunds; /* a reset gave back in its name */
}

static struct redis_transport *redis_transport_state(struct transport *t)
{
    return (struct redis_transport *) (void *) t;
}

static unsigned long long calls_of(const struct server *server, const char *command)
{
    char field[40];
    unsigned long long calls = 0;
    redisReply *reply = server_command(server, "INFO commandstats");
    (void) snprintf(field, sizeof(field), "cmdstat_%s:calls=", command);
    const char *at = strstr(reply->str, field);
    if (at != NULL) {
        calls = strtoull(at + strlen(field), NULL, 10);
    }
    freeReplyObject(reply);
    return calls;
}

static void expect_alike(const struct report *redis, const struct report *memory, size_t step)
{
    if (redis->status != memory->status || redis->author_count != memory->author_count || redis->sum != memory->sum ||
        redis->sum_demand != memory->sum_demand || redis->author_refunds != memory->author_refunds ||
        redis->sum_refunds != memory->sum_refunds ||
        (redis->kind == REPORT_BUCKET && redis->tat_answer_us != memory->tat_answer_us)) {
        fail_msg("step %zu, %s by %s: redis says %d %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
                 " %" PRIu64 ", in memory %d %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64,
                 step, redis->record, redis->author, redis->status, redis->author_count, redis->sum, redis->sum_demand,
                 redis->author_refunds, redis->sum_refunds, redis->tat_answer_us, memory->status, memory->author_count,
                 memory->sum, memory->sum_demand, memory->author_refunds, memory->sum_refunds, memory->tat_answer_us);
    }
}

static long long pttl(const struct server *server, const char *name)
{
    redisReply *reply = server_command(server, "PTTL %s", name);
    const long long ttl_ms = reply->integer;
    freeReplyObject(reply);
    return ttl_ms;
}

static void expect_all_expire(const struct server *server)
{
    redisReply *keys = server_command(server, "KEYS *");
    for (size_t i = 0; i < keys->elements; i++) {
        if (pttl(server, keys->element[i]->str) <= 0) {
            fail_msg("%s stays for ever", keys->element[i]->str);
        }
    }
    freeReplyObject(keys);
}

/* Redis, and the fleet in memory beside it: both get the same reports. */
struct both {
    struct server server;
    struct transport *redis, *memory;
    struct loopback_fleet *fleet;
};

static void both_open(struct both *both)
{
    const struct transport_config config = {.timeout_ms = 1000};
    both->redis = redis_start(&both->server, TIMEOUT_MS);
    both->fleet = loopback_fleet_new(real_wall_ns, NULL);
    assert_non_null(both->fleet);
    assert_int_equal(loopback_transport_open(both->fleet, &config, &both->memory, NULL), 0);
}

static void both_close(struct both *both)
{
    both->memory->ops->close(both->memory);
    loopback_fleet_free(both->fleet);
    redis_stop(&both->server, both->redis);
}

static void test_random_reports_are_answered_as_in_memory(void **state)
{
    (void) state;
    static struct world world;
    struct both both;
    both_open(&both);
    memset(&world, 0, sizeof(world));
    world.rng = test_seed();
    world.reset_us = world.from_us = NOW_US;
    for (size_t i = 1; i < RECORDS; i += 2) {
        for (size_t by = 0; by < AUTHORS && i > RECORDS / 2; by++) {
            /* Buckets that have been in use for years: the records were lost, and then their counts begin again. */
            struct author *author = &world.authors[i][by];
            author->count = author->demand = author->acked = (UINT64_C(1) << 52) - 500 - random_below(&world.rng, 500);
        }
    }
    for (size_t step = 0; step < ROUNDS; step++) {
        struct report ours[IN_ROUND];
        struct report theirs[IN_ROUND];
        const size_t count = 1 + random_below(&world.rng, IN_ROUND);
        for (size_t i = 0; i < count; i++) {
            ours[i] = theirs[i] = next_report(&world);
        }
        const uint64_t now_us = world.from_us + random_below(&world.rng, 50);
        for (size_t i = 0; i < count; i++) {
            ours[i].now_us = theirs[i].now_us = now_us;
        }
        if (tell(both.redis, ours, count) != TRANSPORT_ROUND_DONE) {
            fail_msg("step %zu: %s", step, both.redis->ops->problem(both.redis));
        }
        /* In the order of the reports to Redis: windows, then buckets. */
        for (int kind = REPORT_WINDOW; kind <= REPORT_BUCKET; kind++) {
            for (size_t i = 0; i < count; i++) {
                if ((int) theirs[i].kind == kind) {
                    assert_int_equal(tell(both.memory, &theirs[i], 1), TRANSPORT_ROUND_DONE);
                    expect_alike(&ours[i], &theirs[i], step);
                    learn(&world, &ours[i]);
                }
            }
        }
    }
    expect_all_expire(&both.server);
    /* Both ways of a report were taken. */
    assert_in_range(calls_of(&both.server, "hincrby"), ROUNDS / 2, UINT32_MAX);
    assert_in_range(calls_of(&both.server, "hset"), ROUNDS / 2, UINT32_MAX);
    both_close(&both);
}

/* Tells what an author has counted of a bucket, and learns from the answer if `listens`. */
static uint64_t tell_of_bucket(struct transport *t, struct author *author, size_t by, bool listens)
{
    struct report r = {
        .kind = REPORT_BUCKET, .now_us = NOW_US, .from_us = NOW_US, .unit_ps = 1000000000, .expire_ms = 60000};
    (void) snprintf(r.record, sizeof(r.record), "weir:{001}:x:p:twice");
    (void) snprintf(r.author, sizeof(r.author), "%012zx.1", by);
    r.count = r.demand = author->count;
    r.refunds = author->refunds;
    r.acked = author->acked;
    r.acked_refunds = author->acked_refunds;
    r.tat_us = author->tat_us;
    r.known = author->known;
    r.known_refunds = author->known_refunds;
    assert_int_equal(tell(t, &r, 1), TRANSPORT_ROUND_DONE);
    const uint64_t new_units = author->count - author->acked;
    author->tat_us = listens ? r.tat_answer_us : author->tat_us + 1000 * new_units;
    author->known = listens ? r.sum - r.sum_refunds : author->known + new_units;
    author->known_refunds = listens ? r.sum_refunds : author->known_refunds;
    author->acked = author->count;
    author->acked_refunds = author->refunds;
    return r.tat_answer_us;
}

/*
 * Authors that know all of a bucket. Then its record is lost, some report again and go on, and it is lost once more.
 * When all have reported, its time is that of all units, whoever comes first. A unit takes a millisecond.
 */
static void lose_twice(struct transport *t, struct loopback_fleet *fleet, struct server *server, uint64_t seed)
{
    struct author authors[AUTHORS];
    uint64_t rng = seed;
    uint64_t tat_us = 0;
    memset(authors, 0, sizeof(authors));
    for (int lost = 0; lost < 3; lost++) {
        const size_t count = lost != 1 ? AUTHORS : random_below(&rng, AUTHORS);
        const size_t first = random_below(&rng, AUTHORS);
        uint64_t net = 0;
        for (size_t i = 0; i < count; i++) {
            const size_t by = (first + i) % AUTHORS;
            authors[by].count += 1 + random_below(&rng, 100);
            authors[by].refunds += lost == 2 ? random_below(&rng, authors[by].count) : 0; /* no more than it has had */
            tat_us = tell_of_bucket(t, &authors[by], by, lost == 0);
        }
        for (size_t by = 0; by < AUTHORS; by++) {
            net += authors[by].count - authors[by].refunds;
        }
        if (lost != 1 && tat_us != NOW_US + 1000 * net) {
            fail_msg("%s, seed %" PRIu64 ": %" PRIu64 " and not %" PRIu64 " units are owed",
                     server != NULL ? "redis" : "in memory", seed, (tat_us - NOW_US) / 1000, net);
        }
        if (server != NULL) {
            freeReplyObject(server_command(server, "FLUSHALL"));
        } else {
            loopback_fleet_flush(fleet);
        }
    }
}

/*
 * Of two authors of a lost record one has seen a later time with all 300 units in it. The other one has seen an earlier
 * time, in which 200 of them lack: with these it is the later one.
 */
static void see_with_fewer_units(struct transport *t, size_t first)
{
    struct author authors[] = {{.count = 100, .acked = 100, .tat_us = NOW_US + 300000, .known = 300},
                               {.count = 200, .acked = 200, .tat_us = NOW_US + 250000, .known = 100}};
    (void) tell_of_bucket(t, &authors[first], first, false);
    assert_int_equal(tell_of_bucket(t, &authors[1 - first], 1 - first, false), NOW_US + 450000);
}

static void test_of_a_lost_bucket_the_time_counts_that_is_latest_with_all_units(void **state)
{
    (void) state;
    struct both both;
    both_open(&both);
    for (size_t first = 0; first < 2; first++) {
        see_with_fewer_units(both.redis, first);
        see_with_fewer_units(both.memory, first);
        freeReplyObject(server_command(&both.server, "FLUSHALL"));
        loopback_fleet_flush(both.fleet);
    }
    both_close(&both);
}

static void test_a_bucket_that_is_lost_twice_has_the_time_of_all_units(void **state)
{
    (void) state;
    struct both both;
    both_open(&both);
    uint64_t rng = test_seed();
    for (int times = 0; times < 200; times++) {
        const uint64_t seed = random_below(&rng, UINT64_MAX);
        redis_transport_state(both.redis)->doubtful = times % 2 == 0;
        lose_twice(both.redis, both.fleet, &both.server, seed);
        lose_twice(both.memory, both.fleet, NULL, seed);
    }
    both_close(&both);
}

/* Each report is sent twice, to a record of its own each time: as the transport chooses, and to be merged. */
static void test_units_that_are_added_count_as_units_that_are_merged(void **state)
{
    (void) state;
    static struct world world;
    struct server server;
    struct transport *t = redis_start(&server, TIMEOUT_MS);
    memset(&world, 0, sizeof(world));
    world.rng = test_seed();
    world.reset_us = world.from_us = NOW_US;
    for (size_t step = 0; step < ROUNDS; step++) {
        if (random_below(&world.rng, 100) == 0) {
            freeReplyObject(server_command(&server, "FLUSHALL"));
        }
        struct report chosen[IN_ROUND];
        struct report merged[IN_ROUND];
        const size_t count = 1 + random_below(&world.rng, IN_ROUND);
        const uint64_t now_us = world.from_us + random_below(&world.rng, 50);
        for (size_t i = 0; i < count; i++) {
            chosen[i] = next_report(&world);
            chosen[i].now_us = now_us;
            merged[i] = chosen[i];
            merged[i].record[strlen("weir:{001}:")] = 'y';
        }
        redis_transport_state(t)->doubtful = false;
        assert_int_equal(tell(t, chosen, count), TRANSPORT_ROUND_DONE);
        redis_transport_state(t)->doubtful = true;
        assert_int_equal(tell(t, merged, count), TRANSPORT_ROUND_DONE);
        for (size_t i = 0; i < count; i++) {
            expect_alike(&chosen[i], &merged[i], step);
            learn(&world, &chosen[i]);
        }
    }
    expect_all_expire(&server);
    assert_in_range(calls_of(&server, "hincrby"), ROUNDS / 2, UINT32_MAX);
    redis_stop(&server, t);
}

static struct report report_of(enum report_kind kind, const char *name, uint64_t count)
{
    struct report r = {.kind = kind,
                       .count = count,
                       .demand = count,
                       .now_us = NOW_US,
                       .from_us = NOW_US,
                       .unit_ps = 1000000000,
                       .expire_ms = 60000,
                       .author = "a.1"};
    (void) snprintf(r.record, sizeof(r.record), "weir:{001}:x:p:%s", name);
    return r;
}

static void forbid(const struct server *server, const char *what)
{
    freeReplyObject(server_command(server, "ACL SETUSER default %s", what));
}

static void test_a_record_that_cannot_be_made_to_expire_is_not_kept(void **state)
{
    (void) state;
    struct server server;
    struct transport *t = redis_start(&server, TIMEOUT_MS);
    for (int kind = REPORT_WINDOW; kind <= REPORT_BUCKET; kind++) {
        struct report r = report_of((enum report_kind) kind, kind == REPORT_WINDOW ? "window" : "bucket", 5);
        struct report there = report_of((enum report_kind) kind, "there", 3);
        assert_int_equal(tell(t, &there, 1), TRANSPORT_ROUND_DONE);
        forbid(&server, "-pexpire");
        assert_int_equal(tell(t, &r, 1), TRANSPORT_ROUND_FAILED);
        assert_int_equal(tell(t, &there, 1), TRANSPORT_ROUND_FAILED);
        expect_all_expire(&server);
        assert_int_equal(server_sum(&server, there.record), 3); /* what expires anyway stays */
        forbid(&server, "+pexpire");
        assert_int_equal(tell(t, &r, 1), TRANSPORT_ROUND_DONE);
        assert_int_equal(r.sum, 5); /* once, for all that */
        assert_in_range(pttl(&server, r.record), 1, 70000);
        freeReplyObject(server_command(&server, "FLUSHALL"));
        forbid(&server, "-pexpire");
        assert_int_equal(tell(t, &r, 1), TRANSPORT_ROUND_FAILED);
        expect_all_expire(&server); /* nor is the nodes' record */
        forbid(&server, "+pexpire");
    }
    redis_stop(&server, t);
}

static void test_a_user_that_may_not_add_has_its_reports_merged(void **state)
{
    (void) state;
    struct server server;
    struct transport *t = redis_start(&server, TIMEOUT_MS);
    forbid(&server, "-hincrby");
    for (int kind = REPORT_WINDOW; kind <= REPORT_BUCKET; kind++) {
        struct report r = report_of((enum report_kind) kind, kind == REPORT_WINDOW ? "window" : "bucket", 5);
        assert_int_equal(tell(t, &r, 1), TRANSPORT_ROUND_DONE);
        r.acked = r.count;
        r.count = r.demand = 9;
        assert_int_equal(tell(t, &r, 1), TRANSPORT_ROUND_DONE);
        assert_int_equal(r.status, 0);
        assert_int_equal(r.sum, 9);
        assert_int_equal(server_sum(&server, r.record), 9);
    }
    expect_all_expire(&server);
    redis_stop(&server, t);
}

static void test_a_record_that_lost_its_time_to_live_gets_it_back(void **state)
{
    (void) state;
    struct server server;
    struct transport *t = redis_start(&server, TIMEOUT_MS);
    for (int kind = REPORT_WINDOW; kind <= REPORT_BUCKET; kind++) {
        struct report r = report_of((enum report_kind) kind, kind == REPORT_WINDOW ? "window" : "bucket", 5);
        assert_int_equal(tell(t, &r, 1), TRANSPORT_ROUND_DONE);
        freeReplyObject(server_command(&server, "PERSIST %s", r.record));
        assert_int_equal(tell(t, &r, 1), TRANSPORT_ROUND_DONE); /* nothing new, and yet */
        assert_in_range(pttl(&server, r.record), 1, 70000);
    }
    redis_stop(&server, t);
}

/* In a batch of many, of which one is set to expire in any case. */
static void test_every_record_of_a_batch_expires(void **state)
{
    (void) state;
    struct server server;
    struct transport *t = redis_start(&server, TIMEOUT_MS);
    for (int kind = REPORT_WINDOW; kind <= REPORT_BUCKET; kind++) {
        freeReplyObject(server_command(&server, "FLUSHALL"));
        struct report reports[BATCH];
        for (size_t i = 0; i < BATCH; i++) {
            char name[8];
            (void) snprintf(name, sizeof(name), "all%zu", i);
            reports[i] = report_of((enum report_kind) kind, name, 10);
            reports[i].expire_ms = 20000 + 1000 * (i % 3);
        }
        /* New records; records that are there; and records that were lost, of authors that were answered. */
        for (int step = 0; step < 3; step++) {
            if (step == 2) {
                freeReplyObject(server_command(&server, "FLUSHALL"));
            }
            redis_transport_state(t)->doubtful = false;
            assert_int_equal(tell(t, reports, BATCH), TRANSPORT_ROUND_DONE);
            for (size_t i = 0; i < BATCH; i++) {
                struct report *r = &reports[i];
                assert_int_equal(r->sum, r->count);
                assert_in_range(pttl(&server, r->record), r->expire_ms - 5000, r->expire_ms + 1000);
                r->acked = r->count;
                r->count = r->demand = r->count + 1;
            }
        }
    }
    redis_stop(&server, t);
}

/* The most words that a call can have, and the longest numbers: each report has a rate of its own. */
static void test_a_full_batch_has_room_for_a_rate_of_each_record(void **state)
{
    (void) state;
    static struct report reports[BATCH_REPORTS + 1];
    struct server server;
    struct transport *t = redis_start(&server, TIMEOUT_MS);
    for (int kind = REPORT_WINDOW; kind <= REPORT_BUCKET; kind++) {
        freeReplyObject(server_command(&server, "FLUSHALL"));
        const size_t count = sizeof(reports) / sizeof(reports[0]);
        for (size_t i = 0; i < count; i++) {
            char name[16];
            (void) snprintf(name, sizeof(name), "full%zu", i);
            reports[i] = report_of((enum report_kind) kind, name, (UINT64_C(1) << 52) - 100 + i % 10);
            reports[i].acked = reports[i].count - 1;
            reports[i].expire_ms = UINT64_C(4000000000) + i;
            reports[i].unit_ps = 1000000000 + i;
        }
        for (int step = 0; step < 4; step++) {
            redis_transport_state(t)->doubtful = step % 2 == 1;
            assert_int_equal(tell(t, reports, count), TRANSPORT_ROUND_DONE);
            for (size_t i = 0; i < count; i++) {
                struct report *r = &reports[i];
                assert_int_equal(r->status, 0);
                assert_int_equal(r->author_count, r->count);
                assert_int_equal(r->sum, r->count);
                assert_int_equal(r->tat_answer_us != 0, kind == REPORT_BUCKET);
                r->acked = r->count;
                r->count = r->demand = r->count + 1;
                r->tat_us = r->tat_answer_us;
            }
        }
    }
    redis_stop(&server, t);
}

/* Nodes of two rates, as while a policy changes, leave one tat in the record. */
static void test_a_bucket_has_one_tat_whatever_its_rate_was(void **state)
{
    (void) state;
    struct server server;
    struct transport *t = redis_start(&server, TIMEOUT_MS);
    struct report r = report_of(REPORT_BUCKET, "rates", 1000);
    assert_int_equal(tell(t, &r, 1), TRANSPORT_ROUND_DONE);
    for (int step = 0; step < 6; step++) {
        const uint64_t owed_us = r.tat_answer_us - NOW_US;
        const uint64_t old_unit_ps = r.unit_ps;
        r.acked = r.count++;
        r.demand = r.count;
        r.unit_ps = step % 2 == 0 ? 2000000000 : 1000000000;
        assert_int_equal(tell(t, &r, 1), TRANSPORT_ROUND_DONE);
        /* What was owed stays owed, in units, and one is new. A microsecond may be added by rounding up. */
        const uint64_t unit_us = r.unit_ps / 1000000;
        const uint64_t expected_us = owed_us / (old_unit_ps / 1000000) * unit_us + unit_us;
        assert_in_range(r.tat_answer_us - NOW_US, expected_us, expected_us + 2);
        redisReply *fields = server_command(&server, "HKEYS %s", r.record);
        assert_int_equal(fields->elements, 4);
        freeReplyObject(fields);
    }
    redis_stop(&server, t);
}

/* A bucket that is used all the time has its life moved with it, though not by every report. */
static void test_a_busy_bucket_lives_until_it_is_full_and_longer(void **state)
{
    (void) state;
    struct server server;
    struct transport *t = redis_start(&server, TIMEOUT_MS);
    uint64_t rng = test_seed();
    /* In a batch with others, so that it is seldom the one whose life is set anew whatever it says. */
    struct report reports[BATCH];
    for (size_t i = 0; i < BATCH; i++) {
        char name[8];
        (void) snprintf(name, sizeof(name), "busy%zu", i);
        reports[i] = report_of(REPORT_BUCKET, name, 1);
    }
    for (int step = 0; step < 300; step++) {
        struct report *r = &reports[0];
        r->count = r->demand = r->count + random_below(&rng, 10000); /* a millisecond each, and time stands still */
        assert_int_equal(tell(t, reports, BATCH), TRANSPORT_ROUND_DONE);
        const uint64_t full_ms = (r->tat_answer_us - NOW_US) / 1000;
        assert_in_range(pttl(&server, r->record), full_ms + 30000 - 5000, full_ms + 60000);
    }
    redis_stop(&server, t);
}

/* Each of the three counts for itself: what is told late of one changes no sum. */
static void test_what_is_told_late_of_a_count_changes_nothing(void **state)
{
    (void) state;
    struct server server;
    struct transport *t = redis_start(&server, TIMEOUT_MS);
    for (int kind = REPORT_WINDOW; kind <= REPORT_BUCKET; kind++) {
        for (int late = 0; late < 3; late++) {
            struct report r = report_of((enum report_kind) kind, "late", 100);
            r.demand = 150;
            r.refunds = 40;
            assert_int_equal(tell(t, &r, 1), TRANSPORT_ROUND_DONE);
            r.count -= late == 0 ? 10 : 0;
            r.demand -= late == 1 ? 10 : 0;
            r.refunds -= late == 2 ? 10 : 0;
            for (int times = 0; times < 2; times++) {
                assert_int_equal(tell(t, &r, 1), TRANSPORT_ROUND_DONE);
                assert_int_equal(r.sum, 100);
                assert_int_equal(r.sum_demand, 150);
                assert_int_equal(r.sum_refunds, 40);
                r = report_of((enum report_kind) kind, "late", 100); /* and the author's own are what they were */
                r.demand = 150;
                r.refunds = 40;
            }
            freeReplyObject(server_command(&server, "FLUSHALL"));
        }
    }
    redis_stop(&server, t);
}

/* Units that were given back before a bucket was lost are in the time that the author has seen, whether it tells its
 * known units or not. */
static void test_a_bucket_that_is_lost_takes_no_refund_twice(void **state)
{
    (void) state;
    struct server server;
    struct transport *t = redis_start(&server, TIMEOUT_MS);
    for (unsigned told = 0; told < 2; told++) {
        struct report r = report_of(REPORT_BUCKET, "lost", 100);
        r.refunds = 40;
        assert_int_equal(tell(t, &r, 1), TRANSPORT_ROUND_DONE);
        assert_int_equal(r.tat_answer_us, NOW_US + 60 * 1000);
        freeReplyObject(server_command(&server, "FLUSHALL"));
        r.acked = 100;
        r.acked_refunds = r.known_refunds = 40;
        r.known = told * 60;
        r.tat_us = NOW_US + 60 * 1000;
        r.refunds = 45;
        for (int times = 0; times < 2; times++) {
            assert_int_equal(tell(t, &r, 1), TRANSPORT_ROUND_DONE);
            assert_int_equal(r.sum, 100);
            assert_int_equal(r.sum_refunds, 45);
            assert_int_equal(r.tat_answer_us, NOW_US + 55 * 1000);
            r.acked_refunds = r.known_refunds = 45;
            r.known = told * 55;
            r.tat_us = r.tat_answer_us;
        }
        freeReplyObject(server_command(&server, "FLUSHALL"));
    }
    redis_stop(&server, t);
}

#define SUMMED 40 /* authors of a sum */

/* True if a sum is this one, but that a double has rounded it with each report. */
static bool is_rounded(uint64_t sum, uint64_t exact)
{
    const uint64_t off = sum > exact ? sum - exact : exact - sum;
    return off <= 3 * SUMMED * (exact >> 53);
}

/*
 * Of both: each author's count is exact, and a sum goes on above 2^53, where it is read rounded. What was asked for may
 * be more than that of one author alone.
 */
static void sums_go_on(struct transport *t, enum report_kind kind)
{
    struct report small = report_of(kind, "years", 1000);
    assert_int_equal(tell(t, &small, 1), TRANSPORT_ROUND_DONE);
    uint64_t sum = 1000, sum_demand = 1000, tat_us = small.tat_answer_us;
    for (unsigned step = 0; step < SUMMED; step++) {
        struct report large = report_of(kind, "years", (UINT64_C(1) << 52) - 12345 - step);
        (void) snprintf(large.author, sizeof(large.author), "b.%x", step);
        large.acked = large.count - 10; /* ten of them are new to the bucket */
        large.demand += step % 2 == 0 ? 0 : (UINT64_C(1) << 53);
        sum += large.count;
        sum_demand += large.demand;
        for (int times = 0; times < 2; times++) {
            assert_int_equal(tell(t, &large, 1), TRANSPORT_ROUND_DONE);
            assert_int_equal(large.status, 0);
            assert_int_equal(large.author_count, large.count);
            assert_true(is_rounded(large.sum, sum));
            assert_true(is_rounded(large.sum_demand, sum_demand));
            assert_int_equal(large.tat_answer_us, kind == REPORT_BUCKET ? tat_us + 10 * 1000 : tat_us);
        }
        tat_us = large.tat_answer_us;
        large.count -= 5; /* late */
        assert_int_equal(tell(t, &large, 1), TRANSPORT_ROUND_DONE);
        assert_true(is_rounded(large.sum, sum));
        small.count++;
        small.demand++;
        sum++;
        sum_demand++;
        small.acked = small.count - 1;
        assert_int_equal(tell(t, &small, 1), TRANSPORT_ROUND_DONE);
        assert_int_equal(small.author_count, small.count);
        assert_true(is_rounded(small.sum, sum));
        tat_us = small.tat_answer_us;
    }
    assert_true(sum > 16 * (UINT64_C(1) << 53));
    small.refunds = 100;
    assert_int_equal(tell(t, &small, 1), TRANSPORT_ROUND_DONE);
    assert_int_equal(small.sum_refunds, 100);
    assert_int_equal(small.tat_answer_us, kind == REPORT_BUCKET ? tat_us - 100 * 1000 : tat_us);
}

static void test_sums_go_on_above_what_a_double_has_exactly(void **state)
{
    (void) state;
    struct both both;
    both_open(&both);
    for (int kind = REPORT_WINDOW; kind <= REPORT_BUCKET; kind++) {
        sums_go_on(both.memory, (enum report_kind) kind);
        sums_go_on(both.redis, (enum report_kind) kind);
        freeReplyObject(server_command(&both.server, "FLUSHALL"));
        loopback_fleet_flush(both.fleet);
    }
    both_close(&both);
}

static void test_a_field_with_more_asked_than_can_be_told_loses_that_alone(void **state)
{
    (void) state;
    static const char *const demand[] = {"9223372036854775808", "18446744073709551615", "99999999999999999999999999"};
    struct server server;
    struct transport *t = redis_start(&server, TIMEOUT_MS);
    for (size_t i = 0; i < sizeof(demand) / sizeof(demand[0]); i++) {
        for (int kind = REPORT_WINDOW; kind <= REPORT_BUCKET; kind++) {
            struct report r = report_of((enum report_kind) kind, "old", 1000);
            freeReplyObject(
                server_command(&server, "HSET %s a.1 %b sum %b", r.record, "1000", (size_t) 4, "1078", (size_t) 4));
            char field[80];
            (void) snprintf(field, sizeof(field), "1000 %s", demand[i]);
            freeReplyObject(server_command(&server, "HSET %s a.1 %b", r.record, field, strlen(field)));
            (void) snprintf(field, sizeof(field), "1078 %s", demand[i]);
            freeReplyObject(server_command(&server, "HSET %s sum %b", r.record, field, strlen(field)));
            r.count++;
            r.demand = 1001 + 4096;
            assert_int_equal(tell(t, &r, 1), TRANSPORT_ROUND_DONE);
            assert_int_equal(r.status, 0);
            assert_int_equal(r.author_count, 1001);
            assert_int_equal(r.sum, 1079);
            assert_int_equal(r.sum_demand, 1078 + 1 + 4096);
            freeReplyObject(server_command(&server, "DEL %s", r.record));
        }
    }
    redis_stop(&server, t);
}

static void test_fields_that_are_not_weirs_count_as_nothing(void **state)
{
    (void) state;
    static const char *const values[] = {"nonsense",  "-5", "inf",    "nan", "1e300", "99999999999999999999 1",
                                         "1 2 3 4 5", "",   "-9 1 2", "0x",  "3 -4",  "5 6 99999999999999999999"};
    struct server server;
    struct transport *t = redis_start(&server, TIMEOUT_MS);
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        for (int kind = REPORT_WINDOW; kind <= REPORT_BUCKET; kind++) {
            struct report r = report_of((enum report_kind) kind, "odd", 5);
            freeReplyObject(server_command(&server, "HSET %s a.1 %s sum %s tat:1000000000 %s unit %s", r.record,
                                           values[i], values[i], values[i], values[i]));
            r.acked = i % 2; /* 0: the first report, else units that are new */
            assert_int_equal(tell(t, &r, 1), TRANSPORT_ROUND_DONE);
            assert_int_equal(r.status, 0);
            assert_int_equal(r.sum, 5);
            expect_all_expire(&server);
            freeReplyObject(server_command(&server, "DEL %s", r.record));
        }
    }
    redis_stop(&server, t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_reports_are_answered_as_in_memory),
        cmocka_unit_test(test_of_a_lost_bucket_the_time_counts_that_is_latest_with_all_units),
        cmocka_unit_test(test_a_bucket_that_is_lost_twice_has_the_time_of_all_units),
        cmocka_unit_test(test_units_that_are_added_count_as_units_that_are_merged),
        cmocka_unit_test(test_a_record_that_cannot_be_made_to_expire_is_not_kept),
        cmocka_unit_test(test_a_user_that_may_not_add_has_its_reports_merged),
        cmocka_unit_test(test_a_record_that_lost_its_time_to_live_gets_it_back),
        cmocka_unit_test(test_every_record_of_a_batch_expires),
        cmocka_unit_test(test_a_full_batch_has_room_for_a_rate_of_each_record),
        cmocka_unit_test(test_a_bucket_has_one_tat_whatever_its_rate_was),
        cmocka_unit_test(test_a_busy_bucket_lives_until_it_is_full_and_longer),
        cmocka_unit_test(test_what_is_told_late_of_a_count_changes_nothing),
        cmocka_unit_test(test_a_bucket_that_is_lost_takes_no_refund_twice),
        cmocka_unit_test(test_sums_go_on_above_what_a_double_has_exactly),
        cmocka_unit_test(test_a_field_with_more_asked_than_can_be_told_loses_that_alone),
        cmocka_unit_test(test_fields_that_are_not_weirs_count_as_nothing),
    };
    return cmocka_run_group_tests_name("redis/scripts", tests, NULL, NULL);
}
