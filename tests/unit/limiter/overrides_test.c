/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Overrides of single keys that the program sets, and how keys are written for people: forms, networks, hashes.
 * (Overrides of the fleet: shared_policies_test.c.)
 *
 * Guards: src/limiter/key_overrides.c, src/policy/override_set.c, src/policy/entry.c, src/policy/key_form.c,
 * src/limiter/set_policies.c, src/fleet/fleet.c, src/base/percent.c
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "fleet/fleet.h"
#include "limiter/leader.h"
#include "support/nodes.h"
#include "support/policies.h"

#define LIMIT 10

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const weir_limit ten = {.algorithm = WEIR_FIXED_WINDOW, .limit = LIMIT, .period_ns = HOUR};
static const weir_policy plain[] = {{.name = "p", .limits = &ten, .limit_count = 1},
                                    {.name = "q", .limits = &ten, .limit_count = 1},
                                    {.name = "p/pro", .limits = &ten, .limit_count = 1}};

static struct {
    struct fake_clock clock;
    weir *w;
    weir_thread *t;
} d;

static int desk_open(void **state)
{
    (void) state;
    fake_clock_init(&d.clock, START_NS);
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &d.clock.clock;
    d.w = open_or_fail(&options);
    d.t = weir_attach(d.w);
    return weir_set_policies(d.w, plain, COUNT_OF(plain), NULL);
}

static int desk_close(void **state)
{
    (void) state;
    weir_close(d.w);
    return 0;
}

/* How many of 1,000 requests of an unused key pass. */
static uint64_t passes(const char *policy, const void *bytes, size_t length)
{
    const weir_key key = weir_make_key(d.w, weir_find_policy(d.w, policy), bytes, length);
    uint64_t passed = 0;
    (void) weir_reset(d.w, &key);
    for (int i = 0; i < 1000; i++) {
        passed += weir_check(d.t, &key, 1, NULL);
    }
    (void) weir_reset(d.w, &key);
    return passed;
}

static uint64_t passes_text(const char *policy, const char *key)
{
    return passes(policy, key, strlen(key));
}

static uint64_t passes_address(const char *policy, const char *address, size_t v6_size)
{
    unsigned char bytes[16];
    const bool v6 = strchr(address, ':') != NULL;
    assert_int_equal(inet_pton(v6 ? AF_INET6 : AF_INET, address, bytes), 1);
    return passes(policy, bytes, v6 ? v6_size : 4);
}

static void set(const char *name, const char *value)
{
    weir_error error;
    const int result = weir_set_override(d.w, name, value, &error);
    if (result != 0) {
        fail_msg("%s = %s: %s", name, value != NULL ? value : "nothing", error.message);
    }
}

/* Expects that an override is refused, with a sentence that has `what`. */
static void refuse(const char *name, const char *value, int code, const char *says)
{
    weir_error error;
    assert_int_equal(weir_set_override(d.w, name, value, &error), code);
    assert_int_equal(error.code, code);
    if (strstr(error.message, says) == NULL) {
        fail_msg("%s = %s: \"%s\" does not say \"%s\"", name != NULL ? name : "no name",
                 value != NULL ? value : "nothing", error.message, says);
    }
}

/* All overrides, as one text. */
struct listing {
    char text[2000];
    size_t count;
};

static void add_to(void *arg, const weir_override *entry)
{
    struct listing *listing = arg;
    const size_t used = strlen(listing->text);
    (void) snprintf(listing->text + used, sizeof(listing->text) - used, "%s=%s%s%s;", entry->name, entry->value,
                    entry->from_fleet ? " fleet" : "", entry->in_force ? "" : " idle");
    listing->count++;
}

static void expect_list(weir *w, const char *text)
{
    struct listing listing = {.count = 0};
    const size_t count = weir_list_overrides(w, add_to, &listing);
    assert_int_equal(count, listing.count);
    assert_string_equal(listing.text, text);
}

static void test_entries_hold_without_a_fleet(void **state)
{
    (void) state;
    expect_list(d.w, "");
    set("p:a", "deny");
    set("p:b", "allow");
    set("p:c", "25");
    set("p:d%20%e9", "3");
    set("p:", "7");
    assert_int_equal(passes_text("p", "a"), 0);
    assert_int_equal(passes_text("p", "b"), 1000);
    assert_int_equal(passes_text("p", "c"), 25);
    assert_int_equal(passes_text("p", "d \xe9"), 3);
    assert_int_equal(passes_text("p", ""), 7);
    assert_int_equal(passes_text("p", "e"), LIMIT);
    assert_int_equal(passes_text("q", "a"), LIMIT);
    assert_int_equal(passes_text("p/pro", "a"), LIMIT);
    weir_stats stats;
    weir_get_stats(d.w, &stats);
    assert_int_equal(stats.override_count, 5);
    expect_list(d.w, "p:a=deny;p:b=allow;p:c=25;p:d%20%e9=3;p:=7;");
}

static void test_an_entry_changes_and_goes(void **state)
{
    (void) state;
    const weir_key key = weir_make_key(d.w, weir_find_policy(d.w, "p"), "a", 1);
    set("p:a", "20");
    for (int i = 0; i < 15; i++) {
        assert_true(weir_check(d.t, &key, 1, NULL));
    }
    set("p:%61", "12"); /* the same key; its used units stay */
    assert_false(weir_check(d.t, &key, 1, NULL));
    expect_list(d.w, "p:a=12;");
    set("p:a", "17");
    assert_true(weir_check(d.t, &key, 2, NULL));
    assert_false(weir_check(d.t, &key, 1, NULL));
    set("p:a", "allow");
    assert_true(weir_check(d.t, &key, 1, NULL));
    set("p:a", NULL);
    assert_false(weir_check(d.t, &key, 1, NULL));
    expect_list(d.w, "");
    refuse("p:a", NULL, -ENOENT, "no entry \"p:a\"");
}

