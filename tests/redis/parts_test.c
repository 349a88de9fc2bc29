/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records of large fleets, whose authors are in several hashes (scripts/counts.lua).
 *
 * Random reports of authors of several parts, told again and late, while the server loses records, parts of records,
 * and all. When every author has reported since, a record's sum is that of its authors, to the unit, and a bucket's
 * time is that of all units. A third of 600 authors is replaced; the record stays small.
 *
 * Guards: src/transport/redis/scripts/counts.lua, src/transport/redis/scripts/fields.lua,
 * src/transport/redis/scripts/counts_add.lua,
 * src/transport/author.h
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "fleet/tuning.h"
#include "support/exchange.h"
#include "support/server.h"
#include "support/support.h"
#include "transport/author.h"

#define TIMEOUT_MS 5000
#define AUTHORS    12
#define PARTS      4
#define STEPS      3000
#define NOW_US     UINT64_C(1760000000000000)
#define LIFE_MS    60000
#define LARGE      600
#define SMALL_SIZE 8192 /* bytes of a record of so many authors */

struct author {
    uint64_t count, refunds, demand, acked, acked_refunds, known, known_refunds, tat_us;
    uint32_t part;
    char name[AUTHOR_LENGTH + 1];
};

struct world {
    struct server server;
    struct transport *t;
    enum report_kind kind;
    struct author authors[LARGE];
    const char *record;
};

static void open_world(struct world *w, enum report_kind kind)
{
    memset(w, 0, sizeof(*w));
    w->kind = kind;
    w->record = kind == REPORT_WINDOW ? "weir:{001}:f1s:p:key:1760000000" : "weir:{001}:b1s:p:key";
    w->t = redis_start(&w->server, TIMEOUT_MS);
}

static void name_author(struct author *author, uint64_t node, uint64_t incarnation, uint32_t part)
{
    char id[20];
    (void) snprintf(id, sizeof(id), "%012" PRIx64, node);
    *author = (struct author){.part = part};
    author_write(author->name, id, incarnation);
}

/* A unit takes a millisecond, so a bucket's time is NOW_US and a thousand for each unit. */
static struct report report_of(const struct world *w, const struct author *author)
{
    struct report r = {.kind = w->kind,
                       .count = author->count,
                       .demand = author->demand,
                       .refunds = author->refunds,
                       .acked = author->acked,
                       .acked_refunds = author->acked_refunds,
                       .known = author->known,
                       .known_refunds = author->known_refunds,
                       .tat_us = author->tat_us,
                       .now_us = NOW_US,
                       .from_us = NOW_US,
                       .unit_ps = 1000000000,
                       .expire_ms = LIFE_MS};
    (void) snprintf(r.record, sizeof(r.record), "%s", w->record);
    (void) snprintf(r.author, sizeof(r.author), "%s", author->name);
    return r;
}

/* Tells what an author has counted. `heard`: the author has the answer. */
static struct report tell(struct world *w, struct author *author, bool heard)
{
    struct report r = report_of(w, author);
    struct round round = {
        .reports = &r, .report_count = 1, .node = "n1", .part = author->part, .node_lifetime_ms = 60000};
    assert_int_equal(exchange(w->t, &round), TRANSPORT_ROUND_DONE);
    assert_int_equal(r.status, 0);
    assert_int_equal(r.author_count, author->count);
    if (heard) {
        author->acked = author->count;
        author->acked_refunds = author->refunds;
        author->known = r.sum - r.sum_refunds;
        author->known_refunds = r.sum_refunds;
        author->tat_us = r.tat_answer_us;
    }
    return r;
}

static void command(struct world *w, const char *format, const char *name)
{
    freeReplyObject(server_command(&w->server, format, name));
}

/* The names of a record's parts, one of them by chance; "" if there is none. */
static void some_part(struct world *w, uint64_t *rng, char *name, size_t size)
{
    redisReply *keys = server_command(&w->server, "KEYS weir:{*}{*");
    name[0] = '\0';
    if (keys->elements != 0) {
        (void) snprintf(name, size, "%s", keys->element[random_below(rng, keys->elements)]->str);
    }
    freeReplyObject(keys);
}

/* The server loses a part, the record, or both; or somebody writes to a part. */
static void lose(struct world *w, uint64_t *rng)
{
    char part[400];
    some_part(w, rng, part, sizeof(part));
    switch (random_below(rng, 5)) {
    case 0:
        command(w, "DEL %s", w->record);
        break;
    case 1:
        command(w, "FLUSHALL%s", "");
        break;
    case 2:
        if (part[0] != '\0') {
            command(w, "SET %s something EX 60", part);
        }
        break;
    default:
        if (part[0] != '\0') {
            command(w, "DEL %s", part);
        }
    }
}

