/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys, networks and overrides as text: what each text stands for, the text that is written for it, and what is said
 * of a text that stands for nothing.
 *
 * Guards: src/policy/key_form.c, src/policy/entry.c
 */
#include "policy/entry.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "policy/policy_names.h"
#include "support/support.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define NAME_63         "a23456789a123456789a123456789a123456789a123456789a123456789a123"
#define HASH            "00112233445566778899aabbccddeeff"
#define TEXT_SIZE       (3 * KEY_FORM_SIZE + 1)

static const unsigned prefixes[] = {48, 56, 64, 128};

/* The texts of addresses, and the bits of IPv6 that a key has; 0: any, as it is an IPv4 address. */
static void test_addresses_are_written_and_read_by_the_bytes_that_are_the_key(void **state)
{
    (void) state;
    static const struct {
        const char *text, *bytes;
        unsigned bits;
    } all[] = {{"198.51.100.7", "\xc6\x33\x64\x07", 0},
               {"0.0.0.0", "\0\0\0\0", 0},
               {"255.255.255.255", "\xff\xff\xff\xff", 0},
               {"2001:db8:1::/48", "\x20\x01\x0d\xb8\0\1", 48},
               {"2001:db8:1:ff00::/56", "\x20\x01\x0d\xb8\0\1\xff", 56},
               {"2001:db8:0:1::/64", "\x20\x01\x0d\xb8\0\0\0\1", 64},
               {"::/64", "\0\0\0\0\0\0\0\0", 64},
               {"2001:db8::1", "\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\1", 128},
               {"::fffe:102:304", "\0\0\0\0\0\0\0\0\0\0\xff\xfe\1\2\3\4", 128}};
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        for (size_t j = 0; j < COUNT_OF(prefixes); j++) {
            const weir_key_form *form = weir_address_form(prefixes[j]);
            const size_t length = all[i].bits != 0 ? all[i].bits / 8 : 4;
            char text[TEXT_SIZE] = "";
            unsigned char bytes[KEY_FORM_SIZE];
            const size_t written = key_form_write(form, text, sizeof(text), all[i].bytes, length);
            assert_true(written == strlen(text) && written <= 3 * KEY_FORM_SIZE);
            if (all[i].bits == 0 || all[i].bits == prefixes[j]) {
                assert_string_equal(text, all[i].text);
                assert_int_equal(key_form_read(form, bytes, all[i].text), length);
                assert_memory_equal(bytes, all[i].bytes, length);
            } else { /* of another form: each byte is escaped, and the text of that form names no key */
                assert_int_equal(written, 3 * length);
                assert_int_equal(key_form_read(form, bytes, all[i].text), SIZE_MAX);
            }
            assert_int_equal(key_form_read(form, bytes, text), length); /* each key has one text */
            assert_memory_equal(bytes, all[i].bytes, length);
        }
    }
    unsigned char bytes[KEY_FORM_SIZE];
    const weir_key_form *whole = weir_address_form(128);
    assert_int_equal(key_form_read(whole, bytes, "0000:0000:0000:0000:0001:ffff:255.255.255.255"),
                     16); /* the longest */
    assert_int_equal(key_form_read(whole, bytes, "0000:0000:0000:0000:0000:ffff:255.255.255.2555"), SIZE_MAX);
    assert_int_equal(key_form_read(whole, bytes, "2001:db8::1/128"), 16);
    assert_int_equal(key_form_read(whole, bytes, "198.51.100.7/032"), 4);
    /* What is no address, or of a key that does not fit, names no key, whatever its prefix. */
    for (size_t i = 0; i < COUNT_OF(prefixes); i++) {
        const weir_key_form *form = weir_address_form(prefixes[i]);
        const size_t size = prefixes[i] / 8;
        char text[2][64];
        (void) snprintf(text[0], sizeof(text[0]), "2001:db8::/%u", prefixes[i]);
        (void) snprintf(text[1], sizeof(text[1]), "2001:db8/%u", prefixes[i]);
        assert_int_equal(form->read(bytes, size, text[0]), size);
        assert_int_equal(form->read(bytes, size - 1, text[0]), SIZE_MAX);
        assert_int_equal(form->read(bytes, size, text[1]), SIZE_MAX);
        assert_int_equal(form->read(bytes, 4, "198.51.100.7"), 4);
        assert_int_equal(form->read(bytes, 3, "198.51.100.7"), SIZE_MAX);
        assert_int_equal(form->read(bytes, size, "/32"), SIZE_MAX);
        assert_int_equal(form->read(bytes, size, "/128"), SIZE_MAX);
        assert_int_equal(form->read(bytes, size, ""), SIZE_MAX);
    }
    for (unsigned bits = 0; bits < 200; bits++) {
        assert_int_equal(weir_address_form(bits) != NULL, bits == 48 || bits == 56 || bits == 64 || bits == 128);
    }
}

