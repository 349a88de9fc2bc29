/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every form of redis_url, and every malformed one; a password never comes back in an error.
 *
 * Guards: src/transport/redis/url.c
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "support/support.h"
#include "transport/redis/url.h"

static struct redis_url parsed(const char *text)
{
    struct redis_url url;
    weir_error error;
    if (url_parse(text, &url, &error) != 0) {
        fail_msg("%s: %s", text, error.message);
    }
    return url;
}

static void test_hosts_ports_and_databases(void **state)
{
    (void) state;
    struct redis_url url = parsed("redis://127.0.0.1");
    assert_string_equal(url.seeds[0].host, "127.0.0.1");
    assert_string_equal(url.seeds[0].port, "6379");
    assert_int_equal(url.database, 0);
    url = parsed("redis://redis.example:7000/12");
    assert_string_equal(url.seeds[0].host, "redis.example");
    assert_string_equal(url.seeds[0].port, "7000");
    assert_int_equal(url.database, 12);
    url = parsed("redis://[::1]:7001/");
    assert_string_equal(url.seeds[0].host, "::1");
    assert_string_equal(url.seeds[0].port, "7001");
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
    assert_string_equal(url.seeds[0].host, "h");
    url = parsed("redis://ann:p@ss@h");
    assert_string_equal(url.password, "p@ss");
}

static void test_sockets(void **state)
{
    (void) state;
    struct redis_url url = parsed("unix:///run/redis.sock");
    assert_string_equal(url.path, "/run/redis.sock");
    assert_int_equal(url.seed_count, 0);
    url = parsed("unix://ann:secret@/run/redis.sock?db=3");
    assert_string_equal(url.user, "ann");
    assert_int_equal(url.database, 3);
}

static void test_several_hosts(void **state)
{
    (void) state;
    const struct redis_url url = parsed("redis://u:secret@a,b:7000,[::1]:7001,[::2]/3");
    assert_int_equal(url.kind, REDIS_SERVER);
    assert_int_equal(url.seed_count, 4);
    assert_string_equal(url.seeds[0].port, "6379");
    assert_string_equal(url.seeds[1].host, "b");
    assert_string_equal(url.seeds[1].port, "7000");
    assert_string_equal(url.seeds[2].host, "::1");
    assert_string_equal(url.seeds[2].port, "7001");
    assert_string_equal(url.seeds[3].host, "::2");
    assert_string_equal(url.seeds[3].port, "6379");
    assert_int_equal(url.database, 3);
}

static void test_clusters(void **state)
{
    (void) state;
    struct redis_url url = parsed("redis+cluster://a:7000,b:7001");
    assert_int_equal(url.kind, REDIS_CLUSTER);
    assert_false(url.tls);
    assert_int_equal(url.seed_count, 2);
    url = parsed("rediss+cluster://u:p@a/0");
    assert_int_equal(url.kind, REDIS_CLUSTER);
    assert_true(url.tls);
}

static void test_sentinels(void **state)
{
    (void) state;
    struct redis_url url = parsed("redis+sentinel://ann:secret@a,b:26380/my%20primary/2?sentinel_user=eve&"
                                  "sentinel_password=s%26p%40ss");
    assert_int_equal(url.kind, REDIS_SENTINEL);
    assert_string_equal(url.seeds[0].port, "26379");
    assert_string_equal(url.seeds[1].port, "26380");
    assert_string_equal(url.primary, "my primary");
    assert_string_equal(url.password, "secret");
    assert_string_equal(url.sentinel_user, "eve");
    assert_string_equal(url.sentinel_password, "s&p@ss");
    assert_int_equal(url.database, 2);
    url = parsed("rediss+sentinel://a/p");
    assert_true(url.tls);
    assert_string_equal(url.sentinel_password, "");
    assert_int_equal(url.database, 0);
}

static void test_options(void **state)
{
    (void) state;
    struct redis_url url = parsed("redis://h?db=4&protocol=3");
    assert_int_equal(url.database, 4);
    assert_int_equal(url.protocol, 3);
    assert_int_equal(parsed("redis://h/?").protocol, 2);
    url = parsed("rediss://h:1/0?ca=/ca.pem&ssl_certfile=/cert.pem&key=/key%2bpem&servername=redis.example");
    assert_true(url.tls);
    assert_string_equal(url.ca, "/ca.pem");
    assert_string_equal(url.cert, "/cert.pem");
    assert_string_equal(url.key, "/key+pem");
    assert_string_equal(url.servername, "redis.example");
}