static void test_entries_are_kept_through_policies(void **state)
{
    (void) state;
    set("p:a", "deny");
    set("q:a", "30");
    assert_int_equal(weir_set_policies(d.w, plain, 1, NULL), 0); /* without q */
    assert_int_equal(passes_text("p", "a"), 0);
    expect_list(d.w, "p:a=deny;q:a=30 idle;");
    assert_int_equal(weir_set_policies(d.w, plain, 2, NULL), 0);
    assert_int_equal(passes_text("q", "a"), 30);
    expect_list(d.w, "p:a=deny;q:a=30;");
    assert_int_equal(weir_set_policies(d.w, plain, 1, NULL), 0);
    set("q:a", NULL); /* also if its policy is not there */
    expect_list(d.w, "p:a=deny;");
}

static void test_what_is_malformed_is_refused_and_said(void **state)
{
    (void) state;
    set("p:kept", "deny");
    refuse(NULL, "deny", -EINVAL, "name is NULL");
    refuse("nothing", "deny", -EINVAL, "policy:key");
    refuse(":a", "deny", -EINVAL, "policy:key");
    refuse("r:a", "deny", -ENOENT, "no policy \"r\"");
    refuse("p:%4", "deny", -EINVAL, "%xx");
    refuse("p:a", "many", -EINVAL, "\"allow\", \"deny\"");
    refuse("p:a", "1 2", -EINVAL, "each of its limits (1)");
    refuse("p:a", "", -EINVAL, "\"allow\", \"deny\"");
    refuse("p:a", "10/20", -EINVAL, "burst 20");
    char tall[1100];
    memset(tall, 'x', sizeof(tall));
    tall[0] = 'p';
    tall[1] = ':';
    tall[sizeof(tall) - 1] = '\0';
    refuse(tall, "deny", -EINVAL, "1024 bytes");
    expect_list(d.w, "p:kept=deny;");
    assert_int_equal(passes_text("p", "kept"), 0);
}

static void test_a_list_has_an_end(void **state)
{
    (void) state;
    char name[32];
    for (int i = 0; i < 300; i++) {
        (void) snprintf(name, sizeof(name), "p:key%d", i);
        set(name, i % 2 != 0 ? "deny" : "20");
    }
    for (int i = 0; i < 300; i++) {
        (void) snprintf(name, sizeof(name), "key%d", i);
        assert_int_equal(passes_text("p", name), i % 2 != 0 ? 0 : 20);
    }
    assert_int_equal(passes_text("p", "key300"), LIMIT);
}

/* Addresses */

static void give_form(const weir_key_form *form)
{
    weir_error error;
    if (weir_set_key_form(d.w, "p", form, &error) != 0) {
        fail_msg("%s", error.message);
    }
}

static void test_keys_that_are_addresses_are_named_as_addresses(void **state)
{
    (void) state;
    give_form(weir_address_form(128));
    set("p:198.51.100.7", "deny");
    set("p:2001:DB8:0::0:1", "20");
    set("p/pro:198.51.100.7", "30");
    set("p:198.51.100.8/32", "deny"); /* one address */
    assert_int_equal(passes_address("p", "198.51.100.7", 16), 0);
    assert_int_equal(passes_address("p", "198.51.100.8", 16), 0);
    assert_int_equal(passes_address("p", "2001:db8::1", 16), 20);
    assert_int_equal(passes_address("p/pro", "198.51.100.7", 16), 30);
    assert_int_equal(passes_address("p", "198.51.100.9", 16), LIMIT);
    assert_int_equal(passes_address("p", "2001:db8::2", 16), LIMIT);
    assert_int_equal(passes_address("q", "198.51.100.7", 16), LIMIT);
    set("p:%c6%33%64%09", "40"); /* as the override was written before the form was set */
    assert_int_equal(passes_address("p", "198.51.100.9", 16), 40);
    expect_list(d.w, "p:198.51.100.7=deny;p:2001:db8::1=20;p/pro:198.51.100.7=30;p:198.51.100.8=deny;"
                     "p:198.51.100.9=40;");
}

/* A socket for both families gives the address of an IPv4 client as 16 bytes, another one as 4. */
static void test_a_client_of_two_families_has_one_key_whatever_form_its_policy_has(void **state)
{
    (void) state;
    const weir_key_form *const forms[] = {NULL, weir_address_form(48), weir_address_form(64), weir_address_form(128)};
    for (size_t i = 0; i < COUNT_OF(forms); i++) {
        unsigned char bytes[16] = "\0\0\0\0\0\0\0\0\0\0\xff\xff\xc6\x33\x64";
        bytes[15] = (unsigned char) i;
        give_form(forms[i]);
        const weir_policy_id id = weir_find_policy(d.w, "p");
        const weir_key mapped = weir_make_key(d.w, id, bytes, 16);
        const weir_key short_key = weir_make_key(d.w, id, bytes + 12, 4);
        assert_true(mapped.hash == short_key.hash && mapped.length == 4 && mapped.data == bytes + 12);
        for (int n = 0; n < LIMIT; n++) {
            assert_true(weir_check(d.t, n % 2 == 0 ? &mapped : &short_key, 1, NULL));
        }
        assert_false(weir_check(d.t, &mapped, 1, NULL));
        assert_false(weir_check(d.t, &short_key, 1, NULL));
        bytes[0] = 1; /* of IPv6 alone */
        assert_int_equal(weir_make_key(d.w, id, bytes, 16).length, 16);
    }
    give_form(weir_address_form(128));
    set("p:::ffff:198.51.100.9", "deny");
    assert_int_equal(passes("p", "\0\0\0\0\0\0\0\0\0\0\xff\xff\xc6\x33\x64\x09", 16), 0);
    assert_int_equal(passes_address("p", "198.51.100.9", 16), 0);
    expect_list(d.w, "p:198.51.100.9=deny;");
}

