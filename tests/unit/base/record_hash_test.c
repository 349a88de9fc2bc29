/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The name of a key in Redis where its bytes are hashed: by which hash, and under which secret.
 *
 * Guards: src/base/record_hash.c, src/base/percent.c, src/base/digits.h
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/digits.h"
#include "base/record_hash.h"
#include "support/nodes.h"

static const weir_limit ten = {.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .period_ns = HOUR};
static const weir_policy policies[] = {{.name = "p", .limits = &ten, .limit_count = 1, .hash_keys = true},
                                       {.name = "q", .limits = &ten, .limit_count = 1}};

static const char secret[] = "sixteen bytes or more of it";
static const char long_key[] = "a key of more than thirty-two bytes, such as a token";

static void test_it_is_hmac_sha_256(void **state)
{
    (void) state;
    /* RFC 4231, test cases 2 and 5 (of which 128 bits are given). */
    unsigned char twenty[21];
    memset(twenty, 0x0c, 20);
    twenty[20] = '\0';
    const struct {
        const char *secret, *data, *digits;
    } vectors[] = {{"Jefe", "what do ya want for nothing?", "5bdcc146bf60754e6a042426089575c7"},
                   {(const char *) twenty, "Test With Truncation", "a3b6167473100ee06e0c796c2955552b"}};
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
        struct record_hash hash;
        unsigned char out[RECORD_HASH_SIZE];
        char digits[2 * RECORD_HASH_SIZE + 1] = "";
        record_hash_init(&hash, vectors[i].secret);
        for (int again = 0; again < 2; again++) {
            record_hash_of(&hash, vectors[i].data, strlen(vectors[i].data), out);
            (void) hex_write(digits, out, sizeof(out));
            assert_string_equal(digits, vectors[i].digits);
        }
    }
}

/* Opens a weir on a fleet, checks some units of a key, and reports them. */
static weir *open_and_ask(struct loopback_fleet *fleet, struct fake_clock *clock, const char *with, const char *policy,
                          const char *key, int units)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &clock->clock;
    options.fleet_secret = with;
    const struct transport_config config = {.timeout_ms = 1000};
    struct transport *transport = NULL;
    assert_int_equal(loopback_transport_open(fleet, &config, &transport, NULL), 0);
    weir *w = NULL;
    weir_error error;
    if (weir_open_on(&options, transport, &w, &error) != 0) {
        fail_msg("%s", error.message);
    }
    assert_int_equal(weir_set_policies(w, policies, 2, NULL), 0);
    weir_thread *t = weir_attach(w);
    const weir_key k = weir_make_key(w, weir_find_policy(w, policy), key, strlen(key));
    for (int i = 0; i < units; i++) {
        assert_true(weir_check(t, &k, 1, NULL));
    }
    weir_detach(t);
    assert_int_equal(weir_sync(w, 60000), 0);
    return w;
}

static void name_of(const char *with, const char *key, char out[40])
{
    struct record_hash hash;
    unsigned char bytes[RECORD_HASH_SIZE];
    record_hash_init(&hash, with);
    record_hash_of(&hash, key, strlen(key), bytes);
    out[0] = '~';
    out[1 + hex_write(out + 1, bytes, sizeof(bytes))] = '\0';
}

static void test_records_bear_it_and_nodes_of_one_secret_share_them(void **state)
{
    (void) state;
    const char *const secrets[] = {secret, NULL, "another secret, of others"};
    struct fake_clock clock;
    fake_clock_init(&clock, START_NS);
    struct loopback_fleet *fleet = loopback_fleet_new(nodes_wall, &clock);
    char fraction[80];
    char name[40];
    for (size_t i = 0; i < sizeof(secrets) / sizeof(secrets[0]); i++) {
        weir *first = open_and_ask(fleet, &clock, secrets[i], "p", "198.51.100.7", 2);
        weir *second = open_and_ask(fleet, &clock, secrets[i], "p", "198.51.100.7", 1);
        weir *third = open_and_ask(fleet, &clock, secrets[i], "q", long_key, 4);
        name_of(secrets[i], "198.51.100.7", name);
        (void) snprintf(fraction, sizeof(fraction), ":p:%s", name);
        assert_int_equal(loopback_fleet_sum(fleet, fraction), 3);
        name_of(secrets[i], long_key, name);
        (void) snprintf(fraction, sizeof(fraction), ":q:a%%20key%%20of%%20mor%s", name);
        assert_int_equal(loopback_fleet_sum(fleet, fraction), 4);
        weir_close(first);
        weir_close(second);
        weir_close(third);
    }
    /* No name is a hash that can be made to collide. */
    const XXH128_hash_t weak = XXH3_128bits("198.51.100.7", 12);
    char digits[33] = "";
    (void) hex_write(digits, &weak, sizeof(weak));
    assert_int_equal(loopback_fleet_sum(fleet, digits), 0);
    loopback_fleet_free(fleet);
}

static void test_an_entry_names_a_key_by_it(void **state)
{
    (void) state;
    weir_options options = WEIR_OPTIONS_INIT;
    options.no_thread = true;
    options.fleet_secret = secret;
    weir *w = open_or_fail(&options);
    assert_int_equal(weir_set_policies(w, policies, 2, NULL), 0);
    weir_thread *t = weir_attach(w);
    char name[40];
    char entry[60];
    name_of(secret, "198.51.100.7", name);
    (void) snprintf(entry, sizeof(entry), "p:%s", name);
    assert_int_equal(weir_set_override(w, entry, "deny", NULL), 0);
    name_of(NULL, "198.51.100.8", name); /* of another fleet */
    (void) snprintf(entry, sizeof(entry), "p:%s", name);
    assert_int_equal(weir_set_override(w, entry, "deny", NULL), 0);
    const weir_policy_id id = weir_find_policy(w, "p");
    const weir_key denied = weir_make_key(w, id, "198.51.100.7", 12);
    const weir_key other = weir_make_key(w, id, "198.51.100.8", 12);
    assert_false(weir_check(t, &denied, 1, NULL));
    assert_true(weir_check(t, &other, 1, NULL));
    weir_close(w);
}

static void test_a_secret_that_is_none_is_refused(void **state)
{
    (void) state;
    char tall[1026];
    memset(tall, 'x', sizeof(tall));
    tall[1025] = '\0';
    const char *const bad[] = {"", "fifteen bytes..", tall};
    for (size_t i = 0; i < 3; i++) {
        weir_options options = WEIR_OPTIONS_INIT;
        options.fleet_secret = bad[i];
        weir *w = NULL;
        weir_error error;
        assert_int_equal(weir_open(&options, &w, &error), -EINVAL);
        assert_null(w);
        assert_non_null(strstr(error.message, "fleet_secret"));
        assert_true(bad[i][0] == '\0' || strstr(error.message, bad[i]) == NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_is_hmac_sha_256),
        cmocka_unit_test(test_records_bear_it_and_nodes_of_one_secret_share_them),
        cmocka_unit_test(test_an_entry_names_a_key_by_it),
        cmocka_unit_test(test_a_secret_that_is_none_is_refused),
    };
    return cmocka_run_group_tests_name("unit/base/record_hash", tests, NULL, NULL);
}