/* Room for an address of any family that does not begin at a multiple of anything. */
static unsigned char odd_place[1 + sizeof(struct sockaddr_storage)];

static const struct sockaddr *placed(const void *address, size_t size)
{
    memcpy(odd_place + 1, address, size);
    return (const struct sockaddr *) (const void *) (odd_place + 1);
}

static const struct sockaddr *v6_of(const uint8_t bytes[16])
{
    struct sockaddr_in6 at;
    memset(&at, 0xff, sizeof(at)); /* port, flow and scope are no part of the key */
    at.sin6_family = AF_INET6;
    memcpy(&at.sin6_addr, bytes, 16);
    return placed(&at, sizeof(at));
}

/* Drawn addresses and all prefixes, beside bits that are copied one by one. */
static void test_the_key_of_a_client_is_its_address_up_to_the_prefix(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (unsigned bits = 0; bits <= 140; bits++) {
        const unsigned used = bits <= 128 ? bits : 128;
        for (int draw = 0; draw < 20; draw++) {
            uint8_t bytes[16];
            uint8_t expected[16] = {0};
            uint8_t out[17];
            memset(out, 0xa5, sizeof(out));
            for (size_t i = 0; i < 16; i++) {
                bytes[i] = (uint8_t) (random_next(&rng) | 1); /* so none is ::ffff:0:0/96 */
            }
            for (unsigned bit = 0; bit < used; bit++) {
                expected[bit / 8] |= (uint8_t) (bytes[bit / 8] & (0x80U >> bit % 8));
            }
            size_t length = 5;
            while (8 * length < used) {
                length++;
            }
            assert_int_equal(weir_address_key(v6_of(bytes), bits, out), length);
            assert_memory_equal(out, expected, length);
            assert_int_equal(out[length], 0xa5); /* nothing behind it is written */
        }
    }
}

static void test_a_client_of_ipv4_has_one_key_whichever_socket_took_it(void **state)
{
    (void) state;
    static const uint8_t mapped[16] = {[10] = 0xff, [11] = 0xff, 198, 51, 100, 7};
    static const uint8_t others[][16] = {{[10] = 0xff, [11] = 0xfe, 198, 51, 100, 7},
                                         {[9] = 1, [10] = 0xff, [11] = 0xff, 198, 51, 100, 7},
                                         {[12] = 198, 51, 100, 7}};
    struct sockaddr_in at;
    memset(&at, 0xff, sizeof(at));
    at.sin_family = AF_INET;
    memcpy(&at.sin_addr, mapped + 12, 4);
    for (unsigned bits = 0; bits <= 140; bits++) {
        uint8_t out[16] = {0};
        assert_int_equal(weir_address_key(placed(&at, sizeof(at)), bits, out), 4);
        assert_memory_equal(out, mapped + 12, 4);
        memset(out, 0, sizeof(out));
        assert_int_equal(weir_address_key(v6_of(mapped), bits, out), 4);
        assert_memory_equal(out, mapped + 12, 4);
        for (size_t i = 0; i < COUNT_OF(others); i++) {
            assert_true(weir_address_key(v6_of(others[i]), bits, out) > 4);
        }
    }
}

static void test_what_is_no_address_has_no_key(void **state)
{
    (void) state;
    uint8_t out[16];
    memset(out, 0xa5, sizeof(out));
    const uint8_t untouched = 0xa5;
    assert_int_equal(weir_address_key(NULL, 64, out), 0);
    for (unsigned family = 0; family < 300; family++) {
        struct sockaddr_storage at;
        memset(&at, 1, sizeof(at));
        at.ss_family = (sa_family_t) family;
        if (family != AF_INET && family != AF_INET6) {
            assert_int_equal(weir_address_key(placed(&at, sizeof(at)), 64, out), 0);
        }
    }
    for (size_t i = 0; i < sizeof(out); i++) {
        assert_memory_equal(&out[i], &untouched, 1);
    }
}

/* What the form of a prefix writes of such a key is the address, and an override of that text is of this key. */
static void test_the_form_of_the_prefix_knows_the_keys_of_clients(void **state)
{
    (void) state;
    static const char *const texts[] = {"2001:db8:1::/48", "2001:db8:1:200::/56", "2001:db8:1:2ff::/64",
                                        "2001:db8:1:2ff::7"};
    struct in6_addr address;
    assert_int_equal(inet_pton(AF_INET6, "2001:db8:1:2ff::7", &address), 1);
    for (size_t i = 0; i < COUNT_OF(prefixes); i++) {
        uint8_t key[16];
        char text[TEXT_SIZE] = "";
        const size_t length = weir_address_key(v6_of(address.s6_addr), prefixes[i], key);
        (void) key_form_write(weir_address_form(prefixes[i]), text, sizeof(text), key, length);
        assert_string_equal(text, texts[i]);
    }
}