/* Policies with keys of each form, and how many bits of an address of IPv4 and of IPv6 their keys have; 0: none. */
static const struct {
    const char *name;
    unsigned bits[2];
    bool is_network;
} formed[] = {{"p", {32, 64}, false}, {"p/pro", {32, 64}, false}, {"whole", {32, 128}, false},
              {"v4", {16, 0}, true},  {"v6", {0, 20}, true},      {"q", {0, 0}, false}};

#define DRAWN_ENTRIES 12
#define OF_ALL        COUNT_OF(formed)

/* An override as drawn: of the policy of that number, or OF_ALL. */
struct drawn_entry {
    size_t policy;
    bool v6;
    unsigned bits;
    unsigned char address[16];
    unsigned value; /* index of drawn_values */
    char name[120];
};

static const char *const drawn_values[] = {"allow", "deny", "20"};

static bool lies_in(const unsigned char *address, const struct drawn_entry *entry)
{
    for (unsigned bit = 0; bit < entry->bits; bit++) {
        if (((address[bit / 8] ^ entry->address[bit / 8]) >> (7 - bit % 8) & 1) != 0) {
            return false;
        }
    }
    return true;
}

/* Addresses that are often in one network: few of their bits are drawn. */
static void draw_address(uint64_t *rng, bool v6, unsigned char out[16])
{
    static const unsigned bits[2][6] = {{3, 9, 15, 17, 24, 31}, {3, 18, 21, 47, 63, 127}};
    memset(out, 0, 16);
    out[0] = 0x40;
    for (unsigned i = 0; i < 6; i++) {
        out[bits[v6][i] / 8] |= (unsigned char) (random_below(rng, 2) << (7 - bits[v6][i] % 8));
    }
}

static void draw_entry(uint64_t *rng, struct drawn_entry *out)
{
    char text[INET6_ADDRSTRLEN];
    out->policy = random_below(rng, COUNT_OF(formed) + 3);
    out->v6 = random_below(rng, 2) == 0;
    if (out->policy < OF_ALL && formed[out->policy].bits[out->v6] == 0) {
        out->v6 = !out->v6;
    }
    if (out->policy > OF_ALL || (out->policy < OF_ALL && formed[out->policy].bits[out->v6] == 0)) {
        out->policy = OF_ALL; /* in the place of keys of bytes, too */
    }
    const unsigned whole = out->v6 ? 128 : 32;
    const unsigned most = out->policy == OF_ALL ? whole : formed[out->policy].bits[out->v6];
    out->bits = random_below(rng, 3) == 0 ? most : (unsigned) random_below(rng, most + 1);
    draw_address(rng, out->v6, out->address);
    for (unsigned bit = out->bits; bit < 128; bit++) {
        out->address[bit / 8] &= (unsigned char) ~(0x80U >> bit % 8);
    }
    out->value = (unsigned) random_below(rng, out->policy == OF_ALL ? 2 : 3);
    (void) inet_ntop(out->v6 ? AF_INET6 : AF_INET, out->address, text, sizeof(text));
    (void) snprintf(out->name, sizeof(out->name), "%s:%s/%u", out->policy == OF_ALL ? "*" : formed[out->policy].name,
                    text, out->bits);
}

/* The entry in force for an address, of those of a policy and of all; NULL: none. */
static const struct drawn_entry *in_force(const struct drawn_entry *all, size_t policy, bool v6,
                                          const unsigned char *address)
{
    const struct drawn_entry *best = NULL;
    const unsigned most = policy == OF_ALL ? 128 : formed[policy].bits[v6];
    for (size_t i = 0; i < DRAWN_ENTRIES; i++) {
        const bool concerns = (all[i].policy == policy || all[i].policy == OF_ALL) && most != 0;
        if (concerns && all[i].v6 == v6 && all[i].bits <= most && lies_in(address, &all[i]) &&
            (best == NULL || all[i].bits > best->bits ||
             (all[i].bits == best->bits && best->policy == OF_ALL && all[i].policy == policy))) {
            best = &all[i];
        }
    }
    return best;
}

static void expect_answer(size_t policy, bool v6, const unsigned char *address, const struct drawn_entry *entry)
{
    unsigned char key[17] = {0};
    const unsigned bits = formed[policy].bits[v6] != 0 ? formed[policy].bits[v6] : 128;
    const size_t of_network = v6 ? 17 : 5, of_address = v6 ? bits / 8 : 4;
    const size_t length = formed[policy].is_network ? of_network : of_address;
    const unsigned value = entry != NULL ? entry->value : 3;
    weir_verdict verdict;
    for (unsigned bit = 0; bit < bits; bit++) {
        key[bit / 8] |= (unsigned char) (address[bit / 8] & (0x80U >> bit % 8));
    }
    if (formed[policy].is_network) {
        key[length - 1] = (unsigned char) bits;
    }
    const weir_key of = weir_make_key(d.w, weir_find_policy(d.w, formed[policy].name), key, length);
    const bool allowed = weir_peek(d.t, &of, 15, &verdict);
    assert_int_equal(allowed, value == 0 || value == 2);
    assert_int_equal(verdict.remaining, value == 1 ? 0 : value == 2 ? 20 : LIMIT);
}

static void set_formed_policies(void)
{
    weir_policy policies[COUNT_OF(formed)];
    for (size_t i = 0; i < COUNT_OF(formed); i++) {
        policies[i] = (weir_policy){.name = formed[i].name, .limits = &ten, .limit_count = 1};
    }
    assert_int_equal(weir_set_policies(d.w, policies, COUNT_OF(formed), NULL), 0);
    assert_int_equal(weir_set_key_form(d.w, "p", weir_address_form(64), NULL), 0);
    assert_int_equal(weir_set_key_form(d.w, "whole", weir_address_form(128), NULL), 0);
    assert_int_equal(weir_set_key_form(d.w, "v4", weir_network_form(4, 16), NULL), 0);
    assert_int_equal(weir_set_key_form(d.w, "v6", weir_network_form(6, 20), NULL), 0);
}

