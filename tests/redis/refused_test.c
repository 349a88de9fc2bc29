/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir_sync where Redis refuses the connection or the login: it returns, and does not wait until its time is over. The
 * times here are as long as a test may take, so a call that waits is one that fails.
 *
 * Guards: src/transport/redis/server.c, src/transport/redis/redis.c, src/fleet/keys/full_sync.c, src/fleet/fleet.c,
 * src/limiter/background.c, src/limiter/weir.c
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "support/server.h"
#include "support/support.h"

#define NEVER_MS UINT32_C(600000)

static weir *open_at(const char *url, bool no_thread)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.redis_url = url;
    options.max_keys = 1000;
    options.redis_timeout_ms = 60000;
    options.no_thread = no_thread;
    return open_or_fail(&options);
}

static void test_a_port_where_nobody_listens_is_told_at_once(void **state)
{
    (void) state;
    char urls[4][200];
    const int port = server_free_port();
    (void) snprintf(urls[0], sizeof(urls[0]), "redis://127.0.0.1:%d", port);
    (void) snprintf(urls[1], sizeof(urls[1]), "redis://127.0.0.1:%d,127.0.0.2:%d", port, port);
    (void) snprintf(urls[2], sizeof(urls[2]), "unix:///tmp/weir-nobody-%d.sock", (int) getpid());
    (void) snprintf(urls[3], sizeof(urls[3]), "redis+cluster://127.0.0.1:%d,127.0.0.2:%d", port, port);
    for (size_t i = 0; i < 4; i++) {
        for (int no_thread = 0; no_thread < 2; no_thread++) {
            weir *w = open_at(urls[i], no_thread != 0);
            for (int again = 0; again < 8; again++) { /* the time between two attempts of its own grows to seconds */
                assert_int_equal(weir_sync(w, NEVER_MS), -ECONNREFUSED);
            }
            weir_close(w);
        }
    }
}

static void test_sentinels_that_refuse_are_told_at_once(void **state)
{
    (void) state;
    char url[200];
    (void) snprintf(url, sizeof(url), "redis+sentinel://127.0.0.1:%d/primary", server_free_port());
    weir *w = open_at(url, false);
    assert_int_equal(weir_sync(w, NEVER_MS), -ECONNREFUSED);
    weir_close(w);
}

/* Each call has the servers tried anew: what was refused before says nothing of now. */
static void test_a_redis_that_is_there_again_is_found(void **state)
{
    (void) state;
    struct server server;
    char url[128];
    server_start(&server);
    server_url(&server, true, url, sizeof(url));
    for (int no_thread = 0; no_thread < 2; no_thread++) {
        weir *w = open_at(url, no_thread != 0);
        assert_int_equal(weir_sync(w, NEVER_MS), 0);
        server_kill(&server);
        int result = 0;
        for (int i = 0; i < 8; i++) {
            result = weir_sync(w, NEVER_MS);
        }
        assert_int_equal(result, -ECONNREFUSED);
        const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1, .period_ns = HOUR};
        const weir_key key = weir_make_key(w, set_one_policy(w, &limit, 1, WEIR_SCOPE_FLEET), "key", 3);
        assert_int_equal(weir_reset(w, &key), -ENOTCONN);
        server_restart(&server);
        assert_int_equal(weir_sync(w, NEVER_MS), 0);
        weir_close(w);
    }
    server_stop(&server);
}

static void test_a_password_that_is_wrong_or_lacks_is_told_at_once(void **state)
{
    (void) state;
    struct server server;
    char url[128];
    server_start_with(&server, "right", false);
    (void) snprintf(url, sizeof(url), "redis://:wrong@127.0.0.1:%d", server.port);
    weir *w = open_at(url, false);
    assert_int_equal(weir_sync(w, NEVER_MS), -ECONNREFUSED);
    weir_close(w);
    (void) snprintf(url, sizeof(url), "redis://127.0.0.1:%d", server.port);
    w = open_at(url, false);
    assert_int_equal(weir_sync(w, NEVER_MS), -ECONNREFUSED);
    weir_close(w);
    server_stop(&server);
}

/* One that listens and says nothing may yet answer; so may the second of two. */
static void test_a_redis_that_is_silent_is_waited_for(void **state)
{
    (void) state;
    struct server server;
    char url[200];
    server_start(&server);
    server_url(&server, true, url, sizeof(url));
    server_pause(&server);
    weir *w = open_at(url, false);
    assert_int_equal(weir_sync(w, 100), -ETIMEDOUT);
    server_resume(&server);
    assert_int_equal(weir_sync(w, NEVER_MS), 0);
    weir_close(w);
    (void) snprintf(url, sizeof(url), "redis://127.0.0.1:%d,127.0.0.1:%d", server_free_port(), server.port);
    w = open_at(url, false);
    assert_int_equal(weir_sync(w, NEVER_MS), 0);
    weir_close(w);
    server_stop(&server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_port_where_nobody_listens_is_told_at_once),
        cmocka_unit_test(test_sentinels_that_refuse_are_told_at_once),
        cmocka_unit_test(test_a_redis_that_is_there_again_is_found),
        cmocka_unit_test(test_a_password_that_is_wrong_or_lacks_is_told_at_once),
        cmocka_unit_test(test_a_redis_that_is_silent_is_waited_for),
    };
    if (!server_available()) {
        return 77;
    }
    return cmocka_run_group_tests_name("redis/refused", tests, NULL, NULL);
}