/* ::ffff:198.51.100.7 is 198.51.100.7, in a policy with any form of addresses. */
static void test_an_ipv6_address_that_stands_for_one_of_ipv4_is_that_address(void **state)
{
    (void) state;
    static const char *const spellings[] = {"198.51.100.7",
                                            "::ffff:198.51.100.7",
                                            "::FFFF:198.51.100.7",
                                            "::ffff:c633:6407",
                                            "::FFFF:C633:6407",
                                            "0:0:0:0:0:ffff:c633:6407",
                                            "0000:0000:0000:0000:0000:ffff:198.51.100.7",
                                            "::ffff:198.51.100.7/128",
                                            "%00%00%00%00%00%00%00%00%00%00%ff%ff%c6%33%64%07"};
    static const struct {
        const char *text;
        unsigned bits;
    } networks[] = {{"::ffff:198.51.0.0/112", 16},   {"::FFFF:C633:0/112", 16}, {"0:0:0:0:0:ffff:c633::/112", 16},
                    {"::ffff:198.51.100.6/127", 31}, {"::ffff:0:0/96", 0},      {"::ffff:0.0.0.0/096", 0}};
    static const char *const none[] = {"::ffff:198.51.100.7/112", "::ffff:198.51.0.0/95", "::ffff:198.51.100.7/129",
                                       "::ffff:198.51.100.256", "::ffff:198.51.100.7/32"};
    for (size_t i = 0; i < COUNT_OF(prefixes); i++) {
        const weir_key_form *form = weir_address_form(prefixes[i]);
        unsigned char bytes[KEY_FORM_SIZE];
        struct key_network network;
        char text[TEXT_SIZE] = "";
        for (size_t j = 0; j < COUNT_OF(spellings); j++) {
            assert_int_equal(key_form_read(form, bytes, spellings[j]), 4);
            assert_memory_equal(bytes, "\xc6\x33\x64\x07", 4);
        }
        assert_int_equal(key_form_write(form, text, sizeof(text), "\0\0\0\0\0\0\0\0\0\0\xff\xff\xc6\x33\x64\x07", 16),
                         12);
        assert_string_equal(text, "198.51.100.7");
        for (size_t j = 0; j < COUNT_OF(networks); j++) {
            assert_true(key_form_read_network(form, networks[j].text, &network));
            assert_true(network.length == 4 && network.bits == networks[j].bits);
            assert_memory_equal(network.bytes, "\xc6\x33\x64\x06", network.bits / 8);
        }
        for (size_t j = 0; j < COUNT_OF(none); j++) {
            assert_false(key_form_read_network(form, none[j], &network));
            assert_int_equal(key_form_read(form, bytes, none[j]), SIZE_MAX);
        }
    }
    /* ::ffff:0:0/95 has other addresses as well, and is of IPv6. */
    struct key_network network;
    assert_true(key_form_read_network(weir_address_form(128), "::fffe:0:0/95", &network));
    assert_true(network.length == 16 && network.bits == 95);
    unsigned char bytes[KEY_FORM_SIZE];
    assert_int_equal(key_form_read(NULL, bytes, "%00%00%00%00%00%00%00%00%00%00%ff%ff%7f%00%00%01"), 4);
    assert_int_equal(key_form_read(NULL, bytes, "%00%00%00%00%00%00%00%00%00%00%ff%fe%7f%00%00%01"), 16);
    assert_int_equal(key_form_read(NULL, bytes, "::ffff:127.0.0.1"),
                     16); /* text of 16 letters, of a policy without a form */
}

/* A form of a program: a key is a letter, and its text is the letter so many times. */
static size_t written_times;
static char written_letter;

static size_t letters_write(char *out, size_t size, const void *key, size_t length)
{
    (void) key;
    assert_true(length == 1 && size == WEIR_KEY_TEXT_SIZE);
    memset(out, written_letter, written_times < size ? written_times : size);
    return written_times;
}

static size_t read_length;

static size_t letters_read(void *out, size_t size, const char *text)
{
    assert_int_equal(size, KEY_FORM_SIZE);
    *(char *) out = *text;
    return read_length;
}

static const weir_key_form letters = {letters_write, letters_read, "aaa"};