static void set_drawn_entries(uint64_t *rng, struct drawn_entry *entries)
{
    for (size_t i = 0; i < DRAWN_ENTRIES; i++) {
        bool is_new;
        do { /* each name once */
            draw_entry(rng, &entries[i]);
            is_new = true;
            for (size_t j = 0; j < i; j++) {
                is_new = is_new && strcmp(entries[j].name, entries[i].name) != 0;
            }
        } while (!is_new);
        set(entries[i].name, drawn_values[entries[i].value]);
    }
}

static void test_an_override_of_all_policies_is_one_of_each_whose_keys_lie_in_it(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    size_t found[2] = {0};
    set_formed_policies();
    for (unsigned round = 0; round < test_draws(300); round++) {
        struct drawn_entry entries[DRAWN_ENTRIES];
        set_drawn_entries(&rng, entries);
        for (unsigned n = 0; n < 30; n++) {
            unsigned char address[16];
            unsigned bits = 777;
            const bool v6 = random_below(&rng, 2) == 0;
            draw_address(&rng, v6, address);
            for (size_t policy = 0; policy < COUNT_OF(formed); policy++) {
                if (formed[policy].bits[v6] != 0 || strcmp(formed[policy].name, "q") == 0) {
                    expect_answer(policy, v6, address, in_force(entries, policy, v6, address));
                }
            }
            const struct drawn_entry *of_all = in_force(entries, OF_ALL, v6, address);
            const weir_override_answer answer = weir_find_override(d.t, address, v6 ? 16 : 4, &bits);
            assert_int_equal(answer, of_all == NULL       ? WEIR_NO_OVERRIDE
                                     : of_all->value == 0 ? WEIR_OVERRIDE_ALLOW
                                                          : WEIR_OVERRIDE_DENY);
            assert_int_equal(bits, of_all != NULL ? of_all->bits : 777);
            assert_int_equal(weir_find_override(d.t, address, v6 ? 16 : 4, NULL), answer);
            found[of_all != NULL]++;
        }
        for (size_t i = 0; i < DRAWN_ENTRIES; i++) {
            set(entries[i].name, NULL);
        }
        expect_list(d.w, "");
    }
    assert_true(found[0] > 100 && found[1] > 100);
}

static void test_names_and_values_of_all_policies(void **state)
{
    (void) state;
    unsigned bits = 0;
    set("*:198.51.100.7", "deny until 2499-12-01"); /* no policy has addresses: for programs that ask */
    set("*:2001:DB8::/32", "allow");
    set("*:::ffff:198.51.101.0/120", "allow");
    expect_list(d.w, "*:198.51.100.7=deny until 2499-12-01;*:2001:db8::/32=allow;*:198.51.101.0/24=allow;");
    assert_int_equal(passes_address("p", "198.51.100.7", 16), LIMIT);
    assert_int_equal(weir_find_override(d.t, "\xc6\x33\x64\x07", 4, &bits), WEIR_OVERRIDE_DENY);
    assert_int_equal(bits, 32);
    const char mapped[] = "\0\0\0\0\0\0\0\0\0\0\xff\xff\xc6\x33\x65\x07";
    assert_int_equal(weir_find_override(d.t, mapped, 16, &bits), WEIR_OVERRIDE_ALLOW);
    assert_int_equal(bits, 24);
    for (size_t length = 0; length < 17; length++) {
        assert_int_equal(weir_find_override(d.t, mapped, length, NULL),
                         length == 16 ? WEIR_OVERRIDE_ALLOW : WEIR_NO_OVERRIDE);
    }
    assert_int_equal(weir_find_override(NULL, mapped, 16, NULL), WEIR_NO_OVERRIDE);
    set("*:198.51.100.7", "deny until 1999-12-01"); /* it is over */
    assert_int_equal(weir_find_override(d.t, "\xc6\x33\x64\x07", 4, NULL), WEIR_NO_OVERRIDE);
    give_form(weir_address_form(64)); /* with it, the policy has them */
    assert_int_equal(passes_address("p", "2001:db8::", 8), 1000);
    assert_int_equal(passes_address("p/pro", "198.51.101.9", 8), 1000);
    weir_stats stats;
    weir_get_stats(d.w, &stats);
    assert_int_equal(stats.override_count, 2); /* those in force, once each */
    static const char *const none[] = {"*:",
                                       "*:partner",
                                       "*:198.51.100.7/24",
                                       "*:198.51.100.0/33",
                                       "*:%c6%33%64",
                                       "*:2001:db8::/129",
                                       "*:~00112233445566778899aabbccddeeff"};
    for (size_t i = 0; i < COUNT_OF(none); i++) {
        refuse(none[i], "allow", -EINVAL, "is none; give one such as *:198.51.100.7, or a network");
    }
    refuse("*:198.51.100.7", "200", -EINVAL, "\"200\" is no value for all policies; give \"allow\" or \"deny\"");
    refuse("*:198.51.100.7", "allow until x", -EINVAL, "\"until x\" is no end");
    refuse("*:198.51.100.9", NULL, -ENOENT, "there is no entry \"*:198.51.100.9\"");
    refuse("**:198.51.100.9", "allow", -ENOENT, "there is no policy");
}

static void test_a_name_that_no_key_has_is_refused_with_the_form_it_should_have(void **state)
{
    (void) state;
    static const char *const none[] = {"p:198.51.100",
                                       "p:198.51.100.300",
                                       "p:example.com",
                                       "p:198.51.100.7/33",
                                       "p:198.51.100.7/",
                                       "p:198.51.100.7/x",
                                       "p:198.51.100.7/24",
                                       "p:2001:db8::1/64",
                                       "p:2001:db8::1",
                                       "p:2001:db8::/65",
                                       "p:x%41",
                                       "p:",
                                       "p:/8",
                                       "p:2001:db8::/129",
                                       "p:1.2.3.4:80",
                                       "p: 1.2.3.4"};
    give_form(weir_address_form(64));
    for (size_t i = 0; i < COUNT_OF(none); i++) {
        refuse(none[i], "deny", -EINVAL, "198.51.100.7 or 2001:db8::/64");
    }
    set("p:2001:db8::/64", "deny");
    assert_int_equal(passes_address("p", "2001:db8::1", 8), 0);
    assert_int_equal(passes_address("p", "2001:db8:0:1::1", 8), LIMIT);
    assert_null(weir_address_form(63));
    assert_null(weir_address_form(32)); /* as long as an IPv4 address */
}

