/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A round without memory: whichever allocation fails, the round fails, and the next one allocates what is missing. The
 * linker's --wrap leads the library's calls here (tests/meson.build).
 *
 * Guards: src/transport/redis/script_call.c, src/transport/redis/batch.c, src/transport/redis/server.c,
 * src/transport/redis/redis.c, src/transport/redis/answer.c
 */
#include <errno.h>

#include "policy/override_set.h"
#include "support/redis_scene.h"
#include "transport/redis/answer.h"
#include "transport/redis/script_call.h"
#include "transport/redis/topology.h"

/* Names that the linker gives. */
void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);

/* The allocation that fails, counted from 1; 0: none does. */
static size_t fails;
static size_t seen;

void *__wrap_calloc(size_t count, size_t size)
{
    return ++seen == fails ? NULL : __real_calloc(count, size);
}

void *__wrap_malloc(size_t size)
{
    return ++seen == fails ? NULL : __real_malloc(size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return ++seen == fails ? NULL : __real_realloc(old, size);
}

char *__wrap_strdup(const char *text)
{
    return ++seen == fails ? NULL : __real_strdup(text);
}

static void test_an_allocation_that_failed_is_made_again(void **state)
{
    (void) state;
    for (size_t failing = 1; failing <= 4; failing++) {
        struct redis_transport *t = __real_calloc(1, sizeof(*t));
        fails = failing;
        seen = 0;
        assert_int_equal(script_call_make_room(t), failing <= 3 ? -ENOMEM : 0);
        fails = 0;
        assert_int_equal(script_call_make_room(t), 0);
        assert_true(t->argv != NULL && t->lengths != NULL && t->texts != NULL);
        assert_int_equal(seen, failing <= 3 ? 4 : 3);
        free(t->argv);
        free(t->lengths);
        free(t->texts);
        free(t);
    }
}

#define REPORTS 40

static void test_a_round_without_memory_fails_and_the_next_one_does_not(void **state)
{
    (void) state;
    static struct report reports[REPORTS];
    for (size_t i = 0; i < REPORTS; i++) {
        reports[i] = (struct report){.kind = REPORT_WINDOW, .expire_ms = 1};
        (void) snprintf(reports[i].record, sizeof(reports[i].record), "weir:{%03zx}:k", i);
    }
    for (int cluster = 0; cluster < 2; cluster++) {
        bool failed = true;
        for (size_t failing = 1; failed; failing++) {
            struct redis_transport *t = scene_open(cluster != 0 ? "redis+cluster://a" : "redis://a");
            struct server_conn *server = t->servers[0];
            topology_step(t, SCENE_NOW);
            server->wanted = server->in_slot_map = t->slot_map_known = true;
            memset(t->slot_owner, 0, sizeof(t->slot_owner));
            for (int round_number = 0; round_number < 2; round_number++) {
                struct round round = {.reports = reports, .report_count = REPORTS, .node = "n"};
                server->stage = SERVER_READY;
                server->failures = 0;
                server->wanted = true;
                t->primary = cluster != 0 ? NULL : server;
                for (size_t i = 0; i < REPORTS; i++) {
                    reports[i].status = 1;
                }
                fails = round_number == 0 ? failing : 0;
                seen = 0;
                const int result = t->base.ops->begin(&t->base, &round, SCENE_NOW);
                fails = 0;
                if (round_number == 1) {
                    assert_int_equal(result, 0);
                    assert_int_equal(t->open_count, cluster != 0 ? 2 + REPORTS : 3);
                    assert_int_equal(t->lost_count, 0);
                    t->round = NULL;
                } else if (result != 0) {
                    assert_int_equal(result, -ENOTCONN);
                    assert_null(t->round);
                    assert_string_equal(t->problem, "out of memory");
                    assert_string_equal(t->problem_server, "redis");
                    assert_int_equal(t->base.ops->state(&t->base), TRANSPORT_READY);
                } else {
                    /* A command that cannot be made costs its connection, and with it all its batches. */
                    failed = t->open_count == 0;
                    assert_int_equal(failed, server->stage == SERVER_OFF);
                    assert_string_equal(t->problem, failed ? "out of memory" : "");
                    assert_int_equal(t->lost_count, failed ? t->batch_count : 0);
                    for (size_t i = 0; i < REPORTS; i++) {
                        assert_int_equal(reports[i].status, failed ? -EAGAIN : 1);
                    }
                    t->round = NULL;
                }
                t->problem[0] = '\0';
                server->call_count = 0;
                server->socket.out_length = server->socket.out_sent = 0;
                assert_true(failing < 100);
            }
            scene_close(t);
        }
    }
}

/* The round is none the worse, and keeps its version: the next one asks for the same entries. */
static void test_entries_without_memory_are_asked_for_again(void **state)
{
    (void) state;
    static const char *const words[] = {"v2", "", "p:a", "deny", "p:b", "5"};
    for (size_t failing = 1; failing <= 6; failing++) { /* the list, and four texts */
        struct redis_transport *t = scene_open("redis://a");
        struct batch batch = {.script = SCRIPT_OVERRIDES, .state = BATCH_SENT};
        struct round round = {.overrides_version = "v1"};
        redisReply *elements[6];
        for (size_t i = 0; i < 6; i++) {
            elements[i] = i == 1 ? number_reply(3) : text_reply(REDIS_REPLY_STRING, words[i]);
        }
        redisReply *reply = array_reply(6, elements);
        t->round = &round;
        fails = failing;
        seen = 0;
        assert_int_equal(answer_read(t, t->servers[0], &batch, reply, SCENE_NOW), ANSWER_GOOD);
        fails = 0;
        assert_int_equal(round.overrides_new, failing == 6);
        assert_int_equal(round.override_count, failing == 6 ? 2 : 0);
        assert_string_equal(round.overrides_version, failing == 6 ? "v2" : "v1");
        assert_int_equal(round.overrides != NULL, failing == 6);
        overrides_drop(round.overrides, round.override_count);
        freeReplyObject(reply);
        t->round = NULL;
        scene_close(t);
    }
}

static void test_a_transport_without_memory_is_not_opened_and_says_so(void **state)
{
    (void) state;
    const struct transport_config config = {.url = "redis://a,b,c", .prefix = "weir", .timeout_ms = 1000};
    for (size_t failing = 1; failing <= 5; failing++) {
        struct transport *t = NULL;
        weir_error error = {.code = 1};
        fails = failing;
        seen = 0;
        const int result = redis_transport_open(&config, &t, &error);
        fails = 0;
        assert_int_equal(result, failing <= 4 ? -ENOMEM : 0); /* the transport, and each host */
        assert_int_equal(error.code, result);
        assert_string_equal(error.message, result != 0 ? "out of memory" : "");
        if (result == 0) {
            t->ops->close(t);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_allocation_that_failed_is_made_again),
        cmocka_unit_test(test_a_round_without_memory_fails_and_the_next_one_does_not),
        cmocka_unit_test(test_entries_without_memory_are_asked_for_again),
        cmocka_unit_test(test_a_transport_without_memory_is_not_opened_and_says_so),
    };
    return cmocka_run_group_tests_name("unit/transport/script_memory", tests, NULL, NULL);
}
