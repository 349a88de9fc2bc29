/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Redis that answers errors, of every kind that a real one can be made to answer: nodes go on, take it for an outage,
 * and when it is over the sums are whole and every record expires.
 *
 * Guards: src/transport/redis/answer.c, src/transport/redis/batch.c, src/fleet/link_health.c
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "chaos/chaos.h"

#define NODES 2

/* How the error is brought about, and mended; and how it begins, where a command by itself says so. */
struct refusal {
    void (*spoil)(struct chaos *c);
    void (*mend)(struct chaos *c);
    const char *says; /* what a write is answered meanwhile; NULL: not asked */
    bool passes_by;   /* nodes recover from it by themselves */
};

static void expect_error(const struct chaos *c, const char *says)
{
    const uint64_t until_ns = real_ns() + 60 * SECOND;
    redisContext *r = redisConnectUnix(c->primary.socket);
    while (r != NULL && r->err != 0 && real_ns() < until_ns) { /* it may be about to start */
        redisFree(r);
        chaos_nap_ms(5);
        r = redisConnectUnix(c->primary.socket);
    }
    assert_non_null(r);
    redisReply *reply = redisCommand(r, "EVAL %s 1 weir:{0}:chaos", "return redis.call('SET', KEYS[1], '', 'PX', 1)");
    assert_non_null(reply);
    assert_int_equal(reply->type, REDIS_REPLY_ERROR);
    if (strstr(reply->str, says) == NULL) {
        fail_msg("redis says \"%s\", not %s", reply->str, says);
    }
    freeReplyObject(reply);
    redisFree(r);
}

static void goes_through(void **state, const struct refusal *refusal)
{
    struct chaos *c = chaos_begin(state);
    chaos_nodes(c, NODES);
    chaos_work(c, chaos_usual_work(c, 200));
    chaos_settle(c);
    chaos_compare(c, &c->primary);
    chaos_work_begin(c, chaos_usual_work(c, 900));
    chaos_nap_ms(100);
    refusal->spoil(c);
    if (refusal->says != NULL) {
        expect_error(c, refusal->says);
    }
    chaos_work_end(c);
    for (size_t i = 0; i < NODES && !refusal->passes_by; i++) {
        chaos_wait_basis(c, i, WEIR_BASIS_OUTAGE);
    }
    chaos_work(c, chaos_usual_work(c, 200));
    refusal->mend(c);
    chaos_work(c, chaos_usual_work(c, 200));
    chaos_settle(c);
    for (size_t i = 0; i < NODES; i++) {
        chaos_wait_basis(c, i, WEIR_BASIS_FLEET);
    }
    chaos_settle(c);
    chaos_compare(c, &c->primary);
    for (size_t i = 0; i < NODES; i++) {
        (void) fleet_node_close(&c->nodes[i]);
    }
    chaos_compare(c, &c->primary);
}

static void nothing(struct chaos *c)
{
    (void) c;
}

static void fill(struct chaos *c)
{
    chaos_do(&c->primary, "CONFIG SET maxmemory 1");
}

static void empty(struct chaos *c)
{
    chaos_do(&c->primary, "CONFIG SET maxmemory 0");
}

static void test_oom(void **state)
{
    goes_through(state, &(struct refusal){fill, empty, "OOM", false});
}

/* Where its file should be there is a directory. */
static void fail_to_save(struct chaos *c)
{
    char path[128];
    (void) snprintf(path, sizeof(path), "%s/dump.rdb", c->primary.directory);
    assert_int_equal(mkdir(path, 0700), 0);
    chaos_do(&c->primary, "CONFIG SET save %s", "3600 1");
    chaos_do(&c->primary, "BGSAVE");
    const uint64_t until_ns = real_ns() + 60 * SECOND;
    for (bool failed = false; !failed;) {
        redisReply *reply = chaos_command(&c->primary, "INFO persistence");
        failed = strstr(reply->str, "rdb_last_bgsave_status:err") != NULL;
        freeReplyObject(reply);
        assert_true(real_ns() < until_ns);
        chaos_nap_ms(2);
    }
}