static void test_the_smallest_network_holds(void **state)
{
    (void) state;
    give_form(weir_address_form(64));
    set("p:0.0.0.0/0", "1");
    set("p:10.0.0.0/8", "2");
    set("p:10.1.0.0/16", "3");
    set("p:10.1.2.0/23", "4");
    set("p:10.1.3.7", "5");
    set("p:2001:db8::/32", "6");
    set("p:::/0", "7");
    set("p:2001:db8:1::/48", "allow");
    assert_int_equal(passes_address("p", "192.0.2.1", 8), 1);
    assert_int_equal(passes_address("p", "10.2.0.1", 8), 2);
    assert_int_equal(passes_address("p", "10.1.4.1", 8), 3);
    assert_int_equal(passes_address("p", "10.1.2.255", 8), 4);
    assert_int_equal(passes_address("p", "10.1.3.6", 8), 4);
    assert_int_equal(passes_address("p", "10.1.3.7", 8), 5);
    assert_int_equal(passes_address("p", "2001:db8:2::1", 8), 6);
    assert_int_equal(passes_address("p", "2001:db9::1", 8), 7);
    assert_int_equal(passes_address("p", "2001:db8:1:2::1", 8), 1000);
    set("p:10.1.0.0/16", NULL);
    assert_int_equal(passes_address("p", "10.1.4.1", 8), 2);
}

/* Random networks, against the plainest way to find the smallest network of an address. */
static void test_networks_agree_with_a_list_that_is_looked_through(void **state)
{
    (void) state;
    uint64_t random = test_seed();
    struct {
        uint32_t address;
        unsigned bits, number;
    } all[60];
    size_t count = 0;
    give_form(weir_address_form(128));
    while (count < COUNT_OF(all)) {
        const unsigned bits = (unsigned) random_below(&random, 33);
        const uint32_t address = (uint32_t) (random_below(&random, 4) << 30 | random_below(&random, 256)) &
                                 (bits != 0 ? UINT32_MAX << (32 - bits) : 0);
        bool known = false;
        for (size_t i = 0; i < count; i++) {
            known = known || (all[i].address == address && all[i].bits == bits);
        }
        if (known) {
            continue;
        }
        char name[64];
        char value[8];
        switch (random_below(&random, 3)) { /* ::ffff:198.51.100.0/120 is 198.51.100.0/24 */
        case 0:
            (void) snprintf(name, sizeof(name), "p:::ffff:%x:%x/%u", address >> 16, address & 0xffff, 96 + bits);
            break;
        case 1:
            (void) snprintf(name, sizeof(name), "p:0:0:0::0:FFFF:%u.%u.%u.%u/%u", address >> 24, address >> 16 & 255,
                            address >> 8 & 255, address & 255, 96 + bits);
            break;
        default:
            (void) snprintf(name, sizeof(name), "p:%u.%u.%u.%u/%u", address >> 24, address >> 16 & 255,
                            address >> 8 & 255, address & 255, bits);
        }
        (void) snprintf(value, sizeof(value), "%zu", 20 + count);
        all[count].address = address;
        all[count].bits = bits;
        all[count].number = (unsigned) (20 + count);
        set(name, value);
        count++;
    }
    for (int round = 0; round < 500; round++) {
        const uint32_t address = (uint32_t) (random_below(&random, 4) << 30 | random_below(&random, 256));
        unsigned expected = LIMIT;
        int bits = -1;
        for (size_t i = 0; i < count; i++) {
            const uint32_t mask = all[i].bits != 0 ? UINT32_MAX << (32 - all[i].bits) : 0;
            if ((address & mask) == all[i].address && (int) all[i].bits > bits) {
                expected = all[i].number;
                bits = (int) all[i].bits;
            }
        }
        const uint32_t wire = htonl(address);
        unsigned char mapped[16] = {[10] = 0xff, [11] = 0xff};
        memcpy(mapped + 12, &wire, sizeof(wire));
        assert_int_equal(passes("p", &wire, sizeof(wire)), expected);
        assert_int_equal(passes("p", mapped, sizeof(mapped)), expected);
    }
}