/* The URL, and what the sentence must hold. */
static const char *const wrong[][2] = {
    {"", "scheme"},
    {"redis", "scheme"},
    {"redis:/h", "scheme"},
    {"http://h", "rediss://"},
    {"redis-sentinel://h", "redis+sentinel://"},
    {"redis://", "host is missing"},
    {"redis://a,,b", "host is missing"},
    {"redis://a,", "host is missing"},
    {"redis://:hunter2@", "host is missing"},
    {"redis://hunter2@h", "user without a password"},
    {"redis://u:hunter2@h:port", "port"},
    {"redis://u:hunter2@h:0", "port"},
    {"redis://u:hunter2@h:65536", "port"},
    {"redis://u:hunter2@a:1,b:x", "port"},
    {"redis://h:1:2", "port"},
    {"redis://u:hunter2@h/x", "database"},
    {"redis://[::1", "']'"},
    {"redis://a,[::1,b", "']'"},
    {"redis://[]", "host is missing"},
    {"redis://u:hunter2%@h", "malformed %xx"},
    {"redis://u:hunter2%0@h", "malformed %xx"},
    {"redis://u:hunter2%00@h", "malformed %xx"},
    {"redis://a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q", "more than 16"},
    {"unix://relative", "'/'"},
    {"unix://u:hunter2@relative", "'/'"},
    {"unix:///s?db=x", "\"db\""},
    {"unix:///s?x=1", "\"x\""},
    {"redis://h?protocol=4", "\"protocol\""},
    {"redis://h?protocol=1", "\"protocol\""},
    {"redis://h?password=hunter2", "\"password\""},
    {"redis://h?hunter2", "has no '='"},
    {"redis://h?ca=/x", "rediss://"},
    {"rediss://h?ca=", "\"ca\""},
    {"rediss://h?ca=%zz", "\"ca\""},
    {"rediss://h?cert=/x", "key="},
    {"rediss://h?key=/x", "cert="},
    {"redis://h?sentinel_password=hunter2", "redis+sentinel://"},
    {"redis+sentinel://h", "name of the primary"},
    {"redis+sentinel://h/", "name of the primary"},
    {"redis+sentinel://h//0", "name of the primary"},
    {"redis+sentinel://u:hunter2@h/p/x", "database"},
    {"redis+sentinel://h/p?sentinel_user=eve", "sentinel_password="},
    {"redis+cluster://h/1", "database 0"},
    {"redis+cluster://h?db=1", "database 0"},
};

static void test_malformed_ones_are_refused_and_keep_the_password(void **state)
{
    (void) state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct redis_url url;
        weir_error error;
        if (url_parse(wrong[i][0], &url, &error) != -EINVAL) {
            fail_msg("%s was taken", wrong[i][0]);
        }
        if (strstr(error.message, "redis_url: ") != error.message || strstr(error.message, wrong[i][1]) == NULL ||
            strlen(error.message) >= sizeof(error.message) - 1) {
            fail_msg("%s: %s", wrong[i][0], error.message);
        }
        assert_null(strstr(error.message, "hunter2"));
    }
    char longest[600];
    memset(longest, 'a', sizeof(longest));
    memcpy(longest, "redis://", 8);
    longest[sizeof(longest) - 1] = '\0';
    struct redis_url url;
    assert_int_equal(url_parse(longest, &url, NULL), -EINVAL);
}

/* A URL with `count` times a letter in the place of the '#'. */
static int parse_filled(const char *form, size_t count, struct redis_url *url, weir_error *error)
{
    char text[1200];
    const size_t before = (size_t) (strchr(form, '#') - form);
    (void) memcpy(text, form, before);
    (void) memset(text + before, 'x', count);
    (void) snprintf(text + before + count, sizeof(text) - before - count, "%s", form + before + 1);
    return url_parse(text, url, error);
}

static void test_each_field_has_a_longest_text(void **state)
{
    (void) state;
    static const struct {
        const char *form;
        size_t longest, offset;
        const char *problem;
    } fields[] = {
        {"redis://#:p@h", 255, offsetof(struct redis_url, user), "the user is too long or holds a malformed %xx; give"},
        {"redis://u:#@h", 255, offsetof(struct redis_url, password),
         "the password is too long or holds a malformed %xx; give"},
        {"redis://#:1", 255, offsetof(struct redis_url, seeds[0].host), "a host is too long or malformed; give"},
        {"redis+sentinel://h/#", 255, offsetof(struct redis_url, primary),
         "the name of the primary is too long or malformed; give redis+sentinel://"},
        {"unix:///#", 106, offsetof(struct redis_url, path) + 1,
         "the socket's path is longer than 107 bytes or malformed; give"},
        {"rediss://h?ca=#", 255, offsetof(struct redis_url, ca), "\"ca\" is empty, too long, or holds a malformed %xx"},
        {"rediss://h?key=k&cert=#", 255, offsetof(struct redis_url, cert), "\"cert\" is empty, too long"},
        {"rediss://h?cert=c&key=#", 255, offsetof(struct redis_url, key), "\"key\" is empty, too long"},
        {"rediss://h?server_name=#", 255, offsetof(struct redis_url, servername), "\"server_name\" is empty, too long"},
        {"redis+sentinel://h/p?sentinel_password=#", 255, offsetof(struct redis_url, sentinel_password),
         "\"sentinel_password\" is empty, too long"},
        {"redis+sentinel://h/p?sentinel_password=w&sentinel_username=#", 255, offsetof(struct redis_url, sentinel_user),
         "\"sentinel_username\" is empty, too long"},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        struct redis_url url;
        weir_error error;
        if (parse_filled(fields[i].form, fields[i].longest, &url, &error) != 0) {
            fail_msg("%s: %s", fields[i].form, error.message);
        }
        const char *value = (const char *) &url + fields[i].offset;
        assert_int_equal(strlen(value), fields[i].longest);
        assert_int_equal(strspn(value, "x"), fields[i].longest);
        assert_int_equal(parse_filled(fields[i].form, fields[i].longest + 1, &url, &error), -EINVAL);
        if (strstr(error.message, fields[i].problem) == NULL) {
            fail_msg("%s: %s", fields[i].form, error.message);
        }
    }
}