static void expect_all_expire(struct world *w)
{
    redisReply *keys = server_command(&w->server, "KEYS *");
    for (size_t i = 0; i < keys->elements; i++) {
        redisReply *ttl = server_command(&w->server, "PTTL %s", keys->element[i]->str);
        assert_in_range(ttl->integer, 1, 86400000);
        freeReplyObject(ttl);
    }
    freeReplyObject(keys);
}

static void use_some(struct author *author, uint64_t *rng, bool others)
{
    const uint64_t units = random_below(rng, 20);
    author->count += units;
    author->demand += units;
    if (others && random_below(rng, 4) == 0) {
        author->demand += random_below(rng, 50);
        author->refunds += random_below(rng, author->count - author->refunds + 1);
    }
}

/*
 * All tell what they have, three times: a record may be found to be lost when half of them have, and then these tell a
 * second time. What is answered meanwhile is of half a record, so the third time the last ones learn what there is.
 */
static void expect_exact_sums(struct world *w)
{
    struct report last = {.sum = 0};
    uint64_t counts = 0;
    uint64_t refunds = 0;
    uint64_t demand = 0;
    for (int times = 0; times < 3; times++) {
        counts = refunds = demand = 0;
        for (size_t i = 0; i < AUTHORS; i++) {
            last = tell(w, &w->authors[i], true);
            counts += w->authors[i].count;
            refunds += w->authors[i].refunds;
            demand += w->authors[i].demand;
        }
    }
    assert_int_equal(last.sum, counts);
    assert_int_equal(last.sum_refunds, refunds);
    assert_int_equal(last.sum_demand, demand);
    if (w->kind == REPORT_BUCKET && counts != 0 && refunds == 0) {
        assert_int_equal(last.tat_answer_us, NOW_US + 1000 * counts);
    }
}

static void random_reports(enum report_kind kind, bool others)
{
    static struct world w;
    struct author past[AUTHORS];
    uint64_t rng = test_seed();
    open_world(&w, kind);
    for (size_t i = 0; i < AUTHORS; i++) {
        name_author(&w.authors[i], random_below(&rng, UINT64_C(1) << 48), 1 + random_below(&rng, 1000), i % PARTS);
        past[i] = w.authors[i];
    }
    for (int step = 0; step < STEPS; step++) {
        const size_t i = random_below(&rng, AUTHORS);
        struct author *author = &w.authors[i];
        if (random_below(&rng, 5) == 0) {
            /* An earlier report, late. Its answer is of no use. */
            struct report r = report_of(&w, &past[i]);
            struct round round = {
                .reports = &r, .report_count = 1, .node = "n1", .part = author->part, .node_lifetime_ms = 60000};
            assert_int_equal(exchange(w.t, &round), TRANSPORT_ROUND_DONE);
        } else {
            use_some(author, &rng, others);
            past[i] = *author;
            (void) tell(&w, author, kind == REPORT_BUCKET || random_below(&rng, 4) != 0);
        }
        if (random_below(&rng, 100) == 0) {
            lose(&w, &rng);
            expect_exact_sums(&w);
            memcpy(past, w.authors, sizeof(past));
        }
    }
    expect_exact_sums(&w);
    expect_all_expire(&w);
    redis_stop(&w.server, w.t);
}

static void test_sums_of_windows_are_exact_whatever_part_is_lost(void **state)
{
    (void) state;
    random_reports(REPORT_WINDOW, false);
    random_reports(REPORT_WINDOW, true);
}

static void test_sums_of_buckets_are_exact_whatever_part_is_lost(void **state)
{
    (void) state;
    random_reports(REPORT_BUCKET, false);
    random_reports(REPORT_BUCKET, true);
}

/* Bytes of a record and its parts; and that each is of the small kind. */
static uint64_t size_of_record(struct world *w)
{
    uint64_t size = 0;
    redisReply *keys = server_command(&w->server, "KEYS weir:{*");
    for (size_t i = 0; i < keys->elements; i++) {
        redisReply *bytes = server_command(&w->server, "MEMORY USAGE %s SAMPLES 0", keys->element[i]->str);
        redisReply *encoding = server_command(&w->server, "OBJECT ENCODING %s", keys->element[i]->str);
        size += (uint64_t) bytes->integer;
        assert_string_not_equal(encoding->str, "hashtable");
        freeReplyObject(bytes);
        freeReplyObject(encoding);
    }
    freeReplyObject(keys);
    return size;
}

static void random_author(struct author *author, uint64_t *rng, size_t nodes)
{
    const uint64_t node = random_below(rng, UINT64_C(1) << 48);
    name_author(author, node, 1 + random_below(rng, 1000000), (uint32_t) (node % (nodes / PART_NODES)));
}