static void test_an_offender_can_be_denied_by_the_name_it_is_told_by(void **state)
{
    (void) state;
    static const struct {
        const char *policy, *bytes;
        size_t length;
    } keys[] = {
        {"p", "\xc6\x33\x64\x07", 4},
        {"p", "\x20\x01\x0d\xb8\0\0\0\1", 8},
        {"p", "no address", 10},
        {"p", "127.0.0.1", 9}, /* the text of one */
        {"q", "\xc6\x33\x64\x07", 4},
        {"q", "{braces} 100%", 13},
        {"q", "a key that is longer than what is kept of it", 44},
        {"h", "a token", 7},
    };
    static const weir_policy policies[] = {{.name = "p", .limits = &ten, .limit_count = 1},
                                           {.name = "q", .limits = &ten, .limit_count = 1},
                                           {.name = "h", .limits = &ten, .limit_count = 1, .hash_keys = true}};
    give_form(weir_address_form(64));
    assert_int_equal(weir_set_policies(d.w, policies, COUNT_OF(policies), NULL), 0);
    for (size_t i = 0; i < COUNT_OF(keys); i++) {
        const weir_policy_id id = weir_find_policy(d.w, keys[i].policy);
        const weir_key key = weir_make_key(d.w, id, keys[i].bytes, keys[i].length);
        for (size_t j = 0; j < 4000 * (i + 2); j++) { /* greater than all before */
            (void) weir_check(d.t, &key, 1, NULL);
        }
        fake_clock_advance(&d.clock, SECOND);
        (void) weir_poll(d.w);
        weir_offender top[1];
        assert_int_equal(weir_top_offenders(d.w, id, top, 1), 1);
        char name[WEIR_MAX_NAME + WEIR_OFFENDER_KEY_SIZE + 2];
        (void) snprintf(name, sizeof(name), "%s:%s", keys[i].policy, top[0].key);
        assert_int_equal(passes(keys[i].policy, keys[i].bytes, keys[i].length), LIMIT);
        set(name, "deny");
        if (passes(keys[i].policy, keys[i].bytes, keys[i].length) != 0) {
            fail_msg("%s is not denied", name);
        }
    }
    weir_offender top[WEIR_TOP_OFFENDERS];
    const size_t count = weir_top_offenders(d.w, weir_find_policy(d.w, "p"), top, WEIR_TOP_OFFENDERS);
    assert_int_equal(count, 4);
    assert_string_equal(top[3].key, "198.51.100.7");
    assert_string_equal(top[2].key, "2001:db8:0:1::/64");
    assert_string_equal(top[1].key, "%6e%6f%20%61%64%64%72%65%73%73");
}

/* A key form of the program: keys are four bytes, the number of a player. */

static size_t player_write(char *out, size_t size, const void *key, size_t length)
{
    uint32_t number;
    if (length != sizeof(number)) {
        return 0;
    }
    memcpy(&number, key, sizeof(number));
    return (size_t) snprintf(out, size, "player-%" PRIu32, number);
}

static size_t player_read(void *out, size_t size, const char *text)
{
    static const char before[] = "player-";
    char *end = NULL;
    assert_true(size >= sizeof(uint32_t));
    if (strncmp(text, before, sizeof(before) - 1) != 0) {
        return SIZE_MAX;
    }
    const uint32_t number = (uint32_t) strtoul(text + sizeof(before) - 1, &end, 10);
    if (*end != '\0') {
        return SIZE_MAX;
    }
    memcpy(out, &number, sizeof(number));
    return sizeof(number);
}

static void test_a_form_of_the_callers_own(void **state)
{
    (void) state;
    static const weir_key_form players = {player_write, player_read, "player-17"};
    static const weir_key_form half = {player_write, NULL, "player-17"};
    const uint32_t number = 4711;
    weir_error error;
    give_form(&players);
    set("p:player-4711", "deny");
    assert_int_equal(passes("p", &number, sizeof(number)), 0);
    refuse("p:4711", "deny", -EINVAL, "give one such as player-17");
    refuse("p:player-4711x", "deny", -EINVAL, "give one such as player-17");
    expect_list(d.w, "p:player-4711=deny;");
    assert_int_equal(weir_set_key_form(d.w, "p", &half, &error), -EINVAL);
    assert_int_equal(weir_set_key_form(d.w, "p/pro", &players, &error), -EINVAL);
    assert_int_equal(weir_set_key_form(d.w, NULL, &players, &error), -EINVAL);
    assert_int_equal(weir_set_key_form(d.w, "p and q", &players, &error), -EINVAL);
    give_form(NULL);
    set("p:4711", "deny");
    assert_int_equal(passes_text("p", "4711"), 0);
}

/* In a fleet */

static void test_records_bear_the_name_and_entries_set_here_stand_above_the_fleets(void **state)
{
    (void) state;
    struct nodes n;
    const weir_policy policy = patient_policy_of(&ten);
    nodes_start_with_new_key(&n, &policy, 1);
    static const unsigned char address[] = {198, 51, 100, 7};
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(weir_set_key_form(n.node[i].w, "p", weir_address_form(64), NULL), 0);
        n.node[i].key = weir_make_key(n.node[i].w, weir_find_policy(n.node[i].w, "p"), address, sizeof(address));
    }
    loopback_fleet_set_override(n.fleet, "p:198.51.100.0/24", "500");
    loopback_fleet_set_override(n.fleet, "p:198.51.100.9", "deny");
    loopback_fleet_set_override(n.fleet, "p:example.com", "deny");
    pass(&n, TWO_INTERVALS);
    assert_non_null(strstr(n.node[0].error, "policy \"p\" has no key \"example.com\"; give an address"));
    assert_int_equal(ask_freely(&n.node[0], 100), 100);
    agree(&n);
    assert_int_equal(loopback_fleet_sum(n.fleet, ":p:198.51.100.7"), 100);
    weir *w = n.node[0].w;
    assert_int_equal(weir_set_override(w, "p:198.51.100.9", "allow", NULL), 0);
    expect_list(w, "p:198.51.100.9=allow;p:198.51.100.0/24=500 fleet;p:198.51.100.9=deny fleet idle;"
                   "p:example.com=deny fleet idle;");
    assert_int_equal(weir_set_override(w, "p:198.51.100.9", NULL, NULL), 0);
    expect_list(w, "p:198.51.100.0/24=500 fleet;p:198.51.100.9=deny fleet;p:example.com=deny fleet idle;");
    /* The next record has the name that keys have by then. */
    static const unsigned char other[] = {198, 51, 100, 8};
    n.node[1].key = weir_make_key(n.node[1].w, weir_find_policy(n.node[1].w, "p"), other, sizeof(other));
    assert_int_equal(weir_set_key_form(n.node[1].w, "p", NULL, NULL), 0);
    assert_true(weir_check(n.node[1].t, &n.node[1].key, 1, NULL));
    pass(&n, TWO_INTERVALS);
    assert_int_equal(loopback_fleet_sum(n.fleet, ":p:198.51.100.8"), 0);
    assert_int_equal(loopback_fleet_sum(n.fleet, ":p:"), 101);
    nodes_stop(&n);
}

/* Threads */