static void save(struct chaos *c)
{
    char path[128];
    (void) snprintf(path, sizeof(path), "%s/dump.rdb", c->primary.directory);
    assert_int_equal(rmdir(path), 0);
    chaos_do(&c->primary, "SAVE");
}

static void test_misconf(void **state)
{
    goes_through(state, &(struct refusal){fail_to_save, save, "MISCONF", false});
}

static void ask_a_password(struct chaos *c)
{
    chaos_do(&c->primary, "CONFIG SET requirepass another");
    chaos_do(&c->primary, "CLIENT KILL TYPE normal"); /* a node that is connected needs no password */
}

static void ask_no_password(struct chaos *c)
{
    chaos_do(&c->primary, "CONFIG SET requirepass %s", "");
}

static void test_noauth(void **state)
{
    goes_through(state, &(struct refusal){ask_a_password, ask_no_password, "NOAUTH", false});
}

static void forbid_scripts(struct chaos *c)
{
    chaos_do(&c->primary, "ACL SETUSER default -@scripting");
}

static void forbid_writing(struct chaos *c)
{
    chaos_do(&c->primary, "ACL SETUSER default -hset -zadd -set");
}

static void forbid_our_names(struct chaos *c)
{
    chaos_do(&c->primary, "ACL SETUSER default resetkeys ~other:*");
}

static void allow_everything(struct chaos *c)
{
    chaos_do(&c->primary, "ACL SETUSER default on nopass ~* &* +@all");
}

static void test_noperm_for_scripts(void **state)
{
    goes_through(state, &(struct refusal){forbid_scripts, allow_everything, "NOPERM", false});
}

static void test_noperm_for_what_scripts_do(void **state)
{
    goes_through(state, &(struct refusal){forbid_writing, allow_everything, NULL, false});
}

static void test_noperm_for_names(void **state)
{
    goes_through(state, &(struct refusal){forbid_our_names, allow_everything, "NOPERM", false});
}

static void become_replica(struct chaos *c)
{
    chaos_do(&c->primary, "REPLICAOF 127.0.0.1 1");
}

static void become_primary(struct chaos *c)
{
    chaos_do(&c->primary, "REPLICAOF NO ONE");
}

static void test_readonly(void **state)
{
    goes_through(state, &(struct refusal){become_replica, become_primary, "READONLY", false});
}

static void become_stale_replica(struct chaos *c)
{
    chaos_do(&c->primary, "CONFIG SET replica-serve-stale-data no");
    become_replica(c);
}

static void test_masterdown(void **state)
{
    goes_through(state, &(struct refusal){become_stale_replica, become_primary, "MASTERDOWN", false});
}

/* A script without an end. The test does not wait for its answer. */
static void be_busy(struct chaos *c)
{
    chaos_do(&c->primary, "CONFIG SET lua-time-limit 20");
    redisContext *r = redisConnectUnix(c->primary.socket);
    assert_non_null(r);
    assert_int_equal(redisAppendCommand(r, "EVAL %s 0", "while true do end"), REDIS_OK);
    int done = 0;
    assert_int_equal(redisBufferWrite(r, &done), REDIS_OK);
    assert_int_equal(done, 1);
    chaos_nap_ms(100);
    redisFree(r);
}

static void be_idle(struct chaos *c)
{
    chaos_do(&c->primary, "SCRIPT KILL");
}

static void test_busy(void **state)
{
    goes_through(state, &(struct refusal){be_busy, be_idle, "BUSY", false});
}

static void forget_scripts(struct chaos *c)
{
    for (int i = 0; i < 5; i++) {
        chaos_do(&c->primary, "SCRIPT FLUSH");
        chaos_nap_ms(50);
    }
}

static void test_noscript(void **state)
{
    goes_through(state, &(struct refusal){forget_scripts, nothing, NULL, true});
}