static void test_six_hundred_authors_take_little_room_and_a_third_can_be_replaced(void **state)
{
    (void) state;
    static struct world w;
    for (int kind = REPORT_WINDOW; kind <= REPORT_BUCKET; kind++) {
        uint64_t rng = test_seed();
        uint64_t sum = 0;
        uint64_t told = 0;
        open_world(&w, (enum report_kind) kind);
        for (size_t i = 0; i < LARGE; i++) {
            random_author(&w.authors[i], &rng, LARGE);
        }
        for (int times = 0; times < 3; times++) {
            for (size_t i = 0; i < LARGE; i++) {
                const uint64_t units = 1 + random_below(&rng, 1000);
                w.authors[i].count += units;
                w.authors[i].demand += units;
                sum += units;
                told = tell(&w, &w.authors[i], true).sum;
            }
            assert_int_equal(told, sum);
        }
        assert_in_range(size_of_record(&w), LARGE * (AUTHOR_LENGTH + 2), SMALL_SIZE);
        for (size_t i = 0; i < LARGE; i += 3) {
            random_author(&w.authors[i], &rng, LARGE); /* the counts of the earlier one stay in the sum */
            w.authors[i].count = w.authors[i].demand = 1;
            sum++;
            told = tell(&w, &w.authors[i], true).sum;
        }
        assert_int_equal(told, sum);
        assert_in_range(size_of_record(&w), 0, SMALL_SIZE * 4 / 3 + 500); /* and of as many parts as before */
        expect_all_expire(&w);
        redis_stop(&w.server, w.t);
    }
}

/* A bucket's parts live as long as it does, whoever reports. */
static void test_a_part_lives_as_long_as_its_record(void **state)
{
    (void) state;
    static struct world w;
    char part[400];
    uint64_t rng = test_seed();
    open_world(&w, REPORT_BUCKET);
    for (uint32_t i = 0; i < 2; i++) {
        name_author(&w.authors[i], 1 + i, 1, i);
        w.authors[i].count = w.authors[i].demand = 5;
        (void) tell(&w, &w.authors[i], true);
    }
    some_part(&w, &rng, part, sizeof(part));
    command(&w, "PEXPIRE %s 5000", part);
    w.authors[0].count += LIFE_MS; /* a minute: of another stretch of the record's life */
    w.authors[0].demand += LIFE_MS;
    (void) tell(&w, &w.authors[0], true);
    redisReply *ttl = server_command(&w.server, "PTTL %s", part);
    assert_in_range(ttl->integer, 2 * LIFE_MS - 5000, 2 * LIFE_MS + 5000);
    freeReplyObject(ttl);
    redis_stop(&w.server, w.t);
}

/* Whatever has removed the time to live of a part of a window, the next report of one of its authors sets it again. */
static void test_a_part_that_lost_its_time_to_live_gets_it_back(void **state)
{
    (void) state;
    static struct world w;
    char part[400];
    uint64_t rng = test_seed();
    open_world(&w, REPORT_WINDOW);
    name_author(&w.authors[0], 1, 1, 1);
    for (uint64_t units = 1; units <= 4; units++) {
        w.authors[0].count = w.authors[0].demand = units / 2 * 2 + 1; /* new units, and nothing new, by turns */
        (void) tell(&w, &w.authors[0], true);
        expect_all_expire(&w);
        some_part(&w, &rng, part, sizeof(part));
        command(&w, "PERSIST %s", part);
    }
    redis_stop(&w.server, w.t);
}

static void test_authors_differ_by_node_and_by_stay(void **state)
{
    (void) state;
    char first[AUTHOR_LENGTH + 1];
    char other[AUTHOR_LENGTH + 1];
    author_write(first, "5f0c1a2b3d4e", 1);
    assert_int_equal(strlen(first), AUTHOR_LENGTH);
    assert_true(author_is_of(first, "5f0c1a2b3d4e"));
    assert_false(author_is_of(first, "5f0c1b2b3d4e"));
    for (uint64_t stay = 2; stay < 100000; stay++) {
        author_write(other, "5f0c1a2b3d4e", stay);
        assert_int_equal(strlen(other), AUTHOR_LENGTH);
        assert_null(strchr(other, ':'));
        assert_string_not_equal(other, first);
        assert_true(author_is_of(other, "5f0c1a2b3d4e"));
    }
    author_write(other, "5f0c1a2b3d4e", 1 + AUTHOR_DIGITS); /* here they begin again */
    assert_string_equal(other, first);
    author_write(other, "5f0c1a2b3d4f", 1);
    assert_string_not_equal(other, first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_authors_differ_by_node_and_by_stay),
        cmocka_unit_test(test_sums_of_windows_are_exact_whatever_part_is_lost),
        cmocka_unit_test(test_sums_of_buckets_are_exact_whatever_part_is_lost),
        cmocka_unit_test(test_six_hundred_authors_take_little_room_and_a_third_can_be_replaced),
        cmocka_unit_test(test_a_part_lives_as_long_as_its_record),
        cmocka_unit_test(test_a_part_that_lost_its_time_to_live_gets_it_back),
    };
    return cmocka_run_group_tests_name("redis/parts", tests, NULL, NULL);
}