static _Atomic bool done;

static void *check_on(void *arg)
{
    weir *w = arg;
    weir_thread *t = weir_attach(w);
    assert_non_null(t);
    unsigned char address[] = {10, 0, 0, 0};
    for (unsigned i = 0; !load_relaxed(&done); i++) {
        address[3] = (unsigned char) i;
        const weir_key key = weir_make_key(w, weir_find_policy(w, "p"), address, sizeof(address));
        (void) weir_check(t, &key, 1, NULL);
    }
    weir_detach(t);
    return NULL;
}

static void test_entries_change_under_checks(void **state)
{
    (void) state;
    weir_options options = WEIR_OPTIONS_INIT;
    weir *w = open_or_fail(&options);
    assert_int_equal(weir_set_policies(w, plain, 1, NULL), 0);
    assert_int_equal(weir_set_key_form(w, "p", weir_address_form(64), NULL), 0);
    pthread_t threads[2];
    store_relaxed(&done, false);
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, check_on, w), 0);
    }
    for (int i = 0; i < 200; i++) {
        char name[40];
        (void) snprintf(name, sizeof(name), "p:10.0.0.%d/%d", i % 4 == 0 ? 0 : i % 2 * 128, i % 4 == 0 ? 24 : 32);
        assert_int_equal(weir_set_override(w, name, i % 3 == 0 ? "deny" : "allow", NULL), 0);
        if (i % 5 == 4) {
            assert_int_equal(weir_set_override(w, name, NULL, NULL), 0);
        }
        struct listing listing = {.count = 0};
        (void) weir_list_overrides(w, add_to, &listing);
    }
    store_relaxed(&done, true);
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    weir_close(w);
}

/* Waits until a key of "p" has its policy's limit. */
static void await_the_limit(const char *key)
{
    const uint64_t until_ns = real_ns() + 60 * SECOND;
    while (passes_text("p", key) != LIMIT) {
        assert_true(real_ns() < until_ns);
        (void) weir_poll(d.w); /* -EINVAL where there is a thread */
        (void) usleep(1000);
    }
}

static void test_an_entry_ends_by_itself(void **state)
{
    (void) state; /* START_NS is 2025-10-09T08:53:20Z */
    set("p:a", "3 until 2025-10-09T09:00Z");
    set("p:b", "deny until 2025-10-09T08:53:30Z");
    set("p:c", "deny until 2025-10-09T08:53:20Z"); /* it has ended */
    set("p:d", "deny until 2025-10-10");
    assert_int_equal(passes_text("p", "a"), 3);
    assert_int_equal(passes_text("p", "b"), 0);
    assert_int_equal(passes_text("p", "c"), LIMIT);
    /* Before that nothing is compiled anew. */
    const uint32_t epoch = load_relaxed(&d.w->limiter.shared->line.epoch);
    const void *in_force = d.w->overrides_in_force;
    for (int i = 0; i < 3; i++) {
        assert_true(weir_poll(d.w) >= 0);
        assert_int_equal(load_relaxed(&d.w->limiter.shared->line.epoch), epoch);
        assert_ptr_equal(d.w->overrides_in_force, in_force);
    }
    fake_clock_advance(&d.clock, 10 * SECOND);
    await_the_limit("b");
    assert_int_equal(passes_text("p", "a"), 3);
    fake_clock_advance(&d.clock, 400 * SECOND);
    await_the_limit("a");
    assert_int_equal(passes_text("p", "d"), 0);
    expect_list(d.w, "p:a=3 until 2025-10-09T09:00Z idle;p:b=deny until 2025-10-09T08:53:30Z idle;"
                     "p:c=deny until 2025-10-09T08:53:20Z idle;p:d=deny until 2025-10-10;");
    weir_stats stats;
    weir_get_stats(d.w, &stats);
    assert_int_equal(stats.override_count, 1);
    set("p:a", "4 until 2025-10-09T10:00Z");
    assert_int_equal(passes_text("p", "a"), 4);
    /* What has ended stays ended through new policies. */
    assert_int_equal(weir_set_policies(d.w, plain, COUNT_OF(plain), NULL), 0);
    assert_int_equal(passes_text("p", "b"), LIMIT);
    assert_int_equal(passes_text("p", "d"), 0);
    refuse("p:e", "deny until 2025-02-29", -EINVAL, "give a time in UTC");
}

/* As if they had been set one by one. */
static void test_there_are_at_most_ten_thousand_entries(void **state)
{
    (void) state;
    struct override_list *own = &d.w->overrides[OVERRIDES_OWN];
    own->texts = calloc(OVERRIDES_MAX, sizeof(*own->texts));
    assert_non_null(own->texts);
    for (own->count = 0; own->count < OVERRIDES_MAX - 1; own->count++) {
        char field[32];
        (void) snprintf(field, sizeof(field), "p:k%zu", own->count);
        own->texts[own->count].field = strdup(field);
        own->texts[own->count].value = strdup("deny");
    }
    set("p:last", "3");
    refuse("p:more", "deny", -ENOSPC, "there are 10000 entries; take one back, or use a network");
    refuse("p:more", NULL, -ENOENT, "there is no entry \"p:more\" set here");
    set("p:last", "4");
    set("p:k0", "5");
    assert_int_equal(passes_text("p", "last"), 4);
    assert_int_equal(passes_text("p", "k0"), 5);
    assert_int_equal(passes_text("p", "k9998"), 0);
    set("p:k9998", NULL);
    set("p:more", "6");
    refuse("p:still", "deny", -ENOSPC, "there are 10000 entries");
    assert_int_equal(passes_text("p", "more"), 6);
    assert_int_equal(passes_text("p", "k9998"), LIMIT);
    weir_stats stats;
    weir_get_stats(d.w, &stats);
    assert_int_equal(stats.override_count, OVERRIDES_MAX);
}

static uint64_t left_out(const struct node *node)
{
    return load_relaxed(&node->w->fleet->stats.overrides_left_out);
}