static void test_a_text_that_a_form_should_not_write_is_not_used(void **state)
{
    (void) state;
    char out[TEXT_SIZE];
    static const struct {
        size_t times, size;
        char letter;
        bool is_used;
    } all[] = {{5, 100, 'a', true},
               {0, 100, 'a', false}, /* no key of the form */
               {WEIR_KEY_TEXT_SIZE - 1, TEXT_SIZE, 'a', true},
               {WEIR_KEY_TEXT_SIZE, TEXT_SIZE, 'a', false},
               {5, 16, 'a', true},
               {5, 15, 'a', false}, /* of no more characters than three for each byte */
               {5, 100, ' ', false},
               {5, 100, '%', false}};
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        written_times = all[i].times;
        written_letter = all[i].letter;
        memset(out, '!', sizeof(out));
        const size_t written = key_form_write(&letters, out, all[i].size, "\x7e", 1);
        assert_int_equal(written, all[i].is_used ? all[i].times : 3);
        assert_memory_equal(out, all[i].is_used ? "aaa" : "%7e", 3);
    }
    unsigned char bytes[KEY_FORM_SIZE];
    read_length = KEY_FORM_SIZE;
    assert_int_equal(key_form_read(&letters, bytes, "a"), KEY_FORM_SIZE);
    assert_int_equal(bytes[0], 'a');
    assert_int_equal(key_form_read(&letters, bytes, "%41"), 1);
    assert_int_equal(bytes[0], 'A');
    read_length = KEY_FORM_SIZE + 1;
    assert_int_equal(key_form_read(&letters, bytes, "a"), SIZE_MAX);
    /* Without a form a key is its bytes. */
    assert_int_equal(key_form_write(NULL, out, sizeof(out), "a b", 3), 5);
    assert_memory_equal(out, "a%20b", 5);
    char longest[KEY_FORM_SIZE + 2];
    memset(longest, 'x', sizeof(longest));
    longest[KEY_FORM_SIZE + 1] = '\0';
    assert_int_equal(key_form_read(NULL, bytes, longest), SIZE_MAX);
    assert_int_equal(key_form_read(NULL, bytes, longest + 1), KEY_FORM_SIZE);
}

/* This is longer than any address. */
#define LONG_HOST "0000:0000:0000:0000:0000:ffff:255.255.255.2555"

/* Each network with one bit of its address set: it is one where the bit lies within the prefix. */
static void test_a_network_has_no_bits_behind_its_prefix(void **state)
{
    (void) state;
    const weir_key_form *form = weir_address_form(64);
    for (unsigned bit = 0; bit < 128; bit++) {
        for (unsigned prefix = 0; prefix <= 128; prefix++) {
            char text[80];
            unsigned char bytes[16] = {0};
            struct key_network network;
            memset(&network, 0xff, sizeof(network));
            bytes[bit / 8] = (unsigned char) (0x80 >> bit % 8);
            unsigned at = 0;
            for (size_t i = 0; i < 16; i += 2) {
                at += (unsigned) snprintf(text + at, sizeof(text) - at, "%s%x", i != 0 ? ":" : "",
                                          bytes[i] * 256 + bytes[i + 1]);
            }
            (void) snprintf(text + at, sizeof(text) - at, "/%u", prefix);
            const bool good = prefix < 64 && bit < prefix; /* 64 bits are a single key */
            assert_int_equal(key_form_read_network(form, text, &network), good);
            if (good) {
                assert_true(network.length == 8 && network.bits == prefix);
                assert_memory_equal(network.bytes, bytes, 16);
                char written[80];
                struct key_network again;
                const size_t length = key_form_write_network(&network, written, sizeof(written));
                assert_true(length != 0 && length == strlen(written));
                assert_true(key_form_read_network(form, written, &again));
                assert_memory_equal(&again, &network, sizeof(network));
                assert_int_equal(key_form_write_network(&network, written, length), 0); /* no room for the end */
                assert_int_equal(key_form_write_network(&network, written, length + 1), length);
            }
            if (bit < 32 && prefix <= 40) {
                (void) snprintf(text, sizeof(text), "%u.%u.%u.%u/%u", bytes[0], bytes[1], bytes[2], bytes[3], prefix);
                const bool v4 = prefix < 32 && bit < prefix;
                assert_int_equal(key_form_read_network(form, text, &network), v4);
                if (v4) {
                    char written[80];
                    assert_true(network.length == 4 && network.bits == prefix);
                    assert_memory_equal(network.bytes, bytes, 16);
                    assert_int_equal(key_form_write_network(&network, written, sizeof(written)), strlen(text));
                    assert_string_equal(written, text);
                }
            }
        }
    }
    static const char *const none[] = {"198.51.100.0",
                                       "198.51.100.0/",
                                       "198.51.100.0/x",
                                       "198.51.100.0/24x",
                                       "/8",
                                       "10.0.0/8",
                                       "10.0.0.0/0008",
                                       "10.0.0.0/8/8",
                                       "%31/8",
                                       "",
                                       "10.0.0.0/-1",
                                       "10.0.0.0/9999",
                                       LONG_HOST "/8",
                                       LONG_HOST "/24"};
    struct key_network network;
    for (size_t i = 0; i < COUNT_OF(none); i++) {
        assert_false(key_form_read_network(form, none[i], &network));
    }
    assert_true(key_form_read_network(form, "0.0.0.0/0", &network));
    assert_true(network.length == 4 && network.bits == 0);
    assert_true(key_form_read_network(form, "::/0", &network));
    assert_true(network.length == 8 && network.bits == 0);
    assert_false(key_form_read_network(NULL, "10.0.0.0/8", &network));
    assert_false(key_form_read_network(&letters, "10.0.0.0/8", &network));
}