static void kill_clients(struct chaos *c)
{
    for (int i = 0; i < 10; i++) {
        chaos_do(&c->primary, "CLIENT KILL TYPE normal");
        chaos_nap_ms(30);
    }
}

static void test_connections_that_redis_closes(void **state)
{
    goes_through(state, &(struct refusal){kill_clients, nothing, NULL, true});
}

static void pause_clients(struct chaos *c)
{
    chaos_do(&c->primary, "CLIENT PAUSE 1500 WRITE");
}

static void unpause_clients(struct chaos *c)
{
    chaos_do(&c->primary, "CLIENT UNPAUSE");
}

static void test_a_pause(void **state)
{
    goes_through(state, &(struct refusal){pause_clients, unpause_clients, NULL, false});
}

static void too_few_replicas(struct chaos *c)
{
    chaos_do(&c->primary, "CONFIG SET min-replicas-to-write 1");
}

static void enough_replicas(struct chaos *c)
{
    chaos_do(&c->primary, "CONFIG SET min-replicas-to-write 0");
}

static void test_noreplicas(void **state)
{
    goes_through(state, &(struct refusal){too_few_replicas, enough_replicas, "NOREPLICAS", false});
}

static void begin_to_load(struct chaos *c)
{
    chaos_do(&c->primary, "SAVE");
    server_kill(&c->primary);
    const char *const slowly[] = {"--key-load-delay", "50000", "--loading-process-events-interval-bytes", "1024", NULL};
    chaos_server(&c->primary, slowly, false);
}

static void finish_loading(struct chaos *c)
{
    const uint64_t until_ns = real_ns() + 60 * SECOND;
    chaos_do(&c->primary, "CONFIG SET key-load-delay 0");
    for (bool loading = true; loading;) {
        loading = chaos_number(&c->primary, "persistence", "loading") != 0;
        assert_true(real_ns() < until_ns);
        chaos_nap_ms(5);
    }
}

static void test_loading(void **state)
{
    goes_through(state, &(struct refusal){begin_to_load, finish_loading, "LOADING", false});
}

/*
 * One command of the script fails after another has been done: a record must not be left without an end. The hash is
 * there, and the expiry is refused.
 */
static void without_expiry(void **state, bool looks_meanwhile)
{
    struct chaos *c = chaos_begin(state);
    chaos_nodes(c, NODES);
    chaos_settle(c);
    chaos_do(&c->primary, "ACL SETUSER default -pexpire -expire -pexpireat -expireat");
    chaos_work(c, chaos_usual_work(c, 500));
    if (looks_meanwhile) {
        chaos_all_expire(&c->primary);
    }
    allow_everything(c);
    chaos_work(c, chaos_usual_work(c, 200));
    chaos_settle(c);
    chaos_compare(c, &c->primary);
}

static void test_no_record_is_left_without_an_expiry_while_that_fails(void **state)
{
    without_expiry(state, true);
}

static void test_records_of_a_time_when_expiry_failed_expire_in_the_end(void **state)
{
    without_expiry(state, false);
}

int main(int argc, char **argv)
{
    int code = 0;
    if (chaos_main(argc, argv, &code)) {
        return code;
    }
    const struct CMUnitTest tests[] = {
        chaos_test(test_oom),
        chaos_test(test_misconf),
        chaos_test(test_noauth),
        chaos_test(test_noperm_for_scripts),
        chaos_test(test_noperm_for_what_scripts_do),
        chaos_test(test_noperm_for_names),
        chaos_test(test_readonly),
        chaos_test(test_masterdown),
        chaos_test(test_busy),
        chaos_test(test_noscript),
        chaos_test(test_connections_that_redis_closes),
        chaos_test(test_a_pause),
        chaos_test(test_noreplicas),
        chaos_test(test_loading),
        chaos_test(test_no_record_is_left_without_an_expiry_while_that_fails),
        chaos_test(test_records_of_a_time_when_expiry_failed_expire_in_the_end),
    };
    return cmocka_run_group_tests_name("chaos/refused", tests, NULL, NULL);
}