/* A leader that dies between an answer and the policy lock leaves texts in memory that was its own. */
static void test_entries_that_a_dead_leader_had_read_are_read_anew_and_not_touched(void **state)
{
    (void) state;
    struct nodes n;
    nodes_init(&n, plain, 1);
    node_open(&n, 0, 0);
    weir *w = n.node[0].w;
    (void) robust_mutex_lock(&w->limiter.process, &w->shared->policy_lock);
    loopback_fleet_set_override(n.fleet, "p:key", "deny");
    pass(&n, 1000);
    struct override_text *texts = w->fleet->overrides.texts;
    assert_int_equal(w->fleet->overrides.count, 1);
    const struct fleet_parts parts = leader_parts(w);
    fleet_adopt(w->fleet, &parts);
    robust_mutex_unlock(&w->shared->policy_lock);
    assert_true(w->fleet->overrides.texts == NULL && w->fleet->overrides.count == 0);
    pass(&n, 1000);
    expect_list(w, "p:key=deny fleet;");
    assert_ptr_not_equal(w->overrides[OVERRIDES_FLEET].texts, texts);
    assert_string_equal(texts[0].field, "p:key");
    overrides_drop(texts, 1);
    nodes_stop(&n);
}

/* What of the fleet's entries is too long, or malformed, is logged once; the others are in force. */
static void test_entries_of_the_fleet_that_are_not_read_are_counted_and_said_once(void **state)
{
    (void) state;
    static char longs[2][OVERRIDE_SIZE_MAX + 2];
    struct nodes n;
    nodes_init(&n, plain, 1);
    node_open(&n, 0, 0);
    struct node *node = &n.node[0];
    for (size_t i = 0; i < 2; i++) {
        memset(longs[i], 'a' + (int) i, sizeof(longs[i]) - 1);
        memcpy(longs[i], "p:", 2);
    }
    loopback_fleet_set_override(n.fleet, "p:key", "deny");
    pass(&n, 1000);
    assert_true(left_out(node) == 0 && node->error_lines == 0);
    expect_list(node->w, "p:key=deny fleet;");
    loopback_fleet_set_override(n.fleet, longs[0], "7");
    pass(&n, 6000);
    assert_true(left_out(node) == 1 && node->error_lines == 1);
    assert_string_equal(node->error,
                        "overrides: 1 entry is not read, as there may be 10000 of up to 4096 bytes each and "
                        "2097152 bytes in all; take some out of weir:overrides. The others are in force");
    loopback_fleet_set_override(n.fleet, longs[1], "7");
    pass(&n, 6000);
    assert_true(left_out(node) == 2 && node->error_lines == 1);
    loopback_fleet_set_override(n.fleet, "p:\x1b", "many\nwords");
    pass(&n, 6000);
    assert_int_equal(node->error_lines, 2);
    assert_ptr_equal(strstr(node->error, "overrides: 1 entry is malformed: \"p:\\x1b\" with \"many\\x0awords\": "),
                     node->error);
    loopback_fleet_set_override(n.fleet, "p:z", "1 2 3");
    pass(&n, 6000);
    assert_ptr_equal(strstr(node->error, "overrides: 2 entries are malformed, such as \"p:"), node->error);
    assert_false(weir_check(node->t, &node->key, 1, NULL));
    for (size_t i = 0; i < 2; i++) {
        loopback_fleet_set_override(n.fleet, longs[i], NULL);
    }
    pass(&n, 6000);
    assert_int_equal(left_out(node), 0);
    loopback_fleet_set_override(n.fleet, longs[0], "7");
    pass(&n, 6000);
    assert_true(left_out(node) == 1 && strstr(node->error, "are malformed") != NULL);
    /* While somebody changes policies, the fleet's entries wait. */
    (void) robust_mutex_lock(&node->w->limiter.process, &node->w->shared->policy_lock);
    loopback_fleet_set_override(n.fleet, "p:key", NULL);
    pass(&n, 6000);
    robust_mutex_unlock(&node->w->shared->policy_lock);
    assert_false(weir_check(node->t, &node->key, 1, NULL));
    pass(&n, 20);
    assert_true(weir_check(node->t, &node->key, 1, NULL));
    nodes_stop(&n);
}

#define desk_test(test) cmocka_unit_test_setup_teardown(test, desk_open, desk_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        desk_test(test_entries_hold_without_a_fleet),
        desk_test(test_an_entry_changes_and_goes),
        desk_test(test_entries_are_kept_through_policies),
        desk_test(test_what_is_malformed_is_refused_and_said),
        desk_test(test_a_list_has_an_end),
        desk_test(test_keys_that_are_addresses_are_named_as_addresses),
        desk_test(test_a_client_of_two_families_has_one_key_whatever_form_its_policy_has),
        desk_test(test_an_override_of_all_policies_is_one_of_each_whose_keys_lie_in_it),
        desk_test(test_names_and_values_of_all_policies),
        desk_test(test_a_name_that_no_key_has_is_refused_with_the_form_it_should_have),
        desk_test(test_the_smallest_network_holds),
        desk_test(test_networks_agree_with_a_list_that_is_looked_through),
        desk_test(test_an_offender_can_be_denied_by_the_name_it_is_told_by),
        desk_test(test_a_form_of_the_callers_own),
        desk_test(test_an_entry_ends_by_itself),
        desk_test(test_there_are_at_most_ten_thousand_entries),
        cmocka_unit_test(test_records_bear_the_name_and_entries_set_here_stand_above_the_fleets),
        cmocka_unit_test(test_entries_of_the_fleet_that_are_not_read_are_counted_and_said_once),
        cmocka_unit_test(test_entries_that_a_dead_leader_had_read_are_read_anew_and_not_touched),
        cmocka_unit_test(test_entries_change_under_checks),
    };
    return cmocka_run_group_tests_name("unit/limiter/overrides", tests, NULL, NULL);
}
