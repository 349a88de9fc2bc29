/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first commands on a connection: which are sent, and what is made of the replies. There are no connections.
 *
 * Guards: src/transport/redis/greeting.c
 */
#include "support/redis_scene.h"
#include "transport/redis/greeting.h"
#include "transport/redis/server.h"

#define INFO "INFO server\nINFO replication\n"

static void test_a_greeting_logs_in_and_asks_what_the_url_makes_needed(void **state)
{
    (void) state;
    static const struct {
        const char *url, *commands;
        unsigned due;
        bool newer; /* protocol 3 */
    } cases[] = {
        {"redis://h", INFO, 2},
        {"redis://h/0", INFO, 2},
        {"redis://h/12", "SELECT 12\n" INFO, 3},
        {"redis://:secret@h", "AUTH secret\n" INFO, 3},
        {"redis://ann:secret@h/3", "AUTH ann secret\nSELECT 3\n" INFO, 4},
        {"redis://a:s@h/1", "AUTH a s\nSELECT 1\n" INFO, 4}, /* one letter is enough */
        {"redis://a:s@h/1", "HELLO 3 AUTH a s\nSELECT 1\n" INFO, 4, true},
        {"redis://:s@h", "AUTH s\n" INFO, 3},
        {"redis+sentinel://a/p?sentinel_user=e&sentinel_password=w", "AUTH e w\n", 1},
        {"redis://ann:secret@h/3", "HELLO 3 AUTH ann secret\nSELECT 3\n" INFO, 4, true},
        {"redis://:secret@h", "HELLO 3 AUTH default secret\n" INFO, 3, true},
        {"redis://h", "HELLO 3\n" INFO, 3, true},
        {"redis://a,b", INFO "ROLE\n", 3},
        {"redis+cluster://ann:secret@a,b", "AUTH ann secret\n" INFO, 3},
        /* A Sentinel has a login of its own, no database, and nothing to say of data. */
        {"redis+sentinel://ann:secret@a/p/3", "", 0},
        {"redis+sentinel://ann:secret@a/p/3", "HELLO 3\n", 1, true},
        {"redis+sentinel://a/p?sentinel_user=eve&sentinel_password=word", "AUTH eve word\n", 1},
        {"redis+sentinel://a/p?sentinel_password=word", "HELLO 3 AUTH default word\n", 1, true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct redis_transport *t = scene_open(cases[i].url);
        t->url.protocol = cases[i].newer ? 3 : 2;
        assert_int_equal(greeting_send(t, t->servers[0]), 0);
        assert_string_equal(queued(t->servers[0]), cases[i].commands);
        assert_int_equal(t->servers[0]->greetings_due, cases[i].due);
        scene_close(t);
    }
    /* The server that a Sentinel names has the data's login, and is asked for its role. */
    struct redis_transport *t = scene_open("redis+sentinel://ann:secret@a/p/3?sentinel_password=word");
    struct server_conn *named = server_at(t, "10.0.0.9", "6379", false);
    assert_int_equal(greeting_send(t, named), 0);
    assert_string_equal(queued(named), "AUTH ann secret\nSELECT 3\n" INFO "ROLE\n");
    assert_int_equal(named->greetings_due, 5);
    scene_close(t);
}

static void test_a_greeting_forgets_what_the_connection_before_said(void **state)
{
    (void) state;
    struct redis_transport *t = scene_open("redis://h");
    struct server_conn *server = t->servers[0];
    (void) strcpy(server->identity, "abc def ");
    server->cluster = server->replica = server->answered = true;
    server->greeting = server->greetings_due = 9;
    server->sequence = 5;
    for (int i = 0; i < SCRIPT_COUNT; i++) {
        server->sourced_at[i] = 4;
    }
    assert_int_equal(greeting_send(t, server), 0);
    assert_string_equal(server->identity, "");
    assert_false(server->cluster || server->replica || server->answered);
    assert_int_equal(server->greeting, 0);
    assert_int_equal(server->greetings_due, 2);
    assert_int_equal(server->sequence, 0);
    for (int i = 0; i < SCRIPT_COUNT; i++) {
        assert_int_equal(server->sourced_at[i], 0);
    }
    scene_close(t);
}

/* Gives a reply to the greeting. */
static bool read_reply(struct redis_transport *t, redisReply *reply)
{
    const bool good = greeting_read(t, t->servers[0], reply);
    freeReplyObject(reply);
    return good;
}

static bool read_text(struct redis_transport *t, const char *text)
{
    return read_reply(t, text_reply(REDIS_REPLY_STRING, text));
}

static redisReply *role_reply(const char *role)
{
    return array_reply(1, (redisReply *[]){text_reply(REDIS_REPLY_STRING, role)});
}

static struct redis_transport *greet(const char *url)
{
    struct redis_transport *t = scene_open(url);
    assert_int_equal(greeting_send(t, t->servers[0]), 0);
    return t;
}

static void test_the_replies_tell_identity_and_role(void **state)
{
    (void) state;
    static const struct {
        const char *server, *replication, *identity;
        bool cluster, replica;
    } cases[] = {
        {"# Server\r\nredis_mode:standalone\r\nrun_id:0123abc\r\ntcp_port:1\r\n", "role:x\r\nmaster_replid:77ff\r\n",
         "0123abc 77ff ", false, false},
        {"run_id:0123abc", "# Replication\nrole:master\nmaster_replid:77ff\n", "0123abc 77ff ", false, false},
        {"redis_mode:cluster\r\nrun_id:1\r\n", "\r\nrole:slave\r\nmaster_replid:2\r\n", "1 2 ", true, true},
        {"server_mode:cluster\r\n", "role:master\r\n", "", true, false},
        {"# nothing", "# Replication\r\nrole:slave\r\nmaster_replid:2", "2 ", false, true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct redis_transport *t = greet("redis://:secret@h/2");
        struct server_conn *server = t->servers[0];
        assert_true(read_reply(t, text_reply(REDIS_REPLY_STATUS, "OK")));
        assert_true(read_reply(t, text_reply(REDIS_REPLY_STATUS, "OK")));
        assert_int_equal(server->greetings_due, 2);
        assert_true(read_text(t, cases[i].server));
        assert_int_equal(server->greetings_due, 1);
        assert_true(read_text(t, cases[i].replication));
        assert_int_equal(server->greetings_due, 0);
        assert_string_equal(server->identity, cases[i].identity);
        assert_int_equal(server->cluster, cases[i].cluster);
        assert_int_equal(server->replica, cases[i].replica);
        scene_close(t);
    }
}

/* What ROLE says counts, whatever INFO said: a Sentinel's client has to ask it. */
static void test_a_server_that_is_no_master_is_a_replica(void **state)
{
    (void) state;
    static const char *const roles[] = {"master", "slave", "sentinel", "mastery"};
    for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++) {
        struct redis_transport *t = greet("redis://a,b");
        struct server_conn *server = t->servers[0];
        assert_true(read_text(t, "run_id:1\r\n"));
        assert_true(read_text(t, i % 2 == 0 ? "# Replication\r\nrole:slave\r\n" : "role:master\r\n"));
        assert_true(read_reply(t, role_reply(roles[i])));
        assert_int_equal(server->replica, i != 0);
        assert_int_equal(server->greetings_due, 0);
        assert_string_equal(server->identity, "1 ");
        scene_close(t);
    }
}

#ifdef REDIS_REPLY_VERB /* hiredis 1.0 */
/* A new protocol answers INFO with verbatim text, and HELLO with a map. */
static void test_a_greeting_is_understood_in_the_newer_protocol(void **state)
{
    (void) state;
    struct redis_transport *t = greet("redis://h?protocol=3");
    assert_true(read_reply(t, array_reply(0, NULL)));
    assert_true(read_reply(t, text_reply(REDIS_REPLY_VERB, "run_id:1\r\n")));
    assert_true(read_reply(t, text_reply(REDIS_REPLY_VERB, "role:master\r\nmaster_replid:2\r\n")));
    assert_string_equal(t->servers[0]->identity, "1 2 ");
    assert_int_equal(t->servers[0]->greetings_due, 0);
    scene_close(t);
}
#endif

static void test_an_identity_as_long_as_a_servers_fits_and_a_longer_one_is_cut(void **state)
{
    (void) state;
    struct redis_transport *t = greet("redis://h");
    char info[400];
    char expected[400];
    const char *const id = "0123456789012345678901234567890123456789";
    (void) snprintf(info, sizeof(info), "run_id:%s\r\n", id);
    assert_true(read_text(t, info));
    (void) snprintf(info, sizeof(info), "master_replid:%s%s%s\r\n", id, id, id);
    assert_true(read_text(t, info));
    (void) snprintf(expected, sizeof(expected), "%s %s%s%s", id, id, id, id);
    expected[IDENTITY_SIZE - 1] = '\0';
    assert_string_equal(t->servers[0]->identity, expected);
    scene_close(t);
}

/* The replies to AUTH, SELECT, INFO, INFO and ROLE, of which one is odd. */
static void test_what_refuses_a_connection(void **state)
{
    (void) state;
    static const struct {
        unsigned step;
        int type;
        const char *text;
        bool good;
    } cases[] = {
        {0, REDIS_REPLY_ERROR, "WRONGPASS invalid", false},
        {0, REDIS_REPLY_ERROR, "NOPERM may not log in", false},
        {1, REDIS_REPLY_ERROR, "ERR DB index is out of range", false},
        {1, REDIS_REPLY_ERROR, "NOPERM may not run SELECT", false}, /* the database would be another one */
        {2, REDIS_REPLY_ERROR, "NOPERM may not run INFO", true},
        {2, REDIS_REPLY_ERROR, "LOADING the dataset", false},
        {2, REDIS_REPLY_STATUS, "PONG", false},
        {3, REDIS_REPLY_ERROR, "NOPERM may not run INFO", true},
        {3, REDIS_REPLY_ERROR, "NOPER", false},
        {3, REDIS_REPLY_INTEGER, "", false},
        {4, REDIS_REPLY_ERROR, "NOPERM may not run ROLE", true},
        {4, REDIS_REPLY_ERROR, "ERR unknown command", false},
        {4, REDIS_REPLY_STRING, "master", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct redis_transport *t = greet("redis://:secret@a,b/1");
        struct server_conn *server = t->servers[0];
        assert_int_equal(server->greetings_due, 5);
        for (unsigned step = 0; step < 5; step++) {
            if (step == cases[i].step) {
                assert_int_equal(read_reply(t, text_reply(cases[i].type, cases[i].text)), cases[i].good);
                if (!cases[i].good) {
                    break;
                }
            } else if (step < 2) {
                assert_true(read_reply(t, text_reply(REDIS_REPLY_STATUS, "OK")));
            } else {
                assert_true(step < 4 ? read_text(t, "role:master\r\nrun_id:1\r\n")
                                     : read_reply(t, role_reply("master")));
            }
            assert_int_equal(server->greetings_due, 4 - step);
        }
        scene_close(t);
    }
    /* A role of another shape. */
    for (size_t shape = 0; shape < 2; shape++) {
        struct redis_transport *t = greet("redis://a,b");
        assert_true(read_text(t, ""));
        assert_true(read_text(t, ""));
        assert_false(read_reply(t, array_reply(shape, (redisReply *[]){shape != 0 ? number_reply(1) : NULL})));
        scene_close(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_greeting_logs_in_and_asks_what_the_url_makes_needed),
        cmocka_unit_test(test_a_greeting_forgets_what_the_connection_before_said),
        cmocka_unit_test(test_the_replies_tell_identity_and_role),
        cmocka_unit_test(test_a_server_that_is_no_master_is_a_replica),
#ifdef REDIS_REPLY_VERB
        cmocka_unit_test(test_a_greeting_is_understood_in_the_newer_protocol),
#endif
        cmocka_unit_test(test_an_identity_as_long_as_a_servers_fits_and_a_longer_one_is_cut),
        cmocka_unit_test(test_what_refuses_a_connection),
    };
    return cmocka_run_group_tests_name("unit/transport/greeting", tests, NULL, NULL);
}