/* An address of a family, without bits behind a prefix, and its text with that prefix. */
static void draw_network(uint64_t *rng, bool v4, unsigned prefix, unsigned char bytes[16], char text[80])
{
    char host[INET6_ADDRSTRLEN];
    memset(bytes, 0, 16);
    for (unsigned bit = 0; bit < prefix; bit++) {
        bytes[bit / 8] |= (unsigned char) (random_below(rng, 2) << (7 - bit % 8));
    }
    assert_non_null(inet_ntop(v4 ? AF_INET : AF_INET6, bytes, host, sizeof(host)));
    (void) snprintf(text, 80, "%s/%u", host, prefix);
}

/* Drawn networks in policies of networks of each size: the same size is a key, a larger network is all keys in it. */
static void test_keys_that_are_networks_have_one_size_and_larger_ones_stand_for_all_in_them(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    assert_null(weir_network_form(4, 0));
    assert_null(weir_network_form(4, 33));
    assert_null(weir_network_form(6, 0));
    assert_null(weir_network_form(6, 129));
    assert_null(weir_network_form(5, 8));
    for (unsigned n = 0; n < test_draws(50000); n++) {
        const bool v4 = random_below(&rng, 2) == 0;
        const unsigned most = v4 ? 32 : 128;
        const unsigned size = 1 + (unsigned) random_below(&rng, most);
        const weir_key_form *form = weir_network_form(v4 ? 4 : 6, size);
        const bool of_other_family = random_below(&rng, 8) == 0;
        const bool text_v4 = v4 != of_other_family;
        unsigned prefix = (unsigned) random_below(&rng, text_v4 ? 33 : 129);
        prefix = random_below(&rng, 3) == 0 && size <= (text_v4 ? 32U : 128U) ? size : prefix;
        unsigned char bytes[16], key[KEY_FORM_SIZE], escaped[KEY_FORM_SIZE];
        char text[80], written[TEXT_SIZE] = "";
        struct key_network network;
        draw_network(&rng, text_v4, prefix, bytes, text);
        const bool is_key = !of_other_family && prefix == size;
        const bool is_network = !of_other_family && prefix < size;
        const size_t length = text_v4 ? 5 : 17;
        assert_int_equal(key_form_read(form, key, text), is_key ? length : SIZE_MAX);
        assert_int_equal(key_form_read_network(form, text, &network), is_network);
        if (is_network) {
            assert_true(network.length == length && network.bits == prefix);
            assert_memory_equal(network.bytes, bytes, 16);
            assert_int_equal(network.bytes[16], 0);
            assert_int_equal(key_form_write_network(&network, written, sizeof(written)), strlen(text));
            assert_string_equal(written, text);
        }
        /* The key of that network, whatever the policy: the form writes its own, and others byte by byte. */
        memcpy(key, bytes, 16);
        key[length - 1] = (unsigned char) prefix;
        written[key_form_write(form, written, sizeof(written), key, length)] = '\0';
        if (is_key) {
            assert_string_equal(written, text);
        } else {
            assert_int_equal(strlen(written), 3 * length);
        }
        assert_int_equal(key_form_read(form, escaped, written), length);
        assert_memory_equal(escaped, key, length);
    }
}

/* A key of a network has 0 behind its prefix, and a text has one network. */
static void test_texts_and_keys_that_are_no_networks(void **state)
{
    (void) state;
    static const char *const wrong[] = {"198.51.100.0",
                                        "198.51.100.0/",
                                        "198.51.100.0/33",
                                        "198.51.100.1/24",
                                        "198.51.100.0/2x",
                                        "198.51.100.0/-1",
                                        "198.51.100.0/ 8",
                                        "198.51.100/24",
                                        "2001:db8::/129",
                                        "2001:db8::1/64",
                                        "x/8",
                                        "/8",
                                        "2001:db8:::/32",
                                        LONG_HOST "/128",
                                        "::ffff:198.51.100.1/120",
                                        "::ffff:198.51.100.0/88"};
    unsigned char key[KEY_FORM_SIZE];
    struct key_network network;
    char written[80];
    for (unsigned size = 1; size <= 128; size++) {
        for (size_t i = 0; i < COUNT_OF(wrong); i++) {
            for (unsigned version = 4; version <= (size <= 32 ? 6U : 4U); version += 2) {
                const weir_key_form *form = weir_network_form(size <= 32 ? version : 6, size);
                assert_int_equal(form->read(key, sizeof(key), wrong[i]), SIZE_MAX);
                assert_int_equal(key_form_read(form, key, wrong[i]), SIZE_MAX);
                assert_false(key_form_read_network(form, wrong[i], &network));
            }
        }
    }
    static const char *const mapped[] = {"::ffff:198.51.100.0/120", "::FFFF:c633:6400/120",
                                         "0:0::0:ffff:198.51.100.0/120"};
    const weir_key_form *form = weir_network_form(4, 24);
    for (size_t i = 0; i < COUNT_OF(mapped); i++) {
        assert_int_equal(key_form_read(form, key, mapped[i]), 5);
        assert_memory_equal(key, "\xc6\x33\x64\0\x18", 5);
        assert_int_equal(key_form_read(weir_network_form(6, 120), key, mapped[i]), SIZE_MAX);
    }
    assert_true(key_form_read_network(form, "::ffff:198.0.0.0/104", &network));
    assert_true(network.length == 5 && network.bits == 8);
    assert_int_equal(form->write(written, sizeof(written), "\0\0\0\0\0\0\0\0\0\0\xff\xff\xc6\x33\x64\0\x78", 17), 0);
    assert_int_equal(form->read(key, 5, "198.51.100.0/24"), 5);
    assert_int_equal(form->read(key, 4, "198.51.100.0/24"), SIZE_MAX); /* no room */
    assert_int_equal(form->write(written, 16, "\xc6\x33\x64\0\x18", 5), 15);
    assert_int_equal(form->write(written, 15, "\xc6\x33\x64\0\x18", 5), 0);
    assert_int_equal(form->write(written, sizeof(written), "\xc6\x33\x64\1\x18", 5), 0); /* a bit behind the prefix */
    assert_int_equal(form->write(written, sizeof(written), "\xc6\x33\x64\0\x21", 5), 0);
    assert_int_equal(form->write(written, sizeof(written), "\xc6\x33\x64\0", 4), 0);
}