static void test_numbers_are_taken_up_to_their_most(void **state)
{
    (void) state;
    static const struct {
        const char *text;
        int database; /* below 0: refused */
    } cases[] = {
        {"redis://h/1000000", 1000000},
        {"redis://h/1000001", -1},
        {"redis://h/000000009", 9},
        {"redis://h/0000000009", -1},
        {"redis://h?db=1000000", 1000000},
        {"redis://h?db=1000001", -1},
        {"redis://h?db=", -1},
        {"redis://h?db=1/", -1},
        {"redis://h?db=1:", -1},
        {"redis://h/1/", -1},
        {"redis://h?&", -1},
        {"redis://h?db=1&protocol=2", 1},
        {"redis://h?db=1&protocol=", -1},
        {"redis://h?d=1", -1},
        {"redis://h?dbs=1", -1},
        {"redis://h?db=5&db=6", 6},
        {"redis://h/7?", 7},
        {"redis+sentinel://h/p/", 0},
        {"redis+cluster://h?db=0", 0},
        {"redis+cluster://h/", 0},
        {"redis://h:65535/1", 1},
        {"redis://h:1/1", 1},
        {"redis://h:/1", -1},
        {"redis://[::1]x/1", -1},
        {"redis://[::1]:1/1", 1},
        {"redis://%68/1", 1},
        {"redis://a%/1", -1},
        {"redis://a%6/1", -1},
        {"redis://u:p%ffq@h/2", 2},
        {"redis://h?protocol=2&", 0},
        {"redis://a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p/3", 3},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct redis_url url;
        weir_error error = {0};
        const int result = url_parse(cases[i].text, &url, &error);
        if (result != (cases[i].database < 0 ? -EINVAL : 0) || (result == 0 && url.database != cases[i].database)) {
            fail_msg("%s: %d, database %d, %s", cases[i].text, result, url.database, error.message);
        }
    }
    assert_int_equal(parsed("redis://a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p/3").seed_count, 16);
    assert_string_equal(parsed("redis://u:p%ffq@h").password, "p\xffq");
}

/* An option that is refused is named, as far as it can be printed and is not long; its value is not. */
static void test_a_refused_option_is_named_without_its_value(void **state)
{
    (void) state;
    static const char *const cases[][2] = {
        {"redis://h?cert=hunter2", "redis_url: option \"cert\" is for rediss://; options are db"},
        {"redis://h?sentinel_user=hunter2", "option \"sentinel_user\" is for redis+sentinel://;"},
        {"redis://h?protocol=hunter2", "option \"protocol\" is neither 2 nor 3;"},
        {"redis://h?db=hunter2", "option \"db\" is not a number;"},
        {"redis://h?a b\x7f~\n=hunter2", "option \"a?b?~?\" is not known;"},
        {"redis://h?abcdefghijklmnopqrstuvwx=hunter2", "option \"abcdefghijklmnopqrstuvwx\" is not known;"},
        {"redis://h?abcdefghijklmnopqrstuvwxy=hunter2", "option \"abcdefghijklmnopqrstuvwx\" is not known;"},
        {"redis://h?hunter2", "option \"\" has no '=';"},
        {"redis://h?db=1&hunter2", "option \"\" has no '=';"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct redis_url url;
        weir_error error;
        assert_int_equal(url_parse(cases[i][0], &url, &error), -EINVAL);
        if (strstr(error.message, cases[i][1]) == NULL || strstr(error.message, "hunter2") != NULL) {
            fail_msg("%s: %s", cases[i][0], error.message);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts_ports_and_databases),
        cmocka_unit_test(test_users_and_passwords),
        cmocka_unit_test(test_sockets),
        cmocka_unit_test(test_several_hosts),
        cmocka_unit_test(test_clusters),
        cmocka_unit_test(test_sentinels),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_each_field_has_a_longest_text),
        cmocka_unit_test(test_numbers_are_taken_up_to_their_most),
        cmocka_unit_test(test_a_refused_option_is_named_without_its_value),
        cmocka_unit_test(test_malformed_ones_are_refused_and_keep_the_password),
    };
    return cmocka_run_group_tests_name("unit/transport/url", tests, NULL, NULL);
}
