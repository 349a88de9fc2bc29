/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a problem names its server, and what it says of host names that cannot be resolved. No name is really looked up:
 * the resolver is this file's.
 *
 * Guards: src/transport/redis/socket.c, src/transport/redis/server.c, src/transport/redis/redis.c
 */
#include <netdb.h>
#include <string.h>

#include "support/support.h"
#include "transport/redis/redis.h"

static int resolver_says; /* EAI_... */
static int lookups;

/* In place of the C library's. */
int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found)
{
    (void) name;
    (void) service;
    *found = NULL;
    if ((hints->ai_flags & AI_NUMERICHOST) != 0) {
        return EAI_NONAME;
    }
    lookups++;
    return resolver_says;
}

static struct transport *open_redis(const char *url)
{
    struct transport *t = NULL;
    const struct transport_config config = {.url = url, .prefix = "weir", .timeout_ms = 1000, .now_ns = SECOND};
    assert_int_equal(redis_transport_open(&config, &t, NULL), 0);
    return t;
}

/* One attempt to connect, and what is wrong then. */
static void fails(const char *url, const char *server, const char *problem)
{
    struct transport *t = open_redis(url);
    assert_int_equal(t->ops->step(t, 2 * SECOND), TRANSPORT_NOTHING);
    assert_int_equal(t->ops->state(t), TRANSPORT_DOWN);
    assert_non_null(t->ops->problem(t));
    assert_string_equal(t->ops->problem(t), problem);
    assert_string_equal(t->ops->server(t), server);
    const struct transport_counts counts = t->ops->counts(t);
    assert_int_equal(counts.attempts, 1);
    assert_int_equal(counts.connections, 0);
    assert_int_equal(counts.failures, 1);
    t->ops->close(t);
}

static void test_a_name_that_cannot_be_resolved_says_so(void **state)
{
    (void) state;
    lookups = 0;
    resolver_says = EAI_NONAME;
    fails("redis://nosuch.invalid:6379", "redis nosuch.invalid:6379", "cannot connect: name not found");
#ifdef EAI_NODATA
    resolver_says = EAI_NODATA;
    fails("redis://nosuch.invalid", "redis nosuch.invalid:6379", "cannot connect: name not found");
#endif
    resolver_says = EAI_AGAIN;
    fails("redis://nosuch.invalid:6380", "redis nosuch.invalid:6380",
          "cannot connect: name lookup failed for now (the name servers do not answer)");
    assert_in_range(lookups, 2, 3);
}

static void test_each_attempt_looks_the_name_up_and_counts(void **state)
{
    (void) state;
    resolver_says = EAI_AGAIN;
    struct transport *t = open_redis("redis://nosuch.invalid");
    for (uint64_t i = 2; i <= 51; i++) {
        assert_int_equal(t->ops->step(t, i * 10 * SECOND), TRANSPORT_NOTHING); /* longer than any pause */
    }
    assert_int_equal(t->ops->counts(t).attempts, 50);
    assert_int_equal(t->ops->counts(t).failures, 50);
    t->ops->close(t);
}

static void test_no_password_is_in_the_name_of_a_server(void **state)
{
    (void) state;
    resolver_says = EAI_NONAME;
    fails("redis://ann:hunter2@nosuch.invalid:6379/3", "redis nosuch.invalid:6379", "cannot connect: name not found");
    fails("redis+sentinel://ann:hunter2@nosuch.invalid:26379/main", "redis sentinel nosuch.invalid:26379",
          "cannot connect: name not found");
    fails("redis+cluster://:hunter2@nosuch.invalid:7000", "redis nosuch.invalid:7000",
          "cannot connect: name not found");
    fails("unix://ann:hunter2@/nonexistent/redis.sock", "redis /nonexistent/redis.sock",
          "cannot connect: No such file or directory");
}

static void test_an_address_with_colons_stands_in_brackets(void **state)
{
    (void) state;
    resolver_says = EAI_NONAME; /* the resolver of this file knows no address either */
    fails("redis://[::1]:6379", "redis [::1]:6379", "cannot connect: name not found");
    fails("redis+sentinel://[::1]:26379/main", "redis sentinel [::1]:26379", "cannot connect: name not found");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_name_that_cannot_be_resolved_says_so),
        cmocka_unit_test(test_each_attempt_looks_the_name_up_and_counts),
        cmocka_unit_test(test_no_password_is_in_the_name_of_a_server),
        cmocka_unit_test(test_an_address_with_colons_stands_in_brackets),
    };
    return cmocka_run_group_tests_name("unit/transport/server_names", tests, NULL, NULL);
}