static struct policy_names *names_new(void)
{
    struct policy_names *names = calloc(1, sizeof(*names));
    assert_non_null(names);
    assert_int_equal(policy_names_set_form(names, "ip", weir_address_form(64)), 0);
    assert_int_equal(policy_names_set_form(names, "whole", weir_address_form(128)), 0);
    assert_int_equal(policy_names_set_form(names, "own", &letters), 0);
    assert_int_equal(policy_names_set_form(names, "net", weir_network_form(4, 16)), 0);
    assert_int_equal(policy_names_set_form(names, "net6", weir_network_form(6, 20)), 0);
    return names;
}

static void test_a_name_is_a_key_a_hash_or_a_network_and_has_one_text(void **state)
{
    (void) state;
    /* 36 characters may stand before a hash: twelve escaped bytes. */
#define TWELVE "%20%20%20%20%20%20%20%20%20%20%20%20"
    static const struct {
        const char *text, *policy, *canonical;
        enum entry_kind kind;
        size_t length; /* of the bytes, or of a network's keys */
    } all[] = {
        {"p:a", "p", "p:a", ENTRY_KEY, 1},
        {"p:", "p", "p:", ENTRY_KEY, 0},
        {"p:%61:b", "p", "p:a:b", ENTRY_KEY, 3},
        {"p:a%20%E9", "p", "p:a%20%e9", ENTRY_KEY, 3},
        {NAME_63 ":a", NAME_63, NAME_63 ":a", ENTRY_KEY, 1},
        {"p:~" HASH, "p", "p:~" HASH, ENTRY_HASHED, 16},
        {"p:begin~00112233445566778899AABBCCDDEEFF", "p", "p:~" HASH, ENTRY_HASHED, 16},
        {"p:a~b~" HASH, "p", "p:~" HASH, ENTRY_HASHED, 16},
        {"p:" TWELVE "~" HASH, "p", "p:~" HASH, ENTRY_HASHED, 16},
        {"p:" TWELVE "a~" HASH, "p", "p:" TWELVE "a~" HASH, ENTRY_KEY, 46},
        {"p:~" HASH "0", "p", "p:~" HASH "0", ENTRY_KEY, 34},
        {"p:~0011223344556677", "p", "p:~0011223344556677", ENTRY_KEY, 17},
        {"p:~g0112233445566778899aabbccddeeff", "p", "p:~g0112233445566778899aabbccddeeff", ENTRY_KEY, 33},
        {"ip:198.51.100.7", "ip", "ip:198.51.100.7", ENTRY_KEY, 4},
        {"ip/pro:2001:DB8:0:0::/64", "ip/pro", "ip/pro:2001:db8::/64", ENTRY_KEY, 8},
        {"ip:~" HASH, "ip", "ip:~" HASH, ENTRY_HASHED, 16},
        {"ip:10.0.0.0/8", "ip", "ip:10.0.0.0/8", ENTRY_NETWORK, 4},
        {"ip:2001:db8:0::/32", "ip", "ip:2001:db8::/32", ENTRY_NETWORK, 8},
        {"ip:%01%02", "ip", "ip:%01%02", ENTRY_KEY, 2},
        {"net:198.51.0.0/16", "net", "net:198.51.0.0/16", ENTRY_KEY, 5},
        {"net/pro:198.0.0.0/8", "net/pro", "net/pro:198.0.0.0/8", ENTRY_NETWORK, 5},
        {"net6:2001:0000::/20", "net6", "net6:2001::/20", ENTRY_KEY, 17},
        {"net6:::/0", "net6", "net6:::/0", ENTRY_NETWORK, 17},
    };
    struct policy_names *names = names_new();
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        struct entry_name name;
        struct entry_name again;
        weir_error error;
        char canonical[ENTRY_NAME_SIZE];
        memset(&name, 0xff, sizeof(name));
        if (entry_name_read(names, all[i].text, &name, &error) != 0) {
            fail_msg("%s", error.message);
        }
        assert_string_equal(name.policy, all[i].policy);
        assert_int_equal(name.kind, all[i].kind);
        assert_int_equal(name.kind == ENTRY_NETWORK ? name.network.length : name.length, all[i].length);
        assert_ptr_equal(name.form, policy_names_form(names, all[i].policy));
        if (name.kind == ENTRY_HASHED) {
            assert_memory_equal(name.bytes, "\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff", 16);
        }
        memset(canonical, '!', sizeof(canonical));
        entry_name_write(&name, canonical);
        assert_string_equal(canonical, all[i].canonical);
        assert_int_equal(entry_name_read(names, canonical, &again, NULL), 0);
        assert_memory_equal(&again, &name, sizeof(name));
    }
    policy_names_free(names);
    free(names);
}

