/* SPDX-License-Identifier: Apache-2.0 */
/* Every form of redis_url, and every malformed one; a password never comes back in an error. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "redis/url.h"
#include "support/support.h"

static struct redis_url parsed(const char *text)
{
    struct redis_url url;
    weir_error error;
    if (redis_url_parse(text, &url, &error) != 0) {
        fail_msg("%s: %s", text, error.message);
    }
    return url;
}

static void test_hosts_ports_and_databases(void **state)
{
    (void) state;
    struct redis_url url = parsed("redis://127.0.0.1");
    assert_string_equal(url.host, "127.0.0.1");
    assert_string_equal(url.port, "6379");
    assert_int_equal(url.database, 0);
    url = parsed("redis://redis.example:7000/12");
    assert_string_equal(url.host, "redis.example");
    assert_string_equal(url.port, "7000");
    assert_int_equal(url.database, 12);
    url = parsed("redis://[::1]:7001/");
    assert_string_equal(url.host, "::1");
    assert_string_equal(url.port, "7001");
}

static void test_users_and_passwords(void **state)
{
    (void) state;
    struct redis_url url = parsed("redis://:secret@h");
    assert_string_equal(url.user, "");
    assert_string_equal(url.password, "secret");
    url = parsed("redis://ann:p%40ss%3a@h:1");
    assert_string_equal(url.user, "ann");
    assert_string_equal(url.password, "p@ss:");
    assert_string_equal(url.host, "h");
    url = parsed("redis://ann:p@ss@h");
    assert_string_equal(url.password, "p@ss");
}

static void test_sockets(void **state)
{
    (void) state;
    struct redis_url url = parsed("unix:///run/redis.sock");
    assert_string_equal(url.path, "/run/redis.sock");
    assert_string_equal(url.host, "");
    url = parsed("unix://ann:secret@/run/redis.sock?db=3");
    assert_string_equal(url.user, "ann");
    assert_int_equal(url.database, 3);
}

static void test_malformed_ones_are_refused_and_keep_the_password(void **state)
{
    (void) state;
    static const char *const bad[] = {
        "",
        "redis",
        "redis:/h",
        "http://h",
        "redis://",
        "redis://:hunter2@",
        "redis://hunter2@h",
        "redis://u:hunter2@h:port",
        "redis://u:hunter2@h:0",
        "redis://u:hunter2@h:65536",
        "redis://h:1:2",
        "redis://u:hunter2@h/x",
        "redis://[::1",
        "redis://[]",
        "redis://u:hunter2%@h",
        "redis://u:hunter2%0@h",
        "redis://u:hunter2%00@h",
        "unix://relative",
        "unix://u:hunter2@relative",
        "unix:///s?db=x",
        "unix:///s?x=1",
        "rediss://u:hunter2@h",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct redis_url url;
        weir_error error;
        if (redis_url_parse(bad[i], &url, &error) != -EINVAL) {
            fail_msg("%s was taken", bad[i]);
        }
        assert_non_null(strstr(error.message, "redis_url"));
        assert_non_null(strstr(error.message, "redis://"));
        assert_null(strstr(error.message, "hunter2"));
    }
    char longest[600];
    memset(longest, 'a', sizeof(longest));
    memcpy(longest, "redis://", 8);
    longest[sizeof(longest) - 1] = '\0';
    struct redis_url url;
    assert_int_equal(redis_url_parse(longest, &url, NULL), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts_ports_and_databases),
        cmocka_unit_test(test_users_and_passwords),
        cmocka_unit_test(test_sockets),
        cmocka_unit_test(test_malformed_ones_are_refused_and_keep_the_password),
    };
    return cmocka_run_group_tests_name("unit/url", tests, NULL, NULL);
}