static void test_a_name_of_no_key_is_refused_with_what_to_give(void **state)
{
    (void) state;
#define NO_POLICY " names no policy; give policy:key, such as api:198.51.100.7"
#define NETWORKS  ", or a network without bits behind its prefix, such as 198.51.100.0/24"
    static const struct {
        const char *text, *says;
    } all[] = {
        {"nothing", "\"nothing\"" NO_POLICY},
        {"", "\"\"" NO_POLICY},
        {":a", "\":a\"" NO_POLICY},
        {NAME_63 "4:a", "\"a23456789a123456789a123456789a123456789a123456789a123456789a\"" NO_POLICY},
        {"p:a%4", "the key \"a%4\" is malformed; give at most 1024 bytes, others than printable ones as %xx"},
        {"ip:example.com",
         "policy \"ip\" has no key \"example.com\"; give an address such as 198.51.100.7 or 2001:db8::/64" NETWORKS},
        {"whole:10.0.0.1/8",
         "policy \"whole\" has no key \"10.0.0.1/8\"; give an address such as 198.51.100.7 or 2001:db8::1" NETWORKS},
        {"whole:example.com",
         "policy \"whole\" has no key \"example.com\"; give one such as 198.51.100.7 or 2001:db8::1"},
        {"own:a", "policy \"own\" has no key \"a\"; give one such as aaa"},
        {"net:198.51.100.0/24",
         "policy \"net\" has no key \"198.51.100.0/24\"; its keys are networks of IPv4 of 16 bits: "
         "give one, such as 198.51.0.0/16, or one of fewer bits for all in it"},
        {"net6:198.51.100.7", "policy \"net6\" has no key \"198.51.100.7\"; its keys are networks of IPv6 of 20 bits: "
                              "give one, such as 2001::/20, or one of fewer bits for all in it"},
    };
    struct policy_names *names = names_new();
    read_length = SIZE_MAX;
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        struct entry_name name;
        weir_error error;
        assert_int_equal(entry_name_read(names, all[i].text, &name, &error), -EINVAL);
        assert_string_equal(error.message, all[i].says);
    }
    policy_names_free(names);
    free(names);
}

/* Values */

static const weir_limit limits[] = {{.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .period_ns = 60 * SECOND, .delay = 9},
                                    {.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .calendar = WEIR_CALENDAR_MONTH}};
static const weir_policy two = {.name = "two", .limits = limits, .limit_count = 2};

/* Reads a value for the policy, and for what it is compiled to. */
static int read_both(const char *text, struct entry_value *value, weir_error *error)
{
    struct policy compiled = {.name = "two", .limit_count = 2};
    struct entry_value other;
    weir_error other_error;
    for (size_t i = 0; i < 2; i++) {
        compiled.limits[i].rule = rule_make(&limits[i], 0);
    }
    memset(value, 0xff, sizeof(*value));
    memset(&other, 0xff, sizeof(other));
    error->message[0] = other_error.message[0] = '\0';
    const int result = entry_value_read(&two, text, value, error);
    assert_int_equal(entry_value_compile(&compiled, text, &other, &other_error), result);
    assert_string_equal(other_error.message, error->message);
    if (result == 0) {
        assert_memory_equal(&other, value, sizeof(other));
    }
    return result;
}

static void test_a_value_is_a_word_or_a_number_for_each_limit(void **state)
{
    (void) state;
    static const struct {
        const char *text;
        struct entry_value value;
    } all[] = {
        {"allow", {.override = OVERRIDE_ALLOW}},
        {"deny", {.override = OVERRIDE_DENY}},
        {"20 7", {.limits = {20, 7}}},
        {"20,7", {.limits = {20, 7}}},
        {" , 20 , 7  ", {.limits = {20, 7}}},
        {"20/5 7", {.limits = {20, 7}, .bursts = {5, 0}}},
        {"20/1, 7/7", {.limits = {20, 7}, .bursts = {1, 7}}}, /* a window's burst, if it is the limit */
        {"3 4398046511103", {.limits = {3, WEIR_MAX_UNITS}}},
        {"0003/0004 7", {.limits = {3, 7}, .bursts = {4, 0}}},
        {"20 7 until 2026-01-01", {.limits = {20, 7}, .until_ns = UINT64_C(1767225600) * SECOND}},
        {"deny until 2026-01-01T00:00:07Z", {.override = OVERRIDE_DENY, .until_ns = UINT64_C(1767225607) * SECOND}},
    };
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        struct entry_value value;
        weir_error error;
        if (read_both(all[i].text, &value, &error) != 0) {
            fail_msg("\"%s\": %s", all[i].text, error.message);
        }
        assert_int_equal(value.override, all[i].value.override);
        assert_int_equal(value.until_ns, all[i].value.until_ns);
        assert_memory_equal(value.limits, all[i].value.limits, sizeof(value.limits));
        assert_memory_equal(value.bursts, all[i].value.bursts, sizeof(value.bursts));
    }
}

static void test_a_value_that_is_none_is_refused_with_what_to_give(void **state)
{
    (void) state;
    static const char *const none[] = {"",
                                       "20",
                                       "20 7 8",
                                       "20 7x",
                                       "x 20 7",
                                       "20/ 7",
                                       "20/0 7",
                                       "0 7",
                                       "20 0",
                                       "-1 7",
                                       "20;7",
                                       "4398046511104 7",
                                       "20 /7",
                                       "20 7/",
                                       "allowed",
                                       "allow ",
                                       "allow 7",
                                       "Allow",
                                       "20 7,",
                                       "20/x 7",
                                       "denyx",
                                       "3 4398046511104",
                                       "18446744073709551617 7",
                                       "20/18446744073709551617 7"};
    weir_error error;
    struct entry_value value;
    char whole[sizeof(error.message)];
    for (size_t i = 0; i < COUNT_OF(none); i++) {
        if (read_both(none[i], &value, &error) != -EINVAL) {
            fail_msg("\"%s\" is taken", none[i]);
        }
        (void) snprintf(whole, sizeof(whole),
                        "\"%s\" is no value for policy \"two\"; give \"allow\", \"deny\" or a number for each of its "
                        "limits (2), such as \"200/50 10000\"",
                        none[i]);
        assert_string_equal(error.message, whole);
    }
    /* Numbers that a policy could not have either. */
    assert_int_equal(read_both("20 7/8", &value, &error), -EINVAL);
    assert_string_equal(error.message, "policy \"two\": limit 2 has burst 8, but only buckets have one; leave it out, "
                                       "or use token_bucket");
    assert_int_equal(read_both("1/1051200 7", &value, &error), -EINVAL);
    assert_string_equal(error.message, "policy \"two\": limit 1 has burst 1051200, which takes two years or more to "
                                       "refill; give less");
    assert_int_equal(read_both("1/1051199 7", &value, &error), 0);
    assert_int_equal(read_both("deny until then", &value, &error), -EINVAL);
    assert_string_equal(error.message, "\"until then\" is no end of an override; give a time in UTC, such as "
                                       "2026-12-01T00:00Z");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses_are_written_and_read_by_the_bytes_that_are_the_key),
        cmocka_unit_test(test_the_key_of_a_client_is_its_address_up_to_the_prefix),
        cmocka_unit_test(test_a_client_of_ipv4_has_one_key_whichever_socket_took_it),
        cmocka_unit_test(test_what_is_no_address_has_no_key),
        cmocka_unit_test(test_the_form_of_the_prefix_knows_the_keys_of_clients),
        cmocka_unit_test(test_an_ipv6_address_that_stands_for_one_of_ipv4_is_that_address),
        cmocka_unit_test(test_a_text_that_a_form_should_not_write_is_not_used),
        cmocka_unit_test(test_a_network_has_no_bits_behind_its_prefix),
        cmocka_unit_test(test_keys_that_are_networks_have_one_size_and_larger_ones_stand_for_all_in_them),
        cmocka_unit_test(test_texts_and_keys_that_are_no_networks),
        cmocka_unit_test(test_a_name_is_a_key_a_hash_or_a_network_and_has_one_text),
        cmocka_unit_test(test_a_name_of_no_key_is_refused_with_what_to_give),
        cmocka_unit_test(test_a_value_is_a_word_or_a_number_for_each_limit),
        cmocka_unit_test(test_a_value_that_is_none_is_refused_with_what_to_give),
    };
    return cmocka_run_group_tests_name("unit/policy/entry", tests, NULL, NULL);
}
